//! What the events act on: a recipe's state with its shared scale_inv, and buffers of quantized data.

use super::StateSpec;
use crate::quant::QTensorParts;
use crate::recipe::delayed::{State, UpdateRule};
use crate::{Format, Granularity, QTensor, Result, Tensor};
use std::collections::BTreeMap;

/// The state of one recipe while a scenario runs.
#[derive(Clone, Debug)]
pub struct Slot {
    pub spec: StateSpec,
    pub delayed: State,
    /// scale_inv in the recipe: what [`super::Policy::Shared`] reads.
    pub live: Vec<f32>,
    /// Scales by version: after so many updates, or (recipes without updates) at that quantization.
    pub log: Vec<Vec<f64>>,
    /// The last bytes made in each version.
    pub bytes: BTreeMap<usize, QTensor>,
    /// The version that the step began with.
    pub begin: usize,
}

impl Slot {
    pub fn new(spec: &StateSpec) -> Result<Self> {
        let delayed = State::new(spec.history)?;
        let log = if spec.is_delayed() { vec![vec![f64::from(delayed.scale)]] } else { Vec::new() };
        Ok(Self { spec: spec.clone(), delayed, live: vec![1.0], log, bytes: BTreeMap::new(), begin: 0 })
    }

    /// The version that a quantization now has.
    pub fn version(&self) -> usize {
        if self.spec.is_delayed() { self.log.len() - 1 } else { self.log.len() }
    }

    /// The rule by which bytes are made; updates follow `spec.rule`, which may aim at another format.
    fn bytes_rule(&self) -> UpdateRule {
        UpdateRule { format: self.spec.recipe.format, ..self.spec.rule }
    }

    /// Bytes of `x`, each `groups`-th part of its columns by itself where `groups` > 1.
    pub fn quantize(&mut self, x: &Tensor, groups: usize) -> Result<Made> {
        let version = self.version();
        let (q, scale) = if self.spec.is_delayed() {
            let made = self.delayed.quantize(&self.bytes_rule(), x)?;
            (made.q, made.scale)
        } else if groups > 1 {
            by_groups(&self.spec.recipe, x, groups)?
        } else {
            let made = self.spec.recipe.quantize(x)?;
            (made.q, made.scale)
        };
        let made = Made::new(q, scale);
        self.bytes.insert(version, made.q.clone());
        self.written(&made);
        Ok(made)
    }

    /// A recipe without updates has the scales of the last bytes.
    fn written(&mut self, made: &Made) {
        if !self.spec.is_delayed() {
            self.log.push(made.scale.clone());
            self.live = made.q.scale_inv().to_vec();
        }
    }

    /// Bytes of `x` by a scale from elsewhere; the amax is observed all the same.
    pub fn quantize_with(&mut self, x: &Tensor, scale: f32) -> Result<Made> {
        let mut other = State { scale, scale_inv: 1.0 / scale, history: vec![0.0] };
        let made = other.quantize(&self.bytes_rule(), x)?;
        self.delayed.observe(made.amax[0]);
        let made = Made::new(made.q, made.scale);
        self.written(&made);
        Ok(made)
    }

    /// The recipe update.
    pub fn update(&mut self, fused: bool, reduced: Option<f32>, keep: bool) {
        let running = self.delayed.history[0];
        if fused {
            self.delayed.update_fused(&self.spec.rule, reduced);
        } else {
            self.delayed.update_unfused(&self.spec.rule);
        }
        if keep {
            self.delayed.history[0] = running;
        }
        self.moved();
        if !self.spec.late {
            self.refresh();
        }
    }

    /// A new version of the scale.
    pub fn moved(&mut self) {
        self.log.push(vec![f64::from(self.delayed.scale)]);
    }

    /// Writes the shared scale_inv.
    pub fn refresh(&mut self) {
        self.live = vec![1.0 / self.delayed.scale];
    }
}

/// Bytes just made, with the scales that made them (1/scale_inv where the recipe has none).
pub struct Made {
    pub q: QTensor,
    pub scale: Vec<f64>,
}

impl Made {
    fn new(q: QTensor, scale: Option<Vec<f32>>) -> Self {
        let scale = match scale {
            Some(s) if q.level().is_none() => s.iter().map(|s| f64::from(*s)).collect(),
            _ => (0..q.scale_inv().len()).map(|s| 1.0 / q.affine(s).unit).collect(),
        };
        Self { q, scale }
    }
}

/// Equal groups of columns quantized by themselves, one scale a row and group: granularity 1 × columns of a group.
fn by_groups(recipe: &crate::recipe::Recipe, x: &Tensor, groups: usize) -> Result<(QTensor, Option<Vec<f32>>)> {
    let (rows, width) = (x.rows(), x.cols() / groups);
    let mut codes = vec![0; rows * x.cols()];
    let (mut scale_inv, mut scale) = (vec![0.0; rows * groups], vec![0.0; rows * groups]);
    let mut parts = None;
    for g in 0..groups {
        let columns: Vec<f32> = (0..rows).flat_map(|i| &x.row(i)[g * width..(g + 1) * width]).copied().collect();
        let made = recipe.quantize(&Tensor::new(x.dtype(), rows, width, columns)?)?;
        for i in 0..rows {
            codes[i * x.cols() + g * width..][..width].copy_from_slice(&made.q.codes()[i * width..(i + 1) * width]);
            let tile = made.q.scale_index(i, 0);
            scale_inv[i * groups + g] = made.q.scale_inv()[tile];
            scale[i * groups + g] = made.scale.as_ref().map_or(1.0 / made.q.scale_inv()[tile], |s| s[tile]);
        }
        parts = Some(made.q.into_parts());
    }
    let parts = parts.ok_or_else(|| crate::Error::value("groups", 0, "at least 1"))?;
    let q = QTensor::new(QTensorParts { cols: x.cols(), codes, granularity: Granularity::Group(width), scale_inv, ..parts })?;
    Ok((q, Some(scale)))
}

/// Quantized data in memory.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The bytes with the scale_inv that belongs to them.
    pub q: QTensor,
    /// The scales that made them, one a tile.
    pub made: Vec<f64>,
    /// The state whose scale_inv a reader takes where none is packaged.
    pub state: String,
    /// The version of that state in which they were made.
    pub version: usize,
    /// The packaged scale_inv, as it is in memory.
    pub packaged: Vec<f32>,
    /// What the last forward cloned.
    pub cloned: Option<Vec<f32>>,
    /// The values they stand for.
    pub x: Tensor,
    /// Rows are what were columns: a transposed or column-wise copy.
    pub turned: bool,
    /// A transposed copy of this buffer.
    pub of: Option<String>,
    /// What the bytes should have been, where an event broke its promise.
    pub intended: Option<QTensor>,
    /// What was quantized first, where this was quantized from it; in the same orientation.
    pub first: Option<Box<Buffer>>,
}

impl Buffer {
    pub fn new(made: Made, x: Tensor, state: &str, version: usize, turned: bool) -> Self {
        let packaged = made.q.scale_inv().to_vec();
        Self {
            q: made.q,
            made: made.scale,
            state: state.into(),
            version,
            packaged,
            cloned: None,
            x,
            turned,
            of: None,
            intended: None,
            first: None,
        }
    }

    /// The bytes with another scale_inv: element e of a tile's vector is `scale_inv[e mod length]`. Kept in f32 where the format
    /// of the scales does not hold it.
    pub fn read_with(&self, granularity: Granularity, scale_inv: &[f32]) -> Result<QTensor> {
        let (rows, cols) = granularity.grid(self.q.rows(), self.q.cols());
        let scale_inv: Vec<f32> = (0..rows * cols).map(|i| scale_inv[i % scale_inv.len()]).collect();
        let with = |scale_format| {
            let parts = QTensorParts { granularity, scale_inv: scale_inv.clone(), scale_format, ..self.q.clone().into_parts() };
            QTensor::new(parts)
        };
        with(self.q.scale_format()).or_else(|_| with(Format::F32))
    }
}
