//! W4A8 of tens of tokens and more by wgmma, everything asked for at once: `kernels/w4a8_wide.cu` (contract there), launched by
//! [`super::w4a8`].

use super::contract::{Contract, Map, Pointer, arguments};
use super::launch::{Launch, LaunchShape, tensor_map};
use super::options::{Type, define};
use super::w4a8::{ProductBuffers, SHARED_LIMIT, W4a8Sizes};
use crate::{Format, Result};

arguments! {
    /// Contract w4a8_wide.
    Arguments = "w4a8_wide.cu" "w4a8_wide" {
        x: Pointer, w: Map, xs: Pointer, ws: Pointer, bias: Pointer, d: Pointer, m: usize, n: usize, k: usize, groups: usize,
    }
}

/// How a problem is cut (words of the contract).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wide {
    phases: usize,
    /// 0: one group.
    group_blocks: usize,
    warpgroups: usize,
    tokens: usize,
    cluster: usize,
    pieces: usize,
}

impl Wide {
    /// For problems without zero points whose numbers are codes already and whose output is f16 or bf16, on `capability` 9.0. `None`
    /// where the contract or speed asks for the other kernel.
    pub fn of(s: &W4a8Sizes, out: Format, capability: (i32, i32)) -> Option<Self> {
        let group_blocks = if s.grouped { (1usize << s.group_shift) / 128 } else { 0 };
        let phases = s.k.div_ceil(256);
        // The fastest measured (docs/tuning/mixed.md).
        let cluster = if s.grouped { 2 } else { 1 };
        let wide = Self { phases, group_blocks, warpgroups: 2, tokens: 32, cluster, pieces: 2 - phases % 2 };
        let takes = !s.weight_zero && !s.small() && s.n.is_multiple_of(8) && matches!(out, Format::F16 | Format::Bf16);
        let fast = s.m > 16 && s.n > 512 && wide.phases <= 8 && capability == (9, 0);
        (takes && fast && wide.shared() <= SHARED_LIMIT).then_some(wide)
    }
    fn features(&self) -> usize {
        64 * self.warpgroups
    }
    fn shared(&self) -> usize {
        let operands = 256 * self.phases * self.tokens + 128 * self.phases * self.features();
        1024 + operands + 2 * self.tokens * (self.features() + 8) + 8 * self.pieces
    }
    /// `scale`: the type of both operands' scales.
    pub fn options(&self, scale: Type, out: Type) -> Vec<String> {
        vec![
            define("PHASES", self.phases),
            define("GROUP_BLOCKS", self.group_blocks),
            define("WARPGROUPS", self.warpgroups),
            define("TOKENS", self.tokens),
            define("CLUSTER", self.cluster),
            define("PIECES", self.pieces),
            define("SCALE", scale),
            define("OUT", out),
        ]
    }
    /// Errors: the driver's, for the map of the weights.
    pub fn launch<'a>(&self, s: &W4a8Sizes, defines: &'a [String], on: &ProductBuffers) -> Result<Launch<'a>> {
        let arguments = Arguments {
            x: on.x.into(),
            w: tensor_map(on.w, s.n, s.k / 2, s.k / 2, (self.features() / self.cluster) as u32)?,
            xs: on.xs,
            ws: on.ws.into(),
            bias: on.bias,
            d: on.d.into(),
            m: s.m,
            n: s.n,
            k: s.k,
            groups: s.groups,
        };
        let tokens = s.m.div_ceil(self.tokens).next_multiple_of(self.cluster);
        let blocks = LaunchShape::of([s.n.div_ceil(self.features()), tokens], 128 * self.warpgroups);
        Ok(arguments.launch(defines, blocks.shared(self.shared())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(m: usize, n: usize, k: usize, group: Option<usize>) -> W4a8Sizes {
        let groups = group.map_or(1, |g| k.div_ceil(g));
        let group_shift = group.map_or(30, |g| g.trailing_zeros() as usize);
        W4a8Sizes { m, n, k, grouped: groups > 1, group_shift, groups, weight_zero: false }
    }

    #[test]
    fn it_takes_what_its_contract_allows() {
        let of = |s: &W4a8Sizes| Wide::of(s, Format::F16, (9, 0));
        let channel = of(&shape(256, 2048, 1024, None)).unwrap();
        assert_eq!((channel.phases, channel.group_blocks), (4, 0));
        assert_eq!(of(&shape(256, 2048, 1024, Some(256))).unwrap().group_blocks, 2);
        assert!(of(&shape(33, 520, 2048, Some(128))).unwrap().shared() <= SHARED_LIMIT);
        for odd in [
            shape(256, 2048, 1024, Some(64)),
            shape(256, 2047, 1024, None),
            shape(256, 2048, 2080, None),
            W4a8Sizes { weight_zero: true, ..shape(256, 2048, 1024, None) },
        ] {
            assert_eq!(of(&odd), None, "{odd:?}");
        }
        assert_eq!(Wide::of(&shape(256, 2048, 1024, None), Format::F32, (9, 0)), None);
        assert_eq!(Wide::of(&shape(256, 2048, 1024, None), Format::F16, (8, 9)), None);
    }
}
