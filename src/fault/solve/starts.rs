//! Theories of lines of an operand that start at another address of memory: each wrong line's start is found by value, at any element, and told as
//! runs of lines at one distance.
//!
//! ```text
//! B(j, k) = memory[start(j) + k]                 start(j) = first + (j − j0)·stride in each run;   a right kernel: j·K
//! ```

use super::given::Given;
use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Multiply-adds of the search for one line's start, and lines that are searched for in all of memory.
const WORK: usize = 1 << 26;
const SEARCHED: usize = 8;
/// Elements that a start is told by, at least and at most.
const LEAST: usize = 4;
const MOST: usize = 8;
/// Runs of lines, at most.
const RUNS: usize = 6;

/// Starts of one operand's lines.
pub fn theories(s: &System) -> Vec<Theory> {
    [Which::B, Which::A].into_iter().flat_map(|side| [false, true].map(|own| of(s, side, own))).flatten().collect()
}

/// With `own`, codes by the scales of their own place; else values as they lie.
fn of(s: &System, side: Which, own: bool) -> Option<Theory> {
    let g = s.given(side);
    let plain = s.alone || s.parts.iter().any(|p| p.k.len() != s.k) || g.rows < 2;
    (!plain && (!own || g.q.is_some()) && g.rows * g.k * g.k <= WORK).then_some(())?;
    let wanted = wanted(s, side);
    (wanted.len() >= 4).then_some(())?;
    let mut starts: Vec<(usize, usize)> = Vec::new();
    let mut searched = 0;
    let memory = memory(g, own);
    for (line, places) in &wanted {
        let holds = |start: &usize| places.iter().all(|(i, j)| makes(s, side, own, (*line, *start), (*i, *j)));
        // As the lines before, by their distance or by that of the rows; else anywhere.
        let last = starts.iter().rev().take(2).copied().collect::<Vec<(usize, usize)>>();
        let mut likely = Vec::new();
        if let [(x, at), (y, before), ..] = last[..] {
            likely.push((at + at * (line - x) / (x - y)).checked_sub(before * (line - x) / (x - y)));
        }
        likely.extend(last.first().map(|(x, at)| Some(at + (line - x) * g.k)));
        let fits = |start: &usize| start + g.k <= g.rows * g.k && holds(start);
        let mut start = likely.into_iter().flatten().find(fits);
        if start.is_none() {
            searched += 1;
            (searched <= SEARCHED).then_some(())?;
            let screen = |place| memory.as_ref().and_then(|m| Screen::of(s, side, own, m, *line, place));
            let screens: Vec<Screen> = places.iter().take(2).filter_map(screen).collect();
            start = (0..=g.rows * g.k - g.k).filter(|x| screens.iter().all(|c| c.may(*x))).find(holds);
        }
        starts.push((*line, start?));
    }
    let runs = runs(&starts);
    // What starts where a row does is a row that is taken for another: others say so.
    let between = starts.iter().any(|(_, start)| !start.is_multiple_of(g.k));
    (between && runs.len() <= RUNS && 4 * runs.len() <= starts.len()).then_some(())?;
    let name = side.name();
    let words: Vec<String> = runs
        .iter()
        .map(|(from, to, start, stride)| {
            let apart = if from == to { String::new() } else { format!(", {stride} apart instead of {}", g.k) };
            format!("rows {from} … {to} from element {start} on instead of {}{apart}", from * g.k)
        })
        .collect();
    let what = match (g.q.is_some(), own) {
        (true, true) => "codes",
        _ => "values",
    };
    let detail = format!("{what} of {name} are read from other places in memory: {}", words.join("; "));
    let mut t = Theory::new(Class::Addressing, name, format!("{name}.starts"), detail);
    t.bits = 10.0 + runs.iter().map(|r| cost(r.2) + cost(r.3)).sum::<f64>();
    t.freedom = runs.len();
    let mut from: Vec<usize> = (0..g.rows).map(|i| i * g.k).collect();
    starts.iter().for_each(|(line, start)| from[*line] = *start);
    if own {
        t.side(side).code = Some(Arc::new(move |i, k| Some(from[i] + k)));
    } else {
        let values = g.values.clone();
        t.side(side).value = Some(Arc::new(move |i, k| values[from[i] + k]));
    }
    Some(t)
}

/// All of an operand as it lies in memory, its largest 1: codes by no scale, or values. `None`: no f32 holds what they are.
fn memory(g: &Given, own: bool) -> Option<Vec<f32>> {
    let all: Vec<f64> = match &g.q {
        Some(q) if own => {
            g.zero.is_none().then_some(())?;
            q.codes().iter().map(|c| g.table[usize::from(*c)]).collect()
        }
        _ => g.values.to_vec(),
    };
    scaled(&all)
}

/// Numbers over their largest, in f32. `None`: some are none.
fn scaled(all: &[f64]) -> Option<Vec<f32>> {
    let most = all.iter().fold(0.0, |m: f64, x| m.max(if x.is_nan() { f64::INFINITY } else { x.abs() }));
    (most > 0.0 && most.is_finite()).then(|| all.iter().map(|x| (x / most) as f32).collect())
}

/// Which starts may make one element: all of memory against it in f32.
struct Screen<'m> {
    memory: &'m [f32],
    with: Vec<f32>,
    /// What was written, how far off it may be, and that of a sum over its magnitude.
    y: f32,
    half: f32,
    loose: f32,
}

const LANES: usize = 8;

impl<'m> Screen<'m> {
    fn of(s: &System, side: Which, own: bool, memory: &'m [f32], line: usize, (i, j): &(usize, usize)) -> Option<Self> {
        let (ra, rb, _) = s.lines(*i, *j)?;
        let (g, other, theirs): (&Given, &Given, usize) = if side == Which::A { (&s.a, &s.b, rb) } else { (&s.b, &s.a, ra) };
        let cells = line / g.tile.0 * g.grid.1;
        let scale = |k: usize| g.scales().get(cells + k / g.tile.1).map_or(1.0, |s| f64::from(*s)) * g.global;
        let by = |k: usize| if own && g.q.is_some() { scale(k) } else { 1.0 };
        let with: Vec<f64> = (0..s.k).map(|k| other.values[theirs * s.k + k] * by(k)).collect();
        let largest = |all: &mut dyn Iterator<Item = f64>| all.fold(0.0f64, |m, x| m.max(x.abs()));
        let of_memory = match &g.q {
            Some(q) if own => largest(&mut q.codes().iter().map(|c| g.table[usize::from(*c)])),
            _ => largest(&mut g.values.iter().copied()),
        };
        let unit = of_memory * largest(&mut with.iter().copied());
        let (y, half) = s.written(*i, *j, 0.0)?;
        // What f32 rounds on its way, and what is too small for it.
        let loose = 1.001 * (s.relative + 2f64.powi(-22)) + (s.k + 8) as f64 * f64::from(f32::EPSILON);
        let (y, half) = (y / unit, 1.01 * half / unit + 2.0 * f64::from(f32::EPSILON) * (y / unit).abs() + s.k as f64 * 1e-36);
        let held = y.abs() < 1e30 && half < 1e30;
        held.then_some(())?;
        Some(Self { memory, with: scaled(&with)?, y: y as f32, half: half as f32, loose: loose as f32 })
    }

    /// Whether a line that starts there may make it. What is no number is left to f64.
    fn may(&self, start: usize) -> bool {
        let at = &self.memory[start..start + self.with.len()];
        let (mut sums, mut sizes) = ([0.0f32; LANES], [0.0f32; LANES]);
        let mut add = |x: &[f32], y: &[f32]| {
            for (n, (x, y)) in x.iter().zip(y).enumerate() {
                let p = x * y;
                sums[n] += p;
                sizes[n] += p.abs();
            }
        };
        let whole = self.with.len() / LANES * LANES;
        for (x, y) in at[..whole].chunks_exact(LANES).zip(self.with[..whole].chunks_exact(LANES)) {
            add(x, y);
        }
        add(&at[whole..], &self.with[whole..]);
        let (sum, size): (f32, f32) = (sums.iter().sum(), sizes.iter().sum());
        let off = (sum - self.y).abs();
        off <= self.half + self.loose * size || !(off + size).is_finite()
    }
}

/// Lines that make a wrong element, and some elements that each makes.
fn wanted(s: &System, side: Which) -> Vec<(usize, Vec<(usize, usize)>)> {
    let mut all = Vec::new();
    for part in &s.parts {
        let n = if side == Which::A { part.rows.len() } else { s.cols };
        for x in 0..n {
            let (line, mut places): (usize, Vec<(usize, usize)>) = match side {
                Which::A => (part.a + x, (0..s.cols).map(|j| (part.rows.start + x, j)).collect()),
                Which::B => (part.b + x, part.rows.clone().map(|i| (i, x)).collect()),
            };
            let wrong = places.iter().any(|(i, j)| s.is_wrong[i * s.cols + j]);
            places.retain(|(i, j)| s.actual[i * s.cols + j].is_finite());
            spread(&mut places, MOST);
            if wrong && places.len() >= LEAST {
                all.push((line, places));
            }
        }
    }
    all
}

/// Whether a line that starts there makes an element.
fn makes(s: &System, side: Which, own: bool, (line, start): (usize, usize), (i, j): (usize, usize)) -> bool {
    let Some((ra, rb, _)) = s.lines(i, j) else { return false };
    let (g, other, theirs): (&Given, &Given, usize) = if side == Which::A { (&s.a, &s.b, rb) } else { (&s.b, &s.a, ra) };
    let with = &other.values[theirs * s.k..(theirs + 1) * s.k];
    let (mut sum, mut size) = (0.0, 0.0);
    let mut add = |x: f64, y: f64| {
        sum += x * y;
        size += (x * y).abs();
    };
    match &g.q {
        Some(q) if own => {
            let cells = line / g.tile.0 * g.grid.1;
            (0..s.k).for_each(|k| add(g.decoded(q.codes()[start + k], cells + k / g.tile.1), with[k]));
        }
        _ => g.values[start..start + s.k].iter().zip(with).for_each(|(x, y)| add(*x, *y)),
    }
    s.may(i, j, sum, size)
}

/// Lines one behind the other whose starts are equally far apart: first and last line, first start, distance.
fn runs(starts: &[(usize, usize)]) -> Vec<(usize, usize, usize, usize)> {
    let mut all: Vec<(usize, usize, usize, usize)> = Vec::new();
    for (line, start) in starts.iter().copied() {
        if let Some((from, to, first, stride)) = all.last_mut()
            && line == *to + 1
            && (*from == *to && start >= *first || start == *first + (line - *from) * *stride)
        {
            *stride = (start - *first) / (line - *from);
            *to = line;
            continue;
        }
        all.push((line, line, start, 0));
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, sum, wide};

    #[test]
    fn blocks_at_offsets_in_elements_are_told() {
        let (n, k_all) = (48, 40);
        let (a, b) = (wide(M, k_all), codes(Format::E4m3, n, k_all, k_all, false, 81));
        let x = a.to_f64();
        // The second and third 16 columns start 16 and 32 elements, not rows, behind the first.
        let at = |j: usize| j % 16 * k_all + j / 16 * 16;
        let code = |at: usize| b.format().decode(u32::from(b.codes()[at]));
        let got = found(&a, &b, None, Format::Bf16, |i, j, _| {
            sum(k_all, |k| x[[i, k]] * code(at(j) + k)) * f64::from(b.scale_inv()[j])
        });
        assert_eq!(got.0, "addressing:b.starts", "{}", got.1);
        assert!(got.1.contains("rows 16 … 31 from element 16 on instead of 640, 40 apart"), "{}", got.1);
    }

    #[test]
    fn what_makes_an_element_is_never_refused_and_most_else_is() {
        let n = 53;
        let wild = |x: usize| ((x * 7919 + x * x % 4099) % 1009) as f64 / 1009.0 - 0.4;
        for tiny in [1.0, 1e-30, 1e30] {
            let all: Vec<f64> = (0..400).map(|x| tiny * wild(x)).collect();
            let with: Vec<f64> = (0..n).map(|x| tiny * wild(x + 5000)).collect();
            let most = |v: &[f64]| v.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            let (unit, memory) = (most(&all) * most(&with), super::scaled(&all).unwrap());
            for start in [0, 7, 400 - n] {
                let y: f64 = all[start..].iter().zip(&with).map(|(x, y)| x * y).sum();
                let loose = (n + 8) as f64 * f64::from(f32::EPSILON);
                let s = super::Screen {
                    memory: &memory,
                    with: super::scaled(&with).unwrap(),
                    y: (y / unit) as f32,
                    half: 1e-6,
                    loose: loose as f32,
                };
                assert!(s.may(start), "{tiny} {start}");
                let passed = (0..=400 - n).filter(|x| s.may(*x)).count();
                assert!(passed < 6, "{tiny} {start}: {passed}");
            }
        }
    }

    #[test]
    fn lines_at_one_distance_are_one_run() {
        assert_eq!(super::runs(&[(4, 16), (5, 56), (6, 96), (7, 7), (9, 87)]), [(4, 6, 16, 40), (7, 7, 7, 0), (9, 9, 87, 0)]);
    }
}
