//! Do codes and scale_inv belong together? Asked of any quantized tensor whose original values are at hand.
//!
//! A code is the rounding of x·s, so every element confines the scale that made it:
//!
//! ```text
//! (v⁻ + v)/2 ≤ |x|·s ≤ (v + v⁺)/2        v the magnitude of the code, v⁻ and v⁺ its neighbours; no upper end at the largest
//! ```
//!
//! The intervals of the elements that share a scale intersect in an interval of s that is certain, not probable: a healthy tensor
//! is inside whatever its values are. r = s·scale_inv is known to the same certainty, 1 inside it says that codes and scale_inv
//! belong together, and the earlier scale_inv whose reciprocal is inside are the ones that may have made the codes. An empty
//! intersection says that no one scale made these codes from these values: other bytes, or scales in another order.

use crate::assay::row::short;
use crate::quant::Zero;
use crate::{Error, Format, QTensor, Result, Tensor};

/// What is said of a tensor, or of the elements that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// r = 1 is possible.
    Belongs,
    /// A scale made these codes, and it is not that of this scale_inv.
    Stale,
    /// No one scale made these codes from these values.
    OtherValues,
}

impl Finding {
    pub fn name(self) -> &'static str {
        ["belongs", "stale", "other values"][self as usize]
    }
}

/// One scale's elements.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    pub finding: Finding,
    /// scale_inv as it is stored (with the tensor's second level).
    pub scale_inv: f64,
    /// The scale that made the codes is certainly in here; `low > high` where there is none.
    pub low: f64,
    pub high: f64,
    /// How far from 1 a healthy r may be: what is stored may be the scale rounded once more.
    pub slack: f64,
}

impl Tile {
    /// Bounds of r = s·scale_inv.
    pub fn r(&self) -> (f64, f64) {
        (self.low * self.scale_inv, self.high * self.scale_inv)
    }
    /// The middle of what r can be (the lower end where there is no upper one).
    pub fn r_middle(&self) -> f64 {
        let (low, high) = self.r();
        if high.is_finite() && low > 0.0 { (low * high).sqrt() } else { low }
    }
    /// Whether codes made for this scale_inv would look so.
    fn allows(&self, scale_inv: f64) -> bool {
        let (low, high) = (self.low * scale_inv, self.high * scale_inv);
        low <= 1.0 + self.slack && high >= 1.0 - self.slack
    }
}

/// The answer of [`audit`].
#[derive(Clone, Debug)]
pub struct Audit {
    /// The worst of the tiles'.
    pub finding: Finding,
    /// Row-major over the granularity's grid.
    pub tiles: Vec<Tile>,
    /// How many steps ago the stored scale_inv was the current one: places in the history that hold it, 1 the newest.
    pub read_from: Vec<usize>,
    /// Places in the history that hold a scale_inv whose scale may have made the codes.
    pub made_by: Vec<usize>,
    /// The order of scales that fits, where the stored one does not: `roll k`, `transposed`, `first`.
    pub order: Option<String>,
    /// Elements beyond the format's range under the scale that made them, and elements it made zero.
    pub clipped: usize,
    pub flushed: usize,
    /// What each element loses by the stored scale_inv: value as read − value as made (0 where nothing is known).
    pub lost: Vec<f64>,
}

impl Audit {
    /// The answer in one line.
    pub fn words(&self) -> String {
        let worst = |t: &&Tile| if t.finding == Finding::Belongs { 0.0 } else { 1.0 + t.r_middle().ln().abs() };
        let Some(t) = self.tiles.iter().max_by(|a, b| worst(a).total_cmp(&worst(b))) else { return "no elements".into() };
        let count = |f: Finding| self.tiles.iter().filter(|t| t.finding == f).count();
        let (low, high) = t.r();
        let ago = |places: &[usize]| match places {
            [1] => "1 step ago".to_string(),
            _ => places.iter().map(usize::to_string).collect::<Vec<_>>().join(", ") + " steps ago",
        };
        let mut text = match self.finding {
            Finding::Belongs => format!("codes and scale_inv belong together (r between {low:.6} and {high:.6})"),
            Finding::Stale => format!(
                "stale: {} of {} scales are not those of their codes; r between {low:.6} and {high:.6} at the worst",
                count(Finding::Stale),
                self.tiles.len()
            ),
            Finding::OtherValues => format!(
                "{} of {} scales: no one scale makes these codes from these values (other bytes, or another order)",
                count(Finding::OtherValues),
                self.tiles.len()
            ),
        };
        if !self.made_by.is_empty() && self.finding != Finding::Belongs {
            text += &format!("; the codes were made by the scale {}", ago(&self.made_by));
        }
        if !self.read_from.is_empty() {
            text += &format!("; the stored scale_inv is that of {}", ago(&self.read_from));
        }
        if let Some(order) = &self.order {
            text += &format!("; they fit in another order: {order}");
        }
        let most = self.lost.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        if most > 0.0 || most.is_nan() {
            text += &format!("; an element is off by up to {}", short(most));
        }
        if self.clipped + self.flushed > 0 {
            text += &format!("; {} elements are clipped, {} became zero", self.clipped, self.flushed);
        }
        text
    }
}

/// A product and a reciprocal rounded in f32, and recipes that divide where others multiply.
const SLACK: f64 = 1.0 / 1_048_576.0;

/// Audits `q`, which is said to hold the values `x`. `history` are earlier scale_inv of one-scale tensors, newest first.
/// Errors: a shape other than that of `q`.
pub fn audit(q: &QTensor, x: &Tensor, history: &[f32]) -> Result<Audit> {
    if (q.rows(), q.cols()) != (x.rows(), x.cols()) {
        let found = format!("{}×{}", x.rows(), x.cols());
        return Err(Error::shape("values of an audit", found, format!("{}×{}, as the codes", q.rows(), q.cols())));
    }
    let grid = Grid::of(q, x.dtype());
    let slack = grid.loose;
    let mut tiles: Vec<Tile> = (0..q.scale_inv().len())
        .map(|s| Tile { finding: Finding::Belongs, scale_inv: q.affine(s).unit, low: 0.0, high: f64::INFINITY, slack })
        .collect();
    for (i, code) in q.codes().iter().enumerate() {
        let t = q.scale_index(i / q.cols(), i % q.cols());
        let (low, high) = grid.interval(*code, x.data()[i], t);
        let tile = &mut tiles[t];
        (tile.low, tile.high) = (tile.low.max(low), tile.high.min(high));
    }
    for t in &mut tiles {
        t.finding = match (t.low <= t.high * (1.0 + slack), t.allows(t.scale_inv)) {
            (false, _) => Finding::OtherValues,
            (true, true) => Finding::Belongs,
            (true, false) => Finding::Stale,
        };
    }
    let finding = tiles.iter().map(|t| t.finding).max().unwrap_or(Finding::Belongs);
    let places = |of: &dyn Fn(f64) -> bool| -> Vec<usize> {
        history.iter().enumerate().filter(|(_, h)| of(f64::from(**h))).map(|(k, _)| k + 1).collect()
    };
    let one = (tiles.len() == 1).then(|| tiles[0]);
    let read_from = one.map_or_else(Vec::new, |t| places(&|h| h == t.scale_inv));
    let made_by = one.map_or_else(Vec::new, |t| places(&|h| t.finding != Finding::OtherValues && t.allows(h)));
    let order = if finding == Finding::Belongs { None } else { order(q, &tiles) };
    let (mut clipped, mut flushed) = (0, 0);
    let lost = (0..q.codes().len())
        .map(|i| {
            let t = &tiles[q.scale_index(i / q.cols(), i % q.cols())];
            let x = f64::from(x.data()[i]);
            let value = q.format().decode(u32::from(q.codes()[i]));
            clipped += usize::from(value.abs() >= q.format().max_finite() && x.abs() * t.low > q.format().max_finite());
            flushed += usize::from(value == 0.0 && x != 0.0 && matches!(q.zero(), Zero::None));
            match t.finding {
                Finding::Stale => q.value(i / q.cols(), i % q.cols()) * (1.0 - 1.0 / t.r_middle()),
                _ => 0.0,
            }
        })
        .collect();
    Ok(Audit { finding, tiles, read_from, made_by, order, clipped, flushed, lost })
}

/// The magnitudes a code stands for.
struct Grid<'a> {
    q: &'a QTensor,
    format: Format,
    /// Value of every code, and the values next to it.
    codes: Vec<(f64, f64, f64)>,
    /// What the arithmetic before rounding may be off by, in steps of one code (integers of 16-bit recipes).
    loose: f64,
}

impl<'a> Grid<'a> {
    fn of(q: &'a QTensor, dtype: Format) -> Self {
        // Affine recipes compute in the dtype of their input (a reciprocal, a product, a zero point, one rounding each), and store a
        // scale that was rounded once more.
        let step = dtype.ulp(1.0).max(q.scale_format().ulp(1.0));
        let loose = if q.format().is_integer() { SLACK.max(2.0 * step) } else { SLACK };
        let format = q.format();
        let codes = (0..1u32 << format.bits()).map(|c| neighbours(format, c)).collect();
        Self { q, format, codes, loose }
    }

    /// The scales with which `x` becomes `code`: nothing known of what is not finite.
    fn interval(&self, code: u8, x: f32, t: usize) -> (f64, f64) {
        const ANY: (f64, f64) = (0.0, f64::INFINITY);
        const NONE: (f64, f64) = (f64::INFINITY, 0.0);
        let (value, below, above) = self.codes[usize::from(code)];
        if !x.is_finite() || !value.is_finite() {
            return ANY;
        }
        let (lowest, highest) = (self.format.min_finite(), self.format.max_finite());
        // The value in units of the scale, and what x is without the zero point.
        let (v, x) = match self.q.zero() {
            Zero::None => (value, f64::from(x)),
            Zero::Integer(z) => (value - f64::from(z[t]), f64::from(x)),
            Zero::Additive { zero, mid } => (value - f64::from(*mid), f64::from(x) - f64::from(zero[t])),
        };
        let (down, up) = if self.format.is_integer() {
            let zero = match self.q.zero() {
                Zero::Additive { zero, .. } => f64::from(zero[t] / self.q.scale_inv()[t]).abs(),
                _ => 0.0,
            };
            let loose = self.loose * (1.0 + zero + v.abs().max(value.abs()));
            (v - 0.5 - loose, v + 0.5 + loose)
        } else {
            ((v + below) / 2.0, (v + above) / 2.0)
        };
        let down = if value <= lowest { f64::NEG_INFINITY } else { down };
        let up = if value >= highest { f64::INFINITY } else { up };
        let widen = |b: f64, sign: f64| b + sign * SLACK * b.abs();
        let (down, up) = (widen(down, -1.0), widen(up, 1.0));
        // down ≤ x·s ≤ up
        match x {
            x if x > 0.0 && up >= 0.0 => ((down / x).max(0.0), up / x),
            x if x < 0.0 && down <= 0.0 => ((up / x).max(0.0), down / x),
            x if x == 0.0 && down <= 0.0 && up >= 0.0 => ANY,
            _ => NONE,
        }
    }
}

/// The value of a code and the values next to it, itself at an end of the range.
fn neighbours(format: Format, code: u32) -> (f64, f64, f64) {
    let value = format.decode(code);
    if format.is_integer() || !value.is_finite() {
        return (value, value, value);
    }
    if !format.is_float() {
        return (value, format.decode(code.max(1) - 1), format.decode((code + 1).min(format.max_code())));
    }
    let size = value.abs();
    let place = (0..=format.max_code()).find(|c| format.decode(*c) == size).unwrap_or(0);
    let less = if place == 0 { -format.decode(1) } else { format.decode(place - 1) };
    let more = if place >= format.max_code() { size } else { format.decode(place + 1) };
    if value < 0.0 { (value, -more, -less) } else { (value, less, more) }
}

/// An order of the stored scale_inv in which every tile's fits.
fn order(q: &QTensor, tiles: &[Tile]) -> Option<String> {
    let n = tiles.len();
    let fits = |place: &dyn Fn(usize) -> usize| (0..n).all(|i| tiles[i].allows(tiles[place(i)].scale_inv));
    if n < 2 || tiles.iter().any(|t| t.finding == Finding::OtherValues) {
        return None;
    }
    let (rows, cols) = q.granularity().grid(q.rows(), q.cols());
    // Place i holds the scale_inv of tile `place(i)`'s slot: tile i finds its own there.
    if let Some(k) = (1..n).find(|k| fits(&|i| (i + n - k) % n)) {
        return Some(format!("roll {k}"));
    }
    if rows > 1 && cols > 1 && fits(&|i| (i % rows) * cols + i / rows) {
        return Some("transposed".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Granularity;
    use crate::quant::QTensorParts;

    /// Code 12 about 8 is v = 4; the zero point 6 is 3 scales of 2. Arithmetic in bf16 may be off by two of its spacings of each: 1 + 3 + 12.
    #[test]
    fn codes_with_a_zero_point_confine_the_scale_as_loosely_as_their_arithmetic() {
        let of = |zero: Zero, x: f32| {
            let parts = QTensorParts {
                format: Format::Uint4,
                rows: 1,
                cols: 1,
                codes: vec![12],
                granularity: Granularity::Tensor,
                scale_format: Format::F32,
                scale_inv: vec![2.0],
                zero,
                level: None,
            };
            let q = QTensor::new(parts).unwrap();
            Grid::of(&q, Format::Bf16).interval(12, x, 0)
        };
        let ends = |v: f64, loose: f64, x: f64| ((v - 0.5 - loose) * (1.0 - SLACK) / x, (v + 0.5 + loose) * (1.0 + SLACK) / x);
        let close = |found: (f64, f64), want: (f64, f64)| {
            assert!((found.0 / want.0 - 1.0).abs() < 1e-12 && (found.1 / want.1 - 1.0).abs() < 1e-12, "{found:?}, {want:?}");
        };
        let spacings = 2.0 * 2f64.powi(-7);
        close(of(Zero::Additive { zero: vec![6.0], mid: 8 }, 10.0), ends(4.0, 16.0 * spacings, 4.0));
        close(of(Zero::Integer(vec![5]), 10.0), ends(7.0, 13.0 * spacings, 10.0));
        assert_eq!(of(Zero::Integer(vec![5]), f32::NAN), (0.0, f64::INFINITY), "nothing is known");
    }
}
