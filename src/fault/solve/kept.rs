//! Theories of partial sums that are kept in 16 bits. Where a sum lies near a tie a kernel's own order decides how it rounds, so that not every
//! element is the one predicted: the share that is, to the bit, tells the right theory from its neighbours.

use super::system::{Kept, Narrow, Rounds, System, Theory, Units};
use crate::Format;
use crate::fault::Class;
use crate::parallel;

/// Of K, between two roundings.
const EVERY: [usize; 9] = [2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Elements that are looked at, and the share that has to be predicted.
const LOOKS: usize = 96;
const SHARE: f64 = 0.6;
const FIRST: usize = 24;
/// Steps of the type that a prediction may be off where it is not to the bit.
const STEPS: f64 = 6.0;

/// The best of them.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let inside = |p: &&(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(p.0, p.1));
    let places: Vec<(usize, usize)> = s.probes.iter().filter(inside).take(LOOKS).copied().collect();
    let wrong = |(i, j): &&(usize, usize)| s.is_wrong[i * s.cols + j];
    if places.iter().filter(wrong).count() < 8 {
        return Vec::new();
    }
    let mut all = Vec::new();
    // Codes have a unit of their own where one scale goes with all of K.
    let whole = s.a.grid.1 == 1 && s.b.grid.1 == 1;
    let integers = [&s.a, &s.b].iter().all(|g| g.format().is_some_and(|f| f.is_integer()));
    // As tiles are deep, and the parts of a split K.
    let parts = [2usize, 3, 4, 5, 6, 8, 12, 16].into_iter().filter(|n| s.k.is_multiple_of(*n)).map(|n| s.k / n);
    let mut depths: Vec<usize> = EVERY.into_iter().chain(parts).collect();
    depths.sort_unstable();
    depths.dedup();
    // Where scales go with groups of K, a sum may be kept for each group.
    let group = [&s.a, &s.b].iter().filter(|g| g.grid.1 > 1).fold(0, |unit, g| super::address::gcd(g.tile.1, unit));
    let withins = if group > 1 { vec![0, group] } else { vec![0] };
    let ways = depths.into_iter().filter(|e| *e < s.k && *e > 1).flat_map(|every| withins.iter().map(move |w| (every, *w)));
    for (every, within) in ways.filter(|(every, within)| *within == 0 || every < within && within.is_multiple_of(*every)) {
        // Codes have a unit of their own where one scale goes with all that is kept in one sum.
        let of_codes = whole || within > 0;
        for units in [Units::Codes, Units::Values].into_iter().filter(|u| of_codes || *u == Units::Values) {
            for (how, words, class) in [
                (Narrow::Rounded(Format::F16), "rounded to f16", Class::LowprecAcc),
                (Narrow::Rounded(Format::Bf16), "rounded to bf16", Class::LowprecAcc),
                (Narrow::Clamped(32767.0), "clamped to 16 bits", Class::OverflowWrap),
            ] {
                if matches!(how, Narrow::Clamped(_)) && !(integers && units == Units::Codes) {
                    continue;
                }
                for of in [Rounds::Sum, Rounds::Parts, Rounds::Both] {
                    let group = if within > 0 { format!(" of each {within} by itself") } else { String::new() };
                    let scaled = if units == Units::Codes { ", before scales meet it," } else { "" };
                    let (what, is) = match of {
                        Rounds::Sum => (format!("the accumulator after every {every} of K{group}{scaled}"), "is"),
                        Rounds::Parts => (format!("the sum of every {every} of K{group}{scaled}"), "is"),
                        Rounds::Both => {
                            (format!("the sum of every {every} of K{group} and the accumulator after it{scaled}"), "are")
                        }
                    };
                    let words = format!("{what} {is} {words}");
                    let more = if within > 0 { 1.0 } else { 0.0 } + if of == Rounds::Both { 1.0 } else { 0.0 };
                    let bits = 8.0 + super::maps::cost(every) + more;
                    let mut t = Theory::new(class, "out", "out.partial_sums", words).bits(bits);
                    t.kept = Some(Kept { every, how, units, of, within });
                    all.push(t);
                }
            }
        }
    }
    // What makes few of the first makes not most of all.
    let some = |t: &Theory| {
        let first = &places[..places.len().min(FIRST)];
        3 * first.iter().filter(|(i, j)| s.fits(t, *i, *j)).count() >= first.len()
    };
    let share = |t: &Theory| {
        if !some(t) {
            return 0.0;
        }
        let made = places.iter().filter(|(i, j)| s.fits(t, *i, *j)).count();
        let at_wrong = places.iter().filter(wrong).filter(|(i, j)| s.fits(t, *i, *j)).count();
        (made as f64 / places.len() as f64).min(at_wrong as f64 / places.iter().filter(wrong).count() as f64)
    };
    let shares = parallel::collect(all.len(), |n| share(&all[n]));
    let best = shares.into_iter().zip(all).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.bits.total_cmp(&a.1.bits)));
    let Some((_, mut t)) = best.filter(|(x, _)| *x >= SHARE) else { return Vec::new() };
    // What falls the other way may be so far off, relative to the magnitude of the sum.
    if let Some(Kept { how: Narrow::Rounded(f), .. }) = t.kept {
        let of = |(i, j): &(usize, usize)| {
            let (sum, size) = s.sum(&t, *i, *j);
            if sum.is_finite() && size > 0.0 { sum.abs() / size } else { 0.0 }
        };
        let relative = places.iter().map(of).fold(0.0, f64::max);
        t.slack = STEPS * relative * 0.5f64.powi(f.spec().mantissa as i32);
    }
    vec![t]
}
