//! What a kernel did, solved from what it wrote, and read as a name.
//!
//! ```text
//! System ──► segment: which region is wrong, which elements decide
//!        ──► theories: every formula for scales, zero points, codes, tables, K, experts, addresses; numbers solved where they are free
//!        ──► explains: a theory predicts single elements in f64, and is refused after the first that the bound forbids
//!        ──► related: what a result has nothing to do with is not searched for, by correlations with a stated rate of misses
//!        ──► split: what explains part of the wrong elements, and what explains the rest
//!        ──► Theory: the name with its parameters, to be replayed and ranked by `diagnose`
//! ```
//!
//! Budgets count theories and multiply-adds, never seconds: the answer is the same everywhere.

pub mod address;
pub mod addresses;
pub mod after;
pub mod aligned;
pub mod atom_strides;
pub mod atoms;
pub mod baked_k;
pub mod batches;
pub mod before_weights;
pub mod behind;
pub mod beyond;
pub mod bias_experts;
pub mod bias_gain;
pub mod bias_laws;
pub mod biases;
pub mod bit_planes;
pub mod borrows;
pub mod both_stages;
pub mod by_element;
pub mod carried;
pub mod chance;
pub mod clear_count;
pub mod codes;
pub mod complete;
pub mod contents;
pub mod crossed;
pub mod decoded;
pub mod decoded_ranges;
pub mod divisors;
pub mod edge;
pub mod effective;
pub mod elsewhere;
pub mod empty_groups;
pub mod expert_axes;
pub mod expert_gains;
pub mod expert_of_cluster;
pub mod expert_of_tile;
pub mod expert_strides;
pub mod expert_tiles;
pub mod experts;
pub mod few_k;
pub mod fixed_codes;
pub mod flat_view;
pub mod float_words;
pub mod foreign;
#[cfg(test)]
mod foreign_tests;
pub mod fractals;
pub mod fragments;
pub mod gain_places;
pub mod gain_rules;
pub mod gathered;
pub mod given;
pub mod group_lists;
pub mod group_rows;
pub mod group_scales;
pub mod group_stages;
pub mod group_tiles;
pub mod half_bytes;
pub mod half_groups;
pub mod headers;
pub mod held;
pub mod in_place;
pub mod k_blocks;
pub mod k_maps;
pub mod kept;
#[cfg(test)]
mod kernel_tests;
pub mod lane_masks;
pub mod lane_orders;
pub mod lane_planes;
pub mod lane_tables;
pub mod lanes;
pub mod late_fragments;
pub mod layouts;
pub mod leftover;
pub mod levels;
pub mod line;
pub mod line_parts;
pub mod linear;
pub mod maps;
#[cfg(test)]
mod mechanism_tests;
pub mod memo;
pub mod memory;
pub mod met;
pub mod met_again;
pub mod mixed;
pub mod moved_tiles;
#[cfg(test)]
mod name_tests;
pub mod nans;
pub mod next_group;
pub mod next_rows;
pub mod offsets;
pub mod one_part;
pub mod out_staged;
pub mod out_tiles;
pub mod output;
pub mod packed_codes;
pub mod packed_results;
pub mod packing;
pub mod padded;
pub mod padded_codes;
pub mod pairs;
pub mod part_scaled;
pub mod part_sums;
pub mod partials;
pub mod periodic;
pub mod persistent;
#[cfg(test)]
mod place_tests;
pub mod places;
pub mod pooled;
pub mod prefetched;
pub mod ran_on;
pub mod rank;
pub mod ranks;
pub mod raw_bits;
pub mod reach;
pub mod readings;
pub mod rectangles;
pub mod registers;
pub mod related;
pub mod replay;
pub mod reread;
pub mod ring;
pub mod rounded_sums;
pub mod row_blocks;
pub mod row_factors;
pub mod row_lists;
pub mod scale_blocks;
pub mod scale_bytes;
pub mod scale_experts;
pub mod scale_late;
pub mod scale_rows;
pub mod scale_runs;
pub mod scales;
pub mod screen;
pub mod segment;
pub mod shared_offsets;
pub mod shared_sums;
pub mod signs;
pub mod skewed_tiles;
pub mod slice_sums;
pub mod slices;
pub mod smem_sums;
pub mod solved;
pub mod special_scales;
pub mod split;
pub mod stage_before;
pub mod staged;
pub mod stages;
pub mod stale_tile;
pub mod starts;
pub mod steps;
pub mod strayed_parts;
pub mod strided_tails;
pub mod sums;
pub mod system;
pub mod table;
pub mod table_orders;
pub mod tables_beside;
#[cfg(test)]
mod tests;
pub mod theory;
pub mod tile_orders;
pub mod tile_slices;
pub mod tiles;
pub mod token_cuts;
pub mod two_numbers;
pub mod uncleared;
pub mod unrelated;
pub mod values;
pub mod vector_lanes;
pub mod whole_sums;
pub mod within;
mod wrong;
pub mod zero_lanes;
pub mod zero_sums;
pub mod zero_terms;
pub mod zeros;

use self::pairs::{Pairs, pairs_of};
use super::predict::Scene;
use crate::parallel;
use std::sync::Arc;
pub use system::{System, Theory};
use theory::shortest_first;

/// Numbers of a theory that are few.
const FREE: usize = 64;
/// Theories kept for the ranking.
const KEPT: usize = 24;

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
        all.extend(scale_late::theories(s, side));
        all.extend(atoms::theories(s, side));
        all.extend(in_place::theories(s, side));
        all.extend(zeros::theories(s, side));
        all.extend(decoded::decoded(s, side));
        all.extend(levels::theories(s, side));
        all.extend(scale_bytes::theories(s, side));
        all.extend(zeros::narrow(s, side));
        all.extend(rounded_sums::theories(s, side));
        all.extend(zeros::shifted(s, side));
        all.extend(lanes::theories(s, side));
        all.extend(lanes::strips(s, side));
        all.extend(codes::mixed(s, side));
        all.extend(borrows::theories(s, side));
        all.extend(aligned::theories(s, side));
        all.extend(raw_bits::theories(s, side));
        all.extend(codes::addresses(s, side));
        all.extend(row_blocks::theories(s, side));
        all.extend(registers::theories(s, side));
        all.extend(pooled::theories(s, side));
        all.extend(layouts::theories(s, side));
        all.extend(values::theories(s, side));
        all.extend(readings::theories(s, side));
        all.extend(readings::rescaled(s, side));
        all.extend(readings::flat(s, side));
        all.extend(readings::shifted(s, side));
        all.extend(readings::nested(s, side));
        all.extend(headers::theories(s, side));
        all.extend(by_element::theories(s, side));
        all.extend(zero_lanes::theories(s, side));
        all.extend(half_bytes::theories(s, side));
        all.extend(packed_codes::theories(s, side));
        all.extend(group_tiles::theories(s, side));
        all.extend(half_groups::theories(s, side));
        all.extend(ring::theories(s, side));
        all.extend(moved_tiles::theories(s, side));
    }
    all.extend(alike(&all));
    all.extend(lanes::smallest(s));
    all.extend(expert_strides::theories(s));
    all.extend(expert_of_tile::theories(s));
    all.extend(expert_of_cluster::theories(s));
    all.extend(atom_strides::theories(s));
    all.extend(expert_axes::theories(s));
    all.extend(scale_blocks::theories(s));
    all.extend(output::accumulated(s));
    all.extend(output::roundings(s));
    all.extend(places::moves(s));
    all.extend(beyond::theory(s));
    all.extend(registers::of_result(s));
    all.extend(values::both_turned(s));
    all.extend(steps::theories(s));
    all.extend(sums::theories(s));
    all.extend(sums::ends(s));
    all.extend(reread::theories(s));
    all.extend(signs::theories(s));
    all.extend(met_again::theories(s));
    all.extend(baked_k::theories(s));
    all.extend(moved_tiles::of_bias(s));
    all.extend(moved_tiles::exchanged(s));
    all
}

/// With a number each, from 1 on.
fn numbered(mut all: Vec<Theory>) -> Vec<Theory> {
    all.iter_mut().enumerate().for_each(|(n, t)| t.id = n + 1);
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
            // Two signs undo each other.
            let b = of_b.get(&key(a)).filter(|_| !a.variant.ends_with(".sign_flipped"))?;
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
    let mut free: Option<Solved> = None;
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
        if systems.is_empty() {
            continue;
        }
        if all.is_empty() {
            all = numbered(theories(&systems[0]));
            fixed = all.len();
        }
        // Sums are the same to any bound.
        let memo = Arc::new(memo::Memo::of(fixed, unheld.rows * unheld.cols));
        systems.iter_mut().for_each(|s| s.memo = Some(memo.clone()));
        let Some(loosest) = systems.last() else { continue };
        // What the loosest bound refuses, the others do.
        let may: Vec<Theory> = parallel::flat(&all[..fixed], |t| loosest.may_explain(t).then(|| t.clone()));
        // Bounds that tell the same of the same elements refuse the same: where the largest leaves nothing, the others do not.
        if let [first, .., last] = &systems[..]
            && pairs::tells_as_much(last, first)
            && first.is_wrong == last.is_wrong
        {
            let (singles, picture) = single(last, &may, false);
            if singles.is_empty() {
                tried.extend(systems.into_iter().map(|s| (s, picture.clone())));
                continue;
            }
        }
        for (at, system) in systems.into_iter().enumerate() {
            // Where the bits are of another arithmetic, elements that are only off by it are right.
            let another = if system.part_of_bound == 1.0 && !scene.bits_tell() { system.held_again(1.0) } else { None };
            if let Some(system) = another {
                let (singles, picture) = single(&system, &may, at > 0);
                if parallel::any(singles.len(), &|n| singles[n].freedom <= FREE && holds(&system, &singles[n])) {
                    return Some(Solved { system, singles, pairs: Vec::new(), picture });
                }
            }
            let (singles, picture) = single(&system, &may, at > 0);
            // What explains the probes alone stands in nobody's way; what has many numbers of its own waits for what has few, to a larger bound.
            if parallel::any(singles.len(), &|n| singles[n].freedom <= FREE && holds(&system, &singles[n])) {
                return Some(Solved { system, singles, pairs: Vec::new(), picture });
            }
            if free.is_none() && parallel::any(singles.len(), &|n| holds(&system, &singles[n])) {
                free = Some(Solved { system, singles, pairs: Vec::new(), picture });
                continue;
            }
            if near.is_none() && !singles.is_empty() {
                near = Some((system.clone(), singles));
            }
            tried.push((system, picture));
        }
    }
    if free.is_some() {
        return free;
    }
    // What groups without tokens hold is another matter than what is wrong with the others.
    if pairs
        && near.is_none()
        && let Some((system, singles)) = tried.iter().find_map(|(s, _)| empty_groups::beside(s, &all[..fixed]))
    {
        return Some(Solved { system, singles, pairs: Vec::new(), picture: None });
    }
    // Of a last tile alone that has nothing of the product two faults are not asked.
    let tile = |(s, _): &(System<'s>, Option<String>)| {
        edge::not_computed(s).map(|t| memory::old(s).unwrap_or(t)).filter(|t| holds(s, t))
    };
    if pairs
        && near.is_none()
        && let Some((at, t)) = tried.iter().enumerate().find_map(|(n, x)| tile(x).map(|t| (n, t)))
    {
        let (system, picture) = tried.swap_remove(at);
        return Some(Solved { system, singles: vec![t], pairs: Vec::new(), picture });
    }
    if pairs && let Some((at, found)) = pairs_of(&tried, &mut all, fixed) {
        let (system, picture) = tried.swap_remove(at);
        let (singles, pairs) = match found {
            Pairs::OfPlaces(found) => (found, Vec::new()),
            Pairs::OfFaults(found) => (Vec::new(), found),
        };
        return Some(Solved { system, singles, pairs, picture });
    }
    if let Some((system, singles)) = near {
        return Some(Solved { system, singles, pairs: Vec::new(), picture: None });
    }
    let (system, picture) = tried.into_iter().next()?;
    let old = || {
        let cleared = || clear_count::quarter(&system).or_else(|| memory::old(&system)).or_else(|| unrelated::theory(&system));
        let cleared = || cleared().or_else(|| leftover::theory(&system));
        edge::overrun(&system).or_else(|| rank::padding(&system)).or_else(cleared)
    };
    if let Some(old) = old().filter(|_| pairs) {
        return Some(Solved { system, singles: vec![old], pairs: Vec::new(), picture });
    }
    Some(Solved { system, singles: Vec::new(), pairs: Vec::new(), picture })
}

/// [`one`] of a whole result, the factors of the whole among the theories.
fn single(s: &System, may: &[Theory], again: bool) -> (Vec<Theory>, Option<String>) {
    let mut all = may.to_vec();
    all.extend(output::factors(s));
    one(s, &all, true, again)
}

/// One fault, and what was solved without a name. With `pairs` both operands may be read wrong, each in its own way; `again`: the same was held to a
/// tighter bound before.
fn one(s: &System, all: &[Theory], pairs: bool, again: bool) -> (Vec<Theory>, Option<String>) {
    let mut found: Vec<Theory> = contents::contents(s).into_iter().filter(|t| s.explains(t)).collect();
    found.extend(nans::theories(s).into_iter().chain(special_scales::theories(s)).filter(|t| s.explains(t)));
    found.extend(parallel::flat(all, |t| s.accept(t)));
    // What is solved, each by itself: on all cores, in this order.
    let right = Theory::right();
    let unlike = related::is_unlike(s);
    // What keeps a part of the right sums is not searched for where there is none.
    let like = |of: &dyn Fn() -> Vec<Theory>| if unlike { Vec::new() } else { of() };
    // What mixes K leaves nothing of them: asked of a whole result.
    let mixing = |of: &dyn Fn() -> Vec<Theory>| if pairs { of() } else { like(of) };
    let (like, mixing) = (&like, &mixing);
    let mut solvers: Vec<Solver> = vec![
        Box::new(|| slices::ranges(s)),
        Box::new(|| slices::patterns(s)),
        Box::new(|| like(&|| kept::theories(s))),
        Box::new(|| experts::scaled(s)),
        Box::new(|| scale_experts::theories(s)),
        Box::new(|| group_lists::theories(s)),
        Box::new(|| expert_gains::theories(s)),
        Box::new(|| bias_experts::theories(s)),
        Box::new(|| like(&|| group_scales::theories(s).into_iter().collect())),
        Box::new(|| reach::theories(s)),
        Box::new(|| edge::spilled(s).into_iter().collect()),
        Box::new(|| two_numbers::theories(s)),
        Box::new(|| packed_results::theories(s)),
        Box::new(|| like(&|| carried::theories(s))),
        Box::new(|| like(&|| carried::aside(s))),
        Box::new(|| like(&|| carried::alone(s))),
        Box::new(|| mixing(&|| stages::theories(s))),
        Box::new(|| mixing(&|| both_stages::theories(s))),
        // Before cells are told one by one: powers of two fit many.
        Box::new(|| like(&|| atoms::parts(s))),
    ];
    for side in s.sides().iter().copied() {
        let right = &right;
        solvers.push(Box::new(move || like(&|| solved::gains(s, right, side))));
        solvers.push(Box::new(move || offsets::offsets(s, right, side)));
        solvers.push(Box::new(move || mixing(&|| table::codecs(s, side))));
        solvers.push(Box::new(move || line::line(s, side).into_iter().collect()));
        solvers.push(Box::new(move || zero_sums::theories(s, side)));
    }
    solvers.push(Box::new(|| elsewhere::theories(s)));
    let accepted = |of: &Solver| -> Vec<Theory> { of().iter().filter_map(|t| s.accept(t)).collect() };
    found.extend(parallel::flat(&solvers, accepted));
    if found.is_empty() && (pairs || !unlike) {
        found.extend(mixed::theories(s).iter().filter_map(|t| s.accept(t)));
    }
    found.extend(experts::theories(s).iter().chain(&places::sources(s)).filter_map(|t| s.accept(t)));
    let named = |t: &Theory| t.class != solved::NAMELESS && (!pairs || holds(s, t));
    if !parallel::any(found.len(), &|n| named(&found[n])) {
        found.extend(rarer(s, pairs, again));
    } else if found.iter().all(|t| t.freedom > FREE) {
        // Places that were found one by one, many of them, may have a formula.
        found.extend(address::theories(s, false).iter().filter_map(|t| s.accept(t)));
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
    // Of what keeps a part of the right sums nothing is searched for where there is none.
    let unlike = related::is_unlike(s);
    let like = |of: &dyn Fn() -> Vec<Theory>| if unlike { Vec::new() } else { of() };
    let kinds: [&(dyn Fn() -> Vec<Theory> + Sync); 64] = [
        &|| like(&|| periodic::masks(s)),
        &|| like(&|| periodic::overlaps(s)),
        &|| periodic::tiles(s),
        // Roundings to 16 bits are seen to any bound.
        &|| if again || unlike { Vec::new() } else { carried::kept(s) },
        &|| carried::batches(s),
        &|| persistent::theories(s),
        &|| held::theories(s),
        &|| like(&|| fragments::theories(s)),
        &|| like(&|| tile_slices::theories(s)),
        &|| tiles::theories(s),
        &|| like(&|| behind::theories(s)),
        &|| like(&|| scale_rows::theories(s)),
        &|| batches::theories(s),
        &|| staged::theories(s),
        &|| starts::theories(s),
        &|| divisors::theories(s),
        &|| layouts::turned(s),
        &|| group_rows::theories(s),
        &|| bit_planes::theories(s),
        &|| decoded_ranges::theories(s),
        &|| packed_codes::in_ranges(s),
        &|| fixed_codes::theories(s),
        &|| address::theories(s, pairs),
        &|| like(&|| group_stages::theories(s)),
        &|| next_group::theories(s),
        &|| next_rows::theories(s),
        &|| expert_tiles::theories(s),
        &|| part_sums::theories(s),
        &|| one_part::theories(s),
        &|| like(&|| slice_sums::theories(s)),
        &|| part_scaled::theories(s),
        &|| k_blocks::theories(s),
        &|| vector_lanes::theories(s),
        &|| like(&|| strayed_parts::theories(s)),
        &|| padded_codes::theories(s),
        &|| s.sides().iter().flat_map(|side| whole_sums::theories(s, *side)).collect(),
        &|| like(&|| ranks::theories(s)),
        &|| out_tiles::theories(s),
        &|| out_staged::theories(s),
        &|| fractals::theories(s),
        &|| prefetched::theories(s),
        &|| like(&|| stage_before::theories(s)),
        &|| flat_view::theories(s),
        &|| like(&|| ran_on::theories(s)),
        &|| like(&|| uncleared::theories(s)),
        &|| like(&|| few_k::theories(s)),
        &|| like(&|| partials::theories(s)),
        &|| smem_sums::theories(s),
        &|| stale_tile::theories(s),
        &|| late_fragments::theories(s),
        &|| shared_sums::theories(s),
        &|| like(&|| shared_offsets::theories(s)),
        &|| skewed_tiles::theories(s),
        &|| k_maps::squares(s),
        &|| float_words::theories(s),
        &|| like(&|| line_parts::theories(s)),
        // Of a whole result: it takes many elements.
        &|| if pairs { k_maps::theories(s) } else { Vec::new() },
        &|| like(&|| lane_masks::theories(s)),
        &|| lane_planes::theories(s),
        &|| like(&|| lane_tables::theories(s)),
        &|| strided_tails::theories(s),
        &|| zero_terms::theories(s),
        &|| if unlike && (again || !pairs) { Vec::new() } else { addresses::theories(s, unlike) },
        &|| foreign::theories(s),
    ];
    let found = |of: &&(dyn Fn() -> Vec<Theory> + Sync)| -> Option<Vec<Theory>> {
        let some: Vec<Theory> = of().iter().filter_map(|t| s.accept(t)).filter(|t| !pairs || holds(s, t)).collect();
        (!some.is_empty()).then_some(some)
    };
    parallel::find(&kinds, found).unwrap_or_default()
}
