//! How the codes of a word are put together with OR, and what is wrong with it: shifts that are not a lane each, codes that are not masked.
//!
//! ```text
//! word = OR over n of code(n) << w·n                     right: lanes of w bits, the first the lowest
//! word = OR over n of signed(code(n)) << w·n             not masked: a negative code fills every lane above its own with ones
//! word = OR over n of code(n) << w·(n mod m), w·⌊n / m⌋, c·n          what meets is ORed; where nothing goes is 0
//! ```

use super::maps::cost;

/// Bits of a word, at most.
const WORD: u32 = 64;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// Codes are extended by their sign and not masked; the first is the lowest lane, or the highest.
    Extended { high_first: bool },
    /// Code n goes to lane n mod this.
    Mod(usize),
    /// Code n goes to lane n over this.
    Over(usize),
    /// Codes are so many bits apart.
    Apart(u32),
}

/// One way to pack so many codes of so many bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packing {
    pub lanes: usize,
    pub width: u32,
    pub how: How,
}

impl Packing {
    /// All of them, of words of 2, 4 and 8 codes; codes without a sign are not extended by one.
    pub fn ways(width: u32, signed: bool) -> Vec<Self> {
        let mut all = Vec::new();
        for lanes in [4usize, 2, 8].into_iter().filter(|n| *n as u32 * width <= WORD) {
            let mut hows: Vec<How> = Vec::new();
            if signed {
                hows.extend([false, true].map(|high_first| How::Extended { high_first }));
            }
            hows.extend([1, 2, 4].into_iter().filter(|m| *m < lanes).map(How::Mod));
            hows.extend([2, 4].into_iter().filter(|m| *m < lanes).map(How::Over));
            hows.extend([1, width / 2, width - 1, 2 * width].map(How::Apart));
            all.extend(hows.into_iter().map(|how| Self { lanes, width, how }));
        }
        all
    }

    fn mask(self) -> u64 {
        u64::MAX >> (WORD - self.width)
    }

    /// What is read from a lane of the word of these codes.
    pub fn lane(self, place: usize, code: impl Fn(usize) -> u32) -> u32 {
        let (mask, top) = (self.mask(), 1u64 << (self.width - 1));
        let mut word = 0u64;
        for n in 0..self.lanes {
            let own = u64::from(code(n)) & mask;
            let far = self.width * n as u32;
            let (bits, far) = match self.how {
                How::Extended { high_first } => {
                    let far = if high_first { self.width * (self.lanes - 1 - n) as u32 } else { far };
                    (if own & top == 0 { own } else { own | !mask }, far)
                }
                How::Mod(m) => (own, self.width * (n % m) as u32),
                How::Over(m) => (own, self.width * (n / m) as u32),
                How::Apart(c) => (own, c * n as u32),
            };
            if far < WORD {
                word |= bits << far;
            }
        }
        let at = match self.how {
            How::Extended { high_first: true } => self.lanes - 1 - place,
            _ => place,
        };
        (word >> (self.width * at as u32) & mask) as u32
    }

    pub fn bits(self) -> f64 {
        let how = match self.how {
            How::Extended { high_first } => f64::from(u8::from(high_first)),
            How::Mod(m) | How::Over(m) => cost(m),
            How::Apart(c) => 1.0 + cost(c as usize),
        };
        3.0 + cost(self.lanes) + how
    }

    /// Behind "packed with OR, ".
    pub fn words(self) -> String {
        let (lanes, width) = (self.lanes, self.width);
        let word = format!("{lanes} to a word of {} bits: ", lanes as u32 * width);
        let what = match self.how {
            How::Extended { high_first } => {
                let order = if high_first { ", the first the highest" } else { "" };
                format!(
                    "each is extended by its sign and not masked{order}, so that a negative one fills all lanes above it with ones"
                )
            }
            How::Mod(1) => "all are shifted to the first lane, the other lanes are 0".into(),
            How::Mod(m) => format!("code n is shifted by {width}·(n mod {m}) and not by {width}·n, lanes from {m} on are 0"),
            How::Over(m) => {
                format!("code n is shifted by {width}·⌊n / {m}⌋ and not by {width}·n, lanes from {} on are 0", lanes / m)
            }
            How::Apart(c) => format!("code n is shifted by {c}·n and not by {width}·n"),
        };
        word + &what
    }
}

#[cfg(test)]
mod tests {
    use super::{How, Packing};

    fn read(how: How, codes: [u32; 4]) -> [u32; 4] {
        let p = Packing { lanes: 4, width: 8, how };
        [0, 1, 2, 3].map(|place| p.lane(place, |n| codes[n]))
    }

    #[test]
    fn lanes_are_those_of_the_word() {
        let codes = [0x01, 0x82, 0x14, 0x28];
        assert_eq!(read(How::Extended { high_first: false }, codes), [0x01, 0x82, 0xff, 0xff]);
        assert_eq!(read(How::Extended { high_first: true }, codes), [0xff, 0x82, 0x14, 0x28]);
        assert_eq!(read(How::Mod(2), codes), [0x15, 0xaa, 0, 0]);
        assert_eq!(read(How::Over(2), codes), [0x83, 0x3c, 0, 0]);
        assert_eq!(read(How::Mod(1), codes), [0xbf, 0, 0, 0]);
        assert_eq!(read(How::Apart(4), codes), [0x21, 0x9c, 0x02, 0]);
        assert_eq!(read(How::Apart(16), codes), [0x01, 0, 0x82, 0]);
        assert_eq!(read(How::Apart(8), codes), codes);
    }
}
