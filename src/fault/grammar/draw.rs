//! Questions: operands of a product and one or two wrong steps of its kernel, drawn from a seed.

use crate::input::philox::Stream;
use crate::quant::{QTensorParts, Zero};
use crate::{Format, Granularity, Overflow, QTensor, Result, Rounding};

/// Which operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    A,
    B,
}

/// Where a scale or zero point is read instead of grid place (r, c): along the rows, or along K.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Index {
    /// x + d, wrapped.
    Shift(usize),
    /// x / d.
    Divide(usize),
    /// x mod d.
    Modulo(usize),
    /// One for all.
    Fixed(usize),
}

impl Index {
    pub fn of(self, x: usize, n: usize) -> usize {
        match self {
            Index::Shift(d) => (x + d) % n,
            Index::Divide(d) => x / d,
            Index::Modulo(d) => x % d,
            Index::Fixed(d) => d.min(n - 1),
        }
    }
    pub fn number(self) -> usize {
        match self {
            Index::Shift(d) | Index::Divide(d) | Index::Modulo(d) | Index::Fixed(d) => d,
        }
    }
}

/// What a scale becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WrongScale {
    Omitted,
    Squared,
    Inverted,
    PowerOfTwoUp,
    PowerOfTwoDown,
    Bf16,
}

/// One wrong step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// The result times this.
    Gain(f64),
    /// K from..to is not summed, summed twice, or summed alone.
    Dropped(usize, usize),
    Doubled(usize, usize),
    Alone(usize, usize),
    ScaleRule(Which, WrongScale),
    /// Along the rows of the grid, or along its columns.
    ScaleRow(Which, Index),
    ScaleGroup(Which, Index),
    /// The grid read in the other order.
    ScaleTransposed(Which),
    /// A group length other than the tensor's.
    ScaleLength(Which, usize),
    ZeroOffset(Which, i32),
    ZeroOmitted(Which),
    ZeroNegated(Which),
    ZeroRow(Which, Index),
    /// Codes of another format of as many bits.
    ReadAs(Which, Format),
    SubnormalsFlushed(Which),
    /// Along K: k xor m.
    CodeXor(Which, usize),
    /// Along K: every p·q as p × q, transposed.
    CodeOrder(Which, usize, usize),
    /// A row stride that is this many too long.
    CodeStride(Which, usize),
    /// Row i of the result holds row i + d, wrapped.
    RowsMoved(usize),
    /// Every row is stored d columns on, wrapped.
    ColumnsMoved(usize),
    BiasOmitted,
    Clamped(f64),
    /// Every row holds that of an expert e + d.
    Expert(usize),
}

/// Where it happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Reach {
    pub rows: std::ops::Range<usize>,
    pub cols: std::ops::Range<usize>,
    pub all: bool,
}

/// One question.
#[derive(Clone, Debug)]
pub struct Question {
    pub number: u64,
    pub a: QTensor,
    pub b: QTensor,
    pub bias: Option<Vec<f32>>,
    /// Ends of groups; absent for a plain product.
    pub offs: Option<Vec<usize>>,
    pub out: Format,
    pub effects: Vec<Effect>,
    pub region: Reach,
}

/// Draws of one question.
pub struct Dice {
    stream: Stream,
    at: u64,
    number: u64,
}

impl Dice {
    pub fn new(seed: u64, number: u64) -> Self {
        Self { stream: Stream::new(seed, 0x6772_616d), at: 0, number }
    }
    fn word(&mut self) -> u32 {
        self.at += 1;
        self.stream.words(self.at as u32, self.number)[0]
    }
    pub fn unit(&mut self) -> f64 {
        (f64::from(self.word()) + 0.5) / 4_294_967_296.0
    }
    /// 0 … n − 1.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.unit() * n as f64) as usize).min(n.saturating_sub(1))
    }
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// An operand with scales that differ, of no power of two.
fn operand(
    d: &mut Dice,
    format: Format,
    rows: usize,
    k: usize,
    granularity: Granularity,
    scales: Format,
    zeros: bool,
) -> Result<QTensor> {
    let (gr, gc) = granularity.grid(rows, k);
    let mut scale = || {
        let x = 0.01 * (1.2 * d.normal()).exp();
        scales.decode(scales.encode(x, Rounding::NearestEven, Overflow::Saturate)) as f32
    };
    let scale_inv: Vec<f32> = (0..gr * gc).map(|_| scale()).map(|s| if s > 0.0 { s } else { 0.015625 }).collect();
    let spread = if format.is_integer() { format.max_finite() / 2.5 } else { format.max_finite().sqrt().max(2.0) };
    let middle = if format == Format::Uint4 { 7.5 } else { 0.0 };
    let codes = (0..rows * k)
        .map(|_| format.encode(middle + spread * d.normal(), Rounding::NearestEven, Overflow::Saturate) as u8)
        .collect();
    let zero = match zeros {
        true => Zero::Integer(
            (0..gr * gc)
                .map(|_| {
                    format.min_finite() as i32 + 2 + d.below((format.max_finite() - format.min_finite()) as usize - 3) as i32
                })
                .collect(),
        ),
        false => Zero::None,
    };
    QTensor::new(QTensorParts { format, rows, cols: k, codes, granularity, scale_format: scales, scale_inv, zero, level: None })
}

fn granularity(d: &mut Dice, k: usize) -> Granularity {
    let g = d.of(&[16usize, 32, 48, 64]);
    match d.below(5) {
        0 => Granularity::Tensor,
        1 | 2 => Granularity::Row,
        3 if k > g => Granularity::Group(g),
        _ if k > g => Granularity::Block { rows: d.of(&[4, 8, 16]), cols: g },
        _ => Granularity::Row,
    }
}

/// Question `number` of a seed, with one or two effects. Errors: none that the drawn numbers have.
pub fn question(seed: u64, number: u64, two: bool) -> Result<Question> {
    let d = &mut Dice::new(seed, number);
    let grouped = d.below(6) == 0;
    let m = d.of(&[1usize, 3, 8, 17, 24, 40, 64]).max(if grouped { 17 } else { 1 });
    let n = 8 * (2 + d.below(9));
    let k = d.of(&[64usize, 96, 112, 128, 160, 208, 256, 320]);
    let experts = if grouped { 3 + d.below(3) } else { 1 };
    let pair = d.below(if grouped { 3 } else { 5 });
    let (fa, fb) = match pair {
        0 => (Format::E4m3, Format::E4m3),
        1 => (Format::E5m2, Format::E4m3),
        2 => (Format::E2m1, Format::E2m1),
        3 => (Format::Int8, Format::Int8),
        _ => (Format::Int8, Format::Uint4),
    };
    let integers = fa.is_integer();
    let ga = if integers { Granularity::Row } else { granularity(d, k) };
    let ga = match ga {
        Granularity::Block { cols, .. } if grouped => Granularity::Group(cols),
        g => g,
    };
    let gb = if fb == Format::Uint4 {
        Granularity::Group(d.of(&[16, 32, 64]))
    } else if integers {
        Granularity::Row
    } else {
        granularity(d, k)
    };
    let gb = match gb {
        Granularity::Block { cols, .. } if grouped => Granularity::Group(cols),
        Granularity::Tensor if grouped => Granularity::Row,
        g => g,
    };
    let centred = integers && d.below(2) == 0;
    let a = operand(d, fa, m, k, ga, Format::F32, centred)?;
    let b = operand(d, fb, n * experts, k, gb, Format::F32, fb == Format::Uint4)?;
    let bias = (!grouped && d.below(2) == 0).then(|| (0..n).map(|_| d.normal() as f32).collect());
    let offs = grouped.then(|| {
        let mut ends: Vec<usize> = (1..experts).map(|_| d.below(m + 1)).chain([m]).collect();
        ends.sort_unstable();
        ends
    });
    let out = d.of(&[Format::F32, Format::Bf16, Format::F16]);
    let mut q =
        Question { number, a, b, bias, offs, out, effects: Vec::new(), region: Reach { rows: 0..m, cols: 0..n, all: true } };
    let wanted = if two { 2 } else { 1 };
    while q.effects.len() < wanted {
        let Some(e) = effect(d, &q) else { continue };
        if q.effects.iter().all(|x| std::mem::discriminant(x) != std::mem::discriminant(&e) && place(x) != place(&e)) {
            q.effects.push(e);
        }
    }
    if !two && m >= 8 && d.below(3) == 0 && place(&q.effects[0]) != 9 {
        q.region = match d.below(4) {
            0 => Reach { rows: m / 2..m, cols: 0..n, all: false },
            1 => {
                let from = d.below(m - 4);
                Reach { rows: from..(from + 3 + d.below(m - from - 3)).min(m), cols: 0..n, all: false }
            }
            2 => {
                let from = d.below(n - 4);
                Reach { rows: 0..m, cols: from..(from + 3 + d.below(n - from - 3)).min(n), all: false }
            }
            _ => {
                let (i, j) = (d.below(m - 4), d.below(n - 8));
                Reach { rows: i..(i + 4 + d.below(8)).min(m), cols: j..(j + 8 + d.below(16)).min(n), all: false }
            }
        };
    }
    Ok(q)
}

/// What part of the kernel an effect changes: two of one part undo each other.
pub fn place(e: &Effect) -> usize {
    match e {
        Effect::Gain(_) | Effect::Clamped(_) | Effect::BiasOmitted => 0,
        Effect::Dropped(..) | Effect::Doubled(..) | Effect::Alone(..) => 1,
        Effect::ScaleRule(w, _)
        | Effect::ScaleRow(w, _)
        | Effect::ScaleGroup(w, _)
        | Effect::ScaleTransposed(w)
        | Effect::ScaleLength(w, _) => 2 + *w as usize,
        Effect::ZeroOffset(w, _) | Effect::ZeroOmitted(w) | Effect::ZeroNegated(w) | Effect::ZeroRow(w, _) => 4 + *w as usize,
        Effect::ReadAs(w, _)
        | Effect::SubnormalsFlushed(w)
        | Effect::CodeXor(w, _)
        | Effect::CodeOrder(w, ..)
        | Effect::CodeStride(w, _) => 6 + *w as usize,
        Effect::RowsMoved(_) | Effect::ColumnsMoved(_) => 9,
        Effect::Expert(_) => 10,
    }
}

fn index(d: &mut Dice, n: usize) -> Index {
    match d.below(4) {
        0 => Index::Shift(1 + d.below(n - 1)),
        1 => Index::Divide(2 + d.below(n.min(6))),
        2 => Index::Modulo(1 + d.below(n - 1)),
        _ => Index::Fixed(d.below(n)),
    }
}

/// An effect that the question's operands can have. `None`: the draw does not fit them.
fn effect(d: &mut Dice, q: &Question) -> Option<Effect> {
    let w = d.of(&[Which::A, Which::B]);
    let t = if w == Which::A { &q.a } else { &q.b };
    let k = t.cols();
    let (gr, gc) = t.granularity().grid(t.rows(), k);
    let zeros = matches!(t.zero(), Zero::Integer(_));
    let range = |d: &mut Dice| {
        let from = d.below(k - 1);
        (from, from + 1 + d.below(k - from))
    };
    Some(match d.below(24) {
        0 => Effect::Gain(0.5 + 1.5 * d.unit()),
        1 | 2 => {
            let (from, to) = range(d);
            (to - from < k).then_some(Effect::Dropped(from, to))?
        }
        3 => Effect::Dropped(k - 1 - d.below(k / 2), k),
        4 => {
            let (from, to) = range(d);
            (to - from < k).then_some(Effect::Doubled(from, to))?
        }
        5 => {
            let (from, to) = range(d);
            (to - from < k).then_some(Effect::Alone(from, to))?
        }
        6 | 7 => Effect::ScaleRule(
            w,
            d.of(&[
                WrongScale::Omitted,
                WrongScale::Squared,
                WrongScale::Inverted,
                WrongScale::PowerOfTwoUp,
                WrongScale::PowerOfTwoDown,
                WrongScale::Bf16,
            ]),
        ),
        8 | 9 => (gr > 1).then(|| Effect::ScaleRow(w, index(d, gr)))?,
        10 | 11 => (gc > 1).then(|| Effect::ScaleGroup(w, index(d, gc)))?,
        12 => (gr > 1 && gc > 1).then_some(Effect::ScaleTransposed(w))?,
        13 => (gc > 1).then(|| Effect::ScaleLength(w, 8 + d.below(k)))?,
        14 => zeros.then(|| Effect::ZeroOffset(w, d.of(&[-3, -2, -1, 1, 2, 8])))?,
        15 => zeros.then(|| d.of(&[Effect::ZeroOmitted(w), Effect::ZeroNegated(w)]))?,
        16 => (zeros && gr > 1).then(|| Effect::ZeroRow(w, index(d, gr)))?,
        17 => Effect::ReadAs(
            w,
            match t.format() {
                Format::E4m3 => d.of(&[Format::E5m2, Format::Int8, Format::E4m3Fnuz]),
                Format::E5m2 => d.of(&[Format::E4m3, Format::E5m2Fnuz]),
                Format::Int8 => Format::E4m3,
                Format::Uint4 => Format::Int4,
                _ => Format::Int4,
            },
        ),
        18 => t.format().is_float().then_some(Effect::SubnormalsFlushed(w))?,
        19 => Effect::CodeXor(w, 1 + d.below(31)),
        20 => Effect::CodeOrder(w, d.of(&[2, 4, 8]), d.of(&[2, 4])),
        21 => (t.rows() > 2).then(|| Effect::CodeStride(w, 1 + d.below(32)))?,
        22 => {
            let (m, n) = (q.a.rows(), q.b.rows() / q.offs.as_ref().map_or(1, Vec::len));
            match d.below(3) {
                0 if m > 2 => Effect::RowsMoved(1 + d.below(m - 1)),
                1 if q.bias.is_some() => Effect::BiasOmitted,
                _ => Effect::ColumnsMoved(1 + d.below(n - 1)),
            }
        }
        _ => {
            let experts = q.offs.as_ref()?.len();
            Effect::Expert(1 + d.below(experts - 1))
        }
    })
}
