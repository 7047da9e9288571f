//! Folders for work that nobody else may read.

use std::fs::{self, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Staging;
use crate::{Error, Result, dataset_target};

/// A folder that only this user can read. It is removed when this is dropped, and by
/// [`remove_all`](super::remove_all).
#[derive(Debug)]
pub struct PrivateFolder(Staging);

impl PrivateFolder {
    /// Makes one in `parent`, of a random name: neither another user nor another process can have
    /// made it before.
    pub fn begin(parent: &Path) -> Result<Self> {
        let name = format!("gsplit-{:016x}", RandomState::new().hash_one(std::process::id()));
        let staging = Staging::begin(dataset_target(&parent.join(name)), false)?;
        let root = staging.root();
        fs::set_permissions(root, Permissions::from_mode(0o700)).map_err(Error::io(root))?;
        Ok(Self(staging))
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.0.file()
    }
}
