//! Numbers as a sentence shows them: four to six digits, more only where fewer would make different numbers look the same.

/// `x` with `digits` significant digits, in plain notation where that is short.
fn with(x: f64, digits: usize) -> String {
    if !x.is_finite() || x == 0.0 {
        return if x == 0.0 { "0".into() } else { x.to_string() };
    }
    let exponent = x.abs().log10().floor() as i32;
    if (-4..7).contains(&exponent) {
        let text = format!("{x:.*}", (digits as i32 - 1 - exponent).max(0) as usize);
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        return text.to_string();
    }
    let text = format!("{x:.*e}", digits - 1);
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    format!("{mantissa}e{power}")
}

/// Numbers side by side: with as few digits as tell different ones apart, four at least.
pub fn apart<const N: usize>(numbers: [f64; N]) -> [String; N] {
    let differ = |texts: &[String; N]| {
        let pairs = (0..N).flat_map(|i| (0..i).map(move |j| (i, j)));
        pairs.clone().all(|(i, j)| numbers[i] == numbers[j] || numbers[i].is_nan() || texts[i] != texts[j])
    };
    let all = [4, 5, 6, 7, 9, 12, 17].map(|digits| numbers.map(|x| with(x, digits)));
    let last = all.len() - 1;
    all.iter().enumerate().find(|(i, t)| *i == last || differ(t)).map(|(_, t)| t.clone()).expect("the last is taken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_digits_as_tell_apart() {
        assert_eq!(apart([-49.27313232421875, -97.63643777929592]), ["-49.27", "-97.64"]);
        assert_eq!(apart([6.8012, 6.8034]), ["6.801", "6.803"]);
        assert_eq!(apart([6.80121, 6.80123]), ["6.80121", "6.80123"]);
        assert_eq!(apart([0.0, 12102.0, 1e-9, f64::INFINITY]), ["0", "12102", "1e-9", "inf"]);
        assert_eq!(apart([1.0, 1.0 + f64::EPSILON]), ["1", "1.0000000000000002"]);
        assert_eq!(apart([2.5e30, f64::NAN]), ["2.5e30", "NaN"]);
        // Equal ones need not be told apart.
        assert_eq!(apart([1.0 / 3.0, 1.0 / 3.0]), ["0.3333", "0.3333"]);
    }
}
