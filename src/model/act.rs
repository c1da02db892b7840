//! Activations as the origin computes them: TransformerEngine's `common/util/math.h`, each operation of the C expression one
//! rounded f32 operation in the order of the language, no contraction; [`libm`] for e^x and tanh.

// The literals are the source's own.
#![allow(clippy::excessive_precision)]

use super::libm;
use crate::op::Act;

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + libm::exp(-x))
}

fn sigmoid_slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 - s)
}

/// act(x) in f32; `fmaxf` semantics (NaN → 0) for relu and srelu.
pub fn act(act: Act, x: f32) -> f32 {
    match act {
        Act::Gelu => x * (0.5 + 0.5 * libm::tanh(x * (0.79788456 + 0.03567741 * x * x))),
        Act::Silu => x * sigmoid(x),
        Act::Qgelu => x * sigmoid(1.702 * x),
        Act::Relu => x.max(0.0),
        Act::Srelu => {
            if x > 0.0 {
                x * x
            } else {
                0.0
            }
        }
    }
}

/// act'(x) in f32.
pub fn act_slope(act: Act, x: f32) -> f32 {
    match act {
        Act::Gelu => {
            let t = libm::tanh(0.79788456 * x * (1.0 + 0.044715 * x * x));
            0.5 * x * ((1.0 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1.0 + t)
        }
        Act::Silu => x * sigmoid_slope(x) + sigmoid(x),
        Act::Qgelu => 1.702 * x * sigmoid_slope(1.702 * x) + sigmoid(1.702 * x),
        Act::Relu => {
            if x > 0.0 {
                1.0
            } else {
                0.0
            }
        }
        Act::Srelu => (2.0 * x).max(0.0),
    }
}
