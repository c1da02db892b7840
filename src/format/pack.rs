//! Two 4-bit codes in a byte. (6-bit codes are stored one a byte; nothing here packs them.)

use crate::{Error, Result};

/// Which nibble holds the code of even index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NibbleOrder {
    /// Code 2i in bits 3:0, code 2i+1 in bits 7:4: CUTLASS sub-byte iterators, torchao s8s4 and MX, TE NVFP4, OCP fp4x2.
    LowFirst,
    /// Code 2i in bits 7:4, code 2i+1 in bits 3:0: tinygemm on CUDA before its own repacking.
    HighFirst,
}

impl NibbleOrder {
    pub fn name(self) -> &'static str {
        match self {
            NibbleOrder::LowFirst => "low_first",
            NibbleOrder::HighFirst => "high_first",
        }
    }
}

impl std::str::FromStr for NibbleOrder {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let all = [NibbleOrder::LowFirst, NibbleOrder::HighFirst];
        all.into_iter().find(|o| o.name() == s).ok_or_else(|| Error::unknown("nibble order", s, all.map(NibbleOrder::name)))
    }
}

/// Packs 4-bit codes (one a byte, in the low bits; signed ones as two's complement of 4 bits) into half as many bytes. Errors:
/// an odd count (pad the row yourself, with the code your kernel expects there); a code above 15.
pub fn pack4(codes: &[u8], order: NibbleOrder) -> Result<Vec<u8>> {
    if !codes.len().is_multiple_of(2) {
        return Err(Error::shape("4-bit codes to pack", format!("{} codes", codes.len()), "an even count"));
    }
    let all = codes.iter().fold(0, |all, c| all | c);
    if all > 15 {
        let c = codes.iter().max().expect("not empty: a code above 15 is in it");
        return Err(Error::value("4-bit code", format!("{c:#x}"), "0x0 to 0xf"));
    }
    let byte = |pair: &[u8]| match order {
        NibbleOrder::LowFirst => pair[1] << 4 | pair[0],
        NibbleOrder::HighFirst => pair[0] << 4 | pair[1],
    };
    Ok(codes.chunks_exact(2).map(byte).collect())
}

/// The codes of packed bytes, one a byte, twice as many: the inverse of [`pack4`].
pub fn unpack4(bytes: &[u8], order: NibbleOrder) -> Vec<u8> {
    let pair = |b: &u8| match order {
        NibbleOrder::LowFirst => [b & 15, b >> 4],
        NibbleOrder::HighFirst => [b >> 4, b & 15],
    };
    bytes.iter().flat_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn orders_are_what_they_say() {
        assert_eq!(pack4(&[0x1, 0xa, 0xf, 0x0], NibbleOrder::LowFirst).unwrap(), [0xa1, 0x0f]);
        assert_eq!(pack4(&[0x1, 0xa, 0xf, 0x0], NibbleOrder::HighFirst).unwrap(), [0x1a, 0xf0]);
        // −1 then 7, low first: the arithmetic shifts of the source give the same values.
        let byte = pack4(&[0xf, 0x7], NibbleOrder::LowFirst).unwrap()[0] as i8;
        assert_eq!(((byte << 4) >> 4, byte >> 4), (-1, 7));
        assert_eq!(Format::Int4.decode(u32::from(unpack4(&[byte as u8], NibbleOrder::LowFirst)[0])), -1.0);
    }

    #[test]
    fn every_byte_survives_and_bad_codes_do_not() {
        let bytes: Vec<u8> = (0..=255).collect();
        for order in [NibbleOrder::LowFirst, NibbleOrder::HighFirst] {
            assert_eq!(pack4(&unpack4(&bytes, order), order).unwrap(), bytes);
            assert_eq!(order.name().parse::<NibbleOrder>().unwrap(), order);
            assert!(pack4(&[1], order).is_err() && pack4(&[1, 16], order).is_err());
            assert!(pack4(&[], order).unwrap().is_empty());
        }
        assert!("low".parse::<NibbleOrder>().is_err());
    }
}
