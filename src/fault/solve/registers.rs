//! Codes or values of an operand that a tile in shared memory or in registers holds at one place and that are read from another: registers of a
//! fragment that are exchanged, and a bank swizzle whose write and read follow two formulas.
//!
//! ```text
//! read(r, k)  =  stored(r xor x, k xor y)          where bit x of r and bit y of k differ: registers of opposite quarters
//! read(r, k)  =  stored(r, k xor (f(r) xor g(r))·u)          written at chunk xor f(r), read at chunk xor g(r); chunks of u
//! ```

use super::maps::cost;
use super::system::{System, Theory, To};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Rows and K that the quarters of a fragment are apart.
const ROWS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const DEEP: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Elements of a chunk, and the formulas of a row that it is moved by: (row >> shift) & mask.
const CHUNKS: [usize; 5] = [4, 8, 16, 32, 64];
const MASKS: [usize; 3] = [1, 3, 7];
const SHIFTS: usize = 4;

/// All of one side of a product.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    if s.alone {
        return Vec::new();
    }
    let (k_all, name) = (g.k, side.name());
    let experts = s.experts(side);
    let per = g.rows / experts.max(1);
    let what = if g.q.is_some() { "codes" } else { "values" };
    let mut all = Vec::new();
    let mut add = |variant: &str, words: String, bits: f64, to: To| {
        let words = format!("{what} of {name} are {words}");
        let mut t = Theory::new(Class::PackPermute, name, format!("{name}.{variant}"), words).bits(bits);
        t.side(side).code = Some(to);
        all.push(t);
    };
    let pairs = ROWS.into_iter().flat_map(|x| DEEP.map(|y| (x, y))).filter(|(x, y)| *x < per && *y < k_all);
    for (x, y) in pairs {
        for differ in [true, false] {
            // Bits that differ: the quarters off the diagonal, as a1 and a2 of a matrix instruction are.
            let which = if differ { "off" } else { "on" };
            let words = format!(
                "exchanged between the quarters {which} the diagonal of fragments of {} rows × {} of K: those of row r xor {x}, k xor {y}, 0 where there is none",
                2 * x,
                2 * y
            );
            add(
                "fragment_quarters",
                words,
                5.0 + cost(x) + cost(y),
                Arc::new(move |i, k| {
                    let r = i % per;
                    if ((r & x != 0) != (k & y != 0)) != differ {
                        return Some(i * k_all + k);
                    }
                    let (to, at) = (r ^ x, k ^ y);
                    (to < per && at < k_all).then_some((i - r + to) * k_all + at)
                }),
            );
        }
    }
    let formulas: Vec<(usize, usize)> = MASKS.into_iter().flat_map(|m| (0..SHIFTS).map(move |s| (s, m))).collect();
    for unit in CHUNKS {
        for (n, (f, g)) in formulas.iter().enumerate().flat_map(|(n, f)| formulas[n + 1..].iter().map(move |g| (n, (*f, *g)))) {
            let ((s0, m0), (s1, m1)) = (f, g);
            if unit * (m0.max(m1) + 1) > k_all.next_power_of_two() {
                continue;
            }
            let of = |(s, m): (usize, usize)| if s == 0 { format!("row and {m}") } else { format!("(row >> {s}) and {m}") };
            let words = format!(
                "written to chunks of {unit} of K at chunk xor ({}) and read at chunk xor ({}), or the other way round: two formulas of one swizzle",
                of(f),
                of(g)
            );
            add(
                "swizzles",
                words,
                6.0 + 0.25 * n as f64 + cost(unit),
                Arc::new(move |i, k| {
                    // Rows of each expert start anew.
                    let r = i % per;
                    let to = k ^ ((((r >> s0) & m0) ^ ((r >> s1) & m1)) * unit);
                    Some(i * k_all + if to < k_all { to } else { k })
                }),
            );
        }
    }
    all
}

/// Registers of the accumulator's fragment that are exchanged when they are stored: c1 and c2 of a matrix instruction are 8 rows and one column apart.
pub fn of_result(s: &System) -> Vec<Theory> {
    let (rows, cols) = (s.rows, s.cols);
    let pairs = ROWS.into_iter().flat_map(|x| DEEP.map(|y| (x, y))).filter(|(x, y)| !s.alone && *x < rows && *y < cols);
    let theory = |((x, y), differ): ((usize, usize), bool)| {
        let which = if differ { "off" } else { "on" };
        let words = format!(
            "quarters {which} the diagonal of {}×{} tiles of the result are exchanged: element (i, j) is that of (i xor {x}, j xor {y})",
            2 * x,
            2 * y
        );
        let mut t = Theory::new(Class::Addressing, "out", "out.fragment_quarters", words).bits(6.0 + cost(x) + cost(y));
        t.from = Some(Arc::new(move |i, j| {
            if ((i & x != 0) != (j & y != 0)) != differ {
                return Some((i, j));
            }
            ((i ^ x) < rows && (j ^ y) < cols).then_some((i ^ x, j ^ y))
        }));
        t
    };
    pairs.flat_map(|p| [(p, true), (p, false)]).map(theory).collect()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn exchanged_registers_of_the_accumulator_are_told() {
        let (a, b) = (wide(M, 64), codes(Format::Int8, N, 64, 64, false, 43));
        let got = found(&a, &b, None, Format::F32, |i, j, right| match (i & 8 != 0) != (j & 1 != 0) {
            true if (i ^ 8) < M && (j ^ 1) < N => right[(i ^ 8) * N + (j ^ 1)],
            true => 0.0,
            false => right[i * N + j],
        });
        assert_eq!(got.0, "addressing:out.fragment_quarters", "{}", got.1);
        assert!(got.1.contains("off the diagonal of 16×2 tiles of the result"), "{}", got.1);
    }

    #[test]
    fn exchanged_registers_and_two_formulas_of_a_swizzle_are_told() {
        const K: usize = 128;
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 37));
        let x = a.to_f64();
        let with = |from: &dyn Fn(usize, usize) -> Option<(usize, usize)>| {
            found(&a, &b, None, Format::F32, |i, j, _| {
                let code = |k: usize| from(j, k).map_or(0.0, |(r, c)| f64::from(b.codes()[r * K + c] as i8));
                sum(K, |k| x[[i, k]] * code(k) * f64::from(b.scale_inv()[j]))
            })
        };
        let got = with(&|r, k| {
            let (to, at) = if (r & 8 != 0) != (k & 16 != 0) { (r ^ 8, k ^ 16) } else { (r, k) };
            (to < N).then_some((to, at))
        });
        assert_eq!(got.0, "pack_permute:b.fragment_quarters", "{}", got.1);
        assert!(got.1.contains("off the diagonal of fragments of 16 rows × 32 of K"), "{}", got.1);
        let got = with(&|r, k| Some((r, k ^ (((r >> 1 & 3) ^ (r & 3)) * 8))));
        assert_eq!(got.0, "pack_permute:b.swizzles", "{}", got.1);
        assert!(
            got.1.contains("chunks of 8 of K at chunk xor (row and 3) and read at chunk xor ((row >> 1) and 3)"),
            "{}",
            got.1
        );
    }
}
