//! Theories of an accumulator that still holds another element: the tile before, once or all of them.

use super::maps::cost;
use super::system::{self, Kept, Narrow, System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::parallel;
use std::sync::{Arc, OnceLock};

/// Elements that have to agree.
const LOOKS: usize = 24;
/// Offsets that are tried, at most.
const MOST: usize = 64;

/// Every offset (di, dj) whose right elements are what the wrong ones hold too much.
pub fn theories(s: &System) -> Vec<Theory> {
    let finite = |at: usize| s.actual[at].is_finite() && s.ideal[at].is_finite();
    let wrong = |(i, j): &&(usize, usize)| s.is_wrong[i * s.cols + j] && finite(i * s.cols + j);
    let probes: Vec<(usize, usize)> = s.probes.iter().filter(wrong).take(LOOKS).copied().collect();
    if s.alone || probes.len() < 4 {
        return Vec::new();
    }
    let mut found: Vec<Theory> = Vec::new();
    let base = Base { sums: s.right_sums(), kept: None, sizes: OnceLock::new() };
    for units in units(s) {
        let most = MOST - found.len();
        found.extend(with_units(s, &probes, &units, &base, most));
        if found.len() >= MOST {
            break;
        }
    }
    found
}

/// Multiply-adds of sums that are rounded on their way, and how often they are.
const WORK: usize = 1 << 28;
const EVERY: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// The same where sums are kept in 16 bits: each element's, and that of the tile before.
pub fn kept(s: &System) -> Vec<Theory> {
    let finite = |at: usize| s.actual[at].is_finite() && s.ideal[at].is_finite();
    let wrong = |(i, j): &&(usize, usize)| s.is_wrong[i * s.cols + j] && finite(i * s.cols + j);
    let probes: Vec<(usize, usize)> = s.probes.iter().filter(wrong).take(LOOKS).copied().collect();
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k || probes.len() < 8 {
        return Vec::new();
    }
    let n = s.rows * s.cols;
    let whole = s.a.grid.1 == 1 && s.b.grid.1 == 1;
    let mut ways = Vec::new();
    for every in EVERY.into_iter().filter(|e| *e < s.k) {
        for format in [Format::F16, Format::Bf16] {
            for units in
                [system::Units::Codes, system::Units::Values].into_iter().filter(|u| whole || *u == system::Units::Values)
            {
                ways.push((format, Kept { every, how: Narrow::Rounded(format), units, of: system::Rounds::Sum, within: 0 }));
            }
        }
    }
    ways.truncate(WORK / (n * s.k).max(1));
    if !is_near(s, &probes) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (format, kept) in ways {
        let mut of = Theory::right();
        of.kept = Some(kept);
        let sums: Vec<f64> = parallel::collect(n, |at| s.sum(&of, at / s.cols, at % s.cols).0);
        let base = Base { sums: Arc::new(sums), kept: Some(kept), sizes: OnceLock::new() };
        for mut t in units(s).iter().flat_map(|units| with_units(s, &probes, units, &base, KEPT)) {
            t.variant = format!("{} + {}:out.partial_sums", t.variant, Class::LowprecAcc.name());
            t.detail = format!("{}; and the accumulator after every {} of K is rounded to {format}", t.detail, kept.every);
            t.bits += 8.0 + cost(kept.every);
            found.push(t);
        }
        if !found.is_empty() {
            break;
        }
    }
    found
}

/// Whether some offset makes the first elements but for what 16 bits may round.
fn is_near(s: &System, probes: &[(usize, usize)]) -> bool {
    // As many as there are: small errors are near to what far too many places hold.
    const LOOKS: usize = 48;
    const FEW: usize = 8;
    // Of the magnitudes of both sums.
    const OFF: f64 = 1.0 / 32.0;
    let (i0, j0) = probes[0];
    let units: Vec<Units> = units(s);
    let probes = &probes[..LOOKS.min(probes.len())];
    let of = |at: usize| {
        let (di, dj) = ((at / s.cols) as i64 - i0 as i64, (at % s.cols) as i64 - j0 as i64);
        // What has nothing before it says nothing.
        let has = |(i, j): &&(usize, usize)| {
            let (x, y) = (*i as i64 + di, *j as i64 + dj);
            (0..s.rows as i64).contains(&x) && (0..s.cols as i64).contains(&y)
        };
        let told = || probes.iter().filter(has).count() >= FEW.min(probes.len());
        (di, dj) != (0, 0) && told() && units.iter().any(|units| holds(s, probes, (di, dj), units, OFF))
    };
    parallel::any(s.ideal.len(), &of)
}

/// Whether elements hold as well those of an offset, or all those before, to a part of their magnitudes.
fn holds(s: &System, probes: &[(usize, usize)], (di, dj): (i64, i64), units: &Units, off: f64) -> bool {
    let unit = |at: usize| units.of.as_ref().map_or(1.0, |u| u[at]);
    [false, true].into_iter().any(|all| {
        probes.iter().all(|(i, j)| {
            let own = i * s.cols + j;
            let (mut x, mut y) = (*i as i64 + di, *j as i64 + dj);
            let (mut sum, mut most) = (s.ideal[own], s.magnitude(own));
            while (0..s.rows as i64).contains(&x) && (0..s.cols as i64).contains(&y) {
                let at = x as usize * s.cols + y as usize;
                let by = unit(own) / unit(at);
                sum += (s.ideal[at] - s.bias.at(x as usize, y as usize)) * by;
                most += s.magnitude(at) * by.abs();
                if !all {
                    break;
                }
                (x, y) = (x + di, y + dj);
            }
            !((s.actual[own] - sum).abs() > off * most + s.out.spacing(own, s.actual[own]))
        })
    })
}

/// Theories of one way to keep sums.
const KEPT: usize = 4;

/// Every element's sum without its bias, and how it was kept.
struct Base {
    sums: Arc<Vec<f64>>,
    kept: Option<Kept>,
    /// Their magnitudes, once they are asked for.
    sizes: OnceLock<Arc<Vec<f64>>>,
}

/// What an element's sum is scaled by behind it: its words, and the scale of each element.
struct Units {
    words: &'static str,
    bits: f64,
    of: Option<Arc<Vec<f64>>>,
}

/// Sums with their scales; without those of rows, of columns or of both, where one goes with all of K.
fn units(s: &System) -> Vec<Units> {
    let steps = |g: &super::given::Given| {
        let many = g.q.is_some() && g.grid.1 == 1 && g.grid.0 > 1;
        many.then(|| (0..g.rows).map(|i| g.step(i, 0)).collect::<Vec<f64>>())
    };
    let mut all = vec![Units { words: "", bits: 0.0, of: None }];
    let (a, b) = (steps(&s.a), steps(&s.b));
    let mut add = |words, a: Option<&Vec<f64>>, b: Option<&Vec<f64>>| {
        let one = |at: usize| {
            let (x, y, _) = s.lines(at / s.cols, at % s.cols)?;
            Some(a.map_or(1.0, |a| a[x]) * b.map_or(1.0, |b| b[y]))
        };
        let of: Vec<f64> = (0..s.rows * s.cols).map(|at| one(at).unwrap_or(1.0)).collect();
        if of.iter().all(|x| *x != 0.0 && x.is_finite()) {
            all.push(Units { words, bits: 1.0, of: Some(Arc::new(of)) });
        }
    };
    if b.is_some() {
        add(", before the scales of columns meet it", None, b.as_ref());
    }
    if a.is_some() {
        add(", before the scales of rows meet it", a.as_ref(), None);
    }
    if a.is_some() && b.is_some() {
        add(", before its scales meet it", a.as_ref(), b.as_ref());
    }
    all
}

fn with_units(s: &System, probes: &[(usize, usize)], units: &Units, base: &Base, most: usize) -> Vec<Theory> {
    let (n_cols, scale) = (s.cols, units.of.clone());
    let sums = base.sums.clone();
    let ideal = move |at: usize| sums[at] / scale.as_ref().map_or(1.0, |u| u[at]);
    let sizes = || base.sizes.get_or_init(|| Arc::new(parallel::numbers(s.ideal.len(), |at| s.magnitude(at)))).clone();
    let (i0, j0) = probes[0];
    let first = i0 * s.cols + j0;
    let rest = s.actual[first] - s.bias.at(i0, j0) - base.sums[first];
    let (rows, cols) = (s.rows as i64, s.cols as i64);
    let mut found: Vec<Theory> = Vec::new();
    // All that fits the first probe: where the right value is the rest, or the rest less what stands as far behind it again.
    for at in 0..s.ideal.len() {
        let (di, dj) = ((at / s.cols) as i64 - i0 as i64, (at % s.cols) as i64 - j0 as i64);
        // Scales change nothing where they are the same.
        let same = units.of.as_ref().is_some_and(|u| u[at] == u[first]);
        if (di, dj) == (0, 0) || !ideal(at).is_finite() || same {
            continue;
        }
        for all in [false, true] {
            let (ideal, scale) = (ideal.clone(), units.of.clone());
            let held = move |i: usize, j: usize| -> f64 {
                let (mut sum, mut x, mut y) = (0.0, i as i64 + di, j as i64 + dj);
                while (0..rows).contains(&x) && (0..cols).contains(&y) {
                    sum += ideal((x * cols + y) as usize);
                    if !all {
                        break;
                    }
                    (x, y) = (x + di, y + dj);
                }
                sum * scale.as_ref().map_or(1.0, |u| u[i * n_cols + j])
            };
            let more = held(i0, j0);
            let by = units.of.as_ref().map_or(1.0, |u| (u[first] / u[at]).abs().max(1.0));
            let slack = 2.0 * (s.certain(first) + by * s.certain(at)) + s.out.spacing(first, s.actual[first]);
            if !((more - rest).abs() <= slack) {
                continue;
            }
            let how = if all { "and all those before" } else { "as well" };
            // Rows lie behind each other: the next ones of both operands are K further on.
            let further = if (di, dj) == (1, 1) && !all { "K is summed twice as far as it goes, or " } else { "" };
            let words = format!(
                "{further}the accumulator is not cleared between tiles: element (i, j) holds that of (i {}, j {}) {how}{}",
                offset(di),
                offset(dj),
                units.words
            );
            let bias = s.bias.clone();
            let mut t = Theory::new(Class::AccState, "out", "out.carried", words).bits(
                6.0 + cost(di.unsigned_abs() as usize)
                    + cost(dj.unsigned_abs() as usize)
                    + if all { 1.0 } else { 0.0 }
                    + units.bits,
            );
            t.kept = base.kept;
            // What is held is as far off as sums of its size are.
            let (sizes, scale) = (sizes(), units.of.clone());
            t.size = Some(Arc::new(move |i, j| {
                let by = |at: usize| scale.as_ref().map_or(1.0, |u| (u[i * n_cols + j] / u[at]).abs());
                let (mut size, mut x, mut y) = (0.0, i as i64, j as i64);
                while (0..rows).contains(&x) && (0..cols).contains(&y) {
                    let at = (x * cols + y) as usize;
                    size += sizes[at] * by(at);
                    (x, y) = (x + di, y + dj);
                }
                size
            }));
            t.finish = Some(Arc::new(move |i, j, v| v + held(i, j) + bias.at(i, j)));
            if probes.iter().all(|(i, j)| s.fits(&t, *i, *j)) {
                found.push(t);
            }
            if found.len() >= most {
                return found;
            }
        }
    }
    found
}

/// Part of K of another element: what a split of K was added to, one tile aside, wrapped.
pub fn aside(s: &System) -> Vec<Theory> {
    let inside = |p: &&(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(p.0, p.1));
    let probes: Vec<(usize, usize)> = s.probes.iter().filter(inside).take(LOOKS).copied().collect();
    if s.alone || s.parts.len() != 1 || probes.len() < 8 || !probes.iter().any(|(i, j)| s.is_wrong[i * s.cols + j]) {
        return Vec::new();
    }
    let (a, b) = (s.a.values.clone(), s.b.values.clone());
    let (rows, cols, k) = (s.rows, s.cols, s.k);
    let mut found = Vec::new();
    for by_row in [false, true] {
        let n = if by_row { rows } else { cols };
        for d in [8usize, 16, 32, 64, 128, 256].into_iter().filter(|d| *d < n).flat_map(|d| [d, n - d]) {
            let other = move |i: usize, j: usize| if by_row { ((i + d) % n, j) } else { (i, (j + d) % n) };
            for (words, bits, is_part) in parts_of_k(k) {
                let (a, b, bias) = (a.clone(), b.clone(), s.bias.clone());
                let moved = move |i: usize, j: usize| -> f64 {
                    let sum = |i: usize, j: usize| -> f64 {
                        (0..k).filter(|k| is_part(*k)).map(|x| a[i * k + x] * b[j * k + x]).sum()
                    };
                    let (x, y) = other(i, j);
                    sum(x, y) - sum(i, j)
                };
                let far = if 2 * d > n { format!("− {}", n - d) } else { format!("+ {d}") };
                let line = if by_row { "row i" } else { "column j" };
                let words = format!("{words} of an element is that of {line} {far}, wrapped");
                let mut t = Theory::new(Class::AccState, "out", "out.part_aside", words).bits(8.0 + cost(d.min(n - d)) + bits);
                t.finish = Some(Arc::new(move |i, j, v| v + moved(i, j) + bias.at(i, j)));
                if probes.iter().all(|(i, j)| s.fits(&t, *i, *j)) {
                    found.push(t);
                }
            }
        }
    }
    found
}

/// One part of K is all that is summed: of the splits of K, or of the warps that share it, one partial sum is stored and the others are lost.
pub fn alone(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let theory = |(words, bits, is_part): (String, f64, Part)| {
        let mut t =
            Theory::new(Class::AccState, "out", "k.part_only", format!("only {words} is kept, the other parts are lost"));
        t.bits = 6.0 + bits;
        t.k = Some(Arc::new((0..s.k).map(|k| f64::from(u8::from(is_part(k)))).collect()));
        t
    };
    parts_of_k(s.k).into_iter().filter(|p| p.0.starts_with("slice")).map(theory).collect()
}

/// Part of K that is of another row of every tile: partial sums that are stored in batches, each with the registers of one.
pub fn batches(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    let inside = |p: &&(usize, usize)| s.region.as_ref().is_none_or(|r| r.has(p.0, p.1));
    let probes: Vec<(usize, usize, f64, f64)> = s
        .probes
        .iter()
        .filter(inside)
        .filter_map(|(i, j)| s.written(*i, *j, 0.0).map(|(y, half)| (*i, *j, y, half + s.certain(i * s.cols + j))))
        .take(LOOKS)
        .collect();
    if probes.len() < 8 || probes.iter().filter(|p| s.is_wrong[p.0 * s.cols + p.1]).count() < 6 {
        return Vec::new();
    }
    let (a, b, k_all, n_rows, n_cols) = (s.a.values.clone(), s.b.values.clone(), s.k, s.rows, s.cols);
    let sums = |i: usize, j: usize| -> Vec<f64> {
        let mut sum = 0.0;
        let next = |k: usize| {
            sum += a[i * k_all + k] * b[j * k_all + k];
            sum
        };
        std::iter::once(0.0).chain((0..k_all).map(next)).collect()
    };
    let own: Vec<Vec<f64>> = probes.iter().map(|(i, j, ..)| sums(*i, *j)).collect();
    let mut found = Vec::new();
    let tiles = [256usize, 128, 64, 32, 16];
    for by_row in [true, false] {
        let n = if by_row { n_rows } else { n_cols };
        for tile in tiles.into_iter().filter(|t| *t < 2 * n) {
            for (batch, which) in
                [64usize, 32, 16, 8, 4].into_iter().filter(|b| *b < tile).flat_map(|b| [(b, 0), (b, tile - b)])
            {
                let from = move |x: usize| x / tile * tile + which + x % batch;
                let other = move |i: usize, j: usize| if by_row { (from(i), j) } else { (i, from(j)) };
                // Every end of K that the elements before allow, for what is before it or behind it.
                let mut left: Vec<(usize, bool)> = (0..=k_all).step_by(8).flat_map(|k| [(k, true), (k, false)]).collect();
                for ((i, j, y, r), own) in probes.iter().zip(&own) {
                    let (x, z) = other(*i, *j);
                    if x >= n_rows || z >= n_cols {
                        left.clear();
                        break;
                    }
                    let theirs = if (x, z) == (*i, *j) { own.clone() } else { sums(x, z) };
                    let r = r + s.certain(x * n_cols + z);
                    left.retain(|(k, before)| {
                        let v = if *before { theirs[*k] + own[k_all] - own[*k] } else { own[*k] + theirs[k_all] - theirs[*k] };
                        (v - y).abs() <= r
                    });
                    if left.is_empty() {
                        break;
                    }
                }
                for (k0, before) in left.into_iter().take(4) {
                    let (line, what) = if by_row { ("row", "i") } else { ("column", "j") };
                    let ks = if before { 0..k0 } else { k0..k_all };
                    let words = format!(
                        "the partial sum of K {} … {} is stored in batches of {batch} {line}s that all hold the {} of every tile of {tile}: {line} {what} has that of {line} {what} mod {batch} there",
                        ks.start,
                        ks.end.max(1) - 1,
                        if which == 0 { "first" } else { "last" }
                    );
                    let mut t = Theory::new(Class::AccState, "out", "out.batch_repeated", words)
                        .bits(8.0 + cost(tile) + cost(batch) + cost(k0) + f64::from(u8::from(which > 0)));
                    let (a, b, bias) = (a.clone(), b.clone(), s.bias.clone());
                    t.finish = Some(Arc::new(move |i, j, v| {
                        let (x, z) = other(i, j);
                        // Behind the last row or column there is nothing to store.
                        if x >= n_rows || z >= n_cols {
                            return v + bias.at(i, j);
                        }
                        let one = |k: usize| a[x * k_all + k] * b[z * k_all + k] - a[i * k_all + k] * b[j * k_all + k];
                        v + ks.clone().map(one).sum::<f64>() + bias.at(i, j)
                    }));
                    found.push(t);
                }
            }
        }
    }
    found
}

/// Whether k is in a part.
type Part = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// Parts of K that one unit of a kernel sums: from or up to a step of 16, or one warp's slices of every tile.
fn parts_of_k(k: usize) -> Vec<(String, f64, Part)> {
    let mut all: Vec<(String, f64, Part)> = Vec::new();
    for from in (16..k).step_by(16) {
        all.push((format!("K {from} … {}", k - 1), cost(from), Arc::new(move |x| x >= from)));
        all.push((format!("K 0 … {}", from - 1), cost(from), Arc::new(move |x| x < from)));
    }
    for width in [8usize, 16, 32, 64] {
        for of in [2usize, 4, 8].into_iter().filter(|of| of * width <= k) {
            for which in 0..of {
                let words = format!("slice {which} of {of}, {width} wide, in every {} of K", of * width);
                all.push((words, cost(width) + cost(of) + cost(which), Arc::new(move |x| x / width % of == which)));
            }
        }
    }
    all
}

fn offset(d: i64) -> String {
    match d {
        0 => "+ 0".into(),
        d if d < 0 => format!("− {}", -d),
        d => format!("+ {d}"),
    }
}
