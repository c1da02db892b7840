//! Elements that are not near the bits of a right arithmetic while those around them have them.
//!
//! A tensor core's tile of outputs is at least 8 × 8, and all of it is summed in one way. Where three quarters of the elements of such a box
//! that are not just the rounded ideal have the bits of one right arithmetic, and at least [`CARRIERS`] do, the box is of that arithmetic. An element in it
//! that is further from the model's than f32 roundings of K products can lead (the certain bound of f32 sums in any order), or than the
//! arithmetic itself can (its own certain bound), is no other rounding of the same sum. It is wrong.

use super::search::{Case, Way};
use crate::Result;
use crate::compare::Bound;

const BOX: usize = 8;
/// Elements of a box that must have the bits, where those bits are not just the rounded ideal.
const CARRIERS: usize = 16;

/// What was found. `f32` is the certain bound of f32 in any order, `own` that of `way`.
pub fn find(case: &Case, way: &Way, f32: &Bound, own: &Bound) -> Result<Option<String>> {
    let model = case.values(way)?;
    let (cols, rows) = (case.plan.cols, case.plan.rows);
    let (rounded, out) = (f32.rounded_ideal(), f32.out());
    let bits = |i: usize| case.store.bits(model[i], false);
    let mut count = 0;
    let mut first = None;
    for top in (0..rows).step_by(BOX) {
        for left in (0..cols).step_by(BOX) {
            let inside = (top..rows.min(top + BOX)).flat_map(|i| (left..cols.min(left + BOX)).map(move |j| i * cols + j));
            let inside: Vec<usize> = inside.collect();
            let carries = |i: &&usize| (case.store.value(bits(**i)) - rounded[**i]).abs() >= out.spacing(**i, rounded[**i]);
            let carriers: Vec<usize> = inside.iter().filter(carries).copied().collect();
            let same = carriers.iter().filter(|i| bits(**i) == case.bits[**i]).count();
            if same < CARRIERS || 4 * same < 3 * carriers.len() {
                continue;
            }
            let away = |i: &&usize| {
                let (found, right) = (case.store.value(case.bits[**i]), case.store.value(bits(**i)));
                case.bits[**i] != bits(**i)
                    && !((found - right).abs() <= f32.certain()[**i].min(own.certain()[**i]) + out.spacing(**i, right))
            };
            let torn: Vec<usize> = inside.iter().filter(away).copied().collect();
            count += torn.len();
            first = first.or(torn.first().copied());
        }
    }
    Ok(first.map(|i| {
        let (found, right) = (case.store.value(case.bits[i]), case.store.value(bits(i)));
        format!(
            "({}, {}): found {found:e}, where all around has the bits of {}, which gives {right:e}; {count} such elements",
            i / cols,
            i % cols,
            way.words()
        )
    }))
}
