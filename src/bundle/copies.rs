//! The transposed copy of a cast whose codes are right: where its wrong codes come from, or how they were made.

use super::{copy_bytes, copy_pitch, copy_places, copy_tiles, encoders};
use crate::fault::Class;
use crate::fault::solve::segment::lines;
use crate::fault::whereabouts;
use crate::{Overflow, QTensor, Rounding, Tensor};
use std::ops::Range;

/// Wrong codes, at least.
const LEAST: usize = 8;
/// The share of wrong codes that a way has to make.
const SHARE: f64 = 0.98;

/// Of codes near those of these values: how many, and their correlation, at least. Other tensors of a network have none.
const MANY: usize = 64;
const ALIKE: f64 = 0.6;
/// Of codes that have nothing to do with these values: how many, at least.
const FOREIGN: usize = 256;

type Named = (Class, &'static str, String);
/// The code that stands at column r of row c of the copy.
type Source<'s> = &'s dyn Fn(usize, usize) -> Option<u8>;

/// What made the wrong codes of `copy`, `[cols, rows]` of a cast of `x` to `q`. `None`: nothing known, or nothing is wrong.
pub fn explain(copy: &[u8], x: &Tensor, q: &QTensor) -> Option<Named> {
    let (rows, cols) = (q.rows(), q.cols());
    let codes = q.codes();
    (copy.len() == codes.len() && x.data().len() == codes.len()).then_some(())?;
    let wrong: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != codes[at % rows * cols + at / rows]).collect();
    (wrong.len() >= LEAST).then_some(())?;
    let few: Vec<usize> = wrong.iter().copied().step_by(wrong.len().div_ceil(64)).collect();
    let made = |of: Source| {
        // Copy (c, r).
        let is = |at: &&usize| of(**at / rows, **at % rows) == Some(copy[**at]);
        let share = |all: &[usize]| all.iter().filter(is).count() as f64 >= SHARE * all.len() as f64;
        share(&few) && share(&wrong)
    };
    let code = |r: usize, c: usize| (r < rows && c < cols).then(|| codes[r * cols + c]);
    let (mut is_row, mut is_col) = (vec![false; cols], vec![false; rows]);
    wrong.iter().for_each(|at| (is_row[at / rows], is_col[at % rows]) = (true, true));
    let place = format!("in rows {}, columns {} of the transposed copy", lines(&is_row), lines(&is_col));
    if made(&|c, r| codes.get(c * rows + r).copied()) {
        return Some((
            Class::Addressing,
            "transpose.flat",
            format!("codes stand in the order of the codes, not transposed, {place}"),
        ));
    }
    if let Some(words) = untransposed(copy, q, &wrong) {
        return Some((Class::Addressing, "transpose.tile", format!("{words}, {place}")));
    }
    if let Some(words) = not_mirrored(copy, q, &wrong) {
        return Some((Class::Addressing, "transpose.tile", format!("{words}, {place}")));
    }
    if let Some(words) = pitched(copy, q, &wrong).or_else(|| copy_pitch::explain(copy, q, &wrong)) {
        return Some((Class::Addressing, "transpose.tile", format!("{words}, {place}")));
    }
    if let Some(words) = copy_bytes::explain(copy, q) {
        return Some((Class::PackPermute, "transpose.bytes", format!("{words}, {place}")));
    }
    for d in 1..rows.max(cols) {
        let ways: [(&str, Source); 8] = [
            ("column r is row r + {} of the codes", &|c, r| code(r + d, c)),
            ("column r is row r − {} of the codes", &|c, r| r.checked_sub(d).and_then(|r| code(r, c))),
            ("column r is row r xor {} of the codes", &|c, r| code(r ^ d, c)),
            ("column r is row r + {} of the codes, wrapped", &|c, r| code((r + d) % rows, c)),
            ("row c is column c + {} of the codes", &|c, r| code(r, c + d)),
            ("row c is column c − {} of the codes", &|c, r| c.checked_sub(d).and_then(|c| code(r, c))),
            ("row c is column c xor {} of the codes", &|c, r| code(r, c ^ d)),
            ("row c is column c + {} of the codes, wrapped", &|c, r| code(r, (c + d) % cols)),
        ];
        if let Some((words, _)) = ways.iter().find(|(_, of)| made(*of)) {
            return Some((Class::Addressing, "transpose.index", format!("{}, {place}", words.replace("{}", &d.to_string()))));
        }
    }
    if let Some(words) = copy_places::explain(copy, q, &wrong) {
        return Some((Class::Addressing, "transpose.place", format!("{words}, {place}")));
    }
    if let Some((class, variant, words)) = copy_tiles::explain(copy, q, &wrong) {
        return Some((class, variant, format!("in the transposed copy, {words}")));
    }
    let first = copy[wrong[0]];
    if wrong.iter().all(|at| copy[*at] == first) {
        return Some((Class::SilentSkip, "transpose.part", format!("codes are {first:#x} everywhere {place}: not written")));
    }
    // Codes of the right values, made otherwise.
    let f = q.format();
    let y = |r: usize, c: usize| f64::from(x.data()[r * cols + c]) / q.affine(q.scale_index(r, c)).unit;
    let encode = |y: f64, by: Rounding| Some(f.encode(y, by, Overflow::Saturate) as u8);
    if made(&|c, r| encode(y(r, c), Rounding::TowardZero)) {
        return Some((Class::Rounding, "transpose.toward_zero", format!("codes are cut toward zero {place}")));
    }
    // As the codes of a cast of their own: what makes all of them, right ones too, comes before a factor that is fitted to the wrong ones.
    let mut turned = q.clone().into_parts();
    (0..copy.len()).for_each(|at| turned.codes[at % rows * cols + at / rows] = copy[at]);
    let turned = QTensor::new(turned).ok()?;
    let cast = encoders::Cast::of(x, &turned)?;
    if let Some((class, _, words)) = cast.encoded().or_else(|| cast.tied(codes)) {
        let variant = if class == Class::Rounding { "transpose.rounding" } else { "transpose.encoder" };
        return Some((class, variant, format!("in the transposed copy, by rows and columns of the codes: {words}")));
    }
    // One factor between the scale of the copy's codes and the one stored.
    let mut by: Vec<f64> = few
        .iter()
        .map(|at| f.decode(u32::from(copy[*at])) / y(at % rows, at / rows))
        .filter(|by| by.is_finite() && *by != 0.0)
        .collect();
    by.sort_by(f64::total_cmp);
    let middle = *by.get(by.len() / 2)?;
    let near = (0..=256).map(|n| middle * (1.0 + (f64::from(n) - 128.0) / 4096.0));
    let share = |by: f64| {
        few.iter().filter(|at| encode(by * y(*at % rows, *at / rows), Rounding::NearestEven) == Some(copy[**at])).count()
    };
    let best = near.max_by_key(|by| share(*by))?;
    if made(&|c, r| encode(best * y(r, c), Rounding::NearestEven)) {
        return Some((
            Class::StaleState,
            "transpose.scale",
            format!("codes are made with {:.4} times scale_inv {place}", 1.0 / best),
        ));
    }
    // Codes of other values, near these.
    let of = |at: &usize| (f.decode(u32::from(copy[*at])), y(at % rows, at / rows));
    let pairs: Vec<(f64, f64)> = wrong.iter().map(of).filter(|(v, y)| v.is_finite() && y.is_finite()).collect();
    let r = correlation(&pairs);
    let far = pairs.iter().filter(|(v, y)| (v - y).abs() > 0.5 * y.abs()).count();
    // One block of the copy is others', and none of them moved within it.
    let run = |v: &[bool]| v.windows(2).filter(|w| w[0] != w[1]).count() <= 2;
    let inside: Vec<usize> = (0..copy.len()).filter(|at| is_row[at / rows] && is_col[at % rows]).collect();
    let sorted = |of: &dyn Fn(usize) -> u8| {
        let mut all: Vec<u8> = inside.iter().map(|at| of(*at)).collect();
        all.sort_unstable();
        all
    };
    let block = run(&is_row) && run(&is_col) && 2 * inside.len() <= copy.len() && 10 * wrong.len() >= 9 * inside.len();
    if pairs.len() >= FOREIGN && block && r.abs() < 3.0 / (pairs.len() as f64).sqrt() {
        let moved = sorted(&|at| copy[at]) == sorted(&|at| codes[at % rows * cols + at / rows]);
        return (!moved).then(|| {
            let words =
                format!("codes have nothing to do with these values {place}: memory that was never written, or another's");
            (Class::SilentSkip, "transpose.foreign", words)
        });
    }
    if !(pairs.len() >= MANY && r > ALIKE && far >= LEAST) {
        let (words, down, across) = cast.of_near_values()?;
        let run = |r: Range<usize>| format!("{} … {}", r.start, r.end - 1);
        let words = format!("{words}, in rows {}, columns {} of the transposed copy", run(across), run(down));
        return Some((Class::StaleState, "transpose.values", words));
    }
    Some({
        let words = format!(
            "codes are near those of these values and not theirs (correlation {r:.3}): of the tensor before an update, {place}"
        );
        (Class::StaleState, "transpose.values", words)
    })
}

/// Tiles that are moved to their place in the copy, and not transposed within; what a short tile lacks there nobody knows.
fn untransposed(copy: &[u8], q: &QTensor, wrong: &[usize]) -> Option<String> {
    let (rows, cols, codes) = (q.rows(), q.cols(), q.codes());
    [32usize, 64, 128].into_iter().find_map(|unit| {
        let (mut known, mut hit) = (0usize, 0usize);
        for at in wrong {
            let (c, r) = (at / rows, at % rows);
            let (c0, r0) = (c / unit * unit, r / unit * unit);
            // Row r0 + (c − c0), column c0 + (r − r0) of the codes.
            let (row, col) = (r0 + c - c0, c0 + r - r0);
            if row < rows && col < cols {
                known += 1;
                hit += usize::from(codes[row * cols + col] == copy[*at]);
            }
        }
        let most = 2 * known >= wrong.len() && known >= LEAST && hit as f64 >= SHARE * known as f64;
        most.then(|| format!("a tile of {unit}×{unit} is moved to its place and not transposed within"))
    })
}

/// Tiles that are transposed within and stored at their own place in the copy, not at the mirrored one; where that is outside of the codes nobody knows.
fn not_mirrored(copy: &[u8], q: &QTensor, wrong: &[usize]) -> Option<String> {
    let (rows, cols, codes) = (q.rows(), q.cols(), q.codes());
    [8usize, 16, 32, 64, 128].into_iter().find_map(|unit| {
        let (mut known, mut hit) = (0usize, 0usize);
        for at in wrong {
            let (c, r) = (at / rows, at % rows);
            let (c0, r0) = (c / unit * unit, r / unit * unit);
            // The tile of the codes at row c0, column r0.
            let (row, col) = (c0 + r - r0, r0 + c - c0);
            if row < rows && col < cols {
                known += 1;
                hit += usize::from(codes[row * cols + col] == copy[*at]);
            }
        }
        let most = 2 * known >= wrong.len() && known >= 2 * LEAST && hit as f64 >= SHARE * known as f64;
        most.then(|| {
            format!("tiles of {unit}×{unit} are transposed within and stored at their own place (i, j), not at (j, i)")
        })
    })
}

/// The last tiles, which are short, whose elements are read from their buffer by another pitch than it was filled with; whole tiles are right.
fn pitched(copy: &[u8], q: &QTensor, wrong: &[usize]) -> Option<String> {
    let (rows, cols, codes) = (q.rows(), q.cols(), q.codes());
    let sides = || (2..8).map(|p| 1usize << p);
    sides().flat_map(|h| sides().map(move |w| (h, w))).find_map(|(h, w)| {
        // Row and column of the tile's corner, and how much of the tile is there.
        let corner = |at: usize| (at % rows / h * h, at / rows / w * w);
        let valid = |(r0, c0): (usize, usize)| (h.min(rows - r0), w.min(cols - c0));
        let is_short = |at: &usize| valid(corner(*at)) != (h, w);
        (rows >= h && cols >= w && wrong.iter().all(is_short)).then_some(())?;
        let short: Vec<usize> = (0..copy.len()).filter(is_short).collect();
        // A buffer as wide as the tile or as what is there of it; read as if it were as wide as the other, or the other way up.
        [false, true].into_iter().flat_map(|turned| (0..8).map(move |n| (turned, n))).find_map(|(turned, n)| {
            let pitches = |(vr, vc): (usize, usize)| (if n & 1 == 0 { vc } else { w }, [vr, vc, h, w][n / 2]);
            let source = |at: &usize| {
                let (r0, c0) = corner(*at);
                let (vr, vc) = valid((r0, c0));
                let (i, j) = (at % rows - r0, at / rows - c0);
                let (filled, read) = pitches((vr, vc));
                let place = if turned { j * read + i } else { i * read + j };
                let (i, j) = (place / filled, place % filled);
                (i < vr && j < vc).then(|| codes[(r0 + i) * cols + c0 + j])
            };
            // What is not there nobody knows. Most is known, and what is right in such a tile is made too.
            let (mut known, mut hit) = (0usize, 0usize);
            for at in &short {
                if let Some(code) = source(at) {
                    (known, hit) = (known + 1, hit + usize::from(code == copy[*at]));
                }
            }
            let made = wrong.iter().filter(|at| source(at) == Some(copy[**at])).count();
            let most = |n: usize, of: usize| n as f64 >= SHARE * of as f64;
            (2 * known >= short.len() && most(hit, known) && 2 * made >= wrong.len() && made >= 2 * LEAST).then(|| {
                let (vr, vc) = valid(corner(short[short.len() - 1]));
                let (filled, read) = pitches((vr, vc));
                let order = if turned { "column by column" } else { "row by row" };
                format!(
                    "the last tile of {h}×{w} codes has {vr} × {vc} of them, in a buffer of rows that are {filled} apart, which is read {order} \
                     with a pitch of {read}"
                )
            })
        })
    })
}

/// Pearson's. NaN where one side is constant.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| pairs.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |f: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|p| f(p.0 - x, p.1 - y)).sum::<f64>();
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}

/// A tile of the transposed copy that is not transposed, or not written.
pub fn tile(copy: &[u8], right: &QTensor, wrong: &[usize], (rows, cols): (usize, usize)) -> Option<Named> {
    let (mut is_row, mut is_col) = (vec![false; rows], vec![false; cols]);
    wrong.iter().for_each(|at| (is_row[at / cols], is_col[at % cols]) = (true, true));
    let span = |v: &[bool]| (v.iter().position(|x| *x).unwrap_or(0), v.iter().rposition(|x| *x).unwrap_or(0) + 1);
    let place = format!("rows {}, columns {} of the transposed copy", lines(&is_row), lines(&is_col));
    if wrong.iter().all(|at| copy[*at] == 0) {
        // What is written may have the shorter place.
        let written: Vec<usize> = (0..copy.len()).filter(|at| copy[*at] != 0).collect();
        let all = !is_row.contains(&false) && !is_col.contains(&false);
        if let Some(inside) = all.then(|| whereabouts::place((rows, cols), ["rows", "columns"], &written, wrong)).flatten() {
            let words = format!("the transposed copy is 0, not written, but for what is{inside}");
            return Some((Class::SilentSkip, "transpose.part", words.replace("is, in", "is in")));
        }
        return Some((Class::SilentSkip, "transpose.part", format!("{place} are 0: not written")));
    }
    // The corner of the tile is the largest power of two that both starts are multiples of.
    let ((r0, r1), (c0, c1)) = (span(&is_row), span(&is_col));
    for size in [4usize, 8, 16, 32, 64, 128] {
        let (r, c) = (r0 / size * size, c0 / size * size);
        if r1 > r + size || c1 > c + size || r + size > rows || c + size > cols {
            continue;
        }
        let plain = |at: &usize| {
            let (i, j) = (at / cols - r, at % cols - c);
            copy[*at] == right.codes()[(r + j) * cols + c + i]
        };
        if wrong.iter().all(plain) {
            let words = format!("a {size}×{size} tile at row {r}, column {c} of the transposed copy is not transposed within");
            return Some((Class::Addressing, "transpose.tile", words));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;

    #[test]
    fn copies_are_told_by_where_their_codes_are_from() {
        let data = (0..48 * 64).map(|at: u32| ((at.wrapping_mul(0x9E37_79B9) >> 8) as f32 / 8_388_608.0 - 1.0) * 3.0).collect();
        let x = Tensor::new(crate::Format::F32, 48, 64, data).unwrap();
        let q = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        let right = |c: usize, r: usize| q.codes()[r * 64 + c];
        let found = |of: &dyn Fn(usize, usize) -> u8| {
            let copy: Vec<u8> = (0..48 * 64).map(|at| of(at / 48, at % 48)).collect();
            explain(&copy, &x, &q).map(|f| (f.1, f.2)).unwrap_or_default()
        };
        assert_eq!(found(&right), Default::default());
        let (name, words) = found(&|c, r| if c >= 32 { right(c, r ^ 8) } else { right(c, r) });
        assert!(name == "transpose.index" && words.contains("row r xor 8") && words.contains("rows 32 … 63"), "{words}");
        assert_eq!(found(&|c, r| q.codes()[c * 48 + r]).0, "transpose.flat");
        let tiles = |c: usize, r: usize| {
            let (row, col) = (r / 32 * 32 + c % 32, c / 32 * 32 + r % 32);
            if row < 48 { right(col, row) } else { right(c, r) }
        };
        let (_, words) = found(&tiles);
        assert!(words.contains("a tile of 32×32 is moved to its place and not transposed within"), "{words}");
        // Tile (i, j) of the copy is tile (i, j) of the codes, transposed; the last tiles of 48 rows are short.
        let stayed = |unit: usize| {
            move |c: usize, r: usize| {
                let (row, col) = (c / unit * unit + r % unit, r / unit * unit + c % unit);
                if row < 48 { right(col, row) } else { 0x11 }
            }
        };
        let (name, words) = found(&stayed(16));
        assert!(
            name == "transpose.tile" && words.contains("tiles of 16×16 are transposed within and stored at their own"),
            "{words}"
        );
        let near = stayed(16);
        let (_, words) = found(&|c, r| if (c + r) % 2 == 0 { near(c, r) } else { near(c, r) ^ 1 });
        assert!(!words.contains("at their own place"), "half of the codes are others: {words}");
        assert_eq!(found(&|c, r| if r < 16 { 0x7f } else { right(c, r) }).0, "transpose.part");
        let y = |c: usize, r: usize| f64::from(x.data()[r * 64 + c]) / q.affine(0).unit;
        let noise = |c: usize, r: usize| f64::from((c * 48 + r) as u32 % 97) / 97.0 - 0.5;
        let before = |c: usize, r: usize| {
            q.format().encode(y(c, r) + 60.0 * noise(c, r), Rounding::NearestEven, Overflow::Saturate) as u8
        };
        assert_eq!(found(&before).0, "transpose.values");
        // Rows of the copy are columns of the codes: 16 · 32 of 48 · 64.
        let block = |c: usize, r: usize| (32..48).contains(&c) && r < 32;
        let bytes = |c: usize, r: usize| (((c * 48 + r) as u32).wrapping_mul(0x85EB_CA6B) >> 24) as u8 & 0xfe;
        let (name, words) = found(&|c, r| if block(c, r) { bytes(c, r) } else { right(c, r) });
        assert!(name == "transpose.foreign" && words.contains("in rows 32 … 47, columns 0 … 31"), "{name} {words}");
        let other =
            |c: usize, r: usize| q.format().encode(600.0 * noise(c, r), Rounding::NearestEven, Overflow::Saturate) as u8;
        assert_eq!(found(&other).0, "", "another tensor is none of an earlier step");
        // A code up or down is no other value.
        let beside = |c: usize, r: usize| match right(c, r) {
            code if code & 0x7f == 0 || code & 0x7f >= 0x7e => code,
            code if (c * 7 + r * 13) % 5 < 2 => code + 1,
            code => code - 1,
        };
        assert_eq!(found(&beside).0, "", "codes beside the right ones are of the same values");
        let scaled = |c: usize, r: usize| q.format().encode(0.8 * y(c, r), Rounding::NearestEven, Overflow::Saturate) as u8;
        let (name, words) = found(&scaled);
        assert!(name == "transpose.scale" && words.contains("1.25"), "{words}");
        // Beside one large value the others have codes of small numbers: near one another, and still of an earlier step.
        let mut data: Vec<f32> = x.data().iter().map(|v| v / 150.0).collect();
        data[7] = 3.0;
        let small = Tensor::new(crate::Format::F32, 48, 64, data).unwrap();
        let q = "te_current".parse::<Recipe>().unwrap().quantize(&small).unwrap().q;
        let y = |c: usize, r: usize| f64::from(small.data()[r * 64 + c]) / q.affine(0).unit;
        let early =
            |c: usize, r: usize| q.format().encode(y(c, r) + 0.9 * noise(c, r), Rounding::NearestEven, Overflow::Saturate);
        let copy: Vec<u8> = (0..48 * 64).map(|at| early(at / 48, at % 48) as u8).collect();
        assert_eq!(explain(&copy, &small, &q).map(|f| f.1), Some("transpose.values"));
    }

    /// A tile may lie anywhere: here most are in neither the first rows nor the first columns.
    #[test]
    fn tiles_that_are_moved_and_not_transposed_are_told_wherever_they_lie() {
        let data =
            (0..128 * 160).map(|at: u32| ((at.wrapping_mul(0x9E37_79B9) >> 8) as f32 / 8_388_608.0 - 1.0) * 3.0).collect();
        let x = Tensor::new(crate::Format::F32, 128, 160, data).unwrap();
        let q = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        // Copy (c, r) of a tile that was moved is code (r0 + c − c0, c0 + r − r0).
        let moved = |at: usize| {
            let (c, r) = (at / 128, at % 128);
            q.codes()[(r / 32 * 32 + c % 32) * 160 + c / 32 * 32 + r % 32]
        };
        let words = explain(&(0..128 * 160).map(moved).collect::<Vec<u8>>(), &x, &q).unwrap().2;
        assert!(words.contains("a tile of 32×32 is moved to its place and not transposed within"), "{words}");
    }

    /// 24 rows in tiles of 16: of the last ones 8 are there. Each buffer is read with the other side's pitch.
    #[test]
    fn a_short_tile_that_is_read_with_another_pitch_is_told() {
        let data = (0..24 * 48).map(|at: u32| ((at.wrapping_mul(0x9E37_79B9) >> 8) as f32 / 8_388_608.0 - 1.0) * 3.0).collect();
        let x = Tensor::new(crate::Format::F32, 24, 48, data).unwrap();
        let q = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        let told = |place: &dyn Fn(usize, usize) -> usize, from: usize| {
            let copy: Vec<u8> = (0..48 * 24)
                .map(|at| {
                    let (c, r) = (at / 24, at % 24);
                    if r < 16 || c < from {
                        return q.codes()[r * 48 + c];
                    }
                    let place = place(r - 16, c % 16);
                    q.codes()[(16 + place / 16) * 48 + c / 16 * 16 + place % 16]
                })
                .collect();
            explain(&copy, &x, &q).map(|f| (f.1, f.2)).unwrap_or_default()
        };
        let (name, words) = told(&|i, j| j * 8 + i, 0);
        assert!(name == "transpose.tile" && words.contains("has 8 × "), "{name}: {words}");
        assert!(words.contains("16 apart, which is read column by column with a pitch of 8, in rows 0 … 47"), "{words}");
        let (name, words) = told(&|i, j| i * 8 + j, 0);
        assert!(name == "transpose.tile" && words.contains("read row by row with a pitch of 8"), "{name}: {words}");
        // Some short tiles are right, and numbers of no pitch.
        assert_ne!(told(&|i, j| j * 8 + i, 32).0, "transpose.tile");
        assert_ne!(told(&|i, j| (i * 37 + j * 11) % 128, 0).0, "transpose.tile");
    }

    #[test]
    fn a_correlation_is_pearsons() {
        let of = |pairs: &[(f64, f64)]| correlation(pairs);
        let near = |x: f64, y: f64| assert!((x - y).abs() < 1e-12, "{x} {y}");
        near(of(&[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)]), 1.0);
        near(of(&[(1.0, -10.0), (2.0, -20.0), (4.0, -40.0)]), -1.0);
        // Deviations −2, 0, 2 and −1, 2, −1 times numbers of other sizes.
        near(of(&[(1.0, 1.0), (3.0, 4.0), (5.0, 1.0)]), 0.0);
        // Σxy = 4, Σxx = 8, Σyy = 6: 4/√48.
        near(of(&[(0.0, 0.0), (2.0, 3.0), (4.0, 2.0), (2.0, 3.0)]), 4.0 / 48f64.sqrt());
    }

    /// Each rule of an index by its definition: a copy that follows it where it can, and is right elsewhere, has its words.
    #[test]
    fn every_index_of_a_copy_is_told_apart_from_the_others() {
        let (rows, cols, d) = (24usize, 40usize, 3usize);
        let data = (0..rows * cols).map(|at| (((at as u32).wrapping_mul(0x9E37_79B9) >> 8) as f32 / 8_388_608.0 - 1.0) * 3.0);
        let x = Tensor::new(crate::Format::F32, rows, cols, data.collect()).unwrap();
        let q = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        type Rule<'r> = (&'r str, &'r dyn Fn(usize, usize) -> (usize, usize));
        let rules: [Rule; 8] = [
            ("column r is row r + 3 of the codes, in", &|r, c| (r + d, c)),
            ("column r is row r − 3 of the codes, in", &|r, c| (r.wrapping_sub(d), c)),
            ("column r is row r xor 3 of the codes, in", &|r, c| (r ^ d, c)),
            ("column r is row r + 3 of the codes, wrapped, in", &|r, c| ((r + d) % rows, c)),
            ("row c is column c + 3 of the codes, in", &|r, c| (r, c + d)),
            ("row c is column c − 3 of the codes, in", &|r, c| (r, c.wrapping_sub(d))),
            ("row c is column c xor 3 of the codes, in", &|r, c| (r, c ^ d)),
            ("row c is column c + 3 of the codes, wrapped, in", &|r, c| (r, (c + d) % cols)),
        ];
        for (words, of) in rules {
            let code = |c: usize, r: usize| match of(r, c) {
                (row, col) if row < rows && col < cols => q.codes()[row * cols + col],
                _ => q.codes()[r * cols + c],
            };
            let copy: Vec<u8> = (0..cols).flat_map(|c| (0..rows).map(move |r| (c, r))).map(|(c, r)| code(c, r)).collect();
            let (_, name, said) = explain(&copy, &x, &q).unwrap();
            assert!(name == "transpose.index" && said.contains(words), "{words}: {said}");
        }
    }

    /// Of memory that was never written hardly a code is right by chance: a block of which two in five are is something else.
    #[test]
    fn a_block_whose_codes_are_often_right_is_not_anothers() {
        let data = (0..48 * 64).map(|at: u32| ((at.wrapping_mul(0x9E37_79B9) >> 8) as f32 / 8_388_608.0 - 1.0) * 3.0).collect();
        let x = Tensor::new(crate::Format::F32, 48, 64, data).unwrap();
        let q = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        let bytes = |at: usize| ((at as u32).wrapping_mul(0x85EB_CA6B) >> 24) as u8 & 0xfe;
        let told = |of_five: usize| {
            let code = |at: usize| {
                let (c, r) = (at / 48, at % 48);
                let block = (32..48).contains(&c) && r < 32 && (c * 7 + r * 13) % 5 < of_five;
                if block { bytes(at) } else { q.codes()[r * 64 + c] }
            };
            explain(&(0..48 * 64).map(code).collect::<Vec<u8>>(), &x, &q).map(|f| f.1)
        };
        assert_eq!(told(5), Some("transpose.foreign"));
        assert_ne!(told(3), Some("transpose.foreign"));
    }
}
