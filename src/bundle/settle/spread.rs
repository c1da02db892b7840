//! Whether an error is larger, in distribution, than any right arithmetic of the device makes it on these data.
//!
//! Where no bits decide and every element is inside its certain bound, the bound alone says little: it adds K worst cases of one sign. What
//! right kernels really do is measured: on a region of r × c elements every chain of the device, and f32 sums of factors that are scaled first
//! (their products rounded before they are added, or not; for MX formats also the device's steps that take the scales with the products), sum the products in the order of K, in the reverse, in strides ([`STRIDES`]: lanes
//! and vector loads take every second, fourth, … product) in [`BLOCKS`]
//! that are added one after the other, and in [`ORDERS`] random orders, with scales and bias in every order, and store the
//! result as the kernel did. Where `promote_every` is given, a device's unit starts anew that often in every order. With e the error against the
//! f64 ideal and β the certain radius with half a spacing of the output, w_i is the mean of (e_i/β_i)² over the random orders of the chain with the largest errors, and
//!
//! ```text
//! R² = Σ (e_i/β_i)² / Σ w_i        of the kernel, and of every sum that was made
//! ```
//!
//! **All elements.** Let a right kernel's errors be as large as the largest R² of those sums has them, and sub-Gaussian. Elements that share neither row nor column are
//! of different factors: their errors are taken as independent. The region is the union of max(r, c) diagonals of min(r, c) such elements (equal
//! rows have equal errors: n counts different ones); the mean over
//! it is the mean of the diagonals' means, and by the convexity of exp its tail is no heavier than that of one of them (Janson,
//! *Large deviations for sums of partly dependent random variables*, 2004). For one of them Laurent and Massart (2000, lemma 1) give
//! `P( R² > 1 + 2·√(t/n') + 2t·max w/(n·mean w) ) ≤ e^−t`, `n' = n·(mean w)²/mean w²`; t = ln 10⁹.
//!
//! **One element.** |e_i| over the largest deviation of the region, which [`ORDERS`] = ν sums of an element estimate: `P(|e_i| > x·σ̂) ≤ E exp(−x²σ̂²/2σ²) =
//! (1 + x²/ν)^(−ν/2)`, so with N elements `x² = ν·((N·10⁹)^(2/ν) − 1)`. The kernel may also be that far, times the largest R. An element's own deviation says too little
//! where most sums are exact and a few are not (values of few bits, of both signs): none of its ν sums may have shown it.
//!
//! **Everywhere.** A first place is looked at whatever the errors are. Then the whole result is cut into T tiles, and two of them are looked at in the same
//! way, by right sums of their own factors: the tile with the largest mean of (e/β)² and the one with the largest error. A choice among T costs
//! the chance T times: t = ln(T·10⁹).
//!
//! **Whole weights.** Weights that are dequantized may keep 24 bits: then no product of theirs is exact, though the sums that are made here, of weights rounded
//! to 16 bits, may all be. Each of K additions rounds a partial sum s_k by up to 2⁻²⁴ of it. A product that is there n times errs by the same remainder
//! in all n, so that their errors add up: w_i is at least `(2⁻²⁴)²·Σ_k s_k²/3 · Σ n²/K`, n of every different product. Of random products, all
//! different, that is `(2⁻²⁴)²·K·Σp²/6`.
//!
//! **One rounding.** Where values are of few bits, nearly every sum is exact, and all that were made may be: w_i is at least that of one rounding
//! of a partial sum s, `(2⁻²⁴·s)²/3`. An order that takes all products of one sign first has sums up to half of Σ|p| ≤ √(K·Σp²); where its one rounding is nobody
//! knows, so that s² is a third of the largest: `(2⁻²⁴)²·K·Σp²/36`, and at least Σp²/3. K roundings of sums of random sign are as large. Factors with
//! scales of their own along K are left out: their products have no one size.
//!
//! **What it would see.** A gain g of the whole result adds (g − 1)·d to its errors, and so is seen where (g − 1)·rms(d/β) exceeds the limit by the errors that
//! are there. That is the power of a result whose certain bound is wider than itself.

use super::super::arithmetic::Arithmetic;
use super::cuts::{Cut, Join, Run};
use super::region::Region;
use super::search::{Case, Way};
use super::ways::{Chain, Ending, Promote};
use crate::compare::probable::{DELTA, lambda};
use crate::compare::{Bound, ErrorSize};
use crate::input::philox::Stream;
use crate::job::Operand;
use crate::model::product::{FactorRows, Kind, Problem};
use crate::model::table;
use crate::order::Order as _;
use crate::parallel;
use crate::{Format, Result};
use std::ops::Range;

/// Every how manieth product is taken first.
const STRIDES: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// Random orders of every chain.
const ORDERS: usize = 16;
/// Products of K that are summed by themselves, and their sums added one after the other: on constant data every block errs by the same.
const BLOCKS: [usize; 5] = [8, 16, 32, 64, 128];
/// Products that are summed for it, about.
const BUDGET: usize = 1 << 27;
/// Rows and columns of the tiles of which the worst is looked at, at most.
const TILE: usize = 32;

/// What was found.
pub struct Spread {
    pub size: ErrorSize,
    /// Deviation of a right sum's error over β.
    pub sigma: f64,
}

impl Spread {
    /// How far two right sums of the same factors lie apart at an element, at most: both err by σ·β, sub-Gaussian, so their difference by
    /// √2 of it, and λ of that anywhere among `elements` once in 10⁹ tensors.
    pub fn apart(&self, elements: usize) -> f64 {
        lambda(elements, DELTA) * 2f64.sqrt() * self.sigma
    }
}

/// Compares the kernel's errors with those of right sums. `bound` holds the ideal and β. `None` for integers: their sums are exact, and how a
/// kernel sums what it dequantized is not modelled.
pub fn measure(case: &Case, arithmetic: &Arithmetic, bound: &Bound) -> Result<Option<Spread>> {
    let problems = case.problems();
    let Some(p) = problems.iter().max_by_key(|p| p.a_rows.len().min(p.b_rows.len())) else { return Ok(None) };
    if case.plan.kind == Kind::Integer {
        return Ok(None);
    }
    let mut chains: Vec<Chain> =
        arithmetic.chains.iter().copied().filter(|c| !matches!(c, Chain::Exact | Chain::Pairwise)).collect();
    // A kernel may also scale its factors first: sums of codes can be exact where those of scaled factors round at every step, the factors before that. On constant data a sum errs by
    // the same remainder at every step, which is another one where the product is rounded first.
    if case.has_scales() {
        chains.extend([true, false].map(|fused| Chain::Dequantized { fused }));
        // What cancels in f32 may leave something where steps align products with their scales.
        let e8m0 = |s: &FactorRows| s.scales().is_some_and(|q| q.scale_format() == Format::E8m0);
        let unit = chains.iter().find_map(|c| match c {
            Chain::Unit(name) if table::takes_scales(name) => Some(*name),
            _ => None,
        });
        chains.extend(unit.filter(|_| e8m0(p.a) && e8m0(p.b)).map(Chain::Scaled));
    }
    let promote_every = arithmetic.promote_every.unwrap_or(usize::MAX);
    let errors = Errors { case, bound, endings: case.endings(false), chains, promote_every };
    let elements = looked_at(p.a.k, errors.chains.len());
    let side = (elements as f64).sqrt() as usize;
    let cols = p.b_rows.len().min(side.max(elements / p.a_rows.len().min(side)));
    let rows = p.a_rows.len().min((elements / cols).max(1));
    let first =
        Patch { problem: p.clone(), rows: p.a_rows.start..p.a_rows.start + rows, cols: p.b_rows.start..p.b_rows.start + cols };
    let Some(looked) = errors.look(&first, 1)? else { return Ok(None) };
    let mut size = looked.size(&errors, 1.0);
    // The worst of the other tiles, and the one with the worst element.
    let tile = side.clamp(8, TILE);
    let (count, worst) = errors.worst(&problems, tile);
    for place in worst.into_iter().filter(|w| !first.holds(w)) {
        if size.larger.is_none()
            && let Some(looked) = errors.look(&place, count)?
        {
            size.larger = looked.size(&errors, count as f64).larger;
        }
    }
    Ok(Some(Spread { size, sigma: (looked.mean * looked.right).sqrt() }))
}

/// How many elements of sums of `k` products are looked at. The chains with the largest errors in the order of K are those that are looked at
/// further: two of them, and dequantized factors.
fn looked_at(k: usize, chains: usize) -> usize {
    (BUDGET / (k * (2 * (ORDERS + STRIDES.len() + BLOCKS.len()) + chains))).clamp(64, 1 << 13)
}

/// Rows of A and of B of one dense product.
#[derive(Clone)]
struct Patch<'a> {
    problem: Problem<'a>,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl Patch<'_> {
    fn holds(&self, other: &Patch) -> bool {
        let inside = |a: &Range<usize>, b: &Range<usize>| a.start <= b.start && b.end <= a.end;
        self.problem.out_row == other.problem.out_row && inside(&self.rows, &other.rows) && inside(&self.cols, &other.cols)
    }
}

/// What right sums and the kernel make of one place.
struct Looked {
    chain: Chain,
    /// Where the elements of which something is known are in the whole result, their w_i and the kernel's errors.
    at: Vec<usize>,
    w: Vec<f64>,
    kernel: Vec<f64>,
    /// The mean of w, at least that of a rounding of the output.
    mean: f64,
    /// The largest R² of the sums that were made.
    right: f64,
    /// σ₁², the variance of which the largest error of one element in those sums would be the largest of its kind.
    single: f64,
    /// n.
    diagonal: f64,
}

impl Looked {
    /// How large the kernel's errors are here, one of `tests` places.
    fn size(&self, errors: &Errors, tests: f64) -> ErrorSize {
        let (known, mean, right, n) = (self.at.len() as f64, self.mean, self.right, self.diagonal);
        let squares = self.w.iter().map(|w| w * w).sum::<f64>() / known;
        let most = self.w.iter().copied().fold(0.0, f64::max);
        let found = self.kernel.iter().map(|e| e * e).sum::<f64>() / known / mean;
        let t = (tests / DELTA).ln();
        let limit =
            right * (1.0 + 2.0 * (t / n * (squares / (mean * mean)).max(1.0)).sqrt() + 2.0 * t * (most / mean).max(1.0) / n);
        let nu = ORDERS as f64;
        let elements = if tests > 1.0 { errors.case.bits.len() as f64 } else { known };
        let far = (right * nu * ((elements / DELTA).powf(2.0 / nu) - 1.0)).sqrt();
        let one = (self.at.iter().zip(&self.kernel))
            .map(|(at, e)| (e.abs() / most.max(errors.stored(*at)).max(self.single / right).sqrt(), *at))
            .fold((0.0, 0), |m, x| if x.0 > m.0 { x } else { m });
        let whole =
            format!("its errors are {:.2} times those of {} in any order (root mean square)", found.sqrt(), self.chain.words());
        let once = format!("once in {:.0e} tensors", 1.0 / DELTA);
        let place = |at: usize| (at / errors.case.plan.cols, at % errors.case.plan.cols);
        let larger = if !(found <= limit) {
            let (first, last) = (place(self.at[0]), place(self.at[self.at.len() - 1]));
            let here = format!("in rows {} … {}, columns {} … {} ", first.0, last.0, first.1, last.1);
            let here = if tests > 1.0 { here } else { String::new() };
            Some(format!("{here}{whole}, larger than any right arithmetic makes them: at most {:.2} {once}", limit.sqrt()))
        } else if !(one.0 <= far) {
            let (row, col) = place(one.1);
            let error = format!("({row}, {col}): its error is {:.0} times its deviation", one.0);
            Some(format!("{error}, larger than any right arithmetic makes it: at most {far:.0} {once}"))
        } else {
            None
        };
        // A gain g of the result adds (g − 1)·d to its errors.
        let signal = self.at.iter().map(|at| errors.over(*at, errors.bound.ideal()[*at]).powi(2)).sum::<f64>() / known;
        let gain = 1.0 + ((limit * mean).sqrt() + (found * mean).sqrt()) / signal.sqrt();
        ErrorSize { words: whole, larger, gain: if gain.is_nan() { f64::INFINITY } else { gain } }
    }
}

/// What one sum of every element of a place errs by: all squares, the largest.
struct Sums {
    squares: f64,
    most: f64,
}

impl Sums {
    fn of(errors: &[f64]) -> Self {
        let squares = errors.iter().map(|e| e * e).filter(|e| e.is_finite());
        squares.fold(Self { squares: 0.0, most: 0.0 }, |s, e| Self { squares: s.squares + e, most: s.most.max(e) })
    }
}

struct Errors<'a> {
    case: &'a Case<'a>,
    bound: &'a Bound,
    endings: Vec<Ending>,
    chains: Vec<Chain>,
    /// How many products a device's unit sums, at most, before f32 takes its sum.
    promote_every: usize,
}

impl Errors<'_> {
    /// Sums of a place in every order, and the kernel's errors there, one of `tests` places. `None` where nothing is known.
    fn look(&self, place: &Patch, tests: usize) -> Result<Option<Looked>> {
        let (rows, cols) = (place.rows.clone(), place.cols.clone());
        let mut region = Region::new(&self.case.plan, place.problem.clone(), rows, cols);
        let n = region.different() as f64;
        let kernel = self.of_kernel(&region);
        // A tile whose errors are no larger than the output's rounding can not be too large.
        let stored: Vec<f64> = (0..region.elements()).map(|i| self.stored(region.at(i))).collect();
        if tests > 1 && kernel.iter().zip(&stored).all(|(e, s)| e * e <= 3.0 * s) {
            return Ok(None);
        }
        let k = region.k();
        let natural: Run = std::iter::once(0..k).collect();
        let mut made = Vec::new();
        for chain in &self.chains {
            made.push((*chain, self.in_blocks(&mut region, *chain, &natural, k, 0)?));
        }
        made.order_by(|a, b| Sums::of(&b.1).squares.total_cmp(&Sums::of(&a.1).squares));
        let mut sums: Vec<Sums> = made.iter().map(|m| Sums::of(&m.1)).collect();
        let mut largest: Option<(Chain, Vec<f64>)> = None;
        // Two whose scales meet the sum, however large the errors of scaled factors are: the product of scales may be subnormal, and only those round it.
        let (scaled, plain): (Vec<Chain>, Vec<Chain>) =
            made.iter().map(|(chain, _)| *chain).partition(|chain| chain.scales_first());
        let chosen: Vec<Chain> = plain.into_iter().take(2).chain(scaled).collect();
        let ordered = orders(k);
        let all: Vec<(Chain, &Ordered)> = chosen.iter().flat_map(|chain| ordered.iter().map(|o| (*chain, o))).collect();
        let some = |part: &[(Chain, &Ordered)]| -> Result<Vec<Vec<f64>>> {
            let mut region = Region::new(&self.case.plan, place.problem.clone(), place.rows.clone(), place.cols.clone());
            part.iter().map(|(chain, o)| self.in_blocks(&mut region, *chain, &o.run, o.every, o.nth)).collect()
        };
        let parts: Vec<_> = all.chunks(all.len().div_ceil(rayon::current_num_threads())).collect();
        let errors = parallel::collect(parts.len(), |p| some(parts[p])).into_iter().collect::<Result<Vec<_>>>()?;
        let errors: Vec<Vec<f64>> = errors.into_iter().flatten().collect();
        sums.extend(errors.iter().map(|e| Sums::of(e)));
        for (chain, errors) in chosen.iter().zip(errors.chunks(ordered.len())) {
            let mut w = vec![0.0; region.elements()];
            for (_, e) in ordered.iter().zip(errors).filter(|(o, _)| o.random) {
                w.iter_mut().zip(e).for_each(|(w, e)| *w += e * e / ORDERS as f64);
            }
            if largest.as_ref().is_none_or(|l| l.1.iter().sum::<f64>() < w.iter().sum()) {
                largest = Some((*chain, w));
            }
        }
        let Some((chain, mut w)) = largest else { return Ok(None) };
        // One rounding of a sum in f32, which all that were made may have escaped.
        for (i, squares) in region.squares().into_iter().enumerate() {
            let one =
                self.over(region.at(i), 2f64.powi(-24) * region.scale(i)).powi(2) * (k as f64 / 12.0).max(1.0) * squares / 3.0;
            w[i] = if w[i] < one { one } else { w[i] };
        }
        if self.whole_weights() {
            for (i, drift) in region.drifts().into_iter().enumerate() {
                let f32s = (self.over(region.at(i), 2f64.powi(-24))).powi(2) * drift / 3.0;
                w[i] = if w[i] < f32s { f32s } else { w[i] };
            }
        }
        // Elements of which something is known.
        let known: Vec<usize> = (0..w.len()).filter(|i| w[*i].is_finite() && kernel[*i].is_finite()).collect();
        if known.is_empty() {
            return Ok(None);
        }
        let count = known.len() as f64;
        // Storing a value errs by a twelfth of its squared spacing, also where every sum that was made is exact.
        let mean = known.iter().map(|i| w[*i]).sum::<f64>().max(known.iter().map(|i| stored[*i]).sum::<f64>()) / count;
        let right = sums.iter().fold(1.0f64, |m, s| m.max(s.squares / count / mean));
        let most = sums.iter().fold(0.0f64, |m, s| m.max(s.most));
        let single = most / (2.0 * (sums.len() as f64 * count).max(2.0).ln());
        let of_known = |x: &[f64]| known.iter().map(|i| x[*i]).collect::<Vec<f64>>();
        let at = known.iter().map(|i| region.at(*i)).collect();
        Ok(Some(Looked { chain, at, w: of_known(&w), kernel: of_known(&kernel), mean, right, single, diagonal: n }))
    }

    /// Whether weights may be dequantized to f32, and keep more bits there than the factors that are summed here.
    fn whole_weights(&self) -> bool {
        let quantized = |o: &Operand| matches!(o, Operand::Quantized(_));
        self.case.plan.kind == Kind::Mixed && !self.case.has_scales() && self.case.job.operands.all().any(quantized)
    }

    /// How many tiles of this size there are; the one with the largest mean of squared errors, and the one with the largest error.
    fn worst<'p>(&self, problems: &[Problem<'p>], side: usize) -> (usize, Vec<Patch<'p>>) {
        let n = self.case.plan.cols;
        let cut = |r: &Range<usize>| {
            // A short rest is the end of a whole tile.
            let starts = r.clone().step_by(side).map(|i| i.min(r.end.saturating_sub(side).max(r.start)));
            starts.map(|i| i..r.end.min(i + side)).collect::<Vec<_>>()
        };
        let tiles: Vec<Patch> = (problems.iter())
            .flat_map(|p| {
                let cols = cut(&p.b_rows);
                cut(&p.a_rows).into_iter().flat_map(move |rows| {
                    cols.clone().into_iter().map(move |cols| Patch { problem: p.clone(), rows: rows.clone(), cols })
                })
            })
            .collect();
        let of = |t: &Patch| {
            let (mut sum, mut count, mut most) = (0.0, 0usize, 0.0f64);
            for row in t.rows.clone() {
                let row = (t.problem.out_row + row - t.problem.a_rows.start) * n;
                for col in t.cols.clone() {
                    let at = row + col - t.problem.b_rows.start;
                    let e = self.scaled(at, self.case.bits[at]).powi(2);
                    if e.is_finite() {
                        (sum, count, most) = (sum + e, count + 1, most.max(e));
                    }
                }
            }
            (sum / count.max(1) as f64, most)
        };
        let sizes: Vec<(f64, f64)> = parallel::collect(tiles.len(), |t| of(&tiles[t]));
        let largest =
            |by: &dyn Fn(&(f64, f64)) -> f64| (0..sizes.len()).max_by(|i, j| by(&sizes[*i]).total_cmp(&by(&sizes[*j])));
        let mut found: Vec<usize> = [largest(&|s| s.0), largest(&|s| s.1)].into_iter().flatten().collect();
        found.dedup();
        (tiles.len(), found.into_iter().map(|i| tiles[i].clone()).collect())
    }

    /// `(value − ideal)/β` of one chain that takes the products in this order and starts anew `every` so many; their sums are added in f32.
    fn in_blocks(&self, region: &mut Region, chain: Chain, order: &Run, every: usize, nth: usize) -> Result<Vec<f64>> {
        let ending = self.endings[nth % self.endings.len()];
        let (join, cut) = (Join::Order(vec![0]), Cut::Whole);
        let of_unit = matches!(chain, Chain::Unit(_) | Chain::Widened(..) | Chain::Scaled(_));
        let every = if of_unit { every.min(self.promote_every) } else { every };
        let way = Way { chain, promote: Some(Promote::f32(every)), cut, join, ending };
        let mut errors = Vec::with_capacity(region.elements());
        self.case.each_of(region, &way, std::slice::from_ref(order), |at, value| {
            errors.push(self.scaled(at, self.case.store.bits(value, false)));
            true
        })?;
        region.forget();
        Ok(errors)
    }

    fn of_kernel(&self, region: &Region) -> Vec<f64> {
        (0..region.elements()).map(|i| self.scaled(region.at(i), self.case.bits[region.at(i)])).collect()
    }

    /// The variance of a rounding of the output, over β².
    fn stored(&self, at: usize) -> f64 {
        let spacing = self.bound.out().spacing(at, self.bound.ideal()[at]);
        (spacing / (self.bound.certain()[at] + 0.5 * spacing)).powi(2) / 12.0
    }

    /// NaN where nothing is known, which factors were multiplied among it.
    fn scaled(&self, at: usize, bits: u32) -> f64 {
        if self.bound.is_undecided(at) {
            return f64::NAN;
        }
        let d = self.bound.ideal()[at];
        self.over(at, self.case.store.value(bits) - d)
    }

    /// An error over β.
    fn over(&self, at: usize, error: f64) -> f64 {
        let radius = self.bound.certain()[at] + 0.5 * self.bound.out().spacing(at, self.bound.ideal()[at]);
        if radius.is_finite() && radius > 0.0 { error / radius } else { f64::NAN }
    }
}

/// How a chain takes the products: in this order, starting anew `every` so many.
struct Ordered {
    run: Run,
    every: usize,
    /// Which ending it has.
    nth: usize,
    random: bool,
}

/// The reverse order, strides, blocks, random orders.
fn orders(k: usize) -> Vec<Ordered> {
    let of = |run: Run, every: usize, nth: usize, random: bool| Ordered { run, every, nth, random };
    let mut all = vec![of((0..k).rev().map(|k| k..k + 1).collect(), k, 1, false)];
    for (nth, s) in STRIDES.into_iter().filter(|s| *s < k).enumerate() {
        all.push(of((0..s).flat_map(|first| (first..k).step_by(s)).map(|k| k..k + 1).collect(), k, nth, false));
    }
    all.extend(BLOCKS.into_iter().filter(|b| *b < k).enumerate().map(|(nth, every)| of(vec![0..k], every, nth, false)));
    all.extend((0..ORDERS).map(|nth| of(order(k, nth), k, nth, true)));
    all
}

/// The `nth` random order of `k` products (Fisher and Yates).
fn order(k: usize, nth: usize) -> Run {
    let stream = Stream::new(k as u64, nth as u32);
    let mut order: Vec<usize> = (0..k).collect();
    for i in (1..k).rev() {
        order.swap(i, stream.words(0, i as u64)[0] as usize % (i + 1));
    }
    order.into_iter().map(|k| k..k + 1).collect()
}

#[cfg(test)]
mod tests;
