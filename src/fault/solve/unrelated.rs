//! Elements that none of these operands made: memory that was not written, weights that are not the file's.
//!
//! ```text
//! Σ_{i < i'} cos(a_i, a_i') · cos(x_i, x_i')      rows of x = A·W are as alike as those of A, whatever W is; columns as those of B, whatever A was
//! ```
//!
//! What is like neither, and not like the right result, is another call's. A product of wrong rows, codes or scales of one operand is still like the
//! other one. Whole rows that are like the weights, but not like a, and of other sizes than its rows make, are of other activations.

use super::memory::{even, follows, spread};
use super::rectangles;
use super::segment::lines;
use super::system::{Region, System, Theory};
use super::theory::as_written;
use crate::fault::Class;
use std::sync::Arc;

/// Elements of a row that are wrong together.
const CELL: usize = 16;
/// Wrong ones of a cell that is wrong, at least, and the share of cells that are neither wrong nor right.
const MOST: usize = 12;
const MIXED: usize = 50;
/// Elements that tell it; right ones beside what is not written, of so many.
const LEAST: usize = 256;
const RIGHT: usize = 8;
/// Standard deviations of chance that a likeness may have, and that one has to have where there is one.
const CHANCE: f64 = 3.5;
const POWER: f64 = 9.0;
/// The part of a whole likeness that is none yet: lines that are alike themselves are more often alike by chance.
const LEAST_ALIKE: f64 = 0.125;
/// Lines of a rectangle that are compared.
const LINES: usize = 64;

/// The name for what no theory explains.
pub fn theory(s: &System) -> Option<Theory> {
    let n = s.rows * s.cols;
    let wrong = s.is_wrong.iter().filter(|w| **w).count();
    let finite = || (0..n).filter(|at| s.is_wrong[*at]).all(|at| s.actual[at].is_finite() && s.ideal[at].is_finite());
    if s.alone || wrong < LEAST || !finite() {
        return None;
    }
    // Beside right elements: all of a result may be anything.
    (RIGHT * (n - wrong) >= n).then_some(())?;
    let region = wrong_cells(s)?;
    let instead = |at: usize| s.actual[at] - s.bias.at(at / s.cols, at % s.cols);
    let like = Likeness::of(s, &blocks(s, &region), &instead)?;
    let (class, variant, words) = match (like.of_right, like.of_a, like.of_b) {
        (false, false, false) => (
            Class::SilentSkip,
            "not_written",
            format!(
                "{} hold numbers that have nothing to do with the right ones, nor with the rows of a or of b that belong there: they are not written, \
                 and keep what was there before",
                region.words
            ),
        ),
        (false, true, false) => {
            let experts = whole_experts(s)?;
            match apart(s) {
                Some(words) => (Class::Addressing, "expert_stride", words),
                None => (
                    Class::StaleState,
                    "other_weights",
                    format!(
                        "the rows of groups {experts} are products of their own rows of a, but of weights that are not the file's: those of an \
                         earlier call, or of another layer"
                    ),
                ),
            }
        }
        (false, false, true) => (Class::StaleState, "other_rows", of_other_rows(s, &region)?),
        _ => return None,
    };
    let operand = match (class, variant) {
        (Class::Addressing, _) => "b",
        (_, "other_rows") => "a",
        _ => "out",
    };
    let mut t = Theory::new(class, operand, format!("{operand}.{variant}"), words).bits(70.0);
    t.finish = Some(as_written(s));
    (t.region, t.fitted) = (Some(Arc::new(region)), true);
    Some(t)
}

/// The cells that are wrong as a whole, as a few rectangles, where all others are right.
fn wrong_cells(s: &System) -> Option<Region> {
    let wide = s.cols.div_ceil(CELL);
    let mut is = vec![false; s.rows * wide];
    let mut mixed = 0;
    for (c, is) in is.iter_mut().enumerate() {
        let (i, from) = (c / wide, c % wide * CELL);
        let to = (from + CELL).min(s.cols);
        let wrong = (from..to).filter(|j| s.is_wrong[i * s.cols + j]).count();
        *is = wrong * CELL >= MOST * (to - from);
        mixed += usize::from(wrong > 0 && !*is);
    }
    let count = is.iter().filter(|x| **x).count();
    (count > 0 && MIXED * mixed <= count).then_some(())?;
    let held = |at: usize| is[at / s.cols * wide + at % s.cols / CELL];
    if let Some(region) = rectangles::of(s.rows, s.cols, &held) {
        return Some(region);
    }
    // One rectangle.
    let rows: Vec<bool> = (0..s.rows).map(|i| is[i * wide..(i + 1) * wide].contains(&true)).collect();
    let cols: Vec<bool> = (0..s.cols).map(|j| (0..s.rows).any(|i| is[i * wide + j / CELL])).collect();
    let region = Region { words: format!("rows {}, columns {}", lines(&rows), lines(&cols)), rows, cols, tiles: Vec::new() };
    (0..s.rows * s.cols).all(|at| held(at) == region.has(at / s.cols, at % s.cols)).then_some(region)
}

/// Rows of one group, and columns, all of which are asked.
pub(super) type Block = (Vec<usize>, Vec<usize>);

pub(super) fn blocks(s: &System, region: &Region) -> Vec<Block> {
    let of = |v: &[bool]| (0..v.len()).filter(|x| v[*x]).collect::<Vec<usize>>();
    let rectangles: Vec<Block> = match region.tiles.is_empty() {
        true => vec![(of(&region.rows), of(&region.cols))],
        false => region.tiles.iter().map(|(r, c)| (r.clone().collect(), c.clone().collect())).collect(),
    };
    let mut all = Vec::new();
    for (rows, mut cols) in rectangles {
        super::segment::spread(&mut cols, LINES.max(2));
        cols.sort_unstable();
        for p in 0..s.parts.len() {
            let mut own: Vec<usize> = rows.iter().copied().filter(|i| s.part[*i] == Some(p)).collect();
            super::segment::spread(&mut own, LINES);
            own.sort_unstable();
            if own.len() >= 4 && cols.len() >= 4 && !s.parts[p].k.is_empty() {
                all.push((own, cols.clone()));
            }
        }
    }
    all
}

/// What numbers are like, beyond chance.
pub(super) struct Likeness {
    pub(super) of_right: bool,
    pub(super) of_a: bool,
    pub(super) of_b: bool,
}

/// Sums of a likeness: what was found, and what chance makes of it.
#[derive(Default)]
struct Sum {
    found: f64,
    /// What it would be where there is a likeness, and the variance of none.
    full: f64,
    variance: f64,
}

impl Sum {
    /// Whether there is a likeness. `None`: it would not be seen.
    fn is_alike(&self) -> Option<bool> {
        let deviation = self.variance.sqrt();
        let likeness = self.found.abs();
        (self.full > POWER * deviation).then_some(likeness > CHANCE * deviation && likeness > LEAST_ALIKE * self.full)
    }
}

impl Likeness {
    /// Of these blocks. `None`: nothing is told, or the numbers are of a few directions, as other scales or another bias make them.
    pub(super) fn of(s: &System, blocks: &[Block], of: &dyn Fn(usize) -> f64) -> Option<Self> {
        let (mut right, mut a, mut b) = (Sum::default(), Sum::default(), Sum::default());
        for (rows, cols) in blocks {
            let take = |of: &dyn Fn(usize) -> f64| -> Vec<f64> {
                rows.iter().flat_map(|i| cols.iter().map(move |j| (i, j))).map(|(i, j)| of(i * s.cols + j)).collect()
            };
            let bare = |at: usize| s.ideal[at] - s.bias.at(at / s.cols, at % s.cols);
            let (mut x, mut y) = (take(of), take(&bare));
            (even(&mut x, cols.len()) && even(&mut y, cols.len())).then_some(())?;
            // Noise in proportion to the right numbers is this call's. Operands whose rows are alike make all products so.
            let own = spread(&y, cols.len()).min(1.0);
            (spread(&x, cols.len()) >= 0.5 * own && !follows(&x, &y)).then_some(())?;
            right.found += x.iter().zip(&y).map(|(x, y)| x * y).sum::<f64>();
            right.full += x.len() as f64;
            right.variance += x.len() as f64;
            let (ra, rb, ks) = s.lines(rows[0], 0)?;
            let of_a: Vec<&[f64]> =
                rows.iter().map(|i| (ra + i - rows[0]) * s.k).map(|r| &s.a.values[r + ks.start..r + ks.end]).collect();
            let of_b: Vec<&[f64]> =
                cols.iter().map(|j| (rb + j) * s.k).map(|r| &s.b.values[r + ks.start..r + ks.end]).collect();
            let by_row: Vec<&[f64]> = x.chunks(cols.len()).collect();
            let turned: Vec<f64> = (0..cols.len()).flat_map(|j| by_row.iter().map(move |r| r[j])).collect();
            let by_col: Vec<&[f64]> = turned.chunks(rows.len()).collect();
            compare(&of_a, &by_row, &mut a);
            compare(&of_b, &by_col, &mut b);
        }
        let of_right = right.is_alike()?;
        Some(Self { of_right, of_a: a.is_alike()?, of_b: b.is_alike()? })
    }
}

/// Adds how alike lines are where those of the operand are.
fn compare(operand: &[&[f64]], lines: &[&[f64]], to: &mut Sum) {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let norms = |v: &[&[f64]]| v.iter().map(|x| dot(x, x).sqrt().max(1e-300)).collect::<Vec<f64>>();
    let (no, nl) = (norms(operand), norms(lines));
    let mut pairs: Vec<(f64, f64)> = Vec::with_capacity(lines.len() * lines.len() / 2);
    for x in 0..lines.len() {
        for y in 0..x {
            let of = |v: &[&[f64]], n: &[f64]| dot(v[x], v[y]) / (n[x] * n[y]);
            pairs.push((of(operand, &no), of(lines, &nl)));
        }
    }
    // What all pairs have in common, as numbers of one sign do, says nothing.
    let n = pairs.len().max(1) as f64;
    let (mo, ml) = (pairs.iter().map(|p| p.0).sum::<f64>() / n, pairs.iter().map(|p| p.1).sum::<f64>() / n);
    let long = lines.first().map_or(1, |l| l.len()).max(1) as f64;
    for (o, l) in pairs {
        to.found += (o - mo) * (l - ml);
        to.full += (o - mo).powi(2);
        to.variance += (o - mo).powi(2) / long;
    }
}

/// Experts that are read closer together, or further apart, than they lie in a larger memory: those that begin where another does are that one, and all
/// others lie between two, or behind the last.
fn apart(s: &System) -> Option<String> {
    let full: Vec<usize> = (0..s.parts.len()).filter(|e| !s.parts[*e].rows.is_empty()).collect();
    let is = |e: usize, of: usize| {
        let mut map = vec![None; s.rows];
        s.parts[e].rows.clone().for_each(|i| map[i] = Some(of));
        let t = super::experts::multiplied(s, map, false);
        let rows = &s.parts[e].rows;
        let looks = super::segment::spread_of(rows.len() * s.cols, 12);
        looks.into_iter().all(|at| s.fits(&t, rows.start + at / s.cols, at % s.cols))
    };
    let ratios =
        (2..=8usize).flat_map(|q| (1..q).flat_map(move |p| [(p, q), (q, p)])).filter(|(p, q)| super::address::gcd(*p, *q) == 1);
    let found = |(p, q): (usize, usize)| -> Option<Vec<(usize, usize)>> {
        let known = full
            .iter()
            .filter(|e| **e > 0 && (*e * p).is_multiple_of(q))
            .map(|e| (*e, e * p / q))
            .filter(|x| x.1 < s.parts.len());
        let known: Vec<(usize, usize)> = known.collect();
        (!known.is_empty() && known.iter().all(|(e, of)| is(*e, *of))).then_some(known)
    };
    let ((p, q), known) = ratios.into_iter().find_map(|r| Some((r, found(r)?)))?;
    let list = |of: &dyn Fn(&(usize, usize)) -> usize| {
        known.iter().take(6).map(|x| of(x).to_string()).collect::<Vec<String>>().join(", ")
    };
    Some(format!(
        "experts of b are read {p}/{q} as far apart as they lie in memory: the rows of groups {} are products with the weights of experts {}, those of \
         the other groups with what lies between experts and is not in the file, as where a view of some rows is stepped through by its own size",
        list(&|x| x.0),
        list(&|x| x.1)
    ))
}

/// Rows that are wrong as a whole and not of the sizes that the rows of a make: what is read otherwise of a row keeps about its size.
fn of_other_rows(s: &System, region: &Region) -> Option<String> {
    const OTHER: f64 = 2.5;
    let rows: Vec<usize> = (0..s.rows).filter(|i| region.rows[*i]).collect();
    let whole = |i: &usize| (0..s.cols).all(|j| region.has(*i, j));
    (rows.len() >= 8 && rows.iter().all(whole)).then_some(())?;
    let size = |i: usize, of: &dyn Fn(usize) -> f64| -> f64 {
        (0..s.cols).map(|j| of(i * s.cols + j) - s.bias.at(i, j)).map(|x| x * x).sum::<f64>()
    };
    let ratio = |i: &usize| 0.5 * (size(*i, &|at| s.actual[at]) / size(*i, &|at| s.ideal[at])).ln();
    let all: Vec<f64> = rows.iter().map(ratio).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let spread = (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt();
    // NaN fails.
    (spread >= OTHER / (s.cols as f64).sqrt() && spread.is_finite()).then_some(())?;
    let from = rows[0];
    let behind = match s.parts.iter().position(|p| p.rows.end == from && !p.rows.is_empty()) {
        Some(0) if s.parts.len() > 1 => format!("; {from} rows are those of group 0 alone"),
        Some(e) if s.parts.len() > 1 => format!("; group {e} ends before row {from}"),
        _ => String::new(),
    };
    Some(format!(
        "rows {} are products with the weights that belong there, but of other activations than those given, like no rows of a: those of an earlier \
         step, in rows of a buffer that nobody quantized or copied again{behind}",
        lines(&region.rows)
    ))
}

/// Groups that are wrong as a whole, where another one is right: in words.
fn whole_experts(s: &System) -> Option<String> {
    (s.parts.len() > 1).then_some(())?;
    let mut is = vec![false; s.parts.len()];
    let mut right = false;
    for (e, p) in s.parts.iter().enumerate().filter(|(_, p)| !p.rows.is_empty()) {
        let range = p.rows.start * s.cols..p.rows.end * s.cols;
        let wrong = s.is_wrong[range.clone()].iter().filter(|w| **w).count();
        is[e] = wrong * 10 > range.len() * 9;
        (is[e] || wrong == 0).then_some(())?;
        right |= wrong == 0;
    }
    right.then(|| lines(&is))
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, grouped_found, sum, wide};

    const K: usize = 96;

    /// Weights whose rows are all of one size: sizes alone do not tell whose they are.
    fn even_codes(n: usize, seed: usize) -> crate::QTensor {
        let mut parts = codes(Format::Int8, n, K, K, false, seed).into_parts();
        parts.scale_inv.fill(0.02);
        crate::QTensor::new(parts).unwrap()
    }

    /// A product of operands of another call.
    fn old(i: usize, j: usize) -> f64 {
        let number = |x: usize| crate::fault::solve::tests::noise(x * 7 + 11) - 0.5;
        12.0 * sum(K, |k| number(900_000 + i * K + k) * number(2_000_000 + j * K + k))
    }

    #[test]
    fn rows_of_tiles_that_are_not_written_are_told() {
        let (m, n) = (96, 64);
        let (a, b) = (wide(m, K), even_codes(n, 91));
        let got = found(&a, &b, None, Format::Bf16, |i, j, right| if i % 48 >= 32 { old(i, j) } else { right[i * n + j] });
        assert_eq!(got.0, "silent_skip:out.not_written", "{}", got.1);
        assert!(got.1.contains("rows 32 … 47") && got.1.contains("keep what was there before"), "{}", got.1);
    }

    #[test]
    fn rows_of_another_product_of_the_same_rows_are_no_old_memory() {
        let (m, n) = (96, 64);
        let (a, b) = (wide(m, K), even_codes(n, 92));
        let x = a.to_f64();
        let other = |j: usize, k: usize| 12.0 * (crate::fault::solve::tests::noise(5_000_000 + j * K + k) - 0.5);
        let wrong = |i: usize, j: usize| sum(K, |k| x[[i, k]] * other(j, k));
        let got = found(&a, &b, None, Format::Bf16, |i, j, right| if i % 48 >= 32 { wrong(i, j) } else { right[i * n + j] });
        assert!(!got.0.contains("not_written"), "{}: {}", got.0, got.1);
    }

    /// Rows of a buffer that an earlier step filled, behind those of the first group.
    #[test]
    fn rows_of_other_activations_are_told() {
        let (n, ends) = (80, [24, 50, 80]);
        let (a, b) = (wide(80, K), codes(Format::E4m3, 3 * n, K, K, false, 95));
        let (x, y) = (a.to_f64(), b.dequantize());
        let number = |i: usize, k: usize| crate::fault::solve::tests::noise(3_000_000 + i * K + k) - 0.5;
        let of = |read: &dyn Fn(usize, usize) -> f64| {
            grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
                let e = ends.iter().filter(|end| **end <= i).count();
                sum(K, |k| if i < 24 { x[[i, k]] } else { read(i, k) } * y[[e * n + j, k]])
            })
        };
        let got = of(&|i, k| (1 + i % 5) as f64 * number(i, k));
        assert_eq!(got.0, "stale_state:a.other_rows", "{}", got.1);
        assert!(
            got.1.contains("rows 24 … 79 are products with the weights")
                && got.1.contains("24 rows are those of group 0 alone")
        );
        // Its own numbers at other k, in another order each row: of a row's own size.
        let got = of(&|i, k| x[[i, (k * (2 * i + 5) + i * i) % K]]);
        assert!(!got.0.contains("other_rows"), "{}: {}", got.0, got.1);
    }

    #[test]
    fn groups_that_meet_stale_weights_are_told() {
        let (n, ends) = (48, [24, 50, 80]);
        let (a, b) = (wide(80, K), codes(Format::E4m3, 3 * n, K, K, false, 93));
        let (x, y, z) = (a.to_f64(), b.dequantize(), codes(Format::E4m3, 3 * n, K, K, false, 193).dequantize());
        let got = grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            sum(K, |k| x[[i, k]] * if e == 1 { z[[e * n + j, k]] } else { y[[e * n + j, k]] })
        });
        assert_eq!(got.0, "stale_state:out.other_weights", "{}", got.1);
        assert!(got.1.contains("the rows of groups 1 are products of their own rows of a"), "{}", got.1);
    }

    /// Groups 2 and 4 meet the weights of experts 1 and 2, those between what is not in the file.
    #[test]
    fn experts_that_are_read_half_as_far_apart_are_told() {
        let (n, ends) = (48, [24, 50, 80, 104, 130]);
        let (a, b) = (wide(130, K), codes(Format::E4m3, 5 * n, K, K, false, 94));
        let (x, y, z) = (a.to_f64(), b.dequantize(), codes(Format::E4m3, 5 * n, K, K, false, 194).dequantize());
        let got = grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            sum(K, |k| x[[i, k]] * if e % 2 == 1 { z[[e * n + j, k]] } else { y[[e / 2 * n + j, k]] })
        });
        assert_eq!(got.0, "addressing:b.expert_stride", "{}", got.1);
        assert!(got.1.contains("1/2 as far apart") && got.1.contains("groups 2, 4 are products"), "{}", got.1);
    }
}
