//! Two sides, case by case.

use super::{Record, Recording, ks};
use crate::assay::row::Row;
use crate::assay::table::Cell;
use crate::compare::Verdict;
use crate::compare::digits::apart;
use crate::op::Op;
use crate::run::facts::Facts;
use std::collections::HashMap;

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Every bit of the output and the verdict.
    Identical,
    /// Every bit of the output and the verdict, from the same kernel; the numbers of its judgement moved: reference, bound or model of
    /// another qassay.
    Rejudged,
    /// The verdict and the error's distribution are as they were, the bits are not.
    OtherBits,
    /// The error's distribution or the verdict moved the right way.
    Better,
    /// … or the wrong way.
    Worse,
    /// Not in the baseline.
    New,
    /// Only in the baseline.
    Missing,
    /// No kernel ran it now, though one did.
    NowSkipped,
    /// No kernel ran it, then or now.
    Skipped,
}

impl Change {
    pub const ALL: [Change; 9] = [
        Change::Identical,
        Change::Rejudged,
        Change::OtherBits,
        Change::Better,
        Change::Worse,
        Change::New,
        Change::Missing,
        Change::NowSkipped,
        Change::Skipped,
    ];
    pub fn name(self) -> &'static str {
        match self {
            Change::Identical => "identical",
            Change::Rejudged => "rejudged",
            Change::OtherBits => "other_bits",
            Change::Better => "better",
            Change::Worse => "worse",
            Change::New => "new",
            Change::Missing => "missing",
            Change::NowSkipped => "now_skipped",
            Change::Skipped => "skipped",
        }
    }
    /// Fails a check. Only a case of the same bits and verdict passes; one that was skipped before and is now neither passes nor fails.
    pub fn fails(self) -> bool {
        !matches!(self, Change::Identical | Change::Rejudged | Change::Skipped)
    }
}

/// A column before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    pub column: &'static str,
    pub before: f64,
    pub after: f64,
}

/// One case of the comparison.
#[derive(Clone, Debug)]
pub struct Drift {
    pub sweep: String,
    pub case: String,
    pub kernel: String,
    pub op: Op,
    pub change: Change,
    pub before: Option<Verdict>,
    pub after: Option<Verdict>,
    /// SHA-256 of what the run returned, where its bits are not the baseline's.
    pub digest: String,
    /// The metric that moved, where one did.
    pub moved: Option<Moved>,
    /// Probability of error distributions as far apart as these, were they one.
    pub p: Option<f64>,
    /// An error beyond the certain bound, which holds for every order of summation: no reordering explains it.
    pub beyond_order: bool,
    /// The whole of it in words.
    pub words: String,
}

/// Two sides compared.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    pub drifts: Vec<Drift>,
    /// Facts that differ: name, before, after.
    pub facts: Vec<(String, String, String)>,
}

impl Differences {
    pub fn count(&self, change: Change) -> usize {
        self.drifts.iter().filter(|d| d.change == change).count()
    }
    pub fn fails(&self) -> bool {
        self.drifts.iter().any(|d| d.change.fails())
    }
    /// Puts another sweep's comparison after this one.
    pub fn extend(&mut self, other: Differences) {
        self.drifts.extend(other.drifts);
        self.facts.extend(other.facts.into_iter().filter(|f| !self.facts.contains(f)).collect::<Vec<_>>());
    }
}

/// Distributions this unlikely to be one are two: a false alarm in a thousand cases whose bits changed.
const SIGNIFICANCE: f64 = 1e-3;

/// A metric that may move.
struct Watched {
    column: &'static str,
    of: fn(&Record) -> Option<f64>,
    larger_is_worse: bool,
}

/// In the order in which they are looked at.
const WATCHED: [Watched; 5] = [
    Watched { column: "bound_ratio", of: |r| r.bound_ratio, larger_is_worse: true },
    Watched { column: "kernel_rel_frobenius", of: |r| r.kernel_rel_frobenius, larger_is_worse: true },
    Watched { column: "kernel_max_ulp", of: |r| r.kernel_max_ulp, larger_is_worse: true },
    Watched { column: "quant_sqnr_db", of: |r| r.quant_sqnr_db, larger_is_worse: false },
    Watched { column: "total_rel_frobenius", of: |r| r.total_rel_frobenius, larger_is_worse: true },
];

/// Compares `after` with `before`, in the order of `after`, then what is missing. A case that is twice on a side is compared once.
pub fn compare(before: &Recording, after: &Recording) -> Differences {
    let mut known: HashMap<&str, &Record> = before.records.iter().map(|r| (r.case.as_str(), r)).collect();
    let mut drifts: Vec<Drift> =
        after.records.iter().map(|r| one(&after.sweep, known.remove(r.case.as_str()), Some(r))).collect();
    let missing = before.records.iter().filter(|r| known.contains_key(r.case.as_str()));
    drifts.extend(missing.map(|r| one(&after.sweep, Some(r), None)));
    let own = |(a, b, c): (&str, &str, &str)| (a.to_string(), b.to_string(), c.to_string());
    let facts = named(&before.facts, &after.facts).into_iter().map(own).collect();
    Differences { drifts, facts }
}

/// Compares rows in memory, such as a notebook's: the sweep is `name`, and no facts are known.
pub fn of_rows(name: &str, before: &[Row], after: &[Row]) -> Differences {
    let side = |rows: &[Row]| Recording {
        sweep: name.to_string(),
        records: rows.iter().map(Record::of).collect(),
        facts: crate::run::facts::Facts::default(),
    };
    compare(&side(before), &side(after))
}

/// The facts that differ and may have changed a bit; the revision only beside a program that differs.
fn named<'a>(before: &'a Facts, after: &'a Facts) -> Vec<(&'a str, &'a str, &'a str)> {
    let mut facts = before.differences(after, &["sweeps", "accepted at revision"]);
    if facts.iter().any(|f| f.0 == "program") {
        facts.push(("revision", before.get("revision"), after.get("revision")));
    }
    facts
}

fn one(sweep: &str, before: Option<&Record>, after: Option<&Record>) -> Drift {
    let either = after.or(before).expect("a case of one side");
    let digest = |r: Option<&Record>| r.map_or(String::new(), |r| r.sha256.clone());
    let mut drift = Drift {
        sweep: sweep.to_string(),
        case: either.case.clone(),
        kernel: either.kernel.clone(),
        op: either.op,
        change: Change::Identical,
        before: before.map(|r| r.verdict),
        after: after.map(|r| r.verdict),
        digest: if digest(before) == digest(after) { String::new() } else { digest(after) },
        moved: None,
        p: None,
        beyond_order: false,
        words: String::new(),
    };
    (drift.change, drift.words) = match (before, after) {
        (None, _) => (Change::New, "not in the baseline; accept it when it is right".to_string()),
        (_, None) => (Change::Missing, "in the baseline, and not run now".to_string()),
        (Some(b), Some(a)) if a.verdict == Verdict::Skipped => {
            let was = b.verdict == Verdict::Skipped;
            let change = if was { Change::Skipped } else { Change::NowSkipped };
            (change, if was { String::new() } else { format!("no kernel ran it; {} before", b.verdict) })
        }
        (Some(b), Some(a)) if b.measures_as(a) => (Change::Identical, String::new()),
        (Some(b), Some(a)) => changed(b, a, &mut drift),
    };
    drift
}

/// A case that ran on both sides and is not the same.
fn changed(before: &Record, after: &Record, drift: &mut Drift) -> (Change, String) {
    let same = |of: fn(&Record) -> Option<f64>| of(before).text() == of(after).text();
    let moved = WATCHED.iter().find(|w| !same(w.of));
    let number = |x: Option<f64>| x.unwrap_or(f64::NAN);
    drift.moved = moved.map(|w| Moved { column: w.column, before: number((w.of)(before)), after: number((w.of)(after)) });
    let histogram = |r: &Record| r.ulp_histogram.map_or_else(Vec::new, |bins| bins.map(|n| n as u64).to_vec());
    drift.p = ks::p_value(&histogram(before), &histogram(after));
    drift.beyond_order = !(number(after.bound_ratio) <= 1.0);
    let same_operands = same(|r| r.quant_sqnr_db);
    let same_output = (&before.sha256, before.verdict, &before.kernel, &before.device)
        == (&after.sha256, after.verdict, &after.kernel, &after.device);

    let mut words = Vec::new();
    if before.verdict != after.verdict {
        words.push(format!("verdict {} → {}", before.verdict, after.verdict));
    }
    if let Some(m) = &drift.moved {
        let [before, after] = apart([m.before, m.after]);
        words.push(format!("{} {before} → {after}", m.column));
    }
    words.push(bits(before, after));
    let other = drift.p.is_some_and(|p| !(p >= SIGNIFICANCE));
    if let Some(p) = drift.p {
        let chance = match p {
            p if p < 1e-99 => "< 1e-99".to_string(),
            p => format!("= {}", apart([p])[0]),
        };
        words.push(format!("{} error distribution (KS p {chance})", if other { "another" } else { "the same" }));
    }
    // The histogram is of D's errors; it and every number alike, what changed is beside D.
    let beside = drift.moved.is_none()
        && before.mismatches == after.mismatches
        && before.ulp_histogram == after.ulp_histogram
        && before.sha256 != after.sha256;
    if same_output && same_operands {
        words.push("reference, bound or model changed, not the kernel".into());
        return (Change::Rejudged, words.join("; "));
    }
    words.push(
        if drift.beyond_order {
            "beyond the certain bound: no order of summation explains it"
        } else if beside {
            "nothing measured on D changed: a side output did (scale_inv, amax, transposed copy, dbias or statistics)"
        } else {
            "within the certain bound, as with another order of summation or rounding"
        }
        .to_string(),
    );
    if [before, after].iter().all(|r| !r.algorithm.is_empty()) && before.algorithm != after.algorithm {
        words.push(format!("the library chose another algorithm: {} → {}", before.algorithm, after.algorithm));
    }
    // The quantization error is of the operands alone: it moves only with the recipe or the input.
    words.push(
        match (same_operands, before.kernel == after.kernel) {
            (false, _) => "the quantized operands changed: recipe or input",
            (true, false) => "another kernel ran it",
            (true, true) => "the operands are the same: the kernel or its reference changed",
        }
        .to_string(),
    );

    let worse = match after.verdict.cmp(&before.verdict) {
        std::cmp::Ordering::Greater => Some(true),
        std::cmp::Ordering::Less => Some(false),
        std::cmp::Ordering::Equal if other || drift.beyond_order || !same_operands => {
            // NaN and a missing number are worse.
            drift.moved.as_ref().zip(moved).map(|(m, w)| {
                let (worst, best) = if w.larger_is_worse { (m.after, m.before) } else { (m.before, m.after) };
                !(worst <= best)
            })
        }
        std::cmp::Ordering::Equal => None,
    };
    let change = match worse {
        Some(true) => Change::Worse,
        Some(false) => Change::Better,
        None => Change::OtherBits,
    };
    (change, words.join("; "))
}

/// How many bits differ, as far as digests tell.
fn bits(before: &Record, after: &Record) -> String {
    if before.sha256 == after.sha256 {
        return "the output's bits are the same".into();
    }
    match (before.mismatches, after.mismatches) {
        (Some(0), Some(n)) if n > 0 => format!("{n} elements differ: the baseline equals the device model"),
        (Some(n), Some(0)) if n > 0 => format!("{n} elements differ: the run equals the device model"),
        _ => "other bits; the digests do not say how many".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assay::table::Line;

    fn record(set: &[(&str, &str)]) -> Record {
        let base = [
            ("case", "c"),
            ("op", "cast"),
            ("kernel", "k"),
            ("verdict", "pass"),
            ("sha256", "aa"),
            ("bound_ratio", "0.5"),
            ("quant_sqnr_db", "30"),
            ("kernel_rel_frobenius", "0.001"),
            ("ulp_histogram", "1000|1000|0|0|0|0|0|0|0"),
        ];
        let value = |c: &str| set.iter().chain(&base).find(|(n, _)| *n == c).map_or("", |(_, v)| *v);
        Record::read(&Record::names().into_iter().map(value).collect::<Vec<_>>()).unwrap()
    }

    fn of(before: Option<Record>, after: Option<Record>) -> Drift {
        let side =
            |r: Option<Record>| Recording { sweep: "s".into(), records: r.into_iter().collect(), facts: Facts::default() };
        compare(&side(before), &side(after)).drifts.remove(0)
    }

    #[test]
    fn every_change_is_told_and_only_identity_passes() {
        use Change::*;
        let plain = || Some(record(&[]));
        let with = |set: &[(&str, &str)]| Some(record(set));
        for (before, after, expected) in [
            (plain(), plain(), Identical),
            (None, plain(), New),
            (plain(), None, Missing),
            (plain(), with(&[("verdict", "skipped")]), NowSkipped),
            (with(&[("verdict", "skipped")]), with(&[("verdict", "skipped")]), Skipped),
            (
                plain(),
                with(&[("sha256", "bb"), ("kernel_rel_frobenius", "0.00101"), ("ulp_histogram", "1001|999|0|0|0|0|0|0|0")]),
                OtherBits,
            ),
            (plain(), with(&[("sha256", "bb"), ("bound_ratio", "0.9"), ("ulp_histogram", "100|1000|900|0|0|0|0|0|0")]), Worse),
            (plain(), with(&[("sha256", "bb"), ("bound_ratio", "0.1"), ("ulp_histogram", "2000|0|0|0|0|0|0|0|0")]), Better),
            (plain(), with(&[("sha256", "bb"), ("verdict", "fail"), ("bound_ratio", "0.4")]), Worse),
            (with(&[("verdict", "fail"), ("bound_ratio", "2")]), with(&[("sha256", "bb")]), Better),
            (plain(), with(&[("sha256", "bb"), ("bound_ratio", "NaN")]), Worse),
            (plain(), with(&[("sha256", "bb"), ("bound_ratio", "1.5")]), Worse),
            (plain(), with(&[("sha256", "bb"), ("quant_sqnr_db", "29")]), Worse),
            (plain(), with(&[("sha256", "bb"), ("quant_sqnr_db", "31")]), Better),
            (plain(), with(&[("kernel", "other")]), OtherBits),
            (plain(), with(&[("bound_ratio", "0.6")]), Rejudged),
            (plain(), with(&[("mismatches", "3"), ("kernel_max_ulp", "2")]), Rejudged),
            (plain(), with(&[("bound_ratio", "1.6"), ("verdict", "fail")]), Worse),
            (plain(), with(&[("quant_sqnr_db", "29")]), Worse),
        ] {
            let drift = of(before, after);
            assert_eq!(drift.change, expected, "{}", drift.words);
            assert_eq!(drift.change.fails(), !matches!(expected, Identical | Rejudged | Skipped));
        }
    }

    #[test]
    fn changes_are_counted_by_their_kind() {
        let side = |cases: [(&str, &str); 3]| {
            let records = cases.map(|(case, sum)| record(&[("case", case), ("sha256", sum)])).into();
            Recording { sweep: "s".into(), records, facts: Facts::default() }
        };
        let found = compare(&side([("a", "aa"), ("b", "aa"), ("c", "aa")]), &side([("a", "aa"), ("b", "aa"), ("d", "aa")]));
        let counts = [Change::Identical, Change::New, Change::Missing, Change::Worse].map(|c| found.count(c));
        assert_eq!(counts, [2, 1, 1, 0]);
    }

    /// Another digest with every number of D as it was is another side output, and nothing else is.
    #[test]
    fn a_side_output_is_named_where_d_is_as_it_was() {
        let beside = |set: &[(&str, &str)]| of(Some(record(&[])), Some(record(set))).words.contains("side output");
        assert!(beside(&[("sha256", "bb")]));
        for number in [("kernel_rel_frobenius", "0.00101"), ("mismatches", "3"), ("ulp_histogram", "1001|999|0|0|0|0|0|0|0")] {
            assert!(!beside(&[("sha256", "bb"), number]), "{number:?}");
        }
        assert!(!beside(&[("kernel", "other")]));
    }

    #[test]
    fn a_revision_is_named_beside_a_program_that_differs() {
        let facts = |program: &str, os: &str, revision: &str| {
            let facts = [("program", program), ("os", os), ("revision", revision)];
            Facts(facts.map(|(name, text)| (name.to_string(), text.to_string())).into())
        };
        let names = |before: &Facts, after: &Facts| named(before, after).iter().map(|f| f.0.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&facts("1", "x", "r"), &facts("2", "x", "s")), ["program", "revision"]);
        assert_eq!(names(&facts("1", "x", "r"), &facts("1", "y", "s")), ["os"]);
    }

    #[test]
    fn what_is_watched_is_the_column_it_is_called_by() {
        let plain = record(&[("kernel_max_ulp", "2"), ("total_rel_frobenius", "0.25")]);
        for watched in WATCHED {
            let column = Record::column(watched.column).unwrap();
            assert!(column.number(&plain).is_some() && column.number(&plain) == (watched.of)(&plain), "{}", watched.column);
        }
    }

    #[test]
    fn the_words_say_how_many_bits_and_whose_fault_it_may_be() {
        let modelled = record(&[("mismatches", "0")]);
        let drift = of(Some(modelled.clone()), Some(record(&[("mismatches", "7"), ("sha256", "bb")])));
        assert!(drift.words.contains("7 elements differ: the baseline equals the device model"), "{}", drift.words);
        assert!(drift.words.contains("the kernel or its reference changed"), "{}", drift.words);
        let drift = of(Some(record(&[("mismatches", "7"), ("sha256", "bb")])), Some(modelled.clone()));
        assert!(drift.words.contains("7 elements differ: the run equals the device model"), "{}", drift.words);
        let drift = of(Some(record(&[])), Some(record(&[("sha256", "bb"), ("quant_sqnr_db", "3")])));
        assert!(
            drift.words.contains("the digests do not say how many") && drift.words.contains("recipe or input"),
            "{}",
            drift.words
        );
    }

    #[test]
    fn another_algorithm_is_said_where_both_are_known() {
        let said = |before: &str, after: &str| {
            let with = |algorithm, sum| Some(record(&[("algorithm", algorithm), ("sha256", sum)]));
            of(with(before, "aa"), with(after, "bb")).words
        };
        assert!(said("67", "68").contains("another algorithm: 67 → 68"), "{}", said("67", "68"));
        for (before, after) in [("67", "67"), ("", "68"), ("67", ""), ("", "")] {
            assert!(!said(before, after).contains("another algorithm"), "{before} {after}");
        }
    }

    /// Two outputs that both equal the model of their day, of other bits: the models differ, and nobody counted the elements.
    #[test]
    fn elements_that_differ_are_counted_where_one_side_is_the_model() {
        let said = |before: &str, after: &str, digest: &str| {
            bits(&record(&[("mismatches", before)]), &record(&[("mismatches", after), ("sha256", digest)]))
        };
        assert_eq!(said("0", "7", "aa"), "the output's bits are the same");
        assert_eq!(said("0", "7", "bb"), "7 elements differ: the baseline equals the device model");
        assert_eq!(said("7", "0", "bb"), "7 elements differ: the run equals the device model");
        for (before, after) in [("0", "0"), ("7", "7"), ("", "0"), ("0", "")] {
            assert_eq!(said(before, after, "bb"), "other bits; the digests do not say how many", "{before}, {after}");
        }
    }
}
