//! Tiles that a wrong way from a tile's number to its place leaves out: a divisor that is the other side's, a group of tiles that is taken for a whole
//! one, a grid that ends early.
//!
//! ```text
//! tile t of P × Q         right: (t mod P, t / P) or (t / Q, t mod Q)         wrong: (t mod P, t / Q), …: some are made twice, others never
//! ```

/// All sides of tiles are multiples of this.
const CELL: usize = 16;
const SIDES: [usize; 9] = [256, 192, 128, 96, 80, 64, 48, 32, 16];
/// Tiles, at least and at most.
const TILES: std::ops::RangeInclusive<usize> = 6..=4096;
/// Tiles that a group leaves out, at least.
const CORNER: usize = 4;
/// Rows of tiles that are made together, the usual number first.
const GROUPS: [usize; 7] = [8, 4, 16, 2, 3, 5, 6];

/// The place of tile t of P × Q.
type Place = Box<dyn Fn(usize, usize, usize) -> (usize, usize)>;

/// A way that is not right.
struct Way {
    words: String,
    /// How many rows, or columns, of tiles are made together; 0: none are.
    group: usize,
    by_row: bool,
    place: Place,
}

fn ways() -> Vec<Way> {
    type Plain = fn(usize, usize, usize) -> (usize, usize);
    let plain: [(&str, Plain); 6] = [
        ("row t mod P, column t / Q", |t, p, q| (t % p, t / q)),
        ("row t mod Q, column t / P", |t, p, q| (t % q, t / p)),
        ("row t mod Q, column t / Q", |t, _, q| (t % q, t / q)),
        ("row t / P, column t mod P", |t, p, _| (t / p, t % p)),
        ("row t / P, column t mod Q", |t, p, q| (t / p, t % q)),
        ("row t / Q, column t mod P", |t, p, q| (t / q, t % p)),
    ];
    let mut all: Vec<Way> = Vec::new();
    for (words, place) in plain {
        all.push(Way { words: words.into(), group: 0, by_row: true, place: Box::new(place) });
    }
    for g in GROUPS {
        let words = |what: &str| format!("groups of {g} {what} of tiles, the last, smaller one as if it were whole");
        let rows: Place = Box::new(move |t, _, q| (t / (g * q) * g + t % (g * q) % g, t % (g * q) / g));
        all.push(Way { words: words("rows"), group: g, by_row: true, place: rows });
        let cols: Place = Box::new(move |t, p, _| (t % (g * p) / g, t / (g * p) * g + t % (g * p) % g));
        all.push(Way { words: words("columns"), group: g, by_row: false, place: cols });
    }
    all
}

/// Sides of a tile that is alone, the usual ones first.
const USUAL: [usize; 9] = [128, 64, 256, 32, 16, 192, 96, 48, 80];

/// The last tile of all, alone: what is said shorter than any order of tiles that leaves it out. One that is partial both ways
/// is an edge: no words.
fn last_alone(rows: usize, cols: usize, held: &dyn Fn(usize) -> bool) -> Option<Option<String>> {
    // The corner that is held, by its last row and its last column.
    let top = (0..rows).rev().take_while(|i| held(i * cols + cols - 1)).last()?;
    let left = (0..cols).rev().take_while(|j| held((rows - 1) * cols + j)).last()?;
    let inside = |at: usize| at / cols >= top && at % cols >= left;
    let is_tile = |(h, w): &(usize, usize)| (rows - 1) / h * h == top && (cols - 1) / w * w == left && top > 0 && left > 0;
    let is_edge = |h: usize, w: usize| rows - top != h && cols - left != w;
    // Square ones first.
    let tiles = USUAL.iter().flat_map(|h| USUAL.map(|w| (*h, w))).filter(is_tile);
    let (h, w) = tiles.min_by_key(|(h, w)| (is_edge(*h, *w), h != w))?;
    // A few right results are 0 too.
    let out = (0..rows * cols).filter(|at| !inside(*at) && held(*at)).count();
    let whole = (0..rows * cols).filter(|at| inside(*at)).all(held);
    (whole && 100 * out <= (rows - top) * (cols - left)).then_some(())?;
    let words = || {
        format!(
            "of {}×{} tiles of {h}×{w} the last one is never made: no block runs it to its end, as where its part of K is empty or the grid \
             is one tile short",
            rows.div_ceil(h),
            cols.div_ceil(w)
        )
    };
    Some((!is_edge(h, w)).then(words))
}

/// Whole rows (or columns) of tiles at the end that a wrong divisor never reaches, in words: those of the lines from `from` on. Square tiles
/// alone: of free sides some fit nearly any end.
pub fn never_reached((rows, cols): (usize, usize), from: usize, by_row: bool) -> Option<String> {
    const LIKELY: [usize; 5] = [128, 64, 32, 16, 256];
    // Of a half, a grid that is half as large is the likelier reason.
    (2 * from != if by_row { rows } else { cols }).then_some(())?;
    let ways = ways();
    LIKELY.into_iter().map(|side| (side, side)).find_map(|(h, w)| {
        let (p, q) = (rows.div_ceil(h), cols.div_ceil(w));
        let side = if by_row { h } else { w };
        // One row of tiles alone is the last one, whatever was divided.
        let alone = (if by_row { p } else { q }) <= from / side + 1;
        if !TILES.contains(&(p * q)) || p < 2 || q < 2 || p == q || alone || !from.is_multiple_of(side) {
            return None;
        }
        let is_lost = |t: usize| if by_row { t / q } else { t % q } >= from / side;
        let leaves = |way: &&Way| {
            let mut left = vec![true; p * q];
            for (x, y) in (0..p * q).map(|t| (way.place)(t, p, q)).filter(|(x, y)| *x < p && *y < q) {
                left[x * q + y] = false;
            }
            (0..p * q).all(|t| left[t] == is_lost(t))
        };
        // What the other half of a way is does not show; what is divided comes before what is left of it.
        let half = |way: &Way| way.words.split_once(", ").map(|x| if by_row { x.0 } else { x.1 }.to_string());
        let mut halves: Vec<String> = ways.iter().filter(|w| w.group == 0).filter(leaves).filter_map(half).collect();
        halves.sort_unstable();
        halves.dedup();
        let what = if by_row { "rows" } else { "columns" };
        (!halves.is_empty()).then(|| {
            format!(
                "of {p}×{q} tiles of {h}×{w} tile t is taken for {} (P = {p}, Q = {q}): {what} of tiles from {} on are never reached, others \
                 are made twice",
                halves.join(" or "),
                from / side
            )
        })
    })
}

/// The way that leaves out just the tiles of which all elements are `held`, in words.
pub fn left_out(rows: usize, cols: usize, held: &dyn Fn(usize) -> bool) -> Option<String> {
    let (high, wide) = (rows.div_ceil(CELL), cols.div_ceil(CELL));
    // Cells of which everything is held, and of which nothing is decided: those are no part of a tile.
    let mut cells = vec![0usize; high * wide];
    for at in (0..rows * cols).filter(|at| held(*at)) {
        cells[at / cols / CELL * wide + at % cols / CELL] += 1;
    }
    let size = |c: usize| {
        let (i, j) = (c / wide * CELL, c % wide * CELL);
        CELL.min(rows - i) * CELL.min(cols - j)
    };
    let is: Vec<bool> = (0..cells.len()).map(|c| cells[c] == size(c)).collect();
    if !is.contains(&true) || !is.contains(&false) {
        return None;
    }
    if let Some(words) = last_alone(rows, cols, held) {
        return words;
    }
    // Every size that the cells leave, with the tiles that are missing.
    let mut sizes: Vec<(usize, usize, Vec<bool>)> = Vec::new();
    for (h, w) in SIDES.iter().flat_map(|h| SIDES.map(|w| (*h, w))) {
        let (p, q) = (rows.div_ceil(h), cols.div_ceil(w));
        if !TILES.contains(&(p * q)) || p < 2 || q < 2 {
            continue;
        }
        let (mut missing, mut some) = (vec![false; p * q], vec![false; p * q]);
        for (c, is) in is.iter().enumerate() {
            let tile = c / wide * CELL / h * q + c % wide * CELL / w;
            if *is { missing[tile] = true } else { some[tile] = true }
        }
        // A tile is there or it is not; whole rows or columns of tiles are missing for many reasons.
        let mixed = |line: &dyn Fn(usize) -> usize, n: usize| {
            (0..n).any(|l| {
                let of = |is: &[bool]| (0..p * q).any(|t| line(t) == l && is[t]);
                of(&missing) && of(&some)
            })
        };
        if (0..p * q).all(|t| missing[t] != some[t]) && mixed(&|t| t / q, p) && mixed(&|t| t % q, q) {
            sizes.push((h, w, missing));
        }
    }
    let count = |missing: &[bool]| missing.iter().filter(|m| **m).count();
    let tiles = |(h, w, _): &(usize, usize, Vec<bool>)| (rows.div_ceil(*h), cols.div_ceil(*w), format!("tiles of {h}×{w}"));
    for way in ways() {
        for size in &sizes {
            let (p, q, of) = tiles(size);
            let mut left = vec![true; p * q];
            for (x, y) in (0..p * q).map(|t| (way.place)(t, p, q)).filter(|(x, y)| *x < p && *y < q) {
                left[x * q + y] = false;
            }
            let lost = count(&size.2);
            // A group has to be one of several, and a corner is one for many reasons.
            let many = way.group == 0 || lost >= CORNER && way.group < if way.by_row { p } else { q };
            if p == q && way.group == 0 || !many || left != size.2 {
                continue;
            }
            let sides = if way.group == 0 { format!(" (P = {p}, Q = {q})") } else { String::new() };
            return Some(format!(
                "of {p}×{q} {of} tile t is taken for {}{sides}: {lost} are never made, others twice",
                way.words
            ));
        }
    }
    // Those behind a number: not whole rows of tiles alone, which end for many reasons.
    sizes.iter().flat_map(|size| [(size, true), (size, false)]).find_map(|(size, by_row)| {
        let (p, q, of) = tiles(size);
        let line = if by_row { q } else { p };
        let at = |t: usize| if by_row { t } else { t % p * q + t / p };
        let lost = count(&size.2);
        let made = p * q - lost;
        let tail = (0..p * q).all(|t| size.2[at(t)] == (t >= made));
        let order = if by_row { "row by row" } else { "column by column" };
        (tail && made % line > 0 && lost > line)
            .then(|| format!("of {p}×{q} {of}, {order}, the first {made} are made: the grid, or the loop over it, ends there"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said where tiles of 32×64 are made at these places.
    fn of((p, q): (usize, usize), made: impl Fn(usize) -> Option<(usize, usize)>) -> Option<String> {
        let (rows, cols) = (p * 32 - 8, q * 64 - 20);
        let mut held = vec![true; rows * cols];
        for (x, y) in (0..p * q).filter_map(made) {
            for at in (0..rows * cols).filter(|at| at / cols / 32 == x && at % cols / 64 == y) {
                held[at] = false;
            }
        }
        left_out(rows, cols, &|at| held[at])
    }

    #[test]
    fn tiles_that_a_wrong_divisor_leaves_out_are_told() {
        let words = of((5, 3), |t| Some((t % 5, t / 3))).unwrap();
        assert_eq!(
            words,
            "of 5×3 tiles of 32×64 tile t is taken for row t mod P, column t / Q (P = 5, Q = 3): 6 are never made, others twice"
        );
        let words = of((13, 4), |t| Some((t / 32 * 8 + t % 32 % 8, t % 32 / 8))).unwrap();
        assert!(words.contains("groups of 8 rows of tiles, the last, smaller one as if it were whole"), "{words}");
        let words = of((5, 3), |t| (t < 7).then_some((t / 3, t % 3))).unwrap();
        assert!(words.contains("row by row, the first 7 are made"), "{words}");
        // What a rectangle that is one tile of another size says shorter.
        let words = of((11, 4), |t| Some((t / 32 * 8 + t % 32 % 8, t % 32 / 8)));
        assert_eq!(words, None, "an edge of tiles of 128");
        assert_eq!(of((5, 3), |t| Some((t % 5, t / 5))), None, "all are there");
        assert_eq!(of((3, 5), |t| Some((t % 3, t / 5))), None, "the last columns of tiles");
        assert_eq!(of((5, 3), |t| (t != 4 && t != 10).then_some((t / 3, t % 3))), None, "two are not");
    }

    #[test]
    fn the_last_tile_alone_and_rows_of_tiles_out_of_reach_are_told() {
        let (rows, cols) = (192, 256);
        let words = left_out(rows, cols, &|at| at / cols >= 128 && at % cols >= 128).unwrap();
        assert!(words.starts_with("of 2×2 tiles of 128×128 the last one is never made"), "{words}");
        // An edge is partial both ways.
        assert_eq!(left_out(190, 250, &|at| at / 250 >= 128 && at % 250 >= 128), None);
        let words = never_reached((160, 96), 96, true).unwrap();
        assert!(
            words.starts_with("of 5×3 tiles of 32×32 tile t is taken for row t / P or row t mod Q (P = 5, Q = 3): rows of"),
            "{words}"
        );
        assert_eq!(never_reached((160, 96), 144, true), None, "no divisor ends there");
        assert_eq!(never_reached((4096, 2048), 2048, true), None, "half of the grid");
        assert_eq!(never_reached((2048, 4096), 2048, false), None, "half of the grid");
        assert_eq!(never_reached((4096, 4096), 1024, true), None, "tiles of 64×256");
    }
}
