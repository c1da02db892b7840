//! Columns of a norm whose normalized values are right, by another formula than the op's too, and whose gamma or beta is that of other columns or none.
//!
//! ```text
//! y = n·γ[c'] + β[c'']      n: the formula's row with γ = 1, β = 0      c', c'' = c + d, or γ and β of all columns 1, 0, γ − 1 …
//! ```

use crate::fault::solve::segment::lines;

/// What the columns of a norm are held against.
pub struct Columns<'c> {
    /// Effective gains, `1 + gamma` where they are centered, and what is stored.
    pub gamma: &'c [f64],
    pub stored: &'c [f64],
    pub beta: &'c [f64],
    /// Normalized rows, one a row that is looked at.
    pub normal: &'c [Vec<f64>],
    /// Whether element (row that is looked at, column) may be this number.
    pub is: &'c (dyn Fn(usize, usize, f64) -> bool + Sync),
}

impl Columns<'_> {
    fn all(&self, columns: &[usize], gain: &dyn Fn(usize) -> Option<(f64, f64)>) -> bool {
        columns.iter().all(|c| {
            gain(*c).is_some_and(|(g, b)| (0..self.normal.len()).all(|n| (self.is)(n, *c, self.normal[n][*c] * g + b)))
        })
    }

    /// What these columns take for their gamma and beta, as the end of a sentence.
    pub fn explain(&self, columns: &[usize]) -> Option<String> {
        let (first, last) = (*columns.first()?, *columns.last()?);
        let n = self.gamma.len();
        let own = |c: usize| (self.gamma[c], self.beta[c]);
        let mut is_col = vec![false; n];
        columns.iter().for_each(|c| is_col[*c] = true);
        let place = format!("; and column {} ", lines(&is_col));
        type Plain<'p> = (&'p str, &'p dyn Fn(usize) -> (f64, f64));
        let plain: [Plain; 5] = [
            ("has no beta", &|c| (own(c).0, 0.0)),
            ("has no gamma", &|c| (1.0, own(c).1)),
            ("has neither gamma nor beta", &|_| (1.0, 0.0)),
            ("has gamma instead of 1 + gamma", &|c| (self.stored[c], own(c).1)),
            ("has 1 + gamma instead of gamma", &|c| (1.0 + self.stored[c], own(c).1)),
        ];
        if let Some((words, _)) = plain.iter().find(|(_, of)| self.all(columns, &|c| Some(of(c)))) {
            return Some(format!("{place}{words}"));
        }
        // The nearest columns first, then those that start a row anew.
        let mut shifts: Vec<isize> = (1..n as isize).flat_map(|d| [-d, d]).collect();
        shifts.insert(0, -(first as isize));
        shifts.into_iter().filter(|d| *d != 0).find_map(|d| {
            let at = |c: usize| c.checked_add_signed(d).filter(|c| *c < n);
            let from = at(first).zip(at(last)).map(|(a, b)| if a == b { format!("{a}") } else { format!("{a} … {b}") })?;
            let takes = |words: &str| Some(format!("{place}takes {words} of column {from}"));
            if self.all(columns, &|c| Some((own(c).0, own(at(c)?).1))) {
                takes("beta")
            } else if self.all(columns, &|c| Some((own(at(c)?).0, own(c).1))) {
                takes("gamma")
            } else if self.all(columns, &|c| Some(own(at(c)?))) {
                takes("gamma and beta")
            } else {
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_take_another_columns_gain_are_told_by_their_shift() {
        let number = |n: usize| (n * 37 % 101) as f64 / 50.0 - 0.9;
        let gamma: Vec<f64> = (0..20).map(|c| 1.0 + number(c)).collect();
        let stored: Vec<f64> = (0..20).map(number).collect();
        let beta: Vec<f64> = (0..20).map(|c| number(c + 50)).collect();
        let normal: Vec<Vec<f64>> = (0..6).map(|r| (0..20).map(|c| number(r * 20 + c + 7)).collect()).collect();
        let found = |of: &dyn Fn(usize) -> (f64, f64)| {
            let gain = |c: usize| if c < 16 { (gamma[c], beta[c]) } else { of(c) };
            let y: Vec<Vec<f64>> = normal.iter().map(|n| (0..20).map(|c| n[c] * gain(c).0 + gain(c).1).collect()).collect();
            let is = move |r: usize, c: usize, v: f64| (y[r][c] - v).abs() < 1e-9;
            Columns { gamma: &gamma, stored: &stored, beta: &beta, normal: &normal, is: &is }.explain(&[16, 17, 18, 19])
        };
        let words = |of: &dyn Fn(usize) -> (f64, f64)| found(of).unwrap();
        assert_eq!(words(&|c| (gamma[c], beta[c - 16])), "; and column 16 … 19 takes beta of column 0 … 3");
        assert_eq!(words(&|c| (gamma[c - 8], beta[c])), "; and column 16 … 19 takes gamma of column 8 … 11");
        assert_eq!(words(&|c| (gamma[c - 1], beta[c - 1])), "; and column 16 … 19 takes gamma and beta of column 15 … 18");
        assert!(words(&|c| (stored[c], beta[c])).contains("gamma instead of 1 + gamma"));
        assert!(words(&|c| (gamma[c], 0.0)).ends_with("no beta"));
        assert_eq!(found(&|c| (gamma[c] * 1.01, beta[c])), None);
    }
}
