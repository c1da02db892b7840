//! Codes of an affine cast that are chosen with the scale and the zero point as they were computed, where what is stored of these is rounded or cut.
//!
//! ```text
//! s = (largest − least)/span, z = least in f32  ──►  code = round((x − z)/s)          stored: s and z in 16 bits, which other codes belong to
//! ```

use super::Bundle;
use super::casts::Named;
use crate::fault::{Class, Finding};
use crate::job::Data;
use crate::op::Op;
use crate::tensor::round_to;
use crate::{Format, QTensor, Tensor, Zero};

/// The share of codes that the computed numbers have to make, and codes that the stored ones make otherwise, at least.
const SHARE: f64 = 0.998;
/// The share of the codes that the stored numbers do not make: a fault of a few codes lies within what is left of all.
const OF_OTHERS: f64 = 0.98;
const LEAST: usize = 8;
/// Codes that refuse a rule before all are asked.
const FEW: usize = 1024;
/// What steps in f32 may be off, in steps of the code.
const NEAR: f64 = 1.0 / (1u64 << 16) as f64;
/// How far a stored scale may be from the computed one, relative: two roundings of bf16.
const SAME: f64 = 1.0 / 64.0;

/// A scale, and what is added to a code times it.
type Line = (f32, f32);
/// Words, and the line from the least and the largest value and the codes' span.
type Rule = (&'static str, fn(f32, f32, f32) -> Line);
const RULES: [Rule; 3] = [
    ("the range of each group", |low, high, span| ((high - low) / span, low)),
    ("the range of each group and 0", |low, high, span| ((high.max(0.0) - low.min(0.0)) / span, low.min(0.0))),
    // MLX: the end of the larger magnitude is kept, and 0 is made a code.
    ("the range of each group, its end of the larger magnitude kept and 0 made a code", |low, high, span| {
        let s = ((high - low) / span).max(1e-7);
        let (s, edge) = if low.abs() > high.abs() { (s, low) } else { (-s, high) };
        let whole = (edge / s).round_ties_even();
        if whole == 0.0 { (s, 0.0) } else { (edge / whole, edge) }
    }),
];

/// What is stored of the numbers that made the codes. `None`: no affine cast, or others made them.
pub fn explain(bundle: &Bundle) -> Option<Finding> {
    let Data::Quantized(q) = &bundle.out.d else { return None };
    let x = bundle.a.high.as_ref().filter(|x| (x.rows(), x.cols()) == (q.rows(), q.cols()))?;
    (bundle.meta.op == Op::Cast && q.format().is_integer() && q.level().is_none()).then_some(())?;
    let (class, variant, words) = chosen(x, q)?;
    Some(Finding::solved(class, variant, words))
}

fn chosen(x: &Tensor, q: &QTensor) -> Option<Named> {
    let (f, cols, n) = (q.format(), q.cols(), q.codes().len());
    let (least, most) = (f.min_finite(), f.max_finite());
    // The code whose value an additive zero point is.
    let minus = match q.zero() {
        Zero::Additive { mid, .. } => f64::from(*mid),
        Zero::Integer(_) => 0.0,
        Zero::None => return None,
    };
    let mut ends = vec![(f32::INFINITY, f32::NEG_INFINITY); q.scale_inv().len()];
    for (at, v) in x.data().iter().enumerate() {
        let e = &mut ends[q.scale_index(at / cols, at % cols)];
        *e = (e.0.min(*v), e.1.max(*v));
    }
    let value = |at: usize| f.decode(u32::from(q.codes()[at]));
    let code = |y: f64| y.round_ties_even().clamp(least, most);
    let by_stored = |at: &usize| {
        let y = q.affine(q.scale_index(at / cols, at % cols)).steps(f64::from(x.data()[*at]));
        code(y - NEAR) == value(*at) || code(y + NEAR) == value(*at)
    };
    let others = || (0..n).filter(|at| !by_stored(at));
    others().nth(LEAST - 1)?;
    RULES.iter().find_map(|(rule, of)| {
        let lines: Vec<Line> = ends.iter().map(|(low, high)| of(*low, *high, (most - least) as f32)).collect();
        // The least code is that of z; or a zero point that is rounded to a code is added.
        let y = |at: usize| {
            let g = q.scale_index(at / cols, at % cols);
            let (s, z) = (f64::from(lines[g].0), f64::from(lines[g].1));
            let x = f64::from(x.data()[at]);
            match q.zero() {
                Zero::Integer(zero) => (x / s, f64::from(zero[g])),
                _ => ((x - z) / s + least, 0.0),
            }
        };
        let is = |at: &usize| {
            let (y, zero) = y(*at);
            [y - NEAR, y + NEAR].iter().any(|y| (y.round_ties_even() + zero).clamp(least, most) == value(*at))
        };
        let made = |step: usize| (0..n).step_by(step).filter(is).count() as f64 >= SHARE * n.div_ceil(step) as f64;
        let of_others = || {
            let (hit, all) = others().fold((0usize, 0usize), |(hit, all), at| (hit + usize::from(is(&at)), all + 1));
            hit as f64 >= OF_OTHERS * all as f64
        };
        (made(n.div_ceil(FEW)) && of_others() && made(1)).then_some(())?;
        // Roundings of the computed numbers, not others.
        let near = |(g, (s, _)): (usize, &Line)| (f64::from(q.scale_inv()[g]) / f64::from(*s) - 1.0).abs() <= SAME || *s == 0.0;
        lines.iter().enumerate().all(near).then_some(())?;
        let stored: Vec<f32> = q.scale_inv().to_vec();
        let computed: Vec<f32> = lines.iter().map(|l| l.0).collect();
        let scales = how(&computed, &stored);
        let zeros = match q.zero() {
            Zero::Additive { zero, .. } => {
                // Where codes have a middle the zero point is the value of that code.
                let shift = (minus - least) as f32;
                let computed: Vec<f32> = lines.iter().map(|(s, z)| z + shift * s).collect();
                Some(how(&computed, zero))
            }
            _ => None,
        };
        // What is stored as it is computed chooses no other code.
        (scales != EXACT || zeros.as_ref().is_some_and(|z| z != EXACT)).then_some(())?;
        let both = match zeros {
            Some(zeros) if zeros == scales => format!("the scales and zero points stored are these {scales}"),
            Some(zeros) => format!("the scales stored are these {scales}, the zero points {zeros}"),
            None => format!("the scales stored are these {scales}"),
        };
        let wrong = others().count();
        let words = format!(
            "codes are chosen with the scales and zero points as they are computed in f32, of {rule}; {both}: {wrong} codes are not the nearest by what is stored"
        );
        Some((Class::ScaleRerounded, "out.exact_scale", words))
    })
}

const EXACT: &str = "as they are";

/// How numbers become what is stored of them.
fn how(computed: &[f32], stored: &[f32]) -> String {
    let is = |of: &dyn Fn(f32) -> f32| {
        computed.iter().zip(stored).all(|(c, s)| of(*c) == *s || of(next(*c, 1)) == *s || of(next(*c, -1)) == *s)
    };
    let cut = |bits: u32| move |x: f32| f32::from_bits(x.to_bits() & !((1 << bits) - 1));
    let ways: [(&str, &dyn Fn(f32) -> f32); 5] = [
        (EXACT, &|x| x),
        ("rounded to bf16", &|x| round_to(Format::Bf16, x)),
        ("cut to bf16", &cut(16)),
        ("rounded to f16", &|x| round_to(Format::F16, x)),
        ("cut to f16", &cut(13)),
    ];
    ways.iter().find(|w| is(w.1)).map_or("rounded in another way", |w| w.0).to_string()
}

/// The number of f32 so many steps further from 0.
fn next(x: f32, steps: i32) -> f32 {
    if x == 0.0 { x } else { f32::from_bits(x.to_bits().wrapping_add_signed(steps)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Granularity, Overflow, Rounding};

    /// What is said of 32 × 64 codes of 4 bits by groups of 32, chosen by this rule and stored so.
    fn said(rule: usize, store: &dyn Fn(f32) -> f32, by_stored: bool) -> Option<String> {
        with_foreign(rule, store, by_stored, (32, 0))
    }

    /// The same of so many rows, where so many codes are other ones.
    fn with_foreign(
        rule: usize,
        store: &dyn Fn(f32) -> f32,
        by_stored: bool,
        (rows, foreign): (usize, usize),
    ) -> Option<String> {
        let x: Vec<f32> = (0..rows * 64).map(|n| ((n * 7919 + n / 9 * 31) % 2003) as f32 / 500.0 - 1.7).collect();
        let lines: Vec<Line> = x
            .chunks(32)
            .map(|c| {
                RULES[rule].1(
                    c.iter().copied().fold(f32::INFINITY, f32::min),
                    c.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                    15.0,
                )
            })
            .collect();
        let stored: Vec<Line> = lines.iter().map(|(s, z)| (store(*s), store(*z))).collect();
        let code = |at: usize| {
            let (s, z) = if by_stored { stored[at / 32] } else { lines[at / 32] };
            Format::Uint4.encode(f64::from((x[at] - z) / s), Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let mut codes: Vec<u8> = (0..rows * 64).map(code).collect();
        codes[700..][..foreign].iter_mut().for_each(|c| *c = (*c + 5) % 16);
        let parts = QTensorParts {
            format: Format::Uint4,
            rows,
            cols: 64,
            codes,
            granularity: Granularity::Group(32),
            scale_format: Format::F32,
            scale_inv: stored.iter().map(|l| l.0).collect(),
            zero: Zero::Additive { zero: stored.iter().map(|l| l.1).collect(), mid: 0 },
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, rows, 64, x.clone()).unwrap(), QTensor::new(parts).unwrap());
        chosen(&x, &q).map(|f| f.2)
    }

    #[test]
    fn codes_of_numbers_that_are_stored_in_fewer_bits_are_told() {
        let cut = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
        for rule in 0..RULES.len() {
            let words = said(rule, &cut, false).unwrap();
            assert!(words.contains("the scales and zero points stored are these cut to bf16"), "{words}");
        }
        let words = said(0, &|x| round_to(Format::Bf16, x), false).unwrap();
        assert!(words.contains("of the range of each group; ") && words.contains("rounded to bf16"), "{words}");
        assert_eq!(said(0, &cut, true), None, "codes of what is stored");
        assert_eq!(said(0, &|x| x, false), None, "stored as they are");
    }

    /// Twelve of 8192 are within what may be off of all, but no rule makes them.
    #[test]
    fn a_small_foreign_fault_has_no_name_here() {
        for store in [|x: f32| x, |x: f32| next(x, 1)] {
            assert_eq!(with_foreign(0, &store, true, (128, 12)), None);
        }
    }
}
