//! Products whose sums are all numbers of 16 bits, in whatever order they were added: the accumulator was one of 16 bits.
//!
//! ```text
//! out_ij / (s_i · s_j)  ──►  a number of 11 bits (f16) or 8 (bf16), to the roundings of the scales     every element, where right sums are none
//! ```
//!
//! **Chance.** The unit of the fewest bits, Ada's, cuts its sum 13 bits below the largest of its products and the sum so far. A sum that is
//! larger than any of its products, and was never more than twice as large on the way, has 13 bits or more: it is a number of 11 no more often
//! than one time in four, and of f32 one time in 2¹². So [`LEAST`] different sums that all are prove it: 4⁻⁶⁴ ≈ 10⁻³⁹.

use crate::job::{Job, Operand, OutSpec};
use crate::op::Op;
use crate::{Format, Zero};
use std::collections::HashSet;

/// Different sums that have to be such numbers.
const LEAST: usize = 64;
/// What two roundings to f32 leave of one, relative.
const NEAR: f64 = 1.0 / (1u64 << 22) as f64;

/// Scale and largest magnitude of the codes of every line. `None`: scales change along K, or zero points.
fn lines(operand: &Operand) -> Option<Vec<(f64, f64)>> {
    match operand {
        Operand::Quantized(q) => {
            let (grid, tile) = (q.granularity().grid(q.rows(), q.cols()), q.granularity().tile(q.rows(), q.cols()));
            (grid.1 == 1 && matches!(q.zero(), Zero::None)).then_some(())?;
            let values: Vec<f64> = (0..1u32 << q.format().bits()).map(|c| q.format().decode(c).abs()).collect();
            let most = |row: &[u8]| row.iter().map(|c| values[usize::from(*c)]).filter(|v| v.is_finite()).fold(0.0, f64::max);
            let line = |(i, row)| (q.affine(i / tile.0).unit, most(row));
            Some(q.codes().chunks(q.cols().max(1)).enumerate().map(line).collect())
        }
        Operand::High(t) => {
            let most = |i: usize| t.row(i).iter().fold(0.0f64, |m, x| m.max(f64::from(x.abs())));
            Some((0..t.rows()).map(|i| (1.0, most(i))).collect())
        }
        _ => None,
    }
}

/// How far `x` is from the nearest number of so many bits, relative.
fn off(x: f64, bits: u32) -> f64 {
    let step = (x.abs().log2().floor() + 1.0 - f64::from(bits)).exp2();
    (x - (x / step).round_ties_even() * step).abs() / x.abs()
}

/// The format that all sums are numbers of though the right ones are not. A result in f32 shows it, and one in f16 shows sums in bf16: what is
/// written in a format is a number of it.
pub fn find(job: &Job, rows: usize, cols: usize, actual: &[f64], ideal: &[f64]) -> Option<Format> {
    (job.op == Op::Gemm && job.operands.bias.is_none() && actual.len() == rows * cols && ideal.len() == actual.len())
        .then_some(())?;
    let OutSpec::High(out) = job.out else { return None };
    let (a, b) = (lines(job.operands.a())?, lines(job.operands.b()?)?);
    (a.len() == rows && b.len() == cols).then_some(())?;
    let narrower = |f: &Format| f.spec().mantissa < out.spec().mantissa;
    [Format::Bf16, Format::F16].into_iter().filter(narrower).find(|f| {
        let bits = f.spec().mantissa + 1;
        // Of a result that is subnormal few bits are left, whatever it was summed in.
        let shows = |x: f64| out.ulp(x) * f64::from(1u32 << (bits + 2)) <= x.abs();
        let mut seen = HashSet::new();
        for at in 0..actual.len() {
            let ((s, x), (t, y)) = (a[at / cols], b[at % cols]);
            let (sum, right) = (actual[at] / (s * t), ideal[at] / (s * t));
            if !sum.is_finite() || sum.abs() <= x * y || !shows(actual[at]) || off(right, bits) <= 4.0 * NEAR {
                continue;
            }
            if off(sum, bits) > NEAR {
                return false;
            }
            // No more than are wanted: a large result has millions.
            if seen.len() < LEAST {
                seen.insert((sum as f32).to_bits());
            }
        }
        seen.len() >= LEAST
    })
}

/// In words.
pub fn words(f: Format) -> String {
    format!("every sum is a number of {f} before its scales, which right sums are not: the accumulator is kept in {f}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_few_bits_are_near_themselves() {
        assert_eq!(off(2047.0, 11), 0.0);
        assert!(off(2049.0, 11) > 4e-4 && off(-2049.0, 11) > 4e-4);
        assert_eq!(off(4096.0, 8), 0.0);
        assert!(off(1.0 + 1.0 / 1024.0, 11) == 0.0 && off(1.0 + 1.0 / 2048.0, 11) > 0.0);
    }
}
