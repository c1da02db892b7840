//! How a scale is chosen: RECIPES, one file a family. Each recipe follows its source to the bit; what it returns carries
//! its own scale_inv.

use crate::{Format, QTensor, Result, Tensor};

/// A recipe by name with its free parameters, written `name[:format][:gN]`, such as `affine_sym:int4:g128` or
/// `mx_floor:e2m1`. Parsing (`FromStr`) fills the defaults and refuses what the recipe does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Entry in [`RECIPES`].
    pub name: &'static str,
    /// Format of the codes.
    pub format: Format,
    /// Group size along K where the recipe leaves it free; `None` is the whole row (K) there.
    pub group: Option<usize>,
}

/// What a recipe returns for one tensor.
#[derive(Clone, Debug)]
pub struct Quantized {
    pub q: QTensor,
    /// The quantization scales where the recipe has them (what values were multiplied by), over the granularity's grid.
    pub scale: Option<Vec<f32>>,
    /// Largest magnitude of each tile as the recipe saw it.
    pub amax: Vec<f32>,
}

/// One entry of [`RECIPES`].
pub struct RecipeSpec {
    pub name: &'static str,
    /// te_delayed, te_current, te_block, mx, nvfp4, float8, deepseek, affine, int8_token, …
    pub family: &'static str,
    /// Repository and file whose numerics this is.
    pub source: &'static str,
    pub help: &'static str,
    /// Allowed formats, the default first.
    pub formats: &'static [Format],
    /// Whether `gN` may be given.
    pub free_group: bool,
    /// Quantizes along the rows of `x` (K is the column axis). A column-wise copy is `quantize(x.transposed())`.
    pub quantize: fn(&Recipe, &Tensor) -> Result<Quantized>,
}

/// Every recipe.
pub const RECIPES: &[RecipeSpec] = &[];
