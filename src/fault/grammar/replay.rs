//! What a kernel with a question's faults writes: three loops, element by element, as one would write it in numpy.

use super::draw::{Effect, Index, Question, Which, WrongScale};
use crate::{Format, Overflow, QTensor, Rounding, Zero};

/// The result before it is stored, row by row, with the faults or without.
pub fn values(q: &Question, wrong: bool) -> Vec<f64> {
    let right = product(q, &[]);
    if !wrong {
        return right;
    }
    let faulty = moved(q, product(q, &q.effects));
    let n = columns(q);
    let inside = |at: usize| q.region.all || q.region.rows.contains(&(at / n)) && q.region.cols.contains(&(at % n));
    (0..right.len()).map(|at| if inside(at) { faulty[at] } else { right[at] }).collect()
}

/// As it is stored.
pub fn stored(q: &Question, wrong: bool) -> Vec<f32> {
    let one = |x: f64| q.out.decode(q.out.encode(f64::from(x as f32), Rounding::NearestEven, Overflow::Native)) as f32;
    values(q, wrong).into_iter().map(one).collect()
}

pub fn columns(q: &Question) -> usize {
    q.b.rows() / q.offs.as_ref().map_or(1, Vec::len)
}

fn product(q: &Question, effects: &[Effect]) -> Vec<f64> {
    let (m, n, k) = (q.a.rows(), columns(q), q.a.cols());
    let experts = q.offs.as_ref().map_or(1, Vec::len);
    let mut all = vec![0.0; m * n];
    for i in 0..m {
        let home = q.offs.as_ref().map_or(0, |o| o.iter().position(|end| i < *end).unwrap_or(experts - 1));
        let mut expert = home;
        for e in effects {
            if let Effect::Expert(d) = e {
                expert = (home + d) % experts;
            }
        }
        for j in 0..n {
            let mut sum = 0.0;
            for k in 0..k {
                let mut count = 1.0;
                for e in effects {
                    match e {
                        Effect::Dropped(from, to) if (*from..*to).contains(&k) => count = 0.0,
                        Effect::Doubled(from, to) if (*from..*to).contains(&k) => count = 2.0,
                        Effect::Alone(from, to) if !(*from..*to).contains(&k) => count = 0.0,
                        _ => {}
                    }
                }
                if count != 0.0 {
                    sum += count * element(&q.a, Which::A, i, k, effects) * element(&q.b, Which::B, expert * n + j, k, effects);
                }
            }
            let mut bias = q.bias.as_ref().map_or(0.0, |b| f64::from(b[j]));
            let mut gain = 1.0;
            for e in effects {
                match e {
                    Effect::Gain(g) => gain = *g,
                    Effect::BiasOmitted => bias = 0.0,
                    _ => {}
                }
            }
            let mut y = sum * gain + bias;
            for e in effects {
                if let Effect::Clamped(limit) = e {
                    y = y.clamp(-limit, *limit);
                }
            }
            all[i * n + j] = y;
        }
    }
    all
}

/// Where elements go.
fn moved(q: &Question, v: Vec<f64>) -> Vec<f64> {
    let (m, n) = (q.a.rows(), columns(q));
    let mut out = v;
    for e in &q.effects {
        let old = out.clone();
        for i in 0..m {
            for j in 0..n {
                match e {
                    Effect::RowsMoved(d) => out[i * n + j] = old[(i + d) % m * n + j],
                    Effect::ColumnsMoved(d) => out[i * n + j] = old[i * n + (j + n - d % n) % n],
                    _ => {}
                }
            }
        }
    }
    out
}

/// One element of an operand as the faulty kernel has it.
fn element(t: &QTensor, which: Which, i: usize, k: usize, effects: &[Effect]) -> f64 {
    let (rows, cols) = (t.rows(), t.cols());
    let (tile_rows, tile_cols) = t.granularity().tile(rows, cols);
    let (grid_rows, grid_cols) = t.granularity().grid(rows, cols);
    let mut code_at = i * cols + k;
    let mut format = t.format();
    let (mut r, mut c) = (i / tile_rows, k / tile_cols);
    let (mut zr, zc) = (r, c);
    let mut flush = false;
    let mut flat = None;
    let mut rule = None;
    let (mut z_add, mut z_times) = (0.0, 1.0);
    let within = |x: usize, n: usize, f: Index| f.of(x, n).min(n - 1);
    for e in effects {
        match e {
            Effect::ScaleRule(w, x) if *w == which => rule = Some(*x),
            Effect::ScaleRow(w, f) if *w == which => r = within(r, grid_rows, *f),
            Effect::ScaleGroup(w, f) if *w == which => c = within(c, grid_cols, *f),
            Effect::ScaleTransposed(w) if *w == which => flat = Some(c * grid_rows + r),
            Effect::ScaleLength(w, length) if *w == which => c = (k / length).min(grid_cols - 1),
            Effect::ZeroOffset(w, d) if *w == which => z_add = f64::from(*d),
            Effect::ZeroOmitted(w) if *w == which => z_times = 0.0,
            Effect::ZeroNegated(w) if *w == which => z_times = -1.0,
            Effect::ZeroRow(w, f) if *w == which => zr = within(zr, grid_rows, *f),
            Effect::ReadAs(w, f) if *w == which => format = *f,
            Effect::SubnormalsFlushed(w) if *w == which => flush = true,
            Effect::CodeXor(w, m) if *w == which && k ^ m < cols => code_at = i * cols + (k ^ m),
            Effect::CodeOrder(w, p, x) if *w == which => {
                let part = p * x;
                let start = k / part * part;
                if start + part <= cols {
                    code_at = i * cols + start + (k - start) % x * p + (k - start) / x;
                }
            }
            Effect::CodeStride(w, more) if *w == which => code_at = (i * (cols + more) + k) % (rows * cols),
            _ => {}
        }
    }
    let mut x = format.decode(u32::from(t.codes()[code_at]));
    if flush && x != 0.0 && x.abs() < smallest_normal(format) {
        x = 0.0;
    }
    let s = f64::from(t.scale_inv()[flat.unwrap_or(r * grid_cols + c)]);
    let s = match rule {
        None => s,
        Some(WrongScale::Omitted) => 1.0,
        Some(WrongScale::Squared) => s * s,
        Some(WrongScale::Inverted) => 1.0 / s,
        Some(WrongScale::PowerOfTwoUp) => s.log2().ceil().exp2(),
        Some(WrongScale::PowerOfTwoDown) => s.log2().floor().exp2(),
        Some(WrongScale::Bf16) => half::bf16::from_f64(s).to_f64(),
    };
    let z = match t.zero() {
        Zero::Integer(z) => f64::from(z[zr * grid_cols + zc]) * z_times + z_add,
        _ => 0.0,
    };
    (x - z) * s
}

fn smallest_normal(f: Format) -> f64 {
    match f {
        Format::E4m3 => 0.015625,
        Format::E5m2 => 2f64.powi(-14),
        Format::E2m1 => 1.0,
        _ => 0.0,
    }
}
