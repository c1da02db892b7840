//! Activations by constants that are solved: the two numbers in the argument of σ or tanh, the slopes beside 0, for each way to take the gate.
//!
//! ```text
//! y = x·σ(p·x + q·x³)·g     ──►  logit(y / (x·g)) = p·x + q·x³: two unknowns          gelu, silu and quick gelu, with any constants
//! y = x·Φ(k·x)·g            ──►  the interval of k in all elements                     gelu by the error function of another multiple
//! y = x·(x > 0 ? c : d)·g   ──►  the intervals of y / (x·g) on both sides of 0        relu, leaky relu, none at all
//! ```

use super::gates::{CHANGES, LIMITS};
use crate::compare::digits;
use crate::fault::solve::output::roundest;
use std::f64::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E, SQRT_2};

/// The share of elements that the solved numbers have to make.
pub const SHARE: f64 = 0.98;
/// Elements that numbers are solved from, at most, and elements at least.
const SOLVED: usize = 4096;
const LEAST: usize = 64;
/// What f32 arithmetic and its library may be off, relative.
const SLACK: f64 = 1.0 / (1u64 << 18) as f64;
/// What is lost of 1 + tanh or 1 − σ in f32, where most of it cancels.
const CANCELS: f64 = 1.0 / (1u64 << 23) as f64;
/// Standard deviations that a solved number may be off.
const SIGMAS: f64 = 4.0;
/// How well a number has to be known to be called one of a few, relative.
const NARROW: f64 = 1.0 / 512.0;
/// Ways to change the gate that are asked.
const WAYS: usize = 7;

/// One element: x, its gate (1 where there is none), and what the result may have been before it was stored.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    pub x: f64,
    pub gate: f64,
    pub low: f64,
    pub high: f64,
}

/// A function that was solved, in words.
struct Curve {
    words: String,
    of: Box<dyn Fn(f64) -> f64>,
}

/// What makes the elements, in words. `None`: no function of these kinds.
pub fn explain(all: &[Element], gated: bool) -> Option<String> {
    (all.len() >= LEAST).then_some(())?;
    type Way = (&'static str, fn(f64) -> f64);
    let mut ways: Vec<Way> = vec![("", |u| u)];
    let mut reads = vec![""];
    if gated {
        ways.extend(&CHANGES[..WAYS]);
        reads.push("the halves of a row are exchanged: [gate | x] is read");
    }
    for read in reads {
        for limit in std::iter::once(f64::INFINITY).chain(LIMITS) {
            for both in [true, false] {
                // Without a gate there is one limit, to both sides; without a limit one way.
                if !both && (!gated || limit.is_infinite()) {
                    continue;
                }
                for (words, way) in &ways {
                    let seen = |e: &Element| {
                        let (x, u) = if read.is_empty() { (e.x, e.gate) } else { (e.gate, e.x) };
                        let x = if gated { x.min(limit) } else { x.clamp(-limit, limit) };
                        Element { x, gate: way(if both && gated { u.clamp(-limit, limit) } else { u }), ..*e }
                    };
                    let Some(curve) = solved(all, &seen) else { continue };
                    let limited = match (limit.is_finite(), gated, both) {
                        (false, ..) => String::new(),
                        (true, true, true) => format!("x is clamped at {limit} and the gate at ±{limit}"),
                        (true, true, false) => format!("x is clamped at {limit}"),
                        (true, false, _) => format!("x is clamped at ±{limit}"),
                    };
                    let parts = [curve.words.as_str(), words, &limited, read];
                    return Some(parts.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join("; and "));
                }
            }
        }
    }
    None
}

/// Whether `y` is within what cancels of a result of this size before it is stored in this cell.
pub fn cancels(size: f64, (low, high): (f64, f64), y: f64) -> bool {
    let slack = CANCELS * size.abs();
    low - slack <= y && y <= high + slack
}

/// Whether `y` is what this element may have been, to the rounding of the terms that make it.
pub fn makes(e: &Element, y: f64) -> bool {
    let slack = SLACK * y.abs() + CANCELS * (e.x * e.gate).abs();
    e.low - slack <= y && y <= e.high + slack
}

/// The function of these elements.
fn solved(all: &[Element], seen: &dyn Fn(&Element) -> Element) -> Option<Curve> {
    let some: Vec<Element> = all.iter().step_by(all.len().div_ceil(SOLVED)).map(seen).collect();
    sigmoid(&some).into_iter().chain(normal(&some)).chain(slopes(&some)).find(|c| {
        let made = |e: &Element| makes(e, (c.of)(e.x) * e.gate);
        let share = |all: &mut dyn Iterator<Item = Element>| {
            let (n, hit) = all.fold((0usize, 0usize), |(n, hit), e| (n + 1, hit + usize::from(made(&e))));
            hit as f64 >= SHARE * n as f64
        };
        share(&mut some.iter().take(LEAST).copied()) && share(&mut all.iter().map(seen))
    })
}

/// The interval of the result over x and gate.
fn quotient(e: &Element) -> Option<(f64, f64)> {
    let by = e.x * e.gate;
    let ends = [e.low / by, e.high / by];
    (by.abs() > 1e-9 && ends.iter().all(|x| x.is_finite())).then(|| (ends[0].min(ends[1]), ends[0].max(ends[1])))
}

/// `x·σ(p·x + q·x³)` by least squares of the argument: with short numbers, then as they were solved.
fn sigmoid(some: &[Element]) -> Vec<Curve> {
    let Some(solved) = argument(some) else { return Vec::new() };
    let near = |x: f64, y: f64| (x / y - 1.0).abs() < 0.02;
    let one = |sigmas: f64| {
        let round = |x: f64, off: f64| if sigmas == 0.0 { x } else { roundest(x - sigmas * off, x + sigmas * off) };
        let ((p, off_p), Some((q, off_q))) = solved else {
            let (p, off) = solved.0;
            // e^x = 2^(x·log2 e): a power of 2 in the place of the exponential, or one factor too many.
            let (less, more) =
                (": its exponential is a power of 2, without the factor log2(e)", ": log2(e) is in its exponential twice");
            let known = [(LN_2, less), (1.702 * LN_2, less), (LOG2_E, more), (1.702 * LOG2_E, more)];
            let known = known.into_iter().find(|k| off < NARROW * p.abs() && (p - k.0).abs() <= SIGMAS * off);
            let p = known.map_or(round(p, off), |k| k.0);
            let shown = if near(p, p.round()) && (p - p.round()).abs() < off { p.round() } else { p };
            let words = format!("the activation is x·σ({}·x){}", digits::apart([shown])[0], known.map_or("", |k| k.1));
            return Curve { words, of: Box::new(move |x| x / (1.0 + (-p * x).exp())) };
        };
        // As tanh has it: σ(2z) = (1 + tanh z)/2.
        let (a, b) = (round(0.5 * p, 0.5 * off_p), round(q / p, ((off_q / q).abs() + (off_p / p).abs()) * (q / p).abs()));
        let how = if near(a, 0.044715) && near(b, 0.797_884_56) { ": the two constants of gelu are exchanged" } else { "" };
        let [shown_a, shown_b] = [a, b].map(|x| digits::apart([x])[0].clone());
        let words = format!("the activation is x/2·(1 + tanh({shown_a}·(x + {shown_b}·x³))){how}");
        Curve { words, of: Box::new(move |x| 0.5 * x * (1.0 + (a * (x + b * x.powi(3))).tanh())) }
    };
    [SIGMAS, 1.0, 0.0].map(one).into()
}

/// `x·Φ(k·x)`, with the one k that lies in the intervals of all elements.
fn normal(some: &[Element]) -> Option<Curve> {
    let phi = |z: f64| 0.5 * (1.0 + libm::erf(z * FRAC_1_SQRT_2));
    // Φ rises: what gives its number, by bisection.
    let inverse = |p: f64| {
        let (mut from, mut to) = (-8.0, 8.0);
        for _ in 0..50 {
            let mid = 0.5 * (from + to);
            if phi(mid) < p { from = mid } else { to = mid }
        }
        0.5 * (from + to)
    };
    let (mut low, mut high, mut n) = (0.0f64, f64::INFINITY, 0usize);
    for e in some.iter().filter(|e| (0.05..4.0).contains(&e.x.abs())) {
        let Some((from, to)) = quotient(e) else { continue };
        let (from, to) = (from - CANCELS - SLACK * from.abs(), to + CANCELS + SLACK * to.abs());
        if from <= 1e-5 || to >= 1.0 - 1e-5 {
            continue;
        }
        let ends = [inverse(from) / e.x, inverse(to) / e.x];
        (low, high, n) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])), n + 1);
        if low > high {
            return None;
        }
    }
    (n >= LEAST && low > 0.0).then_some(())?;
    let is = |k: f64| low <= k && k <= high;
    let known = [
        (SQRT_2, ": the error function is taken of x, not of x/√2"),
        (FRAC_1_SQRT_2, ": the error function is taken of x/2, not of x/√2"),
    ];
    let (k, how) = known.into_iter().find(|k| is(k.0)).unwrap_or((roundest(low, high), ""));
    let words = format!("the activation is x·Φ({}·x){how}", digits::apart([k])[0]);
    Some(Curve { words, of: Box::new(move |x| x * phi(k * x)) })
}

/// A number and its standard error.
type Number = (f64, f64);

/// p and q of the argument; q only where it is not 0.
fn argument(some: &[Element]) -> Option<(Number, Option<Number>)> {
    let logit = |s: f64| (s / (1.0 - s)).ln();
    let (mut terms, mut told, mut outside) = (Vec::new(), 0usize, 0usize);
    for e in some {
        let Some((low, high)) = quotient(e).filter(|_| e.x.abs() > 0.05) else { continue };
        told += 1;
        outside += usize::from(high < 0.0 || low > 1.0);
        // What is rounded to 0 or to x says too little.
        let (low, high) = (low - CANCELS, high + CANCELS);
        if low > 1e-5 && high < 1.0 - 1e-5 {
            let (from, to) = (logit(low), logit(high));
            let half = 0.5 * (to - from) + 1e-7;
            if half < 0.5 {
                terms.push([e.x, e.x.powi(3), 0.5 * (from + to), 1.0 / (half * half)]);
            }
        }
    }
    (terms.len() >= LEAST && (outside as f64) < (1.0 - SHARE) * told as f64).then_some(())?;
    // Of the products of two of them, each weighed by what its element tells.
    let sum = |a: usize, b: usize| terms.iter().map(|t: &[f64; 4]| t[3] * (t[a] * t[b])).sum::<f64>();
    let (uu, uv, vv, uz, vz) = (sum(0, 0), sum(0, 1), sum(1, 1), sum(0, 2), sum(1, 2));
    let det = uu * vv - uv * uv;
    (det > 1e-9 * uu * vv).then_some(())?;
    let (p, q) = ((uz * vv - vz * uv) / det, (vz * uu - uz * uv) / det);
    let (off_p, off_q) = ((vv / det).sqrt() + 1e-7 * p.abs(), (uu / det).sqrt());
    if q.abs() <= (SIGMAS * off_q).max(1e-5) {
        let p = uz / uu;
        return (p != 0.0).then_some(((p, uu.sqrt().recip() + 1e-7), None));
    }
    (p != 0.0 && off_q < 0.1 * q.abs()).then_some(((p, off_p), Some((q, off_q))))
}

/// One factor of x above 0 and one below.
fn slopes(some: &[Element]) -> Option<Curve> {
    let side = |positive: bool| {
        let mut n = 0usize;
        let of = some.iter().filter(|e| (e.x > 0.0) == positive).filter_map(quotient);
        let (low, high) = of.fold((f64::NEG_INFINITY, f64::INFINITY), |(low, high), (from, to)| {
            n += 1;
            let slack = SLACK * from.abs().max(to.abs());
            (low.max(from - slack), high.min(to + slack))
        });
        (n >= LEAST / 4 && low <= high).then(|| if low <= 0.0 && high >= 0.0 { 0.0 } else { roundest(low, high) })
    };
    let (above, below) = (side(true)?, side(false)?);
    let [a, b] = [above, below].map(|x| digits::apart([x])[0].clone());
    let words = format!("the activation is {a}·x above 0 and {b}·x below");
    Some(Curve { words, of: Box::new(move |x| if x > 0.0 { above * x } else { below * x }) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::tensor::round_to;

    /// 40 rows of 32 elements in bf16 of what `f` makes of x and its gate.
    fn elements(f: impl Fn(f64, f64) -> f64) -> Vec<Element> {
        let bf16 = |x: f64| f64::from(round_to(Format::Bf16, x as f32));
        let number = |n: u64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1u64 << 24) as f64;
        (0..40 * 32u64)
            .map(|n| {
                let (x, gate) = (bf16(18.0 * number(n) - 9.0), bf16(20.0 * number(n + 77777) - 10.0));
                let y = bf16(f(x, gate));
                let half = y.abs() / 256.0;
                Element { x, gate, low: y - half, high: y + half }
            })
            .collect()
    }

    #[test]
    fn constants_are_solved_with_limits_and_gates() {
        let gpt = |x: f64, u: f64| {
            let (x, u) = (x.min(7.0), u.clamp(-7.0, 7.0));
            x / (1.0 + (-1.55 * x).exp()) * (u + 1.0)
        };
        let words = explain(&elements(gpt), true).unwrap();
        assert!(words.contains("x·σ(1.55·x); and 1 is added to the gate") && words.ends_with("the gate at ±7"), "{words}");
        let power = |by: f64| move |x: f64, u: f64| x / (1.0 + (-by * x).exp2()) * u;
        assert!(
            explain(&elements(power(1.702)), true)
                .unwrap()
                .contains("its exponential is a power of 2, without the factor log2(e)")
        );
        assert!(explain(&elements(power(LOG2_E.powi(2))), true).unwrap().contains("log2(e) is in its exponential twice"));
        let words = explain(&elements(|x, u| x * (1.0 + (0.6 * (x + 0.07 * x.powi(3))).tanh()) / 2.0 * u), true).unwrap();
        assert!(words.contains("tanh(0.6·(x + 0.07·x³))"), "{words}");
        let words = explain(&elements(|x, u| u * if x > 0.0 { x } else { 0.2 * x }), true).unwrap();
        assert!(words.contains("1·x above 0 and 0.2·x below"), "{words}");
        let exchanged = |x: f64, _| 0.5 * x * (1.0 + (0.044715 * (x + 0.79788456 * x.powi(3))).tanh());
        let all: Vec<Element> = elements(exchanged).into_iter().map(|e| Element { gate: 1.0, ..e }).collect();
        assert!(explain(&all, false).unwrap().contains("constants of gelu are exchanged"));
        assert_eq!(explain(&elements(|x, u| x.sin() * u), true), None, "no function of these kinds");
        let phi = |z: f64| 0.5 * (1.0 + libm::erf(z * FRAC_1_SQRT_2));
        let words = explain(&elements(|x, u| x * phi(1.3 * x) * u), true).unwrap();
        assert!(words.contains("x·Φ(1.3·x)"), "{words}");
        let words = explain(&elements(|x, u| x * phi(x * SQRT_2) * u), true).unwrap();
        assert!(words.contains("the error function is taken of x, not of x/√2"), "{words}");
        // In f32, where 1 + tanh cancels, the tail is off by what is lost.
        let cancels = |x: f64| {
            let z = (0.044715f32 * (x as f32 + 0.797_884_6 * (x as f32).powi(3))).tanh();
            let y = f64::from(0.5 * x as f32 * (1.0 + z));
            Element { x, gate: 1.0, low: y - y.abs() * 3e-8, high: y + y.abs() * 3e-8 }
        };
        let all: Vec<Element> =
            (0..3000).map(|n| cancels(f64::from((f64::from(n * 7919 % 3001) / 400.0 - 3.75) as f32))).collect();
        assert!(explain(&all, false).unwrap().contains("constants of gelu are exchanged"), "{:?}", explain(&all, false));
    }

    /// Two numbers of an argument, each as far off as its standard error says; the second only where there is one.
    #[test]
    fn the_argument_of_a_sigmoid_is_solved_with_its_errors() {
        for p in [0.8, 1.0, 1.702] {
            let ((found, off), q) = argument(&elements(|x, u| x * u / (1.0 + (-p * x).exp()))).unwrap();
            assert!((found - p).abs() <= SIGMAS * off && off < 1e-3 && q.is_none(), "{found} ± {off}: {q:?}");
        }
        for (a, b) in [(0.6, 0.07), (0.797_884_56, 0.044715), (1.0, -0.01)] {
            let y = |x: f64, u: f64| 0.5 * x * u * (1.0 + (a * (x + b * x.powi(3))).tanh());
            let ((p, off_p), q) = argument(&elements(y)).unwrap();
            let (q, off_q) = q.unwrap();
            assert!((p - 2.0 * a).abs() <= SIGMAS * off_p && off_p < 1e-2, "{p} ± {off_p}");
            assert!((q - 2.0 * a * b).abs() <= SIGMAS * off_q && off_q < 1e-2, "{q} ± {off_q}");
            // A few elements say less, by the root of their number.
            let some: Vec<Element> = elements(y).into_iter().step_by(4).collect();
            let (few, _) = argument(&some).unwrap();
            assert!((1.4..3.0).contains(&(few.1 / off_p)), "{} {off_p}", few.1);
        }
        assert!(argument(&elements(|x, u| x * u)).is_none(), "nothing between 0 and 1");
        assert!(argument(&elements(|x, u| 1.5 * x * u)).is_none(), "more than all of x");
        let half = |x: f64, u: f64| if u > 0.0 { 1.5 * x * u } else { x * u / (1.0 + (-x).exp()) };
        assert!(argument(&elements(half)).is_none(), "half of them more than all of x");
        let all = elements(|x, u| x * u / (1.0 + (-x).exp()));
        let told: Vec<Element> = all.into_iter().filter(|e| e.x.abs() > 0.1 && e.x.abs() < 3.0).collect();
        assert!(argument(&told[..LEAST]).is_some() && argument(&told[..LEAST - 1]).is_none());
    }

    /// 1 + erf cancels in f32: what is left below 0 is off by more than its own rounding, to either side.
    #[test]
    fn a_normal_curve_is_solved_where_its_tail_cancels() {
        let element = |x: f64| {
            let z = (1.3 * x * FRAC_1_SQRT_2) as f32;
            let y = f64::from(0.5 * x as f32 * (1.0 + libm::erff(z)));
            Element { x, gate: 1.0, low: y - y.abs() * 3e-8, high: y + y.abs() * 3e-8 }
        };
        let all: Vec<Element> =
            (0..3000).map(|n| element(f64::from((f64::from(n * 7919 % 3001) / 500.0 - 3.0) as f32))).collect();
        assert_eq!(normal(&all).unwrap().words, "the activation is x·Φ(1.3·x)");
    }

    /// Short numbers, and none that is shorter than its error lets it be.
    #[test]
    fn constants_are_rounded_within_their_errors() {
        let y = |x: f64, u: f64| 0.5 * x * u * (1.0 + (0.8 * (x + 0.0437 * x.powi(3))).tanh());
        for step in [1, 2, 4] {
            let some: Vec<Element> = elements(y).into_iter().step_by(step).collect();
            let words = sigmoid(&some).swap_remove(0).words;
            let second = words.strip_prefix("the activation is x/2·(1 + tanh(0.8·(x + ").and_then(|w| w.strip_suffix("·x³)))"));
            let second: f64 = second.unwrap_or_else(|| panic!("{words}")).parse().unwrap();
            assert!((second - 0.0437).abs() < 1e-3, "{words}");
        }
    }
}
