//! Activations whose steps are each rounded to 16 bits, or stand in another order: what is clamped only after it was activated.
//!
//! ```text
//! e = e^−|x|  ──►  d = 1 + e  ──►  s = 1/d  ──►  below 0: 1 − s, or e·s  ──►  x·s·gate          every arrow a rounding
//! ```

use super::formulas::{At, Formula, formula};
use crate::Format;
use crate::op::activation::{act, gate, limited};
use crate::op::{Act, Clamp};
use crate::tensor::round_to;

/// How σ is made of numbers of 16 bits.
#[derive(Clone, Copy)]
enum Sigma {
    /// 1/(1 + e^−x).
    Plain,
    /// 1/(1 + e^−|x|), and what is missing from 1 below 0.
    Rest,
    /// The same, and e^−|x| times it below 0.
    Stable,
    /// (1 + tanh(x/2))/2.
    Tanh,
}

const SIGMAS: [(Sigma, &str); 4] = [
    (Sigma::Plain, "1/(1 + e^−x)"),
    (Sigma::Rest, "1/(1 + e^−|x|), and 1 less that below 0"),
    (Sigma::Stable, "1/(1 + e^−|x|), and e^−|x| times that below 0"),
    (Sigma::Tanh, "(1 + tanh(x/2))/2"),
];

fn sigma(way: Sigma, x: f64, r: impl Fn(f64) -> f64) -> f64 {
    match way {
        Sigma::Plain => r(1.0 / r(1.0 + r((-x).exp()))),
        Sigma::Tanh => r(0.5 * r(1.0 + r((0.5 * x).tanh()))),
        Sigma::Rest | Sigma::Stable => {
            let e = r((-x.abs()).exp());
            let s = r(1.0 / r(1.0 + e));
            match way {
                _ if x >= 0.0 => s,
                Sigma::Rest => r(1.0 - s),
                _ => r(e * s),
            }
        }
    }
}

/// The factor of x in σ, and the name, of activations that are x·σ.
fn factor(own: Act) -> Option<(f64, &'static str)> {
    match own {
        Act::Silu | Act::SwigluLimit(_) => Some((1.0, "silu")),
        Act::Qgelu | Act::SwigluOai(_) => Some((1.702, "quick gelu")),
        _ => None,
    }
}

/// Every step in 16 bits.
fn narrow(all: &mut Vec<Formula>, own: Act, gated: bool) {
    let Some((alpha, name)) = factor(own) else { return };
    for f in [Format::F16, Format::Bf16] {
        let r = move |x: f64| f64::from(round_to(f, x as f32));
        for (way, how) in SIGMAS {
            for product in [false, true] {
                let too = if product { ", and x times it" } else { "" };
                let words = format!("the activation is {name} whose σ is computed in {f} at every step, as {how}{too}");
                all.push(formula(words, move |at: &At| {
                    let one = |j: usize| {
                        let x = limited(own, at.x()[j]);
                        let z = if alpha == 1.0 { x } else { r(alpha * x) };
                        let y = x * sigma(way, z, r);
                        (if product { r(y) } else { y }) * if gated { gate(own, at.x()[at.cols + j]) } else { 1.0 }
                    };
                    (0..at.cols).map(one).collect()
                }));
            }
        }
    }
}

/// How gelu is made of numbers of 16 bits.
#[derive(Clone, Copy)]
struct Gelu {
    format: Format,
    /// Its constants are 16-bit numbers as well.
    constants: bool,
    inner: Inner,
    /// tanh is (e^2z − 1)/(e^2z + 1).
    open: bool,
}

/// How the argument is put together.
#[derive(Clone, Copy)]
enum Inner {
    /// c·(x·x·x) + x.
    Cube,
    /// c·x·x·x + x.
    InOrder,
    /// x·(1 + c·x·x).
    Factored,
    /// x/√2, of the error function.
    Erf,
}

const INNERS: [(Inner, &str); 4] =
    [(Inner::Cube, "c·x³ + x"), (Inner::InOrder, "c·x·x·x + x"), (Inner::Factored, "x·(1 + c·x²)"), (Inner::Erf, "")];

impl Gelu {
    fn of(self, x: f64) -> f64 {
        let r = |x: f64| f64::from(round_to(self.format, x as f32));
        let constant = |c: f64| if self.constants { r(c) } else { c };
        let (c, k) = (constant(0.044715), constant(0.797_884_560_8));
        let t = match self.inner {
            Inner::Erf => r(libm::erf(r(x * constant(std::f64::consts::FRAC_1_SQRT_2)))),
            inner => {
                let sum = match inner {
                    Inner::Cube => r(x + r(c * r(r(x * x) * x))),
                    Inner::InOrder => r(x + r(r(r(c * x) * x) * x)),
                    _ => r(x * r(1.0 + r(c * r(x * x)))),
                };
                let z = r(k * sum);
                let e = r(r(2.0 * z).exp());
                if self.open { r(r(e - 1.0) / r(e + 1.0)) } else { r(z.tanh()) }
            }
        };
        r(r(0.5 * x) * r(1.0 + t))
    }

    fn words(self, inner: &str) -> String {
        let f = self.format;
        let constants = if self.constants { ", constants too" } else { "" };
        let how = match (self.inner, self.open) {
            (Inner::Erf, _) => {
                return format!("the activation is gelu by the error function, every step of it in {f}{constants}");
            }
            (_, true) => ", tanh as (e^2z − 1)/(e^2z + 1), which is NaN where e^2z overflows",
            _ => "",
        };
        format!(
            "the activation is gelu by its tanh approximation, every step of it in {f}{constants}: its argument from {inner}{how}"
        )
    }
}

/// Every step of gelu in 16 bits.
fn narrow_gelu(all: &mut Vec<Formula>, own: Act, gated: bool) {
    if !matches!(own, Act::Gelu | Act::GeluErf) {
        return;
    }
    for (format, constants) in [Format::F16, Format::Bf16].into_iter().flat_map(|f| [(f, true), (f, false)]) {
        for (inner, words) in INNERS {
            for open in [false, true] {
                let gelu = Gelu { format, constants, inner, open };
                if open && matches!(inner, Inner::Erf) {
                    continue;
                }
                all.push(formula(gelu.words(words), move |at: &At| {
                    let by = |j: usize| if gated { gate(own, at.x()[at.cols + j]) } else { 1.0 };
                    (0..at.cols).map(|j| gelu.of(at.x()[j]) * by(j)).collect()
                }));
            }
        }
    }
}

/// Clamps behind the activation, or behind the gate.
fn late(all: &mut Vec<Formula>, own: Act) {
    let Some(c) = own.clamp() else { return };
    let limit = f64::from(c.limit());
    let free = own.with(Clamp::new(c.alpha(), f32::INFINITY));
    let mut with = |words: String, f: fn(f64, f64) -> f64, clamped: bool| {
        all.push(formula(words, move |r: &At| {
            let by = |j: usize| gate(if clamped { own } else { free }, r.x()[r.cols + j]);
            (0..r.cols).map(|j| f(act(free, r.x()[j]), limit) * by(j)).collect()
        }));
    };
    with(format!("the activated value is clamped at {limit}, and not x before it"), |y, l| y.min(l), true);
    with(format!("the activated value is clamped at ±{limit}, and not x before it"), |y, l| y.clamp(-l, l), true);
    with(
        format!("the activated value is clamped at {limit}, and not x before it; and the gate is not clamped"),
        |y, l| y.min(l),
        false,
    );
    all.push(formula(
        format!("the product with the gate is clamped at ±{limit}, and neither x nor the gate"),
        move |r: &At| (0..r.cols).map(|j| (act(free, r.x()[j]) * gate(free, r.x()[r.cols + j])).clamp(-limit, limit)).collect(),
    ));
}

/// Formulas of an activation whose steps are rounded or stand in another order.
pub fn formulas(own: Act, gated: bool) -> Vec<Formula> {
    let mut all = Vec::new();
    narrow(&mut all, own, gated);
    narrow_gelu(&mut all, own, gated);
    if gated {
        late(&mut all, own);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(own: Act, gated: bool, words: &str, x: &[f64]) -> Vec<f64> {
        let rows = [x.to_vec()];
        let cols = if gated { x.len() / 2 } else { x.len() };
        let at = At { rows: &rows, i: 0, gamma: &[], beta: &[], eps: 0.0, cols };
        formulas(own, gated).iter().find(|f| f.words.ends_with(words)).unwrap_or_else(|| panic!("{words}")).row(&at)
    }

    /// At −8, e^−8 = 0.000335463, in f16 0.00033545; 1 + it is 1 in f16: nothing is left of 1 − 1.
    #[test]
    fn sigmas_in_sixteen_bits_by_hand() {
        let words = |how: &str| format!("σ is computed in f16 at every step, as {how}");
        let rest = words("1/(1 + e^−|x|), and 1 less that below 0");
        assert_eq!(row(Act::Silu, false, &rest, &[-8.0]), [0.0]);
        let e = half::f16::from_f64((-8f64).exp()).to_f64();
        assert_eq!(row(Act::Silu, false, &words("1/(1 + e^−|x|), and e^−|x| times that below 0"), &[-8.0]), [-8.0 * e]);
        // e^3 = 20.0855, in f16 20.078125; one more is 21.078125, its reciprocal 0.0474.
        let s = half::f16::from_f64(1.0 / 21.078125).to_f64();
        assert_eq!(row(Act::Silu, false, &words("1/(1 + e^−x)"), &[-3.0]), [-3.0 * s]);
        let product = half::f16::from_f64(-3.0 * s).to_f64();
        assert_eq!(row(Act::Silu, true, &words("1/(1 + e^−x), and x times it"), &[-3.0, 2.0]), [2.0 * product]);
        assert!(formulas(Act::Relu, false).is_empty());
    }

    /// At 4: c·x is 0.17883 in f16, twice times 4 2.8613; 6.8594 in f16, times k 5.4727; e^10.945 is beyond 2¹⁵, and at 5 beyond f16.
    #[test]
    fn gelus_in_sixteen_bits_by_hand() {
        let h = |x: f64| half::f16::from_f64(x).to_f64();
        let words = "in f16, constants too: its argument from c·x·x·x + x, tanh as (e^2z − 1)/(e^2z + 1), which is NaN where e^2z overflows";
        let z = h(h(0.797_884_560_8) * h(4.0 + h(h(h(h(0.044715) * 4.0) * 4.0) * 4.0)));
        let e = h((2.0 * z).exp());
        assert_eq!(row(Act::Gelu, false, words, &[4.0]), [h(2.0 * h(1.0 + h(h(e - 1.0) / h(e + 1.0))))]);
        assert!(row(Act::Gelu, false, words, &[5.0])[0].is_nan());
        // 1 + tanh of what lies below −1 by less than a step of bf16 is 0.
        let b = |x: f64| half::bf16::from_f64(x).to_f64();
        let argument = |x: f64| b(0.797_884_560_8 * b(x + b(0.044715 * b(b(x * x) * x))));
        let words = "every step of it in bf16: its argument from c·x³ + x";
        for x in [-3.5f64, -1.0, 0.75, 2.0] {
            let want = b(b(0.5 * x) * b(1.0 + b(argument(x).tanh())));
            assert_eq!(row(Act::Gelu, false, words, &[x]), [want]);
            assert_eq!(row(Act::GeluErf, true, words, &[x, 3.0]), [3.0 * want]);
        }
        let erf = "by the error function, every step of it in bf16, constants too";
        let want = b(b(0.5) * b(1.0 + b(libm::erf(b(b(std::f64::consts::FRAC_1_SQRT_2))))));
        assert_eq!(row(Act::GeluErf, false, erf, &[1.0]), [want]);
    }

    /// x of 9 and 2, gates 3 and −9, the limit 4.
    #[test]
    fn clamps_behind_an_activation_by_hand() {
        let own = Act::SwigluLimit(Clamp::new(1.0, 4.0));
        let silu = |x: f64| x / (1.0 + (-x).exp());
        for (words, want) in [
            ("the activated value is clamped at 4, and not x before it", [4.0 * 3.0, silu(2.0) * -4.0]),
            ("and not x before it; and the gate is not clamped", [4.0 * 3.0, silu(2.0) * -9.0]),
            ("the product with the gate is clamped at ±4, and neither x nor the gate", [4.0, -4.0]),
        ] {
            let got = row(own, true, words, &[9.0, 2.0, 3.0, -9.0]);
            assert!(got.iter().zip(want).all(|(x, y)| (x - y).abs() < 1e-12), "{words}: {got:?} {want:?}");
        }
    }
}
