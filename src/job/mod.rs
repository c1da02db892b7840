//! One launch: what goes into a kernel and what comes out.

pub(crate) mod accumulator;
mod bias;

pub use accumulator::{Accumulator, Inner, MmaModel, ScaleOrder};

use crate::op::grouped::check_offs;
use crate::op::{Op, Params};
use crate::quant::QTensorParts;
use crate::recipe::Recipe;
use crate::{Error, Format, QTensor, Result, Tensor};

/// One operand as the kernel reads it.
#[derive(Clone, Debug)]
pub enum Operand {
    High(Tensor),
    /// High-precision, and what the sums of each row are multiplied by last.
    Weighted(Weighted),
    Quantized(QTensor),
    /// grouped_gemm_wgrad: the columns (tokens) of each group quantized by themselves, `[rows, tokens of the group]` each.
    Groups(Vec<QTensor>),
    /// High-precision, quantized by the kernel itself.
    Dynamic(Dynamic),
}

/// Values whose sums have a factor for each row: the weight that a router gave a token.
#[derive(Clone, Debug)]
pub struct Weighted {
    x: Tensor,
    weights: Vec<f32>,
}

impl Weighted {
    /// Errors: not one weight a row; weights that are not finite.
    pub fn new(x: Tensor, weights: Vec<f32>) -> Result<Self> {
        if weights.len() != x.rows() {
            return Err(Error::shape("weights of rows", format!("[{}]", weights.len()), format!("[{}]", x.rows())));
        }
        match weights.iter().find(|w| !w.is_finite()) {
            Some(w) => Err(Error::value("weights of rows", w, "finite numbers")),
            None => Ok(Self { x, weights }),
        }
    }
    /// What is multiplied.
    pub fn x(&self) -> &Tensor {
        &self.x
    }
    /// What the sums of each row are multiplied by.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }
    /// The values by their weights: products of two f32, exact in f64.
    fn to_f64(&self) -> ndarray::Array2<f64> {
        let mut all = self.x.to_f64();
        all.rows_mut().into_iter().zip(&self.weights).for_each(|(mut row, w)| row.map_inplace(|x| *x *= f64::from(*w)));
        all
    }
    /// Other values under the same weights of these rows.
    pub(crate) fn of_rows(&self, rows: &[usize], value: impl Fn(usize, usize) -> f32) -> Result<Self> {
        let k = self.x.cols();
        let data = rows.iter().flat_map(|i| (0..k).map(|k| value(*i, k)).collect::<Vec<f32>>()).collect();
        Self::new(Tensor::new(self.x.dtype(), rows.len(), k, data)?, rows.iter().map(|i| self.weights[*i]).collect())
    }
}

/// An operand that the kernel quantizes by a recipe before it multiplies.
#[derive(Clone, Debug)]
pub struct Dynamic {
    x: Tensor,
    recipe: Recipe,
    quantized: Box<Operand>,
}

impl Dynamic {
    /// Errors: the recipe's.
    pub fn new(x: Tensor, recipe: Recipe) -> Result<Self> {
        let quantized = Box::new(Operand::Quantized(recipe.quantize(&x)?.q));
        Ok(Self { x, recipe, quantized })
    }
    /// The columns of each group by themselves: [`Operand::by_groups`], whose errors it has.
    pub fn by_groups(x: Tensor, offs: &[usize], recipe: Recipe) -> Result<Self> {
        let quantized = Box::new(Operand::by_groups(&x, offs, &recipe)?);
        Ok(Self { x, recipe, quantized })
    }
    /// What the kernel reads.
    pub fn x(&self) -> &Tensor {
        &self.x
    }
    /// What the kernel quantizes it by.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }
    /// What that must give: codes of the whole, or of each group.
    pub fn quantized(&self) -> &Operand {
        &self.quantized
    }
}

impl Operand {
    /// Quantizes the columns `offs[e−1]..offs[e]` of each group by themselves (grouped_gemm_wgrad: dYᵀ and Aᵀ, one scale a row and
    /// group). An empty group has no codes; its scales are those of zeros. Errors: `offs` that do not ascend or exceed the
    /// columns; the recipe's.
    pub fn by_groups(x: &Tensor, offs: &[usize], recipe: &Recipe) -> Result<Self> {
        let mut from = 0;
        let group = |to: &usize| {
            let columns = from..*to;
            from = *to;
            let of = |i: usize| if columns.is_empty() { vec![0.0] } else { x.row(i)[columns.clone()].to_vec() };
            let group = Tensor::new(x.dtype(), x.rows(), columns.len().max(1), (0..x.rows()).flat_map(of).collect())?;
            let q = recipe.quantize(&group)?.q;
            match columns.is_empty() {
                true => QTensor::new(QTensorParts { cols: 0, codes: Vec::new(), ..q.into_parts() }),
                false => Ok(q),
            }
        };
        check_offs(Some(offs), x.cols())?.iter().map(group).collect::<Result<_>>().map(Operand::Groups)
    }
    /// The operand as it is multiplied: a dynamic one quantized.
    pub fn given(&self) -> &Operand {
        match self {
            Operand::Dynamic(d) => d.quantized(),
            other => other,
        }
    }
    pub fn rows(&self) -> usize {
        match self {
            Operand::High(t) => t.rows(),
            Operand::Weighted(w) => w.x.rows(),
            Operand::Quantized(q) => q.rows(),
            Operand::Groups(groups) => groups.first().map_or(0, QTensor::rows),
            Operand::Dynamic(d) => d.x.rows(),
        }
    }
    pub fn cols(&self) -> usize {
        match self {
            Operand::High(t) => t.cols(),
            Operand::Weighted(w) => w.x.cols(),
            Operand::Quantized(q) => q.cols(),
            Operand::Groups(groups) => groups.iter().map(QTensor::cols).sum(),
            Operand::Dynamic(d) => d.x.cols(),
        }
    }
    /// The values that are multiplied, in f64.
    pub fn to_f64(&self) -> ndarray::Array2<f64> {
        match self {
            Operand::High(t) => t.to_f64(),
            Operand::Weighted(w) => w.to_f64(),
            Operand::Quantized(q) => q.dequantize_fast(),
            Operand::Groups(groups) => {
                let mut all = ndarray::Array2::zeros((self.rows(), self.cols()));
                let mut from = 0;
                for q in groups {
                    all.slice_mut(ndarray::s![.., from..from + q.cols()]).assign(&q.dequantize_fast());
                    from += q.cols();
                }
                all
            }
            Operand::Dynamic(d) => d.quantized.to_f64(),
        }
    }
}

/// The operands of an op by their role, in the order of [`crate::op::OpSpec::operands`].
#[derive(Clone, Debug)]
pub struct Operands {
    /// One tensor a role; multi_cast_transpose has several of its one.
    pub by_role: Vec<Vec<Operand>>,
    /// `[1,N]`; of a grouped product `[E,N]`, a row for each expert. See [`crate::op::Biases`].
    pub bias: Option<Tensor>,
    /// What each row of a product with a bias is multiplied by last. The sums have it in operand a already.
    pub row_weights: Option<Vec<f32>>,
    pub gamma: Option<Tensor>,
    pub beta: Option<Tensor>,
    pub offs: Option<Vec<usize>>,
}

/// What the kernel has to write.
#[derive(Clone, Debug)]
pub enum OutSpec {
    /// A high-precision result.
    High(Format),
    /// FP8 with one scale per tensor, given (delayed scaling): `q = Q(v · scale)`, amax and scale_inv written. One scale for
    /// each of [`Operands::tensors`]. `None` is the null pointer: 1.
    Scaled { format: Format, scale: Vec<Option<f32>> },
    /// The kernel chooses the scales itself by this recipe (current, block, MX, NVFP4, int8 per token, …).
    Recipe(Recipe),
}

/// One launch.
#[derive(Clone, Debug)]
pub struct Job {
    pub op: Op,
    pub params: Params,
    pub operands: Operands,
    pub out: OutSpec,
    /// Products only.
    pub accumulator: Option<Accumulator>,
}

/// A result matrix.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    High(Tensor),
    Quantized(QTensor),
}

impl Data {
    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Data::High(t) => (t.rows(), t.cols()),
            Data::Quantized(q) => (q.rows(), q.cols()),
        }
    }
}

/// One output tensor with what the kernel writes beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub d: Data,
    /// The transposed copy (cast_transpose family): same codes, same scale_inv.
    pub transpose: Option<QTensor>,
    pub amax: Option<f32>,
}

/// Everything a kernel wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// One part for each of [`Operands::tensors`].
    pub parts: Vec<Part>,
    pub dbias: Option<Tensor>,
    /// Norms: f32 row means and reciprocal standard deviations.
    pub mean: Option<Vec<f32>>,
    pub rsigma: Option<Vec<f32>>,
}

impl Part {
    /// A result with nothing beside it.
    pub fn plain(d: Data) -> Self {
        Self { d, transpose: None, amax: None }
    }
}

impl Output {
    /// One part and nothing beside it.
    pub fn of(part: Part) -> Self {
        Self { parts: vec![part], dbias: None, mean: None, rsigma: None }
    }
}

impl Operands {
    /// Operand a, and b of an op that has one.
    pub fn of(a: Operand, b: Option<Operand>) -> Self {
        Self::several(vec![a], b)
    }
    /// Several tensors of the first role, as multi_cast_transpose takes them, and b of an op that has one.
    pub fn several(a: Vec<Operand>, b: Option<Operand>) -> Self {
        let by_role = std::iter::once(a).chain(b.map(|b| vec![b])).collect();
        Self { by_role, bias: None, row_weights: None, gamma: None, beta: None, offs: None }
    }
    /// The operand of a role; the first of several tensors.
    pub fn get(&self, role: usize) -> Option<&Operand> {
        self.by_role.get(role)?.first()
    }
    pub fn get_mut(&mut self, role: usize) -> Option<&mut Operand> {
        self.by_role.get_mut(role)?.first_mut()
    }
    /// The operand of the first role. Panics when there is none, which no checked job has.
    pub fn a(&self) -> &Operand {
        self.get(0).expect("an op has an operand")
    }
    /// The operand of the second role, of an op that has one.
    pub fn b(&self) -> Option<&Operand> {
        self.get(1)
    }
    /// All tensors of the first role.
    pub fn tensors(&self) -> &[Operand] {
        self.by_role.first().map_or(&[], Vec::as_slice)
    }
    /// Every tensor of every role, in their order.
    pub fn all(&self) -> impl Iterator<Item = &Operand> {
        self.by_role.iter().flatten()
    }
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Operand> {
        self.by_role.iter_mut().flatten()
    }
    /// Another operand in a role. Panics when the roles before it have none.
    pub fn set(&mut self, role: usize, operand: Operand) {
        self.set_tensors(role, vec![operand]);
    }
    /// Other tensors in a role; none takes the role away. Panics when the roles before it have none.
    pub fn set_tensors(&mut self, role: usize, tensors: Vec<Operand>) {
        assert!(role <= self.by_role.len(), "role {role} after {} roles", self.by_role.len());
        match role == self.by_role.len() {
            true => self.by_role.push(tensors),
            false => self.by_role[role] = tensors,
        }
    }
}
