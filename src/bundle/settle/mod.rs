//! Which arithmetic a product's result is held to, where several are right.
//!
//! A model that is *declared* is one arithmetic: scales in any order, a bias added or fused, and every bit decides. A model that is
//! *assumed* from the device is a set of right arithmetics: chains of every instruction that takes the formats ([`ways`]), promoted at the
//! intervals that kernels take, K cut into parts that are added in f32 ([`cuts`]), scales and bias in every order. Then
//!
//! | the result | verdict |
//! |---|---|
//! | has every bit of one of them | pass |
//! | has an element outside the certain bound of that device in any order | fail |
//! | has every bit of a known wrong arithmetic ([`wrong`]) | fail |
//! | is nearer all over to the product of scales or parts of K in 16 bits ([`nearer`]) | fail |
//! | has sums that are all numbers of 16 bits ([`sixteen`]) | fail |
//! | has the bits of a right one all around an element that is not near it ([`torn`]) | fail |
//! | has the bits of int32 sums nearly everywhere, and elements that no exact sums give ([`exact_sums`]) | fail |
//! | has a larger error, in distribution, than any right arithmetic of the device makes on these data ([`spread`]) | suspect |
//! | else | pass, by the bound |
//!
//! [`Settled::text`] says which of these it was.

pub(crate) mod cuts;
#[cfg(test)]
pub(in crate::bundle) mod emulated;
mod exact_sums;
mod nearer;
pub(crate) mod region;
pub(crate) mod search;
pub(crate) mod sixteen;
mod spread;
#[cfg(test)]
mod tests;
mod torn;
pub(crate) mod ways;
pub(crate) mod wrong;

use super::Meta;
use super::arithmetic::Arithmetic;
use crate::assay::Built;
use crate::assay::{Judgement, evidence};
use crate::compare::{ErrorSize, Verdict};
use crate::job::{Data, Job, Operand, Output, Part};
use crate::kernel::Backend;
use crate::model::product::Kind;
use crate::model::{Accumulator, Inner, MmaModel, ScaleOrder};
use crate::op::{self, Accelerator, Args64, Op};
use crate::stage::timed;
use crate::tensor::round_to;
use crate::{Error, Overflow, QTensor, Result, Rounding, Tensor};
use cuts::Cut;
use ndarray::Array2;
use search::{Case, Way, Ways};
pub use spread::Spread;
use ways::{Chain, Ending, Promote, ScalesMeet};

/// Multiply-adds of a product that is computed once more in f64 for a question: 50 ms.
const FEW_PRODUCTS: usize = 1 << 30;

/// Which arithmetic a product's result is held to.
pub struct Settled {
    /// What the bound is derived from.
    pub accumulator: Accumulator,
    /// The bits the result has to have, where a model says. A known wrong arithmetic is held to the nearest right one.
    pub model: Option<Output>,
    pub text: String,
    /// Why it fails although every element is inside its bound.
    pub fault: Option<String>,
    /// The wrong arithmetic that gives every bit, where that proves it.
    pub wrong: Option<Way>,
    /// How large the errors are beside those of right sums, where no bits decide.
    pub size: Option<Spread>,
    /// The result by the bound of `accumulator`, where nothing else decides.
    pub judged: Option<Judgement>,
}

impl Settled {
    fn plain(accumulator: Accumulator, model: Option<Output>, text: String) -> Self {
        Self { accumulator, model, text, fault: None, wrong: None, size: None, judged: None }
    }
}

/// Finds the arithmetic among those that the metadata leave possible. Errors: a declared model that does not take the operands' formats.
pub fn settle(meta: &Meta, built: &mut Built, output: &Output) -> Result<Settled> {
    let job = runnable(&built.job);
    let arithmetic = Arithmetic::of(meta, &job)?;
    let without = |why: String| {
        let accumulator = arithmetic.declared.unwrap_or(Accumulator::new(arithmetic.bound));
        let text = format!("{accumulator}: {}; there is no model of its bits for these operands ({why})", arithmetic.why);
        Ok(Settled::plain(accumulator, None, text))
    };
    let settled = Case::of(&job, output).and_then(|case| match arithmetic.declared {
        Some(accumulator) => declared(&case, accumulator, &arithmetic.why, output),
        None => assumed(&case.telling(&built.ideal[0]), &arithmetic, built, output),
    });
    match settled {
        // Operands that no kernel of ours takes have a bound, but no bits.
        Err(Error::Unsupported { why, .. }) => without(why),
        Err(e @ Error::Value { .. }) if arithmetic.declared.is_none() => without(e.to_string()),
        settled => settled,
    }
}

/// What the first elements of a large product say of its arithmetic; the rest is held to it elsewhere.
pub(in crate::bundle) struct First {
    pub accumulator: Accumulator,
    /// How its sums became values.
    pub ending: Ending,
    pub text: String,
}

/// The arithmetics of the first chain that sums K as it stands and gives the first elements: a narrow result does not tell all orders of scales
/// apart so soon. Errors: those of [`settle`].
pub(in crate::bundle) fn of_first(meta: &Meta, job: &Job, output: &Output) -> Result<Vec<First>> {
    let job = runnable(job);
    let arithmetic = Arithmetic::of(meta, &job)?;
    let case = Case::of(&job, output)?;
    let (chains, any) = match arithmetic.declared {
        Some(a) => (Chain::of(a.inner).map(|c| vec![(c, a.promote_every.map(Promote::f32))]).unwrap_or_default(), a.inner),
        None => (arithmetic.promoted(case.k()), arithmetic.bound),
    };
    let mut ways = Ways { chains, cuts: vec![Cut::Whole], endings: case.endings(false) };
    let mut all = Vec::new();
    while let Some(way) = timed("right bits", || case.find(&ways, 1))? {
        ways.chains = vec![(way.chain, way.promote)];
        ways.endings.retain(|e| *e != way.ending);
        let text = format!("{}: {}, to the bit", way.words(), arithmetic.why);
        all.push(First { accumulator: near(&way, any), ending: way.ending, text });
    }
    Ok(all)
}

/// With an accumulator that operands of its kind take.
fn runnable(job: &Job) -> Job {
    let integer = |o: &Operand| match o {
        Operand::Quantized(q) => q.format().is_integer(),
        Operand::Dynamic(d) => d.recipe().format.is_integer(),
        _ => false,
    };
    let both = job.operands.get(0).is_some_and(integer) && job.operands.b().is_some_and(integer);
    let inner = if both { Inner::Int32 } else { Inner::F32Sequential };
    Job { accumulator: Some(Accumulator::new(inner)), ..job.clone() }
}

/// One arithmetic, to the bit.
fn declared(case: &Case, accumulator: Accumulator, why: &str, output: &Output) -> Result<Settled> {
    let integers = matches!(case.plan.accumulator.inner, Inner::Int32);
    if integers != (accumulator.inner == Inner::Int32) {
        let why = if integers { "an integer product accumulates in int32" } else { "int32 sums need integers" };
        return Err(Error::unsupported(accumulator.to_string(), why));
    }
    let chain = Chain::of(accumulator.inner).ok_or_else(|| Error::unsupported(accumulator.to_string(), "it has no bits"))?;
    let chains = vec![(chain, accumulator.promote_every.map(Promote::f32))];
    let ways = Ways { chains, cuts: vec![Cut::Whole], endings: case.endings(false) };
    if let Some(way) = case.find(&ways, usize::MAX)? {
        return Ok(exactly(output, &way, accumulator.inner, why));
    }
    let Some(way) = case.nearest(&ways)? else {
        return Ok(Settled::plain(accumulator, None, format!("{accumulator}: {why}; there is nothing to compare")));
    };
    let text = format!("{}: {why}; the nearest with every order of the scales", way.words());
    Ok(Settled::plain(near(&way, accumulator.inner), Some(case.output(&way)?), text))
}

/// Every bit is that of `way`: what it writes is what was written.
fn exactly(output: &Output, way: &Way, any: Inner, why: &str) -> Settled {
    Settled::plain(near(way, any), Some(output.clone()), format!("{}: {why}, to the bit", way.words()))
}

/// What the bound of `way` is derived from: itself, or `any` where it is not one chain of K.
fn near(way: &Way, any: Inner) -> Accumulator {
    let promote_every = way.promote.map(|p| p.every);
    let scales_first = way.ending.blocks.is_some_and(|b| b.scales == ScalesMeet::Both);
    let scale_order = if scales_first { ScaleOrder::ScalesFirst } else { ScaleOrder::SumFirst };
    match (way.cut, way.chain, way.chain.inner()) {
        (_, Chain::Widened(..), _) | (_, _, None) => Accumulator::new(Inner::AnyUnit),
        (Cut::Whole, _, Some(inner)) => Accumulator { inner, promote_every, scale_order },
        (_, Chain::Unit(name), _) => Accumulator::new(Inner::AnyOf(MmaModel { name })),
        (_, Chain::Int32, _) => Accumulator::new(any),
        _ => Accumulator::new(Inner::AnyOrder),
    }
}

/// One of a set of right arithmetics, or none.
fn assumed(case: &Case, arithmetic: &Arithmetic, built: &mut Built, output: &Output) -> Result<Settled> {
    let k = case.k();
    let chains = arithmetic.promoted(k);
    let whole = || Ways { chains: chains.clone(), cuts: vec![Cut::Whole], endings: case.endings(false) };
    // Each chain as it is and with the first of its promotions.
    let first = || chains.iter().take(2 * arithmetic.chains.len()).copied().collect::<Vec<_>>();
    let usual = || Ways { chains: first(), cuts: Cut::usual(k), endings: case.endings(true) };
    // By a BLAS, of codes or of dequantized factors. Integers are summed exactly, whoever does it.
    let by_blas = || {
        let dequantized = [true, false].map(|fused| Chain::Dequantized { fused }).into_iter().filter(|_| case.has_scales());
        let floats = case.plan.kind != Kind::Integer;
        let chains = std::iter::once(Chain::Sequential).chain(dequantized).filter(|_| floats).map(|c| (c, None)).collect();
        Ways { chains, cuts: Cut::blas(k), endings: case.endings(false) }
    };
    let units = || chains.iter().filter(|c| matches!(c.0, Chain::Unit(_))).copied().collect();
    let split = || Ways { chains: units(), cuts: Cut::all(k), endings: case.endings(true) };
    let mut but_for_amax = None;
    let mut find = |ways: Ways| -> Result<Option<Settled>> {
        let way = timed("right bits", || case.search(&ways, usize::MAX, &mut but_for_amax))?;
        Ok(way.map(|way| exactly(output, &way, arithmetic.bound, &arithmetic.why)))
    };
    // Most results are of the first set: the others are not made before they are asked.
    if let Some(found) = find(whole())? {
        return Ok(found);
    }
    if case.plan.kind != Kind::Integer
        && let Some((of, inner)) = rounded_once(case.job, output, &built.ideal[0])?
    {
        let text = format!("exact{of}, rounded once: {}, to the bit", arithmetic.why);
        return Ok(Settled::plain(Accumulator::new(inner), Some(output.clone()), text));
    }
    let others: [&dyn Fn() -> Ways; 3] = [&by_blas, &usual, &split];
    for ways in others {
        if let Some(found) = find(ways())? {
            return Ok(found);
        }
    }
    let accumulator = built.job.accumulator;
    let settled = by_bound(case, arithmetic, built, output, but_for_amax);
    built.job.accumulator = accumulator;
    settled
}

/// Of what the result is the exact product to the nearest, and the accumulator whose bound holds it: of the factors as they are, or as f32
/// arithmetic dequantizes them.
fn rounded_once(job: &Job, output: &Output, ideal: &op::Defined) -> Result<Option<(&'static str, Inner)>> {
    if is_rounded_once(output, ideal) {
        return Ok(Some(("", Inner::Exact)));
    }
    let work = job.operands.a().rows() * job.operands.a().cols() * job.operands.b().map_or(0, Operand::rows);
    if work > FEW_PRODUCTS || !is_rounded_once(output, &product(job, true, None)?) {
        return Ok(None);
    }
    Ok(Some((" of factors dequantized to f32", Inner::AnyOrder)))
}

/// Whether every element is the exact one to the nearest, as f64 arithmetic rounds it: to the type of the result, or to f32 first.
fn is_rounded_once(output: &Output, ideal: &op::Defined) -> bool {
    let [Part { d: Data::High(t), .. }] = &output.parts[..] else { return false };
    let once = |d: f64| t.dtype().decode(t.dtype().encode(d, Rounding::NearestEven, Overflow::Native));
    t.data().len() == ideal.d.len()
        && t.data()
            .iter()
            .zip(&ideal.d)
            .all(|(x, d)| *x == round_to(t.dtype(), *d as f32) || f64::from(*x) == once(*d) || x.is_nan() && d.is_nan())
}

/// What no bits decide: by the bound, by bits of wrong arithmetics, by the size of the errors. `but_for_amax`: what gives all bits of the result and
/// another amax.
fn by_bound(
    case: &Case,
    arithmetic: &Arithmetic,
    built: &mut Built,
    output: &Output,
    but_for_amax: Option<Way>,
) -> Result<Settled> {
    let k = case.k();
    let whole = Ways { chains: arithmetic.promoted(k), cuts: vec![Cut::Whole], endings: case.endings(false) };
    let first = whole.chains.iter().take(2 * arithmetic.chains.len()).copied().collect::<Vec<_>>();
    let mut by = |accumulator: Accumulator| -> Result<Judgement> {
        built.job.accumulator = Some(accumulator);
        Ok(evidence::judge(built, Backend::External, output, None)?.remove(0))
    };
    let passes = |j: &Judgement| j.comparison.judged.improbable == 0 && j.comparison.verdict != Verdict::Fail;
    let any_order = Accumulator::new(Inner::AnyOrder);
    let tight = by(any_order)?;
    let why = &arithmetic.why;
    // What was assumed of the device is not what every kernel on it does: one that sums in f32 is more exact than its FP8 unit.
    let (accumulator, wide, by_bound) = if arithmetic.bound != Inner::AnyOrder && passes(&tight) {
        let text = format!("f32 in any order: within its bound, which is tighter than {} ({why})", arithmetic.bound);
        (any_order, None, text)
    } else {
        let any = Accumulator::new(arithmetic.bound);
        (any, Some(by(any)?), format!("{any}: {why}; judged by the bound: the bits are of no known arithmetic"))
    };
    let judged = wide.as_ref().unwrap_or(&tight);
    if let Some(way) = but_for_amax {
        // The codes are right. Of many ways that give them, each with an amax of its own, nobody knows the one: the bound decides.
        let is_wrong = judged.comparison.verdict == Verdict::Fail;
        let accumulator = if is_wrong { near(&way, arithmetic.bound) } else { accumulator };
        let text = format!("{}: {why}, to the bit but for amax", way.words());
        let mut model = output.clone();
        model.parts.iter_mut().for_each(|p| p.amax = None);
        return Ok(Settled::plain(accumulator, Some(model), text));
    }
    let Some(way) = timed("right bits", || case.nearest(&Ways { chains: first, ..whole.clone() }))? else {
        return Ok(Settled::plain(accumulator, None, by_bound));
    };
    let failed = |fault: Option<String>| -> Result<Settled> {
        let text = format!("{}: {why}; the nearest of those that are right", way.words());
        let text = fault.as_ref().map_or(text.clone(), |f| format!("{f}; {text}"));
        let mut model = case.output(&way)?;
        // Others of those that are right give the same codes, and another amax: the bound decides.
        model.parts.iter_mut().for_each(|p| p.amax = None);
        let model = Some(model);
        Ok(Settled { fault, ..Settled::plain(near(&way, arithmetic.bound), model, text) })
    };
    if judged.comparison.verdict == Verdict::Fail {
        return failed(None);
    }
    let mut chance = None;
    match timed("wrong bits", || wrong::find(case, arithmetic, &judged.bound))? {
        Some((way, true)) => {
            let found = failed(Some(format!("a wrong arithmetic gives exactly these bits: {}", way.words())))?;
            return Ok(Settled { wrong: Some(way), ..found });
        }
        Some((way, false)) => chance = Some(way.words()),
        None => {}
    }
    let written = evidence::values(&output.parts[0].d);
    let rows = written.len() / tight.cols.max(1);
    if let Some(words) = timed("16 bits", || nearer::find(case.job, rows, tight.cols, &written, &tight.bound)) {
        // Sums in f32 show it.
        let mut found = failed(Some(words))?;
        found.accumulator = any_order;
        return Ok(found);
    }
    if let Some(f) = timed("16 bits", || sixteen::find(case.job, rows, tight.cols, &written, tight.bound.ideal())) {
        let mut found = failed(Some(sixteen::words(f)))?;
        found.accumulator = any_order;
        return Ok(found);
    }
    let spread = timed("sizes of errors", || spread::measure(case, arithmetic, &judged.bound))?;
    // How far two right sums of an element lie apart. Chains of f32 that the bits tell from exact sums: no further than the bound of the one
    // that was found. Other sums in f32: no further than in any order. Units that keep fewer bits: as far as their own sums in any order do.
    let apart = spread.as_ref().map(|s| s.apart(case.bits.len()));
    let in_f32 = matches!(way.chain, Chain::Exact | Chain::Sequential | Chain::Pairwise);
    let own = (in_f32 && timed("right bits", || case.tells(&way))?).then(|| by(near(&way, arithmetic.bound))).transpose()?;
    let own = own.as_ref().unwrap_or(&tight);
    let radius = |i: usize| {
        let any = own.bound.certain()[i].min(tight.bound.certain()[i]);
        let half = 0.5 * judged.bound.out().spacing(i, judged.bound.ideal()[i]);
        if in_f32 { any } else { any.max(apart.map_or(0.0, |w| w * (judged.bound.certain()[i] + half))) }
    };
    if let Some(words) = timed("torn elements", || torn::find(case, &way, &tight.bound, radius))? {
        return failed(Some(words));
    }
    if way.chain == Chain::Int32 && !case.blocked() {
        let own = by(near(&way, arithmetic.bound))?;
        if let Some(words) = timed("exact sums", || exact_sums::find(case, &way, &tight.bound, &own.bound))? {
            return failed(Some(words));
        }
    }
    let mut text = by_bound;
    if let Some(ErrorSize { larger: None, words, .. }) = spread.as_ref().map(|s| &s.size) {
        text = format!("{text}; {words}");
    }
    if let Some(words) = chance {
        text = format!("{text}; a wrong arithmetic, perhaps by chance, gives the same bits: {words}");
    }
    if let Some(ErrorSize { larger: Some(doubt), .. }) = spread.as_ref().map(|s| &s.size) {
        text = format!("{text}; {doubt}");
    }
    Ok(Settled { size: spread, judged: Some(wide.unwrap_or(tight)), ..Settled::plain(accumulator, None, text) })
}

/// The product in f64, a large one by `accelerator`.
pub fn ideal(job: &Job, accelerator: Option<Accelerator>) -> Result<op::Defined> {
    product(job, false, accelerator)
}

/// The product in f64 of the dequantized factors, or of what they are when f32 arithmetic dequantizes them.
fn product(job: &Job, in_f32: bool, accelerator: Option<Accelerator>) -> Result<op::Defined> {
    let values = |operand: &Operand| -> Array2<f64> {
        match operand {
            Operand::Quantized(q) if in_f32 => q.dequantize_fast().mapv_into(|v| f64::from(v as f32)),
            Operand::Quantized(q) => q.dequantize_fast(),
            other => other.to_f64(),
        }
    };
    let o = &job.operands;
    let (a, b) = (o.get(0).map(values).unwrap_or_default(), o.b().map(values));
    let wide = |of: &[f32]| of.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
    let (bias, row_weights) = (o.bias.as_ref().map(|t| wide(t.data())), o.row_weights.as_deref().map(wide));
    let offs = o.offs.clone();
    op::define(job.op, &job.params, &Args64 { a, b, bias, row_weights, offs, accelerator, ..Args64::default() })
}

/// Rows behind the last group are nobody's: whatever a kernel left there is read as zeros, as the references have them.
pub fn without_nobodys_rows(op: Op, offs: Option<&[usize]>, mut output: Output) -> Result<Output> {
    let (Op::GroupedGemm | Op::GroupedGemmDgrad, Some(last)) = (op, offs.and_then(|o| o.last().copied())) else {
        return Ok(output);
    };
    for part in &mut output.parts {
        match &mut part.d {
            Data::High(t) if last < t.rows() => {
                let mut data = t.data().to_vec();
                data[last * t.cols()..].fill(0.0);
                *t = Tensor::new(t.dtype(), t.rows(), t.cols(), data)?;
            }
            Data::Quantized(q) if last < q.rows() => {
                let (cols, mut parts) = (q.cols(), q.clone().into_parts());
                parts.codes[last * cols..].fill(0);
                *q = QTensor::new(parts)?;
            }
            _ => {}
        }
    }
    Ok(output)
}
