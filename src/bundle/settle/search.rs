//! Finds the arithmetic that gives every bit of a result: cheap on a few elements, then on more, then on all.

use self::confirm::Confirmed;
use super::cuts::{Cut, Join, Run};
use super::region::{Region, Sums};
use super::ways::{Bias, Blocks, Chain, Ending, Extra, Promote, ScalesMeet, Store};
use crate::job::{Data, Job, Output};
use crate::model::accumulate::canonical;
use crate::model::gemm::store;
use crate::model::product::{FactorRows, Kind, Plan, Problem};
use crate::op::Defined;
use crate::order::Order as _;
use crate::parallel;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// Elements that the first look is at.
const FEW: usize = 32;
/// Places that refute what the first look does not, at most.
const REFUTERS: usize = 4;
/// Bits that no exact sum gives which say in what order f32 sums were taken, at least.
const TELL: usize = 16;
/// Elements that are asked first in a large result.
const TELLING: usize = 16;
/// Elements that tell orders of sums apart which are enough, and tiles that are asked at once.
const ENOUGH: usize = 1024;
const AT_ONCE: usize = 8;
/// Elements that are looked at with the first of them.
const NEAR: usize = 4;
/// Chains and cuts that are looked at together.
const BATCH: usize = 64;
/// Rows and columns of the regions that all elements are looked at in; a first one is smaller.
const TILE: usize = 128;
const FIRST: (usize, usize) = (8, 64);

/// Rows of A and of B of a dense product.
type Place<'a> = (Problem<'a>, Range<usize>, Range<usize>);

/// A place in `count` bands of rows, or as many as it has rows.
fn bands<'a>((problem, rows, cols): &Place<'a>, count: usize) -> Vec<Place<'a>> {
    let high = rows.len().div_ceil(count).max(1);
    let band = |from: usize| (problem.clone(), from..rows.end.min(from + high), cols.clone());
    rows.clone().step_by(high).map(band).collect()
}

/// Elements of a place: where each stands in the result, and its value.
pub type Piece = Vec<(usize, f32)>;

/// A cut, the chain of its parts and how that is promoted.
type Chained = (Cut, Chain, Option<Promote>);

/// Where ways are looked at before all elements are.
struct Look<'a> {
    few: Region<'a>,
    refuters: Vec<Region<'a>>,
}

/// The operands and bits of one product.
pub struct Case<'a> {
    pub job: &'a Job,
    pub plan: Plan<'a>,
    pub store: Store,
    /// Bits of the result, row-major; a NaN is `u32::MAX`.
    pub bits: Vec<u32>,
    pub amax: Option<f32>,
    /// Whether what no product writes, the elements of an empty group, is zero.
    empty_is_zero: bool,
    /// Elements of large results that are not the nearest to the ideal: few wrong ways have their bits.
    telling: Vec<usize>,
}

/// One arithmetic, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    pub chain: Chain,
    pub promote: Option<Promote>,
    pub cut: Cut,
    pub join: Join,
    pub ending: Ending,
}

impl Way {
    pub fn words(&self) -> String {
        let promote = self.promote.map_or(String::new(), Promote::words);
        let parts = if self.cut == Cut::Whole { 1 } else { usize::MAX };
        format!("{}{promote}{}{}{}", self.chain.words(), self.cut.words(), self.join.words(parts), self.ending.words())
    }
}

/// What is tried: every combination.
#[derive(Clone, Debug)]
pub struct Ways {
    pub chains: Vec<(Chain, Option<Promote>)>,
    pub cuts: Vec<Cut>,
    pub endings: Vec<Ending>,
}

impl<'a> Case<'a> {
    /// Errors: operands that no kernel of ours multiplies, a result that is not one of the job's.
    pub fn of(job: &'a Job, output: &Output) -> Result<Self> {
        let plan = Plan::of(job)?;
        let store =
            Store::of(job).ok_or_else(|| Error::unsupported("a product", "it writes values, or codes by a given scale"))?;
        let bits = match &output.parts[0].d {
            Data::High(t) => t.data().iter().map(|x| store.float(*x)).collect::<Vec<u32>>(),
            Data::Quantized(q) => q.codes().iter().map(|c| store.code(u32::from(*c))).collect(),
        };
        if bits.len() != plan.rows * plan.cols {
            return Err(Error::shape("result of a product", format!("{} elements", bits.len()), plan.rows * plan.cols));
        }
        let mut case = Self { job, plan, store, bits, amax: output.parts[0].amax, empty_is_zero: true, telling: Vec::new() };
        let mut written = vec![false; case.bits.len()];
        for p in case.problems() {
            written[p.out_row * case.plan.cols..][..p.a_rows.len() * case.plan.cols].fill(true);
        }
        case.empty_is_zero = written.iter().zip(&case.bits).all(|(w, b)| *w || b & 0x7fff_ffff == 0);
        Ok(case)
    }

    /// With the elements that tell ways apart, where most of a result is the nearest to its ideal whatever the way.
    pub fn telling(mut self, ideal: &Defined) -> Self {
        let Some(ideal) = ideal.d.as_slice().filter(|d| d.len() == self.bits.len() && d.len() > FIRST.0 * FIRST.1) else {
            return self;
        };
        let nearest = |i: &usize| self.store.bits(ideal[*i] as f32, false) == self.bits[*i];
        let others: Vec<usize> = (0..ideal.len()).filter(|i| !nearest(i)).collect();
        if 4 * others.len() <= ideal.len() {
            let step = (others.len() / TELLING).max(1);
            self.telling = others.into_iter().step_by(step).take(TELLING).collect();
        }
        self
    }

    /// The dense products that have elements.
    pub fn problems(&self) -> Vec<Problem<'_>> {
        self.plan.problems().filter(|p| p.a.k > 0 && !p.a_rows.is_empty() && !p.b_rows.is_empty()).collect()
    }

    /// Length of the longest sum.
    pub fn k(&self) -> usize {
        self.problems().iter().map(|p| p.a.k).max().unwrap_or(0)
    }

    /// Whether scales change along K.
    pub fn blocked(&self) -> bool {
        self.plan.problems().next().is_some_and(|p| match self.plan.kind {
            Kind::Scaled => p.a.has_blocks() || p.b.has_blocks(),
            _ => p.blocks().len() > 1,
        })
    }

    /// Whether factors have scales, so that a kernel may apply them before it multiplies.
    pub fn has_scales(&self) -> bool {
        self.plan.problems().next().is_some_and(|p| p.a.scales().is_some() || p.b.scales().is_some())
    }

    /// Every right way from sums to values, the usual ones first; `parts` says whether there may be several parts.
    pub fn endings(&self, parts: bool) -> Vec<Ending> {
        let blocked = self.blocked();
        let Some(p) = self.plan.problems().next() else { return Vec::new() };
        let scaled = p.a.scales().is_some() || p.b.scales().is_some();
        let integer = self.plan.kind == Kind::Integer;
        let orders: Vec<(ScalesMeet, Option<Blocks>)> = if blocked {
            // a's scale can wait where it does not change along K.
            let late = |b: &Blocks| b.scales != ScalesMeet::Late || !p.a.has_blocks();
            let mut all: Vec<Blocks> = Blocks::ALL.into_iter().filter(late).collect();
            if integer {
                all.order_by_key(|b| (b.scales != ScalesMeet::Late, !b.fused));
            }
            all.into_iter().map(|b| (b.scales, Some(b))).collect()
        } else if scaled {
            [ScalesMeet::AFirst, ScalesMeet::BFirst, ScalesMeet::Both].map(|s| (s, None)).to_vec()
        } else {
            vec![(ScalesMeet::AFirst, None)]
        };
        let biases: &[(Bias, bool)] = match (self.plan.bias, integer, parts) {
            (None, true, _) => &[(Bias::None, true), (Bias::None, false)],
            (None, false, _) => &[(Bias::None, false)],
            (Some(_), _, true) => &[(Bias::Added, false), (Bias::Fused, false), (Bias::First, false)],
            (Some(_), _, false) => &[(Bias::Added, false), (Bias::Fused, false)],
        };
        let each: &[bool] = if parts && scaled && !blocked { &[false, true] } else { &[false] };
        // A bias in the first part is right where no scale comes after it.
        let global = |s: &FactorRows| s.scales().is_some_and(|q| q.level().is_some());
        let met = |blocks: Option<Blocks>, each: bool| match blocks {
            _ if global(p.a) || global(p.b) => false,
            Some(blocks) => blocks.scales != ScalesMeet::Late,
            None => each || !scaled,
        };
        let mut all = Vec::new();
        for (scales, blocks) in orders {
            for each in each {
                for (bias, plus_zero) in biases.iter().filter(|b| b.0 != Bias::First || met(blocks, *each)) {
                    let (each, bias, plus_zero) = (*each, *bias, *plus_zero);
                    all.push(Ending { scales, blocks, each, bias, plus_zero, extra: Extra::default() });
                }
            }
        }
        all
    }

    /// A few elements of the result that say much: as many columns as a vector has lanes, in rows that are not zeros. `nth` looks elsewhere.
    pub fn few(&self, nth: usize) -> Option<Region<'_>> {
        let problems = self.problems();
        let p = problems.get(nth * (problems.len() / 3).max(1) % problems.len().max(1))?;
        let cols = FEW.min(p.b_rows.len());
        let rows = (FEW / cols).clamp(1, p.a_rows.len());
        let n = self.plan.cols;
        let zeros = |row: usize, col: usize| {
            let at = (p.out_row + row - p.a_rows.start) * n + col - p.b_rows.start;
            self.bits[at..at + cols].iter().filter(|b| **b & 0x7fff_ffff == 0 || **b == u32::MAX).count()
        };
        let step = (p.a_rows.len() / 64).max(1);
        let starts = (p.b_rows.start..=p.b_rows.end - cols).step_by(cols).collect::<Vec<_>>();
        let col = starts[nth * 7 % starts.len()];
        let last = p.a_rows.end - rows;
        let candidates: Vec<usize> = (p.a_rows.start..=last).step_by(step).collect();
        let turn = nth * candidates.len() / 3;
        let row =
            (0..candidates.len()).map(|i| candidates[(i + turn) % candidates.len()]).min_by_key(|row| zeros(*row, col))?;
        Some(Region::new(&self.plan, p.clone(), row..row + rows, col..col + cols))
    }

    /// Tiles that hold every element once.
    fn regions(&self) -> Vec<Place<'_>> {
        self.places(TILE, TILE)
    }

    fn places(&self, high: usize, wide: usize) -> Vec<Place<'_>> {
        let mut all = Vec::new();
        let cut = |r: &Range<usize>, by: usize| r.clone().step_by(by).map(|i| i..r.end.min(i + by)).collect::<Vec<_>>();
        for p in self.problems() {
            for rows in cut(&p.a_rows, high) {
                all.extend(cut(&p.b_rows, wide).into_iter().map(|cols| (p.clone(), rows.clone(), cols)));
            }
        }
        all
    }

    /// The first of `ways` that gives every bit, or the first `most` elements of a large result. Errors: a model that does not take the
    /// operands.
    pub fn find(&self, ways: &Ways, most: usize) -> Result<Option<Way>> {
        self.search(ways, most, &mut None)
    }

    /// The same; where none gives the amax, `but_for_amax` is the first that gives all else.
    pub fn search(&self, ways: &Ways, most: usize, but_for_amax: &mut Option<Way>) -> Result<Option<Way>> {
        let all: Vec<Chained> =
            ways.cuts.iter().flat_map(|cut| ways.chains.iter().map(|(chain, promote)| (*cut, *chain, *promote))).collect();
        // Each thread has chains of its own: what it summed serves other cuts of K and promotions.
        let threads = rayon::current_num_threads();
        let Some(mut looks) = (0..threads).map(|_| self.look()).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let owner = |chain: &Chain| ways.chains.iter().position(|c| c.0 == *chain).map_or(0, |nth| nth % threads);
        // The first is often the right one: more and more are looked at together.
        let (mut from, mut count, mut learned) = (0, 1, 0);
        // Where ways have their largest value that give all codes and another amax. Ways differ by a rounding: of others that one value is asked
        // before all are. Codes of FP8 are those of thousands of ways.
        let mut peaks: Vec<Region> = Vec::new();
        while from < all.len() {
            let batch: Vec<(usize, &Chained)> = all.iter().enumerate().skip(from).take(count).collect();
            (from, count) = (from + batch.len(), (2 * count).min(BATCH));
            let of = |(thread, look): (usize, &mut Look)| -> Result<Vec<(usize, Vec<Way>)>> {
                let mine = batch.iter().filter(|(_, chained)| owner(&chained.1) == thread);
                mine.map(|(nth, chained)| Ok((*nth, self.alive(look, chained, &ways.endings)?))).collect()
            };
            let mut alive: Vec<(usize, Vec<Way>)> = match batch.len() {
                1 => looks.iter_mut().enumerate().map(of).collect::<Result<Vec<_>>>()?,
                _ => looks.par_iter_mut().enumerate().map(of).collect::<Result<Vec<_>>>()?,
            }
            .into_iter()
            .flatten()
            .collect();
            alive.order_by_key(|a| a.0);
            // What refutes one of a batch is asked of those after it.
            let mut new: Vec<usize> = Vec::new();
            let mut refuters: Vec<Region> = Vec::new();
            for (_, mut alive) in alive {
                for region in &mut refuters {
                    alive = self.left(region, alive)?;
                }
                alive = self.with_amax(&mut peaks, alive)?;
                if alive.is_empty() {
                    continue;
                }
                match self.confirm(alive, most)? {
                    Confirmed::By(way) => return Ok(Some(way)),
                    Confirmed::RefutedAt(at) if learned < REFUTERS => {
                        learned += 1;
                        new.push(at);
                        refuters.extend(self.around(at, FEW));
                    }
                    Confirmed::ButForAmax(way, at) => {
                        peaks.extend(self.around(at, 1));
                        but_for_amax.get_or_insert(way);
                    }
                    Confirmed::RefutedAt(_) | Confirmed::No => {}
                }
            }
            for look in &mut looks {
                look.refuters.extend(new.iter().filter_map(|at| self.around(*at, FEW)));
            }
        }
        Ok(None)
    }

    /// Where ways are looked at first: a few elements, then those that tell ways apart. Those around an element that refuted a way come
    /// later: a result that is wrong in one place is right in all others, and is refuted there at once.
    fn look(&self) -> Option<Look<'_>> {
        if let Some(few) = self.telling.first().and_then(|at| self.around(*at, NEAR)) {
            return Some(Look { few, refuters: self.telling.iter().skip(1).filter_map(|at| self.around(*at, 1)).collect() });
        }
        let few = self.few(0)?;
        // Most are refuted by one of them, most of the others by its neighbours.
        let number = |at: &usize| self.bits[*at] & 0x7fff_ffff != 0 && self.bits[*at] != u32::MAX;
        let one = (0..few.elements()).map(|i| few.at(i)).find(number);
        Some(match one.and_then(|at| Some((self.around(at, 1)?, self.around(at, NEAR)?))) {
            Some((one, near)) => Look { few: one, refuters: vec![near, few] },
            None => Look { few, refuters: Vec::new() },
        })
    }

    /// Those that give every bit there.
    fn alive(&self, look: &mut Look, (cut, chain, promote): &Chained, endings: &[Ending]) -> Result<Vec<Way>> {
        let mut alive = self.first(&mut look.few, (*cut, *chain, *promote), endings)?;
        for region in &mut look.refuters {
            if alive.is_empty() {
                break;
            }
            alive = self.left(region, alive)?;
        }
        Ok(alive)
    }

    /// Those of `alive` that give every bit of a region.
    fn left(&self, region: &mut Region, alive: Vec<Way>) -> Result<Vec<Way>> {
        let mut left = Vec::new();
        for way in alive {
            let truncated = way.ending.extra.truncated;
            if self.each(region, &way, |at, value| self.store.bits(value, truncated) == self.bits[at])? {
                left.push(way);
            }
        }
        Ok(left)
    }

    /// Those of `alive` that give the amax at one of these elements; all where there are none.
    fn with_amax(&self, peaks: &mut [Region], alive: Vec<Way>) -> Result<Vec<Way>> {
        let (Some(amax), false) = (self.amax, peaks.is_empty()) else { return Ok(alive) };
        let mut left = Vec::new();
        for way in alive {
            let mut is = false;
            for peak in peaks.iter_mut() {
                is |= self.each(peak, &way, |_, value| value.abs().to_bits() == amax.to_bits())?;
            }
            if is {
                left.push(way);
            }
        }
        Ok(left)
    }

    /// `count` elements beside one, in its row.
    fn around(&self, at: usize, count: usize) -> Option<Region<'_>> {
        let (row, col) = (at / self.plan.cols, at % self.plan.cols);
        let p = self.problems().into_iter().find(|p| (p.out_row..p.out_row + p.a_rows.len()).contains(&row))?;
        let (i, first) = (p.a_rows.start + row - p.out_row, col / count * count);
        let cols = p.b_rows.start + first..p.b_rows.end.min(p.b_rows.start + first + count);
        Some(Region::new(&self.plan, p, i..i + 1, cols))
    }

    /// Those that give every bit of a few elements.
    fn first(&self, few: &mut Region, (cut, chain, promote): Chained, endings: &[Ending]) -> Result<Vec<Way>> {
        let mut alive = Vec::new();
        let count = cut.parts(few.k()).len();
        let joins = Join::all(count);
        let mut parts = vec![0.0f32; count];
        let wanted: Vec<_> = (0..few.elements()).map(|i| (few.meets(chain, i), self.bits[few.at(i)])).collect();
        for ending in endings.iter().filter(|e| count > 1 || !(e.each || e.bias == Bias::First)) {
            let sums = few.parts_of_cut(chain, promote, cut, ending.blocks)?;
            for join in &joins {
                let same = wanted.iter().enumerate().all(|(i, (meets, bits))| {
                    parts.iter_mut().zip(sums.iter()).for_each(|(p, s)| *p = s[i]);
                    let value = canonical(ending.value(&parts, join, meets));
                    self.store.bits(value, ending.extra.truncated) == *bits
                });
                if same {
                    alive.push(Way { chain, promote, cut, join: join.clone(), ending: *ending });
                }
            }
        }
        Ok(alive)
    }

    /// Hands every value of a region to `see` until that returns false; whether it never did.
    pub fn each(&self, region: &mut Region, way: &Way, see: impl FnMut(usize, f32) -> bool) -> Result<bool> {
        let sums = region.parts_of_cut(way.chain, way.promote, way.cut, way.ending.blocks)?;
        Ok(self.every(region, way, &sums, see))
    }

    /// [`Case::each`] with K cut into these parts.
    pub fn each_of(&self, region: &mut Region, way: &Way, runs: &[Run], see: impl FnMut(usize, f32) -> bool) -> Result<bool> {
        let sums = region.parts(way.chain, way.promote, runs, way.ending.blocks)?;
        Ok(self.every(region, way, &sums, see))
    }

    fn every(&self, region: &Region, way: &Way, sums: &[Sums], mut see: impl FnMut(usize, f32) -> bool) -> bool {
        // A group that is shorter than the others has fewer parts.
        let other = match &way.join {
            Join::Order(order) if order.len() != sums.len() => Some(Join::Order((0..sums.len()).collect())),
            Join::Pairs(_) if sums.len() != 4 => Some(Join::Tree),
            _ => None,
        };
        let join = other.as_ref().unwrap_or(&way.join);
        let mut parts = vec![0.0f32; sums.len()];
        (0..region.elements()).all(|i| {
            parts.iter_mut().zip(sums).for_each(|(p, s)| *p = s[i]);
            see(region.at(i), canonical(way.ending.value(&parts, join, &region.meets(way.chain, i))))
        })
    }

    /// Everything that `way` writes.
    pub fn output(&self, way: &Way) -> Result<Output> {
        store(self.job, &self.plan, self.values(way)?)
    }

    /// Its values before they are stored; rows that are nobody's are 0.
    pub fn values(&self, way: &Way) -> Result<Vec<f32>> {
        let regions = self.regions();
        let pieces: Vec<Piece> =
            parallel::collect(regions.len(), |r| self.piece(way, &regions[r])).into_iter().collect::<Result<_>>()?;
        let mut values = vec![0.0f32; self.bits.len()];
        pieces.into_iter().flatten().for_each(|(at, value)| values[at] = value);
        Ok(values)
    }

    /// The values of the first tiles that hold about `most` elements.
    pub fn first_values(&self, way: &Way, most: usize) -> Result<Piece> {
        let enough = self.enough(most);
        let pieces: Vec<Piece> =
            parallel::collect(enough.len(), |p| self.piece(way, &enough[p])).into_iter().collect::<Result<_>>()?;
        Ok(pieces.concat())
    }

    /// Bits of the exact sums of every block of K before they meet a scale, of the first tiles that hold about `most` elements.
    pub fn first_unscaled(&self, most: usize) -> Result<Vec<(usize, Vec<u32>)>> {
        let of = |(p, rows, cols): &Place| -> Result<Vec<(usize, Vec<u32>)>> {
            let mut region = Region::new(&self.plan, p.clone(), rows.clone(), cols.clone());
            let blocks: Vec<Run> = p.blocks().into_iter().map(|block| vec![block]).collect();
            let sums = region.parts(Chain::Exact, None, &blocks, None)?;
            let bits = |i: usize| sums.iter().map(|s| s[i].to_bits()).collect();
            Ok((0..region.elements()).map(|i| (region.at(i), bits(i))).collect())
        };
        let enough = self.enough(most);
        Ok(parallel::collect(enough.len(), |p| of(&enough[p])).into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// The first tiles that hold about `most` elements.
    fn enough(&self, most: usize) -> Vec<Place<'_>> {
        let mut count = 0;
        let inside = |(_, r, c): &Place| {
            let before = count;
            count += r.len() * c.len();
            before < most
        };
        self.regions().into_iter().take_while(inside).collect()
    }

    /// The values of one place, with where they stand.
    fn piece(&self, way: &Way, (p, rows, cols): &Place) -> Result<Piece> {
        let mut region = Region::new(&self.plan, p.clone(), rows.clone(), cols.clone());
        let mut piece = Vec::with_capacity(region.elements());
        self.each(&mut region, way, |at, value| {
            piece.push((at, value));
            true
        })?;
        Ok(piece)
    }

    /// `count` places of at most `rows` × `cols` elements spread over the result, row by row in each; `None` where that is most of it.
    pub fn spread(&self, way: &Way, count: usize, (rows, cols): (usize, usize)) -> Result<Option<Vec<Piece>>> {
        let all = self.places(rows, cols);
        if all.len() < 2 * count {
            return Ok(None);
        }
        let chosen: Vec<Place> = (0..count).map(|i| all[i * all.len() / count + i % (all.len() / count)].clone()).collect();
        parallel::collect(count, |p| self.piece(way, &chosen[p])).into_iter().collect::<Result<_>>().map(Some)
    }

    /// Whether the bits are those of this order of sums, and not of any: most of those that differ from what exact sums give. Of a large
    /// result, the first [`ENOUGH`] that differ, in tiles from all over it.
    pub fn tells(&self, way: &Way) -> Result<bool> {
        if way.chain == Chain::Exact {
            return Ok(false);
        }
        let exactly = Way { chain: Chain::Exact, ..way.clone() };
        // (those that differ from exact sums, those of them with the kernel's bits)
        let of = |place: &Place| -> Result<(usize, usize)> {
            let bits = |way: &Way| -> Result<Vec<(usize, u32)>> {
                Ok(self.piece(way, place)?.into_iter().map(|(at, v)| (at, self.store.bits(v, false))).collect())
            };
            let (own, exact) = (bits(way)?, bits(&exactly)?);
            let others = own.iter().zip(&exact).filter(|(own, exact)| own.1 != exact.1);
            Ok(others.fold((0, 0), |n, ((at, own), _)| (n.0 + 1, n.1 + usize::from(*own == self.bits[*at]))))
        };
        let places = self.regions();
        let apart = places.len().div_ceil(AT_ONCE);
        let (mut others, mut same) = (0, 0);
        for first in 0..apart {
            let turn: Vec<&Place> = places.iter().skip(first).step_by(apart).collect();
            for counted in parallel::collect(turn.len(), |p| of(turn[p])) {
                let (o, s) = counted?;
                (others, same) = (others + o, same + s);
            }
            if others >= ENOUGH {
                break;
            }
        }
        Ok(same >= TELL && 4 * same >= 3 * others)
    }

    /// Of `ways`, the one with the fewest other bits among a few elements, and how many.
    pub fn nearest(&self, ways: &Ways) -> Result<Option<Way>> {
        let mut best: Option<(usize, Way)> = None;
        let mut regions: Vec<_> = (0..3).filter_map(|nth| self.few(nth)).collect();
        for cut in &ways.cuts {
            for (chain, promote) in &ways.chains {
                for ending in ways.endings.iter().filter(|e| !(e.each || e.bias == Bias::First)) {
                    let join = Join::Order((0..cut.parts(self.k()).len()).collect());
                    let way = Way { chain: *chain, promote: *promote, cut: *cut, join, ending: *ending };
                    let mut count = 0;
                    for region in &mut regions {
                        self.each(region, &way, |at, value| {
                            count += usize::from(self.store.bits(value, false) != self.bits[at]);
                            true
                        })?;
                    }
                    if best.as_ref().is_none_or(|b| count < b.0) {
                        best = Some((count, way));
                    }
                }
            }
        }
        Ok(best.map(|b| b.1))
    }
}

#[cfg(test)]
impl Way {
    /// Sums of all of K as it stands, scales one after the other.
    pub fn plain(chain: Chain) -> Self {
        Self { chain, promote: None, cut: Cut::Whole, join: Join::Order(vec![0]), ending: Ending::PLAIN }
    }
}

mod confirm;
#[cfg(test)]
mod tests;
