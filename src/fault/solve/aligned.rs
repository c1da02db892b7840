//! Rows that are read as vectors whose address is cut to their width: where a row does not begin at a whole vector, every vector begins too early.
//!
//! ```text
//! (i, k) is read from ⌊(i·K + ⌊k / v⌋·v) / v⌋·v + k mod v        v elements a vector; the rest of a row by smaller loads, right, or the same way
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use std::sync::Arc;

/// Bytes of a vector.
const WIDE: [usize; 5] = [4, 8, 16, 32, 64];

/// Theories of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let bits = match (g.format(), operand(s.scene.evidence.job, side).map(Operand::given)) {
        (Some(f), _) => f.bits() as usize,
        (None, Some(Operand::High(x))) => x.dtype().bits() as usize,
        _ => return Vec::new(),
    };
    let (k_all, n) = (g.k, g.rows * g.k);
    let mut all = Vec::new();
    for wide in WIDE {
        let v = 8 * wide / bits;
        if s.alone || g.rows < 2 || v < 2 || k_all.is_multiple_of(v) || k_all < v {
            continue;
        }
        let whole = k_all / v * v;
        for rest in [false, true] {
            let end = match rest {
                true => "; the last ones of a row as well".into(),
                false => format!("; the last {} of a row, by smaller loads, are right", k_all - whole),
            };
            let words = format!(
                "{name} is read in vectors of {wide} bytes whose address is cut to {wide}, though a row has {} bytes: those of most rows begin up to {} elements too early{end}",
                k_all * bits / 8,
                v - 1
            );
            let mut t = Theory::new(Class::Addressing, name, format!("{name}.aligned"), words)
                .bits(5.0 + cost(wide) + f64::from(u8::from(rest)));
            t.side(side).code = Some(Arc::new(move |i, k| {
                if !rest && k >= whole {
                    return Some(i * k_all + k);
                }
                Some((i * k_all + k / v * v) / v * v + k % v).filter(|at| *at < n)
            }));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    #[test]
    fn vectors_whose_address_is_cut_are_told() {
        // 44 bytes a row: eleven of them four bytes, five of them eight.
        const K: usize = 88;
        let (a, b) = (wide(M, K), codes(Format::Int4, N, K, 8, false, 5));
        let x = a.to_f64();
        let nibble = |at: usize| f64::from(((b.codes()[at] << 4) as i8) >> 4);
        for (rest, words) in [(false, "the last 8 of a row, by smaller loads, are right"), (true, "of a row as well")] {
            let at = |j: usize, k: usize| if k >= 80 && !rest { j * K + k } else { (j * K + k / 16 * 16) / 16 * 16 + k % 16 };
            let got = found(&a, &b, None, Format::F32, |i, j, _| {
                let of = |k: usize| if at(j, k) < N * K { nibble(at(j, k)) } else { 0.0 };
                sum(K, |k| x[[i, k]] * of(k) * f64::from(b.scale_inv()[j * 11 + k / 8]))
            });
            assert_eq!(got.0, "addressing:b.aligned", "{}", got.1);
            assert!(got.1.contains("vectors of 8 bytes") && got.1.contains(words), "{}", got.1);
        }
    }
}
