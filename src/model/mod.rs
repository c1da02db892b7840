//! Device models: the arithmetic of the hardware, bit for bit, each as the obvious sequence of rounded operations.

pub mod act;
pub mod boundary;
pub mod elementwise;
pub mod interval;
pub mod libm;
pub mod norm;

/// The inner accumulation of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inner {
    /// Exact sum, rounded once to f32.
    Exact,
    /// f32, k ascending, one product (exact) added at a time with nearest-even.
    F32Sequential,
    /// f32, pairwise tree.
    F32Pairwise,
    /// The tensor core's block step T(W, F, O), chained over k.
    Mma(MmaModel),
    /// Integer products, exact, wrapping in 32 bits.
    Int32,
}

/// Which tensor-core instruction is modelled; the parameters are in the model's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MmaModel {
    /// Entry in the table of device models.
    pub name: &'static str,
}

/// How a product is accumulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accumulator {
    pub inner: Inner,
    /// Every this many elements of K the inner sum is added (f32, nearest even) to a main f32 accumulator and restarted.
    pub promote_every: Option<usize>,
}
