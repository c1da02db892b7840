//! Theories of scales that are packed, and of grids whose tile is guessed: bytes that bleed into each other, block sizes derived from the
//! grid, lanes taken for groups.

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::{Format, Overflow, Rounding};
use std::sync::Arc;

/// A cell of the grid for every element.
type Cell = Arc<dyn Fn(usize, usize) -> usize + Send + Sync>;

/// Theories of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let (tile, (rows, cols)) = (g.tile, g.grid);
    let n = rows * cols;
    if g.q.is_none() || n < 2 {
        return Vec::new();
    }
    // Behind the last: the byte 0.
    let e8m0 = g.q.as_ref().is_some_and(|q| q.scale_format() == Format::E8m0);
    let zero = if e8m0 { Format::E8m0.decode(0) } else { 0.0 };
    let scales: Arc<Vec<f64>> =
        Arc::new(g.scales().iter().map(|x| f64::from(*x)).chain([zero]).map(|x| x * g.global).collect());
    let zeros = g.zero.as_ref().map(|z| Arc::new(z.0.iter().copied().chain([0.0]).collect::<Vec<f64>>()));
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &str, words: String, bits: f64, cell: Cell| {
        let what = if zeros.is_some() { "scales and zero points" } else { "scales" };
        let mut t = Theory::new(class, name, format!("{name}.{variant}"), format!("{what} of {name} {words}")).bits(bits);
        let (x, at) = (scales.clone(), cell.clone());
        t.side(side).scale = Some(Arc::new(move |i, k| x[at(i, k)]));
        if let Some(z) = zeros.clone() {
            t.side(side).zero = Some(Arc::new(move |i, k| z[cell(i, k)]));
        }
        all.push(t);
    };
    // The tile that the grid suggests: the last one may be short.
    let derived = (g.rows.div_ceil(rows), g.k.div_ceil(cols));
    for (high, wide) in [derived, (derived.0, tile.1), (tile.0, derived.1)] {
        if (high, wide) != tile {
            let words = format!(
                "are taken by tiles of {high}×{wide} instead of {}×{}: the size is derived from the grid, whose last tile is short",
                tile.0, tile.1
            );
            let cell: Cell = Arc::new(move |i, k| (i / high).min(rows - 1) * cols + (k / wide).min(cols - 1));
            add(Class::ScaleLayout, "derived_block", words, 3.0, cell);
        }
    }
    // Height and width of a block, one for the other.
    if tile.0 != tile.1 && tile.0 > 1 && tile.1 > 1 {
        let (high, wide) = (tile.1, tile.0);
        let words = |rest: &str| {
            format!(
                "are taken by blocks of {high}×{wide} instead of {}×{}: row r / {high}, column k / {wide} of the grid, {rest}",
                tile.0, tile.1
            )
        };
        let inside: Cell = Arc::new(move |i, k| (i / high).min(rows - 1) * cols + (k / wide).min(cols - 1));
        add(Class::ScaleLayout, "exchanged_block", words("the last at its ends"), 3.0, inside);
        let on: Cell = Arc::new(move |i, k| (i / high * cols + k / wide).min(n - 1));
        add(Class::ScaleLayout, "exchanged_block", words("running on into what lies behind its end"), 3.5, on);
        let wrapped: Cell = Arc::new(move |i, k| (i / high % rows) * cols + k / wide % cols);
        add(Class::ScaleLayout, "exchanged_block", words("the first again behind its ends"), 4.0, wrapped);
    }
    // The lane of an element taken for its group.
    let wholes = [2usize, 4, 8, 16].map(|n| n * tile.1).into_iter().chain([cols * tile.1]);
    for whole in wholes.filter(|w| *w <= g.k.next_multiple_of(tile.1) && *w > tile.1) {
        let groups = whole / tile.1;
        let words = format!("are taken by lane: element k of every {whole} has those of group k mod {groups}");
        let cell: Cell = Arc::new(move |i, k| i / tile.0 * cols + (k / whole * groups + k % groups).min(cols - 1));
        add(Class::ScaleIndex, "lane", words, 3.0 + cost(groups), cell);
    }
    // The group of the first code of a byte or word for all of them.
    for unit in [2usize, 4, 8].into_iter().filter(|u| tile.1 % u != 0 && cols > 1) {
        let words = format!("are taken for {unit} codes at once, by the group of the first of them");
        let cell: Cell = Arc::new(move |i, k| i / tile.0 * cols + k / unit * unit / tile.1);
        add(Class::ScaleIndex, "word", words, 2.0 + cost(unit), cell);
    }
    // Loaded by a step of the loop for the one before or behind it.
    for step in [8usize, 16, 32, 64, 128].into_iter().filter(|step| *step < tile.1 && cols > 1) {
        let words = format!("are loaded {step} of K late: the first {step} of each group have those of the group before");
        let cell: Cell = Arc::new(move |i, k| i / tile.0 * cols + k.saturating_sub(step) / tile.1);
        add(Class::ScaleIndex, "late", words, 3.0 + cost(step), cell);
        let words = format!("are loaded {step} of K early: the last {step} of each group have those of the next");
        let cell: Cell = Arc::new(move |i, k| i / tile.0 * cols + ((k + step) / tile.1).min(cols - 1));
        add(Class::ScaleIndex, "early", words, 3.5 + cost(step), cell);
    }
    // Another size of groups, in rows of as many groups as K would have then.
    for long in [16usize, 32, 64, 128, 256].into_iter().filter(|l| *l != tile.1 && tile.0 == 1 && rows > 1 && g.k > *l) {
        let per = g.k / long;
        let place = move |i: usize, k: usize| i * per + k / long;
        let words =
            |end: &str| format!("are taken for groups of {long}, not of {}: number r·{per} + k / {long} of all{end}", tile.1);
        // Where it stays inside it is a flat index that is divided.
        if place(rows - 1, g.k - 1) < n {
            continue;
        }
        add(
            Class::ScaleIndex,
            "group_size",
            words(", 0 behind the last"),
            3.0 + cost(long),
            Arc::new(move |i, k| place(i, k).min(n)),
        );
        let last: Cell = Arc::new(move |i, k| place(i, k).min(n - 1));
        add(Class::ScaleIndex, "group_size", words(", the last behind it"), 3.5 + cost(long), last);
        let again: Cell = Arc::new(move |i, k| place(i, k) % n);
        add(Class::ScaleIndex, "group_size", words(", the first again behind the last"), 3.5 + cost(long), again);
    }
    // Experts one below the other, each read from the next whole tile of rows on.
    let experts = if side == Which::B { s.parts.len() } else { 1 };
    for high in [8usize, 16, 32, 64, 128, 256].into_iter().filter(|_| experts > 1 && rows.is_multiple_of(experts)) {
        let (per, behind) = (rows / experts, n);
        if per.is_multiple_of(high) {
            continue;
        }
        let stride = per.next_multiple_of(high);
        let words = format!("of expert e are read from row {stride}·e on, not {per}·e: bytes of 0 past the end");
        let cell: Cell = Arc::new(move |i, k| {
            let row = i / tile.0;
            let at = row / per * stride + row % per;
            if at < rows { at * cols + k / tile.1 } else { behind }
        });
        add(Class::GroupBoundary, "scale_rows", words, 3.0 + cost(high), cell);
    }
    all.extend(signed(s, side));
    all.extend(words_of_bytes(s, side));
    all.extend(bled(s, side));
    all.extend(as_bytes(s, side));
    all.extend(as_numbers(s, side));
    all.extend(shuffled(s, side));
    all.extend(interleaved(s, side));
    all
}

/// E8M0 scales whose byte is taken as signed: from 128 on, the exponent is 256 less.
fn signed(s: &System, side: Which) -> Option<Theory> {
    let g = s.given(side);
    let q = g.q.as_ref().filter(|q| q.scale_format() == Format::E8m0)?;
    let (tile, cols, global, name) = (g.tile, g.grid.1, g.global, side.name());
    // 2^(byte − 127): bytes from 128 on are scales from 2 on.
    let read: Vec<f64> =
        q.scale_inv().iter().map(|x| f64::from(*x)).map(|x| if x >= 2.0 { x * (-256f64).exp2() } else { x }).collect();
    let many = q.scale_inv().iter().filter(|x| **x >= 2.0).count();
    (many > 0).then_some(())?;
    let words = format!(
        "the bytes of the scales of {name} are taken as signed: {many} of {} are 128 or more (2 and more), and are read as 2^-256 of that",
        read.len()
    );
    let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.scale_signed"), words).bits(3.0);
    t.side(side).scaled(tile.1, Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1] * global));
    Some(t)
}

/// E8M0 bytes that are taken out of a word by a shift to the exponent of an f32, without a mask: the lowest bit of the next byte is the sign.
fn words_of_bytes(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (name, tile, (rows, cols), global) = (side.name(), g.tile, g.grid, g.global);
    let Some(q) = g.q.as_ref().filter(|q| q.scale_format() == Format::E8m0) else { return Vec::new() };
    // The exponent of a scale is 127 less than its byte.
    let odd: Vec<bool> = q.scale_inv().iter().map(|x| (x.log2() as i32 + 127) & 1 == 1).collect();
    let mut all = Vec::new();
    for (many, along) in [4usize, 2, 8].into_iter().flat_map(|n| [(n, true), (n, false)]) {
        let next = |at: usize| match along {
            true => (at % cols % many + 1 < many && at % cols + 1 < cols).then_some(at + 1),
            false => (at / cols % many + 1 < many && at / cols + 1 < rows).then_some(at + cols),
        };
        let turned = |at: usize| next(at).is_some_and(|n| odd[n]);
        if !(0..odd.len()).any(turned) {
            continue;
        }
        let sign = |at: usize| if turned(at) { -1.0 } else { 1.0 };
        let read: Vec<f64> = q.scale_inv().iter().enumerate().map(|(at, x)| sign(at) * f64::from(*x) * global).collect();
        let of = if along { "groups along K" } else { "rows" };
        let words = format!(
            "the e8m0 bytes of the scales of {name} lie {many} to a word ({many} {of}), and each is shifted into the exponent of an f32 without a mask: the \
             lowest bit of the next byte in the word is its sign"
        );
        let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.scale_word"), words);
        t.bits = 4.0 + cost(many) + if along { 0.0 } else { 1.0 };
        t.side(side).scaled(tile.1, Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1]));
        all.push(t);
    }
    all
}

/// Scales that stand column by column in groups of rows, written with the columns there are and read with padded ones, or the other way
/// about; what nobody wrote is 1.
fn shuffled(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let (tile, (rows, cols)) = (g.tile, g.grid);
    let global = g.global;
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x)).collect());
    let mut all = Vec::new();
    for (high, unit) in [8usize, 16, 32, 64, 128].into_iter().flat_map(|h| [4usize, 8, 16].map(|u| (h, u))) {
        let wide = cols.next_multiple_of(unit);
        if wide == cols || cols < 2 || rows < 2 {
            continue;
        }
        for (written, read) in [(cols, wide), (wide, cols)] {
            // The cell that was written where this one is read.
            let from = move |r: usize, c: usize| {
                let at = r / high * high * read + c * high + r % high;
                let (block, at) = (at / (high * written), at % (high * written));
                let (r, c) = (block * high + at % high, at / high);
                (r < rows && c < cols).then_some(r * cols + c)
            };
            // A gap of zeros would be as a part that was not written.
            let gap = (0..rows * cols).any(|f| from(f / cols, f % cols).is_none());
            let rest = if gap { "; what nobody wrote is 1" } else { "" };
            // Asked for where it is read: as many tables as shapes would fill the memory.
            let held = scales.clone();
            let new = move |r: usize, c: usize| from(r, c).map_or(1.0, |at| held[at]) * global;
            let words = format!(
                "the scales of {name} stand group by group in blocks of {high} rows: written for {written} groups, read for {read}{rest}"
            );
            let mut t = Theory::new(Class::ScaleLayout, name, format!("{name}.shuffled"), words).bits(5.0 + cost(high));
            t.side(side).scaled(tile.1, Arc::new(move |i, k| new(i / tile.0, k / tile.1)));
            all.push(t);
        }
    }
    all
}

/// Scales that stand as [groups / u, rows, u], written for the rows there are and read for padded ones, or the other way about.
fn interleaved(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (tile, (rows, cols), global, name) = (g.tile, g.grid, g.global, side.name());
    let scales: Arc<Vec<f64>> = Arc::new(g.scales().iter().map(|x| f64::from(*x)).collect());
    let mut all = Vec::new();
    if cols < 2 || rows < 2 {
        return all;
    }
    // What nobody wrote: the byte 0, or 1.
    let zero = if g.q.as_ref().is_some_and(|q| q.scale_format() == Format::E8m0) { (-127f64).exp2() } else { 0.0 };
    let mut paddings: Vec<usize> = [4usize, 8, 16, 32, 64, 128].iter().map(|p| rows.next_multiple_of(*p)).collect();
    paddings.dedup();
    for (unit, padded) in [1usize, 2, 4, 8, 16].into_iter().flat_map(|u| paddings.iter().map(move |p| (u, *p))) {
        if padded == rows || unit >= cols {
            continue;
        }
        for (written, read) in [(rows, padded), (padded, rows)] {
            // The cell that was written where this one is read.
            let from = move |r: usize, c: usize| {
                let at = c / unit * read * unit + r * unit + c % unit;
                let (block, at) = (at / (written * unit), at % (written * unit));
                let (r, c) = (at / unit, block * unit + at % unit);
                (r < rows && c < cols).then_some(r * cols + c)
            };
            let gap = (0..rows * cols).any(|f| from(f / cols, f % cols).is_none());
            for (none, rest) in [(zero, "; what nobody wrote is the byte 0"), (1.0, "; what nobody wrote is 1")] {
                let held = scales.clone();
                let new = move |r: usize, c: usize| from(r, c).map_or(none, |at| held[at]) * global;
                let words = format!(
                    "the scales of {name} stand as [groups / {unit}, rows, {unit}]: written for {written} rows, read for {read}{}",
                    if gap { rest } else { "" }
                );
                let mut t = Theory::new(Class::ScaleLayout, name, format!("{name}.interleaved"), words).bits(5.0 + cost(unit));
                t.side(side).scaled(tile.1, Arc::new(move |i, k| new(i / tile.0, k / tile.1)));
                all.push(t);
                if !gap {
                    break;
                }
            }
        }
    }
    all
}

/// f32 scales where a kernel expects bytes of e8m0, four to a word: each of a number's bytes is the exponent of a group.
fn as_bytes(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (name, tile, (rows, cols), global) = (side.name(), g.tile, g.grid, g.global);
    if g.q.as_ref().is_none_or(|q| q.scale_format() != Format::F32) || cols < 2 || s.alone {
        return Vec::new();
    }
    let bytes: Vec<u8> = g.scales().iter().flat_map(|x| x.to_bits().to_le_bytes()).collect();
    // Bytes from one row to the next, and whether those of a row's groups lie beside each other.
    let ways = [
        ("rows as far apart as they are", 0.0, 4 * cols, 4),
        ("rows as far apart as their bytes would be", 0.5, cols, 4),
        ("rows as far apart as whole words of their bytes would be", 0.5, cols.next_multiple_of(4), 4),
        ("words of all rows one after the other", 1.0, 4, 4 * rows),
    ];
    ways.into_iter()
        .map(|(how, bits, row, word)| {
            let read: Vec<f64> = (0..rows * cols)
                .map(|f| {
                    let (r, c) = (f / cols, f % cols);
                    let byte = bytes.get(r * row + c / 4 * word + c % 4).copied().unwrap_or(0);
                    Format::E8m0.decode(u32::from(byte)) * global
                })
                .collect();
            let words = format!("the f32 scales of {name} are read as bytes of e8m0, a byte for each group, {how}");
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.scale_bytes"), words).bits(4.0 + bits);
            t.side(side).scaled(tile.1, Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1]));
            t
        })
        .collect()
}

/// Scales whose bits are taken for a whole number, and that for the scale.
fn as_numbers(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (name, tile, cols, global) = (side.name(), g.tile, g.grid.1, g.global);
    let Some(f) = g.q.as_ref().map(|q| q.scale_format()).filter(|f| f.bits() <= 32 && !f.is_integer()) else {
        return Vec::new();
    };
    let top = 2f64.powi(f.bits() as i32 - 1);
    let bits: Vec<f64> = match f {
        Format::F32 => g.scales().iter().map(|x| f64::from(x.to_bits())).collect(),
        _ => g.scales().iter().map(|x| f64::from(f.encode(f64::from(*x), Rounding::NearestEven, Overflow::Native))).collect(),
    };
    // Without a negative one both are the same.
    let signs: &[bool] = if bits.iter().any(|x| *x >= top) { &[false, true] } else { &[true] };
    signs
        .iter()
        .map(|signed| {
            let read: Vec<f64> =
                bits.iter().map(|x| if *signed && *x >= top { x - 2.0 * top } else { *x }).map(|x| x * global).collect();
            let sign = if *signed { "with" } else { "without" };
            let words = format!(
                "the bits of the {f} scales of {name} are taken for whole numbers {sign} a sign, and these for the scales"
            );
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.scale_bits"), words).bits(4.0);
            t.side(side).scaled(tile.1, Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1]));
            t
        })
        .collect()
}

/// Exponents of f32 scales packed four to a word by shifts: what is not masked reaches the byte beside it.
fn bled(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let (tile, (_, cols), global) = (g.tile, g.grid, g.global);
    let bits: Vec<u32> = g.scales().iter().map(|x| x.to_bits()).collect();
    if cols < 2 || bits.iter().all(|b| b & 0x7f_ffff == 0) {
        return Vec::new();
    }
    let packed = |other: isize, joined: fn(u32, u32) -> u32| -> Vec<f64> {
        let one = |at: usize| {
            let (exponent, lane) = (bits[at] >> 23 & 255, at % cols % 4);
            let beside = at as isize + other;
            let inside = (0..4).contains(&(lane as isize + other)) && beside / cols as isize == (at / cols) as isize;
            // The upper eight bits of the fraction beside it.
            let fraction = if inside { bits.get(beside as usize).map_or(0, |b| b >> 15 & 255) } else { 0 };
            (f64::from(joined(exponent, fraction).min(254)) - 127.0).exp2()
        };
        (0..bits.len()).map(one).collect()
    };
    type Join = (&'static str, isize, fn(u32, u32) -> u32);
    let ways: [Join; 4] = [
        ("behind it by or", 1, |e, f| e | f),
        ("before it by or", -1, |e, f| e | f),
        ("behind it by a sum", 1, |e, f| (e + f) & 255),
        ("before it by a sum", -1, |e, f| (e + f) & 255),
    ];
    // All of a word: v0 >> 23 | v1 >> 15 | v2 >> 7 | v3 << 1, nothing masked; the byte 255 is NaN.
    let word = |at: usize| {
        let (row, first) = (at / cols * cols, at % cols / 4 * 4);
        let shifts = [|v: u32| v >> 23, |v| v >> 15, |v| v >> 7, |v| v << 1];
        let of =
            |(lane, shift): (usize, &fn(u32) -> u32)| if first + lane < cols { shift(bits[row + first + lane]) } else { 0 };
        let shifts: [fn(u32) -> u32; 4] = shifts;
        let byte = shifts.iter().enumerate().map(of).fold(0, |x, y| x | y) >> (8 * (at % cols % 4)) & 255;
        if byte == 255 { f64::NAN } else { (f64::from(byte) - 127.0).exp2() }
    };
    let whole: Vec<f64> = (0..bits.len()).map(word).collect();
    let words = format!(
        "the f32 scales of {name} are packed four to a word by shifts, nothing masked: each exponent meets the fractions of all scales behind it"
    );
    let mut unmasked = Theory::new(Class::BitsReinterpreted, name, format!("{name}.packed_exponents"), words).bits(5.0);
    unmasked.side(side).scaled(tile.1, Arc::new(move |i, k| whole[i / tile.0 * cols + k / tile.1] * global));
    let theory = |(words, other, joined): Join| {
        let read = packed(other, joined);
        let words = format!(
            "the f32 scales of {name} are packed four to a word by their exponents: each meets the fraction of the scale {words}"
        );
        let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.packed_exponents"), words).bits(5.0);
        t.side(side).scaled(tile.1, Arc::new(move |i, k| read[i / tile.0 * cols + k / tile.1] * global));
        t
    };
    ways.into_iter().map(theory).chain([unmasked]).collect()
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, noise, sum, wide};
    use crate::{Format, Zero};

    #[test]
    fn words_of_four_scales_that_are_not_masked_are_told() {
        let (k_all, a, b) = (128, wide(M, 128), codes(Format::E4m3, N, 128, 16, false, 29));
        let x = a.to_f64();
        let bits = |j: usize, g: usize| b.scale_inv()[j * 8 + g].to_bits();
        let read = |j: usize, g: usize| {
            let v = |lane: usize| bits(j, g / 4 * 4 + lane);
            let word = v(0) >> 23 | v(1) >> 15 | v(2) >> 7 | v(3) << 1;
            match word.to_le_bytes()[g % 4] {
                255 => f64::NAN,
                byte => (f64::from(byte) - 127.0).exp2(),
            }
        };
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            sum(k_all, |k| x[[i, k]] * Format::E4m3.decode(u32::from(b.codes()[j * k_all + k])) * read(j, k / 16))
        });
        assert_eq!(got.0, "bits_reinterpreted:b.packed_exponents", "{}", got.1);
        assert!(got.1.contains("nothing masked"), "{}", got.1);
    }

    #[test]
    fn floats_that_are_read_as_bytes_of_exponents_are_told() {
        let (k_all, a, b) = (128, wide(M, 128), codes(Format::E4m3, N, 128, 16, false, 30));
        let x = a.to_f64();
        let read =
            |j: usize, g: usize| Format::E8m0.decode(u32::from(b.scale_inv()[j * 8 + g / 4].to_bits().to_le_bytes()[g % 4]));
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            sum(k_all, |k| x[[i, k]] * Format::E4m3.decode(u32::from(b.codes()[j * k_all + k])) * read(j, k / 16))
        });
        assert_eq!(got.0, "bits_reinterpreted:b.scale_bytes", "{}", got.1);
        assert!(got.1.contains("bytes of e8m0") && got.1.ends_with("rows as far apart as they are"), "{}", got.1);
    }

    #[test]
    fn scales_whose_bits_are_whole_numbers_are_told() {
        let (k_all, a, b) = (128, wide(M, 128), codes(Format::E4m3, N, 128, 16, false, 33));
        let mut parts = b.into_parts();
        parts.scale_format = Format::Bf16;
        parts.scale_inv.iter_mut().for_each(|s| *s = crate::tensor::round_to(Format::Bf16, *s));
        let b = crate::QTensor::new(parts).unwrap();
        let x = a.to_f64();
        let read = |at: usize| f64::from(b.scale_inv()[at].to_bits() >> 16);
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            sum(k_all, |k| x[[i, k]] * Format::E4m3.decode(u32::from(b.codes()[j * k_all + k])) * read(j * 8 + k / 16))
        });
        assert_eq!(got.0, "bits_reinterpreted:b.scale_bits", "{}", got.1);
        assert!(got.1.contains("the bits of the bf16 scales of b are taken for whole numbers"), "{}", got.1);
    }

    #[test]
    fn bytes_of_exponents_that_are_not_masked_turn_signs() {
        let (k_all, a) = (256, wide(M, 256));
        let mut p = codes(Format::E4m3, N, 256, 32, false, 37).into_parts();
        let exponent = |x: usize| (6.0 * noise(11 * x + 3)) as i32 - 9;
        p.scale_format = Format::E8m0;
        p.scale_inv = (0..N * 8).map(|x| f32::powi(2.0, exponent(x))).collect();
        let b = crate::QTensor::new(p).unwrap();
        let (x, y) = (a.to_f64(), b.dequantize());
        let of = |sign: &dyn Fn(usize, usize) -> f64| {
            found(&a, &b, None, Format::F32, |i, j, _| sum(k_all, |k| x[[i, k]] * y[[j, k]] * sign(j, k / 32)))
        };
        let odd = |at: usize| (exponent(at) + 127) % 2 == 1;
        let got = of(&|j, c| if c % 4 < 3 && odd(j * 8 + c + 1) { -1.0 } else { 1.0 });
        assert_eq!(got.0, "bits_reinterpreted:b.scale_word", "{}", got.1);
        assert!(got.1.contains("lie 4 to a word (4 groups along K)"), "{}", got.1);
        let got = of(&|j, c| if j % 2 == 0 && odd(j * 8 + c + 8) { -1.0 } else { 1.0 });
        assert!(got.0 == "bits_reinterpreted:b.scale_word" && got.1.contains("(2 rows)"), "{got:?}");
        // Signs of other groups than those.
        let got = of(&|j, c| if noise(8 * j + c) < 0.4 { -1.0 } else { 1.0 });
        assert!(!got.0.contains("scale_word"), "{got:?}");
    }

    /// What is found where weights of uint4 take scale and zero point from this place of the lists, 0 behind their ends.
    fn by_place(place: impl Fn(usize, usize) -> usize) -> (String, String) {
        let (k_all, a, b) = (256, wide(M, 256), codes(Format::Uint4, N, 256, 64, true, 31));
        let Zero::Integer(zero) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        let (scale, zero) =
            (|at: usize| b.scale_inv().get(at).map_or(0.0, |s| f64::from(*s)), |at: usize| zero.get(at).map_or(0, |z| *z));
        found(&a, &b, None, Format::F32, |i, j, _| {
            let weight = |k: usize| (f64::from(b.codes()[j * k_all + k]) - f64::from(zero(place(j, k)))) * scale(place(j, k));
            sum(k_all, |k| x[[i, k]] * weight(k))
        })
    }

    #[test]
    fn scales_and_zero_points_that_are_loaded_a_step_late_or_early_are_told() {
        let (name, words) = by_place(|j, k| j * 4 + k.saturating_sub(16) / 64);
        assert_eq!(name, "scale_index:b.late", "{words}");
        assert!(words.contains("scales and zero points of b are loaded 16 of K late"), "{words}");
        let (name, words) = by_place(|j, k| j * 4 + ((k + 32) / 64).min(3));
        assert_eq!(name, "scale_index:b.early", "{words}");
        assert!(words.contains("loaded 32 of K early"), "{words}");
    }

    #[test]
    fn groups_of_another_size_are_told_with_what_lies_behind_the_last() {
        let (name, words) = by_place(|j, k| j * 8 + k / 32);
        assert_eq!(name, "scale_index:b.group_size", "{words}");
        assert!(words.contains("for groups of 32, not of 64: number r·8 + k / 32 of all, 0 behind the last"), "{words}");
    }
}
