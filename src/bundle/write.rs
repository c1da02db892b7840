//! Bundles written: for tests, examples and the cases handed to a candidate process.

use super::operand::{BundleOperand, Codes};
use crate::format::pack::{NibbleOrder, pack4};
use crate::quant::Level;
use crate::{Error, Format, Granularity, Overflow, QTensor, Result, Rounding, Tensor, Zero};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::collections::BTreeMap;
use std::path::Path;

/// A tensor as it will lie in the file: dtype, shape, bytes.
pub type Stored = (Dtype, Vec<usize>, Vec<u8>);

/// A bundle being put together.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, Stored>,
}

impl Writer {
    /// With `qassay.bundle` = 1 and this op.
    pub fn new(op: &str) -> Writer {
        let mut w = Writer::default();
        w.meta("qassay.bundle", "1").meta("op", op);
        w
    }
    /// Sets a metadata key.
    pub fn meta(&mut self, key: &str, value: impl ToString) -> &mut Writer {
        self.metadata.insert(key.into(), value.to_string());
        self
    }
    /// The metadata so far.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
    /// The tensors so far: dtype, shape, bytes.
    pub fn tensors(&self) -> &BTreeMap<String, Stored> {
        &self.tensors
    }
    /// Sets a tensor as it is.
    pub fn raw(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> &mut Writer {
        self.tensors.insert(name.into(), (dtype, shape.to_vec(), bytes));
        self
    }
    /// Leaves a tensor or a key out.
    pub fn without(&mut self, name: &str) -> &mut Writer {
        self.tensors.remove(name);
        self.metadata.remove(name);
        self
    }
    /// f32 values.
    pub fn f32s(&mut self, name: &str, shape: &[usize], values: &[f32]) -> &mut Writer {
        self.raw(name, Dtype::F32, shape, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }
    /// i32 values.
    pub fn i32s(&mut self, name: &str, shape: &[usize], values: &[i32]) -> &mut Writer {
        self.raw(name, Dtype::I32, shape, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }
    /// Unquantized values in their dtype.
    pub fn values(&mut self, name: &str, shape: &[usize], t: &Tensor) -> &mut Writer {
        self.raw(name, dtype(t.dtype()), shape, t.bits())
    }

    /// Codes at `x` (`a`, `b`, `out`) with scales, zero points and metadata; with `experts`, the rows of each under a leading axis.
    /// Errors: zero points with a middle that does not fold into them, packing of an odd row or of other than four bits.
    pub fn codes(&mut self, x: &str, q: &QTensor, experts: Option<usize>, packing: Option<NibbleOrder>) -> Result<&mut Writer> {
        let (rows, cols) = (q.rows(), q.cols());
        let lead = |rest: &[usize]| -> Vec<usize> { experts.into_iter().chain(rest.iter().copied()).collect() };
        let n = rows / experts.unwrap_or(1).max(1);
        let (bytes, width) = match packing {
            Some(order) if cols.is_multiple_of(2) => (pack4(q.codes(), order)?, cols / 2),
            Some(_) => {
                return Err(Error::shape(format!("{x}.codes"), format!("{cols} columns"), "an even number to be packed"));
            }
            None => (q.codes().to_vec(), cols),
        };
        let stored = match (packing, q.format()) {
            (None, Format::Int8) => Dtype::I8,
            (None, f) if f.is_fp8() => dtype(f),
            _ => Dtype::U8,
        };
        let (grid_rows, grid_cols) = q.granularity().grid(rows, cols);
        let per_expert = grid_rows / experts.unwrap_or(1).max(1);
        let (granularity, grid) = match (q.granularity(), experts) {
            (Granularity::Tensor, None) => (Granularity::Tensor, vec![1]),
            // One tile an expert.
            (Granularity::Block { rows: r, .. }, Some(_)) if r == n && grid_cols == 1 => (Granularity::Tensor, lead(&[1])),
            (Granularity::Tensor, Some(e)) => {
                let mut spread = q.clone().into_parts();
                spread.granularity = Granularity::Block { rows: n, cols };
                spread.scale_inv = vec![q.scale_inv()[0]; e];
                spread.zero = match q.zero() {
                    Zero::None => Zero::None,
                    Zero::Integer(z) => Zero::Integer(vec![z[0]; e]),
                    Zero::Additive { zero, mid } => Zero::Additive { zero: vec![zero[0]; e], mid: *mid },
                };
                return self.codes(x, &QTensor::new(spread)?, experts, packing);
            }
            (Granularity::Row, _) => (Granularity::Row, lead(&[n])),
            (g, _) => (g, lead(&[per_expert, grid_cols])),
        };
        self.raw(&format!("{x}.codes"), stored, &lead(&[n, width]), bytes);
        self.meta(&format!("{x}.format"), q.format()).meta(&format!("{x}.granularity"), granularity);
        self.meta(&format!("{x}.packing"), packing.map_or("none", NibbleOrder::name));
        self.scales(x, q, &grid)?;
        if let Some(level) = q.level() {
            self.level(x, level, level.granularity.grid(grid_rows, grid_cols), experts)?;
        }
        Ok(self)
    }

    /// The second level of scales, over its grid.
    fn level(&mut self, x: &str, level: &Level, (rows, cols): (usize, usize), experts: Option<usize>) -> Result<()> {
        // One number an expert has no granularity of its own.
        let each = experts.is_some_and(|e| e == rows) && cols == 1;
        let shape = if level.is_whole() || each { vec![rows] } else { vec![rows, cols] };
        if !level.is_whole() && !each {
            self.meta(&format!("{x}.global_granularity"), level.granularity);
        }
        for (name, values) in [("global_scale_inv", Some(&level.scale_inv)), ("global_zero_point", level.zero.as_ref())] {
            let Some(values) = values else { continue };
            let t = Tensor::new(level.format, 1, values.len(), values.clone())?;
            self.values(&format!("{x}.{name}"), &shape, &t);
        }
        Ok(())
    }

    /// scale_inv and zero points.
    fn scales(&mut self, x: &str, q: &QTensor, shape: &[usize]) -> Result<()> {
        let encode = |s: &f32| q.scale_format().encode(f64::from(*s), Rounding::NearestEven, Overflow::Native);
        let bytes = match q.scale_format() {
            Format::F32 => q.scale_inv().iter().flat_map(|s| s.to_le_bytes()).collect(),
            Format::F16 | Format::Bf16 => q.scale_inv().iter().flat_map(|s| (encode(s) as u16).to_le_bytes()).collect(),
            _ => q.scale_inv().iter().map(|s| encode(s) as u8).collect(),
        };
        self.meta(&format!("{x}.scale_format"), q.scale_format());
        self.raw(&format!("{x}.scale_inv"), dtype(q.scale_format()), shape, bytes);
        let name = format!("{x}.zero_point");
        match q.zero() {
            Zero::None => {}
            Zero::Integer(z) => {
                self.meta(&format!("{x}.zero"), "integer").i32s(&name, shape, z);
            }
            Zero::Additive { mid, .. } if *mid != 0 && q.level().is_some() => {
                return Err(Error::unsupported("a bundle", format!("zero points about code {mid} under a second level")));
            }
            Zero::Additive { zero, mid } => {
                // (code − mid)·s + z = code·s + (z − mid·s), where that is a number of f32.
                let folded: Vec<f64> =
                    zero.iter().zip(q.scale_inv()).map(|(z, s)| f64::from(*z) - f64::from(*mid) * f64::from(*s)).collect();
                if let Some(z) = folded.iter().find(|z| f64::from(**z as f32) != **z) {
                    return Err(Error::unsupported("a bundle", format!("the zero point {z:e} about code 0 is no f32")));
                }
                let folded: Vec<f32> = folded.iter().map(|z| *z as f32).collect();
                self.meta(&format!("{x}.zero"), "additive").f32s(&name, shape, &folded);
            }
        }
        Ok(())
    }

    /// An operand: values, codes, earlier scales.
    pub fn side(
        &mut self,
        x: &str,
        side: &BundleOperand,
        experts: Option<usize>,
        packing: Option<NibbleOrder>,
    ) -> Result<&mut Writer> {
        if let Some(t) = &side.high {
            let n = t.rows() / experts.unwrap_or(1).max(1);
            let shape: Vec<usize> = experts.into_iter().chain([n, t.cols()]).collect();
            self.values(x, &shape, t);
        }
        match &side.codes {
            None => {}
            Some(Codes::Whole(q)) => {
                self.codes(x, q, experts, packing)?;
            }
            Some(Codes::Groups(groups)) => self.groups(x, groups)?,
        }
        if !side.history.is_empty() {
            self.f32s(&format!("{x}.scale_history"), &[side.history.len()], &side.history);
        }
        Ok(self)
    }

    /// Columns of groups quantized by themselves, one set of scales each.
    fn groups(&mut self, x: &str, groups: &[QTensor]) -> Result<()> {
        let Some(first) = groups.first() else { return Ok(()) };
        let rows = first.rows();
        let one = first.granularity() == Granularity::Tensor;
        if groups
            .iter()
            .any(|q| (q.granularity() == Granularity::Tensor) != one || q.scale_inv().len() != if one { 1 } else { rows })
        {
            return Err(Error::unsupported("a bundle", "groups of columns have one scale, or one a row"));
        }
        let codes: Vec<u8> = (0..rows)
            .flat_map(|i| groups.iter().flat_map(move |q| &q.codes()[i * q.cols()..(i + 1) * q.cols()]))
            .copied()
            .collect();
        let tokens: usize = groups.iter().map(QTensor::cols).sum();
        let stored = if first.format().is_fp8() { dtype(first.format()) } else { Dtype::U8 };
        self.raw(&format!("{x}.codes"), stored, &[rows, tokens], codes).meta(&format!("{x}.format"), first.format());
        self.meta(&format!("{x}.granularity"), if one { "tensor" } else { "row" });
        let scales: Vec<f32> = groups.iter().flat_map(|q| q.scale_inv()).copied().collect();
        self.f32s(&format!("{x}.scale_inv"), &[groups.len(), if one { 1 } else { rows }], &scales);
        Ok(())
    }

    /// The file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut views = Vec::with_capacity(self.tensors.len());
        for (name, (dtype, shape, bytes)) in &self.tensors {
            let view = TensorView::new(*dtype, shape.clone(), bytes)
                .map_err(|_| Error::shape(name.clone(), format!("{} bytes", bytes.len()), format!("{shape:?} of {dtype:?}")))?;
            views.push((name, view));
        }
        // Its map is std's or hashbrown's, by its features.
        let metadata = self.metadata.clone().into_iter().collect();
        safetensors::serialize(views, Some(metadata)).map_err(|e| Error::unsupported("safetensors", e.to_string()))
    }

    /// Writes the file.
    pub fn save(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.to_bytes()?).map_err(|e| Error::io(path, e, "name a folder that can be written"))
    }
}

/// How safetensors calls a format.
fn dtype(format: Format) -> Dtype {
    match format {
        Format::F32 => Dtype::F32,
        Format::F16 => Dtype::F16,
        Format::Bf16 => Dtype::BF16,
        Format::E4m3 => Dtype::F8_E4M3,
        Format::E5m2 => Dtype::F8_E5M2,
        Format::E4m3Fnuz => Dtype::F8_E4M3FNUZ,
        Format::E5m2Fnuz => Dtype::F8_E5M2FNUZ,
        Format::E8m0 => Dtype::F8_E8M0,
        Format::Int8 => Dtype::I8,
        _ => Dtype::U8,
    }
}
