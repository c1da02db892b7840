//! Experts of a grouped product whose weights begin elsewhere than where they lie: the pointer of an expert steps by another number of elements than
//! an expert has, because its K, its rows or the tensor it is a slice of is counted otherwise.
//!
//! ```text
//! read(e, n, k)  =  flat[e·S + n·K + k]          S instead of N·K: N·⌈K⌉, ⌈N⌉·K, a multiple of it; 0 behind the end
//! ```

use super::maps::cost;
use super::system::{System, Theory, To};
use crate::fault::Class;
use crate::order::Order as _;
use std::sync::Arc;

/// What K or N may be padded to, and by.
const UNITS: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
const MORE: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];

/// Of b alone: only it has experts.
pub fn theories(s: &System) -> Vec<Theory> {
    let (g, experts) = (&s.b, s.parts.len());
    let grouped = experts > 1 && s.parts.iter().all(|p| p.k.len() == s.k) && g.rows.is_multiple_of(experts);
    if !grouped || s.alone {
        return Vec::new();
    }
    let (per, k_all) = (g.rows / experts, g.k);
    let own = per * k_all;
    let mut strides: Vec<(usize, String, f64)> = Vec::new();
    let longs = |n: usize| UNITS.map(|u| n.next_multiple_of(u)).into_iter().chain(MORE.map(|m| n + m));
    for long in longs(k_all) {
        strides.push((per * long, format!("N × {long}, K = {k_all} padded"), 1.0 + cost(long - k_all)));
    }
    for tall in longs(per) {
        strides.push((tall * k_all, format!("{tall} × K, N = {per} padded"), 1.0 + cost(tall - per)));
    }
    for (by, words) in [(2, "twice"), (4, "four times"), (8, "eight times")] {
        strides.push((by * own, format!("{words} N × K"), 1.0 + cost(by)));
        if own.is_multiple_of(by) {
            strides.push((own / by, format!("N × K / {by}"), 1.0 + cost(by)));
        }
    }
    strides.retain(|x| x.0 != own);
    // Of equal ones the shortest to say.
    strides.order_by(|a, b| a.0.cmp(&b.0).then(a.2.total_cmp(&b.2)));
    strides.dedup_by_key(|x| x.0);
    let n = g.rows * k_all;
    let mut all = Vec::new();
    for (stride, words, bits) in strides {
        let read = move |i: usize, k: usize| Some(i / per * stride + i % per * k_all + k).filter(|at| *at < n);
        // Stored at this stride, read without; what is between is 0.
        let stored = move |i: usize, k: usize| {
            let at = i * k_all + k;
            (at % stride < own).then_some(at / stride * own + at % stride).filter(|at| *at < n)
        };
        let ways: [(bool, To); 2] = [(true, Arc::new(read)), (false, Arc::new(stored))];
        for (is_read, from) in ways {
            // Rows that are padded themselves are stored so: another stride of rows.
            if !is_read && (stride < own || stride.is_multiple_of(per) && !stride.is_multiple_of(k_all)) {
                continue;
            }
            let what = if g.q.is_some() { "codes" } else { "values" };
            let how = match is_read {
                true => format!("are read with experts {stride} elements apart ({words}) instead of {own}, 0 behind the end"),
                false => {
                    format!("lie with experts {stride} elements apart ({words}) and are read as if {own} apart, 0 between them")
                }
            };
            let mut t = Theory::new(Class::Addressing, "b", "b.expert_stride", format!("{what} of b {how}")).bits(6.0 + bits);
            t.b.code = Some(from.clone());
            all.push(t);
            if g.q.is_none() || g.grid == (1, 1) {
                continue;
            }
            // Scales and zero points begin with the codes.
            let words = format!("codes of b, with their scales, {how}");
            let mut t = Theory::new(Class::Addressing, "b", "b.expert_stride", words).bits(6.5 + bits);
            let values = g.values.clone();
            t.b.value = Some(Arc::new(move |i, k| from(i, k).map_or(0.0, |at| values[at])));
            all.push(t);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{codes, grouped_found, sum, wide};

    #[test]
    fn experts_that_begin_elsewhere_are_told() {
        const K: usize = 80;
        let (n, ends) = (24, [10, 22, 40]);
        let (a, b) = (wide(40, K), codes(Format::Int8, 3 * n, K, K, false, 17));
        let x = a.to_f64();
        let with = |stride: usize, scaled: bool| {
            grouped_found(&a, &b, &ends, Format::F32, |i, j| {
                let e = ends.iter().filter(|end| **end <= i).count();
                sum(K, |k| {
                    let at = e * stride + j * K + k;
                    let row = if scaled { at / K } else { e * n + j };
                    if at < 3 * n * K {
                        x[[i, k]] * f64::from(b.codes()[at] as i8) * f64::from(b.scale_inv()[row])
                    } else {
                        0.0
                    }
                })
            })
        };
        let got = with(n * 96, false);
        assert_eq!(got.0, "addressing:b.expert_stride", "{}", got.1);
        assert!(got.1.contains("2304 elements apart (N × 96, K = 80 padded) instead of 1920"), "{}", got.1);
        let got = with(32 * K, true);
        assert!(
            got.1.contains("with their scales, are read with experts 2560 elements apart (32 × K, N = 24 padded)"),
            "{}",
            got.1
        );
    }
}
