//! Activations, their derivatives and the gated forms in f64.
//!
//! The formulas are those of TransformerEngine's `common/util/math.h` with its decimal literals: gelu is the tanh
//! approximation whose forward and derivative use differently rounded constants, so the derivative is that of the source,
//! not the exact derivative of the forward.
//!
//! gelu_erf is the one of D. Hendrycks, K. Gimpel, *Gaussian Error Linear Units*, 2016, and PyTorch's default `gelu`
//! (`aten/src/ATen/native/cuda/ActivationGeluKernel.cu`). swiglu_oai is that of gpt-oss (`gpt_oss/torch/model.py`, `swiglu`), swiglu_limit
//! the one of the same name in vLLM and SGLang.

use super::{Act, Args64, Defined, Params, elementwise::column_sums};
use crate::{Error, Result};
use ndarray::{Array2, Zip, s};
use std::f64::consts::FRAC_1_SQRT_2;

/// σ(x) = 1/(1+e^−x)
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// σ'(x) = σ(x)·(1−σ(x)), the second factor as σ(−x): no cancellation.
fn sigmoid_slope(x: f64) -> f64 {
    sigmoid(x) * sigmoid(-x)
}

/// Φ(x) = ½·(1 + erf(x/√2)) = ½·erfc(−x/√2), the share of a normal distribution below x: no cancellation below 0. `erfc` is FreeBSD's, within
/// an ulp.
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// φ(x) = Φ'(x) = e^(−x²/2)/√(2π)
fn density(x: f64) -> f64 {
    const INVERSE: f64 = 0.398_942_280_401_432_7;
    (-0.5 * x * x).exp() * INVERSE
}

/// x as a clamped activation sees it: at most its limit; x itself of any other. NaN stays NaN.
pub fn limited(act: Act, x: f64) -> f64 {
    match act.clamp().map(|c| f64::from(c.limit())) {
        Some(limit) if x > limit => limit,
        _ => x,
    }
}

/// What the activation is multiplied by for a gate u: u itself; clamp(u, ±limit) of a clamped one, plus 1 in gpt-oss's. NaN stays NaN.
pub fn gate(act: Act, u: f64) -> f64 {
    let clamped = match act.clamp().map(|c| f64::from(c.limit())) {
        Some(limit) if u > limit => limit,
        Some(limit) if u < -limit => -limit,
        _ => u,
    };
    if matches!(act, Act::SwigluOai(_)) { clamped + 1.0 } else { clamped }
}

/// The derivative of [`gate`]: 0 where it is clamped, else 1.
fn gate_slope(act: Act, u: f64) -> f64 {
    f64::from(!act.clamp().is_some_and(|c| u.abs() > f64::from(c.limit())))
}

/// act(x).
///
/// | act | formula |
/// |---|---|
/// | gelu | x·(0.5 + 0.5·tanh(x·(0.79788456 + 0.03567741·x²))) = x·σ(2·x·(…)) |
/// | silu | x·σ(x) |
/// | qgelu | x·σ(1.702·x) |
/// | relu | max(x, 0), NaN → 0 |
/// | srelu | x² for x > 0, else 0; NaN → 0 |
/// | gelu_erf | x·Φ(x) = x/2·(1 + erf(x/√2)) |
/// | swiglu_oai | g·σ(α·g), g = min(x, limit) |
/// | swiglu_limit | g·σ(g), g = min(x, limit) |
pub fn act(act: Act, x: f64) -> f64 {
    match act {
        Act::Gelu => x * sigmoid(2.0 * x * (0.79788456 + 0.03567741 * x * x)),
        Act::Silu => x * sigmoid(x),
        Act::Qgelu => x * sigmoid(1.702 * x),
        Act::Relu => x.max(0.0),
        Act::Srelu => {
            if x > 0.0 {
                x * x
            } else {
                0.0
            }
        }
        Act::GeluErf => x * normal(x),
        Act::SwigluOai(c) => {
            let g = limited(act, x);
            g * sigmoid(f64::from(c.alpha()) * g)
        }
        Act::SwigluLimit(_) => {
            let g = limited(act, x);
            g * sigmoid(g)
        }
    }
}

/// act'(x) as the source defines it.
///
/// | act | formula |
/// |---|---|
/// | gelu | t = tanh(0.79788456·x·(1 + 0.044715·x²)); 0.5·x·(1−t²)·(0.79788456 + 0.1070322243·x²) + 0.5·(1+t) |
/// | silu | x·σ'(x) + σ(x) |
/// | qgelu | 1.702·x·σ'(1.702·x) + σ(1.702·x) |
/// | relu | 1 for x > 0, else 0 |
/// | srelu | max(2x, 0), NaN → 0 |
/// | gelu_erf | Φ(x) + x·φ(x) |
/// | swiglu_oai, swiglu_limit | α·x·σ'(α·x) + σ(α·x) up to the limit (α = 1 of swiglu_limit), 0 beyond |
pub fn act_slope(act: Act, x: f64) -> f64 {
    match act {
        Act::Gelu => {
            // 1−t² = 4·σ(2z)·σ(−2z) and (1+t)/2 = σ(2z): the same without cancellation.
            let z = 2.0 * (0.79788456 * x * (1.0 + 0.044715 * x * x));
            2.0 * x * sigmoid_slope(z) * (0.79788456 + 0.1070322243 * x * x) + sigmoid(z)
        }
        Act::Silu => x * sigmoid_slope(x) + sigmoid(x),
        Act::Qgelu => 1.702 * x * sigmoid_slope(1.702 * x) + sigmoid(1.702 * x),
        Act::Relu => f64::from(x > 0.0),
        Act::Srelu => (2.0 * x).max(0.0),
        Act::GeluErf => normal(x) + x * density(x),
        Act::SwigluOai(c) | Act::SwigluLimit(c) if x > f64::from(c.limit()) => 0.0,
        Act::SwigluOai(c) => {
            let alpha = f64::from(c.alpha());
            alpha * x * sigmoid_slope(alpha * x) + sigmoid(alpha * x)
        }
        Act::SwigluLimit(_) => x * sigmoid_slope(x) + sigmoid(x),
    }
}

fn which(params: &Params) -> Result<Act> {
    params.act.ok_or_else(|| Error::value("activation", "none", "one of gelu, silu, relu, qgelu, srelu, gelu_erf"))
}

fn second<'a>(args: &'a Args64, what: &str, rows: usize, cols: usize) -> Result<&'a Array2<f64>> {
    let b = args.b.as_ref().ok_or_else(|| Error::shape(what, "no operand b", format!("{rows}×{cols}")))?;
    if b.dim() != (rows, cols) {
        return Err(Error::shape(what, format!("{:?}", b.dim()), format!("{rows}×{cols}")));
    }
    Ok(b)
}

/// d = act(a).
pub fn forward(params: &Params, args: &Args64) -> Result<Defined> {
    let f = which(params)?;
    Ok(Defined::plain(args.a.mapv(|x| act(f, x))))
}

/// d = a·act'(b): a is the gradient, b the forward input.
pub fn grad(params: &Params, args: &Args64) -> Result<Defined> {
    let f = which(params)?;
    let x = second(args, "forward input", args.a.nrows(), args.a.ncols())?;
    Ok(Defined::plain(Zip::from(&args.a).and(x).map_collect(|g, x| g * act_slope(f, *x))))
}

/// As [`grad`], with dbias\[j\] = Σ_i d\[i,j\].
pub fn grad_dbias(params: &Params, args: &Args64) -> Result<Defined> {
    let v = grad(params, args)?;
    Ok(Defined { dbias: Some(column_sums(&v.d)), ..v })
}

/// d\[i,j\] = act(a\[i,j\])·gate(a\[i,H+j\]): `[M,2H] → [M,H]`.
pub fn gated(params: &Params, args: &Args64) -> Result<Defined> {
    let f = which(params)?;
    let h = args.a.ncols() / 2;
    if args.a.ncols() != 2 * h {
        return Err(Error::shape("gated input", format!("{} columns", args.a.ncols()), "an even number of columns [a | b]"));
    }
    let (a, b) = (args.a.slice(s![.., ..h]), args.a.slice(s![.., h..]));
    Ok(Defined::plain(Zip::from(a).and(b).map_collect(|a, b| act(f, *a) * gate(f, *b))))
}

/// d\[i,j\] = act'(x\[i,j\])·g\[i,j\]·gate(x\[i,H+j\]) and d\[i,H+j\] = g\[i,j\]·act(x\[i,j\])·gate'(x\[i,H+j\]) with g = a `[M,H]`, x = b `[M,2H]`.
pub fn gated_grad(params: &Params, args: &Args64) -> Result<Defined> {
    let f = which(params)?;
    let (m, h) = args.a.dim();
    let x = second(args, "forward input of the gated gradient", m, 2 * h)?;
    let d = Array2::from_shape_fn((m, 2 * h), |(i, j)| match j < h {
        true => act_slope(f, x[(i, j)]) * args.a[(i, j)] * gate(f, x[(i, h + j)]),
        false => args.a[(i, j - h)] * act(f, x[(i, j - h)]) * gate_slope(f, x[(i, j)]),
    });
    Ok(Defined::plain(d))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Clamp;

    /// x, then gelu, gelu', silu, silu', qgelu, qgelu' of the formulas above in decimal arithmetic of 600 digits (Python's
    /// `decimal`), rounded to f64.
    const TABLE: &[(f64, [f64; 6])] = &[
        (
            -20.0,
            [
                -3.375350412969288e-261,
                -2.942434654134533e-259,
                -4.122307236380407e-08,
                -3.9161918660646786e-08,
                -3.2934102413993715e-14,
                -5.440713718791753e-14,
            ],
        ),
        (
            -8.0,
            [
                -3.1077770464467286e-21,
                -4.714784733164822e-20,
                -0.002682801043731825,
                -0.0023465512355853157,
                -9.766428865730378e-06,
                -1.5401638028495305e-05,
            ],
        ),
        (
            -5.5,
            [
                -5.927636640228249e-09,
                -4.676552903116259e-08,
                -0.0223857574374287,
                -0.01822450660588759,
                -0.00047303654130853026,
                -0.0007190323047791782,
            ],
        ),
        (
            -3.0,
            [
                -0.0036373917336512624,
                -0.011584166696075333,
                -0.14227761953270035,
                -0.08810410601516962,
                -0.018071309707785966,
                -0.02454832390565235,
            ],
        ),
        (
            -1.0,
            [
                -0.1588080091082937,
                -0.08296408365484395,
                -0.2689414213699951,
                0.07232948812851327,
                -0.1542042340671787,
                -0.06777960655633405,
            ],
        ),
        (
            -0.5,
            [
                -0.15428599021080008,
                0.13263009676098644,
                -0.18877033439907273,
                0.2600388126973482,
                -0.1496115633936199,
                0.12077808803458573,
            ],
        ),
        (
            -0.0009765625,
            [
                -0.0004879007890546074,
                0.4992208161082969,
                -0.0004880428314398462,
                0.4995117188276102,
                -0.0004878754616717886,
                0.4991689456951462,
            ],
        ),
        (0.0, [0.0, 0.5, 0.0, 0.5, 0.0, 0.5]),
        (
            0.0009765625,
            [
                0.0004886617109453926,
                0.5007791838917031,
                0.0004885196685601537,
                0.5004882811723897,
                0.0004886870383282114,
                0.5008310543048539,
            ],
        ),
        (
            0.5,
            [
                0.3457140097891999,
                0.8673699032390135,
                0.3112296656009273,
                0.7399611873026518,
                0.35038843660638014,
                0.8792219119654142,
            ],
        ),
        (
            1.0,
            [
                0.8411919908917063,
                1.082964083654844,
                0.7310585786300049,
                0.9276705118714867,
                0.8457957659328212,
                1.067779606556334,
            ],
        ),
        (
            2.75,
            [
                2.7422768564893776,
                1.0219489216973672,
                2.584761712021479,
                1.095223022599396,
                2.724729832290826,
                1.0334254497278468,
            ],
        ),
        (
            6.0,
            [
                5.9999999999156035,
                1.0000000007709975,
                5.985164261060191,
                1.0123264325915255,
                5.999779646450213,
                1.0003383023764771,
            ],
        ),
        (30.0, [30.0, 1.0, 29.999999999997193, 1.0000000000027136, 30.0, 1.0]),
    ];

    #[test]
    fn smooth_activations_equal_decimal_arithmetic() {
        let mut worst = 0.0f64;
        for (x, want) in TABLE {
            let got = [Act::Gelu, Act::Silu, Act::Qgelu].map(|a| [act(a, *x), act_slope(a, *x)]);
            for (got, want) in got.concat().iter().zip(want) {
                let err = if got == want { 0.0 } else { ((got - want) / want).abs() };
                // 1e-14 is 45 ulp: the argument of the sigmoid reaches -750, and an error of its ulp is one of 750 ulp there.
                assert!(err <= 1e-14 * x.abs().max(1.0), "at {x}: {got}, not {want}");
                worst = worst.max(err);
            }
        }
        println!("largest relative error {worst:e}");
        assert!(worst > 0.0);
    }

    /// x, then gelu_erf and its derivative: the series of erf in decimal arithmetic of 700 digits (Python's `decimal`), rounded to f64.
    const ERF_TABLE: &[(f64, f64, f64)] = &[
        (-20.0, -5.507248237212468e-88, -1.1014360483133464e-86),
        (-8.0, -4.976768459417427e-15, -3.979607261086796e-14),
        (-5.5, -1.0444259356238245e-07, -5.733472398739924e-07),
        (-3.0, -0.0040496940948902835, -0.011945647204183927),
        (-1.0, -0.15865525393145705, -0.0833154705876863),
        (-0.5, -0.15426876936299344, 0.13250487534383715),
        (-0.0009765625, -0.00048790078905392527, 0.4992208161062869),
        (0.0, 0.0, 0.5),
        (0.0009765625, 0.0004886617109460747, 0.5007791838937131),
        (0.5, 0.34573123063700656, 0.8674951246561629),
        (1.0, 0.8413447460685429, 1.0833154705876864),
        (2.75, 2.7418056511035998, 1.0220275336443208),
        (6.0, 5.999999994080474, 1.0000000354687095),
        (30.0, 30.0, 1.0),
    ];

    #[test]
    fn gelu_by_the_error_function_equals_decimal_arithmetic() {
        for (x, value, slope) in ERF_TABLE {
            for (got, want) in [(act(Act::GeluErf, *x), value), (act_slope(Act::GeluErf, *x), slope)] {
                let err = if got == *want { 0.0 } else { ((got - want) / want).abs() };
                // An ulp of x/√2 is one of x² ulp in the tail.
                assert!(err <= 1e-15 * (x * x).max(1.0), "at {x}: {got}, not {want}: {err:e}");
            }
        }
        let ends = [f64::INFINITY, f64::NAN, f64::NEG_INFINITY].map(|x| act(Act::GeluErf, x));
        assert!(ends[0] == f64::INFINITY && ends[1].is_nan() && ends[2].is_nan(), "{ends:?}: as PyTorch has it, −∞·0");
    }

    /// erf and erfc beside the same series: within an ulp or two.
    #[test]
    fn the_error_function_is_within_two_ulp() {
        for (x, erf, erfc) in [
            (0.1, 0.1124629160182849, 0.887537083981715),
            (0.5, 0.5204998778130465, 0.4795001221869535),
            (0.83, 0.759523756937773, 0.24047624306222704),
            (1.1, 0.8802050695740817, 0.11979493042591827),
            (2.0, 0.9953222650189527, 0.004677734981047266),
            (3.5, 0.9999992569016276, 7.430983723414128e-07),
        ] {
            let near = |got: f64, want: f64| (got.to_bits() as i64 - f64::to_bits(want) as i64).abs() <= 2;
            assert!(near(libm::erf(x), erf) && near(libm::erfc(x), erfc), "{x}: {} {}", libm::erf(x), libm::erfc(x));
        }
    }

    #[test]
    fn relu_and_srelu_by_hand() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (x, relu, slope, srelu, srelu_slope) in [
            (-inf, 0.0, 0.0, 0.0, 0.0),
            (-2.0, 0.0, 0.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, 0.0, 0.0),
            (1.5, 1.5, 1.0, 2.25, 3.0),
            (inf, inf, 1.0, inf, inf),
            (nan, 0.0, 0.0, 0.0, 0.0),
        ] {
            assert_eq!((act(Act::Relu, x), act_slope(Act::Relu, x)), (relu, slope), "{x}");
            assert_eq!((act(Act::Srelu, x), act_slope(Act::Srelu, x)), (srelu, srelu_slope), "{x}");
        }
    }

    /// The derivatives are those of the forward formulas: exactly so for silu and qgelu, up to the digits of the source's
    /// literals for gelu (0.1070322243 ≈ 3·0.79788456·0.044715, and 0.03567741 ≈ 0.79788456·0.044715).
    #[test]
    fn derivatives_agree_with_difference_quotients() {
        for a in [Act::Gelu, Act::Silu, Act::Qgelu, Act::Srelu, Act::GeluErf] {
            for i in -60..60 {
                let (x, h) = (f64::from(i) / 8.0 + 0.03, 1e-5);
                let quotient = (act(a, x + h) - act(a, x - h)) / (2.0 * h);
                assert!((quotient - act_slope(a, x)).abs() < 2e-7, "{a:?} at {x}: {quotient}, {}", act_slope(a, x));
            }
        }
    }

    #[test]
    fn gated_forms_by_hand() {
        let params = Params { act: Some(Act::Srelu), ..Params::default() };
        // x | gate: act(3)·5 = 45, act(−1)·7 = 0
        let x = ndarray::array![[3.0, -1.0, 5.0, 7.0]];
        let forward = gated(&params, &Args64 { a: x.clone(), ..Args64::default() }).unwrap();
        assert_eq!(forward.d, ndarray::array![[45.0, 0.0]]);
        // g = (2, 4): act'(3)·2·5 = 60, 0 | 2·act(3) = 18, 4·0
        let args = Args64 { a: ndarray::array![[2.0, 4.0]], b: Some(x), ..Args64::default() };
        assert_eq!(gated_grad(&params, &args).unwrap().d, ndarray::array![[60.0, 0.0, 18.0, 0.0]]);
        let narrow = Args64 { b: Some(ndarray::array![[1.0, 2.0]]), ..args.clone() };
        assert!(gated_grad(&params, &narrow).is_err() && gated_grad(&Params::default(), &args).is_err());
        let odd = Args64 { a: ndarray::array![[1.0, 2.0, 3.0]], ..Args64::default() };
        assert!(gated(&params, &odd).is_err());
    }

    /// limit 7: x = 9 and 40 are 7, the gates 8 and −8 are 7 and −7; σ(7) = 0.999088948805599, σ(1.702·7) = σ(11.914) = 0.999993304…
    #[test]
    fn clamped_forms_by_hand() {
        let x = ndarray::array![[9.0, 40.0, -1.0, 2.0, 8.0, -8.0, 3.0, -1.0]];
        let of = |act| {
            let params = Params { act: Some(act), ..Params::default() };
            gated(&params, &Args64 { a: x.clone(), ..Args64::default() }).unwrap().d.into_raw_vec_and_offset().0
        };
        let sigma = |z: f64| 1.0 / (1.0 + (-z).exp());
        let alpha = f64::from(1.702f32);
        let silu7 = 7.0 * 0.999_088_948_805_599;
        let want = [silu7 * 7.0, silu7 * -7.0, -sigma(-1.0) * 3.0, -2.0 * sigma(2.0)];
        for (got, want) in of(Act::SwigluLimit(Clamp::new(1.0, 7.0))).iter().zip(want) {
            assert!((got - want).abs() < 1e-13, "{got}, not {want}");
        }
        let oai7 = 7.0 * sigma(alpha * 7.0);
        let want = [oai7 * 8.0, oai7 * -6.0, -sigma(-alpha) * 4.0, 0.0];
        for (got, want) in of(Act::SwigluOai(Clamp::OAI)).iter().zip(want) {
            assert!((got - want).abs() < 1e-13, "{got}, not {want}");
        }
        assert!(act(Act::SwigluOai(Clamp::OAI), f64::NAN).is_nan() && gate(Act::SwigluOai(Clamp::OAI), f64::NAN).is_nan());
    }

    /// The gradient of a clamped form is that of difference quotients away from the limits, and 0 beyond them.
    #[test]
    fn gradients_of_clamped_forms_agree_with_difference_quotients() {
        for f in [Act::SwigluOai(Clamp::new(1.5, 3.0)), Act::SwigluLimit(Clamp::new(1.0, 3.0))] {
            let params = Params { act: Some(f), ..Params::default() };
            for (x, u) in [(1.0, 2.0), (-2.0, -2.5), (4.0, 1.0), (0.5, 5.0), (6.0, -7.0)] {
                let args = Args64 { a: ndarray::array![[1.0]], b: Some(ndarray::array![[x, u]]), ..Args64::default() };
                let got = gated_grad(&params, &args).unwrap().d;
                let of = |x: f64, u: f64| act(f, x) * gate(f, u);
                let h = 1e-6;
                let want = [(of(x + h, u) - of(x - h, u)) / (2.0 * h), (of(x, u + h) - of(x, u - h)) / (2.0 * h)];
                assert!((got[(0, 0)] - want[0]).abs() < 1e-7 && (got[(0, 1)] - want[1]).abs() < 1e-7, "{f:?}: {got}, {want:?}");
            }
        }
    }

    /// clamp(u, ±7) is u up to 7 itself.
    #[test]
    fn a_gate_at_its_limit_still_has_a_slope() {
        let beyond = 7f64.next_up();
        for own in [Act::SwigluOai(Clamp::OAI), Act::SwigluLimit(Clamp::new(1.0, 7.0))] {
            let slopes = [0.0, 7.0, -7.0, beyond, -beyond].map(|u| gate_slope(own, u));
            assert_eq!(slopes, [1.0, 1.0, 1.0, 0.0, 0.0]);
        }
        assert_eq!(gate_slope(Act::Silu, 1e9), 1.0);
    }
}
