//! Kernels that read an index of groups (act-order) at another place than the column's: told by a result that is right by that index.

use super::operand::{BundleOperand, Codes};
use super::order::as_stored;
use super::{Bundle, assay};
use crate::compare::Verdict;
use crate::fault::{Class, Finding};
use crate::job::Data;
use crate::{Granularity, QTensor, Zero};

/// Columns that one read of the index may serve.
const SERVED: [usize; 6] = [2, 8, 16, 32, 64, 128];
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
    (q.level().is_none() && rows * q.codes().len() * all.len() <= WORK).then_some(())?;
    all.into_iter().find_map(|(words, of)| {
        let codes = by_column(stored, |k| of(k, &index))?;
        let other = Bundle {
            a: a.clone(),
            b: BundleOperand { codes: Some(Codes::Whole(codes)), ..b.clone() },
            order: None,
            ..bundle.clone()
        };
        let passes = assay::verdict_alone(&other).is_ok_and(|v| v == Verdict::Pass);
        passes.then(|| Finding::solved(Class::ScaleIndex, "b.g_idx", words))
    })
}

/// The same codes with a scale and a zero point for each column: those of the group that it is of.
fn by_column(q: &QTensor, group: impl Fn(usize) -> usize) -> Option<QTensor> {
    let (rows, cols) = (q.rows(), q.cols());
    let groups = q.scale_inv().len() / rows.max(1);
    let places: Vec<usize> =
        (0..rows).flat_map(|r| (0..cols).map(move |k| (r, k))).map(|(r, k)| r * groups + group(k)).collect();
    let mut parts = q.clone().into_parts();
    parts.granularity = Granularity::Group(1);
    parts.scale_inv = places.iter().map(|p| q.scale_inv()[*p]).collect();
    parts.zero = match q.zero() {
        Zero::None => Zero::None,
        Zero::Integer(z) => Zero::Integer(places.iter().map(|p| z[*p]).collect()),
        Zero::Additive { zero, mid } => Zero::Additive { zero: places.iter().map(|p| zero[*p]).collect(), mid: *mid },
    };
    QTensor::new(parts).ok()
}
