//! Theories of scales that are quantized themselves: the second level's place or absence, the sub-scales left out, their six bits unpacked
//! otherwise.

use super::maps;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::{Format, QTensor, Zero};
use std::sync::Arc;

/// Sub-scales and sub-zero-points of a tensor, and what multiplies each.
struct Levels {
    scale: Vec<f64>,
    zero: Option<Vec<f64>>,
    over: Vec<(f64, f64)>,
}

impl Levels {
    fn of(q: &QTensor) -> Self {
        let n = q.scale_inv().len();
        Self {
            scale: q.scale_inv().iter().map(|x| f64::from(*x)).collect(),
            zero: match q.zero() {
                Zero::Additive { zero, .. } => Some(zero.iter().map(|x| f64::from(*x)).collect()),
                _ => None,
            },
            over: (0..n).map(|s| q.over(s)).map(|(s, z)| (f64::from(s), f64::from(z))).collect(),
        }
    }
}

/// Numbers of every cell of the grid: scales, and zero points where there are some.
type Read = (Vec<f64>, Option<Vec<f64>>);

/// Theories of one side whose scales have two levels.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let Some(q) = &g.deep else { return Vec::new() };
    let x = Levels::of(q);
    let n = x.scale.len();
    let (tile, (rows, cols)) = (g.tile, g.grid);
    let cell = move |i: usize, k: usize| i / tile.0 * cols + k / tile.1;
    let right: Read = read(&x, |c| (x.scale[c], x.over[c].0), |z, c| (z[c], x.over[c].1));
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &str, words: String, bits: f64, (scale, zero): Read| {
        let mut t = Theory::new(class, name, format!("{name}.{variant}"), words).bits(bits);
        if scale != right.0 {
            t.side(side).scaled(tile.1, Arc::new(move |i, k| scale[cell(i, k)]));
        }
        if let Some(zero) = zero.filter(|z| Some(z) != right.1.as_ref()) {
            t.side(side).zeroed(tile.1, Arc::new(move |i, k| zero[cell(i, k)]));
        }
        if !t.side(side).is_given() {
            all.push(t);
        }
    };
    let own = |z: &[f64], c: usize| (z[c], x.over[c].1);
    // Levels left out, or taken twice.
    let plain = |z: &[f64], c: usize| (f64::from(u8::from(z[c] != 0.0)), x.over[c].1);
    let sub = format!("the scales of {name} under the second level");
    add(Class::ScaleOmitted, "sub", format!("{sub} are left out, and the zero points' with them"), 1.0, {
        read(&x, |c| (1.0, x.over[c].0), |_, c| (1.0, x.over[c].1))
    });
    add(Class::ScaleOmitted, "sub", format!("{sub} are left out"), 1.5, read(&x, |c| (1.0, x.over[c].0), own));
    add(Class::ScaleOmitted, "sub", format!("{sub} are left out, and all zero points but 0"), 2.5, {
        read(&x, |c| (1.0, x.over[c].0), plain)
    });
    let second = format!("the second level of the scales of {name}");
    for (class, word, f) in [
        (Class::ScaleOmitted, "never applied", (|_| 1.0) as fn(f64) -> f64),
        (Class::ScaleDoubledInverted, "applied twice", |x| x * x),
        (Class::ScaleDoubledInverted, "applied as its reciprocal", |x| 1.0 / x),
    ] {
        add(class, "second", format!("{second} is {word}"), 1.0, read(&x, |c| (x.scale[c], f(x.over[c].0)), own));
        let both = |z: &[f64], c: usize| (z[c], f(x.over[c].1));
        add(
            class,
            "second",
            format!("{second} and of its zero points is {word}"),
            1.5,
            read(&x, |c| (x.scale[c], f(x.over[c].0)), both),
        );
    }
    // Another place of either level.
    let level = q.level().map(|l| l.granularity.grid(rows, cols)).unwrap_or((1, 1));
    let from = |c: usize| (0..n).find(|at| index(q, *at, (rows, cols)) == c).unwrap_or(0);
    let first: Vec<usize> = (0..level.0 * level.1).map(from).collect();
    for way in maps::ways(level.0, level.1, experts(s, side)) {
        let to = |c: usize| first[(way.map)(index(q, c, (rows, cols)) / level.1, index(q, c, (rows, cols)) % level.1)];
        let words = format!("{second} at row r, group c of its {}×{} grid is read from {}", level.0, level.1, way.words);
        let zero = |z: &[f64], c: usize| (z[c], x.over[to(c)].1);
        add(way.kind.class(), "second_index", words, 4.0 + way.bits, read(&x, |c| (x.scale[c], x.over[to(c)].0), zero));
    }
    for way in maps::ways(rows, cols, experts(s, side)) {
        let to = |c: usize| (way.map)(c / cols, c % cols);
        let words = format!("{sub} at row r, group c of the {rows}×{cols} grid are read from {}", way.words);
        let zero = |z: &[f64], c: usize| (z[to(c)], x.over[c].1);
        add(way.kind.class(), "sub_index", words, 5.0 + way.bits, read(&x, |c| (x.scale[to(c)], x.over[c].0), zero));
    }
    if q.scale_format() == Format::Uint6 && cols.is_multiple_of(8) {
        for (words, bits, (scale, zero)) in unpacked(&x) {
            let min = |c: usize| zero.get(c).copied().unwrap_or(0.0);
            // Either may be unpacked right.
            for (what, more, of_scale, of_min) in
                [("scales and minima", 0.0, true, true), ("scales", 0.5, true, false), ("minima", 0.5, false, true)]
            {
                let read = read(
                    &x,
                    |c| (if of_scale { scale[c] } else { x.scale[c] }, x.over[c].0),
                    |z, c| (if of_min { min(c) } else { z[c] }, x.over[c].1),
                );
                let words = format!("the 6-bit {what} of {name} {words}");
                add(Class::BitsReinterpreted, "six_bits", words, 3.0 + bits + more, read);
            }
        }
    }
    all
}

/// Sub-number and what multiplies it, of every cell.
fn read(x: &Levels, scale: impl Fn(usize) -> (f64, f64), zero: impl Fn(&[f64], usize) -> (f64, f64)) -> Read {
    let product = |(a, b): (f64, f64)| a * b;
    let n = x.scale.len();
    let zeros = x.zero.as_ref().map(|z| (0..n).map(|c| product(zero(z, c))).collect());
    ((0..n).map(|c| product(scale(c))).collect(), zeros)
}

fn index(q: &QTensor, c: usize, (rows, cols): (usize, usize)) -> usize {
    let Some(level) = q.level() else { return 0 };
    let ((r, w), (_, across)) = (level.granularity.tile(rows, cols), level.granularity.grid(rows, cols));
    c / cols / r * across + c % cols / w
}

fn experts(s: &System, side: Which) -> usize {
    if side == Which::B { s.parts.len().max(1) } else { 1 }
}

/// Eight scales and eight minima of six bits in twelve bytes, as GGUF's Q4_K packs them: bytes 0 … 3 hold scales 0 … 3 and above them the
/// upper bits of scales 4 … 7, bytes 4 … 7 the same of minima, bytes 8 … 11 the lower bits of scales and minima 4 … 7.
fn packed(scale: &[u8], min: &[u8]) -> [u8; 12] {
    let mut b = [0; 12];
    for j in 0..4 {
        b[j] = scale[j] & 63 | (scale[j + 4] >> 4) << 6;
        b[j + 4] = min[j] & 63 | (min[j + 4] >> 4) << 6;
        b[j + 8] = scale[j + 4] & 15 | (min[j + 4] & 15) << 4;
    }
    b
}

/// Scale and minimum `j` of eight, from their twelve bytes.
type Unpack = fn(&[u8; 12], usize) -> (u8, u8);

fn right(b: &[u8; 12], j: usize) -> (u8, u8) {
    if j < 4 {
        return (b[j] & 63, b[j + 4] & 63);
    }
    (b[j + 4] & 15 | (b[j - 4] >> 6) << 4, b[j + 4] >> 4 | (b[j] >> 6) << 4)
}

fn upper(j: usize, otherwise: impl FnOnce() -> (u8, u8), b: &[u8; 12]) -> (u8, u8) {
    if j < 4 { right(b, j) } else { otherwise() }
}

/// The bits from `at` on of a stream of bytes, least significant first.
fn six(b: &[u8], at: usize) -> u8 {
    let word = u16::from(b[at / 8]) | b.get(at / 8 + 1).map_or(0, |x| u16::from(*x) << 8);
    (word >> (at % 8)) as u8 & 63
}

/// Ways to unpack them that are not theirs.
const UNPACK: [(&str, f64, Unpack); 17] =
    [
        ("are read as a plain stream of 6-bit fields", 1.0, |b, j| (six(b, 6 * j), six(b, 48 + 6 * j))),
        ("are read as a plain stream of 6-bit fields, minima from byte 4 on", 2.0, |b, j| {
            (six(b, 6 * j), six(b, (32 + 6 * j).min(88)))
        }),
        ("are read as a plain stream of 6-bit fields, scale and minimum in turns", 2.0, |b, j| {
            (six(b, 12 * j), six(b, 12 * j + 6))
        }),
        ("1 … 7 are read as a plain stream of 6-bit fields, scale and minimum in turns", 2.0, |b, j| {
            if j == 0 { right(b, 0) } else { (six(b, 12 * j), six(b, 12 * j + 6)) }
        }),
        ("4 … 7 are read as 0 … 3 are, from the lower six bits of bytes j and j + 4", 2.0, |b, j| {
            (b[j] & 63, b[j + 4] & 63)
        }),
        ("4 … 7 lose their upper two bits", 1.0, |b, j| upper(j, || (b[j + 4] & 15, b[j + 4] >> 4), b)),
        ("all lose their upper two bits", 1.5, |b, j| {
            let (s, m) = right(b, j);
            (s & 15, m & 15)
        }),
        ("4 … 7 have their upper two bits from each other", 2.0, |b, j| {
            upper(j, || (b[j + 4] & 15 | (b[j] >> 6) << 4, b[j + 4] >> 4 | (b[j - 4] >> 6) << 4), b)
        }),
        ("4 … 7 have the scale's upper bits in both", 2.5, |b, j| {
            upper(j, || (b[j + 4] & 15 | (b[j - 4] >> 6) << 4, b[j + 4] >> 4 | (b[j - 4] >> 6) << 4), b)
        }),
        ("4 … 7 have the minimum's upper bits in both", 2.5, |b, j| {
            upper(j, || (b[j + 4] & 15 | (b[j] >> 6) << 4, b[j + 4] >> 4 | (b[j] >> 6) << 4), b)
        }),
        ("4 … 7 have their lower four bits from each other", 2.0, |b, j| {
            upper(j, || (b[j + 4] >> 4 | (b[j - 4] >> 6) << 4, b[j + 4] & 15 | (b[j] >> 6) << 4), b)
        }),
        ("4 … 7 have their upper bits two places too low", 3.0, |b, j| {
            upper(j, || (b[j + 4] & 15 | (b[j - 4] >> 6) << 2, b[j + 4] >> 4 | (b[j] >> 6) << 2), b)
        }),
        ("4 … 7 are those of 0 … 3", 2.0, |b, j| right(b, j % 4)),
        ("0 … 3 are those of 4 … 7", 2.5, |b, j| right(b, 4 + j % 4)),
        ("are exchanged: scales are read as minima", 1.5, |b, j| {
            let (s, m) = right(b, j);
            (m, s)
        }),
        ("0 … 3 keep the upper two bits of others: they are not masked", 1.5, |b, j| {
            if j < 4 { (b[j], b[j + 4]) } else { right(b, j) }
        }),
        ("are read as whole bytes 0 … 7 and 4 … 11", 3.0, |b, j| (b[j], b[j + 4])),
    ];

/// Words, bits, scales and minima.
type Other = (&'static str, f64, (Vec<f64>, Vec<f64>));

/// Scales and minima of every way.
fn unpacked(x: &Levels) -> Vec<Other> {
    let byte = |v: &f64| *v as u8;
    let scale: Vec<u8> = x.scale.iter().map(byte).collect();
    let min: Vec<u8> = x.zero.as_ref().map_or_else(|| vec![0; scale.len()], |z| z.iter().map(byte).collect());
    let unsigned: fn(u8) -> f64 = f64::from;
    let signed: fn(u8) -> f64 = |x| f64::from(x) - if x > 31 { 64.0 } else { 0.0 };
    let ways = UNPACK.iter().map(|(words, bits, f)| (*words, *bits, *f, unsigned));
    let ways = ways.chain([("are read as signed numbers of six bits", 3.0, right as Unpack, signed)]);
    let all = ways.map(|(words, bits, f, number)| {
        let (mut s, mut m) = (Vec::new(), Vec::new());
        for (scale, min) in scale.chunks_exact(8).zip(min.chunks_exact(8)) {
            let b = packed(scale, min);
            (0..8).map(|j| f(&b, j)).for_each(|(x, y)| {
                s.push(number(x));
                m.push(number(y));
            });
        }
        (words, bits, (s, m))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_bytes_hold_eight_scales_and_minima() {
        let (scale, min) = ([1, 62, 3, 40, 17, 63, 0, 33], [5, 6, 47, 8, 59, 10, 31, 16]);
        let b = packed(&scale, &min);
        assert!((0..8).all(|j| right(&b, j) == (scale[j], min[j])), "{b:?}");
        // Scale 1 = 62 lies behind the two upper bits of scale 4 = 17.
        assert_eq!(b[0], 1 | 1 << 6);
        assert_eq!((six(&b, 0), six(&b, 6)), (1, 0b111001));
    }

    #[test]
    fn every_other_way_reads_other_numbers() {
        let n = 8;
        let x = Levels {
            scale: [1.0, 62.0, 3.0, 40.0, 17.0, 63.0, 20.0, 33.0].to_vec(),
            zero: Some([5.0, 6.0, 47.0, 8.0, 59.0, 10.0, 31.0, 36.0].to_vec()),
            over: vec![(1.0, 1.0); n],
        };
        for (words, _, (s, m)) in unpacked(&x) {
            assert!(s != x.scale || Some(&m) != x.zero.as_ref(), "{words}");
        }
    }
}
