//! A second formulation of every recipe, for checking the first: scales from closed forms in f64 with a rounding function of
//! its own, codes by brute force over the decode table. It shares no code with `quantize`, the encoders or the f16 and bf16
//! conversions; it reads [`Format::decode`] and the shapes of [`Granularity`].

mod exact;
mod gguf;
mod law;

use super::Recipe;
use crate::{Format, Granularity, QTensor, Tensor, Zero};
use exact::same;
use law::{RecipeLaw, Step};

/// One way in which a quantized tensor is not what the recipe makes of `x`: the first mismatch of its kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// format, shape, granularity, scale_format, global_scale_inv, level, scale_inv, zero, code.
    pub what: &'static str,
    /// Scale tile (row, column of the grid) for level, scale_inv and zero; element (row, column) for code.
    pub at: Option<(usize, usize)>,
    pub found: String,
    pub expected: String,
    /// How many of this kind there are.
    pub count: usize,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finding { what, at, found, expected, count } = self;
        write!(f, "{what}")?;
        if let Some((i, j)) = at {
            write!(f, " at ({i}, {j})")?;
        }
        write!(f, ": found {found}, expected {expected}")?;
        if *count > 1 { write!(f, " ({count} in all)") } else { Ok(()) }
    }
}

/// Compares `q` with what `recipe` must make of `x`; empty when it is right. Scales and zero points must agree to the bit (NaN
/// as a class), each code must be the nearest of the format to the value its source scales to, ties to even, with the
/// overflow of that source. HQQ's fitted zero point is taken as found (its source has no portable bits); its codes must be
/// the nearest given that zero point.
pub fn verify(recipe: &Recipe, x: &Tensor, q: &QTensor) -> Vec<Finding> {
    let mut findings = Findings::default();
    let shape = |rows, cols| format!("{rows}×{cols}");
    findings.check("shape", None, shape(q.rows(), q.cols()), shape(x.rows(), x.cols()));
    findings.check("format", None, q.format(), recipe.format);
    if !findings.0.is_empty() {
        return findings.0;
    }
    let Some(law) = RecipeLaw::of(recipe, x) else {
        findings.check("recipe", None, recipe.name, "a recipe of the registry on a tensor with elements");
        return findings.0;
    };
    findings.check("granularity", None, q.granularity(), law.granularity);
    findings.check("scale_format", None, q.scale_format(), law.scale_format);
    if !findings.0.is_empty() {
        return findings.0;
    }
    match (q.global_scale_inv(), law.global_scale_inv) {
        (None, None) => {}
        (Some(a), Some(b)) if same(f64::from(a), b) => {}
        (a, b) => findings.push("global_scale_inv", None, format!("{a:?}"), format!("{b:?}")),
    }
    let tiles = law.tiles(x, q);
    let (_, grid_cols) = law.granularity.grid(x.rows(), x.cols());
    for (i, (scale, zero)) in law.second_level(x).into_iter().enumerate() {
        let found = q.over(i);
        if !same(f64::from(found.0), scale) || !same(f64::from(found.1), zero) {
            findings.push("level", Some((i / grid_cols, i % grid_cols)), format!("{found:?}"), format!("{:?}", (scale, zero)));
        }
    }
    for (i, tile) in tiles.iter().enumerate() {
        let at = Some((i / grid_cols, i % grid_cols));
        let found = f64::from(q.scale_inv()[i]);
        if !same(found, tile.scale_inv) {
            findings.push("scale_inv", at, format!("{found:e}"), format!("{:e}", tile.scale_inv));
        }
        let (found, mid) = match q.zero() {
            Zero::None => (None, 0),
            Zero::Integer(z) => (Some(f64::from(z[i])), 0),
            Zero::Additive { zero, mid } => (Some(f64::from(zero[i])), *mid),
        };
        let agree = match (found, tile.zero) {
            (None, None) => true,
            (Some(a), Some(b)) => same(a, b) && mid == law.mid,
            _ => false,
        };
        if !agree {
            findings.push("zero", at, format!("{found:?}, mid {mid}"), format!("{:?}, mid {}", tile.zero, law.mid));
        }
    }
    let table = Table::of(q.format());
    for i in 0..x.rows() {
        for (j, v) in x.row(i).iter().enumerate() {
            let code = q.codes()[i * x.cols() + j];
            let scale = q.scale_index(i, j);
            // A NaN scale makes every code of its tile a NaN: sources and devices leave different ones there.
            if (q.scale_inv()[scale] * q.over(scale).0).is_nan() {
                continue;
            }
            if let Err(expected) = table.judge(&tiles[scale].step, f64::from(*v), code) {
                findings.push("code", Some((i, j)), format!("{code:#04x} for {v:e}"), expected);
            }
        }
    }
    findings.0
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn push(&mut self, what: &'static str, at: Option<(usize, usize)>, found: String, expected: String) {
        match self.0.iter_mut().find(|f| f.what == what) {
            Some(first) => first.count += 1,
            None => self.0.push(Finding { what, at, found, expected, count: 1 }),
        }
    }
    fn check(&mut self, what: &'static str, at: Option<(usize, usize)>, found: impl ToString, expected: impl ToString) {
        let (found, expected) = (found.to_string(), expected.to_string());
        if found != expected {
            self.push(what, at, found, expected);
        }
    }
}

/// All codes of a format and their values.
struct Table {
    values: Vec<f64>,
    integer: bool,
    has_nan: bool,
    two_zeros: bool,
    max: f64,
    /// The middle between the largest value and the one that would follow it.
    past_max: f64,
}

impl Table {
    fn of(format: Format) -> Self {
        let values: Vec<f64> = (0..1u32 << format.bits()).map(|c| format.decode(c)).collect();
        let below = |limit: f64| values.iter().copied().filter(|v| v.is_finite() && *v < limit).fold(f64::MIN, f64::max);
        let max = below(f64::INFINITY);
        Table {
            integer: format.is_integer(),
            has_nan: values.iter().any(|v| v.is_nan()),
            two_zeros: values.iter().filter(|v| **v == 0.0).count() == 2,
            max,
            past_max: max + (max - below(max)) / 2.0,
            values,
        }
    }

    /// Whether `code` is right for `x`; if not, what would be.
    fn judge(&self, step: &Step, x: f64, code: u8) -> Result<(), String> {
        let value = self.values[usize::from(code)];
        let target = step.target(x);
        let (ok, expected) = if let Some(slack) = step.slack(x) {
            ((value - target).abs() <= 0.5 + slack || target.is_nan(), "the nearest integer")
        } else if let Some(code) = step.code_by_midpoints(target, &self.values) {
            (value == self.values[code], "the value whose midpoints are about it")
        } else if self.integer {
            // A NaN cast to an integer is 0.
            (value == if target.is_nan() { 0.0 } else { target }, "that integer, 0 for NaN")
        } else if target.is_nan() {
            (value.is_nan() || !self.has_nan, "NaN")
        } else if step.native_overflow() && target.abs() > self.past_max {
            // A tie there goes to the largest value, whose code is even in e4m3.
            (value.is_nan(), "NaN, past the largest value")
        } else {
            (self.is_nearest(target, code), "the nearest, ties to even, saturated")
        };
        if ok { Ok(()) } else { Err(format!("{expected}, of {target:e}")) }
    }

    /// No finite value is nearer, an odd code has no equal, and a zero has the sign of what it stands for.
    fn is_nearest(&self, target: f64, code: u8) -> bool {
        let value = self.values[usize::from(code)];
        let target = target.clamp(-self.max, self.max);
        let distance = (value - target).abs();
        if value == 0.0 && self.two_zeros && value.is_sign_negative() != target.is_sign_negative() {
            return false;
        }
        let rival = |v: &f64| (v - target).abs() < distance || ((v - target).abs() == distance && *v != value && code % 2 == 1);
        // NaN is no rival, and no right code: its distance fails here.
        distance.is_finite() && !self.values.iter().any(rival)
    }
}

/// The granularity by the recipe's name, as documented.
fn granularity(recipe: &Recipe) -> Option<Granularity> {
    let block = |n| Granularity::Block { rows: n, cols: n };
    Some(match recipe.name {
        "te_delayed" | "te_current" | "te_current_pow2" | "float8_tensorwise" | "float8_inference" => Granularity::Tensor,
        "te_block_1x128" | "te_block_1x128_fp32" | "deepseek_1x128" | "deepseek_1x128_ue8m0" => Granularity::Group(128),
        "te_block_128x128" | "te_block_128x128_fp32" | "deepseek_128x128" | "deepseek_128x128_ue8m0" => block(128),
        "te_mxfp8" | "mx_floor" | "mx_ceil" | "mx_even" | "mx_rceil" | "mx_floor_v018" | "mx_ceil_v018" | "mx_even_v018"
        | "mx_rceil_v018" | "gguf_q4_k" => Granularity::Group(32),
        "te_mxfp8_32x32" => block(32),
        "te_nvfp4" | "ao_nvfp4" => Granularity::Group(16),
        "te_nvfp4_16x16" => block(16),
        "float8_rowwise" | "float8_rowwise_gw_hp" | "float8_inference_row" => Granularity::Row,
        "int8_token_sym" | "int8_token_asym" | "int8_token_reduced" | "int8_token_reduced_cutlass" => Granularity::Row,
        "affine_sym" | "affine_symnc" | "affine_asym" | "tinygemm" | "hqq" | "awq" | "bnb_nf4" => match recipe.group {
            None => Granularity::Row,
            Some(g) => Granularity::Group(g),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Source;
    use crate::quant::{Level, QTensorParts};
    use crate::recipe::RECIPES;

    /// Rows of other sizes, one of them with an outlier, one of zeros, one of positive numbers; 160 columns leave short last groups.
    fn rows(dtype: Format) -> Tensor {
        let normal = "normal".parse::<Source>().unwrap().tensor(Format::F32, 6, 160, 5, 0).unwrap();
        let row = |i: usize, j: usize, x: f32| match i {
            1 => x * 1e-5,
            2 if j == 7 => 300.0 * x,
            3 => 0.0,
            4 => x.abs() + 3.0,
            5 => (j % 65) as f32 * 0.25 - 8.0,
            _ => x,
        };
        let data = normal.data().iter().enumerate().map(|(n, x)| row(n / 160, n % 160, *x)).collect();
        Tensor::rounded(dtype, 6, 160, data).unwrap()
    }

    /// The smaller form of tests/recipes_check.rs.
    #[test]
    fn what_a_recipe_makes_is_what_its_law_says() {
        let mut cases = 0;
        for dtype in [Format::F32, Format::Bf16, Format::F16] {
            let x = rows(dtype);
            for spec in RECIPES {
                for format in spec.formats.iter().copied() {
                    let recipe = Recipe { name: spec.name, format, group: None };
                    let Ok(made) = recipe.quantize(&x) else { continue };
                    assert_eq!(verify(&recipe, &x, &made.q), [], "{recipe} of {dtype}");
                    cases += 1;
                }
            }
        }
        assert!(cases > 100, "{cases}");
    }

    #[test]
    fn another_shape_and_another_format_of_scales_are_found() {
        let (recipe, x) = ("te_nvfp4".parse::<Recipe>().unwrap(), rows(Format::F32));
        let q = recipe.quantize(&x).unwrap().q;
        let what = |x: &Tensor, q: &QTensor| verify(&recipe, x, q).iter().map(|f| f.what).collect::<Vec<_>>();
        assert!(what(&x, &q).is_empty());
        let short = Tensor::new(Format::F32, 5, 160, x.data()[..5 * 160].to_vec()).unwrap();
        assert_eq!(what(&short, &q), ["shape"]);
        let wide = QTensor::new(QTensorParts { scale_format: Format::F32, ..q.into_parts() }).unwrap();
        assert_eq!(what(&x, &wide), ["scale_format"]);
    }

    /// Rows of 512 have 16 scales, of 32 columns each, and two numbers over eight of them.
    #[test]
    fn a_number_of_the_second_level_is_found_at_its_first_tile() {
        let recipe = "gguf_q4_k".parse::<Recipe>().unwrap();
        let x = "normal".parse::<Source>().unwrap().tensor(Format::F32, 2, 512, 5, 0).unwrap();
        let mut parts = recipe.quantize(&x).unwrap().q.into_parts();
        let level = parts.level.as_mut().unwrap();
        let last = level.scale_inv.len() - 1;
        level.scale_inv[last] *= 2.0;
        let found = verify(&recipe, &x, &QTensor::new(parts).unwrap());
        let level = found.iter().find(|f| f.what == "level").unwrap();
        assert_eq!((level.at, level.count), (Some((1, 8)), 8));
    }

    /// 0·∞ is a NaN, which every code of the tile becomes: none is wrong.
    #[test]
    fn codes_under_a_scale_that_is_nan_are_not_judged() {
        let (recipe, x) = ("te_nvfp4".parse::<Recipe>().unwrap(), rows(Format::F32));
        let mut parts = recipe.quantize(&x).unwrap().q.into_parts();
        let wrong = |parts: &QTensorParts| {
            let found = verify(&recipe, &x, &QTensor::new(parts.clone()).unwrap());
            found.iter().find(|f| f.what == "code").map_or(0, |f| f.count)
        };
        parts.codes[..16].iter_mut().for_each(|c| *c ^= 7);
        assert_eq!(wrong(&parts), 16);
        parts.scale_inv[0] = 0.0;
        parts.level = Some(Level::whole(f32::INFINITY));
        assert_eq!(wrong(&parts), 0);
    }

    /// The nearest code, to even, of every number and of those between; the numbers from which on a cast is NaN or infinite.
    #[test]
    fn a_table_has_one_right_code_for_a_number() {
        use crate::{Overflow, Rounding};
        for format in [Format::E4m3, Format::E5m2, Format::E4m3Fnuz, Format::E5m2Fnuz, Format::E2m1] {
            let table = Table::of(format);
            let mut numbers: Vec<f64> = table.values.iter().copied().filter(|v| v.is_finite()).collect();
            numbers.sort_by(f64::total_cmp);
            numbers.dedup_by(|a, b| a == b && a.is_sign_negative() == b.is_sign_negative());
            let between = numbers.windows(2).flat_map(|w| [0.25, 0.5, 0.75].map(|t| w[0] + t * (w[1] - w[0])));
            let targets: Vec<f64> = between.chain(numbers.iter().copied()).chain([1e6, -1e6]).filter(|t| *t != 0.0).collect();
            for t in targets {
                let right = format.encode(t, Rounding::NearestEven, Overflow::Saturate) as u8;
                let found: Vec<u8> = (0..table.values.len()).map(|c| c as u8).filter(|c| table.is_nearest(t, *c)).collect();
                assert_eq!(found, [right], "{format} {t:e}");
            }
        }
        for (format, max, past) in [(Format::E4m3, 448.0, 464.0), (Format::E5m2, 57344.0, 61440.0)] {
            let table = Table::of(format);
            assert_eq!((table.max, table.past_max), (max, past));
            let native = |x: f64| format.decode(format.encode(x, Rounding::NearestEven, Overflow::Native)).is_finite();
            assert_eq!([past * 0.999, past * 1.001].map(native), [true, false], "{format}");
        }
    }
}
