//! Theories of what became of a right sum: a factor, the bias, a clamp, another rounding.

use super::before_weights;
use super::bias_gain;
use super::biases;
use super::maps::cost;
use super::met;
use super::scales;
use super::system::{Finish, System, Theory};
use crate::fault::Class;
use crate::{Format, Overflow, Rounding};
use std::sync::Arc;

/// From here down the bound is that of the sum times the factor.
const TINY: f64 = 1.0 / 16.0;

/// The one factor that every probe allows, of the sum or of the result as it was `stored`: `(low, high)`.
pub fn gain(s: &System, stored: bool, keep: impl Fn(usize, usize) -> bool) -> Option<(f64, f64)> {
    // Where a device's unit made the sums, its own are what was multiplied; it may have been another arithmetic.
    let unit = s.scene.tight() < 1.0;
    let sums = if unit && s.scene.sample.whole { s.scene.unrounded() } else { None };
    let of_unit = sums.and_then(|sums| gain_of(s, stored, &keep, Some(&sums)));
    of_unit.or_else(|| gain_of(s, stored, &keep, None))
}

/// The same, of these sums of the unit or of the ideal ones.
fn gain_of(s: &System, stored: bool, keep: &dyn Fn(usize, usize) -> bool, sums: Option<&[f64]>) -> Option<(f64, f64)> {
    let (mut low, mut high, mut n) = (f64::NEG_INFINITY, f64::INFINITY, 0);
    for (i, j) in s.probes.iter().copied().filter(|(i, j)| keep(*i, *j)) {
        let at = i * s.cols + j;
        let (d, r, x) = match sums.and_then(|v| v.get(at)) {
            Some(v) => (*v, s.certain(at) * (s.scene.tight() / s.part_of_bound).min(1.0), s.actual[at]),
            None => (s.ideal[at], s.certain(at), s.actual[at]),
        };
        let (bias, v) = if stored { (0.0, s.out.round(at, d)) } else { (s.bias.at(i, j), d - s.bias.at(i, j)) };
        // What rounds to either side of a half-way point says nothing once it is stored.
        if stored && s.out.round(at, d - r) != s.out.round(at, d + r) {
            continue;
        }
        let r = if stored { 0.0 } else { r };
        if !(v.abs() > 4.0 * r) || !x.is_finite() || s.out.is_quantized() && s.out.is_saturated(at, x) {
            continue;
        }
        let (from, to) = s.out.cell(at, x);
        // A number far below one makes the bound as small.
        let by = x.abs() / v.abs();
        let slack = r * if by < TINY { by } else { by.max(1.0) } + x.abs() * 2f64.powi(-22);
        let ends = [(from - bias - slack) / v, (to - bias + slack) / v];
        (low, high) = (low.max(ends[0].min(ends[1])), high.min(ends[0].max(ends[1])));
        n += 1;
    }
    (n >= 2 && low <= high && low.is_finite() && high.is_finite()).then_some((low, high))
}

/// The ratio of what was written to what is right that most wrong probes have, where another fault has the rest.
fn common(s: &System) -> Option<f64> {
    let ratio = |(i, j): &(usize, usize)| {
        let at = i * s.cols + j;
        let right = s.ideal[at] - s.bias.at(*i, *j);
        let x = s.actual[at] - s.bias.at(*i, *j);
        (s.is_wrong[at] && right.abs() > 16.0 * s.certain(at) && x.is_finite()).then(|| x / right)
    };
    let mut all: Vec<f64> = s.probes.iter().filter_map(ratio).collect();
    (all.len() >= 12).then_some(())?;
    all.sort_by(f64::total_cmp);
    let middle = all[all.len() / 2];
    let near = all.iter().filter(|x| (*x - middle).abs() <= 0.01 * middle.abs()).count();
    (middle > 0.0 && 2 * near > all.len() && near < all.len()).then_some(middle)
}

/// Whether all wrong elements are codes at an end of their range, which stand for anything beyond it: what is clamped there has any size.
fn ends_alone(s: &System) -> bool {
    let n = s.is_wrong.len();
    s.out.is_quantized() && (0..n).filter(|at| s.is_wrong[*at]).all(|at| s.out.is_saturated(at, s.actual[at]))
}

/// Whether an element is about this many times the right one.
fn near_gain(s: &System, g: f64, i: usize, j: usize) -> bool {
    let at = i * s.cols + j;
    let (right, x) = (s.ideal[at] - s.bias.at(i, j), s.actual[at] - s.bias.at(i, j));
    right.abs() > 16.0 * s.certain(at) && (x - g * right).abs() <= 0.01 * (g * right).abs()
}

/// Factors of the whole (or of the wrong region) that no stored number has, and what a bias may suffer.
pub fn factors(s: &System) -> Vec<Theory> {
    let mut all = Vec::new();
    let bias = s.bias.clone();
    let mut add = |class: Class, variant: &str, words: String, bits: f64, fitted: bool, f: Finish| {
        let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(bits);
        t.finish = Some(f);
        t.fitted = fitted;
        all.push(t);
    };
    let region = s.region.clone();
    let inside = |i: usize, j: usize| region.as_ref().is_none_or(|r| r.has(i, j));
    met::last_block(s, &mut add);
    before_weights::theories(s, &mut add);
    if let crate::job::OutSpec::Scaled { scale, .. } = &s.scene.evidence.job.out
        && let Some(scale) = scale[0].map(f64::from).filter(|x| *x != 1.0)
    {
        for (class, word, by, _) in scales::fates(scale) {
            let b = bias.clone();
            let words = format!("the output's scale, {scale}, is {word}");
            add(class, "scale", words, 1.0, false, Arc::new(move |i, j, v| (v + b.at(i, j)) * by));
        }
    }
    if let crate::job::OutSpec::Scaled { scale, .. } = &s.scene.evidence.job.out
        && let Some(scale) = scale[0].map(f64::from).filter(|x| *x != 1.0)
        && s.bias.any()
    {
        let b = bias.clone();
        let words = "the bias is added after the output's scale, unscaled".to_string();
        add(Class::RoundOrder, "bias_behind_scale", words, 2.0, false, Arc::new(move |i, j, v| v + b.at(i, j) / scale));
        let b = bias.clone();
        let words = "the bias is multiplied by the output's scale twice".to_string();
        add(Class::ScaleDoubledInverted, "bias_scaled", words, 3.0, false, Arc::new(move |i, j, v| v + b.at(i, j) * scale));
    }
    let other = |r: Option<(f64, f64)>| r.filter(|(low, high)| *low > 0.0 && !(*low <= 1.0 && 1.0 <= *high));
    let most = common(s).and_then(|g| gain(s, false, |i, j| near_gain(s, g, i, j)));
    for range in [gain(s, false, |_, _| true), gain(s, false, inside), most] {
        let Some((low, high)) = other(range) else { continue };
        let by = roundest(low, high);
        let b = bias.clone();
        add(
            Class::StaleState,
            "gain",
            format!("the result is multiplied by {}, which is no stored number", short(by, high - low)),
            22.0,
            true,
            Arc::new(move |i, j, v| v * by + b.at(i, j)),
        );
    }
    for range in [gain(s, true, |_, _| true), gain(s, true, inside)] {
        let Some((low, high)) = other(range) else { continue };
        let by = roundest(low, high);
        let (b, out) = (bias.clone(), s.out.clone());
        if out.is_quantized() {
            continue;
        }
        add(
            Class::StaleState,
            "gain",
            format!("the stored result is multiplied by {}, which is no stored number", short(by, high - low)),
            24.0,
            true,
            Arc::new(move |i, j, v| out.round(0, v + b.at(i, j)) * by),
        );
    }
    // Of all elements a power of two is rather that of an exponent's bias.
    if !s.alone && s.is_wrong.iter().filter(|w| !**w).count() * 16 > s.is_wrong.len() {
        for (n, words) in [(2, "twice"), (3, "three times"), (4, "four times")] {
            let b = bias.clone();
            let words = format!("every sum is there {words}: K is accumulated again into what is there");
            add(
                Class::AccState,
                "sums_again",
                words,
                2.5 + 0.25 * f64::from(n),
                false,
                Arc::new(move |i, j, v| f64::from(n) * v + b.at(i, j)),
            );
        }
    }
    if s.bias.any() {
        let b = bias.clone();
        add(Class::SilentSkip, "bias", "the bias is not added".into(), 2.0, false, Arc::new(|_, _, v| v));
        add(
            Class::SilentSkip,
            "bias_twice",
            "the bias is added twice".into(),
            3.0,
            false,
            Arc::new(move |i, j, v| v + 2.0 * b.at(i, j)),
        );
        for n in 3..=64usize {
            let b = bias.clone();
            let words = format!("the bias is added {n} times, as by every part of a split K");
            add(
                Class::SilentSkip,
                "bias_times",
                words,
                3.0 + cost(n),
                false,
                Arc::new(move |i, j, v| v + n as f64 * b.at(i, j)),
            );
        }
        let (b, out) = (bias.clone(), s.out.clone());
        add(
            Class::SilentSkip,
            "bias_again",
            "the bias is added again to the stored result".into(),
            3.5,
            false,
            Arc::new(
                move |i, j, v| {
                    if out.is_quantized() { v + 2.0 * b.at(i, j) } else { out.round(0, v + b.at(i, j)) + b.at(i, j) }
                },
            ),
        );
        if !s.out.is_quantized() {
            let (b, out) = (bias.clone(), s.out.clone());
            let words = "the bias is added twice, each time to a result that is stored".to_string();
            let twice: Finish = Arc::new(move |i, j, v| out.round(0, out.round(0, v) + b.at(i, j)) + b.at(i, j));
            add(Class::SilentSkip, "bias_again", words, 4.0, false, twice);
        }
        let b = bias.clone();
        add(
            Class::SilentSkip,
            "bias_negated",
            "the bias is subtracted".into(),
            4.0,
            false,
            Arc::new(move |i, j, v| v - b.at(i, j)),
        );
        let cols = s.cols;
        for d in 1..cols.min(513) {
            // Around the end either way.
            for (on, sign) in [(d, '+'), (cols - d, '−')] {
                let b = bias.clone();
                add(
                    Class::Addressing,
                    "bias_index",
                    format!("the bias of column j {sign} {d} (wrapped) is added to column j"),
                    3.0 + cost(d),
                    false,
                    Arc::new(move |i, j, v| v + b.at(i, (j + on) % cols)),
                );
            }
            let b = bias.clone();
            add(
                Class::Addressing,
                "bias_index",
                format!("the bias of column j − {d} is added to column j"),
                4.0 + cost(d),
                false,
                Arc::new(move |i, j, v| v + b.at(i, j.saturating_sub(d))),
            );
            if d > 1 {
                let b = bias.clone();
                add(
                    Class::Addressing,
                    "bias_index",
                    format!("the bias of column j mod {d} is added to column j"),
                    4.0 + cost(d),
                    false,
                    Arc::new(move |i, j, v| v + b.at(i, j % d)),
                );
                let b = bias.clone();
                add(
                    Class::Addressing,
                    "bias_index",
                    format!("the bias of column j / {d} is added to column j"),
                    4.0 + cost(d),
                    false,
                    Arc::new(move |i, j, v| v + b.at(i, j / d)),
                );
            }
        }
        let b = bias.clone();
        add(
            Class::Addressing,
            "bias_index",
            "the first bias is added to all columns".into(),
            4.0,
            false,
            Arc::new(move |i, _, v| v + b.at(i, 0)),
        );
        let b = bias.clone();
        add(
            Class::Addressing,
            "bias_index",
            "the bias is taken by the row, not the column".into(),
            4.0,
            false,
            Arc::new(move |i, _, v| v + b.at(i, i % cols)),
        );
        let to = |f: Format, how: Rounding| move |x: f64| f.decode(f.encode(x, how, Overflow::Native));
        let roundings: [(&str, &dyn Fn(f64) -> f64); 6] = [
            ("rounded to bf16", &to(Format::Bf16, Rounding::NearestEven)),
            ("rounded to f16", &to(Format::F16, Rounding::NearestEven)),
            ("cut to bf16", &to(Format::Bf16, Rounding::TowardZero)),
            ("cut to whole numbers", &f64::trunc),
            ("rounded to whole numbers", &f64::round_ties_even),
            ("rounded down to whole numbers", &f64::floor),
        ];
        for (words, round) in roundings {
            let b = bias.map(round);
            if b.stored() != bias.stored() {
                let words = format!("the bias is {words}");
                add(Class::RoundOrder, "bias_rounded", words, 4.0, false, Arc::new(move |i, j, v| v + b.at(i, j)));
            }
        }
        met::scaled_bias(s, &mut add);
        bias_gain::theory(s, &mut add);
        biases::of_experts(s, &mut add);
        biases::vectors(s, &mut add);
        biases::times_and_cut(s, &mut add);
    }
    if let Some((limit, n)) = limit(s) {
        let b = bias.clone();
        add(
            Class::OverflowWrap,
            "limited",
            format!("the result is clamped to ±{limit}{}, which {n} elements have", codes(s, limit)),
            20.0,
            false,
            Arc::new(move |i, j, v| (v + b.at(i, j)).clamp(-limit, limit)),
        );
    }
    // Clamps and overflow of what is accumulated.
    for (limit, words) in [
        (65504.0, "f16's range"),
        (32767.0, "16 bits"),
        (448.0, "e4m3's range"),
        (240.0, "e4m3fnuz's range"),
        (57344.0, "e5m2's range"),
        (127.0, "8 bits"),
        (6.0, "e2m1's range"),
        (10.0, "10"),
        (7.0, "7"),
    ] {
        let b = bias.clone();
        add(
            Class::OverflowWrap,
            "clamped",
            format!("the result is clamped to {words} (±{limit})"),
            4.0,
            false,
            Arc::new(move |i, j, v| (v + b.at(i, j)).clamp(-limit, limit)),
        );
    }
    let b = bias.clone();
    add(
        Class::SilentSkip,
        "relu",
        "negative results are 0, as if a relu were applied".into(),
        4.0,
        false,
        Arc::new(move |i, j, v| (v + b.at(i, j)).max(0.0)),
    );
    let b = bias.clone();
    add(
        Class::OverflowWrap,
        "f16_overflow",
        "sums beyond f16's range are Inf".into(),
        3.0,
        false,
        Arc::new(move |i, j, v| {
            let y = v + b.at(i, j);
            if y.abs() >= 65520.0 { y.signum() * f64::INFINITY } else { y }
        }),
    );
    let b = bias.clone();
    let negated: Finish = Arc::new(move |i, j, v| -(v + b.at(i, j)));
    if !ends_alone(s) {
        add(Class::SilentSkip, "negated", "the result has the other sign".into(), 3.0, false, negated);
    }
    // Where nothing is summed their rounding is that of subnormal codes, twice.
    let fnuz = |f: &Format| matches!(f, Format::E4m3Fnuz | Format::E5m2Fnuz);
    let all_formats = [Format::Bf16, Format::F16, Format::E4m3, Format::E5m2, Format::E4m3Fnuz, Format::E5m2Fnuz];
    for f in all_formats.into_iter().filter(|f| !(s.alone && fnuz(f))) {
        let b = bias.clone();
        let round = move |x: f64| f.decode(f.encode(x, Rounding::NearestEven, Overflow::Native));
        add(
            Class::RoundOrder,
            "rounded_before_bias",
            format!("the sum is rounded to {f} before the bias is added or the result stored"),
            3.0,
            false,
            Arc::new(move |i, j, v| round(v) + b.at(i, j)),
        );
        let cut = move |x: f64| f.decode(f.encode(x, Rounding::TowardZero, Overflow::Native));
        let b = bias.clone();
        add(
            Class::Rounding,
            "truncated",
            format!("the result is cut to {f}"),
            3.0,
            false,
            Arc::new(move |i, j, v| cut(v + b.at(i, j))),
        );
    }
    all
}

/// The largest magnitude, where so many elements have it that it is a limit: and how many.
fn limit(s: &System) -> Option<(f64, usize)> {
    let wrong = || (0..s.actual.len()).filter(|at| s.is_wrong[*at] && s.actual[*at].is_finite());
    let most = wrong().map(|at| s.actual[at].abs()).fold(0.0, f64::max);
    let n = wrong().filter(|at| s.actual[*at].abs() == most).count();
    let others = (0..s.actual.len()).any(|at| s.actual[at].is_finite() && s.actual[at].abs() < most);
    (n >= 8 && most > 0.0 && others).then_some((most, n))
}

/// Those without a number to find, for what has another fault too.
pub fn simple(s: &System) -> Vec<Theory> {
    let bias = s.bias.clone();
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &str, words: &str, bits: f64, f: Finish| {
        let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(bits);
        t.finish = Some(f);
        all.push(t);
    };
    if s.bias.any() {
        let b = bias.clone();
        add(Class::SilentSkip, "bias", "the bias is not added", 2.0, Arc::new(|_, _, v| v));
        add(Class::SilentSkip, "bias_twice", "the bias is added twice", 3.0, Arc::new(move |i, j, v| v + 2.0 * b.at(i, j)));
    }
    let b = bias.clone();
    add(
        Class::SilentSkip,
        "relu",
        "negative results are 0, as if a relu were applied",
        4.0,
        Arc::new(move |i, j, v| (v + b.at(i, j)).max(0.0)),
    );
    add(Class::SilentSkip, "negated", "the result has the other sign", 3.0, Arc::new(move |i, j, v| -(v + bias.at(i, j))));
    all
}

/// What becomes of a value on the grid of the output: other roundings, integers that wrap.
pub fn roundings(s: &System) -> Vec<Theory> {
    if !s.out.is_quantized() {
        return Vec::new();
    }
    let mut all = Vec::new();
    let cols = s.cols;
    type Whole = fn(f64) -> f64;
    let ways: [(Class, &str, &str, Whole); 5] = [
        (Class::Rounding, "toward_zero", "is cut instead of rounded to nearest", f64::trunc),
        (Class::Rounding, "down", "is rounded toward −∞", f64::floor),
        (Class::Rounding, "up", "is rounded toward +∞", f64::ceil),
        (Class::Rounding, "half_away", "is rounded with ties away from zero", f64::round),
        (Class::Rounding, "half_up", "is rounded with ties toward +∞", |x| (x + 0.5).floor()),
    ];
    for (class, variant, words, whole) in ways {
        let (out, bias) = (s.out.clone(), s.bias.clone());
        let mut t = Theory::new(class, "out", format!("out.{variant}"), format!("the result {words}")).bits(4.0);
        t.finish = Some(Arc::new(move |i, j, v| {
            let y = v + bias.at(i, j);
            let at = i * cols + j;
            if out.is_saturated(at, out.round(at, y)) {
                return y;
            }
            let step = out.spacing(at, y);
            if step > 0.0 && step.is_finite() { whole(y / step) * step } else { y }
        }));
        all.push(t);
    }
    let f = s.out.format();
    if f.is_integer() {
        let (out, bias) = (s.out.clone(), s.bias.clone());
        let (low, span) = (f.min_finite(), f64::from(1u32 << f.bits()));
        let mut t = Theory::new(Class::OverflowWrap, "out", "out.wrapped", "integers are not clamped: they wrap").bits(3.0);
        t.finish = Some(Arc::new(move |i, j, v| {
            let y = v + bias.at(i, j);
            let step = out.spacing(i * cols + j, 0.0);
            if step > 0.0 { (((y / step).round_ties_even() - low).rem_euclid(span) + low) * step } else { y }
        }));
        all.push(t);
    }
    all
}

/// What sums suffer in units of the accumulator, before scales meet them: another range, 16 bits.
pub fn accumulated(s: &System) -> Vec<Theory> {
    let row = |g: &super::given::Given, n: usize| -> Option<Vec<f64>> {
        (g.grid.1 == 1 && s.parts.len() == 1).then(|| (0..n).map(|i| g.step(i, 0)).collect())
    };
    let (a, b) = (row(&s.a, s.rows), row(&s.b, s.cols));
    let a_and_b = a.is_some() && b.is_some();
    let ones = |n: usize| vec![1.0; n];
    let both = s.a.global * s.b.global;
    let mut units: Vec<(&str, Vec<f64>, Vec<f64>)> = Vec::new();
    if let (Some(a), Some(b)) = (&a, &b) {
        units.push(("both scales", a.clone(), b.clone()));
    }
    if let Some(a) = a.filter(|a| a.iter().any(|x| *x != 1.0)) {
        units.push(("the scale of a", a, ones(s.cols)));
    }
    if let Some(b) = b.filter(|b| b.iter().any(|x| *x != 1.0)) {
        units.push(("the scale of b", ones(s.rows), b));
    }
    if both != 1.0 {
        units.push(("the second-level scales", vec![both; s.rows], ones(s.cols)));
    }
    let f16 = |x: f64| Format::F16.decode(Format::F16.encode(x, Rounding::NearestEven, Overflow::Native));
    let bf16 = |x: f64| Format::Bf16.decode(Format::Bf16.encode(x, Rounding::NearestEven, Overflow::Native));
    // Sums of codes are whole.
    type Narrow = fn(f64) -> f64;
    let f16_clamped = |x: f64| Format::F16.decode(Format::F16.encode(x, Rounding::NearestEven, Overflow::Saturate));
    let ways: [(Class, &str, &str, Narrow); 10] = [
        (Class::OverflowWrap, "f16", "is rounded to f16, Inf where it is larger", f16),
        (Class::OverflowWrap, "f16_rounded_clamped", "is rounded to f16 and clamped to its range", f16_clamped),
        (Class::OverflowWrap, "f16_clamped", "is clamped to f16's range", |x| x.clamp(-65504.0, 65504.0)),
        (Class::OverflowWrap, "f16_inf", "is Inf where f16 ends", |x| {
            if x.abs() >= 65520.0 { x.signum() * f64::INFINITY } else { x }
        }),
        (Class::OverflowWrap, "i16_wrapped", "wraps at 16 bits", |x| (x.round() + 32768.0).rem_euclid(65536.0) - 32768.0),
        (Class::OverflowWrap, "i16_clamped", "is clamped to 16 bits", |x| x.clamp(-32768.0, 32767.0)),
        (Class::OverflowWrap, "i24_wrapped", "wraps at 24 bits", |x| {
            (x.round() + 8_388_608.0).rem_euclid(16_777_216.0) - 8_388_608.0
        }),
        (Class::OverflowWrap, "i8_wrapped", "wraps at 8 bits", |x| (x.round() + 128.0).rem_euclid(256.0) - 128.0),
        (Class::OverflowWrap, "i8_clamped", "is clamped to 8 bits", |x| x.clamp(-128.0, 127.0)),
        (Class::RoundOrder, "bf16", "is rounded to bf16", bf16),
    ];
    let mut all = Vec::new();
    // One scale a row of a, taken by the column of the result, and the other way about.
    if let [(_, rows, cols), ..] = &units[..]
        && a_and_b
    {
        for (by_column, words) in
            [(true, "the scale of a is taken by the column"), (false, "the scale of b is taken by the row")]
        {
            let (rows, cols, bias) = (rows.clone(), cols.clone(), s.bias.clone());
            let variant = if by_column { "a.by_column" } else { "b.by_row" };
            let mut t = Theory::new(Class::ScaleLayout, if by_column { "a" } else { "b" }, variant, words).bits(4.0);
            t.finish = Some(Arc::new(move |i, j, v| {
                let (own, other) = if by_column { (rows[i], rows.get(j)) } else { (cols[j], cols.get(i)) };
                other.map_or(f64::NAN, |other| v / own * other) + bias.at(i, j)
            }));
            all.push(t);
        }
    }
    if let [(_, rows, cols), ..] = &units[..]
        && a_and_b
        && s.rows == s.cols
    {
        let words = "the scales of a are applied along the columns and those of b along the rows";
        let mut t = Theory::new(Class::ScaleLayout, "a", "both.other_axis", words).bits(3.0);
        let (rows, cols, bias) = (rows.clone(), cols.clone(), s.bias.clone());
        t.finish = Some(Arc::new(move |i, j, v| v / (rows[i] * cols[j]) * (rows[j] * cols[i]) + bias.at(i, j)));
        all.push(t);
    }
    for (words, rows, cols) in &units {
        // Whether anything is beyond it decides between the range and the rounding.
        let beyond = (0..s.ideal.len()).any(|at| {
            let unit = rows[at / s.cols] * cols[at % s.cols];
            ((s.ideal[at] - s.bias.at(at / s.cols, at % s.cols)) / unit).abs() >= 65520.0
        });
        for (class, variant, what, narrow) in ways {
            let (rows, cols, bias) = (rows.clone(), cols.clone(), s.bias.clone());
            let class = if variant == "f16" && !beyond { Class::RoundOrder } else { class };
            let mut t = Theory::new(
                class,
                "out",
                format!("out.accumulator_{variant}"),
                format!("the sum before {words} meet it {what}"),
            )
            .bits(5.0);
            t.finish = Some(Arc::new(move |i, j, v| {
                let unit = rows[i] * cols[j];
                if unit == 0.0 { v + bias.at(i, j) } else { narrow(v / unit) * unit + bias.at(i, j) }
            }));
            all.push(t);
        }
    }
    all
}

/// Takes a theory: class, variant, words, bits, whether a number in it was fitted, and what it does.
pub type Add<'x> = dyn FnMut(Class, &str, String, f64, bool, Finish) + 'x;

/// A limit in codes, where all of a quantized result has one scale.
fn codes(s: &System, limit: f64) -> String {
    let (first, last) = (s.out.range(0).1, s.out.range(s.rows * s.cols - 1).1);
    if !s.out.is_quantized() || first != last {
        return String::new();
    }
    format!(" (±{} in codes)", short(limit / first * s.out.format().max_finite(), 1e-6))
}

/// The number in the interval with the fewest digits, where the interval is narrow enough to say.
pub fn roundest(low: f64, high: f64) -> f64 {
    let known = (-((high - low) / low.abs().max(1e-300)).max(1e-15).log10()).floor() as i32;
    for digits in known.clamp(2, 14)..15 {
        let unit = 10f64.powi(digits - 1 - (low.abs().max(high.abs())).log10().floor() as i32);
        let x = (0.5 * (low + high) * unit).round() / unit;
        if low <= x && x <= high {
            return x;
        }
    }
    0.5 * (low + high)
}

pub fn short(x: f64, width: f64) -> String {
    let digits = (-(width / x.abs()).max(1e-12).log10()).ceil().clamp(2.0, 9.0) as usize;
    if x != 0.0 && !(1e-3..1e6).contains(&x.abs()) {
        return format!("{x:.digits$e}");
    }
    // As many significant ones of what is below 1.
    let behind = digits + if x.abs() < 1.0 && x != 0.0 { (-x.abs().log10()).floor() as usize } else { 0 };
    let text = format!("{x:.behind$}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
