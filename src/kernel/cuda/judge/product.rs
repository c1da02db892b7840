//! A large product judged on the GPU: its device model, its references, its bound.

use super::super::contract::{Contract, Pointer, arguments};
use super::super::launch::{Buffer, Gpu, gpu};
use super::super::model;
use super::bound::{amax_interval, bound};
use super::cast::Codes;
use super::counted::measured;
use super::elements::{Given, every, widened};
use super::references::{References, references};
use crate::compare::measured::Measured;
use crate::job::{Data, OutSpec, Part};
use crate::kernel::{LargeProduct, LargeReferences, ProductJudge};
use crate::stage::timed;
use crate::{Error, Format, QTensor, Result, Tensor};

arguments! {
    /// Contract judge_model.
    ModelOf = "judge.cu" "judge_model" {
        model: Pointer, actual: Pointer, bias: Pointer, cols: usize, dtype: usize, count: u64, found: Pointer,
    }
}

arguments! {
    /// Contract judge_model_codes.
    ModelCodes = "judge.cu" "judge_model_codes" {
        model: Pointer, bias: Pointer, codes: Pointer, table: Pointer, numbers: Pointer, scale: f32, cols: usize, count: u64, found: Pointer,
    }
}

/// On the GPU.
pub const JUDGE: ProductJudge = ProductJudge { references, judge };

/// What a kernel wrote, on the device.
enum Written<'a> {
    Values(Buffer, &'a Tensor),
    /// By one scale; amax.
    Codes(Codes, &'a QTensor, f32, f32),
}

impl<'a> Written<'a> {
    /// `None` of a result that is not judged here, or whose scale_inv is not the inverse of its scale.
    fn of(gpu: &Gpu, part: &'a Part, out: &OutSpec) -> Result<Option<Self>> {
        match (&part.d, out) {
            (Data::High(t), OutSpec::High(_)) => Ok(Some(Self::Values(gpu.upload_f32(t.data())?, t))),
            (Data::Quantized(q), OutSpec::Scaled { scale, .. }) => {
                let (scale, Some(amax)) = (scale[0].unwrap_or(1.0), part.amax) else { return Ok(None) };
                let inverse = q.scale_inv().iter().map(|s| s.to_bits()).eq([(1.0 / scale).to_bits()]);
                let codes = if inverse { Codes::upload(gpu, q)? } else { None };
                Ok(codes.map(|codes| Self::Codes(codes, q, scale, amax)))
            }
            _ => Ok(None),
        }
    }

    fn size(&self) -> (usize, usize) {
        match self {
            Self::Values(_, t) => (t.rows(), t.cols()),
            Self::Codes(_, q, ..) => (q.rows(), q.cols()),
        }
    }

    /// Whether it is what the model's values give, amax too, and all of them are numbers.
    fn is_modelled(&self, gpu: &Gpu, of: &LargeProduct) -> Result<bool> {
        let ((rows, cols), Some(model)) = (self.size(), model::values(gpu, of.model)?) else { return Ok(false) };
        if model.bytes() != rows * cols * 4 {
            return Ok(false);
        }
        let bias = of.of.operands.bias.as_ref().map(|b| gpu.upload_f32(b.data())).transpose()?;
        let (model, bias, count) = (Pointer::from(&model), Pointer::from(bias.as_ref()), (rows * cols) as u64);
        let there = gpu.filled(3 * 8, 0)?;
        let found = Pointer::from(&there);
        let expected = match self {
            Self::Values(actual, t) => {
                let dtype = match t.dtype() {
                    Format::Bf16 => 1,
                    Format::F16 => 2,
                    _ => 0,
                };
                let arguments = ModelOf { model, actual: actual.into(), bias, cols, dtype, count, found };
                // SAFETY: both of rows × cols floats.
                unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
                0
            }
            Self::Codes(of_codes, _, scale, amax) => {
                let Some(laid_out) = of.out.laid_out() else { return Ok(false) };
                let numbers = gpu.upload_all(&laid_out.numbers)?;
                let (codes, table) = ((&of_codes.codes).into(), (&of_codes.table).into());
                let (numbers, scale) = (Pointer::from(&numbers), *scale);
                let arguments = ModelCodes { model, bias, codes, table, numbers, scale, cols, count, found };
                // SAFETY: as many floats as codes.
                unsafe { gpu.launch(arguments.launch(&[], every(gpu)))? };
                u64::from(amax.to_bits())
            }
        };
        Ok(gpu.download_whole::<u64>("mismatches", &there)? == [0, 0, expected])
    }

    /// The values, doubles.
    fn values(&self, gpu: &Gpu) -> Result<Buffer> {
        match self {
            Self::Values(actual, _) => widened(gpu, actual),
            Self::Codes(codes, q, ..) => codes.values(gpu, q),
        }
    }
}

/// [`ProductJudge::judge`] on the GPU. Errors: no GPU; operands that are not for it; references of somebody else; out of device memory.
fn judge(of: &LargeProduct, made: Option<LargeReferences>) -> Result<Option<Measured>> {
    let gpu = gpu()?;
    // The kernel's bits first: what is wrong, the CPU says.
    let written = timed("model", || -> Result<_> {
        let written = Written::of(gpu, of.actual, &of.model.job.out)?;
        Ok(match written {
            Some(written) if written.is_modelled(gpu, of)? => Some(written),
            _ => None,
        })
    })?;
    let Some(written) = written else { return Ok(None) };
    let made = made.map_or_else(|| references(&of.of), Ok)?;
    let foreign = |_| Error::value("references of a product", "another's", "those of the GPU");
    let References { exact, ideal, bias } = *made.there.downcast::<References>().map_err(foreign)?;
    let (rows, cols) = written.size();
    let radii = timed("bound", || bound(gpu, &ideal, (rows, cols), bias.as_ref(), of.arithmetic, of.sums))?;
    let Some([certain, probable]) = radii else { return Ok(None) };
    if let Written::Codes(.., amax) = &written {
        let (low, high) = timed("bound", || amax_interval(gpu, &ideal.d, &probable))?;
        if !(low <= f64::from(*amax) && f64::from(*amax) <= high) {
            return Ok(None);
        }
    }
    let actual = timed("judged", || written.values(gpu))?;
    let given = Given {
        // Errors of the format are zero then, and said to be unknown.
        exact: exact.as_ref().unwrap_or(&ideal.d),
        ideal: &ideal.d,
        certain: Some(&certain),
        probable: Some(&probable),
        actual: &actual,
        rows,
        cols,
        bit_exact: true,
        map: of.map,
    };
    measured(gpu, &given, of.out)
}
