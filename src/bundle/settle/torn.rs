//! Elements that are far from the bits of a right arithmetic while their neighbours have exactly these bits.
//!
//! A tensor core's tile of outputs is at least 8 × 8, and all of it is summed in one way. Where three quarters of the elements of such a box
//! that are not just the rounded ideal have the bits of one right arithmetic, and at least [`CARRIERS`] do, the box is of that arithmetic. An
//! element in it that is further from the model's than two right sums of its factors can lie apart is no other rounding of the same sum: it
//! is wrong. Of a large result [`SAMPLE`] places are asked first: where no box of theirs is of that arithmetic, it is not that of the result.

use super::search::{Case, Piece, Way};
use crate::Result;
use crate::compare::{Bound, digits};
use std::collections::HashMap;

const BOX: usize = 8;
/// Elements of a box that must have the bits, where those bits are not just the rounded ideal.
const CARRIERS: usize = 16;
/// Places of a large result that are asked first, and their rows and columns.
const SAMPLE: usize = 64;
const PLACE: (usize, usize) = (2 * BOX, 8 * BOX);

/// What was found. `bound` holds the ideal, `apart` says how far two right sums of an element lie apart.
pub fn find(case: &Case, way: &Way, bound: &Bound, apart: impl Fn(usize) -> f64) -> Result<Option<String>> {
    let (cols, rows) = (case.plan.cols, case.plan.rows);
    let (rounded, out) = (bound.rounded_ideal(), bound.out());
    // Elements of a box that tell, and those of them with the model's bits.
    let counts = |inside: &[(usize, u32)]| {
        // An overflow says no more than a sign.
        let carries = |i: usize, bits: u32| {
            let value = case.store.value(bits);
            value.is_finite() && (value - rounded[i]).abs() >= out.spacing(i, rounded[i])
        };
        let carriers = inside.iter().filter(|(i, bits)| carries(*i, *bits));
        carriers.fold((0, 0), |n, (i, bits)| (n.0 + 1, n.1 + usize::from(*bits == case.bits[*i])))
    };
    let is_its = |(carriers, same): (usize, usize)| same >= CARRIERS && 4 * same >= 3 * carriers;
    if let Some(places) = case.spread(way, SAMPLE, PLACE)? {
        let of_place = |place: &Piece| {
            let mut boxes: HashMap<(usize, usize), Vec<(usize, u32)>> = HashMap::new();
            for (at, value) in place {
                boxes.entry((at / cols / BOX, at % cols / BOX)).or_default().push((*at, case.store.bits(*value, false)));
            }
            boxes.values().any(|inside| is_its(counts(inside)))
        };
        if !places.iter().any(of_place) {
            return Ok(None);
        }
    }
    let model = case.values(way)?;
    let bits = |i: usize| case.store.bits(model[i], false);
    let mut count = 0;
    let mut first = None;
    for top in (0..rows).step_by(BOX) {
        for left in (0..cols).step_by(BOX) {
            let inside = (top..rows.min(top + BOX)).flat_map(|i| (left..cols.min(left + BOX)).map(move |j| i * cols + j));
            let inside: Vec<(usize, u32)> = inside.map(|i| (i, bits(i))).collect();
            if !is_its(counts(&inside)) {
                continue;
            }
            let away = |(i, bits): &&(usize, u32)| {
                // The ends as they are stored: a right sum may leave the range of the output, or of f32.
                let (found, right) = (case.store.value(case.bits[*i]), f64::from(model[*i]));
                let [low, high] = [-1.0, 1.0].map(|side| {
                    let end = right + side * (apart(*i) + out.spacing(*i, case.store.value(*bits)));
                    case.store.value(case.store.bits(end as f32, false))
                });
                case.bits[*i] != *bits && !(low <= found && found <= high) && right.is_finite()
            };
            let torn: Vec<usize> = inside.iter().filter(away).map(|(i, _)| *i).collect();
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

#[cfg(test)]
mod tests {
    use super::super::super::assay::{build, output};
    use super::super::cuts::{Cut, Join};
    use super::super::emulated::{Emulated, read};
    use super::super::runnable;
    use super::super::ways::Chain;
    use super::*;
    use crate::Format;
    use crate::compare::OutFormat;
    use safetensors::Dtype;

    /// What is found of a result with the bits of one sum after the other but where `steps` says how many bits further an element is; `carries`
    /// says where those bits are not the ideal's.
    fn found(o: &Emulated, apart: f64, carries: &dyn Fn(usize) -> bool, steps: &dyn Fn(usize) -> u32) -> Option<String> {
        let with = |out: &[f32], see: &mut dyn FnMut(&Case, &Way)| {
            let bundle = read(&o.bundle(out, Dtype::F32, ""));
            let (built, output) = (build(&bundle).unwrap(), output(&bundle).unwrap());
            let job = runnable(&built.job);
            let case = Case::of(&job, &output).unwrap();
            let ending = case.endings(false)[0];
            see(&case, &Way { chain: Chain::Sequential, promote: None, cut: Cut::Whole, join: Join::Order(vec![0]), ending });
        };
        let (mut model, mut said) = (Vec::new(), None);
        with(&vec![0.0; o.m * o.n], &mut |case, way| model = case.values(way).unwrap());
        let out: Vec<f32> = model.iter().enumerate().map(|(i, x)| f32::from_bits(x.to_bits() + steps(i))).collect();
        let ideal = model.iter().enumerate().map(|(i, x)| f64::from(*x) * if carries(i) { 1.01 } else { 1.0 }).collect();
        let bound = Bound::from_radius(ideal, vec![0.0; out.len()], &OutFormat::high(Format::F32)).unwrap();
        let spacing = |i: usize| f64::from(model[i].abs().next_up() - model[i].abs());
        with(&out, &mut |case, way| said = find(case, way, &bound, |i| apart * spacing(i)).unwrap());
        said
    }

    /// Three quarters of a box, and sixteen elements, have the bits: what is further than two right sums apart is torn.
    #[test]
    fn an_element_is_torn_from_a_box_that_has_the_bits() {
        let o = Emulated::new(91, (12, 20, 32), false);
        let in_box = |i: usize, n: usize| i / 20 < 8 && i % 20 < 8 && i / 20 * 8 + i % 20 < n;
        let count = |n: usize| found(&o, 3.0, &|_| true, &|i| if in_box(i, n) { 9 } else { 0 });
        assert_eq!(count(0), None);
        let one = count(1).unwrap();
        assert!(one.starts_with("(0, 0): found ") && one.ends_with("; 1 such elements"), "{one}");
        assert!(one.contains(", but its neighbours have the bits of f32_sequential, which gives "), "{one}");
        assert!(count(16).unwrap().ends_with("; 16 such elements"));
        assert_eq!(count(17), None);
        // Three spacings and one of the output are no more than two right sums may be apart.
        let far = |steps: u32| found(&o, 3.0, &|_| true, &|i| if i == 25 { steps } else { 0 });
        assert_eq!(far(4), None);
        assert!(far(5).unwrap().starts_with("(1, 5): "));
        // The corner of four rows and four columns has sixteen elements: none of them may be torn.
        assert_eq!(found(&o, 3.0, &|_| true, &|i| if i == 239 { 9 } else { 0 }), None);
        assert!(found(&o, 3.0, &|_| true, &|i| if i == 235 { 9 } else { 0 }).unwrap().starts_with("(11, 15): "));
        // Bits that are those of the ideal say nothing: sixteen others have to have them.
        let carriers = |n: usize| found(&o, 3.0, &|i| in_box(i, n), &|i| if i == 7 * 20 + 7 { 9 } else { 0 });
        assert_eq!(carriers(15), None);
        assert!(carriers(16).unwrap().starts_with("(7, 7): "));
    }
}
