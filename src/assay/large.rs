//! A large product of codes whose elements stay on the GPU: its bound, which is what [`super::product`] says without them, and how it is judged
//! there.

use super::evidence::out_format;
use super::map::ErrorMap;
use super::product::{arithmetic, codes, first_b, groups, inner, relative, row_scales, scales, steps_of};
use crate::Result;
use crate::compare::{Accumulation, Comparison, Measured, ProductArithmetic, Scales};
use crate::job::{Job, Part};
use crate::kernel::{Backend, LargeOperands, LargeProduct, LargeReferences, LargeSums, Modelled, ProductJudge};
use crate::model::{Lines, SumBound, accumulation_bound, runs};
use crate::op::Op;
use crate::stage::timed;

/// Of a product of narrow floats, or of integers, by an accumulator whose bits are known, its result `rows × cols`. `ask` gets the arithmetic without the bias, and the
/// sums. `None`, without having asked: another product, or one whose bound needs the runs of its products. Errors: formats that the accumulator
/// does not take; `ask`'s.
pub(crate) fn of_device_model<T>(
    job: &Job,
    (rows, cols): (usize, usize),
    ask: impl FnOnce(&ProductArithmetic, &LargeSums) -> Result<T>,
) -> Result<Option<T>> {
    let Some(accumulator) = job.accumulator.filter(|a| a.inner.is_model()) else { return Ok(None) };
    let (Some(qa), Some(qb)) = (codes(job.operands.a()), job.operands.b().and_then(codes)) else { return Ok(None) };
    let integers = [&qa, &qb].map(|q| q.first().is_some_and(|q| q.format().is_integer()));
    if qa.is_empty() || qb.is_empty() || integers[0] != integers[1] {
        return Ok(None);
    }
    let (k, groups, by_tokens) = (steps_of(job), groups(job), job.op == Op::GroupedGemmWgrad);
    let p = arithmetic(&qa, &qb, k, groups, false);
    if integers[0] {
        return ask(&p, &LargeSums::Relative(Accumulation::EXACT)).map(Some);
    }
    if !by_tokens && rows * cols * k <= runs::MOST {
        return Ok(None);
    }
    let ([a], [b], 1, false) = (qa.as_slice(), qb.as_slice(), groups, by_tokens) else {
        let sums = timed("bound", || relative(&accumulator, &qa, &qb, k, groups))?;
        return ask(&p, &LargeSums::Relative(sums)).map(Some);
    };
    let [of_a, of_b] = timed("bound", || [a, b].map(|q| Lines::once(q)));
    let most = accumulation_bound(&accumulator, k, of_a.1, of_b.1)?;
    let lines = ((a.format(), &of_a.0), (b.format(), &of_b.0));
    let mut sums = SumBound::new(&accumulator, k, lines.0, lines.1, true)?.and_relative(most);
    (sums.scale_a, sums.scale_b) = (row_scales(a), row_scales(b));
    if job.op != Op::Gemm {
        sums.first_b = first_b(job, (rows, cols));
    }
    ask(&p, &LargeSums::Each(sums)).map(Some)
}

/// The product `job`, judged where its references lie if it has the bits of its model; `None`: it has not, or the CPU is to judge. The bound is
/// that of the job as it was given, not as its model reads it. Errors: those of [`of_device_model`] and of the judge.
pub(crate) fn judged(
    judge: ProductJudge,
    job: &Job,
    (of, model): (LargeOperands, &Modelled),
    (part, backend): (&Part, Backend),
    references: Option<LargeReferences>,
) -> Result<Option<Measured>> {
    let shape = part.d.shape();
    let (map, out) = (ErrorMap::tile(shape.0, shape.1), out_format(job, 0, part, backend));
    let there = of_device_model(job, shape, |arithmetic, sums| {
        (judge.judge)(&LargeProduct { of, model, arithmetic, sums, out: &out, actual: part, map }, references)
    });
    there.map(Option::flatten)
}

/// What was counted of a product, as a judgement.
pub(crate) fn comparison(job: &Job, measured: &mut Measured) -> Comparison {
    let scales = scales(job);
    let scales: Vec<Scales> = scales.iter().map(|(name, values, spans)| Scales { name, values, spans: *spans }).collect();
    measured.comparison(Some(inner(job)), groups(job), &scales)
}

#[cfg(test)]
mod tests {
    use super::super::product;
    use super::*;
    use crate::compare::{Bound, OutFormat};
    use crate::input::{Distribution, generate};
    use crate::job::{Operand, Operands, OutSpec};
    use crate::op::{Defined, Params};
    use crate::recipe::Recipe;
    use crate::{Format, QTensor};
    use ndarray::Array2;

    fn quantized(recipe: &str, rows: usize, k: usize, stream: u32) -> QTensor {
        let x = generate(Distribution::OutlierChannels, Format::Bf16, rows, k, 1, stream).unwrap();
        recipe.parse::<Recipe>().unwrap().quantize(&x).unwrap().q
    }

    fn job(op: Op, a: Operand, b: Operand, offs: Option<Vec<usize>>) -> Job {
        let operands = Operands { offs, ..Operands::of(a, Some(b)) };
        let accumulator = Some("hopper_wgmma@128".parse().unwrap());
        Job { op, params: Params::default(), operands, out: OutSpec::High(Format::Bf16), accumulator }
    }

    /// The bound of the CPU, and that of what is said of a product whose elements lie elsewhere.
    fn both(job: &Job, (rows, cols): (usize, usize)) -> [Bound; 2] {
        let out = OutFormat::high(Format::Bf16);
        let value = |(i, j): (usize, usize)| ((i * 7919 + j * 104_729) % 2003) as f64 * 0.37 - 370.0;
        let d = Array2::from_shape_fn((rows, cols), value);
        let magnitude = Array2::from_shape_fn((rows, cols), |at| value(at).abs() * 9.0 + 40.0);
        let ideal = Defined { magnitude: Some(magnitude.clone()), ..Defined::plain(d.clone()) };
        let (d, magnitude) = (d.into_raw_vec_and_offset().0, magnitude.into_raw_vec_and_offset().0);
        let told = of_device_model(job, (rows, cols), |p, sums| {
            let p = match sums {
                LargeSums::Each(sums) => ProductArithmetic { accumulation: sums, ..p.clone() },
                LargeSums::Relative(sums) => ProductArithmetic { accumulation: sums, ..p.clone() },
            };
            Bound::product(&p, cols, &d, &magnitude, &out)
        });
        [product::bound(job, &ideal, &out).unwrap(), told.unwrap().unwrap()]
    }

    #[test]
    fn it_says_what_the_cpu_takes() {
        let codes = |recipe: &str, rows, k, stream| Operand::Quantized(quantized(recipe, rows, k, stream));
        let groups = |rows: usize, stream| {
            let widths = [96, 160].into_iter().zip(stream..);
            Operand::Groups(widths.map(|(k, stream)| quantized("float8_rowwise", rows, k, stream)).collect())
        };
        // More multiply-adds than runs are found of, in few elements.
        let k = 4104;
        let cases = [
            ("rows", job(Op::Gemm, codes("float8_rowwise", 256, k, 0), codes("float8_rowwise", 256, k, 1), None), (256, 256)),
            (
                "blocks",
                job(Op::Gemm, codes("te_block_1x128_fp32", 256, k, 0), codes("te_block_128x128_fp32", 256, k, 1), None),
                (256, 256),
            ),
            (
                "experts",
                job(Op::GroupedGemm, codes("float8_rowwise", 256, k, 0), codes("te_current", 512, k, 1), Some(vec![175, 250])),
                (256, 256),
            ),
            (
                "integers",
                Job {
                    accumulator: Some("int32".parse().unwrap()),
                    ..job(Op::Gemm, codes("int8_token_sym", 64, k, 0), codes("affine_sym:int4:g32", 48, k, 1), None)
                },
                (64, 48),
            ),
            ("tokens", job(Op::GroupedGemmWgrad, groups(64, 0), groups(48, 7), Some(vec![96, 256])), (128, 48)),
        ];
        for (name, job, size) in cases {
            let [cpu, told] = both(&job, size);
            assert!(cpu.certain() == told.certain() && cpu.probable() == told.probable(), "{name}");
            assert!(cpu.certain().iter().all(|r| *r > 0.0 && r.is_finite()), "{name}");
        }
    }

    #[test]
    fn nothing_is_said_where_elements_are_needed() {
        let codes = |recipe: &str, rows, stream| Operand::Quantized(quantized(recipe, rows, 64, stream));
        let small = job(Op::Gemm, codes("te_current", 32, 0), codes("te_current", 32, 1), None);
        let asked = of_device_model(&small, (32, 32), |_, _| -> Result<()> { panic!("asked") });
        assert!(asked.unwrap().is_none());
        let mixed = job(Op::Gemm, codes("float8_rowwise", 32, 0), codes("int8_token_sym", 32, 1), None);
        assert!(of_device_model(&mixed, (1 << 15, 1 << 15), |_, _| -> Result<()> { panic!("asked") }).unwrap().is_none());
    }

    /// 18 tokens from the 15th on lie in two blocks of 32 that begin at 0, and 7 empty tokens after them in none.
    #[test]
    fn tokens_are_counted_from_the_multiple_of_16_before_them() {
        let of = |offs: &[usize]| {
            let groups = |rows| {
                let widths = offs.iter().zip(std::iter::once(&0).chain(offs)).map(|(end, start)| end - start);
                Operand::Groups(widths.map(|k| quantized("float8_rowwise", rows, k.max(1), 0)).collect())
            };
            steps_of(&job(Op::GroupedGemmWgrad, groups(4), groups(3), Some(offs.to_vec())))
        };
        assert_eq!(of(&[15, 33]), 33);
        assert_eq!([of(&[300, 1024]), of(&[304, 1024]), of(&[7]), of(&[3, 3])], [736, 720, 7, 3]);
    }
}
