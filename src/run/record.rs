//! What a GPU returned, kept so that any machine can replay it: digests of the cases of a run, outputs of some small ones.
//!
//! A case's name decides its operands (they are drawn by Philox from the case's seed), so a record is the name, the kernel, and the
//! digest of every bit it wrote. Replayed, the kernel's own prediction, which needs no GPU, must have that digest; where libm is in
//! the result and nothing predicts it, the kept output itself is judged by the boundary rule.

use super::facts::Facts;
use super::journal;
use super::plan::Selection;
use crate::assay::row::{self, Row};
use crate::assay::table::Line;
use crate::assay::{evidence, fill};
use crate::compare::Verdict;
use crate::job::{Data, Job, Output};
use crate::kernel::{Backend, Kernel};
use crate::parallel;
use crate::quant::QTensorParts;
use crate::sweep::{Case, assay, build};
use crate::{Error, Format, QTensor, Result, Tensor, Zero};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

const COLUMNS: [&str; 7] = ["sweep", "case", "kernel", "algorithm", "verdict", "mismatches", "sha256"];

/// The files of a backend's record: digests, outputs, facts of the run.
fn files(folder: &Path, backend: Backend) -> [PathBuf; 3] {
    ["csv", "safetensors", "json"].map(|extension| folder.join(format!("cases-{}.{extension}", backend.name())))
}

/// Elements of the largest output that is kept, and bytes of all of them.
const SMALL: usize = 4096;
const KEPT: usize = 2 << 20;

/// An array to keep: name, element, shape, bytes.
type Array = (String, Dtype, Vec<usize>, Vec<u8>);

/// What was recorded.
pub struct Recorded {
    pub digests: usize,
    pub outputs: usize,
    /// Cases that failed or ended in an error: not recorded.
    pub refused: Vec<String>,
}

/// Records the run in the folder `run` into `out`, and runs some of its small cases again for their outputs: those that `kernels` do
/// not predict first. Errors: the run is not complete or of the CPU; its sweeps changed; a case run again returns other bits.
pub fn record(run: &Path, out: &Path, kernels: &[&'static dyn Kernel], backend: Backend) -> Result<Recorded> {
    let bad = |found: String, expected: &str| Error::BadFile { path: run.into(), found, expected: expected.into() };
    let facts = Facts::read(run)?;
    if facts.get("backend") != backend.name() {
        return Err(bad(format!("backend {}", facts.get("backend")), backend.name()));
    }
    let rows = row::read(&run.join("rows.csv"))?;
    if facts.get("cases").split(' ').next() != Some(&rows.len().to_string()) {
        return Err(bad(format!("{} rows", rows.len()), "a complete run; --resume goes on"));
    }
    let ran = rows.iter().filter(|r| r.verdict != Verdict::Skipped);
    let (sound, refused): (Vec<_>, Vec<_>) = ran.partition(|r| !r.verdict.is_failure());
    let cases = cases(&facts.list("sweeps"), facts.get("seed"))?;
    let columns = COLUMNS.iter().map(|c| Row::column(c)).collect::<Result<Vec<_>>>()?;
    let mut digests = journal::line(&COLUMNS);
    let mut kept: Vec<Array> = Vec::new();
    let mut outputs = 0;
    // One of each kernel, op, output and granularity; those without a model always.
    let mut seen = HashMap::new();
    // Cases that write the same bits share their outputs: names are the digests.
    let mut named = HashSet::new();
    for r in &sound {
        digests.extend(journal::line(&columns.iter().map(|c| c.text(r)).collect::<Vec<_>>()));
        let case = cases.get(&key(&r.sweep, &r.case)).ok_or_else(|| bad(r.case.clone(), "a case of the sweep"))?;
        let kind = (&r.kernel, r.op, r.act, &r.out, r.granularity.map(|g| g.to_string()));
        let few = seen.entry(kind).or_insert(0);
        let elements = case.total_rows() * case.n;
        let bytes: usize = kept.iter().map(|k| k.3.len()).sum();
        if *few > 0 || elements > SMALL || bytes > KEPT || named.contains(&r.sha256) {
            continue;
        }
        let assayed = assay::run(case, kernels, backend)?;
        if fill::digest(&assayed.output) != r.sha256 {
            return Err(bad(format!("other bits of {} on a second run", case.id()), "the same bits each time"));
        }
        if let Some(arrays) = arrays(&assayed.output) {
            *few += 1;
            outputs += 1;
            named.insert(r.sha256.clone());
            let name = |part: String| format!("{}/{part}", r.sha256);
            kept.extend(arrays.into_iter().map(|(part, dtype, shape, bytes)| (name(part), dtype, shape, bytes)));
        }
    }
    write(out, backend, &digests, &kept, &facts)?;
    let refused = refused.iter().map(|r| format!("{} {}: {}", r.verdict, r.case, r.reason)).collect();
    Ok(Recorded { digests: sound.len(), outputs, refused })
}

fn write(out: &Path, backend: Backend, digests: &[u8], kept: &[Array], facts: &Facts) -> Result<()> {
    let place = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes).map_err(|e| Error::io(path, e, "name a folder that can be written with --out"))
    };
    std::fs::create_dir_all(out).map_err(|e| Error::io(out, e, "name a folder that can be written with --out"))?;
    let odd = |e: safetensors::SafeTensorError| Error::value("outputs to keep", e, "tensors whose bytes fit their shapes");
    let mut views = Vec::new();
    for (name, dtype, shape, bytes) in kept {
        views.push((name.clone(), TensorView::new(*dtype, shape.clone(), bytes).map_err(odd)?));
    }
    let [csv, outputs, json] = files(out, backend);
    place(&csv, digests)?;
    place(&outputs, &safetensors::serialize(views, None).map_err(odd)?)?;
    facts.write_file(&json)
}

fn key(sweep: &str, case: &str) -> (String, String) {
    (sweep.to_string(), case.to_string())
}

/// Every case of the sweeps, by sweep and name.
fn cases(sweeps: &[String], seed: &str) -> Result<HashMap<(String, String), Case>> {
    let seed = seed.parse().map_err(|_| Error::value("seed of the run", seed, "a whole number"))?;
    let sweeps = Selection { sweeps: sweeps.to_vec(), seed, ..Selection::default() }.load()?;
    Ok(sweeps.into_iter().flat_map(|s| s.cases).map(|c| (key(&c.sweep, &c.id()), c)).collect())
}

/// The arrays of an output by name; `None` for what is not kept (zero points, two levels of scales).
fn arrays(output: &Output) -> Option<Vec<Array>> {
    let mut all = Vec::new();
    let f32s = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let tensor = |t: &Tensor| {
        let dtype = match t.dtype() {
            Format::F16 => Dtype::F16,
            Format::Bf16 => Dtype::BF16,
            _ => Dtype::F32,
        };
        (dtype, vec![t.rows(), t.cols()], t.bits())
    };
    let mut add = |name: String, (dtype, shape, bytes): (Dtype, Vec<usize>, Vec<u8>)| all.push((name, dtype, shape, bytes));
    for (i, part) in output.parts.iter().enumerate() {
        let quantized = match &part.d {
            Data::High(t) => {
                add(format!("{i}.d"), tensor(t));
                None
            }
            Data::Quantized(q) => Some(("d", q)),
        };
        for (name, q) in quantized.into_iter().chain(part.transpose.as_ref().map(|t| ("transpose", t))) {
            if !matches!(q.zero(), Zero::None) || q.level().is_some() {
                return None;
            }
            add(format!("{i}.{name}.codes"), (Dtype::U8, vec![q.rows(), q.cols()], q.codes().to_vec()));
            add(format!("{i}.{name}.scale_inv"), (Dtype::F32, vec![q.scale_inv().len()], f32s(q.scale_inv())));
        }
        if let Some(amax) = part.amax {
            add(format!("{i}.amax"), (Dtype::F32, vec![1], f32s(&[amax])));
        }
    }
    if let Some(t) = &output.dbias {
        add("dbias".into(), tensor(t));
    }
    for (name, values) in [("mean", &output.mean), ("rsigma", &output.rsigma)] {
        if let Some(v) = values {
            add(name.into(), (Dtype::F32, vec![v.len()], f32s(v)));
        }
    }
    Some(all)
}

/// `like` with the kept arrays in the place of its own. `get` gives an array's bytes; `None` where one is missing.
fn restore<'a>(like: &Output, get: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Option<Output>> {
    let mut output = like.clone();
    let f32s =
        |bytes: &[u8]| -> Vec<f32> { bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect() };
    let tensor = |t: &Tensor, bytes: &[u8]| {
        let half = |f: fn(u16) -> f32| bytes.chunks_exact(2).map(|b| f(u16::from_le_bytes([b[0], b[1]]))).collect();
        let data = match t.dtype() {
            Format::F16 => half(|b| half::f16::from_bits(b).to_f32()),
            Format::Bf16 => half(|b| half::bf16::from_bits(b).to_f32()),
            _ => f32s(bytes),
        };
        Tensor::new(t.dtype(), t.rows(), t.cols(), data)
    };
    let codes = |q: &QTensor, name: String| -> Result<Option<QTensor>> {
        let (Some(codes), Some(scales)) = (get(&format!("{name}.codes")), get(&format!("{name}.scale_inv"))) else {
            return Ok(None);
        };
        QTensor::new(QTensorParts { codes: codes.to_vec(), scale_inv: f32s(scales), ..q.clone().into_parts() }).map(Some)
    };
    for (i, part) in output.parts.iter_mut().enumerate() {
        part.d = match &part.d {
            Data::High(t) => match get(&format!("{i}.d")) {
                Some(bytes) => Data::High(tensor(t, bytes)?),
                None => return Ok(None),
            },
            Data::Quantized(q) => match codes(q, format!("{i}.d"))? {
                Some(q) => Data::Quantized(q),
                None => return Ok(None),
            },
        };
        part.transpose = part.transpose.as_ref().map(|q| codes(q, format!("{i}.transpose"))).transpose()?.flatten();
        part.amax = get(&format!("{i}.amax")).map(|b| f32s(b)[0]);
    }
    output.dbias = output.dbias.as_ref().and_then(|t| Some((t, get("dbias")?))).map(|(t, b)| tensor(t, b)).transpose()?;
    output.mean = get("mean").map(f32s);
    output.rsigma = get("rsigma").map(f32s);
    Ok(Some(output))
}

/// What the kernel must return; a library's by the algorithm that ran there, which this machine cannot ask for.
fn predict(kernel: &dyn Kernel, job: &Job, algorithm: &str) -> Result<Option<Output>> {
    #[cfg(feature = "cuda")]
    if !algorithm.is_empty() {
        return crate::kernel::vendor::model::predict(job, &algorithm.parse()?);
    }
    debug_assert!(algorithm.is_empty(), "no library without the feature cuda");
    kernel.predict(job)
}

/// What a replayed case showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The prediction has the recorded digest.
    Predicted,
    /// The prediction has another.
    Differs,
    /// Not predictable; the kept output was judged.
    Judged(Verdict),
    /// Not predictable, and no output was kept.
    DigestOnly,
}

/// Replays the `wanted` cases of the record of `backend` in `folder` by its `kernels`' predictions, in its order: case, kernel, what came of
/// it. Errors: files that are missing or damaged; a case that its sweep no longer has.
pub fn replay(
    folder: &Path,
    backend: Backend,
    kernels: &[&'static dyn Kernel],
    wanted: impl Fn(&Case) -> bool + Sync,
) -> Result<Vec<(String, String, Replay)>> {
    let [path, outputs, json] = files(folder, backend);
    let bad =
        |found: String| Error::BadFile { path: path.clone(), found, expected: "a record of this version's sweeps".into() };
    let facts = Facts::read_file(&json)?;
    let cases = cases(&facts.list("sweeps"), facts.get("seed"))?;
    let bytes = std::fs::read(&outputs).map_err(|e| Error::io(&outputs, e, "`qassay record` writes it"))?;
    let kept = SafeTensors::deserialize(&bytes).map_err(|e| bad(e.to_string()))?;
    let mut reader = csv::Reader::from_path(&path).map_err(|e| bad(e.to_string()))?;
    let records: Vec<csv::StringRecord> = reader.records().collect::<csv::Result<_>>().map_err(|e| bad(e.to_string()))?;
    let one = |r: &csv::StringRecord| -> Result<Option<(String, String, Replay)>> {
        let [Some(sweep), Some(id), Some(name), Some(algorithm), Some(sha256)] = [0, 1, 2, 3, 6].map(|i| r.get(i)) else {
            return Err(bad(format!("a line of {} fields", r.len())));
        };
        let case = cases.get(&key(sweep, id)).ok_or_else(|| bad(format!("the case {id}")))?;
        if !wanted(case) {
            return Ok(None);
        }
        let kernel = kernels.iter().find(|k| k.spec().name == name).ok_or_else(|| bad(format!("the kernel {name}")))?;
        let built = build::build(case)?;
        let replayed = match predict(*kernel, &built.job, algorithm)? {
            Some(model) if fill::digest(&model) == sha256 => Replay::Predicted,
            Some(_) => Replay::Differs,
            None => {
                let like = crate::kernel::find(crate::kernel::cpu::KERNELS, &built.job, Backend::Cpu)?.run(&built.job)?;
                match restore(&like, |part| Some(kept.tensor(&format!("{sha256}/{part}")).ok()?.data()))? {
                    None => Replay::DigestOnly,
                    Some(output) if fill::digest(&output) != sha256 => Replay::Differs,
                    Some(output) => {
                        let judged = evidence::judge(&built, kernel.spec().backend, &output, None)?;
                        let worst = judged.iter().map(|j| j.comparison.verdict).find(|v| *v == Verdict::Fail);
                        Replay::Judged(worst.unwrap_or(judged[0].comparison.verdict))
                    }
                }
            }
        };
        Ok(Some((id.to_string(), name.to_string(), replayed)))
    };
    parallel::flat(&records, |r| one(r).transpose()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cpu::KERNELS;

    #[test]
    fn what_is_recorded_are_columns_of_rows() {
        assert!(COLUMNS.iter().all(|name| Row::column(name).is_ok()));
    }

    #[test]
    fn every_kind_of_output_is_kept_and_restored() {
        let sweeps = Selection { sweeps: vec!["smoke".into()], ..Selection::default() }.load().unwrap();
        let mut restored = 0;
        for case in sweeps[0].cases.iter().filter(|c| c.skip.is_none() && c.total_rows() * c.n <= SMALL) {
            let Ok(assayed) = assay::run(case, KERNELS, Backend::Cpu) else { continue };
            let Some(arrays) = arrays(&assayed.output) else { continue };
            let get = |name: &str| arrays.iter().find(|a| a.0 == name).map(|a| a.3.as_slice());
            let again = restore(&assayed.output, get).unwrap().unwrap();
            assert_eq!(fill::digest(&again), fill::digest(&assayed.output), "{}", case.id());
            let first = &arrays[0].0;
            assert!(restore(&assayed.output, |name| get(name).filter(|_| name != first)).unwrap().is_none(), "{}", case.id());
            restored += 1;
        }
        assert!(restored > 10, "{restored}");
    }
}
