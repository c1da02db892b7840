//! Lines, the arithmetics of an accumulator and their radii, with every number worked out beside it.

use super::super::mma::{Dest, Step};
use super::*;

fn line(x: &[f32]) -> Line {
    Line::of(Format::F32, &mut x.to_vec())
}

/// 1, −3 and ½ beside a zero; zeros; ⅛ and the smallest subnormal of e4m3.
#[test]
fn a_line_has_the_exponents_and_the_repeats_of_its_numbers() {
    let rows = [[1.0, -3.0, 0.5, 0.0], [0.0; 4], [0.125, -0.125, 2f32.powi(-9), 0.125]];
    let lines = Lines::of(Format::E4m3, 3, 4, |i, row| row.copy_from_slice(&rows[i]));
    let (facts, repeats) = lines.laid_out();
    let (none, never) = (i32::MIN / 4, i32::MAX / 4);
    assert_eq!(facts.len(), 3 * (4 + BINS));
    assert_eq!(facts[..3], [3, 0, 4]);
    // The exponent of a subnormal is −6 in a tensor core.
    assert_eq!((&facts[3..6], &facts[6..9], &facts[9..12]), (&[1, none, -3][..], &[1, none, -3][..], &[-1, never, -9][..]));
    let at_most = |row: usize| (0..BINS).map(|i| facts[12 + 3 * i + row]).collect::<Vec<_>>();
    assert_eq!(at_most(0)[..4], [3, 2, 1, 0]);
    assert_eq!(at_most(2)[..8], [4, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!((at_most(0)[4..].iter().sum::<i32>(), at_most(1).iter().sum::<i32>()), (0, 0));
    assert_eq!(repeats, [3.0 / 9.0, 0.0, 10.0 / 16.0]);
    let small = Lines::of(Format::E4m3, 1, 1, |_, row| row[0] = 2f32.powi(-9)).laid_out().0;
    assert_eq!((small[1], small[2]), (-6, -9));
    // An integer has no subnormals.
    let integer = Lines::of(Format::Int8, 1, 2, |_, row| row.copy_from_slice(&[1.0, f32::NAN])).laid_out().0;
    assert_eq!(integer[..4], [1, 0, 0, 0]);
}

/// The last of the bins holds all that is smaller.
#[test]
fn exponents_far_below_the_largest_are_counted_together() {
    let l = line(&[1.0, 2f32.powi(-46), 2f32.powi(-47), 2f32.powi(-48), 2f32.powi(-100)]);
    assert_eq!([0, 1, 46, 47].map(|i| l.at_most[i]), [5, 4, 4, 3]);
    assert_eq!([0, 47, 48, 49, 94, 95].map(|i| l.reversed[i]), [3, 3, 3, 4, 4, 5]);
}

#[test]
fn equal_magnitudes_repeat_to_twelve_bits() {
    assert_eq!(repeats(&mut [1.0, -1.0, 2.0, 3.0]), 6.0);
    assert_eq!(repeats(&mut [1.125, 1.0, -1.125]), 5.0);
    // Eleven bits of the mantissa are told apart, those below are not.
    let (below, above) = (1.0 + 2f32.powi(-12), 1.0 + 2f32.powi(-11));
    assert_eq!(repeats(&mut [1.0, below, above, -1.0]), 10.0);
    assert_eq!(repeats(&mut []), 0.0);
    let counted = Line::of_counts(Format::E4m3, &[(0.0, 7), (1.0, 2), (-1.0, 3), (2.0, 1), (f32::NAN, 4)]);
    assert_eq!((counted.count, counted.repeats), (6, 26.0 / 36.0));
    assert_eq!((counted.top, counted.largest, counted.lowest, &counted.at_most[..3]), (1, 1, 0, &[6, 5, 0][..]));
}

/// Exponents 0 and −1 meet 0 and −2: below 4 are both products, below 1 two may be, below ¼ one.
#[test]
fn small_products_are_counted_by_their_exponents() {
    let (a, b) = (line(&[1.0, 0.5]), line(&[0.25, 1.0]));
    let counts = |a: &Line, b: &Line, limits: [i32; 6]| limits.map(|limit| smaller(a, b, limit));
    assert_eq!(counts(&a, &b, [2, 1, 0, -1, -2, -3]), [2, 2, 2, 1, 1, 0]);
    assert_eq!(counts(&b, &a, [2, 1, 0, -1, -2, -3]), [2, 2, 2, 1, 1, 0]);
    // The shorter line has as many products at most.
    assert_eq!(smaller(&line(&[1.0]), &line(&[1.0, 1.0, 1.0]), 5), 1);
    assert_eq!(smaller(&line(&[1.0]), &line(&[1.0, 1.0, 1.0]), 1), 1);
    assert_eq!(smaller(&line(&[1.0]), &line(&[1.0, 1.0, 1.0]), 0), 0);
    // As far down as both lines are counted, and beyond.
    let (far, ones) = (line(&[1.0, 2f32.powi(-60), 2f32.powi(-60)]), line(&[1.0; 3]));
    assert_eq!(counts(&far, &ones, [-40, -46, -92, -93, -94, -200]), [2; 6]);
    assert_eq!(counts(&ones, &line(&[1.0; 3]), [1, 0, -92, -93, -94, -200]), [3, 0, 0, 0, 0, 0]);
    let both = line(&[1.0, 1.0, 2f32.powi(-70)]);
    assert_eq!(counts(&both, &both, [1, 0, -92, -93, -94, -200]), [3, 2, 2, 2, 2, 2]);
}

const HOPPER: Step = Step { w: 32, f: 13, dest: Dest::F32 { fraction: 13 }, floor: -133 };

/// Of a K of 100 in chunks of 64: two steps of 32, two more for the 36 that are left.
#[test]
fn accumulators_are_the_arithmetics_that_they_may_have() {
    let of = |name: &str, k: usize, f: Format, units: bool| ways(&name.parse().unwrap(), k, f, f, units).unwrap();
    let nearest = |inexact, any, units, depth| Way::Nearest { inexact, any, units, depth };
    assert_eq!(of("int32", 100, Format::Int8, true), []);
    assert_eq!(of("exact", 100, Format::F32, true), [Way::Once]);
    assert_eq!(of("exact@64", 100, Format::F32, true), [nearest(true, false, false, Some(2))]);
    assert_eq!(of("exact@128", 100, Format::F32, true), [Way::Once]);
    // 24 digits hold a product of two 12-bit numbers.
    assert_eq!(of("f32_sequential", 100, Format::F16, true), [nearest(false, false, false, None)]);
    assert_eq!(of("f32_sequential", 100, Format::F32, true), [nearest(true, false, false, None)]);
    assert_eq!(of("f32_pairwise", 100, Format::F16, true), [nearest(false, false, false, Some(7))]);
    assert_eq!(of("f32_pairwise", 128, Format::F32, true), [nearest(true, false, false, Some(8))]);
    assert_eq!(of("f32_pairwise@32", 100, Format::F32, true), [nearest(true, false, false, Some(5 + 1 + 3))]);
    assert_eq!(of("f32_any_order", 100, Format::F16, true), [nearest(false, true, true, None)]);
    assert_eq!(of("f32_any_order", 100, Format::F16, false), [nearest(false, true, false, None)]);
    let steps = |steps, adds, any| Way::Steps { step: HOPPER, steps, adds, any, widened: false };
    assert_eq!(of("hopper_wgmma", 100, Format::E4m3, true), [steps(4, 0, false)]);
    assert_eq!(of("hopper_wgmma@64", 100, Format::E4m3, true), [steps(4, 1, false)]);
    assert_eq!(of("hopper_wgmma@40", 100, Format::E4m3, true), [steps(5, 2, false)]);
    assert_eq!(of("any_hopper_wgmma", 100, Format::E4m3, false), [nearest(false, true, false, None), steps(8, 8, true)]);
    let any = of("any_unit", 100, Format::E4m3, true);
    assert_eq!(any[0], nearest(false, true, true, None));
    assert!(any.contains(&steps(8, 8, true)) && any.iter().enumerate().all(|(i, w)| !any[..i].contains(w)));
    assert!(any[1..].iter().all(|w| matches!(w, Way::Steps { any: true, step, .. } if step.dest != Dest::F16)));
    assert_eq!(
        [&any[0], &steps(8, 8, true), &steps(4, 0, false), &Way::Once].map(Way::keeps_order),
        [false, false, true, false]
    );
}

/// Half of an instruction of Hopper's mma.sync is of K = 32: as many steps as halves, and the sums of the halves.
#[test]
fn a_widened_instruction_is_two_steps_and_an_addition() {
    let found = table::MODELS.iter().find_map(|m| match m.unit(Format::E4m3, Format::E4m3) {
        Ok(Unit::Lowered(step)) if step.dest != Dest::F16 => Some((m.name, step)),
        _ => None,
    });
    let (name, step) = found.unwrap();
    let of = |name: String, k: usize| ways(&name.parse().unwrap(), k, Format::E4m3, Format::E4m3, true).unwrap();
    let way = |steps, adds, any| Way::Steps { step, steps, adds, any, widened: true };
    // Four instructions of 100; in chunks of 64 two and two.
    assert_eq!(of(name.into(), 100), [way(8, 8 + 1, false)]);
    assert_eq!(of(format!("{name}@64"), 100), [way(8, 8 + 2, false)]);
    assert_eq!(of(format!("{name}@40"), 100), [way(10, 10 + 3, false)]);
    assert_eq!(of(format!("any_{name}"), 100)[1], way(16, 16 + 1, true));
    assert!(!way(8, 9, false).keeps_order());
}

/// u = 2^-24.
const U: f64 = 1.0 / (1u64 << 24) as f64;

fn near(a: f64, b: f64) -> bool {
    a == b || (a / b - 1.0).abs() < 1e-9
}

fn assert_radius(found: SumRadius, certain: f64, drift: f64, variance: f64) {
    let right = near(found.certain, certain) && near(found.drift, drift) && near(found.variance, variance);
    assert!(right, "{found:?}: {certain:e} {drift:e} {variance:e}");
}

#[test]
fn an_exact_sum_is_rounded_once() {
    let l = line(&[1.5, 2.5]);
    let once = U * 3.0 + 2f64.powi(-150);
    assert_radius(Way::Once.radius(&l, &l, 3.0, 5.0, 4.0), once, once, 0.0);
    assert_eq!(Way::Once.radius(&line(&[]), &l, 0.0, 0.0, 0.0), SumRadius::default());
}

/// Eight products of (1 + 2^-23)², each rounded: fifteen roundings.
#[test]
fn additions_to_nearest_cost_half_a_spacing_each() {
    let l = line(&[1.0 + 2f32.powi(-23); 8]);
    let way = |inexact, units, depth| Way::Nearest { inexact, any: false, units, depth };
    let h = 2f64.powi(3 - 24);
    // The products are alike, all eight.
    assert_radius(way(true, false, None).radius(&l, &l, 9.0, 9.0, 9.0), 15.0 * h, 0.0, 15.0 * 8.0 * 2.0 * h * h);
    assert_radius(way(false, false, None).radius(&l, &l, 9.0, 9.0, 9.0), 7.0 * h, 0.0, 7.0 * 8.0 * h * h);
    // Where the errors reach 16, the spacing there.
    let at = |partial: f64| way(false, false, None).radius(&l, &l, partial, partial, partial).certain;
    assert_eq!([at(16.0 - 7.5 * h), at(16.0 - 7.0 * h), at(8.0), at(8.0 - h)], [7.0 * h, 14.0 * h, 7.0 * h, 7.0 * h]);
    assert_eq!(at(8.0 - 4.0 * h), 3.5 * h);
    // No product passes more than two roundings.
    let grown = |n: f64| (1.0 + U).powf(n) - 1.0;
    let flat = way(true, false, Some(2)).radius(&l, &l, 9.0, 9.0, 9.0).certain;
    assert!((flat / (grown(2.0) * 9.0) - 1.0).abs() < 1e-6, "{flat:e}");
    // In other units the spacing is that of nothing: (1 + u)^15 − 1 of the sum.
    let units = way(true, true, None).radius(&l, &l, 9.0, 9.0, 9.0);
    let (most, u) = (9.0 * (15.0 * U.ln_1p()).exp_m1(), U * 9.0 * (1.0 + (15.0 * U.ln_1p()).exp_m1()));
    assert_radius(units, most, 0.0, 15.0 * 8.0 * 2.0 * u * u);
}

#[test]
fn sums_of_few_bits_are_exact_and_those_beyond_f32_unknown() {
    let way = Way::Nearest { inexact: false, any: false, units: false, depth: None };
    let radius = |x: f32, partial: f64| way.radius(&line(&[x; 4]), &line(&[1.0; 4]), partial, partial, partial);
    // Multiples of 2^-20 are exact below 16, and not from there on.
    let x = 1.0 + 2f32.powi(-20);
    assert_eq!(radius(x, 15.9), SumRadius::default());
    assert_radius(radius(x, 17.0), 3.0 * 2f64.powi(4 - 24), 0.0, 3.0 * 4.0 * 2f64.powi(-40));
    assert!(radius(2f32.powi(127), 2f64.powi(127)).certain.is_finite());
    assert_eq!(radius(2f32.powi(127), 2f64.powi(128)).certain, f64::INFINITY);
    // Four products of 2^-150, of which each is half of f32's last bit.
    let tiny = line(&[2f32.powi(-75); 4]);
    let lost = 4.0 * 2f64.powi(-150);
    let h = 2f64.powi(-150);
    let found = way.radius(&tiny, &tiny, lost, lost, lost);
    assert_radius(found, 3.0 * h + lost, lost, 3.0 * 4.0 * h * h);
    // 2^-149 is a number of f32.
    let last = way.radius(&tiny, &line(&[2f32.powi(-74); 4]), 2.0 * lost, 2.0 * lost, 2.0 * lost);
    assert_eq!(last, SumRadius::default());
}

/// Products below a spacing are lost whole, always toward zero.
#[test]
fn small_products_lean_one_way() {
    let way = |inexact, units| Way::Nearest { inexact, any: false, units, depth: None };
    let (a, b) = (line(&[1.0, 1.0, 2f32.powi(-30), 2f32.powi(-30), 2f32.powi(-30)]), line(&[1.0; 5]));
    let h = 2f64.powi(1 - 24);
    // Below 2^(1 − 23) are three of five.
    assert_radius(way(false, false).radius(&a, &b, 2.0, 2.0, 2.0), 4.0 * h, 3.0 * h, 4.0 * (13.0 / 5.0) * h * h);
    let twice = way(true, false).radius(&a, &b, 2.0, 2.0, 2.0);
    assert_radius(twice, 9.0 * h, 6.0 * h, 9.0 * (13.0 / 5.0) * 2.0 * h * h);
    // No more than there are roundings: of two products one.
    let few = way(false, false).radius(&line(&[2f32.powi(-30); 2]), &line(&[1.0; 2]), 2.0, 2.0, 2.0);
    assert_radius(few, h, h, 2.0 * h * h);
    let units = way(false, true).radius(&a, &b, 2.0, 2.0, 2.0);
    assert!(near(units.drift, 3.0 * U * 2.0 * (1.0 + (4.0 * U.ln_1p()).exp_m1())), "{units:?}");
}

/// 64 products of 1 + 2^-9 + 2^-20, below 128: a term loses up to 2^-7 − 2^-20, the sum up to 2^-7, what was summed up to 2^-13.
#[test]
fn block_steps_lose_of_terms_of_the_sum_and_of_what_was_summed() {
    let l = line(&[1.0 + 2f32.powi(-10); 64]);
    let (d, p) = (60.0, 2f64.powi(-7) - 2f64.powi(-20));
    let way = |step, steps, adds| Way::Steps { step, steps, adds, any: false, widened: false };
    let (c, out, add) = (2f64.powi(-13), 2f64.powi(-7), 2f64.powi(6 - 24));
    let (certain, drift) = (64.0 * p + 2.0 * (c + out) + 3.0 * add, 0.5 * (64.0 * p + 2.0 * (c + out)));
    let variance = 64.0 * (64.0 * (0.5 * p).powi(2) + 2.0 * (0.5 * c + 0.5 * out).powi(2) + 3.0 * add * add);
    assert_radius(way(HOPPER, 2, 3).radius(&l, &l, d, 65.0, 65.0), certain, drift, variance);
    // No more steps and additions than twice the products.
    let (one, many) = (line(&[1.0 + 2f32.powi(-10)]), way(HOPPER, 100, 100));
    let few = many.radius(&one, &one, 1.0, 1.0, 1.0);
    let (p, c, out, add) = (2f64.powi(-13) - 2f64.powi(-20), 2f64.powi(-13), 2f64.powi(-13), 2f64.powi(-24));
    let variance = (0.5 * p).powi(2) + 2.0 * (0.5 * c + 0.5 * out).powi(2) + 2.0 * add * add;
    assert_radius(few, p + 2.0 * (c + out) + 2.0 * add, 0.5 * (p + 2.0 * (c + out)), variance);
    // To nearest in f16: half a unit of ten bits, no leaning of the sum.
    let half = Step { dest: Dest::F16, ..HOPPER };
    let (p, c, out) = (2f64.powi(-7) - 2f64.powi(-20), 2f64.powi(-13), 2f64.powi(6 - 11));
    let variance = 64.0 * (64.0 * (0.5 * p).powi(2) + 2.0 * (0.5 * c + out).powi(2) + 3.0 * out * out);
    let drift = 0.5 * (64.0 * p + 2.0 * c);
    assert_radius(way(half, 2, 3).radius(&l, &l, d, 65.0, 65.0), 64.0 * p + 2.0 * (c + out) + 3.0 * out, drift, variance);
}

#[test]
fn block_steps_are_exact_where_their_bits_hold_the_products() {
    let way = |dest| Way::Steps { step: Step { dest, ..HOPPER }, steps: 2, adds: 0, any: false, widened: false };
    let radius = |dest, x: f32, partial: f64| way(dest).radius(&line(&[x; 4]), &line(&[1.0; 4]), partial, partial, partial);
    let f32s = Dest::F32 { fraction: 13 };
    // Multiples of 2^-10 below 16, of which 13 bits below the largest are kept.
    let x = 1.0 + 2f32.powi(-10);
    assert_eq!(radius(f32s, x, 15.9), SumRadius::default());
    assert!(radius(f32s, x, 16.0).certain > 0.0);
    // f16 keeps ten: below 2.
    assert_eq!(radius(Dest::F16, x, 1.9), SumRadius::default());
    assert!(radius(Dest::F16, x, 2.0).certain > 0.0);
    // Beyond 65,519 an accumulator of f16 may overflow.
    let many = |partial: f64| radius(Dest::F16, 1.0 + 2f32.powi(-23), partial).certain;
    assert!(many(60_000.0).is_finite());
    assert_eq!([many(65_519.0), many(65_536.0)], [f64::INFINITY; 2]);
    assert_eq!(radius(f32s, 1.0 + 2f32.powi(-23), 2f64.powi(128)).certain, f64::INFINITY);
    // A truncated sum is never above S: no more is lost than all there is, and it is not said to be more.
    let one = Way::Steps { step: Step { f: 1, ..HOPPER }, steps: 1, adds: 0, any: false, widened: false };
    let lost = one.radius(&line(&[1.0 + 2f32.powi(-23); 64]), &line(&[2f32.powi(-3); 64]), 1.0, 8.0, 4.5).certain;
    assert!(near(lost, 9.0 * (1.0 + 1e-5) + 2f64.powi(-149)), "{lost}");
}

/// In the units of the result: what the products of a row and a column are multiplied by.
#[test]
fn radii_are_multiplied_by_the_scales_of_their_row_and_column() {
    let rows = [[1.0 + 2f32.powi(-20); 8], [3.0 + 2f32.powi(-20); 8]];
    let lines = Lines::of(Format::F32, 2, 8, |i, row| row.copy_from_slice(&rows[i]));
    let bound =
        |name: &str| SumBound::new(&name.parse().unwrap(), 8, (Format::F32, &lines), (Format::F32, &lines), false).unwrap();
    let plain = |row: usize, column: usize, d: f64, s: f64| bound("f32_sequential").at(row, column, d, s);
    let scaled = SumBound { scale_a: vec![2.0, 0.0], scale_b: vec![1.0, -3.0], ..bound("f32_sequential") };
    let (found, one) = (scaled.at(0, 1, -60.0, 66.0), plain(0, 1, 10.0, 11.0));
    assert_radius(found, 6.0 * one.certain, 6.0 * one.drift, 36.0 * one.variance);
    assert!(one.certain > 0.0);
    // Nothing times zero; nothing is summed; an infinite scale.
    assert_eq!([scaled.at(1, 1, 1.0, 1.0), scaled.at(0, 0, 0.0, 0.0)], [SumRadius::default(); 2]);
    let infinite = SumBound { scale_a: vec![f64::INFINITY; 2], ..bound("f32_sequential") };
    assert_eq!(infinite.at(0, 0, 1.0, 1.0), SumRadius::default());
    // Column 0 of row 0 meets the second row of b.
    let grouped = SumBound { first_b: vec![1, 0], ..bound("f32_sequential") };
    assert_eq!(
        [grouped.at(0, 0, 10.0, 11.0), grouped.at(1, 0, 10.0, 11.0)],
        [plain(0, 1, 10.0, 11.0), plain(1, 0, 10.0, 11.0)]
    );
    // The largest sum of a run takes the place of the partial sum (10 + 30)/2, for what keeps the order of K.
    let run = |name: &str, run: f64| bound(name).in_runs(vec![run; 4], 2).at(1, 1, 10.0, 30.0);
    assert_eq!(run("f32_sequential", 3.0), bound("f32_sequential").at(1, 1, 3.0, 3.0));
    assert_eq!(run("f32_sequential", 50.0), bound("f32_sequential").at(1, 1, 10.0, 30.0));
    assert_eq!(run("f32_any_order", 3.0), bound("f32_any_order").at(1, 1, 10.0, 30.0));
    let each = bound("f32_sequential").in_runs(vec![3.0, 3.0, 40.0, 3.0], 2);
    assert!(each.at(1, 0, 10.0, 30.0).certain > each.at(1, 1, 10.0, 30.0).certain);
    // What is relative to Σ|ab| takes its place where it is smaller.
    let relative = Accumulation { relative: 1e-9, of_partial: f64::INFINITY, absolute: 0.0 };
    let both = bound("f32_sequential").and_relative(relative).at(0, 0, 10.0, 10.0);
    assert_radius(both, 1e-8, one.drift.min(1e-8), one.variance);
    let wide = Accumulation { relative: 1.0, ..relative };
    assert_eq!(bound("f32_sequential").and_relative(wide).at(0, 1, 10.0, 11.0), one);
}

/// 32 products of 1, 16 of 2^-4, 16 of 2^-9: with a sum of 33, only the last are below 2^(5 − 13), the step's last bit.
#[test]
fn products_below_the_last_bit_of_a_step_lean_one_way() {
    let x = 1.0 + 2f32.powi(-10);
    let a: Vec<f32> = (0..64).map(|k| x * [1.0, 1.0, 0.0625, 2f32.powi(-9)][k % 4]).collect();
    let (a, b) = (line(&a), line(&[1.0; 64]));
    let way = Way::Steps { step: HOPPER, steps: 2, adds: 3, any: false, widened: false };
    let (p, c, out, add) = (2f64.powi(-8) - 2f64.powi(-19), 2f64.powi(-13), 2f64.powi(-8), 2f64.powi(5 - 24));
    let drift = 0.5 * ((64.0 + 16.0) * p + 2.0 * (c + out));
    let alike = 64.0 * (32.0 * 32.0 + 2.0 * 16.0 * 16.0) / (64.0 * 64.0);
    let variance = alike * (64.0 * (0.5 * p).powi(2) + 2.0 * (0.5 * c + 0.5 * out).powi(2) + 3.0 * add * add);
    assert_radius(way.radius(&a, &b, 33.0, 33.0, 33.0), 64.0 * p + 2.0 * (c + out) + 3.0 * add, drift, variance);
}
