//! Scales of some groups of a cast that are powers of two by another rounding than the rule's, where those of all others are right: the last groups of
//! rows, every second one, a tile.

use super::whereabouts::place;
use crate::QTensor;

/// Words, how an exponent becomes whole, and whether it is that of amax over the format's maximum, not of amax alone.
type Rule = (&'static str, fn(f64) -> f64, bool);
const RULES: [Rule; 6] = [
    ("that of amax over the format's maximum, rounded down", f64::floor, true),
    ("that of amax over the format's maximum, rounded up", f64::ceil, true),
    ("that of amax over the format's maximum, rounded to the nearest", f64::round, true),
    ("that of the power of two nearest to amax over the format's maximum", |e| (e - 1.5f64.log2()).floor() + 1.0, true),
    ("that of amax, rounded down, less that of the format's maximum", f64::floor, false),
    ("that of amax, rounded up, less that of the format's maximum", f64::ceil, false),
];

/// The groups whose scales are by one of these rules, in words: `actual` of each is this rule's where it is not `right`.
pub fn of_some(q: &QTensor, amax: &[f64], actual: &[f64], right: &[f64]) -> Option<String> {
    let f = q.format();
    let n = amax.len();
    (q.global_scale_inv().is_none() && actual.len() == n && right.len() == n).then_some(())?;
    let shows: Vec<usize> = (0..n).filter(|g| actual[*g] != right[*g]).collect();
    let max = f.max_finite();
    let is = |g: &usize, (_, whole, over): &Rule| {
        let exponent = if *over { whole((amax[*g] / max).log2()) } else { whole(amax[*g].log2()) - max.log2().floor() };
        exponent.exp2() == actual[*g]
    };
    let grid = q.granularity().grid(q.rows(), q.cols());
    // Several may make what shows: the one that makes it there and not elsewhere.
    let placed = |rule: &'static Rule| {
        let would = |g: &usize| amax[*g] > 0.0 && amax[*g].is_finite() && !is(g, rule);
        let hidden: Vec<usize> = (0..n).filter(would).collect();
        Some((rule, place(grid, ["rows", "groups"], &shows, &hidden)?))
    };
    let (rule, mut place) = RULES.iter().filter(|rule| shows.iter().all(|g| is(g, rule))).find_map(placed)?;
    if !place.is_empty() {
        place += " of the grid";
    }
    let mut is_wrong = vec![false; n];
    shows.iter().for_each(|g| is_wrong[*g] = true);
    let top =
        |at: &usize| is_wrong[q.scale_index(at / q.cols(), at % q.cols())] && f.decode(u32::from(q.codes()[*at])).abs() == max;
    let codes = match (0..q.codes().len()).filter(top).count() {
        0 => "the codes are those of these scales".to_string(),
        n => {
            format!("the codes are those of these scales, {n} of them the largest, {max}: saturated or just there")
        }
    };
    Some(format!("the exponent of {} of {n} scale_inv is {}{place}; {codes}", shows.len(), rule.0))
}
