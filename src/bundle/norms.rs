//! Takes a wrong norm apart: solves what multiplies and shifts every row, for each gamma and beta that kernels apply, and compares it
//! with the means and divisors that kernels use. Several effects at once are one combination.
//!
//! ```text
//! y_j = γ'_j · (x_j · p + q) + β'_j   ──►  p, q of every row by least squares  ──►  mean −q/p and divisor 1/p  ──►  sums, eps, roundings
//! ```

use super::formulas::mean;
use super::moments::{self, Solved};
use crate::Format;
use crate::compare::digits;
use crate::fault::solve::output::roundest;
use crate::fault::solve::segment::lines;
use crate::op::Op;
use crate::order::Order as _;
use crate::parallel;
use crate::tensor::round_to;
use factors::eps_words;
use rounded::{Rounded, through};

/// The share of elements that a combination has to make.
pub const SHARE: f64 = 0.98;
/// Rows that a combination is tried on before all are.
const FEW: usize = 12;
/// Rows that have to be wrong, at least.
const LEAST: usize = 4;
/// What f32 steps may be off, relative to their terms.
pub const NEAR: f64 = 1.0 / (1u64 << 20) as f64;
/// A factor that is another one.
const SAME: f64 = 4e-5;
/// What a rounding to bf16 on the way may be off.
const LOOSE: f64 = 1.0 / 128.0;
/// Columns of a row, at most.
const WIDEST: f64 = (1 << 20) as f64;
/// Standard deviations of a solved number that it may be off.
const SIGMAS: f64 = 5.0;

/// Said where a mean or a divisor is not found.
pub const OPEN: &str = "and its mean or divisor is another";

/// A norm that failed, as it was written.
pub struct Norm<'r> {
    pub op: Op,
    /// The rows of `x`, and which of them were looked at.
    pub rows: &'r [Vec<f64>],
    pub sampled: &'r [usize],
    /// What values are multiplied by, and its name.
    pub gain: &'r str,
    pub gamma: &'r [f64],
    pub beta: &'r [f64],
    pub eps: f64,
    pub actual: &'r [f64],
    /// What an element may have been before it was stored.
    pub cell: &'r (dyn Fn(usize) -> (f64, f64) + Sync),
    /// Which elements of the sampled rows are right.
    pub right: &'r [bool],
}

/// Another gamma and beta, in words.
struct Weights {
    words: Vec<String>,
    gamma: Vec<f64>,
    beta: Vec<f64>,
}

/// `x·p + q` of a row about its mean, and how far both may be off.
#[derive(Clone, Copy)]
struct Line {
    p: f64,
    mean: f64,
    off_p: f64,
    off_mean: f64,
    /// Shares of elements that it makes, tight and loose.
    made: (f64, f64),
}

/// A number for every row, in words; the right one has none.
struct Each {
    words: String,
    of: Vec<f64>,
}

impl Norm<'_> {
    fn cols(&self) -> usize {
        self.gamma.len()
    }
    fn at(&self, i: usize, j: usize) -> usize {
        i * self.cols() + j
    }
    pub fn layer(&self) -> bool {
        self.op == Op::Layernorm
    }
    pub fn center(&self, x: &[f64]) -> f64 {
        if self.layer() { mean(x, |x| x) } else { 0.0 }
    }
    pub fn divisor(&self, x: &[f64]) -> f64 {
        let m = self.center(x);
        (mean(x, |x| (x - m).powi(2)) + self.eps).sqrt()
    }

    /// Columns that were written, those that are one number in every row left out.
    pub fn written(&self) -> (Vec<usize>, Option<String>) {
        let n = self.cols();
        let constant = |j: usize| {
            let first = self.actual[self.at(self.sampled[0], j)];
            let wrong = (0..self.sampled.len()).filter(|s| !self.right[s * n + j]).count();
            2 * wrong > self.sampled.len() && self.sampled.iter().all(|i| self.actual[self.at(*i, j)] == first)
        };
        let not: Vec<bool> = (0..n).map(constant).collect();
        let written: Vec<usize> = (0..n).filter(|j| !not[*j]).collect();
        let words = (written.len() < n).then(|| {
            let zero = (0..n).filter(|j| not[*j]).all(|j| self.actual[self.at(self.sampled[0], j)] == 0.0);
            let what = if zero { "are 0: they are not written" } else { "are the same in every row: they are not written" };
            format!("columns {} {what}", lines(&not))
        });
        (written, words)
    }

    /// Sampled rows that are wrong in these columns and not one number.
    pub fn wrong(&self, columns: &[usize]) -> Vec<usize> {
        let n = self.cols();
        let wrong = |(s, i): &(usize, &usize)| {
            let first = self.actual[self.at(**i, columns[0])];
            columns.iter().any(|j| !self.right[s * n + j]) && columns.iter().any(|j| self.actual[self.at(**i, *j)] != first)
        };
        self.sampled.iter().enumerate().filter(wrong).map(|(_, i)| *i).collect()
    }

    fn line(&self, i: usize, columns: &[usize], w: &Weights) -> Option<Line> {
        let x = &self.rows[i];
        let m = mean(x, |x| x);
        let terms = columns.iter().filter_map(|j| {
            let (low, high) = (self.cell)(self.at(i, *j));
            let y = 0.5 * (low + high) - w.beta[*j];
            let half = 0.5 * (high - low) + NEAR * (y.abs() + w.beta[*j].abs()) + 1e-30;
            (y.is_finite() && half.is_finite()).then(|| (w.gamma[*j] * (x[*j] - m), w.gamma[*j], y, half))
        });
        let terms: Vec<(f64, f64, f64, f64)> = terms.collect();
        let (mut uu, mut uv, mut vv, mut uy, mut vy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (u, v, y, half) in &terms {
            let by = 1.0 / (half * half);
            (uu, uv, vv) = (uu + by * u * u, uv + by * u * v, vv + by * v * v);
            (uy, vy) = (uy + by * u * y, vy + by * v * y);
        }
        let det = uu * vv - uv * uv;
        (det > 1e-12 * uu * vv && terms.len() > 8).then_some(())?;
        let (p, q) = ((uy * vv - vy * uv) / det, (vy * uu - uy * uv) / det);
        let (mut tight, mut loose, mut rest) = (0usize, 0usize, 0.0);
        for (u, v, y, half) in &terms {
            let off = (u * p + v * q - y).abs();
            tight += usize::from(off <= 1.5 * half);
            // A value that is rounded is off by its own size, also near the mean.
            loose += usize::from(off <= 1.5 * half + LOOSE * ((u * p).abs() + (v * q).abs() + (v * m * p).abs()));
            rest += (off / half).powi(2);
        }
        let n = terms.len() as f64;
        let spread = (rest / n).max(1.0 / 3.0);
        let off = |c: f64| SIGMAS * (c / det * spread).sqrt();
        let (off_p, off_q) = (off(vv) + NEAR * p.abs(), off(uu));
        (p > 0.0).then(|| Line {
            p,
            mean: m - q / p,
            off_p,
            off_mean: (off_q + (q / p).abs() * off_p) / p,
            made: (tight as f64 / n, loose as f64 / n),
        })
    }

    /// Every gamma and beta that kernels apply, the right ones first.
    fn weights(&self) -> Vec<Weights> {
        let rounded = ["bf16", "f16"].map(|f| format!("{} is rounded to {f}", self.gain));
        // Stored without its 1, or about to be.
        let less = ["bf16", "f16"].map(|f| match self.gain {
            "gamma" => format!("gamma is stored as gamma − 1 in {f}, and 1 is added again"),
            _ => format!("gamma is rounded to {f} before 1 is added"),
        });
        type Change<'w> = (&'w str, fn(f64) -> f64);
        let gammas: [Change; 9] = [
            ("", |g| g),
            ("gamma is not applied", |_| 1.0),
            ("1 is not added to gamma", |g| g - 1.0),
            ("1 is added to gamma", |g| g + 1.0),
            ("gamma is applied twice", |g| g * g),
            (&rounded[0], |g| f64::from(round_to(Format::Bf16, g as f32))),
            (&rounded[1], |g| f64::from(round_to(Format::F16, g as f32))),
            (&less[0], |g| 1.0 + f64::from(round_to(Format::Bf16, (g - 1.0) as f32))),
            (&less[1], |g| 1.0 + f64::from(round_to(Format::F16, (g - 1.0) as f32))),
        ];
        type Both = (&'static str, fn(f64, f64) -> f64);
        let betas: [Both; 6] = [
            ("", |b, _| b),
            ("beta is not added", |_, _| 0.0),
            ("beta is multiplied by gamma too", |b, g| b * g),
            ("beta is subtracted", |b, _| -b),
            ("beta is added twice", |b, _| 2.0 * b),
            ("gamma is added where beta belongs", |_, g| g),
        ];
        let some = self.beta.iter().any(|b| *b != 0.0);
        let mut all = Vec::new();
        for (gamma_words, gamma) in gammas {
            for (beta_words, beta) in &betas[..if some { betas.len() } else { 1 }] {
                let words = [gamma_words, beta_words].iter().filter(|w| !w.is_empty()).map(ToString::to_string).collect();
                let made: Vec<f64> = self.gamma.iter().map(|g| gamma(*g)).collect();
                let beta = self.beta.iter().zip(&made).map(|(b, g)| beta(*b, *g)).collect();
                all.push(Weights { words, gamma: made, beta });
            }
        }
        if self.layer() {
            all.push(Weights {
                words: vec!["gamma and beta are exchanged".into()],
                gamma: self.beta.to_vec(),
                beta: self.gamma.to_vec(),
            });
        }
        all.order_by_key(|w| w.words.len());
        all
    }

    /// What all wrong rows were made by, in words. `None`: no combination that is known.
    pub fn explain(&self) -> Option<String> {
        let (columns, unwritten) = self.written();
        (columns.len() >= 16).then_some(())?;
        let wrong = self.wrong(&columns);
        // Rows of which nothing is left may have an infinite divisor: one theory has to make them and all others.
        let gone = self.gone(&columns);
        let of_gone = || {
            let mut every: Vec<usize> = wrong.iter().chain(&gone).copied().collect();
            every.sort_unstable();
            every.dedup();
            let others: Vec<usize> = self.sampled.iter().copied().filter(|i| !gone.contains(i)).collect();
            let words = self.of_rows(&columns, (&every, &others), &unwritten, false)?;
            let left = if self.layer() { "beta" } else { "0" };
            Some(format!("{words}; Inf in {} of {} rows, which come out as {left}", gone.len(), self.sampled.len()))
        };
        let found = if gone.is_empty() { None } else { of_gone() };
        found.or_else(|| self.of_rows(&columns, (&wrong, &wrong), &unwritten, true))
    }

    /// What steps of 16 bits make, rows that run on into the next, or windows of memory; rows of another input.
    pub fn otherwise(&self) -> Option<String> {
        let steps = steps::explain(self).or_else(|| past_end::explain(self)).or_else(|| bias_places::explain(self));
        steps.or_else(|| windows::explain(self)).or_else(|| of_another_input::explain(self))
    }

    /// Wrong rows of which all columns are beta alone.
    fn gone(&self, columns: &[usize]) -> Vec<usize> {
        let n = self.cols();
        let is = |i: usize, j: usize| {
            let (low, high) = (self.cell)(self.at(i, j));
            low <= self.beta[j] && self.beta[j] <= high
        };
        let rows = self.sampled.iter().enumerate().filter(|(s, _)| columns.iter().any(|j| !self.right[s * n + j]));
        rows.map(|(_, i)| *i).filter(|i| columns.iter().all(|j| is(*i, *j))).collect()
    }

    /// What these wrong rows were made by, solved from `known` ones. `partly`: a gamma or beta that leaves mean and divisor open is told, too.
    fn of_rows(
        &self,
        columns: &[usize],
        (wrong, known): (&[usize], &[usize]),
        unwritten: &Option<String>,
        partly: bool,
    ) -> Option<String> {
        // What is NaN or Inf solves nothing; what is found has to make it.
        let is_number =
            |i: &usize| 2 * columns.iter().filter(|j| self.actual[self.at(*i, **j)].is_finite()).count() > columns.len();
        let numbers: Vec<usize> = known.iter().copied().filter(is_number).collect();
        if wrong.len() < LEAST || numbers.len() < LEAST {
            return None;
        }
        let few: Vec<usize> = numbers.iter().copied().step_by(numbers.len().div_ceil(FEW)).collect();
        let mut fitting: Vec<(f64, bool, Weights)> = Vec::new();
        for w in self.weights() {
            let made: Vec<(f64, f64)> =
                parallel::collect(few.len(), |n| self.line(few[n], columns, &w).map_or((0.0, 0.0), |l| l.made));
            let of = |f: fn(&(f64, f64)) -> f64| made.iter().map(f).sum::<f64>() / made.len() as f64;
            let (tight, loose) = (of(|m| m.0), of(|m| m.1));
            // What a 16-bit gamma less 1 loses hides in any other rounding: it has to fit alone.
            let less = w.words.iter().any(|w| w.ends_with("and 1 is added again") || w.ends_with("before 1 is added"));
            if tight >= SHARE || loose >= SHARE && !less {
                fitting.push((tight, tight >= SHARE, w));
            }
        }
        let exact = fitting.iter().any(|f| f.1);
        fitting.retain(|f| f.1 || !exact);
        if !exact {
            fitting.order_by(|a, b| b.0.total_cmp(&a.0));
        }
        fitting.truncate(4);
        let found = fitting.iter().find_map(|(_, _, w)| self.statistics(w, (wrong, &numbers), &few, columns));
        let alone = || {
            let w = &fitting.first().filter(|f| partly && f.1 && !f.2.words.is_empty())?.2;
            Some(format!("{}; {OPEN}", w.words.join("; and ")))
        };
        let words = found.or_else(alone)?;
        let words =
            [Some(words), unwritten.clone()].into_iter().flatten().filter(|w| !w.is_empty()).collect::<Vec<_>>().join("; and ");
        let is: Vec<bool> = (0..self.rows.len()).map(|i| wrong.contains(&i)).collect();
        let all = wrong.len() == self.sampled.len() || self.sampled.len() < self.rows.len();
        let place = if all { String::new() } else { format!(", in rows {}", lines(&is)) };
        (!words.is_empty()).then(|| format!("{words}{place}"))
    }

    /// Mean, divisor and roundings under these weights.
    fn statistics(
        &self,
        w: &Weights,
        (wrong, numbers): (&[usize], &[usize]),
        few: &[usize],
        columns: &[usize],
    ) -> Option<String> {
        let known: Vec<(usize, Line)> = parallel::flat(numbers, |i| self.line(*i, columns, w).map(|l| (*i, l)));
        (known.len() >= LEAST && known.len() as f64 >= SHARE * numbers.len() as f64).then_some(())?;
        let roundings = Rounded::all(self.layer());
        for center in self.means(&known) {
            for divisor in self.divisors(&center, &known) {
                for rounded in &roundings {
                    let share = |rows: &[usize]| {
                        let of = |n: usize| self.made(rows[n], columns, w, &center.of, &divisor.of, rounded);
                        let made: usize = parallel::collect(rows.len(), of).into_iter().sum();
                        made as f64 / (rows.len() * columns.len()) as f64
                    };
                    if share(few) > SHARE && share(wrong) > SHARE {
                        let own = [center.words.clone(), divisor.words.clone()].into_iter().filter(|w| !w.is_empty());
                        let all: Vec<String> = w.words.iter().cloned().chain(own).chain(rounded.words(self.layer())).collect();
                        return Some(all.join("; and "));
                    }
                }
            }
        }
        None
    }

    /// How many elements of a row this makes.
    fn made(&self, i: usize, columns: &[usize], w: &Weights, centers: &[f64], divisors: &[f64], by: &Rounded) -> usize {
        let m = through(by.mean, centers[i]);
        let r = through(by.root, 1.0 / by.divisor(divisors[i], self.eps));
        let is = |j: &&usize| {
            let x = through(by.x, self.rows[i][**j]);
            let normal = through(by.normal, through(by.centered, x - m) * r);
            let product = through(by.product, normal * w.gamma[**j]);
            let y = product + w.beta[**j];
            let actual = self.actual[self.at(i, **j)];
            if !actual.is_finite() {
                return y.is_nan() && actual.is_nan() || y == actual;
            }
            let (low, high) = (self.cell)(self.at(i, **j));
            let slack = 4.0 * NEAR * (y.abs() + product.abs() + (w.gamma[**j] * m * r).abs() * 0.01);
            low - slack <= y && y <= high + slack
        };
        columns.iter().filter(is).count()
    }

    /// Means of every row that the solved ones are, the right one first.
    fn means(&self, known: &[(usize, Line)]) -> Vec<Each> {
        let (count, n) = (self.rows.len(), self.cols());
        let fits = |of: &dyn Fn(usize) -> f64| {
            let is = |(i, l): &&(usize, Line)| (of(*i) - l.mean).abs() <= l.off_mean + NEAR * (of(*i).abs() + 1.0 / l.p);
            // A few refuse most.
            known.iter().take(3).filter(is).count() + 1 >= known.len().min(3)
                && known.iter().filter(is).count() as f64 >= SHARE * known.len() as f64
        };
        let own: Vec<f64> = self.rows.iter().map(|x| mean(x, |x| x)).collect();
        let right: Vec<f64> = self.rows.iter().map(|x| self.center(x)).collect();
        let mut all = Vec::new();
        let mut add = |words: String, of: &dyn Fn(usize) -> f64| {
            if fits(of) {
                all.push(Each { words, of: (0..count).map(of).collect() });
            }
        };
        if self.layer() {
            add("the mean is not subtracted".into(), &|_| 0.0);
        } else {
            add("the mean is subtracted, as in a layernorm".into(), &|i| own[i]);
        }
        let prefix: Vec<Vec<f64>> = self
            .rows
            .iter()
            .map(|x| {
                let sums = x.iter().scan(0.0, |sum, x| {
                    *sum += x;
                    Some(*sum)
                });
                std::iter::once(0.0).chain(sums).collect()
            })
            .collect();
        // One factor, or one number more, in all rows.
        let (mut ww, mut wx, mut wxx, mut wy, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (i, l) in known {
            let (w, x, y) = (1.0 / (l.off_mean * l.off_mean).max(1e-60), own[*i], l.mean);
            (ww, wx, wxx, wy, wxy) = (ww + w, wx + w * x, wxx + w * x * x, wy + w * y, wxy + w * x * y);
        }
        let (f, by) = (wxy / wxx, (wy - wx) / ww);
        // Of another number of columns below.
        let m = (n as f64 / f).round();
        if !((1.0..(2 * n + 1025) as f64).contains(&m) && fits(&|i| n as f64 / m * own[i])) {
            let words = factors::scaled(n, &|g| (g / f - 1.0).abs() <= SAME).map_or(String::new(), |w| format!(": {w}"));
            add(format!("the mean is {f:.4} times the right one{words}"), &|i| f * own[i]);
        }
        add(format!("{} is added to the mean", digits::apart([by])[0]), &|i| own[i] + by);
        for m in 1..n {
            let rest = |i: usize| prefix[i][n] - prefix[i][n - m];
            add(format!("the mean is that of the first {m} columns"), &|i| prefix[i][m] / m as f64);
            add(format!("the mean is the sum over the first {m} columns, divided by {n}"), &|i| prefix[i][m] / n as f64);
            add(format!("the mean is that of the last {m} columns"), &|i| rest(i) / m as f64);
            add(format!("the mean is the sum over the last {m} columns, divided by {n}"), &|i| rest(i) / n as f64);
        }
        for m in (1..2 * n + 1025).filter(|m| *m != n) {
            add(format!("the mean is divided by {m} instead of {n}"), &|i| prefix[i][n] / m as f64);
        }
        for d in 1..count.min(65) {
            add(format!("the mean is that of row i − {d}, wrapped"), &|i| own[(i + count - d) % count]);
            add(format!("the mean is that of row i + {d}, wrapped"), &|i| own[(i + d) % count]);
            add(format!("the mean is that of row (i / {d})·{d}"), &|i| own[i / d * d]);
            add(format!("the mean is that of row i mod {d}"), &|i| own[i % d]);
        }
        let every = own.iter().sum::<f64>() / count as f64;
        add("the mean is that of all rows".into(), &|_| every);
        if self.layer() {
            slices::means(self, &mut add);
            moments::slots::means(self.rows, &mut add);
        }
        if let Some(padded) = padding::means(self, known).filter(|_| self.layer()) {
            add(padded.words, &|i| padded.of[i]);
        }
        if self.layer() {
            all.extend(slices::counted(self, known, &prefix, all.is_empty()).map(|(words, of)| Each { words, of }));
        }
        all.insert(0, Each { words: String::new(), of: right });
        all.truncate(4);
        all
    }

    /// Divisors of every row that the solved ones are, about these means.
    fn divisors(&self, center: &Each, known: &[(usize, Line)]) -> Vec<Each> {
        let (count, n, centers) = (self.rows.len(), self.cols(), &center.of[..]);
        let v: Vec<f64> = self.rows.iter().zip(centers).map(|(x, m)| mean(x, |x| (x - m).powi(2))).collect();
        let mut all = Vec::new();
        let mut add = |words: String, of: &dyn Fn(usize) -> f64| {
            let is = |(i, l): &&(usize, Line)| {
                let r = 1.0 / of(*i);
                (r - l.p).abs() <= l.off_p + 2.0 * NEAR * r.abs() + 1e-2 * (r - through(Some(Format::Bf16), r)).abs()
            };
            // A reciprocal that is rounded lies off by a rounding.
            let near = |d: f64, l: &Line| (d * l.p - 1.0).abs() <= LOOSE / 2.0;
            let rounded = |f: Format, d: f64| f64::from(round_to(f, (d * d) as f32)).sqrt();
            let loose = |(i, l): &&(usize, Line)| {
                let d = of(*i);
                near(d, l) || [Format::Bf16, Format::F16].iter().any(|f| near(rounded(*f, d), l))
            };
            let share = |n: usize| n as f64 >= SHARE * known.len() as f64;
            if share(known.iter().filter(is).count()) {
                all.push((0, Each { words, of: (0..count).map(of).collect() }));
            } else if words.is_empty() && share(known.iter().filter(loose).count()) {
                all.push((1, Each { words, of: (0..count).map(of).collect() }));
            }
        };
        add(String::new(), &|i| (v[i] + self.eps).sqrt());
        let sizes = scaled_first::sizes(self, centers);
        for size in &sizes {
            add(size.words(None), &|i| (v[i] + self.eps * size.of[i].powi(2)).sqrt());
        }
        add("the variance is not there: values are divided by the root of eps".into(), &|_| self.eps.sqrt());
        // A number of columns that a kernel may divide by: of a variance of nearly 0 any large one would do. A fixed one is a power of two.
        let columns = |f: f64, fits: &dyn Fn(f64) -> bool| {
            let m = n as f64 / f;
            let (power, whole) = (m.log2().round().exp2(), m.round());
            let is = |m: f64, most: f64| (1.0..=most).contains(&m) && m != n as f64 && fits(n as f64 / m);
            if is(power, WIDEST) { Some(power) } else { Some(whole).filter(|m| is(*m, (4 * n + 1024) as f64)) }
        };
        // One eps in all rows, under the root, beside it, as the least of the variance.
        let squares = |l: &Line| {
            let off = 2.0 * (l.off_p / l.p);
            ((1.0 - off) / (l.p * l.p), (1.0 + off) / (l.p * l.p))
        };
        let meet = |of: &dyn Fn(usize, f64) -> f64| {
            known.iter().fold((f64::NEG_INFINITY, f64::INFINITY), |(low, high), (i, l)| {
                let (from, to) = squares(l);
                (low.max(of(*i, from)), high.min(of(*i, to)))
            })
        };
        let (low, high) = meet(&|i, square| square - v[i]);
        if low <= high && high > 0.0 {
            let e = if low <= 0.0 { 0.0 } else { roundest(low, high) };
            add(eps_words(e, self.eps, n, self.layer()), &|i| (v[i] + e).sqrt());
        }
        let (low, high) = meet(&|i, square| square.sqrt() - v[i].sqrt());
        if low <= high && high > 0.0 {
            let e = roundest(low, high);
            add(format!("{} is added to the root, not under it", digits::apart([e])[0]), &|i| v[i].sqrt() + e);
        }
        let unbiased = |i: usize| (v[i] * n as f64 / (n - 1).max(1) as f64).sqrt();
        let (low, high) = meet(&|i, square| square.sqrt() - unbiased(i));
        if low <= high && high > 0.0 {
            let e = roundest(low.max(0.0), high);
            let by = digits::apart([e]);
            let words = format!("the sum of squares is divided by {}, and {} is added to the root", n - 1, by[0]);
            add(words, &|i| unbiased(i) + e);
        }
        let (low, high) = meet(&|i, square| (square - self.eps) / v[i]);
        if low <= high && low > 0.0 {
            let f = roundest(low, high);
            // A mean that was scaled for its number of columns says how the variance was.
            let scaled = factors::scaled(n, &|g| (low..=high).contains(&g)).filter(|words| center.words.ends_with(words));
            let m = if scaled.is_some() { None } else { columns(f, &|f| (low..=high).contains(&f)) };
            let f = m.map_or(f, |m| n as f64 / m);
            let words = match (m, scaled) {
                (Some(m), _) => moments::divided("sum of squares", m as usize, n),
                (None, Some(_)) => "the variance is, too".into(),
                (None, None) => format!("the variance is {f:.6} times the right one"),
            };
            add(words, &|i| (f * v[i] + self.eps).sqrt());
        }
        for size in &sizes {
            let (low, high) = meet(&|i, square| (square - v[i]) / size.of[i].powi(2));
            // A larger one is a factor of all, and no eps.
            if low <= high && low > 0.0 && low < 1.0 {
                let e = roundest(low, high);
                add(size.words(Some(e)), &|i| (v[i] + e * size.of[i].powi(2)).sqrt());
            }
        }
        let least = known.iter().map(|(_, l)| 1.0 / (l.p * l.p)).fold(f64::INFINITY, f64::min);
        for (eps, words) in [(self.eps, "the variance and eps are together at least"), (0.0, "the variance is at least")] {
            add(format!("{words} {}", digits::apart([least])[0]), &|i| (v[i] + eps).max(least).sqrt());
        }
        // Both at once, by least squares.
        let terms = known.iter().map(|(i, l)| (v[*i], 1.0 / (l.p * l.p), 1.0 / (l.off_p / l.p / (l.p * l.p)).powi(2)));
        let (mut ww, mut wx, mut wxx, mut wy, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (x, y, w) in terms {
            (ww, wx, wxx, wy, wxy) = (ww + w, wx + w * x, wxx + w * x * x, wy + w * y, wxy + w * x * y);
        }
        let det = ww * wxx - wx * wx;
        let (f, e) = ((ww * wxy - wx * wy) / det, (wy * wxx - wx * wxy) / det);
        if det > 1e-9 * ww * wxx && known.len() >= 2 * LEAST && f > 0.0 {
            let words = match columns(f, &|of| (of / f - 1.0).abs() < 1e-4) {
                Some(m) => moments::divided("sum of squares", m as usize, n),
                None => format!("the variance is {f:.6} times the right one"),
            };
            add(format!("{words}; and {}", eps_words(e, self.eps, n, self.layer())), &|i| (f * v[i] + e).max(1e-30).sqrt());
        }
        add("values are multiplied by the root, not divided".into(), &|i| 1.0 / (v[i] + self.eps).sqrt());
        add("the root is not taken: values are divided by the variance".into(), &|i| v[i] + self.eps);
        add("a square is taken, not a root: values are divided by (variance + eps)²".into(), &|i| (v[i] + self.eps).powi(2));
        let solved: Vec<(usize, Solved)> = known
            .iter()
            .map(|(i, l)| {
                let (low, high) = squares(l);
                (*i, Some((low - self.eps, high - self.eps)))
            })
            .collect();
        for sum in moments::sums(self.op, self.rows, Some(centers), &solved) {
            add(sum.words, &|i| (sum.of[i] + self.eps).sqrt());
        }
        if self.layer() {
            slices::merged(self, known, &mut add);
            // Sums about the right mean have their names already.
            if known.iter().any(|(i, _)| (centers[*i] - self.center(&self.rows[*i])).abs() > NEAR * centers[*i].abs()) {
                slices::one_pass(self, centers, &mut add);
            }
        }
        for padded in if self.layer() { padding::divisors(self, centers, known) } else { Vec::new() } {
            add(padded.words, &|i| padded.of[i]);
        }
        // The right one is always looked at: what is rounded may hide it.
        all.order_by_key(|(loose, each)| (!each.words.is_empty(), *loose));
        all.into_iter().map(|a| a.1).take(6).collect()
    }
}

mod bias_places;
mod factors;
mod of_another_input;
mod other_divisors;
mod overwritten;
mod padding;
mod partly;
mod past_end;
mod ran_over;
mod rounded;
mod scaled_first;
pub mod segments;
mod slices;
mod steps;
pub mod strided_gains;
mod windows;

#[cfg(test)]
pub(super) mod by_hand;
