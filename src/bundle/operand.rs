//! An operand, or a quantized result, of a bundle: codes with their scales and zero points, the unquantized values, earlier scales.

use super::File;
use super::file::Raw;
use super::metadata::Spec;
use crate::op::grouped::check_offs;
use crate::quant::{Level, QTensorParts, ZeroKind};
use crate::{Format, Granularity, QTensor, Result, Tensor, Zero};
use safetensors::Dtype;

/// How the elements of an operand lie in its tensors.
#[derive(Clone, Copy, Debug)]
pub enum Layout<'a> {
    /// `[rows, K]`.
    Plain,
    /// `[E, N, K]` with a leading `E` axis on the scales: `b` of a grouped product.
    Experts(usize),
    /// `[tokens, K]` whose rows `offs` cuts into groups: `a` of a grouped product. A second level may have a number for each.
    Tokens(&'a [usize]),
    /// `[rows, tokens]` whose groups of columns are quantized by themselves, with a leading `E` axis on the scales: both operands of
    /// grouped_gemm_wgrad.
    Columns(&'a [usize]),
}

/// Quantized values.
#[derive(Clone, Debug, PartialEq)]
pub enum Codes {
    Whole(QTensor),
    /// The columns of each group.
    Groups(Vec<QTensor>),
}

/// Operand `a` or `b`.
#[derive(Clone, Debug, Default)]
pub struct BundleOperand {
    /// Unquantized; `E·N × K` with experts.
    pub high: Option<Tensor>,
    pub codes: Option<Codes>,
    /// Earlier values of scale_inv, newest first.
    pub history: Vec<f32>,
    /// What values were dequantized by that stand for codes, where it is one number.
    pub dequantized_by: Option<f32>,
    /// What the sums of each row are multiplied by last; of codes it is in their second level too.
    pub weights: Option<Vec<f32>>,
}

impl BundleOperand {
    /// Rows (of all experts) and columns.
    pub fn shape(&self) -> Option<(usize, usize)> {
        match (&self.high, &self.codes) {
            (Some(t), _) => Some((t.rows(), t.cols())),
            (None, Some(Codes::Whole(q))) => Some((q.rows(), q.cols())),
            (None, Some(Codes::Groups(g))) => Some((g.first()?.rows(), g.iter().map(QTensor::cols).sum())),
            (None, None) => None,
        }
    }
    /// The codes, or those of the first group: format and granularity are the same in all.
    pub fn any(&self) -> Option<&QTensor> {
        match &self.codes {
            Some(Codes::Whole(q)) => Some(q),
            Some(Codes::Groups(g)) => g.first(),
            None => None,
        }
    }
    /// The codes where they are one tensor.
    pub fn whole(&self) -> Option<&QTensor> {
        match &self.codes {
            Some(Codes::Whole(q)) => Some(q),
            _ => None,
        }
    }
}

/// Shape in elements of a tensor of codes (`packed`: last axis halved) or of values.
fn dims(file: &File, name: &str, raw: &Raw, layout: Layout, packed: bool) -> Result<(usize, usize)> {
    let want = match layout {
        Layout::Experts(e) => format!("[{e}, N, K]"),
        Layout::Columns(_) => "[rows, tokens]".into(),
        Layout::Plain | Layout::Tokens(_) => "[rows, K]".into(),
    };
    let bad = || file.bad_tensor(name, format!("shape {:?}", raw.shape), format!("{want}, no size 0"));
    if raw.shape.contains(&0) {
        return Err(bad());
    }
    let (rows, cols) = match (layout, &raw.shape[..]) {
        (Layout::Experts(e), [lead, n, k]) if *lead == e => (lead * n, *k),
        (Layout::Plain | Layout::Tokens(_) | Layout::Columns(_), [rows, cols]) => (*rows, *cols),
        _ => return Err(bad()),
    };
    // The shape of an F4 tensor counts codes, not bytes.
    let cols = if packed && raw.dtype != Dtype::F4 { 2 * cols } else { cols };
    if let Layout::Columns(offs) = layout {
        check_offs(Some(offs), cols)?;
    }
    Ok((rows, cols))
}

/// Reads operand `x`. `None` where neither its values nor its codes are there.
pub fn side(file: &File, x: &str, spec: &Spec, layout: Layout) -> Result<Option<BundleOperand>> {
    let (codes_name, history_name) = (format!("{x}.codes"), format!("{x}.scale_history"));
    if !file.has(x) && !file.has(&codes_name) {
        return Ok(None);
    }
    if !file.has(&codes_name) {
        without_codes(file, x, spec)?;
    }
    let high = match file.get(x) {
        None => None,
        Some(raw) => {
            let (rows, cols) = dims(file, x, raw, layout, false)?;
            let (dtype, data) = file.values(x, raw)?;
            if let Some(format) = spec.format.filter(|f| *f != dtype && !file.has(&codes_name)) {
                return Err(file.bad_tensor(x, format!("dtype {:?}", raw.dtype), format!("values of `{x}.format` = {format}")));
            }
            Some(Tensor::new(dtype, rows, cols, data)?)
        }
    };
    let history = match file.get(&history_name) {
        None => Vec::new(),
        Some(raw) if raw.shape.len() != 1 => {
            return Err(file.bad_tensor(&history_name, format!("shape {:?}", raw.shape), "[T], newest first"));
        }
        Some(raw) => file.scales(&history_name, raw, None)?.1,
    };
    let codes = match file.get(&codes_name) {
        Some(raw) => {
            let (rows, cols) = dims(file, &codes_name, raw, layout, spec.packing.is_some())?;
            if let Some(t) = high.as_ref().filter(|t| (t.rows(), t.cols()) != (rows, cols)) {
                let expected = format!("{}×{} as `{x}` has", t.rows(), t.cols());
                return Err(file.bad_tensor(&codes_name, format!("{rows}×{cols} elements"), expected));
            }
            Some(quantized(file, x, &codes_name, raw, spec, layout, (rows, cols))?)
        }
        None => None,
    };
    Ok(Some(BundleOperand { high, codes, history, dequantized_by: None, weights: None }))
}

/// What belongs to codes must not be there without them.
pub fn without_codes(file: &File, x: &str, spec: &Spec) -> Result<()> {
    let expected = || format!("it beside `{x}.codes` only");
    for part in ["scale_inv", "zero_point", "global_scale_inv", "global_zero_point"] {
        let name = format!("{x}.{part}");
        if file.has(&name) {
            return Err(file.bad(format!("tensor `{name}` without `{x}.codes`"), expected()));
        }
    }
    let plain = Spec { format: spec.format, ..Spec::default() };
    match *spec == plain {
        true => Ok(()),
        false => {
            let key = if spec.granularity != plain.granularity {
                "granularity"
            } else if spec.scale_format.is_some() {
                "scale_format"
            } else if spec.packing.is_some() {
                "packing"
            } else if spec.zero != plain.zero {
                "zero"
            } else {
                "global_granularity"
            };
            Err(file.bad(format!("metadata `{x}.{key}` without `{x}.codes`"), expected()))
        }
    }
}

/// Format of codes: the metadata's, else the dtype's.
pub fn code_format(file: &File, x: &str, name: &str, raw: &Raw, spec: &Spec) -> Result<Format> {
    match spec.format.or_else(|| File::format_of(raw)) {
        Some(f) if f.bits() <= 8 => Ok(f),
        Some(f) => Err(file.bad_tensor(name, format!("format {f}"), "a format of at most 8 bits")),
        None => {
            let values = if name == x { "dtype F16, BF16 or F32, or " } else { "" };
            let expected = format!("{values}metadata `{x}.format` that says which codes these are");
            Err(file.bad_tensor(name, format!("dtype {:?}", raw.dtype), expected))
        }
    }
}

/// The codes at `name` with the scales and zero points of operand `x`.
pub fn quantized(
    file: &File,
    x: &str,
    name: &str,
    raw: &Raw,
    spec: &Spec,
    layout: Layout,
    (rows, cols): (usize, usize),
) -> Result<Codes> {
    let format = code_format(file, x, name, raw, spec)?;
    let codes = file.codes(name, raw, format, spec.packing)?;
    let granularity = spec.granularity;
    let scale_name = format!("{x}.scale_inv");
    let (scale_shape, tiles) = scale_shape(file, x, granularity, layout, rows, cols)?;
    let why = format!(
        "granularity {granularity} over {rows}×{cols}{}",
        if matches!(layout, Layout::Plain | Layout::Tokens(_)) { "" } else { ", a leading axis of groups" }
    );
    let Some(scales) = file.squeezed(&scale_name, &scale_shape, &why)? else {
        return Err(file.bad(
            format!("no tensor `{scale_name}`"),
            format!("one of shape {scale_shape:?}: what `{name}` are multiplied by"),
        ));
    };
    let (scale_format, scale_inv) = file.scales(&scale_name, scales, spec.scale_format)?;
    let zero_name = format!("{x}.zero_point");
    let zero = match (spec.zero, file.squeezed(&zero_name, &scale_shape, "as scale_inv")?) {
        (ZeroKind::None, None) => Zero::None,
        (ZeroKind::None, Some(_)) => {
            return Err(
                file.bad(format!("tensor `{zero_name}` with `{x}.zero` = none"), "`integer` or `additive` there".into())
            );
        }
        (_, None) => {
            return Err(file
                .bad(format!("no tensor `{zero_name}`"), format!("one of shape {scale_shape:?}, because `{x}.zero` is set")));
        }
        (ZeroKind::Integer, Some(z)) => Zero::Integer(file.whole_numbers(&zero_name, z)?),
        (ZeroKind::Additive, Some(z)) => {
            // Under a second level they may be codes, as the scales are.
            let stored = spec.scale_format.filter(|_| z.dtype == Dtype::U8);
            Zero::Additive { zero: file.scales(&zero_name, z, stored)?.1, mid: 0 }
        }
    };
    let stacked = Stacked::of(layout, granularity, tiles, rows, cols);
    let scale_inv = stacked.spread(scale_inv);
    let zero = match zero {
        Zero::None => Zero::None,
        Zero::Integer(z) => Zero::Integer(stacked.spread(z)),
        Zero::Additive { zero, mid } => Zero::Additive { zero: stacked.spread(zero), mid },
    };
    let level = level(file, x, spec, layout, tiles.grid(rows, cols))?;
    let parts = QTensorParts { format, rows, cols, codes, granularity: tiles, scale_format, scale_inv, zero, level };
    match layout {
        Layout::Columns(offs) => by_columns(parts, offs).map(Codes::Groups),
        _ => QTensor::new(parts).map(Codes::Whole),
    }
}

/// The second level of `rows × cols` scales. One number for all is f32, in whatever dtype it came.
fn level(file: &File, x: &str, spec: &Spec, layout: Layout, (rows, cols): (usize, usize)) -> Result<Option<Level>> {
    let (name, zero_name) = (format!("{x}.global_scale_inv"), format!("{x}.global_zero_point"));
    let key = format!("{x}.global_granularity");
    if spec.global == Granularity::Tensor && !file.has(&zero_name) {
        if let Some(level) = by_expert(file, &name, layout, (rows, cols))? {
            return Ok(Some(level));
        }
        let whole = file.scalar(&name, &[Format::F32, Format::F16, Format::Bf16])?;
        return Ok(whole.map(Level::whole));
    }
    if !matches!(layout, Layout::Plain | Layout::Tokens(_)) {
        let expected = "tensor: groups share one second-level scale, or have one each, [E]";
        return Err(file.bad_key(&key, &spec.global.to_string(), expected));
    }
    let (r, c) = spec.global.grid(rows, cols);
    let why = format!("{} of {rows}×{cols} scales", spec.global);
    let read = |name: &str| match file.squeezed(name, &[r, c], &why)? {
        Some(raw) => file.values(name, raw).map(Some),
        None => Ok(None),
    };
    let Some((format, scale_inv)) = read(&name)? else {
        let expected = format!("one of shape [{r}, {c}]: what the scales are multiplied by");
        return Err(file.bad(format!("no tensor `{name}`"), expected));
    };
    let zero = match (read(&zero_name)?, spec.zero) {
        (None, _) => None,
        (Some((f, zero)), ZeroKind::Additive) if f == format => Some(zero),
        (Some((f, _)), ZeroKind::Additive) => {
            return Err(file.bad(format!("`{zero_name}` in {f}"), format!("{format}, as `{name}`")));
        }
        (Some(_), _) => {
            return Err(file.bad(format!("tensor `{zero_name}`"), format!("this tensor with `{x}.zero` = additive only")));
        }
    };
    Ok(Some(Level { granularity: spec.global, format, scale_inv, zero }))
}

/// A second level of one number an expert over `rows × cols` scales. `None`: no experts, or not so many numbers.
fn by_expert(file: &File, name: &str, layout: Layout, (rows, cols): (usize, usize)) -> Result<Option<Level>> {
    let experts = match layout {
        Layout::Experts(e) => e,
        Layout::Tokens(offs) => offs.len(),
        Layout::Plain | Layout::Columns(_) => 1,
    };
    let Some(raw) = file.get(name).filter(|raw| experts > 1 && raw.shape.iter().product::<usize>() == experts) else {
        return Ok(None);
    };
    file.squeezed(name, &[experts], "one an expert")?;
    let (format, each) = file.values(name, raw)?;
    let (tile, scale_inv) = match layout {
        Layout::Tokens(offs) => {
            let of = |i: usize| offs.iter().position(|end| i < *end).map_or(1.0, |e| each[e]);
            if rows < offs.last().copied().unwrap_or(0) {
                return Err(file.bad_tensor(name, format!("{experts} numbers"), "one: the scales of `a` span tokens"));
            }
            (1, (0..rows).map(of).collect())
        }
        _ => (rows / experts, each),
    };
    Ok(Some(Level { granularity: Granularity::Block { rows: tile, cols }, format, scale_inv, zero: None }))
}

/// The shape of scale_inv, and the granularity of all rows together (experts are stacked).
fn scale_shape(
    file: &File,
    x: &str,
    granularity: Granularity,
    layout: Layout,
    rows: usize,
    cols: usize,
) -> Result<(Vec<usize>, Granularity)> {
    let key = format!("{x}.granularity");
    match layout {
        Layout::Plain | Layout::Tokens(_) => Ok(match granularity {
            Granularity::Tensor => (vec![1], granularity),
            Granularity::Row => (vec![rows], granularity),
            _ => {
                let (r, c) = granularity.grid(rows, cols);
                (vec![r, c], granularity)
            }
        }),
        Layout::Experts(e) => {
            let n = rows / e;
            Ok(match granularity {
                Granularity::Tensor => (vec![e, 1], Granularity::Block { rows: n, cols }),
                Granularity::Row => (vec![e, n], granularity),
                Granularity::Group(g) => (vec![e, n, cols.div_ceil(g)], granularity),
                Granularity::Block { rows: r, cols: c } => {
                    // Experts are stacked, so a block must not reach over the last row of one: short blocks are made of smaller ones.
                    let rows = if r >= n { n } else { common_divisor(n, r) };
                    (vec![e, n.div_ceil(r), cols.div_ceil(c)], Granularity::Block { rows, cols: c })
                }
            })
        }
        Layout::Columns(offs) => match granularity {
            Granularity::Tensor => Ok((vec![offs.len(), 1], granularity)),
            Granularity::Row => Ok((vec![offs.len(), rows], granularity)),
            _ => Err(file.bad_key(
                &key,
                &granularity.to_string(),
                "tensor or row: one set of scales for the columns of each group",
            )),
        },
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// How the blocks of an expert's rows lie in the tiles of all of them: the stored block row of each row of tiles, and columns of the grid.
/// `None` where they are the tiles.
struct Stacked(Option<(Vec<usize>, usize)>);

impl Stacked {
    fn of(layout: Layout, granularity: Granularity, tiles: Granularity, rows: usize, cols: usize) -> Self {
        match (layout, granularity, tiles) {
            (Layout::Experts(e), Granularity::Block { rows: r, .. }, Granularity::Block { rows: tile, .. }) if tile < r => {
                let ((grid_rows, columns), n) = (tiles.grid(rows, cols), rows / e);
                let from = |t: usize| t * tile / n * n.div_ceil(r) + t * tile % n / r;
                Self(Some(((0..grid_rows).map(from).collect(), columns)))
            }
            _ => Self(None),
        }
    }
    /// What is stored for each block, for each tile.
    fn spread<T: Copy>(&self, stored: Vec<T>) -> Vec<T> {
        let Some((from, columns)) = &self.0 else { return stored };
        from.iter().flat_map(|b| &stored[b * columns..(b + 1) * columns]).copied().collect()
    }
}

/// The columns of each group as a tensor of their own. Columns that no group owns are left out.
fn by_columns(p: QTensorParts, offs: &[usize]) -> Result<Vec<QTensor>> {
    let per_group = p.scale_inv.len() / offs.len();
    let mut from = 0;
    let group = |(e, to): (usize, &usize)| {
        let columns = from..*to;
        from = *to;
        let codes = (0..p.rows).flat_map(|i| &p.codes[i * p.cols..(i + 1) * p.cols][columns.clone()]).copied().collect();
        let mine = e * per_group..(e + 1) * per_group;
        QTensor::new(QTensorParts {
            cols: columns.len(),
            codes,
            scale_inv: p.scale_inv[mine.clone()].to_vec(),
            zero: match &p.zero {
                Zero::None => Zero::None,
                Zero::Integer(z) => Zero::Integer(z[mine].to_vec()),
                Zero::Additive { zero, mid } => Zero::Additive { zero: zero[mine].to_vec(), mid: *mid },
            },
            ..p.clone()
        })
    };
    offs.iter().enumerate().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two experts of 192 rows in blocks of 128 hold 128 + 64 rows each; tiles of 64 rows divide both.
    #[test]
    fn blocks_of_each_expert_are_spread_over_the_tiles_of_all() {
        let block = |rows: usize| Granularity::Block { rows, cols: 128 };
        let stacked = Stacked::of(Layout::Experts(2), block(128), block(64), 384, 256);
        let spread = stacked.spread(vec![10, 11, 20, 21, 30, 31, 40, 41]);
        assert_eq!(spread, [10, 11, 10, 11, 20, 21, 30, 31, 30, 31, 40, 41]);
        assert_eq!(Stacked::of(Layout::Experts(2), block(64), block(64), 384, 256).spread(vec![1, 2]), [1, 2]);
    }
}
