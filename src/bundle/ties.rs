//! Values of a cast that lie exactly between two codes. The hardware's conversions to 8-bit floats take the even one; a kernel that adds half a
//! step and cuts takes the one further from zero, every time.
//!
//! Only scales that are powers of two are looked at: what they divide is exact, so a tie is one in every order of the arithmetic. Formats of 4
//! bits and integers are not: kernels in use round their ties in other ways (`roundf`, comparisons).

use super::{Bundle, encoders};
use crate::fault::{Class, Finding};
use crate::format::grid::ValueGrid;
use crate::job::Data;
use crate::op::Op;
use crate::parallel;
use crate::quant::Zero;
use crate::{Overflow, QTensor, Tensor};

/// Ties that a rule decides otherwise than to even, at least. By chance a right kernel has none.
const LEAST: usize = 8;

/// Words, variant, and whether a tie goes to the end further from zero, by whether it is negative.
type Rule = (&'static str, &'static str, fn(bool) -> bool);
pub(super) const RULES: [Rule; 4] = [
    ("away from zero", "half_away", |_| true),
    ("toward zero", "half_to_zero", |_| false),
    ("upward", "half_up", |negative| !negative),
    ("downward", "half_down", |negative| negative),
];

/// The magnitude that a tie `y` becomes by a rule, where the even code is `even`: the other end of the gap is as far on the other side.
pub(super) fn by_rule(y: f64, even: f64, further: fn(bool) -> bool) -> f64 {
    let (even, other) = (even.abs(), 2.0 * y.abs() - even.abs());
    if further(y < 0.0) { even.max(other) } else { even.min(other) }
}

/// The ties of some rows.
#[derive(Clone, Copy)]
struct Ties {
    all: usize,
    /// By rule: whether all of them are rounded so, and how many it rounds otherwise than to even.
    fits: [bool; RULES.len()],
    others: [usize; RULES.len()],
}

impl Ties {
    const NONE: Self = Self { all: 0, fits: [true; RULES.len()], others: [0; RULES.len()] };

    fn and(mut self, other: Self) -> Self {
        self.all += other.all;
        for n in 0..RULES.len() {
            self.fits[n] &= other.fits[n];
            self.others[n] += other.others[n];
        }
        self
    }
}

/// The ties of row `i`. `None` where anything else than a tie is not the nearest: what is wrong elsewhere too is no rule of ties.
fn row(grid: &ValueGrid, values: &[f64], units: &[Option<f64>], x: &[f32], q: &QTensor, i: usize) -> Option<Ties> {
    let (mut ties, tile) = (Ties::NONE, q.granularity().tile(q.rows(), q.cols()).1);
    for (first, (xs, codes)) in x.chunks(tile).zip(q.codes()[i * q.cols()..][..q.cols()].chunks(tile)).enumerate() {
        let Some(unit) = units[q.scale_index(i, first * tile)] else { continue };
        for (x, code) in xs.iter().zip(codes).filter(|(x, _)| x.is_finite()) {
            let (y, found) = (f64::from(*x) / unit, values[usize::from(*code)]);
            let nearest = grid.nearest_float(y);
            if !grid.is_tie(y) {
                if found != nearest {
                    return None;
                }
                continue;
            }
            ties.all += 1;
            for (n, (_, _, further)) in RULES.iter().enumerate() {
                let made = by_rule(y, nearest, *further);
                ties.fits[n] &= found.abs() == made;
                ties.others[n] += usize::from(made != nearest.abs());
            }
        }
    }
    Some(ties)
}

/// Variant and words where all ties are rounded by one rule, which is not to even.
fn rule(x: &Tensor, q: &QTensor) -> Option<(&'static str, String)> {
    let f = q.format();
    (f.is_fp8() && matches!(q.zero(), Zero::None) && x.data().len() == q.codes().len() && q.cols() > 0).then_some(())?;
    let exact = |s: &f64| *s > 0.0 && s.log2().fract() == 0.0;
    let units: Vec<Option<f64>> = (0..q.scale_inv().len()).map(|s| Some(q.affine(s).unit).filter(exact)).collect();
    units.iter().any(Option::is_some).then_some(())?;
    let values: Vec<f64> = (0..1u32 << f.bits()).map(|c| f.decode(c)).collect();
    let grid = ValueGrid::new(f, Overflow::Saturate);
    let rows = parallel::every(q.rows(), |i| row(&grid, &values, &units, x.row(i), q, i))?;
    let ties = rows.into_iter().fold(Ties::NONE, Ties::and);
    let n = (0..RULES.len()).find(|n| ties.fits[*n] && ties.others[*n] >= LEAST)?;
    let words = format!(
        "all {} values halfway between two codes are rounded {}, where {} of them have the even code on the other side: ties go to even",
        ties.all, RULES[n].0, ties.others[n]
    );
    Some((RULES[n].1, words))
}

fn of(bundle: &Bundle) -> Option<(&'static str, String)> {
    let Data::Quantized(q) = &bundle.out.d else { return None };
    // A recipe says itself how it rounds.
    (matches!(bundle.meta.op, Op::Cast | Op::CastTranspose) && bundle.meta.recipe.is_none()).then_some(())?;
    rule(bundle.a.high.as_ref()?, q)
}

/// What is wrong with the ties of a cast without a recipe.
pub(super) fn contradiction(bundle: &Bundle) -> Option<String> {
    of(bundle).map(|(_, words)| words)
}

/// The same as a finding; of a cast with a recipe, the ties that are not rounded as it says.
pub(super) fn explain(bundle: &Bundle) -> Option<Finding> {
    let by_recipe = || {
        let (Data::Quantized(q), Some(x)) = (&bundle.out.d, &bundle.a.high) else { return None };
        matches!(bundle.meta.op, Op::Cast | Op::CastTranspose).then_some(())?;
        let right = bundle.meta.recipe.as_ref()?.0.as_ref()?.quantize(x).ok()?.q;
        (right.scale_inv() == q.scale_inv()).then_some(())?;
        encoders::Cast::of(x, q)?.tied(right.codes())
    };
    let named = of(bundle).map(|(variant, words)| (Class::Rounding, format!("out.{variant}"), words)).or_else(by_recipe);
    named.map(|(class, variant, words)| Finding::solved(class, &variant, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, QTensor};

    /// Multiples of 1/16 up to 8 as e4m3 with scale 1: those of odd sixteenths above 1 are ties.
    fn cast(round: impl Fn(f64, f64, f64) -> f64) -> (Tensor, QTensor) {
        let f = Format::E4m3;
        let data: Vec<f32> = (0..256).map(|n| (n as f32 - 128.0) / 16.0).collect();
        let x = Tensor::new(Format::F32, 4, 64, data).unwrap();
        let grid = ValueGrid::new(f, Overflow::Saturate);
        let code = |x: &f32| {
            let y = f64::from(*x);
            let even = grid.nearest(y);
            let step = f.ulp(y.abs());
            let low = (y.abs() / step).floor() * step;
            let value = if y.abs() - low == step / 2.0 { round(y, low, low + step) } else { even };
            f.encode(value, crate::Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let codes = x.data().iter().map(code).collect();
        (x, tensor(codes))
    }

    fn tensor(codes: Vec<u8>) -> QTensor {
        QTensor::new(QTensorParts {
            format: Format::E4m3,
            rows: 4,
            cols: 64,
            codes,
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        })
        .unwrap()
    }

    #[test]
    fn ties_by_another_rule_than_to_even_are_told() {
        let found = |of: &dyn Fn(f64, f64, f64) -> f64| {
            let (x, q) = cast(of);
            rule(&x, &q).map(|r| r.0)
        };
        assert_eq!(found(&|y, _, high| high * y.signum()), Some("half_away"));
        assert_eq!(found(&|y, low, _| low * y.signum()), Some("half_to_zero"));
        assert_eq!(found(&|y, low, high| if y < 0.0 { -low } else { high }), Some("half_up"));
        let grid = ValueGrid::new(Format::E4m3, Overflow::Saturate);
        assert_eq!(found(&|y, _, _| grid.nearest(y)), None);
        let mut one = false;
        let (x, q) = cast(|y, _, high| high * y.signum());
        let mut codes = q.codes().to_vec();
        for (at, c) in codes.iter_mut().enumerate() {
            let y = f64::from(x.data()[at]);
            if !one && f64::from(x.data()[at]) > 0.0 && grid.nearest(y) != Format::E4m3.decode(u32::from(*c)) {
                *c -= 1;
                one = true;
            }
        }
        assert_eq!(rule(&x, &tensor(codes)), None, "one tie to even: no rule");
    }

    /// Eight of the ties have the even code on the other side; seven are too few.
    #[test]
    fn as_many_ties_as_chance_does_not_make_are_told_with_their_number() {
        let of = |ties: usize| {
            // 1.0625, 1.1875, …: between codes of odd and even mantissas in turn; then codes.
            let data: Vec<f32> = (0..256)
                .map(|n| if n < ties { -(1.0625 + 0.25 * (n % 4) as f32) } else { 1.0 + 0.125 * (n % 8) as f32 })
                .collect();
            let code = |x: &f32| {
                let low = Format::E4m3.encode(f64::from(*x), crate::Rounding::TowardZero, crate::Overflow::Saturate) as u8;
                low + u8::from(f64::from(*x) != Format::E4m3.decode(u32::from(low)))
            };
            let codes = data.iter().map(code).collect();
            rule(&Tensor::new(Format::F32, 4, 64, data).unwrap(), &tensor(codes))
        };
        // All of these are nearest to even below.
        assert_eq!(of(7), None);
        let words = "all 8 values halfway between two codes are rounded away from zero, where 8 of them have the even code on the other side: ties go to even";
        assert_eq!(of(8), Some(("half_away", words.to_string())));
        let (x, q) = cast(|y, low, high| if y < 0.0 { -high } else { low });
        assert_eq!(rule(&x, &q).unwrap().0, "half_down");
    }
}
