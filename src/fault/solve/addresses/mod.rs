//! Scales and zero points that a kernel reads elsewhere in memory, by any affine address: where each line's lie is solved by value, and told by digits.
//!
//! ```text
//! out[i, j] = Σ_u number[first(x) + place(u)] · Σ_{k in u} code·other          x: the line, u: units of K of one length
//! place(u)  = near · (u mod d) + far · (u / d)                                  one stride along K, or two
//! first(x)  = Σ by · digit of x  +  a step for each expert                      solved: the only places that make all elements of a line
//! ```

mod crossed;
mod digits;
mod units;
mod views;

use self::digits::{CANDIDATES, DigitMap, solve};
use self::units::{Memory, Units, What, memories, units};
use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;
use crate::parallel;
use std::sync::Arc;

/// Multiply-adds of all memories, where a result is unlike the right one, of one memory, and of one whose strides are all asked.
const WORK: usize = 1 << 28;
const LESS: usize = 1 << 26;
const EACH_WORK: usize = 1 << 26;
const STRIDES: usize = 1 << 25;
/// Elements of a line, the fewest of them, lines that refuse a place along K, and those that tell digits.
const EACH: usize = 12;
const LEAST: usize = 4;
const FIRST: usize = 3;
const MISSED: usize = 2;
const LINES: usize = 48;
/// Units of K, and theories that are handed on.
const UNITS: usize = 512;
const KEPT: usize = 4;
/// Places along K whose lines are solved.
const TOLD: usize = 16;

/// Places of the units of K behind a line's first.
#[derive(Clone, Debug)]
struct Along {
    long: usize,
    near: usize,
    /// Units that the near stride goes on for, and the stride from there to the next.
    turn: Option<(usize, usize)>,
    places: Arc<Vec<i64>>,
}

impl Along {
    fn of(long: usize, n: usize, near: usize, turn: Option<(usize, usize)>) -> Self {
        let one = |u: usize| match turn {
            Some((d, far)) => u % d * near + u / d * far,
            None => u * near,
        };
        Self { long, near, turn, places: Arc::new((0..n).map(|u| one(u) as i64).collect()) }
    }

    fn words(&self) -> Vec<String> {
        let times = |by: usize, of: String| if by == 1 { of } else { format!("{by}·{of}") };
        let one = |long: usize| if long == 1 { "k".to_string() } else { format!("(k / {long})") };
        match self.turn {
            None if self.near == 0 || self.places.len() < 2 => Vec::new(),
            None => vec![times(self.near, one(self.long))],
            Some((d, far)) => {
                let part = if self.long == 1 { format!("(k mod {d})") } else { format!("(k / {} mod {d})", self.long) };
                vec![times(far, format!("(k / {})", self.long * d)), times(self.near, part)]
            }
        }
    }

    fn bits(&self, right: usize) -> f64 {
        let long = if self.long == right { 0.0 } else { cost(self.long) };
        cost(self.near) + long + self.turn.map_or(0.0, |(d, far)| cost(d) + cost(far))
    }
}

/// A line of one operand: its group, its place there, and elements of it.
struct Line {
    expert: usize,
    x: usize,
    looks: Vec<(usize, usize)>,
    wrong: bool,
}

/// Of both operands of a product that sums all of K. What has nothing to do with the right result, as where zero points are most of it, is asked less.
pub fn theories(s: &System, unlike: bool) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let found: Vec<Theory> =
        s.sides().iter().flat_map(|side| of(s, *side, if unlike { LESS } else { WORK })).filter(|t| s.explains(t)).collect();
    if found.is_empty() { crossed::theories(s) } else { found }
}

fn of(s: &System, side: Which, mut work: usize) -> Vec<Theory> {
    let g = s.given(side);
    let memories = memories(g, s.experts(side));
    if memories.is_empty() {
        return Vec::new();
    }
    let lines = lines(s, side);
    let mut first: Vec<&Line> = lines.iter().filter(|l| l.wrong).collect();
    spread(&mut first, FIRST + MISSED);
    if first.len() < FIRST || lines.len() < 2 * FIRST {
        return Vec::new();
    }
    let mut found: Vec<Theory> = Vec::new();
    for long in longs(g.tile.1, s.k) {
        let n = s.k.div_ceil(long);
        for what in [What::Scale, What::Zero, What::Both] {
            // Numbers of another width go with groups of their own.
            let some: Vec<&Memory> =
                memories.iter().filter(|m| m.what == what && (m.bits <= 2.0 || long == g.tile.1)).collect();
            let elements =
                |l: &Line| -> Vec<Units> { l.looks.iter().filter_map(|at| units(s, side, what, long, *at)).collect() };
            let held: Vec<Vec<Units>> = first.iter().filter(|_| !some.is_empty()).map(|l| elements(l)).collect();
            if held.len() < FIRST || held.iter().any(|e| e.len() < LEAST) {
                continue;
            }
            for memory in some {
                let mut all = alongs(s, side, long, n, memory);
                all.truncate(work.min(EACH_WORK) / (memory.p.len() * n).max(1));
                work -= all.len() * memory.p.len() * n;
                // A few of the lines may lie behind the end.
                let may = |along: &Along| -> Option<Along> {
                    let (mut hit, mut missed) = (0, 0);
                    for e in &held {
                        if bases(s, memory, e, along, 1).is_empty() {
                            missed += 1;
                        } else {
                            hit += 1;
                        }
                        if missed > held.len() - FIRST {
                            return None;
                        }
                    }
                    (hit >= FIRST).then(|| along.clone())
                };
                let left = parallel::flat(&all, may);
                found.extend(left.iter().take(TOLD).flat_map(|along| told(s, side, memory, along, &lines, &elements)));
            }
        }
        if found.len() >= KEPT {
            break;
        }
    }
    found.order_by(|a, b| a.bits.total_cmp(&b.bits));
    found.truncate(2 * KEPT);
    found
}

/// Lengths that K may be divided into.
fn longs(own: usize, k: usize) -> Vec<usize> {
    let mut all = vec![own.min(k)];
    for long in [32usize, 64, 128, 256, 16, own / 2, own * 2] {
        if long >= 8 && long < k && k.div_ceil(long) <= UNITS && !all.contains(&long) {
            all.push(long);
        }
    }
    all.retain(|l| *l > 0 && k.div_ceil(*l) <= UNITS);
    all
}

/// Places along K: any stride where the memory is small, else those of a grid; and two strides.
fn alongs(s: &System, side: Which, long: usize, n: usize, memory: &Memory) -> Vec<Along> {
    let g = s.given(side);
    let (len, (rows, cols)) = (memory.p.len(), g.grid);
    let per = rows / s.experts(side).max(1);
    if n < 2 {
        return vec![Along::of(long, n, 0, None)];
    }
    let mut grid: Vec<usize> = vec![1, cols, per, rows, 0, 2, 4, 8, 2 * cols, cols / 2, 2 * per, per / 2, 8 * cols, 8 * per];
    grid.extend([16usize, 32, 64, 128, 256].into_iter().flat_map(|t| [g.rows.div_ceil(t), (g.rows / t).max(1)]));
    grid.retain(|x| *x <= len);
    let work = |m: usize| m * len * n;
    let mut nears = grid.clone();
    if memory.plain && work(len / (n - 1)) <= STRIDES {
        nears.extend(0..=len / (n - 1));
    }
    let mut seen = Vec::new();
    nears.retain(|x| {
        let new = !seen.contains(x);
        seen.push(*x);
        new
    });
    let mut all: Vec<Along> = nears.iter().map(|near| Along::of(long, n, *near, None)).collect();
    if memory.bits <= 2.0 {
        for near in [1, cols, per] {
            for d in [2usize, 4, 8, 16, 32, 64, 128].into_iter().filter(|d| *d < n && near * d <= len) {
                for far in [2 * near * d, near * d / 2, 4 * near * d, 0, 3 * near * d, near, 1] {
                    if far != near * d && !all.iter().any(|a| a.near == near && a.turn == Some((d, far))) {
                        all.push(Along::of(long, n, near, Some((d, far))));
                    }
                }
            }
        }
    }
    all
}

/// Lines that are solved: low ones and powers of two, which tell digits, and others; those that are wrong first.
fn lines(s: &System, side: Which) -> Vec<Line> {
    let is_wrong = s.wrong_lines(side == Which::A);
    let mut all = Vec::new();
    for (expert, part) in s.parts.iter().enumerate() {
        let (n, breadth) = if side == Which::A { (part.rows.len(), s.cols) } else { (s.cols, part.rows.len()) };
        if breadth < LEAST {
            continue;
        }
        let mut which: Vec<usize> = (0..n).collect();
        spread(&mut which, LINES / 2);
        which.extend(0..n.min(LINES / 2));
        which.extend((0..16).map(|b| 1usize << b).flat_map(|x| [x, x + 1, x + 2]).filter(|x| *x < n));
        which.sort_unstable();
        which.dedup();
        let mut across: Vec<usize> = (0..breadth).collect();
        spread(&mut across, EACH);
        for x in which {
            let line = if side == Which::A { part.rows.start + x } else { x };
            let place = |y: &usize| if side == Which::A { (line, *y) } else { (part.rows.start + y, x) };
            let looks: Vec<(usize, usize)> = across.iter().map(place).collect();
            let wrong = is_wrong[line] && looks.iter().filter(|(i, j)| s.is_wrong[i * s.cols + j]).count() >= LEAST;
            all.push(Line { expert, x, looks, wrong });
        }
    }
    all
}

/// The places from which on a line of these elements may be read, at most so many.
fn bases(s: &System, memory: &Memory, elements: &[Units], along: &Along, most: usize) -> Vec<i64> {
    let len = memory.p.len() as i64;
    // Half of its units lie inside.
    let middle = along.places[along.places.len() / 2];
    let fits = |base: &i64| elements.iter().all(|e| memory.fits(e, *base, &along.places, s.relative));
    (0..(len - middle).max(0)).filter(fits).take(most).collect()
}

/// The lines' places as digits, and what that reads.
fn told(
    s: &System,
    side: Which,
    memory: &Memory,
    along: &Along,
    lines: &[Line],
    elements: &(dyn Fn(&Line) -> Vec<Units> + Sync),
) -> Vec<Theory> {
    let Some((map, steps)) = map_of(s, side, memory, along, lines, elements) else { return Vec::new() };
    if is_beyond(s, side, memory, along, &map, &steps) {
        return Vec::new();
    }
    let mut t = theory(s, side, memory, along, &map, &steps);
    t.bits += 8.0 + memory.bits + along.bits(s.given(side).tile.1) + map.bits();
    let outside = outside(s, side, memory, along, &map, &steps);
    let many = outside.iter().filter(|x| **x).count();
    if many == 0 {
        return vec![t];
    }
    let mut unseen = t.clone();
    t.detail += "; 0 behind the end";
    unseen.detail += "; what lies behind the end is not known";
    unseen.bits += 2.0;
    let lines: Vec<Option<(usize, usize)>> = (0..s.rows).map(|i| s.lines(i, 0).map(|l| (l.0, l.1))).collect();
    unseen.unseen =
        Some(Arc::new(move |i, j| lines[i].is_some_and(|(a, b)| outside[if side == Which::A { a } else { b + j }])));
    // Most of it has to be known.
    if 3 * many > s.given(side).rows { vec![t] } else { vec![t, unseen] }
}

/// The rows of an operand of which something lies outside of the memory.
fn outside(s: &System, side: Which, memory: &Memory, along: &Along, map: &DigitMap, steps: &[i64]) -> Vec<bool> {
    let firsts = firsts(s, side, map, steps);
    let (low, high) = along.places.iter().fold((i64::MAX, i64::MIN), |m, p| (m.0.min(*p), m.1.max(*p)));
    firsts.iter().map(|f| f.is_none_or(|f| f + low < 0 || f + high >= memory.p.len() as i64)).collect()
}

/// Whether some part of K lies outside of the memory for every line: it is lost, and any place beyond the end would say so.
fn is_beyond(s: &System, side: Which, memory: &Memory, along: &Along, map: &DigitMap, steps: &[i64]) -> bool {
    let firsts: Vec<i64> = firsts(s, side, map, steps).into_iter().flatten().collect();
    let inside = |p: &i64| firsts.iter().any(|f| (0..memory.p.len() as i64).contains(&(f + p)));
    !along.places.iter().all(inside)
}

/// The first place of every row of the operand; none of a row that no group has.
fn firsts(s: &System, side: Which, map: &DigitMap, steps: &[i64]) -> Vec<Option<i64>> {
    let mut all = vec![None; s.given(side).rows];
    for (e, part) in s.parts.iter().enumerate() {
        let (from, n) = if side == Which::A { (part.a, part.rows.len()) } else { (part.b, s.cols) };
        (0..n).for_each(|x| all[from + x] = Some(steps[e] + map.at(x)));
    }
    all
}

/// The digits of a line's place, and what each group's are further on.
fn map_of(
    s: &System,
    side: Which,
    memory: &Memory,
    along: &Along,
    lines: &[Line],
    elements: &(dyn Fn(&Line) -> Vec<Units> + Sync),
) -> Option<(DigitMap, Vec<i64>)> {
    let span = memory.p.len();
    let of = |n: usize| -> Vec<i64> {
        let e = elements(&lines[n]);
        if e.len() < LEAST { Vec::new() } else { bases(s, memory, &e, along, CANDIDATES + 1) }
    };
    let places: Vec<Vec<i64>> = parallel::collect(lines.len(), of);
    let known = |expert: usize| -> Vec<(usize, Vec<i64>)> {
        let of = |n: &usize| lines[*n].expert == expert && (1..=CANDIDATES).contains(&places[*n].len());
        (0..lines.len()).filter(of).map(|n| (lines[n].x, places[n].clone())).collect()
    };
    let all: Vec<Vec<(usize, Vec<i64>)>> = (0..s.parts.len()).map(known).collect();
    let most = (0..all.len()).max_by_key(|e| (all[*e].len(), usize::MAX - e))?;
    let mut map = solve(&all[most], span)?;
    // What the others are further on: as many numbers for each expert.
    let shift = |e: usize| -> Option<i64> {
        let first = all[e].first()?;
        let by = |p: &i64| p - map.at(first.0);
        (first.1.iter().map(by)).find(|t| all[e].len() > 2 && all[e].iter().all(|k| k.1.contains(&(map.at(k.0) + t))))
    };
    let shifts: Vec<(usize, i64)> = (0..all.len()).filter(|e| *e != most).filter_map(|e| Some((e, shift(e)?))).collect();
    let starts: Vec<i64> = s.parts.iter().map(|p| if side == Which::A { p.a } else { p.b } as i64).collect();
    let steps: Vec<i64> = stepped(&shifts, most, &starts, span, s.parts.len())?;
    map.first -= steps[most];
    Some((map, steps))
}

/// What each expert's lines are further on: a multiple of its number, or of its first line. `None`: neither.
pub fn stepped(shifts: &[(usize, i64)], most: usize, starts: &[i64], span: usize, experts: usize) -> Option<Vec<i64>> {
    let by = |of: &dyn Fn(usize) -> i64| -> Option<Vec<i64>> {
        let (e, t) = shifts.iter().find(|(e, _)| of(*e) != of(most))?;
        let far = of(*e) - of(most);
        (t % far == 0).then_some(())?;
        let step = t / far;
        shifts.iter().all(|(e, t)| *t == step * (of(*e) - of(most))).then(|| (0..experts).map(|e| step * of(e)).collect())
    };
    // Where no other group tells: as they are stored.
    if shifts.is_empty() {
        return Some((0..experts).map(|e| (e * (span / experts.max(1))) as i64).collect());
    }
    let is_first = |(e, t): &(usize, i64)| *t == starts[*e] - starts[most];
    if shifts.iter().all(is_first) {
        return Some(starts.to_vec());
    }
    by(&|e| e as i64).or_else(|| by(&|e| starts[e]))
}

/// What an address is in words: of line, group and K.
pub fn address(map: &DigitMap, line: &str, steps: &[i64], more: Vec<String>) -> String {
    let mut words: Vec<String> = Vec::new();
    if steps.len() > 1 && steps.iter().any(|t| *t != 0) {
        let linear = (0..steps.len()).all(|e| steps[e] == e as i64 * steps[1]) && steps[0] == 0;
        words.push(if linear { format!("{}·e", steps[1]) } else { "the first row of the group".into() });
    }
    words.extend(map.words(line));
    words.extend(more);
    if map.first != 0 || words.is_empty() {
        words.push(map.first.to_string());
    }
    words.join(" + ").replace("+ -", "− ")
}

fn theory(s: &System, side: Which, memory: &Memory, along: &Along, map: &DigitMap, steps: &[i64]) -> Theory {
    let g = s.given(side).clone();
    let name = side.name();
    let (what, class) = match memory.what {
        What::Scale => ("scales", Class::ScaleIndex),
        What::Zero => ("zero points", Class::ZpCorrection),
        What::Both => ("scales and zero points", Class::ScaleIndex),
    };
    let line = if side == Which::A { "m" } else { "n" };
    let (long, cols) = (along.long, g.grid.1);
    let right: Vec<String> = [
        (s.experts(side) > 1).then(|| format!("{}·e", g.grid.0 / s.experts(side) * cols)),
        Some(match (g.tile.0, cols) {
            (1, 1) => line.to_string(),
            (1, _) => format!("{cols}·{line}"),
            (tall, 1) => format!("({line} / {tall})"),
            (tall, _) => format!("{cols}·({line} / {tall})"),
        }),
        (cols > 1).then(|| if g.tile.1 == 1 { "k".into() } else { format!("(k / {})", g.tile.1) }),
    ]
    .into_iter()
    .flatten()
    .collect();
    let address = address(map, line, steps, along.words());
    let group = if s.parts.len() > 1 { ", e the group" } else { "" };
    let words = format!(
        "{what} of {name}{}: that of ({line}, k) is number {address} of the tensor ({line} the row of {name}{}{group}), where a right kernel reads {}",
        memory.words,
        if s.parts.len() > 1 { " in its group" } else { "" },
        right.join(" + ")
    );
    let mut t = Theory::new(class, name, format!("{name}.line_address"), words);
    let firsts = Arc::new(firsts(s, side, map, steps).into_iter().map(|f| f.unwrap_or(-1)).collect::<Vec<i64>>());
    let places = along.places.clone();
    let of = |numbers: &Arc<Vec<f64>>| -> super::system::At {
        let (numbers, firsts, places) = (numbers.clone(), firsts.clone(), places.clone());
        Arc::new(move |i, k| numbers.get((firsts[i] + places[k / long]) as usize).copied().unwrap_or(0.0))
    };
    let to = t.side(side);
    match memory.what {
        What::Scale => to.scaled(long, of(&memory.p)),
        What::Zero => to.zeroed(long, of(&memory.p)),
        What::Both => {
            to.scaled(long, of(&memory.p));
            to.zeroed(long, of(&memory.zeros));
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, codes, found, grouped_found, noise, sum, wide};
    use crate::{Format, Zero};

    /// One scale a row is taken for blocks of 64 × 64: three of them along the rows.
    #[test]
    fn scales_of_rows_that_are_read_as_blocks_are_told() {
        let (n, k_all) = (170, 256);
        let (a, b) = (wide(8, k_all), codes(Format::E4m3, n, k_all, k_all, false, 151));
        let (x, y) = (a.to_f64(), b.dequantize());
        let scale = |at: usize| f64::from(b.scale_inv()[at]);
        let of = |place: &dyn Fn(usize, usize) -> usize| {
            found(&a, &b, None, Format::F16, |i, j, _| sum(k_all, |k| x[[i, k]] * y[[j, k]] / scale(j) * scale(place(j, k))))
        };
        let got = of(&|j, k| k / 64 * 3 + j / 64);
        assert_eq!(got.0, "scale_index:b.line_address", "{}", got.1);
        assert!(got.1.contains("number (n / 64) + 3·(k / 64) of the tensor"), "{}", got.1);
        // Numbers that lie nowhere in a line.
        let got = of(&|j, k| (noise(k / 64 * 977 + j) * 169.0) as usize);
        assert!(!got.0.contains("address"), "{got:?}");
    }

    /// Words of eight zero points along the rows, transposed once more.
    #[test]
    fn zero_points_in_words_that_are_transposed_are_told() {
        let (n, k_all) = (96, 192);
        let (a, b) = (wide(10, k_all), codes(Format::Uint4, n, k_all, 16, true, 153));
        let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            // 12 groups, 12 words of 8 rows.
            let zero = |k: usize| f64::from(z[(k / 16 * 8 + j % 8) * 12 + j / 8]);
            let scale = |k: usize| f64::from(b.scale_inv()[j * 12 + k / 16]);
            sum(k_all, |k| x[[i, k]] * (f64::from(b.codes()[j * k_all + k]) - zero(k)) * scale(k))
        });
        assert_eq!(got.0, "zp_correction:b.line_address", "{}", got.1);
        assert!(got.1.contains("number (n / 8) + 12·(n mod 8) + 96·(k / 16) of the tensor"), "{}", got.1);
    }

    /// Zero points of two bits, four to a byte, unpacked as nibbles: what lies behind each expert is the next one's, 0 behind the last.
    #[test]
    fn zero_points_of_another_width_are_told() {
        let (n, k_all, ends) = (24, 128, [12usize, 20, 31]);
        let (a, q) = (wide(31, k_all), codes(Format::Uint4, 3 * n, k_all, 32, true, 155));
        let mut p = q.into_parts();
        p.zero = Zero::Integer((0..3 * n * 4).map(|x| (noise(3 * x + 1) * 4.0) as i32).collect());
        let b = crate::QTensor::new(p).unwrap();
        let Zero::Integer(z) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        let read = |at: usize| z.get(2 * at).map_or(0, |low| low + 4 * z[2 * at + 1]);
        let got = grouped_found(&a, &b, &ends, Format::F16, |i, j| {
            let e = ends.iter().filter(|end| **end <= i).count();
            let row = e * n + j;
            let weight = |k: usize| {
                let zero = f64::from(read(e * n * 2 + 4 * j + k / 32));
                (f64::from(b.codes()[row * k_all + k]) - zero) * f64::from(b.scale_inv()[row * 4 + k / 32])
            };
            sum(k_all, |k| x[[i, k]] * weight(k))
        });
        assert_eq!(got.0, "zp_correction:b.line_address", "{}", got.1);
        assert!(got.1.contains("stored in 2 bits each, read as whole numbers of 4 bits"), "{}", got.1);
        assert!(got.1.contains("number 48·e + 4·n + (k / 32) of the tensor"), "{}", got.1);
    }

    /// A stride along K that is twice its own from one tile to the next, and two rows that share one of the grid.
    #[test]
    fn two_strides_along_k_are_told() {
        let (n, k_all) = (60, 192);
        let (a, b) = (wide(M, k_all), codes(Format::Int8, n, k_all, 16, false, 157));
        let (x, y) = (a.to_f64(), b.dequantize());
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            let of = |at: usize| b.scale_inv().get(at).map_or(0.0, |s| f64::from(*s));
            let place = |k: usize| j / 2 * 12 + k / 64 * 8 + k % 64 / 16;
            sum(k_all, |k| x[[i, k]] * y[[j, k]] / of(j * 12 + k / 16) * of(place(k)))
        });
        assert_eq!(got.0, "scale_index:b.line_address", "{}", got.1);
        assert!(got.1.contains("number 12·(n / 2) + 8·(k / 64) + (k / 16 mod 4) of the tensor"), "{}", got.1);
    }
}
