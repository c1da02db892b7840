//! How far each element of a result may be from its ideal, derived from the arithmetic and the data.
//!
//! For every element a [`Bound`] holds the ideal before the output rounding, `d`, and two radii: `certain`, which no correct
//! kernel leaves (a violation proves a bug), and `probable`, which one leaves with probability δ a tensor (a violation is
//! suspect). The kernel's value before its output rounding lies in `[d − β, d + β]`; output rounding is monotone, so its output
//! lies in
//!
//! ```text
//! [ RN_out(d − β), RN_out(d + β) ]          FP8 output: RN_out(x) = decode(Q(RN32(x·scale)))·scale_inv, saturating
//! ```
//!
//! and nothing outside is accepted. There is no hand-set tolerance.

use super::OutFormat;
use super::probable::{DELTA, HALF_MIN_SUBNORMAL, U32, gamma, lambda};
use crate::format::Format;
use crate::op::Biases;
use crate::{Error, Result, parallel};

/// What the sum of one element may be off by, in the units of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SumRadius {
    /// No kernel of this arithmetic is off by more; ∞ where an accumulator may overflow.
    pub certain: f64,
    /// What the probable radius counts in full: the mean that errors of one direction have.
    pub drift: f64,
    /// The square of the (sub-Gaussian) deviation around it.
    pub variance: f64,
}

impl SumRadius {
    /// What holds of both.
    pub fn or(self, other: Self) -> Self {
        Self {
            certain: self.certain.max(other.certain),
            drift: self.drift.max(other.drift),
            variance: self.variance.max(other.variance),
        }
    }
}

/// The error of the sums of a product.
pub trait SumError: Sync + std::fmt::Debug {
    /// Of element (row, column), whose exact sum is `sum` and Σ|ab| `magnitude`, without bias.
    fn at(&self, row: usize, column: usize, sum: f64, magnitude: f64) -> SumRadius;
}

/// The error of an accumulation relative to `S = Σ_k |a_k b_k|`, and to the largest sum of any subset of the products, `P = (S + |d|)/2`: where
/// no more is known. The smaller of the two holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accumulation {
    /// `|computed − Σ a_k b_k| ≤ relative · S + absolute`, always.
    pub relative: f64,
    /// `|computed − Σ a_k b_k| ≤ of_partial · P + absolute`, always; ∞ where nothing is known.
    pub of_partial: f64,
    /// What underflow can add.
    pub absolute: f64,
}

impl Accumulation {
    /// No error.
    pub const EXACT: Self = Self { relative: 0.0, of_partial: 0.0, absolute: 0.0 };

    /// What holds of both.
    pub fn or(self, other: Self) -> Self {
        Self {
            relative: self.relative.max(other.relative),
            of_partial: self.of_partial.max(other.of_partial),
            absolute: self.absolute.max(other.absolute),
        }
    }
}

impl SumError for Accumulation {
    fn at(&self, _: usize, _: usize, sum: f64, magnitude: f64) -> SumRadius {
        let certain = (self.relative * magnitude).min(self.of_partial * 0.5 * (magnitude + sum.abs())) + self.absolute;
        SumRadius { certain, drift: certain, variance: 0.0 }
    }
}

/// The arithmetic of a product's kernel, in the order in which it rounds.
///
/// ```text
/// a' = RN32(a·σ_a), b' = RN32(b·σ_b), RN32(a'·b')    factor_roundings: where a kernel may scale before it adds
/// P_g = Σ_{k∈g} a·b                                  accumulation; where scales change along K, of each of `groups` blocks
/// t   = RN32(P_g·σ) …                                scale_roundings f32 multiplications of every partial sum
/// y   = RN32(y + t) or fma                           groups > 1: one f32 addition a group
/// y   = RN32(y + bias_ij) or fma                     bias
/// y   = RN32(y·w_i)                                  a bias with weights of rows: both have w_i in what follows
/// D   = RN_out(y)                                    the output format
/// ```
#[derive(Clone, Debug)]
pub struct ProductArithmetic<'a> {
    pub accumulation: &'a dyn SumError,
    /// Length of the sum.
    pub k: usize,
    /// Roundings to f32 that every product passes before it is added.
    pub factor_roundings: u32,
    /// What the products of an element can lose to underflow before they are added.
    pub factor_underflow: f64,
    /// What the factors of each element may be off by besides, times what they are multiplied by: `Σ_k |a_ik|·|δb_jk|`.
    pub factor_errors: Option<&'a [f64]>,
    /// Rounded f32 multiplications between accumulation and addition (a conversion int32 → f32 counts as one).
    pub scale_roundings: u32,
    /// Partial sums added in f32; 1 when a scale belongs to the whole of K.
    pub groups: usize,
    /// The bias of each row and column, added in f32; where rows have weights they are multiplied last, the bias in.
    pub bias: Option<&'a Biases>,
    /// Columns of which nothing is known: a weight overflows its 16-bit type.
    pub unknown_columns: Option<&'a [bool]>,
    /// Smallest and largest product of the factors (scales) applied to an accumulated sum; `(1, 1)` without. The largest scales what
    /// underflow loses; the smallest says how large the unscaled sum was, for overflow. See [`ProductArithmetic::scaled_by`].
    pub descale: (f64, f64),
    /// The largest product of those factors that meet a sum after some others were multiplied to something below f32's normal numbers;
    /// 0 where none are.
    pub after_underflow: f64,
    /// No unscaled sum is larger than this, from the ranges of the formats; ∞ when nothing is known.
    pub largest_sum: f64,
    /// No f32 intermediate is larger than this.
    pub largest_intermediate: f64,
}

impl<'a> ProductArithmetic<'a> {
    /// An accumulation of K products and nothing else.
    pub fn plain(accumulation: &'a dyn SumError, k: usize) -> Self {
        Self {
            accumulation,
            k,
            factor_roundings: 0,
            factor_underflow: 0.0,
            factor_errors: None,
            scale_roundings: 0,
            groups: 1,
            bias: None,
            unknown_columns: None,
            descale: (1.0, 1.0),
            after_underflow: 0.0,
            largest_sum: f64::INFINITY,
            largest_intermediate: f64::INFINITY,
        }
    }

    /// Fills what depends on scales: the sum is of products of codes of `fa` and `fb`, then multiplied by one
    /// value of each of `scales` (scale_inv of a, of b, global ones). Zeros and what is not finite are left out of the extremes.
    pub fn scaled_by(self, fa: Format, fb: Format, scales: &[&[f32]]) -> Self {
        let reach = |f: Format| f.max_finite().max(-f.min_finite());
        let largest_sum = self.k as f64 * reach(fa) * reach(fb);
        let extremes: Vec<(f64, f64)> = scales
            .iter()
            .filter_map(|s| {
                let usable = || s.iter().map(|x| f64::from(x.abs())).filter(|x| x.is_finite() && *x > 0.0);
                Some((usable().reduce(f64::min)?, usable().reduce(f64::max)?))
            })
            .collect();
        let descale = extremes.iter().fold((1.0, 1.0), |d, e| (d.0 * e.0, d.1 * e.1));
        let largest_intermediate = extremes.iter().fold(largest_sum, |l, e| l * e.1.max(1.0));
        // Scales that are multiplied with one another before they meet the sum: every subset of two and more.
        let mut after_underflow = 0.0f64;
        for subset in 0u32..1 << extremes.len() {
            let inside = |i: usize| subset >> i & 1 == 1;
            let together: f64 = extremes.iter().enumerate().filter(|(i, _)| inside(*i)).map(|(_, e)| e.0).product();
            if subset.count_ones() >= 2 && together < f64::from(f32::MIN_POSITIVE) {
                let rest = extremes.iter().enumerate().filter(|(i, _)| !inside(*i)).map(|(_, e)| e.1.max(1.0)).product();
                after_underflow = after_underflow.max(rest);
            }
        }
        Self { descale, after_underflow, largest_sum, largest_intermediate, ..self }
    }

    /// What the reference and the factors of an element with this Σ|ab| may be off by before anything is added.
    pub fn before_sums(&self, magnitude: f64) -> f64 {
        let reference = (self.k as f64 + 4.0) * f64::EPSILON / 2.0 * magnitude;
        reference + gamma(f64::from(self.factor_roundings), U32) * magnitude + self.factor_underflow
    }

    /// (certain, probable) of element `index`.
    fn radius(&self, (row, column, index): (usize, usize, usize), d: f64, magnitude: f64, lambda: f64) -> (f64, f64) {
        const UNKNOWN: (f64, f64) = (f64::INFINITY, f64::INFINITY);
        if self.unknown_columns.is_some_and(|u| u[column]) {
            return UNKNOWN;
        }
        let bias = self.bias.map_or(0.0, |b| b.at(row, column));
        let s = (magnitude - bias.abs()).max(0.0);
        // Nothing is added: no order and no unit makes anything of it.
        if s == 0.0 && bias == 0.0 && self.factor_errors.is_none() {
            return (0.0, 0.0);
        }
        let groups = self.groups.max(1) as f64;
        let scales = f64::from(self.scale_roundings);

        // The reference is an f64 sum: K additions of products that are rounded once.
        let reference = (self.k as f64 + 4.0) * f64::EPSILON / 2.0 * magnitude;
        // Underflow: of a scaled sum, whose other scales follow; of scales that are multiplied first, which the sum follows.
        let unscaled = (s / self.descale.0).min(self.largest_sum);
        let after_scales = if self.after_underflow > 0.0 { unscaled * self.after_underflow } else { 0.0 };
        let absolute = reference
            + HALF_MIN_SUBNORMAL * groups * (scales + 1.0) * self.descale.1.abs().max(1.0)
            + HALF_MIN_SUBNORMAL * (scales + 1.0) * after_scales;

        // Factors, and their sums.
        let factors = gamma(f64::from(self.factor_roundings), U32) * s
            + self.factor_underflow
            + self.factor_errors.map_or(0.0, |e| e[index]);
        let sum = self.accumulation.at(row, column, (d - bias).abs() + reference + factors, s + reference + factors);
        if !sum.certain.is_finite() {
            return UNKNOWN;
        }
        // Scales and group additions. Without groups they act on the sum itself, which cancellation may have made small. With them
        // scales act on partial sums, of which Σ|·| ≤ S is known, and every sum of groups is at most (S + |d|)/2.
        let after = |radius: f64| {
            let whole = (d - bias).abs() + reference + radius;
            let radius = match self.groups > 1 {
                true => radius + gamma(scales, U32) * (s + radius) + gamma(groups, U32) * (0.5 * (s + whole) + radius),
                false => radius + gamma(scales, U32) * whole,
            };
            let rounded = self.bias.map_or(0.0, |b| if b.is_weighted() { gamma(2.0, U32) } else { U32 });
            radius + rounded * (d.abs() + radius)
        };
        let certain = after(factors + sum.certain);
        let probable = after(factors + sum.drift + lambda * sum.variance.sqrt());
        // An intermediate beyond f32 may be Inf although the result is not: nothing is known of such an element.
        let intermediate = ((magnitude + certain) * (1.0 / self.descale.0.abs()).max(1.0)).min(self.largest_intermediate);
        if !(intermediate < f64::from(f32::MAX)) {
            return UNKNOWN;
        }
        (certain + absolute, (probable + absolute).min(certain + absolute))
    }
}

/// Rows that are too few for a band a thread; columns of a band that are gone through together.
const FEW_ROWS: usize = 64;
const COLUMNS: usize = 256;

/// The allowed kernel error of every element of a result; see the module.
#[derive(Clone, Debug)]
pub struct Bound {
    ideal: Vec<f64>,
    certain: Vec<f64>,
    /// None: the certain ones.
    probable: Option<Vec<f64>>,
    delta: f64,
    out: OutFormat,
    reference: String,
    /// Elements with a factor that may be either of two numbers; empty: none.
    undecided: Vec<bool>,
}

impl Bound {
    /// The bound of a product `[M, cols]`: `ideal` is the op's f64 result before output rounding, `magnitude` its
    /// `Σ_k |a||b| (+ |bias|)`. Errors when the lengths do not fit together.
    ///
    /// With S = magnitude − |bias|, u = 2^-24, T = |ideal − bias|, n = scale_roundings:
    ///
    /// ```text
    /// E_f = γ_m·S + Σ|a||δb| + underflow      m = factor_roundings
    /// E_a = E_f + accumulation(|ideal − bias| + E_f, S + E_f)
    /// E_s = E_a + γ_n·(T + E_a)               with G > 1 groups: E_a + γ_n·(S + E_a) + γ_G·((S + T)/2 + E_a)
    /// β   = E_s + u·(|ideal| + E_s) [bias] + absolute     γ_2 for u where weights of rows come after the bias
    /// ```
    ///
    /// A bias added by fused multiply-add makes one rounding fewer. `absolute`: (K+4)·2^-53·S for the reference, and underflow, 2^-150 a rounding,
    /// times what the rounded value is still multiplied by: the other scales, for a scaled sum; |Σ| and the other scales, for a product of
    /// scales that is below 2^-126.
    ///
    /// Probable: the same with the accumulation's drift and deviation in place of its certain radius,
    /// `drift + `[`lambda`](super::probable::lambda)`·deviation`; never more than β. Other roundings count in full.
    pub fn product(p: &ProductArithmetic, cols: usize, ideal: &[f64], magnitude: &[f64], out: &OutFormat) -> Result<Self> {
        let n = ideal.len();
        let rows = n.checked_div(cols).unwrap_or(0);
        let expect = |what: &str, found: usize, expected: usize| {
            (found == expected).then_some(()).ok_or_else(|| Error::shape(what, format!("{found} values"), expected))
        };
        expect("ideal of a product", n, rows * cols)?;
        expect("magnitude of a product", magnitude.len(), n)?;
        expect("bias", p.bias.map_or(cols, Biases::cols), cols)?;
        expect("errors of factors", p.factor_errors.map_or(n, <[f64]>::len), n)?;
        expect("columns that overflow", p.unknown_columns.map_or(cols, <[bool]>::len), cols)?;
        let lambda = lambda(n, DELTA);
        let radius = |row: usize, column: usize| {
            let at = row * cols + column;
            p.radius((row, column, at), ideal[at], magnitude[at], lambda)
        };
        let (certain, probable) = if rows < FEW_ROWS {
            parallel::numbers(n, |at| radius(at / cols, at % cols)).into_iter().unzip()
        } else {
            let (mut certain, mut probable) = (vec![0.0; n], vec![0.0; n]);
            // What is known of some columns stays in the cache while the rows of a band pass by.
            let high = (rows / FEW_ROWS).clamp(1, 32);
            parallel::chunks_of_both(&mut certain, &mut probable, high * cols, |band, certain, probable| {
                for from in (0..cols).step_by(COLUMNS) {
                    for line in 0..certain.len() / cols {
                        for column in from..cols.min(from + COLUMNS) {
                            let at = line * cols + column;
                            (certain[at], probable[at]) = radius(band * high + line, column);
                        }
                    }
                }
            });
            (certain, probable)
        };
        Ok(Self {
            ideal: parallel::copy(ideal),
            certain,
            probable: Some(probable),
            delta: DELTA,
            out: out.clone(),
            reference: String::new(),
            undecided: p.factor_errors.map_or_else(Vec::new, |e| e.iter().map(|e| *e > 0.0).collect()),
        })
    }

    /// The same where the sum of each row may also be rounded to `format` before that row's factor multiplies it: `u·(|ideal| + β)` more, u half of
    /// the distance of 1 to the next number, and half the smallest subnormal times the factor.
    pub fn rounded_before(mut self, format: Format, factors: &[f64]) -> Self {
        let (u, least) = (format.ulp(1.0) / 2.0, format.ulp(0.0) / 2.0);
        let cols = self.ideal.len() / factors.len().max(1);
        let ideal = &self.ideal;
        let widen = |at: usize, r: &mut f64| *r += u * (ideal[at].abs() + *r) + least * factors[at / cols.max(1)].abs();
        self.certain.iter_mut().enumerate().for_each(|(at, r)| widen(at, r));
        self.probable.iter_mut().flatten().enumerate().for_each(|(at, r)| widen(at, r));
        self
    }

    /// Whether a right kernel may have another factor here than the reference: its errors are then larger than those of sums.
    pub fn is_undecided(&self, i: usize) -> bool {
        self.undecided.get(i) == Some(&true)
    }

    /// The same bound, saying which of several references it is about.
    pub fn about(self, reference: impl Into<String>) -> Self {
        Self { reference: reference.into(), ..self }
    }

    /// Nothing but the rounding order of casts and dequantize is allowed: `RN_out(RN32(ideal))`, for a quantized output
    /// `Q(RN32(RN32(ideal)·scale))`.
    pub fn exact_output(ideal: &[f64], out: &OutFormat) -> Self {
        let ideal = parallel::map(ideal, |d| f64::from(*d as f32));
        Self {
            certain: vec![0.0; ideal.len()],
            ideal,
            probable: None,
            delta: 0.0,
            out: out.clone(),
            reference: String::new(),
            undecided: Vec::new(),
        }
    }

    /// Radii from elsewhere (activations and norms: the boundary rule). Errors when lengths
    /// differ or not 0 ≤ probable ≤ certain.
    pub fn from_radii(ideal: Vec<f64>, certain: Vec<f64>, probable: Vec<f64>, out: &OutFormat) -> Result<Self> {
        if probable.len() != certain.len() {
            let found = format!("{} probable radii", probable.len());
            return Err(Error::shape("bound", found, format!("{} as the certain ones", certain.len())));
        }
        if let Some((c, p)) = certain.iter().zip(&probable).find(|(c, p)| !(0.0 <= **p && **p <= **c)) {
            return Err(Error::value("radii of a bound", format!("certain {c}, probable {p}"), "0 ≤ probable ≤ certain"));
        }
        Self::from_radius(ideal, certain, out).map(|bound| Self { probable: Some(probable), ..bound })
    }

    /// [`Bound::from_radii`] where nothing is known of what is probable. Errors when lengths differ or a radius is negative or NaN.
    pub fn from_radius(ideal: Vec<f64>, certain: Vec<f64>, out: &OutFormat) -> Result<Self> {
        if certain.len() != ideal.len() {
            let found = format!("{} radii", certain.len());
            return Err(Error::shape("bound", found, format!("{} as the ideal", ideal.len())));
        }
        if let Some(i) = parallel::first(&certain, |c| !(0.0 <= *c)) {
            return Err(Error::value("radii of a bound", certain[i], "0 and more"));
        }
        Ok(Self {
            ideal,
            certain,
            probable: None,
            delta: DELTA,
            out: out.clone(),
            reference: String::new(),
            undecided: Vec::new(),
        })
    }

    /// The ideal before output rounding.
    pub fn ideal(&self) -> &[f64] {
        &self.ideal
    }
    /// β of each element.
    pub fn certain(&self) -> &[f64] {
        &self.certain
    }
    /// The probable radius of each element.
    pub fn probable(&self) -> &[f64] {
        self.probable.as_deref().unwrap_or(&self.certain)
    }
    /// Whether the probable radii are the certain ones.
    pub(super) fn has_one_radius(&self) -> bool {
        self.probable.is_none()
    }
    /// The probability, a tensor, that a correct kernel is outside the probable bound.
    pub fn delta(&self) -> f64 {
        self.delta
    }
    /// Which of several right references this is about (weights rounded to 16 bits, or not); empty where there is one.
    pub fn reference(&self) -> &str {
        &self.reference
    }
    pub fn out(&self) -> &OutFormat {
        &self.out
    }
}

#[cfg(test)]
mod by_hand;
