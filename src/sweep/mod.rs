//! From a TOML file to cases: what is to be run.
//!
//! `data/sweeps/*.toml → Sweep → Case`; [`case`] is one point, [`mod@file`] the format of the file, [`expand`] the product of
//! its axes. [`builder`] the same from code. [`build`] turns a case into a job, [`assay`] a case into a row; [`crate::run`] a sweep into a folder.

pub mod assay;
pub(crate) mod bar;
pub(crate) mod bench;
pub mod build;
pub(crate) mod builder;
pub(crate) mod case;
pub(crate) mod expand;
pub(crate) mod file;
mod memo;
mod there;

pub use case::Case;

use crate::compare::sha256;
use crate::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// An expanded sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// File stem: the name on the command line.
    pub name: String,
    /// What the sweep is for, in the file's own words.
    pub about: String,
    /// SHA-256 of the file, for provenance.
    pub digest: String,
    pub cases: Vec<Case>,
}

impl Sweep {
    /// Reads and expands `data/sweeps/NAME.toml`, or the file at `name` when it ends in `.toml`. `seed` is added to every
    /// case's seed.
    pub fn load(name: &str, seed: u64) -> Result<Sweep> {
        if name.ends_with(".safetensors") {
            let expected = "the name of a sweep (`qassay list sweeps`) or a .toml file; `qassay assay` judges a bundle";
            return Err(Error::value("sweep", format!("`{name}`"), expected));
        }
        let Some((path, text)) = crate::data::text_of("sweeps", name)? else {
            if Path::new(name).is_dir() {
                let expected = "the name of a sweep (`qassay list sweeps`) or a .toml file; bundles in a folder are judged by `qassay assay`";
                return Err(Error::value("sweep", format!("`{name}`, a folder"), expected));
            }
            let known = crate::data::names("sweeps", "toml")?;
            return Err(Error::unknown("sweep", name, known.iter().map(String::as_str)));
        };
        let mut sweep = Sweep::parse(&path, &text, seed)?;
        // As the command line takes it, so that a row's command works for a file anywhere.
        let name: Arc<str> = name.into();
        sweep.cases.iter_mut().for_each(|c| c.sweep = name.clone());
        Ok(sweep)
    }

    /// Expands a sweep from its text; `path` names it in errors.
    pub fn parse(path: &Path, text: &str, seed: u64) -> Result<Sweep> {
        let file = file::SweepFile::parse(path, text)?;
        let name = path.file_stem().map_or_else(|| "sweep".into(), |s| s.to_string_lossy().into_owned());
        let mut cases = expand::expand(path, text, &file, seed)?;
        let shared: Arc<str> = name.as_str().into();
        for (index, case) in cases.iter_mut().enumerate() {
            case.index = index;
            case.sweep = shared.clone();
        }
        Ok(Sweep { name, about: file.about.trim().to_string(), digest: sha256(text.as_bytes()), cases })
    }
}

/// The sweeps in `data/sweeps`, with the first line of what each is for.
pub fn names() -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for stem in crate::data::names("sweeps", "toml")? {
        let Some((path, text)) = crate::data::text_of("sweeps", &stem)? else { continue };
        let about = file::SweepFile::parse(&path, &text)?.about;
        found.push((stem, about.trim().lines().next().unwrap_or_default().to_string()));
    }
    Ok(found)
}
