//! Scales along K that are taken by the place within a group, as where the lanes of several groups are summed together first; and zero points whose term
//! has a part of the lanes of a group alone. Each by itself, and both.
//!
//! ```text
//! s(i, k)  =  scale[i, ⌊k / (n·g)⌋·n + ⌊(k mod g) / (g / n)⌋]        right: scale[i, ⌊k / g⌋]; g of K in a group, n groups side by side
//! z(i, k)  =  zero[i, ⌊k / g⌋] for the lanes k mod g of one half, 0 for the others
//! ```

use super::given::Given;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Groups whose lanes are summed together.
const TOGETHER: [usize; 3] = [2, 4, 8];

/// What is done to zero points.
#[derive(Clone, Copy, PartialEq)]
enum Zero {
    Own,
    /// Taken as the scales are.
    Moved,
    First,
    Second,
}

/// All of one operand with groups along K.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (wide, groups) = (g.tile.1, g.grid.1);
    if s.alone || g.q.is_none() || groups < 2 || wide < 2 || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let together = TOGETHER.into_iter().filter(|n| wide.is_multiple_of(*n) && groups.is_multiple_of(*n)).map(Some);
    let mut ways: Vec<(Option<usize>, Zero)> = Vec::new();
    for n in together.chain([None]) {
        let zeros: &[Zero] = match (&g.zero, n) {
            (None, _) => &[Zero::Own],
            (Some(_), Some(_)) => &[Zero::Own, Zero::Moved, Zero::First, Zero::Second],
            (Some(_), None) => &[Zero::First, Zero::Second],
        };
        ways.extend(zeros.iter().map(|z| (n, *z)));
    }
    ways.retain(|way| *way != (None, Zero::Own) && (way.1 == Zero::Own || wide.is_multiple_of(2)));
    ways.into_iter().map(|(n, zero)| theory(g, side, n, zero)).collect()
}

fn theory(g: &Given, side: Which, together: Option<usize>, zero: Zero) -> Theory {
    let (name, (rows, wide), cols) = (side.name(), g.tile, g.grid.1);
    let half = wide / 2;
    let moved = together.map(|n| {
        let what = if zero == Zero::Moved { "scales and zero points" } else { "scales" };
        format!(
            "the {what} of {name} are taken by the place within a group: of every {n} groups of {wide}, {} lanes of each go by the first one's, as many by \
             the next one's, and so on",
            wide / n
        )
    });
    let (from, to) = if zero == Zero::First { (half, wide) } else { (0, half) };
    let lost = matches!(zero, Zero::First | Zero::Second)
        .then(|| format!("the term of the zero points of {name} lacks lanes {from} … {} of every group of {wide}", to - 1));
    let class = if moved.is_some() { Class::ScaleIndex } else { Class::ZpCorrection };
    let variant = match (&moved, &lost) {
        (Some(_), Some(_)) => format!("{name}.lane_groups + {}:{name}.lane_terms", Class::ZpCorrection.name()),
        (Some(_), None) => format!("{name}.lane_groups"),
        _ => format!("{name}.lane_terms"),
    };
    let words: Vec<String> = moved.into_iter().chain(lost).collect();
    let mut t = Theory::new(class, name, variant, words.join("; and "));
    t.bits = 4.0 + together.map_or(0.0, cost) + if zero == Zero::Own { 0.0 } else { 3.0 };
    // Of a place the group that its scale is of.
    let cell = move |i: usize, k: usize| {
        let group = together.map_or(k / wide, |n| k / (n * wide) * n + k % wide / (wide / n));
        i / rows * cols + group
    };
    let every = together.map_or(wide, |n| wide / n);
    if together.is_some() {
        let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
        t.side(side).scaled(every, Arc::new(move |i, k| scales[cell(i, k)]));
    }
    if let Some((zeros, _)) = g.zero.as_ref().filter(|_| zero != Zero::Own) {
        let zeros = Arc::new(zeros.clone());
        let every = if together.is_some() { every } else { half };
        t.side(side).zeroed(
            every,
            Arc::new(move |i, k| match zero {
                Zero::Moved => zeros[cell(i, k)],
                _ if (from..to).contains(&(k % wide)) => 0.0,
                _ => zeros[i / rows * cols + k / wide],
            }),
        );
    }
    t
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, codes, found, noise, sum, wide};
    use crate::{Format, Zero};

    const N: usize = 40;
    const K: usize = 192;
    const G: usize = 24;

    /// What is said where b's scale is that of this group, and its zero points of these k alone count.
    fn said(zeros: bool, group: &dyn Fn(usize, usize) -> usize, counts: &dyn Fn(usize) -> bool) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Uint4, N, K, G, zeros, 33));
        let x = a.to_f64();
        let zero = |at: usize| match b.zero() {
            Zero::Integer(z) => f64::from(z[at]),
            _ => 0.0,
        };
        found(&a, &b, None, Format::F32, |i, j, _| {
            let own = |k: usize| j * (K / G) + k / G;
            let value = |k: usize| {
                let z = if counts(k) { zero(own(k)) } else { 0.0 };
                (f64::from(b.codes()[j * K + k]) - z) * f64::from(b.scale_inv()[j * (K / G) + group(j, k)])
            };
            sum(K, |k| x[[i, k]] * value(k))
        })
    }

    #[test]
    fn scales_by_the_place_within_a_group_are_told() {
        let by = |n: usize| move |_: usize, k: usize| k / (n * G) * n + k % G / (G / n);
        let got = said(false, &by(2), &|_| true);
        assert_eq!(got.0, "scale_index:b.lane_groups", "{}", got.1);
        assert!(got.1.contains("of every 2 groups of 24, 12 lanes of each"), "{}", got.1);
        let got = said(true, &by(4), &|k| k % G < G / 2);
        assert_eq!(got.0, "scale_index:b.lane_groups + zp_correction:b.lane_terms", "{}", got.1);
        assert!(
            got.1.contains("every 4 groups of 24, 6 lanes") && got.1.contains("lacks lanes 12 … 23 of every group of 24"),
            "{}",
            got.1
        );
        let got = said(true, &|_, k| k / G, &|k| k % G >= G / 2);
        assert!(got.0 == "zp_correction:b.lane_terms" && got.1.contains("lacks lanes 0 … 11"), "{} {}", got.0, got.1);
        // By no place.
        let got = said(false, &|j, k| (noise(j * K + k / 4) * 8.0) as usize, &|_| true);
        assert!(!got.0.contains("lane_groups"), "{} {}", got.0, got.1);
    }
}
