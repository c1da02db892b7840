//! Codes of a cast beside scales that did not make them: scales of few bits that the encoder decodes otherwise than they are stored, and scales of the
//! copy along the other axis.
//!
//! ```text
//! byte of a scale  ──►  decoded: (1 + m/8)·2⁻⁷ of an e4m3 subnormal        the codes of its block
//! ```

use super::casts::{Cast, NEAR, Named, Range, holds};
use crate::Format;
use crate::fault::Class;
use crate::format::FORMATS;
use crate::{Overflow, Rounding};

/// Groups that their stored scale does not make, at least.
const LEAST: usize = 8;

/// Words, and what the encoder makes of a scale and its code.
type Way = (String, Box<dyn Fn(f64, u32) -> f64>);

/// How a scale of this format may be decoded otherwise.
fn ways(f: Format) -> Vec<Way> {
    let spec = f.spec();
    let least = f.decode(1 << spec.mantissa);
    let own = move |s: f64| s >= 0.0 && s < least;
    let mut all: Vec<Way> = Vec::new();
    if spec.mantissa > 0 {
        // The leading one of a number that has none, 0 among them, a binade below the least that has one.
        let normal = move |s: f64, _: u32| if own(s) { 0.5 * least + 0.5 * s } else { s };
        all.push((format!("subnormal scales of {f} are decoded as if they were normal, (1 + m)·2^e,"), Box::new(normal)));
        let below = move |s: f64, _: u32| if own(s) { 0.5 * s } else { s };
        all.push((format!("subnormal scales of {f} are decoded a binade too low, m·2^e of the exponent 0,"), Box::new(below)));
    }
    for other in FORMATS.iter().map(|spec| spec.format).filter(|g| *g != f && g.bits() == f.bits() && g.is_float()) {
        let of = move |_: f64, code: u32| other.decode(code);
        all.push((format!("scales of {f} are decoded as {other}"), Box::new(of)));
    }
    all
}

impl Cast<'_> {
    /// Groups whose codes are those of the stored scale's bits, decoded another way.
    pub fn decoded_otherwise(&self, ranges: &[Range]) -> Option<Named> {
        let f = self.q.scale_format();
        (f.is_float() && f.bits() <= 8).then_some(())?;
        let global = self.q.global_scale_inv().map_or(1.0, f64::from);
        let known: Vec<usize> = (0..ranges.len()).filter(|g| self.amax[*g] > 0.0 && ranges[*g].0 > 0.0).collect();
        let wrong = known.iter().filter(|g| !holds(ranges[**g], self.stored[**g])).count();
        (wrong >= LEAST).then_some(())?;
        let (words, _) = ways(f).into_iter().find(|(_, of)| {
            known.iter().all(|g| {
                let s = f64::from(self.q.scale_inv()[*g]);
                holds(ranges[*g], of(s, f.encode(s, Rounding::NearestEven, Overflow::Saturate)) * global)
            })
        })?;
        let words = format!(
            "{words} where codes are made: {wrong} of {} blocks have codes of another scale than is stored",
            ranges.len()
        );
        let class = if words.starts_with("subnormal") { Class::CodecEdge } else { Class::BitsReinterpreted };
        Some((class, "out.scale_codec", words))
    }

    /// Scales of the blocks of columns that stand where those of the rows belong, which made the codes.
    pub fn of_other_axis(&self, ranges: &[Range]) -> Option<Named> {
        let ((rows, cols), (height, width)) = ((self.q.rows(), self.q.cols()), self.tile);
        (height == 1 && rows > 1 && self.q.global_scale_inv().is_none()).then_some(())?;
        let down = rows.div_ceil(width);
        (down * cols == self.stored.len()).then_some(())?;
        let mut amax = vec![0.0f64; down * cols];
        for (at, v) in self.x.data().iter().enumerate() {
            let of = &mut amax[at / cols / width * cols + at % cols];
            *of = of.max(f64::from(v.abs()));
        }
        let max = self.q.format().max_finite();
        let near = |a: f64, b: f64| (a - b).abs() <= 4.0 * NEAR * b.abs();
        let rules: [&dyn Fn(f64) -> f64; 3] =
            [&|a| a / max, &|a| (a / max).log2().ceil().exp2(), &|a| (a.log2().floor() - max.log2().floor()).exp2()];
        let known: Vec<usize> = (0..ranges.len()).filter(|g| self.amax[*g] > 0.0).collect();
        let wrong = known.iter().filter(|g| !holds(ranges[**g], self.stored[**g])).count();
        (wrong >= LEAST).then_some(())?;
        let rule = rules.into_iter().find(|rule| known.iter().all(|g| holds(ranges[*g], rule(self.amax[*g]))))?;
        let places: [(&str, &dyn Fn(usize) -> usize); 2] = [
            ("row by row of their own grid", &|n| n),
            ("column by column, as of the transposed copy", &|n| n % down * cols + n / down),
        ];
        let is = |of: &dyn Fn(usize) -> usize| {
            (0..amax.len()).all(|n| amax[of(n)] == 0.0 || near(self.stored[n], rule(amax[of(n)])))
        };
        let (words, _) = places.into_iter().find(|(_, of)| is(*of))?;
        let words = format!(
            "the codes are those of blocks of 1×{width}; the scales stored beside them are those of blocks of {width}×1, {words}: {wrong} of {} are not their \
             blocks'",
            self.stored.len()
        );
        Some((Class::ScaleLayout, "out.other_axis", words))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::super::named_tests::{found, is_named, values};
    use super::*;
    use crate::quant::QTensorParts;
    use crate::recipe::Recipe;
    use crate::{QTensor, Tensor};

    fn cast(recipe: &str, x: &Tensor, p: QTensorParts) -> Writer {
        let packing = (p.format.bits() == 4).then_some(crate::format::pack::NibbleOrder::LowFirst);
        let mut w = Writer::new("cast");
        w.meta("recipe", recipe).values("a", &[x.rows(), x.cols()], x);
        w.codes("out", &QTensor::new(p).unwrap(), None, packing).unwrap();
        w
    }

    /// Blocks of which many are so small that their scales are subnormal.
    #[test]
    fn subnormal_scales_that_are_decoded_as_normal_ones_are_named() {
        let (rows, cols) = (48, 160);
        let x = values(Format::F32, rows, cols, 961);
        // Of a few blocks it is 0.
        let size = |at: usize| if at / 16 % 7 == 2 { 1e-8 } else { 1e-5 * (1 + at / 48 % 7) as f32 };
        let sized = |(at, v): (usize, &f32)| if at / 16 % 3 == 1 { v * size(at) } else { *v };
        let x = Tensor::new(Format::F32, rows, cols, x.data().iter().enumerate().map(sized).collect()).unwrap();
        let p = "te_nvfp4".parse::<Recipe>().unwrap().quantize(&x).unwrap().q.into_parts();
        let global = f64::from(p.level.as_ref().unwrap().scale_inv[0]);
        let with = |of: &dyn Fn(f64) -> f64| {
            let mut p = p.clone();
            for (at, code) in p.codes.iter_mut().enumerate() {
                let y = f64::from(x.data()[at]) / (of(f64::from(p.scale_inv[at / 16])) * global);
                *code = Format::E2m1.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8;
            }
            cast("te_nvfp4", &x, p)
        };
        let least = 2f64.powi(-6);
        assert!(p.scale_inv.iter().filter(|s| **s > 0.0 && f64::from(**s) < least).count() > 40);
        assert!(p.scale_inv.iter().filter(|s| **s == 0.0).count() > 8);
        let name = "codec_edge:out.scale_codec";
        let words = ["subnormal scales of e4m3 are decoded as if they were normal"];
        is_named(&with(&|s| if s < least { (1.0 + s / least) / 128.0 } else { s }), name, &words);
        is_named(
            &with(&|s| if s < least { 0.5 * s } else { s }),
            name,
            &["subnormal scales of e4m3 are decoded a binade too low"],
        );
        assert_ne!(found(&with(&|s| if s < least { s * 1.7 } else { s })).1, name, "by no way to decode them");
    }

    #[test]
    fn scales_of_columns_beside_codes_of_rows_are_named() {
        let (rows, cols) = (64, 96);
        let x = values(Format::Bf16, rows, cols, 962);
        let recipe = "te_mxfp8".parse::<Recipe>().unwrap();
        let p = recipe.quantize(&x).unwrap().q.into_parts();
        let turned = (0..rows * cols).map(|n| x.data()[n % rows * cols + n / rows]).collect();
        let turned = recipe.quantize(&Tensor::new(Format::Bf16, cols, rows, turned).unwrap()).unwrap().q;
        // [cols, rows / 32] as they are, and by rows of blocks.
        let down = rows / 32;
        let with = |of: &dyn Fn(usize) -> f32| {
            let scale_inv = (0..p.scale_inv.len()).map(of).collect();
            cast("te_mxfp8", &x, QTensorParts { scale_inv, ..p.clone() })
        };
        let name = "scale_layout:out.other_axis";
        is_named(&with(&|n| turned.scale_inv()[n]), name, &["those of blocks of 32×1, column by column"]);
        is_named(&with(&|n| turned.scale_inv()[n % cols * down + n / cols]), name, &["those of blocks of 32×1, row by row"]);
        assert_ne!(found(&with(&|n| turned.scale_inv()[(n * 7 + 5) % (down * cols)])).1, name, "in no order");
    }
}
