//! One case's line in `rows.csv`.

use crate::compare::METRICS;
use crate::{Error, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// One column of `rows.csv`.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// Empty for names and counts.
    pub unit: &'static str,
    pub help: String,
}

/// The columns before the metrics.
const COORDINATES: &[(&str, &str, &str)] = &[
    ("sweep", "", "sweep the case belongs to"),
    ("family", "", "table of the sweep file"),
    ("case", "", "name of the case: all its coordinates"),
    ("op", "", "what is computed"),
    ("act", "", "activation"),
    ("kernel", "", "who computed it"),
    ("algorithm", "", "which of a library's algorithms ran, in its own numbers; empty for other backends"),
    ("backend", "", "cpu, cuda, vendor or external"),
    ("device", "", "device it ran on"),
    ("recipe_a", "", "how A (or the result of a cast) was quantized"),
    ("recipe_b", "", "how B was quantized"),
    ("format", "", "format of the narrowest quantized tensor"),
    ("granularity", "", "which elements of it share a scale"),
    ("group", "elements", "elements of K that share a scale; 0 is the whole row or tensor"),
    ("zero", "", "zero points: none, integer, additive"),
    ("offset", "rms", "added to B, in units of its root mean square"),
    ("accumulator", "", "how the product was accumulated"),
    ("m", "elements", "rows of the result"),
    ("n", "elements", "columns of the result"),
    ("k", "elements", "inner dimension; 0 where there is none"),
    ("rows", "", "rows of each group or part"),
    ("dtype", "", "dtype of the unquantized values"),
    ("out", "", "what the kernel wrote"),
    ("dist_a", "", "where A comes from"),
    ("dist_b", "", "where B comes from"),
    ("real", "", "true where A is a real tensor"),
    ("bias", "", "true with a bias"),
    ("seed", "", "draw"),
    ("edge", "", "true where the sweep allows the case to lack power"),
    ("verdict", "", "pass, suspect, fail, no_power, error, skipped"),
    ("reason", "", "why, with the place"),
    ("mismatches", "elements", "elements whose bits differ from the device model; empty where there is none"),
    ("held", "elements", "elements whose bits were held to the device model; empty where there is none"),
    ("bound_ratio", "1", "largest error over its certain bound; at most 1 for a correct kernel"),
    ("probable_ratio", "1", "largest error over its probable bound"),
    ("power_gain", "1", "smallest uniform gain that the verdict would have caught"),
    ("power_group_gain", "1", "smallest gain of one scale's elements that it would have caught"),
    ("power_flip_rate", "1", "smallest share of codes off by one step that it would have caught"),
    ("differing", "1", "share of the result's elements that are not the correctly rounded ideal, NaN as a class"),
    ("sha256", "", "digest of the output bits"),
    ("ulp_histogram", "elements", "kernel error in output ulps, binned: 0|(0,.25]|(.25,.5]|(.5,1]|(1,2]|(2,4]|(4,8]|>8|nan"),
    ("codes", "", "which codes of the quantized operands occur: 256 bits, hex, code 0 first"),
    ("ties", "elements", "operand elements that were exactly between two codes"),
    ("subnormals", "elements", "operand codes that are subnormal"),
    ("saturations", "elements", "operand codes at the largest finite magnitude"),
];

/// The three errors, as column prefixes.
pub const ERRORS: [(&str, &str); 3] = [
    ("quant", "quantization error (ideal − exact)"),
    ("kernel", "kernel error (actual − ideal)"),
    ("total", "total error (actual − exact)"),
];

/// `coordinates` (name, unit, help), then each metric of each error, then the command. `of` says in a metric's help whose error it is.
pub fn metric_columns(coordinates: &[(&str, &'static str, &str)], of: &str) -> Vec<Column> {
    let mut all: Vec<Column> =
        coordinates.iter().map(|(n, u, h)| Column { name: (*n).into(), unit: u, help: (*h).into() }).collect();
    for (prefix, what) in ERRORS {
        all.extend(METRICS.iter().map(|m| Column {
            name: format!("{prefix}_{}", m.name),
            unit: m.unit,
            help: format!("{what}{of}: {}", m.help),
        }));
    }
    all.push(Column { name: "command".into(), unit: "", help: "the one command that reproduces this row".into() });
    all
}

/// Every column of `rows.csv`, in order: coordinates, verdict, then each metric of each error.
pub static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| metric_columns(COORDINATES, ""));

/// Position of a column.
pub fn column(name: &str) -> Option<usize> {
    static INDEX: LazyLock<std::collections::HashMap<String, usize>> =
        LazyLock::new(|| COLUMNS.iter().enumerate().map(|(i, c)| (c.name.clone(), i)).collect());
    INDEX.get(name).copied()
}

/// One line of `rows.csv`: a value for every column, empty where it does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    values: Vec<String>,
}

impl Default for Row {
    fn default() -> Self {
        Row { values: vec![String::new(); COLUMNS.len()] }
    }
}

impl Row {
    /// Sets a column. Panics on a name that is not in [`COLUMNS`]: a mistake in this crate.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        let i = column(name).unwrap_or_else(|| panic!("no column {name}"));
        self.values[i] = value.to_string();
    }
    /// Sets a number in the shortest decimal form that reads back to the same f64.
    pub fn set_number(&mut self, name: &str, value: f64) {
        self.set(name, number(value));
    }
    /// The text of a column; empty for a name that does not exist.
    pub fn get(&self, name: &str) -> &str {
        column(name).map_or("", |i| &self.values[i])
    }
    /// The number of a column, where there is one.
    pub fn num(&self, name: &str) -> Option<f64> {
        self.get(name).parse().ok()
    }
    /// A row of these values. Panics unless there is one for each column.
    pub(crate) fn from_values(values: Vec<String>) -> Row {
        assert_eq!(values.len(), COLUMNS.len());
        Row { values }
    }
    pub fn values(&self) -> &[String] {
        &self.values
    }
}

/// What a journal holds: lines of the same columns.
pub trait Line: Sized {
    fn columns() -> Vec<&'static str>;
    /// A line of these values, one for each column.
    fn of(values: Vec<String>) -> Self;
    fn values(&self) -> &[String];
}

impl Line for Row {
    fn columns() -> Vec<&'static str> {
        COLUMNS.iter().map(|c| c.name.as_str()).collect()
    }
    fn of(values: Vec<String>) -> Self {
        Row::from_values(values)
    }
    fn values(&self) -> &[String] {
        Row::values(self)
    }
}

/// Shortest decimal that reads back to the same f64; exponent form outside 1e-4 … 1e7.
pub fn number(x: f64) -> String {
    if x == 0.0 || (1e-4..1e7).contains(&x.abs()) || !x.is_finite() { format!("{x}") } else { format!("{x:e}") }
}

/// A number as people read it: four significant digits.
pub(crate) fn short(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return number(x);
    }
    let digits = (3 - x.abs().log10().floor() as i32).clamp(0, 6) as usize;
    if (1e-3..1e6).contains(&x.abs()) {
        let text = format!("{x:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    } else {
        format!("{x:.2e}")
    }
}

/// Complete rows of a `rows.csv`, in bounded memory. Errors: it cannot be read, or is no CSV.
pub fn count(path: &Path) -> Result<usize> {
    let mut rows = Rows::open(path)?;
    let mut n = 0;
    while rows.reader.read_record(&mut rows.record).unwrap_or(false) {
        n += 1;
    }
    Ok(n)
}

/// Hands every complete row of a `rows.csv` written by this version to `take`, in order and in bounded memory. A last line without
/// its newline (a torn write) is dropped. Errors: it cannot be read; other columns; a row that is not whole.
pub fn each(path: &Path, mut take: impl FnMut(Row)) -> Result<()> {
    let mut rows = Rows::open(path)?;
    while let Some(row) = rows.next()? {
        take(row);
    }
    Ok(())
}

/// Every complete row of a `rows.csv`: [`each`], collected.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    each(path, |row| rows.push(row))?;
    Ok(rows)
}

/// A `rows.csv` being read row by row.
pub struct Rows {
    path: PathBuf,
    reader: csv::Reader<std::io::Take<File>>,
    record: csv::StringRecord,
    line: usize,
}

impl Rows {
    /// Errors: it cannot be read, or its columns are not those of this version.
    pub fn open(path: &Path) -> Result<Rows> {
        let io = |e| Error::io(path, e, "name the folder of a run");
        let bad = |found: String, expected: String| Error::BadFile { path: path.to_path_buf(), found, expected };
        let mut file = File::open(path).map_err(io)?;
        let whole = whole_lines(&mut file).map_err(io)?;
        let mut reader = csv::ReaderBuilder::new().from_reader(file.take(whole));
        let header: Vec<String> =
            reader.headers().map_err(|e| bad(e.to_string(), "a CSV header".into()))?.iter().map(String::from).collect();
        if !header.iter().eq(COLUMNS.iter().map(|c| &c.name)) {
            let odd = header.iter().find(|h| column(h).is_none());
            let found = odd.map_or(format!("{} columns", header.len()), |h| format!("column `{h}`"));
            return Err(bad(found, format!("the {} columns of this version of qassay; run the sweep again", COLUMNS.len())));
        }
        Ok(Rows { path: path.to_path_buf(), reader, record: csv::StringRecord::new(), line: 1 })
    }
    /// The next row. Errors: it is not whole.
    #[allow(clippy::should_implement_trait)] // An iterator of results would go on after a broken line.
    pub fn next(&mut self) -> Result<Option<Row>> {
        self.line += 1;
        match self.reader.read_record(&mut self.record) {
            Ok(true) => Ok(Some(Row { values: self.record.iter().map(String::from).collect() })),
            Ok(false) => Ok(None),
            Err(e) => Err(Error::BadFile {
                path: self.path.clone(),
                found: format!("line {}: {e}", self.line),
                expected: "a complete row".into(),
            }),
        }
    }
}

/// Bytes up to the last newline; leaves the file at its beginning.
fn whole_lines(file: &mut File) -> std::io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut block = [0; 4096];
    while end > 0 {
        let begin = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - begin) as usize];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(part)?;
        if let Some(i) = part.iter().rposition(|b| *b == b'\n') {
            end = begin + i as u64 + 1;
            break;
        }
        end = begin;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(end)
}
