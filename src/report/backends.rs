//! CPU model against GPU against vendor: which backends returned the same bits for the same case.

use super::figures::csv;
use super::{Figure, plot, slim};
use crate::assay::row::Row;
use crate::kernel::Backend;
use std::collections::{BTreeMap, HashMap};

/// Whether two backends' outputs are the same bits; a library that splits K adds in another order.
const PARTS: [&str; 3] = ["the same bits", "other bits, K split", "other bits"];

/// The pairs that are compared.
const PAIRS: [(Backend, Backend); 3] =
    [(Backend::Cpu, Backend::Cuda), (Backend::Cpu, Backend::Vendor), (Backend::Cuda, Backend::Vendor)];

fn pair((one, other): (Backend, Backend)) -> String {
    format!("{} = {}", one.name(), other.name())
}

/// What a case multiplies or writes, as far as kernels differ.
fn work(row: &Row) -> String {
    let (a, b) = (&row.recipe_a, &row.recipe_b);
    let recipe = if b.is_empty() || b == a { String::new() } else { format!(" · {b}") };
    let accumulator = row.accumulator.map_or_else(String::new, |a| format!(", {a}"));
    let a = if a.is_empty() { row.dtype.map_or("", |f| f.name()) } else { a };
    format!("{} {a}{recipe}{accumulator}", row.op.name())
}

/// Drawn where rows of more than one backend hold the same case.
pub fn figure(rows: &[&Row]) -> Option<Figure> {
    let mut cases: BTreeMap<&str, HashMap<Backend, &Row>> = BTreeMap::new();
    for row in rows {
        cases.entry(&row.case).or_default().insert(row.backend, row);
    }
    let split = |r: &Row| r.algorithm.split(' ').any(|w| w.strip_prefix("split_k=").is_some_and(|n| n != "1" && n != "0"));
    let mut counts: BTreeMap<(String, String), [f64; 3]> = BTreeMap::new();
    for by in cases.values() {
        for (one, other) in PAIRS {
            if let (Some(a), Some(b)) = (by.get(&one), by.get(&other)) {
                let pair = counts.entry((pair((one, other)), work(a))).or_default();
                let part = match a.sha256 == b.sha256 {
                    true => 0,
                    false if split(a) || split(b) => 1,
                    false => 2,
                };
                pair[part] += 1.0;
            }
        }
    }
    let sum = |i: usize| counts.values().map(|c| c[i]).sum::<f64>();
    let total = |c: &[f64; 3]| c.iter().sum::<f64>();
    let labels: Vec<String> = counts.iter().map(|((pair, work), c)| format!("{pair}: {work} ({})", total(c))).collect();
    let values: Vec<Vec<f64>> = counts.values().map(|c| c.to_vec()).collect();
    let by_pair = PAIRS.into_iter().map(pair).filter_map(|name| {
        let of = || counts.iter().filter(|((pair, _), _)| *pair == name).map(|(_, c)| c);
        let all: f64 = of().map(total).sum();
        (all > 0.0).then(|| format!("{name} in {} of {all} cases", of().map(|c| c[0]).sum::<f64>()))
    });
    let by_pair: Vec<String> = by_pair.collect();
    (!labels.is_empty()).then(|| Figure {
        id: "backends",
        slim: Some(slim::shares(&labels, &PARTS, &values, "share of cases")),
        title: "CPU model against GPU against vendor",
        see: format!(
            "Cases that more than one backend ran on the same operands, by whether the digests of their outputs agree: {}. cpu is the \
             device model of the case's accumulator; the vendor's library may split K or promote otherwise than that accumulator \
             (column algorithm), and then other bits are right: its own rows say whether the model of its algorithm agrees. {} comparisons \
             differ where the library split K, {} where it did not. The number after each name counts its cases.",
            by_pair.join(", "),
            sum(1),
            sum(2)
        ),
        charts: vec![(String::new(), plot::shares(&labels, &PARTS, &values, "share of cases"))],
        data: csv(
            ["pair", "work", "same_bits", "other_bits_split", "other_bits"],
            counts.iter().map(|((pair, work), c)| [pair.clone(), work.clone(), c[0].to_string(), c[1].to_string(), c[2].to_string()]),
        ),
    })
}
