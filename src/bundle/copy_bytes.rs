//! Bytes of a transposed copy that are exchanged within their 32-bit words, in all of them or in some: packed as 16-bit pairs, or by a shuffle of bytes.
//!
//! ```text
//! byte b of word w of the copy's row  =  the right byte π(b) of that word, in words whose number mod p is the same
//! ```

use crate::QTensor;
use crate::order::nth;

/// Bytes of a word, and words after which the pattern starts again.
const WORD: usize = 4;
const PERIODS: [usize; 4] = [1, 2, 4, 8];
/// Codes of a lane that say whose they are, at least.
const LEAST: usize = 8;
const SHARE: f64 = 0.98;

/// Which bytes are exchanged, in words.
pub fn explain(copy: &[u8], q: &QTensor) -> Option<String> {
    let (rows, cols, codes) = (q.rows(), q.cols(), q.codes());
    // Rows of the copy are columns of the codes, and as long as there are rows.
    (rows.is_multiple_of(WORD) && copy.len() == codes.len()).then_some(())?;
    let right = |c: usize, r: usize| codes[r * cols + c];
    PERIODS.into_iter().filter(|p| rows.is_multiple_of(p * WORD)).find_map(|period| {
        let length = period * WORD;
        let of = |lane: usize| {
            let word = lane / WORD * WORD;
            let source = |from: usize| {
                let all = cols * rows / length;
                let most = ((1.0 - SHARE) * all as f64) as usize;
                let (mut told, mut missed) = (0usize, 0usize);
                for (c, base) in (0..cols).flat_map(|c| (0..rows).step_by(length).map(move |b| (c, b))) {
                    let (own, other) = (right(c, base + lane), right(c, base + from));
                    told += usize::from(own != other);
                    missed += usize::from(copy[c * rows + base + lane] != other);
                    if missed > most {
                        return false;
                    }
                }
                from == lane || told >= LEAST
            };
            std::iter::once(lane).chain((word..word + WORD).filter(|l| *l != lane)).find(|l| source(*l)).map(|l| l - word)
        };
        let all: Vec<usize> = (0..length).map(of).collect::<Option<Vec<_>>>()?;
        let moved: Vec<usize> = (0..period).filter(|w| (0..WORD).any(|b| all[w * WORD + b] != b)).collect();
        let first = *moved.first()?;
        let order = &all[first * WORD..][..WORD];
        moved.iter().all(|w| &all[w * WORD..][..WORD] == order).then_some(())?;
        // All of them by one xor are another order of rows.
        let is_xor = |d: usize| (0..WORD).all(|b| order[b] == b ^ d);
        (moved.len() < period || !(1..WORD).any(is_xor)).then_some(())?;
        let away: Vec<usize> = (0..WORD).filter(|b| order[*b] != *b).collect();
        let what = match &away[..] {
            [a, b] if (order[*a], order[*b]) == (*b, *a) => format!("bytes {a} and {b} are exchanged"),
            _ => format!("bytes 0 … 3 are bytes {}, {}, {} and {} of the right word", order[0], order[1], order[2], order[3]),
        };
        let which = match (moved.len() == period, &moved[..]) {
            (true, _) => "every 32-bit word".to_string(),
            (false, [w]) => format!("every {} 32-bit word, from word {w} on,", nth(period)),
            (false, all) => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                format!("32-bit words {} of every {period}", all.join(", "))
            }
        };
        Some(format!("in {which} of a row of the copy {what}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{QTensorParts, Zero};
    use crate::{Format, Granularity};

    /// What is said of a copy of 32×24 codes whose element (c, r) is that of another row.
    fn said(from: &dyn Fn(usize) -> usize) -> String {
        let (rows, cols) = (32usize, 24usize);
        let q = QTensor::new(QTensorParts {
            format: Format::E4m3,
            rows,
            cols,
            codes: (0..rows * cols).map(|n| ((n * 7919 + n / 5) % 113) as u8).collect(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![0.5],
            zero: Zero::None,
            level: None,
        })
        .unwrap();
        let copy: Vec<u8> = (0..rows * cols).map(|at| q.codes()[from(at % rows) * cols + at / rows]).collect();
        explain(&copy, &q).unwrap_or_default()
    }

    #[test]
    fn exchanged_bytes_of_words_are_told() {
        let middle = |r: usize| if matches!(r % 4, 1 | 2) { r ^ 3 } else { r };
        assert_eq!(said(&middle), "in every 32-bit word of a row of the copy bytes 1 and 2 are exchanged");
        let words = said(&|r| if r / 4 % 2 == 1 { middle(r) } else { r });
        assert_eq!(words, "in every second 32-bit word, from word 1 on, of a row of the copy bytes 1 and 2 are exchanged");
        let words = said(&|r| if r / 4 % 4 != 0 { r ^ 1 } else { r });
        assert_eq!(
            words,
            "in 32-bit words 1, 2, 3 of every 4 of a row of the copy bytes 0 … 3 are bytes 1, 0, 3 and 2 of the right word"
        );
        assert_eq!(said(&|r| r), "", "it is right");
        assert_eq!(said(&|r| r ^ 8), "", "another word");
        assert_eq!(said(&|r| r ^ 3), "", "another order of rows");
    }
}
