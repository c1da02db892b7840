//! One case's line in `rows.csv`.

use super::coverage::Codes;
use super::table::{Line, table};
use crate::compare::Verdict;
use crate::kernel::Backend;
use crate::model::Accumulator;
use crate::op::{Act, Op};
use crate::quant::ZeroKind;
use crate::{Error, Format, Granularity, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

table! {
    /// One line of `rows.csv`: a case, and what became of it. The list below is the columns of the file, of the JSON, of the report's table and
    /// of `qassay list columns`. A new row is an error until it is judged. A name that is no column does not compile:
    ///
    /// ```compile_fail,E0609
    /// let row = qassay::prelude::Row::new(qassay::prelude::Op::Gemm, qassay::prelude::Backend::Cpu);
    /// row.verdct;
    /// ```
    pub struct Row, new(op: Op, backend: Backend) {
        sweep: String, "", "sweep the case belongs to";
        family: String, "", "table of the sweep file";
        case: String, "", "name of the case: all its coordinates";
        op: Op = op, "", "what is computed";
        act: Option<Act>, "", "activation";
        kernel: String, "", "who computed it";
        algorithm: String, "", "which of a library's algorithms ran, in its own numbers; empty for other backends";
        backend: Backend = backend, "", "cpu, cuda, vendor or external";
        device: String, "", "device it ran on";
        recipe_a: String, "", "how A (or the result of a cast) was quantized";
        recipe_b: String, "", "how B was quantized";
        format: Option<Format>, "", "format of the narrowest quantized tensor";
        granularity: Option<Granularity>, "", "which elements of it share a scale";
        group: Option<usize>, "elements", "elements of K that share a scale; 0 is the whole row or tensor";
        zero: Option<ZeroKind>, "", "zero points: none, integer, additive";
        offset: Option<f64>, "rms", "added to B, in units of its root mean square";
        accumulator: Option<Accumulator>, "", "how the product was accumulated";
        m: usize, "elements", "rows of the result";
        n: usize, "elements", "columns of the result";
        k: usize, "elements", "inner dimension; 0 where there is none";
        rows: Vec<usize>, "", "rows of each group or part";
        dtype: Option<Format>, "", "dtype of the unquantized values";
        out: String, "", "what the kernel wrote";
        dist_a: String, "", "where A comes from";
        dist_b: String, "", "where B comes from";
        real: Option<bool>, "", "true where A is a real tensor";
        bias: bool, "", "true with a bias";
        seed: Option<u64>, "", "draw";
        edge: Option<bool>, "", "true where the sweep allows the case to lack power";
        verdict: Verdict = Verdict::Error, "", "pass, suspect, fail, no_power, error, skipped";
        reason: String, "", "why, with the place";
        fault: String, "", "the bug that a diagnosis names, class:variant; unknown where it names none";
        finding: String, "", "what that bug does, with its parameters, and how much of the error it explains";
        look: String, "", "what to look at in the kernel";
        reference: String, "", "which of several right references the result follows: weights rounded to 16 bits, or not";
        mismatches: Option<usize>, "elements", "elements whose bits differ from the device model; empty where there is none";
        held: Option<usize>, "elements", "elements whose bits were held to the device model; empty where there is none";
        bound_ratio: Option<f64>, "1", "largest error over its certain bound; at most 1 for a correct kernel";
        probable_ratio: Option<f64>, "1", "largest error over its probable bound";
        power_gain: Option<f64>, "1", "smallest uniform gain that the verdict would have caught";
        power_group_gain: Option<f64>, "1", "smallest gain of one scale's elements that it would have caught";
        power_flip_rate: Option<f64>, "1", "smallest share of codes off by one step that it would have caught";
        differing: Option<f64>, "1", "share of the result's elements that are not the correctly rounded ideal, NaN as a class";
        sha256: String, "", "digest of the output bits";
        ulp_histogram: Option<[usize; 9]>, "elements", "kernel error in output ulps, binned: 0|(0,.25]|(.25,.5]|(.5,1]|(1,2]|(2,4]|(4,8]|>8|nan";
        codes: Option<Codes>, "", "which codes of the quantized operands occur: 256 bits, hex, code 0 first";
        ties: Option<usize>, "elements", "operand elements that were exactly between two codes";
        subnormals: Option<usize>, "elements", "operand codes that are subnormal";
        saturations: Option<usize>, "elements", "operand codes at the largest finite magnitude";
    } errors ""
}

impl Row {
    /// Whether the sweep allows the case to lack power.
    pub fn is_edge(&self) -> bool {
        self.edge == Some(true)
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
    let mut rows = Reader::open(path)?;
    let mut n = 0;
    while rows.reader.read_record(&mut rows.record).unwrap_or(false) {
        n += 1;
    }
    Ok(n)
}

/// Hands every complete row of a `rows.csv` written by this version to `take`, in order and in bounded memory. A last line without
/// its newline (a torn write) is dropped. Errors: it cannot be read; other columns; a row that is not whole.
pub fn each(path: &Path, mut take: impl FnMut(Row)) -> Result<()> {
    let mut rows = Reader::open(path)?;
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
pub struct Reader {
    path: PathBuf,
    reader: csv::Reader<std::io::Take<File>>,
    record: csv::StringRecord,
    line: usize,
}

impl Reader {
    /// Errors: it cannot be read, or its columns are not those of this version.
    pub fn open(path: &Path) -> Result<Reader> {
        let io = |e| Error::io(path, e, "name the folder of a run");
        let bad = |found: String, expected: String| Error::BadFile { path: path.to_path_buf(), found, expected };
        let mut file = File::open(path).map_err(io)?;
        let whole = whole_lines(&mut file).map_err(io)?;
        let mut reader = csv::ReaderBuilder::new().from_reader(file.take(whole));
        let (header, names) = (reader.headers().map_err(|e| bad(e.to_string(), "a CSV header".into()))?, Row::names());
        if !header.iter().eq(names.iter().copied()) {
            let odd = header.iter().find(|h| !names.contains(h));
            let found = odd.map_or(format!("{} columns", header.len()), |h| format!("column `{h}`"));
            return Err(bad(found, format!("the {} columns of this version of qassay; run the sweep again", names.len())));
        }
        Ok(Reader { path: path.to_path_buf(), reader, record: csv::StringRecord::new(), line: 1 })
    }
    /// The next row. Errors: it is not whole; a value that its column cannot have.
    #[allow(clippy::should_implement_trait)] // An iterator of results would go on after a broken line.
    pub fn next(&mut self) -> Result<Option<Row>> {
        self.line += 1;
        let bad = |e: String| Error::BadFile {
            path: self.path.clone(),
            found: format!("line {}: {e}", self.line),
            expected: "a complete row of this version of qassay".into(),
        };
        if !self.reader.read_record(&mut self.record).map_err(|e| bad(e.to_string()))? {
            return Ok(None);
        }
        Row::read(&self.record.iter().collect::<Vec<_>>()).map(Some).map_err(|e| bad(e.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assay::table::{Cell, Errors};
    use crate::compare::{ErrorStats, METRICS};

    /// A row with a value in every column.
    fn full() -> Row {
        let mut n = 0.0;
        let mut stats = || {
            ErrorStats::of_metrics(|_| {
                n += 1.0;
                Ok(n)
            })
            .ok()
        };
        Row {
            sweep: "s".into(),
            family: "f".into(),
            case: "a \"case\", of two\nlines".into(),
            act: Some(Act::Gelu),
            kernel: "vendor/gemm".into(),
            algorithm: "id=66 split_k=4".into(),
            device: "d".into(),
            recipe_a: "te_current".into(),
            recipe_b: "te_current".into(),
            format: Some(Format::E4m3),
            granularity: Some(Granularity::Block { rows: 128, cols: 64 }),
            group: Some(128),
            zero: Some(ZeroKind::Additive),
            offset: Some(0.5),
            accumulator: "hopper_wgmma@128".parse().ok(),
            m: 3,
            n: 4,
            k: 5,
            rows: vec![1, 0, 2],
            dtype: Some(Format::Bf16),
            out: "scaled:e4m3".into(),
            dist_a: "normal".into(),
            dist_b: "normal".into(),
            real: Some(false),
            bias: true,
            seed: Some(7),
            edge: Some(true),
            verdict: Verdict::NoPower,
            reason: "r".into(),
            fault: "k_tail:last_16".into(),
            finding: "f".into(),
            look: "l".into(),
            reference: "weights not rounded".into(),
            mismatches: Some(1),
            held: Some(12),
            bound_ratio: Some(f64::NAN),
            probable_ratio: Some(f64::INFINITY),
            power_gain: Some(1e-9),
            power_group_gain: Some(1.0),
            power_flip_rate: Some(-0.0),
            differing: Some(0.1),
            sha256: "00ff".into(),
            ulp_histogram: Some([1, 2, 3, 4, 5, 6, 7, 8, 9]),
            codes: Codes::of("a0f").ok(),
            ties: Some(1),
            subnormals: Some(2),
            saturations: Some(3),
            errors: Errors { quantization: stats(), kernel: stats(), total: stats() },
            command: "qassay".into(),
            ..Row::new(Op::Gemm, Backend::Vendor)
        }
    }

    fn read(cells: &[String]) -> Result<Row> {
        Row::read(&cells.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Of a full row no cell is empty, each is read back from its text, and each column but those of texts refuses what it cannot be.
    #[test]
    fn each_column_reads_and_writes() {
        let cells = full().cells();
        assert_eq!(read(&cells).unwrap().cells(), cells);
        let mut texts = Vec::new();
        for (i, column) in Row::columns().iter().enumerate() {
            assert!(!cells[i].is_empty(), "{} is not written", column.name);
            let mut odd = cells.clone();
            odd[i] = "?".into();
            match read(&odd) {
                Ok(row) => {
                    assert_eq!(row.cells(), odd, "{}", column.name);
                    texts.push(column.name.as_str());
                }
                Err(e) => assert!(e.to_string().starts_with(&format!("column {}: found `?`, expected ", column.name)), "{e}"),
            }
        }
        let of_texts = "sweep family case kernel algorithm device recipe_a recipe_b out dist_a dist_b reason fault finding look reference sha256 command";
        assert_eq!(texts.join(" "), of_texts);
    }

    #[test]
    fn columns_are_found_by_their_names_alone() {
        assert_eq!(Row::columns().len(), 49 + 3 * METRICS.len() + 1);
        for column in Row::columns() {
            assert!(std::ptr::eq(Row::column(&column.name).unwrap(), column), "{} stands twice", column.name);
            assert!(!column.help.is_empty(), "{} says nothing", column.name);
        }
        let unknown = Row::column("verdct").err().unwrap().to_string();
        assert!(unknown.contains("unknown column `verdct`") && unknown.contains("did you mean `verdict`?"), "{unknown}");
    }

    #[test]
    fn what_does_not_apply_is_empty() {
        let row = Row::new(Op::Cast, Backend::Cpu);
        let said: Vec<(&str, String)> =
            Row::columns().iter().map(|c| (c.name.as_str(), c.text(&row))).filter(|c| !c.1.is_empty()).collect();
        let known =
            [("op", "cast"), ("backend", "cpu"), ("m", "0"), ("n", "0"), ("k", "0"), ("bias", "false"), ("verdict", "error")];
        assert_eq!(said, known.map(|(name, text)| (name, text.to_string())));
        assert!(read(&row.cells()).unwrap() == row && row != full());
        // An error's numbers are all there or none is; as many cells as columns.
        let mut cells = row.cells();
        cells[49] = "1".into();
        assert!(read(&cells).unwrap_err().to_string().starts_with("column quant_finite"));
        let mut cells = full().cells();
        cells[49] = "1.5".into();
        assert!(read(&cells).unwrap_err().to_string().contains("count: found 1.5, expected a whole number"));
        assert!(read(&cells[1..]).is_err());
    }

    /// What earlier versions wrote is read, and written again to the byte.
    #[test]
    fn rows_in_the_repository_are_written_as_they_were() {
        for run in ["example", "example-h200", "example-torch"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports").join(run).join("rows.csv");
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(Row::names()).unwrap();
            let mut rows = 0;
            each(&path, |row| {
                writer.write_record(row.cells()).unwrap();
                rows += 1;
            })
            .unwrap();
            assert!(rows > 90 && writer.into_inner().unwrap() == std::fs::read(&path).unwrap(), "{run}: {rows} rows");
            assert_eq!(count(&path).unwrap(), rows);
        }
    }

    #[test]
    fn other_columns_and_odd_values_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        let names = Row::names().join(",");
        let cells = Row::new(Op::Cast, Backend::Cpu).cells().join(",");
        let said = |text: String| {
            std::fs::write(&path, text).unwrap();
            super::read(&path).map(|r| r.len()).map_err(|e| e.to_string())
        };
        assert_eq!(said(format!("{names}\n{cells}\n")), Ok(1));
        assert!(
            said(names.replace("verdict", "verdct") + "\n")
                .unwrap_err()
                .contains("found column `verdct`, expected the 113 columns")
        );
        assert!(said(names.replace("verdict,", "") + "\n").unwrap_err().contains("found 112 columns, expected the 113"));
        let odd = said(format!("{names}\n{cells}\n{}\n", cells.replace("error", "eror"))).unwrap_err();
        assert!(odd.contains("line 3: column verdict: found `eror`, expected one of pass, suspect"), "{odd}");
    }
}
