//! Folders as a whole: flushed, listed, pruned.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use crate::{Error, Result};

/// Flushes the directory entries below `path` to disk; the files' contents were fsynced by their writers.
pub(crate) fn sync_tree(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).map_err(Error::io(path))? {
        let entry = entry.map_err(Error::io(path))?;
        if entry.file_type().map_err(Error::io(path))?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync(path)
}

/// Flushes one file or directory to disk.
pub(crate) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io(path))
}

/// Every file below `path` with its length, by its name relative to `path` with `/` between the parts. A folder that is not
/// there has none.
pub(crate) fn lengths(path: &Path) -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    if path.exists() {
        collect(path, "", &mut found)?;
    }
    Ok(found)
}

fn collect(folder: &Path, prefix: &str, found: &mut BTreeMap<String, u64>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let path = entry.path();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata().map_err(Error::io(&path))?;
        match metadata.is_dir() {
            true => collect(&path, &format!("{name}/"), found)?,
            false => drop(found.insert(name, metadata.len())),
        }
    }
    Ok(())
}

/// Removes every file below `path` whose name, as [`lengths`] gives it, is not to be kept.
pub(crate) fn prune(path: &Path, keep: impl Fn(&str) -> bool) -> Result<()> {
    for name in lengths(path)?.into_keys().filter(|name| !keep(name)) {
        let file = path.join(name);
        fs::remove_file(&file).map_err(Error::io(&file))?;
    }
    Ok(())
}
