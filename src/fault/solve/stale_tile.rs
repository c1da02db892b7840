//! Lines of an operand that are never loaded: in every block of K they hold the same numbers, which lay in the tile before. What these are is
//! solved, line by line, and has to fit more elements than there are numbers.
//!
//! ```text
//! out[i, j] = s(i) · Σ_{t < T} u(i, t) · Σ_{k mod T = t} B(j, k)          u: codes, the same for all blocks of T; a and b exchanged too
//! ```
//!
//! For lines with few elements more than numbers: with many, `held` says it first.

use super::linear::Normal;
use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// Blocks of K, the narrowest first.
const WIDTHS: [usize; 5] = [16, 32, 64, 128, 256];
/// Equations beyond the unknowns of a line, at least, and of all lines together.
const MORE: usize = 8;
const SURPLUS: usize = 96;
/// Lines that refuse a width before all are solved; multiply-adds at most.
const FIRST: usize = 3;
const WORK: usize = 1 << 29;
/// Errors over what an element may be off: less tells nothing. Their share of the elements of wrong lines.
const TELLS: f64 = 8.0;
/// How far the numbers of two lines that are the same may be apart, of their squares.
const ALIKE: f64 = 1.0 / 16.0;

/// Of a, and of b.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    [Which::A, Which::B].into_iter().filter_map(|side| of(s, side)).collect()
}

fn of(s: &System, side: Which) -> Option<Theory> {
    let (lines, across) = if side == Which::A { (s.rows, s.cols) } else { (s.cols, s.rows) };
    let at = |line: usize, x: usize| if side == Which::A { line * s.cols + x } else { x * s.cols + line };
    // A line that holds others' numbers is wrong nearly all along.
    let far = |at: usize| {
        let half = s.certain(at) + s.out.spacing(at, s.actual[at]);
        s.is_wrong[at] && (s.actual[at] - s.ideal[at]).abs() > TELLS * half
    };
    let wrong: Vec<usize> = (0..lines).filter(|l| (0..across).any(|x| s.is_wrong[at(*l, x)])).collect();
    let all_along = |l: &&usize| 4 * (0..across).filter(|x| far(at(**l, *x))).count() > 3 * across;
    (wrong.len() >= 2 && wrong.len() < lines && wrong.iter().filter(all_along).count() == wrong.len()).then_some(())?;
    let fits = |width: &usize| {
        let enough = across >= width + MORE && wrong.len() * (across - width) >= SURPLUS && 2 * width <= s.k;
        let cheap = wrong.len().saturating_mul(across.min(3 * width + 32) * (width * width / 2 + s.k)) <= WORK;
        let few = || (0..FIRST).map(|n| wrong[n * (wrong.len() - 1) / (FIRST - 1)]);
        enough && cheap && few().all(|l| line(s, side, l, *width, across).is_some())
    };
    let width = WIDTHS.into_iter().find(fits)?;
    let solved: Vec<Vec<f64>> = parallel::every(wrong.len(), |n| line(s, side, wrong[n], width, across))?;
    // Zeros have a name of their own.
    let size = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
    solved.iter().all(|v| size(v) > 0.0).then_some(())?;
    Some(theory(s, side, &wrong, solved, width))
}

/// The numbers of one line. `None`: too few equations, or they contradict each other.
fn line(s: &System, side: Which, line: usize, width: usize, across: usize) -> Option<Vec<f64>> {
    let (g, other) = (s.given(side), s.given(side.other()));
    let mut places: Vec<usize> = (0..across).collect();
    spread(&mut places, 3 * width + 32);
    let steps: Vec<f64> = (0..s.k).map(|k| g.step(line, k)).collect();
    let mut system = Normal::new(width);
    let mut rows: Vec<(Vec<f64>, f64, f64)> = Vec::new();
    for y in places {
        let (i, j) = if side == Which::A { (line, y) } else { (y, line) };
        let Some((written, half)) = s.written(i, j, 0.0) else { continue };
        let half = half + s.certain(i * s.cols + j);
        let mut x = vec![0.0; width];
        let with = &other.values[y * s.k..(y + 1) * s.k];
        with.iter().zip(&steps).enumerate().for_each(|(k, (v, step))| x[k % width] += v * step);
        if x.iter().all(|x| *x == 0.0) {
            continue;
        }
        system.add(&x, written, 1.0 / (half * half));
        rows.push((x, written, half));
    }
    (rows.len() >= width + MORE).then_some(())?;
    let v = system.solve()?;
    let fits = |(x, y, half): &(Vec<f64>, f64, f64)| {
        let sum: f64 = x.iter().zip(&v).map(|(x, v)| x * v).sum();
        (sum - y).abs() <= 1.5 * half
    };
    rows.iter().all(fits).then_some(v)
}

/// How many lines apart the wrong ones are the same again: `None`, they are not.
fn period(lines: usize, wrong: &[usize], solved: &[Vec<f64>]) -> Option<usize> {
    let is = |x: usize| wrong.binary_search(&x).ok();
    let alike = |x: &[f64], y: &[f64]| {
        let (apart, size) = x.iter().zip(y).fold((0.0, 0.0), |(d, n), (x, y)| (d + (x - y).powi(2), n + x * x + y * y));
        apart <= ALIKE * size
    };
    (2..lines).find(|p| {
        let both = (0..lines - p).filter_map(|x| is(x).zip(is(x + p)));
        let steady = (0..lines - p).all(|x| is(x).is_some() == is(x + p).is_some());
        steady && both.clone().count() > 0 && { both }.all(|(x, y)| alike(&solved[x], &solved[y]))
    })
}

fn theory(s: &System, side: Which, wrong: &[usize], solved: Vec<Vec<f64>>, width: usize) -> Theory {
    let (g, name) = (s.given(side), side.name());
    let lines = if side == Which::A { s.rows } else { s.cols };
    let again = period(lines, wrong, &solved);
    let some: Vec<usize> = wrong.iter().copied().filter(|x| again.is_none_or(|p| *x < p)).collect();
    let runs = |v: &[usize]| -> String {
        let mut all: Vec<(usize, usize)> = Vec::new();
        for x in v {
            match all.last_mut() {
                Some(r) if r.1 + 1 == *x => r.1 = *x,
                _ => all.push((*x, *x)),
            }
        }
        let said = all.iter().take(4).map(|(a, b)| if a == b { a.to_string() } else { format!("{a} … {b}") });
        said.collect::<Vec<_>>().join(", ") + if all.len() > 4 { ", …" } else { "" }
    };
    let which = match again {
        Some(p) => format!("rows {} of every {p}", runs(&some)),
        None => format!("rows {}", runs(&some)),
    };
    let same = if again.is_some() { ", the same ones in every tile" } else { "" };
    let what = if g.q.is_some() { "codes" } else { "numbers" };
    let words = format!(
        "{which} of {name} hold the same {width} {what} in every block of {width} of K, none of those given{same}: they are never loaded, and what lay there before is multiplied"
    );
    let mut t = Theory::new(Class::Race, name, format!("{name}.never_loaded"), words).bits(56.0 + cost(width));
    (t.fitted, t.freedom) = (true, width * some.len());
    let mut held: Vec<Option<Vec<f64>>> = vec![None; g.rows];
    wrong.iter().zip(solved).for_each(|(x, v)| held[*x] = Some(v));
    let given = g.clone();
    t.side(side).value = Some(Arc::new(move |i, k| match &held[i] {
        Some(v) => v[k % width] * given.step(i, k),
        None => given.values[i * given.k + k],
    }));
    // Solved numbers err as what was written is rounded.
    let near = (0..s.rows * s.cols).filter(|at| s.is_wrong[*at]).filter_map(|at| {
        let (y, half) = s.written(at / s.cols, at % s.cols, 0.0)?;
        Some(2.0 * (half + s.certain(at)) / y.abs().max(s.magnitude(at) / 16.0).max(1e-300))
    });
    let mut near: Vec<f64> = near.filter(|x| x.is_finite()).collect();
    near.sort_by(f64::total_cmp);
    t.slack = near.get(near.len() / 2).copied().unwrap_or(0.0).min(0.02);
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, sum};
    use crate::job::Operand;

    const M: usize = 40;
    /// Too few columns for what asks one and a half of them for each number.
    const N: usize = 46;
    const K: usize = 160;

    fn of(held: impl Fn(usize, usize) -> Option<(usize, usize)>) -> (String, String) {
        let (a, b) = (codes(Format::E4m3, M, K, K, false, 61), codes(Format::Int8, N, K, K, false, 62));
        let (x, y, old) = (a.dequantize(), b.dequantize(), codes(Format::E4m3, M, K, K, false, 63));
        let value = |i: usize, k: usize| match held(i, k) {
            Some((r, c)) => Format::E4m3.decode(u32::from(old.codes()[r * K + c])) * f64::from(a.scale_inv()[i]),
            None => x[[i, k]],
        };
        found(&Operand::Quantized(a.clone()), &b, None, Format::Bf16, |i, j, _| sum(K, |k| value(i, k) * y[[j, k]]))
    }

    #[test]
    fn rows_of_a_tile_that_are_never_loaded_are_told() {
        let got = of(|i, k| (i % 16 >= 12).then_some((i % 16, k % 32)));
        assert_eq!(got.0, "race:a.never_loaded", "{}", got.1);
        assert!(got.1.contains("rows 12 … 15 of every 16 of a hold the same 32 codes in every block of 32 of K"), "{}", got.1);
    }

    #[test]
    fn rows_that_hold_other_numbers_in_every_block_are_not_called_so() {
        let got = of(|i, k| (i % 16 >= 12).then_some((i, k)));
        assert!(!got.0.contains("never_loaded"), "{} {}", got.0, got.1);
    }
}
