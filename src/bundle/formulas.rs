//! Compares a result, element by element, with formulas that kernels use by mistake: one that explains everything wrong, or two that
//! explain it together, line by line.

pub use self::of_norms::SHIFTS;
use self::of_norms::{heads, merged, norms as of_norm};
use super::assay::Answer;
use super::function::{self, Point, quotient};
use super::gains::Columns;
use super::{
    Bundle, activation_steps, approximated, blank, curves, gates, limits, moments, norms, not_quantized, pieces, pitched,
    rescaled,
};
use crate::Tensor;
use crate::fault::solve::segment::lines;
use crate::op::Op;
use crate::op::activation::{act, gate};
use crate::parallel;

/// Elements that formulas are held against, at most: of more, every so many rows.
const MOST: usize = 1 << 20;
/// The share of the elements of a line, or of all wrong elements, that a formula has to make.
const SHARE: f64 = 0.98;
/// Wrong elements that a formula has to make, at least.
const LEAST: usize = 8;
/// Wrong rows that a formula is tried on before all are.
const FEW: usize = 64;
/// What f32 arithmetic and its library may be off, relative.
const SLACK: f64 = 1.0 / (1u64 << 18) as f64;

/// One row as a formula reads it: all rows, and which one it is.
pub struct At<'r> {
    pub rows: &'r [Vec<f64>],
    pub i: usize,
    pub gamma: &'r [f64],
    pub beta: &'r [f64],
    pub eps: f64,
    /// Columns of the result; the halves of a gated row.
    pub cols: usize,
}

type Made = Box<dyn Fn(&At) -> Vec<f64> + Send + Sync>;

/// Words, and what becomes of a number.
type Change<'w> = (&'w str, fn(f64) -> f64);

/// What columns do of which nothing is known.
const ELSE: &str = "holds something else";

/// A formula: words, and the row it makes. The right one has no words.
pub struct Formula {
    pub words: String,
    made: Made,
}

impl Formula {
    /// The row that it makes.
    pub fn row(&self, at: &At) -> Vec<f64> {
        (self.made)(at)
    }
}

pub fn formula(words: impl Into<String>, made: impl Fn(&At) -> Vec<f64> + Send + Sync + 'static) -> Formula {
    Formula { words: words.into(), made: Box::new(made) }
}

pub fn mean(x: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    x.iter().map(|x| f(*x)).sum::<f64>() / x.len().max(1) as f64
}

impl At<'_> {
    pub fn x(&self) -> &[f64] {
        &self.rows[self.i]
    }
    /// What lies so many elements behind the start of the row in memory, over the ends of rows; 0 behind the last.
    pub fn memory(&self, at: usize) -> f64 {
        let width = self.x().len();
        self.rows.get(self.i + at / width).map_or(0.0, |row| row[at % width])
    }
    fn n(&self) -> f64 {
        self.x().len() as f64
    }
    /// The row `d` before or after this one, wrapped.
    pub fn row(&self, d: isize) -> &[f64] {
        &self.rows[(self.i as isize + d).rem_euclid(self.rows.len() as isize) as usize]
    }
    /// `(x − shift)/divisor · γ + β`.
    pub fn norm(&self, shift: f64, divisor: f64) -> Vec<f64> {
        self.with(shift, divisor, |j| self.gamma[j], |j| self.beta[j])
    }
    fn with(&self, shift: f64, divisor: f64, gamma: impl Fn(usize) -> f64, beta: impl Fn(usize) -> f64) -> Vec<f64> {
        self.x().iter().enumerate().map(|(j, x)| (x - shift) / divisor * gamma(j) + beta(j)).collect()
    }
    /// Shift and divisor of the op's own.
    pub fn moments(&self, op: Op) -> (f64, f64) {
        let m = if op == Op::Layernorm { mean(self.x(), |x| x) } else { 0.0 };
        (m, (mean(self.x(), |x| (x - m).powi(2)) + self.eps).sqrt())
    }
}

/// A formula that an eps under the root may be taken for.
pub const EPS_BESIDE: &str = "eps is added to the root, not under it";

/// Which elements a formula makes.
type Mask = Vec<bool>;

/// What makes the wrong elements, in words. `None`: no op with formulas, or none that makes them.
pub fn explain(bundle: &Bundle, found: &Answer) -> Option<String> {
    let (op, params) = (bundle.meta.op, bundle.meta.params);
    let gain = if params.zero_centered_gamma { "1 + gamma" } else { "gamma" };
    let (t, part) = (bundle.a.high.as_ref()?, found.judgement());
    let mut all = match op {
        Op::Rmsnorm | Op::Layernorm => of_norm(op, gain, part.cols),
        Op::Activation | Op::Gated => gates::activations(op, params.act?),
        _ => return None,
    };
    let (cols, width) = (part.cols, if op == Op::Gated { 2 * part.cols } else { part.cols });
    (cols > 0 && t.cols() == width && part.actual.len() == t.rows() * cols).then_some(())?;
    let job = &found.assayed.built.job;
    let vector =
        |t: Option<&Tensor>, none: f64| t.map_or(vec![none; cols], |t| t.data().iter().map(|x| f64::from(*x)).collect());
    let one = f64::from(u8::from(params.zero_centered_gamma));
    let gamma: Vec<f64> = vector(job.operands.gamma.as_ref(), 1.0 - one).iter().map(|g| g + one).collect();
    let beta = vector(job.operands.beta.as_ref(), 0.0);
    let step = (t.rows() * cols).div_ceil(MOST).max(1);
    let rows: Vec<Vec<f64>> = (0..t.rows()).map(|i| t.row(i).iter().map(|x| f64::from(*x)).collect()).collect();
    let sampled: Vec<usize> = (0..t.rows()).step_by(step).collect();
    let (out, certain) = (part.bound.out(), part.bound.certain());
    let is_made = |at: usize, y: f64| {
        let (x, r) = (part.actual[at], certain[at]);
        let (low, high) = out.cell(at, x);
        let slack = (y.abs() * SLACK).max(if r.is_finite() { r } else { 0.0 });
        (y.is_nan() && x.is_nan()) || (low - slack <= y && y <= high + slack)
    };
    let mask = |f: &Formula| -> Mask {
        let row = |i: &usize| {
            let at = At { rows: &rows, i: *i, gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols };
            let made = f.row(&at);
            (0..cols).map(|j| is_made(i * cols + j, made[j])).collect::<Mask>()
        };
        parallel::collect(sampled.len(), |n| row(&sampled[n])).concat()
    };
    let found_nothing = found.diagnosis.as_ref().is_some_and(|d| d.findings.is_empty());
    let right = mask(&all[0]);
    let mut special = None;
    let element = |n: usize| {
        let (i, j) = (sampled[n / cols], n % cols);
        let (low, high) = out.cell(i * cols + j, part.actual[i * cols + j]);
        let gate = if op == Op::Gated { rows[i][cols + j] } else { 1.0 };
        curves::Element { x: rows[i][j], gate, low, high }
    };
    let wrong_elements = || (0..right.len()).filter(|n| !right[*n]).map(element).collect::<Vec<_>>();
    if matches!(op, Op::Rmsnorm | Op::Layernorm) {
        let wrong =
            |i: &usize, n: usize| right[n * cols..(n + 1) * cols].iter().any(|m| !m) && part.actual[i * cols].is_finite();
        let hit: Vec<usize> = sampled.iter().enumerate().filter(|(n, i)| wrong(i, *n)).map(|(_, i)| *i).collect();
        let solved: Vec<(usize, moments::Solved)> = parallel::collect(hit.len(), |n| {
            let i = hit[n];
            let at = At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols };
            (i, moments::solve(&at, op, |j| out.cell(i * cols + j, part.actual[i * cols + j])))
        });
        all.extend(moments::formulas(op, &rows, &solved));
        all.extend(moments::rounded(op, &rows, f64::from(params.eps), &solved));
        all.extend(heads(op, cols).into_iter().chain(merged(op, cols)).chain(strides::strided(op, rows.len(), cols)));
        all.extend(lanes::own_sums(op, cols).into_iter().chain(lanes::other_axes(op, rows.len())));
        all.extend(scans::of_parts(op, cols).into_iter().chain(by_row::of_rows(op, rows.len(), cols)));
        if op == Op::Layernorm {
            let row = |(i, _): &(usize, moments::Solved)| {
                let at = At { rows: &rows, i: *i, gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols };
                (at, &part.actual[i * cols..(i + 1) * cols])
            };
            special = moments::cancels(&solved.iter().map(row).collect::<Vec<_>>());
        }
    } else if let Some(own) = params.act {
        let wrong = wrong_elements();
        all.splice(1..1, rescaled::formulas(bundle, own, &wrong));
        all.extend(activation_steps::formulas(own, op == Op::Gated).into_iter().chain(pitched::gates(op, own, cols)));
        all.extend(limits::formula_of(own, &wrong).into_iter().chain(approximated::formulas(own, op == Op::Gated)));
        let one = |at: usize| {
            let (low, high) = out.cell(at, part.actual[at]);
            (rows[at / cols][at % cols], part.actual[at], 0.5 * (high - low) * (1.0 + SLACK))
        };
        if op == Op::Activation {
            special = gates::saturated(own, &mut (0..part.actual.len()).map(one).collect());
        }
    }
    // Some of the wrong rows refuse most formulas: one that makes a line is looked at in all.
    let is_wrong: Vec<usize> = (0..sampled.len()).filter(|n| right[n * cols..(n + 1) * cols].contains(&false)).collect();
    let few: Vec<usize> = is_wrong.iter().copied().step_by(is_wrong.len().div_ceil(FEW).max(1)).collect();
    let makes_some = |f: &&Formula| {
        let row = |n: &usize| {
            let i = sampled[*n];
            let at = At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols };
            f.row(&at).iter().enumerate().map(|(j, y)| is_made(i * cols + j, *y)).collect::<Mask>()
        };
        let made: Vec<Mask> = parallel::collect(few.len(), |n| row(&few[n]));
        let any_row = || made.iter().any(|m| m.iter().filter(|x| **x).count() as f64 >= SHARE * cols as f64);
        let is = |j: usize| made.iter().filter(|m| m[j]).count() as f64 >= SHARE * made.len() as f64;
        let told = |j: usize| few.iter().any(|n| !right[n * cols + j]);
        // Elements of any place: one of many.
        let share = || {
            let wrong = |n: &usize| (0..cols).filter(|j| !right[n * cols + j]).count();
            let all: usize = few.iter().map(wrong).sum();
            let hit: usize =
                few.iter().zip(&made).map(|(n, m)| (0..cols).filter(|j| !right[n * cols + j] && m[*j]).count()).sum();
            hit as f64 > 0.9 * SHARE * all as f64
        };
        any_row() || (0..cols).any(|j| told(j) && is(j)) || share()
    };
    let rest: Vec<&Formula> = all[1..].iter().filter(makes_some).collect();
    // In f32 1 + tanh and 1 + erf lose what cancels: the few that another activation does not make for that are its own.
    let with_cancelled = |f: &Formula, made: Mask| -> Mask {
        let wrong = right.iter().filter(|r| !**r).count();
        let left = (0..right.len()).filter(|n| !right[*n] && !made[*n]).count();
        if op.is_norm() || left == 0 || 10 * left > wrong {
            return made;
        }
        let row = |n: usize| {
            let i = sampled[n];
            let y = f.row(&At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols });
            let by = |j: usize| if op == Op::Gated { rows[i][cols + j] } else { 1.0 };
            let cell = |j: usize| out.cell(i * cols + j, part.actual[i * cols + j]);
            (0..cols).map(|j| made[n * cols + j] || curves::cancels(rows[i][j] * by(j), cell(j), y[j])).collect::<Mask>()
        };
        parallel::collect(sampled.len(), row).concat()
    };
    let of_rest = rest.iter().map(|f| with_cancelled(f, mask(f)));
    let masks: Vec<Mask> = std::iter::once(right.clone()).chain(of_rest).collect();
    let words: Vec<&str> = std::iter::once("").chain(rest.iter().map(|f| f.words.as_str())).collect();
    let found = by_elements(&masks, &words, cols, (step == 1).then_some(&part.actual[..]));
    let found = found.map(|found| {
        let columns = || {
            let n =
                (1..words.len()).find(|n| found.starts_with(words[*n]) && left_over::is_of_columns(&found) && op.is_norm())?;
            let (ones, zeros) = (vec![1.0; cols], vec![0.0; cols]);
            let row = |i: &usize| {
                rest[n - 1].row(&At { rows: &rows, i: *i, gamma: &ones, beta: &zeros, eps: f64::from(params.eps), cols })
            };
            let normal: Vec<Vec<f64>> = sampled.iter().map(row).collect();
            let is = |n: usize, c: usize, y: f64| is_made(sampled[n] * cols + c, y);
            let stored: Vec<f64> = gamma.iter().map(|g| g - one).collect();
            let left = |c: &usize| (0..sampled.len()).any(|r| !right[r * cols + c] && !masks[n][r * cols + c]);
            let left: Vec<usize> = (0..cols).filter(left).collect();
            let of = Columns { gamma: &gamma, stored: &stored, beta: &beta, normal: &normal, is: &is };
            Some(format!("{}{}", words[n], of.explain(&left)?))
        };
        columns().unwrap_or(found)
    });
    // In a branch that is taken for some values alone.
    let found = found.map(|found| {
        let branch = || {
            let n = (1..words.len()).filter(|n| found.starts_with(words[*n])).max_by_key(|n| words[*n].len())?;
            (!op.is_norm() && !found[words[n].len()..].starts_with(';')).then_some(())?;
            let x: Vec<f64> = (0..right.len()).map(|at| rows[sampled[at / cols]][at % cols]).collect();
            Some(format!("{}{}", words[n], thresholds::where_it_is(&x, &right, &masks[n])?))
        };
        branch().unwrap_or(found)
    });
    let found = found.or_else(|| by_lines(&masks, &words, cols).filter(|_| step == 1)).or(special);
    let cell = |at: usize| out.cell(at, part.actual[at]);
    let norm = op.is_norm().then(|| norms::Norm {
        op,
        rows: &rows,
        sampled: &sampled,
        gain,
        gamma: &gamma,
        beta: &beta,
        eps: f64::from(params.eps),
        actual: &part.actual,
        cell: &cell,
        right: &right,
    });
    let solved =
        |norm: &norms::Norm| norm.explain().or_else(|| norms::strided_gains::explain(norm)).or_else(|| norm.otherwise());
    let apart = || norm.as_ref().and_then(solved);
    // Many formulas lie within a wide bound: of one that is not the result itself, what is solved of it comes first.
    let is_close = |words: &str| {
        let Some(f) = rest.iter().filter(|f| words.starts_with(&f.words)).max_by_key(|f| f.words.len()) else { return true };
        let (mut all, mut close) = (0usize, 0usize);
        for n in &few {
            let made = f.row(&At { rows: &rows, i: sampled[*n], gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols });
            for j in (0..cols).filter(|j| !right[n * cols + j]) {
                let ((low, high), slack) = (cell(sampled[*n] * cols + j), (made[j].abs() + beta[j].abs()) * SLACK);
                (all, close) = (all + 1, close + usize::from(low - slack <= made[j] && made[j] <= high + slack));
            }
        }
        close as f64 >= SHARE * all as f64
    };
    let found = match found {
        Some(words) if op.is_norm() && !is_close(&words) => {
            let solved = norm.as_ref().and_then(norms::Norm::explain).filter(|w| !w.contains(norms::OPEN));
            solved.or(Some(words))
        }
        found => found,
    };
    // Parts of rows: of other rows' numbers they are no formula of some elements.
    let in_parts = norm.as_ref().and_then(norms::segments::explain);
    let found = in_parts.clone().filter(|parts| parts.1).map(|parts| parts.0).or(found);
    // An activation by other constants, of all elements but some.
    let curve = |not: Option<&[bool]>| {
        matches!(op, Op::Activation | Op::Gated).then_some(())?;
        let is = |n: &usize| not.is_none_or(|m| !m[*n]) && part.actual[sampled[n / cols] * cols + n % cols].is_finite();
        let all: Vec<usize> = (0..right.len()).filter(is).collect();
        // Where the right formula makes nearly all, its own constants would be found.
        let own = all.iter().filter(|n| right[**n]).count();
        ((own as f64) < curves::SHARE * all.len() as f64).then_some(())?;
        let all: Vec<curves::Element> = all.into_iter().map(element).collect();
        // Nor where it does to what a curve is held to: what is far below its own terms.
        let f = params.act?;
        let as_asked =
            |e: &curves::Element| curves::makes(e, act(f, e.x) * if op == Op::Gated { gate(f, e.gate) } else { 1.0 });
        (!all.iter().all(as_asked)).then_some(())?;
        curves::explain(&all, op == Op::Gated)
    };
    // What is not written, and what is wrong beside it.
    let beside = || {
        let blank = blank::find(&part.actual, &right, cols).filter(|_| step == 1)?;
        let masks: Vec<Mask> = masks.iter().map(|m| m.iter().zip(&blank.is).map(|(m, b)| *m || *b).collect()).collect();
        if !masks[0].contains(&false) {
            return found_nothing.then(|| format!("{}{}", blank::ONLY, blank.words));
        }
        let other = by_elements(&masks, &words, cols, Some(&part.actual)).or_else(|| by_lines(&masks, &words, cols));
        other.or_else(|| curve(Some(&blank.is))).map(|other| format!("{other}; and {}", blank.words))
    };
    let of_pieces = || {
        matches!(op, Op::Rmsnorm | Op::Layernorm).then_some(())?;
        let at = |i: usize| At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols };
        let cell = |at: usize| {
            let ((low, high), slack) = (out.cell(at, part.actual[at]), part.actual[at].abs() * SLACK);
            (low - slack, high + slack)
        };
        (step == 1).then_some(())?;
        pieces::explain(&pieces::Rows { op, at: &at, cell: &cell, right: &right, rows: rows.len(), cols })
    };
    let in_parts = || in_parts.map(|parts| parts.0);
    let at = |i: usize| At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols };
    let read = || {
        (step == 1).then_some(())?;
        pitched::explain(&pitched::Seen { at: &at, own: &all[0], is_made: &is_made, right: &right, norm: op.is_norm() })
    };
    let found = found.or_else(read).or_else(apart).or_else(|| curve(None)).or_else(of_pieces).or_else(in_parts).or_else(beside);
    // What nothing else explains.
    let nameless = || {
        found_nothing.then_some(())?;
        let at = |n: usize| sampled[n / cols] * cols + n % cols;
        let points = |f: &dyn Fn(usize) -> Point| (0..sampled.len() * cols).map(|n| f(at(n))).collect::<Vec<Point>>();
        let cell = |at: usize| {
            let (low, high) = out.cell(at, part.actual[at]);
            let slack = part.actual[at].abs() * SLACK;
            (low - slack, high + slack)
        };
        match op {
            Op::Activation => {
                let own = params.act?;
                let of = |at: usize| {
                    let (x, (low, high)) = (rows[at / cols][at % cols], cell(at));
                    Point { x, low, high, right: act(own, x) }
                };
                let points = points(&of);
                let unrounded = || not_quantized::explain(own, f64::from(bundle.a.dequantized_by?), &points);
                function::explain(&points, cols, "the activation").or_else(unrounded)
            }
            Op::Gated => {
                let own = params.act?;
                let both = |at: usize| (rows[at / cols][at % cols], rows[at / cols][cols + at % cols]);
                let of_x = |at: usize| {
                    let (x, u) = both(at);
                    quotient(x, cell(at), gate(own, u), act(own, x))
                };
                let of_gate = |at: usize| {
                    let (x, u) = both(at);
                    quotient(u, cell(at), act(own, x), gate(own, u))
                };
                let first = function::explain(&points(&of_x), cols, "the activation");
                first.or_else(|| function::explain(&points(&of_gate), cols, "what multiplies the activation"))
            }
            Op::Rmsnorm | Op::Layernorm => {
                let wrong = |n: &usize| right[n * cols..(n + 1) * cols].iter().any(|m| !m);
                let written = |n: usize| {
                    let i = sampled[n];
                    let at = At { rows: &rows, i, gamma: &gamma, beta: &beta, eps: f64::from(params.eps), cols };
                    let cells = (0..cols).map(|j| cell(i * cols + j)).collect();
                    moments::Written { at, y: &part.actual[i * cols..(i + 1) * cols], cells }
                };
                moments::free(op, &(0..sampled.len()).filter(wrong).map(written).collect::<Vec<_>>())
            }
            _ => None,
        }
    };
    // What is only not written is right otherwise.
    let no_formula = [blank::ONLY, norms::segments::PARTS];
    let formula = |w: String| if no_formula.iter().any(|n| w.starts_with(n)) { w } else { format!("another formula: {w}") };
    // Columns of old numbers: neither the right ones, nor x, nor the gate.
    let old = || {
        (found_nothing && step == 1 && matches!(op, Op::Activation | Op::Gated)).then_some(())?;
        let n = rows.len() * cols;
        let column = |from: usize| (0..n).map(|at| rows[at / cols][from + at % cols]).collect::<Vec<f64>>();
        let sources: Vec<Vec<f64>> =
            std::iter::once(part.bound.ideal().to_vec()).chain((0..width).step_by(cols).map(column)).collect();
        let alone = blank::old(&part.actual, &right, cols, &sources).map(|w| format!("{}{w}", blank::ONLY));
        alone.or_else(|| old_columns::beside(&masks, &words, &part.actual, cols, &sources))
    };
    found.or_else(nameless).or_else(old).map(formula)
}

/// The first formula that makes what the right one, which is the first of all, does not; one that makes the right elements too before others.
fn by_elements(masks: &[Mask], words: &[&str], cols: usize, whole: Option<&[f64]>) -> Option<String> {
    let wrong: Vec<usize> = (0..masks[0].len()).filter(|at| !masks[0][*at]).collect();
    (wrong.len() >= LEAST).then_some(())?;
    let share = |m: &Mask| wrong.iter().filter(|at| m[**at]).count() as f64 / wrong.len() as f64;
    let makes: Vec<usize> = (1..masks.len()).filter(|n| share(&masks[*n]) > SHARE).collect();
    // Else the first, but where another leaves far fewer of them.
    let missed = |n: usize| wrong.iter().filter(|at| !masks[n][**at]).count();
    let best = |best: usize, n: usize| if missed(n) + LEAST <= missed(best) { n } else { best };
    let n = makes.iter().copied().find(|n| masks[*n].iter().all(|m| *m)).or_else(|| makes.iter().copied().reduce(best))?;
    // All over, but where the two agree.
    let all_over = masks[n].iter().filter(|m| **m).count() as f64 > SHARE * masks[n].len() as f64;
    if all_over || whole.is_none() {
        let rest = whole.map_or(String::new(), |actual| left_over::told((masks, words), n, &wrong, cols, actual));
        return Some(format!("{}{rest}", words[n]));
    }
    let rows = masks[0].len() / cols;
    let (mut is_row, mut is_col) = (vec![false; rows], vec![false; cols]);
    wrong.iter().for_each(|at| (is_row[at / cols], is_col[at % cols]) = (true, true));
    Some(format!("{}{}", words[n], place(&is_row, &is_col)))
}

fn place(rows: &[bool], cols: &[bool]) -> String {
    match (rows.iter().all(|x| *x), cols.iter().all(|x| *x)) {
        (true, true) => String::new(),
        (false, true) => format!(", in rows {}", lines(rows)),
        (true, false) => format!(", in columns {}", lines(cols)),
        _ => format!(", in rows {}, columns {}", lines(rows), lines(cols)),
    }
}

/// Two formulas that make every wrong row between them, or every wrong column.
fn by_lines(masks: &[Mask], words: &[&str], cols: usize) -> Option<String> {
    let rows = masks[0].len() / cols;
    for by_row in [true, false] {
        let (n, m) = if by_row { (rows, cols) } else { (cols, rows) };
        let at = |line: usize, x: usize| if by_row { line * cols + x } else { x * cols + line };
        let made: Vec<Vec<bool>> = masks
            .iter()
            .map(|mask| (0..n).map(|l| (0..m).filter(|x| mask[at(l, *x)]).count() as f64 >= SHARE * m as f64).collect())
            .collect();
        let wrong: Vec<usize> = (0..n).filter(|l| !made[0][*l]).collect();
        let elements = |lines: &[usize]| lines.iter().map(|l| (0..m).filter(|x| !masks[0][at(*l, *x)]).count()).sum::<usize>();
        let pair = (1..masks.len()).flat_map(|f| (f + 1..masks.len()).map(move |g| (f, g))).find(|(f, g)| {
            let only =
                |f: usize, g: usize| wrong.iter().copied().filter(|l| made[f][*l] && !made[g][*l]).collect::<Vec<usize>>();
            let (first, second) = (only(*f, *g), only(*g, *f));
            wrong.iter().all(|l| made[*f][*l] || made[*g][*l]) && elements(&first).min(elements(&second)) >= LEAST
        });
        let Some((f, g)) = pair else { continue };
        let of = |f: usize, g: usize| {
            let is_line: Vec<bool> = (0..n).map(|l| !made[0][l] && made[f][l] && (f < g || !made[g][l])).collect();
            let what = if by_row { "rows" } else { "columns" };
            format!("{}, in {what} {}", words[f], lines(&is_line))
        };
        return Some(format!("{}; and {}", of(f, g), of(g, f)));
    }
    None
}

#[cfg(test)]
mod by_hand;
mod by_row;
mod lanes;
mod left_over;
mod of_norms;
mod old_columns;
mod scans;
mod strides;
mod thresholds;

#[cfg(test)]
mod tests {
    use super::left_over::others;
    use super::*;

    const WORDS: [&str; 3] = ["", "one", "two"];
    const NUMBERS: [f64; 512] = [1.0; 512];

    fn mask(f: impl Fn(usize, usize) -> bool) -> Mask {
        (0..16 * 32).map(|at| f(at / 32, at % 32)).collect()
    }

    #[test]
    fn one_formula_of_a_region_and_two_of_lines_are_found() {
        let right = mask(|i, _| i < 8);
        let one = mask(|i, _| i >= 8);
        assert_eq!(by_elements(&[right.clone(), one.clone()], &WORDS, 32, Some(&NUMBERS)).unwrap(), "one, in rows 8 … 15");
        // One of 128 columns is left besides.
        let made: Mask = (0..512).map(|at| at % 128 != 3).collect();
        let wrong: Vec<usize> = (0..512).collect();
        assert!(others(&made, &wrong, 128, &NUMBERS).contains("column 3 holds 1 in all of it"));
        // Few columns are one in 64, and four elements say that something is there.
        let but =
            |columns: usize, rows: usize| -> Mask { (0..512).map(|at| at % 128 >= columns || at / 128 >= rows).collect() };
        let said = |columns, rows| others(&but(columns, rows), &wrong, 128, &NUMBERS);
        assert!(said(2, 4).contains("holds 1 in all of it"), "{}", said(2, 4));
        assert_eq!([said(1, 3), said(0, 0)], ["", ""]);
        // All over the columns: one magnitude that none exceeds, or something else.
        assert_eq!(said(3, 4), "; and 12 elements hold ±1, which none exceeds: a limit of the result");
        let mixed: Vec<f64> = (0..512).map(f64::from).collect();
        let left = others(&but(3, 4), &wrong, 128, &mixed);
        assert_eq!(left, "; this is not all: 12 of 512 wrong elements are others");
        let part = mask(|i, _| (8..12).contains(&i));
        let rest = mask(|i, j| i >= 12 && j != 3 || i == 2);
        let masks = [right.clone(), part.clone(), rest];
        assert_eq!(by_elements(&masks, &WORDS, 32, Some(&NUMBERS)), None);
        assert_eq!(by_lines(&masks, &WORDS, 32), None, "a line of which one in 32 is not made is not made");
        let rest = mask(|i, _| i >= 12);
        assert_eq!(by_lines(&[right, part, rest], &WORDS, 32).unwrap(), "one, in rows 8 … 11; and two, in rows 12 … 15");
    }

    /// 98 % of the wrong elements, eight of them at least; the first of two formulas that do.
    #[test]
    fn a_formula_makes_nearly_all_that_is_wrong() {
        let right = mask(|i, _| i < 8);
        let of = |made: Mask| by_elements(&[right.clone(), made], &WORDS, 32, Some(&NUMBERS));
        // 256 are wrong: 251 are more than 98 %, 250 are not.
        let but = |n: usize| mask(|i, j| i >= 8 && (i != 15 || j >= n));
        assert_eq!([of(but(5)), of(but(6))], [Some("one, in rows 8 … 15".into()), None]);
        let both = [right.clone(), but(0), but(0)];
        assert_eq!(by_elements(&both, &WORDS, 32, Some(&NUMBERS)).unwrap(), "one, in rows 8 … 15");
        let second = [right.clone(), but(9), but(0)];
        assert_eq!(by_elements(&second, &WORDS, 32, Some(&NUMBERS)).unwrap(), "two, in rows 8 … 15");
        let whole = [right.clone(), but(0), mask(|_, _| true)];
        assert_eq!(by_elements(&whole, &WORDS, 32, Some(&NUMBERS)).unwrap(), "two", "it makes what is right as well");
        let few = |n: usize| {
            let wrong = |i: usize, j: usize| i == 3 && j < n;
            by_elements(&[mask(|i, j| !wrong(i, j)), mask(wrong)], &WORDS, 32, Some(&NUMBERS))
        };
        assert_eq!([few(8), few(7)], [Some("one, in rows 3, columns 0 … 7".into()), None]);
        // Of a sample no place is told, nor where it holds all over.
        assert_eq!(by_elements(&[right.clone(), but(0)], &WORDS, 32, None).unwrap(), "one");
        assert_eq!(of(mask(|_, _| true)).unwrap(), "one");
        let columns = mask(|_, j| j % 4 != 1);
        let made = mask(|_, j| j % 4 == 1);
        assert_eq!(
            by_elements(&[columns, made], &WORDS, 32, Some(&NUMBERS)).unwrap(),
            "one, in columns 1, 5, … 29 (every 4th)"
        );
        assert_eq!(place(&[true; 2], &[true; 3]), "");
    }

    #[test]
    fn columns_that_hold_something_else_are_told_by_their_rows() {
        let wrong: Vec<usize> = (0..512).collect();
        let made: Mask = (0..512).map(|at| at % 128 != 5).collect();
        let mut actual = NUMBERS;
        actual[128 + 5] = 2.0;
        assert_eq!(others(&made, &wrong, 128, &actual), "; and in 4 rows column 5 holds something else");
        let made: Mask = (0..512).map(|at| ![5, 7].contains(&(at % 128)) || at == 5).collect();
        assert_eq!(others(&made, &wrong, 128, &actual), "; and in 4 rows column 5, 7 holds something else");
    }

    /// Two formulas make every wrong line, each of them eight elements that the other does not.
    #[test]
    fn two_formulas_make_lines_between_them() {
        let of = |masks: [Mask; 3]| by_lines(&masks, &WORDS, 32);
        let right = |wrong: usize| mask(move |_, j| j % 16 >= wrong);
        // Columns 0 and 16 by one, 1 and 17 by the other.
        let two = of([right(2), mask(|_, j| j % 16 == 0), mask(|_, j| j % 16 == 1)]).unwrap();
        assert_eq!(two, "one, in columns 0, 16; and two, in columns 1, 17");
        assert_eq!(of([right(3), mask(|_, j| j % 16 == 0), mask(|_, j| j % 16 == 1)]), None);
        // What both make is the first's.
        let shared = of([right(2), mask(|_, j| j % 16 == 0 || j == 17), mask(|_, j| j % 16 == 1)]).unwrap();
        assert_eq!(shared, "one, in columns 0, 16, 17; and two, in columns 1");
        // Seven elements of a row of a formula's own are too few.
        let wrong = |n: usize| mask(move |i, j| i < 8 || i == 8 && j >= n);
        let rest = |n: usize| of([wrong(n), mask(|i, _| i > 8), mask(|i, _| i == 8)]);
        assert_eq!([rest(8), rest(7)], [Some("one, in rows 9 … 15; and two, in rows 8".into()), None]);
    }
}
