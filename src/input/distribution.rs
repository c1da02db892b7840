//! Synthetic inputs: named distributions, each a pure function of (seed, stream, shape, row, column).

use super::math::{exp, normal, unit};
use super::philox::Stream;
use crate::format::exp2i;
use crate::parallel;
use crate::tensor::afar::looked_at;
use crate::tensor::round_to;
use crate::{Error, Format, Result, Tensor};

/// What a synthetic tensor looks like. Names as in [`DISTRIBUTIONS`]; those that aim at a format are spelled `ties:e4m3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    Normal,
    NormalIid,
    Uniform,
    LogNormal,
    StudentT,
    OutlierChannels,
    Shifted,
    Sparse,
    Ties(Format),
    Subnormal(Format),
    Saturating(Format),
    ZeroRows,
    ZeroBlocks,
    SignedZero,
    Zeros,
    Constant,
    NonFinite,
}

/// An entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct DistributionSpec {
    /// With the format e4m3 where one is aimed at.
    pub distribution: Distribution,
    pub name: &'static str,
    /// A format may follow the name: `ties:e2m1`.
    pub aimed: bool,
    /// An edge case: it may lack the power to show a bug, and a sweep has to say so.
    pub edge: bool,
    pub help: &'static str,
}

const fn entry(d: Distribution, name: &'static str, edge: bool, help: &'static str) -> DistributionSpec {
    let aimed = matches!(d, Distribution::Ties(_) | Distribution::Subnormal(_) | Distribution::Saturating(_));
    DistributionSpec { distribution: d, name, aimed, edge, help }
}

/// Every distribution, in the order of [`Distribution`]. "Gains" are distinct factors in (¼, 4) of each row and each group of
/// 16 columns, so that no two scales agree.
pub const DISTRIBUTIONS: &[DistributionSpec] = &[
    entry(Distribution::Normal, "normal", false, "N(0,1) with gains"),
    entry(Distribution::NormalIid, "normal_iid", false, "N(0,1), every element alike: the textbook's case"),
    entry(Distribution::Uniform, "uniform", false, "uniform in (−1,1) with gains"),
    entry(Distribution::LogNormal, "log_normal", false, "±exp(N(0,1)) with gains"),
    entry(Distribution::StudentT, "student_t", false, "Student's t, 3 degrees of freedom (heavy tails), with gains"),
    entry(Distribution::OutlierChannels, "outlier_channels", false, "normal, one column in 64 amplified 20 to 100 times"),
    entry(
        Distribution::Shifted,
        "shifted",
        false,
        "normal with an offset in (−2,2) for each row and group: distinct zero points",
    ),
    entry(Distribution::Sparse, "sparse", false, "normal, nine elements in ten are zero"),
    entry(
        Distribution::Ties(Format::E4m3),
        "ties",
        false,
        "midpoints between neighbouring codes of a format, a maximum in each group of 16 columns, power-of-two gains",
    ),
    entry(
        Distribution::Subnormal(Format::E4m3),
        "subnormal",
        false,
        "values in and just above a format's subnormal range, a maximum in each group of 16 columns",
    ),
    entry(Distribution::Saturating(Format::E4m3), "saturating", false, "at, just above, and up to 4 times a format's maximum"),
    entry(Distribution::ZeroRows, "zero_rows", false, "normal, every third row (from row 1) is zero"),
    entry(
        Distribution::ZeroBlocks,
        "zero_blocks",
        false,
        "normal; a checkerboard of 128×128 blocks (0,0 not) and one group of 16 columns in four are zero",
    ),
    entry(Distribution::SignedZero, "signed_zero", false, "normal, +0, −0 and ±2⁻¹²⁰, a quarter each"),
    entry(Distribution::Zeros, "zeros", true, "all +0"),
    entry(Distribution::Constant, "constant", true, "all 0.7"),
    entry(Distribution::NonFinite, "non_finite", true, "normal; every fourth row (from row 1) has NaN, +Inf and −Inf among it"),
];

impl Distribution {
    pub fn spec(self) -> &'static DistributionSpec {
        let same = |d: &&DistributionSpec| std::mem::discriminant(&d.distribution) == std::mem::discriminant(&self);
        DISTRIBUTIONS.iter().find(same).expect("every distribution has an entry: tested")
    }
    /// May lack the power to show a bug.
    pub fn is_edge(self) -> bool {
        self.spec().edge
    }
    /// The format whose codes it aims at.
    pub fn aim(self) -> Option<Format> {
        match self {
            Distribution::Ties(f) | Distribution::Subnormal(f) | Distribution::Saturating(f) => Some(f),
            _ => None,
        }
    }
    /// The same shape aimed at another format; unchanged where nothing is aimed at. Errors: a format of more than 8 bits or
    /// e8m0; an integer for `subnormal`.
    pub fn aimed_at(self, f: Format) -> Result<Self> {
        let fits = f.bits() <= 8 && f != Format::E8m0;
        match self {
            Distribution::Ties(_) if fits => Ok(Distribution::Ties(f)),
            Distribution::Saturating(_) if fits => Ok(Distribution::Saturating(f)),
            Distribution::Subnormal(_) if fits && f.is_float() => Ok(Distribution::Subnormal(f)),
            d if d.aim().is_some() => {
                let name = self.spec().name;
                let want = if name == "subnormal" { "a float of at most 8 bits, not e8m0" } else { "at most 8 bits, not e8m0" };
                Err(Error::value(format!("format after `{name}:`"), f, want))
            }
            d => Ok(d),
        }
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.aim() {
            Some(format) => f.pad(&format!("{}:{format}", self.spec().name)),
            None => f.pad(self.spec().name),
        }
    }
}

impl std::str::FromStr for Distribution {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let (name, format) = s.split_once(':').map_or((s, None), |(n, f)| (n, Some(f)));
        let spec = DISTRIBUTIONS
            .iter()
            .find(|d| d.name == name && (d.aimed || format.is_none()))
            .ok_or_else(|| Error::unknown("distribution", s, DISTRIBUTIONS.iter().map(|d| d.name)))?;
        format.map_or(Ok(spec.distribution), |f| spec.distribution.aimed_at(f.parse()?))
    }
}

/// Columns of a gain group: the smallest group of any recipe.
const GROUP: usize = 16;
const ELEMENT: u32 = 0;
const ROW: u32 = 1;
const COLUMNS: u32 = 2;

/// A `rows × cols` tensor of `dtype` (f16, bf16, f32). Element (i,j) draws from Philox counter index i·cols + j; row gains,
/// column gains and positions from counters of their own. Values are made in f64 by [`super::math`], rounded to f32, then to
/// `dtype`, and kept within its finite range (all but `non_finite`): the same bits on every machine, in any order.
pub fn generate(dist: Distribution, dtype: Format, rows: usize, cols: usize, seed: u64, stream: u32) -> Result<Tensor> {
    generate_by(None, dist, dtype, (rows, cols), seed, stream)
}

/// What a tensor is drawn from.
pub struct Drawing {
    pub dist: Distribution,
    pub dtype: Format,
    pub rows: usize,
    pub cols: usize,
    pub seed: u64,
    pub stream: u32,
    /// An element's gain is the product of its row's and its column's.
    pub row_gains: Vec<f64>,
    pub column_gains: Vec<f64>,
}

/// Makes the values of a tensor, of its dtype, in place of the CPU: the same bits, which may stay on its device. Errors: it does not have this
/// distribution, or cannot.
pub type Drawer = fn(&Drawing) -> Result<Tensor>;

/// Elements from which a drawer is worth its copies, and rows of what it drew that are looked at.
const LARGE: usize = 1 << 18;
const ROWS: usize = 16;

/// [`generate`], large tensors by `drawer`, of whose bits some are looked at.
pub fn generate_by(
    drawer: Option<Drawer>,
    dist: Distribution,
    dtype: Format,
    (rows, cols): (usize, usize),
    seed: u64,
    stream: u32,
) -> Result<Tensor> {
    let len = rows.checked_mul(cols).ok_or_else(|| Error::shape("tensor", format!("{rows}×{cols}"), "a size that fits"))?;
    let max = dtype.max_finite();
    let make = Maker { dist, stream: Stream::new(seed, stream), rows, cols };
    let columns: Vec<LineDraw> = (0..cols).map(|j| make.column(j)).collect();
    let element = |i: usize, j: usize, place: LineDraw| {
        let v = make.value(i, j, place, columns[j]);
        if v.is_finite() { v.clamp(-max, max) as f32 } else { v as f32 }
    };
    let place = |i: usize| LineDraw::new(make.draw(ROW, i));
    if let Some(drawer) = drawer.filter(|_| len >= LARGE) {
        let row_gains = (0..rows).map(|i| place(i).gain).collect();
        let column_gains = columns.iter().map(|c| c.gain).collect();
        let drawn = drawer(&Drawing { dist, dtype, rows, cols, seed, stream, row_gains, column_gains });
        // Rows from the first to the last, since a tensor may lie elsewhere.
        let same = |t: &Tensor| {
            (t.dtype(), t.rows(), t.cols()) == (dtype, rows, cols)
                && looked_at(rows, ROWS).all(|i| {
                    let (row, place) = (t.some_row(i), place(i));
                    let bits = |j: usize| round_to(dtype, element(i, j, place)).to_bits();
                    (0..cols).step_by((cols * rows.min(ROWS) / 1000) | 1).all(|j| row[j].to_bits() == bits(j))
                })
        };
        match drawn {
            Ok(t) if same(&t) => return Ok(t),
            Ok(_) => tracing::error!("the GPU's draw of {dist} has other bits than the CPU's, which is used"),
            Err(Error::Unsupported { .. }) => {}
            Err(e) => tracing::warn!("{dist} is drawn on the CPU: {e}"),
        }
    }
    let mut data = vec![0f32; len];
    parallel::chunks(&mut data, cols, |i, row| {
        let place = place(i);
        row.iter_mut().enumerate().for_each(|(j, x)| *x = element(i, j, place));
    });
    Tensor::rounded(dtype, rows, cols, data)
}

/// Four words and what is read from them.
#[derive(Clone, Copy)]
struct Draw([u32; 4]);

impl Draw {
    /// 1, ½ or ¼.
    fn binary_gain(self) -> f64 {
        exp2i(-((self.0[0] % 3) as i32))
    }
    fn position(self, n: usize) -> usize {
        self.0[1] as usize % n
    }
    fn sign(self) -> f64 {
        if self.0[3] >> 31 == 0 { 1.0 } else { -1.0 }
    }
}

/// What a row, or a column with its group, contributes to each of its elements.
#[derive(Clone, Copy)]
struct LineDraw {
    draw: Draw,
    /// A factor in (½, 2); a row's times a column's is the gain of an element.
    gain: f64,
}

impl LineDraw {
    fn new(draw: Draw) -> Self {
        Self { draw, gain: exp((2.0 * unit(draw.0[0]) - 1.0) * std::f64::consts::LN_2) }
    }
}

struct Maker {
    dist: Distribution,
    stream: Stream,
    rows: usize,
    cols: usize,
}

impl Maker {
    fn draw(&self, purpose: u32, index: usize) -> Draw {
        Draw(self.stream.words(purpose, index as u64))
    }
    /// Column j: what its group drew, and the gain of an outlier channel.
    fn column(&self, j: usize) -> LineDraw {
        let mut place = LineDraw::new(self.draw(COLUMNS, j / GROUP));
        if self.dist == Distribution::OutlierChannels {
            place.gain *= self.channel_gain(j);
        }
        place
    }
    /// Element (i, j), given its row's and its column's part.
    fn value(&self, i: usize, j: usize, row: LineDraw, column: LineDraw) -> f64 {
        let draw = self.draw(ELEMENT, i * self.cols + j);
        let w = draw.0;
        let gain = row.gain * column.gain;
        let tame = || normal(w[0]) * gain;
        let (row, group) = (row.draw, column.draw);
        let first = j - j % GROUP;
        // One place of each row and group holds the largest value.
        let anchor = j - first == (row.position(GROUP) + group.position(GROUP)) % GROUP.min(self.cols - first);
        match self.dist {
            Distribution::Normal | Distribution::OutlierChannels => tame(),
            Distribution::NormalIid => normal(w[0]),
            Distribution::Uniform => (2.0 * unit(w[0]) - 1.0) * gain,
            Distribution::LogNormal => draw.sign() * exp(normal(w[0])) * gain,
            Distribution::StudentT => {
                let [z, a, b, c] = w.map(normal);
                z / ((a * a + b * b + c * c) / 3.0).sqrt() * gain
            }
            Distribution::Shifted => tame() + 2.0 * (unit(row.0[2]) + unit(group.0[2]) - 1.0),
            Distribution::Sparse => {
                if w[3].is_multiple_of(10) {
                    tame()
                } else {
                    0.0
                }
            }
            Distribution::Ties(f) => {
                // A smaller group would push an integer's midpoints off the grid of its row.
                let group = if f.is_integer() { 1.0 } else { group.binary_gain() };
                tie(f, draw, anchor) * row.binary_gain() * group
            }
            Distribution::Subnormal(f) => {
                let top = exp2i(f.min_exponent() + 1);
                if anchor { draw.sign() * f.max_finite() } else { (2.0 * unit(w[0]) - 1.0) * top }
            }
            Distribution::Saturating(f) => {
                let max = f.max_finite();
                let sign = if f.spec().signed { draw.sign() } else { 1.0 };
                sign * match w[1] % 8 {
                    0 => max,
                    1 => max + 0.5 * f.ulp(max),
                    _ => max * exp((3.0 * unit(w[0]) - 1.0) * std::f64::consts::LN_2),
                }
            }
            Distribution::ZeroRows => {
                if i % 3 == 1 {
                    0.0
                } else {
                    tame()
                }
            }
            Distribution::ZeroBlocks => {
                let checker = (i / 128 + j / 128) % 2 == 1;
                // A group is zero in the rows of one residue mod 4, another for the next group.
                let small = (i + j / GROUP) % 4 == 1;
                if checker || small { 0.0 } else { tame() }
            }
            Distribution::SignedZero => match w[1] % 4 {
                0 => 0.0,
                1 => -0.0,
                2 => draw.sign() * exp2i(-120),
                _ => tame(),
            },
            Distribution::Zeros => 0.0,
            Distribution::Constant => 0.7,
            Distribution::NonFinite => self.sprinkled(i, j, row).unwrap_or_else(tame),
        }
    }
    /// The factor of column j: one column in each window of 64 stands out.
    fn channel_gain(&self, j: usize) -> f64 {
        let first = j - j % 64;
        let window = self.draw(COLUMNS, usize::MAX - first);
        if j - first == window.position(64.min(self.cols - first)) { 20.0 + 80.0 * unit(window.0[2]) } else { 1.0 }
    }
    /// NaN, +Inf or −Inf at three places a quarter of the row apart, in every fourth row; in a lone row too.
    fn sprinkled(&self, i: usize, j: usize, row: Draw) -> Option<f64> {
        let chosen = i % 4 == 1 || self.rows == 1;
        let step = self.cols.div_ceil(4);
        let distance = (j + self.cols - row.position(self.cols)) % self.cols;
        (chosen && distance.is_multiple_of(step))
            .then(|| [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].get(distance / step).copied())
            .flatten()
    }
}

/// A midpoint between two neighbouring codes of `f`, or its largest (unsigned: also smallest) value; both signs if it has them.
fn tie(f: Format, draw: Draw, anchor: bool) -> f64 {
    let w = draw.0;
    let sign = if f.spec().signed { draw.sign() } else { 1.0 };
    if anchor {
        return if f.spec().signed || w[1].is_multiple_of(2) { sign * f.max_finite() } else { f.min_finite() };
    }
    let code = w[0] % f.max_code();
    sign * (f.decode(code) + f.decode(code + 1)) * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Overflow, Rounding};
    use sha2::{Digest, Sha256};

    fn all() -> Vec<Distribution> {
        DISTRIBUTIONS.iter().map(|d| d.distribution).collect()
    }
    fn floats(d: Distribution, rows: usize, cols: usize) -> Vec<f32> {
        generate(d, Format::F32, rows, cols, 7, 1).unwrap().data().to_vec()
    }

    #[test]
    fn registry_is_complete_and_names_round_trip() {
        for d in DISTRIBUTIONS {
            assert!(!d.help.is_empty() && d.distribution.spec().name == d.name, "{}", d.name);
            assert_eq!(d.distribution.to_string().parse::<Distribution>().unwrap(), d.distribution);
            assert_eq!(d.name.parse::<Distribution>().unwrap(), d.distribution);
        }
        assert_eq!("ties:e2m1".parse::<Distribution>().unwrap(), Distribution::Ties(Format::E2m1));
        for bad in ["norm", "normal:e4m3", "ties:f16", "ties:e8m0", "subnormal:int8", "ties:", "ties:E4M3", ""] {
            assert!(bad.parse::<Distribution>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_element_does_not_depend_on_order_or_on_threads() {
        for d in all() {
            let many = generate(d, Format::Bf16, 37, 83, 5, 9).unwrap();
            let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            let again = one.install(|| generate(d, Format::Bf16, 37, 83, 5, 9).unwrap());
            assert_eq!(many.bits(), again.bits(), "{d}");
        }
    }

    fn digest(tensors: impl IntoIterator<Item = Tensor>) -> String {
        let hash = tensors.into_iter().fold(Sha256::new(), |hash, t| hash.chain_update(t.bits()));
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The digest comes from a program in Python (its own AS 241, our ln, f64 arithmetic), not from this code.
    #[test]
    fn another_implementation_makes_the_same_bits() {
        let t = generate(Distribution::NormalIid, Format::F32, 33, 65, 7, 1).unwrap();
        assert_eq!(digest([t]), "0056f50eb4ebb3716290ed72ca29b62973ffdcbc3570e0651fc331dca6c57d5b");
    }

    /// The bits of seed 7, stream 1: a change of them changes every recorded result and needs a new major version of the data.
    #[test]
    fn bits_are_pinned() {
        let dtypes = [Format::F32, Format::F16, Format::Bf16];
        let tensors = all().into_iter().flat_map(|d| dtypes.map(|f| generate(d, f, 33, 65, 7, 1).unwrap()));
        assert_eq!(digest(tensors), "13476b573d08eca3ac47c757b13da8554b68dfb307f12a5d6035b2fcb6a5b78a");
    }

    /// Kolmogorov–Smirnov at the 5% level over 20 seeds: more than three rejections have probability 1.6%.
    #[test]
    fn normal_is_normal() {
        use statrs::distribution::{ContinuousCDF, Normal};
        let (n, phi) = (10_000, Normal::standard());
        let distance = |seed| {
            let mut x = generate(Distribution::NormalIid, Format::F32, 100, n / 100, seed, 1).unwrap().data().to_vec();
            x.sort_by(f32::total_cmp);
            let gap = |(i, x): (usize, &f32)| (phi.cdf(f64::from(*x)) - (i as f64 + 0.5) / n as f64).abs();
            x.iter().enumerate().map(gap).fold(0.0, f64::max)
        };
        let accepted = (0..20).filter(|seed| distance(*seed) < 1.36 / (n as f64).sqrt()).count();
        assert!(accepted >= 17, "{accepted} of 20 accepted");
    }

    #[test]
    fn moments_and_tails() {
        let kurtosis = |x: &[f32]| {
            let m2 = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
            x.iter().map(|x| f64::from(*x).powi(4)).sum::<f64>() / x.len() as f64 / (m2 * m2)
        };
        for (d, low, high) in [
            (Distribution::NormalIid, 2.9, 3.1),
            (Distribution::Normal, 4.0, 9.0),
            (Distribution::StudentT, 20.0, 1e9),
            (Distribution::OutlierChannels, 50.0, 1e9),
        ] {
            let k = kurtosis(&floats(d, 256, 256));
            assert!(k > low && k < high, "{d}: kurtosis {k}");
        }
    }

    #[test]
    fn nothing_is_hidden() {
        for d in DISTRIBUTIONS.iter().filter(|d| !d.edge).map(|d| d.distribution) {
            let t = generate(d, Format::F16, 48, 96, 3, 0).unwrap();
            assert!(t.data().iter().any(|x| *x > 0.0) && t.data().iter().any(|x| *x < 0.0), "{d}: both signs");
            assert!(t.data().iter().all(|x| x.is_finite()), "{d}: finite");
        }
        let t = generate(Distribution::Normal, Format::F32, 48, 96, 3, 0).unwrap();
        let mut amax: Vec<f32> = (0..48).map(|i| t.row(i).iter().fold(0.0, |m: f32, x| m.max(x.abs()))).collect();
        amax.sort_by(f32::total_cmp);
        assert!(amax.windows(2).all(|w| w[0] < w[1]) && amax[47] > 2.0 * amax[0], "distinct scales");
    }

    #[test]
    fn ties_are_midpoints_and_reach_every_formats_maximum() {
        // Between two values of a table there is no midpoint in f16.
        let below_f16 = |s: &&crate::format::FormatSpec| s.bits <= 8 && s.format != Format::E8m0 && s.table.is_empty();
        for f in crate::format::FORMATS.iter().filter(below_f16).map(|s| s.format) {
            for dtype in [Format::F16, Format::Bf16, Format::F32] {
                let t = generate(Distribution::Ties(f), dtype, 8, 64, 3, 0).unwrap();
                let mut ties = 0;
                for i in 0..8 {
                    let amax = t.row(i).iter().fold(0.0f32, |m, x| m.max(x.abs()));
                    let power = (f64::from(amax) / f.max_finite()).log2();
                    assert_eq!(power.fract(), 0.0, "{f} {dtype}: amax {amax}");
                    for x in t.row(i).iter().map(|x| f64::from(*x) / exp2i(power as i32)) {
                        let code = |r| f.decode(f.encode(x, r, Overflow::Saturate));
                        let (low, high) = (code(Rounding::TowardZero).abs(), code(Rounding::Stochastic(0)).abs());
                        ties += usize::from(low != high && x.abs() - low == high - x.abs());
                    }
                }
                assert!(ties > 200, "{f} {dtype}: {ties} ties of 512");
            }
        }
    }

    #[test]
    fn aimed_distributions_reach_their_range() {
        let sub = floats(Distribution::Subnormal(Format::E5m2), 16, 64);
        let smallest = exp2i(Format::E5m2.min_exponent()) as f32;
        assert!(sub.iter().filter(|x| x.abs() < smallest).count() > 300);
        assert_eq!(sub.iter().filter(|x| x.abs() == 57344.0).count(), 64);
        let sat = floats(Distribution::Saturating(Format::E4m3), 16, 64);
        assert!(sat.iter().filter(|x| x.abs() > 448.0).count() > 300);
        assert!(sat.iter().any(|x| x.abs() == 448.0) && sat.iter().any(|x| x.abs() == 464.0));
    }

    #[test]
    fn zeros_and_non_finite_where_they_are_promised() {
        let rows = generate(Distribution::ZeroRows, Format::F16, 9, 40, 1, 0).unwrap();
        for i in 0..9 {
            assert_eq!(rows.row(i).iter().all(|x| *x == 0.0), i % 3 == 1, "row {i}");
        }
        let blocks = generate(Distribution::ZeroBlocks, Format::F16, 256, 256, 1, 0).unwrap();
        assert!(
            (0..128).all(|i| blocks.row(i)[128..].iter().all(|x| *x == 0.0) && blocks.row(i)[..128].iter().any(|x| *x != 0.0))
        );
        let z = floats(Distribution::SignedZero, 16, 64);
        let count = |p: &dyn Fn(f32) -> bool| z.iter().filter(|x| p(**x)).count();
        assert!(count(&|x| x.to_bits() == 0) > 100 && count(&|x| x.to_bits() == 1 << 31) > 100);
        for (r, c) in [(1, 16), (8, 96), (3, 5)] {
            let t = generate(Distribution::NonFinite, Format::Bf16, r, c, 1, 0).unwrap();
            let has = |p: fn(&f32) -> bool| t.data().iter().any(p);
            assert!(has(|x| x.is_nan()) && has(|x| *x == f32::INFINITY) && has(|x| *x == f32::NEG_INFINITY), "{r}×{c}");
        }
    }

    #[test]
    fn empty_and_impossible_shapes() {
        for d in all() {
            for (r, c) in [(0, 0), (0, 5), (5, 0), (1, 1)] {
                assert_eq!(generate(d, Format::F32, r, c, 0, 0).unwrap().data().len(), r * c, "{d}");
            }
        }
        assert!(generate(Distribution::Normal, Format::F32, usize::MAX, 2, 0, 0).is_err());
        assert!(generate(Distribution::Normal, Format::E4m3, 2, 2, 0, 0).is_err());
    }
}
