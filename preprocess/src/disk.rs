//! Checks for free disk space before hours of work.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The nearest folder that exists, at `path` or above it, and the bytes that are free for this user
/// on its file system.
pub fn room(path: &Path) -> Result<(PathBuf, u64)> {
    let mut folder = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    while !folder.is_dir() && folder.pop() {}
    let stat = rustix::fs::statvfs(&folder).map_err(|errno| Error::io(&folder)(errno.into()))?;
    Ok((folder, stat.f_bavail.saturating_mul(stat.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_to_come_lie_in_those_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let (found, free) = room(&folder.path().join("no/such/folder")).unwrap();
        assert_eq!(found, folder.path());
        assert!(free > 0);
        std::fs::write(folder.path().join("file"), "x").unwrap();
        assert_eq!(room(&folder.path().join("file")).unwrap().0, folder.path());
        assert_eq!(room(Path::new("no/such")).unwrap().0, std::env::current_dir().unwrap());
    }
}
