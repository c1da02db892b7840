//! Two mistakes at once in a gated activation: how a row is read, a limit, the activation, what becomes of the gate.
//!
//! ```text
//! row ──read──► (x, gate) ──limit──► (x, gate) ──► f(x) · g(gate)        each pair of the four steps, the other two right
//! ```

use super::formulas::{At, Formula, formula};
use super::gates::{ACTS, CHANGES, LIMITS};
use crate::op::activation::{act, gate, limited};
use crate::op::{Act, Clamp};

/// x and gate of a column.
type Read = fn(&At, usize) -> (f64, f64);

/// Element `at` of the tensor as it lies, row by row; 0 behind its end.
fn flat(r: &At, at: usize) -> f64 {
    let width = 2 * r.cols;
    r.rows.get(at / width).map_or(0.0, |row| row[at % width])
}

/// How a row is read by mistake.
pub const READS: [(&str, Read); 11] = [
    ("the halves of a row are exchanged: [gate | x] is read", |r, j| (r.x()[r.cols + j], r.x()[j])),
    ("x and gate are read as interleaved, x first", |r, j| (r.x()[2 * j], r.x()[2 * j + 1])),
    ("x and gate are read as interleaved, the gate first", |r, j| (r.x()[2 * j + 1], r.x()[2 * j])),
    ("the first half of a row is read for both", |r, j| (r.x()[j], r.x()[j])),
    ("the second half of a row is read for both", |r, j| (r.x()[r.cols + j], r.x()[r.cols + j])),
    ("the second half of row r is read at the row stride of one half: at (r + 1)·H", |r, j| {
        (r.x()[j], flat(r, (r.i + 1) * r.cols + j))
    }),
    ("the first half of row r is read at the row stride of one half: at r·H", |r, j| {
        (flat(r, r.i * r.cols + j), r.x()[r.cols + j])
    }),
    ("both halves of row r are read at the row stride of one half: at r·H and (r + 1)·H", |r, j| {
        (flat(r, r.i * r.cols + j), flat(r, (r.i + 1) * r.cols + j))
    }),
    ("all first halves are read before all second ones, as two matrices", |r, j| {
        (flat(r, r.i * r.cols + j), flat(r, (r.rows.len() + r.i) * r.cols + j))
    }),
    ("x and gate are interleaved, x first, and the halves of that are read for x and gate", |r, j| {
        let of = |n: usize| r.x()[n % 2 * r.cols + n / 2];
        (of(j), of(r.cols + j))
    }),
    ("x and gate are interleaved, the gate first, and the halves of that are read for x and gate", |r, j| {
        let of = |n: usize| r.x()[(1 - n % 2) * r.cols + n / 2];
        (of(j), of(r.cols + j))
    }),
];

/// Columns of x that are followed by as many gates.
const BLOCKS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Rows of blocks of x and of gates in turn, which are read as halves, or the other way about.
pub fn blocks(own: Act) -> Vec<Formula> {
    let mut all = Vec::new();
    for (b, read) in BLOCKS.into_iter().flat_map(|b| [(b, true), (b, false)]) {
        let words = match read {
            true => format!("a row is read as blocks of {b} of x and {b} of the gate in turn, not as halves"),
            false => format!(
                "blocks of {b} of x and {b} of the gate are put in turn, and the halves of that are read for x and gate"
            ),
        };
        all.push(formula(words, move |r: &At| {
            // No such blocks: it makes nothing.
            if !r.cols.is_multiple_of(b) {
                return vec![f64::NAN; r.cols];
            }
            let one = |j: usize| {
                let of = |n: usize| r.x()[n / b % 2 * r.cols + n / (2 * b) * b + n % b];
                let at = j / b * 2 * b + j % b;
                let (x, u) = if read { (r.x()[at], r.x()[at + b]) } else { (of(j), of(r.cols + j)) };
                act(own, x) * gate(own, u)
            };
            (0..r.cols).map(one).collect()
        }));
    }
    all
}
/// Activations that are other functions, not the right one in few bits.
const FUNCTIONS: usize = 10;

/// A step that is wrong.
#[derive(Clone, Copy)]
enum Step {
    Read(usize),
    Limit(f64),
    Act(usize),
    Gate(usize),
}

impl Step {
    fn words(self) -> String {
        match self {
            Step::Read(n) => READS[n].0.into(),
            Step::Limit(limit) => format!("x is clamped at {limit} and the gate at ±{limit}"),
            Step::Act(n) => format!("the activation is {}", ACTS[n].0),
            Step::Gate(n) => CHANGES[n].0.into(),
        }
    }
    fn kind(self) -> u8 {
        match self {
            Step::Read(_) => 0,
            Step::Limit(_) => 1,
            Step::Act(_) => 2,
            Step::Gate(_) => 3,
        }
    }
}

/// What a column becomes with these steps wrong.
fn made(steps: [Step; 2], own: Act, r: &At, j: usize) -> f64 {
    let (mut x, mut u) = (r.x()[j], r.x()[r.cols + j]);
    for step in steps {
        if let Step::Read(n) = step {
            (x, u) = READS[n].1(r, j);
        }
    }
    for step in steps {
        if let Step::Limit(limit) = step {
            (x, u) = (x.min(limit), u.clamp(-limit, limit));
        }
    }
    let (mut y, mut by) = (None, gate(own, u));
    for step in steps {
        match step {
            Step::Act(n) => y = Some(ACTS[n].1(limited(own, x))),
            Step::Gate(n) => by = CHANGES[n].1(gate(own, u)),
            _ => {}
        }
    }
    y.unwrap_or_else(|| act(own, x)) * by
}

/// The formula of gpt-oss, of a row that is read in another way.
fn gpt_oss((words, read): (&'static str, Read)) -> impl Iterator<Item = Formula> {
    LIMITS.into_iter().chain([f64::INFINITY]).map(move |limit| {
        let limited = if limit.is_finite() { format!(" with a limit of {limit}") } else { String::new() };
        formula(format!("{words}; and the formula of gpt-oss{limited}: x·σ(1.702·x)·(gate + 1)"), move |r: &At| {
            let f = Act::SwigluOai(Clamp::new(Clamp::OAI.alpha(), limit as f32));
            (0..r.cols).map(|j| read(r, j)).map(|(x, u)| act(f, x) * gate(f, u)).collect()
        })
    })
}

/// Every pair of wrong steps.
pub fn formulas(own: Act) -> Vec<Formula> {
    let steps: Vec<Step> = (0..READS.len())
        .map(Step::Read)
        .chain(LIMITS.map(Step::Limit))
        .chain((0..FUNCTIONS).map(Step::Act))
        .chain((0..CHANGES.len()).map(Step::Gate))
        .collect();
    let mut all = Vec::new();
    for (n, first) in steps.iter().enumerate() {
        for second in steps[n + 1..].iter().filter(|s| s.kind() != first.kind()) {
            let both = [*first, *second];
            let words = format!("{}; and {}", first.words(), second.words());
            all.push(formula(words, move |r| (0..r.cols).map(|j| made(both, own, r, j)).collect()));
        }
    }
    all.extend(READS.into_iter().flat_map(gpt_oss));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows of two pairs: [1 2 | 3 4], [5 6 | 7 8].
    #[test]
    fn a_row_is_read_at_another_stride() {
        let rows = [vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0, 8.0]];
        let read = |n: usize, i: usize| {
            let r = At { rows: &rows, i, gamma: &[], beta: &[], eps: 0.0, cols: 2 };
            [0, 1].map(|j| READS[n].1(&r, j))
        };
        assert_eq!([3, 4].map(|n| read(n, 1)), [[(5.0, 5.0), (6.0, 6.0)], [(7.0, 7.0), (8.0, 8.0)]]);
        assert_eq!(read(5, 1), [(5.0, 5.0), (6.0, 6.0)], "the second half of row 1 at 2·2");
        assert_eq!(read(6, 1), [(3.0, 7.0), (4.0, 8.0)]);
        assert_eq!(read(7, 1), [(3.0, 5.0), (4.0, 6.0)]);
        assert_eq!([0, 1].map(|i| read(8, i)), [[(1.0, 5.0), (2.0, 6.0)], [(3.0, 7.0), (4.0, 8.0)]]);
        assert!((5..9).all(|n| read(n, 0)[0].0 == 1.0));
    }

    /// [1 2 3 4 | 5 6 7 8] interleaved is [1 5 2 6 | 3 7 4 8], and by blocks of two [1 2 5 6 | 3 4 7 8].
    #[test]
    fn halves_of_what_is_interleaved_by_hand() {
        let rows = [vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]];
        let r = At { rows: &rows, i: 0, gamma: &[], beta: &[], eps: 0.0, cols: 4 };
        let read = |n: usize| [0, 1, 2, 3].map(|j| READS[n].1(&r, j));
        assert_eq!(read(9), [(1.0, 3.0), (5.0, 7.0), (2.0, 4.0), (6.0, 8.0)]);
        assert_eq!(read(10), [(5.0, 7.0), (1.0, 3.0), (6.0, 8.0), (2.0, 4.0)]);
        let all = blocks(Act::Relu);
        let of = |words: &str| all.iter().find(|f| f.words.starts_with(words)).unwrap().row(&r);
        assert_eq!(of("blocks of 2 of x"), [3.0, 8.0, 35.0, 48.0]);
        assert_eq!(of("a row is read as blocks of 2"), [3.0, 8.0, 35.0, 48.0], "x 1 2 5 6, the gate 3 4 7 8");
        assert!(of("blocks of 8 of x").iter().all(|y| y.is_nan()));
    }

    #[test]
    fn two_steps_meet_in_the_order_of_a_kernel() {
        let rows = [vec![9.0, 1.0, 20.0, -30.0]];
        let r = At { rows: &rows, i: 0, gamma: &[], beta: &[], eps: 0.0, cols: 2 };
        let both = [Step::Read(0), Step::Limit(7.0)];
        assert_eq!(made(both, Act::Relu, &r, 0), 49.0, "x = 20 and the gate 9 are both 7");
        assert_eq!(made(both, Act::Relu, &r, 1), 0.0);
        let all = formulas(Act::Silu);
        assert!(all.iter().all(|f| f.words.contains("; and ")));
        assert!(all.iter().any(|f| f.words.starts_with(READS[0].0) && f.words.ends_with("clamped at 7 and the gate at ±7")));
    }
}
