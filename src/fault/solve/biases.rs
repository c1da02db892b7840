//! Theories of a bias that is added in another place, or read as another type: what each column has besides its right sum is solved.

use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::order::Order as _;
use crate::{Format, Overflow, Rounding};
use std::sync::Arc;

/// The bias of every column, solved; where each is one that is stored, its place.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.bias.iter().all(|x| *x == s.bias[0]) || s.cols < 4 {
        return Vec::new();
    }
    let found = added(s, false);
    // What is stored in 16 bits and read again for the bias has one rounding more.
    if found.is_empty() && !s.out.is_quantized() { added(s, true) } else { found }
}

/// The same, of sums as they are or as they are `stored`.
fn added(s: &System, stored: bool) -> Vec<Theory> {
    let mut from: Vec<usize> = (0..s.cols).collect();
    let mut order: Vec<usize> = (0..s.cols).collect();
    order.order_by(|a, b| s.bias[*a].total_cmp(&s.bias[*b]));
    let mut choices = 0;
    let (mut moved, mut added, mut strange) = (Vec::new(), Vec::new(), false);
    for (j, from) in from.iter_mut().enumerate() {
        let inside = |i: &usize| s.region.as_ref().is_none_or(|r| r.has(*i, j));
        let mut rows: Vec<usize> = (0..s.rows).filter(inside).collect();
        if !rows.iter().any(|i| s.is_wrong[i * s.cols + j]) {
            continue;
        }
        spread(&mut rows, 32);
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for i in rows {
            let at = i * s.cols + j;
            let Some((y, half)) = s.written(i, j, 0.0) else { continue };
            let sum = s.ideal[at] - s.bias[j];
            let once = if stored { 0.5 * s.out.spacing(at, sum) } else { 0.0 };
            let r = half + s.certain(at) + once;
            // What was added besides the right sum.
            let b = y + s.bias[j] - sum;
            (low, high) = (low.max(b - r), high.min(b + r));
        }
        if !(low <= high && low.is_finite() && high.is_finite()) {
            return Vec::new();
        }
        added.push((j, low, high));
        let first = order.partition_point(|x| s.bias[*x] < low);
        let near: Vec<usize> = order[first..].iter().copied().take_while(|x| s.bias[*x] <= high).collect();
        // The own one, else the nearest place.
        let Some(best) = near.iter().copied().min_by_key(|x| x.abs_diff(j)) else {
            strange = true;
            continue;
        };
        choices += near.len();
        *from = best;
        moved.push((j, near));
    }
    if strange {
        return glued(s, &added).filter(|_| !stored).into_iter().collect();
    }
    if moved.len() < 3 || choices > 2 * moved.len() || moved.iter().all(|(j, _)| from[*j] == *j) {
        return Vec::new();
    }
    // Within the shortest part of the columns that has them all.
    let unit =
        [8usize, 16, 32, 64, 128].into_iter().find(|u| moved.iter().all(|(j, near)| near.iter().any(|x| x / u == j / u)));
    if let Some(u) = unit {
        for (j, near) in &moved {
            from[*j] = near.iter().copied().filter(|x| x / u == j / u).min_by_key(|x| x.abs_diff(*j)).unwrap_or(*j);
        }
    }
    let moved: Vec<usize> = moved.into_iter().map(|x| x.0).collect();
    let some: Vec<String> = moved.iter().filter(|j| from[**j] != **j).take(6).map(|j| format!("{j} ← {}", from[*j])).collect();
    let within = unit.map_or(String::new(), |u| format!(" within every {u}"));
    let twice = if stored { "; the sums were rounded to the type of the result before it" } else { "" };
    let words = format!("the bias is added in another order of columns{within}: {}{twice}", some.join(", "));
    let mut t = Theory::new(Class::Addressing, "out", "out.bias_moved", words).bits(8.0 + 2.0 * moved.len() as f64);
    t.freedom = moved.len();
    let bias: Vec<f64> = from.iter().map(|x| s.bias[*x]).collect();
    let out = s.out.clone();
    t.finish = Some(Arc::new(move |_, j, v| if stored { out.round(0, v) } else { v } + bias[j]));
    vec![t]
}

/// The bias in 16 bits read as f32, two neighbours as one, and past its end what nobody knows: `added` has a column, and the least and the most
/// that was added there.
fn glued(s: &System, added: &[(usize, f64, f64)]) -> Option<Theory> {
    let n = s.bias.len();
    let bits = |f: Format, j: usize| f.encode(s.bias[j], Rounding::NearestEven, Overflow::Native);
    let held = |f: &Format| (0..n).all(|j| f.decode(bits(*f, j)) == s.bias[j]);
    let fits = |f: &Format| {
        let two = |j: usize| f64::from(f32::from_bits(bits(*f, 2 * j) | bits(*f, 2 * j + 1) << 16));
        let mut known = added.iter().filter(|x| 2 * x.0 + 1 < n).peekable();
        known.peek()?;
        known.all(|(j, low, high)| (low.next_down()..=high.next_up()).contains(&two(*j))).then_some(())?;
        Some((*f, (0..n / 2).map(two).collect::<Vec<f64>>()))
    };
    let (format, mut bias) = [Format::Bf16, Format::F16].iter().filter(|f| held(f)).find_map(fits)?;
    (n >= 8).then_some(())?;
    let behind = bias.len();
    bias.extend(&s.bias[behind..]);
    for (j, low, high) in added.iter().filter(|x| x.0 >= behind) {
        bias[*j] = 0.5 * (low + high);
    }
    let words = format!(
        "the bias is {format} read as f32: two neighbours make one, and columns from {behind} on read what lies behind it"
    );
    let mut t = Theory::new(Class::BitsReinterpreted, "out", "out.bias_width", words).bits(6.0);
    t.freedom = n - behind;
    t.finish = Some(Arc::new(move |_, j, v| v + bias[j]));
    Some(t)
}
