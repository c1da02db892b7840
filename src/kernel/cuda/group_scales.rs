//! Operands of grouped products quantized on the device by `offs` there: `kernels/group_scales.cu` (contract there).

use super::contract::{Contract, Pointer, arguments};
use super::elements;
use super::launch::{Buffer, Gpu, LaunchShape};
use super::operand::type_code;
use super::options::{Rule, Type, define};
use super::tile::{tiles, whole};
use crate::recipe::{DeviceRule, Recipe};
use crate::{Error, Format, Granularity, Result, Tensor};

const NAME: &str = "cuda/group_scales";
const THREADS: usize = 128;

arguments! {
    /// Contract group_rows.
    Rows = "group_scales.cu" "group_rows" {
        x: Pointer, codes: Pointer, scale_inv: Pointer, offs: Pointer, groups: usize, rows: usize, tokens: usize,
        pitch: usize,
    }
}

arguments! {
    /// Contract group_columns_amax.
    ColumnsAmax = "group_scales.cu" "group_columns_amax" {
        x: Pointer, amax: Pointer, offs: Pointer, groups: usize, tokens: usize, cols: usize,
    }
}

arguments! {
    /// Contract group_columns_scale.
    ColumnsScale = "group_scales.cu" "group_columns_scale" { amax: Pointer, scale_inv: Pointer, n: usize }
}

arguments! {
    /// Contract group_columns.
    Columns = "group_scales.cu" "group_columns" {
        x: Pointer, codes: Pointer, scale: Pointer, offs: Pointer, groups: usize, tokens: usize, cols: usize, pitch: usize,
    }
}

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
        (Granularity::Row, Some(DeviceRule::Scale { rule: Rule::Torchao, pow2 })) => pow2,
        _ => {
            let why = format!("it has torchao's float8 by row, not {}", recipe.name);
            return Err(Error::unsupported(NAME, why));
        }
    };
    let why = || format!("it writes e4m3 and e5m2, not {}", recipe.format);
    let format = Type::one_of(&[Format::E4m3, Format::E5m2], recipe.format, NAME, why)?;
    if x.rows() * x.cols() > i32::MAX as usize {
        return Err(Error::unsupported(NAME, format!("{} elements: it counts up to 2^31 - 1", x.rows() * x.cols())));
    }
    Ok(vec![
        define("IN", type_code(NAME, x.dtype())?),
        define("FORMAT", format),
        define("RULE", Rule::Torchao),
        define("POW2", pow2),
    ])
}

/// Whether `quantize_rows` and `quantize_columns` take it.
pub fn check(x: &Tensor, recipe: &Recipe) -> Result<()> {
    defines(x, recipe).map(drop)
}

/// `x × y` blocks, at least one.
fn blocks(x: usize, y: usize) -> LaunchShape {
    LaunchShape::of([x.max(1), y.max(1)], THREADS)
}

/// Rows of `x`, tokens contiguous, each group of tokens by its own scale; `offs` are the groups' ends on the device.
pub fn quantize_rows(gpu: &Gpu, x: &Tensor, recipe: &Recipe, offs: &Buffer, groups: usize) -> Result<Quantized> {
    let defines = defines(x, recipe)?;
    let (rows, tokens, pitch) = (x.rows(), x.cols(), x.cols().next_multiple_of(16));
    let input = elements::upload(gpu, x)?;
    let (codes, scale_inv) = (gpu.output(rows * pitch)?, gpu.output(4 * groups * rows)?);
    let arguments = Rows {
        x: (&input).into(),
        codes: (&codes).into(),
        scale_inv: (&scale_inv).into(),
        offs: offs.into(),
        groups,
        rows,
        tokens,
        pitch,
    };
    // SAFETY: the buffers have the sizes of rows, tokens and groups.
    unsafe { gpu.launch(arguments.launch(&defines, blocks(rows, groups)))? };
    Ok(Quantized { codes, scale_inv, rows, cols: tokens, pitch })
}

/// As [`quantize_rows`] of the transpose: `x` is `[tokens, cols]`, as a training step has it; the codes are `[cols, tokens]`.
pub fn quantize_columns(gpu: &Gpu, x: &Tensor, recipe: &Recipe, offs: &Buffer, groups: usize) -> Result<Quantized> {
    let mut defines = defines(x, recipe)?;
    defines.push(whole(x.rows(), x.cols()));
    let (tokens, cols, pitch) = (x.rows(), x.cols(), x.rows().next_multiple_of(16));
    let input = elements::upload(gpu, x)?;
    let scale = gpu.upload_f32(&vec![0.0; groups * cols])?;
    let (codes, scale_inv) = (gpu.output(cols * pitch)?, gpu.output(4 * groups * cols)?);
    let (x, scale, offs) = (Pointer::from(&input), Pointer::from(&scale), Pointer::from(offs));
    let raised = ColumnsAmax { x, amax: scale, offs, groups, tokens, cols };
    let chosen = ColumnsScale { amax: scale, scale_inv: (&scale_inv).into(), n: groups * cols };
    let cast = Columns { x, codes: (&codes).into(), scale, offs, groups, tokens, cols, pitch };
    // SAFETY: the buffers have the sizes of cols, tokens and groups.
    unsafe {
        gpu.launch(raised.launch(&defines, blocks(cols.div_ceil(8 * THREADS), tokens.div_ceil(32))))?;
        gpu.launch(chosen.launch(&defines, blocks((groups * cols).div_ceil(THREADS), 1)))?;
        gpu.launch(cast.launch(&defines, tiles(tokens, cols)))?;
    }
    Ok(Quantized { codes, scale_inv, rows: cols, cols: tokens, pitch })
}
