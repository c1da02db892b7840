//! Theories of codes: read from another address, or mixed with their neighbours.

use super::maps::cost;
use super::system::{System, Theory, To};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Bits of rows and of K that fragments are exchanged by.
const BITS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// In every whole `part` of K the code at x is read from `of(x)`.
fn every(k_all: usize, part: usize, of: impl Fn(usize) -> usize + Send + Sync + 'static) -> To {
    Arc::new(move |i, k| {
        let (base, x) = (k / part * part, k % part);
        Some(i * k_all + if base + part <= k_all { base + of(x) } else { k })
    })
}

/// Theories of where the codes of one side are read.
pub fn addresses(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    // What is no product moves its result: other theories say so.
    if g.q.is_none() && s.alone {
        return Vec::new();
    }
    let (rows, k_all, n) = (g.rows, g.k, g.rows * g.k);
    let experts = s.experts(side);
    let per = rows / experts.max(1);
    // Codes are packed and permuted; values are read as they lie.
    let (what, unlikely) = if g.q.is_some() { ("codes", 0.0) } else { ("values", 6.0) };
    let mut all = Vec::new();
    let mut add = |class: Class, variant: &str, words: String, bits: f64, to: To| {
        let mut t = Theory::new(class, name, format!("{name}.{variant}"), format!("{what} of {name} are read {words}"))
            .bits(4.0 + bits + unlikely);
        t.side(side).code = Some(to);
        all.push(t);
    };
    // Along K.
    for m in 1..k_all.next_power_of_two().min(512) {
        add(
            Class::PackPermute,
            "k_xor",
            format!("at k xor {m}"),
            cost(m) - 1.0,
            Arc::new(move |i, k| Some(i * k_all + if k ^ m < k_all { k ^ m } else { k })),
        );
    }
    for part in (2..=k_all.min(1024)).filter(|p| p.is_power_of_two() || k_all.is_multiple_of(*p)) {
        for p in (2..part).filter(|p| part.is_multiple_of(*p)) {
            let q = part / p;
            add(
                Class::PackPermute,
                "k_order",
                format!("in another order: every {part} of K as {p}×{q}, transposed"),
                cost(p) + cost(part) - 2.0,
                every(k_all, part, move |x| x % q * p + x / q),
            );
        }
        for d in 1..part.min(64) {
            add(
                Class::PackPermute,
                "k_rotated",
                format!("rotated by {d} in every {part} of K"),
                cost(d) + cost(part),
                every(k_all, part, move |x| (x + d) % part),
            );
        }
        if part > 2 {
            add(
                Class::PackPermute,
                "k_reversed",
                format!("backwards in every {part} of K"),
                cost(part),
                every(k_all, part, move |x| part - 1 - x),
            );
        }
    }
    for order in bit_orders().into_iter().filter(|o| 1 << o.len() <= k_all) {
        let to = |x: usize| order.iter().enumerate().map(|(from, to)| (x >> from & 1) << to).sum::<usize>();
        let map: Vec<usize> = (0..1 << order.len()).map(to).collect();
        let part = map.len();
        let first: Vec<String> = map.iter().take(8).map(ToString::to_string).collect();
        add(
            Class::PackPermute,
            "k_bits",
            format!("in another order: every {part} of K as {}{}", first.join(", "), if part > 8 { ", …" } else { "" }),
            cost(part) + order.len() as f64,
            every(k_all, part, move |x| map[x]),
        );
    }
    // The column within its group alone, in every so many of K: the first group's codes for all of them, or the last's.
    for tile in [64usize, 128, 256, 512].into_iter().filter(|t| *t <= k_all.next_power_of_two()) {
        for group in [16usize, 32, 64, 128].into_iter().filter(|x| 2 * x <= tile && k_all.is_multiple_of(*x)) {
            for last in [false, true] {
                let which = if last { "last" } else { "first" };
                add(
                    Class::PackPermute,
                    "k_alias",
                    format!("from the {which} {group} of every {tile} of K"),
                    cost(tile) + cost(group) - 2.0,
                    Arc::new(move |i, k| {
                        let base = k / tile * tile;
                        let end = (base + tile).min(k_all);
                        Some(i * k_all + if last { end - group } else { base } + k % group)
                    }),
                );
            }
        }
    }
    // Pointers that step by another size than the elements have: blocks of K twice as far apart as they lie, into the next rows.
    for (block, times) in
        [8usize, 16, 32, 64, 128, 256].into_iter().flat_map(|b| [(b, 2usize), (b, 4)]).filter(|(b, _)| 2 * b <= k_all)
    {
        add(
            Class::Addressing,
            "k_blocks_apart",
            format!("in blocks of {block} of K that are {times} times as far apart as they lie, past the end of the row"),
            cost(block) + cost(times) + 2.0,
            Arc::new(move |i, k| Some(i * k_all + k / block * block * times + k % block).filter(|at| *at < n)),
        );
    }
    // One tile of K again and again, or one that is late.
    for tile in 1..k_all.min(2048) {
        add(
            Class::AccState,
            "tile_reused",
            format!("from the first {tile} of K for every tile of {tile}"),
            cost(tile),
            Arc::new(move |i, k| Some(i * k_all + k % tile)),
        );
        add(
            Class::AccState,
            "stage_late",
            format!("{tile} of K late: the stage before, or the first where there is none"),
            cost(tile) + 2.0,
            Arc::new(move |i, k| Some(i * k_all + if k >= tile { k - tile } else { k })),
        );
        add(
            Class::AccState,
            "stage_early",
            format!("{tile} of K early, or the last where there is none"),
            cost(tile) + 2.0,
            Arc::new(move |i, k| Some(i * k_all + if k + tile < k_all { k + tile } else { k })),
        );
        let last = k_all / tile * tile;
        if last != k_all && last > 0 {
            add(
                Class::KTail,
                "tail_of_next_row",
                format!("on, past the end of the row, from k = {}", k_all - tile),
                cost(tile) + 3.0,
                Arc::new(move |i, k| {
                    Some(if k >= k_all - tile { ((i + 1) % rows) * k_all + k - (k_all - tile) } else { i * k_all + k })
                }),
            );
        }
    }
    // Rows.
    for m in 1..per.next_power_of_two().min(256) {
        add(
            Class::PackPermute,
            "row_xor",
            format!("at row r xor {m}"),
            cost(m),
            Arc::new(move |i, k| {
                let x = (i % per) ^ m;
                Some((if x < per { i - i % per + x } else { i }) * k_all + k)
            }),
        );
    }
    // Fragments whose quarters are exchanged: one half of K's bit y, or of the rows' bit x, meets other rows or columns.
    for (x, y) in BITS.into_iter().flat_map(|x| BITS.map(|y| (x, y))).filter(|(x, y)| *x < per && *y < k_all) {
        for set in [true, false] {
            let when = if set { "≥" } else { "<" };
            add(
                Class::PackPermute,
                "fragment_rows",
                format!("at row r xor {x} where k mod {} {when} {y}", 2 * y),
                cost(x) + cost(y),
                Arc::new(move |i, k| {
                    let to = (i % per) ^ x;
                    Some((if (k & y != 0) == set && to < per { i - i % per + to } else { i }) * k_all + k)
                }),
            );
            add(
                Class::PackPermute,
                "fragment_columns",
                format!("at k xor {y} where r mod {} {when} {x}", 2 * x),
                cost(x) + cost(y),
                Arc::new(move |i, k| Some(i * k_all + if (i & x != 0) == set && k ^ y < k_all { k ^ y } else { k })),
            );
        }
    }
    // Experts that lie closer together, or further apart, than they are read.
    for apart in (1..2 * per).filter(|a| experts > 1 && *a != per) {
        add(
            Class::Addressing,
            "expert_stride",
            format!("with experts {apart} rows apart instead of {per}"),
            if 2 * apart == per || apart == 2 * per { 1.0 } else { cost(apart.abs_diff(per)) + 2.0 },
            Arc::new(move |i, k| Some((i / per * apart + i % per) * k_all + k).filter(|at| *at < n)),
        );
    }
    for part in (4..=per.min(512)).filter(|p| p.is_power_of_two() || per.is_multiple_of(*p)) {
        for p in (2..part).filter(|p| part.is_multiple_of(*p)) {
            let q = part / p;
            add(
                Class::PackPermute,
                "row_order",
                format!("with rows in another order: every {part} as {p}×{q}, transposed"),
                cost(p) + cost(part) - 1.0,
                Arc::new(move |i, k| {
                    let (base, x) = (i / part * part, i % part);
                    Some((if base + part <= rows { base + x % q * p + x / q } else { i }) * k_all + k)
                }),
            );
        }
    }
    for d in 1..rows.min(513) {
        add(
            Class::Addressing,
            "row_offset",
            format!("{d} rows on, wrapped"),
            cost(d) + 2.0,
            Arc::new(move |i, k| Some((i + d) % rows * k_all + k)),
        );
        add(
            Class::Addressing,
            "row_offset",
            format!("{d} rows before, or the first where there is none"),
            cost(d) + 2.0,
            Arc::new(move |i, k| Some(i.saturating_sub(d) * k_all + k)),
        );
        add(
            Class::Addressing,
            "row_offset",
            format!("{d} rows on, or the last where there is none"),
            cost(d) + 2.0,
            Arc::new(move |i, k| Some((i + d).min(rows - 1) * k_all + k)),
        );
        if d > 1 {
            add(
                Class::Addressing,
                "row_shared",
                format!("from row (r / {d})·{d}"),
                cost(d) + 2.0,
                Arc::new(move |i, k| Some(i / d * d * k_all + k)),
            );
            add(
                Class::Addressing,
                "row_shared",
                format!("from row r mod {d}"),
                cost(d) + 2.0,
                Arc::new(move |i, k| Some(i % d * k_all + k)),
            );
        }
    }
    // A row stride of 0; of experts, each by itself.
    if experts > 1 {
        let words = format!("from the first row of each {per}: a row stride of 0");
        add(Class::Addressing, "row_shared", words, 1.0, Arc::new(move |i, k| Some(i / per * per * k_all + k)));
    }
    if rows > 1 {
        let words = "from row 0 for all: a row stride of 0";
        add(Class::Addressing, "row_shared", words.into(), -unlikely, Arc::new(move |_, k| Some(k)));
    }
    add(
        Class::Addressing,
        "row_reversed",
        "with rows from the last to the first".into(),
        2.0,
        Arc::new(move |i, k| Some((rows - 1 - i) * k_all + k)),
    );
    staged(rows, k_all, &mut add);
    // The flat buffer.
    let span = 4 * 128usize;
    for stride in (k_all.saturating_sub(span).max(1)..=k_all + span).filter(|x| *x != k_all && rows > 1) {
        let b = cost(stride.abs_diff(k_all)) + 1.0;
        add(
            Class::Addressing,
            "stride",
            format!("at a row stride of {stride} instead of {k_all}"),
            b,
            Arc::new(move |i, k| Some(i * stride + k).filter(|f| *f < n)),
        );
        add(
            Class::Addressing,
            "stride",
            format!("at a row stride of {stride} instead of {k_all}, wrapped"),
            b + 2.0,
            Arc::new(move |i, k| Some((i * stride + k) % n)),
        );
    }
    for off in 1..k_all.min(257) {
        add(
            Class::Addressing,
            "offset",
            format!("{off} codes on"),
            cost(off) + 3.0,
            Arc::new(move |i, k| Some((i * k_all + k + off) % n)),
        );
        add(
            Class::Addressing,
            "offset",
            format!("{off} codes before"),
            cost(off) + 3.0,
            Arc::new(move |i, k| Some((i * k_all + k + n - off) % n)),
        );
    }
    if rows > 1 && k_all > 1 {
        add(
            Class::PackPermute,
            "column_major",
            "as [K, N] although they are stored as [N, K]".into(),
            -2.0,
            Arc::new(move |i, k| Some(i / per * per * k_all + k * per + i % per)),
        );
        add(
            Class::PackPermute,
            "column_major_back",
            "row by row although they are stored column by column".into(),
            -1.0,
            Arc::new(move |i, k| {
                let f = i % per * k_all + k;
                Some(i / per * per * k_all + (f % per) * k_all + f / per)
            }),
        );
        for t in [2usize, 4, 8, 16, 32, 64, 128] {
            if t <= per && t <= k_all {
                add(
                    Class::PackPermute,
                    "tile_transposed",
                    format!("with every {t}×{t} tile transposed"),
                    cost(t),
                    Arc::new(move |i, k| {
                        let (r, c) = (i % per / t * t, k / t * t);
                        Some(if r + t <= per && c + t <= k_all {
                            (i - i % per + r + k % t) * k_all + c + i % t
                        } else {
                            i * k_all + k
                        })
                    }),
                );
            }
        }
        // Two codes a byte: neighbours along K, or the same k of two rows.
        if k_all.is_multiple_of(2) && per.is_multiple_of(2) && g.format().is_some_and(|f| f.bits() == 4) {
            add(
                Class::PackPermute,
                "packed_axis",
                "as if a byte held two rows, although it holds two of K".into(),
                -1.0,
                Arc::new(move |i, k| Some(2 * (i / 2 * k_all + k) + i % 2)),
            );
            add(
                Class::PackPermute,
                "packed_axis",
                "as if a byte held two of K, although it holds two rows".into(),
                -1.0,
                Arc::new(move |i, k| {
                    let byte = (i * k_all + k) / 2;
                    Some((byte / k_all * 2 + k % 2) * k_all + byte % k_all)
                }),
            );
        }
        // The same of a tensor that lies with K first: bytes of two of K in [K/2, N], bytes of two of N in [K, N/2]; at the pitch of the bytes
        // that are there, or of those that are thought to be.
        if k_all.is_multiple_of(2) && per.is_multiple_of(2) && g.format().is_some_and(|f| f.bits() == 4) {
            let (halves, half) = (k_all / 2, per / 2);
            let place = move |i: usize, row: usize, k: usize| Some((i - i % per + row) * k_all + k);
            let ways: [(&str, To); 4] = [
                (
                    "as two of N in a byte of [K, N/2], although a byte of [K/2, N] holds two of K; 0 from the middle of K on",
                    Arc::new(move |i, k| if k < halves { place(i, i % per / 2, 2 * k + i % 2) } else { None }),
                ),
                (
                    "as two of N in a byte of [K, N/2], although a byte of [K/2, N] holds two of K",
                    Arc::new(move |i, k| {
                        let byte = k * half + i % per / 2;
                        place(i, byte % per, 2 * (byte / per) + i % 2)
                    }),
                ),
                (
                    "as two of K in a byte of [K/2, N], although a byte of [K, N/2] holds two of N; 0 from the middle of N on",
                    Arc::new(move |i, k| if i % per < half { place(i, 2 * (i % per) + k % 2, k / 2) } else { None }),
                ),
                (
                    "as two of K in a byte of [K/2, N], although a byte of [K, N/2] holds two of N",
                    Arc::new(move |i, k| {
                        let byte = k / 2 * per + i % per;
                        place(i, 2 * (byte % half) + k % 2, byte / half)
                    }),
                ),
            ];
            for (words, to) in ways {
                add(Class::PackPermute, "packed_axis", words.into(), 0.0, to);
            }
        }
        for (m, words) in [(2usize, "2"), (31, "31")] {
            for unit in [8usize, 16] {
                add(
                    Class::PackPermute,
                    "swizzle",
                    format!("at k xor ((row and {words})·{unit}): a bank swizzle"),
                    3.0,
                    Arc::new(move |i, k| {
                        let x = k ^ ((i & m) * unit);
                        Some(i * k_all + if x < k_all { x } else { k })
                    }),
                );
            }
        }
        for (unit, mask, shift) in super::places::swizzles().filter(|(u, m, _)| u * (m + 1) <= k_all.next_power_of_two()) {
            let row = if shift == 0 { "row".to_string() } else { format!("row / {}", 1usize << shift) };
            let bits = 3.0 + shift as f64 + if unit == 8 || unit == 16 { 0.0 } else { 1.0 };
            add(
                Class::PackPermute,
                "swizzle",
                format!("at k xor (({row} and {mask})·{unit}): a bank swizzle"),
                bits,
                Arc::new(move |i, k| {
                    let x = k ^ (((i >> shift) & mask) * unit);
                    Some(i * k_all + if x < k_all { x } else { k })
                }),
            );
        }
    }
    // Rows of another length: codes and the groups of scales beside them.
    let (group, values) = (g.tile.1, g.values.clone());
    let strides = (1..=4 * k_all / group.max(1)).map(|n| n * group).filter(|x| *x != k_all);
    for stride in strides.filter(|_| g.tile.0 == 1 && g.grid.1 > 1 && rows > 1) {
        let words =
            format!("codes and scales of {name} are read at a row stride of {stride} instead of {k_all}, 0 behind the end");
        let bits = 5.0 + cost(stride.abs_diff(k_all) / group);
        let mut t = Theory::new(Class::Addressing, name, format!("{name}.stride"), words).bits(bits);
        let values = values.clone();
        t.side(side).value = Some(Arc::new(move |i, k| values.get(i * stride + k).copied().unwrap_or(0.0)));
        all.push(t);
    }
    all
}

/// Tiles of an operand in shared memory that are read with another leading dimension than they were written with: row by row, or K by K.
fn staged(rows: usize, k_all: usize, add: &mut impl FnMut(Class, &str, String, f64, To)) {
    const HIGH: [usize; 8] = [8, 16, 24, 32, 48, 64, 96, 128];
    const DEEP: [usize; 4] = [16, 32, 64, 128];
    for (high, deep) in HIGH.into_iter().flat_map(|h| DEEP.map(|d| (h, d))).filter(|(h, d)| *h <= rows && *d <= k_all) {
        for by_row in [true, false] {
            let own = if by_row { deep } else { high };
            let mut others = vec![own.next_power_of_two(), own / 2, 2 * own, own + 4, own + 8, own + 16, own - 8, 32, 64, 128];
            others.sort_unstable();
            others.dedup();
            for ld in others.into_iter().filter(|ld| *ld > 0 && *ld != own) {
                let order = if by_row { "row by row" } else { "K by K" };
                let words =
                    format!("from tiles of {high} rows × {deep} of K, {order}, with leading dimension {ld} instead of {own}");
                let to: To = Arc::new(move |i, k| {
                    let (i0, k0) = (i / high * high, k / deep * deep);
                    if i0 + high > rows || k0 + deep > k_all {
                        return Some(i * k_all + k);
                    }
                    let (r, c) = (i - i0, k - k0);
                    let flat = if by_row { r * ld + c } else { c * ld + r } % (high * deep);
                    let (r, c) = if by_row { (flat / deep, flat % deep) } else { (flat % high, flat / high) };
                    Some((i0 + r) * k_all + k0 + c)
                });
                add(Class::Addressing, "leading_dimension", words, cost(high) + cost(deep) + cost(ld) - 4.0, to);
            }
        }
    }
}

/// Orders of the bits of an index within 8 to 64 elements, as fragments of matrix instructions are laid out: where each bit goes. Those that
/// only turn the bits around are p × q, transposed.
fn bit_orders() -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for n in 3..=6usize {
        let mut order: Vec<usize> = (0..n).collect();
        permutations(&mut order, 0, &mut |o| {
            let rotated = (0..n).all(|x| o[x] == (x + o[0]) % n);
            // The highest bit moves, else it is an order of fewer.
            if !rotated && o[n - 1] != n - 1 {
                all.push(o.to_vec());
            }
        });
    }
    all
}

fn permutations(v: &mut Vec<usize>, from: usize, f: &mut dyn FnMut(&[usize])) {
    if from + 1 >= v.len() {
        return f(v);
    }
    for x in from..v.len() {
        v.swap(from, x);
        permutations(v, from + 1, f);
        v.swap(from, x);
    }
}

/// Nibbles that are left from the code before.
pub fn mixed(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let name = side.name();
    let Some(q) = g.q.as_ref().filter(|q| q.format().bits() == 4) else { return Vec::new() };
    let k_all = g.k;
    type Mix = fn(u8, u8, usize) -> u8;
    let ways: [(&str, Mix); 5] = [
        ("every second code has the bits of the one before it too", |c, before, k| if k % 2 == 1 { c | before } else { c }),
        ("every first code of a pair has the bits of the second too", |c, after, k| if k % 2 == 0 { c | after } else { c }),
        ("the second code of a pair is the first again", |c, other, k| if k % 2 == 1 { other } else { c }),
        ("the first code of a pair is the second", |c, other, k| if k % 2 == 0 { other } else { c }),
        ("the second code of a pair is 0", |c, _, k| if k % 2 == 1 { 0 } else { c }),
    ];
    let given = g.clone();
    let theory = |(words, mix): (&str, Mix)| {
        let (g, q) = (given.clone(), q.clone());
        let mut t = Theory::new(Class::PackPermute, name, format!("{name}.nibbles"), format!("of {name}, {words}")).bits(5.0);
        t.side(side).value = Some(Arc::new(move |i, k| {
            let (at, codes) = (i * k_all + k, q.codes());
            let code = mix(codes[at], codes[(at ^ 1).min(codes.len() - 1)], k);
            g.decoded(code, i / g.tile.0 * g.grid.1 + k / g.tile.1)
        }));
        t
    };
    ways.into_iter().map(theory).collect()
}
