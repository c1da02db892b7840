//! Where another rule was followed: the simplest rows and columns that hold every place where it shows, and none where it would have shown.
//!
//! ```text
//! shows: places that are as the other rule makes them, and not right        hidden: right ones that it would have made otherwise
//! lines: all;  from … to of every 2, 4, … 128;  from … to;  both             no hidden place where both of its lines are in
//! ```

/// Bits that the choice of the places that show among all that could have has to tell: by chance no rows and columns part them.
const BITS: f64 = 32.0;
/// Periods of lines: lanes of a packed word up to a tile.
const PERIODS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Bits for each number that it takes to say it, where that is more than [`BITS`].
const BITS_A_NUMBER: usize = 8;

/// Lines of an axis: those whose number modulo `every` is from `from` to before `to`, among `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lines {
    every: usize,
    from: usize,
    to: usize,
    start: usize,
    end: usize,
    /// Numbers that it takes to say it.
    cost: usize,
}

const ALL: Lines = Lines { every: 1, from: 0, to: 1, start: 0, end: usize::MAX, cost: 0 };

impl Lines {
    fn has(&self, line: usize) -> bool {
        (self.from..self.to).contains(&(line % self.every)) && (self.start..self.end).contains(&line)
    }

    /// The narrowest that hold all of `shows`, of `n` lines.
    fn around(n: usize, shows: &[usize], line: fn(usize, usize) -> usize, cols: usize) -> Vec<Lines> {
        let mut all = vec![ALL];
        let lines = || shows.iter().map(|at| line(*at, cols));
        let (first, last) = lines().fold((n, 0), |m, l| (m.0.min(l), m.1.max(l)));
        for every in PERIODS.into_iter().filter(|m| 2 * m <= n).chain([n]) {
            let (mut from, mut to) = (every, 0);
            for rest in lines().map(|l| l % every) {
                (from, to) = (from.min(rest), to.max(rest + 1));
            }
            if to - from < every {
                let cost = if to == from + 1 && every < n { 1 } else { 2 };
                all.push(Lines { every, from, to, cost, ..ALL });
                if every < n && last + 1 - first > every && last + 1 - first < n {
                    all.push(Lines { every, from, to, start: first, end: last + 1, cost: cost + 2 });
                }
            }
        }
        all
    }

    fn words(&self, name: &str, n: usize, before: &str) -> String {
        let mut every = if self.every < n { format!(" of every {}", self.every) } else { String::new() };
        if self.end < usize::MAX {
            every += &format!(" from {} to {}", self.start, self.end - 1);
        }
        match self.every {
            1 => String::new(),
            _ if self.to == self.from + 1 => format!("{before}{name} {}{every}", self.from),
            _ => format!("{before}{name} {} … {}{every}", self.from, self.to - 1),
        }
    }
}

/// The place as the end of a sentence, empty where it is everywhere. `shape`: rows and columns, `names`: what they are called.
pub fn place(shape: (usize, usize), names: [&str; 2], shows: &[usize], hidden: &[usize]) -> Option<String> {
    let cols = shape.1;
    (!shows.is_empty()).then_some(())?;
    let by_row = Lines::around(shape.0, shows, |at, cols| at / cols, cols);
    let by_col = Lines::around(cols, shows, |at, cols| at % cols, cols);
    let clear = |l: &[Lines; 2]| !hidden.iter().any(|at| l[0].has(at / cols) && l[1].has(at % cols));
    let mut best: Option<[Lines; 2]> = None;
    for r in &by_row {
        for c in &by_col {
            if best.is_none_or(|[r0, c0]| r.cost + c.cost < r0.cost + c0.cost) && clear(&[*r, *c]) {
                best = Some([*r, *c]);
            }
        }
    }
    let mut found = best?;
    // How many ways there are to choose as many places of all.
    let told: f64 = (1..=shows.len()).map(|i| ((hidden.len() + i) as f64 / i as f64).log2()).sum();
    let needed = BITS.max((BITS_A_NUMBER * (found[0].cost + found[1].cost)) as f64);
    (found == [ALL, ALL] || told >= needed).then_some(())?;
    // Places at the edge that do not show are in too: the roundest limits.
    for n in 0..4 * PERIODS.len() {
        let (unit, limit, mut wide) = (PERIODS[PERIODS.len() - 1 - n / 4], n % 4, found);
        let l = &mut wide[limit / 2];
        if limit % 2 == 0 {
            l.from = l.from / unit * unit;
        } else {
            l.to = l.to.next_multiple_of(unit).min(l.every);
        }
        if l.cost > 1 && l.to - l.from < l.every && clear(&wide) {
            found = wide;
        }
    }
    // So are those of a part that has a period.
    for n in 0..4 * PERIODS.len() {
        let (unit, limit, mut wide) = (PERIODS[PERIODS.len() - 1 - n / 4], n % 4, found);
        let (l, lines) = (&mut wide[limit / 2], [shape.0, cols][limit / 2]);
        if l.end == usize::MAX {
            continue;
        }
        if limit % 2 == 0 {
            l.start = l.start / unit * unit;
        } else {
            l.end = l.end.next_multiple_of(unit).min(lines);
        }
        if clear(&wide) {
            found = wide;
        }
    }
    let mut words = String::new();
    for (l, (name, n)) in found.iter().zip([(names[0], shape.0), (names[1], cols)]) {
        words += &l.words(name, n, if words.is_empty() { ", in " } else { ", " });
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 64 × 96 places every third may show; those in `inside` do.
    fn of(inside: impl Fn(usize, usize) -> bool) -> Option<String> {
        let told = |at: &usize| (at * 7919 + 5).is_multiple_of(3);
        let (shows, hidden): (Vec<usize>, Vec<usize>) = (0..64 * 96).filter(told).partition(|at| inside(at / 96, at % 96));
        place((64, 96), ["rows", "columns"], &shows, &hidden)
    }

    #[test]
    fn a_place_is_said_by_the_fewest_numbers() {
        let words = |w: &str| Some(w.to_string());
        assert_eq!(of(|_, _| true), words(""));
        for m in [2, 4, 8, 16, 32] {
            assert_eq!(of(|_, j| j % m == m - 1), Some(format!(", in columns {} of every {m}", m - 1)));
            assert_eq!(of(|i, _| i % m == 1), Some(format!(", in rows 1 of every {m}")));
        }
        assert_eq!(of(|_, j| j % 16 >= 8), words(", in columns 8 … 15 of every 16"));
        assert_eq!(of(|i, j| i % 4 == 2 && j % 2 == 1), words(", in rows 2 of every 4, columns 1 of every 2"));
        assert_eq!(of(|i, _| (16..48).contains(&i)), words(", in rows 16 … 47"));
        assert_eq!(of(|i, j| i >= 32 && (24..56).contains(&j)), words(", in rows 32 … 63, columns 24 … 55"));
        assert_eq!(of(|i, j| i < 16 && j % 2 == 0), words(", in rows 0 … 15, columns 0 of every 2"));
        assert_eq!(
            of(|i, j| i >= 32 && (16..64).contains(&j) && j % 2 == 0),
            words(", in rows 32 … 63, columns 0 of every 2 from 16 to 63")
        );
        assert_eq!(
            of(|i, j| (16..48).contains(&i) && (32..80).contains(&j) && j % 8 >= 4),
            words(", in rows 16 … 47, columns 4 … 7 of every 8 from 32 to 79")
        );
        // Here and there, and a diagonal.
        assert_eq!(of(|i, j| (i * 31 + j * 17) % 5 == 0), None);
        assert_eq!(of(|i, j| i / 8 == j / 8), None);
    }

    /// Edges of a rectangle where nothing shows are of it where nothing speaks against it.
    #[test]
    fn limits_are_the_roundest_that_nothing_contradicts() {
        let square = |i: usize, j: usize| (16..32).contains(&i) && (32..64).contains(&j);
        let edge = |at: &usize| !square(at / 96, at % 96) || (18..30).contains(&(at / 96)) && (33..63).contains(&(at % 96));
        let (shows, hidden): (Vec<usize>, Vec<usize>) = (0..64 * 96).filter(edge).partition(|at| square(at / 96, at % 96));
        let said = place((64, 96), ["rows", "columns"], &shows, &hidden);
        assert_eq!(said.as_deref(), Some(", in rows 16 … 31, columns 32 … 63"));
    }

    /// 32 bits: one of four billion choices.
    #[test]
    fn a_few_places_tell_nothing() {
        let few = |n: usize| {
            let (shows, hidden): (Vec<usize>, Vec<usize>) = (0..10 * n).partition(|at| at % 10 == 9);
            place((n, 10), ["rows", "groups"], &shows, &hidden)
        };
        // C(60, 6) = 5·10⁷ and C(90, 9) = 7·10¹¹.
        assert_eq!((few(6), few(9)), (None, Some(", in groups 9".to_string())));
    }
}
