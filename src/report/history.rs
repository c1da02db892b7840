//! The page of `qassay history --html`: testbeds × versions, and the cause of each changed digest. Words what the history holds.

use super::head;
use super::page::ran as said;
use super::summary::plural;
use crate::baseline::history::{Cause, Changed, History, State, Step, Testbed, Version};
use itertools::Itertools;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Columns of the tables of causes, and of pairs of machines.
const CAUSES: [&str; 4] = ["cause", "what differs", "cases", "case: digest before → after"];
const ACROSS: [&str; 5] = ["testbeds", "cases with the same bits", "with other bits", "cause", "the first case of each cause"];

/// Cases of one cause that are named.
const NAMED: usize = 100;

/// The page as one file; `ran` are the facts of its first line.
pub fn page(history: &History, ran: &[(&str, &str)]) -> String {
    let steps: Vec<(&Testbed, usize, Step)> = history
        .testbeds
        .iter()
        .flat_map(|t| (0..history.versions.len()).filter_map(move |i| Some((t, i, t.step(i)?))))
        .collect();
    let moved: usize = steps.iter().map(|s| s.2.changed.len()).sum();
    let answer = match moved {
        0 => "No accepted bit has changed".to_string(),
        n => format!("{} changed bits from one version to the next", cases(n)),
    };
    let unique = |of: fn(&Testbed) -> &str| history.testbeds.iter().map(of).unique().collect::<Vec<_>>().join(", ");
    let (sweeps, machines) = (unique(|t| &t.sweep), unique(|t| &t.machine));
    let mut facts = vec![("sweeps", sweeps.as_str()), ("machines", machines.as_str())];
    facts.extend(ran);
    let (beds, versions) = (history.testbeds.len(), history.versions.len());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("history: {answer} · qassay"), include_str!("assets/history.css")))
            body {
                header {
                    h1 { "History of accepted bits" }
                    (said(&facts))
                    p class={ "answer " (if moved == 0 { "pass" } else { "suspect" }) } { (answer) "." }
                    p.see { (plural(beds, "testbed")) " over " (plural(versions, "version")) ". A testbed is one sweep on one machine. A \
                        version is a commit that changed an accepted baseline. Where a bit changed, the page names what else changed, as \
                        the cause: the kernel, the library or its algorithm, the split of K, the GPU, the driver, the compiler or the \
                        program. Where nothing else that is recorded changed, it says so." }
                }
                main {
                    section #matrix {
                        h2 { "Testbeds and versions" }
                        p.see { "A cell says how many results of the testbed this version changed. Follow a count to the cases and their cause. Where it says unchanged, this version left the baseline alone." }
                        div.tools {
                            input #filter type="search" placeholder="filter, e.g. h200 vendor" aria-label="filter of testbeds" autocomplete="off" spellcheck="false";
                            span #count aria-live="polite" {}
                        }
                        div.wide tabindex="0" role="region" aria-label="Testbeds and versions" { (matrix(history, &steps)) }
                    }
                    section #changes {
                        h2 { "What changed, and why" }
                        @if steps.iter().all(|s| s.2.changed.is_empty()) { p { "Nothing." } }
                        @for (bed, i, step) in steps.iter().filter(|s| !s.2.changed.is_empty()) {
                            section.step id=(anchor(bed, *i)) data-testbed=(bed.name()) {
                                h3 { (bed.name()) ": " (words(&history.versions[*i])) }
                                @if !history.versions[*i].subject.is_empty() { p.see { (history.versions[*i].subject) } }
                                (change(step, &format!("{}, {}", bed.name(), words(&history.versions[*i]))))
                            }
                        }
                    }
                    section #across { (across(history)) }
                }
                script { (PreEscaped(include_str!("assets/history.js"))) }
            }
        }
    };
    page.into_string()
}

fn matrix(history: &History, steps: &[(&Testbed, usize, Step)]) -> Markup {
    let step = |bed: &Testbed, i: usize| steps.iter().find(|s| s.0.name() == bed.name() && s.1 == i).map(|s| &s.2);
    html! {
        table.history {
            thead { tr {
                th scope="col" { "testbed" }
                @for v in &history.versions { th scope="col" title=(v.subject) { (words(v)) @if !v.date.is_empty() { br; span.date { (v.date) } } } }
            } }
            tbody { @for bed in &history.testbeds { tr data-testbed=(bed.name()) {
                th scope="row" { (bed.machine) "/" wbr; (bed.sweep) }
                @for (i, state) in bed.states.iter().enumerate() { (cell(state, step(bed, i), &anchor(bed, i))) }
            } } }
        }
    }
}

fn cell(state: &State, step: Option<&Step>, anchor: &str) -> Markup {
    match (state, step) {
        (State::Absent, _) => html! { td.kept { "no baseline" } },
        (State::Kept, _) => html! { td.kept { "unchanged" } },
        (State::Unread, _) => html! { td.kept { "of an older form" } },
        (State::Recorded(r), None) => {
            html! { td { "first: " (cases(r.records.iter().filter(|r| !r.sha256.is_empty()).count())) } }
        }
        (State::Recorded(_), Some(step)) => html! {
            td {
                @if step.changed.is_empty() { span.pass { "same bits" } }
                @else { a href={ "#" (anchor) } { (cases(step.changed.len())) " of " (step.same + step.changed.len()) } ": " b.suspect { (step.causes().join(", ")) } }
                @if step.new > 0 { br; (step.new) " new" }
                @if step.gone > 0 { br; (step.gone) " gone" }
            }
        },
    }
}

/// The causes of a step with their cases, and what differs in the provenance.
fn change(step: &Step, label: &str) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label={ "Causes: " (label) } { table.history.stack {
            thead { tr { @for h in CAUSES { th scope="col" { (h) } } } }
            tbody { @for (causes, of) in step.by_cause() { (cause(&causes, &of)) } }
        } }
        @if !step.facts.is_empty() {
            details { summary { "Provenance that differs" } ul { @for (name, before, after) in &step.facts { li { (name) ": " code { (clip(before)) } " → " code { (clip(after)) } } } } }
        }
    }
}

fn cause(causes: &[(Cause, String)], of: &[&Changed]) -> Markup {
    let line = |c: &&Changed| html! { code { (c.case) } " " span.date { (clip12(&c.before)) " → " (clip12(&c.after)) } };
    html! {
        tr {
            th scope="row" { (causes.iter().map(|c| c.0.name()).collect::<Vec<_>>().join(", ")) }
            td.what data-of=(CAUSES[1]) { @for (i, (cause, what)) in causes.iter().enumerate() { @if i > 0 { br; } @if causes.len() > 1 { (cause.name()) ": " } (what) } }
            td.number data-of=(CAUSES[2]) { (of.len()) }
            td.what data-of=(CAUSES[3]) {
                @for c in of.iter().take(1) { (line(c)) }
                @if of.len() > 1 {
                    details { summary { (of.len() - 1) " more" } ul { @for c in of.iter().skip(1).take(NAMED) { li { (line(c)) } } }
                        @if of.len() > NAMED + 1 { p { "… and " (of.len() - 1 - NAMED) " more: " code { "git diff" } " of the baseline names them" } } }
                }
            }
        }
    }
}

/// Testbeds of one sweep beside each other, as they are now.
fn across(history: &History) -> Markup {
    let pairs = history.across();
    html! {
        h2 { "From machine to machine" }
        @if pairs.is_empty() { p { "No two testbeds have a baseline of the same sweep." } }
        @else {
            p.see { "The newest baselines of two machines, compared case by case where both ran the case." }
            div.wide tabindex="0" role="region" aria-label="From machine to machine" { table.history.stack {
                thead { tr { @for h in ACROSS { th scope="col" { (h) } } } }
                tbody { @for (one, other, step) in &pairs {
                    tr data-testbed={ (one.name()) " " (other.name()) } {
                        th scope="row" { (one.name()) br; (other.name()) }
                        td.number data-of=(ACROSS[1]) { (step.same) }
                        td.number data-of=(ACROSS[2]) { (step.changed.len()) }
                        td.what data-of=(ACROSS[3]) { @if step.changed.is_empty() { "none" } @else { b.suspect { (step.causes().join(", ")) } } }
                        td.what data-of=(ACROSS[4]) { @for (i, (causes, of)) in step.by_cause().iter().take(4).enumerate() {
                            @if i > 0 { br; }
                            (cases(of.len())) ": " (causes.iter().map(|c| c.1.as_str()).collect::<Vec<_>>().join("; ")) ", " code { (of[0].case) }
                        } }
                    }
                } }
            } }
        }
    }
}

fn words(version: &Version) -> &str {
    if version.hash.is_empty() { "not committed" } else { &version.hash }
}

fn anchor(bed: &Testbed, i: usize) -> String {
    format!("{}-{i}", bed.name().replace('/', "-"))
}

fn cases(n: usize) -> String {
    plural(n, "case")
}

fn clip(text: &str) -> String {
    if text.is_empty() { "nothing".into() } else { text.chars().take(60).collect() }
}

fn clip12(digest: &str) -> String {
    digest.chars().take(12).collect()
}
