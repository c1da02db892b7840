//! Bugs that somebody else wrote (`data/golden/exams`): every digit of what is answered is as it was when it was looked at.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bundles of the folder.
const WRONG: usize = 126;

/// Every bundle's answer, in the order of their names, without what depends on the place of the file.
fn answers(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "safetensors")).collect();
    paths.sort();
    let output = Command::new(env!("CARGO_BIN_EXE_qassay")).args(["assay", "--json"]).args(&paths).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut answers = Vec::new();
    for (line, path) in lines.lines().zip(&paths) {
        let mut answer: Value = serde_json::from_str(line).unwrap();
        assert_eq!(answer["file"], path.display().to_string(), "one answer a bundle, in their order");
        let all = answer.as_object_mut().unwrap();
        all.insert("file".into(), path.file_name().unwrap().to_string_lossy().into());
        all.remove("card");
        answers.push(answer.to_string());
    }
    assert_eq!(answers.len(), paths.len(), "{}", String::from_utf8_lossy(&output.stderr));
    answers
}

/// What two answers do not share, field by field.
fn difference(was: &str, is: &str) -> String {
    let (was, is): (Value, Value) = (serde_json::from_str(was).unwrap(), serde_json::from_str(is).unwrap());
    let fields = is.as_object().unwrap().iter().filter(|(name, value)| was[name.as_str()] != **value);
    fields.map(|(name, value)| format!("{} {name}:\n  was {}\n  is  {value}\n", is["file"], was[name.as_str()])).collect()
}

#[test]
fn every_answer_is_the_one_that_was_looked_at() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/exams");
    let (file, are) = (folder.join("answers.jsonl"), answers(&folder));
    assert_eq!(are.len(), WRONG);
    if std::env::var_os("QASSAY_ACCEPT").is_some() {
        std::fs::write(&file, are.join("\n") + "\n").unwrap();
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let were: Vec<&str> = text.lines().collect();
    assert_eq!(were.len(), are.len());
    let other: String = were.iter().zip(&are).filter(|(was, is)| *was != is).map(|(was, is)| difference(was, is)).collect();
    assert!(other.is_empty(), "{other}look at data/golden/exams/README.md");
}
