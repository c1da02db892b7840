//! One question put to the judge and to the diagnosis, and its answer held against what was drawn.

use super::draw::{Effect, Question, Which, WrongScale};
use super::replay;
use crate::assay::Built;
use crate::assay::evidence;
use crate::compare::Verdict;
use crate::fault::{self, Class, Diagnosis, Evidence};
use crate::job::{Data, Job, Operand, Operands, OutSpec, Output, Part};
use crate::kernel::Backend;
use crate::model::{Accumulator, Inner};
use crate::op::{self, Args64, Op, Params};
use crate::{Result, Tensor};
use std::time::{Duration, Instant};

/// What came of a question.
#[derive(Clone, Debug)]
pub struct Score {
    /// The right result raised an alarm.
    pub alarm: bool,
    /// The faults change the result by more than its bound: the rest counts only then.
    pub changed: bool,
    /// Named with the right class (of two faults: both).
    pub named: bool,
    /// … and with every number that was drawn.
    pub numbers: bool,
    /// Found, and of no class that was drawn.
    pub wrong: bool,
    pub unknown: bool,
    pub seconds: f64,
    pub line: String,
}

/// The launch of a question, without its result.
fn built(q: &Question) -> Result<Built> {
    let n = replay::columns(q);
    let bias = q.bias.as_ref().map(|b| Tensor::new(crate::Format::F32, 1, n, b.clone())).transpose()?;
    let wide = q.bias.as_ref().map(|b| b.iter().map(|x| f64::from(*x)).collect());
    let op = if q.offs.is_some() { Op::GroupedGemm } else { Op::Gemm };
    let args = Args64 { a: q.a.dequantize(), b: Some(q.b.dequantize()), bias: wide, offs: q.offs.clone(), ..Args64::default() };
    let inner = if q.a.format().is_integer() { Inner::Int32 } else { Inner::F32Sequential };
    let [a, b] = [&q.a, &q.b].map(|x| Operand::Quantized(x.clone()));
    let operands = Operands { bias, offs: q.offs.clone(), ..Operands::of(a, Some(b)) };
    let ideal = vec![op::define(op, &Params::default(), &args)?];
    let job =
        Job { op, params: Params::default(), operands, out: OutSpec::High(q.out), accumulator: Some(Accumulator::new(inner)) };
    Ok(Built::of(job, ideal))
}

fn output(q: &Question, values: Vec<f32>) -> Result<Output> {
    let d = Data::High(Tensor::new(q.out, q.a.rows(), replay::columns(q), values)?);
    Ok(Output { parts: vec![Part { d, transpose: None, amax: None }], dbias: None, mean: None, rsigma: None })
}

/// Asks. Errors: a product that has no bound.
pub fn ask(q: &Question) -> Result<Score> {
    let built = built(q)?;
    let judge = |wrong: bool| -> Result<(Output, Vec<evidence::Judgement>)> {
        let output = output(q, replay::stored(q, wrong))?;
        let judged = evidence::judge(&built, Backend::External, &output, None)?;
        Ok((output, judged))
    };
    let alarm = judge(false)?.1.iter().any(|j| matches!(j.comparison.verdict, Verdict::Fail | Verdict::Suspect));
    let (output, judged) = judge(true)?;
    let mut score = Score {
        alarm,
        changed: judged.iter().any(|j| j.comparison.verdict == Verdict::Fail),
        named: false,
        numbers: false,
        wrong: false,
        unknown: false,
        seconds: 0.0,
        line: String::new(),
    };
    if !score.changed {
        return Ok(score);
    }
    let started = Instant::now();
    let found = fault::diagnose(Evidence::new(&built.job, &output, Backend::External, &judged), Duration::from_secs(3600))?;
    score.seconds = started.elapsed().as_secs_f64();
    let Some(d) = found else {
        score.line = "nothing to explain".into();
        score.unknown = true;
        return Ok(score);
    };
    score.line = d.line();
    hold(q, &d, &judged, &mut score);
    Ok(score)
}

/// Whether the result is another without this effect, by more than rounding.
fn shows(q: &Question, effect: &Effect, judged: &[evidence::Judgement]) -> bool {
    let without = Question { effects: q.effects.iter().filter(|e| *e != effect).copied().collect(), ..q.clone() };
    let (with, without) = (replay::stored(q, true), replay::stored(&without, true));
    let bound = &judged[0].bound;
    let apart = |i: usize| {
        let (x, y) = (f64::from(with[i]), f64::from(without[i]));
        let near = (x - y).abs() <= 2.0 * (bound.certain()[i] + bound.out().spacing(i, x));
        !(near || x.is_nan() && y.is_nan())
    };
    (0..with.len()).any(apart)
}

fn hold(q: &Question, d: &Diagnosis, judged: &[evidence::Judgement], score: &mut Score) {
    let Some(best) = d.findings.first() else {
        score.unknown = true;
        return;
    };
    let parts: Vec<&str> = best.fault.split(" + ").collect();
    let is = |e: &Effect, part: &str| classes(e).iter().any(|c| part.starts_with(&format!("{}:", c.name())));
    // One that changes nothing beside the other cannot be asked for.
    let asked: Vec<&Effect> = q.effects.iter().filter(|e| q.effects.len() == 1 || shows(q, e, judged)).collect();
    let each = asked.iter().all(|e| parts.iter().any(|p| is(e, p)));
    // Where several explanations write the same here, one of them is right.
    let tied = |e: &Effect| d.findings.iter().flat_map(|f| f.fault.split(" + ")).any(|p| is(e, p));
    score.named = each;
    score.wrong = !asked.iter().any(|e| tied(e));
    score.numbers = each && asked.iter().all(|e| numbers(e).iter().all(|n| mentions(&best.detail, *n)));
}

/// Whether a number stands in a sentence, as it is or (the end of a range) less one.
fn mentions(text: &str, n: f64) -> bool {
    let words = text.split(|c: char| !(c.is_ascii_digit() || c == '.')).filter_map(|w| w.trim_matches('.').parse::<f64>().ok());
    words.into_iter().any(|x| (x - n).abs() <= 1e-3 * n.abs() || x == n - 1.0)
}

fn numbers(e: &Effect) -> Vec<f64> {
    match e {
        Effect::Gain(g) => vec![*g],
        Effect::Dropped(a, b) | Effect::Doubled(a, b) | Effect::Alone(a, b) => {
            [*a, *b].iter().filter(|x| **x > 0).map(|x| *x as f64).collect()
        }
        Effect::ScaleLength(_, n) => vec![*n as f64],
        Effect::CodeXor(_, n) => vec![*n as f64],
        _ => Vec::new(),
    }
}

/// The classes that an effect may rightly be called.
fn classes(e: &Effect) -> Vec<Class> {
    use Class::*;
    match e {
        Effect::Gain(_) => vec![StaleState],
        Effect::Dropped(..) | Effect::Doubled(..) | Effect::Alone(..) => vec![KTail, AccState],
        Effect::ScaleRule(_, WrongScale::Omitted) => vec![ScaleOmitted],
        Effect::ScaleRule(_, WrongScale::Squared | WrongScale::Inverted) => vec![ScaleDoubledInverted],
        Effect::ScaleRule(..) => vec![ScaleRerounded],
        Effect::ScaleRow(..) => vec![ScaleShared, ScaleIndex, ScaleLayout],
        Effect::ScaleGroup(..) | Effect::ScaleLength(..) => vec![ScaleIndex, ScaleLayout],
        Effect::ScaleTransposed(_) => vec![ScaleLayout],
        Effect::ZeroOffset(..) => vec![ZpOffset],
        Effect::ZeroOmitted(_) | Effect::ZeroNegated(_) | Effect::ZeroRow(..) => vec![ZpCorrection, PackPermute],
        Effect::ReadAs(w, _) => {
            let _: &Which = w;
            // Of codes with zero points it is their convention of the sign.
            vec![BitsReinterpreted, ZpOffset]
        }
        Effect::SubnormalsFlushed(_) => vec![CodecEdge],
        Effect::CodeXor(..) | Effect::CodeOrder(..) => vec![PackPermute],
        Effect::CodeStride(..) => vec![Addressing],
        Effect::RowsMoved(_) | Effect::ColumnsMoved(_) => vec![Addressing],
        Effect::BiasOmitted => vec![SilentSkip],
        Effect::Clamped(_) => vec![OverflowWrap],
        Effect::Expert(_) => vec![GroupBoundary],
    }
}

#[cfg(test)]
mod tests {
    use super::super::draw::question;
    use super::*;

    #[test]
    fn right_results_of_the_grammar_raise_no_alarm() {
        for number in 0..60 {
            let q = question(5, number, false).unwrap();
            let b = built(&q).unwrap();
            let o = output(&q, replay::stored(&q, false)).unwrap();
            let judged = evidence::judge(&b, Backend::External, &o, None).unwrap();
            assert!(judged.iter().all(|j| j.comparison.verdict != Verdict::Fail), "{number}: {:?}", q.effects);
        }
    }

    #[test]
    fn numbers_are_found_in_sentences() {
        assert!(mentions("K 160 … 191 is missing", 160.0) && mentions("K 160 … 191 is missing", 192.0));
        assert!(!mentions("K 160 … 191 is missing", 19.0) && mentions("times 1.37: no stored", 1.3702));
    }
}
