//! Two faults of a dequantization: scales or codes are read from other places, and a few numbers of the table of codes are others, as one that is
//! mistyped.
//!
//! ```text
//! out[i, j] = T(code(i, j)) · s(i, j)       s, code as the first fault reads them; T of each code: what all of its elements allow
//! ```
//!
//! Most codes have to keep their own number: they tell the first fault, whatever the others are.

use super::output::{roundest, short};
use super::pairs::affordable;
use super::segment::spread_of;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::parallel;
use std::sync::Arc;

/// Elements that a first fault is tried on, and all of them at most.
const FEW: usize = 64;
const MOST: usize = 1 << 16;
/// Elements that tell a number, at least, and codes that are there.
const LEAST: usize = 6;
const CODES: usize = 8;
/// One in so many codes may have another number.
const OTHERS: usize = 4;
/// How well a number has to be known, relative.
const KNOWN: f64 = 1.0 / 64.0;
/// First faults, at most.
const FIRST: usize = 1 << 17;

/// What all elements of a code allow for its number: the least and the most, and how many they are.
type Range = (f64, f64, usize);

/// Both faults, for every first one that leaves most codes their number.
pub fn theories(s: &System, all: &[Theory]) -> Vec<Theory> {
    if !s.alone || s.a.q.is_none() || s.a.zero.is_some() || s.region.is_some() {
        return Vec::new();
    }
    let reads = |t: &&Theory| {
        let given =
            t.a.table.is_none() && t.a.value.is_none() && t.a.zero.is_none() && (t.a.scale.is_some() || t.a.code.is_some());
        let plain = t.finish.is_none() && t.from.is_none() && t.region.is_none() && t.patch.is_none() && t.expert.is_none();
        given && plain && t.k.is_none() && t.over.is_none() && t.product.is_none() && t.kept.is_none() && !t.fitted
    };
    let some: Vec<Theory> = all.iter().filter(reads).cloned().collect();
    let some = affordable(&some, FIRST);
    let wrong: Vec<usize> = (0..s.rows * s.cols).filter(|at| s.is_wrong[*at]).collect();
    let few: Vec<usize> = spread_of(wrong.len(), FEW).into_iter().map(|n| wrong[n]).collect();
    let every = spread_of(s.rows * s.cols, MOST);
    parallel::flat(&some, |t| {
        ranges(s, t, &few)?;
        named(s, t, &ranges(s, t, &every)?)
    })
}

/// What these elements allow for each code. `None`: they contradict each other.
fn ranges(s: &System, t: &Theory, places: &[usize]) -> Option<Vec<Option<Range>>> {
    let g = &s.a;
    let codes = g.q.as_ref()?.codes();
    let mut all: Vec<Option<Range>> = vec![None; g.table.len()];
    for at in places {
        let (i, j) = (at / s.cols, at % s.cols);
        let Some((y, half)) = s.written(i, j, 0.0) else { continue };
        let place = t.a.code.as_ref().map_or(Some(at / s.cols * g.k + j), |f| f(i, j));
        let by = t.a.scale.as_ref().map_or_else(|| g.step(i, j), |f| f(i, j));
        let Some(code) =
            place.map(|p| usize::from(codes[p])).filter(|c| by != 0.0 && by.is_finite() && g.table[*c].is_finite())
        else {
            // Nothing is read here: 0 is written.
            (y.abs() <= half).then_some(())?;
            continue;
        };
        let ends = [(y - half) / by, (y + half) / by];
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let (from, to, n) = all[code].unwrap_or((f64::NEG_INFINITY, f64::INFINITY, 0));
        let met = (from.max(low), to.min(high), n + 1);
        (met.0 <= met.1).then_some(())?;
        all[code] = Some(met);
    }
    Some(all)
}

/// The first fault with the numbers that are others.
fn named(s: &System, t: &Theory, ranges: &[Option<Range>]) -> Option<Theory> {
    let g = &s.a;
    let (mut table, mut changed, mut slack, mut told) = (g.table.clone(), Vec::new(), 0.0f64, 0);
    for (code, range) in ranges.iter().enumerate() {
        let Some((low, high, n)) = *range else { continue };
        told += 1;
        let own = g.table[code];
        if low - 1e-6 * low.abs() <= own && own <= high + 1e-6 * high.abs() {
            continue;
        }
        // An entry of 0 is known against the number that it should be.
        let is_zero = low <= 0.0 && 0.0 <= high;
        let known = 0.5 * (high - low) / if is_zero { own.abs() } else { low.abs().max(high.abs()) };
        (n >= LEAST && known <= KNOWN).then_some(())?;
        slack = slack.max(2.0 * known);
        table[code] = if is_zero { 0.0 } else { roundest(low, high) };
        changed.push((code, high - low));
    }
    (told >= CODES && !changed.is_empty() && changed.len() * OTHERS <= told).then_some(())?;
    let one = |(c, width): &(usize, f64)| format!("0x{c:02x} as {} instead of {}", short(table[*c], *width), g.table[*c]);
    let words: Vec<String> = changed.iter().take(4).map(one).collect();
    let format = g.format().map_or(String::new(), |f| format!(" ({f})"));
    let mut both = t.clone();
    both.id = 0;
    both.detail = format!(
        "{}; and codes of a{format} are decoded otherwise at {} of {told} codes: {}",
        t.detail,
        changed.len(),
        words.join(", ")
    );
    both.variant = format!("{} + {}:a.table", t.variant, Class::CodecEdge.name());
    both.bits += 16.0 + 8.0 * changed.len() as f64;
    (both.fitted, both.freedom, both.slack) = (true, changed.len(), slack);
    both.a.table = Some(Arc::new(table));
    Some(both)
}
