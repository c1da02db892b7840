//! FP8 casts with a scale a row, 1×128 or 128×128, and their transposed copies: `kernels/cast_row.cu`, `kernels/cast_block.cu`
//! (contracts there).

use super::cast::{ScaleRule, defines};
use super::contract::{Contract, Pointer, arguments};
use super::elements::{f32s, fp8, upload};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::options::define;
use super::tile::{tiles, whole};
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::kernel::cpu::cast::check_for;
use crate::kernel::{Backend, Kernel, KernelSpec, cpu};
use crate::model::elementwise;
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::recipe::{DeviceRule, RECIPES, Recipe, RecipeSpec};
use crate::{Error, Granularity, QTensor, Result, Tensor, Zero};

pub struct CastBlock;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/cast_block",
    backend: Backend::Cuda,
    ops: &[Op::Cast, Op::CastTranspose],
    help: "f16, bf16, f32 to e4m3, e5m2 by row, 1x128 and 128x128 scales (TransformerEngine, torchao, DeepGEMM)",
    source: "kernels/cast_row.cu, kernels/cast_block.cu",
};

arguments! {
    /// Contract cast_row.
    Rows = "cast_row.cu" "cast_row" { x: Pointer, codes: Pointer, scale_inv: Pointer, rows: usize, cols: usize }
}

arguments! {
    /// Contract cast_block.
    Tiles = "cast_block.cu" "cast_block" {
        x: Pointer, codes: Pointer, turned: Pointer, scale_inv: Pointer, turned_inv: Pointer, rows: usize, cols: usize,
    }
}

/// Option CHUNKS of cast_row, by which a row stays in registers where it fits.
pub(crate) fn chunks(cols: usize) -> String {
    define("CHUNKS", cols.div_ceil(8 * 256).next_power_of_two().min(4))
}
/// The blocks of cast_row.
pub(crate) fn row_shape(rows: usize) -> LaunchShape {
    LaunchShape::new(rows, 256)
}
/// The options of cast_block beside type, format and rule.
pub(crate) fn tile_options(square: bool, rows: usize, cols: usize) -> [String; 3] {
    [define("BLOCKS", true), define("SQUARE", square), whole(rows, cols)]
}

/// Which elements share a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Blocks {
    Row,
    Line,
    Square,
}

/// The blocks and the rule of a recipe that the kernels have.
fn of(spec: &RecipeSpec) -> Option<(Blocks, ScaleRule)> {
    let blocks = match spec.granularity? {
        Granularity::Row => Blocks::Row,
        Granularity::Group(128) => Blocks::Line,
        Granularity::Block { rows: 128, cols: 128 } => Blocks::Square,
        _ => return None,
    };
    match spec.device? {
        DeviceRule::Scale { rule, pow2 } => Some((blocks, ScaleRule { rule, pow2 })),
        _ => None,
    }
}

fn known(out: &OutSpec) -> Result<(&Recipe, Blocks, ScaleRule)> {
    let found = match out {
        OutSpec::Recipe(r) => of(r.spec()?).map(|(blocks, rule)| (r, blocks, rule)),
        _ => None,
    };
    let names = || RECIPES.iter().filter(|s| of(s).is_some()).map(|s| s.name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| Error::unsupported(SPEC.name, format!("it has the recipes {}", names())))
}

/// What a launch writes.
struct Written {
    codes: Buffer,
    scale_inv: Buffer,
    /// Transposed codes, and their scale_inv where they have their own.
    turned: Option<(Buffer, Option<Buffer>)>,
}

fn launch(gpu: &Gpu, x: &Tensor, recipe: &Recipe, blocks: Blocks, rule: ScaleRule, transpose: bool) -> Result<Written> {
    let (rows, cols) = (x.rows(), x.cols());
    let (down, across) = (rows.div_ceil(128), cols.div_ceil(128));
    let scales = match blocks {
        Blocks::Row => rows,
        Blocks::Line => rows * across,
        Blocks::Square => down * across,
    };
    let (elements, codes, scale_inv) = (upload(gpu, x)?, gpu.output(rows * cols)?, gpu.output(scales * 4)?);
    let mut defines = defines(SPEC.name, x, recipe.format, rule)?;
    if blocks == Blocks::Row {
        defines.push(chunks(cols));
        let (x, to, inverse) = ((&elements).into(), (&codes).into(), (&scale_inv).into());
        let arguments = Rows { x, codes: to, scale_inv: inverse, rows, cols };
        // SAFETY: buffers have the sizes of rows and cols.
        unsafe { gpu.launch(arguments.launch(&defines, row_shape(rows)))? };
        return Ok(Written { codes, scale_inv, turned: None });
    }
    let square = blocks == Blocks::Square;
    defines.extend(tile_options(square, rows, cols));
    let turned = transpose.then(|| gpu.output(rows * cols)).transpose()?;
    let inverse = (transpose && !square).then(|| gpu.output(cols * down * 4)).transpose()?;
    let arguments = Tiles {
        x: (&elements).into(),
        codes: (&codes).into(),
        turned: turned.as_ref().into(),
        scale_inv: (&scale_inv).into(),
        turned_inv: inverse.as_ref().into(),
        rows,
        cols,
    };
    // SAFETY: buffers have the sizes of rows, cols and their blocks.
    unsafe { gpu.launch(arguments.launch(&defines, tiles(rows, cols)))? };
    Ok(Written { codes, scale_inv, turned: turned.map(|t| (t, inverse)) })
}

impl Kernel for CastBlock {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)?;
        let (recipe, blocks, _) = known(&job.out)?;
        fp8(SPEC.name, recipe.format)?;
        let a = job.operands.a();
        if a.rows() == 0 || a.cols() == 0 {
            return Err(Error::unsupported(SPEC.name, format!("an empty tensor has no amax: {}×{}", a.rows(), a.cols())));
        }
        if blocks == Blocks::Row && job.op == Op::CastTranspose {
            let why = "the transposed copy's scales are of whole columns: cast the transposed tensor";
            return Err(Error::unsupported(SPEC.name, why));
        }
        Ok(())
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        let (recipe, blocks, rule) = known(&job.out)?;
        let x = elementwise::high(job.operands.a(), SPEC.name)?;
        let written = launch(gpu, x, recipe, blocks, rule, job.op == Op::CastTranspose)?;
        let (scale_format, granularity) = (recipe.spec()?.scale_format(x.dtype()), recipe.granularity()?);
        let q = |rows, cols, codes, scale_inv| {
            let (format, zero, level) = (recipe.format, Zero::None, None);
            let parts = QTensorParts { format, rows, cols, codes, granularity, scale_format, scale_inv, zero, level };
            QTensor::new(parts)
        };
        let (rows, cols, codes) = (x.rows(), x.cols(), gpu.download("codes", &written.codes, 1)?);
        let d = q(rows, cols, codes, f32s(gpu, "scale_inv", &written.scale_inv)?)?;
        let turned = |(turned, inverse): &(Buffer, Option<Buffer>)| {
            let scale_inv = match inverse {
                Some(inverse) => f32s(gpu, "scale_inv of the transposed copy", inverse)?,
                None => d.transposed()?.scale_inv().to_vec(),
            };
            q(cols, rows, gpu.download("transposed codes", turned, 1)?, scale_inv)
        };
        let transpose = written.turned.as_ref().map(turned).transpose()?;
        let part = Part { d: Data::Quantized(d), transpose, amax: None };
        Ok(Output::of(part))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        match job.op {
            Op::Cast => cpu::cast::Cast.run(job).map(Some),
            _ => cpu::cast_transpose::CastTranspose.run(job).map(Some),
        }
    }
}
