//! Gradients of weights whose last group sums on behind its end, over tokens of the buffer that no group owns: told by a result that is right for them.

use super::file::File;
use super::metadata::Meta;
use super::operand::{self, BundleOperand, Layout};
use super::{Bundle, assay};
use crate::compare::Verdict;
use crate::fault::{Class, Finding};
use crate::op::Op;

/// Tiles of tokens that an end may be rounded up to.
const TILES: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
/// Codes of both operands that are held for each end.
const MOST: usize = 1 << 26;

/// Both operands with another end of the last group.
#[derive(Clone, Debug)]
pub struct Behind {
    end: usize,
    a: BundleOperand,
    b: BundleOperand,
}

/// The ends that a kernel may have taken for the last: that of the buffer, and those of whole tiles. None where all tokens are some group's, or where
/// operands have no codes: then all of K is there to be solved.
pub fn read(file: &File, meta: &Meta, offs: &[usize]) -> Vec<Behind> {
    let Some(last) = offs.last().copied().filter(|_| meta.op == Op::GroupedGemmWgrad) else { return Vec::new() };
    let long = |name: &str| file.get(name).and_then(|raw| raw.shape.last().copied());
    let Some(k) = long("a.codes").filter(|k| *k > last) else { return Vec::new() };
    let mut ends: Vec<usize> = std::iter::once(k).chain(TILES.map(|t| last.next_multiple_of(t))).collect();
    ends.retain(|end| *end > last && *end <= k);
    ends.sort_unstable();
    ends.dedup();
    let size = |name: &str| file.get(name).map_or(0, |raw| raw.shape.iter().product::<usize>());
    if (size("a.codes") + size("b.codes")) * ends.len() > MOST {
        return Vec::new();
    }
    let one = |end: usize| {
        let mut offs = offs.to_vec();
        *offs.last_mut()? = end;
        let of = |x: &str, spec| operand::side(file, x, spec, Layout::Columns(&offs)).ok().flatten();
        Some(Behind { end, a: of("a", &meta.a)?, b: of("b", &meta.b)? })
    };
    ends.into_iter().filter_map(one).collect()
}

/// The end that makes the result.
pub fn explain(bundle: &Bundle) -> Option<Finding> {
    let offs = bundle.offs.as_ref()?;
    let (last, e) = (*offs.last()?, offs.len() - 1);
    let start = e.checked_sub(1).map_or(0, |e| offs[e]);
    bundle.behind.iter().find_map(|x| {
        let mut offs = offs.clone();
        *offs.last_mut()? = x.end;
        let other = Bundle { a: x.a.clone(), b: x.b.clone(), offs: Some(offs), ..bundle.clone() };
        assay::verdict_alone(&other).is_ok_and(|v| v == Verdict::Pass).then_some(())?;
        let words = format!(
            "group {e} sums tokens {start} … {} instead of {start} … {last} (ends exclusive): those behind the last group, which are no one's, as well",
            x.end
        );
        Some(Finding::solved(Class::GroupBoundary, "b.tokens_of_groups", words))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::super::named_tests::{found, is_named};
    use crate::Format;
    use crate::compare::Verdict;
    use safetensors::Dtype;

    #[test]
    fn tokens_behind_the_last_group_that_are_summed_are_named() {
        let (m, n, k, offs) = (12, 16, 96, [30i32, 50]);
        let code = |seed: usize, at: usize| ((at * 37 + seed * 11 + at * at % 23) % 120 + 128 * (at * 7 % 3 % 2)) as u8;
        let value = |c: u8| Format::E4m3.decode(u32::from(c));
        let (a, b): (Vec<u8>, Vec<u8>) =
            ((0..m * k).map(|at| code(1, at)).collect(), (0..n * k).map(|at| code(5, at)).collect());
        let scales = [[0.01f32, 0.02], [0.03, 0.015]];
        let with = |end: usize| {
            let mut w = Writer::new("grouped_gemm_wgrad");
            w.raw("a.codes", Dtype::F8_E4M3, &[m, k], a.clone()).raw("b.codes", Dtype::F8_E4M3, &[n, k], b.clone());
            w.f32s("a.scale_inv", &[2, 1], &scales[0]).f32s("b.scale_inv", &[2, 1], &scales[1]).i32s("offs", &[2], &offs);
            let one = |at: usize| {
                let (e, i, j) = (at / (m * n), at / n % m, at % n);
                let ks = if e == 0 { 0..30 } else { 30..end };
                let sum: f64 = ks.map(|t| value(a[i * k + t]) * value(b[j * k + t])).sum();
                (sum * f64::from(scales[0][e]) * f64::from(scales[1][e])) as f32
            };
            let out: Vec<f32> = (0..2 * m * n).map(one).collect();
            w.f32s("out", &[2, m, n], &out);
            w
        };
        assert_eq!(found(&with(50)).0, Verdict::Pass);
        for end in [96, 64] {
            is_named(
                &with(end),
                "group_boundary:b.tokens_of_groups",
                &[&format!("group 1 sums tokens 30 … {end} instead of 30 … 50")],
            );
        }
    }
}
