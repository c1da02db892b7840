//! How a product is accumulated: the words. What each computes, and which names there are, is [`crate::model`].

/// The inner accumulation of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inner {
    /// Exact sum, rounded once to f32 (nearest even).
    Exact,
    /// f32, k ascending from +0, one product (exact) added at a time with nearest-even: a chain of FMA.
    F32Sequential,
    /// f32 tree: products rounded to f32, a node of n leaves split after the largest power of two below n.
    F32Pairwise,
    /// The tensor core's block step T(W, F, O), chained over k from +0.
    Mma(MmaModel),
    /// Integer products, exact, wrapping in 32 bits.
    Int32,
    /// An assumption, no model: f32 sums that round to nearest, in any order, split and joined in any way.
    AnyOrder,
    /// An assumption: [`Inner::AnyOrder`], or block steps of this instruction over the products in any order, split in any way, the parts
    /// added in f32. Where the instruction does not take the formats, [`Inner::AnyOrder`].
    AnyOf(MmaModel),
    /// An assumption: [`Inner::AnyOf`] any instruction of the table with an f32 accumulator.
    AnyUnit,
}

impl Inner {
    /// Whether it has bits. What is only assumed of a kernel has a bound and no bits: running it is an error.
    pub fn is_model(self) -> bool {
        !matches!(self, Inner::AnyOrder | Inner::AnyOf(_) | Inner::AnyUnit)
    }
}

/// Which tensor-core instruction is modelled; the parameters are in [`crate::model::table::MODELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MmaModel {
    /// Entry in the table of device models.
    pub name: &'static str,
}

/// In which order the scales of K groups or blocks meet the f32 partial sum P of their block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScaleOrder {
    /// `y = fma(RN32(P·s_a), s_b, y)` (TransformerEngine's reference; b first when only A has two-dimensional blocks; the scales are
    /// multiplied first when both have).
    #[default]
    SumFirst,
    /// `y = fma(RN32(s_a·s_b), P, y)` (DeepGEMM on Hopper).
    ScalesFirst,
}

/// How a product is accumulated, written `inner[@promote_every][+scales_first]`: `exact`, `f32_sequential`, `f32_pairwise`, `int32`
/// or a device model's name, such as `hopper_wgmma@128`; or what is assumed of it: `f32_any_order`, `any_unit`, `any_hopper_wgmma`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accumulator {
    pub inner: Inner,
    /// Every this many elements of K the inner sum is added (f32, nearest even) to a main f32 accumulator and restarted.
    pub promote_every: Option<usize>,
    pub scale_order: ScaleOrder,
}

impl Accumulator {
    /// Without promotion, in TransformerEngine's order of scales.
    pub fn new(inner: Inner) -> Self {
        Self { inner, promote_every: None, scale_order: ScaleOrder::SumFirst }
    }
}
