//! The value of every code, solved: `out[i, j] − bias = Σ_code T(code) · Σ_{k: code(j, k) = code} s(j, k) · A(i, k)`.

use super::linear::Normal;
use super::system::{System, Theory};
use super::table_orders;
use crate::Format;
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Standard errors that a value may be off, and equations for each unknown.
const SIGMAS: f64 = 4.0;
const EQUATIONS: usize = 3;
/// Significant bits that decoded values may have.
const BITS: i32 = 8;
/// Standard deviations of the roundings of what is dequantized.
const ROUNDINGS: f64 = 3.0;

/// The codec of one side, where it is another than the format's. One theory, or none.
pub fn codecs(s: &System, side: Which) -> Vec<Theory> {
    codec(s, side).into_iter().collect()
}

fn codec(s: &System, side: Which) -> Option<Theory> {
    let g = s.given(side);
    let q = g.q.as_ref()?;
    let who = side.name();
    let mut used = vec![usize::MAX; g.table.len()];
    let mut codes: Vec<usize> = Vec::new();
    for c in q.codes() {
        let c = usize::from(*c);
        if used[c] == usize::MAX {
            used[c] = codes.len();
            codes.push(c);
        }
    }
    let n = codes.len();
    // Of many elements some of every row and column.
    let step = ((s.rows * s.cols) >> 20) | 1;
    let inside = |at: &usize| s.region.as_ref().is_none_or(|r| r.has(at / s.cols, at % s.cols));
    let inside = (0..s.rows * s.cols).step_by(step).filter(inside);
    let mut places: Vec<(usize, usize)> = inside.map(|at| (at / s.cols, at % s.cols)).collect();
    (n > 1 && places.len() >= EQUATIONS * n).then_some(())?;
    if s.alone {
        // Each element says one code: as many of each.
        super::segment::spread(&mut places, usize::MAX);
        let mut seen = vec![0; n];
        places.retain(|(i, j)| {
            let count = &mut seen[used[usize::from(q.codes()[i * g.k + j])]];
            *count += 1;
            *count <= 4 * EQUATIONS
        });
    } else {
        super::segment::spread(&mut places, 2 * EQUATIONS * n);
    }
    // Values that are rounded after they are dequantized are near those of a table.
    let rounding = g.rounded.map_or(0.0, |f| ROUNDINGS * if f == Format::Bf16 { 2f64.powi(-9) } else { 2f64.powi(-12) });
    let mut rows: Vec<(Vec<f64>, f64, f64)> = Vec::new();
    for (i, j) in places {
        let Some(part) = s.part[i].map(|p| &s.parts[p]) else { continue };
        let (ra, rb) = (part.a + i - part.rows.start, part.b + j);
        let (line, other) = if side == Which::A { (ra, &s.b) } else { (rb, &s.a) };
        let across = if side == Which::A { rb } else { ra };
        let mut x = vec![0.0; n];
        let (mut size, mut known, mut squares) = (0.0, 0.0, 0.0);
        for k in if s.alone { j..j + 1 } else { part.k.clone() } {
            let v = if s.alone { 1.0 } else { other.values[across * other.k + k] };
            let step = g.step(line, k);
            let code = usize::from(q.codes()[line * g.k + k]);
            x[used[code]] += v * step;
            // What the zero point adds; a code that is no number has none here.
            let value = g.values[line * g.k + k];
            if g.table[code].is_finite() {
                size += (v * value).abs();
                known += v * value - v * step * g.table[code];
                squares += (v * value).powi(2);
            }
        }
        let Some((y, half)) = s.written(i, j, size) else { continue };
        let half = half + rounding * squares.sqrt();
        if y.is_finite() && known.is_finite() {
            rows.push((x, y - known, half));
        }
    }
    (rows.len() >= EQUATIONS * n).then_some(())?;
    let mut system = Normal::new(n);
    rows.iter().for_each(|(x, y, half)| system.add(x, *y, 1.0 / (half * half)));
    let (v, e) = system.solve_within()?;
    let fits = |(x, y, half): &(Vec<f64>, f64, f64)| {
        let sum: f64 = x.iter().zip(&v).map(|(x, v)| x * v).sum();
        (y - sum).abs() <= 2.0 * half
    };
    rows.iter().all(fits).then_some(())?;
    let mut table = g.table.clone();
    let mut changed = Vec::new();
    let unit = g.table.iter().filter(|x| x.is_finite() && **x != 0.0).fold(f64::INFINITY, |m, x| m.min(x.abs()));
    let gain = common(&codes, &g.table, &v, &e);
    let by = gain.unwrap_or(1.0);
    let mut fitted = gain.is_some();
    let mut off: Vec<(usize, f64, f64)> = Vec::new();
    for (c, (v, e)) in codes.iter().zip(v.iter().zip(&e)) {
        let (v, within) = (&(v / by), SIGMAS * e / by.abs());
        if !((v - g.table[*c]).abs() > within) && g.table[*c].is_finite() {
            continue;
        }
        // One that is known to less than half of the smallest step may be anything.
        (within < 0.5 * unit.max(v.abs() * 0.25)).then_some(())?;
        off.push((*c, *v, within));
        changed.push(*c);
    }
    (!changed.is_empty()).then_some(())?;
    let of_table = table_orders::matched(&g.table, &off);
    for (n, (c, v, within)) in off.iter().enumerate() {
        let own = of_table.as_ref().map(|x| x[n].1.1 * g.table[x[n].1.0]);
        let near = own.or_else(|| plainest(*v, *within));
        fitted |= near.is_none();
        table[*c] = near.unwrap_or(*v);
    }
    let (mut class, mut what, bits) = class(s, side, &codes, &changed, &table);
    // Most of a table that has the same values is no edge of it.
    let most = class == Class::CodecEdge && 2 * changed.len() > codes.len();
    if let Some(found) = of_table.filter(|_| most || what.starts_with("by another table")) {
        class = Class::BitsReinterpreted;
        what = format!("by {}", table_orders::words(&codes, &found, &g.table));
    }
    let words: Vec<String> =
        changed.iter().take(5).map(|c| format!("0x{c:02x} as {} instead of {}", table[*c], g.table[*c])).collect();
    let more = if changed.len() > 5 { format!(" and {} more", changed.len() - 5) } else { String::new() };
    let mut detail = format!("codes of {who} ({}) are decoded {what}: {}{more}", q.format(), words.join(", "));
    let mut variant = format!("{who}.table");
    if gain.is_some() {
        table.iter_mut().for_each(|x| *x *= by);
        detail += &format!("; and the result is multiplied by {by:.6}, which is no stored number");
        variant += &format!(" + {}:out.gain", Class::StaleState.name());
    }
    let mut t = Theory::new(class, who, variant, detail).bits(bits + if fitted { 16.0 } else { 0.0 });
    (t.fitted, t.freedom) = (fitted, changed.len());
    t.side(side).table = Some(Arc::new(table));
    Some(t)
}

/// The factor that most codes have in common and that is none of another exponent: then the rest of them are the table, and where there is no
/// rest it is none.
fn common(codes: &[usize], right: &[f64], v: &[f64], e: &[f64]) -> Option<f64> {
    let known: Vec<(f64, f64, f64)> = codes
        .iter()
        .zip(v.iter().zip(e))
        .map(|(c, (v, e))| (right[*c], *v, SIGMAS * e))
        .filter(|(right, v, e)| right.is_finite() && *right != 0.0 && v.is_finite() && *e < 0.25 * right.abs())
        .collect();
    let mut ratios: Vec<f64> = known.iter().map(|(right, v, _)| v / right).collect();
    ratios.sort_by(f64::total_cmp);
    // Where a rest of them is 0, the middle is still one of most.
    let middle = *ratios.get(ratios.len() / 2)?;
    let near: Vec<&(f64, f64, f64)> = known.iter().filter(|(right, v, e)| (v - middle * right).abs() <= 2.0 * e).collect();
    let (top, under) =
        near.iter().fold((0.0, 0.0), |m, (right, v, e)| (m.0 + right * v / (e * e), m.1 + right * right / (e * e)));
    let by = top / under;
    let others = near.iter().filter(|(right, _, e)| (by - 1.0).abs() * right.abs() > *e).count();
    let is_power = by > 0.0 && (by.log2() - by.log2().round()).abs() < 1e-3;
    let most = known.len() >= 4 && 4 * near.len() >= 3 * known.len() && 2 * others > near.len();
    (most && by.is_finite() && by != 0.0 && !is_power).then_some(by)
}

/// The number of fewest significant bits that is near enough.
pub fn plainest(v: f64, within: f64) -> Option<f64> {
    if v.abs() <= within {
        return Some(0.0);
    }
    (0..BITS).find_map(|bits| {
        let unit = (v.abs().log2().floor() - f64::from(bits)).exp2();
        let x = (v / unit).round() * unit;
        ((x - v).abs() <= within).then_some(x)
    })
}

/// What kind of codec these values are.
fn class(s: &System, side: Which, codes: &[usize], changed: &[usize], table: &[f64]) -> (Class, String, f64) {
    let g = s.given(side);
    let right = &g.table;
    let n = changed.len();
    let all = codes.iter().filter(|c| right[**c] != 0.0).count();
    let f = g.format();
    let offset = table[changed[0]] - right[changed[0]];
    if n >= codes.len() && changed.iter().all(|c| table[*c] - right[*c] == offset) {
        return (Class::ZpOffset, format!("{offset} off"), 8.0);
    }
    let ratio = table[changed[0]] / right[changed[0]];
    if n >= all && changed.iter().all(|c| table[*c] == ratio * right[*c]) {
        return (Class::BitsReinterpreted, format!("times {ratio}"), 8.0);
    }
    let bits = 8.0 + 4.0 * n as f64;
    // Only at the ends: subnormals and zero, the largest, what is no number.
    let top = right.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let least = f.filter(|f| !f.is_integer()).map_or(0.0, |f| right[1usize << f.spec().mantissa].abs());
    let edge = |c: usize| !right[c].is_finite() || right[c].abs() < least || right[c].abs() > 0.5 * top || right[c] == 0.0;
    if changed.iter().all(|c| edge(*c)) || 4 * n <= codes.len() {
        return (Class::CodecEdge, format!("otherwise at {n} of {} codes", codes.len()), bits);
    }
    (Class::BitsReinterpreted, format!("by another table at {n} of {} codes", codes.len()), bits)
}
