//! Places of a transposed copy that are wrong by one rule: the pitch of its rows or of the codes', a tile that is transposed where it lies.
//!
//! ```text
//! code (r, c) at c·p + r of the copy, p not its rows: what the last writer left there          code r·p + c of the codes, p not their columns
//! in place:  dst[j][i] = src[i][j] of one buffer: element (i, j) and (j, i) are both that of the half that is read before it is overwritten
//! ```

use crate::QTensor;

/// Wrong codes that a rule is tried on before all are, and those of which the code is known, at least.
const FEW: usize = 64;
const LEAST: usize = 64;
/// One in so many of the wrong codes has to be known, at least.
const KNOWN: usize = 4;
/// The share of codes, right ones too, that a rule has to make.
const SHARE: f64 = 0.98;
/// Pitches beyond twice a row, at most.
const BEYOND: usize = 256;
/// Sides of tiles.
const LARGEST: usize = 128;

/// What a rule says of a place of the copy: the number of a code, or nothing.
type Rule<'r> = &'r dyn Fn(usize) -> Option<usize>;

/// How the copy was written, in words.
pub fn explain(copy: &[u8], q: &QTensor, wrong: &[usize]) -> Option<String> {
    let (rows, cols, codes) = (q.rows(), q.cols(), q.codes());
    (wrong.len() >= LEAST).then_some(())?;
    let few: Vec<usize> = wrong.iter().copied().step_by(wrong.len().div_ceil(FEW)).collect();
    // Of all places whose code is known, and of the wrong ones: these have to be made, too.
    let is = |rule: Rule| {
        let made = |at: usize| rule(at).map(|n| codes[n] == copy[at]);
        let share = |all: &mut dyn Iterator<Item = usize>| {
            let (mut known, mut hit) = (0usize, 0usize);
            for made in all.filter_map(made) {
                (known, hit) = (known + 1, hit + usize::from(made));
            }
            (known, hit as f64 >= SHARE * known as f64)
        };
        let (known, all) = share(&mut few.iter().copied());
        (all && KNOWN * known >= few.len()).then_some(())?;
        let (known, all) = share(&mut wrong.iter().copied());
        (all && KNOWN * known >= wrong.len() && known >= LEAST && share(&mut (0..copy.len())).1).then_some(())
    };
    // Pitches of the copy: what is written behind its end is lost, what lies between rows nobody knows.
    let near = |line: usize| 1..=2 * line + BEYOND;
    for pitch in near(rows).filter(|p| *p != rows) {
        let place = |at: usize| {
            let c = (at / pitch).min(cols - 1);
            let r = at - c * pitch;
            (r < rows).then_some(r * cols + c)
        };
        if is(&place).is_some() {
            let how = if pitch < rows { "rows lie over the ends of those before" } else { "what is behind its end is lost" };
            return Some(format!("code (r, c) stands at c·{pitch} + r of the copy, whose rows are {rows} long: {how}"));
        }
    }
    for pitch in near(cols).filter(|p| *p != cols) {
        let place = |at: usize| Some(at % rows * pitch + at / rows).filter(|n| *n < codes.len());
        if is(&place).is_some() {
            return Some(format!("place (c, r) is code r·{pitch} + c, where rows of the codes are {cols} apart"));
        }
    }
    for (side, upper) in (2..=LARGEST.max(rows.min(cols))).flat_map(|side| [(side, true), (side, false)]) {
        let place = |at: usize| {
            let (c, r) = (at / rows, at % rows);
            let (c0, r0) = (c / side * side, r / side * side);
            let (i, j) = (r - r0, c - c0);
            let (i, j) = if (i < j) == upper { (i, j) } else { (j, i) };
            (r0 + i < rows && c0 + j < cols).then_some((r0 + i) * cols + c0 + j)
        };
        if is(&place).is_some() {
            let half = if upper { "above" } else { "below" };
            return Some(format!(
                "tiles of {side}×{side} are transposed where they lie: the half {half} the diagonal is written over the other one before that is read, \
                 and stands on both sides"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::QTensorParts;
    use crate::{Format, Granularity, Zero};

    const ROWS: usize = 72;
    const COLS: usize = 96;

    fn code(n: usize) -> u8 {
        (((n as u32).wrapping_mul(0x9E37_79B9) >> 20) % 120) as u8
    }

    /// What is said of the copy that a kernel writes over zeros.
    fn said(write: &dyn Fn(&[u8], &mut [u8])) -> String {
        let parts = QTensorParts {
            format: Format::E4m3,
            rows: ROWS,
            cols: COLS,
            codes: (0..ROWS * COLS).map(code).collect(),
            granularity: Granularity::Tensor,
            scale_format: Format::F32,
            scale_inv: vec![1.0],
            zero: Zero::None,
            level: None,
        };
        let q = QTensor::new(parts).unwrap();
        let mut copy = vec![0u8; ROWS * COLS];
        write(q.codes(), &mut copy);
        let wrong: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != q.codes()[at % ROWS * COLS + at / ROWS]).collect();
        explain(&copy, &q, &wrong).unwrap_or_default()
    }

    fn at_pitch(pitch: usize) -> String {
        said(&|codes, copy| {
            for (c, r) in (0..COLS).flat_map(|c| (0..ROWS).map(move |r| (c, r))) {
                if let Some(place) = copy.get_mut(c * pitch + r) {
                    *place = codes[r * COLS + c];
                }
            }
        })
    }

    #[test]
    fn pitches_of_the_copy_and_of_the_codes_are_told() {
        for pitch in [80, 96, 128, 144, 60] {
            let words = at_pitch(pitch);
            assert!(
                words.starts_with(&format!("code (r, c) stands at c·{pitch} + r of the copy, whose rows are 72 long")),
                "{words}"
            );
        }
        assert_eq!(at_pitch(ROWS), "");
        let read = said(&|codes, copy| {
            (0..copy.len()).for_each(|at| copy[at] = codes.get(at % ROWS * 128 + at / ROWS).copied().unwrap_or(1));
        });
        assert_eq!(read, "place (c, r) is code r·128 + c, where rows of the codes are 96 apart");
    }

    #[test]
    fn tiles_that_are_transposed_in_place_are_told() {
        for (side, by_rows) in [(24, true), (24, false), (8, true), (12, false)] {
            let words = said(&|codes, copy| {
                for (r0, c0) in (0..ROWS).step_by(side).flat_map(|r| (0..COLS).step_by(side).map(move |c| (r, c))) {
                    let mut tile: Vec<u8> = (0..side * side).map(|n| codes[(r0 + n / side) * COLS + c0 + n % side]).collect();
                    for n in 0..side * side {
                        let (i, j) = if by_rows { (n / side, n % side) } else { (n % side, n / side) };
                        tile[j * side + i] = tile[i * side + j];
                    }
                    (0..side * side).for_each(|n| copy[(c0 + n / side) * ROWS + r0 + n % side] = tile[n]);
                }
            });
            let half = if by_rows { "above" } else { "below" };
            assert!(
                words.starts_with(&format!("tiles of {side}×{side} are transposed where they lie: the half {half}")),
                "{words}"
            );
        }
        // Numbers of no rule.
        assert_eq!(said(&|_, copy| (0..copy.len()).for_each(|at| copy[at] = code(at * 7 + 5))), "");
    }
}
