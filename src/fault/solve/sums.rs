//! Theories of the sum itself in other arithmetic: pairs in 16 bits, integers that become floats by a trick, terms of zero points left out, the
//! product of the scales rounded, the result in another type's bits.

use super::maps::cost;
use super::slices::{self, Fate};
use super::system::{Finish, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::format::grid::native;
use crate::{Format, Overflow, Rounding};
use std::sync::Arc;

fn near(f: Format, x: f64) -> f64 {
    native(f).nearest(x)
}

/// All of them.
pub fn theories(s: &System) -> Vec<Theory> {
    let mut all = bits_of_result(s);
    if s.alone {
        return all;
    }
    all.extend(alpha(s));
    all.extend(pairs(s));
    all.extend(magic(s));
    all.extend(zero_terms(s));
    all.extend(promoted(s));
    all
}

fn theory(class: Class, variant: &str, words: String, bits: f64, finish: Finish) -> Theory {
    let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(bits);
    t.finish = Some(finish);
    t
}

/// What one step of the codes of a line is worth, where one scale holds for all of its K.
fn steps(s: &System, side: Which) -> Option<Arc<Vec<f64>>> {
    let g = s.given(side);
    (g.grid.1 == 1).then(|| Arc::new((0..g.rows).map(|i| g.step(i, 0)).collect()))
}

/// The lines of both operands that make an element, looked up by row: (line of a, first line of b).
fn lines(s: &System) -> Arc<Vec<Option<(usize, usize)>>> {
    Arc::new((0..s.rows).map(|i| s.lines(i, 0).map(|(a, b, _)| (a, b))).collect())
}

/// The result written in another type's bits.
fn bits_of_result(s: &System) -> Vec<Theory> {
    let f = s.out.format();
    let others: &[(Format, Format)] = match f {
        Format::Bf16 => &[(Format::F16, Format::Bf16)],
        Format::F16 => &[(Format::Bf16, Format::F16)],
        _ => &[],
    };
    let mut all = Vec::new();
    for (wrote, read) in others.iter().copied().filter(|_| !s.out.is_quantized()) {
        for overflow in [Overflow::Native, Overflow::Saturate] {
            let bias = s.bias.clone();
            let how = if overflow == Overflow::Saturate { ", clamped to its range" } else { "" };
            let words = format!("the result is written as {wrote}{how}, and read as {read}");
            let bits = 2.0 + f64::from(u8::from(overflow == Overflow::Saturate));
            all.push(theory(
                Class::BitsReinterpreted,
                "bits",
                words,
                bits,
                Arc::new(move |i, j, v| read.decode(wrote.encode(v + bias.at(i, j), Rounding::NearestEven, overflow))),
            ));
        }
    }
    all
}

/// Numbers of a side that several theories read.
type Values = Arc<Vec<f64>>;

/// The product of both scales, rounded before it meets the sum.
fn alpha(s: &System) -> Vec<Theory> {
    let mut all = Vec::new();
    let lines = lines(s);
    let mut units: Vec<(&str, Values, Values)> = Vec::new();
    if let (Some(a), Some(b)) = (steps(s, Which::A), steps(s, Which::B)) {
        units.push(("scales", a, b));
    }
    if s.a.global * s.b.global != 1.0 {
        let of = |g: &super::given::Given| Arc::new(vec![g.global; g.rows]);
        units.push(("second-level scales", of(&s.a), of(&s.b)));
    }
    for (what, a, b) in units {
        for f in [Format::F16, Format::Bf16] {
            type Way = (&'static str, f64, fn(Format, f64, f64) -> f64);
            let ways: [Way; 4] = [
                ("the product of both", 0.0, |f, a, b| near(f, a * b)),
                ("both and their product", 0.5, |f, a, b| near(f, near(f, a) * near(f, b))),
                ("both", 1.0, |f, a, b| near(f, a) * near(f, b)),
                ("the product of both, cut and not rounded,", 1.0, |f, a, b| {
                    f.decode(f.encode(a * b, Rounding::TowardZero, Overflow::Native))
                }),
            ];
            for (which, bits, of) in ways {
                let (a, b, lines, bias) = (a.clone(), b.clone(), lines.clone(), s.bias.clone());
                let words = format!("{which} {what} become {f} before they multiply the sum");
                all.push(theory(
                    Class::ScaleRerounded,
                    "alpha",
                    words,
                    4.0 + bits,
                    Arc::new(move |i, j, v| {
                        let Some((ra, rb)) = lines[i] else { return v + bias.at(i, j) };
                        let (x, y) = (a[ra], b[rb + j]);
                        v / (x * y) * of(f, x, y) + bias.at(i, j)
                    }),
                ));
            }
        }
    }
    all
}

/// Codes of an operand as whole numbers. `None`: they are none.
fn integers(s: &System, side: Which) -> Option<Arc<Vec<f64>>> {
    let g = s.given(side);
    let q = g.q.as_ref().filter(|q| q.format().is_integer())?;
    Some(Arc::new(q.codes().iter().map(|c| g.table[usize::from(*c)]).collect()))
}

/// Taps of the windows of a convolution.
const TAPS: [usize; 7] = [3, 5, 7, 9, 25, 27, 49];

/// Products of K that are added in one number of 16 bits: the number of each, how many of them it takes at most, words, bits.
struct Lanes {
    of: Vec<usize>,
    numbers: usize,
    most: usize,
    /// Of each number, which of the scales along K go with it.
    unit: Vec<usize>,
    words: String,
    bits: f64,
}

impl Lanes {
    fn new(k: usize, words: String, bits: f64, of: impl Fn(usize) -> usize) -> Self {
        let of: Vec<usize> = (0..k).map(of).collect();
        let numbers = of.iter().max().map_or(0, |m| m + 1);
        let mut counts = vec![0; numbers];
        of.iter().for_each(|n| counts[*n] += 1);
        let most = counts.into_iter().max().unwrap_or(0);
        Self { of, numbers, most, unit: vec![0; numbers], words, bits }
    }

    /// With the scales of so many of K. `None`: a number has products of different scales.
    fn in_units(mut self, unit: usize) -> Option<Self> {
        for (k, n) in self.of.iter().enumerate() {
            self.unit[*n] = k / unit;
        }
        self.of.iter().enumerate().all(|(k, n)| self.unit[*n] == k / unit).then_some(self)
    }

    /// Neighbours; pairs that a vector's width lies between; lanes of a vector that run through all of K.
    fn all(k: usize) -> Vec<Self> {
        let mut all = Vec::new();
        for count in (1..11).map(|p| 1usize << p).filter(|c| *c <= k) {
            let words = format!("sums of {count} neighbouring products");
            all.push(Self::new(k, words, cost(count) + cost(1), |k| k / count));
        }
        // The taps of a window, channel by channel or tap by tap.
        for taps in TAPS.into_iter().filter(|t| k.is_multiple_of(*t) && 2 * t <= k) {
            let words = format!("sums of {taps} neighbouring products");
            all.push(Self::new(k, words, cost(taps) + 2.0, |x| x / taps));
            let apart = k / taps;
            let words = format!("sums of {taps} products {apart} apart");
            all.push(Self::new(k, words, cost(taps) + 3.0, |x| x % apart));
        }
        for apart in (1..7).map(|p| 1usize << p).filter(|a| 2 * a <= k) {
            let words = format!("sums of 2 products {apart} apart");
            all.push(Self::new(k, words, cost(2) + cost(apart), |k| k / (2 * apart) * apart + k % apart));
        }
        for lanes in [4usize, 8, 16, 32] {
            for width in [1usize, 2, 4].into_iter().filter(|w| 2 * w * lanes <= k) {
                let words = match width {
                    1 => format!("sums of every {lanes}th product of all K"),
                    _ => format!("sums of {width} neighbouring products in every {} of all K", lanes * width),
                };
                all.push(Self::new(k, words, cost(lanes) + cost(width) + 1.0, |k| k / width % lanes));
            }
        }
        all
    }
}

/// Sums of products of integers that are kept in 16 bits.
fn pairs(s: &System) -> Vec<Theory> {
    let (Some(a), Some(b)) = (integers(s, Which::A), integers(s, Which::B)) else { return Vec::new() };
    let lines = lines(s);
    let k_all = s.k;
    // Scales are the same for so many of K: a number that is kept in 16 bits has none yet.
    let unit = [&s.a, &s.b].iter().filter(|g| g.grid.1 > 1).fold(0, |unit, g| super::address::gcd(g.tile.1, unit));
    let unit = if unit == 0 { k_all } else { unit };
    let units = k_all.div_ceil(unit);
    let steps = |g: &super::given::Given| -> Arc<Vec<f64>> {
        Arc::new((0..g.rows * units).map(|at| g.step(at / units, at % units * unit)).collect())
    };
    let (sa, sb) = (steps(&s.a), steps(&s.b));
    let largest = |v: &[f64]| v.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    // Codes without a sign: from the smallest of the format, or from the smallest there is, as ternary weights are stored.
    let ups = |f: Option<Format>, values: &[f64]| -> Vec<f64> {
        let signed = f.filter(|f| f.is_integer() && f.min_finite() < 0.0);
        let least = values.iter().fold(0.0f64, |m, x| m.min(*x));
        let mut ups: Vec<f64> = signed.iter().flat_map(|f| [-f.min_finite(), -least]).filter(|up| *up > 0.0).collect();
        ups.dedup();
        ups
    };
    let mut shifts = vec![(0.0, 0.0, String::new())];
    let words = |operand: &str, up: f64| format!(", the codes of {operand} without a sign, {up} more");
    shifts.extend(ups(s.a.format(), &a).into_iter().map(|x| (x, 0.0, words("a", x))));
    shifts.extend(ups(s.b.format(), &b).into_iter().map(|x| (0.0, x, words("b", x))));
    let lanes: Vec<Arc<Lanes>> = Lanes::all(k_all).into_iter().filter_map(|l| l.in_units(unit)).map(Arc::new).collect();
    let mut all = Vec::new();
    for (da, db, sign) in shifts {
        for lane in &lanes {
            if (largest(&a) + da) * (largest(&b) + db) * lane.most as f64 <= 32767.0 {
                continue;
            }
            for wraps in [false, true] {
                // What is clamped at the end of K only was kept in more bits.
                if !wraps && lane.words.ends_with("of all K") {
                    continue;
                }
                let (a, b, sa, sb, lines, bias) = (a.clone(), b.clone(), sa.clone(), sb.clone(), lines.clone(), s.bias.clone());
                let how = if wraps { "wrap" } else { "are clamped" };
                let words = format!("{} {how} at 16 bits{sign}", lane.words);
                let bits = 3.0 + lane.bits + if sign.is_empty() { 0.0 } else { 1.0 };
                let lane = lane.clone();
                all.push(theory(
                    Class::OverflowWrap,
                    "pairs_16_bits",
                    words,
                    bits,
                    Arc::new(move |i, j, v| {
                        let Some((ra, rb)) = lines[i] else { return v + bias.at(i, j) };
                        let rb = rb + j;
                        let (x, y) = (&a[ra * k_all..(ra + 1) * k_all], &b[rb * k_all..(rb + 1) * k_all]);
                        let mut sums = vec![0.0; lane.numbers];
                        x.iter().zip(y).zip(&lane.of).for_each(|((x, y), n)| sums[*n] += (x + da) * (y + db));
                        let off = |sum: f64| {
                            let kept = if wraps {
                                (sum + 32768.0).rem_euclid(65536.0) - 32768.0
                            } else {
                                sum.clamp(-32768.0, 32767.0)
                            };
                            kept - sum
                        };
                        let scaled =
                            |(n, sum): (usize, f64)| off(sum) * sa[ra * units + lane.unit[n]] * sb[rb * units + lane.unit[n]];
                        v + sums.into_iter().enumerate().map(scaled).sum::<f64>() + bias.at(i, j)
                    }),
                ));
            }
        }
    }
    all
}

/// Integer sums that become floats by their bits, or in fewer of them.
fn magic(s: &System) -> Vec<Theory> {
    let (Some(a), Some(b)) = (integers(s, Which::A), integers(s, Which::B)) else { return Vec::new() };
    let (Some(sa), Some(sb)) = (steps(s, Which::A), steps(s, Which::B)) else { return Vec::new() };
    let lines = lines(s);
    let k_all = s.k;
    type Way = (Class, &'static str, &'static str, f64, fn(i64) -> f64);
    let ways: [Way; 6] = [
        (
            Class::OverflowWrap,
            "magic",
            "become floats by adding them to the bits of 1.5·2^23 and subtracting it again: right below 2^22 only",
            4.0,
            |x| f64::from(f32::from_bits((x + 0x4B40_0000) as u32)) - 12_582_912.0,
        ),
        (
            Class::OverflowWrap,
            "magic",
            "become floats by placing their bits after those of 2^23: right below 2^23 only",
            5.0,
            |x| f64::from(f32::from_bits((x as u32 ^ 0x0080_0000) & 0x00ff_ffff | 0x4B00_0000)) - 16_777_216.0,
        ),
        (Class::RoundOrder, "integer_bf16", "are rounded to bf16", 4.0, |x| near(Format::Bf16, x as f64)),
        (Class::OverflowWrap, "integer_f16", "become f16, clamped to its range", 4.0, |x| {
            near(Format::F16, (x as f64).clamp(-65504.0, 65504.0))
        }),
        (Class::OverflowWrap, "integer_8", "lose all but their low 24 bits", 5.0, |x| ((x << 40) >> 40) as f64),
        (Class::OverflowWrap, "unsigned", "are read without a sign", 4.0, |x| f64::from(x as u32)),
    ];
    ways.into_iter()
        .map(|(class, variant, how, bits, of)| {
            let (a, b, sa, sb, lines, bias) = (a.clone(), b.clone(), sa.clone(), sb.clone(), lines.clone(), s.bias.clone());
            let words = format!("sums of products of codes {how}");
            theory(
                class,
                variant,
                words,
                bits,
                Arc::new(move |i, j, v| {
                    let Some((ra, rb)) = lines[i] else { return v + bias.at(i, j) };
                    let rb = rb + j;
                    let sum: f64 =
                        a[ra * k_all..(ra + 1) * k_all].iter().zip(&b[rb * k_all..(rb + 1) * k_all]).map(|(x, y)| x * y).sum();
                    v + (of(sum as i64) - sum) * sa[ra] * sb[rb] + bias.at(i, j)
                }),
            )
        })
        .collect()
}

/// The terms of zero points where both operands have some: the product of both, and each alone.
fn zero_terms(s: &System) -> Vec<Theory> {
    let zeros = |side: Which| -> Option<(Values, Values)> {
        let g = s.given(side);
        let Some((zero, None)) = &g.zero else { return None };
        let term: Vec<f64> = (0..g.rows * g.k)
            .map(|at| {
                let (i, k) = (at / g.k, at % g.k);
                zero[i / g.tile.0 * g.grid.1 + k / g.tile.1] * g.step(i, k)
            })
            .collect();
        let codes: Vec<f64> = g.values.iter().zip(&term).map(|(v, z)| v + z).collect();
        Some((Arc::new(term), Arc::new(codes)))
    };
    let (Some((za, qa)), Some((zb, qb))) = (zeros(Which::A), zeros(Which::B)) else { return Vec::new() };
    let lines = lines(s);
    let k_all = s.k;
    let mut all = Vec::new();
    for (x, y, sign, what) in [
        (&za, &zb, 1.0, "the product of both zero points"),
        (&za, &qb, -1.0, "the zero points of a times the codes of b"),
        (&qa, &zb, -1.0, "the codes of a times the zero points of b"),
    ] {
        for (by, how, bits) in [(-1.0, "is missing", 2.0), (1.0, "is counted twice", 3.0), (-2.0, "has the wrong sign", 3.0)] {
            let (x, y, lines, bias) = (x.clone(), y.clone(), lines.clone(), s.bias.clone());
            let words = format!("of the four terms of the product, {what} {how}");
            all.push(theory(
                Class::ZpCorrection,
                "zero_terms",
                words,
                bits,
                Arc::new(move |i, j, v| {
                    let Some((ra, rb)) = lines[i] else { return v + bias.at(i, j) };
                    let rb = rb + j;
                    let term: f64 =
                        x[ra * k_all..(ra + 1) * k_all].iter().zip(&y[rb * k_all..(rb + 1) * k_all]).map(|(x, y)| x * y).sum();
                    v + by * sign * term + bias.at(i, j)
                }),
            ));
        }
    }
    all
}

/// Partial sums that are added up and not cleared: products count once for every promotion behind them.
fn promoted(s: &System) -> Vec<Theory> {
    if s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for every in [16usize, 32, 64, 128, 256, 512, 1024, 2048].into_iter().filter(|e| *e < s.k) {
        let n = s.k.div_ceil(every);
        let words = format!(
            "every {every} of K the accumulator is added to the sum and not cleared: early products count again each time"
        );
        let mut t = Theory::new(Class::AccState, "out", "k.not_cleared", words).bits(3.0 + cost(every));
        t.k = Some(Arc::new((0..s.k).map(|k| (n - k / every) as f64).collect()));
        all.push(t);
    }
    all
}

/// The ends of K that a loop may miss or run twice, for what has another fault too.
pub fn ends(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let mut long: Vec<usize> = [8usize, 16, 32, 64, 128, 256, 512].into_iter().flat_map(|w| [w, s.k % w]).collect();
    long.retain(|w| *w > 0 && *w < s.k);
    long.sort_unstable();
    long.dedup();
    let fates = |w: usize| [Fate::Lost, Fate::Twice].into_iter().flat_map(move |fate| [(s.k - w, s.k, fate), (0, w, fate)]);
    long.into_iter().flat_map(fates).map(|(from, to, fate)| slices::theory(s.k, from, to, fate)).collect()
}
