//! Theories of K: every range that may be lost, counted twice or summed alone, from prefix sums; and the coefficients of slices, solved.

use super::linear;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::order::Order as _;
use std::sync::Arc;

/// What may have become of a range of K.
#[derive(Clone, Copy, PartialEq)]
pub enum Fate {
    Lost,
    Twice,
    Alone,
}

impl Fate {
    /// The sum where `part` of the `whole` has this fate.
    pub fn of(self, part: f64, whole: f64) -> f64 {
        match self {
            Fate::Lost => whole - part,
            Fate::Twice => whole + part,
            Fate::Alone => part,
        }
    }
}

/// Prefix sums of a probe's products over K.
pub struct Prefix {
    /// Σ of the first k products: k = 0 … K.
    pub sums: Vec<f64>,
    /// What was written less the bias, and how far it may be from its sum.
    pub low: f64,
    pub high: f64,
}

/// The probes with a finite result, the wrong ones first.
pub fn prefixes(s: &System, most: usize) -> Vec<Prefix> {
    let mut all = Vec::new();
    if s.alone {
        return all;
    }
    // Where only a region is wrong, it is the region that says what was summed there.
    let inside = |p: &&(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(p.0, p.1));
    all.extend(s.probes.iter().filter(inside).take(most).filter_map(|(i, j)| prefix(s, *i, *j)));
    all
}

/// That of one element. `None`: it is nobody's, or not finite.
pub fn prefix(s: &System, i: usize, j: usize) -> Option<Prefix> {
    let at = i * s.cols + j;
    let x = s.actual[at];
    let part = s.part[i].map(|p| &s.parts[p])?;
    if !x.is_finite() || s.out.is_quantized() && s.out.is_saturated(at, x) {
        return None;
    }
    let (a, b) = ((part.a + i - part.rows.start) * s.a.k, (part.b + j) * s.b.k);
    let (mut sum, mut size) = (0.0, 0.0);
    let mut sums = Vec::with_capacity(s.k + 1);
    for k in 0..s.k {
        sums.push(sum);
        if part.k.contains(&k) {
            let p = s.a.values[a + k] * s.b.values[b + k];
            sum += p;
            size += p.abs();
        }
    }
    sums.push(sum);
    let r = s.relative * (size + s.bias.at(i, j).abs()) + x.abs() * 2f64.powi(-23);
    let (low, high) = s.out.cell(at, x);
    (sum.is_finite() && low.is_finite() && high.is_finite()).then(|| Prefix {
        sums,
        low: low - s.bias.at(i, j) - r,
        high: high - s.bias.at(i, j) + r,
    })
}

/// Ranges kept for the replay.
const KEPT: usize = 12;

/// Every range [from, to) of K that explains all probes as lost, twice or alone; the best few by how well and how round they are.
pub fn ranges(s: &System) -> Vec<Theory> {
    let probes = prefixes(s, 128);
    // One probe says little about two numbers.
    if probes.len() < 3 || s.k < 2 {
        return Vec::new();
    }
    let holds = |p: &Prefix, from: usize, to: usize, fate: Fate| {
        let v = fate.of(p.sums[to] - p.sums[from], p.sums[s.k]);
        p.low <= v && v <= p.high
    };
    let miss = |from: usize, to: usize, fate: Fate| -> f64 {
        let one = |p: &Prefix| {
            let v = fate.of(p.sums[to] - p.sums[from], p.sums[s.k]);
            let middle = 0.5 * (p.low + p.high);
            ((v - middle) / (p.high - p.low).max(1e-300)).powi(2)
        };
        probes.iter().map(one).sum::<f64>() / probes.len() as f64
    };
    let mut found: Vec<(f64, usize, usize, Fate)> = Vec::new();
    // Ends whose sums are as far apart as the first probe asks for.
    let first = &probes[0];
    let whole = first.sums[s.k];
    let mut order: Vec<(f64, usize)> = first.sums.iter().copied().zip(0..).collect();
    order.order_by(|a, b| a.0.total_cmp(&b.0));
    let slack = 1e-12 * first.sums.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    for from in 0..s.k {
        for (fate, low, high) in [
            (Fate::Lost, whole - first.high, whole - first.low),
            (Fate::Twice, first.low - whole, first.high - whole),
            (Fate::Alone, first.low, first.high),
        ] {
            let start = first.sums[from];
            let near = order.partition_point(|x| x.0 < start + low - slack);
            for (_, to) in order[near..].iter().take_while(|x| x.0 <= start + high + slack) {
                let to = *to;
                // Alone to an end of K is the rest lost.
                if to <= from || (from, to) == (0, s.k) || fate == Fate::Alone && (from == 0 || to == s.k) {
                    continue;
                }
                if probes.iter().all(|p| holds(p, from, to, fate)) {
                    let n = probes.len() as f64;
                    found.push((20.0 * n.min(64.0) * miss(from, to, fate) + ends(s.k, from, to), from, to, fate));
                }
            }
        }
        if found.len() > 20_000 {
            break;
        }
    }
    found.order_by(|a, b| a.0.total_cmp(&b.0));
    found.truncate(KEPT);
    found.into_iter().map(|(_, from, to, fate)| theory(s.k, from, to, fate)).collect()
}

/// Bits of a range: ends of K are free, round numbers short.
fn ends(k: usize, from: usize, to: usize) -> f64 {
    let end = |x: usize| if x == 0 || x == k { 0.5 } else { cost(x).min(cost(k - x)) };
    end(from) + end(to)
}

/// The theory that K `from..to` has this fate.
pub fn theory(k: usize, from: usize, to: usize, fate: Fate) -> Theory {
    let (lost, at_end) = (to - from, to == k);
    // Alone from the start is the rest lost, and the other way about.
    let (class, variant, words) = match fate {
        Fate::Lost if at_end && 2 * lost < k => {
            (Class::KTail, "dropped", format!("the last {lost} of K ({from} … {}) are left out", k - 1))
        }
        Fate::Lost if at_end => {
            (Class::AccState, "first_only", format!("only K 0 … {} is summed, the last {lost} are lost", from - 1))
        }
        Fate::Lost if from == 0 && 2 * lost >= k => (
            Class::AccState,
            "last_only",
            format!("only the last {} of K ({to} … {}) are left: what was summed before is lost", k - to, k - 1),
        ),
        Fate::Lost => (Class::AccState, "lost", format!("K {from} … {} is missing ({lost} of {k})", to - 1)),
        Fate::Twice if at_end && 2 * lost < k => {
            (Class::KTail, "twice", format!("the last {lost} of K ({from} … {}) are counted twice", k - 1))
        }
        Fate::Twice => (Class::AccState, "twice", format!("K {from} … {} is counted twice", to - 1)),
        Fate::Alone if at_end => {
            (Class::AccState, "last_only", format!("only the last {lost} of K ({from} … {}) are left", k - 1))
        }
        Fate::Alone => (Class::AccState, "alone", format!("only K {from} … {} is summed", to - 1)),
    };
    let c = |x: usize| match (fate, (from..to).contains(&x)) {
        (Fate::Lost, true) | (Fate::Alone, false) => 0.0,
        (Fate::Twice, true) => 2.0,
        _ => 1.0,
    };
    // One tile at the end is a step that is left out.
    let left_over = if fate == Fate::Lost && at_end { crate::fault::k_parts::split(k, from, 2) } else { None };
    let words = format!("{words}{}{}", steps(from, to), left_over.map_or(String::new(), |w| format!("; {w}")));
    let mut t = Theory::new(class, "out", format!("k.{variant}"), words).bits(3.0 + ends(k, from, to));
    t.k = Some(Arc::new((0..k).map(c).collect()));
    t
}

/// The range in steps of a main loop, where it has some.
fn steps(from: usize, to: usize) -> String {
    let step =
        [256, 128, 64, 32, 16].into_iter().find(|w| from.is_multiple_of(*w) && (to - from).is_multiple_of(*w) && to > from);
    step.map_or(String::new(), |w| format!(": {} step{} of {w}", (to - from) / w, if to - from == w { "" } else { "s" }))
}

/// Elements that tell coefficients.
const PROBES: usize = 128;
/// Widths of slices.
const WIDTHS: [usize; 6] = [16, 32, 64, 128, 256, 512];

/// Least-squares coefficients of slices of K, `width` wide, over the probes: 1 where nothing is wrong. `None`: fewer equations than twice
/// the unknowns.
pub fn coefficients(s: &System) -> Option<(usize, Vec<f64>)> {
    coefficients_of(s, &prefixes(s, PROBES), &WIDTHS)
}

/// Of slices of the first of these widths that there are equations enough for.
fn coefficients_of(s: &System, probes: &[Prefix], widths: &[usize]) -> Option<(usize, Vec<f64>)> {
    let width = widths.iter().copied().find(|w| s.k.div_ceil(*w) * 2 <= probes.len())?;
    let n = s.k.div_ceil(width);
    (n > 1).then_some(())?;
    let mut system = linear::Normal::new(n);
    for p in probes {
        let row: Vec<f64> = (0..n).map(|x| p.sums[s.k.min((x + 1) * width)] - p.sums[x * width]).collect();
        let weight = 1.0 / (p.high - p.low).max(1e-300);
        system.add(&row, 0.5 * (p.low + p.high), weight * weight);
    }
    Some((width, system.solve()?))
}

/// Theories that the coefficients of slices suggest: each rounded to a whole number, where that makes a pattern no single range has.
pub fn patterns(s: &System) -> Vec<Theory> {
    let probes = prefixes(s, PROBES);
    let of = |widths: &[usize]| pattern(s, coefficients_of(s, &probes, widths)?);
    of(&WIDTHS).or_else(|| of(&[8])).into_iter().collect()
}

fn pattern(s: &System, (width, c): (usize, Vec<f64>)) -> Option<Theory> {
    // No −0.
    let rounded: Vec<f64> = c.iter().map(|x| x.round() + 0.0).collect();
    let near = c.iter().zip(&rounded).filter(|(x, r)| (*x - *r).abs() < 0.2).count();
    // Nothing of K at all is no pattern of K.
    let none = rounded.iter().all(|x| *x == 0.0);
    if near * 10 < c.len() * 9 || none || rounded.iter().all(|x| *x == 1.0) || rounded.iter().any(|x| x.abs() > 16.0) {
        return None;
    }
    // Where the end is lost it is the tail, whatever was summed instead.
    let class = if rounded.last() == Some(&0.0) && rounded[0] == 1.0 { Class::KTail } else { Class::AccState };
    let period = period(&rounded);
    // Neighbours that count alike are one: from, to, how often.
    let mut runs: Vec<(usize, usize, f64)> = Vec::new();
    for (x, r) in rounded[..period.unwrap_or(rounded.len())].iter().enumerate().filter(|(_, r)| **r != 1.0) {
        match runs.last_mut() {
            Some((_, to, same)) if *to == x && *same == *r => *to = x + 1,
            _ => runs.push((x, x + 1, *r)),
        }
    }
    let place = |(from, to, _): &(usize, usize, f64)| format!("{} … {}", from * width, s.k.min(to * width) - 1);
    let all: Vec<String> = runs.iter().take(12).map(|r| format!("{} ×{}", place(r), r.2)).collect();
    let words = match (period, &runs[..]) {
        (Some(p), [run]) if run.2 == 0.0 => format!("of every {} of K {} are left out", p * width, place(run)),
        (Some(p), [run]) if run.2 == 2.0 => format!("of every {} of K {} are counted twice", p * width, place(run)),
        (Some(p), _) => format!("of every {} of K slices are not counted once: {}", p * width, all.join(", ")),
        (None, _) => format!("slices of K are not counted once: {}", all.join(", ")),
    };
    let short = if period.is_some_and(|p| !rounded.len().is_multiple_of(p)) { "; the last of these is cut short" } else { "" };
    let mut t = Theory::new(class, "out", "k.pattern", words + short);
    let slices = runs.iter().map(|r| r.1 - r.0).sum::<usize>().min(12);
    t.bits = 8.0 + 3.0 * slices as f64;
    t.freedom = slices;
    let rounded = rounded.clone();
    t.k = Some(Arc::new((0..s.k).map(|k| rounded[k / width]).collect()));
    Some(t)
}

/// After how many slices a pattern starts again, where it does so more than once.
fn period(c: &[f64]) -> Option<usize> {
    (2..=c.len() / 2).find(|p| (*p..c.len()).all(|x| c[x] == c[x - p]))
}

/// The coefficients in words, for what nothing explains.
pub fn picture(s: &System) -> Option<String> {
    let (width, c) = coefficients(s)?;
    let off: Vec<String> = (0..c.len())
        .filter(|x| !((c[*x] - 1.0).abs() < 0.05))
        .map(|x| format!("K {} … {} counts {:.2} times", x * width, s.k.min((x + 1) * width) - 1, c[x]))
        .collect();
    (!off.is_empty() && off.len() <= 4).then(|| off.join(", "))
}
