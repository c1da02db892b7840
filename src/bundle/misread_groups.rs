//! A dequantization with two mistakes in one line: the scale and the zero point of a group are taken from another place, and meet the code otherwise than
//! they should.
//!
//! ```text
//! y = f(code, scale[p(g)], zero[p(g)])          f: code·s + z, (code + z)·s, …          p: every way to address the grid
//! ```
//! Each alone is named elsewhere.

use super::readings::Held;
use crate::fault::Class;
use crate::fault::solve::maps::shortest_ways;
use crate::{QTensor, Zero};
use std::collections::BTreeSet;

/// Groups of wrong elements that take other numbers than their own, at least.
const GROUPS: usize = 8;
/// Elements that refuse most.
const FIRST: usize = 6;
/// What a product and a sum in f32 may be off, relative to what is added.
const NEAR: f64 = 1.0 / (1u64 << 22) as f64;

/// Words, and what is made of a code, its scale and its zero point.
type Formula = (&'static str, fn(f64, f64, f64) -> f64);

/// Of zero points that are subtracted from codes.
const SUBTRACTED: [Formula; 5] = [
    ("code·scale + zero point", |c, s, z| c * s + z),
    ("code·scale − zero point", |c, s, z| c * s - z),
    ("(code + zero point)·scale", |c, s, z| (c + z) * s),
    ("code·scale, without the zero point,", |c, s, _| c * s),
    ("(code − zero point) / scale", |c, s, z| (c - z) / s),
];
/// Of zero points that are added last.
const ADDED: [Formula; 5] = [
    ("(code − zero point)·scale", |c, s, z| (c - z) * s),
    ("(code + zero point)·scale", |c, s, z| (c + z) * s),
    ("code·scale − zero point", |c, s, z| c * s - z),
    ("code·scale, without the zero point,", |c, s, _| c * s),
    ("code / scale + zero point", |c, s, z| c / s + z),
];

/// What is read from another place.
const MOVED: [(&str, bool, bool); 3] =
    [("scales and zero points", true, true), ("scales", true, false), ("zero points", false, true)];

/// Both mistakes, in words. `is`: whether an element is this number, or nearer to it than this.
pub fn explain(q: &QTensor, is: &dyn Fn(usize, f64, f64) -> bool, wrong: &[usize]) -> Option<(Class, &'static str, String)> {
    let (zeros, middle, formulas, right): (Vec<f64>, _, _, _) = match q.zero() {
        Zero::None => return None,
        Zero::Integer(z) => (z.iter().map(|z| f64::from(*z)).collect(), 0, SUBTRACTED, "(code − zero point)·scale"),
        Zero::Additive { zero, mid } => (zero.iter().map(|z| f64::from(*z)).collect(), *mid, ADDED, "code·scale + zero point"),
    };
    let (cols, f) = (q.cols(), q.format());
    let grid = q.granularity().grid(q.rows(), cols);
    (q.level().is_none() && zeros.len() == grid.0 * grid.1 && zeros.len() == q.scale_inv().len()).then_some(())?;
    let held = Held::of(wrong, q.codes().len())?;
    let group = |at: usize| q.scale_index(at / cols, at % cols);
    let scale = |g: usize| f64::from(q.scale_inv()[g]);
    let made = |at: usize, of: Formula, (s, z): (usize, usize)| {
        let (c, s, z) = (f.decode(u32::from(q.codes()[at])) - f64::from(middle), scale(s), zeros[z]);
        let size = [(c * s).abs(), z.abs(), (z * s).abs()].into_iter().filter(|x| x.is_finite()).fold(0.0, f64::max);
        is(at, (of.1)(c, s, z), NEAR * size)
    };
    // Elements that their own numbers make by none of the formulas, from all over.
    let own = |at: &usize| formulas.iter().any(|of| made(*at, *of, (group(*at), group(*at))));
    let step = wrong.len().div_ceil(64);
    let first: Vec<usize> = wrong.iter().copied().step_by(step).filter(|at| !own(at)).take(FIRST).collect();
    (first.len() == FIRST).then_some(())?;
    let mut best: Option<(f64, String, String, &str)> = None;
    for way in shortest_ways(grid.0, grid.1) {
        let place = |g: usize| (way.map)(g / grid.1, g % grid.1);
        for (n, (what, scales, zero_points)) in MOVED.into_iter().enumerate() {
            let from = |g: usize| (if scales { place(g) } else { g }, if zero_points { place(g) } else { g });
            for of in formulas {
                let bits = way.bits + n.min(1) as f64;
                let shorter = best.as_ref().is_none_or(|b| bits < b.0);
                if !shorter || !first.iter().all(|at| made(*at, of, from(group(*at)))) {
                    continue;
                }
                if !held.made_by(2, &|at| Some(made(at, of, from(group(at))))) {
                    continue;
                }
                // Numbers that are alike are those of any place.
                let other = |g: &usize| {
                    let (s, z) = from(*g);
                    scale(s) != scale(*g) || zeros[z] != zeros[*g]
                };
                let told: BTreeSet<usize> = wrong.iter().map(|at| group(*at)).filter(other).collect();
                if told.len() >= GROUPS {
                    best = Some((bits, way.words.clone(), of.0.to_string(), what));
                }
            }
        }
    }
    let (_, place, formula, what) = best?;
    let words = format!(
        "two mistakes: {what} of group (r, c) of the {}×{} grid are read from {place}; and a value is {formula} instead of {right}",
        grid.0, grid.1
    );
    Some((Class::ScaleLayout, "a.place + zp_correction:a.formula", words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity};

    fn weights(additive: bool) -> QTensor {
        let (rows, groups) = (64usize, 6usize);
        let n = rows * groups;
        let zero: Vec<i32> = (0..n).map(|g| (g * 29 % 31 % 15) as i32).collect();
        QTensor::new(QTensorParts {
            format: Format::Uint4,
            rows,
            cols: 16 * groups,
            codes: (0..rows * groups * 16).map(|at| ((at * 7919 + 13) % 1009 % 16) as u8).collect(),
            granularity: Granularity::Group(16),
            scale_format: Format::F32,
            scale_inv: (0..n).map(|g| 0.02 + (g * 7919 % 1013) as f32 / 4096.0).collect(),
            zero: if additive {
                Zero::Additive { zero: zero.iter().map(|z| *z as f32 / 16.0).collect(), mid: 0 }
            } else {
                Zero::Integer(zero)
            },
            level: None,
        })
        .unwrap()
    }

    /// What is said where `of` makes every value, of the code, the scale and the zero point of group `from`.
    fn said(additive: bool, of: fn(f64, f64, f64) -> f64, from: &dyn Fn(usize, usize) -> usize) -> Option<String> {
        let q = weights(additive);
        let zeros: Vec<f64> = match q.zero() {
            Zero::Integer(z) => z.iter().map(|z| f64::from(*z)).collect(),
            Zero::Additive { zero, .. } => zero.iter().map(|z| f64::from(*z)).collect(),
            Zero::None => Vec::new(),
        };
        let y = |at: usize| {
            let g = from(at / 96, at % 96 / 16);
            of(f64::from(q.codes()[at]), f64::from(q.scale_inv()[g]), zeros[g])
        };
        let is = |at: usize, x: f64, near: f64| (x - y(at)).abs() <= near + y(at).abs() / 512.0;
        let right = |at: usize| q.affine(q.scale_index(at / 96, at % 96)).value(f64::from(q.codes()[at]));
        let wrong: Vec<usize> = (0..64 * 96).filter(|at| !is(*at, right(*at), 0.0)).collect();
        explain(&q, &is, &wrong).map(|f| f.2)
    }

    #[test]
    fn another_place_and_another_formula_are_named_together() {
        // Tiles of 16 rows, group after group, read row after row.
        let tiled = |r: usize, c: usize| {
            let x = r % 16 * 6 + c;
            (r / 16 * 16 + x % 16) * 6 + x / 16
        };
        let words = said(false, |c, s, z| c * s + z, &tiled).unwrap();
        assert!(words.contains("every 16 rows stand group by group (c·16 + r mod 16) and are read row by row"), "{words}");
        assert!(words.ends_with("a value is code·scale + zero point instead of (code − zero point)·scale"), "{words}");
        let words = said(true, |c, s, z| (c - z) * s, &|r, c| (r + 3) % 64 * 6 + c).unwrap();
        assert!(words.contains("read from row r + 3, wrapped; and a value is (code − zero point)·scale instead of"), "{words}");
    }

    #[test]
    fn one_mistake_alone_or_a_place_of_no_rule_is_none_of_these() {
        assert_eq!(said(false, |c, s, z| c * s + z, &|r, c| r * 6 + c), None);
        assert_eq!(said(false, |c, s, z| (c - z) * s, &|r, c| (r + 3) % 64 * 6 + c), None);
        assert_eq!(said(false, |c, s, z| c * s + z, &|r, c| (r * r * 7 + c * 5 + r * c * 11) % 384), None);
        assert_eq!(said(false, |c, s, z| c * s + 0.77 * z, &|r, c| (r + 3) % 64 * 6 + c), None);
    }
}
