//! Where a result is wrong: the rows and columns that are, as a region in words, and the elements that theories are tried on.

use super::address::gcd;
use super::system::{Region, System};
use crate::order::{Order as _, nth};
use std::ops::Range;

/// How far a stray element may be beyond its bound, in bounds; their share of all elements and of the wrong ones.
const NEARLY: f64 = 8.0;
const STRAY: usize = 1000;
const OF_WRONG: usize = 100;

/// Wrong elements with right ones all around that are hardly beyond their bound, where they are a few beside many: another order of roundings,
/// and no part of a region.
pub fn strays(s: &System) -> Vec<usize> {
    let n = s.rows * s.cols;
    let wrong = s.is_wrong.iter().filter(|w| **w).count();
    if wrong < OF_WRONG || wrong == n {
        return Vec::new();
    }
    let alone = |at: usize| {
        let (i, j) = (at / s.cols, at % s.cols);
        let near = |x: usize, most: usize| x.saturating_sub(1)..(x + 2).min(most);
        near(i, s.rows).all(|y| near(j, s.cols).all(|x| (y, x) == (i, j) || !s.is_wrong[y * s.cols + x]))
    };
    let most = (wrong / OF_WRONG).min(n.div_ceil(STRAY));
    let mut all = Vec::new();
    for at in (0..n).filter(|at| s.is_wrong[*at]) {
        let (x, right) = (s.actual[at], s.ideal[at]);
        let near = (x - right).abs() <= NEARLY * (s.certain(at) + s.out.spacing(at, right).max(s.out.spacing(at, x)));
        if near && alone(at) {
            all.push(at);
            if all.len() > most {
                return Vec::new();
            }
        }
    }
    all
}

/// The wrong share that makes a rectangle one region: the rest is right by chance.
const DENSE: f64 = 0.5;
/// Rectangles that one fault may have hit.
const TILES: usize = 64;

/// The rows and columns with a wrong element, or the rectangles of them, where that is not all.
pub fn region(s: &System) -> Option<Region> {
    let (mut rows, mut cols) = (vec![false; s.rows], vec![false; s.cols]);
    let mut wrong = 0;
    for (at, _) in s.is_wrong.iter().enumerate().filter(|(_, w)| **w) {
        rows[at / s.cols] = true;
        cols[at % s.cols] = true;
        wrong += 1;
    }
    if let Some(region) = flat(s, wrong, &rows, &cols) {
        return Some(region);
    }
    let all = |v: &[bool]| v.iter().all(|x| *x);
    let count = |v: &[bool]| v.iter().filter(|x| **x).count();
    if let Some((height, width, tiles)) = grid_tiles(s, wrong, count(&rows) * count(&cols)) {
        let words = format!("{} of the tiles of {height}×{width}", tiles.len());
        return Some(Region { rows, cols, words: format!("{words}: {}", places(&tiles)), tiles });
    }
    let sparse = (wrong as f64) < DENSE * (count(&rows) * count(&cols)) as f64;
    let tiles = if sparse { rectangles(s) } else { Vec::new() };
    if !tiles.is_empty() {
        let words = format!("{} tile{}: {}", tiles.len(), if tiles.len() == 1 { "" } else { "s" }, places(&tiles));
        return Some(Region { rows, cols, tiles, words });
    }
    if let Some((height, width, tiles)) = if sparse { any_tiles(s, wrong) } else { None } {
        let words = format!("{} of the tiles of {height}×{width}", tiles.len());
        return Some(Region { rows, cols, words: format!("{words}: {}", places(&tiles)), tiles });
    }
    // Lines of which almost all are wrong are all wrong: an element may be right by chance.
    for v in [&mut rows, &mut cols] {
        if count(v) * 10 > v.len() * 9 && !runs(v) {
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
    Some(Region { rows, cols, tiles: Vec::new(), words })
}

type Tile = (Range<usize>, Range<usize>);

/// The first few tiles in words.
pub fn places(tiles: &[Tile]) -> String {
    let one = |(r, c): &Tile| format!("rows {} … {} × columns {} … {}", r.start, r.end - 1, c.start, c.end - 1);
    let some: Vec<String> = tiles.iter().take(4).map(one).collect();
    format!("{}{}", some.join(", "), if tiles.len() > 4 { ", …" } else { "" })
}

/// Sizes of tiles of a grid, the largest first.
const GRID: [usize; 4] = [256, 128, 64, 32];

/// Tiles of a grid that are wrong as a whole beside right ones, where they are not all of the `area` of the wrong rows and columns, and zeros:
/// tiles that were not computed. Height, width, tiles.
fn grid_tiles(s: &System, wrong: usize, area: usize) -> Option<(usize, usize, Vec<Tile>)> {
    let zeros = || (0..s.is_wrong.len()).filter(|at| s.is_wrong[*at]).all(|at| s.actual[at] == 0.0 || s.actual[at].is_nan());
    (wrong * 10 < area * 9 && wrong >= GRID[3] * GRID[3] && zeros()).then_some(())?;
    whole_tiles(s, &GRID)
}

/// Sides of tiles that may be wrong in any way; elements of a result that is looked through for them.
const SIDES: [usize; 9] = [256, 192, 128, 96, 80, 64, 48, 32, 16];
const MANY: usize = 1 << 22;

/// Tiles of a grid that are wrong as a whole, whatever they hold: less than half of them, and the rest is right.
fn any_tiles(s: &System, wrong: usize) -> Option<(usize, usize, Vec<Tile>)> {
    let n = s.rows * s.cols;
    (n <= MANY && wrong * 2 < n && wrong >= 4 * SIDES[8] * SIDES[8]).then_some(())?;
    whole_tiles(s, &SIDES)
}

/// The same, of however many of them, as a region.
pub fn tiled(s: &System) -> Option<Region> {
    let n = s.rows * s.cols;
    let (height, width, tiles) = if n <= MANY { whole_tiles(s, &SIDES)? } else { return None };
    let rows = (0..s.rows).map(|i| tiles.iter().any(|t| t.0.contains(&i))).collect();
    let cols = (0..s.cols).map(|j| tiles.iter().any(|t| t.1.contains(&j))).collect();
    let words = format!("{} of the tiles of {height}×{width}: {}", tiles.len(), places(&tiles));
    Some(Region { rows, cols, tiles, words })
}

/// Elements side by side that an edge between wrong and right is told by, and how many of them have to change there.
const EDGE: usize = 16;
const CHANGES: usize = 12;

/// What all edges between wrong and right are a multiple of: the height of the tiles, or their width.
fn pitch(s: &System, across: bool) -> Option<usize> {
    let (n, m) = if across { (s.cols, s.rows) } else { (s.rows, s.cols) };
    let wrong = |x: usize, y: usize| s.is_wrong[if across { y * s.cols + x } else { x * s.cols + y }];
    let is_edge = |x: &usize| {
        let changes: Vec<bool> = (0..m).map(|y| wrong(x - 1, y) != wrong(*x, y)).collect();
        changes.windows(EDGE.min(m)).any(|w| w.iter().filter(|c| **c).count() >= CHANGES.min(m))
    };
    let all = (1..n).filter(is_edge).fold(0, super::address::gcd);
    (all >= EDGE / 2).then_some(all)
}

fn whole_tiles(s: &System, sides: &[usize]) -> Option<(usize, usize, Vec<Tile>)> {
    let own = pitch(s, false).zip(pitch(s, true));
    let listed = sides.iter().flat_map(|h| sides.iter().map(move |w| (*h, *w)));
    for (height, width) in own.into_iter().chain(listed) {
        let (down, across) = (s.rows.div_ceil(height), s.cols.div_ceil(width));
        let mut counts = vec![0usize; down * across];
        for (at, _) in s.is_wrong.iter().enumerate().filter(|(_, w)| **w) {
            counts[at / s.cols / height * across + at % s.cols / width] += 1;
        }
        let tile = |t: usize| {
            let (i, j) = (t / across * height, t % across * width);
            (i..(i + height).min(s.rows), j..(j + width).min(s.cols))
        };
        let hit: Vec<usize> = (0..counts.len()).filter(|t| counts[*t] > 0).collect();
        let whole = |t: &usize| {
            let (r, c) = tile(*t);
            counts[*t] * 10 > r.len() * c.len() * 9
        };
        if hit.len() < counts.len() && hit.len() <= 4 * TILES && hit.iter().all(whole) {
            return Some((height, width, hit.into_iter().map(tile).collect()));
        }
    }
    None
}

/// Whole rows of a run that may all be right in one column by chance.
const ROWS: usize = 4;

/// A run of the result as it lies in memory, that starts or ends within a row.
fn flat(s: &System, wrong: usize, rows: &[bool], cols: &[bool]) -> Option<Region> {
    let (first, last) = (s.is_wrong.iter().position(|w| *w)?, s.is_wrong.iter().rposition(|w| *w)?);
    let (top, bottom) = (first / s.cols, last / s.cols);
    let length = last + 1 - first;
    // Whole rows, a part of one, or too sparse: no run.
    let ragged = first % s.cols != 0 || last % s.cols + 1 != s.cols;
    (ragged && bottom > top + 1 && wrong * 10 > length * 9 && length < s.rows * s.cols * 19 / 20).then_some(())?;
    // A column without a wrong element in many whole rows is not part of what is wrong: these are rows and columns.
    (bottom - top <= ROWS || !cols.contains(&false)).then_some(())?;
    let mut tiles = vec![(top..top + 1, first % s.cols..s.cols)];
    tiles.push((top + 1..bottom, 0..s.cols));
    tiles.push((bottom..bottom + 1, 0..last % s.cols + 1));
    let words = if last + 1 == s.rows * s.cols || last % s.cols + 1 == s.cols && bottom + 1 == s.rows {
        format!("elements from flat index {first} on")
    } else {
        format!("elements of flat index {first} … {last}")
    };
    Some(Region { rows: rows.to_vec(), cols: cols.to_vec(), tiles, words })
}

/// The wrong elements as rectangles: those that touch, or almost, grown together. None: they are not dense in few.
fn rectangles(s: &System) -> Vec<(Range<usize>, Range<usize>)> {
    let mut boxes: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for i in 0..s.rows {
        let mut j = 0;
        while j < s.cols {
            if !s.is_wrong[i * s.cols + j] {
                j += 1;
                continue;
            }
            // A run, over gaps of two.
            let from = j;
            let mut end = j + 1;
            while j < s.cols && j < end + 3 {
                if s.is_wrong[i * s.cols + j] {
                    end = j + 1;
                }
                j += 1;
            }
            j = end;
            let (mut r, mut c) = (i..i + 1, from..end);
            while let Some(at) = boxes
                .iter()
                .position(|(x, y)| x.end + 2 >= r.start && x.start <= r.end && y.start <= c.end + 2 && c.start <= y.end + 2)
            {
                let (x, y) = boxes.swap_remove(at);
                (r, c) = (r.start.min(x.start)..r.end.max(x.end), c.start.min(y.start)..c.end.max(y.end));
            }
            boxes.push((r, c));
            if boxes.len() > 4 * TILES {
                return Vec::new();
            }
        }
    }
    let area: usize = boxes.iter().map(|(r, c)| r.len() * c.len()).sum();
    let wrong = s.is_wrong.iter().filter(|w| **w).count();
    // Single elements here and there are no tiles.
    if boxes.len() > TILES || area < 4 * boxes.len() || (wrong as f64) < DENSE * area as f64 {
        return Vec::new();
    }
    boxes.order_by_key(|(r, c)| (r.start, c.start));
    boxes
}

/// Whether the true ones are one run.
fn runs(v: &[bool]) -> bool {
    v.windows(2).filter(|w| w[0] != w[1]).count() <= 2
}

/// `, in rows 3 … 7`; nothing where it is all of them.
pub fn where_not_all(name: &str, v: &[bool]) -> String {
    if v.contains(&false) { format!(", in {name} {}", lines(v)) } else { String::new() }
}

/// `16 … 31`, `3, 7 and 9`, `16 … 31 of every 32`, `5 of 128 from 3 to 90`; a run that ends at the edge says so.
pub fn lines(v: &[bool]) -> String {
    let at: Vec<usize> = (0..v.len()).filter(|i| v[*i]).collect();
    let (Some(first), Some(last)) = (at.first(), at.last()) else { return "none".into() };
    if at.len() == last - first + 1 {
        return if first == last { format!("{first}") } else { format!("{first} … {last}") };
    }
    let step = at[1] - at[0];
    if at.len() > 2 && at.windows(2).all(|w| w[1] - w[0] == step) {
        return format!("{first}, {}, … {last} (every {})", first + step, nth(step));
    }
    if at.len() <= 4 {
        return at.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    }
    if let Some((run, period)) = repeated(v) {
        return format!("{} … {} of every {period}", run.start, run.end - 1);
    }
    format!("{} of {} from {first} to {last}", at.len(), v.len())
}

/// The run that every period has, and no other, the last one as far as there are lines. Any two runs of one length are so far apart: their distance has
/// to be one of a tile.
fn repeated(v: &[bool]) -> Option<(Range<usize>, usize)> {
    const TILE: usize = 8;
    let starts: Vec<usize> = (0..v.len()).filter(|x| v[*x] && (*x == 0 || !v[x - 1])).collect();
    let [first, second, ..] = starts[..] else { return None };
    let period = second - first;
    let run = first..first + (first..v.len()).take_while(|x| v[*x]).count();
    (starts.len() > 2 || period.is_multiple_of(TILE)).then_some(())?;
    (run.end <= period && (0..v.len()).all(|x| v[x] == run.contains(&(x % period)))).then_some((run, period))
}

/// At most this many of each kind.
const WRONG: usize = 96;
const RIGHT: usize = 32;

/// Elements to try theories on: the worst, then wrong ones and right ones spread over rows and columns.
pub fn probes(s: &System) -> Vec<(usize, usize)> {
    let n = s.rows * s.cols;
    let size = |at: usize| {
        let e = (s.actual[at] - s.ideal[at]).abs() / (s.certain(at) + s.out.spacing(at, s.ideal[at])).max(1e-300);
        if e.is_nan() { 0.0 } else { e }
    };
    // In one order for all bounds and regions, so that they share what theories say of an element.
    let order = |mut v: Vec<usize>, most: usize| {
        v.sort_by_cached_key(|at| anywhere(*at));
        v.truncate(most);
        v
    };
    let wrong = some(n, |at| s.is_wrong[at]);
    let worst = wrong.iter().copied().max_by(|x, y| size(*x).total_cmp(&size(*y)).then(y.cmp(x)));
    let wrong = order(wrong, WRONG);
    let mut by_size: Vec<(f64, usize)> = wrong.iter().map(|at| (size(*at), *at)).collect();
    by_size.order_by(|a, b| b.0.total_cmp(&a.0));
    let mut all: Vec<usize> = worst.into_iter().collect();
    all.extend(by_size.iter().step_by(by_size.len().div_ceil(8).max(1)).take(8).skip(1).map(|x| x.1));
    all.extend(wrong);
    all.extend(order(some(n, |at| !s.is_wrong[at] && s.actual[at].is_finite()), RIGHT));
    let mut seen = std::collections::HashSet::new();
    all.into_iter().filter(|at| seen.insert(*at)).map(|at| (at / s.cols, at % s.cols)).collect()
}

/// Elements that are looked at where a result is large.
const LOOKS: usize = 1 << 16;

/// The elements that are so, in order; of many about as many as [`LOOKS`], from all over.
fn some(n: usize, is: impl Fn(usize) -> bool) -> Vec<usize> {
    let count = (0..n).filter(|at| is(*at)).count();
    let step = (count / LOOKS).max(1);
    // An odd step meets all columns.
    (0..n).filter(|at| is(*at)).step_by(step | usize::from(step > 1)).collect()
}

/// Keeps `most`, in an order that jumps over the rows and columns.
pub fn spread<T: Copy>(v: &mut Vec<T>, most: usize) {
    *v = spread_of(v.len(), most).into_iter().map(|at| v[at]).collect();
}

/// [`spread`] of the numbers below `n` that `is` takes, of which no list is made: there may be one for each element.
pub fn spread_where(n: usize, is: &dyn Fn(&usize) -> bool, most: usize) -> Vec<usize> {
    let all = (0..n).filter(is).count();
    let mut ranks: Vec<(usize, usize)> = spread_of(all, most).into_iter().enumerate().map(|(to, rank)| (rank, to)).collect();
    ranks.sort_unstable();
    let (mut kept, mut next) = (vec![0; ranks.len()], ranks.iter().peekable());
    for (rank, at) in (0..n).filter(is).enumerate() {
        match next.peek() {
            Some((of, to)) if *of == rank => kept[*to] = at,
            Some(_) => continue,
            None => break,
        }
        next.next();
    }
    kept
}

/// So many numbers below n, over all of them.
pub fn spread_of(n: usize, most: usize) -> Vec<usize> {
    if n == 0 {
        return Vec::new();
    }
    // An odd stride near the golden section visits everything before it comes back.
    let mut stride = (n as f64 * 0.618) as usize | 1;
    while gcd(stride, n) != 1 {
        stride += 2;
    }
    (0..n.min(most)).map(|x| x * stride % n).collect()
}

/// A number for each place, the same for whatever is asked there, in no order.
fn anywhere(at: usize) -> u64 {
    let mut x = (at as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn those(n: usize, at: &[usize]) -> Vec<bool> {
        (0..n).map(|i| at.contains(&i)).collect()
    }

    #[test]
    fn numbers_are_spread_without_a_list_of_them() {
        for (n, step, most) in [(1000, 3, 20), (1000, 3, 5000), (7, 2, 3), (0, 1, 4), (5, 9, 4)] {
            let is = |at: &usize| at % step == 1 % step;
            let mut listed: Vec<usize> = (0..n).filter(is).collect();
            spread(&mut listed, most);
            assert_eq!(spread_where(n, &is, most), listed, "{n} {step} {most}");
        }
    }

    #[test]
    fn lines_are_a_run_a_step_a_few_or_a_share() {
        let of = |at: &[usize]| lines(&those(40, at));
        assert_eq!([of(&[]), of(&[7]), of(&[7, 8]), of(&[7, 8, 9])], ["none", "7", "7 … 8", "7 … 9"]);
        assert_eq!(of(&[3, 5, 7]), "3, 5, … 7 (every second)");
        assert_eq!([of(&[3, 5]), of(&[3, 5, 8, 20])], ["3, 5", "3, 5, 8, 20"]);
        assert_eq!(of(&[3, 5, 8, 20, 21]), "5 of 40 from 3 to 21");
        assert_eq!(of(&[0, 10, 20, 30]), "0, 10, … 30 (every 10th)");
        // Runs of every tile; the last one is cut.
        assert_eq!(of(&[12, 13, 14, 15, 28, 29, 30, 31]), "12 … 15 of every 16");
        assert_eq!(of(&[0, 1, 14, 15, 28, 29]), "0 … 1 of every 14");
        assert_eq!(of(&[9, 10, 11, 12, 33, 34, 35, 36]), "9 … 12 of every 24");
        assert_eq!(of(&[6, 7, 8, 38, 39]), "6 … 8 of every 32");
        // Two runs that are any distance apart, and others.
        assert_eq!(of(&[4, 5, 6, 15, 16, 17]), "6 of 40 from 4 to 17");
        assert_eq!(of(&[2, 3, 12, 13, 22, 23]), "6 of 40 from 2 to 23");
    }

    #[test]
    fn true_ones_are_one_run_where_they_change_twice_at_most() {
        for (at, one) in [
            (&[][..], true),
            (&[0, 1], true),
            (&[3, 4], true),
            (&[38, 39], true),
            (&[0, 39], true),
            (&[0, 3], false),
            (&[3, 5], false),
        ] {
            assert_eq!(runs(&those(40, at)), one, "{at:?}");
        }
        assert!(runs(&[true; 3]) && runs(&[]));
    }

    #[test]
    fn four_tiles_are_told_and_more_are_hinted_at() {
        let tile = |i: usize| (i..i + 2, 3 * i..3 * i + 3);
        let tiles: Vec<Tile> = (0..5).map(tile).collect();
        assert_eq!(places(&tiles[..1]), "rows 0 … 1 × columns 0 … 2");
        let four =
            "rows 0 … 1 × columns 0 … 2, rows 1 … 2 × columns 3 … 5, rows 2 … 3 × columns 6 … 8, rows 3 … 4 × columns 9 … 11";
        assert_eq!([places(&tiles[..4]), places(&tiles)], [four.to_string(), format!("{four}, …")]);
    }

    /// Every number once, and no two neighbours side by side.
    #[test]
    fn numbers_are_spread_over_all() {
        for n in [1, 2, 3, 8, 13, 100, 1597] {
            let mut all = spread_of(n, n);
            assert!(n < 8 || all.windows(2).all(|w| w[0].abs_diff(w[1]) > 1), "{n}: {all:?}");
            assert_eq!(spread_of(n, 2), all[..n.min(2)]);
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..n), "{n}");
        }
        assert_eq!((spread_of(0, 3), spread_of(100, 4)), (vec![], vec![0, 61, 22, 83]));
        let mut v = vec!['a', 'b', 'c', 'd', 'e'];
        spread(&mut v, 3);
        assert_eq!(v, ['a', 'd', 'b']);
        assert_eq!(some(10, |at| at % 3 == 1), [1, 4, 7]);
        // Of twice as many as are looked at every third: an odd step.
        let many = some(2 * LOOKS, |_| true);
        assert_eq!((many.len(), &many[..3]), ((2 * LOOKS).div_ceil(3), &[0, 3, 6][..]));
        assert_eq!(some(2 * LOOKS - 1, |_| true).len(), 2 * LOOKS - 1);
    }
}
