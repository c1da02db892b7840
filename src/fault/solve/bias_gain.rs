//! A bias that is added at another scale than its own: times one number, which may be stored.
//!
//! ```text
//! out[i, j] = Σ_k a·b + c · bias(i, j)          c: what all elements allow; 1 in a right kernel
//! ```
//!
//! Scales that hold an alpha of the whole, which the bias was stored with too, leave c = 1 / alpha where the bias is read as it was before.

use super::output::{Add, roundest, short};
use super::segment::spread_of;
use super::system::System;
use crate::fault::Class;
use crate::job::OutSpec;
use std::sync::Arc;

/// Elements that say the factor, and the columns that have to.
const LOOKS: usize = 4096;
const COLUMNS: usize = 6;
/// Half the width of the factor, relative, at most.
const KNOWN: f64 = 1.0 / 64.0;
/// The same where one stored number alone is in it.
const STORED: f64 = 1.0 / 8.0;
/// Bits of a stored number, beyond those of which one it is.
const CHOSEN: f64 = 2.0;
/// How often parts of a K may add a whole bias: those have their own name.
const TIMES: f64 = 64.0;

/// The factor, where it is none that other theories name.
pub fn theory(s: &System, add: &mut Add) {
    let Some((low, high)) = range(s) else { return };
    let whole = low.ceil() <= high && (0.0..=TIMES).contains(&low.ceil());
    if low <= 0.0 || whole {
        return;
    }
    let bias = s.bias.clone();
    // Of many numbers one is near by chance: which one it is is charged, and of several the nearest is told.
    let all = stored(s);
    let choice = (all.len() as f64).log2();
    let narrow = |most: f64| high - low <= 2.0 * most * high.abs();
    let alone = all.iter().filter(|(_, x)| low <= *x && *x <= high).count() == 1;
    if !(narrow(KNOWN) || narrow(STORED) && alone) {
        return;
    }
    let (words, bits, by, fitted) = match nearest(all, (low, high)) {
        Some((words, x)) => (format!("the bias is multiplied by {words}, {x:e}"), CHOSEN + choice, x, false),
        None => {
            let by = roundest(low, high);
            let width = high - low;
            let words = format!(
                "the bias is multiplied by {}, which is no stored number: as where {}, a factor of the whole that scales and bias hold already, does not reach it, or reaches it once more",
                short(by, width),
                short(1.0 / by, width / (by * by))
            );
            (words, 22.0, by, true)
        }
    };
    let class = if fitted { Class::StaleState } else { Class::ScaleDoubledInverted };
    add(class, "bias_gain", words, bits, fitted, Arc::new(move |i, j, v| v + bias.at(i, j) * by));
}

/// The stored number that is nearest to the middle of what elements allow; of equal ones the first.
fn nearest(all: Vec<(String, f64)>, (low, high): (f64, f64)) -> Option<(String, f64)> {
    let middle = 0.5 * (low + high);
    let inside = all.into_iter().filter(|(_, x)| low <= *x && *x <= high);
    inside.min_by(|x, y| (x.1 - middle).abs().total_cmp(&(y.1 - middle).abs()))
}

/// What all elements of the wrong region allow. `None`: they contradict each other, or too few columns say anything.
fn range(s: &System) -> Option<(f64, f64)> {
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut columns = vec![false; s.cols];
    let spread = spread_of(s.rows * s.cols, LOOKS).into_iter().map(|at| (at / s.cols, at % s.cols));
    let inside = |(i, j): &(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(*i, *j));
    for (i, j) in s.probes.iter().copied().chain(spread).filter(inside) {
        let (at, own) = (i * s.cols + j, s.bias.at(i, j));
        let Some((y, half)) = s.written(i, j, 0.0).filter(|_| own != 0.0 && s.part[i].is_some()) else { continue };
        // What was added besides the right sum; a bias that is larger errs by more.
        let added = y + own - (s.ideal[at] - own);
        let r = half + s.certain(at).max(s.relative * added.abs());
        let ends = [(added - r) / own, (added + r) / own];
        (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
        if !(low <= high) {
            return None;
        }
        columns[j] |= r <= 0.25 * added.abs().max((added - own).abs());
    }
    let told = columns.iter().filter(|x| **x).count();
    (told >= COLUMNS.min(s.cols)).then_some((low, high))
}

/// Numbers that are stored, and what may be made of them.
fn stored(s: &System) -> Vec<(String, f64)> {
    let one = |scales: &[f32]| scales.first().map(|x| f64::from(*x)).filter(|x| scales.len() == 1 && *x > 0.0);
    let mut all: Vec<(String, f64)> = Vec::new();
    for (name, g) in [("a", &s.a), ("b", &s.b)] {
        all.extend(one(g.scales()).map(|x| (format!("the scale of {name}"), x)));
        if g.global != 1.0 {
            all.push((format!("the second-level scale of {name}"), g.global));
        }
    }
    if let OutSpec::Scaled { scale, .. } = &s.scene.evidence.job.out
        && let [Some(x)] = scale[..]
    {
        all.push(("the output's scale".into(), f64::from(x)));
    }
    let own = all.clone();
    for (n, (words, x)) in own.iter().enumerate() {
        all.extend(own[n + 1..].iter().map(|(more, y)| (format!("{words} times {more}"), x * y)));
        all.extend(own.iter().filter(|y| y.0 != *words).map(|(under, y)| (format!("{words} over {under}"), x / y)));
    }
    let inverse: Vec<(String, f64)> = (all.iter().filter(|x| !x.0.contains(" over ")))
        .map(|(words, x)| (format!("the reciprocal of {words}"), 1.0 / x))
        .collect();
    all.extend(inverse);
    for (words, n) in [("K", s.k), ("M", s.rows), ("N", s.cols)] {
        all.push((format!("1 / {words}"), 1.0 / n as f64));
        all.push((format!("1 / √{words}"), 1.0 / (n as f64).sqrt()));
    }
    all.extend((2..=16).map(|n| (format!("1 / {n}"), 1.0 / f64::from(n))));
    // A scale of 1 says nothing.
    all.retain(|(_, x)| *x != 1.0);
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, noise, wide};

    const K: usize = 64;

    fn of(out: Format, added: impl Fn(usize, usize, f64) -> f64) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::E4m3, N, K, K, false, 19));
        let bias: Vec<f32> = (0..N).map(|j| (4.0 * noise(j + 40) - 2.0) as f32).collect();
        let stored = bias.clone();
        found(&a, &b, Some(bias), out, |i, j, right| {
            let own = f64::from(stored[j]);
            right[i * N + j] - own + added(i, j, own)
        })
    }

    #[test]
    fn a_bias_at_another_scale_is_told_with_its_factor() {
        let got = of(Format::Bf16, |_, _, b| b / 0.35);
        assert_eq!(got.0, "stale_state:out.bias_gain", "{}", got.1);
        assert!(got.1.contains("multiplied by 2.86,") || got.1.contains("multiplied by 2.857"), "{}", got.1);
        assert!(got.1.contains("as where 0.35"), "{}", got.1);
        let got = of(Format::F32, |_, _, b| b * 0.25);
        assert_eq!(got.0, "scale_doubled_inverted:out.bias_gain", "{}", got.1);
        assert!(got.1.contains("multiplied by 1 / 4"), "{}", got.1);
    }

    #[test]
    fn of_several_stored_numbers_the_nearest_is_told() {
        let all = || [("a", 0.25), ("b", 0.261), ("c", 0.2605), ("d", 0.2605)].map(|(w, x)| (w.to_string(), x)).to_vec();
        let of = |low: f64, high: f64| super::nearest(all(), (low, high)).map(|x| x.0);
        assert_eq!(of(0.248, 0.2606).as_deref(), Some("a"));
        assert_eq!(of(0.259, 0.2618).as_deref(), Some("c"), "the first of equal ones");
        assert_eq!(of(0.262, 0.27), None);
    }

    #[test]
    fn factors_of_rows_or_columns_are_no_such_bias() {
        let got = of(Format::F32, |i, _, b| b * (0.5 + noise(i + 7)));
        assert!(!got.0.contains("bias_gain"), "{} {}", got.0, got.1);
        let got = of(Format::F32, |_, j, b| b * (0.5 + noise(j + 7)));
        assert!(!got.0.contains("bias_gain"), "{} {}", got.0, got.1);
    }
}
