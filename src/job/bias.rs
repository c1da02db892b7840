//! What a bias adds to each element of a product.
//!
//! ```text
//! gemm           bias[j]
//! grouped_gemm   w[i]·bias[e(i), j]       e(i) the expert of row i, w[i] its weight, 1 without row_weights; 0 in a row of no expert
//! ```

use super::Job;
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

    /// That of a job whose result is `rows × cols`; zeros where it has none.
    pub fn of(job: &Job, (rows, cols): (usize, usize)) -> Self {
        let o = &job.operands;
        match o.bias.as_ref().filter(|_| job.op.is_product()) {
            Some(bias) => Self::new(bias, o.offs.as_deref(), o.row_weights.as_deref(), rows),
            None => Self::columns(vec![0.0; cols]),
        }
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
fn expert(ends: &[usize], i: usize) -> usize {
    ends.partition_point(|end| *end <= i)
}

impl Job {
    /// [`Biases::at`] of one element; 0 without a bias.
    pub fn bias_at(&self, i: usize, j: usize) -> f64 {
        let o = &self.operands;
        let Some(bias) = &o.bias else { return 0.0 };
        let e = o.offs.as_ref().map_or(0, |ends| expert(ends, i));
        let weight = o.row_weights.as_ref().map_or(1.0, |w| f64::from(w[i]));
        bias.data().get(e * bias.cols() + j).map_or(0.0, |b| f64::from(*b) * weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Operand, Operands, OutSpec};
    use crate::op::{Op, Params};
    use crate::{Format, Tensor};

    #[test]
    fn rows_have_the_bias_of_their_expert_by_their_weight() {
        let tensor = |rows: usize, data: &[f32]| Tensor::new(Format::F32, rows, data.len() / rows, data.to_vec()).unwrap();
        let (a, b) = (Operand::High(tensor(4, &[1.0; 4])), Operand::High(tensor(6, &[1.0; 6])));
        let mut operands = Operands::of(a, Some(b));
        operands.bias = Some(tensor(3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        operands.offs = Some(vec![1, 1, 3]);
        let mut job = Job {
            op: Op::GroupedGemm,
            params: Params::default(),
            operands,
            out: OutSpec::High(Format::F32),
            accumulator: None,
        };
        let same = |job: &Job, b: &Biases| assert!((0..8).all(|at| job.bias_at(at / 2, at % 2) == b.at(at / 2, at % 2)));
        let all = |b: &Biases| (0..4).map(|i| [b.at(i, 0), b.at(i, 1)]).collect::<Vec<_>>();
        // The second expert has no rows; the last row has no expert.
        assert_eq!(all(&Biases::of(&job, (4, 2))), [[1.0, 2.0], [5.0, 6.0], [5.0, 6.0], [0.0, 0.0]]);
        job.operands.row_weights = Some(vec![2.0, 0.5, 0.0, 3.0]);
        let weighted = Biases::of(&job, (4, 2));
        same(&job, &weighted);
        assert_eq!(all(&weighted), [[2.0, 4.0], [2.5, 3.0], [0.0, 0.0], [0.0, 0.0]]);
        assert_eq!(all(&weighted.unweighted().map(|x| -x))[1], [-5.0, -6.0]);
        assert_eq!((weighted.experts(), weighted.cols(), weighted.any()), (3, 2, true));
        job.operands.bias = None;
        assert!(!Biases::of(&job, (4, 2)).any());
    }
}
