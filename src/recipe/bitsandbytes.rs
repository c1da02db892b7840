//! bitsandbytes' 4-bit weights: codes of a table, an f32 absmax a block.
//!
//! Source: bitsandbytes 0.50.2, `bitsandbytes/backends/default/ops.py` (`quantize_4bit`), which every device without a kernel of its own runs, in
//! f32. Blocks there run on through the rows; here a row ends its last block, which is the same where the block divides K. The absmax is not
//! quantized a second time (`compress_statistics`): the offset of that is a mean whose order of summation is PyTorch's.

use super::affine::finish;
use super::tiles;
use super::{Quantized, Recipe};
use crate::{Result, Tensor, Zero};

/// What an absmax is at least before it divides.
const LEAST: f32 = 1e-38;

/// ```text
/// v = clamp(RN32(x · RN32(1 / max(absmax, 1e-38))), ±1)      a whole block
/// v = clamp(RN32(x / absmax), ±1), absmax = max(absmax, 1e-38)    a short one
/// code = how many of the f32 midpoints between neighbouring values are below v; the last for NaN
/// ```
/// scale_inv is the absmax; NaN propagates.
pub fn nf4(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let (granularity, table) = (recipe.granularity()?, recipe.format.spec().table);
    let (_, whole) = granularity.tile(x.rows(), x.cols());
    let midpoints: Vec<f32> = table.windows(2).map(|v| (v[0] + v[1]) / 2.0).collect();
    let mut scale_inv = Vec::new();
    let codes = tiles::encode(x, granularity, |_, part, codes| {
        let absmax = part.iter().fold(0f32, |m, x| if x.abs() > m || x.is_nan() { x.abs() } else { m });
        let divisor = if absmax < LEAST { LEAST } else { absmax };
        let short = part.len() < whole;
        for (code, x) in codes.iter_mut().zip(part) {
            let v = if short { x / divisor } else { x * (1.0 / divisor) }.clamp(-1.0, 1.0);
            *code = midpoints.partition_point(|m| !(*m >= v)) as u8;
        }
        scale_inv.push(if short { divisor } else { absmax });
    });
    finish(recipe, x, codes, scale_inv, Zero::None)
}

#[cfg(test)]
mod tests {
    use crate::Format;

    /// The thresholds of the tree in `csrc/kernels.cu` (`dQuantizeNF4`) are these midpoints.
    #[test]
    fn thresholds_are_those_of_the_cuda_tree() {
        let table = Format::Nf4.spec().table;
        let tree = [
            -0.848_096_4,
            -0.610_632_9,
            -0.459_995_27,
            -0.339_679_43,
            -0.234_607_4,
            -0.137_911_73,
            -0.045_525_018,
            0.039_790_15,
            0.120_255_25,
            0.203_521_25,
            0.292_013_77,
            0.389_312_54,
            0.501_663_42,
            0.642_786_9,
            0.861_478_42f32,
        ];
        assert!(table.windows(2).map(|v| (v[0] + v[1]) / 2.0).eq(tree));
    }
}
