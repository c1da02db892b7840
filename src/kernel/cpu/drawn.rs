//! The CPU kernels are the bulk form of the model, so their judge is the definition, element by element: all of a small product, a drawn
//! sample of rows and columns of a large one.

use crate::input::philox::Stream;
use crate::job::{Data, Job, Output};
use crate::model::gemm;
use crate::model::product::Plan;
use crate::{QTensor, Result, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};

/// Products of factors that the definition computes for one case; a product of fewer is computed whole.
pub const MOST: usize = 1 << 23;

static WHOLE: AtomicBool = AtomicBool::new(false);

/// Has every element of every product computed by its definition from now on, however long that takes.
pub fn by_definition_alone() {
    WHOLE.store(true, Ordering::Relaxed);
}

/// Rows and columns of a result: the elements where they meet are held to the definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// Ascending.
    pub rows: Vec<usize>,
    pub cols: Vec<usize>,
    /// Rows and columns of the result.
    pub of: (usize, usize),
}

impl Drawn {
    /// The sample of a product `m × n` of sums of `k`: `None` where all of it is few enough. The first and the last row and column, where
    /// tiles end, and others by Philox from the shape: the same rows and columns on every machine.
    pub fn of((m, n, k): (usize, usize, usize)) -> Option<Self> {
        if m.saturating_mul(n).saturating_mul(k) <= MOST || WHOLE.load(Ordering::Relaxed) {
            return None;
        }
        // As many rows as columns, but where there are fewer.
        let elements = MOST / k.max(1);
        let rows = elements.isqrt().max(2).min(m);
        let cols = (elements / rows).max(2).min(n);
        let rows = (elements / cols).max(2).min(m);
        let lines = |count: usize, of: usize, purpose: u32| {
            if count == of {
                return (0..of).collect();
            }
            let stream = Stream::new((m as u64) << 40 ^ (n as u64) << 20 ^ k as u64, 0);
            let mut drawn = vec![0, of - 1];
            drawn.extend((2..count).map(|i| stream.words(purpose, i as u64)[0] as usize % of));
            drawn.sort_unstable();
            drawn.dedup();
            drawn
        };
        Some(Self { rows: lines(rows, m, 0), cols: lines(cols, n, 1), of: (m, n) })
    }
    /// How many elements.
    pub fn count(&self) -> usize {
        self.rows.len() * self.cols.len()
    }
    /// Row and column of each element.
    pub fn elements(&self) -> Vec<(usize, usize)> {
        self.rows.iter().flat_map(|i| self.cols.iter().map(move |j| (*i, *j))).collect()
    }
}

/// What the definition returns for `job`, and where: all of it, or at the drawn rows and columns, the rest as in `output`.
pub fn predict(job: &Job, output: &Output) -> Result<(Output, Option<Drawn>)> {
    let plan = Plan::of(job)?;
    let k = plan.problems().map(|p| p.a.k).max().unwrap_or(0);
    let Some(drawn) = Drawn::of((plan.rows, plan.cols, k)) else {
        return Ok((gemm::predict(job)?, None));
    };
    let elements = drawn.elements();
    let defined = gemm::predict_at(job, &plan, &elements)?;
    let mut model = output.clone();
    let at = elements.iter().map(|(i, j)| i * plan.cols + j);
    model.parts[0].d = match (&defined.d, &output.parts[0].d) {
        (Data::High(few), Data::High(all)) => {
            let mut data = all.data().to_vec();
            at.zip(few.data()).for_each(|(at, x)| data[at] = *x);
            Data::High(Tensor::new(few.dtype(), plan.rows, plan.cols, data)?)
        }
        (Data::Quantized(few), Data::Quantized(all)) => {
            let mut parts = all.clone().into_parts();
            at.zip(few.codes()).for_each(|(at, code)| parts.codes[at] = *code);
            parts.scale_inv = few.scale_inv().to_vec();
            Data::Quantized(QTensor::new(parts)?)
        }
        (defined, _) => defined.clone(),
    };
    Ok((model, Some(drawn)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Sweep, assay, build};
    use std::path::Path;

    #[test]
    fn a_sample_has_each_element_once_and_the_ends() {
        assert_eq!(Drawn::of((64, 64, 2048)), None);
        let shapes =
            [(512, 1024, 1024), (4096, 4096, 4096), (3, 1 << 20, 64), (1 << 20, 3, 64), (1, 1 << 24, 1), (16, 14336, 4096)];
        for (m, n, k) in shapes {
            let drawn = Drawn::of((m, n, k)).unwrap();
            for (lines, of) in [(&drawn.rows, m), (&drawn.cols, n)] {
                assert!(lines.is_sorted_by(|a, b| a < b), "{m}×{n}×{k}");
                assert_eq!((lines.first(), lines.last()), (Some(&0), Some(&(of - 1))), "{m}×{n}×{k}");
            }
            assert_eq!(drawn.elements().len(), drawn.count());
            // Nearly what the definition has time for, and no more.
            assert!((MOST / 3..=MOST).contains(&(drawn.count() * k)), "{m}×{n}×{k}: {}", drawn.count());
        }
        // Long sums still have their corners.
        assert_eq!(Drawn::of((300, 200, 1 << 24)).unwrap().count(), 4);
    }

    fn jobs() -> Vec<Job> {
        let text = "about = \"x\"\n[[cases]]\nname = \"x\"\nop = [\"gemm\"]\nshape = [\"131x192x512\"]\nbias = [true]\n\
                    recipe = [\"te_current\", \"te_block_1x128+te_block_128x128\"]\n\
                    accumulator = [\"hopper_wgmma\"]\nout = [\"bf16\", \"scaled:e4m3\"]\n";
        let sweep = Sweep::parse(Path::new("x.toml"), text, 0).unwrap();
        sweep.cases.iter().map(|case| build::build(case).unwrap().job).collect()
    }

    /// One bit where a drawn row meets a drawn column is seen, one elsewhere is not this check's to see, and the right result has none.
    #[test]
    fn a_wrong_bit_is_seen_where_it_was_drawn() {
        for job in jobs() {
            let output = super::super::product::run(&job).unwrap();
            let (model, drawn) = predict(&job, &output).unwrap();
            let drawn = drawn.expect("a product of 13 million");
            assert!(model == output, "the kernel is not its definition");
            let cols = drawn.of.1;
            for (row, col, seen) in [
                (drawn.rows[1], drawn.cols[7], true),
                (drawn.rows[1], other(&drawn.cols), false),
                (other(&drawn.rows), drawn.cols[1], false),
            ] {
                let mut wrong = output.clone();
                let at = row * cols + col;
                match &mut wrong.parts[0].d {
                    Data::High(t) => {
                        let mut data = t.data().to_vec();
                        data[at] = -data[at] - 1.0;
                        *t = Tensor::new(t.dtype(), t.rows(), t.cols(), data).unwrap();
                    }
                    Data::Quantized(q) => {
                        let mut parts = q.clone().into_parts();
                        parts.codes[at] ^= 1;
                        *q = QTensor::new(parts).unwrap();
                    }
                }
                let (model, _) = predict(&job, &wrong).unwrap();
                assert_eq!(model != wrong, seen, "({row}, {col})");
            }
        }
    }

    /// An element by itself is that of the whole, in whichever group its row stands; one of no group is zero.
    #[test]
    fn elements_of_groups_are_those_of_the_whole() {
        let text = "about = \"x\"\n[[cases]]\nname = \"x\"\nop = [\"grouped_gemm\", \"grouped_gemm_dgrad\", \"grouped_gemm_wgrad\"]\n\
                    shape = [\"32x48\"]\nrows = [\"5,0,9\"]\nrecipe = [\"float8_rowwise\"]\naccumulator = [\"hopper_wgmma\"]\n";
        let sweep = Sweep::parse(Path::new("x.toml"), text, 0).unwrap();
        assert_eq!(sweep.cases.len(), 3);
        for case in &sweep.cases {
            let job = build::build(case).unwrap().job;
            let plan = Plan::of(&job).unwrap();
            let all: Vec<_> = (0..plan.rows).flat_map(|i| (0..plan.cols).map(move |j| (i, j))).collect();
            let few = gemm::predict_at(&job, &plan, &all).unwrap();
            let whole = gemm::predict(&job).unwrap();
            let (Data::High(few), Data::High(whole)) = (&few.d, &whole.parts[0].d) else { panic!("codes") };
            assert!(few.data() == whole.data() && whole.data().iter().any(|x| *x != 0.0), "{}", case.id());
        }
    }

    fn other(lines: &[usize]) -> usize {
        (1..).find(|i| lines.binary_search(i).is_err()).expect("a line that was not drawn")
    }

    #[test]
    fn the_row_says_how_many() {
        let text = "about = \"x\"\n[[cases]]\nname = \"x\"\nop = [\"gemm\"]\nshape = [\"131x192x512\"]\n\
                    recipe = [\"te_current\"]\naccumulator = [\"hopper_wgmma\"]\nout = [\"bf16\"]\n";
        let sweep = Sweep::parse(Path::new("x.toml"), text, 0).unwrap();
        let row = assay::assay(&sweep.cases[0], super::super::KERNELS, crate::kernel::Backend::Cpu, 0);
        let held = Drawn::of((131, 192, 512)).unwrap().count();
        assert_eq!((row.verdict, row.mismatches, row.held), (crate::compare::Verdict::Pass, Some(0), Some(held)));
        assert_eq!(row.errors.kernel.unwrap().count, 25152);
    }
}
