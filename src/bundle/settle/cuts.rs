//! How kernels cut K into parts that are summed by themselves, and in which order the parts are added in f32.

use crate::order::nth;
use std::ops::Range;

/// The k of one part in the order in which its chain takes them: ascending ranges.
pub type Run = Vec<Range<usize>>;

/// A rule that cuts any K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// One part.
    Whole,
    /// `⌈tiles/parts⌉` tiles each, the last part short (cuBLASLt, CUTLASS's split-K).
    Even { tile: usize, parts: usize },
    /// Every part `⌊tiles/parts⌋` tiles, the first ones one more (stream-K, persistent kernels).
    Balanced { tile: usize, parts: usize },
    /// Every part `⌊tiles/parts⌋` tiles, the last one also what is left.
    LongLast { tile: usize, parts: usize },
    /// Tile t belongs to part `t mod parts` (Triton's split-K, sliced-K of warps).
    Interleaved { tile: usize, parts: usize },
    /// Two parts, cut here: what stream-K leaves of a tile of outputs.
    At(usize),
    /// OpenBLAS's blocks: `most` elements while there are twice as many, then halves that are rounded up to `step`.
    Blas { most: usize, step: usize },
}

/// Elements of a tile of K.
const TILES: [usize; 6] = [128, 64, 32, 256, 16, 512];
/// Parts that are tried: each up to 16, then the sizes that kernels take.
const MANY: [usize; 8] = [18, 20, 24, 32, 48, 64, 96, 128];
/// OpenBLAS's longest blocks of K (`SGEMM_Q` of Skylake-X, of Haswell and Zen, of older ones), and what it rounds half of what is left up to:
/// nothing where several threads work, else its kernel's rows.
const BLAS: [(usize, usize); 6] = [(448, 1), (448, 16), (384, 1), (384, 8), (320, 1), (320, 16)];
/// Where two parts may meet: multiples of this, of a long K of twice as much.
const MEET: usize = 64;
const LONG: usize = 2048;

impl Cut {
    /// The parts of `k` elements; none is empty.
    pub fn parts(self, k: usize) -> Vec<Run> {
        let contiguous = |tile: usize, count: &dyn Fn(usize, usize) -> usize, parts: usize| {
            let tiles = k.div_ceil(tile);
            let (mut all, mut from) = (Vec::new(), 0);
            for s in 0..parts {
                let to = (from + count(tiles, s) * tile).min(k);
                if to > from {
                    all.push(vec![from..to]);
                }
                from = to;
            }
            all
        };
        match self {
            Cut::Whole => vec![vec![0..k]],
            Cut::Even { tile, parts } => contiguous(tile, &|tiles, _| tiles.div_ceil(parts), parts),
            Cut::Balanced { tile, parts } => {
                contiguous(tile, &|tiles, s| tiles / parts + usize::from(s < tiles % parts), parts)
            }
            Cut::LongLast { tile, parts } => {
                contiguous(tile, &|tiles, s| if s + 1 == parts { tiles } else { tiles / parts }, parts)
            }
            Cut::Interleaved { tile, parts } => {
                let part =
                    |s: usize| -> Run { (s * tile..k).step_by(tile * parts).map(|from| from..k.min(from + tile)).collect() };
                (0..parts).map(part).filter(|run| !run.is_empty()).collect()
            }
            Cut::At(at) => [0..at.min(k), at.min(k)..k].into_iter().filter(|r| !r.is_empty()).map(|r| vec![r]).collect(),
            Cut::Blas { most, step } => {
                let (mut all, mut from) = (Vec::new(), 0);
                while from < k {
                    let block = match k - from {
                        left if left >= 2 * most => most,
                        left if left > most => left.div_ceil(2).next_multiple_of(step),
                        left => left,
                    };
                    all.push(vec![from..from + block]);
                    from += block;
                }
                all
            }
        }
    }

    /// OpenBLAS's cuts, each way of cutting once.
    pub fn blas(k: usize) -> Vec<Cut> {
        let mut seen = std::collections::HashSet::new();
        BLAS.map(|(most, step)| Cut::Blas { most, step }).into_iter().filter(|cut| seen.insert(cut.parts(k))).collect()
    }

    /// The cuts of split-K in tiles of 128, and of Triton's in tiles of 64 and 128: most of what there is.
    pub fn usual(k: usize) -> Vec<Cut> {
        let usual = |cut: &Cut| match cut {
            Cut::Even { tile, parts } | Cut::Balanced { tile, parts } => *tile == TILES[0] && *parts <= 16,
            Cut::Interleaved { tile, parts } => [64, 128].contains(tile) && *parts <= 8,
            _ => false,
        };
        Cut::all(k).into_iter().filter(usual).collect()
    }

    /// Few equal parts, whatever their tiles.
    pub fn equal(k: usize, most: usize) -> Vec<Cut> {
        let equal = (2..=most).filter(|parts| k > 0 && k.is_multiple_of(*parts) && (k / parts).is_multiple_of(16));
        equal.map(|parts| Cut::Even { tile: k / parts, parts }).collect()
    }

    /// Every cut of `k` into two parts or more, each way of cutting once.
    pub fn all(k: usize) -> Vec<Cut> {
        let counts = (2..=16).chain(MANY);
        let mut all = Vec::new();
        for parts in counts {
            for tile in TILES.into_iter().filter(|tile| tile * 2 <= k && tile * parts < k + tile) {
                all.push(Cut::Even { tile, parts });
                all.push(Cut::Balanced { tile, parts });
                all.push(Cut::LongLast { tile, parts });
                all.push(Cut::Interleaved { tile, parts });
            }
        }
        let meet = if k > LONG { 2 * MEET } else { MEET };
        all.extend((meet..k).step_by(meet).map(Cut::At));
        let mut seen = std::collections::HashSet::new();
        all.into_iter().filter(|cut| Some(cut.parts(k)).filter(|p| p.len() > 1).is_some_and(|p| seen.insert(p))).collect()
    }

    /// `, split in 3 …`; nothing for one part.
    pub fn words(self) -> String {
        match self {
            Cut::Whole => String::new(),
            Cut::Even { tile, parts } => format!(", split in {parts} (⌈tiles/{parts}⌉ tiles of {tile} of K each)"),
            Cut::Balanced { tile, parts } => format!(", split in {parts} (tiles of {tile} of K shared out evenly)"),
            Cut::LongLast { tile, parts } => format!(", split in {parts} (tiles of {tile} of K, the rest to the last)"),
            Cut::Interleaved { tile, parts } => {
                format!(", split in {parts} (every {} tile of {tile} of K)", nth(parts))
            }
            Cut::At(at) => format!(", split in 2 at K = {at}"),
            Cut::Blas { most, .. } => format!(", split as OpenBLAS does (blocks of at most {most} of K)"),
        }
    }
}

/// `n` elements of a run from its `from`-th on.
pub fn slice(run: &Run, from: usize, n: usize) -> Run {
    let (mut skip, mut left, mut out) = (from, n, Run::new());
    for r in run {
        let start = r.start + skip.min(r.len());
        skip -= skip.min(r.len());
        let end = r.end.min(start + left);
        if end > start {
            left -= end - start;
            match out.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => out.push(start..end),
            }
        }
    }
    out
}

/// Elements of a run.
pub fn len(run: &Run) -> usize {
    run.iter().map(ExactSizeIterator::len).sum()
}

/// In which order parts are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// One after the other, in this order.
    Order(Vec<usize>),
    /// Neighbours, then neighbours of the sums.
    Tree,
    /// The first half with the second, again and again.
    Halves,
    /// (a + b) + (c + d).
    Pairs([usize; 4]),
}

impl Join {
    /// Every order of up to four parts; of more: ascending, descending, the first last, both trees.
    pub fn all(parts: usize) -> Vec<Join> {
        let ascending: Vec<usize> = (0..parts).collect();
        if parts <= 2 {
            return vec![Join::Order(ascending)];
        }
        let mut all = vec![Join::Order(ascending.clone())];
        if parts <= 4 {
            let mut orders = vec![vec![]];
            for _ in 0..parts {
                orders = orders
                    .into_iter()
                    .flat_map(|o: Vec<usize>| {
                        (0..parts).filter(|p| !o.contains(p)).map(|p| [&o[..], &[p]].concat()).collect::<Vec<_>>()
                    })
                    .collect();
            }
            // The first two commute.
            all.extend(orders.into_iter().filter(|o| o[0] < o[1] && *o != ascending).map(Join::Order));
            if parts == 4 {
                all.extend([[0, 1, 2, 3], [0, 2, 1, 3], [0, 3, 1, 2]].map(Join::Pairs));
            }
            return all;
        }
        all.push(Join::Order((0..parts).rev().collect()));
        all.push(Join::Order((1..parts).chain([0]).collect()));
        all.extend([Join::Tree, Join::Halves]);
        all
    }

    /// The sum of `count` parts; `after` is what becomes of every sum that is stored, the first of an order too (itself, or a rounding that
    /// does not belong there).
    #[inline]
    pub fn sum(&self, count: usize, part: impl Fn(usize) -> f32, after: impl Fn(f32) -> f32) -> f32 {
        match self {
            Join::Order(order) if order.len() == 1 => part(order[0]),
            Join::Order(order) => order[1..].iter().fold(after(part(order[0])), |sum, p| after(sum + part(*p))),
            Join::Pairs([a, b, c, d]) => after(after(part(*a) + part(*b)) + after(part(*c) + part(*d))),
            Join::Tree => {
                let mut level: Vec<f32> = (0..count).map(part).collect();
                while level.len() > 1 {
                    level = level.chunks(2).map(|p| if p.len() == 2 { after(p[0] + p[1]) } else { p[0] }).collect();
                }
                level[0]
            }
            Join::Halves => {
                let mut level: Vec<f32> = (0..count).map(part).collect();
                while level.len() > 1 {
                    let half = level.len().div_ceil(2);
                    for i in half..level.len() {
                        level[i - half] = after(level[i - half] + level[i]);
                    }
                    level.truncate(half);
                }
                level[0]
            }
        }
    }

    /// `, parts added …`; nothing where there is one order.
    pub fn words(&self, parts: usize) -> String {
        match self {
            _ if parts <= 2 => String::new(),
            Join::Order(o) if o.is_sorted() => ", parts added ascending".into(),
            Join::Order(o) => format!(", parts added in the order {o:?}"),
            Join::Tree | Join::Halves | Join::Pairs(_) => ", parts added as a tree".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_holds_every_k_once() {
        for k in [1, 31, 96, 640, 768, 1000, 5760] {
            for cut in Cut::all(k).into_iter().chain([Cut::Whole]) {
                let parts = cut.parts(k);
                let mut all: Vec<usize> = parts.iter().flatten().flat_map(Clone::clone).collect();
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..k), "{cut:?} of {k}: {parts:?}");
                assert!(parts.iter().all(|p| len(p) > 0) && (cut == Cut::Whole || parts.len() > 1), "{cut:?} of {k}");
            }
        }
        // cuBLASLt's of 5760 in four: tiles of 128 are 45, so 12 each and the last 9.
        assert_eq!(
            Cut::Even { tile: 128, parts: 4 }.parts(5760),
            [vec![0..1536], vec![1536..3072], vec![3072..4608], vec![4608..5760]]
        );
        assert_eq!(Cut::Balanced { tile: 128, parts: 4 }.parts(5760)[1], [1536..2944]);
        assert_eq!(Cut::Interleaved { tile: 32, parts: 2 }.parts(100), [vec![0..32, 64..96], vec![32..64, 96..100]]);
    }

    /// As OpenBLAS 0.3.30 was seen to sum on a Skylake-X of two cores: 449 as 225 + 224, 1000 as 448 + 276 + 276.
    #[test]
    fn openblas_takes_whole_blocks_and_then_halves() {
        let of = |most: usize, step: usize, k: usize| -> Vec<usize> {
            Cut::Blas { most, step }.parts(k).iter().map(|run| run[0].len()).collect()
        };
        assert_eq!([of(448, 1, 449), of(448, 1, 448), of(448, 16, 449)], [vec![225, 224], vec![448], vec![240, 209]]);
        assert_eq!([of(448, 1, 1000), of(448, 1, 896)], [vec![448, 276, 276], vec![448, 448]]);
        assert_eq!(of(448, 1, 2048), [448, 448, 448, 352, 352]);
        assert!(of(384, 8, 0).is_empty());
        assert_eq!(Cut::blas(300), [Cut::Blas { most: 448, step: 1 }]);
        assert_eq!(Cut::blas(768).len(), 2);
        assert_eq!(Cut::blas(768)[0].parts(768), [vec![0..384], vec![384..768]]);
    }

    #[test]
    fn slices_of_runs_are_joined_where_they_touch() {
        let run = vec![0..32, 64..96, 96..100];
        assert_eq!(slice(&run, 16, 32), [16..32, 64..80]);
        assert_eq!(slice(&run, 40, 100), [72..100]);
        assert_eq!(len(&run), 68);
    }

    #[test]
    fn orders_differ_and_sum_as_they_say() {
        assert_eq!((Join::all(2).len(), Join::all(3).len(), Join::all(4).len(), Join::all(5).len()), (1, 3, 15, 5));
        let parts = [1.0f32, 1e8, -1e8, 3.0, 0.5];
        let sums: Vec<f32> = Join::all(5).iter().map(|j| j.sum(5, |p| parts[p], |x| x)).collect();
        let tree = |p: &[f32]| (p[0] + p[1]) + (p[2] + p[3]) + p[4];
        let halves = |p: &[f32]| ((p[0] + p[3]) + p[2]) + (p[1] + p[4]);
        assert_eq!(sums, [3.5, 1.0, 1.0 + 3.5, tree(&parts), halves(&parts)]);
    }

    /// 45 tiles of 128: the first part has the one that is left, or the last part all that are left.
    #[test]
    fn what_does_not_divide_goes_to_the_first_parts_or_to_the_last() {
        let balanced = Cut::Balanced { tile: 128, parts: 4 }.parts(5760);
        assert_eq!(balanced, [vec![0..1536], vec![1536..2944], vec![2944..4352], vec![4352..5760]]);
        let last = Cut::LongLast { tile: 128, parts: 4 }.parts(5760);
        assert_eq!(last, [vec![0..1408], vec![1408..2816], vec![2816..4224], vec![4224..5760]]);
        // A tile that K cuts short; more parts than tiles.
        assert_eq!(Cut::Even { tile: 32, parts: 2 }.parts(100), [vec![0..64], vec![64..100]]);
        assert_eq!(Cut::Even { tile: 32, parts: 3 }.parts(64), [vec![0..32], vec![32..64]]);
        assert_eq!(Cut::Interleaved { tile: 32, parts: 3 }.parts(64), [vec![0..32], vec![32..64]]);
        assert_eq!(Cut::At(64).parts(100), [vec![0..64], vec![64..100]]);
        assert_eq!([Cut::At(0).parts(100), Cut::At(100).parts(100)], [[vec![0..100]], [vec![0..100]]]);
    }

    #[test]
    fn each_way_of_cutting_is_there_once() {
        let (tile, of) = (16, |parts| Cut::Interleaved { tile: 16, parts });
        let three = [Cut::Balanced { tile, parts: 3 }, Cut::LongLast { tile, parts: 3 }, of(3)];
        let all = [&[Cut::Even { tile: 32, parts: 2 }, of(2)][..], &three, &[Cut::Even { tile, parts: 4 }]].concat();
        assert_eq!(Cut::all(64), all);
        assert_eq!(Cut::all(31), []);
        // Where no tiles meet: every 64, of a long K every 128.
        let meets = |k: usize| -> Vec<usize> {
            Cut::all(k).into_iter().filter_map(|c| if let Cut::At(at) = c { Some(at) } else { None }).collect()
        };
        assert_eq!((meets(320), meets(640)), (vec![64], vec![64, 128, 192, 448, 576]));
        assert_eq!((meets(2048).first(), meets(2049).first()), (Some(&64), Some(&128)));
        assert_eq!((meets(2048).last(), meets(2176).last()), (Some(&1984), Some(&2048)));
    }

    #[test]
    fn usual_cuts_are_of_tiles_of_128_and_few() {
        let long = Cut::usual(1 << 14);
        let most = |f: fn(&Cut) -> Option<(usize, usize)>| long.iter().filter_map(f).max_by_key(|(_, parts)| *parts);
        assert_eq!(most(|c| if let Cut::Even { tile, parts } = *c { Some((tile, parts)) } else { None }), Some((128, 16)));
        let interleaved = |c: &Cut| if let Cut::Interleaved { tile, parts } = *c { Some((tile, parts)) } else { None };
        assert_eq!(most(interleaved).map(|c| c.1), Some(8));
        let mut tiles: Vec<usize> = long.iter().filter_map(interleaved).map(|c| c.0).collect();
        tiles.dedup();
        tiles.sort_unstable();
        tiles.dedup();
        assert_eq!(tiles, [64, 128]);
        assert!(!long.iter().any(|c| matches!(c, Cut::At(_) | Cut::LongLast { .. })));
        // 384 in three parts of 128; 96 is no multiple of 128, and 24 none of 16.
        let equal = |tile: usize, parts: usize| Cut::Even { tile, parts };
        assert_eq!(Cut::equal(96, 8), [equal(48, 2), equal(32, 3), equal(16, 6)]);
        assert_eq!(Cut::equal(96, 5), [equal(48, 2), equal(32, 3)]);
        assert_eq!(Cut::equal(0, 8), []);
    }

    #[test]
    fn a_cut_is_told_in_words() {
        let (tile, parts) = (64, 3);
        assert_eq!(Cut::Whole.words(), "");
        assert_eq!(Cut::Even { tile, parts }.words(), ", split in 3 (⌈tiles/3⌉ tiles of 64 of K each)");
        assert_eq!(Cut::Balanced { tile, parts }.words(), ", split in 3 (tiles of 64 of K shared out evenly)");
        assert_eq!(Cut::LongLast { tile, parts }.words(), ", split in 3 (tiles of 64 of K, the rest to the last)");
        assert_eq!(Cut::Interleaved { tile, parts }.words(), ", split in 3 (every third tile of 64 of K)");
        assert_eq!(Cut::At(192).words(), ", split in 2 at K = 192");
        let order = |o: &[usize]| Join::Order(o.to_vec());
        assert_eq!([order(&[1, 0]).words(2), Join::Tree.words(2)], ["", ""]);
        assert_eq!(order(&[0, 1, 2]).words(3), ", parts added ascending");
        assert_eq!(order(&[0, 2, 1]).words(3), ", parts added in the order [0, 2, 1]");
        let trees = [Join::Tree, Join::Halves, Join::Pairs([0, 1, 2, 3])].map(|j| j.words(4));
        assert_eq!(trees, [", parts added as a tree"; 3]);
    }

    #[test]
    fn slices_end_where_they_are_told() {
        // Ranges that touch become one; an end of one range is no part of the next.
        assert_eq!(slice(&vec![0..4, 4..8], 2, 4), [2..6]);
        assert_eq!(slice(&vec![0..4, 8..12], 0, 4), [0..4]);
        assert_eq!(slice(&vec![0..4, 8..12], 4, 1), [8..9]);
        assert_eq!(slice(&vec![0..4, 8..12], 3, 2), [3..4, 8..9]);
        assert!(slice(&vec![0..4], 1, 0).is_empty());
        assert_eq!(len(&vec![]), 0);
    }

    /// What becomes of a partial sum is asked of each that is stored: of those that are made, and of the first part of an order.
    #[test]
    fn partial_sums_become_what_they_are_told() {
        let made = std::cell::RefCell::new(Vec::new());
        let see = |join: &Join, count: usize| {
            made.borrow_mut().clear();
            let after = |x: f32| {
                made.borrow_mut().push(x);
                x + 1000.0
            };
            let sum = join.sum(count, |p| [1.0, 2.0, 4.0, 8.0, 16.0][p], after);
            (sum, made.borrow().clone())
        };
        assert_eq!(see(&Join::Order(vec![2, 0, 1]), 3), (3007.0, vec![4.0, 1005.0, 2007.0]));
        assert_eq!(see(&Join::Pairs([0, 2, 1, 3]), 4), (3015.0, vec![5.0, 10.0, 2015.0]));
        assert_eq!(see(&Join::Tree, 3), (2007.0, vec![3.0, 1007.0]));
        assert_eq!(see(&Join::Tree, 5), (4031.0, vec![3.0, 12.0, 2015.0, 3031.0]));
        assert_eq!(see(&Join::Halves, 3), (2007.0, vec![5.0, 1007.0]));
        assert_eq!(see(&Join::Halves, 5), (4031.0, vec![9.0, 18.0, 1013.0, 3031.0]));
        for join in [Join::Tree, Join::Halves, Join::Order(vec![0])] {
            assert_eq!(see(&join, 1), (1.0, vec![]));
        }
    }

    #[test]
    fn orders_of_few_parts_are_all_there_and_of_many_the_usual() {
        let order = |o: &[usize]| Join::Order(o.to_vec());
        assert_eq!([Join::all(1), Join::all(2)], [[order(&[0])], [order(&[0, 1])]]);
        assert_eq!(Join::all(3), [order(&[0, 1, 2]), order(&[0, 2, 1]), order(&[1, 2, 0])]);
        assert_eq!(Join::all(4)[12..], [[0, 1, 2, 3], [0, 2, 1, 3], [0, 3, 1, 2]].map(Join::Pairs));
        let five = [order(&[0, 1, 2, 3, 4]), order(&[4, 3, 2, 1, 0]), order(&[1, 2, 3, 4, 0]), Join::Tree, Join::Halves];
        assert_eq!(Join::all(5), five);
    }
}
