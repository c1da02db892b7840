//! Many sums of products at once, equal bit for bit to [`super::accumulate`].
//!
//! A tile of outputs is computed with a vector lane an output column, k ascending. The code is ordinary Rust over arrays of
//! lanes, compiled three times (AVX-512, AVX2, whatever the target has) and chosen at run time.
//!
//! Rows that hold a NaN or an Inf are rare: their elements take the obvious path.

mod chain;
mod ieee;
mod narrow;
#[cfg(test)]
mod tests;
mod wide;

use super::accumulate::{accumulate, nan_of};
use super::mma::{Dest, Step};
use super::product::FactorRows;
use super::table::{self, Unit};
use super::{Accumulator, Inner};
use crate::{Format, Result};
use std::ops::Range;

/// Output columns computed together.
pub const LANES: usize = 32;

/// Compiles `$name(args)` of `$body` for AVX-512, AVX2 and the plain target, and calls the best the processor has.
macro_rules! compiled {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) => $body:path;) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512cd,fma,bmi2")]
                fn wide($($arg: $ty),*) {
                    $body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma,bmi2")]
                fn middle($($arg: $ty),*) {
                    $body($($arg),*)
                }
                let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("bmi2");
                let avx512 = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512cd");
                // SAFETY: the processor has the features, as asked just before; the bodies are safe Rust.
                if avx2 && avx512 {
                    return unsafe { wide($($arg),*) };
                }
                if avx2 {
                    return unsafe { middle($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}
pub(crate) use compiled;

/// The sums over `k` of rows `rows` of `a` and rows `cols` of `b`, row-major into `out` (`rows.len() × cols.len()`): element by element
/// [`accumulate`]. Errors: formats that the accumulator does not take.
pub fn tile(
    acc: &Accumulator,
    a: &FactorRows,
    rows: Range<usize>,
    b: &FactorRows,
    cols: Range<usize>,
    k: Range<usize>,
    out: &mut [f32],
) -> Result<()> {
    acc.check(a.format, b.format)?;
    let load = |s: &FactorRows, rows: &Range<usize>| Matrix::load(s, rows.clone(), k.clone());
    let (a, b) = (load(a, &rows), load(b, &cols));
    sums(acc, &a, &b, out)
}

compiled! {
    /// Σ x·w modulo 2³².
    pub fn int32(x: &[i32], w: &[i32], sum: &mut i32) => int32_body;
}
#[inline(always)]
fn int32_body(x: &[i32], w: &[i32], sum: &mut i32) {
    *sum = x.iter().zip(w).fold(0, |sum, (x, w)| sum.wrapping_add(x.wrapping_mul(*w)));
}

/// Factors of some rows over some k, row-major.
pub struct Matrix {
    pub format: Format,
    pub rows: usize,
    pub k: usize,
    pub values: Vec<f32>,
}

impl Matrix {
    fn load(s: &FactorRows, rows: Range<usize>, k: Range<usize>) -> Self {
        let mut values = vec![0.0; rows.len() * k.len()];
        for (row, out) in rows.clone().zip(values.chunks_mut(k.len().max(1))) {
            s.fill(row, k.clone(), out);
        }
        Self { format: s.format, rows: rows.len(), k: k.len(), values }
    }
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.k..(i + 1) * self.k]
    }
    fn special_rows(&self) -> Vec<bool> {
        (0..self.rows).map(|i| self.row(i).iter().any(|x| !x.is_finite())).collect()
    }
}

/// A chain of any block steps over the finite factors of `a` and `b`, as `T(W, F, O)` with F at least the fraction bits of a product.
pub fn steps(step: Step, a: &Matrix, b: &Matrix, out: &mut [f32]) {
    chain::sums(&mut wide::Wide::new(step, a.format, b.format), a.k.max(1), a, b, out);
}

/// Sums of products that are rounded to f32 first, k ascending: a kernel without FMA.
pub fn unfused(a: &Matrix, b: &Matrix, out: &mut [f32]) {
    ieee::rounded(a, b, out);
}

/// Whether a sum is NaN in any order: a product is, or two are infinite with opposite signs.
fn is_nan(a: &[f32], b: &[f32]) -> bool {
    let (mut plus, mut minus) = (false, false);
    for (x, y) in a.iter().zip(b).filter(|(x, y)| !(x.is_finite() && y.is_finite())) {
        let p = x * y;
        plus |= p.is_nan() || p > 0.0;
        minus |= p.is_nan() || p < 0.0;
    }
    plus && minus
}

/// The sums of all rows of `a` with all rows of `b`: [`tile`] of factors that are loaded.
pub fn sums(acc: &Accumulator, a: &Matrix, b: &Matrix, out: &mut [f32]) -> Result<()> {
    let promote = acc.promote_every.unwrap_or(a.k).min(a.k).max(1);
    let done = match acc.inner {
        Inner::F32Sequential => {
            ieee::sequential(promote, a, b, out);
            true
        }
        Inner::F32Pairwise => {
            ieee::pairwise(promote, a, b, out);
            true
        }
        Inner::Exact => ieee::exact(promote, a, b, out),
        Inner::Int32 => false,
        Inner::AnyOrder | Inner::AnyOf(_) | Inner::AnyUnit => return Err(acc.inner.no_bits()),
        Inner::Mma(m) => {
            match table::find(m.name)?.unit(a.format, b.format)? {
                Unit::Step(Step { w, f: 13, dest: Dest::F32 { fraction: 13 }, .. }) => {
                    chain::sums(&mut narrow::Narrow::new(w, a.format, b.format), promote, a, b, out);
                }
                Unit::Step(step) => chain::sums(&mut wide::Wide::new(step, a.format, b.format), promote, a, b, out),
                Unit::Lowered(half) => chain::sums(&mut wide::Wide::lowered(half), promote, a, b, out),
            }
            true
        }
    };
    // A NaN that finite factors made (Inf − Inf after overflow) has the canonical bits; special factors take the obvious path.
    let nan = nan_of(acc, a.format, b.format)?;
    let (special_a, special_b) = (a.special_rows(), b.special_rows());
    for (i, out) in out.chunks_mut(b.rows.max(1)).enumerate() {
        for (j, out) in out.iter_mut().enumerate() {
            let special = special_a[i] || special_b[j];
            if special && matches!(acc.inner, Inner::Mma(_)) && is_nan(a.row(i), b.row(j)) {
                *out = nan;
            } else if !done || special {
                *out = accumulate(acc, a.format, b.format, a.row(i), b.row(j))?;
            } else if out.is_nan() {
                *out = nan;
            } else if acc.promote_every.is_some() {
                // The main accumulator starts at +0, also where one chunk is all.
                *out += 0.0;
            }
        }
    }
    Ok(())
}
