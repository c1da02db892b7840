//! Where the scales and zero points of blocks were read, as an address in memory: how the grid lies there, and by what strides it was read.
//!
//! ```text
//! stored:  grid (r, c) at  e·E + r·X + c·Y            or in tiles of 128 × 4, or shuffled for 32 rows
//! read:    (i, k)      at  e·E' + i/t·X' + k/G'·Y'     of one operand, or of both at once; behind the end 0, 1, the last, the first again, or the other's
//! out[i, j] = Σ_u s_a(i, u) · s_b(j, u) · Σ_{k in u} code_a · code_b
//! ```
//!
//! The sums of codes of each unit u of K are made once; every pair of readings is then a sum over units, and is refused after an element or two.

use super::given::Given;
use super::maps::cost;
use super::related;
use super::screen::{Element, Line, Screen};
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;
use crate::parallel;
use std::sync::Arc;

/// Multiply-adds of all pairs of readings on one element.
const WORK: usize = 1 << 26;
/// Elements that readings are told by, and units of K.
const LOOKS: usize = 14;
const UNITS: usize = 512;
/// Of pairs so many elements are looked at before one is kept, and so many of B's readings are kept beside one of A's: data that tell little
/// would leave them all.
const FIRST: usize = 3;
const BESIDE: usize = 64;
/// Readings that are handed on.
const KEPT: usize = 12;

/// Rows that a tile may have which starts at its own address.
const TILES: [usize; 8] = [8, 16, 24, 32, 48, 64, 96, 128];

/// What stands between the address of a cell and its place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Linear,
    /// Tiles of 128 rows by 4 groups, 32 × 4 × 4 within.
    Tiles,
    /// 32 rows by 8 groups, in halves.
    Shuffled,
}

/// Strides of one address.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    order: Order,
    row: usize,
    group: usize,
    expert: usize,
}

impl Shape {
    fn at(&self, e: usize, r: usize, c: usize) -> usize {
        let x = self.row;
        e * self.expert
            + match self.order {
                Order::Linear => r * x + c * self.group,
                Order::Tiles => (r / 128 * x + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4,
                Order::Shuffled => r % 32 / 16 + c % 8 / 4 * 2 + r % 16 * 4 + c % 4 * 64 + c / 8 * 256 + r / 32 * 32 * x,
            }
    }
}

/// What is read where nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behind {
    Zero,
    One,
    Last,
    Wrapped,
}

/// The places of a grid in memory, and how they were read.
#[derive(Clone)]
struct Reading {
    memory: Arc<Vec<Option<usize>>>,
    shape: Shape,
    /// Rows of the operand for a row of the grid, K for a group, rows of the grid for an expert.
    tall: usize,
    long: usize,
    per: usize,
    behind: Behind,
    /// Only groups of this remainder by the first are loaded; the others hold what is behind.
    only: Option<(usize, usize)>,
    /// Every so many rows start where they are stored, at this stride.
    based: Option<(usize, usize)>,
    class: Class,
    words: String,
    bits: f64,
}

/// A cell of the grid, or a number that is none of it.
enum Place {
    Cell(usize),
    Number(f64),
}

impl Reading {
    fn place(&self, i: usize, k: usize) -> Place {
        let (row, c) = (i / self.tall, k / self.long);
        let number = if self.behind == Behind::One { 1.0 } else { 0.0 };
        if self.only.is_some_and(|(of, which)| c % of != which) {
            return Place::Number(number);
        }
        let (e, r) = (row / self.per, row % self.per);
        let at = match self.based {
            Some((tall, stride)) => r / tall * tall * stride + self.shape.at(e, r % tall, c),
            None => self.shape.at(e, r, c),
        };
        let held = match (self.memory.get(at), self.behind) {
            (None, Behind::Wrapped) => self.memory[at % self.memory.len()],
            (None, Behind::Last) => self.memory.iter().rev().find_map(|x| *x),
            (x, _) => x.copied().flatten(),
        };
        held.map_or(Place::Number(number), Place::Cell)
    }
}

/// How a grid may lie in memory, and be read.
fn readings(s: &System, side: Which) -> Vec<Reading> {
    let g = s.given(side);
    let (rows, cols) = g.grid;
    if rows * cols < 2 {
        return Vec::new();
    }
    let experts = if side == Which::B && s.parts.len() > 1 && rows.is_multiple_of(s.parts.len()) { s.parts.len() } else { 1 };
    let per = rows / experts;
    let name = side.name();
    let padded = |n: usize| -> Vec<usize> {
        let mut all: Vec<usize> = [1usize, 2, 4, 8, 16, 32, 64, 128].into_iter().map(|u| n.next_multiple_of(u)).collect();
        all.dedup();
        all.retain(|x| *x < 2 * n + 64);
        all
    };
    let own = Shape { order: Order::Linear, row: cols, group: 1, expert: per * cols };
    let mut all: Vec<Reading> = Vec::new();
    let memory = |shape: &Shape| -> Arc<Vec<Option<usize>>> {
        let at = |f: usize| shape.at(f / cols / per, f / cols % per, f % cols);
        let size = (0..rows * cols).map(at).max().map_or(0, |x| x + 1).max(shape.expert * experts);
        let mut held = vec![None; size];
        (0..rows * cols).for_each(|f| held[at(f)] = Some(f));
        Arc::new(held)
    };
    let mut add = |memory: &Arc<Vec<Option<usize>>>,
                   shape: Shape,
                   tall: usize,
                   long: usize,
                   class: Class,
                   words: &str,
                   bits: f64| {
        let last = shape.at(experts - 1, ((g.rows - 1) / tall).min(per * experts - 1) % per, (g.k - 1) / long);
        let mut ends = vec![(Behind::Zero, "", 0.0)];
        if last >= memory.len() || memory.contains(&None) {
            ends = vec![
                (Behind::Zero, ", 0 where nothing is stored", 0.5),
                (Behind::One, ", 1 where nothing is stored", 1.0),
                (Behind::Last, ", the last one past the end", 1.0),
                (Behind::Wrapped, ", wrapped", 1.0),
            ];
        }
        for (behind, more, b) in ends {
            let words = format!("{words}{more}");
            let memory = memory.clone();
            all.push(Reading { memory, shape, tall, long, per, behind, only: None, based: None, class, words, bits: bits + b });
        }
    };
    let mut longs: Vec<usize> = [4, 2, 1].into_iter().filter(|d| g.tile.1.is_multiple_of(*d)).map(|d| g.tile.1 / d).collect();
    longs.extend([2 * g.tile.1, 4 * g.tile.1]);
    longs.retain(|l| *l >= 8 && *l < g.k);
    if !longs.contains(&g.tile.1) {
        longs.push(g.tile.1);
    }
    let (wide, high) = (padded(cols), padded(per));
    // In lines, by rows or by columns.
    let mut stored: Vec<(Shape, String, f64)> = Vec::new();
    for w in &wide {
        let words = if *w == cols { String::new() } else { format!(", stored at a row stride of {w},") };
        let bits = if *w == cols { 0.0 } else { cost(*w) };
        stored.push((Shape { row: *w, expert: per * w, ..own }, words, bits));
    }
    for h in &high {
        let words = format!(", stored column by column at a stride of {h},");
        let bits = if *h == per { 1.0 } else { cost(*h) };
        stored.push((Shape { row: 1, group: *h, expert: cols * h, ..own }, words, bits));
    }
    let mut strides: Vec<usize> = vec![0, 1, 2, 4, cols / 2, 2 * cols, per / 2, 2 * per];
    strides.extend(wide.iter().chain(&high));
    strides.sort_unstable();
    strides.dedup();
    for (shape, how, b) in &stored {
        let held = memory(shape);
        for row in &strides {
            for group in &strides {
                for long in &longs {
                    let read = Shape { row: *row, group: *group, ..*shape };
                    if read == *shape && *long == g.tile.1
                        || per == 1 && row != &shape.row
                        || cols == 1 && group != &shape.group
                    {
                        continue;
                    }
                    let along = read.row == shape.row;
                    let class = if along && how.is_empty() { Class::ScaleIndex } else { Class::ScaleLayout };
                    let every = if *long == g.tile.1 { String::new() } else { format!(", a group every {long} of K") };
                    let words = format!("{how} are read at r·{row} + c·{group}{every}");
                    let wrong = |x: usize, y: usize| if x == y { 0.0 } else { cost(x) };
                    let bits = 6.0 + b + wrong(*row, shape.row) + wrong(*group, shape.group) + wrong(*long, g.tile.1);
                    add(&held, read, g.tile.0, *long, class, &words, bits);
                }
            }
        }
        for to in [1usize, 2, 4, 8, 16, 32, 64, 128, 256].into_iter().filter(|t| *t != g.tile.0 && g.rows > 1 && rows > 1) {
            let words = format!("{how} are read by rows of {to}");
            add(&held, *shape, to, g.tile.1, Class::ScaleLayout, &words, 6.0 + b + cost(to));
        }
    }
    // In tiles.
    let across: Vec<usize> = padded(cols).iter().map(|c| c.div_ceil(4)).chain([cols / 4]).filter(|x| *x > 0).collect();
    let blocks: Vec<(Order, usize, &str)> = across
        .iter()
        .map(|x| (Order::Tiles, *x, "tiles of 128 × 4"))
        .chain(wide.iter().map(|x| (Order::Shuffled, *x, "a shuffle of 32 rows")))
        .collect();
    let mut tiled: Vec<(Shape, &str)> = Vec::new();
    for (order, x, words) in blocks.into_iter().filter(|_| g.tile.0 == 1 && g.tile.1 <= 32) {
        let unit =
            if order == Order::Tiles { per.div_ceil(128) * x * 512 } else { per.div_ceil(32) * 32 * x.next_multiple_of(8) };
        let shape = Shape { order, row: x, group: 1, expert: unit };
        if !tiled.iter().any(|t| t.0 == shape) {
            tiled.push((shape, words));
        }
    }
    for (shape, words) in &tiled {
        let held = memory(shape);
        for (read, _) in tiled.iter().filter(|t| t.0.order == shape.order) {
            let mut experts: Vec<usize> = vec![shape.expert, per * cols, read.expert, 0];
            experts.retain(|_| s.parts.len() > 1 && side == Which::B);
            experts.push(shape.expert);
            experts.sort_unstable();
            experts.dedup();
            for expert in experts {
                let read = Shape { expert, ..*read };
                if read == *shape {
                    continue;
                }
                let mut how = format!(" in {words} are read");
                if read.row != shape.row {
                    how += &format!(" at a row stride of {} instead of {}", read.row, shape.row);
                }
                if read.expert != shape.expert {
                    how += &format!(" at {expert} an expert instead of {}", shape.expert);
                }
                let bits = 8.0 + cost(read.row) + if read.expert == shape.expert { 0.0 } else { 4.0 };
                add(&held, read, g.tile.0, g.tile.1, Class::ScaleLayout, &how, bits);
            }
        }
    }
    // From expert to expert.
    if experts > 1 {
        for (shape, how, b) in &stored {
            let held = memory(shape);
            let right = shape.expert;
            let mut steps = vec![0, 1, cols, per, right / 4, right / 2, 2 * right, 4 * right, per * cols];
            steps.extend(wide.iter().map(|w| w * per));
            steps.extend(high.iter().map(|h| h * cols));
            steps.sort_unstable();
            steps.dedup();
            for expert in steps.into_iter().filter(|x| *x != right) {
                let words = format!("{how} are read {expert} on for every expert instead of {right}");
                add(&held, Shape { expert, ..*shape }, g.tile.0, g.tile.1, Class::ScaleIndex, &words, 6.0 + b + cost(expert));
            }
        }
    }
    let plain = Reading {
        memory: memory(&own),
        shape: own,
        tall: g.tile.0,
        long: g.tile.1,
        per,
        behind: Behind::One,
        only: None,
        based: None,
        class: Class::ScaleLayout,
        words: String::new(),
        bits: 0.0,
    };
    // Padding that is written as well, at a stride that has no room for it: rows of a shuffle lie over those before, the last written stays.
    let shuffled = || tiled.iter().map(|t| t.0).filter(|t| t.order == Order::Shuffled);
    for (row, shape) in shuffled().flat_map(|x| shuffled().filter(move |y| y.row > x.row).map(move |y| (x.row, y))) {
        let (written, wide, tall) = (Shape { row, ..shape }, shape.row, per.next_multiple_of(32));
        let mut held = vec![None; memory(&shape).len()];
        for f in 0..experts * tall * wide {
            let (e, r, c) = (f / wide / tall, f / wide % tall, f % wide);
            let cell = (r < per && c < cols).then_some((e * per + r) * cols + c);
            held.get_mut(written.at(e, r, c)).into_iter().for_each(|x| *x = cell);
        }
        let words = format!(
            " in a shuffle of 32 rows are written at a row stride of {row}, with padding of 1 to {wide} columns that lies over the next rows, and read at \
             {wide}"
        );
        let bits = 9.0 + cost(row) + cost(wide);
        all.push(Reading { memory: Arc::new(held), shape, words, bits, ..plain.clone() });
    }
    // Some groups only.
    for of in [2usize, 4, 8].into_iter().filter(|of| *of <= cols) {
        for which in 0..of {
            for behind in [Behind::Zero, Behind::One] {
                let number = if behind == Behind::Zero { 0 } else { 1 };
                let words = format!(" are loaded where the group mod {of} is {which}; {number} stands for the others");
                let (only, bits) = (Some((of, which)), 7.0 + cost(of) + cost(which));
                all.push(Reading { behind, only, class: Class::ScaleIndex, words, bits, ..plain.clone() });
            }
        }
    }
    // At another stride from the start of every tile of rows, which is the right one.
    for based in TILES.into_iter().filter(|t| *t < per && cols > 1) {
        for row in strides.iter().copied().filter(|x| *x != cols) {
            for (behind, more) in [
                (Behind::Zero, "0 where nothing is stored"),
                (Behind::One, "1 where nothing is stored"),
                (Behind::Last, "the last one past the end"),
                (Behind::Wrapped, "wrapped"),
            ] {
                let words = format!(
                    " are read at a row stride of {row} instead of {cols} from the start of every {based} rows, {more}"
                );
                let bits = 7.0 + cost(based) + cost(row) + if behind == Behind::Zero { 0.0 } else { 0.5 };
                let (shape, based) = (Shape { row, ..own }, Some((based, cols)));
                all.push(Reading { shape, behind, based, words, bits, ..plain.clone() });
            }
        }
    }
    all.iter_mut().for_each(|r| r.words = format!("of {name}{}", r.words));
    all.order_by(|a, b| a.bits.total_cmp(&b.bits));
    all
}

/// What is read so.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Right,
    Scale,
    Zero,
    Both,
}

/// One way to read one operand.
struct Way {
    reading: Option<Reading>,
    what: What,
}

impl Way {
    /// Scale and what the zero point adds, of the row's unit from `k` on: `scale·(Σ codes) + zero·(Σ of the other)`.
    fn numbers(&self, g: &Given, i: usize, k: usize) -> (f64, f64) {
        let cell = i / g.tile.0 * g.grid.1 + k / g.tile.1;
        let scale = |c: usize| g.scales().get(c).map_or(1.0, |s| f64::from(*s)) * g.global;
        let place = self.reading.as_ref().map_or(Place::Cell(cell), |r| r.place(i, k));
        let s = match (&place, self.what) {
            (Place::Number(x), What::Scale | What::Both) => *x * g.global,
            (Place::Cell(c), What::Scale | What::Both) => scale(*c),
            _ => scale(cell),
        };
        let Some((zero, mid)) = &g.zero else { return (s, 0.0) };
        let z = match (&place, self.what) {
            (Place::Number(x), What::Zero | What::Both) => *x,
            (Place::Cell(c), What::Zero | What::Both) => zero[*c],
            _ => zero[cell],
        };
        (s, if mid.is_some() { z } else { -z * s })
    }

    fn apply(&self, g: &Given, side: Which, t: &mut Theory) {
        let Some(reading) = self.reading.clone() else { return };
        let held = Arc::new((g.clone(), Way { reading: Some(reading), what: self.what }));
        let of = held.clone();
        if matches!(self.what, What::Scale | What::Both) {
            t.side(side).scale = Some(Arc::new(move |i, k| of.1.numbers(&of.0, i, k).0));
        }
        if matches!(self.what, What::Zero | What::Both) {
            t.side(side).zero = Some(Arc::new(move |i, k| {
                let (s, z) = held.1.numbers(&held.0, i, k);
                if held.0.zero.as_ref().is_some_and(|z| z.1.is_some()) || s == 0.0 { z } else { -z / s }
            }));
        }
    }

    fn words(&self) -> String {
        let what = match self.what {
            What::Right => return String::new(),
            What::Scale => "scales",
            What::Zero => "zero points",
            What::Both => "scales and zero points",
        };
        self.reading.as_ref().map_or(String::new(), |r| format!("{what} {}", r.words))
    }
}

fn ways(s: &System, side: Which) -> Vec<Way> {
    let g = s.given(side);
    let mut all = vec![Way { reading: None, what: What::Right }];
    let zeros = g.zero.is_some();
    for reading in readings(s, side) {
        if zeros {
            all.push(Way { reading: Some(reading.clone()), what: What::Zero });
            all.push(Way { reading: Some(reading.clone()), what: What::Both });
        }
        all.push(Way { reading: Some(reading), what: What::Scale });
    }
    all
}

/// The scale and the zero point of every unit of K, for each reading.
type Lines = Vec<Line>;

/// One element: its lines, what was written, and the sums of codes of each unit.
struct Look {
    a: usize,
    b: usize,
    y: f64,
    half: f64,
    /// Σ code·code, Σ |code·code|.
    both: Vec<(f64, f64)>,
    /// Σ of the codes of a, of b.
    of_a: Vec<f64>,
    of_b: Vec<f64>,
}

impl Look {
    fn screen(&self, (xs, ys): &(Lines, Lines), loose: f64) -> Screen {
        let Self { y, half, both, of_a, of_b, .. } = self;
        Screen::of(&Element { y: *y, half: *half, both, of_a, of_b }, xs, ys, loose)
    }
}

fn looks(s: &System, unit: usize) -> Vec<Look> {
    let raw = |g: &Given, i: usize, k: usize| -> f64 {
        let mid = g.zero.as_ref().and_then(|z| z.1).unwrap_or(0.0);
        g.q.as_ref().map_or_else(|| g.values[i * g.k + k], |q| g.table[usize::from(q.codes()[i * g.k + k])] - mid)
    };
    let inside = |p: &&(usize, usize)| s.is_wrong[p.0 * s.cols + p.1] && s.region.as_ref().is_none_or(|r| r.has(p.0, p.1));
    let mut all = Vec::new();
    for (i, j) in s.probes.iter().filter(inside) {
        let Some((a, b, ks)) = s.lines(*i, *j) else { continue };
        let Some((y, half)) = s.written(*i, *j, 0.0) else { continue };
        let units = s.k.div_ceil(unit);
        let mut look = Look { a, b, y, half, both: vec![(0.0, 0.0); units], of_a: vec![0.0; units], of_b: vec![0.0; units] };
        for k in ks {
            let (x, z) = (raw(&s.a, a, k), raw(&s.b, b, k));
            let of = &mut look.both[k / unit];
            (of.0, of.1) = (of.0 + x * z, of.1 + (x * z).abs());
            look.of_a[k / unit] += x;
            look.of_b[k / unit] += z;
        }
        if look.both.iter().all(|x| x.0.is_finite()) {
            all.push(look);
        }
        if all.len() == LOOKS {
            break;
        }
    }
    all
}

pub fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Readings that make what was written in some part of the result: of one group's rows, or of a quarter of it.
pub fn partial(s: &System) -> Vec<Theory> {
    let many = s.parts.len() > 1;
    let (high, wide) = (s.rows.div_ceil(2), s.cols.div_ceil(2));
    let place = |at: usize| {
        let (i, j) = (at / s.cols, at % s.cols);
        if many { s.part[i] } else { Some(i / high * 2 + j / wide) }
    };
    let mut found: Vec<Theory> = Vec::new();
    for part in 0..if many { s.parts.len().min(4) } else { 4 } {
        let own = (0..s.is_wrong.len()).map(|at| s.is_wrong[at] && place(at) == Some(part)).collect();
        for t in s.of_wrong(own).map_or_else(Vec::new, |s| theories(&s, false)) {
            if !found.iter().any(|f| f.detail == t.detail) {
                found.push(t);
            }
        }
    }
    found
}

/// Readings of one operand, else with `pairs` of both, that make what was written.
pub fn theories(s: &System, pairs: bool) -> Vec<Theory> {
    let quantized = |g: &Given| g.q.is_some() && g.deep.is_none();
    let (a, b) = (&s.a, &s.b);
    let zeros = usize::from(a.zero.is_some()) + usize::from(b.zero.is_some());
    let grouped = [a, b].iter().any(|g| quantized(g) && g.grid.1 > 1);
    // Other scales leave codes and their signs.
    if s.alone || !grouped || zeros > 1 || s.parts.iter().any(|p| p.k.len() != s.k) || related::is_unlike(s) {
        return Vec::new();
    }
    let base = [a, b].iter().filter(|g| g.grid.1 > 1).fold(0, |n, g| gcd(n, g.tile.1));
    let unit = [4, 2, 1].into_iter().map(|d| base / d).find(|u| *u >= 8 && base.is_multiple_of(*u)).unwrap_or(base);
    if s.k.div_ceil(unit) > UNITS {
        return Vec::new();
    }
    let looks = looks(s, unit);
    if looks.len() < 6 {
        return Vec::new();
    }
    let of =
        |side: Which| if quantized(s.given(side)) { ways(s, side) } else { vec![Way { reading: None, what: What::Right }] };
    let (ways_a, ways_b) = (of(Which::A), of(Which::B));
    let units = looks[0].both.len();
    // Operands that are rounded are these to a part in 256.
    let loose = s.relative + if s.is_rounded() { 2f64.powi(-8) } else { 0.0 };
    let line = |way: &Way, side: Which, look: &Look| -> Vec<(f64, f64)> {
        let (g, i) = if side == Which::A { (a, look.a) } else { (b, look.b) };
        (0..units).map(|u| way.numbers(g, i, u * unit)).collect()
    };
    let fits = |look: &Look, x: &[(f64, f64)], y: &[(f64, f64)]| {
        let (mut sum, mut size) = (0.0, 0.0);
        for (u, (x, y)) in x.iter().zip(y).enumerate() {
            let scale = x.0 * y.0;
            sum += scale * look.both[u].0 + x.1 * y.0 * look.of_b[u] + y.1 * x.0 * look.of_a[u];
            size += scale.abs() * look.both[u].1 + (x.1 * y.0 * look.of_b[u]).abs() + (y.1 * x.0 * look.of_a[u]).abs();
        }
        (sum - look.y).abs() <= look.half + loose * size + sum.abs() * 2f64.powi(-23)
    };
    let lines = |n: usize, m: usize, look: &Look| -> (Lines, Lines) {
        (parallel::collect(n, |w| line(&ways_a[w], Which::A, look)), parallel::collect(m, |w| line(&ways_b[w], Which::B, look)))
    };
    let survivors = |n: usize, m: usize, pairs: bool| -> Vec<(usize, usize)> {
        let (first, others) = looks.split_at(if pairs { looks.len().min(FIRST) } else { 1 });
        let held: Vec<_> = first.iter().map(|look| lines(n, m, look)).collect();
        let all = |x: usize, y: usize| first.iter().zip(&held).all(|(look, (xs, ys))| fits(look, &xs[x], &ys[y]));
        let screen = first[0].screen(&held[0], loose);
        let beside = |x: usize| -> Vec<(usize, usize)> {
            let few = if pairs || x == 0 { m } else { 1 };
            let may = |y: &usize| screen.may(x, *y) && all(x, *y);
            (0..few).filter(may).map(|y| (x, y)).take(if pairs { BESIDE } else { m }).collect()
        };
        let mut left: Vec<(usize, usize)> = parallel::collect(n, beside).concat();
        for look in others {
            if left.is_empty() {
                break;
            }
            if 4 * left.len() < n + m {
                left.retain(|(x, y)| fits(look, &line(&ways_a[*x], Which::A, look), &line(&ways_b[*y], Which::B, look)));
                continue;
            }
            let (xs, ys) = lines(n, m, look);
            left.retain(|(x, y)| fits(look, &xs[*x], &ys[*y]));
        }
        left
    };
    let mut found = survivors(ways_a.len(), ways_b.len(), false);
    if pairs && found.is_empty() && ways_a.len() > 1 && ways_b.len() > 1 {
        let most = ((WORK / units) as f64).sqrt() as usize;
        found = survivors(ways_a.len().min(most), ways_b.len().min(most), true);
    }
    let bits = |(x, y): &(usize, usize)| {
        let of = |w: &Way| w.reading.as_ref().map_or(0.0, |r| r.bits);
        of(&ways_a[*x]) + of(&ways_b[*y])
    };
    found.order_by(|a, b| bits(a).total_cmp(&bits(b)));
    found.truncate(KEPT);
    found
        .iter()
        .map(|at| {
            let (x, y) = (&ways_a[at.0], &ways_b[at.1]);
            let (first, name) = if at.0 == 0 { (y, "b") } else { (x, "a") };
            let words: Vec<String> = [x, y].iter().map(|w| w.words()).filter(|w| !w.is_empty()).collect();
            let class = match (first.what, &first.reading) {
                (What::Zero, _) => Class::ZpCorrection,
                (_, Some(r)) => r.class,
                _ => Class::ScaleLayout,
            };
            let what = if first.what == What::Zero { "zero_address" } else { "address" };
            let mut t = Theory::new(class, name, format!("{name}.{what}"), words.join("; ")).bits(bits(at));
            x.apply(a, Which::A, &mut t);
            y.apply(b, Which::B, &mut t);
            t
        })
        .collect()
}
