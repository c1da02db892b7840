//! The bias of a job: [`Biases`] of its operands.

use super::Job;
use crate::op::Biases;
use crate::op::bias::expert;

impl Biases {
    /// That of a job whose result is `rows × cols`; zeros where it has none.
    pub fn of(job: &Job, (rows, cols): (usize, usize)) -> Self {
        let o = &job.operands;
        match o.bias.as_ref().filter(|_| job.op.is_product()) {
            Some(bias) => Self::new(bias, o.offs.as_deref(), o.row_weights.as_deref(), rows),
            None => Self::columns(vec![0.0; cols]),
        }
    }
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
