//! Tensors that move: a batch a step, or a weight that an optimizer changes; amplitudes that drift, spike, or meet an Inf.

use crate::input::{Source, math};
use crate::{Format, Result, Tensor};

/// A tensor as a function of its version: the step for a batch, the number of updates for a weight.
#[derive(Clone, Debug)]
pub struct Moving {
    pub name: String,
    pub source: Source,
    pub rows: usize,
    pub cols: usize,
    pub weight: bool,
    pub gain: f64,
    pub drift: f64,
    pub wobble: f64,
    pub spike: Vec<usize>,
    pub spike_by: f64,
    pub inf: Vec<usize>,
    pub dtype: Format,
    /// Which random numbers are its own: tensors that are `from` another share it.
    pub stream: u32,
}

/// Purposes of random numbers that are not elements.
const WOBBLE: u32 = 0x51;

impl Moving {
    /// The values of version `version`; `changes` are the sizes of the optimizer's steps so far (weights), in root mean squares.
    ///
    /// ```text
    /// amplitude = gain · drift^version · exp(wobble · n)      n normal, one a version
    /// batch:    rows version·rows … of the source, or another draw
    /// weight:   w + Σ rate_u · rms(w) · n_u
    /// ```
    ///
    /// At a spike the first element is ±spike_by times the largest magnitude; at an Inf it is Inf.
    pub fn at(&self, version: usize, seed: u64, changes: &[f64]) -> Result<Tensor> {
        let (rows, cols) = (self.rows, self.cols);
        let mut values: Vec<f64> = self.base(version, seed)?.data().iter().map(|x| f64::from(*x)).collect();
        if self.weight {
            let rms = (values.iter().map(|x| x * x).sum::<f64>() / values.len().max(1) as f64).sqrt();
            for (u, rate) in changes.iter().enumerate() {
                let step: Source = "normal".parse()?;
                let step = step.tensor(Format::F32, rows, cols, seed + 1 + u as u64, self.stream + 1000)?;
                values.iter_mut().zip(step.data()).for_each(|(v, d)| *v += rate * rms * f64::from(*d));
            }
        }
        let amplitude = self.amplitude(version, seed);
        values.iter_mut().for_each(|v| *v *= amplitude);
        if self.spike.contains(&version) {
            let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            values[0] = largest * self.spike_by * if values[0] < 0.0 { -1.0 } else { 1.0 };
        }
        if self.inf.contains(&version) {
            values[0] = f64::INFINITY;
        }
        Tensor::rounded(self.dtype, rows, cols, values.iter().map(|v| *v as f32).collect())
    }

    fn base(&self, version: usize, seed: u64) -> Result<Tensor> {
        let version = if self.weight { 0 } else { version };
        match &self.source {
            Source::Real(real) => real.moved(version * self.rows, 0).window(Format::F32, self.rows, self.cols),
            synthetic => synthetic.tensor(Format::F32, self.rows, self.cols, seed + version as u64, self.stream),
        }
    }

    fn amplitude(&self, version: usize, seed: u64) -> f64 {
        let words = crate::input::philox::Stream::new(seed, self.stream).words(WOBBLE, version as u64);
        let mut amplitude = self.gain * math::exp(self.wobble * math::normal(words[0]));
        for _ in 0..version {
            amplitude *= self.drift;
        }
        amplitude
    }
}
