//! Theories of how a value is made of its code, its scale and its zero point: in narrow integers, rounded on the way, with the two exchanged.

use super::given::Given;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::{Format, Overflow, Rounding};
use std::sync::{Arc, OnceLock};

/// Code, scale and zero point of an element; additive zero points come with what is subtracted from the code.
struct Parts {
    code: f64,
    scale: f64,
    zero: f64,
    mid: f64,
}

fn parts(g: &Given, i: usize, k: usize) -> Parts {
    let cell = i / g.tile.0 * g.grid.1 + k / g.tile.1;
    let code = g.q.as_ref().map_or(0.0, |q| g.table[usize::from(q.codes()[i * g.k + k])]);
    // Of integers the middle of their range.
    let middle = if g.table.iter().any(|x| *x < 0.0) { 0.0 } else { 0.5 * g.table.len() as f64 };
    let (zero, mid) = g.zero.as_ref().map_or((0.0, 0.0), |(z, mid)| (z[cell], mid.unwrap_or(middle)));
    Parts { code, scale: g.step(i, k), zero, mid }
}

fn to(f: Format, x: f64, how: Rounding) -> f64 {
    f.decode(f.encode(x, how, Overflow::Native))
}

fn near(f: Format, x: f64) -> f64 {
    to(f, x, Rounding::NearestEven)
}

/// Theories of one side's values.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    if g.q.is_none() {
        return Vec::new();
    }
    let given = g.clone();
    let mut all = differences(&given, side);
    all.extend(averaged(&given, side));
    all.extend(terms(&given, side));
    all.extend(exchanged(&given, side));
    all.extend(narrower(s, &given, side));
    all.extend(rotated(s, &given, side));
    all
}

fn theory(side: Which, class: Class, variant: &str, words: String, bits: f64, value: At) -> Theory {
    let name = side.name();
    let mut t = Theory::new(class, name, format!("{name}.{variant}"), words).bits(bits);
    t.side(side).value = Some(value);
    t
}

/// Code less zero point in an integer that is too narrow for it.
fn differences(given: &Arc<Given>, side: Which) -> Vec<Theory> {
    let name = side.name();
    let Some((_, None)) = given.zero else { return Vec::new() };
    type Narrow = (&'static str, f64, fn(f64) -> f64);
    let ways: [Narrow; 7] = [
        ("wraps at 8 bits without a sign", 3.0, |d| d.rem_euclid(256.0)),
        ("wraps at 8 bits", 3.0, |d| (d + 128.0).rem_euclid(256.0) - 128.0),
        ("is clamped to 8 bits", 3.5, |d| d.clamp(-128.0, 127.0)),
        ("wraps at 4 bits without a sign", 3.5, |d| d.rem_euclid(16.0)),
        ("wraps at 4 bits", 3.5, |d| (d + 8.0).rem_euclid(16.0) - 8.0),
        ("is clamped to 4 bits", 4.0, |d| d.clamp(-8.0, 7.0)),
        ("is 0 where it is negative", 3.5, |d| d.max(0.0)),
    ];
    ways.into_iter()
        .map(|(how, bits, narrow)| {
            let g = given.clone();
            let value: At = Arc::new(move |i, k| {
                let p = parts(&g, i, k);
                narrow(p.code - p.zero) * p.scale
            });
            theory(side, Class::OverflowWrap, "difference", format!("code less zero point of {name} {how}"), bits, value)
        })
        .collect()
}

/// The two terms of a value, code times scale and zero point times scale, each rounded or by a rounded scale.
fn terms(given: &Arc<Given>, side: Which) -> Vec<Theory> {
    let name = side.name();
    let Some((_, mid)) = &given.zero else { return Vec::new() };
    let additive = mid.is_some();
    let mut all = Vec::new();
    for f in [Format::F16, Format::Bf16] {
        for (how, word, more) in [(Rounding::NearestEven, "rounded", 0.0), (Rounding::TowardZero, "cut", 1.0)] {
            type Value = fn(&Parts, &dyn Fn(f64) -> f64) -> f64;
            let ways: Vec<(Class, String, Value)> = if additive {
                vec![
                    (Class::ScaleRerounded, "the scales of the codes are {}, the zero points are right".into(), |p, r| {
                        (p.code - p.mid) * r(p.scale) + p.zero
                    }),
                    (Class::ZpCorrection, "the zero points are {}".into(), |p, r| (p.code - p.mid) * p.scale + r(p.zero)),
                    (Class::RoundOrder, "code times scale is {} before the zero point is added".into(), |p, r| {
                        r((p.code - p.mid) * p.scale) + p.zero
                    }),
                    (Class::RoundOrder, "scale, zero point, their product with the code and the sum are {}".into(), |p, r| {
                        r(r((p.code - p.mid) * r(p.scale)) + r(p.zero))
                    }),
                    (
                        Class::RoundOrder,
                        "the middle times the scale is {} and subtracted from the zero point".into(),
                        |p, r| p.code * p.scale + r(p.zero - p.mid * p.scale),
                    ),
                ]
            } else {
                vec![
                    (
                        Class::ScaleRerounded,
                        "the codes are multiplied by scales {}, the zero points by the right ones".into(),
                        |p, r| p.code * r(p.scale) - p.zero * p.scale,
                    ),
                    (
                        Class::ScaleRerounded,
                        "the zero points are multiplied by scales {}, the codes by the right ones".into(),
                        |p, r| p.code * p.scale - p.zero * r(p.scale),
                    ),
                    (
                        Class::ScaleRerounded,
                        "the codes less the middle of their range are multiplied by scales {}, what the zero points are off it by the right ones".into(),
                        |p, r| (p.code - p.mid) * r(p.scale) - (p.zero - p.mid) * p.scale,
                    ),
                    (Class::RoundOrder, "zero point times scale is {} beforehand".into(), |p, r| {
                        p.code * p.scale - r(p.zero * p.scale)
                    }),
                    (Class::RoundOrder, "code times scale is {} before zero point times scale is subtracted".into(), |p, r| {
                        r(p.code * p.scale) - p.zero * p.scale
                    }),
                    (Class::RoundOrder, "both terms, code times scale and zero point times scale, are {}".into(), |p, r| {
                        r(p.code * p.scale) - r(p.zero * p.scale)
                    }),
                    (
                        Class::RoundOrder,
                        "both terms, code times scale and zero point times scale, and their difference are {}".into(),
                        |p, r| r(r(p.code * p.scale) - r(p.zero * p.scale)),
                    ),
                ]
            };
            for (n, (class, words, of)) in ways.into_iter().enumerate() {
                let g = given.clone();
                let value: At = Arc::new(move |i, k| of(&parts(&g, i, k), &|x| to(f, x, how)));
                let words = format!("of {name}, {}", words.replace("{}", &format!("{word} to {f}")));
                all.push(theory(side, class, "terms", words, 4.0 + more + 0.2 * n as f64, value));
            }
        }
    }
    all
}

/// Scale and zero point read for each other.
fn exchanged(given: &Arc<Given>, side: Which) -> Vec<Theory> {
    let name = side.name();
    let Some((_, mid)) = &given.zero else { return Vec::new() };
    let g = given.clone();
    let value: At = if mid.is_some() {
        Arc::new(move |i, k| {
            let p = parts(&g, i, k);
            (p.code - p.mid) * p.zero + p.scale
        })
    } else {
        Arc::new(move |i, k| {
            let p = parts(&g, i, k);
            (p.code - p.scale) * p.zero
        })
    };
    let mut all = vec![theory(
        side,
        Class::ScaleLayout,
        "scale_and_zero",
        format!("scale and zero point of {name} are exchanged"),
        1.5,
        value,
    )];
    if mid.is_some() {
        let g = given.clone();
        let value: At = Arc::new(move |i, k| {
            let p = parts(&g, i, k);
            p.code * p.scale + p.zero
        });
        let words = format!("the zero points of {name} are added to code times scale, the middle is not subtracted");
        all.push(theory(side, Class::ZpCorrection, "middle", words, 2.0, value));
        let g = given.clone();
        let value: At = Arc::new(move |i, k| {
            let p = parts(&g, i, k);
            (p.code - p.mid) * p.scale - p.zero
        });
        all.push(theory(side, Class::ZpCorrection, "negated", format!("the zero points of {name} are subtracted"), 2.0, value));
    }
    all
}

/// One number for many scales that is none of them: their mean.
fn averaged(given: &Arc<Given>, side: Which) -> Vec<Theory> {
    let (name, (rows, cols), tile) = (side.name(), given.grid, given.tile);
    let scales: Vec<f64> = given.scales().iter().map(|x| f64::from(*x) * given.global).collect();
    let mean = |each: &mut dyn Iterator<Item = &f64>, n: usize| each.sum::<f64>() / n as f64;
    let mut ways: Vec<(Class, &str, At)> = Vec::new();
    if scales.len() > 1 {
        let of_all = mean(&mut scales.iter(), scales.len());
        ways.push((Class::ScaleShared, "all", Arc::new(move |_, _| of_all)));
    }
    if rows > 1 && cols > 1 {
        let of_row: Vec<f64> = scales.chunks(cols).map(|row| mean(&mut row.iter(), cols)).collect();
        let of_col: Vec<f64> = (0..cols).map(|x| mean(&mut scales[x..].iter().step_by(cols), rows)).collect();
        ways.push((Class::ScaleIndex, "their row", Arc::new(move |i, _| of_row[i / tile.0])));
        ways.push((Class::ScaleShared, "their group of K", Arc::new(move |_, k| of_col[k / tile.1])));
    }
    ways.into_iter()
        .map(|(class, whose, read)| {
            let words = format!("instead of the scales of {name} the mean of {whose} is used");
            let mut t = Theory::new(class, name, format!("{name}.mean"), words).bits(4.0);
            t.side(side).scaled(tile.1, read);
            t
        })
        .collect()
}

/// Values that take long to say, each row said once.
fn by_rows(rows: usize, k_all: usize, value: impl Fn(usize, usize) -> f64 + Send + Sync + 'static) -> At {
    let said: Vec<OnceLock<Vec<f64>>> = (0..rows).map(|_| OnceLock::new()).collect();
    Arc::new(move |i, k| said[i].get_or_init(|| (0..k_all).map(|k| value(i, k)).collect())[k])
}

/// What is dequantized and quantized again for a unit that multiplies another type: by one scale for all, or one a row.
fn narrower(s: &System, given: &Arc<Given>, side: Which) -> Vec<Theory> {
    let name = side.name();
    if s.alone || given.format().is_none_or(|f| f.bits() > 8) {
        return Vec::new();
    }
    let values = given.values.clone();
    let k_all = given.k;
    let top_of = |v: &[f64], signed: bool| v.iter().fold(0.0f64, |m, x| m.max(if signed { *x } else { x.abs() }));
    let mut all = Vec::new();
    for (f, top, bits) in [
        (Format::E4m3, 448.0, 4.0),
        (Format::Int8, 127.0, 4.0),
        (Format::E4m3, 240.0, 5.0),
        (Format::E5m2, 57344.0, 5.0),
        (Format::E2m1, 6.0, 5.0),
    ] {
        for (signed, by_row) in [(false, false), (false, true), (true, false), (true, true)] {
            let rows: Vec<f64> = if by_row {
                values.chunks(k_all.max(1)).map(|row| top_of(row, signed) / top).collect()
            } else {
                vec![top_of(&values, signed) / top]
            };
            if rows.iter().any(|x| !(x.is_finite() && *x > 0.0)) {
                continue;
            }
            let (v, rows) = (values.clone(), Arc::new(rows));
            let value = by_rows(given.rows, k_all, move |i, k| {
                let t = f64::from(rows[i.min(rows.len() - 1)] as f32);
                let x = f64::from((v[i * k_all + k] / t) as f32);
                f.decode(f.encode(x, Rounding::NearestEven, Overflow::Saturate)) * t
            });
            let whose = if by_row { "its row's" } else { "the" };
            let which = if signed { "largest positive value" } else { "largest magnitude" };
            let words =
                format!("dequantized values of {name} are rounded to {f} again, by a scale of {whose} {which} over {top}");
            let bits = bits + f64::from(u8::from(by_row)) + f64::from(u8::from(signed)) * 1.5;
            all.push(theory(side, Class::RoundOrder, "requantized", words, bits, value));
        }
    }
    for (f, bits) in [(Format::E5m2, 4.5), (Format::E4m3, 4.0)] {
        let v = values.clone();
        let g = given.clone();
        let value = by_rows(given.rows, k_all, move |i, k| {
            let unit = g.global;
            near(f, v[i * k_all + k] / unit) * unit
        });
        if given.global != 1.0 {
            let words = format!("code times block scale of {name} is rounded to {f} before the second-level scale");
            all.push(theory(side, Class::RoundOrder, "requantized", words, bits, value));
        }
    }
    all
}

/// Blocks of K that a rotation may be over.
const ROTATIONS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// A Hadamard rotation along K of this operand alone.
fn rotated(s: &System, given: &Arc<Given>, side: Which) -> Vec<Theory> {
    let (name, other) = (side.name(), side.other().name());
    if s.alone || given.zero.is_some() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for block in ROTATIONS.into_iter().filter(|b| given.k.is_multiple_of(*b)) {
        for (scaled, by) in [(true, 1.0 / (block as f64).sqrt()), (false, 1.0)] {
            for codes in [true, false] {
                // Where a scale holds for the whole block both are the same.
                if codes && given.tile.1.is_multiple_of(block) {
                    continue;
                }
                let g = given.clone();
                let value: At = Arc::new(move |i, k| {
                    let from = k / block * block;
                    let at = |u: usize| {
                        if codes { parts(&g, i, from + u).code } else { g.values[i * g.k + from + u] }
                    };
                    let sign = |u: usize| if ((u & (k - from)).count_ones() & 1) == 0 { 1.0 } else { -1.0 };
                    let sum: f64 = (0..block).map(|u| sign(u) * at(u)).sum();
                    sum * by * if codes { g.step(i, k) } else { 1.0 }
                });
                let what = if codes { "codes" } else { "values" };
                let how = if scaled { "" } else { ", not divided by its norm" };
                let words =
                    format!("{what} of {name} are rotated by a Hadamard matrix over every {block} of K{how}, {other} is not");
                let bits = 5.0 + f64::from(u8::from(!scaled)) * 2.0;
                all.push(theory(side, Class::SilentSkip, "rotated", words, bits, value));
            }
        }
    }
    all
}

/// Scales that a rescaled accumulator ends with: its own block's, by those of the blocks at the ends of K or beside it.
pub fn rescaled(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (cols, tile, name) = (g.grid.1, g.tile, side.name());
    if s.alone || g.q.is_none() || cols < 2 {
        return Vec::new();
    }
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
    type Way = (Class, &'static str, f64, fn(&[f64], usize) -> f64);
    let ways: [Way; 9] = [
        (
            Class::ScaleDoubledInverted,
            "the accumulator is rescaled from block to block by the inverse ratio of its scales: each block counts by last²/own",
            4.0,
            |row, c| row[row.len() - 1] * row[row.len() - 1] / row[c],
        ),
        (
            Class::ScaleIndex,
            "the accumulator is not rescaled from block to block: all count by the last block's scale",
            4.0,
            |row, _| row[row.len() - 1],
        ),
        (Class::ScaleDoubledInverted, "each block counts by first²/own of its scales", 5.0, |row, c| row[0] * row[0] / row[c]),
        (Class::ScaleDoubledInverted, "each block counts by own²/last of its scales", 5.0, |row, c| {
            row[c] * row[c] / row[row.len() - 1]
        }),
        (Class::ScaleDoubledInverted, "each block counts by own²/first of its scales", 5.0, |row, c| row[c] * row[c] / row[0]),
        (Class::ScaleDoubledInverted, "each block counts by its own scale times the last one's", 5.0, |row, c| {
            row[c] * row[row.len() - 1]
        }),
        (
            Class::ScaleDoubledInverted,
            "the sum so far is multiplied by each block's scale: early blocks have those of all later ones too",
            5.0,
            |row, c| row[c..].iter().product(),
        ),
        (Class::ScaleDoubledInverted, "each block has the scales of all before it too", 5.0, |row, c| {
            row[..=c].iter().product()
        }),
        (Class::ScaleDoubledInverted, "each block counts by its own scale times that of the one before", 5.0, |row, c| {
            row[c] * if c > 0 { row[c - 1] } else { 1.0 }
        }),
    ];
    ways.into_iter()
        .filter_map(|(class, words, bits, of)| {
            // Asked for once a group: a table for each way would fill the memory.
            let own = scales.clone();
            let read = move |r: usize, c: usize| of(&own[r * cols..(r + 1) * cols], c);
            let differs = (0..scales.len()).any(|f| read(f / cols, f % cols) != scales[f]);
            (differs && (0..scales.len()).all(|f| read(f / cols, f % cols).is_finite())).then_some(())?;
            let mut t = Theory::new(class, name, format!("{name}.rescaled"), format!("of {name}, {words}")).bits(bits);
            t.side(side).scaled(tile.1, Arc::new(move |i, k| read(i / tile.0, k / tile.1)));
            Some(t)
        })
        .collect()
}

/// The block of an element counted over the flat tensor, where rows are no whole number of blocks.
pub fn flat(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (tile, (_, cols), k_all, name) = (g.tile, g.grid, g.k, side.name());
    if g.q.is_none() || tile.0 != 1 || k_all.is_multiple_of(tile.1) || g.rows < 2 {
        return Vec::new();
    }
    let experts = s.experts(side);
    let per = g.rows / experts;
    let n = per * cols;
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
    let mut all = Vec::new();
    for wrapped in [false, true] {
        let at = move |i: usize, k: usize| {
            let x = (i % per * k_all + k) / tile.1;
            i / per * n + if wrapped { x % n } else { x.min(n - 1) }
        };
        let how = if wrapped { ", wrapped" } else { "" };
        let words = |what: &str| {
            format!(
                "{what} of {name} are taken by (row·{k_all} + k) / {}, over the flat tensor, although every row starts a group of its own{how}",
                tile.1
            )
        };
        let theory = |what: &str| {
            Theory::new(Class::ScaleIndex, name, format!("{name}.flat"), words(what)).bits(3.0 + f64::from(u8::from(wrapped)))
        };
        let mut alone = theory("scales");
        let from = scales.clone();
        alone.side(side).scale = Some(Arc::new(move |i, k| from[at(i, k)]));
        if let Some((zero, _)) = &g.zero {
            let zero: At = {
                let z = zero.clone();
                Arc::new(move |i, k| z[at(i, k)])
            };
            let mut both = theory("scales and zero points");
            both.side(side).scale.clone_from(&alone.side(side).scale);
            both.side(side).zero = Some(zero.clone());
            all.push(both);
            let mut of_zeros = theory("zero points");
            of_zeros.class = Class::ZpCorrection;
            of_zeros.side(side).zero = Some(zero);
            all.push(of_zeros);
        }
        all.push(alone);
    }
    all
}

/// Words, and what a power of two becomes by its exponent.
type Shift = (&'static str, fn(i64) -> f64);

/// Whether these are powers of two.
fn are_powers(scales: &[f64]) -> bool {
    scales.iter().all(|x| *x > 0.0 && x.log2().fract() == 0.0)
}

/// Powers of two that are made by shifting a whole number, and not as the bits of a float.
pub fn shifted(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (tile, cols, name, global) = (g.tile, g.grid.1, side.name(), g.global);
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x)).collect());
    // One number for all would be a factor like any other.
    if scales.iter().all(|x| *x == scales[0]) || !are_powers(&scales) {
        return Vec::new();
    }
    let ways: [Shift; 5] = [
        (
            "the whole number 1 << e of the exponent e: 0 where that is negative",
            |e| if e < 0 { 0.0 } else { (e as f64).exp2() },
        ),
        ("the whole number 1 << |e| of the exponent e, its sign lost", |e| (e.abs() as f64).exp2()),
        ("1 << byte in an int32, the shift taken mod 32", |e| f64::from(1i32.wrapping_shl((e + 127) as u32))),
        ("1 << byte in a uint32, the shift taken mod 32", |e| f64::from(1u32.wrapping_shl((e + 127) as u32))),
        ("1 << (byte − 127) in an int32, the shift taken mod 32", |e| f64::from(1i32.wrapping_shl(e as u32))),
    ];
    let mut all = Vec::new();
    for (words, of) in ways {
        let read = move |s: f64| of(s.log2() as i64) * global;
        if scales.iter().all(|s| read(*s) == s * global) {
            continue;
        }
        let held = scales.clone();
        let words = format!("the scales of {name}, powers of two, are made as {words}");
        let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.shifted"), words).bits(4.0);
        t.side(side).scaled(tile.1, Arc::new(move |i, k| read(held[i / tile.0 * cols + k / tile.1])));
        all.push(t);
    }
    all
}

/// Scales that are quantized to 8 bits themselves, without the scale and offset of that: of all, or of every 256 as they lie.
pub fn nested(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (tile, cols, name) = (g.tile, g.grid.1, side.name());
    let scales: Vec<f64> = g.scales().iter().map(|x| f64::from(*x)).collect();
    // Powers of two are no such codes, though the largest of them is near one.
    if scales.len() < 16 || are_powers(&scales) {
        return Vec::new();
    }
    let n = scales.len() as f64;
    let mean = scales.iter().sum::<f64>() / n;
    let least = scales.iter().copied().fold(f64::INFINITY, f64::min);
    let mut all = Vec::new();
    for (offset, which, top) in
        [(mean, "their mean", 127.0), (0.0, "nothing", 127.0), (least, "the least", 255.0), (0.0, "nothing", 255.0)]
    {
        for block in [scales.len(), 256] {
            if block == 256 && scales.len() <= 256 {
                continue;
            }
            let code = |part: &[f64]| -> Vec<f64> {
                let most = part.iter().map(|x| (x - offset).abs()).fold(0.0, f64::max);
                part.iter().map(|x| ((x - offset) / most * top).round_ties_even()).collect()
            };
            let codes: Vec<f64> = scales.chunks(block).flat_map(code).collect();
            if codes.iter().any(|x| !x.is_finite()) {
                continue;
            }
            for (over, how) in [(top, format!("over {top}")), (1.0, "as whole numbers".into())] {
                let read: Vec<f64> = codes.iter().map(|c| c / over * g.global).collect();
                let of = if block == 256 { "every 256 of them" } else { "all of them" };
                let words = format!(
                    "the scales of {name} are read as their 8-bit codes, {how}: without the offset ({which}) and the scale of {of}"
                );
                let bits = 6.0 + f64::from(u8::from(offset != mean)) + f64::from(u8::from(over == 1.0));
                let mut t = Theory::new(Class::ScaleOmitted, name, format!("{name}.second_level"), words).bits(bits);
                t.side(side).scaled(tile.1, Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1]));
                all.push(t);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::QTensor;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    /// Of a few scales as of many.
    #[test]
    fn powers_of_two_that_are_shifted_are_told_of_a_few_scales() {
        const K: usize = 64;
        let mut p = codes(Format::Int8, 12, K, K, false, 91).into_parts();
        p.scale_inv.iter_mut().enumerate().for_each(|(r, x)| *x = f32::exp2((r * 5 % 7) as f32 - 3.0));
        let b = QTensor::new(p).unwrap();
        let a = wide(M, K);
        let x = a.to_f64();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let scale = f64::from(b.scale_inv()[j]);
            let read = if scale < 1.0 { 1.0 / scale } else { scale };
            sum(K, |k| x[[i, k]] * f64::from(b.codes()[j * K + k] as i8) * read)
        });
        assert_eq!(got.0, "bits_reinterpreted:b.shifted", "{}", got.1);
        assert!(got.1.contains("1 << |e|"), "{}", got.1);
    }
}
