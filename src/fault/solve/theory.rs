//! What a kernel may have done: which part of a product it did in another way, and where.

use super::given::Side;
use super::system::System;
use crate::Format;
use crate::fault::edit::Which;
use crate::format::grid::native;
use crate::order::Order as _;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A number for each element (row, k) of an operand.
pub type At = Arc<dyn Fn(usize, usize) -> f64 + Send + Sync>;
/// A place for each element.
pub type To = Arc<dyn Fn(usize, usize) -> Option<usize> + Send + Sync>;
/// A number for each (row, column, sum without bias) of the result.
pub type Finish = Arc<dyn Fn(usize, usize, f64) -> f64 + Send + Sync>;
/// What is summed for each element of the result, and its magnitude.
pub type Made = Arc<dyn Fn(usize, usize) -> (f64, f64) + Send + Sync>;
/// Origin of an element of the result.
pub type From = Arc<dyn Fn(usize, usize) -> Option<(usize, usize)> + Send + Sync>;

/// Whether an element of the result reads what is stored nowhere.
pub type Unseen = Arc<dyn Fn(usize, usize) -> bool + Send + Sync>;

/// A place in the result, where all theories that have one are told apart from the right.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    pub rows: Vec<bool>,
    pub cols: Vec<bool>,
    /// Rectangles of these rows and columns, where it is not all of them: (rows, columns).
    pub tiles: Vec<(Range<usize>, Range<usize>)>,
    pub words: String,
}

impl Region {
    pub fn has(&self, i: usize, j: usize) -> bool {
        self.rows[i]
            && self.cols[j]
            && (self.tiles.is_empty() || self.tiles.iter().any(|(r, c)| r.contains(&i) && c.contains(&j)))
    }

    /// Bits to say which it is: few where its lines are runs or every so manieth, else those of the choice of k lines of n, log2 of n over k.
    pub fn bits(&self) -> f64 {
        let of = |v: &[bool]| {
            let at: Vec<usize> = (0..v.len()).filter(|i| v[*i]).collect();
            let changes = v.windows(2).filter(|w| w[0] != w[1]).count();
            match (changes, at.windows(3).all(|w| w[1] - w[0] == w[2] - w[1])) {
                (..=2, _) => 0.0,
                (_, true) => 4.0,
                _ => (1..=at.len()).map(|i| ((v.len() - at.len() + i) as f64 / i as f64).log2()).sum(),
            }
        };
        12.0 + of(&self.rows) + of(&self.cols)
    }
}

/// What a kernel that does not mask its last tile finds behind the end of K.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Past {
    /// What follows in memory: the codes at the start of the next row, by the scale of this one; 0 behind the last.
    Next,
    /// The same, by the scale of the next row.
    NextScaled,
    /// The codes, by a scale of 1: what scales were padded with.
    NextBare,
    /// The same row of the next of these many rows: of the next expert, whose K follows in memory.
    NextGroup(usize),
    /// Code 0, dequantized.
    Zero,
    /// The same, by the scales and zero points that follow in memory: those of the next row's first groups.
    ZeroOn,
    /// What the same row has so many of K earlier: a stage that nobody loaded again.
    Stage(usize),
}

/// So many elements behind the end of K are summed as well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Over {
    pub by: usize,
    pub a: Past,
    pub b: Past,
    /// Each group is a tensor by itself: behind its last row there is nothing, 0.
    pub apart: bool,
}

/// What a product is rounded as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Units {
    Values,
    Codes,
    /// The product of its two scales, and not what they multiply.
    Scales,
    /// The same without their second level.
    Blocks,
    /// The sum of the codes of its two e8m0 scales.
    Exponents(Added),
}

/// How two e8m0 codes, each 127 more than its exponent, become the exponent of the product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Added {
    /// Their sum in 8 bits, then both biases off.
    Wraps,
    /// The same, 255 at most.
    Stops,
    /// Exponents, in 8 bits with a sign.
    SignedWraps,
    SignedStops,
    /// One bias off their sum: an e8m0 code again, of 8 bits.
    CodeWraps,
    /// 0 … 254.
    CodeStops,
    /// The exponent field of an f32: 0 below, Inf above.
    Field,
}

impl Added {
    /// The product of two scales, from the exact one.
    pub fn of(self, product: f64) -> f64 {
        let exponent = product.log2().round();
        let sum = exponent + 254.0;
        let code = exponent + 127.0;
        let exponent = match self {
            Added::Wraps => sum.rem_euclid(256.0) - 254.0,
            Added::Stops => sum.min(255.0) - 254.0,
            Added::SignedWraps => (exponent + 128.0).rem_euclid(256.0) - 128.0,
            Added::SignedStops => exponent.clamp(-128.0, 127.0),
            Added::CodeWraps => code.rem_euclid(256.0) - 127.0,
            Added::CodeStops => code.clamp(0.0, 254.0) - 127.0,
            Added::Field if code <= 0.0 => return 0.0,
            Added::Field if code >= 255.0 => return f64::INFINITY,
            Added::Field => exponent,
        };
        exponent.exp2()
    }
}

/// What becomes of a partial sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Narrow {
    Rounded(Format),
    /// Clamped to this magnitude.
    Clamped(f64),
}

impl Narrow {
    pub fn of(self, x: f64) -> f64 {
        match self {
            Narrow::Rounded(f) => native(f).nearest(x),
            Narrow::Clamped(limit) => x.clamp(-limit - 1.0, limit),
        }
    }
}

/// How partial sums are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// Of so many of K.
    pub every: usize,
    pub how: Narrow,
    pub units: Units,
    pub of: Rounds,
    /// Of so many of K, where what is kept is added in f32 and starts again; 0: of all.
    pub within: usize,
}

/// Which sums are kept in the narrow type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounds {
    /// What was summed so far.
    Sum,
    /// Each part by itself, and added in f32.
    Parts,
    /// Each part, and what was summed so far.
    Both,
}

/// What a kernel may have done. The parts that are `None` were done right.
#[derive(Clone)]
pub struct Theory {
    pub class: crate::fault::Class,
    /// Which of those whose sums are kept; 0: none of them.
    pub id: usize,
    /// `b.scale`, `k`, `out`, … : what is read wrong.
    pub variant: String,
    pub operand: &'static str,
    /// In a sentence, with its parameters.
    pub detail: String,
    /// Bits of its parameters.
    pub bits: f64,
    /// Whether a number in it was fitted to the result.
    pub fitted: bool,
    /// Places and codes that were found one by one.
    pub freedom: usize,
    /// How far fitted numbers may be from the true ones, relative to the magnitude of the sum.
    pub slack: f64,
    pub a: Side,
    pub b: Side,
    /// Coefficient of every k.
    pub k: Option<Arc<Vec<f64>>>,
    /// What is summed behind the end of K.
    pub over: Option<Over>,
    /// The type that every product is rounded to, in its own units or in those of the codes.
    pub product: Option<(Format, Units)>,
    pub kept: Option<Kept>,
    /// What becomes of the sum, bias not added; adds it itself.
    pub finish: Option<Finish>,
    /// The magnitude of what an element sums, where `finish` sums something else.
    pub size: Option<At>,
    pub from: Option<From>,
    /// Which group a row of the result belongs to (grouped products).
    pub expert: Option<Arc<Vec<Option<usize>>>>,
    /// The range of K of each part (gradients of weights).
    pub cut: Option<Arc<Vec<Range<usize>>>>,
    pub region: Option<Arc<Region>>,
    /// Elements that read memory which nobody knows.
    pub unseen: Option<Unseen>,
    /// What holds in another region instead.
    pub patch: Option<Arc<Patch>>,
}

/// What is there, whatever it is.
pub fn as_written(s: &System) -> Finish {
    let (actual, cols) = (s.actual.to_vec(), s.cols);
    Arc::new(move |i, j, _| actual[i * cols + j])
}

/// The shortest theories first, equal ones as they stand. Each sort with a closure of its own would be 7 kB of program.
pub fn shortest_first(all: &mut [Theory]) {
    all.order_by(|a, b| a.bits.total_cmp(&b.bits));
}

/// [`shortest_first`] of some of them.
pub fn shortest_of(some: &mut [&Theory]) {
    some.order_by(|a, b| a.bits.total_cmp(&b.bits));
}

/// An element, and what is summed for it.
type Summed = ((usize, usize), (f64, f64));

/// The last of these numbers is kept: the magnitude and each end of the bound ask for those of one element.
pub fn last_kept(of: impl Fn(usize, usize) -> (f64, f64) + Send + Sync + 'static) -> Made {
    let kept: Mutex<Option<Summed>> = Mutex::new(None);
    Arc::new(move |i, j| {
        let known = kept.lock().ok().and_then(|x| *x).filter(|x| x.0 == (i, j));
        if let Some((_, made)) = known {
            return made;
        }
        let made = of(i, j);
        if let Ok(mut kept) = kept.lock() {
            *kept = Some(((i, j), made));
        }
        made
    })
}

impl Theory {
    pub fn new(
        class: crate::fault::Class,
        operand: &'static str,
        variant: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            class,
            id: 0,
            variant: variant.into(),
            operand,
            detail: detail.into(),
            bits: 0.0,
            fitted: false,
            freedom: 0,
            slack: 0.0,
            a: Side::default(),
            b: Side::default(),
            k: None,
            over: None,
            product: None,
            kept: None,
            finish: None,
            size: None,
            from: None,
            expert: None,
            cut: None,
            region: None,
            unseen: None,
            patch: None,
        }
    }
    pub fn bits(mut self, bits: f64) -> Self {
        self.bits = bits;
        self
    }
    /// Sums something else, the bias with it. `right` has the right sums without it, `cols` a row: what the bound adds to one of these is added to
    /// what is made, or nothing would be allowed to it.
    pub fn sums(
        &mut self,
        right: Arc<Vec<f64>>,
        cols: usize,
        made: impl Fn(usize, usize) -> (f64, f64) + Send + Sync + 'static,
    ) {
        let made = last_kept(made);
        let sized = made.clone();
        self.size = Some(Arc::new(move |i, j| sized(i, j).1));
        self.finish = Some(Arc::new(move |i, j, v| {
            let off = v - right[i * cols + j];
            made(i, j).0 + if off.is_finite() { off } else { 0.0 }
        }));
    }
    /// What is read of an operand, to be changed: then it is another theory.
    pub fn side(&mut self, which: Which) -> &mut Side {
        self.id = 0;
        match which {
            Which::A => &mut self.a,
            Which::B => &mut self.b,
        }
    }
    /// Both, where they change different things.
    pub fn and(&self, other: &Self) -> Option<Self> {
        let both = self.joined(other)?;
        Some(Self { variant: self.variant.clone(), detail: format!("{}; and {}", self.detail, other.detail), ..both })
    }
    /// [`Theory::and`] without words: what most pairs are refused by.
    pub fn joined(&self, other: &Self) -> Option<Self> {
        fn one<T: Clone>(a: &Option<T>, b: &Option<T>) -> Option<Option<T>> {
            if a.is_some() && b.is_some() { None } else { Some(a.clone().or_else(|| b.clone())) }
        }
        let placed = |t: &Self| t.region.is_some() || t.patch.is_some();
        (!placed(self) && !placed(other)).then_some(())?;
        Some(Self {
            class: self.class,
            id: 0,
            variant: String::new(),
            operand: self.operand,
            detail: String::new(),
            bits: self.bits + other.bits + 4.0,
            fitted: self.fitted || other.fitted,
            freedom: self.freedom + other.freedom,
            slack: self.slack + other.slack,
            a: self.a.and(&other.a)?,
            b: self.b.and(&other.b)?,
            k: one(&self.k, &other.k)?,
            over: one(&self.over, &other.over)?,
            product: one(&self.product, &other.product)?,
            kept: one(&self.kept, &other.kept)?,
            finish: one(&self.finish, &other.finish)?,
            size: one(&self.size, &other.size)?,
            from: one(&self.from, &other.from)?,
            expert: one(&self.expert, &other.expert)?,
            cut: one(&self.cut, &other.cut)?,
            unseen: one(&self.unseen, &other.unseen)?,
            region: None,
            patch: None,
        })
    }
    /// Both, the name of the second behind that of the first.
    pub fn with(&self, other: &Self) -> Option<Self> {
        let mut both = self.and(other)?;
        both.variant = format!("{} + {}", self.variant, other.name());
        Some(both)
    }
    /// What it says of element (i, j): itself, or what holds there instead.
    pub fn at(&self, i: usize, j: usize) -> &Self {
        self.patch.as_ref().filter(|p| p.0.has(i, j)).map_or(self, |p| p.1.at(i, j))
    }
    /// Whether it sums what it should, in the way it should.
    pub fn sums_right(&self) -> bool {
        let reads = self.a.is_given() && self.b.is_given() && self.expert.is_none() && self.cut.is_none();
        reads && self.k.is_none() && self.over.is_none() && self.product.is_none() && self.kept.is_none()
    }
    /// Whether it changes nothing.
    pub fn is_plain(&self) -> bool {
        self.sums_right() && self.finish.is_none() && self.from.is_none()
    }
    /// A kernel that does everything right.
    pub fn right() -> Self {
        Self::new(crate::fault::Class::VacuousOracle, "out", "", "")
    }
    pub fn name(&self) -> String {
        format!("{}:{}", self.class.name(), self.variant)
    }
}

/// A theory that holds in a region, before the one that it is part of.
pub type Patch = (Arc<Region>, Theory);
