//! Ways to address a grid: every offset, divisor, stride, modulus, transposition and swizzle that its shape has, as formulas.

use crate::fault::Class;
use crate::order::Order as _;
use std::sync::Arc;

/// Place (r, c) to the flat index that is read instead of `r·C + c`; always inside the grid.
pub type Map = Arc<dyn Fn(usize, usize) -> usize + Send + Sync>;

/// What kind of mistake a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One row's (block's, expert's) entry for others, along the rows.
    Shared,
    /// The wrong entry along the columns (K).
    Index,
    /// Another order of all of them.
    Layout,
    /// The wrong expert's.
    Expert,
}

impl Kind {
    /// The class of scales that are read so.
    pub fn class(self) -> Class {
        match self {
            Kind::Shared | Kind::Expert => Class::ScaleShared,
            Kind::Index => Class::ScaleIndex,
            Kind::Layout => Class::ScaleLayout,
        }
    }
}

/// One way.
pub struct Way {
    pub kind: Kind,
    /// With r and c for row and column of the grid.
    pub words: String,
    pub bits: f64,
    pub map: Map,
}

/// Bits of a whole number: small and round ones are short.
pub fn cost(n: usize) -> f64 {
    let odd = n >> n.trailing_zeros().min(40);
    2.0 + 1.5 * ((1 + odd) as f64).log2() + if n == 0 { 0.0 } else { 0.5 * (1.0 + f64::from(n.trailing_zeros())).log2() }
}

/// An offset around `n` places, the shorter way.
fn step(d: usize, n: usize) -> String {
    if 2 * d > n { format!("− {}", n - d) } else { format!("+ {d}") }
}

/// Every way to address one grid, the shortest first.
pub fn shortest_ways(rows: usize, cols: usize) -> Vec<Way> {
    let mut all = ways(rows, cols, 1);
    all.order_by(|a, b| a.bits.total_cmp(&b.bits));
    all
}

/// Every way to take one of `n` numbers of another of `experts`, and the axes exchanged; rows of the maps are those of all experts.
pub fn of_experts(n: usize, experts: usize) -> Vec<Way> {
    let mut all = Vec::new();
    let mut add = |kind, words, bits, map| all.push(Way { kind, words, bits, map });
    if experts > 1 {
        by_expert(n * experts, 1, experts, &mut add);
        transposed(n * experts, 1, experts, &mut add);
    }
    all.retain(|way| matches!(way.kind, Kind::Expert | Kind::Layout));
    all
}

/// Every way to address a grid of `rows × cols` that stands for `experts` grids one below the other.
pub fn ways(rows: usize, cols: usize, experts: usize) -> Vec<Way> {
    let mut all: Vec<Way> = Vec::new();
    let n = rows * cols;
    if n < 2 {
        return all;
    }
    let flat = move |r: usize, c: usize| r * cols + c;
    let mut add = |kind, words: String, bits: f64, map: Map| all.push(Way { kind, words, bits, map });
    // Offsets.
    for d in 1..rows.min(1025) {
        let b = cost(d);
        add(
            Kind::Shared,
            format!("row r {}, wrapped", step(d, rows)),
            cost(d.min(rows - d)) + 1.0,
            Arc::new(move |r, c| flat((r + d) % rows, c)),
        );
        add(
            Kind::Shared,
            format!("row r + {d}, or the last row where there is none"),
            b,
            Arc::new(move |r, c| flat((r + d).min(rows - 1), c)),
        );
        add(
            Kind::Shared,
            format!("row r − {d}, or the first row where there is none"),
            b,
            Arc::new(move |r, c| flat(r.saturating_sub(d), c)),
        );
    }
    for d in 1..cols.min(513) {
        let b = cost(d);
        add(
            Kind::Index,
            format!("group c {}, wrapped", step(d, cols)),
            cost(d.min(cols - d)) + 1.0,
            Arc::new(move |r, c| flat(r, (c + d) % cols)),
        );
        add(
            Kind::Index,
            format!("group c + {d}, or the last where there is none"),
            b,
            Arc::new(move |r, c| flat(r, (c + d).min(cols - 1))),
        );
        add(
            Kind::Index,
            format!("group c − {d}, or the first where there is none"),
            b,
            Arc::new(move |r, c| flat(r, c.saturating_sub(d))),
        );
        if d > 1 {
            add(
                Kind::Index,
                format!("group c − {d} from group {d} on, as from a ring of {d} that is filled too late"),
                b + 1.0,
                Arc::new(move |r, c| flat(r, if c >= d { c - d } else { c })),
            );
            add(
                Kind::Index,
                format!("group c + {d} where there is one, as from a ring of {d} that is filled too early"),
                b + 1.0,
                Arc::new(move |r, c| flat(r, if c + d < cols { c + d } else { c })),
            );
        }
        // One slot of a ring.
        for slot in (0..d).filter(|_| (2..=8).contains(&d) && 2 * d <= cols) {
            add(
                Kind::Index,
                format!("group c − {d} where c mod {d} is {slot}, as from one slot of a ring that is filled too late"),
                b + 2.0 + cost(slot),
                Arc::new(move |r, c| flat(r, if c >= d && c % d == slot { c - d } else { c })),
            );
        }
    }
    for d in 1..n.min(513) {
        let b = cost(d) + 2.0;
        let kind = if cols > 1 { Kind::Index } else { Kind::Shared };
        add(
            kind,
            format!("flat index {}, wrapped", step(d, n)),
            cost(d.min(n - d)) + 3.0,
            Arc::new(move |r, c| (flat(r, c) + d) % n),
        );
        add(
            kind,
            format!("flat index + {d}, or the last where there is none"),
            b,
            Arc::new(move |r, c| (flat(r, c) + d).min(n - 1)),
        );
        add(
            kind,
            format!("flat index − {d}, or the first where there is none"),
            b,
            Arc::new(move |r, c| flat(r, c).saturating_sub(d)),
        );
    }
    // One group alone.
    for c0 in 1..if cols > 2 { cols.min(65) } else { 0 } {
        add(
            Kind::Index,
            format!("group c − 1 where c = {c0}"),
            cost(if c0 == cols - 1 { 1 } else { c0 }) + 1.0,
            Arc::new(move |r, c| flat(r, if c == c0 { c - 1 } else { c })),
        );
    }
    // One for all.
    for r0 in 0..rows.min(4097) {
        if rows > 1 {
            let b = if r0 == 0 {
                0.5
            } else if r0 == rows - 1 {
                1.5
            } else {
                cost(r0) + 2.0
            };
            add(Kind::Shared, format!("row {r0} for all"), b, Arc::new(move |_, c| flat(r0, c)));
        }
    }
    for c0 in 0..cols.min(1025) {
        if cols > 1 {
            let b = if c0 == 0 {
                0.5
            } else if c0 == cols - 1 {
                1.5
            } else {
                cost(c0) + 2.0
            };
            add(Kind::Index, format!("group {c0} for all of K"), b, Arc::new(move |r, _| flat(r, c0)));
        }
    }
    if rows > 1 && cols > 1 {
        add(Kind::Shared, "the first for all".into(), 1.0, Arc::new(|_, _| 0));
        add(Kind::Shared, "the last for all".into(), 2.0, Arc::new(move |_, _| n - 1));
    }
    // Divisors and moduli.
    for p in 2..=rows.min(1025) {
        let b = cost(p);
        if p < rows {
            add(Kind::Shared, format!("row r mod {p}"), b, Arc::new(move |r, c| flat(r % p, c)));
        }
        add(Kind::Layout, format!("row r / {p}"), b, Arc::new(move |r, c| flat(r / p, c)));
        add(Kind::Shared, format!("row (r / {p})·{p}"), b, Arc::new(move |r, c| flat(r / p * p, c)));
        add(
            Kind::Shared,
            format!("row (r / {p})·{p} + {}", p - 1),
            b + 1.0,
            Arc::new(move |r, c| flat((r / p * p + p - 1).min(rows - 1), c)),
        );
        add(
            Kind::Shared,
            format!("row {p}·r, or the last row where there is none"),
            b,
            Arc::new(move |r, c| flat((r * p).min(rows - 1), c)),
        );
        add(Kind::Shared, format!("row {p}·r, wrapped"), b + 1.0, Arc::new(move |r, c| flat(r * p % rows, c)));
    }
    for p in 2..=cols.min(513) {
        let b = cost(p);
        if p < cols {
            add(Kind::Index, format!("group c mod {p}"), b, Arc::new(move |r, c| flat(r, c % p)));
        }
        add(Kind::Index, format!("group c / {p}"), b, Arc::new(move |r, c| flat(r, c / p)));
        add(Kind::Index, format!("group (c / {p})·{p}"), b, Arc::new(move |r, c| flat(r, c / p * p)));
        add(
            Kind::Index,
            format!("group (c / {p})·{p} + {}", p - 1),
            b + 1.0,
            Arc::new(move |r, c| flat(r, (c / p * p + p - 1).min(cols - 1))),
        );
        add(
            Kind::Index,
            format!("group {p}·c, or the last where there is none"),
            b,
            Arc::new(move |r, c| flat(r, (c * p).min(cols - 1))),
        );
        add(Kind::Index, format!("group {p}·c, wrapped"), b + 1.0, Arc::new(move |r, c| flat(r, c * p % cols)));
    }
    // An index that wraps within blocks of more: four of the eight groups of a block, say.
    for p in [4usize, 8, 16, 32, 64].into_iter().filter(|p| *p < cols) {
        for q in [2usize, 4, 8, 16, 32].into_iter().filter(|q| q < &p) {
            add(
                Kind::Index,
                format!("group (c / {p})·{p} + c mod {q}: of every {p} groups the first {q} alone are used"),
                cost(p) + cost(q),
                Arc::new(move |r, c| flat(r, c / p * p + c % q)),
            );
        }
    }
    // The flat index divided or multiplied: of bytes that hold several codes, or of codes for bytes.
    for p in [2usize, 4, 8, 16].into_iter().filter(|p| rows > 1 && cols > 1 && *p < n) {
        let place = format!("r·{cols} + c");
        add(Kind::Layout, format!("place ⌊({place}) / {p}⌋ of all"), cost(p) + 0.5, Arc::new(move |r, c| flat(r, c) / p));
        add(
            Kind::Layout,
            format!("place {p}·({place}) of all, or the last where there is none"),
            cost(p) + 0.5,
            Arc::new(move |r, c| (flat(r, c) * p).min(n - 1)),
        );
        add(
            Kind::Layout,
            format!("place {p}·({place}) of all, wrapped"),
            cost(p) + 1.5,
            Arc::new(move |r, c| flat(r, c) * p % n),
        );
    }
    // Reversed and xored.
    if rows > 1 {
        add(Kind::Shared, "rows from the last to the first".into(), 2.0, Arc::new(move |r, c| flat(rows - 1 - r, c)));
    }
    if cols > 1 {
        add(Kind::Index, "groups from the last to the first".into(), 2.0, Arc::new(move |r, c| flat(r, cols - 1 - c)));
    }
    for m in 1..rows.next_power_of_two().min(256) {
        let of = move |r: usize| if r ^ m < rows { r ^ m } else { r };
        add(Kind::Layout, format!("row r xor {m}"), cost(m) + 1.0, Arc::new(move |r, c| flat(of(r), c)));
    }
    for m in 1..cols.next_power_of_two().min(64) {
        let of = move |c: usize| if c ^ m < cols { c ^ m } else { c };
        add(Kind::Layout, format!("group c xor {m}"), cost(m) + 1.0, Arc::new(move |r, c| flat(r, of(c))));
        // A bank swizzle: the group exchanged by the row's low bits.
        let by = move |r: usize, c: usize| if c ^ (r & m) < cols { c ^ (r & m) } else { c };
        add(Kind::Layout, format!("group c xor (r and {m})"), cost(m) + 2.0, Arc::new(move |r, c| flat(r, by(r, c))));
    }
    // Other strides.
    for stride in 1..=(2 * cols + 16).min(1024) {
        if stride != cols && rows > 1 {
            let b = cost(stride.abs_diff(cols)) + 1.0;
            add(Kind::Layout, format!("r·{stride} + c, wrapped"), b + 1.0, Arc::new(move |r, c| (r * stride + c) % n));
            add(
                Kind::Layout,
                format!("r·{stride} + c, or the last where there is none"),
                b,
                Arc::new(move |r, c| (r * stride + c).min(n - 1)),
            );
            if stride > cols {
                // Stored at this stride, read without: what was padding is not known, the last before it is.
                add(
                    Kind::Layout,
                    format!("stored in rows of {stride}, read in rows of {cols}"),
                    b + 1.0,
                    Arc::new(move |r, c| {
                        let f = flat(r, c);
                        flat(f / stride, (f % stride).min(cols - 1))
                    }),
                );
            }
        }
    }
    transposed(rows, cols, experts, &mut add);
    swizzled(rows, cols, &mut add);
    if experts > 1 && rows.is_multiple_of(experts) {
        by_expert(rows, cols, experts, &mut add);
    }
    all
}

type Add<'x> = dyn FnMut(Kind, String, f64, Map) + 'x;

/// Axes exchanged: of the grid, of every way to fold it into more axes, of experts.
fn transposed(rows: usize, cols: usize, experts: usize, add: &mut Add) {
    let n = rows * cols;
    if rows > 1 && cols > 1 {
        add(Kind::Layout, "c·R + r: stored row by row, read column by column".into(), 1.0, Arc::new(move |r, c| c * rows + r));
        add(
            Kind::Layout,
            "the transposed place: stored column by column, read row by row".into(),
            1.0,
            Arc::new(move |r, c| {
                let f = r * cols + c;
                f % rows * cols + f / rows
            }),
        );
    }
    for t in [2usize, 4, 8, 16, 32, 64, 128].into_iter().filter(|t| *t <= rows && *t <= cols && *t < rows.max(cols)) {
        add(
            Kind::Layout,
            format!("its place after every {t}×{t} tile of the grid is transposed"),
            1.0 + cost(t),
            Arc::new(move |r, c| {
                let (top, left) = (r / t * t, c / t * t);
                let whole = top + t <= rows && left + t <= cols;
                if whole { (top + c % t) * cols + left + r % t } else { r * cols + c }
            }),
        );
    }
    // The whole, or each run of `part`, as p × q, transposed.
    for part in (2..=n).filter(|p| n.is_multiple_of(*p)).take(64) {
        for p in (2..part).filter(|p| part.is_multiple_of(*p)).take(48) {
            let q = part / p;
            let whole = part == n;
            // Whole rows of the grid in either order have words of their own.
            let words = if !whole && q == cols && cols > 1 {
                format!("its place where every {p} rows stand row by row and are read group by group (c·{p} + r mod {p})")
            } else if !whole && p == cols {
                format!("its place where every {q} rows stand group by group (c·{q} + r mod {q}) and are read row by row")
            } else if whole {
                format!("its place after all {part} are transposed as a {p}×{q} grid")
            } else {
                format!("its place after every {part} are transposed as a {p}×{q} grid")
            };
            let b = cost(p) + if whole { 2.0 } else { 2.0 + cost(part) };
            add(
                Kind::Layout,
                words,
                b,
                Arc::new(move |r, c| {
                    let f = r * cols + c;
                    let x = f % part;
                    f / part * part + x % q * p + x / q
                }),
            );
        }
    }
    // Rows folded, columns kept.
    if cols > 1 {
        for part in (4..=rows).filter(|p| rows.is_multiple_of(*p)).take(48) {
            for p in (2..part).filter(|p| part.is_multiple_of(*p)).take(32) {
                let q = part / p;
                add(
                    Kind::Layout,
                    format!("the row's place in every {part} as {p}×{q}, transposed"),
                    cost(p) + cost(part) + 1.0,
                    Arc::new(move |r, c| {
                        let x = r % part;
                        (r / part * part + x % q * p + x / q) * cols + c
                    }),
                );
            }
        }
    }
    if experts > 1 && rows.is_multiple_of(experts) {
        let per = rows / experts;
        if per > 1 {
            add(
                Kind::Layout,
                "[E, N] read as [N, E]".into(),
                1.0,
                Arc::new(move |r, c| {
                    let (e, x) = (r / per, r % per);
                    ((x * experts + e) % rows) * cols + c
                }),
            );
            add(
                Kind::Layout,
                "[N, E] read as [E, N]".into(),
                1.5,
                Arc::new(move |r, c| (r % experts * per + r / experts) * cols + c),
            );
        }
        if per > 1 && cols > 1 {
            add(
                Kind::Layout,
                "each expert's grid transposed".into(),
                1.0,
                Arc::new(move |r, c| {
                    let (e, x) = (r / per, r % per);
                    e * per * cols + c * per + x
                }),
            );
            add(
                Kind::Layout,
                "each expert's grid stored transposed".into(),
                1.5,
                Arc::new(move |r, c| {
                    let (e, f) = (r / per, r % per * cols + c);
                    e * per * cols + f % per * cols + f / per
                }),
            );
        }
    }
}

/// The tiled layouts of block-scaled tensor cores: 128×4 as 32×4×4, and kin, read or written without it.
fn swizzled(rows: usize, cols: usize, add: &mut Add) {
    let n = rows * cols;
    if rows < 2 {
        return;
    }
    for (tall, lanes, wide) in [(128usize, 32usize, 4usize), (64, 16, 4), (32, 8, 4), (128, 32, 1), (128, 16, 4), (32, 16, 2)] {
        let padded = cols.div_ceil(wide) * wide;
        // What has fewer rows than lanes has other mistakes first.
        let small = if rows < lanes { 4.0 } else { 0.0 };
        let to = move |r: usize, c: usize| {
            let tile = r / tall * (padded / wide) + c / wide;
            tile * tall * wide + (r % lanes) * (tall / lanes) * wide + (r % tall) / lanes * wide + c % wide
        };
        add(
            Kind::Layout,
            format!("the {tall}×{wide} swizzle of block scales applied to scales that are not"),
            2.0 + small,
            Arc::new(move |r, c| to(r, c) % n),
        );
        // Swizzled in memory, read in rows.
        let mut back = vec![usize::MAX; rows.div_ceil(tall) * tall * padded];
        for r in 0..rows {
            for c in 0..cols {
                back[to(r, c)] = r * cols + c;
            }
        }
        let last = n - 1;
        let back = Arc::new(back);
        add(
            Kind::Layout,
            format!("scales in the {tall}×{wide} swizzle read without it"),
            2.5 + small,
            Arc::new(move |r, c| {
                let at = back[r * padded + c];
                if at == usize::MAX { last } else { at }
            }),
        );
    }
}

/// Another expert's grid.
fn by_expert(rows: usize, cols: usize, experts: usize, add: &mut Add) {
    let per = rows / experts;
    let at = move |e: usize, r: usize, c: usize| (e * per + r % per) * cols + c;
    for e0 in 0..experts.min(256) {
        let b = if e0 == 0 { 0.0 } else { cost(e0) + 1.0 };
        add(Kind::Expert, format!("expert {e0}'s for all"), b, Arc::new(move |r, c| at(e0, r, c)));
    }
    for d in 1..experts.min(256) {
        add(
            Kind::Expert,
            format!("expert e + {d}'s, wrapped"),
            cost(d),
            Arc::new(move |r, c| at((r / per + d) % experts, r, c)),
        );
        add(
            Kind::Expert,
            format!("expert e + {d}'s, or the last where there is none"),
            cost(d) + 0.5,
            Arc::new(move |r, c| at((r / per + d).min(experts - 1), r, c)),
        );
        add(
            Kind::Expert,
            format!("expert e − {d}'s, or the first where there is none"),
            cost(d) + 0.5,
            Arc::new(move |r, c| at((r / per).saturating_sub(d), r, c)),
        );
    }
    // Pointers that step by another size than an expert has.
    for apart in (1..(2 * per).min(512)).filter(|a| *a != per) {
        add(
            Kind::Expert,
            format!("experts that are {apart} rows apart instead of {per}"),
            cost(apart.abs_diff(per)) + 2.0,
            Arc::new(move |r, c| (r / per * apart + r % per).min(rows - 1) * cols + c),
        );
    }
    // Rows of each expert at another stride: 1 where that of groups is taken, or padded.
    let mut strides: Vec<usize> = [4usize, 8, 16].iter().map(|to| cols.next_multiple_of(*to)).chain([1]).collect();
    strides.sort_unstable();
    strides.dedup();
    for stride in strides.into_iter().filter(|s| *s != cols && cols > 1 && per > 1) {
        add(
            Kind::Layout,
            format!("e·{} + r·{stride} + c of row r of its expert e, or the last where there is none", per * cols),
            cost(stride.abs_diff(cols)) + 1.5,
            Arc::new(move |r, c| (r / per * per * cols + r % per * stride + c).min(rows * cols - 1)),
        );
    }
    for p in 2..=experts.min(128) {
        add(Kind::Expert, format!("expert e / {p}'s"), cost(p), Arc::new(move |r, c| at(r / per / p, r, c)));
        add(Kind::Expert, format!("expert e mod {p}'s"), cost(p), Arc::new(move |r, c| at(r / per % p, r, c)));
    }
    for d in [1, 2, 4, 8, 16, 32, 64, 128].into_iter().filter(|d| *d < per) {
        for (d, words) in
            [(d, format!("row r + {d} of its expert, wrapped")), (per - d, format!("row r − {d} of its expert, wrapped"))]
        {
            add(Kind::Shared, words, cost(d.min(per - d)) + 1.0, Arc::new(move |r, c| at(r / per, r % per + d, c)));
        }
    }
    add(Kind::Expert, "expert E − 1 − e's".into(), 1.5, Arc::new(move |r, c| at(experts - 1 - r / per, r, c)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_stays_inside_the_grid_and_is_another_way() {
        for (rows, cols, experts) in [(24, 1, 1), (7, 5, 1), (128, 8, 4), (1, 9, 1), (6, 1, 3), (33, 3, 1)] {
            let all = ways(rows, cols, experts);
            assert!(all.len() > 20, "{rows}×{cols}");
            for w in &all {
                for at in 0..rows * cols {
                    let to = (w.map)(at / cols, at % cols);
                    assert!(to < rows * cols, "{}: {at} to {to} of {rows}×{cols}", w.words);
                }
            }
        }
    }

    #[test]
    fn transposed_grids_are_permutations() {
        for w in ways(24, 2, 1).iter().filter(|w| w.words.contains("transposed")) {
            let mut hit: Vec<usize> = (0..48).map(|i| (w.map)(i / 2, i % 2)).collect();
            hit.sort_unstable();
            assert!(hit.iter().enumerate().all(|(i, x)| i == *x), "{}", w.words);
        }
    }

    #[test]
    fn small_round_numbers_are_short() {
        assert!(cost(64) < cost(37) && cost(1) < cost(100) && cost(128) < cost(3 * 128));
    }
}
