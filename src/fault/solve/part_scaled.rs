//! Scales of all of K that only some of the parts of K meet: split by blocks, and scaled by one of them, or by each of them again.
//!
//! ```text
//! out[i, j] = Σ_p s_p · Σ_{k in part p} codes            right: s_p = s for all parts; here 1 for some, or sⁿ with n = the parts behind it
//! ```

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

/// Of a, of b, of both: where a scale goes with all of K.
pub fn theories(s: &System) -> Vec<Theory> {
    let scaled = |side: Which| s.given(side).q.is_some() && s.given(side).grid.1 == 1 && s.given(side).zero.is_none();
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) || !(scaled(Which::A) || scaled(Which::B)) {
        return Vec::new();
    }
    let ways: [(&str, f64, Class, Times); 6] = [
        ("the last part of K alone meets {}, the others are added without", 0.0, Class::ScaleOmitted, |p, n| {
            i32::from(p + 1 == n)
        }),
        ("the first part of K alone meets {}, the others are added without", 0.5, Class::ScaleOmitted, |p, _| {
            i32::from(p == 0)
        }),
        ("the last part of K is added without {}", 1.0, Class::ScaleOmitted, |p, n| i32::from(p + 1 < n)),
        ("the first part of K is added without {}", 1.0, Class::ScaleOmitted, |p, _| i32::from(p > 0)),
        (
            "what is summed so far meets {} again after every part of K: early parts several times",
            1.0,
            Class::ScaleDoubledInverted,
            |p, n| (n - p) as i32,
        ),
        ("the last part of K meets {} twice", 2.0, Class::ScaleDoubledInverted, |p, n| 1 + i32::from(p + 1 == n)),
    ];
    let mut cuts: Vec<Vec<usize>> = Vec::new();
    for (parts, unit) in PARTS.into_iter().flat_map(|p| UNITS.map(|u| (p, u))) {
        let ends = ends(s.k, parts, unit);
        if ends.len() > 1 && !cuts.contains(&ends) {
            cuts.push(ends);
        }
    }
    let mut all = Vec::new();
    for (sides, whose) in [
        (&[Which::A, Which::B][..], "the scales of a and of b"),
        (&[Which::A], "the scales of a"),
        (&[Which::B], "the scales of b"),
    ] {
        if !sides.iter().all(|side| scaled(*side)) {
            continue;
        }
        for (cut, (words, bits, class, times)) in cuts.iter().flat_map(|c| ways.map(move |w| (c, w))) {
            let n = cut.len();
            // Of two parts the first alone is all but the last.
            if n == 2 && (words.contains("first part of K is") || words.contains("last part of K is")) {
                continue;
            }
            let words = format!("of {n} parts of K (0 … {}, …) {}", cut[0] - 1, words.replace("{}", whose));
            let (name, of) = if sides.len() == 2 { ("a", "both") } else { (sides[0].name(), sides[0].name()) };
            let mut t = Theory::new(class, name, format!("{of}.in_part"), words).bits(4.0 + bits + cost(n));
            for side in sides {
                let g = s.given(*side);
                let steps: Vec<f64> = (0..g.rows).map(|i| g.step(i, 0)).collect();
                let of_k: Vec<i32> = (0..s.k).map(|k| times(cut.iter().filter(|end| **end <= k).count(), n)).collect();
                t.side(*side).scale = Some(Arc::new(move |i, k| steps[i].powi(of_k[k])));
                t.side(*side).every = 1;
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
