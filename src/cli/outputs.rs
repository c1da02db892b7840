//! What a build server reads: the options that `run`, `assay`, `check` and `diff` share.

use super::print;
use crate::Error;
use crate::assay::row::Row;
use crate::report::ci::{self, Cause};
use crate::run::provenance;
use anyhow::Result;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Where results go for a build server.
#[derive(clap::Args, Default)]
pub struct ForCi {
    /// Write JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a comment for a pull request: Markdown, each cause once.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print one `::error` a cause, which a GitHub workflow shows beside the change.
    #[arg(long)]
    github: bool,
}

impl ForCi {
    /// Whether anything is asked for.
    pub fn wanted(&self) -> bool {
        self.junit.is_some() || self.markdown.is_some() || self.github
    }

    /// Writes what is asked for. `quiet` keeps standard output for something else.
    pub fn write(
        &self,
        junit: impl FnOnce() -> String,
        markdown: impl FnOnce() -> String,
        causes: impl FnOnce() -> Vec<Cause>,
        quiet: bool,
    ) -> Result<()> {
        if let Some(path) = &self.junit {
            save(path, &junit())?;
        }
        if let Some(path) = &self.markdown {
            save(path, &markdown())?;
        }
        if self.github {
            let text = ci::github(&causes());
            if quiet { eprint!("{text}") } else { print(&text) }
        }
        Ok(())
    }

    /// [`ForCi::write`] of rows.
    pub fn write_rows(&self, rows: &[Row], seconds: &HashMap<String, f64>, quiet: bool) -> Result<()> {
        self.write(|| ci::junit(&ci::tests(rows, seconds)), || ci::markdown(rows), || ci::causes(rows), quiet)
    }
}

/// Writes a file that was asked for.
pub fn save(path: &Path, text: &str) -> Result<()> {
    Ok(std::fs::write(path, text)
        .map_err(|e| Error::io(path, e, "name a file in a folder that can be written and has room"))?)
}

/// The rows of a run and what each took; none of the times where they were not kept.
pub fn of_run(folder: &Path) -> Result<(Vec<Row>, HashMap<String, f64>)> {
    Ok((crate::assay::row::read(&folder.join("rows.csv"))?, provenance::read_times(folder).unwrap_or_default()))
}
