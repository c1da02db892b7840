//! Theories of scales and zero points: another rule, another place, another granularity, the other operand's.

use super::given::Given;
use super::maps::{self, cost};
use super::padded::padded;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::nth;
use crate::{Format, Overflow, Rounding};
use std::sync::Arc;

fn stored(format: Format, x: f64, rounding: Rounding) -> f64 {
    format.decode(format.encode(x, rounding, Overflow::Saturate))
}
fn pow2(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() { x } else { x.signum() * x.abs().log2().floor().exp2() }
}

/// Class, variant, words, bits, what becomes of a scale.
pub type Rule = (Class, &'static str, &'static str, f64, fn(f64) -> f64);

/// What may become of a scale_inv on its way from memory: class, variant, words, bits, rule.
#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    (Class::ScaleOmitted, "omitted", "never applied", 0.0, |_| 1.0),
    (Class::ScaleDoubledInverted, "twice", "applied twice", 0.5, |s| s * s),
    (Class::ScaleDoubledInverted, "inverted", "applied as their reciprocals", 0.5, |s| 1.0 / s),
    (Class::ScaleDoubledInverted, "inverted_twice", "divided by twice", 3.0, |s| 1.0 / (s * s)),
    (Class::ScaleDoubledInverted, "root", "applied as their square roots", 3.0, |s| s.abs().sqrt()),
    (Class::ScaleDoubledInverted, "three_times", "applied three times", 4.0, |s| s * s * s),
    (Class::ScaleRerounded, "pow2_up", "rounded up to powers of two", 1.5, |s| { let f = pow2(s); if f == s { s } else { 2.0 * f } }),
    (Class::ScaleRerounded, "pow2_down", "rounded down to powers of two", 1.5, pow2),
    (Class::ScaleRerounded, "pow2_nearest", "rounded to the nearest power of two", 2.0, |s| if s == 0.0 || !s.is_finite() { s } else { s.signum() * s.abs().log2().round().exp2() }),
    (Class::ScaleRerounded, "pow2_half_up", "rounded to a power of two by their leading fraction bit", 2.5, |s| { let f = pow2(s); if (s / f).abs() >= 1.5 { 2.0 * f } else { f } }),
    (Class::ScaleRerounded, "bf16", "rounded to bf16", 1.5, |s| stored(Format::Bf16, s, Rounding::NearestEven)),
    (Class::ScaleRerounded, "bf16_truncated", "cut to bf16", 2.0, |s| stored(Format::Bf16, s, Rounding::TowardZero)),
    (Class::ScaleRerounded, "f16", "rounded to f16", 1.5, |s| stored(Format::F16, s, Rounding::NearestEven)),
    (Class::ScaleRerounded, "f16_truncated", "cut to f16", 2.5, |s| stored(Format::F16, s, Rounding::TowardZero)),
    (Class::ScaleRerounded, "e4m3", "rounded to e4m3", 2.0, |s| stored(Format::E4m3, s, Rounding::NearestEven)),
    (Class::ScaleRerounded, "e5m2", "rounded to e5m2", 2.5, |s| stored(Format::E5m2, s, Rounding::NearestEven)),
    (Class::ScaleRerounded, "through_bf16_reciprocal", "the reciprocals of their bf16 reciprocals", 3.0, |s| 1.0 / stored(Format::Bf16, 1.0 / s, Rounding::NearestEven)),
    (Class::ScaleRerounded, "through_f16_reciprocal", "the reciprocals of their f16 reciprocals", 3.0, |s| 1.0 / stored(Format::F16, 1.0 / s, Rounding::NearestEven)),
    (Class::ScaleRerounded, "through_pow2_reciprocal", "the reciprocals of their reciprocals rounded up to powers of two", 3.0, |s| { let r = 1.0 / s; let f = pow2(r); 1.0 / if f == r { r } else { 2.0 * f } }),
    (Class::BitsReinterpreted, "sign_lost", "read without their sign", 2.0, f64::abs),
    (Class::BitsReinterpreted, "negated", "read with the other sign", 3.0, |s| -s),
    (Class::BitsReinterpreted, "f16_as_bf16", "16 bits of f16 read as bf16", 1.5, |s| Format::Bf16.decode(Format::F16.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::BitsReinterpreted, "bf16_as_f16", "16 bits of bf16 read as f16", 1.5, |s| Format::F16.decode(Format::Bf16.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::BitsReinterpreted, "e8m0_as_e4m3", "bytes of e8m0 read as e4m3", 1.5, |s| Format::E4m3.decode(Format::E8m0.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::BitsReinterpreted, "e8m0_as_e5m2", "bytes of e8m0 read as e5m2", 2.5, |s| Format::E5m2.decode(Format::E8m0.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::BitsReinterpreted, "e8m0_as_integer", "bytes of e8m0 read as numbers", 2.0, |s| f64::from(Format::E8m0.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::BitsReinterpreted, "e8m0_as_exponent", "bytes of e8m0 read as exponents without a bias", 2.5, |s| s.log2()),
    (Class::BitsReinterpreted, "e8m0_signed", "bytes of e8m0 loaded as signed numbers and shifted to the exponent: from 2 on they have the other sign", 2.0, |s| if s >= 2.0 { -s } else { s }),
    (Class::BitsReinterpreted, "e4m3_as_e8m0", "bytes of e4m3 read as e8m0", 1.5, |s| Format::E8m0.decode(Format::E4m3.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::BitsReinterpreted, "e4m3_as_e5m2", "bytes of e4m3 read as e5m2", 1.5, |s| Format::E5m2.decode(Format::E4m3.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::BitsReinterpreted, "e4m3_as_fnuz", "bytes of e4m3 read as e4m3fnuz", 2.0, |s| Format::E4m3Fnuz.decode(Format::E4m3.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::BitsReinterpreted, "e4m3_as_integer", "bytes of e4m3 read as numbers", 2.5, |s| f64::from(Format::E4m3.encode(s, Rounding::NearestEven, Overflow::Saturate))),
    (Class::CodecEdge, "subnormal_e4m3", "subnormal e4m3 scales read as 0", 1.5, |s| if s.abs() < 0.015625 { 0.0 } else { s }),
    (Class::CodecEdge, "subnormal_hidden_one", "decoded with a hidden one and exponent 2^-7 where they are subnormal e4m3", 1.5, |s| if s > 0.0 && s < 0.015625 { (1.0 + 64.0 * s) / 128.0 } else { s }),
    (Class::CodecEdge, "subnormal_hidden_one", "decoded with a hidden one and exponent 2^-6 where they are subnormal e4m3", 2.0, |s| if s > 0.0 && s < 0.015625 { (1.0 + 64.0 * s) / 64.0 } else { s }),
    (Class::CodecEdge, "subnormal_exponent", "half of what they are where they are subnormal e4m3", 2.0, |s| if s < 0.015625 { 0.5 * s } else { s }),
    (Class::CodecEdge, "subnormal_exponent", "twice what they are where they are subnormal e4m3", 2.0, |s| if s < 0.015625 { 2.0 * s } else { s }),
    (Class::OverflowWrap, "above_f16", "Inf where f16 ends", 3.0, |s| if s.abs() >= 65520.0 { s.signum() * f64::INFINITY } else { s }),
    (Class::CodecEdge, "e4m3_exponent_only", "e4m3 scales read without their fraction", 2.5, pow2),
    (Class::CodecEdge, "below_f16", "scales below the smallest normal f16 read as 0", 2.0, |s| if s.abs() < 6.103515625e-5 { 0.0 } else { s }),
    (Class::CodecEdge, "below_f16_subnormal", "scales below the smallest f16 read as 0", 2.5, |s| if s.abs() < 2f64.powi(-24) { 0.0 } else { s }),
    (Class::CodecEdge, "e8m0_smallest", "the smallest e8m0 scale, 2^-127, read as 0", 2.0, |s| if s <= 2f64.powi(-127) { 0.0 } else { s }),
];

/// Whether scales stored like this can suffer it.
pub fn applies(rule: &Rule, g: &Given) -> bool {
    let stored = g.q.as_ref().map(crate::QTensor::scale_format);
    match rule.1 {
        "f16_as_bf16" => stored == Some(Format::F16),
        "bf16_as_f16" => stored == Some(Format::Bf16),
        name if name.starts_with("e8m0_") => stored == Some(Format::E8m0),
        // Of some: what all suffer is another rule.
        name if name.starts_with("subnormal_") => {
            let below = |s: &f32| s.abs() < 0.015625;
            stored == Some(Format::E4m3) && !g.scales().iter().all(below)
        }
        name if name.starts_with("e4m3_") => stored == Some(Format::E4m3),
        _ => true,
    }
}

/// Theories of the scales of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (name, other) = if side == Which::A { ("a", "b") } else { ("b", "a") };
    let Some(q) = g.q.as_ref() else { return Vec::new() };
    let scales: Arc<Vec<f64>> = Arc::new(q.scale_inv().iter().map(|x| f64::from(*x)).collect());
    let (tile, (rows, cols), global) = (g.tile, g.grid, g.global);
    let mut all = Vec::new();
    let mut add = |class: Class, variant: String, detail: String, bits: f64, at: At| {
        let mut t = Theory::new(class, name, variant, detail).bits(bits);
        t.side(side).scaled(tile.1, at);
        all.push(t);
    };
    let cell = move |i: usize, k: usize| i / tile.0 * cols + k / tile.1;
    for rule in RULES.iter().filter(|r| applies(r, g)) {
        // Asked for once a group of K: a table for each rule would fill the memory.
        let (of, scales) = (rule.4, scales.clone());
        if scales.iter().any(|x| of(*x) != *x) {
            let at: At = Arc::new(move |i, k| of(scales[cell(i, k)]) * global);
            add(rule.0, format!("{name}.{}", rule.1), format!("the scales of {name} are {}", rule.2), rule.3, at);
        }
    }
    if let Some(second) = q.global_scale_inv() {
        let second = f64::from(second);
        for (class, word, by, bits) in fates(second) {
            let scales = scales.clone();
            let at: At = Arc::new(move |i, k| scales[cell(i, k)] * global * by);
            add(class, format!("{name}.global"), format!("the second-level scale of {name} is {word}"), bits, at);
        }
        if let Some(theirs) = s.given(side.other()).q.as_ref().and_then(crate::QTensor::global_scale_inv) {
            let by = f64::from(theirs) / second;
            let scales = scales.clone();
            let at: At = Arc::new(move |i, k| scales[cell(i, k)] * global * by);
            add(
                Class::ScaleLayout,
                format!("{name}.global_of_{other}"),
                format!("the second-level scale of {other} is used for {name}"),
                2.0,
                at,
            );
        }
    }
    // Exact constants: a bias of the exponent, a format's maximum.
    for (by, words) in constants(q.format()) {
        let scales = scales.clone();
        let at: At = Arc::new(move |i, k| scales[cell(i, k)] * global * by);
        let class = if by.log2().fract() == 0.0 { Class::BitsReinterpreted } else { Class::RangeRule };
        add(class, format!("{name}.constant"), format!("{name} is times {words}"), 4.0, at);
    }
    // History.
    if scales.len() == 1 {
        for (step, past) in g.history.iter().enumerate() {
            let past = f64::from(*past) * global;
            let words =
                format!("the scale of {name} of {} step{} ago, {past:e}, is used", step + 1, if step == 0 { "" } else { "s" });
            add(Class::StaleState, format!("{name}.scale_inv"), words, 0.5, Arc::new(move |_, _| past));
        }
    }
    // Another place.
    let experts = if side == Which::B && s.parts.len() > 1 { s.parts.len() } else { 1 };
    for way in maps::ways(rows, cols, experts) {
        if (0..rows * cols).all(|f| scales[(way.map)(f / cols, f % cols)] == scales[f]) {
            continue;
        }
        let class = way.kind.class();
        // Looked up where it is asked for: as many tables as ways would fill the memory.
        let (held, map) = (scales.clone(), way.map);
        let at: At = Arc::new(move |i, k| held[map(i / tile.0, k / tile.1)] * global);
        let words = format!("the scale of {name} at row r, group c of the {rows}×{cols} grid is read from {}", way.words);
        add(class, format!("{name}.index"), words, 4.0 + way.bits, at);
    }
    if let Some((zero, _)) = g.zero.as_ref().filter(|_| n_of(g) > 1) {
        all.extend(with_zeros(g, side, zero, experts));
    }
    let mut add = |class: Class, variant: String, detail: String, bits: f64, every: usize, at: At| {
        let mut t = Theory::new(class, name, variant, detail).bits(bits);
        t.side(side).scaled(every, at);
        all.push(t);
    };
    // Padding, which holds nothing.
    for p in padded(rows, cols, &scales) {
        let (read, words) = (p.read, format!("the scales of {name} are {}", p.words));
        let at: At = Arc::new(move |i, k| read(i / tile.0, k / tile.1) * global);
        add(Class::ScaleLayout, format!("{name}.padded"), words, 4.0 + p.bits, tile.1, at);
    }
    // Another group length, or another block height.
    let n = rows * cols;
    for group in (1..=g.k.min(4096)).filter(|x| *x != tile.1 && n > 1) {
        let b = 4.0 + cost(group);
        let (a, c) = (scales.clone(), scales.clone());
        if cols > 1 {
            add(
                Class::ScaleIndex,
                format!("{name}.divisor"),
                format!("scales of {name} are taken every {group} of K instead of every {}, the last at the end", tile.1),
                b,
                group,
                Arc::new(move |i, k| a[i / tile.0 * cols + (k / group).min(cols - 1)] * global),
            );
            add(
                Class::ScaleIndex,
                format!("{name}.divisor"),
                format!("scales of {name} are taken every {group} of K instead of every {}, wrapped", tile.1),
                b + 1.0,
                group,
                Arc::new(move |i, k| c[(i / tile.0 * cols + k / group) % n] * global),
            );
            let d = scales.clone();
            add(
                Class::ScaleIndex,
                format!("{name}.divisor"),
                format!(
                    "scales of {name} are taken every {group} of K instead of every {}, on into the next rows, 0 behind the end",
                    tile.1
                ),
                b + 1.0,
                group,
                Arc::new(move |i, k| d.get(i / tile.0 * cols + k / group).map_or(0.0, |s| s * global)),
            );
        }
    }
    for group in (1..=g.rows.min(2048)).filter(|x| *x != tile.0 && rows > 1) {
        let b = 4.0 + cost(group);
        let (a, c) = (scales.clone(), scales.clone());
        add(
            Class::ScaleLayout,
            format!("{name}.row_divisor"),
            format!("scales of {name} are taken every {group} rows instead of every {}", tile.0),
            b,
            tile.1,
            Arc::new(move |i, k| a[(i / group).min(rows - 1) * cols + k / tile.1] * global),
        );
        add(
            Class::ScaleLayout,
            format!("{name}.row_divisor"),
            format!("scales of {name} are taken every {group} rows instead of every {}, wrapped", tile.0),
            b + 1.0,
            tile.1,
            Arc::new(move |i, k| c[i / group % rows * cols + k / tile.1] * global),
        );
    }
    for off in (1..tile.1.min(g.k)).filter(|_| cols > 1) {
        let (a, c) = (scales.clone(), scales.clone());
        let b = 6.0 + cost(off);
        add(
            Class::ScaleIndex,
            format!("{name}.offset"),
            format!("the group of {name} is (k + {off}) / {}", tile.1),
            b,
            0,
            Arc::new(move |i, k| a[i / tile.0 * cols + ((k + off) / tile.1).min(cols - 1)] * global),
        );
        add(
            Class::ScaleIndex,
            format!("{name}.offset"),
            format!("the group of {name} is (k − {off}) / {}", tile.1),
            b,
            0,
            Arc::new(move |i, k| c[i / tile.0 * cols + k.saturating_sub(off) / tile.1] * global),
        );
    }
    // A padded stride, behind the end nothing.
    for stride in (cols + 1..cols + 65).filter(|_| rows > 1) {
        let a = scales.clone();
        add(
            Class::ScaleLayout,
            format!("{name}.stride"),
            format!("scales of {name} are read at a row stride of {stride} instead of {cols}, 0 past the end"),
            3.0 + cost(stride - cols),
            tile.1,
            Arc::new(move |i, k| a.get(i / tile.0 * stride + k / tile.1).map_or(0.0, |s| s * global)),
        );
    }
    all.extend(advanced(g, side));
    let mut add = |class: Class, variant: String, detail: String, bits: f64, every: usize, at: At| {
        let mut t = Theory::new(class, name, variant, detail).bits(bits);
        t.side(side).scaled(every, at);
        all.push(t);
    };
    // Groups along K taken for groups along the rows.
    if tile.0 == 1 && tile.1 > 1 && rows > 1 {
        let (a, c, g1, k_all) = (scales.clone(), scales.clone(), tile.1, g.k);
        let high = g.rows.div_ceil(g1);
        add(
            Class::ScaleLayout,
            format!("{name}.other_axis"),
            format!("scales of {name} for {g1} of K are taken for {g1} rows: scale[r / {g1}][k]"),
            2.0,
            0,
            Arc::new(move |i, k| a[(i / g1 * k_all + k) % n] * global),
        );
        add(
            Class::ScaleLayout,
            format!("{name}.other_axis"),
            format!("scales of {name} for {g1} of K are taken for {g1} rows: scale[k][r / {g1}]"),
            2.5,
            0,
            Arc::new(move |i, k| c[(k * high + i / g1) % n] * global),
        );
    }
    // A rule of one group of K alone. What makes a group vanish is rather a group that is lost.
    let vanishes = |rule: &Rule| if rule.1 == "twice" { 8.0 } else { 0.0 };
    for group in (0..cols).filter(|_| cols > 1) {
        for rule in RULES.iter().filter(|r| matches!(r.1, "omitted" | "inverted" | "twice")) {
            let a = scales.clone();
            let place = if group > 0 && group == cols - 1 { "last".into() } else { nth(group + 1) };
            add(
                rule.0,
                format!("{name}.{}_in_group", rule.1),
                format!("the scales of {name} in the {place} group of K are {}", rule.2),
                rule.3 + 3.0 + if group == cols - 1 || group == 0 { 0.0 } else { cost(group) } + vanishes(rule),
                tile.1,
                Arc::new(move |i, k| {
                    let s = a[cell(i, k)];
                    (if k / tile.1 == group { (rule.4)(s) } else { s }) * global
                }),
            );
        }
    }
    // Along the other axis.
    if n > 1 {
        let (a, c) = (scales.clone(), scales.clone());
        add(
            Class::ScaleLayout,
            format!("{name}.other_axis"),
            format!("scales of {name} are taken along K: scale[k mod {n}]"),
            3.0,
            0,
            Arc::new(move |_, k| a[k % n] * global),
        );
        add(
            Class::ScaleLayout,
            format!("{name}.other_axis"),
            format!("scales of {name} are taken along the rows: scale[row mod {n}]"),
            3.0,
            tile.1,
            Arc::new(move |i, _| c[i % n] * global),
        );
    }
    // The other operand's.
    let o = s.given(side.other());
    if !o.scales().is_empty() {
        let theirs: Arc<Vec<f64>> = Arc::new(o.scales().iter().map(|x| f64::from(*x)).collect());
        let m = theirs.len();
        let (x, y) = (theirs.clone(), theirs.clone());
        add(
            Class::ScaleLayout,
            format!("{name}.of_{other}"),
            format!("the scales of {other} are used for {name}, by {name}'s index"),
            2.0,
            tile.1,
            Arc::new(move |i, k| x[cell(i, k) % m] * global),
        );
        add(
            Class::ScaleLayout,
            format!("{name}.of_{other}"),
            format!("the scales of {other} are used for {name}, the last at the end"),
            3.0,
            tile.1,
            Arc::new(move |i, k| y[cell(i, k).min(m - 1)] * global),
        );
    }
    swapped(s, side, &mut all);
    all
}

fn n_of(g: &Given) -> usize {
    g.grid.0 * g.grid.1
}

/// A wrong group or row for the scale and the zero point alike.
fn with_zeros(g: &Given, side: Which, zero: &[f64], experts: usize) -> Vec<Theory> {
    let name = side.name();
    let (tile, (rows, cols), global) = (g.tile, g.grid, g.global);
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * global).collect());
    let zero = Arc::new(zero.to_vec());
    let theory = |way: maps::Way| {
        let other = |f: usize| {
            let from = (way.map)(f / cols, f % cols);
            scales[from] != scales[f] || zero[from] != zero[f]
        };
        (0..rows * cols).any(other).then_some(())?;
        let class = way.kind.class();
        let words =
            format!("scale and zero point of {name} at row r, group c of the {rows}×{cols} grid are read from {}", way.words);
        let mut t = Theory::new(class, name, format!("{name}.index"), words).bits(4.0 + way.bits);
        let (s, z, of_scale, of_zero) = (scales.clone(), zero.clone(), way.map.clone(), way.map);
        t.side(side).scaled(tile.1, Arc::new(move |i, k| s[of_scale(i / tile.0, k / tile.1)]));
        t.side(side).zero = Some(Arc::new(move |i, k| z[of_zero(i / tile.0, k / tile.1)]));
        Some(t)
    };
    let mut all: Vec<Theory> = maps::ways(rows, cols, experts).into_iter().filter_map(theory).collect();
    for group in (1..=g.k.min(2048)).filter(|x| *x != tile.1 && cols > 1) {
        let at = move |i: usize, k: usize| i / tile.0 * cols + (k / group).min(cols - 1);
        let words = format!("scales and zero points of {name} are taken every {group} of K instead of every {}", tile.1);
        let mut t = Theory::new(Class::ScaleIndex, name, format!("{name}.divisor"), words).bits(4.0 + cost(group));
        let (s, z) = (scales.clone(), zero.clone());
        t.side(side).scaled(group, Arc::new(move |i, k| s[at(i, k)]));
        t.side(side).zero = Some(Arc::new(move |i, k| z[at(i, k)]));
        all.push(t);
    }
    all
}

/// Places that no map of the grid alone has: a pointer that advances by another number a tile, groups along the other axis. Of the scale, and of the zero
/// point with it.
fn advanced(g: &Given, side: Which) -> Vec<Theory> {
    let name = side.name();
    let (tile, (rows, cols), global, n) = (g.tile, g.grid, g.global, n_of(g));
    if n < 2 {
        return Vec::new();
    }
    type Index = Arc<dyn Fn(usize, usize) -> usize + Send + Sync>;
    let mut ways: Vec<(Class, &str, String, f64, usize, Index)> = Vec::new();
    if cols > 1 {
        for per in [1usize, 2, 4, 8, 16, 32, 64, 128].into_iter().filter(|per| per * tile.1 <= 512 && per * tile.1 < g.k) {
            let long = per * tile.1;
            // Of long tiles the pointer advances by a half, twice or four times as much.
            let steps: Vec<usize> = if per <= 8 { (0..=4 * per).collect() } else { vec![0, per / 2, 2 * per, 4 * per] };
            for step in steps.into_iter().filter(|step| *step != per) {
                let along = move |k: usize| k / long * step + k % long / tile.1;
                let at = move |i: usize, k: usize| i / tile.0 * cols + along(k);
                let words = |rest: &str| format!("are read {step} on for every {long} of K instead of {per}, {rest}");
                let bits = 4.0 + cost(step) + cost(per);
                let mut add = |rest: &str, more: f64, index: Index| {
                    ways.push((Class::ScaleIndex, "advance", words(rest), bits + more, tile.1, index));
                };
                add("into the next rows", 0.0, Arc::new(move |i, k| at(i, k).min(n - 1)));
                add("into the next rows", 1.0, Arc::new(move |i, k| at(i, k) % n));
                if step > per {
                    add("into the next rows, 0 past the end", 1.0, Arc::new(move |i, k| at(i, k).min(n)));
                    let inside = move |i: usize, k: usize| if along(k) < cols { at(i, k) } else { n };
                    add("0 past the end of the row", 1.0, Arc::new(inside));
                }
            }
        }
    }
    if tile.0 == 1 && tile.1 > 1 && g.zero.is_some() {
        let (long, k_all) = (tile.1, g.k);
        let high = g.rows.div_ceil(long);
        let words = |order: &str| format!("for {long} of K are taken for {long} rows: {order}");
        let along: Index = Arc::new(move |i, k| (i / long * k_all + k) % n);
        ways.push((Class::ScaleLayout, "other_axis", words("[r][k]"), 2.0, 0, along));
        let across: Index = Arc::new(move |i, k| (k * high + i / long) % n);
        ways.push((Class::ScaleLayout, "other_axis", words("[k][r]"), 2.5, 0, across));
        let turned: Index = Arc::new(move |i, k| (k % rows * cols + i / long) % n);
        ways.push((Class::ScaleLayout, "other_axis", words("the grid transposed"), 2.5, 0, turned));
    }
    // Behind the end: 0.
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x) * global).chain([0.0]).collect());
    let mut all = Vec::new();
    for (class, variant, words, bits, every, index) in ways {
        let theory =
            |what: &str| Theory::new(class, name, format!("{name}.{variant}"), format!("{what} of {name} {words}")).bits(bits);
        let (s, at) = (scales.clone(), index.clone());
        let mut alone = theory("scales");
        alone.side(side).scaled(every, Arc::new(move |i, k| s[at(i, k)]));
        if let Some((zero, _)) = &g.zero {
            let mut both = theory("scales and zero points");
            let (mut z, at) = (zero.clone(), index.clone());
            z.push(0.0);
            both.side(side).clone_from(alone.side(side));
            both.side(side).zero = Some(Arc::new(move |i, k| z[at(i, k)]));
            all.push(both);
        }
        all.push(alone);
    }
    all
}

/// Both operands' scales exchanged, or both by one rule: theories of a alone that take b along.
fn swapped(s: &System, side: Which, all: &mut Vec<Theory>) {
    if side != Which::A || s.a.q.is_none() || s.b.q.is_none() {
        return;
    }
    let [of_a, of_b] = [&s.a, &s.b].map(|g| Arc::new(g.scales().iter().map(|x| f64::from(*x)).collect::<Vec<f64>>()));
    let read = |g: &Given, theirs: &Arc<Vec<f64>>| -> At {
        let (tile, cols, m, global, theirs) = (g.tile, g.grid.1, theirs.len(), g.global, theirs.clone());
        Arc::new(move |i, k| theirs[(i / tile.0 * cols + k / tile.1) % m] * global)
    };
    if of_a.len() > 1 && of_b.len() > 1 {
        let mut t = Theory::new(Class::ScaleLayout, "a", "swapped", "the scales of a and b are exchanged").bits(1.5);
        t.a.scaled(s.a.tile.1, read(&s.a, &of_b));
        t.b.scaled(s.b.tile.1, read(&s.b, &of_a));
        all.push(t);
    }
    for rule in RULES.iter().filter(|r| applies(r, &s.a) && applies(r, &s.b)) {
        let by = |g: &Given, own: &Arc<Vec<f64>>| -> At {
            let (tile, cols, global, own, of) = (g.tile, g.grid.1, g.global, own.clone(), rule.4);
            Arc::new(move |i, k| of(own[i / tile.0 * cols + k / tile.1]) * global)
        };
        let mut t = Theory::new(rule.0, "a", format!("both.{}", rule.1), format!("the scales of a and of b are {}", rule.2))
            .bits(rule.3 + 1.5);
        t.a.scaled(s.a.tile.1, by(&s.a, &of_a));
        t.b.scaled(s.b.tile.1, by(&s.b, &of_b));
        all.push(t);
    }
}

/// What may become of one scale of the whole tensor, and the factor that it leaves.
pub fn fates(scale: f64) -> [(Class, &'static str, f64, f64); 3] {
    [
        (Class::ScaleOmitted, "never applied", 1.0 / scale, 0.0),
        (Class::ScaleDoubledInverted, "applied twice", scale, 0.5),
        (Class::ScaleDoubledInverted, "applied as its reciprocal", 1.0 / (scale * scale), 0.5),
    ]
}

/// One factor of the whole beside another fault, where it is that of a tensor's one scale. `None`: no such factor, or
/// several, are in the range.
pub fn of_one_scale(s: &System, low: f64, high: f64) -> Option<Theory> {
    let mut all: Vec<(Class, String, String, f64, f64)> = Vec::new();
    for side in s.sides().iter().copied() {
        let (g, name) = (s.given(side), side.name());
        let Some(q) = &g.q else { continue };
        let one = (q.scale_inv().len() == 1).then(|| f64::from(q.scale_inv()[0]));
        let second = q.global_scale_inv().map(f64::from);
        for (variant, what, scale) in [("scale", "scale", one), ("global", "second-level scale", second)] {
            for (class, word, by, bits) in scale.filter(|x| *x > 0.0).into_iter().flat_map(fates) {
                all.push((class, format!("{name}.{variant}"), format!("the {what} of {name} is {word}"), by, bits));
            }
        }
    }
    // Stored in f32, applied with a rounding or two.
    all.retain(|x| low * (1.0 - 1e-6) <= x.3 && x.3 <= high * (1.0 + 1e-6));
    let [(class, variant, words, by, bits)] = &all[..] else { return None };
    let mut t = Theory::new(*class, "out", variant.clone(), words.clone()).bits(4.0 + bits);
    let (bias, by) = (s.bias.clone(), *by);
    t.finish = Some(Arc::new(move |i, j, v| v * by + bias.at(i, j)));
    Some(t)
}

/// Factors with a name: powers of two, ratios of maxima that are taken for this format's.
fn constants(of: Format) -> Vec<(f64, String)> {
    let mut all: Vec<(f64, String)> =
        (-16..=16i32).filter(|e| *e != 0).map(|e| (f64::from(e).exp2(), format!("2^{e}"))).collect();
    // Codes whose bits are shifted into f32 or bf16 keep their own exponent bias: 15 (f16, e5m2), 8 (e4m3fnuz), 7 (e4m3), 3 (e3m2) and
    // 1 (e2m1) are 112, 119, 120, 124 and 126 less than 127.
    for e in [112i32, 119, 120, 124, 126] {
        for e in [e, -e] {
            all.push((f64::from(e).exp2(), format!("2^{e}, the difference of two formats' exponent biases")));
        }
    }
    let max = of.max_finite();
    let tops = [448.0, 240.0, 57344.0, 127.0, 128.0, 7.0, 8.0, 6.0, 15.0, 224.0, 255.0];
    // Of integers what as many bits may end at; of FP8 its own maximum, one of the others and half of it.
    let own = |x: &f64| match of.is_integer() {
        true => [max, max + 1.0, f64::from(of.bits()).exp2() - 1.0].contains(x),
        false if of.bits() == 8 => [448.0, 240.0, 57344.0, 224.0].contains(x),
        false => *x == max,
    };
    for x in tops {
        for y in tops {
            let r: f64 = x / y;
            if own(&x) && own(&y) && r.log2().fract() != 0.0 && (0.1..10.0).contains(&r) {
                all.push((r, format!("{x}/{y}")));
            }
        }
        all.push((x, format!("{x}")));
        all.push((1.0 / x, format!("1/{x}")));
    }
    all
}
