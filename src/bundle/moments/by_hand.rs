//! Every sum that a norm may have taken by mistake, a second time by hand.

use super::*;
use crate::bundle::by_hand::{Hand, all_seen, bf16, f16, rows, same, which};
use std::collections::BTreeSet;

/// A row of a norm among all.
#[derive(Clone, Copy)]
struct Place<'r> {
    op: Op,
    rows: &'r [Vec<f64>],
    i: usize,
}

impl Place<'_> {
    fn n(self) -> usize {
        self.rows[0].len()
    }
    /// Row `i` about its mean (a layernorm), or as it is.
    fn about(self, i: usize) -> Vec<f64> {
        let x = &self.rows[i];
        let shift = if self.op == Op::Layernorm { x.iter().sum::<f64>() / x.len() as f64 } else { 0.0 };
        x.iter().map(|x| x - shift).collect()
    }
    /// Σ of the squares of these columns of row `i`.
    fn of(self, i: usize, columns: impl Iterator<Item = usize>) -> f64 {
        let x = self.about(i);
        columns.filter(|j| *j < x.len()).map(|j| x[j] * x[j]).sum()
    }
    /// Σ over the columns that are taken this often, over all of them.
    fn times(self, often: impl Fn(usize) -> f64) -> f64 {
        let x = self.about(self.i);
        (0..x.len()).map(|j| often(j) * x[j] * x[j]).sum::<f64>() / x.len() as f64
    }
    fn right(self, i: usize) -> f64 {
        self.of(i, 0..self.n()) / self.n() as f64
    }
    /// Σ of squares in memory, `from` and `to` columns away from this row's start and end; NaN outside the tensor.
    fn memory(self, from: isize, to: isize) -> f64 {
        let n = self.n() as isize;
        let (start, end) = (self.i as isize * n + from, (self.i as isize + 1) * n + to);
        if start < 0 || end > n * self.rows.len() as isize {
            return f64::NAN;
        }
        let all = (start..end).map(|at| self.about((at / n) as usize)[(at % n) as usize].powi(2));
        all.sum::<f64>() / n as f64
    }
    fn wrapped(self, by: isize) -> f64 {
        self.right((self.i as isize + by).rem_euclid(self.rows.len() as isize) as usize)
    }
    /// Sums of `load` squares added by lanes, which are then added in halves; everything rounded.
    fn narrow(self, load: usize, lanes: usize, round: fn(f64) -> f64) -> f64 {
        let x = self.about(self.i);
        let mut sums = vec![0.0; lanes];
        let mut lane = 0;
        for some in x.chunks(load) {
            let square = round(some.iter().map(|x| x * x).sum());
            sums[lane] = round(sums[lane] + square);
            lane = (lane + 1) % lanes;
        }
        let mut half = lanes / 2;
        while half > 0 {
            for l in 0..half {
                sums[l] = round(sums[l] + sums[l + half]);
            }
            half /= 2;
        }
        sums[0] / x.len() as f64
    }
}

/// Whether column `j` is in slice `which` of every `of`, `width` wide.
fn in_slice(n: &[f64], j: usize) -> bool {
    let (which, of, width) = (n[0] as usize, n[1] as usize, n[2] as usize);
    j / width % of == which
}

fn within(n: &[f64], j: usize) -> f64 {
    f64::from(u8::from(n[0] as usize <= j && j <= n[1] as usize))
}

fn table<'x>() -> Hand<'x, Place<'x>> {
    let alone = |n: &[f64], p: Place| p.times(|j| f64::from(u8::from(in_slice(n, j))));
    let by = |n: &[f64]| n[0] as usize;
    let narrow = |n: &[f64], p: Place, round| p.narrow(n[0] as usize, n.get(2).map_or(1, |l| *l as usize), round);
    let single = |n: &[f64], p: Place, round| p.narrow(1, n.get(1).map_or(1, |l| *l as usize), round);
    vec![
        ("the W is the sum over the first 9 columns, divided by 9", Box::new(move |n, p| p.of(p.i, 0..by(n)) / p.n() as f64)),
        ("the W is that of the first 9 columns", Box::new(move |n, p| p.of(p.i, 0..by(n)) / n[0])),
        (
            "the W is the sum over the last 9 columns, divided by 9",
            Box::new(move |n, p| p.of(p.i, p.n() - by(n)..p.n()) / p.n() as f64),
        ),
        ("the W is that of the last 9 columns", Box::new(move |n, p| p.of(p.i, p.n() - by(n)..p.n()) / n[0])),
        (
            "the W lacks slice 9 of every 9, 9 wide, of the row",
            Box::new(|n, p| p.times(|j| f64::from(u8::from(!in_slice(n, j))))),
        ),
        ("the W sums slice 9 of every 9, 9 wide, of the row alone, divided by all 9 columns", Box::new(alone)),
        ("the W sums slice 9 of every 9, 9 wide, of the row alone, 9 times", Box::new(move |n, p| n[3] * alone(n, p))),
        (
            "the W counts slice 9 of every 9, 9 wide, of the row twice",
            Box::new(|n, p| p.times(|j| if in_slice(n, j) { 2.0 } else { 1.0 })),
        ),
        ("the W lacks columns 9 … 9", Box::new(|n, p| p.times(|j| 1.0 - within(n, j)))),
        ("the W counts columns 9 … 9 twice", Box::new(|n, p| p.times(|j| 1.0 + within(n, j)))),
        (
            "the W counts columns 9 … 9 twice and columns 9 … 9 not at all",
            Box::new(|n, p| p.times(|j| 1.0 + within(n, j) - within(&n[2..], j))),
        ),
        ("the W is divided by 9 instead of 9", Box::new(|n, p| p.right(p.i) * n[1] / n[0])),
        ("the sum of squares is not divided by the number of columns, 9", Box::new(|n, p| p.right(p.i) * n[0])),
        (
            "the W is the sum over 9 rows together, divided by the 9 columns of one",
            Box::new(move |n, p| {
                let together = (0..p.rows.len()).filter(|i| i / by(n) == p.i / by(n));
                together.map(|i| p.of(i, 0..p.n())).sum::<f64>() / n[1]
            }),
        ),
        ("the W also sums the first element of the next row", Box::new(|_, p| p.memory(0, 1))),
        ("the W also sums the first 9 elements of the next row", Box::new(|n, p| p.memory(0, n[0] as isize))),
        ("the W also sums the last element of the row before", Box::new(|_, p| p.memory(-1, 0))),
        ("the W also sums the last 9 elements of the row before", Box::new(|n, p| p.memory(-(n[0] as isize), 0))),
        (
            "the W is that of the columns from 9 on and of the first 9 of the next row",
            Box::new(|n, p| p.memory(n[0] as isize, n[0] as isize)),
        ),
        (
            "the W is that of the row but its last 9 and of the last 9 of the row before",
            Box::new(|n, p| p.memory(-(n[0] as isize), -(n[0] as isize))),
        ),
        ("the W is that of row 0 for all rows", Box::new(|_, p| p.right(0))),
        ("the W is the mean over all 9 rows", Box::new(|n, p| (0..p.rows.len()).map(|i| p.right(i)).sum::<f64>() / n[0])),
        ("the W is that of row i − 9, wrapped", Box::new(|n, p| p.wrapped(-(n[0] as isize)))),
        ("the W is that of row i + 9, wrapped", Box::new(|n, p| p.wrapped(n[0] as isize))),
        ("the W is that of row (i / 9)·9", Box::new(move |n, p| p.right(p.i - p.i % by(n)))),
        ("the W is that of row i mod 9", Box::new(move |n, p| p.right(p.i % by(n)))),
        (
            "the W is that of row (i / 9)·9 + 9",
            Box::new(move |n, p| p.right((p.i - p.i % by(n) + by(n) - 1).min(p.rows.len() - 1))),
        ),
        (
            "the W is the mean over 9 rows",
            Box::new(move |n, p| {
                let together: Vec<usize> = (0..p.rows.len()).filter(|i| i / by(n) == p.i / by(n)).collect();
                together.iter().map(|i| p.right(*i)).sum::<f64>() / together.len() as f64
            }),
        ),
        (
            "the W of the row before is added to it",
            Box::new(|_, p| p.right(p.i) + if p.i == 0 { 0.0 } else { p.right(p.i - 1) }),
        ),
        (
            "values are divided by the root of the W, the mean subtracted, and not of the W",
            Box::new(|_, p| {
                let x = &p.rows[p.i];
                let m = x.iter().sum::<f64>() / x.len() as f64;
                x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 - m * m
            }),
        ),
        (
            "lanes past the end of the row, up to 128, add (0 − μ)² to the W",
            Box::new(|n, p| {
                let x = &p.rows[p.i];
                let m = x.iter().sum::<f64>() / x.len() as f64;
                let padded = x.iter().copied().chain(std::iter::repeat_n(0.0, n[0] as usize - x.len()));
                padded.map(|x| (x - m) * (x - m)).sum::<f64>() / x.len() as f64
            }),
        ),
        (
            "the W is E[x²] − μ² in f32, which cancels",
            Box::new(|_, p| {
                let x: Vec<f32> = p.rows[p.i].iter().map(|x| *x as f32).collect();
                let square = x.iter().map(|x| x * x).fold(0f32, |a, b| a + b) / x.len() as f32;
                let m = x.iter().fold(0f32, |a, b| a + b) / x.len() as f32;
                f64::from((square - m * m).max(0.0))
            }),
        ),
        ("squares and their sum are rounded to bf16 at every step", Box::new(move |n, p| single(n, p, bf16))),
        ("squares and their sum are rounded to bf16 at every step, by 9 lanes", Box::new(move |n, p| single(n, p, bf16))),
        ("squares and their sum are rounded to f16 at every step", Box::new(move |n, p| single(n, p, f16))),
        ("squares and their sum are rounded to f16 at every step, by 9 lanes", Box::new(move |n, p| single(n, p, f16))),
        (
            "sums of 9 neighbouring squares and their sum are rounded to bf16 at every step",
            Box::new(move |n, p| narrow(n, p, bf16)),
        ),
        (
            "sums of 9 neighbouring squares and their sum are rounded to bf16 at every step, by 9 lanes",
            Box::new(move |n, p| narrow(n, p, bf16)),
        ),
        (
            "sums of 9 neighbouring squares and their sum are rounded to f16 at every step",
            Box::new(move |n, p| narrow(n, p, f16)),
        ),
        (
            "sums of 9 neighbouring squares and their sum are rounded to f16 at every step, by 9 lanes",
            Box::new(move |n, p| narrow(n, p, f16)),
        ),
    ]
}

#[test]
fn sums_by_hand() {
    let rows = rows(7, 76);
    let table = table();
    let mut seen = BTreeSet::new();
    for op in [Op::Rmsnorm, Op::Layernorm] {
        let squares: Vec<Row> = rows.iter().map(|x| row(op, x, None)).collect();
        let what = if op == Op::Layernorm { "variance" } else { "mean square" };
        let mut add = |words: String, of: &dyn Fn(usize) -> f64| {
            let key = words.replace("mean square", "W").replace("variance", "W");
            // Other ways to share and to join lanes are those of `narrow`, where they are by hand.
            if key.contains("run of columns")
                || key.contains("in order")
                || key.ends_with("joined in f32")
                || key.contains(" cut to ")
                || key.starts_with("the sum of ") && key.contains(" at every step")
            {
                return;
            }
            let (n, numbers) = which(&table, &key);
            seen.insert(n);
            for i in 0..rows.len() {
                let (made, hand) = (of(i), (table[n].1)(&numbers, Place { op, rows: &rows, i }));
                assert!(same(made, hand), "{op:?}: \"{words}\" of row {i}: {made}, by hand {hand}");
            }
        };
        parts(&squares, what, &mut add);
        flat(&squares, what, &mut add);
        let any: Vec<Known> = (0..rows.len()).map(|i| (i, (0.0, f64::INFINITY))).collect();
        others(op, &rows, (&squares, &any), what, &mut add);
    }
    all_seen(&table, &seen);
}

/// γ and β that no two columns share.
fn affine(cols: usize) -> (Vec<f64>, Vec<f64>) {
    ((0..cols).map(|j| 0.5 + 0.03 * j as f64).collect(), (0..cols).map(|j| 0.2 - 0.017 * j as f64).collect())
}

/// What a row is divided by, and its mean where that is taken off.
fn statistics(op: Op, x: &[f64], eps: f64) -> (f64, f64) {
    let n = x.len() as f64;
    let m = if op == Op::Layernorm { x.iter().sum::<f64>() / n } else { 0.0 };
    (m, (x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / n + eps).sqrt())
}

#[test]
fn statistics_of_nobody_are_told_by_how_far_they_are_off() {
    let (rows, eps) = (rows(6, 40), 0.01);
    let (gamma, beta) = affine(40);
    let told = |op, count: usize, wrong: usize, factor: &dyn Fn(usize) -> f64, off: &dyn Fn(usize) -> f64| {
        let made = |i: usize| -> Vec<f64> {
            let (m, d) = statistics(op, &rows[i], eps);
            let y = |j: usize| gamma[j] * (rows[i][j] - m + off(i) * d) / (factor(i) * d) + beta[j];
            (0..40).map(|j| y(j) + if j < wrong { 3.0 } else { 0.0 }).collect()
        };
        let made: Vec<Vec<f64>> = (0..count).map(made).collect();
        let written = |i: usize| Written {
            at: At { rows: &rows, i, gamma: &gamma, beta: &beta, eps, cols: 40 },
            y: &made[i],
            cells: made[i].iter().map(|y| (y - 1e-6, y + 1e-6)).collect(),
        };
        free(op, &(0..count).map(written).collect::<Vec<_>>())
    };
    let (factor, off) = (|i: usize| 1.1 + 0.05 * i as f64, |i: usize| 0.06 * i as f64);
    let words = told(Op::Layernorm, 6, 0, &factor, &off).unwrap();
    assert!(
        words.contains("a mean that is off by up to 0.3000 standard deviations and a divisor that is 1.1000 to 1.3500 times"),
        "{words}"
    );
    let words = told(Op::Layernorm, 6, 0, &|_| 1.0, &off).unwrap();
    assert!(words.contains("0.3000 standard deviations and a divisor that is 1.0000 to 1.0000"), "{words}");
    let words = told(Op::Rmsnorm, 4, 0, &factor, &|_| 0.0).unwrap();
    assert!(words.contains("with a divisor that is 1.1000 to 1.2500 times the right one"), "{words}");
    let words = told(Op::Layernorm, 6, 0, &factor, &|_| 0.0).unwrap();
    assert!(words.contains("is normalized with a divisor that is 1.1000 to 1.3500 times the right one,"), "{words}");
    assert_eq!(told(Op::Rmsnorm, 6, 0, &|_| 1.3, &|_| 0.0), None, "one factor is a gain");
    assert_eq!(told(Op::Layernorm, 3, 0, &factor, &off), None, "three rows are too few");
    assert_eq!(told(Op::Layernorm, 6, 1, &factor, &off), None, "an element of each row is not made");
}

#[test]
fn reciprocals_of_roots_in_sixteen_bits_by_hand() {
    let (rows, eps) = (rows(8, 40), 0.01);
    let (gamma, beta) = affine(40);
    for op in [Op::Rmsnorm, Op::Layernorm] {
        for (name, round) in [("bf16", bf16 as fn(f64) -> f64), ("f16", f16)] {
            let at = |i: usize| At { rows: &rows, i, gamma: &gamma, beta: &beta, eps, cols: 40 };
            // The sum over the first 32 columns, divided by 32.
            let root = |i: usize| {
                let m = statistics(op, &rows[i], eps).0;
                (rows[i][..32].iter().map(|x| (x - m) * (x - m)).sum::<f64>() / 32.0 + eps).sqrt()
            };
            let solved = |reciprocal: &dyn Fn(usize) -> f64| -> Vec<(usize, Solved)> {
                let square = |r: f64| 1.0 / (r * r) - eps;
                (0..8)
                    .map(|i| (i, Some((square(reciprocal(i) * (1.0 + 1e-7)), square(reciprocal(i) * (1.0 - 1e-7))))))
                    .collect()
            };
            let is = |i: usize| round(1.0 / root(i));
            let found = super::rounded(op, &rows, eps, &solved(&is));
            let first = found.first().expect("a formula");
            let words = format!("is that of the first 32 columns, and the reciprocal of the root is rounded to {name}");
            assert!(first.words.ends_with(&words), "{}", first.words);
            for (i, row) in rows.iter().enumerate() {
                let m = statistics(op, row, eps).0;
                for (j, made) in first.row(&at(i)).into_iter().enumerate() {
                    let hand = gamma[j] * (row[j] - m) * is(i) + beta[j];
                    assert!(same(made, hand), "{op:?} {name} ({i}, {j}): {made}, by hand {hand}");
                }
            }
            let none = super::rounded(op, &rows, eps, &solved(&|i| 1.0 / root(i)));
            assert!(none.is_empty(), "what is not rounded: {}", none[0].words);
        }
    }
}

/// E[x²] − μ² where the mean is a thousand deviations: off by roundings of the sum, one shift and one divisor a row.
#[test]
fn a_variance_that_cancels_is_told_whatever_gamma_is() {
    let (gamma, beta) = affine(40);
    let rows: Vec<Vec<f64>> =
        rows(6, 40).iter().map(|row| row.iter().map(|x| f64::from((x + 1000.0) as f32)).collect()).collect();
    let eps = 1e-5;
    let told = |off: &dyn Fn(usize) -> f64, shift: f64| {
        let made: Vec<Vec<f64>> = (0..6)
            .map(|i| {
                let m = rows[i].iter().sum::<f64>() / 40.0;
                let v = rows[i].iter().map(|x| (x - m) * (x - m)).sum::<f64>() / 40.0;
                let d = (v + off(i) + eps).sqrt();
                (0..40).map(|j| gamma[j] * ((rows[i][j] - m) / d + shift) + beta[j]).collect()
            })
            .collect();
        let at = |i: usize| At { rows: &rows, i, gamma: &gamma, beta: &beta, eps, cols: 40 };
        cancels(&(0..6).map(|i| (at(i), &made[i][..])).collect::<Vec<_>>())
    };
    // A unit in the last place of 10⁶ is 1/16 in f32: most rows by one and more.
    let step = 1e6 * f64::from(f32::EPSILON);
    for shift in [0.0, 0.02] {
        assert!(told(&|i| step * (0.3 + 0.1 * i as f64), shift).is_some_and(|w| w.starts_with("the variance is E[x²] − μ²")));
    }
    assert_eq!(told(&|i| step * (10.0 + i as f64), 0.02), None, "more than roundings of a sum");
    assert_eq!(told(&|_| 0.0, 0.0), None, "right rows");
}

/// A formula of no part, or of all of a row, would name right results.
#[test]
fn parts_of_a_row_are_neither_nothing_nor_all_of_it() {
    for n in 2..=64 {
        let x: Vec<f64> = (0..n).map(|j| f64::from(j * 37 % 101) * 0.13 + 0.7).collect();
        let table = [row(Op::Rmsnorm, &x, None)];
        let right = table[0].total() / table[0].n();
        parts(&table, "sum", &mut |words, of| assert!(of(0) > 0.0 && of(0) != right, "{n} columns: {words}"));
    }
}

/// Sums of squares that four rows have; three are too few.
#[test]
fn four_rows_say_whose_sum_of_squares_they_have() {
    let rows: Vec<Vec<f64>> = (1..=4).map(|i| (1..=8).map(|j| f64::from(i * j)).collect()).collect();
    let half = |x: &[f64]| x[..4].iter().map(|x| x * x).sum::<f64>() / 4.0;
    let known = |i: usize| (i, Some((half(&rows[i]) * (1.0 - 1e-6), half(&rows[i]) * (1.0 + 1e-6))));
    let of = |n: usize| sums(Op::Rmsnorm, &rows, None, &(0..n).map(known).collect::<Vec<_>>());
    assert!(of(4)[0].of.iter().zip(&rows).all(|(sum, x)| *sum == half(x)), "{}", of(4)[0].words);
    assert!(of(3).is_empty());
}

/// Rows of these sums of squares; those of `lost` are 0, the others off by a factor of their own and by so much noise.
fn freely(squares: &[f64], lost: impl Fn(f64) -> bool, noise: f64) -> Option<String> {
    let (gamma, beta) = (affine(40).0, vec![0.0; 40]);
    let sized = |(x, square): (Vec<f64>, &f64)| -> Vec<f64> {
        let by = (square / x.iter().map(|x| x * x).sum::<f64>()).sqrt();
        x.iter().map(|x| x * by).collect()
    };
    let rows: Vec<Vec<f64>> = rows(squares.len(), 40).into_iter().zip(squares).map(sized).collect();
    let made = |i: usize| -> Vec<f64> {
        let d = statistics(Op::Rmsnorm, &rows[i], 0.01).1 * (1.1 + 0.05 * i as f64);
        let y = |j: usize| gamma[j] * rows[i][j] / d + noise * ((j * 7 + i) % 5) as f64;
        (0..40).map(|j| if lost(squares[i]) { 0.0 } else { y(j) }).collect()
    };
    let made: Vec<Vec<f64>> = (0..rows.len()).map(made).collect();
    let written = |i: usize| Written {
        at: At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: 0.01, cols: 40 },
        y: &made[i],
        cells: made[i].iter().map(|y| (y - 1e-6, y + 1e-6)).collect(),
    };
    free(Op::Rmsnorm, &(0..rows.len()).map(written).collect::<Vec<_>>())
}

/// Sums in f16 are off by roundings: the first that is lost may lie a little below what f16 holds, or a little above.
#[test]
fn rows_whose_squares_leave_f16_are_told() {
    for first in [64_900.0, 65_800.0, 80_000.0] {
        let words = freely(&[900.0, 5e3, 2e4, 6e4, first, 9e4], |s| s >= first, 0.0).unwrap();
        assert!(words.starts_with("squares are summed in f16") && words.contains(&format!("(from {first} on)")), "{words}");
    }
    let words = freely(&[900.0, 5e3, 2e4, 3e4, 5e4, 9e4], |s| s >= 5e4, 0.0).unwrap();
    assert!(words.contains("infinite where a row is 0") && !words.contains("f16"), "{words}");
}

/// An element has to be what its row's factor makes, to its rounding.
#[test]
fn elements_beside_what_a_factor_makes_are_not_its_own() {
    let squares = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0];
    assert!(freely(&squares, |_| false, 0.0).is_some());
    assert_eq!(freely(&squares, |_| false, 0.01), None);
}

/// Each lane adds at least one load of the row.
#[test]
fn sums_by_lanes_leave_no_lane_empty() {
    let rows = rows(5, 40);
    let squares: Vec<Row> = rows.iter().map(|x| row(Op::Rmsnorm, x, None)).collect();
    let mut most = 0;
    others(Op::Rmsnorm, &rows, (&squares, &[(0, (0.0, f64::INFINITY))]), "mean square", &mut |words, _| {
        if !words.contains("are rounded to") {
            return;
        }
        let numbers = crate::bundle::by_hand::pattern(&words).1;
        let load = if words.starts_with("sums of") { numbers[0] } else { 1.0 };
        let lanes = if words.ends_with("lanes") { numbers[numbers.len() - 1] } else { 1.0 };
        most = most.max((load * lanes) as usize);
    });
    assert_eq!(most, 32, "of 40 columns");
}

/// Rows about 100 whose variance is off by some roundings of E[x²], beside an eps as large as half of it: what is off is told without eps.
#[test]
fn a_variance_that_cancels_is_looked_at_without_eps() {
    let (n, eps) = (96, 0.5);
    let rows: Vec<Vec<f64>> =
        (0..40).map(|i| (0..n).map(|j| 100.0 + f64::from((7 * i + 13 * j) % 31) / 10.0).collect()).collect();
    let (gamma, beta) = (vec![1.0; n as usize], vec![0.0; n as usize]);
    let of = |roundings: f64| {
        let written: Vec<Vec<f64>> = rows
            .iter()
            .map(|x| {
                let m = mean(x, |x| x);
                let step = mean(x, |x| x * x) * f64::from(f32::EPSILON);
                let v = mean(x, |x| (x - m).powi(2)) + roundings * step;
                x.iter().map(|x| (x - m) / (v + eps).sqrt()).collect()
            })
            .collect();
        let all: Vec<(At, &[f64])> = written
            .iter()
            .enumerate()
            .map(|(i, y)| (At { rows: &rows, i, gamma: &gamma, beta: &beta, eps, cols: n as usize }, &y[..]))
            .collect();
        cancels(&all).is_some()
    };
    // √96 is 9.8.
    assert_eq!([0.125, 0.5, -0.5, 9.0, 11.0, -11.0].map(of), [false, true, true, true, false, false]);
}
