//! What a bias adds to each element of a product.
//!
//! ```text
//! gemm           bias[j]
//! grouped_gemm   w[i]·bias[e(i), j]       e(i) the expert of row i, w[i] its weight, 1 without row_weights; 0 in a row of no expert
//! ```

use crate::Tensor;
use std::sync::Arc;

/// A bias of each row and column, in f64. Cheap to copy.
#[derive(Clone, Debug)]
pub struct Biases {
    /// One row for each expert.
    values: Arc<Vec<f64>>,
    cols: usize,
    /// The expert of each row, one beyond the last for a row of none; empty: all rows have the first.
    experts: Arc<Vec<usize>>,
    /// What the bias of each row is multiplied by; empty: nothing.
    weights: Arc<Vec<f64>>,
}

impl Biases {
    /// One number a column, for all rows.
    pub fn columns(values: Vec<f64>) -> Self {
        let cols = values.len();
        Self { values: Arc::new(values), cols, experts: Arc::default(), weights: Arc::default() }
    }

    /// Of `rows` rows in groups with these ends, by the weights of rows.
    pub fn new(bias: &Tensor, ends: Option<&[usize]>, weights: Option<&[f32]>, rows: usize) -> Self {
        let wide = |of: &[f32]| of.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let experts = ends.map(|ends| (0..rows).map(|i| expert(ends, i)).collect());
        Self {
            values: Arc::new(wide(bias.data())),
            cols: bias.cols(),
            experts: Arc::new(experts.unwrap_or_default()),
            weights: Arc::new(weights.map(wide).unwrap_or_default()),
        }
    }

    /// What is added to element (i, j), weighted.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.of_expert(self.expert(i), j) * self.weight(i)
    }
    /// What is stored for column j of an expert; 0 of no expert.
    pub fn of_expert(&self, e: usize, j: usize) -> f64 {
        self.values.get(e * self.cols + j).copied().unwrap_or(0.0)
    }
    /// The expert of a row.
    pub fn expert(&self, i: usize) -> usize {
        self.experts.get(i).copied().unwrap_or(0)
    }
    /// How many rows are stored.
    pub fn experts(&self) -> usize {
        self.values.len().checked_div(self.cols).unwrap_or(0)
    }
    /// How many columns it has.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// What the bias of a row is multiplied by.
    pub fn weight(&self, i: usize) -> f64 {
        self.weights.get(i).copied().unwrap_or(1.0)
    }
    /// Whether rows have weights.
    pub fn is_weighted(&self) -> bool {
        !self.weights.is_empty()
    }
    /// The same, without weights of rows.
    pub fn unweighted(&self) -> Self {
        Self { weights: Arc::default(), ..self.clone() }
    }
    /// Weights of rows times these.
    pub fn times(&self, by: &[f64]) -> Self {
        let weights = by.iter().enumerate().map(|(i, by)| self.weight(i) * by).collect();
        Self { weights: Arc::new(weights), ..self.clone() }
    }
    /// What is stored, expert by expert.
    pub fn stored(&self) -> &[f64] {
        &self.values
    }
    /// Other numbers in the place of those that are stored.
    pub fn map(&self, of: impl Fn(f64) -> f64) -> Self {
        self.with(self.values.iter().map(|x| of(*x)).collect())
    }
    /// These numbers, expert by expert.
    pub fn with(&self, values: Vec<f64>) -> Self {
        Self { values: Arc::new(values), ..self.clone() }
    }
    /// Whether anything is added.
    pub fn any(&self) -> bool {
        self.values.iter().any(|x| *x != 0.0)
    }
}

/// The group of a row, one beyond the last for a row of none.
pub(crate) fn expert(ends: &[usize], i: usize) -> usize {
    ends.partition_point(|end| *end <= i)
}
