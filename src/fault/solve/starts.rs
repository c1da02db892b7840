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
            start = (0..=g.rows * g.k - g.k).find(holds);
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
    fn lines_at_one_distance_are_one_run() {
        assert_eq!(super::runs(&[(4, 16), (5, 56), (6, 96), (7, 7), (9, 87)]), [(4, 6, 16, 40), (7, 7, 7, 0), (9, 9, 87, 0)]);
    }
}
