//! Theories of packed words: what becomes of the codes of some lanes of a word, and of values that are joined from bits.

use super::given::Given;
use super::maps::cost;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::op::Op;
use crate::tensor::round_to;
use crate::{Format, Overflow, QTensor, Rounding};
use std::sync::Arc;

/// Lanes of a word, by k: words, bits, whether k is one.
pub fn lanes() -> Vec<(String, f64, Is)> {
    let mut all: Vec<(String, f64, Is)> = Vec::new();
    for n in [2usize, 4, 8] {
        for lane in 0..n {
            let words = match (n, lane) {
                (2, 0) => "every first code of a pair (low nibbles)".to_string(),
                (2, _) => "every second code of a pair (high nibbles)".into(),
                _ => format!("codes k mod {n} = {lane}"),
            };
            all.push((words, cost(n) + cost(lane), Arc::new(move |k| k % n == lane)));
        }
    }
    for n in [4usize, 8, 16, 32] {
        for second in [false, true] {
            let which = if second { "second" } else { "first" };
            let words = format!("the {which} {} of every {n} codes", n / 2);
            all.push((words, 1.0 + cost(n), Arc::new(move |k| (k % n >= n / 2) == second)));
        }
    }
    all
}

/// Whether k is a lane.
pub type Is = Arc<dyn Fn(usize) -> bool + Send + Sync>;
/// What a code of these bits and this value becomes.
type To = Arc<dyn Fn(u8, f64) -> f64 + Send + Sync>;

/// What a code of a lane becomes: class, variant, words, bits.
type Lane = (Class, &'static str, String, f64, To);

/// What a value is made of, shared by all theories of a side.
struct Source {
    values: Arc<Vec<f64>>,
    codes: Option<QTensor>,
    table: Vec<f64>,
    steps: Vec<f64>,
    k: usize,
    tile: (usize, usize),
    cols: usize,
}

impl Source {
    fn of(g: &Given) -> Arc<Self> {
        let cells = g.grid.0 * g.grid.1;
        Arc::new(Self {
            values: g.values.clone(),
            codes: g.q.clone(),
            table: g.table.clone(),
            steps: (0..cells).map(|c| g.step(c / g.grid.1 * g.tile.0, c % g.grid.1 * g.tile.1)).collect(),
            k: g.k,
            tile: g.tile,
            cols: g.grid.1,
        })
    }
    fn code(&self, i: usize, k: usize) -> u8 {
        self.codes.as_ref().map_or(0, |q| q.codes()[i * self.k + k])
    }
    fn own(&self, i: usize, k: usize) -> f64 {
        self.table[usize::from(self.code(i, k))]
    }
    fn cell(&self, i: usize, k: usize) -> usize {
        i / self.tile.0 * self.cols + k / self.tile.1
    }
    /// The value of (i, k) if its code were worth `x`.
    fn with(&self, i: usize, k: usize, x: f64) -> f64 {
        self.values[i * self.k + k] + (x - self.own(i, k)) * self.steps[self.cell(i, k)]
    }
}

fn changes(f: Format) -> Vec<Lane> {
    let mut all: Vec<Lane> = Vec::new();
    let bits = f.bits();
    let mut add = |class, variant, words: &str, bits, to: To| {
        all.push((class, variant, words.to_string(), bits, to));
    };
    let whole = f64::from(1u32 << bits);
    if f.is_integer() {
        let signed = f.min_finite() < 0.0;
        for d in [1.0, 4.0, 7.0, 8.0, 16.0, 64.0, 128.0].into_iter().filter(|d| *d <= whole).flat_map(|d| [d, -d]) {
            let (size, direction) = (f64::abs(d), if d > 0.0 { "large" } else { "small" });
            add(Class::ZpOffset, "lane_offset", &format!("{size} too {direction}"), 2.0, Arc::new(move |_, x| x + d));
        }
        if signed {
            add(
                Class::BitsReinterpreted,
                "nibble_sign",
                "read without extending their sign",
                1.0,
                Arc::new(|c, _| f64::from(c)),
            );
        } else {
            let half = 0.5 * whole;
            let extended = move |_: u8, x: f64| if x >= half { x - whole } else { x };
            add(Class::BitsReinterpreted, "nibble_sign", "sign-extended", 1.0, Arc::new(extended));
        }
        let flip = 1u8 << (bits - 1);
        add(
            Class::BitsReinterpreted,
            "lane_flip",
            "read with their top bit flipped",
            2.0,
            Arc::new(move |c, _| f.decode(u32::from(c ^ flip))),
        );
        // f16 holds a code of 4 bits under its exponent, and bf16 one of 3: the top bit doubles the step of all above the half.
        let least = f.min_finite();
        let doubled = move |_: u8, x: f64| x + (x - least - 0.5 * whole).max(0.0);
        add(
            Class::BitsReinterpreted,
            "lane_exponent",
            "joined to a word whose exponent has their top bit: the upper half of them at twice the step",
            2.0,
            Arc::new(doubled),
        );
        add(
            Class::BitsReinterpreted,
            "lane_top",
            "read without their top bit",
            2.0,
            Arc::new(move |c, _| f64::from(c & (flip - 1))),
        );
    }
    for (by, words) in
        [(whole, "not shifted right"), (1.0 / whole, "shifted right one bit too far"), (-1.0, "read with the other sign")]
    {
        add(Class::BitsReinterpreted, "lane_factor", words, 2.0, Arc::new(move |_, x| x * by));
    }
    add(Class::BitsReinterpreted, "lane_lost", "read as 0", 2.0, Arc::new(|_, _| 0.0));
    if f.min_finite() < 0.0 {
        add(Class::BitsReinterpreted, "lane_negative", "read as 0 where they are negative", 2.0, Arc::new(|_, x| x.max(0.0)));
    }
    add(Class::BitsReinterpreted, "lane_magnitude", "read without their sign", 2.0, Arc::new(|_, x| x.abs()));
    all
}

/// Theories of the lanes of one side's codes, and of values that are joined from bits.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let source = Source::of(g);
    let mut all = joined(g, side, &source);
    let op = s.scene.evidence.job.op;
    if !op.is_product() && op != Op::Dequantize {
        // Nothing is multiplied: what would be rounded is the result.
        all.retain(|t| !t.variant.contains(".operand_"));
    }
    let Some(q) = g.q.as_ref().filter(|q| q.format().bits() <= 4) else { return all };
    let mut add = |class: Class, variant: &str, words: String, bits: f64, value: At| {
        let mut t = Theory::new(class, name, format!("{name}.{variant}"), words).bits(bits);
        t.side(side).value = Some(value);
        all.push(t);
    };
    for (lane, cost_of_lane, is) in lanes() {
        for (class, variant, what, bits, to) in changes(q.format()) {
            let (x, is) = (source.clone(), is.clone());
            let words = format!("of {name}, {lane} are {what}");
            add(
                class,
                variant,
                words,
                2.0 + bits + cost_of_lane,
                Arc::new(move |i, k| if is(k) { x.with(i, k, to(x.code(i, k), x.own(i, k))) } else { x.values[i * x.k + k] }),
            );
        }
        for far in [1usize, 2, 4] {
            let (x, is) = (source.clone(), is.clone());
            let words = format!("of {name}, {lane} are those at k xor {far}");
            add(
                Class::PackPermute,
                "lane_source",
                words,
                4.0 + cost(far) + cost_of_lane,
                Arc::new(
                    move |i, k| {
                        if is(k) { x.with(i, k, x.own(i, (k ^ far).min(x.k - 1))) } else { x.values[i * x.k + k] }
                    },
                ),
            );
        }
    }
    borrowed_bits(g, side, &source, &mut all);
    unmasked(g, side, &source, &mut all);
    let mut add = |class: Class, variant: &str, words: String, bits: f64, value: At| {
        let mut t = Theory::new(class, name, format!("{name}.{variant}"), words).bits(bits);
        t.side(side).value = Some(value);
        all.push(t);
    };
    // A level of whole numbers over the codes whose product is kept in 8 bits.
    if q.format().is_integer()
        && let Some(steps) = multiples(g).map(Arc::new)
    {
        let words = |how: &str| format!("code times the whole multiple of the row's unit that each scale of {name} is {how}");
        type Narrow = (&'static str, f64, fn(f64) -> f64);
        let narrow: [Narrow; 2] = [
            ("wraps at 8 bits", 6.0, |x| (x + 128.0).rem_euclid(256.0) - 128.0),
            ("is clamped to 8 bits", 6.5, |x| x.clamp(-128.0, 127.0)),
        ];
        for (how, bits, narrow) in narrow {
            let (x, steps) = (source.clone(), steps.clone());
            add(
                Class::OverflowWrap,
                "product_8_bits",
                words(how),
                bits,
                Arc::new(move |i, k| {
                    let m = steps[x.cell(i, k)];
                    x.with(i, k, narrow(x.own(i, k) * m) / m)
                }),
            );
        }
    }
    all
}

/// Codes whose top bit, or all the others, are those of the code beside them: a mask or a shift that takes one nibble of a byte for both.
fn borrowed_bits(g: &Given, side: Which, source: &Arc<Source>, all: &mut Vec<Theory>) {
    let Some(f) = g.format() else { return };
    let top = 1u8 << (f.bits() - 1);
    let mut served = lanes();
    served.push(("all codes".into(), 0.0, Arc::new(|_| true)));
    for (lane, cost_of_lane, is) in served {
        for far in [1usize, 2, 4] {
            for (mask, what) in [(top, "sign (top bit)"), (top - 1, "bits below the sign")] {
                let (x, is, name) = (source.clone(), is.clone(), side.name());
                let words = format!("of {name}, {lane} have the {what} of the code at k xor {far}");
                let bits = 5.0 + cost(far) + cost_of_lane;
                let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.lane_bits"), words).bits(bits);
                t.side(side).value = Some(Arc::new(move |i, k| {
                    if !is(k) {
                        return x.values[i * x.k + k];
                    }
                    let (own, other) = (x.code(i, k), x.code(i, (k ^ far).min(x.k - 1)));
                    x.with(i, k, x.table[usize::from(own & !mask & (2 * top - 1) | other & mask)])
                }));
                all.push(t);
            }
        }
    }
}

/// Codes that are not masked out of their word: each keeps what lies below it, as a fraction, or what lies above it.
fn unmasked(g: &Given, side: Which, source: &Arc<Source>, all: &mut Vec<Theory>) {
    let Some(f) = g.format().filter(|f| f.is_integer()) else { return };
    let bits = f.bits() as i32;
    let signed = f.min_finite() < 0.0;
    let whole = f64::from(1u32 << bits);
    let words = [8i32, 16, 32].map(|word| (word / bits) as usize).into_iter().filter(|n| *n > 1);
    for (n, high_first, below) in words.flat_map(|n| [(n, false, true), (n, false, false), (n, true, true), (n, true, false)]) {
        let (x, name) = (source.clone(), side.name());
        let (kept, rest) = if below { ("below", "as a fraction of it") } else { ("above", "on top of it") };
        let order = if high_first { ", the first the highest" } else { "" };
        let words = format!(
            "of {name}, codes are not masked out of their words of {n}{order}: each keeps the bits of those {kept} it {rest}"
        );
        let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.unmasked"), words)
            .bits(4.0 + cost(n) + f64::from(u8::from(high_first)));
        t.side(side).value = Some(Arc::new(move |i, k| {
            let first = k / n * n;
            // A lane's place in its word, and the element that is there.
            let turn = |lane: usize| if high_first { n - 1 - lane } else { lane };
            let lane = turn(k - first);
            let raw = |lane: usize| {
                let at = first + turn(lane);
                if at < x.k { f64::from(x.code(i, at)) } else { 0.0 }
            };
            let far = |other: usize| whole.powi(other as i32 - lane as i32);
            if below {
                let more: f64 = (0..lane).map(|l| raw(l) * far(l)).sum();
                return x.with(i, k, x.own(i, k) + more);
            }
            // The top one has the sign of the word, and all others none.
            let top = |l: usize, c: f64| if signed && l + 1 == n && c >= 0.5 * whole { c - whole } else { c };
            x.with(i, k, (lane..n).map(|l| top(l, raw(l)) * far(l)).sum())
        }));
        all.push(t);
    }
}

/// For every cell the whole number that its scale is of the largest unit of its row of the grid. `None`: some rows have none below 128.
fn multiples(g: &Given) -> Option<Vec<f64>> {
    const NEAR: f64 = 1e-5;
    (g.grid.1 > 1).then_some(())?;
    let mut all = Vec::with_capacity(g.scales().len());
    for row in g.scales().chunks(g.grid.1) {
        let least = row.iter().copied().fold(f32::INFINITY, f32::min);
        (least > 0.0 && least.is_finite()).then_some(())?;
        let whole = |m: &u32| {
            row.iter().all(|s| {
                let x = f64::from(*s) / f64::from(least) * f64::from(*m);
                x < 128.0 && (x - x.round()).abs() <= NEAR * x
            })
        };
        let m = (1..64u32).find(whole)?;
        all.extend(row.iter().map(|s| (f64::from(*s) / f64::from(least) * f64::from(m)).round()));
    }
    Some(all)
}

pub fn bits_of(f: Format, x: f64) -> u32 {
    f.encode(x, Rounding::NearestEven, Overflow::Native)
}

/// Values that are joined from bits, or cut to fewer: an exponent added into 16 bits, an operand rounded before it is multiplied.
fn joined(g: &Given, side: Which, source: &Arc<Source>) -> Vec<Theory> {
    let name = side.name();
    let mut all = Vec::new();
    let mut add = |class, variant: &str, words: String, bits: f64, value: At| {
        let mut t = Theory::new(class, name, format!("{name}.{variant}"), words).bits(bits);
        t.side(side).value = Some(value);
        all.push(t);
    };
    let pow2 = g.scales().iter().all(|s| *s > 0.0 && s.log2().fract() == 0.0);
    if g.q.as_ref().is_some_and(|q| !q.format().is_integer()) && pow2 && g.zero.is_none() {
        for (f, words) in [(Format::F16, "f16"), (Format::Bf16, "bf16")] {
            let shift = f.spec().mantissa;
            let x = source.clone();
            let words = format!(
                "the exponent of the scale of {name} is added into the {words} bits of the value: it leaves their range"
            );
            add(
                Class::OverflowWrap,
                "exponent_added",
                words,
                4.0,
                Arc::new(move |i, k| {
                    let v = x.own(i, k);
                    let e = x.steps[x.cell(i, k)].log2().round() as i32;
                    if v == 0.0 { v } else { f.decode((bits_of(f, v) as i32).wrapping_add(e << shift) as u32 & 0xffff) }
                }),
            );
        }
    }
    if g.rounded.is_some() {
        return all;
    }
    type Way = (&'static str, &'static str, f64, fn(f64) -> f64);
    let ways: [Way; 7] = [
        ("read as 0 below the smallest normal f16", "below_f16", 2.0, |x| if x.abs() < 6.103515625e-5 { 0.0 } else { x }),
        ("cut to the 10 bits of TF32", "tf32_cut", 2.0, |x| cut(x, 13)),
        ("rounded to the 10 bits of TF32", "tf32", 2.0, |x| near(x, 13)),
        ("cut to bf16", "bf16_cut", 2.5, |x| cut(x, 16)),
        ("rounded to bf16", "bf16", 2.0, |x| f64::from(round_to(Format::Bf16, x as f32))),
        ("rounded to f16", "f16", 2.0, |x| f64::from(round_to(Format::F16, x as f32))),
        ("rounded to e4m3", "e4m3", 3.0, |x| Format::E4m3.decode(bits_of(Format::E4m3, x))),
    ];
    for (words, variant, bits, f) in ways {
        let first = source.values.iter().take(1 << 16).filter(|x| x.is_finite());
        if first.clone().all(|x| f(*x) == *x) {
            continue;
        }
        let what = if g.q.is_some() { "dequantized values" } else { "values" };
        let words = format!("{what} of {name} are {words} before they are multiplied");
        let x = source.clone();
        add(
            Class::RoundOrder,
            &format!("operand_{variant}"),
            words,
            2.0 + bits,
            Arc::new(move |i, k| f(x.values[i * x.k + k])),
        );
    }
    all
}

/// An f32 without its last bits, cut or rounded.
fn cut(x: f64, bits: u32) -> f64 {
    f64::from(f32::from_bits((x as f32).to_bits() & !((1u32 << bits) - 1)))
}

fn near(x: f64, bits: u32) -> f64 {
    let b = (x as f32).to_bits();
    let half = (1u32 << (bits - 1)) - 1 + (b >> bits & 1);
    if x.is_finite() { f64::from(f32::from_bits((b + half) & !((1u32 << bits) - 1))) } else { x }
}

/// What products of integers suffer where the smallest code has no positive (−128 of 8 bits): `|a| · sign(b, a)`, and its magnitude.
pub fn smallest(s: &System) -> Vec<Theory> {
    let mut all = Vec::new();
    let signed = |f: Format| f.is_integer() && f.min_finite() < 0.0;
    let integer = |g: &Given| g.zero.is_none() && g.format().is_some_and(signed);
    if s.alone || !integer(&s.a) || !integer(&s.b) {
        return all;
    }
    for (side, g, other) in [(Which::B, &s.b, &s.a), (Which::A, &s.a, &s.b)] {
        let (name, they) = (side.name(), side.other().name());
        let Some(q) = &g.q else { continue };
        let (least, bits) = (q.format().min_finite(), q.format().bits());
        let code = |at: usize| g.table[usize::from(q.codes()[at])];
        let small: Arc<Vec<(usize, usize)>> =
            Arc::new((0..g.values.len()).filter(|at| code(*at) == least).map(|at| (at / g.k, at % g.k)).collect());
        if small.is_empty() {
            continue;
        }
        let mut of_row: Vec<Vec<usize>> = vec![Vec::new(); g.rows];
        small.iter().for_each(|(i, k)| of_row[*i].push(*k));
        let (of_row, right, theirs) = (Arc::new(of_row), g.values.clone(), other.values.clone());
        let lines: Arc<Vec<Option<(usize, usize)>>> =
            Arc::new((0..s.rows * s.cols).map(|at| s.lines(at / s.cols, at % s.cols).map(|x| (x.0, x.1))).collect());
        let (cols, k_all) = (s.cols, s.k);
        for negative in [true, false] {
            let (of_row, right, theirs, lines, bias) =
                (of_row.clone(), right.clone(), theirs.clone(), lines.clone(), s.bias.clone());
            let words = if negative {
                format!(
                    "{least} of {name} keeps its sign where a negative {they} turns it: −({least}) is {least} in {bits} bits"
                )
            } else {
                format!("|{least}| of {name} is {least} in {bits} bits: its products have the other sign")
            };
            let mut t = Theory::new(Class::CodecEdge, name, format!("{name}.smallest_sign"), words).bits(if negative {
                4.0
            } else {
                4.5
            });
            t.finish = Some(Arc::new(move |i, j, v| {
                let Some((ra, rb)) = lines[i * cols + j] else { return v + bias.at(i, j) };
                let (own, their) = if side == Which::A { (ra, rb) } else { (rb, ra) };
                let wrong = |k: &&usize| !negative || theirs[their * k_all + **k] < 0.0;
                let twice: f64 =
                    of_row[own].iter().filter(wrong).map(|k| right[own * k_all + k] * theirs[their * k_all + k]).sum();
                v - 2.0 * twice + bias.at(i, j)
            }));
            all.push(t);
        }
    }
    all
}
/// Lanes of a warp that hold different lines where they should hold different K: a sum over them mixes all lines of a strip.
pub fn strips(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let (rows, k_all) = (g.rows, g.k);
    let theory = |wide: usize| {
        let words = format!(
            "of {name} row r at k is read from row (r / {wide})·{wide} + k mod {wide}: a sum over lanes that hold different rows, the same for all {wide}"
        );
        let mut t = Theory::new(Class::AccState, name, format!("{name}.strips"), words).bits(4.0 + cost(wide));
        let from = move |i: usize, k: usize| (i / wide * wide + k % wide).min(rows - 1);
        if g.q.is_some() && g.grid == (1, 1) {
            t.side(side).code = Some(Arc::new(move |i, k| Some(from(i, k) * k_all + k)));
        } else {
            let values = g.values.clone();
            t.side(side).value = Some(Arc::new(move |i, k| values[from(i, k) * k_all + k]));
        }
        t
    };
    [4usize, 8, 16, 32, 64].into_iter().filter(|w| !s.alone && *w <= rows).map(theory).collect()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn a_sign_of_the_other_nibble_is_told() {
        const K: usize = 64;
        let (a, b) = (wide(M, K), codes(Format::E2m1, N, K, 16, false, 3));
        let x = a.to_f64();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            sum(K, |k| {
                let (own, high) = (b.codes()[j * K + k], b.codes()[j * K + (k | 1)]);
                let value = Format::E2m1.decode(u32::from(own & 7 | high & 8));
                x[[i, k]] * value * f64::from(b.scale_inv()[j * 4 + k / 16])
            })
        });
        assert_eq!(got.0, "bits_reinterpreted:b.lane_bits", "{}", got.1);
        let words = "every first code of a pair (low nibbles) have the sign (top bit) of the code at k xor 1";
        assert!(got.1.contains(words), "{}", got.1);
    }

    /// A byte over 16 is its high nibble and a sixteenth of its low one; a byte that is taken for its low nibble has the high one on top.
    #[test]
    fn nibbles_that_are_not_masked_are_told() {
        const K: usize = 64;
        let (a, b) = (wide(M, K), codes(Format::Int4, N, K, 16, false, 3));
        let x = a.to_f64();
        let byte = |j: usize, k: usize| (b.codes()[j * K + (k | 1)] << 4 | b.codes()[j * K + (k & !1)] & 15) as i8;
        let nibble = |j: usize, k: usize| f64::from(((b.codes()[j * K + k] << 4) as i8) >> 4);
        let of = |value: &dyn Fn(usize, usize) -> f64| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                sum(K, |k| x[[i, k]] * value(j, k) * f64::from(b.scale_inv()[j * 4 + k / 16]))
            })
        };
        let got = of(&|j, k| if k % 2 == 1 { f64::from(byte(j, k)) / 16.0 } else { nibble(j, k) });
        assert_eq!(got.0, "bits_reinterpreted:b.unmasked", "{}", got.1);
        assert!(got.1.contains("words of 2: each keeps the bits of those below it"), "{}", got.1);
        let got = of(&|j, k| if k % 2 == 0 { f64::from(byte(j, k)) } else { nibble(j, k) });
        assert!(got.0 == "bits_reinterpreted:b.unmasked" && got.1.contains("those above it"), "{} {}", got.0, got.1);
    }

    /// A table look-up whose selectors keep their sign bits in the upper half of a word; a magic number of bf16 that has no room for 4 bits.
    #[test]
    fn codes_of_some_lanes_that_lose_their_sign_or_their_top_bit_are_told() {
        const K: usize = 64;
        let of = |format: Format, to: &dyn Fn(usize, f64) -> f64| {
            let (a, b) = (wide(M, K), codes(format, N, K, 16, false, 5));
            let x = a.to_f64();
            found(&a, &b, None, Format::F32, |i, j, _| {
                sum(K, |k| {
                    let own = format.decode(u32::from(b.codes()[j * K + k]));
                    x[[i, k]] * to(k, own) * f64::from(b.scale_inv()[j * 4 + k / 16])
                })
            })
        };
        let got = of(Format::E2m1, &|k, x| if k % 16 >= 8 { x.max(0.0) } else { x });
        assert_eq!(got.0, "bits_reinterpreted:b.lane_negative", "{}", got.1);
        assert!(got.1.contains("the second 8 of every 16 codes are read as 0 where they are negative"), "{}", got.1);
        // The positive ones are another cause, and have no such name.
        let got = of(Format::E2m1, &|k, x| if k % 16 >= 8 { x.min(0.0) } else { x });
        assert!(!got.0.contains("lane_negative"), "{} {}", got.0, got.1);
        let got = of(Format::Int4, &|k, x| if k % 2 == 0 { x } else { x + x.max(0.0) });
        assert_eq!(got.0, "bits_reinterpreted:b.lane_exponent", "{}", got.1);
        assert!(got.1.contains("every second code of a pair (high nibbles)"), "{}", got.1);
        let got = of(Format::Uint4, &|k, x| if k % 2 == 1 { x } else { x + (x - 8.0).max(0.0) });
        assert_eq!(got.0, "bits_reinterpreted:b.lane_exponent", "{}", got.1);
    }
}
