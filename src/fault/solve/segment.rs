//! Where a result is wrong: the rows and columns that are, as a region in words, and the elements that theories are tried on.

use super::system::{Region, System};

/// The rows and columns with a wrong element, where that is not all of them.
pub fn region(s: &System) -> Option<Region> {
    let (mut rows, mut cols) = (vec![false; s.rows], vec![false; s.cols]);
    for (at, _) in s.is_wrong.iter().enumerate().filter(|(_, w)| **w) {
        rows[at / s.cols] = true;
        cols[at % s.cols] = true;
    }
    let all = |v: &[bool]| v.iter().all(|x| *x);
    // Lines of which almost all are wrong are all wrong: an element may be right by chance.
    for v in [&mut rows, &mut cols] {
        let n = v.iter().filter(|x| **x).count();
        if n * 10 > v.len() * 9 && !runs(v) {
            v.fill(true);
        }
    }
    if all(&rows) && all(&cols) || !rows.contains(&true) {
        return None;
    }
    let words = match (all(&rows), all(&cols)) {
        (false, true) => format!("rows {}", lines(&rows)),
        (true, false) => format!("columns {}", lines(&cols)),
        _ => format!("rows {}, columns {}", lines(&rows), lines(&cols)),
    };
    Some(Region { rows, cols, words })
}

/// Whether the true ones are one run.
fn runs(v: &[bool]) -> bool {
    v.windows(2).filter(|w| w[0] != w[1]).count() <= 2
}

/// `16 … 31`, `3, 7 and 9`, `5 of 128 from 3 to 90`; a run that ends at the edge says so.
pub fn lines(v: &[bool]) -> String {
    let at: Vec<usize> = (0..v.len()).filter(|i| v[*i]).collect();
    let (Some(first), Some(last)) = (at.first(), at.last()) else { return "none".into() };
    if at.len() == last - first + 1 {
        return if first == last { format!("{first}") } else { format!("{first} … {last}") };
    }
    let step = at[1] - at[0];
    if at.len() > 2 && at.windows(2).all(|w| w[1] - w[0] == step) {
        return format!("{first}, {}, … {last} (every {step}th)", first + step);
    }
    if at.len() <= 4 {
        return at.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    }
    format!("{} of {} from {first} to {last}", at.len(), v.len())
}

/// At most this many of each kind.
const WRONG: usize = 96;
const RIGHT: usize = 32;

/// Elements to try theories on: the worst, then wrong ones and right ones spread over rows and columns.
pub fn probes(s: &System) -> Vec<(usize, usize)> {
    let n = s.rows * s.cols;
    let size = |at: usize| {
        let e = (s.actual[at] - s.ideal[at]).abs() / (s.scene.certain(at) + s.out.spacing(at, s.ideal[at])).max(1e-300);
        if e.is_nan() { 0.0 } else { e }
    };
    let mut wrong: Vec<usize> = (0..n).filter(|at| s.is_wrong[*at]).collect();
    let mut all = Vec::new();
    let mut by_size = wrong.clone();
    by_size.sort_by(|a, b| size(*b).total_cmp(&size(*a)));
    all.extend(by_size.iter().step_by(by_size.len().div_ceil(8).max(1)).take(8).copied());
    spread(&mut wrong, WRONG);
    all.extend(wrong);
    let mut right: Vec<usize> = (0..n).filter(|at| !s.is_wrong[*at] && s.actual[*at].is_finite()).collect();
    spread(&mut right, RIGHT);
    all.extend(right);
    let mut seen = std::collections::HashSet::new();
    all.into_iter().filter(|at| seen.insert(*at)).map(|at| (at / s.cols, at % s.cols)).collect()
}

/// Keeps `most`, in an order that jumps over the rows and columns.
fn spread(v: &mut Vec<usize>, most: usize) {
    let n = v.len();
    if n == 0 {
        return;
    }
    // An odd stride near the golden section visits everything before it comes back.
    let mut stride = (n as f64 * 0.618) as usize | 1;
    while gcd(stride, n) != 1 {
        stride += 2;
    }
    *v = (0..n.min(most)).map(|x| v[x * stride % n]).collect();
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
