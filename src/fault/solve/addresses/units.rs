//! One element as a sum over units of K of what its line of one operand has there: scales, zero points, or both, wherever they come from.
//!
//! ```text
//! out[i, j] − rest = Σ_u p(u) · c(u) + q(u) · d(u)          u: so many of K
//! scales:       p = s                 c = Σ (code − zero)·other
//! zero points:  p = z                 c = − Σ s·other, additive: Σ other
//! both:         p = s, q = s·z or z   c = Σ code·other, d = − Σ other, additive: Σ other
//! ```

use super::super::given::Given;
use super::super::system::System;
use super::views::{View, of_scales, of_zeros};
use crate::fault::edit::Which;
use std::sync::Arc;

/// What a kernel that rounds its dequantized values to 16 bits errs by, of one.
const ROUNDED: f64 = 1.0 / 2048.0;

/// What is read from another place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Scale,
    Zero,
    Both,
}

/// Numbers in memory: those that a line is multiplied by, and those that go with its second sums.
#[derive(Clone)]
pub struct Memory {
    pub what: What,
    pub p: Arc<Vec<f64>>,
    pub q: Arc<Vec<f64>>,
    /// Zero points as they are, where both are read.
    pub zeros: Arc<Vec<f64>>,
    pub words: String,
    pub bits: f64,
    /// Whether the numbers are those that are stored, in their order.
    pub plain: bool,
}

impl Memory {
    /// What an element of these coefficients sums from `base` on, at these places of its units. Nothing lies outside.
    pub fn sum(&self, e: &Units, base: i64, places: &[i64]) -> f64 {
        let mut sum = 0.0;
        for (u, place) in places.iter().enumerate() {
            let at = (base + place) as usize;
            if let Some(p) = self.p.get(at) {
                sum += p * e.c[u] + self.q.get(at).map_or(0.0, |q| q * e.d[u]);
            }
        }
        sum
    }

    /// The magnitude of that.
    pub fn size(&self, e: &Units, base: i64, places: &[i64]) -> f64 {
        let one = |(u, place): (usize, &i64)| {
            let at = (base + place) as usize;
            let p = self.p.get(at).map_or(0.0, |p| p.abs() * e.sizes[u]);
            p + self.q.get(at).map_or(0.0, |q| (q * e.d[u]).abs())
        };
        places.iter().enumerate().map(one).sum()
    }

    /// Whether an element may be read from `base` on.
    pub fn fits(&self, e: &Units, base: i64, places: &[i64], relative: f64) -> bool {
        const NEAR: f64 = 64.0;
        let off = (self.sum(e, base, places) - e.y).abs();
        off <= e.half || off <= NEAR * e.half && off <= e.half + relative * self.size(e, base, places)
    }
}

/// The coefficients of one element.
pub struct Units {
    pub c: Vec<f64>,
    pub d: Vec<f64>,
    /// Magnitudes of what `c` sums.
    pub sizes: Vec<f64>,
    /// What was written less all that is read right, and how far off it may be.
    pub y: f64,
    pub half: f64,
    /// What is read right.
    pub rest: f64,
}

/// Units of `long` of K of an element. `None`: it says nothing, or its K is not whole.
pub fn units(s: &System, side: Which, what: What, long: usize, (i, j): (usize, usize)) -> Option<Units> {
    let (ra, rb, ks) = s.lines(i, j)?;
    (ks.len() == s.k).then_some(())?;
    let lines = if side == Which::A { (ra, rb) } else { (rb, ra) };
    let mut e = coefficients(s.given(side), s.given(side.other()), what, long, lines)?;
    let at = i * s.cols + j;
    let (y, half) = s.written(i, j, s.magnitude(at))?;
    let right = (s.ideal[at] - s.bias.at(i, j)).abs();
    // A kernel may round what it dequantizes.
    let loose = if s.given(side.other()).q.is_none() { ROUNDED * s.magnitude(at) / (s.k as f64).sqrt().max(1.0) } else { 0.0 };
    (e.y, e.half) = (y - e.rest, half + loose * if right > 0.0 { (y.abs() / right).clamp(1.0, 64.0) } else { 1.0 });
    Some(e)
}

/// The same of any two lines of an operand and the other, whatever was written.
pub fn coefficients(g: &Given, other: &Given, what: What, long: usize, (own, across): (usize, usize)) -> Option<Units> {
    let codes = g.q.as_ref()?.codes();
    let n = g.k.div_ceil(long);
    let mut e = Units { c: vec![0.0; n], d: vec![0.0; n], sizes: vec![0.0; n], y: 0.0, half: 0.0, rest: 0.0 };
    let line = own / g.tile.0 * g.grid.1;
    for k in 0..g.k {
        let (x, o) = (g.table[usize::from(codes[own * g.k + k])], other.values[across * other.k + k]);
        let (cell, u) = (line + k / g.tile.1, k / long);
        let zero = g.zero.as_ref().map(|(z, mid)| (z[cell], *mid));
        let (c, d, rest) = match (what, zero) {
            (What::Scale, None) => (x * o, 0.0, 0.0),
            (What::Scale, Some((z, None))) => ((x - z) * o, 0.0, 0.0),
            (What::Scale, Some((z, Some(mid)))) => ((x - mid) * o, 0.0, z * o),
            (What::Zero, Some((_, None))) => (-g.step(own, k) * o, 0.0, x * g.step(own, k) * o),
            (What::Zero, Some((_, Some(mid)))) => (o, 0.0, (x - mid) * g.step(own, k) * o),
            (What::Both, Some((_, None))) => (x * o, -o, 0.0),
            (What::Both, Some((_, Some(mid)))) => ((x - mid) * o, o, 0.0),
            (_, None) => return None,
        };
        e.c[u] += c;
        e.d[u] += d;
        e.sizes[u] += c.abs();
        e.rest += rest;
    }
    Some(e)
}

/// The memory of an operand, seen in every way that it may be read; with the rows of each expert one after the other, and column by column.
pub fn memories(g: &Given, experts: usize) -> Vec<Memory> {
    if g.scales().len() < 2 || g.deep.is_some() {
        return Vec::new();
    }
    let none = || Arc::new(Vec::new());
    let mut all = Vec::new();
    let of = |view: View, what: What| Memory {
        what,
        plain: view.words.is_empty(),
        p: view.numbers,
        q: none(),
        zeros: none(),
        words: view.words,
        bits: view.bits,
    };
    let zeros = g.zero.as_ref().map(|z| (of_zeros(&z.0), z.1.is_some()));
    let scales = of_scales(g);
    if let (Some((zeros, additive)), Some(s)) = (&zeros, scales.first()) {
        let z = zeros[0].numbers.clone();
        let q = if *additive { z.clone() } else { Arc::new(s.numbers.iter().zip(&**z).map(|(s, z)| s * z).collect()) };
        all.push(Memory { q, zeros: z, ..of(s.clone(), What::Both) });
    }
    all.extend(scales.into_iter().map(|v| of(v, What::Scale)));
    all.extend(zeros.into_iter().flat_map(|z| z.0).map(|v| of(v, What::Zero)));
    // Column by column, where what lies behind a column is not what lies behind a row.
    let (rows, cols) = g.grid;
    let per = rows / experts.max(1);
    if cols > 1 && per > 1 && per * experts == rows {
        let turn = |v: &Arc<Vec<f64>>| -> Arc<Vec<f64>> {
            let from = |at: usize| at / (per * cols) * per * cols + at % per * cols + at % (per * cols) / per;
            Arc::new((0..v.len()).map(|at| v[from(at)]).collect())
        };
        let words = ", which lie column by column";
        let turned: Vec<Memory> = (all.iter().filter(|m| m.plain))
            .map(|m| Memory {
                p: turn(&m.p),
                q: turn(&m.q),
                zeros: turn(&m.zeros),
                words: words.into(),
                bits: 2.0,
                plain: false,
                what: m.what,
            })
            .collect();
        all.extend(turned);
    }
    all
}
