//! How accepted bits moved, over versions and from one testbed to another. There is no noise: a changed bit is a change, caused by
//! something else that changed with it.

use super::{Record, Recording};
use crate::assay::table::Cell;
use crate::order::Order as _;
use crate::run::facts::Facts;
use std::collections::{BTreeMap, HashMap};

/// What a changed digest may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Recipe or input: what the kernel saw.
    Operands,
    Kernel,
    Algorithm,
    SplitK,
    Gpu,
    Library,
    Driver,
    Compiler,
    /// The program differs and nothing of the above does.
    Program,
    /// The processor under the same program.
    Processor,
    /// Nothing that is recorded.
    Unknown,
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Cause::Operands => "recipe or input",
            Cause::Kernel => "kernel",
            Cause::Algorithm => "library's algorithm",
            Cause::SplitK => "split of K",
            Cause::Gpu => "GPU",
            Cause::Library => "library",
            Cause::Driver => "driver",
            Cause::Compiler => "compiler",
            Cause::Program => "program",
            Cause::Processor => "processor",
            Cause::Unknown => "nothing recorded",
        }
    }
}

/// Causes, each with what differs.
pub type Causes = Vec<(Cause, String)>;

/// A case whose digest is another.
#[derive(Clone, Debug)]
pub struct Changed {
    pub case: String,
    /// Digests of the output's bits.
    pub before: String,
    pub after: String,
    /// Never empty.
    pub causes: Causes,
}

/// From one recording of a sweep to another.
#[derive(Clone, Debug)]
pub struct Step {
    /// Cases that both have with a digest, and the same one.
    pub same: usize,
    pub changed: Vec<Changed>,
    /// Cases with a digest on one side alone.
    pub new: usize,
    pub gone: usize,
    /// Facts that differ: name, before, after.
    pub facts: Vec<(String, String, String)>,
}

impl Step {
    pub fn of(before: &Recording, after: &Recording) -> Step {
        let ran = |of: &Recording| -> HashMap<String, Record> {
            of.records.iter().filter(|r| !r.sha256.is_empty()).map(|r| (r.case.clone(), r.clone())).collect()
        };
        let known = ran(before);
        let mut step = Step { same: 0, changed: Vec::new(), new: 0, gone: 0, facts: Vec::new() };
        for (case, a) in after.records.iter().filter(|r| !r.sha256.is_empty()).map(|r| (&r.case, r)) {
            match known.get(case) {
                None => step.new += 1,
                Some(b) if b.sha256 == a.sha256 => step.same += 1,
                Some(b) => step.changed.push(Changed {
                    case: case.clone(),
                    before: b.sha256.clone(),
                    after: a.sha256.clone(),
                    causes: causes((b, &before.facts), (a, &after.facts)),
                }),
            }
        }
        step.gone = known.len() - step.same - step.changed.len();
        let differ = before.facts.differences(&after.facts, &["sweeps", "accepted at revision"]);
        step.facts = differ.into_iter().map(|(n, b, a)| (n.into(), b.into(), a.into())).collect();
        step
    }

    /// The changed cases by what changed them, most first.
    pub fn by_cause(&self) -> Vec<(Causes, Vec<&Changed>)> {
        let mut groups: BTreeMap<&[(Cause, String)], Vec<&Changed>> = BTreeMap::new();
        self.changed.iter().for_each(|c| groups.entry(&c.causes).or_default().push(c));
        let mut groups: Vec<_> = groups.into_iter().map(|(causes, of)| (causes.to_vec(), of)).collect();
        groups.order_by_key(|g| std::cmp::Reverse(g.1.len()));
        groups
    }

    /// The names of all causes, each once.
    pub fn causes(&self) -> Vec<&'static str> {
        let mut all: Vec<Cause> = self.changed.iter().flat_map(|c| c.causes.iter().map(|c| c.0)).collect();
        all.sort();
        all.dedup();
        all.into_iter().map(Cause::name).collect()
    }
}

/// What differs and can have changed a digest.
fn causes((b, before): (&Record, &Facts), (a, after): (&Record, &Facts)) -> Causes {
    let mut found = Vec::new();
    let differ = |x: &str, y: &str| (x != y).then(|| format!("{} → {}", shown(x), shown(y)));
    // What one side did not record says nothing.
    let both = |x: &str, y: &str| if x.is_empty() || y.is_empty() { None } else { differ(x, y) };
    let fact = |name: &str| both(before.get(name), after.get(name));
    let mut add = |cause, what: Option<String>| found.extend(what.map(|w| (cause, w)));

    add(
        Cause::Operands,
        both(&b.quant_sqnr_db.text(), &a.quant_sqnr_db.text()).map(|w| format!("SQNR of the operands {w} dB")),
    );
    let source = || fact("kernels").map(|_| "source of the kernels".to_string());
    add(Cause::Kernel, both(&b.kernel, &a.kernel).or_else(source));
    let injected = differ(before.get("injected"), after.get("injected"));
    add(Cause::Kernel, injected.map(|w| format!("injected fault {w}")));
    if !b.algorithm.is_empty() && !a.algorithm.is_empty() {
        let (split, rest) = (|w: &&str| w.starts_with("split_k="), |w: &&str| !w.starts_with("split_k="));
        let words = |s: &str, of: &dyn Fn(&&str) -> bool| s.split(' ').filter(of).collect::<Vec<_>>().join(" ");
        add(Cause::Algorithm, both(&words(&b.algorithm, &rest), &words(&a.algorithm, &rest)));
        add(Cause::SplitK, both(&words(&b.algorithm, &split), &words(&a.algorithm, &split)));
    }
    // `NVIDIA H200, cuBLASLt 130100`; the CPU is no GPU.
    let parts =
        |device: &str| device.split_once(", ").map_or((device.to_string(), String::new()), |(g, l)| (g.into(), l.into()));
    let ((gpu_b, library_b), (gpu_a, library_a)) = (parts(&b.device), parts(&a.device));
    if [&gpu_b, &gpu_a].iter().all(|g| *g != "cpu") {
        add(Cause::Gpu, both(&gpu_b, &gpu_a));
        add(Cause::Library, both(&library_b, &library_a));
    }
    add(Cause::Driver, fact("driver"));
    add(Cause::Compiler, fact("compiler").filter(|_| before.get("backend") == after.get("backend")));
    if found.is_empty() {
        let program =
            fact("program").map(|_| format!("revision {} → {}", shown(before.get("revision")), shown(after.get("revision"))));
        let (cause, what) = match (program, fact("device")) {
            (Some(what), _) => (Cause::Program, what),
            (None, Some(what)) => (Cause::Processor, what),
            (None, None) => (
                Cause::Unknown,
                "the kernel does not return the same bits every time, or what changed is not recorded".to_string(),
            ),
        };
        found.push((cause, what));
    }
    found
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// A commit that changed a baseline, or what is not committed.
#[derive(Clone, Debug)]
pub struct Version {
    /// Short hash; empty for what is not committed.
    pub hash: String,
    pub date: String,
    pub subject: String,
}

/// What a version has of a testbed.
#[derive(Clone, Debug)]
pub enum State {
    /// No baseline.
    Absent,
    /// The file of the version before.
    Kept,
    /// Columns of another version of qassay.
    Unread,
    Recorded(Recording),
}

/// A machine's baseline of one sweep, over the versions.
#[derive(Clone, Debug)]
pub struct Testbed {
    /// Folder below the baselines, `cuda-nvidia-h200`.
    pub machine: String,
    pub sweep: String,
    /// One for each version, oldest first.
    pub states: Vec<State>,
}

impl Testbed {
    pub fn name(&self) -> String {
        format!("{}/{}", self.machine, self.sweep)
    }
    /// What changed at version `i`, from the recording before it; `None` where there is none of the two.
    pub fn step(&self, i: usize) -> Option<Step> {
        let State::Recorded(after) = &self.states[i] else { return None };
        Some(Step::of(recorded(&self.states[..i])?, after))
    }
    /// The newest recording.
    pub fn newest(&self) -> Option<&Recording> {
        recorded(&self.states)
    }
}

fn recorded(states: &[State]) -> Option<&Recording> {
    states.iter().rev().find_map(|s| if let State::Recorded(r) = s { Some(r) } else { None })
}

/// Testbeds over versions.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub versions: Vec<Version>,
    pub testbeds: Vec<Testbed>,
}

impl History {
    /// The newest recordings of each two testbeds of one sweep, compared.
    pub fn across(&self) -> Vec<(&Testbed, &Testbed, Step)> {
        let mut pairs = Vec::new();
        for (i, one) in self.testbeds.iter().enumerate() {
            for other in self.testbeds[i + 1..].iter().filter(|o| o.sweep == one.sweep) {
                if let (Some(b), Some(a)) = (one.newest(), other.newest()) {
                    pairs.push((one, other, Step::of(b, a)));
                }
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Verdict;
    use crate::op::Op;

    fn side(set: &[(&str, &str)]) -> Recording {
        let get = |name: &str, usual: &str| set.iter().find(|s| s.0 == name).map_or(usual, |s| s.1).to_string();
        let record = Record {
            case: "c".into(),
            op: Op::Gemm,
            kernel: get("kernel", "vendor/cublaslt"),
            device: get("device", "NVIDIA H200, cuBLASLt 130100"),
            verdict: Verdict::Pass,
            sha256: get("sha256", "aa"),
            mismatches: None,
            bound_ratio: None,
            quant_sqnr_db: Some(get("sqnr", "30").parse().unwrap()),
            kernel_rel_frobenius: None,
            kernel_max_ulp: None,
            total_rel_frobenius: None,
            ulp_histogram: None,
            algorithm: get("algorithm", "id=66 split_k=1 stages=4"),
        };
        let names = ["program", "driver", "compiler", "kernels", "device", "backend", "revision", "injected"];
        let usual = |n: &str| if n == "injected" { "" } else { "p" };
        let facts = Facts(names.map(|n| (n.to_string(), get(&format!("fact {n}"), usual(n)))).into());
        Recording { sweep: "s".into(), records: vec![record], facts }
    }

    #[test]
    fn a_changed_digest_is_named_by_what_else_changed() {
        let named = |set: &[(&str, &str)]| {
            let step = Step::of(&side(&[]), &side(&[set, &[("sha256", "bb")]].concat()));
            step.causes().join(", ")
        };
        for (set, cause) in [
            (("kernel", "vendor/other"), "kernel"),
            (("fact kernels", "q"), "kernel"),
            (("fact injected", "gain:uniform"), "kernel"),
            (("algorithm", "id=67 split_k=1 stages=4"), "library's algorithm"),
            (("algorithm", "id=66 split_k=2 stages=4"), "split of K"),
            (("device", "NVIDIA B200, cuBLASLt 130100"), "GPU"),
            (("device", "NVIDIA H200, cuBLASLt 130200"), "library"),
            (("fact driver", "q"), "driver"),
            (("fact compiler", "q"), "compiler"),
            (("fact program", "q"), "program"),
            (("fact device", "q"), "processor"),
            (("sqnr", "31"), "recipe or input"),
        ] {
            // The program that has it is another too; that is no cause beside one.
            let more: &[(&str, &str)] = if cause == "processor" { &[] } else { &[("fact program", "q")] };
            assert_eq!(named(&[&[set], more].concat()), cause, "{set:?}");
        }
        assert_eq!(named(&[]), "nothing recorded");
        assert_eq!(
            named(&[("algorithm", "id=67 split_k=2 stages=4"), ("fact driver", "q")]),
            "library's algorithm, split of K, driver"
        );
        // A side that did not record it says nothing.
        assert_eq!(named(&[("fact driver", ""), ("algorithm", "")]), "nothing recorded");
        assert!(Step::of(&side(&[]), &side(&[("fact driver", "q")])).changed.is_empty(), "the same bits are no change");
    }

    #[test]
    fn testbeds_of_one_sweep_are_compared_once_each_and_never_with_themselves() {
        let bed = |machine: &str, sweep: &str, newest: Option<&str>| Testbed {
            machine: machine.into(),
            sweep: sweep.into(),
            states: vec![newest.map_or(State::Absent, |d| State::Recorded(side(&[("sha256", d)])))],
        };
        let testbeds = vec![
            bed("m1", "s", Some("aa")),
            bed("m1", "other", Some("aa")),
            bed("m2", "s", Some("bb")),
            bed("m3", "s", Some("aa")),
            bed("m4", "s", None),
        ];
        let history = History { versions: Vec::new(), testbeds };
        let pairs: Vec<(String, String, usize)> =
            history.across().into_iter().map(|(b, a, step)| (b.name(), a.name(), step.changed.len())).collect();
        let pair = |b: &str, a: &str, changed| (b.to_string(), a.to_string(), changed);
        assert_eq!(pairs, [pair("m1/s", "m2/s", 1), pair("m1/s", "m3/s", 0), pair("m2/s", "m3/s", 1)]);
    }

    #[test]
    fn a_step_goes_back_to_the_last_recording() {
        let states = vec![
            State::Absent,
            State::Recorded(side(&[])),
            State::Kept,
            State::Unread,
            State::Recorded(side(&[("sha256", "bb"), ("fact driver", "q")])),
        ];
        let bed = Testbed { machine: "m".into(), sweep: "s".into(), states };
        assert!((0..4).all(|i| bed.step(i).is_none()));
        let step = bed.step(4).unwrap();
        assert_eq!((step.same, step.changed.len(), step.new, step.gone), (0, 1, 0, 0));
        assert_eq!(step.facts, [("driver".to_string(), "p".to_string(), "q".to_string())]);
        assert_eq!(step.by_cause()[0].0, [(Cause::Driver, "p → q".to_string())]);
    }

    /// Every case of two recordings is the same, changed, new or gone.
    #[test]
    fn every_case_of_a_step_is_counted_once() {
        let with = |cases: &[(&str, &str)]| {
            let of = |(case, digest): &(&str, &str)| Record {
                case: case.to_string(),
                ..side(&[("sha256", digest)]).records.remove(0)
            };
            Recording { records: cases.iter().map(of).collect(), ..side(&[]) }
        };
        let before = with(&[("same", "aa"), ("too", "aa"), ("changed", "aa"), ("gone", "aa"), ("lost", "aa"), ("left", "aa")]);
        let after = with(&[("new", "aa"), ("same", "aa"), ("changed", "bb"), ("too", "aa"), ("never run", "")]);
        let step = Step::of(&before, &after);
        assert_eq!((step.same, step.changed.len(), step.new, step.gone), (2, 1, 1, 3));
    }
}
