//! Theories of codecs: codes that are decoded by another table.

use super::maps::cost;
use super::system::{System, Theory};
use super::table_orders::orders;
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

const NAMES: &[Format] = &[
    Format::E4m3,
    Format::E5m2,
    Format::E4m3Fnuz,
    Format::E5m2Fnuz,
    Format::E2m1,
    Format::E2m3,
    Format::E3m2,
    Format::Int8,
    Format::Int4,
    Format::Uint4,
    Format::E8m0,
];

/// Tables that codes of `f` may be decoded by instead: class, words, bits, values.
pub fn tables(f: Format) -> Vec<(Class, &'static str, String, f64, Vec<f64>)> {
    let codes = 1usize << f.bits();
    let right: Vec<f64> = (0..codes).map(|c| f.decode(c as u32)).collect();
    let mut all = Vec::new();
    let mut add = |class, variant, words: String, bits: f64, t: Vec<f64>| {
        let differs = t.iter().zip(&right).any(|(x, y)| x != y && !(x.is_nan() && y.is_nan()));
        if differs {
            all.push((class, variant, words, bits, t));
        }
    };
    for other in NAMES.iter().filter(|o| **o != f && o.bits() == f.bits()) {
        add(
            Class::BitsReinterpreted,
            "read_as",
            format!("read as {other}"),
            1.0,
            (0..codes).map(|c| other.decode(c as u32)).collect(),
        );
    }
    let each = |g: &dyn Fn(usize, f64) -> f64| -> Vec<f64> { right.iter().enumerate().map(|(c, x)| g(c, *x)).collect() };
    let half = codes / 2;
    let top = (half - 1) as f64;
    add(Class::BitsReinterpreted, "read_as", "read as unsigned integers".into(), 2.0, each(&|c, _| c as f64));
    add(
        Class::BitsReinterpreted,
        "read_as",
        "read as two's complement".into(),
        2.0,
        each(&|c, _| if c >= half { c as f64 - codes as f64 } else { c as f64 }),
    );
    add(
        Class::BitsReinterpreted,
        "read_as",
        "read as sign and magnitude".into(),
        2.5,
        each(&|c, _| if c >= half { -((c - half) as f64) } else { c as f64 }),
    );
    add(Class::BitsReinterpreted, "read_as", format!("read as offset by {half}"), 2.0, each(&|c, _| c as f64 - half as f64));
    if f.bits() == 4 {
        // As for codes that stop at the negative of the largest.
        let off = half - 1;
        add(Class::BitsReinterpreted, "read_as", format!("read as offset by {off}"), 2.5, each(&|c, _| c as f64 - off as f64));
    }
    add(Class::BitsReinterpreted, "sign_lost", "decoded without their sign".into(), 2.0, each(&|c, _| right[c % half].abs()));
    add(Class::BitsReinterpreted, "sign_flipped", "decoded with the other sign".into(), 2.5, each(&|_, x| -x));
    if f.bits() == 4 {
        let mut fp4: Vec<f64> = BITSANDBYTES.to_vec();
        fp4.extend(BITSANDBYTES.map(|x| -x));
        add(Class::BitsReinterpreted, "read_as", "read as fp4 of bitsandbytes".into(), 2.0, fp4);
    }
    if f.bits() == 4 {
        // What is looked up in a table, which a kernel fills.
        for (words, bits, order) in orders(codes) {
            let words = format!("decoded by {words}");
            add(Class::BitsReinterpreted, "table_order", words, bits, each(&|c, _| order[c].1 * right[order[c].0]));
        }
    }
    if f.is_integer() {
        let (low, high) = (f.min_finite(), f.max_finite());
        add(
            Class::CodecEdge,
            "smallest",
            "decoded with the smallest integer as its neighbour".into(),
            1.5,
            each(&|_, x| if x == low { x + 1.0 } else { x }),
        );
        add(
            Class::CodecEdge,
            "smallest",
            "decoded with the smallest integer as the largest".into(),
            2.5,
            each(&|_, x| if x == low { high } else { x }),
        );
        add(
            Class::CodecEdge,
            "smallest",
            "decoded with the smallest integer as 0".into(),
            2.5,
            each(&|_, x| if x == low { 0.0 } else { x }),
        );
        add(
            Class::CodecEdge,
            "largest",
            "decoded with the largest integer as its neighbour".into(),
            2.5,
            each(&|_, x| if x == high { x - 1.0 } else { x }),
        );
        add(Class::ZpOffset, "code_offset", "decoded one too large".into(), 3.0, each(&|_, x| x + 1.0));
        add(Class::ZpOffset, "code_offset", "decoded one too small".into(), 3.0, each(&|_, x| x - 1.0));
        // A zero point once more: that of the unsigned type that a signed one was stored as.
        let twice = 2.0 * half as f64;
        for (d, more) in [(half as f64, 1.0), (twice, 2.0), (0.5 * half as f64, 3.0)] {
            for (by, how) in [(-d, "small"), (d, "large")] {
                let words = format!("decoded {d} too {how}, as if a zero point were taken off once more");
                let words = if by > 0.0 { words.replace("taken off once more", "left in") } else { words };
                add(Class::ZpOffset, "code_offset", words, 3.0 + more, each(&|_, x| x + by));
            }
        }
        add(Class::CodecEdge, "clamped", format!("decoded and clamped to {top}"), 3.0, each(&|_, x| x.min(top)));
        return all;
    }
    // The sign bit of a float taken for that of an integer: what is below the half is right, the others count from the other end.
    let most = right[..half].iter().copied().filter(|x| x.is_finite()).fold(0.0, f64::max);
    for (lowest, words, bits) in [(-most, format!("the lowest as {}", -most), 3.0), (0.0, "the lowest as 0".into(), 3.5)] {
        add(
            Class::BitsReinterpreted,
            "twos_complement",
            format!(
                "decoded with a sign bit as in two's complement: code c from {half} on is the negative of code {codes} − c, {words}"
            ),
            bits,
            each(&|c, x| match c {
                c if c < half => x,
                c if c == half => lowest,
                c => -right[codes - c],
            }),
        );
    }
    add(
        Class::BitsReinterpreted,
        "ones_complement",
        format!(
            "decoded with a sign bit as in ones' complement: code c from {half} on is the negative of code {} − c",
            codes - 1
        ),
        4.0,
        each(&|c, x| if c < half { x } else { -right[codes - 1 - c] }),
    );
    let bits = f.spec().mantissa;
    let sign = f.sign_bit() as usize;
    let is_sub = |c: usize| {
        let m = c & !sign;
        m > 0 && m < 1usize << bits
    };
    let least = right[1usize << bits].abs();
    add(
        Class::CodecEdge,
        "subnormal_flushed",
        "decoded with subnormals as 0".into(),
        1.0,
        each(&|c, x| if is_sub(c) { 0.0 } else { x }),
    );
    add(
        Class::CodecEdge,
        "subnormal_as_normal",
        "decoded with a hidden one in subnormals".into(),
        1.0,
        each(&|c, x| if is_sub(c) { x.signum() * (least + x.abs()) * 0.5 } else { x }),
    );
    add(
        Class::CodecEdge,
        "subnormal_as_normal",
        "decoded with a hidden one in subnormals and zero".into(),
        1.5,
        each(&|c, x| {
            if is_sub(c) || x == 0.0 {
                if c & sign != 0 && sign != 0 { -(least + x.abs()) * 0.5 } else { (least + x.abs()) * 0.5 }
            } else {
                x
            }
        }),
    );
    add(
        Class::CodecEdge,
        "subnormal_exponent",
        "decoded with subnormals at half their value".into(),
        2.0,
        each(&|c, x| if is_sub(c) { 0.5 * x } else { x }),
    );
    add(
        Class::CodecEdge,
        "subnormal_exponent",
        "decoded with subnormals at twice their value".into(),
        2.0,
        each(&|c, x| if is_sub(c) { 2.0 * x } else { x }),
    );
    add(
        Class::CodecEdge,
        "subnormal_as_least",
        "decoded with subnormals as the smallest normal".into(),
        3.0,
        each(&|c, x| if is_sub(c) { x.signum() * least } else { x }),
    );
    let max = f.max_finite();
    let binade = max.log2().floor().exp2();
    add(
        Class::CodecEdge,
        "top_binade",
        "decoded with the top binade as its smallest value".into(),
        2.0,
        each(&|_, x| if x.abs() > binade { x.signum() * binade } else { x }),
    );
    add(
        Class::CodecEdge,
        "top_binade",
        "decoded with the top binade as the largest value".into(),
        2.5,
        each(&|_, x| if x.abs() >= binade { x.signum() * max } else { x }),
    );
    add(
        Class::CodecEdge,
        "top_binade",
        "decoded with the top binade at half its value".into(),
        3.0,
        each(&|_, x| if x.abs() >= binade { 0.5 * x } else { x }),
    );
    add(
        Class::CodecEdge,
        "largest",
        "decoded with the largest value as its neighbour".into(),
        2.5,
        each(&|_, x| if x.abs() == max { x.signum() * (max - f.ulp(max)) } else { x }),
    );
    add(
        Class::CodecEdge,
        "largest",
        "decoded with the largest value as 0".into(),
        3.0,
        each(&|_, x| if x.abs() == max { 0.0 } else { x }),
    );
    add(
        Class::CodecEdge,
        "nan",
        "decoded with NaN as the next value of the range".into(),
        1.5,
        each(&|c, x| {
            if x.is_nan() {
                let m = max + f.ulp(max);
                if c & sign != 0 { -m } else { m }
            } else {
                x
            }
        }),
    );
    add(Class::CodecEdge, "nan", "decoded with NaN as 0".into(), 2.0, each(&|_, x| if x.is_nan() { 0.0 } else { x }));
    add(
        Class::CodecEdge,
        "nan",
        "decoded with NaN as the largest value".into(),
        2.0,
        each(&|c, x| if x.is_nan() { if c & sign != 0 { -max } else { max } } else { x }),
    );
    let inf = |c: usize| if c & sign != 0 { f64::NEG_INFINITY } else { f64::INFINITY };
    add(Class::CodecEdge, "nan", "decoded with NaN as Inf".into(), 2.0, each(&|c, x| if x.is_nan() { inf(c) } else { x }));
    if right.iter().any(|x| x.is_infinite()) {
        add(
            Class::CodecEdge,
            "infinity",
            "decoded with Inf as NaN".into(),
            2.0,
            each(&|_, x| if x.is_infinite() { f64::NAN } else { x }),
        );
        // The top exponent as any other.
        let mantissas = (1usize << bits) as f64;
        let top = 2.0 * binade;
        add(
            Class::CodecEdge,
            "infinity",
            format!("decoded with Inf and NaN as finite numbers from {top}"),
            1.0,
            each(&|c, x| {
                let m = top * (1.0 + (c & ((1usize << bits) - 1)) as f64 / mantissas);
                if x.is_finite() {
                    x
                } else if c & sign != 0 {
                    -m
                } else {
                    m
                }
            }),
        );
        add(
            Class::CodecEdge,
            "infinity",
            format!("decoded with Inf as the largest value, {max}"),
            2.0,
            each(&|c, x| if x.is_infinite() { if c & sign != 0 { -max } else { max } } else { x }),
        );
    }
    for e in -8..=8i32 {
        if e != 0 {
            add(
                Class::BitsReinterpreted,
                "exponent_bias",
                format!("decoded with an exponent bias that is off by {}", -e),
                2.0 + cost(e.unsigned_abs() as usize),
                each(&|_, x| x * f64::from(e).exp2()),
            );
        }
    }
    add(
        Class::BitsReinterpreted,
        "fraction_lost",
        "decoded without their fraction".into(),
        3.0,
        each(&|_, x| if x == 0.0 || !x.is_finite() { x } else { x.signum() * x.abs().log2().floor().exp2() }),
    );
    if f == Format::E2m1 {
        let nf4 = [
            -1.0,
            -0.6961928,
            -0.52507305,
            -0.3949175,
            -0.28444138,
            -0.18477343,
            -0.09105004,
            0.0,
            0.0795803,
            0.1609302,
            0.2461123,
            0.33791524,
            0.44070983,
            0.562617,
            0.72295684,
            1.0,
        ];
        add(Class::BitsReinterpreted, "read_as", "read as nf4".into(), 2.0, nf4.to_vec());
    }
    all
}

/// Whether these are words of a constant that is added to every code: beside zero points it is one of them.
pub fn is_offset(words: &str) -> bool {
    words.contains("offset by") || words.contains("as if a zero point")
}

/// The positive values of bitsandbytes' fp4, by code.
const BITSANDBYTES: [f64; 8] = [0.0, 0.005_208_333_333, 0.666_666_67, 1.0, 0.333_333_33, 0.5, 0.166_666_67, 0.25];

/// Theories of how the codes of one side are decoded.
pub fn decoded(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let Some(f) = g.format() else { return Vec::new() };
    tables(f)
        .into_iter()
        .map(|(class, variant, words, bits, table)| {
            // With zero points an offset of the codes is one of them.
            let bits = if g.zero.is_some() && is_offset(&words) { bits + 6.0 } else { bits };
            // … and so is a sign: 2^bits too low from the middle on; another float's codes are none.
            let class =
                if g.zero.is_some() && f.is_integer() && matches!(variant, "read_as" | "clamped") && !words.contains("as e") {
                    Class::ZpOffset
                } else {
                    class
                };
            let mut t = Theory::new(class, name, format!("{name}.{variant}"), format!("codes of {name} ({f}) are {words}"))
                .bits(2.0 + bits);
            t.side(side).table = Some(Arc::new(table));
            t
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn a_zero_point_that_is_taken_off_once_more_is_told() {
        const K: usize = 64;
        let (a, b) = (wide(M, K), codes(Format::Int4, N, K, 16, false, 5));
        let x = a.to_f64();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let value = |k: usize| Format::Int4.decode(u32::from(b.codes()[j * K + k])) - 8.0;
            sum(K, |k| x[[i, k]] * value(k) * f64::from(b.scale_inv()[j * 4 + k / 16]))
        });
        assert_eq!(got.0, "zp_offset:b.code_offset", "{}", got.1);
        assert!(got.1.contains("decoded 8 too small, as if a zero point were taken off once more"), "{}", got.1);
    }
}
