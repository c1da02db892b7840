//! Theories of grouped products: which expert's weights every row met.

use super::maps::cost;
use super::met;
use super::row_lists;
use super::segment::lines;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use crate::order::Order as _;
use std::sync::Arc;

/// Rows by the weights of these experts; their biases come with them or not.
pub fn multiplied(s: &System, map: Vec<Option<usize>>, biased: bool) -> Theory {
    let mut t = Theory::new(Class::GroupBoundary, "b", "rows_of_experts", "");
    let map = Arc::new(map);
    if biased {
        let (bias, map) = (s.bias.clone(), map.clone());
        t.finish = Some(Arc::new(move |i, j, v| map[i].map_or(v, |e| v + bias.of_expert(e, j) * bias.weight(i))));
    }
    t.expert = Some(map);
    t
}

/// The expert whose weights make each row by what `of` makes of a map; `None` where no one's do. A row of zeros met nobody.
fn met_by(s: &System, of: &dyn Fn(Vec<Option<usize>>) -> Theory) -> Option<Vec<Option<usize>>> {
    let mut all = Vec::with_capacity(s.rows);
    let open: Vec<usize> = (0..s.cols).filter(|j| s.region.as_ref().is_none_or(|r| r.cols[*j])).collect();
    let look: Vec<usize> = (0..open.len().min(8)).map(|x| open[x * open.len() / open.len().min(8)]).collect();
    for i in 0..s.rows {
        let zeros = look.iter().all(|j| s.actual[i * s.cols + j] == 0.0);
        let home = s.part[i];
        let by = |e: Option<usize>| {
            let mut map = vec![None; s.rows];
            map[i] = e;
            let t = of(map);
            look.iter().all(|j| s.fits(&t, i, *j))
        };
        let found = if home.is_some() && by(home) { home } else { (0..s.parts.len()).find(|e| by(Some(*e))) };
        if found.is_none() && !zeros {
            return None;
        }
        all.push(found);
    }
    Some(all)
}

/// Theories from the rows' experts.
pub fn theories(s: &System) -> Vec<Theory> {
    let wgrad = s.parts.iter().any(|p| p.k.len() != s.k);
    if wgrad {
        return boundaries(s).or_else(|| boundaries_of_codes(s)).into_iter().collect();
    }
    if s.parts.len() < 2 || s.rows > 8192 {
        return Vec::new();
    }
    // The bias of the expert too, or of the row's own; that of the expert by scales which it should not meet.
    let biased: &[bool] = if s.bias.any() && s.bias.experts() > 1 { &[true, false] } else { &[false] };
    type Makes<'m> = Box<dyn Fn(Vec<Option<usize>>) -> Theory + 'm>;
    let plain = biased.iter().map(|biased| (*biased, Box::new(|map| multiplied(s, map, *biased)) as Makes));
    let scaled =
        met::bias_of_experts(s).into_iter().map(|add| (true, Box::new(move |map| add(multiplied(s, map, false))) as Makes));
    let found = plain.chain(scaled).find_map(|(biased, of)| Some((met_by(s, &of).filter(|m| *m != s.part)?, biased, of)));
    let Some((map, biased, of)) = found else { return Vec::new() };
    let wrong: Vec<bool> = (0..s.rows).map(|i| map[i] != s.part[i]).collect();
    // Rows that nobody multiplies, all others by their own: there may be a rule, and else they are not written.
    let nobodys = (0..s.rows).all(|i| !wrong[i] || map[i].is_none());
    let described = match nobodys {
        true => straddled(s, &wrong).or_else(|| if is_torn(s, &map) { None } else { describe(s, &map) }),
        false => describe(s, &map).or_else(|| row_lists::of(s, &map)),
    };
    let (words, bits) = match described {
        Some(found) => found,
        None if nobodys => return Vec::new(),
        None => {
            let n = wrong.iter().filter(|x| **x).count();
            (format!("rows {} are multiplied by another expert's weights", lines(&wrong)), 6.0 + 2.0 * n as f64)
        }
    };
    let mut t = of(map).bits(bits);
    let beside = std::mem::take(&mut t.detail);
    t.detail = if biased { format!("{words}, whose bias comes with them{beside}") } else { words };
    vec![t]
}

/// Whether some groups have lost all of their rows, and another a part: it does not end early, rows are not written.
fn is_torn(s: &System, map: &[Option<usize>]) -> bool {
    // How many rows each group has lost, and has.
    let groups = s.parts.iter().map(|p| (p.rows.clone().filter(|i| map[*i].is_none()).count(), p.rows.len()));
    let lost: Vec<(usize, usize)> = groups.filter(|(lost, _)| *lost > 0).collect();
    lost.iter().any(|(lost, all)| lost == all) && lost.iter().any(|(lost, all)| lost < all)
}

/// Rows that are not computed because their tile, counted over all rows, belongs to the group of its first row, or of its last.
fn straddled(s: &System, missed: &[bool]) -> Option<(String, f64)> {
    let rows = s.part.iter().take_while(|p| p.is_some()).count();
    let follows =
        |tile: usize, of: &dyn Fn(usize) -> usize| (0..rows).all(|i| missed[i] == (s.part[i] != s.part[of(i / tile * tile)]));
    let tiles = [16usize, 32, 64, 128, 256, 8];
    let (tile, which) = tiles.iter().find_map(|tile| {
        let last = |from: usize| (from + tile - 1).min(rows - 1);
        follows(*tile, &|from| from).then_some((tile, "first")).or_else(|| follows(*tile, &last).then_some((tile, "last")))
    })?;
    let words = format!(
        "tiles of {tile} rows are counted over all groups, and each belongs to the group of its {which} row: rows of another group in it are not \
         computed"
    );
    Some((words, 4.0))
}

/// Gradients of weights whose groups end elsewhere: for every group the one range of K near its own that makes its elements.
fn boundaries(s: &System) -> Option<Theory> {
    let right = Theory::right();
    let whole = |e: usize| {
        let mut t = right.clone();
        let mut cut: Vec<std::ops::Range<usize>> = s.parts.iter().map(|p| p.k.clone()).collect();
        cut[e] = 0..s.k;
        t.cut = Some(Arc::new(cut));
        t
    };
    let mut cut = Vec::new();
    for (e, p) in s.parts.iter().enumerate() {
        let mut places: Vec<(usize, usize)> = p.rows.clone().flat_map(|i| (0..s.cols).map(move |j| (i, j))).collect();
        super::segment::spread(&mut places, 12);
        let all = whole(e);
        let mut sums: Vec<(Vec<f64>, f64, f64)> = Vec::new();
        for (i, j) in places {
            let mut prefix = vec![0.0];
            let (mut sum, mut size) = (0.0, 0.0);
            s.products(&all, i, j, |_, p| {
                sum += p;
                size += p.abs();
                prefix.push(sum);
            })?;
            if let Some((y, half)) = s.written(i, j, size) {
                sums.push((prefix, y, half));
            }
        }
        let fits = |from: usize, to: usize| sums.iter().all(|(x, y, half)| (x[to] - x[from] - y).abs() <= *half);
        let found = if fits(p.k.start, p.k.end) {
            Some((p.k.start, p.k.end))
        } else {
            let mut near: Vec<(usize, usize)> = (0..=s.k)
                .flat_map(|from| (from..=s.k).map(move |to| (from, to)))
                .filter(|(from, to)| fits(*from, *to))
                .collect();
            near.order_by_key(|(from, to)| from.abs_diff(p.k.start) + to.abs_diff(p.k.end));
            near.first().copied()
        };
        let (from, to) = found?;
        cut.push(from..to);
    }
    let moved: Vec<usize> = (0..cut.len()).filter(|e| cut[*e] != s.parts[*e].k).collect();
    let words: Vec<String> = moved
        .iter()
        .take(6)
        .map(|e| {
            format!(
                "group {e} sums tokens {} … {} instead of {} … {}",
                cut[*e].start, cut[*e].end, s.parts[*e].k.start, s.parts[*e].k.end
            )
        })
        .collect();
    (!moved.is_empty()).then_some(())?;
    let mut t = Theory::new(Class::GroupBoundary, "b", "tokens_of_groups", format!("{} (ends exclusive)", words.join(", ")))
        .bits(4.0 + 6.0 * moved.len() as f64);
    ruled(s, &cut, &mut t);
    t.cut = Some(Arc::new(cut));
    Some(t)
}

/// The rules of starts and ends before the list of them; one of each is two faults.
fn ruled(s: &System, cut: &[std::ops::Range<usize>], t: &mut Theory) {
    let right: Vec<std::ops::Range<usize>> = s.parts.iter().map(|p| p.k.clone()).collect();
    let Some((starts, ends)) = super::token_cuts::rules(cut, &right) else { return };
    if starts.is_some() && ends.as_ref().is_some_and(|e| e.lost) {
        t.variant += &format!(" + {}:k.last_tokens", Class::KTail.name());
    }
    let rules: Vec<String> = starts.into_iter().chain(ends.map(|e| e.words)).collect();
    t.detail = format!("{}: {}", rules.join("; and "), t.detail);
    t.bits = 6.0 + 4.0 * rules.len() as f64;
}

/// Scales of groups along K (gradients of weights), each group with another's: of operand a, of b, of both.
pub fn scaled(s: &System) -> Vec<Theory> {
    let n = s.parts.len();
    let mut all = Vec::new();
    if n < 2 {
        return all;
    }
    let part: Arc<Vec<Option<usize>>> = Arc::new(s.part.clone());
    let per = s.rows / n;
    for (side, name) in [(Which::A, "a"), (Which::B, "b")] {
        let Some(scales) = group_scales(s, side).map(Arc::new) else { continue };
        let mut maps: Vec<(String, Vec<usize>)> =
            vec![("the group before".into(), (0..n).map(|e| e.saturating_sub(1)).collect())];
        maps.push(("the last group first".into(), (0..n).rev().collect()));
        maps.extend((1..n).map(|d| (format!("group e + {d}, wrapped"), (0..n).map(|e| (e + d) % n).collect())));
        maps.extend((0..n).map(|e| (format!("group {e} for all"), vec![e; n])));
        for (words, map) in maps {
            let words = format!("the scales of {name} of group e are those of {words}");
            let mut t = Theory::new(Class::ScaleShared, name, format!("{name}.group_scale"), words).bits(6.0);
            let (part, scales, bias) = (part.clone(), scales.clone(), s.bias.clone());
            t.finish = Some(Arc::new(move |i, j, v| {
                let Some(e) = part[i] else { return v + bias.at(i, j) };
                let line = if side == Which::A { i - e * per } else { j };
                v * scales[map[e]][line] / scales[e][line] + bias.at(i, j)
            }));
            all.push(t);
        }
    }
    // Each vector along the other's axis.
    if let (Some(of_a), Some(of_b)) = (group_scales(s, Which::A), group_scales(s, Which::B)) {
        let lines = of_a.iter().chain(&of_b).map(Vec::len).min().unwrap_or(0);
        if lines >= s.cols.max(per) {
            let words = "the scales of a are applied along the columns and those of b along the rows".to_string();
            let mut t = Theory::new(Class::ScaleLayout, "a", "both.other_axis", words).bits(3.0);
            let (part, bias) = (s.part.clone(), s.bias.clone());
            t.finish = Some(Arc::new(move |i, j, v| {
                let Some(e) = part[i] else { return v + bias.at(i, j) };
                let line = i - e * per;
                v / (of_a[e][line] * of_b[e][j]) * (of_b[e][line] * of_a[e][j]) + bias.at(i, j)
            }));
            all.push(t);
        }
    }
    all
}

/// Codes of both operands along K, decoded, and the scales of every group.
pub struct Tokens {
    values: [Vec<f64>; 2],
    pub scales: [Vec<Vec<f64>>; 2],
    k: usize,
}

impl Tokens {
    pub fn of(s: &System) -> Option<Self> {
        let one = |side: Which| -> Option<(Vec<f64>, Vec<Vec<f64>>)> {
            let Operand::Groups(groups) = operand(s.scene.evidence.job, side)?.given() else { return None };
            let rows = s.given(side).rows;
            let mut values = vec![0.0; rows * s.k];
            let mut from = 0;
            for q in groups {
                for (at, code) in q.codes().iter().enumerate() {
                    values[at / q.cols() * s.k + from + at % q.cols()] = q.format().decode(u32::from(*code));
                }
                from += q.cols();
            }
            (from <= s.k && groups.iter().all(|q| matches!(q.zero(), crate::quant::Zero::None))).then_some(())?;
            Some((values, group_scales(s, side)?))
        };
        let ((a, sa), (b, sb)) = (one(Which::A)?, one(Which::B)?);
        Some(Self { values: [a, b], scales: [sa, sb], k: s.k })
    }
    /// Decoded codes of a and of b, and their scales.
    pub fn apart(self) -> ([Vec<f64>; 2], [Vec<Vec<f64>>; 2]) {
        (self.values, self.scales)
    }
    /// The sums of the first k products of an element, by the scales of group `e`.
    fn prefix(&self, e: usize, i: usize, j: usize) -> Vec<f64> {
        self.sums(self.scales[0][e][i] * self.scales[1][e][j], i, j)
    }
    /// The sums of the first k products of an element, by this scale.
    pub fn sums(&self, scale: f64, i: usize, j: usize) -> Vec<f64> {
        let (a, b) = (&self.values[0][i * self.k..(i + 1) * self.k], &self.values[1][j * self.k..(j + 1) * self.k]);
        let mut sum = 0.0;
        let next = |(x, y): (&f64, &f64)| {
            sum += x * y;
            sum * scale
        };
        std::iter::once(0.0).chain(a.iter().zip(b).map(next)).collect()
    }
}

/// One number for each line of an operand in every group.
pub fn group_scales(s: &System, side: Which) -> Option<Vec<Vec<f64>>> {
    let Operand::Groups(groups) = operand(s.scene.evidence.job, side)?.given() else { return None };
    let lines = s.given(side).rows;
    let of = |q: &crate::QTensor| -> Option<Vec<f64>> {
        let all = q.scale_inv();
        (all.len() == 1 || all.len() == lines).then(|| (0..lines).map(|i| f64::from(all[i.min(all.len() - 1)])).collect())
    };
    groups.iter().map(of).collect::<Option<Vec<_>>>().filter(|g| g.len() == s.parts.len())
}

/// [`boundaries`] where every token that a group sums, its own or not, is scaled as the group's: first by the one end that moved.
fn boundaries_of_codes(s: &System) -> Option<Theory> {
    let tokens = Arc::new(Tokens::of(s)?);
    let mut cut = Vec::new();
    for (e, p) in s.parts.iter().enumerate() {
        let mut places: Vec<(usize, usize)> = p.rows.clone().flat_map(|i| (0..s.cols).map(move |j| (i, j))).collect();
        super::segment::spread(&mut places, 12);
        let of = |(i, j): &(usize, usize)| {
            let prefix = tokens.prefix(e, i - p.rows.start, *j);
            let size = prefix.windows(2).map(|w| (w[1] - w[0]).abs()).sum();
            s.written(*i, *j, size).map(|(y, half)| (prefix, y, half))
        };
        let sums: Vec<(Vec<f64>, f64, f64)> = places.iter().filter_map(of).collect();
        let fits = |from: usize, to: usize| sums.iter().all(|(x, y, half)| (x[to] - x[from] - y).abs() <= *half);
        let (start, end) = (p.k.start, p.k.end);
        if fits(start, end) {
            cut.push(start..end);
            continue;
        }
        let mut near: Vec<(usize, usize)> =
            (0..=s.k).flat_map(|from| (from..=s.k).map(move |to| (from, to))).filter(|(from, to)| fits(*from, *to)).collect();
        near.order_by_key(|(from, to)| from.abs_diff(start) + to.abs_diff(end));
        let (from, to) = *near.first()?;
        cut.push(from..to);
    }
    let moved: Vec<usize> = (0..cut.len()).filter(|e| cut[*e] != s.parts[*e].k).collect();
    (!moved.is_empty()).then_some(())?;
    let some: Vec<String> = moved
        .iter()
        .take(6)
        .map(|e| {
            let (new, old) = (&cut[*e], &s.parts[*e].k);
            format!("group {e} sums tokens {} … {} instead of {} … {}", new.start, new.end, old.start, old.end)
        })
        .collect();
    let words = format!("{} (ends exclusive), all with the group's own scales", some.join(", "));
    let mut t = Theory::new(Class::GroupBoundary, "b", "tokens_of_groups", words).bits(5.0 + 6.0 * moved.len() as f64);
    ruled(s, &cut, &mut t);
    let (part, per, bias, cols) = (s.part.clone(), s.rows / s.parts.len().max(1), s.bias.clone(), s.cols);
    let right: Vec<f64> = s.ideal.to_vec();
    t.finish = Some(Arc::new(move |i, j, v| {
        let Some(e) = part[i] else { return v + bias.at(i, j) };
        let prefix = tokens.prefix(e, i - e * per, j);
        // What `v` is off the right sum, this one may be.
        prefix[cut[e].end] - prefix[cut[e].start] + v - (right[i * cols + j] - bias.at(i, j)) + bias.at(i, j)
    }));
    Some(t)
}

/// A map of rows to experts as a rule of groups, or as other boundaries.
fn describe(s: &System, map: &[Option<usize>]) -> Option<(String, f64)> {
    let groups: Option<Vec<Option<usize>>> = s
        .parts
        .iter()
        .map(|p| {
            let mut of = p.rows.clone().map(|i| map[i]);
            let first = of.next().unwrap_or(None);
            of.all(|e| e == first).then_some(first)
        })
        .collect();
    if let Some(groups) = groups {
        let n = groups.len();
        let filled: Vec<usize> = (0..n).filter(|e| !s.parts[*e].rows.is_empty()).collect();
        let is = |f: &dyn Fn(usize) -> usize| filled.iter().all(|e| groups[*e] == Some(f(*e)));
        let before = |e: usize| (0..e).filter(|g| !s.parts[*g].rows.is_empty()).count();
        if is(&|e| (e + 1) % n) {
            return Some(("every group is multiplied by the next one's weights".into(), 2.0));
        }
        if is(&|e| e.saturating_sub(1)) {
            return Some(("every group but the first is multiplied by the weights of the one before".into(), 2.0));
        }
        if is(&|e| (e + n - 1) % n) {
            return Some(("every group is multiplied by the weights of the one before, wrapped".into(), 3.0));
        }
        for e0 in 0..n {
            if is(&|_| e0) {
                return Some((format!("every group is multiplied by the weights of expert {e0}"), 1.0 + cost(e0)));
            }
        }
        if is(&before) {
            return Some(("experts are counted without the empty groups before them".into(), 3.0));
        }
        if is(&|e| n - 1 - e) {
            return Some(("experts are taken from the last to the first".into(), 3.0));
        }
        let some: Vec<String> = filled
            .iter()
            .filter(|e| groups[**e] != Some(**e))
            .map(|e| format!("group {e} by {}", groups[*e].map_or("nobody".into(), |x| format!("expert {x}"))))
            .take(6)
            .collect();
        return Some((format!("the weights of another expert: {}", some.join(", ")), 4.0 + 4.0 * some.len() as f64));
    }
    // Boundaries: the map still ascends.
    let order: Vec<usize> = map.iter().flatten().copied().collect();
    if order.windows(2).all(|w| w[0] <= w[1]) {
        let ends = |map: &[Option<usize>], e: usize| map.iter().rposition(|x| x.is_some_and(|x| x <= e)).map_or(0, |x| x + 1);
        let moved: Vec<(usize, i64)> = (0..s.parts.len())
            .map(|e| (e, ends(map, e) as i64 - s.parts[e].rows.end as i64))
            .filter(|(_, d)| *d != 0)
            .collect();
        let words: Vec<String> = moved
            .iter()
            .take(6)
            .map(|(e, d)| {
                format!(
                    "group {e} ends {} row{} {}",
                    d.abs(),
                    if d.abs() == 1 { "" } else { "s" },
                    if *d > 0 { "late" } else { "early" }
                )
            })
            .collect();
        if moved.is_empty() {
            return None;
        }
        let to: Vec<usize> = moved.iter().map(|(e, d)| (s.parts[*e].rows.end as i64 + d) as usize).collect();
        let aligned =
            [256, 128, 64, 32, 16, 8, 4].into_iter().find(|a| !to.is_empty() && to.iter().all(|x| x % a == 0 || *x == s.rows));
        let tail = aligned.map_or(String::new(), |a| format!(": at multiples of {a}"));
        return Some((format!("{}{tail}", words.join(", ")), 3.0 + 2.0 * moved.len() as f64));
    }
    None
}
