//! NaN and nothing else wrong: which of two places it comes from that are not a missing store.
//!
//! ```text
//! scales behind K:  whole columns (rows) are NaN: a scale byte behind the end of K is NaN, and times the zero of a mask it still is
//! 0 · old:          some elements of the edge tiles are NaN, the others right: the output's old content times beta = 0 is added
//! ```

use super::segment::lines;
use super::system::{Region, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// The tile of K whose scales are stored and loaded together: 4 groups of 32.
const TILE: usize = 128;
/// A tail run of lines in whole ones of these is a tile of the result that nobody wrote, or the scales of these lines.
const LINES: usize = 32;
/// What a result has to be a multiple of for its last tile to be a whole one.
const WHOLE: usize = 64;
/// Sides of tiles of the result.
const SIDES: [usize; 17] = [2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48, 64, 128, 256];
/// NaN, and right elements beside them, at least; how much larger than the others those that are NaN may be.
const LEAST: usize = 16;
const LARGER: f64 = 1.5;

/// Both. Nothing where any wrong element is a number, or a NaN is not wrong.
pub fn theories(s: &System) -> Vec<Theory> {
    let n = s.rows * s.cols;
    let nan = |at: usize| s.actual[at].is_nan() && s.ideal[at].is_finite();
    if s.alone || !s.is_wrong.contains(&true) || !(0..n).all(|at| s.is_wrong[at] == nan(at)) {
        return Vec::new();
    }
    [Which::B, Which::A].into_iter().filter_map(|side| behind_k(s, side)).chain(old_times_zero(s)).collect()
}

/// Lines of an operand that are NaN all along, where its scales stand in groups along K whose last tile is not whole and have a code for NaN.
fn behind_k(s: &System, side: Which) -> Option<Theory> {
    let (g, name) = (s.given(side), side.name());
    let nan = |f: crate::Format| (0..1u32 << f.bits()).any(|c| f.decode(c).is_nan());
    let stored = g.q.as_ref().map(|q| q.scale_format()).filter(|f| f.bits() == 8 && nan(*f))?;
    (TILE > g.tile.1 && !s.k.is_multiple_of(TILE)).then_some(())?;
    let one = s.parts.len() == 1 && s.parts[0].k.len() == s.k && g.grid.1 > 1;
    let (own, across) = if side == Which::A { (s.rows, s.cols) } else { (s.cols, s.rows) };
    let at = |x: usize, y: usize| if side == Which::A { x * s.cols + y } else { y * s.cols + x };
    let is: Vec<bool> = (0..own).map(|x| s.actual[at(x, 0)].is_nan()).collect();
    let from = is.iter().position(|x| *x).filter(|_| one && across >= 2 && is.contains(&false))?;
    let line = |at: usize| if side == Which::A { at / s.cols } else { at % s.cols };
    (0..s.actual.len()).all(|at| s.actual[at].is_nan() == is[line(at)]).then_some(())?;
    let what = if side == Which::A { "rows" } else { "columns" };
    let groups = |k: usize| k.div_ceil(g.tile.1);
    let tail = is[from..].iter().all(|x| *x) && from.is_multiple_of(LINES);
    let other = if tail {
        format!(", or the last tile of {what} is not written and was filled with NaN before")
    } else {
        String::new()
    };
    let words = format!(
        "{what} {} are NaN all along, and all others are right: what they read of {name} is NaN. K = {} ends inside a tile of {TILE}, and the {} scales \
         of {stored} behind it are read without a mask: a byte that is NaN, times the zeros of the masked codes, is NaN{other}",
        lines(&is),
        s.k,
        groups(s.k.next_multiple_of(TILE)) - groups(s.k)
    );
    // A whole tile at the end is first of all one that nobody stored. One that is not whole needs a result that was filled with NaN before it, which
    // these bytes are without.
    let bits = match (tail, own.is_multiple_of(WHOLE)) {
        (true, true) => 12.0,
        (true, false) => 0.0,
        (false, _) => 4.0,
    };
    let mut t = Theory::new(Class::PaddingPoison, name, format!("{name}.scales_behind_k"), words).bits(bits);
    t.finish = Some(Arc::new(|_, _, _| f64::NAN));
    let (rows, cols) = if side == Which::A { (is, vec![true; s.cols]) } else { (vec![true; s.rows], is) };
    t.region = Some(Arc::new(Region { rows, cols, tiles: Vec::new(), words: String::new() }));
    Some(t)
}

/// NaN among right elements of the last rows and columns, or all over: no line of an operand makes them, for each has right ones too.
fn old_times_zero(s: &System) -> Option<Theory> {
    let row = |i: usize| &s.actual[i * s.cols..(i + 1) * s.cols];
    (!s.out.is_quantized() && s.actual.iter().all(|x| !x.is_infinite())).then_some(())?;
    // The first column that is NaN in any of the rows so far: what a cross of last rows and columns has to begin before.
    let mut count = 0;
    let mut first = vec![s.cols; s.rows];
    for i in 0..s.rows {
        first[i] = row(i).iter().position(|x| x.is_nan()).unwrap_or(s.cols).min(if i > 0 { first[i - 1] } else { s.cols });
        count += row(i).iter().filter(|x| x.is_nan()).count();
    }
    (count >= LEAST).then_some(())?;
    // The last rows and the last columns of tiles that are not whole; else everything.
    let tails = |n: usize| {
        let mut all: Vec<usize> = SIDES.iter().filter(|t| **t < n).map(|t| n % t).filter(|r| *r > 0).chain([0]).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let mut crosses: Vec<(usize, usize)> =
        tails(s.rows).into_iter().flat_map(|r| tails(s.cols).into_iter().map(move |c| (r, c))).collect();
    crosses.sort_unstable_by_key(|(r, c)| r * s.cols + c * s.rows);
    let edge = crosses.into_iter().find(|(r, c)| first[s.rows - r - 1] + c >= s.cols);
    let from = |i: usize| edge.filter(|(r, _)| i + r < s.rows).map_or(0, |(_, c)| s.cols - c);
    let (mut rows, mut cols) = (vec![false; s.rows], vec![false; s.cols]);
    let (mut right, mut size, mut of_nan) = (0u32, 0.0, 0.0);
    for i in 0..s.rows {
        for (j, x) in row(i).iter().enumerate().skip(from(i)) {
            let ideal = s.ideal[i * s.cols + j].abs();
            if x.is_nan() {
                of_nan += ideal;
            } else {
                (rows[i], cols[j], right, size) = (true, true, right + 1, size + ideal);
            }
        }
    }
    // Of an operand's NaN all of its line is; of sums that leave a range the large ones are.
    let beside = |i: usize| row(i).iter().zip(&cols).filter(|(x, col)| x.is_nan() && **col).count();
    let mixed = 10 * (0..s.rows).filter(|i| rows[*i]).map(beside).sum::<usize>() >= 9 * count;
    (mixed && right as usize >= LEAST && of_nan / count as f64 <= LARGER * size / f64::from(right)).then_some(())?;
    let place = match edge {
        Some((r, c)) => {
            let some = |n: usize, what: &str| if n == 0 { String::new() } else { format!("the last {n} {what}") };
            let both = if r > 0 && c > 0 { " and " } else { "" };
            format!("{}{both}{}, those of tiles that are not whole,", some(r, "rows"), some(c, "columns"))
        }
        None => "the whole result".to_string(),
    };
    let words = format!(
        "{count} elements are NaN and all others right, in {place} with right ones in their rows and columns: what the output held before is read and \
         multiplied by beta = 0 instead of left out, and 0 times Inf or NaN is NaN"
    );
    // Where they stand is known from the result alone, unless it is in tiles that are not whole.
    let bits = if edge.is_some() { 6.0 } else { 14.0 };
    let mut t = Theory::new(Class::AccState, "out", "out.old_times_zero", words).bits(bits);
    // Which of the old ones were no numbers is known from the result; the others are held to their right values.
    let nan: Vec<bool> = s.actual.iter().map(|x| x.is_nan()).collect();
    let (bias, width) = (s.bias.clone(), s.cols);
    t.finish = Some(Arc::new(move |i, j, v| if nan[i * width + j] { f64::NAN } else { v + bias.at(i, j) }));
    let tiles = |(r, c): (usize, usize)| [(s.rows - r..s.rows, 0..s.cols), (0..s.rows, s.cols - c..s.cols)];
    t.region = edge.map(|x| {
        let tiles = tiles(x).into_iter().filter(|(r, c)| !r.is_empty() && !c.is_empty()).collect();
        Arc::new(Region { rows: vec![true; s.rows], cols: vec![true; s.cols], tiles, words: String::new() })
    });
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, found, noise, of_system, wide};
    use crate::quant::QTensorParts;
    use crate::{Format, QTensor};

    /// Codes whose groups of 32 have e8m0 scales.
    fn blocks(n: usize, k: usize) -> QTensor {
        let mut p: QTensorParts = codes(Format::E2m1, n, k, 32, false, 91).into_parts();
        p.scale_inv.iter_mut().for_each(|s| *s = s.log2().round().exp2());
        p.scale_format = Format::E8m0;
        QTensor::new(p).unwrap()
    }

    /// What is said of columns that are NaN.
    fn of_columns(n: usize, k: usize, nan: impl Fn(usize) -> bool) -> (String, String) {
        found(&wide(24, k), &blocks(n, k), None, Format::Bf16, |i, j, right| if nan(j) { f64::NAN } else { right[i * n + j] })
    }

    #[test]
    fn columns_that_are_nan_by_scales_behind_k_are_not_unwritten() {
        let got = of_columns(96, 160, |j| j >= 64);
        assert_eq!(got.0, "padding_poison:b.scales_behind_k", "{}", got.1);
        assert!(got.1.contains("columns 64 … 95 are NaN all along") && got.1.contains("inside a tile of 128"), "{}", got.1);
        assert!(got.1.contains("or the last tile of columns is not written"), "{}", got.1);
        let got = of_columns(96, 160, |j| [5, 22, 31, 70].contains(&j));
        assert_eq!(got.0, "padding_poison:b.scales_behind_k", "{}", got.1);
        assert!(!got.1.contains("not written"), "{}", got.1);
        // Whole tiles of K have no scales behind them, whatever longer tiles there are.
        for k in [256, 384, 512] {
            let got = of_columns(96, k, |j| j >= 64);
            assert!(got.0.starts_with("mn_edge:"), "{k}: {} {}", got.0, got.1);
        }
        // A whole tile of the result at its end is one that nobody stored.
        for from in [64, 96] {
            let got = of_columns(128, 160, |j| j >= from);
            assert!(!got.0.contains("behind_k"), "{from}: {} {}", got.0, got.1);
        }
    }

    /// Elements that are wrong beside NaN, and that a look at a part of the result takes for right, are not explained.
    #[test]
    fn nan_beside_what_is_wrong_in_another_way_is_explained_alone() {
        let (n, k) = (96, 160);
        let wrong = |i: usize, j: usize, right: &[f64]| match j {
            64.. => f64::NAN,
            8.. => right[i * n + j],
            _ => right[i * n + j] + 3.0,
        };
        let fits = of_system(&wide(24, k), &blocks(n, k), Format::Bf16, wrong, |s| {
            let all: Vec<bool> = (0..s.rows * s.cols).map(|at| s.actual[at].is_nan()).collect();
            let part = s.of_wrong(all).unwrap();
            let t = super::theories(&part).into_iter().next().unwrap();
            (part.explains(&t), s.fits(&t, 0, 70), s.fits(&t, 0, 3))
        });
        assert_eq!(fits, (true, true, false));
    }

    #[test]
    fn nan_among_right_elements_of_edge_tiles_is_old_content_times_0() {
        let (m, n, k) = (64, 120, 48);
        let (a, b) = (wide(m, k), codes(Format::Int8, n, k, k, false, 93));
        let of = |edge: &dyn Fn(usize, usize) -> bool| {
            found(&a, &b, None, Format::F32, |i, j, right| {
                let old = noise(31 * (i * n + j)) < 0.4;
                if edge(i, j) && old { f64::NAN } else { right[i * n + j] }
            })
        };
        let got = of(&|i, j| i >= 60 || j >= 112);
        assert_eq!(got.0, "acc_state:out.old_times_zero", "{}", got.1);
        assert!(got.1.contains("the last 4 rows and the last 8 columns"), "{}", got.1);
        let got = of(&|_, _| true);
        assert!(got.0 == "acc_state:out.old_times_zero" && got.1.contains("in the whole result"), "{} {}", got.0, got.1);
    }
}
