//! The report from rows made by hand.

use super::{cells, figures, grouped, plot, short, summary};
use crate::Format;
use crate::assay::coverage::Codes;
use crate::assay::map::ErrorMap;
use crate::assay::row::Row;
use crate::assay::table::Errors;
use crate::compare::{ErrorStats, Verdict};
use crate::kernel::Backend;
use crate::op::Op;
use crate::quant::ZeroKind;
use crate::run::maps;
use crate::run::totals::Totals;

/// A cast on the CPU that was judged.
fn row() -> Row {
    Row { verdict: Verdict::Pass, sha256: "x".into(), ..Row::new(Op::Cast, Backend::Cpu) }
}

fn error(rel_frobenius: f64) -> ErrorStats {
    ErrorStats { rel_frobenius, ..Default::default() }
}

/// One row of every kind that a figure draws, with long names.
fn drawn() -> Vec<Row> {
    let long = "a_collection_of_tensors:layer11.attention_output_projection_weight";
    let mut rows = Vec::new();
    for (dist, real, sqnr_db) in [("normal", false, 31.5), (long, true, 25.1)] {
        let quantization = Some(ErrorStats { sqnr_db, ..Default::default() });
        let one = Row {
            dist_a: dist.into(),
            real: Some(real),
            format: Some(Format::Int8),
            errors: Errors { quantization, ..Default::default() },
            ..row()
        };
        for recipe in ["te_current", "a_recipe_with_a_name_that_is_rather_long:g128"] {
            let codes = Some(Codes([[true; 4], [false; 4]].concat().repeat(32)));
            rows.push(Row { family: "recipes".into(), recipe_a: recipe.into(), codes, ..one.clone() });
        }
        for group in [32, 1536] {
            rows.push(Row { family: "groups".into(), recipe_a: "affine_sym".into(), group: Some(group), ..one.clone() });
        }
    }
    for (offset, rmse) in [(0.0, 0.1), (4.0, 0.4)] {
        rows.push(Row {
            family: "offsets".into(),
            recipe_a: "affine_asym".into(),
            format: Some(Format::Int4),
            zero: Some(ZeroKind::Integer),
            offset: Some(offset),
            errors: Errors { quantization: Some(ErrorStats { rmse, ..error(0.05) }), ..Default::default() },
            ..row()
        });
    }
    for (k, of_kernel) in [(128, 1e-7), (8192, 3e-3)] {
        rows.push(Row {
            family: "accumulators".into(),
            out: "scaled:e4m3".into(),
            k,
            accumulator: Some("blackwell_tcgen05@128".parse().unwrap()),
            errors: Errors { quantization: Some(error(0.03)), kernel: Some(error(of_kernel)), total: None },
            bound_ratio: Some(f64::NAN),
            ulp_histogram: Some([1, 2, 3, 4, 5, 6, 7, 8, 9]),
            sha256: "x".into(),
            ..Row::new(Op::GroupedGemmWgrad, Backend::Cpu)
        });
    }
    rows
}

/// The same case by three backends; the vendor's with K split.
fn others() -> Vec<Row> {
    let of = |backend, sha256: &str, algorithm: &str| Row {
        case: "c".into(),
        recipe_a: "te_current".into(),
        recipe_b: "te_current".into(),
        accumulator: Some("hopper_wgmma".parse().unwrap()),
        sha256: sha256.into(),
        algorithm: algorithm.into(),
        ..Row::new(Op::Gemm, backend)
    };
    vec![of(Backend::Cpu, "a", ""), of(Backend::Cuda, "a", ""), of(Backend::Vendor, "b", "id=66 split_k=4")]
}

#[test]
fn backends_are_compared_case_by_case() {
    let rows = others();
    let figure = super::backends::figure(&rows.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(
        figure.data.lines().collect::<Vec<_>>(),
        [
            "pair,work,same_bits,other_bits_split,other_bits",
            "cpu = cuda,\"gemm te_current, hopper_wgmma\",1,0,0",
            "cpu = vendor,\"gemm te_current, hopper_wgmma\",0,1,0",
            "cuda = vendor,\"gemm te_current, hopper_wgmma\",0,1,0",
        ]
    );
    assert!(figure.see.contains("cpu = cuda in 1 of 1 cases"), "{}", figure.see);
    assert!(super::backends::figure(&rows[..1].iter().collect::<Vec<_>>()).is_none());
}

fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let value = tag.split(&format!(" {name}=\"")).nth(1).unwrap_or_else(|| panic!("no {name} in {tag}"));
    value.split('"').next().unwrap()
}

/// Every word of every chart lies inside its picture, letters taken as half as wide as high, however long the names.
#[test]
fn no_label_is_clipped() {
    let map = ErrorMap {
        case: "c".into(),
        why: "w".into(),
        tile_rows: 1000,
        tile_cols: 1,
        cells: vec![vec![0.0, 0.5, f64::NAN], vec![1.0, 2.0, 0.1]],
    };
    let figures = figures::all(&drawn(), &others(), &[map]);
    assert_eq!(figures.len(), 11, "{:?}", figures.iter().map(|f| f.id).collect::<Vec<_>>());
    for figure in figures {
        assert!(figure.data.lines().count() > 1, "{} has no data", figure.id);
        for (_, svg) in &figure.charts {
            let size: Vec<f64> = attribute(svg, "viewBox").split(' ').map(|n| n.parse().unwrap()).collect();
            for text in svg.split("<text ").skip(1) {
                let tag = format!(" {}", text.split('>').next().unwrap());
                let words = text.split('>').nth(1).unwrap().split('<').next().unwrap().trim();
                let number = |name: &str| attribute(&tag, name).parse::<f64>().unwrap();
                let long = words.chars().count() as f64 * number("font-size") * 0.5;
                let before = match attribute(&tag, "text-anchor") {
                    "start" => 0.0,
                    "middle" => 0.5,
                    _ => 1.0,
                };
                // Rotated text runs upwards.
                let (along, end) =
                    if tag.contains("rotate") { (size[3] - number("y"), size[3]) } else { (number("x"), size[2]) };
                let (from, to) = (along - before * long, along + (1.0 - before) * long);
                assert!(from >= 0.0 && to <= end, "{}: `{words}` from {from} to {to} of {end}", figure.id);
            }
            let file = plot::standalone(svg, "a < b", "what it is");
            assert!(file.contains("xmlns="), "a file of its own needs a namespace");
            assert!(file.contains("><title>a &lt; b</title><desc>what it is</desc>"), "{}", &file[..300]);
        }
    }
}

/// One point, one bar, the codes of one case say nothing.
#[test]
fn a_figure_that_shows_nothing_is_not_drawn() {
    let rows = drawn();
    for row in &rows {
        let figures = figures::all(std::slice::from_ref(row), &[], &[]);
        assert!(figures.is_empty(), "{:?}", figures.iter().map(|f| f.id).collect::<Vec<_>>());
    }
    assert!(figures::all(&rows, &[], &[]).len() > 5);
}

/// Points and cells that are cases say which; names of users stay inside their quotes.
#[test]
fn points_and_cells_lead_to_their_cases() {
    let mut rows = drawn();
    rows.iter_mut().enumerate().for_each(|(i, r)| r.case = format!("case {i} \"<b>"));
    let figures = figures::all(&rows, &[], &[]);
    for id in ["sqnr_by_recipe", "real_against_synthetic", "error_by_k"] {
        let svg = &figures.iter().find(|f| f.id == id).unwrap().charts[0].1;
        assert!(svg.contains("data-case=\"case ") && svg.contains(" &quot;&lt;b&gt;\"") && !svg.contains("<b>"), "{id}");
    }
}

/// The numbers of a map, and where its first cell is.
#[test]
fn a_map_has_its_numbers_and_a_line_around_what_is_over() {
    let map = |cells: Vec<Vec<f64>>| ErrorMap { case: "c".into(), why: "w".into(), tile_rows: 4, tile_cols: 2, cells };
    let svg = |m: ErrorMap| super::grids::error_maps(&[m]).unwrap().charts[0].1.clone();
    let over = svg(map(vec![vec![0.5, 2.0], vec![f64::NAN, 0.00012345]]));
    let place = attribute(&over, "data-cells").split('|').next().unwrap().to_string();
    assert!(place.split(' ').nth(1) == Some("8") && place.ends_with(" 24 4 2"), "{place}");
    assert!(attribute(&over, "data-cells").ends_with("|0.5 2;NaN 1.23e-4"), "{}", attribute(&over, "data-cells"));
    let lines = |svg: &str| svg.matches("stroke-width=\"2\"").count();
    assert_eq!((lines(&over), lines(&svg(map(vec![vec![0.5, 1.0], vec![0.1, 0.2]])))), (4, 0));
    assert!(over.contains(">\nover\n<") || over.contains("over"), "the legend names red");
}

#[test]
fn what_needs_attention_comes_worst_first_and_alike_together() {
    let case = |verdict, reason: &str, edge| Row {
        verdict,
        reason: reason.into(),
        edge: Some(edge),
        family: "f".into(),
        case: reason.into(),
        ..Row::new(Op::Gemm, Backend::Cpu)
    };
    let rows = [
        case(Verdict::NoPower, "gain 1.5", false),
        case(Verdict::Pass, "", false),
        case(Verdict::NoPower, "gain 2.5e-3", true),
        case(Verdict::Skipped, "no kernel", false),
        case(Verdict::Fail, "(0, 1): found 2", false),
        case(Verdict::Error, "panicked", false),
        case(Verdict::NoPower, "gain 7", false),
        case(Verdict::Fail, "(3, 4): found -5", false),
        case(Verdict::Fail, "amax differs", false),
    ];
    let found: Vec<(&str, usize)> = summary::attention(&rows).iter().map(|a| (a.row.case.as_str(), a.count)).collect();
    assert_eq!(found, [("panicked", 1), ("(0, 1): found 2", 2), ("amax differs", 1), ("gain 1.5", 2)]);
}

#[test]
fn one_bug_is_one_card_whatever_the_table() {
    let case = |op, table: &str, fault: &str| Row {
        verdict: Verdict::Fail,
        fault: fault.into(),
        family: table.into(),
        ..Row::new(op, Backend::Cpu)
    };
    let rows = [
        case(Op::Gemm, "one", "scale_shared:b"),
        case(Op::Gemm, "two", "unknown"),
        case(Op::Cast, "two", "scale_shared:b"),
        case(Op::Gemm, "two", "scale_shared:b"),
        case(Op::Gemm, "three", "unknown"),
        case(Op::Gemm, "three", "unknown"),
    ];
    let like: Vec<String> = summary::attention(&rows).iter().map(summary::Attention::like).collect();
    assert_eq!(like, ["3 cases like this, in 2 tables", "", "2 cases like this, in table three"]);
}

#[test]
fn two_names_that_may_be_one_bug_are_one_card() {
    let case = |fault: &str, finding: &str| Row {
        verdict: Verdict::Fail,
        fault: fault.into(),
        finding: finding.into(),
        ..Row::new(Op::Gemm, Backend::Cpu)
    };
    let rows = [
        case("k_tail:k.dropped", "the last 16 of K are left out (explains 100 %)"),
        case("k_tail:last_16", "the last 16 are left out; k_tail:k.dropped would give the same result here"),
        case("scale_shared:b.index", "another (explains 100 %)"),
        case("scale_shared:b.first", "one; scale_shared:b.other, scale_shared:b.index would give the same result here"),
    ];
    let found: Vec<(&str, usize)> = summary::attention(&rows).iter().map(|a| (a.row.fault.as_str(), a.count)).collect();
    assert_eq!(found, [("k_tail:k.dropped", 2), ("scale_shared:b.index", 2)]);
}

#[test]
fn agreement_counts_elements_and_never_lets_a_nan_pass() {
    let mut totals = Totals::default();
    let modelled = |mismatches, elements, bound_ratio| {
        let kernel = Some(ErrorStats { count: elements, ..Default::default() });
        let errors = Errors { kernel, ..Default::default() };
        Row { mismatches: Some(mismatches), held: Some(elements), bound_ratio: Some(bound_ratio), errors, ..row() }
    };
    totals.add(&modelled(0, 1500, 0.5));
    assert!(summary::agreement(&totals).starts_with("all 1\u{202f}500 elements of 1 modelled cases"));
    assert!(summary::agreement(&totals).contains("largest error/bound 0.5"));
    totals.add(&modelled(3, 10, f64::NAN));
    assert!(summary::agreement(&totals).starts_with("3 of 1\u{202f}510 elements in 1 of 2 modelled cases differ"));
    assert!(summary::agreement(&totals).contains("1 case is over its certain bound"));
}

#[test]
fn numbers_as_people_read_them() {
    let cases = [(0.0, "0"), (1.0, "1"), (0.012345, "0.01235"), (1234.6, "1235"), (1e-7, "1.00e-7"), (f64::NAN, "NaN")];
    assert!(cases.iter().all(|(x, text)| short(*x) == *text), "{:?}", cases.map(|c| short(c.0)));
    assert_eq!([0.0, 999.0, 1000.0, 12345678.0].map(grouped), ["0", "999", "1\u{202f}000", "12\u{202f}345\u{202f}678"]);
}

#[test]
fn maps_keep_the_worst_of_a_tile_and_are_read_as_written() {
    let mut cells = vec![vec![0.25; 30]; 25];
    (cells[0][0], cells[1][0]) = (0.75, f64::NAN);
    let map = ErrorMap { case: "c".into(), why: "w".into(), tile_rows: 4, tile_cols: 2, cells };
    let dir = tempfile::tempdir().unwrap();
    maps::write(dir.path(), std::slice::from_ref(&map)).unwrap();
    let again = maps::read(dir.path()).unwrap();
    assert_eq!(format!("{again:?}"), format!("{:?}", [map]));
}

/// Letters of a light page, of a dark page, and those of an image that knows no page, on the densest cells: contrast as WCAG has it.
#[test]
fn numbers_in_coloured_cells_are_legible() {
    let luminance = |c: [f64; 3]| {
        let linear = |v: f64| if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) };
        0.2126 * linear(c[0] / 255.0) + 0.7152 * linear(c[1] / 255.0) + 0.0722 * linear(c[2] / 255.0)
    };
    let contrast = |a: [f64; 3], b: [f64; 3]| {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    };
    let (dark, light) = ([0x1d, 0x21, 0x26].map(f64::from), [0xe4, 0xe8, 0xec].map(f64::from));
    for change in [-1.0, -0.7, -0.3, 0.3, 0.7, 1.0] {
        let c = cells::diverging(change, 1.0);
        let on = |page: [f64; 3]| {
            let color = [c.0, c.1, c.2].map(f64::from);
            [0, 1, 2].map(|i| color[i] * c.3 + page[i] * (1.0 - c.3))
        };
        let found = [contrast(dark, on([255.0; 3])), contrast(light, on([0x15, 0x18, 0x1c].map(f64::from)))];
        assert!(found.iter().all(|c| *c >= 4.5), "{change}: {found:?}");
    }
}
