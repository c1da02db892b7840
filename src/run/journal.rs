//! `rows.csv` being written: the run's own journal.
//!
//! Rows are in the order of the cases, so what is complete is a prefix. Each row is one write of whole lines: a killed process
//! loses none that was written. The file is synced at most every [`SYNC_EVERY`] and at the end: a power loss costs at most the rows
//! of that time, and those are computed again, to the same bits. What a resumed run keeps is the longest prefix of rows that are
//! whole and are the cases of the sweep in their order; the rest is cut off with a word.

use super::facts::{self, Facts};
use super::lock::Lock;
use crate::assay::row::Row;
use crate::assay::table::Line;
use crate::sweep::Case;
use crate::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A power loss costs at most this much work.
pub const SYNC_EVERY: Duration = Duration::from_millis(200);

const REMEDY: &str = "choose a folder that can be written and has room with --out; complete rows are kept, --resume goes on";

/// The rows of a run, open to be appended to.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes that are whole lines.
    complete: u64,
    synced: Instant,
    _lock: Lock,
}

impl Journal {
    /// Opens the folder `out` for the run that `facts` describe, hands the rows it holds already to `take` (none without `resume`) and
    /// returns how many they are.
    /// Errors: another run is going on in it; it holds a run and `resume` is false; it holds a run of other facts (named).
    pub fn open(out: &Path, facts: &Facts, cases: &[&Case], resume: bool, take: impl FnMut(Row)) -> Result<(Journal, usize)> {
        let is = |i: usize, row: &Row| {
            let case = cases[i];
            *row.sweep == *case.sweep && row.case == case.id()
        };
        Journal::open_lines(out, facts, cases.len(), &is, resume, take)
    }

    /// [`Journal::open`] for `count` lines of any kind; `is` says whether a line is the complete one of its place.
    pub fn open_lines<R: Line>(
        out: &Path,
        facts: &Facts,
        count: usize,
        is: &dyn Fn(usize, &R) -> bool,
        resume: bool,
        take: impl FnMut(R),
    ) -> Result<(Journal, usize)> {
        std::fs::create_dir_all(out).map_err(|e| Error::io(out, e, REMEDY))?;
        let path = out.join("rows.csv");
        let header = out.join("run.json");
        let lock = Lock::take(out)?;
        let held = [&header, &path].into_iter().find(|p| p.exists());
        if let (Some(held), false) = (held, resume) {
            return Err(Error::BadFile {
                path: held.clone(),
                found: "a run".into(),
                expected: "a folder without one; name another with --out, go on with --resume, or remove it".into(),
            });
        }
        if header.exists() {
            let before = Facts::read_file(&header)?;
            let differ = before.differences(facts, &[]);
            if !differ.is_empty() {
                return Err(Error::BadFile {
                    path: header,
                    found: facts::show(&differ, "the run has", "now it is"),
                    expected: "what the run was begun with; begin another with --out".into(),
                });
            }
        } else if path.exists() {
            let found = "rows without run.json".into();
            return Err(Error::BadFile { path, found, expected: "a run of this version; begin another with --out".into() });
        } else {
            facts.write_file(&header)?;
        }
        let io = |e| Error::io(&path, e, REMEDY);
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        let (rows, complete) = recover(&file, count, is, take);
        let length = file.metadata().map_err(io)?.len();
        if complete < length {
            let bytes = length - complete;
            tracing::warn!("{}: {} rows are complete; a torn one after them ({bytes} bytes) is dropped", path.display(), rows);
        }
        file.set_len(complete).and_then(|()| file.seek(SeekFrom::Start(complete))).map_err(io)?;
        let mut journal = Journal { path, file, complete, synced: Instant::now(), _lock: lock };
        if complete == 0 {
            journal.line(&R::names())?;
        }
        Ok((journal, rows))
    }

    /// Appends a row. Errors: it could not be written; the file then ends with the row before it.
    pub fn append<R: Line>(&mut self, row: &R) -> Result<()> {
        self.line(&row.cells())?;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub fn sync(&mut self) -> Result<()> {
        self.synced = Instant::now();
        self.file.sync_data().map_err(|e| Error::io(&self.path, e, REMEDY))
    }

    fn line<S: AsRef<[u8]>>(&mut self, fields: &[S]) -> Result<()> {
        let line = line(fields);
        if let Err(e) = self.file.write_all(&line) {
            // Part of the line may be there. Where even this fails, the next reader drops it.
            let _ = self.file.set_len(self.complete);
            return Err(Error::io(&self.path, e, REMEDY));
        }
        self.complete += line.len() as u64;
        Ok(())
    }
}

/// One line of CSV with its newline.
pub fn line<S: AsRef<[u8]>>(fields: &[S]) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    writer.write_record(fields).expect("a vector takes every record");
    writer.into_inner().expect("a vector takes every record")
}

/// Hands over the rows at the beginning of the file that are whole and are those of their places; how many, and where the last of them ends
/// (0 where not even the header is whole).
fn recover<R: Line>(file: &File, count: usize, is: &dyn Fn(usize, &R) -> bool, mut take: impl FnMut(R)) -> (usize, u64) {
    let columns = R::names();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(BufReader::new(file));
    let (mut rows, mut complete) = (0, 0);
    let mut record = csv::StringRecord::new();
    let ends_line = |at: u64| {
        let (mut file, mut byte) = (file, [0]);
        // The reader has its own buffer; its place is put back.
        let here = file.stream_position();
        let found = file.seek(SeekFrom::Start(at - 1)).and_then(|_| file.read_exact(&mut byte));
        let back = here.and_then(|h| file.seek(SeekFrom::Start(h)));
        found.is_ok() && back.is_ok() && byte[0] == b'\n'
    };
    for index in 0..=count {
        if !matches!(reader.read_record(&mut record), Ok(true)) || record.len() != columns.len() {
            break;
        }
        let end = reader.position().byte();
        if !ends_line(end) {
            break;
        }
        if index == 0 {
            if !record.iter().eq(columns.iter().copied()) {
                break;
            }
        } else {
            match R::read(&record.iter().collect::<Vec<_>>()) {
                Ok(row) if is(index - 1, &row) => take(row),
                _ => break,
            }
            rows += 1;
        }
        complete = end;
    }
    (rows, complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Backend, cpu};
    use crate::sweep::{Sweep, assay};

    const SWEEP: &str = "about = \"x\"\n[[cases]]\nname = \"x\"\nop = [\"cast\"]\nshape = [\"4x8\"]\nout = [\"te_current\"]\n\
                         seeds = 3\n";

    fn rows(sweep: &Sweep) -> Vec<Row> {
        let row = |c| {
            let mut row = assay::assay(c, cpu::KERNELS, Backend::Cpu, 0);
            row.reason = "two\nlines, and a \"quote\"".into();
            row
        };
        sweep.cases.iter().map(row).collect()
    }

    #[test]
    fn a_cut_anywhere_keeps_every_whole_row_and_nothing_else() {
        let sweep = Sweep::parse(Path::new("x.toml"), SWEEP, 0).unwrap();
        let cases: Vec<&Case> = sweep.cases.iter().collect();
        let rows = rows(&sweep);
        let facts = Facts::default();
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, none) = Journal::open(dir.path(), &facts, &cases, false, |_| ()).unwrap();
        assert_eq!(none, 0);
        let mut ends = vec![journal.complete];
        for row in &rows {
            journal.append(row).unwrap();
            ends.push(journal.complete);
        }
        drop(journal);
        let path = dir.path().join("rows.csv");
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len() as u64, ends[rows.len()]);
        // Around the end of each row, and every 31st byte.
        let near = |cut: usize| cut.is_multiple_of(31) || ends.iter().any(|e| (*e as usize).abs_diff(cut) <= 3);
        for cut in (0..=whole.len()).filter(|c| near(*c)) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let kept = ends.iter().filter(|e| **e <= cut as u64).count().saturating_sub(1);
            let mut found = Vec::new();
            let (mut journal, count) = Journal::open(dir.path(), &facts, &cases, true, |r| found.push(r)).unwrap();
            assert!(found == rows[..kept] && count == kept, "cut at {cut}: {} rows", found.len());
            rows[kept..].iter().for_each(|r| journal.append(r).unwrap());
            drop(journal);
            assert!(std::fs::read(&path).unwrap() == whole, "cut at {cut}");
        }
    }

    #[test]
    fn blocks_that_a_power_loss_left_empty_and_rows_of_other_cases_are_dropped() {
        let sweep = Sweep::parse(Path::new("x.toml"), SWEEP, 0).unwrap();
        let cases: Vec<&Case> = sweep.cases.iter().collect();
        let rows = rows(&sweep);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        let good = [line(&Row::names()), line(&rows[0].cells())].concat();
        Facts::default().write_file(&dir.path().join("run.json")).unwrap();
        for bad in [vec![0; 4096], line(&rows[2].cells()), line(&rows[0].cells()), vec![0xff, b'\n'], b"\"".to_vec()] {
            std::fs::write(&path, [good.clone(), bad].concat()).unwrap();
            let mut found = Vec::new();
            Journal::open(dir.path(), &Facts::default(), &cases, true, |r| found.push(r)).unwrap();
            assert!(found == rows[..1]);
            assert!(std::fs::read(&path).unwrap() == good);
        }
    }
}
