//! Which elements and lines of a result are wrong, for what is solved from a few of them.

use super::system::System;

impl System<'_> {
    /// The first wrong elements that are numbers, at most so many. What this bound lets the right value be tells nothing: any theory has it.
    pub fn wrong_probes(&self, most: usize) -> Vec<(usize, usize)> {
        let wrong = |(i, j): &&(usize, usize)| {
            let at = i * self.cols + j;
            self.is_wrong[at] && self.actual[at].is_finite() && !self.is_right(at, self.actual[at])
        };
        self.probes.iter().filter(wrong).take(most).copied().collect()
    }

    /// Which lines of the result, rows or columns, have a wrong element.
    pub fn wrong_lines(&self, rows: bool) -> Vec<bool> {
        let mut wrong = vec![false; if rows { self.rows } else { self.cols }];
        let line = |at: usize| if rows { at / self.cols } else { at % self.cols };
        (0..self.is_wrong.len()).filter(|at| self.is_wrong[*at]).for_each(|at| wrong[line(at)] = true);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::System;
    use crate::fault::solve::tests::{M, N, codes, of_system, wide};

    const K: usize = 64;

    #[test]
    fn what_a_wide_bound_lets_be_right_decides_nothing() {
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 31));
        // Columns j mod 4 = 1 are wrong, one of them is no number.
        let wrong = |i: usize, j: usize, right: &[f64]| match (i, j) {
            (0, 1) => f64::NAN,
            (_, j) if j % 4 == 1 => 1.5 * right[i * N + j],
            _ => right[i * N + j],
        };
        let (tight, lines, wider) = of_system(&a, &b, Format::F32, wrong, |s| {
            let all = 1e9;
            let wider = System { part_of_bound: all * s.part_of_bound, relative: all * s.relative, ..s.clone() };
            (s.wrong_probes(24), [true, false].map(|rows| s.wrong_lines(rows)), wider.wrong_probes(24))
        });
        assert_eq!(tight.len(), 24);
        assert!(tight.iter().all(|(i, j)| j % 4 == 1 && (*i, *j) != (0, 1)), "{tight:?}");
        assert!(lines[0].iter().all(|wrong| *wrong));
        assert!(lines[1].iter().enumerate().all(|(j, wrong)| *wrong == (j % 4 == 1)));
        assert!(wider.is_empty(), "{wider:?}");
    }
}
