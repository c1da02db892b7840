//! Faults of where results are written: edges of tiles, strides, aliases, tiles that another wrote, rows nobody wrote.

use super::{Class, Fault, How, Moves, On, Origin, Setting, Shape, plain};

macro_rules! places {
    ($class:ident, $variant:literal, $help:literal, $places:expr, $settings:expr) => {
        Fault {
            class: Class::$class,
            on: On::Out,
            variant: $variant,
            help: $help,
            how: How::Places($places),
            settings: $settings,
        }
    };
}

#[rustfmt::skip]
pub const FAULTS: &[Fault] = &[
    places!(MnEdge, "rows.16.zero", "the last M mod 16 rows are zero", |_, s, _| rows_past(s, 16, Origin::Zero), plain),
    places!(MnEdge, "rows.64.zero", "the last M mod 64 rows are zero", |_, s, _| rows_past(s, 64, Origin::Zero), plain),
    places!(MnEdge, "rows.16.unwritten", "the last M mod 16 rows are not stored", |_, s, _| rows_past(s, 16, Origin::Unwritten), plain),
    places!(MnEdge, "rows.64.unwritten", "the last M mod 64 rows are not stored", |_, s, _| rows_past(s, 64, Origin::Unwritten), plain),
    places!(MnEdge, "columns.16.zero", "the last N mod 16 columns are zero", |_, s, _| columns_past(s, 16, Origin::Zero), plain),
    places!(MnEdge, "columns.64.zero", "the last N mod 64 columns are zero", |_, s, _| columns_past(s, 64, Origin::Zero), plain),
    places!(MnEdge, "columns.16.unwritten", "the last N mod 16 columns are not stored", |_, s, _| columns_past(s, 16, Origin::Unwritten), plain),
    places!(MnEdge, "columns.64.unwritten", "the last N mod 64 columns are not stored", |_, s, _| columns_past(s, 64, Origin::Unwritten), plain),
    places!(MnEdge, "columns.32.overhang", "the last tile of 32 columns is stored whole: it overwrites the next row's start", |_, s, _| overhang(s, 32), plain),
    places!(MnEdge, "rows.16.repeated", "the last tile of 16 rows starts where the one before did", |_, s, _| repeated(s, 16), plain),
    places!(Addressing, "transposed", "the result is stored in column-major order", |_, s, _| transposed(s), plain),
    places!(Addressing, "padded_stride", "rows are stored at a stride rounded up to 16", |_, s, _| strided(s), plain),
    places!(Addressing, "antidiagonal", "out[row + col]: later writes win", |_, s, _| antidiagonal(s), plain),
    places!(Addressing, "wrapped", "the flat index wraps at a power of two below the size", |_, s, _| wrapped(s), plain),
    places!(Addressing, "rows_in_pairs", "every second row is a copy of the one before", |_, s, _| pairs(s), plain),
    places!(Addressing, "shifted_column", "every row is stored one column late", |_, s, _| shifted(s), plain),
    places!(Addressing, "rows_rotated", "every row is stored one row late", |_, s, _| rotated(s), plain),
    places!(Race, "tile_16x16.unwritten", "a tile of 16×16 is not written", |_, s, x| tile(s, 16, 16, x.at, Kind::Unwritten), |_| some()),
    places!(Race, "tile_16x16.zero", "a tile of 16×16 is cleared after it was written", |_, s, x| tile(s, 16, 16, x.at, Kind::Zero), |_| some()),
    places!(Race, "tile_16x16.neighbour", "a tile of 16×16 holds the one beside it", |_, s, x| tile(s, 16, 16, x.at, Kind::Neighbour), |_| some()),
    places!(Race, "tile_8x32.neighbour", "a tile of 8×32 holds the one below it", |_, s, x| tile(s, 8, 32, x.at, Kind::Below), |_| some()),
    places!(PaddingPoison, "row", "one row is poisoned by its padding: NaN", |_, s, x| line(s, x.at, true), |_| some()),
    places!(PaddingPoison, "column", "one column is poisoned by its padding: NaN", |_, s, x| line(s, x.at, false), |_| some()),
    places!(PaddingPoison, "last_column", "the last column is poisoned by what lies past it: NaN", |_, s, _| line(s, s.cols.checked_sub(1)?, false).filter(|_| s.cols > 1), plain),
    places!(SilentSkip, "zeros", "nothing is computed: zeros", |_, _, _| all(Origin::Zero), plain),
    places!(SilentSkip, "unwritten", "the kernel was not run: the result is untouched", |_, _, _| all(Origin::Unwritten), plain),
    places!(SilentSkip, "second_half", "the second half of the rows is never written", |_, s, _| second_half(s), plain),
];

/// A few tiles, or lines, to choose from: taken modulo what there is.
fn some() -> Vec<Setting> {
    (0..4096).map(|at| Setting { at, by: 1.0 }).collect()
}

fn moves(f: impl Fn(usize, usize) -> Origin + Send + Sync + 'static) -> Option<Moves> {
    Some(Box::new(f))
}
fn all(source: Origin) -> Option<Moves> {
    moves(move |_, _| source)
}
/// A partial last tile with a whole one before it.
fn partial(n: usize, tile: usize) -> Option<usize> {
    (n > tile && !n.is_multiple_of(tile)).then(|| n / tile * tile)
}
fn rows_past(s: Shape, tile: usize, source: Origin) -> Option<Moves> {
    let edge = partial(s.rows, tile)?;
    moves(move |i, j| if i >= edge { source } else { Origin::From(i, j) })
}
fn columns_past(s: Shape, tile: usize, source: Origin) -> Option<Moves> {
    let edge = partial(s.cols, tile)?;
    moves(move |i, j| if j >= edge { source } else { Origin::From(i, j) })
}
fn overhang(s: Shape, tile: usize) -> Option<Moves> {
    let edge = partial(s.cols, tile)?;
    let over = (edge + tile - s.cols).min(s.cols);
    (s.rows > 1).then_some(())?;
    moves(move |i, j| if i > 0 && j < over { Origin::Zero } else { Origin::From(i, j) })
}
fn repeated(s: Shape, tile: usize) -> Option<Moves> {
    let edge = partial(s.rows, tile)?;
    moves(move |i, j| Origin::From(if i >= edge { i - tile } else { i }, j))
}
fn transposed(s: Shape) -> Option<Moves> {
    (s.rows > 1 && s.cols > 1).then_some(())?;
    moves(move |i, j| {
        let flat = i * s.cols + j;
        Origin::From(flat % s.rows, flat / s.rows)
    })
}
fn strided(s: Shape) -> Option<Moves> {
    let stride = s.cols.div_ceil(16) * 16;
    (stride != s.cols && s.rows > 1).then_some(())?;
    moves(move |i, j| {
        let flat = i * s.cols + j;
        let (row, col) = (flat / stride, flat % stride);
        if col < s.cols { Origin::From(row, col) } else { Origin::Unwritten }
    })
}
fn antidiagonal(s: Shape) -> Option<Moves> {
    (s.rows > 1 && s.cols > 1).then_some(())?;
    // The largest row that writes to flat index row + col wins; past rows + cols nobody writes.
    moves(move |i, j| {
        let flat = i * s.cols + j;
        let row = flat.min(s.rows - 1);
        if flat - row < s.cols { Origin::From(row, flat - row) } else { Origin::Unwritten }
    })
}
fn wrapped(s: Shape) -> Option<Moves> {
    let n = s.rows * s.cols;
    (n > 2).then_some(())?;
    let limit = (n / 2 + 1).next_power_of_two().min(n - 1).max(1);
    let limit = if limit.is_power_of_two() { limit } else { limit.next_power_of_two() / 2 };
    moves(move |i, j| {
        let flat = i * s.cols + j;
        let source = if flat + limit < n { flat + limit } else { flat };
        if flat >= limit { Origin::Unwritten } else { Origin::From(source / s.cols, source % s.cols) }
    })
}
fn pairs(s: Shape) -> Option<Moves> {
    (s.rows > 1).then_some(())?;
    moves(|i, j| Origin::From(i / 2 * 2, j))
}
fn shifted(s: Shape) -> Option<Moves> {
    (s.cols > 1).then_some(())?;
    moves(move |i, j| Origin::From(i, (j + s.cols - 1) % s.cols))
}
fn rotated(s: Shape) -> Option<Moves> {
    (s.rows > 1).then_some(())?;
    moves(move |i, j| Origin::From((i + s.rows - 1) % s.rows, j))
}
fn second_half(s: Shape) -> Option<Moves> {
    (s.rows > 1).then_some(())?;
    moves(move |i, j| if i >= s.rows.div_ceil(2) { Origin::Unwritten } else { Origin::From(i, j) })
}

#[derive(Clone, Copy)]
enum Kind {
    Zero,
    Unwritten,
    Neighbour,
    Below,
}
/// One whole tile of height h and width w, one of those that have a neighbour where one is needed.
fn tile(s: Shape, h: usize, w: usize, at: usize, kind: Kind) -> Option<Moves> {
    let (down, across) = (s.rows / h, s.cols / w);
    let (down, across) = match kind {
        Kind::Neighbour => (down, across.checked_sub(1)?),
        Kind::Below => (down.checked_sub(1)?, across),
        _ => (down, across),
    };
    // A result of one tile would be all of it: no race.
    (down * across > 0 && s.rows * s.cols > h * w).then_some(())?;
    let (r, c) = (at / across % down * h, at % across * w);
    moves(move |i, j| {
        if !((r..r + h).contains(&i) && (c..c + w).contains(&j)) {
            return Origin::From(i, j);
        }
        match kind {
            Kind::Zero => Origin::Zero,
            Kind::Unwritten => Origin::Unwritten,
            Kind::Neighbour => Origin::From(i, j + w),
            Kind::Below => Origin::From(i + h, j),
        }
    })
}
fn line(s: Shape, at: usize, row: bool) -> Option<Moves> {
    let n = if row { s.rows } else { s.cols };
    (n > 1).then_some(())?;
    let at = at % n;
    moves(move |i, j| if (if row { i } else { j }) == at { Origin::Unwritten } else { Origin::From(i, j) })
}

/// The settings of [`some`] whose tile or line holds element (i, j): what diagnosis tries.
pub fn holding(fault: &Fault, s: Shape, i: usize, j: usize) -> Setting {
    let by_tile = |h: usize, w: usize, spare: usize, spare_down: usize| {
        let across = (s.cols / w).saturating_sub(spare).max(1);
        let down = (s.rows / h).saturating_sub(spare_down).max(1);
        (i / h).min(down - 1) * across + (j / w).min(across - 1)
    };
    let at = match (fault.class, fault.variant) {
        (Class::PaddingPoison, "row") => i,
        (Class::PaddingPoison, _) => j,
        (_, "tile_16x16.neighbour") => by_tile(16, 16, 1, 0),
        (_, "tile_8x32.neighbour") => by_tile(8, 32, 0, 1),
        _ => by_tile(16, 16, 0, 0),
    };
    Setting { at, by: 1.0 }
}

/// Whether a fault's setting is a place, which [`holding`] finds.
pub fn is_placed(fault: &Fault) -> bool {
    matches!(fault.class, Class::Race)
        || (fault.class == Class::PaddingPoison && fault.variant != "last_column" && matches!(fault.how, How::Places(_)))
}
