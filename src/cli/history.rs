//! `qassay history`: how the accepted numbers moved, from the git log of the baselines.

use super::{print, status};
use crate::assay::table::{Column, Line};
use crate::baseline::{self, Record};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Print, and draw, a metric over the accepted baselines: its largest value of each kernel, a column for each commit that changed it.
#[derive(clap::Args)]
pub struct Args {
    /// The sweep.
    #[arg(default_value = "standard")]
    sweep: String,
    /// A column of the baseline that is a number.
    #[arg(long, default_value = "bound_ratio", value_parser = metric)]
    metric: String,
    /// Folder of one device's baselines.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The last commits to show.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 8)]
    last: usize,
    /// Also draw it, as an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    let folder = args.folder.unwrap_or_else(|| baseline::folder().join("cpu"));
    let file = format!("{}.csv", args.sweep);
    let last = format!("-{}", args.last);
    let log = git(&folder, &["log", &last, "--format=%h %as", "--", &file])?;
    let metric = Record::column(&args.metric)?;
    let mut columns: Vec<(String, BTreeMap<String, f64>)> = Vec::new();
    for commit in log.lines().rev() {
        let hash = commit.split(' ').next().unwrap_or_default();
        // A commit that removed it, or one of other columns, has no numbers.
        let Ok(text) = git(&folder, &["show", &format!("{hash}:./{file}")]) else { continue };
        let Ok(records) = baseline::parse(&folder.join(&file), &text) else { continue };
        columns.push((commit.to_string(), largest(&records, metric)));
    }
    if columns.is_empty() {
        bail!("{}: no commit of {file} in its git log; commit what `qassay accept` wrote", folder.display());
    }
    if let Some(path) = &args.svg {
        let svg = crate::report::history(&args.metric, &columns);
        std::fs::write(path, svg).with_context(|| format!("{}: could not be written", path.display()))?;
    }
    print(&table(&args.metric, &columns));
    Ok(status::PASSED)
}

/// Of each kernel; a NaN is the largest.
fn largest(records: &[Record], metric: &Column<Record>) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    for (record, x) in records.iter().filter_map(|r| Some((r, metric.number(r)?))) {
        let most = all.entry(record.kernel.clone()).or_insert(f64::NEG_INFINITY);
        if !(x <= *most) && !most.is_nan() {
            *most = x;
        }
    }
    all
}

fn table(metric: &str, columns: &[(String, BTreeMap<String, f64>)]) -> String {
    let mut kernels: Vec<&String> = columns.iter().flat_map(|(_, c)| c.keys()).collect();
    kernels.sort();
    kernels.dedup();
    let heads: Vec<String> = columns.iter().map(|(name, _)| format!("{name:>20}")).collect();
    let mut text = format!("{:<28}{}\n", format!("largest {metric}"), heads.concat());
    for kernel in kernels {
        let cells = columns.iter().map(|(_, c)| c.get(kernel).map_or(format!("{:>20}", "·"), |x| format!("{x:>20.6e}")));
        text += &format!("{kernel:<28}{}\n", cells.collect::<String>());
    }
    text
}

fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let out = Command::new("git").arg("-C").arg(folder).args(args).output().context("git could not be started; install it")?;
    if !out.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn metric(s: &str) -> Result<String, String> {
    let numbers: Vec<&str> = Record::columns().iter().filter(|c| !c.unit.is_empty()).map(|c| c.name.as_str()).collect();
    if numbers.contains(&s) { Ok(s.to_string()) } else { Err(crate::Error::unknown("metric", s, numbers).to_string()) }
}
