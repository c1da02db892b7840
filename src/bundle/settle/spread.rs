//! Whether an error is larger, in distribution, than any right arithmetic of the device makes it on these data.
//!
//! Where no bits decide and every element is inside its certain bound, the bound alone says little: it adds K worst cases of one sign. What
//! right kernels really do is measured: on a region of r × c elements every chain of the device sums the products in the order of K, in the
//! reverse, in strides ([`STRIDES`]: lanes and vector loads take every second, fourth, … product) and in [`ORDERS`] random orders, with scales and bias in every order, and stores the result as the kernel did. With e the error against the
//! f64 ideal and β the certain radius with half a spacing of the output, w_i is the mean of (e_i/β_i)² over the random orders of the chain with the largest errors, and
//!
//! ```text
//! R² = Σ (e_i/β_i)² / Σ w_i        of the kernel, and of every sum that was made
//! ```
//!
//! **All elements.** Let a right kernel's errors be as large as the largest R² of those sums has them, and sub-Gaussian. Elements that share neither row nor column are
//! of different factors: their errors are taken as independent. The region is the union of max(r, c) diagonals of n = min(r, c) such elements; the mean over
//! it is the mean of the diagonals' means, and by the convexity of exp its tail is no heavier than that of one of them (Janson,
//! *Large deviations for sums of partly dependent random variables*, 2004). For one of them Laurent and Massart (2000, lemma 1) give
//! `P( R² > 1 + 2·√(t/n') + 2t·max w/(n·mean w) ) ≤ e^−t`, `n' = n·(mean w)²/mean w²`; t = ln 10⁹.
//!
//! **One element.** |e_i| over the largest deviation of the region, which [`ORDERS`] = ν sums of an element estimate: `P(|e_i| > x·σ̂) ≤ E exp(−x²σ̂²/2σ²) =
//! (1 + x²/ν)^(−ν/2)`, so with N elements `x² = ν·((N·10⁹)^(2/ν) − 1)`. The kernel may also be that far, times the largest R. An element's own deviation says too little
//! where most sums are exact and a few are not (values of few bits, of both signs): none of its ν sums may have shown it.

use super::super::arithmetic::Arithmetic;
use super::cuts::{Cut, Join, Run};
use super::region::Region;
use super::search::{Case, Way};
use super::ways::Chain;
use crate::Result;
use crate::compare::Bound;
use crate::compare::probable::{DELTA, lambda};
use crate::input::philox::Stream;
use crate::model::product::Kind;

/// Every how manieth product is taken first.
const STRIDES: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// Random orders of every chain.
const ORDERS: usize = 16;
/// Products that are summed for it, about.
const BUDGET: usize = 1 << 27;

/// What was found.
pub struct Spread {
    /// The size of the kernel's errors, in words; why they are larger than those of right sums, where they are.
    pub words: String,
    pub larger: Option<String>,
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
    // A kernel may also scale its factors first: sums of codes can be exact where those of scaled factors round at every step, the factors before that.
    if case.has_scales() {
        chains.push(Chain::Dequantized);
    }
    // The chains with the largest errors in the order of K are those that are looked at further: two of them, and dequantized factors.
    let elements = (BUDGET / (p.a.k * (2 * (ORDERS + STRIDES.len()) + chains.len()))).clamp(64, 1 << 13);
    let side = (elements as f64).sqrt() as usize;
    let cols = p.b_rows.len().min(side.max(elements / p.a_rows.len().min(side)));
    let rows = p.a_rows.len().min((elements / cols).max(1));
    let (r, c) = (p.a_rows.start..p.a_rows.start + rows, p.b_rows.start..p.b_rows.start + cols);
    let mut region = Region::new(&case.plan, p.clone(), r, c);
    let errors = Errors { case, bound, endings: case.endings(false) };
    let k = p.a.k;
    let natural: Run = std::iter::once(0..k).collect();
    let reversed: Run = (0..k).rev().map(|k| k..k + 1).collect();
    let mut made = Vec::new();
    for chain in &chains {
        made.push((*chain, errors.of(&mut region, *chain, &natural, 0)?));
    }
    let size = |e: &[f64]| e.iter().map(|e| e * e).filter(|e| e.is_finite()).sum::<f64>();
    made.sort_by(|a, b| size(&b.1).total_cmp(&size(&a.1)));
    let mut sums: Vec<f64> = made.iter().map(|m| size(&m.1)).collect();
    let mut largest: Option<(Chain, Vec<f64>)> = None;
    for (_, (chain, _)) in made.iter().enumerate().filter(|(nth, (chain, _))| *nth < 2 || *chain == Chain::Dequantized) {
        sums.push(size(&errors.of(&mut region, *chain, &reversed, 1)?));
        for (nth, s) in STRIDES.into_iter().filter(|s| *s < k).enumerate() {
            let order: Run = (0..s).flat_map(|first| (first..k).step_by(s)).map(|k| k..k + 1).collect();
            sums.push(size(&errors.of(&mut region, *chain, &order, nth)?));
        }
        let mut w = vec![0.0; region.elements()];
        for nth in 0..ORDERS {
            let e = errors.of(&mut region, *chain, &order(k, nth), nth)?;
            sums.push(size(&e));
            w.iter_mut().zip(&e).for_each(|(w, e)| *w += e * e / ORDERS as f64);
        }
        if largest.as_ref().is_none_or(|l| l.1.iter().sum::<f64>() < w.iter().sum()) {
            largest = Some((*chain, w));
        }
    }
    let Some((chain, w)) = largest else { return Ok(None) };
    let kernel = errors.of_kernel(&region);
    // Elements of which something is known.
    let known: Vec<usize> = (0..w.len()).filter(|i| w[*i].is_finite() && kernel[*i].is_finite()).collect();
    let total: f64 = known.iter().map(|i| w[*i]).sum();
    let n = rows.min(cols) as f64;
    if known.is_empty() {
        return Ok(None);
    }
    // Storing a value errs by a twelfth of its squared spacing, also where every sum that was made is exact.
    let stored: Vec<f64> = (0..w.len()).map(|i| errors.stored(region.at(i))).collect();
    let mean = (total / known.len() as f64).max(known.iter().map(|i| stored[*i]).sum::<f64>() / known.len() as f64);
    let squares = known.iter().map(|i| w[*i] * w[*i]).sum::<f64>() / known.len() as f64;
    let most = known.iter().map(|i| w[*i]).fold(0.0, f64::max);
    let right = sums.iter().fold(1.0f64, |m, s| m.max(s / known.len() as f64 / mean));
    let found = known.iter().map(|i| kernel[*i].powi(2)).sum::<f64>() / known.len() as f64 / mean;
    let t = -DELTA.ln();
    let limit =
        right * (1.0 + 2.0 * (t / n * (squares / (mean * mean)).max(1.0)).sqrt() + 2.0 * t * (most / mean).max(1.0) / n);
    let nu = ORDERS as f64;
    let far = (right * nu * ((known.len() as f64 / DELTA).powf(2.0 / nu) - 1.0)).sqrt();
    let one = known
        .iter()
        .map(|i| (kernel[*i].abs() / most.max(stored[*i]).sqrt(), *i))
        .fold((0.0, 0), |m, x| if x.0 > m.0 { x } else { m });
    let words = format!("its errors are {:.2} of those of {} in any order (root mean square)", found.sqrt(), chain.words());
    let once = format!("once in {:.0e} tensors", 1.0 / DELTA);
    let larger = if !(found <= limit) {
        Some(format!("{words}, larger than any right arithmetic makes them: at most {:.2} {once}", limit.sqrt()))
    } else if !(one.0 <= far) {
        let at = region.at(one.1);
        let (row, col) = (at / case.plan.cols, at % case.plan.cols);
        let error = format!("({row}, {col}): its error is {:.0} times its deviation", one.0);
        Some(format!("{error}, larger than any right arithmetic makes it: at most {far:.0} {once}"))
    } else {
        None
    };
    Ok(Some(Spread { words, larger, sigma: (mean * right).sqrt() }))
}

struct Errors<'a> {
    case: &'a Case<'a>,
    bound: &'a Bound,
    endings: Vec<super::ways::Ending>,
}

impl Errors<'_> {
    /// `(value − ideal)/β` of one chain that takes the products in this order.
    fn of(&self, region: &mut Region, chain: Chain, order: &Run, nth: usize) -> Result<Vec<f64>> {
        let ending = self.endings[nth % self.endings.len()];
        let (join, cut) = (Join::Order(vec![0]), Cut::Whole);
        let way = Way { chain, promote: None, cut, join, ending };
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

    /// NaN where nothing is known.
    fn scaled(&self, at: usize, bits: u32) -> f64 {
        let (d, out) = (self.bound.ideal()[at], self.bound.out());
        let radius = self.bound.certain()[at] + 0.5 * out.spacing(at, d);
        if radius.is_finite() && radius > 0.0 { (self.case.store.value(bits) - d) / radius } else { f64::NAN }
    }
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
