//! Codes and scales of a cast whose groups are of other columns: every so many columns, or runs of them, of a window of several groups, as a reshape with two
//! sides exchanged has them.
//!
//! ```text
//! windows of m·G columns:   column c is of group  (c / w) mod m  of its window      right: c / G
//! group ──► the scale of its codes, which is the one stored
//! ```

use super::casts::{Cast, Named, holds};
use crate::Rounding;
use crate::fault::Class;

/// Groups of a window, at most, and groups whose codes say their scale, at least.
const MOST: usize = 64;
const LEAST: usize = 4;
/// The share of groups that have to be scaled for their own largest magnitude.
const SHARE: f64 = 0.98;
/// A number computed another way, relative.
const NEAR: f64 = 1.0 / (1u64 << 20) as f64;

impl Cast<'_> {
    /// The windows whose columns take turns. Groups of codes that contradict each other are the columns'.
    pub fn interleaved(&self) -> Option<Named> {
        let (cols, (height, width), across) = (self.q.cols(), self.tile, self.grid.1);
        (width > 1 && across > 1 && cols.is_multiple_of(width)).then_some(())?;
        let n = self.q.codes().len();
        let x = |at: usize| f64::from(self.x.data()[at]);
        let windows = (2..=across.min(MOST)).filter(|m| across.is_multiple_of(*m));
        let ways = windows.flat_map(|m| {
            let runs = (0..).map(|p| 1usize << p).take_while(move |w| *w < width);
            runs.filter(move |w| width.is_multiple_of(*w)).map(move |w| (m, w))
        });
        ways.into_iter().find_map(|(m, run)| {
            let group = |at: usize| {
                let (row, c) = (at / cols / height, at % cols);
                row * across + c / (m * width) * m + c / run % m
            };
            // The first rows refuse most of them.
            let first = n.min(height * cols);
            self.ranges(0..first, Rounding::NearestEven, x, group, self.stored.len())?;
            let ranges = self.ranges(0..n, Rounding::NearestEven, x, group, self.stored.len())?;
            let told = (0..ranges.len()).filter(|g| ranges[*g].1.is_finite() && ranges[*g].0 > 0.0).count();
            let all = (0..ranges.len()).all(|g| holds(ranges[g], self.stored[g]));
            (all && told >= LEAST).then_some(())?;
            let mut amax = vec![0.0f64; ranges.len()];
            (0..n).for_each(|at| amax[group(at)] = amax[group(at)].max(x(at).abs()));
            // Of a rule that is not known the ratio of both is one number, or lies in a binade.
            let ratios: Vec<f64> = (0..amax.len()).filter(|g| amax[*g] > 0.0).map(|g| self.stored[g] / amax[g]).collect();
            let mut sorted = ratios.clone();
            sorted.sort_by(f64::total_cmp);
            let middle = *sorted.get(sorted.len() / 2)?;
            let near = |r: &&f64| (**r - middle).abs() <= NEAR * middle || self.is_pow2() && (0.5..=2.0).contains(&(**r / middle));
            let own = ratios.iter().filter(near).count() as f64 >= SHARE * ratios.len() as f64;
            own.then(|| {
                let which = if run == 1 { format!("c mod {m}") } else { format!("(c / {run}) mod {m}") };
                let words = format!(
                    "columns of {m} groups take turns: in each {} columns column c is coded by the scale of group {which} of them, not c / {width}, and that \
                     is the scale of the largest magnitude of such columns",
                    m * width
                );
                (Class::AmaxScope, "out.interleaved", words)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, Overflow, QTensor, Tensor, Zero};

    const ROWS: usize = 10;
    const COLS: usize = 192;

    /// What is said of groups of 32 where an element is of this group, and each is scaled for `by` of its amax.
    fn said(group: &dyn Fn(usize, usize) -> usize, by: &dyn Fn(usize) -> f64) -> String {
        let number = |n: usize| ((n * 7919 + 101) % 1009) as f64 / 1009.0 - 0.4;
        let values: Vec<f32> = (0..ROWS * COLS).map(|n| (number(n) * (1.0 + (n * 31 % 17) as f64)) as f32).collect();
        let of = |at: usize| group(at / COLS, at % COLS);
        let mut amax = [0.0f64; ROWS * 6];
        values.iter().enumerate().for_each(|(at, v)| amax[of(at)] = amax[of(at)].max(f64::from(v.abs())));
        let scale = |g: usize| (amax[g] / 448.0 * by(g)) as f32;
        let code = |at: usize| {
            let y = f64::from(values[at]) / f64::from(scale(of(at)));
            Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let parts = QTensorParts {
            format: Format::E4m3,
            rows: ROWS,
            cols: COLS,
            codes: (0..ROWS * COLS).map(code).collect(),
            granularity: Granularity::Group(32),
            scale_format: Format::F32,
            scale_inv: (0..ROWS * 6).map(scale).collect(),
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, ROWS, COLS, values.clone()).unwrap(), QTensor::new(parts).unwrap());
        Cast::of(&x, &q).interleaved().map(|f| f.2).unwrap_or_default()
    }

    #[test]
    fn columns_that_take_turns_are_told() {
        let words = said(&|i, c| i * 6 + c / 96 * 3 + c % 3, &|_| 1.0);
        assert!(words.contains("in each 96 columns column c is coded by the scale of group c mod 3 of them"), "{words}");
        let words = said(&|i, c| i * 6 + c / 64 * 2 + c / 8 % 2, &|_| 1.0);
        assert!(words.contains("in each 64 columns column c is coded by the scale of group (c / 8) mod 2 of them"), "{words}");
    }

    #[test]
    fn groups_of_their_own_columns_or_of_nobodys_are_not() {
        assert_eq!(said(&|i, c| i * 6 + c / 32, &|_| 1.0), "", "right");
        assert_eq!(said(&|i, c| i * 6 + c * 5 % 7 % 6, &|_| 1.0), "", "an order of nobody's");
        assert_eq!(said(&|i, c| i * 6 + c / 64 * 2 + c % 2, &|g| 1.0 + (g % 5) as f64), "", "scaled for another amax");
    }
}
