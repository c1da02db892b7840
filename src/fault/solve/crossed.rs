//! Two faults whose places cross: one has rows, the other columns, and where they meet both hold. And one that holds all over, with another in some
//! rows: the first is solved where it stands alone.
//!
//! ```text
//!            columns C                              band
//!          · · · · 2 2                             1 1 1 1 1      solved by itself
//! rows R   1 1 1 1 3 3      3: both                1 1 1 1 1
//!          · · · · 2 2                             3 3 3 3 3      on top of it
//! ```

use super::split::{best, completed, within};
use super::system::{Region, System, Theory};
use crate::parallel;
use std::sync::Arc;

/// The share of a line's elements that are wrong where the fault has it.
const DENSE: f64 = 0.75;
/// Parts of the rows, or columns, that one fault is looked for in.
const PART: usize = 4;
/// The fewest lines that are a part.
const LINES: usize = 8;
/// Multiply-adds of a product that a theory is looked at whole in.
const ROOM: usize = 1 << 28;

/// Rows and columns that cross.
pub fn theories(s: &System, all: &[Theory]) -> Vec<Theory> {
    crossing(s, all).into_iter().collect()
}

/// Lines of which most is wrong; `not` are left out.
fn lines(s: &System, by_row: bool, not: &[bool]) -> Vec<bool> {
    let (n, m) = if by_row { (s.rows, s.cols) } else { (s.cols, s.rows) };
    let at = |l: usize, x: usize| if by_row { l * s.cols + x } else { x * s.cols + l };
    let others = (0..m).filter(|x| !not[*x]).count().max(1) as f64;
    (0..n).map(|l| (0..m).filter(|x| !not[*x] && s.is_wrong[at(l, *x)]).count() as f64 >= DENSE * others).collect()
}

fn crossing(s: &System, all: &[Theory]) -> Option<Theory> {
    if s.alone {
        return None;
    }
    // Whichever has fewer lines is seen first; the other in what is left.
    let of = |by_row: bool| {
        let first = lines(s, by_row, &vec![false; if by_row { s.cols } else { s.rows }]);
        let second = lines(s, !by_row, &first);
        let first = lines(s, by_row, &second);
        if by_row { (first, second) } else { (second, first) }
    };
    let some = |v: &[bool]| v.contains(&true) && v.contains(&false);
    let (rows, cols) = [of(true), of(false)].into_iter().find(|(r, c)| {
        let covered = |at: usize| r[at / s.cols] || c[at % s.cols];
        some(r) && some(c) && (0..s.is_wrong.len()).all(|at| !s.is_wrong[at] || covered(at))
    })?;
    let part = |in_rows: bool| {
        let has = |at: usize| {
            let (r, c) = (rows[at / s.cols], cols[at % s.cols]);
            s.is_wrong[at] && if in_rows { r && !c } else { c && !r }
        };
        let own = within(s, (0..s.is_wrong.len()).map(has).collect())?;
        // What the other hides is not asked.
        let mut own = own;
        own.probes.retain(|(i, j)| if in_rows { !cols[*j] } else { !rows[*i] });
        let place = own.region.as_ref().map_or(String::new(), |r| format!(", in {}", r.words));
        best(&own, all).map(|t| Theory { region: None, detail: t.detail.replace(&place, ""), ..t })
    };
    let (first, second) = (part(true)?, part(false)?);
    let region = |r: &[bool], c: &[bool], words: String| {
        Arc::new(Region { rows: r.to_vec(), cols: c.to_vec(), tiles: Vec::new(), words })
    };
    let every = |n: usize| vec![true; n];
    let in_rows = region(&rows, &every(s.cols), format!("rows {}", super::segment::lines(&rows)));
    let in_cols = region(&every(s.rows), &cols, format!("columns {}", super::segment::lines(&cols)));
    let both = first.joined(&second)?;
    let placed = |t: &Theory, r: &Region| {
        if t.detail.ends_with(&r.words) { t.detail.clone() } else { format!("{}, in {}", t.detail, r.words) }
    };
    let mut t = first.clone();
    t.detail = format!("{}; and {}", placed(&first, &in_rows), placed(&second, &in_cols));
    t.variant = format!("{} + {}", first.variant, second.name());
    t.bits = first.bits + second.bits + in_rows.bits() + in_cols.bits();
    t.fitted |= second.fitted;
    t.slack = first.slack.max(second.slack);
    let meet = region(&rows, &cols, String::new());
    // In columns the second, but where the rows cross them.
    let second = Theory { patch: Some(Arc::new((meet, both))), ..second };
    t.region = Some(in_rows);
    t.patch = Some(Arc::new((in_cols, second)));
    s.explains(&t).then_some(t)
}

/// A fault that holds all over, solved in a part of the result, and another on top of it.
pub fn banded(s: &System, all: &[Theory]) -> Vec<Theory> {
    let n = s.is_wrong.len();
    if s.alone || n * s.k > ROOM {
        return Vec::new();
    }
    let mut bands: Vec<Vec<bool>> = Vec::new();
    for by_row in [true, false] {
        let count = if by_row { s.rows } else { s.cols };
        let width = (count / PART).max(LINES);
        if 2 * width > count {
            continue;
        }
        for from in [0, count - width] {
            let line = |at: usize| if by_row { at / s.cols } else { at % s.cols };
            bands.push((0..n).map(|at| s.is_wrong[at] && (from..from + width).contains(&line(at))).collect());
        }
    }
    // Of regions of their own other mechanisms know.
    if s.region.is_some() {
        return Vec::new();
    }
    let solved = |band: &Vec<bool>| -> Option<Vec<Theory>> {
        let mut own = within(s, band.clone())?;
        let region = own.region.clone();
        own.probes.retain(|(i, j)| region.as_ref().is_some_and(|r| r.has(*i, *j)));
        let t = best(&own, all).filter(|t| !t.fitted && t.from.is_none())?;
        let place = region.map_or(String::new(), |r| format!(", in {}", r.words));
        let t = Theory { region: None, detail: t.detail.replace(&place, ""), ..t };
        let whole = Theory { a: t.a.written(&s.a), b: t.b.written(&s.b), ..t.clone() };
        let made: Vec<bool> = parallel::collect(n, |at| s.fits(&whole, at / s.cols, at % s.cols));
        let found = completed(s, all, &t, &made);
        (!found.is_empty()).then_some(found)
    };
    parallel::find(&bands, solved).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn rows_and_columns_that_cross_have_both() {
        let k_all = 64;
        let (a, b) = (wide(M, k_all), codes(Format::E4m3, N, k_all, k_all, false, 51));
        let bias: Vec<f32> = (0..N).map(|j| 3.0 + j as f32 / 7.0).collect();
        let (x, y) = (a.to_f64(), b.dequantize());
        let step = |j: usize| f64::from(b.scale_inv()[j]);
        // Rows 8 … 15 read the scale of three columns before; the last 16 columns lack the bias.
        let got = found(&a, &b, Some(bias.clone()), Format::Bf16, |i, j, _| {
            let by = if (8..16).contains(&i) { step(j.saturating_sub(3)) / step(j) } else { 1.0 };
            by * sum(k_all, |k| x[[i, k]] * y[[j, k]]) + if j < N - 16 { f64::from(bias[j]) } else { 0.0 }
        });
        assert!(got.0.contains("scale_shared:b") && got.0.contains(" + "), "{} {}", got.0, got.1);
        assert!(got.1.contains("in rows 8 … 15") && got.1.contains("in columns 32 … 47"), "{}", got.1);
    }

    #[test]
    fn a_fault_all_over_is_solved_where_it_stands_alone() {
        let k_all = 120;
        let (m, a, b) = (4 * M, wide(4 * M, k_all), codes(Format::Int8, N, k_all, k_all, false, 52));
        let (x, y) = (a.to_f64(), b.dequantize());
        // Of every 24 of K the last 8 are lost, and rows 64 … 95 and 96 … 127 are exchanged.
        let from = |i: usize| if i >= m / 2 { i ^ 32 } else { i };
        let got = found(&a, &b, None, Format::F16, |i, j, _| {
            sum(k_all, |k| if k % 24 < 16 { x[[from(i), k]] * y[[j, k]] } else { 0.0 })
        });
        assert!(got.0.contains(" + addressing:out.rows"), "{} {}", got.0, got.1);
    }

    /// Parts of K that are kept in bf16, and rows that have one warp's share of each: what is lost is rounded on its way too.
    #[test]
    fn shares_of_k_that_are_lost_on_top_of_rounded_parts_are_told() {
        let k_all = 256;
        let (a, b) = (wide(4 * M, k_all), codes(Format::Int8, N, k_all, k_all, false, 54));
        let (x, y) = (a.to_f64(), b.dequantize());
        let bf16 = |x: f64| f64::from(crate::tensor::round_to(Format::Bf16, x as f32));
        let with = |has: &dyn Fn(usize, usize) -> bool| {
            found(&a, &b, None, Format::Bf16, |i, j, _| {
                let part =
                    |p: usize| sum(64, |k| if has(i, p * 64 + k) { x[[i, p * 64 + k]] * y[[j, p * 64 + k]] } else { 0.0 });
                (1..4).fold(bf16(part(0)), |acc, p| bf16(acc + bf16(part(p))))
            })
        };
        let got = with(&|i, k| i % 40 < 32 || k % 64 < 16);
        assert!(got.0.starts_with("lowprec_acc:") && got.0.contains(":k.every"), "{} {}", got.0, got.1);
        assert!(got.1.contains("the last 48 of every 64 of K are left out"), "{}", got.1);
    }
}
