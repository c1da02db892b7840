//! Where another rule was followed: the simplest rows and columns that hold every place where it shows, and none where it would have shown.
//!
//! ```text
//! shows: places that are as the other rule makes them, and not right        hidden: right ones that it would have made otherwise
//! lines: all;  from … to of every 2, 4, … 128;  from … to                    no hidden place where both of its lines are in
//! ```

/// Bits that the choice of the places that show among all that could have has to tell: by chance no rows and columns part them.
const BITS: f64 = 32.0;
/// The longest period of lines: that of a tile.
const LONGEST: usize = 128;

/// Lines of an axis: those whose number modulo `every` is from `from` to before `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lines {
    every: usize,
    from: usize,
    to: usize,
    /// Numbers that it takes to say it.
    cost: usize,
}

const ALL: Lines = Lines { every: 1, from: 0, to: 1, cost: 0 };

impl Lines {
    fn has(&self, line: usize) -> bool {
        (self.from..self.to).contains(&(line % self.every))
    }

    /// The narrowest that hold all of `shows`, of `n` lines.
    fn around(n: usize, shows: &[usize]) -> Vec<Lines> {
        let of = |every: usize| {
            let rest = || shows.iter().map(|l| l % every);
            let (from, to) = (rest().min().unwrap_or(0), rest().max().unwrap_or(0) + 1);
            Lines { every, from, to, cost: if to == from + 1 && every < n { 1 } else { 2 } }
        };
        let periods = (1..).map(|p| 1usize << p).take_while(|m| *m <= LONGEST && 2 * m <= n);
        let some = periods.chain([n]).map(of).filter(|l| l.to - l.from < l.every);
        std::iter::once(ALL).chain(some).collect()
    }

    fn words(&self, name: &str, n: usize) -> Option<String> {
        let run =
            if self.to == self.from + 1 { format!("{}", self.from) } else { format!("{} … {}", self.from, self.to - 1) };
        let every = if self.every < n { format!(" of every {}", self.every) } else { String::new() };
        (self.every > 1).then(|| format!("{name} {run}{every}"))
    }
}

/// The place as the end of a sentence, empty where it is everywhere. `shape`: rows and columns, `names`: what they are called.
pub fn place(shape: (usize, usize), names: [&str; 2], shows: &[usize], hidden: &[usize]) -> Option<String> {
    let cols = shape.1;
    let lines = |of: fn(usize, usize) -> usize| shows.iter().map(|at| of(*at, cols)).collect::<Vec<_>>();
    let by_row = Lines::around(shape.0, &lines(|at, cols| at / cols));
    let by_col = Lines::around(cols, &lines(|at, cols| at % cols));
    let clear = |l: &[Lines; 2]| !hidden.iter().any(|at| l[0].has(at / cols) && l[1].has(at % cols));
    let both = |cost: usize| {
        let rest = |r: Lines| by_col.iter().map(move |c| [r, *c]).filter(move |l| l[0].cost + l[1].cost == cost);
        by_row.iter().flat_map(|r| rest(*r)).find(|l| clear(l))
    };
    let mut found = (0..=4).find_map(both)?;
    // How many ways there are to choose as many places of all.
    let told: f64 = (1..=shows.len()).map(|i| ((hidden.len() + i) as f64 / i as f64).log2()).sum();
    (found == [ALL, ALL] || told >= BITS).then_some(())?;
    // Places at the edge that do not show are in too: the roundest limits.
    for (unit, limit) in [128, 64, 32, 16, 8, 4, 2].into_iter().flat_map(|unit| (0..4).map(move |limit| (unit, limit))) {
        let mut wide = found;
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
    let [r, c] = found;
    let words: Vec<String> = [r.words(names[0], shape.0), c.words(names[1], cols)].into_iter().flatten().collect();
    Some(if words.is_empty() { String::new() } else { format!(", in {}", words.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 64 × 96 places every third may show; those in `inside` do.
    fn of(inside: impl Fn(usize, usize) -> bool) -> Option<String> {
        let told = |at: &usize| (at * 7919 + 5) % 3 == 0;
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
