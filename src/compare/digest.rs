//! SHA-256 of result bits: what says that two runs returned the same, and what a baseline records.

use crate::quant::{QTensor, Zero};
use crate::tensor::Tensor;
use sha2::{Digest as _, Sha256};

/// SHA-256 of bytes, in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// A digest under construction. Everything is fed little endian, each part after its kind, format and shape, so that parts
/// cannot run into each other.
#[derive(Clone, Default)]
pub struct Digest(Sha256);

impl Digest {
    pub fn new() -> Self {
        Self::default()
    }
    fn header(&mut self, kind: &str, format: &str, shape: &[usize]) {
        self.0.update(format!("{kind} {format} {shape:?}\n"));
    }
    /// A high-precision tensor: dtype, shape, stored bits.
    pub fn tensor(mut self, t: &Tensor) -> Self {
        self.header("tensor", t.dtype().name(), &[t.rows(), t.cols()]);
        self.0.update(t.bits());
        self
    }
    /// A quantized tensor: format, shape, codes, scale_inv, zero points, the second level of scales.
    pub fn quantized(mut self, q: &QTensor) -> Self {
        self.header("codes", q.format().name(), &[q.rows(), q.cols()]);
        self.0.update(q.codes());
        self = self.f32s("scale_inv", q.scale_inv());
        self = match q.zero() {
            Zero::None => self,
            Zero::Integer(z) => {
                self.header("zero_point", "int32", &[z.len()]);
                z.iter().for_each(|z| self.0.update(z.to_le_bytes()));
                self
            }
            Zero::Additive { zero, mid } => self.f32s(&format!("additive zero mid {mid}"), zero),
        };
        let Some(level) = q.level() else { return self };
        self = self.f32s("global_scale_inv", &level.scale_inv);
        match &level.zero {
            Some(z) => self.f32s("global_zero_point", z),
            None => self,
        }
    }
    /// Named f32 values: amax, mean, rsigma, …
    pub fn f32s(mut self, name: &str, values: &[f32]) -> Self {
        self.header(name, "f32", &[values.len()]);
        values.iter().for_each(|x| self.0.update(x.to_le_bytes()));
        self
    }
    /// Lower-case hexadecimal, 64 characters.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn one_bit_a_shape_or_a_dtype_changes_the_digest() {
        let t = |dtype, rows, cols, data: &[f32]| {
            Digest::new().tensor(&Tensor::new(dtype, rows, cols, data.to_vec()).unwrap()).finish()
        };
        let all = [
            t(Format::F32, 1, 2, &[1.0, 0.0]),
            t(Format::F32, 1, 2, &[1.0, -0.0]),
            t(Format::F32, 2, 1, &[1.0, 0.0]),
            t(Format::Bf16, 1, 2, &[1.0, 0.0]),
            Digest::new().f32s("amax", &[1.0]).finish(),
        ];
        for (i, a) in all.iter().enumerate() {
            assert_eq!(a.len(), 64);
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
        // Computed with Python's hashlib: sha256(b"amax f32 [1]\n" + b"\x00\x00\x80\x3f").
        assert_eq!(all[4], "2f2bb0ad85683b21d5be98f27da885ded55a5a40d84b4bee54df35476b7a1e7e");
    }
}
