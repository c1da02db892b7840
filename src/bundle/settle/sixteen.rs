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
    use super::super::super::assay::build;
    use super::super::emulated::{Emulated, read};
    use super::super::runnable;
    use super::*;
    use safetensors::Dtype;

    #[test]
    fn numbers_of_few_bits_are_near_themselves() {
        assert_eq!(off(2047.0, 11), 0.0);
        assert!(off(2049.0, 11) > 4e-4 && off(-2049.0, 11) > 4e-4);
        assert_eq!(off(4096.0, 8), 0.0);
        assert!(off(1.0 + 1.0 / 1024.0, 11) == 0.0 && off(1.0 + 1.0 / 2048.0, 11) > 0.0);
    }

    /// All factors are 1: scales ½ and ¼.
    fn ones(m: usize, n: usize) -> Emulated {
        let mut o = Emulated::new(71, (m, n, 4), true);
        o.a.iter_mut().chain(o.b.iter_mut()).for_each(|c| *c = 0x38);
        (o.sa, o.sb) = (vec![0.5; m], vec![0.25; n]);
        o
    }

    /// What these sums are numbers of, in a result of this type, where the right ones are `right`.
    fn found(o: &Emulated, dtype: Dtype, sums: &[f64], right: &[f64]) -> Option<Format> {
        let job = runnable(&build(&read(&o.bundle(&vec![0.0; o.m * o.n], dtype, ""))).unwrap().job);
        let [sums, right] = [sums, right].map(|x| x.iter().map(|x| x * 0.125).collect::<Vec<f64>>());
        find(&job, o.m, o.n, &sums, &right)
    }

    /// 1025, 1026, …: numbers of eleven bits, where the right sums are a little larger.
    #[test]
    fn sixty_four_different_sums_of_eleven_bits_prove_an_accumulator() {
        let o = ones(8, 9);
        let right: Vec<f64> = (0..72).map(|i| 1025.3 + f64::from(i)).collect();
        let sums = |different: usize| (0..72).map(|i| 1025.0 + i.min(different - 1) as f64).collect::<Vec<f64>>();
        let of = |sums: &[f64]| found(&o, Dtype::F32, sums, &right);
        assert_eq!([72, 64, 63].map(|n| of(&sums(n))), [Some(Format::F16), Some(Format::F16), None]);
        let with = |at: usize, x: f64| {
            let mut sums = sums(64);
            sums[at] = x;
            of(&sums)
        };
        // Half a unit is no number of eleven bits; two roundings to f32 are.
        assert_eq!(
            [with(70, 1030.5), with(70, 1030.0 * (1.0 + NEAR / 2.0)), with(70, 1030.0 * (1.0 + 2.0 * NEAR))],
            [None, Some(Format::F16), None]
        );
        // A sum that is no larger than its products, and none at all, say nothing; one that is larger does.
        assert_eq!([0.999, -1.0, f64::NAN, f64::INFINITY].map(|x| with(70, x)), [Some(Format::F16); 4]);
        assert_eq!([with(70, 1.0005), with(70, -1.0005)], [None; 2]);
        // Where the right sum is such a number, nothing is shown.
        let mut right = right.clone();
        right[70] = 1095.0;
        let mut odd = sums(64);
        odd[70] = 1095.4;
        assert_eq!(found(&o, Dtype::F32, &odd, &right), Some(Format::F16));
        right[70] = 1095.0 * (1.0 + 5.0 * NEAR);
        assert_eq!(found(&o, Dtype::F32, &odd, &right), None);
    }

    #[test]
    fn a_result_shows_only_sums_of_fewer_bits_than_it_has() {
        let o = ones(8, 8);
        let of = |o: &Emulated, dtype: Dtype, step: f64| {
            let sums: Vec<f64> = (1..=64).map(|i| 1024.0 + step * f64::from(i)).collect();
            found(o, dtype, &sums, &sums.iter().map(|x| x + 0.3).collect::<Vec<f64>>())
        };
        assert_eq!([of(&o, Dtype::F32, 1.0), of(&o, Dtype::F32, 8.0)], [Some(Format::F16), Some(Format::Bf16)]);
        assert_eq!([of(&o, Dtype::F16, 1.0), of(&o, Dtype::F16, 8.0)], [None, Some(Format::Bf16)]);
        assert_eq!([of(&o, Dtype::BF16, 1.0), of(&o, Dtype::BF16, 8.0)], [None, None]);
        assert_eq!(of(&ones(8, 8).with_bias(1), Dtype::F32, 1.0), None, "a bias is in the way");
        // As many elements as there are, of both.
        let job = runnable(&build(&read(&o.bundle(&[0.0; 64], Dtype::F32, ""))).unwrap().job);
        let sums: Vec<f64> = (1..=64).map(|i| 128.0 + f64::from(i) / 8.0).collect();
        let right: Vec<f64> = sums.iter().map(|x| x + 0.03).collect();
        assert_eq!(find(&job, 8, 8, &sums, &right), Some(Format::F16));
        assert_eq!([find(&job, 8, 8, &sums, &right[1..]), find(&job, 8, 8, &sums[1..], &right[1..])], [None; 2]);
        assert_eq!(find(&job, 16, 4, &sums, &right), None, "of other lines");
        let wider = runnable(&build(&read(&ones(8, 9).bundle(&[0.0; 72], Dtype::F32, ""))).unwrap().job);
        assert_eq!(find(&wider, 8, 8, &sums, &right), None, "of more columns");
    }

    /// The scale of every line and the largest of its numbers; a NaN is none.
    #[test]
    fn lines_have_a_scale_and_a_largest_number() {
        let mut o = ones(3, 2);
        (o.a[5], o.a[6], o.a[9], o.sa[2]) = (0x40, 0x7f, 0xc4, 3.0);
        let of = |o: &Emulated| {
            let job = runnable(&build(&read(&o.bundle(&[0.0; 6], Dtype::F32, ""))).unwrap().job);
            lines(job.operands.a()).unwrap()
        };
        assert_eq!(of(&o), [(0.5, 1.0), (0.5, 2.0), (3.0, 3.0)]);
        let mut o = Emulated::new(72, (3, 2, 4), false);
        o.a.copy_from_slice(&[0x3c00, 0xc000, 0, 0, 0, 0, 0, 0, 0x3800, 0x3800, 0x3800, 0xb800]);
        assert_eq!(of(&o), [(1.0, 2.0), (1.0, 0.0), (1.0, 0.5)]);
    }
}
