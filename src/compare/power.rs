//! What a pass is worth: the smallest faults that the bound and the data of this very run were certain to catch, found without
//! running anything again; and the decision that a case could not have failed.
//!
//! For each element the kernel's value before output rounding, t, lies in `[d − β, d + β]` and in the cell of reals that round
//! to what was written. A fault that moves t to t + Δ is certain to be caught at that element when t + Δ leaves the cell of
//! the outermost allowed value for every such t. The Δ needed upward and downward is all that the statements below are made of.

pub use self::scales::{Scales, Spans, ZeroPoints};
use self::scales::{contrast, scale_blindness, swap_share, zero_blindness, zero_shift_share};
use super::judged::{BAND, LANES, interval};
use super::out::Cells;
use super::{Bound, OutFormat};
use crate::format::simd::best;
use crate::parallel;

mod scales;

/// What the power of a verdict is derived from.
#[derive(Clone, Copy, Debug)]
pub struct PowerInput<'a> {
    /// Columns of the result.
    pub cols: usize,
    pub bound: &'a Bound,
    pub actual: &'a [f64],
    /// Judged bit for bit: a device model exists, or the output is exact.
    pub bit_exact: bool,
    /// Length of the sum, for products.
    pub k: Option<usize>,
    /// Groups along K with a scale of their own (1: none).
    pub groups: usize,
    /// Those whose faults the op can have.
    pub scales: &'a [Scales<'a>],
    pub zero_points: &'a [ZeroPoints<'a>],
}

/// What a case can be wrong in: see [`PowerInput`].
pub(crate) struct Faults<'a> {
    pub k: Option<usize>,
    pub groups: usize,
    pub scales: &'a [Scales<'a>],
    pub zero_points: &'a [ZeroPoints<'a>],
}

/// Why a case could not have failed, and what data would do.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct NoPower {
    pub reason: String,
    pub remedy: String,
    /// Whether it is the bound that hides them, by being wider than the signal.
    #[serde(skip)]
    pub wide: bool,
}

impl NoPower {
    fn new(reason: impl Into<String>, remedy: &str) -> Self {
        Self { reason: reason.into(), remedy: remedy.into(), wide: false }
    }
}

/// The smallest faults that were certain to be caught. ∞ (or a share of 1) says: none.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Power {
    /// A gain of at least this on every element (≥ 1).
    pub gain: f64,
    /// A gain of at least this on any one row, or column, that is not all zero.
    pub row_gain: f64,
    pub column_gain: f64,
    /// A gain of at least this on a K-group that holds 1/groups of the energy: `1 + √(dropped_share · groups)`.
    pub group_gain: f64,
    /// Any change whose energy is at least this share of the output's: were every element's change below what it needs,
    /// the energy of the change would be below the sum of their squares. Over elements that a bound can judge.
    pub dropped_share: f64,
    /// That share of K: a dropped K block of independent products this long.
    pub dropped_k: Option<f64>,
    /// The share of pairs of neighbouring rows, and columns, whose swapped scales are caught; absent without scales a line.
    pub swap_share: Option<f64>,
    /// The share of all zero points of which a shift by one, up or down, is caught.
    pub zero_shift_share: Option<f64>,
    /// One-step flips of more than this share of the output codes: the elements whose bound allows two codes can hide one.
    pub code_flip_rate: f64,
    /// Whether an output of zeros would have failed; one of the opposite sign would have too, since an interval that holds a
    /// and −a holds 0.
    pub zeros_caught: bool,
    /// By how much scales differ from 1 and from each other, at least: what a smaller gain is needed to see. ∞ without scales.
    #[serde(skip)]
    pub scale_contrast: f64,
    /// Set when the data hide the op's faults.
    pub no_power: Option<NoPower>,
}

/// Where t may be and which change of it is certain to be seen.
#[derive(Clone, Copy)]
struct Element {
    /// Range of t.
    low: f64,
    high: f64,
    /// First value above, and below, all that round to something allowed; infinite where nothing is seen.
    above: f64,
    below: f64,
    /// Whether a second code, and zero, would have been allowed.
    hides_a_flip: bool,
    allows_zero: bool,
}

impl Element {
    fn of(input: &PowerInput, index: usize) -> Self {
        let bound = input.bound;
        let radii = (bound.ideal()[index], bound.certain()[index]);
        Self::within(&bound.out().cells(index), input.bit_exact, radii, input.actual[index])
    }
    /// Of the element whose ideal and radius these are. Choices without branches: see [`Cells`].
    #[inline(always)]
    fn within(cells: &Cells, bit_exact: bool, (d, radius): (f64, f64), a: f64) -> Self {
        let known = d.is_finite() & a.is_finite() & radius.is_finite();
        let (first, last) = if bit_exact { (a, a) } else { interval(cells, d, radius) };
        let (cell_low, cell_high) = cells.cell(a);
        let (low, high) = ((d - radius).max(cell_low), (d + radius).min(cell_high));
        // A wrong result may lie outside both.
        let (low, high) = if low <= high { (low, high) } else { (low.min(high).min(d), high.max(low).max(d)) };
        // Cells are known to a relative 2^-23.
        let outward = |x: f64, sign: f64| x + sign * x.abs() * f64::from(f32::EPSILON);
        let (above, below) = (outward(cells.cell(last).1, 1.0), outward(cells.cell(first).0, -1.0));
        Element {
            low: if known { low } else { d },
            high: if known { high } else { d },
            above: if known { above } else { f64::INFINITY },
            below: if known { below } else { f64::NEG_INFINITY },
            // Where NaN or Inf has to be nothing else is allowed.
            hides_a_flip: if known { first < last } else { d.is_finite() & (radius == f64::INFINITY) },
            allows_zero: !known | ((first <= 0.0) & (0.0 <= last)),
        }
    }
    /// Smallest Δ > 0 certain to be seen, upward and downward.
    #[inline(always)]
    fn needs(&self) -> (f64, f64) {
        (self.above - self.low, self.high - self.below)
    }
    /// Smallest gain > 1 certain to be seen.
    #[inline(always)]
    fn gain(&self) -> f64 {
        let (up, down) = (self.low > 0.0, self.high < 0.0);
        let gain = if up { self.above } else { self.below } / if up { self.low } else { self.high };
        if up | down { gain } else { f64::INFINITY }
    }
}

/// The smallest gain of a line: NaN before there is one, which a minimum passes over, and whether an element was not zero.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub gain: f64,
    pub there: bool,
}

impl Line {
    const EMPTY: Line = Line { gain: f64::NAN, there: false };

    #[inline(always)]
    fn and(self, other: Line) -> Line {
        Line { gain: self.gain.min(other.gain), there: self.there | other.there }
    }
    fn found(self) -> Option<f64> {
        self.there.then_some(self.gain)
    }
}

/// What is seen of some elements that are stored alike, and what of each of them.
struct Lanes {
    hidden: usize,
    zeros_caught: bool,
    gain: [f64; LANES],
    /// `needed²` and `ideal²` of the elements that a bound can judge; else 0.
    needed: [f64; LANES],
    energy: [f64; LANES],
}

best! {
    fn look(cells: Cells, bit_exact: bool, ideal: &[f64], radius: &[f64], actual: &[f64], lanes: &mut Lanes) => look_at;
}

#[inline(always)]
fn look_at(cells: Cells, bit_exact: bool, ideal: &[f64], radius: &[f64], actual: &[f64], lanes: &mut Lanes) {
    match (cells.is_plain(), cells.is_float(), bit_exact) {
        (true, _, true) => look_at_each(cells.as_plain(), true, ideal, radius, actual, lanes),
        (true, _, false) => look_at_each(cells.as_plain(), false, ideal, radius, actual, lanes),
        (false, true, true) => look_at_each(cells.as_float(), true, ideal, radius, actual, lanes),
        (false, true, false) => look_at_each(cells.as_float(), false, ideal, radius, actual, lanes),
        (false, false, _) => look_at_each(cells, bit_exact, ideal, radius, actual, lanes),
    }
}

#[inline(always)]
fn look_at_each(cells: Cells, bit_exact: bool, ideal: &[f64], radius: &[f64], actual: &[f64], lanes: &mut Lanes) {
    let n = ideal.len();
    let (radius, actual) = (&radius[..n], &actual[..n]);
    let (gain, needed, energy) = (&mut lanes.gain[..n], &mut lanes.needed[..n], &mut lanes.energy[..n]);
    let (mut hidden, mut caught) = (0u64, 0u64);
    for i in 0..n {
        let e = Element::within(&cells, bit_exact, (ideal[i], radius[i]), actual[i]);
        gain[i] = e.gain();
        hidden += u64::from(e.hides_a_flip);
        caught += u64::from(!e.allows_zero);
        let (up, down) = e.needs();
        let judged = up.is_finite() & down.is_finite();
        let most = up.max(down);
        needed[i] = if judged { most * most } else { 0.0 };
        energy[i] = if judged { ideal[i] * ideal[i] } else { 0.0 };
    }
    lanes.hidden = hidden as usize;
    lanes.zeros_caught = caught > 0;
}

/// What all elements together show.
#[derive(Default)]
pub(crate) struct Seen {
    /// The smallest gain seen anywhere, and in each row and column; none in a line of zeros, which no gain changes.
    pub gain: f64,
    pub rows: Vec<Line>,
    pub columns: Vec<Line>,
    /// Elements that can hide a flip, and whether an output of zeros fails.
    pub hidden: usize,
    pub zeros_caught: bool,
    /// Squares of what is needed and of the ideal, where a bound can judge.
    pub needed: f64,
    pub energy: f64,
}

/// What of its elements may take the power from a case.
pub(crate) struct Facts {
    pub elements: usize,
    /// Whether an ideal is finite, whether one is not zero, whether one has a bound, whether one lies inside the range of the output.
    pub finite: bool,
    pub nonzero: bool,
    pub bounded: bool,
    pub unclipped: bool,
}

impl Facts {
    fn of(bound: &Bound) -> Self {
        let (ideal, certain) = (bound.ideal(), bound.certain());
        let n = ideal.len();
        let clipped = |out: &OutFormat, i: usize| {
            let (low, high) = out.range(i);
            ideal[i] == 0.0 || !ideal[i].is_finite() || ideal[i] <= low.min(high) || ideal[i] >= low.max(high)
        };
        Self {
            elements: n,
            finite: ideal.iter().any(|d| d.is_finite()),
            nonzero: ideal.iter().any(|d| d.is_finite() && *d != 0.0),
            bounded: (0..n).any(|i| ideal[i].is_finite() && certain[i] != f64::INFINITY),
            unclipped: (0..n).any(|i| !clipped(bound.out(), i)),
        }
    }
}

/// Elements whose squares are added one after the other, of a result of `cols` columns: whole bands of rows.
pub(crate) fn block(cols: usize) -> usize {
    let band = (BAND / cols).max(1) * cols;
    (BLOCK / band).max(1) * band
}

/// Some consecutive rows.
struct Band {
    seen: Seen,
    /// `needed²` and `ideal²` of the elements that a bound can judge, in order; zeros of the others.
    needed: Vec<f64>,
    energy: Vec<f64>,
}

/// Elements whose squares are added one after the other; the sums of such blocks are added in their order.
const BLOCK: usize = 1 << 20;

best! {
    /// The smallest gain of a run of a row; each column's, with what it had.
    fn smallest(gain: &[f64], ideal: &[f64], row: &mut Line, columns: &mut [Line]) -> f64 => smallest_of;
}

#[inline(always)]
fn smallest_of(gain: &[f64], ideal: &[f64], row: &mut Line, columns: &mut [Line]) -> f64 {
    let (mut least, mut line) = (f64::INFINITY, *row);
    for ((gain, d), column) in gain.iter().zip(ideal).zip(columns) {
        least = least.min(*gain);
        let there = *d != 0.0;
        let one = Line { gain: if there { *gain } else { f64::NAN }, there };
        line = line.and(one);
        *column = column.and(one);
    }
    *row = line;
    least
}

impl Band {
    /// The rows, but for the sums of their squares.
    fn of(input: &PowerInput, rows: std::ops::Range<usize>, cols: usize) -> Self {
        let n = rows.len() * cols;
        let mut band = Band { seen: Seen::nothing(cols), needed: Vec::with_capacity(n), energy: Vec::with_capacity(n) };
        band.seen.look(input, rows, cols, |_, needed: &[f64], energy: &[f64]| {
            band.needed.extend_from_slice(needed);
            band.energy.extend_from_slice(energy);
        });
        band
    }
}

impl Seen {
    /// Blocks of bands on all cores, joined in order: no bit depends on the threads.
    fn of(input: &PowerInput, n: usize, cols: usize) -> Self {
        let (rows, high) = (n.div_ceil(cols), (BAND / cols).max(1));
        let lines = self::block(cols) / cols;
        let starts: Vec<usize> = (0..rows).step_by(lines).collect();
        // Blocks that are too few for the threads are gone through by bands; the squares are added in the same order.
        let few = starts.len() < 2 * rayon::current_num_threads();
        let block = |from: &usize| {
            let (to, mut all) = (rows.min(from + lines), Seen::nothing(cols));
            if few {
                let starts: Vec<usize> = (*from..to).step_by(high).collect();
                let band = |from: &usize| Band::of(input, *from..to.min(from + high), cols);
                let bands: Vec<Band> = parallel::collect(starts.len(), |n| band(&starts[n]));
                return bands.into_iter().fold(all, Seen::add);
            }
            all.look(input, *from..to, cols, Seen::square);
            all
        };
        let blocks: Vec<Seen> = parallel::collect(starts.len(), |n| block(&starts[n]));
        blocks.into_iter().reduce(Seen::then).unwrap_or_else(|| Seen::nothing(cols))
    }

    fn nothing(cols: usize) -> Self {
        Seen {
            gain: f64::INFINITY,
            rows: Vec::new(),
            columns: vec![Line::EMPTY; cols],
            hidden: 0,
            zeros_caught: false,
            needed: 0.0,
            energy: 0.0,
        }
    }

    /// The next rows; what is to be done with the squares of some elements says `squares`.
    fn look(
        &mut self,
        input: &PowerInput,
        rows: std::ops::Range<usize>,
        cols: usize,
        mut squares: impl FnMut(&mut Self, &[f64], &[f64]),
    ) {
        let end = input.actual.len();
        let (ideal, certain) = (input.bound.ideal(), input.bound.certain());
        let none = [0.0; LANES];
        let mut lanes = Lanes { hidden: 0, zeros_caught: false, gain: none, needed: none, energy: none };
        for row in rows {
            let row = row * cols..end.min((row + 1) * cols);
            let mut line = Line::EMPTY;
            for (run, cells) in input.bound.out().runs(row.clone(), LANES) {
                let ideal = &ideal[run.clone()];
                look(cells, input.bit_exact, ideal, &certain[run.clone()], &input.actual[run.clone()], &mut lanes);
                let columns = &mut self.columns[run.start - row.start..run.end - row.start];
                self.gain = self.gain.min(smallest(&lanes.gain, ideal, &mut line, columns));
                self.hidden += lanes.hidden;
                self.zeros_caught |= lanes.zeros_caught;
                squares(self, &lanes.needed[..run.len()], &lanes.energy[..run.len()]);
            }
            self.rows.push(line);
        }
    }

    /// The next squares. What is not judged adds +0 to a sum that is not negative: no bit.
    fn square(&mut self, needed: &[f64], energy: &[f64]) {
        for (needed, energy) in needed.iter().zip(energy) {
            self.needed += needed;
            self.energy += energy;
        }
    }

    /// The next band of this block.
    fn add(self, band: Band) -> Self {
        let mut all = self.then(band.seen);
        all.square(&band.needed, &band.energy);
        all
    }

    /// Of both; `self` comes first.
    fn then(mut self, later: Self) -> Self {
        self.gain = self.gain.min(later.gain);
        self.rows.extend(later.rows);
        self.columns.iter_mut().zip(later.columns).for_each(|(all, some)| *all = all.and(some));
        self.hidden += later.hidden;
        self.zeros_caught |= later.zeros_caught;
        self.needed += later.needed;
        self.energy += later.energy;
        self
    }
}

impl Power {
    /// The power of one run; see the module. `actual` and the bound must have the same length.
    pub fn of(input: &PowerInput) -> Self {
        let seen = Seen::of(input, input.actual.len(), input.cols.max(1));
        let faults = Faults { k: input.k, groups: input.groups, scales: input.scales, zero_points: input.zero_points };
        Self::of_seen(seen, &Facts::of(input.bound), &faults, zero_shift_share(input))
    }

    /// The same, of what is seen.
    pub(crate) fn of_seen(seen: Seen, facts: &Facts, faults: &Faults, zero_shift_share: Option<f64>) -> Self {
        let Seen { gain, rows, columns, hidden, zeros_caught, needed, energy } = seen;
        let found = |lines: Vec<Line>| lines.into_iter().map(Line::found).collect::<Vec<_>>();
        let (rows, columns) = (found(rows), found(columns));
        let worst = |lines: &[Option<f64>]| lines.iter().flatten().copied().reduce(f64::max).unwrap_or(f64::INFINITY);
        let dropped_share = if energy > 0.0 { (needed / energy).min(1.0) } else { 1.0 };
        let mut power = Self {
            gain,
            row_gain: worst(&rows),
            column_gain: worst(&columns),
            group_gain: 1.0 + (dropped_share * faults.groups.max(1) as f64).sqrt(),
            dropped_share,
            dropped_k: faults.k.map(|k| dropped_share * k as f64),
            swap_share: swap_share(faults.scales, &rows, &columns),
            zero_shift_share,
            code_flip_rate: ((hidden + 1) as f64 / facts.elements.max(1) as f64).min(1.0),
            zeros_caught,
            scale_contrast: faults.scales.iter().map(contrast).fold(f64::INFINITY, f64::min),
            no_power: None,
        };
        power.no_power = power.blindness(facts, faults);
        power
    }

    /// The first reason, if any, why the op's faults cannot show.
    fn blindness(&self, facts: &Facts, faults: &Faults) -> Option<NoPower> {
        let because = |reason: &str, remedy: &str| Some(NoPower::new(reason, remedy));
        let too_wide = |reason: &str, remedy: &str| Some(NoPower { wide: true, ..NoPower::new(reason, remedy) });
        if facts.elements == 0 {
            return because("the output has no element", "a shape without a zero");
        }
        if !facts.finite {
            return because("every ideal value is NaN or Inf", "finite operands and scales");
        }
        if !facts.nonzero {
            return because(
                "every output is zero: no gain, sign, index or layout fault changes it",
                "operands that are not zero",
            );
        }
        if !facts.bounded {
            return because("an intermediate of every element may overflow f32", "smaller operands or scales");
        }
        if !facts.unclipped {
            return because(
                "every output saturates, which hides gains and scales",
                "a smaller output scale or smaller operands",
            );
        }
        if !self.zeros_caught {
            let reason = "an output of zeros would pass: the allowed error is larger than the signal";
            return too_wide(reason, "operands whose products do not cancel, or a more precise accumulator or output");
        }
        if self.gain == f64::INFINITY {
            return too_wide("no element could show a gain of any size", "operands whose products do not cancel");
        }
        faults
            .scales
            .iter()
            .find_map(|s| scale_blindness(s, self.gain))
            .or_else(|| faults.zero_points.iter().find_map(zero_blindness))
    }
}

#[cfg(test)]
mod by_hand;
