//! Codes of a cast whose magnitudes are right and whose signs are those of other values of their word: the sign bit of a packed word stands for one of
//! its lanes, and is taken for others too.
//!
//! ```text
//! |code of lane l| = |x of lane l| rounded        sign of lane l = sign of x of lane m(l)
//! ```

use super::casts::{Cast, NEAR, Named};
use crate::fault::Class;

/// Values that share a word.
const WORDS: [usize; 5] = [2, 4, 8, 16, 32];
/// Wrong signs of all, signs of a lane that say something, at least; those that are asked of magnitudes first.
const LEAST: usize = 16;
const TOLD: usize = 8;
const FEW: usize = 64;
/// The share of magnitudes that have to be right.
const SHARE: f64 = 0.98;

impl Cast<'_> {
    /// Whose sign each lane of a word has, in words.
    pub fn signs(&self) -> Option<Named> {
        let (n, cols) = (self.q.codes().len(), self.q.cols());
        let x = |at: usize| f64::from(self.x.data()[at]);
        let wrong: Vec<usize> = (0..n).filter(|at| self.value(*at) * x(*at) < 0.0).collect();
        (wrong.len() >= LEAST).then_some(())?;
        let made = |at: usize| {
            let y = (x(at) / self.stored[self.group(at)]).abs();
            [1.0, 1.0 - NEAR, 1.0 + NEAR].iter().any(|by| self.nearest(y * by) == self.value(at).abs())
        };
        let share = |all: &mut dyn Iterator<Item = usize>| {
            let (count, right) = all.fold((0usize, 0usize), |(n, is), at| (n + 1, is + usize::from(made(at))));
            right as f64 >= SHARE * count as f64
        };
        let few = wrong.len().div_ceil(FEW);
        (share(&mut wrong.iter().copied().step_by(few)) && share(&mut (0..n))).then_some(())?;
        WORDS.into_iter().filter(|w| *w <= cols).find_map(|word| {
            let of: Vec<usize> = (0..word).map(|lane| self.sign_of(lane, word)).collect::<Option<Vec<_>>>()?;
            let moved: Vec<usize> = (0..word).filter(|l| of[*l] != *l).collect();
            let one = moved.iter().all(|l| of[*l] == of[moved[0]]);
            let lanes = match (one, &moved[..]) {
                (true, [lane]) => format!("element {lane} has that of element {}", of[*lane]),
                (true, all) if all.len() + 1 == word => format!("all have that of element {}", of[all[0]]),
                _ => moved.iter().map(|l| format!("{l} has that of {}", of[*l])).collect::<Vec<_>>().join(", "),
            };
            let words = format!(
                "signs of codes are those of other values: of every {word} elements of a row {lanes}; magnitudes are right, {} of {n} signs are wrong",
                wrong.len()
            );
            Some((Class::PackPermute, "out.signs", words))
        })
    }

    /// The lane whose sign this one has in every word: its own where that may be.
    fn sign_of(&self, lane: usize, word: usize) -> Option<usize> {
        let (rows, cols) = (self.q.rows(), self.q.cols());
        let is = |m: usize| {
            let mut told = 0usize;
            for row in 0..rows {
                for from in (0..cols.saturating_sub(lane.max(m))).step_by(word) {
                    let by = self.value(row * cols + from + lane) * f64::from(self.x.data()[row * cols + from + m]);
                    if by < 0.0 {
                        return false;
                    }
                    told += usize::from(by > 0.0);
                }
            }
            told >= TOLD
        };
        std::iter::once(lane).chain((0..word).filter(|m| *m != lane)).find(|m| is(*m))
    }
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::bundle::casts::Cast;
    use crate::bundle::named_tests::values;
    use crate::recipe::Recipe;
    use crate::{QTensor, Tensor};

    /// What is said of codes of this recipe whose signs are those of the value at another column.
    fn said(recipe: &str, sign: &dyn Fn(usize, usize) -> usize) -> String {
        let x: Tensor = values(Format::Bf16, 24, 96, 77);
        let mut p = recipe.parse::<Recipe>().unwrap().quantize(&x).unwrap().q.into_parts();
        let top = 1u8 << (p.format.bits() - 1);
        for at in 0..24 * 96 {
            let (i, j) = (at / 96, at % 96);
            p.codes[at] = p.codes[at] & !top | if x.row(i)[sign(i, j)] < 0.0 { top } else { 0 };
        }
        let q = QTensor::new(p).unwrap();
        Cast::of(&x, &q).signs().map(|f| f.2).unwrap_or_default()
    }

    #[test]
    fn signs_of_other_lanes_are_named() {
        let words = said("te_nvfp4", &|_, j| j | 1);
        assert!(
            words.contains("of every 2 elements of a row element 0 has that of element 1; magnitudes are right"),
            "{words}"
        );
        let words = said("te_mxfp8", &|_, j| j / 4 * 4 + 2);
        assert!(words.contains("of every 4 elements of a row all have that of element 2"), "{words}");
        let words = said("te_mxfp8", &|_, j| j ^ 1);
        assert!(words.contains("0 has that of 1, 1 has that of 0"), "{words}");
        assert_eq!(said("te_nvfp4", &|_, j| j), "", "they are right");
        assert_eq!(said("te_nvfp4", &|i, j| (j * 7 + i * 5 + 3) % 96), "", "of no lane");
    }
}
