//! What a kernel did, solved from what it wrote, and read as a name.
//!
//! ```text
//! System ──► segment: which region is wrong, which elements decide
//!        ──► theories: every formula for scales, zero points, codes, tables, K, experts, addresses; numbers solved where they are free
//!        ──► explains: a theory predicts single elements in f64, and is refused after the first that the bound forbids
//!        ──► Theory: the name with its parameters, to be replayed and ranked by `diagnose`
//! ```
//!
//! Budgets count theories and multiply-adds, never seconds: the answer is the same everywhere.

pub mod codes;
pub mod complete;
pub mod decoded;
pub mod effective;
pub mod experts;
pub mod given;
pub mod linear;
pub mod maps;
pub mod output;
pub mod places;
pub mod replay;
pub mod scales;
pub mod segment;
pub mod slices;
pub mod solved;
pub mod system;
pub mod table;

use super::predict::Scene;
use rayon::prelude::*;
pub use system::{System, Theory};

/// Theories kept for the ranking.
const KEPT: usize = 24;
/// First faults of a pair, at most; multiply-adds that pairs may take.
const FIRST: usize = 12;
const WORK: usize = 1 << 29;

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
        all.extend(scales::zeros(s, side));
        all.extend(decoded::decoded(s, side));
        all.extend(codes::mixed(s, side));
        all.extend(codes::borrowed(s, side));
        all.extend(codes::addresses(s, side));
    }
    all.extend(alike(&all));
    all.extend(output::accumulated(s));
    all.extend(output::roundings(s));
    all.extend(places::moves(s));
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
    let plain = parts.iter().filter_map(|p| System::of(scene, *p));
    let rounded = parts.iter().take(usize::from(pairs) * 3).filter_map(|p| System::rounded(scene, *p));
    let mut all: Vec<Theory> = Vec::new();
    let mut fixed = 0;
    let mut tried: Vec<(System, Option<String>)> = Vec::new();
    for system in plain.chain(rounded) {
        if tried.is_empty() {
            all = theories(&system);
            fixed = all.len();
        }
        all.truncate(fixed);
        all.extend(output::factors(&system));
        let (singles, picture) = one(&system, &all);
        if !singles.is_empty() {
            return Some(Solved { system, singles, pairs: Vec::new(), picture });
        }
        tried.push((system, picture));
    }
    if pairs {
        // Two of them: as the operands are, and rounded, else to the largest bound.
        let last = tried.iter().position(|t| t.0.is_rounded()).unwrap_or(tried.len().saturating_sub(1));
        for at in if last == 0 { vec![0] } else { vec![0, last] } {
            let Some((system, _)) = tried.get(at) else { continue };
            all.truncate(fixed);
            all.extend(output::factors(system));
            let found = two(system, &all);
            if !found.is_empty() {
                let (system, picture) = tried.swap_remove(at);
                return Some(Solved { system, singles: Vec::new(), pairs: found, picture });
            }
        }
    }
    let (system, picture) = tried.into_iter().next()?;
    Some(Solved { system, singles: Vec::new(), pairs: Vec::new(), picture })
}

/// One fault, and what was solved without a name.
fn one(s: &System, all: &[Theory]) -> (Vec<Theory>, Option<String>) {
    let mut found: Vec<Theory> = places::contents(s).into_iter().filter(|t| s.explains(t)).collect();
    found.extend(all.par_iter().filter_map(|t| s.accept(t)).collect::<Vec<_>>());
    found.extend(slices::ranges(s).iter().chain(&slices::patterns(s)).filter_map(|t| s.accept(t)));
    let right = Theory::right();
    for side in s.sides().iter().copied() {
        let numbers = [solved::gains(s, &right, side), solved::offsets(s, &right, side), table::codecs(s, side)];
        found.extend(numbers.iter().flatten().filter_map(|t| s.accept(t)));
    }
    found.extend(experts::theories(s).iter().chain(&places::sources(s)).filter_map(|t| s.accept(t)));
    // A factor of some tiles that no stored number has is nobody's.
    for t in found.iter_mut().filter(|t| t.fitted && t.operand == "out") {
        if t.region.as_ref().is_some_and(|r| !r.tiles.is_empty()) {
            t.class = solved::NAMELESS;
        }
    }
    found.sort_by(|a, b| a.bits.total_cmp(&b.bits));
    // What was solved and has no name is a picture.
    let (nameless, mut found): (Vec<Theory>, Vec<Theory>) = found.into_iter().partition(|t| t.class == solved::NAMELESS);
    found.truncate(KEPT);
    let picture = nameless.into_iter().next().map(|t| t.detail).or_else(|| slices::picture(s));
    (found, picture)
}

/// Whether a theory says another value than the right one of any of the first elements.
fn shows(s: &System, t: &Theory) -> bool {
    let right = Theory::right();
    s.probes.iter().take(8).any(|(i, j)| match (s.value(t, *i, *j), s.value(&right, *i, *j)) {
        (Some((x, ..)), Some((y, ..))) => !((x - y).abs() <= 1e-9 * y.abs()),
        (x, y) => x.is_some() != y.is_some(),
    })
}

/// Two faults: the second solved; else any two. What changes nothing is none.
fn two(s: &System, all: &[Theory]) -> Vec<Theory> {
    let all: Vec<Theory> = all.par_iter().filter(|t| shows(s, t)).cloned().collect();
    let all = &all[..];
    let mut found = complete::completed(s, all);
    if found.iter().all(|t| t.fitted) {
        found.extend(both(s, all));
    }
    found
}

/// Two theories at once: those that bring the probes nearest, each with every other.
fn both(s: &System, all: &[Theory]) -> Vec<Theory> {
    // One probe of every theory; a wrong pair is refused after about two.
    let round = (all.len() * s.k).max(1);
    let (looks, firsts) = ((WORK / round).clamp(6, 40), (WORK / (2 * round)).clamp(2, FIRST));
    let score = |t: &Theory| -> f64 {
        let one = |(i, j): &(usize, usize)| {
            let at = i * s.cols + j;
            let (x, unit) = (s.actual[at], s.ideal[at].abs().max(s.certain(at)).max(1e-300));
            match s.value(t, *i, *j) {
                Some((v, ..)) if x.is_finite() && v.is_finite() => ((x - v).abs() / unit.max(x.abs())).min(1.0),
                _ => 1.0,
            }
        };
        s.probes.iter().take(looks).map(one).sum()
    };
    let before = score(&Theory::right());
    let mut first: Vec<(f64, &Theory)> = all.par_iter().map(|t| (score(t), t)).filter(|(x, _)| *x < before).collect();
    first.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.bits.total_cmp(&b.1.bits)));
    let mut seen: Vec<f64> = Vec::new();
    first.retain(|(x, _)| {
        let new = !seen.contains(x);
        seen.push(*x);
        new
    });
    first.truncate(firsts);
    let pairs: Vec<(&Theory, &Theory)> = first.iter().flat_map(|(_, a)| all.iter().map(move |b| (*a, b))).collect();
    let mut found: Vec<Theory> = pairs.into_par_iter().filter_map(|(a, b)| a.with(b).filter(|t| s.explains(t))).collect();
    found.sort_by(|a, b| a.bits.total_cmp(&b.bits));
    found.truncate(KEPT);
    found
}
