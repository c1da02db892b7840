//! Places that an index of another shape reads: scales of groups, of blocks and of flat lists, and bits of codes that are packed apart.

use super::Writer;
use super::named_tests::{found, is_named};
use crate::compare::Verdict;
use crate::{Format, Tensor};
use safetensors::Dtype;

/// A number in 0 … 1 for every place.
fn noise(x: usize) -> f64 {
    ((x * x * 7919 + x * 613 + 101) % 65_521) as f64 / 65_521.0
}

fn fp8(seed: usize, at: usize) -> u8 {
    let code = (112.0 * noise(31 * seed + at)) as u8;
    code + if noise(at + 5 * seed + 3) < 0.4 { 128 } else { 0 }
}

/// A gradient of three experts' weights whose scales are read at these places of their lists: of group e and line x, with so many lines.
type Place<'p> = &'p dyn Fn(usize, usize, usize) -> usize;

fn gradient(of_a: Place, of_b: Place) -> Writer {
    let (m, n, k, ends) = (32usize, 40usize, 96usize, [32usize, 80, 96]);
    let codes = |seed: usize, lines: usize| (0..lines * k).map(|at| fp8(seed, at)).collect::<Vec<u8>>();
    let scales =
        |seed: usize, lines: usize| (0..3 * lines).map(|x| (0.5 + 2.0 * noise(seed + 17 * x)) as f32).collect::<Vec<f32>>();
    let (a, b, sa, sb) = (codes(1, m), codes(2, n), scales(3, m), scales(4, n));
    let value = |c: u8| Format::E4m3.decode(u32::from(c));
    let scale = |list: &[f32], at: usize| list.get(at).map_or(0.0, |x| f64::from(*x));
    let one = |x: usize| {
        let (e, i, j) = (x / (m * n), x / n % m, x % n);
        let tokens = if e == 0 { 0 } else { ends[e - 1] }..ends[e];
        let sum: f64 = tokens.map(|t| value(a[i * k + t]) * value(b[j * k + t])).sum();
        (sum * scale(&sa, of_a(e, i, m)) * scale(&sb, of_b(e, j, n))) as f32
    };
    let mut w = Writer::new("grouped_gemm_wgrad");
    w.meta("a.granularity", "row").meta("b.granularity", "row").i32s("offs", &[3], &ends.map(|x| x as i32));
    w.raw("a.codes", Dtype::F8_E4M3, &[m, k], a.clone()).raw("b.codes", Dtype::F8_E4M3, &[n, k], b.clone());
    w.f32s("a.scale_inv", &[3, m], &sa).f32s("b.scale_inv", &[3, n], &sb);
    w.values("out", &[3, m, n], &Tensor::rounded(Format::F32, 3 * m, n, (0..3 * m * n).map(one).collect()).unwrap());
    w
}

#[test]
fn scales_of_groups_whose_index_has_lines_and_groups_exchanged_are_named() {
    let own: Place = &|e, x, lines| e * lines + x;
    let turned: Place = &|e, x, _| x * 3 + e;
    assert_ne!(found(&gradient(own, own)).0, Verdict::Fail);
    is_named(
        &gradient(turned, own),
        "scale_layout:a.index",
        &["scale of a", "looked up at x·E + e, as if they stood line by line"],
    );
    is_named(&gradient(own, turned), "scale_layout:b.index", &["scale of b", "L = 40 lines"]);
    is_named(&gradient(turned, turned), "scale_layout:a.index", &["x·E + e", "of b as well"]);
    // Written at x·E + e, read as they should be.
    let stored: Place = &|e, x, lines| (e * lines + x) % 3 * lines + (e * lines + x) / 3;
    is_named(&gradient(stored, own), "scale_layout:a.index", &["looked up at e·L + x, though they stand line by line"]);
    // Padded for another kernel: 40 lines to 64.
    is_named(&gradient(own, &|e, x, _| e * 64 + x), "scale_layout:b.index", &["64 lines on for each group instead of 40"]);
    // M and N exchanged.
    let words = ["read 32 lines on for each group, the lines of a, instead of 40"];
    is_named(&gradient(own, &|e, x, _| e * 32 + x), "scale_layout:b.index", &words);
    let words = ["read 40 lines on for each group, the lines of b, instead of 32", "0 behind the last"];
    is_named(&gradient(&|e, x, _| e * 40 + x, own), "scale_layout:a.index", &words);
}

/// Groups of 45, 70, 0, 83 and 90 tokens: the last block of 32 of each is loaded from the next one that has tokens, at the same place, by the group's own
/// scales. What has no tokens holds `old`.
fn next_groups(blocks: &dyn Fn(usize, usize) -> Option<usize>, old: &dyn Fn(usize) -> f32) -> Writer {
    let (m, n, k, ends) = (24usize, 20usize, 288usize, [45usize, 115, 115, 198, 288]);
    let codes = |seed: usize, lines: usize| (0..lines * k).map(|at| fp8(seed, at)).collect::<Vec<u8>>();
    let scales =
        |seed: usize, lines: usize| (0..5 * lines).map(|x| (0.5 + 2.0 * noise(seed + 17 * x)) as f32).collect::<Vec<f32>>();
    let (a, b, sa, sb) = (codes(11, m), codes(12, n), scales(13, m), scales(14, n));
    let value = |c: u8| Format::E4m3.decode(u32::from(c));
    let start = |e: usize| if e == 0 { 0 } else { ends[e - 1] };
    let one = |x: usize| {
        let (e, i, j) = (x / (m * n), x / n % m, x % n);
        let product = |t: usize| value(a[i * k + t]) * value(b[j * k + t]);
        let last = start(e) + (ends[e] - start(e)).saturating_sub(1) / 32 * 32;
        let sum: f64 = match blocks(e, x) {
            _ if start(e) == ends[e] => return old(x),
            None => (start(e)..ends[e]).map(product).sum(),
            Some(other) => {
                let from = start(other) + last - start(e);
                (start(e)..last).chain(from..(from + 32).min(ends[other])).map(product).sum()
            }
        };
        (sum * f64::from(sa[e * m + i]) * f64::from(sb[e * n + j])) as f32
    };
    let mut w = Writer::new("grouped_gemm_wgrad");
    w.meta("a.granularity", "row").meta("b.granularity", "row").i32s("offs", &[5], &ends.map(|x| x as i32));
    w.raw("a.codes", Dtype::F8_E4M3, &[m, k], a.clone()).raw("b.codes", Dtype::F8_E4M3, &[n, k], b.clone());
    w.f32s("a.scale_inv", &[5, m], &sa).f32s("b.scale_inv", &[5, n], &sb);
    w.values("out", &[5, m, n], &Tensor::rounded(Format::Bf16, 5 * m, n, (0..5 * m * n).map(one).collect()).unwrap());
    w
}

#[test]
fn a_last_block_of_the_next_group_is_named_beside_what_nobody_wrote() {
    let next = |e: usize, _: usize| [Some(1), Some(3), None, Some(4), None][e];
    let old = |x: usize| (200.0 * (noise(x + 77) - 0.5)) as f32;
    let words = ["the last block of 32 tokens", "both operands", "the next group that has tokens", "by the group's own scales"];
    is_named(&next_groups(&next, &|_| 0.0), "acc_state:both.next_group", &words);
    let found_two = found(&next_groups(&next, &old));
    assert_eq!(found_two.1, "acc_state:both.next_group + silent_skip:out.group_skipped", "{}", found_two.2);
    // Another group for every element is none.
    let any = |_: usize, x: usize| Some([0, 1, 3, 4][(4.0 * noise(x + 5)) as usize]);
    assert!(!found(&next_groups(&any, &|_| 0.0)).1.contains("next_group"));
}

/// A gradient of weights of int8 codes, 10×14 by 77 tokens in three groups, the second of them empty.
#[test]
fn a_gradient_of_integers_is_judged() {
    let (m, n, k, ends) = (10usize, 14usize, 77usize, [30usize, 30, 77]);
    let gradient = |wrong: f64| {
        let codes =
            |seed: usize, lines: usize| (0..lines * k).map(|at| (255.0 * noise(seed + 13 * at)) as u8).collect::<Vec<u8>>();
        let scales = |seed: usize, lines: usize| {
            (0..3 * lines).map(|x| (0.01 + 0.02 * noise(seed + 17 * x)) as f32).collect::<Vec<f32>>()
        };
        let (a, b, sa, sb) = (codes(21, m), codes(22, n), scales(23, m), scales(24, n));
        let one = |x: usize| {
            let (e, i, j) = (x / (m * n), x / n % m, x % n);
            let tokens = if e == 0 { 0 } else { ends[e - 1] }..ends[e];
            let sum: i32 = tokens.map(|t| i32::from(a[i * k + t] as i8) * i32::from(b[j * k + t] as i8)).sum();
            let by = if x == 5 { wrong } else { 1.0 };
            (f64::from(sum) * f64::from(sa[e * m + i]) * f64::from(sb[e * n + j]) * by) as f32
        };
        let mut w = Writer::new("grouped_gemm_wgrad");
        w.meta("a.granularity", "row").meta("b.granularity", "row").i32s("offs", &[3], &ends.map(|x| x as i32));
        w.meta("a.format", "int8").meta("b.format", "int8");
        w.raw("a.codes", Dtype::I8, &[m, k], a.clone()).raw("b.codes", Dtype::I8, &[n, k], b.clone());
        w.f32s("a.scale_inv", &[3, m], &sa).f32s("b.scale_inv", &[3, n], &sb);
        w.values("out", &[3, m, n], &Tensor::rounded(Format::F16, 3 * m, n, (0..3 * m * n).map(one).collect()).unwrap());
        w
    };
    assert_eq!(found(&gradient(1.0)).0, Verdict::Pass);
    assert_eq!(found(&gradient(1.01)).0, Verdict::Fail);
}

/// A dequantization of FP8 whose scales are read at these places of the list.
fn dequantized(
    (rows, k): (usize, usize),
    granularity: &str,
    grid: (usize, usize),
    place: impl Fn(usize, usize) -> usize,
) -> Writer {
    let codes: Vec<u8> = (0..rows * k).map(|at| fp8(5, at)).collect();
    let scales: Vec<f32> = (0..grid.0 * grid.1).map(|x| (0.1 + 3.0 * noise(6 + 29 * x)) as f32).collect();
    let one = |at: usize| Format::E4m3.decode(u32::from(codes[at])) as f32 * scales[place(at / k, at % k)];
    let mut w = Writer::new("dequantize");
    w.meta("a.granularity", granularity).raw("a.codes", Dtype::F8_E4M3, &[rows, k], codes.clone());
    w.f32s("a.scale_inv", &[grid.0, grid.1], &scales);
    w.values("out", &[rows, k], &Tensor::rounded(Format::Bf16, rows, k, (0..rows * k).map(one).collect()).unwrap());
    w
}

#[test]
fn a_flat_index_of_bytes_and_a_block_with_its_sides_exchanged_are_named() {
    let halved = dequantized((32, 256), "group:64", (32, 4), |i, k| (i * 4 + k / 64) / 2);
    is_named(&halved, "scale_layout:a.index", &["place ⌊(r·4 + c) / 2⌋ of all"]);
    let blocks = |place: &dyn Fn(usize, usize) -> usize| dequantized((160, 144), "block:64x16", (3, 9), place);
    let exchanged = blocks(&|i, k| (i / 16).min(2) * 9 + (k / 64).min(8));
    is_named(&exchanged, "scale_layout:a.exchanged_block", &["blocks of 16×64 instead of 64×16", "the last at its ends"]);
    assert_ne!(found(&blocks(&|i, k| i / 64 * 9 + k / 16)).0, Verdict::Fail);
}

/// Codes of five bits whose fifth is that of the code at `from(row, place of 256)`.
fn five_bits(from: impl Fn(usize, usize) -> usize) -> Writer {
    let (rows, k) = (40, 512);
    let codes: Vec<u8> = (0..rows * k).map(|at| (32.0 * noise(7 + 3 * at)) as u8).collect();
    let scales: Vec<f32> = (0..rows * k / 32).map(|x| (0.1 + noise(8 + 23 * x)) as f32).collect();
    let one = |at: usize| {
        let other = codes[at / 256 * 256 + from(at / k, at % 256)];
        f32::from(codes[at] & 15 | other & 16) * scales[at / 32]
    };
    let mut w = Writer::new("dequantize");
    w.meta("a.granularity", "group:32").meta("a.format", "int8").raw("a.codes", Dtype::I8, &[rows, k], codes.clone());
    w.f32s("a.scale_inv", &[rows, k / 32], &scales);
    w.values("out", &[rows, k], &Tensor::rounded(Format::F32, rows, k, (0..rows * k).map(one).collect()).unwrap());
    w
}

#[test]
fn a_bit_that_is_packed_apart_and_read_from_another_code_is_named() {
    assert_ne!(found(&five_bits(|_, x| x)).0, Verdict::Fail);
    let words = ["bit 4 of each is that of the code at (x mod 8)·32 + x / 8", "every 256 of K", "the other bits are its own"];
    is_named(&five_bits(|_, x| x % 8 * 32 + x / 8), "pack_permute:a.bit_order", &words);
    // No rule, but the same in every 256.
    let words = ["bit 4 of each is that of the code at another place of every 256 of K: 1 ← 7, 2 ← 14"];
    is_named(&five_bits(|_, x| x * 7 % 256), "pack_permute:a.bit_order", &words);
    // Another one in each row.
    assert!(!found(&five_bits(|i, x| (x * 7 + 11 * i) % 256)).1.contains("bit_order"));
}

/// A gradient of three experts' weights of two columns: as many rows of b as no expert has.
#[test]
fn a_gradient_of_fewer_columns_than_groups_is_diagnosed() {
    let (m, n, k) = (24usize, 2usize, 96usize);
    let (a, b): (Vec<u8>, Vec<u8>) = ((0..m * k).map(|at| fp8(31, at)).collect(), (0..n * k).map(|at| fp8(32, at)).collect());
    let value = |c: u8| Format::E4m3.decode(u32::from(c));
    let scales = [0.5f32, 1.0, 1.5];
    // Its columns are exchanged.
    let one = |x: usize| {
        let (e, i, j) = (x / (m * n), x / n % m, x % n);
        let sum: f64 = (32 * e..32 * e + 32).map(|t| value(a[i * k + t]) * value(b[(1 - j) * k + t])).sum();
        (sum * f64::from(scales[e])) as f32
    };
    let mut w = Writer::new("grouped_gemm_wgrad");
    w.raw("a.codes", Dtype::F8_E4M3, &[m, k], a.clone()).raw("b.codes", Dtype::F8_E4M3, &[n, k], b.clone());
    w.f32s("a.scale_inv", &[3], &scales).f32s("b.scale_inv", &[3], &[1.0; 3]).i32s("offs", &[3], &[32, 64, 96]);
    w.f32s("out", &[3, m, n], &(0..3 * m * n).map(one).collect::<Vec<_>>());
    let found = found(&w);
    assert_eq!(found.0, Verdict::Fail, "{}", found.1);
    assert!(!found.2.is_empty(), "it says something");
}

/// FP8 gradients of three groups, by scales far below 1; the second has no tokens, and scales of 1 that nobody looks at. Subnormal codes are among the
/// others: what they may lose is in units of the scales that are used.
#[test]
fn scales_of_a_group_without_tokens_do_not_widen_the_bound() {
    let (m, n, k, ends) = (20usize, 24usize, 90usize, [29usize, 29, 90]);
    let codes = |seed: usize, lines: usize| (0..lines * k).map(|at| fp8(seed, at)).collect::<Vec<u8>>();
    let scales = |seed: usize, lines: usize| {
        let one = |x: usize| if x / lines == 1 { 1.0 } else { (2e-6 + 1e-5 * noise(seed + 17 * x)) as f32 };
        (0..3 * lines).map(one).collect::<Vec<f32>>()
    };
    let (mut a, b, sa, sb) = (codes(21, m), codes(22, n), scales(23, m), scales(24, n));
    a.iter_mut().step_by(7).for_each(|c| *c &= 0x83);
    let value = |f: Format, c: u8| f.decode(u32::from(c));
    let of = |starts: [usize; 3]| {
        let one = |x: usize| {
            let (e, i, j) = (x / (m * n), x / n % m, x % n);
            let product = |t: usize| value(Format::E5m2, a[i * k + t]) * value(Format::E4m3, b[j * k + t]);
            let sum: f64 = (starts[e]..ends[e]).map(product).sum();
            (sum * f64::from(sa[e * m + i]) * f64::from(sb[e * n + j])) as f32
        };
        let mut w = Writer::new("grouped_gemm_wgrad");
        w.meta("a.granularity", "row").meta("b.granularity", "row").i32s("offs", &[3], &ends.map(|x| x as i32));
        w.raw("a.codes", Dtype::F8_E5M2, &[m, k], a.clone()).raw("b.codes", Dtype::F8_E4M3, &[n, k], b.clone());
        w.f32s("a.scale_inv", &[3, m], &sa).f32s("b.scale_inv", &[3, n], &sb);
        w.f32s("out", &[3, m, n], &(0..3 * m * n).map(one).collect::<Vec<f32>>());
        w
    };
    assert_eq!(found(&of([0, 29, 29])).0, Verdict::Pass);
    let early = of([0, 29, 16]);
    assert_eq!(found(&early).0, Verdict::Fail, "far outside of the bound, and not only suspect");
    is_named(&early, "group_boundary:tokens_of_groups", &["group 2 sums tokens 16 … 90 instead of 29 … 90"]);
}
