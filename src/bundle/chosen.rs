//! How wrong scales were chosen, where the codes beside them are right: kept within limits, or chosen over other rows too.

use crate::{QTensor, Tensor};

/// How far a largest magnitude may be from the one that it is said to be, relative.
const NEAR: f64 = 1e-5;
/// Rows that another one is looked for in.
const FAR: usize = 8;

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= NEAR * b.abs()
}

/// A limit that scales are kept at: `stored` scales of `known` groups, those of `rule`.
pub fn clamped(stored: &[f64], rule: &[f64], known: &[usize]) -> Option<String> {
    let wrong: Vec<usize> = known.iter().copied().filter(|g| !near(stored[*g], rule[*g])).collect();
    let limit = stored[*wrong.first()?];
    (wrong.len() >= 2 && wrong.iter().all(|g| stored[*g] == limit)).then_some(())?;
    let (below, above) = (wrong.iter().all(|g| rule[*g] < limit), wrong.iter().all(|g| rule[*g] > limit));
    let other = known.iter().filter(|g| near(stored[**g], rule[**g]));
    // Groups beside it that are on its other side are as they should be.
    let beyond = other.clone().filter(|g| if below { rule[**g] > limit } else { rule[**g] < limit }).count();
    ((below || above) && beyond > 0).then(|| {
        let end = if below { "least" } else { "most" };
        format!("scale_inv is limited to {limit:e} at {end}: {} of {} groups have it", wrong.len(), known.len())
    })
}

/// The other rows whose values a row's largest magnitude also covers: `used` of each row, `amax` the right one.
pub fn of_other_rows(used: &[f64], amax: &[f64]) -> Option<String> {
    let n = amax.len();
    (n >= 4 && used.len() == n).then_some(())?;
    let wrong = (0..n).filter(|i| !near(used[*i], amax[*i])).count();
    (wrong >= 2).then_some(())?;
    let is = |of: &dyn Fn(usize) -> f64| (0..n).filter(|i| near(used[*i], of(*i))).count() + 1 >= n;
    for d in 1..=FAR.min(n - 1) {
        let rows = if d == 1 { "the row".to_string() } else { format!("the {d} rows") };
        if is(&|i| amax[i.saturating_sub(d)..=i].iter().copied().fold(0.0, f64::max)) {
            return Some(format!("amax of a row also covers {rows} before it"));
        }
        if is(&|i| amax[i..n.min(i + d + 1)].iter().copied().fold(0.0, f64::max)) {
            return Some(format!("amax of a row also covers {rows} after it"));
        }
    }
    if is(&|i| amax[..=i].iter().copied().fold(0.0, f64::max)) {
        return Some("amax of a row also covers all rows before it: the maximum is not reset".into());
    }
    for d in (2..=n.min(256)).filter(|d| d.is_power_of_two()) {
        for stride in [1, n.div_ceil(d)] {
            let same = |i: usize, j: usize| if stride == 1 { i / d == j / d } else { i % stride == j % stride };
            if is(&|i| (0..n).filter(|j| same(i, *j)).map(|j| amax[j]).fold(0.0, f64::max)) {
                return Some(if stride == 1 {
                    format!("amax of a row is that of {d} rows together")
                } else {
                    format!("amax of a row is that of all rows that are a multiple of {stride} away")
                });
            }
        }
    }
    // Rows that chain: each also has what the one before was given.
    is(&|i| if i == 0 { amax[0] } else { amax[i].max(used[i - 1]) })
        .then(|| "the amax of each row is carried into the next row".into())
}

/// Columns of a vector whose signs may not be taken off.
const VECTORS: [usize; 2] = [2, 4];

/// Whether all groups have the largest of what a function makes of their columns and values.
type Largest<'x> = dyn Fn(&dyn Fn(usize, f64) -> f64) -> bool + 'x;

/// Whose sign is not taken off before the largest is taken: all values', or those of some columns of each vector; or whether the negative ones alone are
/// seen. `is`: whether all groups have the largest of what is seen of their values, by the column.
pub fn signed(is: &Largest) -> Option<String> {
    if is(&|_, v| v) {
        return Some("amax is the largest value, not the largest magnitude".into());
    }
    if is(&|_, v| -v) {
        return Some("amax is that of the negative values alone".into());
    }
    VECTORS.into_iter().find_map(|n| {
        let some = (1usize..(1 << n) - 1).find(|lanes| is(&|c, v| if lanes >> (c % n) & 1 == 1 { v } else { v.abs() }))?;
        let which = match (n, some) {
            (2, 1) => "even columns: of each pair the sign of one is not taken off".into(),
            (2, _) => "odd columns: of each pair the sign of one is not taken off".into(),
            _ => {
                let lanes: Vec<String> = (0..n).filter(|lane| some >> lane & 1 == 1).map(|lane| lane.to_string()).collect();
                format!("columns {} of each {n}: their sign is not taken off", lanes.join(", "))
            }
        };
        Some(format!("amax does not see negative values in {which}"))
    })
}

/// Groups whose largest magnitude misses some of their elements: `used` of each group, the magnitudes of its elements by lane. The words, and
/// whether other groups have these lanes.
pub fn misses(used: &[f64], groups: &[Vec<(usize, f64)>]) -> Option<(String, bool)> {
    let largest: Vec<f64> = groups.iter().map(|g| g.iter().fold(0.0, |m, e| e.1.max(m))).collect();
    let known: Vec<usize> = (0..groups.len()).filter(|g| largest[*g] > 0.0).collect();
    let wrong: Vec<usize> = known.iter().copied().filter(|g| !near(used[*g], largest[*g])).collect();
    let own = |g: &usize| groups[*g].iter().any(|e| near(used[*g], e.1));
    (wrong.len() >= 3 && wrong.iter().all(own)).then_some(())?;
    let lanes = groups.iter().flatten().map(|e| e.0 + 1).max()?;
    let mut missed = vec![false; lanes];
    let above = |g: usize| groups[g].iter().filter(move |e| e.1 > used[g] * (1.0 + NEAR));
    wrong.iter().flat_map(|g| above(*g)).for_each(|e| missed[e.0] = true);
    // A right group whose largest magnitude is in a lane that is missed elsewhere.
    let has = |g: &&usize| !wrong.contains(g) && groups[**g].iter().filter(|e| near(e.1, largest[**g])).all(|e| missed[e.0]);
    let others = known.iter().filter(has).count();
    let count = missed.iter().filter(|m| **m).count();
    let over = |kept: &dyn Fn(usize) -> bool| {
        let largest = |g: usize| groups[g].iter().filter(|e| kept(e.0)).fold(0.0f64, |m, e| m.max(e.1));
        known.iter().all(|g| near(used[*g], largest(*g)))
    };
    if let Some(words) = strided(&missed, &over) {
        return Some((
            format!("{words}: the scale of {} of {} groups is that of a smaller element", wrong.len(), known.len()),
            false,
        ));
    }
    let words = format!(
        "amax misses {count} of {lanes} lanes of a group ({}) in {} of {} groups: their scale is that of another, smaller element",
        crate::fault::solve::segment::lines(&missed),
        wrong.len(),
        known.len()
    );
    let race = format!(
        "{words}; {others} other groups have the largest element of these lanes, as if lanes were read before they were written"
    );
    Some(if others > 0 { (race, true) } else { (words, false) })
}

/// How rare it is by chance that all lanes that are missed have one remainder.
const RARE: f64 = 1e4;

/// Whether something is so of the lanes that these are.
type Over<'x> = dyn Fn(&dyn Fn(usize) -> bool) -> bool + 'x;

/// Lanes of one remainder that alone are missed, or are not; `over` says whether the maxima are those over the lanes that it is asked for.
fn strided(missed: &[bool], over: &Over) -> Option<String> {
    (1..=5).map(|k| 1usize << k).filter(|step| 4 * step <= missed.len()).find_map(|step| {
        let misses = |rest: usize| missed.iter().skip(rest).step_by(step).filter(|m| **m).count();
        let hit: Vec<usize> = (0..step).filter(|rest| misses(*rest) > 0).collect();
        // Half of the lanes that a remainder has, or so many of one that chance does not make them.
        let alone = hit.len() == 1 && (step as f64).powi(misses(hit[0]) as i32 - 1) >= RARE;
        let most = alone || hit.iter().all(|rest| 2 * step * misses(*rest) >= missed.len() / 2);
        let lone = |rest: usize| format!("{rest}, {}, {}, …", rest + step, rest + 2 * step);
        let kept = || (0..step).find(|rest| !hit.contains(rest));
        let words = match (step, hit.len()) {
            (2, 1) => format!("amax is over the {} columns of a group alone", if hit[0] == 1 { "even" } else { "odd" }),
            (_, 1) => format!("amax misses columns {} of a group", lone(hit[0])),
            (_, n) if n + 1 == step => format!("amax is over columns {} of a group alone", lone(kept()?)),
            _ => return None,
        };
        (most && over(&|lane| !hit.contains(&(lane % step)))).then_some(words)
    })
}

/// Scale and range of affine codes: whether the range of every group was taken without zero, although a zero point has to be inside.
pub fn without_zero(x: &Tensor, q: &QTensor) -> Option<String> {
    let f = q.format();
    let mut ends = vec![(f64::INFINITY, f64::NEG_INFINITY); q.scale_inv().len()];
    for (at, v) in x.data().iter().enumerate() {
        let e = &mut ends[q.scale_index(at / q.cols(), at % q.cols())];
        *e = (e.0.min(f64::from(*v)), e.1.max(f64::from(*v)));
    }
    let span = f.max_finite() - f.min_finite();
    let known: Vec<usize> = (0..ends.len()).filter(|g| ends[*g].1 > ends[*g].0).collect();
    let used = |g: usize| q.affine(g).unit * span;
    let is = |g: &usize| near(used(*g), ends[*g].1 - ends[*g].0);
    let told = known.iter().filter(|g| !near(used(**g), ends[**g].1.max(0.0) - ends[**g].0.min(0.0))).count();
    (told >= 2 && known.iter().all(is)).then(|| {
        format!(
            "the range of a group is taken from its smallest to its largest value, without 0: the zero points of {told} groups lie outside \
             the codes and are cut off"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_that_several_scales_are_kept_at() {
        let rule = [0.1, 0.5, 0.02, 0.3, 0.01];
        let known = [0, 1, 2, 3, 4];
        let stored = rule.map(|s: f64| s.max(0.05));
        assert!(clamped(&stored, &rule, &known).unwrap().contains("limited to 5e-2 at least: 2 of 5"));
        let stored = rule.map(|s: f64| s.min(0.25));
        assert!(clamped(&stored, &rule, &known).unwrap().contains("limited to 2.5e-1 at most: 2 of 5"));
        assert_eq!(clamped(&rule.map(|s| s * 1.5), &rule, &known), None);
        assert_eq!(clamped(&[0.7; 5], &rule, &known), None, "one number for all is no limit");
    }

    #[test]
    fn groups_that_miss_lanes() {
        let groups: Vec<Vec<(usize, f64)>> =
            (0..24).map(|g| (0..16).map(|l| (l, f64::from((g * 7 + l as i32 * 5) % 31) + 1.0)).collect()).collect();
        let over = |g: usize, from: usize| groups[g][from..].iter().fold(0.0f64, |m, e| m.max(e.1));
        let all: Vec<f64> = (0..24).map(|g| over(g, 4)).collect();
        let (words, others) = misses(&all, &groups).unwrap();
        assert!(words.contains("0 … 3") && !others, "{words}");
        let some: Vec<f64> = (0..24).map(|g| over(g, if g < 12 { 4 } else { 0 })).collect();
        assert!(misses(&some, &groups).unwrap().1);
        assert_eq!(misses(&(0..24).map(|g| over(g, 0)).collect::<Vec<_>>(), &groups), None);
        assert_eq!(misses(&(0..24).map(|g| over(g, 0) * 0.77).collect::<Vec<_>>(), &groups), None, "no element's");
    }

    /// Loops that step by more than one element, by the lanes that they read.
    #[test]
    fn an_amax_of_every_second_column_is_told() {
        let groups: Vec<Vec<(usize, f64)>> =
            (0..60).map(|g| (0..32).map(|l| (l, f64::from((g * 577 + l as i32 * 389) % 1009) + 1.0)).collect()).collect();
        let told = |kept: &dyn Fn(usize) -> bool| {
            let over = |g: &Vec<(usize, f64)>| g.iter().filter(|e| kept(e.0)).fold(0.0, |m: f64, e| m.max(e.1));
            misses(&groups.iter().map(over).collect::<Vec<f64>>(), &groups).unwrap().0
        };
        assert!(told(&|l| l % 2 == 0).starts_with("amax is over the even columns of a group alone: the scale of "));
        assert!(told(&|l| l % 2 == 1).starts_with("amax is over the odd columns of a group alone"));
        assert!(told(&|l| l % 4 == 1).starts_with("amax is over columns 1, 5, 9, … of a group alone"));
        assert!(told(&|l| l % 4 != 3).starts_with("amax misses columns 3, 7, 11, … of a group"));
        // Few groups have their largest there: seven lanes of one remainder are no chance, two are.
        let few = |n: usize| {
            let rare: Vec<Vec<(usize, f64)>> = (groups.iter().enumerate())
                .map(|(g, all)| {
                    all.iter().map(|(l, v)| (*l, if l % 4 == 3 && (g >= n || l / 4 != g % 8) { v / 4.0 } else { *v })).collect()
                })
                .collect();
            let over = |g: &Vec<(usize, f64)>| g.iter().filter(|e| e.0 % 4 != 3).fold(0.0, |m: f64, e| m.max(e.1));
            misses(&rare.iter().map(over).collect::<Vec<f64>>(), &rare).map(|m| m.0)
        };
        assert!(few(60).unwrap().starts_with("amax misses columns 3, 7, 11, … of a group"), "{:?}", few(60));
        let half = told(&|l| l < 16);
        assert!(half.starts_with("amax misses ") && half.contains("of 32 lanes"), "{half}");
    }

    #[test]
    fn rows_that_also_cover_others() {
        let amax: Vec<f64> = (0..24).map(|i| f64::from((i * 7 + 3) % 11) + 1.0).collect();
        let with = |of: &dyn Fn(usize) -> f64| of_other_rows(&(0..24).map(of).collect::<Vec<_>>(), &amax);
        assert!(with(&|i| amax[i].max(amax[i.saturating_sub(1)])).unwrap().contains("the row before it"));
        assert!(with(&|i| amax[i..(i + 3).min(24)].iter().copied().fold(0.0, f64::max)).unwrap().contains("the 2 rows after"));
        assert!(with(&|i| amax[..=i].iter().copied().fold(0.0, f64::max)).is_some());
        assert_eq!(with(&|i| amax[i]), None);
        assert_eq!(with(&|i| amax[i] * 1.25), None);
    }

    /// 40 rows, none of which has the amax of another.
    #[test]
    fn other_rows_that_an_amax_covers_are_told_by_their_number_and_side() {
        let n = 40;
        let amax: Vec<f64> = (0..n).map(|i| ((i * 13 + 5) % 43) as f64 + 1.0).collect();
        let over = |rows: &mut dyn Iterator<Item = usize>| rows.map(|i| amax[i]).fold(0.0, f64::max);
        let with = |of: &dyn Fn(usize) -> f64| of_other_rows(&(0..n).map(of).collect::<Vec<_>>(), &amax);
        for d in 1..=FAR {
            let rows = if d == 1 { "the row".to_string() } else { format!("the {d} rows") };
            let before = with(&|i| over(&mut (i.saturating_sub(d)..=i)));
            assert_eq!(before, Some(format!("amax of a row also covers {rows} before it")));
            let after = with(&|i| over(&mut (i..n.min(i + d + 1))));
            assert_eq!(after, Some(format!("amax of a row also covers {rows} after it")));
        }
        for d in [2, 4, 8, 16, 32] {
            let together = with(&|i| over(&mut (0..n).filter(|j| j / d == i / d)));
            assert_eq!(together, Some(format!("amax of a row is that of {d} rows together")));
            let stride = n.div_ceil(d);
            let apart = with(&|i| over(&mut (0..n).filter(|j| j % stride == i % stride)));
            assert_eq!(apart, Some(format!("amax of a row is that of all rows that are a multiple of {stride} away")));
        }
        let reset = with(&|i| over(&mut (0..=i)));
        assert_eq!(reset.unwrap(), "amax of a row also covers all rows before it: the maximum is not reset");
        // Of something larger that was there before.
        let carried = with(&|i| over(&mut (0..=i)).max(30.0));
        assert_eq!(carried.unwrap(), "the amax of each row is carried into the next row");
    }

    /// One row may be another thing; of fewer than four, or of other groups than rows, nothing is told.
    #[test]
    fn rows_that_cover_others_are_all_but_one() {
        let amax: Vec<f64> = (0..24).map(|i| f64::from((i * 7 + 3) % 11) + 1.0).collect();
        let but = |others: usize| {
            let used: Vec<f64> =
                (0..24).map(|i| if i < others { 77.0 } else { amax[i].max(amax[i.saturating_sub(1)]) }).collect();
            of_other_rows(&used, &amax).is_some()
        };
        assert_eq!([but(0), but(1), but(2)], [true, true, false]);
        let rising = |n: usize| of_other_rows(&vec![n as f64; n], &(1..=n).map(|i| i as f64).collect::<Vec<_>>()).is_some();
        assert_eq!([rising(3), rising(4)], [false, true]);
        assert_eq!(of_other_rows(&[3.0; 3], &[1.0, 3.0, 2.0, 1.0, 2.0]), None, "three groups of five rows");
        let mut one = amax.clone();
        one[5] = 50.0;
        assert_eq!(of_other_rows(&one, &amax), None, "one row is wrong");
    }

    /// Two groups at a limit, and one beside them on its other side.
    #[test]
    fn a_limit_has_groups_on_both_sides() {
        let of = |stored: &[f64], rule: &[f64]| clamped(stored, rule, &(0..rule.len()).collect::<Vec<_>>());
        let words = |n: usize, end: &str| Some(format!("scale_inv is limited to 1e0 at {end}: 2 of {n} groups have it"));
        assert_eq!(of(&[1.0, 1.0, 2.0], &[0.5, 0.25, 2.0]), words(3, "least"));
        assert_eq!(of(&[1.0, 1.0, 0.5], &[3.0, 2.0, 0.5]), words(3, "most"));
        assert_eq!(of(&[1.0, 2.0, 3.0], &[0.5, 2.0, 3.0]), None, "one is no limit");
        assert_eq!(of(&[1.0, 1.0], &[0.5, 0.25]), None, "none beside it");
        assert_eq!(of(&[1.0, 1.0, 0.75], &[0.5, 0.25, 0.75]), None, "one below it is as it should be");
        assert_eq!(of(&[1.0, 1.0, 2.0], &[0.5, 3.0, 2.0]), None, "neither the least nor the most");
        assert_eq!(of(&[1.0, 1.5, 2.0], &[0.5, 0.25, 2.0]), None, "two numbers");
    }

    #[test]
    fn columns_whose_sign_is_not_taken_off_are_told() {
        let number = |g: usize, c: usize| ((g * 7919 + c * 131 + g * c * 17) % 1009) as f64 / 500.0 - 1.0;
        let most = |g: usize, sees: &dyn Fn(usize, f64) -> f64| {
            (0..32).map(|c| sees(c, number(g, c))).fold(f64::NEG_INFINITY, f64::max)
        };
        let said = |kernel: &dyn Fn(usize, f64) -> f64| signed(&|sees| (0..24).all(|g| most(g, kernel) == most(g, sees)));
        let lanes = |of: fn(usize) -> bool| move |c: usize, v: f64| if of(c) { v } else { v.abs() };
        assert_eq!(said(&|_, v| v).as_deref(), Some("amax is the largest value, not the largest magnitude"));
        assert_eq!(said(&|_, v| -v).as_deref(), Some("amax is that of the negative values alone"));
        let even = said(&lanes(|c| c % 2 == 0)).unwrap();
        assert!(even.starts_with("amax does not see negative values in even columns"), "{even}");
        let some = said(&lanes(|c| c % 4 == 1 || c % 4 == 2)).unwrap();
        assert!(some.starts_with("amax does not see negative values in columns 1, 2 of each 4"), "{some}");
        assert_eq!(said(&lanes(|c| c % 3 == 0)), None);
        assert_eq!(said(&|_, v| v.abs().min(0.9)), None);
    }
}
