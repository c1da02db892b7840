//! Results that are added to what an earlier step left in their buffer, which nobody cleared: a product of other rows with the same weights.
//!
//! ```text
//! out − right = X·Wᵀ, X unknown:   columns of it are as alike as rows of W are; it has nothing to do with the right sums, nor with the rows of a
//! ```
//!
//! Where N is not larger than K, any row is some X·Wᵀ: likenesses of columns tell it, at a stated rate of chance. That the right result is in it tells its
//! slope: the least squares of out on right are 1 to chance. What is like neither operand is not named here: noise is such, too.

use super::system::{Region, System, Theory};
use super::theory::as_written;
use super::unrelated::{Likeness, blocks};
use crate::fault::Class;

/// Wrong elements, at least, and one in so many that may be right.
const LEAST: usize = 512;
const FEW: usize = 16;
/// What is added, over the right result, at least and at most.
const SIZE: std::ops::Range<f64> = 0.2..5.0;
/// Standard deviations of chance that the slope may be off 1, and how well it has to be known.
const CHANCE: f64 = 3.5;
const KNOWN: f64 = 0.06;

/// The name for what no theory explains, of a whole result.
pub fn theory(s: &System) -> Option<Theory> {
    let n = s.rows * s.cols;
    let wrong = s.is_wrong.iter().filter(|w| **w).count();
    (!s.alone && s.region.is_none() && wrong >= LEAST && FEW * (n - wrong) <= n && s.parts.iter().all(|p| p.k.len() == s.k))
        .then_some(())?;
    let rows: Vec<usize> = (0..s.rows).filter(|i| s.part[*i].is_some()).collect();
    let places = || rows.iter().flat_map(|i| (0..s.cols).map(move |j| i * s.cols + j));
    let right = |at: usize| s.ideal[at] - s.bias.at(at / s.cols, at % s.cols);
    let added = |at: usize| s.actual[at] - s.ideal[at];
    let dot = |x: &dyn Fn(usize) -> f64, y: &dyn Fn(usize) -> f64| places().map(|at| x(at) * y(at)).sum::<f64>();
    let (xx, dd, xd) = (dot(&right, &right), dot(&added, &added), dot(&right, &added));
    // NaN fails.
    SIZE.contains(&(dd / xx).sqrt()).then_some(())?;
    // Of rows and columns of other sizes fewer numbers decide.
    let error = places().map(|at| (right(at) * added(at)).powi(2)).sum::<f64>().sqrt() / xx;
    (error <= KNOWN && (xd / xx).abs() <= CHANCE * error).then_some(())?;
    let whole = Region { rows: vec![true; s.rows], cols: vec![true; s.cols], tiles: Vec::new(), words: String::new() };
    let like = Likeness::of(s, &blocks(s, &whole), &added)?;
    (like.of_b && !like.of_a && !like.of_right).then_some(())?;
    let words = "beside the right sums stands a product of other rows with these weights, of the size of the result: it is added to what an earlier step \
                 left in its buffer, which is not cleared";
    let mut t = Theory::new(Class::AccState, "out", "out.leftover", words).bits(65.0);
    t.finish = Some(as_written(s));
    t.fitted = true;
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, grouped_found, noise, sum, wide};

    const K: usize = 96;

    fn other(i: usize, k: usize) -> f64 {
        2.0 * (noise(700_000 + i * K + k) - 0.5)
    }

    #[test]
    fn the_step_before_beside_the_right_result_is_told() {
        let (m, n) = (60, 40);
        let (a, b) = (wide(m, K), codes(Format::Int8, n, K, K, false, 301));
        let (x, y) = (a.to_f64(), b.dequantize());
        let got = found(&a, &b, None, Format::F32, |i, j, right| right[i * n + j] + sum(K, |k| other(i, k) * y[[j, k]]));
        assert_eq!(got.0, "acc_state:out.leftover", "{}", got.1);
        assert!(got.1.contains("a product of other rows with these weights"), "{}", got.1);
        // Of another size than the result is, of other weights, and noise: not told.
        let tiny =
            found(&a, &b, None, Format::F32, |i, j, right| right[i * n + j] + sum(K, |k| 0.02 * other(i, k) * y[[j, k]]));
        let weights = |j: usize, k: usize| 0.02 * (noise(5_000_000 + j * K + k) - 0.5);
        let own =
            found(&a, &b, None, Format::F32, |i, j, right| right[i * n + j] + sum(K, |k| 40.0 * x[[i, k]] * weights(j, k)));
        let any = found(&a, &b, None, Format::F32, |i, j, right| right[i * n + j] + 9.0 * (noise(31 * (i * n + j) + 5) - 0.5));
        // Instead of it, not beside it.
        let instead = found(&a, &b, None, Format::F32, |i, j, _| sum(K, |k| other(i, k) * y[[j, k]]));
        for got in [tiny, own, any, instead] {
            assert!(!got.0.contains("leftover"), "{} {}", got.0, got.1);
        }
    }

    /// Groups of the step before end elsewhere.
    #[test]
    fn the_step_before_of_other_groups_is_told() {
        let (n, ends, before) = (40, [30usize, 52, 90], [22usize, 60, 90]);
        let (a, b) = (wide(90, K), codes(Format::E4m3, 3 * n, K, K, false, 302));
        let (x, y) = (a.to_f64(), b.dequantize());
        let got = grouped_found(&a, &b, &ends, Format::F32, |i, j| {
            let of = |ends: &[usize]| ends.iter().filter(|end| **end <= i).count() * n + j;
            sum(K, |k| x[[i, k]] * y[[of(&ends), k]] + other(i, k) * y[[of(&before), k]])
        });
        assert_eq!(got.0, "acc_state:out.leftover", "{}", got.1);
    }
}
