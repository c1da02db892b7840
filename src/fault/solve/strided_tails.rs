//! A tail of K that is handled one element at a time, with an offset that steps by another unit: a byte for each code of half a byte.
//!
//! ```text
//! (i, k) for k ≥ K0:  code at  row i + K0 + (k − K0)·step          step: 2, 4, 8; or one of so many elements reads each: (k − K0) / step
//! ```

use super::decoded_ranges::ranges;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

const STEPS: [usize; 3] = [2, 4, 8];

/// Of both operands of a product that sums all of K.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    s.sides().iter().flat_map(|side| of(s, *side)).collect()
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let (k_all, size) = (g.k, g.rows * g.k);
    let what = if g.q.is_some() { "codes" } else { "values" };
    let mut all = Vec::new();
    for (range, place, bits) in ranges(k_all).into_iter().filter(|r| r.0.end == k_all) {
        for (step, apart) in STEPS.into_iter().flat_map(|x| [(x, true), (x, false)]) {
            let cut = range.start;
            let how = match apart {
                true => format!(
                    "steps by {step} elements where it should by one: element {cut} + x is number {cut} + {step}·x of the row, which runs on into the next"
                ),
                false => format!("steps once for {step} elements: element {cut} + x is number {cut} + x / {step} of the row"),
            };
            let words = format!("{what} of {name} {place}: their offset {how}; nothing behind the last row");
            let mut t = Theory::new(Class::PackPermute, name, format!("{name}.tail_step"), words).bits(5.0 + bits + cost(step));
            t.side(side).code = Some(Arc::new(move |i, k| {
                let at = match (k < cut, apart) {
                    (true, _) => k,
                    (_, true) => cut + (k - cut) * step,
                    _ => cut + (k - cut) / step,
                };
                Some(i * k_all + at).filter(|at| *at < size)
            }));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    const K: usize = 84;

    #[test]
    fn a_tail_whose_offset_steps_by_bytes_is_told() {
        let (a, b) = (wide(M, K), codes(Format::Int4, N, K, K, false, 91));
        let x = a.to_f64();
        let of = |place: &dyn Fn(usize) -> usize| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                let code = |at: usize| b.codes().get(at).map_or(0.0, |c| f64::from((c << 4) as i8 >> 4));
                sum(K, |k| x[[i, k]] * code(j * K + place(k)) * f64::from(b.scale_inv()[j]))
            })
        };
        let got = of(&|k| if k < 64 { k } else { 64 + 2 * (k - 64) });
        assert_eq!(got.0, "pack_permute:b.tail_step", "{}", got.1);
        assert!(got.1.contains("element 64 + x is number 64 + 2·x of the row, which runs on into the next"), "{}", got.1);
        let got = of(&|k| if k < 64 { k } else { 64 + (k - 64) / 2 });
        assert!(got.0 == "pack_permute:b.tail_step" && got.1.contains("number 64 + x / 2"), "{got:?}");
        // An order that no stride makes.
        let got = of(&|k| if k < 64 { k } else { 64 + (k - 64) * 7 % 20 });
        assert!(!got.0.contains("tail_step"), "{got:?}");
    }
}
