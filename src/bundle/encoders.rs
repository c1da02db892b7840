//! Codes of a cast that no scales explain, compared with encoders that kernels have by mistake; and wrong scales beside right codes.
//!
//! ```text
//! x, scale_inv ──► y = x / scale_inv ──► code            by every encoder: one has to give all wrong codes and nearly all right ones
//! ```

use super::{Bundle, chosen};
use crate::fault::solve::segment::lines;
use crate::fault::whereabouts::place;
use crate::fault::{Class, Finding};
use crate::job::Data;
use crate::op::Op;
use crate::quant::Zero;
use crate::tensor::round_to;
use crate::{Format, Overflow, QTensor, Rounding, Tensor};

/// The share of wrong codes, and of all, that an encoder has to make.
pub const SHARE: f64 = 0.98;
/// Wrong codes, at least.
pub const LEAST: usize = 8;
/// What a reciprocal and a product in f32 may be off, relative.
const NEAR: f64 = 1.0 / (1u64 << 21) as f64;

/// An element on its way to its code.
#[derive(Clone, Copy)]
pub struct Element {
    pub x: f64,
    /// scale_inv, of both levels.
    inverse: f64,
    /// The integer zero point, else 0.
    pub zero: f64,
    /// The largest magnitude of its group.
    amax: f64,
    pub format: Format,
}

impl Element {
    pub fn y(&self) -> f64 {
        self.x / self.inverse
    }
    pub fn code(&self, y: f64) -> Option<f64> {
        Some(nearest(self.format, y))
    }
}

fn encode(f: Format, y: f64, rounding: Rounding) -> f64 {
    f.decode(f.encode(y, rounding, Overflow::Saturate))
}

/// The format's maximum over amax, where the scale that is stored is its inverse: beside another one it is nearly the right multiplier, and says nothing.
fn whole_multiplier(e: &Element) -> Option<f64> {
    let multiplier = e.format.max_finite() / e.amax;
    ((e.inverse * multiplier).ln().abs() < 1.03f64.ln()).then_some(multiplier)
}

pub fn nearest(f: Format, y: f64) -> f64 {
    encode(f, y, Rounding::NearestEven)
}

fn through(f: Format) -> impl Fn(f64) -> f64 {
    move |y| f64::from(round_to(f, y as f32))
}

fn cut(f: Format, y: f64) -> f64 {
    encode(f, y, Rounding::TowardZero)
}

/// The smallest normal magnitude of a float format; 0 of an integer.
pub fn normal(f: Format) -> f64 {
    if f.is_integer() { 0.0 } else { f.decode(1 << f.spec().mantissa).abs() }
}

/// The multiple of a unit that is nearest, ties away from zero or upward, kept within the format.
fn whole(f: Format, y: f64, to: fn(f64) -> f64) -> f64 {
    let magnitude = y.abs().max(normal(f));
    let exponent = if f.is_integer() { 0.0 } else { magnitude.log2().floor() - f64::from(f.spec().mantissa) };
    let unit = exponent.exp2();
    nearest(f, to(y / unit) * unit)
}

/// An encoder: the value of an element's code, zero point not taken off. `None`: it says nothing of this element.
pub type Encoder = fn(&Element) -> Option<f64>;

/// Class, variant, words, encoder.
pub const ENCODERS: &[(Class, &str, &str, Encoder)] = &[
    (Class::RoundOrder, "twice_f16", "values are rounded to f16 before they are rounded to codes", |e| {
        e.code(through(Format::F16)(e.y()) + e.zero)
    }),
    (Class::RoundOrder, "twice_bf16", "values are rounded to bf16 before they are rounded to codes", |e| {
        e.code(through(Format::Bf16)(e.y()) + e.zero)
    }),
    (Class::Rounding, "cut_f16", "values are cut to f16 before they are rounded to codes", |e| {
        e.code(cut(Format::F16, e.y()) + e.zero)
    }),
    (Class::Rounding, "cut_bf16", "values are cut to bf16 before they are rounded to codes", |e| {
        e.code(cut(Format::Bf16, e.y()) + e.zero)
    }),
    (Class::RoundOrder, "x_bf16", "a is rounded to bf16 before it is scaled", |e| {
        e.code(through(Format::Bf16)(e.x) / e.inverse + e.zero)
    }),
    (Class::RoundOrder, "x_f16", "a is rounded to f16 before it is scaled", |e| {
        e.code(through(Format::F16)(e.x) / e.inverse + e.zero)
    }),
    (
        Class::OverflowWrap,
        "multiplier_f32",
        "the format's maximum over amax is Inf in f32: values of blocks whose amax is so small become the largest code",
        |e| {
            let multiplier = (e.format.max_finite() / e.amax) as f32;
            if multiplier.is_finite() { e.code(e.y() + e.zero) } else { multiplied(e, f64::INFINITY) }
        },
    ),
    (Class::OverflowWrap, "multiplier_f16", "the multiplier 1/scale_inv is kept in f16: Inf where it is beyond 65504", |e| {
        multiplied(e, through(Format::F16)(1.0 / e.inverse))
    }),
    (Class::ScaleRerounded, "multiplier_bf16", "the multiplier 1/scale_inv is kept in bf16", |e| {
        multiplied(e, through(Format::Bf16)(1.0 / e.inverse))
    }),
    (Class::ScaleRerounded, "scale_bf16", "values are divided by scale_inv rounded to bf16", |e| {
        e.code(e.x / through(Format::Bf16)(e.inverse) + e.zero)
    }),
    (Class::ScaleRerounded, "scale_f16", "values are divided by scale_inv rounded to f16", |e| {
        e.code(e.x / through(Format::F16)(e.inverse) + e.zero)
    }),
    (
        Class::ScaleRerounded,
        "multiplier_whole",
        "the multiplier is rounded to a whole number before values are multiplied by it",
        |e| multiplied_by_whole(e, whole_multiplier(e)?.round_ties_even()),
    ),
    (
        Class::ScaleRerounded,
        "multiplier_whole",
        "the multiplier is cut to a whole number before values are multiplied by it",
        |e| multiplied_by_whole(e, whole_multiplier(e)?.trunc()),
    ),
    (
        Class::ScaleRerounded,
        "multiplier_whole",
        "1/scale_inv is rounded to a whole number before values are multiplied by it",
        |e| multiplied_by_whole(e, (1.0 / e.inverse).round_ties_even()),
    ),
    (
        Class::ScaleRerounded,
        "multiplier_whole",
        "1/scale_inv is cut to a whole number before values are multiplied by it",
        |e| multiplied_by_whole(e, (1.0 / e.inverse).trunc()),
    ),
    (Class::ScaleRerounded, "scale_whole", "scale_inv is rounded to a whole number before values are divided by it", |e| {
        let whole = e.inverse.round_ties_even();
        (whole > 0.0).then(|| nearest(e.format, e.x / whole + e.zero))
    }),
    (Class::ScaleRerounded, "scale_whole", "scale_inv is cut to a whole number before values are divided by it", |e| {
        let whole = e.inverse.trunc();
        (whole > 0.0).then(|| nearest(e.format, e.x / whole + e.zero))
    }),
    (
        Class::ScaleRerounded,
        "exact_scale",
        "codes are made with amax over the format's maximum; the scale stored beside them is rounded afterwards",
        |e| {
            // A rounding of the scale is at most a binade.
            let exact = e.amax / e.format.max_finite();
            (e.inverse / exact).log2().abs().le(&1.0).then(|| nearest(e.format, e.x / exact))
        },
    ),
    (Class::Rounding, "toward_zero", "codes are cut toward zero", |e| {
        Some(encode(e.format, e.y() + e.zero, Rounding::TowardZero))
    }),
    (Class::Rounding, "half_away", "ties are rounded away from zero", |e| Some(whole(e.format, e.y() + e.zero, f64::round))),
    (Class::Rounding, "half_up", "ties are rounded upward", |e| Some(whole(e.format, e.y() + e.zero, |y| (y + 0.5).floor()))),
    (Class::Rounding, "down", "codes are rounded toward −∞", |e| Some(whole(e.format, e.y() + e.zero, f64::floor))),
    (Class::Rounding, "up", "codes are rounded toward +∞", |e| Some(whole(e.format, e.y() + e.zero, f64::ceil))),
    (Class::CodecEdge, "subnormal_half", "subnormal codes are a binade too small", |e| {
        subnormal(e, |e, y| nearest(e.format, 0.5 * y))
    }),
    (Class::CodecEdge, "subnormal_twice_as_large", "subnormal codes are a binade too large", |e| {
        subnormal(e, |e, y| nearest(e.format, 2.0 * y))
    }),
    (Class::CodecEdge, "subnormal_half", "a value below the smallest normal code is encoded a binade too small", |e| {
        subnormal_of(e, |e, y| nearest(e.format, 0.5 * y))
    }),
    (
        Class::CodecEdge,
        "subnormal_twice_as_large",
        "a value below the smallest normal code is encoded a binade too large",
        |e| subnormal_of(e, |e, y| nearest(e.format, 2.0 * y)),
    ),
    (Class::CodecEdge, "subnormal_flushed", "a value below the smallest normal code becomes 0", |e| {
        subnormal_of(e, |_, _| 0.0)
    }),
    (Class::CodecEdge, "subnormal_flushed", "subnormal codes are 0", |e| subnormal(e, |_, _| 0.0)),
    (Class::CodecEdge, "subnormal_least", "subnormal codes are the smallest normal one", |e| {
        subnormal(e, |e, y| normal(e.format) * y.signum())
    }),
    (Class::CodecEdge, "subnormal_cut", "subnormal codes are cut toward zero", |e| {
        subnormal(e, |e, y| encode(e.format, y, Rounding::TowardZero))
    }),
    (
        Class::RoundOrder,
        "subnormal_twice",
        "subnormal codes are rounded twice: to the bits of a normal one first, then shifted",
        |e| {
            let bits = e.format.spec().mantissa as i32;
            subnormal_of(e, |e, y| {
                let unit = (y.abs().log2().floor() - f64::from(bits)).exp2();
                nearest(e.format, if y == 0.0 { y } else { (y / unit).round_ties_even() * unit })
            })
        },
    ),
    (Class::CodecEdge, "odd", "odd mantissas are rounded down to even ones", |e| {
        let f = e.format;
        Some(f.decode(f.encode(e.y() + e.zero, Rounding::NearestEven, Overflow::Saturate) & !1))
    }),
    (Class::OverflowWrap, "wrapped", "codes wrap where they should saturate", |e| {
        let f = e.format;
        let (low, span) = (f.min_finite(), f64::from(1u32 << f.bits()));
        f.is_integer().then(|| ((e.y() + e.zero).round_ties_even() - low).rem_euclid(span) + low)
    }),
    (Class::BitsReinterpreted, "of_fp4", "codes are those of the other table of 4 bits, FP4 with 0.0052 for its least", |e| {
        let near = |at: &usize| (FP4[*at] - e.y()).abs();
        let code = (0..FP4.len()).filter(|_| e.format == Format::Nf4).min_by(|a, b| near(a).total_cmp(&near(b)))?;
        Some(e.format.decode(code as u32))
    }),
    (Class::OverflowWrap, "clamped_wide", "values are clamped to unsigned codes' range, up to twice as far, and wrap", |e| {
        wrapped_behind(e, e.format.min_finite())
    }),
    (
        Class::OverflowWrap,
        "clamped_wide",
        "values are clamped to unsigned codes' range, from 0 up to twice as far, and wrap",
        |e| wrapped_behind(e, 0.0),
    ),
    (Class::OverflowWrap, "zero_wraps", "integers of 32 bits that are at their end wrap when the zero point is added", |e| {
        added_within(e, 32)
    }),
    (
        Class::OverflowWrap,
        "zero_wraps",
        "quotients are saturated to 16 bits, and wrap there when the zero point is added: those at one end become the code of the other",
        |e| added_within(e, 16),
    ),
    (
        Class::OverflowWrap,
        "below_turned",
        "values below the least code are not clamped to it: their magnitude is stored",
        |e| {
            let (f, y) = (e.format, (e.y() + e.zero).round_ties_even());
            let low = f.min_finite();
            // Where the least code is 0 this is a sign that is lost.
            (f.is_integer() && low < 0.0).then(|| (if y < low { 2.0 * low - y } else { y }).min(f.max_finite()))
        },
    ),
    (Class::OverflowWrap, "saturated_first", "values are saturated to the codes' range before the zero point is added", |e| {
        e.code(nearest(e.format, e.y()) + e.zero)
    }),
    (Class::RoundOrder, "zero_first", "the zero point is added after rounding, and the sum is rounded again", |e| {
        e.code(e.y().round_ties_even() + e.zero)
    }),
    (Class::ZpCorrection, "zero_omitted", "the zero point is not added", |e| e.code(e.y())),
    (Class::ZpCorrection, "zero_negated", "the zero point is subtracted", |e| e.code(e.y() - e.zero)),
    (Class::ZpCorrection, "zero_unscaled", "the zero point is added before values are divided by the scale", |e| {
        e.code((e.x + e.zero) / e.inverse)
    }),
    (Class::OverflowWrap, "clipped_early", "values are clamped to half the codes' range", |e| {
        e.code((e.y() + e.zero).clamp(-0.5 * e.format.max_finite(), 0.5 * e.format.max_finite()))
    }),
    (Class::BitsReinterpreted, "magnitude", "the sign is lost", |e| e.code((e.y() + e.zero).abs())),
    (Class::BitsReinterpreted, "negated", "the sign is turned", |e| e.code(-(e.y() + e.zero))),
    (Class::ScaleOmitted, "unscaled", "values are not divided by the scale", |e| e.code(e.x + e.zero)),
    (Class::ScaleDoubledInverted, "scaled_twice", "values are divided by the scale twice", |e| {
        e.code(e.y() / e.inverse + e.zero)
    }),
    (Class::ScaleDoubledInverted, "multiplied", "values are multiplied by scale_inv, not divided", |e| {
        e.code(e.x * e.inverse + e.zero)
    }),
];

fn multiplied(e: &Element, by: f64) -> Option<f64> {
    let y = e.x * by;
    if y.is_nan() { Some(f64::NAN) } else { e.code(y.clamp(-1e30, 1e30) + e.zero) }
}

/// A multiplier of 0 makes codes of 0, as a part that is not written has them: it says nothing.
fn multiplied_by_whole(e: &Element, by: f64) -> Option<f64> {
    (by > 0.0).then(|| multiplied(e, by))?
}

/// The FP4 of bitsandbytes, beside its NF4: the values of its codes over the largest (`create_fp4_map`).
const FP4: [f64; 16] = {
    const UP: [f64; 8] = [0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0];
    let mut all = [0.0; 16];
    let mut at = 0;
    while at < 8 {
        (all[at], all[at + 8]) = (UP[at] / 12.0, -UP[at] / 12.0);
        at += 1;
    }
    all
};

/// Of signed integers: clamped from `low` to the largest unsigned one, then cut to their bits.
fn wrapped_behind(e: &Element, low: f64) -> Option<f64> {
    let (least, span) = (e.format.min_finite(), f64::from(1u32 << e.format.bits()));
    let code = (e.y() + e.zero).round_ties_even().clamp(low, span - 1.0);
    (e.format.is_integer() && least < 0.0).then(|| (code - least).rem_euclid(span) + least)
}

/// Of integers: saturated to so many bits, which wrap as the zero point is added, then clamped to the codes' range.
fn added_within(e: &Element, bits: i32) -> Option<f64> {
    let (f, end) = (e.format, f64::from(bits - 1).exp2());
    let y = e.y().round_ties_even().clamp(-end, end - 1.0) + e.zero;
    let wrapped = (y + end).rem_euclid(2.0 * end) - end;
    f.is_integer().then(|| wrapped.clamp(f.min_finite(), f.max_finite()))
}

/// Elements whose code is subnormal.
fn subnormal(e: &Element, f: fn(&Element, f64) -> f64) -> Option<f64> {
    if e.format.is_integer() {
        return None;
    }
    let right = nearest(e.format, e.y());
    Some(if right.abs() < normal(e.format) { f(e, e.y()) } else { right })
}

/// Elements that are subnormal before they are rounded.
fn subnormal_of(e: &Element, f: impl Fn(&Element, f64) -> f64) -> Option<f64> {
    if e.format.is_integer() {
        return None;
    }
    Some(if e.y().abs() < normal(e.format) { f(e, e.y()) } else { nearest(e.format, e.y()) })
}

pub struct Cast<'b> {
    pub x: &'b Tensor,
    pub q: &'b QTensor,
    amax: Vec<f64>,
    pub zero: Vec<f64>,
    /// Magnitudes that codes have, ascending.
    pub values: Vec<f64>,
}

/// What made the codes of a cast that failed, or the scales beside right ones. `None`: no cast, or nothing known.
pub fn explain(bundle: &Bundle) -> Option<Finding> {
    let Data::Quantized(q) = &bundle.out.d else { return None };
    let x = bundle.a.high.as_ref().filter(|x| (x.rows(), x.cols()) == (q.rows(), q.cols()))?;
    matches!(bundle.meta.op, Op::Cast | Op::CastTranspose).then_some(())?;
    let cast = Cast::of(x, q)?;
    let named = cast
        .constant()
        .or_else(|| cast.zero_wrapped())
        .or_else(|| cast.encoded())
        .or_else(|| cast.packed())
        .or_else(|| cast.scales(bundle))
        .or_else(|| cast.copied(bundle));
    let other = || {
        let named = cast
            .offset()
            .or_else(|| cast.zero_places())
            .or_else(|| cast.both_places())
            .or_else(|| cast.drawn())
            .or_else(|| cast.specials())
            .or_else(|| cast.without_zero());
        named
            .or_else(|| cast.stepped())
            .or_else(|| cast.tabled())
            .or_else(|| cast.packed_after())
            .or_else(|| cast.written())
            .or_else(|| cast.of_other_columns())
            .or_else(|| cast.merged())
            .or_else(|| cast.earlier())
    };
    let (class, variant, words) = named.or_else(other)?;
    Some(Finding::solved(class, &variant, words))
}

/// A name: class, variant, words.
pub type Named = (Class, String, String);

impl<'b> Cast<'b> {
    /// `None`: zero points that are no integers, codes of another shape than the values.
    pub fn of(x: &'b Tensor, q: &'b QTensor) -> Option<Self> {
        ((x.rows(), x.cols()) == (q.rows(), q.cols())).then_some(())?;
        let zero = match q.zero() {
            Zero::None => Vec::new(),
            Zero::Integer(z) => z.iter().map(|z| f64::from(*z)).collect(),
            Zero::Additive { .. } => return None,
        };
        let mut amax = vec![0.0f64; q.scale_inv().len()];
        for (at, v) in x.data().iter().enumerate() {
            let g = &mut amax[q.scale_index(at / q.cols(), at % q.cols())];
            *g = g.max(f64::from(v.abs()));
        }
        let f = q.format();
        let mut values: Vec<f64> = (0..1u32 << f.bits()).map(|c| f.decode(c).abs()).filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        Some(Self { x, q, amax, zero, values })
    }
}

impl Cast<'_> {
    pub fn element(&self, at: usize) -> Element {
        let g = self.q.scale_index(at / self.q.cols(), at % self.q.cols());
        Element {
            x: f64::from(self.x.data()[at]),
            inverse: self.q.affine(g).unit,
            zero: self.zero.get(g).copied().unwrap_or(0.0),
            amax: self.amax[g],
            format: self.q.format(),
        }
    }
    pub fn value(&self, at: usize) -> f64 {
        self.q.format().decode(u32::from(self.q.codes()[at]))
    }
    /// Whether an encoder makes a code, as it is or with a scale that is off by a rounding.
    fn is(&self, at: usize, encoder: Encoder) -> bool {
        self.is_of(at, at, encoder)
    }
    /// The same of the value that stands at another place.
    pub fn is_of(&self, at: usize, from: usize, encoder: Encoder) -> bool {
        let e = Element { x: f64::from(self.x.data()[from]), ..self.element(at) };
        let v = self.value(at);
        [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|f| {
            encoder(&Element { inverse: e.inverse * f, amax: e.amax * f, ..e })
                .is_some_and(|x| x == v || (x.is_nan() && v.is_nan()))
        })
    }
    pub fn right(&self, at: usize) -> bool {
        self.is(at, |e| e.code(e.y() + e.zero))
    }
    pub fn finite(&self) -> Vec<usize> {
        let finite = |at: &usize| self.element(*at).x.is_finite() && self.element(*at).inverse > 0.0;
        (0..self.q.codes().len()).filter(finite).collect()
    }

    /// The range of affine codes.
    fn without_zero(&self) -> Option<Named> {
        (!self.zero.is_empty()).then_some(())?;
        let words = chosen::without_zero(self.x, self.q)?;
        Some((Class::RangeRule, "out.without_zero".into(), words))
    }

    pub fn encoded(&self) -> Option<Named> {
        let finite = self.finite();
        let wrong: Vec<usize> = finite.iter().copied().filter(|at| !self.right(*at)).collect();
        (wrong.len() >= LEAST).then_some(())?;
        let missed = |all: &[usize], encoder: Encoder| all.iter().filter(|at| !self.is(**at, encoder)).count();
        let share = |all: &[usize], encoder: Encoder| 1.0 - missed(all, encoder) as f64 / all.len() as f64;
        // A few refuse most. What an encoder does not make of right codes counts as much as what it does not make of wrong ones.
        let few: Vec<usize> = wrong.iter().copied().step_by(wrong.len().div_ceil(64)).collect();
        let most = ((1.0 - SHARE) * wrong.len() as f64) as usize;
        let made = |e: &&(Class, &str, &str, Encoder)| share(&few, e.3) > 0.9 && missed(&wrong, e.3) <= most;
        let made: Vec<_> = ENCODERS.iter().filter(made).collect();
        // All over, else in the rows or columns that are wrong.
        let over: Vec<_> = made.iter().map(|e| (missed(&finite, e.3), e)).filter(|(n, _)| *n <= most).collect();
        if let Some((_, (class, variant, words, _))) = over.into_iter().min_by_key(|(n, _)| *n) {
            return Some((*class, format!("out.{variant}"), (*words).to_string()));
        }
        let (class, variant, words, encoder) = made.first()?;
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let (mut is_row, mut is_col) = (vec![false; rows], vec![false; cols]);
        wrong.iter().for_each(|at| (is_row[at / cols], is_col[at % cols]) = (true, true));
        let inside: Vec<usize> = finite.iter().copied().filter(|at| is_row[at / cols] && is_col[at % cols]).collect();
        if missed(&inside, *encoder) > most {
            // All of a place that is not whole rows and columns.
            return made.into_iter().find_map(|(class, variant, words, encoder)| {
                let is_wrong = |at: &usize| wrong.binary_search(at).is_ok();
                let hidden: Vec<usize> = finite.iter().copied().filter(|at| !is_wrong(at) && !self.is(*at, *encoder)).collect();
                let all = missed(&wrong, *encoder) == 0;
                let place = all.then(|| place((rows, cols), ["rows", "columns"], &wrong, &hidden)).flatten()?;
                Some((*class, format!("out.{variant}"), format!("{words}{place}")))
            });
        }
        let place = match (is_row.contains(&false), is_col.contains(&false)) {
            (true, false) => format!("rows {}", lines(&is_row)),
            (false, true) => format!("columns {}", lines(&is_col)),
            _ => format!("rows {}, columns {}", lines(&is_row), lines(&is_col)),
        };
        Some((*class, format!("out.{variant}"), format!("{words}, in {place}")))
    }

    /// Scales that are none of the codes beside them, or that were chosen over more than their groups.
    fn scales(&self, bundle: &Bundle) -> Option<Named> {
        let f = self.q.format();
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let (tile, grid) = (self.q.granularity().tile(rows, cols), self.q.granularity().grid(rows, cols));
        (self.zero.is_empty() && grid.0 * grid.1 > 1).then_some(())?;
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); grid.0 * grid.1];
        (0..rows * cols).for_each(|at| members[self.q.scale_index(at / cols, at % cols)].push(at));
        let made_by = |g: usize, inverse: f64| {
            let is = |at: &&usize| {
                [1.0, 1.0 - NEAR, 1.0 + NEAR]
                    .iter()
                    .any(|n| nearest(f, f64::from(self.x.data()[**at]) / (inverse * n)) == self.value(**at))
            };
            members[g].iter().filter(is).count() as f64 >= SHARE * members[g].len() as f64
        };
        let stored = |g: usize| self.q.affine(g).unit;
        let of_amax = |g: usize| self.amax[g] / f.max_finite();
        let foreign: Vec<bool> =
            (0..members.len()).map(|g| self.amax[g] > 0.0 && !made_by(g, stored(g)) && made_by(g, of_amax(g))).collect();
        let count = foreign.iter().filter(|x| **x).count();
        let rest = (0..members.len()).filter(|g| !foreign[*g]).all(|g| self.amax[g] == 0.0 || made_by(g, stored(g)));
        if count >= 4 && rest {
            let (mut is_row, mut is_col) = (vec![false; grid.0], vec![false; grid.1]);
            (0..members.len()).filter(|g| foreign[*g]).for_each(|g| (is_row[g / grid.1], is_col[g % grid.1]) = (true, true));
            let all = is_row.iter().filter(|x| **x).count() * is_col.iter().filter(|x| **x).count();
            if 10 * count >= 9 * all && all < members.len() {
                let words = format!(
                    "scales of rows {}, groups {} of the grid did not make the codes beside them, which are right: these scales were never written",
                    lines(&is_row),
                    lines(&is_col)
                );
                return Some((Class::SilentSkip, "out.scales_unwritten".into(), words));
            }
        }
        // Short groups whose amax reaches behind the row.
        let short = cols % tile.1;
        (short > 0 && tile.0 == 1 && (0..members.len()).all(|g| self.amax[g] == 0.0 || made_by(g, stored(g)))).then_some(())?;
        let right = right_scales(bundle)?;
        let wrong: Vec<usize> = (0..members.len()).filter(|g| (right[*g] - stored(*g)).abs() > 1e-6 * right[*g]).collect();
        (wrong.len() >= 4 && wrong.iter().all(|g| g % grid.1 == grid.1 - 1)).then_some(())?;
        let data = self.x.data();
        let reaches = |g: &&usize| {
            let end = (*g / grid.1 + 1) * cols;
            let behind =
                data[end.min(data.len())..(end + tile.1 - short).min(data.len())].iter().fold(0f32, |m, x| m.max(x.abs()));
            // Behind the last row nobody knows what lies.
            let expected = right[**g] * f64::from(behind).max(self.amax[**g]) / self.amax[**g];
            end + tile.1 - short > data.len()
                || (stored(**g) / expected).log2().abs() <= if power_of_two(stored(**g)) { 1.0 } else { 1e-4 }
        };
        let told = wrong.iter().filter(reaches).count();
        (told == wrong.len()).then(|| {
            let words = format!(
                "amax of the last, short group of a row also covers the {} elements past the row's end",
                tile.1 - short
            );
            (Class::AmaxScope, "out.amax_behind".into(), words)
        })
    }

    /// The transposed copy by units of several codes, which keep their own order.
    fn copied(&self, bundle: &Bundle) -> Option<Named> {
        let copy = bundle.out.transpose.as_ref()?;
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let codes = self.q.codes();
        // Copy (c, r) is code (r, c).
        let wrong: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != codes[at % rows * cols + at / rows]).collect();
        (wrong.len() >= LEAST).then_some(())?;
        for unit in [2usize, 4, 8, 16] {
            if !rows.is_multiple_of(unit) || !cols.is_multiple_of(unit) {
                continue;
            }
            let within = |at: usize| {
                let (c, r) = (at / rows, at % rows);
                let (c0, r0) = (c / unit * unit, r / unit * unit);
                codes[(r0 + c - c0) * cols + c0 + r - r0]
            };
            let as_words = |at: usize| {
                let (word, lane) = (at / unit, at % unit);
                codes[word % rows * cols + word / rows * unit + lane]
            };
            let ways: [(&str, &dyn Fn(usize) -> u8); 2] = [
                ("tiles are moved, and not transposed within", &within),
                ("words of neighbours are transposed as one", &as_words),
            ];
            for (words, of) in ways {
                if wrong.iter().all(|at| copy[*at] == of(*at)) {
                    let words = format!("the copy is transposed by units of {unit} codes: {words}");
                    return Some((Class::Addressing, "transpose.unit".into(), words));
                }
            }
        }
        None
    }
}

fn power_of_two(x: f64) -> bool {
    x > 0.0 && x.log2().fract() == 0.0
}

/// scale_inv by the recipe of the bundle, second level included. `None`: it names none.
pub fn right_scales(bundle: &Bundle) -> Option<Vec<f64>> {
    let recipe = bundle.meta.recipe.as_ref()?.0.as_ref()?;
    let q = recipe.quantize(bundle.a.high.as_ref()?).ok()?.q;
    Some((0..q.scale_inv().len()).map(|s| q.affine(s).unit).collect())
}

#[cfg(test)]
mod by_hand;
