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

/// Whether so many of all signs agree as do of values and codes that have nothing to do with each other.
pub fn by_chance(same: usize, all: usize) -> bool {
    let half = 0.5 * all as f64;
    all >= SIGNS && (same as f64 - half).abs() <= SIGMAS * (0.5 * half).sqrt()
}

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
    let same = told.iter().filter(|s| **s).count();
    by_chance(same, told.len()).then(|| {
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
pub mod tests {
    use super::*;
    use crate::Format;
    use crate::recipe::Recipe;

    /// Values of any sign, −1 to 1.
    pub fn values(seed: u32, rows: usize, cols: usize) -> Tensor {
        let mut word = seed;
        let mut next = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(word >> 8) / 8_388_608.0 - 1.0
        };
        Tensor::rounded(Format::Bf16, rows, cols, (0..rows * cols).map(|_| next() as f32).collect()).unwrap()
    }

    #[test]
    fn last_lines_of_another_tensor_are_told() {
        let (x, old) = (values(1, 40, 96), values(2, 40, 96));
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

    /// A tensor of threes and a cast of it by these scales: the codes are these of 1 and 0.
    fn cast(
        rows: usize,
        cols: usize,
        granularity: Granularity,
        scales: Vec<f32>,
        code: impl Fn(usize, usize) -> u8,
    ) -> (Tensor, QTensor) {
        let x = Tensor::new(Format::F32, rows, cols, vec![3.0; rows * cols]).unwrap();
        let parts = crate::quant::QTensorParts {
            format: Format::E4m3,
            rows,
            cols,
            codes: (0..rows * cols).map(|at| code(at / cols, at % cols)).collect(),
            granularity,
            scale_format: Format::F32,
            scale_inv: scales,
            zero: crate::Zero::None,
            level: None,
        };
        (x, QTensor::new(parts).unwrap())
    }

    #[test]
    fn last_lines_of_zeros_are_taken_off() {
        let row_scales: Vec<f32> = (0..10).map(|i| 1.0 + i as f32 / 8.0).collect();
        let of = |blank: &dyn Fn(usize, usize) -> bool| {
            let code = |i: usize, j: usize| if blank(i, j) { 0x80 * (j % 2) as u8 } else { 0x38 + (i + j) as u8 };
            let (x, q) = cast(10, 20, Granularity::Row, row_scales.clone(), code);
            without(&x, &q).map(|(x, q, words)| {
                let (rows, cols) = (q.rows(), q.cols());
                assert_eq!((x.rows(), x.cols(), q.scale_inv()), (rows, cols, &row_scales[..rows]));
                assert!((0..rows * cols).all(|at| q.codes()[at] == 0x38 + (at / cols + at % cols) as u8));
                words
            })
        };
        let words =
            |n: usize, of: usize, what: &str| Some(format!("the last {n} of {of} {what} are not written: their codes are 0"));
        assert_eq!(of(&|_, j| j >= 17), words(3, 20, "columns"));
        assert_eq!(of(&|i, _| i >= 8), words(2, 10, "rows"));
        assert_eq!(of(&|_, j| j >= 11), words(9, 20, "columns"));
        assert_eq!(of(&|i, _| i >= 6), words(4, 10, "rows"));
        assert_eq!(of(&|_, j| j >= 10), None, "half of the columns");
        assert_eq!(of(&|i, _| i >= 5), None, "half of the rows");
        assert_eq!(of(&|i, j| i >= 8 || j >= 17), None, "rows and columns");
        assert_eq!(of(&|i, j| i < 2 || j < 3), None, "the first");
        assert_eq!(of(&|i, j| j >= 17 && i != 4), None, "one of them is written");
        assert_eq!(of(&|_, _| false), None);
    }

    /// Eight values beyond one step of their scale tell that codes of 0 are wrong.
    #[test]
    fn zeros_of_small_values_may_be_right() {
        let of = |large: usize, small: f32, granularity: Granularity| {
            let (x, q) = cast(10, 20, granularity, vec![2.0], |_, j| if j < 19 { 0x38 } else { 0 });
            let value = |at: usize| if at % 20 < 19 || at / 20 < large { 2.1 } else { small };
            let x = Tensor::new(x.dtype(), 10, 20, (0..200).map(value).collect()).unwrap();
            without(&x, &q).is_some()
        };
        assert_eq!([7, 8, 10].map(|n| of(n, 2.0, Granularity::Tensor)), [false, true, true]);
        assert!(of(7, -2.1, Granularity::Tensor) && !of(7, -2.0, Granularity::Tensor));
        let (x, q) = cast(10, 20, Granularity::Group(20), vec![2.0; 10], |_, j| if j < 19 { 0x38 } else { 0 });
        assert!(without(&x, &q).is_none(), "scales along K");
    }

    /// 64 signs, of which half agree but for four deviations of four each.
    #[test]
    fn signs_tell_whether_codes_are_of_their_values() {
        let of = |told: usize, same: usize, from: usize| {
            // Of the lines from `from` on, in an order that skips none: 1 with the right sign, −1, then zeros.
            let code = |i: usize, j: usize| match (i * 96 + j).checked_sub(from * 96) {
                None => 0x44,
                Some(n) if n < same => 0x38,
                Some(n) if n < told => 0xb8,
                Some(_) => 0,
            };
            let (x, q) = cast(40, 96, Granularity::Row, vec![1.0; 40], code);
            foreign(&x, &q).map(|f| f.2)
        };
        let words = of(64, 32, 32).unwrap();
        assert!(words.starts_with("the last 8 of 40 rows") && words.contains("(32 of 64 signs agree)"), "{words}");
        assert_eq!([63, 64].map(|n| of(n, 31, 32).is_some()), [false, true]);
        assert_eq!([15, 16, 48, 49].map(|same| of(64, same, 32).is_some()), [false, true, true, false]);
        assert_eq!([24, 31, 33].map(|from| of(96, 48, from).is_some()), [false; 3], "no tile ends there");
    }

    /// e4m3 has 3 and 3.25. A value 2⁻²¹ of itself beside 3.125 may become either, one 2⁻¹⁹ beside it only the nearer.
    #[test]
    fn codes_of_values_beside_a_tie_are_right_either_way() {
        let of = |off: f64, first: u8| {
            let code = |i: usize, j: usize| match (i * 96 + j).checked_sub(32 * 96) {
                None if (i, j) == (0, 0) => first,
                None => 0x44,
                Some(n) => 0x38 | (n as u8 & 1) << 7,
            };
            let (_, q) = cast(40, 96, Granularity::Row, vec![1.0; 40], code);
            let value = |at: usize| if at == 0 { (3.125 * (1.0 + off)) as f32 } else { 3.0 };
            foreign(&Tensor::new(Format::F32, 40, 96, (0..40 * 96).map(value).collect()).unwrap(), &q).is_some()
        };
        let (near, far) = (2f64.powi(-21), 2f64.powi(-19));
        assert!(of(-near, 0x44) && of(-near, 0x45) && of(near, 0x44) && of(near, 0x45));
        assert!(of(-far, 0x44) && !of(-far, 0x45) && !of(far, 0x44) && of(far, 0x45));
    }
}
