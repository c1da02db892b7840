//! How fast this machine judges: elements and products a second by op, and the memory of it.

use super::{Case, Sweep, build};
use crate::assay::evidence;
use crate::bundle::{self, Bundle};
use crate::kernel::{self, Backend, Held, cpu};
use crate::{Error, Result};
use std::path::Path;
use std::time::Instant;

/// What was measured of one case.
#[derive(Clone, Debug)]
pub struct JudgeRow {
    pub name: &'static str,
    pub shape: String,
    /// Of the result, and the multiply-adds of a product.
    pub elements: usize,
    pub products: usize,
    /// Seconds: drawing and quantizing the operands with both references; the kernel; what it is held to; the judgement.
    pub references: f64,
    pub kernel: f64,
    pub model: f64,
    pub judgement: f64,
    /// Most memory at a time above what was held before, bytes; `None` where the system does not say.
    pub peak: Option<u64>,
}

impl JudgeRow {
    /// Seconds of all but the kernel.
    pub fn judge(&self) -> f64 {
        self.references + self.model + self.judgement
    }
}

/// Name and table of each measured case.
const CASES: &[(&str, &str)] = &[
    ("cast, given scale", "op = [\"cast\"]\nshape = [\"2048x2048\"]\nout = [\"scaled:e4m3\"]"),
    ("cast, te_current", "op = [\"cast\"]\nshape = [\"2048x2048\"]\nout = [\"te_current\"]"),
    ("cast, te_block_1x128", "op = [\"cast\"]\nshape = [\"2048x2048\"]\nout = [\"te_block_1x128\"]"),
    ("cast, te_mxfp8", "op = [\"cast\"]\nshape = [\"2048x2048\"]\nout = [\"te_mxfp8\"]"),
    ("cast_transpose_dbias", "op = [\"cast_transpose_dbias\"]\nshape = [\"2048x2048\"]\nout = [\"scaled:e4m3\"]"),
    ("activation, gelu", "op = [\"activation\"]\nact = [\"gelu\"]\nshape = [\"2048x2048\"]\nout = [\"scaled:e4m3\"]"),
    ("layernorm", "op = [\"layernorm\"]\nshape = [\"2048x2048\"]\nout = [\"scaled:e4m3\"]"),
    ("rmsnorm", "op = [\"rmsnorm\"]\nshape = [\"2048x2048\"]\nout = [\"bf16\"]"),
    (
        "gemm, FP8",
        "op = [\"gemm\"]\nshape = [\"512x1024x1024\", \"2048x2048x2048\"]\nrecipe = [\"te_current\"]\naccumulator = [\"hopper_wgmma\"]\nout = [\"bf16\"]",
    ),
    (
        "gemm, FP8 blocks",
        "op = [\"gemm\"]\nshape = [\"1024x1024x1024\"]\nrecipe = [\"te_block_1x128+te_block_128x128\"]\naccumulator = [\"hopper_wgmma@128\"]\nout = [\"bf16\"]",
    ),
    (
        "gemm, W4A8",
        "op = [\"gemm\"]\nshape = [\"1024x1024x1024\"]\nrecipe = [\"int8_token_sym+affine_sym:int4:g128\"]\naccumulator = [\"int32\"]\nout = [\"bf16\"]",
    ),
    (
        "assay of a bundle, FP8",
        "op = [\"gemm\"]\nshape = [\"1024x1024x1024\", \"2048x2048x2048\"]\nrecipe = [\"te_current\"]\naccumulator = [\"hopper_wgmma\"]\nout = [\"bf16\"]",
    ),
];

/// Measures every case whose name contains `filter`, each once, and tells `progress` of it. Errors: no case has it.
pub fn bench_judge(filter: &str, progress: &dyn Fn(&JudgeRow)) -> Result<Vec<JudgeRow>> {
    let mut rows = Vec::new();
    for (name, case) in cases(filter)? {
        let row = measure(name, &case)?;
        progress(&row);
        rows.push(row);
    }
    Ok(rows)
}

fn cases(filter: &str) -> Result<Vec<(&'static str, Case)>> {
    let mut all = Vec::new();
    for (name, table) in CASES.iter().filter(|c| c.0.contains(filter)) {
        let text = format!("about = \"bench judge\"\n[[cases]]\nname = \"one\"\n{table}\n");
        all.extend(Sweep::parse(Path::new("judge.toml"), &text, 0)?.cases.into_iter().map(|case| (*name, case)));
    }
    if all.is_empty() {
        return Err(Error::unknown("bench judge", filter, CASES.iter().map(|c| c.0)));
    }
    Ok(all)
}

/// What `work` returns, and its seconds.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    work().map(|found| (found, start.elapsed().as_secs_f64()))
}

fn measure(name: &'static str, case: &Case) -> Result<JudgeRow> {
    if name.starts_with("assay") {
        return measure_bundle(name, case);
    }
    let before = memory::restart();
    let (mut built, references) = timed(|| build::build(case))?;
    let kernel = kernel::find(cpu::KERNELS, &built.job, Backend::Cpu)?;
    let (output, seconds) = timed(|| kernel.run(&built.job))?;
    let (Held { model, drawn }, of_model) = timed(|| kernel.hold(&built.job, &output))?;
    built.job.accumulator = case.accumulator;
    let (judgements, judgement) =
        timed(|| evidence::judge_drawn(&built, Backend::Cpu, &output, model.as_ref(), drawn.as_ref()))?;
    let elements = judgements.iter().map(|j| j.actual.len()).sum();
    Ok(JudgeRow {
        name,
        shape: shape(case),
        elements,
        products: elements * case.k,
        references,
        kernel: seconds,
        model: of_model,
        judgement,
        peak: before.and_then(|before| memory::peak().map(|peak| peak.saturating_sub(before))),
    })
}

/// A case as a bundle in a file, and `qassay assay` of it.
fn measure_bundle(name: &'static str, case: &Case) -> Result<JudgeRow> {
    let path = std::env::temp_dir().join(format!("qassay-bench-{}.safetensors", std::process::id()));
    let (elements, kernel) = {
        let built = build::build(case)?;
        let (output, seconds) = timed(|| kernel::find(cpu::KERNELS, &built.job, Backend::Cpu)?.run(&built.job))?;
        let mut writer = bundle::case::input(&built.job)?;
        writer.meta("device", "NVIDIA H200");
        bundle::case::output(&mut writer, &built.job, &output)?;
        writer.save(&path)?;
        (case.total_rows() * case.n, seconds)
    };
    let before = memory::restart();
    let (_, judgement) = timed(|| bundle::assay::assay(&Bundle::read(&path)?))?;
    let peak = before.and_then(|before| memory::peak().map(|peak| peak.saturating_sub(before)));
    std::fs::remove_file(&path).map_err(|e| Error::io(&path, e, "make room for temporary files"))?;
    Ok(JudgeRow {
        name,
        shape: shape(case),
        elements,
        products: elements * case.k,
        references: 0.0,
        kernel,
        model: 0.0,
        judgement,
        peak,
    })
}

fn shape(case: &Case) -> String {
    let (m, n, k) = (case.total_rows(), case.n, case.k);
    if k > 0 { format!("{m}x{n}x{k}") } else { format!("{m}x{n}") }
}

/// The rows as an aligned table.
pub fn table(rows: &[JudgeRow]) -> String {
    let mut out = format!(
        "{:<22} {:>16} {:>10} {:>10} {:>10} {:>10} {:>12} {:>12} {:>12}\n",
        "case", "shape", "refs s", "kernel s", "model s", "judge s", "M elements/s", "G products/s", "bytes/element"
    );
    for r in rows {
        let rate = |count: usize, unit: f64| {
            if count == 0 { String::new() } else { format!("{:.2}", count as f64 / r.judge() / unit) }
        };
        let bytes = r.peak.map_or(String::new(), |p| format!("{:.0}", p as f64 / r.elements.max(1) as f64));
        out += &format!(
            "{:<22} {:>16} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>12} {:>12} {:>12}\n",
            r.name,
            r.shape,
            r.references,
            r.kernel,
            r.model,
            r.judgement,
            rate(r.elements, 1e6),
            rate(r.products, 1e9),
            bytes
        );
    }
    out
}

/// Resident memory as Linux counts it.
mod memory {
    fn status(key: &str) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = text.lines().find(|l| l.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
    }
    /// Gives back what is free, starts the count of the peak anew, and says what is held now.
    pub fn restart() -> Option<u64> {
        // SAFETY: malloc_trim takes no pointer and may be called at any time.
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        unsafe {
            libc::malloc_trim(0);
        }
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        status("VmRSS:")
    }
    /// Most memory held at a time since.
    pub fn peak() -> Option<u64> {
        status("VmHWM:")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_one_that_a_cpu_kernel_takes() {
        assert!(cases("gemm").unwrap().len() >= 4 && cases("assay").unwrap().len() == 2);
        assert!(cases("no such op").unwrap_err().to_string().contains("layernorm"));
        for (name, table) in CASES {
            let small = table
                .replace("2048x2048x2048", "48x64x512")
                .replace("1024x1024x1024", "64x64x512")
                .replace("2048x2048", "64x256");
            let small = small.replace("512x1024x1024", "32x64x512");
            let text = format!("about = \"x\"\n[[cases]]\nname = \"one\"\n{small}\n");
            for case in Sweep::parse(Path::new("judge.toml"), &text, 0).unwrap().cases {
                let row = measure(name, &case).unwrap();
                assert!(row.elements > 0 && row.judge() > 0.0 && (row.products > 0) == (case.k > 0), "{name}");
                let text = table_of(&row);
                assert!(text.contains(name) && text.contains(&row.shape), "{text}");
            }
        }
    }

    fn table_of(row: &JudgeRow) -> String {
        super::table(std::slice::from_ref(row))
    }
}
