//! How a scale is chosen: [`RECIPES`], one file a family. Each recipe follows its source to the bit; what it returns carries
//! its own scale_inv.
//!
//! Every recipe quantizes along the rows of its input (K is the column axis). The column-wise copy that a source makes
//! (1×32 and 32×1, 1×128 and 128×1) is `quantize` of the transposed tensor, as the sources quantize both copies from high
//! precision.
//!
//! A last tile that K or the rows leave short is a tile of its own: the same as the zero padding of the sources wherever
//! zero is neutral (all symmetric recipes, and asymmetric ones that preserve zero). Sources that refuse it (torchao asserts
//! divisibility) have no result to differ from.
//!
//! NaN codes are the canonical ones of [`Format::encode`]; the sources differ between versions and devices in a NaN's sign
//! and payload, so compare NaN as a class. A NaN cast to an integer is 0, as x86 gives it (`cvttss2si`, then truncation).

pub(crate) mod affine;
pub(crate) mod awq;
pub(crate) mod bitsandbytes;
pub mod check;
pub mod current;
pub mod deepseek;
pub mod delayed;
pub(crate) mod device;
mod far;
pub mod float8;
pub(crate) mod gguf;
pub(crate) mod hqq;
pub(crate) mod int8_token;
pub mod mx;
pub(crate) mod nvfp4;
mod registry;
mod tiles;

pub use device::DeviceRule;
pub use registry::RECIPES;

use crate::{Error, Format, Granularity, QTensor, Result, Tensor};

/// A recipe by name with its free parameters, written `name[:format][:gN]`, such as `affine_sym:int4:g128` or
/// `mx_floor:e2m1`; `gK` is the whole row. Parsing (`FromStr`) fills the defaults and refuses what the recipe does not have.
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

/// A format that may follow the input's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    Fixed(Format),
    /// The input's dtype.
    OfInput,
    /// The input's dtype, f32 where that is f16.
    OfInputNotF16,
}

impl Dtype {
    /// For an input of this dtype.
    pub fn of(self, dtype: Format) -> Format {
        match self {
            Dtype::Fixed(format) => format,
            Dtype::OfInputNotF16 if dtype == Format::F16 => Format::F32,
            Dtype::OfInput | Dtype::OfInputNotF16 => dtype,
        }
    }
}

/// One entry of [`RECIPES`]: all that is known of a recipe but its arithmetic.
#[derive(Debug)]
pub struct RecipeSpec {
    pub name: &'static str,
    /// Repository, version and file whose numerics this is.
    pub source: &'static str,
    pub help: &'static str,
    /// Allowed formats, the default first.
    pub formats: &'static [Format],
    /// Which elements share a scale; `None`: 1×G by `gN`, or a row by `gK`.
    pub granularity: Option<Granularity>,
    /// The group size that parsing fills in where the granularity is free; `None` is the whole row.
    pub default_group: Option<usize>,
    pub scale_format: Dtype,
    /// The code about which additive zero points are.
    pub mid: i32,
    /// Whether 128 rows quantized by themselves are those rows of the whole.
    pub separable: bool,
    /// Whether the scale is that of earlier steps.
    pub history: bool,
    /// What scales and codes are computed in.
    pub computed_in: Dtype,
    /// Whether scales or zero points are searched for: a code need not be the nearest to its value.
    pub fitted: bool,
    /// Whether the source takes f16.
    pub takes_f16: bool,
    /// `None`: no CUDA kernel of ours has it.
    pub device: Option<DeviceRule>,
    /// Quantizes along the rows of `x` (K is the column axis). A column-wise copy is `quantize(x.transposed())`.
    /// Errors: no elements, a format or group the recipe does not have.
    pub quantize: fn(&Recipe, &Tensor) -> Result<Quantized>,
}

impl RecipeSpec {
    /// Whether `gN` may be given.
    pub fn free_group(&self) -> bool {
        self.granularity.is_none()
    }
    /// What the scales of an input of this dtype are stored in.
    pub fn scale_format(&self, dtype: Format) -> Format {
        self.scale_format.of(dtype)
    }
}

impl Recipe {
    /// The entry of [`RECIPES`] with this name. Errors: an unknown name.
    pub fn spec(&self) -> Result<&'static RecipeSpec> {
        find(self.name)
    }
    /// Which elements share a scale. Errors: an unknown name.
    pub fn granularity(&self) -> Result<Granularity> {
        Ok(self.spec()?.granularity.unwrap_or(self.group.map_or(Granularity::Row, Granularity::Group)))
    }
    /// Quantizes `x`; see [`RecipeSpec::quantize`].
    pub fn quantize(&self, x: &Tensor) -> Result<Quantized> {
        (self.spec()?.quantize)(self, x)
    }
    fn bad_format(&self, format: Format) -> Error {
        let allowed = find(self.name).map(|s| s.formats).unwrap_or(&[]);
        let allowed = allowed.iter().map(|f| f.name()).collect::<Vec<_>>().join(", ");
        Error::unsupported(format!("recipe {}", self.name), format!("it has no format {format}; allowed: {allowed}"))
    }
}

fn find(name: &str) -> Result<&'static RecipeSpec> {
    let known = || RECIPES.iter().map(|r| r.name);
    RECIPES.iter().find(|r| r.name == name).ok_or_else(|| Error::unknown("recipe", name, known()))
}

impl std::fmt::Display for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let spec = find(self.name).ok();
        let mut text = self.name.to_string();
        if spec.is_none_or(|s| s.formats.first() != Some(&self.format)) {
            text += &format!(":{}", self.format);
        }
        match self.group {
            group if spec.is_some_and(|s| s.default_group == group) => {}
            Some(g) => text += &format!(":g{g}"),
            None => text += ":gK",
        }
        f.pad(&text)
    }
}

impl std::str::FromStr for Recipe {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let spec = find(parts.next().unwrap_or(""))?;
        let default_format = *spec.formats.first().ok_or_else(|| Error::unsupported(spec.name, "it has no format"))?;
        let mut recipe = Recipe { name: spec.name, format: default_format, group: spec.default_group };
        let (mut has_format, mut has_group) = (false, false);
        for part in parts {
            let group = match part.strip_prefix('g') {
                Some("K") => Some(None),
                Some(n) => n.parse::<usize>().ok().filter(|n| *n > 0 && n.to_string().len() == part.len() - 1).map(Some),
                None => None,
            };
            match group {
                Some(_) if has_group => return Err(Error::value("recipe", text, "at most one group size")),
                Some(_) if !spec.free_group() => {
                    return Err(Error::unsupported(format!("recipe {}", spec.name), "its group size is fixed"));
                }
                Some(g) => (recipe.group, has_group) = (g, true),
                None if has_format || has_group || part.starts_with('g') => {
                    return Err(Error::value("recipe", text, "name[:format][:gN] with N > 0, or gK for the whole row"));
                }
                None => {
                    let format: Format = part.parse()?;
                    if !spec.formats.contains(&format) {
                        return Err(recipe.bad_format(format));
                    }
                    (recipe.format, has_format) = (format, true);
                }
            }
        }
        Ok(recipe)
    }
}
