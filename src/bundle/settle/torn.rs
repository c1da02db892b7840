//! Elements that are far from the bits of a right arithmetic while their neighbours have exactly these bits.
//!
//! A tensor core's tile of outputs is at least 8 × 8, and all of it is summed in one way. Where three quarters of the elements of such a box
//! that are not just the rounded ideal have the bits of one right arithmetic, and at least [`CARRIERS`] do, the box is of that arithmetic. An
//! element in it that is further from the model's than two right sums of its factors can lie apart is no other rounding of the same sum: it
//! is wrong.

use super::search::{Case, Way};
use crate::Result;
use crate::compare::{Bound, digits};

const BOX: usize = 8;
/// Elements of a box that must have the bits, where those bits are not just the rounded ideal.
const CARRIERS: usize = 16;

/// What was found. `bound` holds the ideal, `apart` says how far two right sums of an element lie apart.
pub fn find(case: &Case, way: &Way, bound: &Bound, apart: impl Fn(usize) -> f64) -> Result<Option<String>> {
    let model = case.values(way)?;
    let (cols, rows) = (case.plan.cols, case.plan.rows);
    let (rounded, out) = (bound.rounded_ideal(), bound.out());
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
                case.bits[**i] != bits(**i) && !((found - right).abs() <= apart(**i) + out.spacing(**i, right))
            };
            let torn: Vec<usize> = inside.iter().filter(away).copied().collect();
            count += torn.len();
            first = first.or(torn.first().copied());
        }
    }
    Ok(first.map(|i| {
        let (found, right) = (case.store.value(case.bits[i]), case.store.value(bits(i)));
        let [found, right] = digits::apart([found, right]);
        format!(
            "({}, {}): found {found}, but its neighbours have the bits of {}, which gives {right} here; {count} such elements",
            i / cols,
            i % cols,
            way.words()
        )
    }))
}
