//! Scales of all of K that only some of the parts of K meet: split by blocks, and scaled by one of them, or by each of them again.
//!
//! ```text
//! out[i, j] = Σ_p s_p · Σ_{k in part p} codes            right: s_p = s for all parts; here 1 for some, or sⁿ with n = the parts behind it
//! ```

use super::address::gcd;
use super::maps::cost;
use super::one_part::ends;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Parts of K, and the tiles that they are made of: 1 cuts it evenly.
const PARTS: [usize; 7] = [2, 3, 4, 5, 6, 8, 16];
const UNITS: [usize; 5] = [1, 128, 64, 32, 16];

/// How often part p of n meets the scales.
type Times = fn(usize, usize) -> i32;

struct Way {
    words: &'static str,
    bits: f64,
    class: Class,
    /// Whether it says of two parts what another way says.
    of_many: bool,
    times: Times,
}

/// Of a, of b, of both: where a scale goes with all of K.
pub fn theories(s: &System) -> Vec<Theory> {
    let scaled = |side: Which| s.given(side).q.is_some() && s.given(side).grid.1 == 1 && s.given(side).zero.is_none();
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) || !(scaled(Which::A) || scaled(Which::B)) {
        return Vec::new();
    }
    use Class::{ScaleDoubledInverted, ScaleOmitted};
    let way = |words, bits, class, of_many, times: Times| Way { words, bits, class, of_many, times };
    let ways = [
        way("the last part of K alone meets {}, the others are added without", 0.0, ScaleOmitted, false, |p, n| {
            i32::from(p + 1 == n)
        }),
        way("the first part of K alone meets {}, the others are added without", 0.5, ScaleOmitted, false, |p, _| {
            i32::from(p == 0)
        }),
        // Of two parts the first alone is all but the last.
        way("the last part of K is added without {}", 1.0, ScaleOmitted, true, |p, n| i32::from(p + 1 < n)),
        way("the first part of K is added without {}", 1.0, ScaleOmitted, true, |p, _| i32::from(p > 0)),
        way(
            "what is summed so far meets {} again after every part of K: early parts several times",
            1.0,
            ScaleDoubledInverted,
            false,
            |p, n| (n - p) as i32,
        ),
        way("the last part of K meets {} twice", 2.0, ScaleDoubledInverted, false, |p, n| 1 + i32::from(p + 1 == n)),
    ];
    let mut cuts: Vec<Arc<Vec<usize>>> = Vec::new();
    for (parts, unit) in PARTS.into_iter().flat_map(|p| UNITS.map(|u| (p, u))) {
        let ends = ends(s.k, parts, unit);
        if ends.len() > 1 && !cuts.iter().any(|c| **c == ends) {
            cuts.push(Arc::new(ends));
        }
    }
    let steps = [Which::A, Which::B].map(|side| {
        let g = s.given(side);
        Arc::new((0..g.rows).map(|i| g.step(i, 0)).collect::<Vec<f64>>())
    });
    let mut all = Vec::new();
    for (sides, whose) in [
        (&[Which::A, Which::B][..], "the scales of a and of b"),
        (&[Which::A], "the scales of a"),
        (&[Which::B], "the scales of b"),
    ] {
        if !sides.iter().all(|side| scaled(*side)) {
            continue;
        }
        for (cut, way) in cuts.iter().flat_map(|c| ways.iter().map(move |w| (c, w))) {
            let (n, times) = (cut.len(), way.times);
            if n == 2 && way.of_many {
                continue;
            }
            let words = format!("of {n} parts of K (0 … {}, …) {}", cut[0] - 1, way.words.replace("{}", whose));
            let (name, of) = if sides.len() == 2 { ("a", "both") } else { (sides[0].name(), sides[0].name()) };
            let mut t = Theory::new(way.class, name, format!("{of}.in_part"), words).bits(4.0 + way.bits + cost(n));
            // Each part is a whole number of these.
            let every = cut[..n - 1].iter().copied().fold(0, gcd);
            for side in sides {
                let (steps, cut) = (steps[usize::from(*side == Which::B)].clone(), cut.clone());
                let scale = move |i: usize, k: usize| steps[i].powi(times(cut.iter().filter(|end| **end <= k).count(), n));
                t.side(*side).scaled(every, Arc::new(scale));
            }
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum};
    use crate::job::Operand;

    #[test]
    fn scales_that_one_part_of_k_meets_are_told() {
        let k_all = 256;
        let (a, b) = (codes(Format::E4m3, M, k_all, k_all, false, 97), codes(Format::E4m3, N, k_all, k_all, false, 98));
        let (x, y) = (a.dequantize(), b.dequantize());
        let scale = |i: usize, j: usize| f64::from(a.scale_inv()[i]) * f64::from(b.scale_inv()[j]);
        let operand = Operand::Quantized(a.clone());
        let of = |times: &dyn Fn(usize) -> i32| {
            found(&operand, &b, None, Format::Bf16, |i, j, _| {
                sum(k_all, |k| x[[i, k]] * y[[j, k]] * scale(i, j).powi(times(k) - 1))
            })
        };
        let got = of(&|k| i32::from(k >= 192));
        assert_eq!(got.0, "scale_omitted:both.in_part", "{}", got.1);
        assert!(
            got.1.contains("of 4 parts of K (0 … 63, …) the last part of K alone meets the scales of a and of b"),
            "{}",
            got.1
        );
        let got = of(&|k| 2 - (k / 128) as i32);
        assert!(
            got.0 == "scale_doubled_inverted:both.in_part" && got.1.contains("again after every part of K"),
            "{} {}",
            got.0,
            got.1
        );
    }
}
