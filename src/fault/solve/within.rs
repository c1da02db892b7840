//! Theories that hold for the first of K, or for the last of it, alone: a main loop reads otherwise than what finishes the rest.
//!
//! ```text
//! out[i, j] = Σ_{k < K0} a·b'  +  Σ_{k ≥ K0} a·b              K0 from one element's sums over K, checked on the others
//! ```

use super::given::Side;
use super::maps::cost;
use super::related;
use super::system::{System, Theory};
use super::theory::{shortest_first, shortest_of};
use crate::fault::edit::Which;
use crate::parallel;
use std::sync::Arc;

/// Multiply-adds of the first element, for all theories.
const WORK: usize = 1 << 27;
/// Elements that an end is told by, and multiples of what it is asked where K is long.
const LOOKS: usize = 24;
/// The fewest of them; below enough, theories with few parameters alone.
const LEAST: usize = 5;
const ENOUGH: usize = 8;
const SHORT: f64 = 6.0;
const FINE: usize = 512;
const COARSE: usize = 8;
/// Theories with an end, at most.
const KEPT: usize = 12;
/// A bound over the error, at most.
const TELLS: f64 = 0.25;

/// Theories of what one operand reads, for a part of K.
pub fn theories(s: &System, all: &[Theory]) -> Vec<Theory> {
    if s.alone || s.k < 8 || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let tells = |(i, j): &&(usize, usize)| {
        let at = i * s.cols + j;
        s.is_wrong[at] && s.actual[at].is_finite() && s.certain(at) <= TELLS * (s.actual[at] - s.ideal[at]).abs()
    };
    let looks: Vec<(usize, usize)> = s.probes.iter().filter(tells).take(LOOKS).copied().collect();
    if looks.len() < LEAST {
        return Vec::new();
    }
    let unlike = related::is_unlike(s);
    let most = if looks.len() < ENOUGH { SHORT } else { f64::INFINITY };
    let one = |t: &&Theory| {
        let reads = Theory { a: Side::default(), b: Side::default(), ..(*t).clone() };
        reads.is_plain()
            && t.region.is_none()
            && t.patch.is_none()
            && t.a.is_given() != t.b.is_given()
            && !t.fitted
            && t.bits <= most
            && !(unlike && related::keeps(t))
    };
    let mut order: Vec<&Theory> = all.iter().filter(one).collect();
    shortest_of(&mut order);
    order.truncate(WORK / (3 * s.k));
    let ended = |t: &&Theory| -> Vec<Theory> {
        let side = if t.b.is_given() { Which::A } else { Which::B };
        ends(s, t, side, &looks).into_iter().filter_map(|(end, first)| part(s, t, side, end, first)).collect()
    };
    let mut found: Vec<Theory> = parallel::flat(&order, |t| ended(t).into_iter().filter(|t| s.explains(t)));
    shortest_first(&mut found);
    found.truncate(KEPT);
    found
}

/// The ends of K up to which (`true`), or from which on, a theory makes all of some elements.
fn ends(s: &System, t: &Theory, side: Which, looks: &[(usize, usize)]) -> Vec<(usize, bool)> {
    let step = if s.k > FINE { COARSE } else { 1 };
    let mut left: Vec<(usize, bool)> = (step..s.k).step_by(step).flat_map(|k| [(k, true), (k, false)]).collect();
    let mut changes = vec![0.0; s.k + 1];
    for (i, j) in looks {
        let Some((ra, rb, ks)) = s.lines(*i, *j) else { return Vec::new() };
        let (g, of, other, own, theirs) = match side {
            Which::A => (&s.a, &t.a, &s.b, ra, rb),
            Which::B => (&s.b, &t.b, &s.a, rb, ra),
        };
        let read = of.row(g, own, ks.clone());
        let right = &g.values[own * g.k + ks.start..own * g.k + ks.end];
        let with = &other.values[theirs * other.k + ks.start..theirs * other.k + ks.end];
        let (mut sum, mut size, mut all) = (0.0, 0.0, 0.0);
        for (k, ((x, y), z)) in read.iter().zip(right).zip(with).enumerate() {
            sum += y * z;
            size += (x * z).abs().max((y * z).abs());
            all += (x - y) * z;
            changes[k + 1] = all;
        }
        let Some((y, half)) = s.written(*i, *j, size).filter(|_| all.is_finite()) else { return Vec::new() };
        left.retain(|(end, first)| {
            let change = if *first { changes[*end] } else { all - changes[*end] };
            (sum + change - y).abs() <= half
        });
        if left.is_empty() {
            return left;
        }
    }
    // Ends that all make it are one: nothing is read between them.
    let first = |first: bool| left.iter().find(|x| x.1 == first).copied();
    first(true).into_iter().chain(first(false)).collect()
}

/// `t` for K below `end` (`first`), or from there on.
fn part(s: &System, t: &Theory, side: Which, end: usize, first: bool) -> Option<Theory> {
    let g = s.given(side).clone();
    let mut part = t.clone();
    let of = if side == Which::A { t.a.clone() } else { t.b.clone() };
    let place = if first { format!("for k = 0 … {} alone", end - 1) } else { format!("from k = {end} on alone") };
    part.detail = format!("{}, {place}", t.detail);
    part.bits += 4.0 + cost(end);
    let value = Arc::new(move |i: usize, k: usize| if (k < end) == first { of.at(&g, i, k) } else { g.values[i * g.k + k] });
    *part.side(side) = Side { value: Some(value), ..Side::default() };
    Some(part)
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::{Format, QTensor};

    #[test]
    fn codes_that_only_the_main_loop_decodes_wrong_are_told() {
        let (a, mut parts) = (wide(M, 144), codes(Format::E4m3, N, 144, 16, false, 71).into_parts());
        // None that is Inf or NaN there.
        parts.codes.iter_mut().filter(|c| **c & 0x7c == 0x7c).for_each(|c| *c &= 0xbf);
        let b = QTensor::new(parts).unwrap();
        let (x, y) = (a.to_f64(), b.dequantize());
        // Up to K = 64 the codes are taken for e5m2.
        let value = |j: usize, k: usize| {
            let code = u32::from(b.codes()[j * 144 + k]);
            let other = Format::E5m2.decode(code) * f64::from(b.scale_inv()[j * 9 + k / 16]);
            if k < 64 { other } else { y[[j, k]] }
        };
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| sum(144, |k| x[[i, k]] * value(j, k)));
        assert!(got.0.starts_with("bits_reinterpreted:b."), "{}: {}", got.0, got.1);
        assert!(got.1.contains("for k = 0 … 63 alone"), "{}", got.1);
    }
}
