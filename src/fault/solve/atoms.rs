//! Block scales that are stored in one layout and read in another: rows, columns, the 128×4 atoms of tensor cores with their axes in any order, one
//! after the other along the rows or along the groups, padded or not, and the 8×4 atoms of small tiles.
//!
//! ```text
//! atom:   (r mod 32)·16 + (r/32 mod 4)·4 + c mod 4          or with these three axes in another order
//! small:  (r mod 8)·4 + c mod 4
//! map:    the cell that the writer put where the reader looks for (r, c)
//! ```
//!
//! A map is tried as a whole: scales that are powers of two are equal too often to tell cell by cell.

use super::given::Given;
use super::maps::cost;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Rows and groups of an atom, and its cells.
const TALL: usize = 128;
const WIDE: usize = 4;
const CELLS: usize = TALL * WIDE;
/// Rows of an atom of small tiles.
const SHORT: usize = 8;
/// Atoms of which each is asked for itself.
const EACH: usize = 64;

/// Sizes of the axes of an atom: r mod 32, r/32 mod 4, c mod 4; and their words.
const SIZES: [usize; 3] = [32, 4, 4];
const AXES: [&str; 3] = ["r mod 32", "r/32 mod 4", "c mod 4"];
/// Orders of the axes, the slowest first; the first is right.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// How a grid lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// Row by row, of so many each.
    Rows(usize),
    /// Column by column, of so many each.
    Columns(usize),
    /// Axes of an atom; so many atoms beside each other, or (`down`) below each other, before the next line of them.
    Atoms { order: [usize; 3], down: bool, line: usize },
    /// Atoms of eight rows and four groups, so many beside each other.
    Small { line: usize },
}

impl Layout {
    pub fn at(self, r: usize, c: usize) -> usize {
        match self {
            Layout::Rows(wide) => r * wide + c,
            Layout::Columns(high) => c * high + r,
            Layout::Small { line } => (r / SHORT * line + c / WIDE) * (SHORT * WIDE) + r % SHORT * WIDE + c % WIDE,
            Layout::Atoms { order, down, line } => {
                let x = [r % 32, r / 32 % 4, c % WIDE];
                let inside = order.iter().fold(0, |at, axis| at * SIZES[*axis] + x[*axis]);
                let (row, col) = (r / TALL, c / WIDE);
                (if down { col * line + row } else { row * line + col }) * CELLS + inside
            }
        }
    }

    /// The row and the group whose place this is; they may be padding.
    pub fn cell(self, at: usize) -> (usize, usize) {
        match self {
            Layout::Rows(wide) => (at / wide, at % wide),
            Layout::Columns(high) => (at % high, at / high),
            Layout::Small { line } => {
                let (atom, inside) = (at / (SHORT * WIDE), at % (SHORT * WIDE));
                (atom / line * SHORT + inside / WIDE, atom % line * WIDE + inside % WIDE)
            }
            Layout::Atoms { order, down, line } => {
                let (atom, mut inside) = (at / CELLS, at % CELLS);
                let mut x = [0; 3];
                order.iter().rev().for_each(|axis| {
                    x[*axis] = inside % SIZES[*axis];
                    inside /= SIZES[*axis];
                });
                let (row, col) = if down { (atom % line, atom / line) } else { (atom / line, atom % line) };
                (row * TALL + x[1] * 32 + x[0], col * WIDE + x[2])
            }
        }
    }

    pub fn words(self) -> String {
        match self {
            Layout::Rows(wide) => format!("in rows of {wide}"),
            Layout::Columns(high) => format!("in columns of {high}"),
            Layout::Small { line } => format!("in 8×4 atoms, {line} beside each other"),
            Layout::Atoms { order, down, line } => {
                let axes: Vec<String> = order.iter().map(|axis| format!("[{}]", AXES[*axis])).collect();
                let along = if down { "below" } else { "beside" };
                format!("in 128×4 atoms {}, {line} {along} each other", axes.concat())
            }
        }
    }

    fn is_atoms(self) -> bool {
        matches!(self, Layout::Atoms { .. } | Layout::Small { .. })
    }

    /// Whether its lines of atoms are too short for a grid of this shape: cells share places.
    fn is_short(self, rows: usize, cols: usize) -> bool {
        matches!(self, Layout::Atoms { down, line, .. } if line < if down { rows.div_ceil(TALL) } else { cols.div_ceil(WIDE) })
    }

    /// What it takes to say, for a grid of this shape.
    fn bits(self, rows: usize, cols: usize) -> f64 {
        let other = |is: bool, bits: f64| if is { bits } else { 0.0 };
        match self {
            Layout::Rows(wide) => other(wide != cols, 1.5),
            Layout::Columns(high) => 1.0 + other(high != rows, 1.5),
            Layout::Small { .. } => 1.5,
            Layout::Atoms { order, down, .. } => {
                other(order != ORDERS[0], 2.0) + other(down, 1.5) + other(self.is_short(rows, cols), 2.0)
            }
        }
    }
}

/// The atoms that tensor cores read, of a grid of so many groups.
pub fn tall_atoms(cols: usize) -> Layout {
    Layout::Atoms { order: ORDERS[0], down: false, line: cols.div_ceil(WIDE) }
}

/// Places of a grid in atoms that are whole.
pub fn padded(rows: usize, cols: usize) -> usize {
    rows.next_multiple_of(TALL) * cols.next_multiple_of(WIDE)
}

/// The layouts of a grid.
fn layouts(rows: usize, cols: usize) -> Vec<Layout> {
    let mut all = vec![Layout::Rows(cols), Layout::Columns(rows)];
    all.extend([Layout::Rows(cols.next_multiple_of(WIDE)), Layout::Columns(rows.next_multiple_of(TALL))]);
    all.push(Layout::Small { line: cols.div_ceil(WIDE) });
    for order in ORDERS {
        for (down, lines) in [(false, [cols.div_ceil(WIDE), cols / WIDE]), (true, [rows.div_ceil(TALL), rows / TALL])] {
            all.extend(lines.into_iter().filter(|line| *line > 0).map(|line| Layout::Atoms { order, down, line }));
        }
    }
    let mut some: Vec<Layout> = Vec::new();
    for layout in all {
        // One line of atoms has one order.
        let same = |x: &Layout| match (x, &layout) {
            (Layout::Atoms { order: a, .. }, Layout::Atoms { order: b, .. }) => {
                a == b && (0..rows).step_by(TALL).all(|r| (0..cols).step_by(WIDE).all(|c| x.at(r, c) == layout.at(r, c)))
            }
            _ => *x == layout,
        };
        if !some.iter().any(same) {
            some.push(layout);
        }
    }
    some
}

/// The cell that is read for another one.
type Map = Arc<dyn Fn(usize, usize) -> Option<(usize, usize)> + Send + Sync>;

/// Words of a map of the axes within atoms, where it is an exchange of two of one size.
fn exchange(stored: Layout, read: Layout) -> String {
    let (Layout::Atoms { order: x, down, line }, Layout::Atoms { order: y, .. }) = (stored, read) else { return String::new() };
    let same = read == Layout::Atoms { order: y, down, line };
    let turned = [0, 1, 2].into_iter().filter(|n| x[*n] != y[*n]).all(|n| SIZES[x[n]] == SIZES[y[n]]);
    if same && turned { ": in each atom rows r/32 mod 4 and groups c mod 4 are exchanged".into() } else { String::new() }
}

/// The grid of one expert, of an operand whose scales are of blocks along K of one row.
fn grid<'s>(s: &'s System, side: Which) -> Option<(&'s Given, usize, usize)> {
    let g = s.given(side);
    let experts = if side == Which::B && s.parts.len() > 1 { s.parts.len() } else { 1 };
    let (rows, cols) = (g.grid.0 / experts, g.grid.1);
    let fits = g.q.is_some() && g.deep.is_none() && g.zero.is_none() && g.tile.0 == 1 && g.tile.1 <= 32;
    (fits && g.grid.0.is_multiple_of(experts) && rows > 1 && cols > 1).then_some((g, rows, cols))
}

/// The scales of one operand and how many rows of its grid an expert has.
#[derive(Clone)]
struct Scales {
    all: Arc<Vec<f32>>,
    per: usize,
    cols: usize,
}

impl Scales {
    /// The scale that a map leads to; `blank` where nothing is stored.
    fn read(&self, map: &Map, blank: f64, row: usize, c: usize) -> f64 {
        let cell = map(row % self.per, c).filter(|(r, c)| *r < self.per && *c < self.cols);
        cell.map_or(blank, |(r, c)| f64::from(self.all[(row / self.per * self.per + r) * self.cols + c]))
    }

    /// Whether a map changes any.
    fn is_other(&self, map: &Map, blank: f64) -> bool {
        let own = |f: usize| f64::from(self.all[f]);
        (0..self.all.len()).any(|f| self.read(map, blank, f / self.cols, f % self.cols) != own(f))
    }
}

/// A theory that reads scales by a map.
fn theory(g: &Given, side: Which, scales: &Scales, map: Map, blank: f64, words: &str) -> Theory {
    let (name, global, long, scales) = (side.name(), g.global, g.tile.1, scales.clone());
    let words = format!("the scale of {name} at row r, group c of the {}×{} grid is read from {words}", g.grid.0, g.grid.1);
    let mut t = Theory::new(Class::ScaleLayout, name, format!("{name}.index"), words);
    let at: At = Arc::new(move |i, k| scales.read(&map, blank, i, k / long) * global);
    t.side(side).scaled(long, at);
    t
}

/// Every layout that is stored, read as every other, where one of the two is of atoms.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let Some((g, rows, cols)) = grid(s, side).filter(|_| !s.alone) else { return Vec::new() };
    let scales = Scales { all: Arc::new(g.scales().to_vec()), per: rows, cols };
    let all = layouts(rows, cols);
    let pairs = all.iter().flat_map(|stored| all.iter().map(move |read| (*stored, *read)));
    let mut found = Vec::new();
    for (stored, read) in pairs.filter(|(x, y)| x != y && !x.is_short(rows, cols) && (x.is_atoms() || y.is_atoms())) {
        let map: Map = Arc::new(move |r, c| Some(stored.cell(read.at(r, c))));
        let inside = |f: usize| map(f / cols, f % cols).is_some_and(|(r, c)| r < rows && c < cols);
        let whole = (rows.is_multiple_of(TALL) && cols.is_multiple_of(WIDE)) || (0..rows * cols).all(inside);
        for (blank, more, bits) in [(0.0, ", 0 where nothing is stored", 0.0), (1.0, ", 1 where nothing is stored", 1.0)] {
            if whole && blank == 1.0 {
                continue;
            }
            let rest = if whole { "" } else { more };
            let words =
                format!("another layout, stored {} and read {}{}{rest}", stored.words(), read.words(), exchange(stored, read));
            // What is written otherwise than it should is rarer.
            let bits = 6.5 + stored.bits(rows, cols) * 1.25 + read.bits(rows, cols) + bits;
            if scales.is_other(&map, blank) {
                found.push(theory(g, side, &scales, map.clone(), blank, &words).bits(bits));
            }
        }
    }
    found
}

/// Quarters of the rows of atoms, or their groups, that are exchanged, or read for another one: in one atom, in a line of them or in all.
pub fn parts(s: &System) -> Vec<Theory> {
    s.sides().iter().filter(|_| !s.alone).flat_map(|side| parts_of(s, *side)).collect()
}

fn parts_of(s: &System, side: Which) -> Vec<Theory> {
    let Some((g, rows, cols)) = grid(s, side) else { return Vec::new() };
    let scales = Scales { all: Arc::new(g.scales().to_vec()), per: rows, cols };
    let (down, across) = (rows.div_ceil(TALL), cols.div_ceil(WIDE));
    let mut places: Vec<(Option<usize>, Option<usize>)> = vec![(None, None)];
    // Atoms whose rows meet a wrong element: of a large grid one of them is still told.
    let lines = if side == Which::A { s.rows } else { s.cols };
    let wrong = |line: usize| {
        let at = |other: usize| if side == Which::A { line * s.cols + other } else { other * s.cols + line };
        (0..s.rows * s.cols / lines.max(1)).any(|other| s.is_wrong[at(other)])
    };
    let mut met: Vec<usize> = (0..lines).filter(|line| wrong(*line)).map(|line| line % rows / TALL).collect();
    met.dedup();
    if met.len() * across <= EACH {
        places.extend(met.iter().flat_map(|r| (0..across).map(move |c| (Some(*r), Some(c)))));
    }
    if down * across <= EACH {
        places.extend((0..across).map(|c| (None, Some(c))).filter(|_| down > 1));
        places.extend((0..down).map(|r| (Some(r), None)).filter(|_| across > 1));
    }
    let mut found = Vec::new();
    for (row, col) in places {
        let base = row.map_or(0.0, cost) + col.map_or(0.0, cost);
        let lines = |from: usize, long: usize, end: usize| format!("{from} … {}", (from + long).min(end) - 1);
        let place = match (row, col) {
            (None, None) => "each 128×4 atom".to_string(),
            (Some(r), None) => format!("the 128×4 atoms of rows {}", lines(r * TALL, TALL, rows)),
            (None, Some(c)) => format!("the 128×4 atoms of groups {}", lines(c * WIDE, WIDE, cols)),
            (Some(r), Some(c)) => {
                format!("the 128×4 atom of rows {}, groups {}", lines(r * TALL, TALL, rows), lines(c * WIDE, WIDE, cols))
            }
        };
        for along_rows in [true, false] {
            let (unit, what) = if along_rows { (32, "rows") } else { (1, "group") };
            for (p, q, both) in (0..16).flat_map(|x| [(x / 4, x % 4, true), (x / 4, x % 4, false)]) {
                if p == q || both && p > q {
                    continue;
                }
                let of = move |n: usize| match n {
                    n if n == p => q,
                    n if n == q && both => p,
                    n => n,
                };
                let map: Map = Arc::new(move |r, c| {
                    let here = row.is_none_or(|x| r / TALL == x) && col.is_none_or(|x| c / WIDE == x);
                    Some(match (here, along_rows) {
                        (false, _) => (r, c),
                        (true, true) => (r / TALL * TALL + of(r / 32 % 4) * 32 + r % 32, c),
                        (true, false) => (r, c / WIDE * WIDE + of(c % WIDE)),
                    })
                });
                let of = |n: usize| if unit == 1 { n.to_string() } else { lines(n * unit, unit, TALL) };
                let words = if both {
                    format!("its place where {what} {} and {} of {place} are exchanged", of(p), of(q))
                } else {
                    format!("its place where {what} {} of {place} are read for {what} {}", of(q), of(p))
                };
                let bits = 9.0 + base + if both { 0.0 } else { 1.0 };
                found.push(theory(g, side, &scales, map, 0.0, &words).bits(bits));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_finds_the_cell_that_it_stored() {
        for (rows, cols) in [(256, 16), (200, 10), (50, 24), (128, 4)] {
            for layout in layouts(rows, cols) {
                let finds = |f: usize| layout.cell(layout.at(f / cols, f % cols)) == (f / cols, f % cols);
                assert!(layout.is_short(rows, cols) || (0..rows * cols).all(finds), "{layout:?} {rows}×{cols}");
            }
        }
    }

    /// Scales of 40 rows that were written for small tiles and are read for large ones.
    #[test]
    fn scales_in_atoms_of_small_tiles_that_are_read_in_large_ones_are_told() {
        use super::super::tests::{codes, found, sum, wide};
        use crate::Format;
        let (m, n, k, groups) = (24usize, 40usize, 320usize, 10usize);
        let (a, b) = (wide(m, k), codes(Format::E4m3, n, k, 32, false, 41));
        let (x, q) = (a.to_f64(), b.clone());
        let code = |j: usize, t: usize| Format::E4m3.decode(u32::from(q.codes()[j * k + t]));
        let of = |place: &dyn Fn(usize, usize) -> Option<usize>| {
            let scale = |j: usize, g: usize| place(j, g).map_or(0.0, |at| f64::from(q.scale_inv()[at]));
            found(&a, &b, None, Format::Bf16, |i, j, _| sum(k, |t| x[[i, t]] * code(j, t) * scale(j, t / 32)))
        };
        // Twelve groups with the padding: three atoms of 8×4 beside each other.
        let got = of(&|r, c| {
            let at = c / 4 * 512 + r % 32 * 16 + r / 32 * 4 + c % 4;
            let (r, c) = (at / 96 * 8 + at % 32 / 4, at % 96 / 32 * 4 + at % 4);
            (r < n && c < groups).then_some(r * groups + c)
        });
        assert_eq!(got.0, "scale_layout:b.index", "{}", got.1);
        assert!(got.1.contains("stored in 8×4 atoms, 3 beside each other and read in 128×4 atoms"), "{}", got.1);
        // Atoms of another height are none of these.
        let got = of(&|r, c| {
            let at = c / 4 * 512 + r % 32 * 16 + r / 32 * 4 + c % 4;
            let (r, c) = (at / 120 * 10 + at % 40 / 4, at % 120 / 40 * 4 + at % 4);
            (r < n && c < groups).then_some(r * groups + c)
        });
        assert!(!got.1.contains("8×4 atoms"), "{} {}", got.0, got.1);
    }
}
