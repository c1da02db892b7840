//! The figures of `qassay power`: which gate catches which class of faults, and what a diagnosis calls them.

use super::figures::{Figure, csv};
use super::plot;
use std::collections::BTreeMap;

/// A share of cases, by row and column: both in their order.
pub struct Matrix {
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    /// `[row][column]`, in percent; `None` where nothing was tried.
    pub percent: Vec<Vec<Option<f64>>>,
}

impl Matrix {
    /// From (row, column, weight) counts and the total of each row. Rows without a total are left out.
    pub fn of(
        rows: &[String],
        columns: &[String],
        counts: &BTreeMap<(String, String), usize>,
        totals: &BTreeMap<String, usize>,
    ) -> Self {
        let rows: Vec<String> = rows.iter().filter(|r| totals.get(*r).is_some_and(|n| *n > 0)).cloned().collect();
        let cell = |r: &String, c: &String| {
            let n = counts.get(&(r.clone(), c.clone())).copied().unwrap_or(0);
            Some(100.0 * n as f64 / totals[r] as f64)
        };
        let percent = rows.iter().map(|r| columns.iter().map(|c| cell(r, c)).collect()).collect();
        Self { rows, columns: columns.to_vec(), percent }
    }

    fn data(&self, header: [&str; 3]) -> String {
        let lines = self.rows.iter().zip(&self.percent).flat_map(|(r, cells)| {
            let cell = |(c, v): (&String, &Option<f64>)| [r.clone(), c.clone(), v.map_or(String::new(), |v| format!("{v:.2}"))];
            self.columns.iter().zip(cells).map(cell)
        });
        csv(header, lines)
    }

    /// Every cell coloured by how far it is from one half, or (`sparse`) only those above zero.
    fn chart(&self, sparse: bool, unit: &str) -> String {
        let shown = |v: f64| if sparse { (v >= 0.05).then_some((v, v / 2.0)) } else { Some((v, v - 50.0)) };
        let cells: Vec<Vec<Option<(f64, f64)>>> =
            self.percent.iter().map(|r| r.iter().map(|v| v.and_then(shown)).collect()).collect();
        let heads = vec![false; self.rows.len()];
        plot::table(&self.columns, &self.rows, &heads, &cells, 50.0, unit, &[])
    }
}

/// What each judge catches, and which right results it fails: (judge, percent caught, percent of right results failed), of this many.
pub fn worth(judges: &[(String, f64, f64)], right: usize) -> Figure {
    let columns = ["faults caught", "right results failed"].map(String::from);
    let rows: Vec<String> = judges.iter().map(|j| j.0.clone()).collect();
    let cells: Vec<Vec<Option<(f64, f64)>>> =
        judges.iter().map(|(_, caught, alarms)| vec![Some((*caught, caught - 50.0)), Some((*alarms, -alarms))]).collect();
    let unit = "blue: most faults are caught; orange: most pass, or right results are failed";
    Figure {
        id: "worth",
        title: "What each check catches, and what it fails without cause",
        see: format!(
            "Percent of the injected faults that each judge failed, and percent of {right} right results that it failed as well. A check that \
             catches much because it fails much is worth little."
        ),
        charts: vec![(String::new(), plot::table(&columns, &rows, &vec![false; rows.len()], &cells, 50.0, unit, &[]))],
        data: csv(
            ["judge", "percent_caught", "percent_of_right_failed"],
            judges.iter().map(|(j, caught, alarms)| [j.clone(), format!("{caught:.2}"), format!("{alarms:.2}")]),
        ),
    }
}

/// Kill matrix: the share of injected faults of each class that each judge catches.
pub fn kills(m: &Matrix) -> Figure {
    Figure {
        id: "kill_matrix",
        title: "Which judge catches which fault",
        see: "Percent of the injected faults that changed at least one bit and were failed by each judge, on the same outputs. Blue: most are \
              caught; orange: most pass. Model and bound are qassay's own (bits of the device model, and the derived bound with the checks \
              beside the result); the rest are the gates of other projects against the f64 result."
            .into(),
        charts: vec![(String::new(), m.chart(false, "percentage points from one half: orange passes, blue is caught"))],
        data: m.data(["class", "judge", "percent_caught"]),
    }
}

/// Confusion matrix: what the diagnosis calls the faults of each class.
pub fn confusion(m: &Matrix) -> Figure {
    Figure {
        id: "confusion",
        title: "What a diagnosis calls a fault",
        see: "Rows are injected classes, columns what was named, in percent of the row. What lies off the diagonal is a confusion; `unknown` \
              is no answer, `compound` an explanation by two faults."
            .into(),
        charts: vec![(String::new(), m.chart(true, "percent of the row (blue)"))],
        data: m.data(["class", "named", "percent"]),
    }
}
