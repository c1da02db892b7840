//! Theories of codes: read from another address, or decoded by another table.

use super::maps::cost;
use super::system::{Given, System, Theory, To};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Side as Which;
use std::sync::Arc;

/// Theories of where the codes of one side are read.
pub fn addresses(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = if side == Which::A { "a" } else { "b" };
    if g.q.is_none() {
        return Vec::new();
    }
    let (rows, k_all, n) = (g.rows, g.k, g.rows * g.k);
    let experts = if side == Which::B && s.parts.len() > 1 { s.parts.len() } else { 1 };
    let per = rows / experts.max(1);
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &str, words: String, bits: f64, to: To| {
        let mut t =
            Theory::new(class, name, format!("{name}.{variant}"), format!("codes of {name} are read {words}")).bits(4.0 + bits);
        t.side(side).code = Some(to);
        all.push(t);
    };
    // Along K.
    for m in 1..k_all.next_power_of_two().min(512) {
        add(
            Class::PackPermute,
            "k_xor",
            format!("at k xor {m}"),
            cost(m) - 1.0,
            Arc::new(move |i, k| Some(i * k_all + if k ^ m < k_all { k ^ m } else { k })),
        );
    }
    for part in (2..=k_all.min(1024)).filter(|p| p.is_power_of_two() || k_all.is_multiple_of(*p)) {
        for p in (2..part).filter(|p| part.is_multiple_of(*p)) {
            let q = part / p;
            add(
                Class::PackPermute,
                "k_order",
                format!("in another order: every {part} of K as {p}×{q}, transposed"),
                cost(p) + cost(part) - 2.0,
                Arc::new(move |i, k| {
                    let (base, x) = (k / part * part, k % part);
                    Some(i * k_all + if base + part <= k_all { base + x % q * p + x / q } else { k })
                }),
            );
        }
        for d in 1..part.min(64) {
            add(
                Class::PackPermute,
                "k_rotated",
                format!("rotated by {d} in every {part} of K"),
                cost(d) + cost(part),
                Arc::new(move |i, k| {
                    let (base, x) = (k / part * part, k % part);
                    Some(i * k_all + if base + part <= k_all { base + (x + d) % part } else { k })
                }),
            );
        }
        if part > 2 {
            add(
                Class::PackPermute,
                "k_reversed",
                format!("backwards in every {part} of K"),
                cost(part),
                Arc::new(move |i, k| {
                    let (base, x) = (k / part * part, k % part);
                    Some(i * k_all + if base + part <= k_all { base + part - 1 - x } else { k })
                }),
            );
        }
    }
    // One tile of K again and again, or one that is late.
    for tile in 1..k_all.min(2048) {
        add(
            Class::AccState,
            "tile_reused",
            format!("from the first {tile} of K for every tile of {tile}"),
            cost(tile),
            Arc::new(move |i, k| Some(i * k_all + k % tile)),
        );
        add(
            Class::AccState,
            "stage_late",
            format!("{tile} of K late: the stage before, the first at the start"),
            cost(tile) + 2.0,
            Arc::new(move |i, k| Some(i * k_all + if k >= tile { k - tile } else { k })),
        );
        add(
            Class::AccState,
            "stage_early",
            format!("{tile} of K early, the last at the end"),
            cost(tile) + 2.0,
            Arc::new(move |i, k| Some(i * k_all + if k + tile < k_all { k + tile } else { k })),
        );
        let last = k_all / tile * tile;
        if last != k_all && last > 0 {
            add(
                Class::KTail,
                "tail_of_next_row",
                format!("on, past the end of the row, from k = {}", k_all - tile),
                cost(tile) + 3.0,
                Arc::new(move |i, k| {
                    Some(if k >= k_all - tile { ((i + 1) % rows) * k_all + k - (k_all - tile) } else { i * k_all + k })
                }),
            );
        }
    }
    // Rows.
    for m in 1..per.next_power_of_two().min(256) {
        add(
            Class::PackPermute,
            "row_xor",
            format!("at row r xor {m}"),
            cost(m),
            Arc::new(move |i, k| {
                let x = (i % per) ^ m;
                Some((if x < per { i - i % per + x } else { i }) * k_all + k)
            }),
        );
    }
    for part in (4..=per.min(512)).filter(|p| p.is_power_of_two() || per.is_multiple_of(*p)) {
        for p in (2..part).filter(|p| part.is_multiple_of(*p)) {
            let q = part / p;
            add(
                Class::PackPermute,
                "row_order",
                format!("with rows in another order: every {part} as {p}×{q}, transposed"),
                cost(p) + cost(part) - 1.0,
                Arc::new(move |i, k| {
                    let (base, x) = (i / part * part, i % part);
                    Some((if base + part <= rows { base + x % q * p + x / q } else { i }) * k_all + k)
                }),
            );
        }
    }
    for d in 1..rows.min(513) {
        add(
            Class::Addressing,
            "row_offset",
            format!("{d} rows on, wrapped"),
            cost(d) + 2.0,
            Arc::new(move |i, k| Some((i + d) % rows * k_all + k)),
        );
        add(
            Class::Addressing,
            "row_offset",
            format!("{d} rows before, the first at the start"),
            cost(d) + 2.0,
            Arc::new(move |i, k| Some(i.saturating_sub(d) * k_all + k)),
        );
        add(
            Class::Addressing,
            "row_offset",
            format!("{d} rows on, the last at the end"),
            cost(d) + 2.0,
            Arc::new(move |i, k| Some((i + d).min(rows - 1) * k_all + k)),
        );
        if d > 1 {
            add(
                Class::Addressing,
                "row_shared",
                format!("from row (r / {d})·{d}"),
                cost(d) + 2.0,
                Arc::new(move |i, k| Some(i / d * d * k_all + k)),
            );
            add(
                Class::Addressing,
                "row_shared",
                format!("from row r mod {d}"),
                cost(d) + 2.0,
                Arc::new(move |i, k| Some(i % d * k_all + k)),
            );
        }
    }
    add(
        Class::Addressing,
        "row_reversed",
        "with rows from the last to the first".into(),
        2.0,
        Arc::new(move |i, k| Some((rows - 1 - i) * k_all + k)),
    );
    // The flat buffer.
    let span = 4 * 128usize;
    for stride in (k_all.saturating_sub(span).max(1)..=k_all + span).filter(|x| *x != k_all && rows > 1) {
        let b = cost(stride.abs_diff(k_all)) + 1.0;
        add(
            Class::Addressing,
            "stride",
            format!("at a row stride of {stride} instead of {k_all}"),
            b,
            Arc::new(move |i, k| Some(i * stride + k).filter(|f| *f < n)),
        );
        add(
            Class::Addressing,
            "stride",
            format!("at a row stride of {stride} instead of {k_all}, wrapped"),
            b + 2.0,
            Arc::new(move |i, k| Some((i * stride + k) % n)),
        );
    }
    for off in 1..k_all.min(257) {
        add(
            Class::Addressing,
            "offset",
            format!("{off} codes on"),
            cost(off) + 3.0,
            Arc::new(move |i, k| Some((i * k_all + k + off) % n)),
        );
        add(
            Class::Addressing,
            "offset",
            format!("{off} codes before"),
            cost(off) + 3.0,
            Arc::new(move |i, k| Some((i * k_all + k + n - off) % n)),
        );
    }
    if rows > 1 && k_all > 1 {
        add(
            Class::PackPermute,
            "column_major",
            "as [K, N] although they are stored as [N, K]".into(),
            -2.0,
            Arc::new(move |i, k| Some(i / per * per * k_all + k * per + i % per)),
        );
        add(
            Class::PackPermute,
            "column_major_back",
            "row by row although they are stored column by column".into(),
            -1.0,
            Arc::new(move |i, k| {
                let f = i % per * k_all + k;
                Some(i / per * per * k_all + (f % per) * k_all + f / per)
            }),
        );
        for t in [2usize, 4, 8, 16, 32, 64, 128] {
            if t <= per && t <= k_all {
                add(
                    Class::PackPermute,
                    "tile_transposed",
                    format!("with every {t}×{t} tile transposed"),
                    cost(t),
                    Arc::new(move |i, k| {
                        let (r, c) = (i % per / t * t, k / t * t);
                        Some(if r + t <= per && c + t <= k_all {
                            (i - i % per + r + k % t) * k_all + c + i % t
                        } else {
                            i * k_all + k
                        })
                    }),
                );
            }
        }
        for (m, words) in [(1usize, "1"), (2, "2"), (3, "3"), (7, "7"), (15, "15"), (31, "31")] {
            add(
                Class::PackPermute,
                "swizzle",
                format!("at k xor ((row and {words})·8): a bank swizzle"),
                3.0,
                Arc::new(move |i, k| {
                    let x = k ^ ((i & m) * 8);
                    Some(i * k_all + if x < k_all { x } else { k })
                }),
            );
            add(
                Class::PackPermute,
                "swizzle",
                format!("at k xor ((row and {words})·16): a bank swizzle"),
                3.0,
                Arc::new(move |i, k| {
                    let x = k ^ ((i & m) * 16);
                    Some(i * k_all + if x < k_all { x } else { k })
                }),
            );
        }
    }
    all
}

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
    add(Class::BitsReinterpreted, "sign_lost", "decoded without their sign".into(), 2.0, each(&|c, _| right[c % half].abs()));
    add(Class::BitsReinterpreted, "sign_flipped", "decoded with the other sign".into(), 2.5, each(&|_, x| -x));
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
        add(Class::CodecEdge, "clamped", format!("decoded and clamped to {top}"), 3.0, each(&|_, x| x.min(top)));
        return all;
    }
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

/// Theories of how the codes of one side are decoded.
pub fn decoded(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = if side == Which::A { "a" } else { "b" };
    let Some(f) = g.format() else { return Vec::new() };
    tables(f)
        .into_iter()
        .map(|(class, variant, words, bits, table)| {
            let mut t = Theory::new(class, name, format!("{name}.{variant}"), format!("codes of {name} ({f}) are {words}"))
                .bits(2.0 + bits);
            t.side(side).table = Some(Arc::new(table));
            t
        })
        .collect()
}

/// Nibbles that are left from the code before, and other bits mixed in.
pub fn mixed(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = if side == Which::A { "a" } else { "b" };
    let Some(q) = g.q.as_ref().filter(|q| q.format().bits() == 4) else { return Vec::new() };
    let k_all = g.k;
    type Mix = fn(u8, u8, usize) -> u8;
    let ways: [(&str, Mix); 5] = [
        ("every second code has the bits of the one before it too", |c, before, k| if k % 2 == 1 { c | before } else { c }),
        ("every first code of a pair has the bits of the second too", |c, after, k| if k % 2 == 0 { c | after } else { c }),
        ("the second code of a pair is the first again", |c, other, k| if k % 2 == 1 { other } else { c }),
        ("the first code of a pair is the second", |c, other, k| if k % 2 == 0 { other } else { c }),
        ("the second code of a pair is 0", |c, _, k| if k % 2 == 1 { 0 } else { c }),
    ];
    ways.into_iter()
        .map(|(words, mix)| {
            let codes: Arc<Vec<u8>> = Arc::new(
                q.codes()
                    .iter()
                    .enumerate()
                    .map(|(at, c)| mix(*c, q.codes()[(at ^ 1).min(q.codes().len() - 1)], at % k_all))
                    .collect(),
            );
            let values = changed(g, &codes);
            let mut t =
                Theory::new(Class::PackPermute, name, format!("{name}.nibbles"), format!("of {name}, {words}")).bits(5.0);
            t.side(side).value = Some(Arc::new(move |i, k| values[i * k_all + k]));
            t
        })
        .collect()
}

/// Values of an operand with these codes.
fn changed(g: &Given, codes: &[u8]) -> Vec<f64> {
    let Some(q) = &g.q else { return g.values.clone() };
    let value = |at: usize| {
        let cell = at / g.k / g.tile.0 * g.grid.1 + at % g.k / g.tile.1;
        let (x, s) = (g.table[usize::from(codes[at])], f64::from(q.scale_inv()[cell]) * g.global);
        match &g.zero {
            None => x * s,
            Some((z, None)) => (x - z[cell]) * s,
            Some((z, Some(mid))) => (x - mid) * s + z[cell],
        }
    };
    (0..codes.len()).map(value).collect()
}
