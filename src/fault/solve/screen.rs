//! Which pairs of readings of scales may make an element: all of them against it in f32, before the few that are left are summed in f64.

/// What one operand is multiplied and shifted by, of every unit of K.
pub type Line = Vec<(f64, f64)>;

/// An element: what was written and how far off it may be, and its sums of codes of each unit.
pub struct Element<'x> {
    pub y: f64,
    pub half: f64,
    /// Σ code·code, Σ |code·code|.
    pub both: &'x [(f64, f64)],
    /// Σ of the codes of a, of b.
    pub of_a: &'x [f64],
    pub of_b: &'x [f64],
}

/// Every line of a, multiplied by the element's sums, and every line of b.
pub struct Screen {
    len: usize,
    a: Vec<f32>,
    size: Vec<f32>,
    b: Vec<f32>,
    y: f32,
    half: f32,
    loose: f32,
}

const LANES: usize = 8;

impl Screen {
    /// `loose`: what a sum may be off, over its magnitude. In units of what was written, so that nothing leaves f32.
    pub fn of(e: &Element, xs: &[Line], ys: &[Line], loose: f64) -> Self {
        let most = ys.iter().flatten().fold(0.0f64, |m, y| m.max(y.0.abs()).max(y.1.abs())).max(1e-300);
        let unit = e.y.abs().max(e.half).max(1e-300);
        let by = most / unit;
        let zeros = ys.iter().flatten().any(|y| y.1 != 0.0);
        let n = e.both.len();
        let len = (if zeros { 2 * n } else { n }).next_multiple_of(LANES);
        let (mut a, mut size, mut b) = (vec![0.0; xs.len() * len], vec![0.0; xs.len() * len], vec![0.0; ys.len() * len]);
        for (x, (a, size)) in xs.iter().zip(a.chunks_mut(len).zip(size.chunks_mut(len))) {
            for (u, x) in x.iter().enumerate() {
                a[u] = ((x.0 * e.both[u].0 + x.1 * e.of_b[u]) * by) as f32;
                size[u] = ((x.0.abs() * e.both[u].1 + (x.1 * e.of_b[u]).abs()) * by) as f32;
                if zeros {
                    a[n + u] = (x.0 * e.of_a[u] * by) as f32;
                    size[n + u] = a[n + u].abs();
                }
            }
        }
        for (y, b) in ys.iter().zip(b.chunks_mut(len)) {
            for (u, y) in y.iter().enumerate() {
                b[u] = (y.0 / most) as f32;
                if zeros {
                    b[n + u] = (y.1 / most) as f32;
                }
            }
        }
        // What f32 rounds on its way.
        let loose = 1.001 * loose + (len + 8) as f64 * f64::from(f32::EPSILON);
        Self {
            len,
            a,
            size,
            b,
            y: (e.y / unit) as f32,
            half: (1.001 * e.half / unit) as f32 + f32::EPSILON,
            loose: loose as f32,
        }
    }

    /// Whether line `x` of a and `y` of b may make it. What is no number is left to f64.
    pub fn may(&self, x: usize, y: usize) -> bool {
        let of = |v: &'_ [f32], at: usize| -> std::ops::Range<usize> { at * self.len..((at + 1) * self.len).min(v.len()) };
        let (a, size, b) = (&self.a[of(&self.a, x)], &self.size[of(&self.size, x)], &self.b[of(&self.b, y)]);
        let (mut sums, mut sizes) = ([0.0f32; LANES], [0.0f32; LANES]);
        for ((a, size), b) in a.chunks_exact(LANES).zip(size.chunks_exact(LANES)).zip(b.chunks_exact(LANES)) {
            for n in 0..LANES {
                sums[n] += a[n] * b[n];
                sizes[n] += size[n] * b[n].abs();
            }
        }
        let (sum, size): (f32, f32) = (sums.iter().sum(), sizes.iter().sum());
        let off = (sum - self.y).abs();
        off <= self.half + self.loose * size || !(off + size).is_finite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Σ x·y of codes by scales and zero points, in f64.
    fn whole(e: &Element, x: &Line, y: &Line) -> f64 {
        let one = |u: usize| {
            let (x, y) = (x[u], y[u]);
            x.0 * y.0 * e.both[u].0 + x.1 * y.0 * e.of_b[u] + y.1 * x.0 * e.of_a[u]
        };
        (0..x.len()).map(one).sum()
    }

    #[test]
    fn what_makes_an_element_is_never_refused_and_most_else_is() {
        let n = 11;
        let wild = |seed: usize, u: usize| ((seed * 7919 + u * 104_729) % 1009) as f64 / 1009.0 - 0.4;
        for (zeros, tiny) in [(false, 1.0), (true, 1.0), (false, 1e-30), (true, 1e-24)] {
            let both: Vec<(f64, f64)> = (0..n).map(|u| (900.0 * wild(1, u), 1000.0)).collect();
            let (of_a, of_b): (Vec<f64>, Vec<f64>) = (0..n).map(|u| (40.0 * wild(2, u), 30.0 * wild(3, u))).unzip();
            let line = |seed: usize, z: bool| -> Line {
                (0..n).map(|u| (tiny * wild(seed, u), if z { tiny * wild(seed + 99, u) } else { 0.0 })).collect()
            };
            let xs: Vec<Line> = (10..40).map(|s| line(s, false)).collect();
            let ys: Vec<Line> = (50..90).map(|s| line(s, zeros)).collect();
            let mut e = Element { y: 0.0, half: 0.0, both: &both, of_a: &of_a, of_b: &of_b };
            let mut passed = 0;
            for (x, y) in [(0, 0), (3, 39), (29, 17)] {
                e.y = whole(&e, &xs[x], &ys[y]);
                e.half = 1e-5 * e.y.abs();
                let s = Screen::of(&e, &xs, &ys, 1e-6);
                assert!(s.may(x, y), "{zeros} {tiny} {x} {y}");
                passed += (0..30 * 40).filter(|p| s.may(p / 40, p % 40)).count();
            }
            assert!(passed < 20, "{zeros} {tiny}: {passed} of 3600");
        }
    }
}
