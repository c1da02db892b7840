//! Charts for a phone: as wide as its window, letters of full size, names above their bars and cells.

use super::cells::{self, Table};
use super::plot::{self, Drawn, Root, at, draw, font, ink, key, say, wide};
use plotters::element::PathElement;
use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, VPos};

/// Pixels of the chart: what a window of 360 leaves between its margins.
pub(super) const WIDTH: i32 = 334;

/// Where bars begin and end.
pub(super) const EDGES: (i32, i32) = (14, WIDTH - 20);

/// `text` in lines of at most the chart's width, broken between words.
pub(super) fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if wide(&format!("{line} {word}"), 13) <= WIDTH => *line = format!("{line} {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Where each entry of a legend stands, and where what is below it begins.
pub(super) fn places(words: &[&str]) -> (Vec<(i32, i32)>, i32) {
    let (mut x, mut y) = (0, 8);
    let mut places = Vec::new();
    for word in words {
        let step = 30 + wide(word, 12);
        if x > 0 && x + step > WIDTH {
            (x, y) = (0, y + 20);
        }
        places.push((x, y));
        x += step;
    }
    (places, y + 26)
}

/// The legend's entries at their places.
pub(super) fn legend(root: &Root, words: &[&str], places: &[(i32, i32)], color: impl Fn(usize) -> RGBColor) -> Drawn {
    for (i, (word, place)) in words.iter().zip(places).enumerate() {
        key(root, word, color(i), *place)?;
    }
    Ok(())
}

/// Lines of words from `y` on.
pub(super) fn write(root: &Root, lines: &[String], y: i32) -> Drawn {
    for (i, line) in lines.iter().enumerate() {
        say(root, line, (0, y + 9 + 17 * i as i32), font(13).pos(at(HPos::Left, VPos::Center)))?;
    }
    Ok(())
}

/// [`plot::shares`] for a phone.
pub fn shares(labels: &[String], parts: &[&str], values: &[Vec<f64>], x_label: &str) -> String {
    let names: Vec<Vec<String>> = labels.iter().map(|l| lines(l)).collect();
    let (places, top) = places(parts);
    let height = |name: &[String]| 17 * name.len() as i32 + 24;
    let bottom = top + names.iter().map(|n| height(n)).sum::<i32>();
    draw((WIDTH, bottom + 46), |root| {
        legend(root, parts, &places, |j| plot::part_color(j, parts.len()))?;
        let mut y = top;
        for (name, row) in names.iter().zip(values) {
            write(root, name, y)?;
            y += height(name);
            plot::split_bar(root, row, EDGES, (y - 22, y - 8))?;
        }
        plot::percents(root, EDGES, bottom, x_label)
    })
}

/// Cells of a table in a line.
const CELLS: usize = 11;

/// A [`Table`] for a phone: the columns are numbered, their names stand once above, those of the rows above their cells.
pub fn table(t: &Table) -> String {
    let (n, ch) = (t.columns.len(), 21);
    let cw = (WIDTH / n.clamp(1, CELLS) as i32).min(56);
    let numbered = t.columns.iter().enumerate().map(|(j, name)| format!("{}\u{a0}{name}", j + 1));
    let names = lines(&numbered.collect::<Vec<_>>().join(", "));
    let deep = n.div_ceil(CELLS).max(1) as i32;
    let top = 17 * names.len() as i32 + 8;
    // The numbers of the columns stand again at each head.
    let head = |i: usize| if i == 0 || t.heads[i] { 17 * deep + 8 } else { 0 };
    let height = |i: usize| head(i) + 19 + ch * deep + 4;
    let bottom = top + (0..t.rows.len()).map(height).sum::<i32>();
    let place = |j: usize| (cw * (j % CELLS) as i32, (j / CELLS) as i32);
    // The number stands beside the ramp, what it is counted against below it.
    let (end, rest) = match t.scale.ends[1].split_once(" against ") {
        Some((end, rest)) => (end, lines(&format!("against {rest}"))),
        None => (t.scale.ends[1], Vec::new()),
    };
    let mut places = Vec::new();
    let svg = draw((WIDTH, bottom + 40 + 17 * rest.len() as i32), |root| {
        write(root, &names, 0)?;
        let mut y = top;
        for (i, name) in t.rows.iter().enumerate() {
            if head(i) > 0 {
                root.draw(&PathElement::new(vec![(0, y), (WIDTH, y)], ink(0.5)))?;
                for j in 0..n {
                    let (x, line) = place(j);
                    say(
                        root,
                        &(j + 1).to_string(),
                        (x + cw / 2, y + 12 + 17 * line),
                        font(12).pos(at(HPos::Center, VPos::Center)),
                    )?;
                }
                y += head(i);
            }
            say(root, name, (0, y + 9), font(13).pos(at(HPos::Left, VPos::Center)))?;
            y += 19;
            for (j, c) in t.cells[i].iter().enumerate() {
                let Some(c) = c.filter(|c| c.0.is_finite()) else { continue };
                let (x, line) = place(j);
                let at = [x, y + ch * line, x + cw - 1, y + ch * line + ch - 1];
                cells::cell(root, at, t.color(c.1), (&format!("{:.1}", c.0), 11))?;
                places.extend(t.place((i, j), at, c));
            }
            y += ch * deep + 4;
        }
        cells::ramp(root, [t.scale.ends[0], end], (wide(t.scale.ends[0], 12) + 14, bottom + 14), |share| t.along(share))?;
        write(root, &rest, bottom + 34)
    });
    plot::with_places(svg, &places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_and_legends_are_broken_between_words() {
        let name = "cpu = vendor: gemm te_block_1x128_fp32 · te_block_128x128_fp32, hopper_wgmma@128 (8)";
        let broken = lines(name);
        assert!(broken.len() > 1 && broken.iter().all(|l| wide(l, 13) <= WIDTH), "{broken:?}");
        assert_eq!(broken.join(" "), name);
        let words = ["0: exact", "to 0.1", "to 0.3", "to 0.6", "to 0.9", "to 1", "over 1: a bug"];
        let (at, top) = places(&words);
        assert!(at.iter().zip(words).all(|((x, _), w)| x + 30 + wide(w, 12) <= WIDTH), "{at:?}");
        assert!(at.last().unwrap().1 > 8 && top > at.last().unwrap().1 + 20, "{at:?} {top}");
    }

    #[test]
    fn every_part_of_every_bar_is_drawn() {
        let labels = ["one (3)".to_string(), "two (1)".into()];
        let svg = shares(&labels, &["same", "other", "bad"], &[vec![1.0, 0.0, 2.0], vec![1.0, 0.0, 0.0]], "share");
        // Three keys, two parts of the first bar, one of the second.
        assert_eq!(svg.matches("<rect").count(), 6, "{svg}");
        assert!(svg.contains("one (3)") && svg.contains("two (1)") && svg.contains("100 %"));
    }
}
