//! Where an export is written: beside its final place, which it takes in one step when it is whole.
//!
//! A folder is a [`Staging`] directory with `gsplit-export.json` in it, by which `--force` knows what it may replace. A
//! single file is written in such a directory too, so that an interrupt removes it, and then takes its place by a rename.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use gsplit_store::Error as StoreError;
use gsplit_store::staging::{self, Mark, Staging};
use serde_json::json;

use super::{ExportFormat, Source};
use crate::{Error, Result};

/// Says of a folder that an export wrote it, and from what.
const MARK: Mark = Mark { file: "gsplit-export.json", word: "topology_checksum" };
/// Buffer of a file that is written by large pieces.
const BUFFER: usize = 1 << 18;

/// An export under construction.
pub(super) struct Target {
    out: PathBuf,
    format: ExportFormat,
    staging: Staging,
}

impl Target {
    /// Refuses what stands at `out`, unless `force` and an export of the same kind left it.
    pub fn begin(out: &Path, format: ExportFormat, force: bool) -> Result<Self> {
        if !format.is_folder()
            && let Ok(found) = fs::symlink_metadata(out)
        {
            if !force {
                let problem = "something is there: name another --out, or pass --force to replace an earlier export";
                return Err(Error::input(out, problem));
            }
            if !found.is_file() {
                return Err(Error::input(out, "is no plain file, so even --force will not replace it"));
            }
        }
        // A file takes its place by a rename of its own.
        let place = if format.is_folder() { out.to_path_buf() } else { beside(out)? };
        let target = staging::Target::new(place, MARK);
        Ok(Self { out: out.to_path_buf(), format, staging: Staging::begin(target, force)? })
    }

    /// Where the user will find it.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Where to write the file `name` of a folder; folders on the way are made.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let path = self.staging.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        Ok(path)
    }

    /// Where to write the only file.
    pub fn file(&self) -> PathBuf {
        self.staging.path("file")
    }

    /// Writes a small text file of a folder.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name)?;
        let mut file = File::create(&path).map_err(Error::io(&path))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(Error::io(&path))
    }

    /// Makes the export visible. Returns its path, its number of files and their bytes.
    pub fn finish(self, source: &Source<'_>) -> Result<(PathBuf, u64, u64)> {
        if self.format.is_folder() {
            let manifest = source.dataset().manifest();
            let mark = json!({
                "format": self.format.name(),
                "dataset": manifest.name,
                "num_vertices": manifest.num_vertices,
                "num_edges": manifest.num_edges,
                "topology_checksum": source.dataset().topology_checksum().to_string(),
                "tool_version": env!("CARGO_PKG_VERSION"),
            });
            self.write(MARK.file, &format!("{mark:#}\n"))?;
            let (files, bytes) = weigh(&self.staging.path(""))?;
            return Ok((self.staging.commit()?, files, bytes));
        }
        let file = self.file();
        let bytes = fs::metadata(&file).map_err(Error::io(&file))?.len();
        fs::rename(&file, &self.out).map_err(Error::io(&self.out))?;
        let parent = self.out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|folder| folder.sync_all()).map_err(Error::io(parent))?;
        Ok((self.out, 1, bytes))
    }
}

/// The directory beside the file `out` in which it is written; nothing ever stands there.
fn beside(out: &Path) -> Result<PathBuf> {
    let name = out.file_name().ok_or_else(|| {
        Error::Store(StoreError::Invalid(format!("{}: expected a path that ends in a name", out.display())))
    })?;
    Ok(out.with_file_name(format!(".{}.export", name.to_string_lossy())))
}

/// Number and bytes of the files below `folder`.
fn weigh(folder: &Path) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let data = entry.metadata().map_err(Error::io(entry.path()))?;
        let (more_files, more_bytes) = if data.is_dir() { weigh(&entry.path())? } else { (1, data.len()) };
        files += more_files;
        bytes += more_bytes;
    }
    Ok((files, bytes))
}

/// A file that is written from its start to its end, then fsynced.
pub(super) struct Sink {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Sink {
    /// Creates the file.
    pub fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(Error::io(&path))?;
        Ok(Self { path, out: BufWriter::with_capacity(BUFFER, file) })
    }

    /// Appends `bytes`.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(Error::io(&self.path))
    }

    /// Flushes and fsyncs.
    pub fn finish(self) -> Result<File> {
        let file = self.out.into_inner().map_err(|error| Error::io(&self.path)(error.into_error()))?;
        file.sync_all().map_err(Error::io(&self.path))?;
        Ok(file)
    }
}
