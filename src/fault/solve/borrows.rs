//! Arithmetic over whole words of packed integers, without guards: a borrow, or a carry, reaches the next lane.
//!
//! ```text
//! w − 0x88888888      a code below 8 lends from the one behind it: that is one less, and a −9 is 7 in four bits
//! w + 0x88888888      the same with a carry: one more where the code before is 8 or more
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// What reaches the next lane.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    Borrow,
    Carry,
}

/// Theories of the codes of one side: the code `far` behind one that lends is one less, or one more.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let Some(q) = g.q.as_ref().filter(|q| q.format().is_integer()) else { return Vec::new() };
    let zeros = g.zero.as_ref().filter(|z| z.1.is_none()).map(|z| &z.0);
    let signed = q.format().min_finite() < 0.0;
    let half = f64::from(1u32 << (q.format().bits() - 1));
    // Numbers of the lane's own bits, with a sign: what leaves them wraps.
    let own_bits = zeros.map_or(signed, |z| z.iter().all(|z| *z == half));
    let right = g.values.clone();
    let steps: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
    let (tile, cols, k_all, n) = (g.tile, g.grid.1, g.k, q.codes().len());
    let mut all = Vec::new();
    let overs: &[Over] = if signed && zeros.is_none() { &[Over::Borrow, Over::Carry] } else { &[Over::Borrow] };
    for over in overs.iter().copied() {
        let by = if over == Over::Borrow { -1.0 } else { 1.0 };
        for (far, every) in [1usize, 2, 4, 8].into_iter().flat_map(|f| [1usize, 2, 4, 8, 16].map(|e| (f, e))) {
            // Within a word of `every` steps of `far`, or without end; what lends may turn negative by it and borrow itself.
            let (mut lends, mut lent_to) = (vec![false; n], vec![false; n]);
            let mut wraps = vec![false; n];
            let (mut any, mut turned) = (false, false);
            for at in 0..n {
                let k = at % k_all;
                let lent = k >= far && (every == 1 || !(k / far).is_multiple_of(every)) && lends[at - far];
                let zero = zeros.map_or(0.0, |z| z[at / k_all / tile.0 * cols + k / tile.1]);
                let x = g.table[usize::from(q.codes()[at])] - zero;
                let v = x + if lent { by } else { 0.0 };
                lends[at] = if over == Over::Borrow { v < 0.0 } else { x < 0.0 || v >= half };
                wraps[at] = v < -half || v >= half && x < half;
                (any, turned) = (any | lent, turned | wraps[at]);
                lent_to[at] = lent;
            }
            if !any {
                continue;
            }
            let word = if every == 1 { String::new() } else { format!(" of its {every}") };
            let (less, what) = if over == Over::Borrow { ("less", "borrow") } else { ("more", "carry") };
            let lent_to = Arc::new(lent_to);
            for kept in if turned && own_bits { &[false, true][..] } else { &[false] } {
                let end = if *kept { format!(", in {} bits that wrap", q.format().bits()) } else { String::new() };
                let words = format!(
                    "of {name}, a code is one {less} where the one {far} before it{word} is negative: a {what} reaches the next lane{end}"
                );
                let bits =
                    6.0 + cost(far) + cost(every) + f64::from(u8::from(*kept)) + f64::from(u8::from(over == Over::Carry));
                let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.{what}"), words).bits(bits);
                let (right, steps, lent_to) = (right.clone(), steps.clone(), lent_to.clone());
                let wraps = if *kept { wraps.clone() } else { Vec::new() };
                t.side(side).value = Some(Arc::new(move |i, k| {
                    let at = i * k_all + k;
                    let turn = if wraps.get(at) == Some(&true) { -2.0 * by * half } else { 0.0 };
                    let more = turn + if lent_to[at] { by } else { 0.0 };
                    if more == 0.0 { right[at] } else { right[at] + more * steps[i / tile.0 * cols + k / tile.1] }
                }));
                all.push(t);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    const K: usize = 64;

    /// What is found where every word of eight nibbles is computed with as a whole.
    fn of(word: impl Fn(u32) -> u32) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Int4, N, K, 16, false, 7));
        let x = a.to_f64();
        // As the kernel's words are: without a sign for what subtracts, as they are for what adds.
        let nibble = |j: usize, k: usize| {
            let w = (0..8).map(|l| u32::from(b.codes()[j * K + k / 8 * 8 + l] & 15) << (4 * l)).sum::<u32>();
            f64::from((((word(w) >> (4 * (k % 8)) & 15) << 4) as u8 as i8) >> 4)
        };
        found(&a, &b, None, Format::F32, |i, j, _| {
            sum(K, |k| x[[i, k]] * nibble(j, k) * f64::from(b.scale_inv()[j * 4 + k / 16]))
        })
    }

    #[test]
    fn borrows_and_carries_of_a_whole_word_are_told() {
        // Codes without a sign, less 8 each.
        let got = of(|w| (w ^ 0x8888_8888).wrapping_sub(0x8888_8888));
        assert_eq!(got.0, "bits_reinterpreted:b.borrow", "{}", got.1);
        assert!(got.1.contains("one less where the one 1 before it of its 8 is negative"), "{}", got.1);
        assert!(got.1.ends_with("in 4 bits that wrap"), "{}", got.1);
        // Codes with a sign, 8 more each, and read without one.
        let got = of(|w| w.wrapping_add(0x8888_8888) ^ 0x8888_8888);
        assert_eq!(got.0, "bits_reinterpreted:b.carry", "{}", got.1);
        assert!(got.1.contains("one more where the one 1 before it of its 8 is negative"), "{}", got.1);
    }
}
