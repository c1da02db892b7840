//! Parts of K that each get the bias and are rounded before they are added: ranks that each hold a slice of K, or splits that add to memory of 16 bits.
//!
//! ```text
//! out = round( Σ_p round( Σ_{k in p} a·b + bias ) )        right: the bias once, behind the sum or in one part
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::format::grid::native;

/// Parts of K.
const PARTS: [usize; 5] = [2, 3, 4, 6, 8];
/// Multiply-adds of a result.
const WORK: usize = 1 << 28;

/// All of them; none of a product without a bias.
pub fn theories(s: &System) -> Vec<Theory> {
    let one = s.parts.len() == 1 && s.parts[0].k.len() == s.k;
    let work = s.rows.saturating_mul(s.cols).saturating_mul(s.k);
    if s.alone || !s.bias.any() || !one || work > WORK {
        return Vec::new();
    }
    let (a, b, k_all) = (s.a.values.clone(), s.b.values.clone(), s.k);
    let (relative, right) = (s.relative.max(1e-300), s.right_sums());
    let mut all = Vec::new();
    for (parts, f) in PARTS.into_iter().filter(|p| 2 * p <= s.k).flat_map(|p| [Format::F16, Format::Bf16].map(|f| (p, f))) {
        for narrow in [false, true] {
            let (a, b, bias) = (a.clone(), b.clone(), s.bias.clone());
            let each = k_all.div_ceil(parts);
            let kept = move |x: f64| native(f).nearest(x);
            // What is added up, and the steps of the roundings on the way.
            let made = move |i: usize, j: usize| -> (f64, f64) {
                let (mut sum, mut size, mut steps) = (0.0, 0.0, 0.0);
                for from in (0..k_all).step_by(each) {
                    let mut part = 0.0;
                    for k in from..(from + each).min(k_all) {
                        let p = a[i * k_all + k] * b[j * k_all + k];
                        part += p;
                        size += p.abs();
                    }
                    let x = kept(part + bias.at(i, j));
                    sum = if narrow { kept(sum + x) } else { sum + x };
                    steps += step(f, x) + if narrow { step(f, sum) } else { 0.0 };
                }
                (sum, size + steps / relative)
            };
            let how = if narrow { format!("in {f}") } else { "in f32".into() };
            let words = format!(
                "each of {parts} parts of K gets the whole bias and is rounded to {f}, and they are added {how}: the bias is there {parts} times"
            );
            let mut t = Theory::new(Class::SilentSkip, "out", "out.bias_of_parts", words)
                .bits(5.0 + cost(parts) + f64::from(u8::from(narrow)));
            t.sums(right.clone(), s.cols, made);
            all.push(t);
        }
    }
    all
}

/// The step of a type at a number.
fn step(f: Format, x: f64) -> f64 {
    let bits = f.spec().mantissa as i32;
    if x == 0.0 { 0.0 } else { 2f64.powi(x.abs().log2().floor() as i32 - bits) }
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::tensor::round_to;

    /// The bound of sums in f32 is left to each part: a kernel that adds otherwise, and rounds one of them to the other side of a half, does the same.
    #[test]
    fn ranks_that_sum_in_f32_are_told() {
        const K: usize = 96;
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 19));
        let (x, y) = (a.to_f64(), b.dequantize());
        let bias: Vec<f32> = (0..N).map(|j| round_to(Format::F16, (j * 29 % 31) as f32 / 8.0 - 2.0)).collect();
        let own = bias.clone();
        let got = found(&a, &b, Some(bias), Format::F32, |i, j, _| {
            let part = |from: usize| {
                let sum = (from..from + K / 2).fold(0.0f32, |sum, k| sum + x[[i, k]] as f32 * y[[j, k]] as f32);
                round_to(Format::F16, sum + own[j])
            };
            f64::from(part(0) + part(K / 2))
        });
        assert_eq!(got.0, "silent_skip:out.bias_of_parts", "{}", got.1);
    }

    #[test]
    fn ranks_that_each_add_the_bias_are_told() {
        const K: usize = 96;
        let (a, b) = (wide(M, K), codes(Format::Int8, N, K, K, false, 19));
        let (x, y) = (a.to_f64(), b.dequantize());
        let bias: Vec<f32> = (0..N).map(|j| round_to(Format::F16, (j * 29 % 31) as f32 / 8.0 - 2.0)).collect();
        let own = bias.clone();
        let half = |x: f64| f64::from(round_to(Format::F16, x as f32));
        let got = found(&a, &b, Some(bias), Format::F16, |i, j, _| {
            let part = |from: usize| half(sum(K / 2, |k| x[[i, from + k]] * y[[j, from + k]]) + f64::from(own[j]));
            part(0) + part(K / 2)
        });
        assert_eq!(got.0, "silent_skip:out.bias_of_parts", "{}", got.1);
        assert!(got.1.contains("each of 2 parts of K gets the whole bias and is rounded to f16"), "{}", got.1);
    }
}
