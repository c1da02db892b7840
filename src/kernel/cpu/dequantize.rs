//! Codes and scale_inv to values.

use super::cast::check_for;
use crate::format::fast::Decoder;
use crate::job::{Data, Job, Operand, OutSpec, Output, Part};
use crate::kernel::{Backend, Kernel, KernelSpec};
use crate::model::elementwise::predict;
use crate::op::Op;
use crate::parallel;
use crate::tensor::round_to;
use crate::{Error, Result, Tensor, Zero};

pub struct Dequantize;

static SPEC: KernelSpec = KernelSpec {
    name: "cpu/dequantize",
    backend: Backend::Cpu,
    ops: &[Op::Dequantize],
    help: "codes and scale_inv to f16, bf16 or f32",
    source: "TransformerEngine common/util/cast.cu; torchao quantization/quant_primitives.py",
};

impl Kernel for Dequantize {
    fn spec(&self) -> &KernelSpec {
        &SPEC
    }
    fn check(&self, job: &Job) -> Result<()> {
        check_for(&SPEC, job)
    }
    fn run(&self, job: &Job) -> Result<Output> {
        self.check(job)?;
        let (Operand::Quantized(q), OutSpec::High(out)) = (job.operands.a(), &job.out) else {
            return Err(Error::unsupported(SPEC.name, "it reads codes and writes values"));
        };
        let (rows, cols) = (q.rows(), q.cols());
        let decoder = Decoder::new(q.format())?;
        let (tile_rows, tile_cols) = q.granularity().tile(rows, cols);
        let (_, grid_cols) = q.granularity().grid(rows, cols);
        let mut v = vec![0.0f32; rows * cols];
        parallel::chunks(&mut v, cols, |i, v| {
            let codes = &q.codes()[i * cols..(i + 1) * cols];
            for (t, (v, codes)) in v.chunks_mut(tile_cols).zip(codes.chunks(tile_cols)).enumerate() {
                let s = (i / tile_rows) * grid_cols + t;
                let (sigma, plus) = q.steps(s);
                for (v, code) in v.iter_mut().zip(codes) {
                    let code = decoder.decode(*code);
                    *v = match q.zero() {
                        Zero::None => code * sigma,
                        Zero::Integer(z) => (code as i32).wrapping_sub(z[s]) as f32 * sigma,
                        Zero::Additive { mid, .. } => round_to(*out, (code - *mid as f32) * sigma) + plus,
                    };
                }
            }
        });
        let d = Data::High(Tensor::rounded(*out, rows, cols, v)?);
        Ok(Output::of(Part::plain(d)))
    }
    fn predict(&self, job: &Job) -> Result<Option<Output>> {
        predict(job).map(Some)
    }
}
