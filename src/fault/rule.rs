//! A change of what is read, applied to one operand, the other, or both.

use super::edit::{Which, edit};
use super::{Class, Fault, How, Setting, plain};
use crate::job::Job;
use crate::quant::QTensorParts;

/// Where a fault sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    A,
    B,
    Both,
    /// In the result, or in no one operand.
    Out,
}

pub const A: &[On] = &[On::A];
pub const B: &[On] = &[On::B];
pub const BOTH: &[On] = &[On::Both];
pub const AB: &[On] = &[On::A, On::B];
pub const BA: &[On] = &[On::B, On::A];

impl On {
    /// `a`, `b` or `out`, as diagnoses say it.
    pub fn name(self) -> &'static str {
        match self {
            On::A => "a",
            On::B => "b",
            On::Both | On::Out => "out",
        }
    }
    /// The operands that are read otherwise.
    pub fn sides(self) -> &'static [Which] {
        match self {
            On::A => &[Which::A],
            On::B => &[Which::B],
            On::Both => &[Which::A, Which::B],
            On::Out => &[],
        }
    }
}

/// Changes the quantized tensor of an operand. `None`: it does not apply, or nothing changes.
pub type Change = fn(&Job, &mut QTensorParts, Setting) -> Option<()>;

/// A fault of whichever operand.
pub struct OperandRule {
    pub class: Class,
    /// The variant without its operand; empty where that is all.
    pub name: &'static str,
    /// A fault each.
    pub on: &'static [On],
    /// With `{}` for the operand.
    pub help: &'static str,
    pub change: Change,
    pub settings: fn(&Job) -> Vec<Setting>,
}

/// A rule without parameters.
pub const fn rule(class: Class, name: &'static str, on: &'static [On], help: &'static str, change: Change) -> OperandRule {
    OperandRule { class, name, on, help, change, settings: plain }
}

impl OperandRule {
    /// A fault for each operand that it is on. The names are kept for the life of the program.
    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        let OperandRule { class, name, on, help, change, settings } = *self;
        on.iter().map(move |on| {
            let operand = if *on == On::Both { "both" } else { on.name() };
            let variant = if name.is_empty() { operand.to_string() } else { format!("{operand}.{name}") };
            let help = help.replace("{}", operand);
            Fault { class, on: *on, variant: variant.leak(), help: help.leak(), how: How::Operand(change), settings }
        })
    }
}

/// The job as it is read with `change` on these operands. `None`: it does not apply to one of them.
pub fn applied(job: &Job, on: On, change: Change, setting: Setting) -> Option<Job> {
    on.sides().iter().try_fold(job.clone(), |job, side| edit(&job, *side, |p| change(&job, p, setting)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_fault_for_each_operand() {
        let two = rule(Class::Rounding, "cut", &[On::A, On::Both], "the bits of {} are cut", |_, _, _| None);
        let names: Vec<_> = two.faults().map(|f| (f.name(), f.help, f.on)).collect();
        let want =
            [("rounding:a.cut", "the bits of a are cut", On::A), ("rounding:both.cut", "the bits of both are cut", On::Both)];
        assert_eq!(names, want.map(|(n, h, on)| (n.to_string(), h, on)));
        let bare = rule(Class::Rounding, "", B, "", |_, _, _| None);
        assert_eq!(bare.faults().next().unwrap().variant, "b");
    }
}
