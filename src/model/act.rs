//! Activations as the origin computes them: TransformerEngine's `common/util/math.h`, each operation of the C expression one
//! rounded f32 operation in the order of the language, no contraction; [`libm`] for e^x and tanh. gelu_erf, which it does not have, as
//! PyTorch's `ActivationGeluKernel.cu`.
//!
//! Each formula is written once, over [`Real`]: in f32 it is the model's value, in [`Interval`] all that an f32 evaluation may give.

use super::interval::Interval;
use super::libm;
use crate::op::{Act, Op};
use std::f64::consts::FRAC_1_SQRT_2;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// What a formula is evaluated in.
pub trait Real:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// An f32 number.
    fn exact(x: f32) -> Self;
    /// A decimal literal of the source.
    fn literal(x: f64) -> Self;
    fn exp(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    /// max(x, 0) as `fmaxf`: NaN becomes 0.
    fn relu(self) -> Self;
    /// A value that is known to lie in [0, 1].
    fn unit(self) -> Self;
}

impl Real for f32 {
    fn exact(x: f32) -> Self {
        x
    }
    fn literal(x: f64) -> Self {
        x as f32
    }
    fn exp(self) -> Self {
        libm::exp(self)
    }
    fn tanh(self) -> Self {
        libm::tanh(self)
    }
    fn erf(self) -> Self {
        libm::erf(self)
    }
    fn relu(self) -> Self {
        self.max(0.0)
    }
    fn unit(self) -> Self {
        self
    }
}

impl Real for Interval {
    fn exact(x: f32) -> Self {
        Interval::point(f64::from(x))
    }
    /// As an f32 holds it, or before it was rounded.
    fn literal(x: f64) -> Self {
        let rounded = f64::from(x as f32);
        Interval::new(x.min(rounded), x.max(rounded))
    }
    fn exp(self) -> Self {
        Interval::exp(self)
    }
    fn tanh(self) -> Self {
        Interval::tanh(self)
    }
    fn erf(self) -> Self {
        Interval::erf(self)
    }
    fn relu(self) -> Self {
        Interval::relu(self)
    }
    fn unit(self) -> Self {
        Interval { lo: self.lo.max(0.0), hi: self.hi.min(1.0), nan: self.nan }
    }
}

fn sigmoid<R: Real>(x: R) -> R {
    let one = R::exact(1.0);
    (one / (one + (-x).exp())).unit()
}

fn sigmoid_slope<R: Real>(x: R) -> R {
    let s = sigmoid(x);
    s * (R::exact(1.0) - s)
}

/// ½·(1 + erf(x/√2))
fn normal<R: Real>(x: R) -> R {
    R::exact(0.5) * (R::exact(1.0) + (x * R::literal(FRAC_1_SQRT_2)).erf())
}

/// x as a clamped activation sees it: at most its limit. A comparison: exact.
pub fn limited(act: Act, x: f32) -> f32 {
    match act.clamp() {
        Some(c) if x > c.limit() => c.limit(),
        _ => x,
    }
}

/// The gate within the limit of a clamped activation. A comparison: exact.
pub fn clamped(act: Act, u: f32) -> f32 {
    match act.clamp() {
        Some(c) if u > c.limit() => c.limit(),
        Some(c) if u < -c.limit() => -c.limit(),
        _ => u,
    }
}

/// What the activation is multiplied by for a gate u.
pub fn gate<R: Real>(act: Act, u: f32) -> R {
    let u = R::exact(clamped(act, u));
    if matches!(act, Act::SwigluOai(_)) { u + R::exact(1.0) } else { u }
}

/// act(x); `fmaxf` semantics (NaN → 0) for relu and srelu.
pub fn act<R: Real>(act: Act, x: f32) -> R {
    let (half, v) = (R::exact(0.5), R::exact(x));
    match act {
        Act::Gelu => v * (half + half * (v * (R::literal(0.79788456) + R::literal(0.03567741) * v * v)).tanh()),
        Act::Silu => v * sigmoid(v),
        Act::Qgelu => v * sigmoid(R::literal(1.702) * v),
        Act::Relu => v.relu(),
        Act::Srelu if x > 0.0 => v * v,
        Act::Srelu => R::exact(0.0),
        Act::SwigluOai(c) => {
            let g = R::exact(limited(act, x));
            g * sigmoid(R::exact(c.alpha()) * g)
        }
        Act::SwigluLimit(_) => {
            let g = R::exact(limited(act, x));
            g * sigmoid(g)
        }
        Act::GeluErf => v * half * (R::exact(1.0) + (v * R::literal(FRAC_1_SQRT_2)).erf()),
    }
}

/// act'(x).
pub fn act_slope<R: Real>(act: Act, x: f32) -> R {
    let (half, one, v) = (R::exact(0.5), R::exact(1.0), R::exact(x));
    match act {
        Act::Gelu => {
            let t = (R::literal(0.79788456) * v * (one + R::literal(0.044715) * v * v)).tanh();
            half * v * ((one - t * t) * (R::literal(0.79788456) + R::literal(0.1070322243) * v * v)) + half * (one + t)
        }
        Act::Silu => v * sigmoid_slope(v) + sigmoid(v),
        Act::Qgelu => {
            let (gain, z) = (R::literal(1.702), R::literal(1.702) * v);
            gain * v * sigmoid_slope(z) + sigmoid(z)
        }
        Act::Relu => R::exact(if x > 0.0 { 1.0 } else { 0.0 }),
        Act::Srelu => (R::exact(2.0) * v).relu(),
        Act::SwigluOai(c) | Act::SwigluLimit(c) if x > c.limit() => R::exact(0.0),
        Act::SwigluOai(c) => {
            let (gain, z) = (R::exact(c.alpha()), R::exact(c.alpha()) * v);
            gain * v * sigmoid_slope(z) + sigmoid(z)
        }
        Act::SwigluLimit(_) => v * sigmoid_slope(v) + sigmoid(v),
        // 1/√(2π)
        Act::GeluErf => normal(v) + v * ((-(half * v * v)).exp() * R::literal(0.3989422804014327)),
    }
}

/// The value v of element j of a row, for every op but the norms. `x` is the row of operand a, `b` that of operand b. `act_of` is [`act`],
/// or the same activation as others write it.
pub fn value<R: Real>(op: Op, f: Act, act_of: fn(Act, f32) -> R, x: &[f32], b: &[f32], j: usize) -> R {
    let n = x.len();
    match op {
        Op::Activation => act_of(f, x[j]),
        Op::ActivationGrad | Op::CastTransposeDbiasDact => act_slope::<R>(f, b[j]) * R::exact(x[j]),
        Op::Gated => act_of(f, x[j]) * gate::<R>(f, x[n / 2 + j]),
        Op::DgatedCastTranspose if j < n => act_slope::<R>(f, b[j]) * R::exact(x[j]) * gate::<R>(f, b[n + j]),
        Op::DgatedCastTranspose => R::exact(x[j - n]) * act::<R>(f, b[j - n]),
        _ => R::exact(x[j]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Clamp;

    /// σ(2) = 0.880797078 and σ′(2) = 0.104993585, by hand; σ(1.702) = 0.845795… likewise.
    #[test]
    fn slopes_are_those_of_the_formulas() {
        for (act, x, slope) in [
            (Act::Silu, 2.0, 1.090_784_2f32),
            (Act::Silu, -2.0, -0.090_784_25),
            (Act::Silu, 0.0, 0.5),
            (Act::Qgelu, 1.0, 1.067_779_6),
            (Act::Gelu, 0.0, 0.5),
            (Act::Relu, -1.0, 0.0),
            (Act::Srelu, 1.5, 3.0),
            // Φ(1) + φ(1) = 0.841344746 + 0.241970725
            (Act::GeluErf, 1.0, 1.083_315_5),
            (Act::GeluErf, -1.0, -0.083_315_47),
            // As silu's, and flat beyond the limit.
            (Act::SwigluLimit(Clamp::new(1.0, 7.0)), 2.0, 1.090_784_2),
            (Act::SwigluLimit(Clamp::new(1.0, 1.5)), 2.0, 0.0),
        ] {
            let found: f32 = act_slope(act, x);
            assert!((found - slope).abs() < 1e-6, "{act:?} at {x}: {found} instead of {slope}");
            let all: Interval = act_slope(act, x);
            assert!(
                all.lo <= f64::from(found) && f64::from(found) <= all.hi && all.hi - all.lo < 1e-4,
                "{act:?} at {x}: {all:?}"
            );
        }
    }

    /// 2·σ(2) = 1.761594156, by hand; beyond a limit of 1.5 it is 1.5·σ(1.5) = 1.226361715.
    #[test]
    fn a_clamped_activation_is_that_of_the_clamped_x() {
        for (limit, y) in [(7.0, 1.761_594_2f32), (1.5, 1.226_361_7)] {
            let found: f32 = act(Act::SwigluLimit(Clamp::new(1.0, limit)), 2.0);
            assert!((found - y).abs() < 1e-6, "{limit}: {found}");
        }
    }
}
