//! Microscaling casts, MX and NVFP4, and their transposed copies: `kernels/cast_mx.cu` (contract there).

use super::cast::{ScaleRule, defines, tensor_amax};
use super::contract::{Contract, Pointer, arguments};
use super::elements::{dtype, upload};
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::operand::Fp8Side;
use super::options::{Rule, Type, define};
use super::tile::{narrow_tiles, tiles, whole};
use crate::format::pack::{NibbleOrder, unpack4};
use crate::job::{Data, Job, OutSpec, Output, Part};
use crate::kernel::cpu::cast::check_for;
use crate::kernel::{Backend, Kernel, KernelSpec, cpu};
use crate::model::elementwise;
use crate::op::Op;
use crate::quant::{Level, QTensorParts};
use crate::recipe::{DeviceRule, RECIPES, Recipe, RecipeSpec};
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};

pub struct CastMx;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/cast_mx",
    backend: Backend::Cuda,
    ops: &[Op::Cast, Op::CastTranspose],
    help: "f16, bf16, f32 to MXFP8, MXFP6, MXFP4 and NVFP4, by rows and columns (TransformerEngine, torchao)",
    source: "kernels/cast_mx.cu",
};

arguments! {
    /// Contract cast_mx.
    Arguments = "cast_mx.cu" "cast_mx" {
        x: Pointer, codes: Pointer, turned: Pointer, scale: Pointer, turned_scale: Pointer, amax: Pointer,
        global_scale_inv: Pointer, rows: usize, cols: usize,
    }
}

arguments! {
    /// Contract cast_mx_groups.
    Groups = "cast_mx.cu" "cast_mx_groups" {
        x: Pointer, codes: Pointer, scale: Pointer, amax: Pointer, global_scale_inv: Pointer, groups: u64,
    }
}

/// Groups that a thread of cast_mx_groups takes.
const EACH: usize = 4;

/// Whether cast_mx_groups does it, and faster: packed codes of whole groups along rows.
pub(crate) fn by_groups(packed: bool, transpose: bool, cols: usize, group: usize) -> bool {
    packed && !transpose && cols.is_multiple_of(group)
}

/// The blocks of cast_mx_groups.
pub(crate) fn group_shape(groups: usize) -> LaunchShape {
    LaunchShape::new(groups.div_ceil(256 * EACH).max(1), 256)
}

/// The blocks of cast_mx.
pub(crate) fn shape(nvfp4: bool, rows: usize, cols: usize) -> LaunchShape {
    if nvfp4 { narrow_tiles(rows, cols) } else { tiles(rows, cols) }
}

/// RULE of a recipe that the kernel has.
fn rule(spec: &RecipeSpec) -> Option<Rule> {
    match spec.device? {
        DeviceRule::Scale { rule, .. } if rule >= Rule::TeMxfp8 => Some(rule),
        _ => None,
    }
}

/// A recipe as the kernel knows it.
#[derive(Clone, Copy)]
struct MxCast<'a> {
    recipe: &'a Recipe,
    rule: Rule,
    granularity: Granularity,
    format: Type,
}

impl<'a> MxCast<'a> {
    fn of(out: &'a OutSpec) -> Result<Self> {
        let found = match out {
            OutSpec::Recipe(r) => rule(r.spec()?).map(|rule| (r, rule)),
            _ => None,
        };
        let names = || RECIPES.iter().filter(|s| rule(s).is_some()).map(|s| s.name).collect::<Vec<_>>().join(", ");
        let (recipe, rule) = found.ok_or_else(|| Error::unsupported(SPEC.name, format!("it has the recipes {}", names())))?;
        let formats = [Format::E4m3, Format::E5m2, Format::E2m1, Format::E2m3, Format::E3m2];
        let format = Type::one_of(&formats, recipe.format, SPEC.name, || format!("it has no {}", recipe.format))?;
        Ok(MxCast { recipe, rule, granularity: recipe.granularity()?, format })
    }
    fn nvfp4(&self) -> bool {
        self.rule >= Rule::TeNvfp4
    }
    fn square(&self) -> bool {
        matches!(self.granularity, Granularity::Block { .. })
    }
    /// Elements that share a scale along a row (and, in square tiles, along a column).
    fn group(&self) -> usize {
        self.granularity.tile(1, 1).1
    }
    /// Bytes of a row of codes.
    fn pitch(&self, cols: usize) -> usize {
        if self.recipe.format == Format::E2m1 { cols.div_ceil(2) } else { cols }
    }
    /// The values of scale bytes.
    fn scale_inv(&self, bytes: &[u8]) -> Vec<f32> {
        bytes.iter().map(|b| self.scale_format().decode(u32::from(*b)) as f32).collect()
    }
    fn scale_format(&self) -> Format {
        if self.nvfp4() { Format::E4m3 } else { Format::E8m0 }
    }
}

/// Codes of e2m1, one a byte, of rows of `cols`, from rows of ⌈cols/2⌉ bytes. Errors: the half of a byte beyond the last column is
/// not zero.
fn unpack(bytes: &[u8], cols: usize) -> Result<Vec<u8>> {
    let mut codes = Vec::with_capacity(bytes.len() * 2);
    for row in bytes.chunks(cols.div_ceil(2)) {
        codes.extend(unpack4(row, NibbleOrder::LowFirst));
        if cols % 2 == 1 && codes.pop() != Some(0) {
            return Err(Error::value("the last half byte of a row of e2m1", "not zero", "zero: it holds no element"));
        }
    }
    Ok(codes)
}

/// Bytes of one launch: codes, scale, transposed codes and their scale (empty where there are none).
#[derive(PartialEq)]
struct Written([Vec<u8>; 4]);

/// Launches with outputs that hold `fill` before.
fn launch(
    gpu: &Gpu,
    x: &Tensor,
    elements: &Buffer,
    plan: &MxCast,
    transpose: bool,
    side: &Fp8Side,
    fill: u8,
) -> Result<Written> {
    let (rows, cols, group) = (x.rows(), x.cols(), plan.group());
    let (down, across) = (rows.div_ceil(group), cols.div_ceil(group));
    let own = transpose && !plan.square();
    let sizes = [
        rows * plan.pitch(cols),
        if plan.square() { down * across } else { rows * across },
        if transpose { cols * plan.pitch(rows) } else { 0 },
        if own { cols * down } else { 0 },
    ];
    let buffers = sizes.iter().map(|bytes| gpu.filled(*bytes, fill)).collect::<Result<Vec<_>>>()?;
    let at = |i: usize| Pointer::from(Some(&buffers[i]).filter(|_| sizes[i] > 0));
    let defines = [
        define("IN", dtype(x)),
        define("FORMAT", plan.format),
        define("RULE", plan.rule),
        define("SQUARE", plan.square()),
        whole(rows, cols),
    ];
    let [_, amax, global_scale_inv] = side.pointers();
    let packed = plan.recipe.format == Format::E2m1;
    if by_groups(packed, transpose || plan.square(), cols, group) {
        let groups = rows * across;
        let (x, groups_written) = (elements.into(), groups as u64);
        let arguments = Groups { x, codes: at(0), scale: at(1), amax, global_scale_inv, groups: groups_written };
        // SAFETY: buffers have the sizes of whole groups.
        unsafe { gpu.launch(arguments.launch(&defines, group_shape(groups)))? };
    } else {
        let arguments = Arguments {
            x: elements.into(),
            codes: at(0),
            turned: at(2),
            scale: at(1),
            turned_scale: at(3),
            amax,
            global_scale_inv,
            rows,
            cols,
        };
        // SAFETY: buffers have the sizes of rows, cols and the groups.
        unsafe { gpu.launch(arguments.launch(&defines, shape(plan.nvfp4(), rows, cols)))? };
    }
    let names = ["codes", "scale", "transposed codes", "scale of the transposed copy"];
    let bytes = names.iter().zip(&buffers).map(|(name, b)| gpu.download_any(name, b)).collect::<Result<Vec<_>>>()?;
    Ok(Written(bytes.try_into().map_err(|_| Error::shape("outputs of cast_mx", "another number", "4"))?))
}

impl Kernel for CastMx {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)?;
        let plan = MxCast::of(&job.out)?;
        let x = elementwise::high(job.operands.a(), SPEC.name)?;
        if x.rows() == 0 || x.cols() == 0 {
            return Err(Error::unsupported(SPEC.name, format!("an empty tensor has no amax: {}×{}", x.rows(), x.cols())));
        }
        if !plan.recipe.spec()?.takes_f16 && x.dtype() == Format::F16 {
            return Err(Error::unsupported(SPEC.name, format!("{} takes bf16 and f32 only", plan.recipe)));
        }
        Ok(())
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        let (plan, transpose) = (MxCast::of(&job.out)?, job.op == Op::CastTranspose);
        let x = elementwise::high(job.operands.a(), SPEC.name)?;
        let (rows, cols) = (x.rows(), x.cols());
        let (elements, side) = (upload(gpu, x)?, Fp8Side::new(gpu, &job.out, 0)?);
        if plan.nvfp4() {
            let rule = ScaleRule { rule: if plan.rule == Rule::TorchaoNvfp4 { Rule::Torchao } else { Rule::Te }, pow2: false };
            tensor_amax(gpu, &defines(SPEC.name, x, Format::E4m3, rule)?, &elements, &side, rows * cols)?;
        }
        // Every bit pattern of a packed byte or of an e8m0 scale is a result: what differs between two fillings was never written.
        let written = launch(gpu, x, &elements, &plan, transpose, &side, 0xff)?;
        if written != launch(gpu, x, &elements, &plan, transpose, &side, 0)? {
            return Err(Error::value("outputs of cast_mx", "bytes that keep what was there before", "every byte written"));
        }
        let level = if plan.nvfp4() { Some(Level::whole(side.global(gpu)?)) } else { None };
        let q = |rows, cols, codes: &[u8], scale_inv| {
            let codes = if plan.recipe.format == Format::E2m1 { unpack(codes, cols)? } else { codes.to_vec() };
            let (format, granularity, scale_format) = (plan.recipe.format, plan.granularity, plan.scale_format());
            let zero = Zero::None;
            let parts =
                QTensorParts { format, rows, cols, codes, granularity, scale_format, scale_inv, zero, level: level.clone() };
            QTensor::new(parts)
        };
        let Written([codes, scale, turned, turned_scale]) = &written;
        let d = q(rows, cols, codes, plan.scale_inv(scale))?;
        let transpose = match (transpose, plan.square()) {
            (false, _) => None,
            (true, true) => Some(q(cols, rows, turned, d.transposed()?.scale_inv().to_vec())?),
            (true, false) => Some(q(cols, rows, turned, plan.scale_inv(turned_scale))?),
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_are_unpacked_row_by_row() {
        assert_eq!(unpack(&[0x21, 0x43], 4).unwrap(), [1, 2, 3, 4]);
        assert_eq!(unpack(&[0x21, 0x03, 0x65, 0x07], 3).unwrap(), [1, 2, 3, 5, 6, 7]);
        assert!(unpack(&[0x21, 0x43], 3).is_err());
    }
}
