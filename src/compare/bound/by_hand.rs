//! The radius of an element, each of its terms by itself, with the number worked out beside it.

use super::*;

const U: f64 = U32;

/// A sum that is off by a thousandth of itself and a hundredth of its magnitude, of which half is drift.
#[derive(Debug)]
struct Sum;
impl SumError for Sum {
    fn at(&self, _: usize, _: usize, sum: f64, magnitude: f64) -> SumRadius {
        let certain = 1e-3 * sum + 1e-2 * magnitude;
        SumRadius { certain, drift: 0.5 * certain, variance: (1e-6 * certain).powi(2) }
    }
}

fn near((found, probable): (f64, f64), certain: f64, likely: f64) {
    let close = |a: f64, b: f64| a == b || (a / b - 1.0).abs() < 1e-13;
    assert!(close(found, certain) && close(probable, likely), "{found:e} {probable:e}: {certain:e} {likely:e}");
}

const LAMBDA: f64 = 10.0;

fn radius(p: &ProductArithmetic, d: f64, magnitude: f64) -> (f64, f64) {
    p.radius((0, 1, 1), d, magnitude, LAMBDA)
}

/// The f64 reference of K = 4: eight half-epsilons of the magnitude, in what is summed and besides.
fn reference(magnitude: f64) -> f64 {
    8.0 * f64::EPSILON / 2.0 * magnitude
}

const TINY: f64 = HALF_MIN_SUBNORMAL;

#[test]
fn a_plain_sum_is_off_by_its_accumulation() {
    let p = ProductArithmetic::plain(&Sum, 4);
    for d in [3.0, -3.0] {
        let (r, sum) = (reference(8.0), |r: f64| 1e-3 * (3.0 + r) + 1e-2 * (8.0 + r));
        near(radius(&p, d, 8.0), sum(r) + r + TINY, 0.5 * sum(r) + LAMBDA * 1e-6 * sum(r) + r + TINY);
    }
    // What is probable is never more than what is certain.
    let (certain, probable) = p.radius((0, 1, 1), 3.0, 8.0, 1e9);
    assert_eq!(certain, probable);
}

#[test]
fn factors_and_scales_come_on_top() {
    // One rounding of each factor's product, underflow, and an error of its own for element 1.
    let p = ProductArithmetic {
        factor_roundings: 3,
        factor_underflow: 1e-4,
        factor_errors: Some(&[7.0, 2e-4]),
        ..ProductArithmetic::plain(&Sum, 4)
    };
    let f = gamma(3.0, U) * 8.0 + 1e-4 + 2e-4;
    let r = reference(8.0);
    let sum = 1e-3 * (3.0 + r + f) + 1e-2 * (8.0 + r + f);
    near(radius(&p, 3.0, 8.0), f + sum + r + TINY, f + 0.5 * sum + LAMBDA * 1e-6 * sum + r + TINY);
    assert_eq!(p.before_sums(8.0), r + gamma(3.0, U) * 8.0 + 1e-4);
    // Two multiplications of the sum; what underflows is multiplied by the other scales.
    let p = ProductArithmetic { scale_roundings: 2, descale: (0.5, 4.0), ..ProductArithmetic::plain(&Sum, 4) };
    let sum = 1e-3 * (3.0 + r) + 1e-2 * (8.0 + r);
    let scaled = |x: f64| x + gamma(2.0, U) * (3.0 + r + x);
    let lost = r + TINY * 3.0 * 4.0;
    near(radius(&p, 3.0, 8.0), scaled(sum) + lost, scaled(0.5 * sum + LAMBDA * 1e-6 * sum) + lost);
    // Scales that are multiplied first: of an unscaled sum of 8/0.5, or the largest there can be.
    let p = ProductArithmetic { after_underflow: 2f64.powi(100), ..p };
    let first = |largest: f64| TINY * 3.0 * largest * 2f64.powi(100);
    near(radius(&p, 3.0, 8.0), scaled(sum) + lost + first(16.0), scaled(0.5 * sum + LAMBDA * 1e-6 * sum) + lost + first(16.0));
    let p = ProductArithmetic { largest_sum: 10.0, ..p };
    near(radius(&p, 3.0, 8.0), scaled(sum) + lost + first(10.0), scaled(0.5 * sum + LAMBDA * 1e-6 * sum) + lost + first(10.0));
}

#[test]
fn groups_are_scaled_and_added_by_themselves() {
    let p = ProductArithmetic { scale_roundings: 2, groups: 5, ..ProductArithmetic::plain(&Sum, 4) };
    let r = reference(8.0);
    let sum = 1e-3 * (3.0 + r) + 1e-2 * (8.0 + r);
    let after = |x: f64| x + gamma(2.0, U) * (8.0 + x) + gamma(5.0, U) * (0.5 * (8.0 + 3.0 + r + x) + x);
    let lost = r + TINY * 5.0 * 3.0;
    near(radius(&p, 3.0, 8.0), after(sum) + lost, after(0.5 * sum + LAMBDA * 1e-6 * sum) + lost);
}

#[test]
fn a_bias_is_rounded_once_and_is_no_part_of_the_sum() {
    let p = ProductArithmetic { bias: Some(&Biases::columns(vec![9.0, -2.0])), ..ProductArithmetic::plain(&Sum, 4) };
    // Of |3 − (−2)| and 8 − 2.
    let r = reference(8.0);
    let sum = 1e-3 * (5.0 + r) + 1e-2 * (6.0 + r);
    let after = |x: f64| x + U * (3.0 + x);
    near(radius(&p, 3.0, 8.0), after(sum) + r + TINY, after(0.5 * sum + LAMBDA * 1e-6 * sum) + r + TINY);
    // Less than its bias is no magnitude.
    let none = 1e-3 * (5.0 + reference(1.0)) + 1e-2 * reference(1.0);
    near(
        radius(&p, 3.0, 1.0),
        after(none) + reference(1.0) + TINY,
        after(0.5 * none + LAMBDA * 1e-6 * none) + reference(1.0) + TINY,
    );
}

#[test]
fn nothing_is_known_beyond_f32_and_of_columns_that_overflow() {
    let unknown = (f64::INFINITY, f64::INFINITY);
    let plain = || ProductArithmetic::plain(&Accumulation::EXACT, 4);
    let max = f64::from(f32::MAX);
    assert_eq!(radius(&plain(), 3.0, max), unknown);
    assert!(radius(&plain(), 3.0, max * (1.0 - 1e-9)).0.is_finite());
    // The unscaled sum is twice as large; a larger scale says nothing; nor what no intermediate can reach.
    let by = |descale: (f64, f64), magnitude: f64| radius(&ProductArithmetic { descale, ..plain() }, 3.0, magnitude);
    assert_eq!(by((0.5, 1.0), 0.5 * max), unknown);
    assert!(by((0.5, 1.0), 0.4 * max).0.is_finite() && by((2.0, 2.0), 0.9 * max).0.is_finite());
    assert!(radius(&ProductArithmetic { largest_intermediate: 1e30, ..plain() }, 3.0, max).0.is_finite());
    // What it may be off is on its way too: a hundredth of it.
    let wide = |magnitude: f64| radius(&ProductArithmetic::plain(&Sum, 4), 3.0, magnitude).0.is_finite();
    assert_eq!([0.98, 0.989, 0.992, 0.999].map(|share| wide(share * max)), [true, true, false, false]);
    let columns = |unknown: &[bool]| radius(&ProductArithmetic { unknown_columns: Some(unknown), ..plain() }, 3.0, 8.0);
    assert_eq!(columns(&[false, true]), unknown);
    assert!(columns(&[true, false]).0.is_finite());
    let wide = Accumulation { relative: f64::INFINITY, of_partial: f64::INFINITY, absolute: 0.0 };
    assert_eq!(radius(&ProductArithmetic::plain(&wide, 4), 3.0, 8.0), unknown);
}

/// The largest and smallest scales, of which zeros and infinities are none.
#[test]
fn scales_say_how_large_and_how_small_a_sum_may_become() {
    let of = |scales: &[&[f32]]| {
        let p = ProductArithmetic::plain(&Sum, 10).scaled_by(Format::E4m3, Format::E5m2, scales);
        assert_eq!(p.largest_sum, 10.0 * 448.0 * 57344.0);
        (p.descale, p.largest_intermediate / p.largest_sum, p.after_underflow)
    };
    assert_eq!(of(&[]), ((1.0, 1.0), 1.0, 0.0));
    assert_eq!(of(&[&[0.5, -4.0, 0.0, f32::INFINITY], &[0.25, 0.125]]), ((0.0625, 1.0), 4.0, 0.0));
    assert_eq!(of(&[&[0.0], &[3.0]]), ((3.0, 3.0), 3.0, 0.0));
    // Two of 2^-70 are below 2^-126: what is left is multiplied by the third, and by no less than 1.
    let (small, half) = (2f32.powi(-70), 0.5f32);
    assert_eq!(of(&[&[small], &[small, 2.0], &[8.0]]).2, 8.0);
    assert_eq!(of(&[&[small], &[small, 2.0], &[half]]).2, 1.0);
    assert_eq!(of(&[&[2f32.powi(-63)], &[2f32.powi(-63)]]).2, 0.0, "2^-126 is a normal number");
    assert_eq!(of(&[&[2f32.powi(-64)], &[2f32.powi(-63)]]).2, 1.0);
    assert_eq!(of(&[&[2f32.powi(-127)], &[4.0]]).2, 0.0, "one scale is multiplied with none");
}

/// The smaller of what is relative to Σ|ab| and to the largest partial sum.
#[test]
fn an_accumulation_is_relative_to_the_smaller_of_two() {
    let of = |relative: f64, of_partial: f64| Accumulation { relative, of_partial, absolute: 0.25 };
    for (a, certain) in [(of(0.5, 1.0), 4.25), (of(1.0, 0.5), 3.0), (of(0.5, f64::INFINITY), 4.25)] {
        let r = a.at(0, 0, -3.0, 8.0);
        assert_eq!((r.certain, r.drift, r.variance), (certain, certain, 0.0));
    }
    assert_eq!(
        of(1.0, 2.0).or(Accumulation { relative: 3.0, of_partial: 1.0, absolute: 0.5 }),
        Accumulation { relative: 3.0, of_partial: 2.0, absolute: 0.5 }
    );
    let r = |certain, drift, variance| SumRadius { certain, drift, variance };
    assert_eq!(r(1.0, 5.0, 3.0).or(r(4.0, 2.0, 6.0)), r(4.0, 5.0, 6.0));
}

/// A result of 70 rows is gone through in bands, of 300 columns in two parts: each element is its own.
#[test]
fn each_element_of_many_rows_has_its_own_radius() {
    #[derive(Debug)]
    struct Place;
    impl SumError for Place {
        fn at(&self, row: usize, column: usize, sum: f64, _: f64) -> SumRadius {
            let certain = (row * 1000 + column) as f64 + sum;
            SumRadius { certain, drift: certain, variance: 0.0 }
        }
    }
    for rows in [63, 64, 130] {
        let n = rows * 300;
        let ideal: Vec<f64> = (0..n).map(|i| 1e-6 * i as f64).collect();
        let p = ProductArithmetic::plain(&Place, 1);
        let bound = Bound::product(&p, 300, &ideal, &vec![0.0; n], &OutFormat::high(Format::F32)).unwrap();
        let of = |at: usize| p.radius((at / 300, at % 300, at), ideal[at], 0.0, 1.0).0;
        assert!((0..n).all(|at| bound.certain()[at] == of(at)), "{rows}");
    }
    let p = ProductArithmetic::plain(&Sum, 1);
    let wrong = |cols: usize, ideal: usize, magnitude: usize| {
        Bound::product(&p, cols, &vec![0.0; ideal], &vec![0.0; magnitude], &OutFormat::high(Format::F32)).is_err()
    };
    assert_eq!(
        [wrong(3, 6, 6), wrong(3, 7, 7), wrong(3, 6, 5), wrong(0, 0, 0), wrong(0, 1, 1)],
        [false, true, true, false, true]
    );
}

/// int8 reaches to −128, e4m3 to 448.
#[test]
fn scales_say_how_large_a_sum_may_be_before_and_after_them() {
    let p = |fa: Format, fb: Format, scales: &[&[f32]]| ProductArithmetic::plain(&Sum, 4).scaled_by(fa, fb, scales);
    let integers = p(Format::Int8, Format::Int8, &[&[2.0, 0.5, 0.0], &[-4.0, f32::NAN]]);
    assert_eq!(integers.largest_sum, 4.0 * 128.0 * 128.0);
    assert_eq!((integers.descale, integers.largest_intermediate), ((2.0, 8.0), 65536.0 * 2.0 * 4.0));
    assert_eq!(integers.after_underflow, 0.0);
    assert_eq!(p(Format::E4m3, Format::Int8, &[]).largest_sum, 4.0 * 448.0 * 128.0);
    // The first two are below the range of f32 together: what is lost is multiplied by 8.
    let tiny = 2f32.powi(-100);
    assert_eq!(p(Format::E4m3, Format::E4m3, &[&[tiny], &[tiny], &[8.0]]).after_underflow, 8.0);
}

/// f16: u = 2⁻¹¹, half its smallest subnormal 2⁻²⁵. Two rows of two.
#[test]
fn a_sum_that_is_rounded_before_its_factor_is_off_by_that_rounding() {
    let (ideal, probable) = ([3.0, -3.0, 5.0, 0.0], [0.25, 0.0, 0.5, 0.0]);
    let out = OutFormat::high(Format::F32);
    let bound = Bound::from_radii(ideal.to_vec(), vec![0.5, 0.5, 0.5, 0.0], probable.to_vec(), &out).unwrap();
    let bound = bound.rounded_before(Format::F16, &[2.0, -4.0]);
    let (u, h) = (2f64.powi(-11), 2f64.powi(-25));
    assert_eq!(bound.certain(), [0.5 + 3.5 * u + 2.0 * h, 0.5 + 3.5 * u + 2.0 * h, 0.5 + 5.5 * u + 4.0 * h, 4.0 * h]);
    assert_eq!(bound.probable(), [0.25 + 3.25 * u + 2.0 * h, 3.0 * u + 2.0 * h, 0.5 + 5.5 * u + 4.0 * h, 4.0 * h]);
}
