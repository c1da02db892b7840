//! The product of a table's axes. A name that does not exist is an error with its line; a combination that cannot be run is
//! kept as a case with the reason, so that it is listed as skipped and never dropped.

use super::case::{Case, OperandRecipe, OutKind, ZeroMode};
use super::file::{CaseTable, SweepFile, TomlText};
use crate::input::Source;
use crate::op::{Act, Op};
use crate::{Error, Format, Result};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// `A+B`, or one for both. A `+` inside a real tensor's name is not possible: tensor names have none.
fn pair<T: Clone>(s: &str, parse: impl Fn(&str) -> Result<T>) -> Result<(T, T)> {
    match s.split_once('+') {
        Some((a, b)) => Ok((parse(a)?, parse(b)?)),
        None => parse(s).map(|x| (x.clone(), x)),
    }
}

/// Cases of the largest sweep that is accepted: 4 GB of them.
const MOST_CASES: usize = 1 << 24;
/// Multiply-adds (elements where there is no K) of the largest case that is accepted.
const MOST_OPERATIONS: usize = 1 << 44;
/// Elements of the largest matrix that is accepted: in f64, with what a case holds of it, what a large machine has.
const MOST_ELEMENTS: usize = 1 << 31;

/// 128 bits of the SHA-256 of a name.
fn fingerprint(name: &str) -> u128 {
    let digest = <sha2::Sha256 as sha2::Digest>::digest(name.as_bytes());
    u128::from_le_bytes(digest[..16].try_into().expect("sixteen bytes"))
}

/// `MxNxK`, `MxN` or `NxK` for `op`, as (m, n, k).
fn shape(op: Op, s: &str) -> Result<(usize, usize, usize)> {
    let want = match op {
        Op::Gemm => "MxNxK",
        op if op.is_grouped() => "NxK",
        _ => "MxN",
    };
    let bad = || Error::value(format!("shape of {}", op.name()), s, format!("{want} with whole numbers"));
    let sizes: Vec<usize> = s.split('x').map(|n| n.parse().map_err(|_| bad())).collect::<Result<_>>()?;
    if op.is_product() && sizes.contains(&0) {
        let want = "sizes of at least 1; a result of nothing is judged from a bundle, or by qassay.assert_gemm and its like";
        return Err(Error::value(format!("shape of {}", op.name()), s, want));
    }
    // What no machine holds, before anything is multiplied by it.
    if sizes.iter().try_fold(1usize, |product, n| product.checked_mul((*n).max(1))).is_none_or(|n| n > MOST_OPERATIONS) {
        let most = format!("{want} whose product is at most 2^44");
        return Err(Error::value(format!("shape of {}", op.name()), s, most));
    }
    if let Some(pair) = sizes
        .windows(2)
        .chain([&[sizes[0], sizes[sizes.len() - 1]][..]])
        .find(|p| p.iter().product::<usize>() > MOST_ELEMENTS && sizes.len() > 1)
    {
        let found = format!("{s}, a matrix of {}x{}", pair[0], pair[1]);
        return Err(Error::value(format!("shape of {}", op.name()), found, "matrices of at most 2^31 elements"));
    }
    match (want, sizes.as_slice()) {
        ("MxNxK", [m, n, k]) => Ok((*m, *n, *k)),
        ("NxK", [n, k]) => Ok((0, *n, *k)),
        ("MxN", [m, n]) => Ok((*m, *n, 0)),
        _ => Err(bad()),
    }
}

fn row_list(s: &str) -> Result<Vec<usize>> {
    let bad = || Error::value("rows", s, "row counts separated by commas, such as 16,0,33");
    s.split(',').map(|n| n.trim().parse().map_err(|_| bad())).collect()
}

/// All cases of a file, in the order of its tables and lists; `seed` is added to each case's draw number.
pub fn expand(path: &Path, text: &str, file: &SweepFile, seed: u64) -> Result<Vec<Case>> {
    let place = TomlText { path, text };
    let mut cases = Vec::new();
    for table in &file.cases {
        let bad = |what: String| Err(Error::BadLine { path: path.to_path_buf(), line: table.line(text), what });
        if table.op.is_empty() || table.shape.is_empty() || table.seeds == 0 {
            return bad(format!(
                "table `{}` has no case; give `op` and `shape` at least one value each, and `seeds` at least 1",
                table.name.get_ref()
            ));
        }
        if let Some(offset) = table.offset.iter().find(|o| !o.is_finite()) {
            return bad(format!("offset of table `{}`: found {offset}, expected finite numbers", table.name.get_ref()));
        }
        for op in place.axis("op", &table.op, &[], Op::from_str)? {
            table_cases(&place, table, op, seed, &mut cases)?;
        }
    }
    // Digests of the names: a million names would take more memory than their cases.
    let mut seen = std::collections::HashMap::new();
    for (i, case) in cases.iter().enumerate() {
        if let Some(first) = seen.insert(fingerprint(&case.id()), i as u32).map(|first| &cases[first as usize]) {
            let what = format!("tables `{}` and `{}` both hold the case {}; remove one", first.family, case.family, case.id());
            return Err(Error::BadLine { path: path.to_path_buf(), line: 1, what });
        }
    }
    Ok(cases)
}

fn table_cases(place: &TomlText, t: &CaseTable, op: Op, seed: u64, cases: &mut Vec<Case>) -> Result<()> {
    let acts = match op.spec().act {
        true => place.axis("act", &t.act, &["gelu", "silu", "relu", "qgelu", "srelu"], |s| Act::from_str(s).map(Some))?,
        false => vec![None],
    };
    let shapes = place.axis("shape", &t.shape, &[], |s| shape(op, s))?;
    let rows = match op.is_grouped() || op == Op::MultiCastTranspose {
        true => place.axis("rows", &t.rows, &["16,48,32"], row_list)?,
        false => vec![Vec::new()],
    };
    let recipes = match op.reads_codes() {
        true => place.axis("recipe", &t.recipe, &["te_current"], |s| pair(s, OperandRecipe::from_str))?,
        false => vec![(OperandRecipe::None, OperandRecipe::None)],
    };
    let dtypes = place.axis("dtype", &t.dtype, &["bf16"], |s| match s.parse::<Format>()? {
        f if f.is_high() => Ok(f),
        f => Err(Error::value("dtype", f, "f16, bf16 or f32")),
    })?;
    let dists = place.axis("dist", &t.dist, &["normal"], |s| pair(s, Source::from_str))?;
    let outs = place.axis("out", &t.out, &["bf16"], OutKind::from_str)?;
    let accumulators = match op.is_product() {
        true => place.axis("accumulator", &t.accumulator, &["f32_sequential"], |s| s.parse().map(Some))?,
        false => vec![None],
    };
    let zeros = place.axis("zero", &t.zero, &["recipe"], |s| match s {
        "recipe" => Ok(ZeroMode::Recipe),
        "additive" => Ok(ZeroMode::Additive),
        _ => Err(Error::value("zero", s, "recipe or additive")),
    })?;
    let rows: Vec<Arc<[usize]>> = rows.into_iter().map(Arc::from).collect();
    let recipes: Vec<_> = recipes.into_iter().map(|(a, b)| (Arc::new(a), Arc::new(b))).collect();
    let dists: Vec<_> = dists.into_iter().map(|(a, b)| (Arc::new(a), Arc::new(b))).collect();
    let outs: Vec<_> = outs.into_iter().map(Arc::new).collect();
    let (name, family): (Arc<str>, Arc<str>) = ("".into(), t.name.get_ref().as_str().into());
    let or = |v: &Vec<bool>| if v.is_empty() { vec![false] } else { v.clone() };
    let offsets = if t.offset.is_empty() { vec![0.0] } else { t.offset.clone() };
    let (biases, gammas) = (or(&t.bias), or(&t.zero_centered_gamma));
    let axes = [acts.len(), shapes.len(), rows.len(), recipes.len(), accumulators.len(), dists.len(), dtypes.len(), outs.len()];
    let more = [offsets.len(), biases.len(), zeros.len(), gammas.len(), usize::try_from(t.seeds).unwrap_or(usize::MAX)];
    let count = axes.into_iter().chain(more).fold(1usize, usize::saturating_mul);
    if count > MOST_CASES - cases.len() {
        let found = if count == usize::MAX { "more cases than can be counted".into() } else { format!("{count} cases") };
        let what = format!("table `{}`: found {found}, expected at most {MOST_CASES} in a sweep; split it", t.name.get_ref());
        return Err(place.bad(t.line(place.text), what));
    }
    let what = itertools::iproduct!(&acts, &shapes, &rows, &recipes, &accumulators);
    let data = itertools::iproduct!(&dists, &dtypes, &outs, &offsets, &biases, &zeros, &gammas, 0..t.seeds);
    for ((act, shape, rows, recipe, accumulator), (dist, dtype, out, offset, bias, zero, gamma, draw)) in
        itertools::iproduct!(what, data)
    {
        let mut case = Case {
            index: 0,
            sweep: name.clone(),
            family: family.clone(),
            op,
            act: *act,
            m: shape.0,
            n: shape.1,
            k: shape.2,
            rows: rows.clone(),
            a: recipe.0.clone(),
            b: recipe.1.clone(),
            dtype: *dtype,
            dist_a: dist.0.clone(),
            dist_b: dist.1.clone(),
            offset: *offset,
            bias: *bias,
            out: out.clone(),
            accumulator: *accumulator,
            zero: *zero,
            zero_centered_gamma: *gamma,
            seed: seed + draw,
            edge: t.edge,
            skip: None,
        };
        case.skip = impossible(&case).map(Arc::from);
        cases.push(case);
    }
    Ok(())
}

/// Why the combination cannot be run by any kernel, if so.
fn impossible(c: &Case) -> Option<String> {
    if c.bias && !c.op.is_product() {
        return Some(format!("{} has no bias", c.op.name()));
    }
    if c.zero_centered_gamma && !c.op.is_norm() {
        return Some(format!("{} has no gamma", c.op.name()));
    }
    if c.bias && c.op != Op::Gemm {
        return Some("grouped products have no bias upstream".into());
    }
    if c.op.is_product() && matches!(*c.out, OutKind::Recipe(_)) {
        return Some("a product writes a high-precision or a scaled result; quantize it with a cast".into());
    }
    if c.op == Op::Dequantize && !matches!(*c.out, OutKind::High(_)) {
        return Some("dequantize writes a high-precision result".into());
    }
    None
}
