//! The second level of scales: scales that are quantized themselves, under a grid of their own.

use super::{Granularity, Zero};
use crate::{Error, Format, Overflow, Result, Rounding};

/// What scales may be stored in.
pub const SCALE_FORMATS: &[Format] = &[Format::F32, Format::F16, Format::Bf16, Format::E8m0, Format::E4m3, Format::Uint6];

/// What the scales of a tensor are multiplied by; a scale is then `scale_inv · level.scale_inv` of its tile of the grid of scales.
///
/// | | over the grid of scales | scales | zero points |
/// |---|---|---|---|
/// | NVFP4 | 1×1 (`tensor`) | e4m3 under f32 | none |
/// | GGUF Q4_K | 1×8 (`group:8`) | uint6 under f16 | six bits under a second f16 |
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Which scales share one: tiles of the grid of scales.
    pub granularity: Granularity,
    /// One of [`SCALE_FORMATS`]; the numbers below are values of it.
    pub format: Format,
    /// Row-major over [`Granularity::grid`] of the grid of scales.
    pub scale_inv: Vec<f32>,
    /// What additive zero points are multiplied by, over the same grid; `None`: they are in real units.
    pub zero: Option<Vec<f32>>,
}

impl Level {
    /// One f32 for the whole tensor.
    pub fn whole(scale_inv: f32) -> Self {
        Self { granularity: Granularity::Tensor, format: Format::F32, scale_inv: vec![scale_inv], zero: None }
    }
    /// Whether it is one number for the whole tensor.
    pub fn is_whole(&self) -> bool {
        self.granularity == Granularity::Tensor && self.zero.is_none()
    }
    /// Index into `scale_inv` for scale `s` of a grid of scales of this shape.
    pub(super) fn index(&self, s: usize, (rows, cols): (usize, usize)) -> usize {
        let ((r, c), (_, grid_cols)) = (self.granularity.tile(rows, cols), self.granularity.grid(rows, cols));
        (s / cols.max(1)) / r * grid_cols + (s % cols.max(1)) / c
    }
    /// Errors: tiles of nothing, lengths that do not fit the grid of scales, numbers that the format does not have, zero points of another
    /// kind than additive.
    pub(super) fn check(&self, rows: usize, cols: usize, zero: &Zero) -> Result<()> {
        if matches!(self.granularity.tile(rows, cols), (0, _) | (_, 0)) {
            return Err(Error::value(
                "granularity of the second level",
                self.granularity,
                "tiles of at least one row and column",
            ));
        }
        if self.zero.is_some() && !matches!(zero, Zero::Additive { .. }) {
            return Err(Error::value("second level of zero points", "one", "none where zero points are not additive"));
        }
        let (r, c) = self.granularity.grid(rows, cols);
        for (what, values) in
            [("scale_inv of the second level", Some(&self.scale_inv)), ("its zero points", self.zero.as_ref())]
        {
            let Some(values) = values else { continue };
            if values.len() != r * c {
                let want = format!("{r}×{c} for {} of {rows}×{cols} scales", self.granularity);
                return Err(Error::shape(what, format!("{} values", values.len()), want));
            }
            check_scales(what, self.format, values)?;
        }
        Ok(())
    }
    /// The level of the transposed tensor, whose grid of scales was `rows × cols`.
    pub(super) fn transposed(self, rows: usize, cols: usize) -> Self {
        let ((r, c), (gr, gc)) = (self.granularity.tile(rows, cols), self.granularity.grid(rows, cols));
        let turn = |v: Vec<f32>| (0..gc).flat_map(|j| (0..gr).map(move |i| (i, j))).map(|(i, j)| v[i * gc + j]).collect();
        let granularity = match self.granularity {
            Granularity::Tensor => Granularity::Tensor,
            _ => Granularity::Block { rows: c, cols: r },
        };
        Self { granularity, scale_inv: turn(self.scale_inv), zero: self.zero.map(turn), ..self }
    }
}

/// Errors: no format of scales; a scale that the format would round (NaN is allowed).
pub(super) fn check_scales(what: &str, format: Format, values: &[f32]) -> Result<()> {
    if !SCALE_FORMATS.contains(&format) {
        let known = SCALE_FORMATS.iter().map(|f| f.name()).collect::<Vec<_>>().join(", ");
        return Err(Error::value(format!("format of {what}"), format, format!("one of {known}")));
    }
    let held = |x: f64| format.decode(format.encode(x, Rounding::NearestEven, Overflow::Native)) == x;
    match values.iter().find(|x| format != Format::F32 && !x.is_nan() && !held(f64::from(**x))) {
        Some(x) => Err(Error::value(what, format!("{x:e}"), format!("a value that {format} holds exactly"))),
        None => Ok(()),
    }
}
