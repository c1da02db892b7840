//! The figures of a run, each with what to see in it and its data.

use super::plot::{self, Axis, Scale, Series};
use crate::format::FORMATS;
use crate::sweep::maps::ErrorMap;
use crate::sweep::row::{Row, number};
use std::collections::BTreeMap;

/// One figure: one chart, or several beside each other.
pub struct Figure {
    /// File name.
    pub id: &'static str,
    pub title: &'static str,
    /// One or two sentences: what to see.
    pub see: String,
    /// Subtitle and SVG of each chart.
    pub charts: Vec<(String, String)>,
    /// What is drawn, as CSV.
    pub data: String,
}

/// Every figure that these rows can fill.
pub fn all(rows: &[Row], maps: &[ErrorMap]) -> Vec<Figure> {
    let judged: Vec<&Row> = rows.iter().filter(|r| !r.get("sha256").is_empty()).collect();
    [
        recipes(&judged),
        real(&judged),
        groups(&judged),
        offsets(&judged),
        shares(&judged),
        bounds(&judged),
        accumulators(&judged),
        ulps(&judged),
        error_maps(maps),
        coverage(&judged),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Casts by a recipe: (recipe, source, SQNR, whether the source is a real tensor).
fn cast_sqnr<'a>(rows: &[&'a Row]) -> Vec<(&'a str, &'a str, f64, bool)> {
    let casts = rows.iter().filter(|r| r.get("op") == "cast" && r.get("family") == "recipes" && !r.get("recipe_a").is_empty());
    casts
        .filter_map(|r| {
            Some((
                r.get("recipe_a"),
                r.get("dist_a"),
                r.num("quant_sqnr_db").filter(|x| x.is_finite())?,
                r.get("real") == "true",
            ))
        })
        .collect()
}

fn csv<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = writer.write_record(header).and_then(|()| rows.into_iter().try_for_each(|r| writer.write_record(&r)));
    written.expect("writing to memory");
    String::from_utf8(writer.into_inner().expect("writing to memory")).expect("text was written")
}

fn recipes(rows: &[&Row]) -> Option<Figure> {
    let points = cast_sqnr(rows);
    let mut names: Vec<&str> = Vec::new();
    let mut sources: Vec<&str> = Vec::new();
    for (r, d, ..) in &points {
        if !names.contains(r) {
            names.push(r);
        }
        if !sources.contains(d) {
            sources.push(d);
        }
    }
    let at: BTreeMap<(&str, &str), f64> = points.iter().rev().map(|(r, d, x, _)| ((*r, *d), *x)).collect();
    let cells: Vec<Vec<Option<f64>>> =
        names.iter().map(|r| sources.iter().map(|d| at.get(&(*r, *d)).copied()).collect()).collect();
    let text = |v: &[&str]| v.iter().map(ToString::to_string).collect::<Vec<_>>();
    (!points.is_empty()).then(|| Figure {
        id: "sqnr_by_recipe",
        title: "Quantization error of every recipe on every distribution",
        see: "SQNR in dB of the dequantized cast against the unquantized values; higher is better. Read along a row: a recipe \
              whose number falls from left to right does not survive outliers. Empty cells are not finite."
            .into(),
        charts: vec![(String::new(), plot::table(&text(&sources), &text(&names), &cells, "SQNR, dB"))],
        data: csv(
            ["recipe", "source", "sqnr_db"],
            points.iter().map(|(r, d, x, _)| [r.to_string(), d.to_string(), number(*x)]),
        ),
    })
}

fn real(rows: &[&Row]) -> Option<Figure> {
    let points = cast_sqnr(rows);
    let normal: BTreeMap<&str, f64> = points.iter().filter(|p| p.1 == "normal").map(|p| (p.0, p.2)).collect();
    let mut series: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (recipe, source, sqnr, _) in points.iter().filter(|p| p.3) {
        if let Some(x) = normal.get(recipe) {
            series.entry(source).or_default().push((*x, *sqnr));
        }
    }
    let (lo, hi) = normal.values().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    let mut drawn: Vec<Series> = series.iter().map(|(n, p)| Series { name: n.to_string(), points: p.clone() }).collect();
    drawn.push(Series {
        name: "equal to normal data".into(),
        points: (0..=60).map(|i| lo + (hi - lo) * f64::from(i) / 60.0).map(|v| (v, v)).collect(),
    });
    let rows = points
        .iter()
        .filter(|p| p.3)
        .map(|(r, d, x, _)| [r.to_string(), d.to_string(), normal.get(r).map_or(String::new(), |n| number(*n)), number(*x)]);
    (!series.is_empty()).then(|| Figure {
        id: "real_against_synthetic",
        title: "Real tensors against normal data",
        see: "Each point is a recipe: SQNR on normal data across, on a real tensor of MiniLM upwards. Points below the dotted diagonal are \
              recipes that synthetic data flatters."
            .into(),
        charts: vec![(
            String::new(),
            plot::xy(
                &Axis { label: "SQNR on normal data, dB", scale: Scale::Linear },
                &Axis { label: "SQNR on the real tensor, dB", scale: Scale::Linear },
                &drawn,
                false,
            ),
        )],
        data: csv(["recipe", "tensor", "sqnr_normal_db", "sqnr_db"], rows),
    })
}

/// Lines of `y` over `x` for the rows of a family, one a value of `name`.
fn family(rows: &[&Row], family: &str, name: impl Fn(&Row) -> String, x: &str, y: &str) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|r| r.get("family") == family) {
        let (Some(px), Some(py)) = (row.num(x), row.num(y).filter(|v| v.is_finite())) else { continue };
        let name = name(row);
        let i = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
            series.push(Series { name, points: Vec::new() });
            series.len() - 1
        });
        series[i].points.push((px, py));
    }
    for s in &mut series {
        s.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    series
}

/// The data of line charts: series, x, y.
fn lines(x: &str, y: &str, series: &[Series]) -> String {
    csv(["series", x, y], series.iter().flat_map(|s| s.points.iter().map(|(a, b)| [s.name.clone(), number(*a), number(*b)])))
}

/// The recipe's name without its group.
fn base(recipe: &str) -> String {
    recipe.split(':').filter(|p| !(p.starts_with('g') && p[1..].parse::<usize>().is_ok())).collect::<Vec<_>>().join(":")
}

fn groups(rows: &[&Row]) -> Option<Figure> {
    let name = |r: &Row| format!("{}, {}", base(r.get("recipe_a")), r.get("dist_a").rsplit(':').next().unwrap_or_default());
    let series = family(rows, "groups", name, "group", "quant_sqnr_db");
    (!series.is_empty()).then(|| Figure {
        id: "error_by_group",
        title: "Quantization error against group size",
        see: "What a smaller group buys: SQNR against the number of elements along K that share a scale. Where the real \
              weights fall faster than normal data, outliers decide."
            .into(),
        charts: vec![(
            String::new(),
            plot::xy(
                &Axis { label: "group size, elements along K", scale: Scale::Log2 },
                &Axis { label: "SQNR, dB", scale: Scale::Linear },
                &series,
                true,
            ),
        )],
        data: lines("group", "sqnr_db", &series),
    })
}

fn offsets(rows: &[&Row]) -> Option<Figure> {
    let series = family(rows, "offsets", |r| r.get("recipe_a").to_string(), "offset", "quant_sqnr_db");
    (!series.is_empty()).then(|| Figure {
        id: "error_by_zero_point",
        title: "Quantization error against the data's offset, by kind of zero point",
        see: "The data is shifted by a multiple of its root mean square. Symmetric recipes lose what the shift wastes of their range; \
              a zero point gets it back."
            .into(),
        charts: vec![(
            String::new(),
            plot::xy(
                &Axis { label: "offset, multiples of the root mean square", scale: Scale::Linear },
                &Axis { label: "SQNR, dB", scale: Scale::Linear },
                &series,
                true,
            ),
        )],
        data: lines("offset", "sqnr_db", &series),
    })
}

fn shares(rows: &[&Row]) -> Option<Figure> {
    let mut series: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        let positive = |name: &str| row.num(name).filter(|x| x.is_finite() && *x > 0.0);
        if let (Some(q), Some(k)) = (positive("quant_rel_frobenius"), positive("kernel_rel_frobenius")) {
            series.entry(row.get("op")).or_default().push((q, k));
        }
    }
    let series: Vec<Series> = series.into_iter().map(|(n, points)| Series { name: n.into(), points }).collect();
    (!series.is_empty()).then(|| Figure {
        id: "quantization_and_kernel",
        title: "How much is the format's, how much is the kernel's",
        see: "Every case with both errors: the format's share across, the kernel's upwards (relative Frobenius norms). Cases near the \
              bottom are kernels that add nothing to what the format costs; cases with no kernel error at all are not drawn."
            .into(),
        charts: vec![(
            String::new(),
            plot::xy(
                &Axis { label: "quantization error, relative Frobenius", scale: Scale::Log10 },
                &Axis { label: "kernel error, relative Frobenius", scale: Scale::Log10 },
                &series,
                false,
            ),
        )],
        data: lines("quantization", "kernel", &series),
    })
}

/// Bins of the largest error over its bound.
const BINS: [(&str, f64); 6] = [
    ("0, exact", 0.0),
    ("up to 0.1", 0.1),
    ("0.1 to 0.3", 0.3),
    ("0.3 to 0.6", 0.6),
    ("0.6 to 1", 1.0),
    ("over 1: a bug", f64::INFINITY),
];

fn bounds(rows: &[&Row]) -> Option<Figure> {
    let mut counts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let Some(ratio) = row.num("bound_ratio") else { continue };
        let name = if row.get("accumulator").is_empty() {
            row.get("op").to_string()
        } else {
            format!("{}, {}", row.get("op"), row.get("accumulator"))
        };
        let bin = BINS.iter().position(|b| ratio <= b.1).unwrap_or(BINS.len() - 1);
        counts.entry(name).or_insert_with(|| vec![0.0; BINS.len()])[bin] += 1.0;
    }
    let labels: Vec<String> = counts.keys().cloned().collect();
    let values: Vec<Vec<f64>> = counts.values().cloned().collect();
    let names: Vec<&str> = BINS.iter().map(|b| b.0).collect();
    let data =
        counts.iter().flat_map(|(l, v)| v.iter().zip(names.clone()).map(|(n, b)| [l.clone(), b.to_string(), number(*n)]));
    (!labels.is_empty()).then(|| Figure {
        id: "error_over_bound",
        title: "Largest kernel error over its certain bound",
        see: "Cases by how near their worst element came to the bound derived from the arithmetic. Over 1 is proof of a bug; all at 0 \
              would mean a bound that says nothing."
            .into(),
        charts: vec![(String::new(), plot::stacked(&labels, &names, &values, "cases"))],
        data: csv(["kernel", "ratio", "cases"], data),
    })
}

fn accumulators(rows: &[&Row]) -> Option<Figure> {
    let series = family(rows, "accumulators", |r| r.get("accumulator").to_string(), "k", "kernel_rel_frobenius");
    (!series.is_empty()).then(|| Figure {
        id: "error_by_k",
        title: "Kernel error against K, by accumulator",
        see: "The same FP8 operands summed in different ways. The 13-bit accumulator of Hopper's FP8 tensor cores loses precision \
              with K unless partial sums are promoted to f32."
            .into(),
        charts: vec![(
            String::new(),
            plot::xy(
                &Axis { label: "K, elements", scale: Scale::Log2 },
                &Axis { label: "kernel error, relative Frobenius", scale: Scale::Log10 },
                &series,
                true,
            ),
        )],
        data: lines("k", "kernel_rel_frobenius", &series),
    })
}

/// Bins of the `ulp_histogram` column.
pub const ULP_BINS: [&str; 9] = ["0", "(0, ¼]", "(¼, ½]", "(½, 1]", "(1, 2]", "(2, 4]", "(4, 8]", "> 8", "not finite"];

fn ulps(rows: &[&Row]) -> Option<Figure> {
    let mut sums: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let bins: Vec<f64> = row.get("ulp_histogram").split('|').filter_map(|n| n.parse().ok()).collect();
        if bins.len() == ULP_BINS.len() {
            let sum =
                sums.entry(format!("{} > {}", row.get("op"), row.get("out"))).or_insert_with(|| vec![0.0; ULP_BINS.len()]);
            sum.iter_mut().zip(bins).for_each(|(s, b)| *s += b);
        }
    }
    let percent = |v: &Vec<f64>| v.iter().map(|n| 100.0 * n / v.iter().sum::<f64>().max(1.0)).collect::<Vec<_>>();
    let labels: Vec<String> = sums.keys().cloned().collect();
    let values: Vec<Vec<f64>> = sums.values().map(percent).collect();
    let data = sums.iter().flat_map(|(l, v)| v.iter().zip(ULP_BINS).map(|(n, b)| [l.clone(), b.to_string(), number(*n)]));
    (!labels.is_empty()).then(|| Figure {
        id: "ulp_histograms",
        title: "Kernel error in units of the output's last place",
        see: "Share of all elements by how far the kernel is from the f64 result on the same bits. A correctly rounded result is within ½."
            .into(),
        charts: vec![(String::new(), plot::stacked(&labels, &ULP_BINS, &values, "share of elements, %"))],
        data: csv(["op_and_output", "ulps", "elements"], data),
    })
}

fn error_maps(maps: &[ErrorMap]) -> Option<Figure> {
    let chart = |m: &ErrorMap| {
        let x = format!("columns, {} a cell", m.tile_cols);
        let y = format!("rows, {} a cell", m.tile_rows);
        (format!("{} ({})", m.case, m.why), plot::map(&m.cells, &x, &y, "error / bound"))
    };
    let data = maps.iter().flat_map(|m| {
        m.cells.iter().enumerate().flat_map(move |(i, row)| {
            row.iter().enumerate().map(move |(j, v)| [m.case.clone(), i.to_string(), j.to_string(), number(*v)])
        })
    });
    (!maps.is_empty()).then(|| Figure {
        id: "error_maps",
        title: "Where the error lives: the cases nearest to their bound",
        see: "Largest kernel error over its bound in each tile of the result. Stripes or blocks would point at a scale, a group or a tile; \
              a correct kernel looks like noise."
            .into(),
        charts: maps.iter().map(chart).collect(),
        data: csv(["case", "tile_row", "tile_col", "error_over_bound"], data),
    })
}

fn coverage(rows: &[&Row]) -> Option<Figure> {
    let (mut charts, mut data) = (Vec::new(), Vec::new());
    for spec in FORMATS.iter().filter(|f| f.bits <= 8) {
        let of: Vec<&&Row> = rows.iter().filter(|r| r.get("format") == spec.name && !r.get("codes").is_empty()).collect();
        let codes = 1usize << spec.bits;
        let mut counts = vec![0.0; codes];
        for row in &of {
            let bytes = row.get("codes").as_bytes();
            for (code, count) in counts.iter_mut().enumerate() {
                let nibble = (bytes.get(code / 4).copied().unwrap_or(b'0') as char).to_digit(16).unwrap_or(0);
                *count += f64::from(nibble >> (3 - code % 4) & 1);
            }
        }
        if of.is_empty() {
            continue;
        }
        let width = if codes > 64 { 16 } else { 8.min(codes) };
        let sum = |name: &str| of.iter().filter_map(|r| r.num(name)).sum::<f64>();
        let reached = counts.iter().filter(|c| **c > 0.0).count();
        let title = format!(
            "{}: {reached} of {codes} codes in {} cases; {} ties, {} subnormals, {} saturated elements",
            spec.name,
            of.len(),
            sum("ties"),
            sum("subnormals"),
            sum("saturations")
        );
        let cells: Vec<Vec<f64>> = counts.chunks(width).map(<[f64]>::to_vec).collect();
        charts.push((title, plot::map(&cells, &format!("code mod {width}"), &format!("code div {width}"), "cases")));
        data.extend(counts.iter().enumerate().map(|(c, n)| [spec.name.to_string(), c.to_string(), number(*n)]));
    }
    (!charts.is_empty()).then(|| Figure {
        id: "code_coverage",
        title: "Which codes the run reached",
        see: "Cases in which each code of a format occurs among the quantized tensors. A dark hole is a code no case has exercised; \
              NaN codes are reached only by edge cases."
            .into(),
        charts,
        data: csv(["format", "code", "cases"], data.into_iter()),
    })
}
