//! The generator of `record.py` and `examples/vendor_record.rs`: SplitMix64 of the index, seed and stream.

/// Word `i` of a stream.
pub fn word(seed: u64, stream: u64, i: u64) -> u64 {
    let base = seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(stream.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut z = base.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A significand of 17 bits, an exponent in −3..=3.
pub fn positive(seed: u64, stream: u64, i: usize) -> f32 {
    let w = word(seed, stream, i as u64);
    let exponent = ((w >> 32) % 7) as i32 - 3;
    (f64::from(65536 + (w & 0xffff) as u32) / 65536.0 * f64::from(exponent).exp2()) as f32
}
