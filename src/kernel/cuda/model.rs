//! The device model in bulk on the GPU (`kernels/model_wgmma.cu`): what a product too large for the CPU's model must return.

use super::launch::{Arg, Buffer, Gpu, Launch, gpu};
use crate::kernel::{Job, Output};
use crate::model::gemm::{Epilogue, store};
use crate::model::product::{Kind, Plan, Problem, Side};
use crate::model::{Accumulator, Inner};
use crate::{Error, Format, Result};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// Warps of a block along M and N: 128 × 96 outputs.
const WARPS: (usize, usize) = (4, 3);
const ROWS: usize = 32 * WARPS.0;
const COLUMNS: usize = 32 * WARPS.1;
const SHARED: u32 = 2 * (ROWS + COLUMNS) as u32 * 256 + 2048;

/// Products from which the GPU's model is used instead of the obvious one.
pub const LARGE: u64 = 1 << 28;

/// FP8 codes on the device: `rows` rows, `pitch` apart, a multiple of 8.
pub struct Codes {
    pub buffer: Buffer,
    pub format: Format,
    pub rows: usize,
    pub pitch: usize,
}

impl Codes {
    /// Errors: a format that is not e4m3 or e5m2; rows that do not fit the pitch; out of memory.
    pub fn upload(gpu: &Gpu, format: Format, codes: &[u8], rows: usize, pitch: usize) -> Result<Codes> {
        if !matches!(format, Format::E4m3 | Format::E5m2) {
            return Err(Error::unsupported(
                "the model of wgmma on the GPU",
                format!("it multiplies e4m3 and e5m2, not {format}"),
            ));
        }
        if rows == 0 || !pitch.is_multiple_of(8) || codes.len() != rows * pitch {
            let found = format!("{} codes in {rows} rows of {pitch}", codes.len());
            return Err(Error::shape("codes of the model", found, "rows × pitch codes, pitch a multiple of 8"));
        }
        Ok(Codes { buffer: gpu.upload(codes)?, format, rows, pitch })
    }
}

fn defines(a: Format, b: Format, promoted: bool) -> Vec<String> {
    let flag = |name: &str, on: bool| format!("-D{name}={}", i32::from(on));
    vec![
        flag("A_E5M2", a == Format::E5m2),
        flag("B_E5M2", b == Format::E5m2),
        flag("PROMOTE", promoted),
        format!("-DWARPS_M={}", WARPS.0),
        format!("-DWARPS_N={}", WARPS.1),
    ]
}

/// What a launch of the model needs beside the operands.
pub struct Sums {
    /// f32, `[a.rows, b.rows]`.
    pub d: Buffer,
    special: Buffer,
    defines: Vec<String>,
    k: usize,
}

impl Sums {
    /// Room for the sums over the first `k` codes of every row, promoted every 128 or not at all. Errors: K that is no multiple of 8
    /// or longer than a row; a NaN or Inf scan that cannot run; out of memory.
    pub fn new(gpu: &Gpu, a: &Codes, b: &Codes, k: usize, promoted: bool) -> Result<Sums> {
        if k == 0 || !k.is_multiple_of(8) || k > a.pitch.min(b.pitch) {
            return Err(Error::value("K of the model", k, "a multiple of 8 from 8 to the row's length"));
        }
        let special = gpu.upload(&vec![0u8; a.rows + b.rows])?;
        let d = gpu.output(a.rows * b.rows * 4)?;
        let sums = Sums { d, special, defines: defines(a.format, b.format, promoted), k };
        let launch = Launch {
            source: "model_wgmma.cu",
            defines: &sums.defines,
            entry: "model_special",
            grid: ((a.rows + b.rows) as u32, 1, 1),
            block: (256, 1, 1),
            shared: 0,
        };
        let mut args = sums.arguments(a, b, 0);
        args.remove(2);
        // SAFETY: the arguments are contract model_special's; the scratch has a byte for each row of both.
        unsafe { gpu.launch(&launch, &mut args)? };
        Ok(sums)
    }

    /// a, b, d, special, m, n, k, pitches; codes from column `from` on.
    fn arguments(&self, a: &Codes, b: &Codes, from: usize) -> Vec<Arg> {
        let int = |n: usize| Arg::Int(n as i32);
        vec![
            Arg::Pointer(a.buffer.pointer() + from as u64),
            Arg::Pointer(b.buffer.pointer() + from as u64),
            self.d.arg(),
            self.special.arg(),
            int(a.rows),
            int(b.rows),
            int(self.k),
            int(a.pitch),
            int(b.pitch),
        ]
    }

    /// Computes the sums of columns `from..from + k`, and waits. Errors: the launch's.
    pub fn run(&self, gpu: &Gpu, a: &Codes, b: &Codes, from: usize) -> Result<()> {
        assert!(from.is_multiple_of(8) && from + self.k <= a.pitch.min(b.pitch));
        // SAFETY: contract model_wgmma: sizes are those of the operands this was made for, all pitches and columns multiples of 8.
        unsafe { gpu.launch(&self.launch(a, b), &mut self.arguments(a, b, from)) }
    }

    /// Starts the same and does not wait.
    ///
    /// # Safety
    /// The operands are those this was made for, and they and this live until it ran.
    pub unsafe fn enqueue(&self, gpu: &Gpu, a: &Codes, b: &Codes) -> Result<()> {
        // SAFETY: as in `run`.
        unsafe { gpu.enqueue(&self.launch(a, b), &mut self.arguments(a, b, 0)) }
    }

    fn launch(&self, a: &Codes, b: &Codes) -> Launch<'_> {
        Launch {
            source: "model_wgmma.cu",
            defines: &self.defines,
            entry: "model_wgmma",
            grid: (b.rows.div_ceil(COLUMNS) as u32, a.rows.div_ceil(ROWS) as u32, 1),
            block: (32 * (WARPS.0 * WARPS.1) as u32, 1, 1),
            shared: SHARED,
        }
    }

    /// Computes the sums by the definition, one thread an output. Errors: the launch's.
    pub fn run_naive(&self, gpu: &Gpu, a: &Codes, b: &Codes) -> Result<()> {
        let launch = Launch {
            entry: "model_wgmma_naive",
            grid: (b.rows.div_ceil(32) as u32, a.rows.div_ceil(8) as u32, 1),
            block: (32, 8, 1),
            shared: 0,
            ..self.launch(a, b)
        };
        let mut args = self.arguments(a, b, 0);
        args.remove(3);
        // SAFETY: the arguments are contract model_wgmma_naive's.
        unsafe { gpu.launch(&launch, &mut args) }
    }

    /// The sums, row-major.
    pub fn download(&self, gpu: &Gpu) -> Result<Vec<f32>> {
        let bytes = gpu.download("sums of the model", &self.d, 4)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
}

/// How many 4-byte elements of two buffers differ. Errors: lengths that differ or no multiple of 4; the launch's.
pub fn mismatches(gpu: &Gpu, x: &Buffer, y: &Buffer) -> Result<u64> {
    if x.bytes() != y.bytes() || !x.bytes().is_multiple_of(4) {
        return Err(Error::shape("buffers to compare", format!("{} and {} bytes", x.bytes(), y.bytes()), "as many, in words"));
    }
    let found = gpu.upload(&[0u8; 8])?;
    let defines = defines(Format::E4m3, Format::E4m3, false);
    let launch = Launch {
        source: "model_wgmma.cu",
        defines: &defines,
        entry: "model_mismatches",
        grid: (4096, 1, 1),
        block: (256, 1, 1),
        shared: 0,
    };
    let mut args = [x.arg(), y.arg(), Arg::Long((x.bytes() / 4) as i64), found.arg()];
    // SAFETY: the arguments are contract model_mismatches's; both buffers hold this many words.
    unsafe { gpu.launch(&launch, &mut args)? };
    let bytes = gpu.download("mismatches", &found, 8)?;
    Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

/// Whether the GPU's model has this accumulator: wgmma's, promoted every 128 or never.
pub fn takes(accumulator: &Accumulator) -> Option<bool> {
    match (accumulator.inner, accumulator.promote_every) {
        (Inner::Mma(m), every @ (None | Some(128))) if m.name == "hopper_wgmma" => Some(every.is_some()),
        _ => None,
    }
}

/// Everything a GEMM kernel must write for `job`: [`crate::model::gemm::predict`] with the sums from the GPU. Errors: no GPU; an
/// accumulator or factors that the model on the GPU does not have; out of device memory.
pub fn predict(job: &Job) -> Result<Output> {
    let gpu = gpu()?;
    let plan = Plan::of(job)?;
    let refuse = |why: String| Error::unsupported("the model of wgmma on the GPU", why);
    let promoted = takes(&plan.accumulator).ok_or_else(|| refuse(format!("it has hopper_wgmma, not {}", plan.accumulator)))?;
    if plan.kind != Kind::Scaled {
        return Err(refuse(format!("it multiplies FP8 codes, not {:?}", plan.kind)));
    }
    let mut values = vec![0.0f32; plan.rows * plan.cols];
    for p in plan.problems().filter(|p| p.a.k > 0 && !p.a_rows.is_empty() && !p.b_rows.is_empty()) {
        let from = p.out_row * plan.cols;
        problem(gpu, &plan, &p, promoted, &mut values[from..from + p.a_rows.len() * plan.cols])?;
    }
    store(job, &plan, values)
}

/// The values of one problem before the output rounding, into rows of the result.
fn problem(gpu: &Gpu, plan: &Plan, p: &Problem, promoted: bool, out: &mut [f32]) -> Result<()> {
    let epilogue = Epilogue::of(plan, p);
    for k in p.blocks() {
        let (a, b) = (codes(gpu, p.a, &p.a_rows, &k)?, codes(gpu, p.b, &p.b_rows, &k)?);
        let sums = Sums::new(gpu, &a, &b, k.len().next_multiple_of(8), promoted)?;
        sums.run(gpu, &a, &b, 0)?;
        let sums = sums.download(gpu)?;
        let s_b: Vec<f32> = p.b_rows.clone().map(|j| p.b.scale_inv(j, k.start)).collect();
        let rows = out.par_chunks_mut(plan.cols).zip(sums.par_chunks(p.b_rows.len())).zip(p.a_rows.clone());
        rows.for_each(|((y, sums), i)| {
            let s_a = p.a.scale_inv(i, k.start);
            for ((y, sum), s_b) in y.iter_mut().zip(sums).zip(&s_b) {
                *y = epilogue.add(*y, *sum, s_a, *s_b);
            }
        });
    }
    out.par_chunks_mut(plan.cols).zip(p.a_rows.clone()).for_each(|(y, i)| {
        let s_a = p.a.scale_inv(i, 0);
        for (j, y) in y.iter_mut().enumerate().take(p.b_rows.len()) {
            *y = epilogue.finish(*y, s_a, plan.bias.map(|bias| bias[j]));
        }
    });
    Ok(())
}

/// Columns `k` of some rows on the device, padded with zeros to a multiple of 8.
fn codes(gpu: &Gpu, side: &Side, rows: &Range<usize>, k: &Range<usize>) -> Result<Codes> {
    let q = side.scales().ok_or_else(|| Error::unsupported("the model of wgmma on the GPU", "it multiplies codes"))?;
    let (cols, pitch) = (q.cols(), k.len().next_multiple_of(8));
    let codes: Cow<[u8]> = if pitch == cols {
        Cow::Borrowed(&q.codes()[rows.start * cols..rows.end * cols])
    } else {
        let mut padded = vec![0u8; rows.len() * pitch];
        for (out, i) in padded.chunks_mut(pitch).zip(rows.clone()) {
            out[..k.len()].copy_from_slice(&q.codes()[i * cols + k.start..i * cols + k.end]);
        }
        Cow::Owned(padded)
    };
    Codes::upload(gpu, q.format(), &codes, rows.len(), pitch)
}
