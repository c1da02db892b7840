//! What `qassay assay` says: as text, as a JSON line, as a row and a map of a report.

use super::Bundle;
use super::assay::Answer;
use crate::assay::Assayed;
use crate::assay::command::shell_word;
use crate::assay::fill::{digest, fill, fill_measured, narrowest};
use crate::assay::map::ErrorMap;
use crate::assay::row::{Row, short};
use crate::compare::{ErrorStats, Verdict};
use crate::fault::card::{Card, wrapped};
use crate::fault::diagnose::Finding;
use crate::kernel::Backend;
use crate::recipe::Recipe;
use serde_json::{Value, json};

/// Characters a line where there is no terminal.
pub const WIDTH: usize = 100;

/// The verdict as the contract has it: pass, fail or no_power. What is outside the probable bound only is a pass with its reason.
pub fn verdict(answer: &Answer) -> Verdict {
    match answer.verdict {
        Verdict::Suspect => Verdict::Pass,
        v => v,
    }
}

/// The JSON line of the contract, with `suspect`, `reason`, `sample`, `model`, `reference` and `mismatches` beside it. A number that is not finite is null.
pub fn json(bundle: &Bundle, answer: &Answer) -> Value {
    let c = answer.comparison();
    let stats = |s: Option<&ErrorStats>| s.map_or(Value::Null, |s| serde_json::to_value(s).unwrap_or(Value::Null));
    json!({
        "file": bundle.path.display().to_string(),
        "verdict": verdict(answer).as_str(),
        "card": card(bundle, answer).text(WIDTH),
        "suspect": answer.verdict == Verdict::Suspect,
        "diagnosis": diagnosis(answer),
        "unknown": unknown(answer),
        "location": answer.diagnosis.as_ref().map_or(Value::Null, |d| json!(d.location.words)),
        "audit": answer.diagnosis.as_ref().map_or_else(Vec::new, |d| d.audit.clone()),
        "errors": {
            "kernel": stats(Some(&c.kernel)),
            "quantization": stats(c.quantization.as_ref()),
            "total": stats(c.total.as_ref()),
        },
        "bound_ratio": c.bound_ratio_certain,
        "power": serde_json::to_value(&c.power).unwrap_or(Value::Null),
        "reason": answer.reason,
        "sample": bundle.sample,
        "empty": bundle.empty.as_ref().map(|e| &e.words),
        "model": answer.model,
        "reference": reference(answer),
        "mismatches": c.mismatches,
    })
}

/// Which of several right references the result follows (weights rounded to 16 bits, or not); null where there is one.
fn reference(answer: &Answer) -> Value {
    match answer.judgement().bound.reference() {
        "" => Value::Null,
        words => words.into(),
    }
}

/// Findings, best first; empty where nothing in the catalogue explains the error.
fn diagnosis(answer: &Answer) -> Value {
    let findings = answer.diagnosis.iter().flat_map(|d| &d.findings);
    let one = |f: &Finding| {
        json!({
            "fault": f.class.name(),
            "variant": f.fault,
            "operand": f.operand,
            "explains": f.explains,
            "detail": f.detail,
            "look": f.look,
        })
    };
    Value::Array(findings.map(one).collect())
}

/// What the text says where nothing explains the error: what was solved, the closest explanation; null where something does.
fn unknown(answer: &Answer) -> Value {
    match answer.diagnosis.as_ref().filter(|d| d.findings.is_empty()) {
        Some(d) => json!({
            "words": d.line(),
            "solved": d.solved,
            "closest": d.runner_up.as_ref().map(|r| json!({ "fault": r.class.name(), "variant": r.fault, "explains": r.explains })),
        }),
        None => Value::Null,
    }
}

/// What a person reads first.
pub fn card(bundle: &Bundle, answer: &Answer) -> Card {
    Card::new(answer.verdict, bundle.path.display().to_string(), &answer.reason, answer.diagnosis.as_ref())
}

/// Columns before a number: two spaces and its name.
const NAMES: usize = 15;

/// Several lines for a terminal of `width` characters: the card, then every number.
pub fn text(bundle: &Bundle, answer: &Answer, width: usize) -> String {
    let c = answer.comparison();
    let mut text = card(bundle, answer).text(width);
    let mut line = |name: &str, what: String| {
        let mut name = name;
        for part in wrapped(&what, width.saturating_sub(NAMES)) {
            text += &format!("  {:<1$}{part}\n", std::mem::take(&mut name), NAMES - 2);
        }
    };
    if let Some(d) = &answer.diagnosis {
        d.audit.iter().for_each(|a| line("audit", a.clone()));
    }
    line("op", describe(bundle, answer));
    bundle.sample.iter().for_each(|words| line("sample", words.clone()));
    line("model", answer.model.clone());
    if let Value::String(words) = reference(answer) {
        line("reference", words);
    }
    if let Some(n) = c.mismatches {
        line("mismatches", format!("{n} of {} elements differ from the model's bits", c.kernel.count));
    }
    line("error/bound", short(c.bound_ratio_certain));
    for (name, stats) in [("quantization", c.quantization.as_ref()), ("kernel", Some(&c.kernel)), ("total", c.total.as_ref())] {
        match stats {
            Some(s) => line(
                name,
                format!(
                    "SQNR {} dB, relative error {} (Frobenius), largest {} ({} ulp)",
                    short(s.sqnr_db),
                    short(s.rel_frobenius),
                    short(s.max_abs),
                    short(s.max_ulp)
                ),
            ),
            None => line(name, "not known: the unquantized operands are not in the bundle".into()),
        }
    }
    line("power", power(answer));
    text
}

fn describe(bundle: &Bundle, answer: &Answer) -> String {
    let job = &answer.assayed.built.job;
    let shape = |rows: usize, cols: usize| format!("{rows}×{cols}");
    let mut words = match &bundle.empty {
        Some(empty) => vec![empty.words.clone()],
        None => {
            let operands = job.operands.all().map(|o| shape(o.rows(), o.cols()));
            let operands = operands.collect::<Vec<_>>().join(" by ");
            [Some(job.op.name().to_string()), job.params.act.map(|a| a.name().to_string()), Some(operands)]
                .into_iter()
                .flatten()
                .collect()
        }
    };
    words.extend(bundle.meta.kernel.as_ref().map(|k| format!("by {k}")));
    words.extend(bundle.meta.device.as_ref().map(|d| format!("on {d}")));
    words.join(" ")
}

/// The smallest faults that would have been caught.
fn power(answer: &Answer) -> String {
    let p = &answer.comparison().power;
    // A gain of 1.0000002 is told by what it adds.
    let times = |x: f64| match x - 1.0 {
        more if !more.is_finite() => "none".to_string(),
        more if more < 1e-3 => format!("×(1 + {})", short(more)),
        _ => format!("×{}", short(x)),
    };
    let mut words = vec![
        format!("catches a gain of {}", times(p.gain)),
        format!(
            "of one row {}, one column {}, one scale's group {}",
            times(p.row_gain),
            times(p.column_gain),
            times(p.group_gain)
        ),
    ];
    words.extend(p.dropped_k.map(|k| format!("{} of K dropped", short(k))));
    words.push(format!("{} % of codes off by one", short(100.0 * p.code_flip_rate)));
    words.join("; ")
}

/// A row of a report.
pub fn row(bundle: &Bundle, answer: &Answer) -> Row {
    let (job, part) = (&answer.assayed.built.job, answer.judgement());
    let (a, b) = bundle.meta.recipe.clone().unwrap_or_default();
    let name = |r: Option<Recipe>| r.map_or_else(String::new, |r| r.to_string());
    let kernel = bundle.meta.kernel.clone().unwrap_or_else(|| "external".into());
    let path = bundle.path.display().to_string();
    let mut row = Row {
        sweep: "bundles".into(),
        family: kernel.clone(),
        act: job.params.act,
        recipe_a: name(a),
        recipe_b: name(b.filter(|_| job.operands.b().is_some())),
        accumulator: job.accumulator,
        m: part.comparison.kernel.count / part.cols.max(1),
        n: part.cols,
        k: if job.operands.b().is_some() { job.operands.a().cols() } else { 0 },
        out: part.bound.out().format().to_string(),
        bias: job.operands.bias.is_some(),
        dist_a: "bundle".into(),
        command: format!("qassay assay {}", shell_word(&path)),
        case: path,
        ..Row::new(job.op, Backend::External)
    };
    match &answer.measured {
        None => fill(&mut row, &answer.assayed),
        Some(measured) => {
            let Assayed { kernel, output, built, .. } = &answer.assayed;
            fill_measured(&mut row, kernel, answer.comparison(), measured);
            row.algorithm = answer.model.clone();
            row.sha256 = digest(output);
            narrowest(&mut row, output, &built.quantized, None);
        }
    }
    if let Some(e) = &bundle.empty {
        (row.op, row.m, row.n, row.k) = (e.op, e.m, e.n, e.k);
    }
    row.verdict = answer.verdict;
    row.reason = answer.reason.clone();
    card(bundle, answer).into_row(&mut row);
    row.kernel = kernel;
    row.device = bundle.meta.device.clone().unwrap_or_default();
    row
}

/// Where the error lives. Errors: none that a judged bundle has.
pub fn map(bundle: &Bundle, answer: &Answer) -> crate::Result<ErrorMap> {
    let part = answer.judgement();
    let why = if answer.reason.is_empty() { answer.verdict.to_string() } else { answer.reason.clone() };
    let name = bundle.path.display().to_string();
    let map = match &answer.measured {
        None => ErrorMap::of(name, &part.bound, &part.actual, part.cols)?,
        Some(measured) => {
            let rows = part.comparison.kernel.count / part.cols.max(1);
            ErrorMap::of_largest(name, ErrorMap::tile(rows, part.cols), measured.ratios.clone())
        }
    };
    Ok(ErrorMap { why, ..map })
}
