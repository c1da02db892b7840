//! Sums of a group that are kept as whole numbers, although their zero points are not whole: a temporary of the type of the codes' sums.
//!
//! ```text
//! out = Σ_g scale(g) · whole( Σ_{k in g} a·c − z(g)·Σ_{k in g} a )        z = (mid − zero / scale) of additive zero points
//! ```

use super::given::Given;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// How near a whole number a sum in f32 may fall to either side of it, of its magnitude.
const NEAR: f64 = 4e-7;
/// How far from whole numbers zero points are, at least.
const FRACTION: f64 = 1e-3;

/// Theories of one side's zero points.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, o) = (s.given(side), s.given(side.other()));
    let (name, they) = (side.name(), side.other().name());
    let integer = |g: &Given| g.format().is_some_and(|f| f.is_integer());
    let whole = o.zero.as_ref().is_none_or(|z| z.1.is_none());
    let Some((zero, Some(mid))) = &g.zero else { return Vec::new() };
    // The other's scale is one for each group as well.
    let wide = g.tile.1;
    if s.alone || !integer(g) || !integer(o) || !whole || !(o.grid.1 == 1 || o.tile.1 == wide) {
        return Vec::new();
    }
    let (k_all, groups, tall) = (g.k, g.grid.1, g.tile.0);
    let step = |g: &Given, i: usize, c: usize| g.step(i, c * wide);
    let steps: Vec<f64> = (0..g.rows * groups).map(|x| step(g, x / groups, x % groups)).collect();
    let theirs: Vec<f64> = (0..o.rows * groups).map(|x| step(o, x / groups, x % groups)).collect();
    // The zero point in steps of the code.
    let zeros: Vec<f64> =
        (0..g.rows * groups).map(|x| mid - zero[x / groups / tall * groups + x % groups] / steps[x]).collect();
    let broken = zeros.iter().filter(|z| (*z - z.round()).abs() > FRACTION).count();
    if 2 * broken < zeros.len() || steps.iter().chain(&theirs).any(|x| *x == 0.0 || !x.is_finite()) {
        return Vec::new();
    }
    let Some(q) = &g.q else { return Vec::new() };
    let codes: Vec<f64> = q.codes().iter().map(|c| g.table[usize::from(*c)]).collect();
    // The other's codes less their own zero points.
    let others: Vec<f64> =
        o.values.iter().enumerate().map(|(at, v)| v / theirs[at / k_all * groups + at % k_all / wide]).collect();
    let lines: Vec<Option<(usize, usize)>> = (0..s.rows).map(|i| s.lines(i, 0).map(|(a, b, _)| (a, b))).collect();
    let all = Arc::new((codes, others, steps, theirs, zeros, lines));
    type Way = (&'static str, f64, fn(f64) -> f64);
    let ways: [Way; 3] = [
        ("cut toward zero", 0.0, f64::trunc),
        ("rounded to the nearest whole number", 0.5, f64::round_ties_even),
        ("cut to the whole number below", 1.0, f64::floor),
    ];
    let (relative, right) = (s.relative.max(1e-300), s.right_sums());
    ways.into_iter()
        .map(|(how, bits, of)| {
            let words = format!(
                "the sums of {they} and {name} over each group of {wide}, zero points taken off, are {how} before the scales multiply them: they are kept as \
                 integers, and the zero points are none"
            );
            let mut t = Theory::new(Class::RoundOrder, name, format!("{name}.whole_sums"), words).bits(4.0 + bits);
            let numbers = all.clone();
            let made = move |i: usize, j: usize| -> (f64, f64) {
                let (codes, others, steps, theirs, zeros, lines) = &*numbers;
                let Some((a, b)) = lines[i] else { return (0.0, 0.0) };
                let (own, their) = if side == Which::A { (a, b + j) } else { (b + j, a) };
                let (mut sum, mut size) = (0.0, 0.0);
                for c in 0..groups {
                    let (mut dot, mut ones, mut most) = (0.0, 0.0, 0.0);
                    for k in c * wide..((c + 1) * wide).min(k_all) {
                        let x = others[their * k_all + k];
                        dot += codes[own * k_all + k] * x;
                        ones += x;
                        most += (codes[own * k_all + k] * x).abs();
                    }
                    let (zero, by) = (zeros[own * groups + c], steps[own * groups + c] * theirs[their * groups + c]);
                    let x = dot - zero * ones;
                    // A sum of whole numbers alone is exact.
                    let off = if ones == 0.0 { 0.0 } else { NEAR * (dot.abs() + (zero * ones).abs()) };
                    sum += of(x) * by;
                    size += most * by.abs() + if of(x - off) != of(x + off) { by.abs() / relative } else { 0.0 };
                }
                (sum, size)
            };
            let bias = s.bias.clone();
            t.sums(right.clone(), s.cols, move |i, j| {
                let (sum, size) = made(i, j);
                (sum + bias.at(i, j), size)
            });
            t
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, sum};
    use crate::job::Operand;
    use crate::quant::QTensorParts;
    use crate::{Format, QTensor, Zero};

    /// The scales multiply in f32, and groups are added in f32.
    #[test]
    fn whole_sums_that_are_added_in_f32_are_told() {
        const K: usize = 192;
        let a = codes(Format::Int8, M, K, K, false, 81);
        let q = codes(Format::Uint4, N, K, 32, true, 82);
        let zero: Vec<f32> = (0..N * 6).map(|c| 0.01 * ((c * 37 % 29) as f32 - 14.0)).collect();
        let b = QTensor::new(QTensorParts { zero: Zero::Additive { zero: zero.clone(), mid: 0 }, ..q.into_parts() }).unwrap();
        let code = |i: usize, k: usize| f32::from(a.codes()[i * K + k] as i8);
        let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
            let group = |g: usize| {
                let (step, ks) = (b.scale_inv()[j * 6 + g], g * 32..(g + 1) * 32);
                let dot = ks.clone().fold(0.0f32, |x, k| x + code(i, k) * f32::from(b.codes()[j * K + k]));
                let ones = ks.fold(0.0f32, |x, k| x + code(i, k));
                (dot + zero[j * 6 + g] / step * ones).trunc() * (step * a.scale_inv()[i])
            };
            f64::from((0..6).fold(0.0f32, |sum, g| sum + group(g)))
        });
        assert_eq!(got.0, "round_order:b.whole_sums", "{}", got.1);
    }

    #[test]
    fn sums_that_are_cut_to_integers_are_told() {
        const K: usize = 96;
        let a = codes(Format::Int8, M, K, K, false, 81);
        let q = codes(Format::Uint4, N, K, 32, true, 82);
        let zero: Vec<f32> = (0..N * 3).map(|c| 0.01 * ((c * 37 % 29) as f32 - 14.0)).collect();
        let b = QTensor::new(QTensorParts { zero: Zero::Additive { zero: zero.clone(), mid: 0 }, ..q.into_parts() }).unwrap();
        let code = |i: usize, k: usize| f64::from(a.codes()[i * K + k] as i8);
        let got = found(&Operand::Quantized(a.clone()), &b, None, Format::F32, |i, j, _| {
            f64::from(a.scale_inv()[i])
                * sum(3, |g| {
                    let step = f64::from(b.scale_inv()[j * 3 + g]);
                    let dot = sum(32, |k| code(i, g * 32 + k) * f64::from(b.codes()[j * K + g * 32 + k]));
                    let ones = sum(32, |k| code(i, g * 32 + k));
                    (dot + f64::from(zero[j * 3 + g]) / step * ones).trunc() * step
                })
        });
        assert_eq!(got.0, "round_order:b.whole_sums", "{}", got.1);
        assert!(got.1.contains("over each group of 32, zero points taken off, are cut toward zero"), "{}", got.1);
    }
}
