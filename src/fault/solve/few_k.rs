//! A few single k that are counted twice, or left out, wherever they are: ends of slices that two of them take, or none; columns with outliers that a
//! product of 16 bits takes beside the first.
//!
//! ```text
//! out[i, j] − right = Σ_{k in few} c(k) · A(i, k)·B(j, k)          the k that takes most of the rest, one after the other; all c solved anew; c = 1 or −1
//! ```

use super::linear::Normal;
use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::parallel;
use std::sync::Arc;

/// Single k, at most.
const FEW: usize = 12;
/// Elements that tell them, at least and at most.
const LEAST: usize = 32;
const LOOKS: usize = 4096;
/// Multiply-adds of one look at every k.
const WORK: usize = 1 << 24;
/// Neighbours in K that are looked at together.
const TOGETHER: usize = 256;
/// How far a coefficient may be from a whole number.
const NEAR: f64 = 0.1;
/// What a product of numbers that are rounded to f16 errs by, and the most that roundings on the way may be of all that an element sums.
const ROUNDED: f64 = 1.0 / 2048.0;
const LOOSE: f64 = 1.0 / 512.0;

/// An element: its lines of a and b, how far it is off, how far it may be, and what it counts by: where a sum and what is added to it undo each other,
/// each may have been rounded by far more than what is left.
struct Told {
    a: usize,
    b: usize,
    off: f64,
    half: f64,
    unit: f64,
}

/// The few k that make what is wrong.
pub fn theories(s: &System) -> Vec<Theory> {
    of(s).into_iter().collect()
}

fn of(s: &System) -> Option<Theory> {
    (!s.alone && s.parts.iter().all(|p| p.k.len() == s.k) && s.k > 2 * FEW).then_some(())?;
    // Of the wrong region, or all.
    let inside = |(i, j): &(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(*i, *j));
    let mut places: Vec<(usize, usize)> = (0..s.rows * s.cols).map(|at| (at / s.cols, at % s.cols)).filter(inside).collect();
    spread(&mut places, LOOKS.min(WORK / s.k));
    let told = |(i, j): &(usize, usize)| {
        let (a, b, _) = s.lines(*i, *j)?;
        let (written, half) = s.written(*i, *j, 0.0)?;
        let at = i * s.cols + j;
        let right = s.ideal[at] - s.bias.at(*i, *j);
        let (off, half) = (written - right, half + s.certain(at));
        let unit = half + if s.out.is_quantized() { 0.0 } else { 0.5 * (s.out.spacing(at, right) + s.out.spacing(at, off)) };
        Some(Told { a, b, off, half, unit })
    };
    let told: Vec<Told> = places.iter().filter_map(told).filter(|t| t.off.is_finite() && t.half > 0.0).collect();
    (told.len() >= LEAST.max(4 * FEW)).then_some(())?;
    let product = |t: &Told, k: usize| s.a.values[t.a * s.k + k] * s.b.values[t.b * s.k + k];
    let starts: Vec<usize> = (0..s.k).step_by(TOGETHER).collect();
    let mut few: Vec<usize> = Vec::new();
    let mut rest: Vec<f64> = told.iter().map(|t| t.off).collect();
    while few.len() < FEW {
        // In units of what an element may be off: large ones err by more. Neighbours in K together, as they lie.
        let shares = |from: usize| {
            let to = s.k.min(from + TOGETHER);
            let mut sums = vec![(0.0, 0.0); to - from];
            for (t, rest) in told.iter().zip(&rest) {
                let (a, b) = (&s.a.values[t.a * s.k..][from..to], &s.b.values[t.b * s.k..][from..to]);
                for ((with, own), (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
                    let p = a * b / t.unit;
                    *with += p * rest / t.unit;
                    *own += p * p;
                }
            }
            sums.into_iter().map(|(with, own): (f64, f64)| if own > 0.0 { with * with / own } else { 0.0 }).collect::<Vec<_>>()
        };
        let shares: Vec<f64> = parallel::collect(starts.len(), |n| shares(starts[n])).concat();
        let next = (0..s.k).filter(|k| !few.contains(k)).max_by(|x, y| shares[*x].total_cmp(&shares[*y]))?;
        few.push(next);
        let mut system = Normal::new(few.len());
        for t in &told {
            let x: Vec<f64> = few.iter().map(|k| product(t, *k)).collect();
            system.add(&x, t.off, 1.0 / (t.unit * t.unit));
        }
        let c = system.solve()?;
        for (t, rest) in told.iter().zip(&mut rest) {
            *rest = t.off - few.iter().zip(&c).map(|(k, c)| c * product(t, *k)).sum::<f64>();
        }
        if told.iter().zip(&rest).all(|(t, rest)| rest.abs() <= 1.5 * t.half) {
            return named(s, few, &c, None);
        }
        // A product aside, and the sum that it is added to, are stored before they meet: what they are rounded by is not left to the coefficients.
        let loose = |t: &Told| {
            let alone: f64 = few.iter().map(|k| product(t, *k).abs()).sum();
            t.unit - t.half + ROUNDED * alone
        };
        let by_whole = |t: &Told| t.off - few.iter().zip(&c).map(|(k, c)| c.round() * product(t, *k)).sum::<f64>();
        if !s.out.is_quantized() && told.iter().all(|t| by_whole(t).abs() <= 1.5 * t.half + loose(t)) {
            let size = |t: &Told| -> f64 { (0..s.k).map(|k| product(t, k).abs()).sum() };
            let slack = told.iter().map(|t| loose(t) / size(t)).fold(0.0, f64::max);
            return named(s, few, &c, Some(slack).filter(|x| *x <= LOOSE));
        }
    }
    None
}

/// Whole coefficients of one sign are a count; others are not. `aside`: they are products by themselves, which are rounded by this much of all that an
/// element sums.
fn named(s: &System, few: Vec<usize>, c: &[f64], aside: Option<f64>) -> Option<Theory> {
    let is = |whole: f64| c.iter().all(|c| (c - whole).abs() <= NEAR);
    let (class, variant, words, count) = if is(1.0) {
        (Class::AccState, "k.single_twice", "counted twice", 2.0)
    } else if is(-1.0) {
        (Class::KTail, "k.single_lost", "left out", 0.0)
    } else {
        return None;
    };
    let mut sorted = few;
    sorted.sort_unstable();
    let list = sorted.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let step = sorted.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
    let every = match step.first() {
        Some(first) if sorted.len() > 2 && step.iter().all(|s| s == first) => format!(", {first} apart"),
        _ => String::new(),
    };
    let why = match aside {
        None => "ends of slices that two of them take, or none",
        Some(_) => {
            "by a product aside that is rounded to 16 bits before both meet, as one of columns with outliers, whose list is not the one that the first \
             product leaves out"
        }
    };
    let words = format!("single k are {words}: k = {list}{every}: {why}");
    let bits = 8.0 + sorted.iter().map(|k| cost(*k)).sum::<f64>();
    let mut t = Theory::new(class, "out", variant, words).bits(bits);
    (t.freedom, t.slack) = (sorted.len(), aside.unwrap_or(0.0));
    t.k = Some(Arc::new((0..s.k).map(|k| if sorted.contains(&k) { count } else { 1.0 }).collect()));
    Some(t)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    #[test]
    fn single_k_that_are_counted_twice_or_lost_are_told() {
        let (n, k_all) = (40, 501);
        let (a, b) = (wide(M, k_all), codes(Format::Int8, n, k_all, k_all, false, 23));
        let (x, y) = (a.to_f64(), b.dequantize());
        let of = |few: &[usize], count: f64| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                sum(k_all, |k| if few.contains(&k) { count } else { 1.0 } * x[[i, k]] * y[[j, k]])
            })
        };
        let got = of(&[167, 334], 2.0);
        assert!(got.0 == "acc_state:k.single_twice" && got.1.contains("k = 167, 334"), "{} {}", got.0, got.1);
        let got = of(&[83, 250, 417], 0.0);
        assert!(got.0 == "k_tail:k.single_lost" && got.1.contains("k = 83, 250, 417, 167 apart"), "{} {}", got.0, got.1);
    }
}
