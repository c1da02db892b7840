//! Groups along K (gradients of weights) that each take the scales of another group, and sum other tokens than their own: every group is solved by
//! itself, and what all groups did is read as one rule.
//!
//! ```text
//! out[e] = Σ_k a(k)·b(k) · sa[p(e)] · sb[q(e)]         k in from(e) … to(e);   a right kernel: p(e) = q(e) = e, its own tokens
//! ```

use super::experts::Tokens;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::order::Order as _;
use std::ops::Range;
use std::sync::Arc;

/// Elements that a group is told by.
const LOOKS: usize = 16;
/// Sums that are compared for a group, at most.
const WORK: usize = 1 << 26;

/// What one group did.
#[derive(Clone, Debug, PartialEq)]
struct Did {
    /// The groups whose scales it takes, of a and of b.
    from: [usize; 2],
    tokens: Range<usize>,
}

/// Groups with other scales, alone or with other tokens.
pub fn theories(s: &System) -> Option<Theory> {
    let n = s.parts.len();
    (n > 1 && s.parts.iter().any(|p| p.k.len() != s.k)).then_some(())?;
    let tokens = Tokens::of(s)?;
    let did: Vec<Did> = (0..n).map(|e| group(s, &tokens, e)).collect::<Option<_>>()?;
    let filled: Vec<usize> = (0..n).filter(|e| !did[*e].tokens.is_empty()).collect();
    let scaled: Vec<(usize, &str)> =
        [(0, "a"), (1, "b")].into_iter().filter(|(x, _)| filled.iter().any(|e| did[*e].from[*x] != *e)).collect();
    // Other tokens alone are other boundaries.
    let first = *scaled.first()?;
    let rules: Vec<(String, f64, usize)> = scaled
        .iter()
        .map(|(x, name)| {
            let (rule, bits, free) = rule(&did.iter().map(|d| d.from[*x]).collect::<Vec<_>>(), &filled);
            (format!("the scales of {name} of {rule}"), bits, free)
        })
        .collect();
    let words = rules.iter().map(|r| r.0.clone()).collect::<Vec<_>>().join("; ");
    let bits = 8.0 + rules.iter().map(|r| r.1).sum::<f64>();
    let (variant, name) = (format!("{}.group_scale", first.1), first.1);
    let mut t = Theory::new(Class::ScaleShared, name, variant, words).bits(bits);
    t.freedom = rules.iter().map(|r| r.2).sum();
    if let Some((cut, bits)) = cut(s, &did) {
        let second = t.name();
        t.class = Class::GroupBoundary;
        t.variant = format!("tokens_of_groups + {second}");
        t.detail = format!("{cut}; and {}", t.detail);
        t.bits += bits;
    }
    let (part, per, bias, cols) = (s.part.clone(), s.rows / n, s.bias.clone(), s.cols);
    let right: Vec<f64> = s.ideal.to_vec();
    t.finish = Some(Arc::new(move |i, j, v| {
        let Some(e) = part[i] else { return v + bias.at(i, j) };
        let (d, line) = (&did[e], i - e * per);
        let scale = |from: [usize; 2]| tokens.scales[0][from[0]][line] * tokens.scales[1][from[1]][j];
        let sums = tokens.sums(scale(d.from), line, j);
        // What `v` is off the right sum, this one may be in its own scale.
        let off = (v - (right[i * cols + j] - bias.at(i, j))) * scale(d.from) / scale([e, e]);
        sums[d.tokens.end] - sums[d.tokens.start] + if off.is_finite() { off } else { 0.0 } + bias.at(i, j)
    }));
    Some(t)
}

/// What makes the elements of a group: its own scales and tokens where it may; else other scales; else the one end that moved, with its own scales,
/// then with others.
fn group(s: &System, tokens: &Tokens, e: usize) -> Option<Did> {
    let (n, p) = (s.parts.len(), &s.parts[e]);
    let mut places: Vec<(usize, usize)> = p.rows.clone().flat_map(|i| (0..s.cols).map(move |j| (i, j))).collect();
    spread(&mut places, LOOKS);
    // In units of the scales.
    let looks: Vec<(usize, usize, usize, Vec<f64>)> =
        places.iter().map(|(i, j)| (*i, *j, i - p.rows.start, tokens.sums(1.0, i - p.rows.start, *j))).collect();
    let own = p.k.clone();
    let fits = |from: [usize; 2], k: &Range<usize>| {
        looks.iter().all(|(i, j, line, sums)| {
            let scale = tokens.scales[0][from[0]][*line] * tokens.scales[1][from[1]][*j];
            let size: f64 = sums[k.start..=k.end].windows(2).map(|w| (w[1] - w[0]).abs()).sum::<f64>() * scale.abs();
            let sum = (sums[k.end] - sums[k.start]) * scale;
            s.may(*i, *j, sum, size)
        })
    };
    let did = |from: [usize; 2], tokens: &Range<usize>| Did { from, tokens: tokens.clone() };
    if fits([e, e], &own) {
        return Some(did([e, e], &own));
    }
    let mut maps: Vec<[usize; 2]> = (0..n * n).map(|x| [x / n, x % n]).filter(|m| *m != [e, e]).collect();
    maps.order_by_key(|m| usize::from(m[0] != e) + usize::from(m[1] != e));
    if let Some(found) = maps.iter().find(|m| fits(**m, &own)) {
        return Some(did(*found, &own));
    }
    let ends = (0..=s.k).map(|to| own.start..to.max(own.start)).chain((0..=own.end).map(|from| from..own.end));
    let mut ends: Vec<Range<usize>> = ends.filter(|k| !k.is_empty() && *k != own).collect();
    ends.order_by_key(|k| k.start.abs_diff(own.start) + k.end.abs_diff(own.end));
    ends.truncate(WORK / (n * n * s.k).max(1));
    let own_first = std::iter::once([e, e]).chain(maps);
    own_first.flat_map(|m| ends.iter().map(move |k| (m, k))).find(|(m, k)| fits(*m, k)).map(|(m, k)| did(m, k))
}

/// Words, bits, and the group whose scales the x-th group with tokens, e, takes.
type Rule<'f> = (&'f str, f64, &'f dyn Fn(usize, usize) -> usize);

/// Whose scales the groups take, of those that sum tokens: "group e are those of …", its bits, and the groups that follow no rule.
fn rule(map: &[usize], filled: &[usize]) -> (String, f64, usize) {
    let n = map.len();
    let of = |f: &dyn Fn(usize, usize) -> usize| filled.iter().enumerate().all(|(x, e)| map[*e] == f(x, *e));
    let last = filled.len().saturating_sub(1);
    let rules: [Rule; 6] = [
        ("the group before, the first its own", 2.0, &|_, e| e.saturating_sub(1)),
        ("the group behind, the last its own", 2.0, &|_, e| (e + 1).min(n - 1)),
        ("the group before that has tokens, the first its own", 3.0, &|x, _| filled[x.saturating_sub(1)]),
        ("the next group that has tokens, the last its own", 3.0, &|x, _| filled[(x + 1).min(last)]),
        ("the group before that has tokens, wrapped", 3.5, &|x, _| filled[(x + last) % (last + 1)]),
        ("the next group that has tokens, wrapped", 3.5, &|x, _| filled[(x + 1) % (last + 1)]),
    ];
    if let Some((words, bits, _)) = rules.iter().find(|r| of(r.2)) {
        return (format!("group e are those of {words}"), *bits, 0);
    }
    let moved: Vec<usize> = filled.iter().copied().filter(|e| map[*e] != *e).collect();
    let some: Vec<String> = moved.iter().take(6).map(|e| format!("group {e} are those of group {}", map[*e])).collect();
    (some.join(", of "), moved.len() as f64 * (n as f64).log2(), moved.len())
}

/// Which tokens are summed, where they are others than a group's own: one rule for all groups, or each by itself.
fn cut(s: &System, did: &[Did]) -> Option<(String, f64)> {
    let own = |e: usize| &s.parts[e].k;
    let moved: Vec<usize> = (0..did.len()).filter(|e| did[*e].tokens != *own(*e)).collect();
    let first = *moved.first()?;
    let shift = |e: usize| {
        let (k, own) = (&did[e].tokens, own(e));
        (k.start as i64 - own.start as i64, k.end as i64 - own.end as i64)
    };
    let tokens = |n: i64| if n == 1 { "token".to_string() } else { format!("{n} tokens") };
    if (0..did.len()).filter(|e| !own(*e).is_empty()).all(|e| shift(e) == shift(first)) {
        let words = match shift(first) {
            (from @ 1.., 0) => format!("the first {} of every group that has any left out", tokens(from)),
            (from, 0) => format!("every group also sums the {} before it", tokens(-from)),
            (_, to @ 1..) => format!("every group also sums the {} behind it", tokens(to)),
            (_, to) => format!("the last {} of every group that has any left out", tokens(-to)),
        };
        let words =
            words.replace("any left out", if words.contains("tokens ") { "any are left out" } else { "any is left out" });
        return Some((words, 6.0));
    }
    let one = |e: &usize| {
        let (k, own) = (&did[*e].tokens, own(*e));
        format!("group {e} sums tokens {} … {} instead of {} … {}", k.start, k.end, own.start, own.end)
    };
    let words = moved.iter().take(6).map(one).collect::<Vec<_>>().join(", ");
    Some((format!("{words} (ends exclusive)"), 6.0 * moved.len() as f64))
}
