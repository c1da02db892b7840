//! The products of a scenario: the kernel on the operands as they are read, on those that were meant, and both in f64.

use super::state::Buffer;
use super::{Product, ProductKind};
use crate::compare::OutFormat;
use crate::job::{Data, Job, Operand, Operands, OutSpec};
use crate::kernel::{self, Backend, Kernel};
use crate::model::{Accumulator, Inner};
use crate::op::{self, Args64, Defined, Op, Params};
use crate::quant::QTensorParts;
use crate::{Error, Format, Granularity, QTensor, Result};
use ndarray::Array2;

/// One operand, in the orientation of its buffer.
#[derive(Clone, Debug)]
pub struct ReadOperand {
    /// Name of the buffer.
    pub name: String,
    /// The bytes with the scale_inv that the kernel read.
    pub used: QTensor,
    /// The bytes and scale_inv that were meant.
    pub intended: QTensor,
    pub buffer: Buffer,
}

/// One product and what it is compared with.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub product: String,
    pub kind: ProductKind,
    pub op: Op,
    pub offs: Vec<usize>,
    pub sides: [ReadOperand; 2],
    /// What was launched, on the operands as they were read and as they were meant.
    pub job: Job,
    pub meant: Job,
    /// What the kernel returned, and what it returns for the operands that were meant.
    pub actual: Vec<f64>,
    pub healthy: Vec<f64>,
    /// On the unquantized values; on the operands that were meant.
    pub exact: Defined,
    pub ideal: Defined,
    pub out: OutFormat,
    /// An FP8 result, with the amax that its kernel saw.
    pub quantized: Option<QTensor>,
    pub amax: f32,
}

impl Outcome {
    /// Whether operand `i` enters the product as the transpose of its buffer.
    pub fn is_turned(&self, i: usize) -> bool {
        turns(self.kind, i, &self.sides[i].buffer)
    }

    /// The product in f64 of operands given in the orientation of their buffers.
    pub fn define(&self, values: [Array2<f64>; 2]) -> Result<Defined> {
        let [a, b] = values;
        let turn =
            |i: usize, x: Array2<f64>| if self.is_turned(i) { x.reversed_axes().as_standard_layout().to_owned() } else { x };
        define(self.op, &self.offs, turn(0, a), turn(1, b))
    }

    /// Whether the kernel returned the bits that it returns for what was meant, NaNs as a class.
    pub fn is_healthy(&self) -> bool {
        let same = |(a, h): (&f64, &f64)| a.to_bits() == h.to_bits() || (a.is_nan() && h.is_nan());
        self.actual.iter().zip(&self.healthy).all(same)
    }
}

fn define(op: Op, offs: &[usize], a: Array2<f64>, b: Array2<f64>) -> Result<Defined> {
    let offs = (op != Op::Gemm).then(|| offs.to_vec());
    op::define(op, &Params::default(), &Args64 { a, b: Some(b), offs, ..Args64::default() })
}

fn turns(kind: ProductKind, i: usize, buffer: &Buffer) -> bool {
    let needs = match kind {
        ProductKind::Forward => false,
        ProductKind::GradInput => i == 1,
        ProductKind::GradWeight => true,
    };
    needs && !buffer.turned
}

/// Runs a product. `out` is the format and scale of an FP8 result. Errors: operands that no kernel takes.
pub fn run(
    p: &Product,
    sides: [ReadOperand; 2],
    accumulator: Accumulator,
    out: Option<(Format, f32)>,
    backend: Backend,
    kernels: &[&'static dyn Kernel],
) -> Result<Outcome> {
    let op = match (p.kind, p.offs.is_empty()) {
        (_, true) => Op::Gemm,
        (ProductKind::Forward, _) => Op::GroupedGemm,
        (ProductKind::GradInput, _) => Op::GroupedGemmDgrad,
        (ProductKind::GradWeight, _) => Op::GroupedGemmWgrad,
    };
    let orient = |i: usize, q: &QTensor| if turns(p.kind, i, &sides[i].buffer) { q.transposed() } else { Ok(q.clone()) };
    let job = |pick: fn(&ReadOperand) -> &QTensor| -> Result<Job> {
        let operand = |i: usize| -> Result<Operand> {
            let q = orient(i, pick(&sides[i]))?;
            if op == Op::GroupedGemmWgrad { split(&q, &p.offs) } else { Ok(Operand::Quantized(q)) }
        };
        let (a, b) = (operand(0)?, operand(1)?);
        let integer = sides[0].used.format().is_integer();
        Ok(Job {
            op,
            params: Params::default(),
            operands: Operands { offs: op.is_grouped().then(|| p.offs.clone()), ..Operands::of(a, Some(b)) },
            out: match out {
                None => OutSpec::High(Format::F32),
                Some((format, scale)) => OutSpec::Scaled { format, scale: vec![Some(scale)] },
            },
            accumulator: Some(if integer { Accumulator::new(Inner::Int32) } else { accumulator }),
        })
    };
    let (used, meant) = (job(|s| &s.used)?, job(|s| &s.intended)?);
    let values = |job: &Job| -> Result<(Vec<f64>, Option<QTensor>, f32)> {
        let mut written = kernel::find(kernels, job, backend)?.run(job)?;
        let part = written.parts.pop().ok_or_else(|| Error::shape("output of the kernel", "no part", 1))?;
        Ok(match part.d {
            Data::High(t) => (t.data().iter().map(|x| f64::from(*x)).collect(), None, 0.0),
            Data::Quantized(q) => (q.dequantize().into_iter().collect(), Some(q), part.amax.unwrap_or(0.0)),
        })
    };
    let (actual, quantized, amax) = values(&used)?;
    let (healthy, ..) = values(&meant)?;
    let both = |pick: &dyn Fn(usize) -> Result<Array2<f64>>| define(op, &p.offs, pick(0)?, pick(1)?);
    let exact = both(&|i| {
        let x = &sides[i].buffer.x;
        Ok(if turns(p.kind, i, &sides[i].buffer) { x.transposed().to_f64() } else { x.to_f64() })
    })?;
    let ideal = both(&|i| Ok(orient(i, &sides[i].intended)?.dequantize_fast()))?;
    let out = match out {
        None => OutFormat::high(Format::F32),
        Some((format, scale)) => OutFormat::scaled(format, scale, 1.0 / scale),
    };
    Ok(Outcome {
        product: p.name.clone(),
        kind: p.kind,
        op,
        offs: p.offs.clone(),
        job: used,
        meant,
        sides,
        actual,
        healthy,
        exact,
        ideal,
        out,
        quantized,
        amax,
    })
}

/// The columns of each group by themselves; their scales are one a row and group (1 × columns of a group).
fn split(q: &QTensor, offs: &[usize]) -> Result<Operand> {
    let refuse = || {
        let found = format!("{} of {}×{} for groups that end at {offs:?}", q.granularity(), q.rows(), q.cols());
        Error::shape("operand of a grouped weight gradient", found, "tensor scales, or equal groups quantized with `groups`")
    };
    let (tile_rows, tile_cols) = q.granularity().tile(q.rows(), q.cols());
    let mut from = 0;
    let group = |to: &usize| -> Result<QTensor> {
        let (first, width) = (from, to - from);
        from = *to;
        if q.granularity() != Granularity::Tensor && (tile_rows != 1 || first % tile_cols != 0 || width != tile_cols) {
            return Err(refuse());
        }
        let codes = (0..q.rows()).flat_map(|i| &q.codes()[i * q.cols() + first..][..width]).copied().collect();
        let scale_inv = (0..q.rows()).map(|i| q.scale_inv()[q.scale_index(i, first)]).collect();
        let parts = q.clone().into_parts();
        QTensor::new(QTensorParts { cols: width, codes, granularity: Granularity::Row, scale_inv, ..parts })
    };
    offs.iter().map(group).collect::<Result<_>>().map(Operand::Groups)
}
