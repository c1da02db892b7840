//! Integer quantizers and dequantize: `kernels/int4_quant.cu` (contract there). 4-bit codes are packed and unpacked on the device.

use super::contract::{Contract, Pointer, arguments};
use super::elements::upload;
use super::launch::{Buffer, Gpu, LaunchShape, gpu};
use super::options::{Mapping, TokenRule, Type, ZeroPoint, define};
use super::output::{elements, tensor, type_option};
use crate::job::{Data, Job, Operand, OutSpec, Output, Part};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::elementwise::{self, high};
use crate::op::Op;
use crate::quant::QTensorParts;
use crate::recipe::{DeviceRule, Recipe, RecipeSpec};
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};

pub struct Int4Quant;

static SPEC: KernelSpec = KernelSpec {
    name: "cuda/int4_quant",
    backend: Backend::Cuda,
    ops: &[Op::Cast, Op::Dequantize],
    help: "int8 by token, int4, uint4 and int8 by group, packed; dequantize of integers and FP8",
    source: "kernels/int4_quant.cu",
};

const THREADS: usize = 256;

arguments! {
    /// Contract int8_token.
    Token8 = "int4_quant.cu" "int8_token" { x: Pointer, codes: Pointer, scale: Pointer, zero: Pointer, rows: usize, k: usize }
}

arguments! {
    /// Contract affine_group.
    Groups = "int4_quant.cu" "affine_group" {
        x: Pointer, codes: Pointer, scale: Pointer, zero: Pointer, rows: usize, k: usize, group: usize,
    }
}

arguments! {
    /// Contract pack4.
    Repack = "int4_quant.cu" "pack4" { codes: Pointer, packed: Pointer, n: u64 }
}

arguments! {
    /// Contract unpack4.
    Unpack = "int4_quant.cu" "unpack4" { packed: Pointer, codes: Pointer, n: u64 }
}

arguments! {
    /// Contract dequantize.
    Dequantize = "int4_quant.cu" "dequantize" {
        codes: Pointer, scale: Pointer, zero: Pointer, out: Pointer, rows: usize, k: usize, group_shift: usize, groups: usize,
    }
}

/// A block for every 256 of `threads`.
fn threads(threads: usize) -> LaunchShape {
    LaunchShape::new(threads.div_ceil(THREADS), THREADS)
}

/// The options of int8_token.
pub(crate) fn token_options(input: Type, rule: TokenRule) -> [String; 2] {
    [define("IN", input), define("TOKEN", rule)]
}
/// The blocks of int8_token.
pub(crate) fn token_shape(rows: usize) -> LaunchShape {
    LaunchShape::new(rows, THREADS)
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::unsupported(SPEC.name, why))
}

/// How `int8_token` quantizes one row.
pub(super) struct Token {
    rule: TokenRule,
    /// Type of the scale.
    pub scale: Format,
}

impl Token {
    /// Errors: a recipe that is not int8 by token.
    pub fn of(recipe: &Recipe, dtype: Format) -> Result<Self> {
        let spec = recipe.spec()?;
        let (Some(DeviceRule::Token(rule)), scale) = (spec.device, spec.scale_format(dtype)) else {
            return refuse(format!("{} is not int8 by token", recipe.name));
        };
        // A scale in the input's own type, where it is kept so.
        let rule = if rule == TokenRule::OwnType && scale != dtype { TokenRule::InF32 } else { rule };
        Ok(Self { rule, scale })
    }
}

/// How `affine_group` quantizes.
fn mapping(recipe: &Recipe) -> Option<Mapping> {
    if let Ok(RecipeSpec { device: Some(DeviceRule::Affine(mapping)), .. }) = recipe.spec() { Some(*mapping) } else { None }
}

fn format_option(f: Format) -> Result<Type> {
    let known = &[Format::Int4, Format::Uint4, Format::Int8, Format::E4m3, Format::E5m2];
    Type::one_of(known, f, SPEC.name, || {
        format!("codes in {f}: it reads and writes int4, uint4, int8, and reads e4m3 and e5m2")
    })
}

fn eight(what: &str, n: usize) -> Result<()> {
    match n % 8 {
        0 => Ok(()),
        _ => refuse(format!("{what} of {n} is not a multiple of 8: a thread has 8 numbers of one group, read by 16 bytes")),
    }
}

/// Outputs of which every byte is a result (codes, zero points): two buffers that differ before the kernel is launched into each.
fn twins(gpu: &Gpu, bytes: usize) -> Result<[Buffer; 2]> {
    Ok([gpu.filled(bytes, 0xff)?, gpu.filled(bytes, 0)?])
}

/// What the kernel wrote to both. Errors: a byte that differs; a write outside.
fn download_twins(gpu: &Gpu, what: &str, twins: &[Buffer; 2]) -> Result<Vec<u8>> {
    let (first, second) = (gpu.download_any(what, &twins[0])?, gpu.download_any(what, &twins[1])?);
    match first.iter().zip(&second).position(|(a, b)| a != b) {
        Some(i) => {
            let found = format!("byte {i} was never written, or differs between two launches");
            Err(Error::value(what, found, "every byte written, the same in every launch"))
        }
        None => Ok(first),
    }
}

/// The rows of a tensor quantized by token, left on the device.
pub(super) struct Tokens {
    pub codes: Buffer,
    pub scale: Buffer,
    pub scale_format: Format,
    /// i32, int8_token_asym only.
    pub zero: Option<Buffer>,
}

/// Quantizes the rows of `from`, which holds `x`, into buffers of rows × K codes, rows scales, and for int8_token_asym rows zero points.
fn tokens_into(
    gpu: &Gpu,
    token: &Token,
    x: &Tensor,
    from: &Buffer,
    codes: &Buffer,
    scale: &Buffer,
    zero: Option<&Buffer>,
) -> Result<()> {
    let defines = token_options(type_option(SPEC.name, "input", x.dtype())?, token.rule);
    let (rows, k) = (x.rows(), x.cols());
    let arguments = Token8 { x: from.into(), codes: codes.into(), scale: scale.into(), zero: zero.into(), rows, k };
    // SAFETY: K is a multiple of 8 (check), buffers of rows × K and rows.
    unsafe { gpu.launch(arguments.launch(&defines, token_shape(rows))) }
}

impl Token {
    fn scale_bytes(&self, rows: usize) -> usize {
        rows * self.scale.bits() as usize / 8
    }
    fn has_zero(&self) -> bool {
        self.rule == TokenRule::Shifted
    }
}

/// Quantizes `x` by an int8 token recipe. Errors: another recipe; K that is no multiple of 8.
pub(super) fn quantize_tokens(gpu: &Gpu, recipe: &Recipe, x: &Tensor) -> Result<Tokens> {
    eight("K", x.cols())?;
    let token = Token::of(recipe, x.dtype())?;
    let (from, codes) = (upload(gpu, x)?, gpu.output(x.rows() * x.cols())?);
    let scale = gpu.output(token.scale_bytes(x.rows()))?;
    let zero = if token.has_zero() { Some(gpu.output(x.rows() * 4)?) } else { None };
    tokens_into(gpu, &token, x, &from, &codes, &scale, zero.as_ref())?;
    Ok(Tokens { codes, scale, scale_format: token.scale, zero })
}

fn int32s(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn token_cast(gpu: &Gpu, recipe: &Recipe, x: &Tensor) -> Result<QTensor> {
    let (rows, cols, token) = (x.rows(), x.cols(), Token::of(recipe, x.dtype())?);
    let (from, codes) = (upload(gpu, x)?, twins(gpu, rows * cols)?);
    let scale = gpu.output(token.scale_bytes(rows))?;
    let zeros = if token.has_zero() { Some(twins(gpu, rows * 4)?) } else { None };
    for twin in 0..2 {
        tokens_into(gpu, &token, x, &from, &codes[twin], &scale, zeros.as_ref().map(|z| &z[twin]))?;
    }
    let scale = gpu.download("scale", &scale, token.scale.bits() as usize / 8)?;
    let zero = match zeros {
        Some(zeros) => Zero::Integer(int32s(&download_twins(gpu, "zero points", &zeros)?)),
        None => Zero::None,
    };
    QTensor::new(QTensorParts {
        format: recipe.format,
        rows,
        cols,
        codes: download_twins(gpu, "codes", &codes)?,
        granularity: recipe.granularity()?,
        scale_format: token.scale,
        scale_inv: tensor(token.scale, 1, rows, &scale)?.data().to_vec(),
        zero,
        level: None,
    })
}

/// Threads of a group, and how many times 8 numbers each keeps (LANES, HELD of the contract).
fn lanes(group: usize) -> (usize, usize) {
    let lanes = (group / 32).next_power_of_two().min(32);
    (lanes, (group / 8).div_ceil(lanes).next_multiple_of(2).min(8))
}

fn group_cast(gpu: &Gpu, recipe: &Recipe, mapping: Mapping, x: &Tensor) -> Result<QTensor> {
    let (rows, cols) = (x.rows(), x.cols());
    let (group, four) = (recipe.group.unwrap_or(cols).min(cols), recipe.format.bits() == 4);
    let groups = cols.div_ceil(group);
    let spec = recipe.spec()?;
    let scale_format = spec.scale_format(x.dtype());
    let (lanes, held) = lanes(group);
    let defines = [
        define("IN", type_option(SPEC.name, "input", x.dtype())?),
        define("FORMAT", format_option(recipe.format)?),
        define("MAPPING", mapping),
        define("LANES", lanes),
        define("HELD", held),
    ];
    let from = upload(gpu, x)?;
    let scale = gpu.output(rows * groups * scale_format.bits() as usize / 8)?;
    let codes = twins(gpu, if four { rows * cols / 2 } else { rows * cols })?;
    let zeros = match (mapping, recipe.format) {
        (Mapping::Tinygemm, _) => Some(twins(gpu, rows * groups * 2)?),
        (Mapping::Asymmetric, _) | (_, Format::Uint4) => Some(twins(gpu, rows * groups)?),
        _ => None,
    };
    for twin in 0..2 {
        let arguments = Groups {
            x: (&from).into(),
            codes: (&codes[twin]).into(),
            scale: (&scale).into(),
            zero: zeros.as_ref().map(|z| &z[twin]).into(),
            rows,
            k: cols,
            group,
        };
        // SAFETY: K and the group are multiples of 8 (check), buffers of rows × K and rows × groups.
        unsafe { gpu.launch(arguments.launch(&defines, threads(rows * groups * lanes)))? };
    }
    let scale = gpu.download("scale", &scale, scale_format.bits() as usize / 8)?;
    let zero = match zeros.map(|z| download_twins(gpu, "zero points", &z)).transpose()? {
        Some(bytes) if mapping == Mapping::Tinygemm => {
            Zero::Additive { zero: tensor(Format::Bf16, 1, rows * groups, &bytes)?.data().to_vec(), mid: spec.mid }
        }
        Some(bytes) => Zero::Integer(bytes.iter().map(|b| i32::from(*b as i8)).collect()),
        None => Zero::None,
    };
    let codes = if four {
        let packed = gpu.upload(&download_twins(gpu, "packed codes", &codes)?)?;
        let unpacked = gpu.output(rows * cols)?;
        let n = rows * cols / 2;
        let arguments = Unpack { packed: (&packed).into(), codes: (&unpacked).into(), n: n as u64 };
        // SAFETY: one buffer has n bytes, the other twice as many.
        unsafe { gpu.launch(arguments.launch(&[], threads(n)))? };
        gpu.download("codes", &unpacked, 1)?
    } else {
        download_twins(gpu, "codes", &codes)?
    };
    QTensor::new(QTensorParts {
        format: recipe.format,
        rows,
        cols,
        codes,
        granularity: recipe.granularity()?,
        scale_format,
        scale_inv: tensor(scale_format, 1, rows * groups, &scale)?.data().to_vec(),
        zero,
        level: None,
    })
}

/// The group of a tensor to be dequantized: its size's logarithm (30: one a row).
fn group_shift(q: &QTensor) -> Result<usize> {
    match q.granularity() {
        Granularity::Tensor | Granularity::Row => Ok(30),
        Granularity::Group(g) if g >= q.cols() => Ok(30),
        Granularity::Group(g) | Granularity::Block { rows: 1, cols: g } if g.is_power_of_two() && g >= 8 => {
            Ok(g.trailing_zeros() as usize)
        }
        other => refuse(format!("scales by {other}: it takes rows and groups of a power of two from 8")),
    }
}

/// Zero points of `dequantize`: ZERO, MID, and the bytes.
fn zero_points(q: &QTensor, index: &[usize]) -> Result<(ZeroPoint, i32, Vec<u8>)> {
    match q.zero() {
        Zero::None => Ok((ZeroPoint::None, 0, Vec::new())),
        Zero::Integer(z) if z.iter().all(|z| (-128..128).contains(z)) => {
            Ok((ZeroPoint::Integer8, 0, index.iter().map(|i| z[*i] as i8 as u8).collect()))
        }
        Zero::Integer(z) => Ok((ZeroPoint::Integer32, 0, index.iter().flat_map(|i| z[*i].to_le_bytes()).collect())),
        Zero::Additive { zero, mid } => {
            let zero: Vec<f32> = index.iter().map(|i| zero[*i]).collect();
            Ok((ZeroPoint::Additive, *mid, elements(SPEC.name, "additive zero points", q.scale_format(), &zero)?))
        }
    }
}

fn dequantize(gpu: &Gpu, q: &QTensor, out: Format) -> Result<Tensor> {
    let (rows, cols, shift) = (q.rows(), q.cols(), group_shift(q)?);
    let group = if shift == 30 { cols } else { 1 << shift };
    let groups = cols.div_ceil(group);
    // One scale a row and group, also where the tensor has one for all.
    let index: Vec<usize> = (0..rows).flat_map(|i| (0..groups).map(move |g| q.scale_index(i, g * group))).collect();
    let scale: Vec<f32> = index.iter().map(|i| q.scale_inv()[*i]).collect();
    let scale = gpu.upload(&elements(SPEC.name, "scales", q.scale_format(), &scale)?)?;
    let (zero, mid, bytes) = zero_points(q, &index)?;
    let bytes = gpu.upload(&bytes)?;
    let codes = gpu.upload(q.codes())?;
    let codes = if q.format().bits() == 4 {
        let packed = gpu.upload(&vec![0; rows * cols / 2])?;
        let n = rows * cols / 2;
        let arguments = Repack { codes: (&codes).into(), packed: (&packed).into(), n: n as u64 };
        // SAFETY: one buffer has n bytes, the other twice as many.
        unsafe { gpu.launch(arguments.launch(&[], threads(n)))? };
        packed
    } else {
        codes
    };
    let defines = [
        define("FORMAT", format_option(q.format())?),
        define("SCALE", type_option(SPEC.name, "scales", q.scale_format())?),
        define("OUT", type_option(SPEC.name, "output", out)?),
        define("ZERO", zero),
        define("MID", mid),
    ];
    let size = out.bits() as usize / 8;
    let d = gpu.output(rows * cols * size)?;
    let arguments = Dequantize {
        codes: (&codes).into(),
        scale: (&scale).into(),
        zero: (&bytes).into(),
        out: (&d).into(),
        rows,
        k: cols,
        group_shift: shift,
        groups,
    };
    // SAFETY: K is a multiple of 8 (check), scales and zero points are [rows, groups].
    unsafe { gpu.launch(arguments.launch(&defines, threads(rows * cols / 8)))? };
    tensor(out, rows, cols, &gpu.download("output d", &d, size)?)
}

impl Kernel for Int4Quant {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        if !SPEC.ops.contains(&job.op) {
            return refuse(format!("it has no {}", job.op.name()));
        }
        elementwise::check(job)?;
        match (job.operands.a(), &job.out) {
            (Operand::Quantized(q), OutSpec::High(_)) => {
                format_option(q.format())?;
                group_shift(q)?;
                type_option(SPEC.name, "scales", q.scale_format())?;
                eight("K", q.cols())?;
                if q.level().is_some() {
                    return refuse("it has one level of scales");
                }
                match q.rows() * q.cols() {
                    0 => refuse("an empty operand starts no block"),
                    _ => Ok(()),
                }
            }
            (Operand::High(x), OutSpec::Recipe(recipe)) => {
                let group = recipe.group.unwrap_or(x.cols());
                if mapping(recipe).is_none() {
                    Token::of(recipe, x.dtype())?;
                }
                eight("K", x.cols())?;
                eight("group", group.min(x.cols()))?;
                let (groups, lanes) = (x.cols().div_ceil(group.min(x.cols()).max(1)), lanes(group.min(x.cols())).0);
                if x.rows().saturating_mul(groups).saturating_mul(lanes) >= 1 << 32 {
                    return refuse(format!("{} rows of {groups} groups: threads are counted in 32 bits", x.rows()));
                }
                match x.rows() * x.cols() {
                    0 => refuse("an empty operand starts no block"),
                    _ => Ok(()),
                }
            }
            _ => refuse("it quantizes by int8_token and affine recipes, and dequantizes"),
        }
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let gpu = gpu()?;
        let d = match (job.operands.a(), &job.out) {
            (Operand::Quantized(q), OutSpec::High(out)) => Data::High(dequantize(gpu, q, *out)?),
            (operand, OutSpec::Recipe(recipe)) => {
                let x = high(operand, SPEC.name)?;
                Data::Quantized(match mapping(recipe) {
                    Some(mapping) => group_cast(gpu, recipe, mapping, x)?,
                    None => token_cast(gpu, recipe, x)?,
                })
            }
            _ => return refuse("it quantizes by int8_token and affine recipes, and dequantizes"),
        };
        Ok(Output::of(Part::plain(d)))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        self.check(job)?;
        elementwise::predict(job).map(Some)
    }
}
