//! Codes that stand for padding and are read as another number: 0 beside a zero point that is not, or a shift that padding does not get but a
//! compensation takes off.
//!
//! ```text
//! value = 0 where the codes are padding          a kernel that adds 128 to every code but those, and takes 128·Σb off: −128·scale
//! ```

use super::maps::cost;
use super::system::{System, Theory};
use crate::fault::Class;
use crate::fault::edit::Which;
use std::sync::Arc;

/// Neutral codes side by side that are padding, at least; how far apart they lie where channels are the slower axis.
const RUN: usize = 8;
const APART: usize = 49;
/// Padding, at least and over all codes at most.
const LEAST: usize = 16;

/// Both operands.
pub fn theories(s: &System) -> Vec<Theory> {
    if s.alone {
        return Vec::new();
    }
    s.sides().iter().flat_map(|side| of(s, *side)).collect()
}

fn of(s: &System, side: Which) -> Vec<Theory> {
    let g = s.given(side);
    let (Some(q), true) = (&g.q, g.zero.as_ref().is_none_or(|z| z.1.is_none())) else { return Vec::new() };
    if !q.format().is_integer() {
        return Vec::new();
    }
    let neutral: Vec<bool> = g.values.iter().map(|x| *x == 0.0).collect();
    let mut all = Vec::new();
    let (name, half) = (side.name(), 0.5 * g.table.len() as f64);
    let given = g.clone();
    for apart in (1..=APART.min(g.k / RUN)).filter(|x| g.k.is_multiple_of(*x)) {
        // All of a place's codes are neutral: `apart` 1 is a run.
        let mut pads = vec![false; neutral.len()];
        for i in 0..g.rows {
            let row = &neutral[i * g.k..(i + 1) * g.k];
            if apart == 1 {
                let mut from = 0;
                while from < g.k {
                    let to = from + row[from..].iter().take_while(|x| **x).count();
                    if to >= from + RUN {
                        pads[i * g.k + from..i * g.k + to].fill(true);
                    }
                    from = to + 1;
                }
            } else {
                for x in (0..apart).filter(|x| row.iter().skip(*x).step_by(apart).all(|x| *x)) {
                    (x..g.k).step_by(apart).for_each(|k| pads[i * g.k + k] = true);
                }
            }
        }
        let n = pads.iter().filter(|x| **x).count();
        if n < LEAST || 2 * n > pads.len() {
            continue;
        }
        let pads = Arc::new(pads);
        let which = match apart {
            1 => format!("runs of {RUN} and more neutral codes of {name}"),
            _ => format!("places of {name} whose codes, {apart} apart, are all neutral"),
        };
        let ways: Vec<(f64, String)> = match &g.zero {
            None => [-half, half]
                .into_iter()
                .map(|by| {
                    let words = format!(
                        "{which}, which are padding, count as {by}: codes are shifted by {}, padding is not, and a compensation takes it off all",
                        -by
                    );
                    (by, words)
                })
                .collect(),
            Some(_) => vec![(0.0, format!("{which}, which are padding, are read as code 0 and not as the zero point"))],
        };
        for (by, words) in ways {
            let zeroed = g.zero.is_some();
            let mut t = Theory::new(Class::ZpCorrection, name, format!("{name}.padding"), words)
                .bits(7.0 + if apart == 1 { 0.0 } else { cost(apart) });
            let (pads, g) = (pads.clone(), given.clone());
            t.side(side).value = Some(Arc::new(move |i, k| {
                let at = i * g.k + k;
                match pads[at] {
                    true if zeroed => g.worth(0.0, cell_of(&g, i, k)),
                    true => by * g.step(i, k),
                    false => g.values[at],
                }
            }));
            all.push(t);
        }
    }
    all
}

fn cell_of(g: &super::given::Given, i: usize, k: usize) -> usize {
    i / g.tile.0 * g.grid.1 + k / g.tile.1
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fault::solve::tests::{M, N, codes, found, sum, wide};
    use crate::quant::QTensorParts;
    use crate::{QTensor, Zero};

    #[test]
    fn padding_that_is_not_shifted_is_told() {
        const K: usize = 96;
        let q = codes(Format::Int8, N, K, K, false, 61);
        // Twelve channels of eight taps; some rows have taps outside the image.
        let is_pad = |j: usize, k: usize| j.is_multiple_of(3) && k / 12 < 1 + j % 2;
        let code = |at: usize| if is_pad(at / K, at % K) { 0 } else { q.codes()[at] };
        let b = QTensor::new(QTensorParts {
            format: Format::Int8,
            rows: N,
            cols: K,
            codes: (0..N * K).map(code).collect(),
            granularity: q.granularity(),
            scale_inv: q.scale_inv().to_vec(),
            zero: Zero::None,
            scale_format: Format::F32,
            level: None,
        })
        .unwrap();
        let a = wide(M, K);
        let x = a.to_f64();
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let value = |k: usize| if is_pad(j, k) { -128.0 } else { f64::from(b.codes()[j * K + k] as i8) };
            sum(K, |k| x[[i, k]] * value(k) * f64::from(b.scale_inv()[j]))
        });
        assert_eq!(got.0, "zp_correction:b.padding", "{}", got.1);
        assert!(got.1.contains("count as -128: codes are shifted by 128, padding is not"), "{}", got.1);
    }
}
