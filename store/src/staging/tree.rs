//! Whole folders: flushes, lists and prunes them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use crate::{Error, Result, entries};

/// Flushes the directory entries below `path` to disk, or a file; the contents of files in a folder
/// were fsynced by their writers.
pub(crate) fn sync_tree(path: &Path) -> Result<()> {
    if path.is_file() {
        return sync(path);
    }
    for path in entries(path).map_err(Error::io(path))? {
        if fs::symlink_metadata(&path).map_err(Error::io(&path))?.is_dir() {
            sync_tree(&path)?;
        }
    }
    sync(path)
}

/// Flushes one file or directory to disk.
pub(crate) fn sync(path: &Path) -> Result<()> {
    #[cfg(test)]
    super::tests::faults::flushed(path);
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io(path))
}

/// Kind of a folder's entry that is not a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A file, with its length in bytes.
    File(u64),
    /// A link to whatever it may be.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

impl Found {
    /// Bytes of a file; 0 of anything else.
    pub(crate) fn bytes(&self) -> u64 {
        if let Self::File(bytes) = self { *bytes } else { 0 }
    }
}

/// Everything below `path` except folders, by its name relative to `path` with `/` between the
/// parts. Links are not followed. Empty if `path` does not exist or is not a folder.
pub(crate) fn list(path: &Path) -> Result<BTreeMap<String, Found>> {
    let mut found = BTreeMap::new();
    if fs::symlink_metadata(path).is_ok_and(|path| path.is_dir()) {
        collect(path, "", &mut found)?;
    }
    Ok(found)
}

fn collect(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Found>) -> Result<()> {
    for path in entries(folder).map_err(Error::io(folder))? {
        let name = format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy());
        let metadata = fs::symlink_metadata(&path).map_err(Error::io(&path))?;
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => {
                collect(&path, &format!("{name}/"), found)?;
                continue;
            }
            kind if kind.is_file() => Found::File(metadata.len()),
            kind if kind.is_symlink() => Found::Link,
            _ => Found::Other,
        };
        found.insert(name, kind);
    }
    Ok(())
}

/// The files among [`list`], with their lengths.
pub(crate) fn lengths(path: &Path) -> Result<BTreeMap<String, u64>> {
    let file =
        |(name, found)| if let Found::File(bytes) = found { Some((name, bytes)) } else { None };
    Ok(list(path)?.into_iter().filter_map(file).collect())
}

/// Removes everything that [`list`] finds below `path` except the files whose names are to be kept.
pub(crate) fn prune(path: &Path, keep: impl Fn(&str) -> bool) -> Result<()> {
    let kept = |name: &str, found| matches!(found, Found::File(_)) && keep(name);
    for name in
        list(path)?.into_iter().filter(|(name, found)| !kept(name, *found)).map(|(name, _)| name)
    {
        let file = path.join(name);
        fs::remove_file(&file).map_err(Error::io(&file))?;
    }
    Ok(())
}
