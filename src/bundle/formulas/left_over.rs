//! What a formula leaves of the wrong elements where it makes nearly all: columns of another formula, of one number, of a limit.
//!
//! ```text
//! formula f makes all but some columns      each of these by a formula of its own, in every row, or by one number, or by nothing that is known
//! ```

use super::{ELSE, Mask};
use crate::fault::solve::segment::lines;

/// Wrong elements of a column that tell its formula, at least.
const LEAST: usize = 8;
/// How words for columns of a formula of their own begin.
const IN_COLUMN: &str = "; and in column ";
/// Formulas of columns that are told.
const MOST: usize = 3;

/// What formula `n` leaves, in words that go on behind its own.
pub fn told((masks, words): (&[Mask], &[&str]), n: usize, wrong: &[usize], cols: usize, actual: &[f64]) -> String {
    let mut left: Vec<usize> = wrong.iter().copied().filter(|at| !masks[n][*at]).collect();
    let mut columns: Vec<usize> = left.iter().map(|at| at % cols).collect();
    columns.sort_unstable();
    columns.dedup();
    // One in 16 columns at most: of more the formula is none of the whole.
    let rows = masks[n].len() / cols;
    let of = |c: usize| {
        let enough = left.iter().filter(|at| *at % cols == c).count() >= LEAST;
        let makes = |m: &usize| *m != n && (0..rows).all(|i| masks[*m][i * cols + c]);
        (1..masks.len()).find(|m| enough && makes(m))
    };
    let by: Vec<(usize, usize)> = if 16 * columns.len() > cols.max(16) {
        Vec::new()
    } else {
        columns.iter().filter_map(|c| Some((*c, of(*c)?))).collect()
    };
    let mut seen: Vec<usize> = by.iter().map(|(_, m)| *m).collect();
    seen.dedup();
    seen.truncate(MOST);
    let mut all = String::new();
    for m in seen {
        let mut is_col = vec![false; cols];
        by.iter().filter(|(_, of)| *of == m).for_each(|(c, _)| is_col[*c] = true);
        left.retain(|at| !is_col[at % cols]);
        all += &format!("{IN_COLUMN}{}: {}", lines(&is_col), words[m]);
    }
    all + &of_left(&left, wrong.len(), cols, actual)
}

/// Whether words end with columns that are left.
pub fn is_of_columns(words: &str) -> bool {
    words.ends_with(ELSE) || words.contains(IN_COLUMN)
}

/// The few columns that hold what a formula does not make, where it makes all others.
#[cfg(test)]
pub fn others(made: &Mask, wrong: &[usize], cols: usize, actual: &[f64]) -> String {
    let left: Vec<usize> = wrong.iter().copied().filter(|at| !made[*at]).collect();
    of_left(&left, wrong.len(), cols, actual)
}

/// The same of elements that are left of so many wrong ones.
fn of_left(left: &[usize], wrong: usize, cols: usize, actual: &[f64]) -> String {
    let mut is_col = vec![false; cols];
    left.iter().for_each(|at| is_col[at % cols] = true);
    let n = is_col.iter().filter(|x| **x).count();
    if left.len() < 4 {
        return String::new();
    }
    let first = actual[left[0]];
    if 64 * n > cols {
        let limit = first.abs();
        let all = left.iter().all(|at| actual[*at].abs() == limit);
        return match all && actual.iter().all(|y| !y.is_finite() || y.abs() <= limit) {
            true => format!("; and {} elements hold ±{limit}, which none exceeds: a limit of the result", left.len()),
            false => format!("; this is not all: {} of {} wrong elements are others", left.len(), wrong),
        };
    }
    if left.iter().all(|at| actual[*at] == first) {
        return format!("; and column {} holds {first} in all of it: it is not written", lines(&is_col));
    }
    format!("; and in {} rows column {} {ELSE}", left.len().div_ceil(n), lines(&is_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 160 columns of 16 rows all but two are made by the first formula, one of them by the second.
    #[test]
    fn a_column_of_a_formula_of_its_own_is_told() {
        let mask = |is: &dyn Fn(usize) -> bool| -> Mask { (0..16 * 160).map(|at| is(at % 160)).collect() };
        let wrong: Vec<usize> = (0..16 * 160).collect();
        let actual: Vec<f64> = wrong.iter().map(|at| *at as f64).collect();
        let words = ["", "one", "two"];
        let said = |first: &dyn Fn(usize) -> bool, second: &dyn Fn(usize) -> bool| {
            told((&[mask(&|_| false), mask(first), mask(second)], &words), 1, &wrong, 160, &actual)
        };
        assert_eq!(said(&|c| c != 159, &|c| c == 159), "; and in column 159: two");
        assert_eq!(
            said(&|c| c > 0 && c < 159, &|c| c == 159),
            "; and in column 159: two; and in 16 rows column 0 holds something else"
        );
        assert_eq!(said(&|_| true, &|c| c == 159), "", "nothing is left");
        // Part of a column is none.
        let mut part = mask(&|c| c == 159);
        part[159] = false;
        let masks = [mask(&|_| false), mask(&|c| c != 159), part];
        assert_eq!(told((&masks, &words), 1, &wrong, 160, &actual), "; and in 16 rows column 159 holds something else");
    }
}
