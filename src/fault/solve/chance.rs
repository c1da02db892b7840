//! Whether a theory explains more than chance: what wrong elements tell, in bits, against the choice of one theory of many.
//!
//! An element tells log2(1 + error / width of what the theory allows there), and nothing where that has the right value too. Where the theory says by
//! itself which elements are wrong, each of the n of N that are tells log2(N / n) more; a region was taken from the result, and tells nothing: there N
//! are the elements that it has.
//!
//! Where a theory reads one number for scales that differ, all elements tell one gain and no more: how narrow it is, against the bits of the number.

use super::given::{Given, Side};
use super::system::{Region, System, Theory};
use crate::fault::edit::Which;
use std::cell::LazyCell;
use std::sync::Arc;

/// Bits that a theory needs, and one in a region.
const NEED: f64 = 10.0;
const IN_REGION: f64 = 16.0;
/// Bits that one gain has to tell beyond those of its number.
const MARGIN: f64 = 4.0;
/// What one element tells at most.
const MOST: f64 = 20.0;

pub fn is_evident(s: &System, t: &Theory) -> bool {
    // Which of its roundings fall the other way is not known: others count how many do not.
    if t.kept.is_some() {
        return true;
    }
    let need = if t.region.is_some() { IN_REGION } else { NEED };
    // Counted once somebody asks: most of what comes here says nothing of any element.
    let place = LazyCell::new(|| {
        let wrong = s.is_wrong.iter().filter(|w| **w).count().max(1) as f64;
        let places = t.region.as_ref().map_or(s.is_wrong.len() as f64, |r| places(r));
        (places / wrong).log2().max(0.0)
    });
    let mut bits = 0.0;
    for (i, j) in s.probes.iter().copied().filter(|(i, j)| s.is_wrong[i * s.cols + j]) {
        bits += told(s, t, i, j).map_or(0.0, |told| (told + *place).min(MOST));
        if bits >= need {
            return one_gain(s, t).is_none_or(|told| told >= t.bits + MARGIN);
        }
    }
    false
}

/// Elements of a region.
fn places(r: &Region) -> f64 {
    let count = |v: &[bool]| v.iter().filter(|x| **x).count();
    match r.tiles.is_empty() {
        true => (count(&r.rows) * count(&r.cols)) as f64,
        false => r.tiles.iter().map(|(rows, cols)| rows.len() * cols.len()).sum::<usize>() as f64,
    }
}

/// Bits that one gain tells, where a theory makes of scales that differ one number: log2(gain / the width of what all elements allow). `None`: it does
/// more, or less.
fn one_gain(s: &System, t: &Theory) -> Option<f64> {
    let of_scales = |x: &Side| x.code.is_none() && x.table.is_none() && x.value.is_none() && x.zero.is_none();
    let plain =
        t.region.is_none() && t.patch.is_none() && t.finish.is_none() && t.from.is_none() && t.expert.is_none() && !t.fitted;
    (plain && of_scales(&t.a) && of_scales(&t.b) && (t.a.scale.is_some() || t.b.scale.is_some())).then_some(())?;
    let differ = |g: &Given| g.scales().iter().any(|x| *x != g.scales()[0]);
    (differ(&s.a) || differ(&s.b)).then_some(())?;
    let mut codes = t.clone();
    [Which::A, Which::B].into_iter().for_each(|side| codes.side(side).scaled(0, Arc::new(|_, _| 1.0)));
    let (mut gains, mut range) = (Vec::new(), (f64::NEG_INFINITY, f64::INFINITY));
    for (i, j) in s.probes.iter().copied() {
        let ((sum, size), (v, _)) = (s.sum(&codes, i, j), s.sum(t, i, j));
        let Some((y, half)) = s.written(i, j, v.abs() * size / sum.abs().max(1e-300)).filter(|_| sum != 0.0 && v.is_finite())
        else {
            continue;
        };
        gains.push(v / sum);
        let ends = [(y - half) / sum, (y + half) / sum];
        range = (range.0.max(ends[0].min(ends[1])), range.1.min(ends[0].max(ends[1])));
    }
    let first = *gains.first().filter(|_| gains.len() >= 8)?;
    gains
        .iter()
        .all(|g| (g - first).abs() <= 1e-9 * first.abs())
        .then(|| (first.abs() / (range.1 - range.0).max(1e-300)).log2())
}

/// What one wrong element tells. `None`: it does not tell the theory from a right kernel.
fn told(s: &System, t: &Theory, i: usize, j: usize) -> Option<f64> {
    let at = i * s.cols + j;
    let (x, right) = (s.actual[at], s.ideal[at]);
    (!s.is_unknown(t.at(i, j), i, j)).then_some(())?;
    if !x.is_finite() || !right.is_finite() {
        return Some(MOST);
    }
    let step = s.out.spacing(at, x).max(f64::MIN_POSITIVE);
    let (low, high) = s.value(t, i, j).map_or((x, x), |(_, low, high)| (low, high));
    // NaN tells nothing.
    (right < low || high < right).then(|| (1.0 + (x - right).abs() / (high - low).max(step)).log2())
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, wide};

    fn off(half: &dyn Fn(f64) -> f64, step: f64) -> f64 {
        (half(step) / step - 1.0).abs()
    }

    #[test]
    fn elements_of_a_region_are_those_of_its_lines_or_tiles() {
        let mut r = super::Region {
            rows: vec![true, false, true, true],
            cols: vec![true, true, false],
            tiles: Vec::new(),
            words: String::new(),
        };
        assert_eq!(super::places(&r), 6.0);
        r.tiles = vec![(0..1, 0..2), (2..4, 1..2)];
        assert_eq!(super::places(&r), 4.0);
    }

    #[test]
    fn one_element_that_is_hardly_wrong_has_no_name() {
        let (a, b) = (wide(M, 64), codes(Format::E4m3, N, 64, 64, false, 131));
        // What scales rounded to f16 make of one element: so would much else.
        let half = |x: f64| Format::F16.decode(Format::F16.encode(x, crate::Rounding::NearestEven, crate::Overflow::Native));
        let step = |j: usize| f64::from(b.scale_inv()[j]);
        let (i0, j0) = (8, (0..N).max_by(|x, y| off(&half, step(*x)).total_cmp(&off(&half, step(*y)))).unwrap());
        let got = found(&a, &b, None, Format::F32, |i, j, right| {
            right[i * N + j] * if (i, j) == (i0, j0) { half(step(j)) / step(j) } else { 1.0 }
        });
        assert!(got.0.starts_with("unknown"), "{} {}", got.0, got.1);
    }
}
