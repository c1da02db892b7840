//! Tables of values that a kernel fills, or looks up, in another order than it should: mirrored with the other sign, reversed, halves exchanged, a
//! place off.
//!
//! ```text
//! T'(c) = ± T(p(c))          p(c): n − 1 − c, c xor m, c ± 1 … of n codes; in all of the table, or in one half of it
//! ```

use crate::order::Order as _;

/// The code whose value is read instead, and the sign of it.
pub type From = (usize, f64);

/// Words behind "decoded by", bits, and what each code reads.
pub type Order = (String, f64, Vec<From>);

/// Every order that a table of so many codes may have by a rule.
pub fn orders(codes: usize) -> Vec<Order> {
    let (half, last) = (codes / 2, codes - 1);
    let mut all: Vec<Order> = Vec::new();
    let mut add = |words: String, bits: f64, of: &dyn Fn(usize) -> From| all.push((words, bits, (0..codes).map(of).collect()));
    let mirror = |c: usize| (last - c, -1.0);
    let words = |below: bool| {
        let which = if below { format!("c < {half}") } else { format!("c ≥ {half}") };
        format!("a table that mirrors one half in the other: code c, {which}, is minus the value of code {last} − c")
    };
    add(words(true), 2.0, &|c| if c < half { mirror(c) } else { (c, 1.0) });
    // Of a float the sign of an integer is as short, and better known.
    add(words(false), 4.5, &|c| if c < half { (c, 1.0) } else { mirror(c) });
    add(format!("the mirrored table: code c is minus the value of code {last} − c"), 2.0, &mirror);
    add(format!("the reversed table: code c is the value of code {last} − c"), 2.0, &|c| (last - c, 1.0));
    for (below, which) in [(true, format!("c < {half}")), (false, format!("c ≥ {half}"))] {
        let moved = |c: usize| (c < half) == below;
        let words = format!("one half of the table twice: code c, {which}, is the value of code c xor {half}");
        add(words, 2.5, &|c| (if moved(c) { c ^ half } else { c }, 1.0));
        let words = format!("one half of the table twice: code c, {which}, is minus the value of code c xor {half}");
        add(words, 2.5, &|c| if moved(c) { (c ^ half, -1.0) } else { (c, 1.0) });
        let words = format!("a table with one half reversed: code c, {which}, is the value of code c xor {}", half - 1);
        add(words, 3.0, &|c| (if moved(c) { c ^ (half - 1) } else { c }, 1.0));
    }
    let mut flips: Vec<usize> = (0..).map(|b| 1usize << b).take_while(|m| *m < codes).collect();
    flips.extend([half - 1, half + 1]);
    for m in flips {
        add(format!("a table in another order: code c is the value of code c xor {m}"), 3.0, &|c| (c ^ m, 1.0));
    }
    for (on, sign) in [(1, '+'), (last, '−')] {
        let words = format!("a table that is one place off: code c is the value of code c {sign} 1, around the end");
        add(words, 3.0, &|c| ((c + on) % codes, 1.0));
        let words = format!("a table that is one place off: code c is the value of code c {sign} 1, the last at the end");
        add(words, 3.0, &|c| (if on == 1 { (c + 1).min(last) } else { c.saturating_sub(1) }, 1.0));
    }
    let bits = codes.trailing_zeros();
    let turned = |c: usize| (c as u32).reverse_bits() >> (32 - bits);
    add("a table in another order: the bits of a code are read in reverse".into(), 4.0, &|c| (turned(c) as usize, 1.0));
    all
}

/// The codes of a table whose values, or whose values with the other sign, are those solved: `solved` has a code, its value, and how far it may be
/// off. `None`: of one of them nothing is near enough, or more than one value is.
pub fn matched(right: &[f64], solved: &[(usize, f64, f64)]) -> Option<Vec<(usize, From)>> {
    let one = |(code, v, within): &(usize, f64, f64)| {
        let signed = (0..right.len()).flat_map(|c| [(c, 1.0), (c, -1.0)]);
        let mut near = signed.filter(|(c, sign)| right[*c].is_finite() && (sign * right[*c] - v).abs() <= *within);
        let first = near.next()?;
        let value = |(c, sign): From| sign * right[c];
        near.all(|x| value(x) == value(first)).then_some((*code, first))
    };
    solved.iter().map(one).collect()
}

/// What these codes read, in words: by a rule that holds for all `used` ones, else the first of them.
pub fn words(used: &[usize], found: &[(usize, From)], right: &[f64]) -> String {
    let value = |(c, sign): From| sign * right[c];
    let read = |c: usize| found.iter().find(|x| x.0 == c).map_or(right[c], |x| value(x.1));
    let fits = |order: &Order| used.iter().all(|c| value(order.2[*c]) == read(*c));
    if let Some(order) = orders(right.len()).into_iter().find(fits) {
        return order.0;
    }
    let sign = |s: f64| if s < 0.0 { "minus " } else { "" };
    let mut found = found.to_vec();
    found.order_by(|a, b| a.0.cmp(&b.0));
    let some: Vec<String> = found.iter().take(6).map(|(c, from)| format!("0x{c:x} ← {}0x{:x}", sign(from.1), from.0)).collect();
    let more = if found.len() > 6 { ", …" } else { "" };
    format!("a table of the same values in another order: {}{more}", some.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};

    const K: usize = 64;

    fn of(from: impl Fn(usize) -> From) -> (String, String) {
        let (a, b) = (wide(M, K), codes(Format::Nf4, N, K, 32, false, 71));
        let x = a.to_f64();
        let value = |code: u8| {
            let (c, sign) = from(usize::from(code));
            sign * Format::Nf4.decode(c as u32)
        };
        found(&a, &b, None, Format::F32, |i, j, _| {
            sum(K, |k| x[[i, k]] * value(b.codes()[j * K + k]) * f64::from(b.scale_inv()[j * 2 + k / 32]))
        })
    }

    #[test]
    fn halves_that_mirror_each_other_and_reversed_tables_are_told() {
        let got = of(|c| if c < 8 { (15 - c, -1.0) } else { (c, 1.0) });
        assert_eq!(got.0, "bits_reinterpreted:b.table_order", "{}", got.1);
        assert!(got.1.contains("code c, c < 8, is minus the value of code 15 − c"), "{}", got.1);
        let got = of(|c| (15 - c, 1.0));
        assert!(got.1.contains("the reversed table: code c is the value of code 15 − c"), "{} {}", got.0, got.1);
        let got = of(|c| (c ^ 4, 1.0));
        assert!(got.1.contains("code c is the value of code c xor 4"), "{} {}", got.0, got.1);
    }

    #[test]
    fn a_table_in_an_order_without_a_rule_is_told_code_by_code() {
        let got = of(|c| (c * 5 % 16, 1.0));
        assert_eq!(got.0, "bits_reinterpreted:b.table", "{}", got.1);
        assert!(got.1.contains("a table of the same values in another order: 0x1 ← 0x5, 0x2 ← 0xa"), "{}", got.1);
    }

    #[test]
    fn values_that_are_nobodys_match_nothing() {
        let right: Vec<f64> = (0..16).map(|c| Format::Nf4.decode(c)).collect();
        assert_eq!(matched(&right, &[(3, -right[9], 1e-3)]), Some(vec![(3, (9, -1.0))]));
        assert_eq!(matched(&right, &[(3, -right[9], 1e-3), (4, 0.31, 1e-3)]), None);
        // Too many are near.
        assert_eq!(matched(&right, &[(3, 0.5, 0.1)]), None);
    }
}
