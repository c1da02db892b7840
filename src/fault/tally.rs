//! Kills and names counted over many cases, fault by fault.

use super::power::Kill;
use super::{CLASSES, Fault};
use crate::compare::gates::GATES;
use crate::op::Op;
use std::collections::{BTreeMap, BTreeSet};

/// What came of one fault over all cases.
pub struct Tally {
    pub fault: &'static Fault,
    /// Cases in which it changed at least one bit.
    pub changed: usize,
    pub by_model: usize,
    pub by_bound: usize,
    /// In the order of [`GATES`].
    pub by_gate: Vec<usize>,
    /// Ops in which it changed a bit; in which it was caught at least once, by the model's bits and by the bound alone.
    pub ops: BTreeSet<&'static str>,
    pub ops_by_model: BTreeSet<&'static str>,
    pub ops_by_bound: BTreeSet<&'static str>,
    pub asked: usize,
    pub class_right: usize,
    pub variant_right: usize,
    /// Named alone: see [`Named`](super::power::Named).
    pub alone: usize,
    /// What was named, by how often.
    pub named: BTreeMap<String, usize>,
}

impl Tally {
    fn new(fault: &'static Fault) -> Self {
        Self {
            fault,
            changed: 0,
            by_model: 0,
            by_bound: 0,
            by_gate: vec![0; GATES.len()],
            ops: BTreeSet::new(),
            ops_by_model: BTreeSet::new(),
            ops_by_bound: BTreeSet::new(),
            asked: 0,
            class_right: 0,
            variant_right: 0,
            alone: 0,
            named: BTreeMap::new(),
        }
    }

    fn add(&mut self, op: Op, kill: &Kill) {
        self.changed += 1;
        self.by_model += usize::from(kill.by_model);
        self.by_bound += usize::from(kill.by_bound);
        self.by_gate.iter_mut().zip(&kill.gates).for_each(|(n, caught)| *n += usize::from(*caught));
        self.ops.insert(op.name());
        if kill.by_model {
            self.ops_by_model.insert(op.name());
        }
        if kill.by_bound {
            self.ops_by_bound.insert(op.name());
        }
        if let Some(n) = &kill.named {
            self.asked += 1;
            self.class_right += usize::from(n.class_right);
            self.variant_right += usize::from(n.variant_right);
            self.alone += usize::from(n.alone);
            let class = match (n.class_right, n.class) {
                // Another name for the same result is no confusion.
                (true, _) => self.fault.class.name().to_string(),
                (false, Some(class)) => class.name().to_string(),
                (false, None) if n.fault.contains(" + ") => "compound".to_string(),
                (false, None) => "unknown".to_string(),
            };
            *self.named.entry(class).or_insert(0) += 1;
        }
    }
}

/// Every fault of the catalogue with what came of it, in its order.
pub struct Tallies {
    pub faults: Vec<Tally>,
    /// Cases whose right result every judge was asked about, and how many of them each failed: in the order of [`judges`].
    pub right: usize,
    pub alarms: Vec<usize>,
}

impl Default for Tallies {
    fn default() -> Self {
        Self { faults: super::faults().map(Tally::new).collect(), right: 0, alarms: vec![0; judges().len()] }
    }
}

impl Tallies {
    /// Adds what the gates say of a right result that the model's bits and the bound pass.
    pub fn add_right(&mut self, alarms: &[bool]) {
        self.right += 1;
        self.alarms.iter_mut().skip(JUDGES.len()).zip(alarms).for_each(|(n, alarm)| *n += usize::from(*alarm));
    }

    /// The same of one that qassay itself does not pass.
    pub fn add_alarm(&mut self, alarms: &[bool]) {
        self.add_right(alarms);
        self.alarms[..JUDGES.len()].iter_mut().for_each(|n| *n += 1);
    }

    /// Adds what came of the faults in one case.
    pub fn add(&mut self, op: Op, kills: &[Kill]) {
        for kill in kills {
            if let Some(t) = self.faults.iter_mut().find(|t| t.fault == kill.fault) {
                t.add(op, kill);
            }
        }
    }

    pub fn sum(&self, f: impl Fn(&Tally) -> usize) -> usize {
        self.faults.iter().map(f).sum()
    }

    /// Faults that each judge caught, in the order of [`judges`].
    pub fn caught(&self) -> Vec<usize> {
        let gates = (0..GATES.len()).map(|i| self.sum(|t| t.by_gate[i]));
        [self.sum(|t| t.by_model), self.sum(|t| t.by_bound)].into_iter().chain(gates).collect()
    }

    /// (class, judge) → caught, and class → changed: for the kill matrix.
    pub fn kills(&self) -> (BTreeMap<(String, String), usize>, BTreeMap<String, usize>) {
        let (mut counts, mut totals) = (BTreeMap::new(), BTreeMap::new());
        for t in &self.faults {
            let class = t.fault.class.name().to_string();
            *totals.entry(class.clone()).or_insert(0) += t.changed;
            let mut add = |judge: &str, n: usize| *counts.entry((class.clone(), judge.to_string())).or_insert(0) += n;
            add(JUDGES[0], t.by_model);
            add(JUDGES[1], t.by_bound);
            GATES.iter().zip(&t.by_gate).for_each(|(g, n)| add(g.name, *n));
        }
        (counts, totals)
    }

    /// (class, named) → how often, and class → asked: for the confusion matrix.
    pub fn confusion(&self) -> (BTreeMap<(String, String), usize>, BTreeMap<String, usize>) {
        let (mut counts, mut totals) = (BTreeMap::new(), BTreeMap::new());
        for t in &self.faults {
            let class = t.fault.class.name().to_string();
            *totals.entry(class.clone()).or_insert(0) += t.asked;
            for (named, n) in &t.named {
                *counts.entry((class.clone(), named.clone())).or_insert(0) += n;
            }
        }
        (counts, totals)
    }
}

/// The judges of qassay itself, before the gates.
pub const JUDGES: [&str; 2] = ["device model", "bound"];

/// Names of the judges; of the classes and the two answers that are none.
pub fn judges() -> Vec<String> {
    JUDGES.iter().copied().chain(GATES.iter().map(|g| g.name)).map(String::from).collect()
}
pub fn answers() -> Vec<String> {
    let classes = CLASSES.iter().map(|c| c.name).filter(|c| *c != "vacuous_oracle");
    classes.chain(["compound", "unknown"]).map(String::from).collect()
}
