//! A bias of each expert that is another expert's, by no formula: experts that are counted in another order, by their global number where the bias is
//! stored by the local one, say. On top of a right product, or of another fault of it.
//!
//! ```text
//! out[i, j] = Σ_k a·b + bias[p(e), j]          e: the expert of row i; p(e): the one whose row all elements of the group allow
//! ```

use super::segment::spread_of;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Elements that an expert is told by, at least and at most; experts at most.
const LEAST: usize = 6;
const LOOKS: usize = 12;
const EXPERTS: usize = 512;

/// Of a product that is right otherwise.
pub fn theories(s: &System) -> Vec<Theory> {
    on_top(s, &Theory::right()).into_iter().collect()
}

/// What the bias of every expert is where `t` makes the sums. `None`: no bias of the stored ones makes a group, or more than one does.
pub fn on_top(s: &System, t: &Theory) -> Option<Theory> {
    let n = s.bias.experts();
    let plain = t.finish.is_none() && t.from.is_none() && t.region.is_none() && t.patch.is_none();
    (!s.alone && plain && (2..=EXPERTS).contains(&n) && n == s.parts.len() && s.bias.any()).then_some(())?;
    let mut map: Vec<usize> = (0..n).collect();
    let mut moved = Vec::new();
    for (e, is) in map.iter_mut().enumerate() {
        let p = &s.parts[e];
        // Rows of weight 0 have no bias.
        let places: Vec<(usize, usize)> = spread_of(p.rows.len() * s.cols, LOOKS)
            .into_iter()
            .map(|x| (p.rows.start + x / s.cols, x % s.cols))
            .filter(|(i, _)| s.bias.weight(*i) != 0.0)
            .collect();
        let mut left: Vec<usize> = std::iter::once(e).chain((0..n).filter(|x| *x != e)).collect();
        for (i, j) in &places {
            let (sum, size) = if t.sums_right() {
                let at = i * s.cols + j;
                (s.ideal[at] - s.bias.at(*i, *j), s.magnitude(at))
            } else {
                s.sum(t, *i, *j)
            };
            left.retain(|x| fits(s, (*i, *j), (sum, size), *x));
            // Nothing fits: the usual case ends after one element.
            let first = *left.first()?;
            if first == e && left.len() == 1 && t.sums_right() {
                break;
            }
        }
        let same = |x: usize| (0..s.cols).all(|j| s.bias.of_expert(x, j) == s.bias.of_expert(left[0], j));
        (places.is_empty() || left[0] == e || places.len() >= LEAST && left.iter().all(|x| same(*x))).then_some(())?;
        if !places.is_empty() && left[0] != e {
            *is = left[0];
            moved.push(e);
        }
    }
    // One expert alone is told by its rows.
    (moved.len() >= 2).then_some(())?;
    let some: Vec<String> = moved.iter().take(8).map(|e| format!("{e} ← {}", map[*e])).collect();
    let more = if moved.len() > 8 { ", …" } else { "" };
    let words = format!(
        "the bias of each expert is that of another: {}{more}: experts are counted in another order than their biases are stored, as by a global number \
         instead of a local one",
        some.join(", ")
    );
    let mut t = Theory::new(Class::Addressing, "out", "out.bias_expert", words);
    t.bits = 5.0 + moved.len() as f64 * (n as f64).log2();
    t.freedom = moved.len();
    let bias = s.bias.clone();
    t.finish = Some(Arc::new(move |i, j, v| {
        let own = bias.expert(i);
        v + bias.of_expert(map.get(own).copied().unwrap_or(own), j) * bias.weight(i)
    }));
    Some(t)
}

/// Whether the bias of any expert makes an element of this sum, which may be so far off.
pub fn may(s: &System, (i, j): (usize, usize), (sum, r): (f64, f64)) -> bool {
    let at = i * s.cols + j;
    let one = |e: usize| {
        let v = sum + s.bias.of_expert(e, j) * s.bias.weight(i);
        s.holds(at, s.actual[at], (v, v - r, v + r))
    };
    s.bias.experts() > 1 && (0..s.bias.experts()).any(one)
}

/// Whether an element may have been written for this sum and the bias of an expert.
fn fits(s: &System, (i, j): (usize, usize), (sum, size): (f64, f64), expert: usize) -> bool {
    let at = i * s.cols + j;
    let b = s.bias.of_expert(expert, j) * s.bias.weight(i);
    let r = s.relative * (size + b.abs()) + sum.abs() * 2f64.powi(-23);
    s.holds(at, s.actual[at], (sum + b, sum + b - r, sum + b + r))
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_biased_found, noise, sum, wide};

    const N: usize = 40;
    const K: usize = 128;

    /// Five experts; the bias of each is that of `of`, and its scales are those of the first group of K where `first` says so.
    fn named(of: &dyn Fn(usize, usize) -> usize, first: bool) -> (String, String) {
        let ends = [2usize, 3, 9, 9, 14];
        let (a, b) = (wide(14, K), codes(Format::Uint4, 5 * N, K, 32, true, 61));
        let crate::Zero::Integer(z) = b.zero().clone() else { panic!("whole zero points") };
        let x = a.to_f64();
        let bias: Vec<f32> = (0..5 * N).map(|x| 4.0 * (noise(x + 50) - 0.5) as f32).collect();
        let stored = bias.clone();
        grouped_biased_found(&a, &b, &ends, bias, Format::Bf16, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let row = e * N + j;
            let cell = |k: usize| row * 4 + if first { 0 } else { k / 32 };
            let value =
                |k: usize| (f64::from(b.codes()[row * K + k]) - f64::from(z[cell(k)])) * f64::from(b.scale_inv()[cell(k)]);
            sum(K, |k| x[[i, k]] * value(k)) + f64::from(stored[of(e, i) * N + j])
        })
    }

    #[test]
    fn biases_of_experts_in_another_order_are_told() {
        let map = [2, 0, 4, 1, 3];
        let got = named(&|e, _| map[e], false);
        assert_eq!(got.0, "addressing:out.bias_expert", "{}", got.1);
        assert!(got.1.contains("0 ← 2, 1 ← 0, 2 ← 4, 4 ← 3"), "{}", got.1);
        let got = named(&|e, _| map[e], true);
        assert!(got.0.contains(" + ") && got.0.contains("addressing:out.bias_expert"), "{} {}", got.0, got.1);
        assert!(got.1.contains("0 ← 2, 1 ← 0, 2 ← 4, 4 ← 3") && got.1.contains("group 0 for all of K"), "{}", got.1);
        // Another for each row is no order of experts.
        let got = named(&|e, i| (e + i % 3) % 5, false);
        assert!(!got.1.contains("counted in another order"), "{} {}", got.0, got.1);
    }
}
