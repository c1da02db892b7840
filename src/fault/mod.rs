//! Known ways for a quantized kernel to be wrong, as one catalogue: the same object injects a fault and recognises it.
//!
//! ```text
//! Fault + Setting ──► inject: what a kernel with the fault writes for a job     change, inject
//!                 └─► expect: the interval every element then has to lie in     expect
//! Evidence ──► Diagnosis: which fault, in which setting, explains what was written  diagnose
//! ```
//!
//! A kernel goes wrong at one of five places, the variants of [`How`]: what it reads, how it sums, how it encodes, where it
//! writes, and what it writes beside its result. The classes and their order are those of [`CLASSES`]; the bugs behind them are
//! in `data/bugs.csv`.

pub mod amax;
pub mod amax_ahead;
pub mod amax_of;
pub mod amax_rows;
pub mod amax_tiles;
mod assayed;
pub mod beside;
pub mod card;
pub(crate) mod chosen;
pub mod class;
pub mod codes;
pub mod dequantized;
pub mod diagnose;
pub mod edit;
pub mod encode;
pub mod evidence;
mod exponents;
pub mod grammar;
pub mod group;
pub mod inject;
pub mod injected;
pub mod k_parts;
pub mod locate;
pub mod moved;
pub mod pairs;
pub mod patches;
pub mod place;
pub mod power;
pub mod predict;
pub mod requant;
pub mod rule;
pub mod scale;
mod scale_limits;
pub mod settings;
pub mod solve;
pub mod subset;
pub mod sums;
pub mod tally;
pub(crate) mod whereabouts;

pub use assayed::DIAGNOSIS;
pub use class::{CLASSES, Class, ClassSpec};
pub use diagnose::{Diagnosis, Finding, diagnose};
pub use evidence::{Evidence, History};
pub use rule::On;

use crate::job::{Job, Output};
use std::sync::LazyLock;

/// The parameters of a fault that are found rather than named: which group, which step of the history, how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    pub at: usize,
    pub by: f64,
}

impl Default for Setting {
    fn default() -> Self {
        Self { at: 0, by: 1.0 }
    }
}

/// An element on its way into the output format.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    /// v, before the output's scale.
    pub v: f64,
    /// RN32(v·scale) (plus an integer zero point): what is rounded to a code. v itself for a high-precision output.
    pub y: f64,
    pub format: crate::Format,
    pub row: usize,
    pub col: usize,
    /// Whether codes carry a scale.
    pub scaled: bool,
}

/// Where an element of the result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Row and column of the right result.
    From(usize, usize),
    Zero,
    /// Whatever the buffer held: a NaN where the format has one.
    Unwritten,
}

/// Where in the kernel the fault is, and what it does there. `None` says that the fault does not apply to the job.
#[derive(Clone, Copy)]
pub enum How {
    /// It reads the operands it is [`On`] as if they were changed.
    Operand(rule::Change),
    /// It reads something else than it was given.
    Reads(fn(&Job, Setting) -> Option<Job>),
    /// It sums in another way (products): v of every element, bias included; `ulp` is the relative step of the type that partial sums
    /// are kept in, 0 for f32.
    Sums { values: fn(&Job, Setting) -> crate::Result<Option<Vec<f32>>>, ulp: f64 },
    /// It rounds or scales the result in another way: the code of an element. `None`: no such code in this format.
    Encodes(fn(&Job, &Element, Setting) -> Option<u32>),
    /// It writes elements to the wrong place, or not at all: the source of element (row, col) of a `rows × cols` result.
    Places(fn(&Job, Shape, Setting) -> Option<Moves>),
    /// What stands beside the result is wrong: amax, scale_inv, the transposed copy, dbias, mean, rsigma.
    Beside(fn(&Job, &mut Output, Setting) -> Option<()>),
}

impl How {
    /// What a kernel with it reads. `None`: the fault does not apply; the job itself where the fault is not in what is read.
    pub fn read(self, job: &Job, on: On, setting: Setting) -> Option<Job> {
        match self {
            How::Operand(change) => rule::applied(job, on, change, setting),
            How::Reads(change) => change(job, setting),
            _ => Some(job.clone()),
        }
    }
    pub fn is_read(self) -> bool {
        matches!(self, How::Operand(_) | How::Reads(_))
    }
}

/// Rows and columns of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub rows: usize,
    pub cols: usize,
}

/// The source of every element.
pub type Moves = Box<dyn Fn(usize, usize) -> Origin + Send + Sync>;

/// A known way to be wrong.
#[derive(Clone)]
pub struct Fault {
    pub class: Class,
    pub on: On,
    /// Operand, axis, format, rule: the rest of its name.
    pub variant: &'static str,
    /// What the kernel does, in one line.
    pub help: &'static str,
    pub how: How,
    /// The settings the fault can have on a job; injection takes one of them, diagnosis tries all, or those of `fit`.
    pub settings: fn(&Job) -> Vec<Setting>,
}

impl Fault {
    /// `class:variant`, such as `scale_omitted:a`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.class.name(), self.variant)
    }
}

/// One fault is another when their names are.
impl PartialEq for Fault {
    fn eq(&self, other: &Self) -> bool {
        (self.class, self.variant) == (other.class, other.variant)
    }
}

/// The catalogue, family by family: rules for operands, and faults that are none.
const FAMILIES: &[(&[rule::OperandRule], &[Fault])] = &[
    (scale::RULES, scale::FAULTS),
    (codes::RULES, &[]),
    (&[], requant::FAULTS),
    (&[], encode::FAULTS),
    (&[], sums::FAULTS),
    (dequantized::RULES, dequantized::FAULTS),
    (&[], pairs::FAULTS),
    (&[], place::FAULTS),
    (&[], group::FAULTS),
    (&[], beside::FAULTS),
];

static FAULTS: LazyLock<Vec<Fault>> = LazyLock::new(|| {
    let family = |(rules, faults): &'static (&[rule::OperandRule], &[Fault])| {
        rules.iter().flat_map(rule::OperandRule::faults).chain(faults.iter().cloned())
    };
    FAMILIES.iter().flat_map(family).collect()
});

/// Every fault, in the order of the catalogue.
pub fn faults() -> impl Iterator<Item = &'static Fault> {
    FAULTS.iter()
}

/// The one setting of a fault without parameters.
pub fn plain(_: &Job) -> Vec<Setting> {
    vec![Setting::default()]
}

/// The fault of this name. Errors: an unknown name.
pub fn find(name: &str) -> crate::Result<&'static Fault> {
    let known: Vec<String> = faults().map(Fault::name).collect();
    faults().find(|f| f.name() == name).ok_or_else(|| crate::Error::unknown("fault", name, known.iter().map(String::as_str)))
}
