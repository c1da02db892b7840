//! Values of 16 bits whose bits are multiplied as whole numbers: a kernel for integers, or an interpreter, that is handed floats.

use super::lanes::bits_of;
use super::system::{System, Theory};
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::{Which, operand};
use crate::job::Operand;
use std::sync::Arc;

/// Theories of one side.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let x = match operand(s.scene.evidence.job, side).map(Operand::given) {
        Some(Operand::High(x)) if !s.alone && matches!(x.dtype(), Format::F16 | Format::Bf16) => x,
        _ => return Vec::new(),
    };
    let (format, k_all) = (x.dtype(), g.k);
    [false, true]
        .into_iter()
        .map(|signed| {
            let sign = if signed { "with" } else { "without" };
            let words = format!("the bits of {format} of {name} are multiplied as whole numbers {sign} a sign");
            let mut t = Theory::new(Class::BitsReinterpreted, name, format!("{name}.whole_bits"), words)
                .bits(3.0 + f64::from(u8::from(signed)));
            let values = g.values.clone();
            t.side(side).value = Some(Arc::new(move |i, k| {
                let x = bits_of(format, values[i * k_all + k]) as u16;
                if signed { f64::from(x as i16) } else { f64::from(x) }
            }));
            t
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::{Format, Overflow, Rounding};

    #[test]
    fn floats_that_are_multiplied_as_integers_are_told() {
        const K: usize = 64;
        let (a, b) = (wide(M, K), codes(Format::E4m3, N, K, K, false, 9));
        let (x, y) = (a.to_f64(), b.dequantize());
        let bits = |v: f64| f64::from(Format::Bf16.encode(v, Rounding::NearestEven, Overflow::Native));
        let got = found(&a, &b, None, Format::F32, |i, j, _| sum(K, |k| bits(x[[i, k]]) * y[[j, k]]));
        assert_eq!(got.0, "bits_reinterpreted:a.whole_bits", "{}", got.1);
        assert!(got.1.contains("the bits of bf16 of a are multiplied as whole numbers without a sign"), "{}", got.1);
    }
}
