//! A result held to its bound: bands of elements on all cores, whose counts and extremes are joined in order, so that nothing depends on
//! threads or on how elements are cut into bands.

use super::Bound;
use super::out::Cells;
use crate::format::simd::best;
use crate::parallel;
use crate::{Error, Result};

use std::ops::Range;

/// Elements that one thread looks at before it takes others.
pub(super) const BAND: usize = 1 << 14;
/// Elements of a loop over lanes: what it finds of them stays in the cache.
pub(super) const LANES: usize = 256;

/// `of` the elements of each band, in order.
pub(super) fn bands<R: Send>(n: usize, of: impl Fn(Range<usize>) -> R + Sync) -> Vec<R> {
    parallel::collect(n.div_ceil(BAND), |band| of(band * BAND..n.min((band + 1) * BAND)))
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

impl Judged {
    /// Of both; `self` comes first.
    fn then(self, later: Self) -> Self {
        let larger = later.worst.is_some() && (self.worst.is_none() || later.ratio_certain > self.ratio_certain);
        Self {
            violations: self.violations + later.violations,
            first_violation: self.first_violation.or(later.first_violation),
            improbable: self.improbable + later.improbable,
            first_improbable: self.first_improbable.or(later.first_improbable),
            unjudged: self.unjudged + later.unjudged,
            ratio_certain: if larger { later.ratio_certain } else { self.ratio_certain },
            ratio_probable: self.ratio_probable.max(later.ratio_probable),
            worst: if larger { later.worst } else { self.worst },
        }
    }
}

/// The values that an element of ideal `d` may have, both ends included; `(NaN, NaN)` where it has to be NaN, everything where nothing is
/// known.
#[inline(always)]
pub(super) fn interval(cells: &Cells, d: f64, radius: f64) -> (f64, f64) {
    let anything = d.is_finite() & (radius == f64::INFINITY);
    // An infinite ideal is one value.
    let reach = if d.is_finite() & !anything { radius } else { 0.0 };
    let (low, high) = (cells.round(d - reach), cells.round(d + reach));
    let (low, high) = if low <= high { (low, high) } else { (high, low) };
    let (low, high) = if anything { (f64::NEG_INFINITY, f64::INFINITY) } else { (low, high) };
    if d.is_nan() { (f64::NAN, f64::NAN) } else { (low, high) }
}

best! {
    /// Which elements lie inside the interval of their radius (those that `inside` has already do), and `|actual − d| / (β + half a
    /// spacing)`: at most 1 inside, above 1 outside.
    fn look(cells: Cells, ideal: &[f64], radius: &[f64], actual: &[f64], inside: &mut [bool], ratio: &mut [f64]) => look_at;
}

#[inline(always)]
fn look_at(cells: Cells, ideal: &[f64], radius: &[f64], actual: &[f64], inside: &mut [bool], ratio: &mut [f64]) {
    let (bottom, top) = cells.range();
    // A scale_inv that is NaN has no range.
    let range = if bottom.is_nan() { (f64::NEG_INFINITY, f64::INFINITY) } else { (bottom.min(top), top.max(bottom)) };
    if cells.is_plain() {
        look_within(cells.as_plain(), range, ideal, radius, actual, inside, ratio);
    } else if cells.is_float() {
        look_within(cells.as_float(), range, ideal, radius, actual, inside, ratio);
    } else {
        look_within(cells, range, ideal, radius, actual, inside, ratio);
    }
}

#[inline(always)]
fn look_within(
    cells: Cells,
    (bottom, top): (f64, f64),
    ideal: &[f64],
    radius: &[f64],
    actual: &[f64],
    inside: &mut [bool],
    ratio: &mut [f64],
) {
    let n = ideal.len();
    let (radius, actual, inside, ratio) = (&radius[..n], &actual[..n], &mut inside[..n], &mut ratio[..n]);
    for i in 0..n {
        let (d, r, a) = (ideal[i], radius[i], actual[i]);
        let (low, high) = interval(&cells, d, r);
        let within = if low.is_nan() { a.is_nan() } else { (low <= a) & (a <= high) };
        inside[i] |= within;
        let clipped = if d < bottom { bottom } else { d };
        let clipped = if clipped > top { top } else { clipped };
        let of = (a - clipped).abs() / (r + 0.5 * cells.spacing(d.abs() + r));
        // A NaN or Inf where it belongs; where it does not.
        let odd = if inside[i] { 0.0 } else { f64::INFINITY };
        let even = if inside[i] { of.min(1.0) } else { of.max(1.0 + f64::EPSILON) };
        ratio[i] = if of.is_nan() { odd } else { even };
    }
}

impl Bound {
    /// The values element `index` may have, both ends included; `(NaN, NaN)` where it has to be NaN, everything where nothing is
    /// known.
    pub fn allowed(&self, index: usize) -> (f64, f64) {
        interval(&self.out().cells(index), self.ideal()[index], self.certain()[index])
    }

    /// The values element `index` probably has.
    pub fn likely(&self, index: usize) -> (f64, f64) {
        interval(&self.out().cells(index), self.ideal()[index], self.probable()[index])
    }

    /// The ideal after output rounding: the value of the correctly rounded code.
    pub fn rounded_ideal(&self) -> Vec<f64> {
        let mut rounded = vec![0.0; self.ideal().len()];
        parallel::chunks(&mut rounded, BAND, |band, rounded| {
            let first = band * BAND;
            for (run, cells) in self.out().runs(first..first + rounded.len(), BAND) {
                round(cells, &self.ideal()[run.clone()], &mut rounded[run.start - first..run.end - first]);
            }
        });
        rounded
    }

    /// How many elements of a result are not [`Bound::rounded_ideal`], NaN as a class. Errors when its length is not the bound's.
    pub fn differing(&self, actual: &[f64]) -> Result<usize> {
        self.fits(actual)?;
        let of = |band: Range<usize>| {
            let mut rounded = [0.0; LANES];
            let differ = |(run, cells): (Range<usize>, Cells)| {
                let rounded = &mut rounded[..run.len()];
                round(cells, &self.ideal()[run.clone()], rounded);
                let pairs = rounded.iter().zip(&actual[run]);
                pairs.filter(|(d, a)| *d != *a && !(d.is_nan() && a.is_nan())).count()
            };
            self.out().runs(band, LANES).map(differ).sum::<usize>()
        };
        Ok(bands(actual.len(), of).into_iter().sum())
    }

    /// Counts of |actual − unrounded ideal| in spacings of the output: 0, (0,¼], (¼,½], (½,1], (1,2], (2,4], (4,8], more, not finite. Errors
    /// when its length is not the bound's.
    pub fn ulp_histogram(&self, actual: &[f64]) -> Result<[usize; 9]> {
        self.fits(actual)?;
        let of = |band: Range<usize>| {
            let mut up_to = [0u64; 9];
            for (run, cells) in self.out().runs(band, LANES) {
                tally(cells, &self.ideal()[run.clone()], &actual[run], &mut up_to);
            }
            up_to
        };
        let sum = |mut a: [u64; 9], b: [u64; 9]| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        let up_to = bands(actual.len(), of).into_iter().fold([0; 9], sum);
        Ok(std::array::from_fn(|bin| (up_to[bin] - if bin > 0 { up_to[bin - 1] } else { 0 }) as usize))
    }

    /// `|actual − ideal| / (β + half a spacing)` of every element: what error maps show. Errors when lengths differ.
    pub fn ratios(&self, actual: &[f64]) -> Result<Vec<f64>> {
        self.fits(actual)?;
        let mut ratios = vec![0.0; actual.len()];
        parallel::chunks(&mut ratios, BAND, |band, ratios| {
            self.ratios_of(band * BAND..band * BAND + ratios.len(), actual, ratios)
        });
        Ok(ratios)
    }

    /// The same of some elements.
    fn ratios_of(&self, band: Range<usize>, actual: &[f64], ratios: &mut [f64]) {
        let first = band.start;
        for (run, cells) in self.out().runs(band, LANES) {
            let mut inside = [false; LANES];
            let ratio = &mut ratios[run.start - first..run.end - first];
            look(cells, &self.ideal()[run.clone()], &self.certain()[run.clone()], &actual[run], &mut inside, ratio);
        }
    }

    /// The largest of [`Bound::ratios`] in each tile of a result of `cols` columns, NaN where one is, a row of tiles at a time. Errors as there.
    pub fn largest_ratios(&self, actual: &[f64], cols: usize, (rows, columns): (usize, usize)) -> Result<Vec<Vec<f64>>> {
        self.fits(actual)?;
        let larger = |m: f64, r: &f64| if !(*r <= m) && !m.is_nan() { *r } else { m };
        let of_rows = |band: usize| {
            let (mut largest, mut ratios) = (vec![0.0f64; cols.div_ceil(columns)], vec![0.0; cols]);
            let elements = band * rows * cols..actual.len().min((band + 1) * rows * cols);
            for first in elements.step_by(cols) {
                self.ratios_of(first..first + cols, actual, &mut ratios);
                let tiles = largest.iter_mut().zip(ratios.chunks(columns));
                tiles.for_each(|(largest, tile)| *largest = tile.iter().fold(*largest, larger));
            }
            largest
        };
        let bands = (actual.len().checked_div(cols).unwrap_or(0)).div_ceil(rows);
        Ok(parallel::collect(bands, of_rows))
    }

    /// Judges a result. Errors when its length is not the bound's.
    pub fn judge(&self, actual: &[f64]) -> Result<Judged> {
        self.fits(actual)?;
        Ok(bands(actual.len(), |band| self.band(band, actual)).into_iter().fold(Judged::default(), Judged::then))
    }

    fn fits(&self, actual: &[f64]) -> Result<()> {
        let (found, expected) = (actual.len(), self.ideal().len());
        let error = || Error::shape("result", format!("{found} values"), format!("{expected} as its bound"));
        (found == expected).then_some(()).ok_or_else(error)
    }

    fn band(&self, band: Range<usize>, actual: &[f64]) -> Judged {
        let mut j = Judged::default();
        let (mut ratio_certain, mut ratio_probable) = ([0.0; LANES], [0.0; LANES]);
        for (run, cells) in self.out().runs(band, LANES) {
            let (ideal, certain, actual) = (&self.ideal()[run.clone()], &self.certain()[run.clone()], &actual[run.clone()]);
            let mut likely = [false; LANES];
            look(cells, ideal, &self.probable()[run.clone()], actual, &mut likely, &mut ratio_probable);
            // The probable interval is inside the certain one.
            let mut accepted = likely;
            if self.has_one_radius() {
                ratio_certain = ratio_probable;
            } else {
                look(cells, ideal, certain, actual, &mut accepted, &mut ratio_certain);
            }
            for i in 0..ideal.len() {
                if certain[i] == f64::INFINITY && ideal[i].is_finite() {
                    j.unjudged += 1;
                    continue;
                }
                if !accepted[i] {
                    j.violations += 1;
                    j.first_violation = j.first_violation.or(Some(run.start + i));
                }
                if !likely[i] {
                    j.improbable += 1;
                    j.first_improbable = j.first_improbable.or(Some(run.start + i));
                }
                if ratio_certain[i] > j.ratio_certain || j.worst.is_none() {
                    (j.ratio_certain, j.worst) = (ratio_certain[i], Some(run.start + i));
                }
                j.ratio_probable = j.ratio_probable.max(ratio_probable[i]);
            }
        }
        j
    }
}

best! {
    fn round(cells: Cells, values: &[f64], rounded: &mut [f64]) => round_all;
}

#[inline(always)]
fn round_all(cells: Cells, values: &[f64], rounded: &mut [f64]) {
    if cells.is_plain() {
        round_each(cells.as_plain(), values, rounded);
    } else if cells.is_float() {
        round_each(cells.as_float(), values, rounded);
    } else {
        round_each(cells, values, rounded);
    }
}

#[inline(always)]
fn round_each(cells: Cells, values: &[f64], rounded: &mut [f64]) {
    for (r, v) in rounded.iter_mut().zip(values) {
        *r = cells.round(*v);
    }
}

best! {
    /// Adds to each bin of the histogram what belongs into it or into one before it.
    fn tally(cells: Cells, ideal: &[f64], actual: &[f64], up_to: &mut [u64; 9]) => tally_of;
}

#[inline(always)]
fn tally_of(cells: Cells, ideal: &[f64], actual: &[f64], up_to: &mut [u64; 9]) {
    match (cells.is_plain(), cells.is_float()) {
        (true, _) => tally_each(cells.as_plain(), ideal, actual, up_to),
        (_, true) => tally_each(cells.as_float(), ideal, actual, up_to),
        _ => tally_each(cells, ideal, actual, up_to),
    }
}

#[inline(always)]
fn tally_each(cells: Cells, ideal: &[f64], actual: &[f64], up_to: &mut [u64; 9]) {
    let mut ulps = [0.0; LANES];
    let ulps = &mut ulps[..ideal.len()];
    let mut equal = 0;
    for ((d, a), ulps) in ideal.iter().zip(actual).zip(ulps.iter_mut()) {
        let same = (d == a) | (d.is_nan() & a.is_nan());
        equal += u64::from(same);
        let apart = (a - d).abs() / cells.spacing(*d);
        *ulps = if same { 0.0 } else { apart };
    }
    up_to[0] += equal;
    for (count, edge) in up_to[1..].iter_mut().zip([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, f64::MAX]) {
        *count += ulps.iter().map(|u| u64::from(*u <= edge)).sum::<u64>();
    }
    up_to[8] += ideal.len() as u64;
}

#[cfg(test)]
mod tests;
