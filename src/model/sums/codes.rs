//! What is read of many short rows of codes: every magnitude of a format is known beforehand, so that a row is counted and nothing more.

use super::{BINS, Line, Lines, exponent};
use crate::Format;

/// Magnitudes of a format of 8 bits, at most, and zero before them: e8m0 has no signs.
const MOST: usize = 256;

/// The magnitudes of a format of 8 bits and fewer that are neither zero nor special, ascending.
pub(crate) struct Magnitudes {
    format: Format,
    /// Of each code its number; NaN for codes that there are none of.
    pub values: [f32; 256],
    /// Of each code the place of its magnitude in `all`, from 1 on; 0 for what does not count.
    places: [u8; 256],
    all: Vec<f32>,
    /// Of each magnitude, and the exponent of its lowest bit that is set.
    exponents: Vec<i32>,
    lowest: Vec<i32>,
}

impl Magnitudes {
    pub fn of(format: Format) -> Self {
        let value = |c: usize| if c >> format.bits() == 0 { format.decode(c as u32) as f32 } else { f32::NAN };
        let values: [f32; 256] = std::array::from_fn(value);
        let mut all: Vec<f32> = values.iter().map(|x| x.abs()).filter(|x| *x > 0.0 && x.is_finite()).collect();
        all.sort_by(f32::total_cmp);
        all.dedup();
        let place = |c: usize| all.iter().position(|x| *x == values[c].abs()).map_or(0, |at| at as u8 + 1);
        let places = std::array::from_fn(place);
        let exponents = all.iter().map(|x| exponent(f64::from(*x))).collect();
        let lowest = all.iter().map(|x| Line::extremes(format, std::iter::once(*x)).lowest).collect();
        Self { format, values, places, all, exponents, lowest }
    }

    /// [`Lines::of`] of rows of codes.
    pub fn lines(&self, rows: &[&[u8]]) -> Lines {
        Lines(rows.iter().map(|row| self.line(row)).collect())
    }

    fn line(&self, codes: &[u8]) -> Line {
        let mut counts = [0u32; MOST];
        codes.iter().for_each(|c| counts[usize::from(self.places[usize::from(*c)])] += 1);
        let counts = &counts[1..=self.all.len()];
        let Some(last) = counts.iter().rposition(|n| *n > 0) else { return Line::extremes(self.format, std::iter::empty()) };
        let mut line = Line::extremes(self.format, std::iter::once(self.all[last]));
        let (mut bins, mut squares) = ([0u32; BINS], 0u64);
        for ((n, e), low) in counts[..=last].iter().zip(&self.exponents).zip(&self.lowest) {
            bins[((line.largest - e) as usize).min(BINS - 1)] += n;
            squares += u64::from(*n).pow(2);
            line.lowest = if *n > 0 { line.lowest.min(*low) } else { line.lowest };
        }
        line.count = counts.iter().sum();
        line.spread(&bins);
        line.repeats = squares as f64 / f64::from(line.count).powi(2).max(1.0);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_codes_are_read_as_their_numbers_are() {
        for s in crate::format::FORMATS.iter().filter(|s| s.bits <= 8) {
            let magnitudes = Magnitudes::of(s.format);
            let most = 1u32 << s.bits;
            // Nothing, one code, few, all of them, and one that repeats.
            let rows: Vec<Vec<u8>> = [0u32, 1, 7, 128, 1000]
                .into_iter()
                .flat_map(|n| [1u32, 37, most / 2 + 1, most].map(|step| (0..n).map(|i| (i * step % most) as u8).collect()))
                .collect();
            for row in &rows {
                let numbers: Vec<f32> = row.iter().map(|c| magnitudes.values[usize::from(*c)]).collect();
                let slow = Lines::of(s.format, 1, row.len(), |_, to| to.copy_from_slice(&numbers));
                let fast = magnitudes.lines(&[row]);
                assert_eq!(format!("{fast:?}"), format!("{slow:?}"), "{} {row:?}", s.format);
            }
        }
    }
}
