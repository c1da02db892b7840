//! A ring of stages in shared memory whose slots are read before they are written: a kernel that waits for one copy too few finds what the slot held
//! before, or nothing where it held nothing.
//!
//! ```text
//! X(i, k) = x(i, k − d),  0 for k < d          d = slots · K of a step
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// What the K of a step is a multiple of, and the furthest that a slot is behind.
const UNIT: usize = 16;
const FAR: usize = 4096;

/// Of one operand, its codes or its values; the lines that suffer it are the wrong region's.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let (k_all, group) = (g.k, g.tile.1);
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let blocks = g.q.is_some() && g.grid.1 > 1;
    let mut all = Vec::new();
    for d in (UNIT..k_all.min(FAR)).step_by(UNIT) {
        let steps = if blocks && d.is_multiple_of(group) { format!(", {} steps of {group}", d / group) } else { String::new() };
        for values in [false, true] {
            // One scale for all of K goes with either.
            if values && !blocks {
                continue;
            }
            let with = if !blocks {
                ""
            } else if values {
                " (with their scales)"
            } else {
                " (codes, not their scales)"
            };
            let words = format!(
                "{name} at k is that at k − {d}{steps}, 0 where there is none{with}: a slot of the ring of stages is read before it is written"
            );
            let mut t = Theory::new(Class::Race, name, format!("{name}.ring"), words).bits(5.0 + cost(d / UNIT));
            if values {
                let held = g.values.clone();
                t.side(side).value = Some(Arc::new(move |i, k| k.checked_sub(d).map_or(0.0, |k| held[i * k_all + k])));
            } else {
                t.side(side).code = Some(Arc::new(move |i, k| k.checked_sub(d).map(|k| i * k_all + k)));
            }
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    #[test]
    fn slots_that_hold_what_was_before_are_told() {
        let (n, k_all) = (96, 320);
        let (a, b) = (wide(M, k_all), codes(Format::E4m3, n, k_all, 64, false, 41));
        let x = a.to_f64();
        let value = |j: usize, k: usize, from: usize| {
            Format::E4m3.decode(u32::from(b.codes()[j * k_all + from])) * f64::from(b.scale_inv()[j * 5 + k / 64])
        };
        // Columns 16 … 31 of every 32 find the stage of two steps before, or nothing.
        let with = |first: &dyn Fn(usize) -> Option<usize>| {
            found(&a, &b, None, Format::Bf16, |i, j, _| {
                sum(k_all, |k| {
                    let from = if j % 32 < 16 { Some(k) } else { k.checked_sub(128).or_else(|| first(k)) };
                    x[[i, k]] * from.map_or(0.0, |from| value(j, k, from))
                })
            })
        };
        let got = with(&|_| None);
        assert_eq!(got.0, "race:b.ring", "{}", got.1);
        assert!(got.1.contains("that at k − 128, 2 steps of 64") && got.1.contains("codes, not their scales"), "{}", got.1);
        // Other stages in the place of those that were never there.
        let got = with(&|k| Some(k + 64 * (k / 64 % 2)));
        assert!(!got.0.contains("ring"), "{} {}", got.0, got.1);
    }
}
