//! Theories of a bias that is added in another place, or read as another type: what each column has besides its right sum is solved, of each
//! expert's rows for themselves. And of one that another expert's is, or that weights of rows do not meet as they should.

use super::maps::{self, Kind};
use super::output::Add;
use super::segment::spread;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::order::Order as _;
use crate::{Format, Overflow, Rounding};
use std::sync::Arc;

/// The bias of every column, solved; where each is one that is stored, its place.
pub fn theories(s: &System) -> Vec<Theory> {
    let stored = s.bias.stored();
    if stored.iter().all(|x| *x == stored[0]) || s.cols < 4 {
        return Vec::new();
    }
    let found = added(s, false);
    // What is stored in 16 bits and read again for the bias has one rounding more.
    if found.is_empty() && !s.out.is_quantized() { added(s, true) } else { found }
}

/// The same, of sums as they are or as they are `stored`.
fn added(s: &System, stored: bool) -> Vec<Theory> {
    // Places are those of all experts, one after the other.
    let bias = s.bias.stored();
    let mut from: Vec<usize> = (0..bias.len()).collect();
    let mut order: Vec<usize> = (0..bias.len()).collect();
    order.order_by(|a, b| bias[*a].total_cmp(&bias[*b]));
    let mut choices = 0;
    let (mut moved, mut added, mut strange) = (Vec::new(), Vec::new(), false);
    for (place, from) in from.iter_mut().enumerate() {
        let (e, j) = (place / s.cols, place % s.cols);
        let own = |i: &usize| s.bias.expert(*i) == e && s.bias.weight(*i) > 0.0;
        let inside = |i: &usize| own(i) && s.region.as_ref().is_none_or(|r| r.has(*i, j));
        let mut rows: Vec<usize> = (0..s.rows).filter(inside).collect();
        if !rows.iter().any(|i| s.is_wrong[i * s.cols + j]) {
            continue;
        }
        spread(&mut rows, 32);
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for i in rows {
            let at = i * s.cols + j;
            let Some((y, half)) = s.written(i, j, 0.0) else { continue };
            let sum = s.ideal[at] - s.bias.at(i, j);
            let once = if stored { 0.5 * s.out.spacing(at, sum) } else { 0.0 };
            let r = half + s.certain(at) + once;
            // What was added besides the right sum.
            let (b, by) = (y + s.bias.at(i, j) - sum, s.bias.weight(i));
            (low, high) = (low.max((b - r) / by), high.min((b + r) / by));
        }
        if !(low <= high && low.is_finite() && high.is_finite()) {
            return Vec::new();
        }
        added.push((place, low, high));
        let first = order.partition_point(|x| bias[*x] < low);
        let near: Vec<usize> = order[first..].iter().copied().take_while(|x| bias[*x] <= high).collect();
        // The own one, else the nearest place.
        let Some(best) = near.iter().copied().min_by_key(|x| x.abs_diff(place)) else {
            strange = true;
            continue;
        };
        choices += near.len();
        *from = best;
        moved.push((place, near));
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
    let named = |place: usize| match s.bias.experts() {
        1 => place.to_string(),
        _ => format!("{} of expert {}", place % s.cols, place / s.cols),
    };
    let shown = moved.iter().filter(|j| from[**j] != **j).take(6);
    let some: Vec<String> = shown.map(|j| format!("{} ← {}", named(*j), named(from[*j]))).collect();
    let within = unit.map_or(String::new(), |u| format!(" within every {u}"));
    let twice = if stored { "; the sums were rounded to the type of the result before it" } else { "" };
    let words = format!("the bias is added in another order of columns{within}: {}{twice}", some.join(", "));
    let mut t = Theory::new(Class::Addressing, "out", "out.bias_moved", words).bits(8.0 + 2.0 * moved.len() as f64);
    t.freedom = moved.len();
    let bias = s.bias.with(from.iter().map(|x| bias[*x]).collect());
    let out = s.out.clone();
    t.finish = Some(Arc::new(move |i, j, v| if stored { out.round(0, v) } else { v } + bias.at(i, j)));
    vec![t]
}

/// Where the bias of each place is read.
type Place = Arc<dyn Fn(usize) -> usize + Send + Sync>;

/// A bias of each expert that is another's, or that weights of rows meet twice or not at all.
pub fn of_experts(s: &System, add: &mut Add) {
    let (stored, bias) = (s.bias.stored(), &s.bias);
    // The place that each place is read from: places are those of all experts, one after the other.
    let mut ways: Vec<(String, f64, Place)> = Vec::new();
    let (cols, experts) = (s.cols, bias.experts());
    for way in maps::of_experts(cols, experts) {
        let how = if way.kind == Kind::Expert { "from another expert" } else { "in another order" };
        let map = way.map;
        let first = map(0, 0) / cols;
        let one = way.kind == Kind::Expert && (0..experts).all(|e| map(e * cols, 0) / cols == first);
        let once = if one { ", as where it is loaded for the first tile and not again for other experts" } else { "" };
        let words = format!("the bias is taken {how}: {}{once}", way.words.replace(" rows apart", " numbers apart"));
        ways.push((words, way.bits, Arc::new(move |place| map(place, 0))));
    }
    // Local experts by their global number: what lies behind the last is not theirs, and read as 0.
    let of = |by: usize, d: usize| -> Place { Arc::new(move |at| (by * (at / cols) + d) * cols + at % cols) };
    for by in 2..=8usize {
        for d in (0..by).filter(|_| experts > 2) {
            let plus = if d == 0 { String::new() } else { format!(" + {d}") };
            let words =
                format!("the bias of expert e is that of expert {by}·e{plus}, 0 behind the last: a global number of experts");
            ways.push((words, 3.0 + maps::cost(by) + d as f64, of(by, d)));
        }
    }
    for d in 1..experts {
        let words = format!("the bias of expert e is that of expert e + {d}, 0 behind the last: a global number of experts");
        ways.push((words, 2.0 + maps::cost(d), of(1, d)));
    }
    // Experts that have rows, one after the other.
    let full: Vec<bool> = (0..experts).map(|e| s.parts.get(e).is_some_and(|p| !p.rows.is_empty())).collect();
    let before: Vec<usize> = (0..experts).map(|e| full[..e].iter().filter(|x| **x).count()).collect();
    let words = "the bias is taken by the number of the expert among those that have rows";
    ways.push((words.into(), 1.0, Arc::new(move |at| before[at / cols] * cols + at % cols)));
    let differs = |from: &Place| (0..stored.len()).any(|at| stored.get(from(at)).copied().unwrap_or(0.0) != stored[at]);
    for (words, bits, from) in ways.into_iter().filter(|way| differs(&way.2)) {
        // Nothing is copied: there may be hundreds of experts.
        let (own, n) = (bias.clone(), stored.len());
        let read = move |i: usize, j: usize| {
            let at = own.expert(i) * cols + j;
            if at < n { own.stored().get(from(at)).copied().unwrap_or(0.0) } else { 0.0 }
        };
        if bias.is_weighted() {
            let (words, read) = (format!("{words}; and added behind row_weights, which multiply the sum alone"), read.clone());
            let variant = "bias_expert + round_order:out.bias_unweighted";
            add(Class::Addressing, variant, words, 8.0 + bits, false, Arc::new(move |i, j, v| v + read(i, j)));
        }
        let own = bias.clone();
        let finish = move |i: usize, j: usize, v: f64| v + read(i, j) * own.weight(i);
        add(Class::Addressing, "bias_expert", words, 3.0 + bits, false, Arc::new(finish));
    }
    if bias.is_weighted() {
        let words = "the bias is added behind row_weights, which multiply the sum alone";
        let bare = bias.unweighted();
        add(Class::RoundOrder, "bias_unweighted", words.into(), 2.0, false, Arc::new(move |i, j, v| v + bare.at(i, j)));
        let words = "row_weights multiply the bias twice";
        let twice = bias.clone();
        add(
            Class::ScaleDoubledInverted,
            "bias_weighted",
            words.into(),
            4.0,
            false,
            Arc::new(move |i, j, v| v + twice.at(i, j) * twice.weight(i)),
        );
    }
}

/// A bias of every part of a split K, in a result of 16 bits that are the upper ones of what was added: nearer to 0.
pub fn times_and_cut(s: &System, add: &mut Add) {
    const TIMES: std::ops::RangeInclusive<usize> = 2..=16;
    if s.out.is_quantized() || !matches!(s.out.format(), Format::Bf16 | Format::F16) {
        return;
    }
    for n in TIMES {
        let (b, f) = (s.bias.clone(), s.out.format());
        let cut = move |x: f64| f.decode(f.encode(x, Rounding::TowardZero, Overflow::Native));
        let words = format!("the bias is added {n} times, as by every part of a split K; and the result is cut to {f}");
        let times = Arc::new(move |i: usize, j: usize, v: f64| cut(v + n as f64 * b.at(i, j)));
        add(Class::SilentSkip, "bias_times + rounding:out.truncated", words, 6.0 + maps::cost(n), false, times);
    }
}

/// Vectors of the result that run on into the next row, and read the bias from where their first element does.
pub fn vectors(s: &System, add: &mut Add) {
    let bias = &s.bias;
    let starts: Arc<Vec<usize>> = Arc::new((0..s.rows).map(|i| s.part[i].map_or(i, |p| s.parts[p].rows.start)).collect());
    // Counted from the first row of all, or from that of the group.
    let origins: &[bool] = if bias.experts() > 1 { &[true, false] } else { &[false] };
    for wide in [2usize, 4, 8, 16].into_iter().filter(|w| !s.cols.is_multiple_of(*w)) {
        let words = format!(
            "the bias of {wide} elements at once is read from the column of the first on, past the end of the row where they run into the next"
        );
        for of_group in origins.iter().copied() {
            let (bias, cols, starts) = (bias.clone(), s.cols, starts.clone());
            let read = move |i: usize, j: usize, v: f64| {
                let origin = if of_group { starts[i] } else { 0 };
                let at = (i - origin) * cols + j;
                let first = at / wide * wide;
                let place = bias.expert(origin + first / cols) * cols + first % cols + at % wide;
                v + bias.stored().get(place).copied().unwrap_or(0.0) * bias.weight(i)
            };
            add(Class::Addressing, "bias_vector", words.clone(), 6.0, false, Arc::new(read));
        }
    }
}

/// The bias in 16 bits read as f32, two neighbours as one, and past its end what nobody knows: `added` has a column, and the least and the most
/// that was added there.
fn glued(s: &System, added: &[(usize, f64, f64)]) -> Option<Theory> {
    let stored = s.bias.stored();
    let n = stored.len();
    let bits = |f: Format, j: usize| f.encode(stored[j], Rounding::NearestEven, Overflow::Native);
    let held = |f: &Format| (0..n).all(|j| f.decode(bits(*f, j)) == stored[j]);
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
    bias.extend(&stored[behind..]);
    for (j, low, high) in added.iter().filter(|x| x.0 >= behind) {
        bias[*j] = 0.5 * (low + high);
    }
    let words = format!(
        "the bias is {format} read as f32: two neighbours make one, and {} from {behind} on read what lies behind it",
        if s.bias.experts() == 1 { "columns" } else { "numbers" }
    );
    let mut t = Theory::new(Class::BitsReinterpreted, "out", "out.bias_width", words).bits(6.0);
    t.freedom = n - behind;
    let bias = s.bias.with(bias);
    t.finish = Some(Arc::new(move |i, j, v| v + bias.at(i, j)));
    Some(t)
}
