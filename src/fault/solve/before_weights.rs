//! What becomes of a row's sum before its weight multiplies it: it is stored in a narrow type, or clamped to it.
//!
//! ```text
//! out[i, j] = w[i] · round( Σ + bias )
//! ```

use super::output::Add;
use super::system::System;
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::format::grid::native;
use crate::job::Operand;
use crate::{Overflow, Rounding};
use std::sync::Arc;

/// All of them; none of a product whose rows have no weights.
pub fn theories(s: &System, add: &mut Add) {
    // Beside codes they are those that the bias meets.
    let weights: Arc<Vec<f64>> = Arc::new(match operand(s.scene.evidence.job, Which::A) {
        Some(Operand::Weighted(w)) => w.weights().iter().map(|w| f64::from(*w)).collect(),
        _ if s.bias.is_weighted() => (0..s.rows).map(|i| s.bias.weight(i)).collect(),
        _ => return,
    });
    if weights.len() != s.rows {
        return;
    }
    let ways = [
        (Overflow::Native, Class::RoundOrder, "rounded_before_weight", 3.5),
        (Overflow::Saturate, Class::OverflowWrap, "clamped_before_weight", 4.5),
    ];
    for f in [Format::F16, Format::Bf16, Format::E4m3, Format::E5m2] {
        for (overflow, class, variant, bits) in ways {
            let limit = match overflow {
                Overflow::Native => String::new(),
                // Its largest number is far away.
                _ if f == Format::Bf16 => continue,
                _ => format!(", ±{} at most,", f.max_finite()),
            };
            let words = format!("the sum of a row is stored in {f}{limit} before its row_weight multiplies it");
            let (w, bias) = (weights.clone(), s.bias.clone());
            let stored = move |x: f64| match (f, overflow) {
                (Format::F16 | Format::Bf16, Overflow::Native) => native(f).nearest(x),
                _ => f.decode(f.encode(x, Rounding::NearestEven, overflow)),
            };
            add(
                class,
                variant,
                words,
                bits,
                false,
                Arc::new(move |i, j, v| {
                    let by = w[i];
                    if by == 0.0 { v + bias.at(i, j) } else { by * stored((v + bias.at(i, j)) / by) }
                }),
            );
        }
    }
}
