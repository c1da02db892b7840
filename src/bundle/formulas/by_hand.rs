//! Every formula of a norm, a second time by hand.

use super::*;
use crate::bundle::by_hand::{Hand, all_seen, bf16, f16, rows, same, which};
use crate::op::Act;
use std::collections::BTreeSet;

/// A column of a row of a norm.
#[derive(Clone, Copy)]
struct Place<'r> {
    layer: bool,
    rows: &'r [Vec<f64>],
    gamma: &'r [f64],
    beta: &'r [f64],
    eps: f64,
    i: usize,
    j: usize,
}

fn average(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

impl Place<'_> {
    fn x(&self) -> &[f64] {
        &self.rows[self.i]
    }
    fn at(&self) -> f64 {
        self.rows[self.i][self.j]
    }
    fn next(&self, by: usize) -> &[f64] {
        &self.rows[(self.i + by) % self.rows.len()]
    }
    fn before(&self) -> &[f64] {
        self.next(self.rows.len() - 1)
    }
    fn mean(&self, x: &[f64]) -> f64 {
        if self.layer { average(x) } else { 0.0 }
    }
    /// Mean square about the mean, or of the values.
    fn square(&self, x: &[f64]) -> f64 {
        let square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        square - self.mean(x).powi(2)
    }
    fn root(&self, square: f64) -> f64 {
        (square + self.eps).sqrt()
    }
    /// This value about `m` over `d`, by gamma, with beta.
    fn norm(&self, m: f64, d: f64) -> f64 {
        (self.at() - m) * self.gamma[self.j] / d + self.beta[self.j]
    }
    fn normal(&self) -> f64 {
        (self.at() - self.mean(self.x())) / self.root(self.square(self.x()))
    }
    /// Statistics of other numbers.
    fn by(&self, x: &[f64]) -> f64 {
        self.norm(self.mean(x), self.root(self.square(x)))
    }
    /// What another row has here.
    fn holds(&self, x: &[f64]) -> f64 {
        (x[self.j] - self.mean(x)) / self.root(self.square(x)) * self.gamma[self.j] + self.beta[self.j]
    }
    fn newton(&self, magic: i32, steps: usize) -> f64 {
        let x = self.root(self.square(self.x())).powi(2) as f32;
        let mut y = f32::from_bits((magic - (x.to_bits() as i32 >> 1)) as u32);
        for _ in 0..steps {
            y *= 1.5 - 0.5 * x * y * y;
        }
        self.norm(self.mean(self.x()), 1.0 / f64::from(y))
    }
    /// Chan's merge of chunks, the last counted as long as the others.
    fn merged(&self, w: usize, own_mean: bool, all: bool) -> f64 {
        let (mut count, mut m, mut m2) = (0.0, 0.0, 0.0);
        for x in self.x().chunks(w) {
            let long = if own_mean { x.len() } else { w } as f64;
            let mean = if self.layer { x.iter().sum::<f64>() / long } else { 0.0 };
            let square = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
            let apart = mean - m;
            m2 = m2 + square + apart * apart * (count * w as f64 / (count + w as f64));
            m = (m * count + mean * w as f64) / (count + w as f64);
            count += w as f64;
        }
        self.norm(m, self.root(m2 / if all { count } else { self.x().len() as f64 }))
    }
    fn column(&self, by: isize) -> usize {
        (self.j as isize + by).rem_euclid(self.gamma.len() as isize) as usize
    }
}

fn table<'x>() -> Hand<'x, Place<'x>> {
    let by_columns = |n: &[f64], p: Place| p.norm(p.mean(p.x()), p.root(p.square(p.x()) * n[1] / n[0]));
    let mut all: Hand<Place> = vec![
        ("", Box::new(|_, p| p.by(p.x()))),
        ("eps is added to the root, not under it", Box::new(|_, p| p.norm(p.mean(p.x()), p.square(p.x()).sqrt() + p.eps))),
        (
            "eps is added to the reciprocal of the root, not under it",
            Box::new(|_, p| {
                let by = p.square(p.x()).powf(-0.5) + p.eps;
                p.norm(p.mean(p.x()), by.recip())
            }),
        ),
        ("eps is 1e-5", Box::new(|n, p| p.norm(p.mean(p.x()), (p.square(p.x()) + f64::from(n[0] as f32)).sqrt()))),
        (
            "gamma is applied before the mean square is computed",
            Box::new(|_, p| {
                let y: Vec<f64> = (0..p.x().len()).map(|j| p.x()[j] * p.gamma[j]).collect();
                p.norm(p.mean(p.x()), p.root(p.square(&y)))
            }),
        ),
        (
            "the mean is over the next power of two of columns",
            Box::new(|_, p| {
                let lanes = p.x().len().next_power_of_two() as f64;
                let m = if p.layer { p.x().iter().sum::<f64>() / lanes } else { 0.0 };
                p.norm(m, p.root(p.x().iter().map(|x| (x - m) * (x - m)).sum::<f64>() / lanes))
            }),
        ),
        ("the variance is divided by 9 instead of 9", Box::new(by_columns)),
        ("the mean square is divided by 9 instead of 9", Box::new(by_columns)),
        (
            "mean and variance are those of the first 1/4 of the row",
            Box::new(|n, p| p.by(&p.x()[..p.x().len() / n[1] as usize])),
        ),
        (
            "mean and variance are those of the last 1/4 of the row",
            Box::new(|n, p| {
                let from = p.x().len() - p.x().len() / n[1] as usize;
                p.by(&p.x()[from..])
            }),
        ),
        ("mean and variance are those of row i − 1", Box::new(|_, p| p.by(p.before()))),
        ("mean and variance are those of row i + 1", Box::new(|_, p| p.by(p.next(1)))),
        (
            "the reciprocal root is taken by the integer trick 0x5f3759df without a step of Newton's",
            Box::new(|_, p| p.newton(0x5f37_59df, 0)),
        ),
        (
            "the reciprocal root is taken by the integer trick 0x5f3759df and one step of Newton's",
            Box::new(|_, p| p.newton(0x5f37_59df, 1)),
        ),
        (
            "the reciprocal root is taken by the integer trick 0x5f375a86 and one step of Newton's",
            Box::new(|_, p| p.newton(0x5f37_5a86, 1)),
        ),
        (
            "the reciprocal root is taken by the integer trick 0x5f3759df and two steps of Newton's",
            Box::new(|_, p| p.newton(0x5f37_59df, 2)),
        ),
        (
            "the variance is the mean square: the mean is not subtracted",
            Box::new(|_, p| {
                let m = average(p.x());
                p.norm(m, p.root(p.square(p.x()) + m * m))
            }),
        ),
        ("the mean is not subtracted from the values", Box::new(|_, p| p.norm(0.0, p.root(p.square(p.x()))))),
        (
            "mean and variance are taken as 0 and the mean square",
            Box::new(|_, p| p.norm(0.0, p.root(p.square(p.x()) + average(p.x()).powi(2)))),
        ),
        ("beta is not added", Box::new(|_, p| p.normal() * p.gamma[p.j])),
        ("beta is multiplied by gamma too", Box::new(|_, p| (p.normal() + p.beta[p.j]) * p.gamma[p.j])),
        ("gamma is not applied", Box::new(|_, p| p.normal() + p.beta[p.j])),
        ("1 is added to gamma, which already contains it", Box::new(|_, p| p.normal() * (1.0 + p.gamma[p.j]) + p.beta[p.j])),
        (
            "1 is not added to gamma, which is stored minus one",
            Box::new(|_, p| p.normal() * (p.gamma[p.j] - 1.0) + p.beta[p.j]),
        ),
        ("gamma is rounded to bf16", Box::new(|_, p| p.normal() * bf16(p.gamma[p.j]) + p.beta[p.j])),
        ("row i holds row i − 1, wrapped", Box::new(|_, p| p.holds(p.before()))),
        ("row i holds row i + 1, wrapped", Box::new(|_, p| p.holds(p.next(1)))),
        ("column j takes gamma[j mod 8]", Box::new(|n, p| p.normal() * p.gamma[p.j % n[0] as usize] + p.beta[p.j])),
        ("column j takes beta[j mod 8]", Box::new(|n, p| p.normal() * p.gamma[p.j] + p.beta[p.j % n[0] as usize])),
        (
            "column j takes gamma[j mod 8] and beta[j mod 8]",
            Box::new(|n, p| p.normal() * p.gamma[p.j % n[0] as usize] + p.beta[p.j % n[1] as usize]),
        ),
        ("column j takes gamma[j + 8], wrapped", Box::new(|n, p| p.normal() * p.gamma[p.column(n[0] as isize)] + p.beta[p.j])),
        ("column j takes gamma[j − 8], wrapped", Box::new(|n, p| p.normal() * p.gamma[p.column(-n[0] as isize)] + p.beta[p.j])),
        ("column j takes beta[j + 8], wrapped", Box::new(|n, p| p.normal() * p.gamma[p.j] + p.beta[p.column(n[0] as isize)])),
        ("column j takes beta[j − 8], wrapped", Box::new(|n, p| p.normal() * p.gamma[p.j] + p.beta[p.column(-n[0] as isize)])),
        (
            "each 8 columns of the row are normalized by themselves",
            Box::new(|n, p| {
                let w = n[0] as usize;
                p.by(&p.x()[p.j / w * w..p.j / w * w + w])
            }),
        ),
        (
            "partial results of 32 columns are merged as if the short last one had 32 too",
            Box::new(|n, p| p.merged(n[0] as usize, true, false)),
        ),
        (
            "partial results of 32 columns are merged as if the short last one had 32 too, and the variance is divided by as many",
            Box::new(|n, p| p.merged(n[0] as usize, true, true)),
        ),
        (
            "partial results of 32 columns are merged as if the short last one had 32 too, also in its own mean",
            Box::new(|n, p| p.merged(n[0] as usize, false, false)),
        ),
        (
            "partial results of 32 columns are merged as if the short last one had 32 too, also in its own mean, and the variance is divided by as many",
            Box::new(|n, p| p.merged(n[0] as usize, false, true)),
        ),
    ];
    macro_rules! rounded {
        ($f:literal, $r:expr) => {
            all.extend::<Hand<Place>>(vec![
                (
                    concat!("the normalized value is rounded to ", $f, " before gamma multiplies it"),
                    Box::new(|_, p| $r(p.normal()) * p.gamma[p.j] + p.beta[p.j]),
                ),
                (
                    concat!("the reciprocal of the root is rounded to ", $f),
                    Box::new(|_, p| {
                        let r = $r(1.0 / p.root(p.square(p.x())));
                        (p.at() - p.mean(p.x())) * r * p.gamma[p.j] + p.beta[p.j]
                    }),
                ),
                (
                    concat!("values are rounded to ", $f, " before anything else"),
                    Box::new(|_, p| {
                        let x: Vec<f64> = p.x().iter().map(|x| $r(*x)).collect();
                        p.holds(&x)
                    }),
                ),
                (concat!("the result is rounded to ", $f, " before it is stored"), Box::new(|_, p| $r(p.by(p.x())))),
                (concat!("the mean is rounded to ", $f), Box::new(|_, p| p.norm($r(p.mean(p.x())), p.root(p.square(p.x()))))),
                (
                    concat!("the mean is rounded to ", $f, ", and the variance is about that"),
                    Box::new(|_, p| {
                        let m = $r(p.mean(p.x()));
                        let sum: f64 = p.x().iter().map(|x| (x - m) * (x - m)).sum();
                        p.norm(m, p.root(sum / p.x().len() as f64))
                    }),
                ),
                (
                    concat!("the sum is rounded to ", $f, " before beta is added"),
                    Box::new(|_, p| $r(p.normal() * p.gamma[p.j]) + p.beta[p.j]),
                ),
            ]);
        };
    }
    rounded!("bf16", bf16);
    rounded!("f16", f16);
    all
}

#[test]
fn norms_by_hand() {
    let (count, cols) = (5, 72);
    let rows = rows(count, cols);
    let wide = |at: usize| f64::from(((at * 131 + 7) % 97) as f32 / 97.0);
    let gamma: Vec<f64> = (0..cols).map(|j| 0.5 + wide(j)).collect();
    let beta: Vec<f64> = (0..cols).map(|j| wide(j + 500) - 0.4).collect();
    let table = table();
    let mut seen = BTreeSet::new();
    for op in [Op::Rmsnorm, Op::Layernorm] {
        let all = of_norm(op, "gamma", cols).into_iter().chain(heads(op, cols)).chain(merged(op, cols)).collect::<Vec<_>>();
        for (f, i) in all.iter().flat_map(|f| (0..count).map(move |i| (f, i))) {
            let made = f.row(&At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: 0.02, cols });
            let (n, numbers) = which(&table, &f.words);
            seen.insert(n);
            for (j, y) in made.into_iter().enumerate() {
                let p = Place { layer: op == Op::Layernorm, rows: &rows, gamma: &gamma, beta: &beta, eps: 0.02, i, j };
                let hand = (table[n].1)(&numbers, p);
                assert!(same(y, hand), "{op:?}: \"{}\" row {i}, column {j}: {y}, by hand {hand}", f.words);
            }
        }
    }
    all_seen(&table, &seen);
    // Heads are of at least 8 columns, at most half of the row.
    let widths: Vec<String> =
        heads(Op::Rmsnorm, cols).into_iter().map(|f| f.words.replace(|c: char| !c.is_ascii_digit(), "")).collect();
    assert_eq!(widths, ["36", "24", "18", "12", "9", "8"]);
    // And at most 128 of them.
    assert!(heads(Op::Rmsnorm, 2048).last().unwrap().words.contains("each 16 columns"));
}

#[test]
fn some_norms_of_two_columns() {
    let rows = [vec![3.0, 4.0], vec![6.0, 8.0]];
    let of = |op, words: &str| {
        let at = At { rows: &rows, i: 0, gamma: &[2.0, 1.0], beta: &[0.5, 0.0], eps: 0.0, cols: 2 };
        let all = of_norm(op, "gamma", 2);
        (all.iter().find(|f| f.words == words).unwrap().made)(&at)
    };
    let r = 12.5f64.sqrt();
    assert_eq!(of(Op::Rmsnorm, ""), [6.0 / r + 0.5, 4.0 / r]);
    assert_eq!(of(Op::Rmsnorm, "mean and variance are those of row i − 1"), [6.0 / 50f64.sqrt() + 0.5, 4.0 / 50f64.sqrt()]);
    assert_eq!(of(Op::Rmsnorm, "column j takes gamma[j + 1], wrapped"), [3.0 / r + 0.5, 8.0 / r]);
    assert_eq!(of(Op::Layernorm, "beta is not added"), [-2.0, 1.0]);
}

#[test]
fn formulas_have_words_but_the_right_one() {
    for all in [
        of_norm(Op::Rmsnorm, "gamma", 96),
        of_norm(Op::Layernorm, "gamma", 96),
        gates::activations(Op::Gated, Act::Silu),
        gates::activations(Op::Activation, Act::Relu),
    ] {
        assert!(all[0].words.is_empty() && all[1..].iter().all(|f| !f.words.is_empty()));
    }
}
