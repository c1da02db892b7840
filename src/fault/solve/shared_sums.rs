//! Accumulators that several columns (or rows) share: an index that wraps too early. Each of them holds the sum of all.
//!
//! ```text
//! out[i, j] = s_a(i)·s_b(j) · Σ_{j' ≡ j mod d, in the p of j} Σ_k a·b of (i, j')          s: scales that multiply what is summed
//! ```
//!
//! Where scales are inside the sums, or there are none, sums are added as they are.

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// Lines that a tile has.
const PERIODS: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
/// Of how many columns an accumulator is.
const SHARES: [usize; 3] = [2, 4, 8];
/// Wrong elements that are looked at first, and those that decide.
const FIRST: usize = 3;
const LOOKS: usize = 24;
const LEAST: usize = 8;
/// Ways that are kept: a bound that is wider than the errors refuses hardly any, and each may have a number for every element.
const MOST: usize = 4;

/// Which accumulators are one.
#[derive(Clone, Copy)]
struct Way {
    by_cols: bool,
    period: usize,
    apart: usize,
    /// What is summed is multiplied by the scale of its own line afterwards.
    scaled_after: bool,
}

/// The lines that share an accumulator with `line`, of those of `all`.
fn sharing(way: Way, line: usize, all: &Range<usize>) -> impl Iterator<Item = usize> {
    let x = line - all.start;
    let (from, end) = (all.start + x / way.period * way.period + x % way.apart, all.end);
    let to = (all.start + (x / way.period + 1) * way.period).min(end);
    (from..to).step_by(way.apart)
}

/// The shortest of what explains the wrong elements.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone {
        return Vec::new();
    }
    let looks = s.wrong_probes(LOOKS);
    if looks.len() < LEAST {
        return Vec::new();
    }
    let sizes = LazyLock::new(|| Arc::new(parallel::numbers(s.rows * s.cols, |at| s.magnitude(at))));
    let mut all = Vec::new();
    for by_cols in [true, false] {
        let g = s.given(if by_cols { Which::B } else { Which::A });
        let lines = if by_cols { s.cols } else { s.rows };
        // One scale of a line can be multiplied last; without it both are the same.
        let after: &[bool] = if g.q.is_some() && g.grid.1 == 1 && g.grid.0 > 1 { &[true, false] } else { &[false] };
        for (period, shares) in PERIODS.into_iter().flat_map(|p| SHARES.map(|n| (p, n))) {
            // Of tiles that are larger than the result nothing is known.
            if period / shares == 0 || period / shares >= lines || period > 2 * lines {
                continue;
            }
            for scaled_after in after.iter().copied() {
                let way = Way { by_cols, period, apart: period / shares, scaled_after };
                let made = |n: &usize| fits(s, way, looks[*n]);
                if (0..FIRST).all(|n| made(&n)) && (FIRST..looks.len()).all(|n| made(&n)) {
                    all.push(theory(s, way, &sizes));
                }
                if all.len() == MOST {
                    return all;
                }
            }
        }
    }
    all
}

/// The lines of the operand that share nothing with those of other groups.
fn range(s: &System, way: Way, i: usize) -> Option<Range<usize>> {
    if way.by_cols { Some(0..s.cols) } else { Some(s.parts[s.part[i]?].rows.clone()) }
}

/// What an element is multiplied by last.
fn step(s: &System, way: Way, (i, j): (usize, usize)) -> f64 {
    let Some((a, b, ks)) = s.lines(i, j).filter(|_| way.scaled_after) else { return 1.0 };
    if way.by_cols { s.b.step(b, ks.start.min(s.k - 1)) } else { s.a.step(a, ks.start.min(s.k - 1)) }
}

/// Whether an element holds the sum of all that share its accumulator, and more than one do.
fn fits(s: &System, way: Way, (i, j): (usize, usize)) -> bool {
    let Some(all) = range(s, way, i) else { return false };
    let own = step(s, way, (i, j));
    let (mut sum, mut size, mut n) = (0.0, 0.0, 0);
    for x in sharing(way, if way.by_cols { j } else { i }, &all) {
        let (i, j) = if way.by_cols { (i, x) } else { (x, j) };
        let (at, by) = (i * s.cols + j, own / step(s, way, (i, j)));
        sum += (s.ideal[at] - s.bias.at(i, j)) * by;
        size += s.magnitude(at) * by.abs();
        n += 1;
    }
    n > 1 && sum.is_finite() && s.may(i, j, sum, size)
}

fn theory(s: &System, way: Way, sizes: &Arc<Vec<f64>>) -> Theory {
    let lines = if way.by_cols { "columns n" } else { "rows m" };
    let letter = if way.by_cols { 'n' } else { 'm' };
    let others: Vec<String> = (1..way.period / way.apart).map(|x| format!("{letter} + {}", x * way.apart)).collect();
    let scale = if way.scaled_after { ", each times its own scale" } else { "" };
    let words = format!(
        "accumulators are shared: {lines}, {} of every {} all hold the sum of their products{scale}",
        others.join(", "),
        way.period
    );
    let bits = 6.0 + cost(way.period) + cost(way.apart);
    let mut t = Theory::new(Class::AccState, "out", "out.shared_sums", words).bits(bits);
    let (rows, cols) = (s.rows, s.cols);
    let right = s.right_sums();
    let steps = way.scaled_after.then(|| parallel::numbers(rows * cols, |at| step(s, way, (at / cols, at % cols))));
    let (steps, sizes) = (move |at: usize| steps.as_ref().map_or(1.0, |s: &Vec<f64>| s[at]), sizes.clone());
    let ranges: Vec<Option<Range<usize>>> = (0..rows).map(|i| range(s, way, i)).collect();
    let (sums, bias) = (right.clone(), s.bias.clone());
    t.sums(right, cols, move |i, j| {
        let Some(all) = &ranges[i] else { return (sums[i * cols + j] + bias.at(i, j), sizes[i * cols + j]) };
        let own = steps(i * cols + j);
        let one = |x: usize| {
            let at = if way.by_cols { i * cols + x } else { x * cols + j };
            // An element by itself is as it is.
            let by = if at == i * cols + j { 1.0 } else { own / steps(at) };
            (sums[at] * by, sizes[at] * by.abs())
        };
        let (sum, size) =
            sharing(way, if way.by_cols { j } else { i }, all).map(one).fold((0.0, 0.0), |m, x| (m.0 + x.0, m.1 + x.1));
        (sum + bias.at(i, j), size)
    });
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, wide};
    use crate::job::Operand;

    const K: usize = 64;

    #[test]
    fn columns_that_share_an_accumulator_are_told() {
        let (m, n) = (24, 90);
        let (a, b) = (codes(Format::Int8, m, K, K, false, 91), codes(Format::Int8, n, K, K, false, 92));
        let step = |j: usize| f64::from(b.scale_inv()[j]);
        let of = |factor: &dyn Fn(usize) -> f64| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, right| {
                let all = (0..n).filter(|x| x / 32 == j / 32 && x % 16 == j % 16);
                all.map(|x| right[i * n + x] * if x == j { 1.0 } else { factor(j) / factor(x) }).sum()
            })
        };
        let got = of(&step);
        assert_eq!(got.0, "acc_state:out.shared_sums", "{}", got.1);
        let words = "columns n, n + 16 of every 32 all hold the sum of their products, each times its own scale";
        assert!(got.1.contains(words), "{}", got.1);
        // Scaled before they meet.
        let got = of(&|_| 1.0);
        assert!(got.0.ends_with("shared_sums") && got.1.ends_with("the sum of their products"), "{} {}", got.0, got.1);
        // By twice the scale of the other it is nobody's sum.
        let got = of(&|j| step(j) * (1.0 + (j % 7) as f64));
        assert!(!got.0.contains("shared_sums"), "{} {}", got.0, got.1);
    }

    #[test]
    fn rows_that_share_an_accumulator_are_told() {
        let (m, n) = (50, 40);
        let (a, b) = (wide(m, K), codes(Format::E4m3, n, K, K, false, 93));
        let got = found(&a, &b, None, Format::F32, |i, j, right| {
            (0..m).filter(|x| x / 32 == i / 32 && x % 8 == i % 8).map(|x| right[x * n + j]).sum()
        });
        assert_eq!(got.0, "acc_state:out.shared_sums", "{}", got.1);
        assert!(got.1.contains("rows m, m + 8, m + 16, m + 24 of every 32 all hold"), "{}", got.1);
    }
}
