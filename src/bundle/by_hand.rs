//! Formulas of a diagnosis written a second time, by hand: each is found by its words, and none is left out on either side.

use super::formulas::At;
use super::gates;
use crate::op::{Act, Op};
use std::collections::BTreeSet;

/// Words with `#` for every number, and the numbers. `1e-5` is one, the digits of `bf16` are one.
pub fn pattern(words: &str) -> (String, Vec<f64>) {
    let bytes = words.as_bytes();
    let (mut text, mut numbers, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            text.push(bytes[at]);
            at += 1;
            continue;
        }
        let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        let from = at;
        while digit(at) || bytes.get(at) == Some(&b'.') && digit(at + 1) {
            at += 1;
        }
        if bytes.get(at) == Some(&b'e') && (digit(at + 1) || bytes.get(at + 1) == Some(&b'-') && digit(at + 2)) {
            at += 2;
            while digit(at) {
                at += 1;
            }
        }
        numbers.push(words[from..at].parse().unwrap());
        text.push(b'#');
    }
    (String::from_utf8(text).unwrap(), numbers)
}

/// What a formula is by hand: from its numbers, of what it reads.
pub type Hand<'x, R> = Vec<(&'x str, Box<dyn Fn(&[f64], R) -> f64 + 'x>)>;

/// Which of the table these words are; the entry's number and the numbers of the words.
pub fn which<R>(table: &Hand<R>, words: &str) -> (usize, Vec<f64>) {
    let (text, numbers) = pattern(words);
    let found = table.iter().position(|(key, _)| pattern(key).0 == text);
    (found.unwrap_or_else(|| panic!("no formula by hand has the words \"{words}\"")), numbers)
}

/// Every entry of the table was asked for.
pub fn all_seen<R>(table: &Hand<R>, seen: &BTreeSet<usize>) {
    let missing: Vec<&str> = (0..table.len()).filter(|n| !seen.contains(n)).map(|n| table[n].0).collect();
    assert!(missing.is_empty(), "no formula of the program is {missing:?}");
}

pub fn bf16(x: f64) -> f64 {
    half::bf16::from_f32(x as f32).to_f64()
}

pub fn f16(x: f64) -> f64 {
    half::f16::from_f32(x as f32).to_f64()
}

fn e4m3(x: f64) -> f64 {
    f64::from(float8::F8E4M3::from_f32(x as f32).to_f32())
}

/// Near, to the digits of a constant in f32, or both NaN.
pub fn same(x: f64, y: f64) -> bool {
    (x.is_nan() && y.is_nan()) || x == y || (x - y).abs() <= 1e-6 * x.abs().max(y.abs()) + 1e-8
}

/// Rows of numbers of both signs, no two alike, a few of them large.
pub fn rows(count: usize, cols: usize) -> Vec<Vec<f64>> {
    let one = |at: usize| {
        let x = ((at * 7919 + 101) % 1009) as f64 / 1009.0 * 9.0 - 4.3;
        let x = if at % 53 == 17 { 40.0 * x } else { x };
        // A number of f32, as tensors hold it.
        f64::from(x as f32)
    };
    (0..count).map(|i| (0..cols).map(|j| one(i * cols + j)).collect()).collect()
}

/// A row of an activation: all rows, its number, a column, and how many columns the result has.
#[derive(Clone, Copy)]
struct Place<'r> {
    rows: &'r [Vec<f64>],
    i: usize,
    j: usize,
    cols: usize,
}

impl Place<'_> {
    fn x(self) -> f64 {
        self.rows[self.i][self.j]
    }
    fn gate_at(self, i: usize, j: usize) -> f64 {
        let row = &self.rows[i % self.rows.len()];
        if row.len() == self.cols { 1.0 } else { row[self.cols + j % self.cols] }
    }
    fn gate(self) -> f64 {
        self.gate_at(self.i, self.j)
    }
    /// So many elements behind the start of the row, all rows one behind the other; 0 behind the last.
    fn flat(self, behind: usize) -> f64 {
        let all = self.rows.concat();
        all.get(self.i * self.rows[0].len() + behind).copied().unwrap_or(0.0)
    }
    fn x_at(self, i: usize) -> f64 {
        self.rows[i % self.rows.len()][self.j]
    }
}

fn sigma(x: f64) -> f64 {
    (0.5 * x).tanh() * 0.5 + 0.5
}

/// e^x/(1 + e^x), the exponential in f32.
fn open_sigma(x: f64, of: f64) -> f64 {
    let e = f64::from((x as f32).exp());
    of * (e / (1.0 + e))
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn tanh_of(x: f64) -> f64 {
    (0.7978845608 * (x + 0.044715 * x * x * x)).tanh()
}

/// The error function by its series and, far out, its continued fraction.
fn erf(x: f64) -> f64 {
    let z = x.abs();
    let y = if z < 3.0 {
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term.abs() > 1e-18 * sum {
            n += 1.0;
            term *= -z * z / n;
            sum += term / (2.0 * n + 1.0);
        }
        2.0 / std::f64::consts::PI.sqrt() * sum
    } else {
        let tail = (1..60).rev().fold(z, |f, n| z + 0.5 * f64::from(n) / f);
        1.0 - (-z * z).exp() / std::f64::consts::PI.sqrt() / tail
    };
    y.copysign(x)
}

/// A function of one number, and its words.
type Function = (&'static str, fn(f64) -> f64);

/// Activations by their words.
fn functions() -> Vec<Function> {
    vec![
        ("gelu by its tanh approximation", |x| 0.5 * x * (1.0 + tanh_of(x))),
        ("gelu by the error function, x·Φ(x)", |x| 0.5 * x * (1.0 + erf(x * 0.5f64.sqrt()))),
        ("quick gelu, x·σ(1.702·x)", |x| x * sigma(1.702 * x)),
        ("silu, x·σ(x)", silu),
        ("relu", |x| if x > 0.0 { x } else { 0.0 }),
        ("squared relu", |x| if x > 0.0 { x * x } else { 0.0 }),
        ("no activation at all", |x| x),
        ("leaky relu, 0.01·x below 0", |x| if x < 0.0 { x / 100.0 } else { x }),
        ("silu without its factor x: σ(x) alone", |x| 1.0 / (1.0 + (-x).exp())),
        ("gelu with the constant 0.44715", |x| 0.5 * x * (1.0 + (0.7978845608 * (x + 0.44715 * x * x * x)).tanh())),
        ("silu with β = 1.25", |x| x / (1.0 + (-1.25 * x).exp())),
        ("gelu whose tanh is (e^2z − 1)/(e^2z + 1) in f32: NaN where the exponential overflows", |x| {
            let e = f64::from(((2.0 * 0.7978845608 * (x + 0.044715 * x * x * x)) as f32).exp());
            0.5 * x * (1.0 + (e - 1.0) / (e + 1.0))
        }),
        ("silu whose σ is e^x/(1 + e^x) in f32: NaN where the exponential overflows", |x| open_sigma(x, x)),
        ("quick gelu whose σ is e^z/(1 + e^z) in f32: NaN where the exponential overflows", |x| open_sigma(1.702 * x, x)),
        ("silu in bf16: exponential, sum and quotient are each rounded", |x| bf16(x / bf16(1.0 + bf16((-x).exp())))),
        ("silu in bf16: exponential, sum, σ and product are each rounded", |x| {
            let sum = bf16(1.0 + bf16((-x).exp()));
            bf16(bf16(1.0 / sum) * x)
        }),
        ("silu whose σ is rounded to bf16", |x| bf16(1.0 / (1.0 + (-x).exp())) * x),
        ("silu in f16: exponential, sum and quotient are each rounded", |x| f16(x / f16(1.0 + f16((-x).exp())))),
        ("silu in f16: exponential, sum, σ and product are each rounded", |x| {
            let sum = f16(1.0 + f16((-x).exp()));
            f16(f16(1.0 / sum) * x)
        }),
        ("silu whose σ is rounded to f16", |x| f16(1.0 / (1.0 + (-x).exp())) * x),
        ("gelu whose tanh is rounded to bf16", |x| (1.0 + bf16(tanh_of(x))) * x / 2.0),
        ("gelu whose tanh is rounded to f16", |x| (1.0 + f16(tanh_of(x))) * x / 2.0),
        ("squared relu whose square is taken in f16: Inf above 255.9", |x| f16(if x > 0.0 { x * x } else { 0.0 })),
        ("squared relu whose square is rounded to bf16", |x| bf16(if x > 0.0 { x * x } else { 0.0 })),
        ("gelu by the error function of x, not of x/√2", |x| (x + x * erf(x)) / 2.0),
        ("gelu whose erf is rounded to bf16", |x| (1.0 + bf16(erf(x * 0.5f64.sqrt()))) * x / 2.0),
        ("gelu whose erf is rounded to f16", |x| (1.0 + f16(erf(x * 0.5f64.sqrt()))) * x / 2.0),
        (
            "gelu whose tanh is (e^z − e^−z)/(e^z + e^−z) in f32: NaN where an exponential overflows, 0 where 1 + tanh cancels",
            |x| {
                let z = (0.7978845608 * (x + 0.044715 * x * x * x)) as f32;
                let [a, b] = [z, -z].map(f32::exp);
                f64::from((a - b) / (a + b) + 1.0) * x / 2.0
            },
        ),
        ("gelu without its factor x: Φ(x) alone, by its tanh approximation", |x| 0.5 + 0.5 * tanh_of(x)),
        ("gelu without its factor x: Φ(x) alone, by the error function", |x| 0.5 + 0.5 * erf(x * 0.5f64.sqrt())),
        ("quick gelu without its factor x: σ(1.702·x) alone", |x| sigma(1.702 * x)),
        ("squared relu that squares negative values too: x²", |x| x.powi(2)),
        ("gelu with 0.044715·x² where x³ belongs", |x| 0.5 * x * (1.0 + (0.7978845608 * x * (1.0 + 0.044715 * x)).tanh())),
    ]
}

/// What becomes of a gate, by words.
fn changes() -> Vec<Function> {
    vec![
        ("1 is added to the gate, as gpt-oss has it", |u| 1.0 + u),
        ("1 is subtracted from the gate", |u| u - 1.0),
        ("the gate has the other sign", |u| -u),
        ("the gate is multiplied by its own magnitude", |u| if u < 0.0 { -u * u } else { u * u }),
        ("the gate is squared", |u| u.powi(2)),
        ("the gate is replaced by its magnitude", |u| if u < 0.0 { -u } else { u }),
        ("a negative gate becomes 0", |u| if u < 0.0 { 0.0 } else { u }),
        ("the gate goes through σ", |u| 1.0 / (1.0 + (-u).exp())),
        ("the gate is rounded to bf16", bf16),
        ("the gate is rounded to f16", f16),
        ("the gate is rounded to e4m3", e4m3),
    ]
}

/// Other readings of a row.
const READS: [&str; 11] = [
    "the halves of a row are exchanged: [gate | x] is read",
    "x and gate are read as interleaved, x first",
    "x and gate are read as interleaved, the gate first",
    "the first half of a row is read for both",
    "the second half of a row is read for both",
    "the second half of row r is read at the row stride of one half: at (r + 1)·H",
    "the first half of row r is read at the row stride of one half: at r·H",
    "both halves of row r are read at the row stride of one half: at r·H and (r + 1)·H",
    "all first halves are read before all second ones, as two matrices",
    "x and gate are interleaved, x first, and the halves of that are read for x and gate",
    "x and gate are interleaved, the gate first, and the halves of that are read for x and gate",
];

/// A row whose halves are put together by blocks in turn, x first.
fn in_turn(row: &[f64], cols: usize, block: usize) -> Vec<f64> {
    let (x, u) = row.split_at(cols);
    x.chunks(block).zip(u.chunks(block)).flat_map(|(x, u)| [x, u].concat()).collect()
}

/// x and gate as another reading of the row gives them.
fn read(words: &str, p: Place) -> Option<(f64, f64)> {
    let row = &p.rows[p.i];
    // The rows behind each other, each half of which is a line of `cols`.
    let line = |n: usize| p.rows.concat().chunks(p.cols).nth(n).map_or(0.0, |line| line[p.j]);
    let second = row[p.cols + p.j];
    let (first, turned) = (in_turn(row, p.cols, 1), in_turn(&[&row[p.cols..], &row[..p.cols]].concat(), p.cols, 1));
    let reads: [Option<(f64, f64)>; 8] = [
        Some((row[p.j], row[p.j])),
        Some((second, second)),
        Some((row[p.j], line(p.i + 1))),
        Some((line(p.i), second)),
        Some((line(p.i), line(p.i + 1))),
        Some((line(p.i), line(p.rows.len() + p.i))),
        Some((first[p.j], first[p.cols + p.j])),
        Some((turned[p.j], turned[p.cols + p.j])),
    ];
    if let Some(n) = READS[3..].iter().position(|w| *w == words) {
        return reads[n];
    }
    match words {
        "the halves of a row are exchanged: [gate | x] is read" => Some((row[p.cols + p.j], row[p.j])),
        "x and gate are read as interleaved, x first" => Some((row[p.j + p.j], row[p.j + p.j + 1])),
        "x and gate are read as interleaved, the gate first" => Some((row[p.j + p.j + 1], row[p.j + p.j])),
        _ => None,
    }
}

/// x at most a limit, the gate within it.
fn clamped(x: f64, u: f64, limit: f64) -> (f64, f64) {
    (
        if x > limit { limit } else { x },
        if u > limit {
            limit
        } else if u < -limit {
            -limit
        } else {
            u
        },
    )
}

/// Two steps at once, as kernels order them: read, clamp, activate, change the gate.
fn pair(first: &str, second: &str, own: fn(f64) -> f64, p: Place) -> f64 {
    let steps = [first, second];
    let (mut x, mut u) = steps.iter().find_map(|s| read(s, p)).unwrap_or((p.x(), p.gate()));
    for s in steps {
        let (text, numbers) = pattern(s);
        if text == "x is clamped at # and the gate at ±#" {
            (x, u) = clamped(x, u, numbers[0]);
        }
    }
    if second.starts_with("the formula of gpt-oss") {
        // 1.702 is the last number of its words.
        let numbers = pattern(second).1;
        let (x, u) = if second.contains("limit") { clamped(x, u, numbers[0]) } else { (x, u) };
        return x / (1.0 + (-1.702 * x).exp()) * (1.0 + u);
    }
    let f = functions().into_iter().find(|f| steps.iter().any(|s| s.strip_prefix("the activation is ") == Some(f.0)));
    let g = changes().into_iter().find(|g| steps.contains(&g.0));
    f.map_or(own, |f| f.1)(x) * g.map_or(u, |g| (g.1)(u))
}

/// Every formula of an activation but pairs.
fn table<'x>(own: fn(f64) -> f64) -> Hand<'x, Place<'x>> {
    let f = move |p: Place| own(p.x());
    let gpt = |x: f64, u: f64| x * sigma(1.702 * x) * (u + 1.0);
    let mut all: Hand<Place> = vec![
        ("", Box::new(move |_, p| f(p) * p.gate())),
        ("x is that of row i + 1", Box::new(move |_, p| own(p.x_at(p.i + 1)) * p.gate())),
        ("x is that of row i − 1", Box::new(move |_, p| own(p.x_at(p.i + p.rows.len() - 1)) * p.gate())),
        (
            "x is that of row 0 for every row: its pointer lacks the row's offset",
            Box::new(move |_, p| own(p.x_at(0)) * p.gate()),
        ),
        ("x is clamped at ±7", Box::new(move |n, p| own(p.x().max(-n[0]).min(n[0])))),
        ("the gate is that of row i + 1", Box::new(move |_, p| f(p) * p.gate_at(p.i + 1, p.j))),
        ("the gate is that of row i − 1", Box::new(move |_, p| f(p) * p.gate_at(p.i + p.rows.len() - 1, p.j))),
        (
            "the gate is that of row 0 for every row: its pointer lacks the row's offset",
            Box::new(move |_, p| f(p) * p.gate_at(0, p.j)),
        ),
        ("the gate is that of row (i / 2)·2", Box::new(move |n, p| f(p) * p.gate_at(p.i - p.i % n[0] as usize, p.j))),
        ("the gate is that of row i mod 2", Box::new(move |n, p| f(p) * p.gate_at(p.i % n[0] as usize, p.j))),
        ("the gate is x again: its pointer lacks the half row", Box::new(move |_, p| f(p) * p.x())),
        ("the gate of column 0 is used for all columns", Box::new(move |_, p| f(p) * p.gate_at(p.i, 0))),
        ("the gate is that of column j + 8, wrapped", Box::new(move |n, p| f(p) * p.gate_at(p.i, p.j + n[0] as usize))),
        (
            "the gate is that of column j − 8, wrapped",
            Box::new(move |n, p| f(p) * p.gate_at(p.i, p.j + 100 * p.cols - n[0] as usize)),
        ),
        (
            "the gate is that of column j − 8, and before the first the last of x: its pointer is 8 too small",
            Box::new(move |n, p| match (p.cols + p.j).checked_sub(n[0] as usize) {
                Some(at) => f(p) * p.rows[p.i][at],
                None => f64::NAN,
            }),
        ),
        (
            "the second half of a row is read where it is when halves are padded to multiples of 8, on into the next row",
            Box::new(move |n, p| {
                let padded = (p.cols as f64 / n[0]).ceil() * n[0];
                f(p) * p.flat(padded as usize + p.j)
            }),
        ),
        (
            "the second half of a row is read 8 elements further on, on into the next row",
            Box::new(move |n, p| f(p) * p.flat(p.cols + n[0] as usize + p.j)),
        ),
        ("the gate is not multiplied", Box::new(move |_, p| f(p))),
        ("the activation is left out: the gate alone is written", Box::new(move |_, p| p.gate())),
        ("the gate is activated too", Box::new(move |_, p| f(p) * own(p.gate()))),
        ("gate and x are added, not multiplied", Box::new(move |_, p| f(p) + p.gate())),
        (
            "x is clamped at 7 and the gate at ±7",
            Box::new(move |n, p| {
                let (x, u) = clamped(p.x(), p.gate(), n[0]);
                own(x) * u
            }),
        ),
        ("x is clamped at 7", Box::new(move |n, p| own(p.x().min(n[0])) * p.gate())),
        (
            "the formula of gpt-oss with a limit of 7: x·σ(1.702·x)·(gate + 1)",
            Box::new(move |n, p| {
                let (x, u) = clamped(p.x(), p.gate(), n[0]);
                gpt(x, u)
            }),
        ),
        ("the formula of gpt-oss: x·σ(1.702·x)·(gate + 1)", Box::new(move |_, p| gpt(p.x(), p.gate()))),
    ];
    type Round = (&'static str, &'static str, &'static str, fn(f64) -> f64);
    let rounds: [Round; 3] = [
        (
            "x is rounded to bf16 before it is activated",
            "the activation is rounded to bf16 before it meets the gate: one rounding more than the formula has",
            "the result is rounded to bf16 before it is stored",
            bf16,
        ),
        (
            "x is rounded to f16 before it is activated",
            "the activation is rounded to f16 before it meets the gate: one rounding more than the formula has",
            "the result is rounded to f16 before it is stored",
            f16,
        ),
        (
            "x is rounded to e4m3 before it is activated",
            "the activation is rounded to e4m3 before it meets the gate: one rounding more than the formula has",
            "the result is rounded to e4m3 before it is stored",
            e4m3,
        ),
    ];
    for (before, between, after, r) in rounds {
        all.push((before, Box::new(move |_, p| own(r(p.x())) * p.gate())));
        all.push((between, Box::new(move |_, p| r(f(p)) * p.gate())));
        all.push((after, Box::new(move |_, p| r(f(p) * p.gate()))));
    }
    for words in READS {
        all.push((
            words,
            Box::new(move |_, p| {
                let (x, u) = read(words, p).unwrap();
                own(x) * u
            }),
        ));
    }
    all.push((
        "a row is read as blocks of 9 of x and 9 of the gate in turn, not as halves",
        Box::new(move |n, p| {
            let (b, row) = (n[0] as usize, &p.rows[p.i]);
            let blocks: Vec<&[f64]> = row.chunks(b).collect();
            if !p.cols.is_multiple_of(b) {
                return f64::NAN;
            }
            own(blocks[2 * (p.j / b)][p.j % b]) * blocks[2 * (p.j / b) + 1][p.j % b]
        }),
    ));
    all.push((
        "blocks of 9 of x and 9 of the gate are put in turn, and the halves of that are read for x and gate",
        Box::new(move |n, p| {
            let b = n[0] as usize;
            if !p.cols.is_multiple_of(b) {
                return f64::NAN;
            }
            let row = in_turn(&p.rows[p.i], p.cols, b);
            own(row[p.j]) * row[p.cols + p.j]
        }),
    ));
    for (words, g) in changes() {
        all.push((words, Box::new(move |_, p| f(p) * g(p.gate()))));
    }
    all
}

#[test]
fn activations_by_hand() {
    let (count, cols) = (11, 24);
    type Own = (Act, fn(f64) -> f64);
    let both: [Own; 2] = [(Act::Silu, silu), (Act::Srelu, |x| if x > 0.0 { x * x } else { 0.0 })];
    let mut seen = BTreeSet::new();
    let mut named = BTreeSet::new();
    for ((act, own), op) in both.into_iter().flat_map(|both| [Op::Gated, Op::Activation].map(|op| (both, op))) {
        let rows = rows(count, if op == Op::Gated { 2 * cols } else { cols });
        let all = gates::activations(op, act);
        let table = table(own);
        for (formula, i) in all.iter().flat_map(|f| [0, 5, 10].map(|i| (f, i))) {
            let at = At { rows: &rows, i, gamma: &[], beta: &[], eps: 0.0, cols };
            let made = formula.row(&at);
            assert_eq!(made.len(), cols, "{}", formula.words);
            let words = formula.words.as_str();
            for (j, y) in made.into_iter().enumerate() {
                let p = Place { rows: &rows, i, j, cols };
                let hand = if let Some((first, second)) = words.split_once("; and ") {
                    pair(first, second, own, p)
                } else if let Some((name, f)) =
                    functions().into_iter().find(|f| words.strip_prefix("the activation is ") == Some(f.0))
                {
                    named.insert(name);
                    f(p.x()) * p.gate()
                } else {
                    let (n, numbers) = which(&table, words);
                    seen.insert(n);
                    (table[n].1)(&numbers, p)
                };
                assert!(
                    same(y, hand),
                    "{op:?} {act:?}: \"{words}\" row {i}, column {j}: {y}, by hand {hand}; x {}, gate {}",
                    p.x(),
                    p.gate()
                );
            }
        }
    }
    all_seen(&table(silu), &seen);
    assert_eq!(named.len(), functions().len());
}
