//! Inputs: synthetic tensors that are the same bits on every machine, and real ones from safetensors files.

pub(crate) mod distribution;
pub(crate) mod math;
pub(crate) mod philox;
pub mod real;

pub use distribution::{DISTRIBUTIONS, Distribution, DistributionSpec, Drawer, Drawing, generate, generate_by};
pub use real::RealTensor;

use crate::{Error, Format, Result, Tensor};

/// Where the elements of a case come from: `normal`, `ties:e2m1`, `minilm:layer0.ffn_in_weight`,
/// `path/to/model.safetensors#name@128,0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    Synthetic(Distribution),
    Real(RealTensor),
}

impl Source {
    /// A `rows × cols` tensor of `dtype`. `seed` and `stream` choose among synthetic tensors; a real one is always the same
    /// window, tiled where the case is larger than the tensor.
    pub fn tensor(&self, dtype: Format, rows: usize, cols: usize, seed: u64, stream: u32) -> Result<Tensor> {
        self.tensor_by(None, dtype, rows, cols, seed, stream)
    }
    /// The same, a large synthetic one made by `drawer`.
    pub fn tensor_by(
        &self,
        drawer: Option<Drawer>,
        dtype: Format,
        rows: usize,
        cols: usize,
        seed: u64,
        stream: u32,
    ) -> Result<Tensor> {
        match self {
            Source::Synthetic(d) => generate_by(drawer, *d, dtype, (rows, cols), seed, stream),
            Source::Real(r) => r.window(dtype, rows, cols),
        }
    }
    /// May lack the power to show a bug (see [`DistributionSpec::edge`]).
    pub fn is_edge(&self) -> bool {
        matches!(self, Source::Synthetic(d) if d.is_edge())
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Synthetic(d) => d.fmt(f),
            Source::Real(r) => r.fmt(f),
        }
    }
}

impl std::str::FromStr for Source {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        if s.contains('#') || real::is_collection(s) {
            return Ok(Source::Real(s.parse()?));
        }
        Ok(Source::Synthetic(s.parse()?))
    }
}
