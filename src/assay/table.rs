//! A line of a CSV as a struct: the list of its columns is written once, and everything that reads, writes, shows or explains a line
//! derives from it.

use crate::compare::{ErrorStats, METRICS, Metric, Verdict};
use crate::kernel::Backend;
use crate::model::Accumulator;
use crate::op::{Act, Op};
use crate::quant::ZeroKind;
use crate::{Error, Format, Granularity, Result};

/// One column of a table.
pub struct Column<L> {
    pub name: String,
    /// Empty for names and counts.
    pub unit: &'static str,
    pub help: String,
    value: Value<L>,
}

enum Value<L> {
    Field(fn(&L) -> String),
    Metric(fn(&L) -> &Errors, OneError, &'static Metric),
}

impl<L> Column<L> {
    /// The column of a field, as the list of columns has it.
    pub fn field(name: &str, unit: &'static str, help: &str, text: fn(&L) -> String) -> Self {
        Column { name: name.into(), unit, help: help.into(), value: Value::Field(text) }
    }
    /// What a line has in this column, as it is written; empty where it does not apply.
    pub fn text(&self, line: &L) -> String {
        match &self.value {
            Value::Field(text) => text(line),
            Value::Metric(errors, one, metric) => one(errors(line)).map_or_else(String::new, |e| (metric.get)(e).text()),
        }
    }
    /// The number of a line in this column, where it has one.
    pub fn number(&self, line: &L) -> Option<f64> {
        self.text(line).parse().ok()
    }
}

/// A struct that is a line of a table. [`table!`] writes it from the list of columns.
pub trait Line: Sized + 'static {
    /// Every column, in the order of the file.
    fn columns() -> &'static [Column<Self>];
    /// A line of these texts, one for each column. Errors: too few or too many; one that its column cannot have, by the column's name.
    fn read(cells: &[&str]) -> Result<Self>;

    /// The texts of every column.
    fn cells(&self) -> Vec<String> {
        Self::columns().iter().map(|c| c.text(self)).collect()
    }
    fn names() -> Vec<&'static str> {
        Self::columns().iter().map(|c| c.name.as_str()).collect()
    }
    /// The column of a name that was typed. Errors: there is none.
    fn column(name: &str) -> Result<&'static Column<Self>> {
        let found = Self::columns().iter().find(|c| c.name == name);
        found.ok_or_else(|| Error::unknown("column", name, Self::names()))
    }
}

/// A value in a cell of a CSV: `of(text())` is the value.
pub trait Cell: Sized {
    fn text(&self) -> String;
    /// Errors: what was found and what was expected.
    fn of(text: &str) -> Result<Self>;
}

impl Cell for String {
    fn text(&self) -> String {
        self.clone()
    }
    fn of(text: &str) -> Result<Self> {
        Ok(text.into())
    }
}

/// Empty where there is none.
impl<T: Cell> Cell for Option<T> {
    fn text(&self) -> String {
        self.as_ref().map_or_else(String::new, T::text)
    }
    fn of(text: &str) -> Result<Self> {
        if text.is_empty() { Ok(None) } else { T::of(text).map(Some) }
    }
}

impl Cell for f64 {
    fn text(&self) -> String {
        super::row::number(*self)
    }
    fn of(text: &str) -> Result<Self> {
        text.parse().map_err(|_| Error::value("number", format!("`{text}`"), "a decimal number, inf or NaN"))
    }
}

/// Values that are written as they are shown.
macro_rules! cells {
    ($($type:ty: $expected:literal),*) => {$(
        impl Cell for $type {
            fn text(&self) -> String {
                self.to_string()
            }
            fn of(text: &str) -> Result<Self> {
                text.parse().map_err(|_| Error::value(stringify!($type), format!("`{text}`"), $expected))
            }
        }
    )*};
}

cells! { u32: "a whole number", u64: "a whole number", usize: "a whole number", bool: "true or false" }

/// Values with names of their own, which they are read from.
macro_rules! named {
    ($($type:ty: $name:expr),* $(,)?) => {$(
        impl $crate::assay::table::Cell for $type {
            fn text(&self) -> String {
                let name: fn(&$type) -> String = $name;
                name(self)
            }
            fn of(text: &str) -> $crate::Result<Self> {
                text.parse()
            }
        }
    )*};
}
pub(crate) use named;

named! {
    Accumulator: ToString::to_string,
    Act: |act| act.name().into(),
    Backend: |backend| backend.name().into(),
    Format: |format| format.name().into(),
    Granularity: ToString::to_string,
    Op: |op| op.name().into(),
    Verdict: |verdict| verdict.as_str().into(),
    ZeroKind: |kind| kind.name().into(),
}

/// Rows of the groups, between spaces.
impl Cell for Vec<usize> {
    fn text(&self) -> String {
        self.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
    fn of(text: &str) -> Result<Self> {
        text.split_whitespace().map(usize::of).collect()
    }
}

/// Counts of the bins of a histogram, between bars.
impl<const N: usize> Cell for [usize; N] {
    fn text(&self) -> String {
        self.map(|n| n.to_string()).join("|")
    }
    fn of(text: &str) -> Result<Self> {
        let counts: Vec<usize> = text.split('|').map(usize::of).collect::<Result<_>>()?;
        counts.try_into().map_err(|_| Error::value("counts", format!("`{text}`"), format!("{N} counts between |")))
    }
}

/// The three errors of a result; each absent where it could not be computed.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    /// ideal − exact.
    pub quantization: Option<ErrorStats>,
    /// actual − ideal.
    pub kernel: Option<ErrorStats>,
    /// actual − exact.
    pub total: Option<ErrorStats>,
}

impl Errors {
    /// A statistic of the quantization error, where there is one.
    pub fn quantization(&self, of: impl Fn(&ErrorStats) -> f64) -> Option<f64> {
        self.quantization.as_ref().map(of)
    }
    /// … of the kernel error.
    pub fn kernel(&self, of: impl Fn(&ErrorStats) -> f64) -> Option<f64> {
        self.kernel.as_ref().map(of)
    }
    /// … of the total error.
    pub fn total(&self, of: impl Fn(&ErrorStats) -> f64) -> Option<f64> {
        self.total.as_ref().map(of)
    }
}

/// One of the three errors.
type OneError = fn(&Errors) -> Option<&ErrorStats>;

/// The three errors, as column prefixes.
const ERRORS: [(&str, &str, OneError); 3] = [
    ("quant", "quantization error (ideal − exact)", |e| e.quantization.as_ref()),
    ("kernel", "kernel error (actual − ideal)", |e| e.kernel.as_ref()),
    ("total", "total error (actual − exact)", |e| e.total.as_ref()),
];

/// The columns of each metric of each error of a line; `of` says in the help whose errors they are.
pub fn metrics<L>(of: &str, errors: fn(&L) -> &Errors) -> Vec<Column<L>> {
    let column = |prefix: &str, what: &str, one: OneError, m: &'static Metric| Column {
        name: format!("{prefix}_{}", m.name),
        unit: m.unit,
        help: format!("{what}{of}: {}", m.help),
        value: Value::Metric(errors, one, m),
    };
    ERRORS
        .iter()
        .flat_map(|(prefix, what, one)| METRICS.iter().map(|m| column(prefix, what, *one, m)).collect::<Vec<_>>())
        .collect()
}

/// The cells of a line being read, from the first to the last.
pub struct Cells<'a, L: Line> {
    cells: &'a [&'a str],
    at: usize,
    of: std::marker::PhantomData<L>,
}

impl<'a, L: Line> Cells<'a, L> {
    /// Errors: they are not as many as the columns.
    pub fn new(cells: &'a [&'a str]) -> Result<Self> {
        if cells.len() != L::columns().len() {
            return Err(Error::value("line", format!("{} values", cells.len()), format!("{}", L::columns().len())));
        }
        Ok(Cells { cells, at: 0, of: std::marker::PhantomData })
    }
    /// The value of the next cell. Errors: it is none of its column.
    pub fn take<T: Cell>(&mut self) -> Result<T> {
        let (text, column) = (self.cells[self.at], &L::columns()[self.at].name);
        self.at += 1;
        T::of(text).map_err(|e| refused(text, column, e))
    }
    /// The next cells as the three errors. An error without a number in any of its columns is absent.
    pub fn errors(&mut self) -> Result<Errors> {
        let mut one = || {
            let of = &self.cells[self.at..self.at + METRICS.len()];
            if of.iter().all(|c| c.is_empty()) {
                self.at += METRICS.len();
                return Ok(None);
            }
            ErrorStats::of_metrics(|_| self.take()).map(Some)
        };
        Ok(Errors { quantization: one()?, kernel: one()?, total: one()? })
    }
}

/// What is no value of its column. Not part of [`Cells::take`], which is compiled for each type.
#[cold]
fn refused(text: &str, column: &str, e: Error) -> Error {
    let expected = match e {
        Error::Value { expected, .. } => expected,
        Error::Unknown { known, .. } => format!("one of {}", known.split_once("known: ").map_or(known.as_str(), |k| k.1)),
        other => other.to_string(),
    };
    Error::value(format!("column {column}"), format!("`{text}`"), expected)
}

/// A struct whose fields are the columns of a table: `field: type, unit, help;` in the order of the file, and after `errors` the metrics of
/// its three errors and the command that reproduces it. With `new(…)`, a line that begins with these values, its other fields as after
/// `=` or empty. Two lines are equal where they are written alike: NaN is NaN, and what no column holds does not count.
macro_rules! table {
    (@start) => { Default::default() };
    (@start $start:expr) => { $start };
    (
        $(#[$about:meta])* pub struct $Line:ident, new($($given:ident: $kind:ty),*) {
            $($field:ident: $ty:ty $(= $start:expr)?, $unit:literal, $help:literal;)*
        } errors $of:literal
    ) => {
        $crate::assay::table::table! { $(#[$about])* pub struct $Line { $($field: $ty, $unit, $help;)* } errors $of }
        impl $Line {
            /// A line of which nothing else is known yet.
            pub fn new($($given: $kind),*) -> Self {
                Self {
                    $($field: $crate::assay::table::table!(@start $($start)?),)*
                    errors: Default::default(),
                    command: String::new(),
                }
            }
        }
    };
    (
        $(#[$about:meta])* pub struct $Line:ident {
            $($field:ident: $ty:ty, $unit:literal, $help:literal;)*
        } $(errors $of:literal)?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        pub struct $Line {
            $(#[doc = $help] pub $field: $ty,)*
            $(
                #[doc = concat!("The three errors", $of, ".")]
                pub errors: $crate::assay::table::Errors,
                /// The one command that reproduces this row.
                pub command: String,
            )?
        }
        impl $crate::assay::table::Line for $Line {
            fn columns() -> &'static [$crate::assay::table::Column<Self>] {
                use $crate::assay::table::{Cell, Column};
                static COLUMNS: std::sync::LazyLock<Vec<Column<$Line>>> = std::sync::LazyLock::new(|| {
                    #[allow(unused_mut)] // Where there are no errors.
                    let mut all: Vec<Column<$Line>> =
                        vec![$(Column::field(stringify!($field), $unit, $help, |line| Cell::text(&line.$field))),*];
                    $(
                        all.extend($crate::assay::table::metrics($of, |line: &$Line| &line.errors));
                        all.push(Column::field("command", "", "the one command that reproduces this row", |line| line.command.clone()));
                    )?
                    all
                });
                &COLUMNS
            }
            fn read(cells: &[&str]) -> $crate::Result<Self> {
                let mut cells = $crate::assay::table::Cells::<Self>::new(cells)?;
                Ok(Self {
                    $($field: cells.take()?,)*
                    $(errors: { let _: &str = $of; cells.errors()? }, command: cells.take()?,)?
                })
            }
        }
        impl PartialEq for $Line {
            fn eq(&self, other: &Self) -> bool {
                use $crate::assay::table::Line;
                self.cells() == other.cells()
            }
        }
    };
}
pub(crate) use table;
