//! Weighted least squares by normal equations and Cholesky, for a few hundred unknowns.

/// Σ w·x·xᵀ and Σ w·x·y.
#[derive(Clone)]
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
    pub fn solve(self) -> Option<Vec<f64>> {
        self.solved(false).map(|x| x.0)
    }

    /// c, and √ of the diagonal of the inverse: the standard error of each where weights are those of unit noise, ∞ of what no equation has.
    pub fn solve_within(self) -> Option<(Vec<f64>, Vec<f64>)> {
        self.solved(true)
    }

    fn solved(mut self, errors: bool) -> Option<(Vec<f64>, Vec<f64>)> {
        let n = self.n;
        let known: Vec<bool> = (0..n).map(|i| self.gram[i * n + i] > 0.0).collect();
        let largest = (0..n).map(|i| self.gram[i * n + i]).fold(0.0, f64::max);
        (largest > 0.0 && largest.is_finite()).then_some(())?;
        // Unknowns in units of their own: weights may be many binades apart.
        let unit: Vec<f64> = (0..n).map(|i| if known[i] { self.gram[i * n + i].sqrt() } else { 1.0 }).collect();
        for i in 0..n {
            self.right[i] /= unit[i];
            (0..=i).for_each(|j| self.gram[i * n + j] /= unit[i] * unit[j]);
            self.gram[i * n + i] = if known[i] { 1.0 + 1e-12 } else { 1.0 };
        }
        let largest = 1.0;
        // Row by row, so that what is multiplied lies side by side.
        for i in 0..n {
            let (above, row) = self.gram.split_at_mut(i * n);
            for j in 0..i {
                let other = &above[j * n..=j * n + j];
                row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
            }
            let d = row[i] - dot(&row[..i], &row[..i]);
            row[i] = if d > largest * 1e-14 { d.sqrt() } else { (largest * 1e-14).sqrt() };
        }
        let mut x = self.right;
        for i in 0..n {
            let row = &self.gram[i * n..=i * n + i];
            x[i] = (x[i] - dot(&row[..i], &x[..i])) / row[i];
        }
        for i in (0..n).rev() {
            let row = &self.gram[i * n..=i * n + i];
            x[i] /= row[i];
            let (before, at) = x.split_at_mut(i);
            before.iter_mut().zip(row).for_each(|(x, g)| *x -= g * at[0]);
        }
        // Column i of L⁻¹ by substitution; the inverse's diagonal is the squares of its columns of L⁻ᵀ.
        let mut within = vec![f64::INFINITY; n];
        for i in (0..n).filter(|i| errors && known[*i]) {
            let mut column = vec![0.0; n];
            column[i] = 1.0;
            let mut squares = 0.0;
            for j in i..n {
                let row = &self.gram[j * n..=j * n + j];
                column[j] = (column[j] - dot(&row[i..j], &column[i..j])) / row[j];
                squares += column[j] * column[j];
            }
            within[i] = squares.sqrt() / unit[i];
        }
        x.iter_mut().zip(&unit).for_each(|(x, u)| *x /= u);
        x.iter().all(|v| v.is_finite()).then_some((x, within))
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    const LANES: usize = 4;
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest: f64 = xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| x * y).sum();
    let mut sums = [0.0; LANES];
    for (x, y) in xs.zip(ys) {
        for n in 0..LANES {
            sums[n] += x[n] * y[n];
        }
    }
    sums.iter().sum::<f64>() + rest
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
    fn errors_are_those_of_the_inverse() {
        // Gram [[5, 2], [2, 8]]: inverse diagonal 8/36 and 5/36.
        let mut s = Normal::new(2);
        s.add(&[1.0, 2.0], 1.0, 1.0);
        s.add(&[2.0, 0.0], 1.0, 1.0);
        s.add(&[0.0, 2.0], 1.0, 1.0);
        let (_, e) = s.solve_within().unwrap();
        assert!((e[0] - (8f64 / 36.0).sqrt()).abs() < 1e-9 && (e[1] - (5f64 / 36.0).sqrt()).abs() < 1e-9, "{e:?}");
    }

    #[test]
    fn an_unknown_that_nothing_mentions_is_zero() {
        let mut s = Normal::new(2);
        s.add(&[2.0, 0.0], 6.0, 1.0);
        assert_eq!(s.solve().unwrap()[1], 0.0);
        assert!(Normal::new(2).solve().is_none());
    }
}
