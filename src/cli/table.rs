//! Tables for people: as wide as the terminal, or one line a row where there is none.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};

/// A table with its header. In a terminal long cells are wrapped; in a pipe each row is one line.
pub fn text(header: &[&str], rows: &[Vec<String>]) -> String {
    within(terminal(), header, rows)
}

/// Characters a line of the terminal that standard output is.
pub fn terminal() -> Option<usize> {
    let size = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(size.0.0).max(40))
}

/// A table of at most `width` characters, where that is given.
pub fn within(width: Option<usize>, header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().copied()).add_rows(rows);
    match width {
        Some(width) => {
            // It counts a space beside each column, and a line may not end at the last character.
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.saturating_sub(1) as u16)
        }
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    // Names are copied: they stay whole, unless they would leave no room for the rest.
    let names = rows.iter().filter_map(|r| r.first()).map(|name| name.chars().count()).max().unwrap_or(0);
    if let (Some(first), Some(width)) = (table.column_mut(0), width)
        && names + 2 <= width / 2
    {
        first.set_constraint(ColumnConstraint::ContentWidth);
    }
    table.lines().map(|line| line.trim_end().to_string() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal_and_is_one_line_a_row_in_a_pipe() {
        let rows = vec![vec!["scale_shared:b".to_string(), "word ".repeat(40)], vec!["a".into(), "b".into()]];
        for width in [40, 80, 120] {
            let text = within(Some(width), &["name", "what"], &rows);
            assert!(text.lines().all(|l| l.chars().count() <= width) && text.lines().count() > 3, "{text}");
            assert!(text.contains("scale_shared:b  word"), "names are whole:\n{text}");
        }
        assert_eq!(within(None, &["name", "what"], &rows).lines().count(), 3);
    }
}
