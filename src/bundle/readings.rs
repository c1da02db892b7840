//! Whether a dequantization read something else: what a reading says is held to few of the wrong elements first, then to all.

/// Elements of which is known what they read, at least, the share that has to be made, and wrong ones that are asked first.
const LEAST: usize = 64;
const SHARE: f64 = 0.98;
const FEW: usize = 64;

/// The elements that readings are held to.
pub struct Held<'a> {
    wrong: &'a [usize],
    few: Vec<usize>,
    /// How many elements there are.
    count: usize,
}

impl<'a> Held<'a> {
    /// `None`: too few are wrong.
    pub fn of(wrong: &'a [usize], count: usize) -> Option<Self> {
        let few = || wrong.iter().copied().step_by(wrong.len().div_ceil(FEW)).collect();
        (wrong.len() >= LEAST).then(|| Self { wrong, few: few(), count })
    }
    /// Whether a reading made them. `is`: whether an element is what the reading says; `None`: nobody knows what lies there. Of one in `part` of the wrong
    /// ones it has to be known.
    pub fn made_by(&self, part: usize, is: &dyn Fn(usize) -> Option<bool>) -> bool {
        let share = |all: &mut dyn Iterator<Item = usize>| {
            let (known, hit) = all.filter_map(is).fold((0usize, 0usize), |(n, hit), is| (n + 1, hit + usize::from(is)));
            (known, hit as f64 >= SHARE * known as f64)
        };
        let (known, some) = share(&mut self.few.iter().copied());
        if known == 0 || !some {
            return false;
        }
        let (known, all) = share(&mut self.wrong.iter().copied());
        known >= LEAST && part * known >= self.wrong.len() && all && share(&mut (0..self.count)).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_has_to_make_wrong_and_right_elements_and_to_be_known_of_enough() {
        let wrong: Vec<usize> = (0..1000).step_by(5).collect();
        let held = Held::of(&wrong, 1000).unwrap();
        assert!(held.made_by(2, &|_| Some(true)));
        assert!(!held.made_by(2, &|_| Some(false)) && !held.made_by(2, &|_| None));
        // A third of the wrong ones is known.
        let third = |at: usize| at.is_multiple_of(3).then_some(true);
        assert!(held.made_by(4, &third) && !held.made_by(2, &third));
        assert!(!held.made_by(2, &|at| Some(at % 5 == 0)), "what is right otherwise has to stay");
        assert!(!held.made_by(2, &|at| Some(at % 15 != 0)), "a third of the wrong ones is another");
        assert!(Held::of(&wrong[..10], 1000).is_none());
    }
}
