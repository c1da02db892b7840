//! Scales of groups along K that the steps of a loop index directly, where a step is not a group: step k / d reads scale k / d of its row, and runs on
//! into what follows in memory. Of a, of b, or of both at once.
//!
//! ```text
//! scale of (i, k):  memory[i / t · C + k / d],  memory[i / t · C + ⌊k / g⌋·g/d + g/d − 1] where it is loaded at the last step of a group of g
//!                   a right kernel: d is the group; behind the end 0, 1, the last, the first again, the other's
//! ```
//!
//! Memory is the grid as it is stored: blocks of experts whose rows are no whole number of them begin anew with each.

use super::maps::cost;
use super::scale_blocks::Stored;
use super::system::{At, System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Steps of loops, and how they may be to a group.
const STEPS: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
const PARTS: [(usize, usize); 6] = [(1, 2), (1, 4), (1, 8), (2, 1), (4, 1), (8, 1)];

/// What a step reads behind the last scale of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The last of the row.
    Row,
    /// Nothing: 0.
    RowZero,
    /// The next rows, and behind them 0.
    Zero,
    One,
    Last,
    Wrapped,
    /// The other operand's scales.
    Other,
}

const ENDS: [(End, f64); 7] = [
    (End::Row, 0.0),
    (End::RowZero, 1.0),
    (End::Zero, 0.5),
    (End::One, 1.0),
    (End::Last, 0.5),
    (End::Wrapped, 1.0),
    (End::Other, 1.0),
];

/// One way to read the scales of one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    side: Which,
    step: usize,
    /// Of the steps of a group the last one's, for all of it.
    last: bool,
    end: End,
    bits: f64,
}

impl Way {
    /// The index along K.
    fn index(self, long: usize, k: usize) -> usize {
        if self.last { k / long * (long / self.step) + long / self.step - 1 } else { k / self.step }
    }
    /// How many of K have one scale.
    fn every(self, long: usize) -> usize {
        if self.last { long } else { self.step }
    }

    /// By the scales of a and of b, which all ways share: a copy for each would fill the memory. `stored`: how those of b lie there, where they are
    /// not as the grid is.
    fn at(self, s: &System, [a, b]: &[Arc<Vec<f64>>; 2], stored: Option<&Arc<Stored>>) -> At {
        let g = s.given(self.side);
        let (own, theirs) = if self.side == Which::A { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) };
        let (tall, cols, global, n) = (g.tile.0, g.grid.1, g.global, own.len());
        let (end, long) = (self.end, g.tile.1);
        let stored = stored.filter(|_| self.side == Which::B).cloned();
        Arc::new(move |i, k| {
            let line = stored.as_ref().map_or(i / tall, |x| x.line(i));
            let (row, c) = (line * cols, self.index(long, k));
            let behind = |at: usize| match end {
                End::One => 1.0,
                End::Last => own[n - 1],
                End::Wrapped => own[at % n],
                End::Other if !theirs.is_empty() => theirs[(at - n) % theirs.len()],
                _ => 0.0,
            };
            let x = match end {
                End::Row => own[row + c.min(cols - 1)],
                End::RowZero if c >= cols => 0.0,
                _ => own.get(row + c).copied().unwrap_or_else(|| behind(row + c)),
            };
            x * global
        })
    }

    /// What it does behind the end, in words; nothing where it does not get there.
    fn end(self, s: &System) -> String {
        let (g, other) = (s.given(self.side), self.side.other().name());
        if self.index(g.tile.1, g.k - 1) < g.grid.1 {
            return String::new();
        }
        let what = match self.end {
            End::Row => return ", the last of its row behind the end of it".into(),
            End::RowZero => return ", 0 behind the end of its row".into(),
            End::Zero => "0",
            End::One => "1",
            End::Last => "the last",
            End::Wrapped => "the first again",
            End::Other => &format!("the scales of {other}"),
        };
        // One row has no next ones.
        let rows = if g.grid.0 > 1 { ", running on into the next rows" } else { "" };
        format!("{rows}, {what} behind the last")
    }
}

fn ways(s: &System, side: Which) -> Vec<Way> {
    let g = s.given(side);
    let long = g.tile.1;
    if g.q.is_none() || g.deep.is_some() || g.zero.is_some() || g.grid.1 < 2 {
        return Vec::new();
    }
    let mut steps: Vec<usize> = STEPS.to_vec();
    steps.extend(PARTS.iter().filter(|(_, down)| long.is_multiple_of(*down)).map(|(up, down)| long * up / down));
    steps.sort_unstable();
    steps.dedup();
    steps.retain(|d| *d != long && *d < g.k && (d.is_multiple_of(long) || long.is_multiple_of(*d)) && *d * 16 >= long);
    // What no step of a long one reaches is one end.
    let reaches = |w: &Way| w.index(long, g.k - 1) >= g.grid.1 || w.end == End::Row;
    let all = steps.into_iter().flat_map(|step| [(step, false), (step, true)]).filter(|(step, last)| !last || *step < long);
    let ways = all.flat_map(|(step, last)| {
        ENDS.into_iter().map(move |(end, bits)| Way { side, step, last, end, bits: bits + f64::from(u8::from(last)) })
    });
    ways.filter(reaches).collect()
}

/// Steps of one operand's scales, and of both. What lies behind the end may be of another size, and leave nothing of the right result.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let (of_a, of_b) = (ways(s, Which::A), ways(s, Which::B));
    let stored = Stored::of(s).map(Arc::new);
    let mut numbers = [&s.a, &s.b].map(|g| Arc::new(g.scales().iter().map(|x| f64::from(*x)).collect::<Vec<f64>>()));
    if let Some(stored) = &stored {
        let cols = s.b.grid.1;
        let lines = s.parts.len() * stored.blocks;
        let of = |at: usize| numbers[1][stored.cell(at / cols) * cols + at % cols];
        let listed: Vec<f64> = (0..lines * cols).map(of).collect();
        numbers[1] = Arc::new(listed);
    }
    let theory = |ways: &[Way]| {
        let first = ways[0];
        let group = |w: &Way| s.given(w.side).tile.1;
        let index = |w: &Way| {
            let name = w.side.name();
            let of = if w.last {
                let many = group(w) / w.step;
                format!("⌊k / {}⌋·{many} + {}, the last step of {} in each group", group(w), many - 1, w.step)
            } else {
                format!("k / {}", w.step)
            };
            format!("the scale of {name} at k is that of step {of}, and not of group k / {}{}", group(w), w.end(s))
        };
        let words = match ways {
            [a, b] if (a.step, a.last, group(a), a.end(s)) == (b.step, b.last, group(b), b.end(s)) => {
                format!("{}; of b as well", index(a))
            }
            all => all.iter().map(index).collect::<Vec<_>>().join("; "),
        };
        let name = first.side.name();
        let bits = 7.0 + cost(first.step) + ways.iter().map(|w| w.bits).sum::<f64>() + 2.0 * (ways.len() - 1) as f64;
        let mut t = Theory::new(Class::ScaleIndex, name, format!("{name}.divisor"), words).bits(bits);
        ways.iter().for_each(|w| t.side(w.side).scaled(w.every(group(w)), w.at(s, &numbers, stored.as_ref())));
        t
    };
    let mut all: Vec<Theory> = of_a.iter().chain(&of_b).map(|w| theory(&[*w])).collect();
    let (long_a, long_b) = (s.a.tile.1, s.b.tile.1);
    for a in &of_a {
        let alike = |b: &&Way| a.last == b.last && (a.step == b.step || a.step * long_b == b.step * long_a);
        all.extend(of_b.iter().filter(alike).map(|b| theory(&[*a, *b])));
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, grouped_found, sum, wide};
    use crate::job::Operand;
    use crate::{Format, Granularity, QTensor};

    /// 24 rows an expert in blocks of 16, two of them: the second is a half, and steps run on from it into the next expert's first.
    #[test]
    fn steps_that_run_on_through_blocks_that_are_not_whole_are_told() {
        let (n, k_all, ends) = (24, 192, [12usize, 25, 40]);
        let mut p = codes(Format::Int8, 3 * n, k_all, k_all, false, 103).into_parts();
        let block = |at: usize| (0.01 * (1.0 + 0.37 * (at * 7 % 18) as f32)).sqrt();
        p.granularity = Granularity::Block { rows: 8, cols: 64 };
        p.scale_inv = (0..9 * 3).map(|f| block((f / 9 * 2 + f / 3 % 3 / 2) * 3 + f % 3)).collect();
        let b = QTensor::new(p).unwrap();
        let a = wide(40, k_all);
        let x = a.to_f64();
        let with = |step: usize| {
            grouped_found(&a, &b, &ends, Format::Bf16, |i, j| {
                let e = ends.iter().filter(|end| **end <= i).count();
                let scale = |k: usize| {
                    let at = (e * 2 + j / 16) * 3 + k / step;
                    if at < 18 { f64::from(block(at)) } else { 0.0 }
                };
                sum(k_all, |k| x[[i, k]] * f64::from(b.codes()[(e * n + j) * k_all + k] as i8) * scale(k))
            })
        };
        let got = with(16);
        assert_eq!(got.0, "scale_index:b.divisor", "{}", got.1);
        let words = "the scale of b at k is that of step k / 16, and not of group k / 64, running on into the next rows, 0 behind the last";
        assert!(got.1.contains(words), "{}", got.1);
    }

    #[test]
    fn the_last_step_of_a_group_that_counts_tiles_is_told() {
        let (k_all, a, b) = (512, codes(Format::E4m3, M, 512, 128, false, 81), codes(Format::E4m3, N, 512, 512, false, 82));
        let (x, y) = (a.clone(), b.dequantize());
        let with = |many: usize| {
            let read = |i: usize, k: usize| (i * 4 + k / 128 * many + many - 1).min(M * 4 - 1);
            found(&Operand::Quantized(a.clone()), &b, None, Format::Bf16, |i, j, _| {
                sum(k_all, |k| {
                    let code = Format::E4m3.decode(u32::from(x.codes()[i * k_all + k]));
                    code * f64::from(x.scale_inv()[read(i, k)]) * y[[j, k]]
                })
            })
        };
        for (many, words) in
            [(2, "step ⌊k / 128⌋·2 + 1, the last step of 64 in"), (4, "step ⌊k / 128⌋·4 + 3, the last step of 32 in")]
        {
            let got = with(many);
            assert_eq!(got.0, "scale_index:a.divisor", "{}", got.1);
            assert!(got.1.contains(words) && got.1.contains("into the next rows, the last behind the last"), "{}", got.1);
        }
    }
}
