//! Target of an artifact: its path, and the entries that may be there now.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, lgetxattr};

use super::folder::{Folder, Identity};
use crate::document::Document;
use crate::{
    Checksum, Dataset, DatasetManifest, Error, PartitionMeta, PlacementMeta, PresampleMeta, Result,
};

/// Mark of a folder that gsplit made: a file in it with a certain word within its first bytes.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Name of the file.
    pub file: &'static str,
    /// The word.
    pub word: &'static str,
}

impl Mark {
    /// The mark of a dataset in another tool's format.
    pub const EXPORT: Self = Self { file: "gsplit-export.json", word: "topology_checksum" };

    /// A document of the format `T` called `file`, of any version, sound or not.
    pub const fn document<T: Document>(file: &'static str) -> Self {
        Self { file, word: T::FORMAT }
    }

    /// Whether the folder `name` in `parent` carries the mark.
    fn is_in_folder(self, parent: &Folder, name: &OsStr) -> Result<bool> {
        Ok(parent.below(name)?.is_some_and(|folder| self.is_in(&folder)))
    }

    /// Whether `folder` carries the mark.
    fn is_in(self, folder: &Folder) -> bool {
        let Ok(Some(file)) = folder.file(self.file, false) else { return false };
        let mut start = Vec::new();
        let read = file.take(4096).read_to_end(&mut start);
        read.is_ok() && String::from_utf8_lossy(&start).contains(self.word)
    }
}

/// Marks of all artifacts that are folders, including artifacts of other crates.
const MARKS: [Mark; 6] = [
    Mark::document::<DatasetManifest>("dataset.json"),
    Mark::document::<PresampleMeta>("presample.json"),
    Mark::document::<PartitionMeta>("partition.json"),
    Mark::document::<PlacementMeta>("placement.json"),
    Mark { file: "checkpoint.json", word: "gsplit-checkpoint" },
    Mark::EXPORT,
];

/// Path of an artifact to be written.
#[derive(Clone, Debug)]
pub struct Target {
    path: PathBuf,
    /// Folder that the user named: no link is followed below it.
    root: PathBuf,
    /// `None` for a plain file.
    mark: Option<Mark>,
}

/// Extended attribute of a file that says how it was made.
pub(super) const MADE_BY: &str = "user.gsplit.made_by";

/// Its value, which a later change of the file makes wrong.
pub(super) fn made(made_by: &Checksum, is: &Identity) -> String {
    format!("{made_by} {} bytes {}", is.bytes, is.changed)
}

/// Number of times that a folder without its mark is checked before it counts as the user's.
const LOOKS: usize = 20;

impl Target {
    /// A folder at a path of the user's choice.
    pub fn new(path: impl Into<PathBuf>, mark: Mark) -> Self {
        Self { mark: Some(mark), ..Self::file(path) }
    }

    /// A file at a path of the user's choice.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { root: parent_of(&path), path, mark: None }
    }

    /// A place within `dataset`, whose folders are gsplit's own.
    pub(crate) fn within(dataset: &Dataset, path: PathBuf, mark: Mark) -> Self {
        Self { path, root: dataset.path().to_path_buf(), mark: Some(mark) }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if something exists there, unless `replace` is set and gsplit made it.
    pub fn check(&self, replace: bool) -> Result<()> {
        if !self.root.exists() {
            return self.name().map(drop);
        }
        let parent = self.parent()?;
        // The folder is not locked: a writer may exchange it between its opening and the check.
        // Only then does the result change.
        let look = || self.check_in(&parent, replace).map(drop);
        let is_final = |found: &Result<()>| !matches!(found, Err(Error::NotReplaced { .. }));
        (1..LOOKS).map(|_| look()).find(is_final).unwrap_or_else(look)
    }

    /// [`Target::check`] in the open parent folder. Returns whether something exists there.
    pub(super) fn check_in(&self, parent: &Folder, replace: bool) -> Result<bool> {
        let (name, path) = (self.name()?, || self.path.clone());
        match parent.kind(name)? {
            None => Ok(false),
            Some(FileType::Symlink) => Err(Error::Foreign { path: path(), found: "a link" }),
            Some(_) if !replace => Err(Error::Exists(path())),
            Some(kind) => match self.mark {
                None if kind == FileType::RegularFile => Ok(true),
                None => Err(Error::Foreign { path: path(), found: "no plain file" }),
                Some(mark) if kind == FileType::Directory && mark.is_in_folder(parent, name)? => {
                    Ok(true)
                }
                Some(mark) => Err(Error::NotReplaced { path: path(), document: mark.file }),
            },
        }
    }

    /// Whether [`Staging::record`](super::Staging::record) recorded the file there as made in this
    /// way, and it has not been written to since.
    pub fn is_made_by(&self, made_by: &Checksum) -> Result<bool> {
        let mut value = [0; 256];
        let len = lgetxattr(&self.path, MADE_BY, &mut value).unwrap_or_default();
        let expected = self.shown()?.map(|shown| made(made_by, &shown));
        Ok(expected.is_some_and(|expected| expected.as_bytes() == &value[..len]))
    }

    /// Removes the artifact there, if gsplit made it; the mark goes last, so that a killed removal
    /// can be continued.
    pub fn remove(&self) -> Result<()> {
        let (parent, name) = (self.parent()?, self.name()?);
        match (parent.below(name)?, self.mark) {
            (Some(folder), Some(mark)) if mark.is_in(&folder) => {
                folder.clear(|name| name == mark.file)?;
                parent.remove(name)
            }
            _ => {
                parent.remove_empty(name);
                Ok(())
            }
        }
    }

    /// Opens the parent folder, creating missing folders.
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

    /// Whether it is a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.mark.is_some()
    }

    /// Name in the parent folder.
    pub(super) fn name(&self) -> Result<&OsStr> {
        let problem = || {
            Error::Invalid(format!("{}: expected a path that ends in a name", self.path.display()))
        };
        self.path.file_name().ok_or_else(problem)
    }

    /// Whether it is being written, or was when its writer was killed.
    pub(super) fn is_begun(&self) -> Result<bool> {
        let partial = self.path.with_file_name(self.partial()?);
        match partial.symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(false)
            }
            Err(error) => Err(Error::io(partial)(error)),
        }
    }

    /// Identity of the entry at its path; `None` if it does not exist.
    pub(super) fn shown(&self) -> Result<Option<Identity>> {
        match self.root.exists() {
            true => self.parent()?.identity(self.name()?),
            false => Ok(None),
        }
    }

    /// Name of the folder in which it is written.
    pub(crate) fn partial(&self) -> Result<OsString> {
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

/// Makes the folder at `path`, which the user named for outputs, with the folders around it, where
/// they are missing.
///
/// # Errors
/// [`Error::Foreign`] for a link: it may lead into a folder of somebody else's.
pub fn make_folder(path: &Path) -> Result<()> {
    // A slash at the end would have the system follow the link.
    let path: PathBuf = path.components().collect();
    match path.is_symlink() {
        true => Err(Error::Foreign { path, found: "a link" }),
        false => fs::create_dir_all(&path).map_err(Error::io(&path)),
    }
}

/// The artifact of gsplit's that contains or equals `folder`, and the document that proves it.
/// `folder` need not exist yet.
pub fn artifact_around(folder: &Path) -> Option<(&Path, &'static str)> {
    folder.ancestors().find_map(|folder| {
        let opened = Folder::open(folder).ok()?;
        let mark = MARKS.iter().find(|mark| mark.is_in(&opened))?;
        Some((folder, mark.file))
    })
}
