//! Weights that are codes, multiplied by values of 16 bits: what a kernel may have made of them before it multiplies.
//!
//! A tensor core takes 16-bit factors, so a kernel that dequantizes rounds each weight, and that rounding has one right result. With s the
//! scale_inv times the global one, z the additive zero point, T the type of the scales where that has 16 bits, and "to" the type of the product:
//!
//! ```text
//! not rounded            (code − mid)·s + z
//! rounded once           RN_to( (code − mid)·s + z )
//! … after the product    RN_to( RN_to((code − mid)·s) + z )               additive zeros
//! … in T                 RN_to( RN_T( … ) ), the same two                 T of 16 bits, not that of the product
//! ```
//!
//! Each is a reference of its own. All elements of a result have to follow one. f32 intermediates (a scale times the global scale, f32 scales, the
//! sum with the zero point) leave a weight beside a tie undecided: it may be either neighbour, which adds `Σ_k |a_ik|·|δŵ_jk|` over those weights only.
//!
//! A weight beyond the 16-bit type (65,504 in f16) saturates or is Inf, by the kernel: its column is not judged.

use super::product::Product;
use crate::compare::probable::U32;
use crate::format::{Overflow::Native, Rounding::NearestEven};
use crate::job::Operand;
use crate::op::{self, Args64, Defined};
use crate::{Format, QTensor, Result, Zero};
use ndarray::Array2;

/// Weights of one way of rounding.
pub struct Rounded {
    /// `weights rounded to bf16`, …
    pub name: String,
    pub format: Format,
    pub values: Array2<f64>,
    /// How far a weight beside a tie may be from its value, where one is.
    undecided: Option<Array2<f64>>,
    /// Columns of the result with a weight that overflows.
    pub unknown: Option<Vec<bool>>,
}

/// The weights of a product of values and codes.
fn weights<'a>(p: &Product<'a>) -> Option<&'a QTensor> {
    let float = |q: &&QTensor| q.format().is_float();
    match (&p.codes_a, p.codes_b.as_deref()?) {
        (Some(a), [w]) if float(&a[0]) == float(w) => None,
        (_, [w]) => Some(w),
        _ => None,
    }
}

/// The 16-bit types a product may round its weights to: that of the values, either for FP8 activations, none for f32.
pub fn types(p: &Product) -> &'static [Format] {
    match p.job.operands.a() {
        a @ (Operand::High(_) | Operand::Weighted(_)) => match super::product::dtype(a) {
            Format::F16 => &[Format::F16],
            Format::Bf16 => &[Format::Bf16],
            _ => &[],
        },
        _ => &[Format::F16, Format::Bf16],
    }
}

/// One way of rounding.
#[derive(Clone, Copy, PartialEq)]
struct Way {
    to: Format,
    /// Type of the arithmetic that makes the weight.
    through: Option<Format>,
    /// Rounded between product and sum.
    twice: bool,
}

impl Way {
    fn name(self) -> String {
        let through = self.through.map_or(String::new(), |t| format!("computed in {t}, "));
        let twice = if self.twice { "product and sum with the zero point each " } else { "" };
        format!("weights {through}{twice}rounded to {}", self.to)
    }
    /// The weight of a product (code − mid)·s and a zero point, `off` the sum of both before it is rounded: monotone in the product and in `off`.
    fn weight(self, product: f64, zero: f64, off: f64) -> f64 {
        let round = |f: Format, x: f64| f.decode(f.encode(x, NearestEven, Native));
        let made = round(self.through.unwrap_or(self.to), self.first(product) + zero + off);
        if self.through.is_some() { round(self.to, made) } else { made }
    }
    /// The product as the zero point meets it.
    fn first(self, product: f64) -> f64 {
        let f = self.through.unwrap_or(self.to);
        if self.twice { f.decode(f.encode(product, NearestEven, Native)) } else { product }
    }
}

/// Every rounding that makes other weights than all before it, none rounded at all among them.
pub fn rounded(p: &Product) -> Result<Vec<Rounded>> {
    let Some(w) = weights(p) else { return Ok(Vec::new()) };
    let additive = matches!(w.zero(), Zero::Additive { .. });
    let mut all: Vec<Rounded> = Vec::new();
    let plain = w.dequantize_fast();
    for &to in types(p) {
        let scales = w.scale_format();
        let through = (matches!(scales, Format::F16 | Format::Bf16) && scales != to).then_some(scales);
        let ways = [(through, true), (through, false), (None, true), (None, false)];
        for (through, twice) in ways.into_iter().filter(|w| additive || !w.1) {
            let made = make(w, Way { to, through, twice });
            if made.values != plain && all.iter().all(|other| other.values != made.values) {
                all.push(made);
            }
        }
    }
    Ok(all)
}

fn make(w: &QTensor, way: Way) -> Rounded {
    let (mut undecided, mut some) = (Array2::zeros((w.rows(), w.cols())), false);
    let mut unknown = vec![false; w.rows()];
    let values = Array2::from_shape_fn((w.rows(), w.cols()), |(j, k)| {
        let zero = match w.zero() {
            Zero::Additive { .. } => w.affine(w.scale_index(j, k)).plus,
            _ => 0.0,
        };
        let weight = w.value(j, k);
        let product = weight - zero;
        let value = way.weight(product, zero, 0.0);
        // What f32 intermediates may move: nothing where they are exact.
        let inexact = |x: f64| f64::from(x as f32) != x;
        let of_product = match w.level() {
            Some(_) => 2.0 * U32 * product.abs(),
            None if inexact(product) => U32 * product.abs(),
            None => 0.0,
        };
        let of_sum = if zero != 0.0 && !way.twice && (of_product > 0.0 || inexact(weight)) { U32 * weight.abs() } else { 0.0 };
        let margin = (of_product + of_sum) * (1.0 + 4.0 * U32);
        // What is added to a rounded product is rounded to f32 before it is to 16 bits.
        let apart = |product: f64| {
            let sum = way.first(product) + zero;
            if way.twice && zero != 0.0 && inexact(sum) { U32 * sum.abs() } else { 0.0 }
        };
        let end = |side: f64| way.weight(product + side * margin, zero, side * apart(product + side * margin));
        let (low, high) = (end(-1.0), end(1.0));
        if !high.is_finite() || !low.is_finite() {
            unknown[j] |= weight.is_finite();
            return if weight.is_finite() { 0.0 } else { weight };
        }
        if low != high {
            (undecided[(j, k)], some) = ((high - value).max(value - low), true);
        }
        value
    });
    let unknown = unknown.contains(&true).then_some(unknown);
    Rounded { name: way.name(), format: way.to, values, undecided: some.then_some(undecided), unknown }
}

impl Rounded {
    /// The product of these weights, and what the undecided ones add to the error of each element.
    pub(super) fn product(&self, p: &Product) -> Result<(Defined, Option<Vec<f64>>)> {
        let a = p.job.operands.a().to_f64();
        let errors = match &self.undecided {
            Some(u) => Some(define(p, a.mapv(f64::abs), u.clone(), None)?.d.into_iter().collect()),
            None => None,
        };
        Ok((define(p, a, self.values.clone(), Some(|x| x))?, errors))
    }
}

/// The op on these factors, with the bias (and the weights that it meets) as `bias` reads it, or without.
pub(super) fn define(p: &Product, a: Array2<f64>, b: Array2<f64>, bias: Option<fn(f64) -> f64>) -> Result<Defined> {
    let (job, accelerator) = (p.job, p.ideal.accelerator);
    let (o, offs) = (&job.operands, job.operands.offs.clone());
    let read = |of: &[f32]| bias.map(|f| of.iter().map(|x| f(f64::from(*x))).collect::<Vec<f64>>());
    let row_weights = o.row_weights.as_deref().and_then(read);
    let bias = o.bias.as_ref().and_then(|t| read(t.data()));
    op::define(job.op, &job.params, &Args64 { a, b: Some(b), bias, row_weights, offs, accelerator, ..Args64::default() })
}

/// The largest zero point, in codes.
pub fn largest_zero(w: &QTensor) -> f64 {
    match w.zero() {
        Zero::Integer(z) => z.iter().map(|z| f64::from(z.abs())).fold(0.0, f64::max),
        Zero::Additive { mid, .. } => f64::from(mid.abs()),
        Zero::None => 0.0,
    }
}

/// Columns of the result with a weight beyond the 16-bit types it may be rounded to.
pub(super) fn overflows(p: &Product, w: &QTensor) -> Option<Vec<bool>> {
    let limit = types(p).iter().map(|f| f.max_finite()).fold(f64::INFINITY, f64::min);
    if limit == f64::INFINITY {
        return None;
    }
    let beyond: Vec<bool> =
        (0..w.rows()).map(|j| (0..w.cols()).any(|k| (limit..f64::INFINITY).contains(&w.value(j, k).abs()))).collect();
    beyond.contains(&true).then_some(beyond)
}

/// `|code·s| + |zero·s|` of an element: what is added where zero points are taken apart from the codes.
pub(super) fn size_apart(w: &QTensor, j: usize, k: usize) -> f64 {
    let crate::quant::Affine { unit, minus, plus } = w.affine(w.scale_index(j, k));
    let code = (w.format().decode(u32::from(w.codes()[j * w.cols() + k])) * unit).abs();
    code + (minus * unit).abs() + plus.abs()
}

/// `Σ|a|·(|code·s| + |zero·s|) + |bias|` where there are zero points.
pub(super) fn magnitude_apart(p: &Product, w: &QTensor) -> Result<Option<Array2<f64>>> {
    if matches!(w.zero(), Zero::None) {
        return Ok(None);
    }
    let a = p.job.operands.a().to_f64().mapv(f64::abs);
    let sizes = Array2::from_shape_fn((w.rows(), w.cols()), |(j, k)| size_apart(w, j, k));
    Ok(Some(define(p, a, sizes, Some(f64::abs))?.d))
}
