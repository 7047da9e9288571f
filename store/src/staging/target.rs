//! Where an artifact will stand, and what may stand there now.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::folder::Folder;
use crate::document::Document;
use crate::{Dataset, Error, Result};

/// By what gsplit knows a folder that it made: a file in it that has a word within its first bytes.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Name of the file.
    pub file: &'static str,
    /// The word.
    pub word: &'static str,
}

impl Mark {
    /// For a place where nothing will stand.
    pub const NONE: Self = Self { file: "", word: "" };

    /// A document of the format `T` called `file`, of whatever version, sound or not.
    pub const fn document<T: Document>(file: &'static str) -> Self {
        Self { file, word: T::FORMAT }
    }

    /// Whether `folder` carries it.
    fn is_in(self, folder: &Folder) -> bool {
        let Ok(Some(file)) = folder.file(self.file, false) else { return false };
        let mut start = Vec::new();
        let read = file.take(4096).read_to_end(&mut start);
        read.is_ok() && String::from_utf8_lossy(&start).contains(self.word)
    }
}

/// Where an artifact will stand.
#[derive(Clone, Debug)]
pub struct Target {
    path: PathBuf,
    /// Folder that the user named: no link is followed below it.
    root: PathBuf,
    mark: Mark,
}

impl Target {
    /// A path of the user's choice.
    pub fn new(path: impl Into<PathBuf>, mark: Mark) -> Self {
        let path = path.into();
        Self { root: parent_of(&path), path, mark }
    }

    /// A place within `dataset`, whose folders are gsplit's own.
    pub(crate) fn within(dataset: &Dataset, path: PathBuf, mark: Mark) -> Self {
        Self { path, root: dataset.path().to_path_buf(), mark }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails when something stands there, unless `replace` and gsplit made it.
    pub fn check(&self, replace: bool) -> Result<()> {
        match self.root.exists() {
            true => self.check_in(&self.parent()?, replace).map(drop),
            false => self.name().map(drop),
        }
    }

    /// [`Target::check`] with the folder around it. Says whether something stands there.
    pub(super) fn check_in(&self, parent: &Folder, replace: bool) -> Result<bool> {
        let (name, path) = (self.name()?, || self.path.clone());
        match parent.kind(name)? {
            None => Ok(false),
            Some(FileType::Symlink) => Err(Error::Foreign { path: path(), found: "a link" }),
            Some(_) if !replace => Err(Error::Exists(path())),
            Some(FileType::Directory) if parent.below(name)?.is_some_and(|found| self.mark.is_in(&found)) => Ok(true),
            Some(_) => Err(Error::NotReplaced { path: path(), document: self.mark.file }),
        }
    }

    /// Removes what stands there, if gsplit made it; the mark goes last, so that a removal that was killed is taken up again.
    pub fn remove(&self) -> Result<()> {
        let (parent, name) = (self.parent()?, self.name()?);
        let Some(folder) = parent.below(name)? else { return Ok(()) };
        if self.mark.is_in(&folder) {
            folder.clear(|name| name == self.mark.file)?;
            return parent.remove(name);
        }
        parent.remove_empty(name);
        Ok(())
    }

    /// Opens the folder around it; those that are missing are made.
    pub(super) fn parent(&self) -> Result<Folder> {
        fs::create_dir_all(&self.root).map_err(Error::io(&self.root))?;
        let mut parent = Folder::open(&self.root)?;
        let below = parent_of(&self.path);
        for name in below.strip_prefix(&self.root).unwrap_or(Path::new("")).iter() {
            parent.make(name)?;
            let path = parent.path().join(name);
            let missing = || Error::io(&path)(std::io::ErrorKind::NotFound.into());
            parent = parent.below(name)?.ok_or_else(missing)?;
        }
        Ok(parent)
    }

    /// What it is called in the folder around it.
    pub(super) fn name(&self) -> Result<&OsStr> {
        let problem = || Error::Invalid(format!("{}: expected a path that ends in a name", self.path.display()));
        self.path.file_name().ok_or_else(problem)
    }

    /// Name of the folder in which it is written.
    pub(super) fn partial(&self) -> Result<OsString> {
        let mut hidden = OsString::from(".");
        hidden.push(self.name()?);
        hidden.push(".partial");
        Ok(hidden)
    }
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
