//! What is counted, added and ranked of a result, where it lies.

use super::super::contract::{Contract, Pointer, arguments};
use super::super::launch::{Buffer, Gpu, LaunchShape};
use super::super::options::define;
use super::elements::{Elements, Given, Stored, every};
use crate::Result;
use crate::compare::measured::{Measured, line};
use crate::compare::metrics::{self, Counts, Sums};
use crate::compare::power::{self, Facts, Seen};
use crate::compare::quantile::{Between, FEW, Search, drawn_of};
use crate::compare::{ErrorStats, Judged, OutFormat};
use crate::parallel;
use crate::stage::timed;
use rayon::prelude::*;

arguments! {
    /// Contract judge_elements.
    ElementsOf = "judge.cu" "judge_elements" {
        all: Elements, certain: Pointer, probable: Pointer, tally: Pointer, largest: Pointer, map_rows: usize, map_cols: usize, map_width: usize,
    }
}

arguments! {
    /// Contract judge_sums.
    SumsOf = "judge.cu" "judge_sums" { all: Elements, starts: Pointer, means: Pointer, sums: Pointer, leaves: usize }
}

arguments! {
    /// Contract judge_drawn.
    DrawnOf = "judge.cu" "judge_drawn" { all: Elements, drawn: Pointer }
}

arguments! {
    /// Contract judge_ranks.
    RanksOf = "judge.cu" "judge_ranks" { all: Elements, between: Pointer, tally: Pointer, inside: Pointer, room: u64 }
}

arguments! {
    /// Contract judge_power.
    PowerOf = "judge.cu" "judge_power" {
        all: Elements, certain: Pointer, tally: Pointer, row_gains: Pointer, column_gains: Pointer, sums: Pointer, bit_exact: usize, block: u64,
    }
}

/// What judge_elements counts, in its order.
mod tally {
    pub const VIOLATIONS: usize = 0;
    pub const IMPROBABLE: usize = 1;
    pub const UNJUDGED: usize = 2;
    pub const DIFFERING: usize = 3;
    pub const UP_TO: usize = 4;
    pub const IDEAL_FINITE: usize = 13;
    pub const IDEAL_NONZERO: usize = 14;
    pub const JUDGED: usize = 15;
    pub const UNCLIPPED: usize = 16;
    pub const OF_ERRORS: usize = 17;
    pub const OF_ERROR: usize = 5;
    pub const RATIO_CERTAIN: usize = OF_ERRORS + 3 * OF_ERROR;
    pub const RATIO_PROBABLE: usize = RATIO_CERTAIN + 1;
    pub const LARGEST_ERROR: usize = RATIO_PROBABLE + 1;
    pub const ALL: usize = LARGEST_ERROR + 3;
}

/// What is counted of a result of which nothing is wrong; `None` where something is, or cannot be told here: the CPU says what. Errors: the
/// driver's.
pub fn measured(gpu: &Gpu, e: &Given, out: &OutFormat) -> Result<Option<Measured>> {
    let n = e.rows * e.cols;
    let Some(laid_out) = out.laid_out() else { return Ok(None) };
    if !(FEW + 1..i32::MAX as usize).contains(&n) || e.cols == 0 {
        return Ok(None);
    }
    let stored = Stored::new(gpu, &laid_out)?;
    let by = Judge { gpu, e, n, all: stored.elements(e), stored };
    let Some((counted, ratios)) = timed("judged", || by.elements())? else { return Ok(None) };
    let errors = timed("statistics", || by.errors(&counted))?;
    let Some(seen) = timed("power", || by.power())? else { return Ok(None) };
    let [quantization, kernel, total] = errors;
    let is = |at: usize| counted[at] > 0;
    Ok(Some(Measured {
        judged: Judged {
            ratio_certain: f64::from_bits(counted[tally::RATIO_CERTAIN]),
            ratio_probable: f64::from_bits(counted[tally::RATIO_PROBABLE]),
            ..Judged::default()
        },
        quantization,
        kernel,
        total,
        seen,
        facts: Facts {
            elements: n,
            finite: is(tally::IDEAL_FINITE),
            nonzero: is(tally::IDEAL_NONZERO),
            bounded: is(tally::JUDGED),
            unclipped: is(tally::UNCLIPPED),
        },
        differing: counted[tally::DIFFERING] as usize,
        histogram: std::array::from_fn(|bin| {
            let up_to = |bin: usize| counted[tally::UP_TO + bin] as usize;
            up_to(bin) - if bin > 0 { up_to(bin - 1) } else { 0 }
        }),
        ratios,
    }))
}

/// Counts, and the largest ratio of every tile of the map.
type Tallied = (Vec<u64>, Vec<Vec<f64>>);

struct Judge<'a> {
    gpu: &'a Gpu,
    e: &'a Given<'a>,
    n: usize,
    all: Elements,
    stored: Stored,
}

impl Judge<'_> {
    /// Counts and extremes, and the map.
    fn elements(&self) -> Result<Option<Tallied>> {
        let (gpu, e, s) = (self.gpu, self.e, &self.stored);
        let (tiles, width) = (e.rows.div_ceil(e.map.0), e.cols.div_ceil(e.map.1));
        let (counts, largest) = (gpu.filled(tally::ALL * 8, 0)?, gpu.filled(tiles * width * 8, 0)?);
        let arguments = ElementsOf {
            all: self.all,
            certain: e.certain.into(),
            probable: e.probable.into(),
            tally: (&counts).into(),
            largest: (&largest).into(),
            map_rows: e.map.0,
            map_cols: e.map.1,
            map_width: width,
        };
        // SAFETY: matrices of n doubles, scales of every tile, counts and a map of these sizes.
        unsafe { gpu.launch(arguments.launch(&s.defines, every(gpu)))? };
        let counts: Vec<u64> = gpu.download_whole("counts of a result", &counts)?;
        let n = self.n as u64;
        let wrong = [tally::VIOLATIONS, tally::IMPROBABLE, tally::UNJUDGED].iter().any(|at| counts[*at] > 0);
        let numbers =
            (0..3).all(|error| counts[tally::OF_ERRORS + error * tally::OF_ERROR] == n) && counts[tally::IDEAL_FINITE] == n;
        if wrong || !numbers {
            return Ok(None);
        }
        let largest: Vec<f64> = gpu.download_whole("map of a result", &largest)?;
        Ok(Some((counts, largest.chunks(width).map(<[f64]>::to_vec).collect())))
    }

    /// The statistics of the three errors.
    fn errors(&self, counted: &[u64]) -> Result<[ErrorStats; 3]> {
        let starts = metrics::leaves(self.n);
        let on_device: Vec<i32> = starts.iter().map(|at| *at as i32).collect();
        let starts = (starts.as_slice(), &self.gpu.upload_i32(&on_device)?);
        let sums = self.sums::<18>(starts, [0.0; 3])?;
        let counts: [Counts; 3] = std::array::from_fn(|error| {
            let of = |at: usize| counted[tally::OF_ERRORS + error * tally::OF_ERROR + at] as usize;
            Counts {
                finite: of(0),
                mismatches: of(1),
                saturated: of(2),
                flushed: of(3),
                relative: of(4),
                max_abs: f64::from_bits(counted[tally::LARGEST_ERROR + error]),
                ..Counts::default()
            }
        });
        let sums: [Sums; 3] = std::array::from_fn(|error| Sums::from_array(std::array::from_fn(|i| sums[error * 6 + i])));
        let spreads = self.sums::<3>(starts, std::array::from_fn(|i| counts[i].mean(sums[i].signed)))?;
        let samples = counts.iter().flat_map(|c| [c.relative, c.finite]).collect::<Vec<_>>();
        let quantiles = self.quantiles(&samples)?;
        Ok(std::array::from_fn(|i| {
            ErrorStats::of_parts(self.n, &sums[i], &counts[i], spreads[i], (quantiles[2 * i], quantiles[2 * i + 1]))
        }))
    }

    /// Sums over the leaves of the CPU's tree, joined as it does.
    fn sums<const EACH: usize>(&self, (starts, there): (&[usize], &Buffer), means: [f64; 3]) -> Result<[f64; EACH]> {
        let (gpu, leaves) = (self.gpu, starts.len() - 1);
        let (means, sums) = (gpu.upload_all(&means)?, gpu.output(leaves * EACH * 8)?);
        let arguments = SumsOf { all: self.all, starts: there.into(), means: (&means).into(), sums: (&sums).into(), leaves };
        let mut defines = self.stored.defines.clone();
        defines.push(define("PASS", usize::from(EACH == 3)));
        // SAFETY: as above; EACH sums a leaf.
        unsafe { gpu.launch(arguments.launch(&defines, LaunchShape::new(leaves.div_ceil(32), 32)))? };
        let sums: Vec<f64> = gpu.download_whole("sums of errors", &sums)?;
        let added = |a: [f64; EACH], b: [f64; EACH]| std::array::from_fn(|i| a[i] + b[i]);
        Ok(metrics::joined(starts, sums.as_chunks::<EACH>().0, &added))
    }

    /// Quantiles and largest of the six samples, of so many numbers each.
    fn quantiles(&self, counts: &[usize]) -> Result<Vec<[f64; 4]>> {
        let (gpu, s) = (self.gpu, &self.stored);
        let few = drawn_of(self.n);
        let drawn = gpu.filled(6 * few * 8, 0)?;
        let arguments = DrawnOf { all: self.all, drawn: (&drawn).into() };
        // SAFETY: as above; six samples of so many.
        unsafe { gpu.launch(arguments.launch(&s.defines, LaunchShape::new(few / 256, 256)))? };
        let drawn: Vec<f64> = gpu.download_whole("drawn errors", &drawn)?;
        let mut searches: Vec<Search> =
            parallel::collect(counts.len(), |n| Search::drawn(counts[n], drawn[n * few..(n + 1) * few].to_vec()));
        let mut room = self.n / 8 + few;
        let mut inside = gpu.filled(18 * room * 8, 0)?;
        while searches.iter().any(|s| s.answer().is_none()) {
            let ends: Vec<[(f64, f64); 3]> = searches.iter().map(Search::between).collect();
            let between: Vec<f64> = ends.iter().flatten().flat_map(|(low, high)| [*low, *high]).collect();
            let (between, counted) = (gpu.upload_all(&between)?, gpu.filled(6 * 13 * 8, 0)?);
            let arguments = RanksOf {
                all: self.all,
                between: (&between).into(),
                tally: (&counted).into(),
                inside: (&inside).into(),
                room: room as u64,
            };
            // SAFETY: as above; room for 18 lists.
            unsafe { gpu.launch(arguments.launch(&s.defines, every(gpu)))? };
            let counted: Vec<u64> = gpu.download_whole("ranks of errors", &counted)?;
            // Ends that were moved far apart leave more between them.
            if counted.chunks(13).any(|of| (0..3).any(|j| of[4 + j * 4] as usize > room)) {
                room = self.n;
                inside = gpu.filled(18 * room * 8, 0)?;
                continue;
            }
            let mut seen = Vec::new();
            for (i, (of, ends)) in counted.chunks(13).zip(&ends).enumerate() {
                let mut between: [Between; 3] = Default::default();
                for (j, (to, (low, high))) in between.iter_mut().zip(ends).enumerate() {
                    let [below, at_low, at_high, count] = std::array::from_fn(|k| of[1 + j * 4 + k] as usize);
                    let inside = gpu.download_some("errors between two", &inside, (i * 3 + j) * room, count)?;
                    *to = Between { low: *low, high: *high, below, at_low, at_high, inside };
                }
                seen.push((f64::from_bits(of[0]), between));
            }
            searches.par_iter_mut().zip(seen).for_each(|(search, seen)| search.take(seen));
        }
        Ok(searches.iter().map(|s| s.answer().expect("all are found")).collect())
    }

    fn power(&self) -> Result<Option<Seen>> {
        let (gpu, e, s) = (self.gpu, self.e, &self.stored);
        let block = power::block(e.cols.max(1));
        let blocks = self.n.div_ceil(block);
        let mut began = [0u64; 4];
        began[0] = u64::MAX;
        let (counted, sums) = (gpu.upload_all(&began)?, gpu.output(blocks * 16)?);
        let (rows, columns) = (gpu.filled(e.rows * 8, 0xff)?, gpu.filled(e.cols * 8, 0xff)?);
        let arguments = PowerOf {
            all: self.all,
            certain: e.certain.into(),
            tally: (&counted).into(),
            row_gains: (&rows).into(),
            column_gains: (&columns).into(),
            sums: (&sums).into(),
            bit_exact: usize::from(e.bit_exact),
            block: block as u64,
        };
        // SAFETY: as above; gains of every row and column, two sums a block.
        unsafe { gpu.launch(arguments.launch(&s.defines, LaunchShape::new(blocks, 512)))? };
        let counted: Vec<u64> = gpu.download_whole("power of a result", &counted)?;
        // A gain that is negative or NaN has no order among bits.
        if counted[3] > 0 {
            return Ok(None);
        }
        let lines = |what: &str, gains: &Buffer| -> Result<Vec<_>> {
            Ok(gpu.download_whole::<u64>(what, gains)?.into_iter().map(line).collect())
        };
        let sums: Vec<f64> = gpu.download_whole("sums of needs", &sums)?;
        let added = |at: usize| sums.iter().skip(at).step_by(2).copied().reduce(|a, b| a + b).unwrap_or(0.0);
        Ok(Some(Seen {
            gain: f64::from_bits(counted[0]),
            rows: lines("gains of rows", &rows)?,
            columns: lines("gains of columns", &columns)?,
            hidden: counted[1] as usize,
            zeros_caught: counted[2] > 0,
            needed: added(0),
            energy: added(1),
        }))
    }
}
