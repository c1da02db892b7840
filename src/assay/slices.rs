//! What a Rust kernel wrote, judged where it lies: no file, no `impl Kernel`.
//!
//! ```
//! use ndarray::Array2;
//! let a = Array2::from_shape_fn((8, 64), |(i, k)| ((7 * i + 3 * k) % 11) as f32 - 5.0);
//! let b = Array2::from_shape_fn((6, 64), |(j, k)| ((5 * j + 2 * k) % 13) as f32 - 6.0);
//! let out = a.dot(&b.t());
//! qassay::assert_assay!(qassay::assay::gemm(&a, &b, &out));
//! let wrong = &out * 1.01;
//! assert!(qassay::assay::gemm(&a, &b, &wrong).check().is_err());
//! ```

use crate::{Error, Format, QTensor, Result, Tensor};
use half::{bf16, f16};
use ndarray::{ArrayBase, Data, Ix2};

/// An operand or a result as its owner holds it.
#[derive(Clone, Debug)]
pub enum Matrix {
    /// `[rows, cols]` of f32, f16 or bf16.
    Values(Tensor),
    Codes(QTensor),
}

/// An element type whose values are judged.
pub trait Element: Copy {
    const FORMAT: Format;
    fn value(self) -> f32;
}

impl Element for f32 {
    const FORMAT: Format = Format::F32;
    fn value(self) -> f32 {
        self
    }
}
impl Element for f16 {
    const FORMAT: Format = Format::F16;
    fn value(self) -> f32 {
        self.to_f32()
    }
}
impl Element for bf16 {
    const FORMAT: Format = Format::Bf16;
    fn value(self) -> f32 {
        self.to_f32()
    }
}

/// What becomes a [`Matrix`]: arrays and views of ndarray, [`Tensor`], [`QTensor`]. Errors: a matrix without elements.
pub trait IntoMatrix {
    fn matrix(self) -> Result<Matrix>;
}

impl<T: Element, S: Data<Elem = T>> IntoMatrix for &ArrayBase<S, Ix2> {
    fn matrix(self) -> Result<Matrix> {
        let (rows, cols) = self.dim();
        if rows == 0 || cols == 0 {
            return Err(Error::shape("matrix", format!("{rows}×{cols}"), "no size 0"));
        }
        Tensor::new(T::FORMAT, rows, cols, self.iter().map(|x| x.value()).collect()).map(Matrix::Values)
    }
}
impl IntoMatrix for &Tensor {
    fn matrix(self) -> Result<Matrix> {
        Ok(Matrix::Values(self.clone()))
    }
}
impl IntoMatrix for &QTensor {
    fn matrix(self) -> Result<Matrix> {
        Ok(Matrix::Codes(self.clone()))
    }
}

/// One product to be judged; see [`gemm`]. `check()` and `judge()` are where bundles are judged: [`crate::bundle`].
#[must_use = "nothing is judged before `check()` or `judge()`"]
pub struct Slices {
    pub(crate) a: Result<Matrix>,
    pub(crate) b: Result<Matrix>,
    pub(crate) out: Result<Matrix>,
    pub(crate) bias: Option<Vec<f32>>,
    pub(crate) recipe: Option<String>,
    pub(crate) meta: Vec<(&'static str, String)>,
}

/// `out[M,N] = a[M,K] · b[N,K]ᵀ`: operands as values or codes, the result as values, or as FP8 codes with their scale_inv.
pub fn gemm(a: impl IntoMatrix, b: impl IntoMatrix, out: impl IntoMatrix) -> Slices {
    Slices { a: a.matrix(), b: b.matrix(), out: out.matrix(), bias: None, recipe: None, meta: Vec::new() }
}

impl Slices {
    /// How operands that are values were quantized: `te_current`, `mx_floor:e4m3`, or `A+B` with `none` for an operand that was not.
    /// They are quantized so again, and codes that are there are held to the recipe.
    pub fn recipe(mut self, recipe: &str) -> Slices {
        self.recipe = Some(recipe.into());
        self
    }
    /// `[N]`, added to each row.
    pub fn bias(mut self, bias: &[f32]) -> Slices {
        self.bias = Some(bias.to_vec());
        self
    }
    /// The arithmetic that the result must have, to the bit: `hopper_wgmma`, … (`qassay list models`).
    pub fn model(self, name: &str) -> Slices {
        self.with("device_model", name)
    }
    /// The GPU it ran on: its model is then found.
    pub fn device(self, name: &str) -> Slices {
        self.with("device", name)
    }
    /// The kernel's name, for reports.
    pub fn kernel(self, name: &str) -> Slices {
        self.with("kernel", name)
    }
    fn with(mut self, key: &'static str, value: &str) -> Slices {
        self.meta.push((key, value.into()));
        self
    }
}

/// Panics with the failure's card unless the result is right: `assert_assay!(gemm(&a, &b, &out).recipe("te_current"))`. Gives the answer.
#[macro_export]
macro_rules! assert_assay {
    ($assay:expr) => {
        match $assay.check() {
            Ok(answer) => answer,
            Err(e) => panic!("{e}"),
        }
    };
}
