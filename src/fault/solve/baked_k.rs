//! A kernel that has another, smaller K built in: it walks so many of K and steps its rows by as many, so that it reads the codes of other rows.
//!
//! ```text
//! out[i, j] = Σ_{k < K'} a[i, k] · b'[j, k]          b'(j, k) = memory of b at j·K' + k, scales at j·(K'/g) + k / g; the same of a, or of both
//! ```

use super::given::Given;
use super::maps::cost;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// What a built-in K is a multiple of, and that of long ones.
const UNIT: usize = 16;
const LONG: usize = 128;

/// Every smaller K; the lines that such a kernel makes are the wrong region's.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.k <= UNIT || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let given = [&s.a, &s.b].map(|g| g.clone());
    let mut all = Vec::new();
    for baked in (UNIT..s.k).step_by(UNIT).filter(|k| *k < 32 * LONG || k.is_multiple_of(LONG)) {
        for sides in [&[Which::B][..], &[Which::A, Which::B], &[Which::A]] {
            // A single row is where it should be.
            if sides.iter().any(|side| s.given(*side).rows < 2) {
                continue;
            }
            let read: Option<Vec<At>> = sides.iter().map(|side| read(&given, s.experts(*side), *side, baked)).collect();
            let Some(read) = read else { continue };
            let names: Vec<&str> = sides.iter().map(|side| side.name()).collect();
            let words = format!(
                "K is taken for {baked}, not {}: so many are summed, and rows of {} are read {baked} apart, their groups of scales as well",
                s.k,
                names.join(" and of ")
            );
            let name = if sides.len() == 2 { "out" } else { names[0] };
            let mut t = Theory::new(Class::Addressing, name, format!("{}.baked_k", names.join("")), words)
                .bits(5.0 + cost(baked) + if sides[0] == Which::A { 1.0 } else { 0.0 });
            for (side, at) in sides.iter().zip(read) {
                t.side(*side).value = Some(at);
            }
            all.push(t);
        }
    }
    all
}

/// What one operand is at rows of another length; of groups along K these lie behind each other too. `None`: its groups are no part of that length.
fn read(given: &[Arc<Given>; 2], experts: usize, side: Which, baked: usize) -> Option<At> {
    let g = given[usize::from(side == Which::B)].clone();
    let (per, k_all, (tall, group), cols) = (g.rows / experts, g.k, g.tile, g.grid.1);
    let grouped = g.q.is_some() && cols > 1;
    (!grouped || baked.is_multiple_of(group)).then_some(())?;
    // Blocks of several rows as well.
    let own = if grouped { baked / group } else { 1 };
    Some(Arc::new(move |i, k| {
        // What is not summed.
        if k >= baked {
            return 0.0;
        }
        let (first, r) = (i / per * per, i % per);
        let at = first * k_all + r * baked + k;
        match &g.q {
            None => g.values[at],
            Some(q) => {
                let cell = first / tall * cols + r / tall * own + if grouped { k / group } else { 0 };
                g.decoded(q.codes()[at], cell)
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{N, codes, found, sum, wide};

    #[test]
    fn a_row_of_a_kernel_with_another_k_is_told() {
        const K: usize = 240;
        let (m, a, b) = (17, wide(17, K), codes(Format::Int8, N, K, 16, false, 61));
        let x = a.to_f64();
        let with = |k_end: usize, stride: usize| {
            found(&a, &b, None, Format::Bf16, |i, j, right| {
                if i + 1 < m {
                    return right[i * N + j];
                }
                sum(k_end, |k| {
                    let code = f64::from(b.codes()[j * stride + k] as i8);
                    x[[i, k]] * code * f64::from(b.scale_inv()[j * (stride / 16) + k / 16])
                })
            })
        };
        let got = with(160, 160);
        assert_eq!(got.0, "addressing:b.baked_k", "{}", got.1);
        assert!(got.1.contains("K is taken for 160, not 240") && got.1.ends_with("in rows 16"), "{}", got.1);
        // Fewer of K at the right stride is another matter.
        let got = with(160, K);
        assert!(!got.0.contains("baked_k"), "{} {}", got.0, got.1);
    }
}
