//! The figures that are maps: where the error of a case lives, which codes a run reached.

use super::figures::{Figure, csv};
use super::grouped;
use super::heat::{self, Map};
use crate::assay::map::ErrorMap;
use crate::assay::row::{Row, number};
use crate::format::FORMATS;

/// Error over bound in each tile of the worst cases.
pub(super) fn error_maps(maps: &[ErrorMap]) -> Option<Figure> {
    let chart = |m: &ErrorMap| {
        let cols = m.cells.first().map_or(0, Vec::len);
        let every = |n: usize, each: usize, i: usize| i.is_multiple_of(n.div_ceil(6).max(1)).then(|| (i * each).to_string());
        let cells: Vec<Vec<Option<f64>>> = m.cells.iter().map(|r| r.iter().copied().map(Some).collect()).collect();
        let name = |what: &str, each: usize| if each == 1 { what.to_string() } else { format!("{what}, {each} a cell") };
        // As narrow as a phone, with the labels.
        let size = (264 / cols.max(m.cells.len()).max(1)).clamp(4, 24) as i32;
        let svg = heat::map(
            &cells,
            &Map {
                x: (&name("column", m.tile_cols), &|j| every(cols, m.tile_cols, j)),
                y: (&name("row", m.tile_rows), &|i| every(m.cells.len(), m.tile_rows, i)),
                unit: "error / bound",
                most: 1.0,
                least: Some(1e-3),
                cell: size,
                mark: &|_, _| None,
            },
        );
        let svg = heat::with_cells(&svg, &m.cells, size, (m.tile_rows, m.tile_cols));
        (format!("{}: {}", m.case, m.why), svg)
    };
    let data = maps.iter().enumerate().flat_map(|(n, m)| {
        m.cells.iter().enumerate().flat_map(move |(i, row)| {
            row.iter().enumerate().map(move |(j, v)| [(n + 1).to_string(), i.to_string(), j.to_string(), number(*v)])
        })
    });
    let one = maps.len() == 1;
    (!maps.is_empty()).then(|| Figure {
        id: "error_maps",
        slim: None,
        title: if one { "The error, tile by tile" } else { "The worst cases, tile by tile" },
        see: format!(
            "Largest kernel error over its bound in each tile of the result{}. The colour is logarithmic, dark to pale blue up to the \
             bound; red, inside a line, is over it or not a number. Rounding looks like noise, and what is exact is dark (an empty group, \
             say). Other stripes and blocks with a sharp edge point at a scale, a group or a tile.",
            if one { "" } else { ", for failures and for the case of each op that came nearest to its bound" }
        ),
        charts: maps.iter().map(chart).collect(),
        data: csv(["map", "tile_row", "tile_col", "error_over_bound"], data),
    })
}

/// Share of cases that reached each code of each narrow format.
pub(super) fn coverage(rows: &[&Row]) -> Option<Figure> {
    let (mut charts, mut data, mut unreached) = (Vec::new(), Vec::new(), Vec::new());
    for spec in FORMATS.iter().filter(|f| f.bits <= 8) {
        let of: Vec<&&Row> = rows.iter().filter(|r| r.format == Some(spec.format) && r.codes.is_some()).collect();
        // What one case reaches says nothing of a run.
        if of.len() < 2 {
            continue;
        }
        let mut counts = vec![0.0; 1 << spec.bits];
        for row in &of {
            let occur = row.codes.iter().flat_map(|codes| &codes.0);
            counts.iter_mut().zip(occur).for_each(|(count, occurs)| *count += f64::from(u8::from(*occurs)));
        }
        let mark = |code: usize| match spec.format.decode(code as u32) {
            v if v.is_nan() => Some("N"),
            v if v.is_infinite() => Some("∞"),
            _ => None,
        };
        let special = (0..counts.len()).filter(|c| mark(*c).is_some()).count();
        let reached = |special: bool| (0..counts.len()).filter(|c| counts[*c] > 0.0 && mark(*c).is_some() == special).count();
        let finite = counts.len() - special;
        if reached(false) < finite {
            unreached.push(format!("{} of {}", finite - reached(false), spec.name));
        }
        let sum = |count: fn(&Row) -> Option<usize>| grouped(of.iter().filter_map(|r| count(r)).sum::<usize>() as f64);
        let specials =
            if special > 0 { format!(" and {} of {special} NaN and Inf codes", reached(true)) } else { String::new() };
        let subnormals = if spec.integer { String::new() } else { format!(", {} subnormal", sum(|r| r.subnormals)) };
        let title = format!(
            "{}: {} of {finite} finite codes{specials} in {} cases; elements: {} ties{subnormals}, {} at an end of the range",
            spec.name,
            reached(false),
            of.len(),
            sum(|r| r.ties),
            sum(|r| r.saturations)
        );
        let percent = |n: f64| (n > 0.0).then(|| 100.0 * n / of.len() as f64);
        let cells: Vec<Vec<Option<f64>>> = counts.chunks(16).map(|row| row.iter().map(|n| percent(*n)).collect()).collect();
        let svg = heat::map(
            &cells,
            &Map {
                x: ("low four bits of the code", &|j| Some(format!("{j:X}"))),
                y: (if counts.len() > 16 { "high bits" } else { "" }, &|i| (counts.len() > 16).then(|| format!("{i:X}"))),
                unit: "% of cases",
                most: 100.0,
                least: None,
                cell: 18,
                mark: &|i, j| mark(16 * i + j),
            },
        );
        charts.push((title, svg));
        data.extend(counts.iter().enumerate().map(|(c, n)| [spec.name.to_string(), c.to_string(), number(*n)]));
    }
    let missing = if unreached.is_empty() {
        "Every finite code of every format occurs.".to_string()
    } else {
        format!("Finite codes no case reached: {}.", unreached.join(", "))
    };
    (!charts.is_empty()).then(|| Figure {
        id: "code_coverage",
        slim: None,
        title: "Which codes the run reached",
        see: format!(
            "Share of cases in which each code occurs in the case's narrowest quantized tensor (an operand, or the result of a cast). An \
             empty outline is a code that no case has exercised; N is NaN, ∞ infinity. {missing}"
        ),
        charts,
        data: csv(["format", "code", "cases"], data.into_iter()),
    })
}
