//! Theories of lines, tiles and stages that come from another place: each is found by value, and told as a formula where there is one.

use super::maps::cost;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::nth;
use crate::parallel;
use std::sync::Arc;

/// Multiply-adds of one search.
pub const WORK: usize = 1 << 28;

/// All of them.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone {
        return Vec::new();
    }
    let mut all = tiles(s);
    if all.is_empty() {
        all.extend(shuffled(s));
    }
    let others = [super::gathered::theories, super::biases::theories, stages, workspaces, waves, loads];
    all.extend(others.iter().flat_map(|of| of(s)));
    all
}

/// Sizes of tiles.
const TILES: [usize; 5] = [128, 64, 32, 16, 8];

/// Whole tiles that hold what another tile should.
fn tiles(s: &System) -> Vec<Theory> {
    for high in TILES {
        for wide in TILES {
            let (m, n) = (s.rows.div_ceil(high), s.cols.div_ceil(wide));
            if m * n < 2 || m * n > 1024 {
                continue;
            }
            let sources = source_tiles(s, high, wide);
            let Some(sources) = sources else { continue };
            let moved: Vec<usize> = (0..m * n).filter(|t| sources[*t] != *t).collect();
            if moved.is_empty() {
                continue;
            }
            let all_turned = moved.iter().all(|t| sources[*t] == t % n * n + t / n);
            // Exchanged across the diagonal of every few tiles, as fragments of a larger one are.
            let within = |b: usize| {
                let turned = |i: usize, j: usize| (i / b * b + j % b) * n + j / b * b + i % b;
                m.is_multiple_of(b) && n.is_multiple_of(b) && (0..m * n).all(|t| sources[t] == turned(t / n, t % n))
            };
            let few = [2usize, 4].into_iter().find(|b| within(*b)).filter(|_| !all_turned);
            let turned = all_turned || few.is_some();
            let how = if let Some(b) = few {
                format!("those of every {b}×{b} are exchanged across the diagonal")
            } else if turned {
                "tile (i, j) holds tile (j, i)".to_string()
            } else {
                let one = |t: usize| format!("({}, {})", t / n, t % n);
                let some: Vec<String> = moved.iter().take(6).map(|t| format!("{} ← {}", one(*t), one(sources[*t]))).collect();
                format!("tiles hold what belongs to others: {}", some.join(", "))
            };
            let words = format!("of the result's tiles of {high}×{wide}, {how}");
            let bits = if turned { 4.0 } else { 8.0 + 4.0 * moved.len() as f64 };
            let mut t = Theory::new(Class::Addressing, "out", "out.tiles_moved", words).bits(bits + cost(high) + cost(wide));
            t.freedom = if turned { 0 } else { moved.len() };
            let sources = Arc::new(sources);
            t.from = Some(Arc::new(move |i, j| {
                let from = sources[i / high * n + j / wide];
                Some((from / n * high + i % high, from % n * wide + j % wide))
            }));
            // What moved may have been lost as well.
            return vec![super::beyond::theory(s).and_then(|beyond| t.with(&beyond)).unwrap_or(t)];
        }
    }
    Vec::new()
}

/// The tile that each tile holds. `None`: some hold none.
fn source_tiles(s: &System, high: usize, wide: usize) -> Option<Vec<usize>> {
    let (m, n) = (s.rows.div_ceil(high), s.cols.div_ceil(wide));
    let mut all = Vec::with_capacity(m * n);
    let mut moved = 0;
    for t in 0..m * n {
        let (i0, j0) = (t / n * high, t % n * wide);
        let (h, w) = (high.min(s.rows - i0), wide.min(s.cols - j0));
        let looks: Vec<(usize, usize)> = (0..12).map(|x| (x * 5 % h, (x * 7 + x * x) % w)).collect();
        let holds = |from: usize| {
            let (i1, j1) = (from / n * high, from % n * wide);
            looks.iter().all(|(i, j)| {
                let (x, y) = (i1 + i, j1 + j);
                let held = s.actual[(i0 + i) * s.cols + j0 + j];
                let is = |at: usize| s.is_right(at, held) || !held.is_finite() && super::beyond::is(s, at);
                x < s.rows && y < s.cols && is(x * s.cols + y)
            })
        };
        let wrong = looks.iter().any(|(i, j)| s.is_wrong[(i0 + i) * s.cols + j0 + j]);
        let from = if wrong { (0..m * n).find(|f| holds(*f))? } else { t };
        moved += usize::from(from != t);
        all.push(from);
    }
    (moved > 0).then_some(all)
}

/// Sizes of tiles whose elements may be permuted.
const SHUFFLED: [(usize, usize); 10] =
    [(8, 8), (16, 8), (8, 16), (16, 16), (16, 32), (32, 16), (32, 32), (8, 64), (64, 8), (64, 64)];

/// Elements that stand in another order in every tile, the same in all: by value.
fn shuffled(s: &System) -> Vec<Theory> {
    // Tiles that a place is told by.
    const LOOKS: usize = 10;
    for (high, wide) in SHUFFLED {
        let (m, n) = (s.rows / high, s.cols / wide);
        if m * n < 4 || !s.rows.is_multiple_of(high) || !s.cols.is_multiple_of(wide) {
            continue;
        }
        let mut some: Vec<usize> =
            (0..m * n).filter(|t| s.region.as_ref().is_none_or(|r| r.has(t / n * high, t % n * wide))).collect();
        if some.len() < 4 {
            continue;
        }
        spread(&mut some, LOOKS);
        let at = |t: usize, x: usize| (t / n * high + x / wide) * s.cols + t % n * wide + x % wide;
        let holds = |x: usize, from: usize| some.iter().all(|t| s.is_right(at(*t, from), s.actual[at(*t, x)]));
        let area = high * wide;
        let one = |x: usize| if holds(x, x) { Some(x) } else { (0..area).find(|from| holds(x, *from)) };
        // Some places first: most shapes are not it.
        if (0..4).any(|x| one((x * 37 + x) % area).is_none()) {
            continue;
        }
        let Some(from) = parallel::every(area, one) else { continue };
        let moved = (0..area).filter(|x| from[*x] != *x).count();
        if moved == 0 {
            continue;
        }
        let place = |x: usize| format!("({}, {})", x / wide, x % wide);
        let first: Vec<String> =
            (0..area).filter(|x| from[*x] != *x).take(4).map(|x| format!("{} ← {}", place(x), place(from[x]))).collect();
        let words = format!("in every {high}×{wide} of the result elements stand in another order: {}, …", first.join(", "));
        let mut t = Theory::new(Class::Addressing, "out", "out.tile_order", words).bits(20.0 + 2.0 * (moved as f64).sqrt());
        t.freedom = moved;
        let from = Arc::new(from);
        t.from = Some(Arc::new(move |i, j| {
            let x = from[i % high * wide + j % wide];
            Some((i / high * high + x / wide, j / wide * wide + x % wide))
        }));
        return vec![t];
    }
    Vec::new()
}

/// One stage of K that holds another: of one operand, by the sums of its products with what stays.
fn stages(s: &System) -> Vec<Theory> {
    if s.parts.len() != 1 || s.k < 32 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let probes: Vec<(usize, usize)> = s
        .probes
        .iter()
        .copied()
        .filter(|(i, j)| s.region.as_ref().is_none_or(|r| r.has(*i, *j)) && s.is_wrong[i * s.cols + j])
        .take(24)
        .collect();
    if probes.len() < 6 {
        return all;
    }
    for width in [16usize, 32, 64, 128, 256] {
        let n = s.k / width;
        if n < 2 || n * s.k * 2 > WORK {
            continue;
        }
        for side in [Which::A, Which::B] {
            // Values; codes by the scales of the place where they are read.
            let scaled = s.given(side).grid.1 > 1 && s.given(side).q.is_some();
            for codes in if scaled { &[false, true][..] } else { &[false] } {
                all.extend(stage(s, side, width, *codes, &probes));
            }
        }
    }
    all
}

fn stage(s: &System, side: Which, width: usize, codes: bool, probes: &[(usize, usize)]) -> Vec<Theory> {
    let (g, o) = (s.given(side), s.given(side.other()));
    let n = s.k / width;
    let value = |row: usize, from: usize, at: usize| -> f64 {
        match (&g.q, codes) {
            (Some(q), true) => g.decoded(q.codes()[row * g.k + from], row / g.tile.0 * g.grid.1 + at / g.tile.1),
            _ => g.values[row * g.k + from],
        }
    };
    // What slice x of the other meets where it should meet its own, for all sources; wrong ones leave after a probe or two.
    let mut left: Vec<(usize, usize)> = (0..n).flat_map(|x| (0..n).filter(move |y| *y != x).map(move |y| (x, y))).collect();
    for (i, j) in probes {
        let Some((ra, rb, _)) = s.lines(*i, *j) else { return Vec::new() };
        let (own, other) = if side == Which::A { (ra, rb) } else { (rb, ra) };
        let theirs = &o.values[other * s.k..(other + 1) * s.k];
        let (mut sum, mut size) = (0.0, 0.0);
        let mut parts = vec![(0.0, 0.0); n + 1];
        for k in 0..s.k {
            let p = g.values[own * s.k + k] * theirs[k];
            (sum, size) = (sum + p, size + p.abs());
            let part = &mut parts[(k / width).min(n)];
            (part.0, part.1) = (part.0 + p, part.1 + p.abs());
        }
        let holds = |(x, y): &(usize, usize)| {
            let (mut p, mut m) = (0.0, 0.0);
            for u in 0..width {
                let v = value(own, y * width + u, x * width + u) * theirs[x * width + u];
                (p, m) = (p + v, m + v.abs());
            }
            s.may(*i, *j, sum - parts[*x].0 + p, size - parts[*x].1 + m)
        };
        left = if left.len() > 256 {
            parallel::flat(&left, |x| Some(*x).filter(&holds))
        } else {
            left.into_iter().filter(holds).collect()
        };
        if left.is_empty() {
            return Vec::new();
        }
    }
    let name = side.name();
    left.into_iter()
        .take(4)
        .map(|(x, y)| {
            let last = |x: usize| (x + 1) * width - 1;
            let words = format!(
                "{name} is read from another stage: for K {} … {} that of {} … {}{}",
                x * width,
                last(x),
                y * width,
                last(y),
                if codes { " (codes, not their scales)" } else { "" }
            );
            let bits = 4.0 + cost(x) + cost(y) + f64::from(u8::from(codes));
            let mut t = Theory::new(Class::AccState, name, format!("{name}.stage"), words).bits(bits);
            let to = move |k: usize| if k / width == x { y * width + k % width } else { k };
            let k_all = g.k;
            if g.q.is_some() && (codes || g.grid.1 == 1) {
                t.side(side).code = Some(Arc::new(move |i, k| Some(i * k_all + to(k))));
            } else {
                let values = g.values.clone();
                t.side(side).value = Some(Arc::new(move |i, k| values[i * k_all + to(k)]));
            }
            t
        })
        .collect()
}

/// Rows of the splits of K that are stepped through a workspace at another stride than they lie.
fn workspaces(s: &System) -> Vec<Theory> {
    if s.parts.len() != 1 {
        return Vec::new();
    }
    let mut strides: Vec<usize> = [8usize, 16, 32, 64, 128, 256].into_iter().map(|u| s.rows.next_multiple_of(u)).collect();
    strides.extend([s.rows.saturating_sub(1), s.rows + 1, s.rows / 2]);
    strides.sort_unstable();
    strides.dedup();
    let mut all = Vec::new();
    let (a, b, k_all, rows) = (s.a.values.clone(), s.b.values.clone(), s.k, s.rows);
    let right: Arc<Vec<f64>> = Arc::new(s.ideal.to_vec());
    let cols = s.cols;
    for splits in [2usize, 3, 4, 5, 6, 8, 16].into_iter().filter(|n| s.k.is_multiple_of(*n)) {
        // Whole multiples of the rows only leave out splits.
        for stride in strides.iter().copied().filter(|x| *x > 0 && !x.is_multiple_of(rows)) {
            let (a, b, right, bias) = (a.clone(), b.clone(), right.clone(), s.bias.clone());
            let words = format!(
                "partial sums of {splits} parts of K lie {rows} rows apart and are added up {stride} rows apart, nothing past the end"
            );
            let mut t = Theory::new(Class::Addressing, "out", "out.workspace", words).bits(4.0 + cost(splits) + cost(stride));
            let long = k_all / splits;
            t.finish = Some(Arc::new(move |i, j, v| {
                let at = i * cols + j;
                let part = |x: usize| {
                    let row = x * stride + i;
                    let (p, r) = (row / rows, row % rows);
                    if p >= splits {
                        return 0.0;
                    }
                    let ks = p * long..(p + 1) * long;
                    ks.map(|k| a[r * k_all + k] * b[j * k_all + k]).sum::<f64>()
                };
                (0..splits).map(part).sum::<f64>() + v - (right[at] - bias.at(i, j)) + bias.at(i, j)
            }));
            all.push(t);
        }
    }
    all
}

/// Tiles whose first stage of K is still the last one of the tile that the same block made before.
fn waves(s: &System) -> Vec<Theory> {
    if s.parts.len() != 1 {
        return Vec::new();
    }
    let (k_all, cols, rows) = (s.k, s.cols, s.rows);
    // The first tile that is wrong says how many are right before.
    let mut all = Vec::new();
    for tile in [16usize, 32, 64, 128] {
        let (m, n) = (rows.div_ceil(tile), cols.div_ceil(tile));
        if m * n < 3 || m * n > 4096 {
            continue;
        }
        let wrong = |t: usize| {
            let (i0, j0) = (t / n * tile, t % n * tile);
            (i0..(i0 + tile).min(rows)).any(|i| (j0..(j0 + tile).min(cols)).any(|j| s.is_wrong[i * cols + j]))
        };
        let columns_first = |t: usize| t % m * n + t / m;
        for by_rows in [true, false] {
            let order = |t: usize| if by_rows { t } else { columns_first(t) };
            let Some(before) = (0..m * n).find(|t| wrong(order(*t))).filter(|x| *x > 0) else { continue };
            if !(before..m * n).all(|t| wrong(order(t))) {
                continue;
            }
            for deep in [16usize, 32, 64, 128, 256].into_iter().filter(|d| 2 * d <= k_all) {
                for which in [(true, true), (true, false), (false, true)] {
                    let (a, b, bias) = (s.a.values.clone(), s.b.values.clone(), s.bias.clone());
                    let whose = match which {
                        (true, true) => "a and b",
                        (true, false) => "a",
                        _ => "b",
                    };
                    let along = if by_rows { "row by row" } else { "column by column" };
                    let words = format!(
                        "from the {} tile of {tile}×{tile} on ({along}) the first {deep} of K are still the last ones of {whose}, of the tile {before} earlier",
                        nth(before + 1)
                    );
                    let mut t = Theory::new(Class::AccState, "out", "out.stage_of_tile", words)
                        .bits(5.0 + cost(tile) + cost(before) + cost(deep) + f64::from(u8::from(which != (true, true))));
                    t.finish = Some(Arc::new(move |i, j, v| {
                        let (ti, tj) = (i / tile, j / tile);
                        let here = if by_rows { ti * n + tj } else { tj * m + ti };
                        let Some(old) = here.checked_sub(before) else { return v + bias.at(i, j) };
                        let (pi, pj) = if by_rows { (old / n, old % n) } else { (old % m, old / m) };
                        let (oi, oj) = (pi * tile + i % tile, pj * tile + j % tile);
                        let last = k_all - deep;
                        let mut off = 0.0;
                        for u in 0..deep {
                            let (x, y) = (a[i * k_all + u], b[j * k_all + u]);
                            let (p, q) = (
                                if which.0 { if oi < rows { a[oi * k_all + last + u] } else { 0.0 } } else { x },
                                if which.1 { if oj < cols { b[oj * k_all + last + u] } else { 0.0 } } else { y },
                            );
                            off += p * q - x * y;
                        }
                        v + off + bias.at(i, j)
                    }));
                    all.push(t);
                }
            }
        }
    }
    all
}

/// Runs of lines that are wrong.
fn runs(v: &[bool]) -> Vec<std::ops::Range<usize>> {
    let starts = (0..v.len()).filter(|x| v[*x] && (*x == 0 || !v[x - 1]));
    starts.map(|x| x..v[x..].iter().position(|w| !w).map_or(v.len(), |n| x + n)).collect()
}

/// Tiles that hold an operand: what a load puts into the memory that the result is still stored from.
fn loads(s: &System) -> Vec<Theory> {
    let Some(region) = &s.region else { return Vec::new() };
    let mut tiles = region.tiles.clone();
    if tiles.is_empty() {
        tiles =
            runs(&region.rows).into_iter().flat_map(|r| runs(&region.cols).into_iter().map(move |c| (r.clone(), c))).collect();
    }
    if tiles.len() > 256 || tiles.iter().any(|(r, c)| r.len() * c.len() < 16) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for side in [Which::A, Which::B] {
        let g = s.given(side);
        let mut contents: Vec<(&str, Arc<Vec<f64>>)> = vec![("values", g.values.clone())];
        if let Some(q) = &g.q {
            contents.push(("codes", Arc::new(q.codes().iter().map(|c| g.table[usize::from(*c)]).collect())));
        }
        for (what, values) in contents {
            let origin = |(r, c): &(std::ops::Range<usize>, std::ops::Range<usize>)| -> Option<(usize, usize)> {
                let mut looks: Vec<(usize, usize)> = (0..r.len() * c.len()).map(|x| (x / c.len(), x % c.len())).collect();
                spread(&mut looks, 64);
                // Zeros are everywhere.
                looks.retain(|(i, j)| s.actual[(r.start + i) * s.cols + c.start + j] != 0.0);
                let held = |i: usize, j: usize| {
                    let at = (r.start + i) * s.cols + c.start + j;
                    (at, s.actual[at])
                };
                let is = |x: usize, y: usize| {
                    looks.iter().all(|(i, j)| {
                        let (at, x_held) = held(*i, *j);
                        s.out.round(at, values[(x + i) * g.k + y + j]) == x_held
                    })
                };
                (looks.len() >= 8 && r.len() <= g.rows && c.len() <= g.k).then_some(())?;
                (0..=g.rows - r.len()).flat_map(|x| (0..=g.k - c.len()).map(move |y| (x, y))).find(|(x, y)| is(*x, *y))
            };
            let Some(origins) = tiles.iter().map(origin).collect::<Option<Vec<_>>>() else { continue };
            let name = side.name();
            let words = format!(
                "{} hold {what} of {name}: the first those from row {}, k = {} on, as a load puts them into the memory that the result is stored from",
                region.words, origins[0].0, origins[0].1
            );
            let mut t = Theory::new(Class::Race, "out", "out.operand", words).bits(10.0 + 4.0 * tiles.len() as f64);
            t.freedom = tiles.len();
            let (tiles, k_all) = (tiles.clone(), g.k);
            t.region = Some(region.clone());
            t.finish = Some(Arc::new(move |i, j, v| {
                let tile = tiles.iter().position(|(r, c)| r.contains(&i) && c.contains(&j));
                tile.map_or(v, |t| values[(origins[t].0 + i - tiles[t].0.start) * k_all + origins[t].1 + j - tiles[t].1.start])
            }));
            all.push(t);
        }
    }
    all
}
