//! Scales that are NaN, read as Inf or as a number: an exponent of 8 bits that is shifted into a float without a case for its last one.
//!
//! ```text
//! (Σ_{k in block} a·b) · Inf  =  ±Inf, NaN where the block sums to 0          or · 2^128, · 2^127, · 1, · 0
//! ```
//! Asked only where an operand has such a scale.

use super::given::Given;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// What stands for a number so large that f32 has none.
const LARGEST: f64 = f32::MAX as f64;

/// Every reading of both operands.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone {
        return Vec::new();
    }
    [Which::A, Which::B].into_iter().flat_map(|side| scales(s, side)).collect()
}

/// Scales that are NaN.
fn scales(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let is_nan: Vec<bool> = g.scales().iter().map(|x| x.is_nan()).collect();
    let format = g.q.as_ref().map(|q| q.scale_format());
    let (Some(format), true) = (format, is_nan.contains(&true)) else { return Vec::new() };
    let count = is_nan.iter().filter(|x| **x).count();
    let theory = |what: &str, bits: f64| {
        let of = if count == 1 { "the scale".to_string() } else { format!("the {count} scales") };
        let words = format!("{of} of {name} that {} NaN in {format} {} read as {what}", be(count), be(count));
        Theory::new(Class::CodecEdge, name, format!("{name}.special_scale"), words).bits(bits)
    };
    let mut all = Vec::new();
    let mut inf = theory("Inf: sums of their blocks become Inf", 3.0);
    inf.finish = Some(of_blocks(s, side, &is_nan));
    all.push(inf);
    for (what, bits, number) in [("0", 4.0, 0.0), ("1", 4.0, 1.0), ("2^128", 4.0, 128f64.exp2()), ("2^127", 4.5, 127f64.exp2())]
    {
        let mut t = theory(what, bits);
        let given = g.clone();
        let scale = move |i: usize, k: usize| {
            let own = given.step(i, k);
            if own.is_nan() { number * given.global } else { own }
        };
        t.side(side).scaled(g.tile.1, Arc::new(scale));
        all.push(t);
    }
    all
}

fn be(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// The sum of an element whose blocks are summed first and scaled then, by Inf where a scale of `side` is NaN.
fn of_blocks(s: &System, side: Which, is_nan: &[bool]) -> super::system::Finish {
    let (a, b, bias) = (s.a.clone(), s.b.clone(), s.bias.clone());
    let rows: Vec<_> = (0..s.rows).map(|i| s.lines(i, 0)).collect();
    let line_has: Vec<bool> = {
        let g = s.given(side);
        (0..g.rows).map(|i| is_nan[i / g.tile.0 * g.grid.1..][..g.grid.1].contains(&true)).collect()
    };
    // The code of an element, or its value, where it has no scale.
    let code = |g: &Given, i: usize, k: usize| match &g.q {
        Some(q) if g.zero.is_none() => g.table[usize::from(q.codes()[i * g.k + k])],
        _ => g.values[i * g.k + k],
    };
    let step = |g: &Given, i: usize, k: usize| match g.q.is_some() && g.zero.is_none() {
        true => Some(g.step(i, k)).map_or(1.0, |x| if x.is_nan() { f64::INFINITY } else { x }),
        false => 1.0,
    };
    Arc::new(move |i, j, v| {
        let Some((row, first, ks)) = rows[i].clone() else { return v };
        let (x, y) = (row, first + j);
        let line = if side == Which::A { x } else { y };
        if !line_has[line] {
            return v + bias.at(i, j);
        }
        let cell = |k: usize| (k / a.tile.1, k / b.tile.1);
        let (mut total, mut block) = (0.0, 0.0);
        for k in ks.clone() {
            block += code(&a, x, k) * code(&b, y, k);
            if k + 1 == ks.end || cell(k + 1) != cell(k) {
                total += block * (step(&a, x, k) * step(&b, y, k));
                block = 0.0;
            }
        }
        let total = total + bias.at(i, j);
        if total.abs() > LARGEST { total.signum() * f64::INFINITY } else { total }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{M, N, codes, found, sum};
    use crate::job::Operand;
    use crate::{Format, QTensor};

    const K: usize = 128;

    /// Codes in groups of 32 by powers of two, some of them NaN.
    fn scaled(format: Format, rows: usize, seed: usize, nan: &dyn Fn(usize) -> bool) -> QTensor {
        let mut parts = codes(format, rows, K, 32, false, seed).into_parts();
        let scale = |s: usize| if nan(s) { f32::NAN } else { ((s * 7 % 5) as f32 - 8.0).exp2() };
        parts.scale_inv = (0..rows * 4).map(scale).collect();
        parts.scale_format = Format::E8m0;
        QTensor::new(parts).unwrap()
    }
    fn code(q: &QTensor, at: usize) -> f64 {
        q.format().decode(u32::from(q.codes()[at]))
    }

    #[test]
    fn a_scale_that_is_nan_and_read_as_another_is_told() {
        let is_nan = |s: usize| s == 4 * 3 + 2 || s == 4 * 9;
        let (a, b) = (scaled(Format::E4m3, M, 5, &is_nan), scaled(Format::E4m3, N, 6, &|_| false));
        let (x, y) = (a.clone(), b.clone());
        let by = |special: f64| {
            found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
                sum(4, |g| {
                    let scale = x.scale_inv()[i * 4 + g];
                    let scale = if scale.is_nan() { special } else { f64::from(scale) };
                    let block = sum(32, |k| code(&x, i * K + g * 32 + k) * code(&y, j * K + g * 32 + k));
                    block * scale * f64::from(y.scale_inv()[j * 4 + g])
                })
            })
        };
        let got = by(f64::INFINITY);
        assert_eq!(got.0, "codec_edge:a.special_scale", "{}", got.1);
        assert!(got.1.starts_with("the 2 scales of a that are NaN in e8m0 are read as Inf"), "{}", got.1);
        let got = by(1.0);
        assert_eq!(got.0, "codec_edge:a.special_scale", "{}", got.1);
        assert!(got.1.ends_with("are read as 1"), "{}", got.1);
        let got = by(0.37);
        assert!(!got.0.contains("special"), "a number of nobody's: {} {}", got.0, got.1);
    }
}
