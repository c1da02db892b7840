//! Theories of vectors whose bytes are read as numbers of another width: scales, zero points and bias.

use super::system::{System, Theory};
use crate::fault::Class;
use crate::{Format, Overflow, Rounding};
use std::sync::Arc;

fn encode(format: Format, x: f64) -> u32 {
    format.encode(x, Rounding::NearestEven, Overflow::Saturate)
}

/// Two numbers of 16 bits read as one f32, 0 behind the end: words, values. `None`: 16 bits hold not all of them.
fn doubled_of(format: Format, values: &[f64]) -> Option<(String, Vec<f64>)> {
    let held = |x: &f64| x.is_finite() && format.decode(encode(format, *x)) == *x;
    values.iter().all(held).then(|| {
        let half = |at: usize| values.get(at).map_or(0, |x| encode(format, *x));
        let wide = |i: usize| f64::from(f32::from_bits(half(2 * i) | half(2 * i + 1) << 16));
        (format!("{format} read as f32: two neighbours make one"), (0..values.len()).map(wide).collect())
    })
}

/// [`doubled_of`] of both formats.
pub fn doubled(values: &[f64]) -> Vec<(String, Vec<f64>)> {
    [Format::Bf16, Format::F16].into_iter().filter_map(|f| doubled_of(f, values)).collect()
}

/// Every way to read these numbers by another width: words, values (0 behind the end, or the first again).
pub fn floats(values: &[f64]) -> Vec<(String, Vec<f64>)> {
    let n = values.len();
    let mut all = Vec::new();
    for format in [Format::Bf16, Format::F16] {
        if let Some(doubled) = doubled_of(format, values) {
            all.push(doubled);
            let half = |at: usize| encode(format, values[at % n]);
            let wide = |i: usize| f64::from(f32::from_bits(half(2 * i) | half(2 * i + 1) << 16));
            all.push((format!("{format} read as f32: two neighbours make one, wrapped"), (0..n).map(wide).collect()));
        }
        let half = |i: usize| {
            let bits = (values[i / 2] as f32).to_bits();
            format.decode(if i.is_multiple_of(2) { bits & 0xffff } else { bits >> 16 })
        };
        all.push((format!("f32 read as {format}: every one makes two"), (0..n).map(half).collect()));
    }
    all
}

/// Numbers of 16 bits read as those of the other such type: words, values.
pub fn halves(values: &[f64]) -> Vec<(String, Vec<f64>)> {
    let both = [(Format::Bf16, Format::F16), (Format::F16, Format::Bf16)];
    let held = |f: Format| values.iter().all(|x| x.is_finite() && f.decode(encode(f, *x)) == *x);
    let read = |(wrote, read): (Format, Format)| {
        let words = format!("{wrote} read as {read}");
        (words, values.iter().map(|x| read.decode(encode(wrote, *x))).collect())
    };
    both.into_iter().filter(|(wrote, _)| held(*wrote)).map(read).collect()
}

/// The same of 32-bit integers.
fn integers(values: &[f64]) -> Vec<(String, Vec<f64>)> {
    let n = values.len();
    if values.iter().any(|z| z.fract() != 0.0 || z.abs() > 2147483647.0) {
        return Vec::new();
    }
    let at = |i: usize| values.get(i).map_or(0, |z| *z as i64);
    let wide = (0..n).map(|i| ((at(2 * i) & 0xffff_ffff) + (at(2 * i + 1) << 32)) as f64).collect();
    let narrow = (0..n).map(|i| if i.is_multiple_of(2) { at(i / 2) } else { at(i / 2) >> 63 } as f64).collect();
    vec![
        ("int32 read as int64: two neighbours make one".to_string(), wide),
        ("int64 read as int32: every one makes two".to_string(), narrow),
    ]
}

/// Whole numbers of 4 bits, packed two to a byte, read as numbers of 16 or 8 bits; the first again behind the end.
fn nibbles(values: &[f64]) -> Vec<(String, Vec<f64>)> {
    let n = values.len();
    if n < 2 || values.iter().any(|z| z.fract() != 0.0 || !(0.0..16.0).contains(z)) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (order, high) in [("low nibble first", 4), ("high nibble first", 0)] {
        let byte = |at: usize| {
            let (x, y) = (values[2 * at % n] as u32, values[(2 * at + 1) % n] as u32);
            x << (4 - high) | y << high
        };
        let half = |at: usize| byte(2 * at) | byte(2 * at + 1) << 8;
        for f in [Format::F16, Format::Bf16] {
            let read: Vec<f64> = (0..n).map(|i| f.decode(half(i))).collect();
            all.push((format!("4 bits, packed with the {order}, read as {f}"), read));
        }
        all.push((format!("4 bits, packed with the {order}, read as bytes"), (0..n).map(|i| f64::from(byte(i))).collect()));
    }
    all
}

/// All of them.
pub fn theories(s: &System) -> Vec<Theory> {
    let mut all = Vec::new();
    for side in s.sides().iter().copied() {
        let (g, name) = (s.given(side), side.name());
        let (tile, cols, global) = (g.tile, g.grid.1, g.global);
        let scales: Vec<f64> = g.scales().iter().map(|x| f64::from(*x)).collect();
        for (words, read) in if scales.len() > 1 { floats(&scales) } else { Vec::new() } {
            let words = format!("the scales of {name} are {words}");
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.scale_width"), words).bits(3.0);
            t.side(side).scaled(tile.1, Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1] * global));
            all.push(t);
        }
        let zero = g.zero.as_ref().filter(|z| z.0.len() > 1);
        for (words, read) in
            zero.map_or(Vec::new(), |z| integers(&z.0).into_iter().chain(nibbles(&z.0)).chain(floats(&z.0)).collect())
        {
            let words = format!("the zero points of {name} are {words}");
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.zero_width"), words).bits(3.0);
            t.side(side).zeroed(tile.1, Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1]));
            all.push(t);
        }
    }
    if s.bias.any() {
        for (words, read) in floats(s.bias.stored()).into_iter().chain(halves(s.bias.stored())) {
            let read = s.bias.with(read);
            let mut t =
                Theory::new(Class::BitsReinterpreted, "out", "out.bias_width", format!("the bias is {words}")).bits(3.0);
            t.finish = Some(Arc::new(move |i, j, v| v + read.at(i, j)));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_make_one_and_one_makes_two() {
        let x = [1.5, -2.0, 0.25];
        let read = floats(&x);
        let wide = f64::from(f32::from_bits(0xc000_3fc0));
        assert_eq!(read[0].1, [wide, f64::from(f32::from_bits(0x3e80)), 0.0]);
        assert_eq!(read[1].1, [wide, f64::from(f32::from_bits(0x3fc0_3e80)), f64::from(f32::from_bits(0x3e80_c000))]);
        assert_eq!(read[2].1, [0.0, 1.5, 0.0]);
        let same = halves(&x);
        assert_eq!(same.iter().map(|h| &h.0[..]).collect::<Vec<_>>(), ["bf16 read as f16", "f16 read as bf16"]);
        // 1.5 is 0x3fc0 in bf16 and 0x3e00 in f16.
        assert_eq!((same[0].1[0], same[1].1[0]), (Format::F16.decode(0x3fc0), 0.125));
        assert_eq!(halves(&[65536.0 * 1.5]).len(), 1, "beyond f16");
        assert_eq!(integers(&[1.0, 2.0, -3.0])[0].1, [8_589_934_593.0, 4_294_967_293.0, 0.0]);
        assert_eq!(integers(&[1.0, -2.0])[1].1, [1.0, 0.0]);
        assert!(integers(&[0.5]).is_empty());
    }

    #[test]
    fn nibbles_make_halves() {
        // Bytes 0x21, 0x03 and again: f16 0x0321 and bf16.
        let read = nibbles(&[1.0, 2.0, 3.0, 0.0]);
        assert_eq!(read[0].1[0], Format::F16.decode(0x0321));
        assert_eq!(read[0].1[1], read[0].1[0]);
        assert_eq!(read[2].1, [33.0, 3.0, 33.0, 3.0]);
        assert_eq!(read[3].1[0], Format::F16.decode(0x3012));
        assert!(nibbles(&[16.0, 1.0]).is_empty());
    }
}
