//! A dequantization whose vectors of codes are read at an address that counts something else: vectors where it should count elements, or elements where
//! it should count vectors.
//!
//! ```text
//! vector w of v results  ◄──  vector w / d of the codes (d of them are alike), vector w·d, or v codes from element w·s on
//! ```

use super::readings::Held;
use crate::QTensor;
use crate::fault::Class;

/// Codes of a vector, how many vectors one number counts.
const VECTORS: [usize; 5] = [4, 8, 16, 2, 1];
const TIMES: [usize; 5] = [4, 2, 8, 16, 32];
/// Of so many wrong elements the code of one has to be known.
const KNOWN: usize = 6;

/// How the codes are read, in words. `is`: whether an element is this code, at this place of the codes, by the scale of this element.
pub fn explain(
    q: &QTensor,
    is: &dyn Fn(usize, usize, usize) -> bool,
    wrong: &[usize],
) -> Option<(Class, &'static str, String)> {
    let (n, cols) = (q.codes().len(), q.cols());
    let held = Held::of(wrong, n)?;
    // Addresses over the whole tensor, or within each row; scales of the result's place, or of the code's.
    for (per, own) in [(n, true), (cols, true), (n, false), (cols, false)] {
        for v in VECTORS {
            for way in 0..3 {
                for d in TIMES {
                    // One scale for all is both scales; vectors of one element are moved by elements.
                    if (!own && q.scale_inv().len() == 1) || (way == 2 && (v == 1 || d > v || d == v)) {
                        continue;
                    }
                    let source = |at: usize| {
                        let (row, k) = (at - at % per, at % per);
                        let (w, lane) = (k / v, k % v);
                        let k = match way {
                            0 => w / d * v + lane,
                            1 => w * d * v + lane,
                            _ => w * (v / d) + lane,
                        };
                        (k < per).then_some(row + k)
                    };
                    let made = |at: usize| source(at).map(|from| is(at, from, if own { at } else { from }));
                    if !held.made_by(KNOWN, &made) {
                        continue;
                    }
                    let what = if v == 1 { "element w".to_string() } else { format!("vector w of {v} elements") };
                    let from = match way {
                        0 => format!("w / {d} of the codes: each is read {d} times"),
                        1 => format!("{d}·w of the codes, where that is within them"),
                        _ => format!("that begins at code {}·w: its address counts too little for a vector", v / d),
                    };
                    let place = if per == n { "" } else { ", within its row" };
                    let scale = if own { "" } else { ", with the scale there" };
                    let kind = if v == 1 { "element" } else { "vector" };
                    let words = format!("{what} of the result is {kind} {from}{place}{scale}");
                    return Some((Class::Addressing, "a.words", words));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, Zero};

    const ROWS: usize = 12;
    const COLS: usize = 64;

    fn code(at: usize) -> u8 {
        ((at as u32).wrapping_mul(0x9E37_79B9) >> 24) as u8
    }

    /// What is said of a result whose element is the code of another place.
    fn said(from: &dyn Fn(usize) -> usize) -> String {
        let q = QTensor::new(QTensorParts {
            format: Format::Int8,
            rows: ROWS,
            cols: COLS,
            codes: (0..ROWS * COLS).map(code).collect(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![0.5],
            zero: Zero::None,
            level: None,
        });
        let q = q.unwrap();
        let written = |at: usize| q.codes().get(from(at)).copied().unwrap_or(0);
        let wrong: Vec<usize> = (0..ROWS * COLS).filter(|at| written(*at) != code(*at)).collect();
        explain(&q, &|at, from, _| written(at) == q.codes()[from], &wrong).map(|f| f.2).unwrap_or_default()
    }

    #[test]
    fn vectors_that_are_read_at_another_count_are_told() {
        let words = said(&|at| at / 16 * 4 + at % 4);
        assert_eq!(words, "vector w of 4 elements of the result is vector w / 4 of the codes: each is read 4 times");
        let words = said(&|at| at / 8 * 32 + at % 8);
        assert_eq!(words, "vector w of 8 elements of the result is vector 4·w of the codes, where that is within them");
        let words = said(&|at| at - at % COLS + at % COLS / 16 * 8 + at % 8);
        assert!(
            words.starts_with("vector w of 8") && words.ends_with("w / 2 of the codes: each is read 2 times, within its row"),
            "{words}"
        );
        let words = said(&|at| at / 8 * 2 + at % 8);
        assert!(words.contains("vector that begins at code 2·w"), "{words}");
        assert_eq!(said(&|at| (at * 7 + 3) % (ROWS * COLS)), "");
        assert_eq!(said(&|at| at), "");
    }
}
