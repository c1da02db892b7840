//! What a kernel wrote beside what it should have written: the evidence of each part, judged.

use super::Built;
use super::product;
use crate::compare::{self, Bound, CaseEvidence, Check, Comparison, Mismatches, OutFormat, Scales, inverse, inverses};
use crate::job::{Data, Job, Operand, OutSpec, Output, Part};
use crate::kernel::Backend;
use crate::kernel::cpu::drawn::Drawn;
use crate::model::boundary::{self, Depths};
use crate::model::elementwise::input_dtype;
use crate::model::interval::Interval;
use crate::op::{Defined, Op};
use crate::stage::timed;
use crate::{Error, Overflow::Saturate, QTensor, Result, Rounding::NearestEven, Zero, parallel};

/// One part, judged.
pub struct Judgement {
    pub cols: usize,
    pub bound: Bound,
    pub actual: Vec<f64>,
    pub comparison: Comparison,
}

/// Judges every part of `output`. `model` is what the device model returns for the same job, where there is one.
pub fn judge(built: &Built, backend: Backend, output: &Output, model: Option<&Output>) -> Result<Vec<Judgement>> {
    judge_drawn(built, backend, output, model, None)
}

/// [`judge`], with a model that is one at drawn places only: what a pass is worth is then what the bound alone would have seen.
pub fn judge_drawn(
    built: &Built,
    backend: Backend,
    output: &Output,
    model: Option<&Output>,
    drawn: Option<&Drawn>,
) -> Result<Vec<Judgement>> {
    if output.parts.len() != built.ideal.len() {
        return Err(Error::shape("output of the kernel", format!("{} parts", output.parts.len()), built.ideal.len()));
    }
    let job = &built.job;
    // The recipe's own definition gives the one right code of every element, and nothing else is written that has an interval.
    let defined = |m: &Output| m.parts.iter().all(|p| matches!(p.d, Data::Quantized(_)));
    let by_recipe = matches!(job.op, Op::Cast | Op::CastTranspose | Op::MultiCastTranspose)
        && matches!(job.out, OutSpec::Recipe(_))
        && model.is_some_and(defined);
    let bounds = if job.op.reads_codes() || by_recipe {
        None
    } else {
        let depths = if backend == Backend::Cpu { Depths::cpu(job) } else { Depths::any_order(job) };
        Some(timed("boundaries", || boundary::bounds(job, depths))?)
    };
    let mut judgements = Vec::new();
    for (i, part) in output.parts.iter().enumerate() {
        let predicted = model.map(|m| &m.parts[i]);
        let ideal = &built.ideal[i];
        let out = out_format(job, i, part, backend);
        let bound = timed("bound", || match (&bounds, predicted.map(|p| &p.d)) {
            (_, Some(Data::Quantized(q))) if by_recipe || (bounds.is_some() && matches!(job.out, OutSpec::Recipe(_))) => {
                Bound::from_radius(q.dequantize_fast().into_raw_vec_and_offset().0, vec![0.0; q.codes().len()], &out)
            }
            (Some(b), _) => of_intervals(ideal, &b.values[i], &out, scaling(job)),
            (None, _) if job.op == Op::Dequantize => of_dequantize(job, ideal, &out, backend),
            (None, _) => product::nearest(job, ideal, &out, backend != Backend::External, &|b| {
                product::misses(b, &values(&part.d), part.amax)
            }),
        })?;
        let mut checks = timed("side outputs", || {
            side_checks(job, i, part, predicted, &bound, bounds.as_ref().map(|b| b.amax[i]), backend)
        })?;
        if let (OutSpec::Recipe(_), Some(b), None, Data::Quantized(q)) = (&job.out, &bounds, predicted, &part.d)
            && let Some(allowed) = &b.scale_inv[i]
        {
            checks.push(within("scale_inv", allowed, q.scale_inv())?);
        }
        if i == 0 {
            checks.extend(whole_checks(output, bounds.as_ref())?);
            if let (Some(m), Some(t)) = (model.and_then(|m| m.dbias.as_ref()), &output.dbias) {
                checks.push(Check::exact("dbias", m.data(), t.data())?);
            }
        }
        let mismatches = timed("mismatches", || predicted.map(|p| mismatches(p, part)).transpose())?;
        let actual = timed("values", || values(&part.d));
        let exact = built.exact.get(i).map(|e| e.flat());
        let cols = ideal.d.ncols();
        let scales = if job.op.is_product() { product::scales(job) } else { Vec::new() };
        let scales: Vec<Scales> = scales.iter().map(|(name, values, spans)| Scales { name, values, spans: *spans }).collect();
        let comparison = compare::judge(&CaseEvidence {
            cols,
            exact: exact.as_deref(),
            bound: &bound,
            actual: &actual,
            mismatches,
            checks: &checks,
            bit_exact: predicted.is_some() && drawn.is_none(),
            k: job.op.is_product().then(|| product::inner(job)),
            groups: if job.op.is_product() { product::groups(job) } else { 1 },
            scales: &scales,
            zero_points: &[],
        })?;
        judgements.push(Judgement { cols, bound, actual, comparison });
    }
    Ok(judgements)
}

/// Whether a cast has the bits of its recipe's definition in everything that it wrote: one part of codes, and what lies beside them.
pub(crate) fn is_defined(job: &Job, output: &Output, model: Option<&Output>, backend: Backend) -> Result<bool> {
    let (OutSpec::Recipe(_), [part], Some([defined])) = (&job.out, output.parts.as_slice(), model.map(|m| m.parts.as_slice()))
    else {
        return Ok(false);
    };
    let (Data::Quantized(q), Data::Quantized(_), None) = (&part.d, &defined.d, &part.transpose) else { return Ok(false) };
    // No check of a recipe's cast asks the bound.
    let nothing = Bound::from_radius(Vec::new(), Vec::new(), &OutFormat::quantized(q, None))?;
    let checks = side_checks(job, 0, part, Some(defined), &nothing, None, backend)?;
    Ok(mismatches(defined, part)?.count == 0 && checks.iter().all(Check::passes))
}

/// The values of a result, in its own scale_inv.
pub fn values(d: &Data) -> Vec<f64> {
    match d {
        Data::High(t) => parallel::map(t.data(), |x| f64::from(*x)),
        Data::Quantized(q) => q.dequantize_fast().into_raw_vec_and_offset().0,
    }
}

/// How a part is stored. Codes of a foreign kernel are read in its own scale_inv where that is the inverse of the scale to rounding.
pub(crate) fn out_format(job: &Job, i: usize, part: &Part, backend: Backend) -> OutFormat {
    match (&job.out, &part.d) {
        (OutSpec::High(f), _) => OutFormat::high(*f),
        (OutSpec::Scaled { format, scale }, d) => {
            let scale = scale[i].unwrap_or(1.0);
            let scale_inv = match d {
                Data::Quantized(q) if backend == Backend::External && inverse(scale, q.scale_inv()[0], q.scale_format()) => {
                    q.scale_inv()[0]
                }
                _ => 1.0 / scale,
            };
            OutFormat::scaled(*format, scale, scale_inv)
        }
        (OutSpec::Recipe(_), Data::Quantized(q)) => OutFormat::quantized(q, None),
        (OutSpec::Recipe(r), Data::High(_)) => OutFormat::high(r.format),
    }
}

/// What a recipe's own scaling of a value may lose, relative to it: the reciprocal of the scale and the product, each rounded in
/// f32, or in the input's dtype where the recipe computes in it.
fn scaling(job: &Job) -> f64 {
    let OutSpec::Recipe(recipe) = &job.out else { return 0.0 };
    let dtype = recipe.spec().map_or(crate::Format::F32, |s| s.computed_in.of(input_dtype(job)));
    scaled_with(0.5 * dtype.ulp(1.0))
}

/// What `RN(x · RN(1 / scale_inv))` may be off by, relative to it, with the unit roundoff u: `(1 + u)² − 1`, and 2⁻²³ for the f32
/// reciprocal of scale_inv that the bound rounds with itself.
pub fn scaled_with(u: f64) -> f64 {
    2.0 * u + u * u + 2f64.powi(-23)
}

/// Radii from the intervals of the boundary rule, and `scaling` of each value.
fn of_intervals(ideal: &Defined, intervals: &[Interval], out: &OutFormat, scaling: f64) -> Result<Bound> {
    let ideal = ideal.flat();
    // In steps of the code, so of the largest value that the step may come from.
    let largest =
        |v: &Interval, d: f64| if d.is_finite() && scaling > 0.0 { v.magnitude().hi.max(d.abs()) * scaling } else { 0.0 };
    let radii = parallel::numbers(ideal.len(), |i| boundary::radius(intervals[i], ideal[i]) + largest(&intervals[i], ideal[i]));
    Bound::from_radius(parallel::owned(ideal), radii, out)
}

/// Dequantize rounds once, a foreign kernel with or without RN32 before; with a second level first RN32(scale_inv · second level); with an additive zero point the product
/// first, to half a spacing of the output.
fn of_dequantize(job: &Job, ideal: &Defined, out: &OutFormat, backend: Backend) -> Result<Bound> {
    let ideal = ideal.flat();
    let (Operand::Quantized(q), OutSpec::High(format)) = (job.operands.a(), &job.out) else {
        return Err(Error::unsupported("dequantize", "it reads codes and writes values"));
    };
    let u = 2f64.powi(-24);
    let radius = |i: usize, d: f64| match q.zero() {
        Zero::Additive { .. } => {
            let plus = q.affine(q.scale_index(i / q.cols(), i % q.cols())).plus;
            let product = d - plus;
            let steps = 0.5 * format.ulp(product) + (d.abs() + format.ulp(product)) * u;
            // With a second level the scale's product and the zero point's are rounded too.
            if q.level().is_some() { steps + (product.abs() + plus.abs()) * u * (2.0 + u) } else { steps }
        }
        _ if q.level().is_some() => d.abs() * u * (2.0 + u),
        // Rounded to f32 on the way or not.
        _ => d.abs() * u + 2f64.powi(-150),
    };
    if backend != Backend::External && q.level().is_none() && !matches!(q.zero(), Zero::Additive { .. }) {
        return Ok(Bound::exact_output(&ideal, out));
    }
    let radii = parallel::numbers(ideal.len(), |i| if ideal[i].is_finite() { radius(i, ideal[i]) } else { 0.0 });
    Bound::from_radius(parallel::owned(ideal), radii, out)
}

/// Elements of a part whose bits are not the model's. Errors: values against codes.
pub fn mismatches(model: &Part, actual: &Part) -> Result<Mismatches> {
    match (&model.d, &actual.d) {
        (Data::High(m), Data::High(a)) => Mismatches::of_tensors(m, a),
        (Data::Quantized(m), Data::Quantized(a)) => Mismatches::of_codes(m, a),
        _ => Err(Error::unsupported("comparison", "the kernel and its model wrote different kinds of results")),
    }
}

/// The codes, every one whose value is NaN the canonical one: NaN is compared as a class, whether the code or its scale makes it.
fn canonical(q: &QTensor) -> Vec<u8> {
    let nan = q.format().encode(f64::NAN, NearestEven, Saturate) as u8;
    let values = q.dequantize_fast();
    let values = values.as_slice().expect("row-major");
    parallel::numbers(values.len(), |i| if values[i].is_nan() { nan } else { q.codes()[i] })
}

/// scale_inv, amax and the transposed copy.
fn side_checks(
    job: &Job,
    i: usize,
    part: &Part,
    model: Option<&Part>,
    bound: &Bound,
    amax: Option<Interval>,
    backend: Backend,
) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    if let (OutSpec::Scaled { scale, .. }, Data::Quantized(q)) = (&job.out, &part.d) {
        let scale = scale[i].unwrap_or(1.0);
        checks.push(match backend {
            // Its scale may have come from its scale_inv, or both from amax.
            Backend::External => {
                let (lo, hi) = inverses(scale, q.scale_format());
                let allowed = if lo.is_nan() { Interval::NAN } else { Interval::new(lo, hi) };
                within("scale_inv", &[allowed], q.scale_inv())?
            }
            _ => Check::exact("scale_inv", &[1.0 / scale], q.scale_inv())?,
        });
        let check = |found: f32| match amax {
            Some(of_rule) => Check::within("amax", &[(of_rule.lo, of_rule.hi)], &[f64::from(found)]),
            None => Check::amax(bound, found),
        };
        if let Some(found) = part.amax {
            let check = check(found)?;
            // Where a value is not known it may be NaN, and so may be their amax.
            let unknown = found.is_nan() && check.first.is_some_and(|(_, _, allowed)| allowed.1 == f64::INFINITY);
            checks.extend((!unknown).then_some(check));
        }
    }
    if let (Some(m), Some(amax)) = (model.and_then(|m| m.amax), part.amax) {
        checks.push(Check::exact("amax", &[m], &[amax])?);
    }
    if let (Some(Data::Quantized(m)), Data::Quantized(q)) = (model.map(|m| &m.d), &part.d) {
        if !matches!(job.out, OutSpec::Scaled { .. }) {
            checks.push(Check::exact("scale_inv", m.scale_inv(), q.scale_inv())?);
        }
        if let (Some(m), Some(q)) = (m.level(), q.level()) {
            checks.push(Check::exact("global_scale_inv", &m.scale_inv, &q.scale_inv)?);
            if let (Some(m), Some(q)) = (&m.zero, &q.zero) {
                checks.push(Check::exact("global_zero_point", m, q)?);
            }
        }
        if let (Zero::Integer(m), Zero::Integer(q)) = (m.zero(), q.zero()) {
            let float = |z: &[i32]| z.iter().map(|z| *z as f32).collect::<Vec<_>>();
            checks.push(Check::exact("zero_point", &float(m), &float(q))?);
        }
        if let (Zero::Additive { zero: m, .. }, Zero::Additive { zero: q, .. }) = (m.zero(), q.zero()) {
            checks.push(Check::exact("zero_point", m, q)?);
        }
    }
    if let (Some(t), Data::Quantized(q)) = (&part.transpose, &part.d) {
        let again = t.transposed()?;
        // A transposed copy with scales along the other axis is quantized anew; its codes are the model's business.
        if again.scale_inv() == q.scale_inv() {
            checks.push(Check::codes("transpose", &canonical(q), &canonical(&again))?);
        }
        if let Some(m) = model.and_then(|m| m.transpose.as_ref()) {
            checks.push(Check::codes("transpose", &canonical(m), &canonical(t))?);
            // Of one scale: the copy's scale_inv is the result's, which is judged above.
            if !(matches!(job.out, OutSpec::Scaled { .. }) && again.scale_inv() == q.scale_inv()) {
                checks.push(Check::exact("transpose.scale_inv", m.scale_inv(), t.scale_inv())?);
            }
        }
    }
    Ok(checks)
}

/// Every value inside its interval; where anything is possible nothing is judged.
fn within(name: &'static str, intervals: &[Interval], found: &[f32]) -> Result<Check> {
    let known = intervals.iter().zip(found).filter(|(i, f)| !(i.nan && f.is_nan()));
    let (allowed, found): (Vec<(f64, f64)>, Vec<f64>) = known.map(|(i, f)| ((i.lo, i.hi), f64::from(*f))).unzip();
    Check::within(name, &allowed, &found)
}

/// dbias, mean and rsigma.
fn whole_checks(output: &Output, bounds: Option<&boundary::Bounds>) -> Result<Vec<Check>> {
    let Some(bounds) = bounds else { return Ok(Vec::new()) };
    let mut checks = Vec::new();
    if let (Some(i), Some(t)) = (&bounds.dbias, &output.dbias) {
        checks.push(within("dbias", i, t.data())?);
    }
    if let (Some(i), Some(v)) = (&bounds.mean, &output.mean) {
        checks.push(within("mean", i, v)?);
    }
    if let (Some(i), Some(v)) = (&bounds.rsigma, &output.rsigma) {
        checks.push(within("rsigma", i, v)?);
    }
    Ok(checks)
}
