//! An activation of values that were dequantized by another scale than theirs: `act(g·x)`, with one g in all that is wrong.
//!
//! ```text
//! y = act(g·x)·u, x > 0     ──►  the interval of g that gives the interval of y, by bisection: act rises there     ──►  the g that lies in all
//! ```

use super::Bundle;
use super::curves::Element;
use super::formulas::{At, Formula, formula};
use crate::fault::solve::output::roundest;
use crate::op::activation::act;
use crate::op::{Act, Op};

/// How far a scale may be from its own.
const FAR: f64 = 1024.0;
/// Elements that g is solved from, at least and at most.
const LEAST: usize = 16;
const MOST: usize = 2048;
/// The share of elements that g has to be in the interval of.
const SHARE: f64 = 0.98;
/// How far g has to be from 1, relative.
const OFF: f64 = 1.0 / 4096.0;

/// An activation of values by another scale: that of the operand, or that of the result.
pub fn formulas(bundle: &Bundle, own: Act, wrong: &[Element]) -> impl Iterator<Item = Formula> {
    operand(bundle, own, wrong).into_iter().chain(scaled_first(bundle, own))
}

/// The activation of values that another scale made, an earlier one where it is that.
fn operand(bundle: &Bundle, own: Act, wrong: &[Element]) -> Option<Formula> {
    let stored = bundle.a.dequantized_by;
    let of = |h: &f32| f64::from(*h) / f64::from(stored.unwrap_or(1.0));
    let known: Vec<f64> = if stored.is_some() { bundle.a.history.iter().map(of).collect() } else { Vec::new() };
    let g = solve(own, wrong, &known)?;
    let words = match (known.iter().position(|k| *k == g), stored) {
        (Some(n), Some(s)) => format!("the scale of a is scale_history[{n}], {:e}, and not {s:e}", bundle.a.history[n]),
        _ => format!("x is {g} times what it is: the scale of a is another"),
    };
    let gated = bundle.meta.op == Op::Gated;
    Some(formula(words, move |r: &At| activated(own, r, g, gated).collect()))
}

/// The scale of the result, taken before its activation.
fn scaled_first(bundle: &Bundle, own: Act) -> Option<Formula> {
    let (s, gated) = (f64::from(bundle.out.scale?), bundle.meta.op == Op::Gated);
    let words = format!("out.scale multiplies x before the activation, not its result: x·{s} is activated");
    Some(formula(words, move |r: &At| activated(own, r, s, gated).map(|y| y / s).collect()))
}

/// `act(g·x)`, times the gate where there is one.
fn activated<'r>(own: Act, r: &'r At, g: f64, gated: bool) -> impl Iterator<Item = f64> + 'r {
    (0..r.cols).map(move |j| act(own, g * r.x()[j]) * if gated { r.x()[r.cols + j] } else { 1.0 })
}

/// The factor that makes these elements, which the right function does not, of the scales `known` where it is one of them. `None`: there is none, or
/// the function of a factor is a factor of the function.
pub fn solve(own: Act, wrong: &[Element], known: &[f64]) -> Option<f64> {
    matches!(own, Act::Gelu | Act::Silu | Act::Qgelu | Act::GeluErf).then_some(())?;
    let ranges: Vec<(f64, f64)> =
        wrong.iter().step_by(wrong.len().div_ceil(MOST).max(1)).filter_map(|e| range(own, e)).collect();
    (ranges.len() >= LEAST).then_some(())?;
    let inside = |g: f64| ranges.iter().filter(|(low, high)| *low <= g && g <= *high).count();
    let enough = |g: f64| inside(g) as f64 >= SHARE * ranges.len() as f64;
    let mut lows: Vec<f64> = ranges.iter().map(|r| r.0).collect();
    let mut highs: Vec<f64> = ranges.iter().map(|r| r.1).collect();
    lows.sort_by(f64::total_cmp);
    highs.sort_by(f64::total_cmp);
    // But for the few that are something else.
    let few = ((1.0 - SHARE) * 0.5 * ranges.len() as f64) as usize;
    let (low, high) = (lows[lows.len() - 1 - few], highs[few]);
    let own_number = if low <= high { roundest(low, high) } else { 0.5 * (low + high) };
    let g = known.iter().copied().find(|g| enough(*g)).or_else(|| enough(own_number).then_some(own_number))?;
    ((g - 1.0).abs() > OFF && !enough(1.0)).then_some(g)
}

/// What g may be, by one element with x > 0.
fn range(own: Act, e: &Element) -> Option<(f64, f64)> {
    (e.x > 1e-3 && e.gate.abs() > 1e-6).then_some(())?;
    let ends = [e.low / e.gate, e.high / e.gate];
    let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    (low > 0.0 && high.is_finite()).then_some(())?;
    let g = |y: f64| {
        let (mut from, mut to) = (1.0 / FAR, FAR);
        for _ in 0..60 {
            let mid = (from * to).sqrt();
            if act(own, mid * e.x) < y { from = mid } else { to = mid }
        }
        (from * to).sqrt()
    };
    Some((g(low) * (1.0 - 1e-6), g(high) * (1.0 + 1e-6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `act(g·x)·u` is in bf16.
    fn elements(own: Act, g: f64) -> Vec<Element> {
        let one = |n: i32| {
            let (x, gate) = (f64::from(n % 37 - 12) / 7.0, 1.5 - f64::from(n % 5));
            let y = act(own, g * x) * gate;
            Element { x, gate, low: y - y.abs() / 512.0, high: y + y.abs() / 512.0 }
        };
        (0..300).map(one).collect()
    }

    #[test]
    fn the_factor_of_an_argument_is_solved() {
        for own in [Act::Gelu, Act::Silu, Act::Qgelu, Act::GeluErf] {
            assert_eq!(solve(own, &elements(own, 0.75), &[]), Some(0.75), "{own:?}");
            let known = solve(own, &elements(own, 1.2345), &[3.0, 1.2345]);
            assert_eq!(known, Some(1.2345), "{own:?}");
            assert_eq!(solve(own, &elements(own, 1.0), &[]), None);
        }
        // A factor of the result; a function for which the two are one.
        let gain = |own| elements(own, 1.0).into_iter().map(|e| Element { low: 0.8 * e.low, high: 0.8 * e.high, ..e });
        assert_eq!(solve(Act::Silu, &gain(Act::Silu).collect::<Vec<_>>(), &[]), None);
        assert_eq!(solve(Act::Relu, &gain(Act::Relu).collect::<Vec<_>>(), &[]), None);
    }
}
