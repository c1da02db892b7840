//! Results whose signs are lost or turned: an epilogue that takes magnitudes in place, as for an amax, and stores them.
//!
//! ```text
//! y = |Σ + bias|        y = |Σ| + bias        y = −|Σ + bias|
//! ```

use super::system::{System, Theory};
use crate::fault::Class;
use std::sync::Arc;

/// What becomes of a sum and its bias.
type Way = fn(f64, f64) -> f64;

/// No parameters: the wrong elements are those whose sign this changes.
pub fn theories(s: &System) -> Vec<Theory> {
    let ways: [(&str, f64, Way); 3] = [
        (
            "the magnitude of every result is stored, its sign is lost: as by an amax that takes magnitudes in place",
            0.0,
            |v, b| (v + b).abs(),
        ),
        ("the magnitude of every sum meets the bias: its sign is lost before the bias is added", 1.0, |v, b| v.abs() + b),
        ("every result is stored as a negative number of its magnitude", 2.0, |v, b| -(v + b).abs()),
    ];
    let theory = |(words, bits, way): (&str, f64, Way)| {
        let mut t = Theory::new(Class::OtherFormula, "out", "out.magnitude", words).bits(4.0 + bits);
        let bias = s.bias.clone();
        t.finish = Some(Arc::new(move |i, j, v| way(v, bias.at(i, j))));
        t
    };
    ways.into_iter().map(theory).collect()
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, wide};

    #[test]
    fn results_without_their_signs_are_told() {
        let (a, b) = (wide(M, 96), codes(Format::Int8, N, 96, 96, false, 5));
        let bias: Vec<f32> = (0..N).map(|j| 0.1 * ((j * 7 % 11) as f32 - 5.0)).collect();
        let got = found(&a, &b, Some(bias.clone()), Format::E4m3, |i, j, right| right[i * N + j].abs());
        assert_eq!(got.0, "other_formula:out.magnitude", "{}", got.1);
        assert!(got.1.contains("every result is stored, its sign is lost"), "{}", got.1);
        let got = found(&a, &b, Some(bias.clone()), Format::Bf16, |i, j, right| {
            let b = f64::from(bias[j]);
            (right[i * N + j] - b).abs() + b
        });
        assert!(got.1.contains("before the bias is added"), "{} {}", got.0, got.1);
        // Negative results that are 0, or some of them alone, are another matter.
        let got = found(&a, &b, None, Format::Bf16, |i, j, right| right[i * N + j].max(0.0));
        assert_ne!(got.0, "other_formula:out.magnitude", "{}", got.1);
        let got = found(&a, &b, None, Format::Bf16, |i, j, right| {
            let x = right[i * N + j];
            if (i * 31 + j * 17) % 5 < 2 { x.abs() } else { x }
        });
        assert_ne!(got.0, "other_formula:out.magnitude", "{}", got.1);
    }
}
