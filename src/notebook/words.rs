//! Small things that show themselves: recipes, accumulators, verdicts, faults; a row; what was said of a failure.

use super::{Show, Table, badge, raw};
use crate::assay::row::{Row, short};
use crate::assay::table::{Column, Line};
use crate::bundle::assay::Answer;
use crate::compare::Verdict;
use crate::fault::{Diagnosis, Fault, Finding};
use crate::model::{Accumulator, Inner, table};
use crate::recipe::Recipe;
use crate::sweep::{Case, Sweep};
use maud::html;

/// A two-column table.
fn card(title: &str, lines: &[(&str, String)]) -> Table {
    Table::new(title, ["", ""], lines.iter().filter(|l| !l.1.is_empty()).map(|(k, v)| vec![k.to_string(), v.clone()]))
}

/// Types whose face is a table.
macro_rules! as_table {
    ($($type:ty: $table:expr),* $(,)?) => {$(
        impl Show for $type {
            fn html(&self) -> String {
                let table: fn(&$type) -> Table = $table;
                table(self).html()
            }
            fn plain(&self) -> String {
                let table: fn(&$type) -> Table = $table;
                table(self).plain()
            }
        }
    )*};
}

as_table! {
    Recipe: |r| {
        let spec = r.spec().ok();
        let of = |f: fn(&crate::recipe::RecipeSpec) -> &'static str| spec.map_or(String::new(), |s| f(s).to_string());
        let group = r.group.map_or(String::new(), |g| format!("{g} elements of K share a scale"));
        card(&r.to_string(), &[("what", of(|s| s.help)), ("format", r.format.to_string()), ("group", group), ("source", of(|s| s.source))])
    },
    Accumulator: |a| {
        let model = match a.inner {
            Inner::Mma(m) => table::find(m.name).ok(),
            _ => None,
        };
        let promoted = a.promote_every.map_or(String::new(), |n| format!("into f32 every {n} elements of K"));
        let of = |f: fn(&table::DeviceModel) -> &'static str| model.map_or(String::new(), |m| f(m).to_string());
        card(&a.to_string(), &[("what", of(|m| m.help)), ("evidence", of(|m| m.evidence)), ("promotion", promoted)])
    },
    Fault: |f| {
        let class = f.class.spec();
        card(&f.name(), &[("what", f.help.into()), ("class", class.what.into()), ("happens to", class.applies.into()), ("look at", class.look.into())])
    },
    Case: |c| card("a case", &[("id", c.id()), ("op", c.op.name().into())]),
    Row: |r| {
        let line = |c: &Column<Row>| {
            let value = c.number(r).map_or_else(|| c.text(r), short);
            vec![c.name.clone(), value, c.unit.to_string(), c.help.clone()]
        };
        let some = Row::columns().iter().map(line).filter(|l| !l[1].is_empty());
        Table::new(&r.case, ["column", "value", "unit", "what it is"], some)
    },
    Sweep: |s| Table::new(format!("{} cases", s.cases.len()), ["case"], s.cases.iter().take(MOST_CASES).map(|c| vec![c.id()])),
    Diagnosis: |d| {
        let line = |kind: &str, f: &Finding| vec![kind.to_string(), f.fault.clone(), format!("{:.2} %", 100.0 * f.explains), f.detail.clone(), f.look.to_string()];
        let found = d.findings.iter().enumerate().map(|(i, f)| line(if i == 0 { "found" } else { "the same here" }, f)).chain(d.runner_up.iter().map(|f| line("next", f)));
        let title = if d.findings.is_empty() { format!("unknown: {}", d.location.words) } else { d.location.words.clone() };
        Table::new(title, ["", "fault", "explains", "how", "look at"], found)
    },
}

/// Cases of a sweep that are listed.
const MOST_CASES: usize = 40;

impl Show for Verdict {
    fn html(&self) -> String {
        html! { p { (badge(self.as_str())) } }.into_string()
    }
    fn plain(&self) -> String {
        self.to_string()
    }
}

/// Words, as `explain` gives them.
impl Show for String {
    fn html(&self) -> String {
        html! { p style="white-space:pre-wrap" { (self) } }.into_string()
    }
    fn plain(&self) -> String {
        self.clone()
    }
}

/// What was found of a bundle: verdict, reason, diagnosis, then the case as any other.
impl Show for Answer {
    fn html(&self) -> String {
        let diagnosis = self.diagnosis.as_ref().map_or(String::new(), Show::html);
        let page = html! {
            p.title { (badge(self.verdict.as_str())) " " (self.reason) }
            p { "held to: " (self.model) }
            (raw(&diagnosis)) (raw(&self.assayed.html()))
        };
        page.into_string()
    }
    fn plain(&self) -> String {
        let diagnosis = self.diagnosis.as_ref().map_or(String::new(), |d| format!("\n{}", d.plain()));
        format!("{} {}\nheld to: {}{diagnosis}\n{}", self.verdict, self.reason, self.model, self.assayed.plain())
    }
}
