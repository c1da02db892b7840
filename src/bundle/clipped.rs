//! Scales of a cast without a recipe that contradict the values: 0 or NaN for a block that holds numbers, or a scale for less than the block's
//! largest magnitude where other blocks are scaled for theirs.
//!
//! Without a recipe each code is judged by the stored scale, and a scale may be any: of an earlier step, of a calibration, a power of two. What
//! is held against one here no rule makes. With `r = amax / (scale_inv · max)`, which is 1 where a block is scaled for its own amax: as many blocks
//! at least have r = 1 to rounding as have r > 1, and each of these is scaled for a smaller magnitude that it holds, to rounding as well, or there are
//! [`LEAST`] of them without a limit in common. Nor may every block be scaled for its largest value, or for its largest negative one, where [`LEAST`]
//! of them have a larger magnitude of the other sign, nor [`LEAST`] blocks, and all there are, for the largest number of another format of 8 bits, which
//! these codes do not reach: r = 448/240 in e4m3fnuz. A rule that clips on purpose (a calibration, OCP's powers of two, scales of few bits, a largest
//! scale) makes other numbers.

use super::assay::Answer;
use super::{Bundle, casts};
use crate::compare::digits::apart;
use crate::fault::solve::segment::lines;
use crate::fault::{Class, Diagnosis, Finding};
use crate::job::Data;
use crate::op::Op;
use crate::quant::Zero;
use crate::{Format, Overflow, QTensor, Rounding, Tensor};

/// What division, multiplication and a reciprocal in f32 may be off, relative.
const NEAR: f64 = 1.0 / (1u64 << 20) as f64;
/// More than an amax of values that were rounded to 16 bits is off, relative.
const ABOUT: f64 = 1.0 / 64.0;
/// Blocks that are scaled for their own amax, at least.
const LEAST: usize = 3;

/// What is known of one block.
#[derive(Clone, Copy, Default)]
struct Block {
    unit: f64,
    /// The largest magnitude, where it is first, and whether one of the block is what the scale is for.
    amax: f64,
    at: usize,
    is_for: bool,
    /// The largest value, and the largest of the values with their signs changed.
    ends: [f64; 2],
}

fn blocks(x: &Tensor, q: &QTensor) -> Vec<Block> {
    let (cols, max) = (q.cols(), q.format().max_finite());
    let mut all: Vec<Block> = (0..q.scale_inv().len()).map(|s| Block { unit: q.affine(s).unit, ..Block::default() }).collect();
    for (at, x) in x.data().iter().enumerate() {
        let (b, v) = (&mut all[q.scale_index(at / cols, at % cols)], f64::from(x.abs()));
        if v > b.amax {
            (b.amax, b.at) = (v, at);
        }
        b.ends = [b.ends[0].max(f64::from(*x)), b.ends[1].max(-f64::from(*x))];
        b.is_for |= v > 0.0 && (b.unit * max / v - 1.0).abs() <= NEAR;
    }
    all
}

/// The values and codes of a cast.
fn values(bundle: &Bundle) -> Option<(&Tensor, &QTensor)> {
    let (Data::Quantized(q), Some(x)) = (&bundle.out.d, &bundle.a.high) else { return None };
    matches!(bundle.meta.op, Op::Cast | Op::CastTranspose).then_some((x, q))
}

/// Whether the scales of these codes are held against the values.
fn is_held(x: &Tensor, q: &QTensor) -> bool {
    let signed = q.format().spec().bits <= 8 && q.format().min_finite() < 0.0 && matches!(q.zero(), Zero::None);
    signed && (x.rows(), x.cols()) == (q.rows(), q.cols()) && x.data().iter().all(|x| x.is_finite())
}

/// Row and column of a block's largest magnitude.
fn place(b: &Block, q: &QTensor) -> String {
    format!("({}, {})", b.at / q.cols(), b.at % q.cols())
}

/// Blocks whose scale is 0 though they hold numbers.
fn zeros(all: &[Block], q: &QTensor) -> Option<String> {
    let max = q.format().max_finite();
    // The least scale that is stored as more than 0, with room for its rounding.
    let least = 2.0 * q.scale_format().decode(1) * q.global_scale_inv().map_or(1.0, f64::from).abs();
    let zeros: Vec<&Block> = all.iter().filter(|b| b.unit == 0.0 && b.amax / max > least).collect();
    let first = zeros.first()?;
    let [amax, _] = apart([first.amax, 0.0]);
    Some(format!(
        "scale_inv is 0 for {} of {} blocks that hold numbers: {amax} at {} is read back as 0",
        zeros.len(),
        all.len(),
        place(first, q)
    ))
}

/// Blocks whose scale is NaN though they hold numbers alone.
fn nans(all: &[Block], q: &QTensor) -> Option<String> {
    let nans: Vec<&Block> = all.iter().filter(|b| b.unit.is_nan() && b.amax > 0.0).collect();
    let [amax, _] = apart([nans.first()?.amax, 0.0]);
    Some(format!(
        "scale_inv is NaN for {} of {} blocks that hold numbers: {amax} at {}",
        nans.len(),
        all.len(),
        place(nans[0], q)
    ))
}

/// Scales beyond the largest that their format has, which became NaN.
pub(super) fn overflown(bundle: &Bundle) -> Option<Finding> {
    let (x, q) = values(bundle).filter(|(_, q)| q.scale_inv().iter().any(|s| s.is_nan()))?;
    is_held(x, q).then_some(())?;
    let all = blocks(x, q);
    let (largest, global) = (q.scale_format().max_finite(), q.global_scale_inv().map_or(1.0, f64::from).abs());
    let is = |b: &Block| b.unit.is_nan() && b.amax > 0.0;
    let wanted = |b: &Block| b.amax / (q.format().max_finite() * global);
    let least = all.iter().filter(|b| is(b)).map(wanted).reduce(f64::min).filter(|w| *w > largest)?;
    let words = format!(
        "{} of {} scales are NaN: what their blocks want, {} and more, is beyond {largest}, the largest of {}, and is not clamped to it",
        all.iter().filter(|b| is(b)).count(),
        all.len(),
        apart([least, largest])[0],
        q.scale_format()
    );
    Some(Finding::solved(Class::OverflowWrap, "out.scale_overflow", words))
}

/// Blocks that are scaled for a part of themselves, beside others that are not.
fn parts(all: &[Block], q: &QTensor) -> Option<String> {
    let max = q.format().max_finite();
    let ratio = |b: &Block| b.amax / (b.unit * max);
    let clipped: Vec<&Block> = all.iter().filter(|b| ratio(b) > 1.0 + NEAR).collect();
    let own = all.iter().filter(|b| (ratio(b) - 1.0).abs() <= NEAR).count();
    let first = clipped.first()?;
    let mut limits: Vec<u64> = clipped.iter().map(|b| b.unit.to_bits()).collect();
    limits.sort_unstable();
    limits.dedup();
    // Scales that are kept at a largest one have it in common.
    let far = clipped.iter().all(|b| ratio(b) > 1.0 + ABOUT);
    let no_limit = clipped.len() >= LEAST && 2 * limits.len() > clipped.len() && far;
    let of_part = clipped.iter().all(|b| b.is_for);
    // Integers are clipped on purpose.
    let proved =
        q.format().is_float() && q.scale_format() == Format::F32 && own >= LEAST.max(clipped.len()) && (of_part || no_limit);
    let [amax, scaled] = apart([first.amax, first.unit * max]);
    proved.then(|| {
        format!(
            "{} of {} blocks are scaled for less than their amax, {own} for theirs: {amax} at {} in one that is scaled for {scaled}",
            clipped.len(),
            all.len(),
            place(first, q)
        )
    })
}

/// Blocks that are all scaled for their largest value of one sign.
fn signed(all: &[Block], q: &QTensor) -> Option<String> {
    let max = q.format().max_finite();
    let known = || all.iter().filter(|b| b.amax > 0.0);
    let of = |sign: usize| {
        let other: Vec<&Block> = known().filter(|b| b.amax > b.ends[sign] * (1.0 + ABOUT)).collect();
        (other.len() >= LEAST && known().all(|b| (b.unit * max / b.ends[sign] - 1.0).abs() <= NEAR)).then_some(other)
    };
    let (sign, other) = [0, 1].into_iter().find_map(|s| Some((["value", "negative value"][s], of(s)?)))?;
    let [amax, scaled] = apart([other[0].amax, other[0].unit * max]);
    let place = place(other[0], q);
    Some(format!(
        "all {} blocks are scaled for their largest {sign}, {} of which have a larger magnitude of the other sign: {amax} at {place} in one that is \
         scaled for {scaled}",
        all.len(),
        other.len()
    ))
}

/// Whether all blocks, and there are some, are scaled for the largest number of a format.
fn all_scaled_for(all: &[Block], f: Format) -> bool {
    let known = || all.iter().filter(|b| b.amax > 0.0);
    known().nth(LEAST - 1).is_some() && known().all(|b| (b.unit * f.max_finite() / b.amax - 1.0).abs() <= NEAR)
}

/// FP8 formats that go further than one of 8 bits.
fn wider(own: Format) -> impl Iterator<Item = Format> {
    [Format::E4m3, Format::E5m2].into_iter().filter(move |f| own.is_fp8() && f.max_finite() > own.max_finite())
}

/// Blocks that are all scaled for the largest number of another format, beyond that of their codes.
fn other_maximum(all: &[Block], q: &QTensor) -> Option<String> {
    let max = q.format().max_finite();
    let other = wider(q.format()).find(|f| all_scaled_for(all, *f))?;
    Some(format!(
        "all {} blocks are scaled for the largest number of {other}, {}: the largest of {} is {max}, so that magnitudes beyond {:.3} of a block's amax \
         saturate",
        all.len(),
        other.max_finite(),
        q.format(),
        max / other.max_finite()
    ))
}

/// What is wrong, with the first such block.
fn of(x: &Tensor, q: &QTensor) -> Option<String> {
    let all = if is_held(x, q) { blocks(x, q) } else { return None };
    let told = zeros(&all, q).or_else(|| nans(&all, q)).or_else(|| parts(&all, q));
    told.or_else(|| signed(&all, q)).or_else(|| other_maximum(&all, q))
}

/// What is wrong with the scales of a cast without a recipe.
pub(super) fn contradiction(bundle: &Bundle) -> Option<String> {
    values(bundle).filter(|_| bundle.meta.recipe.is_none()).and_then(|(x, q)| of(x, q))
}

/// The blocks whose scale is 0 though they hold numbers.
pub(super) fn explain(bundle: &Bundle) -> Option<Finding> {
    let (x, q) = values(bundle).filter(|(x, q)| is_held(x, q))?;
    let all = blocks(x, q);
    zeros(&all, q)?;
    let grid = q.granularity().grid(q.rows(), q.cols());
    let (mut rows, mut groups) = (vec![false; grid.0], vec![false; grid.1]);
    let is_zero = |(_, b): &(usize, &Block)| b.unit == 0.0 && b.amax > 0.0;
    all.iter().enumerate().filter(is_zero).for_each(|(s, _)| (rows[s / grid.1], groups[s % grid.1]) = (true, true));
    let words = format!("scale_inv of rows {}, groups {} of the grid is 0: it is not written", lines(&rows), lines(&groups));
    Some(Finding::solved(Class::SilentSkip, "out.scales_unwritten", words))
}

/// Codes that are within every bound: what their scales are of, where these contradict the values. A diagnosis without a finding has asked
/// for that already.
pub(super) fn named(bundle: &Bundle, found: Option<&Diagnosis>) -> Option<Finding> {
    (found.is_none() && contradiction(bundle).is_some()).then(|| casts::explain(bundle))?
}

/// FP8 formats that give the same bytes other numbers: OCP's, and those whose exponent's bias is one more.
const TWINS: [(Format, Format); 4] = [
    (Format::E4m3Fnuz, Format::E4m3),
    (Format::E5m2Fnuz, Format::E5m2),
    (Format::E4m3, Format::E4m3Fnuz),
    (Format::E5m2, Format::E5m2Fnuz),
];
/// Codes that are looked at before all are, and the share that has to be the other format's.
const FIRST: usize = 4096;
const SHARE: f64 = 0.999;

/// Codes that are those of the other format with the same name, under the stored scales. The same byte is mostly another power of two of one number:
/// a scale that is off by it would give these codes as well, but for what saturates and for −0, or for blocks that are scaled for the other's maximum.
pub(super) fn of_a_twin(bundle: &Bundle) -> Option<Finding> {
    let (x, q) = values(bundle)?;
    let (_, other) = TWINS.into_iter().find(|(f, _)| *f == q.format())?;
    is_held(x, q).then_some(())?;
    let units: Vec<f64> = (0..q.scale_inv().len()).map(|s| q.affine(s).unit).collect();
    let is = |f: Format, by: f64, at: usize| {
        let y = by * f64::from(x.data()[at]) / units[q.scale_index(at / q.cols(), at % q.cols())];
        f.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8 == q.codes()[at]
    };
    let share = |n: usize, f: Format| (0..n).filter(|at| is(f, 1.0, *at)).count() as f64 / n.max(1) as f64;
    let n = q.codes().len();
    (share(n.min(FIRST), other) >= SHARE && share(n.min(FIRST), q.format()) < 0.5 && share(n, other) >= SHARE).then_some(())?;
    // The number of a byte here over that there: with a scale off by it the same codes stand for the same values.
    let one = other.encode(1.0, Rounding::NearestEven, Overflow::Saturate);
    let by = q.format().decode(one);
    let alone = (0..n).filter(|at| is(other, 1.0, *at) && !is(q.format(), by, *at)).count();
    let maximum = || other.max_finite() != q.format().max_finite() && all_scaled_for(&blocks(x, q), other);
    (alone >= LEAST || maximum()).then_some(())?;
    let words = format!("the codes are those of {other}, not of {}: the same byte is another number there", q.format());
    Some(Finding::solved(Class::BitsReinterpreted, "out.twin", words))
}

/// Blocks that are scaled for the largest number of another format.
pub(super) fn of_another_format(bundle: &Bundle) -> Option<Finding> {
    let (x, q) = values(bundle).filter(|(_, q)| bundle.meta.recipe.is_none() && wider(q.format()).next().is_some())?;
    is_held(x, q).then_some(())?;
    Some(Finding::solved(Class::RangeRule, "out.range", other_maximum(&blocks(x, q), q)?))
}

/// Whether all wrong elements hold one number: an end of the codes' range, say, which tells nothing of what was clamped.
pub fn is_one_number(found: &Answer) -> bool {
    let part = found.judgement();
    let (bound, certain) = (&part.bound, part.bound.certain());
    let is_wrong = |at: &usize| {
        let ((low, high), x, r) = (bound.out().cell(*at, part.actual[*at]), bound.ideal()[*at], certain[*at]);
        !(low - r <= x && x <= high + r)
    };
    let mut wrong = (0..part.actual.len()).filter(is_wrong).map(|at| part.actual[at]);
    wrong.next().is_some_and(|first| wrong.all(|x| x == first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::quant::QTensorParts;

    /// Rows of 32 codes that are scaled for these.
    fn rows_of_32(f: Format, scaled: &[f32]) -> QTensor {
        QTensor::new(QTensorParts {
            format: f,
            rows: scaled.len(),
            cols: 32,
            codes: vec![0; 32 * scaled.len()],
            granularity: Granularity::Row,
            scale_format: Format::F32,
            scale_inv: scaled.iter().map(|s| s / f.max_finite() as f32).collect(),
            zero: Zero::None,
            level: None,
        })
        .unwrap()
    }

    /// Four rows of 32 with these largest magnitudes, beside 1.5, scaled for these.
    fn said(f: Format, amax: [f32; 4], scaled: [f32; 4]) -> Option<String> {
        let data = (0..128).map(|at| if at % 32 == 5 { -amax[at / 32] } else { 1.5 / (1 + at % 3) as f32 }).collect();
        of(&Tensor::new(Format::F32, 4, 32, data).unwrap(), &rows_of_32(f, &scaled))
    }

    #[test]
    fn a_scale_for_a_part_of_its_block_is_told_by_the_others() {
        let amax = [3.0, 5.0, 7.0, 2.5];
        let part = said(Format::E4m3, amax, [3.0, 1.5, 7.0, 2.5]).unwrap();
        assert_eq!(
            part,
            "1 of 4 blocks are scaled for less than their amax, 3 for theirs: 5 at (1, 5) in one that is scaled for 1.5"
        );
        // For a number that the block does not hold; for more; beside too few that follow the rule; integers, which are clipped on purpose.
        for scaled in [[3.0, 1.4, 7.0, 2.5], [3.0, 5.5, 7.0, 2.5], [3.0, 1.5, 7.0, 1.5], [3.1, 1.5, 7.0, 2.5]] {
            assert_eq!(said(Format::E4m3, amax, scaled), None, "{scaled:?}");
        }
        assert_eq!(said(Format::Int8, amax, [3.0, 1.5, 7.0, 2.5]), None);
        // Of equal ones the first is shown: the third row is 0.75, 0.5, 1.5 again and again, and scaled for 0.75.
        let words = said(Format::E4m3, [3.0, 5.0, 1.5, 2.5], [3.0, 5.0, 0.75, 2.5]).unwrap();
        assert!(words.contains("1.5 at (2, 2) in one that is scaled for 0.75"), "{words}");
        assert_eq!(said(Format::E4m3, amax, amax), None);
    }

    /// Eight rows of e4m3 that hold 1 … 8 and are scaled for these.
    #[test]
    fn scales_for_less_than_an_amax_without_a_limit_in_common_are_told() {
        let said = |scaled: [f32; 8]| {
            let data = (0..256).map(|at| (at / 32 + 1) as f32 / (1 + at % 32) as f32).collect();
            of(&Tensor::new(Format::F32, 8, 32, data).unwrap(), &rows_of_32(Format::E4m3, &scaled))
        };
        let wrong = said([1.0, 2.0, 3.0, 4.0, 5.0, 4.7, 3.1, 6.6]);
        let words =
            "3 of 8 blocks are scaled for less than their amax, 5 for theirs: 6 at (5, 0) in one that is scaled for 4.7";
        assert_eq!(wrong.unwrap(), words);
        // One limit for all of them; too few; as a rounding of amax to bf16 makes them.
        for scaled in [
            [1.0, 2.0, 3.0, 4.0, 5.0, 4.7, 4.7, 4.7],
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 3.1, 6.6],
            [1.0, 2.0, 3.0, 4.0, 5.0, 5.99, 6.98, 7.97],
        ] {
            assert_eq!(said(scaled), None, "{scaled:?}");
        }
    }

    #[test]
    fn scales_for_one_sign_are_told_of_integers_too() {
        // Rows of −3, −5, 7 and −2.5 at most, beside 1.5.
        let data = (0..128).map(|at| match at % 32 {
            5 => [-3.0, -5.0, 7.0, -2.5][at / 32],
            _ => 1.5 / (1 + at % 3) as f32,
        });
        let x = Tensor::new(Format::F32, 4, 32, data.collect()).unwrap();
        for f in [Format::Int8, Format::E4m3] {
            let words = of(&x, &rows_of_32(f, &[1.5, 1.5, 7.0, 1.5])).unwrap();
            assert!(
                words.ends_with("larger magnitude of the other sign: 3 at (0, 5) in one that is scaled for 1.5"),
                "{words}"
            );
            // One for its own; by −128; for half of it.
            for scaled in [[1.5, 1.5, 7.0, 2.5], [3.0, 5.0, 7.0, 2.5], [1.5, 2.5, 3.5, 1.25], [1.5, 1.5, 7.1, 1.5]] {
                assert_eq!(of(&x, &rows_of_32(f, &scaled)), None, "{scaled:?}");
            }
        }
    }

    #[test]
    fn scales_for_the_largest_number_of_another_format_are_told() {
        let amax = [3.0, 5.0, 7.0, 2.5];
        let by = |f: Format, factor: f32| said(f, amax, amax.map(|a| a * factor));
        let words = by(Format::E4m3Fnuz, 240.0 / 448.0).unwrap();
        assert!(
            words.starts_with("all 4 blocks are scaled for the largest number of e4m3, 448: the largest of e4m3fnuz is 240"),
            "{words}"
        );
        // Half the range is left on purpose; other codes; one block that is scaled for its own.
        for (f, factor) in
            [(Format::E4m3Fnuz, 448.0 / 240.0), (Format::E4m3Fnuz, 0.5), (Format::E4m3, 240.0 / 448.0), (Format::Int8, 0.5)]
        {
            assert_eq!(by(f, factor), None, "{f} {factor}");
        }
        assert_eq!(
            said(Format::E4m3Fnuz, amax, [3.0, 5.0, 7.0, 2.5].map(|a| if a == 7.0 { 7.5 } else { a * 240.0 / 448.0 })),
            None
        );
    }

    #[test]
    fn a_scale_of_zero_is_that_of_a_block_without_numbers() {
        let words = said(Format::E5m2, [3.0, 5.0, 7.0, 2.5], [3.0, 5.0, 0.0, 2.5]).unwrap();
        assert_eq!(words, "scale_inv is 0 for 1 of 4 blocks that hold numbers: 7 at (2, 5) is read back as 0");
        let zeros = Tensor::new(Format::F32, 1, 32, vec![0.0; 32]).unwrap();
        let tiny = Tensor::new(Format::F32, 1, 32, vec![1e-44; 32]).unwrap();
        for x in [zeros, tiny] {
            assert_eq!(of(&x, &rows_of_32(Format::E4m3, &[0.0])), None);
        }
    }

    #[test]
    fn scales_of_nan_for_numbers_are_told() {
        let amax = [3.0, 5.0, 7.0, 2.5];
        assert_eq!(said(Format::E4m3, amax, [3.0, 5.0, 7.0, 2.5]), None);
        let words = said(Format::E4m3, amax, [3.0, f32::NAN, 7.0, f32::NAN]).unwrap();
        assert_eq!(words, "scale_inv is NaN for 2 of 4 blocks that hold numbers: 5 at (1, 5)");
        // A block of zeros has nothing to be scaled for.
        let zeros = Tensor::new(Format::F32, 4, 32, vec![0.0; 128]).unwrap();
        assert_eq!(of(&zeros, &rows_of_32(Format::E4m3, &[f32::NAN; 4])), None);
    }
}
