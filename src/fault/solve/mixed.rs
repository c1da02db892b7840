//! Which code of a block of K meets which of the other operand: lanes that are read in an order no formula has, left out, or counted with a sign.
//!
//! ```text
//! out[i, j] = Σ_blocks Σ_u Σ_v C[u, v] · a[i, w·block + u] · b[j, w·block + v]          C = identity in a right kernel
//! ```

use super::linear::Normal;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Widths of blocks, the narrowest first.
const WIDTHS: [usize; 4] = [2, 4, 8, 16];
/// How far a coefficient may be from the number it is.
const NEAR: f64 = 0.15;

/// The order of lanes that the result says, of the narrowest block that has one.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || (s.a.q.is_none() && s.b.q.is_none()) {
        return Vec::new();
    }
    WIDTHS
        .into_iter()
        .filter(|w| s.k.is_multiple_of(*w) && s.k > *w)
        .map(|w| of_width(s, w))
        .find(|t| !t.is_empty())
        .unwrap_or_default()
}

fn of_width(s: &System, width: usize) -> Vec<Theory> {
    let Some(c) = coefficients(s, width) else { return Vec::new() };
    let whole: Vec<f64> = c.iter().map(|x| x.round()).collect();
    let near = c.iter().zip(&whole).all(|(x, r)| (x - r).abs() < NEAR && r.abs() <= 2.0);
    let identity = |x: usize| if x / width == x % width { 1.0 } else { 0.0 };
    if !near || (0..whole.len()).all(|x| whole[x] == identity(x)) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for side in [Which::B, Which::A] {
        let g = s.given(side);
        if g.q.is_none() {
            continue;
        }
        // Row u: what this side reads where the other's lane u is.
        let lane = |u: usize, v: usize| if side == Which::B { whole[u * width + v] } else { whole[v * width + u] };
        let source = |u: usize| -> Option<usize> {
            let of: Vec<usize> = (0..width).filter(|v| lane(u, *v) != 0.0).collect();
            (of.len() == 1 && lane(u, of[0]) == 1.0).then(|| of[0])
        };
        let name = side.name();
        let map: Option<Vec<usize>> = (0..width).map(source).collect();
        let mut t = match map {
            Some(map) => {
                let some: Vec<String> = map.iter().map(ToString::to_string).collect();
                let words = format!("codes of {name} are read in another order: every {width} of K as {}", some.join(", "));
                Theory::new(Class::PackPermute, name, format!("{name}.k_lanes"), words)
            }
            None => {
                let some: Vec<String> = (0..width)
                    .filter(|u| source(*u) != Some(*u))
                    .take(4)
                    .map(|u| {
                        let terms: Vec<String> =
                            (0..width).filter(|v| lane(u, *v) != 0.0).map(|v| format!("{:+}·lane {v}", lane(u, v))).collect();
                        format!("lane {u} is {}", if terms.is_empty() { "0".into() } else { terms.join(" ") })
                    })
                    .collect();
                let words = format!("of every {width} of K, lanes of {name} are others: {}", some.join(", "));
                Theory::new(Class::PackPermute, name, format!("{name}.k_mixed"), words)
            }
        };
        t.bits = 14.0 + 2.0 * width as f64;
        t.freedom = (0..width * width).filter(|x| whole[*x] != identity(*x)).count();
        let (values, k_all) = (g.values.clone(), s.k);
        let lanes: Vec<f64> = (0..width * width).map(|x| lane(x / width, x % width)).collect();
        t.side(side).value = Some(Arc::new(move |i, k| {
            let (from, u) = (k / width * width, k % width);
            (0..width).map(|v| lanes[u * width + v] * values[i * k_all + from + v]).sum()
        }));
        all.push(t);
    }
    all
}

/// C, row-major. `None`: too few equations, or what was written is not of this kind.
fn coefficients(s: &System, width: usize) -> Option<Vec<f64>> {
    let n = width * width;
    let mut places: Vec<(usize, usize)> = (0..s.rows * s.cols)
        .filter(|at| s.actual[*at].is_finite())
        .map(|at| (at / s.cols, at % s.cols))
        .filter(|(i, j)| s.region.as_ref().is_none_or(|r| r.has(*i, *j)))
        .collect();
    (places.len() >= 3 * n).then_some(())?;
    spread(&mut places, 3 * n + 64);
    let mut system = Normal::new(n);
    let mut checks = Vec::new();
    for (nth, (i, j)) in places.iter().enumerate() {
        let (ra, rb, _) = s.lines(*i, *j)?;
        let (a, b) = (&s.a.values[ra * s.k..(ra + 1) * s.k], &s.b.values[rb * s.k..(rb + 1) * s.k]);
        let mut row = vec![0.0; n];
        let mut size = 0.0;
        for (a, b) in a.chunks(width).zip(b.chunks(width)) {
            for (u, a) in a.iter().enumerate() {
                for (v, b) in b.iter().enumerate() {
                    row[u * width + v] += a * b;
                }
                size += (a * b[u]).abs();
            }
        }
        let Some((y, half)) = s.written(*i, *j, size) else { continue };
        system.add(&row, y, 1.0 / (half * half));
        if nth < 24 {
            checks.push((row, y, half));
        }
    }
    let c = system.solve()?;
    let fits = |(row, y, half): &(Vec<f64>, f64, f64)| {
        let sum: f64 = row.iter().zip(&c).map(|(x, c)| x * c.round()).sum();
        (sum - y).abs() <= 4.0 * half
    };
    (checks.len() >= 8 && checks.iter().all(fits)).then_some(c)
}
