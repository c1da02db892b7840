//! Parts of a norm's rows that took another mean or divisor than the rest of their row: a buffer of a reduction was read too early or too late.
//!
//! ```text
//! a run of wrong columns in a row that is right elsewhere  ──►  μ' and 1/p' by least squares  ──►  held against this row's numbers and other rows'
//! ```

use super::{Line, NEAR, Norm, SHARE, Weights};
use crate::bundle::formulas::mean;
use crate::fault::solve::segment::lines;

/// What such a result is said to be.
pub const PARTS: &str = "parts of rows are normalized";
/// Columns of a part, at least, and right ones between wrong ones.
pub const LEAST: usize = 16;
/// Wrong elements of all parts, at least.
pub const WRONG: usize = 32;
/// How far another row may be.
const FAR: isize = 64;
/// Partial sums of a row, at most.
pub const PARTIAL: usize = 32;
/// Parts that the numbers of another row's part are told by, at least.
const OTHERS: usize = 4;
/// How likely partial sums may fit by chance.
pub(super) const CHANCE: f64 = 1e-3;
/// Parts that are told.
const SHOWN: usize = 4;

/// Columns of a row that were normalized alike, and by what.
pub(super) struct Part {
    pub row: usize,
    pub from: usize,
    pub to: usize,
    pub line: Line,
}

/// What wrong parts of rows were normalized with, in words, and whether that is a number that is known. `None`: it is no such thing.
pub fn explain(norm: &Norm) -> Option<(String, bool)> {
    let Some((parts, even)) = parts(norm) else {
        let found = super::overwritten::explain(norm).map(|words| (words, true));
        return found.or_else(|| super::partly::explain(norm));
    };
    let own = |p: &Part| (norm.center(&norm.rows[p.row]), norm.divisor(&norm.rows[p.row]));
    let is_mean = parts.iter().all(|p| mean_is(p, own(p).0));
    let is_divisor = parts.iter().all(|p| divisor_is(p, own(p).1));
    let what = match (is_mean, is_divisor) {
        (true, true) => return None,
        (false, true) => "another mean",
        (true, false) => "another divisor",
        (false, false) => "another mean and another divisor",
    };
    let told = known(norm, &parts, is_mean, is_divisor);
    if let (None, Some(words)) = (&told, super::overwritten::explain(norm)) {
        return Some((words, true));
    }
    // The same part of rows in even steps is another formula, where its numbers are no known ones.
    (told.is_some() || !even).then_some(())?;
    let words = told.as_ref().map_or(String::new(), |(words, _)| format!(" ({words})"));
    let when = told.as_ref().map_or("read before it was written, or after it was overwritten", |told| told.1);
    let all = format!(
        "{PARTS} with {what} than the rest of their row{words}: {}: a buffer of the reduction is {when}",
        places(norm, &parts)
    );
    Some((all, told.is_some()))
}

/// Where some parts are, in words.
pub(super) fn places(norm: &Norm, parts: &[Part]) -> String {
    let place = |p: &Part| format!("row {}, columns {} … {}", p.row, p.from, p.to - 1);
    let mut places: Vec<String> = parts.iter().take(SHOWN).map(place).collect();
    if parts.len() > SHOWN {
        let mut is_row = vec![false; norm.rows.len()];
        parts.iter().for_each(|p| is_row[p.row] = true);
        places.push(format!("{} parts in rows {} in all", parts.len(), lines(&is_row)));
    }
    places.join("; ")
}

pub(super) fn mean_is(p: &Part, of: f64) -> bool {
    (of - p.line.mean).abs() <= p.line.off_mean + NEAR * (of.abs() + 1.0 / p.line.p)
}

pub(super) fn divisor_is(p: &Part, of: f64) -> bool {
    let r = 1.0 / of;
    (r - p.line.p).abs() <= p.line.off_p + 2.0 * NEAR * r.abs()
}

/// All wrong parts, and whether they are the same part of rows in even steps. `None`: something else is wrong too, or whole rows are.
fn parts(norm: &Norm) -> Option<(Vec<Part>, bool)> {
    let n = norm.cols();
    let own = Weights { words: Vec::new(), gamma: norm.gamma.to_vec(), beta: norm.beta.to_vec() };
    let (mut all, mut rows): (Vec<Part>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut count = 0;
    for (s, i) in norm.sampled.iter().enumerate() {
        let wrong: Vec<usize> = (0..n).filter(|j| !norm.right[s * n + j]).collect();
        let mut rest = &wrong[..];
        while !rest.is_empty() {
            let run = 1 + rest.windows(2).take_while(|w| w[1] - w[0] < LEAST).count();
            all.push(part(norm, &own, *i, &rest[..run])?);
            rest = &rest[run..];
        }
        if !wrong.is_empty() {
            rows.push(s);
            count += wrong.len();
        }
    }
    let rare = 4 * rows.len() <= 3 * norm.sampled.len();
    let alike = all.windows(2).all(|p| (p[0].from, p[0].to) == (p[1].from, p[1].to));
    let even = rows.len() > 2 && rows.windows(3).all(|r| r[2] - r[1] == r[1] - r[0]);
    (count >= WRONG && rare).then_some((all, alike && even))
}

/// The part of row `i` that these wrong columns are most of, out to what threads take where its edges are right by chance.
fn part(norm: &Norm, own: &Weights, i: usize, wrong: &[usize]) -> Option<Part> {
    let n = norm.cols();
    let (first, end) = (wrong[0], wrong[wrong.len() - 1] + 1);
    (4 * (end - first) <= 3 * n && 2 * wrong.len() >= end - first).then_some(())?;
    let even = (0..).map(|k| LEAST << k).take_while(|w| 4 * w <= 3 * n);
    let even = even.map(|w| (first / w * w, end.next_multiple_of(w).min(n))).filter(|(from, to)| 4 * (to - from) <= 3 * n);
    let mut spans: Vec<(usize, usize)> = even.filter(|(from, to)| 2 * wrong.len() >= to - from).collect();
    spans.dedup();
    spans.extend((end - first >= LEAST).then_some((first, end)));
    spans.into_iter().find_map(|(from, to)| {
        let columns: Vec<usize> = (from..to).collect();
        let line = norm.line(i, &columns, own).filter(|l| l.made.0 >= SHARE)?;
        let centered = norm.layer() || line.mean.abs() <= line.off_mean;
        centered.then_some(Part { row: i, from, to, line })
    })
}

/// Which numbers these are, in words, and when they were read.
fn known(norm: &Norm, parts: &[Part], is_mean: bool, is_divisor: bool) -> Option<(String, &'static str)> {
    let (after, before) = ("read after it was overwritten", "read before it was written");
    let count = norm.rows.len() as isize;
    let row = |p: &Part, d: isize| {
        let i = p.row as isize + d;
        (0 <= i && i < count).then(|| &norm.rows[i as usize])
    };
    if parts.len() > 1 {
        for d in (1..=FAR).flat_map(|d| [d, -d]) {
            let mean = || parts.iter().all(|p| row(p, d).is_some_and(|x| mean_is(p, norm.center(x))));
            let divisor = || parts.iter().all(|p| row(p, d).is_some_and(|x| divisor_is(p, norm.divisor(x))));
            if (is_mean || mean()) && (is_divisor || divisor()) {
                let (sign, when) = if d > 0 { ('+', after) } else { ('−', before) };
                let those = if is_mean || is_divisor { "that" } else { "those" };
                return Some((format!("{those} of row i {sign} {}", d.abs()), when));
            }
        }
    }
    let x = |p: &Part| &norm.rows[p.row];
    if !is_mean && is_divisor {
        let variance = |p: &Part| norm.divisor(x(p)).powi(2) - norm.eps;
        type Number<'n> = (&'n str, &'static str, Box<dyn Fn(&Part) -> f64 + 'n>);
        let numbers: [Number; 6] = [
            ("the variance of the row", after, Box::new(variance)),
            ("the variance of the row and eps", after, Box::new(|p| norm.divisor(x(p)).powi(2))),
            ("the sum of squares of the row", after, Box::new(|p| variance(p) * norm.cols() as f64)),
            ("the root of the variance", after, Box::new(|p| norm.divisor(x(p)))),
            ("the reciprocal of the root", after, Box::new(|p| 1.0 / norm.divisor(x(p)))),
            ("0", before, Box::new(|_| 0.0)),
        ];
        if let Some((words, when, _)) = numbers.iter().find(|number| parts.iter().all(|p| mean_is(p, number.2(p)))) {
            return Some(((*words).into(), when));
        }
    }
    let own = partial(norm, parts, is_mean, is_divisor).map(|(words, late)| (words, if late { after } else { before }));
    own.or_else(|| {
        of_other_parts(norm, parts, is_mean, is_divisor).map(|(words, d)| (words, if d > 0 { after } else { before }))
    })
}

/// The numbers of one part alone of a row so many before or behind: its mean, and its squares about that, divided by all columns or its own.
fn of_other_parts(norm: &Norm, parts: &[Part], is_mean: bool, is_divisor: bool) -> Option<(String, isize)> {
    let n = norm.cols();
    (parts.len() >= OTHERS && !is_divisor && norm.layer()).then_some(())?;
    let count = norm.rows.len() as isize;
    let widths = (2..=PARTIAL).filter(|k| n.is_multiple_of(*k) && n / k >= LEAST).map(|k| n / k);
    for width in widths {
        for d in (0..=FAR).flat_map(|d| if d == 0 { vec![0] } else { vec![d, -d] }) {
            for from in (0..n).step_by(width) {
                for by in [n, width] {
                    let is = |p: &Part| {
                        let i = p.row as isize + d;
                        (0..count).contains(&i) && {
                            let x = &norm.rows[i as usize][from..from + width];
                            let m = mean(x, |x| x);
                            let square = x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / by as f64;
                            (is_mean || mean_is(p, m)) && divisor_is(p, (square + norm.eps).sqrt())
                        }
                    };
                    if parts.iter().all(is) {
                        let row = match d {
                            0 => "their own row".to_string(),
                            d if d > 0 => format!("row i + {d}"),
                            d => format!("row i − {}", -d),
                        };
                        let end = from + width - 1;
                        let words = format!("those of columns {from} … {end} alone of {row}, their squares divided by {by}");
                        return Some((words, d));
                    }
                }
            }
        }
    }
    None
}

/// One partial sum of a reduction that was not there yet, or already another; and whether it was another.
pub(super) fn partial(norm: &Norm, parts: &[Part], is_mean: bool, is_divisor: bool) -> Option<(String, bool)> {
    let n = norm.cols();
    (parts.len() > 1 && is_mean != is_divisor).then_some(())?;
    let widths: Vec<usize> = (2..=PARTIAL).filter(|k| n.is_multiple_of(*k) && n / k >= LEAST).map(|k| n / k).collect();
    // Of columns `from` on: what the statistic would be.
    type Statistic<'n> = (String, bool, Box<dyn Fn(&[f64], &[f64]) -> f64 + 'n>);
    for width in widths {
        let squares = |x: &[f64], m: f64| x.iter().map(|x| (x - m).powi(2)).sum::<f64>();
        let of_mean: Vec<Statistic> = vec![
            (
                format!("one of its partial sums over {width} columns is already that of the variance"),
                true,
                Box::new(|x, some| {
                    let m = mean(x, |x| x);
                    m + (squares(some, m) - some.iter().sum::<f64>()) / n as f64
                }),
            ),
            (
                format!("it lacks one of its partial sums over {width} columns"),
                false,
                Box::new(|x, some| mean(x, |x| x) - some.iter().sum::<f64>() / n as f64),
            ),
        ];
        let of_divisor: Vec<Statistic> = vec![(
            format!("it lacks one of its partial sums over {width} columns"),
            false,
            Box::new(|x, some| {
                let m = norm.center(x);
                ((squares(x, m) - squares(some, m)) / n as f64 + norm.eps).sqrt()
            }),
        )];
        let all = if is_mean { of_divisor } else { of_mean };
        let fits = |(_, _, of): &&Statistic| {
            let mut chance = 1.0;
            let is = parts.iter().all(|p| {
                let x = &norm.rows[p.row];
                let found: Vec<f64> = x.chunks(width).map(|some| of(x, some)).collect();
                let (low, high) = found.iter().fold((f64::INFINITY, 0.0f64), |(l, h), f| (l.min(*f), h.max(*f)));
                let off = if is_mean { p.line.off_p / p.line.p.powi(2) } else { p.line.off_mean };
                chance *= (2.0 * off * found.len() as f64 / (high - low).max(1e-300)).min(1.0);
                found.iter().any(|f| if is_mean { divisor_is(p, *f) } else { mean_is(p, *f) })
            });
            is && chance <= CHANCE
        };
        if let Some((words, late, _)) = all.iter().find(fits) {
            return Some((words.clone(), *late));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{COLS, EPS, average, beta, gamma, rows, square, with};
    use super::*;
    use crate::op::Op;

    /// Mean and divisor of a row.
    type By<'x> = dyn Fn(&[Vec<f64>], usize) -> (f64, f64) + 'x;

    /// What is said of a norm in which these columns of a row have this mean and divisor.
    fn said(op: Op, is: &dyn Fn(usize, usize) -> bool, by: &By) -> Option<(String, bool)> {
        let rows = rows();
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let m = if op == Op::Layernorm { average(&rows[i]) } else { 0.0 };
            let (m, d) = if is(i, j) { by(rows, i) } else { (m, (square(&rows[i], m) + EPS).sqrt()) };
            (rows[i][j] - m) / d * gamma(j) + if op == Op::Layernorm { beta(j) } else { 0.0 }
        };
        with(op, &rows, &made, explain)
    }

    /// Three warps of 32 columns in three rows.
    fn late(i: usize, j: usize) -> bool {
        matches!((i, j / 32), (3, 1) | (10, 0) | (12, 2))
    }

    fn own(rows: &[Vec<f64>], i: usize) -> (f64, f64) {
        let m = average(&rows[i]);
        (m, (square(&rows[i], m) + EPS).sqrt())
    }

    #[test]
    fn parts_of_rows_with_statistics_of_others_are_named() {
        let of = |by: &By| said(Op::Layernorm, &late, by).unwrap();
        let (words, known) = of(&|r, i| own(r, i + 8));
        let told = "row 3, columns 32 … 63; row 10, columns 0 … 31; row 12, columns 64 … 95";
        assert!(known && words.contains(told) && words.contains("another divisor"), "{words}");
        assert!(words.contains("those of row i + 8") && words.ends_with("after it was overwritten"), "{words}");
        let (words, _) = of(&|r, i| (own(r, i - 2).0, own(r, i).1));
        assert!(words.contains("that of row i − 2") && words.ends_with("before it was written"), "{words}");
        let (words, _) = of(&|r, i| (square(&r[i], own(r, i).0), own(r, i).1));
        assert!(words.contains("another mean than") && words.contains("(the variance of the row): row 3"), "{words}");
        let (words, _) = of(&|r, i| {
            let (m, some) = (own(r, i).0, &r[i][24..48]);
            (m + (24.0 * square(some, m) - 24.0 * average(some)) / COLS as f64, own(r, i).1)
        });
        assert!(words.contains("one of its partial sums over 24 columns is already that of the variance"), "{words}");
        let (words, _) = of(&|r, i| (own(r, i).0 - 48.0 * average(&r[i][..48]) / COLS as f64, own(r, i).1));
        assert!(words.contains("lacks one of its partial sums over 48 columns"), "{words}");
        let (words, known) = of(&|r, i| (own(r, i).0 + 0.13 * i as f64, own(r, i).1 * (1.2 + 0.07 * i as f64)));
        assert!(!known && words.contains("another mean and another divisor than the rest of their row: row 3"), "{words}");
    }

    #[test]
    fn four_parts_are_told_and_the_fifth_is_counted() {
        let of = |parts: &[(usize, usize)]| {
            said(Op::Layernorm, &|i, j| parts.contains(&(i, j / 32)), &|r, i| own(r, (i + 1) % r.len())).unwrap().0
        };
        let four = of(&[(3, 1), (10, 0), (12, 2), (17, 1)]);
        assert!(four.contains("row 17, columns 32 … 63") && !four.contains("in all"), "{four}");
        let five = of(&[(3, 1), (10, 0), (12, 2), (17, 1), (20, 0)]);
        assert!(five.contains("row 17, columns 32 … 63; 5 parts in rows 5 of 24 from 3 to 20 in all"), "{five}");
    }

    #[test]
    fn an_rmsnorm_has_no_mean() {
        let root = |x: &[f64]| (square(x, 0.0) + EPS).sqrt();
        let of = |by: &By| said(Op::Rmsnorm, &late, by);
        assert!(
            of(&|r, i| (0.0, root(&r[i - 3])))
                .unwrap()
                .0
                .contains("another divisor than the rest of their row (that of row i − 3)")
        );
        let lacks = |r: &[Vec<f64>], i: usize| {
            ((COLS as f64 * square(&r[i], 0.0) - 24.0 * square(&r[i][..24], 0.0)) / COLS as f64 + EPS).sqrt()
        };
        assert!(of(&|r, i| (0.0, lacks(r, i))).unwrap().0.contains("lacks one of its partial sums over 24 columns"));
        assert_eq!(of(&|r, i| (0.3, root(&r[i]))), None, "a mean");
    }

    /// What repeats in even steps, what is all rows, what no two numbers make, what is too little.
    #[test]
    fn what_is_no_part_of_a_row_has_no_such_name() {
        let other = |r: &[Vec<f64>], i: usize| own(r, (i + 1) % r.len());
        let of = |is: &dyn Fn(usize, usize) -> bool| said(Op::Layernorm, is, &other);
        assert!(of(&late).is_some());
        assert_eq!(of(&|i, j| i % 2 == 1 && j < 32), None, "every second row");
        assert_eq!(of(&|_, j| j < 32), None, "every row");
        assert_eq!(of(&|i, j| j / 32 == i * i % 3), None, "every row, at other columns");
        assert_eq!(of(&|i, _| matches!(i, 3 | 7 | 9)), None, "whole rows");
        assert_eq!(of(&|i, j| late(i, j) && j % 32 < 9), None, "nine columns");
        assert_eq!(of(&|i, j| late(i, j) && i == 3 && j % 32 < 20), None, "20 elements in all");
        assert_eq!(of(&|_, _| false), None);
        let rows = rows();
        let made = |rows: &[Vec<f64>], i: usize, j: usize| {
            let (m, d) = own(rows, i);
            (rows[i][j] - m) / d * gamma(j) + beta(j) + if late(i, j) { ((i + 7 * j) % 5) as f64 } else { 0.0 }
        };
        assert_eq!(with(Op::Layernorm, &rows, &made, explain), None, "numbers of their own");
    }

    /// A mean may be off by a share of itself and of the values' spread, 1/p; a divisor by twice that share.
    #[test]
    fn a_parts_numbers_are_held_against_others_by_their_size() {
        let part = |p: f64, mean: f64, off_p: f64, off_mean: f64| {
            let line = Line { p, mean, off_p, off_mean, made: (1.0, 1.0) };
            Part { row: 0, from: 0, to: LEAST, line }
        };
        let mean = |by: f64, off: f64| mean_is(&part(0.25, 2.0 + by, 0.0, off), 2.0);
        assert!(mean(5.0 * NEAR, 0.0) && mean(-5.0 * NEAR, 0.0), "2 + 1/p = 6");
        assert!(!mean(7.0 * NEAR, 0.0) && !mean(-7.0 * NEAR, 0.0));
        assert!(mean(0.5, 0.5) && !mean(0.5 + 7.0 * NEAR, 0.5));
        let divisor = |by: f64, off: f64| divisor_is(&part(2.0 + by, 0.0, off, 0.0), 0.5);
        assert!(divisor(3.0 * NEAR, 0.0) && !divisor(5.0 * NEAR, 0.0));
        assert!(divisor(-0.5, 0.5) && !divisor(-0.5 - 5.0 * NEAR, 0.5));
    }
}
