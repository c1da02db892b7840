//! Names that few kernels earn: packing along the other axis with K first, codes with another sign, results beyond a format, tiles exchanged within
//! larger ones, and rules of tokens. Each is replayed by its own formula, and beside it what must not have the name.

use super::tests::{M, N, codes, found, sum, wgrad_found, wide};
use crate::Format;

const K: usize = 64;

/// A tensor that lies with K first, whose bytes of two codes are taken for those of the other axis: what is read of memory is written down.
#[test]
fn bytes_along_the_other_axis_are_told_with_k_first() {
    let (a, b) = (wide(M, K), codes(Format::E2m1, N, K, K, false, 201));
    let x = a.to_f64();
    // The row and k of a nibble where a byte holds two of K, and where it holds two of N.
    let of_k = |byte: usize, n: usize| (byte < N * K / 2).then_some((byte % N, 2 * (byte / N) + n));
    let of_n = |byte: usize, n: usize| (2 * (byte % (N / 2)) + n, byte / (N / 2));
    type Place<'p> = &'p dyn Fn(usize, usize) -> Option<(usize, usize)>;
    let ways: [(Place, &str); 4] = [
        (
            &|j, k| of_k(k * N + j / 2, j % 2),
            "two of N in a byte of [K, N/2], although a byte of [K/2, N] holds two of K; 0 from",
        ),
        (&|j, k| of_k(k * (N / 2) + j / 2, j % 2), "two of N in a byte of [K, N/2]"),
        (
            &|j, k| (j < N / 2).then(|| of_n(k / 2 * (N / 2) + j, k % 2)),
            "two of K in a byte of [K/2, N], although a byte of [K, N/2] holds two of N; 0 from",
        ),
        (&|j, k| Some(of_n(k / 2 * N + j, k % 2)), "two of K in a byte of [K/2, N]"),
    ];
    for (place, words) in ways {
        let got = found(&a, &b, None, Format::F32, |i, j, _| {
            let code = |k: usize| place(j, k).map_or(0.0, |(r, k)| Format::E2m1.decode(u32::from(b.codes()[r * K + k])));
            sum(K, |k| x[[i, k]] * code(k)) * f64::from(b.scale_inv()[j])
        });
        assert_eq!(got.0, "pack_permute:b.packed_axis", "{words}: {}", got.1);
        assert!(got.1.contains(words), "{words}: {}", got.1);
    }
}

#[test]
fn codes_with_the_sign_of_an_integer_are_told() {
    let (a, b) = (wide(M, K), codes(Format::E2m1, N, K, K, false, 202));
    let x = a.to_f64();
    let value = |c: u8| Format::E2m1.decode(u32::from(c));
    let of = |table: &dyn Fn(u8) -> f64| {
        found(&a, &b, None, Format::F32, |i, j, _| {
            sum(K, |k| x[[i, k]] * table(b.codes()[j * K + k])) * f64::from(b.scale_inv()[j])
        })
    };
    let twos = |lowest: f64| {
        of(&|c| match c {
            0..8 => value(c),
            8 => lowest,
            c => -value(16 - c),
        })
    };
    for (lowest, words) in [(-6.0, "the lowest as -6"), (0.0, "the lowest as 0")] {
        let got = twos(lowest);
        assert_eq!(got.0, "bits_reinterpreted:b.twos_complement", "{}", got.1);
        assert!(got.1.contains(words), "{}", got.1);
    }
    let got = of(&|c| if c < 8 { value(c) } else { -value(15 - c) });
    // A table with one half reversed is the same.
    assert!(["ones_complement", "table_order"].map(|x| format!("bits_reinterpreted:b.{x}")).contains(&got.0), "{}", got.1);
    // No sign at all is neither.
    let got = of(&|c| value(c & 7));
    assert!(!got.0.contains("complement"), "{}", got.0);
}

#[test]
fn results_beyond_their_format_that_are_no_numbers_are_told() {
    let (a, b) = (wide(M, K), codes(Format::E4m3, N, K, K, false, 203));
    // By a scale of 32: from 464 on they do not round to 448.
    let of = |lost: &dyn Fn(usize, f64) -> bool| {
        found(&a, &b, None, Format::E4m3, |i, j, right| {
            let y = right[i * N + j];
            if lost(i, 32.0 * y.abs()) { f64::NAN } else { y }
        })
    };
    let got = of(&|_, y| y > 464.0);
    assert_eq!(got.0, "overflow_wrap:out.native_beyond", "{}", got.1);
    // Those of some rows alone are lost to something else.
    let got = of(&|i, y| i % 4 == 1 && y > 300.0);
    assert_ne!(got.0, "overflow_wrap:out.native_beyond", "{}", got.1);
}

#[test]
fn tiles_exchanged_within_every_few_are_told() {
    for (by, n) in [(2, 96), (4, 128)] {
        let (a, b) = (wide(64, K), codes(Format::Int8, n, K, K, false, 204));
        // Tile (i, j) of every by×by holds tile (j, i) of it.
        let from = |i: usize, j: usize| {
            let (ti, tj) = (i / 16, j / 16);
            ((ti / by * by + tj % by) * 16 + i % 16, (tj / by * by + ti % by) * 16 + j % 16)
        };
        let got = found(&a, &b, None, Format::F32, |i, j, right| {
            let (x, y) = from(i, j);
            right[x * n + y]
        });
        assert_eq!(got.0, "addressing:out.tiles_moved", "{}", got.1);
        assert!(got.1.contains(&format!("those of every {by}×{by} are exchanged across the diagonal")), "{}", got.1);
    }
}

#[test]
fn rules_of_tokens_stand_before_their_list() {
    let (ends, k_all) = ([37, 37, 101, 190], 190);
    let (a, b) = (wide(12, k_all), codes(Format::Int8, 20, k_all, k_all, false, 205));
    let (x, y) = (a.to_f64(), b.dequantize());
    let of = |cut: [std::ops::Range<usize>; 4]| {
        wgrad_found(&a, &b, &ends, Format::F32, |i, j| cut[i / 12].clone().map(|k| x[[i % 12, k]] * y[[j, k]]).sum())
    };
    let got = of([0..37, 37..37, 32..101, 96..190]);
    assert_eq!(got.0, "group_boundary:tokens_of_groups", "{}", got.1);
    assert!(got.1.starts_with("every group starts at its first token rounded down to a multiple of 32"), "{}", got.1);
    // Starts that move, and a tail that is lost, are two faults.
    let got = of([0..37, 37..37, 32..101, 96..160]);
    assert!(got.0.ends_with(" + k_tail:k.last_tokens"), "{} {}", got.0, got.1);
    // Ends at no rule are listed alone.
    let got = of([0..36, 37..37, 38..101, 102..189]);
    assert_eq!(got.0, "group_boundary:tokens_of_groups", "{}", got.1);
    assert!(!got.1.contains("every group") && !got.0.contains(" + "), "{} {}", got.0, got.1);
}
