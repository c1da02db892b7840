//! Codes of a cast whose rows are all those of one vector, by the scale of each row: another operand is quantized, or one row for all.
//!
//! ```text
//! (code ± ½)·scale_inv of every row  ──►  one number v_j in all rows of column j                       the same for columns
//! ```

use super::casts::{Cast, Named};
use crate::fault::Class;
use crate::fault::solve::segment::lines;

/// Rows that have to agree, at least, and columns of which nearly all do.
const LINES: usize = 8;
const SHARE: f64 = 0.98;
/// Steps of the code that a number is known to, at most: coarser ones agree with anything.
const FINE: f64 = 1.0 / 8.0;
/// What a product in f32 may be off, relative.
const NEAR: f64 = 1.0 / (1u64 << 20) as f64;
/// Lines that are asked before all are.
const FEW: usize = 16;

impl Cast<'_> {
    /// Rows, or columns, that hold the codes of one vector.
    pub fn of_one_vector(&self) -> Option<Named> {
        [true, false].into_iter().find_map(|by_row| self.one_vector(by_row))
    }

    /// The numbers that a code may have been of, its scale taken off.
    fn cell(&self, at: usize, values: &[f64]) -> (f64, f64) {
        let (v, s) = (self.value(at), self.stored[self.group(at)]);
        let n = values.partition_point(|x| *x < v);
        let low = if n == 0 { f64::NEG_INFINITY } else { 0.5 * (values[n - 1] + v) };
        let high = if n + 1 >= values.len() { f64::INFINITY } else { 0.5 * (v + values[n + 1]) };
        let slack = NEAR * (v * s).abs();
        (low * s - slack, high * s + slack)
    }

    fn one_vector(&self, by_row: bool) -> Option<Named> {
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let (count, length) = if by_row { (rows, cols) } else { (cols, rows) };
        (count >= LINES && length >= LINES && self.stored.iter().all(|s| *s > 0.0 && s.is_finite())).then_some(())?;
        let place = |line: usize, n: usize| if by_row { line * cols + n } else { n * cols + line };
        let f = self.q.format();
        let mut values: Vec<f64> = (0..1u32 << f.bits()).map(|c| f.decode(c)).filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        // A line of one code, or two, is no vector: it is not written.
        let mut codes: Vec<u8> = (0..length).map(|n| self.q.codes()[place(0, n)]).collect();
        codes.sort_unstable();
        codes.dedup();
        (codes.len() > 2).then_some(())?;
        let met = |n: usize, step: usize| {
            (0..count).step_by(step).fold((f64::NEG_INFINITY, f64::INFINITY), |(low, high), l| {
                let (from, to) = self.cell(place(l, n), &values);
                (low.max(from), high.min(to))
            })
        };
        let agree = |(low, high): &(f64, f64)| low <= high;
        // A few lines refuse most casts.
        let few = count.div_ceil(FEW);
        let some = (0..length).step_by(length.div_ceil(FEW)).map(|n| met(n, few));
        let hit = some.clone().filter(agree).count() as f64;
        (hit >= SHARE * some.count() as f64).then_some(())?;
        let all: Vec<(f64, f64)> = (0..length).map(|n| met(n, 1)).collect();
        let told = all.iter().filter(|(low, high)| low <= high && high - low <= FINE * low.abs().max(high.abs())).count();
        let agreed = all.iter().filter(|r| agree(r)).count();
        (agreed as f64 >= SHARE * length as f64 && 2 * told > length).then_some(())?;
        // One of the lines itself, for all.
        let of_line = |l: usize| {
            let is = |n: usize| {
                let x = f64::from(self.x.data()[place(l, n)]);
                all[n].0 <= x && x <= all[n].1
            };
            (0..length).filter(|n| is(*n)).count() as f64 >= SHARE * length as f64
        };
        let (line, across) = if by_row { ("row", "column") } else { ("column", "row") };
        if let Some(l) = (0..count).find(|l| of_line(*l)) {
            let words = format!("every {line} holds the codes of {line} {l} of a, by its own scale");
            return Some((Class::Addressing, "out.one_line", words));
        }
        let not: Vec<bool> = all.iter().map(|r| !agree(r)).collect();
        let but = if not.contains(&true) { format!(", but {across}s {}", lines(&not)) } else { String::new() };
        let words = format!(
            "every {line} holds the codes of one and the same vector, a number a {across}, by its own scale{but}: another operand (as the factors that a \
             is multiplied by before) is quantized, not a"
        );
        Some((Class::Addressing, "out.one_vector", words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{QTensorParts, Zero};
    use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor};

    /// What is said of 24 rows of 40 int8 codes of these numbers, by the scale of the values' own amax.
    fn said(of: &dyn Fn(&[f32], usize, usize) -> f32) -> Option<String> {
        let number = |n: usize| ((n * 7919 + 101) % 1009) as f32 / 1009.0 - 0.4;
        let x: Vec<f32> = (0..24 * 40).map(|n| number(n) * (1 + n / 40 % 5) as f32).collect();
        let scale_inv: Vec<f32> = x.chunks(40).map(|r| r.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0).collect();
        let code = |at: usize| {
            let y = of(&x, at / 40, at % 40) / scale_inv[at / 40];
            Format::Int8.encode(f64::from(y), Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let parts = QTensorParts {
            format: Format::Int8,
            rows: 24,
            cols: 40,
            codes: (0..24 * 40).map(code).collect(),
            granularity: Granularity::Row,
            scale_format: Format::F32,
            scale_inv: scale_inv.clone(),
            zero: Zero::None,
            level: None,
        };
        let (x, q) = (Tensor::new(Format::F32, 24, 40, x.clone()).unwrap(), QTensor::new(parts).unwrap());
        Cast::of(&x, &q).of_one_vector().map(|f| f.2)
    }

    #[test]
    fn rows_of_one_vector_are_told() {
        let factor = |j: usize| 0.5 + (j * 13 % 29) as f32 / 40.0;
        let words = said(&|_, _, j| factor(j)).unwrap();
        assert!(words.starts_with("every row holds the codes of one and the same vector, a number a column,"), "{words}");
        let words = said(&|x, _, j| x[3 * 40 + j]).unwrap();
        assert_eq!(words, "every row holds the codes of row 3 of a, by its own scale");
        let words = said(&|_, i, _| factor(i)).unwrap();
        assert!(words.starts_with("every column holds the codes of one and the same vector, a number a row,"), "{words}");
        assert_eq!(said(&|x, i, j| x[i * 40 + j]), None, "what is right has no name");
        assert_eq!(said(&|x, i, j| x[i * 40 + j] * factor(j)), None, "values by the vector");
        assert_eq!(said(&|_, _, _| 0.0), None, "zeros are of anything");
    }
}
