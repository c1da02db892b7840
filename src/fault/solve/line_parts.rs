//! A part of K that some lines read from another line: of its codes, of its scales, or of both. A tail that a kernel of two rows at a time takes from the
//! first, scales of a second row that stand where those of the first one are still read.
//!
//! ```text
//! x(n, k) = x(n', k)   n mod p in a set, k in a range or in every so many of K        n' = n + d, or the first or last line of the p of n
//! ```
//!
//! Which lines are wrong says p. For each n' the part of K is solved by sums of differences along K.

use super::given::Given;
use super::maps::cost;
use super::segment::lines;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use crate::order::Order as _;
use crate::parallel;
use std::sync::Arc;

/// Lines that one of them repeats in.
const PERIODS: [usize; 5] = [2, 4, 8, 16, 32];
/// How far another line is.
const FAR: [isize; 12] = [-1, 1, -2, 2, -4, 4, -8, 8, -16, 16, -32, 32];
/// Wrong elements that decide.
const LOOKS: usize = 32;
const LEAST: usize = 8;
/// Parts of K that are kept, of each kind.
const KEPT: usize = 2;
/// Theories of both operands, the shortest.
const MOST: usize = 8;

/// What is read of the other line.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Both,
    Codes,
    Scales,
}

/// Which line is read.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Beside(isize),
    First(usize),
    Last(usize),
}

/// Which lines read another one.
#[derive(Clone)]
struct Lines {
    period: usize,
    which: Vec<bool>,
}

/// A part of K.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    Range(usize, usize),
    /// from … to of every so many.
    Every(usize, usize, usize),
}

impl Part {
    fn has(self, k: usize) -> bool {
        match self {
            Part::Range(from, to) => (from..to).contains(&k),
            Part::Every(p, from, to) => (from..to).contains(&(k % p)),
        }
    }
    /// The sum of a part from sums of the first of K.
    fn of(self, sums: &[f64]) -> f64 {
        let k = sums.len() - 1;
        match self {
            Part::Range(from, to) => sums[to] - sums[from],
            Part::Every(p, from, to) => (0..k).step_by(p).map(|x| sums[(x + to).min(k)] - sums[(x + from).min(k)]).sum(),
        }
    }
    fn bits(self, k: usize) -> f64 {
        match self {
            Part::Range(from, to) => 2.0 + if to == k { cost(from).min(cost(k - from)) } else { cost(to) },
            Part::Every(p, from, _) => 3.0 + cost(p) + if from == 0 { 0.0 } else { 1.0 },
        }
    }
    fn words(self, k: usize) -> String {
        match self {
            Part::Range(from, to) if to == k => format!("the last {} of K ({from} … {})", k - from, k - 1),
            Part::Range(from, to) => format!("the first {to} of K ({from} … {})", to - 1),
            Part::Every(p, from, to) => format!("{from} … {} of every {p} of K", to - 1),
        }
    }
}

/// Tails, heads, and halves or quarters of every power of two.
fn parts(k: usize) -> Vec<Part> {
    let mut all: Vec<Part> = (1..k).flat_map(|x| [Part::Range(x, k), Part::Range(0, x)]).collect();
    for p in (3..).map(|b| 1usize << b).take_while(|p| 2 * p <= k) {
        for n in [2, 4] {
            all.extend((0..n).map(|x| Part::Every(p, x * p / n, (x + 1) * p / n)));
        }
        // All but one quarter.
        all.extend([Part::Every(p, p / 4, p), Part::Every(p, 0, p - p / 4)]);
    }
    all
}

/// Which lines are wrong: the residues of the shortest period that leaves some of them out, else all.
fn wrong_lines(s: &System, side: Which) -> Lines {
    let is_wrong = s.wrong_lines(side == Which::A);
    let n = is_wrong.len();
    let start = |i: usize| if side == Which::B { Some(0) } else { s.part[i].map(|p| s.parts[p].rows.start) };
    for period in PERIODS.into_iter().filter(|p| 2 * p <= n) {
        let mut which = vec![false; period];
        (0..n).filter(|x| is_wrong[*x]).filter_map(|x| Some(x - start(x)?)).for_each(|x| which[x % period] = true);
        if which.contains(&false) {
            return Lines { period, which };
        }
    }
    Lines { period: 1, which: vec![true] }
}

/// For each line of an operand the one that is read: its own where it is right, or where there is no other.
fn sources(s: &System, side: Which, of: &Lines, source: Source) -> Vec<usize> {
    let mut all: Vec<usize> = (0..s.given(side).rows).collect();
    for p in &s.parts {
        let (base, n) = if side == Which::B { (p.b, s.cols) } else { (p.a, p.rows.len()) };
        for x in (0..n).filter(|x| of.which[x % of.period]) {
            let from = match source {
                Source::Beside(d) => x.checked_add_signed(d),
                Source::First(p) => Some(x - x % p),
                Source::Last(p) => Some(x - x % p + p - 1),
            };
            if let Some(from) = from.filter(|from| *from < n) {
                all[base + x] = base + from;
            }
        }
    }
    all
}

/// A value of a line, some of it another's.
fn read(g: &Given, what: What, own: usize, from: usize, k: usize) -> f64 {
    let cell = |i: usize| i / g.tile.0 * g.grid.1 + k / g.tile.1;
    match (&g.q, what) {
        (Some(q), What::Codes) => g.decoded(q.codes()[from * g.k + k], cell(own)),
        (Some(q), What::Scales) => g.decoded(q.codes()[own * g.k + k], cell(from)),
        _ => g.values[from * g.k + k],
    }
}

/// Of both operands.
pub fn theories(s: &System) -> Vec<Theory> {
    let looks = s.wrong_probes(LOOKS);
    if s.alone || looks.len() < LEAST || s.parts.iter().any(|p| p.k.len() != s.k) {
        return Vec::new();
    }
    let parts = parts(s.k);
    let mut all = Vec::new();
    for side in [Which::A, Which::B] {
        let g = s.given(side);
        let lines = wrong_lines(s, side);
        let n = if side == Which::B { s.cols } else { s.rows };
        let beside = FAR.into_iter().filter(|d| d.unsigned_abs() < n).map(Source::Beside);
        let ends = [4, 8].into_iter().filter(|p| *p <= n).flat_map(|p| [Source::First(p), Source::Last(p)]);
        let kinds: &[What] =
            if g.q.is_some() && g.grid.0 > 1 { &[What::Both, What::Codes, What::Scales] } else { &[What::Both] };
        let ways: Vec<(Source, What)> = beside.chain(ends).flat_map(|x| kinds.iter().map(move |w| (x, *w))).collect();
        all.extend(parallel::flat(&ways, |(source, what)| {
            let from = sources(s, side, &lines, *source);
            let mut found = solved(s, side, *what, &from, &looks, &parts);
            found.order_by(|x, y| x.bits(s.k).total_cmp(&y.bits(s.k)));
            let one = |part| theory(s, side, (&lines, *source, *what), &from, part);
            found.into_iter().take(KEPT).map(one).filter(|t| s.explains(t)).collect::<Vec<_>>()
        }));
    }
    // A bound that is wider than the errors refuses hardly any.
    all.order_by(|x, y| x.bits.total_cmp(&y.bits));
    all.truncate(MOST);
    all
}

/// The parts of K that make all these elements.
fn solved(s: &System, side: Which, what: What, from: &[usize], looks: &[(usize, usize)], parts: &[Part]) -> Vec<Part> {
    let (g, o) = (s.given(side), s.given(side.other()));
    let mut left: Vec<Part> = Vec::new();
    for (nth, (i, j)) in looks.iter().enumerate() {
        let Some((a, b, _)) = s.lines(*i, *j) else { return Vec::new() };
        let (own, other) = if side == Which::A { (a, b) } else { (b, a) };
        // A wrong line that reads itself is not explained.
        if from[own] == own {
            return Vec::new();
        }
        let mut sums = Vec::with_capacity(s.k + 1);
        let mut sum = 0.0;
        sums.push(0.0);
        for k in 0..s.k {
            sum += (read(g, what, own, from[own], k) - g.values[own * g.k + k]) * o.values[other * s.k + k];
            sums.push(sum);
        }
        let at = i * s.cols + j;
        let (right, size) = (s.ideal[at] - s.bias.at(*i, *j), s.magnitude(at));
        let fits = |p: &Part| {
            let more = p.of(&sums);
            s.may(*i, *j, right + more, size + more.abs())
        };
        if nth == 0 {
            left = parts.iter().copied().filter(fits).collect();
        } else {
            left.retain(fits);
        }
        if left.is_empty() {
            return left;
        }
    }
    left
}

/// One way: its lines, the line that is read, and what of it.
type Way<'w> = (&'w Lines, Source, What);

fn theory(s: &System, side: Which, (of, source, what): Way, from: &[usize], part: Part) -> Theory {
    let (g, name) = (s.given(side), side.name());
    let letter = if side == Which::A { 'm' } else { 'n' };
    let which = match of.period {
        1 => format!("rows {letter} of {name}"),
        p => format!("rows {letter} of {name} with {letter} mod {p} = {}", lines(&of.which)),
    };
    let whence = match source {
        Source::Beside(d) if d < 0 => format!("{letter} − {}", -d),
        Source::Beside(d) => format!("{letter} + {d}"),
        Source::First(p) => format!("{p}·⌊{letter} / {p}⌋"),
        Source::Last(p) => format!("{p}·⌊{letter} / {p}⌋ + {}", p - 1),
    };
    let what_words = match (what, g.q.is_some()) {
        (What::Both, true) => "codes and scales",
        (What::Both, false) => "values",
        (What::Codes, _) => "codes",
        (What::Scales, _) => "scales",
    };
    let words = format!("{which} take their {what_words} for {} from row {whence}", part.words(s.k));
    let class = if what == What::Scales { Class::ScaleIndex } else { Class::Addressing };
    let far = match source {
        Source::Beside(d) => cost(d.unsigned_abs()) + f64::from(u8::from(d > 0)),
        Source::First(p) | Source::Last(p) => cost(p),
    };
    let bits = 5.0 + far + cost(of.period) + part.bits(s.k) + if what == What::Both { 0.0 } else { 1.0 };
    let mut t = Theory::new(class, name, format!("{name}.part_of_line"), words).bits(bits);
    let (g, from) = (g.clone(), Arc::new(from.to_vec()));
    t.side(side).value =
        Some(Arc::new(
            move |i, k| {
                if part.has(k) && from[i] != i { read(&g, what, i, from[i], k) } else { g.values[i * g.k + k] }
            },
        ));
    t
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, codes, found, noise, sum, wide};
    use crate::job::Operand;

    const K: usize = 160;
    const N: usize = 44;
    const GROUP: usize = 32;

    /// What is found where b's value of (j, k) is made of the code and the scale of these lines.
    fn of(line: impl Fn(usize, usize) -> (usize, usize)) -> (String, String) {
        let (a, b) = (codes(Format::Int8, M, K, GROUP, false, 41), codes(Format::Int8, N, K, GROUP, false, 42));
        let x = a.dequantize();
        found(&Operand::Quantized(a), &b, None, Format::F32, |i, j, _| {
            sum(K, |k| {
                let (code, scale) = line(j, k);
                let step = f64::from(b.scale_inv()[scale * (K / GROUP) + k / GROUP]);
                x[[i, k]] * f64::from(b.codes()[code * K + k] as i8) * step
            })
        })
    }

    #[test]
    fn a_tail_of_the_first_row_of_a_few_is_told() {
        let got = of(|j, k| if k >= 96 { (j / 4 * 4, j) } else { (j, j) });
        assert_eq!(got.0, "addressing:b.part_of_line", "{}", got.1);
        let words = "rows n of b with n mod 4 = 1 … 3 take their codes for the last 64 of K (96 … 159) from row 4·⌊n / 4⌋";
        assert_eq!(got.1, words);
        // With their scales: a partial sum of that row would be the same.
        let got = of(|j, k| if k >= 96 && j % 4 == 3 { (j - 2, j - 2) } else { (j, j) });
        assert!(
            got.1.contains("codes and scales for the last 64 of K") || got.0 == "acc_state:b.part_sums",
            "{} {}",
            got.0,
            got.1
        );
        // From rows in no order it is another fault.
        let got = of(|j, k| if k >= 96 && j % 2 == 1 { ((noise(j) * N as f64) as usize, j) } else { (j, j) });
        assert!(!got.0.contains("part_of_line"), "{} {}", got.0, got.1);
    }

    #[test]
    fn scales_of_the_next_row_in_a_half_of_each_block_are_told() {
        let (a, b) = (wide(M, 256), codes(Format::Int8, N, 256, 16, false, 43));
        let x = a.to_f64();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            sum(256, |k| {
                let from = if j % 2 == 0 && k % 64 >= 32 { j + 1 } else { j };
                x[[i, k]] * f64::from(b.codes()[j * 256 + k] as i8) * f64::from(b.scale_inv()[from * 16 + k / 16])
            })
        });
        assert_eq!(got.0, "scale_index:b.part_of_line", "{}", got.1);
        assert_eq!(got.1, "rows n of b with n mod 2 = 0 take their scales for 32 … 63 of every 64 of K from row n + 1");
    }
}
