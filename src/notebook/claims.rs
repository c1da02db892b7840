//! What a notebook claims at its end, checked.

use super::{Show, badge, content};
use maud::html;

/// Claims with whether each holds. Shows a list and, for programs, a verdict: `pass` when there are claims and all hold.
#[derive(Default)]
pub struct Claims {
    claims: Vec<(String, bool)>,
}

impl Claims {
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds a claim.
    pub fn that(mut self, claim: impl Into<String>, holds: bool) -> Self {
        self.claims.push((claim.into(), holds));
        self
    }
    /// `pass` or `fail`; no claim at all is a failure.
    pub fn verdict(&self) -> &'static str {
        if !self.claims.is_empty() && self.claims.iter().all(|c| c.1) { "pass" } else { "fail" }
    }
    /// `{"verdict": …, "claims": [{"claim": …, "holds": …}]}`
    pub fn json(&self) -> String {
        let claims: Vec<_> =
            self.claims.iter().map(|(claim, holds)| serde_json::json!({"claim": claim, "holds": holds})).collect();
        serde_json::json!({"verdict": self.verdict(), "claims": claims}).to_string()
    }
}

impl Show for Claims {
    fn html(&self) -> String {
        let page = html! {
            p.title { (badge(self.verdict())) " " (self.claims.iter().filter(|c| c.1).count()) " of " (self.claims.len()) " claims hold" }
            ul { @for (claim, holds) in &self.claims {
                li { (badge(if *holds { "pass" } else { "fail" })) " " (claim) }
            } }
        };
        page.into_string()
    }
    fn plain(&self) -> String {
        let line = |(claim, holds): &(String, bool)| format!("  {} {claim}", if *holds { "holds" } else { "FAILS" });
        format!("{}\n{}", self.verdict(), self.claims.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
    fn evcxr_display(&self) {
        let html = format!("<div class=\"qassay\">{}{}</div>", super::STYLE, self.html());
        print!(
            "{}{}{}",
            content("text/plain", &self.plain()),
            content("text/html", &html),
            content("application/vnd.qassay.verdict+json", &self.json())
        );
    }
}
