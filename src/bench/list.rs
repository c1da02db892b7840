//! What is timed: the shapes that matter, ours and the vendor's side by side.

use super::{cast_timed, fp8_timed, vendor_timed as vendor, w4a8_timed};
use crate::Format;
use crate::kernel::Backend;
use crate::kernel::cuda::launch::Gpu;
use crate::kernel::cuda::timed::Timed;
use crate::kernel::cuda::{activation, dact, mixed_stream, norm};
use crate::op::{Act, Op};
use crate::{Error, Result};
use std::borrow::Cow;

/// Which rate bounds a kernel's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Fp8,
    Int8,
    F16,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Fp8 => "FP8",
            Unit::Int8 => "int8",
            Unit::F16 => "f16",
        }
    }
}

/// What a kernel of ours must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Floor {
    /// Bytes a second.
    Bandwidth(f64),
    /// Less time than the vendor's fastest kernel of this unit in its group.
    Faster(Unit),
    /// This share of the speed of the vendor's fastest kernel in its group.
    Share(f64),
}

/// One line of the bench.
pub struct Entry {
    /// Entries of a group do the same work.
    pub group: Cow<'static, str>,
    pub backend: Backend,
    /// `None`: its bytes alone count.
    pub unit: Option<Unit>,
    pub floor: Option<Floor>,
    pub work: Work,
}

/// What an entry times.
#[derive(Clone, Copy)]
pub enum Work {
    Listed(fn(&'static Gpu) -> Result<Timed>),
    /// A product of this shape, M×N×K.
    Product(fn(&'static Gpu, [usize; 3]) -> Result<Timed>, [usize; 3]),
}

impl Entry {
    /// Prepares it. Errors: a shape that the kernel does not take; no library; out of device memory.
    pub fn timed(&self, gpu: &'static Gpu) -> Result<Timed> {
        match self.work {
            Work::Listed(of) => of(gpu),
            Work::Product(of, shape) => of(gpu, shape),
        }
    }
}

impl Entry {
    const fn at_least(mut self, floor: Floor) -> Self {
        self.floor = Some(floor);
        self
    }
}

const fn listed(group: &'static str, backend: Backend, unit: Option<Unit>, timed: fn(&'static Gpu) -> Result<Timed>) -> Entry {
    Entry { group: Cow::Borrowed(group), backend, unit, floor: None, work: Work::Listed(timed) }
}

const fn ours(group: &'static str, unit: Unit, timed: fn(&'static Gpu) -> Result<Timed>) -> Entry {
    listed(group, Backend::Cuda, Some(unit), timed)
}

/// A kernel whose bytes alone count.
const fn moves(group: &'static str, timed: fn(&'static Gpu) -> Result<Timed>) -> Entry {
    listed(group, Backend::Cuda, None, timed)
}

const fn library(group: &'static str, unit: Unit, timed: fn(&'static Gpu) -> Result<Timed>) -> Entry {
    listed(group, Backend::Vendor, Some(unit), timed)
}

/// A floor in TB/s.
const fn terabytes(x: f64) -> Floor {
    Floor::Bandwidth(x * 1e12)
}

const MIXED: &str = "mixed int4 x f16, g=64, 3584x16x8192";
const W4A8_BATCH: &str = "W4A8, 256x2048x1024";
const W4A8_NARROW: &str = "W4A8, 256x128x2048";
const W4A8_ONE: &str = "W4A8, 1x8192x8192";
const FP8_4096: &str = "fp8 gemm, per tensor, 4096x4096x4096";
const FP8_8192: &str = "fp8 gemm, per tensor, 8192x8192x8192";
const GROUPED_16: &str = "fp8 grouped gemm, row-wise, 16 groups, 16384x8192x5120";
const GROUPED_8: &str = "fp8 grouped gemm, row-wise, 8 groups, 1024x4096x2048";

/// Everything that is timed, in the order of the table.
pub const ENTRIES: &[Entry] = &[
    ours(MIXED, Unit::F16, |g| mixed_stream::timed(g, 16, 3584, 8192, false)).at_least(Floor::Faster(Unit::Fp8)),
    ours(MIXED, Unit::F16, |g| mixed_stream::timed(g, 16, 3584, 8192, true)).at_least(Floor::Faster(Unit::Fp8)),
    library(MIXED, Unit::F16, |g| vendor::half(g, 16, 3584, 8192, Format::F16)),
    library(MIXED, Unit::Fp8, |g| vendor::fp8(g, 16, 3584, 8192, true)),
    ours(W4A8_BATCH, Unit::Int8, |g| w4a8_timed::timed(g, 256, 2048, 1024, None)).at_least(Floor::Faster(Unit::F16)),
    ours(W4A8_BATCH, Unit::Int8, |g| w4a8_timed::timed(g, 256, 2048, 1024, Some(128))).at_least(Floor::Faster(Unit::F16)),
    library(W4A8_BATCH, Unit::F16, |g| vendor::half(g, 256, 2048, 1024, Format::F16)),
    library(W4A8_BATCH, Unit::Int8, |g| vendor::int8(g, 256, 2048, 1024)),
    ours(W4A8_NARROW, Unit::Int8, |g| w4a8_timed::timed(g, 256, 128, 2048, None)).at_least(Floor::Faster(Unit::F16)),
    ours(W4A8_NARROW, Unit::Int8, |g| w4a8_timed::timed(g, 256, 128, 2048, Some(128))).at_least(Floor::Faster(Unit::F16)),
    library(W4A8_NARROW, Unit::F16, |g| vendor::half(g, 256, 128, 2048, Format::F16)),
    ours(W4A8_ONE, Unit::Int8, |g| w4a8_timed::timed(g, 1, 8192, 8192, None)).at_least(Floor::Faster(Unit::F16)),
    ours(W4A8_ONE, Unit::Int8, |g| w4a8_timed::timed(g, 1, 8192, 8192, Some(128))).at_least(Floor::Faster(Unit::F16)),
    library(W4A8_ONE, Unit::F16, |g| vendor::half(g, 1, 8192, 8192, Format::F16)),
    ours(FP8_4096, Unit::Fp8, |g| fp8_timed::gemm(g, 4096, 4096, 4096, false)).at_least(Floor::Share(0.6)),
    ours(FP8_4096, Unit::Fp8, |g| fp8_timed::gemm(g, 4096, 4096, 4096, true)),
    library(FP8_4096, Unit::Fp8, |g| vendor::fp8(g, 4096, 4096, 4096, true)),
    library(FP8_4096, Unit::Fp8, |g| vendor::fp8(g, 4096, 4096, 4096, false)),
    ours(FP8_8192, Unit::Fp8, |g| fp8_timed::gemm(g, 8192, 8192, 8192, false)).at_least(Floor::Share(0.6)),
    ours(FP8_8192, Unit::Fp8, |g| fp8_timed::gemm(g, 8192, 8192, 8192, true)),
    library(FP8_8192, Unit::Fp8, |g| vendor::fp8(g, 8192, 8192, 8192, true)),
    library(FP8_8192, Unit::Fp8, |g| vendor::fp8(g, 8192, 8192, 8192, false)),
    ours(GROUPED_16, Unit::Fp8, |g| fp8_timed::grouped(g, 16, 16384, 8192, 5120)).at_least(Floor::Share(0.6)),
    library(GROUPED_16, Unit::Fp8, |g| vendor::fp8_groups(g, 16, 16384, 8192, 5120)),
    ours(GROUPED_8, Unit::Fp8, |g| fp8_timed::grouped(g, 8, 1024, 4096, 2048)).at_least(Floor::Share(0.6)),
    library(GROUPED_8, Unit::Fp8, |g| vendor::fp8_groups(g, 8, 1024, 4096, 2048)),
    moves("swiglu to fp8, 8192x8192", |g| activation::timed(g, Act::Silu, 8192, 8192)).at_least(terabytes(3.2)),
    moves("geglu to fp8, 8192x8192", |g| activation::timed(g, Act::Gelu, 8192, 8192)),
    moves("rmsnorm to fp8, 8192x8192", |g| norm::timed(g, Op::Rmsnorm, 8192, 8192)).at_least(terabytes(3.2)),
    moves("layernorm to fp8, 8192x8192", |g| norm::timed(g, Op::Layernorm, 8192, 8192)),
    moves("cast_transpose_dbias_dgelu, 8192x8192", |g| dact::timed(g, Act::Gelu, false, 8192, 8192)),
    moves("dswiglu_cast_transpose, 8192x8192", |g| dact::timed(g, Act::Silu, true, 8192, 8192)),
    moves("cast, delayed, 8192x8192", |g| cast_timed::delayed(g, 8192, 8192)).at_least(terabytes(3.3)),
    moves("cast, current, 8192x8192", |g| cast_timed::current(g, 8192, 8192)),
    moves("cast_transpose, delayed, 8192x8192", |g| cast_timed::transpose(g, 8192, 8192)).at_least(terabytes(2.8)),
    moves("cast_transpose_dbias, delayed, 8192x8192", |g| cast_timed::dbias(g, 8192, 8192)),
    moves("cast, row-wise, 8192x8192", |g| cast_timed::row(g, 8192, 8192)).at_least(terabytes(3.3)),
    moves("cast, int8 per token, 8192x8192", |g| cast_timed::token(g, 8192, 8192)).at_least(terabytes(3.3)),
    moves("cast, 1x128, 8192x8192", |g| cast_timed::block(g, 8192, 8192, false, false)).at_least(terabytes(3.3)),
    moves("cast_transpose, 1x128, 8192x8192", |g| cast_timed::block(g, 8192, 8192, false, true)),
    moves("cast, 128x128, 8192x8192", |g| cast_timed::block(g, 8192, 8192, true, false)),
    moves("cast_transpose, 128x128, 8192x8192", |g| cast_timed::block(g, 8192, 8192, true, true)),
    moves("cast, MXFP8, 8192x8192", |g| cast_timed::mx(g, 8192, 8192, false, false)),
    moves("cast_transpose, MXFP8, 8192x8192", |g| cast_timed::mx(g, 8192, 8192, false, true)),
    moves("cast, NVFP4, 8192x8192", |g| cast_timed::mx(g, 8192, 8192, true, false)),
];

/// Who multiplies in a recipe, on which unit.
type Multiplier = (Backend, Unit, fn(&'static Gpu, [usize; 3]) -> Result<Timed>);

/// The recipes whose products are timed at any shape, and who multiplies in each.
const PRODUCTS: &[(&str, &[Multiplier])] = &[
    (
        "te_current",
        &[
            (Backend::Cuda, Unit::Fp8, |g, [m, n, k]| fp8_timed::gemm(g, m, n, k, false)),
            (Backend::Cuda, Unit::Fp8, |g, [m, n, k]| fp8_timed::gemm(g, m, n, k, true)),
            (Backend::Vendor, Unit::Fp8, |g, [m, n, k]| vendor::fp8(g, m, n, k, true)),
            (Backend::Vendor, Unit::Fp8, |g, [m, n, k]| vendor::fp8(g, m, n, k, false)),
        ],
    ),
    (
        "int8_token_sym+affine_sym:int4:g128",
        &[
            (Backend::Cuda, Unit::Int8, |g, [m, n, k]| w4a8_timed::timed(g, m, n, k, Some(128))),
            (Backend::Vendor, Unit::F16, |g, [m, n, k]| vendor::half(g, m, n, k, Format::F16)),
            (Backend::Vendor, Unit::Int8, |g, [m, n, k]| vendor::int8(g, m, n, k)),
        ],
    ),
    ("none", &[(Backend::Vendor, Unit::F16, |g, [m, n, k]| vendor::half(g, m, n, k, Format::Bf16))]),
];

/// The product of a recipe at these shapes, M×N×K. Errors: a recipe whose product is not timed; a size 0.
pub fn products(recipe: &str, shapes: &[[usize; 3]]) -> Result<Vec<Entry>> {
    let (_, all) = PRODUCTS
        .iter()
        .find(|p| p.0 == recipe)
        .ok_or_else(|| Error::unknown("recipe of a timed product", recipe, PRODUCTS.iter().map(|p| p.0)))?;
    let mut entries = Vec::new();
    for shape in shapes {
        let [m, n, k] = shape;
        if shape.contains(&0) {
            return Err(Error::shape("product", format!("{m}x{n}x{k}"), "no size 0"));
        }
        let group = format!("gemm, {recipe}, {m}x{n}x{k}");
        entries.extend(all.iter().map(|(backend, unit, timed)| Entry {
            group: group.clone().into(),
            backend: *backend,
            unit: Some(*unit),
            floor: None,
            work: Work::Product(*timed, *shape),
        }));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_any_shape_are_grouped_by_it() {
        let entries = products("te_current", &[[4096, 14336, 4096], [1, 2, 3]]).unwrap();
        assert_eq!((entries.len(), &*entries[0].group), (8, "gemm, te_current, 4096x14336x4096"));
        assert!(matches!(entries[7].work, Work::Product(_, [1, 2, 3])) && entries[7].backend == Backend::Vendor);
        assert!(products("te_current", &[[1, 0, 3]]).is_err());
        let unknown = products("mx_floor", &[]).err().unwrap().to_string();
        assert!(unknown.contains("mx_floor") && unknown.contains("te_current"), "{unknown}");
    }
}
