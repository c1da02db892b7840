//! [`Slices`] as a bundle in memory: its rules are the contract's.

use super::assay::{Answer, assay};
use super::{Bundle, Writer, answer};
use crate::assay::slices::{Matrix, Slices};
use crate::compare::Verdict;
use crate::recipe::Recipe;
use crate::{Error, Result};
use std::path::Path;

impl Slices {
    /// The answer of a pass. Errors: [`Error::Verdict`] with the failure's card for a failure and for data that could show nothing; shapes
    /// and names that do not fit.
    pub fn check(self) -> Result<Answer> {
        let (bundle, found) = self.both()?;
        match answer::verdict(&found) {
            Verdict::Pass => Ok(found),
            _ => Err(Error::Verdict { card: answer::text(&bundle, &found, answer::WIDTH).trim_end().to_string() }),
        }
    }

    /// The answer, whatever its verdict. Errors: shapes and names that do not fit.
    pub fn judge(self) -> Result<Answer> {
        self.both().map(|b| b.1)
    }

    /// The bundle: `qassay assay` judges the file again.
    pub fn bundle(self) -> Result<Writer> {
        let mut w = Writer::new("gemm");
        let recipes = self.recipe.as_deref().map(two).transpose()?;
        let given = recipes.as_ref().map_or([None, None], |(a, b)| [a.as_ref(), b.as_ref()]);
        for (x, matrix, recipe) in [("a", self.a?, given[0]), ("b", self.b?, given[1])] {
            match (&matrix, recipe) {
                (Matrix::Codes(q), _) => {
                    w.codes(x, q, None, None)?;
                }
                (Matrix::Values(t), recipe) => {
                    w.values(x, &[t.rows(), t.cols()], t);
                    if let Some(recipe) = recipe {
                        w.codes(x, &recipe.quantize(t)?.q, None, None)?;
                    }
                }
            }
        }
        match self.out? {
            Matrix::Values(t) => w.values("out", &[t.rows(), t.cols()], &t),
            Matrix::Codes(q) => w.codes("out", &q, None, None)?,
        };
        if let Some(bias) = &self.bias {
            w.f32s("bias", &[bias.len()], bias);
        }
        if let Some(recipe) = &self.recipe {
            w.meta("recipe", recipe);
        }
        for (key, value) in &self.meta {
            w.meta(key, value);
        }
        Ok(w)
    }

    fn both(self) -> Result<(Bundle, Answer)> {
        let bundle = Bundle::parse(Path::new("assay::gemm"), &self.bundle()?.to_bytes()?)?;
        let found = assay(&bundle)?;
        Ok((bundle, found))
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answer({}: {}; {})", self.verdict, self.reason, self.model)
    }
}

/// `name`, or `A+B` with `none`.
fn two(text: &str) -> Result<(Option<Recipe>, Option<Recipe>)> {
    let one = |name: &str| if name == "none" { Ok(None) } else { name.parse().map(Some) };
    match text.split_once('+') {
        Some((a, b)) => Ok((one(a)?, one(b)?)),
        None => Ok((one(text)?, one(text)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::assay::gemm;
    use crate::input::Source;
    use half::bf16;
    use ndarray::{Array2, s};

    fn draw(rows: usize, cols: usize, seed: u64) -> Array2<f32> {
        let t = "normal".parse::<Source>().unwrap().tensor(Format::F32, rows, cols, seed, 0).unwrap();
        Array2::from_shape_vec((rows, cols), t.data().to_vec()).unwrap()
    }

    fn product(a: &Array2<f32>, b: &Array2<f32>, recipe: &str) -> Array2<f32> {
        let dequantized = |x: &Array2<f32>| -> Array2<f64> {
            let Matrix::Values(t) = crate::assay::slices::IntoMatrix::matrix(x).unwrap() else { unreachable!() };
            recipe.parse::<Recipe>().unwrap().quantize(&t).unwrap().q.dequantize()
        };
        dequantized(a).dot(&dequantized(b).t()).mapv(|x| x as f32)
    }

    #[test]
    fn arrays_views_and_tensors_are_judged() {
        let (a, b) = (draw(12, 96, 1), draw(20, 96, 2));
        let out = product(&a, &b, "te_current");
        let found = gemm(&a, &b, &out).recipe("te_current").check().unwrap();
        // The unquantized values are known, so the format's share is.
        assert!(found.comparison().quantization.is_some());
        assert_assay_of_views(&a, &b, &out);
        // One in a hundred is inside what the coarsest tensor core may do, and larger than right sums make it: a gain makes exactly that.
        let gain = out.mapv(|x| x * 1.01);
        let named = gemm(&a, &b, &gain).recipe("te_current").judge().unwrap();
        assert_eq!(named.verdict, Verdict::Fail, "{}", named.reason);
        assert!(named.diagnosis.is_some_and(|d| d.findings[0].detail.contains("multiplied by 1.01")), "{}", named.reason);
        // Other errors of that size have no name: suspect.
        let noise = Array2::from_shape_fn(out.dim(), |(i, j)| {
            out[[i, j]] * (1.0 + 0.005 * ((i * 7919 + j * 104_729) % 97) as f32 / 97.0)
        });
        let doubtful = gemm(&a, &b, &noise).recipe("te_current").judge().unwrap();
        assert_eq!(doubtful.verdict, Verdict::Suspect, "{}", doubtful.reason);
        let wrong = out.mapv(|x| x * 2.0);
        let e = gemm(&a, &b, &wrong).recipe("te_current").check().unwrap_err().to_string();
        assert!(e.starts_with("FAIL  assay::gemm") && e.contains("may be") && e.contains("look at"), "{e}");
        let shown = format!("{doubtful:?}");
        assert!(shown.starts_with("Answer(suspect: ") && shown.contains(&doubtful.reason), "{shown}");
        // Another recipe made other codes.
        assert!(gemm(&a, &b, &out).recipe("float8_rowwise").check().is_err());
    }

    fn assert_assay_of_views(a: &Array2<f32>, b: &Array2<f32>, out: &Array2<f32>) {
        let half = out.mapv(bf16::from_f32);
        crate::assert_assay!(gemm(a, b, &half).recipe("te_current"));
        let (rows, columns) = (a.slice(s![..6, ..]), b.slice(s![..;2, ..]));
        let part = product(&rows.to_owned(), &columns.to_owned(), "te_current");
        crate::assert_assay!(gemm(&rows, &columns, &part).recipe("te_current").kernel("mine"));
        let q = |x: &Array2<f32>| {
            let t = crate::Tensor::new(Format::F32, x.nrows(), x.ncols(), x.iter().copied().collect()).unwrap();
            "te_current".parse::<Recipe>().unwrap().quantize(&t).unwrap().q
        };
        crate::assert_assay!(gemm(&q(a), &q(b), out));
        let bias: Vec<f32> = (0..b.nrows()).map(|j| j as f32 - 9.5).collect();
        let biased = Array2::from_shape_fn(out.dim(), |(i, j)| out[[i, j]] + bias[j]);
        crate::assert_assay!(gemm(&q(a), &q(b), &biased).bias(&bias));
        assert!(gemm(&q(a), &q(b), out).bias(&bias).check().is_err());
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let (a, b) = (draw(4, 32, 1), draw(5, 31, 2));
        let out = Array2::<f32>::zeros((4, 5));
        let said = |s: Slices| s.check().unwrap_err().to_string();
        assert!(said(gemm(&a, &b, &out)).contains("expected K = 32"));
        assert!(said(gemm(&a, &a, &out)).contains("[4, 4]"));
        assert!(said(gemm(&a, &a, &Array2::<f32>::zeros((0, 4)))).contains("no size 0"));
        assert!(said(gemm(&a, &a, &a).recipe("no_such")).contains("unknown recipe `no_such`"));
        // Zeros can show nothing: no pass.
        let zeros = Array2::<f32>::zeros((4, 32));
        assert!(said(gemm(&zeros, &a, &Array2::<f32>::zeros((4, 4)))).starts_with("NO_POWER"));
        assert_eq!(gemm(&zeros, &a, &Array2::<f32>::zeros((4, 4))).judge().unwrap().verdict, Verdict::NoPower);
    }
}
