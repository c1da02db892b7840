//! What cuBLASLt's algorithm must return, to the bit: which K each split sums, in which order partial sums are added, what happens to a
//! sum before it is stored.
//!
//! P is a sum over K as the accumulator does it: fast accumulation is one chain of wgmma over a split's K, without it every 128 elements
//! start a new chain that is added to an f32 register. With S splits, K is cut into tiles of 128 bytes; split s owns the tiles
//! `s·q .. (s+1)·q`, `q = ⌈tiles/S⌉` (512 bytes where one operand has 128×128 blocks); the partial sums are added in f32, ascending (`((P0 + P1) + P2) + …`; an empty split gives +0).
//!
//! | scales | value before bias and output rounding |
//! |---|---|
//! | none (f16, bf16) | `P` |
//! | tensor | `RN32(P·RN32(s_a·s_b))` |
//! | row | `RN32(RN32(P·s_b)·s_a)` |
//! | 1×128 with 128×128 | block by block from +0, `y ← fma(P, RN32(s_a·s_b), y)` |
//! | 1×128 with 1×128 | block by block from +0, `y ← fma(RN32(P·s_a), s_b, y)` |
//!
//! Found by replaying what an H200 returned (`data/golden/h200`); the split's rule is also that of mmaemu 0.1.0 on an H100.

use super::lt::Algorithm;
use crate::job::{Job, Output};
use crate::kernel::Splits;
use crate::kernel::cpu::product;
use crate::model::bulk;
use crate::model::gemm::store;
use crate::model::product::{Kind, Plan, Problem};
use crate::parallel;
use crate::{Format, Result};
use std::ops::Range;

/// Columns of a tile of outputs.
const TILE: usize = 128;

/// Bytes of a tile of K.
const K_BYTES: usize = 128;

/// Tiles of K that stay together where one operand has 128×128 blocks.
const SQUARE_TILES: usize = 4;

/// The K of each split.
pub fn splits(k: usize, format: Format, square: bool, count: usize) -> Vec<Range<usize>> {
    let tile = K_BYTES * 8 / format.bits() as usize * if square { SQUARE_TILES } else { 1 };
    let each = k.div_ceil(tile).div_ceil(count.max(1)) * tile;
    (0..count.max(1)).map(|s| (s * each).min(k)..((s + 1) * each).min(k)).collect()
}

/// What the algorithm must return for `job`; `None` where no rule is known: sums reduced in place, or in the output's type. Errors:
/// those of [`Plan::of`].
pub fn predict(job: &Job, algorithm: &Algorithm) -> Result<Option<Output>> {
    let plan = Plan::of(job)?;
    if plan.kind == Kind::Integer {
        return product::run(job).map(Some);
    }
    if !is_known(algorithm) {
        return Ok(None);
    }
    let mut values = vec![0.0f32; plan.rows * plan.cols];
    for p in plan.problems() {
        let splits = splits(p.a.k, p.a.format, is_square(&p), algorithm.split_k as usize);
        let band = p.a_rows.len().div_ceil(rayon::current_num_threads()).clamp(1, TILE);
        let done = parallel::map_chunks(&mut values, band * plan.cols, |i, out| {
            let rows = i * band..p.a_rows.end.min((i + 1) * band);
            for cols in (0..plan.cols).step_by(TILE).map(|j| j..plan.cols.min(j + TILE)) {
                let tile = tile(&plan, &p, rows.clone(), cols.clone(), &splits)?;
                for (out, tile) in out.chunks_mut(plan.cols).zip(tile.chunks(cols.len())) {
                    out[cols.clone()].copy_from_slice(tile);
                }
            }
            Ok(())
        });
        done.into_iter().collect::<Result<()>>()?;
    }
    store(job, &plan, values).map(Some)
}

/// How a product of FP8 codes is cut and joined; `None` of other products, and where no rule is known. Errors: those of [`Plan::of`].
pub fn joined(job: &Job, algorithm: &Algorithm) -> Result<Option<Splits>> {
    let plan = Plan::of(job)?;
    let (Some(p), true) = (plan.problems().next(), plan.kind == Kind::Scaled && is_known(algorithm)) else { return Ok(None) };
    let order = match (p.a.has_blocks() || p.b.has_blocks(), is_square(&p), p.a.is_whole() && p.b.is_whole()) {
        (true, true, _) => 4,
        (true, false, _) => 2,
        (false, _, true) => 0,
        (false, _, false) => 5,
    };
    let of_k = splits(p.a.k, p.a.format, is_square(&p), algorithm.split_k as usize);
    Ok(Some(Splits { of_k, order }))
}

/// Whether it is known how partial sums are added.
fn is_known(algorithm: &Algorithm) -> bool {
    algorithm.split_k <= 1 || matches!(algorithm.reduction, 0 | 2)
}

fn is_square(p: &Problem) -> bool {
    p.a.is_two_dimensional() || p.b.is_two_dimensional()
}

/// The values of a tile of outputs before the output rounding.
fn tile(plan: &Plan, p: &Problem, rows: Range<usize>, cols: Range<usize>, splits: &[Range<usize>]) -> Result<Vec<f32>> {
    let n = cols.len();
    let blocked = p.a.has_blocks() || p.b.has_blocks();
    let square = is_square(p);
    let mut total: Option<Vec<f32>> = None;
    let mut sums = vec![0.0f32; rows.len() * n];
    for split in splits {
        let mut part = vec![0.0f32; rows.len() * n];
        if blocked {
            for k in p.blocks().into_iter().filter(|k| split.contains(&k.start)) {
                bulk::tile(&plan.accumulator, p.a, rows.clone(), p.b, cols.clone(), k.clone(), &mut sums)?;
                each(&rows, &cols, &mut part, |i, j, at, y| {
                    let (s_a, s_b) = (p.a.scale_inv(i, k.start), p.b.scale_inv(j, k.start));
                    *y = if square { sums[at].mul_add(s_a * s_b, *y) } else { (sums[at] * s_a).mul_add(s_b, *y) };
                });
            }
        } else if !split.is_empty() {
            bulk::tile(&plan.accumulator, p.a, rows.clone(), p.b, cols.clone(), split.clone(), &mut part)?;
        }
        total = Some(match total {
            None => part,
            Some(mut total) => {
                total.iter_mut().zip(&part).for_each(|(t, p)| *t += p);
                total
            }
        });
    }
    let mut values = total.unwrap_or_default();
    let whole = p.a.is_whole() && p.b.is_whole();
    each(&rows, &cols, &mut values, |i, j, _, y| {
        let (a, b) = (p.a.scale_inv(i, 0), p.b.scale_inv(j, 0));
        *y = match (plan.kind, blocked, whole) {
            (Kind::Scaled, false, true) => *y * (a * b),
            (Kind::Scaled, false, false) => *y * b * a,
            _ => *y,
        };
        if let Some(bias) = plan.bias {
            *y += bias[j];
        }
        *y = crate::model::accumulate::canonical(*y);
    });
    Ok(values)
}

/// Calls `f(row, column, position, value)` for every value of a tile.
fn each(rows: &Range<usize>, cols: &Range<usize>, values: &mut [f32], mut f: impl FnMut(usize, usize, usize, &mut f32)) {
    for (at, y) in values.iter_mut().enumerate() {
        f(rows.start + at / cols.len(), cols.start + at % cols.len(), at, y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_joined_in_the_order_of_the_table() {
        use crate::input::{Distribution, generate};
        use crate::job::{Operand, Operands, OutSpec};
        use crate::op::{Op, Params};
        let algorithm = |split_k: u32, reduction: u32| Algorithm { split_k, reduction, ..Algorithm::default() };
        let job = |a: &str, b: &str| {
            let side = |recipe: &str| {
                let x = generate(Distribution::Normal, Format::Bf16, 8, 256, 1, 0).unwrap();
                Operand::Quantized(recipe.parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap().q)
            };
            let (operands, accumulator) = (Operands::of(side(a), Some(side(b))), Some("hopper_wgmma@128".parse().unwrap()));
            Job { op: Op::Gemm, params: Params::default(), operands, out: OutSpec::High(Format::Bf16), accumulator }
        };
        let (line, square) = ("te_block_1x128_fp32", "te_block_128x128_fp32");
        for (a, b, order) in
            [("te_current", "te_current", 0), ("float8_rowwise", "te_current", 5), (line, line, 2), (line, square, 4)]
        {
            let found = joined(&job(a, b), &algorithm(2, 2)).unwrap().unwrap();
            let ends = if order == 4 { [0..256, 256..256] } else { [0..128, 128..256] };
            assert_eq!((found.order, found.of_k), (order, ends.to_vec()), "{a} × {b}");
        }
        assert!(joined(&job(line, line), &algorithm(2, 4)).unwrap().is_none());
        assert_eq!(joined(&job(line, line), &algorithm(1, 4)).unwrap().unwrap().of_k, [0..256]);
    }

    #[test]
    fn splits_are_whole_tiles_and_the_last_may_be_short_or_empty() {
        assert_eq!(splits(8192, Format::E4m3, false, 1).first(), Some(&(0..8192)));
        assert_eq!(splits(1000, Format::E4m3, false, 3), [0..384, 384..768, 768..1000]);
        assert_eq!(splits(640, Format::E4m3, false, 4), [0..256, 256..512, 512..640, 640..640]);
        assert_eq!(splits(640, Format::Bf16, false, 4), [0..192, 192..384, 384..576, 576..640]);
        assert_eq!(splits(4224, Format::E4m3, true, 2), [0..2560, 2560..4224]);
        assert_eq!(splits(4224, Format::E4m3, true, 4), [0..1536, 1536..3072, 3072..4224, 4224..4224]);
    }
}
