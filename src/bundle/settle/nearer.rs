//! Results inside a wide bound that everywhere fit operands, or parts of K, that were rounded on the way.
//!
//! A right kernel's error knows nothing of those roundings: it would lie as far from their result as its own error and theirs together,
//! `Σ(e − r)² ≈ Σe² + Σr²`. Where the result is much nearer to theirs than to the right one, it was made so. Sums that are cut lie below the
//! right ones by a share that all elements have about alike, and so do the products of scales that are cut: of each result the best common
//! gain is taken off before, and what is compared is what is left.
//!
//! **Chance.** Where the output has few bits, a right error shows only where the right sum is near the middle of two of its values, and a rounding
//! of something else moves such an element to the same side half the time. With e_i the error of an element, a share q of Σe² that a theory
//! explains, and `n = (Σe²)²/Σe⁴` elements that carry it (equal ones once), Hoeffding gives `P ≤ exp(−2n(q − ½)²)`: no more than once in 10⁹
//! tensors over all theories.

use crate::compare::Bound;
use crate::compare::probable::DELTA;
use crate::job::{Job, Operand};
use crate::op::Op;
use crate::parallel;
use crate::{Format, Overflow, QTensor, Rounding};
use ndarray::Array2;
use std::collections::HashSet;

/// Elements that are looked at.
const MOST: usize = 4096;
/// How many times nearer, in squares.
const NEARER: f64 = 4.0;
/// How many different gains lines need: the drifts of few lines follow a few numbers by chance.
const GAINS: usize = 12;
/// Parts of K.
const PARTS: [usize; 11] = [2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32];
/// Products of which parts consist.
const TILE: usize = 32;
/// Elements that are summed together: one sum waits for itself.
const TOGETHER: usize = 8;
const TYPES: [Format; 2] = [Format::Bf16, Format::F16];
/// How parts are joined.
#[derive(Clone, Copy, PartialEq)]
enum Joined {
    /// In f32, which is exact beside 16 bits.
    Wide,
    /// The sum is rounded after each.
    Narrow,
    /// In f32, the last one as it was summed: its block adds the others' to its own.
    LastKept,
}
const JOINED: [Joined; 3] = [Joined::Wide, Joined::Narrow, Joined::LastKept];
/// Theories: rounded or cut scales of two operands, sums before or behind their scales, parts and how they are joined.
const THEORIES: usize = TYPES.len() * (2 * 2 + 2 + JOINED.len() * PARTS.len());

/// One element that is looked at.
struct Look {
    at: usize,
    actual: f64,
    /// The right sum, without bias, the bias, and how far sums in f32 may be from it.
    sum: f64,
    bias: f64,
    size: f64,
}

fn round(f: Format, x: f64, rounding: Rounding) -> f64 {
    f.decode(f.encode(x, rounding, Overflow::Native))
}

/// What the result is nearer to than to the right one, in words. Errors are weighed by `bound`, that of sums in f32.
pub fn find(job: &Job, rows: usize, cols: usize, actual: &[f64], bound: &Bound) -> Option<String> {
    let b = job.operands.b()?;
    (job.op == Op::Gemm && actual.len() == rows * cols && bound.ideal().len() == rows * cols).then_some(())?;
    let bias = |j: usize| job.operands.bias.as_ref().map_or(0.0, |t| f64::from(t.data()[j]));
    let step = (rows * cols).div_ceil(MOST) | 1;
    let mut seen = HashSet::new();
    let looks: Vec<Look> = (0..rows * cols)
        .step_by(step)
        .map(|at| {
            let bias = bias(at % cols);
            Look { at, actual: actual[at], sum: bound.ideal()[at] - bias, bias, size: bound.certain()[at] }
        })
        .filter(|l| l.actual.is_finite() && l.sum.is_finite() && l.size > 0.0 && l.size.is_finite())
        .filter(|l| seen.insert([l.actual, l.sum, l.bias].map(f64::to_bits)))
        .collect();
    let out = bound.out();
    // What is left of each error when the best common gain of these values is taken off.
    let left = |of: &dyn Fn(usize, &Look) -> f64| {
        let values: Vec<f64> = looks.iter().enumerate().map(|(n, l)| of(n, l)).collect();
        let (mut along, mut length) = (0.0, 0.0);
        for (l, value) in looks.iter().zip(&values) {
            let sum = value / l.size;
            along += sum * ((l.actual - l.bias) / l.size);
            length += sum * sum;
        }
        let gain = if length > 0.0 { along / length } else { 1.0 };
        let one = move |(l, value): (&Look, f64)| ((l.actual - out.round(l.at, gain * value + l.bias)) / l.size).powi(2);
        looks.iter().zip(values).map(one)
    };
    let errors: Vec<f64> = left(&|_, l| l.sum).collect();
    let right: f64 = errors.iter().sum();
    // The sum of squares; what is too far already need not be added up: it is infinite.
    let far = |of: &dyn Fn(usize, &Look) -> f64| -> f64 {
        let mut sum = 0.0;
        for square in left(of) {
            sum += square;
            if sum * NEARER >= right {
                return f64::INFINITY;
            }
        }
        sum
    };
    if right == 0.0 {
        return None;
    }
    let carry = right * right / errors.iter().map(|e| e * e).sum::<f64>();
    let explains = |far: f64| is_sure(far, right, carry);
    let is_nearer = |of: &dyn Fn(usize, &Look) -> f64| explains(far(of));
    // Scales of lines.
    for (operand, name, by_row) in [(job.operands.a(), "a", true), (b, "b", false)] {
        let Some(gains) = gains(operand) else { continue };
        for (words, gain) in gains {
            let mut different: Vec<u64> = gain.iter().filter(|g| **g != 1.0).map(|g| g.to_bits()).collect();
            different.sort_unstable();
            different.dedup();
            let line = |l: &Look| if by_row { l.at / cols } else { l.at % cols };
            if different.len() >= GAINS && is_nearer(&|_, l| l.sum * gain[line(l)]) {
                return Some(format!(
                    "every element is nearer to the product with the scales of {name} {words} than to the right one"
                ));
            }
        }
    }
    // The sum as it leaves the unit, and behind its scales.
    let (unit_a, unit_b) = (units(job.operands.a()), units(b));
    let unit = |l: &Look| Some(unit_a.as_ref()?[l.at / cols] * unit_b.as_ref()?[l.at % cols]);
    for f in TYPES {
        let narrow = |x: f64| round(f, x, Rounding::NearestEven);
        if unit_a.is_some() && unit_b.is_some() && is_nearer(&|_, l| unit(l).map_or(0.0, |u| narrow(l.sum / u) * u)) {
            return Some(format!(
                "every element is nearer to a sum that is rounded to {f} before its scales than to the right one"
            ));
        }
        if job.operands.bias.is_some() && is_nearer(&|_, l| narrow(l.sum)) {
            return Some(format!(
                "every element is nearer to a product that is rounded to {f} before its bias than to the right one"
            ));
        }
    }
    // Parts of K.
    let (a, b) = (values(job.operands.a()), values(b));
    let k = a.ncols();
    (b.dim() == (cols, k) && a.nrows() == rows).then_some(())?;
    // Sums of the first products, at every end that a part may have.
    let ends = k.div_ceil(TILE) + 1;
    let some = |looks: &[Look]| {
        let lines: Vec<_> = looks.iter().map(|l| (a.row(l.at / cols), b.row(l.at % cols))).collect();
        let (mut sums, mut all) = ([0.0; TOGETHER], vec![0.0; looks.len() * ends]);
        for end in 1..ends {
            for x in (end - 1) * TILE..k.min(end * TILE) {
                sums.iter_mut().zip(&lines).for_each(|(sum, (a, b))| *sum += a[x] * b[x]);
            }
            sums.iter().enumerate().take(lines.len()).for_each(|(l, sum)| all[l * ends + end] = *sum);
        }
        all
    };
    let together: Vec<&[Look]> = looks.chunks(TOGETHER).collect();
    let prefix: Vec<f64> = parallel::collect(together.len(), |n| some(together[n])).concat();
    let parts = PARTS.into_iter().filter(|p| k >= TILE * p);
    let theories: Vec<(usize, Format, Joined)> =
        parts.flat_map(|parts| TYPES.map(|f| JOINED.map(|joined| (parts, f, joined)))).flatten().collect();
    let of = |(parts, f, join): &(usize, Format, Joined)| {
        let end = |p: usize| if p == *parts { ends - 1 } else { (k * p / parts).div_ceil(TILE).min(ends - 1) };
        let narrow = |x: f64| round(*f, x, Rounding::NearestEven);
        let joined = |n: usize, _: &Look| {
            let prefix = &prefix[n * ends..(n + 1) * ends];
            (0..*parts).fold(0.0, |sum, p| {
                let part = prefix[end(p + 1)] - prefix[end(p)];
                match join {
                    Joined::LastKept if p + 1 == *parts => sum + part,
                    Joined::Narrow => narrow(sum + narrow(part)),
                    _ => sum + narrow(part),
                }
            })
        };
        far(&joined)
    };
    let fars: Vec<f64> = theories.iter().map(of).collect();
    let mut best: Option<(f64, usize, Format, Joined)> = None;
    for (far, (parts, f, join)) in fars.into_iter().zip(theories) {
        if explains(far) && best.is_none_or(|b| far < b.0) {
            best = Some((far, parts, f, join));
        }
    }
    best.map(|(_, parts, f, join)| {
        let join = match join {
            Joined::Wide => String::new(),
            Joined::Narrow => format!(" and added in {f}"),
            Joined::LastKept => ", all but the last,".into(),
        };
        format!("every element is nearer to the sum of {parts} parts of K rounded to {f}{join} than to the right one")
    })
}

/// Whether squares of `far` where the right result leaves `right`, carried by so many elements, are no chance.
fn is_sure(far: f64, right: f64, carry: f64) -> bool {
    let sure = (THEORIES as f64 / DELTA).ln();
    far * NEARER < right && 2.0 * carry * (0.5 - far / right).powi(2) >= sure
}

fn values(operand: &Operand) -> Array2<f64> {
    match operand {
        Operand::Quantized(q) => q.dequantize_fast(),
        other => other.to_f64(),
    }
}

/// What one unit of a sum of codes is worth in each line, where it does not change along K.
fn units(operand: &Operand) -> Option<Vec<f64>> {
    let Operand::Quantized(q) = operand else { return None };
    let (grid, tile) = (q.granularity().grid(q.rows(), q.cols()), q.granularity().tile(q.rows(), q.cols()));
    let units: Vec<f64> = (0..q.rows()).map(|i| f64::from(q.scale_inv()[i / tile.0 * grid.1])).collect();
    (grid.1 == 1 && units.iter().all(|u| u.is_normal())).then_some(units)
}

/// What scales of lines are times when they are kept in 16 bits, in words.
fn gains(operand: &Operand) -> Option<Vec<(String, Vec<f64>)>> {
    let Operand::Quantized(q) = operand else { return None };
    let (grid, tile) = (q.granularity().grid(q.rows(), q.cols()), q.granularity().tile(q.rows(), q.cols()));
    (grid.1 == 1 && q.scale_format() == Format::F32).then_some(())?;
    let of = |q: &QTensor, f: Format, rounding: Rounding| -> Vec<f64> {
        let gain = |s: &f32| round(f, f64::from(*s), rounding) / f64::from(*s);
        (0..q.rows()).map(|i| gain(&q.scale_inv()[i / tile.0])).collect()
    };
    let ways = [(Rounding::NearestEven, "rounded"), (Rounding::TowardZero, "cut")];
    let all = TYPES.into_iter().flat_map(|f| ways.map(|(r, words)| (format!("{words} to {f}"), of(q, f, r))));
    Some(all.filter(|(_, g)| g.iter().all(|g| g.is_finite())).collect())
}

#[cfg(test)]
mod tests {
    use super::super::super::assay::build;
    use super::super::emulated::{Emulated, read};
    use super::super::runnable;
    use super::*;
    use crate::compare::OutFormat;
    use crate::quant::QTensorParts;
    use crate::{Granularity, Zero};
    use safetensors::Dtype;

    fn operand(granularity: Granularity, scale_format: Format, scale_inv: Vec<f32>) -> Operand {
        let (rows, cols) = (2, 64);
        let (codes, zero) = (vec![0x38; rows * cols], Zero::None);
        let parts =
            QTensorParts { format: Format::E4m3, rows, cols, codes, granularity, scale_format, scale_inv, zero, level: None };
        Operand::Quantized(QTensor::new(parts).unwrap())
    }

    /// 1 + 0.75·2^-7 is 1 + 2^-7 to the nearest in bf16, and 1 where it is cut.
    #[test]
    fn scales_of_rows_have_the_gains_of_their_sixteen_bits() {
        let s = 1.0 + 0.75 * 2f32.powi(-7);
        let found = gains(&operand(Granularity::Row, Format::F32, vec![1.0, s])).unwrap();
        let of = |words: &str| found.iter().find(|(w, _)| w == words).unwrap().1.clone();
        assert_eq!(of("rounded to bf16"), [1.0, (1.0 + 2f64.powi(-7)) / f64::from(s)]);
        assert_eq!(of("cut to bf16"), [1.0, 1.0 / f64::from(s)]);
        assert_eq!(of("rounded to f16"), [1.0, 1.0]);
        // Scales that change along K are no gain of a row, and those of eight bits have no more to lose.
        assert!(gains(&operand(Granularity::Group(32), Format::F32, vec![1.0; 4])).is_none());
        assert!(gains(&operand(Granularity::Row, Format::E8m0, vec![1.0, 2.0])).is_none());
    }

    /// What is found of a product whose elements are these, where the certain radius is 1e-3.
    fn found(o: &Emulated, actual: &dyn Fn(usize, usize, f64) -> f64) -> Option<String> {
        let built = build(&read(&o.bundle(&vec![0.0; o.m * o.n], Dtype::F32, ""))).unwrap();
        let ideal: Vec<f64> = built.ideal[0].d.iter().copied().collect();
        let actual: Vec<f64> = ideal.iter().enumerate().map(|(at, d)| actual(at / o.n, at % o.n, *d)).collect();
        let bound = Bound::from_radius(ideal, vec![1e-3; o.m * o.n], &OutFormat::high(Format::F32)).unwrap();
        find(&runnable(&built.job), o.m, o.n, &actual, &bound)
    }

    #[test]
    fn scales_of_lines_in_sixteen_bits_are_told_by_operand_type_and_rounding() {
        let o = Emulated::new(61, (32, 48, 64), true);
        for (f, rounding, words) in [
            (Format::Bf16, Rounding::NearestEven, "rounded to bf16"),
            (Format::Bf16, Rounding::TowardZero, "cut to bf16"),
            (Format::F16, Rounding::NearestEven, "rounded to f16"),
        ] {
            let gain = |s: f32| round(f, f64::from(s), rounding) / f64::from(s);
            let said = |name: &str| {
                Some(format!("every element is nearer to the product with the scales of {name} {words} than to the right one"))
            };
            assert_eq!(found(&o, &|i, _, d| d * gain(o.sa[i])), said("a"));
            assert_eq!(found(&o, &|_, j, d| d * gain(o.sb[j])), said("b"));
            // A gain of all of it is taken off before.
            assert_eq!(found(&o, &|i, _, d| 1.25 * d * gain(o.sa[i])), said("a"));
        }
        let cut = |s: f32| round(Format::Bf16, f64::from(s), Rounding::TowardZero) / f64::from(s);
        assert_eq!(found(&o, &|_, _, d| d), None);
        assert_eq!(found(&o, &|_, _, d| 1.01 * d), None, "all of it has one gain");
        // Errors that follow no scale: of one sign in one half of the columns.
        assert_eq!(found(&o, &|_, j, d| if j % 2 == 0 { d * 1.004 } else { d * 0.996 }), None);
        // As much again of something else leaves it no nearer.
        let mixed = |i: usize, j: usize, d: f64| d * cut(o.sa[i]) * if (i * 7 + j * 3) % 5 < 2 { 1.004 } else { 0.997 };
        assert_eq!(found(&o, &mixed), None);
        // A bias is added behind the scales: here it is hundreds of times the sums.
        let bias: Vec<f32> = (0..48).map(|j| 0.5 * (1 + j % 5) as f32).collect();
        let biased = Emulated { bias: Some(bias.clone()), ..Emulated::new(61, (32, 48, 64), true) };
        let behind = |i: usize, j: usize, d: f64| (d - f64::from(bias[j])) * cut(biased.sa[i]) + f64::from(bias[j]);
        assert!(found(&biased, &behind).is_some_and(|words| words.contains("scales of a cut to bf16")));
        // Twelve different gains are needed.
        let rows = |different: usize| {
            let mut o = Emulated::new(61, (32, 48, 64), true);
            let scales: Vec<f32> = o.sa.iter().map(|s| if cut(*s) == 1.0 { 1.001 * s } else { *s }).collect();
            o.sa = (0..32).map(|i| scales[i.min(different - 1)]).collect();
            o
        };
        for (different, some) in [(12, true), (11, false)] {
            let o = rows(different);
            assert_eq!(found(&o, &|i, _, d| d * cut(o.sa[i])).is_some(), some, "{different}");
        }
    }

    /// K = 128 in tiles of 32: three parts end after two tiles, after three and with the last.
    #[test]
    fn parts_of_k_in_sixteen_bits_are_told_by_their_number_and_type() {
        let o = Emulated::new(62, (16, 24, 128), false);
        let value = |code: u16| f64::from(half::f16::from_bits(code).to_f32());
        let part = |i: usize, j: usize, ks: std::ops::Range<usize>| -> f64 {
            ks.map(|k| value(o.a[i * 128 + k]) * value(o.b[j * 128 + k])).sum()
        };
        for (f, ends) in
            [(Format::Bf16, &[0, 64, 128][..]), (Format::Bf16, &[0, 64, 96, 128]), (Format::F16, &[0, 32, 64, 96, 128])]
        {
            let of = |i: usize, j: usize, _: f64| -> f64 {
                ends.windows(2).map(|e| round(f, part(i, j, e[0]..e[1]), Rounding::NearestEven)).sum()
            };
            let words = format!(
                "every element is nearer to the sum of {} parts of K rounded to {f} than to the right one",
                ends.len() - 1
            );
            assert_eq!(found(&o, &of), Some(words));
        }
        // All but the last part, which its block kept.
        let ends = [0, 32, 64, 96, 128];
        let kept = |i: usize, j: usize, _: f64| -> f64 {
            let narrow = |e: &[usize]| round(Format::Bf16, part(i, j, e[0]..e[1]), Rounding::NearestEven);
            ends[..4].windows(2).map(narrow).sum::<f64>() + part(i, j, 96..128)
        };
        let words =
            "every element is nearer to the sum of 4 parts of K rounded to bf16, all but the last, than to the right one";
        assert_eq!(found(&o, &kept).as_deref(), Some(words));
        // Each addition rounded as well: sixteen steps of bf16 in one of f32.
        for (f, ends) in [(Format::Bf16, &[0, 32, 64, 96, 128][..]), (Format::F16, &[0, 64, 96, 128])] {
            let narrow = |x: f64| round(f, x, Rounding::NearestEven);
            let of = |i: usize, j: usize, _: f64| -> f64 {
                ends.windows(2).fold(0.0, |sum, e| narrow(sum + narrow(part(i, j, e[0]..e[1]))))
            };
            let words = format!(
                "every element is nearer to the sum of {} parts of K rounded to {f} and added in {f} than to the right one",
                ends.len() - 1
            );
            assert_eq!(found(&o, &of), Some(words));
        }
        // Five parts have less than 32 products each: they are no theory.
        let ends = [0, 26, 52, 77, 103, 128];
        let five = |i: usize, j: usize, _: f64| -> f64 {
            ends.windows(2).map(|e| round(Format::Bf16, part(i, j, e[0]..e[1]), Rounding::NearestEven)).sum()
        };
        assert_eq!(found(&o, &five), None);
    }

    #[test]
    fn sums_that_are_rounded_before_scales_or_bias_are_told_by_their_type() {
        let o = Emulated { bias: Some((0..48).map(|j| 0.01 * j as f32).collect()), ..Emulated::new(63, (32, 48, 64), true) };
        let bias = |j: usize| f64::from(o.bias.as_ref().unwrap()[j]);
        let narrow = |f: Format, x: f64| round(f, x, Rounding::NearestEven);
        for f in TYPES {
            let unit = |i: usize, j: usize| f64::from(o.sa[i]) * f64::from(o.sb[j]);
            let before = |i: usize, j: usize, d: f64| narrow(f, (d - bias(j)) / unit(i, j)) * unit(i, j) + bias(j);
            let said = |what: &str| Some(format!("every element is nearer to a {what} than to the right one"));
            assert_eq!(found(&o, &before), said(&format!("sum that is rounded to {f} before its scales")));
            let behind = |_: usize, j: usize, d: f64| narrow(f, d - bias(j)) + bias(j);
            assert_eq!(found(&o, &behind), said(&format!("product that is rounded to {f} before its bias")));
        }
    }

    /// P ≤ exp(−2n(q − ½)²) for each of all theories, no more than once in 10⁹ tensors.
    #[test]
    fn what_is_nearer_is_sure_by_the_elements_that_carry_it() {
        let sure = (78.0 * 1e9f64).ln();
        assert_eq!(THEORIES, 78);
        for (far, right) in [(0.0, 1.0), (0.1, 1.0), (0.24, 1.0), (0.48, 2.0), (24.0, 100.0)] {
            let least = sure / (2.0 * (0.5 - far / right) * (0.5 - far / right));
            assert_eq!([0.999, 1.001].map(|by| is_sure(far, right, by * least)), [false, true], "{far} of {right}");
        }
        // A quarter is not four times nearer.
        assert_eq!([0.25, 0.3, 2.0].map(|far| is_sure(far, 1.0, 1e9)), [false; 3]);
    }
}
