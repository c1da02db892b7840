//! Norms of which some steps, or all, are numbers of 16 bits, rounded to nearest or cut: squares, sums, mean, variance, what stands under the root, the
//! root, the values less their mean, the normalized value, its product with gamma. Every combination is made; a row of wrong elements refuses most.
//!
//! ```text
//! Σx, Σx² ──► μ = Σx/n ──► v = Σx²/n − μ², or Σ(x − μ)²/n ──► √(v + ε) ──► (x − μ)/√, or times 1/√ ──► ·γ ──► +β        any of the arrows a rounding
//! ```

use super::{NEAR, Norm};
use crate::bundle::moments::narrow::Way;
use crate::op::Op;
use crate::order::Order as _;
use crate::tensor::round_to;
use crate::{Format, Overflow, Rounding};
use std::collections::HashMap;

/// The share of elements that a combination has to make, and columns that refuse most of them.
const SHARE: f64 = 0.98;
const FIRST: usize = 16;
/// Wrong rows and elements, at least.
const LEAST: usize = 4;
const WRONG: usize = 32;
/// Columns of a row, at most: a sum of more loses all in 16 bits.
const MOST: usize = 1 << 14;

/// How sums of a row are made.
#[derive(Clone, Copy, PartialEq)]
enum Sums {
    Wide,
    /// Every square is rounded, and no sum.
    Squares,
    Narrow(Way),
}

/// How a value is divided by the root.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Wide,
    /// Times the reciprocal, rounded once.
    Rsqrt,
    /// By the root, which is rounded.
    Root,
    /// Times the reciprocal of the rounded root, rounded again.
    Reciprocal,
}

/// Where the values less their mean are rounded.
#[derive(Clone, Copy, PartialEq)]
enum Centered {
    Nowhere,
    Result,
    /// In the variance, too.
    Both,
}

/// How numbers become 16 bits.
#[derive(Clone, Copy, PartialEq)]
struct To {
    format: Format,
    cut: bool,
}

impl To {
    fn of(self, x: f64) -> f64 {
        if self.cut && x.is_finite() {
            return self.format.decode(self.format.encode(x, Rounding::TowardZero, Overflow::Saturate));
        }
        f64::from(round_to(self.format, x as f32))
    }
    fn or(self, is: bool, x: f64) -> f64 {
        if is { self.of(x) } else { x }
    }
}

/// What is rounded on the way to the mean and the divisor of a row.
#[derive(Clone, Copy)]
struct Way16 {
    to: To,
    sums: Sums,
    mean: bool,
    one_pass: bool,
    variance: bool,
    square: bool,
    by: By,
    centered: Centered,
}

/// What is rounded of each element.
#[derive(Clone, Copy)]
struct Last {
    normal: bool,
    product: bool,
    /// The result is cut as it is stored.
    cut: bool,
}

/// Sums of a row that were made already: of its values, of squares about a mean.
#[derive(Default)]
struct Made(HashMap<(usize, u64, bool), f64>);

impl Way16 {
    /// How many steps are rounded: the fewest stand first.
    fn count(&self) -> usize {
        let sums = match self.sums {
            Sums::Wide => 0,
            Sums::Squares => 1,
            Sums::Narrow(way) => 2 + usize::from(way.lanes > 1) + usize::from(way.load > 1),
        };
        let by = [By::Wide, By::Rsqrt, By::Root, By::Reciprocal].iter().position(|b| *b == self.by).unwrap_or(0);
        sums + by.min(2)
            + [self.mean, self.variance, self.square, self.centered != Centered::Nowhere, self.to.cut]
                .iter()
                .filter(|x| **x)
                .count()
    }

    /// All that may be rounded, the fewest steps first.
    fn all(layer: bool, n: usize) -> Vec<(usize, Way16)> {
        let both = [false, true];
        let mut all = Vec::new();
        for to in [Format::Bf16, Format::F16].into_iter().flat_map(|format| both.map(|cut| To { format, cut })) {
            let is = |w: &Way| w.format == to.format && w.cut == to.cut && !w.wide && (!w.cut || w.lanes == 1);
            let narrow = Way::all(n).into_iter().filter(is).map(Sums::Narrow);
            // A number for each way to sum, by which its sums are found again.
            for (number, sums) in [Sums::Wide, Sums::Squares].into_iter().chain(narrow).enumerate() {
                let shared = matches!(sums, Sums::Narrow(way) if way.lanes > 1);
                for (mean, variance) in both.into_iter().flat_map(|m| both.map(|v| (m, v))) {
                    if mean && !layer || shared && layer && mean != variance {
                        continue;
                    }
                    let passes = if layer { &both[..] } else { &both[1..] };
                    for (one_pass, square) in passes.iter().flat_map(|p| both.map(|s| (*p, s))) {
                        for by in [By::Wide, By::Rsqrt, By::Root, By::Reciprocal] {
                            for centered in [Centered::Nowhere, Centered::Result, Centered::Both] {
                                if centered != Centered::Nowhere && !layer || centered == Centered::Both && (one_pass || shared)
                                {
                                    continue;
                                }
                                // In one pass without roundings the variance is the same.
                                if one_pass && layer && sums == Sums::Wide && !variance {
                                    continue;
                                }
                                all.push((number, Way16 { to, sums, mean, one_pass, variance, square, by, centered }));
                            }
                        }
                    }
                }
            }
        }
        all.order_by_key(|(_, w)| w.count());
        all
    }

    /// Mean and divisor of a row, or what it is multiplied by.
    fn moments(&self, norm: &Norm, i: usize, number: usize, made: &mut Made) -> (f64, f64) {
        let (x, n) = (&norm.rows[i], norm.gamma.len() as f64);
        let (to, layer) = (self.to, norm.op == Op::Layernorm);
        let m = if layer {
            let sum = made.sum((number, u64::MAX, to.cut), || match self.sums {
                Sums::Narrow(way) => way.total(x, &|x| x),
                _ => x.iter().sum(),
            });
            to.or(self.mean, sum / n)
        } else {
            0.0
        };
        let about = if self.one_pass { 0.0 } else { m };
        let center = |x: f64| to.or(self.centered == Centered::Both, x - about);
        let key = (number, about.to_bits(), self.centered == Centered::Both);
        let squares = made.sum(key, || match self.sums {
            Sums::Narrow(way) => way.total(x, &|x| center(x).powi(2)),
            Sums::Squares => x.iter().map(|x| to.of(center(*x).powi(2))).sum(),
            Sums::Wide => x.iter().map(|x| center(*x).powi(2)).sum(),
        });
        let v = to.or(self.variance, squares / n);
        let v = if layer && self.one_pass { to.or(self.variance, v - to.or(self.variance, m * m)) } else { v };
        let square = if self.square { to.of(v + to.of(norm.eps)) } else { v + norm.eps };
        let root = square.sqrt();
        let d = match self.by {
            By::Wide => 1.0 / root,
            By::Rsqrt => to.of(1.0 / root),
            By::Root => to.of(root),
            By::Reciprocal => to.of(1.0 / to.of(root)),
        };
        (m, d)
    }

    /// Whether these steps make an element.
    fn is(&self, norm: &Norm, (i, j): (usize, usize), (m, d): (f64, f64), last: Last) -> bool {
        let to = self.to;
        let x = to.or(self.centered != Centered::Nowhere, norm.rows[i][j] - m);
        let y = to.or(last.normal, if self.by == By::Root { x / d } else { x * d });
        let (gamma, b) = (norm.gamma[j], norm.beta[j]);
        let at = i * norm.gamma.len() + j;
        let actual = norm.actual[at];
        let (low, high) = (norm.cell)(at);
        let by = if self.by == By::Root { 1.0 / d } else { d };
        let shift = if by.is_finite() { 0.01 * (gamma * m * by).abs() } else { 0.0 };
        let slack = 4.0 * NEAR * ((y * gamma).abs() + b.abs() + shift);
        let is = |y: f64| {
            if !y.is_finite() || !actual.is_finite() {
                return y == actual || y.is_nan() && actual.is_nan();
            }
            // What is cut lies between the number and the next one away from 0.
            let (low, high) = match last.cut {
                true if actual > 0.0 => (actual, 2.0 * high - actual),
                true if actual < 0.0 => (2.0 * low - actual, actual),
                true => (2.0 * low, 2.0 * high),
                false => (low, high),
            };
            low - slack <= y && y <= high + slack
        };
        if !last.product {
            return is(y * gamma + b);
        }
        // Gamma is multiplied as it is, or rounded first; a product and a sum are two roundings or one.
        [gamma, to.of(gamma)].iter().any(|g| {
            let product = y * g;
            if norm.layer() { is(to.of(to.of(product) + b)) || is(to.of(product + b)) } else { is(to.of(product)) }
        })
    }

    fn words(&self, norm: &Norm, last: Last) -> String {
        let layer = norm.layer();
        let (f, how) = (self.to.format, if self.to.cut { "cut" } else { "rounded" });
        let moment = if layer { "variance" } else { "mean square" };
        let variance =
            if layer && self.one_pass { "the variance E[x²] − μ²".to_string() } else { format!("the {moment}") };
        let every = matches!(self.sums, Sums::Narrow(_))
            && (self.mean || !layer)
            && (self.variance || self.square)
            && self.by != By::Wide
            && last.normal;
        let root = match self.by {
            By::Wide => "",
            By::Rsqrt => "the reciprocal of the root",
            By::Root => "the root",
            By::Reciprocal => "the root, its reciprocal",
        };
        if every && last.product && !self.to.cut {
            let mean = if layer { format!("the mean, {variance}") } else { "their mean".into() };
            let Sums::Narrow(way) = self.sums else { return String::new() };
            return format!(
                "every step of the norm is in {f}: {}; {mean}, {root}, the normalized value and its product are, too",
                way.words()
            );
        }
        let mut parts: Vec<String> = Vec::new();
        match self.sums {
            Sums::Wide => {}
            Sums::Squares => parts.push("every square".into()),
            Sums::Narrow(way) => {
                let both = if layer { "the sum of the values and that of the squares" } else { "the sum of the squares" };
                parts.push(format!("{both} at every step{}", way.shared()));
            }
        }
        let mut add = |is: bool, words: &str| {
            if is {
                parts.push(words.into())
            }
        };
        add(self.mean, "the mean");
        add(self.variance, &variance);
        add(self.square, "what stands under the root");
        add(self.by != By::Wide, root);
        add(self.centered == Centered::Result, "the values less their mean, in the result alone");
        add(self.centered == Centered::Both, "the values less their mean, in the variance and in the result");
        add(last.normal, "the normalized value");
        add(last.product, "its product with gamma");
        add(last.cut, "the result");
        let also = if !self.variance && self.one_pass && layer { "; the variance is E[x²] − μ²" } else { "" };
        format!("these steps of the norm are {how} to {f}: {}{also}", parts.join(", "))
    }

    /// How many rows come out empty, as their sums are beyond the format.
    fn lost(&self, norm: &Norm, number: usize) -> String {
        let is_lost = |i: &&usize| {
            let (_, d) = self.moments(norm, **i, number, &mut Made::default());
            if self.by == By::Root { d.is_infinite() } else { d == 0.0 }
        };
        match norm.sampled.iter().filter(is_lost).count() {
            0 => String::new(),
            n => {
                let left = if norm.layer() { "beta" } else { "0" };
                format!("; sums overflow to Inf in {n} of {} rows, which come out as {left}", norm.sampled.len())
            }
        }
    }
}

impl Made {
    fn sum(&mut self, key: (usize, u64, bool), of: impl FnOnce() -> f64) -> f64 {
        *self.0.entry(key).or_insert_with(of)
    }
}

/// The steps that make the wrong rows of a norm and nearly all of the others, in words.
pub fn explain(norm: &Norm) -> Option<String> {
    let n = norm.gamma.len();
    let count = |s: usize| norm.right[s * n..(s + 1) * n].iter().filter(|r| !**r).count();
    let wrong: Vec<usize> = (0..norm.sampled.len()).filter(|s| count(*s) > 0).collect();
    (wrong.len() >= LEAST && (FIRST..=MOST).contains(&n)).then_some(())?;
    (wrong.iter().map(|s| count(*s)).sum::<usize>() >= WRONG).then_some(())?;
    // A row that holds numbers tells the steps.
    let some = |s: &usize| {
        let i = norm.sampled[*s];
        (0..n).filter(|j| ![0.0, norm.beta[*j]].contains(&norm.actual[i * n + j])).count() * 2 > n
    };
    let first = wrong.iter().copied().filter(some).max_by_key(|s| (count(*s), std::cmp::Reverse(*s)))?;
    let (row, right) = (norm.sampled[first], &norm.right[first * n..(first + 1) * n]);
    let mut few: Vec<usize> = (0..n).filter(|j| !right[*j]).collect();
    few = few.iter().copied().step_by(few.len().div_ceil(FIRST)).collect();
    let lasts = |cut: bool| {
        let both = [false, true];
        let all = both.into_iter().flat_map(move |normal| both.map(|product| (normal, product)));
        let stored: &[bool] = if cut { &[true, false] } else { &[false] };
        // A product that is cut is stored as it is.
        let all = all.flat_map(move |(normal, product)| stored.iter().map(move |cut| Last { normal, product, cut: *cut }));
        all.filter(|last| !(last.product && last.cut))
    };
    let mut sums = Made::default();
    let mut to = None;
    let mut seen: HashMap<(u64, u64, bool, bool), Vec<Last>> = HashMap::new();
    let mut all = Way16::all(norm.layer(), n);
    // Sums are remembered by their format.
    all.order_by_key(|(_, w)| w.to.cut);
    all.order_by_key(|(_, w)| w.to.format == Format::F16);
    let mut found: Vec<(usize, usize, Way16, Last)> = Vec::new();
    for (number, way) in all {
        if to != Some(way.to) {
            (to, sums) = (Some(way.to), Made::default());
            seen.clear();
        }
        let (m, d) = way.moments(norm, row, number, &mut sums);
        let key = (m.to_bits(), d.to_bits(), way.by == By::Root, way.centered != Centered::Nowhere);
        let made = seen.entry(key).or_insert_with(|| {
            let holds = |last: &Last| {
                let made = few.iter().filter(|j| way.is(norm, (row, **j), (m, d), *last)).count();
                10 * made >= 9 * few.len()
            };
            lasts(way.to.cut).filter(holds).collect()
        });
        let more = |last: &Last| usize::from(last.normal) + usize::from(last.product) + usize::from(last.cut);
        found.extend(made.iter().map(|last| (way.count() + more(last), number, way, *last)));
    }
    found.order_by_key(|f| f.0);
    let order: Vec<usize> = std::iter::once(first).chain((0..norm.sampled.len()).filter(|s| *s != first)).collect();
    let total = wrong.iter().map(|s| count(*s)).sum::<usize>();
    let most = |of: usize| ((1.0 - SHARE) * of as f64) as usize;
    // All rows, and the wrong elements too, however few they are: the first misses refuse it.
    let holds = |(_, number, way, last): &&(usize, usize, Way16, Last)| {
        let (mut missed, mut missed_wrong) = (0, 0);
        order.iter().all(|s| {
            let i = norm.sampled[*s];
            let moments = way.moments(norm, i, *number, &mut Made::default());
            for j in (0..n).filter(|j| !way.is(norm, (i, *j), moments, *last)) {
                missed += 1;
                missed_wrong += usize::from(!norm.right[s * n + j]);
            }
            missed <= most(n * norm.sampled.len()) && missed_wrong <= most(total)
        })
    };
    let (_, number, way, last) = found.iter().find(holds)?;
    Some(format!("{}{}", way.words(norm, *last), way.lost(norm, *number)))
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, rows, square, with};
    use super::*;
    use crate::bundle::by_hand::{bf16, f16};

    /// What is said of a norm of every step in few bits, whose row `i` has so many times the values.
    fn said(op: Op, r: fn(f64) -> f64, size: &dyn Fn(usize) -> f64) -> String {
        let rows: Vec<Vec<f64>> =
            rows().iter().enumerate().map(|(i, x)| x.iter().map(|x| r(x * size(i) + 0.25)).collect()).collect();
        let layer = op == Op::Layernorm;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let sum = |of: &dyn Fn(f64) -> f64| rows[i].iter().fold(0.0, |all, x| r(all + r(of(*x))));
            let n = COLS as f64;
            let m = if layer { r(sum(&|x| x) / n) } else { 0.0 };
            let square = r(sum(&|x| x * x) / n);
            let v = if layer { r(square - r(m * m)) } else { square };
            let d = r(r(v + r(EPS)).sqrt());
            let y = r(r(r(rows[i][j] - m) / d) * r(gamma(j)));
            if layer { r(y + beta(j)) } else { y }
        };
        with(op, &rows, &made, |norm: &Norm| explain(norm).unwrap_or_default())
    }

    #[test]
    fn norms_in_sixteen_bits_are_named() {
        let words = said(Op::Layernorm, f16, &|_| 1.0);
        assert!(
            words.starts_with("every step of the norm is in f16: squares and their sum are rounded to f16 at every step;"),
            "{words}"
        );
        assert!(words.ends_with("the variance E[x²] − μ², the root, the normalized value and its product are, too"), "{words}");
        let words = said(Op::Rmsnorm, f16, &|i| if i % 4 == 1 { 400.0 } else { 1.0 });
        assert!(
            words.contains("in f16") && words.ends_with("sums overflow to Inf in 6 of 24 rows, which come out as 0"),
            "{words}"
        );
        assert!(said(Op::Rmsnorm, bf16, &|_| 1.0).contains("every step of the norm is in bf16"));
        assert_eq!(said(Op::Layernorm, |x| x, &|_| 1.0), "", "a right one");
    }

    /// What is said of a norm of `f16` values whose element is this of its row.
    fn of(op: Op, size: &dyn Fn(usize) -> f64, made: &dyn Fn(&[f64], usize) -> f64) -> String {
        let rows: Vec<Vec<f64>> =
            rows().iter().enumerate().map(|(i, x)| x.iter().map(|x| f16(x * size(i) + 0.25)).collect()).collect();
        with(op, &rows, &|rows, i, j| made(&rows[i], j), |norm: &Norm| explain(norm).unwrap_or_default())
    }

    #[test]
    fn some_steps_in_sixteen_bits_are_named() {
        // The values less their mean are kept in bf16, and the variance is that of these.
        let kept = |x: &[f64], j: usize| {
            let m = average(x);
            let c: Vec<f64> = x.iter().map(|x| bf16(x - m)).collect();
            c[j] / (square(&c, 0.0) + EPS).sqrt() * gamma(j) + beta(j)
        };
        assert_eq!(
            of(Op::Layernorm, &|_| 1.0, &kept),
            "these steps of the norm are rounded to bf16: the values less their mean, in the variance and in the result"
        );
        // Sums of f16, added one by one; the rest is in f32.
        let summed = |x: &[f64], j: usize| {
            let sum = |of: &dyn Fn(f64) -> f64| x.iter().fold(0.0, |all, x| f16(all + f16(of(*x)))) / COLS as f64;
            let (m, square) = (f16(sum(&|x| x)), f16(sum(&|x| x * x)));
            (x[j] - m) / (f16(square - f16(m * m)) + EPS).sqrt() * gamma(j) + beta(j)
        };
        let words = of(Op::Layernorm, &|_| 1.0, &summed);
        assert_eq!(
            words,
            "these steps of the norm are rounded to f16: the sum of the values and that of the squares at every step, the mean, the variance E[x²] − μ²"
        );
        // Every square is an f16, Inf in some rows; sums are wide.
        let squares = |x: &[f64], j: usize| {
            let v = f16(x.iter().map(|x| f16(x * x)).sum::<f64>() / COLS as f64);
            f16(x[j] * f16(1.0 / f16(v + EPS).sqrt())) * gamma(j)
        };
        let words = of(Op::Rmsnorm, &|i| if i % 3 == 0 { 1500.0 } else { 1.0 }, &squares);
        assert!(words.starts_with("these steps of the norm are rounded to f16: every square, the mean square"), "{words}");
        assert!(words.contains("the reciprocal of the root, the normalized value; sums overflow to Inf in "), "{words}");
        assert!(words.ends_with(" of 24 rows, which come out as 0"), "{words}");
    }

    /// Cut to bf16: the reciprocal of the root, and what it multiplies.
    #[test]
    fn steps_that_are_cut_are_told_from_those_that_are_rounded() {
        let cut = |x: f64| f64::from(f32::from_bits((x as f32).to_bits() & 0xffff_0000));
        let made = |r: &dyn Fn(f64) -> f64, x: &[f64], j: usize| r(x[j] * r(1.0 / (square(x, 0.0) + EPS).sqrt())) * gamma(j);
        let tail = "to bf16: the reciprocal of the root, the normalized value";
        let words = of(Op::Rmsnorm, &|_| 1.0, &|x, j| made(&cut, x, j));
        assert_eq!(words, format!("these steps of the norm are cut {tail}"));
        let words = of(Op::Rmsnorm, &|_| 1.0, &|x, j| made(&bf16, x, j));
        assert_eq!(words, format!("these steps of the norm are rounded {tail}"));
        // What is stored is cut, too.
        let words = of(Op::Rmsnorm, &|_| 1.0, &|x, j| cut(made(&cut, x, j)));
        assert!(
            words.starts_with("these steps of the norm are cut to bf16: ") && words.contains("the normalized value"),
            "{words}"
        );
        // A divisor of its own in every row is no rounding.
        let other = |x: &[f64], j: usize| x[j] / (1.003 * (square(x, 0.0) + EPS).sqrt() + 0.01 * x[3].abs()) * gamma(j);
        assert_eq!(of(Op::Rmsnorm, &|_| 1.0, &other), "");
    }
}
