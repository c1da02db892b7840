//! Activations of codes that take the value before it was quantized where they should take the code times its scale: in the factor in front, in the
//! argument of the gate, or in both. That value is not stored: it is solved, and lies within half a step of its code.
//!
//! ```text
//! y = x·g(x̂), x̂·g(x) or x·g(x)      act(x) = x·g(x), x̂ = code·s      ──►  x of every element: all of them within s/2 of x̂, and spread over all of it
//! ```

use super::function::Point;
use crate::op::Act;
use crate::op::activation::act;

/// Elements whose value is solved, at least and at most, and the share of them that has to be within half a step.
const LEAST: usize = 64;
const MOST: usize = 4096;
const SHARE: f64 = 0.98;
/// How far over half a step a value may be, and what its interval may be of a step at most.
const OVER: f64 = 1.0 / 256.0;
const NARROW: f64 = 0.125;
/// Mean and deviation of magnitudes that are spread over half a step, and how many deviations of their mean it may be off, and so much more.
const MEAN: f64 = 0.25;
const DEVIATION: f64 = 0.145;
const SIGMAS: f64 = 3.5;
const MORE: f64 = 0.005;

/// What a result says of x/s − x̂/s, as a function that rises with x. `None`: nothing.
type Made = fn(Act, f64, f64) -> Option<f64>;
/// In words, what is made, and whether it falls with the gate where the code is negative.
const WAYS: [(&str, Made, bool); 3] = [
    // Below −1 an activation does not rise everywhere.
    ("values before they are quantized are read, and not their codes", |own, _, x| (x > -1.0).then(|| act(own, x)), false),
    (
        "the factor in front of the gate is the value before it is quantized, and in the gate is the code times its scale",
        |own, x0, x| Some(x * gate(own, x0)),
        false,
    ),
    (
        "in the gate is the value before it is quantized, and the factor in front of it is the code times its scale",
        |own, x0, x| Some(x0.abs() * gate(own, x)).filter(|_| x0 != 0.0),
        true,
    ),
];

fn gate(own: Act, x: f64) -> f64 {
    if x == 0.0 { 0.5 } else { act(own, x) / x }
}

/// Which of both is not the code's value, in words; `s`: the scale of all codes.
pub fn explain(own: Act, s: f64, elements: &[Point]) -> Option<String> {
    (matches!(own, Act::Silu | Act::Gelu | Act::GeluErf | Act::Qgelu) && s > 0.0).then_some(())?;
    // A code at an end of its range stands for anything beyond.
    let end = elements.iter().map(|e| e.x.abs()).fold(0.0, f64::max) - 0.5 * s;
    let inside: Vec<&Point> = elements.iter().filter(|e| e.x.abs() < end && e.low.is_finite() && e.high.is_finite()).collect();
    let some: Vec<&Point> = inside.iter().copied().step_by(inside.len().div_ceil(MOST).max(1)).collect();
    let (words, ..) = WAYS.into_iter().find(|(_, made, falls)| {
        // Half a step beyond both ends, in steps: what is outside says no.
        let solve = |e: &Point, y: f64| {
            let (mut from, mut to) = (-1.0f64, 1.0);
            let of = |by: f64| made(own, e.x, e.x + by * s);
            of(from).and(of(to))?;
            for _ in 0..40 {
                let mid = 0.5 * (from + to);
                if of(mid)? < y { from = mid } else { to = mid }
            }
            Some(0.5 * (from + to))
        };
        let turned = |e: &Point| *falls && e.x < 0.0;
        let ends = |e: &&Point| {
            let (low, high) = if turned(e) { (-e.high, -e.low) } else { (e.low, e.high) };
            Some((solve(e, low)?, solve(e, high)?)).filter(|(a, b)| b - a < NARROW)
        };
        let within = |(a, b): &(f64, f64)| *a <= 0.5 + OVER && *b >= -0.5 - OVER;
        // A few refuse most.
        let few: Vec<(f64, f64)> = some.iter().step_by(some.len().div_ceil(LEAST).max(1)).filter_map(ends).collect();
        if few.iter().filter(|o| !within(o)).count() as f64 > 4.0 * (1.0 - SHARE) * few.len() as f64 {
            return false;
        }
        let all: Vec<(f64, f64)> = some.iter().filter_map(ends).collect();
        let is = all.iter().filter(|o| within(o)).count();
        let mean = |f: fn(f64) -> f64| all.iter().map(|(a, b)| f(0.5 * (a + b))).sum::<f64>() / all.len().max(1) as f64;
        let off = SIGMAS * DEVIATION / (all.len().max(1) as f64).sqrt() + MORE;
        all.len() >= LEAST
            && 4 * all.len() >= some.len()
            && is as f64 >= SHARE * all.len() as f64
            && (mean(f64::abs) - MEAN).abs() <= off
            && mean(|o| o).abs() <= 2.0 * off
    })?;
    Some(format!(
        "{words}: results are those of values that are not stored, all of them within half a step, {:.4}, of what their codes stand for",
        0.5 * s
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of codes by a scale of 0.1 where the result is this of the code's value and the one before.
    fn said(own: Act, made: &dyn Fn(f64, f64) -> f64) -> String {
        let element = |n: usize| {
            let x = (n * 7919 % 10_007) as f64 / 1000.0 - 5.0;
            let code = (x / 0.1).round() * 0.1;
            let y = made(code, x);
            Point { x: code, low: y - 1e-7 * y.abs(), high: y + 1e-7 * y.abs(), right: act(own, code) }
        };
        explain(own, 0.1, &(0..600).map(element).collect::<Vec<_>>()).unwrap_or_default()
    }

    #[test]
    fn a_value_that_is_not_quantized_is_named() {
        for own in [Act::Silu, Act::Qgelu, Act::Gelu, Act::GeluErf] {
            let words = said(own, &|code, x| x * gate(own, code));
            assert!(
                words.starts_with("the factor in front of the gate is the value before") && words.contains("0.0500"),
                "{words}"
            );
            let words = said(own, &|code, x| code * gate(own, x));
            assert!(words.starts_with("in the gate is the value before it is quantized"), "{own:?}: {words}");
            let words = said(own, &|_, x| act(own, x));
            assert!(words.starts_with("values before they are quantized are read"), "{words}");
            assert_eq!(said(own, &|code, _| act(own, code)), "", "it is right");
            assert_eq!(said(own, &|code, _| (code + 0.03) * gate(own, code)), "", "one number more is no rounding");
            assert_eq!(said(own, &|code, x| (code + 2.0 * (x - code)) * gate(own, code)), "", "twice as far");
        }
    }
}
