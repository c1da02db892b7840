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

/// Tiles of K that kernels load.
const TILES: [usize; 4] = [128, 256, 64, 512];
/// Sides of tiles of the result.
const SIDES: [usize; 17] = [2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48, 64, 128, 256];
/// NaN, and right elements beside them, at least; how much larger than the others those that are NaN may be.
const LEAST: usize = 16;
const LARGER: f64 = 1.5;

/// Both. Nothing where any wrong element is a number.
pub fn theories(s: &System) -> Vec<Theory> {
    let n = s.rows * s.cols;
    let nan = |at: usize| s.actual[at].is_nan() && s.ideal[at].is_finite();
    let mut wrong = (0..n).filter(|at| s.is_wrong[*at]).peekable();
    if s.alone || wrong.peek().is_none() || !wrong.all(nan) {
        return Vec::new();
    }
    [Which::B, Which::A].into_iter().filter_map(|side| behind_k(s, side)).chain(old_times_zero(s)).collect()
}

fn theory(s: &System, class: Class, operand: &'static str, variant: String, words: String, bits: f64) -> Theory {
    let mut t = Theory::new(class, operand, variant, words).bits(bits);
    let (actual, cols) = (s.actual.to_vec(), s.cols);
    t.finish = Some(Arc::new(move |i, j, _| actual[i * cols + j]));
    t
}

/// Lines of an operand that are NaN all along, where its scales stand in groups along K whose last tile is not whole and have a code for NaN.
fn behind_k(s: &System, side: Which) -> Option<Theory> {
    let (g, name) = (s.given(side), side.name());
    let nan = |f: crate::Format| (0..1u32 << f.bits()).any(|c| f.decode(c).is_nan());
    let stored = g.q.as_ref().map(|q| q.scale_format()).filter(|f| f.bits() == 8 && nan(*f))?;
    let tile = TILES.into_iter().find(|t| *t > g.tile.1 && !s.k.is_multiple_of(*t))?;
    let one = s.parts.len() == 1 && s.parts[0].k.len() == s.k && g.grid.1 > 1;
    let (own, across) = if side == Which::A { (s.rows, s.cols) } else { (s.cols, s.rows) };
    let at = |x: usize, y: usize| if side == Which::A { x * s.cols + y } else { y * s.cols + x };
    let is: Vec<bool> = (0..own).map(|x| s.actual[at(x, 0)].is_nan()).collect();
    let whole = (0..own).all(|x| (0..across).all(|y| s.actual[at(x, y)].is_nan() == is[x]));
    (one && whole && across >= 2 && is.contains(&true) && is.contains(&false)).then_some(())?;
    let what = if side == Which::A { "rows" } else { "columns" };
    let groups = |k: usize| k.div_ceil(g.tile.1);
    let words = format!(
        "{what} {} are NaN all along, and all others are right: what they read of {name} is NaN. K = {} ends inside a tile of {tile}, and the {} scales \
         of {stored} behind it are read without a mask: a byte that is NaN, times the zeros of the masked codes, is NaN",
        lines(&is),
        s.k,
        groups(s.k.next_multiple_of(tile)) - groups(s.k)
    );
    // Memory that nobody stored is NaN where somebody had filled it so; these bytes are without that.
    Some(theory(s, Class::PaddingPoison, name, format!("{name}.scales_behind_k"), words, 0.0))
}

/// NaN among right elements of the last rows and columns, or all over: no line of an operand makes them, for each has right ones too.
fn old_times_zero(s: &System) -> Option<Theory> {
    let is = |i: usize, j: usize| s.actual[i * s.cols + j].is_nan();
    (!s.out.is_quantized() && s.actual.iter().all(|x| !x.is_infinite())).then_some(())?;
    let places: Vec<(usize, usize)> =
        (0..s.rows * s.cols).map(|at| (at / s.cols, at % s.cols)).filter(|(i, j)| is(*i, *j)).collect();
    (places.len() >= LEAST).then_some(())?;
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
    let inside = |(r, c): (usize, usize), i: usize, j: usize| i + r >= s.rows || j + c >= s.cols;
    let edge = crosses.into_iter().find(|x| places.iter().all(|(i, j)| inside(*x, *i, *j)));
    let has = |i: usize, j: usize| edge.is_none_or(|x| inside(x, i, j));
    let (mut rows, mut cols) = (vec![false; s.rows], vec![false; s.cols]);
    let (mut right, mut size, mut of_nan) = (0, 0.0, 0.0);
    for at in 0..s.rows * s.cols {
        let (i, j) = (at / s.cols, at % s.cols);
        if is(i, j) {
            of_nan += s.ideal[at].abs() / places.len() as f64;
        } else if has(i, j) {
            (rows[i], cols[j], right, size) = (true, true, right + 1, size + s.ideal[at].abs());
        }
    }
    // Of an operand's NaN all of its line is; of sums that leave a range the large ones are.
    let mixed = 10 * places.iter().filter(|(i, j)| rows[*i] && cols[*j]).count() >= 9 * places.len();
    (mixed && right >= LEAST && of_nan <= LARGER * size / f64::from(right as u32)).then_some(())?;
    let (place, region) = match edge {
        Some((r, c)) => {
            let some = |n: usize, what: &str| if n == 0 { String::new() } else { format!("the last {n} {what}") };
            let both = if r > 0 && c > 0 { " and " } else { "" };
            (format!("{}{both}{}, those of tiles that are not whole,", some(r, "rows"), some(c, "columns")), Some((r, c)))
        }
        None => ("the whole result".to_string(), None),
    };
    let words = format!(
        "{} elements are NaN and all others right, in {place} with right ones in their rows and columns: what the output held before is read and \
         multiplied by beta = 0 instead of left out, and 0 times Inf or NaN is NaN",
        places.len()
    );
    let mut t = theory(s, Class::AccState, "out", "out.old_times_zero".into(), words, 6.0);
    let tiles = |(r, c): (usize, usize)| [(s.rows - r..s.rows, 0..s.cols), (0..s.rows, s.cols - c..s.cols)];
    t.region = region.map(|x| {
        let tiles = tiles(x).into_iter().filter(|(r, c)| !r.is_empty() && !c.is_empty()).collect();
        Arc::new(Region { rows: vec![true; s.rows], cols: vec![true; s.cols], tiles, words: String::new() })
    });
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{codes, found, noise, wide};
    use crate::quant::QTensorParts;
    use crate::{Format, QTensor};

    #[test]
    fn columns_that_are_nan_by_scales_behind_k_are_not_unwritten() {
        let (m, n, k) = (24, 96, 160);
        let mut p: QTensorParts = codes(Format::E2m1, n, k, 32, false, 91).into_parts();
        p.scale_inv.iter_mut().for_each(|s| *s = s.log2().round().exp2());
        p.scale_format = Format::E8m0;
        let (a, b) = (wide(m, k), QTensor::new(p).unwrap());
        let got = found(&a, &b, None, Format::Bf16, |i, j, right| if j < 64 { right[i * n + j] } else { f64::NAN });
        assert_eq!(got.0, "padding_poison:b.scales_behind_k", "{}", got.1);
        assert!(got.1.contains("columns 64 … 95 are NaN all along") && got.1.contains("inside a tile of 128"), "{}", got.1);
        // Whole tiles of K have no scales behind them.
        let (a, b) = (wide(m, 512), codes(Format::E2m1, n, 512, 32, false, 92));
        let got = found(&a, &b, None, Format::Bf16, |i, j, right| if j < 64 { right[i * n + j] } else { f64::NAN });
        assert!(!got.0.contains("behind_k"), "{} {}", got.0, got.1);
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
