//! Philox4x32-10: the counter-based generator that makes every random number of qassay.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Random123).

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox4x32 on `counter` under `key`: 128 random bits.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let p0 = u64::from(MULTIPLIERS[0]) * u64::from(c0);
        let p1 = u64::from(MULTIPLIERS[1]) * u64::from(c2);
        (c0, c1, c2, c3) = ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

/// One of the 2³² independent streams of a seed. `words` is a pure function, so elements can be made in any order, on any
/// machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    seed: u64,
    stream: u32,
}

impl Stream {
    pub fn new(seed: u64, stream: u32) -> Self {
        Self { seed, stream }
    }
    /// Four random words for `index` and `purpose`: Philox of counter (index low, index high, purpose, stream) under key
    /// (seed low, seed high). Purposes keep the draws for elements, row gains and column gains apart.
    pub fn words(self, purpose: u32, index: u64) -> [u32; 4] {
        let counter = [index as u32, (index >> 32) as u32, purpose, self.stream];
        philox4x32_10(counter, [self.seed as u32, (self.seed >> 32) as u32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors of Random123 (`kat_vectors`, philox4x32 10).
    #[test]
    fn known_answers_of_random123() {
        let f = u32::MAX;
        for (counter, key, want) in [
            ([0, 0, 0, 0], [0, 0], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([f, f, f, f], [f, f], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox4x32_10(counter, key), want);
        }
    }

    #[test]
    fn seed_stream_purpose_and_index_all_matter() {
        let base = Stream::new(1, 2).words(3, 4);
        assert_eq!(base, philox4x32_10([4, 0, 3, 2], [1, 0]));
        for other in [
            Stream::new(1 << 32 | 1, 2).words(3, 4),
            Stream::new(1, 3).words(3, 4),
            Stream::new(1, 2).words(2, 4),
            Stream::new(1, 2).words(3, 1 << 32 | 4),
        ] {
            assert_ne!(base, other);
        }
    }
}
