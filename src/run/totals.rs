//! What a run comes to, added up row by row, and the rows that are kept in memory: all of a small run, a sample of a large one.

use crate::Result;
use crate::assay::row::{self, Row};
use crate::compare::Verdict;
use crate::op::Op;
use std::collections::BTreeMap;
use std::path::Path;

/// A run of at most this many rows is kept whole. A row takes some 2 KB.
const WHOLE: usize = 8192;
/// Of a larger one, about this many at equal distances, and at most as many of those that are no pass.
const SAMPLE: usize = 4096;
/// Kinds of reasons for skipped cases that are told apart.
const REASONS: usize = 200;

/// Counts of one op.
#[derive(Clone, Debug, PartialEq)]
pub struct OpTotals {
    pub op: Op,
    pub verdicts: BTreeMap<Verdict, usize>,
    /// Largest finite error over its certain bound.
    pub worst: Option<f64>,
}

/// Sums over every row of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub rows: usize,
    /// In the order of the rows.
    pub ops: Vec<OpTotals>,
    /// Cases with a device model, the elements held to it, those whose bits are not the model's, and the cases that have some.
    pub modelled: usize,
    pub elements: usize,
    /// The elements of those cases, with those that no model was computed for.
    pub all: usize,
    pub wrong: usize,
    pub wrong_cases: usize,
    /// Cases over their certain bound, a NaN included.
    pub over: usize,
    /// `no_power` in edge cases, and in others.
    pub edges: usize,
    pub lacking: usize,
    /// Reasons of skipped cases.
    pub skipped: BTreeMap<String, usize>,
}

impl Totals {
    pub fn add(&mut self, row: &Row) {
        self.rows += 1;
        let at = self.ops.iter().position(|o| o.op == row.op).unwrap_or_else(|| {
            self.ops.push(OpTotals { op: row.op, verdicts: BTreeMap::new(), worst: None });
            self.ops.len() - 1
        });
        let totals = &mut self.ops[at];
        *totals.verdicts.entry(row.verdict).or_default() += 1;
        if let Some(x) = row.bound_ratio.filter(|x| x.is_finite()) {
            totals.worst = Some(totals.worst.map_or(x, |w| w.max(x)));
        }
        self.over += usize::from(row.bound_ratio.is_some_and(|x| !(x <= 1.0)));
        if let Some(n) = row.mismatches {
            self.modelled += 1;
            self.elements += row.held.unwrap_or(0);
            self.all += row.errors.kernel.as_ref().map_or(0, |e| e.count);
            self.wrong += n;
            self.wrong_cases += usize::from(n != 0);
        }
        match row.verdict {
            Verdict::NoPower if row.is_edge() => self.edges += 1,
            Verdict::NoPower => self.lacking += 1,
            Verdict::Skipped if self.skipped.len() < REASONS || self.skipped.contains_key(&row.reason) => {
                *self.skipped.entry(row.reason.clone()).or_default() += 1;
            }
            _ => {}
        }
    }
    /// Rows of a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.ops.iter().filter_map(|o| o.verdicts.get(&verdict)).sum()
    }
    /// Largest finite error over its certain bound.
    pub fn worst(&self) -> Option<f64> {
        self.ops.iter().filter_map(|o| o.worst).max_by(f64::total_cmp)
    }
    /// 0 all passed, 1 a verdict failed (or a case ended in an error), 3 nothing failed but a case that is no edge case had no power,
    /// one is suspect, or no case was judged at all.
    pub fn exit_status(&self) -> i32 {
        let nothing = self.rows > 0 && self.count(Verdict::Skipped) == self.rows;
        match (self.count(Verdict::Fail) + self.count(Verdict::Error), self.lacking) {
            (1.., _) => 1,
            (0, 1..) => 3,
            (0, 0) if nothing || self.count(Verdict::Suspect) > 0 => 3,
            (0, 0) => 0,
        }
    }
}

/// The totals of every row, and the rows that are at hand.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub totals: Totals,
    rows: Vec<Row>,
    /// Every this many rows one is kept.
    stride: usize,
    /// Rows kept although it was not their turn.
    extra: usize,
}

impl Kept {
    /// For a run of `planned` rows.
    pub fn new(planned: usize) -> Self {
        Self { stride: if planned <= WHOLE { 1 } else { planned.div_ceil(SAMPLE) }, ..Self::default() }
    }
    pub fn add(&mut self, row: Row) {
        let turn = self.totals.rows.is_multiple_of(self.stride.max(1));
        let notable = row.verdict > Verdict::Pass && self.extra < SAMPLE;
        self.totals.add(&row);
        if turn || notable {
            self.extra += usize::from(!turn);
            self.rows.push(row);
        }
    }
    /// The rows at hand, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
    /// Whether every row is at hand.
    pub fn is_whole(&self) -> bool {
        self.rows.len() == self.totals.rows
    }
    /// Reads the `rows.csv` of a run, in memory that is bounded. Errors: those of [`row::each`].
    pub fn read(path: &Path) -> Result<Kept> {
        let mut kept = Kept::new(row::count(path)?);
        row::each(path, |row| kept.add(row))?;
        Ok(kept)
    }
}

impl FromIterator<Row> for Kept {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Self {
        let rows: Vec<Row> = rows.into_iter().collect();
        let mut kept = Kept::new(rows.len());
        rows.into_iter().for_each(|r| kept.add(r));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Backend;
    use Verdict::*;

    fn row(i: usize, verdict: Verdict) -> Row {
        let bound_ratio = Some(if verdict == Verdict::Fail { f64::NAN } else { i as f64 / 1e6 });
        let op = if i.is_multiple_of(2) { Op::Cast } else { Op::Gemm };
        Row { case: i.to_string(), verdict, bound_ratio, ..Row::new(op, Backend::Cpu) }
    }

    #[test]
    fn a_large_run_keeps_a_sample_and_every_failure_and_counts_all() {
        let verdict = |i: usize| if i == 77_777 || i == 99_999 { Fail } else { Pass };
        let mut kept = Kept::new(100_000);
        (0..100_000).for_each(|i| kept.add(row(i, verdict(i))));
        assert!(kept.rows().len() < WHOLE && !kept.is_whole(), "{}", kept.rows().len());
        let failed: Vec<&str> = kept.rows().iter().filter(|r| r.verdict == Fail).map(|r| r.case.as_str()).collect();
        assert_eq!(failed, ["77777", "99999"]);
        let totals = &kept.totals;
        assert_eq!((totals.rows, totals.count(Pass), totals.count(Fail), totals.over), (100_000, 99_998, 2, 2));
        assert_eq!((totals.exit_status(), totals.worst()), (1, Some(0.099998)));
    }

    #[test]
    fn a_small_run_is_whole() {
        let kept: Kept = (0..100).map(|i| row(i, NoPower)).collect();
        assert!(kept.is_whole() && kept.rows().len() == 100);
        assert_eq!(kept.totals.exit_status(), 3);
        assert_eq!(Kept::default().totals.exit_status(), 0);
        // Right arithmetic makes a suspect once in 10⁹ tensors: it is not a pass to rely on.
        assert_eq!([row(0, Pass), row(1, Suspect)].into_iter().collect::<Kept>().totals.exit_status(), 3);
        // What nobody ran says nothing.
        assert_eq!((0..3).map(|i| row(i, Skipped)).collect::<Kept>().totals.exit_status(), 3);
    }
}
