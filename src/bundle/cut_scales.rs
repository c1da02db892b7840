//! Integer scales of sub-blocks of which some bits are lost: they are unpacked as if they had fewer, less another zero, and often from the places that
//! such scales would have.
//!
//! ```text
//! solved scale of sub-block p = d·(bits of I(m(p)) − z)      d: the number of the super-block, I + bias ≥ 0 as it is packed, m: one place in all super-blocks
//! ```

use super::casts::Named;
use crate::QTensor;
use crate::fault::Class;
use itertools::Itertools;

/// Sub-blocks of a super-block.
const SIZES: [usize; 3] = [16, 8, 32];
/// Super-blocks that say a sub-block's place, bits that they say of it, and wrong groups, at least.
const TOLD: usize = 3;
const BITS: usize = 12;
const WRONG: usize = 16;
/// What an integer is stored less, and how many there may be.
const BIAS: [i64; 2] = [32, 0];
const MOST: i64 = 64;
/// Places in words, at most.
const SHOWN: usize = 6;

/// Where the integers of sub-blocks are read, of n: words, HALF for n / 2, and which sub-block's it is.
type Read = (&'static str, fn(usize, usize) -> usize);
const READS: [Read; 3] = [
    ("each from its own place", |p, _| p),
    (
        "sub-block p takes that of p / 2 + HALF·(p mod 2), nibble (p mod 2) of byte p / 2, where its own is nibble (p / HALF) of byte (p mod HALF)",
        |p, n| p / 2 + p % 2 * (n / 2),
    ),
    (
        "sub-block p takes that of 2·(p mod HALF) + p / HALF, nibble (p / HALF) of byte (p mod HALF), where its own is nibble (p mod 2) of byte p / 2",
        |p, n| p % (n / 2) * 2 + p / (n / 2),
    ),
];

/// What is said of solved scales, low and high of every group of a grid of `cols` columns. `None`: no such pack.
pub fn explain(solved: &[Option<(f64, f64)>], q: &QTensor, cols: usize) -> Option<Named> {
    let stored: Vec<i64> = q.scale_inv().iter().map(|s| (s.fract() == 0.0).then_some(*s as i64)).collect::<Option<Vec<_>>>()?;
    let (least, most) = (*stored.iter().min()?, *stored.iter().max()?);
    (q.level().is_some() && stored.len() == solved.len()).then_some(())?;
    // The integer that each group was given.
    let given = |g: usize| {
        let ((low, high), d) = (solved[g]?, f64::from(q.over(g).0));
        let k = (0.5 * (low + high) / d).round();
        (d != 0.0
            && (high - low).abs() < 0.5 * d.abs()
            && low.min(high) - 1e-5 * d.abs() <= k * d
            && k * d <= low.max(high) + 1e-5 * d.abs())
        .then_some(k as i64)
    };
    let given: Vec<Option<i64>> = (0..stored.len()).map(given).collect();
    // Where groups say something, it is an integer.
    let is_one = |g: usize| given[g].is_some() || solved[g].is_none();
    ((0..stored.len()).all(is_one)).then_some(())?;
    let wrong = (0..stored.len()).filter(|g| given[*g].is_some_and(|k| k != stored[*g])).count();
    (wrong >= WRONG).then_some(())?;
    let bias = BIAS.into_iter().find(|b| least + b >= 0 && most + b < MOST && (*b == 0 || least < 0))?;
    let bits = i64::BITS - (most + bias).leading_zeros();
    for n in SIZES.into_iter().filter(|n| cols.is_multiple_of(*n)) {
        let blocks = stored.len() / n;
        for (kept, upper) in (2..bits).rev().flat_map(|k| [(k, false), (k, true)]) {
            let part = |g: usize| {
                let raw = stored[g] + bias;
                if upper { raw >> (bits - kept) } else { raw & ((1 << kept) - 1) }
            };
            for zero in [bias, 1 << (kept - 1), 0].into_iter().unique() {
                let is = |p: usize, m: usize| (0..blocks).all(|b| given[b * n + p].is_none_or(|k| k == part(b * n + m) - zero));
                let place = |p: usize| {
                    let told = (0..blocks).filter(|b| given[b * n + p].is_some()).count();
                    told >= TOLD && told * kept as usize >= BITS && (0..n).any(|m| is(p, m))
                };
                // The first of them refuses most.
                if !(0..n).all(place) {
                    continue;
                }
                let read = READS.iter().find(|(_, at)| (0..n).all(|p| is(p, at(p, n))));
                let how = match read {
                    Some((words, _)) => words.replace("HALF", &(n / 2).to_string()),
                    None => {
                        let of = |p: usize| Some(format!("{p} has that of {}", (0..n).find(|m| is(p, *m))?));
                        (0..n).filter(|p| !is(*p, *p)).take(SHOWN).filter_map(of).collect::<Vec<_>>().join(", ")
                    }
                };
                let which = if upper { "upper" } else { "lower" };
                let words = format!(
                    "of the {bits}-bit integer scales of every {n} sub-blocks the {which} {kept} bits alone are used, less {zero} where they are stored with {bias} \
                     more: {how}"
                );
                return Some((Class::ScaleIndex, "a.cut_scales", words));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{Level, QTensorParts, Zero};
    use crate::{Format, Granularity};

    const BLOCKS: usize = 10;

    /// Six-bit integers from −32 on, of super-blocks of 16.
    fn integer(g: usize) -> i64 {
        ((g * 7919 + 101) % 1009 % 64) as i64 - 32
    }

    /// What is said where sub-block p of super-block b is given this integer.
    fn said(given: &dyn Fn(usize, usize) -> i64) -> String {
        let groups = BLOCKS * 16;
        let q = QTensor::new(QTensorParts {
            format: Format::Int8,
            rows: BLOCKS / 2,
            cols: 2 * 16 * 16,
            codes: vec![1; groups * 16],
            granularity: Granularity::Group(16),
            scale_format: Format::F16,
            scale_inv: (0..groups).map(|g| integer(g) as f32).collect(),
            zero: Zero::None,
            level: Some(Level {
                granularity: Granularity::Group(16),
                format: Format::F16,
                scale_inv: (0..BLOCKS).map(|b| (3 + b) as f32 / 256.0).collect(),
                zero: None,
            }),
        })
        .unwrap();
        let solved: Vec<Option<(f64, f64)>> = (0..groups)
            .map(|g| {
                let y = given(g / 16, g % 16) as f64 * f64::from(q.over(g).0);
                // One that has codes of 0 alone says nothing.
                (g % 37 != 0).then_some((y - 1e-9, y + 1e-9))
            })
            .collect();
        explain(&solved, &q, 32).map(|f| f.2).unwrap_or_default()
    }

    #[test]
    fn integers_that_lost_their_upper_bits_are_told() {
        let cut = |b: usize, p: usize| (integer(16 * b + p) + 32) & 15;
        let words = said(&|b, p| cut(b, p / 2 + p % 2 * 8) - 8);
        assert!(
            words.starts_with("of the 6-bit integer scales of every 16 sub-blocks the lower 4 bits alone are used, less 8 where they are stored with 32 more"),
            "{words}"
        );
        assert!(words.contains("nibble (p mod 2) of byte p / 2"), "{words}");
        let words = said(&|b, p| cut(b, p) - 32);
        assert!(words.contains("less 32 where") && words.ends_with("each from its own place"), "{words}");
        let words = said(&|b, p| (integer(16 * b + p) + 32) >> 2);
        assert!(words.contains("the upper 4 bits alone are used, less 0"), "{words}");
        let words = said(&|b, p| cut(b, 15 - p) - 8);
        assert!(words.contains("0 has that of 15, 1 has that of 14"), "{words}");
        assert_eq!(said(&|b, p| integer(16 * b + p)), "", "they are right");
        assert_eq!(said(&|b, p| ((b * 37 + p * 11) % 13) as i64 - 6), "", "of no scale");
    }
}
