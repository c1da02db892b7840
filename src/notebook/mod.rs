//! How the types show themselves in a notebook: HTML and plain text of one output, legible in light and dark.
//!
//! evcxr calls `evcxr_display` of a cell's last value; [`Show`] gives it to every type that can say how it looks. A cell shows one
//! value: [`stack`] puts several into one. [`Claims`] is how a notebook ends: what it claims, checked, with a verdict that a program
//! can read (`application/vnd.qassay.verdict+json`).

mod case;
mod chart;
mod claims;
mod numbers;
mod rows;
mod scenario;
#[cfg(test)]
mod tests;
mod words;

pub use chart::Chart;
pub use claims::Claims;
pub use scenario::Replays;

use crate::report::plot;
use base64::Engine;
use maud::{Markup, PreEscaped, html};

/// A value with a face.
pub trait Show {
    /// HTML that brings its own style and follows the page's text colour.
    fn html(&self) -> String;
    /// The same for a terminal.
    fn plain(&self) -> String;
    /// What evcxr calls.
    fn evcxr_display(&self) {
        let html = format!("<div class=\"qassay\">{STYLE}{}</div>", self.html());
        print!("{}{}", content("text/plain", &self.plain()), content("text/html", &html));
    }
}

/// One representation of an output, in evcxr's protocol.
fn content(mime: &str, body: &str) -> String {
    format!("EVCXR_BEGIN_CONTENT {mime}\n{body}\nEVCXR_END_CONTENT\n")
}

/// Colours from the page; lines and faces half transparent, so that both modes read.
const STYLE: &str = concat!("<style>", include_str!("style.css"), "</style>");

/// Several values as one output, one below the other.
pub struct Stack {
    html: String,
    plain: String,
}

/// Puts values below each other: `stack([&rows, &chart])`.
pub fn stack<'a>(values: impl IntoIterator<Item = &'a dyn Show>) -> Stack {
    let (html, plain): (Vec<String>, Vec<String>) = values.into_iter().map(|v| (v.html(), v.plain())).unzip();
    Stack { html: html.join("\n"), plain: plain.join("\n\n") }
}

impl Show for Stack {
    fn html(&self) -> String {
        self.html.clone()
    }
    fn plain(&self) -> String {
        self.plain.clone()
    }
}

/// A table of texts: first row of HTML headings, right-aligned numbers, aligned columns in plain text.
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<C: ToString, V: ToString>(
        title: impl ToString,
        columns: impl IntoIterator<Item = C>,
        rows: impl IntoIterator<Item = Vec<V>>,
    ) -> Self {
        Self {
            title: title.to_string(),
            columns: columns.into_iter().map(|c| c.to_string()).collect(),
            rows: rows.into_iter().map(|r| r.iter().map(ToString::to_string).collect()).collect(),
        }
    }
}

/// Characters of a cell above which it is broken into lines.
const LONG: usize = 60;

fn is_number(s: &str) -> bool {
    s.trim_end_matches([' ', '%']).replace('\u{202f}', "").parse::<f64>().is_ok()
}

impl Show for Table {
    fn html(&self) -> String {
        let page = html! {
            @if !self.title.is_empty() { p.title { (self.title) } }
            @if !self.rows.is_empty() { table.sortable {
                thead { tr { @for c in &self.columns { th tabindex="0" onclick=(SORT) { (c) } } } }
                tbody { @for row in &self.rows { tr { @for v in row { td.number[is_number(v)].reason[v.chars().count() > LONG] { (v) } } } } }
            } }
        };
        page.into_string()
    }
    fn plain(&self) -> String {
        let mut widths: Vec<usize> = self.columns.iter().map(|c| c.chars().count()).collect();
        for row in &self.rows {
            row.iter().zip(&mut widths).for_each(|(v, w)| *w = (*w).max(v.chars().count()));
        }
        let line = |cells: &[String]| -> String {
            let cell = |(v, w): (&String, &usize)| if is_number(v) { format!("{v:>w$}") } else { format!("{v:<w$}") };
            cells.iter().zip(&widths).map(cell).collect::<Vec<_>>().join("  ").trim_end().to_string()
        };
        let title = if self.title.is_empty() { Vec::new() } else { vec![self.title.clone()] };
        let head = (!self.rows.is_empty()).then(|| line(&self.columns));
        let lines = title.into_iter().chain(head).chain(self.rows.iter().map(|r| line(r)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// A click on a heading sorts its table by that column, again the other way. Inline, because a notebook runs no script of ours before.
const SORT: &str = "(function(h){var t=h.closest('table'),b=t.tBodies[0],i=[].indexOf.call(h.parentNode.children,h),\
d=h.getAttribute('aria-sort')=='descending'?1:-1,v=function(r){var s=r.cells[i].textContent.replace(/[\\u202f %]/g,''),n=parseFloat(s);\
return isNaN(n)||isNaN(Number(s))?r.cells[i].textContent:n};[].forEach.call(h.parentNode.children,function(x){x.removeAttribute('aria-sort')});\
h.setAttribute('aria-sort',d==1?'ascending':'descending');[].slice.call(b.rows).sort(function(p,q){var x=v(p),y=v(q);\
return d*(typeof x=='number'&&typeof y=='number'?x-y:String(x).localeCompare(String(y)))}).forEach(function(r){b.appendChild(r)})})(this)";

/// A verdict as a coloured word.
fn badge(verdict: &str) -> Markup {
    html! { span class={ "verdict " (verdict) } { (verdict.replace('_', " ")) } }
}

/// HTML made here, inside HTML.
fn raw(html: &str) -> Markup {
    PreEscaped(html.to_string())
}

/// A chart as an image of its own: code hosts take styles and `<svg>` out of an output's HTML, but show the images in it.
fn figure(title: &str, svg: &str) -> Markup {
    let coded = base64::engine::general_purpose::STANDARD.encode(plot::on_any_page(svg));
    html! { img alt=(title) src={ "data:image/svg+xml;base64," (coded) }; }
}
