//! The verdict of a case.

/// What a case's outcome is called, in CSV, JSON and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every element within its certain bound (and bit-exact where a model exists), and the data could have shown a fault.
    Pass,
    /// Within the certain bound but outside the probable one: listed, does not fail the run.
    Suspect,
    /// A certain bound, a model's bits or an exact side output is violated: a bug.
    Fail,
    /// Nothing wrong seen, and nothing could have been: the data hide the op's faults.
    NoPower,
    /// The kernel or the harness failed before a result could be judged.
    Error,
    /// The combination is impossible; the reason is in the row.
    Skipped,
}

impl Verdict {
    pub const ALL: [Verdict; 6] =
        [Verdict::Pass, Verdict::Suspect, Verdict::Fail, Verdict::NoPower, Verdict::Error, Verdict::Skipped];

    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Suspect => "suspect",
            Verdict::Fail => "fail",
            Verdict::NoPower => "no_power",
            Verdict::Error => "error",
            Verdict::Skipped => "skipped",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Verdict {
    type Err = crate::Error;
    fn from_str(s: &str) -> crate::Result<Self> {
        let known = || Verdict::ALL.map(Verdict::as_str);
        Verdict::ALL.into_iter().find(|v| v.as_str() == s).ok_or_else(|| crate::Error::unknown("verdict", s, known()))
    }
}
