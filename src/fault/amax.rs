//! What the amax of every block was taken over, where a recipe makes a scale of it. The right kernel computes the scales again, from values changed
//! as a wrong amax would see them.
//!
//! ```text
//! scales of f(x) by the right kernel  =  the scales that were written, all of them  ──►  amax is that of f(x)
//! ```

use super::diagnose::Finding;
use super::predict::Scene;
use super::solve::address::gcd;
use super::{Class, amax_rows, amax_tiles, edit, inject};
use crate::job::{Data, Job, Operand};
use crate::op::Op;
use crate::order::{Order as _, nth};
use crate::tensor::round_to;
use crate::{Format, QTensor, Tensor};

/// Elements that are cast for all changes together, at most.
const WORK: usize = 1 << 26;

/// What an amax sees at (i, j) of the tensor, 0 where it sees nothing.
type Sees = Box<dyn Fn(&Tensor, usize, usize) -> f32>;

struct Change {
    words: String,
    of: Sees,
}

fn change(words: impl Into<String>, of: impl Fn(&Tensor, usize, usize) -> f32 + 'static) -> Change {
    Change { words: words.into(), of: Box::new(of) }
}

/// One that sees a value by its place in the block.
fn place(words: String, tile: (usize, usize), sees: impl Fn(usize, usize) -> bool + 'static) -> Change {
    change(words, move |x, i, j| if sees(i % tile.0, j % tile.1) { x.row(i)[j] } else { 0.0 })
}

/// What is taken over too few elements of blocks, over rounded ones or over one sign, the likeliest first.
fn changes((rows, cols): (usize, usize), tile: (usize, usize)) -> Vec<Change> {
    let (height, width) = tile;
    let mut all = vec![
        change("amax is the largest value, not the largest magnitude", |x, i, j| x.row(i)[j].max(0.0)),
        change("amax is that of the negative values alone", |x, i, j| x.row(i)[j].min(0.0)),
    ];
    for (odd, which) in [(1, "odd"), (0, "even")] {
        let words =
            format!("amax does not see negative values in {which} columns: of each pair the sign of one is not taken off");
        all.push(change(words, move |x, i, j| if j % 2 == odd { x.row(i)[j].max(0.0) } else { x.row(i)[j] }));
    }
    for f in [Format::Bf16, Format::F16] {
        let words = format!("amax is rounded to {f} before the scale is taken from it");
        // What f16 cannot hold would make the scales of anything.
        let rounded = move |x: f32| Some(round_to(f, x)).filter(|y| y.is_finite()).unwrap_or(x);
        all.push(change(words, move |x, i, j| rounded(x.row(i)[j])));
    }
    let cut = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
    all.push(change("amax is cut to bf16 before the scale is taken from it", move |x, i, j| cut(x.row(i)[j])));
    all.extend(further((rows, cols), tile));
    for step in [2usize, 4, 8].into_iter().filter(|s| *s < width) {
        for first in 0..step {
            let words = format!("amax is over every {} element of a block alone, from element {first} on", nth(step));
            all.push(place(words, tile, move |_, c| c % step == first));
        }
    }
    // Of each vector some lanes: the last one is forgotten, or some are asked for.
    for lanes in [4usize, 8, 16, 32].into_iter().filter(|l| *l < width) {
        for one in 0..lanes {
            let words = format!("amax does not see element {one} of each {lanes} of a block");
            all.push(place(words, tile, move |_, c| c % lanes != one));
        }
        for few in [2, lanes / 2].into_iter().skip(usize::from(lanes == 4)) {
            let words = |end| format!("amax is over the {end} {few} of each {lanes} elements of a block alone");
            all.push(place(words("first"), tile, move |_, c| c % lanes < few));
            all.push(place(words("last"), tile, move |_, c| c % lanes >= lanes - few));
        }
    }
    let roundest = |n: usize| {
        let mut counts: Vec<usize> = (1..n).collect();
        counts.order_by_key(|m| n / gcd(*m, n));
        counts
    };
    // A loop of whole steps that forgets the rest comes before any other number of elements.
    let mut steps: Vec<(usize, usize)> = [512usize, 256, 128, 64, 32].map(|s| (width / s * s, s)).to_vec();
    steps.retain(|(m, _)| *m > 0 && *m < width);
    steps.dedup_by_key(|(m, _)| *m);
    for (m, step) in steps.iter().copied() {
        let words = format!(
            "amax is over the first {m} of the {width} elements of a block alone: whole steps of {step}, and the last {} are in no step",
            width - m
        );
        all.push(place(words, tile, move |_, c| c < m));
    }
    for m in roundest(width) {
        let words = |end| format!("amax is over the {end} {m} of the {width} elements of a block alone");
        if steps.iter().all(|(of, _)| *of != m) {
            all.push(place(words("first"), tile, move |_, c| c < m));
        }
        all.push(place(words("last"), tile, move |_, c| c >= width - m));
    }
    // All rows in one block are no block's rows.
    for m in roundest(if height < rows { height } else { 1 }) {
        let words = |end| format!("amax is over the {end} {m} of the {height} rows of a block alone");
        all.push(place(words("first"), tile, move |r, _| r < m));
        all.push(place(words("last"), tile, move |r, _| r >= height - m));
    }
    all
}

/// Where an amax reaches beyond its block.
fn further((rows, cols): (usize, usize), (height, width): (usize, usize)) -> Vec<Change> {
    let most = |x: &Tensor, i: usize, js: std::ops::Range<usize>| x.row(i)[js].iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let mut all = Vec::new();
    if height != 1 || width >= cols {
        return all;
    }
    let start = move |j: usize| j.is_multiple_of(width);
    if rows > 1 && width > 1 {
        // A square tile in shared memory, read across instead of along: places beyond the tensor hold 0.
        let words = format!("amax of row r of each tile of {width}×{width} is that of its column r");
        let of = move |x: &Tensor, i: usize, j: usize| {
            let c = j + i % width;
            let own = |r: usize| x.row(r)[c].abs();
            if start(j) && c < cols { (i / width * width..rows).take(width).map(own).fold(0.0, f32::max) } else { 0.0 }
        };
        all.push(change(words, of));
    }
    let last = cols / width * width;
    if last < cols {
        let words = format!(
            "amax of the last, short group of a row is over the last {width} columns, {} of them of the group before",
            width - (cols - last)
        );
        let of = move |x: &Tensor, i: usize, j: usize| if j == last { most(x, i, cols - width..cols) } else { x.row(i)[j] };
        all.push(change(words, of));
    }
    if last < cols && last > 0 {
        let more = width - (cols - last);
        let words = format!(
            "amax of the last, short group of a row also covers columns 0 … {} of the row: its {width} lanes count columns modulo {cols}",
            more - 1
        );
        let of = move |x: &Tensor, i: usize, j: usize| {
            if j == last { most(x, i, 0..more).max(x.row(i)[j].abs()) } else { x.row(i)[j] }
        };
        all.push(change(words, of));
    }
    let before =
        move |x: &Tensor, i: usize, j: usize| if start(j) { most(x, i, j.saturating_sub(width)..j + 1) } else { x.row(i)[j] };
    all.push(change("amax of a group also covers the group before it", before));
    let behind = move |x: &Tensor, i: usize, j: usize| {
        if start(j) { most(x, i, (j + width).min(cols)..(j + 2 * width).min(cols)).max(x.row(i)[j].abs()) } else { x.row(i)[j] }
    };
    all.push(change("amax of a group also covers the group behind it", behind));
    if rows > 1 {
        let of = move |x: &Tensor, i: usize, j: usize| x.row(i)[j].abs().max(x.row(i.saturating_sub(1))[j].abs());
        all.push(change("amax of a group also covers that of the row before", of));
        let of = move |x: &Tensor, i: usize, j: usize| x.row(i)[j].abs().max(x.row((i + 1).min(rows - 1))[j].abs());
        all.push(change("amax of a group also covers that of the row behind", of));
    }
    all
}

/// Groups of a window whose columns take turns: of m groups the p-th sees the columns of equal (c / w) mod m.
fn turns(cols: usize, (height, width): (usize, usize)) -> Vec<Change> {
    let across = cols / width.max(1);
    let windows = (2..=across.min(TURNS)).filter(|m| height == 1 && width > 1 && cols.is_multiple_of(m * width));
    let runs = |m: usize| {
        (0..)
            .map(|p| 1usize << p)
            .take_while(move |w| *w < width)
            .filter(move |w| width.is_multiple_of(*w))
            .map(move |w| (m, w))
    };
    windows
        .flat_map(runs)
        .map(|(m, w)| {
            let words = format!(
                "amax of group p of each {m} in a row is over columns c of equal (c / {w}) mod {m} = p of all their {} columns",
                m * width
            );
            change(words, move |x, i, j| {
                let (first, p, t) = (j / (m * width) * m * width, j / width % m, j % width);
                x.row(i)[first + t / w * w * m + p * w + t % w]
            })
        })
        .collect()
}

/// Groups of such a window, at most.
const TURNS: usize = 16;

/// Bits that a wrong scale tells: which number it is, or which power of two.
const SCALE: f64 = 12.0;
const EXPONENT: f64 = 1.0;
/// Bits that are needed beyond those of the choice of one change.
const NEED: f64 = 6.0;

/// What amax was taken over, in words, where the right kernel's scales of that are those that were written.
pub fn over(scene: &Scene) -> Option<String> {
    let job = scene.evidence.job;
    let Data::Quantized(q) = &scene.evidence.output.parts.first()?.d else { return None };
    let Operand::High(x) = edit::operand(job, edit::Which::A)? else { return None };
    matches!(job.op, Op::Cast | Op::CastTranspose).then_some(())?;
    let tile = q.granularity().tile(x.rows(), x.cols());
    let most = WORK / x.data().len().max(1);
    let (actual, right) = scene.beside("scale_inv")?;
    let told: f64 = actual.iter().zip(right).filter(|(a, r)| a != r).map(|(a, r)| scale_tells(a / r)).sum();
    let all = changes((x.rows(), x.cols()), tile);
    let need = NEED + (all.len() as f64).log2();
    // Whether its scales are these; refused by the first rows where blocks of one row do not know the others.
    let is_by = |c: &Change, need: f64| {
        let seen = seen_by(x, c);
        seen != x.data() && told + clipped(x, q, &seen) >= need && scales(job, x, seen).is_some_and(|s| same(&s, q))
    };
    let is = |c: &Change| is_by(c, need);
    let all = telling(all, x, q, actual, right);
    let asked = all.len().min(most);
    if let Some(found) = all[..asked].iter().find(|c| is(c)) {
        return Some(found.words.clone());
    }
    let rare = turns(x.cols(), tile);
    let need_of_rare = need + (rare.len().max(1) as f64).log2();
    let rare = telling(rare, x, q, actual, right);
    if let Some(found) = rare.iter().take(most.saturating_sub(asked)).find(|c| is_by(c, need_of_rare)) {
        return Some(found.words.clone());
    }
    // In some rows of blocks alone, where the others are right: a warp of several, a tile.
    let (across, n) = (q.granularity().grid(x.rows(), x.cols()).1.max(1), actual.len());
    let wrong: Vec<usize> = (0..n).filter(|g| actual[*g] != right[*g]).map(|g| g / across).collect();
    let some = amax_rows::some(&wrong, n / across);
    let in_some = |(some, c): &(&amax_rows::SomeRows, &Change)| {
        let seen: Vec<f32> = (0..x.data().len())
            .map(|at| (at / x.cols(), at % x.cols()))
            .map(|(i, j)| if some.has(i / tile.0) { (c.of)(x, i, j) } else { x.row(i)[j] })
            .collect();
        let need = need + amax_rows::BITS;
        seen != x.data() && told + clipped(x, q, &seen) >= need && scales(job, x, seen).is_some_and(|s| same(&s, q))
    };
    let pairs = some.iter().flat_map(|s| all.iter().map(move |c| (s, c)));
    pairs.take(most - asked).find(in_some).map(|(some, c)| format!("{}, in {}", c.words, some.words()))
}

/// Wrong blocks that are asked first, elements of them all together, and elements that all changes are asked of in one block, at most.
const FIRST: usize = 32;
const ELEMENTS: usize = 1 << 16;
const ASKED: usize = 1 << 29;

/// The changes that see another largest magnitude in the first wrong blocks: a scale of the block's own amax is wrong for no other.
fn telling(mut all: Vec<Change>, x: &Tensor, q: &QTensor, actual: &[f64], right: &[f64]) -> Vec<Change> {
    let ((height, width), across) = (q.granularity().tile(x.rows(), x.cols()), q.granularity().grid(x.rows(), x.cols()).1);
    let size = height * width;
    if q.level().is_some() || size > ELEMENTS || all.len() * size > ASKED {
        return all;
    }
    let first = FIRST.min(ELEMENTS / size.max(1));
    let wrong: Vec<usize> = (0..actual.len()).filter(|g| actual[*g] != right[*g]).take(first).collect();
    let other = |c: &Change, g: usize| {
        let (mut own, mut seen) = (0f32, 0f32);
        for i in (g / across * height..x.rows()).take(height) {
            for j in (g % across * width..x.cols()).take(width) {
                (own, seen) = (own.max(x.row(i)[j].abs()), seen.max((c.of)(x, i, j).abs()));
            }
        }
        own != seen
    };
    all.retain(|c| wrong.iter().all(|g| other(c, *g)));
    all
}

fn scale_tells(ratio: f64) -> f64 {
    if ratio > 0.0 && ratio.log2().fract() == 0.0 { EXPONENT } else { SCALE }
}

/// Bits that elements tell which saturate: none of them is seen, as chance would have it where each is seen as often as any.
fn clipped(x: &Tensor, q: &QTensor, seen: &[f32]) -> f64 {
    let global = q.global_scale_inv().map_or(1.0, f64::from);
    let top = |at: usize| {
        f64::from(q.scale_inv()[q.scale_index(at / q.cols(), at % q.cols())]) * global * q.format().max_finite() * (1.0 + 1e-5)
    };
    let beyond = (0..seen.len()).filter(|at| f64::from(x.data()[*at].abs()) > top(*at)).count() as f64;
    let unseen = seen.iter().zip(x.data()).filter(|(s, v)| **s == 0.0 && **v != 0.0).count() as f64 / seen.len() as f64;
    if unseen > 0.0 { -beyond * unseen.log2() } else { 0.0 }
}

/// Above this chance, a part is a guess.
const LIKELY: f64 = 0.05;
/// Other parts that a guess is told with.
const OTHERS: usize = 4;

/// A part of a tensor that an amax may have been taken over.
pub struct Part {
    pub variant: &'static str,
    pub words: String,
    /// The part alone.
    of: String,
    /// Every so manieth column, and the first of them.
    step: Option<(usize, usize)>,
    /// How likely chance puts this amax into one of the parts of its kind, and all larger elements outside of it.
    chance: f64,
}

/// The parts of a tensor whose amax is exactly this one, which misses the largest elements: that which chance makes least first. A part that is
/// nearly everything misses few elements by chance, one that is small misses any.
pub fn parts_of(x: &Tensor, amax: f32) -> Vec<Part> {
    let (rows, cols, data) = (x.rows(), x.cols(), x.data());
    let larger: Vec<usize> = (0..data.len()).filter(|at| data[*at].abs() > amax).collect();
    let Some(first) = larger.first() else { return Vec::new() };
    let unseen = format!(
        "it does not see {} of larger magnitude, such as ({}, {})",
        if larger.len() == 1 { "one element".to_string() } else { format!("{} elements", larger.len()) },
        first / cols,
        first % cols
    );
    // Each larger element is outside by chance as often as any is, and amax itself as often inside; `kinds`: parts of one kind.
    let one_of = |kinds: usize, variant: &'static str, words: String, of: &dyn Fn(usize, usize, f32) -> bool| {
        let seen = |at: usize| of(at / cols, at % cols, data[at]);
        // Most parts see a larger element soon: only the others are looked at whole.
        if larger.iter().any(|at| seen(*at)) {
            return None;
        }
        let (mut count, mut most) = (0usize, 0.0f32);
        for at in (0..data.len()).filter(|at| seen(*at)) {
            (count, most) = (count + 1, most.max(data[at].abs()));
        }
        let inside = count as f64 / data.len() as f64;
        let chance = kinds as f64 * inside * (1.0 - inside).powi(larger.len().min(1 << 20) as i32);
        // One larger element is outside of most parts: that is said, and the part is a guess.
        let of = words;
        let words = match chance < LIKELY {
            true => format!("amax is that of {of} alone: {unseen}"),
            false => format!("amax is not that of all: {unseen}; perhaps that of {of} alone"),
        };
        (most == amax).then_some(Part { variant, words, of, step: None, chance })
    };
    let part = |variant: &'static str, words: String, of: &dyn Fn(usize, usize, f32) -> bool| one_of(1, variant, words, of);
    let mut all: Vec<Part> = Vec::new();
    all.extend(part("signed", "the values that are not negative".into(), &|_, _, v| v >= 0.0));
    all.extend(part("negative", "the negative values".into(), &|_, _, v| v < 0.0));
    all.extend(part("without_last_row", "all rows but the last".into(), &|i, _, _| i + 1 < rows));
    all.extend(part("first_half", "the first half of the rows".into(), &|i, _, _| i < rows.div_ceil(2)));
    const TILES: [usize; 7] = [256, 128, 64, 32, 16, 8, 4];
    for tile in TILES {
        // The last tile's alone: each block stores its own.
        let from = (rows - 1) / tile * tile;
        if from > 0 {
            let words = format!("rows {from} … {}, the last tile of {tile},", rows - 1);
            all.extend(one_of(TILES.len(), "last_tile", words, &|i, _, _| i >= from));
        }
        if tile < cols {
            all.extend(one_of(TILES.len(), "some_columns", format!("the first {tile} columns"), &|_, j, _| j < tile));
        }
        if tile < rows {
            all.extend(one_of(TILES.len(), "some_rows", format!("the first {tile} rows"), &|i, _, _| i < tile));
        }
    }
    // Of all tiles that leave out what is larger the one that leaves out least, and the sizes of the others.
    let whole = |lines: &str, n: usize, of: &dyn Fn(usize, usize) -> usize| {
        let ends = |tile: usize| Some(n / tile * tile).filter(|end| *end > 0 && *end < n);
        let fits =
            |tile: &usize| ends(*tile).and_then(|end| part("whole_tiles", String::new(), &|i, j, _| of(i, j) < end)).is_some();
        let tiles: Vec<usize> = TILES.into_iter().filter(fits).collect();
        let (least, others) = tiles.split_last()?;
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        let others = if others.is_empty() { String::new() } else { format!(" (or of {})", others.join(", ")) };
        let end = ends(*least)?;
        let words = format!("{lines} 0 … {}, whole tiles of {least}{others},", end - 1);
        part("whole_tiles", words, &|i, j, _| of(i, j) < end)
    };
    all.extend(whole("columns", cols, &|_, j| j));
    all.extend(whole("rows", rows, &|i, _| i));
    for step in [2usize, 4, 8].into_iter().filter(|s| *s < cols) {
        for from in 0..step {
            let words = format!("columns {from}, {}, {} …", from + step, from + 2 * step);
            let part = one_of(2 + 4 + 8, "some_columns", words, &move |_, j, _| j % step == from);
            all.extend(part.map(|p| Part { step: Some((step, from)), ..p }));
        }
    }
    if all.is_empty() {
        // The fewest lines from an end whose amax it is.
        let (mut of_row, mut of_col) = (vec![0.0f32; rows], vec![0.0f32; cols]);
        for (at, v) in data.iter().enumerate() {
            of_row[at / cols] = of_row[at / cols].max(v.abs());
            of_col[at % cols] = of_col[at % cols].max(v.abs());
        }
        let least =
            |mut lines: &mut dyn Iterator<Item = &f32>| Iterator::position(&mut lines, |v| *v >= amax).map_or(0, |n| n + 1);
        let (first, last, left) = (least(&mut of_row.iter()), least(&mut of_row.iter().rev()), least(&mut of_col.iter()));
        // As many as it takes: one of all numbers of lines.
        all.extend(one_of(rows, "some_rows", format!("the first {first} rows"), &|i, _, _| i < first));
        let words = format!("rows {} … {}", rows - last, rows.saturating_sub(1));
        all.extend(one_of(rows, "some_rows", words, &|i, _, _| i + last >= rows));
        all.extend(one_of(cols, "some_columns", format!("the first {left} columns"), &|_, j, _| j < left));
    }
    // A part that is seen alone may be the least of all: where there is one, that comes first.
    if all.is_empty()
        && let Some((of, chance)) = amax_tiles::least(x, amax)
    {
        let words = match chance < LIKELY {
            true => format!("amax is {of}: {unseen}"),
            false => format!("amax is not that of all: {unseen}; perhaps {of}"),
        };
        all.push(Part { variant: "least_of_tiles", words, of, step: None, chance });
    }
    all.order_by(|a, b| a.chance.total_cmp(&b.chance));
    // Of a guess, what else would give the same; some of the columns of another are no other answer.
    if all.first().is_some_and(|p| p.chance >= LIKELY) {
        let inside = |p: &Part, of: &Part| {
            p.step
                .zip(of.step)
                .is_some_and(|((step, from), (every, first))| step > every && step % every == 0 && from % every == first)
        };
        let others: Vec<usize> = (1..all.len()).filter(|n| !all.iter().any(|of| inside(&all[*n], of))).collect();
        let others: String = others.into_iter().take(OTHERS).map(|n| format!(", or of {} alone", all[n].of)).collect();
        all[0].words += &others;
    }
    all
}

/// An amax beside right codes, by [`parts_of`]; behind it what would give the same. It is neither of another step nor of what was stored, although
/// saturated codes are as large as any amax that their scale was taken from.
pub fn seen(scene: &Scene) -> Vec<Finding> {
    let job = scene.evidence.job;
    let Some(amax) = scene.evidence.output.parts.first().and_then(|p| p.amax) else { return Vec::new() };
    let parts = match (job.op, edit::operand(job, edit::Which::A)) {
        (Op::Cast | Op::CastTranspose, Some(Operand::High(x))) => parts_of(x, amax),
        (Op::Cast | Op::CastTranspose, _) => Vec::new(),
        _ => computed(scene, amax).map_or_else(Vec::new, |values| parts_of(&values, amax)),
    };
    let mut found: Vec<Finding> = of_rows_behind(scene, amax).into_iter().collect();
    for part in parts {
        if !found.iter().any(|f| f.variant == part.variant) {
            found.push(Finding::solved(Class::AmaxScope, part.variant, part.words));
        }
    }
    found
}

/// An amax over the rows behind the last as well: a tile that is not masked holds zero sums there, and adds the bias to them.
fn of_rows_behind(scene: &Scene, amax: f32) -> Option<Finding> {
    let job = scene.evidence.job;
    let bias = job.operands.bias.as_ref().filter(|_| job.op == Op::Gemm)?;
    let judged = scene.evidence.judged.first()?;
    let most = judged.bound.ideal().iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let rows = judged.actual.len() / judged.cols.max(1);
    let words = bias_behind(bias.data(), most, amax, rows)?;
    Some(Finding::solved(Class::AmaxScope, "rows_behind", words))
}

/// The same in words: `most` is the right amax. A number of rows that is whole tiles of any size has none behind it.
fn bias_behind(bias: &[f32], most: f64, amax: f32, rows: usize) -> Option<String> {
    const TILES: [usize; 4] = [16, 32, 64, 128];
    let tile = TILES.into_iter().find(|t| !rows.is_multiple_of(*t))?;
    let largest = (0..bias.len()).max_by(|x, y| bias[*x].abs().total_cmp(&bias[*y].abs()))?;
    (f64::from(amax) > most && bias[largest].abs() == amax).then(|| {
        format!(
            "amax is max |bias|, that of column {largest}, larger than any result: it covers rows behind the last, which hold zero sums and the bias, {rows} rows are no whole tiles of {tile}"
        )
    })
}

/// The right result of an op that computes before it casts. What `amax` may be, by its bound, is that.
fn computed(scene: &Scene, amax: f32) -> Option<Tensor> {
    let judged = scene.evidence.judged.first()?;
    as_computed(judged.bound.ideal(), judged.bound.certain(), judged.cols, amax)
}

/// The right values of a result; what `amax` may be, by its bound, is that.
pub fn as_computed(ideal: &[f64], certain: &[f64], cols: usize, amax: f32) -> Option<Tensor> {
    let value = |(d, radius): (&f64, &f64)| {
        if (d.abs() - f64::from(amax)).abs() <= *radius { amax.copysign(*d as f32) } else { *d as f32 }
    };
    Tensor::new(Format::F32, ideal.len() / cols.max(1), cols, ideal.iter().zip(certain).map(value).collect()).ok()
}

/// What an amax sees of a tensor.
fn seen_by(x: &Tensor, change: &Change) -> Vec<f32> {
    (0..x.data().len()).map(|at| (change.of)(x, at / x.cols(), at % x.cols())).collect()
}

/// The scales that the right kernel chooses for changed values.
fn scales(job: &Job, x: &Tensor, data: Vec<f32>) -> Option<QTensor> {
    let changed = Tensor::new(Format::F32, x.rows(), x.cols(), data).ok()?;
    let changed = edit::replaced(job, edit::Which::A, Operand::High(changed));
    match inject::written(&changed, &[]).ok()??.parts.into_iter().next()?.d {
        Data::Quantized(q) => Some(q),
        Data::High(_) => None,
    }
}

fn same(a: &QTensor, b: &QTensor) -> bool {
    let bits = |q: &QTensor| q.global_scale_inv().map(f32::to_bits);
    let equal = |x: &f32, y: &f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
    bits(a) == bits(b)
        && a.scale_inv().len() == b.scale_inv().len()
        && a.scale_inv().iter().zip(b.scale_inv()).all(|(x, y)| equal(x, y))
}

/// Whether blocks whose scale is another power of two are told from the others by where their amax lies between two powers: the exponent is
/// rounded in another way, and nothing else chose them. `ratio`: what was written over what is right, of blocks with an amax.
pub fn is_rounded_otherwise(amax: &[f64], ratio: &[f64]) -> bool {
    let mut all: Vec<(f64, bool)> = amax
        .iter()
        .zip(ratio)
        .filter(|(a, r)| **a > 0.0 && a.is_finite() && r.is_finite())
        .map(|(a, r)| (a.log2().rem_euclid(1.0), *r != 1.0))
        .collect();
    let wrong: Vec<f64> = ratio.iter().copied().filter(|r| *r != 1.0).collect();
    let one_step = wrong.iter().all(|r| *r == wrong[0]) && wrong.first().is_some_and(|r| *r == 2.0 || *r == 0.5);
    all.order_by(|a, b| a.0.total_cmp(&b.0));
    let changes = (0..all.len()).filter(|n| all[*n].1 != all[(n + 1) % all.len()].1).count();
    // Those of equal amax are alike.
    one_step && changes <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amax_is_that_of_the_part_that_chance_makes_least() {
        // The largest stands in the tail of the columns, in the second half of the rows.
        let mut v: Vec<f32> = (0..20 * 150).map(|n| ((n * 7919 % 3001) as f32 - 1500.0) / 1000.0).collect();
        (v[3 * 150 + 7], v[12 * 150 + 130], v[15 * 150 + 149]) = (5.0, 9.0, -8.0);
        let x = Tensor::new(Format::F32, 20, 150, v).unwrap();
        let parts = parts_of(&x, 5.0);
        assert_eq!(parts[0].variant, "whole_tiles");
        assert!(
            parts[0].words.starts_with("amax is that of columns 0 … 127, whole tiles of 32 (or of 128, 64),"),
            "{}",
            parts[0].words
        );
        assert!(parts.iter().any(|p| p.variant == "first_half"));
        assert!(parts_of(&x, 9.0).is_empty(), "it is the largest");
        // So many rows from an end give any amax that is somebody's.
        let v: Vec<f32> = (0..64 * 64).map(|n| (n * 7919 % 8191) as f32 - 4095.0).collect();
        let x = Tensor::new(Format::F32, 64, 64, v.clone()).unwrap();
        let last = v[63 * 64..].iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let parts = parts_of(&x, last);
        assert!(!parts.is_empty() && parts.iter().all(|p| p.words.contains("perhaps")), "{last}: {}", parts[0].words);
        // Two larger ones in odd columns: more than one part leaves them out, and some of the even columns are no other answer.
        let v: Vec<f32> = (0..16 * 40).map(|n| ((n * 7919 % 631) as f32 - 315.0) / 400.0).collect();
        let mut x = Tensor::new(Format::F32, 16, 40, v).unwrap().data().to_vec();
        (x[40 * 3 + 8], x[40 * 9 + 3], x[40 * 12 + 5]) = (2.0, 5.0, 4.0);
        let parts = parts_of(&Tensor::new(Format::F32, 16, 40, x).unwrap(), 2.0);
        let words = &parts[0].words;
        assert!(words.contains("; perhaps that of the first half of the rows alone, or of the first 8 rows alone"), "{words}");
        assert!(words.contains(", or of columns 0, 2, 4 … alone"), "{words}");
        assert!(!words.contains("columns 0, 4, 8") && !words.contains("columns 0, 8, 16"), "{words}");
        // The largest value, where four negative ones are larger.
        let v: Vec<f32> = (0..64).map(|n| if n % 16 == 3 { -9.0 - n as f32 } else { 0.1 * (n % 13) as f32 }).collect();
        let x = Tensor::new(Format::F32, 8, 8, v).unwrap();
        assert_eq!(parts_of(&x, 0.1 * 12.0)[0].variant, "signed");
        // Three negative ones are larger than the largest value, which is among the first 8 of 133 columns: seven tiles may be there by chance.
        let mut v: Vec<f32> = (0..48 * 133).map(|n| (n * 7919 % 3001) as f32 / 1000.0 - 1.5).collect();
        (v[18 * 133 + 6], v[10 * 133 + 97], v[20 * 133 + 40], v[30 * 133 + 70]) = (3.4, -9.5, -8.0, -7.0);
        let x = Tensor::new(Format::F32, 48, 133, v).unwrap();
        let parts = parts_of(&x, 3.4);
        assert_eq!(parts[0].variant, "signed", "{}", parts[0].words);
        assert!(parts.iter().any(|p| p.words.contains("the first 8 columns")));
    }

    #[test]
    fn an_amax_of_the_bias_alone_is_told_where_rows_are_no_whole_tiles() {
        let bias = [0.5, -7.25, 3.0];
        let words = bias_behind(&bias, 4.5, 7.25, 40).unwrap();
        assert!(words.contains("that of column 1") && words.contains("40 rows are no whole tiles of 16"), "{words}");
        assert_eq!(bias_behind(&bias, 4.5, 7.25, 256), None, "whole tiles");
        assert_eq!(bias_behind(&bias, 7.25, 7.25, 40), None, "it is right");
        assert_eq!(bias_behind(&bias, 4.5, 7.3, 40), None, "of no column");
    }

    #[test]
    fn an_exponent_that_is_rounded_otherwise_has_a_threshold() {
        let amax: Vec<f64> = (0..64).map(|n| (f64::from(n * 37 % 64) / 9.0).exp2()).collect();
        let ratio = |is: &dyn Fn(f64) -> bool, by: f64| -> Vec<f64> {
            amax.iter().map(|a| if is(a.log2().fract()) { by } else { 1.0 }).collect()
        };
        assert!(is_rounded_otherwise(&amax, &ratio(&|f| f > 0.6, 2.0)));
        assert!(is_rounded_otherwise(&amax, &ratio(&|f| f > 0.0 && f < 0.4, 0.5)));
        assert!(!is_rounded_otherwise(&amax, &ratio(&|f| f > 0.6, 0.25)), "two steps are no rounding");
        assert!(!is_rounded_otherwise(&amax, &ratio(&|f| f > 0.2 && f < 0.4 || f > 0.7 && f < 0.8, 0.5)));
    }
}
