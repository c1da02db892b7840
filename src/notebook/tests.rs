use super::*;
use crate::prelude::*;

/// Every representation is there and says the same thing.
#[test]
fn rows_show_a_table_that_sorts() {
    let rows = Sweep::new(Op::Cast)
        .recipes(["te_current", "affine_sym:int4"])
        .groups([32, 64])
        .shapes(["16x128"])
        .quiet()
        .run()
        .unwrap();
    assert_eq!(rows.len(), 3);
    let html = rows.html();
    assert!(html.contains("aria-sort") && html.matches("<tr").count() == 4, "{html}");
    assert!(rows.plain().lines().count() == 4 && rows.plain().contains("affine_sym"), "{}", rows.plain());
    assert!(rows.explain().unwrap().contains("would have caught"), "{}", rows.explain().unwrap());
    let chart = rows.plot_sqnr().unwrap();
    assert!(!chart.is_empty() && chart.html().contains("data:image/svg+xml;base64,"));
    let chart = rows.plot("group", "quant_sqnr_db", "recipe_a").unwrap().plain();
    assert!(chart.contains("SQNR of the quantization error, dB against group size, elements along K"), "{chart}");
    assert!(chart.starts_with("SQNR of the quantization error against group size, by recipe of A"), "{chart}");
    assert!(rows.plot("grp", "quant_sqnr_db", "recipe_a").err().unwrap().to_string().contains("group"));
    assert!(rows.filter(|_| false).plot_sqnr().is_err());
}

#[test]
fn types_show_themselves() {
    assert!(Format::E4m3.html().contains("448") && Format::E2m1.plain().contains("−0"));
    let x = generate("normal".parse().unwrap(), Format::Bf16, 8, 64, 1, 0).unwrap();
    let q = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
    assert!(q.html().contains("data:image/svg+xml;base64,") && q.plain().starts_with("e4m3 8×64"), "{}", q.plain());
    assert!(x.plain().contains("bf16 tensor 8×64"));
    let rows = Sweep::new(Op::Gemm).shapes(["4x8x64"]).accumulators(["hopper_wgmma"]).quiet().run().unwrap();
    let case = rows.detail(0).unwrap();
    assert!(case.plain().contains("pass") && case.html().contains("device model"), "{}", case.plain());
}

#[test]
fn claims_end_in_a_verdict() {
    assert_eq!(Claims::new().verdict(), "fail");
    let claims = Claims::new().that("a", true).that("<b>", false);
    assert_eq!(claims.verdict(), "fail");
    assert!(claims.json().contains(r#""holds":false"#) && claims.html().contains("&lt;b&gt;"));
    assert_eq!(Claims::new().that("a", true).verdict(), "pass");
}

/// Names from files and people do not become markup.
#[test]
fn what_users_name_is_escaped() {
    let table = Table::new("<t>", ["<c>"], [vec!["<script>"]]);
    assert!(!table.html().contains("<script>") && table.html().contains("&lt;script&gt;"));
}

/// What a cell may end in: scenarios with their timeline, a diagnosis, words, results.
#[test]
fn stories_show_themselves() {
    let story = Scenario::load("01_update_before_backward").unwrap();
    assert!(story.html().contains("data:image/svg+xml;base64,") && story.plain().contains("update x"), "{}", story.plain());
    let replays = story.replay(&[Policy::Packaged, Policy::Shared]).unwrap();
    let lines: Vec<String> = replays.table().plain().lines().map(String::from).collect();
    assert!(lines[2].starts_with("packaged  ·") && lines[3].contains("wgrad.b"), "{lines:?}");
    assert!(replays.under(Policy::Cloned).is_err());
    let sweep = Sweep::new(Op::Gemm).recipes(["te_current"]).shapes(["8x16x64"]).accumulators(["f32_sequential"]).quiet();
    let wrong = sweep.inject("scale_omitted:b").unwrap().run().unwrap();
    assert!(wrong.all(&[Verdict::Fail]), "{}", wrong.plain());
    let diagnosis = wrong.detail(0).and_then(|c| c.diagnosis());
    assert!(diagnosis.plain().contains("scale_omitted:b"), "{}", diagnosis.plain());
    assert!(wrong.explain().html().contains("fail"));
    assert!(wrong.plot("grp", "k", "op").plain().starts_with("Error: "));
    assert!(Sweep::new(Op::Gemm).inject("scale_omited:b").is_err());
    let recipe: Recipe = "te_mxfp8".parse().unwrap();
    let accumulator: Accumulator = "hopper_wgmma@128".parse().unwrap();
    assert!(recipe.plain().contains("format") && accumulator.plain().contains("every 128"));
}
