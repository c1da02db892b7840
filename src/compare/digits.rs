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

/// What was found and what it may be, from `low` to `high`: a narrow interval that is far from it is its middle and half its width.
pub fn allowed(found: f64, (low, high): (f64, f64)) -> [String; 2] {
    let [is, from, to] = apart([found, low, high]);
    let (middle, half) = (0.5 * (low + high), 0.5 * (high - low));
    if low == high || (low.is_nan() && high.is_nan()) {
        return [is, from];
    }
    if with(low, 6) == with(high, 6) && half.is_finite() && !((found - middle).abs() <= 100.0 * half) {
        let [is, middle] = apart([found, middle]);
        return [is, format!("about {middle} (± {})", with(half, 2))];
    }
    [is, format!("{from} … {to}")]
}

/// A sentence whose decimal numbers of more than eight digits have six: `4.984598457813263e-1` is 0.49846.
pub fn shortened(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        out += before;
        // Digits, a point, digits, an exponent: as far as that is a number.
        let digits = |s: &str| s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let mut end = digits(from);
        if let Some(tail) = from[end..].strip_prefix('.').filter(|t| digits(t) > 0) {
            end += 1 + digits(tail);
            let sign = |t: &str| usize::from(t.starts_with('-'));
            if let Some(tail) = from[end..].strip_prefix('e').filter(|t| digits(&t[sign(t)..]) > 0) {
                end += 1 + sign(tail) + digits(&tail[sign(tail)..]);
            }
        }
        let number = &from[..end];
        let mantissa = number.split('e').next().unwrap_or(number);
        let long = mantissa.contains('.') && mantissa.chars().filter(char::is_ascii_digit).count() > 8;
        out += &number.parse().ok().filter(|_| long).map_or_else(|| number.to_string(), |x| with(x, 6));
        rest = &from[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_of_a_sentence_are_shortened() {
        let said = "the scale of a of 2 steps ago, 4.984598457813263e-1, is used (explains 100 %, all bits)";
        assert_eq!(shortened(said), "the scale of a of 2 steps ago, 0.49846, is used (explains 100 %, all bits)");
        for same in [
            "the last 16 of K (240 … 255)",
            "24×2 grid c·R + r",
            "v1.2.3",
            "e3m2",
            "×1.004228",
            "123456789012",
            "1.5e",
            "-2.5e30.",
        ] {
            assert_eq!(shortened(same), same);
        }
        assert_eq!(shortened("-123456.789012e-20,"), "-1.23457e-15,");
    }

    #[test]
    fn an_interval_of_few_digits_is_written_out_and_a_narrow_one_is_its_middle() {
        assert_eq!(allowed(9.0, (6.8012, 6.8034)), ["9", "6.801 … 6.803"]);
        assert_eq!(allowed(9.0, (6.8, 6.8)), ["9", "6.8"]);
        assert_eq!(allowed(0.0, (f64::NAN, f64::NAN)), ["0", "NaN"]);
        assert_eq!(allowed(32.2460938, (2.01538062, 2.0153811)), ["32.25", "about 2.015 (± 2.4e-7)"]);
        assert_eq!(allowed(f64::NAN, (2.01538062, 2.0153811)), ["NaN", "about 2.015 (± 2.4e-7)"]);
        // What is beside it needs the digits.
        assert_eq!(allowed(2.0153815, (2.01538062, 2.0153811)), ["2.0153815", "2.01538062 … 2.0153811"]);
    }

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
