//! Solves the divisor that a norm used in each row, and finds the sum that gives it: parts of the row left out or counted twice,
//! another row's,
//! another number of columns, sums in 16 bits.
//!
//! ```text
//! y_j = γ_j · (x_j − μ) / d + β_j  for every j  ──►  the interval of d  ──►  d² − ε: the mean square, held against those of parts of the row
//! ```

use super::formulas::{At, Formula, formula, mean};
use crate::Format;
use crate::op::Op;
use crate::order::Order as _;
use crate::tensor::round_to;
use std::sync::Arc;

/// What f32 sums of a row in any order may be off, relative.
const NEAR: f64 = 1e-5;
/// Rows that a sum has to be of, at least, and their share of the wrong ones.
const LEAST: usize = 4;
const SHARE: f64 = 0.2;
/// Rows that a sum is tried on before all are.
const FEW: usize = 32;
/// Sums that are kept, at most.
const KEPT: usize = 6;
/// The share of elements that statistics of their own have to make.
const FREE: f64 = 0.98;
/// One in so many elements of a row may be wrong in another way.
const OTHERS: usize = 64;
/// Elements that a sum may start or end off its row, at most.
const FLAT: usize = 64;

/// The interval of the mean square that a row was divided by; `None`: its elements contradict each other.
pub type Solved = Option<(f64, f64)>;

/// Solves one row: `cell` is what each element may have been before it was stored.
pub fn solve(at: &At, op: Op, cell: impl Fn(usize) -> (f64, f64)) -> Solved {
    let shift = at.moments(op).0;
    let (mut low, mut high) = (0.0f64, f64::INFINITY);
    let mut ends: Vec<(f64, f64)> = Vec::new();
    for (j, x) in at.x().iter().enumerate() {
        let by = (x - shift) * at.gamma[j];
        let (from, to) = cell(j);
        if by.abs() < 1e-30 || !(from.is_finite() && to.is_finite()) {
            continue;
        }
        let slack = 4.0 * f64::from(f32::EPSILON) * (at.beta[j].abs() + from.abs().max(to.abs()));
        let of = [(from - at.beta[j] - slack) / by, (to - at.beta[j] + slack) / by];
        ends.push((of[0].min(of[1]), of[0].max(of[1])));
        (low, high) = (low.max(of[0].min(of[1])), high.min(of[0].max(of[1])));
    }
    // A few elements may be wrong in another way: what most others say.
    if low > high * (1.0 + NEAR) {
        (low, high) = most(&ends)?;
    }
    let square = |r: f64| 1.0 / (r * r) - at.eps;
    if low <= 0.0 {
        // Nothing is left of the row: its sum may be anything above this, or infinite.
        return (high >= 0.0 && high.is_finite()).then(|| (square(high), f64::INFINITY));
    }
    (low <= high * (1.0 + NEAR) && high.is_finite()).then(|| (square(high.max(low)), square(low.min(high))))
}

/// What all intervals but a few have in common.
fn most(ends: &[(f64, f64)]) -> Option<(f64, f64)> {
    let mut marks: Vec<(f64, bool)> = ends.iter().flat_map(|e| [(e.0, true), (e.1, false)]).collect();
    marks.order_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let (mut open, mut best, mut found) = (0usize, 0usize, None);
    for (n, (x, starts)) in marks.iter().enumerate() {
        if !starts {
            open -= 1;
            continue;
        }
        open += 1;
        if open > best {
            (best, found) = (open, Some((*x, marks.get(n + 1)?.0)));
        }
    }
    let few = ends.len() - best <= (ends.len() / OTHERS).max(1);
    found.filter(|(low, _)| few && ends.len() >= OTHERS && *low > 0.0)
}

/// A sum of squares of `n` columns over another number, in words.
pub fn divided(what: &str, by: usize, n: usize) -> String {
    match by {
        1 => format!("the sum of squares is not divided by the number of columns, {n}"),
        _ => format!("the {what} is divided by {by} instead of {n}"),
    }
}

/// A sum of every row, in words.
pub struct Sum {
    pub words: String,
    pub of: Vec<f64>,
}

/// Squares of a row about its mean, and their prefix sums.
struct Row {
    squares: Vec<f64>,
    prefix: Vec<f64>,
    mean: f64,
}

/// The formulas of sums that the solved rows have: the ones of most rows first.
pub fn formulas(op: Op, rows: &[Vec<f64>], solved: &[(usize, Solved)]) -> Vec<Formula> {
    sums(op, rows, None, solved).into_iter().map(|sum| of_sum(op, sum)).collect()
}

/// The same where the reciprocal of the root is rounded to 16 bits: that of every row is such a number.
pub fn rounded(op: Op, rows: &[Vec<f64>], eps: f64, solved: &[(usize, Solved)]) -> Vec<Formula> {
    let mut all = Vec::new();
    for f in [Format::Bf16, Format::F16] {
        let round = move |x: f64| f64::from(round_to(f, x as f32));
        // What is rounded to the one number of the row's interval.
        let cell = |(low, high): (f64, f64)| -> Solved {
            let ends = [high, low].map(|square| 1.0 / (square + eps).sqrt());
            let one = round(0.5 * (ends[0] + ends[1]));
            let step = f.ulp(one);
            let is_one = ends[0] * (1.0 - NEAR) <= one && one <= ends[1] * (1.0 + NEAR) && ends[1] - ends[0] < 0.1 * step;
            let square = |r: f64| 1.0 / (r * r) - eps;
            is_one.then(|| (square(one + 0.51 * step), square(one - 0.51 * step)))
        };
        let known: Vec<(f64, f64)> = solved.iter().filter_map(|s| s.1).collect();
        if known.len() < LEAST || known.iter().any(|s| cell(*s).is_none()) {
            continue;
        }
        let wide: Vec<(usize, Solved)> = solved.iter().map(|(i, s)| (*i, s.and_then(cell))).collect();
        all.extend(sums(op, rows, None, &wide).into_iter().map(|sum| {
            let of = Arc::new(sum.of);
            formula(format!("{}, and the reciprocal of the root is rounded to {f}", sum.words), move |r: &At| {
                r.norm(r.moments(op).0, 1.0 / round(1.0 / (of[r.i] + r.eps).sqrt()))
            })
        }));
    }
    all
}

/// The sums of squares that the solved rows have, about their means or about `centers`: the ones of most rows first.
pub fn sums(op: Op, rows: &[Vec<f64>], centers: Option<&[f64]>, solved: &[(usize, Solved)]) -> Vec<Sum> {
    let known: Vec<(usize, (f64, f64))> = solved.iter().filter_map(|(i, s)| s.map(|s| (*i, s))).collect();
    if known.len() < LEAST {
        return Vec::new();
    }
    let table: Vec<Row> = rows.iter().enumerate().map(|(i, x)| row(op, x, centers.map(|c| c[i]))).collect();
    let fits = |of: f64, (low, high): (f64, f64)| {
        let slack = if of.is_finite() { NEAR * of.abs() } else { 0.0 };
        low - slack <= of && of <= high + slack
    };
    let right: Vec<f64> = table.iter().map(|r| r.total() / r.n()).collect();
    let least = LEAST.max((SHARE * known.len() as f64) as usize);
    let few: Vec<(usize, (f64, f64))> = known.iter().copied().step_by(known.len().div_ceil(FEW)).collect();
    let mut found: Vec<(usize, Sum)> = Vec::new();
    let mut add = |words: String, of: &dyn Fn(usize) -> f64| {
        // A few rows all over refuse most: of a fifth of all, some are among them.
        let told = || known.iter().any(|(i, s)| !fits(right[*i], *s) && fits(of(*i), *s));
        if !few.iter().any(|(i, s)| fits(of(*i), *s)) || !told() {
            return;
        }
        let n = known.iter().filter(|(i, s)| fits(of(*i), *s)).count();
        if n >= least {
            found.push((n, Sum { words, of: (0..rows.len()).map(of).collect() }));
        }
    };
    let what = if op == Op::Layernorm { "variance" } else { "mean square" };
    parts(&table, what, &mut add);
    flat(&table, what, &mut add);
    others(op, rows, (&table, &known), what, &mut add);
    kept::sums(&table, what, &mut add);
    slots::sums(op, rows, &table, what, &mut add);
    if found.is_empty() {
        let (n, prefix): (f64, Vec<Vec<f64>>) = (table[0].n(), table.into_iter().map(|r| r.prefix).collect());
        let bounds = known.iter().filter(|(_, (_, high))| high.is_finite());
        let bounds = bounds.map(|(i, (low, high))| (*i, (n * low * (1.0 - NEAR), n * high * (1.0 + NEAR))));
        let counted = runs::find(&prefix, &bounds.collect::<Vec<_>>());
        return counted
            .map(|(words, of)| Sum { words: format!("the {what} {words}"), of: of.into_iter().map(|x| x / n).collect() })
            .into_iter()
            .collect();
    }
    found.order_by_key(|(n, _)| std::cmp::Reverse(*n));
    found.truncate(KEPT);
    found.into_iter().map(|(_, sum)| sum).collect()
}

fn of_sum(op: Op, sum: Sum) -> Formula {
    let of = Arc::new(sum.of);
    formula(sum.words, move |r: &At| r.norm(r.moments(op).0, (of[r.i] + r.eps).sqrt()))
}

fn row(op: Op, x: &[f64], center: Option<f64>) -> Row {
    let m = mean(x, |x| x);
    let center = center.unwrap_or(if op == Op::Layernorm { m } else { 0.0 });
    let squares: Vec<f64> = x.iter().map(|x| (x - center).powi(2)).collect();
    let mut prefix = vec![0.0];
    squares.iter().fold(0.0, |sum, x| {
        prefix.push(sum + x);
        sum + x
    });
    Row { squares, prefix, mean: m }
}

impl Row {
    fn n(&self) -> f64 {
        self.squares.len() as f64
    }
    fn total(&self) -> f64 {
        self.prefix[self.squares.len()]
    }
    fn range(&self, from: usize, to: usize) -> f64 {
        self.prefix[to.min(self.squares.len())] - self.prefix[from.min(self.squares.len())]
    }
    fn slice(&self, width: usize, of: usize, which: usize) -> f64 {
        (which * width..self.squares.len()).step_by(of * width).map(|from| self.range(from, from + width)).sum()
    }
}

/// A row whose mean square is known to lie between two numbers.
type Known = (usize, (f64, f64));

/// Takes a sum: words, and the mean square of every row.
type Add<'x> = dyn FnMut(String, &dyn Fn(usize) -> f64) + 'x;

/// Parts of the row.
fn parts(table: &[Row], what: &str, add: &mut Add) {
    let n = table[0].squares.len();
    let size = n as f64;
    for m in 1..n {
        add(format!("the {what} is the sum over the first {m} columns, divided by {n}"), &|i| table[i].range(0, m) / size);
        add(format!("the {what} is that of the first {m} columns"), &|i| table[i].range(0, m) / m as f64);
        add(format!("the {what} is the sum over the last {m} columns, divided by {n}"), &|i| table[i].range(n - m, n) / size);
        add(format!("the {what} is that of the last {m} columns"), &|i| table[i].range(n - m, n) / m as f64);
    }
    for width in [1usize, 2, 4, 8, 16, 32, 64, 128, 256, 512].into_iter().filter(|w| *w < n) {
        for of in [2usize, 3, 4, 8, 16, 32].into_iter().filter(|of| (of - 1) * width < n) {
            let slice = |which: usize| format!("slice {which} of every {of}, {width} wide,");
            let part = |i: usize, which: usize| table[i].slice(width, of, which);
            for which in 0..of {
                let words = format!("the {what} lacks {} of the row", slice(which));
                add(words, &|i| (table[i].total() - part(i, which)) / size);
            }
            for which in 0..of {
                let words = slice(which);
                let alone = format!("the {what} sums {words} of the row alone");
                add(format!("{alone}, divided by all {n} columns"), &|i| part(i, which) / size);
                add(format!("{alone}, {of} times"), &|i| part(i, which) * of as f64 / size);
                add(format!("the {what} counts {words} of the row twice"), &|i| (table[i].total() + part(i, which)) / size);
            }
        }
    }
    for width in [8usize, 16, 32, 64, 128, 256, 512, 1024].into_iter().filter(|w| *w < n) {
        let chunks = n.div_ceil(width);
        let part = |i: usize, c: usize| table[i].range(c * width, (c + 1) * width);
        let place = |c: usize| format!("columns {} … {}", c * width, ((c + 1) * width).min(n) - 1);
        for c in 0..chunks {
            add(format!("the {what} lacks {}", place(c)), &|i| (table[i].total() - part(i, c)) / size);
            add(format!("the {what} counts {} twice", place(c)), &|i| (table[i].total() + part(i, c)) / size);
            for d in (0..chunks).filter(|d| *d != c && chunks <= 64) {
                add(format!("the {what} counts {} twice and {} not at all", place(c), place(d)), &|i| {
                    (table[i].total() + part(i, c) - part(i, d)) / size
                });
            }
        }
    }
    for m in (1..2 * n + 1025).filter(|m| *m != n) {
        add(divided(what, m, n), &|i| table[i].total() / m as f64);
    }
}

/// Sums that start or end so many elements off the row, in memory where rows follow each other.
fn flat(table: &[Row], what: &str, add: &mut Add) {
    let n = table[0].squares.len();
    let squares = || table.iter().flat_map(|r| &r.squares);
    let mut prefix = vec![0.0];
    squares().fold(0.0, |sum, x| {
        prefix.push(sum + x);
        sum + x
    });
    let size = n as f64;
    let end = table.len() * n;
    // What lies before the first row and behind the last nobody knows.
    let sum = |from: isize, to: isize| {
        let known = from >= 0 && to as usize <= end;
        if known { prefix[to as usize] - prefix[from as usize] } else { f64::NAN }
    };
    let most = n.min(FLAT) as isize;
    for d in 1..=most {
        let start = |i: usize| (i * n) as isize;
        let stop = |i: usize| ((i + 1) * n) as isize;
        let these = if d == 1 { "first element".to_string() } else { format!("first {d} elements") };
        add(format!("the {what} also sums the {these} of the next row"), &|i| sum(start(i), stop(i) + d) / size);
        let these = if d == 1 { "last element".to_string() } else { format!("last {d} elements") };
        add(format!("the {what} also sums the {these} of the row before"), &|i| sum(start(i) - d, stop(i)) / size);
        add(format!("the {what} is that of the columns from {d} on and of the first {d} of the next row"), &|i| {
            sum(start(i) + d, stop(i) + d) / size
        });
        add(format!("the {what} is that of the row but its last {d} and of the last {d} of the row before"), &|i| {
            sum(start(i) - d, stop(i) - d) / size
        });
    }
}

/// Other rows, lanes behind the end, sums in few bits, cancellation.
fn others(op: Op, rows: &[Vec<f64>], (table, known): (&[Row], &[Known]), what: &str, add: &mut Add) {
    let (count, n) = (rows.len(), table[0].squares.len());
    let of = |i: usize| table[i].total() / n as f64;
    add(format!("the {what} is that of row 0 for all rows"), &|_| of(0));
    let all = (0..count).map(of).sum::<f64>() / count as f64;
    add(format!("the {what} is the mean over all {count} rows"), &|_| all);
    for d in (1..count).filter(|d| *d <= 64) {
        add(format!("the {what} is that of row i − {d}, wrapped"), &|i| of((i + count - d) % count));
        add(format!("the {what} is that of row i + {d}, wrapped"), &|i| of((i + d) % count));
        if d > 1 {
            add(format!("the {what} is that of row (i / {d})·{d}"), &|i| of(i / d * d));
            add(format!("the {what} is that of row i mod {d}"), &|i| of(i % d));
            add(format!("the {what} is that of row (i / {d})·{d} + {}", d - 1), &|i| of((i / d * d + d - 1).min(count - 1)));
            add(format!("the {what} is the mean over {d} rows"), &|i| {
                let all = i / d * d..(i / d * d + d).min(count);
                all.clone().map(of).sum::<f64>() / all.len() as f64
            });
            add(format!("the {what} is the sum over {d} rows together, divided by the {n} columns of one"), &|i| {
                (i / d * d..(i / d * d + d).min(count)).map(of).sum()
            });
        }
    }
    add(format!("the {what} of the row before is added to it"), &|i| of(i) + i.checked_sub(1).map_or(0.0, of));
    if op == Op::Rmsnorm {
        let about = |i: usize| {
            let m = mean(&rows[i], |x| x);
            mean(&rows[i], |x| (x - m).powi(2))
        };
        add("values are divided by the root of the variance, the mean subtracted, and not of the mean square".into(), &about);
    }
    if op == Op::Layernorm {
        for lanes in
            [32usize, 64, 128, 256, 512, 1024, 2048].into_iter().map(|l| n.next_multiple_of(l)).chain([n.next_power_of_two()])
        {
            if lanes > n {
                let words = format!("lanes past the end of the row, up to {lanes}, add (0 − μ)² to the variance");
                add(words, &|i| of(i) + (lanes - n) as f64 / n as f64 * table[i].mean.powi(2));
            }
        }
        let one_pass: Vec<f64> = rows.iter().map(|x| one_pass(x)).collect();
        add("the variance is E[x²] − μ² in f32, which cancels".into(), &|i| one_pass[i]);
    }
    let shift = |i: usize| if op == Op::Layernorm { table[i].mean } else { 0.0 };
    narrow::sums(rows, &shift, known, add);
}

/// E[x²] − μ² in f32, one column after the other.
fn one_pass(x: &[f64]) -> f64 {
    let (mut sum, mut squares) = (0f32, 0f32);
    for x in x.iter().map(|x| *x as f32) {
        (sum, squares) = (sum + x, squares + x * x);
    }
    let (m, s) = (sum / x.len() as f32, squares / x.len() as f32);
    f64::from((s - m * m).max(0.0))
}

/// A row, what was written for it, and what each of its elements may have been before it was stored.
pub struct Written<'r> {
    pub at: At<'r>,
    pub y: &'r [f64],
    pub cells: Vec<(f64, f64)>,
}

/// Least squares of `y − β = γ·((x − μ)·p + q)`.
fn line(at: &At, y: &[f64], m: f64, shifted: bool) -> (f64, f64) {
    let (mut xx, mut xw, mut ww, mut xy, mut wy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (j, x) in at.x().iter().enumerate() {
        let (u, w, y) = (at.gamma[j] * (x - m), at.gamma[j], y[j] - at.beta[j]);
        (xx, xw, ww, xy, wy) = (xx + u * u, xw + u * w, ww + w * w, xy + u * y, wy + w * y);
    }
    let det = xx * ww - xw * xw;
    if shifted { ((xy * ww - wy * xw) / det, (wy * xx - xy * xw) / det) } else { (xy / xx, 0.0) }
}

/// How far rounded sums may be from exact ones where they leave f16, relative.
const OVERFLOWS: f64 = 1.0 / 64.0;

/// Whether all rows are normalized rightly but for their statistics, which are no sums that are known: by how much these are off.
pub fn free(op: Op, rows: &[Written]) -> Option<String> {
    (rows.len() >= LEAST).then_some(())?;
    let layer = op == Op::Layernorm;
    let (mut made, mut n) = (0usize, 0usize);
    let (mut factors, mut shift) = ((f64::INFINITY, 0.0f64), 0.0f64);
    // Sums of squares: the largest of a row that has a divisor, the least of one whose divisor is infinite.
    let (mut divided, mut lost) = (0.0f64, f64::INFINITY);
    for Written { at, y, cells } in rows {
        let (m, d) = at.moments(op);
        let (p, q) = line(at, y, m, layer);
        for (j, x) in at.x().iter().enumerate() {
            let of = at.gamma[j] * ((x - m) * p + q) + at.beta[j];
            let (low, high) = cells[j];
            let more = 0.25 * (high - low);
            n += 1;
            made += usize::from(low - more <= of && of <= high + more);
        }
        let squares: f64 = at.x().iter().map(|x| (x - if layer { m } else { 0.0 }).powi(2)).sum();
        let is_lost = y.iter().all(|y| *y == 0.0);
        let end = if is_lost { &mut lost } else { &mut divided };
        *end = if is_lost { end.min(squares) } else { end.max(squares) };
        let factor = 1.0 / (p * d);
        // What nothing is left of has no divisor.
        if !is_lost {
            factors = (factors.0.min(factor), factors.1.max(factor));
        }
        // The mean that was taken off is μ − q/p.
        shift = shift.max((q / (p * d)).abs());
    }
    // One factor for all rows is a gain of the result, and no statistic.
    let apart = factors.0 > 0.0 && factors.1 > 0.0 && (factors.1 > factors.0 * (1.0 + 1e-4) || lost.is_finite());
    (made as f64 >= FREE * n as f64 && (apart || shift > 1e-4)).then(|| {
        if let Some(words) = raced::explain(op, rows) {
            return words;
        }
        let rows = if lost.is_finite() { ", infinite where a row is 0" } else { "" };
        let divisor = format!("{:.4} to {:.4} times the right one{rows}", factors.0, factors.1);
        let what = if layer && shift > 1e-4 {
            format!("a mean that is off by up to {shift:.4} standard deviations and a divisor that is {divisor}")
        } else {
            format!("a divisor that is {divisor}")
        };
        let limit = Format::F16.max_finite();
        if !layer && divided < limit * (1.0 + OVERFLOWS) && limit * (1.0 - OVERFLOWS) < lost && lost.is_finite() {
            return format!(
                "squares are summed in f16: rows whose sum is beyond {limit} (from {lost:.0} on) overflow and become 0, those of less (up to \
                 {divided:.0}) are normalized with {what}"
            );
        }
        format!(
            "each wrong row is normalized with {what}, the same for all its elements: no known choice of elements gives these statistics"
        )
    })
}

/// How near to eps a variance and eps are where the variance is 0, relative.
const CUT: f64 = 0.01;

/// Whether wrong rows are all divided by a variance that is off by no more than E[x²] − μ² in f32 may be, and most by more than a right one:
/// the order of its sums is not known, so that no number says it. A row and what was written for it.
pub fn cancels(rows: &[(At, &[f64])]) -> Option<String> {
    (rows.len() >= LEAST).then_some(())?;
    let (mut far, mut cut) = (0, 0);
    for (at, y) in rows {
        let x = at.x();
        let m = mean(x, |x| x);
        let (v, square) = (mean(x, |x| (x - m).powi(2)), mean(x, |x| x * x));
        // y − β = γ·((x − μ)·p + q) by least squares.
        let (mut xx, mut xw, mut ww, mut xy, mut wy, mut yy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for (j, x) in x.iter().enumerate() {
            let (u, w, y) = (at.gamma[j] * (x - m), at.gamma[j], y[j] - at.beta[j]);
            (xx, xw, ww, xy, wy, yy) = (xx + u * u, xw + u * w, ww + w * w, xy + u * y, wy + w * y, yy + y * y);
        }
        let det = xx * ww - xw * xw;
        let (p, q) = ((xy * ww - wy * xw) / det, (wy * xx - xy * xw) / det);
        let rest = yy - p * xy - q * wy;
        let off = 1.0 / (p * p) - at.eps - v;
        // A sum of n terms in f32 is off by some roundings of its largest partial sums.
        let step = square * f64::from(f32::EPSILON);
        let most = step * (x.len() as f64).sqrt();
        let is_one = square > 100.0 * v && p > 0.0 && rest.abs() < 1e-6 * yy && off.abs() <= most;
        is_one.then_some(())?;
        // A difference below 0 is cut to 0, so that eps alone is left.
        let is_cut = (1.0 / (p * p) - at.eps).abs() <= CUT * at.eps && v > at.eps;
        cut += usize::from(is_cut);
        far += usize::from(is_cut || off.abs() > 0.25 * step);
    }
    (2 * far >= rows.len()).then(|| {
        let none = if cut > 0 { format!("; in {cut} of {} wrong rows it is 0", rows.len()) } else { String::new() };
        format!("the variance is E[x²] − μ² in f32: the mean is large, so the difference is mostly rounding{none}")
    })
}

#[cfg(test)]
mod by_hand;
mod kept;
pub mod narrow;
mod raced;
pub mod remainders;
pub mod runs;
pub mod slots;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<f64>> {
        (0..12).map(|i| (0..96).map(|j| ((i * 37 + j * 11 + i * j) % 29) as f64 / 7.0 - 1.5).collect()).collect()
    }

    /// What is found of rows that were divided by this mean square.
    fn found(op: Op, of: impl Fn(&[f64]) -> f64) -> Vec<String> {
        let rows = rows();
        let solved: Vec<(usize, Solved)> =
            rows.iter().enumerate().map(|(i, x)| (i, Some((of(x) * (1.0 - 1e-6), of(x) * (1.0 + 1e-6))))).collect();
        formulas(op, &rows, &solved).into_iter().map(|f| f.words).collect()
    }

    #[test]
    fn sums_of_parts_are_named() {
        let total = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
        let n = 96.0;
        assert!(found(Op::Rmsnorm, |x| (total(x) - total(&x[32..64])) / n)[0].contains("lacks slice 1 of every 2, 32 wide"));
        let all = found(Op::Rmsnorm, |x| (total(x) + total(&x[64..80]) - total(&x[80..])) / n);
        assert!(all[0].contains("counts columns 64 … 79 twice and columns 80 … 95 not at all"), "{all:?}");
        assert!(found(Op::Rmsnorm, |x| total(x) / 97.0)[0].contains("divided by 97 instead of 96"));
        assert!(found(Op::Rmsnorm, |x| total(x) / n).is_empty(), "what is right has no name");
        let bf16 = narrow::Way {
            format: Format::Bf16,
            cut: false,
            load: 4,
            lanes: 1,
            runs: false,
            in_order: false,
            square: true,
            wide: false,
        };
        let all = found(Op::Rmsnorm, |x| bf16.sum(x, 0.0) / n);
        assert!(all[0].contains("sums of 4 neighbouring squares and their sum are rounded to bf16 at every step"), "{all:?}");
    }

    /// Of 8.5 and an eps of 0.5 the divisor is 3. The mean of 3 and 6 is subtracted in a layernorm alone.
    #[test]
    fn a_sum_meets_eps_under_the_root() {
        let (rows, gamma, beta) = ([vec![3.0, 6.0]], [1.0, 2.0], [0.0, 1.0]);
        let at = At { rows: &rows, i: 0, gamma: &gamma, beta: &beta, eps: 0.5, cols: 2 };
        let of = |op: Op| of_sum(op, Sum { words: "a sum".into(), of: vec![8.5] }).row(&at);
        assert_eq!(of(Op::Rmsnorm), [1.0, 5.0]);
        assert_eq!(of(Op::Layernorm), [-0.5, 2.0]);
    }

    #[test]
    fn a_variance_that_cancels_is_told_from_one_that_is_wrong() {
        let rows: Vec<Vec<f64>> = rows().iter().map(|x| x.iter().map(|x| 300.0 + 0.3 * x).collect()).collect();
        let ones = vec![1.0; 96];
        let zeros = vec![0.0; 96];
        let at = |i: usize| At { rows: &rows, i, gamma: &ones, beta: &zeros, eps: 1e-5, cols: 96 };
        let found = |by: &dyn Fn(usize) -> f64| {
            let made = |i: usize| {
                let m = mean(&rows[i], |x| x);
                at(i).norm(m, (mean(&rows[i], |x| (x - m).powi(2)) + by(i) + 1e-5).sqrt())
            };
            let made: Vec<Vec<f64>> = (0..rows.len()).map(made).collect();
            cancels(&made.iter().enumerate().map(|(i, y)| (at(i), &y[..])).collect::<Vec<_>>())
        };
        assert!(found(&|i| 0.02 * if i % 2 == 0 { 1.0 } else { -1.0 }).is_some());
        assert_eq!(found(&|_| 0.5), None);
        assert_eq!(found(&|_| 0.0), None);
    }

    #[test]
    fn rows_are_solved() {
        let rows = rows();
        let (gamma, beta) = (vec![1.5; 96], vec![0.25; 96]);
        let at = At { rows: &rows, i: 3, gamma: &gamma, beta: &beta, eps: 1e-3, cols: 96 };
        let y = at.norm(at.moments(Op::Layernorm).0, (0.7f64 + 1e-3).sqrt());
        let (low, high) = solve(&at, Op::Layernorm, |j| (y[j] - 1e-6, y[j] + 1e-6)).unwrap();
        assert!(low <= 0.7 && 0.7 <= high && high - low < 1e-4, "{low} {high}");
        assert!(solve(&at, Op::Layernorm, |j| (y[j] + j as f64, y[j] + j as f64)).is_none());
        // One element that another row wrote over.
        let over = |j: usize| if j == 0 { 7.0 } else { y[j] };
        let (low, high) = solve(&at, Op::Layernorm, |j| (over(j) - 1e-6, over(j) + 1e-6)).unwrap();
        assert!(low <= 0.7 && 0.7 <= high && high - low < 1e-4, "{low} {high}");
    }

    /// Of 68 numbers one may be wrong and two may not, whatever others of the row are only known to be large.
    #[test]
    fn what_has_no_end_says_nothing_of_a_sum() {
        let rows = vec![(0..128).map(|j| 1.0 + f64::from(j % 7)).collect::<Vec<f64>>()];
        let at = At { rows: &rows, i: 0, gamma: &[1.0; 128], beta: &[0.0; 128], eps: 0.0, cols: 128 };
        let solved = |wrong: usize| {
            solve(&at, Op::Rmsnorm, |j| {
                let y = rows[0][j] / 2.0 * if j < wrong { 3.0 } else { 1.0 };
                (y * (1.0 - 1e-4), if j < 68 { y * (1.0 + 1e-4) } else { f64::INFINITY })
            })
        };
        assert!(solved(1).is_some_and(|(low, high)| low <= 4.0 && 4.0 <= high), "{:?}", solved(1));
        assert_eq!(solved(2), None);
    }
}
