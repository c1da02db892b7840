//! Codes of a cast that are those of nearly the same values: of the tensor before an update, in a tile that was not written again.
//!
//! ```text
//! y = x / scale_inv,  code = that of y·(1 + e) or of y + e, every e its own: a wrong code is likely where y lies near the end of its cell
//! ```
//! The earlier values are nowhere to be read, so it is told by likelihood: what the codes of the rectangle are worth as those of values about so far
//! from these, against the best of what else makes codes beside the right ones: steps by chance, flipped bits, stochastic rounding, other values.
//! What makes codes from their values alone, or by a factor of a row, of a column or of a group, is none of it.

use super::encoders::{Cast, Named};
use crate::fault::Class;
use crate::fault::solve::segment::where_not_all;
use std::ops::Range;

/// Wrong codes, at least.
const LEAST: usize = 32;
/// Codes of a rectangle that are looked at.
const LOOKS: usize = 4096;
/// How far a count may be from one half, in standard deviations.
const SIGMAS: f64 = 5.0;
/// How much likelier, at least: a name for no more than one in 10⁹ tensors.
const SURE: f64 = 1e9;
/// An update that is looked for: from about a rounding of bf16, which makes others, to all of the value; four sizes a factor of two.
const SIZES: std::ops::Range<i32> = -32..1;
/// What no theory excludes: one code that something else wrote.
const ANY: f64 = 1e-12;

/// A code that is looked at.
struct Look {
    y: f64,
    /// The ends of the numbers that its code is of.
    cell: (f64, f64),
    /// Codes between the right one and it.
    steps: usize,
    flipped: u32,
    /// How likely a draw takes the code that is not the nearest, and whether that is its code. `None`: a draw takes neither.
    drawn: Option<(f64, bool)>,
    value: f64,
    /// The place of its value among all.
    own: usize,
}

/// Rows or columns.
type Lines = Range<usize>;

impl Cast<'_> {
    /// Codes of values near these.
    pub fn earlier(&self) -> Option<Named> {
        let (words, down, across) = self.of_near_values()?;
        let run = |r: &Lines, n: usize| (0..n).map(|l| r.contains(&l)).collect::<Vec<bool>>();
        let place = where_not_all("rows", &run(&down, self.q.rows())) + &where_not_all("columns", &run(&across, self.q.cols()));
        Some((Class::StaleState, "out.values".into(), words + &place))
    }

    /// The words, and the rectangle of them.
    pub fn of_near_values(&self) -> Option<(String, Lines, Lines)> {
        let (cols, f) = (self.q.cols(), self.q.format());
        self.zero.is_empty().then_some(())?;
        let finite = self.finite();
        let wrong: Vec<usize> = finite.into_iter().filter(|at| self.element(*at).x != 0.0 && !self.right(*at)).collect();
        (wrong.len() >= LEAST).then_some(())?;
        let span = |line: &dyn Fn(usize) -> usize| {
            let all = || wrong.iter().map(|at| line(*at));
            Some(all().min()?..all().max()? + 1)
        };
        let (down, across) = (span(&|at| at / cols)?, span(&|at| at % cols)?);
        // Of very many, a bias of a rounding would tell them from chance.
        let total = wrong.len();
        let wrong: Vec<usize> = wrong.into_iter().step_by(total.div_ceil(LOOKS) | 1).collect();
        let balanced =
            |n: usize, of: f64| (n as f64 - of * wrong.len() as f64).abs() <= SIGMAS * (0.25 * wrong.len() as f64).sqrt();
        let count = |is: &dyn Fn(usize) -> bool| wrong.iter().filter(|at| is(**at)).count();
        let larger = |at: usize| self.value(at).abs() > self.element(at).y().abs();
        // Up and down alike, and in all of the rectangle.
        let half = |r: &Lines| (r.start + r.len() / 2, (r.len() / 2) as f64 / r.len() as f64);
        let ((row, above), (col, left)) = (half(&down), half(&across));
        let even = balanced(count(&larger), 0.5)
            && balanced(count(&|at| self.value(at) > self.element(at).y()), 0.5)
            && balanced(count(&|at| at / cols < row), above)
            && balanced(count(&|at| at % cols < col), left);
        even.then_some(())?;
        // No factor of a row, of a column or of a group makes its codes larger and smaller.
        let groups = self.q.scale_inv().len();
        let by_lines = |line: &dyn Fn(usize) -> usize| {
            let mut all = vec![[0usize; 2]; self.q.rows().max(cols).max(groups)];
            wrong.iter().for_each(|at| all[line(*at)][usize::from(larger(*at))] += 1);
            let (mut both, mut expected) = (0.0, 0.0);
            for n in all.iter().filter(|n| **n != [0, 0]) {
                both += f64::from(u8::from(n[0] > 0 && n[1] > 0));
                expected += 1.0 - 2f64.powi(1 - (n[0] + n[1]) as i32);
            }
            2.0 * both >= expected
        };
        let of_group = |at: usize| self.q.scale_index(at / cols, at % cols);
        (by_lines(&|at| at / cols) && by_lines(&|at| at % cols) && by_lines(&of_group)).then_some(())?;

        let n = down.len() * across.len();
        let all = (0..n)
            .step_by(n.div_ceil(LOOKS) | 1)
            .map(|i| (down.start + i / across.len()) * cols + across.start + i % across.len());
        let mut levels: Vec<f64> = self.values.iter().flat_map(|v| [*v, -*v]).filter(|v| *v >= f.min_finite()).collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup_by(|a, b| a == b);
        let index = |v: f64| levels.partition_point(|l| *l < v);
        let middle = |n: usize| 0.5 * (levels[n - 1] + levels[n]);
        let look = |at: usize| {
            let (e, value) = (self.element(at), self.value(at));
            let (y, right) = (e.y(), e.code(e.y())?);
            let (own, nearest) = (index(value), index(right));
            (e.x != 0.0 && y.is_finite() && value.is_finite()).then(|| {
                let low = if own == 0 { f64::NEG_INFINITY } else { middle(own) };
                let high = if own + 1 == levels.len() { f64::INFINITY } else { middle(own + 1) };
                // The other neighbour of y.
                let other = if y > right { nearest + 1 } else { nearest.wrapping_sub(1) };
                let part = levels.get(other).map_or(0.0, |o| (y - right) / (o - right));
                let code = f.encode(y, crate::Rounding::NearestEven, crate::Overflow::Saturate);
                Look {
                    y,
                    cell: (low, high),
                    steps: own.abs_diff(nearest),
                    flipped: (code ^ u32::from(self.q.codes()[at])).count_ones(),
                    drawn: if own == nearest { Some((part, false)) } else { (own == other).then_some((part, true)) },
                    value,
                    own,
                }
            })
        };
        let looks: Vec<Look> = all.filter_map(look).collect();
        let seen = looks.iter().filter(|l| l.steps > 0).count();
        // Codes that their values alone decide rise with them.
        let bits = |x: f64| u64::from((x.abs() as f32).to_bits());
        let mut rising: Vec<u64> = looks.iter().map(|l| bits(l.y) << 32 | bits(l.value)).collect();
        rising.sort_unstable();
        let falls = rising.windows(2).filter(|w| (w[1] as u32) < w[0] as u32).count();
        (8 * falls >= seen && seen > 0).then_some(())?;
        let worth = |of: &dyn Fn(&Look) -> f64| worth(&looks, of);
        let size = looks.iter().map(|l| l.y.abs()).sum::<f64>() / looks.len() as f64;
        let mut best = (f64::NEG_INFINITY, 0.0, false);
        for n in SIZES {
            let by = (f64::from(n) / 4.0).exp2();
            for relative in [false, true] {
                let of = worth(&|l| within(l.cell, l.y, by * if relative { l.y.abs() } else { size }));
                best = if of > best.0 { (of, by, relative) } else { best };
            }
        }
        let share = seen as f64 / looks.len() as f64;
        let mut often = vec![0.0; levels.len()];
        looks.iter().for_each(|l| often[l.own] += 1.0 / looks.len() as f64);
        let beside = |n: usize, one: f64| [1.0 - share, one].get(n).copied().unwrap_or(0.0);
        let mut others = worth(&|l| often[l.own]);
        others = others.max(worth(&|l| beside(l.steps, 0.5 * share)));
        others = others.max(worth(&|l| beside(l.flipped as usize, share / f64::from(f.bits()))));
        for n in 1..=8 {
            let part = f64::from(n) / 8.0;
            let by_chance = |l: &Look| l.drawn.map_or(0.0, |(p, is)| if is { part * p } else { 1.0 - part * p });
            others = others.max(worth(&by_chance));
            // Some are those of other places, the others right.
            others = others.max(worth(&|l| part * often[l.own] + if l.steps == 0 { 1.0 - part } else { 0.0 }));
        }
        let theories = 2.0 * SIZES.len() as f64;
        (best.0 - others >= (SURE * theories).ln()).then(|| {
            let of = if best.2 { "of each" } else { "of their mean magnitude" };
            let words = format!(
                "codes are near those of these values and not theirs: {} of {n} are those of values about {:.1} % {of} away, up and down alike: of the \
                 tensor before an update",
                total,
                100.0 * SPREAD * best.1,
            );
            (words, down.clone(), across.clone())
        })
    }
}

/// What looks are worth where each is so likely, in nats. Not inlined: it is asked in many ways, and small is enough.
#[inline(never)]
fn worth(looks: &[Look], of: &dyn Fn(&Look) -> f64) -> f64 {
    looks.iter().map(|l| of(l).max(ANY).ln()).sum()
}

/// The standard deviation of the distribution whose size is 1.
const SPREAD: f64 = std::f64::consts::PI / 1.732_050_807_568_877_2;

/// How likely a value that is about `size` from `y` lies in a cell: by the logistic distribution, whose tails are wider than a normal one's.
fn within((low, high): (f64, f64), y: f64, size: f64) -> f64 {
    let below = |end: f64| 1.0 / (1.0 + ((y - end) / size).exp());
    below(high) - below(low)
}
