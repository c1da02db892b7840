//! The last columns of a result that hold numbers of an earlier call, beside others that another formula makes.
//!
//! ```text
//! columns 0 … c − 1: a formula that kernels use by mistake        columns c …: numbers that have nothing to do with their rows
//! ```

use super::{LEAST, Mask, SHARE};
use crate::bundle::blank;

/// The first formula that makes all columns before the last ones, where those are not written. The first mask is that of the right one.
pub fn beside(masks: &[Mask], words: &[&str], actual: &[f64], cols: usize, sources: &[Vec<f64>]) -> Option<String> {
    let rows = actual.len() / cols.max(1);
    let made = |mask: &Mask, j: usize| (0..rows).filter(|i| mask[i * cols + j]).count();
    (1..masks.len()).find_map(|n| {
        let mask = &masks[n];
        let first = (0..cols).rev().take_while(|j| 2 * made(mask, *j) < rows).last().filter(|j| *j > 0)?;
        let all: usize = (0..first).map(|j| made(mask, j)).sum();
        let wrong: usize = (0..first).map(|j| rows - made(&masks[0], j)).sum();
        (all as f64 >= SHARE * (rows * first) as f64 && wrong >= LEAST).then_some(())?;
        let right: Mask = (0..actual.len()).map(|at| at % cols < first || mask[at]).collect();
        let old = blank::old(actual, &right, cols, sources)?;
        let place = if first == 1 { "column 0".into() } else { format!("columns 0 … {}", first - 1) };
        Some(format!("{}, in {place}; and {old}", words[n]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_an_earlier_call_are_told_beside_a_formula() {
        let (rows, cols) = (16usize, 48usize);
        let number = |at: usize, by: usize| ((at * by + 13) % 1009) as f64 - 504.5;
        let said = |old: &dyn Fn(usize) -> f64, formula: &dyn Fn(usize) -> f64| {
            let right: Vec<f64> = (0..rows * cols).map(|at| number(at, 37)).collect();
            let actual: Vec<f64> = (0..rows * cols).map(|at| if at % cols < 32 { formula(at) } else { old(at) }).collect();
            let mask = |of: &dyn Fn(usize) -> f64| (0..rows * cols).map(|at| actual[at] == of(at)).collect::<Mask>();
            let masks = [mask(&|at| right[at]), mask(&|at| 2.0 * right[at])];
            beside(&masks, &["", "it is doubled"], &actual, cols, std::slice::from_ref(&right)).unwrap_or_default()
        };
        let doubled = |at: usize| 2.0 * number(at, 37);
        let words = said(&|at| number(at, 7919), &doubled);
        assert!(
            words.starts_with("it is doubled, in columns 0 … 31; and columns 32 … 47 hold numbers that have nothing"),
            "{words}"
        );
        assert_eq!(said(&|at| 0.5 * number(at, 37), &doubled), "", "they follow the right ones");
        assert_eq!(said(&|at| number(at, 7919), &|at| number(at, 37)), "", "no formula is wrong there");
        assert_eq!(said(&|at| number(at, 7919), &|at| 3.0 * number(at, 37)), "", "no formula makes them");
    }
}
