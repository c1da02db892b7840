//! Which fault explains what was written: the catalogue searched, the best answer and its runner-up, or "unknown" with where the error
//! lives.

use super::inject::Set;
use super::locate::{self, Location};
use super::predict::{Fit, Prediction, Scene};
use super::settings::{self, Gains};
use super::solve::{self, Theory};
use super::{Class, Evidence, How, faults};
use crate::Result;
use crate::compare::Verdict;
use crate::job::Job;
use crate::order::Order as _;
use crate::parallel;
use std::time::Duration;

/// One explanation.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Finding {
    /// `class:variant`; of a compound both, joined by ` + `.
    pub fault: String,
    #[serde(skip)]
    pub class: Class,
    pub variant: String,
    /// `a`, `b` or `out`.
    pub operand: &'static str,
    /// The share of the error's energy that it explains.
    pub explains: f64,
    /// What the kernel does, and the parameters that fit.
    pub detail: String,
    /// What to look at in the kernel.
    pub look: &'static str,
    /// Whether what remains is rounding.
    pub accepted: bool,
    /// Whether nothing remains.
    pub exact: bool,
    /// Numbers fitted to the result.
    pub freedom: usize,
}

impl Finding {
    /// What was solved outside of a product, and explains all that is wrong.
    pub fn solved(class: Class, variant: &str, detail: String) -> Self {
        Self {
            fault: format!("{}:{variant}", class.name()),
            class,
            variant: variant.into(),
            operand: "out",
            explains: 1.0,
            detail,
            look: class.spec().look,
            accepted: true,
            exact: false,
            freedom: 0,
        }
    }

    /// A result that is right by another formula, or that rounds on its way.
    pub fn of_formula(words: &str) -> Self {
        let class = match () {
            () if words.contains("pieces of") || words.starts_with("parts of rows") => Class::Race,
            () if words.contains("the scale of a is") => Class::StaleState,
            () if !words.contains("formula") && words.contains("not written") => Class::SilentSkip,
            () if words.contains("rounded") => Class::RoundOrder,
            () => Class::OtherFormula,
        };
        Self::solved(class, if class == Class::RoundOrder { "formula" } else { "solved" }, words.into())
    }
}

/// The answer for one result.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Diagnosis {
    /// What was found, and behind it every other fault that would have written the same here, to rounding; empty when nothing in the
    /// catalogue explains the error to rounding.
    pub findings: Vec<Finding>,
    /// The best of what does not suffice, when nothing does; else the next best explanation.
    pub runner_up: Option<Finding>,
    /// Where the error lives.
    pub location: Location,
    /// Whether everything was tried before the budget was spent.
    pub complete: bool,
    /// What was solved where nothing explains the error: which K counts how often.
    pub solved: Option<String>,
    /// What the audit of codes against values and of the product against its scales says, a line each (bundles).
    pub audit: Vec<String>,
}

impl Diagnosis {
    /// Of what is seen without a search.
    pub fn only(finding: Finding) -> Self {
        let (runner_up, location, solved) = (None, Location::default(), None);
        Self { findings: vec![finding], runner_up, location, complete: true, solved, audit: Vec::new() }
    }

    /// One line: fault, parameters, share, runner-up, what to look at; or "unknown" and where.
    pub fn line(&self) -> String {
        let late = if self.complete { "" } else { "; the budget did not reach for the whole catalogue" };
        let Some(best) = self.findings.first() else {
            let near = self.runner_up.as_ref().filter(|r| r.explains > 0.5);
            let near = near.map_or(String::new(), |r| format!("; closest: {} explains {:.1} %", r.fault, 100.0 * r.explains));
            let solved = self.solved.as_ref().map_or(String::new(), |s| format!("; solved: {s}"));
            return format!("unknown: {}{solved}{near}{late}", self.location.words);
        };
        let next =
            self.runner_up.as_ref().map_or(String::new(), |r| format!("; next: {} {:.1} %", r.fault, 100.0 * r.explains));
        let also: Vec<&str> = self.findings.iter().skip(1).map(|f| f.fault.as_str()).collect();
        let also =
            if also.is_empty() { String::new() } else { format!("; {} would give the same result here", also.join(", ")) };
        format!("{} ({}; {:.2} %{next}{also}{late}; look at {})", best.fault, best.detail, 100.0 * best.explains, best.look)
    }
}

/// What was tried: faults of the catalogue, or a theory that was solved.
enum What {
    Known(Vec<Set>),
    Solved(Box<Theory>),
}

/// An explanation tried.
struct Tried {
    what: What,
    fit: Fit,
    /// Kept where it is accepted.
    prediction: Option<Prediction>,
    fitted: bool,
    freedom: usize,
    /// Bits of the parameters.
    bits: f64,
}

impl Tried {
    fn faults(&self) -> usize {
        match &self.what {
            What::Known(set) => set.len(),
            What::Solved(t) => 1 + t.variant.matches(" + ").count(),
        }
    }
    /// Larger is better: accepted first, then nothing left (but for a number taken from the result), then the shortest description: bits of
    /// what is left and bits of the parameters.
    fn key(&self) -> (bool, bool, f64) {
        let f = &self.fit;
        let last = if f.accepted() { -(f.bits + self.bits) } else { f.share - f.misses * 1e-3 };
        (f.accepted(), f.accepted() && f.exact && !self.fitted, last)
    }
}

fn better(a: &Tried, b: &Tried) -> std::cmp::Ordering {
    let ((a0, a1, a2), (b0, b1, b2)) = (a.key(), b.key());
    b0.cmp(&a0).then(b1.cmp(&a1)).then(b2.total_cmp(&a2))
}

/// What is left beyond this part, and so many bits, of what the best leaves is more than noise.
const NOISE: f64 = 2.0;
const NOISE_BITS: f64 = 8.0;

/// Where no bits fit, what is left is the noise of roundings: of those that leave about as much as the best, in their order, the one with the fewest
/// parameters comes first.
fn simplest_first(alike: &mut [&Tried]) {
    let Some(best) = alike.first().copied().filter(|t| !t.fit.exact && !t.fitted) else { return };
    let most = NOISE * best.fit.bits + NOISE_BITS;
    let bits = |t: &&Tried| if !t.fitted && t.fit.bits <= most { t.bits } else { f64::INFINITY };
    alike.order_by(|a, b| bits(a).total_cmp(&bits(b)));
}

/// Bits of the settings of faults: which of the catalogue, and every number in them; one that was taken from the result most.
fn bits(set: &[Set], fitted: bool) -> f64 {
    let one = |(f, s): &Set| {
        let number = match (s.by != 1.0, s.at) {
            // A constant that no state explains is the rarer cause.
            (true, usize::MAX) if f.class != Class::StaleState => 32.0,
            (true, usize::MAX) => 24.0,
            (true, _) => 2.0,
            (false, at) if super::place::is_placed(f) => 10.0 + 0.001 * at as f64,
            (false, at) => {
                if at > 0 {
                    2.0 + (1.0 + at as f64).log2()
                } else {
                    0.0
                }
            }
        };
        6.0 + number
    };
    set.iter().map(one).sum::<f64>() + if fitted { 4.0 } else { 0.0 } + 8.0 * (set.len() - 1) as f64
}

/// The share of the error that two faults have to explain between them.
const WHOLE: f64 = 0.97;

/// Lines of a product that refuse most faults.
const LINES: usize = 8;

/// Names of an amax that one number tells: others may give the same.
const AMAX: [&str; 5] =
    ["amax_scope:of_codes", "stale_state:amax", "amax_scope:first_half", "amax_scope:without_last_row", "amax_scope:signed"];

/// Multiply-adds of a second of `limit`.
const WORK: f64 = 1e8;

/// Multiply-adds for pairs of the catalogue where a product was solved.
const PAIRS: usize = 1 << 28;

/// Searches the catalogue and solves the product. `Ok(None)`: nothing to explain, the result is right to rounding.
///
/// Every fault of the catalogue that applies is tried in every setting that the result suggests; a product is solved ([`mod@super::solve`]);
/// when neither leaves only rounding, two faults at once. `limit` is a budget of work, counted in multiply-adds so that the answer is the same
/// everywhere: about so many seconds of two cores.
/// Errors: the right kernel's on the job.
pub fn diagnose(evidence: Evidence, limit: Duration) -> Result<Option<Diagnosis>> {
    // Faults are tried on a kernel that runs: where an arithmetic is only assumed, on one of those that it allows.
    let runs = evidence.job.accumulator.filter(|a| !a.inner.is_model()).map(|a| {
        let accumulator = Some(a.runnable());
        Job { accumulator, ..evidence.job.clone() }
    });
    let evidence = Evidence { job: runs.as_ref().unwrap_or(evidence.job), ..evidence };
    let proven = evidence.proven;
    let scene = Scene::new(evidence)?;
    let clean = scene.clean_fit();
    let failed = evidence.judged.iter().any(|j| j.comparison.verdict == Verdict::Fail);
    if clean.exact || (!failed && evidence.model.is_none() && clean.is_rounding()) {
        return Ok(None);
    }
    let gains = Gains::of(&scene);
    let budget = (limit.as_secs_f64() * WORK) as usize / scene.work().max(1);
    let try_set = |set: Vec<Set>, fitted: bool| -> Option<Tried> {
        let parameters =
            |(f, s): &Set| usize::from(s.by != 1.0) + usize::from(super::place::is_placed(f)) + usize::from(s.at > 0);
        let freedom = set.iter().map(parameters).sum::<usize>() + usize::from(fitted) + 2 * (set.len() - 1);
        let (mut fit, prediction) = scene.fit(&set, fitted)?;
        // Two faults that leave more than rounding are two wrong names; so is a constant that is not that of every element.
        if set.len() > 1 && fit.share < WHOLE || set.len() == 1 && gains.is_of_some(set[0]) {
            fit.outside = fit.outside.max(1);
        }
        let bits = bits(&set, fitted);
        Some(Tried { what: What::Known(set), fit, prediction: fit.accepted().then_some(prediction), fitted, freedom, bits })
    };
    let singles: Vec<(Set, bool)> =
        faults().flat_map(|f| settings::of(f, &scene, &gains).into_iter().map(move |(s, fitted)| ((f, s), fitted))).collect();
    let mut left_out = singles.len().saturating_sub(budget);
    // What explains nothing of a few lines, and sets none of their elements right, explains nothing.
    let few = scene.few(LINES).map(|few| (few.clean_fit().outside as f64, few));
    let hopeless = |set: &Set, fitted: bool| {
        let of = |(outside, few): &(f64, Scene)| {
            few.fit(&[*set], fitted).is_some_and(|(fit, _)| fit.share < 0.05 && fit.outside as f64 > 0.95 * outside)
        };
        few.as_ref().is_some_and(of)
    };
    let try_single = |(set, fitted): &(Set, bool)| {
        if hopeless(set, *fitted) { None } else { try_set(vec![*set], *fitted) }
    };
    let mut tried: Vec<Tried> = parallel::flat(&singles[..singles.len().min(budget)], try_single);
    tried.order_by(better);
    let single = tried.first().is_some_and(|t| t.fit.accepted());
    let solved = if budget > 0 && !proven { solve::solve(&scene, !single) } else { None };
    if let Some(solve::Solved { system, singles, pairs, .. }) = &solved {
        let theory = |t: &Theory| {
            let (fit, prediction) = solve::replay::replay(system, t)?;
            let what = What::Solved(Box::new(t.clone()));
            let (freedom, bits) = (usize::from(t.fitted) + t.freedom, 4.0 + t.bits);
            Some(Tried { what, fit, prediction: fit.accepted().then_some(prediction), fitted: t.fitted, freedom, bits })
        };
        tried.extend(parallel::flat(&singles.iter().chain(pairs).collect::<Vec<_>>(), |t| theory(t)));
        tried.order_by(better);
    }
    if !proven && !tried.first().is_some_and(|t| t.fit.accepted()) {
        let mut pairs = Vec::new();
        for first in promising(&tried, clean.outside) {
            for (second, _) in singles.iter().filter(|(s, fitted)| !fitted && s.0.class != Class::VacuousOracle) {
                if first.0 != second.0 && compatible(first, *second) {
                    pairs.push(vec![first, *second]);
                }
            }
        }
        // What can be solved has had its pairs.
        let limit = if solved.is_some() { PAIRS / scene.work().max(1) } else { usize::MAX };
        let most = budget.saturating_sub(singles.len()).min(limit);
        left_out += pairs.len().saturating_sub(most);
        // Two that leave half the error of some lines leave more than rounding of all.
        let vain = |set: &[Set]| {
            let of =
                |(outside, few): &(f64, Scene)| *outside >= 32.0 && few.fit(set, false).is_some_and(|(fit, _)| fit.share < 0.5);
            few.as_ref().is_some_and(of)
        };
        let try_pair = |set: &Vec<Set>| if vain(set) { None } else { try_set(set.clone(), false) };
        tried.extend(parallel::flat(&pairs[..pairs.len().min(most)], try_pair));
        tried.order_by(better);
    }
    let describe = |t: &Tried| finding(t, &scene);
    // The bits tell apart what rounds differently; where no bits fit, only what is apart by more than rounding is.
    let same = |t: &Tried| match (tried[0].prediction.as_ref(), &t.prediction) {
        (Some(best), Some(p)) => t.faults() == tried[0].faults() && t.fit.exact >= tried[0].fit.exact && scene.alike(best, p),
        _ => false,
    };
    let is_same: Vec<bool> = tried.iter().map(same).collect();
    let mut findings: Vec<Finding> = Vec::new();
    let mut alike: Vec<&Tried> = tried.iter().zip(&is_same).filter(|(_, same)| **same).map(|(t, _)| t).collect();
    simplest_first(&mut alike);
    for f in alike.into_iter().map(describe) {
        if !findings.iter().any(|x| parts(&x.fault) == parts(&f.fault)) {
            findings.push(f);
        }
    }
    // What needs more numbers to say the same is none of the answers.
    if let Some(least) = findings.first().map(|f| f.freedom) {
        findings.retain(|f| f.freedom <= least);
    }
    // Steps that leave out as much of K are one answer, and its words have them all.
    if findings.first().is_some_and(|f| settings::dropped(&f.variant).is_some()) {
        let mut first = true;
        findings.retain(|f| std::mem::take(&mut first) || settings::dropped(&f.variant).is_none() && f.variant != "k.dropped");
    }
    // Codes that are those of wrong scales beside them: a number that was fitted to what saturates with them says nothing of these scales.
    if findings.first().is_none_or(|f| f.freedom > 0 && !f.exact)
        && let Some(scales) = super::chosen::scales(&scene)
    {
        findings = vec![scales];
    }
    if findings.first().is_some_and(|f| AMAX.contains(&&f.fault[..])) {
        let seen = super::amax::seen(&scene);
        findings = if seen.is_empty() { findings } else { seen };
    }
    let location = locate::locate(&scene);
    if findings.is_empty() {
        findings.extend(super::patches::find(&scene, &location));
    }
    let other = tried.iter().zip(&is_same).find(|(_, same)| !**same).map(|(t, _)| t).filter(|t| t.fit.share > 0.0);
    let runner_up = other.map(describe).filter(|o| !findings.iter().any(|f| f.fault == o.fault));
    let picture = solved.as_ref().and_then(|s| s.picture.clone());
    Ok(Some(Diagnosis { findings, runner_up, location, complete: left_out == 0, solved: picture, audit: Vec::new() }))
}

/// The faults that are tried together with every other: those that explain most, and those that set most elements right. A second
/// fault that breaks some elements altogether hides how much the first explains, but not how many it sets right.
fn promising(tried: &[Tried], outside: usize) -> Vec<Set> {
    let one = |t: &Tried| match &t.what {
        What::Known(set) => set.first().copied(),
        What::Solved(_) => None,
    };
    let mut first: Vec<Set> = tried.iter().filter(|t| t.fit.share > 0.1).filter_map(one).take(5).collect();
    let mut by_count: Vec<&Tried> = tried.iter().filter(|t| t.fit.outside < outside).collect();
    by_count.order_by_key(|t| t.fit.outside);
    for set in by_count.into_iter().filter_map(one).take(5) {
        if !first.contains(&set) {
            first.push(set);
        }
    }
    first
}

/// Two faults that do not undo each other: one of each place in the kernel, or both of what is read.
fn compatible(a: Set, b: Set) -> bool {
    // Behind a result that is not written nothing else can be seen.
    let unwritten = |s: Set| s.0.class == Class::SilentSkip && matches!(s.0.how, How::Places(_));
    if unwritten(a) || unwritten(b) {
        return false;
    }
    match (a.0.how.is_read(), b.0.how.is_read()) {
        (true, true) => a.0.on.name() != b.0.on.name() || a.0.class != b.0.class,
        (false, false) => std::mem::discriminant(&a.0.how) != std::mem::discriminant(&b.0.how),
        _ => true,
    }
}

/// The faults of a name, in no order.
fn parts(fault: &str) -> Vec<&str> {
    let mut all: Vec<&str> = fault.split(" + ").collect();
    all.sort_unstable();
    all
}

fn finding(t: &Tried, scene: &Scene) -> Finding {
    let set = match &t.what {
        What::Known(set) => set,
        What::Solved(theory) => {
            return Finding {
                fault: theory.name(),
                class: theory.class,
                variant: theory.variant.clone(),
                operand: theory.operand,
                explains: t.fit.share,
                detail: theory.detail.clone(),
                look: theory.class.spec().look,
                accepted: t.fit.accepted(),
                exact: t.fit.exact,
                freedom: t.freedom,
            };
        }
    };
    let (first, _) = set[0];
    let names: Vec<String> = set.iter().map(|(f, _)| f.name()).collect();
    let details: Vec<String> = set
        .iter()
        .map(|(f, s)| match settings::words(f, scene, *s) {
            w if w.is_empty() => f.help.to_string(),
            w => format!("{}, {w}", f.help),
        })
        .collect();
    Finding {
        fault: names.join(" + "),
        class: first.class,
        variant: first.variant.to_string(),
        operand: first.on.name(),
        explains: t.fit.share,
        detail: details.join("; and "),
        look: first.class.spec().look,
        accepted: t.fit.accepted(),
        exact: t.fit.exact,
        freedom: t.freedom,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of what is left, whether that is nothing, bits of parameters, whether one was taken from the result.
    fn tried((left, exact): (f64, bool), bits: f64, fitted: bool) -> Tried {
        let fit = Fit { share: 1.0, outside: 0, misses: 0.0, allowed: 1.0, exact, bits: left };
        Tried { what: What::Known(Vec::new()), fit, prediction: None, fitted, freedom: usize::from(fitted), bits }
    }

    /// The parameters of those that say the same, in the order in which they are told.
    fn told(all: &[Tried]) -> Vec<f64> {
        let mut alike: Vec<&Tried> = all.iter().collect();
        simplest_first(&mut alike);
        alike.iter().map(|t| t.bits).collect()
    }

    #[test]
    fn of_what_leaves_the_same_noise_the_simplest_is_told_first() {
        let rounded = |left: f64| (left, false);
        let all = [tried(rounded(100.0), 9.0, false), tried(rounded(150.0), 3.0, false), tried(rounded(120.0), 5.0, false)];
        assert_eq!(told(&all), [3.0, 5.0, 9.0]);
        let all = [tried(rounded(100.0), 9.0, false), tried(rounded(300.0), 3.0, false)];
        assert_eq!(told(&all), [9.0, 3.0], "three times as much is not the same noise");
        let all = [tried(rounded(100.0), 9.0, false), tried(rounded(100.0), 3.0, true)];
        assert_eq!(told(&all), [9.0, 3.0], "a number of the result's makes any noise small");
        let all = [tried((0.0, true), 9.0, false), tried(rounded(5.0), 3.0, false)];
        assert_eq!(told(&all), [9.0, 3.0], "what makes every bit is told first");
    }
}
