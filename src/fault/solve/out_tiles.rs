//! Tiles of the result that are stored at one address of a buffer and read from another: one of the strides of tiles is another's.
//!
//! ```text
//! tile (x, y) is written at x·W + y·V and read at x·R + y·S          the last write of an address stays; 0 where nothing is written
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

const SIDES: [usize; 4] = [8, 16, 32, 64];
const TILES: usize = 4096;

/// Every tile size, both orders of tiles, and one stride of four that is another.
pub fn theories(s: &System) -> Vec<Theory> {
    let mut all: Vec<Theory> = Vec::new();
    for (high, wide) in SIDES.into_iter().flat_map(|h| SIDES.map(|w| (h, w))) {
        let (m, n) = (s.rows.div_ceil(high), s.cols.div_ceil(wide));
        if m < 2 || n < 2 || m * n > TILES {
            continue;
        }
        let mut strides = vec![1, 2, 4, 8, m, n, m + 1, n + 1, m - 1, n - 1, m.next_power_of_two(), n.next_power_of_two()];
        strides.sort_unstable();
        strides.dedup();
        for right in [(1, m), (n, 1)] {
            for (which, stride) in (0..4usize).flat_map(|w| strides.iter().map(move |x| (w, *x))) {
                let (mut written, mut read) = (right, right);
                *[&mut written.0, &mut written.1, &mut read.0, &mut read.1][which] = stride;
                if written == read {
                    continue;
                }
                for rows_last in [true, false] {
                    let Some(from) = sources((m, n), written, read, rows_last) else { continue };
                    let order = if rows_last { "row of tiles by row" } else { "column of tiles by column" };
                    let name = |(x, y): (usize, usize)| format!("x·{x} + y·{y}");
                    let words = format!(
                        "tile (x, y) of {high}×{wide} of the result is written at tile {} of a buffer, {order}, and read at {}",
                        name(written),
                        name(read)
                    );
                    let bits = 6.0 + cost(high) + cost(wide) + cost(stride) - 4.0 + if rows_last { 0.0 } else { 0.5 };
                    let mut t = Theory::new(Class::Addressing, "out", "out.tile_stride", words).bits(bits);
                    t.from = Some(Arc::new(move |i, j| {
                        let (x, y) = from[i / high * n + j / wide]?;
                        Some((x * high + i % high, y * wide + j % wide))
                    }));
                    all.push(t);
                }
            }
        }
    }
    all
}

/// The tile that each reads. `None`: all read their own, or none but the first does.
type Tiles = Vec<Option<(usize, usize)>>;

fn sources((m, n): (usize, usize), w: (usize, usize), r: (usize, usize), rows_last: bool) -> Option<Tiles> {
    let at = |(x, y): (usize, usize), of: (usize, usize)| x * of.0 + y * of.1;
    let mut buffer: Tiles = vec![None; at((m - 1, n - 1), w) + 1];
    for t in 0..m * n {
        let (x, y) = if rows_last { (t / n, t % n) } else { (t % m, t / m) };
        buffer[at((x, y), w)] = Some((x, y));
    }
    let all: Tiles = (0..m * n).map(|t| buffer.get(at((t / n, t % n), r)).copied().flatten()).collect();
    let own = (0..m * n).filter(|t| all[*t] == Some((t / n, t % n))).count();
    // Something moved, to where it can be seen.
    let moved = (0..m * n).filter(|t| all[*t].is_some_and(|x| x != (t / n, t % n))).count();
    (own < m * n && moved > 0).then_some(all)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, found, wide};

    #[test]
    fn tiles_that_are_written_and_read_by_other_strides_are_told() {
        let (m, n) = (64, 80);
        let (a, b) = (wide(m, 64), codes(Format::Int8, n, 64, 64, false, 33));
        let got = found(&a, &b, None, Format::F32, |i, j, right| {
            let (x, y) = (i / 16, j / 16);
            // Written at x + y, the last row of tiles stays; read at x + 4·y.
            let at = x + 4 * y;
            let from = at.min(3);
            if at - from < 5 { right[(from * 16 + i % 16) * n + (at - from) * 16 + j % 16] } else { 0.0 }
        });
        assert_eq!(got.0, "addressing:out.tile_stride", "{}", got.1);
        assert!(got.1.contains("(x, y) of 16×16 of the result is written at tile x·1 + y·1 of a buffer"), "{}", got.1);
        assert!(got.1.contains("and read at x·1 + y·4"), "{}", got.1);
    }
}
