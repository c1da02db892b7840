//! Kernels that read an index of groups (act-order) at another place than the column's: told by a result that is right by that index.

use super::operand::{BundleOperand, Codes};
use super::order::as_stored;
use super::{Bundle, assay};
use crate::compare::Verdict;
use crate::fault::{Class, Finding};
use crate::job::Data;
use crate::{Granularity, QTensor, Zero};

/// Columns that one read of the index may serve.
const SERVED: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Columns whose index may serve as many behind them.
const HALVES: [usize; 5] = [1, 2, 4, 8, 16];
/// Multiply-adds that all ways may take together.
const WORK: usize = 1 << 31;

/// What each column of `b` takes instead of its own group: words, and the group of column k by the index.
type Way = (String, Box<dyn Fn(usize, &[usize]) -> usize>);

fn ways(groups: usize) -> Vec<Way> {
    let mut all: Vec<Way> = Vec::new();
    for n in SERVED {
        let words =
            format!("the index of groups is read once for {n} columns: column k of b takes the group of column (k / {n})·{n}");
        all.push((words, Box::new(move |k, of| of[k / n * n])));
    }
    for half in HALVES {
        let words = format!(
            "the index of groups is read for the first {half} of {n} columns alone: column k of b takes the group of column k − {half} where k mod {n} ≥ {half}",
            n = 2 * half
        );
        all.push((words, Box::new(move |k, of| of[if k / half % 2 == 1 { k - half } else { k }])));
    }
    for (d, sign) in [(1isize, "+ 1"), (-1, "− 1")] {
        let words =
            format!("the index of groups is read at the wrong column: column k of b takes the group of column k {sign}");
        all.push((words, Box::new(move |k, of| of[k.saturating_add_signed(d).min(of.len() - 1)])));
        let words = format!("column k of b takes group g {sign}, where g is its group by the index");
        all.push((words, Box::new(move |k, of| of[k].saturating_add_signed(d).min(groups - 1))));
    }
    let words = "the index of groups is read as numbers of twice their size: column k of b takes the group of column 2·k";
    all.push((words.into(), Box::new(|k, of| of[2 * k % of.len()])));
    all
}

/// The index that the kernel read, where the result is right by it.
pub fn explain(bundle: &Bundle) -> Option<Finding> {
    let order = bundle.order.as_ref()?;
    let q = bundle.b.whole()?;
    let Granularity::Group(size) = q.granularity() else { return None };
    let mut index = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, column)| index[*column] = at / size);
    let (a, b) = (as_stored(&bundle.a, order)?, as_stored(&bundle.b, order)?);
    let stored = b.whole()?;
    let all = ways(order.len().div_ceil(size));
    let Data::High(out) = &bundle.out.d else { return None };
    let rows = out.rows();
    // What else may be wrong, and what is wrong with nothing else has its own words already.
    let not_read: Way = (
        "the index of groups is not read: column k of b takes the scale of group k / G".into(),
        Box::new(move |k, _| k / size),
    );
    let work = |ways: usize| rows * q.codes().len() * ways;
    let has_pairs = matches!(stored.zero(), Zero::Integer(_)) && work(3 * all.len() + 2) <= WORK;
    let pairs =
        [1, -1].into_iter().filter(|_| has_pairs).flat_map(|by| std::iter::once(&not_read).chain(&all).map(move |w| (w, by)));
    let tries: Vec<(&Way, i32)> = all.iter().map(|w| (w, 0)).chain(pairs).collect();
    (q.level().is_none() && work(all.len()) <= WORK).then_some(())?;
    tries.into_iter().find_map(|((words, of), by)| {
        let codes = by_column(stored, |k| of(k, &index), by)?;
        let other = Bundle {
            a: a.clone(),
            b: BundleOperand { codes: Some(Codes::Whole(codes)), ..b.clone() },
            order: None,
            ..bundle.clone()
        };
        let passes = assay::verdict_alone(&other).is_ok_and(|v| v == Verdict::Pass);
        let size = if by > 0 { "large" } else { "small" };
        passes.then(|| match by {
            0 => Finding::solved(Class::ScaleIndex, "b.g_idx", words.clone()),
            _ => Finding::solved(
                Class::ScaleIndex,
                &format!("b.g_idx + {}:b.offset", Class::ZpOffset.name()),
                format!("{words}; and zero points of b are read one too {size}"),
            ),
        })
    })
}

/// The same codes with a scale and a zero point for each column: those of the group that it is of, integer zero points `by` more.
fn by_column(q: &QTensor, group: impl Fn(usize) -> usize, by: i32) -> Option<QTensor> {
    let (rows, cols) = (q.rows(), q.cols());
    let groups = q.scale_inv().len() / rows.max(1);
    let places: Vec<usize> =
        (0..rows).flat_map(|r| (0..cols).map(move |k| (r, k))).map(|(r, k)| r * groups + group(k)).collect();
    let mut parts = q.clone().into_parts();
    parts.granularity = Granularity::Group(1);
    parts.scale_inv = places.iter().map(|p| q.scale_inv()[*p]).collect();
    parts.zero = match q.zero() {
        Zero::None => Zero::None,
        Zero::Integer(z) => Zero::Integer(places.iter().map(|p| z[*p] + by).collect()),
        Zero::Additive { zero, mid } => Zero::Additive { zero: places.iter().map(|p| zero[*p]).collect(), mid: *mid },
    };
    QTensor::new(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::quant::QTensorParts;

    /// Of 20 columns in five groups; columns 18 and 19 are in group 4, the last.
    #[test]
    fn the_group_of_a_column_by_every_wrong_index() {
        let index: Vec<usize> = (0..20).map(|k| if k < 18 { k * 7 % 5 } else { 4 }).collect();
        let all = ways(5);
        let of = |words: &str| {
            let (_, of) = all.iter().find(|(w, _)| w.contains(words)).unwrap_or_else(|| panic!("{words}"));
            (0..20).map(|k| of(k, &index)).collect::<Vec<usize>>()
        };
        let from = |column: &dyn Fn(usize) -> usize| (0..20).map(|k| index[column(k)]).collect::<Vec<usize>>();
        for n in [2, 4, 8, 16, 32, 64, 128] {
            assert_eq!(
                of(&format!("read once for {n} columns: column k of b takes the group of column (k / {n})·{n}")),
                from(&|k| k - k % n)
            );
        }
        assert_eq!(of("column k of b takes the group of column k + 1"), from(&|k| (k + 1).min(19)));
        assert_eq!(of("at the wrong column: column k of b takes the group of column k − 1"), from(&|k| k.max(1) - 1));
        assert_eq!(of("takes group g + 1,"), index.iter().map(|g| (g + 1).min(4)).collect::<Vec<_>>());
        assert_eq!(of("takes group g − 1,"), index.iter().map(|g| g.max(&1) - 1).collect::<Vec<_>>());
        assert_eq!(of("column k of b takes the group of column 2·k"), from(&|k| (2 * k) % 20));
        for half in [1, 2, 4, 8, 16] {
            let words = format!("for the first {half} of {} columns alone", 2 * half);
            assert_eq!(of(&words), from(&|k| if k % (2 * half) >= half { k - half } else { k }));
        }
        assert_eq!(all.len(), 17);
    }

    #[test]
    fn every_column_gets_the_scale_and_the_zero_point_of_its_group() {
        let of = |zero: Zero| {
            let parts = QTensorParts {
                format: Format::Uint4,
                rows: 2,
                cols: 6,
                codes: (0..12).collect(),
                granularity: Granularity::Group(2),
                scale_format: Format::F32,
                scale_inv: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
                zero,
                level: None,
            };
            by_column(&QTensor::new(parts).unwrap(), |k| [2, 0, 1, 1, 0, 2][k], 1).unwrap()
        };
        let plain = of(Zero::None);
        assert_eq!(
            (plain.granularity(), plain.zero(), plain.codes()),
            (Granularity::Group(1), &Zero::None, &(0..12).collect::<Vec<u8>>()[..])
        );
        assert_eq!(plain.scale_inv(), [3.0, 1.0, 2.0, 2.0, 1.0, 3.0, 6.0, 4.0, 5.0, 5.0, 4.0, 6.0]);
        let whole = of(Zero::Integer(vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(*whole.zero(), Zero::Integer(vec![4, 2, 3, 3, 2, 4, 7, 5, 6, 6, 5, 7]));
        let real = of(Zero::Additive { zero: vec![0.5, 1.5, 2.5, 3.5, 4.5, 5.5], mid: 8 });
        let zero = vec![2.5, 0.5, 1.5, 1.5, 0.5, 2.5, 5.5, 3.5, 4.5, 4.5, 3.5, 5.5];
        assert_eq!(*real.zero(), Zero::Additive { zero, mid: 8 });
    }
}
