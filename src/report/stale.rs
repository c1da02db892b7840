//! `stale.html`: what every scenario does under every policy, when it shows, who would have noticed, and how it goes on in time.

use super::page::{fact, ran};
use super::plot::{self, Axis, Room, Scale, Series};
use super::timeline::{Timeline, timeline};
use super::{head, short};
use crate::compare::gates::GATES;
use crate::scenario::device::{COSTS, Cost, SEEN, Seen, Shown};
use crate::scenario::record::{Gates, Record};
use crate::scenario::{Class, Policy, Scenario};
use crate::{Error, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Writes `stale.html` and `figures/` of the scenarios' rows into `out`. Returns the page's path.
pub fn write(out: &Path, scenarios: &[Scenario], rows: &[Record], shown: &Shown, provenance: &str) -> Result<PathBuf> {
    let save = |name: &str, text: &str| -> Result<PathBuf> {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(|e| Error::io(&path, e, "make room, then run the scenarios again"))?;
        Ok(path)
    };
    let folder = out.join("figures");
    std::fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, e, "make room, then run the scenarios again"))?;
    let stories: Vec<Story> = scenarios.iter().map(|s| Story::of(s, rows)).filter(|s| !s.replays.is_empty()).collect();
    let [ratios, slim_ratios] = [Room::Wide, Room::Phone].map(|room| ratios(&stories, room));
    save(
        "figures/ratios.svg",
        &plot::standalone(&ratios, "Predicted and measured r", "Every operand that a law names, at every step"),
    )?;
    for s in &stories {
        save(
            &format!("figures/{}.svg", s.scenario.name.replace('/', "_")),
            &plot::standalone(&s.timelines[0], &title(s.scenario), &s.scenario.about),
        )?;
    }
    save("stale.html", &page(&stories, [&ratios, &slim_ratios], shown, provenance))
}

/// The timeline of one scenario from its rows.
pub fn drawing(scenario: &Scenario, rows: &[Record]) -> String {
    let [wide, _] = Story::of(scenario, rows).timelines;
    wide
}

/// One scenario with its rows.
struct Story<'a> {
    scenario: &'a Scenario,
    replays: Vec<(Policy, Vec<&'a Record>)>,
    /// On a page and on a phone.
    timelines: [String; 2],
}

impl<'a> Story<'a> {
    fn of(scenario: &'a Scenario, rows: &'a [Record]) -> Self {
        let of = |p: Policy| -> Vec<&Record> { rows.iter().filter(|r| r.scenario == scenario.name && r.policy == p).collect() };
        let replays: Vec<_> = Policy::ALL.into_iter().map(|p| (p, of(p))).filter(|r| !r.1.is_empty()).collect();
        let lines = lines(scenario, &replays);
        let timelines = [Room::Wide, Room::Phone].map(|room| timeline(&lines, room));
        Self { scenario, replays, timelines }
    }
}

/// How far r is from 1.
fn far(r: &Record) -> f64 {
    if r.r_measured > 0.0 && r.r_measured.is_finite() { r.r_measured.ln().abs() } else { f64::INFINITY }
}

/// The row that says most: r farthest from 1; where every r is 1, the largest error.
fn worst<'a>(rows: &[&'a Record]) -> Option<&'a Record> {
    let error = |r: &Record| r.errors.total(|e| e.rel_frobenius).filter(|x| x.is_finite()).unwrap_or(f64::MAX);
    rows.iter().copied().filter(|r| r.shows).max_by(|a, b| {
        let key = |r: &Record| (far(r), r.saturated_share + r.flushed_share, error(r));
        key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal)
    })
}

/// The row of the operand and policy that are stale longest: |ln r| of every step, each at most 1, added up.
fn longest<'a>(rows: &[&'a Record]) -> Option<&'a Record> {
    let mut total: BTreeMap<[&str; 3], f64> = BTreeMap::new();
    let of = |r: &'a Record| [r.product.as_str(), r.operand.as_str(), r.policy.name()];
    for r in rows.iter().filter(|r| r.shows) {
        *total.entry(of(r)).or_default() += far(r).min(1.0);
    }
    let most = total.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|t| t.1 > 0.0)?;
    rows.iter().copied().find(|r| of(r) == most.0)
}

/// The operand that is stale longest, over the steps: its scale_inv and those read, r as predicted and as read, the product's error.
fn lines(scenario: &Scenario, replays: &[(Policy, Vec<&Record>)]) -> Timeline {
    let all: Vec<&Record> = replays.iter().flat_map(|r| r.1.iter().copied()).collect();
    let story = longest(&all).or_else(|| worst(&all)).or_else(|| all.first().copied());
    let (product, operand) = story.map_or(("", ""), |r| (r.product.as_str(), r.operand.as_str()));
    let same = |r: &&Record| r.product == product && r.operand == operand;
    let points = |rows: &[&Record], of: &dyn Fn(&Record) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter().copied().filter(same).filter_map(|r| Some((r.step as f64, of(r)?))).collect()
    };
    let series = |name: String, rows: &[&Record], of: &dyn Fn(&Record) -> Option<f64>| Series::new(name, points(rows, of));
    let stale = story.map(|r| r.policy);
    let mut scales = Vec::new();
    for (policy, rows) in replays {
        if Some(*policy) == stale {
            scales.push(series(format!("{product}.{operand}: scale_inv of the bytes"), rows, &|r| Some(r.scale_inv_true)));
        }
    }
    for (policy, rows) in replays {
        if Some(*policy) == stale || rows.iter().copied().filter(same).any(|r| r.r_measured != 1.0) {
            scales.push(series(format!("read, {policy}"), rows, &|r| Some(r.scale_inv_used)));
        }
    }
    let kernel = |r: &Record| r.errors.kernel(|e| e.rel_frobenius);
    let mut errors: Vec<Series> = replays.iter().map(|(p, rows)| series(format!("kernel error, {p}"), rows, &kernel)).collect();
    if let Some((_, rows)) = replays.first() {
        errors.push(series("format's error".into(), rows, &|r| r.errors.quantization(|e| e.rel_frobenius)));
    }
    let mut events: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for s in 0..scenario.steps {
        for mark in crate::scenario::record::marks(scenario, s) {
            events.entry(mark).or_default().push(s);
        }
    }
    let mut panels = vec![("scale_inv", scales)];
    for (stale, rows) in replays.iter().filter(|r| Some(r.0) == stale) {
        // Rounding of scale_inv is no difference.
        let apart = |x: f64| if (x - 1.0).abs() <= 1e-6 { 0.0 } else { (x - 1.0).abs() };
        let named = |what: &str, of: &dyn Fn(&Record) -> f64| series(format!("{what}, {stale}"), rows, &|r| Some(of(r)));
        let ratio = vec![named("by the law", &|r| apart(r.r_predicted)), named("as read", &|r| apart(r.r_measured))];
        let lost = vec![named("clipped", &|r| r.saturated_share), named("to zero", &|r| r.flushed_share)];
        for (title, both) in [("|r − 1|", ratio), ("share", lost)] {
            let wanted = title != "share" || scenario.class == Class::Saturation;
            if wanted && both.iter().any(|s| s.points.iter().any(|p| p.1 > 0.0)) {
                panels.push((title, both));
            }
        }
    }
    panels.push(("relative error", errors));
    Timeline { steps: scenario.steps, panels, events: events.into_iter().collect() }
}

/// Predicted against measured r of every stale operand.
fn ratios(stories: &[Story], room: Room) -> String {
    let series = |policy: Policy| {
        let points = stories
            .iter()
            .flat_map(|s| s.replays.iter().filter(move |r| r.0 == policy).flat_map(|r| &r.1))
            .filter(|r| r.law != "exact")
            .map(|r| (r.r_predicted, r.r_measured))
            .filter(|(a, b)| *a > 0.0 && *b > 0.0 && a.is_finite() && b.is_finite());
        Series::new(policy.to_string(), points.collect())
    };
    let drawn: Vec<Series> = Policy::ALL.map(series).into_iter().filter(|s| !s.points.is_empty()).collect();
    let axis = |label| Axis { label, scale: Scale::Log10 };
    plot::xy(&axis("r predicted by the law"), &axis("r as read"), &drawn, false, Some("equal"), room)
}

fn page(stories: &[Story], ratios: [&str; 2], shown: &Shown, provenance: &str) -> String {
    let rows: Vec<&Record> = stories.iter().flat_map(|s| s.replays.iter().flat_map(|r| r.1.iter().copied())).collect();
    let broken = rows.iter().filter(|r| !r.holds).count();
    let silent = stories.iter().flat_map(|s| &s.replays).filter(|r| {
        r.1.iter().any(|r| r.shows) && r.1.iter().all(|r| r.gates_notice.0.is_empty() && r.gates_notice_exact.0.is_empty())
    });
    let fact = |key: &str| fact(provenance, key);
    let place = [fact("backend"), fact("device")].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let place = if place.is_empty() { "cpu".to_string() } else { place };
    let answer = match broken {
        0 => format!("All {} scenarios behave as their laws say", stories.len()),
        n => format!("{n} of {} operands are not as their law says", rows.len()),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("stale scales on {place}: {answer} · qassay"), include_str!("assets/stale.css")))
            body {
                header {
                    h1 { "Stale scales on " (place) }
                    (ran(&["date", "revision", "qassay", "command"].map(|key| (key, fact(key).unwrap_or("")))))
                    p class={ "answer " (if broken == 0 { "pass" } else { "fail" }) } { (answer) "." }
                    p { "A value that is stored with scale s and read with scale_inv σ′ comes back as r = s·σ′ times itself. Where scale and \
                         bytes belong together, r is 1. Each scenario is one sequence of events. It runs three times: with scale_inv packaged \
                         with the data, cloned by each forward, and shared in the recipe. A law predicts from the scales alone what r is, or \
                         what is clipped. The kernels' results are checked against it." }
                    ul.verdicts {
                        li { b { (stories.len()) } " scenarios" }
                        li { b { (rows.len()) } " operands read" }
                        li class=(if broken == 0 { "pass" } else { "fail" }) { b { (broken) } " not as their law says" }
                        li { b { (silent.count()) } " show a difference that no ordinary gate notices" }
                    }
                }
                nav aria-label="Parts of the page" { a href="#table" { "Table" } a href="#ratios" { "Predicted and measured" } @if !shown.seen.is_empty() || !shown.costs.is_empty() { a href="#device" { "On the device" } } a href="#stories" { "Scenarios" } a href="#provenance" { "Provenance" } }
                main {
                    section #table {
                        h2 { "What happens, when it shows, who sees it" }
                        p.see { "Gates: how many of the " (GATES.len()) " checks of other projects (" code { "qassay list gates" } ") fail, at the step at which most of \
                                 them do. The first count compares with the product of the right bytes and scales. The second compares with the \
                                 unquantized product, by gates that pass freshly quantized operands. Bound is qassay's own. Point at a count to see \
                                 the gates' names." }
                        div.tools {
                            input #filter type="search" placeholder="filter, e.g. checkpoint shared" aria-label="filter of scenarios" autocomplete="off" spellcheck="false";
                            span #count aria-live="polite" {}
                        }
                        div.wide tabindex="0" role="region" aria-label="Every scenario under every policy" { (table(stories)) }
                    }
                    section #ratios {
                        h2 { "Predicted and measured r" }
                        p.see #ratios-see { "Every operand that a law names, at every step: the tile whose r is farthest from 1." }
                        (plot::both(ratios, "Predicted and measured r", "ratios-see"))
                    }
                    @if !shown.seen.is_empty() || !shown.costs.is_empty() { (device(shown)) }
                    section #stories { h2 { "Scenarios" } p.see { "Each over its steps: scales, errors, events, and the law. Click one to unfold it." } }
                    @for s in stories { (story(s)) }
                    section #provenance { details { summary { h2 { "Provenance" } } pre { (provenance) } } }
                }
                script { (PreEscaped(include_str!("assets/stale.js"))) }
            }
        }
    };
    page.into_string()
}

/// What only a device shows.
fn device(shown: &Shown) -> Markup {
    let table = |head: &[&str], rows: Vec<Vec<String>>| {
        html! {
            @if !rows.is_empty() {
                div.wide tabindex="0" role="region" aria-label="On the device" { table.stale {
                    thead { tr { @for h in head { th { (h.replace('_', " ")) } } } }
                    tbody { @for r in rows { tr.head {
                        @for (h, c) in head.iter().zip(r) {
                            @let number = c.parse::<f64>();
                            td.number[number.is_ok()] { @if let ("r_predicted" | "gain_measured", Ok(x)) = (*h, number) { (short(x)) } @else { (c) } }
                        }
                    } } }
                } }
            }
        }
    };
    html! {
        section #device {
            h2 { "On the device" }
            p.see { "An FP8 GEMM's result read on another stream, and a graph replayed on moved buffers: how often the bits that came back were \
                     those of the new bytes with their scale_inv, those that the law of the story says, those of the step before, elements of the \
                     first two, or none of these. Below, the forward of a linear layer (two casts, GEMM) under each policy, microseconds." }
            (table(&SEEN, shown.seen.iter().map(Seen::cells).collect()))
            (table(&COSTS, shown.costs.iter().map(|c: &Cost| c.cells(&shown.costs)).collect()))
        }
    }
}

/// The gates of the row at which most of them fail.
fn most<'a>(rows: &[&'a Record], of: fn(&Record) -> &Gates) -> &'a [&'static str] {
    rows.iter().copied().map(of).max_by_key(|g| g.0.len()).map_or(&[], |g| &g.0)
}

fn table(stories: &[Story]) -> Markup {
    html! {
        table.stale {
            thead { tr { th { "row" } th { "scenario" } th { "policy" } th { "first shows" } th { "operand" } th.number { "r predicted" } th.number { "r measured" }
                th.number { "clipped" } th.number { "to zero" } th.number { "error" } th.number { "gates" } th.number { "gates, unquantized" } th { "bound" } th { "law" } } }
            tbody {
                @for s in stories {
                    @for (i, (policy, rows)) in s.replays.iter().enumerate() {
                        @let shown = rows.iter().find(|r| r.shows);
                        @let w = worst(rows);
                        @let held = rows.iter().all(|r| r.holds);
                        tr class=(if i == 0 { "head" } else { "" }) data-story=(s.scenario.name) {
                            @if i == 0 {
                                td rowspan=(s.replays.len()) { @if s.scenario.row > 0 { (s.scenario.row) } }
                                td.what rowspan=(s.replays.len()) { a href=(format!("#{}", s.scenario.name)) { (title(s.scenario)) } br; span.see { (s.scenario.class.name()) } }
                            }
                            td { (policy) }
                            @match (shown, w) {
                                (Some(first), Some(w)) => {
                                    td { "step " (first.step) }
                                    td { (w.product) "." (w.operand) }
                                    td.number { (short(w.r_predicted)) }
                                    td.number { (short(w.r_measured)) }
                                    td.number { (percent(w.saturated_share)) }
                                    td.number { (percent(w.flushed_share)) }
                                    @let total = w.errors.total.as_ref();
                                    td.number { @if total.is_some_and(|e| e.nonfinite_mismatches > 0) { "not finite" } @else { (total.map_or_else(String::new, |e| short(e.rel_frobenius))) } }
                                    @for at in [most(rows, |r| &r.gates_notice), most(rows, |r| &r.gates_notice_exact)] {
                                        td.number title=(at.join(" ")) { (at.len()) "/" (GATES.len()) }
                                    }
                                    td { @if rows.iter().any(|r| r.bound_notices) { b.fail { "fails" } } @else { "·" } }
                                }
                                _ => { td colspan="10" { span.pass { "exact to the bit" } } }
                            }
                            td { span class=(if held { "pass" } else { "fail" }) { (if held { "holds" } else { "broken" }) } }
                        }
                    }
                }
            }
        }
    }
}

fn percent(share: f64) -> String {
    if share == 0.0 { "·".into() } else { format!("{} %", short(100.0 * share)) }
}

/// The name without its number.
fn title(s: &Scenario) -> String {
    s.name.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_').replace('_', " ")
}

fn story(s: &Story) -> Markup {
    let stale: Vec<&Record> = s.replays.iter().flat_map(|r| r.1.iter().copied()).collect();
    let about = format!("{}-about", s.scenario.name);
    html! {
        section.story id=(s.scenario.name) data-story=(s.scenario.name) {
            details open[stale.iter().any(|r| !r.holds)] {
            summary { h2 { @if s.scenario.row > 0 { (s.scenario.row) ". " } (title(s.scenario)) } " " span.see { (s.scenario.class.name()) } }
            p id=(about) { (s.scenario.about) }
            p.see { "Seen in " (s.scenario.upstream) "." }
            (plot::both(s.timelines.each_ref().map(String::as_str), &title(s.scenario), &about))
            @if !s.scenario.laws.is_empty() {
                ul.laws {
                    @for l in &s.scenario.laws {
                        li { code { (l.product) "." (["a", "b"][l.operand]) } " " (l.kind.name()) " " code { (l.text) }
                            " under " (l.policies.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ")) }
                    }
                }
            }
            @if let Some(w) = worst(&stale) {
                p.see { "Worst at step " (w.step) " under " (w.policy) ": scale_inv " (short(w.scale_inv_used)) " is read where "
                    (short(w.scale_inv_true)) " belongs; the product is " (short(w.gain_measured)) " times the healthy one (the law says "
                    (short(w.gain_predicted)) ")." }
            }
            @for bad in stale.iter().filter(|r| !r.holds).take(3) {
                p.fail { "Step " (bad.step) ", " (bad.policy) ", " (bad.product) "." (bad.operand) ": " (bad.why) }
            }
            pre { "qassay stale " (s.scenario.name) }
            }
        }
    }
}
