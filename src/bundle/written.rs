//! Where the codes of a cast were written: at another stride between rows or between columns, over each other or with gaps.
//!
//! ```text
//! code of (i, j)  ──►  place i·s + j, or j·s + i       a place with several codes holds one of them, one with none the same as all such
//! ```

use super::encoders::{Cast, Named, SHARE};
use crate::fault::Class;
use crate::{Overflow, Rounding};
use std::collections::HashMap;

/// Places that a stride is tried on before all are.
const FEW: usize = 64;
/// Places that have to hold what a right store would not have put there.
const LEAST: usize = 16;
/// Bits of evidence that tell a stride from chance.
const BITS: f64 = 64.0;

impl Cast<'_> {
    /// The stride that explains every place.
    pub fn written(&self) -> Option<Named> {
        let (f, rows, cols) = (self.q.format(), self.q.rows(), self.q.cols());
        let (codes, n) = (self.q.codes(), rows * cols);
        (rows > 1 && cols > 1).then_some(())?;
        let right: Vec<f64> = (0..n)
            .map(|at| {
                let e = self.element(at);
                f.decode(f.encode(e.y() + e.zero, Rounding::NearestEven, Overflow::Saturate))
            })
            .collect();
        let holds = |place: usize, at: usize| self.value(place) == right[at];
        (0..n).filter(|at| !holds(*at, *at)).nth(LEAST)?;
        let mut share: HashMap<u64, f64> = HashMap::new();
        right.iter().for_each(|v| *share.entry(v.to_bits()).or_default() += 1.0 / n as f64);
        for by_row in [true, false] {
            let (lines, length) = if by_row { (rows, cols) } else { (cols, rows) };
            let own = if by_row { length } else { 0 };
            for stride in (1..=2 * length).filter(|s| *s != own) {
                // The elements that go to a place: those of the lines that reach it.
                let sources = |place: usize| {
                    let last = (place / stride).min(lines - 1);
                    let first = (place + 1).saturating_sub(length).div_ceil(stride);
                    (first..=last).map(move |l| {
                        let x = place - l * stride;
                        if by_row { l * cols + x } else { x * cols + l }
                    })
                };
                let blank = codes.get(gap(lines, length, stride)).copied();
                let is = |p: usize| {
                    let mut any = false;
                    let hit = sources(p).any(|at| {
                        any = true;
                        holds(p, at)
                    });
                    if any { hit } else { Some(codes[p]) == blank }
                };
                let few = (0..n).step_by(n.div_ceil(FEW)).filter(|p| !is(*p)).count();
                if few > 2 || ((0..n).filter(|p| is(*p)).count() as f64) < SHARE * n as f64 {
                    continue;
                }
                // How unlikely it is that a place holds one of its codes by chance.
                let bits = |p: usize| {
                    let mut all: Vec<u64> = sources(p).map(|at| right[at].to_bits()).collect();
                    all.sort_unstable();
                    all.dedup();
                    -all.iter().map(|v| share[v]).sum::<f64>().log2()
                };
                let told: f64 = (0..n).filter(|p| sources(*p).next().is_some() && !holds(*p, *p)).map(bits).sum();
                if told < BITS {
                    continue;
                }
                let (what, rest) = if by_row { ("row", cols) } else { ("column", rows) };
                let over = if stride < length { "over each other" } else { "with gaps" };
                let blank = if blank.is_none() { "" } else { "; the rest is not written" };
                let words = format!("{what}s of codes are written {over}, {stride} elements apart instead of {rest}{blank}");
                return Some((Class::Addressing, "out.stride".into(), words));
            }
        }
        None
    }
}

/// The first place that no line reaches: behind the first one, else behind the last.
fn gap(lines: usize, length: usize, stride: usize) -> usize {
    if stride > length { length } else { (lines - 1) * stride + length }
}

#[cfg(test)]
mod tests {
    use super::{Cast, gap};
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor, Zero};

    #[test]
    fn the_first_place_that_no_line_reaches_is_behind_the_first_or_the_last() {
        for (lines, length, stride) in [(4usize, 6usize, 3usize), (4, 6, 6), (4, 6, 7), (4, 6, 9), (5, 3, 1), (2, 2, 5)] {
            let reached = |place: usize| (0..lines).any(|l| (l * stride..l * stride + length).contains(&place));
            assert_eq!((0..100).find(|p| !reached(*p)), Some(gap(lines, length, stride)), "{lines} {length} {stride}");
        }
    }

    /// 24 rows of 40 codes, the rows `stride` places apart, and what stands at these places instead.
    fn told(by_row: bool, stride: usize, other: &[usize]) -> Option<String> {
        let (rows, cols, f) = (24, 40, Format::E4m3);
        let x: Vec<f32> = (0..rows * cols).map(|at| ((at * 7919 + 31) % 877) as f32 / 2.0 - 219.0).collect();
        let mut codes = vec![0u8; rows * cols];
        let mut put = |place: usize, at: usize| {
            if let Some(code) = codes.get_mut(place) {
                *code = f.encode(f64::from(x[at]), Rounding::NearestEven, Overflow::Saturate) as u8;
            }
        };
        match by_row {
            true => (0..rows * cols).for_each(|at| put(at / cols * stride + at % cols, at)),
            false => (0..rows * cols).for_each(|at| put(at / rows * stride + at % rows, at % rows * cols + at / rows)),
        }
        other.iter().for_each(|at| codes[*at] ^= 0x7f);
        let x = Tensor::new(Format::F32, rows, cols, x).unwrap();
        let q = QTensor::new(QTensorParts {
            format: f,
            rows,
            cols,
            codes,
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        });
        Cast::of(&x, &q.unwrap()).unwrap().written().map(|found| found.2)
    }

    #[test]
    fn strides_of_rows_and_of_columns_are_told() {
        for (by_row, stride, words) in [
            (true, 48, "rows of codes are written with gaps, 48 elements apart instead of 40; the rest is not written"),
            (true, 32, "rows of codes are written over each other, 32 elements apart instead of 40; the rest is not written"),
            (true, 1, "rows of codes are written over each other, 1 elements apart instead of 40; the rest is not written"),
            (true, 80, "rows of codes are written with gaps, 80 elements apart instead of 40; the rest is not written"),
            (false, 30, "columns of codes are written with gaps, 30 elements apart instead of 24; the rest is not written"),
            (
                false,
                20,
                "columns of codes are written over each other, 20 elements apart instead of 24; the rest is not written",
            ),
        ] {
            assert_eq!(told(by_row, stride, &[]).as_deref(), Some(words));
        }
        assert_eq!(told(true, 40, &[]), None, "each at its own place");
        assert_eq!(told(true, 40, &(0..30).map(|at| 31 * at).collect::<Vec<_>>()), None, "30 other codes");
    }

    /// Every fifteenth place is looked at first; in all one in fifty may hold something else.
    #[test]
    fn a_few_other_codes_do_not_hide_a_stride() {
        assert!(told(true, 48, &[0, 15]).is_some());
        assert!(told(true, 48, &[0, 15, 30]).is_none());
        let some = |n: usize| (0..n).map(|i| 15 * i + 1).collect::<Vec<_>>();
        assert_eq!([told(true, 48, &some(19)).is_some(), told(true, 48, &some(20)).is_some()], [true, false]);
    }
}
