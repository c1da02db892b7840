//! Theories of a last step of K that is not masked. Behind a row, one operand has its next row and the other has numbers that nobody knows. These
//! are solved, row by row, and have to fit every element.
//!
//! ```text
//! out[i, j] − right = Σ_{t < T} g(i, t) · B_next(j, t)        g: what lies behind row i of a; the same with a and b exchanged
//! ```

use super::linear::Normal;
use super::maps::cost;
use super::system::{Past, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// Steps of K that kernels take.
const STEPS: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
/// Equations that a line has more than unknowns, at least, and for each unknown, of all lines together; multiply-adds of one way.
const MORE: usize = 12;
const EQUATIONS: usize = 2;
const WORK: usize = 1 << 30;
/// Half of what is wrong is off by so many times what rounding explains, at least.
const FAR: f64 = 8.0;
/// Lines that are solved first.
const FIRST: usize = 3;

/// The first way that fits every line.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let mut steps: Vec<usize> = STEPS.iter().map(|m| s.k.next_multiple_of(*m) - s.k).filter(|by| *by > 0).collect();
    steps.dedup();
    let ways = steps.into_iter().flat_map(|by| {
        [Which::A, Which::B].into_iter().flat_map(move |w| [Past::Next, Past::NextScaled].map(move |past| (by, w, past)))
    });
    ways.filter_map(|(by, unknown, past)| of(s, by, unknown, past)).take(1).collect()
}

/// What the rows of one operand, its `unknown`, hold behind their end if the other's next rows are read there.
fn of(s: &System, by: usize, unknown: Which, past: Past) -> Option<Theory> {
    let known = s.given(unknown.other());
    let (lines, others) = if unknown == Which::A { (s.rows, s.cols) } else { (s.cols, s.rows) };
    // Behind the last row of the other operand nobody knows either.
    let others = others.checked_sub(1)?;
    (others >= by + MORE && lines * others * by * by <= WORK).then_some(())?;
    let place = move |x: usize, y: usize| if unknown == Which::A { (x, y) } else { (y, x) };
    let cols = s.cols;
    let wrong: Vec<usize> =
        (0..lines).filter(|x| (0..others).any(|y| s.is_wrong[place(*x, y).0 * cols + place(*x, y).1])).collect();
    // What lines say beyond their unknowns.
    (wrong.len() * (others - by) >= EQUATIONS * by).then_some(())?;
    let next: Vec<Vec<f64>> = (0..others).map(|y| (0..by).map(|t| known.past(past, y, s.k + t)).collect()).collect();
    let solve = |x: usize| -> Option<Vec<f64>> {
        let wrong = (0..others).any(|y| {
            let (i, j) = place(x, y);
            s.is_wrong[i * cols + j]
        });
        if !wrong {
            return Some(vec![0.0; by]);
        }
        let mut normal = Normal::new(by);
        let mut equations = Vec::new();
        for (y, next) in next.iter().enumerate() {
            let (i, j) = place(x, y);
            let at = i * cols + j;
            let Some((sum, half)) = s.written(i, j, 0.0) else { continue };
            let (more, r) = (sum - (s.ideal[at] - s.bias.at(i, j)), half + s.certain(at));
            // What is 0 there says nothing.
            if next.iter().all(|x| *x == 0.0) {
                continue;
            }
            normal.add(next, more, 1.0 / (r * r));
            equations.push((next, more, r));
        }
        (equations.len() >= by + MORE).then_some(())?;
        let g = normal.solve()?;
        let fits = |(next, more, r): &(&Vec<f64>, f64, f64)| {
            let made: f64 = next.iter().zip(&g).map(|(x, g)| x * g).sum();
            (more - made).abs() <= 2.0 * r
        };
        equations.iter().all(fits).then_some(g)
    };
    // What is hardly more than rounding fits any numbers.
    let far = |x: usize, y: usize| {
        let (i, j) = place(x, y);
        let at = i * cols + j;
        let Some((sum, half)) = s.written(i, j, 0.0) else { return false };
        (sum - (s.ideal[at] - s.bias.at(i, j))).abs() >= FAR * (half + s.certain(at))
    };
    let (mut all, mut large) = (0, 0);
    for x in &wrong {
        for y in (0..others).filter(|y| s.is_wrong[place(*x, *y).0 * cols + place(*x, *y).1]) {
            (all, large) = (all + 1, large + usize::from(far(*x, y)));
        }
    }
    (2 * large >= all).then_some(())?;
    for at in 0..FIRST.min(wrong.len()) {
        solve(wrong[at * (wrong.len() - 1) / FIRST.min(wrong.len()).max(1)])?;
    }
    let g: Vec<Vec<f64>> = parallel::every(lines, solve)?;
    let (name, other) = (unknown.name(), unknown.other().name());
    let scaled = if past == Past::NextScaled { ", with its scales" } else { "" };
    let words = format!(
        "the last step of K is not masked: {by} more columns are summed, of {other} the start of its next row{scaled}, of {name} whatever lies behind its rows"
    );
    let mut t = Theory::new(Class::KTail, name, "k.behind", words).bits(48.0 + cost(by));
    t.fitted = true;
    t.freedom = by * wrong.len();
    // Solved numbers err as what was written is rounded.
    let near: Vec<f64> = (0..s.rows * cols)
        .map(|at| {
            s.written(at / cols, at % cols, 0.0).map_or(0.0, |(_, half)| 2.0 * (half + s.certain(at)) / s.relative.max(1e-300))
        })
        .collect();
    t.size = Some(Arc::new(move |i, j| near[i * cols + j]));
    let (bias, rest) = (s.bias.clone(), s.actual.iter().zip(&*s.ideal).map(|(x, d)| x - d).collect::<Vec<f64>>());
    t.finish = Some(Arc::new(move |i, j, v| {
        let (x, y) = place(i, j);
        let more = match next.get(y) {
            Some(next) => next.iter().zip(&g[x]).map(|(x, g)| x * g).sum(),
            None => rest[i * cols + j],
        };
        v + more + bias.at(i, j)
    }));
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, noise, sum, wide};

    /// Fewer equations than twice the numbers that are solved: all lines together say enough.
    #[test]
    fn numbers_behind_rows_that_meet_the_next_weights_are_told() {
        const K: usize = 40;
        let n = 60;
        let (a, b) = (wide(M, K), codes(Format::Int8, n, K, 8, false, 87));
        let (x, y) = (a.to_f64(), b.dequantize());
        let stale = |i: usize, t: usize| 2.0 * noise(40_000 + i * 24 + t) - 1.0;
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let on = |t: usize| if j + 1 < n { stale(i, t) * y[[j + 1, t]] } else { 0.0 };
            sum(K, |k| x[[i, k]] * y[[j, k]]) + sum(24, on)
        });
        assert_eq!(got.0, "k_tail:k.behind", "{}", got.1);
        assert!(got.1.contains("24 more columns are summed, of b the start of its next row, with its scales"), "{}", got.1);
    }
}
