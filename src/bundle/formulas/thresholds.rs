//! Formulas that hold on one side of a number: in a branch that is taken for small values alone, or for large ones.

use super::Mask;
use crate::compare::digits;
use crate::fault::solve::output::roundest;

/// Elements on each side, at least.
const LEAST: usize = 8;

/// Where the wrong elements lie by their values x, where these are apart from those of the elements that the formula does not make.
pub fn where_it_is(x: &[f64], right: &Mask, made: &Mask) -> Option<String> {
    let wrong = || (0..x.len()).filter(|n| !right[*n] && x[*n].is_finite());
    let others = || (0..x.len()).filter(|n| right[*n] && !made[*n] && x[*n].is_finite());
    (wrong().count() >= LEAST && others().count() >= LEAST).then_some(())?;
    type Of = fn(f64) -> f64;
    let ways: [(&str, Of); 2] = [("|x|", f64::abs), ("x", |x| x)];
    ways.into_iter().find_map(|(name, of)| {
        let most = |all: &mut dyn Iterator<Item = usize>| all.map(|n| of(x[n])).fold(f64::NEG_INFINITY, f64::max);
        let least = |all: &mut dyn Iterator<Item = usize>| all.map(|n| of(x[n])).fold(f64::INFINITY, f64::min);
        let (low, high) = (least(&mut wrong()), most(&mut wrong()));
        if high < least(&mut others()) {
            return Some(format!(", where {name} is below {}", between(high, least(&mut others()))));
        }
        (low > most(&mut others())).then(|| format!(", where {name} is above {}", between(most(&mut others()), low)))
    })
}

/// A power of two between two numbers, or the shortest one.
fn between(low: f64, high: f64) -> String {
    let power = high.abs().log2().floor();
    match low > 0.0 && low <= power.exp2() && power.abs() >= 3.0 {
        true => format!("2^{power}"),
        false => digits::apart([roundest(low, high)])[0].clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_told_by_the_values_that_take_it() {
        let x: Vec<f64> = (0..400).map(|n| ((n * 37 % 401) as f64 - 200.0) * 1e-3).collect();
        let none = vec![false; x.len()];
        let of = |is: &dyn Fn(f64) -> bool| where_it_is(&x, &x.iter().map(|x| !is(*x)).collect(), &none);
        assert_eq!(of(&|x| x.abs() < 0.0625).unwrap(), ", where |x| is below 2^-4");
        assert_eq!(of(&|x| x.abs() > 0.15).unwrap(), ", where |x| is above 0.15");
        // Values are a thousandth apart.
        assert_eq!(of(&|x| x < -0.0495).unwrap(), ", where x is below -0.05");
        assert_eq!(of(&|x| (x * 1000.0) as i64 % 3 == 0), None);
        assert_eq!(of(&|_| true), None, "no others");
    }
}
