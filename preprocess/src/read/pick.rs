//! Finds the graph among the files of a downloaded folder.
//!
//! | files | the graph |
//! | --- | --- |
//! | the files of a format that is a folder | the folder |
//! | one file of a known format, next to files of unknown ones | that file |
//! | `out.NAME` next to `meta.NAME`, `ent.NAME`, `README.NAME` (KONECT) | `out.NAME` |
//! | `NAME.mtx` next to `NAME_coord.mtx`, `NAME_b.mtx` ... (SuiteSparse) | `NAME.mtx` |
//! | others | a question to the user |
//!
//! A folder that contains only another folder is skipped, and files that only describe others are
//! ignored.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::detect::{Format, detect, not_read};
use super::options::TextOptions;
use super::text::{name_of, some};
use crate::{Error, Result};

/// Maximum number of files that are checked.
const MAX_FILES: usize = 1000;
/// Maximum depth of nested folders that are searched.
const MAX_DEPTH: usize = 16;

/// Whether systems hide files of this name, or Apple's archives add them.
fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".") || name == "__MACOSX"
}

/// Whether a file only describes others, by its name.
pub fn describes(path: &Path) -> bool {
    let name = name_of(path).to_lowercase();
    let words = ["readme", "license", "licence", "copying", "citation", "changelog"];
    let endings = [
        "md", "pdf", "html", "htm", "bib", "rtf", "rst", "png", "jpg", "svg", "py", "m", "r", "sh",
        "ipynb",
    ];
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    name.starts_with("meta.")
        || words.iter().any(|word| name.contains(word))
        || endings.contains(&ending)
}

/// The graph in `folder`, of `format` if given. `None` if no file has a known format.
pub fn pick(folder: &Path, format: Option<Format>, text: TextOptions) -> Result<Option<PathBuf>> {
    let folder = innermost(folder)?;
    if folder.join("dataset.json").is_file() && folder.join("topology").is_dir() {
        let problem = "a dataset of gsplit already, there is nothing to convert: train on it, or name the raw graph";
        return Err(Error::input(folder, problem));
    }
    // GraphBolt's raw folder: its arrays have no meaning without this document.
    if folder.join("metadata.yaml").is_file() {
        return Err(not_read(&folder));
    }
    let fits = |path: &PathBuf| {
        detect(path, text).is_ok_and(|found| format.is_none_or(|wanted| found == wanted))
    };
    let mut files = Vec::new();
    files_below(&folder, 0, &mut files)?;
    files.sort();
    if fits(&folder) {
        return Ok(Some(folder));
    }
    if files.len() > MAX_FILES {
        return Ok(None);
    }
    let known: Vec<PathBuf> = files.iter().filter(|path| fits(path)).cloned().collect();
    match (&known[..], &files[..]) {
        // Its reader reports the problem.
        ([only], _) | ([], [only]) => return Ok(Some(only.clone())),
        ([], _) if format.is_none() => return Ok(None),
        _ => {}
    }
    let known = if known.is_empty() { files } else { known };
    if let Some(of_konect) = only(known.iter().filter(|path| name_of(path).starts_with("out."))) {
        return Ok(Some(of_konect.clone()));
    }
    let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let leads = |path: &&PathBuf| {
        let before = stem(path) + "_";
        path.extension().is_some_and(|ending| ending == "mtx")
            && known.iter().all(|other| other == *path || stem(other).starts_with(&before))
    };
    if let Some(of_suitesparse) = only(known.iter().filter(leads)) {
        return Ok(Some(of_suitesparse.clone()));
    }
    let names: Vec<String> = known
        .iter()
        .map(|path| path.strip_prefix(&folder).unwrap_or(path).display().to_string())
        .collect();
    let problem = format!(
        "{} files could be the graph, {}: name one of them as the input",
        names.len(),
        some(&names)
    );
    Err(Error::input(folder, problem))
}

/// Names of the files next to the graph at `path` that are not read: all of them if it was `picked`
/// in its folder, otherwise the files whose names say that they hold data of vertices.
pub fn beside(path: &Path, picked: bool) -> Result<Vec<String>> {
    const OF_VERTICES: [&str; 14] = [
        "node",
        "nodes",
        "vertices",
        "label",
        "labels",
        "class",
        "classes",
        "target",
        "feat",
        "feature",
        "features",
        "attributes",
        "split",
        "splits",
    ];
    let Some(folder) = path.parent().filter(|_| path.is_file()) else { return Ok(Vec::new()) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let says_so = |name: &String| {
        let lower = name.to_lowercase();
        let mut words = lower.split(|c: char| !c.is_alphanumeric());
        words.any(|word| OF_VERTICES.contains(&word))
    };
    let others = entries(folder)?.into_iter().filter(|entry| entry != path && entry.is_file());
    let mut names: Vec<String> = others.map(|entry| name_of(&entry)).collect();
    names.retain(|name| *name != name_of(path) && (picked || says_so(name)));
    names.sort();
    Ok(names)
}

fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    found.next().filter(|_| found.next().is_none())
}

/// The folder at `path`, or the only folder in it.
fn innermost(path: &Path) -> Result<PathBuf> {
    let mut folder = path.to_path_buf();
    for _ in 0..MAX_DEPTH {
        match &entries(&folder)?[..] {
            [only] if only.is_dir() => folder = only.clone(),
            _ => break,
        }
    }
    Ok(folder)
}

/// Entries of `folder` that are not hidden and do not only describe others.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in gsplit_store::entries(folder).map_err(Error::io(folder))? {
        if !path.file_name().is_some_and(is_hidden) && (path.is_dir() || !describes(&path)) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Appends the files below `folder`; stops once there are more than [`MAX_FILES`].
fn files_below(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    for path in entries(folder)? {
        match path.is_dir() {
            _ if files.len() > MAX_FILES => break,
            true if depth < MAX_DEPTH => files_below(&path, depth + 1, files)?,
            true => {}
            false => files.push(path),
        }
    }
    Ok(())
}
