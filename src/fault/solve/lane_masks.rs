//! Codes at some places of every word that lose bits, or get some, when they are taken out of it: a mask that is too short, a byte too few.
//!
//! ```text
//! code at k, k a lane:  c & m   or  c | m,  m a run of bits          codes of other lanes are right
//! ```

use super::lanes::lanes;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Of both operands.
pub fn theories(s: &System) -> Vec<Theory> {
    s.sides().iter().flat_map(|side| of(s, *side)).collect()
}

/// Runs of bits of a code that are lost or set: words, bits, those that are left, those that are set.
fn masks(bits: u32) -> Vec<(String, f64, u8, u8)> {
    let mut all = Vec::new();
    let whole = ((1u32 << bits) - 1) as u8;
    for from in 0..bits {
        for to in from + 1..=bits {
            let run = (((1u32 << to) - 1) & !((1 << from) - 1)) as u8;
            if run == whole {
                continue;
            }
            let which = match (to - from, to == bits) {
                (1, true) => "their top bit".to_string(),
                (1, _) => format!("bit {from}"),
                (n, true) => format!("their top {n} bits"),
                (n, _) if from == 0 => format!("their lowest {n} bits"),
                _ => format!("bits {from} … {}", to - 1),
            };
            // A run inside takes two numbers.
            let more = cost((to - from) as usize) + if to == bits || from == 0 { 0.0 } else { 3.0 };
            all.push((format!("lose {which}"), more, whole & !run, 0));
            all.push((format!("have {which} set"), more + 1.0, whole, run));
        }
    }
    all
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let Some((f, q)) = g.format().zip(g.q.clone()) else { return Vec::new() };
    let q = Arc::new(q);
    let mut served = lanes();
    for lane in 0..16 {
        let is = Arc::new(move |k: usize| k % 16 == lane);
        served.push((format!("codes k mod 16 = {lane}"), cost(16) + cost(lane), is));
    }
    let mut all = Vec::new();
    for (what, bits, left, set) in masks(f.bits()) {
        for (lane, cost_of_lane, is) in &served {
            let words = format!("of {name} ({f}), {lane} {what}; all others are right");
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.lane_mask"), words);
            t.bits = 5.0 + bits + cost_of_lane;
            let (g, q, is) = (g.clone(), q.clone(), is.clone());
            t.side(side).value = Some(Arc::new(move |i, k| {
                if !is(k) {
                    return g.values[i * g.k + k];
                }
                let code = q.codes()[i * g.k + k] & left | set;
                g.decoded(code, i / g.tile.0 * g.grid.1 + k / g.tile.1)
            }));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    const K: usize = 96;

    fn of(f: Format, read: impl Fn(usize, u8) -> u8) -> (String, String) {
        let (a, b) = (wide(M, K), codes(f, N, K, 32, false, 77));
        let x = a.to_f64();
        found(&a, &b, None, Format::F32, |i, j, _| {
            let value = |k: usize| f.decode(u32::from(read(k, b.codes()[j * K + k])));
            sum(K, |k| x[[i, k]] * value(k) * f64::from(b.scale_inv()[j * 3 + k / 32]))
        })
    }

    #[test]
    fn lanes_that_lose_bits_are_told() {
        let got = of(Format::E3m2, |k, c| if k % 4 == 2 { c & 7 } else { c });
        assert_eq!(got.0, "bits_reinterpreted:b.lane_mask", "{}", got.1);
        assert!(got.1.contains("codes k mod 4 = 2 lose their top 3 bits"), "{}", got.1);
        let got = of(Format::E2m3, |k, c| if k % 8 == 5 { c | 2 } else { c });
        assert!(got.1.contains("codes k mod 8 = 5 have bit 1 set"), "{got:?}");
        // Codes that are others in every way.
        let got = of(Format::E3m2, |k, c| if k % 4 == 2 { c.wrapping_mul(29).wrapping_add(11) & 63 } else { c });
        assert!(!got.0.contains("lane_mask"), "{got:?}");
    }
}
