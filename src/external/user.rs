//! A user's own CUDA kernel, source or cubin: `qassay run --kernel my.cu --entry my_gemm --op gemm`.
//!
//! It is called as its declaration says ([`super::declared`]). Inputs are the tensors that a bundle of the case would hold. Outputs lie
//! between guard bands and are poisoned; the kernel runs twice over different poison, and what is poison both times was never written.

use super::declared::{Argument, Declaration, READ, in_source};
use crate::bundle::{Bundle, File, Meta, Stored, Writer, case};
use crate::format::pack::NibbleOrder;
use crate::job::{Job, Operand, OutSpec, Output, Part};
use crate::kernel::cuda::launch::{Arg, Buffer, Function, Gpu, LaunchShape, gpu};
use crate::kernel::cuda::nvrtc;
use crate::kernel::{Backend, Kernel, KernelAnswer, KernelSpec, cpu, find};
use crate::op::Op;
use crate::{Error, Format, Result};
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A user's kernel: read, and compiled where it is a source.
pub struct UserKernel {
    path: PathBuf,
    signature: Option<String>,
    declared: Declaration,
    image: Image,
    spec: KernelSpec,
    function: OnceLock<Function>,
}

enum Image {
    Source(String),
    Cubin(Vec<u8>),
}

/// What outputs hold before the first and the second run.
const POISON: [u8; 2] = [0xff, 0x5a];
/// Architecture that sources are compiled for where there is no GPU.
const WITHOUT: &str = "sm_90a";

impl UserKernel {
    /// Reads `path` and the declaration of `entry`: `signature`, else the source's own. Errors: it cannot be read, is neither text nor
    /// cubin, or is not declared; the declaration's own.
    pub fn new(path: &Path, entry: &str, op: Op, signature: Option<String>) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::io(path, e, "give the path of a CUDA source or a cubin"))?;
        let image = match bytes.starts_with(b"\x7fELF") {
            true => Image::Cubin(bytes),
            false => Image::Source(String::from_utf8(bytes).map_err(|_| Error::BadFile {
                path: path.into(),
                found: "neither text nor an ELF file".into(),
                expected: "a CUDA source, or a cubin".into(),
            })?),
        };
        let name = path.display().to_string();
        let text = match (&signature, &image) {
            (Some(text), _) => text.clone(),
            (None, Image::Source(source)) => in_source(&name, source, entry)?,
            (None, Image::Cubin(_)) => {
                return Err(Error::value(
                    name,
                    "a cubin, which holds no comments",
                    "--signature 'entry(arguments) grid=… block=…'",
                ));
            }
        };
        let declared = Declaration::parse(&text)?;
        if declared.entry != entry {
            return Err(Error::value(
                "--signature",
                format!("entry {}", declared.entry),
                format!("entry {entry}, as --entry says"),
            ));
        }
        // The registry's kernels live as long as the program; a user's does too.
        let leaked = |s: String| -> &'static str { Box::leak(s.into_boxed_str()) };
        let stem = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        let spec = KernelSpec {
            name: leaked(format!("external/{stem}:{entry}")),
            backend: Backend::External,
            ops: Box::leak(Box::new([op])),
            help: "a user's CUDA kernel",
            source: leaked(name),
        };
        Ok(Self { path: path.into(), signature, declared, image, spec, function: OnceLock::new() })
    }

    /// SHA-256 of source or cubin.
    pub fn sha256(&self) -> String {
        match &self.image {
            Image::Source(s) => crate::compare::sha256(s.as_bytes()),
            Image::Cubin(b) => crate::compare::sha256(b),
        }
    }

    /// Machine code for `arch`. Errors: NVRTC is missing, it does not compile, or has no such entry.
    pub fn cubin(&self, arch: &str) -> Result<Vec<u8>> {
        let source = match &self.image {
            Image::Cubin(bytes) => return Ok(bytes.clone()),
            Image::Source(source) => source,
        };
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let compiled = nvrtc::compile_user(self.spec.source, source, arch, &[folder.into()])?;
        let entries = entries(&compiled.cubin);
        match entries.contains(&self.declared.entry) {
            true => Ok(compiled.cubin),
            false => {
                let expected = format!("`{}`: declare it extern \"C\" __global__", self.declared.entry);
                Err(Error::value(format!("entries of {}", self.spec.source), entries.join(", "), expected))
            }
        }
    }

    /// Compiles it where there is no GPU: what can be known of it there. Errors: those of [`Self::cubin`].
    pub fn compiles(&self) -> Result<&'static str> {
        self.cubin(WITHOUT).map(|_| WITHOUT)
    }

    fn function(&self, gpu: &Gpu) -> Result<&Function> {
        if let Some(f) = self.function.get() {
            return Ok(f);
        }
        let cubin = self.cubin(&gpu.info.arch())?;
        let loaded = gpu.load(&format!("{} of {}", self.declared.entry, self.spec.source), &cubin, &self.declared.entry)?;
        Ok(self.function.get_or_init(|| loaded))
    }

    fn refuse<T>(&self, why: String) -> Result<T> {
        Err(Error::unsupported(self.spec.name, why))
    }

    /// The tensors of a case by name, as its declared types have them. Errors: the signature does not fit the case.
    fn inputs(&self, job: &Job) -> Result<BTreeMap<String, Stored>> {
        let order = |x: &str| {
            let words = self.declared.words(&format!("{x}.codes")).unwrap_or_default();
            words.iter().find_map(|w| w.parse::<NibbleOrder>().ok())
        };
        let packing = [("a", job.operands.get(0)), ("b", job.operands.b())].map(|(x, o)| match o {
            Some(Operand::Quantized(q)) if q.format().bits() == 4 => order(x),
            _ => None,
        });
        let bundle = case::packed_input(job, packing)?;
        let meta = bundle.metadata();
        let mut tensors: BTreeMap<String, Stored> = bundle
            .tensors()
            .iter()
            .filter(|(name, _)| !name.starts_with("out."))
            .map(|(n, t)| (n.clone(), t.clone()))
            .collect();
        for (name, (dtype, ..)) in &tensors {
            let by_reciprocal = name.strip_suffix("_inv").filter(|n| ["a.scale", "b.scale"].contains(n));
            let words = match (self.declared.words(name), by_reciprocal.and_then(|n| self.declared.words(n))) {
                (Some(w), _) | (None, Some(w)) => w,
                (None, None) => return self.refuse(format!("its signature has no `{name}`, which the case has")),
            };
            let (x, part) = name.split_once('.').unwrap_or((name, ""));
            let key = |k: &str| meta.get(&format!("{x}.{k}")).map(String::as_str);
            let is = match part {
                "codes" => vec![key("format"), key("packing")],
                "scale_inv" => vec![key("granularity"), key("scale_format")],
                "zero_point" => vec![key("zero")],
                _ => vec![type_name(*dtype)],
            };
            if let Some(word) = words.iter().find(|w| !is.contains(&Some(w.as_str()))) {
                let is = is.into_iter().flatten().collect::<Vec<_>>().join(" ");
                return self.refuse(format!("its `{name}` is {word}, the case's is {is}"));
            }
            // Unless the signature says another, scales are f32.
            let scales = part == "scale_inv" && !words.iter().any(|w| Some(w.as_str()) == key("scale_format"));
            if scales && key("scale_format").is_some_and(|f| f != "f32") {
                return self.refuse(format!("its `{name}` is f32, the case's is {}", key("scale_format").unwrap_or_default()));
            }
        }
        for x in ["a", "b"] {
            if self.declared.words(&format!("{x}.scale")).is_none() {
                continue;
            }
            match tensors.get(&format!("{x}.scale_inv")) {
                Some((Dtype::F32, shape, bytes)) => {
                    let reciprocal = |b: &[u8]| (1.0 / f32::from_le_bytes([b[0], b[1], b[2], b[3]])).to_le_bytes();
                    let stored = (Dtype::F32, shape.clone(), bytes.chunks_exact(4).flat_map(reciprocal).collect());
                    tensors.insert(format!("{x}.scale"), stored);
                }
                _ => return self.refuse(format!("its `{x}.scale` needs scales of f32")),
            }
        }
        let optional = ["bias", "beta"];
        for argument in &self.declared.arguments {
            if let Argument::Tensor { name, .. } = argument
                && READ.contains(&name.as_str())
                && !tensors.contains_key(name)
                && !optional.contains(&name.as_str())
            {
                return self.refuse(format!("its signature has `{name}`, which the case has not"));
            }
        }
        Ok(tensors)
    }

    /// What it has to write: names, dtypes, shapes (the bytes are zeros), and the metadata that say so. Errors: a result that its
    /// signature does not name.
    fn outputs(&self, job: &Job) -> Result<Writer> {
        let mut w = Writer::new(job.op.name());
        let shape = case::out_shape(job);
        let count = shape.iter().product::<usize>();
        let mut zeros = |name: &str, dtype: Dtype, shape: &[usize], bytes: usize| {
            w.raw(name, dtype, shape, vec![0; bytes]);
        };
        match &job.out {
            OutSpec::High(f) => {
                let (dtype, size) = match f {
                    Format::F16 => (Dtype::F16, 2),
                    Format::Bf16 => (Dtype::BF16, 2),
                    _ => (Dtype::F32, 4),
                };
                zeros("out", dtype, &shape, count * size);
            }
            OutSpec::Scaled { format, .. } => {
                zeros("out.codes", if *format == Format::E5m2 { Dtype::F8_E5M2 } else { Dtype::F8_E4M3 }, &shape, count);
                zeros("out.scale_inv", Dtype::F32, &[1], 4);
                zeros("out.amax", Dtype::F32, &[1], 4);
                w.meta("out.format", format);
            }
            // How its scales and zero points lie, the definition says.
            OutSpec::Recipe(_) => case::output(&mut w, job, &find(cpu::KERNELS, job, Backend::Cpu)?.run(job)?)?,
        }
        let optional = ["out.amax", "out.scale_inv"];
        for name in w.tensors().keys() {
            let given = matches!(job.out, OutSpec::Scaled { .. }) && optional.contains(&name.as_str());
            if self.declared.words(name).is_none() && !given {
                return self.refuse(format!("its signature has no `{name}`, which the case asks for"));
            }
        }
        for (name, (dtype, ..)) in w.tensors() {
            let Some(words) = self.declared.words(name) else { continue };
            let meta = |k: &str| w.metadata().get(&format!("out.{k}")).map(String::as_str);
            let is = match name.as_str() {
                "out.codes" => vec![meta("format")],
                "out.scale_inv" => {
                    vec![meta("granularity"), meta("scale_format"), Some("f32").filter(|_| *dtype == Dtype::F32)]
                }
                "out.zero_point" => vec![meta("zero")],
                _ => vec![type_name(*dtype)],
            };
            if let Some(word) = words.iter().find(|w| !is.contains(&Some(w.as_str()))) {
                let is = is.into_iter().flatten().collect::<Vec<_>>().join(" ");
                return self.refuse(format!("its `{name}` is {word}, the case asks for {is}"));
            }
        }
        Ok(w)
    }

    /// Runs it with outputs that hold `poison`; what it wrote, by name.
    fn once(
        &self,
        gpu: &Gpu,
        job: &Job,
        inputs: &BTreeMap<String, Stored>,
        out: &Writer,
        poison: u8,
    ) -> Result<BTreeMap<String, Vec<u8>>> {
        let what = format!("kernel {} of {}", self.declared.entry, self.spec.source);
        let f = self.function(gpu)?;
        let mut given: BTreeMap<&str, (Buffer, &[u8])> = BTreeMap::new();
        for (name, (_, _, bytes)) in inputs {
            given.insert(name, (gpu.upload(bytes)?, bytes));
        }
        let scale = match &job.out {
            OutSpec::Scaled { scale, .. } => scale.first().copied().flatten().map(|s| gpu.upload_f32(&[s])).transpose()?,
            _ => None,
        };
        let mut written: BTreeMap<&str, Buffer> = BTreeMap::new();
        for (name, (_, _, bytes)) in out.tensors().iter().filter(|(name, _)| self.declared.words(name).is_some()) {
            let buffer = if name == "out.amax" { gpu.filled(bytes.len(), 0)? } else { gpu.filled(bytes.len(), poison)? };
            written.insert(name, buffer);
        }
        let sizes = sizes(job);
        let argument = |a: &Argument| -> Result<Arg> {
            Ok(match a {
                Argument::Tensor { name, .. } if name == "out.scale" => Arg::Pointer(scale.as_ref().map_or(0, Buffer::pointer)),
                Argument::Tensor { name, .. } => {
                    let buffer = given.get(name.as_str()).map(|b| &b.0).or_else(|| written.get(name.as_str()));
                    Arg::Pointer(buffer.map_or(0, Buffer::pointer))
                }
                Argument::Number { name, wide } => number(job, &sizes, name, *wide)?,
            })
        };
        let mut args = self.declared.arguments.iter().map(argument).collect::<Result<Vec<_>>>()?;
        let three = |s: &[super::declared::Size; 3]| Ok::<_, Error>((s[0].of(&sizes)?, s[1].of(&sizes)?, s[2].of(&sizes)?));
        let d = &self.declared;
        let shape =
            LaunchShape { grid: three(&d.grid)?, block: three(&d.block)?, shared: d.shared.of(&sizes)?, dependent: false };
        // SAFETY: the arguments are the declaration's; that the declaration is the kernel's is the user's word. A kernel that breaks it
        // faults, or writes outside its buffers, in a process that runs for one case at a time.
        unsafe { gpu.call(&what, f, &shape, &mut args) }?;
        for (name, (buffer, bytes)) in &given {
            if gpu.download_any(&format!("input {name} of {what}"), buffer)? != *bytes {
                return Err(Error::value(
                    format!("input {name} of {what}"),
                    "other bytes than before the run",
                    "inputs left alone",
                ));
            }
        }
        let download = |(name, buffer): (&&str, &Buffer)| {
            Ok((name.to_string(), gpu.download_any(&format!("output {name} of {what}"), buffer)?))
        };
        written.iter().map(download).collect()
    }
}

/// The functions of a cubin, by the names of its sections: NVRTC's log has them only where it did not take them from a cache of its own.
fn entries(cubin: &[u8]) -> Vec<String> {
    const SECTION: &[u8] = b".text.";
    let starts = (0..cubin.len().saturating_sub(SECTION.len())).filter(|i| cubin[*i..].starts_with(SECTION));
    let name =
        |i: usize| cubin[i + SECTION.len()..].iter().take_while(|b| b.is_ascii_graphic()).map(|b| char::from(*b)).collect();
    let mut names: Vec<String> = starts.map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// How a declaration calls a stored type.
fn type_name(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::F32 => Some("f32"),
        Dtype::F16 => Some("f16"),
        Dtype::BF16 => Some("bf16"),
        Dtype::I32 => Some("i32"),
        _ => None,
    }
}

/// m, n, k, e.
fn sizes(job: &Job) -> [u64; 4] {
    let o = &job.operands;
    let groups = o.offs.as_ref().map_or(1, Vec::len).max(1);
    let (m, k) = o.get(0).map_or((0, 0), |a| (a.rows(), a.cols()));
    let n = match o.b() {
        Some(b) if job.op == Op::GroupedGemmWgrad => b.rows(),
        Some(b) => b.rows() / groups,
        None => case::out_shape(job).last().copied().unwrap_or(0),
    };
    [m, n, k, groups].map(|x| x as u64)
}

/// A number that the entry takes. Errors: it does not fit its type.
fn number(job: &Job, sizes: &[u64; 4], name: &str, wide: bool) -> Result<Arg> {
    let scale_columns = |o: Option<&Operand>| match o {
        Some(Operand::Quantized(q)) => q.granularity().grid(q.rows(), q.cols()).1,
        _ => 1,
    };
    let value = match name {
        "eps" => return Ok(Arg::Float(job.params.eps)),
        "zero_centered_gamma" => u64::from(job.params.zero_centered_gamma),
        "m" => sizes[0],
        "n" => sizes[1],
        "e" => sizes[3],
        "k" | "a.stride" | "b.stride" => sizes[2],
        "out.stride" => case::out_shape(job).last().copied().unwrap_or(0) as u64,
        "a.scale_stride" => scale_columns(job.operands.get(0)) as u64,
        _ => scale_columns(job.operands.b()) as u64,
    };
    let large = |_| Error::value(format!("argument `{name}`"), value, "a number of its type: declare it i64");
    match wide {
        true => i64::try_from(value).map(Arg::Long).map_err(large),
        false => i32::try_from(value).map(Arg::Int).map_err(large),
    }
}

impl Kernel for UserKernel {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }
    fn check(&self, job: &Job) -> Result<()> {
        self.inputs(job)?;
        self.outputs(job).map(drop)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        let (inputs, mut out, gpu) = (self.inputs(job)?, self.outputs(job)?, gpu()?);
        let [first, second] = POISON;
        let written = self.once(gpu, job, &inputs, &out, first)?;
        let again = self.once(gpu, job, &inputs, &out, second)?;
        for (name, (_, shape, bytes)) in out.tensors().clone() {
            let Some(found) = written.get(&name) else {
                // An FP8 result by a given scale: what is not written is not judged.
                out.without(&name);
                if name == "out.scale_inv"
                    && let OutSpec::Scaled { scale, .. } = &job.out
                {
                    out.f32s("out.scale", &[1], &[scale.first().copied().flatten().unwrap_or(1.0)]);
                }
                continue;
            };
            if name != "out.amax" {
                let size = (bytes.len() / shape.iter().product::<usize>().max(1)).max(1);
                unwritten(&format!("output {name} of {}", self.spec.source), [found, &again[&name]], size)?;
            }
            let dtype = out.tensors()[&name].0;
            out.raw(&name, dtype, &shape, found.clone());
        }
        let file = File::parse(Path::new("result"), &out.to_bytes()?)?;
        let out = Bundle::out_of(&file, job.op, &case::out_shape(job))?;
        let part = Part { d: out.d, transpose: None, amax: out.amax };
        Ok(Output::of(part))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        crate::bundle::assay::only_answer(job)
    }
    fn answer(&self, job: &Job) -> Result<KernelAnswer> {
        let output = self.run(job)?;
        let meta = Meta {
            model: self.declared.device_model,
            promote_every: self.declared.promote_every,
            device: Some(gpu()?.info.name.clone()),
            ..Meta::plain(job.op)
        };
        super::judged_by(job, output, &meta)
    }
    fn words(&self) -> Option<String> {
        let word = crate::assay::command::shell_word;
        let signature = self.signature.as_ref().map_or(String::new(), |s| format!(" --signature {}", word(s)));
        let op = self.spec.ops[0].name();
        Some(format!("--kernel {} --entry {} --op {op}{signature}", word(self.spec.source), self.declared.entry))
    }
}

/// Errors: an element of `size` bytes that held the poison of both runs after them.
fn unwritten(what: &str, runs: [&[u8]; 2], size: usize) -> Result<()> {
    let poisoned = |(a, b): (&[u8], &[u8])| a.iter().all(|x| *x == POISON[0]) && b.iter().all(|x| *x == POISON[1]);
    match runs[0].chunks(size).zip(runs[1].chunks(size)).position(poisoned) {
        Some(i) => Err(Error::value(what, format!("element {i} was never written"), "every element written")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
