//! Delayed scaling's state machine (TransformerEngine common/recipe/delayed_scaling.cu and pytorch/quantization.py).

use qassay::recipe::delayed::{AmaxAlgo, State, UpdateRule};
use qassay::recipe::{Recipe, current};
use qassay::{Format, Tensor};

fn state(history: &[f32]) -> State {
    State { history: history.to_vec(), ..State::new(1).unwrap() }
}
fn rule() -> UpdateRule {
    UpdateRule::new(Format::E4m3)
}

#[test]
fn both_updates_agree_on_ordinary_steps() {
    for len in [1, 2, 3, 16] {
        for algo in [AmaxAlgo::Max, AmaxAlgo::MostRecent] {
            for margin in [0, 1, -2] {
                let rule = UpdateRule { margin, algo, ..rule() };
                let (mut a, mut b) = (State::new(len).unwrap(), State::new(len).unwrap());
                let mut seen: Vec<f32> = vec![];
                for step in 0..40u32 {
                    let amax = ((step * 37) % 23 + 1) as f32 * 0.37;
                    a.observe(amax);
                    b.observe(amax);
                    seen.push(amax);
                    a.update_fused(&rule, None);
                    b.update_unfused(&rule);
                    // The window: the last L amaxes ("max"), the last one ("most recent").
                    let window = if algo == AmaxAlgo::Max { len } else { 1 };
                    let largest = seen.iter().rev().take(window).copied().fold(0.0, f32::max);
                    let scale = 448.0 * 0.5f32.powi(margin) / largest;
                    assert_eq!((a.scale, b.scale), (scale, scale), "len {len} {algo:?} margin {margin} step {step}");
                    assert_eq!(a.scale_inv, 1.0 / scale);
                    assert_eq!(a, b, "len {len} {algo:?} margin {margin} step {step}");
                    assert_eq!(a.history[0], 0.0);
                }
            }
        }
    }
}

#[test]
fn running_amax_is_a_maximum_without_nan() {
    let mut s = state(&[0.0, 5.0]);
    for amax in [2.0, 3.0, f32::NAN, 1.0] {
        s.observe(amax);
    }
    assert_eq!(s.history, [3.0, 5.0]);
    assert!(State::new(0).is_err());
}

#[test]
fn zero_infinite_and_nan_amaxes_leave_the_scale() {
    for amax in [0.0, f32::INFINITY] {
        for fused in [true, false] {
            let mut s = State { scale: 3.0, ..state(&[amax, 0.0]) };
            if fused {
                s.update_fused(&rule(), None)
            } else {
                s.update_unfused(&rule())
            }
            assert_eq!((s.scale, s.scale_inv), (3.0, 1.0 / 3.0), "{amax} fused {fused}");
        }
    }
    // A scale that overflows is FLT_MAX.
    let mut s = state(&[1e-42, 0.0]);
    s.update_fused(&rule(), None);
    assert_eq!((s.scale, s.scale_inv.to_bits()), (f32::MAX, 0x0020_0000));
}

#[test]
fn reduced_amax_replaces_the_local_one_unless_zero() {
    let mut s = state(&[2.0, 0.0, 0.0]);
    s.update_fused(&rule(), Some(7.0));
    assert_eq!((s.scale, s.history), (64.0, vec![0.0, 0.0, 7.0]));
    let mut s = state(&[2.0, 0.0, 0.0]);
    s.update_fused(&rule(), Some(0.0));
    assert_eq!((s.scale, s.history), (224.0, vec![0.0, 0.0, 2.0]));
}

/// Corner (a): the current amax is 0, an older one is not.
#[test]
fn corner_zero_step() {
    let (mut fused, mut unfused) = (state(&[0.0, 7.0, 0.0]), state(&[0.0, 7.0, 0.0]));
    fused.update_fused(&rule(), None);
    unfused.update_unfused(&rule());
    assert_eq!((fused.scale, fused.history), (1.0, vec![0.0, 7.0, 0.0]));
    assert_eq!((unfused.scale, unfused.history), (64.0, vec![0.0, 0.0, 0.0]));
}

/// Corner (b): a NaN in the history.
#[test]
fn corner_nan_in_history() {
    let (mut fused, mut unfused) = (state(&[7.0, f32::NAN, 3.5]), state(&[7.0, f32::NAN, 3.5]));
    fused.update_fused(&rule(), None);
    unfused.update_unfused(&rule());
    assert_eq!((fused.scale, unfused.scale), (64.0, 1.0));
}

/// Corner (c): a margin and an amax so small that M/amax overflows, (M·2^-margin)/amax does not.
#[test]
fn corner_margin_and_tiny_amax() {
    let rule = UpdateRule { margin: 4, ..rule() };
    let (mut fused, mut unfused) = (state(&[1e-36, 0.0]), state(&[1e-36, 0.0]));
    fused.update_fused(&rule, None);
    unfused.update_unfused(&rule);
    assert_eq!(fused.scale, 28.0 / 1e-36);
    assert_eq!(unfused.scale, f32::MAX);
}

/// Corner (d): Inf freezes "max" until it leaves the window; zero steps leave it there when fused, roll it out when not.
#[test]
fn corner_inf_freezes_the_window() {
    let (mut fused, mut unfused) = (state(&[f32::INFINITY, 0.0, 0.0]), state(&[f32::INFINITY, 0.0, 0.0]));
    for step in 0..4 {
        fused.update_fused(&rule(), None);
        unfused.update_unfused(&rule());
        let frozen = step < 3;
        assert_eq!((fused.scale == 1.0, unfused.scale == 1.0), (frozen, frozen), "step {step}");
        fused.observe(7.0);
        unfused.observe(7.0);
    }
    let (mut fused, mut unfused) = (state(&[f32::INFINITY, 0.0]), state(&[f32::INFINITY, 0.0]));
    for _ in 0..9 {
        fused.update_fused(&rule(), None);
        unfused.update_unfused(&rule());
    }
    assert!(fused.history.contains(&f32::INFINITY) && !unfused.history.contains(&f32::INFINITY));
}

#[test]
fn the_recipe_uses_what_earlier_steps_saw() {
    let mut data = vec![1.0f32; 8 * 4];
    data[5] = 3.5; // second row: first quarter
    data[30] = -7.0; // last row: not seen
    let x = Tensor::new(Format::F32, 8, 4, data).unwrap();
    let out = "te_delayed".parse::<Recipe>().unwrap().quantize(&x).unwrap();
    assert_eq!((out.scale.unwrap()[0], out.amax[0]), (128.0, 7.0));
    assert_eq!((out.q.codes()[5], out.q.codes()[30]), (0x7e, 0xfe), "448 and, saturated, −896");
    // One row has been seen whole: the scale of current scaling.
    let x = Tensor::new(Format::Bf16, 1, 3, vec![0.5, -1.75, 0.25]).unwrap();
    let out = "te_delayed:e5m2".parse::<Recipe>().unwrap().quantize(&x).unwrap();
    assert_eq!(out.scale.unwrap()[0], current::scale_of_amax(1.75, 57344.0, 0.0, f32::MAX, false));
}

#[test]
fn a_step_quantizes_with_the_old_scale_and_observes_the_new_amax() {
    let mut s = State::new(4).unwrap();
    let x = Tensor::new(Format::F32, 1, 2, vec![500.0, -2.0]).unwrap();
    let out = s.quantize(&rule(), &x).unwrap();
    assert_eq!((out.q.codes(), out.q.scale_inv()), (&[0x7e, 0xc0][..], &[1.0][..]));
    assert_eq!(s.history[0], 500.0);
    s.update_fused(&rule(), None);
    assert_eq!(s.scale, 448.0 / 500.0);
    assert!(s.quantize(&rule(), &Tensor::new(Format::F32, 0, 2, vec![]).unwrap()).is_err());
    assert!(s.quantize(&UpdateRule::new(Format::Int8), &x).is_err());
}
