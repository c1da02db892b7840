//! Two faults at once, the second solved: for every theory, the one gain, the range of K, or the gains of rows and columns that would make
//! the rest.
//!
//! A wrong first theory is refused after two or three elements: they contradict each other.

use super::bias_experts;
use super::output;
use super::related;
use super::scales;
use super::slices::{self, Fate};
use super::solved;
use super::system::{System, Theory};
use super::theory::{shortest_first, shortest_of};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;
use crate::parallel;
use std::sync::Arc;

/// Multiply-adds that completions may take.
const WORK: usize = 1 << 25;
/// From here on ranges of K that complete a theory start and end at multiples.
const FINE: usize = 256;
const COARSE: usize = 8;
/// What may be left open of an element that a number is solved from, relative.
const OPEN: f64 = 0.25;
/// How far off a gain may be, relative: one that is hardly known makes of anything what was written.
const KNOWN: f64 = 1.0 / 32.0;
/// The same of one number that all elements have more.
const SHIFT: f64 = 1.0 / 16.0;
/// Scales along K that are solved on top of every theory, at most.
const GROUPS: usize = 32;
/// Completed theories kept.
const KEPT: usize = 16;

/// What was written for an element, less its bias: the least and the most, before the arithmetic's own bound.
struct Look {
    i: usize,
    j: usize,
    low: f64,
    high: f64,
}

/// Elements that first theories are tried on: four corners of a rectangle, then others.
fn looks(s: &System) -> Vec<Look> {
    let usable = |i: usize, j: usize| -> Option<Look> {
        let at = i * s.cols + j;
        let x = s.actual[at];
        if !s.is_wrong[at] || !x.is_finite() || x == 0.0 || s.out.is_quantized() && s.out.is_saturated(at, x) {
            return None;
        }
        let (low, high) = s.out.cell(at, x);
        // What the bound leaves open tells no number.
        let open = high - low + 2.0 * s.certain(at);
        (low.is_finite() && high.is_finite() && open <= OPEN * low.abs().max(high.abs())).then(|| Look {
            i,
            j,
            low: low - s.bias.at(i, j),
            high: high - s.bias.at(i, j),
        })
    };
    let wrong: Vec<(usize, usize)> = s.probes.iter().copied().filter(|(i, j)| usable(*i, *j).is_some()).collect();
    for (i, j) in wrong.iter().take(16) {
        // The same row and the same column.
        for (x, y) in &wrong {
            // One group's weights have one scale a column.
            if x == i || y == j || s.part[*x] != s.part[*i] {
                continue;
            }
            let four = [(*i, *j), (*i, *y), (*x, *j), (*x, *y)];
            let found: Vec<Look> = four.iter().filter_map(|(i, j)| usable(*i, *j)).collect();
            if found.len() == 4 {
                let rest = wrong.iter().filter(|p| !four.contains(p)).take(4);
                return found.into_iter().chain(rest.filter_map(|(i, j)| usable(*i, *j))).collect();
            }
        }
    }
    wrong.iter().take(6).filter_map(|(i, j)| usable(*i, *j)).collect()
}

/// The sum of a theory for a look with its bound.
fn at(s: &System, t: &Theory, l: &Look) -> Option<(f64, f64)> {
    let (i, j) = match &t.from {
        Some(from) => from(l.i, l.j).filter(|(i, j)| *i < s.rows && *j < s.cols)?,
        None => (l.i, l.j),
    };
    if s.bias.at(i, j) != s.bias.at(l.i, l.j) {
        return None;
    }
    if t.sums_right() {
        let at = i * s.cols + j;
        return Some((s.ideal[at] - s.bias.at(i, j), s.certain(at)));
    }
    let (sum, size) = s.sum(t, i, j);
    Some((sum, s.relative * (size + s.bias.at(i, j).abs())))
}

/// The gains that a look allows on a sum.
fn ratio(l: &Look, (v, r): (f64, f64)) -> Option<(f64, f64)> {
    (v.abs() > 4.0 * r && v.is_finite()).then_some(())?;
    // The bound scales with the gain.
    let gain = (l.low.abs().max(l.high.abs()) / v.abs()).max(1.0);
    let ends = [(l.low - r * gain) / v, (l.high + r * gain) / v];
    Some((ends[0].min(ends[1]), ends[0].max(ends[1])))
}

fn meet(x: (f64, f64), y: (f64, f64)) -> Option<(f64, f64)> {
    let z = (x.0.max(y.0), x.1.min(y.1));
    (z.0 <= z.1).then_some(z)
}

/// Theories completed, the shortest first.
pub fn completed(s: &System, all: &[Theory]) -> Vec<Theory> {
    let looks = looks(s);
    if looks.len() < 3 || s.rows * s.cols < 16 {
        return Vec::new();
    }
    let mut order: Vec<&Theory> = all.iter().filter(|t| t.finish.is_none() && t.region.is_none() && t.k.is_none()).collect();
    // Gains and parts of K leave what a theory says in what was written.
    let unlike = related::is_unlike(s);
    let few = related::Few::of(s);
    let may = |t: &&Theory| !(unlike && related::keeps(t)) && related::may_be_moved(s, t) && few.may_be_first(s, t);
    order = parallel::flat(&order, |t| Some(*t).filter(may));
    shortest_of(&mut order);
    // Scales along K are solved for each theory again.
    let grouped = [&s.a, &s.b].iter().any(|g| g.grid.1 > 1 && g.grid.1 <= GROUPS);
    let each = 6 * s.k + if grouped { 128 * s.k } else { 0 };
    order.truncate(WORK / each.max(1));
    let finishes = output::simple(s);
    let biases: Vec<Theory> = output::factors(s).into_iter().filter(|t| t.variant.starts_with("out.bias")).collect();
    let mut found: Vec<Theory> = gained_range(s);
    found.extend(parallel::flat(&order, |t| one(s, t, &looks, (&finishes, &biases))));
    shortest_first(&mut found);
    found.truncate(KEPT);
    found
}

fn one(s: &System, t: &Theory, looks: &[Look], (finishes, biases): (&[Theory], &[Theory])) -> Vec<Theory> {
    let mut found = Vec::new();
    let Some(v) = looks.iter().take(4).map(|l| at(s, t, l)).collect::<Option<Vec<(f64, f64)>>>() else { return found };
    let r: Vec<Option<(f64, f64)>> = looks.iter().zip(&v).map(|(l, v)| ratio(l, *v)).collect();
    let both = |x: usize, y: usize| r.get(x).copied().flatten().zip(r.get(y).copied().flatten()).and_then(|(x, y)| meet(x, y));
    let all = r.iter().try_fold((f64::NEG_INFINITY, f64::INFINITY), |m, x| x.and_then(|x| meet(m, x)));
    if let Some((low, high)) = all.filter(|(low, high)| !(*low <= 1.0 && 1.0 <= *high) && *low > 0.0)
        && let Some(g) = gained(s, t, looks, (low, high))
    {
        found.push(g);
        return found;
    }
    // Four corners of a rectangle: columns 0 2 and 1 3, rows 0 1 and 2 3.
    if looks.len() >= 4 && looks[0].j == looks[2].j && looks[0].i == looks[1].i && t.from.is_none() {
        let mut solve = |side| {
            // Numbers that nothing has, on top of another theory, explain whatever it leaves.
            let named = |p: &Theory| !p.variant.contains(solved::NAMELESS.name()) && !p.variant.ends_with(".gains");
            let more = solved::gains(s, t, side).into_iter().filter(|p| named(p) && s.explains(p));
            found.extend(more);
        };
        // Scales along K too: their first row refuses what is wrong.
        let may_scale = [Which::A, Which::B].iter().any(|side| s.given(*side).grid.1 > 1) && related::may_have_gains(s, t);
        let grouped = |side: Which| s.given(side).grid.1 > 1 && s.given(side).grid.1 <= GROUPS && may_scale;
        if (both(0, 2).is_some() && both(1, 3).is_some() || grouped(Which::B)) && t.b.scale.is_none() && t.b.value.is_none() {
            solve(Which::B);
        }
        if (both(0, 1).is_some() && both(2, 3).is_some() || grouped(Which::A)) && t.a.scale.is_none() && t.a.value.is_none() {
            solve(Which::A);
        }
    }
    // What was added is one number a column, or one a row: a bias of another place.
    let added = |n: usize| {
        let bias = s.bias.at(looks[n].i, looks[n].j);
        (looks[n].low + bias - v[n].0 - v[n].1, looks[n].high + bias - v[n].0 + v[n].1)
    };
    let same = |x: usize, y: usize| meet(added(x), added(y)).is_some();
    let steady = looks.len() >= 4
        && looks[0].j == looks[2].j
        && looks[0].i == looks[1].i
        && (same(0, 2) && same(1, 3) || same(0, 1) && same(2, 3));
    for f in finishes.iter().chain(biases.iter().filter(|_| steady)) {
        if t.joined(f).is_some_and(|p| looks.iter().all(|l| s.fits(&p, l.i, l.j)) && s.explains(&p)) {
            found.extend(t.with(f));
        }
    }
    found.extend(shifted(s, t, looks));
    if looks.iter().zip(&v).all(|(l, v)| bias_experts::may(s, (l.i, l.j), *v)) {
        found.extend(bias_experts::on_top(s, t).and_then(|b| t.with(&b)).filter(|p| s.explains(p)));
    }
    found.extend(ranged(s, t, looks));
    found
}

/// `t`, and the whole times the one gain.
fn gained(s: &System, t: &Theory, looks: &[Look], first: (f64, f64)) -> Option<Theory> {
    let range = looks.iter().skip(4).try_fold(first, |m, l| meet(m, ratio(l, at(s, t, l)?)?))?;
    // The rest of the probes make it narrower.
    let mut range = range;
    for (i, j) in &s.probes {
        let x = s.actual[i * s.cols + j];
        if !x.is_finite() || s.out.is_quantized() && s.out.is_saturated(i * s.cols + j, x) {
            continue;
        }
        let (low, high) = s.out.cell(i * s.cols + j, x);
        let l = Look { i: *i, j: *j, low: low - s.bias.at(*i, *j), high: high - s.bias.at(*i, *j) };
        if let Some(x) = at(s, t, &l).and_then(|v| ratio(&l, v)) {
            range = meet(range, x)?;
        }
    }
    let by = output::roundest(range.0, range.1);
    (range.1 - range.0 <= 2.0 * KNOWN * by.abs()).then_some(())?;
    if let Some(gain) = scales::of_one_scale(s, range.0, range.1)
        && let Some(found) = t.with(&gain).filter(|p| s.explains(p))
    {
        return Some(found);
    }
    let words = format!("the result is multiplied by {}, which is no stored number", output::short(by, range.1 - range.0));
    let mut gain = Theory::new(Class::StaleState, "out", "out.gain", words).bits(22.0);
    let bias = s.bias.clone();
    gain.finish = Some(Arc::new(move |i, j, v| v * by + bias.at(i, j)));
    (gain.fitted, gain.slack) = (true, 0.5 * (range.1 - range.0) / by.abs());
    t.with(&gain).filter(|p| s.explains(p))
}

/// `t`, and one number that all elements have more: a zero point of what is added, or of the result, that is not taken off.
fn shifted(s: &System, t: &Theory, looks: &[Look]) -> Option<Theory> {
    let more = |l: &Look| at(s, t, l).map(|(v, r)| (l.low - v - r, l.high - v + r));
    let first = looks.iter().try_fold((f64::NEG_INFINITY, f64::INFINITY), |m, l| meet(m, more(l)?))?;
    (first.0 > 0.0 || first.1 < 0.0).then_some(())?;
    let mut range = first;
    for (i, j) in &s.probes {
        let n = i * s.cols + j;
        let x = s.actual[n];
        if !x.is_finite() || s.out.is_quantized() && s.out.is_saturated(n, x) {
            continue;
        }
        let ((low, high), bias) = (s.out.cell(n, x), s.bias.at(*i, *j));
        range = meet(range, more(&Look { i: *i, j: *j, low: low - bias, high: high - bias })?)?;
    }
    let by = output::roundest(range.0, range.1);
    (range.1 - range.0 <= 2.0 * SHIFT * by.abs()).then_some(())?;
    let words = format!(
        "every element has {} more, which is no stored number: as where a zero point, of the bias or of the result, is not taken off",
        output::short(by, range.1 - range.0)
    );
    let mut shift = Theory::new(Class::ZpOffset, "out", "out.shift", words).bits(22.0);
    let bias = s.bias.clone();
    shift.finish = Some(Arc::new(move |i, j, v| v + bias.at(i, j) + by));
    (shift.fitted, shift.slack) = (true, 0.0);
    t.with(&shift).filter(|p| s.explains(p))
}

/// A range of K and one gain of the whole, on top of what is right: every range whose gains agree.
fn gained_range(s: &System) -> Vec<Theory> {
    let probes = slices::prefixes(s, 24);
    if probes.len() < 4 || s.parts.iter().any(|p| p.k.len() != s.k) || s.k > 4096 {
        return Vec::new();
    }
    let gain = |from: usize, to: usize, fate: Fate| -> Option<(f64, f64)> {
        probes.iter().try_fold((f64::NEG_INFINITY, f64::INFINITY), |m, p| {
            let v = fate.of(p.sums[to] - p.sums[from], p.sums[s.k]);
            let ends = [p.low / v, p.high / v];
            meet(m, (ends[0].min(ends[1]), ends[0].max(ends[1])))
        })
    };
    let from_here = |from: usize| -> Vec<(usize, usize, Fate)> {
        let fates = [Fate::Lost, Fate::Twice, Fate::Alone];
        let may = |(from, to, fate): &(usize, usize, Fate)| {
            (*from, *to) != (0, s.k)
                && !(*fate == Fate::Alone && (*from == 0 || *to == s.k))
                && gain(*from, *to, *fate).is_some_and(|(low, high)| low > 0.0 && !(low <= 1.0 && 1.0 <= high))
        };
        (from + 1..=s.k).flat_map(|to| fates.map(|fate| (from, to, fate))).filter(may).collect()
    };
    let ranges: Vec<(usize, usize, Fate)> = parallel::collect(s.k, from_here).concat();
    if ranges.len() > 64 {
        return Vec::new();
    }
    let bias = s.bias.clone();
    ranges
        .into_iter()
        .filter_map(|(from, to, fate)| {
            let (low, high) = gain(from, to, fate)?;
            let by = output::roundest(low, high);
            (high - low <= 2.0 * KNOWN * by.abs()).then_some(())?;
            let words = format!("the result is multiplied by {}, which is no stored number", output::short(by, high - low));
            let mut g = Theory::new(Class::StaleState, "out", "out.gain", words).bits(22.0);
            let b = bias.clone();
            g.finish = Some(Arc::new(move |i, j, v| v * by + b.at(i, j)));
            (g.fitted, g.slack) = (true, 0.5 * (high - low) / by.abs());
            slices::theory(s.k, from, to, fate).with(&g).filter(|p| s.explains(p))
        })
        .collect()
}

/// `t`, and a range of K that is lost, counted twice or alone: from the sums over K of one look, checked on the others.
fn ranged(s: &System, t: &Theory, looks: &[Look]) -> Vec<Theory> {
    if s.k < 4 || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let prefix = |l: &Look| -> Option<(Vec<f64>, f64)> {
        let (i, j) = match &t.from {
            Some(from) => from(l.i, l.j).filter(|(i, j)| *i < s.rows && *j < s.cols)?,
            None => (l.i, l.j),
        };
        let mut sums = Vec::with_capacity(s.k + 1);
        sums.push(0.0);
        let (mut sum, mut size) = (0.0, 0.0);
        s.products(t, i, j, |_, p| {
            sum += p;
            size += p.abs();
            sums.push(sum);
        })?;
        (sums.len() == s.k + 1 && sum.is_finite()).then(|| (sums, s.relative * (size + s.bias.at(i, j).abs())))
    };
    let Some((sums, r)) = prefix(&looks[0]) else { return Vec::new() };
    // Where K is long, ranges start and end where steps of a loop do.
    let step = if s.k > FINE { COARSE } else { 1 };
    let ends: Vec<usize> = (0..=s.k).step_by(step).chain((!s.k.is_multiple_of(step)).then_some(s.k)).collect();
    let mut candidates: Vec<(usize, usize, Fate)> = Vec::new();
    let mut many = false;
    let (low, high) = (looks[0].low - r, looks[0].high + r);
    let whole = sums[s.k];
    let mut order: Vec<(f64, usize)> = ends.iter().map(|k| (sums[*k], *k)).collect();
    order.order_by(|a, b| a.0.total_cmp(&b.0));
    for (fate, low, high) in
        [(Fate::Lost, whole - high, whole - low), (Fate::Twice, low - whole, high - whole), (Fate::Alone, low, high)]
    {
        // sums[to] − sums[from] in [low, high]: as the start grows, so does the first end.
        let mut first = 0;
        for (start, from) in order.iter().copied() {
            first += order[first..].iter().take_while(|x| x.0 < start + low).count();
            for (_, to) in order[first..].iter().take_while(|x| x.0 <= start + high) {
                if *to > from && (from, *to) != (0, s.k) && !(fate == Fate::Alone && (from == 0 || *to == s.k)) {
                    candidates.push((from, *to, fate));
                }
            }
            if candidates.len() > 4 * s.k {
                many = true;
                break;
            }
        }
    }
    if many {
        // Where few products are large, many ranges have the same sum: those that end where tiles do.
        let ends: Vec<usize> = (0..=s.k).step_by(8).chain((!s.k.is_multiple_of(8)).then_some(s.k)).collect();
        candidates.clear();
        for (n, from) in ends.iter().enumerate() {
            for to in &ends[n + 1..] {
                for fate in [Fate::Lost, Fate::Twice, Fate::Alone] {
                    let v = fate.of(sums[*to] - sums[*from], whole);
                    let own = (*from, *to) != (0, s.k) && !(fate == Fate::Alone && (*from == 0 || *to == s.k));
                    if own && low <= v && v <= high {
                        candidates.push((*from, *to, fate));
                    }
                }
            }
        }
    }
    for l in &looks[1..] {
        if candidates.is_empty() {
            return Vec::new();
        }
        let Some((sums, r)) = prefix(l) else { return Vec::new() };
        candidates.retain(|(from, to, fate)| {
            let (part, whole) = (sums[*to] - sums[*from], sums[s.k]);
            let v = fate.of(part, whole);
            l.low - r <= v && v <= l.high + r
        });
    }
    candidates.order_by(|x, y| (x.2 as usize, x.0).cmp(&(y.2 as usize, y.0)).then(sums[x.1].total_cmp(&sums[y.1])));
    candidates
        .into_iter()
        .take(8)
        .filter_map(|(from, to, fate)| t.with(&slices::theory(s.k, from, to, fate)).filter(|p| s.explains(p)))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, noise, sum, wide};

    #[test]
    fn one_number_more_on_top_of_another_order_is_told() {
        let k_all = 72;
        let (a, b) = (wide(M, k_all), codes(Format::Int8, N, k_all, k_all, false, 71));
        let (x, y) = (a.to_f64(), b.dequantize());
        // Stored as columns, read as rows.
        let turned = |i: usize, k: usize| ((i * k_all + k) % M, (i * k_all + k) / M);
        let of = |more: &dyn Fn(usize, usize) -> f64| {
            found(&a, &b, None, Format::F32, |i, j, _| sum(k_all, |k| x[turned(i, k)] * y[[j, k]]) + more(i, j))
        };
        let got = of(&|_, _| 0.375);
        assert!(got.0.contains(" + zp_offset:out.shift") && got.1.contains("has 0.375 more"), "{} {}", got.0, got.1);
        assert!(got.1.contains("row by row although they are stored column by column"), "{}", got.1);
        let got = of(&|i, j| noise(i * N + j));
        assert!(!got.0.contains("out.shift"), "{} {}", got.0, got.1);
    }
}
