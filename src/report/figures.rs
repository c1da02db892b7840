//! The figures of a run, each with what to see in it and its data.

use super::cells;
use super::plot::{self, Axis, Room, Scale, Series};
use super::summary::plural;
use super::{backends, grids, grouped, short, slim};
use crate::Format;
use crate::assay::map::ErrorMap;
use crate::assay::row::{Row, number};
use crate::format::FORMATS;
use crate::op::Op;
use crate::order::Order as _;
use crate::quant::ZeroKind;
use std::collections::BTreeMap;

/// One figure: one chart, or several beside each other.
pub struct Figure {
    /// File name.
    pub id: &'static str,
    pub title: &'static str,
    /// A few sentences: what to see. True for the rows that are drawn.
    pub see: String,
    /// Subtitle and SVG of each chart.
    pub charts: Vec<(String, String)>,
    /// The one chart as a phone shows it, where that is another.
    pub slim: Option<String>,
    /// What is drawn, as CSV.
    pub data: String,
}

/// Every figure that these rows can fill; `others` are rows of other backends' runs, compared with these.
pub fn all(rows: &[Row], others: &[Row], maps: &[ErrorMap]) -> Vec<Figure> {
    let judged = |r: &&Row| !r.sha256.is_empty();
    let everyone: Vec<&Row> = rows.iter().chain(others).filter(judged).collect();
    let judged: Vec<&Row> = rows.iter().filter(judged).collect();
    [
        recipes(&judged),
        real(&judged),
        groups(&judged),
        offsets(&judged),
        shares(&judged),
        bounds(&judged),
        accumulators(&judged),
        ulps(&judged),
        backends::figure(&everyone),
        grids::error_maps(maps),
        grids::coverage(&judged),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The family of cases that a figure studies, where it is about recipes or codes and not about kernels.
pub(super) fn study(id: &str) -> Option<&'static str> {
    const STUDIES: [(&str, &str); 6] = [
        ("sqnr_by_recipe", "recipes"),
        ("real_against_synthetic", "recipes"),
        ("error_by_group", "groups"),
        ("error_by_zero_point", "offsets"),
        ("error_by_k", "accumulators"),
        ("code_coverage", "recipes"),
    ];
    STUDIES.iter().find(|s| s.0 == id).map(|s| s.1)
}

/// Whether there is more than one point to see.
fn several(series: &[Series]) -> bool {
    series.iter().map(|s| s.points.len()).sum::<usize>() > 1
}

/// A recipe with its format, which the name leaves out where it is the recipe's default.
fn recipe(row: &Row) -> String {
    let name = &row.recipe_a;
    let (head, tail) = name.split_at(name.find(':').unwrap_or(name.len()));
    match row.format {
        Some(format) if name.split([':', '_']).all(|p| p != format.name()) => format!("{head}:{format}{tail}"),
        _ => name.clone(),
    }
}

/// A recipe with its format and without its group.
fn base(row: &Row) -> String {
    let name = recipe(row);
    let kept = name.split(':').filter(|p| p.strip_prefix('g').is_none_or(|n| n.parse::<usize>().is_err()));
    kept.collect::<Vec<_>>().join(":")
}

/// What a recipe costs on a source of data.
struct Point<'a> {
    recipe: String,
    format: Option<Format>,
    source: &'a str,
    sqnr: f64,
    real: bool,
    case: &'a str,
}

/// Casts by a recipe.
fn casts<'a>(rows: &[&'a Row]) -> Vec<Point<'a>> {
    let casts = rows.iter().filter(|r| r.op == Op::Cast && r.family == "recipes" && !r.recipe_a.is_empty());
    let point = |r: &&'a Row| {
        let sqnr = r.errors.quantization(|e| e.sqnr_db).filter(|x| x.is_finite())?;
        Some(Point { recipe: recipe(r), format: r.format, source: &r.dist_a, sqnr, real: r.real == Some(true), case: &r.case })
    };
    casts.filter_map(point).collect()
}

pub(super) fn csv<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = writer.write_record(header).and_then(|()| rows.into_iter().try_for_each(|r| writer.write_record(&r)));
    written.expect("writing to memory");
    String::from_utf8(writer.into_inner().expect("writing to memory")).expect("text was written")
}

/// The name of a format, where there is one.
fn name(format: Option<Format>) -> &'static str {
    format.map_or("", Format::name)
}

/// Change of SQNR at which a cell's colour is full, in dB.
const FULL_DB: f64 = 6.0;

fn recipes(rows: &[&Row]) -> Option<Figure> {
    let mut points = casts(rows);
    // Wide formats first; within a width formats and recipes in the order of the sweep.
    points.order_by_key(|p| {
        (std::cmp::Reverse(p.format.map_or(0, Format::bits)), FORMATS.iter().position(|f| Some(f.format) == p.format))
    });
    let mut names: Vec<(String, Option<Format>)> = Vec::new();
    let mut sources: Vec<(bool, &str)> = Vec::new();
    for p in &points {
        if !names.iter().any(|n| n.0 == p.recipe) {
            names.push((p.recipe.clone(), p.format));
        }
        if !sources.contains(&(p.real, p.source)) {
            sources.push((p.real, p.source));
        }
    }
    sources.order_by_key(|s| s.0);
    let at: BTreeMap<(&str, &str), f64> = points.iter().map(|p| ((p.recipe.as_str(), p.source), p.sqnr)).collect();
    let case: BTreeMap<(&str, &str), &str> = points.iter().map(|p| ((p.recipe.as_str(), p.source), p.case)).collect();
    let row = |name: &str| -> Vec<Option<(f64, f64)>> {
        let normal = at.get(&(name, "normal"));
        let cell = |source: &str| at.get(&(name, source)).map(|v| (*v, normal.map_or(0.0, |n| v - n)));
        sources.iter().map(|s| cell(s.1)).collect()
    };
    let cells: Vec<_> = names.iter().map(|n| row(&n.0)).collect();
    let of = |name: &str| sources.iter().map(|s| case.get(&(name, s.1)).map(|c| c.to_string())).collect();
    let cases: Vec<Vec<Option<String>>> = names.iter().map(|n| of(&n.0)).collect();
    let columns: Vec<String> = sources.iter().map(|s| s.1.to_string()).collect();
    let labels: Vec<String> = names.iter().map(|n| n.0.clone()).collect();
    let mut worst: Vec<(Option<Format>, f64)> = Vec::new();
    for ((_, format), row) in names.iter().zip(&cells) {
        let loss = row.iter().flatten().map(|c| -c.1).fold(0.0, f64::max);
        match worst.iter_mut().find(|w| w.0 == *format) {
            Some(w) => w.1 = w.1.max(loss),
            None => worst.push((*format, loss)),
        }
    }
    let losses: Vec<String> = worst.iter().map(|(format, loss)| format!("{} {loss:.1} dB", name(*format))).collect();
    let heads: Vec<bool> = (0..names.len()).map(|i| i == 0 || names[i].1 != names[i - 1].1).collect();
    let table = cells::Table {
        columns: &columns,
        rows: &labels,
        heads: &heads,
        cells: &cells,
        scale: cells::Colours {
            from: -FULL_DB,
            to: FULL_DB,
            ends: [&format!("−{FULL_DB}"), &format!("+{FULL_DB} dB against the same recipe on normal data")],
        },
        cases: &cases,
    };
    (points.len() > 1).then(|| Figure {
        id: "sqnr_by_recipe",
        slim: Some(slim::table(&table)),
        title: "Quantization error of every recipe on every distribution",
        see: format!(
            "SQNR in dB of the dequantized cast against the unquantized values; higher is better, 6 dB is half the error. The colour \
             is the change against the same recipe on normal data: orange is a recipe that this data breaks. Largest loss by \
             format: {}.",
            losses.join(", ")
        ),
        charts: vec![(String::new(), table.draw())],
        data: csv(
            ["recipe", "format", "source", "real", "sqnr_db"],
            points.iter().map(|p| {
                [p.recipe.clone(), name(p.format).into(), p.source.into(), p.real.to_string(), number(p.sqnr)]
            }),
        ),
    })
}

fn real(rows: &[&Row]) -> Option<Figure> {
    let points = casts(rows);
    let normal: BTreeMap<&str, f64> =
        points.iter().filter(|p| p.source == "normal").map(|p| (p.recipe.as_str(), p.sqnr)).collect();
    let mut series: BTreeMap<&str, Series> = BTreeMap::new();
    let mut worst: Option<(f64, &Point)> = None;
    for p in points.iter().filter(|p| p.real) {
        let Some(x) = normal.get(p.recipe.as_str()) else { continue };
        let of = series.entry(p.source).or_insert_with(|| Series::new(p.source, Vec::new()));
        of.points.push((*x, p.sqnr));
        of.cases.push(p.case.to_string());
        if worst.is_none_or(|w| p.sqnr - x < w.0) {
            worst = Some((p.sqnr - x, p));
        }
    }
    let (loss, point) = worst?;
    let drawn: Vec<Series> = series.into_values().collect();
    let all = || drawn.iter().flat_map(|s| &s.points);
    let row = |p: &Point| {
        let n = normal.get(p.recipe.as_str()).map_or(String::new(), |n| number(*n));
        [p.recipe.clone(), p.source.to_string(), n, number(p.sqnr)]
    };
    let count = all().count();
    let below = all().filter(|(x, y)| y < &(x - 1.0)).count();
    let draw = |room| {
        plot::xy(
            &Axis { label: "SQNR on normal data, dB", scale: Scale::Linear },
            &Axis { label: "SQNR on the real tensor, dB", scale: Scale::Linear },
            &drawn,
            false,
            Some("equal on both"),
            room,
        )
    };
    several(&drawn).then(|| Figure {
        id: "real_against_synthetic",
        slim: Some(draw(Room::Phone)),
        title: "Real tensors against normal data",
        see: format!(
            "Each point is a recipe on a tensor: SQNR on normal data across, on the real tensor upwards. Points below the \
             dashed line are recipes that look better on normal data: {below} of {count} lie more than 1 dB below, the farthest is {} on \
             {} ({} dB).",
            point.recipe,
            point.source,
            short(loss)
        ),
        charts: vec![(String::new(), draw(Room::Wide))],
        data: csv(["recipe", "tensor", "sqnr_normal_db", "sqnr_db"], points.iter().filter(|p| p.real).map(row)),
    })
}

/// Lines of `y` over `x` for the rows of a family, one a value of `name`.
fn family(
    rows: &[&Row],
    family: &str,
    name: impl Fn(&Row) -> String,
    x: impl Fn(&Row) -> Option<f64>,
    y: impl Fn(&Row) -> Option<f64>,
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|r| r.family == family) {
        let (Some(px), Some(py)) = (x(row), y(row).filter(|v| v.is_finite())) else { continue };
        let name = name(row);
        let i = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
            series.push(Series::new(name, Vec::new()));
            series.len() - 1
        });
        series[i].points.push((px, py));
        series[i].cases.push(row.case.clone());
    }
    for s in &mut series {
        let mut all: Vec<_> = std::mem::take(&mut s.points).into_iter().zip(std::mem::take(&mut s.cases)).collect();
        all.order_by(|a, b| a.0.0.total_cmp(&b.0.0));
        (s.points, s.cases) = all.into_iter().unzip();
    }
    series
}

/// The data of line charts: series, x, y.
fn lines(x: &str, y: &str, series: &[Series]) -> String {
    csv(["series", x, y], series.iter().flat_map(|s| s.points.iter().map(|(a, b)| [s.name.clone(), number(*a), number(*b)])))
}

/// First and last point of each line.
fn ends(series: &[Series]) -> impl Iterator<Item = (&str, (f64, f64), (f64, f64))> {
    series.iter().filter_map(|s| Some((s.name.as_str(), *s.points.first()?, *s.points.last()?)))
}

fn groups(rows: &[&Row]) -> Option<Figure> {
    let name = |r: &Row| format!("{}, {}", base(r), r.dist_a.rsplit(':').next().unwrap_or_default());
    // 0 stands for the whole row.
    let series = family(rows, "groups", name, |r| r.group.map(|g| g as f64), |r| r.errors.quantization(|e| e.sqnr_db));
    let gains: Vec<f64> = ends(&series).map(|(_, first, last)| first.1 - last.1).collect();
    let (least, most) = gains.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), g| (l.min(*g), h.max(*g)));
    let (from, to) = ends(&series).map(|e| (e.1.0, e.2.0)).next()?;
    let draw = |room| {
        plot::xy(
            &Axis { label: "group size, elements along K", scale: Scale::Log2 },
            &Axis { label: "SQNR, dB", scale: Scale::Linear },
            &series,
            true,
            None,
            room,
        )
    };
    several(&series).then(|| Figure {
        id: "error_by_group",
        slim: Some(draw(Room::Phone)),
        title: "Quantization error against group size",
        see: format!(
            "What a smaller group gains: SQNR against the number of elements along K that share a scale. Going from {to} to \
             {from} elements gains {least:.1} to {most:.1} dB. Real weights stand beside normal data: where their line falls faster, \
             outliers decide."
        ),
        charts: vec![(String::new(), draw(Room::Wide))],
        data: lines("group", "sqnr_db", &series),
    })
}

fn offsets(rows: &[&Row]) -> Option<Figure> {
    let rms: BTreeMap<&str, f64> = rows
        .iter()
        .filter(|r| r.family == "offsets" && r.offset == Some(0.0))
        .filter_map(|r| Some((r.recipe_a.as_str(), r.errors.quantization(|e| e.rmse / e.rel_frobenius)?)))
        .collect();
    let error = |r: &Row| Some(100.0 * r.errors.quantization(|e| e.rmse)? / rms.get(r.recipe_a.as_str())?);
    let series = family(rows, "offsets", recipe, |r| r.offset, error);
    let none = |name: &str| {
        let row = rows.iter().find(|r| r.family == "offsets" && recipe(r) == name);
        row.is_some_and(|r| r.zero == Some(ZeroKind::None))
    };
    let growth = |without: bool| -> String {
        let kind = ends(&series).filter(|(n, ..)| none(n) == without);
        kind.map(|(n, first, last)| format!("{n} ×{:.1}", last.1 / first.1)).collect::<Vec<_>>().join(", ")
    };
    let draw = |room| {
        plot::xy(
            &Axis { label: "offset, multiples of the data's root mean square", scale: Scale::Linear },
            &Axis { label: "RMS error, % of the data's root mean square", scale: Scale::Log2 },
            &series,
            true,
            None,
            room,
        )
    };
    several(&series).then(|| Figure {
        id: "error_by_zero_point",
        slim: Some(draw(Room::Phone)),
        title: "Quantization error against the data's offset, by kind of zero point",
        see: format!(
            "The data is shifted by a multiple of its root mean square; the error is in per cent of the root mean square before \
             the shift. From the first offset to the last, recipes without a zero point grow because the shift uses up their range: \
             {}; with a zero point, integer or additive (tinygemm): {}.",
            growth(true),
            growth(false)
        ),
        charts: vec![(String::new(), draw(Room::Wide))],
        data: lines("offset", "rms_error_percent", &series),
    })
}

/// The format a row's kernel wrote.
fn written(row: &Row) -> &str {
    let out = &row.out;
    match out.strip_prefix("scaled:") {
        Some(format) => format.split(':').next().unwrap_or(format),
        None if row.recipe_a == *out => "codes of a recipe",
        None => out,
    }
}

fn shares(rows: &[&Row]) -> Option<Figure> {
    let mut points: Vec<(&Row, f64, f64)> = Vec::new();
    let mut exact = 0;
    for row in rows.iter().filter(|r| !r.is_edge()) {
        let kernel = row.errors.kernel(|e| e.rel_frobenius);
        exact += usize::from(kernel == Some(0.0));
        let positive = |x: Option<f64>| x.filter(|x| x.is_finite() && *x > 0.0);
        if let (Some(q), Some(k)) = (positive(row.errors.quantization(|e| e.rel_frobenius)), positive(kernel)) {
            points.push((row, q, k));
        }
    }
    let mut series: BTreeMap<String, Series> = BTreeMap::new();
    for (row, q, k) in &points {
        let name = format!("writes {}", written(row));
        let of = series.entry(name.clone()).or_insert_with(|| Series::new(name, Vec::new()));
        of.points.push((*q, *k));
        of.cases.push(row.case.clone());
    }
    let above = points.iter().filter(|p| p.2 > p.1).count();
    let series: Vec<Series> = series.into_values().collect();
    let draw = |room| {
        plot::xy(
            &Axis { label: "quantization error, relative Frobenius", scale: Scale::Log10 },
            &Axis { label: "kernel error, relative Frobenius", scale: Scale::Log10 },
            &series,
            false,
            Some("equal shares"),
            room,
        )
    };
    several(&series).then(|| Figure {
        id: "quantization_and_kernel",
        slim: Some(draw(Room::Phone)),
        title: "How much is the format's, how much is the kernel's",
        see: format!(
            "Each point is a case with both errors, as relative Frobenius norms: what quantizing the inputs costs across, what the \
             kernel adds upwards. Above the dashed line the kernel costs more than the format: {above} of {} cases. What the kernel \
             adds depends on the format it writes and on its accumulator. {} not drawn.",
            points.len(),
            match exact {
                0 => "Edge cases are".to_string(),
                _ => format!("{} with no kernel error at all and edge cases are", plural(exact, "case")),
            }
        ),
        charts: vec![(String::new(), draw(Room::Wide))],
        data: csv(
            ["case", "writes", "quantization", "kernel"],
            points.iter().map(|(r, q, k)| [r.case.clone(), written(r).into(), number(*q), number(*k)]),
        ),
    })
}

/// Bins of the largest error over its bound.
const BINS: [(&str, f64); 7] = [
    ("0: exact", 0.0),
    ("to 0.1", 0.1),
    ("to 0.3", 0.3),
    ("to 0.6", 0.6),
    ("to 0.9", 0.9),
    ("to 1", 1.0),
    ("over 1: a bug", f64::INFINITY),
];

/// What the bars are.
const BOUND_SHARES: &str = "share of cases, by largest error / bound";
const ULP_SHARES: &str = "share of elements, by error in ulp";

/// Op, and how a product was accumulated.
fn kernel(row: &Row) -> String {
    row.op.name().to_string() + &row.accumulator.map_or_else(String::new, |a| format!(", {a}"))
}

fn bounds(rows: &[&Row]) -> Option<Figure> {
    let mut counts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let Some(ratio) = row.bound_ratio else { continue };
        let bin = BINS.iter().position(|b| ratio <= b.1).unwrap_or(BINS.len() - 1);
        counts.entry(kernel(row)).or_insert_with(|| vec![0.0; BINS.len()])[bin] += 1.0;
    }
    let labels: Vec<String> = counts.iter().map(|(n, v)| format!("{n} ({})", v.iter().sum::<f64>())).collect();
    let values: Vec<Vec<f64>> = counts.values().cloned().collect();
    let names: Vec<&str> = BINS.iter().map(|b| b.0).collect();
    let over: f64 = values.iter().map(|v| v[BINS.len() - 1]).sum();
    let data =
        counts.iter().flat_map(|(l, v)| v.iter().zip(names.clone()).map(|(n, b)| [l.clone(), b.to_string(), number(*n)]));
    // One case is no distribution.
    (counts.values().flatten().sum::<f64>() > 1.0).then(|| Figure {
        id: "error_over_bound",
        slim: Some(slim::shares(&labels, &names, &values, BOUND_SHARES)),
        title: "Largest kernel error over its certain bound",
        see: format!(
            "Cases by how near their worst element came to the bound derived from the arithmetic. Over 1 proves a bug: {over} cases. \
             Near 1 the bound is tight, as where one rounding to the output is all there is; far below 1 it has room that a small \
             bug could hide in. The number after each name counts its cases."
        ),
        charts: vec![(String::new(), plot::shares(&labels, &names, &values, BOUND_SHARES))],
        data: csv(["kernel", "ratio", "cases"], data),
    })
}

fn accumulators(rows: &[&Row]) -> Option<Figure> {
    let name = |r: &Row| r.accumulator.map_or_else(String::new, |a| a.to_string());
    let series = family(rows, "accumulators", name, |r| Some(r.k as f64), |r| r.errors.kernel(|e| e.rel_frobenius));
    let of_family = |r: &&&Row| r.family == "accumulators";
    let format = rows.iter().filter(of_family).find_map(|r| r.errors.quantization(|e| e.rel_frobenius))?;
    let growth: Vec<String> = ends(&series).map(|(n, first, last)| format!("{n} ×{:.1}", last.1 / first.1)).collect();
    let (from, to) = ends(&series).map(|e| (e.1.0, e.2.0)).next()?;
    let mut outs: Vec<&str> = rows.iter().filter(of_family).map(|r| written(r)).collect();
    outs.sort_unstable();
    outs.dedup();
    let promoted = match series.iter().any(|s| s.name.contains('@')) {
        true => " The number behind @ says how many elements are summed before the partial sum is promoted to f32.",
        false => "",
    };
    let draw = |room| {
        plot::xy(
            &Axis { label: "K, elements", scale: Scale::Log2 },
            &Axis { label: "kernel error, relative Frobenius", scale: Scale::Log10 },
            &series,
            true,
            None,
            room,
        )
    };
    several(&series).then(|| Figure {
        id: "error_by_k",
        slim: Some(draw(Room::Phone)),
        title: "Kernel error against K, by accumulator",
        see: format!(
            "The same FP8 operands summed in different ways, written as {}. Growth from K = {from} to {to}: {}.{} For scale: \
             quantizing these operands costs {}.",
            outs.join(" or "),
            growth.join(", "),
            promoted,
            short(format)
        ),
        charts: vec![(String::new(), draw(Room::Wide))],
        data: lines("k", "kernel_rel_frobenius", &series),
    })
}

/// Bins of the `ulp_histogram` column.
pub const ULP_BINS: [&str; 9] = ["0", "to ¼", "to ½", "to 1", "to 2", "to 4", "to 8", "more", "not finite"];

fn ulps(rows: &[&Row]) -> Option<Figure> {
    let mut sums: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut cases = 0;
    for row in rows.iter().filter(|r| !r.is_edge()) {
        if let Some(bins) = row.ulp_histogram {
            let sum = sums.entry(format!("{} → {}", kernel(row), written(row))).or_insert_with(|| vec![0.0; ULP_BINS.len()]);
            cases += 1;
            sum.iter_mut().zip(bins).for_each(|(s, b)| *s += b as f64);
        }
    }
    sums.retain(|_, v| v.iter().sum::<f64>() > 0.0);
    let labels: Vec<String> = sums.keys().cloned().collect();
    let values: Vec<Vec<f64>> = sums.values().cloned().collect();
    let all: f64 = values.iter().flatten().sum();
    let within: f64 = values.iter().flat_map(|v| &v[..3]).sum();
    let data = sums.iter().flat_map(|(l, v)| v.iter().zip(ULP_BINS).map(|(n, b)| [l.clone(), b.to_string(), number(*n)]));
    (!labels.is_empty() && cases > 1).then(|| Figure {
        id: "ulp_histograms",
        slim: Some(slim::shares(&labels, &ULP_BINS, &values, ULP_SHARES)),
        title: "Kernel error in units of the output's last place",
        see: format!(
            "Share of all elements by how far the kernel is from the unrounded f64 result on the same bits, for each kernel and the format \
             it writes. One correct rounding is within ½: {:.2} % of {} elements are. Elements beyond ½ saturated, were rounded more than once or \
             summed inexactly. Edge cases are left out.",
            100.0 * within / all.max(1.0),
            grouped(all)
        ),
        charts: vec![(String::new(), plot::shares(&labels, &ULP_BINS, &values, ULP_SHARES))],
        data: csv(["kernel_and_output", "ulps", "elements"], data),
    })
}
