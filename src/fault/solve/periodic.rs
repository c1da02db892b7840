//! Theories of K that repeat: a part of every p elements of K is lost or counted twice, parts of a split K reach into the next, or each tile of the
//! result loses a range of K.
//!
//! ```text
//! masks:    c(k) = 0 or 2 where from ≤ k mod p < to, else 1          every p, from and to, by sums over the residues of k
//! overlaps: c(k) = number of parts [w·n, w·n + t) that have k          and t − w behind the end of K
//! tiles:    c(k) = 0 in a range of each wrong tile's own
//! ```

use super::maps::cost;
use super::segment::spread;
use super::slices::{Fate, Prefix, prefix, prefixes};
use super::system::{Over, Past, System, Theory};
use super::theory::shortest_first;
use crate::fault::Class;
use crate::order::Order as _;
use crate::parallel;
use std::sync::Arc;

/// Elements that decide.
const LOOKS: usize = 64;
/// Periods of single elements up to here; beyond, of eights.
const SINGLE: usize = 64;
const LONGEST: usize = 1024;
/// Masks that are kept.
const KEPT: usize = 8;

/// Every mask of K that repeats and explains all probes.
pub fn masks(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let probes = prefixes(s, LOOKS);
    if probes.len() < 8 {
        return Vec::new();
    }
    let periods: Vec<usize> = (2..=(s.k / 2).min(LONGEST)).filter(|p| *p <= SINGLE || p.is_multiple_of(8)).collect();
    // Where a bound is as wide as the result all fit: a mask as long as K is made of those that are kept.
    let mut found: Vec<Mask> = parallel::flat(&periods, |p| of_period(s.k, *p, &probes));
    found.order_by(|a, b| a.bits().total_cmp(&b.bits()));
    found.truncate(KEPT);
    let mut found: Vec<Theory> = found.iter().map(|m| m.theory(s.k)).collect();
    shortest_first(&mut found);
    found
}

/// Parts of a period that K is shared by, and periods.
const SHARES: [usize; 3] = [2, 4, 8];
const SHARED: [usize; 6] = [16, 32, 64, 128, 256, 512];

/// What is left of a sum where one of several warps that share every so many of K adds nothing, or alone what it has: few, to be tried on top of
/// another fault.
pub fn shares(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let periods = SHARED.into_iter().filter(|p| *p < s.k).chain([s.k]);
    let parts = periods.flat_map(|p| SHARES.map(|n| (p, n))).filter(|(p, n)| p.is_multiple_of(*n) && p / n >= 4);
    let masks = parts.flat_map(|(period, n)| {
        let wide = period / n;
        let ends = (0..n).map(move |x| (x * wide, (x + 1) * wide));
        let lost = ends.clone().map(move |(from, to)| Mask { period, from, to, fate: Fate::Lost });
        // Alone to an end of the period is the rest lost.
        let alone = ends.filter(move |_| n > 2).map(move |(from, to)| match (from == 0, to == period) {
            (true, _) => Mask { period, from: to, to: period, fate: Fate::Lost },
            (_, true) => Mask { period, from: 0, to: from, fate: Fate::Lost },
            _ => Mask { period, from, to, fate: Fate::Alone },
        });
        lost.chain(alone).collect::<Vec<_>>()
    });
    masks.map(|m| m.theory(s.k)).collect()
}

/// `from ≤ k mod period < to`, and what becomes of it.
struct Mask {
    period: usize,
    from: usize,
    to: usize,
    fate: Fate,
}

/// Sums over the first r of every period: r = 0 … p.
fn residues(k: usize, p: usize, x: &Prefix) -> Vec<f64> {
    let one = |r: usize| (0..k).step_by(p).map(|at| x.sums[(at + r).min(k)] - x.sums[at]).sum();
    (0..=p).map(one).collect()
}

fn of_period(k: usize, p: usize, probes: &[Prefix]) -> Vec<Mask> {
    let step = if p <= SINGLE { 1 } else { 8 };
    let mut sums: Vec<Vec<f64>> = Vec::new();
    let mut found = Vec::new();
    for from in (0..p).step_by(step) {
        for to in (from + step..=p).step_by(step).filter(|to| to - from < p) {
            for fate in [Fate::Lost, Fate::Twice, Fate::Alone] {
                // Alone to an end of the period is the rest lost.
                if fate == Fate::Alone && (from == 0 || to == p) {
                    continue;
                }
                let holds = |n: usize, x: &Prefix, sums: &mut Vec<Vec<f64>>| {
                    if sums.len() <= n {
                        sums.push(residues(k, p, x));
                    }
                    let v = fate.of(sums[n][to] - sums[n][from], x.sums[k]);
                    x.low <= v && v <= x.high
                };
                if probes.iter().enumerate().all(|(n, x)| holds(n, x, &mut sums)) {
                    found.push(Mask { period: p, from, to, fate });
                }
            }
        }
    }
    found
}

impl Mask {
    fn bits(&self) -> f64 {
        let end = |x: usize| if x == 0 || x == self.period { 0.5 } else { cost(x).min(cost(self.period - x)) };
        4.0 + cost(self.period) + end(self.from) + end(self.to)
    }

    fn theory(&self, k: usize) -> Theory {
        let (p, from, to, fate) = (self.period, self.from, self.to, self.fate);
        let n = to - from;
        let which = if to == p {
            format!("the last {n} of every {p} of K")
        } else if from == 0 {
            format!("the first {n} of every {p} of K")
        } else {
            format!("of every {p} of K {from} … {}", to - 1)
        };
        let (words, variant) = match fate {
            Fate::Lost => (format!("{which} are left out"), "every"),
            Fate::Twice => (format!("{which} are counted twice"), "every_twice"),
            Fate::Alone => (format!("{which} alone are summed"), "every"),
        };
        let class = if to == p && 2 * n < p && fate != Fate::Alone { Class::KTail } else { Class::AccState };
        let mut t = Theory::new(class, "out", format!("k.{variant}"), words).bits(self.bits());
        let c = |x: usize| match (fate, (from..to).contains(&(x % p))) {
            (Fate::Lost, true) | (Fate::Alone, false) => 0.0,
            (Fate::Twice, true) => 2.0,
            _ => 1.0,
        };
        t.k = Some(Arc::new((0..k).map(c).collect()));
        t
    }
}

/// Parts of a split K whose tiles are deeper than the part: each adds what belongs to the next, the last one what lies behind the end.
pub fn overlaps(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (n, w) in (2..=16usize).map(|n| (n, s.k.div_ceil(n))).filter(|(n, w)| *w >= 4 && (n - 1) * w < s.k) {
        for t in [8usize, 16, 32, 48, 64, 96, 128, 192, 256, 512].into_iter().filter(|t| *t > w) {
            let words = format!(
                "{n} parts of K of {w} each are summed in tiles of {t}: each adds the {} of K behind its own too",
                t - w
            );
            let c = |k: usize| (0..n).filter(|p| (p * w..p * w + t).contains(&k)).count() as f64;
            let mut masked = Theory::new(Class::AccState, "out", "k.overlap", words.clone()).bits(5.0 + cost(n) + cost(t));
            masked.k = Some(Arc::new((0..s.k).map(c).collect()));
            let by = ((n - 1) * w + t).saturating_sub(s.k);
            // Only the last one may reach behind the end.
            if by > 0 && (n - 2) * w + t <= s.k && s.a.rows.min(s.b.rows) >= 4 {
                for past in [Past::Next, Past::NextScaled] {
                    let mut over = masked.clone();
                    over.over = Some(Over { by, a: past, b: past, apart: false });
                    let how = if past == Past::Next {
                        "the start of the next row, by the scales of this one"
                    } else {
                        "the start of the next row"
                    };
                    over.class = Class::KTail;
                    over.detail = format!("{words}, the last one {how}");
                    over.bits += 1.0;
                    all.push(over);
                }
            }
            masked.detail = format!("{words}, the last one stops at the end of K");
            all.push(masked);
        }
    }
    all
}

/// Tiles that are tried: rows, columns.
const SIZES: [usize; 5] = [128, 64, 32, 16, 256];
/// Elements of a tile that decide, tiles at most, and multiply-adds of one size.
const OF_TILE: usize = 12;
const TILES: usize = 512;
const WORK: usize = 1 << 26;

/// Wrong tiles beside right ones, each without a range of K of its own: borders of a split that are not where a step of K ends.
pub fn tiles(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let sizes = SIZES.iter().flat_map(|h| SIZES.iter().map(move |w| (*h, *w)));
    sizes.filter(|(h, w)| *h <= s.rows && *w <= s.cols).find_map(|(h, w)| of_tiles(s, h, w)).into_iter().collect()
}

fn of_tiles(s: &System, high: usize, wide: usize) -> Option<Theory> {
    let (m, n) = (s.rows.div_ceil(high), s.cols.div_ceil(wide));
    (m * n >= 4 && m * n <= TILES).then_some(())?;
    let places = |t: usize| -> Vec<(usize, usize)> {
        let (i0, j0) = (t / n * high, t % n * wide);
        let (h, w) = (high.min(s.rows - i0), wide.min(s.cols - j0));
        (0..h * w).map(|x| (i0 + x / w, j0 + x % w)).collect()
    };
    let wrong = |(i, j): &(usize, usize)| s.is_wrong[i * s.cols + j];
    let mut hit = Vec::new();
    for t in 0..m * n {
        let all = places(t);
        let count = all.iter().filter(|p| wrong(p)).count();
        // Whole tiles, or none of it.
        if count > 0 {
            (2 * count > all.len()).then_some(())?;
            hit.push(t);
        }
    }
    (hit.len() >= 2 && hit.len() < m * n).then_some(())?;
    let step =
        [8usize, 16, 32, 64].into_iter().find(|w| s.k.is_multiple_of(*w) && hit.len() * (s.k / w).pow(2) <= WORK / 16)?;
    let range = |t: &usize| -> Option<(usize, usize, Fate)> {
        let mut some = places(*t);
        spread(&mut some, OF_TILE);
        let looks: Vec<Prefix> = some.into_iter().filter_map(|(i, j)| prefix(s, i, j)).collect();
        (looks.len() >= 6).then_some(())?;
        let holds = |x: &Prefix, from: usize, to: usize, fate: Fate| {
            let v = fate.of(x.sums[to] - x.sums[from], x.sums[s.k]);
            x.low <= v && v <= x.high
        };
        let mut found = Vec::new();
        for from in (0..s.k).step_by(step) {
            for to in (from + step..=s.k).step_by(step) {
                for fate in [Fate::Lost, Fate::Twice] {
                    if (from, to) != (0, s.k) && looks.iter().all(|x| holds(x, from, to, fate)) {
                        found.push((from, to, fate));
                    }
                }
            }
        }
        // Several that fit say nothing.
        (found.len() == 1).then(|| found[0])
    };
    let found: Vec<(usize, usize, Fate)> = parallel::every(hit.len(), |n| range(&hit[n]))?;
    let one = |(t, (from, to, fate)): (&usize, &(usize, usize, Fate))| {
        let how = if *fate == Fate::Lost { "without" } else { "twice" };
        format!("({}, {}) {how} {from} … {}", t / n, t % n, to - 1)
    };
    let some: Vec<String> = hit.iter().zip(&found).take(5).map(one).collect();
    let more = if hit.len() > 5 { ", …" } else { "" };
    let words = format!(
        "{} of the {} tiles of {high}×{wide} of the result lack a range of K, or have it twice, each its own: {}{more}",
        hit.len(),
        m * n,
        some.join(", ")
    );
    let mut t = Theory::new(Class::AccState, "out", "k.of_tiles", words).bits(12.0 + 6.0 * hit.len() as f64);
    t.freedom = 2 * hit.len();
    let mut of: Vec<Option<(usize, usize, f64)>> = vec![None; m * n];
    for (tile, (from, to, fate)) in hit.iter().zip(&found) {
        of[*tile] = Some((*from, *to, if *fate == Fate::Lost { -1.0 } else { 1.0 }));
    }
    let (a, b, bias, k_all) = (s.a.values.clone(), s.b.values.clone(), s.bias.clone(), s.k);
    t.finish = Some(Arc::new(move |i, j, v| {
        let Some((from, to, by)) = of[i / high * n + j / wide] else { return v + bias.at(i, j) };
        let part: f64 = (from..to).map(|k| a[i * k_all + k] * b[j * k_all + k]).sum();
        v + by * part + bias.at(i, j)
    }));
    Some(t)
}
