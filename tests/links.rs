//! Every link of the documentation leads somewhere: files exist, headings too.

use std::path::{Path, PathBuf};

/// The Markdown files of the repository.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap().to_string();
        if entry.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            pages(&entry, found);
        } else if name.ends_with(".md") {
            found.push(entry);
        }
    }
}

/// Targets of `](…)`, code left out.
fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let unquoted: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let all = unquoted.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    all.map(|target| target.split(' ').next().unwrap().to_string()).collect()
}

/// What a heading's anchor is called.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut all, mut seen, mut wrong) = (Vec::new(), 0, Vec::new());
    pages(root, &mut all);
    for page in &all {
        let text = std::fs::read_to_string(page).unwrap();
        for link in links(&text).into_iter().filter(|l| !l.contains("://") && !l.starts_with("mailto:")) {
            seen += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let found = match (target.exists(), heading) {
                (false, _) => false,
                (true, "") => true,
                (true, heading) => {
                    std::fs::read_to_string(&target).unwrap().lines().any(|l| l.starts_with('#') && anchor(l) == heading)
                }
            };
            if !found {
                wrong.push(format!("{}: {link}", page.strip_prefix(root).unwrap().display()));
            }
        }
    }
    assert!(seen > 60, "{seen} links in {} pages", all.len());
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

/// The first page is short.
#[test]
fn readme_is_read_in_a_minute() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    assert!(text.lines().count() <= 120, "{} lines", text.lines().count());
}
