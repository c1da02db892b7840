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
pub mod experts;
pub mod linear;
pub mod maps;
pub mod output;
pub mod replay;
pub mod scales;
pub mod segment;
pub mod slices;
pub mod system;

use super::edit::Side as Which;
use super::predict::Scene;
use rayon::prelude::*;
pub use system::{System, Theory};

/// Theories kept for the ranking.
const KEPT: usize = 24;
/// First faults of a pair.
const FIRST: usize = 12;

/// What explains every probe, the shortest first; one fault, else two.
pub struct Solved<'s> {
    pub system: System<'s>,
    pub singles: Vec<Theory>,
    pub pairs: Vec<Theory>,
    /// What was solved, in words, for what nothing explains.
    pub picture: Option<String>,
}

/// The theories of one system.
fn theories(s: &System) -> Vec<Theory> {
    let mut all = Vec::new();
    for side in [Which::A, Which::B] {
        all.extend(scales::theories(s, side));
        all.extend(scales::zeros(s, side));
        all.extend(codes::decoded(s, side));
        all.extend(codes::mixed(s, side));
        all.extend(codes::addresses(s, side));
    }
    all.extend(output::factors(s));
    all.extend(output::moves(s));
    all
}

/// Solves a product. `None`: it is none.
pub fn solve<'s>(scene: &'s Scene<'s>, pairs: bool) -> Option<Solved<'s>> {
    let s = System::of(scene)?;
    let mut found: Vec<Theory> = output::contents(&s).into_iter().filter(|t| s.explains(t)).collect();
    let all = theories(&s);
    found.extend(all.par_iter().filter_map(|t| s.accept(t)).collect::<Vec<_>>());
    found.extend(slices::ranges(&s).iter().chain(&slices::patterns(&s)).filter_map(|t| s.accept(t)));
    found.extend(experts::theories(&s).iter().chain(&output::sources(&s)).filter_map(|t| s.accept(t)));
    found.sort_by(|a, b| a.bits.total_cmp(&b.bits));
    found.truncate(KEPT);
    let mut two = Vec::new();
    if found.is_empty() && pairs {
        two = both(&s, &all);
    }
    let picture = slices::picture(&s);
    Some(Solved { system: s, singles: found, pairs: two, picture })
}

/// Two theories at once: those that bring the probes nearest, each with every other.
fn both(s: &System, all: &[Theory]) -> Vec<Theory> {
    let score = |t: &Theory| -> f64 {
        let one = |(i, j): &(usize, usize)| {
            let at = i * s.cols + j;
            let (x, unit) = (s.actual[at], s.ideal[at].abs().max(s.scene.certain(at)).max(1e-300));
            match s.value(t, *i, *j) {
                Some((v, ..)) if x.is_finite() && v.is_finite() => ((x - v).abs() / unit.max(x.abs())).min(1.0),
                _ => 1.0,
            }
        };
        s.probes.iter().take(40).map(one).sum()
    };
    let before = score(&Theory::new(super::Class::VacuousOracle, "out", "", ""));
    let mut first: Vec<(f64, &Theory)> = all.par_iter().map(|t| (score(t), t)).filter(|(x, _)| *x < before).collect();
    first.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.bits.total_cmp(&b.1.bits)));
    let mut seen: Vec<f64> = Vec::new();
    first.retain(|(x, _)| {
        let new = !seen.contains(x);
        seen.push(*x);
        new
    });
    first.truncate(FIRST);
    let pairs: Vec<(&Theory, &Theory)> = first.iter().flat_map(|(_, a)| all.iter().map(move |b| (*a, b))).collect();
    let mut found: Vec<Theory> = pairs
        .into_par_iter()
        .filter_map(|(a, b)| {
            a.and(b).filter(|t| s.explains(t)).map(|mut t| {
                t.variant = format!("{} + {}", a.variant, b.name());
                t
            })
        })
        .collect();
    found.sort_by(|a, b| a.bits.total_cmp(&b.bits));
    found.truncate(KEPT);
    found
}
