//! The recipe registry: names, parsing, shapes, refusals.

use qassay::recipe::{RECIPES, Recipe};
use qassay::{Format, Granularity, Tensor};

fn ramp(dtype: Format, rows: usize, cols: usize) -> Tensor {
    let data = (0..rows * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.037).collect();
    Tensor::rounded(dtype, rows, cols, data).unwrap()
}

#[test]
fn names_are_unique_and_texts_survive_parsing() {
    for (i, spec) in RECIPES.iter().enumerate() {
        assert!(RECIPES[..i].iter().all(|other| other.name != spec.name), "{} twice", spec.name);
        assert!(!spec.help.is_empty() && !spec.source.is_empty() && !spec.formats.is_empty(), "{}", spec.name);
        for format in spec.formats {
            for group in [spec.default_group, Some(32), None] {
                let recipe = Recipe { name: spec.name, format: *format, group };
                let text = recipe.to_string();
                match text.parse::<Recipe>() {
                    Ok(parsed) => assert_eq!(parsed, recipe, "{text}"),
                    Err(e) => assert!(!spec.free_group() && group != spec.default_group, "{text}: {e}"),
                }
            }
        }
    }
}

#[test]
fn defaults_and_spelling() {
    let parse = |s: &str| s.parse::<Recipe>().unwrap();
    assert_eq!(parse("te_current:e5m2"), Recipe { name: "te_current", format: Format::E5m2, group: None });
    assert_eq!(parse("affine_sym:int4:g128"), Recipe { name: "affine_sym", format: Format::Int4, group: Some(128) });
    assert_eq!(parse("mx_floor:e2m1").to_string(), "mx_floor:e2m1");
    assert_eq!(parse("mx_floor:e4m3").to_string(), "mx_floor");
    assert_eq!(parse("tinygemm").group, Some(128));
    assert_eq!(parse("tinygemm:gK").group, None);
    assert_eq!(parse("tinygemm:gK").to_string(), "tinygemm:gK");
}

#[test]
fn what_a_recipe_does_not_have_is_refused_with_what_it_has() {
    for (text, says) in [
        ("te_curent", "te_current"),
        ("te_current:int8", "allowed: e4m3, e5m2"),
        ("te_current:g32", "group size is fixed"),
        ("affine_sym:g0", "N > 0"),
        ("affine_sym:g01", "N > 0"),
        ("affine_sym:g", "N > 0"),
        ("affine_sym:g32:g64", "at most one"),
        ("affine_sym:g32:int4", "name[:format][:gN]"),
        ("affine_sym:int4:int8", "name[:format][:gN]"),
        ("affine_sym:", "unknown format"),
        ("", "unknown recipe"),
    ] {
        let error = text.parse::<Recipe>().unwrap_err().to_string();
        assert!(error.contains(says), "`{text}`: {error}");
    }
}

#[test]
fn every_recipe_takes_every_shape_it_should_and_refuses_nothingness() {
    for spec in RECIPES {
        for &format in spec.formats {
            for group in if spec.free_group() { vec![None, Some(1), Some(32), Some(7), Some(5000)] } else { vec![None] } {
                let recipe = Recipe { name: spec.name, format, group };
                for (rows, cols) in [(1, 1), (1, 7), (3, 300), (130, 33), (5, 128)] {
                    let x = ramp(Format::Bf16, rows, cols);
                    let out = recipe.quantize(&x).unwrap();
                    let (gr, gc) = out.q.granularity().grid(rows, cols);
                    assert_eq!((out.q.rows(), out.q.cols(), out.q.format()), (rows, cols, format), "{recipe}");
                    assert_eq!(out.amax.len(), gr * gc, "{recipe}");
                    assert!(out.scale.is_none_or(|s| s.len() == gr * gc), "{recipe}");
                }
                for (rows, cols) in [(0, 0), (0, 5), (5, 0)] {
                    let empty = Tensor::new(Format::F32, rows, cols, vec![]).unwrap();
                    assert!(recipe.quantize(&empty).is_err(), "{recipe} of {rows}×{cols}");
                }
            }
        }
        let bad = Recipe { name: spec.name, format: Format::F32, group: None };
        assert!(bad.quantize(&ramp(Format::F32, 2, 2)).is_err(), "{bad}");
    }
    let zero_group = Recipe { name: "affine_sym", format: Format::Int4, group: Some(0) };
    assert!(zero_group.quantize(&ramp(Format::F32, 2, 2)).is_err());
    assert!(Recipe { name: "nothing", format: Format::Int4, group: None }.quantize(&ramp(Format::F32, 2, 2)).is_err());
}

#[test]
fn a_column_wise_copy_is_the_recipe_of_the_transposed_tensor() {
    let x = ramp(Format::F32, 64, 96);
    let recipe: Recipe = "te_mxfp8".parse().unwrap();
    let columns = recipe.quantize(&x.transposed()).unwrap().q.transposed().unwrap();
    assert_eq!(columns.granularity(), Granularity::Block { rows: 32, cols: 1 });
    let amax = (0..32).map(|i| x.row(i)[5].abs()).fold(0.0, f32::max);
    let scale = columns.scale_inv()[5];
    assert!(scale * 448.0 >= amax && scale * 224.0 < amax * 1.000001, "{scale} {amax}");
    // Square tiles are shared: the transpose of the codes is the codes of the transpose.
    for name in ["te_block_128x128", "te_mxfp8_32x32", "te_nvfp4_16x16", "te_current"] {
        let recipe: Recipe = name.parse().unwrap();
        let x = ramp(Format::Bf16, 150, 70);
        let a = recipe.quantize(&x).unwrap().q.transposed().unwrap();
        let b = recipe.quantize(&x.transposed()).unwrap().q;
        assert_eq!((a.codes(), a.scale_inv()), (b.codes(), b.scale_inv()), "{name}");
    }
}

/// `qassay list recipes` prints the source: it says which version, or which commit, a recipe follows.
#[test]
fn every_recipe_names_the_version_it_follows() {
    for spec in RECIPES {
        let word = |w: &str| {
            let w = w.trim_matches(|c| "(),".contains(c));
            let version = w.strip_prefix('v').is_some_and(|n| n.split('.').all(|d| d.parse::<u32>().is_ok()));
            version || (w.len() >= 7 && w.bytes().all(|b| b.is_ascii_hexdigit()) && w.bytes().any(|b| b.is_ascii_digit()))
        };
        assert!(spec.source.split(' ').any(word), "{}: {}", spec.name, spec.source);
    }
    let of = |name: &str| RECIPES.iter().find(|r| r.name == name).unwrap().source;
    assert!(of("mx_floor").contains("36027d82d") && of("mx_floor_v018").contains("v0.12 to v0.18"));
}
