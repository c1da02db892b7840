//! Norms whose rows take mean and variance over a window of the flat memory: it starts or ends off its row, for want of a mask or by another one, and is
//! divided by another number.
//!
//! ```text
//! m = Σ x[s + a … s + b]/c        v = Σ (x[s + a … s + b] − m)²/c, or Σ x²/c − m²        s: the start of the row; c: the columns of the row, or b − a
//! ```
//! Rows that are right may be those at the end of every so many rows, which a window does not leave.

use super::{NEAR, Norm, Rounded, SHARE, Weights};
use crate::order::Order as _;
use crate::parallel;

/// Rows that tell a window, at least, and those that one is tried on before all are.
const LEAST: usize = 4;
const FEW: usize = 3;
/// Columns of rows of which every window is tried; of wider ones those that share an end with the row are.
const NARROW: usize = 512;
const WIDEST: usize = 1 << 13;

/// A window and how sums over it are used.
#[derive(Clone, Copy)]
struct Window {
    from: isize,
    to: isize,
    /// The sum is divided by its own length, not by the columns of a row.
    own: bool,
    one_pass: bool,
}

/// Prefix sums of all rows, one after the other, and where windows stop.
struct Flat {
    n: usize,
    sum: Vec<f64>,
    squares: Vec<f64>,
    /// Rows that windows do not leave.
    block: usize,
}

impl Flat {
    fn of(rows: &[Vec<f64>], n: usize, block: usize) -> Self {
        let (mut sum, mut squares) = (vec![0.0], vec![0.0]);
        let (mut s, mut q) = (0.0, 0.0);
        for x in rows.iter().flatten() {
            (s, q) = (s + x, q + x * x);
            sum.push(s);
            squares.push(q);
        }
        Self { n, sum, squares, block }
    }

    /// Mean and variance of a row. `None`: the window holds what nobody knows, or nothing.
    fn moments(&self, i: usize, w: Window, layer: bool) -> Option<(f64, f64)> {
        let (n, end) = (self.n as isize, self.sum.len() as isize - 1);
        let (start, first) = ((i as isize) * n, ((i / self.block * self.block) as isize) * n);
        let last = first + (self.block as isize) * n;
        let (from, to) = ((start + w.from).max(first), (start + w.to).min(last));
        (from < to && to <= end).then_some(())?;
        let range = |p: &[f64]| p[to as usize] - p[from as usize];
        let (s, q) = (range(&self.sum), range(&self.squares));
        let length = (to - from) as f64;
        let by = if w.own { length } else { self.n as f64 };
        let m = if layer { s / by } else { 0.0 };
        let v = if w.one_pass { q / by - m * m } else { (q - 2.0 * m * s + length * m * m) / by };
        (v >= 0.0).then_some((m, v))
    }
}

/// The rows that are right, where they are the last or the first of every so many.
fn block(norm: &Norm, wrong: &[usize]) -> Option<usize> {
    let count = norm.rows.len();
    if wrong.len() + 1 >= count {
        return Some(count);
    }
    let is = |i: usize| wrong.binary_search(&i).is_ok();
    (2..=count / 2).find(|block| {
        let ends = [0, block - 1];
        ends.iter().any(|end| (0..count).all(|i| is(i) != (i % block == *end)))
    })
}

/// The window that all wrong rows were normalized by, in words.
pub fn explain(norm: &Norm) -> Option<String> {
    let (n, count) = (norm.gamma.len(), norm.rows.len());
    // Neighbours have to be known.
    (norm.sampled.len() == count && (16..=WIDEST).contains(&n)).then_some(())?;
    let wrong: Vec<usize> = (0..count).filter(|i| norm.right[i * n..(i + 1) * n].contains(&false)).collect();
    (wrong.len() > LEAST && 2 * wrong.len() > count).then_some(())?;
    let block = block(norm, &wrong)?;
    let own = Weights { words: Vec::new(), gamma: norm.gamma.to_vec(), beta: norm.beta.to_vec() };
    let columns: Vec<usize> = (0..n).collect();
    let lines = parallel::flat(&wrong, |i| norm.line(*i, &columns, &own).filter(|l| l.made.0 >= SHARE).map(|l| (*i, l)));
    (lines.len() > LEAST && lines.len() as f64 >= SHARE * wrong.len() as f64).then_some(())?;
    let flat = Flat::of(norm.rows, n, block);
    let layer = norm.layer();
    let is = |w: Window, (i, l): &(usize, super::Line)| {
        let (m, v) = flat.moments(*i, w, layer)?;
        let r = 1.0 / (v + norm.eps).sqrt();
        let mean = (m - l.mean).abs() <= l.off_mean + NEAR * (m.abs() + 1.0 / l.p);
        Some((mean || !layer) && (r - l.p).abs() <= l.off_p + 4.0 * NEAR * r)
    };
    // Rows in the middle, whose neighbours are there.
    let middle = lines.len() / 2;
    let few = &lines[middle - FEW / 2..middle - FEW / 2 + FEW];
    let width = n as isize;
    let ends = |from: isize| -> Box<dyn Iterator<Item = isize>> {
        let all = (from + 1).max(1)..=(from + 3 * width).min(3 * width);
        if n <= NARROW || from == 0 { Box::new(all) } else { Box::new(std::iter::once(width)) }
    };
    let both = [false, true];
    let starts: Vec<isize> = (-width..width).collect();
    let mut found: Vec<Window> = parallel::collect(starts.len(), |s| {
        let from = starts[s];
        let mut some = Vec::new();
        for to in ends(from) {
            for (own, one_pass) in both.into_iter().flat_map(|own| both.map(|one| (own, one))) {
                let w = Window { from, to, own, one_pass };
                let same = (from, to) == (0, width) || own && to - from == width || one_pass && (own || !layer);
                if !same && few.iter().all(|line| is(w, line) == Some(true)) {
                    some.push(w);
                }
            }
        }
        some
    })
    .into_iter()
    .flatten()
    .collect();
    found.order_by_key(|w| (w.one_pass, w.from.abs() + (w.to - width).abs(), w.own));
    let by = Rounded::default();
    let holds = |w: &&Window| {
        let told: Vec<bool> = lines.iter().filter_map(|line| is(**w, line)).collect();
        if told.len() <= LEAST || told.contains(&false) {
            return false;
        }
        let (mut known, mut centers, mut divisors) = (Vec::new(), vec![0.0; count], vec![1.0; count]);
        for i in 0..count {
            if let Some((m, v)) = flat.moments(i, **w, layer) {
                (centers[i], divisors[i]) = (m, (v + norm.eps).sqrt());
                known.push(i);
            }
        }
        let made: usize = known.iter().map(|i| norm.made(*i, &columns, &own, &centers, &divisors, &by)).sum();
        made as f64 >= SHARE * (known.len() * n) as f64
    };
    let w = found.iter().find(holds)?;
    Some(words(norm, w, block))
}

fn words(norm: &Norm, w: &Window, block: usize) -> String {
    let (n, layer) = (norm.gamma.len() as isize, norm.layer());
    let what = if layer { "mean and variance" } else { "the mean square" };
    let verb = |also: bool| match (layer, also) {
        (true, true) => "also take",
        (true, false) => "are those of",
        (false, true) => "also takes",
        (false, false) => "is that of",
    };
    let elements =
        |k: isize, side: &str| if k == 1 { format!("the {side} element") } else { format!("the {side} {k} elements") };
    let place = match (w.from, w.to) {
        (0, to) if (n + 1..=2 * n).contains(&to) => format!("{} {} of the next row", verb(true), elements(to - n, "first")),
        (from, to) if from < 0 && to == n => format!("{} {} of the row before", verb(true), elements(-from, "last")),
        (from, to) => {
            format!("{} elements {from} … {} from the start of the row in memory", verb(false), to - 1).replace('-', "−")
        }
    };
    let by = if w.own { w.to - w.from } else { n };
    let pass = if w.one_pass { ", the variance as E[x²] − μ²" } else { "" };
    let stop = match norm.rows.len() {
        count if block < count => format!("; it does not leave its {block} rows"),
        _ => String::new(),
    };
    format!("{what} {place}, divided by {by}{pass}{stop}")
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, beta, gamma, rows, with};
    use super::*;
    use crate::op::Op;

    /// Rows of 96 by the window from `a` to `b` within every `block` rows, divided by `c`, or by as many as it has. Behind the last row stand zeros.
    fn said(op: Op, (a, b): (isize, isize), block: usize, c: Option<f64>) -> String {
        let rows = rows();
        let layer = op == Op::Layernorm;
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let n = COLS as isize;
            let (first, last) = ((i / block * block) as isize * n, ((i / block + 1) * block) as isize * n);
            let at = |k: isize| rows.get((k / n) as usize).map_or(0.0, |x| x[(k % n) as usize]);
            let s = i as isize * n;
            let x: Vec<f64> = ((s + a).max(first)..(s + b).min(last)).map(at).collect();
            let c = c.unwrap_or(x.len() as f64);
            let m = if layer { x.iter().sum::<f64>() / c } else { 0.0 };
            let v = x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / c;
            (rows[i][j] - m) / (v + EPS).sqrt() * gamma(j) + if layer { beta(j) } else { 0.0 }
        };
        with(op, &rows, &made, |norm: &Norm| explain(norm).unwrap_or_default())
    }

    #[test]
    fn windows_that_leave_their_row_are_named() {
        assert_eq!(
            said(Op::Layernorm, (0, 117), 24, Some(96.0)),
            "mean and variance also take the first 21 elements of the next row, divided by 96"
        );
        assert_eq!(
            said(Op::Layernorm, (0, 128), 8, Some(96.0)),
            "mean and variance also take the first 32 elements of the next row, divided by 96; it does not leave its 8 rows"
        );
        assert_eq!(
            said(Op::Layernorm, (-5, 96), 6, None),
            "mean and variance also take the last 5 elements of the row before, divided by 101; it does not leave its 6 rows"
        );
        assert_eq!(
            said(Op::Rmsnorm, (7, 139), 24, None),
            "the mean square is that of elements 7 … 138 from the start of the row in memory, divided by 132"
        );
    }

    #[test]
    fn another_number_under_the_sum_is_no_window() {
        assert_eq!(said(Op::Layernorm, (0, 96), 24, Some(96.0)), "", "a right one");
        assert_eq!(said(Op::Layernorm, (0, 117), 24, Some(57.3)), "", "divided by nobody's number");
    }
}
