//! Theories of what meets scales too often or too rarely besides the factors of a product: the bias, and the sum of all blocks along K.
//!
//! ```text
//! bias(i, j) · s_a(i) · s_b(j)                 multiplied like the sum
//! bias(i, j) · s_b(j) / s_b(0)                   made by the first scale, read by each column's own; in whole steps of s_a·s_b, or as it is
//! Σ_blocks · s_a(i, last) · s_b(j, last)       a sum in units of a block's scales: once more, or once less
//! ```

use super::given::Given;
use super::output::Add;
use super::system::{Finish, System};
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

/// The bias, multiplied by scales too: of operands whose scales do not change along K.
pub fn scaled_bias(s: &System, add: &mut Add) {
    let of = |g: &Given, rows: usize| -> Option<Vec<f64>> {
        let scales = g.q.as_ref().filter(|_| g.grid.1 == 1)?.scale_inv();
        Some((0..rows).map(|i| f64::from(scales[(i / g.tile.0).min(scales.len() - 1)]) * g.global).collect())
    };
    let (sa, sb) = (of(&s.a, s.a.rows), of(&s.b, s.b.rows));
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
