//! Tiles of a transposed copy whose buffer is filled at one pitch and read at another: rows that are padded against bank conflicts for one side alone.
//!
//! ```text
//! place j·read + i of the buffer  =  place (i′, j′) of the tile, i′·filled + j′        known where the tile has it
//! ```

use crate::QTensor;

/// Sides of tiles, and the padding of a row of their buffer.
const SIDES: [usize; 5] = [32, 64, 16, 128, 8];
const PADS: [usize; 5] = [1, 2, 4, 8, 16];
/// Wrong codes whose source is known, at least, and the share that has to be it.
const LEAST: usize = 16;
const SHARE: f64 = 0.98;

/// What reads the tiles of a copy, `[cols, rows]` of `q`, in words.
pub fn explain(copy: &[u8], q: &QTensor, wrong: &[usize]) -> Option<String> {
    let ways = SIDES.into_iter().flat_map(|side| PADS.map(|pad| (side, pad)));
    let ways = ways.flat_map(|(side, pad)| [(side, side + pad, side), (side, side, side + pad)]);
    ways.flat_map(|way| [(way, false), (way, true)]).find_map(|((side, filled, read), turned)| {
        let source = |at: usize| source(q, at, (side, filled, read), turned);
        let count = |places: &mut dyn Iterator<Item = usize>| {
            let of = |(known, hit): (usize, usize), at: usize| match source(at) {
                Some(code) => (known + 1, hit + usize::from(code == copy[at])),
                None => (known, hit),
            };
            places.fold((0usize, 0usize), of)
        };
        let most = |(known, hit): (usize, usize)| hit as f64 >= SHARE * known as f64;
        let few = count(&mut wrong.iter().copied().step_by(wrong.len().div_ceil(64).max(1)));
        (few.0 > 0 && most(few)).then_some(())?;
        // What is right in such tiles is made too.
        let (of_wrong, of_all) = (count(&mut wrong.iter().copied()), count(&mut (0..copy.len())));
        (of_wrong.0 >= LEAST && 2 * of_wrong.0 >= wrong.len() && most(of_wrong) && most(of_all)).then(|| {
            let what = if turned { "already transposed codes" } else { "codes" };
            format!(
                "the buffer of a tile of {side}×{side} {what} is filled in rows {filled} apart and read with a pitch of {read}"
            )
        })
    })
}

/// The code at place `at` of the copy; `None` where the buffer holds padding, or what nobody knows.
fn source(q: &QTensor, at: usize, (side, filled, read): (usize, usize, usize), turned: bool) -> Option<u8> {
    let (rows, cols) = (q.rows(), q.cols());
    let (c, r) = (at / rows, at % rows);
    let (r0, c0) = (r / side * side, c / side * side);
    let (i, j) = (r - r0, c - c0);
    // The copy's row is j: of codes as they are the buffer is read down its columns.
    let place = if turned { j * read + i } else { i * read + j };
    let (line, within) = (place / filled, place % filled);
    let (i, j) = if turned { (within, line) } else { (line, within) };
    (i < side && j < side && r0 + i < rows && c0 + j < cols).then(|| q.codes()[(r0 + i) * cols + c0 + j])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;
    use crate::{Format, Tensor};

    /// What is said of a copy of 80 × 112 codes whose tiles of 32 × 32 are read so.
    fn said(of: &dyn Fn(&[u8], usize, usize) -> u8) -> Option<String> {
        let (rows, cols) = (80, 112);
        let data = (0..rows * cols).map(|at| (((at as u32).wrapping_mul(0x9E37_79B9) >> 8) as f32 / 8_388_608.0 - 1.0) * 3.0);
        let x = Tensor::new(Format::F32, rows, cols, data.collect()).unwrap();
        let q = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        let right = |r: usize, c: usize| if r < rows && c < cols { q.codes()[r * cols + c] } else { 0 };
        let copy: Vec<u8> = (0..rows * cols)
            .map(|at| {
                let (c, r) = (at / rows, at % rows);
                let (r0, c0) = (r / 32 * 32, c / 32 * 32);
                // The buffer of the tile in rows of 33, of which the last holds nothing.
                let tile: Vec<u8> =
                    (0..32 * 33).map(|n| if n % 33 < 32 { right(r0 + n / 33, c0 + n % 33) } else { 0 }).collect();
                of(&tile, r - r0, c - c0)
            })
            .collect();
        let wrong: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != right(at % rows, at / rows)).collect();
        explain(&copy, &q, &wrong)
    }

    #[test]
    fn a_padded_tile_that_is_read_without_its_padding_is_told() {
        let words = said(&|tile, i, j| tile[i * 32 + j]).unwrap();
        assert_eq!(words, "the buffer of a tile of 32×32 codes is filled in rows 33 apart and read with a pitch of 32");
        let words = said(&|tile, i, j| tile.get(i * 34 + j).copied().unwrap_or(0));
        assert_eq!(words, None, "another pitch than those of one side's padding");
        assert_eq!(said(&|tile, i, j| tile[i * 33 + j]), None, "what is right has no name");
        assert_eq!(said(&|tile, i, j| tile[(i * 7 + j * 11) % 1056]), None, "an order of no pitch");
    }
}
