//! Ways of decoding and of writing codes that a diagnosis has words for, each replayed from what it says.

use super::Writer;
use super::named_tests::{found, is_named, values};
use crate::compare::Verdict;
use crate::recipe::Recipe;
use crate::{Format, Overflow, Rounding, Tensor, Zero};
use safetensors::Dtype;

const ROWS: usize = 8;
const COLS: usize = 512;

/// Code, scale and its second level, zero point and its second level.
type Parts = (f64, f64, f64, f64, f64);

#[test]
fn both_levels_of_scales_and_zero_points_are_told_apart() {
    let q = "gguf_q4_k".parse::<Recipe>().unwrap().quantize(&values(Format::F32, ROWS, COLS, 51)).unwrap().q;
    let Zero::Additive { zero, mid: 0 } = q.zero() else { panic!("minima are added") };
    let dequantized = |value: fn(Parts) -> f64, wrong: fn(usize, usize) -> bool| {
        let one = |at: usize| {
            let g = q.scale_index(at / COLS, at % COLS);
            let (over, zero_over) = q.over(g);
            let of = (
                f64::from(q.codes()[at]),
                f64::from(q.scale_inv()[g]),
                f64::from(over),
                f64::from(zero[g]),
                f64::from(zero_over),
            );
            let (c, s, o, z, p) = of;
            (if wrong(at / COLS, at % COLS) { value(of) } else { c * s * o + z * p }) as f32
        };
        let mut w = Writer::new("dequantize");
        w.codes("a", &q, None, Some(crate::format::pack::NibbleOrder::LowFirst)).unwrap();
        let out = (0..ROWS * COLS).map(one).collect();
        w.values("out", &[ROWS, COLS], &Tensor::rounded(Format::F32, ROWS, COLS, out).unwrap());
        w
    };
    type Way = (&'static str, &'static str, fn(Parts) -> f64);
    let ways: [Way; 10] = [
        ("scale_layout", "scales are multiplied by global_zero_point, zero points by global_scale_inv", |(c, s, o, z, p)| {
            s * p * c + o * z
        }),
        ("scale_layout", "are exchanged, but for their signs", |(c, s, o, z, p)| {
            let sign = |x: f64| if x < 0.0 { -1.0 } else { 1.0 };
            sign(o) * sign(p) * (s * c * p + o * z)
        }),
        ("scale_layout", "scales and zero points are exchanged", |(c, s, o, z, p)| z * p * c + o * s),
        ("scale_layout", "the codes of scales and zero points are exchanged", |(c, s, o, z, p)| z * o * c + p * s),
        ("scale_shared", "zero points are multiplied by global_scale_inv too", |(c, s, o, z, _)| o * (s * c + z)),
        ("scale_shared", "scales are multiplied by global_zero_point too", |(c, s, _, z, p)| p * (s * c + z)),
        ("zp_correction", "zero points have the other sign", |(c, s, o, z, p)| o * s * c - p * z),
        ("zp_correction", "zero points are not added", |(c, s, o, _, _)| o * s * c),
        ("scale_omitted", "zero points lack their second level", |(c, s, o, z, _)| o * s * c + z),
        ("zp_correction", "zero points are multiplied by the scale too", |(c, s, o, z, p)| s * o * c + s * o * z * p),
    ];
    for (class, words, value) in ways {
        let of_some: fn(usize, usize) -> bool = |i, _| (2..5).contains(&i);
        for (wrong, place) in [((|_, _| true) as fn(usize, usize) -> bool, ""), (of_some, "rows 2 … 4")] {
            let (verdict, fault, detail) = found(&dequantized(value, wrong));
            // Other solvers say some of it in their own words.
            let levels = fault.ends_with(":a.levels") && detail.contains(words) && detail.contains(place);
            let other = if words.contains("exchanged") { detail.contains("exchanged") } else { !fault.ends_with(":a.levels") };
            let class = fault.starts_with(class) || words.contains("exchanged");
            assert!(verdict == Verdict::Fail && class && (levels || other), "{words}: {fault} {detail}");
        }
    }
}

/// A cast to e4m3 by one scale, with what stands in its transposed copy at (column, row).
pub fn copied(of: &dyn Fn(&[u8], usize, usize) -> u8) -> Writer {
    let (rows, cols) = (32, 64);
    let x = values(Format::Bf16, rows, cols, 52);
    let scale = x.data().iter().fold(0f32, |m, v| m.max(v.abs())) / 448.0;
    let code =
        |at: usize| Format::E4m3.encode(f64::from(x.data()[at] / scale), Rounding::NearestEven, Overflow::Saturate) as u8;
    let codes: Vec<u8> = (0..rows * cols).map(code).collect();
    let copy = (0..rows * cols).map(|at| of(&codes, at / rows, at % rows)).collect();
    let mut w = Writer::new("cast");
    w.values("a", &[rows, cols], &x).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes);
    w.f32s("out.scale_inv", &[], &[scale]);
    w.raw("out.transpose", Dtype::F8_E4M3, &[cols, rows], copy);
    w
}

#[test]
fn copies_that_are_transposed_by_units_are_named() {
    let right = copied(&|codes, c, r| codes[r * 64 + c]);
    assert_eq!(found(&right).1, "");
    for unit in [2usize, 4, 8, 16] {
        // Tile (c0, r0) of the copy holds tile (r0, c0) of the codes as it is.
        let tiles = copied(&|codes, c, r| codes[(r / unit * unit + c % unit) * 64 + c / unit * unit + r % unit]);
        is_named(&tiles, "addressing:transpose.unit", &[&format!("units of {unit} codes"), "tiles are moved"]);
        // The copy as one array of words: word w of the transposed array of words of the codes.
        let words = copied(&|codes, c, r| {
            let (word, lane) = ((c * 32 + r) / unit, (c * 32 + r) % unit);
            codes[word % 32 * 64 + word / 32 * unit + lane]
        });
        is_named(&words, "addressing:transpose.unit", &[&format!("units of {unit} codes"), "words of neighbours"]);
    }
}

/// One tile of the copy is written as it was read.
#[test]
fn a_tile_of_a_copy_that_is_not_transposed_is_named() {
    for (size, c0, r0) in [(4, 20, 12), (8, 16, 8), (16, 48, 0)] {
        let is = |at: usize, first: usize| (first..first + size).contains(&at);
        let w = copied(&|codes, c, r| {
            if is(c, c0) && is(r, r0) { codes[(r0 + c - c0) * 64 + c0 + r - r0] } else { codes[r * 64 + c] }
        });
        let words = format!("a {size}×{size} tile at row {c0}, column {r0} of the transposed copy is not transposed within");
        is_named(&w, "addressing:transpose.tile", &[&words]);
    }
}

#[test]
fn scales_that_were_not_written_beside_right_codes_are_named() {
    let (rows, cols) = (32, 256);
    let x = values(Format::Bf16, rows, cols, 53);
    let amax = |i: usize, g: usize| x.row(i)[g * 32..g * 32 + 32].iter().fold(0f32, |m, v| m.max(v.abs()));
    let scale: Vec<f32> = (0..rows * 8).map(|at| amax(at / 8, at % 8) / 448.0).collect();
    let code = |at: usize| {
        let s = scale[at / cols * 8 + at % cols / 32];
        Format::E4m3.encode(f64::from(x.data()[at] / s), Rounding::NearestEven, Overflow::Saturate) as u8
    };
    let codes: Vec<u8> = (0..rows * cols).map(code).collect();
    let cast = |stored: Vec<f32>| {
        let mut w = Writer::new("cast");
        w.values("a", &[rows, cols], &x).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], codes.clone());
        w.f32s("out.scale_inv", &[rows, 8], &stored).meta("out.granularity", "group:32");
        w
    };
    assert_eq!(found(&cast(scale.clone())).1, "");
    let mut some = scale.clone();
    // Rows 5 … 20, groups 2 to 4: what the memory held before.
    (5..21).for_each(|i| (2..5).for_each(|g| some[i * 8 + g] = 0.37 + 0.11 * ((i * 13 + g * 7) % 17) as f32));
    is_named(&cast(some), "silent_skip:out.scales_unwritten", &["scales of rows 5 … 20, groups 2 … 4"]);
}

/// The last warp of a block stores its scales backwards, and the last columns are not written.
#[test]
fn scales_in_reverse_order_beside_columns_that_are_not_written_are_named() {
    let (rows, cols) = (24, 100);
    let x = values(Format::Bf16, rows, cols, 57);
    let scale: Vec<f32> = (0..rows).map(|i| x.row(i)[..96].iter().fold(0f32, |m, v| m.max(v.abs())) / 448.0).collect();
    let code = |at: usize| match at % cols {
        96.. => 0,
        _ => Format::E4m3.encode(f64::from(x.data()[at] / scale[at / cols]), Rounding::NearestEven, Overflow::Saturate) as u8,
    };
    let mut stored = scale.clone();
    stored[8..16].reverse();
    let mut w = Writer::new("cast");
    w.values("a", &[rows, cols], &x).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], (0..rows * cols).map(code).collect());
    w.f32s("out.scale_inv", &[rows], &stored).meta("out.granularity", "row");
    let words =
        ["the scales of rows 8 … 15 of the grid are stored in reverse order", "the last 4 of 100 columns are not written"];
    is_named(&w, "scale_index:out.reversed", &words);
}

/// Three blocks a row, stored as if there were two, rounded down: later rows lie over earlier ones, the last places keep what they held.
#[test]
fn scales_stored_at_a_stride_that_is_rounded_down_are_named() {
    let n = 48;
    let x = values(Format::Bf16, n, n, 60);
    let mut scale = [0f32; 9];
    let block = |at: usize| at / n / 16 * 3 + at % n / 16;
    (0..n * n).for_each(|at| scale[block(at)] = scale[block(at)].max(x.data()[at].abs() / 448.0));
    let code = |at: usize| {
        Format::E4m3.encode(f64::from(x.data()[at] / scale[block(at)]), Rounding::NearestEven, Overflow::Saturate) as u8
    };
    let mut stored = [1f32; 9];
    (0..9).for_each(|g| stored[g / 3 * 2 + g % 3] = scale[g]);
    let mut w = Writer::new("cast");
    w.values("a", &[n, n], &x).raw("out.codes", Dtype::F8_E4M3, &[n, n], (0..n * n).map(code).collect());
    w.f32s("out.scale_inv", &[3, 3], &stored).meta("out.granularity", "block:16x16");
    is_named(&w, "scale_layout:out.stride", &["at a row stride of 2 instead of 3"]);
}

/// Sixteen rows a block, of which the last warp's four are not seen: in a block whose largest number they hold the codes saturate.
#[test]
fn an_amax_that_leaves_out_rows_of_each_block_fails_without_a_recipe() {
    let n = 48;
    let mut data = values(Format::Bf16, n, n, 58).data().to_vec();
    let spike = |block: usize, row: usize, x: f32, data: &mut [f32]| data[(block / 3 * 16 + row) * n + block % 3 * 16 + 5] = x;
    for block in 0..9 {
        // Of every block the largest that is seen is in its row 11.
        spike(block, 11, 6.0 + block as f32 * 0.25, &mut data);
    }
    for block in [1, 6, 8] {
        spike(block, 12 + block % 4, if block == 6 { -15.0 } else { 15.0 + block as f32 }, &mut data);
    }
    let x = Tensor::rounded(Format::Bf16, n, n, data).unwrap();
    let block = |at: usize| at / n / 16 * 3 + at % n / 16;
    let mut seen = [0f32; 9];
    (0..n * n).filter(|at| at / n % 16 < 12).for_each(|at| seen[block(at)] = seen[block(at)].max(x.data()[at].abs()));
    let code = |at: usize| {
        let y = f64::from(x.data()[at] / (seen[block(at)] / 448.0));
        Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
    };
    let mut w = Writer::new("cast");
    w.values("a", &[n, n], &x).raw("out.codes", Dtype::F8_E4M3, &[n, n], (0..n * n).map(code).collect());
    w.f32s("out.scale_inv", &[3, 3], &seen.map(|s| s / 448.0)).meta("out.granularity", "block:16x16");
    is_named(&w, "amax_scope:out.amax_part", &["amax is that of rows 0 … 11 of each group alone"]);
}

/// The programs of a norm store their amax one after the other: the last one's, of three rows, is left.
#[test]
fn an_amax_of_the_last_rows_of_a_norm_is_named() {
    let (rows, cols) = (27, 160);
    let mut data = values(Format::F32, rows, cols, 59).data().to_vec();
    (data[7 * cols + 3], data[9 * cols + 5]) = (9.0, -9.0);
    let x = Tensor::new(Format::F32, rows, cols, data).unwrap();
    let y = |at: usize| {
        let square = x.row(at / cols).iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / cols as f64;
        f64::from(x.data()[at]) / (square + 1e-5).sqrt()
    };
    let code = |at: usize| Format::E4m3.encode(y(at) * 16.0, Rounding::NearestEven, Overflow::Saturate) as u8;
    let amax = (24 * cols..rows * cols).map(y).fold(0.0f64, |m, v| m.max(v.abs()));
    let mut w = Writer::new("rmsnorm");
    w.meta("eps", "1e-5").values("a", &[rows, cols], &x).f32s("gamma", &[cols], &[1.0; 160]);
    w.raw("out.codes", Dtype::F8_E4M3, &[rows, cols], (0..rows * cols).map(code).collect());
    w.f32s("out.scale", &[1], &[16.0]).f32s("out.scale_inv", &[1], &[1.0 / 16.0]).f32s("out.amax", &[1], &[amax as f32]);
    is_named(&w, "amax_scope:last_tile", &["perhaps that of rows 24 … 26, the last tile of 8, alone"]);
}

#[test]
fn an_amax_over_other_rows_is_named() {
    let (rows, cols) = (24, 64);
    let x = values(Format::Bf16, rows, cols, 54);
    let amax: Vec<f32> = (0..rows).map(|i| x.row(i).iter().fold(0f32, |m, v| m.max(v.abs()))).collect();
    let cast = |of: &dyn Fn(usize) -> Vec<usize>| {
        let scale: Vec<f32> = (0..rows).map(|i| of(i).iter().map(|r| amax[*r]).fold(0.0, f32::max) / 448.0).collect();
        let code = |at: usize| {
            let y = f64::from(x.data()[at] * (1.0 / scale[at / cols]));
            Format::E4m3.encode(y, Rounding::NearestEven, Overflow::Saturate) as u8
        };
        let mut w = Writer::new("cast");
        w.values("a", &[rows, cols], &x).raw("out.codes", Dtype::F8_E4M3, &[rows, cols], (0..rows * cols).map(code).collect());
        w.f32s("out.scale_inv", &[rows], &scale).meta("out.granularity", "row").meta("recipe", "float8_rowwise_gw_hp");
        w
    };
    type Rows<'x> = Box<dyn Fn(usize) -> Vec<usize> + 'x>;
    let ways: Vec<(&str, Rows)> = vec![
        ("also covers the row before it", Box::new(|i| (i.saturating_sub(1)..=i).collect())),
        ("also covers the 3 rows before it", Box::new(|i| (i.saturating_sub(3)..=i).collect())),
        ("also covers the row after it", Box::new(|i| (i..rows.min(i + 2)).collect())),
        ("also covers the 2 rows after it", Box::new(|i| (i..rows.min(i + 3)).collect())),
        ("covers all rows before it: the maximum is not reset", Box::new(|i| (0..=i).collect())),
        ("is that of 4 rows together", Box::new(|i| (i / 4 * 4..i / 4 * 4 + 4).collect())),
        ("is that of all rows that are a multiple of 6 away", Box::new(|i| (i % 6..rows).step_by(6).collect())),
    ];
    for (words, of) in ways {
        is_named(&cast(&*of), "amax_scope:out.amax_rows", &[words]);
    }
}

#[test]
fn metadata_that_would_have_been_right_are_named() {
    let (rows, cols) = (16, 96);
    let (x, gamma) = (values(Format::F32, rows, cols, 55), values(Format::F32, 1, cols, 56));
    let norm = |given: bool, done: bool, eps: f64| {
        let one = |at: usize| {
            let row: Vec<f64> = x.row(at / cols).iter().map(|v| f64::from(*v)).collect();
            let square = row.iter().map(|v| v * v).sum::<f64>() / cols as f64;
            let g = f64::from(gamma.data()[at % cols]) + if done { 1.0 } else { 0.0 };
            (row[at % cols] / (square + eps).sqrt() * g) as f32
        };
        let mut w = Writer::new("rmsnorm");
        w.meta("eps", "1e-5").meta("zero_centered_gamma", given).values("a", &[rows, cols], &x);
        w.values("gamma", &[cols], &gamma);
        w.values("out", &[rows, cols], &Tensor::rounded(Format::F32, rows, cols, (0..rows * cols).map(one).collect()).unwrap());
        found(&w)
    };
    assert_eq!((norm(false, false, 1e-5).1, norm(true, true, 1e-5).1), (String::new(), String::new()));
    let detail = |given, done, eps| norm(given, done, eps).2;
    assert!(detail(false, true, 1e-5).contains("the result of `zero_centered_gamma` = true"), "{}", detail(false, true, 1e-5));
    assert!(detail(true, false, 1e-5).contains("1 is not added to gamma"), "{}", detail(true, false, 1e-5));
    assert!(detail(false, false, 1e-3).contains("the result of `eps` = 1e-3"), "{}", detail(false, false, 1e-3));
}

/// The released torchao takes the least scale byte for a factor of 2^126, which doubles nothing: the codes are half of the revision's.
#[test]
fn the_least_byte_of_a_scale_is_read_by_version() {
    let mut data = vec![0f32; 32];
    // The largest is 1.5·2^-127: its byte is 0 in both.
    data[0] = f32::from_bits(0x0060_0000);
    let x = Tensor::new(Format::F32, 1, 32, data).unwrap();
    let of = |recipe: &str| {
        let q = recipe.parse::<Recipe>().unwrap().quantize(&x).unwrap().q;
        (f64::from(q.scale_inv()[0]), q.format().decode(u32::from(q.codes()[0])))
    };
    let least = 2f64.powi(-127);
    for mode in ["floor", "ceil", "even"] {
        assert_eq!(of(&format!("mx_{mode}_v018")), (least, 0.75), "{mode}");
        assert_eq!(of(&format!("mx_{mode}")), (least, 1.5), "{mode}");
    }
}
