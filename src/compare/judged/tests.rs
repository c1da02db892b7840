//! A result longer than a band is judged element by element as a short one is.

use super::super::OutFormat;
use super::*;
use crate::Format;

/// In f32: spacing 2^-23 from 1 to 2.
fn bound(ideal: &[f64], certain: &[f64], probable: &[f64]) -> Bound {
    Bound::from_radii(ideal.to_vec(), certain.to_vec(), probable.to_vec(), &OutFormat::high(Format::F32)).unwrap()
}

const ULP: f64 = 1.0 / (1u64 << 23) as f64;

/// 40,000 elements in three bands, row after row of 400: ideals 1.5, errors of 0, 1, 2 … 6 spacings.
fn long() -> (Bound, Vec<f64>) {
    let n = 40_000;
    let actual = (0..n).map(|i| 1.5 + (i % 7) as f64 * ULP).collect();
    let certain: Vec<f64> = (0..n).map(|i| 3.25 * ULP + (i / 20_000) as f64 * ULP).collect();
    let probable: Vec<f64> = certain.iter().map(|c| c - 2.0 * ULP).collect();
    (bound(&vec![1.5; n], &certain, &probable), actual)
}

#[test]
fn ratios_are_errors_over_the_radius_and_half_a_spacing() {
    let (bound, actual) = long();
    let ratios = bound.ratios(&actual).unwrap();
    // A radius of 3¼ spacings, from 20,000 on of 4¼: half of one added, and what is inside is no more than 1.
    let expected = |i: usize| {
        let (errors, radius) = ((i % 7) as f64, if i < 20_000 { 3.75 } else { 4.75 });
        errors / radius
    };
    for (i, found) in ratios.iter().enumerate() {
        assert_eq!(*found, expected(i), "{i}");
    }
    // Tiles of 30 × 170 of 100 rows of 400.
    let largest = bound.largest_ratios(&actual, 400, (30, 170)).unwrap();
    assert_eq!((largest.len(), largest[0].len()), (4, 3));
    for (band, tiles) in largest.iter().enumerate() {
        for (tile, found) in tiles.iter().enumerate() {
            let rows = 30 * band..(30 * band + 30).min(100);
            let elements = rows.flat_map(|r| (170 * tile..(170 * tile + 170).min(400)).map(move |c| 400 * r + c));
            assert_eq!(*found, elements.map(|i| ratios[i]).fold(0.0, f64::max), "{band} {tile}");
        }
    }
    assert!(bound.ratios(&actual[1..]).is_err() && bound.largest_ratios(&actual[1..], 400, (30, 170)).is_err());
}

#[test]
fn elements_outside_are_counted_over_all_bands_and_the_first_is_told() {
    let (bound, mut actual) = long();
    let judged = bound.judge(&actual).unwrap();
    let count = |outside: &dyn Fn(usize) -> bool| (0..40_000).filter(|i| outside(*i)).count();
    let radius = |i: usize| if i < 20_000 { 3 } else { 4 };
    // A radius of 3¼ spacings leaves 3 of them; two fewer are probable.
    assert_eq!(judged.violations, count(&|i| i % 7 > radius(i)));
    assert_eq!(judged.improbable, count(&|i| i % 7 > radius(i) - 2));
    assert_eq!((judged.first_violation, judged.first_improbable, judged.unjudged), (Some(4), Some(2), 0));
    assert_eq!(judged.worst, Some(6));
    assert_eq!((judged.ratio_certain, judged.ratio_probable), (6.0 / 3.75, 6.0 / 1.75));
    // The worst of a later band.
    actual[39_990] = 1.5 + 19.0 * ULP;
    let judged = bound.judge(&actual).unwrap();
    assert_eq!((judged.worst, judged.first_violation), (Some(39_990), Some(4)));
    assert_eq!(judged.ratio_certain, 4.0);
    // Of two that are as bad the first.
    actual[0] = 1.5 + 15.0 * ULP;
    assert_eq!(bound.judge(&actual).unwrap().worst, Some(0));
}

#[test]
fn errors_are_counted_in_spacings_up_to_each_edge() {
    // 0, ¼, ½, 1, 2, 4, 8 spacings, each at its edge; one beyond each; what is not finite.
    let errors = [0.0, 0.25, 0.26, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 1e6];
    let actual = |i: usize| if i % 15 == 14 { f64::INFINITY } else { 1.5 + errors[i % 15] * ULP };
    let n = 15 * 1200;
    let all: Vec<f64> = (0..n).map(actual).collect();
    let bound = bound(&vec![1.5; n], &vec![0.0; n], &vec![0.0; n]);
    let bins = bound.ulp_histogram(&all).unwrap();
    assert_eq!(bins, [1, 1, 2, 2, 2, 2, 2, 2, 1].map(|c: usize| 1200 * c));
    // Those that are not the nearest value.
    assert_eq!(bound.differing(&all).unwrap(), 1200 * 14);
    assert!(bound.ulp_histogram(&all[1..]).is_err() && bound.differing(&all[1..]).is_err());
}

#[test]
fn the_rounded_ideal_is_that_of_every_element() {
    let ideal: Vec<f64> = (0..40_000).map(|i| 1.0 + i as f64 * 1e-5 + 1e-9).collect();
    let bound = bound(&ideal, &vec![0.0; 40_000], &vec![0.0; 40_000]);
    let rounded = bound.rounded_ideal();
    assert!(rounded.iter().zip(&ideal).all(|(r, d)| *r == f64::from(*d as f32)));
    assert_eq!(bound.differing(&rounded).unwrap(), 0);
}

/// A NaN where there has to be one is right, and nothing else is; what is not known is not judged.
#[test]
fn what_is_not_a_number_is_judged_too() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let bound = bound(
        &[nan, nan, 1.5, inf, inf, -inf, 1.5, 1.5],
        &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, inf, inf],
        &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, inf, inf],
    );
    let actual = [nan, 1.0, nan, inf, -inf, -inf, 7.0, nan];
    assert_eq!(bound.ratios(&actual).unwrap()[..6], [0.0, inf, inf, 0.0, inf, 0.0]);
    let judged = bound.judge(&actual).unwrap();
    assert_eq!((judged.violations, judged.unjudged, judged.first_violation), (3, 2, Some(1)));
    assert!(bound.allowed(0).0.is_nan());
    assert_eq!((bound.allowed(3), bound.allowed(6)), ((inf, inf), (-inf, inf)));
    assert_eq!(bound.allowed(2), (1.5, 1.5));
}

/// What lies beyond the range of a quantized output is clipped before it is compared: ±500 in E4M3 is ±448, and right. ±440 is 8 away from
/// ±448, in steps of 32.
#[test]
fn ratios_beyond_the_range_of_the_output_are_to_its_ends() {
    let ideal = vec![-500.0, 500.0, -440.0, 440.0];
    let bound = Bound::from_radius(ideal, vec![1.0; 4], &OutFormat::scaled(Format::E4m3, 1.0, 1.0)).unwrap();
    assert_eq!(bound.ratios(&[-448.0, 448.0, -448.0, 448.0]).unwrap(), [0.0, 0.0, 8.0 / 17.0, 8.0 / 17.0]);
}
