//! Weighted least squares by normal equations and Cholesky, for a few hundred unknowns.

/// Σ w·x·xᵀ and Σ w·x·y.
pub struct Normal {
    n: usize,
    gram: Vec<f64>,
    right: Vec<f64>,
}

impl Normal {
    pub fn new(n: usize) -> Self {
        Self { n, gram: vec![0.0; n * n], right: vec![0.0; n] }
    }

    /// One equation `x·c = y` of weight `w`.
    pub fn add(&mut self, x: &[f64], y: f64, w: f64) {
        if !(y.is_finite() && w.is_finite()) {
            return;
        }
        for i in 0..self.n {
            let a = w * x[i];
            if a != 0.0 {
                self.right[i] += a * y;
                let row = &mut self.gram[i * self.n..=i * self.n + i];
                row.iter_mut().zip(x).for_each(|(g, x)| *g += a * x);
            }
        }
    }

    /// c; unknowns that no equation has are 0. `None`: not finite.
    pub fn solve(mut self) -> Option<Vec<f64>> {
        let n = self.n;
        let largest = (0..n).map(|i| self.gram[i * n + i]).fold(0.0, f64::max);
        (largest > 0.0 && largest.is_finite()).then_some(())?;
        for i in 0..n {
            let d = &mut self.gram[i * n + i];
            *d = if *d == 0.0 { largest } else { *d * (1.0 + 1e-12) };
        }
        for j in 0..n {
            for k in 0..j {
                let f = self.gram[j * n + k];
                for i in j..n {
                    self.gram[i * n + j] -= self.gram[i * n + k] * f;
                }
            }
            let d = self.gram[j * n + j];
            let root = if d > largest * 1e-14 { d.sqrt() } else { (largest * 1e-14).sqrt() };
            for i in j..n {
                self.gram[i * n + j] /= root;
            }
            self.gram[j * n + j] = root;
        }
        let mut x = self.right;
        for i in 0..n {
            for k in 0..i {
                x[i] -= self.gram[i * n + k] * x[k];
            }
            x[i] /= self.gram[i * n + i];
        }
        for i in (0..n).rev() {
            for k in i + 1..n {
                x[i] -= self.gram[k * n + i] * x[k];
            }
            x[i] /= self.gram[i * n + i];
        }
        x.iter().all(|v| v.is_finite()).then_some(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_mixed_is_found_again() {
        let truth = [1.0, 0.0, 2.0, -3.5, 1.0];
        let mut s = Normal::new(5);
        for e in 0..40u64 {
            let x: Vec<f64> = (0..5u64).map(|i| ((e * 31 + i * 17 + e * e * i) % 23) as f64 - 11.0).collect();
            let y = x.iter().zip(truth).map(|(x, t)| x * t).sum();
            s.add(&x, y, 1.0 + e as f64);
        }
        let c = s.solve().unwrap();
        assert!(c.iter().zip(truth).all(|(c, t)| (c - t).abs() < 1e-9), "{c:?}");
    }

    #[test]
    fn an_unknown_that_nothing_mentions_is_zero() {
        let mut s = Normal::new(2);
        s.add(&[2.0, 0.0], 6.0, 1.0);
        assert_eq!(s.solve().unwrap()[1], 0.0);
        assert!(Normal::new(2).solve().is_none());
    }
}
