//! Whether each element of a result is some function of the value it was made from: equal values then give equal results.
//!
//! ```text
//! elements of one x  ──►  the intervals that they may have been in before they were stored  ──►  one number in all: f(x)
//! ```
//!
//! Lines that follow one function are gathered; a second set of lines may follow another. What is not a function of x, because another row's
//! value was read or something was written over it, contradicts itself within a few elements.

use crate::compare::digits;
use crate::fault::solve::segment::lines;
use crate::order::Order as _;
use std::collections::HashMap;

/// Elements of the same value as others of their set, at least: that many times the function could have contradicted itself.
const PAIRS: usize = 64;
/// The share of them that may not contradict; of a line to belong to a set.
const SHARE: f64 = 0.98;
/// Elements that a line has in common with a set, at least.
const COMMON: usize = 8;
/// Values that the function is wrong at, at least.
const WRONG: usize = 8;
/// Sets of lines, at most.
const SETS: usize = 2;
/// Values that are shown.
const SHOWN: [f64; 8] = [-4.0, -2.0, -1.0, -0.25, 0.25, 1.0, 2.0, 4.0];

/// One element: its value, the interval that its result was in, the right result.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub x: f64,
    pub low: f64,
    pub high: f64,
    pub right: f64,
}

impl Point {
    fn is_right(&self) -> bool {
        self.low <= self.right && self.right <= self.high
    }
}

/// What a result in `cell` was before `by` multiplied it; no point where that says nothing.
pub fn quotient(x: f64, (low, high): (f64, f64), by: f64, right: f64) -> Point {
    let x = if by.abs() < 1e-30 || !by.is_finite() { f64::NAN } else { x };
    let ends = [low / by, high / by];
    Point { x, low: ends[0].min(ends[1]), high: ends[0].max(ends[1]), right }
}

/// A function as far as it is known: the interval of f(x), and the right value.
#[derive(Default)]
struct Function {
    at: HashMap<u64, Point>,
    pairs: usize,
    contradictions: usize,
}

impl Function {
    /// How many of these points are known, and how many of those agree.
    fn agrees(&self, points: &[Point]) -> (usize, usize) {
        let known = points.iter().filter_map(|p| Some((p, self.at.get(&p.x.to_bits())?)));
        known.fold((0, 0), |(n, agree), (p, f)| (n + 1, agree + usize::from(p.low <= f.high && f.low <= p.high)))
    }
    fn take(&mut self, points: &[Point]) {
        for p in points {
            let f = self.at.entry(p.x.to_bits()).or_insert(Point { low: f64::NEG_INFINITY, high: f64::INFINITY, ..*p });
            let (low, high) = (f.low.max(p.low), f.high.min(p.high));
            self.pairs += usize::from(f.low > f64::NEG_INFINITY);
            if low <= high {
                (f.low, f.high) = (low, high);
            } else {
                self.contradictions += 1;
            }
        }
    }
    fn is_one(&self) -> bool {
        self.pairs >= PAIRS && self.contradictions as f64 <= (1.0 - SHARE) * self.pairs as f64
    }
    /// Where it is not the right one, in words; `None`: nowhere.
    fn words(&self) -> Option<String> {
        let mut wrong: Vec<&Point> = self.at.values().filter(|p| !p.is_right() && p.x.is_finite()).collect();
        (wrong.len() >= WRONG).then_some(())?;
        wrong.order_by(|a, b| a.x.total_cmp(&b.x));
        let mut shown: Vec<&Point> = Vec::new();
        for x in SHOWN {
            let nearest = wrong.iter().min_by(|a, b| (a.x - x).abs().total_cmp(&(b.x - x).abs()))?;
            if shown.iter().all(|s| s.x != nearest.x) {
                shown.push(nearest);
            }
        }
        // The three that are furthest off for their size.
        let off = |p: &&Point| (0.5 * (p.low + p.high) - p.right).abs() / (p.right.abs() + 0.01 * p.x.abs()).max(1e-30);
        shown.order_by(|a, b| off(b).total_cmp(&off(a)));
        shown.truncate(3);
        shown.order_by(|a, b| a.x.total_cmp(&b.x));
        let one = |p: &&Point| {
            let [x, is, right] = [p.x, 0.5 * (p.low + p.high), p.right].map(|x| digits::apart([x])[0].clone());
            format!("{is} instead of {right} at x = {x}")
        };
        Some(shown.iter().map(one).collect::<Vec<_>>().join(", "))
    }
}

/// The functions that the wrong elements of a result are of their values, one or two of them, in words; `what` says what the function is called.
/// Elements are row-major, `cols` a row.
pub fn explain(points: &[Point], cols: usize, what: &str) -> Option<String> {
    let rows = points.len() / cols.max(1);
    (rows > 0).then_some(())?;
    for by_row in [true, false] {
        let (n, m) = if by_row { (rows, cols) } else { (cols, rows) };
        let line = |l: usize| -> Vec<Point> {
            (0..m).map(|x| points[if by_row { l * cols + x } else { x * cols + l }]).filter(|p| p.x.is_finite()).collect()
        };
        let wrong: Vec<usize> = (0..n).filter(|l| line(*l).iter().any(|p| !p.is_right())).collect();
        let Some(sets) = gathered(&wrong, &line) else { continue };
        let described = sets.iter().map(|(f, own)| Some((f.words()?, own))).collect::<Option<Vec<_>>>();
        let Some(described) = described else { continue };
        let place = |own: &[usize]| {
            let is: Vec<bool> = (0..n).map(|l| own.contains(&l)).collect();
            if own.len() == n {
                String::new()
            } else {
                format!(", in {} {}", if by_row { "rows" } else { "columns" }, lines(&is))
            }
        };
        let words = described.iter().map(|(words, own)| {
            format!("{what} is another function of its value, the same wherever that is the same: {words}{}", place(own))
        });
        return Some(words.collect::<Vec<_>>().join("; and "));
    }
    None
}

/// The lines in sets that are of one function each. `None`: they are of more than two, or of none.
fn gathered(all: &[usize], line: &dyn Fn(usize) -> Vec<Point>) -> Option<Vec<(Function, Vec<usize>)>> {
    let mut sets: Vec<(Function, Vec<usize>)> = Vec::new();
    // A line that has little in common with those before it belongs where they do.
    let mut last = 0;
    for l in all {
        let points = line(*l);
        let known: Vec<(usize, usize)> = sets.iter().map(|(f, _)| f.agrees(&points)).collect();
        let told = |(n, _): &(usize, usize)| *n >= COMMON;
        let own = known.iter().position(|k| told(k) && k.1 as f64 >= SHARE * k.0 as f64);
        last = match own {
            Some(set) => set,
            None if known.get(last).is_some_and(|k| !told(k)) => last,
            None => sets.len(),
        };
        if last == SETS {
            return None;
        }
        if last == sets.len() {
            sets.push((Function::default(), Vec::new()));
        }
        sets[last].0.take(&points);
        sets[last].1.push(*l);
    }
    (!sets.is_empty() && sets.iter().all(|(f, _)| f.is_one())).then_some(sets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::tensor::round_to;

    /// 24 rows of 96 values in bf16, and what `f` makes of them, stored in bf16.
    fn points(f: impl Fn(usize, usize, f64) -> f64) -> Vec<Point> {
        let bf16 = |x: f64| f64::from(round_to(Format::Bf16, x as f32));
        (0..24 * 96)
            .map(|at: usize| {
                let x = bf16((at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40 & 0x1ff) as f64 / 64.0 - 4.0);
                let y = bf16(f(at / 96, at % 96, x));
                let half = y.abs() / 256.0;
                Point { x, low: y - half, high: y + half, right: x.max(0.0) }
            })
            .collect()
    }

    #[test]
    fn a_function_of_the_value_is_told_from_what_is_none() {
        let all = explain(&points(|_, _, x| x.max(0.1 * x)), 96, "the activation").unwrap();
        assert!(all.contains("another function") && all.contains("instead of 0 at x = -") && !all.contains(" in "), "{all}");
        assert_eq!(explain(&points(|_, _, x| x.max(0.0)), 96, "it"), None, "what is right has no name");
        assert_eq!(explain(&points(|i, j, x| x * ((i * 96 + j) % 5) as f64), 96, "it"), None, "no function of x");
    }

    #[test]
    fn lines_of_two_functions_are_told_apart() {
        let words = explain(&points(|i, _, x| if i < 8 { x.abs() } else { x.max(0.2 * x) }), 96, "it").unwrap();
        assert!(words.contains("in rows 0 … 7; and") && words.ends_with("in rows 8 … 23"), "{words}");
        let words = explain(&points(|_, j, x| if j >= 64 { x.abs() } else { x.max(0.0) }), 96, "it").unwrap();
        assert!(words.ends_with("in columns 64 … 95"), "{words}");
    }

    /// One in fifty may contradict the others, no more.
    #[test]
    fn what_contradicts_itself_more_than_here_and_there_is_no_function() {
        let of = |contradictions: usize| {
            let mut f = Function::default();
            let point = |y: f64| Point { x: 1.0, low: y - 0.1, high: y + 0.1, right: 0.0 };
            f.take(&[point(2.0)]);
            f.take(&vec![point(2.0); 100 - contradictions]);
            f.take(&vec![point(3.0); contradictions]);
            assert_eq!((f.pairs, f.contradictions), (100, contradictions));
            f.is_one()
        };
        assert_eq!([of(0), of(2), of(3), of(20), of(50)], [true, true, false, false, false]);
    }

    /// 10 more than 100 is less than 1 more than 1/2.
    #[test]
    fn the_values_that_are_shown_are_furthest_off_for_their_size() {
        let mut f = Function::default();
        for x in SHOWN {
            let (right, off) = if x.abs() <= 1.0 && x != 1.0 { (0.5, 1.0) } else { (100.0, 10.0) };
            f.take(&[Point { x, low: right + off, high: right + off, right }]);
        }
        let words = f.words().unwrap();
        let told: Vec<&str> = words.split(", ").map(|w| w.split_once("x = ").unwrap().1).collect();
        assert_eq!(told, ["-1", "-0.25", "0.25"], "{words}");
    }

    /// Where the right value is 0 a hundredth of x is its size.
    #[test]
    fn values_that_should_be_zero_are_off_by_a_share_of_x() {
        let mut f = Function::default();
        for x in SHOWN {
            let (right, off) = if x < -0.5 { (0.0, 0.005 * x.abs()) } else { (1.0, 1.0) };
            f.take(&[Point { x, low: right + off, high: right + off, right }]);
        }
        let words = f.words().unwrap();
        let told: Vec<&str> = words.split(", ").map(|w| w.split_once("x = ").unwrap().1).collect();
        assert_eq!(told, ["-0.25", "0.25", "1"], "{words}");
    }

    /// Divided by what multiplied it, the ends in order.
    #[test]
    fn a_result_is_divided_by_what_multiplied_it() {
        let of = |by: f64| {
            let p = quotient(3.0, (2.0, 4.0), by, 7.0);
            (p.x, p.low, p.high, p.right)
        };
        assert_eq!(of(2.0), (3.0, 1.0, 2.0, 7.0));
        assert_eq!(of(-2.0), (3.0, -2.0, -1.0, 7.0));
        assert_eq!(of(1e-30).0, 3.0);
        assert!([0.0, 0.9e-30, -0.9e-30, f64::INFINITY, f64::NAN].iter().all(|by| of(*by).0.is_nan()));
    }
}
