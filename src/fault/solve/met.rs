//! Theories of what meets scales too often or too rarely besides the factors of a product: the bias, and the sum of all blocks along K.
//!
//! ```text
//! bias(i, j) · s_a(i) · s_b(j)                 multiplied like the sum; of rows that meet another expert, that one's
//! bias(i, j) · s_b(j) / s_b(0)                   made by the first scale, read by each column's own; in whole steps of s_a·s_b, or as it is
//! Σ_blocks · s_a(i, last) · s_b(j, last)       a sum in units of a block's scales: once more, or once less
//! ```

use super::given::Given;
use super::output::Add;
use super::system::{Finish, System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// A sum that is kept in units of a block's scales along K, and meets those of the first or the last block once too often or too rarely.
pub fn last_block(s: &System, add: &mut Add) {
    let blocks = s.a.grid.1.max(s.b.grid.1);
    if s.alone || s.parts.len() != 1 || blocks < 2 || s.parts[0].k.len() != s.k {
        return;
    }
    for (k, which) in [(s.k - 1, "last"), (0, "first")] {
        let of = |g: &Given, lines: usize| -> Vec<f64> { (0..lines).map(|i| g.step(i, k)).collect() };
        let (sa, sb) = (of(&s.a, s.rows), of(&s.b, s.cols));
        for twice in [false, true] {
            let (sa, sb, bias) = (sa.clone(), sb.clone(), s.bias.clone());
            let (class, how) = match twice {
                false => (Class::ScaleOmitted, "left out"),
                true => (Class::ScaleDoubledInverted, "applied twice"),
            };
            let words = format!("the scales of the {which} block of K are {how}, of the sum of all blocks");
            let finish: Finish = Arc::new(move |i, j, v| {
                let scale = sa[i] * sb[j];
                bias.at(i, j) + if twice { v * scale } else { v / scale }
            });
            add(class, "block_scale", words, 4.0, false, finish);
        }
    }
}

/// The scale of each line of an operand whose scales do not change along K.
fn of_lines(g: &Given, rows: usize) -> Option<Vec<f64>> {
    let scales = g.q.as_ref().filter(|_| g.grid.1 == 1)?.scale_inv();
    Some((0..rows).map(|i| f64::from(scales[(i / g.tile.0).min(scales.len() - 1)]) * g.global).collect())
}

/// What adds to a theory of rows that meet experts the bias of these, multiplied by scales.
pub type Adds = Box<dyn Fn(Theory) -> Theory>;

/// The biases of the experts that a theory's rows meet, by the scale of a, of b, or both: words and a name behind the theory's own.
pub fn bias_of_experts(s: &System) -> Vec<Adds> {
    let (sa, sb) = (of_lines(&s.a, s.a.rows).map(Arc::new), of_lines(&s.b, s.b.rows).map(Arc::new));
    if !s.bias.any() || s.bias.experts() < 2 || s.a.rows != s.rows {
        return Vec::new();
    }
    let ways = [(true, false, "the scale of a"), (false, true, "the scale of b"), (true, true, "both scales")];
    let ways = ways.into_iter().filter(|(a, b, _)| (sa.is_some() || !a) && (sb.is_some() || !b));
    let starts: Arc<Vec<usize>> = Arc::new(s.parts.iter().map(|p| p.b).collect());
    let one = |(by_a, by_b, words): (bool, bool, &'static str)| -> Adds {
        let (sa, sb, starts, bias) = (sa.clone(), sb.clone(), starts.clone(), s.bias.clone());
        Box::new(move |mut t: Theory| {
            let (sa, sb, starts, bias, map) = (sa.clone(), sb.clone(), starts.clone(), bias.clone(), t.expert.clone());
            t.variant += &format!(" + {}:out.bias_scaled", Class::ScaleDoubledInverted.name());
            t.detail += &format!("; and the bias is multiplied by {words}");
            t.finish = Some(Arc::new(move |i, j, v| {
                let Some(e) = map.as_ref().and_then(|m| m[i]) else { return v };
                let of = |by: bool, scales: &Option<Arc<Vec<f64>>>, line: usize| match scales {
                    Some(x) if by => x[line],
                    _ => 1.0,
                };
                v + bias.of_expert(e, j) * bias.weight(i) * of(by_a, &sa, i) * of(by_b, &sb, starts[e] + j)
            }));
            t
        })
    };
    ways.map(one).collect()
}

/// The bias, multiplied by scales too: of operands whose scales do not change along K.
pub fn scaled_bias(s: &System, add: &mut Add) {
    let (sa, sb) = (of_lines(&s.a, s.a.rows), of_lines(&s.b, s.b.rows));
    let bias = &s.bias;
    // The row of b that column 0 of each row meets: that of its expert.
    let first: Arc<Vec<usize>> = Arc::new(s.part.iter().map(|p| p.map_or(0, |p| s.parts[p].b)).collect());
    for (a, b, words) in
        [(1, 1, "both scales"), (1, 0, "the scale of a"), (0, 1, "the scale of b"), (-1, -1, "the reciprocals of both scales")]
    {
        if (sa.is_none() && a != 0) || (sb.is_none() && b != 0) {
            continue;
        }
        let (sa, sb, bias, first) = (sa.clone(), sb.clone(), bias.clone(), first.clone());
        let words = format!("the bias is multiplied by {words}");
        let one = |of: &Option<Vec<f64>>, row: usize, n: i32| of.as_ref().map_or(1.0, |x| x[row].powi(n));
        let finish: Finish = Arc::new(move |i, j, v| v + bias.at(i, j) * one(&sa, i, a) * one(&sb, first[i] + j, b));
        add(Class::ScaleDoubledInverted, "bias_scaled", words, 3.0, false, finish);
    }
    // A bias in codes, as whole steps of both scales: of each column's, or all of the first one's.
    if let (Some(sa), Some(sb)) = (&sa, &sb)
        && s.parts.len() == 1
        && sa.iter().all(|x| *x == sa[0])
    {
        for first in [false, true] {
            let step = |j: usize| sa[0] * sb[j];
            let by = |j: usize| step(if first { 0 } else { j });
            let codes: Vec<f64> = (0..s.cols).map(|j| (bias.at(0, j) / by(j)).round_ties_even() * step(j)).collect();
            let (class, variant, words) = match first {
                false => (Class::RoundOrder, "bias_rounded", "the bias is rounded to whole steps of both scales"),
                true => (
                    Class::ScaleIndex,
                    "bias_scale",
                    "the bias is rounded to whole steps of the first scales and read in steps of each column's",
                ),
            };
            add(class, variant, words.into(), 4.5, false, Arc::new(move |_, j, v| v + codes[j]));
        }
    }
    // Made by one row's scale, as codes of a bias are, and read by each one's own; or the other way round.
    for (name, scales, by_row) in [("a", sa, true), ("b", sb, false)] {
        let Some(scales) = scales.filter(|x| x.iter().any(|s| *s != x[0])) else { continue };
        for inverse in [false, true] {
            let (scales, bias, first) = (scales.clone(), bias.clone(), first.clone());
            let (over, under) = if inverse { ("the first one", "its own") } else { ("its own", "the first one") };
            let words = format!("the bias is multiplied by {over} of the scales of {name} over {under}");
            let finish: Finish = Arc::new(move |i, j, v| {
                let own = scales[if by_row { i } else { first[i] + j }] / scales[0];
                v + bias.at(i, j) * if inverse { 1.0 / own } else { own }
            });
            add(Class::ScaleIndex, "bias_scale", words, 4.0, false, finish);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_biased_found, noise, sum};
    use crate::job::Operand;

    const N: usize = 36;
    const K: usize = 80;
    const ENDS: [usize; 4] = [9, 16, 16, 31];

    /// The expert of row i meets its weights; the bias is that of `bias(i)`, times what `by` makes of the scale of row i of a.
    fn said(met: &dyn Fn(usize) -> usize, bias_of: &dyn Fn(usize) -> usize, by: &dyn Fn(f64) -> f64) -> (String, String) {
        let (a, b) = (codes(Format::Int8, 31, K, K, false, 401), codes(Format::Int8, 4 * N, K, K, false, 402));
        let (x, y) = (a.dequantize(), b.dequantize());
        let bias: Vec<f32> = (0..4 * N).map(|x| 20.0 * (noise(x + 70) - 0.5) as f32).collect();
        let stored = bias.clone();
        grouped_biased_found(&Operand::Quantized(a.clone()), &b, &ENDS, bias, Format::F16, |i, j| {
            let sum = sum(K, |k| x[[i, k]] * y[[met(i) * N + j, k]]);
            sum + f64::from(stored[bias_of(i) * N + j]) * by(f64::from(a.scale_inv()[i]))
        })
    }

    /// `row > end`: the first row behind a group is still its.
    #[test]
    fn a_bias_that_meets_scales_beside_rows_of_another_expert_is_told() {
        let late = |i: usize| ENDS.iter().position(|end| i <= *end).unwrap();
        let got = said(&late, &late, &|s| s);
        assert_eq!(got.0, "group_boundary:rows_of_experts + scale_doubled_inverted:out.bias_scaled", "{}", got.1);
        assert!(
            got.1.contains("group 0 ends 1 row late") && got.1.contains("the bias is multiplied by the scale of a"),
            "{}",
            got.1
        );
        // As it should be, and by another number of each row.
        let got = said(&late, &late, &|_| 1.0);
        assert!(got.1.contains("whose bias comes with them") && !got.0.contains("bias_scaled"), "{} {}", got.0, got.1);
        let got = said(&late, &late, &|s| (1e4 * s).sin());
        assert!(!got.0.contains("bias_scaled"), "{} {}", got.0, got.1);
    }
}
