//! The order of imports that `src/lib.rs` states, held against every path in `src`: no room reaches to its right, none in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Room by room: the place in the order, as the statement in `lib.rs` has it.
fn order(lib: &str) -> BTreeMap<String, usize> {
    let start = lib.find("//! order: ").expect("lib.rs states the order of rooms after `order: `");
    let text: String = lib[start..].lines().take_while(|l| !l.contains("```")).map(|l| l.trim_start_matches("//!")).collect();
    let text = text.replace("order:", "");
    let mut places = BTreeMap::new();
    for (place, group) in text.split('←').enumerate() {
        for room in group.split([',', '{', '}']).map(str::trim).filter(|r| !r.is_empty()) {
            assert!(places.insert(room.to_string(), place).is_none(), "`{room}` stands twice in the order of lib.rs");
        }
    }
    places
}

/// What `lib.rs` exports at the root, and the room it comes from: `crate::Error` is `crate::error::Error`.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let mut from = BTreeMap::new();
    for line in lib.lines().filter_map(|l| l.strip_prefix("pub use ")) {
        let (room, names) = line.trim_end_matches(';').split_once("::").expect("pub use room::names;");
        for name in names.trim_matches(['{', '}']).split(',') {
            from.insert(name.trim().to_string(), room.to_string());
        }
    }
    from
}

fn files(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
}

/// The code without comments, and without modules for tests; files of such modules, by the names they are declared with.
fn code(text: &str) -> (String, Vec<String>) {
    let (mut kept, mut tests) = (String::new(), Vec::new());
    let mut lines = text.lines().map(|l| l.split("//").next().unwrap_or_default());
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept += line;
            kept.push('\n');
            continue;
        }
        let item = lines.find(|l| !l.trim_start().starts_with("#[")).unwrap_or_default();
        match item.trim().strip_suffix(';').and_then(|l| l.rsplit_once("mod ")) {
            Some((_, name)) => tests.push(name.to_string()),
            None if item.trim_end().ends_with('{') => {
                // The end of an item is a brace in its own column.
                let end = " ".repeat(item.len() - item.trim_start().len()) + "}";
                lines.find(|l| l.trim_end() == end);
            }
            None => {}
        }
    }
    (kept, tests)
}

/// The names that follow `root::` in each path and in each list in braces.
fn firsts(code: &str, root: &str) -> Vec<String> {
    let mut names = Vec::new();
    let name = |s: &str| s.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    for (at, _) in code.match_indices(root) {
        if code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &code[at + root.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.push(name(rest));
            continue;
        };
        let (mut depth, mut item) = (0, String::new());
        for c in list.chars() {
            match c {
                '}' if depth == 0 => break,
                ',' if depth == 0 => names.push(name(&std::mem::take(&mut item))),
                _ => item.push(c),
            }
            depth += i32::from(c == '{') - i32::from(c == '}');
        }
        names.push(name(&item));
    }
    names.retain(|n| !n.is_empty());
    names
}

/// Every arrow `from → to` of rooms, with a file that has it.
fn arrows(src: &Path) -> BTreeMap<(String, String), PathBuf> {
    let lib = std::fs::read_to_string(src.join("lib.rs")).unwrap();
    let exports = exports(&lib);
    let mut all = Vec::new();
    files(src, &mut all);
    let texts: Vec<(PathBuf, String)> = all.into_iter().map(|p| (p.clone(), std::fs::read_to_string(p).unwrap())).collect();
    let mut of_tests = BTreeSet::new();
    for (path, text) in &texts {
        let inside = if path.ends_with("mod.rs") { path.parent().unwrap().to_path_buf() } else { path.with_extension("") };
        of_tests.extend(code(text).1.into_iter().map(|t| inside.join(t)));
    }
    let mut found = BTreeMap::new();
    for (path, text) in &texts {
        let module = if path.ends_with("mod.rs") { path.parent().unwrap().to_path_buf() } else { path.with_extension("") };
        let parts: Vec<&str> = module.strip_prefix(src).unwrap().iter().map(|p| p.to_str().unwrap()).collect();
        if matches!(parts[..], ["lib" | "main"]) || of_tests.iter().any(|t| module.starts_with(t)) {
            continue;
        }
        let code = code(text).0;
        let outside = "super::".repeat(parts.len());
        let names = firsts(&code, "crate::").into_iter().chain(firsts(&code, &outside));
        for name in names {
            let to = exports.get(&name).unwrap_or(&name);
            if to != parts[0] {
                found.entry((parts[0].to_string(), to.clone())).or_insert_with(|| path.clone());
            }
        }
    }
    found
}

/// Arrows to a room on the right, or to none of the statement.
fn backwards(order: &BTreeMap<String, usize>, arrows: &BTreeMap<(String, String), PathBuf>) -> Vec<String> {
    let place = |room: &str| order.get(room);
    let wrong = arrows.iter().filter(|((from, to), _)| place(from).zip(place(to)).is_none_or(|(f, t)| t > f));
    wrong.map(|((from, to), path)| format!("{from} → {to} in {}", path.display())).collect()
}

/// Rooms that reach themselves through others.
fn circles(arrows: &BTreeMap<(String, String), PathBuf>) -> Vec<String> {
    let rooms: BTreeSet<&String> = arrows.keys().map(|(from, _)| from).collect();
    let reaches_itself = |room: &&String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![*room]);
        while let Some(at) = open.pop() {
            for (_, to) in arrows.keys().filter(|(from, _)| from == at) {
                if to == *room {
                    return true;
                }
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        false
    };
    rooms.into_iter().filter(reaches_itself).cloned().collect()
}

#[test]
fn no_room_reaches_back_and_none_in_a_circle() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order = order(&std::fs::read_to_string(src.join("lib.rs")).unwrap());
    let arrows = arrows(&src);
    assert!(arrows.len() > 60, "{} arrows found: is the code read at all?", arrows.len());
    let wrong = backwards(&order, &arrows);
    assert!(wrong.is_empty(), "against the order in src/lib.rs; move what is needed to the left:\n{}", wrong.join("\n"));
    assert_eq!(circles(&arrows), [""; 0], "rooms that import each other in a circle");
    let rooms: BTreeSet<String> = std::fs::read_dir(&src).unwrap().map(|e| e.unwrap().path()).filter_map(room).collect();
    assert_eq!(rooms, order.keys().cloned().collect(), "rooms of src, and of the order in src/lib.rs");
}

/// A folder or file below `src` as a room's name.
fn room(path: PathBuf) -> Option<String> {
    Some(path.file_stem()?.to_str()?.to_string()).filter(|n| n != "lib" && n != "main")
}

#[test]
fn an_arrow_back_and_a_circle_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "//! order: a ← {b, c}\n//!        ← d\n//! ```\npub use d::{Thing, Other};\n");
    write("a/mod.rs", "// use crate::d;\n#[cfg(test)]\nmod tests {\n    use crate::d::X;\n}\n#[cfg(test)]\nmod more;\n");
    write("a/more.rs", "use crate::d::X;\n");
    write("b.rs", "use crate::{a::{X, Y},\n    c};\n");
    write("c/mod.rs", "mod deep;\n");
    write("c/deep.rs", "use crate::a::X;\n");
    write("d.rs", "use super::b::X;\n");
    let order = order(&std::fs::read_to_string(dir.path().join("lib.rs")).unwrap());
    let check = || (backwards(&order, &arrows(dir.path())), circles(&arrows(dir.path())));
    assert_eq!(check(), (vec![], vec![]));
    let names: Vec<_> = arrows(dir.path()).into_keys().map(|(f, t)| format!("{f}{t}")).collect();
    assert_eq!(names, ["ba", "bc", "ca", "db"]);
    // A name of the root is its room's; `super` counts as far as the root.
    for line in ["use crate::Thing;", "fn f() { crate::d::f() }", "use super::super::d;", "use crate::{a::X, d};"] {
        write("c/deep.rs", &format!("{line}\n"));
        assert_eq!(check().0.len(), 1, "{line}");
    }
    write("c/deep.rs", "use crate::b::X;\n");
    assert_eq!(check(), (vec![], vec!["b".to_string(), "c".to_string()]));
}

/// Crates with their features, as `cargo tree` resolves them for this machine.
fn resolved(edges: &str) -> BTreeSet<String> {
    let tree = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix", "none", "--no-dedupe", "--format", "{p} {f}", "--edges", edges])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).unwrap().lines().map(String::from).collect()
}

/// Otherwise `cargo build` compiles what `cargo test` has compiled already: minutes.
#[test]
fn the_crates_of_tests_switch_no_feature_on_in_those_of_the_program() {
    let (program, tests) = (resolved("normal,build"), resolved("normal,build,dev"));
    assert!(program.len() > 50 && tests.len() > program.len(), "{} and {} crates", program.len(), tests.len());
    let other: Vec<_> = program.difference(&tests).collect();
    assert!(other.is_empty(), "with more features in tests than in the program ([dev-dependencies] in Cargo.toml): {other:#?}");
}
