//! A bundle judged: its operands against the recipe, its result against the device model or the derived bound.

use super::operand::{BundleOperand, Codes};
use super::settle::search::Way;
pub use super::settle::{Settled, ideal, settle, without_nobodys_rows};
use super::settle::{sixteen, wrong};
use super::{
    Bundle, Out, affine_codes, cast, casts, clamped, clipped, decoded, encoders, exchange, formula, group_index, operand_bytes,
    order, recipes, router, second, stages, tail_tokens, there, ties, zero_blocks,
};
use crate::assay::{Assayed, Built, Judgement, evidence, worst};
use crate::compare::{self, Bound, CaseEvidence, Check, Comparison, Measured, OutFormat, Verdict, probable};
use crate::fault::{self, Class, DIAGNOSIS, Diagnosis, Finding, History};
use crate::job::{Data, Job, Operand, Operands, OutSpec, Output, Part, Weighted};
use crate::kernel::{Backend, cpu, find};
use crate::op::{self, Accelerator, Act, Args64, Defined, Op};
use crate::recipe::Recipe;
use crate::stage::timed;
use crate::{Error, Overflow, QTensor, Result, Rounding, Tensor, Zero, parallel};
use ndarray::Array2;
use std::sync::Arc;
use std::time::Duration;

/// What was found.
pub struct Answer {
    pub verdict: Verdict,
    /// Where, what was found, what was expected; empty for a plain pass.
    pub reason: String,
    /// Which arithmetic the result was held to, and why that one.
    pub model: String,
    pub assayed: Assayed,
    /// Of a failure.
    pub diagnosis: Option<Diagnosis>,
    /// What was counted of a result that was judged where its references lie: its judgement has no elements.
    pub measured: Option<Measured>,
}

impl Answer {
    /// The part that decided.
    pub fn comparison(&self) -> &Comparison {
        &self.judgement().comparison
    }
    pub fn judgement(&self) -> &Judgement {
        worst(&self.assayed.judgements)
    }
}

/// Assays a bundle, with a diagnosis where it fails. Errors: an operand combination that has no definition, a declared model that does
/// not take the formats.
pub fn assay(bundle: &Bundle) -> Result<Answer> {
    assay_by(bundle, DIAGNOSIS, None)
}

/// [`assay`] with this much time for the diagnosis of a failure (none is looked for in no time), and large products by `accelerator`.
pub fn assay_by(bundle: &Bundle, time: Duration, accelerator: Option<Accelerator>) -> Result<Answer> {
    if let Some(found) = accelerator.and_then(|_| there::judged(bundle)) {
        return Ok(found);
    }
    let mut found = assay_all(bundle, time, accelerator)?;
    // Zeros have no power to show a fault of sums that are there. Here there are none.
    if let Some(empty) = &bundle.empty
        && matches!(found.verdict, Verdict::Pass | Verdict::NoPower)
    {
        let wrong = empty.wrong.as_ref();
        found.verdict = if wrong.is_some() { Verdict::Fail } else { Verdict::Pass };
        found.reason = wrong.unwrap_or(&empty.why).clone();
        found.model = "none: nothing is summed".into();
    }
    Ok(found)
}

/// What the GPU of this machine says of a large product of which it judges every element; `None` where it is not to say.
pub fn there(bundle: &Bundle) -> Option<Answer> {
    there::judged(bundle)
}

fn assay_all(bundle: &Bundle, time: Duration, accelerator: Option<Accelerator>) -> Result<Answer> {
    let wrong = recipes::operands(bundle)?;
    let turned = exchange::turned(bundle)?;
    let (own, bundle) = (bundle, turned.as_ref().unwrap_or(bundle));
    let mut built = build_by(bundle, accelerator)?;
    let output = output(bundle)?;
    let judged = match own.bias.as_ref().filter(|_| turned.is_some()) {
        Some(bias) => exchange::by_bound(bundle, &mut built, output, bias.data())?,
        None => judge(bundle, &mut built, output)?,
    };
    let Judged { output, model, judgements, text, sigma, wrong: wrong_bits } = judged;
    let algorithm = Some(text.clone());
    let mut assayed =
        Assayed { built, kernel: "external", algorithm, backend: Backend::External, output, model, drawn: None, judgements };
    // A search that cannot be made costs the answer nothing: the verdict stands.
    let search = |assayed: &Assayed| {
        timed("diagnosis", || diagnose(bundle, assayed, time, wrong_bits.is_some())).unwrap_or_else(|e| {
            tracing::warn!("{}: no diagnosis: {e}", bundle.path.display());
            None
        })
    };
    let mut diagnosis =
        match sigma.filter(|_| !time.is_zero() && worst(&assayed.judgements).comparison.verdict == Verdict::Suspect) {
            Some(sigma) => explained(&mut assayed, sigma, search)?,
            None => search(&assayed),
        };
    if turned.is_some() {
        exchange::back(&mut assayed, &mut diagnosis)?;
    }
    let part = worst(&assayed.judgements);
    let mut reason = part.comparison.reason.clone();
    let mut verdict = part.comparison.verdict;
    if let Some(first) = wrong.first() {
        verdict = Verdict::Fail;
        let output = if part.comparison.verdict == Verdict::Fail { format!("; {reason}") } else { String::new() };
        reason = wrong.iter().map(|w| w.text.as_str()).collect::<Vec<_>>().join("; ") + &output;
        // What is wrong with an operand comes before what its product makes of it.
        diagnosis = if time.is_zero() { None } else { recipes::diagnose(first)?.or(diagnosis) };
    }
    let mut found = Answer { verdict, reason, model: text, assayed, diagnosis, measured: None };
    let fitted = |d: &Diagnosis| d.findings.first().is_none_or(|f| f.freedom > 0);
    // Patches that no product makes may still be an operand's bytes.
    let in_patches = |d: &Diagnosis| d.findings.first().is_some_and(|f| f.variant.ends_with("out.patches"));
    // Codes that end at one number may have met it before their zero point was added.
    let has_zero = matches!(&bundle.out.d, Data::Quantized(q) if matches!(q.zero(), crate::quant::Zero::Integer(_)));
    let limited = |d: &Diagnosis| has_zero && d.findings.first().is_some_and(|f| f.variant.ends_with("limited"));
    let one_number = || has_zero && clipped::is_one_number(&found);
    let open = verdict == Verdict::Fail
        && wrong.is_empty()
        && found.diagnosis.as_ref().is_some_and(|d| fitted(d) || in_patches(d) || limited(d) || one_number());
    let solved = || {
        let unnamed = || found.diagnosis.as_ref().is_some_and(|d| d.findings.is_empty());
        // A recipe's own words for a scale of 0 come first.
        let zero = || if bundle.meta.recipe.is_none() || unnamed() { clipped::explain(bundle) } else { None };
        // Scales of a second level the wrong way around may be 0 as well, and those of places that another row stride leaves out.
        let of_values = casts::explain(bundle);
        let of_all = |f: &Finding| ["out.global", "out.stride"].iter().any(|v| f.variant.ends_with(v));
        let zero = if of_values.as_ref().is_some_and(of_all) { None } else { zero() };
        zero.or_else(|| clipped::of_a_twin(bundle))
            .or(of_values)
            .or_else(|| affine_codes::explain(bundle))
            .or_else(|| encoders::explain(bundle))
            .or_else(|| decoded::explain(bundle, &found))
            .or_else(|| clipped::of_another_format(bundle))
            .or_else(|| ties::explain(bundle))
            .or_else(|| order::explain(bundle))
            .or_else(|| group_index::explain(bundle))
            .or_else(|| tail_tokens::explain(bundle))
            .or_else(|| in_sixteen(&found))
            .or_else(|| operand_bytes::explain(bundle, found.judgement()))
            .or_else(|| wrong_bits.as_ref().map(by_bits))
    };
    if let (Some(other), Some(d)) = (if open { solved() } else { None }, found.diagnosis.as_mut()) {
        d.findings = vec![other];
    }
    // What stands beside a right result is explained where no kernel of ours writes it, too.
    let fitted_or_none = found.diagnosis.as_ref().is_none_or(fitted);
    let beside = || stages::explain(bundle, &found).filter(|_| fitted_or_none);
    if verdict == Verdict::Fail
        && wrong.is_empty()
        && !time.is_zero()
        && let Some(other) = zero_blocks::explain(bundle, found.judgement().bound.ideal())
            .or_else(|| clipped::overflown(bundle))
            .or_else(|| router::explain(bundle, found.judgement()))
            .or_else(|| clamped::explain(bundle, &found))
            .or_else(beside)
            .or_else(|| clipped::named(bundle, found.diagnosis.as_ref()))
    {
        let d = found.diagnosis.get_or_insert_with(|| Diagnosis::only(other.clone()));
        d.findings = vec![other];
    }
    // A result that is cut is smaller all over: no formula is told from that.
    let ends = |d: &Diagnosis, with: &str| d.findings.first().is_some_and(|f| f.variant.ends_with(with));
    let is_cut = found.diagnosis.as_ref().is_some_and(|d| ends(d, "out.toward_zero"));
    if verdict == Verdict::Fail
        && wrong.is_empty()
        && !is_cut
        && let Some(other) = formula::explain(bundle, &found)?
    {
        // A number that was fitted to the result names nothing beside a formula that makes it; nor do rows of zeros that 16 bits made.
        let weak = |d: &Diagnosis| fitted(d) || ends(d, "out.part") && other.contains("rounded to f16");
        if let Some(d) = found.diagnosis.as_mut().filter(|d| weak(d) && !found.assayed.built.job.op.is_product()) {
            d.findings = vec![Finding::of_formula(&other)];
        }
        found.reason = format!("{other}; {}", found.reason);
    }
    second::tell(bundle, &mut found);
    Ok(found)
}

/// A product whose sums are all numbers of 16 bits.
fn in_sixteen(found: &Answer) -> Option<Finding> {
    let (job, part) = (&found.assayed.built.job, found.judgement());
    let f = sixteen::find(job, part.actual.len() / part.cols.max(1), part.cols, &part.actual, part.bound.ideal())?;
    Some(Finding::solved(Class::LowprecAcc, &format!("out.{f}"), sixteen::words(f)))
}

/// The arithmetic that gives every bit of a result, where it is proved to be a wrong one.
fn by_bits(way: &Way) -> Finding {
    Finding::solved(wrong::class(way), "out.bits", format!("every bit is that of {}", way.words()))
}

/// The verdict of the result alone.
pub(super) fn verdict_alone(bundle: &Bundle) -> Result<Verdict> {
    let judged = judge(bundle, &mut build(bundle)?, output(bundle)?)?;
    Ok(worst(&judged.judgements).comparison.verdict)
}

/// A suspect whose errors are larger than any right sum makes them fails when a known fault makes exactly these: it is then held to
/// what right sums of its data do, λ·σ·β.
fn explained(assayed: &mut Assayed, sigma: f64, search: impl Fn(&Assayed) -> Option<Diagnosis>) -> Result<Option<Diagnosis>> {
    let narrow = |j: &Judgement| {
        let b = &j.bound;
        let by = probable::lambda(j.actual.len(), probable::DELTA) * sigma;
        let beta = |i: usize| b.certain()[i] + 0.5 * b.out().spacing(i, b.ideal()[i]);
        let radii = (0..j.actual.len()).map(|i| b.certain()[i].min(by * beta(i))).collect();
        let mut narrowed = judged_within(j, Bound::from_radius(b.ideal().to_vec(), radii, b.out())?)?;
        if narrowed.comparison.verdict == Verdict::Fail {
            narrowed.comparison.reason = format!("{}; {}", j.comparison.reason, narrowed.comparison.reason);
        }
        Ok(narrowed)
    };
    let narrowed = assayed.judgements.iter().map(narrow).collect::<Result<Vec<_>>>()?;
    let wide = std::mem::replace(&mut assayed.judgements, narrowed);
    let found = search(assayed);
    let found = found.filter(|d| d.findings.first().is_some_and(|f| f.accepted));
    if found.is_none() {
        assayed.judgements = wide;
    }
    Ok(found)
}

/// A judgement by another bound; what it says of power is that of the old one.
fn judged_within(j: &Judgement, bound: Bound) -> Result<Judgement> {
    let mut comparison = compare::judge(&CaseEvidence {
        cols: j.cols,
        exact: None,
        bound: &bound,
        actual: &j.actual,
        mismatches: None,
        checks: &[],
        bit_exact: false,
        k: None,
        groups: 1,
        scales: &[],
        zero_points: &[],
    })?;
    comparison.power = j.comparison.power.clone();
    (comparison.quantization, comparison.total) = (j.comparison.quantization.clone(), j.comparison.total.clone());
    Ok(Judgement { cols: j.cols, bound, actual: j.actual.clone(), comparison })
}

/// What explains a result that failed.
fn diagnose(bundle: &Bundle, assayed: &Assayed, time: Duration, proven: bool) -> Result<Option<Diagnosis>> {
    if time.is_zero() || assayed.judgements.iter().all(|j| j.comparison.verdict != Verdict::Fail) {
        return Ok(None);
    }
    with_evidence(bundle, assayed, |e| fault::diagnose(fault::Evidence { proven, ..e }, time))
}

/// What `of` says of what was found of a bundle.
pub(super) fn with_evidence<T>(bundle: &Bundle, assayed: &Assayed, of: impl FnOnce(fault::Evidence) -> T) -> T {
    let history = History { a: bundle.a.history.clone(), b: bundle.b.history.clone(), out: Vec::new() };
    of(fault::Evidence {
        model: assayed.model.as_ref(),
        exact_a: bundle.a.high.as_ref(),
        exact_b: bundle.b.high.as_ref(),
        history: Some(&history),
        ..fault::Evidence::new(&assayed.built.job, &assayed.output, assayed.backend, &assayed.judgements)
    })
}

/// The operand as a kernel reads it.
fn operand(side: &BundleOperand, recipe: Option<&Recipe>) -> Result<Operand> {
    match (&side.codes, &side.high) {
        (Some(Codes::Whole(q)), _) => Ok(Operand::Quantized(recipes::about(q, recipe.map_or(0, recipes::middle))?)),
        (Some(Codes::Groups(g)), _) => Ok(Operand::Groups(g.clone())),
        (None, Some(t)) => match &side.weights {
            None => Ok(Operand::High(t.clone())),
            Some(weights) => Weighted::new(t.clone(), weights.clone()).map(Operand::Weighted),
        },
        (None, None) => Err(Error::shape("operand", "none", "values or codes")),
    }
}

/// The values of an operand in f64.
fn values(operand: &Operand) -> Array2<f64> {
    match operand {
        Operand::Quantized(q) => q.dequantize_fast(),
        other => other.to_f64(),
    }
}

/// The values of an operand before they were quantized, by the weights of their rows.
fn unquantized(side: &BundleOperand) -> Result<Option<Array2<f64>>> {
    Ok(match (&side.high, &side.weights) {
        (Some(t), Some(weights)) => Some(Operand::Weighted(Weighted::new(t.clone(), weights.clone())?).to_f64()),
        (high, _) => high.as_ref().map(Tensor::to_f64),
    })
}

/// Job and references of a bundle.
pub fn build(bundle: &Bundle) -> Result<Built> {
    build_by(bundle, None)
}

/// [`build`] with its large products by `accelerator`.
fn build_by(bundle: &Bundle, accelerator: Option<Accelerator>) -> Result<Built> {
    let meta = &bundle.meta;
    let quantizes = !meta.op.is_product() && meta.op != Op::Dequantize;
    let job = job(bundle)?;
    let (a, b) = (job.operands.a(), job.operands.b());
    let vector = |t: &Option<Tensor>| t.as_ref().map(|t| t.data().iter().map(|x| f64::from(*x)).collect());
    let define = |a: Array2<f64>, b: Option<Array2<f64>>| {
        let (bias, gamma, beta) = (vector(&bundle.bias), vector(&bundle.gamma), vector(&bundle.beta));
        let row_weights = job.operands.row_weights.as_ref().map(|w| w.iter().map(|w| f64::from(*w)).collect());
        let offs = bundle.offs.clone();
        op::define(meta.op, &meta.params, &Args64 { a, b, bias, row_weights, gamma, beta, offs, accelerator })
    };
    let exact: Vec<Arc<Defined>> = match (unquantized(&bundle.a)?, unquantized(&bundle.b)?, meta.op.is_product()) {
        (Some(a), None, false) => vec![Arc::new(nan_as_written(bundle, define(a, None)?))],
        (Some(a), Some(b), true) => timed("references", || Ok::<_, Error>(vec![Arc::new(define(a, Some(b))?)]))?,
        _ => Vec::new(),
    };
    let ideal = match quantizes {
        true => exact.clone(),
        false => timed("references", || Ok::<_, Error>(vec![Arc::new(define(values(a), b.map(values))?)]))?,
    };
    let source = if matches!(meta.op, Op::Cast | Op::CastTranspose) { bundle.a.high.clone() } else { None };
    Ok(Built { job, exact, ideal, quantized: quantized(bundle), source })
}

/// What a kernel was given, and how its result was to be stored.
pub(super) fn job(bundle: &Bundle) -> Result<Job> {
    let meta = &bundle.meta;
    let recipe = |second: bool| meta.recipe.as_ref().and_then(|r| if second { r.1.as_ref() } else { r.0.as_ref() });
    let a = operand(&bundle.a, recipe(false))?;
    let b = meta.op.is_product().then(|| operand(&bundle.b, recipe(true))).transpose()?;
    let operands = Operands {
        bias: bundle.bias.clone(),
        row_weights: bundle.a.weights.clone().filter(|_| bundle.bias.is_some()),
        gamma: bundle.gamma.clone(),
        beta: bundle.beta.clone(),
        offs: bundle.offs.clone(),
        ..Operands::of(a, b)
    };
    Ok(Job { op: meta.op, params: meta.params, operands, out: out_spec(bundle), accumulator: None })
}

/// Codes with the values that they were quantized from.
pub(super) fn quantized(bundle: &Bundle) -> Vec<(QTensor, Tensor)> {
    let pair = |side: &BundleOperand| Some((side.whole()?.clone(), side.high.clone()?));
    [&bundle.a, &bundle.b].into_iter().filter_map(pair).collect()
}

/// relu and srelu of NaN: the larger of NaN and 0 is 0 in C (fmaxf) and NaN in IEEE 754 and PyTorch. Whichever was written is meant.
fn nan_as_written(bundle: &Bundle, mut exact: Defined) -> Defined {
    let (Some(a), Some(Act::Relu | Act::Srelu)) = (&bundle.a.high, bundle.meta.params.act) else { return exact };
    let written = evidence::values(&bundle.out.d);
    let cols = exact.d.ncols();
    for (i, d) in exact.d.iter_mut().enumerate() {
        if a.row(i / cols)[i % cols].is_nan() && written.get(i).is_some_and(|w| w.is_nan()) {
            *d = f64::NAN;
        }
    }
    exact
}

/// How the result was to be stored.
fn out_spec(bundle: &Bundle) -> OutSpec {
    match (&bundle.out.d, result_recipe(bundle)) {
        (Data::High(t), _) => OutSpec::High(t.dtype()),
        (Data::Quantized(_), Some(recipe)) => OutSpec::Recipe(recipe.clone()),
        (Data::Quantized(q), None) => OutSpec::Scaled { format: q.format(), scale: vec![Some(scale(&bundle.out, q))] },
    }
}

/// The recipe of a quantized result. A delayed recipe's scales come from earlier steps: they are taken as they are.
fn result_recipe(bundle: &Bundle) -> Option<&crate::recipe::Recipe> {
    let recipe = bundle.meta.recipe.as_ref()?.0.as_ref()?;
    (!bundle.meta.op.is_product() && !recipe.spec().is_ok_and(|s| s.history)).then_some(recipe)
}

/// What values were multiplied by: as stored, else the f32 whose reciprocal is scale_inv, where there is one.
fn scale(out: &Out, q: &QTensor) -> f32 {
    let inverse = q.scale_inv().first().copied().unwrap_or(1.0);
    let near = 1.0 / inverse;
    let beside = [near, f32::from_bits(near.to_bits().wrapping_add(1)), f32::from_bits(near.to_bits().wrapping_sub(1))];
    out.scale.unwrap_or_else(|| beside.into_iter().find(|s| 1.0 / s == inverse).unwrap_or(near))
}

/// The result as a kernel's.
pub(crate) fn output(bundle: &Bundle) -> Result<Output> {
    let Out { d, amax, transpose, .. } = &bundle.out;
    let transpose = match (d, transpose) {
        (Data::Quantized(q), Some(codes)) => {
            let parts = q.clone().into_parts();
            Some(QTensor::new(crate::quant::QTensorParts { rows: q.cols(), cols: q.rows(), codes: codes.clone(), ..parts })?)
        }
        _ => None,
    };
    // The largest magnitude of values with a NaN among them is NaN or drops it: either is right, and says nothing more.
    let nan = bundle.a.high.as_ref().is_some_and(|t| t.data().iter().any(|x| x.is_nan()));
    let amax = amax.filter(|amax| !(amax.is_nan() && nan));
    let part = Part { d: d.clone(), transpose, amax };
    let output = Output { parts: vec![part], dbias: None, mean: None, rsigma: None };
    without_nobodys_rows(bundle.meta.op, bundle.offs.as_deref(), output)
}

/// A judged result: as it was compared, with the model's bits where there are some, and by which arithmetic.
pub(super) struct Judged {
    pub output: Output,
    pub model: Option<Output>,
    pub judgements: Vec<Judgement>,
    pub text: String,
    /// Deviation of a right sum's error over the certain radius, where no bits decide.
    pub sigma: Option<f64>,
    /// The wrong arithmetic that gives every bit, where that proves it.
    pub wrong: Option<Way>,
}

impl Judged {
    pub fn of(output: Output, model: Option<Output>, judgements: Vec<Judgement>, text: String) -> Self {
        Self { output, model, judgements, text, sigma: None, wrong: None }
    }
}

/// Judges the result and what it says of itself, and says by which arithmetic.
fn judge(bundle: &Bundle, built: &mut Built, output: Output) -> Result<Judged> {
    let mut judged = judge_values(bundle, built, output)?;
    let mut contradictions = cast::contradictions(bundle);
    if judged.judgements.first().is_some_and(|j| j.comparison.verdict != Verdict::Fail) {
        contradictions.extend(cast::beside_codes(bundle, &judged.output));
    }
    if let (false, Some(first)) = (contradictions.is_empty(), judged.judgements.first_mut()) {
        let c = &mut first.comparison;
        let said = if c.verdict == Verdict::Fail { format!("; {}", c.reason) } else { String::new() };
        (c.verdict, c.reason) = (Verdict::Fail, contradictions.join("; ") + &said);
    }
    Ok(judged)
}

fn judge_values(bundle: &Bundle, built: &mut Built, output: Output) -> Result<Judged> {
    let by = |built: &Built, output: Output, model: Option<Output>, text: String| {
        let judgements = evidence::judge(built, Backend::External, &output, model.as_ref())?;
        Ok(Judged::of(output, model, judgements, text))
    };
    match (bundle.meta.op, &bundle.out.d) {
        (op, _) if op.is_product() => {
            let Settled { accumulator, model, text, fault, wrong, size, judged } = settle(&bundle.meta, built, &output)?;
            built.job.accumulator = Some(accumulator);
            let mut judged = match judged {
                Some(judgement) => Judged::of(output, model, vec![judgement], text),
                None => by(built, output, model, text)?,
            };
            (judged.sigma, judged.wrong) = (size.as_ref().map(|s| s.sigma), wrong);
            for c in judged.judgements.iter_mut().map(|j| &mut j.comparison) {
                if let Some(fault) = &fault {
                    (c.verdict, c.reason) = (Verdict::Fail, format!("{fault}; {}", c.reason));
                } else if let Some(size) = &size {
                    c.told_by(&size.size);
                }
            }
            Ok(judged)
        }
        (Op::Cast | Op::CastTranspose, Data::Quantized(q))
            if (bundle.out.scale.is_none() || !q.format().is_fp8()) && result_recipe(bundle).is_none() =>
        {
            let x = bundle.a.high.as_ref().ok_or_else(|| Error::shape("operand a", "none", "values"))?;
            let judged = given_scales(x, q, built.exact.first().map(Arc::as_ref), bundle.out.transpose.as_deref())?;
            let least = least(q).map_or_else(String::new, |l| format!("; the least is {l}, as in symmetric casts"));
            let text = format!("each code is that of a / out.scale_inv, rounded once{least}");
            Ok(Judged::of(output, None, vec![judged], text))
        }
        (Op::Cast | Op::CastTranspose | Op::Dequantize, _) => {
            let what = match &built.job.out {
                OutSpec::Recipe(r) => format!("recipe {r}, to the bit"),
                OutSpec::Scaled { .. } => "codes of RN32(a·scale), saturating, to the bit".into(),
                OutSpec::High(_) => "RN of RN32(code·scale_inv), to the bit".to_string(),
            };
            let Some(model) = only_answer(&built.job)? else {
                let text = "the product of code and scales and its sum with the zero point, each rounded or not".into();
                return by(built, output, None, text);
            };
            let output = about_the_models_code(&output, &model)?;
            if let (OutSpec::Scaled { .. }, true) =
                (&built.job.out, mismatches(&model, &output)? > 0 && cast::agrees(&bundle.out))
                && let Some((judged, text)) = by_another_product(bundle, built)?
            {
                return Ok(Judged::of(output, None, vec![judged], text));
            }
            if bundle.meta.op == Op::Dequantize && mismatches(&model, &output)? > 0 && cast::rounded_once(&built.job, &output) {
                return by(built, output, None, "RN of code·scale_inv in one rounding, to the bit".into());
            }
            by(built, output, Some(model), what)
        }
        _ => by(built, output, None, "f32 evaluation of the formula in any order, libm within its documented error".into()),
    }
}

/// A cast whose codes are not those of RN32(a·scale), but all of a/scale_inv, rounded to f32 or not, or of a·scale in one rounding:
/// the reciprocal may be taken at either side of the cast.
fn by_another_product(bundle: &Bundle, built: &Built) -> Result<Option<(Judgement, String)>> {
    let (Some(x), Data::Quantized(q)) = (&bundle.a.high, &bundle.out.d) else { return Ok(None) };
    let (inverse, scale) = (f64::from(q.scale_inv()[0]), f64::from(scale(&bundle.out, q)));
    let amax = x.data().iter().fold(0f32, |m, x| m.max(x.abs()));
    if bundle.out.amax.is_some_and(|a| a.to_bits() != amax.to_bits()) {
        return Ok(None);
    }
    let ways: [(&str, &dyn Fn(f64) -> f64); 3] = [
        ("RN32(a / scale_inv)", &|x| f64::from((x / inverse) as f32)),
        ("a / scale_inv", &|x| x / inverse),
        ("a·scale", &|x| x * scale),
    ];
    for (name, way) in ways {
        let code = |x: &f32| q.format().encode(way(f64::from(*x)), Rounding::NearestEven, Overflow::Saturate) as u8;
        if x.data().iter().zip(q.codes()).all(|(x, c)| code(x) == *c) {
            let judged = given_scales(x, q, built.exact.first().map(Arc::as_ref), bundle.out.transpose.as_deref())?;
            return Ok(Some((judged, format!("codes of {name}, saturating, to the bit"))));
        }
    }
    Ok(None)
}

/// Where a symmetric cast to integers stops: one above the least of its format, as `[−127, 127]` has it. `None`: the least itself was
/// written, or the format has another range.
fn least(q: &QTensor) -> Option<f64> {
    let f = q.format();
    let symmetric = f.is_integer() && f.min_finite() < 0.0 && matches!(q.zero(), Zero::None);
    let written = |c: &u8| f.decode(u32::from(*c)) == f.min_finite();
    (symmetric && parallel::first(q.codes(), written).is_none()).then(|| f.min_finite() + 1.0)
}

/// A cast by scales that are taken as they are: each code is the nearest to `x / scale_inv`, but for the roundings of the reciprocal and
/// of the product.
pub fn given_scales(x: &Tensor, q: &QTensor, exact: Option<&Defined>, transpose: Option<&[u8]>) -> Result<Judgement> {
    let out = OutFormat::quantized(q, None);
    let mut ideal = parallel::map(x.data(), |x| f64::from(*x));
    if let Some(least) = least(q) {
        let cols = q.cols();
        let stops = |at: usize| least * f64::from(q.scale_inv()[q.scale_index(at / cols, at % cols)]);
        // Comparisons leave a NaN as it is.
        for (at, x) in ideal.iter_mut().enumerate().filter(|(at, x)| **x < stops(*at)) {
            *x = stops(at);
        }
    }
    let share = evidence::scaled_with(2f64.powi(-24));
    let radii = parallel::map(&ideal, |d| if d.is_finite() { d.abs() * share } else { 0.0 });
    let bound = Bound::from_radius(ideal, radii, &out)?;
    let actual = evidence::values(&Data::Quantized(q.clone()));
    let mut checks = Vec::new();
    if let Some(codes) = transpose {
        let turned = q.transposed()?;
        checks.push(Check::codes("transpose", turned.codes(), codes)?);
    }
    let exact = exact.map(Defined::flat);
    let comparison = compare::judge(&CaseEvidence {
        cols: x.cols(),
        exact: exact.as_deref(),
        bound: &bound,
        actual: &actual,
        mismatches: None,
        checks: &checks,
        bit_exact: false,
        k: None,
        groups: 1,
        scales: &[],
        zero_points: &[],
    })?;
    Ok(Judgement { cols: x.cols(), bound, actual, comparison })
}

/// What everybody has to return for a job that leaves no choice: a cast, a dequantization by one scale. Errors: those of the CPU kernel.
pub fn only_answer(job: &Job) -> Result<Option<Output>> {
    // A sum with the zero point, or a second scale, is rounded on its way or not.
    let several = |q: &QTensor| matches!(q.zero(), Zero::Additive { .. }) || q.level().is_some();
    let free = matches!(job.operands.a(), Operand::Quantized(q) if several(q));
    match job.op {
        Op::Cast | Op::CastTranspose => find(cpu::KERNELS, job, Backend::Cpu)?.run(job).map(Some),
        Op::Dequantize if !free => find(cpu::KERNELS, job, Backend::Cpu)?.run(job).map(Some),
        _ => Ok(None),
    }
}

/// A result whose additive zero points are about the same code as the model's.
pub fn about_the_models_code(output: &Output, model: &Output) -> Result<Output> {
    let mut output = output.clone();
    if let (Data::Quantized(q), Data::Quantized(m)) = (&output.parts[0].d, &model.parts[0].d)
        && let Zero::Additive { mid, .. } = m.zero()
    {
        output.parts[0].d = Data::Quantized(recipes::about(q, *mid)?);
    }
    Ok(output)
}

/// Elements whose bits differ; an amax that differs is one more.
fn mismatches(model: &Output, actual: &Output) -> Result<usize> {
    let amax = match (model.parts[0].amax, actual.parts[0].amax) {
        (Some(m), Some(a)) => usize::from(m.to_bits() != a.to_bits()),
        _ => 0,
    };
    Ok(evidence::mismatches(&model.parts[0], &actual.parts[0])?.count + amax)
}
