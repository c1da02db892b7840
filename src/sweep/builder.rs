//! A sweep from code instead of a file, for notebooks and tests: [`Sweep::new`], a few axes, [`Builder::run`].
//!
//! ```
//! use qassay::prelude::*;
//! let rows = Sweep::new(Op::Cast).recipes(["te_current", "float8_rowwise"]).shapes(["16x64"]).run()?;
//! assert!(rows.iter().all(|row| row.verdict == Verdict::Pass));
//! # Ok::<(), Error>(())
//! ```
//!
//! Every axis is a key of the sweep file ([`super::file`]) with the same words and the same defaults, and goes the same way: the
//! builder writes the table and [`Sweep::parse`] reads it. A name that does not exist is the same error.

use super::bar::Bar;
use super::{Case, Sweep, assay};
use crate::assay::row::Row;
use crate::compare::Verdict;
use crate::fault::injected::altered;
use crate::input::real;
use crate::kernel::{Backend, Kernel, cpu};
use crate::op::Op;
use crate::order::Order as _;
use crate::recipe::Recipe;
use crate::{Error, Result};
use std::fmt::Write as _;
use std::path::Path;

/// A sweep of one op under construction. An axis that is not set has the sweep file's default.
#[derive(Clone)]
pub struct Builder {
    op: Op,
    axes: Vec<(&'static str, Vec<String>)>,
    groups: Vec<usize>,
    seeds: u64,
    backend: Backend,
    kernels: Vec<&'static dyn Kernel>,
    quiet: bool,
}

macro_rules! axis {
    ($(#[$doc:meta])* $method:ident, $key:literal) => {
        $(#[$doc])*
        pub fn $method<S: ToString>(self, values: impl IntoIterator<Item = S>) -> Self {
            self.axis($key, values.into_iter().map(|v| quoted(&v.to_string())).collect())
        }
    };
}

/// A TOML string.
fn quoted(s: &str) -> String {
    toml::Value::from(s).to_string()
}

impl Sweep {
    /// A sweep of `op` over the axes that follow; see [`Builder`].
    #[allow(clippy::new_ret_no_self)] // What is new is a sweep to be; the word at the keyboard is `Sweep::new`.
    pub fn new(op: Op) -> Builder {
        Builder {
            op,
            axes: Vec::new(),
            groups: Vec::new(),
            seeds: 1,
            backend: Backend::Cpu,
            kernels: cpu::KERNELS.to_vec(),
            quiet: false,
        }
    }
}

impl Builder {
    fn axis(mut self, key: &'static str, mut values: Vec<String>) -> Self {
        match self.axes.iter_mut().find(|a| a.0 == key) {
            Some(axis) => axis.1.append(&mut values),
            None => self.axes.push((key, values)),
        }
        self
    }
    axis!(
        /// `MxNxK` for gemm, `MxN` for ops of one matrix, `NxK` for grouped ops.
        shapes, "shape"
    );
    axis!(
        /// Rows of each group, comma-separated: grouped ops, multi_cast_transpose.
        rows, "rows"
    );
    axis!(
        /// Activations: gelu, silu, relu, qgelu, srelu; gelu_erf, where it is named.
        acts, "act"
    );
    axis!(
        /// f16, bf16, f32: the unquantized values.
        dtypes, "dtype"
    );
    axis!(
        /// Distributions or real tensors: one for both operands, or `A+B`.
        dists, "dist"
    );
    axis!(
        /// What a product or an elementwise op writes: bf16, `scaled:e4m3`, a recipe. For casts use [`Builder::recipes`].
        outs, "out"
    );
    axis!(
        /// How products accumulate: exact, f32_sequential, hopper_wgmma, hopper_wgmma@128, …
        accumulators, "accumulator"
    );
    axis!(
        /// Zero points: recipe, additive.
        zeros, "zero"
    );
    /// Recipes by name: of the operands for products and dequantize (`R` for both, `A+B`, `none`, `fused:R`), of the result for
    /// every other op.
    pub fn recipes<S: ToString>(self, names: impl IntoIterator<Item = S>) -> Self {
        let key = if self.op.reads_codes() { "recipe" } else { "out" };
        self.axis(key, names.into_iter().map(|v| v.to_string()).collect())
    }
    /// Group sizes (elements of K that share a scale) for every recipe that leaves its group open.
    pub fn groups(mut self, sizes: impl IntoIterator<Item = usize>) -> Self {
        self.groups.extend(sizes);
        self
    }
    /// Added to B (to x for ops of one matrix), in units of its root mean square.
    pub fn offsets(self, values: impl IntoIterator<Item = f64>) -> Self {
        self.axis("offset", values.into_iter().map(|v| format!("{v:?}")).collect())
    }
    /// Products with a bias, without, or both.
    pub fn bias(self, values: impl IntoIterator<Item = bool>) -> Self {
        self.axis("bias", values.into_iter().map(|v| v.to_string()).collect())
    }
    /// Norms with zero-centered gamma, without, or both.
    pub fn zero_centered_gamma(self, values: impl IntoIterator<Item = bool>) -> Self {
        self.axis("zero_centered_gamma", values.into_iter().map(|v| v.to_string()).collect())
    }
    /// Real tensors: a collection (`minilm`: each activation with its weight for products, each matrix else) or one tensor, as
    /// [`real::RealTensor`] spells it.
    pub fn real(self, name: &str) -> Self {
        let product = matches!(self.op, Op::Gemm | Op::GroupedGemm);
        let linear = |layer: &str, part: &str| match product {
            true => vec![format!("{name}:{layer}.{part}_input+{name}:{layer}.{part}_weight")],
            false => vec![format!("{name}:{layer}.{part}_input"), format!("{name}:{layer}.{part}_weight")],
        };
        if !real::COLLECTIONS.iter().any(|c| c.0 == name) {
            return self.dists([name]);
        }
        let all =
            ["layer0", "layer5"].into_iter().flat_map(|l| ["ffn_in", "ffn_out"].into_iter().flat_map(move |p| linear(l, p)));
        let all: Vec<String> = all.collect();
        self.dists(all)
    }
    /// The kernels with a fault of the catalogue (`class:variant`), or with `accumulator=NAME`; they answer to their old names. Errors:
    /// an unknown name.
    pub fn inject(mut self, alteration: &str) -> Result<Self> {
        self.kernels = altered(&self.kernels, alteration.parse()?).to_vec();
        Ok(self)
    }
    /// Draws of each combination.
    pub fn seeds(mut self, n: u64) -> Self {
        self.seeds = n;
        self
    }
    /// Who runs it. The CPU kernels unless said.
    pub fn kernels(mut self, backend: Backend, kernels: &[&'static dyn Kernel]) -> Self {
        (self.backend, self.kernels) = (backend, kernels.to_vec());
        self
    }
    /// No progress bar.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// The table of a sweep file that says the same.
    pub fn toml(&self) -> Result<String> {
        let mut text = format!("about = \"from code\"\n\n[[cases]]\nname = \"notebook\"\nop = [{}]\n", quoted(self.op.name()));
        if !self.axes.iter().any(|a| a.0 == "shape") {
            let shape = match self.op {
                Op::Gemm => "48x80x384",
                op if op.is_grouped() => "80x384",
                _ => "64x384",
            };
            writeln!(text, "shape = [\"{shape}\"]").expect("writing to a string");
        }
        for (key, values) in &self.axes {
            let values = match *key {
                "recipe" | "out" => self.grouped(values)?,
                _ => values.clone(),
            };
            writeln!(text, "{key} = [{}]", values.join(", ")).expect("writing to a string");
        }
        writeln!(text, "seeds = {}", self.seeds).expect("writing to a string");
        Ok(text)
    }

    /// Each recipe with each group size, where it takes one; quoted. A value that is quoted already is no recipe.
    fn grouped(&self, names: &[String]) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for name in names {
            if name.starts_with('"') {
                all.push(name.clone());
                continue;
            }
            let open = |part: &str| -> Result<bool> {
                match part.strip_prefix("fused:").unwrap_or(part) {
                    "none" => Ok(false),
                    recipe => recipe.parse::<Recipe>()?.spec().map(|s| s.free_group()),
                }
            };
            let parts: Vec<&str> = name.split('+').collect();
            let takes: Vec<bool> = parts.iter().map(|p| open(p)).collect::<Result<_>>()?;
            if self.groups.is_empty() || !takes.contains(&true) {
                all.push(quoted(name));
                continue;
            }
            for group in &self.groups {
                let with = parts.iter().zip(&takes).map(|(p, t)| if *t { format!("{p}:g{group}") } else { p.to_string() });
                all.push(quoted(&with.collect::<Vec<_>>().join("+")));
            }
        }
        Ok(all)
    }

    /// The cases, in the order of the axes. Errors: a name that does not exist, an impossible number, no case.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let text = self.toml()?;
        let bare = |e: Error| match e {
            Error::BadLine { what, .. } => {
                Error::value(format!("sweep of {}", self.op.name()), what, "the words of `qassay list`")
            }
            other => other,
        };
        Sweep::parse(Path::new("notebook"), &text, 0).map(|s| s.cases).map_err(bare)
    }

    /// Runs every case. A case that cannot be run is a row that says why. Errors: those of [`Builder::cases`].
    pub fn run(&self) -> Result<Rows> {
        let cases = self.cases()?;
        let mut bar = Bar::new(cases.len(), self.quiet);
        let mut rows = Vec::with_capacity(cases.len());
        for case in &cases {
            rows.push(assay::assay(case, &self.kernels, self.backend, 0));
            bar.step();
        }
        Ok(Rows { cases, rows, kernels: self.kernels.clone(), backend: self.backend })
    }
}

/// Rows with the cases they came from, so that one can be looked into.
pub struct Rows {
    cases: Vec<Case>,
    rows: Vec<Row>,
    kernels: Vec<&'static dyn Kernel>,
    backend: Backend,
}

impl std::ops::Deref for Rows {
    type Target = [Row];
    fn deref(&self) -> &[Row] {
        &self.rows
    }
}

impl Rows {
    fn pick(&self, indices: impl IntoIterator<Item = usize>) -> Rows {
        let (mut cases, mut rows) = (Vec::new(), Vec::new());
        for i in indices {
            cases.push(self.cases[i].clone());
            rows.push(self.rows[i].clone());
        }
        Rows { cases, rows, kernels: self.kernels.clone(), backend: self.backend }
    }
    /// The rows that `keep` keeps.
    pub fn filter(&self, keep: impl Fn(&Row) -> bool) -> Rows {
        self.pick((0..self.rows.len()).filter(|i| keep(&self.rows[*i])))
    }
    /// The rows of a verdict.
    pub fn with(&self, verdict: Verdict) -> Rows {
        self.filter(|r| r.verdict == verdict)
    }
    /// The `n` rows that are worst: by verdict, then by error over bound.
    pub fn worst(&self, n: usize) -> Rows {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.order_by(|a, b| {
            let (a, b) = (&self.rows[*a], &self.rows[*b]);
            b.verdict.cmp(&a.verdict).then(b.bound_ratio.unwrap_or(0.0).total_cmp(&a.bound_ratio.unwrap_or(0.0)))
        });
        self.pick(order.into_iter().take(n))
    }
    /// Whether there are rows and each has one of these verdicts.
    pub fn all(&self, verdicts: &[Verdict]) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|r| verdicts.contains(&r.verdict))
    }
    /// The largest finite value of what `of` takes from each row.
    pub fn max(&self, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.rows.iter().filter_map(of).filter(|x| x.is_finite()).max_by(f64::total_cmp)
    }
    /// The case of row `i`.
    pub fn case(&self, i: usize) -> Result<&Case> {
        let n = self.cases.len();
        self.cases.get(i).ok_or_else(|| Error::value("row", i, format!("0 … {}", n.saturating_sub(1))))
    }
    /// Runs the case of row `i` again and keeps everything: inputs, codes, output, bound, verdict.
    pub fn detail(&self, i: usize) -> Result<crate::assay::Assayed> {
        assay::run(self.case(i)?, &self.kernels, self.backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_those_of_the_file() {
        let cases = Sweep::new(Op::Gemm)
            .recipes(["int8_token_sym+affine_asym:int4", "te_current"])
            .groups([32, 64])
            .shapes(["4x8x128"])
            .accumulators(["f32_sequential"])
            .bias([false, true])
            .offsets([0.0, 1.5])
            .cases()
            .unwrap();
        let recipes: Vec<String> = cases.iter().map(|c| c.b.to_string()).collect();
        assert_eq!(cases.len(), 3 * 4);
        assert!(
            recipes[0].contains("g32") && recipes[4].contains("g64") && recipes[8] == "te_current:e4m3"
                || recipes[8] == "te_current",
            "{recipes:?}"
        );
    }

    #[test]
    fn real_tensors_pair_activations_with_weights() {
        let cases = Sweep::new(Op::Gemm).real("minilm").cases().unwrap();
        assert_eq!(cases.len(), 4);
        assert!(cases.iter().all(|c| c.dist_a.to_string().ends_with("_input") && c.dist_b.to_string().ends_with("_weight")));
        assert_eq!(Sweep::new(Op::Cast).recipes(["te_current"]).real("minilm").cases().unwrap().len(), 8);
    }

    #[test]
    fn unknown_names_say_what_is_known() {
        let e = Sweep::new(Op::Cast).recipes(["te_curent"]).cases().unwrap_err().to_string();
        assert!(e.contains("te_curent") && e.contains("te_current"), "{e}");
        let e = Sweep::new(Op::Cast).dists(["gaussian"]).cases().unwrap_err().to_string();
        assert!(e.contains("gaussian") && e.contains("normal"), "{e}");
    }

    #[test]
    fn worst_rows_come_first() {
        let rows = Sweep::new(Op::Gemm).accumulators(["f32_sequential"]).shapes(["4x8x64", "4x8x512"]).quiet().run().unwrap();
        let worst = rows.worst(1);
        assert_eq!(worst.len(), 1);
        assert_eq!(worst[0].bound_ratio, rows.max(|r| r.bound_ratio));
        assert!(rows.detail(0).is_ok() && rows.detail(9).is_err());
        let fail = [Verdict::Fail];
        assert!(rows.all(&[Verdict::Pass]) && !rows.all(&fail) && !rows.with(Verdict::Fail).all(&fail));
    }
}
