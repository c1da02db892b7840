//! A clamped activation of another limit than its own: every number that a limit may be is tried on a few elements, what is left on all.

use super::curves::{Element, SHARE};
use super::formulas::{At, Formula, formula};
use crate::fault::solve::output::roundest;
use crate::op::activation::{act, gate};
use crate::op::{Act, Clamp};

/// Binades of limits, and numbers of each.
const BINADES: std::ops::Range<i32> = -8..17;
const STEPS: u32 = 1 << 10;
/// Elements that every limit is tried on, and wrong ones at least.
const FEW: usize = 24;
const LEAST: usize = 16;
/// What f32 arithmetic may be off, relative.
const SLACK: f64 = 1.0 / (1u64 << 18) as f64;

/// The activation with the limit that makes these wrong elements. None of an activation without a limit.
pub fn formula_of(own: Act, wrong: &[Element]) -> Option<Formula> {
    let clamp = own.clamp()?;
    let limit = solve(own, wrong)?;
    let f = own.with(Clamp::new(clamp.alpha(), limit as f32));
    Some(formula(format!("the limit is {limit}, not {}", clamp.limit()), move |r: &At| {
        (0..r.cols).map(|j| act(f, r.x()[j]) * gate(f, r.x()[r.cols + j])).collect()
    }))
}

fn solve(own: Act, wrong: &[Element]) -> Option<f64> {
    let alpha = own.clamp()?.alpha();
    (wrong.len() >= LEAST).then_some(())?;
    let share = |limit: f64, some: &mut dyn Iterator<Item = &Element>| {
        let f = own.with(Clamp::new(alpha, limit as f32));
        let made = |e: &Element| {
            let y = act(f, e.x) * gate(f, e.gate);
            let slack = SLACK * y.abs();
            e.low - slack <= y && y <= e.high + slack
        };
        let (n, hit) = some.fold((0usize, 0usize), |(n, hit), e| (n + 1, hit + usize::from(made(e))));
        hit as f64 >= SHARE * n as f64
    };
    // Where no limit makes them, one at the end of the values would, too.
    if share(f64::INFINITY, &mut wrong.iter()) {
        return None;
    }
    let few = |limit: &f64| share(*limit, &mut wrong.iter().step_by(wrong.len().div_ceil(FEW)));
    let numbers = BINADES.flat_map(|e| (0..STEPS).map(move |n| f64::from(e).exp2() * (1.0 + f64::from(n) / f64::from(STEPS))));
    let left: Vec<f64> = std::iter::once(0.0).chain(numbers).filter(few).collect();
    let (low, high) = (*left.first()?, *left.last()?);
    let short = if low < high { roundest(low, high) } else { low };
    std::iter::once(short).chain(left).find(|limit| share(*limit, &mut wrong.iter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements in bf16 of an activation of this limit, those that the right one makes left out.
    fn wrong(own: Act, limit: f32) -> Vec<Element> {
        let alpha = own.clamp().unwrap().alpha();
        let of = |f: Act, x: f64, u: f64| act(f, x) * gate(f, u);
        let one = |n: i32| {
            let (x, gate) = (f64::from(n % 97 - 40) / 5.0, f64::from(n * 31 % 113 - 50) / 4.0);
            let y = of(own.with(Clamp::new(alpha, limit)), x, gate);
            Element { x, gate, low: y - y.abs() / 512.0, high: y + y.abs() / 512.0 }
        };
        let is_wrong = |e: &Element| !(e.low..=e.high).contains(&of(own, e.x, e.gate));
        (0..900).map(one).filter(is_wrong).collect()
    }

    #[test]
    fn another_limit_is_solved() {
        for own in [Act::SwigluOai(Clamp::OAI), Act::SwigluLimit(Clamp::new(1.0, 1e6))] {
            for limit in [0.0, 0.5, 3.25, 6.3, 11.0] {
                let found = solve(own, &wrong(own, limit)).unwrap();
                assert!((found - f64::from(limit)).abs() <= 0.01 * found, "{own:?}: {limit}: {found}");
            }
            assert_eq!(
                formula_of(own, &wrong(own, 0.0)).unwrap().words,
                format!("the limit is 0, not {}", own.clamp().unwrap().limit())
            );
            assert_eq!(solve(own, &wrong(own, 1e5)), None, "no limit at all");
            assert_eq!(solve(own, &wrong(own, own.clamp().unwrap().limit())), None, "nothing is wrong");
            let off = |e: &Element| Element { low: 1.2 * e.low + 1.0, high: 1.2 * e.high + 1.0, ..*e };
            assert_eq!(solve(own, &wrong(own, 3.0).iter().map(off).collect::<Vec<_>>()), None, "no limit");
        }
        assert!(formula_of(Act::Silu, &wrong(Act::SwigluOai(Clamp::OAI), 3.0)).is_none());
    }
}
