//! Casts on every pattern there is: each f16 and bf16 value, each boundary between codes with its f32 neighbours, and random bits;
//! every kernel of a backend against what its definition returns, bit for bit (NaN as one class).
//!
//! | input | elements |
//! |---|---|
//! | patterns | all 65536 of f16 or bf16, non-finite ones included |
//! | finite | the finite ones among them, so that a scale of the whole tensor is not lost |
//! | boundaries | codes and midpoints between codes of the output's format, over the given scale, ±2 f32 ulp (rounded to the dtype); each group of 16 begins with the format's maximum |
//! | bits | random words of f32 (finite in the dtype) |
//! | normal | N(0,1) with gains |

use super::{Backend, Kernel, find};
use crate::input::philox::Stream;
use crate::input::{Distribution, generate};
use crate::job::{Data, Job, Operand, Operands, OutSpec, Output};
use crate::op::{Op, Params};
use crate::parallel;
use crate::recipe::{DeviceRule, RECIPES, Recipe, RecipeSpec};
use crate::tensor::round_to;
use crate::{Error, Format, QTensor, Result, Tensor};

/// What came of one kernel, output, dtype and input.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub kernel: &'static str,
    pub op: Op,
    pub out: String,
    pub dtype: Format,
    pub input: &'static str,
    /// Input elements, and codes, scales and sums that were compared.
    pub elements: usize,
    pub compared: usize,
    pub mismatches: usize,
}

/// The formats that the casts of CUDA have.
const FORMATS: [Format; 5] = [Format::E4m3, Format::E5m2, Format::E2m1, Format::E2m3, Format::E3m2];

/// Every recipe that a cast of CUDA has, in each of its formats that it has.
fn recipes() -> impl Iterator<Item = Recipe> {
    let cast = |s: &&RecipeSpec| matches!(s.device, Some(DeviceRule::Scale { .. }));
    let in_formats = |s: &'static RecipeSpec| {
        let formats = s.formats.iter().filter(|f| FORMATS.contains(f));
        formats.map(|format| Recipe { name: s.name, format: *format, group: s.default_group })
    };
    RECIPES.iter().filter(cast).flat_map(in_formats)
}

/// Given scales: one, an ordinary one, powers of two that make results subnormal, and the extremes.
const SCALES: &[f32] = &[1.0, 0.371_093_75, 417.3, 0.001_953_125, 1e30, 3e-39, f32::MAX];

/// The outputs that are tried, with their names.
fn outs() -> Vec<(String, OutSpec)> {
    let mut outs = Vec::new();
    for format in [Format::E4m3, Format::E5m2] {
        for scale in SCALES {
            outs.push((format!("scaled:{format} {scale:e}"), OutSpec::Scaled { format, scale: vec![Some(*scale)] }));
        }
    }
    outs.extend(recipes().map(|recipe| (recipe.to_string(), OutSpec::Recipe(recipe))));
    outs
}

/// Values in rows of `cols`, the last row filled up with `pad`.
fn matrix(dtype: Format, cols: usize, mut data: Vec<f32>, pad: f32) -> Result<Tensor> {
    data.resize(data.len().next_multiple_of(cols), pad);
    Tensor::new(dtype, data.len() / cols, cols, data)
}

/// Every value of a 16-bit dtype.
fn patterns(dtype: Format) -> Vec<f32> {
    let value = |bits: u16| match dtype {
        Format::F16 => half::f16::from_bits(bits).to_f32(),
        _ => half::bf16::from_bits(bits).to_f32(),
    };
    (0..=u16::MAX).map(value).collect()
}

/// The boundaries of `format` divided by `scale`, with two neighbours on each side, of both signs, where `dtype` is finite.
fn boundaries(format: Format, scale: f32, dtype: Format) -> Vec<f32> {
    let values: Vec<f64> = (0..=format.max_code()).map(|c| format.decode(c)).filter(|v| v.is_finite()).collect();
    let beyond = 2.0 * values[values.len() - 1] - values[values.len() - 2];
    let mut points: Vec<f64> = values.windows(2).flat_map(|w| [w[0], (w[0] + w[1]) / 2.0]).collect();
    points.extend([values[values.len() - 1], (values[values.len() - 1] + beyond) / 2.0, beyond]);
    let around = |p: &f64| {
        let bits = ((p / f64::from(scale)) as f32).to_bits();
        (-2i32..=2).map(move |d| f32::from_bits(bits.saturating_add_signed(d)))
    };
    let rounded = points.iter().flat_map(around).map(|v| round_to(dtype, v)).filter(|v| v.is_finite());
    rounded.flat_map(|v| [v, -v]).collect()
}

/// Groups of 16 that begin with `first`.
fn headed(values: &[f32], first: f32) -> Vec<f32> {
    values.chunks(15).flat_map(|c| std::iter::once(first).chain(c.iter().copied())).collect()
}

fn random_bits(dtype: Format, rows: usize, cols: usize, seed: u64) -> Result<Tensor> {
    let stream = Stream::new(seed, 0);
    let words = (0..(rows * cols).div_ceil(4) as u64).flat_map(|i| stream.words(0, i));
    let data = words.take(rows * cols).map(|w| round_to(dtype, f32::from_bits(w)));
    Tensor::new(dtype, rows, cols, data.map(|v| if v.is_finite() { v } else { 1.0 }).collect())
}

/// The inputs of one output: name and tensor. `elements` bounds the random ones.
fn inputs(dtype: Format, out: &OutSpec, elements: usize, seed: u64) -> Result<Vec<(&'static str, Tensor)>> {
    let (format, scale) = match out {
        OutSpec::Scaled { format, scale } => (*format, scale[0].unwrap_or(1.0)),
        OutSpec::Recipe(r) => (r.format, 1.0),
        OutSpec::High(f) => (*f, 1.0),
    };
    let mut inputs = Vec::new();
    if dtype != Format::F32 {
        let all = patterns(dtype);
        let finite: Vec<f32> = all.iter().copied().filter(|v| v.is_finite()).collect();
        inputs.push(("patterns", matrix(dtype, 256, all, 0.0)?));
        // A width that no vector divides.
        inputs.push(("finite", matrix(dtype, 331, finite, 0.0)?));
    }
    let most = round_to(dtype, format.max_finite() as f32 / scale);
    let near = boundaries(format, scale, dtype);
    let near = if most.is_finite() { headed(&near, most) } else { near };
    inputs.push(("boundaries", matrix(dtype, 144, near, 0.0)?));
    // Whole tiles, and cut ones.
    let side = ((elements as f64 / 2.0).sqrt() as usize).max(1).next_multiple_of(128);
    inputs.push(("bits", random_bits(dtype, side, side, seed)?));
    inputs.push(("normal", generate(Distribution::Normal, dtype, side + 3, side - 5, seed, 0)?));
    Ok(inputs)
}

/// The casts that are tried.
pub const OPS: &[Op] = &[Op::Cast, Op::CastTranspose, Op::CastTransposeDbias];

/// Runs the casts `ops` of `backend` on all of this; `elements` are the random ones in total, at least. `done` is called with each line.
///
/// Errors: a kernel's own. A combination that no kernel takes is left out.
pub fn run(
    kernels: &[&'static dyn Kernel],
    backend: Backend,
    ops: &[Op],
    elements: usize,
    done: impl Fn(&Line) + Sync,
) -> Result<Vec<Line>> {
    let outs = outs();
    let dtypes = [Format::F16, Format::Bf16, Format::F32];
    let each = elements / (outs.len() * dtypes.len() * ops.len().max(1));
    let combinations: Vec<_> = itertools::iproduct!(ops.iter().copied(), dtypes, outs.iter().enumerate()).collect();
    let combination = |(op, dtype, (seed, (name, out))): &(Op, Format, (usize, &(String, OutSpec)))| -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for (input, x) in inputs(*dtype, out, each, *seed as u64)? {
            let elements = x.data().len();
            let operands = Operands::of(Operand::High(x), None);
            let job = Job { op: *op, params: Params::default(), operands, out: out.clone(), accumulator: None };
            let predicted = find(kernels, &job, backend).and_then(|k| Ok((k, k.predict(&job)?)));
            let (kernel, want) = match predicted {
                // No kernel takes it, or the recipe has no such dtype.
                Err(Error::Unsupported { .. }) | Ok((_, None)) => break,
                Ok((kernel, Some(want))) => (kernel, want),
                Err(e) => return Err(e),
            };
            let (compared, mismatches) = compare(&want, &kernel.run(&job)?);
            let (out, dtype) = (name.clone(), *dtype);
            let line = Line { kernel: kernel.spec().name, op: *op, out, dtype, input, elements, compared, mismatches };
            done(&line);
            lines.push(line);
        }
        Ok(lines)
    };
    let lines: Vec<Vec<Line>> =
        parallel::collect(combinations.len(), |n| combination(&combinations[n])).into_iter().collect::<Result<_>>()?;
    Ok(lines.into_iter().flatten().collect())
}

/// How many codes, scales, amaxes and column sums were compared, and how many differ; every NaN is the same. A part that one side
/// lacks differs once.
fn compare(want: &Output, found: &Output) -> (usize, usize) {
    let mut tally = Tally::default();
    tally.same(want.parts.len() == found.parts.len());
    for (w, f) in want.parts.iter().zip(&found.parts) {
        tally.floats(w.amax.as_slice(), f.amax.as_slice());
        match (&w.d, &f.d) {
            (Data::Quantized(w), Data::Quantized(f)) => tally.quantized(w, f),
            (Data::High(w), Data::High(f)) => tally.floats(w.data(), f.data()),
            _ => tally.same(false),
        }
        match (&w.transpose, &f.transpose) {
            (Some(w), Some(f)) => tally.quantized(w, f),
            (w, f) => tally.same(w.is_none() && f.is_none()),
        }
    }
    let sums = |o: &Output| o.dbias.as_ref().map_or(Vec::new(), |t| t.data().to_vec());
    tally.floats(&sums(want), &sums(found));
    (tally.compared, tally.mismatches)
}

#[derive(Default)]
struct Tally {
    compared: usize,
    mismatches: usize,
}

impl Tally {
    fn same(&mut self, same: bool) {
        self.compared += 1;
        self.mismatches += usize::from(!same);
    }
    fn floats(&mut self, want: &[f32], found: &[f32]) {
        let same = |(w, f): (&f32, &f32)| w.to_bits() == f.to_bits() || (w.is_nan() && f.is_nan());
        self.compared += want.len();
        self.mismatches += want.len().abs_diff(found.len()) + want.iter().zip(found).filter(|p| !same(*p)).count();
    }
    fn quantized(&mut self, want: &QTensor, found: &QTensor) {
        let describe = |q: &QTensor| (q.format(), q.rows(), q.cols(), q.granularity(), q.scale_format());
        self.same(describe(want) == describe(found));
        self.floats(want.scale_inv(), found.scale_inv());
        let level = |q: &QTensor| q.level().map_or(Vec::new(), |l| l.scale_inv.clone());
        self.floats(&level(want), &level(found));
        let nan: Vec<bool> = (0..256).map(|c| want.format().decode(c).is_nan()).collect();
        let same = |(w, f): (&u8, &u8)| w == f || (nan[usize::from(*w)] && nan[usize::from(*f)]);
        self.compared += want.codes().len();
        self.mismatches += want.codes().iter().zip(found.codes()).filter(|p| !same(*p)).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{KernelSpec, cpu};

    #[test]
    fn cpu_casts_equal_their_definition_on_every_pattern() {
        let lines = run(cpu::KERNELS, Backend::Cpu, &[Op::Cast], 0, |_| ()).unwrap();
        let inputs: std::collections::BTreeSet<_> = lines.iter().map(|l| l.input).collect();
        assert_eq!(inputs.into_iter().collect::<Vec<_>>(), ["bits", "boundaries", "finite", "normal", "patterns"]);
        let wrong: Vec<_> = lines.iter().filter(|l| l.mismatches > 0).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        // Every output on every dtype: no combination is left out but what a source does not take.
        let of = |dtype| lines.iter().filter(|l| l.dtype == dtype && l.input == "normal").count();
        let all = SCALES.len() * 2 + recipes().count();
        let of_f16 = SCALES.len() * 2 + recipes().filter(|r| r.spec().unwrap().takes_f16).count();
        assert!(all > of_f16 && of_f16 > 40);
        assert_eq!([Format::F16, Format::Bf16, Format::F32].map(of), [of_f16, all, all]);
    }

    /// A cast that rounds one boundary the wrong way, and one whose scale_inv is off by one unit.
    struct Wrong(fn(&mut Output));
    static SPEC: KernelSpec = KernelSpec { name: "wrong", backend: Backend::Cpu, ops: &[Op::Cast], help: "", source: "" };
    impl Kernel for Wrong {
        fn spec(&self) -> &KernelSpec {
            &SPEC
        }
        fn check(&self, job: &Job) -> Result<()> {
            cpu::cast::Cast.check(job)
        }
        fn run(&self, job: &Job) -> Result<Output> {
            let mut output = cpu::cast::Cast.run(job)?;
            (self.0)(&mut output);
            Ok(output)
        }
        fn predict(&self, job: &Job) -> Result<Option<Output>> {
            cpu::cast::Cast.predict(job)
        }
    }
    fn change(output: &mut Output, f: fn(&mut crate::quant::QTensorParts)) {
        let Data::Quantized(q) = &output.parts[0].d else { return };
        let mut parts = q.clone().into_parts();
        f(&mut parts);
        // A scale of e8m0 or e4m3 has no such neighbour.
        if let Ok(q) = QTensor::new(parts) {
            output.parts[0].d = Data::Quantized(q);
        }
    }

    #[test]
    fn one_wrong_code_or_scale_is_counted() {
        static CODE: Wrong = Wrong(|o| change(o, |p| p.codes[0] ^= 1));
        static SCALE: Wrong = Wrong(|o| change(o, |p| p.scale_inv[0] = p.scale_inv[0].next_up()));
        static AMAX: Wrong = Wrong(|o| o.parts[0].amax = o.parts[0].amax.map(f32::next_up));
        for kernel in [&CODE, &SCALE, &AMAX] {
            let lines = run(&[kernel as &dyn Kernel], Backend::Cpu, &[Op::Cast], 0, |_| ()).unwrap();
            let given = lines.iter().filter(|l| l.out == "scaled:e4m3 1e0" && l.input == "normal");
            assert!(given.clone().count() > 0 && given.clone().all(|l| l.mismatches == 1), "{:?}", given.collect::<Vec<_>>());
        }
    }
}
