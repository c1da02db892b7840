//! Theories of zero points: off by whole steps, of another convention or place, their term missing or in other units.

use super::maps::{self, Kind, cost};
use super::padded::padded;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// A zero point in steps of the code, below which it is none.
const NOTHING: f64 = 1e-3;

/// Theories of the zero points of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let (Some((zero, mid)), Some(q)) = (&g.zero, &g.q) else { return Vec::new() };
    let zero = Arc::new(zero.clone());
    let scales: Vec<f64> = q.scale_inv().iter().map(|x| f64::from(*x)).collect();
    let (tile, (rows, cols)) = (g.tile, g.grid);
    let cell = move |i: usize, k: usize| i / tile.0 * cols + k / tile.1;
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &str, detail: String, bits: f64, new: Vec<f64>| {
        if new == *zero || new.iter().any(|x| x.is_nan()) {
            return;
        }
        let mut t = Theory::new(class, name, format!("{name}.{variant}"), detail).bits(bits);
        t.side(side).zeroed(tile.1, Arc::new(move |i, k| new[cell(i, k)]));
        all.push(t);
    };
    // An additive zero counts in real units; a step of it is a scale.
    let additive = mid.is_some();
    let step = |i: usize| if additive { -scales[i] * g.global } else { 1.0 };
    let each = |f: &dyn Fn(f64, usize) -> f64| -> Vec<f64> { zero.iter().enumerate().map(|(i, z)| f(*z, i)).collect() };
    let of = format!("the zero points of {name}");
    for c in (-16..=16i32).chain([-128, 128, 127, -127, 32, -32]).filter(|c| *c != 0) {
        let d = f64::from(c);
        add(
            Class::ZpOffset,
            "offset",
            format!("{of} are {} too {}", c.abs(), if c > 0 { "large" } else { "small" }),
            cost(c.unsigned_abs() as usize),
            each(&|z, i| z + d * step(i)),
        );
        if !additive {
            let bits = q.format().bits();
            let wrapped = |z: f64| (z + d).rem_euclid(f64::from(1u32 << bits));
            add(
                Class::ZpOffset,
                "offset_wrapped",
                format!("{of} are moved by {c}, wrapped to {bits} bits"),
                2.0 + cost(c.unsigned_abs() as usize),
                each(&|z, _| wrapped(z)),
            );
        }
    }
    add(Class::ZpCorrection, "omitted", format!("the term of {of} is missing"), 0.0, each(&|_, _| 0.0));
    add(Class::ZpCorrection, "negated", format!("the term of {of} has the wrong sign"), 1.0, each(&|z, _| -z));
    add(Class::ZpCorrection, "twice", format!("the term of {of} is counted twice"), 1.5, each(&|z, _| 2.0 * z));
    if additive {
        add(Class::ZpCorrection, "scaled", format!("{of} are multiplied by the scale too"), 1.5, each(&|z, i| z * scales[i]));
        add(Class::ZpCorrection, "divided", format!("{of} are divided by the scale"), 2.5, each(&|z, i| z / scales[i]));
        add(
            Class::ZpCorrection,
            "default",
            format!("{of}: the middle of the range is added instead"),
            2.0,
            each(&|_, i| -8.0 * scales[i]),
        );
    } else {
        // Bytes of zero points, two or four of them one number; behind the end they start again, or there are none.
        let bytes: Vec<u8> = zero.iter().map(|z| *z as i64 as u8).collect();
        // Of four bits two are a byte; each row has whole bytes.
        let nibbles = q.format().bits() == 4 && zero.iter().all(|z| (0.0..16.0).contains(z));
        let pair = |c: &[u8]| c[0] | c.get(1).map_or(0, |x| x << 4);
        let pairs: Vec<u8> =
            if nibbles { bytes.chunks(cols).flat_map(|row| row.chunks(2).map(pair)).collect() } else { Vec::new() };
        for (bytes, packed) in
            [(bytes, "packed as bytes"), (pairs, "packed two a byte")].into_iter().filter(|x| !x.0.is_empty())
        {
            for (format, width) in [(Format::F16, 2usize), (Format::Bf16, 2), (Format::F32, 4)] {
                for (again, held) in [(false, false), (true, false), (false, true)] {
                    let n = bytes.len().next_multiple_of(width);
                    let byte = |at: usize| if again { bytes.get(at % n) } else { bytes.get(at) }.copied().unwrap_or(0);
                    let bits = |i: usize| (0..width).map(|x| u32::from(byte(i * width + x)) << (8 * x)).sum();
                    let behind = if again { "from the first again" } else { "0" };
                    let numbers = if held { ", what is no number as 0" } else { "" };
                    let words = format!("{of}, {packed}, are read as {format}{numbers}, behind the last ones {behind}");
                    let new = each(&|_, i| Some(format.decode(bits(i))).filter(|x| !held || x.is_finite()).unwrap_or(0.0));
                    // Of numbers that are next to nothing nothing tells that they are read: their term is missing.
                    if new.iter().all(|x| x.abs() < NOTHING) {
                        continue;
                    }
                    add(Class::BitsReinterpreted, "bytes", words, 4.0 + f64::from(u8::from(again || held)), new);
                }
            }
        }
        for c in [8.0, 128.0, 127.0, 7.0, 1.0] {
            add(Class::ZpCorrection, "default", format!("{c} is used instead of {of}"), 2.0, each(&|_, _| c));
        }
        add(
            Class::ZpCorrection,
            "unscaled",
            format!("the term of {of} is not multiplied by the scale"),
            1.5,
            each(&|z, i| z / (scales[i] * g.global)),
        );
        add(
            Class::ZpCorrection,
            "scaled_twice",
            format!("the term of {of} is multiplied by the scale twice"),
            2.5,
            each(&|z, i| z * scales[i] * g.global),
        );
        for top in [7.0, 15.0, 127.0] {
            add(Class::ZpOffset, "clamped", format!("{of} are clamped to {top}"), 3.0, each(&|z, _| z.min(top)));
        }
        add(
            Class::ZpOffset,
            "zero_underflows",
            format!("{of}: 0, stored minus one, wraps"),
            2.0,
            each(&|z, _| if z == 0.0 { f64::from((1u32 << q.format().bits()) - 1) } else { z }),
        );
        add(
            Class::ZpOffset,
            "zero_wraps",
            format!("{of}: 0, stored minus one, wraps before one is added again"),
            2.0,
            each(&|z, _| if z == 0.0 { f64::from(1u32 << q.format().bits()) } else { z }),
        );
        add(Class::ZpOffset, "zero_as_one", format!("{of}: 0 is read as 1"), 2.0, each(&|z, _| if z == 0.0 { 1.0 } else { z }));
        let bits = q.format().bits();
        add(
            Class::ZpOffset,
            "beyond_bits",
            format!("{of} lose what is beyond {bits} bits: {} is read as 0", 1u32 << bits),
            1.5,
            each(&|z, _| if z >= 0.0 { z.rem_euclid(f64::from(1u32 << bits)) } else { z }),
        );
        add(
            Class::BitsReinterpreted,
            "zero_unsigned",
            format!("{of} are read without their sign"),
            1.5,
            each(&|z, _| if z < 0.0 { z + f64::from(1u32 << q.format().bits()) } else { z }),
        );
        add(
            Class::BitsReinterpreted,
            "zero_signed",
            format!("{of} are read with a sign"),
            1.5,
            each(&|z, _| {
                let half = f64::from(1u32 << (q.format().bits() - 1));
                if z >= half { z - 2.0 * half } else { z }
            }),
        );
    }
    // The sums that a group's zero point multiplies are those of other groups as well: what they add, each in its own place.
    for (words, bits, sums) in OTHER_SUMS.into_iter().filter(|_| cols > 1 && !s.alone) {
        let unit = |i: usize| if additive { 1.0 } else { scales[i] };
        let terms: Vec<f64> = zero.iter().enumerate().map(|(i, z)| z * unit(i)).collect();
        let read: Vec<f64> = terms.chunks(cols).flat_map(|row| other_sums(row, sums)).collect();
        // Where the scale is 0 no zero point is of any account.
        let new = each(&|_, i| if unit(i) == 0.0 { 0.0 } else { read[i] / unit(i) });
        let words = format!("the zero points of {name} multiply {words}");
        add(Class::ZpCorrection, "sums_of_groups", words, 3.0 + bits, new);
    }
    // Rows of four-bit zero points end at whole bytes: padding holds 0.
    for p in padded(rows, cols, &zero).into_iter().filter(|p| p.blank == 0.0) {
        let read = (0..rows * cols).map(|f| (p.read)(f / cols, f % cols)).collect();
        add(Class::PackPermute, "zero_padded", format!("{of} are {}, padding is 0", p.words), 4.0 + p.bits, read);
    }
    let experts = if side == Which::B && s.parts.len() > 1 { s.parts.len() } else { 1 };
    for way in maps::ways(rows, cols, experts) {
        if (0..rows * cols).all(|f| zero[(way.map)(f / cols, f % cols)] == zero[f]) {
            continue;
        }
        let class = if way.kind == Kind::Layout { Class::PackPermute } else { Class::ZpCorrection };
        let words = format!("the zero point of {name} at row r, group c of the {rows}×{cols} grid is read from {}", way.words);
        let mut t = Theory::new(class, name, format!("{name}.zero_index"), words).bits(4.0 + way.bits);
        let (z, map) = (zero.clone(), way.map);
        t.side(side).zeroed(tile.1, Arc::new(move |i, k| z[map(i / tile.0, k / tile.1)]));
        all.push(t);
    }
    for end in (8..g.k).step_by(8) {
        for first in [true, false] {
            let z = zero.clone();
            let words = if first {
                format!("the term of {of} covers K before {end} only")
            } else {
                format!("the term of {of} covers K from {end} on only")
            };
            let mut t = Theory::new(Class::ZpCorrection, name, format!("{name}.zero_part"), words).bits(6.0 + cost(end));
            let every = if tile.1.is_multiple_of(8) { 8 } else { 0 };
            t.side(side).zeroed(every, Arc::new(move |i, k| if (k < end) == first { z[cell(i, k)] } else { 0.0 }));
            all.push(t);
        }
    }
    for group in (1..=g.k.min(2048)).filter(|x| *x != tile.1 && cols > 1) {
        let z = zero.clone();
        let mut t = Theory::new(
            Class::ZpCorrection,
            name,
            format!("{name}.zero_divisor"),
            format!("{of} are taken every {group} of K instead of every {}", tile.1),
        )
        .bits(4.0 + cost(group));
        t.side(side).zeroed(group, Arc::new(move |i, k| z[i / tile.0 * cols + (k / group).min(cols - 1)]));
        all.push(t);
    }
    all
}

/// The sums that the zero point of a group multiplies.
#[derive(Clone, Copy, PartialEq)]
enum Sums {
    UpToOwn,
    All,
    FromOwn,
    First,
    Last,
}

/// Ways to sum over groups that are not their own: words, bits.
const OTHER_SUMS: [(&str, f64, Sums); 5] = [
    ("the sums over their own group and all before it: the sum is not cleared between groups", 0.0, Sums::UpToOwn),
    ("the sums over all of K, not over their own group", 0.5, Sums::All),
    ("the sums over their own group and all behind it", 1.5, Sums::FromOwn),
    ("the sum over the first group of K, not over their own", 1.0, Sums::First),
    ("the sum over the last group of K, not over their own", 1.0, Sums::Last),
];

/// What multiplies the sum over each group in the end: the terms of all zero points of a row that meet it, in one pass.
fn other_sums(terms: &[f64], sums: Sums) -> Vec<f64> {
    let (n, all) = (terms.len(), terms.iter().sum::<f64>());
    let running = |terms: &mut dyn Iterator<Item = &f64>| -> Vec<f64> {
        terms
            .scan(0.0, |sum, x| {
                *sum += x;
                Some(*sum)
            })
            .collect()
    };
    match sums {
        // The sum over a group is part of those up to each group behind it.
        Sums::UpToOwn => {
            let mut read = running(&mut terms.iter().rev());
            read.reverse();
            read
        }
        Sums::FromOwn => running(&mut terms.iter()),
        Sums::All => vec![all; n],
        Sums::First => (0..n).map(|c| if c == 0 { all } else { 0.0 }).collect(),
        Sums::Last => (0..n).map(|c| if c + 1 == n { all } else { 0.0 }).collect(),
    }
}

/// Signed codes that are multiplied as unsigned ones, half a range up, and the term that takes this back with another scale than its group's.
pub fn shifted(s: &System, side: Which) -> Vec<Theory> {
    let (g, other) = (s.given(side), s.given(side.other()));
    let (name, they) = (side.name(), side.other().name());
    let Some(f) = g.format().filter(|f| f.is_integer() && !s.alone && g.zero.is_none()) else { return Vec::new() };
    if g.grid.1 < 2 || s.parts.iter().any(|p| p.k.len() != s.k) || !g.table.iter().any(|x| *x < 0.0) {
        return Vec::new();
    }
    let half = f64::from(1u32 << (f.bits() - 1));
    let (tall, groups) = (g.tile.0, g.grid.1);
    let sums: Arc<Vec<f64>> = Arc::new(
        other.values.chunks(other.k.max(1)).flat_map(|row| row.chunks(g.tile.1).map(|x| x.iter().sum::<f64>())).collect(),
    );
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * g.global).collect());
    let lines: Arc<Vec<Option<(usize, usize)>>> =
        Arc::new((0..s.rows).map(|i| s.lines(i, 0).map(|(a, b, _)| (a, b))).collect());
    type Of = fn(&[f64]) -> f64;
    let ways: [(&str, f64, Of); 4] = [
        ("once for all of K, with the scale of the last group", 1.0, |s| s[s.len() - 1]),
        ("once for all of K, with the scale of the first group", 1.5, |s| s[0]),
        ("without a scale", 2.0, |_| 1.0),
        ("not at all", 2.0, |_| 0.0),
    ];
    let theory = |(how, bits, of): (&str, f64, Of)| {
        let words = format!(
            "codes of {name} are multiplied {half} too large, and {half} times the sums of {they} is subtracted {how}, not in each group"
        );
        let mut t = Theory::new(Class::ZpCorrection, name, format!("{name}.compensation"), words).bits(6.0 + bits);
        let (sums, scales, lines, bias) = (sums.clone(), scales.clone(), lines.clone(), s.bias.clone());
        t.finish = Some(Arc::new(move |i, j, v| {
            let Some((a, b)) = lines[i] else { return v + bias.at(i, j) };
            let (own, theirs) = if side == Which::A { (a, b + j) } else { (b + j, a) };
            let own = &scales[own / tall * groups..(own / tall + 1) * groups];
            let by = of(own);
            let off: f64 = own.iter().zip(&sums[theirs * groups..]).map(|(s, w)| (s - by) * w).sum();
            v + half * off + bias.at(i, j)
        }));
        t
    };
    ways.map(theory).to_vec()
}

/// The term of the zero points whose sums over a group of the other operand are kept in 16 bits.
pub fn narrow(s: &System, side: Which) -> Vec<Theory> {
    let (g, other) = (s.given(side), s.given(side.other()));
    let (name, they) = if side == Which::A { ("a", "b") } else { ("b", "a") };
    let Some((zero, mid)) = g.zero.as_ref().filter(|_| !s.alone) else { return Vec::new() };
    let cells = g.grid.0 * g.grid.1;
    let step = |c: usize| g.step(c / g.grid.1 * g.tile.0, c % g.grid.1 * g.tile.1);
    let by: Arc<Vec<f64>> = Arc::new((0..cells).map(|c| if mid.is_some() { zero[c] } else { -zero[c] * step(c) }).collect());
    let groups = g.grid.1;
    let sums: Vec<f64> =
        other.values.chunks(other.k.max(1)).flat_map(|row| row.chunks(g.tile.1).map(|part| part.iter().sum::<f64>())).collect();
    let sums = Arc::new(sums);
    let lines: Arc<Vec<Option<(usize, usize)>>> =
        Arc::new((0..s.rows).map(|i| s.lines(i, 0).map(|(a, b, _)| (a, b))).collect());
    let tall = g.tile.0;
    let theory = |f: crate::Format| {
        let words = format!("the sums of {they} over each group, which the zero points of {name} multiply, are kept in {f}");
        let mut t = Theory::new(Class::LowprecAcc, name, format!("{name}.zero_sums"), words).bits(4.0);
        let (by, sums, lines, bias) = (by.clone(), sums.clone(), lines.clone(), s.bias.clone());
        let round = move |x: f64| f.decode(f.encode(x, crate::Rounding::NearestEven, crate::Overflow::Native));
        t.finish = Some(Arc::new(move |i, j, v| {
            let Some((a, b)) = lines[i] else { return v + bias.at(i, j) };
            let (own, theirs) = if side == Which::A { (a, b + j) } else { (b + j, a) };
            let off = |c: usize| {
                let x = sums[theirs * groups + c];
                (round(x) - x) * by[own / tall * groups + c]
            };
            v + (0..groups).map(off).sum::<f64>() + bias.at(i, j)
        }));
        t
    };
    [crate::Format::F16, crate::Format::Bf16].map(theory).to_vec()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::quant::QTensorParts;
    use crate::{QTensor, Zero};

    /// Of the last group nothing but its own zero point is summed, which a scale of 0 makes none.
    #[test]
    fn a_scale_of_0_leaves_the_zero_points_of_the_others() {
        const K: usize = 128;
        let mut p = codes(Format::Uint4, N, K, 32, true, 73).into_parts();
        p.scale_inv[3] = 0.0;
        let b = QTensor::new(p).unwrap();
        let Zero::Integer(zero) = b.zero() else { panic!("whole zero points") };
        let a = wide(M, K);
        let (x, y) = (a.to_f64(), b.dequantize());
        let term = |j: usize, g: usize| f64::from(zero[j * 4 + g]) * f64::from(b.scale_inv()[j * 4 + g]);
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let more = sum(4, |g| term(j, g) * sum(g * 32, |k| x[[i, k]]));
            sum(K, |k| x[[i, k]] * y[[j, k]]) - more
        });
        assert_eq!(got.0, "zp_correction:b.sums_of_groups", "{}", got.1);
        assert!(got.1.contains("the sum is not cleared between groups"), "{}", got.1);
    }

    #[test]
    fn sums_that_are_not_cleared_between_groups_are_told() {
        const K: usize = 128;
        let q = codes(Format::Uint4, N, K, 32, true, 71);
        let zero: Vec<f32> = (0..N * 4).map(|c| 0.01 * ((c * 37 % 29) as f32 - 14.0)).collect();
        let b = QTensor::new(QTensorParts { zero: Zero::Additive { zero: zero.clone(), mid: 8 }, ..q.into_parts() }).unwrap();
        let a = wide(M, K);
        let (x, y) = (a.to_f64(), b.dequantize());
        let z = |j: usize, g: usize| f64::from(zero[j * 4 + g]);
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let more = sum(4, |g| z(j, g) * sum(g * 32, |k| x[[i, k]]));
            sum(K, |k| x[[i, k]] * y[[j, k]]) + more
        });
        assert_eq!(got.0, "zp_correction:b.sums_of_groups", "{}", got.1);
        assert!(got.1.contains("the sum is not cleared between groups"), "{}", got.1);
        // Of whole zero points: the sum over all of K.
        let b = codes(Format::Uint4, N, K, 32, true, 72);
        let Zero::Integer(zero) = b.zero() else { panic!("whole zero points") };
        let y = b.dequantize();
        let term = |j: usize, g: usize| f64::from(zero[j * 4 + g]) * f64::from(b.scale_inv()[j * 4 + g]);
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let all = sum(K, |k| x[[i, k]]);
            let more = sum(4, |g| term(j, g) * (all - sum(32, |k| x[[i, g * 32 + k]])));
            sum(K, |k| x[[i, k]] * y[[j, k]]) - more
        });
        assert_eq!(got.0, "zp_correction:b.sums_of_groups", "{}", got.1);
        assert!(got.1.contains("the sums over all of K"), "{}", got.1);
    }
}
