//! A bench as text: the terminal's table, `bench.csv`, `provenance.txt`.

use super::{Measured, Row};
use crate::assay::row::number;

/// Columns of `bench.csv`.
pub const COLUMNS: [&str; 18] = [
    "group",
    "backend",
    "kernel",
    "shape",
    "bytes",
    "operations",
    "median_us",
    "min_us",
    "max_us",
    "launches",
    "gb_per_s",
    "tflop_per_s",
    "limit_us",
    "share_of_limit",
    "times_vendor_speed",
    "floor_us",
    "meets_floor",
    "error",
];

/// The rows as CSV. An entry that was not timed has its reason in the last column and no numbers.
pub fn csv(measured: &Measured) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written =
        writer.write_record(COLUMNS).and_then(|()| measured.rows.iter().try_for_each(|row| writer.write_record(record(row))));
    written.expect("writing to memory");
    String::from_utf8(writer.into_inner().expect("writing to memory")).expect("text was written")
}

fn record(row: &Row) -> [String; COLUMNS.len()] {
    let some = |x: Option<f64>| x.filter(|x| x.is_finite()).map_or(String::new(), |x| number(significant(x)));
    let positive = |x: f64| some(Some(x).filter(|x| *x > 0.0));
    let t = &row.time;
    [
        row.group.clone(),
        row.backend.into(),
        row.kernel.clone(),
        row.shape.clone(),
        row.bytes.to_string(),
        row.ops.to_string(),
        positive(t.median * 1e6),
        positive(t.min * 1e6),
        positive(t.max * 1e6),
        t.launches.to_string(),
        positive(row.bandwidth() * 1e-9),
        positive(row.rate() * 1e-12),
        some(row.limit.map(|l| l * 1e6)),
        some(row.share()),
        some(row.against_vendor()),
        some(row.floor.map(|f| f * 1e6)),
        row.meets_floor().map_or("", |meets| if meets { "yes" } else { "no" }).into(),
        row.error.clone().unwrap_or_default(),
    ]
}

/// Five significant digits: more is noise.
fn significant(x: f64) -> f64 {
    format!("{x:.4e}").parse().unwrap_or(x)
}

/// The rows as a table, groups apart.
pub fn terminal(measured: &Measured) -> String {
    let width = measured.rows.iter().map(|r| r.kernel.chars().count()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "  {:<width$} {:>18} {:>10} {:>8} {:>8} {:>6} {:>9} {:>16}\n",
        "kernel", "shape", "µs", "TB/s", "TFLOP/s", "limit", "vs vendor", "floor, µs"
    );
    let mut group = "";
    for row in &measured.rows {
        if row.group != group {
            text += &format!("{}\n", row.group);
            group = &row.group;
        }
        if let Some(why) = &row.error {
            text += &format!("  {} not timed: {why}\n", row.backend);
            continue;
        }
        let percent = |x: Option<f64>| x.map_or(String::new(), |x| format!("{:.0}%", 100.0 * x));
        text += &format!(
            "  {:<width$} {:>18} {:>10} {:>8} {:>8} {:>6} {:>9} {:>16}\n",
            row.kernel,
            row.shape,
            format!("{:.2}", row.time.median * 1e6),
            format!("{:.2}", row.bandwidth() * 1e-12),
            if row.ops > 0 { format!("{:.0}", row.rate() * 1e-12) } else { String::new() },
            percent(row.share()),
            row.against_vendor().map_or(String::new(), |x| format!("{x:.2}x")),
            floor(row),
        );
    }
    text
}

/// `12.30 met`, or `12.30 MISSED`.
pub fn floor(row: &Row) -> String {
    let word = row.meets_floor().map(|meets| if meets { "met" } else { "MISSED" });
    word.zip(row.floor).map_or(String::new(), |(word, floor)| format!("{:.2} {word}", floor * 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cuda::timed::Time;

    fn measured() -> Measured {
        let row = Row {
            group: "fp8 gemm".into(),
            backend: "cuda",
            kernel: "fp8_gemm".into(),
            shape: "4096x4096x4096".into(),
            bytes: 67_108_864,
            ops: 137_438_953_472,
            time: Time { median: 1e-4, min: 0.9e-4, max: 1.1e-4, launches: 40 },
            limit: Some(7e-5),
            vendor: Some(9e-5),
            floor: Some(9.5e-5),
            error: None,
        };
        let nan = Time { median: f64::NAN, min: f64::NAN, max: f64::NAN, launches: 0 };
        let failed = Row {
            backend: "vendor",
            kernel: String::new(),
            time: nan,
            limit: None,
            vendor: None,
            floor: None,
            error: Some("libcublasLt is not here".into()),
            ..row.clone()
        };
        Measured { rows: vec![row, failed], copy: 4.2e12, peaks: vec![], provenance: String::new() }
    }

    #[test]
    fn the_table_says_rates_shares_and_what_was_not_timed() {
        let text = terminal(&measured());
        for part in [
            "fp8 gemm\n",
            "100.00",
            "0.67",
            "1374",
            "70%",
            "0.90x",
            "95.00 MISSED",
            "vendor not timed: libcublasLt is not here",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn csv_has_no_number_where_nothing_was_measured() {
        let text = csv(&measured());
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(&rows[0][6], "100");
        assert_eq!(&rows[0][13], "0.7");
        assert_eq!((&rows[0][15], &rows[0][16]), ("95", "no"));
        assert_eq!((&rows[1][6], &rows[1][11], &rows[1][17]), ("", "", "libcublasLt is not here"));
    }
}
