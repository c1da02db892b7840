//! Operands of grouped products quantized on the device by `offs` there: `kernels/group_scales.cu` (contract there).

use super::dact::{tiles, whole};
use super::elements;
use super::launch::{Arg, Buffer, Gpu, Launch};
use super::operand::type_code;
use crate::recipe::{DeviceRule, Recipe};
use crate::{Error, Format, Granularity, Result, Tensor};

const NAME: &str = "cuda/group_scales";
const THREADS: usize = 128;
/// torchao's rule in `common/scale_rule.cuh`.
const RULE: i32 = 2;

/// Codes and scales as `grouped_gemm.cu` reads them.
pub struct Quantized {
    /// `[rows, pitch]`.
    pub codes: Buffer,
    /// One a row of each group, group-major.
    pub scale_inv: Buffer,
    pub rows: usize,
    pub cols: usize,
    pub pitch: usize,
}

/// The options of `recipe` for `x`. Errors: a recipe without row scales in FP8; what the kernel counts no further.
fn defines(x: &Tensor, recipe: &Recipe) -> Result<Vec<String>> {
    let pow2 = match (recipe.granularity()?, recipe.spec()?.device) {
        (Granularity::Row, Some(DeviceRule::Scale { rule: RULE, pow2 })) => i32::from(pow2),
        _ => {
            let why = format!("it has torchao's float8 by row, not {}", recipe.name);
            return Err(Error::unsupported(NAME, why));
        }
    };
    let format = match recipe.format {
        Format::E4m3 => 0,
        Format::E5m2 => 1,
        other => return Err(Error::unsupported(NAME, format!("it writes e4m3 and e5m2, not {other}"))),
    };
    if x.rows() * x.cols() > i32::MAX as usize {
        return Err(Error::unsupported(NAME, format!("{} elements: it counts up to 2^31 - 1", x.rows() * x.cols())));
    }
    Ok(vec![
        format!("-DIN={}", type_code(NAME, x.dtype())?),
        format!("-DFORMAT={format}"),
        format!("-DRULE={RULE}"),
        format!("-DPOW2={pow2}"),
    ])
}

/// Whether `quantize_rows` and `quantize_columns` take it.
pub fn check(x: &Tensor, recipe: &Recipe) -> Result<()> {
    defines(x, recipe).map(drop)
}

fn run(gpu: &Gpu, defines: &[String], entry: &str, grid: (usize, usize), block: usize, args: &mut [Arg]) -> Result<()> {
    let launch = Launch {
        source: "group_scales.cu",
        defines,
        entry,
        grid: (grid.0.max(1) as u32, grid.1.max(1) as u32, 1),
        block: (block as u32, 1, 1),
        shared: 0,
    };
    // SAFETY: every caller below passes the arguments of the entry's contract, of buffers with the sizes it says.
    unsafe { gpu.launch(&launch, args) }
}

/// Rows of `x`, tokens contiguous, each group of tokens by its own scale; `offs` are the groups' ends on the device.
pub fn quantize_rows(gpu: &Gpu, x: &Tensor, recipe: &Recipe, offs: &Buffer, groups: usize) -> Result<Quantized> {
    let defines = defines(x, recipe)?;
    let (rows, tokens, pitch) = (x.rows(), x.cols(), x.cols().next_multiple_of(16));
    let input = elements::upload(gpu, x)?;
    let (codes, scale_inv) = (gpu.output(rows * pitch)?, gpu.output(4 * groups * rows)?);
    let ints = [groups, rows, tokens, pitch].map(|n| Arg::Int(n as i32));
    let mut args: Vec<Arg> = [input.arg(), codes.arg(), scale_inv.arg(), offs.arg()].into_iter().chain(ints).collect();
    run(gpu, &defines, "group_rows", (rows, groups), THREADS, &mut args)?;
    Ok(Quantized { codes, scale_inv, rows, cols: tokens, pitch })
}

/// As [`quantize_rows`] of the transpose: `x` is `[tokens, cols]`, as a training step has it; the codes are `[cols, tokens]`.
pub fn quantize_columns(gpu: &Gpu, x: &Tensor, recipe: &Recipe, offs: &Buffer, groups: usize) -> Result<Quantized> {
    let mut defines = defines(x, recipe)?;
    defines.push(format!("-DWHOLE={}", whole(x.rows(), x.cols())));
    let (tokens, cols, pitch) = (x.rows(), x.cols(), x.rows().next_multiple_of(16));
    let input = elements::upload(gpu, x)?;
    let scale = gpu.upload_f32(&vec![0.0; groups * cols])?;
    let (codes, scale_inv) = (gpu.output(cols * pitch)?, gpu.output(4 * groups * cols)?);
    let int = |n: usize| Arg::Int(n as i32);
    let sizes = || [int(groups), int(tokens), int(cols)];
    let [e, t, c] = sizes();
    run(
        gpu,
        &defines,
        "group_columns_amax",
        (cols.div_ceil(8 * THREADS), tokens.div_ceil(32)),
        THREADS,
        &mut [input.arg(), scale.arg(), offs.arg(), e, t, c],
    )?;
    let n = groups * cols;
    run(gpu, &defines, "group_columns_scale", (n.div_ceil(THREADS), 1), THREADS, &mut [scale.arg(), scale_inv.arg(), int(n)])?;
    let [e, t, c] = sizes();
    let mut args = [input.arg(), codes.arg(), scale.arg(), offs.arg(), e, t, c, int(pitch)];
    run(gpu, &defines, "group_columns", (tiles(tokens, cols), 1), 2 * THREADS, &mut args)?;
    Ok(Quantized { codes, scale_inv, rows: cols, cols: tokens, pitch })
}
