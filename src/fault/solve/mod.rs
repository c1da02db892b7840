//! What a kernel did, solved from what it wrote, and read as a name.
//!
//! ```text
//! System ──► segment: which region is wrong, which elements decide
//!        ──► theories: every formula for scales, zero points, codes, tables, K, experts, addresses; numbers solved where they are free
//!        ──► explains: a theory predicts single elements in f64, and is refused after the first that the bound forbids
//!        ──► split: what explains part of the wrong elements, and what explains the rest
//!        ──► Theory: the name with its parameters, to be replayed and ranked by `diagnose`
//! ```
//!
//! Budgets count theories and multiply-adds, never seconds: the answer is the same everywhere.

pub mod address;
pub mod after;
pub mod behind;
pub mod biases;
pub mod carried;
pub mod codes;
pub mod complete;
pub mod crossed;
pub mod decoded;
pub mod edge;
pub mod effective;
pub mod elsewhere;
pub mod expert_tiles;
pub mod experts;
pub mod foreign;
pub mod fragments;
pub mod gain_places;
pub mod gain_rules;
pub mod given;
pub mod group_scales;
pub mod held;
pub mod in_place;
pub mod kept;
#[cfg(test)]
mod kernel_tests;
pub mod lanes;
pub mod layouts;
pub mod levels;
pub mod line;
pub mod linear;
pub mod maps;
#[cfg(test)]
mod mechanism_tests;
pub mod mixed;
pub mod offsets;
pub mod output;
pub mod part_sums;
pub mod periodic;
pub mod persistent;
#[cfg(test)]
mod place_tests;
pub mod places;
pub mod reach;
pub mod readings;
pub mod rectangles;
pub mod replay;
pub mod reread;
pub mod scale_bytes;
pub mod scale_rows;
pub mod scales;
pub mod screen;
pub mod segment;
pub mod slices;
pub mod solved;
pub mod split;
pub mod stages;
pub mod starts;
pub mod steps;
pub mod sums;
pub mod system;
pub mod table;
#[cfg(test)]
mod tests;
pub mod theory;
pub mod tiles;
pub mod two_numbers;
pub mod values;
pub mod within;
pub mod zeros;

use super::predict::Scene;
use rayon::prelude::*;
pub use system::{System, Theory};
use theory::shortest_first;

/// Theories kept for the ranking.
const KEPT: usize = 24;
/// First faults of a pair, at most; multiply-adds that pairs may take.
const FIRST: usize = 12;
const WORK: usize = 1 << 27;
/// Pairs that are looked at.
const PAIRS: usize = 1 << 17;
/// Elements that a first fault is scored on: every theory on a few, the best on more.
const FEW: usize = 12;
const LOOKS: usize = 40;

/// What explains every probe, the shortest first; one fault, else two.
pub struct Solved<'s> {
    pub system: System<'s>,
    pub singles: Vec<Theory>,
    pub pairs: Vec<Theory>,
    /// What was solved, in words, for what nothing explains.
    pub picture: Option<String>,
}

/// The theories of a product that say the same whatever it is held to; numbers that are fitted come behind them.
fn theories(s: &System) -> Vec<Theory> {
    let mut all = Vec::new();
    for side in s.sides().iter().copied() {
        all.extend(scales::theories(s, side));
        all.extend(in_place::theories(s, side));
        all.extend(zeros::theories(s, side));
        all.extend(decoded::decoded(s, side));
        all.extend(levels::theories(s, side));
        all.extend(scale_bytes::theories(s, side));
        all.extend(zeros::narrow(s, side));
        all.extend(zeros::shifted(s, side));
        all.extend(lanes::theories(s, side));
        all.extend(lanes::strips(s, side));
        all.extend(codes::mixed(s, side));
        all.extend(codes::borrowed(s, side));
        all.extend(codes::addresses(s, side));
        all.extend(layouts::theories(s, side));
        all.extend(values::theories(s, side));
        all.extend(readings::theories(s, side));
        all.extend(readings::rescaled(s, side));
        all.extend(readings::flat(s, side));
        all.extend(readings::nested(s, side));
    }
    all.extend(alike(&all));
    all.extend(lanes::smallest(s));
    all.extend(output::accumulated(s));
    all.extend(output::roundings(s));
    all.extend(places::moves(s));
    all.extend(values::both_turned(s));
    all.extend(steps::theories(s));
    all.extend(sums::theories(s));
    all.extend(sums::ends(s));
    all.extend(reread::theories(s));
    all
}

/// One mistake made with both operands: theories of a and of b that say the same.
fn alike(all: &[Theory]) -> Vec<Theory> {
    let key = |t: &Theory| {
        let detail = t.detail.replace(&format!("of {} ", t.operand), "of x ");
        // The grids may differ.
        let detail = match (detail.find(" of the "), detail.find(" grid")) {
            (Some(from), Some(to)) if from < to => format!("{}{}", &detail[..from], &detail[to..]),
            _ => detail,
        };
        (t.class, t.variant.split_once('.').map(|x| x.1.to_string()), detail)
    };
    let read = |t: &&Theory| t.a.code.is_none() && t.b.code.is_none();
    let of_b: std::collections::HashMap<_, &Theory> =
        all.iter().filter(|t| t.operand == "b").filter(read).map(|t| (key(t), t)).collect();
    all.iter()
        .filter(|t| t.operand == "a")
        .filter(read)
        .filter_map(|a| {
            let b = of_b.get(&key(a))?;
            let mut both = a.and(b)?;
            both.detail = format!("{}; of b as well", a.detail);
            both.bits = a.bits.max(b.bits) + 2.0;
            // Vectors of both that are read as one number are of another granularity.
            if both.class == crate::fault::Class::ScaleShared && a.detail.ends_with("read from row 0 for all") {
                both.class = crate::fault::Class::ScaleLayout;
            }
            Some(both)
        })
        .collect()
}

/// Solves a product: one fault to the bound of sums in f32, or of the device's unit, probable or certain; else one of a kernel that rounds what it dequantizes;
/// else two. `None`: it is none.
pub fn solve<'s>(scene: &'s Scene<'s>, pairs: bool) -> Option<Solved<'s>> {
    let tight = scene.tight();
    // Last the whole certain bound: how a device's unit cuts is not random.
    let mut parts = vec![tight, 1.0, scene.whole()];
    parts.dedup();
    let unheld = System::new(scene)?;
    let mut all: Vec<Theory> = Vec::new();
    let mut fixed = 0;
    let mut tried: Vec<(System, Option<String>)> = Vec::new();
    let mut near: Option<(System, Vec<Theory>)> = None;
    // Operands as they are; rounded; not rounded although the result was held to ones that are.
    for round in [None, Some(true), Some(false)].into_iter().take(if pairs { 3 } else { 1 }) {
        let mut systems: Vec<System> = match round {
            None => parts.iter().filter_map(|p| unheld.clone().held_to(*p)).collect(),
            Some(round) => System::rounded(scene, tight, round).map_or_else(Vec::new, |first| {
                let looser: Vec<System> = parts[1..].iter().filter_map(|p| first.held_again(*p)).collect();
                std::iter::once(first).chain(looser).collect()
            }),
        };
        // Where the result is right, what is wrong stands beside it: any theory that changes nothing would explain it.
        systems.retain(|s| !s.alone || s.is_wrong.contains(&true));
        let Some(loosest) = systems.last() else { continue };
        if tried.is_empty() {
            all = theories(&systems[0]);
            fixed = all.len();
        }
        // What the loosest bound refuses, the others do.
        let may: Vec<Theory> = all[..fixed].par_iter().filter(|t| loosest.may_explain(t)).cloned().collect();
        for (at, system) in systems.into_iter().enumerate() {
            let mut may = may.clone();
            may.extend(output::factors(&system));
            let (singles, picture) = one(&system, &may, true, at > 0);
            // What explains the probes alone stands in nobody's way.
            if singles.par_iter().any(|t| holds(&system, t)) {
                return Some(Solved { system, singles, pairs: Vec::new(), picture });
            }
            if near.is_none() && !singles.is_empty() {
                near = Some((system.clone(), singles));
            }
            tried.push((system, picture));
        }
    }
    // Of a last tile alone that has nothing of the product two faults are not asked.
    let tile = |(s, _): &(System<'s>, Option<String>)| {
        edge::not_computed(s).map(|t| places::old(s).unwrap_or(t)).filter(|t| holds(s, t))
    };
    if pairs
        && near.is_none()
        && let Some((at, t)) = tried.iter().enumerate().find_map(|(n, x)| tile(x).map(|t| (n, t)))
    {
        let (system, picture) = tried.swap_remove(at);
        return Some(Solved { system, singles: vec![t], pairs: Vec::new(), picture });
    }
    if pairs {
        // Two of them: as the operands are, and rounded, else to the largest bound.
        let last = tried.iter().position(|t| t.0.is_rounded()).unwrap_or(tried.len().saturating_sub(1));
        let alone = last == 0 || !tried[last].0.is_rounded() && tells_as_much(&tried[last].0, &tried[0].0);
        for at in if alone { vec![last] } else { vec![0, last] } {
            let Some((system, _)) = tried.get(at) else { continue };
            all.truncate(fixed);
            all.extend(output::factors(system));
            all.extend(address::partial(system));
            // Two regions with a theory each fit many probes: all elements decide before pairs are left out.
            let mut found = within::theories(system, &all);
            found.retain(|t| holds(system, t));
            if !found.is_empty() {
                let (system, picture) = tried.swap_remove(at);
                return Some(Solved { system, singles: found, pairs: Vec::new(), picture });
            }
            found = crossed::theories(system, &all);
            if found.is_empty() {
                found = split::beside(system, &all);
            }
            found.retain(|t| holds(system, t));
            if found.is_empty() {
                found = two(system, &all);
            }
            if found.is_empty() {
                found = crossed::banded(system, &all);
                found.retain(|t| holds(system, t));
            }
            if found.is_empty() {
                found = split::stacked(system, &all);
                found.retain(|t| holds(system, t));
            }
            if !found.is_empty() {
                let (system, picture) = tried.swap_remove(at);
                return Some(Solved { system, singles: Vec::new(), pairs: found, picture });
            }
        }
    }
    if let Some((system, singles)) = near {
        return Some(Solved { system, singles, pairs: Vec::new(), picture: None });
    }
    let (system, picture) = tried.into_iter().next()?;
    let old = || edge::overrun(&system).or_else(|| places::old(&system));
    if let Some(old) = old().filter(|_| pairs) {
        return Some(Solved { system, singles: vec![old], pairs: Vec::new(), picture });
    }
    Some(Solved { system, singles: Vec::new(), pairs: Vec::new(), picture })
}

/// Whether a looser bound refuses nearly what the tighter one does: the steps of the output are wider than both.
fn tells_as_much(loose: &System, tight: &System) -> bool {
    const LOOKS: usize = 40;
    const WIDER: f64 = 1.25;
    let wider = |(i, j): &(usize, usize)| {
        let at = i * loose.cols + j;
        let (low, high) = loose.out.cell(at, loose.actual[at]);
        let width = |s: &System| high - low + 2.0 * s.certain(at);
        !(width(loose) <= WIDER * width(tight))
    };
    let looks = || loose.probes.iter().take(LOOKS);
    10 * looks().filter(|p| wider(p)).count() <= looks().count()
}

/// One fault, and what was solved without a name. With `pairs` both operands may be read wrong, each in its own way; `again`: the same was held to a
/// tighter bound before.
fn one(s: &System, all: &[Theory], pairs: bool, again: bool) -> (Vec<Theory>, Option<String>) {
    let mut found: Vec<Theory> = places::contents(s).into_iter().filter(|t| s.explains(t)).collect();
    found.extend(all.par_iter().filter_map(|t| s.accept(t)).collect::<Vec<_>>());
    // What is solved, each by itself: on all cores, in this order.
    let right = Theory::right();
    let mut solvers: Vec<Solver> = vec![
        Box::new(|| slices::ranges(s)),
        Box::new(|| slices::patterns(s)),
        Box::new(|| kept::theories(s)),
        Box::new(|| experts::scaled(s)),
        Box::new(|| group_scales::theories(s).into_iter().collect()),
        Box::new(|| reach::theories(s)),
        Box::new(|| two_numbers::theories(s)),
        Box::new(|| carried::theories(s)),
        Box::new(|| carried::aside(s)),
        Box::new(|| carried::alone(s)),
        Box::new(|| stages::theories(s)),
    ];
    for side in s.sides().iter().copied() {
        let right = &right;
        solvers.push(Box::new(move || solved::gains(s, right, side)));
        solvers.push(Box::new(move || offsets::offsets(s, right, side)));
        solvers.push(Box::new(move || table::codecs(s, side)));
        solvers.push(Box::new(move || line::line(s, side).into_iter().collect()));
    }
    solvers.push(Box::new(|| elsewhere::theories(s)));
    let accepted = |of: &Solver| -> Vec<Theory> { of().iter().filter_map(|t| s.accept(t)).collect() };
    found.extend(solvers.par_iter().map(accepted).collect::<Vec<_>>().into_iter().flatten());
    if found.is_empty() {
        found.extend(mixed::theories(s).iter().filter_map(|t| s.accept(t)));
    }
    found.extend(experts::theories(s).iter().chain(&places::sources(s)).filter_map(|t| s.accept(t)));
    let named = |t: &Theory| t.class != solved::NAMELESS && (!pairs || holds(s, t));
    if !found.par_iter().any(named) {
        found.extend(rarer(s, pairs, again));
    }
    // A factor of some tiles that no stored number has is nobody's.
    for t in found.iter_mut().filter(|t| t.fitted && t.operand == "out") {
        if t.region.as_ref().is_some_and(|r| !r.tiles.is_empty()) {
            t.class = solved::NAMELESS;
        }
    }
    shortest_first(&mut found);
    // What was solved and has no name is a picture.
    let (nameless, mut found): (Vec<Theory>, Vec<Theory>) = found.into_iter().partition(|t| t.class == solved::NAMELESS);
    found.truncate(KEPT);
    let picture = nameless.into_iter().next().map(|t| t.detail).or_else(|| slices::picture(s));
    (found, picture)
}

/// Theories of one kind.
type Solver<'f> = Box<dyn Fn() -> Vec<Theory> + Send + Sync + 'f>;

/// Whether all sampled elements are what a theory says.
fn holds(s: &System, t: &Theory) -> bool {
    replay::replay(s, t).is_some_and(|(fit, _)| fit.accepted())
}

/// What only a few kernels do, and takes longer to solve: the first kind that explains something. On its own (`pairs`) all sampled elements decide, so
/// that none stands in the way of what a looser bound says.
fn rarer(s: &System, pairs: bool, again: bool) -> Vec<Theory> {
    let kinds: [&(dyn Fn() -> Vec<Theory> + Sync); 16] = [
        &|| periodic::masks(s),
        &|| periodic::overlaps(s),
        &|| periodic::tiles(s),
        // Roundings to 16 bits are seen to any bound.
        &|| if again { Vec::new() } else { carried::kept(s) },
        &|| carried::batches(s),
        &|| persistent::theories(s),
        &|| held::theories(s),
        &|| fragments::theories(s),
        &|| tiles::theories(s),
        &|| behind::theories(s),
        &|| scale_rows::theories(s),
        &|| starts::theories(s),
        &|| address::theories(s, pairs),
        &|| expert_tiles::theories(s),
        &|| part_sums::theories(s),
        &|| foreign::theories(s),
    ];
    let found = |of: &&(dyn Fn() -> Vec<Theory> + Sync)| -> Option<Vec<Theory>> {
        let some: Vec<Theory> = of().iter().filter_map(|t| s.accept(t)).filter(|t| !pairs || holds(s, t)).collect();
        (!some.is_empty()).then_some(some)
    };
    kinds.par_iter().find_map_first(found).unwrap_or_default()
}

/// Those theories that say another value than the right one of any of the first elements; of those that say the same of a few, the shortest.
fn shown(s: &System, all: &[Theory]) -> Vec<Theory> {
    const SAME: usize = 4;
    let right = Theory::right();
    let first: Vec<_> = s.probes.iter().take(8).map(|(i, j)| (*i, *j, s.value(&right, *i, *j))).collect();
    let key = |t: &Theory| -> Option<Vec<u64>> {
        let mut shows = false;
        let mut key = Vec::with_capacity(SAME);
        for (n, (i, j, right)) in first.iter().enumerate() {
            if n >= SAME && shows {
                break;
            }
            let of = s.value(t, *i, *j);
            shows |= match (of, right) {
                (Some((x, ..)), Some((y, ..))) => !((x - y).abs() <= 1e-9 * y.abs()),
                (x, y) => x.is_some() != y.is_some(),
            };
            key.push(of.map_or(1, |v| v.0.to_bits()));
        }
        shows.then_some(key)
    };
    let keys: Vec<Option<Vec<u64>>> = all.par_iter().map(key).collect();
    let mut best: std::collections::HashMap<&[u64], usize> = std::collections::HashMap::new();
    for (n, key) in keys.iter().enumerate().filter_map(|(n, key)| key.as_ref().map(|k| (n, &k[..]))) {
        let of = best.entry(key).or_insert(n);
        if all[n].bits < all[*of].bits {
            *of = n;
        }
    }
    let mut left: Vec<usize> = best.into_values().collect();
    left.sort_unstable();
    left.into_iter().map(|n| all[n].clone()).collect()
}

/// Two faults: the second solved; else any two. What changes nothing is none.
fn two(s: &System, all: &[Theory]) -> Vec<Theory> {
    let some = affordable(all, WORK / (4 * s.k).max(1));
    let all = &shown(s, &some)[..];

    let mut found = complete::completed(s, all);
    if found.iter().all(|t| t.fitted) {
        found.extend(both(s, all));
    }
    found
}

/// So many theories at most: the shortest.
fn affordable(all: &[Theory], most: usize) -> Vec<Theory> {
    let mut all = all.to_vec();
    if all.len() > most {
        shortest_first(&mut all);
        all.truncate(most);
    }
    all
}

/// Two theories at once: those that bring the probes nearest, each with every other.
fn both(s: &System, all: &[Theory]) -> Vec<Theory> {
    // One probe of every theory; a wrong pair is refused after about two.
    let round = (all.len() * s.k).max(1);
    let firsts = (WORK / (2 * round)).min(PAIRS / all.len().max(1)).clamp(2, FIRST);
    let looks = (WORK / round).clamp(6, LOOKS);
    let mut first = nearest(s, all, looks, firsts);
    first.extend(likest(s, all, firsts));
    first.dedup_by_key(|t| std::ptr::from_ref(*t));
    let quick: Vec<Quick> = first.iter().map(|t| Quick::of(s, t)).collect();
    let pairs = |b: &Theory| -> Vec<Theory> {
        let second = Quick::of(s, b);
        let may = |(_, a): &(&&Theory, &Quick)| a.may(s, &second);
        let with = |(a, _): (&&Theory, &Quick)| a.joined(b).filter(|t| s.explains(t)).and_then(|_| a.with(b));
        first.iter().zip(&quick).filter(may).filter_map(with).collect()
    };
    let mut found: Vec<Theory> = all.par_iter().flat_map_iter(pairs).collect();
    shortest_first(&mut found);
    found.truncate(KEPT);
    found
}

/// The theories that bring the probes nearest: all of them on a few probes, the best of those on `looks`.
fn nearest<'t>(s: &System, all: &'t [Theory], looks: usize, most: usize) -> Vec<&'t Theory> {
    let score = |t: &Theory, looks: std::ops::Range<usize>| -> f64 {
        let one = |(i, j): &(usize, usize)| {
            let at = i * s.cols + j;
            let (x, unit) = (s.actual[at], s.ideal[at].abs().max(s.certain(at)).max(1e-300));
            match s.value(t, *i, *j) {
                Some((v, ..)) if x.is_finite() && v.is_finite() => ((x - v).abs() / unit.max(x.abs())).min(1.0),
                _ => 1.0,
            }
        };
        s.probes.iter().skip(looks.start).take(looks.len()).map(one).sum()
    };
    let right = Theory::right();
    let mut left: Vec<&Theory> = all.iter().collect();
    let mut stages = vec![(0..looks.min(FEW), 16 * most), (0..looks, most)];
    // Where that is dear, a first look at a few elements: the worst, which come first, may all be of one fault.
    if all.len() * s.k * FEW > WORK {
        stages.insert(0, (6..10, (all.len() / 4).max(256 * most)));
    }
    for (looks, most) in stages {
        let before = score(&right, looks.clone());
        let mut scored: Vec<(f64, &Theory)> =
            left.par_iter().map(|t| (score(t, looks.clone()), *t)).filter(|(x, _)| *x < before).collect();
        scored.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.bits.total_cmp(&b.1.bits)));
        // What says the same is one.
        scored.dedup_by_key(|(x, _)| *x);
        left = scored.into_iter().take(most).map(|(_, t)| t).collect();
    }
    left
}

/// Elements that a likeness is taken of, at least and at most.
const ALIKE: usize = 16;
const MOST_ALIKE: usize = 48;
/// How far a likeness has to be beyond that of the right result, in standard deviations of none.
const BEYOND: f64 = 2.5;

/// The theories that read other codes, or other values for them, and are most like what was written: it rises or falls with what they say, however
/// far off. A second fault that all codes have, such as another meaning of them, hides how near the first is.
fn likest<'t>(s: &System, all: &'t [Theory], most: usize) -> Vec<&'t Theory> {
    let reads = |t: &&Theory| [&t.a, &t.b].iter().any(|x| x.code.is_some() || x.table.is_some());
    let some: Vec<&Theory> = all.iter().filter(reads).collect();
    let finite = |p: &&(usize, usize)| s.actual[p.0 * s.cols + p.1].is_finite();
    let looks = (WORK / (2 * some.len() * s.k).max(1)).min(MOST_ALIKE);
    let probes: Vec<(usize, usize)> = s.probes.iter().filter(finite).take(looks).copied().collect();
    if probes.len() < ALIKE {
        return Vec::new();
    }
    // In units of what an element may sum: large ones do not decide alone.
    let unit = |i: usize, j: usize| s.certain(i * s.cols + j).max(1e-300);
    let written: Vec<f64> = probes.iter().map(|(i, j)| (s.actual[i * s.cols + j] - s.bias[*j]) / unit(*i, *j)).collect();
    let likeness = |t: &Theory| -> f64 {
        let made = probes.iter().map(|(i, j)| s.value(t, *i, *j).map_or(0.0, |v| (v.0 - s.bias[*j]) / unit(*i, *j)));
        correlation(&made.collect::<Vec<f64>>(), &written).abs()
    };
    let least = likeness(&Theory::right()) + BEYOND / (probes.len() as f64).sqrt();
    let mut scored: Vec<(f64, &Theory)> = some.par_iter().map(|t| (likeness(t), *t)).filter(|(x, _)| *x >= least).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.bits.total_cmp(&b.1.bits)));
    scored.dedup_by_key(|(x, _)| *x);
    scored.into_iter().take(most).map(|(_, t)| t).collect()
}

/// Pearson's, 0 where one does not differ.
fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len() as f64;
    let (mx, my) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(a, b)| f(a - mx, b - my)).sum::<f64>();
    let (xx, yy, xy) = (sum(&|a, _| a * a), sum(&|_, b| b * b), sum(&|a, b| a * b));
    if xx > 0.0 && yy > 0.0 && xy.is_finite() { xy / (xx * yy).sqrt() } else { 0.0 }
}

/// What a theory reads for the first probe, where it only reads an operand otherwise: what refuses most pairs with one sum.
struct Quick {
    a: Option<Vec<f64>>,
    b: Option<Vec<f64>>,
    reads: bool,
}

impl Quick {
    fn of(s: &System, t: &Theory) -> Self {
        let reads =
            t.slack == 0.0 && t.k.is_none() && t.from.is_none() && t.expert.is_none() && t.cut.is_none() && t.region.is_none();
        let place = s.probes.first().and_then(|(i, j)| s.lines(*i, *j));
        let row = |side: &given::Side, g: &given::Given, line: usize, ks: &std::ops::Range<usize>| {
            (!side.is_given()).then(|| side.row(g, line, ks.clone()).into_owned())
        };
        match place.filter(|_| reads && t.finish.is_none() && !s.alone) {
            Some((ra, rb, ks)) => Self { a: row(&t.a, &s.a, ra, &ks), b: row(&t.b, &s.b, rb, &ks), reads },
            None => Self { a: None, b: None, reads: false },
        }
    }

    /// Whether the two may explain the first probe: one changes what is read of a, the other of b.
    fn may(&self, s: &System, other: &Self) -> bool {
        let (a, b) = match (self, other) {
            (Self { a: Some(a), b: None, reads: true }, Self { a: None, b: Some(b), reads: true }) => (a, b),
            (Self { a: None, b: Some(b), reads: true }, Self { a: Some(a), b: None, reads: true }) => (a, b),
            _ => return true,
        };
        let (sum, size) = a.iter().zip(b).fold((0.0, 0.0), |(sum, size), (x, y)| (sum + x * y, size + (x * y).abs()));
        let (i, j) = s.probes[0];
        s.may(i, j, sum, size)
    }
}
