//! A dequantization whose scales are indexed by groups of another size than the stored ones.
//!
//! ```text
//! element (r, k) takes scale r·G + k / s, s no group's size: with a smaller s it runs on into the scales of the next rows
//! ```

use super::readings::Held;
use crate::fault::Class;
use crate::{Granularity, QTensor};
use std::collections::BTreeSet;

/// Groups of wrong elements that take another scale, at least.
const GROUPS: usize = 8;
/// Sizes that kernels have for a group.
const SIZES: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];

/// The scale that each element takes, in words. `is`: whether an element is its code by this scale.
pub fn explain(q: &QTensor, is: &dyn Fn(usize, usize) -> bool, wrong: &[usize]) -> Option<(Class, &'static str, String)> {
    let Granularity::Group(size) = q.granularity() else { return None };
    let (cols, n) = (q.cols(), q.scale_inv().len());
    let groups = cols.div_ceil(size.max(1));
    let held = Held::of(wrong, q.codes().len()).filter(|_| groups > 1)?;
    for s in SIZES.into_iter().filter(|s| *s != size) {
        for way in 0..4 {
            // A larger size stays in its row, whatever is done at its end.
            if way > 1 && s > size {
                continue;
            }
            let scale = |at: usize| {
                let (r, k) = (at / cols, at % cols);
                let g = match way {
                    0 => r * groups + k / s,
                    1 => r * cols.div_ceil(s) + k / s,
                    2 => r * groups + k / s % groups,
                    _ => r * groups + (k / s).min(groups - 1),
                };
                (g < n).then_some(g)
            };
            if !held.made_by(4, &|at| scale(at).map(|g| is(at, g))) {
                continue;
            }
            // Elements of one group say one thing.
            let pair = |at: &usize| Some((q.scale_index(at / cols, at % cols), scale(*at)?));
            let others = |(own, g): &(usize, usize)| q.scale_inv()[*own] != q.scale_inv()[*g];
            let told: BTreeSet<usize> = wrong.iter().filter_map(pair).filter(others).map(|(own, _)| own).collect();
            if told.len() < GROUPS {
                continue;
            }
            let index = match way {
                0 => format!("r·{groups} + k / {s}"),
                1 => format!("r·{} + k / {s}", cols.div_ceil(s)),
                2 => format!("r·{groups} + (k / {s}) mod {groups}"),
                _ => format!("r·{groups} + min(k / {s}, {})", groups - 1),
            };
            let runs = if way == 0 && s < size { ", and runs on into the scales of the next rows" } else { "" };
            let words = format!(
                "the scales are indexed by groups of {s} where a group has {size}: element (r, k) takes scale {index}{runs}"
            );
            return Some((Class::ScaleIndex, "a.group_size", words));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Zero};

    #[test]
    fn scales_of_groups_of_another_size_are_named() {
        let (rows, cols, size) = (24usize, 512usize, 128usize);
        let q = QTensor::new(QTensorParts {
            format: Format::Int8,
            rows,
            cols,
            codes: vec![3; rows * cols],
            granularity: Granularity::Group(size),
            scale_format: Format::F32,
            scale_inv: (0..rows * 4).map(|g| 1.0 + (g * 37 % 101) as f32).collect(),
            zero: Zero::None,
            level: None,
        })
        .unwrap();
        let said = |of: &dyn Fn(usize, usize) -> usize| {
            let taken = |at: usize| q.scale_inv().get(of(at / cols, at % cols)).copied().unwrap_or(0.0);
            let is = |at: usize, g: usize| q.scale_inv()[g] == taken(at);
            let wrong: Vec<usize> = (0..rows * cols).filter(|at| !is(*at, at / cols * 4 + at % cols / size)).collect();
            explain(&q, &is, &wrong).map(|f| f.2).unwrap_or_default()
        };
        let words = said(&|r, k| r * 4 + k / 64);
        assert!(words.contains("groups of 64 where a group has 128") && words.contains("r·4 + k / 64, and runs on"), "{words}");
        assert!(said(&|r, k| r * 4 + k / 256).ends_with("takes scale r·4 + k / 256"));
        assert!(said(&|r, k| r * 8 + k / 64).ends_with("takes scale r·8 + k / 64"));
        assert!(said(&|r, k| r * 4 + k / 64 % 4).ends_with("(k / 64) mod 4"));
        assert!(said(&|r, k| r * 4 + (k / 32).min(3)).ends_with("min(k / 32, 3)"));
        assert_eq!(said(&|r, k| r * 4 + k / size), "");
    }

    /// Half of one group by another scale, among scales that are all alike: any size of groups makes it.
    #[test]
    fn one_group_of_another_scale_tells_no_size() {
        let (rows, cols, size, odd) = (24usize, 512usize, 128usize, 41usize);
        let scale = |g: usize| if g == odd { 2.0 } else { 1.0 };
        let q = QTensor::new(QTensorParts {
            format: Format::Int8,
            rows,
            cols,
            codes: vec![3; rows * cols],
            granularity: Granularity::Group(size),
            scale_format: Format::F32,
            scale_inv: (0..rows * 4).map(scale).collect(),
            zero: Zero::None,
            level: None,
        })
        .unwrap();
        // Rows of 4 groups: elements of the odd one from its 64th on were made by 1.
        let stale = |at: usize| q.scale_index(at / cols, at % cols) == odd && at % size >= 64;
        let made = |at: usize| if stale(at) { 1.0 } else { q.scale_inv()[q.scale_index(at / cols, at % cols)] };
        let wrong: Vec<usize> = (0..rows * cols).filter(|at| stale(*at)).collect();
        assert_eq!(explain(&q, &|at, g| q.scale_inv()[g] == made(at), &wrong).map(|f| f.2), None);
    }
}
