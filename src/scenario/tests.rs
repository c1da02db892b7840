use super::run::{With, replay};
use super::*;
use crate::kernel::{Backend, cpu};

const CPU: With = With { seed: 0, backend: Backend::Cpu, kernels: cpu::KERNELS };

fn all() -> Vec<Scenario> {
    names().unwrap().iter().map(|n| Scenario::load(n).unwrap()).collect()
}

/// The smaller form of `qassay stale`: every scenario, a few steps beyond the first at which something can show.
#[test]
fn every_scenario_behaves_as_its_law_says() {
    for mut scenario in all() {
        scenario.steps = scenario.steps.min(12);
        for policy in Policy::ALL {
            let r = replay(&scenario, policy, CPU).unwrap();
            let bad = r.records.iter().find(|r| !r.is("holds"));
            let at = bad.map(|b| format!("step {} {}.{}: {}", b.get("step"), b.get("product"), b.get("operand"), b.get("why")));
            assert!(r.holds(), "{} {policy}: {:?} {at:?}", scenario.name, r.why);
        }
    }
}
