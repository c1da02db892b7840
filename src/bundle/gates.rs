//! Formulas of activations that kernels use by mistake: other functions, gates of other places, steps in 16 bits, exponentials that overflow.

use super::formulas::{At, Formula, formula};
use super::gate_pairs;
use crate::op::activation::{act, gate, limited};
use crate::op::{Act, Clamp, Op};
use crate::order::Order as _;
use crate::tensor::round_to;
use crate::{Format, Overflow, Rounding};
use libm::erf;
use std::f64::consts::FRAC_1_SQRT_2;

/// Limits of gated activations that models have.
pub const LIMITS: [f64; 10] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 16.0];

/// Words, and what becomes of a number.
type Change = (&'static str, fn(f64) -> f64);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn bf16(x: f64) -> f64 {
    f64::from(round_to(Format::Bf16, x as f32))
}

fn f16(x: f64) -> f64 {
    f64::from(round_to(Format::F16, x as f32))
}

fn e4m3(x: f64) -> f64 {
    Format::E4m3.decode(Format::E4m3.encode(f64::from(x as f32), Rounding::NearestEven, Overflow::Saturate))
}

/// `(e^z − 1)/(e^z + 1)`, the exponential in f32: Inf/Inf where it overflows.
fn open_tanh(z: f64) -> f64 {
    let e = f64::from((z as f32).exp());
    if e.is_infinite() { f64::NAN } else { (e - 1.0) / (e + 1.0) }
}

/// `(e^z − e^−z)/(e^z + e^−z)` in f32: Inf/Inf where one of them overflows.
fn ratio_tanh(z: f64) -> f32 {
    let (up, down) = ((z as f32).exp(), (-z as f32).exp());
    (up - down) / (up + down)
}

fn inner(x: f64) -> f64 {
    0.7978845608 * (x + 0.044715 * x.powi(3))
}

/// Activations by another name, with other constants, and with steps in few bits.
pub const ACTS: [Change; 33] = [
    ("gelu by its tanh approximation", |x| act(Act::Gelu, x)),
    ("gelu by the error function, x·Φ(x)", |x| act(Act::GeluErf, x)),
    ("quick gelu, x·σ(1.702·x)", |x| act(Act::Qgelu, x)),
    ("silu, x·σ(x)", |x| act(Act::Silu, x)),
    ("relu", |x| act(Act::Relu, x)),
    ("squared relu", |x| act(Act::Srelu, x)),
    ("no activation at all", |x| x),
    ("leaky relu, 0.01·x below 0", |x| if x > 0.0 { x } else { 0.01 * x }),
    ("silu without its factor x: σ(x) alone", sigmoid),
    ("gelu with the constant 0.44715", |x| x * sigmoid(2.0 * 0.7978845608 * (x + 0.44715 * x.powi(3)))),
    ("silu with β = 1.25", |x| x * sigmoid(1.25 * x)),
    ("gelu whose tanh is (e^2z − 1)/(e^2z + 1) in f32: NaN where the exponential overflows", |x| {
        0.5 * x * (1.0 + open_tanh(2.0 * inner(x)))
    }),
    ("silu whose σ is e^x/(1 + e^x) in f32: NaN where the exponential overflows", |x| 0.5 * x * (1.0 + open_tanh(x))),
    ("quick gelu whose σ is e^z/(1 + e^z) in f32: NaN where the exponential overflows", |x| {
        0.5 * x * (1.0 + open_tanh(1.702 * x))
    }),
    ("silu in bf16: exponential, sum and quotient are each rounded", |x| bf16(x / bf16(1.0 + bf16((-x).exp())))),
    ("silu in bf16: exponential, sum, σ and product are each rounded", |x| bf16(x * bf16(1.0 / bf16(1.0 + bf16((-x).exp()))))),
    ("silu whose σ is rounded to bf16", |x| x * bf16(sigmoid(x))),
    ("silu in f16: exponential, sum and quotient are each rounded", |x| f16(x / f16(1.0 + f16((-x).exp())))),
    ("silu in f16: exponential, sum, σ and product are each rounded", |x| f16(x * f16(1.0 / f16(1.0 + f16((-x).exp()))))),
    ("silu whose σ is rounded to f16", |x| x * f16(sigmoid(x))),
    ("gelu whose tanh is rounded to bf16", |x| 0.5 * x * (1.0 + bf16(inner(x).tanh()))),
    ("gelu whose tanh is rounded to f16", |x| 0.5 * x * (1.0 + f16(inner(x).tanh()))),
    ("squared relu whose square is taken in f16: Inf above 255.9", |x| f16(x.max(0.0) * x.max(0.0))),
    ("squared relu whose square is rounded to bf16", |x| bf16(x.max(0.0) * x.max(0.0))),
    ("gelu by the error function of x, not of x/√2", |x| 0.5 * x * (1.0 + erf(x))),
    ("gelu whose erf is rounded to bf16", |x| 0.5 * x * (1.0 + bf16(erf(x * FRAC_1_SQRT_2)))),
    ("gelu whose erf is rounded to f16", |x| 0.5 * x * (1.0 + f16(erf(x * FRAC_1_SQRT_2)))),
    (
        "gelu whose tanh is (e^z − e^−z)/(e^z + e^−z) in f32: NaN where an exponential overflows, 0 where 1 + tanh cancels",
        |x| 0.5 * x * f64::from(1.0 + ratio_tanh(inner(x))),
    ),
    ("gelu without its factor x: Φ(x) alone, by its tanh approximation", |x| 0.5 * (1.0 + inner(x).tanh())),
    ("gelu without its factor x: Φ(x) alone, by the error function", |x| 0.5 * (1.0 + erf(x * FRAC_1_SQRT_2))),
    ("quick gelu without its factor x: σ(1.702·x) alone", |x| sigmoid(1.702 * x)),
    ("squared relu that squares negative values too: x²", |x| x * x),
    ("gelu with 0.044715·x² where x³ belongs", |x| x * sigmoid(2.0 * 0.7978845608 * (x + 0.044715 * x * x))),
];

/// What becomes of the gate.
pub const CHANGES: [Change; 11] = [
    ("1 is added to the gate, as gpt-oss has it", |u| u + 1.0),
    ("1 is subtracted from the gate", |u| u - 1.0),
    ("the gate has the other sign", |u| -u),
    ("the gate is multiplied by its own magnitude", |u| u * u.abs()),
    ("the gate is squared", |u| u * u),
    ("the gate is replaced by its magnitude", f64::abs),
    ("a negative gate becomes 0", |u| u.max(0.0)),
    ("the gate goes through σ", sigmoid),
    ("the gate is rounded to bf16", bf16),
    ("the gate is rounded to f16", f16),
    ("the gate is rounded to e4m3", e4m3),
];

/// The gate of (row, column).
type Gate = Box<dyn Fn(&At, usize) -> f64 + Send + Sync>;

/// Gates of other places, and what becomes of the right one.
fn gates(all: &mut Vec<Formula>, own: Act) {
    let mut changed = |words: String, read: Gate, f: fn(f64) -> f64| {
        all.push(formula(words, move |r| (0..r.cols).map(|j| act(own, r.x()[j]) * f(gate(own, read(r, j)))).collect()));
    };
    let mut with = |words: String, read: Gate| changed(words, read, |u| u);
    for (d, which) in [(1, "i + 1"), (-1, "i − 1")] {
        with(format!("the gate is that of row {which}"), Box::new(move |r, j| r.row(d)[r.cols + j]));
    }
    with(
        "the gate is that of row 0 for every row: its pointer lacks the row's offset".into(),
        Box::new(|r, j| r.rows[0][r.cols + j]),
    );
    for d in [2usize, 4, 8, 16, 32, 64] {
        with(format!("the gate is that of row (i / {d})·{d}"), Box::new(move |r, j| r.rows[r.i / d * d][r.cols + j]));
        with(format!("the gate is that of row i mod {d}"), Box::new(move |r, j| r.rows[r.i % d][r.cols + j]));
    }
    with("the gate is x again: its pointer lacks the half row".into(), Box::new(|r, j| r.x()[j]));
    with("the gate of column 0 is used for all columns".into(), Box::new(|r, _| r.x()[r.cols]));
    for d in super::formulas::SHIFTS {
        with(format!("the gate is that of column j + {d}, wrapped"), Box::new(move |r, j| r.x()[r.cols + (j + d) % r.cols]));
        let before = move |r: &At, j: usize| r.x()[r.cols + (j + r.cols - d % r.cols) % r.cols];
        with(format!("the gate is that of column j − {d}, wrapped"), Box::new(before));
        // In memory the last of x stand before the first gate.
        let early = move |r: &At, j: usize| (r.cols + j).checked_sub(d).map_or(f64::NAN, |at| r.x()[at]);
        let words =
            format!("the gate is that of column j − {d}, and before the first the last of x: its pointer is {d} too small");
        with(words, Box::new(early));
    }
    for (words, f) in CHANGES {
        changed(words.into(), Box::new(|r, j| r.x()[r.cols + j]), f);
    }
    displaced(&mut |words, read| changed(words, read, |u| u));
}

/// Alignments that a half row may be padded to.
const PADDED: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];

/// Gates that are read elsewhere in memory, over the ends of rows.
fn displaced(with: &mut impl FnMut(String, Gate)) {
    for unit in PADDED {
        let words = format!(
            "the second half of a row is read where it is when halves are padded to multiples of {unit}, on into the next row"
        );
        with(words, Box::new(move |r, j| r.memory(r.cols.next_multiple_of(unit) + j)));
    }
    for d in super::formulas::SHIFTS {
        let words = format!("the second half of a row is read {d} elements further on, on into the next row");
        with(words, Box::new(move |r, j| r.memory(r.cols + d + j)));
    }
}

/// What its changes begin with in [`ACTS`].
fn name(act: Act) -> &'static str {
    match act {
        Act::Gelu | Act::GeluErf => "gelu",
        Act::Silu | Act::SwigluLimit(_) => "silu",
        Act::Qgelu | Act::SwigluOai(_) => "quick gelu",
        Act::Relu => "relu",
        Act::Srelu => "squared relu",
    }
}

/// A clamped activation with a limit or a constant that is not its own. None of others.
fn clamps(all: &mut Vec<Formula>, own: Act) {
    let Some(c) = own.clamp() else { return };
    let (limit, plus) = (f64::from(c.limit()), if matches!(own, Act::SwigluOai(_)) { 1.0 } else { 0.0 });
    let free = own.with(Clamp::new(c.alpha(), f32::INFINITY));
    let mut with = |words: String, x: fn(f64, f64) -> f64, u: fn(f64, f64) -> f64| {
        all.push(formula(words, move |r| {
            (0..r.cols).map(|j| act(free, x(r.x()[j], limit)) * (u(r.x()[r.cols + j], limit) + plus)).collect()
        }));
    };
    let (above, both) = (|x: f64, limit: f64| x.min(limit), |u: f64, limit: f64| u.clamp(-limit, limit));
    with(format!("neither x nor the gate is clamped at {limit}"), |x, _| x, |u, _| u);
    with(format!("x is not clamped at {limit}"), |x, _| x, both);
    with(format!("the gate is not clamped at ±{limit}"), above, |u, _| u);
    with(format!("x is clamped at ±{limit}, not at {limit} alone"), both, both);
    with(format!("the gate is clamped at {limit} alone, not at ±{limit}"), above, above);
    if plus != 0.0 {
        all.push(formula("1 is not added to the gate", move |r| {
            (0..r.cols).map(|j| act(own, r.x()[j]) * r.x()[r.cols + j].clamp(-limit, limit)).collect()
        }));
        all.push(formula("the gate is clamped after 1 is added to it, not before", move |r| {
            (0..r.cols).map(|j| act(own, r.x()[j]) * (r.x()[r.cols + j] + 1.0).clamp(-limit, limit)).collect()
        }));
    }
    for other in LIMITS.into_iter().filter(|l| *l != limit) {
        let f = own.with(Clamp::new(c.alpha(), other as f32));
        all.push(formula(format!("the limit is {other}, not {limit}"), move |r| {
            (0..r.cols).map(|j| act(f, r.x()[j]) * gate(f, r.x()[r.cols + j])).collect()
        }));
    }
}

/// The formulas of an activation, the right one first.
pub fn activations(op: Op, own: Act) -> Vec<Formula> {
    let gated = op == Op::Gated;
    let by = move |r: &At, j: usize| if gated { gate(own, r.x()[r.cols + j]) } else { 1.0 };
    let made =
        move |f: fn(f64) -> f64| move |r: &At| (0..r.cols).map(|j| f(limited(own, r.x()[j])) * by(r, j)).collect::<Vec<f64>>();
    let mut all = vec![formula("", move |r| (0..r.cols).map(|j| act(own, r.x()[j]) * by(r, j)).collect())];
    clamps(&mut all, own);
    // Where several give the same numbers, the right function done in another way is likelier than another function.
    let (own_name, mut acts) = (name(own), ACTS);
    acts.order_by_key(|(words, _)| !words.starts_with(own_name));
    for (words, f) in acts {
        all.push(formula(format!("the activation is {words}"), made(f)));
    }
    for (d, which) in [(1isize, "i + 1"), (-1, "i − 1")] {
        all.push(formula(format!("x is that of row {which}"), move |r| {
            (0..r.cols).map(|j| act(own, r.row(d)[j]) * by(r, j)).collect()
        }));
    }
    all.push(formula("x is that of row 0 for every row: its pointer lacks the row's offset", move |r| {
        (0..r.cols).map(|j| act(own, r.rows[0][j]) * by(r, j)).collect()
    }));
    for (words, f) in [("bf16", bf16 as fn(f64) -> f64), ("f16", f16), ("e4m3", e4m3)] {
        all.push(formula(format!("x is rounded to {words} before it is activated"), move |r| {
            (0..r.cols).map(|j| act(own, f(r.x()[j])) * by(r, j)).collect()
        }));
        if gated {
            let words = format!(
                "the activation is rounded to {words} before it meets the gate: one rounding more than the formula has"
            );
            all.push(formula(words, move |r| (0..r.cols).map(|j| f(act(own, r.x()[j])) * by(r, j)).collect()));
        }
        let words = format!("the result is rounded to {words} before it is stored");
        all.push(formula(words, move |r| (0..r.cols).map(|j| f(act(own, r.x()[j]) * by(r, j))).collect()));
    }
    if gated {
        gates(&mut all, own);
        for (words, read) in gate_pairs::READS {
            all.push(formula(words, move |r| {
                (0..r.cols).map(|j| read(r, j)).map(|(x, u)| act(own, x) * gate(own, u)).collect()
            }));
        }
        all.push(formula("the gate is not multiplied", move |r| (0..r.cols).map(|j| act(own, r.x()[j])).collect()));
        all.push(formula("the activation is left out: the gate alone is written", move |r| r.x()[r.cols..].to_vec()));
        all.push(formula("the gate is activated too", move |r| {
            (0..r.cols).map(|j| act(own, r.x()[j]) * act(own, r.x()[r.cols + j])).collect()
        }));
        all.push(formula("gate and x are added, not multiplied", move |r| {
            (0..r.cols).map(|j| act(own, r.x()[j]) + gate(own, r.x()[r.cols + j])).collect()
        }));
        for limit in LIMITS {
            all.push(formula(format!("x is clamped at {limit} and the gate at ±{limit}"), move |r| {
                (0..r.cols).map(|j| act(own, r.x()[j].min(limit)) * r.x()[r.cols + j].clamp(-limit, limit)).collect()
            }));
            all.push(formula(format!("x is clamped at {limit}"), move |r| {
                (0..r.cols).map(|j| act(own, r.x()[j].min(limit)) * r.x()[r.cols + j]).collect()
            }));
            all.push(formula(
                format!("the formula of gpt-oss with a limit of {limit}: x·σ(1.702·x)·(gate + 1)"),
                move |r| {
                    let one = |j: usize| {
                        let (x, u) = (r.x()[j].min(limit), r.x()[r.cols + j].clamp(-limit, limit));
                        x * sigmoid(1.702 * x) * (u + 1.0)
                    };
                    (0..r.cols).map(one).collect()
                },
            ));
        }
        all.push(formula("the formula of gpt-oss: x·σ(1.702·x)·(gate + 1)", move |r| {
            (0..r.cols).map(|j| r.x()[j] * sigmoid(1.702 * r.x()[j]) * (r.x()[r.cols + j] + 1.0)).collect()
        }));
        all.extend(gate_pairs::blocks(own));
        all.extend(gate_pairs::formulas(own));
    } else {
        for limit in LIMITS {
            all.push(formula(format!("x is clamped at ±{limit}"), move |r| {
                r.x().iter().map(|x| act(own, x.clamp(-limit, limit))).collect()
            }));
        }
    }
    all
}

/// Elements of a tail, at least.
const TAIL: usize = 16;

/// One number over x in the tail of an activation that ends in x itself: what its σ or tanh goes to, where that is not 1. The elements are
/// values of x and of what was written with half its rounding.
pub fn saturated(own: Act, elements: &mut Vec<(f64, f64, f64)>) -> Option<String> {
    matches!(own, Act::Gelu | Act::Silu | Act::Qgelu | Act::GeluErf).then_some(())?;
    elements.retain(|(x, y, _)| *x > 0.0 && y.is_finite());
    elements.order_by(|a, b| b.0.total_cmp(&a.0));
    // From the largest x down, as long as one factor is in all.
    let (mut low, mut high, mut n) = (0.0f64, f64::INFINITY, 0);
    for (x, y, half) in elements.iter() {
        let (from, to) = ((y - half) / x, (y + half) / x);
        if from.max(low) > to.min(high) {
            break;
        }
        (low, high, n) = (low.max(from), high.min(to), n + 1);
    }
    // Near its start the tail still rises: the outer half says where it ends.
    let outer = elements[..n / 2]
        .iter()
        .fold((0.0f64, f64::INFINITY), |(low, high), (x, y, half)| (low.max((y - half) / x), high.min((y + half) / x)));
    let (ends, first) = (crate::fault::solve::output::roundest(outer.0, outer.1), elements.first()?.0);
    (n >= TAIL && n < elements.len() && (outer.0 > 1.0 || outer.1 < 1.0) && ends > 0.5 && first > 2.0).then_some(())?;
    // The right one is x to less than this there.
    ((act(own, elements[n - 1].0) / elements[n - 1].0 - ends).abs() > high - low).then_some(())?;
    Some(format!(
        "the activation ends in {ends:.4}·x instead of x, from x = {:.3} on: its σ saturates at {ends:.4}, its tanh at {:.4}",
        elements[n - 1].0,
        2.0 * ends - 1.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_a_factor_of_x() {
        let elements = |by: f64| -> Vec<(f64, f64, f64)> {
            (1..200)
                .map(|n| f64::from(n) * 0.05)
                .map(|x| (x, act(Act::Gelu, x) * if x > 3.0 { by } else { 1.0 }, 1e-3))
                .collect()
        };
        assert!(saturated(Act::Gelu, &mut elements(1.022)).unwrap().contains("tanh at 1.044"));
        assert_eq!(saturated(Act::Gelu, &mut elements(1.0)), None);
        assert_eq!(saturated(Act::Relu, &mut elements(1.022)), None);
        // Between 3 and 3.5 silu is 0.953 to 0.971 of x: within the rounding one factor, and the right one.
        let silu = |n: i32| {
            let x = f64::from(n) * 0.02;
            (x, act(Act::Silu, x) * if x > 3.0 { 1.0 } else { 2.0 }, 0.1)
        };
        assert_eq!(saturated(Act::Silu, &mut (1..=175).map(silu).collect()), None);
    }

    /// A tail of results half a rounding above x, whose lower end is x itself: 1 is among its factors to the last bit.
    #[test]
    fn a_tail_that_may_be_x_is_no_other_factor() {
        let element = |n: i32| {
            let x = f64::from(n) / 16.0;
            let half = x * if x > 7.0 { 2f64.powi(-6) } else { 2f64.powi(-9) };
            if x > 2.0 { (x, x + half, half) } else { (x, act(Act::Gelu, x), 1e-6) }
        };
        assert_eq!(saturated(Act::Gelu, &mut (1..=200).map(element).collect()), None);
    }

    #[test]
    fn a_gate_at_a_padded_offset_runs_on_into_the_next_row() {
        let rows: Vec<Vec<f64>> = (0..2).map(|i| (0..12).map(|j| f64::from(20 * i + j)).collect()).collect();
        let at = |i| At { rows: &rows, i, gamma: &[], beta: &[], eps: 0.0, cols: 6 };
        let all = activations(Op::Gated, Act::Relu);
        let padded = all.iter().find(|f| f.words.contains("multiples of 8")).unwrap();
        // 6 becomes 8: columns 8 … 11, then 0 and 1 of the next row; behind the last row 0.
        assert_eq!(padded.row(&at(0)), [0.0, 9.0, 20.0, 33.0, 80.0, 105.0]);
        assert_eq!(padded.row(&at(1))[4..], [0.0, 0.0]);
    }

    /// x = 9 and −9, gates −8 and 2, limit 7.
    #[test]
    fn clamps_of_a_clamped_activation_are_told_by_hand() {
        let rows = [vec![9.0, -9.0, -8.0, 2.0]];
        let at = At { rows: &rows, i: 0, gamma: &[], beta: &[], eps: 0.0, cols: 2 };
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let of = |own: Act, words: &str| {
            let all = activations(Op::Gated, own);
            all.iter().find(|f| f.words == words).unwrap_or_else(|| panic!("{words}")).row(&at)
        };
        let own = Act::SwigluLimit(Clamp::new(1.0, 7.0));
        for (words, want) in [
            ("", [silu(7.0) * -7.0, silu(-9.0) * 2.0]),
            ("neither x nor the gate is clamped at 7", [silu(9.0) * -8.0, silu(-9.0) * 2.0]),
            ("x is not clamped at 7", [silu(9.0) * -7.0, silu(-9.0) * 2.0]),
            ("the gate is not clamped at ±7", [silu(7.0) * -8.0, silu(-9.0) * 2.0]),
            ("x is clamped at ±7, not at 7 alone", [silu(7.0) * -7.0, silu(-7.0) * 2.0]),
            ("the gate is clamped at 7 alone, not at ±7", [silu(7.0) * -8.0, silu(-9.0) * 2.0]),
            ("the limit is 5, not 7", [silu(5.0) * -5.0, silu(-9.0) * 2.0]),
            ("the activation is relu", [-49.0, 0.0]),
            ("1 is added to the gate, as gpt-oss has it", [silu(7.0) * -6.0, silu(-9.0) * 3.0]),
        ] {
            let got = of(own, words);
            assert!(got.iter().zip(want).all(|(x, y)| (x - y).abs() < 1e-12), "{words}: {got:?}, {want:?}");
        }
        let quick = |x: f64| x / (1.0 + (-f64::from(1.702f32) * x).exp());
        let own = Act::SwigluOai(Clamp::OAI);
        for (words, want) in [
            ("", [quick(7.0) * -6.0, quick(-9.0) * 3.0]),
            ("neither x nor the gate is clamped at 7", [quick(9.0) * -7.0, quick(-9.0) * 3.0]),
            ("1 is not added to the gate", [quick(7.0) * -7.0, quick(-9.0) * 2.0]),
            ("the gate is clamped after 1 is added to it, not before", [quick(7.0) * -7.0, quick(-9.0) * 3.0]),
            ("the activation is silu, x·σ(x)", [silu(7.0) * -6.0, silu(-9.0) * 3.0]),
            ("the halves of a row are exchanged: [gate | x] is read", [quick(-8.0) * 8.0, quick(2.0) * -6.0]),
        ] {
            let got = of(own, words);
            assert!(got.iter().zip(want).all(|(x, y)| (x - y).abs() < 1e-12), "{words}: {got:?}, {want:?}");
        }
    }

    #[test]
    fn exponentials_overflow() {
        assert!(open_tanh(100.0).is_nan() && open_tanh(20.0) > 0.999_999 && open_tanh(-100.0) == -1.0);
    }

    /// A tail has 16 elements, begins beyond x = 2 and ends in more than half of x.
    #[test]
    fn a_tail_is_long_and_far_out_and_not_too_small() {
        let of = |largest: f64, tail: usize, by: f64| {
            let element = |i: usize| {
                let x = largest * i as f64 / 100.0;
                (x, if i > 100 - tail { by * x } else { act(Act::Gelu, x) }, 1e-9)
            };
            saturated(Act::Gelu, &mut (1..=100).map(element).collect()).is_some()
        };
        assert_eq!([15, 16, 40].map(|tail| of(8.0, tail, 1.25)), [false, true, true]);
        assert_eq!([1.75, 2.0, 2.25].map(|largest| of(largest, 20, 1.25)), [false, false, true]);
        assert_eq!([0.25, 0.5, 0.625, 0.75].map(|by| of(8.0, 20, by)), [false, false, true, true]);
        assert!(!of(8.0, 100, 1.25), "no activation but a factor");
    }
}
