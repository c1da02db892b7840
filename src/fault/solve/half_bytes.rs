//! Codes of eight bits that a kernel takes for pairs of four: it reads each byte as two numbers, and a row of half as many bytes, or of as many.
//!
//! ```text
//! X(i, k) = table[nibble k mod 2 of byte i·S + k / 2] · scale(i, k)          S = K / 2: rows of half the length; S = K: the first half of every row
//! ```

use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

const READ_AS: [(Format, f64); 3] = [(Format::E2m1, 0.0), (Format::Int4, 0.5), (Format::Uint4, 1.0)];

/// Of one operand; scales and zero points are those of the place that is read for.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let Some(q) = g.q.as_ref().filter(|q| q.format().bits() == 8 && !s.alone && g.k.is_multiple_of(2)) else {
        return Vec::new();
    };
    let k_all = g.k;
    let experts = s.experts(side);
    let per = g.rows / experts;
    let given = g.clone();
    let mut all = Vec::new();
    for ((format, bits), low_first) in READ_AS.into_iter().flat_map(|f| [(f, true), (f, false)]) {
        let table: Arc<Vec<f64>> = Arc::new((0..16).map(|c| format.decode(c)).collect());
        let mut strides = vec![(k_all / 2, g.rows, "rows of half as many bytes".to_string(), 0.0)];
        if experts > 1 {
            strides.push((k_all / 2, per, "rows of half as many bytes in each expert".into(), 1.0));
        }
        strides.push((k_all, g.rows, "the first half of each row".into(), 1.0));
        for (stride, rows, whose, more) in strides {
            let order = if low_first { "the low one first" } else { "the high one first" };
            let words =
                format!("bytes of {name} ({}) are read as two codes of {format} each, {order}, from {whose}", q.format());
            let more = bits + more + f64::from(u8::from(!low_first));
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.half_bytes"), words).bits(4.0 + more);
            let (g, table) = (given.clone(), table.clone());
            t.side(side).value = Some(Arc::new(move |i, k| {
                let at = i / rows * rows * k_all + i % rows * stride + k / 2;
                let byte = g.q.as_ref().map_or(0, |q| q.codes()[at]);
                let code = if (k % 2 == 0) == low_first { byte & 15 } else { byte >> 4 };
                g.worth(table[usize::from(code)], i / g.tile.0 * g.grid.1 + k / g.tile.1)
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
    fn bytes_that_are_read_as_two_codes_are_told() {
        const K: usize = 96;
        let (a, b) = (wide(M, K), codes(Format::E4m3, N, K, 32, false, 81));
        let x = a.to_f64();
        let with = |code: &dyn Fn(usize, usize) -> f64| {
            found(&a, &b, None, Format::Bf16, |i, j, _| {
                sum(K, |k| x[[i, k]] * code(j, k) * f64::from(b.scale_inv()[j * 3 + k / 32]))
            })
        };
        let byte = |at: usize| u32::from(b.codes()[at]);
        let got = with(&|j, k| Format::E2m1.decode(byte(j * K / 2 + k / 2) >> (4 * (k % 2)) & 15));
        assert_eq!(got.0, "bits_reinterpreted:b.half_bytes", "{}", got.1);
        let words = "bytes of b (e4m3) are read as two codes of e2m1 each, the low one first, from rows of half as many bytes";
        assert!(got.1.contains(words), "{}", got.1);
        let got = with(&|j, k| Format::Int4.decode(byte(j * K + k / 2) >> (4 - 4 * (k % 2)) & 15));
        assert!(
            got.1.contains("codes of int4 each, the high one first, from the first half of each row"),
            "{} {}",
            got.0,
            got.1
        );
        // Nibbles of other bytes are none of these.
        let got = with(&|j, k| Format::E2m1.decode(byte(j * K + (k * 5 + 3) % K) & 15));
        assert!(!got.0.contains("half_bytes"), "{} {}", got.0, got.1);
    }
}
