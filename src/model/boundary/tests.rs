//! The intervals hold the f64 definition and the CPU kernels, and little else.

use super::*;
use crate::input::{Distribution, generate};
use crate::job::{Data, Operand, Operands, OutSpec};
use crate::kernel::{Backend, cpu, find};
use crate::model::act::act_slope;
use crate::model::elementwise::predict;
use crate::op::{ACTS, Args64, Defined, Params, define};
use crate::{Format, Tensor};

const ONE_INPUT: [Op; 3] = [Op::Activation, Op::Layernorm, Op::Rmsnorm];

fn job(op: Op, act: Option<Act>, dist: Distribution, (m, n): (usize, usize), seed: u64, out: OutSpec) -> Job {
    let dtype = if seed.is_multiple_of(2) { Format::Bf16 } else { Format::F32 };
    let make = |dist, rows, cols, stream| generate(dist, dtype, rows, cols, seed, stream).unwrap();
    let b_cols = if op == Op::DgatedCastTranspose { 2 * n } else { n };
    let normal = |stream| make(Distribution::NormalIid, 1, n, stream);
    let a = Operand::High(make(dist, m, if op == Op::Gated { 2 * n } else { n }, 0));
    let b = (!ONE_INPUT.contains(&op) && op != Op::Gated).then(|| Operand::High(make(dist, m, b_cols, 1)));
    let beta = (op == Op::Layernorm).then(|| normal(3));
    let operands = Operands { gamma: Some(normal(2)), beta, ..Operands::of(a, b) };
    let params = Params { act, zero_centered_gamma: seed % 3 == 1, ..Params::default() };
    Job { op, params, operands, out, accumulator: None }
}

fn defined(job: &Job) -> Defined {
    let vector = |t: &Option<Tensor>| t.as_ref().map(|t| t.data().iter().map(|x| f64::from(*x)).collect());
    let o = &job.operands;
    let args = Args64 {
        a: o.a().to_f64(),
        b: o.b().map(Operand::to_f64),
        gamma: vector(&o.gamma),
        beta: vector(&o.beta),
        ..Args64::default()
    };
    define(job.op, &job.params, &args).unwrap()
}

fn every_op() -> Vec<(Op, Option<Act>)> {
    let mut all = vec![(Op::Layernorm, None), (Op::Rmsnorm, None)];
    for op in [Op::Activation, Op::ActivationGrad, Op::Gated, Op::CastTransposeDbiasDact, Op::DgatedCastTranspose] {
        all.extend(ACTS.iter().map(|a| (op, Some(a.0))));
    }
    all
}

fn scaled(scale: f32) -> OutSpec {
    OutSpec::Scaled { format: Format::E4m3, scale: vec![Some(scale)] }
}

fn output(job: &Job) -> crate::job::Output {
    find(cpu::KERNELS, job, Backend::Cpu).unwrap().run(job).unwrap()
}

fn f32s(what: &str, bounds: &Option<Vec<Interval>>, ideal: Option<&[f64]>, actual: &[f32]) -> f64 {
    let mut worst = 0.0f64;
    for (i, (b, x)) in bounds.as_ref().unwrap().iter().zip(actual).enumerate() {
        let ideal = ideal.map_or(f64::from(*x), |d| d[i]);
        let used = b.used(ideal, f64::from(*x));
        assert!(used <= 1.0, "{what}[{i}]: {x} is outside {b:?} around {ideal}");
        worst = worst.max(used);
    }
    worst
}

/// v itself (f32 output where the op has one), amax, dbias and row statistics, over many seeds.
#[test]
fn correct_kernels_stay_inside_and_use_the_room() {
    for (op, act) in every_op() {
        let (mut worst, mut sum, mut worst_side, mut unjudged, mut count) = (0.0f64, 0.0, 0.0f64, 0, 0);
        for seed in 0..30 {
            let dist = match seed % 5 {
                0 => Distribution::Normal,
                1 => Distribution::StudentT,
                2 => Distribution::OutlierChannels,
                3 => Distribution::Shifted,
                _ => Distribution::SignedZero,
            };
            let casts = matches!(op, Op::CastTransposeDbiasDact | Op::DgatedCastTranspose);
            let shape = [(3, 97), (7, 640), (133, 11)][seed as usize % 3];
            let job = job(op, act, dist, shape, seed, if casts { scaled(1.0) } else { OutSpec::High(Format::F32) });
            let (bounds, ideal, out) = (bounds(&job, Depths::cpu(&job)).unwrap(), defined(&job), output(&job));
            for (i, (b, d)) in bounds.values[0].iter().zip(&ideal.d).enumerate() {
                let context = || format!("{op:?} {act:?} {dist} seed {seed} element {i}");
                assert!(b.allows(*d), "{}: the definition {d} is outside {b:?}", context());
                count += 1;
                unjudged += usize::from(radius(*b, *d).is_infinite());
                if let Data::High(v) = &out.parts[0].d {
                    let used = b.used(*d, f64::from(v.data()[i]));
                    assert!(used <= 1.0, "{}: {} is outside {b:?} around {d}", context(), v.data()[i]);
                    // Near zero the room is a few subnormal quanta: using all of it says nothing.
                    if d.abs() > 1e-6 {
                        (worst, sum) = (worst.max(used), sum + used);
                    }
                }
            }
            if let Some(amax) = out.parts[0].amax {
                assert!(bounds.amax[0].allows(f64::from(amax)), "{op:?} {act:?}: amax {amax} outside {:?}", bounds.amax[0]);
            }
            if let Some(dbias) = &out.dbias {
                worst_side = worst_side.max(f32s("dbias", &bounds.dbias, ideal.dbias.as_deref(), dbias.data()));
            }
            if let Some(mean) = &out.mean {
                worst_side = worst_side.max(f32s("mean", &bounds.mean, ideal.mean.as_deref(), mean));
            }
            if let Some(rsigma) = &out.rsigma {
                worst_side = worst_side.max(f32s("rsigma", &bounds.rsigma, ideal.rsigma.as_deref(), rsigma));
            }
        }
        let mean = sum / count as f64;
        println!("{op:?} {act:?}: use of the room {worst:.3} at most, {mean:.3} on average; side outputs {worst_side:.3}");
        assert_eq!(unjudged, 0, "{op:?} {act:?}");
        let exact = matches!(act, Some(Act::Relu)) && matches!(op, Op::Activation | Op::ActivationGrad);
        let casts = matches!(op, Op::CastTransposeDbiasDact | Op::DgatedCastTranspose);
        assert!(exact || casts || (worst > 0.05 && mean > 0.005), "{op:?} {act:?}: the bound is vacuous ({worst}, {mean})");
    }
}

/// Rows of ±a: 128 equal squares a lane, whose partial sums all round the same way for some a. The error comes near enough to
/// γ_d that the bound cannot be much smaller.
#[test]
fn biased_row_sums_use_the_depth() {
    let mut worst = 0.0f64;
    for i in 0..200 {
        let a = 1.0 + i as f32 / 256.0 + 1.0 / 1024.0;
        let row: Vec<f32> = (0..32 * 128).map(|j| if j % 2 == 0 { a } else { -a }).collect();
        let mut job = job(Op::Layernorm, None, Distribution::Zeros, (1, row.len()), 1, OutSpec::High(Format::F32));
        job.operands.set_tensors(0, vec![Operand::High(Tensor::new(Format::F32, 1, row.len(), row).unwrap())]);
        let bounds = bounds(&job, Depths::cpu(&job)).unwrap();
        let (ideal, out) = (defined(&job), output(&job));
        worst = worst.max(f32s("rsigma", &bounds.rsigma, ideal.rsigma.as_deref(), &out.rsigma.unwrap()));
    }
    println!("rsigma of biased rows: {worst:.3} of the room");
    assert!(worst > 0.1);
}

/// With FP8 output: every code of the kernel is that of an end of the interval or between, and few elements have a choice.
#[test]
fn fp8_codes_have_a_choice_only_at_rounding_boundaries() {
    for (op, act) in every_op() {
        let (mut choice, mut count, mut used_choice) = (0usize, 0usize, 0usize);
        for seed in 0..12 {
            let scale = [0.37, 1.0, 21.0][seed as usize % 3];
            let job = job(op, act, Distribution::Normal, (9, 300), seed, scaled(scale));
            let (bounds, out) = (bounds(&job, Depths::cpu(&job)).unwrap(), output(&job));
            let Data::Quantized(q) = &out.parts[0].d else { panic!("not quantized") };
            let exact = predict(&job).unwrap();
            assert_eq!(exact.parts[0], out.parts[0]);
            for (i, b) in bounds.values[0].iter().enumerate() {
                let allowed = b.quantized(Format::E4m3, scale, 1.0 / scale);
                let actual = q.value(i / q.cols(), i % q.cols());
                assert!(allowed.allows(actual), "{op:?} {act:?} seed {seed} element {i}: {actual} outside {allowed:?}");
                count += 1;
                choice += usize::from(allowed.lo != allowed.hi);
                used_choice += usize::from(allowed.lo != allowed.hi && actual == allowed.lo);
            }
        }
        let share = choice as f64 / count as f64;
        println!("{op:?} {act:?}: {choice} of {count} codes have a choice, {used_choice} take the lower one");
        assert!(share < 0.005, "{op:?} {act:?}: {share}");
    }
}

/// Recipe outputs: the scale that the kernel chose is one that the values allow, and with 16-bit inputs it is nearly always
/// the only one.
#[test]
fn recipes_of_activations_have_known_scales() {
    for (op, act) in every_op() {
        for name in ["te_mxfp8", "te_block_1x128", "te_current", "float8_rowwise", "mx_floor", "te_nvfp4", "int8_token_asym"] {
            let (mut open, mut count) = (0, 0);
            for seed in [0, 2] {
                let out = OutSpec::Recipe(name.parse().unwrap());
                let job = job(op, act, Distribution::Normal, (40, 200), seed, out);
                let (bounds, out) = (bounds(&job, Depths::cpu(&job)).unwrap(), output(&job));
                let Data::Quantized(q) = &out.parts[0].d else { panic!("not quantized") };
                let Some(scales) = &bounds.scale_inv[0] else {
                    assert!(name == "int8_token_asym" || name == "te_nvfp4", "{op:?} {act:?} {name}: no scales");
                    continue;
                };
                assert_eq!(scales.len(), q.scale_inv().len());
                for (i, (s, found)) in scales.iter().zip(q.scale_inv()).enumerate() {
                    assert!(s.allows(f64::from(*found)), "{op:?} {act:?} {name} scale_inv[{i}]: {found} outside {s:?}");
                    open += usize::from(!s.is_point());
                    count += 1;
                }
            }
            assert!(open * 50 <= count, "{op:?} {act:?} {name}: {open} of {count} scales are not settled");
        }
    }
}

/// A kernel that is off by a few f32 ulps more than its formula allows is caught in f32 output.
#[test]
fn small_faults_are_outside() {
    for (op, act, gain) in [
        (Op::Activation, Some(Act::Silu), 1.0 + 16.0 * U),
        (Op::Activation, Some(Act::Relu), 1.0 + 2.0 * U),
        (Op::Layernorm, None, 1.0 + 400.0 * U),
        (Op::Rmsnorm, None, 1.0 + 100.0 * U),
    ] {
        let job = job(op, act, Distribution::Normal, (8, 256), 4, OutSpec::High(Format::F32));
        let bounds = bounds(&job, Depths::cpu(&job)).unwrap();
        let Data::High(v) = &output(&job).parts[0].d.clone() else { panic!() };
        let outside = |gain: f64| {
            bounds.values[0].iter().zip(v.data()).filter(|(b, v)| !b.allows(f64::from((f64::from(**v) * gain) as f32))).count()
        };
        println!("{op:?} {act:?}: {} of {} outside with a gain of 1 + {:.0}u", outside(gain), v.data().len(), (gain - 1.0) / U);
        assert!(outside(1.0) == 0 && outside(gain) > 0, "{op:?} {act:?}");
    }
}

/// Non-finite inputs: whatever class of result the formula has in f64 and in f32, the interval admits it, and it never
/// admits NaN for ordinary numbers.
#[test]
fn non_finite_inputs() {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-45, -1e-38, 3e38, -3e38, 1e20, -1e20, 88.8, -88.8];
    for (a, _) in ACTS {
        for x in special {
            let (forward, slope): (Interval, Interval) = (act(*a, x), act_slope(*a, x));
            for (got, interval) in [(act::<f32>(*a, x), forward), (act_slope::<f32>(*a, x), slope)] {
                assert!(interval.allows(f64::from(got)), "{a:?}({x}): {got} is outside {interval:?}");
            }
            assert!(!forward.nan || !x.is_finite(), "{a:?}({x}) may not be NaN: {forward:?}");
        }
    }
    for op in [Op::Layernorm, Op::Rmsnorm] {
        let job = job(op, None, Distribution::NonFinite, (9, 40), 1, OutSpec::High(Format::F32));
        let (bounds, ideal, out) = (bounds(&job, Depths::cpu(&job)).unwrap(), defined(&job), output(&job));
        let Data::High(v) = &out.parts[0].d else { panic!() };
        for (i, b) in bounds.values[0].iter().enumerate() {
            let (d, v) = (ideal.d[(i / 40, i % 40)], f64::from(v.data()[i]));
            assert!(b.allows(v) && b.allows(d), "{op:?} element {i}: {v}, {d} outside {b:?}");
        }
    }
}

/// One infinity in a row and no NaN: its mean is infinite, so that a layernorm of the row is NaN; its root mean square is infinite and the
/// reciprocal 0, so that an rmsnorm is 0 where x is finite.
#[test]
fn an_infinite_row_has_the_statistics_of_its_norm() {
    let x = [1.0, -2.0, f32::INFINITY, 0.5];
    let depths = |op| Depths::cpu(&job(op, None, Distribution::NormalIid, (1, 4), 1, OutSpec::High(Format::F32)));
    let layer = stats(Op::Layernorm, &x, 1e-5, depths(Op::Layernorm));
    assert!(layer.rsigma.allows(f64::NAN) && ![0.0, 1.0, 1e30].iter().any(|r| layer.rsigma.allows(*r)), "{:?}", layer.rsigma);
    let rms = stats(Op::Rmsnorm, &x, 1e-5, depths(Op::Rmsnorm));
    assert!(rms.rsigma.allows(0.0), "{:?}", rms.rsigma);
}

/// Every distribution, edge cases included, and empty tensors: the definition and the kernel are inside, in values, codes
/// and side outputs, whatever the scale.
#[test]
fn edge_data_stay_inside() {
    let dists = crate::input::DISTRIBUTIONS.iter().map(|d| d.distribution);
    let scales = [1.0, 0.0, -3.0, f32::INFINITY, f32::NAN, f32::MAX, 1e-40];
    for (i, dist) in dists.enumerate() {
        for (op, act) in every_op() {
            for (shape, scale) in [((5, 130), 0.4), ((2, 33), scales[i % scales.len()]), ((0, 4), 1.0), ((2, 0), 1.0)] {
                let job = job(op, act, dist, shape, i as u64, scaled(scale));
                let (bounds, ideal, out) = (bounds(&job, Depths::cpu(&job)).unwrap(), defined(&job), output(&job));
                let context = || format!("{op:?} {act:?} {dist} {shape:?} scale {scale}");
                let Data::Quantized(q) = &out.parts[0].d else { panic!("not quantized") };
                assert_eq!(bounds.values[0].len(), q.codes().len(), "{}", context());
                for (i, (b, d)) in bounds.values[0].iter().zip(&ideal.d).enumerate() {
                    assert!(b.allows(*d), "{} element {i}: the definition {d} is outside {b:?}", context());
                    let allowed = b.quantized(Format::E4m3, scale, 1.0 / scale);
                    let actual = q.value(i / q.cols(), i % q.cols());
                    assert!(allowed.allows(actual), "{} element {i}: {actual} is outside {allowed:?} of {b:?}", context());
                }
                assert!(bounds.amax[0].allows(f64::from(out.parts[0].amax.unwrap())), "{}", context());
                assert!(bounds.scale_inv[0].as_ref().unwrap()[0].allows(f64::from(q.scale_inv()[0])), "{}", context());
                let sides = [
                    (&bounds.dbias, out.dbias.map(|d| d.data().to_vec())),
                    (&bounds.mean, out.mean),
                    (&bounds.rsigma, out.rsigma),
                ];
                for (bound, found) in sides.iter().filter_map(|(b, f)| f.as_ref().map(|f| (b.as_ref().unwrap(), f))) {
                    for (j, (b, x)) in bound.iter().zip(found).enumerate() {
                        assert!(b.allows(f64::from(*x)), "{} side output {j}: {x} is outside {b:?}", context());
                    }
                }
            }
        }
    }
}

/// γ_k = k·u/(1 − k·u); a chain of d additions of terms may reach (1 + γ_d) of what they are together.
#[test]
fn gamma_and_what_a_chain_may_reach() {
    let u = 2f64.powi(-24);
    assert_eq!([gamma(0), gamma(3)], [0.0, 3.0 * u / (1.0 - 3.0 * u)]);
    assert!(gamma((1 << 24) - 1).is_finite() && gamma(1 << 24) == f64::INFINITY);
    let max = f64::from(f32::MAX);
    assert!(may_overflow(max, 0) && may_overflow(f64::NAN, 0) && !may_overflow(max * (1.0 - 1e-9), 0));
    assert!(may_overflow(max * (1.0 - u), 2) && !may_overflow(max * (1.0 - 3.0 * u), 2));
    assert!(may_overflow(0.5 * max, 1 << 23) && !may_overflow(0.49 * max, 1 << 23));
}

/// The second of three columns, of rows that each add 1 to what their sum may be.
#[test]
fn a_column_is_summed_by_itself_and_no_wider_than_its_roundings() {
    let of = |column: &[Interval]| {
        let all: Vec<Interval> = column.iter().flat_map(|v| [Interval::ANY, *v, Interval::point(1e30)]).collect();
        column_sum(&all, 1, 3, 4)
    };
    let (point, inf) = (Interval::point, f64::INFINITY);
    for column in [&[Interval::new(1.0, 2.0), Interval::new(-5.0, -4.0), point(0.5)][..], &[point(3.0)], &[]] {
        let (mut low, mut high, mut total) = (0.0, 0.0, 0.0);
        for v in column {
            (low, high, total) = (low + v.lo, high + v.hi, total + v.lo.abs().max(v.hi.abs()));
        }
        let found = of(column);
        assert_eq!((found.lo, found.hi, found.nan), (low - gamma(4) * total, high + gamma(4) * total, false));
    }
    let is_any = |v: Interval| (v.lo, v.hi, v.nan) == (Interval::ANY.lo, Interval::ANY.hi, Interval::ANY.nan);
    assert!(is_any(of(&[point(1.0), Interval::new(2.0, inf)])) && is_any(of(&[Interval::new(-inf, 0.0)])));
    assert!(is_any(of(&[point(1.0), Interval { nan: true, ..point(2.0) }])));
    assert!(of(&[point(1.0), Interval::NAN]).is_empty());
    assert_eq!((of(&[point(1.0), point(inf)]).lo, of(&[point(-inf), point(1.0)]).hi), (inf, -inf));
    assert!(of(&[point(inf), point(-inf)]).allows(f64::NAN));
    // Beyond f32 on the way, whichever sign.
    assert!(is_any(of(&[point(2e38), point(-2e38)])) && !is_any(of(&[point(2e38), point(-1e38)])));
}

#[test]
fn the_largest_magnitude_may_leave_out_what_may_be_nan() {
    let (new, point) = (Interval::new, Interval::point);
    let of = |v: &[Interval]| {
        let found = amax(v);
        (found.lo, found.hi)
    };
    assert_eq!(of(&[new(-3.0, 1.0), new(2.0, 2.5)]), (2.0, 3.0));
    assert_eq!(of(&[new(-3.0, -1.5), point(0.5)]), (1.5, 3.0));
    assert_eq!(of(&[Interval { nan: true, ..point(7.0) }, point(-2.0)]), (2.0, 7.0));
    assert_eq!(of(&[Interval::NAN, point(2.0)]), (2.0, 2.0));
    assert_eq!(of(&[]), (0.0, 0.0));
    let many: Vec<Interval> = (0..3 * crate::parallel::BAND).map(|n| point((n % 1000) as f64 - 700.0)).collect();
    assert_eq!(of(&many), (700.0, 700.0));
}

#[test]
fn a_radius_reaches_the_farther_end() {
    let wide = Interval::new(1.0, 4.0);
    assert_eq!([1.0, 1.5, 3.0, 4.0, 6.0].map(|x| radius(wide, x)), [3.0, 2.5, 2.0, 3.0, 5.0]);
    assert_eq!(radius(Interval::point(2.0), 2.0), 0.0);
    assert_eq!([f64::NAN, f64::INFINITY].map(|x| radius(wide, x)), [0.0; 2]);
    assert_eq!([Interval::NAN, Interval { nan: true, ..wide }].map(|i| radius(i, 2.0)), [f64::INFINITY; 2]);
}
