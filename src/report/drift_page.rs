//! A comparison with a baseline as one page, no network: what ran, the answer, each cause once, then all cases that changed.

use super::drift::{Group, Run, alike, counts, facts as changed, moved, notable, verdicts};
use super::head;
use super::page::{again, ran};
use crate::baseline::diff::{Differences, Drift};
use crate::run::facts::Facts;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// How many causes, and how many cases, the page shows.
const CAUSES: usize = 24;
const CASES: usize = 500;

/// The table's columns.
const HEADS: [&str; 7] = ["change", "case", "verdict", "metric", "before", "after", "why"];

/// The table's words stand in full.
const CSS: &str = "td { white-space: normal; max-width: none; overflow-wrap: anywhere; vertical-align: top; } @media (min-width: 641px) { td code { display: inline-block; min-width: 14rem; } td:nth-child(3) { white-space: nowrap; } td:last-child { min-width: 18rem; } } li { overflow-wrap: anywhere; }";

/// `facts` are those of the run after, and date and command of the comparison.
pub fn page(c: &Differences, after: &Run, facts: &Facts) -> String {
    let mut sweeps: Vec<&str> = c.drifts.iter().map(|d| d.sweep.as_str()).collect();
    sweeps.dedup();
    let on: Vec<&str> = ["backend", "device"].iter().map(|key| facts.get(key)).filter(|f| !f.is_empty()).collect();
    let heading = [sweeps.join(", "), on.join(", ")].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" on ");
    let (notable, causes, changed) = (notable(c), alike(c, after), changed(c));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{heading}: {} · qassay", answer(c)), CSS))
            body {
                header {
                    h1 { "Drift of " (heading) }
                    (ran(&["date", "revision", "qassay", "command"].map(|key| (key, facts.get(key)))))
                    p class={ "answer " (if c.fails() { "fail" } else { "pass" }) } { (answer(c)) "." }
                    p { (counts(c)) ". A case passes when its bits and its verdict are those of the baseline. Where the change is meant, record it with " code { "qassay accept" } "." }
                }
                main {
                    @if !causes.is_empty() {
                        section #causes {
                            h2 { "What changed" }
                            @for group in causes.iter().take(CAUSES) { (card(group)) }
                            @if causes.len() > CAUSES { p { (causes.len() - CAUSES) " more causes are in the table." } }
                        }
                        section #cases { details { summary { h2 { "All cases that changed" } } (table(&notable)) } }
                    }
                    section #provenance { h2 { "Provenance that differs" }
                        @if changed.is_empty() { p { "None." } }
                        @else { ul { @for fact in changed { li { (fact) } } } } }
                }
                script { (PreEscaped(include_str!("assets/copy.js"))) }
            }
        }
    };
    page.into_string()
}

fn answer(c: &Differences) -> String {
    let failing = c.drifts.iter().filter(|d| d.change.fails()).count();
    match failing {
        0 => format!("No drift in {} cases", c.drifts.len()),
        1 => format!("1 of {} cases drifted", c.drifts.len()),
        n => format!("{n} of {} cases drifted", c.drifts.len()),
    }
}

fn card(group: &Group) -> Markup {
    let d = group.first;
    let class = if d.change.fails() { "fail" } else { "suspect" };
    html! {
        article class={ "card " (class) } {
            h3 {
                b class=(class) { (d.change.name().replace('_', " ")) } " " (d.case)
                @if !group.name().is_empty() { code.name { (group.name()) } }
            }
            @for (nth, line) in group.lines().iter().enumerate() { p class=[(nth == 0).then_some("finding")] { (line) } }
            @if group.count > 1 { p { (group.count) " cases like this" } }
            @if let Some(command) = group.again() { (again(command)) }
        }
    }
}

fn table(notable: &[&Drift]) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="All cases that changed" { table.stack {
            thead { tr { @for h in HEADS { th { (h) } } } }
            tbody { @for d in notable.iter().take(CASES) {
                @let (name, before, after) = moved(d);
                @let (change, verdicts) = (d.change.name().replace('_', " "), verdicts(d));
                tr { @for (head, text) in HEADS.iter().zip([&change, &d.case, &verdicts, &name, &before, &after, &d.words]) {
                    td data-of=(head) { @if *head == "case" { code { (text) } } @else { (text) } }
                } }
            } }
        } }
        @if notable.len() > CASES { p { "… and " (notable.len() - CASES) " more: " code { "--jsonl FILE" } " writes all." } }
    }
}
