//! Lists of rows of experts that run over into the next expert's: they stand too close together for the longest of them.
//!
//! ```text
//! list of expert e: places e·S + 0, 1, …, n(e) − 1                    a right kernel: S ≥ n(e) for all
//! a place that two lists have holds one row, of either; each expert multiplies what its places hold, and the last one's result stays
//! ```

use super::system::System;

/// Places that two lists share, at least.
const LEAST: usize = 2;

/// How far apart the lists stand, in words, where a map of rows to the experts whose weights they met is of this kind. `None` for a row: no one's.
pub fn of(s: &System, map: &[Option<usize>]) -> Option<(String, f64)> {
    let longest = s.parts.iter().map(|p| p.rows.len()).max().unwrap_or(0);
    let found = (1..longest).rev().find_map(|apart| shared(s, map, apart).map(|n| (apart, n)));
    let (apart, n) = found?;
    let words = format!(
        "the lists of rows of the experts stand {apart} apart, and the longest has {longest}: it runs over into the next one's. {n} places are those of two \
         lists, and hold a row of one: the row of the other meets nobody; what stands there is multiplied by both experts, of which the last one's result \
         stays"
    );
    Some((words, 8.0 + n as f64))
}

/// How many places are shared, where lists that stand so far apart say of every row what was found.
fn shared(s: &System, map: &[Option<usize>], apart: usize) -> Option<usize> {
    let size = s.parts.iter().enumerate().map(|(e, p)| e * apart + p.rows.len()).max()?;
    let mut places: Vec<Vec<(usize, usize)>> = vec![Vec::new(); size];
    for (e, p) in s.parts.iter().enumerate() {
        p.rows.clone().enumerate().for_each(|(x, i)| places[e * apart + x].push((e, i)));
    }
    let mut n = 0;
    for place in &places {
        let last = place.iter().map(|x| x.0).max();
        let met = |x: &&(usize, usize)| map[x.1].is_some();
        match place.len() {
            0 => {}
            1 => (map[place[0].1] == last).then_some(())?,
            _ => {
                // One row is there, and is the last expert's.
                let mut held = place.iter().filter(met);
                (held.next().is_some_and(|x| map[x.1] == last) && held.next().is_none()).then_some(())?;
                n += 1;
            }
        }
    }
    (n >= LEAST).then_some(n)
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, noise, sum, wide};

    const N: usize = 32;
    const K: usize = 64;
    const ENDS: [usize; 4] = [5, 22, 26, 33];

    fn begin(e: usize) -> usize {
        if e == 0 { 0 } else { ENDS[e - 1] }
    }

    fn named(met: &dyn Fn(usize) -> Option<usize>) -> (String, String) {
        let (a, b) = (wide(33, K), codes(Format::Int8, 4 * N, K, K, false, 19));
        let (x, y) = (a.to_f64(), b.dequantize());
        grouped_found(&a, &b, &ENDS, Format::F32, |i, j| met(i).map_or(0.0, |e| sum(K, |k| x[[i, k]] * y[[e * N + j, k]])))
    }

    #[test]
    fn lists_that_run_over_are_told() {
        // Lists 12 apart: expert 1 has 17 rows, and expert 2 four, of which two keep their places.
        let mut held: Vec<Option<usize>> = vec![None; 60];
        for (e, end) in ENDS.iter().enumerate() {
            for i in begin(e)..*end {
                let at = e * 12 + i - begin(e);
                let keeps = held[at].is_none() || at.is_multiple_of(2);
                if keeps {
                    held[at] = Some(i);
                }
            }
        }
        let mut met = vec![None; 33];
        for (e, end) in ENDS.iter().enumerate() {
            (0..end - begin(e)).filter_map(|x| held[e * 12 + x]).for_each(|i| met[i] = Some(e));
        }
        let got = named(&|i| met[i]);
        assert_eq!(got.0, "group_boundary:rows_of_experts", "{}", got.1);
        assert!(got.1.contains("stand 12 apart, and the longest has 17") && got.1.contains("4 places"), "{}", got.1);
        // Rows of chance are in no list.
        let own = |i: usize| ENDS.iter().filter(|end| **end <= i).count();
        let got =
            named(&|i| if noise(i + 3) < 0.2 { None } else { Some(if noise(i) < 0.1 { (own(i) + 1) % 4 } else { own(i) }) });
        assert!(!got.1.contains("lists of rows"), "{} {}", got.0, got.1);
    }
}
