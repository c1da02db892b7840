//! Operands that are stored in another order or with a number for each row: columns of K in groups by an index (act-order), router
//! weights; codes that are values before anything is computed.

use super::operand::{BundleOperand, Codes};
use super::{Bundle, File};
use crate::compare::Verdict;
use crate::fault::{Class, Finding};
use crate::quant::Level;
use crate::{Error, Format, Granularity, QTensor, Result, Tensor, Zero};
use safetensors::Dtype;

/// Name of the index, and of the weights of rows.
pub const G_IDX: &str = "b.g_idx";
pub const ROW_WEIGHTS: &str = "row_weights";

/// Both operands with the columns of K in the order of their groups, where `b.g_idx` says which group each column of `b` is of: the sums
/// are the same, and every group's columns are neighbours. With that order. Errors: an index that is not that of whole groups; scales of `a` along K.
pub fn in_groups(
    file: &File,
    a: BundleOperand,
    b: BundleOperand,
) -> Result<(BundleOperand, BundleOperand, Option<Vec<usize>>)> {
    let k = b.shape().map_or(0, |s| s.1);
    let Some(raw) = file.shaped(G_IDX, &[k], "the group of each column of b")? else { return Ok((a, b, None)) };
    let index = file.integers(G_IDX, raw, &[Dtype::I32])?;
    let bad = |found: String, expected: String| file.bad_tensor(G_IDX, found, expected);
    let Some(Granularity::Group(g)) = b.whole().map(QTensor::granularity) else {
        return Err(bad("a bundle whose `b` has no groups".into(), "`b.codes` with `b.granularity` = group:G".into()));
    };
    if a.any().is_some_and(|q| !matches!(q.granularity(), Granularity::Tensor | Granularity::Row)) {
        return Err(bad("a bundle whose `a` has scales along K".into(), "values in `a`, or codes with one scale a row".into()));
    }
    let groups = k.div_ceil(g);
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); groups];
    for (j, group) in index.iter().enumerate() {
        let own = usize::try_from(*group).ok().and_then(|e| columns.get_mut(e));
        own.ok_or_else(|| bad(format!("group {group} of column {j}"), format!("0 to {}", groups - 1)))?.push(j);
    }
    for (e, own) in columns.iter().enumerate() {
        let want = g.min(k - e * g);
        if own.len() != want {
            return Err(bad(format!("{} columns in group {e}", own.len()), format!("{want}: groups of {g} of {k} columns")));
        }
    }
    let order = columns.concat();
    Ok((ordered(a, &order)?, ordered(b, &order)?, Some(order)))
}

/// What a kernel makes of an index of groups that it reads wrong, where the result is right by that.
pub fn explain(bundle: &Bundle) -> Option<Finding> {
    let order = bundle.order.as_ref()?;
    let as_stored = |side: &BundleOperand| as_stored(side, order);
    let ways = [
        (
            true,
            true,
            Class::ScaleIndex,
            "the index of groups is not read: column k of b takes the scale of group k / G, in the stored order",
        ),
        (
            true,
            false,
            Class::Addressing,
            "columns of b are taken in the order of their groups, and those of a in the stored order",
        ),
        (
            false,
            true,
            Class::Addressing,
            "columns of a are taken in the order of their groups, and those of b in the stored order",
        ),
    ];
    ways.into_iter()
        .find_map(|(a, b, class, words)| {
            let (a, b) = (
                if a { as_stored(&bundle.a)? } else { bundle.a.clone() },
                if b { as_stored(&bundle.b)? } else { bundle.b.clone() },
            );
            let other = Bundle { a, b, order: None, ..bundle.clone() };
            let passes = super::assay::verdict_alone(&other).is_ok_and(|v| v == Verdict::Pass);
            passes.then(|| Finding::solved(class, "b.g_idx", words.into()))
        })
        .or_else(|| turned(bundle, order))
}

/// Columns of one operand that are gathered by another order than that of the groups, the other's being right: the inverse of it, or the order twice.
fn turned(bundle: &Bundle, order: &[usize]) -> Option<Finding> {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, j)| inverse[*j] = at);
    // Column p of what was stored is column inverse[p] of what is in order.
    let back: Vec<usize> = inverse.iter().map(|j| inverse[*j]).collect();
    let ways = [(&back[..], "the inverse of the order of their groups"), (order, "the order of their groups, applied twice")];
    ways.into_iter().flat_map(|way| [(true, way), (false, way)]).find_map(|(of_a, (columns, how))| {
        let turn = |side: &BundleOperand, this: bool| {
            if this { ordered(side.clone(), columns).ok() } else { Some(side.clone()) }
        };
        let other = Bundle { a: turn(&bundle.a, of_a)?, b: turn(&bundle.b, !of_a)?, order: None, ..bundle.clone() };
        let passes = super::assay::verdict_alone(&other).is_ok_and(|v| v == Verdict::Pass);
        let (name, rest) = if of_a { ("a", "b") } else { ("b", "a") };
        let words = format!("columns of {name} are gathered by {how}, those of {rest} by the order itself");
        passes.then(|| Finding::solved(Class::Addressing, "b.g_idx", words))
    })
}

/// An operand with its columns in the order in which they were stored.
pub(super) fn as_stored(side: &BundleOperand, order: &[usize]) -> Option<BundleOperand> {
    let mut stored = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, j)| stored[*j] = at);
    ordered(side.clone(), &stored).ok()
}

fn ordered(side: BundleOperand, order: &[usize]) -> Result<BundleOperand> {
    fn turn<T: Copy>(v: &[T], order: &[usize]) -> Vec<T> {
        v.chunks(order.len().max(1)).flat_map(|row| order.iter().map(|j| row[*j])).collect()
    }
    let high = side.high.as_ref().map(|t| Tensor::new(t.dtype(), t.rows(), t.cols(), turn(t.data(), order))).transpose()?;
    let codes = match side.codes.clone() {
        Some(Codes::Whole(q)) => {
            let mut parts = q.into_parts();
            parts.codes = turn(&parts.codes, order);
            Some(Codes::Whole(QTensor::new(parts)?))
        }
        other => other,
    };
    Ok(BundleOperand { high, codes, ..side })
}

/// Codes that an activation or a norm reads, as the f32 values that it computes with. Errors: values beside them.
pub fn dequantized(file: &File, a: BundleOperand) -> Result<BundleOperand> {
    let Some(q) = a.whole() else { return Ok(a) };
    if a.high.is_some() {
        return Err(file.bad("tensors `a` and `a.codes`".into(), "one of them, with what the kernel read".to_string()));
    }
    let values = q.dequantize_f32().into_raw_vec_and_offset().0;
    let high = Some(Tensor::new(Format::F32, q.rows(), q.cols(), values)?);
    let dequantized_by = if let [scale] = q.scale_inv() { Some(*scale) } else { None };
    Ok(BundleOperand { high, codes: None, dequantized_by, ..a })
}

/// Rows of `a` whose sums are multiplied by a number each last, the weight that a router gave them. For codes it is a second level of scales, or
/// multiplies the one that there is. Errors: zero points; weights that are not finite.
pub fn weighted(file: &File, a: BundleOperand) -> Result<BundleOperand> {
    let rows = a.shape().map_or(0, |s| s.0);
    let Some(raw) = file.shaped(ROW_WEIGHTS, &[rows], "one a row of a")? else { return Ok(a) };
    let (_, weights) = file.values(ROW_WEIGHTS, raw)?;
    if let Some(i) = weights.iter().position(|w| !w.is_finite()) {
        return Err(file.bad_tensor(ROW_WEIGHTS, format!("{} at {i}", weights[i]), "finite numbers"));
    }
    let bad = |found: &'static str| {
        file.bad_tensor(
            ROW_WEIGHTS,
            found,
            "values in `a`, or codes without zero points whose second level is one number a row",
        )
    };
    let (mut parts, over) = match a.codes {
        None => return Ok(BundleOperand { weights: Some(weights), ..a }),
        Some(Codes::Whole(q)) if *q.zero() == Zero::None => {
            let over: Vec<Option<f32>> = (0..rows).map(|i| q.over_row(i)).collect();
            if q.level().is_some() && over.contains(&None) {
                return Err(bad("weights of rows beside a second level that changes within them"));
            }
            (q.into_parts(), over)
        }
        Some(_) => return Err(bad("weights of rows beside zero points")),
    };
    let scale_inv = weights.iter().zip(over).map(|(w, over)| w * over.unwrap_or(1.0)).collect();
    if parts.granularity == Granularity::Tensor {
        (parts.granularity, parts.scale_inv) = (Granularity::Row, vec![parts.scale_inv[0]; rows]);
    }
    let (grid_rows, cols) = parts.granularity.grid(parts.rows, parts.cols);
    if grid_rows != rows {
        return Err(bad("weights of rows beside scales that span rows"));
    }
    let granularity = Granularity::Block { rows: 1, cols };
    parts.level = Some(Level { granularity, format: Format::F32, scale_inv, zero: None });
    let q = QTensor::new(parts).map_err(|e| match e {
        Error::Value { found, expected, .. } => file.bad_tensor(ROW_WEIGHTS, found, expected),
        e => e,
    })?;
    Ok(BundleOperand { codes: Some(Codes::Whole(q)), weights: Some(weights), ..a })
}
