//! Columns and rows of an element-wise result that hold one number throughout: zeros, or what the buffer held before.
//!
//! The rest is judged by itself, so that a second mistake gets its own name.

use crate::fault::solve::segment::lines;
use crate::order::nth;
use std::collections::HashMap;

/// Elements that hold the number, at least.
const LEAST: usize = 8;
/// The share of the elements of its rows and columns that hold it.
const SHARE: f64 = 0.98;

/// How often chance may fill a line with a number that others hold here and there.
const CHANCE: f64 = 1e-6;

/// How words begin where nothing else is wrong.
pub const ONLY: &str = "all else is right: ";

/// What is not written.
pub struct Blank {
    pub is: Vec<bool>,
    pub words: String,
}

/// The number that most wrong elements hold, where it fills columns or rows; `right` says which elements are right.
pub fn find(actual: &[f64], right: &[bool], cols: usize) -> Option<Blank> {
    let rows = right.len() / cols.max(1);
    let mut counts: HashMap<u64, usize> = HashMap::new();
    let key = |x: f64| if x == 0.0 { 0 } else { x.to_bits() };
    // What is NaN or Inf follows from what was computed.
    let numbers = || (0..right.len()).filter(|at| !right[*at] && actual[*at].is_finite());
    numbers().for_each(|at| *counts.entry(key(actual[at])).or_default() += 1);
    let (bits, n) = counts.into_iter().max_by_key(|(bits, n)| (*n, *bits))?;
    (n >= LEAST).then_some(())?;
    let holds = |at: usize| key(actual[at]) == bits;
    for by_column in [true, false] {
        let (count, length) = if by_column { (cols, rows) } else { (rows, cols) };
        let at = |line: usize, x: usize| if by_column { x * cols + line } else { line * cols + x };
        let full = |l: usize| (0..length).filter(|x| holds(at(l, *x))).count() as f64 >= SHARE * length as f64;
        let wrong = |l: usize| (0..length).filter(|x| !right[at(l, *x)]).count();
        // A line that holds it everywhere, and is wrong at most places.
        let mut is: Vec<bool> = (0..count).map(|l| full(l) && length > 1 && wrong(l) * 2 > length).collect();
        // Most of it is there, or it is so rare elsewhere that no line is full of it by chance: zeros are common behind a relu.
        let elsewhere = (0..count).filter(|l| !full(*l)).flat_map(|l| (0..length).map(move |x| at(l, x)));
        let (all, held) = elsewhere.fold((0, 0), |n, p| (n.0 + 1, n.1 + usize::from(holds(p))));
        let rare = is.contains(&true) && count as f64 * (held as f64 / f64::from(all)).powi(length as i32) < CHANCE;
        // Then a line that is full of it is not written although much of it is right so.
        if rare {
            is = (0..count).map(|l| is[l] || full(l) && wrong(l) > 0).collect();
        }
        let inside = |p: usize| is[if by_column { p % cols } else { p / cols }];
        let hit = numbers().filter(|p| holds(*p) && inside(*p)).count();
        if is.iter().all(|x| *x) || (hit as f64) < SHARE * n as f64 && !(rare && hit >= LEAST) {
            continue;
        }
        let value = f64::from_bits(bits);
        let what = if by_column { "columns" } else { "rows" };
        let words = format!("{what} {} hold {value} in all of it: they are not written", but(&is));
        return Some(Blank { is: (0..right.len()).map(inside).collect(), words });
    }
    None
}

/// Standard errors of a correlation of none.
const SIGMAS: f64 = 4.0;

/// The last columns, all wrong beside right ones, whose numbers go neither with the right ones nor with anything they are made of (`sources`):
/// they are not written, and hold what the buffer did.
pub fn old(actual: &[f64], right: &[bool], cols: usize, sources: &[Vec<f64>]) -> Option<String> {
    let n = right.len();
    let share = |j: usize| (0..n / cols).filter(|i| !right[i * cols + j]).count() as f64 / (n / cols) as f64;
    let first = (0..cols).find(|j| share(*j) > 0.0)?;
    let places: Vec<usize> = (0..n).filter(|at| at % cols >= first).collect();
    let wrong = places.iter().filter(|at| !right[**at]).count();
    (first > 0 && places.len() >= 64 && wrong as f64 >= 0.95 * places.len() as f64).then_some(())?;
    let goes = |source: &[f64]| {
        [|x: f64| x, f64::abs].iter().any(|f| {
            let pairs: Vec<(f64, f64)> = places
                .iter()
                .map(|at| (f(actual[*at]), f(source[*at])))
                .filter(|p| p.0.is_finite() && p.1.is_finite())
                .collect();
            let count = pairs.len() as f64;
            let (x, y) = (pairs.iter().map(|p| p.0).sum::<f64>() / count, pairs.iter().map(|p| p.1).sum::<f64>() / count);
            let sum = |f: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|p| f(p.0 - x, p.1 - y)).sum::<f64>();
            let r2 = sum(&|a, b| a * b).powi(2) / (sum(&|a, _| a * a) * sum(&|_, b| b * b));
            !(r2 * count < SIGMAS * SIGMAS)
        })
    };
    (!sources.iter().any(|s| goes(s))).then(|| {
        format!("columns {first} … {} hold numbers that have nothing to do with their rows: they are not written", cols - 1)
    })
}

/// Lines in words; those of a run that lacks every so manieth, as that.
fn but(is: &[bool]) -> String {
    let (Some(first), Some(last)) = (is.iter().position(|x| *x), is.iter().rposition(|x| *x)) else { return "none".into() };
    let not: Vec<usize> = (first..last).filter(|l| !is[*l]).collect();
    let step = not.windows(2).map(|w| w[1] - w[0]).next().unwrap_or(0);
    let every = not.len() > 2 && not.windows(2).all(|w| w[1] - w[0] == step) && step > 2;
    let words = || format!("{first} … {last} but every {}, {}, … {},", nth(step), not[0], not[not.len() - 1]);
    if every { words() } else { lines(is) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_one_number_are_told() {
        let (rows, cols) = (6, 64);
        let hit = |j: usize| (32..64).contains(&j) && !j.is_multiple_of(8);
        let right = |at: usize| (at * 37 % 101) as f64 - 50.5;
        let actual: Vec<f64> = (0..rows * cols).map(|at| if hit(at % cols) { -7.0 } else { right(at) }).collect();
        let is_right: Vec<bool> = (0..rows * cols).map(|at| actual[at] == right(at)).collect();
        let found = find(&actual, &is_right, cols).unwrap();
        assert!(found.words.starts_with("columns 33 … 63 but every 8th, 40, … 56, hold -7"), "{}", found.words);
        assert!((0..rows * cols).all(|at| found.is[at] == hit(at % cols)));
        // Two that are left out are no pattern.
        let twice: Vec<bool> = (0..cols).map(|j| (32..56).contains(&j) && hit(j)).collect();
        assert_eq!(but(&twice), lines(&twice));
        let other: Vec<bool> = (0..cols).map(|j| (32..56).contains(&j) && j.is_multiple_of(2)).collect();
        assert_eq!(but(&other), lines(&other), "every second one is not what others lack");
        // Numbers of their own, and numbers that follow the right ones.
        let other = |at: usize| ((at * 7919 + 13) % 1009) as f64 - 504.5;
        let tail = |at: usize| at % cols >= 40;
        let is_right: Vec<bool> = (0..rows * cols).map(|at| !tail(at)).collect();
        let sources = [(0..rows * cols).map(right).collect::<Vec<f64>>()];
        let written: Vec<f64> = (0..rows * cols).map(|at| if tail(at) { other(at) } else { right(at) }).collect();
        assert!(old(&written, &is_right, cols, &sources).unwrap().starts_with("columns 40 … 63 hold numbers"));
        // The first of them is right in the first row.
        let but: Vec<bool> = (0..rows * cols).map(|at| !tail(at) || at == 40).collect();
        assert!(old(&written, &but, cols, &sources).unwrap().starts_with("columns 40 … 63 hold numbers"));
        let half: Vec<f64> = (0..rows * cols).map(|at| if tail(at) { 0.5 * right(at) } else { right(at) }).collect();
        assert_eq!(old(&half, &is_right, cols, &sources), None);
        // Sources far from 0 are followed too.
        let far = [(0..rows * cols).map(|at| right(at) + 1e4).collect::<Vec<f64>>()];
        assert_eq!(old(&half, &is_right, cols, &far), None);
        // One column of it, and as much of it in other places that no line covers.
        let one = |at: usize| at % cols == 40 || at.is_multiple_of(11);
        let some: Vec<f64> = (0..rows * cols).map(|at| if one(at) { -7.0 } else { right(at) }).collect();
        let is_right: Vec<bool> = (0..rows * cols).map(|at| !one(at)).collect();
        assert!(find(&some, &is_right, cols).is_none(), "most of it is elsewhere");
        // Two rows of zeros beside zeros in half of all others, as a relu makes them.
        let relu = |at: usize| if at / cols >= 4 { 0.0 } else { (((at * 37 + 11) % 101) as f64 - 50.5).max(0.0) };
        let zeros: Vec<f64> = (0..rows * cols).map(relu).collect();
        let told = find(&zeros, &vec![false; rows * cols], cols).unwrap();
        assert!(told.words.starts_with("rows 4 … 5 hold 0 in all of it"), "{}", told.words);
        // The last is right at most places.
        let right_at = |at: usize| at / cols == 5 && !at.is_multiple_of(8);
        let told = find(&zeros, &(0..rows * cols).map(right_at).collect::<Vec<_>>(), cols).unwrap();
        assert!(told.words.starts_with("rows 4 … 5 hold 0 in all of it"), "{}", told.words);
        let wrong: Vec<f64> = (0..rows * cols).map(|at| right(at) * 2.0).collect();
        assert!(find(&wrong, &vec![false; rows * cols], cols).is_none(), "no line holds one number");
    }

    /// A column that is full of a number and right in half of its places may be as it should be.
    #[test]
    fn a_column_that_is_wrong_in_half_of_its_places_is_written() {
        let (rows, cols) = (20, 48);
        let right = |at: usize| (at * 37 % 101) as f64 - 50.5;
        let actual: Vec<f64> = (0..rows * cols).map(|at| if at % cols == 5 { -7.0 } else { right(at) }).collect();
        let told = |wrong: usize| {
            let is_right: Vec<bool> = (0..rows * cols).map(|at| at % cols != 5 || at / cols >= wrong).collect();
            find(&actual, &is_right, cols).map(|b| b.words)
        };
        assert_eq!(told(10), None);
        assert!(told(11).unwrap().starts_with("columns 5 hold -7"));
    }

    /// Beside a column that is not written, another one full of the same number is right throughout.
    #[test]
    fn a_column_that_is_right_everywhere_is_written() {
        let (rows, cols) = (20, 48);
        let full = |at: usize| matches!(at % cols, 5 | 9);
        let actual: Vec<f64> = (0..rows * cols).map(|at| if full(at) { -7.0 } else { (at * 37 % 101) as f64 - 50.5 }).collect();
        let is_right: Vec<bool> = (0..rows * cols).map(|at| at % cols != 5).collect();
        let found = find(&actual, &is_right, cols).unwrap();
        assert!(found.words.starts_with("columns 5 hold -7"), "{}", found.words);
        assert!((0..rows * cols).all(|at| found.is[at] == (at % cols == 5)));
    }
}
