//! A recipe on all cores: bands of rows quantized apart and put together, where the recipe's scales look no farther.

use crate::parallel;
use crate::quant::QTensorParts;
use crate::recipe::{Quantized, Recipe};
use crate::{Error, QTensor, Result, Tensor, Zero};

/// Rows of a band: what [`separable`](crate::recipe::RecipeSpec::separable) is about.
const BAND: usize = 128;

/// `recipe.quantize(x)`, to the bit.
pub fn quantize(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    if x.rows() <= BAND || !recipe.spec()?.separable {
        return recipe.quantize(x);
    }
    let first = recipe.quantize(&x.rows_range(0, BAND))?;
    let starts: Vec<usize> = (BAND..x.rows()).step_by(BAND).collect();
    let band = |n: usize| recipe.quantize(&x.rows_range(starts[n], x.rows().min(starts[n] + BAND)));
    let rest = parallel::collect(starts.len(), band).into_iter().collect::<Result<Vec<_>>>()?;
    let Quantized { q, mut scale, mut amax } = first;
    let mut parts = q.into_parts();
    for band in rest {
        let more = band.q.into_parts();
        parts.rows += more.rows;
        parts.codes.extend(more.codes);
        parts.scale_inv.extend(more.scale_inv);
        append(&mut parts, more.zero)?;
        if let (Some(all), Some(more)) = (&mut parts.level, more.level) {
            all.scale_inv.extend(more.scale_inv);
            all.zero.iter_mut().zip(more.zero).for_each(|(all, more)| all.extend(more));
        }
        if let (Some(all), Some(more)) = (&mut scale, band.scale) {
            all.extend(more);
        }
        amax.extend(band.amax);
    }
    Ok(Quantized { q: QTensor::new(parts)?, scale, amax })
}

fn append(parts: &mut QTensorParts, more: Zero) -> Result<()> {
    match (&mut parts.zero, more) {
        (Zero::None, Zero::None) => Ok(()),
        (Zero::Integer(all), Zero::Integer(more)) => {
            all.extend(more);
            Ok(())
        }
        (Zero::Additive { zero: all, .. }, Zero::Additive { zero: more, .. }) => {
            all.extend(more);
            Ok(())
        }
        (a, b) => Err(Error::value("zero points of a band", format!("{b:?}"), format!("the kind of the first band, {a:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::input::{Distribution, generate};
    use crate::recipe::RECIPES;

    #[test]
    fn bands_change_no_bit_of_any_recipe() {
        for dtype in [Format::Bf16, Format::F32] {
            for spec in RECIPES {
                let recipe: Recipe = spec.name.parse().unwrap();
                let x = generate(Distribution::Shifted, dtype, 300, 150, 7, 0).unwrap();
                let (whole, banded) = (recipe.quantize(&x).unwrap(), quantize(&recipe, &x).unwrap());
                assert!(whole.q == banded.q, "{recipe} {dtype}: codes, scales or zeros differ");
                assert_eq!((whole.scale, whole.amax), (banded.scale, banded.amax), "{recipe} {dtype}");
            }
        }
    }
}
