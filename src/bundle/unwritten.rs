//! The last columns or rows of a cast whose codes are all 0 although the values are not, or have nothing to do with them: they are not written.
//! What is wrong beside zeros is looked for without them.

use super::casts::Named;
use crate::fault::Class;
use crate::format::grid::ValueGrid;
use crate::{Granularity, Overflow, QTensor, Tensor};

/// Steps of a code that values are beyond, which would not be 0.
const LARGE: f64 = 1.0;
/// The fewest of them that tell it.
const LEAST: usize = 8;

/// The tensors without what is not written, and what that is, in words.
pub fn without(x: &Tensor, q: &QTensor) -> Option<(Tensor, QTensor, String)> {
    matches!(q.granularity(), Granularity::Tensor | Granularity::Row).then_some(())?;
    let (rows, cols) = (q.rows(), q.cols());
    let blank = |at: usize| q.format().decode(u32::from(q.codes()[at])) == 0.0;
    let step = |at: usize| f64::from(q.scale_inv()[q.scale_index(at / cols, at % cols)]);
    let large = |at: usize| (f64::from(x.data()[at]) / step(at)).abs() > LARGE;
    let first = |n: usize, is: &dyn Fn(usize) -> bool| n - (0..n).rev().take_while(|l| is(*l)).count();
    let right = first(cols, &|j| (0..rows).all(|i| blank(i * cols + j)));
    let bottom = first(rows, &|i| (0..cols).all(|j| blank(i * cols + j)));
    let (height, width, words) = match (bottom < rows, right < cols) {
        (false, true) => {
            (rows, right, format!("the last {} of {cols} columns are not written: their codes are 0", cols - right))
        }
        (true, false) => {
            (bottom, cols, format!("the last {} of {rows} rows are not written: their codes are 0", rows - bottom))
        }
        _ => return None,
    };
    let outside = (0..rows * cols).filter(|at| at / cols >= height || at % cols >= width);
    (2 * height > rows && 2 * width > cols && outside.filter(|at| large(*at)).count() >= LEAST).then_some(())?;
    let inside = || (0..height).flat_map(|i| i * cols..i * cols + width);
    let mut p = q.clone().into_parts();
    (p.rows, p.cols, p.codes) = (height, width, inside().map(|at| q.codes()[at]).collect());
    if matches!(q.granularity(), Granularity::Row) {
        p.scale_inv.truncate(height);
    }
    let values = inside().map(|at| x.data()[at]).collect();
    Some((Tensor::new(x.dtype(), height, width, values).ok()?, QTensor::new(p).ok()?, words))
}

/// Codes whose signs tell whether they are of the values beside them, at least.
const SIGNS: usize = 64;
/// How far from one half of equal signs chance goes, in standard deviations.
const SIGMAS: f64 = 4.0;
/// What division, multiplication and a reciprocal in f32 may be off, relative.
const NEAR: f64 = 1.0 / (1u64 << 20) as f64;
/// Rows and columns of a tile that a kernel writes.
const TILES: [usize; 6] = [256, 128, 64, 32, 16, 8];

/// The last rows or columns, of a tile that is not whole, whose codes have nothing to do with their values; all others are right by their scales.
pub fn foreign(x: &Tensor, q: &QTensor) -> Option<Named> {
    let (rows, cols) = (q.rows(), q.cols());
    let grid = ValueGrid::new(q.format(), Overflow::Saturate);
    let y = |at: usize| f64::from(x.data()[at]) / q.affine(q.scale_index(at / cols, at % cols)).unit;
    let value = |at: usize| q.format().decode(u32::from(q.codes()[at]));
    let right = |at: usize| [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|f| grid.nearest(y(at) * f) == value(at));
    let wrong: Vec<usize> = (0..rows * cols).filter(|at| !right(*at)).collect();
    let first = |line: fn(usize, usize) -> usize| wrong.iter().map(|at| line(*at, cols)).min();
    let (top, left) = (first(|at, cols| at / cols)?, first(|at, cols| at % cols)?);
    // Zeros, or one code for all, are no other content.
    wrong.iter().any(|at| value(*at) != value(wrong[0])).then_some(())?;
    // From a multiple of a tile on, the tile not whole.
    let partial = |from: usize, n: usize| from > 0 && TILES.iter().any(|t| from == n / t * t && from < n);
    let (what, from, n) = match (partial(top, rows), partial(left, cols)) {
        (true, _) if left < cols / 2 => ("rows", top, rows),
        (_, true) if top < rows / 2 => ("columns", left, cols),
        _ => return None,
    };
    let inside = (0..rows * cols).filter(|at| if what == "rows" { at / cols >= from } else { at % cols >= from });
    let told: Vec<bool> = inside.filter(|at| value(*at) * y(*at) != 0.0).map(|at| value(at) * y(at) > 0.0).collect();
    let same = told.iter().filter(|s| **s).count() as f64;
    let half = 0.5 * told.len() as f64;
    (told.len() >= SIGNS && (same - half).abs() <= SIGMAS * half.sqrt() / 2f64.sqrt()).then(|| {
        let words = format!(
            "the last {} of {n} {what} hold codes that have nothing to do with their values ({same} of {} signs agree): they are not written, \
             and keep an earlier tensor's or what lay in memory",
            n - from,
            told.len()
        );
        (Class::MnEdge, "out.unwritten", words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::recipe::Recipe;

    fn of(seed: u32) -> Tensor {
        let mut word = seed;
        let mut next = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(word >> 8) / 8_388_608.0 - 1.0
        };
        Tensor::rounded(Format::Bf16, 40, 96, (0..40 * 96).map(|_| next() as f32).collect()).unwrap()
    }

    #[test]
    fn last_lines_of_another_tensor_are_told() {
        let (x, old) = (of(1), of(2));
        let cast = |x: &Tensor| "te_mxfp8".parse::<Recipe>().unwrap().quantize(x).unwrap().q;
        let with = |of: &dyn Fn(usize, usize) -> Option<u8>| {
            let mut p = cast(&x).into_parts();
            (0..40 * 96).for_each(|at| p.codes[at] = of(at / 96, at % 96).unwrap_or(p.codes[at]));
            foreign(&x, &QTensor::new(p).unwrap())
        };
        let stale = cast(&old);
        let code = |i: usize, j: usize| Some(stale.codes()[i * 96 + j]);
        let rows = with(&|i, j| code(i, j).filter(|_| i >= 32)).unwrap();
        assert!(rows.0 == Class::MnEdge && rows.2.starts_with("the last 8 of 40 rows hold codes"), "{}", rows.2);
        let columns = with(&|i, j| code(i, j).filter(|_| j >= 64)).unwrap();
        assert!(columns.2.starts_with("the last 32 of 96 columns hold codes"), "{}", columns.2);
        assert_eq!(with(&|_, _| None), None);
        assert_eq!(with(&|i, j| code(i, j).filter(|_| (8..16).contains(&i))), None, "not the last tile");
        assert_eq!(with(&|i, _| Some(0x38).filter(|_| i >= 32)), None, "one code for all");
        let own = cast(&x);
        assert_eq!(with(&|i, j| Some(own.codes()[i * 96 + j] ^ 1).filter(|_| i >= 32)), None, "its own, a little off");
    }
}
