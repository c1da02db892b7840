//! An operand that is a view of a larger buffer, so many lines of every few more, which a kernel reads flat, as if its lines lay one behind the other.
//!
//! ```text
//! line r  =  buffer line r, from the view's first one on                 right: ⌊r / p⌋·(p + q) + r mod p; p lines of every p + q
//! buffer line t is line ⌊t / (p + q)⌋·p + t mod (p + q) of the file where t mod (p + q) < p, else of no file
//! ```
//!
//! What is in no file may be anything. The lines that are in it have to be enough.

use super::given::Given;
use super::maps::cost;
use super::segment::spread_of;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Wrong lines of the file, and their elements, that have to be told, and those of a line that are looked at.
const LINES: usize = 3;
const ELEMENTS: usize = 32;
const LOOKS: usize = 24;

/// A view: lines of every so many, and lines between.
#[derive(Clone, Copy, Debug, PartialEq)]
struct View {
    of: usize,
    gap: usize,
}

impl View {
    /// The line of the file that is read for line r. `None`: one of no file.
    fn line(self, r: usize, lines: usize) -> Option<usize> {
        let (whole, x) = (self.of + self.gap, r);
        Some(x / whole * self.of + x % whole).filter(|f| x % whole < self.of && *f < lines)
    }
}

/// Of a, and of b.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone || s.parts.len() != 1 || s.parts[0].k.len() != s.k {
        return Vec::new();
    }
    [Which::A, Which::B].into_iter().filter_map(|side| of(s, side)).collect()
}

fn of(s: &System, side: Which) -> Option<Theory> {
    let g = s.given(side);
    let (lines, across) = if side == Which::A { (s.rows, s.cols) } else { (s.cols, s.rows) };
    let at = |line: usize, x: usize| if side == Which::A { line * s.cols + x } else { x * s.cols + line };
    let places = spread_of(across, LOOKS);
    let is_wrong = |line: usize| places.iter().any(|x| s.is_wrong[at(line, *x)]);
    let wrong: Vec<usize> = (0..lines).filter(|line| is_wrong(*line)).collect();
    // Lines up to the view's first gap are right.
    let first = *wrong.first().filter(|first| **first >= 2 && g.rows == lines)?;
    let one_scale = g.q.is_some() && g.zero.is_none() && g.grid.1 == 1 && g.scales().iter().all(|x| *x != 0.0);
    let owns = if one_scale && g.grid.0 > 1 { &[false, true][..] } else { &[false] };
    for own in owns {
        let by = |from: usize, to: usize| if *own { g.step(to, 0) / g.step(from, 0) } else { 1.0 };
        let reads = |line: usize, from: usize| {
            places.iter().all(|x| {
                let (to, of) = (at(line, *x), at(from, *x));
                let (i, j) = (to / s.cols, to % s.cols);
                let by = by(from, line);
                let bias = s.bias.at(of / s.cols, of % s.cols);
                s.may(i, j, (s.ideal[of] - bias) * by, s.magnitude(of) * by.abs())
            })
        };
        for of in (2..=first).filter(|p| lines.is_multiple_of(*p)) {
            for gap in 1..lines.saturating_sub(of) {
                let view = View { of, gap };
                // The first line of the second part refuses most.
                if !reads(of + gap, of) {
                    continue;
                }
                let told = wrong.iter().filter(|r| view.line(**r, lines).is_some()).count();
                if told < LINES || told * places.len() < ELEMENTS {
                    continue;
                }
                if (0..lines).all(|r| view.line(r, lines).is_none_or(|f| reads(r, f))) {
                    return Some(theory(s, side, g, view, *own));
                }
            }
        }
    }
    None
}

fn theory(s: &System, side: Which, g: &Given, view: View, own: bool) -> Theory {
    let (lines, name) = (g.rows, side.name());
    let View { of, gap } = view;
    let unknown = (0..lines).filter(|r| view.line(*r, lines).is_none()).count();
    let what = if own { "codes, not the scales," } else { "rows" };
    let words = format!(
        "{what} of {name} are read flat from a buffer of which {name} is a view, {of} of every {} rows: row r is the buffer's row r from the first on, not ⌊r / {of}⌋·{} + r mod {of}; {unknown} of {lines} are rows that are not in the view",
        of + gap,
        of + gap
    );
    let mut t = Theory::new(Class::Addressing, name, format!("{name}.flat_view"), words).bits(8.0 + cost(of) + cost(gap));
    t.freedom = unknown;
    let n = s.rows * s.cols;
    let (right, written) = (s.right_sums(), Arc::new(s.actual.to_vec()));
    let sizes: Arc<Vec<f64>> = Arc::new((0..n).map(|at| s.magnitude(at)).collect());
    let steps: Vec<f64> = (0..lines).map(|r| if own { g.step(r, 0) } else { 1.0 }).collect();
    let (cols, bias, sums) = (s.cols, s.bias.clone(), right.clone());
    t.sums(right, s.cols, move |i, j| {
        let line = if side == Which::A { i } else { j };
        match view.line(line, lines) {
            // A line of no file is what was written.
            None => (written[i * cols + j], 0.0),
            Some(f) => {
                let at = if side == Which::A { f * cols + j } else { i * cols + f };
                let by = steps[line] / steps[f];
                (sums[at] * by + bias.at(i, j), sizes[at] * by.abs())
            }
        }
    });
    t
}

#[cfg(test)]
mod tests {
    use super::View;
    use crate::fault::solve::tests::{codes, found, noise, sum};
    use crate::job::Operand;
    use crate::tensor::round_to;
    use crate::{Format, Tensor};

    const K: usize = 96;
    const N: usize = 40;
    const M: usize = 30;

    #[test]
    fn lines_of_the_buffer_are_those_of_the_view() {
        let view = View { of: 6, gap: 3 };
        assert_eq!(view.line(5, 30), Some(5));
        assert_eq!(view.line(7, 30), None);
        assert_eq!(view.line(9, 30), Some(6));
        assert_eq!(view.line(20, 30), Some(14));
    }

    fn of(row: impl Fn(usize) -> usize) -> (String, String) {
        // A buffer of 60 rows, of which the first 6 of every 9 are the operand.
        let buffer: Vec<f32> = (0..60 * K).map(|x| round_to(Format::Bf16, (2.0 * noise(3 * x + 5) - 1.0) as f32)).collect();
        let rows: Vec<f32> = (0..M).flat_map(|r| buffer[(r / 6 * 9 + r % 6) * K..][..K].to_vec()).collect();
        let a = Operand::High(Tensor::new(Format::Bf16, M, K, rows).unwrap());
        let b = codes(Format::Int8, N, K, K, false, 57);
        let y = b.dequantize();
        found(&a, &b, None, Format::Bf16, |i, j, _| sum(K, |k| f64::from(buffer[row(i) * K + k]) * y[[j, k]]))
    }

    #[test]
    fn a_view_that_is_read_flat_is_told() {
        let got = of(|r| r);
        assert_eq!(got.0, "addressing:a.flat_view", "{}", got.1);
        let words = "rows of a are read flat from a buffer of which a is a view, 6 of every 9 rows";
        assert!(got.1.contains(words) && got.1.contains("9 of 30 are rows that are not in the view"), "{}", got.1);
    }

    #[test]
    fn rows_of_no_file_alone_are_no_view() {
        let got = of(|r| if r < 6 { r } else { 30 + r });
        assert!(!got.0.contains("flat_view"), "{} {}", got.0, got.1);
    }
}
