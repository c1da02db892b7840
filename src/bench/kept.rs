//! A bench that was written, read again: its page is drawn by the report of today.

use super::table::COLUMNS;
use super::{Measured, Row, Unit};
use crate::kernel::cuda::timed::Time;
use crate::{Error, Result};
use std::path::Path;

/// Reads `bench.csv` and `provenance.txt` of a folder. Errors: they are not there, or another program wrote them.
pub fn read(folder: &Path) -> Result<Measured> {
    let text = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e, "give the folder of a bench"))
    };
    let (table, provenance) = (text("bench.csv")?, text("provenance.txt")?);
    let bad =
        |found: String, expected: &str| Error::BadFile { path: folder.join("bench.csv"), found, expected: expected.into() };
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let header = reader.headers().map_err(|e| bad(e.to_string(), "a table"))?;
    if header.iter().ne(COLUMNS) {
        return Err(bad(format!("columns {}", header.iter().collect::<Vec<_>>().join(", ")), "those of `qassay bench`"));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| bad(e.to_string(), "a row of `qassay bench`"))?;
        let at = |name: &str| COLUMNS.iter().position(|c| *c == name).and_then(|i| record.get(i)).unwrap_or("");
        let number = |name: &str| match at(name) {
            "" => Ok(None),
            text => text.parse::<f64>().map(Some).map_err(|_| bad(format!("{name} = `{text}`"), "a number")),
        };
        let micro = |name: &str| number(name).map(|x| x.map(|x| x * 1e-6));
        let seconds = |name: &str| micro(name).map(|x| x.unwrap_or(f64::NAN));
        let whole = |name: &str| number(name).map(|x| x.unwrap_or(0.0) as u64);
        let backend = ["copy", "cuda", "vendor"].into_iter().find(|b| *b == at("backend"));
        let time = Time {
            median: seconds("median_us")?,
            min: seconds("min_us")?,
            max: seconds("max_us")?,
            launches: whole("launches")? as usize,
        };
        rows.push(Row {
            group: at("group").into(),
            backend: backend.ok_or_else(|| bad(format!("backend `{}`", at("backend")), "copy, cuda or vendor"))?,
            kernel: at("kernel").into(),
            shape: at("shape").into(),
            bytes: whole("bytes")?,
            ops: whole("operations")?,
            limit: micro("limit_us")?,
            vendor: number("times_vendor_speed")?.map(|x| x * time.median),
            floor: micro("floor_us")?,
            error: Some(at("error").to_string()).filter(|e| !e.is_empty()),
            time,
        });
    }
    // `copy: 4257.5 GB/s, …`, `peak FP8: 2141 TFLOP/s …`.
    let fact = |key: &str| {
        provenance.lines().find_map(|l| l.strip_prefix(&format!("{key}: "))?.split(' ').next()?.parse::<f64>().ok())
    };
    let peak = |unit: Unit| fact(&format!("peak {}", unit.name())).map(|rate| (unit, rate * 1e12));
    let copies = rows.iter().filter(|r| r.backend == "copy").map(Row::bandwidth).fold(0.0, f64::max);
    let peaks = [Unit::Fp8, Unit::Int8, Unit::F16].into_iter().filter_map(peak).collect();
    Ok(Measured { rows, copy: fact("copy").map_or(copies, |rate| rate * 1e9), peaks, provenance })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::csv;

    #[test]
    fn what_is_read_is_what_was_written() {
        let time = |median: f64| Time { median, min: median, max: 2.0 * median, launches: 9 };
        let row = |backend, time, error: Option<&str>| Row {
            group: "gemm, wide".into(),
            backend,
            kernel: "a \"kernel\"".into(),
            shape: "64 x 64 x 64".into(),
            bytes: 3 << 30,
            ops: 1 << 40,
            time,
            limit: Some(5e-4),
            vendor: Some(8e-4),
            floor: None,
            error: error.map(String::from),
        };
        let none = Time { median: f64::NAN, min: f64::NAN, max: f64::NAN, launches: 0 };
        let rows = vec![row("copy", time(48e-6), None), row("cuda", time(7e-4), None), row("vendor", none, Some("no device"))];
        let provenance = "device: a GPU\ncopy: 4257.5 GB/s, read and written\npeak FP8: 2141 TFLOP/s at the highest clock\n";
        let measured = Measured { rows, copy: 4257.5e9, peaks: vec![(Unit::Fp8, 2141e12)], provenance: provenance.into() };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("bench.csv"), csv(&measured)).unwrap();
        std::fs::write(folder.path().join("provenance.txt"), provenance).unwrap();
        let again = read(folder.path()).unwrap();
        assert_eq!(csv(&again), csv(&measured));
        assert_eq!((again.copy, &again.peaks), (4257.5e9, &measured.peaks));
        std::fs::write(folder.path().join("bench.csv"), "group,backend\na,b\n").unwrap();
        assert!(read(folder.path()).err().unwrap().to_string().contains("columns group, backend"));
        assert!(read(&folder.path().join("none")).err().unwrap().to_string().contains("give the folder of a bench"));
    }
}
