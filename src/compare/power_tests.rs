//! What power promises is caught, and what cannot fail is called so; verdicts and their reasons.

use super::*;
use crate::Format;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const COLS: usize = 7;

/// A healthy result: ideals of both signs over three decades, values before rounding inside their radii.
struct Healthy {
    before: Vec<f64>,
    bound: Bound,
    actual: Vec<f64>,
}

impl Healthy {
    fn new(rng: &mut StdRng, rows: usize, relative: f64, out: &OutFormat) -> Self {
        let n = rows * COLS;
        let ideal: Vec<f64> =
            (0..n).map(|_| 10f64.powf(rng.random_range(-1.0..2.0)) * if rng.random() { 1.0 } else { -1.0 }).collect();
        let radius: Vec<f64> = ideal.iter().map(|d| d.abs() * relative * rng.random_range(0.5..1.0)).collect();
        let before: Vec<f64> = ideal.iter().zip(&radius).map(|(d, r)| d + r * rng.random_range(-1.0..1.0)).collect();
        let actual = before.iter().enumerate().map(|(i, t)| out.round(i, *t)).collect();
        let bound = Bound::from_radii(ideal, radius.clone(), radius, out).unwrap();
        Self { before, bound, actual }
    }
    fn input<'a>(&'a self, scales: &'a [Scales<'a>], zero_points: &'a [ZeroPoints<'a>]) -> PowerInput<'a> {
        let (bound, actual) = (&self.bound, &self.actual[..]);
        PowerInput { cols: COLS, bound, actual, bit_exact: false, k: Some(100), groups: 4, scales, zero_points }
    }
    /// Whether the bound refuses what a fault makes of the values before rounding.
    fn catches(&self, fault: impl Fn(usize, f64) -> f64) -> bool {
        let out = self.bound.out();
        let wrong: Vec<f64> = self.before.iter().enumerate().map(|(i, t)| out.round(i, fault(i, *t))).collect();
        self.bound.judge(&wrong).unwrap().violations > 0
    }
}

fn outputs() -> [OutFormat; 4] {
    [
        OutFormat::high(Format::F32),
        OutFormat::high(Format::Bf16),
        OutFormat::scaled(Format::E4m3, 3.3, 1.0 / 3.3),
        OutFormat::scaled(Format::E5m2, 0.7, 1.0 / 0.7),
    ]
}

#[test]
fn what_power_promises_is_caught() {
    let mut rng = StdRng::seed_from_u64(11);
    let mut shares = 0;
    for trial in 0..120 {
        let out = &outputs()[trial % 4];
        let h = Healthy::new(&mut rng, 9, [1e-6, 1e-3, 0.1][trial / 4 % 3], out);
        assert_eq!(h.bound.judge(&h.actual).unwrap().violations, 0);
        let p = Power::of(&h.input(&[], &[]));
        assert_eq!(p.no_power, None);
        assert!(p.gain > 1.0 && p.gain <= p.row_gain && p.gain <= p.column_gain, "{p:?}");
        assert!(h.catches(|_, t| t * p.gain * (1.0 + 1e-9)), "gain {p:?}");
        // What a gain adds to one of four groups is the share of the energy that may vanish.
        assert!(((p.group_gain - 1.0).powi(2) / 4.0 / p.dropped_share - 1.0).abs() < 1e-6, "{p:?}");
        for line in 0..9 {
            assert!(p.row_gain.is_infinite() || h.catches(|i, t| if i / COLS == line { t * p.row_gain * 1.000001 } else { t }));
        }
        for line in 0..COLS {
            assert!(
                p.column_gain.is_infinite()
                    || h.catches(|i, t| if i % COLS == line { t * p.column_gain * 1.000001 } else { t })
            );
        }
        // The most energy that could hide: every element moved as far as its output stays allowed.
        let most = |i: usize| {
            let (low, high) = h.bound.allowed(i);
            let (up, down) = (out.cell(i, high).1 - h.before[i], h.before[i] - out.cell(i, low).0);
            0.999 * if up > down { up } else { -down }
        };
        if (0..h.before.len()).all(|i| most(i).is_finite()) {
            assert!(!h.catches(|i, t| t + most(i)), "hidden {p:?}");
            let energy = |x: &dyn Fn(usize) -> f64| (0..h.before.len()).map(|i| x(i) * x(i)).sum::<f64>();
            let hidden = energy(&most) / energy(&|i| h.bound.ideal()[i]);
            assert!(hidden <= p.dropped_share && p.dropped_share < 8.0 * hidden, "{hidden} hides, {p:?}");
            shares += 1;
        }
        assert!(p.zeros_caught && h.catches(|_, _| 0.0) && h.catches(|_, t| -t));
        // The finer the bound, the smaller the gain: no slack beyond it and two spacings.
        let spacing = 2f64.powi(-(out.format().spec().mantissa as i32));
        let relative = [1e-6, 1e-3, 0.1][trial / 4 % 3];
        assert!(p.gain - 1.0 < 4.0 * relative + 2.0 * spacing, "{p:?}");
    }
    assert!(shares > 60);
}

#[test]
fn code_flips_and_bit_exact_power() {
    let mut rng = StdRng::seed_from_u64(12);
    let out = OutFormat::high(Format::Bf16);
    let h = Healthy::new(&mut rng, 40, 1e-3, &out);
    let p = Power::of(&h.input(&[], &[]));
    let n = h.actual.len();
    assert!(p.code_flip_rate > 1.0 / n as f64 && p.code_flip_rate < 1.0, "{p:?}");
    // As many flips as promised, put first where they could hide.
    let count = (p.code_flip_rate * n as f64).round() as usize;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|i| h.bound.allowed(*i).0 == h.bound.allowed(*i).1);
    for sign in [1.0, -1.0] {
        let mut wrong = h.actual.clone();
        order[..count].iter().for_each(|i| wrong[*i] += sign * out.spacing(*i, wrong[*i]));
        assert!(h.bound.judge(&wrong).unwrap().violations > 0);
    }
    let exact = Power::of(&PowerInput { bit_exact: true, ..h.input(&[], &[]) });
    assert_eq!(exact.code_flip_rate, 1.0 / n as f64);
    assert!(exact.gain <= p.gain && exact.dropped_share <= p.dropped_share);
}

#[test]
fn swapped_scales_are_caught_where_promised() {
    let mut rng = StdRng::seed_from_u64(16);
    let h = Healthy::new(&mut rng, 30, 1e-3, &OutFormat::high(Format::Bf16));
    // From hardly different to a factor of two.
    let values: Vec<f32> = (0..30).map(|i| 0.3 * (1.0 + 10f32.powi(-(i % 7)) * (1.0 + i as f32 * 0.01))).collect();
    let share =
        Power::of(&h.input(&[Scales { name: "a.scale_inv", values: &values, spans: Spans::Rows }], &[])).swap_share.unwrap();
    let swap = |r: usize| {
        let ratio = f64::from(values[r + 1]) / f64::from(values[r]);
        h.catches(|i, t| {
            if i / COLS == r {
                t * ratio
            } else if i / COLS == r + 1 {
                t / ratio
            } else {
                t
            }
        })
    };
    let caught = (0..29).filter(|r| swap(*r)).count() as f64 / 29.0;
    assert!(share > 0.4 && share < 0.95 && share <= caught, "promised {share}, caught {caught}");
}

#[test]
fn shifted_zero_points_are_caught_where_promised() {
    let mut rng = StdRng::seed_from_u64(13);
    let (rows, groups) = (6, 3);
    let h = Healthy::new(&mut rng, rows, 1e-3, &OutFormat::high(Format::F16));
    // Steps from far below the bound to far above it.
    let step: Vec<f64> = (0..COLS * groups).map(|i| 10f64.powi(i as i32 % 7 - 6)).collect();
    let sums: Vec<f64> = (0..rows * groups).map(|_| rng.random_range(-8.0..8.0)).collect();
    let values: Vec<f64> = (0..COLS * groups).map(|i| (i % 5) as f64).collect();
    let z = ZeroPoints { name: "b.zero_point", values: &values, step: &step, sums: &sums, groups, columns: true };
    let share = Power::of(&h.input(&[], &[z])).zero_shift_share.unwrap();
    assert_eq!(Power::of(&h.input(&[], &[])).zero_shift_share, None);
    let shift = |line: usize, g: usize, sign: f64| {
        h.catches(|i, t| if i % COLS == line { t + sign * step[line * groups + g] * sums[(i / COLS) * groups + g] } else { t })
    };
    let lines = || (0..COLS).flat_map(|l| (0..groups).map(move |g| (l, g)));
    let caught = lines().filter(|(l, g)| shift(*l, *g, 1.0) && shift(*l, *g, -1.0)).count() as f64 / (COLS * groups) as f64;
    assert!(share > 0.2 && share < 0.9 && share <= caught, "promised {share}, caught {caught}");
}

/// One zero point whose step moves a result by far more than its bound, of lines and groups whose steps move none: it alone is caught, and
/// only where a sum beside it is not zero.
#[test]
fn of_zero_points_the_one_that_moves_a_result_is_caught() {
    let mut rng = StdRng::seed_from_u64(17);
    let (rows, groups) = (5, 3);
    let h = Healthy::new(&mut rng, rows, 1e-3, &OutFormat::high(Format::F32));
    for columns in [true, false] {
        let (lines, others) = if columns { (COLS, rows) } else { (rows, COLS) };
        let values = vec![1.0; lines * groups];
        for (line, group) in (0..lines).flat_map(|l| (0..groups).map(move |g| (l, g))) {
            let mut step = vec![0.0; lines * groups];
            step[line * groups + group] = 1e6;
            for of in 0..groups {
                // One row or column has a sum that is not zero, in one group.
                let mut sums = vec![0.0; others * groups];
                sums[(line % others) * groups + of] = 2.0;
                let z = ZeroPoints { name: "b.zero_point", values: &values, step: &step, sums: &sums, groups, columns };
                let expected = if of == group { 1.0 / (lines * groups) as f64 } else { 0.0 };
                let share = Power::of(&h.input(&[], &[z])).zero_shift_share;
                assert_eq!(share, Some(expected), "columns {columns}, line {line}, groups {group} and {of}");
            }
        }
    }
}

#[test]
fn data_that_hide_faults_have_no_power() {
    let mut rng = StdRng::seed_from_u64(14);
    let f32_out = OutFormat::high(Format::F32);
    let h = Healthy::new(&mut rng, 4, 1e-4, &f32_out);
    let reason = |p: Power| p.no_power.map(|n| format!("{} / {}", n.reason, n.remedy)).unwrap_or_default();
    let of = |ideal: Vec<f64>, radius: f64, out: &OutFormat| {
        let n = ideal.len();
        let bound = Bound::from_radii(ideal, vec![radius; n], vec![radius; n], out).unwrap();
        let actual = bound.rounded_ideal();
        reason(Power::of(&PowerInput { bound: &bound, actual: &actual, ..h.input(&[], &[]) }))
    };
    let e4m3 = OutFormat::scaled(Format::E4m3, 1.0, 1.0);
    let starts = |text: String, with: &str| assert!(text.starts_with(with), "`{text}` should start with `{with}`");
    starts(of(vec![], 0.0, &f32_out), "the output has no element");
    starts(of(vec![f64::NAN, f64::INFINITY], 0.0, &f32_out), "every ideal value is NaN or Inf");
    starts(of(vec![0.0; 5], 0.0, &f32_out), "every output is zero");
    starts(of(vec![1.0; 5], f64::INFINITY, &f32_out), "an intermediate of every element");
    starts(of(vec![500.0, -1e4, 0.0], 1.0, &e4m3), "every output saturates");
    starts(of(vec![-448.0, 448.0, -448.0], 1.0, &e4m3), "every output saturates");
    starts(of(vec![1.0, -2.0], 5.0, &f32_out), "an output of zeros would pass");
    assert_eq!(of(vec![1.0, -2.0], 0.1, &f32_out), "");

    let scales =
        |values: &[f32]| reason(Power::of(&h.input(&[Scales { name: "a.scale_inv", values, spans: Spans::Other }], &[])));
    starts(scales(&[1.0]), "a.scale_inv is 1");
    starts(scales(&[1.0, 1.0, 1.0]), "a.scale_inv is 1");
    starts(scales(&[0.3, 0.3, 0.3]), "a.scale_inv: all 3 scales are 0.3: a wrong index would not show");
    starts(scales(&[0.3, 0.3f32.next_up()]), "a.scale_inv: 2 scales within ×1.000000 of each other");
    starts(scales(&[0.0, f32::NAN]), "a.scale_inv: no scale is a positive number");
    assert_eq!(scales(&[0.3]), "");
    assert_eq!(scales(&[0.3, 0.5]), "");

    let zeros = |values: &[f64]| {
        let (step, sums) = (vec![1.0; COLS], vec![1.0; 4]);
        let z = ZeroPoints { name: "b.zero_point", values, step: &step, sums: &sums, groups: 1, columns: true };
        reason(Power::of(&h.input(&[], &[z])))
    };
    starts(zeros(&[0.0; COLS]), "b.zero_point: every zero point is 0");
    starts(zeros(&[8.0; COLS]), "b.zero_point: all 7 zero points are 8");
    assert_eq!(zeros(&[8.0, 7.0, 8.0, 8.0, 8.0, 8.0, 8.0]), "");
}

/// The same rows over and over, in one band, in several, and in more than one block of them.
#[test]
fn what_a_result_can_show_does_not_depend_on_how_often_its_rows_are_there() {
    let h = Healthy::new(&mut StdRng::seed_from_u64(16), 4, 1e-4, &OutFormat::high(Format::F32));
    let share = |rows: usize| {
        let ideal: Vec<f64> = (0..rows * COLS).map(|i| 1.0 + (i % COLS) as f64).collect();
        let radius = vec![1e-3; rows * COLS];
        let bound = Bound::from_radii(ideal, radius.clone(), radius, &OutFormat::high(Format::F32)).unwrap();
        let actual = bound.rounded_ideal();
        Power::of(&PowerInput { bound: &bound, actual: &actual, ..h.input(&[], &[]) }).dropped_share
    };
    let few = share(10);
    for rows in [10_000, 320_000] {
        let many = share(rows);
        assert!(0.0 < few && (many / few - 1.0).abs() < 1e-9, "{rows} rows: {many:e} instead of {few:e}");
    }
}

#[test]
fn verdicts_and_their_reasons() {
    let mut rng = StdRng::seed_from_u64(15);
    let h = Healthy::new(&mut rng, 5, 1e-4, &OutFormat::high(Format::F32));
    let judge_with = |actual: &[f64], mismatches: Option<Mismatches>, checks: &[Check], scales: &[Scales], bound: &Bound| {
        judge(&CaseEvidence {
            cols: COLS,
            exact: Some(h.bound.ideal()),
            bound,
            actual,
            mismatches,
            checks,
            bit_exact: false,
            k: None,
            groups: 1,
            scales,
            zero_points: &[],
        })
        .unwrap()
    };
    let c = judge_with(&h.actual, None, &[], &[], &h.bound);
    assert_eq!((c.verdict, c.reason.as_str(), c.mismatches), (Verdict::Pass, "", None));
    assert!(c.quantization.unwrap().max_abs == 0.0 && c.kernel == c.total.unwrap() && c.kernel.max_abs > 0.0);

    let at = 2 * COLS + 3;
    for (wrong, word) in [(f64::NAN, "got NaN"), (h.actual[at] * 1.01, "got "), (0.0, "got 0, may be")] {
        let mut actual = h.actual.clone();
        actual[at] = wrong;
        let c = judge_with(&actual, None, &[], &[], &h.bound);
        assert_eq!((c.verdict, c.worst), (Verdict::Fail, Some((2, 3))));
        assert!(
            c.reason.starts_with(&format!("(2, 3) {word}")) && c.reason.contains("1 of 35 elements outside"),
            "{}",
            c.reason
        );
        assert!(c.bound_ratio_certain > 1.0);
    }

    // Inside the certain bound, outside the probable one.
    let tight: Vec<f64> = h.bound.certain().iter().map(|r| r * 1e-3).collect();
    let bound = Bound::from_radii(h.bound.ideal().to_vec(), h.bound.certain().to_vec(), tight, h.bound.out()).unwrap();
    let c = judge_with(&h.actual, None, &[], &[], &bound);
    assert_eq!(c.verdict, Verdict::Suspect);
    assert!(
        c.reason.contains("probable bound") && c.bound_ratio_probable > 1.0 && c.bound_ratio_certain <= 1.0,
        "{}",
        c.reason
    );

    // What is probable is inside what may be, about the ideal.
    for (i, ideal) in bound.rounded_ideal().into_iter().enumerate() {
        let ((least, most), (low, high)) = (bound.allowed(i), bound.likely(i));
        assert!(least <= low && low <= ideal && ideal <= high && high <= most, "{i}: {low} … {high} of {least} … {most}");
    }

    let c = judge_with(&h.actual, Some(Mismatches { count: 2, first: Some((8, 1.5)) }), &[], &[], &h.bound);
    assert_eq!((c.verdict, c.mismatches), (Verdict::Fail, Some(2)));
    assert!(c.reason.starts_with("(1, 1) got") && c.reason.contains("the device model says 1.5; 2 of 35"), "{}", c.reason);
    // Bits and bound of one element are one sentence, of two elements two.
    let mut actual = h.actual.clone();
    actual[8] = 1e3;
    for (first, parts) in [(8, 1), (9, 2)] {
        let c = judge_with(&actual, Some(Mismatches { count: 2, first: Some((first, 1.5)) }), &[], &[], &h.bound);
        assert_eq!(c.reason.split("; ").filter(|s| s.contains(" got ")).count(), parts, "{}", c.reason);
    }
    let c = judge_with(&h.actual, Some(Mismatches { count: 0, first: None }), &[], &[], &h.bound);
    assert_eq!(c.verdict, Verdict::Pass);

    let amax = Check::within("amax", &[(2.0, 2.5)], &[3.0]).unwrap();
    let c = judge_with(&h.actual, None, &[amax], &[], &h.bound);
    assert_eq!((c.verdict, c.reason.as_str()), (Verdict::Fail, "amax[0] got 3, may be 2 … 2.5"));
    // Of several the first is told, and how many there are.
    let three = Check::within("amax", &[(2.0, 2.5); 3], &[2.25, 3.0, 1.0]).unwrap();
    let c = judge_with(&h.actual, None, &[three], &[], &h.bound);
    assert_eq!(c.reason, "amax[1] got 3, may be 2 … 2.5; 2 of 3 wrong");
    // The interval and the model's bits of one output are one sentence; two outputs are two.
    let within = || Check::within("amax", &[(2.0, 2.5)], &[3.0]).unwrap();
    let both = [within(), Check::exact("amax", &[2.25], &[3.0]).unwrap()];
    let c = judge_with(&h.actual, None, &both, &[], &h.bound);
    assert_eq!(c.reason, "amax[0] got 3, may be 2 … 2.5, the device model says 2.25");
    let two = [within(), within()];
    let c = judge_with(&h.actual, None, &two, &[], &h.bound);
    assert_eq!(c.reason, "amax[0] got 3, may be 2 … 2.5; amax[0] got 3, may be 2 … 2.5");

    let one = [Scales { name: "out.scale", values: &[1.0], spans: Spans::Other }];
    let c = judge_with(&h.actual, None, &[], &one, &h.bound);
    assert_eq!(c.verdict, Verdict::NoPower);
    assert!(c.reason.starts_with("out.scale is 1") && c.reason.ends_with("would need: scales that are not 1"), "{}", c.reason);

    // A bound wider than the result has no power; the size of the errors has it, where it would see less than a doubling.
    let radii: Vec<f64> = h.bound.ideal().iter().map(|d| 2.0 * d.abs() + 1.0).collect();
    let wide = Bound::from_radius(h.bound.ideal().to_vec(), radii, h.bound.out()).unwrap();
    let told = |gain: f64, larger: Option<&str>, scales: &[Scales]| {
        let mut c = judge_with(&h.actual, None, &[], scales, &wide);
        assert_eq!(c.verdict, Verdict::NoPower);
        c.told_by(&ErrorSize { words: "as right".into(), larger: larger.map(str::to_string), gain });
        (c.verdict, c.reason)
    };
    assert_eq!(told(1.25, None, &[]).0, Verdict::Pass);
    assert!(told(1.25, None, &[]).1.contains("×1.2500 would be caught"));
    assert_eq!(told(2.5, None, &[]).0, Verdict::NoPower);
    assert_eq!(told(1.25, Some("too large"), &[]), (Verdict::Suspect, "too large".into()));
    // A scale of 1, and scales that differ by less than it would see, hide what they would.
    assert_eq!(told(1.25, None, &one).0, Verdict::NoPower);
    let near = [Scales { name: "a.scale_inv", values: &[3.0, 3.5], spans: Spans::Rows }];
    assert_eq!((told(1.25, None, &near).0, told(1.1, None, &near).0), (Verdict::NoPower, Verdict::Pass));

    assert!(Verdict::ALL.iter().all(|v| v.as_str().parse::<Verdict>().unwrap() == *v));
    assert!("passed".parse::<Verdict>().unwrap_err().to_string().contains("pass, suspect"));
}

#[test]
fn mismatches_compare_bits_and_nan_as_a_class() {
    use crate::Tensor;
    let t = |data: &[f32]| Tensor::new(Format::F32, 1, data.len(), data.to_vec()).unwrap();
    let nan = f32::from_bits(0x7fff_ffff);
    let m = Mismatches::of_tensors(&t(&[0.0, f32::NAN, 1.0]), &t(&[-0.0, nan, 1.0])).unwrap();
    assert_eq!(m, Mismatches { count: 1, first: Some((0, 0.0)) });
    assert!(Mismatches::of_tensors(&t(&[0.0]), &t(&[0.0, 1.0])).is_err());
}
