//! The boundary rule: which values an activation or a norm may have before its output is rounded, derived from the f32
//! operations of its formula.
//!
//! A device's `tanhf`, `expf` and `rsqrtf` are documented to a number of ulps, the compiler may contract a·b+c into one FMA,
//! and a row sum has an order of its own, so these kernels have no single right answer. Each has an interval: the formula of
//! [`mod@super::act`] or [`super::norm`] evaluated in [`Interval`] arithmetic. An output code is allowed iff rounding some value
//! of the interval gives it; nearest-even rounding is monotone, so the codes of the two ends bound it, and a code differs
//! from the ideal one only where the interval reaches over a rounding boundary.
//!
//! # Sums
//!
//! A sum of n terms t in which no addition chain is longer than d has |computed − Σt| ≤ γ_d·Σ|t|, γ_d = d·u/(1−d·u), u = 2⁻²⁴
//! (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd edition, §4.2). For a row x of n elements with rn in
//! \[1/n, RN32(1/n)\]:
//!
//! ```text
//! μ̂   ∈ (Σx ± γ_d·Σ|x|)·rn                                 Δ = the farthest μ̂ is from the mean μ
//! m̂2  ∈ [(1−γ_{d+3})·m2, (1+γ_{d+3})·(m2 + n·Δ²)] ± n·2⁻¹⁴⁹    m2 = Σ(x−μ)²; Σ(x−μ̂)² = m2 + n·(μ̂−μ)² since Σ(x−μ) = 0;
//!                                                           three roundings a term: x−μ̂ (twice in its square), the square
//! LayerNorm  r̂s ∈ rsqrt(m̂2·rn + ε),   v ∈ g·(r̂s·(x−μ̂)) + β
//! RMSNorm    r̂s ∈ rsqrt(m̂2·rn + μ̂² + ε) or rsqrt(Σx²·(1±γ_{d+1})·rn + ε), v ∈ g·(r̂s·x): by mean and variance, or direct
//! dbias      Σv ∈ Σ\[v\] ± γ_d·Σ|v|, rounded to the input's dtype
//! ```
//!
//! Where Σ|x| or a product may leave the range of f32, the interval is everything: nothing can be said there.

use super::act::{self, Real, act};
use super::elementwise::{DBIAS_BAND, activation, check, high, input_dtype};
use super::interval::{Interval, U};
use super::norm;
use crate::job::{Job, OutSpec};
use crate::op::elementwise::exact_sum;
use crate::op::{Act, Op};
use crate::recipe::Recipe;
use crate::{Format, Result, Tensor, Zero, parallel};

/// The longest chain of additions in a kernel's sums, and whose formulas they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depths {
    /// Over a row, in norms.
    pub row: usize,
    /// Over a column, in dbias.
    pub column: usize,
    /// The formulas may be written as others write them (`boundary::free`); else operation by operation as the origin's.
    pub free: bool,
}

impl Depths {
    /// Any order of summation: n − 1 additions of n terms, and one to a zero. Formulas as others write them.
    pub fn any_order(job: &Job) -> Self {
        Self { row: job.operands.a().cols(), column: job.operands.a().rows(), free: true }
    }
    /// The CPU kernels: [`norm::lane_sum`], and bands of [`DBIAS_BAND`] rows.
    pub fn cpu(job: &Job) -> Self {
        let rows = job.operands.a().rows();
        Self {
            row: norm::depth(job.operands.a().cols()),
            column: rows.min(DBIAS_BAND) + rows.div_ceil(DBIAS_BAND),
            free: false,
        }
    }
}

/// What a correct kernel may compute for a job.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// v of every element of each part, row-major, before the output's scaling and rounding. For a recipe output v is already
    /// rounded to the input's dtype.
    pub values: Vec<Vec<Interval>>,
    /// amax of each part.
    pub amax: Vec<Interval>,
    /// scale_inv of each part over its grid: the reciprocal of a given scale; what a recipe may choose for the values, `None`
    /// where that is not known (see [`recipe_scales`]); `None` for a high-precision output.
    pub scale_inv: Vec<Option<Vec<Interval>>>,
    pub dbias: Option<Vec<Interval>>,
    pub mean: Option<Vec<Interval>>,
    pub rsigma: Option<Vec<Interval>>,
}

/// γ_k = k·u/(1−k·u); infinite from k = 1/u on.
pub fn gamma(k: usize) -> f64 {
    let ku = k as f64 * U;
    if ku < 1.0 { ku / (1.0 - ku) } else { f64::INFINITY }
}

/// Whether a chain of d additions of terms with Σ|t| = `total` may leave the range of f32.
fn may_overflow(total: f64, d: usize) -> bool {
    let reach = total * (1.0 + gamma(d));
    reach.is_nan() || reach >= f64::from(f32::MAX)
}

/// The largest distance of the interval from `ideal`: the radius in which a value before rounding is allowed. Infinite where
/// NaN or anything is possible; 0 where the ideal is not finite (NaN has to be NaN, Inf has to be Inf).
pub fn radius(interval: Interval, ideal: f64) -> f64 {
    match (ideal.is_finite(), interval.nan || interval.is_empty()) {
        (false, _) => 0.0,
        (true, true) => f64::INFINITY,
        (true, false) => (interval.hi - ideal).max(ideal - interval.lo).max(0.0),
    }
}

fn literal(x: f64) -> Interval {
    Real::literal(x)
}
fn exactly(x: f32) -> Interval {
    Real::exact(x)
}

/// Mean and rsigma of a row.
#[derive(Clone, Copy)]
struct Stats {
    mean: Interval,
    rsigma: Interval,
}

/// The row statistics of a norm; see the module.
fn stats(op: Op, x: &[f32], eps: f32, depths: Depths) -> Stats {
    let d = depths.row;
    let sum_of = |f: &dyn Fn(f64) -> f64| exact_sum(x.iter().map(|x| f(f64::from(*x))));
    let total = sum_of(&f64::abs);
    if x.is_empty() {
        return Stats { mean: Interval::NAN, rsigma: Interval::NAN };
    }
    if x.iter().any(|x| x.is_nan()) || (op == Op::Layernorm && !total.is_finite()) {
        // A NaN reaches every sum; x − μ̂ with an infinite μ̂ is NaN or infinite, the sum of squares NaN, and so rsigma.
        let mean = Interval { nan: true, ..Interval::point(sum_of(&|x| x)) };
        return Stats { mean, rsigma: Interval::NAN };
    }
    if may_overflow(total, d) {
        return Stats { mean: Interval::ANY, rsigma: Interval::ANY };
    }
    let n = x.len() as f64;
    let rn = literal(1.0 / n);
    let sum = sum_of(&|x| x);
    let mean = Interval::new(sum - gamma(d) * total, sum + gamma(d) * total) * rn;
    let mu = sum / n;
    let delta = (mean.hi - mu).max(mu - mean.lo);
    let m2 = sum_of(&|x| (x - mu) * (x - mu));
    let underflow = n * f64::from(f32::from_bits(1));
    let g = gamma(d + 3);
    let two_pass = Interval::new(m2 * (1.0 - g) - underflow, (m2 + n * delta * delta) * (1.0 + g) + underflow);
    let m2 = if depths.free {
        let largest = x.iter().fold(0.0, |m, x| f64::from(x.abs()).max(m));
        two_pass.hull(free::welford(m2, x.len(), largest, underflow))
    } else {
        two_pass
    };
    if depths.free && m2.hi >= f64::from(f32::MAX) {
        // Infinite, or not, by the order of the sum.
        return Stats { mean, rsigma: Interval::ANY };
    }
    // A sum of squares that may reach the largest f32 may be infinite.
    let open = |i: Interval| if i.hi >= f64::from(f32::MAX) { Interval { hi: f64::INFINITY, ..i } } else { i };
    let variance = open(m2) * rn;
    let eps = exactly(eps);
    let square = match op {
        Op::Layernorm => variance + eps,
        _ => {
            let squares = sum_of(&|x| x * x);
            let g = gamma(d + 1);
            let direct = Interval::new(squares * (1.0 - g) - underflow, squares * (1.0 + g) + underflow);
            if depths.free && direct.hi >= f64::from(f32::MAX) {
                return Stats { mean, rsigma: Interval::ANY };
            }
            (variance + mean.square() + eps).hull(open(direct) * rn + eps)
        }
    };
    Stats { mean, rsigma: square.rsqrt() }
}

/// v of one part, and the row statistics of norms.
fn part(job: &Job, index: usize, depths: Depths) -> Result<(Vec<Interval>, Vec<Stats>)> {
    let a = high(&job.operands.tensors()[index], job.op.name())?;
    let b = job.operands.b().map(|b| high(b, job.op.name())).transpose()?;
    let f = job.params.act;
    let needs = !matches!(job.op, Op::Cast | Op::CastTranspose | Op::MultiCastTranspose | Op::CastTransposeDbias);
    if needs && !matches!(job.op, Op::Layernorm | Op::Rmsnorm) {
        activation(job)?;
    }
    let f = f.unwrap_or(Act::Relu);
    let (rows, cols) = (a.rows(), a.cols());
    let stats: Vec<Stats> = match job.op {
        Op::Layernorm | Op::Rmsnorm => parallel::collect(rows, |i| stats(job.op, a.row(i), job.params.eps, depths)),
        _ => Vec::new(),
    };
    let act_of: fn(Act, f32) -> Interval = if depths.free { free::act } else { act };
    let data = |t: &Option<Tensor>, j: usize| t.as_ref().map(|t| exactly(t.data()[j]));
    let weight = |j: usize| {
        let g = data(&job.operands.gamma, j).unwrap_or(Interval::point(1.0));
        norm::weight(g, job.params.zero_centered_gamma)
    };
    let out_cols = match job.op {
        Op::Gated => cols / 2,
        Op::DgatedCastTranspose => 2 * cols,
        _ => cols,
    };
    let mut v = vec![Interval::NAN; rows * out_cols];
    parallel::chunks(&mut v, out_cols, |i, v| {
        let (x, b) = (a.row(i), b.map_or(&[][..], |b| b.row(i)));
        for (j, v) in v.iter_mut().enumerate() {
            *v = match job.op {
                Op::Layernorm => {
                    let Stats { mean, rsigma } = stats[i];
                    let beta = data(&job.operands.beta, j);
                    let y = norm::layernorm_value(x[j], mean, rsigma, weight(j), beta);
                    let beta = beta.map_or(0.0, |b| b.magnitude().hi);
                    if depths.free { free::terms(y, weight(j), rsigma, x[j], mean, beta) } else { y }
                }
                Op::Rmsnorm => {
                    let y = norm::rmsnorm_value(x[j], stats[i].rsigma, weight(j));
                    if depths.free { free::rounded(y, 6) } else { y }
                }
                Op::Gated if depths.free => free::gated(f, x[j], x[out_cols + j]),
                op => act::value(op, f, act_of, x, b, j),
            };
        }
    });
    Ok((v, stats))
}

/// The largest magnitude of values in these intervals, NaN dropped, from 0.
fn amax(v: &[Interval]) -> Interval {
    let larger = |all: Interval, v: &Interval| {
        let m = v.magnitude();
        // One that may be NaN may be dropped.
        Interval::new(if m.nan { all.lo } else { all.lo.max(m.lo) }, all.hi.max(m.hi))
    };
    let of = |some: &[Interval]| some.iter().filter(|v| !v.is_empty()).fold(Interval::point(0.0), larger);
    let both = |a: Interval, b: Interval| Interval::new(a.lo.max(b.lo), a.hi.max(b.hi));
    parallel::bands(v, of, Interval::point(0.0), both)
}

/// Σ over rows of column j: the sum of the intervals and γ_d·Σ|v| around it.
fn column_sum(v: &[Interval], j: usize, cols: usize, d: usize) -> Interval {
    let column = || v.iter().skip(j).step_by(cols.max(1));
    if column().any(|v| v.is_empty()) {
        return Interval::NAN;
    }
    if column().any(|v| v.nan || (v.lo.is_infinite() != v.hi.is_infinite())) {
        return Interval::ANY;
    }
    if column().any(|v| v.lo.is_infinite()) {
        return Interval::point(column().map(|v| v.lo).filter(|v| v.is_infinite()).sum());
    }
    let total: f64 = exact_sum(column().map(|v| v.magnitude().hi));
    if may_overflow(total, d) {
        return Interval::ANY;
    }
    let (lo, hi) = (exact_sum(column().map(|v| v.lo)), exact_sum(column().map(|v| v.hi)));
    Interval::new(lo - gamma(d) * total, hi + gamma(d) * total)
}

/// What `recipe` may choose as scale_inv for values in these intervals, over its grid: the scales of the smallest and of the
/// largest magnitudes bound it, for every rule that is monotone in a tile's amax. `None` where NaN is possible, for recipes
/// with zero points (they follow minimum and maximum), and for two-level recipes whose global scale is not settled.
/// Errors: those of the recipe.
fn recipe_scales(recipe: &Recipe, dtype: Format, rows: usize, v: &[Interval]) -> Result<Scales> {
    if v.is_empty() || parallel::first(v, |v| v.nan != v.is_empty()).is_some() {
        return Ok(None);
    }
    let quantized = |end: &(dyn Fn(Interval) -> f64 + Sync)| {
        let data = parallel::map(v, |v| if v.is_empty() { f32::NAN } else { end(v.magnitude()) as f32 });
        recipe.quantize(&Tensor::rounded(dtype, rows, v.len() / rows, data)?)
    };
    let (small, large) = (quantized(&|m| m.lo)?.q, quantized(&|m| m.hi)?.q);
    if *small.zero() != Zero::None || small.level() != large.level() {
        return Ok(None);
    }
    let both = small.scale_inv().iter().zip(large.scale_inv());
    Ok(Some(both.map(|(a, b)| exactly(*a).hull(exactly(*b))).collect()))
}

/// A kernel that does all in one pass quantizes f32 values; one in two passes rounds them to the input's dtype first, as the recipe's origin
/// does. Both are right: `v`, rounded, and its scales grow by the values that are not. What that costs is half a spacing of a 16-bit format.
/// Recipes that know no f32 keep what they have.
fn either(recipe: &Recipe, rows: usize, (v, scales): (&mut [Interval], Scales), own: &[Interval]) -> Result<Scales> {
    let others = match recipe_scales(recipe, Format::F32, rows, own) {
        Err(crate::Error::Unsupported { .. }) => return Ok(scales),
        others => others?,
    };
    parallel::change(v, |first, some| some.iter_mut().zip(&own[first..]).for_each(|(v, own)| *v = v.hull(*own)));
    Ok(scales.zip(others).map(|(a, b)| a.into_iter().zip(b).map(|(a, b)| a.hull(b)).collect()))
}

/// What a recipe may choose as scale_inv, where that can be said.
type Scales = Option<Vec<Interval>>;

/// The intervals of every output of an elementwise job with high-precision operands. Errors as [`check`].
pub fn bounds(job: &Job, depths: Depths) -> Result<Bounds> {
    check(job)?;
    let mut all = Bounds { values: Vec::new(), amax: Vec::new(), scale_inv: Vec::new(), dbias: None, mean: None, rsigma: None };
    for index in 0..job.operands.tensors().len() {
        let (mut v, stats) = part(job, index, depths)?;
        if matches!(job.op, Op::CastTransposeDbias | Op::CastTransposeDbiasDact) {
            let cols = job.operands.tensors()[index].cols();
            let sum = |j| column_sum(&v, j, cols, depths.column).rounded(input_dtype(job));
            all.dbias = Some(parallel::collect(cols, sum));
        }
        if job.op == Op::Layernorm {
            all.mean = Some(stats.iter().map(|s| s.mean).collect());
        }
        if matches!(job.op, Op::Layernorm | Op::Rmsnorm) {
            all.rsigma = Some(stats.iter().map(|s| s.rsigma).collect());
        }
        all.scale_inv.push(match &job.out {
            OutSpec::High(_) => None,
            OutSpec::Scaled { scale, .. } => Some(vec![exactly(1.0 / scale[index].unwrap_or(1.0))]),
            OutSpec::Recipe(recipe) => {
                let (dtype, rows) = (input_dtype(job), job.operands.tensors()[index].rows());
                let unrounded = (depths.free && dtype != Format::F32).then(|| v.clone());
                parallel::change(&mut v, |_, some| some.iter_mut().for_each(|v| *v = v.rounded(dtype)));
                let scales = recipe_scales(recipe, dtype, rows, &v)?;
                match unrounded {
                    Some(own) => either(recipe, rows, (&mut v, scales), &own)?,
                    None => scales,
                }
            }
        });
        all.amax.push(amax(&v));
        all.values.push(v);
    }
    Ok(all)
}

mod free;
#[cfg(test)]
mod free_tests;
#[cfg(test)]
mod tests;
