//! TransformerEngine delayed scaling: the scale of a step comes from the amaxes of steps before it. The state is explicit;
//! nothing here keeps one.
//!
//! Source: TransformerEngine, `transformer_engine/common/recipe/delayed_scaling.cu` (fused),
//! `transformer_engine/pytorch/quantization.py` (unfused), `transformer_engine/common/recipe/__init__.py` (defaults).
//!
//! The two updates differ in four corners:
//!
//! | state | fused | unfused |
//! |---|---|---|
//! | current amax 0, older ones not | keeps scale and history | rolls; scale from the older maximum |
//! | NaN in the history | `fmax` drops it | `torch.max` is NaN: the scale stays |
//! | margin ≠ 0 and tiny amax | overflow of (M·2^-margin)/amax | overflow of M/amax, before the margin |
//! | Inf in the history, "max" | scale stays until Inf leaves the window; a zero step does not roll it | every step rolls it |

use super::tiles::{self, Nan};
use super::{Quantized, Recipe, current};
use crate::format::exp2i;
use crate::{Error, Format, Granularity, Result, Tensor};

/// Which amax of the history decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmaxAlgo {
    /// The largest of the window (default).
    Max,
    /// The last step's.
    MostRecent,
}

/// What the update needs besides the state. [`UpdateRule::new`] gives the defaults of `DelayedScaling`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateRule {
    /// e4m3 or e5m2; M is its largest finite value.
    pub format: Format,
    /// The scale aims at M·2^-margin.
    pub margin: i32,
    pub algo: AmaxAlgo,
}

impl UpdateRule {
    /// Margin 0, "max".
    pub fn new(format: Format) -> Self {
        UpdateRule { format, margin: 0, algo: AmaxAlgo::Max }
    }
}

/// Default length of the history (`amax_history_len`).
pub const HISTORY_LEN: usize = 1024;

/// The state of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// What the current step multiplies by.
    pub scale: f32,
    /// 1/scale as the last update wrote it (TransformerEngine before v1.11 read it from here; later kernels write their own).
    pub scale_inv: f32,
    /// `history[0]` is the running amax of the current step; the oldest step follows it, the newest is last.
    pub history: Vec<f32>,
}

impl State {
    /// Scale 1, scale_inv 1, a history of zeros. Errors: a history of no entries.
    pub fn new(history_len: usize) -> Result<Self> {
        if history_len == 0 {
            return Err(Error::value("amax history length", 0, "at least 1"));
        }
        Ok(State { scale: 1.0, scale_inv: 1.0, history: vec![0.0; history_len] })
    }

    /// A kernel saw this amax: the integer atomicMax of `history[0]` (`amax` is non-negative; NaN never arrives there from a
    /// kernel and is ignored here).
    pub fn observe(&mut self, amax: f32) {
        if amax > self.history[0] {
            self.history[0] = amax;
        }
    }

    /// The fused device update. `reduced` is the amax after the all-reduce over ranks, where there is one:
    ///
    /// ```text
    /// last = reduced exists and ≠ 0 ? reduced : H[0]
    /// last ≠ 0: a[i] = H[i+1], a[L-1] = last; H[i] = a[i] for i ≥ 1; H[0] = 0
    /// amax = most recent ? last : (last ≠ 0 ? fmax of all a : 0)
    /// s' = finite(amax) and amax > 0 ? RN32(RN32(M·2^-margin) / amax) : s;  Inf becomes FLT_MAX
    /// scale_inv' = RN32(1/s')
    /// ```
    pub fn update_fused(&mut self, rule: &UpdateRule, reduced: Option<f32>) {
        let last = reduced.filter(|r| *r != 0.0).unwrap_or(self.history[0]);
        let mut largest = 0f32;
        if last != 0.0 {
            self.history.rotate_left(1);
            if let Some(newest) = self.history.last_mut() {
                *newest = last;
            }
            largest = self.history.iter().fold(0.0, |m: f32, a| if *a > m { *a } else { m });
            self.history[0] = 0.0;
        }
        let amax = if rule.algo == AmaxAlgo::MostRecent { last } else { largest };
        let scaled_max = (rule.format.max_finite() * exp2i(-rule.margin)) as f32;
        self.set_scale(amax, scaled_max / amax);
    }

    /// The framework's update (NVTE_UNFUSED_FP8_UPDATE=1, or any callable in the recipe):
    ///
    /// ```text
    /// amax = most recent ? H[0] : torch.max(H)
    /// H = roll(H, −1); H[0] = 0
    /// s' = finite(amax) and amax > 0 ? RN32(RN32(M/amax) / 2^margin) : s;  Inf becomes FLT_MAX
    /// ```
    pub fn update_unfused(&mut self, rule: &UpdateRule) {
        let amax = match rule.algo {
            AmaxAlgo::MostRecent => self.history[0],
            AmaxAlgo::Max => self.history.iter().fold(0.0, |m: f32, a| if *a > m || a.is_nan() { *a } else { m }),
        };
        self.history.rotate_left(1);
        self.history[0] = 0.0;
        let margin = exp2i(rule.margin) as f32;
        self.set_scale(amax, (rule.format.max_finite() as f32 / amax) / margin);
    }

    fn set_scale(&mut self, amax: f32, fresh: f32) {
        let scale = if amax.is_finite() && amax > 0.0 { fresh } else { self.scale };
        self.scale = if scale.is_infinite() { f32::MAX } else { scale };
        self.scale_inv = 1.0 / self.scale;
    }

    /// Quantizes `x` with the current scale (q = Q(RN32(x·s)) saturating, scale_inv = RN32(1/s)) and observes its amax.
    /// Errors: no elements.
    pub fn quantize(&mut self, rule: &UpdateRule, x: &Tensor) -> Result<Quantized> {
        let recipe = Recipe { name: "te_delayed", format: rule.format, group: None };
        tiles::check_input(&recipe, x)?;
        let amax = tiles::amax(x, Granularity::Tensor, Nan::Ignored);
        self.observe(amax[0]);
        current::quantize_with_scale(&recipe, x, vec![self.scale], amax)
    }
}

/// Delayed scaling as a recipe of one tensor: three earlier steps saw the first, second and third quarter of its rows (a
/// quarter is ⌈rows/4⌉ rows, the last may be short, an empty one is no step), each followed by a fused update with defaults
/// (margin 0, "max", 1024 entries); then `x` is quantized with the scale they left. So the last quarter is data that the
/// scale has not seen, as in training; a tensor of one row has seen all.
pub fn te_delayed(recipe: &Recipe, x: &Tensor) -> Result<Quantized> {
    tiles::check_input(recipe, x)?;
    let rule = UpdateRule::new(recipe.format);
    let mut state = State::new(HISTORY_LEN)?;
    let quarter = x.rows().div_ceil(4);
    for step in 0..3 {
        let (from, to) = (step * quarter, ((step + 1) * quarter).min(x.rows()));
        if from < to {
            let seen = x.rows_range(from, to);
            state.observe(tiles::amax(&seen, Granularity::Tensor, Nan::Ignored)[0]);
            state.update_fused(&rule, None);
        }
    }
    state.quantize(&rule, x)
}
