//! Scales of blocks of K that multiply the whole accumulator, and not the products of their block alone: early blocks meet the scales of all later ones.
//!
//! ```text
//! acc = (acc + dot_p) · s_p          dot_p by Π_{q ≥ p} s_q;   right: acc = acc + dot_p · s_p
//! ```

use super::maps::cost;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// K of a step of the main loop, where it is less than that of a block.
const STEPS: [usize; 5] = [128, 64, 32, 16, 8];

/// Of both operands, and of either: where scales go along K.
pub fn theories(s: &System) -> Vec<Theory> {
    let blocks = |side: &Which| s.given(*side).q.is_some() && s.given(*side).grid.1 > 1 && s.given(*side).zero.is_none();
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let sides: Vec<Which> = [Which::A, Which::B].into_iter().filter(blocks).collect();
    let Some(block) = sides.iter().map(|side| s.given(*side).tile.1).min() else { return Vec::new() };
    let mut all = Vec::new();
    let mut sets: Vec<Vec<Which>> = sides.iter().map(|side| vec![*side]).collect();
    if sides.len() == 2 {
        sets.insert(0, sides);
    }
    let steps = std::iter::once(block).chain(STEPS.into_iter().filter(|w| *w < block && block.is_multiple_of(*w)));
    for (step, set) in steps.flat_map(|w| sets.iter().map(move |set| (w, set))) {
        let (name, of) = if set.len() == 2 { ("out", "a and of b") } else { (set[0].name(), set[0].name()) };
        let words = format!(
            "the whole accumulator is multiplied by the scales of {of} after every {step} of K, what was summed before too: acc = (acc + dot)·s"
        );
        let more = if step == block { 0.0 } else { 1.0 + cost(step) };
        let variant = if set.len() == 2 { "both.met_again".to_string() } else { format!("{name}.met_again") };
        let mut t = Theory::new(Class::ScaleDoubledInverted, name, variant, words).bits(3.0 + more);
        for side in set {
            t.side(*side).scaled(step, products(s, *side, step));
        }
        all.push(t);
    }
    all
}

/// What a step's products meet: the scales of its own step and of all behind it.
fn products(s: &System, side: Which, step: usize) -> At {
    let g = s.given(side);
    let (tall, n) = (g.tile.0, g.k.div_ceil(step));
    let mut met = vec![1.0; g.grid.0 * n];
    for r in 0..g.grid.0 {
        let mut product = 1.0;
        for p in (0..n).rev() {
            product *= g.step(r * tall, p * step);
            met[r * n + p] = product;
        }
    }
    Arc::new(move |i, k| met[i / tall * n + k / step])
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum};
    use crate::job::Operand;

    #[test]
    fn scales_that_meet_the_whole_accumulator_are_told() {
        const K: usize = 192;
        let with = |blocks: usize, step: &dyn Fn(f64, usize) -> f64| {
            let (a, b) = (codes(Format::E4m3, M, K, blocks, false, 91), codes(Format::E4m3, N, K, K, false, 92));
            let mut wide = a.clone().into_parts();
            // Scales about 1, so that early blocks are left.
            wide.scale_inv.iter_mut().for_each(|s| *s *= 40.0);
            let a = crate::QTensor::new(wide).unwrap();
            let (x, y) = (a.dequantize(), b.dequantize());
            let n = K / blocks;
            found(&Operand::Quantized(a.clone()), &b, None, Format::Bf16, |i, j, _| {
                (0..n).fold(0.0, |acc, p| {
                    let s = f64::from(a.scale_inv()[i * n + p]);
                    let dot = sum(blocks, |k| x[[i, p * blocks + k]] * y[[j, p * blocks + k]]) / s;
                    if step(s, p) == s { (acc + dot) * s } else { acc * step(s, p) + dot * s }
                })
            })
        };
        let got = with(32, &|s, _| s);
        assert_eq!(got.0, "scale_doubled_inverted:a.met_again", "{}", got.1);
        assert!(got.1.contains("by the scales of a after every 32 of K"), "{}", got.1);
        // Other numbers in the place of the scales.
        let got = with(32, &|_, p| 0.5 + 0.1 * p as f64);
        assert!(!got.0.contains("met_again"), "{} {}", got.0, got.1);
    }
}
