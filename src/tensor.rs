//! High-precision matrices: f16, bf16 or f32 values held as f32.

pub(crate) mod afar;

use crate::{Error, Format, Overflow, Result, Rounding, parallel};
use afar::{Afar, Beside, Numbers};
use ndarray::{Array2, ArrayView2};
use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};

/// A row-major matrix `rows × cols` whose elements are exactly representable in `dtype` (f16, bf16 or f32) and are held as
/// f32. A vector is `1 × n`. A grouped operand `[E,N,K]` is `E·N × K`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dtype: Format,
    rows: usize,
    cols: usize,
    /// Shared by the copies of a tensor.
    data: Arc<Numbers<f32>>,
    there: There,
    /// Where its values lie, and what is done with them there.
    afar: Beside<dyn Afar>,
    /// What was made of it.
    made: There,
}

/// What lies beside a tensor, such as what a device holds of it: shared by the tensor's copies and gone with the last of them. Empty until
/// somebody fills it.
#[derive(Clone, Default)]
pub struct There(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl There {
    /// Filled.
    #[cfg(feature = "cuda")]
    pub fn with<T: Any + Send + Sync>(held: Arc<T>) -> Self {
        let there = There::default();
        drop(there.0.set(held));
        there
    }
    /// What tells it, and copies of it, from all others.
    pub(crate) fn mark(&self) -> Mark {
        Mark(Arc::downgrade(&self.0))
    }
    /// Whether the mark is its own.
    pub(crate) fn has(&self, mark: &Mark) -> bool {
        std::ptr::eq(mark.0.as_ptr(), Arc::as_ptr(&self.0))
    }
    /// What it holds; filled with what `make` returns where it is empty. Errors: `make`'s.
    pub fn or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        if let Some(held) = self.0.get().and_then(|held| held.clone().downcast().ok()) {
            return Ok(held);
        }
        let made = Arc::new(make()?);
        // Of two that make it at once, one is kept.
        drop(self.0.set(made.clone()));
        Ok(made)
    }
}

/// Whose something is, without keeping it.
pub(crate) struct Mark(Weak<OnceLock<Arc<dyn Any + Send + Sync>>>);

/// Where else it lies is no part of a tensor's value.
impl PartialEq for There {
    fn eq(&self, _: &There) -> bool {
        true
    }
}

impl std::fmt::Debug for There {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "there" } else { "nowhere" })
    }
}

impl Tensor {
    /// Takes values that `dtype` holds exactly. Errors: a dtype other than f16, bf16, f32; a length other than
    /// `rows·cols`; a value that `dtype` would round (NaN is allowed).
    pub fn new(dtype: Format, rows: usize, cols: usize, data: Vec<f32>) -> Result<Self> {
        Self::check(dtype, rows, cols, data.len())?;
        let rounds = |x: &f32| !x.is_nan() && round_to(dtype, *x) != *x;
        // What bf16 holds has no low half, but for some NaN: no element needs a closer look then.
        let holds = dtype == Format::Bf16 && parallel::or(&data, |x| x.to_bits()) & 0xffff == 0;
        if dtype != Format::F32
            && !holds
            && let Some(i) = parallel::first(&data, rounds)
        {
            return Err(Error::value("tensor element", data[i], format!("a value that {dtype} holds exactly")));
        }
        Ok(Self::holding(dtype, rows, cols, data))
    }

    /// Rounds each value to `dtype` (nearest even, IEEE overflow to Inf).
    pub fn rounded(dtype: Format, rows: usize, cols: usize, mut data: Vec<f32>) -> Result<Self> {
        Self::check(dtype, rows, cols, data.len())?;
        if dtype != Format::F32 {
            parallel::change(&mut data, |_, some| some.iter_mut().for_each(|x| *x = round_to(dtype, *x)));
        }
        Ok(Self::holding(dtype, rows, cols, data))
    }

    fn holding(dtype: Format, rows: usize, cols: usize, data: Vec<f32>) -> Self {
        let data = Arc::new(Numbers::here(data));
        Self { dtype, rows, cols, data, there: There::default(), afar: Beside(None), made: There::default() }
    }

    /// Values of `dtype` that lie elsewhere: `afar` works on them there.
    pub(crate) fn elsewhere(
        dtype: Format,
        (rows, cols): (usize, usize),
        data: Numbers<f32>,
        afar: Arc<dyn Afar>,
    ) -> Result<Self> {
        Self::check(dtype, rows, cols, data.count())?;
        let data = Arc::new(data);
        Ok(Self { dtype, rows, cols, data, there: There::default(), afar: Beside(Some(afar)), made: There::default() })
    }

    fn check(dtype: Format, rows: usize, cols: usize, len: usize) -> Result<()> {
        if !matches!(dtype, Format::F16 | Format::Bf16 | Format::F32) {
            return Err(Error::value("tensor dtype", dtype, "f16, bf16 or f32"));
        }
        match rows.checked_mul(cols) {
            Some(n) if n == len => Ok(()),
            _ => Err(Error::shape("tensor", format!("{len} elements"), format!("{rows}×{cols}"))),
        }
    }

    pub fn dtype(&self) -> Format {
        self.dtype
    }
    pub fn rows(&self) -> usize {
        self.rows
    }
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// The same tensor, which a device holds too.
    pub(crate) fn held(self, there: There) -> Self {
        Tensor { there, ..self }
    }
    /// What a device holds of it.
    #[cfg(feature = "cuda")]
    pub(crate) fn there(&self) -> &There {
        &self.there
    }
    /// What was made of its values, by whoever asks for it again.
    pub(crate) fn made(&self) -> &There {
        &self.made
    }
    /// Who works on it where it lies; `None`: here.
    pub(crate) fn afar(&self) -> Option<&dyn Afar> {
        self.afar.0.as_deref()
    }
    /// How many elements it has.
    pub(crate) fn count(&self) -> usize {
        self.data.count()
    }
    /// All elements, row by row.
    pub fn data(&self) -> &[f32] {
        self.data.all()
    }
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data()[i * self.cols..(i + 1) * self.cols]
    }
    /// The same of a tensor whose other rows may stay where they lie.
    pub(crate) fn some_row(&self, i: usize) -> Cow<'_, [f32]> {
        self.data.some(i * self.cols..(i + 1) * self.cols)
    }
    /// The f32 elements as a matrix view.
    pub fn view(&self) -> ArrayView2<'_, f32> {
        ArrayView2::from_shape((self.rows, self.cols), self.data()).expect("length checked on construction")
    }
    /// The elements in f64 (exact).
    pub fn to_f64(&self) -> Array2<f64> {
        let values = parallel::map(self.data(), |x| f64::from(*x));
        Array2::from_shape_vec((self.rows, self.cols), values).expect("length checked on construction")
    }
    /// `cols × rows` with element (i,j) at (j,i).
    pub fn transposed(&self) -> Tensor {
        let (all, mut data) = (self.data(), Vec::with_capacity(self.count()));
        for j in 0..self.cols {
            data.extend((0..self.rows).map(|i| all[i * self.cols + j]));
        }
        Self::holding(self.dtype, self.cols, self.rows, data)
    }
    /// The same values in another dtype (nearest even).
    pub fn cast(&self, dtype: Format) -> Result<Tensor> {
        Tensor::rounded(dtype, self.rows, self.cols, parallel::copy(self.data()))
    }
    /// Rows `from..to` as a tensor of their own.
    pub fn rows_range(&self, from: usize, to: usize) -> Tensor {
        let data = self.data()[from * self.cols..to * self.cols].to_vec();
        Self::holding(self.dtype, to - from, self.cols, data)
    }
    /// The stored bits, little endian, row by row: what a digest is taken of.
    pub fn bits(&self) -> Vec<u8> {
        let half = |x: f32| match self.dtype {
            // What the tensor holds, its type holds exactly; a NaN is the canonical one.
            Format::Bf16 if !x.is_nan() => (x.to_bits() >> 16) as u16,
            Format::F16 if !x.is_nan() => half::f16::from_f32(x).to_bits(),
            dtype => dtype.encode(f64::from(x), Rounding::NearestEven, Overflow::Native) as u16,
        };
        match self.dtype {
            Format::F32 => parallel::map(self.data(), |x| x.to_bits().to_le_bytes()).into_flattened(),
            _ => parallel::map(self.data(), |x| half(*x).to_le_bytes()).into_flattened(),
        }
    }
}

/// `x` rounded to f16, bf16 or f32 (nearest even, IEEE overflow), by the `half` crate; other formats are returned unchanged.
pub fn round_to(dtype: Format, x: f32) -> f32 {
    match dtype {
        Format::F16 => half::f16::from_f32(x).to_f32(),
        Format::Bf16 => half::bf16::from_f32(x).to_f32(),
        _ => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_takes_the_values_that_it_holds() {
        let odd = f32::from_bits(0x3f80_0001);
        for (dtype, holds) in [(Format::F32, true), (Format::Bf16, false), (Format::F16, false)] {
            let mut data = vec![1.5f32; 3 * parallel::BAND];
            // A NaN of any bits is one.
            data[5] = f32::from_bits(0x7fc0_0001);
            assert!(Tensor::new(dtype, 3, parallel::BAND, data.clone()).is_ok(), "{dtype}");
            data[2 * parallel::BAND + 7] = odd;
            assert_eq!(Tensor::new(dtype, 3, parallel::BAND, data).is_ok(), holds, "{dtype}");
        }
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn what_a_device_holds_is_made_once_and_shared_by_copies_alone() {
        let t = Tensor::new(Format::F32, 1, 2, vec![1.0, 2.0]).unwrap();
        let copy = t.clone();
        assert_eq!(*t.there().or_make(|| Ok(7u32)).unwrap(), 7);
        assert_eq!(*copy.there().or_make(|| -> Result<u32> { panic!("made twice") }).unwrap(), 7);
        assert_eq!(*t.rows_range(0, 1).there().or_make(|| Ok(8u32)).unwrap(), 8, "other elements, another place");
        assert!(t.there().or_make(|| -> Result<u64> { Err(Error::unsupported("a device", "none")) }).is_err());
        assert_eq!(t, Tensor::new(Format::F32, 1, 2, vec![1.0, 2.0]).unwrap(), "no part of the value");
    }
}
