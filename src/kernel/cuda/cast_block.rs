//! FP8 casts with a scale a row, 1×128 or 128×128, and their transposed copies: `kernels/cast_row.cu`, `kernels/cast_block.cu`
//! (contracts there).

use super::cast::{ScaleRule, defines};
use super::contract::{Contract, Pointer, arguments};
use super::elements::{f32s, fp8, upload};
use super::launch::{Buffer, Gpu, Shape, gpu};
use super::options::{Rule, define};
use super::tile::{tiles, whole};
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::kernel::cpu::cast::check_for;
use crate::kernel::{Backend, Kernel, KernelSpec, cpu};
use crate::model::elementwise;
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::recipe::Recipe;
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};

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
pub(crate) fn row_shape(rows: usize) -> Shape {
    Shape::new(rows, 256)
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

/// Name, blocks, RULE and POW2 of `common/scale_rule.cuh`.
const RECIPES: &[(&str, Blocks, Rule, bool)] = &[
    ("float8_rowwise", Blocks::Row, Rule::Torchao, true),
    ("float8_rowwise_gw_hp", Blocks::Row, Rule::Torchao, false),
    ("float8_inference_row", Blocks::Row, Rule::TorchaoInference, false),
    ("te_block_1x128", Blocks::Line, Rule::Te, true),
    ("te_block_1x128_fp32", Blocks::Line, Rule::Te, false),
    ("te_block_128x128", Blocks::Square, Rule::Te, true),
    ("te_block_128x128_fp32", Blocks::Square, Rule::Te, false),
    ("deepseek_1x128", Blocks::Line, Rule::Deepgemm, false),
    ("deepseek_1x128_ue8m0", Blocks::Line, Rule::Deepgemm, true),
    ("deepseek_128x128", Blocks::Square, Rule::Deepgemm, false),
    ("deepseek_128x128_ue8m0", Blocks::Square, Rule::Deepgemm, true),
];

fn known(out: &OutSpec) -> Result<(&Recipe, Blocks, ScaleRule)> {
    let found = match out {
        OutSpec::Recipe(r) => RECIPES.iter().find(|k| k.0 == r.name).map(|k| (r, k.1, ScaleRule { rule: k.2, pow2: k.3 })),
        _ => None,
    };
    let names = || RECIPES.iter().map(|k| k.0).collect::<Vec<_>>().join(", ");
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
        let a = &job.operands.a[0];
        if a.rows() == 0 || a.cols() == 0 {
            return Err(Error::unsupported(SPEC.name, format!("nothing has no amax: {}×{}", a.rows(), a.cols())));
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
        let x = elementwise::high(&job.operands.a[0], SPEC.name)?;
        let written = launch(gpu, x, recipe, blocks, rule, job.op == Op::CastTranspose)?;
        let scale_format = if rule == (ScaleRule { rule: Rule::Deepgemm, pow2: true }) { Format::E8m0 } else { Format::F32 };
        let granularity = match blocks {
            Blocks::Row => Granularity::Row,
            Blocks::Line => Granularity::Group(128),
            Blocks::Square => Granularity::Block { rows: 128, cols: 128 },
        };
        let q = |rows, cols, codes, scale_inv| {
            let (format, zero, global_scale_inv) = (recipe.format, Zero::None, None);
            let parts =
                QTensorParts { format, rows, cols, codes, granularity, scale_format, scale_inv, zero, global_scale_inv };
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
