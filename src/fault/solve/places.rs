//! Theories of places: results stored elsewhere, rows and columns that are copies of others, regions that hold nothing of their own.

use super::edge;
use super::maps::cost;
use super::segment::lines;
use super::system::{From, System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// Where results may have gone: element (i, j) holds that of another place, or of none.
pub fn moves(s: &System) -> Vec<Theory> {
    let (rows, cols, n) = (s.rows, s.cols, s.rows * s.cols);
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &str, words: String, bits: f64, from: From| {
        let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(bits);
        t.from = Some(from);
        all.push(t);
    };
    let flat = move |f: usize| (f < n).then_some((f / cols, f % cols));
    if rows > 1 && cols > 1 {
        add(
            Class::Addressing,
            "transposed",
            "the result is stored column by column".into(),
            1.0,
            Arc::new(move |i, j| {
                let f = i * cols + j;
                Some((f % rows, f / rows))
            }),
        );
        add(
            Class::Addressing,
            "transposed",
            "the result is read column by column".into(),
            1.5,
            Arc::new(move |i, j| flat(j * rows + i)),
        );
        if rows == cols {
            add(Class::Addressing, "transposed", "the result is transposed".into(), 0.5, Arc::new(move |i, j| Some((j, i))));
        }
    }
    let span = 520;
    for stride in (cols.saturating_sub(span).max(1)..=cols + span).filter(|x| *x != cols && rows > 1) {
        let b = 2.0 + cost(stride.abs_diff(cols));
        add(
            Class::Addressing,
            "stride",
            format!("rows are stored at a stride of {stride} instead of {cols}"),
            b,
            Arc::new(move |i, j| {
                let f = i * cols + j;
                // The last write wins where rows overlap.
                let row = if stride < cols { (f / stride).min(rows - 1) } else { f / stride };
                let col = f - row * stride;
                (row < rows && col < cols).then_some((row, col))
            }),
        );
        add(
            Class::Addressing,
            "stride",
            format!("rows are read at a stride of {stride} instead of {cols}"),
            b + 2.0,
            Arc::new(move |i, j| flat(i * stride + j)),
        );
    }
    for d in 1..n.min(1025) {
        let b = 3.0 + cost(d);
        add(
            Class::Addressing,
            "offset",
            format!("the result is stored {d} elements late"),
            b,
            Arc::new(move |i, j| (i * cols + j).checked_sub(d).and_then(flat)),
        );
        add(
            Class::Addressing,
            "offset",
            format!("the result is stored {d} elements early"),
            b,
            Arc::new(move |i, j| flat(i * cols + j + d)),
        );
        add(
            Class::Addressing,
            "offset",
            format!("the result is stored {d} elements late, wrapped"),
            b + 1.0,
            Arc::new(move |i, j| flat((i * cols + j + n - d % n) % n)),
        );
    }
    for d in 1..rows.min(1025) {
        let b = 2.0 + cost(d);
        add(
            Class::Addressing,
            "rows",
            format!("row i holds row i + {d}, wrapped"),
            b + 0.5,
            Arc::new(move |i, j| Some(((i + d) % rows, j))),
        );
        add(
            Class::Addressing,
            "rows",
            format!("row i holds row i + {d}, or the last where there is none"),
            b,
            Arc::new(move |i, j| Some(((i + d).min(rows - 1), j))),
        );
        add(
            Class::Addressing,
            "rows",
            format!("row i holds row i + {d}; past the end nothing"),
            b,
            Arc::new(move |i, j| (i + d < rows).then_some((i + d, j))),
        );
        add(
            Class::Addressing,
            "rows",
            format!("row i holds row i − {d}, or the first where there is none"),
            b,
            Arc::new(move |i, j| Some((i.saturating_sub(d), j))),
        );
        add(
            Class::Addressing,
            "rows",
            format!("row i holds row i − {d}; before the start nothing"),
            b,
            Arc::new(move |i, j| i.checked_sub(d).map(|i| (i, j))),
        );
        if d > 1 {
            add(
                Class::Addressing,
                "rows",
                format!("row i holds row (i / {d})·{d}"),
                b,
                Arc::new(move |i, j| Some((i / d * d, j))),
            );
            add(
                Class::Addressing,
                "rows",
                format!("row i holds row (i / {d})·{d} + {}", d - 1),
                b + 1.0,
                Arc::new(move |i, j| Some(((i / d * d + d - 1).min(rows - 1), j))),
            );
            add(Class::Addressing, "rows", format!("row i holds row i mod {d}"), b, Arc::new(move |i, j| Some((i % d, j))));
            add(Class::Addressing, "rows", format!("row i holds row i / {d}"), b, Arc::new(move |i, j| Some((i / d, j))));
        }
        add(
            Class::Addressing,
            "rows",
            format!("row i holds row i xor {d}"),
            b,
            Arc::new(move |i, j| Some((if i ^ d < rows { i ^ d } else { i }, j))),
        );
    }
    for d in 1..cols.min(1025) {
        let b = 2.0 + cost(d);
        add(
            Class::Addressing,
            "columns",
            format!("column j holds column j + {d}, wrapped"),
            b + 0.5,
            Arc::new(move |i, j| Some((i, (j + d) % cols))),
        );
        add(
            Class::Addressing,
            "columns",
            format!("column j holds column j − {d}, or the first where there is none"),
            b,
            Arc::new(move |i, j| Some((i, j.saturating_sub(d)))),
        );
        add(
            Class::Addressing,
            "columns",
            format!("column j holds column j + {d}, or the last where there is none"),
            b,
            Arc::new(move |i, j| Some((i, (j + d).min(cols - 1)))),
        );
        add(
            Class::Addressing,
            "columns",
            format!("column j holds column j − {d}; before the start nothing"),
            b,
            Arc::new(move |i, j| j.checked_sub(d).map(|j| (i, j))),
        );
        add(
            Class::Addressing,
            "columns",
            format!("column j holds column j + {d}; past the end nothing"),
            b,
            Arc::new(move |i, j| (j + d < cols).then_some((i, j + d))),
        );
        if d > 1 {
            add(
                Class::Addressing,
                "columns",
                format!("column j holds column (j / {d})·{d}"),
                b,
                Arc::new(move |i, j| Some((i, j / d * d))),
            );
            add(
                Class::Addressing,
                "columns",
                format!("column j holds column j mod {d}"),
                b,
                Arc::new(move |i, j| Some((i, j % d))),
            );
            add(
                Class::Addressing,
                "columns",
                format!("column j holds column j / {d}"),
                b,
                Arc::new(move |i, j| Some((i, j / d))),
            );
        }
        add(
            Class::Addressing,
            "columns",
            format!("column j holds column j xor {d}"),
            b,
            Arc::new(move |i, j| Some((i, if j ^ d < cols { j ^ d } else { j }))),
        );
    }
    add(
        Class::Addressing,
        "rows",
        "rows stand from the last to the first".into(),
        2.0,
        Arc::new(move |i, j| Some((rows - 1 - i, j))),
    );
    add(
        Class::Addressing,
        "columns",
        "columns stand from the last to the first".into(),
        2.0,
        Arc::new(move |i, j| Some((i, cols - 1 - j))),
    );
    for (axis, size) in [(0, rows), (1, cols)] {
        for part in (4..=size.min(1024)).filter(|p| p.is_power_of_two() || size.is_multiple_of(*p)) {
            for p in (2..part).filter(|p| part.is_multiple_of(*p)) {
                let q = part / p;
                let to = move |x: usize| {
                    let base = x / part * part;
                    if base + part <= size { base + x % part % q * p + x % part / q } else { x }
                };
                let (what, from): (&str, From) = if axis == 0 {
                    ("rows", Arc::new(move |i, j| Some((to(i), j))))
                } else {
                    ("columns", Arc::new(move |i, j| Some((i, to(j)))))
                };
                add(
                    Class::Addressing,
                    what,
                    format!("{what} stand in another order: every {part} as {p}×{q}, transposed"),
                    2.0 + cost(p) + cost(part),
                    from,
                );
            }
        }
    }
    // An index that wraps: what is stored last stays, and nothing is stored behind the wrap.
    for m in (3..32).map(|p| 1usize << p).filter(|m| *m < n) {
        add(
            Class::OverflowWrap,
            "index_wraps",
            format!("the index of an element wraps at {m}: later elements overwrite the first, and nothing is stored past {m}"),
            4.0,
            Arc::new(move |i, j| {
                let f = i * cols + j;
                (f < m).then(|| f + (n - 1 - f) / m * m).map(|f| (f / cols, f % cols))
            }),
        );
    }
    for m in (2..16).map(|p| 1usize << p) {
        if m < rows {
            let words = format!("the row wraps at {m}: later rows overwrite the first, and nothing is stored past {m}");
            let to: From = Arc::new(move |i, j| (i < m).then(|| (i + (rows - 1 - i) / m * m, j)));
            add(Class::OverflowWrap, "row_wraps", words, 4.0, to);
        }
        if m < cols {
            let words = format!("the column wraps at {m}: later columns overwrite the first, and nothing is stored past {m}");
            let to: From = Arc::new(move |i, j| (j < m).then(|| (i, j + (cols - 1 - j) / m * m)));
            add(Class::OverflowWrap, "column_wraps", words, 4.0, to);
        }
    }
    // A swizzle that is applied on one side alone.
    for (unit, mask, shift) in swizzles().filter(|(u, m, _)| u * (m + 1) <= cols.next_power_of_two()) {
        add(
            Class::Addressing,
            "swizzle",
            format!("column j of row i holds column j xor ((i / {} and {mask})·{unit}): a swizzle", 1usize << shift),
            5.0 + cost(unit),
            Arc::new(move |i, j| {
                let x = j ^ (((i >> shift) & mask) * unit);
                Some((i, if x < cols { x } else { j }))
            }),
        );
    }
    for t in [2usize, 4, 8, 16, 32, 64, 128] {
        if t <= rows && t <= cols && t < rows.max(cols) {
            add(
                Class::Addressing,
                "tile_transposed",
                format!("every {t}×{t} tile of the result is transposed"),
                3.0 + cost(t),
                Arc::new(move |i, j| {
                    let (r, c) = (i / t * t, j / t * t);
                    Some(if r + t <= rows && c + t <= cols { (r + j % t, c + i % t) } else { (i, j) })
                }),
            );
        }
    }
    all
}

/// Swizzles of a column by its row: unit of columns, mask of the row, and how many low bits of the row are left out.
pub fn swizzles() -> impl Iterator<Item = (usize, usize, usize)> {
    let units = [1usize, 2, 4, 8, 16, 32, 64];
    let rows = [1usize, 3, 7, 15].into_iter().flat_map(|m| (0..4usize).map(move |s| (m, s)));
    units.into_iter().flat_map(move |u| rows.clone().map(move |(m, s)| (u, m, s)))
}

/// What a region may hold that is none of the right values: zeros, NaN, a constant, another part of the result.
pub fn contents(s: &System) -> Vec<Theory> {
    let n = s.rows * s.cols;
    let wrong: Vec<usize> = (0..n).filter(|at| s.is_wrong[*at]).collect();
    let Some(first) = wrong.first() else { return Vec::new() };
    let all_are = |f: &dyn Fn(f64) -> bool| wrong.iter().all(|at| f(s.actual[*at]));
    let mut found = Vec::new();
    let what = if all_are(&|x| x == 0.0) {
        "zero"
    } else if all_are(&f64::is_nan) {
        "NaN"
    } else if wrong.len() > 2 && all_are(&|x| x == s.actual[*first]) && !is_of_another(s, s.actual[*first]) {
        "one and the same number"
    } else if s.region.is_some() && s.bias.iter().any(|b| *b != 0.0) && wrong.iter().all(|at| is_bias(s, *at)) {
        BIAS
    } else if let Some(words) = garbage(s, &wrong) {
        words
    } else if s.region.is_some() && wrong.iter().all(|at| s.part[at / s.cols].is_some_and(|p| s.parts[p].k.is_empty())) {
        OLD
    } else {
        return displaced(s);
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
        let Some(region) = super::rectangles::of(s.rows, s.cols, &held) else { return Vec::new() };
        Some(Arc::new(region))
    } else {
        return Vec::new();
    };
    let whole = region.is_none();
    let (class, variant, words) = match &region {
        None if nan => (Class::PaddingPoison, "all", "the whole result is NaN".to_string()),
        None => (
            Class::SilentSkip,
            if what == "zero" { "zeros" } else { "unwritten" },
            format!("the whole result is {what}: nothing was computed or written"),
        ),
        Some(r) => place(s, r, what),
    };
    let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(if whole && !nan { 0.0 } else { 10.0 });
    let (actual, cols) = (s.actual.to_vec(), s.cols);
    t.finish = Some(Arc::new(move |i, j, _| actual[i * cols + j]));
    // Each rectangle is four numbers: where groups that end early say the same, they say it shorter.
    if let Some(r) = region.as_ref().filter(|r| r.words.contains("rectangles")) {
        t.bits = 20.0 * r.tiles.len() as f64;
    }
    t.region = region;
    found.push(t);
    found
}

/// Whether this number is what a right element holds: then it was computed, for another one.
fn is_of_another(s: &System, x: f64) -> bool {
    (0..s.actual.len()).any(|at| !s.is_wrong[at] && s.actual[at] == x)
}

const BIAS: &str = "the bias alone, of a sum that is 0";

fn is_bias(s: &System, at: usize) -> bool {
    s.actual[at] == s.out.round(at, s.bias[at % s.cols])
}

/// Numbers that no inputs make: of rows or columns, all of them far beyond every right result, and far from each other.
fn garbage(s: &System, wrong: &[usize]) -> Option<&'static str> {
    const FAR: f64 = 1e4;
    s.region.as_ref().filter(|_| wrong.len() >= 8)?;
    let right = s.ideal.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let sizes = wrong.iter().map(|at| s.actual[*at].abs()).filter(|x| x.is_finite());
    let (least, most) = sizes.fold((f64::INFINITY, 0.0f64), |m, x| (m.0.min(x), m.1.max(x)));
    (right > 0.0 && least > FAR * right && most > FAR * least).then_some("numbers that the inputs cannot give")
}

const OLD: &str = "numbers that the inputs cannot give, such as memory that was never written";

/// Old memory, for what no theory explains: numbers whose rows and columns are all of one size, where the right ones' are not. A product of
/// wrong rows, of wrong columns or in a wrong order keeps the sizes of one of them. Instead of the result in a region, or added to it.
pub fn old(s: &System) -> Option<Theory> {
    let region = |i: usize, j: usize| s.region.as_ref().is_none_or(|r| r.has(i, j));
    let places: Vec<(usize, usize)> =
        (0..s.rows * s.cols).map(|at| (at / s.cols, at % s.cols)).filter(|(i, j)| region(*i, *j)).collect();
    let wrong = places.iter().filter(|(i, j)| s.is_wrong[i * s.cols + j]).count();
    (!s.alone && wrong >= 256 && 10 * wrong >= 9 * places.len()).then_some(())?;
    // How much more the sizes of lines differ than those of as many independent normal numbers do, for rows and for columns.
    let structure = |of: &dyn Fn(usize) -> f64| -> Option<[f64; 2]> {
        let one = |n: usize, line: &dyn Fn(&(usize, usize)) -> usize| -> Option<f64> {
            let (mut sums, mut counts) = (vec![0.0; n], vec![0usize; n]);
            for p in &places {
                let x = of(p.0 * s.cols + p.1);
                (sums[line(p)], counts[line(p)]) = (sums[line(p)] + x * x, counts[line(p)] + 1);
            }
            let lines: Vec<(f64, f64)> = (0..n).filter(|l| counts[*l] > 0).map(|l| (sums[l], counts[l] as f64)).collect();
            (lines.len() >= 8 && lines.iter().all(|(x, n)| *n >= 8.0 && x.is_finite() && *x > 0.0)).then_some(())?;
            let logs: Vec<f64> = lines.iter().map(|(x, n)| (x / n).ln()).collect();
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (logs.len() - 1) as f64;
            Some(variance / lines.iter().map(|(_, n)| 2.0 / n).sum::<f64>() * lines.len() as f64)
        };
        Some([one(s.rows, &|p| p.0)?, one(s.cols, &|p| p.1)?])
    };
    let right = structure(&|at| s.ideal[at])?;
    let is_unlike = |of: &dyn Fn(usize) -> f64| {
        structure(of)
            .is_some_and(|x| x.iter().all(|x| *x < 2.0) && x.iter().zip(right).any(|(x, right)| right > 8.0 * x.max(1.0)))
    };
    let (class, variant, words) = match &s.region {
        Some(r) if is_unlike(&|at| s.actual[at]) => place(s, r, OLD),
        None if is_unlike(&|at| s.actual[at]) => (Class::SilentSkip, "unwritten", format!("the whole result is {OLD}")),
        _ if is_unlike(&|at| s.actual[at] - s.ideal[at]) => {
            let place = s.region.as_ref().map_or(String::new(), |r| format!(", in {}", r.words));
            (Class::AccState, "old_content", format!("{OLD}{place} are added to the right result"))
        }
        _ => return None,
    };
    let mut t = Theory::new(class, "out", format!("out.{variant}"), words).bits(60.0);
    let (actual, cols) = (s.actual.to_vec(), s.cols);
    t.finish = Some(Arc::new(move |i, j, _| actual[i * cols + j]));
    t.region.clone_from(&s.region);
    t.fitted = true;
    Some(t)
}

/// What kind of place a region of zeros, NaN or old values is.
fn place(s: &System, r: &super::system::Region, what: &str) -> (Class, &'static str, String) {
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
        return (Class::MnEdge, "edge", format!("{} are {what}: the last, partial tile", r.words));
    }
    if let Some(tile) = edge::overhung(s, r) {
        let words =
            format!("{} are {what}: the last tile of {tile} columns is stored whole, over the start of the next row", r.words);
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

/// The wrong region holds another, right part of the result: every element that of (i + di, j + dj).
fn displaced(s: &System) -> Vec<Theory> {
    let Some(region) = s.region.clone() else { return Vec::new() };
    let probes: Vec<(usize, usize)> = s.probes.iter().copied().filter(|(i, j)| s.is_wrong[i * s.cols + j]).take(24).collect();
    let mut found = Vec::new();
    let right = |i: usize, j: usize, x: f64| s.is_right(i * s.cols + j, x);
    // Where the first probe's value is found, the others have to be as far away.
    let Some((i0, j0)) = probes.first().copied().filter(|_| probes.len() >= 4) else { return found };
    let x0 = s.actual[i0 * s.cols + j0];
    for at in 0..s.rows * s.cols {
        let (i, j) = (at / s.cols, at % s.cols);
        if !right(i, j, x0) {
            continue;
        }
        let (di, dj) = (i as i64 - i0 as i64, j as i64 - j0 as i64);
        let (rows, cols) = (s.rows as i64, s.cols as i64);
        let to = move |i: usize, j: usize| {
            let (x, y) = (i as i64 + di, j as i64 + dj);
            ((0..rows).contains(&x) && (0..cols).contains(&y)).then_some((x as usize, y as usize))
        };
        let fits = |(i, j): &(usize, usize)| to(*i, *j).is_some_and(|(x, y)| right(x, y, s.actual[i * s.cols + j]));
        if (di, dj) == (0, 0) || !probes.iter().all(fits) {
            continue;
        }
        let partial = lines(&region.rows);
        let edge = region.rows.last() == Some(&true) && !region.rows[0] && region.cols.iter().all(|x| *x)
            || region.cols.last() == Some(&true) && !region.cols[0] && region.rows.iter().all(|x| *x);
        let class = if edge {
            Class::MnEdge
        } else if dj == 0 && partial.contains("th)") {
            Class::Addressing
        } else {
            Class::Race
        };
        let words = format!("{} hold what belongs {} rows and {} columns further on", region.words, di, dj);
        let mut t = Theory::new(class, "out", "out.displaced", words)
            .bits(12.0 + cost(di.unsigned_abs() as usize) + cost(dj.unsigned_abs() as usize));
        t.from = Some(Arc::new(to));
        t.region = Some(region.clone());
        found.push(t);
        if found.len() >= 4 {
            break;
        }
    }
    found
}

/// Rows (or columns) of the result that are right ones elsewhere: the source of every one, by value. Formulas are [`moves`]'; this finds
/// what no formula has.
pub fn sources(s: &System) -> Vec<Theory> {
    let mut all = Vec::new();
    for axis in [0, 1] {
        let (n, m) = if axis == 0 { (s.rows, s.cols) } else { (s.cols, s.rows) };
        if !(2..=2048).contains(&n) || m < 4 {
            continue;
        }
        let at = |x: usize, y: usize| if axis == 0 { x * s.cols + y } else { y * s.cols + x };
        let look: Vec<usize> = (0..m.min(12)).map(|x| x * m / m.min(12)).collect();
        let same = |x: usize, from: usize| look.iter().all(|y| s.is_right(at(from, *y), s.actual[at(x, *y)]));
        let source: Option<Vec<usize>> =
            (0..n).map(|x| if same(x, x) { Some(x) } else { (0..n).find(|from| same(x, *from)) }).collect();
        let Some(source) = source.filter(|v| v.iter().enumerate().any(|(x, from)| x != *from)) else { continue };
        let mut sorted = source.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let what = if axis == 0 { "row" } else { "column" };
        let words = if sorted.len() == n {
            format!("{what}s of the result are permuted")
        } else {
            format!("some {what}s of the result are copies of others")
        };
        let some: Vec<String> = (0..n).filter(|x| source[*x] != *x).take(6).map(|x| format!("{x} ← {}", source[x])).collect();
        let moved = source.iter().enumerate().filter(|(x, from)| x != *from).count() as f64;
        let mut t =
            Theory::new(Class::Addressing, "out", format!("out.{what}s_moved"), format!("{words}: {}", some.join(", ")))
                .bits(8.0 + moved * (n as f64).log2());
        t.freedom = moved as usize;
        let source = Arc::new(source);
        t.from = Some(Arc::new(move |i, j| Some(if axis == 0 { (source[i], j) } else { (i, source[j]) })));
        all.push(t);
    }
    all
}
