//! What a region holds that is none of the right values: zeros, NaN, one number, the bias alone, numbers that no inputs make.

use super::edge;
use super::memory::OLD;
use super::places::displaced;
use super::system::{System, Theory};
use super::theory::as_written;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// What a region may hold that is none of the right values: zeros, NaN, a constant, another part of the result.
pub fn contents(s: &System) -> Vec<Theory> {
    let n = s.rows * s.cols;
    let wrong: Vec<usize> = (0..n).filter(|at| s.is_wrong[*at]).collect();
    let Some(first) = wrong.first() else { return Vec::new() };
    let all_are = |f: &dyn Fn(f64) -> bool| wrong.iter().all(|at| f(s.actual[*at]));
    let mut found: Vec<Theory> = reciprocal(s, &wrong).into_iter().collect();
    let what = if all_are(&|x| x == 0.0) {
        "zero"
    } else if all_are(&f64::is_nan) {
        "NaN"
    } else if wrong.len() > 2
        && all_are(&|x| x == s.actual[*first])
        // Constant data make it, too.
        && wrong.iter().any(|at| s.ideal[*at] != s.ideal[*first])
        && !is_of_another(s, s.actual[*first])
    {
        "one and the same number"
    } else if s.region.is_some() && s.bias.any() && wrong.iter().all(|at| is_bias(s, *at)) {
        BIAS
    } else if let Some(words) = garbage(s, &wrong) {
        words
    } else if s.region.is_some() && wrong.iter().all(|at| s.part[at / s.cols].is_some_and(|p| s.parts[p].k.is_empty())) {
        OLD
    } else {
        return found.into_iter().chain(displaced(s)).collect();
    };
    // NaN, zeros and one number are those of every element there: some among right ones have another cause.
    let nan = what == "NaN";
    let held = |at: usize| match what {
        "zero" => s.actual[at] == 0.0,
        "NaN" => s.actual[at].is_nan(),
        "one and the same number" => s.actual[at] == s.actual[*first],
        BIAS => is_bias(s, at),
        _ => true,
    };
    let inside = |at: &usize| s.region.as_ref().is_none_or(|r| r.has(at / s.cols, at % s.cols));
    let region = if (0..n).filter(inside).all(held) {
        s.region.clone()
    } else if matches!(what, "zero" | "NaN") {
        // Some rectangles beside each other, as of the tiles of groups that nobody scheduled.
        let Some(region) = super::rectangles::of(s.rows, s.cols, &held) else { return found };
        Some(Arc::new(region))
    } else {
        return found;
    };
    let whole = region.is_none();
    let by_tiles = region.as_ref().and_then(|_| in_tiles(s, what, &held));
    let told = by_tiles.is_some();
    let (class, variant, words) = match &region {
        None if nan => (Class::PaddingPoison, "all", "the whole result is NaN".to_string()),
        None => (
            Class::SilentSkip,
            if what == "zero" { "zeros" } else { "unwritten" },
            format!("the whole result is {what}: nothing was computed or written"),
        ),
        Some(r) => match by_tiles {
            Some((class, variant, why)) => (class, variant, format!("{} are {what}: {why}", r.words)),
            None => place(s, r, what),
        },
    };
    // Numbers that nothing is known of say less than those of another place.
    let bits = match what {
        OLD | GARBAGE => STRANGE,
        _ if whole && !nan => 0.0,
        _ => 10.0,
    };
    let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(bits);
    t.finish = Some(as_written(s));
    // Each rectangle is four numbers: where groups that end early say the same, they say it shorter.
    if let Some(r) = region.as_ref().filter(|r| r.words.contains("rectangles") && !told) {
        t.bits = 20.0 * r.tiles.len() as f64;
    }
    t.region = region;
    found.push(t);
    found
}

/// Tiles that nobody made, or that another one is stored over, where their places say why.
fn in_tiles(s: &System, what: &str, held: &dyn Fn(usize) -> bool) -> Option<(Class, &'static str, String)> {
    (what == "zero" && !s.alone).then_some(())?;
    if let Some((tile, high, width)) = edge::overhung_tiles(s, held) {
        let words = format!(
            "the last tile of {tile} columns is stored whole, columns 0 … {} of the next row with it; tiles of {high} rows are stored behind each other, and \
             the first row of each is its own",
            width - 1
        );
        return Some((Class::MnEdge, "overrun", words));
    }
    super::tile_orders::left_out(s.rows, s.cols, held).map(|words| (Class::SilentSkip, "tiles", words))
}

/// Inf and NaN in just those elements that a scale takes part in whose reciprocal is Inf in f32, as that of the block before is divided out.
fn reciprocal(s: &System, wrong: &[usize]) -> Option<Theory> {
    // 2⁻¹²⁸ is the largest number whose reciprocal overflows.
    let least = 2f64.powi(-128);
    (!s.alone && wrong.iter().all(|at| !s.actual[*at].is_finite())).then_some(())?;
    for side in [Which::A, Which::B] {
        let g = s.given(side);
        let small = |c: &usize| (f64::from(g.scales()[*c]) * g.global).abs() <= least;
        let cells: Vec<usize> = (0..g.scales().len()).filter(small).collect();
        let Some(first) = cells.first() else { continue };
        let mut is_line = vec![false; g.rows];
        cells.iter().for_each(|c| {
            let line = c / g.grid.1 * g.tile.0;
            is_line[line..(line + g.tile.0).min(g.rows)].fill(true);
        });
        let takes = |at: usize| {
            let of = s.lines(at / s.cols, at % s.cols);
            of.is_some_and(|(a, b, _)| is_line[if side == Which::A { a } else { b }])
        };
        if (0..s.rows * s.cols).all(|at| takes(at) != s.actual[at].is_finite()) {
            let (name, scale) = (side.name(), f64::from(g.scales()[*first]));
            let (row, group) = (first / g.grid.1, first % g.grid.1);
            let words = format!(
                "elements are NaN or Inf where a scale of {name} takes part whose reciprocal overflows in f32: {scale:e} in row {row}, group {group} \
                 of the grid{}",
                if cells.len() > 1 { format!(", and {} more", cells.len() - 1) } else { String::new() }
            );
            let mut t = Theory::new(Class::DegenerateBlock, name, format!("{name}.reciprocal"), words).bits(4.0);
            t.finish = Some(as_written(s));
            return Some(t);
        }
    }
    None
}

/// Whether this number is what a right element holds: then it was computed, for another one.
fn is_of_another(s: &System, x: f64) -> bool {
    (0..s.actual.len()).any(|at| !s.is_wrong[at] && s.actual[at] == x)
}

const GARBAGE: &str = "numbers that the inputs cannot give";
/// Bits of numbers that nobody knows.
const STRANGE: f64 = 40.0;

const BIAS: &str = "the bias alone, of a sum that is 0";

fn is_bias(s: &System, at: usize) -> bool {
    s.actual[at] == s.out.round(at, s.bias.at(at / s.cols, at % s.cols))
}

/// Numbers that no inputs make: of rows or columns, all of them far beyond every right result, and far from each other.
fn garbage(s: &System, wrong: &[usize]) -> Option<&'static str> {
    const FAR: f64 = 1e4;
    s.region.as_ref().filter(|_| wrong.len() >= 8)?;
    let right = s.ideal.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let sizes = wrong.iter().map(|at| s.actual[*at].abs()).filter(|x| x.is_finite());
    let (least, most) = sizes.fold((f64::INFINITY, 0.0f64), |m, x| (m.0.min(x), m.1.max(x)));
    (right > 0.0 && least > FAR * right && most > FAR * least).then_some(GARBAGE)
}

/// What kind of place a region of zeros, NaN or old values is.
pub fn place(s: &System, r: &super::system::Region, what: &str) -> (Class, &'static str, String) {
    if r.words.contains("flat index") {
        return (Class::Addressing, "index", format!("{} are {what}: the index wraps or ends", r.words));
    }
    if r.words.contains("rectangles") && what == "zero" {
        return (Class::SilentSkip, "tiles", format!("{} are zero: nobody computed them", r.words));
    }
    if !r.tiles.is_empty() {
        return (Class::Race, "tile", format!("{} hold {what}", r.words));
    }
    let span = |v: &[bool]| -> Option<(usize, usize)> {
        let (a, b) = (v.iter().position(|x| *x)?, v.iter().rposition(|x| *x)? + 1);
        v[a..b].iter().all(|x| *x).then_some((a, b))
    };
    let (rows, cols) = (span(&r.rows), span(&r.cols));
    let (all_rows, all_cols) = (rows == Some((0, s.rows)), cols == Some((0, s.cols)));
    let tail = |x: Option<(usize, usize)>, n: usize| x.is_some_and(|(a, b)| b == n && a > 0 && 2 * (b - a) < n);
    if s.parts.len() > 1 && all_cols && s.parts.iter().any(|p| rows == Some((p.rows.start, p.rows.end)) && !p.rows.is_empty()) {
        let e = s.parts.iter().position(|p| rows == Some((p.rows.start, p.rows.end)) && !p.rows.is_empty()).unwrap_or(0);
        return (Class::GroupBoundary, "group_skipped", format!("the rows of group {e} ({}) are {what}", r.words));
    }
    if (tail(rows, s.rows) && all_cols) || (tail(cols, s.cols) && all_rows) || (tail(rows, s.rows) && tail(cols, s.cols)) {
        // Whole tiles are no edge: something else left them out.
        let from = |x: Option<(usize, usize)>, all: bool| x.filter(|_| !all).map(|x| x.0);
        let (row, col) = (from(rows, all_rows), from(cols, all_cols));
        let is_partial = |from: usize, n: usize| edge::TILES.iter().any(|t| !n.is_multiple_of(*t) && n / t * t == from);
        let partial = row.is_none_or(|x| is_partial(x, s.rows)) && col.is_none_or(|x| is_partial(x, s.cols));
        let reached = || match (row, col) {
            (Some(row), None) => super::tile_orders::never_reached((s.rows, s.cols), row, true),
            (None, Some(col)) => super::tile_orders::never_reached((s.rows, s.cols), col, false),
            _ => None,
        };
        if !partial
            && what == "zero"
            && let Some(why) = reached()
        {
            return (Class::SilentSkip, "tiles", format!("{} are zero: {why}", r.words));
        }
        let why = if partial { "the last, partial tile" } else { "the end, by a bound or a grid that ends early" };
        return (Class::MnEdge, "edge", format!("{} are {what}: {why}", r.words));
    }
    if let Some(tile) = edge::overhung(s, r) {
        let words =
            format!("{} are {what}: the last tile of {tile} columns is stored whole, over the start of the next row", r.words);
        return (Class::MnEdge, "overrun", words);
    }
    if let Some(tile) = edge::overhung_rows(s, r) {
        let last = s.rows.next_multiple_of(tile) - s.rows - 1;
        let words = format!(
            "{} are {what}: rows {} … {} that pad the last tile of {tile} rows are stored as well, row i of column j at j·{} + i, which are rows 0 … {last} of \
             the next column",
            r.words,
            s.rows,
            s.rows + last,
            s.rows
        );
        return (Class::MnEdge, "overrun", words);
    }
    if what == "NaN"
        && let Some(words) = degenerate(s, r)
    {
        return (Class::DegenerateBlock, "zero_block", words);
    }
    if what == "NaN" || what.starts_with("numbers") {
        return (Class::PaddingPoison, "line", format!("{} are {what}", r.words));
    }
    match (rows, cols) {
        (Some(_), Some(_)) if !all_rows && !all_cols => (Class::Race, "tile", format!("a tile ({}) is {what}", r.words)),
        _ => (Class::SilentSkip, "part", format!("{} are {what}: not written", r.words)),
    }
}

/// Lines that are NaN, where just those have a block that is all zeros: its scale is 0/0.
fn degenerate(s: &System, r: &super::system::Region) -> Option<String> {
    let zero_block = |g: &super::given::Given, i: usize| {
        g.q.is_some()
            && (0..g.k).step_by(g.tile.1).any(|from| {
                let to = (from + g.tile.1).min(g.k);
                g.values[i * g.k + from..i * g.k + to].iter().all(|x| *x == 0.0)
            })
    };
    if s.parts.len() != 1 {
        return None;
    }
    for (g, wrong, name) in [(&s.a, &r.rows, "a"), (&s.b, &r.cols, "b")] {
        if wrong.iter().all(|x| *x) || s.alone && name == "b" || wrong.len() != g.rows {
            continue;
        }
        if (0..g.rows).all(|i| zero_block(g, i) == wrong[i]) {
            return Some(format!(
                "{} are NaN: exactly these read a block of {name} that is all zeros, whose scale is 0/0",
                r.words
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, wide};

    /// 90 rows in tiles of 8 are 96: six rows of zeros lie over the start of the next column, where nothing keeps them out.
    #[test]
    fn rows_of_padding_that_are_stored_over_the_next_column_are_told() {
        let (m, n, k) = (90, 44, 64);
        let (a, b) = (wide(m, k), codes(Format::Int8, n, k, k, false, 23));
        let of = |zero: &dyn Fn(usize, usize) -> bool| {
            found(&a, &b, None, Format::F32, |i, j, right| if zero(i, j) { 0.0 } else { right[i * n + j] })
        };
        let got = of(&|i, j| i < 6 && j > 0);
        assert_eq!(got.0, "mn_edge:out.overrun", "{}", got.1);
        assert!(got.1.contains("rows 90 … 95 that pad the last tile of 8 rows are stored as well"), "{}", got.1);
        assert!(got.1.contains("row i of column j at j·90 + i, which are rows 0 … 5 of the next column"), "{}", got.1);
        // No tile leaves five rows, and the first column is not behind any other.
        for got in [of(&|i, j| i < 5 && j > 0), of(&|i, _| i < 6), of(&|i, j| i < 6 && j > 1)] {
            assert!(!got.1.contains("pad the last tile"), "{} {}", got.0, got.1);
        }
    }

    /// More rows than a tile lacks by chance: rows and columns, no run of memory.
    #[test]
    fn a_column_that_is_right_in_many_rows_is_no_part_of_a_run() {
        let (m, n, k) = (100, 72, 64);
        let (a, b) = (wide(m, k), codes(Format::Int8, n, k, k, false, 29));
        let of = |zero: &dyn Fn(usize, usize) -> bool| {
            found(&a, &b, None, Format::F32, |i, j, right| if zero(i, j) { 0.0 } else { right[i * n + j] })
        };
        let got = of(&|i, j| i < 28 && j > 0);
        assert!(got.1.contains("tile of 32 rows") && !got.1.contains("flat index"), "{} {}", got.0, got.1);
        let got = of(&|i, j| (50..2100).contains(&(i * n + j)));
        assert!(got.1.contains("flat index 50 … 2099"), "{} {}", got.0, got.1);
    }

    /// Tiles of 32×64 that a wrong way from their number to their place never makes.
    #[test]
    fn tiles_that_nobody_made_say_why() {
        let (m, n, k) = (152, 172, 64);
        let (a, b) = (wide(m, k), codes(Format::Int8, n, k, k, false, 23));
        let of = |made: &dyn Fn(usize, usize) -> bool| {
            found(&a, &b, None, Format::F32, |i, j, right| if made(i / 32, j / 64) { right[i * n + j] } else { 0.0 })
        };
        let got = of(&|x, y| (0..15).any(|t| (t % 5, t / 3) == (x, y)));
        assert_eq!(got.0, "silent_skip:out.tiles", "{}", got.1);
        assert!(got.1.contains("tile t is taken for row t mod P, column t / Q (P = 5, Q = 3)"), "{}", got.1);
        let got = of(&|x, y| x * 3 + y < 7);
        assert_eq!(got.0, "silent_skip:out.tiles", "{}", got.1);
        assert!(got.1.contains("row by row, the first 7 are made"), "{}", got.1);
    }
}
