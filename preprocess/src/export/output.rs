//! Where an export is written: beside its final place, which it takes in one step when it is whole.
//!
//! A folder is a [`Staging`] directory with `gsplit-export.json` in it, by which `--force` knows what it may replace. A
//! single file is staged in the same way.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use gsplit_store::staging::{self, Mark, Staging};
use serde_json::json;

use super::{ExportFormat, Source};
use crate::{Error, Result};

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
        let target = match format.is_folder() {
            true => staging::Target::new(out, Mark::EXPORT),
            false => staging::Target::file(out),
        };
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
        self.staging.file()
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
            self.write(Mark::EXPORT.file, &format!("{mark:#}\n"))?;
            let (files, bytes) = weigh(&self.staging.path(""))?;
            return Ok((self.staging.commit()?, files, bytes));
        }
        let file = self.file();
        let bytes = fs::metadata(&file).map_err(Error::io(&file))?.len();
        Ok((self.staging.commit()?, 1, bytes))
    }
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
