//! The operands of a bundle against the recipe it names.

use super::Bundle;
use super::assay::given_scales;
use super::operand::{BundleOperand, Codes};
use crate::assay::Built;
use crate::assay::evidence;
use crate::fault::DIAGNOSIS;
use crate::fault::{self, Diagnosis};
use crate::job::{Data, Job, Operand, Operands, OutSpec, Output, Part};
use crate::kernel::{Backend, cpu, find};
use crate::op::{Defined, Op, Params};
use crate::quant::{Affine, Level, QTensorParts};
use crate::recipe::{Recipe, check};
use crate::{Format, Granularity, QTensor, Result, Tensor, Zero};

/// An operand that is not what its recipe makes.
pub struct Wrong {
    /// `a` or `b`.
    pub operand: &'static str,
    pub text: String,
    recipe: Recipe,
    x: Tensor,
    q: QTensor,
}

/// What is wrong with the codes, scales and zero points of the operands: one entry for each kind of finding. Operands whose unquantized
/// values are not in the bundle cannot be checked.
pub fn operands(bundle: &Bundle) -> Result<Vec<Wrong>> {
    let Some((a, b)) = &bundle.meta.recipe else { return Ok(Vec::new()) };
    if !bundle.meta.op.is_product() && bundle.meta.op != Op::Dequantize {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (operand, side, recipe) in [("a", &bundle.a, a), ("b", &bundle.b, b)] {
        let Some(recipe) = recipe else { continue };
        let offs = bundle.offs.as_deref().unwrap_or_default();
        let experts = (operand == "b" && bundle.meta.op == Op::GroupedGemm).then_some(bundle.meta.b.granularity);
        for (place, x, q) in pieces(side, offs, experts)? {
            for finding in one(recipe, &x, &q)? {
                let text = format!("{operand}{place} is not {recipe}: {finding}");
                found.push(Wrong { operand, text, recipe: recipe.clone(), x: x.clone(), q: q.clone() });
            }
        }
    }
    Ok(found)
}

/// A recipe whose text leaves its format or its group open has those of the codes that are stored, where it can.
pub(super) fn as_stored(text: &str, recipe: &mut Option<Recipe>, q: Option<&QTensor>) {
    let (Some(recipe), Some(q)) = (recipe, q) else { return };
    let Ok(spec) = recipe.spec() else { return };
    let mut parts = text.split(':').skip(1);
    if !parts.clone().any(|p| p.parse::<Format>().is_ok()) && spec.formats.contains(&q.format()) {
        recipe.format = q.format();
    }
    if spec.free_group() && !parts.any(|p| p.starts_with('g')) {
        match q.granularity() {
            Granularity::Group(g) => recipe.group = Some(g),
            Granularity::Row => recipe.group = None,
            _ => {}
        }
    }
}

/// What explains an operand that is wrong, as the result of a cast by its recipe.
pub fn diagnose(wrong: &Wrong) -> Result<Option<Diagnosis>> {
    let Wrong { operand, recipe, x, q, .. } = wrong;
    let operands = Operands::of(Operand::High(x.clone()), None);
    let out = OutSpec::Recipe(recipe.clone());
    let job = Job { op: Op::Cast, params: Params::default(), operands, out, accumulator: None };
    let output = Output::of(Part::plain(Data::Quantized(about(q, middle(recipe))?)));
    let exact = vec![Defined::plain(x.to_f64())];
    let built = Built::of(job, exact);
    let built = Built { exact: built.ideal.clone(), ..built };
    // Another granularity than the recipe's cannot be compared element by element.
    let Ok(model) = find(cpu::KERNELS, &built.job, Backend::Cpu)?.run(&built.job) else { return Ok(None) };
    let Ok(judged) = evidence::judge(&built, Backend::External, &output, Some(&model)) else { return Ok(None) };
    let evidence =
        fault::Evidence { model: Some(&model), ..fault::Evidence::new(&built.job, &output, Backend::External, &judged) };
    let mut found = fault::diagnose(evidence, DIAGNOSIS)?;
    for finding in found.iter_mut().flat_map(|d| &mut d.findings) {
        finding.operand = operand;
    }
    Ok(found)
}

/// Findings of one tensor.
fn one(recipe: &Recipe, x: &Tensor, q: &QTensor) -> Result<Vec<String>> {
    if recipe.spec()?.history {
        // Its scale comes from earlier steps: the codes must be those of the scale that is there.
        let judged = given_scales(x, q, None, None)?.comparison;
        return Ok(if judged.judged.violations > 0 { vec![judged.reason] } else { Vec::new() });
    }
    let expected = recipe.quantize(x)?.q;
    let q = &about(q, middle(recipe))?;
    if expected == *q {
        return Ok(Vec::new());
    }
    // The second formulation says where and what, and knows what a source leaves open.
    Ok(check::verify(recipe, x, q).iter().map(ToString::to_string).collect())
}

/// The tensors that were quantized by themselves: all, each expert, the columns of each group.
fn pieces(side: &BundleOperand, offs: &[usize], experts: Option<Granularity>) -> Result<Vec<(String, Tensor, QTensor)>> {
    match (&side.high, &side.codes) {
        (Some(x), Some(Codes::Whole(q))) if experts.is_some() => {
            let granularity = experts.unwrap_or(Granularity::Tensor);
            let n = x.rows() / offs.len();
            let expert = |e: usize| Ok((format!("[{e}]"), x.rows_range(e * n, (e + 1) * n), rows(q, e * n, n, granularity)?));
            (0..offs.len()).map(expert).collect()
        }
        (Some(x), Some(Codes::Whole(q))) => Ok(vec![(String::new(), x.clone(), q.clone())]),
        (Some(x), Some(Codes::Groups(groups))) => {
            let starts = std::iter::once(0).chain(offs.iter().copied());
            let group = |(e, (from, q)): (usize, (usize, &QTensor))| {
                let data = (0..x.rows()).flat_map(|i| &x.row(i)[from..from + q.cols()]).copied().collect();
                Ok((format!("[group {e}]"), Tensor::new(x.dtype(), x.rows(), q.cols(), data)?, q.clone()))
            };
            // An empty group has nothing that was quantized.
            starts.zip(groups).enumerate().filter(|(_, (_, q))| q.cols() > 0).map(group).collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// Rows `from..from + n` of a tensor whose tiles do not reach over them, with the granularity that they have by themselves.
fn rows(q: &QTensor, from: usize, n: usize, granularity: Granularity) -> Result<QTensor> {
    let (tile_rows, _) = q.granularity().tile(q.rows(), q.cols());
    let (_, grid_cols) = q.granularity().grid(q.rows(), q.cols());
    // A tile of its own may be stored as several that are alike: the first of them.
    let firsts = (from..from + n).step_by(granularity.tile(n, q.cols()).0.max(1)).map(|row| row / tile_rows * grid_cols);
    let tiles: Vec<usize> = firsts.flat_map(|first| first..first + grid_cols).collect();
    let pick = |s: &[f32]| tiles.iter().map(|t| s[*t]).collect();
    QTensor::new(QTensorParts {
        rows: n,
        codes: q.codes()[from * q.cols()..(from + n) * q.cols()].to_vec(),
        granularity,
        scale_inv: pick(q.scale_inv()),
        zero: match q.zero() {
            Zero::None => Zero::None,
            Zero::Integer(z) => Zero::Integer(tiles.iter().map(|t| z[*t]).collect()),
            Zero::Additive { zero, mid } => Zero::Additive { zero: pick(zero), mid: *mid },
        },
        ..q.clone().into_parts()
    })
}

/// The code about which a recipe has its additive zero points.
pub fn middle(recipe: &Recipe) -> i32 {
    recipe.spec().map_or(0, |s| s.mid)
}

/// Additive zero points about code `mid`: a bundle has them about 0. `code·s + z` is `(code − mid)·s + (z + mid·s)`.
pub fn about(q: &QTensor, mid: i32) -> Result<QTensor> {
    match q.zero() {
        Zero::Additive { zero, mid: 0 } if mid != 0 => {
            let moved = |a: Affine| (a.plus + f64::from(mid) * a.unit) as f32;
            let zero = (0..zero.len()).map(|s| moved(q.affine(s))).collect();
            let level = q.level().map(|l| Level { zero: None, ..l.clone() });
            QTensor::new(QTensorParts { zero: Zero::Additive { zero, mid }, level, ..q.clone().into_parts() })
        }
        _ => Ok(q.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An expert has the codes, scales and zero points that stand in its rows, whatever the grid of the whole.
    #[test]
    fn the_rows_of_an_expert_are_quantized_as_in_the_whole() {
        let data = (0..12 * 64).map(|at| ((at * 37 % 101) as f32 - 40.0) * (1 + at / 64) as f32).collect();
        let x = Tensor::new(crate::Format::F32, 12, 64, data).unwrap();
        for recipe in ["te_mxfp8", "float8_rowwise", "affine_asym:int8:g32", "affine_asym:int4:g32"] {
            let q = recipe.parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
            for e in 0..3 {
                let expert = rows(&q, 4 * e, 4, q.granularity()).unwrap();
                assert_eq!(
                    expert.dequantize(),
                    q.dequantize().slice(ndarray::s![4 * e..4 * e + 4, ..]),
                    "{recipe}, expert {e}"
                );
            }
        }
    }

    /// Blocks of several rows: the block rows of an expert follow those of the experts before it.
    #[test]
    fn an_expert_of_several_rows_of_blocks_has_its_own_blocks() {
        let (experts, n, cols) = (3, 4, 6);
        let granularity = Granularity::Block { rows: 2, cols: 3 };
        let q = QTensor::new(QTensorParts {
            format: crate::Format::Int8,
            rows: experts * n,
            cols,
            codes: (1..=(experts * n * cols) as u8).collect(),
            granularity,
            scale_inv: (0..12).map(|s| 1.0 + s as f32 / 8.0).collect(),
            zero: Zero::Integer((0..12).collect()),
            scale_format: crate::Format::F32,
            level: None,
        })
        .unwrap();
        for e in 0..experts {
            let own = rows(&q, e * n, n, granularity).unwrap();
            for (i, j) in (0..n).flat_map(|i| (0..cols).map(move |j| (i, j))) {
                let row = e * n + i;
                let block = row / 2 * 2 + j / 3;
                let value = (1.0 + block as f64 / 8.0) * ((1 + row * cols + j) as f64 - block as f64);
                assert_eq!(own.value(i, j), value, "expert {e}, ({i}, {j})");
            }
        }
    }
}
