//! Theories of places: results stored elsewhere, rows and columns that are copies of others.

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
    // The second row begins inside, or nothing of it is told.
    for stride in (cols.saturating_sub(span).max(1)..(cols + span + 1).min(n)).filter(|x| *x != cols && rows > 1) {
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

/// The wrong region holds another, right part of the result: every element that of (i + di, j + dj).
pub fn displaced(s: &System) -> Vec<Theory> {
    let Some(region) = s.region.clone() else { return Vec::new() };
    let probes: Vec<(usize, usize)> = s.probes.iter().copied().filter(|(i, j)| s.is_wrong[i * s.cols + j]).take(24).collect();
    let mut found = Vec::new();
    let right = |i: usize, j: usize, x: f64| s.is_right(i * s.cols + j, x);
    // Where the first probe's value is found, the others have to be as far away.
    let Some((i0, j0)) = probes.first().copied().filter(|_| probes.len() >= 4) else { return found };
    let x0 = s.actual[i0 * s.cols + j0];
    // One number alone is found wherever it stands: it is not moved, it is what a limit or nothing leaves.
    if probes.iter().all(|(i, j)| s.actual[i * s.cols + j] == x0) {
        return found;
    }
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
