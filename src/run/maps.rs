//! Where the error lives: tile maps of the cases that came nearest to their bound, kept in `maps.csv`.

use crate::assay::map::ErrorMap;
use crate::assay::row::{Row, number, short};
use crate::compare::Verdict;
use crate::kernel::{Backend, Kernel};
use crate::op::Op;
use crate::order::Order as _;
use crate::sweep::{Sweep, assay};
use crate::{Error, Result};
use std::path::Path;

/// How many cases are drawn.
const DRAWN: usize = 6;

/// Ops that round once: their maps show the noise of rounding and nothing else, unless they fail.
const ONE_ROUNDING: [Op; 5] = [Op::Cast, Op::CastTranspose, Op::CastTransposeDbias, Op::MultiCastTranspose, Op::Dequantize];

/// The maps of the worst cases, from those `made` while they ran; a case without one is run again. Failures first (one a table), then the
/// case of each op that came nearest to its bound: products, norms, the rest. Edge cases and those without power are left out unless they
/// failed, and so are cases that did not run.
pub fn worst(
    sweeps: &[Sweep],
    rows: &[Row],
    made: &[ErrorMap],
    kernels: &[&'static dyn Kernel],
    backend: Backend,
) -> Vec<ErrorMap> {
    let failed = |r: &Row| r.verdict == Verdict::Fail;
    let sound =
        |r: &Row| matches!(r.verdict, Verdict::Pass | Verdict::Suspect) && !r.is_edge() && !ONE_ROUNDING.contains(&r.op);
    // A NaN is over its bound.
    let near = |r: &&Row| r.bound_ratio.is_some_and(|x| !(x <= 0.0)) && (failed(r) || sound(r));
    let mut order: Vec<&Row> = rows.iter().filter(near).collect();
    let kind = |r: &Row| match r.op {
        _ if failed(r) => 0,
        _ if r.accumulator.is_some() => 1,
        op if op.is_norm() => 2,
        _ => 3,
    };
    let ratio = |r: &Row| r.bound_ratio.unwrap_or(0.0);
    order.order_by(|a, b| kind(a).cmp(&kind(b)).then(ratio(b).total_cmp(&ratio(a))));
    let (mut kinds, mut maps) = (Vec::new(), Vec::new());
    for row in order {
        let kind = (failed(row), if failed(row) { row.family.as_str() } else { row.op.name() });
        if kinds.contains(&kind) {
            continue;
        }
        kinds.push(kind);
        let case = sweeps.iter().flat_map(|s| &s.cases).find(|c| *c.sweep == *row.sweep && c.id() == row.case);
        let why = format!("{}, largest error / bound {}", row.verdict, short(ratio(row)));
        let made = made.iter().find(|m| m.case == row.case).cloned();
        let map = made.or_else(|| assay::error_map(case?, kernels, backend).ok());
        maps.extend(map.map(|map| ErrorMap { why, ..map }));
        if maps.len() == DRAWN {
            break;
        }
    }
    maps
}

const FILE: &str = "maps.csv";

/// One line a row of tiles; its cells between `|`.
const HEADER: [&str; 6] = ["case", "why", "tile_rows", "tile_cols", "tile_row", "errors_over_bound"];

/// Writes `maps.csv` into the folder of a run.
pub fn write(out: &Path, maps: &[ErrorMap]) -> Result<()> {
    let path = out.join(FILE);
    let mut writer = csv::Writer::from_writer(Vec::new());
    let fail = |e: csv::Error| Error::io(&path, e.into(), "make room; the rows are complete");
    writer.write_record(HEADER).map_err(fail)?;
    for map in maps {
        for (i, row) in map.cells.iter().enumerate() {
            let (tr, tc, i) = (map.tile_rows.to_string(), map.tile_cols.to_string(), i.to_string());
            let cells: Vec<String> = row.iter().map(|c| number(*c)).collect();
            writer.write_record([&map.case, &map.why, &tr, &tc, &i, &cells.join("|")]).map_err(fail)?;
        }
    }
    let bytes = writer.into_inner().expect("writing to memory");
    std::fs::write(&path, bytes).map_err(|e| Error::io(&path, e, "make room; the rows are complete"))
}

/// Reads `maps.csv`; none where the run has none.
pub fn read(out: &Path) -> Result<Vec<ErrorMap>> {
    let path = out.join(FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bad = |found: String| Error::BadFile { path: path.clone(), found, expected: "the maps of a run, row by row".into() };
    let mut reader = csv::Reader::from_path(&path).map_err(|e| bad(e.to_string()))?;
    let mut maps: Vec<ErrorMap> = Vec::new();
    for record in reader.records() {
        let r = record.map_err(|e| bad(e.to_string()))?;
        let field = |i: usize| r.get(i).ok_or_else(|| bad(format!("a line of {} fields", r.len())));
        let size = |i: usize| field(i)?.parse::<usize>().map_err(|e| bad(format!("`{}` ({e})", &r[i])));
        if size(4)? == 0 {
            let (case, why) = (field(0)?.to_string(), field(1)?.to_string());
            maps.push(ErrorMap { case, why, tile_rows: size(2)?, tile_cols: size(3)?, cells: Vec::new() });
        }
        let row: Result<Vec<f64>> = field(5)?.split('|').map(|v| v.parse().map_err(|_| bad(format!("`{v}`")))).collect();
        match maps.last_mut() {
            Some(m) if m.case == r[0] && m.cells.len() == size(4)? => m.cells.push(row?),
            _ => return Err(bad(format!("row {} of `{}` out of order", &r[4], &r[0]))),
        }
    }
    Ok(maps)
}
