//! Two faults at once, where no single one explains a result: two in two places, the second solved on top of the first, any two.
//!
//! What explains most of two faults is told by how near it brings the result; every other theory is tried with it.

use super::given::{Given, Side};
use super::system::{System, Theory};
use super::theory::shortest_first;
use super::{
    KEPT, address, bias_laws, complete, crossed, group_lists, holds, output, related, row_factors, split, tables_beside, within,
};
use crate::order::Order as _;
use crate::parallel;

/// First faults of a pair, at most; multiply-adds that pairs may take.
const FIRST: usize = 12;
/// Bits of a theory that is no more than a term.
const TERM: f64 = 2.0;
const WORK: usize = 1 << 27;
/// Bits of another table of codes that is tried beside everything.
const MEANING: f64 = 4.5;
/// Pairs that are looked at.
const PAIRS: usize = 1 << 17;
/// Elements that a first fault is scored on: every theory on a few, the best on more.
pub const FEW: usize = 12;
const LOOKS: usize = 40;

/// Systems that were solved for one fault, with what was solved and has no name.
type Tried<'s> = [(System<'s>, Option<String>)];

/// What explains a result by two faults.
pub enum Pairs {
    /// Each in its own place: as one theory.
    OfPlaces(Vec<Theory>),
    OfFaults(Vec<Theory>),
}

/// Two faults: which of the systems they hold in, and what they are. As the operands are, and rounded, else to the largest bound.
pub fn pairs_of(tried: &Tried, all: &mut Vec<Theory>, fixed: usize) -> Option<(usize, Pairs)> {
    let last = tried.iter().position(|t| t.0.is_rounded()).unwrap_or(tried.len().saturating_sub(1));
    let mut of = |at: usize| of_system(&tried.get(at)?.0, all, fixed).map(|found| (at, found));
    if last == 0 {
        return of(last);
    }
    if tried[last].0.is_rounded() {
        // Two faults that the first elements alone allow hide those that make all of them of rounded operands.
        let first = of(0);
        let of_all = |(at, found): &(usize, Pairs)| match found {
            Pairs::OfPlaces(_) => true,
            Pairs::OfFaults(found) => parallel::any(found.len(), &|n| holds(&tried[*at].0, &found[n])),
        };
        return if first.as_ref().is_some_and(of_all) { first } else { of(last).filter(of_all).or(first) };
    }
    // What a larger bound refuses, a smaller one does.
    let loose = of(last)?;
    if tells_as_much(&tried[last].0, &tried[0].0) { Some(loose) } else { of(0).or(Some(loose)) }
}

fn of_system(system: &System, all: &mut Vec<Theory>, fixed: usize) -> Option<Pairs> {
    all.truncate(fixed);
    all.extend(output::factors(system));
    all.extend(address::partial(system));
    all.extend(group_lists::theories(system));
    // Two regions with a theory each fit many probes: all elements decide before pairs are left out.
    let of_all = |mut found: Vec<Theory>| {
        found.retain(|t| holds(system, t));
        (!found.is_empty()).then_some(found)
    };
    if let Some(found) = of_all(within::theories(system, all)) {
        return Some(Pairs::OfPlaces(found));
    }
    of_all(crossed::theories(system, all))
        .or_else(|| of_all(split::beside(system, all)))
        .or_else(|| of_all(tables_beside::theories(system, all)))
        .or_else(|| of_all(row_factors::theories(system, all)))
        .or_else(|| of_all(bias_laws::theories(system)))
        .or_else(|| Some(two(system, all)).filter(|found| !found.is_empty()))
        .or_else(|| of_all(crossed::banded(system, all)))
        .or_else(|| of_all(split::stacked(system, all)))
        .map(Pairs::OfFaults)
}

/// Whether a looser bound refuses nearly what the tighter one does: the steps of the output are wider than both.
pub fn tells_as_much(loose: &System, tight: &System) -> bool {
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

/// Those theories that say another value than the right one of any of the first elements; of those that say the same of some and of the edges, the
/// shortest.
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
    let keys: Vec<Option<Vec<u64>>> = parallel::collect(all.len(), |n| key(&all[n]));
    let mut alike: std::collections::HashMap<&[u64], Vec<usize>> = std::collections::HashMap::new();
    for (n, key) in keys.iter().enumerate().filter_map(|(n, key)| key.as_ref().map(|k| (n, &k[..]))) {
        alike.entry(key).or_default().push(n);
    }
    // What wraps and what ends at the edge say the same but there.
    let (i, j) = s.probes[0];
    let edges = [(s.rows - 1, j), (0, j), (i, s.cols - 1), (i, 0)];
    let more: Vec<(usize, usize)> = edges.into_iter().chain(s.probes.iter().skip(SAME).take(8).copied()).collect();
    let rest =
        |n: usize| -> Vec<u64> { more.iter().map(|(i, j)| s.value(&all[n], *i, *j).map_or(1, |v| v.0.to_bits())).collect() };
    let shortest = |group: &Vec<usize>| -> Vec<usize> {
        if group.len() == 1 {
            return group.clone();
        }
        let mut best: std::collections::HashMap<Vec<u64>, usize> = std::collections::HashMap::new();
        for n in group.iter().copied() {
            let of = best.entry(rest(n)).or_insert(n);
            if all[n].bits < all[*of].bits {
                *of = n;
            }
        }
        best.into_values().collect()
    };
    let groups: Vec<Vec<usize>> = alike.into_values().collect();
    let mut left: Vec<usize> = parallel::flat(&groups, shortest);
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
pub fn affordable(all: &[Theory], most: usize) -> Vec<Theory> {
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
    let fresh = related::fresh(s);
    let mut first: Vec<&Theory> = parallel::flat(&first, |t| Some(*t).filter(|t| related::is_better(s, t, &fresh)));
    // The terms of zero points may be larger than all else: where one is missing, nothing that is right otherwise is near.
    let missing = |t: &&Theory| t.class == crate::fault::Class::ZpCorrection && t.bits <= TERM;
    first.extend(all.iter().filter(missing).filter(|t| !first.iter().any(|f| std::ptr::eq(*f, *t))).collect::<Vec<_>>());
    // Another meaning of the codes hides whatever else is wrong with them.
    let meaning = |t: &&Theory| (t.a.table.is_some() || t.b.table.is_some()) && t.bits <= MEANING;
    let meanings: Vec<&Theory> = all.iter().filter(meaning).filter(|t| !first.iter().any(|f| std::ptr::eq(*f, *t))).collect();
    if meanings.len() * round <= WORK {
        first.extend(meanings);
    }
    let quick: Vec<Quick> = first.iter().map(|t| Quick::of(s, t)).collect();
    let pairs = |b: &Theory| -> Vec<Theory> {
        let second = Quick::of(s, b);
        let may = |(_, a): &(&&Theory, &Quick)| a.may(s, &second);
        let with = |(a, _): (&&Theory, &Quick)| a.joined(b).filter(|t| s.explains(t)).and_then(|_| a.with(b));
        first.iter().zip(&quick).filter(may).filter_map(with).collect()
    };
    let mut found: Vec<Theory> = parallel::flat(all, pairs);
    shortest_first(&mut found);
    found.truncate(KEPT);
    found
}

/// The theories that bring the probes nearest: all of them on a few probes, the best of those on `looks`.
pub fn nearest<'t>(s: &System, all: &'t [Theory], looks: usize, most: usize) -> Vec<&'t Theory> {
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
            parallel::flat(&left, |t| Some((score(t, looks.clone()), *t)).filter(|(x, _)| *x < before));
        scored.order_by(|a, b| a.0.total_cmp(&b.0).then(a.1.bits.total_cmp(&b.1.bits)));
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

/// The theories that read operands otherwise and are most like what was written: it rises or falls with what they say, however far off. A second
/// fault that all elements have, such as another meaning of codes or a scale that is left out, hides how near the first is. All of them on a few
/// elements, the best of those on more.
fn likest<'t>(s: &System, all: &'t [Theory], most: usize) -> Vec<&'t Theory> {
    let reads = |t: &&Theory| !t.a.is_given() || !t.b.is_given();
    let finite = |p: &&(usize, usize)| s.actual[p.0 * s.cols + p.1].is_finite();
    let probes: Vec<(usize, usize)> = s.probes.iter().filter(finite).take(MOST_ALIKE).copied().collect();
    if probes.len() < ALIKE {
        return Vec::new();
    }
    // In units of what an element may sum: large ones do not decide alone.
    let unit = |i: usize, j: usize| s.certain(i * s.cols + j).max(1e-300);
    let likeness = |t: &Theory, probes: &[(usize, usize)]| -> f64 {
        let number = |i: usize, j: usize, x: f64| (x - s.bias.at(i, j)) / unit(i, j);
        let made = probes.iter().map(|(i, j)| s.value(t, *i, *j).map_or(0.0, |v| number(*i, *j, v.0)));
        let written = probes.iter().map(|(i, j)| number(*i, *j, s.actual[i * s.cols + j]));
        correlation(&made.collect::<Vec<f64>>(), &written.collect::<Vec<f64>>()).abs()
    };
    let best = |some: Vec<&'t Theory>, probes: &[(usize, usize)], least: f64, most: usize| -> Vec<&'t Theory> {
        let score = |t: &&'t Theory| Some((likeness(t, probes), *t)).filter(|(x, _)| *x >= least);
        let mut scored: Vec<(f64, &Theory)> = parallel::flat(&some, score);
        scored.order_by(|a, b| b.0.total_cmp(&a.0).then(a.1.bits.total_cmp(&b.1.bits)));
        scored.dedup_by_key(|(x, _)| *x);
        scored.into_iter().take(most).map(|(_, t)| t).collect()
    };
    // As correlations are compared, so that one of nearly 1 is far beyond any.
    let right = likeness(&Theory::right(), &probes).min(1.0).atanh();
    let least = (right + BEYOND / (probes.len() as f64 - 3.0).sqrt()).tanh();
    let some: Vec<&Theory> = all.iter().filter(reads).collect();
    let few = (some.len() / 8).max(16 * most);
    let some = best(some, &probes[..FEW], 0.0, few);
    let few = (some.len() / 4).max(16 * most);
    best(best(some, &probes[..probes.len().min(2 * FEW)], 0.0, few), &probes, least, most)
}

/// Pearson's, 0 where one does not differ.
pub fn correlation(x: &[f64], y: &[f64]) -> f64 {
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
        let row = |side: &Side, g: &Given, line: usize, ks: &std::ops::Range<usize>| {
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

#[cfg(test)]
mod tests {
    use super::correlation;
    use crate::fault::solve::tests::{codes, found, noise, sum, wide};
    use crate::job::Operand;
    use crate::tensor::round_to;
    use crate::{Format, Tensor, Zero};

    #[test]
    fn codes_in_another_order_that_are_decoded_by_another_table_are_told() {
        let (rows, cols, k_all) = (20, 36, 192);
        let (a, b) = (wide(rows, k_all), codes(Format::Int4, cols, k_all, 32, false, 43));
        let x = a.to_f64();
        // Element j of a half of 16 is the low nibble of byte j, element j + 16 the high one; each is the nibble less 8.
        let code = |k: usize| if k % 32 < 16 { k / 32 * 32 + k % 32 * 2 } else { k / 32 * 32 + (k % 32 - 16) * 2 + 1 };
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let read = |k: usize| f64::from(b.codes()[j * k_all + code(k)] & 15) - 8.0;
            sum(k_all, |k| x[[i, k]] * read(k) * f64::from(b.scale_inv()[j * 6 + k / 32]))
        });
        assert!(got.0.contains("pack_permute:b.") && got.0.contains("bits_reinterpreted:b."), "{}: {}", got.0, got.1);
        assert!(got.1.contains("offset by 8"), "{}", got.1);
    }

    /// Weights are rounded to f16 before they are multiplied; of few elements most would be the same without.
    #[test]
    fn two_faults_are_told_where_weights_are_rounded() {
        let (rows, cols, k_all) = (6, 160, 384);
        let v = (0..rows * k_all).map(|x| round_to(Format::F16, (4.0 * noise(3 * x + 5) - 2.0) as f32)).collect();
        let a = Operand::High(Tensor::new(Format::F16, rows, k_all, v).unwrap());
        let b = codes(Format::Uint4, cols, k_all, 64, true, 57);
        let Zero::Integer(zero) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        // Odd columns have the scale of the column before, and rows 4 and 5 read rows 0 and 1.
        let value = |j: usize, k: usize| {
            let (own, read) = (j * 6 + k / 64, j / 2 * 2 * 6 + k / 64);
            let v = (f64::from(b.codes()[j * k_all + k]) - f64::from(zero[own])) * f64::from(b.scale_inv()[read]);
            f64::from(round_to(Format::F16, v as f32))
        };
        let got = found(&a, &b, None, Format::F16, |i, j, _| sum(k_all, |k| x[[i % 4, k]] * value(j, k)));
        assert!(got.0.contains("scale_shared:b.index") && got.0.contains(" + "), "{} {}", got.0, got.1);
        assert!(got.1.contains("row (r / 2)·2") && got.1.contains("mod 4"), "{}", got.1);
    }

    #[test]
    fn a_correlation_is_that_of_what_differs() {
        assert_eq!([correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), correlation(&[1.0, 3.0], &[5.0, 1.0])], [1.0, -1.0]);
        assert_eq!(correlation(&[0.0, 0.0, 2.0, 2.0], &[0.0, 2.0, 0.0, 2.0]), 0.0);
        assert_eq!([correlation(&[1.0; 3], &[1.0, 2.0, 3.0]), correlation(&[1.0, 2.0, 3.0], &[1.0; 3])], [0.0; 2]);
        assert_eq!(correlation(&[1.0, f64::INFINITY], &[1.0, 2.0]), 0.0);
        assert!((correlation(&[1.0, 2.0, 3.0], &[1.0, 3.0, 2.0]) - 0.5).abs() < 1e-15);
    }
}
