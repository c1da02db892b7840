//! Which slice of b meets which slice of a: a stage of the pipeline that is read again, or too early.
//!
//! ```text
//! out[i, j] = Σ_s Σ_t C[s, t] · Σ_u a[i, s·w + u] · b[j, t·w + u]          C = identity in a right kernel
//! ```
//!
//! C is solved by least squares; where each row of it, or each column, has one 1 and nothing else, it is a map of slices.

use super::given::Given;
use super::linear::Normal;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Widths that are tried: the narrowest that leaves few enough unknowns.
const WIDTHS: [usize; 5] = [16, 32, 64, 128, 256];
/// Slices of K, at most.
const SLICES: usize = 24;
/// How far a coefficient may be from a whole number.
const NEAR: f64 = 0.2;
/// Equations beyond the unknowns after which a first look decides, and how far off, in half widths of what was written, most of them may be.
const MORE: usize = 64;
const FAR: f64 = 16.0;

/// The maps of slices of one operand that the result says, with its codes alone or with their scales.
pub fn theories(s: &System) -> Vec<Theory> {
    // As values; else as codes whose scales stay where they are.
    let blocks = |side: &Which| s.given(*side).grid.1 > 1;
    let held = [Which::A, Which::B].into_iter().filter(blocks).map(Some);
    std::iter::once(None).chain(held).map(|held| of_coefficients(s, held)).find(|t| !t.is_empty()).unwrap_or_default()
}

fn of_coefficients(s: &System, held: Option<Which>) -> Vec<Theory> {
    let Some((width, c)) = coefficients(s, held) else { return Vec::new() };
    let n = s.k.div_ceil(width);
    let one = |at: &dyn Fn(usize) -> f64| -> Option<usize> {
        let mut found = None;
        for t in 0..n {
            let x = at(t);
            if (x - 1.0).abs() < NEAR && found.is_none() {
                found = Some(t);
            } else if x.abs() >= NEAR {
                return None;
            }
        }
        found
    };
    let of_b: Option<Vec<usize>> = (0..n).map(|s| one(&|t| c[s * n + t])).collect();
    let of_a: Option<Vec<usize>> = (0..n).map(|t| one(&|s| c[s * n + t])).collect();
    let mut all = Vec::new();
    for (side, map) in [(Which::B, of_b), (Which::A, of_a)] {
        if let Some(map) = map.filter(|m| m.iter().enumerate().any(|(x, y)| x != *y)) {
            all.extend(of_map(s, side, width, &map));
        }
    }
    all
}

fn of_map(s: &System, side: Which, width: usize, map: &[usize]) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let mut sorted = map.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let class = if sorted.len() == map.len() {
        Class::PackPermute
    } else if s.region.as_ref().is_some_and(|r| !r.tiles.is_empty()) {
        Class::Race
    } else {
        Class::AccState
    };
    let last = |x: usize| s.k.min((x + 1) * width) - 1;
    let moved: Vec<usize> = (0..map.len()).filter(|x| map[*x] != *x).collect();
    let some: Vec<String> = moved
        .iter()
        .take(4)
        .map(|x| format!("for K {} … {} that of {} … {}", x * width, last(*x), map[*x] * width, last(map[*x])))
        .collect();
    let more = if moved.len() > 4 { ", …" } else { "" };
    let words = format!("{name} is read from another stage: {}{more}", some.join(", "));
    let bits = 6.0 + 3.0 * (moved.len() as f64).log2().max(0.0) + if class == Class::PackPermute { 6.0 } else { 0.0 };
    let (map, k_all) = (map.to_vec(), s.k);
    let to = Arc::new(move |k: usize| (map[k / width] * width + k % width).min(k_all - 1));
    let mut all = Vec::new();
    let theory = |words: String| Theory::new(class, name, format!("{name}.stage"), words).bits(bits);
    if g.q.is_some() {
        let mut t = theory(format!("{words} (codes, not their scales)"));
        let to = to.clone();
        t.side(side).code = Some(Arc::new(move |i, k| Some(i * k_all + to(k))));
        all.push(t);
    }
    let values = g.values.clone();
    let mut t = theory(words);
    t.side(side).value = Some(Arc::new(move |i, k| values[i * k_all + to(k)]));
    all.push(t);
    all
}

/// The code at k of a row, with the scale and zero point of another k.
fn scaled(g: &Given, i: usize, k: usize, at: usize) -> f64 {
    let Some(q) = &g.q else { return g.values[i * g.k + k] };
    g.decoded(q.codes()[i * g.k + k], i / g.tile.0 * g.grid.1 + at / g.tile.1)
}

/// The width of slices and C, row-major. The codes of `held` are scaled as those of the slice in whose place they are read.
fn coefficients(s: &System, held: Option<Which>) -> Option<(usize, Vec<f64>)> {
    if s.alone || s.parts.len() != 1 || s.k < 32 {
        return None;
    }
    let mut places: Vec<(usize, usize)> = (0..s.rows * s.cols)
        .filter(|at| s.actual[*at].is_finite())
        .map(|at| (at / s.cols, at % s.cols))
        .filter(|(i, j)| s.region.as_ref().is_none_or(|r| r.has(*i, *j)))
        .collect();
    let slices = |w: usize| s.k.div_ceil(w);
    let enough = |w: &usize| slices(*w) > 1 && slices(*w) <= SLICES && 3 * slices(*w).pow(2) <= 2 * places.len();
    let width = WIDTHS.into_iter().find(enough)?;
    let n = slices(width);
    spread(&mut places, 3 * n * n + 64);
    let mut system = Normal::new(n * n);
    let mut checks = Vec::new();
    let mut row = vec![0.0; n * n];
    for (nth, (i, j)) in places.iter().enumerate() {
        let (ra, rb, _) = s.lines(*i, *j)?;
        let (a, b) = (&s.a.values[ra * s.k..(ra + 1) * s.k], &s.b.values[rb * s.k..(rb + 1) * s.k]);
        for (x, a) in a.chunks(width).enumerate() {
            for (y, b) in b.chunks(width).enumerate() {
                let product = |u: usize| match held {
                    None => a[u] * b[u],
                    Some(Which::A) => scaled(&s.a, ra, x * width + u, y * width + u) * b[u],
                    Some(Which::B) => a[u] * scaled(&s.b, rb, y * width + u, x * width + u),
                };
                row[x * n + y] = (0..a.len().min(b.len())).map(product).sum();
            }
        }
        let size: f64 = a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum();
        let Some((y, half)) = s.written(*i, *j, size) else { continue };
        system.add(&row, y, 1.0 / (half * half));
        if nth < 32 {
            checks.push((row.clone(), y, half));
        }
        // What no coefficients make, whole or not, is not of this kind: a few more equations than unknowns say so.
        if nth + 1 == n * n + MORE && nth + 1 < places.len() {
            let c = system.clone().solve()?;
            let far = |(row, y, half): &&(Vec<f64>, f64, f64)| {
                let sum: f64 = row.iter().zip(&c).map(|(x, c)| x * c).sum();
                (sum - y).abs() > FAR * half
            };
            (2 * checks.iter().filter(far).count() <= checks.len()).then_some(())?;
        }
    }
    let c = system.solve()?;
    // What whole numbers do not make is not of this kind.
    let whole: Vec<f64> = c.iter().map(|x| x.round()).collect();
    let fits = |(row, y, half): &(Vec<f64>, f64, f64)| {
        let sum: f64 = row.iter().zip(&whole).map(|(x, c)| x * c).sum();
        (sum - y).abs() <= 4.0 * half
    };
    (checks.len() >= 8 && checks.iter().all(fits)).then_some((width, c))
}
