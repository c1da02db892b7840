//! What is timed: the shapes that matter, ours and the vendor's side by side.

use super::{cast_timed, fp8_timed, vendor_timed as vendor, w4a8_timed};
use crate::Format;
use crate::Result;
use crate::kernel::Backend;
use crate::kernel::cuda::launch::Gpu;
use crate::kernel::cuda::timed::Timed;
use crate::kernel::cuda::{activation, dact, mixed_stream, norm};
use crate::op::{Act, Op};

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
    pub group: &'static str,
    pub backend: Backend,
    /// `None`: its bytes alone count.
    pub unit: Option<Unit>,
    pub floor: Option<Floor>,
    pub timed: fn(&'static Gpu) -> Result<Timed>,
}

impl Entry {
    const fn at_least(self, floor: Floor) -> Self {
        Self { floor: Some(floor), ..self }
    }
}

const fn ours(group: &'static str, unit: Unit, timed: fn(&'static Gpu) -> Result<Timed>) -> Entry {
    Entry { group, backend: Backend::Cuda, unit: Some(unit), floor: None, timed }
}

/// A kernel whose bytes alone count.
const fn moves(group: &'static str, timed: fn(&'static Gpu) -> Result<Timed>) -> Entry {
    Entry { group, backend: Backend::Cuda, unit: None, floor: None, timed }
}

const fn library(group: &'static str, unit: Unit, timed: fn(&'static Gpu) -> Result<Timed>) -> Entry {
    Entry { group, backend: Backend::Vendor, unit: Some(unit), floor: None, timed }
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
    ours(MIXED, Unit::F16, |g| mixed_stream::timed(g, 16, 3584, 8192)).at_least(Floor::Faster(Unit::Fp8)),
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
