//! Two faults side by side: one makes part of what is wrong, another the rest.
//!
//! ```text
//! blank:   what holds zeros or NaN, beside another fault
//! apart:   runs of wrong rows (or columns) with right ones between them, each solved by itself
//! partly:  theories that make a good part of the wrong elements ──► what they leave, if it is a region, solved by itself, else on top of them
//! ```

use super::system::{Region, System, Theory};
use super::theory::{shortest_first, shortest_of};
use super::{after, contents, edge, memory, one, output, pairs, periodic, related};
use crate::order::Order as _;
use crate::parallel;
use std::sync::Arc;

/// Wrong elements that every theory is looked at on; it has to make two of the first, then this share of more.
const FIRST: usize = 6;
const LOOKS: usize = 14;
const SHARE: f64 = 0.2;
/// Elements that the share is taken of, at most.
const MOST: usize = 40;
/// Theories whose rest is solved, and those that are looked at whole.
const SOLVED: usize = 3;
const WHOLE: usize = 12;
/// A bound over the error, at most.
const TELLS: f64 = 0.25;
/// Multiply-adds of the looks, and of theories that are looked at whole.
const WORK: usize = 1 << 27;
const ROOM: usize = 1 << 31;
/// The fewest elements that a region's theory has to make.
const LEAST: usize = 16;
/// The same beside a region that holds nothing.
const FEWEST: usize = 8;

/// Theories of two faults in two places, the shortest first.
pub fn beside(s: &System, all: &[Theory]) -> Vec<Theory> {
    let mut found = blank(s, all);
    if found.is_empty() {
        found = apart(s, all);
    }
    if found.is_empty() {
        found = partly(s, all);
    }
    shortest_first(&mut found);
    found
}

/// Two theories, the second where its region is.
fn patched(first: &Theory, region: Arc<Region>, second: &Theory) -> Theory {
    let mut t = first.clone();
    let place = format!(", in {}", region.words);
    let detail = if second.detail.ends_with(&place) { second.detail.clone() } else { format!("{}{place}", second.detail) };
    t.detail = format!("{}; and {detail}", first.detail);
    t.variant = format!("{} + {}", first.variant, second.name());
    t.bits = first.bits + second.bits + 12.0;
    t.fitted |= second.fitted;
    let second = Theory { region: None, ..second.clone() };
    t.patch = Some(Arc::new((region, second)));
    t
}

/// Where nothing but `is_wrong` is wrong.
pub fn within<'s>(s: &System<'s>, is_wrong: Vec<bool>) -> Option<System<'s>> {
    let n = is_wrong.iter().filter(|w| **w).count();
    (n >= LEAST).then_some(())?;
    s.of_wrong(is_wrong).filter(|s| s.region.is_some())
}

/// The best single fault of a part.
pub fn best(s: &System, all: &[Theory]) -> Option<Theory> {
    let mut all: Vec<Theory> = all.to_vec();
    all.extend(output::factors(s));
    let (found, _) = one(s, &all, false, true);
    // Numbers that nothing has, on top of another fault, explain whatever it leaves.
    found.into_iter().find(|t| !t.name().contains(" + ") && !t.variant.ends_with(".gains"))
}

/// A region that holds nothing, and what makes the rest.
fn blank(s: &System, all: &[Theory]) -> Vec<Theory> {
    for empty in [|x: f64| x == 0.0, |x: f64| x.is_nan()] {
        let is_empty = |at: usize| s.is_wrong[at] && empty(s.actual[at]);
        let Some(own) = within(s, (0..s.is_wrong.len()).map(is_empty).collect()) else { continue };
        let Some(region) = own.region.clone() else { continue };
        let inside = |at: usize| region.has(at / s.cols, at % s.cols);
        let dense = (0..s.is_wrong.len()).filter(|at| inside(*at)).all(|at| empty(s.actual[at]));
        let rest: Vec<bool> = (0..s.is_wrong.len()).map(|at| s.is_wrong[at] && !inside(at)).collect();
        let Some(content) = contents::contents(&own).into_iter().next().filter(|_| dense) else { continue };
        let first = (rest.iter().filter(|w| **w).count() >= FEWEST).then(|| s.of_wrong(rest)).flatten();
        let first = first.and_then(|rest| best_around(&rest, all, &region));
        let both = first.map(|first| patched(&first, region.clone(), &content)).filter(|p| s.explains(p));
        if let Some(both) = both {
            return vec![both];
        }
    }
    Vec::new()
}

/// The best fault of what lies outside a region: looked for where that is not.
fn best_around(s: &System, all: &[Theory], region: &Region) -> Option<Theory> {
    let mut s = s.clone();
    s.probes.retain(|(i, j)| !region.has(*i, *j));
    best(&s, all)
}

/// Runs of wrong lines with right ones between them.
fn apart(s: &System, all: &[Theory]) -> Vec<Theory> {
    for rows in [true, false] {
        let n = if rows { s.rows } else { s.cols };
        let mut wrong = vec![false; n];
        for at in (0..s.is_wrong.len()).filter(|at| s.is_wrong[*at]) {
            wrong[if rows { at / s.cols } else { at % s.cols }] = true;
        }
        let starts: Vec<usize> = (0..n).filter(|x| wrong[*x] && (*x == 0 || !wrong[x - 1])).collect();
        if starts.len() != 2 {
            continue;
        }
        let part = |second: bool| {
            let line = |at: usize| if rows { at / s.cols } else { at % s.cols };
            let is_wrong = (0..s.is_wrong.len()).map(|at| s.is_wrong[at] && (line(at) >= starts[1]) == second).collect();
            let system = within(s, is_wrong)?;
            let found = best(&system, all)?;
            Some((found, system.region?))
        };
        if let (Some((mut first, region)), Some((second, other))) = (part(false), part(true)) {
            if first.region.is_none() {
                first.detail = format!("{}, in {}", first.detail, region.words);
                first.region = Some(region);
            }
            let both = patched(&first, other, &second);
            if s.explains(&both) {
                return vec![both];
            }
        }
    }
    Vec::new()
}

/// Theories that make a part of what is wrong, and what makes the rest.
fn partly(s: &System, all: &[Theory]) -> Vec<Theory> {
    let wrong: Vec<(usize, usize)> = s.probes.iter().copied().filter(|(i, j)| s.is_wrong[i * s.cols + j]).collect();
    // The worst elements, which come first, may all be of one of the two.
    // A bound that is as wide as the error tells no theory from another.
    let tells = |(i, j): &&(usize, usize)| {
        let at = i * s.cols + j;
        !(s.certain(at) > TELLS * (s.actual[at] - s.ideal[at]).abs())
    };
    let looks: Vec<(usize, usize)> = wrong.iter().skip(8).filter(tells).take(MOST).copied().collect();
    if looks.len() < LOOKS {
        return Vec::new();
    }
    let mut order: Vec<&Theory> = all.iter().filter(|t| t.region.is_none()).collect();
    shortest_of(&mut order);
    order.truncate(WORK / (FIRST * s.k).max(1));
    let count = |t: &Theory, looks: &[(usize, usize)]| looks.iter().filter(|(i, j)| s.makes(t, *i, *j)).count();
    let counted = |t: &&Theory| {
        let n = count(t, &looks[..FIRST]);
        let n = n + if n > 0 { count(t, &looks[FIRST..LOOKS]) } else { 0 };
        (n >= 2).then(|| count(t, &looks)).filter(|n| *n as f64 >= SHARE * looks.len() as f64)
    };
    let mut first: Vec<(usize, &Theory)> = parallel::flat(&order, |t| counted(t).map(|n| (n, *t)));
    first.order_by(|a, b| b.0.cmp(&a.0).then(a.1.bits.total_cmp(&b.1.bits)));
    let n = s.rows * s.cols;
    first.truncate((ROOM / (n * s.k)).clamp(1, WHOLE));
    let whole = |t: &Theory| -> Vec<bool> {
        let t = Theory { a: t.a.written(&s.a), b: t.b.written(&s.b), ..t.clone() };
        parallel::collect(n, |at| s.fits(&t, at / s.cols, at % s.cols))
    };
    let made: Vec<Vec<bool>> = first.iter().map(|(_, t)| whole(t)).collect();
    let mut tried: Vec<&[bool]> = Vec::new();
    for ((_, t), made) in first.iter().zip(&made) {
        // What makes the same elements leaves the same.
        if tried.iter().any(|m| (0..n).filter(|at| m[*at] != made[*at]).count() * 50 < n) {
            continue;
        }
        tried.push(made);
        if tried.len() > SOLVED {
            break;
        }
        let found = completed(s, all, t, made);
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// First faults that a second is solved on top of, all over, and the elements that they are told by.
const STACKED: usize = 4;
const STACKED_LOOKS: usize = 24;

/// Two faults in one place: what is solved where one of the theories that bring the result nearest is taken for right.
pub fn stacked(s: &System, all: &[Theory]) -> Vec<Theory> {
    let some = pairs::affordable(all, WORK / (pairs::FEW * s.k).max(1));
    let solved = |t: &&Theory| -> Option<Theory> {
        let found = |after: System| {
            let second = best(&after, &super::theories(&after))?;
            let joined = after::joined(s, t, &second, &after)?;
            s.explains(&joined).then(|| Theory {
                class: t.class,
                operand: t.operand,
                variant: format!("{} + {}", t.variant, second.name()),
                detail: format!("{}; and {}", t.detail, second.detail),
                bits: t.bits + second.bits + 8.0,
                ..joined
            })
        };
        after::systems(s, t).into_iter().find_map(found)
    };
    let first = pairs::nearest(s, &some, STACKED_LOOKS, STACKED);
    let fresh = related::fresh(s);
    parallel::find(&first, |t| if related::is_better(s, t, &fresh) { solved(t) } else { None }).into_iter().collect()
}

/// `t` where it makes what was written, and what makes the rest of what is wrong.
pub fn completed(s: &System, all: &[Theory], t: &Theory, made: &[bool]) -> Vec<Theory> {
    let n = made.len();
    // Many a theory vanishes where nothing was written: that has its own name.
    if !(0..n).any(|at| s.is_wrong[at] && made[at] && s.actual[at] != 0.0) {
        return Vec::new();
    }
    let left: Vec<bool> = (0..n).map(|at| s.is_wrong[at] && !made[at]).collect();
    let Some(rest) = within(s, left) else { return Vec::new() };
    let Some(region) = rest.region.clone() else { return Vec::new() };
    let outside = |at: &usize| !region.has(at / s.cols, at % s.cols);
    // All over, or in a region of its own beside right elements.
    let mut first = (*t).clone();
    if (0..n).filter(outside).any(|at| !made[at]) {
        let own = (0..n).map(|at| s.is_wrong[at] && made[at] && outside(&at)).collect();
        let Some(own) = within(s, own).and_then(|s| s.region) else { return Vec::new() };
        first.detail = format!("{}, in {}", first.detail, own.words);
        first.region = Some(own);
    }
    // Another may make the same, and be shorter.
    let own: Vec<bool> = (0..n).map(|at| s.is_wrong[at] && outside(&at)).collect();
    let shorter = s.of_wrong(own).and_then(|own| best_around(&own, all, &region)).filter(|x| x.bits < first.bits);
    let explained = |second: Theory| {
        let with = |first: &Theory| Some(patched(first, region.clone(), &second)).filter(|p| s.explains(p));
        shorter.as_ref().and_then(with).or_else(|| with(&first))
    };
    if let Some(found) = best(&rest, all).and_then(explained) {
        return vec![found];
    }
    // On top of it: what reads otherwise as well, or what moves and finishes what it makes.
    let right = |x: &Theory| {
        t.with(x).map(|both| Theory {
            variant: x.variant.clone(),
            class: x.class,
            detail: x.detail.clone(),
            operand: x.operand,
            ..both
        })
    };
    let inside: Vec<(usize, usize)> = rest.probes.iter().copied().filter(|(i, j)| region.has(*i, *j)).take(64).collect();
    let fits = |x: &Theory| inside.iter().all(|(i, j)| s.fits(x, *i, *j));
    let mut above: Vec<Theory> = parallel::flat(all, |x| right(x).filter(|x| fits(x)));
    above.extend(periodic::shares(s).iter().filter_map(right).filter(fits));
    above.extend(contents::contents(&rest));
    shortest_first(&mut above);
    above.extend(edge::overrun(&rest));
    above.extend(edge::not_computed(&rest));
    above.extend(memory::old(&rest));
    if let Some(found) = above.into_iter().find_map(explained) {
        return vec![found];
    }
    // Solved as the only one, where what the first reads is right.
    let solved = |after: System| {
        let after = after.of_wrong(rest.is_wrong.clone())?;
        let second = best(&after, &super::theories(&after))?;
        explained(after::joined(s, t, &Theory { region: None, ..second }, &after)?)
    };
    after::systems(s, t).into_iter().find_map(solved).into_iter().collect()
}
