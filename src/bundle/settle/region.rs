//! The sums of parts of K for some rows and columns of a product, each chain computed once however many arithmetics ask for it.

use super::cuts::{Cut, Run, len, slice};
use super::ways::{Blocks, Chain, Chunk, Meets, Promote};
use crate::model::accumulate::{canonical, int32};
use crate::model::bulk::{self, Matrix};
use crate::model::gemm::corrected;
use crate::model::lowered;
use crate::model::mma::step;
use crate::model::product::{FactorRows, Kind, Plan, Problem};
use crate::model::table::{self, Unit};
use crate::model::{Accumulator, Inner};
use crate::tensor::round_to;
use crate::{Format, Result};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Sums of all elements of a region, row-major.
pub type Sums = Arc<Vec<f32>>;

/// What each block of K gives to a part before it meets its scales: number, sums.
type OfBlocks = Vec<(usize, Sums)>;

/// The sums of the parts of a cut, which many endings of one arithmetic ask for one after the other.
struct Last {
    of: (Chain, Option<Promote>, Cut),
    runs: Vec<Run>,
    of_blocks: Option<Vec<OfBlocks>>,
    made: Option<(Option<Blocks>, Arc<Vec<Sums>>)>,
}

/// A range of K, the scales of the rows there and those of the columns.
type Block = (Range<usize>, Vec<f32>, Vec<f32>);

/// Rows `rows` of A and `cols` of B of one dense product.
pub struct Region<'a> {
    plan: &'a Plan<'a>,
    problem: Problem<'a>,
    pub rows: Range<usize>,
    pub cols: Range<usize>,
    a: Matrix,
    b: Matrix,
    finite: bool,
    /// Blocks of K that have scales of their own: scales of the rows, and of the columns.
    blocks: Arc<Vec<Block>>,
    /// Factors times their scales.
    dequantized: OnceCell<[Matrix; 2]>,
    chains: HashMap<(Chain, Option<Promote>, Run), Sums>,
    last: Option<Last>,
}

fn load(s: &FactorRows, rows: Range<usize>) -> Matrix {
    let mut values = vec![0.0; rows.len() * s.k];
    for (row, out) in rows.clone().zip(values.chunks_mut(s.k.max(1))) {
        s.fill(row, 0..s.k, out);
    }
    Matrix { format: s.format, rows: rows.len(), k: s.k, values }
}

/// The k of a run, in its order; all of K as it stands is not copied.
fn gathered<'m>(m: &'m Matrix, run: &Run, format: Format) -> Gathered<'m> {
    let k = len(run);
    if format == m.format && run.len() == 1 && k == m.k {
        return Gathered::Whole(m);
    }
    // Orders of K are of single ones: an index each.
    let single = run.len() == k;
    let mut values = Vec::with_capacity(m.rows * k);
    for i in 0..m.rows {
        let row = m.row(i);
        if single {
            values.extend(run.iter().map(|r| row[r.start]));
        } else {
            run.iter().for_each(|r| values.extend_from_slice(&row[r.clone()]));
        }
    }
    Gathered::Some(Matrix { format, rows: m.rows, k, values })
}

/// A matrix, or some of its columns.
enum Gathered<'m> {
    Whole(&'m Matrix),
    Some(Matrix),
}

impl std::ops::Deref for Gathered<'_> {
    type Target = Matrix;
    fn deref(&self) -> &Matrix {
        match self {
            Gathered::Whole(m) => m,
            Gathered::Some(m) => m,
        }
    }
}

impl<'a> Region<'a> {
    /// `rows` and `cols` are rows of the problem's A and B.
    pub fn new(plan: &'a Plan<'a>, problem: Problem<'a>, rows: Range<usize>, cols: Range<usize>) -> Self {
        let (a, b) = (load(problem.a, rows.clone()), load(problem.b, cols.clone()));
        let finite = a.values.iter().chain(&b.values).all(|x| x.is_finite());
        let scales = |side: &FactorRows, lines: &Range<usize>, k: usize| lines.clone().map(|i| side.scale_inv(i, k)).collect();
        let block = |block: Range<usize>| {
            let (of_a, of_b) = (scales(problem.a, &rows, block.start), scales(problem.b, &cols, block.start));
            (block, of_a, of_b)
        };
        let blocks = Arc::new(problem.blocks().into_iter().map(block).collect());
        Self {
            plan,
            problem,
            rows,
            cols,
            a,
            b,
            finite,
            blocks,
            dequantized: OnceCell::new(),
            chains: HashMap::new(),
            last: None,
        }
    }

    pub fn elements(&self) -> usize {
        self.rows.len() * self.cols.len()
    }

    /// Length of its sums.
    pub fn k(&self) -> usize {
        self.a.k
    }

    /// The most elements that share neither a row nor a column, rows of equal factors counted once.
    pub fn different(&self) -> usize {
        let rows = |m: &Matrix| {
            let bits = |i: usize| m.row(i).iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            (0..m.rows).map(bits).collect::<HashSet<_>>().len()
        };
        rows(&self.a).min(rows(&self.b))
    }

    /// Σ (a·b)² over K of every element, as the factors are stored.
    pub fn squares(&self) -> Vec<f64> {
        let square = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (f64::from(*a) * f64::from(*b)).powi(2)).sum();
        let of = |i: usize| square(self.a.row(i / self.cols.len()), self.b.row(i % self.cols.len()));
        (0..self.elements()).map(of).collect()
    }

    /// Σ s², s the partial sums of every element in the order of K, times how often a product of its sum is there, on average: equal ones err
    /// by the same remainder at every step. Of random products it is K·Σ(a·b)²/2, at least that always.
    pub fn drifts(&self) -> Vec<f64> {
        let of = |(a, b): (&[f32], &[f32])| {
            let mut products: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).collect();
            let (mut sum, mut squares, mut own) = (0.0, 0.0, 0.0);
            products.iter().for_each(|p| (sum, squares, own) = (sum + p, squares + (sum + p).powi(2), own + p * p));
            products.sort_unstable_by(f64::total_cmp);
            let pairs: usize = products.chunk_by(|x, y| x == y).map(|same| same.len().pow(2)).sum();
            let k = products.len().max(1) as f64;
            squares.max(0.5 * k * own) * pairs as f64 / k
        };
        let n = self.cols.len();
        (0..self.elements()).map(|i| of((self.a.row(i / n), self.b.row(i % n)))).collect()
    }

    /// What the sum of element `i` is multiplied by; 0 where scales change along K.
    pub fn scale(&self, i: usize) -> f64 {
        if self.blocks.len() > 1 {
            return 0.0;
        }
        let m = self.meets(Chain::Exact, i);
        f64::from(m.a) * f64::from(m.b) * f64::from(m.global.unwrap_or(1.0))
    }

    /// Forgets the sums that were made.
    pub fn forget(&mut self) {
        self.chains.clear();
        self.last = None;
    }

    /// Where element `i` of the region stands in the whole result.
    pub fn at(&self, i: usize) -> usize {
        let (row, col) = (self.rows.start + i / self.cols.len(), self.cols.start + i % self.cols.len());
        let (row, col) = (row - self.problem.a_rows.start, col - self.problem.b_rows.start);
        (self.problem.out_row + row) * self.plan.cols + col
    }

    /// What the sum of element `i` by `chain` meets.
    pub fn meets(&self, chain: Chain, i: usize) -> Meets {
        let p = &self.problem;
        let before = chain.scales_first();
        let (row, col) = (self.rows.start + i / self.cols.len(), self.cols.start + i % self.cols.len());
        let (ga, gb) = (p.a.over_row(row), p.b.over_row(col));
        Meets {
            a: if before { 1.0 } else { p.a.scale_inv(row, 0) },
            b: if before { 1.0 } else { p.b.scale_inv(col, 0) },
            scaled: !before && (p.a.scales().is_some() || p.b.scales().is_some()),
            global: (!before && (ga.is_some() || gb.is_some())).then(|| ga.unwrap_or(1.0) * gb.unwrap_or(1.0)),
            bias: self.plan.bias.map_or(0.0, |b| b[col]),
        }
    }

    /// The sums of every part. With `blocks` they are scaled: block by block along K.
    pub fn parts(
        &mut self,
        chain: Chain,
        promote: Option<Promote>,
        parts: &[Run],
        blocks: Option<Blocks>,
    ) -> Result<Vec<Sums>> {
        self.made(chain, promote, parts, blocks, &mut None)
    }

    /// [`Region::parts`] of a cut. Those of the last one are kept: the same with other scales is cheap.
    pub fn parts_of_cut(
        &mut self,
        chain: Chain,
        promote: Option<Promote>,
        cut: Cut,
        blocks: Option<Blocks>,
    ) -> Result<Arc<Vec<Sums>>> {
        let of = (chain, promote, cut);
        let new = || Last { of, runs: cut.parts(self.a.k), of_blocks: None, made: None };
        let mut last = self.last.take().filter(|l| l.of == of).unwrap_or_else(new);
        let made = match last.made.take().filter(|m| m.0 == blocks) {
            Some((_, made)) => made,
            None => Arc::new(self.made(chain, promote, &last.runs, blocks, &mut last.of_blocks)?),
        };
        last.made = Some((blocks, made.clone()));
        self.last = Some(last);
        Ok(made)
    }

    /// The sums of every part; `of_blocks` keeps what blocks give before they meet their scales.
    fn made(
        &mut self,
        chain: Chain,
        promote: Option<Promote>,
        parts: &[Run],
        blocks: Option<Blocks>,
        of_blocks: &mut Option<Vec<OfBlocks>>,
    ) -> Result<Vec<Sums>> {
        let Some(blocks) = blocks.filter(|_| !chain.scales_first()) else {
            return parts.iter().map(|run| self.sum(chain, promote, run)).collect();
        };
        let all = match of_blocks.take() {
            Some(all) => all,
            None => parts.iter().map(|run| self.of_blocks(chain, promote, run)).collect::<Result<_>>()?,
        };
        Ok(of_blocks.insert(all).iter().map(|one| self.scaled_sums(one, blocks)).collect())
    }

    /// What each block of K gives to a run.
    fn of_blocks(&mut self, chain: Chain, promote: Option<Promote>, run: &Run) -> Result<OfBlocks> {
        let mut all = OfBlocks::new();
        let of_blocks = self.blocks.clone();
        for (nth, (block, ..)) in of_blocks.iter().enumerate() {
            let inside: Run =
                run.iter().map(|r| r.start.max(block.start)..r.end.min(block.end)).filter(|r| !r.is_empty()).collect();
            if !inside.is_empty() {
                all.push((nth, self.sum(chain, promote, &inside)?));
            }
        }
        Ok(all)
    }

    /// The sums of blocks with their scales, added in the order of K.
    fn scaled_sums(&self, of_blocks: &OfBlocks, blocks: Blocks) -> Sums {
        let mut y = vec![0.0f32; self.elements()];
        let n = self.cols.len();
        for (nth, sums) in of_blocks {
            let (_, of_a, of_b) = &self.blocks[*nth];
            for (i, s_a) in of_a.iter().enumerate() {
                for (j, s_b) in of_b.iter().enumerate() {
                    let at = i * n + j;
                    y[at] = blocks.add(y[at], sums[at], *s_a, *s_b);
                }
            }
        }
        Arc::new(y)
    }

    /// The promoted sum of a run.
    fn sum(&mut self, chain: Chain, promote: Option<Promote>, run: &Run) -> Result<Sums> {
        let promote = promote.filter(|p| p.every < len(run) || p.main != Format::F32);
        let key = (chain, promote, run.clone());
        if let Some(sums) = self.chains.get(&key) {
            return Ok(sums.clone());
        }
        let sums = match promote {
            None => self.chain(chain, run)?,
            Some(p) => {
                let round = |x: f32| if p.main == Format::F32 { x } else { round_to(p.main, x) };
                let mut main = vec![0.0f32; self.elements()];
                for from in (0..len(run)).step_by(p.every) {
                    if p.chunk == Chunk::Carried {
                        self.carry(chain, &slice(run, from, p.every), &mut main)?;
                        main.iter_mut().for_each(|x| *x = round(*x));
                        continue;
                    }
                    let chunk = self.sum(chain, None, &slice(run, from, p.every))?;
                    for (main, c) in main.iter_mut().zip(chunk.iter()) {
                        *main = round(*main + if p.chunk == Chunk::Rounded { round(*c) } else { *c });
                    }
                }
                main.iter_mut().for_each(|x| *x = canonical(*x));
                main
            }
        };
        let sums = Arc::new(sums);
        self.chains.insert(key, sums.clone());
        Ok(sums)
    }

    /// The sums that go on from `sums` over a run: by a device's steps, else one product after the other in f32.
    fn carry(&self, chain: Chain, run: &Run, sums: &mut [f32]) -> Result<()> {
        let (a, b) = (gathered(&self.a, run, self.a.format), gathered(&self.b, run, self.b.format));
        let unit = match chain {
            Chain::Unit(name) => Some(table::find(name)?.unit(a.format, b.format)?),
            _ => None,
        };
        for (sums, x) in sums.chunks_mut(b.rows.max(1)).zip((0..a.rows).map(|i| a.row(i))) {
            for (j, sum) in sums.iter_mut().enumerate() {
                let chunks = |w: usize| x.chunks(w).zip(b.row(j).chunks(w));
                *sum = match unit {
                    Some(Unit::Step(s)) => chunks(s.w).fold(*sum, |c, (x, y)| step(s, a.format, b.format, x, y, c)),
                    Some(Unit::Lowered(half)) => {
                        chunks(lowered::K).fold(*sum, |c, (x, y)| lowered::instruction(half, a.format, b.format, x, y, c))
                    }
                    None => x.iter().zip(b.row(j)).fold(*sum, |c, (x, y)| x.mul_add(*y, c)),
                };
            }
        }
        Ok(())
    }

    fn chain(&self, chain: Chain, run: &Run) -> Result<Vec<f32>> {
        let mut out = vec![0.0f32; self.elements()];
        if self.plan.kind == Kind::Integer {
            self.integers(run, &mut out);
            return Ok(out);
        }
        let as_read = |m: &Matrix| if let Chain::Widened(_, f) = chain { f } else { m.format };
        let (a, b) = (gathered(&self.a, run, as_read(&self.a)), gathered(&self.b, run, as_read(&self.b)));
        match chain {
            Chain::Sixteen { format, fused } => {
                for (out, x) in out.chunks_mut(b.rows.max(1)).zip((0..a.rows).map(|i| a.row(i))) {
                    out.iter_mut().enumerate().for_each(|(j, out)| *out = sixteen(format, fused, x, b.row(j)));
                }
            }
            Chain::Dequantized { fused } => {
                let [a, b] = self.dequantized();
                let (a, b) = (gathered(a, run, Format::F32), gathered(b, run, Format::F32));
                match fused {
                    true => bulk::sums(&Accumulator::new(Inner::F32Sequential), &a, &b, &mut out)?,
                    false => bulk::unfused(&a, &b, &mut out),
                }
            }
            Chain::Scaled(name) => {
                // Codes of 8 bits by a power of two are numbers of bf16; those that leave its range are rounded, or Inf.
                let of = |m: &Matrix| {
                    let m = gathered(m, run, Format::F32);
                    let values = m.values.iter().map(|x| round_to(Format::Bf16, *x)).collect();
                    Matrix { format: Format::Bf16, rows: m.rows, k: m.k, values }
                };
                let [a, b] = self.dequantized();
                let (a, b) = (of(a), of(b));
                match table::find(name)?.unit(self.a.format, self.b.format)? {
                    Unit::Step(step) if a.values.iter().chain(&b.values).all(|x| x.is_finite()) => {
                        bulk::steps(step, &a, &b, &mut out)
                    }
                    _ => out.fill(f32::NAN),
                }
            }
            Chain::Narrowed { .. } if !self.finite => out.fill(f32::NAN),
            Chain::Narrowed { .. } => {
                if let Some(step) = chain.step() {
                    bulk::steps(step, &a, &b, &mut out);
                }
            }
            _ => bulk::sums(&Accumulator::new(chain.inner().unwrap_or(Inner::Exact)), &a, &b, &mut out)?,
        }
        Ok(out)
    }

    fn dequantized(&self) -> &[Matrix; 2] {
        self.dequantized.get_or_init(|| {
            let (rows, cols) = (self.rows.clone(), self.cols.clone());
            [self.scaled(&self.a, rows, self.problem.a), self.scaled(&self.b, cols, self.problem.b)]
        })
    }

    /// Every code times its scale, that times the global one, each rounded to f32.
    fn scaled(&self, m: &Matrix, rows: Range<usize>, side: &FactorRows) -> Matrix {
        let mut values = m.values.clone();
        for (row, values) in rows.zip(values.chunks_mut(m.k.max(1))) {
            let global = side.over_row(row).unwrap_or(1.0);
            values.iter_mut().enumerate().for_each(|(k, x)| *x *= side.scale_inv(row, k) * global);
        }
        Matrix { format: Format::F32, rows: m.rows, k: m.k, values }
    }

    /// Integer products with the terms of the zero points, rounded to f32. All of a run has one zero point a row.
    fn integers(&self, run: &Run, out: &mut [f32]) {
        let start = run.first().map_or(0, |r| r.start);
        let (a, b) = (gathered(&self.a, run, self.a.format), gathered(&self.b, run, self.b.format));
        let total = |x: &[f32]| x.iter().fold(0i32, |sum, x| sum.wrapping_add(*x as i32));
        let sums_b: Vec<i32> = (0..b.rows).map(|j| total(b.row(j))).collect();
        let integers = |m: &Matrix| m.values.iter().map(|x| *x as i32).collect::<Vec<i32>>();
        let (xs, ws) = (integers(&a), integers(&b));
        let k = a.k;
        for (i, (row, out)) in self.rows.clone().zip(out.chunks_mut(b.rows.max(1))).enumerate() {
            let (sum_a, zx) = (total(a.row(i)), self.problem.a.zero(row, start));
            for (j, (col, out)) in self.cols.clone().zip(out).enumerate() {
                let mut sum = 0;
                bulk::int32(&xs[i * k..(i + 1) * k], &ws[j * k..(j + 1) * k], &mut sum);
                debug_assert!(k > 64 || sum == int32(a.row(i), b.row(j)));
                *out = corrected(sum, sum_a, sums_b[j], k, zx, self.problem.b.zero(col, start)) as f32;
            }
        }
    }
}

/// `s ← RN16(a·b + s)`, or `s ← RN16(RN16(a·b) + s)`; the f32 in between holds a product of 8- and 16-bit floats exactly.
fn sixteen(format: Format, fused: bool, a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0f32, |s, (a, b)| {
        let product = f64::from(*a) * f64::from(*b);
        let term = if fused { product } else { f64::from(round_to(format, product as f32)) };
        let sum = term + f64::from(s);
        match format {
            Format::F16 => half::f16::from_f64(sum).to_f32(),
            _ => half::bf16::from_f64(sum).to_f32(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::Writer;
    use super::super::super::assay::{build, output};
    use super::super::emulated::{Emulated, read};
    use super::super::runnable;
    use super::super::search::Case;
    use super::*;
    use safetensors::Dtype;

    fn with<R>(o: &Emulated, rows: Range<usize>, cols: Range<usize>, see: impl FnOnce(&mut Region) -> R) -> R {
        of_bundle(&o.bundle(&vec![0.0; o.m * o.n], Dtype::F32, ""), rows, cols, see)
    }

    fn of_bundle<R>(w: &Writer, rows: Range<usize>, cols: Range<usize>, see: impl FnOnce(&mut Region) -> R) -> R {
        let bundle = read(w);
        let (built, output) = (build(&bundle).unwrap(), output(&bundle).unwrap());
        let job = runnable(&built.job);
        let case = Case::of(&job, &output).unwrap();
        let problem = case.problems().remove(0);
        see(&mut Region::new(&case.plan, problem, rows, cols))
    }

    /// Products of row 2 + i / 2 of a and row 1 + i % 2 of b, one after the other.
    fn products(o: &Emulated) -> [Vec<f32>; 4] {
        let (a, b) = (o.numbers(&o.a), o.numbers(&o.b));
        let of = |i: usize, j: usize| (0..o.k).map(|k| (a[i * o.k + k].value() * b[j * o.k + k].value()) as f32).collect();
        [of(2, 1), of(2, 2), of(3, 1), of(3, 2)]
    }

    #[test]
    fn a_region_knows_where_it_is_and_what_its_sums_meet() {
        let mut o = Emulated::new(95, (5, 4, 6), true).with_bias(2);
        let row = o.a[12..18].to_vec();
        o.a[18..24].copy_from_slice(&row);
        with(&o, 2..4, 1..3, |r| {
            assert_eq!((r.elements(), r.k(), r.different()), (4, 6, 1));
            assert_eq!([0, 1, 2, 3].map(|i| r.at(i)), [9, 10, 13, 14]);
            let squares = products(&o).map(|p| p.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>());
            assert_eq!(r.squares(), squares);
            let scales = [(2, 1), (2, 2), (3, 1), (3, 2)];
            for (n, (i, j)) in scales.into_iter().enumerate() {
                assert_eq!(r.scale(n), f64::from(o.sa[i]) * f64::from(o.sb[j]));
                let m = r.meets(Chain::Exact, n);
                assert_eq!((m.a, m.b, m.scaled, m.global, m.bias), (o.sa[i], o.sb[j], true, None, o.bias.as_ref().unwrap()[j]));
                // Factors that were scaled first meet no scale again.
                let m = r.meets(Chain::Dequantized { fused: true }, n);
                assert_eq!((m.a, m.b, m.scaled, m.global), (1.0, 1.0, false, None));
            }
        });
        with(&o, 0..4, 0..3, |r| assert_eq!(r.different(), 3));
        let plain = Emulated::new(95, (5, 4, 6), false);
        with(&plain, 0..2, 0..1, |r| assert_eq!((r.scale(0), r.meets(Chain::Exact, 0).scaled), (1.0, false)));
    }

    /// Sums of chunks are added in f32, or in 16 bits; of no more than one chunk in f32 there is nothing to add.
    #[test]
    fn chunks_of_a_run_are_added_to_a_main_accumulator() {
        let o = Emulated::new(96, (5, 4, 7), true);
        let all = products(&o);
        let bf16 = |x: f32| round_to(Format::Bf16, x);
        let sum = |p: &[f32]| p.iter().fold(0.0f32, |s, x| s + x);
        with(&o, 2..4, 1..3, |r| {
            let mut of = |promote: Option<Promote>, run: &Run| r.sum(Chain::Sequential, promote, run).unwrap().to_vec();
            let each = |f: &dyn Fn(&[f32]) -> f32| all.iter().map(|p| f(p)).collect::<Vec<f32>>();
            let whole: Run = vec![0..7];
            assert_eq!(of(None, &whole), each(&sum));
            assert_eq!(of(Some(Promote::f32(3)), &whole), each(&|p| sum(&p[..3]) + sum(&p[3..6]) + p[6]));
            assert_eq!(of(Some(Promote::f32(7)), &whole), each(&sum));
            let run: Run = vec![4..6, 1..3];
            assert_eq!(of(Some(Promote::f32(3)), &run), each(&|p| (p[4] + p[5] + p[1]) + p[2]));
            let single: Run = vec![6..7, 0..1, 3..4];
            assert_eq!(of(None, &single), each(&|p| p[6] + p[0] + p[3]));
            let kept = |every: usize, chunk: Chunk| Some(Promote { every, main: Format::Bf16, chunk });
            assert_eq!(of(kept(4, Chunk::Added), &whole), each(&|p| bf16(bf16(sum(&p[..4])) + sum(&p[4..]))));
            assert_eq!(of(kept(4, Chunk::Rounded), &whole), each(&|p| bf16(bf16(sum(&p[..4])) + bf16(sum(&p[4..])))));
            let from = |start: f32, p: &[f32]| p.iter().fold(start, |s, x| s + x);
            assert_eq!(of(kept(4, Chunk::Carried), &whole), each(&|p| bf16(from(bf16(sum(&p[..4])), &p[4..]))));
            assert_eq!(of(kept(7, Chunk::Added), &whole), each(&|p| bf16(sum(p))));
        });
    }

    /// A chain that is carried on in f32 is the chain: the steps of a unit, lowered ones, fused multiply-adds.
    #[test]
    fn a_carried_sum_goes_on_from_its_accumulator() {
        let o = Emulated::new(96, (5, 4, 150), true);
        with(&o, 2..4, 1..3, |r| {
            for chain in [Chain::Unit("ada_mma"), Chain::Unit("hopper_mma"), Chain::Unit("hopper_wgmma"), Chain::Sequential] {
                let carried = |main: Format| Some(Promote { every: 64, main, chunk: Chunk::Carried });
                let whole: Run = vec![0..150];
                let plain = r.sum(chain, None, &whole).unwrap();
                assert_eq!(r.sum(chain, carried(Format::F32), &whole).unwrap(), plain, "{chain:?}");
                let kept = r.sum(chain, carried(Format::Bf16), &whole).unwrap();
                assert!(kept.iter().all(|x| round_to(Format::Bf16, *x) == *x) && kept != plain, "{chain:?}");
            }
        });
    }

    #[test]
    fn factors_that_are_scaled_first_are_rounded_before_they_are_multiplied() {
        let o = Emulated::new(97, (5, 4, 7), true);
        let (a, b) = (o.numbers(&o.a), o.numbers(&o.b));
        let factor =
            |i: usize, j: usize, k: usize| (a[i * 7 + k].value() as f32 * o.sa[i], b[j * 7 + k].value() as f32 * o.sb[j]);
        with(&o, 2..4, 1..3, |r| {
            for fused in [true, false] {
                let found = r.sum(Chain::Dequantized { fused }, None, &vec![0..7]).unwrap();
                let of = |(i, j): (usize, usize)| {
                    (0..7).map(|k| factor(i, j, k)).fold(0.0f32, |s, (x, y)| if fused { x.mul_add(y, s) } else { x * y + s })
                };
                assert_eq!(found[..], [(2, 1), (2, 2), (3, 1), (3, 2)].map(of), "{fused}");
            }
        });
    }

    /// x = 1 + 3·2^-10: x² has a bit that f16 drops, and that is left when 1 is taken away.
    #[test]
    fn sums_in_sixteen_bits_round_the_product_or_only_the_sum() {
        let x = 1.0 + 3.0 * 2f32.powi(-10);
        let of = |fused: bool| sixteen(Format::F16, fused, &[-1.0, x], &[1.0, x]);
        assert_eq!([of(true), of(false)], [(6.0 + 2f32.powi(-7)) * 2f32.powi(-10), 6.0 * 2f32.powi(-10)]);
        assert_eq!(sixteen(Format::F16, true, &[1.0, 1.0], &[2048.0, 1.0]), 2048.0);
        assert_eq!(sixteen(Format::Bf16, true, &[1.0, 1.0], &[256.0, 1.0]), 256.0);
        assert_eq!(sixteen(Format::Bf16, false, &[1.0, 1.0, 3.0], &[128.0, 1.0, 1.0]), 132.0);
    }

    /// Scales of sixteen of K and one of all: no one number is the scale of a sum, and a factor is multiplied by both.
    #[test]
    fn scales_along_k_are_of_no_sum_and_are_met_by_each_factor_with_the_global_one() {
        let quantized = |rows: usize, seed: usize| {
            let data = (0..rows * 32).map(|at| ((at * 7919 + seed) % 1009) as f32 / 100.0 - 5.0).collect();
            let x = crate::Tensor::rounded(Format::Bf16, rows, 32, data).unwrap();
            "te_nvfp4".parse::<crate::recipe::Recipe>().unwrap().quantize(&x).unwrap().q
        };
        let (a, b) = (quantized(3, 11), quantized(4, 57));
        let mut w = Writer::new("gemm");
        w.codes("a", &a, None, None).unwrap().codes("b", &b, None, None).unwrap().f32s("out", &[3, 4], &[0.0; 12]);
        of_bundle(&w, 0..2, 1..3, |r| {
            assert_eq!([0, 1, 2, 3].map(|i| r.scale(i)), [0.0; 4]);
            let factor = |q: &crate::QTensor, i: usize, k: usize| {
                let scale = q.scale_inv()[q.scale_index(i, k)] * q.global_scale_inv().unwrap();
                q.format().decode(u32::from(q.codes()[i * 32 + k])) as f32 * scale
            };
            assert!(a.global_scale_inv().is_some_and(|g| (g - 1.0).abs() > 0.1));
            let found = r.sum(Chain::Dequantized { fused: true }, None, &vec![0..32]).unwrap();
            let of = |(i, j): (usize, usize)| (0..32).fold(0.0f32, |s, k| factor(&a, i, k).mul_add(factor(&b, j, k), s));
            assert_eq!(found[..], [(0, 1), (0, 2), (1, 1), (1, 2)].map(of));
        });
    }
}
