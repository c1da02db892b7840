//! The exchange format for kernels from anywhere: one safetensors file holds one run of one kernel.
//!
//! [`Bundle::read`] checks every rule of the contract and names the file, the tensor or key, what was found and what was expected.
//! [`Writer`] writes bundles.
//!
#![doc = include_str!("../../data/bundles/README.md")]

mod activation_steps;
#[cfg(test)]
mod activation_tests;
mod affine_codes;
pub mod answer;
mod approximated;
pub(crate) mod arithmetic;
pub mod assay;
#[cfg(test)]
mod assay_tests;
#[cfg(test)]
mod bias_tests;
mod bit_layouts;
mod blank;
#[cfg(test)]
mod by_hand;
pub mod case;
mod cast;
mod cast_formats;
#[cfg(test)]
mod cast_lines_tests;
#[cfg(test)]
mod cast_places_tests;
#[cfg(test)]
mod cast_tests;
mod casts;
mod chosen;
mod clamped;
mod clipped;
mod code_table;
mod copies;
mod copy_bytes;
mod copy_pitch;
mod copy_places;
mod copy_tiles;
mod curves;
mod cut_scales;
mod decoded;
mod decoded_words;
mod earlier;
mod empty;
#[cfg(test)]
mod empty_tests;
mod encoders;
#[cfg(test)]
mod exam_tests;
mod exchange;
pub(crate) mod file;
mod flat_blocks;
mod formula;
#[cfg(test)]
mod formula_tests;
mod formulas;
mod function;
mod gains;
mod gate_pairs;
mod gates;
mod group_index;
#[cfg(test)]
mod index_tests;
mod interleaved_groups;
mod limits;
pub(crate) mod merged;
mod metadata;
mod misread_groups;
mod moments;
mod moved;
#[cfg(test)]
mod named_tests;
mod neighbour_codes;
mod norms;
mod not_quantized;
mod one_vector;
pub(crate) mod operand;
mod operand_bytes;
mod order;
mod other_columns;
#[cfg(test)]
mod other_places_tests;
#[cfg(test)]
mod outside_tests;
mod over_places;
mod packed_scales;
mod part_global;
mod passes;
mod pieces;
mod pitched;
mod readings;
pub(crate) mod recipes;
#[cfg(test)]
mod replayed_tests;
mod rescaled;
mod router;
mod sample;
mod scale_bytes;
mod scale_eps;
mod scale_exponents;
mod scale_offset;
mod scale_places;
mod scale_rounding;
mod scale_steps;
mod second;
pub(crate) mod settle;
mod signs;
mod slices;
#[cfg(test)]
mod slip_tests;
#[cfg(test)]
mod slips_of_casts_tests;
#[cfg(test)]
mod solved_tests;
mod stages;
#[cfg(test)]
mod step_tests;
mod struct_strides;
mod subgroups;
mod swizzled;
mod tail_tokens;
#[cfg(test)]
mod tests;
mod there;
#[cfg(test)]
mod thread_tests;
mod tied;
mod ties;
#[cfg(test)]
mod told_apart_tests;
#[cfg(test)]
mod told_tests;
#[cfg(test)]
mod unseen_tests;
mod unwritten;
mod unwritten_groups;
mod weights;
mod widened;
mod words;
mod write;
mod written;
#[cfg(test)]
mod written_tests;
mod wrong_codes;
mod zero_blocks;
mod zero_index;

pub use empty::Empty;
pub use file::File;
pub use metadata::{Meta, Spec};
pub use operand::{BundleOperand, Codes};
pub use sample::Sample;
pub use write::{Stored, Writer};

use crate::job::Data;
use crate::op::Op;
use crate::op::grouped::check_offs;
use crate::quant::{QTensorParts, ZeroKind};
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};
use operand::Layout;
use safetensors::Dtype;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the kernel wrote.
#[derive(Clone, Debug)]
pub struct Out {
    /// Rows of all experts stacked.
    pub d: Data,
    /// FP8 output: what a value was multiplied by, where it is stored.
    pub scale: Option<f32>,
    pub amax: Option<f32>,
    /// Codes of the transposed copy, `[K, M]`.
    pub transpose: Option<Vec<u8>>,
}

/// One run of one kernel.
#[derive(Clone, Debug)]
pub struct Bundle {
    pub path: PathBuf,
    pub meta: Meta,
    pub a: BundleOperand,
    /// Empty for ops of one operand.
    pub b: BundleOperand,
    /// `[1,N]`; of a grouped product a row for each expert, `[E,N]`.
    pub bias: Option<Tensor>,
    pub gamma: Option<Tensor>,
    pub beta: Option<Tensor>,
    /// Cumulative end rows of the groups.
    pub offs: Option<Vec<usize>>,
    pub out: Out,
    /// Where each column of K stood in the file, where an index of groups moved them.
    pub order: Option<Vec<usize>>,
    /// What of the file this is, where it is a sample.
    pub sample: Option<String>,
    /// What the file holds, where that is nothing: the rest stands for it.
    pub empty: Option<Empty>,
    /// Codes whose last group goes on behind its end (gradients of weights).
    pub behind: Arc<Vec<tail_tokens::Behind>>,
}

/// Operands of a bundle, with the shape its result must have.
struct ReadOperands {
    a: BundleOperand,
    b: BundleOperand,
    bias: Option<Tensor>,
    gamma: Option<Tensor>,
    beta: Option<Tensor>,
    offs: Option<Vec<usize>>,
    out: Vec<usize>,
    order: Option<Vec<usize>>,
    behind: Vec<tail_tokens::Behind>,
}

impl Bundle {
    /// Reads and checks a bundle. Errors name the file, the tensor or key, what was found and what was expected.
    pub fn read(path: &Path) -> Result<Bundle> {
        Bundle::of(&File::read(path)?)
    }

    /// A sample of a bundle, or all of it where the sample holds all. Errors: those of [`Bundle::read`]; an op of which no sample can be taken.
    pub fn read_sample(path: &Path, sample: Sample) -> Result<Bundle> {
        let file = File::read(path)?;
        if let Some(empty) = Bundle::of_nothing(&file)? {
            return Ok(empty);
        }
        Ok(match sample::gemm(&file, sample)? {
            Some((cut, words)) => Bundle { sample: Some(words), ..Bundle::of(&cut)? },
            None => Bundle::of(&file)?,
        })
    }

    /// [`Bundle::read`] of bytes that are in memory.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Bundle> {
        Bundle::of(&File::parse(path, bytes)?)
    }

    fn of(file: &File) -> Result<Bundle> {
        Bundle::of_nothing(file)?.map_or_else(|| Bundle::of_tensors(file), Ok)
    }

    fn of_tensors(file: &File) -> Result<Bundle> {
        let mut meta = Meta::of(file)?;
        // A cast that also wrote the transposed codes.
        if meta.op == Op::Cast && file.has("out.transpose") {
            meta.op = Op::CastTranspose;
        }
        known_tensors(file, &meta)?;
        let named = |e: Error| in_file(file, e);
        let ReadOperands { a, b, bias, gamma, beta, offs, out, order, behind } = operands(file, &meta).map_err(named)?;
        let out = result(file, &meta, &out).map_err(named)?;
        if let (Some((first, second)), Some(text)) = (&mut meta.recipe, file.metadata.get("recipe")) {
            let (of_first, of_second) = text.split_once('+').unwrap_or((text, text));
            let result = match &out.d {
                Data::Quantized(q) => Some(q),
                Data::High(_) => None,
            };
            let reads = matches!(meta.op, Op::Dequantize | Op::Gemm | Op::GroupedGemm | Op::GroupedGemmWgrad);
            recipes::as_stored(of_first, first, if reads { a.any() } else { result });
            recipes::as_stored(of_second, second, b.any());
        }
        Ok(Bundle {
            path: file.path.clone(),
            meta,
            a,
            b,
            bias,
            gamma,
            beta,
            offs,
            out,
            order,
            sample: None,
            empty: None,
            behind: Arc::new(behind),
        })
    }

    /// The result of `file`, an output bundle, for the operands of this one's: what a candidate process answers with. Its metadata
    /// hold `qassay.bundle`, and what they say of `out`.
    pub fn read_out(path: &Path, op: Op, shape: &[usize]) -> Result<(Out, File)> {
        let file = File::read(path)?;
        Bundle::out_of(&file, op, shape).map(|out| (out, file))
    }

    /// [`Bundle::read_out`] of a file that is in memory.
    pub fn out_of(file: &File, op: Op, shape: &[usize]) -> Result<Out> {
        let spec = metadata::spec(file, "out")?;
        result_of(file, &spec, op, shape).map_err(|e| in_file(file, e))
    }
}

/// An error of a checked type, with the file it came from.
fn in_file(file: &File, e: Error) -> Error {
    match e {
        Error::Shape { what, found, expected } | Error::Value { what, found, expected } => {
            file.bad(format!("{what}: {found}"), expected)
        }
        e => e,
    }
}

const QUANTIZED: [&str; 5] = ["codes", "scale_inv", "zero_point", "global_scale_inv", "global_zero_point"];
const OUT: [&str; 9] = [
    "out",
    "out.codes",
    "out.scale",
    "out.scale_inv",
    "out.zero_point",
    "out.global_scale_inv",
    "out.global_zero_point",
    "out.amax",
    "out.transpose",
];

/// Refuses tensors that the op has no place for: a misspelled one would else be left out in silence.
fn known_tensors(file: &File, meta: &Meta) -> Result<()> {
    let mut known: Vec<String> = OUT.map(String::from).to_vec();
    let codes =
        |x: &str| QUANTIZED.map(|q| format!("{x}.{q}")).into_iter().chain([format!("{x}.scale_history")]).collect::<Vec<_>>();
    known.push("a".into());
    if matches!(meta.op, Op::Activation | Op::Gated | Op::Layernorm | Op::Rmsnorm) {
        known.extend(codes("a"));
    }
    match meta.op {
        Op::Dequantize => known.extend(codes("a")),
        Op::Layernorm => known.extend(["gamma", "beta"].map(String::from)),
        Op::Rmsnorm => known.push("gamma".into()),
        Op::Gemm | Op::GroupedGemm | Op::GroupedGemmWgrad => {
            known.push("b".into());
            known.extend(codes("a"));
            known.extend(codes("b"));
            let beside: &[&str] = match meta.op {
                Op::Gemm => &["bias", order::G_IDX],
                Op::GroupedGemm => &["offs", "bias", order::ROW_WEIGHTS],
                _ => &["offs"],
            };
            known.extend(beside.iter().map(|name| name.to_string()));
        }
        _ => known.push("a.scale_history".into()),
    }
    match file.names().find(|n| !known.iter().any(|k| k == n)) {
        None => Ok(()),
        Some(name) => {
            let meant = crate::error::hint(name, known.iter().map(|k| k.as_ref()));
            let expected = format!("the tensors of op {}: {}{meant}", meta.op.name(), known.join(", "));
            Err(file.bad(format!("tensor `{name}`"), expected))
        }
    }
}

fn needs(file: &File, op: Op, what: &str) -> Error {
    file.bad(format!("no tensor {what}"), format!("one: op {} needs it", op.name()))
}

fn operands(file: &File, meta: &Meta) -> Result<ReadOperands> {
    let op = meta.op;
    let offs = match op {
        Op::GroupedGemm | Op::GroupedGemmWgrad => Some(ends(file, op)?),
        _ => None,
    };
    let columns = || Layout::Columns(offs.as_deref().unwrap_or_default());
    let layout = |experts: bool| match (op, &offs) {
        (Op::GroupedGemmWgrad, _) => columns(),
        (Op::GroupedGemm, Some(offs)) if experts => Layout::Experts(offs.len()),
        (Op::GroupedGemm, Some(offs)) => Layout::Tokens(offs),
        _ => Layout::Plain,
    };
    let product = matches!(op, Op::Gemm | Op::GroupedGemm | Op::GroupedGemmWgrad);
    let a = operand::side(file, "a", &meta.a, layout(false))?;
    let a = a.ok_or_else(|| needs(file, op, if product { "`a` or `a.codes`" } else { "`a`" }))?;
    let a =
        if matches!(op, Op::Activation | Op::Gated | Op::Layernorm | Op::Rmsnorm) { order::dequantized(file, a)? } else { a };
    let (rows, k) = a.shape().unwrap_or_default();
    if op == Op::Dequantize && a.codes.is_none() {
        return Err(needs(file, op, "`a.codes`"));
    }
    let mut b = BundleOperand::default();
    if product {
        let found = operand::side(file, "b", &meta.b, layout(true))?;
        b = found.ok_or_else(|| needs(file, op, "`b` or `b.codes`"))?;
        let (_, bk) = b.shape().unwrap_or_default();
        if bk != k {
            let name = if b.codes.is_some() { "b.codes" } else { "b" };
            return Err(file.bad_tensor(name, format!("K = {bk}"), format!("K = {k} as in a")));
        }
    }
    let (a, b, order) = if op == Op::Gemm { order::in_groups(file, a, b)? } else { (a, b, None) };
    let a = if op == Op::GroupedGemm { order::weighted(file, a)? } else { a };
    let (b_rows, _) = b.shape().unwrap_or_default();
    let experts = offs.as_ref().map_or(1, Vec::len);
    if op == Op::GroupedGemm {
        check_offs(offs.as_deref(), rows)?;
    }
    let vector = |name: &str, n: usize, why: &str| -> Result<Option<Tensor>> {
        let Some(raw) = file.shaped(name, &[n], why)? else { return Ok(None) };
        let (dtype, data) = file.values(name, raw)?;
        Tensor::new(dtype, 1, n, data).map(Some)
    };
    let gamma = vector("gamma", k, "one a column")?;
    if matches!(op, Op::Layernorm | Op::Rmsnorm) && gamma.is_none() {
        return Err(needs(file, op, "`gamma`"));
    }
    if op == Op::Gated && !k.is_multiple_of(2) {
        return Err(file.bad_tensor("a", format!("{k} columns"), "an even number for a gated fn: [x | gate]"));
    }
    let out = match op {
        Op::Gemm => vec![rows, b_rows],
        Op::GroupedGemm => vec![rows, b_rows / experts],
        Op::GroupedGemmWgrad => vec![experts, rows, b_rows],
        Op::Gated => vec![rows, k / 2],
        _ => vec![rows, k],
    };
    let bias = match op {
        Op::GroupedGemm => of_experts(file, (experts, b_rows / experts))?,
        _ => vector("bias", b_rows, "one a column of the result")?,
    };
    let beta = vector("beta", k, "one a column")?;
    let behind = tail_tokens::read(file, meta, offs.as_deref().unwrap_or_default());
    Ok(ReadOperands { a, b, bias, gamma, beta, offs, out, order, behind })
}

/// The bias of a grouped product, a row for each of E experts: `[E,N]` as it is, `[N]` for all of them. Errors: other shapes and dtypes.
fn of_experts(file: &File, (experts, n): (usize, usize)) -> Result<Option<Tensor>> {
    let Some(raw) = file.get("bias") else { return Ok(None) };
    let copies = match raw.shape[..] {
        [cols] if cols == n => experts,
        [rows, cols] if (rows, cols) == (experts, n) => 1,
        _ => {
            let expected = format!("[{experts}, {n}], a row for each expert, or [{n}], the same for all");
            return Err(file.bad_tensor("bias", format!("shape {:?}", raw.shape), expected));
        }
    };
    let (dtype, data) = file.values("bias", raw)?;
    Tensor::new(dtype, experts, n, data.repeat(copies)).map(Some)
}

/// `offs`: cumulative ends, ascending.
fn ends(file: &File, op: Op) -> Result<Vec<usize>> {
    let raw = file.get("offs").ok_or_else(|| needs(file, op, "`offs`"))?;
    let bad =
        |found: String| file.bad_tensor("offs", found, "[E] of dtype I32: cumulative end rows of the groups, ascending from 0");
    if raw.shape.len() != 1 || raw.shape[0] == 0 {
        return Err(bad(format!("shape {:?}", raw.shape)));
    }
    let ends = file.integers("offs", raw, &[Dtype::I32])?;
    let mut last = 0;
    for end in &ends {
        if *end < last {
            return Err(bad(format!("values {last}, {end}")));
        }
        last = *end;
    }
    Ok(ends.into_iter().map(|e| e as usize).collect())
}

fn result(file: &File, meta: &Meta, shape: &[usize]) -> Result<Out> {
    result_of(file, &meta.out, meta.op, shape)
}

/// The result, of this shape (a leading axis of experts is stacked).
fn result_of(file: &File, spec: &Spec, op: Op, shape: &[usize]) -> Result<Out> {
    let (name, raw) = match (file.get("out"), file.get("out.codes")) {
        (Some(_), Some(_)) => {
            return Err(file.bad("tensors `out` and `out.codes`".into(), "one of them, with what the kernel wrote".into()));
        }
        (Some(raw), None) => ("out", raw),
        (None, Some(raw)) => ("out.codes", raw),
        (None, None) => {
            return Err(file.bad("no tensor `out` or `out.codes`".into(), "one of them, with what the kernel wrote".into()));
        }
    };
    let packed = spec.packing.is_some() && raw.dtype != Dtype::F4;
    let mut want = shape.to_vec();
    if let (true, Some(last)) = (packed, want.last_mut()) {
        if !last.is_multiple_of(2) {
            return Err(file.bad_key("out.packing", spec.packing.map_or("none", |p| p.name()), "an even number of columns"));
        }
        *last /= 2;
    }
    file.shaped(name, &want, &format!("the result of op {}", op.name()))?;
    let (rows, cols) = (shape[..shape.len() - 1].iter().product(), shape[shape.len() - 1]);
    let values = matches!(raw.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) && name == "out";
    if values {
        let (dtype, data) = file.values(name, raw)?;
        if op == Op::Cast || op == Op::CastTranspose {
            return Err(file.bad_tensor(name, format!("dtype {:?}", raw.dtype), "codes: a cast quantizes"));
        }
        if let Some(format) = spec.format.filter(|f| *f != dtype) {
            return Err(file.bad_tensor(name, format!("dtype {:?}", raw.dtype), format!("`out.format` = {format}")));
        }
        for name in ["out.scale", "out.amax", "out.transpose"] {
            if file.has(name) {
                return Err(file.bad(format!("tensor `{name}` beside an unquantized `out`"), "it beside codes only".into()));
            }
        }
        operand::without_codes(file, "out", spec)?;
        return Ok(Out { d: Data::High(Tensor::new(dtype, rows, cols, data)?), scale: None, amax: None, transpose: None });
    }
    if op == Op::Dequantize {
        return Err(file.bad_tensor(
            name,
            format!("dtype {:?}", raw.dtype),
            "`out` of dtype F32, F16 or BF16: dequantize writes values",
        ));
    }
    codes(file, spec, op, name, raw, (rows, cols))
}

/// A quantized result.
fn codes(file: &File, spec: &Spec, op: Op, name: &str, raw: &file::Raw, (rows, cols): (usize, usize)) -> Result<Out> {
    let format = operand::code_format(file, "out", name, raw, spec)?;
    let cast = matches!(op, Op::Cast | Op::CastTranspose);
    if !cast && !format.is_fp8() {
        return Err(file.bad_tensor(name, format!("format {format}"), format!("values or FP8 codes from op {}", op.name())));
    }
    if !cast && spec.granularity != Granularity::Tensor {
        return Err(file.bad_key(
            "out.granularity",
            &spec.granularity.to_string(),
            format!("tensor: the FP8 output of op {}", op.name()),
        ));
    }
    let scale = file.scalar("out.scale", &[Format::F32])?;
    if scale.is_some() && spec.granularity != Granularity::Tensor {
        return Err(file.bad_key(
            "out.granularity",
            &spec.granularity.to_string(),
            "tensor with `out.scale`; give `out.scale_inv` alone",
        ));
    }
    let q = match (file.has("out.scale_inv"), scale) {
        (true, _) => match operand::quantized(file, "out", name, raw, spec, Layout::Plain, (rows, cols))? {
            Codes::Whole(q) => q,
            Codes::Groups(_) => unreachable!("a plain layout is one tensor"),
        },
        // What the codes are multiplied by is the reciprocal of what the values were.
        (false, Some(scale)) if spec.zero == ZeroKind::None => QTensor::new(QTensorParts {
            format,
            rows,
            cols,
            codes: file.codes(name, raw, format, spec.packing)?,
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0 / scale],
            zero: Zero::None,
            level: None,
        })?,
        _ => {
            return Err(
                file.bad("no tensor `out.scale_inv` or `out.scale`".into(), format!("one of them beside `{name}`, codes"))
            );
        }
    };
    let transpose = match file.shaped("out.transpose", &[cols, rows], "the transposed codes")? {
        None => None,
        Some(_) if !cast => {
            return Err(file.bad(format!("tensor `out.transpose` of op {}", op.name()), "this tensor from op cast only".into()));
        }
        Some(_) if spec.granularity != Granularity::Tensor => {
            let found = spec.granularity.to_string();
            return Err(file.bad_key(
                "out.granularity",
                &found,
                "tensor with `out.transpose`: other scales of it are not stored",
            ));
        }
        Some(t) => Some(file.codes("out.transpose", t, format, None)?),
    };
    Ok(Out {
        d: Data::Quantized(q),
        scale,
        amax: file.scalar("out.amax", &[Format::F32, Format::F16, Format::Bf16])?,
        transpose,
    })
}
