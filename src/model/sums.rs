//! How far each sum of a product may be from its exact value, from what is known of its row and its column.
//!
//! [`super::bound`] is relative to Σ|ab| and holds for any factors. Here the factors are known: each of a's rows and b's rows is a
//! [`Line`], read once, and an element is bounded from its two lines, its exact sum d and its magnitude S = Σ|ab|, all in the units of the
//! factors (codes without their scales).
//!
//! **Partial sums.** The sum of any subset of the products lies between −S⁻ and S⁺, the sums of one sign, whatever the order, so it is at
//! most `P = max(S⁺, S⁻) = (S + |d|)/2`. A computed partial sum is that of its subset and the errors so far: at most P + E when E bounds
//! the errors of the whole. With e the exponent for which `P + E(e) < 2^(e+1)`, every computed partial sum is below 2^(e+1), by induction
//! over the additions: the errors so far are at most E(e) because each was made at a sum below 2^(e+1). The smallest such e is taken.
//!
//! **To nearest in f32.** An addition whose result is below 2^(e+1) is off by at most half a spacing, `h = 2^(max(e, −126) − 24)`, and n = (number of
//! products that are not zero) − 1 additions round, in any tree (one more each where products round too): `E(e) = n·h`. Products that are multiples of
//! 2^l with l ≥ e − 23 have exact sums: E = 0. Products with bits below 2^-149 lose 2^-150 each. Where scales may have been applied to the factors first (an assumption, with scaled operands), the
//! sums are in other units: then `E = ((1+u)^n − 1)·P` for every unit.
//!
//! **Block steps T(W, F, O).** The largest exponent of a step is at most `t = max(e, e_a + e_b, −126 or −14, floor)`, e_a and e_b the largest of the
//! lines (of a subnormal number that of its format, since it is not renormalised); −126 or −14 is that of a subnormal accumulator. With q = 2^(t−F):
//!
//! ```text
//! a product is truncated once: it loses at most q − 2^l, l the lowest bit of a product (nothing where l ≥ t − F)
//! c loses < 2^(max(e_a + e_b, floor) − F) a step: it has O ≤ F fraction bits, so that it loses nothing where its exponent is the largest
//! the sum loses < 2^(max(e, −126) − O) a step toward zero, at most 2^(max(e, −14) − 11) to nearest in f16
//! a part that is added in f32 costs 2^(max(e, −126) − 24)
//! E(e) = count·(q − 2^l) + steps·(…) + steps·(…) + adds·(…)
//! ```
//!
//! All terms of one sign is the worst case. Truncations alone never bring a sum above S, so e ≤ ⌊log2 S⌋ ends the search where E does not.
//! An f16 accumulator that may reach 65,520, or an f32 beyond its range, has no bound: such an element is not judged.
//!
//! **In the order of K** a model adds neighbouring runs of products only, so its partial sums are at most the largest sum of a run
//! ([`super::runs`]), which takes the place of P.
//!
//! **In any order** costs, against the order of K: P instead of the largest partial sum of that order (K/√K for signs at random); as many steps
//! again, and as many f32 additions as there are steps, for the parts of a split.
//!
//! **Probable.** What an addition loses depends on the low bits of what is added, so equal products lose the same: sequences of one value are
//! lost K times over. The model takes losses as independent between different products, and as one where products are equal: with m_v products of
//! value v the deviation is `√(Σ m_v²)·h ≤ √(count·m)·h`. `Σm_v²` is bounded by that of the row and of the column, the smaller one. To nearest has mean
//! zero but for products below a spacing, which are lost whole, always toward zero: `small·h`, where small counts them by the exponents of row and column.
//! Truncation has mean half of what it can lose, and all of it for small products. No assumption is made of signs.

use super::mma::{Dest, Step};
use super::table::{self, Unit};
use super::{Accumulator, Factors, Inner, lowered};
use crate::compare::probable::U32;
use crate::compare::{Accumulation, SumError, SumRadius};
use crate::format::exp2i;
use crate::parallel;
use crate::tensor::afar;
use crate::{Format, QTensor, Result};
use std::sync::Arc;

/// Exponents below the largest that are counted one by one.
const BINS: usize = 48;

/// What is read of one row of factors.
#[derive(Clone, Debug)]
struct Line {
    /// Numbers that are neither zero nor special.
    count: u32,
    /// Largest exponent as a tensor core has it: a subnormal number's is that of its format.
    top: i32,
    /// Largest exponent of the magnitudes, and the exponent of the lowest bit that is set anywhere.
    largest: i32,
    lowest: i32,
    /// Σ m² / count², m how often each magnitude occurs (to 12 bits).
    repeats: f64,
    /// How many have an exponent of at most `largest − i`; the same from the last `i` on, `2·BINS − 1` to 0.
    at_most: [u32; BINS],
    reversed: [u32; 2 * BINS],
}

/// One side's factors, row by row.
#[derive(Clone, Debug)]
pub struct Lines(Vec<Line>);

fn exponent(x: f64) -> i32 {
    (x.abs().to_bits() >> 52) as i32 - 1023
}

/// ⌊log2 x⌋ of a positive number, a little above it where x is a rounded result just below a power of two.
fn exponent_of(x: f64) -> i32 {
    exponent(x * (1.0 + 1e-12)).max(-1022)
}

impl Lines {
    /// `rows` rows of `k` factors of `format`; `fill` writes one. Numbers that are not finite are left out: their sums have no error.
    pub fn of(format: Format, rows: usize, k: usize, fill: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        let line = |i: usize| {
            let mut row = vec![0.0f32; k];
            fill(i, &mut row);
            row.retain(|x| *x != 0.0 && x.is_finite());
            Line::of(format, &mut row)
        };
        Self(parallel::collect(rows, line))
    }

    /// [`Lines::of`] of codes without their scales, each row from how often each code occurs in it.
    pub fn of_codes(q: &QTensor) -> Self {
        Self::and_factors(q).0
    }

    /// The same, and [`Factors::of_codes`].
    pub(crate) fn and_factors(q: &QTensor) -> (Self, Factors) {
        let format = q.format();
        let mut values: Vec<(usize, f32)> = (0..256).map(|c| (c as usize, format.decode(c) as f32)).collect();
        values.sort_by_key(|(_, x)| x.abs().to_bits());
        let cols = q.cols().max(1);
        let line = |i: usize| {
            let counts = q.seen().map_or_else(|| afar::counts(&q.codes()[i * cols..(i + 1) * cols]), |seen| seen.rows[i]);
            let there = values.iter().map(|(c, x)| (*x, counts[*c])).filter(|(_, n)| *n > 0);
            let there: Vec<(f32, u32)> = there.collect();
            (Line::of_counts(format, &there), Factors::of(format, there.iter().map(|(x, _)| f64::from(*x))))
        };
        let (lines, factors): (Vec<Line>, Vec<Factors>) = parallel::collect(q.count() / cols, line).into_iter().unzip();
        (Self(lines), factors.into_iter().fold(Factors::of(format, []), Factors::and))
    }

    /// [`Lines::and_factors`], found once for all copies of a tensor.
    pub(crate) fn once(q: &QTensor) -> Arc<(Self, Factors)> {
        q.found().or_make(|| Ok(Self::and_factors(q))).expect("it cannot fail")
    }

    /// As a GPU reads them, line after line of one fact: count, top, largest, lowest, `at_most`; and the repeats.
    pub(crate) fn laid_out(&self) -> (Vec<i32>, Vec<f64>) {
        let fact = |of: &dyn Fn(&Line) -> i32| self.0.iter().map(of).collect::<Vec<_>>();
        let mut all = [fact(&|l| l.count as i32), fact(&|l| l.top), fact(&|l| l.largest), fact(&|l| l.lowest)].concat();
        (0..BINS).for_each(|i| all.extend(self.0.iter().map(|l| l.at_most[i] as i32)));
        (all, self.0.iter().map(|l| l.repeats).collect())
    }
}

impl Line {
    /// Of values that each occur so often, sorted by their magnitudes.
    fn of_counts(format: Format, there: &[(f32, u32)]) -> Self {
        let there = || there.iter().filter(|(x, _)| *x != 0.0 && x.is_finite());
        let mut line = Self::extremes(format, there().map(|(x, _)| *x));
        line.count = there().map(|(_, n)| n).sum();
        let mut bins = [0u32; BINS];
        there().for_each(|(x, n)| bins[((line.largest - exponent(f64::from(*x))) as usize).min(BINS - 1)] += n);
        line.spread(&bins);
        // Σ m² of magnitudes: a narrow float has as many codes of one as signs. From +0: the sum of nothing is −0.
        let (mut squares, mut before, mut occurs) = (0.0, 0.0f32, 0u32);
        for (x, n) in there() {
            if x.abs() != before {
                squares += f64::from(occurs).powi(2);
                (before, occurs) = (x.abs(), 0);
            }
            occurs += n;
        }
        squares += f64::from(occurs).powi(2);
        line.repeats = squares / f64::from(line.count).powi(2).max(1.0);
        line
    }

    /// Sums of the counts of exponents.
    fn spread(&mut self, bins: &[u32; BINS]) {
        let mut sum = 0;
        for i in (0..BINS).rev() {
            sum += bins[i];
            self.at_most[i] = sum;
        }
        self.reversed = std::array::from_fn(|j| self.at_most[(2 * BINS - 1 - j).min(BINS - 1)]);
    }

    /// The exponents that numbers have, and nothing else.
    fn extremes(format: Format, row: impl Iterator<Item = f32>) -> Self {
        let least = if format.is_integer() { i32::MIN / 4 } else { format.min_exponent() };
        let (mut top, mut largest, mut lowest) = (i32::MIN / 4, i32::MIN / 4, i32::MAX / 4);
        for x in row {
            let e = exponent(f64::from(x));
            let mantissa = f64::from(x).to_bits() & ((1 << 52) - 1) | 1 << 52;
            (largest, top) = (largest.max(e), top.max(e.max(least)));
            lowest = lowest.min(e - 52 + mantissa.trailing_zeros() as i32);
        }
        Self { count: 0, top, largest, lowest, repeats: 0.0, at_most: [0; BINS], reversed: [0; 2 * BINS] }
    }

    fn of(format: Format, row: &mut [f32]) -> Self {
        let mut line = Self::extremes(format, row.iter().copied());
        line.count = row.len() as u32;
        let mut bins = [0u32; BINS];
        row.iter().for_each(|x| bins[((line.largest - exponent(f64::from(*x))) as usize).min(BINS - 1)] += 1);
        line.spread(&bins);
        let squares = repeats(row);
        line.repeats = squares / (row.len() as f64).powi(2).max(1.0);
        line
    }
}

/// Σ m², m how often each magnitude occurs to 12 bits of its mantissa: whole numbers, so in any order.
fn repeats(row: &mut [f32]) -> f64 {
    const NARROW: u32 = 20;
    let bits = |x: &f32| x.abs().to_bits();
    if row.iter().all(|x| bits(x) & ((1 << NARROW) - 1) == 0) {
        // Three bits of mantissa, as codes have: as few magnitudes as there are counters.
        let mut counts = [0u32; 1 << (31 - NARROW)];
        row.iter().for_each(|x| counts[(bits(x) >> NARROW) as usize] += 1);
        // Each of m numbers alike adds m.
        return row.iter().map(|x| u64::from(counts[(bits(x) >> NARROW) as usize])).sum::<u64>() as f64;
    }
    row.sort_unstable_by_key(bits);
    row.chunk_by(|a, b| bits(a) >> 12 == bits(b) >> 12).map(|c| (c.len() as f64).powi(2)).sum()
}

/// How many products of two lines can be below 2^limit. One that is has exponents e_a + e_b ≤ limit − 1, so for every x an e_a ≤ x or an
/// e_b ≤ limit − 2 − x.
fn smaller(a: &Line, b: &Line, limit: i32) -> u32 {
    let depth = a.largest + b.largest + 2 - limit;
    let all = a.count.min(b.count);
    if depth <= 0 {
        return all;
    }
    let last = 2 * BINS - 1;
    if depth as usize >= last {
        return (a.at_most[BINS - 1] + b.at_most[BINS - 1]).min(all);
    }
    let depth = depth as usize;
    let both = a.at_most[..=depth.min(BINS - 1)].iter().zip(&b.reversed[last - depth..]);
    both.map(|(a, b)| a + b).min().unwrap_or(all).min(all)
}

/// One arithmetic a sum may have had.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Rounded once.
    Once,
    /// f32 additions to nearest, in order of K or in `any`; `units`: of whatever units. `depth`: no product passes more roundings than that.
    Nearest { inexact: bool, any: bool, units: bool, depth: Option<usize> },
    /// Block steps, in order of K or in `any`, and additions of what several chains of them give.
    Steps { step: Step, steps: usize, adds: usize, any: bool, widened: bool },
}

/// A single chain of block steps that keeps to the order of K, as a GPU reads it.
pub(crate) struct Chain {
    pub step: Step,
    pub steps: usize,
    pub adds: usize,
    pub relative: Accumulation,
}

/// The bound of every sum of a product whose scales do not change along K: see the module.
#[derive(Debug)]
pub struct SumBound<'a> {
    ways: Vec<Way>,
    a: &'a Lines,
    b: &'a Lines,
    /// As f16, for instructions that widen their factors.
    widened: Option<(Lines, Lines)>,
    /// What the products of a row, and of a column, of the result are multiplied by; empty: 1.
    pub scale_a: Vec<f64>,
    pub scale_b: Vec<f64>,
    /// The row of b that column 0 meets in each row of the result; empty: 0.
    pub first_b: Vec<usize>,
    /// Of an accumulator that keeps to the order of K: the largest sum of a run of products ([`super::runs`]) of each element, row-major, in units of the
    /// factors, and columns a row.
    runs: Option<(Vec<f64>, usize)>,
    /// What holds of the same sums relative to their Σ|ab|: the smaller of the two is taken.
    relative: Option<Accumulation>,
}

/// The arithmetics of an accumulator, for products of `fa` and `fb` along `k`.
fn ways(acc: &Accumulator, k: usize, fa: Format, fb: Format, units: bool) -> Result<Vec<Way>> {
    let digits = |f: Format| if f.is_integer() { f.bits() } else { f.spec().mantissa + 1 };
    let inexact = digits(fa) + digits(fb) > 24;
    let nearest = |any, units| Way::Nearest { inexact, any, units, depth: None };
    let chunk = acc.promote_every.unwrap_or(k).min(k).max(1);
    let chunks = k.div_ceil(chunk);
    // Splits: as many parts, added in f32, and as many steps again for the parts' ends.
    let steps = |unit: Unit, free: bool| {
        let times = if free { 2 } else { 1 };
        match unit {
            Unit::Step(step) => {
                let steps = times * (k / chunk * chunk.div_ceil(step.w) + (k % chunk).div_ceil(step.w));
                Way::Steps { step, steps, adds: if free { steps } else { chunks - 1 }, any: free, widened: false }
            }
            Unit::Lowered(step) => {
                let instructions = times * (k / chunk * chunk.div_ceil(lowered::K) + (k % chunk).div_ceil(lowered::K));
                Way::Steps { step, steps: 2 * instructions, adds: 2 * instructions + chunks, any: free, widened: true }
            }
        }
    };
    let of_table = |one: Option<&str>| {
        let taken = table::MODELS.iter().filter(|m| one.map_or(!m.name.ends_with("_f16"), |name| m.name == name));
        let mut ways = vec![nearest(true, units)];
        for way in taken.filter_map(|m| m.unit(fa, fb).ok()).map(|u| steps(u, true)) {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        ways
    };
    Ok(match acc.inner {
        Inner::Int32 => Vec::new(),
        Inner::Exact if chunks == 1 => vec![Way::Once],
        // A product passes the rounding of its chunk's sum and those of the additions of chunks.
        Inner::Exact => vec![Way::Nearest { inexact, any: false, units: false, depth: Some(chunks) }],
        Inner::F32Sequential => vec![nearest(false, false)],
        Inner::F32Pairwise => {
            let depth = chunk.next_power_of_two().trailing_zeros() as usize + usize::from(inexact) + chunks - 1;
            vec![Way::Nearest { inexact, any: false, units: false, depth: Some(depth) }]
        }
        Inner::AnyOrder => vec![nearest(true, units)],
        Inner::AnyOf(m) => of_table(Some(m.name)),
        Inner::AnyUnit => of_table(None),
        Inner::Mma(m) => vec![steps(table::find(m.name)?.unit(fa, fb)?, false)],
    })
}

impl<'a> SumBound<'a> {
    /// Of sums of `k` products. `scaled`: the operands have scales, which an assumed kernel may apply before it multiplies. Errors: formats
    /// that the accumulator does not take.
    pub fn new(acc: &Accumulator, k: usize, a: (Format, &'a Lines), b: (Format, &'a Lines), scaled: bool) -> Result<Self> {
        acc.check(a.0, b.0)?;
        let ways = ways(acc, k, a.0, b.0, scaled)?;
        let widen = |lines: &Lines| Lines(lines.0.iter().map(|l| Line { top: l.largest.max(-14), ..l.clone() }).collect());
        let any = ways.iter().any(|w| matches!(w, Way::Steps { widened: true, .. }));
        let widened = any.then(|| (widen(a.1), widen(b.1)));
        Ok(Self {
            ways,
            a: a.1,
            b: b.1,
            widened,
            scale_a: Vec::new(),
            scale_b: Vec::new(),
            first_b: Vec::new(),
            runs: None,
            relative: None,
        })
    }
}

impl SumBound<'_> {
    /// The one chain of block steps that says all of these sums; `None` where they need more.
    pub(crate) fn chain(&self) -> Option<Chain> {
        match (self.ways.as_slice(), self.relative) {
            ([Way::Steps { step, steps, adds, any: false, widened: false }], Some(relative))
                if step.dest != Dest::F16 && self.runs.is_none() =>
            {
                Some(Chain { step: *step, steps: *steps, adds: *adds, relative })
            }
            _ => None,
        }
    }
    /// Both sides' lines.
    pub(crate) fn lines(&self) -> (&Lines, &Lines) {
        (self.a, self.b)
    }
    /// Whether a bound follows from the order of K: [`SumBound::in_runs`] says more.
    pub fn keeps_order(&self) -> bool {
        self.ways.iter().any(Way::keeps_order)
    }
    /// With the largest sums of runs of products, `cols` a row of the result. An accumulator that does not keep to the order of K leaves them aside.
    pub fn in_runs(self, runs: Vec<f64>, cols: usize) -> Self {
        Self { runs: Some((runs, cols)), ..self }
    }
    /// With the bound of the same sums that is relative to Σ|ab| ([`super::accumulation_bound`]), in the units of the factors. Both hold.
    /// Σ|ab| says more where a row's largest number never meets a column's, and where products do not meet the sum before them: the lowered
    /// fp8 instruction starts each from 0.
    pub fn and_relative(self, relative: Accumulation) -> Self {
        Self { relative: Some(relative), ..self }
    }
}

impl SumError for SumBound<'_> {
    fn at(&self, row: usize, column: usize, sum: f64, magnitude: f64) -> SumRadius {
        let at_b = self.first_b.get(row).copied().unwrap_or(0) + column;
        let scale = |s: &[f64], i: usize| s.get(i).map_or(1.0, |s| s.abs());
        let unit = scale(&self.scale_a, row) * scale(&self.scale_b, at_b);
        // Nothing times zero; a scale that is not finite makes a result that is not.
        if !(unit > 0.0 && unit.is_finite() && magnitude > 0.0) {
            return SumRadius::default();
        }
        let (d, s) = (sum.abs() / unit, magnitude / unit);
        let mut widest = SumRadius::default();
        let partial = 0.5 * (s + d);
        let run = self.runs.as_ref().map_or(f64::INFINITY, |(r, cols)| r[row * cols + column] * (1.0 + 1e-12) + 1e-12 * s);
        for way in &self.ways {
            let (a, b) = match (way, &self.widened) {
                (Way::Steps { widened: true, .. }, Some((a, b))) => (&a.0[row], &b.0[at_b]),
                _ => (&self.a.0[row], &self.b.0[at_b]),
            };
            let r = way.radius(a, b, d, s, if way.keeps_order() { partial.min(run) } else { partial });
            widest = widest.or(r);
        }
        if let Some(relative) = &self.relative
            && widest.certain.is_finite()
        {
            let most = relative.at(row, column, d, s).certain;
            widest = SumRadius { certain: widest.certain.min(most), drift: widest.drift.min(most), ..widest };
        }
        SumRadius { certain: widest.certain * unit, drift: widest.drift * unit, variance: widest.variance * unit * unit }
    }
}

impl Way {
    /// Whether its partial sums are of consecutive products.
    fn keeps_order(&self) -> bool {
        match *self {
            Way::Once => false,
            Way::Nearest { any, .. } => !any,
            // The two halves of a lowered instruction interleave.
            Way::Steps { any, widened, .. } => !any && !widened,
        }
    }

    /// In the units of the factors: d = |Σab|, s = Σ|ab|, no partial sum above `partial`.
    fn radius(&self, a: &Line, b: &Line, d: f64, s: f64, partial: f64) -> SumRadius {
        let none = SumRadius::default();
        let unknown = SumRadius { certain: f64::INFINITY, drift: f64::INFINITY, variance: 0.0 };
        let count = f64::from(a.count.min(b.count));
        let alike = (count * a.repeats.min(b.repeats)).max(1.0);
        let low = a.lowest + b.lowest;
        if count == 0.0 {
            return none;
        }
        match *self {
            Way::Once => SumRadius { certain: U32 * d + exp2i(-150), drift: U32 * d + exp2i(-150), variance: 0.0 },
            Way::Nearest { inexact, units, depth, .. } => {
                let roundings = count - 1.0 + if inexact { count } else { 0.0 };
                let grown = |n: f64| (n * U32.ln_1p()).exp_m1();
                // Products with bits below f32's last.
                let underflow = if low < -149 { count * exp2i(-150) } else { 0.0 };
                let first = exponent_of(partial);
                let (e, h, certain) = if units {
                    (first, U32 * partial * (1.0 + grown(roundings)), partial * grown(roundings))
                } else {
                    if first <= 127 && low >= first - 23 && low >= -149 {
                        return none;
                    }
                    let spacing = |e: i32| exp2i(e.max(-126) - 24);
                    let Some(e) = (first..=127).find(|e| partial + roundings * spacing(*e) < exp2i(e + 1)) else {
                        return unknown;
                    };
                    (e, spacing(e), roundings * spacing(e))
                };
                let flat = depth.map_or(f64::INFINITY, |d| grown(d as f64) * s);
                let small = f64::from(smaller(a, b, if units { e - 22 } else { e - 23 })) * if inexact { 2.0 } else { 1.0 };
                SumRadius {
                    certain: certain.min(flat) + underflow,
                    drift: small.min(roundings) * h + underflow,
                    variance: roundings * alike * if inexact { 2.0 } else { 1.0 } * h * h,
                }
            }
            Way::Steps { step, steps, adds, .. } => {
                let half = step.dest == Dest::F16;
                let (fraction, least) = match step.dest {
                    Dest::F32 { fraction } => (fraction as i32, -126),
                    Dest::F16 => (10, -14),
                };
                let (f, floor) = (step.f as i32, step.floor);
                let products = (a.top + b.top).max(floor);
                let steps = (steps as f64).min(2.0 * count);
                let adds = (adds as f64).min(2.0 * count);
                let top = |e: i32| products.max(e).max(least);
                // Of a term, of c, of the rounded sum, of an addition of parts.
                let losses = |e: i32| {
                    let term = (exp2i(top(e) - f) - exp2i(low.clamp(-1000, 1000))).max(0.0);
                    let out = exp2i(e.max(least) - fraction - i32::from(half));
                    let add = if half { out } else { exp2i(e.max(-126) - 24) };
                    (term, exp2i(products - f), out, add)
                };
                let error = |e: i32| {
                    let (term, c, out, add) = losses(e);
                    count * term + steps * (c + out) + adds * add
                };
                let (first, last) = (exponent_of(partial), exponent_of(s * (1.0 + adds * 2.0 * U32)));
                let most = if half { 15 } else { 127 };
                if first <= most && low >= (top(first) - f).max(first - fraction) && low >= least - fraction {
                    return none;
                }
                let ends = |e: i32| partial + error(e) < exp2i(e + 1) || (!half && e >= last);
                let Some(e) = (first.min(most)..=most).find(|e| ends(*e)) else { return unknown };
                if first > most || (half && partial + error(e) >= 65520.0) {
                    return unknown;
                }
                let (term, c, out, add) = losses(e);
                // A truncated sum is never above S.
                let certain = if half { error(e) } else { error(e).min((s + d) * (1.0 + 1e-5) + steps * exp2i(-149)) };
                let small = f64::from(smaller(a, b, top(e) - f));
                let leaning = if half { steps * c } else { steps * (c + out) };
                SumRadius {
                    certain,
                    drift: 0.5 * ((count + small) * term + leaning),
                    variance: alike
                        * (count * (0.5 * term).powi(2)
                            + steps * (0.5 * c + if half { out } else { 0.5 * out }).powi(2)
                            + adds * add * add),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small products are counted without looking at each: never fewer than there are, for factors of any exponents.
    #[test]
    fn each_code_is_counted_once() {
        for length in [0, 1, 3, 4, 1027] {
            let row: Vec<u8> = (0..length).map(|i: u32| (i * i / 5) as u8).collect();
            let one_by_one = row.iter().fold([0u32; 256], |mut counts, c| {
                counts[usize::from(*c)] += 1;
                counts
            });
            assert_eq!(afar::counts(&row), one_by_one);
        }
    }

    #[test]
    fn no_small_product_is_left_out_of_the_count() {
        for (wide, seed) in [(3, 1u32), (20, 2), (60, 3), (110, 4)] {
            let mut word = seed;
            let mut line = || -> Vec<f32> {
                let mut next = || {
                    word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    word >> 8
                };
                (0..64).map(|_| (1.0 + next() as f32 / 2f32.powi(24)) * 2f32.powi(-(next() as i32 % wide))).collect()
            };
            let (a, b) = (line(), line());
            let of = |x: &[f32]| Line::of(Format::F32, &mut x.to_vec());
            for limit in -240..8 {
                let there = a.iter().zip(&b).filter(|(a, b)| f64::from(**a) * f64::from(**b) < 2f64.powi(limit)).count();
                let counted = smaller(&of(&a), &of(&b), limit) as usize;
                assert!(there <= counted && counted <= 64, "2^{limit}, {wide} binades: {there} are, {counted} counted");
            }
        }
    }
}

mod codes;
pub(crate) use codes::Magnitudes;

#[cfg(test)]
mod by_hand;
