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
use crate::{Error, Result};

/// The error of an accumulation of K products, relative to `S = Σ_k |a_k b_k|`, as the accumulator's model derives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accumulation {
    /// `|computed − Σ a_k b_k| ≤ relative_certain · S + absolute`, always.
    pub relative_certain: f64,
    /// The standard deviation (sub-Gaussian) of the error, relative to S.
    pub relative_probable_sd: f64,
    /// What underflow can add, in units of the products of codes.
    pub absolute: f64,
}

/// Mixed-input products: the dequantized weight is rounded to a 16-bit type before it is multiplied: computed in the type T of its
/// scales, then converted to the type of the product.
#[derive(Clone, Copy, Debug)]
pub struct WeightRounding<'a> {
    /// T: f16, bf16 or f32.
    pub scales: Format,
    /// Type of the factors: f16 or bf16; another rounding where it is not T.
    pub format: Format,
    /// `Σ_k |a_ik|` of each row: what a rounding among subnormals is multiplied by.
    pub row_abs: &'a [f64],
    /// With an additive zero, the weight is `RN_T(RN_T(q·s) + z)`: `Σ_k |a_ik|·|q_jk·s_jk|` of each element.
    pub before_zero: Option<&'a [f64]>,
}

/// The arithmetic of a product's kernel, in the order in which it rounds.
///
/// ```text
/// ŵ   = RN_T(q·s) [, RN_T(ŵ + z)], RN16(ŵ)        weight_rounding
/// P_g = Σ_{k∈g} a·ŵ                               accumulation, once for each of `groups` partial sums
/// t   = RN32(P_g·σ) …                             scale_roundings f32 multiplications of every partial sum
/// y   = RN32(y + t) or fma                        groups > 1: one f32 addition a group
/// y   = RN32(y + bias_j)                          bias
/// D   = RN_out(y)                                 the output format
/// ```
#[derive(Clone, Debug)]
pub struct ProductArithmetic<'a> {
    pub accumulation: Accumulation,
    /// Length of the sum.
    pub k: usize,
    /// Rounded f32 multiplications between accumulation and addition (a conversion int32 → f32 counts as one).
    pub scale_roundings: u32,
    /// Partial sums added in f32; 1 when a scale belongs to the whole of K.
    pub groups: usize,
    /// The bias of each column, added in f32.
    pub bias: Option<&'a [f64]>,
    pub weight_rounding: Option<WeightRounding<'a>>,
    /// Smallest and largest product of the factors (scales) applied to an accumulated sum; `(1, 1)` without. The largest scales what
    /// underflow loses; the smallest says how large the unscaled sum was, for overflow. See [`ProductArithmetic::scaled_by`].
    pub descale: (f64, f64),
    /// No f32 intermediate is larger than this, from the ranges of the formats; ∞ when nothing is known.
    pub largest_intermediate: f64,
}

impl ProductArithmetic<'_> {
    /// An accumulation of K products and nothing else.
    pub fn plain(accumulation: Accumulation, k: usize) -> Self {
        Self {
            accumulation,
            k,
            scale_roundings: 0,
            groups: 1,
            bias: None,
            weight_rounding: None,
            descale: (1.0, 1.0),
            largest_intermediate: f64::INFINITY,
        }
    }

    /// Fills `descale` and `largest_intermediate`: the sum is of products of codes of `fa` and `fb`, then multiplied by one
    /// value of each of `scales` (scale_inv of a, of b, …). Zeros and what is not finite are left out of the extremes.
    pub fn scaled_by(self, fa: Format, fb: Format, scales: &[&[f32]]) -> Self {
        let reach = |f: Format| f.max_finite().max(-f.min_finite());
        let mut descale = (1.0, 1.0);
        let mut largest_intermediate = self.k as f64 * reach(fa) * reach(fb);
        for s in scales {
            let usable = || s.iter().map(|x| f64::from(x.abs())).filter(|x| x.is_finite() && *x > 0.0);
            let Some(largest) = usable().reduce(f64::max) else { continue };
            descale = (descale.0 * usable().fold(f64::INFINITY, f64::min), descale.1 * largest);
            largest_intermediate *= largest.max(1.0);
        }
        Self { descale, largest_intermediate, ..self }
    }

    /// (certain, sub-Gaussian deviation, absolute part) of element (i, j).
    fn radius(&self, index: usize, cols: usize, d: f64, magnitude: f64) -> (f64, f64, f64) {
        let (row, column) = (index / cols, index % cols);
        let bias = self.bias.map_or(0.0, |b| b[column]);
        let s = (magnitude - bias.abs()).max(0.0);
        let groups = self.groups.max(1) as f64;
        let scales = f64::from(self.scale_roundings);
        let a = self.accumulation;
        let largest = self.descale.1.abs().max(1.0);

        // The reference is an f64 sum: K additions of products that are rounded once.
        let reference = (self.k as f64 + 4.0) * f64::EPSILON / 2.0 * magnitude;
        let mut absolute = reference;
        absolute += groups * (a.absolute * self.descale.1.abs() + (scales + 1.0) * HALF_MIN_SUBNORMAL * largest);

        // Weights.
        let (mut weight, mut weight_sd) = (0.0, 0.0);
        if let Some(w) = &self.weight_rounding {
            // One rounding of values whose magnitudes sum to `size`.
            let rounding = |f: Format, size: f64| 0.5 * (f.ulp(1.0) * size + f.ulp(0.0) * w.row_abs[row]);
            weight = rounding(w.scales, w.before_zero.map_or(s, |q| q[index]));
            if w.before_zero.is_some() {
                weight += rounding(w.scales, s + weight);
            }
            if w.format != w.scales {
                weight += rounding(w.format, s + weight);
            }
            weight_sd = weight;
        }
        // Accumulation, on the rounded weights.
        let mut certain = weight + a.relative_certain * (s + weight);
        let mut variance = weight_sd.powi(2) + (a.relative_probable_sd * (s + weight)).powi(2);
        // Scales and group additions. Without groups they act on the sum itself, which cancellation may have made small; with
        // them on partial sums, of which only Σ|·| ≤ S is known.
        if self.groups > 1 {
            let size = s + certain;
            certain += gamma(scales + groups, U32) * size;
            variance += (scales + groups) * (U32 * size).powi(2);
        } else {
            let size = (d - bias).abs() + reference + certain;
            certain += gamma(scales, U32) * size;
            variance += scales * (U32 * size).powi(2);
        }
        if self.bias.is_some() {
            let size = d.abs() + certain;
            certain += U32 * size;
            variance += (U32 * size).powi(2);
        }
        // An intermediate beyond f32 may be Inf although the result is not: nothing is known of such an element.
        let intermediate = ((magnitude + certain) * (1.0 / self.descale.0.abs()).max(1.0)).min(self.largest_intermediate);
        if !(intermediate < f64::from(f32::MAX)) {
            return (f64::INFINITY, f64::INFINITY, 0.0);
        }
        (certain + absolute, variance.sqrt(), absolute)
    }
}

/// The allowed kernel error of every element of a result; see the module.
#[derive(Clone, Debug)]
pub struct Bound {
    ideal: Vec<f64>,
    certain: Vec<f64>,
    probable: Vec<f64>,
    delta: f64,
    out: OutFormat,
}

/// What a bound says of one result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Elements outside the certain interval; the first of them.
    pub violations: usize,
    pub first_violation: Option<usize>,
    /// Elements outside the probable interval (those outside the certain one included); the first of them.
    pub improbable: usize,
    pub first_improbable: Option<usize>,
    /// Elements of which nothing can be said (an intermediate may have overflowed).
    pub unjudged: usize,
    /// Largest `|actual − d| / (β + half a spacing of the output)`: at most 1 inside, more than 1 outside, ∞ for a NaN that
    /// should be a number.
    pub ratio_certain: f64,
    pub ratio_probable: f64,
    /// Where `ratio_certain` is.
    pub worst: Option<usize>,
}

impl Bound {
    /// The bound of a product `[M, cols]`: `ideal` is the op's f64 result before output rounding, `magnitude` its
    /// `Σ_k |a||b| (+ |bias|)`. Errors when the lengths do not fit together.
    ///
    /// With S = magnitude − |bias|, u = 2^-24, T = |ideal − bias| without groups and S with them, n = scale_roundings + (groups if > 1):
    ///
    /// ```text
    /// E_w = R_T(S)                                                weights: R_f(X) = u_f·X + ulp_f(0)/2·Σ|a|, u = 2^-11 (f16), 2^-8 (bf16)
    ///       or, with a zero, R_T(Q) + R_T(S + R_T(Q)), Q = Σ|a||q·s|
    ///       + R_16(S + …) where T is not the type of the product
    /// E_a = E_w + relative_certain·(S + E_w)
    /// E_s = E_a + γ_n·(T + E_a)
    /// β   = E_s + u·(|ideal| + E_s) [bias] + absolute                 absolute: underflow, and (K+4)·2^-53·S for the reference
    /// ```
    ///
    /// Probable: the same terms as independent deviations, added in squares and multiplied by
    /// [`lambda`](super::probable::lambda); never more than β. Weight roundings count in full, since Σ(ab)² is not known.
    pub fn product(p: &ProductArithmetic, cols: usize, ideal: &[f64], magnitude: &[f64], out: &OutFormat) -> Result<Self> {
        let n = ideal.len();
        let rows = n.checked_div(cols).unwrap_or(0);
        let expect = |what: &str, found: usize, expected: usize| {
            (found == expected).then_some(()).ok_or_else(|| Error::shape(what, format!("{found} values"), expected))
        };
        expect("ideal of a product", n, rows * cols)?;
        expect("magnitude of a product", magnitude.len(), n)?;
        if let Some(b) = p.bias {
            expect("bias", b.len(), cols)?;
        }
        if let Some(w) = &p.weight_rounding {
            expect("row sums of |a|", w.row_abs.len(), rows)?;
            expect("magnitude before the zero", w.before_zero.map_or(n, <[f64]>::len), n)?;
        }
        let lambda = lambda(n, DELTA);
        let radii = (0..n).map(|i| p.radius(i, cols, ideal[i], magnitude[i]));
        let (certain, probable) = radii.map(|(c, sd, absolute)| (c, (lambda * sd + absolute).min(c))).unzip();
        Ok(Self { ideal: ideal.to_vec(), certain, probable, delta: DELTA, out: out.clone() })
    }

    /// Nothing but the rounding order of casts and dequantize is allowed: `RN_out(RN32(ideal))`, for a quantized output
    /// `Q(RN32(RN32(ideal)·scale))`.
    pub fn exact_output(ideal: &[f64], out: &OutFormat) -> Self {
        let ideal: Vec<f64> = ideal.iter().map(|d| f64::from(*d as f32)).collect();
        let zeros = vec![0.0; ideal.len()];
        Self { ideal, certain: zeros.clone(), probable: zeros, delta: 0.0, out: out.clone() }
    }

    /// Radii from elsewhere (activations and norms: the boundary rule). Errors when lengths
    /// differ or not 0 ≤ probable ≤ certain.
    pub fn from_radii(ideal: Vec<f64>, certain: Vec<f64>, probable: Vec<f64>, out: &OutFormat) -> Result<Self> {
        if certain.len() != ideal.len() || probable.len() != ideal.len() {
            let found = format!("{} certain and {} probable radii", certain.len(), probable.len());
            return Err(Error::shape("bound", found, format!("{} as the ideal", ideal.len())));
        }
        if let Some((c, p)) = certain.iter().zip(&probable).find(|(c, p)| !(0.0 <= **p && **p <= **c)) {
            return Err(Error::value("radii of a bound", format!("certain {c}, probable {p}"), "0 ≤ probable ≤ certain"));
        }
        Ok(Self { ideal, certain, probable, delta: DELTA, out: out.clone() })
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
        &self.probable
    }
    /// The probability, a tensor, that a correct kernel is outside the probable bound.
    pub fn delta(&self) -> f64 {
        self.delta
    }
    pub fn out(&self) -> &OutFormat {
        &self.out
    }
    /// The ideal after output rounding: the value of the correctly rounded code.
    pub fn rounded_ideal(&self) -> Vec<f64> {
        self.ideal.iter().enumerate().map(|(i, d)| self.out.round(i, *d)).collect()
    }

    /// The values element `index` may have, both ends included; `(NaN, NaN)` where it has to be NaN, everything where nothing is
    /// known.
    pub fn allowed(&self, index: usize) -> (f64, f64) {
        self.interval(index, self.certain[index])
    }
    fn interval(&self, index: usize, radius: f64) -> (f64, f64) {
        let d = self.ideal[index];
        if d.is_nan() {
            return (f64::NAN, f64::NAN);
        }
        if !d.is_finite() {
            let r = self.out.round(index, d);
            return (r, r);
        }
        if radius == f64::INFINITY {
            return (f64::NEG_INFINITY, f64::INFINITY);
        }
        let (low, high) = (self.out.round(index, d - radius), self.out.round(index, d + radius));
        if low <= high { (low, high) } else { (high, low) }
    }
    fn accepts(&self, index: usize, radius: f64, actual: f64) -> bool {
        let (low, high) = self.interval(index, radius);
        if low.is_nan() { actual.is_nan() } else { low <= actual && actual <= high }
    }
    /// `|actual − d| / (β + half a spacing)`, at most 1 when accepted and above 1 when not.
    fn ratio(&self, index: usize, radius: f64, actual: f64, accepted: bool) -> f64 {
        let d = self.ideal[index];
        let (bottom, top) = self.out.range(index);
        // A scale_inv that is NaN has no range.
        let clipped = if bottom.is_nan() { d } else { d.clamp(bottom.min(top), top.max(bottom)) };
        let half = 0.5 * self.out.spacing(index, d.abs() + radius);
        let ratio = (actual - clipped).abs() / (radius + half);
        match accepted {
            // A NaN or Inf where it belongs.
            true if ratio.is_nan() => 0.0,
            true => ratio.min(1.0),
            false if ratio.is_nan() => f64::INFINITY,
            false => ratio.max(1.0 + f64::EPSILON),
        }
    }

    /// `|actual − ideal| / (β + half a spacing)` of every element: what error maps show. Errors when lengths differ.
    pub fn ratios(&self, actual: &[f64]) -> Result<Vec<f64>> {
        if actual.len() != self.ideal.len() {
            return Err(Error::shape(
                "result",
                format!("{} values", actual.len()),
                format!("{} as its bound", self.ideal.len()),
            ));
        }
        let ratio = |(i, a): (usize, &f64)| self.ratio(i, self.certain[i], *a, self.accepts(i, self.certain[i], *a));
        Ok(actual.iter().enumerate().map(ratio).collect())
    }

    /// Judges a result. Errors when its length is not the bound's.
    pub fn judge(&self, actual: &[f64]) -> Result<Judged> {
        if actual.len() != self.ideal.len() {
            return Err(Error::shape(
                "result",
                format!("{} values", actual.len()),
                format!("{} as its bound", self.ideal.len()),
            ));
        }
        let mut j = Judged::default();
        for (index, &a) in actual.iter().enumerate() {
            let (certain, probable) = (self.certain[index], self.probable[index]);
            if certain == f64::INFINITY && self.ideal[index].is_finite() {
                j.unjudged += 1;
                continue;
            }
            // The probable interval is inside the certain one.
            let likely = self.accepts(index, probable, a);
            let accepted = likely || (probable < certain && self.accepts(index, certain, a));
            if !accepted {
                j.violations += 1;
                j.first_violation = j.first_violation.or(Some(index));
            }
            if !likely {
                j.improbable += 1;
                j.first_improbable = j.first_improbable.or(Some(index));
            }
            let ratio = self.ratio(index, certain, a, accepted);
            if ratio > j.ratio_certain || j.worst.is_none() {
                (j.ratio_certain, j.worst) = (ratio, Some(index));
            }
            j.ratio_probable = j.ratio_probable.max(self.ratio(index, probable, a, likely));
        }
        Ok(j)
    }
}
