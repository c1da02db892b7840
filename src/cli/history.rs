//! `qassay history`: how the accepted numbers and bits moved, from the git log of the baselines.

use super::check::BEGIN;
use super::{print, status};
use crate::assay::table::{Column, Line};
use crate::baseline::history::{History, State, Testbed, Version};
use crate::baseline::{self, Record, Recording};
use crate::run::facts::Facts;
use crate::run::provenance;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Print how a metric changed over the accepted baselines: a row for each kernel, with its largest value, and a column for each commit
/// that changed it. With --html, write a page of all testbeds and versions instead: which digests changed, and why.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  qassay history --metric kernel_max_ulp --svg history.svg\n  qassay history --html history.html"
)]
pub struct Args {
    /// The sweep; `standard` unless given; with --html, all of them.
    sweep: Option<String>,
    /// A column of the baseline that is a number.
    #[arg(long, default_value = "bound_ratio", value_parser = metric)]
    metric: String,
    /// Folder of one device's baselines; `cpu` unless given; with --html, all of them.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Folder of baselines, in a git repository; data/baselines unless given.
    #[arg(long, value_name = "DIR")]
    baselines: Option<PathBuf>,
    /// The last commits to show.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 8)]
    last: usize,
    /// Also draw it as an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a page of testbeds and versions: every changed digest with its cause.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["svg", "metric"])]
    html: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<u8> {
    let root = args.baselines.clone().unwrap_or_else(baseline::folder);
    if let Some(path) = &args.html {
        let history = of_bits(&root, args.folder.as_deref(), args.sweep.as_deref(), args.last)?;
        let (date, revision, command) = (provenance::now(), provenance::revision(), provenance::command());
        let ran =
            [("date", date.as_str()), ("revision", &revision), ("qassay", env!("CARGO_PKG_VERSION")), ("command", &command)];
        super::outputs::save(path, &crate::report::history::page(&history, &ran))?;
        print(&format!("report: {}\n", path.display()));
        return Ok(status::PASSED);
    }
    let folder = args.folder.unwrap_or_else(|| root.join("cpu"));
    if !folder.is_dir() {
        bail!("{}: no baselines here; {BEGIN} and commit it; or give --baselines", folder.display());
    }
    let file = format!("{}.csv", args.sweep.as_deref().unwrap_or("standard"));
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
        let kept: Vec<String> =
            std::fs::read_dir(&folder)?.flatten().map(|f| f.file_name().to_string_lossy().into_owned()).collect();
        let near = crate::error::hint(&file, kept.iter().map(String::as_str).filter(|k| *k != file));
        bail!("{}: no commit of {file} in its git log; commit what `qassay accept` wrote{near}", folder.display());
    }
    if let Some(path) = &args.svg {
        let svg = crate::report::history(&args.metric, &columns);
        std::fs::write(path, svg).with_context(|| format!("{}: could not be written", path.display()))?;
    }
    print(&table(&args.metric, &columns, super::table::terminal()));
    Ok(status::PASSED)
}

/// Every testbed over the last commits that changed one, and what is not committed.
fn of_bits(root: &Path, folder: Option<&Path>, sweep: Option<&str>, last: usize) -> Result<History> {
    let folders = match folder {
        Some(one) => vec![one.to_path_buf()],
        None => below(root)?.into_iter().filter(|p| p.is_dir()).collect(),
    };
    let mut files = Vec::new();
    for folder in &folders {
        files.extend(below(folder)?.into_iter().filter(|p| p.extension().is_some_and(|e| e == "csv")));
    }
    files.retain(|f| sweep.is_none_or(|s| f.file_stem().is_some_and(|n| n == s)));
    if files.is_empty() {
        let sweep = sweep.map_or(String::new(), |s| format!(" of {s}"));
        bail!("{}: no baseline{sweep} here; {BEGIN}", root.display());
    }
    let commits = git(root, &["log", &format!("-{last}"), "--format=%h%x09%as%x09%s", "--", "*.csv"])?;
    let mut versions: Vec<Version> = commits.lines().rev().map(version).collect();
    let mut testbeds = files.iter().map(|file| testbed(file, &versions)).collect::<Result<Vec<Testbed>>>()?;
    for (bed, file) in testbeds.iter_mut().zip(&files) {
        bed.states.push(on_disk(file)?);
    }
    if testbeds.iter().all(|t| matches!(t.states.last(), Some(State::Kept))) {
        testbeds.iter_mut().for_each(|t| drop(t.states.pop()));
    } else {
        versions.push(Version { hash: String::new(), date: String::new(), subject: String::new() });
    }
    Ok(History { versions, testbeds })
}

fn version(line: &str) -> Version {
    let mut parts = line.splitn(3, '\t').map(String::from);
    let mut next = || parts.next().unwrap_or_default();
    Version { hash: next(), date: next(), subject: next() }
}

/// What each version has of the baseline `file`.
fn testbed(file: &Path, versions: &[Version]) -> Result<Testbed> {
    let (folder, name, sweep) = names(file);
    let log = git(folder, &["log", "--format=%h", "--", &name])?;
    let touched: Vec<&str> = log.lines().collect();
    let mut states: Vec<State> = Vec::new();
    for (i, v) in versions.iter().enumerate() {
        // The first one shown has what an earlier commit wrote.
        if i > 0 && !touched.contains(&v.hash.as_str()) {
            let begun = states.iter().any(|s| !matches!(s, State::Absent));
            states.push(if begun { State::Kept } else { State::Absent });
            continue;
        }
        let show = |name: &str| git(folder, &["show", &format!("{}:./{name}", v.hash)]);
        states.push(match show(&name) {
            Err(_) => State::Absent,
            Ok(text) => state(file, &sweep, &text, &show(&format!("{sweep}.json")).unwrap_or_default()),
        });
    }
    let machine = folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    Ok(Testbed { machine, sweep, states })
}

/// What the tree has, where it is not what was committed last.
fn on_disk(file: &Path) -> Result<State> {
    let (folder, name, sweep) = names(file);
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()));
    let text = read(file)?;
    if git(folder, &["show", &format!("HEAD:./{name}")]).is_ok_and(|committed| committed == text) {
        return Ok(State::Kept);
    }
    Ok(state(file, &sweep, &text, &read(&file.with_extension("json")).unwrap_or_default()))
}

fn state(file: &Path, sweep: &str, text: &str, facts: &str) -> State {
    let Ok(records) = baseline::parse(file, text) else { return State::Unread };
    let facts = Facts::parse(&file.with_extension("json"), facts).unwrap_or_default();
    State::Recorded(Recording { sweep: sweep.to_string(), records, facts })
}

/// Folder, name and sweep of a baseline.
fn names(file: &Path) -> (&Path, String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.map_or_else(String::new, |p| p.to_string_lossy().into_owned());
    (file.parent().unwrap_or(Path::new(".")), text(file.file_name()), text(file.file_stem()))
}

/// What a folder holds, in the order of names.
fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}: no folder of baselines", folder.display()))?;
    let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
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

/// Spaces beside a column, and the characters of its date.
const DATE: usize = 2 + "2026-11-21".len();

/// A row for each kernel, a column for each commit: the newest that a terminal of `wide` characters has room for.
fn table(metric: &str, columns: &[(String, BTreeMap<String, f64>)], wide: Option<usize>) -> String {
    let mut kernels: Vec<&String> = columns.iter().flat_map(|(_, c)| c.keys()).collect();
    kernels.sort();
    kernels.dedup();
    let first = format!("largest {metric}");
    let names = kernels.iter().map(|k| k.chars().count()).chain([first.len()]).max().unwrap_or(0) + 3;
    let room = wide.map_or(columns.len(), |w| (w.saturating_sub(names) / DATE).max(1));
    let older = columns.len().saturating_sub(room);
    let columns = &columns[older..];
    let heads: Vec<&str> = std::iter::once(first.as_str()).chain(columns.iter().map(|(name, _)| name.as_str())).collect();
    let rows: Vec<Vec<String>> = kernels
        .into_iter()
        .map(|kernel| {
            let cells = columns.iter().map(|(_, c)| c.get(kernel).map_or("·".into(), |x| number(*x)));
            std::iter::once(kernel.clone()).chain(cells).collect()
        })
        .collect();
    let more =
        if older > 0 { format!("and {older} older: a wider terminal, a pipe or --svg has them\n") } else { String::new() };
    super::table::text(&heads, &rows) + &more
}

/// Six digits, as people write them.
fn number(x: f64) -> String {
    let size = x.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        return format!("{x:.5e}");
    }
    let whole = if size >= 1.0 { size.log10() as usize + 1 } else { 0 };
    let text = format!("{x:.0$}", 6 - whole);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_columns_fit_a_terminal() {
        let column = |i: usize| (format!("abcdef{i} 2026-11-2{i}"), BTreeMap::from([("cpu/cast".to_string(), 0.9 + 1e-4)]));
        let columns: Vec<_> = (0..8).map(column).collect();
        let text = table("bound_ratio", &columns, Some(80));
        assert!(text.contains("abcdef7") && !text.contains("abcdef3") && text.contains("and 4 older"), "{text}");
        assert!(table("bound_ratio", &columns, None).contains("abcdef0"));
    }

    #[test]
    fn numbers_have_six_digits() {
        let said = [1.0, 0.0, 0.99162345, 191.7, 123456.7, 1e-4, 3.5e7].map(number);
        assert_eq!(said, ["1", "0", "0.991623", "191.7", "123457", "1.00000e-4", "3.50000e7"]);
    }
}
