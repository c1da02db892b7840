//! How fast the codecs are on this machine, beside a memory copy of the same run.

use super::fast::{Decoder, Encoder, decode_bf16, decode_f16};
use super::pack::{NibbleOrder, pack4, unpack4};
use super::{FORMATS, Format, Overflow, Rounding};
use crate::Result;
use half::{bf16, f16};
use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

/// One measured path, on one core.
#[derive(Clone, Debug)]
pub struct CodecRow {
    pub name: String,
    /// 10⁹ elements a second.
    pub gelem_per_s: f64,
    /// 10⁹ bytes a second, read plus written.
    pub gb_per_s: f64,
    /// `gb_per_s` over that of the memory copy.
    pub of_copy: f64,
}

/// Elements of a measurement: 32 MiB of f32, more than a core's share of the caches.
const ELEMENTS: usize = 1 << 23;
/// The definition is slow: fewer will do.
const SLOW_ELEMENTS: usize = 1 << 18;
const REPETITIONS: usize = 7;

/// Measures a copy, bulk encode and decode of every format of at most 8 bits, f16 and bf16 decode, 4-bit packing, and the
/// definition; the best of 7 repetitions each, on one thread. The first row is the copy.
pub fn bench_codec() -> Result<Vec<CodecRow>> {
    let src: Vec<f32> = (0..ELEMENTS).map(|i| ((i % 8191) as f32 - 4095.0) * 0.117).collect();
    let mut rows = Timings(vec![]);

    let mut copy = vec![0f32; ELEMENTS];
    rows.time("copy f32", ELEMENTS, 8.0, || black_box(&mut copy).copy_from_slice(black_box(&src)));
    let mut values = copy;

    let mut codes = vec![0u8; ELEMENTS];
    let small = || FORMATS.iter().filter(|f| f.bits <= 8).map(|f| f.format);
    for f in small() {
        let encoder = Encoder::new(f, Overflow::Saturate)?;
        let run = || encoder.encode_slice(black_box(&src), 1.0, black_box(&mut codes));
        rows.try_time(format!("encode f32 → {f}, saturating"), ELEMENTS, 5.0, run)?;
    }
    let native = Encoder::new(Format::E4m3, Overflow::Native)?;
    let run = || native.encode_slice(black_box(&src), 1.0, black_box(&mut codes));
    rows.try_time("encode f32 → e4m3, native overflow".into(), ELEMENTS, 5.0, run)?;
    let e4m3 = Encoder::new(Format::E4m3, Overflow::Saturate)?;
    let run = || e4m3.encode_slice(black_box(&src), black_box(0.37), black_box(&mut codes));
    rows.try_time("encode f32·scale → e4m3, saturating".into(), ELEMENTS, 5.0, run)?;
    for f in small() {
        let decoder = Decoder::new(f)?;
        rows.try_time(format!("decode {f} → f32"), ELEMENTS, 5.0, || {
            decoder.decode_slice(black_box(&codes), black_box(&mut values))
        })?;
    }
    let words: Vec<f16> = src.iter().map(|x| f16::from_f32(*x)).collect();
    rows.try_time("decode f16 → f32".into(), ELEMENTS, 6.0, || decode_f16(black_box(&words), black_box(&mut values)))?;
    let words: Vec<bf16> = src.iter().map(|x| bf16::from_f32(*x)).collect();
    rows.try_time("decode bf16 → f32".into(), ELEMENTS, 6.0, || decode_bf16(black_box(&words), black_box(&mut values)))?;

    codes.iter_mut().for_each(|c| *c &= 15);
    let packed = pack4(&codes, NibbleOrder::LowFirst)?;
    rows.try_time("pack 4-bit".into(), ELEMENTS, 1.5, || {
        pack4(black_box(&codes), NibbleOrder::LowFirst).map(|bytes| drop(black_box(bytes)))
    })?;
    rows.time("unpack 4-bit", ELEMENTS, 1.5, || {
        let codes = unpack4(black_box(&packed), NibbleOrder::LowFirst);
        assert_eq!(black_box(&codes[..]).len(), ELEMENTS);
    });

    let few = &src[..SLOW_ELEMENTS];
    rows.time("encode f32 → e4m3, definition", SLOW_ELEMENTS, 5.0, || {
        for (c, x) in codes.iter_mut().zip(black_box(few)) {
            *c = Format::E4m3.encode(f64::from(*x), Rounding::NearestEven, Overflow::Saturate) as u8;
        }
        black_box(&mut codes);
    });
    rows.time("decode e4m3 → f32, definition", SLOW_ELEMENTS, 5.0, || {
        for (x, c) in values.iter_mut().zip(black_box(&codes[..SLOW_ELEMENTS])) {
            *x = Format::E4m3.decode(u32::from(*c)) as f32;
        }
        black_box(&mut values);
    });
    Ok(rows.0)
}

struct Timings(Vec<CodecRow>);

impl Timings {
    fn time(&mut self, name: &str, elements: usize, bytes_each: f64, mut run: impl FnMut()) {
        let mut best = f64::INFINITY;
        for _ in 0..REPETITIONS {
            let start = Instant::now();
            run();
            best = best.min(start.elapsed().as_secs_f64());
        }
        let gelem_per_s = elements as f64 / best / 1e9;
        let gb_per_s = gelem_per_s * bytes_each;
        let of_copy = gb_per_s / self.0.first().map_or(gb_per_s, |copy| copy.gb_per_s);
        self.0.push(CodecRow { name: name.into(), gelem_per_s, gb_per_s, of_copy });
    }
    fn try_time(&mut self, name: String, elements: usize, bytes_each: f64, mut run: impl FnMut() -> Result<()>) -> Result<()> {
        run()?;
        self.time(&name, elements, bytes_each, || run().expect("succeeded just before"));
        Ok(())
    }
}

/// The rows as an aligned text table.
pub fn table(rows: &[CodecRow]) -> String {
    let width = rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{:width$}  Gelement/s      GB/s   of copy\n", "path (one core)");
    for r in rows {
        let (e, b, c) = (r.gelem_per_s, r.gb_per_s, r.of_copy);
        writeln!(text, "{:width$}  {e:10.3}  {b:8.2}  {c:8.2}", r.name).expect("a String takes any text");
    }
    text
}
