//! Groups of a cast that are not written: their codes and scales have nothing to do with their values, and are another call's.
//!
//! ```text
//! a group whose codes are not those of its values by its scale  ──►  signs of codes against signs of values: half agree, and of no other group all do
//! ```

use super::casts::{Cast, NEAR, Named};
use super::unwritten::by_chance;
use crate::fault::Class;
use crate::fault::solve::segment::lines;

/// Codes of a group whose signs tell whether they are of the values of another, at least.
const SOME: usize = 12;
/// Groups that are not written, at least; one in so many may be, at most.
const LEAST: usize = 4;
const RIGHT: usize = 8;
/// Groups that are looked for among all others.
const LOOKED: usize = 4;

impl Cast<'_> {
    /// Groups of some rows and columns of the grid that are not written, where all others are right.
    pub fn unwritten_groups(&self) -> Option<Named> {
        let (cols, n, (grid_rows, grid_cols)) = (self.q.cols(), self.q.codes().len(), self.grid);
        (grid_cols > 1 && self.stored.len() > RIGHT).then_some(())?;
        let x = |at: usize| f64::from(self.x.data()[at]);
        let mut is = vec![false; self.stored.len()];
        (0..n).filter(|at| !self.is_code(*at, x(*at) / self.stored[self.group(*at)])).for_each(|at| is[self.group(at)] = true);
        let count = is.iter().filter(|w| **w).count();
        (count >= LEAST && RIGHT * (is.len() - count) >= is.len()).then_some(())?;
        // Some rows and some columns of the grid, all of them.
        let (mut in_rows, mut in_cols) = (vec![false; grid_rows], vec![false; grid_cols]);
        (0..is.len()).filter(|g| is[*g]).for_each(|g| (in_rows[g / grid_cols], in_cols[g % grid_cols]) = (true, true));
        let whole = in_rows.iter().filter(|r| **r).count() * in_cols.iter().filter(|c| **c).count();
        (10 * count >= 9 * whole).then_some(())?;
        // Elements of a group in its order.
        let (high, wide) = self.tile;
        let places = |g: usize| {
            let (r, c) = (g / grid_cols * high, g % grid_cols * wide);
            (r..(r + high).min(self.q.rows())).flat_map(move |i| (c..(c + wide).min(cols)).map(move |j| i * cols + j))
        };
        let agree = |g: usize, with: usize| {
            let signs = places(g).zip(places(with)).map(|(c, v)| (self.value(c), x(v)));
            let told = signs.filter(|(c, x)| c * x != 0.0);
            told.fold((0usize, 0usize), |(n, same), (c, x)| (n + 1, same + usize::from(c * x > 0.0)))
        };
        let wrong: Vec<usize> = (0..is.len()).filter(|g| is[*g]).collect();
        let (told, same) = wrong.iter().map(|g| agree(*g, *g)).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        by_chance(same, told).then_some(())?;
        // Codes of another group of these values are at a wrong place, and no other call's.
        let some: Vec<usize> = wrong.iter().copied().filter(|g| agree(*g, *g).0 >= SOME).collect();
        let moved = |g: &usize| {
            (0..is.len()).any(|other| {
                let (n, same) = agree(*g, other);
                n >= SOME && (same == n || same == 0)
            })
        };
        let looked = some.iter().step_by(some.len().div_ceil(LOOKED).max(1));
        (!some.is_empty() && looked.clone().all(|g| !moved(g))).then_some(())?;
        let place = match (in_rows.contains(&false), in_cols.contains(&false)) {
            (false, true) => format!("groups {} of every row of the {grid_rows}×{grid_cols} grid", lines(&in_cols)),
            (true, false) => format!("rows {} of the {grid_rows}×{grid_cols} grid of scales", lines(&in_rows)),
            _ => format!("rows {}, groups {} of the {grid_rows}×{grid_cols} grid", lines(&in_rows), lines(&in_cols)),
        };
        let words = format!(
            "{place} are not written: their codes have nothing to do with their values ({same} of {told} signs agree) and keep, as their scales do, \
             what another call left there; all others of {cols} columns are right"
        );
        Some((Class::SilentSkip, "out.groups_unwritten", words))
    }

    /// Whether an element has the code of this number, as far as a division says.
    pub fn is_code(&self, at: usize, y: f64) -> bool {
        [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|f| self.nearest(y * f) == self.value(at))
    }
}

#[cfg(test)]
mod tests {
    use super::super::unwritten::tests::values;
    use super::*;
    use crate::recipe::Recipe;
    use crate::{QTensor, Tensor};

    #[test]
    fn groups_of_another_call_are_named() {
        let cast = |x: &Tensor| "te_block_1x128_fp32".parse::<Recipe>().unwrap().quantize(x).unwrap().q;
        let (x, old) = (values(1, 20, 896), cast(&values(2, 20, 896)));
        let right = cast(&x);
        let with = |from: &dyn Fn(usize, usize) -> Option<(usize, usize)>, source: &QTensor| {
            let mut p = right.clone().into_parts();
            for g in 0..20 * 7 {
                if let Some((r, c)) = from(g / 7, g % 7) {
                    p.scale_inv[g] = source.scale_inv()[r * 7 + c];
                    for j in 0..128 {
                        p.codes[g / 7 * 896 + g % 7 * 128 + j] = source.codes()[r * 896 + c * 128 + j];
                    }
                }
            }
            let q = QTensor::new(p).unwrap();
            Cast::of(&x, &q).unwritten_groups()
        };
        let found = with(&|r, c| (c >= 4).then_some((r, c)), &old).unwrap();
        assert!(found.2.starts_with("groups 4 … 6 of every row of the 20×7 grid are not written"), "{}", found.2);
        let found = with(&|r, c| (r >= 12).then_some((r, c)), &old).unwrap();
        assert!(found.2.starts_with("rows 12 … 19 of the 20×7 grid"), "{}", found.2);
        assert_eq!(with(&|r, c| (c >= 4).then(|| (r, c - 1)), &right), None, "those of the group before");
        assert_eq!(with(&|r, c| (c >= 6).then_some(((r + 3) % 20, c)), &right), None, "those of another row");
        assert_eq!(with(&|_, _| None, &old), None);
        assert_eq!(with(&|r, c| Some((r, c)), &old), None, "nothing is right");
    }
}
