//! Zero points of some lanes of a packed word that are one fixed number, while the others use the stored ones: a constant of the unpacking that a
//! shift or a magic number has for one nibble alone.
//!
//! ```text
//! X(i, k) = (code − c) · scale  for the lanes of k,  (code − zero) · scale  else          c: 0, 1, 7, 8, 15, 127, 128
//! ```

use super::lanes::lanes;
use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

const FIXED: [f64; 7] = [8.0, 0.0, 128.0, 7.0, 15.0, 127.0, 1.0];

/// Of one operand with whole zero points.
pub fn theories(s: &System, side: Which) -> Vec<Theory> {
    let (g, name) = (s.given(side), side.name());
    let (Some((zero, None)), Some(q)) = (&g.zero, &g.q) else { return Vec::new() };
    let top = f64::from(1u32 << q.format().bits());
    let zero = Arc::new(zero.clone());
    let (tile, cols) = (g.tile, g.grid.1);
    let mut all = Vec::new();
    // Where all are this number, nothing tells it.
    let fixed = FIXED.into_iter().filter(|c| *c < top && zero.iter().any(|z| z != c));
    for ((lane, bits, is), c) in fixed.flat_map(|c| lanes().into_iter().map(move |lane| (lane, c))) {
        let words = format!("{c} is used instead of the zero points of {name} for {lane}");
        let variant = format!("{name}.lane_zero");
        let mut t = Theory::new(Class::ZpCorrection, name, variant, words)
            .bits(4.0 + bits + if c == 8.0 { 0.0 } else { cost(1) - 2.0 });
        let zero = zero.clone();
        t.side(side).zeroed(1, Arc::new(move |i, k| if is(k) { c } else { zero[i / tile.0 * cols + k / tile.1] }));
        all.push(t);
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::fault::solve::tests::{M, N, codes, found, noise, sum, wide};
    use crate::{Format, Zero};

    #[test]
    fn lanes_with_a_fixed_zero_point_are_told() {
        const K: usize = 160;
        let (a, b) = (wide(M, K), codes(Format::Uint4, N, K, 32, true, 23));
        let Zero::Integer(zero) = b.zero() else { panic!("whole zero points") };
        let x = a.to_f64();
        let with = |zero_of: &dyn Fn(usize, f64) -> f64| {
            found(&a, &b, None, Format::F16, |i, j, _| {
                sum(K, |k| {
                    let cell = j * 5 + k / 32;
                    let z = zero_of(k, f64::from(zero[cell]));
                    x[[i, k]] * (f64::from(b.codes()[j * K + k]) - z) * f64::from(b.scale_inv()[cell])
                })
            })
        };
        let got = with(&|k, z| if k % 2 == 1 { 8.0 } else { z });
        assert_eq!(got.0, "zp_correction:b.lane_zero", "{}", got.1);
        assert!(got.1.contains("8 is used instead of the zero points of b for every second code of a pair"), "{}", got.1);
        let got = with(&|k, z| if k % 4 == 2 { 0.0 } else { z });
        assert!(
            got.0.ends_with("b.lane_zero") && got.1.contains("0 is used") && got.1.contains("k mod 4 = 2"),
            "{} {}",
            got.0,
            got.1
        );
        // Another number for every code is of no lane.
        let got = with(&|k, z| if k % 2 == 1 { (16.0 * noise(k)).floor() } else { z });
        assert!(!got.0.contains("lane_zero"), "{} {}", got.0, got.1);
    }
}
