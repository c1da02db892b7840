//! Why a judged launch failed.

use super::{Diagnosis, Evidence, diagnose};
use crate::Result;
use crate::assay::Assayed;
use crate::compare::Verdict;
use std::time::Duration;

impl Assayed {
    /// What [`diagnose`](mod@crate::fault::diagnose) makes of a failure; `None` when nothing failed.
    pub fn diagnosis(&self) -> Result<Option<Diagnosis>> {
        if self.judgements.iter().all(|j| j.comparison.verdict != Verdict::Fail) {
            return Ok(None);
        }
        let evidence = Evidence {
            model: self.model.as_ref(),
            ..Evidence::new(&self.built.job, &self.output, self.backend, &self.judgements)
        };
        diagnose(evidence, DIAGNOSIS)
    }
}

/// A diagnosis takes at most about this long.
pub const DIAGNOSIS: Duration = Duration::from_secs(20);
