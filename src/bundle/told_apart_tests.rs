//! Slips of casts, dequantizations, activations and norms that are told from what only looks like them: exponents that are rounded up, an amax of one
//! sign, a multiplier that is a whole number, lanes and rows that an amax misses, a second slip of the transposed copy.

use super::Writer;
use super::named_tests::{is_named, values};
use crate::format::pack::NibbleOrder;
use crate::quant::{QTensorParts, Zero};
use crate::recipe::Recipe;
use crate::{Format, Granularity, Overflow, QTensor, Rounding, Tensor};

const ROWS: usize = 48;
const COLS: usize = 128;

fn code(f: Format, y: f64) -> u8 {
    f.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
}

/// A cast of these values with these codes and scales, by a recipe or none.
fn cast(recipe: &str, x: &Tensor, q: &QTensor) -> Writer {
    let packing = (q.format().bits() == 4).then_some(NibbleOrder::LowFirst);
    let mut w = Writer::new("cast");
    w.values("a", &[x.rows(), x.cols()], x).codes("out", q, None, packing).unwrap();
    if !recipe.is_empty() {
        w.meta("recipe", recipe);
    }
    w
}

/// `right` with scales that see other elements of their groups, and the codes of these.
fn chosen(recipe: &str, x: &Tensor, sees: &dyn Fn(usize, usize) -> bool) -> QTensor {
    let seen = |at: usize| if sees(at / x.cols(), at % x.cols()) { x.data()[at] } else { 0.0 };
    let part = Tensor::new(x.dtype(), x.rows(), x.cols(), (0..x.data().len()).map(seen).collect()).unwrap();
    let mut p = recipe.parse::<Recipe>().unwrap().quantize(&part).unwrap().q.into_parts();
    let q = QTensor::new(p.clone()).unwrap();
    for at in 0..p.codes.len() {
        let unit = q.affine(q.scale_index(at / x.cols(), at % x.cols())).unit;
        p.codes[at] = code(q.format(), f64::from(x.data()[at]) / unit);
    }
    QTensor::new(p).unwrap()
}

/// The exponent of the largest is rounded up, where the rule cuts it. A few saturate that should not: no factor of the result.
#[test]
fn an_exponent_that_is_rounded_up_is_no_gain_of_the_result() {
    let mut x = values(Format::Bf16, ROWS, COLS, 611);
    let mut data = x.data().to_vec();
    // The largest of one group is a power of two.
    data[0..32].fill(0.25);
    data[7] = 8.0;
    x = Tensor::new(Format::Bf16, ROWS, COLS, data).unwrap();
    let mut p = "mx_floor:e5m2".parse::<Recipe>().unwrap().quantize(&x).unwrap().q.into_parts();
    let amax = |g: usize| x.data()[g * 32..(g + 1) * 32].iter().fold(0f32, |m, v| m.max(v.abs()));
    (0..p.scale_inv.len()).filter(|g| amax(*g).log2().fract() != 0.0).for_each(|g| p.scale_inv[g] *= 2.0);
    let scales = p.scale_inv.clone();
    p.codes = (0..ROWS * COLS).map(|at| code(Format::E5m2, f64::from(x.data()[at] / scales[at / 32]))).collect();
    let w = cast("mx_floor:e5m2", &x, &QTensor::new(p).unwrap());
    is_named(&w, "range_rule:out.exponent", &["that of amax, rounded up", "of 192 scale_inv"]);
}

/// int8 by rows without a recipe.
fn by_rows(x: &Tensor, amax: &dyn Fn(&[f32]) -> f32, y: &dyn Fn(f32, f32) -> f64) -> QTensor {
    let scale_inv: Vec<f32> = (0..ROWS).map(|i| amax(x.row(i)) / 127.0).collect();
    QTensor::new(QTensorParts {
        format: Format::Int8,
        rows: ROWS,
        cols: COLS,
        codes: (0..ROWS * COLS).map(|at| code(Format::Int8, y(x.data()[at], scale_inv[at / COLS]))).collect(),
        granularity: Granularity::Row,
        scale_format: Format::F32,
        scale_inv,
        zero: Zero::None,
        level: None,
    })
    .unwrap()
}

#[test]
fn an_amax_of_the_largest_value_is_named_where_all_codes_are_within_their_bounds() {
    let x = values(Format::F32, ROWS, COLS, 612);
    let q = by_rows(&x, &|row| row.iter().copied().fold(0.0, f32::max), &|x, s| f64::from(x / s).max(-127.0));
    is_named(&cast("", &x, &q), "amax_scope:out.signed", &["amax is the largest value, not the largest magnitude"]);
}

/// One factor for each row makes its codes larger or smaller: of no earlier tensor.
#[test]
fn a_multiplier_that_is_a_whole_number_is_named() {
    let x = values(Format::F32, ROWS, COLS, 613);
    let most = |row: &[f32]| row.iter().fold(0f32, |m, v| m.max(v.abs()));
    let q = by_rows(&x, &most, &|x, s| f64::from(x) * f64::from(1.0 / s).round_ties_even());
    is_named(&cast("", &x, &q), "scale_rerounded:out.multiplier_whole", &["rounded to a whole number"]);
    let q = by_rows(&x, &most, &|x, s| f64::from(x) * f64::from(1.0 / s).trunc());
    is_named(&cast("", &x, &q), "scale_rerounded:out.multiplier_whole", &["cut to a whole number"]);
}

#[test]
fn lanes_that_an_amax_misses_are_named_in_all_rows_and_in_some() {
    // A few large ones in each group, so that the next largest has another exponent.
    let x = values(Format::Bf16, ROWS, COLS, 614);
    let x = Tensor::rounded(Format::Bf16, ROWS, COLS, x.data().iter().map(|v| v * v.powi(8)).collect()).unwrap();
    let q = chosen("mx_floor:e4m3", &x, &|_, j| j % 4 != 3);
    is_named(&cast("mx_floor:e4m3", &x, &q), "amax_scope:out.amax_over", &["does not see element 3 of each 4 of a block"]);
    let q = chosen("mx_floor:e4m3", &x, &|i, j| i % 4 != 3 || j % 32 < 16);
    let words = ["over the first 16 of the 32 elements of a block alone", "in rows 3, 7, … of blocks, one of every 4"];
    is_named(&cast("mx_floor:e4m3", &x, &q), "amax_scope:out.amax_over", &words);
}

/// The last columns are not scaled; and rows 32 … of the copy are those 16 before.
#[test]
fn a_second_slip_of_the_transposed_copy_is_told() {
    let x = values(Format::Bf16, ROWS, COLS, 615);
    let right = "te_current".parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
    let mut p = right.clone().into_parts();
    (0..ROWS * COLS).filter(|at| at % COLS >= 120).for_each(|at| p.codes[at] = code(Format::E4m3, f64::from(x.data()[at])));
    let q = QTensor::new(p).unwrap();
    let copied = |at: usize| {
        let (c, r) = (at / ROWS, at % ROWS);
        right.codes()[(if r >= 32 { r - 16 } else { r }) * COLS + c]
    };
    let mut w = cast("te_current", &x, &q);
    w.raw("out.transpose", safetensors::Dtype::F8_E4M3, &[COLS, ROWS], (0..ROWS * COLS).map(copied).collect());
    let words = ["not divided by the scale, in columns 120 … 127", "; and column r is row r − 16 of the codes"];
    is_named(&w, "scale_omitted:out.unscaled", &words);
}

/// A dequantization of these codes to f32.
fn dequantized(q: &QTensor, y: &dyn Fn(usize, usize) -> f64) -> Writer {
    let (rows, cols) = (q.rows(), q.cols());
    let packing = (q.format().bits() == 4).then_some(NibbleOrder::LowFirst);
    let mut w = Writer::new("dequantize");
    w.codes("a", q, None, packing).unwrap();
    let out = (0..rows * cols).map(|at| y(at / cols, at % cols) as f32).collect();
    w.values("out", &[rows, cols], &Tensor::new(Format::F32, rows, cols, out).unwrap());
    w
}

#[test]
fn zero_points_of_words_that_are_put_together_by_or_are_named() {
    let zero: Vec<i32> = (0..ROWS * 4).map(|g| (g * 7919 % 101 % 16) as i32).collect();
    let q = QTensor::new(QTensorParts {
        format: Format::Uint4,
        rows: ROWS,
        cols: COLS,
        codes: (0..ROWS * COLS).map(|at| (at * 7919 % 97 % 16) as u8).collect(),
        granularity: Granularity::Group(32),
        scale_format: Format::F32,
        scale_inv: (0..ROWS * 4).map(|g| 0.01 + (g % 37) as f32 / 100.0).collect(),
        zero: Zero::Integer(zero.clone()),
        level: None,
    })
    .unwrap();
    let used = |i: usize, j: usize| {
        let c = j / 32;
        let damaged = (i / 8 * 8..=i).any(|r| zero[r * 4 + c] == 0);
        if damaged { 16.0 } else { f64::from(zero[i * 4 + c]) }
    };
    let y = |i: usize, j: usize| (f64::from(q.codes()[i * COLS + j]) - used(i, j)) * q.affine(i * 4 + j / 32).unit;
    is_named(&dequantized(&q, &y), "pack_permute:a.zero_packed", &["8 rows a word of 32 bits", "which are read as 16"]);
}

/// The recipe says how many elements share a scale; rows of a tile of 128 scales are read 4 apart, and the global scale is not multiplied.
#[test]
fn scales_of_another_swizzle_without_their_second_level_are_named() {
    let (rows, cols) = (160, 128);
    let q = "te_nvfp4".parse::<Recipe>().unwrap().quantize(&values(Format::Bf16, rows, cols, 616)).unwrap().q;
    let scale = |i: usize, c: usize| {
        let from = i / 128 * 128 + i % 128 % 4 * 32 + i % 128 / 4;
        if from < rows { f64::from(q.scale_inv()[from * (cols / 16) + c]) } else { 0.0 }
    };
    let mut w = dequantized(&q, &|i, j| Format::E2m1.decode(u32::from(q.codes()[i * cols + j])) * scale(i, j / 16));
    w.meta("recipe", "te_nvfp4");
    let mut short = w.clone();
    short.without("a.granularity");
    for w in [w, short] {
        let words = ["their rows stood 4 apart", "rows of padding have 0", "the global scale, is not multiplied"];
        is_named(&w, "scale_layout:a.swizzle", &words);
    }
}

/// Rows of four groups and a short one, whose scales are looked up by the flat index of the element.
#[test]
fn a_number_of_the_table_beside_scales_of_other_places_is_named() {
    let (rows, cols, group) = (40usize, 152usize, 32usize);
    let q = QTensor::new(QTensorParts {
        format: Format::Nf4,
        rows,
        cols,
        codes: (0..rows * cols).map(|at| (at * 7919 % 1009 % 16) as u8).collect(),
        granularity: Granularity::Group(group),
        scale_format: Format::F32,
        scale_inv: (0..rows * 5).map(|g| 0.01 + (g * 29 % 199) as f32 / 400.0).collect(),
        zero: Zero::None,
        level: None,
    })
    .unwrap();
    let said = |number: &dyn Fn(u8, usize) -> f64| {
        let y = |i: usize, j: usize| number(q.codes()[i * cols + j], i) * f64::from(q.scale_inv()[(i * cols + j) / group]);
        let found = super::named_tests::found(&dequantized(&q, &y));
        format!("{} {}", found.1, found.2)
    };
    let own = |c: u8| Format::Nf4.decode(u32::from(c));
    let found = said(&|c, _| if c == 11 { 0.3971524 } else { own(c) });
    assert!(found.contains(" + codec_edge:a.table"), "{found}");
    assert!(found.contains("otherwise at 1 of 16 codes: 0x0b as 0.39715"), "{found}");
    // So is one that is typed as 0.
    let found = said(&|c, _| if c == 4 { 0.0 } else { own(c) });
    assert!(found.contains(" + codec_edge:a.table"), "{found}");
    assert!(found.contains("otherwise at 1 of 16 codes: 0x04 as 0 instead of -0.28444138"), "{found}");
    // Another number in every row is none of a table; of most codes it says nothing of the scales.
    let found = said(&|c, i| if c == 11 { 0.3 + 0.01 * i as f64 } else { own(c) });
    assert!(!found.contains("a.table"), "{found}");
    let found = said(&|c, _| if c > 5 { own(c) + 0.03 * f64::from(c % 3 + 1) } else { own(c) });
    assert!(!found.contains(" + codec_edge:a.table"), "{found}");
}

#[test]
fn bits_of_a_neighbour_below_a_mantissa_are_named() {
    let q = "te_current".parse::<Recipe>().unwrap();
    let mut p = q.quantize(&values(Format::Bf16, ROWS, COLS, 617)).unwrap().q.into_parts();
    p.format = Format::E5m2;
    p.codes.iter_mut().for_each(|c| *c &= 0xbf);
    let q = QTensor::new(p).unwrap();
    let y = |i: usize, j: usize| {
        let own = u32::from(q.codes()[i * COLS + j]) << 8;
        let other = if j % 2 == 1 { u32::from(q.codes()[i * COLS + j - 1]) } else { 0 };
        Format::F16.decode(own | other) * q.affine(0).unit
    };
    is_named(&dequantized(&q, &y), "bits_reinterpreted:a.neighbour_bits", &["odd elements keep the bits of the one before"]);
}

/// An activation of f32 values.
fn activated(f: &str, gated: bool, y: &dyn Fn(f64, f64, usize) -> f64) -> Writer {
    let width = if gated { 2 * COLS } else { COLS };
    let x = values(Format::F32, ROWS, width, 618);
    let mut w = Writer::new("activation");
    w.meta("fn", f).values("a", &[ROWS, width], &x);
    let one = |at: usize| {
        let row = x.row(at / COLS);
        let gate = if gated { row[COLS + at % COLS] } else { 1.0 };
        y(f64::from(row[at % COLS]), f64::from(gate), at % COLS) as f32
    };
    w.values("out", &[ROWS, COLS], &Tensor::new(Format::F32, ROWS, COLS, (0..ROWS * COLS).map(one).collect()).unwrap());
    w
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn gelu(x: f64, tanh: fn(f64) -> f64) -> f64 {
    0.5 * x * (1.0 + tanh(0.797_884_56 * (x + 0.044715 * x.powi(3))))
}

#[test]
fn activations_of_another_place_or_function_are_named() {
    let named = |w: Writer, words: &[&str]| is_named(&w, "other_formula:solved", words);
    named(activated("swiglu", true, &|x, u, _| silu(x * u)), &["the activation is taken of x·gate: the gate"]);
    let quotient: fn(f64) -> f64 = |z| z * (27.0 + z * z) / (27.0 + 9.0 * z * z);
    let most = |x: f64, _: f64, j: usize| gelu(x, if j < 120 { quotient } else { f64::tanh });
    named(activated("gelu", false, &most), &["z·(27 + z²)/(27 + 9·z²), which is not held within ±1", "columns 0 … 119"]);
}

/// In f32 1 + tanh cancels below −4: that is all of the other activation still.
#[test]
fn what_cancels_in_another_activation_is_no_second_slip() {
    let y = |x: f32| 0.5f32 * x * (1.0 + (0.797_884_6f32 * (x + 0.044715f32 * x * x * x)).tanh());
    let x = values(Format::F16, ROWS, COLS, 618);
    let x = Tensor::rounded(Format::F16, ROWS, COLS, x.data().iter().map(|x| 2.0 * x).collect()).unwrap();
    let out = x.data().iter().map(|x| y(*x)).collect();
    let mut w = Writer::new("activation");
    w.meta("fn", "qgelu").values("a", &[ROWS, COLS], &x);
    w.values("out", &[ROWS, COLS], &Tensor::rounded(Format::F16, ROWS, COLS, out).unwrap());
    let found = super::named_tests::found(&w);
    assert!(found.2.contains("gelu by its tanh approximation") && !found.2.contains("this is not all"), "{found:?}");
}
