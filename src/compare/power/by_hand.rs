//! What one element shows, in spacings of its output; lines, blocks and what takes the power from a case.

use super::*;
use crate::Format;

/// Of f32 from 1 to 2.
const ULP: f64 = 1.0 / (1u64 << 23) as f64;

fn element(d: f64, radius: f64, a: f64, bit_exact: bool) -> Element {
    let bound = Bound::from_radius(vec![d], vec![radius], &OutFormat::high(Format::F32)).unwrap();
    let input =
        PowerInput { cols: 1, bound: &bound, actual: &[a], bit_exact, k: None, groups: 1, scales: &[], zero_points: &[] };
    Element::of(&input, 0)
}

/// 1.5 ± 2 spacings: the value before rounding is within half of one, and what is more than 2½ away is seen.
#[test]
fn an_element_shows_what_leaves_its_interval() {
    let e = element(1.5, 2.0 * ULP, 1.5, false);
    let out = |x: f64, sign: f64| x * (1.0 + sign * ULP);
    assert_eq!((e.low, e.high), (1.5 - 0.5 * ULP, 1.5 + 0.5 * ULP));
    assert_eq!((e.above, e.below), (out(1.5 + 2.5 * ULP, 1.0), out(1.5 - 2.5 * ULP, -1.0)));
    assert_eq!(e.needs(), (e.above - e.low, e.high - e.below));
    assert_eq!(e.gain(), e.above / e.low);
    assert!(e.hides_a_flip && !e.allows_zero);
    // To the bit: any other value is seen.
    let exact = element(1.5, 2.0 * ULP, 1.5, true);
    assert_eq!((exact.low, exact.above), (1.5 - 0.5 * ULP, out(1.5 + 0.5 * ULP, 1.0)));
    assert!(!exact.hides_a_flip);
    // A radius below half a spacing is nearer than the cell.
    let narrow = element(1.5, 0.25 * ULP, 1.5, false);
    assert_eq!((narrow.low, narrow.high, narrow.hides_a_flip), (1.5 - 0.25 * ULP, 1.5 + 0.25 * ULP, false));
    // A wrong result lies outside both.
    let wrong = element(1.5, 0.0, 1.5 + 8.0 * ULP, false);
    assert_eq!((wrong.low, wrong.high), (1.5, 1.5 + 7.5 * ULP));
}

#[test]
fn a_negative_element_grows_downward_and_one_about_zero_shows_no_gain() {
    let e = element(-1.5, 2.0 * ULP, -1.5, false);
    assert_eq!(e.gain(), e.below / e.high);
    assert!(e.gain() > 1.0 && !e.allows_zero);
    let zero = element(0.25, 1.0, 0.25, false);
    assert!(zero.allows_zero && zero.hides_a_flip);
    assert!(zero.gain() > 1.0 && zero.gain().is_finite(), "its value is known to half a spacing");
    assert_eq!(element(0.0, 0.0, 0.0, false).gain(), f64::INFINITY);
    assert!(element(1.0, 1.0, 1.0, false).allows_zero && !element(1.0, 0.999, 1.0, false).allows_zero);
    assert!(element(-1.0, 1.0, -1.0, false).allows_zero && !element(-1.0, 0.999, -1.0, false).allows_zero);
}

#[test]
fn what_is_not_known_hides_all_and_what_has_to_be_nan_nothing() {
    let unknown = element(1.5, f64::INFINITY, 1.5, false);
    assert_eq!((unknown.low, unknown.high, unknown.above, unknown.below), (1.5, 1.5, f64::INFINITY, f64::NEG_INFINITY));
    assert!(unknown.hides_a_flip && unknown.allows_zero);
    for d in [f64::NAN, f64::INFINITY] {
        let e = element(d, 0.0, d, false);
        assert!(!e.hides_a_flip && e.allows_zero && e.above == f64::INFINITY, "{d}");
    }
    let odd = element(1.5, 0.0, f64::NAN, false);
    assert!(odd.allows_zero && !odd.hides_a_flip);
}

#[test]
fn a_line_has_the_smallest_gain_of_what_is_there() {
    let line = |gain: f64, there: bool| Line { gain, there };
    let of = |a: Line, b: Line| a.and(b).found();
    assert_eq!(of(line(1.5, true), line(1.25, true)), Some(1.25));
    assert_eq!(of(Line::EMPTY, line(1.25, true)), Some(1.25));
    assert_eq!(of(line(1.25, true), Line::EMPTY), Some(1.25));
    assert_eq!(of(Line::EMPTY, Line::EMPTY), None);
    // Rows and columns of 2 × 3 with a column of zeros: its gain is nobody's.
    let mut columns = [Line::EMPTY; 3];
    let mut row = Line::EMPTY;
    assert_eq!(smallest(&[1.5, 1.0, 1.25], &[1.0, 0.0, -2.0], &mut row, &mut columns), 1.0);
    assert_eq!((row.found(), columns.map(Line::found)), (Some(1.25), [Some(1.5), None, Some(1.25)]));
}

/// Whole bands of rows of about 16,384 elements, of about 2^20 elements.
#[test]
fn squares_are_added_in_blocks_of_whole_rows() {
    assert_eq!([1, 100, 16_384, 20_000, 1 << 21].map(block), [1 << 20, 64 * 16_300, 1 << 20, 52 * 20_000, 1 << 21]);
}

/// Bands and blocks are joined in order: everything is as if it were one.
#[test]
fn what_is_seen_of_two_parts_is_that_of_both() {
    let bound = |n: usize| {
        let ideal: Vec<f64> = (0..n).map(|i| 1.0 + (i % 89) as f64 / 64.0).collect();
        Bound::from_radius(ideal, (0..n).map(|i| (i % 7) as f64 * ULP).collect(), &OutFormat::high(Format::F32)).unwrap()
    };
    let (cols, rows) = (4096, 300);
    let n = cols * rows;
    let bound = bound(n);
    let actual = bound.rounded_ideal();
    let input = PowerInput {
        cols,
        bound: &bound,
        actual: &actual,
        bit_exact: false,
        k: None,
        groups: 1,
        scales: &[],
        zero_points: &[],
    };
    // 256 rows are a block.
    assert_eq!(block(cols), 256 * cols);
    let seen = Seen::of(&input, n, cols);
    let elements: Vec<Element> = (0..n).map(|i| Element::of(&input, i)).collect();
    assert_eq!((seen.rows.len(), seen.columns.len(), seen.zeros_caught), (rows, cols, true));
    assert_eq!(seen.hidden, elements.iter().filter(|e| e.hides_a_flip).count());
    assert_eq!(seen.gain, elements.iter().map(Element::gain).fold(f64::INFINITY, f64::min));
    let square = |i: usize| {
        let (up, down) = elements[i].needs();
        up.max(down).powi(2)
    };
    let sum = |f: &dyn Fn(usize) -> f64| {
        (0..256 * cols).map(f).fold(0.0, |s, x| s + x) + (256 * cols..n).map(f).fold(0.0, |s, x| s + x)
    };
    assert_eq!(seen.needed, sum(&square));
    assert_eq!(seen.energy, sum(&|i| bound.ideal()[i].powi(2)));
    let row = |r: usize| (0..cols).map(|c| elements[r * cols + c].gain()).fold(f64::INFINITY, f64::min);
    for r in [0, 255, 256, 299] {
        assert_eq!(seen.rows[r].found(), Some(row(r)), "{r}");
    }
}

#[test]
fn facts_are_of_any_element() {
    let of = |ideal: &[f64], certain: &[f64], out: &OutFormat| {
        let f = Facts::of(&Bound::from_radius(ideal.to_vec(), certain.to_vec(), out).unwrap());
        assert_eq!(f.elements, ideal.len());
        [f.finite, f.nonzero, f.bounded, f.unclipped]
    };
    let (high, scaled) = (OutFormat::high(Format::F32), OutFormat::scaled(Format::E4m3, 2.0, 0.5));
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    assert_eq!(of(&[], &[], &high), [false; 4]);
    assert_eq!(of(&[nan, inf], &[0.0, 0.0], &high), [false; 4]);
    assert_eq!(of(&[0.0, nan], &[0.0, 0.0], &high), [true, false, true, false]);
    assert_eq!(of(&[0.0, 1.0], &[inf, inf], &high), [true, true, false, true]);
    assert_eq!(of(&[nan, 1.0], &[0.0, inf], &high), [true, true, false, true]);
    // e4m3 with a scale of 2 ends at ±224.
    assert_eq!([224.0, -224.0, 300.0].map(|x| of(&[x], &[0.0], &scaled)), [[true, true, true, false]; 3]);
    assert_eq!([223.0, -223.0].map(|x| of(&[x], &[0.0], &scaled)), [[true; 4]; 2]);
}

/// A share of the sum that could be lost unseen: of one of so many groups its root, of K as many products.
#[test]
fn what_is_lost_unseen_is_a_share_of_the_sum() {
    let ideal: Vec<f64> = (0..12).map(|i| 1.0 + f64::from(i) / 16.0).collect();
    let bound = Bound::from_radius(ideal.clone(), vec![0.25; 12], &OutFormat::high(Format::F32)).unwrap();
    let of = |groups: usize, k: Option<usize>| {
        let (scales, zero_points) = (&[][..], &[][..]);
        Power::of(&PowerInput { cols: 4, bound: &bound, actual: &ideal, bit_exact: false, k, groups, scales, zero_points })
    };
    let p = of(4, Some(100));
    let seen = Seen::of(
        &PowerInput {
            cols: 4,
            bound: &bound,
            actual: &ideal,
            bit_exact: false,
            k: None,
            groups: 1,
            scales: &[],
            zero_points: &[],
        },
        12,
        4,
    );
    assert_eq!(p.dropped_share, seen.needed / seen.energy);
    assert!(p.dropped_share > 0.0 && p.dropped_share < 1.0, "{}", p.dropped_share);
    assert_eq!((p.group_gain, p.dropped_k), (1.0 + (4.0 * p.dropped_share).sqrt(), Some(100.0 * p.dropped_share)));
    assert_eq!((of(0, None).group_gain, of(0, None).dropped_k), (1.0 + p.dropped_share.sqrt(), None));
    // Every element could hide a flip: no rate of them is sure to be seen.
    assert_eq!(p.code_flip_rate, 1.0);
}

/// Known to lie in the upper half spacing of its interval, the element shows a step of four spacings upward and none downward.
#[test]
fn a_shift_of_a_zero_point_is_caught_where_it_is_both_ways() {
    let bound = Bound::from_radius(vec![1.5], vec![2.0 * ULP], &OutFormat::high(Format::F32)).unwrap();
    let actual = [1.5 + 2.0 * ULP];
    let share = |step: f64| {
        let (values, step, sums) = ([3.0], [step], [1.0]);
        let z = ZeroPoints { name: "b.zero_point", values: &values, step: &step, sums: &sums, groups: 1, columns: true };
        let (scales, zero_points) = (&[][..], &[z][..]);
        zero_shift_share(&PowerInput {
            cols: 1,
            bound: &bound,
            actual: &actual,
            bit_exact: false,
            k: None,
            groups: 1,
            scales,
            zero_points,
        })
    };
    assert_eq!([1.0, 4.0, 8.0].map(|n| share(n * ULP)), [Some(0.0), Some(0.0), Some(1.0)]);
    assert_eq!([-4.0, -8.0].map(|n| share(n * ULP)), [Some(0.0), Some(1.0)]);
}

/// Two rows of two elements with a zero point each: the step of the first shows in its row, that of the second in none.
#[test]
fn a_shift_of_a_rows_zero_point_is_looked_for_in_its_row() {
    let bound = Bound::from_radius(vec![1.5; 4], vec![2.0 * ULP; 4], &OutFormat::high(Format::F32)).unwrap();
    let (values, step, sums) = ([3.0; 2], [8.0 * ULP, ULP], [1.0; 2]);
    let z = ZeroPoints { name: "a.zero_point", values: &values, step: &step, sums: &sums, groups: 1, columns: false };
    let (scales, zero_points) = (&[][..], &[z][..]);
    let (actual, bit_exact) = (&[1.5 + 2.0 * ULP; 4][..], false);
    let input = PowerInput { cols: 2, bound: &bound, actual, bit_exact, k: None, groups: 1, scales, zero_points };
    assert_eq!(zero_shift_share(&input), Some(0.5));
}

/// Zeros hide that they are not subtracted, equal ones that they are others'; a single one has no other.
#[test]
fn zero_points_hide_faults_where_they_are_zero_or_all_alike() {
    let hides = |values: &[f64]| {
        let ones = vec![1.0; values.len()];
        let z = ZeroPoints { name: "b.zero_point", values, step: &ones, sums: &ones, groups: 1, columns: true };
        zero_blindness(&z).is_some()
    };
    assert_eq!([hides(&[]), hides(&[0.0]), hides(&[3.0])], [false, true, false]);
    assert_eq!([hides(&[0.0, 0.0]), hides(&[3.0, 3.0]), hides(&[3.0, 4.0])], [true, true, false]);
}

/// The first row notices a gain of 2, the second of 3, the last none. Where the scales 1 and 2 of two rows are exchanged, the row of 1 gains 2.
#[test]
fn a_swap_of_scales_is_seen_by_the_line_that_gains() {
    let of = |values: &[f32], spans: Spans| {
        let (rows, columns) = ([Some(2.0), Some(3.0), None], [Some(1.0); 3]);
        swap_share(&[Scales { name: "a.scale_inv", values, spans }], &rows, &columns)
    };
    assert_eq!(of(&[1.0, 2.0, 1.0], Spans::Rows), Some(0.5));
    assert_eq!(of(&[1.0, -2.0, 6.0], Spans::Rows), Some(1.0));
    assert_eq!(of(&[1.0, 1.9, 1.9], Spans::Rows), Some(0.0));
    assert_eq!(of(&[1.0, 1.9, 1.9], Spans::Columns), Some(1.0));
    assert_eq!(of(&[1.0, 2.0, 1.0], Spans::Other), None, "no two of them can be exchanged");
    assert_eq!(swap_share(&[], &[], &[]), None);
}

/// No scales hide nothing, and the least contrast is asked of those that are there.
#[test]
fn no_scales_have_any_contrast() {
    let of = |values: &[f32]| contrast(&Scales { name: "a.scale_inv", values, spans: Spans::Other });
    assert_eq!([of(&[]), of(&[0.5]), of(&[4.0, 0.5])], [f64::INFINITY, 2.0, 4.0]);
}
