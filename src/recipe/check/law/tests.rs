//! The law's own arithmetic, each number worked out beside it.

use super::*;

#[test]
fn integers_are_the_nearest_and_ties_go_to_even() {
    let cases =
        [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (2.25, 2.0), (2.75, 3.0), (-0.5, 0.0), (-1.5, -2.0), (-2.5, -2.0), (-2.75, -3.0)];
    cases.iter().for_each(|(x, n)| assert_eq!(integer(*x), *n, "{x}"));
    assert!(integer(f64::NAN).is_nan());
    assert_eq!(integer(4.0), 4.0);
    assert_eq!([-2.0, -1.0, 0.0, 1.0, 2.0].map(|x| clamp(x, -1.0, 1.0)), [-1.0, -1.0, 0.0, 1.0, 1.0]);
    assert!(clamp(f64::NAN, 0.0, 1.0).is_nan() && at_least(f64::NAN, 1.0).is_nan());
    assert_eq!([at_least(0.5, 1.0), at_least(1.0, 1.0), at_least(2.0, 1.0)], [1.0, 1.0, 2.0]);
}

#[test]
fn extremes_of_a_tile_skip_a_nan_or_become_one() {
    let (v, nan) = ([-3.0, 2.0, 0.0], [-3.0, f64::NAN, 5.0]);
    assert_eq!((amax_of_numbers(&v), amax_or_nan(&v), extent(&v)), (3.0, 3.0, (-3.0, 2.0)));
    assert_eq!(amax_of_numbers(&nan), 5.0);
    assert!(amax_or_nan(&nan).is_nan() && extent(&nan).0.is_nan() && extent(&nan).1.is_nan());
    assert_eq!((amax_of_numbers(&[]), amax_of_numbers(&[f64::NEG_INFINITY])), (0.0, f64::INFINITY));
}

#[test]
fn a_scale_is_one_where_there_is_nothing_to_scale() {
    assert_eq!([0.0, f64::INFINITY, f64::NAN].map(|amax| ratio(448.0, amax, 7.0)), [1.0; 3]);
    assert_eq!(ratio(448.0, 224.0, 7.0), 2.0);
    assert_eq!(ratio(448.0, 1e-40, 7.0), 7.0, "448/1e-40 is beyond f32");
    assert_eq!([te_global(0.0), te_global(f64::INFINITY), te_global(2.0)], [1.0, 1.0, 1344.0]);
    assert_eq!(te_global(1e-40), F32.largest());
    let one = reciprocal(4.0);
    assert!(one.scale_inv == 0.25 && one.step.target(3.0) == 12.0);
    let (known, unknown) = (power(Some(3)), power(None));
    assert!(known.scale_inv == 8.0 && known.step.target(4.0) == 0.5 && unknown.scale_inv.is_nan());
}

#[test]
fn the_nearest_e4m3_is_even_where_two_are_as_near() {
    let cases = [(0.0, 0.0), (1.0625, 1.0), (1.1875, 1.25), (1.07, 1.125), (447.0, 448.0), (1e9, 448.0), (2f64.powi(-10), 0.0)];
    cases.iter().for_each(|(x, near)| assert_eq!(nearest_e4m3(*x), *near, "{x}"));
    assert_eq!(nearest_e4m3(1.5 * 2f64.powi(-9)), 2f64.powi(-8));
    assert!(nearest_e4m3(f64::NAN).is_nan());
}

/// One step of each kind, from a value whose code is known.
#[test]
fn steps_take_an_element_to_the_value_that_is_rounded() {
    assert_eq!([Step::Multiply(3.0), Step::MultiplyNative(3.0), Step::Divide(0.25)].map(|s| s.target(2.0)), [6.0, 6.0, 8.0]);
    let third = Step::Divide(3.0).target(1.0);
    assert_eq!(third, f64::from(1.0f32 / 3.0));
    let affine = Step::Affine { r: 2.0, zero: 3.0, low: 0.0, high: 15.0, op: F32 };
    assert_eq!([-9.0, 1.0, 1.25, 1.75, 9.0].map(|x| affine.target(x)), [0.0, 5.0, 5.0, 7.0, 15.0]);
    let tiny = Step::Tinygemm { low: -1.0, scale_inv: 0.5, op: F32 };
    assert_eq!([-2.0, -1.0, 0.0, 0.25, 9.0].map(|x| tiny.target(x)), [0.0, 0.0, 2.0, 2.0, 15.0]);
    let awq = Step::Awq { clip: 2.0, scale_inv: 0.5, zero: 8.0 };
    assert_eq!([-9.0, -1.0, 0.0, 1.0, 9.0].map(|x| awq.target(x)), [4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(
        [Step::Nf4 { by: 4.0, divides: true }.target(2.0), Step::Nf4 { by: 4.0, divides: false }.target(2.0)],
        [0.5, 1.0]
    );
    assert_eq!(Step::Nf4 { by: 4.0, divides: true }.target(-9.0), -1.0);
    let hqq = Step::Hqq { s: 2.0, z: 3.0 };
    assert_eq!([-9.0, 1.25, 9.0].map(|x| hqq.target(x)), [0.0, 5.5, 15.0]);
    // Four roundings to f32 of |x·s| + 2·|z| + 8, of x·s and z of both signs.
    for (x, s, z) in [(5.0, 2.0, 3.0), (-5.0, 2.0, 3.0), (5.0, 2.0, -3.0)] {
        assert_eq!(Step::Hqq { s, z }.slack(x), Some(4.0 * 2f64.powi(-24) * (10.0 + 6.0 + 8.0)));
    }
    assert_eq!(awq.slack(5.0), None);
    assert_eq!(
        [Step::Multiply(1.0), Step::MultiplyNative(1.0), Step::Divide(1.0)].map(|s| s.native_overflow()),
        [false, true, false]
    );
    // Of three values: how many midpoints lie below; at one of them it is not below.
    let nf4 = Step::Nf4 { by: 1.0, divides: true };
    let code = |x: f64| nf4.code_by_midpoints(x, &[-1.0, 0.0, 0.5]);
    assert_eq!([-1.0, -0.5, -0.4, 0.25, 0.3, f64::NAN].map(code), [0, 0, 1, 1, 2, 2].map(Some));
    assert_eq!(hqq.code_by_midpoints(0.0, &[0.0, 1.0]), None);
}

/// Rows 0 and 1 are the first quarter of eight, 6 and 7 the last, which is not seen.
#[test]
fn a_delayed_scale_is_of_the_quarters_that_were_seen() {
    let recipe = "te_delayed".parse::<Recipe>().unwrap();
    let scale = |rows: &[f32]| {
        let x = Tensor::new(Format::F32, rows.len(), 1, rows.to_vec()).unwrap();
        RecipeLaw::of(&recipe, &x).unwrap().delayed_scale(&x)
    };
    assert_eq!(scale(&[1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 99.0, 99.0]), 224.0);
    assert_eq!(scale(&[1.0, 2.0, 1.0, 1.0, 1.0, -4.0, 99.0, 99.0]), 112.0);
    assert_eq!(scale(&[0.0; 8]), 1.0);
    // An infinity leaves the scale of the quarter before.
    assert_eq!(scale(&[2.0, 2.0, 4.0, 4.0, f32::INFINITY, 1.0, 1.0, 1.0]), 112.0);
    assert_eq!(scale(&[2.0, f32::INFINITY, 4.0, 4.0, 8.0, 1.0, 1.0, 1.0]), 1.0);
    // A quarter of three rows is one, and all three are seen; of five it is two, and of the last one nothing is left.
    assert_eq!(scale(&[1.0, 1.0, 4.0]), 112.0);
    assert_eq!(scale(&[1.0, 1.0, 1.0, 1.0, 8.0]), 56.0);
    assert_eq!(scale(&[1.0]), 448.0);
    assert_eq!(scale(&[1e-40, 1e-40]), F32.largest());
}

/// A tile of 2 × 3 in a tensor of 3 × 7: the last ones are short.
#[test]
fn the_elements_of_a_tile_are_its_rows_and_columns() {
    let x = Tensor::new(Format::F32, 3, 7, (0..21).map(|i| i as f32).collect()).unwrap();
    let of = |g: Granularity, tile: usize| elements(&x, g, tile);
    assert_eq!(of(Granularity::Group(3), 1), [3.0, 4.0, 5.0]);
    assert_eq!(of(Granularity::Group(3), 2), [6.0]);
    assert_eq!(of(Granularity::Group(3), 4), [10.0, 11.0, 12.0]);
    assert_eq!(of(Granularity::Row, 2), [14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0]);
    assert_eq!(of(Granularity::Tensor, 0).len(), 21);
}
