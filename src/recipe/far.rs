//! A tensor that lies on a device is quantized there: its amax and its codes, of which the CPU makes some rows again. What is not as the CPU has it
//! is made here.

use super::Recipe;
use crate::format::fast::Encoder;
use crate::tensor::afar::{FarCodes, counts, looked_at};
use crate::{Granularity, Overflow, Result, Tensor};

/// Rows of which the CPU makes the codes again.
const ROWS: usize = 4;

/// [`tiles::amax`] of values that lie elsewhere and are finite; `None`: it is to be found here.
pub(super) fn amax(x: &Tensor, granularity: Granularity) -> Option<Vec<f32>> {
    let afar = x.afar()?;
    let tile = granularity.tile(x.rows(), x.cols());
    let (_, grid_cols) = granularity.grid(x.rows(), x.cols());
    let found = match afar.amax(tile) {
        Ok(found) => found?,
        Err(e) => {
            tracing::warn!("an amax is found on the CPU: {e}");
            return None;
        }
    };
    // A tile of more rows has at least what one of them has.
    let holds = |i: usize| {
        x.some_row(i).chunks(tile.1).zip(&found[i / tile.0 * grid_cols..]).all(|(part, found)| {
            let here = part.iter().map(|v| v.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
            here == *found || (tile.0 > 1 && here < *found)
        })
    };
    if !looked_at(x.rows(), ROWS).all(holds) {
        tracing::error!("the amax of a tensor on the GPU is not the CPU's, which is used");
        return None;
    }
    Some(found.into_iter().map(f32::from_bits).collect())
}

/// The codes of [`tiles::quantized`] of values that lie elsewhere; `None`: they are to be made here. Errors: a format without codes.
pub(super) fn codes(recipe: &Recipe, x: &Tensor, scale: &[f32], scale_inv: &[f32]) -> Result<Option<FarCodes>> {
    let finite = |all: &[f32]| all.iter().all(|s| s.is_finite());
    let Some(afar) = x.afar().filter(|_| finite(scale) && finite(scale_inv)) else { return Ok(None) };
    let granularity = recipe.granularity()?;
    let tile = granularity.tile(x.rows(), x.cols());
    let (_, grid_cols) = granularity.grid(x.rows(), x.cols());
    let made = match afar.encode(recipe.format, tile, scale, scale_inv) {
        Ok(Some(made)) => made,
        Ok(None) => return Ok(None),
        Err(e) => {
            tracing::warn!("codes of {recipe} are made on the CPU: {e}");
            return Ok(None);
        }
    };
    let encoder = Encoder::new(recipe.format, Overflow::Saturate)?;
    for i in looked_at(x.rows(), ROWS) {
        let row = x.some_row(i);
        let mut here = vec![0u8; row.len()];
        for (j, (part, codes)) in row.chunks(tile.1).zip(here.chunks_mut(tile.1)).enumerate() {
            encoder.encode_slice(part, scale[i / tile.0 * grid_cols + j], codes)?;
        }
        if *made.codes.some(i * x.cols()..(i + 1) * x.cols()) != here || made.rows[i] != counts(&here) {
            tracing::error!("row {i} of the codes of {recipe} on the GPU is not the CPU's, whose codes are used");
            return Ok(None);
        }
    }
    Ok(Some(made))
}

#[cfg(test)]
mod tests {
    use super::super::tiles;
    use super::*;
    use crate::Format;
    use crate::input::{Distribution, generate};
    use crate::tensor::There;
    use crate::tensor::afar::{Afar, Numbers};
    use std::sync::Arc;

    /// A tensor's values elsewhere, whose codes and amax are the CPU's but for one of them.
    struct Other {
        x: Tensor,
        wrong_code: Option<usize>,
        wrong_amax: bool,
    }

    impl Afar for Other {
        fn amax(&self, tile: (usize, usize)) -> Result<Option<Vec<u32>>> {
            let granularity = Granularity::Block { rows: tile.0, cols: tile.1 };
            let mut found: Vec<u32> =
                tiles::amax(&self.x, granularity, tiles::Nan::Ignored).into_iter().map(f32::to_bits).collect();
            if self.wrong_amax {
                found.iter_mut().for_each(|bits| *bits -= 1);
            }
            Ok(Some(found))
        }
        fn encode(&self, format: Format, tile: (usize, usize), scale: &[f32], _: &[f32]) -> Result<Option<FarCodes>> {
            let granularity = Granularity::Block { rows: tile.0, cols: tile.1 };
            let mut codes = tiles::encode_scaled(format, Overflow::Saturate, &self.x, granularity, scale, None)?;
            if let Some(at) = self.wrong_code {
                codes[at] ^= 1;
            }
            let rows = codes.chunks(self.x.cols()).map(counts).collect();
            let fetch = Box::new(move |some: std::ops::Range<usize>| Ok(codes[some].to_vec()));
            let codes = Numbers::elsewhere(self.x.count(), fetch);
            Ok(Some(FarCodes { codes, there: There::default(), rows, ties: 7 }))
        }
    }

    fn far(wrong_code: Option<usize>, wrong_amax: bool) -> (Tensor, Tensor) {
        let x = generate(Distribution::Normal, Format::Bf16, 48, 200, 1, 0).unwrap();
        let values = x.clone();
        let fetch = Box::new(move |some: std::ops::Range<usize>| Ok(values.data()[some].to_vec()));
        let other = Arc::new(Other { x: x.clone(), wrong_code, wrong_amax });
        let far = Tensor::elsewhere(Format::Bf16, (48, 200), Numbers::elsewhere(48 * 200, fetch), other).unwrap();
        (x, far)
    }

    #[test]
    fn codes_made_elsewhere_are_those_made_here() {
        for name in ["float8_rowwise", "te_current", "te_block_1x128_fp32", "te_block_128x128_fp32:e5m2"] {
            let recipe: Recipe = name.parse().unwrap();
            let (x, far) = far(None, false);
            let [here, there] = [&x, &far].map(|x| recipe.quantize(x).unwrap());
            assert_eq!(there.q.seen().map(|seen| seen.ties), Some(7), "{name}: made there");
            assert_eq!((here.q, here.scale, here.amax), (there.q, there.scale, there.amax), "{name}");
        }
    }

    #[test]
    fn what_is_not_the_cpus_is_made_here() {
        let recipe: Recipe = "float8_rowwise".parse().unwrap();
        for (wrong_code, wrong_amax) in [(Some(47 * 200 + 3), false), (None, true)] {
            let (x, far) = far(wrong_code, wrong_amax);
            let there = recipe.quantize(&far).unwrap().q;
            assert_eq!((there.seen().is_none(), there), (wrong_code.is_some(), recipe.quantize(&x).unwrap().q));
        }
    }
}
