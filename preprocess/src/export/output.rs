//! Target of an export: it is written next to its final place, and moved there in one step when it
//! is complete.
//!
//! A folder is a [`Staging`] directory with `gsplit-export.json` in it ([`Record`]), which lets
//! `--force` know that it may be replaced, and the same command that it is finished. A single file
//! is staged in the same way, and has no such record.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use gsplit_store::staging::{self, Mark, Staging};
use gsplit_store::{Checksum, Dataset, LabelShape, entries};
use serde::{Deserialize, Serialize};

use super::{ExportFormat, ExportOptions, Exported};
use crate::{Error, Result};

/// Buffer of a file that is written by large pieces.
const BUFFER: usize = 1 << 18;

/// Content of `gsplit-export.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    format: String,
    dataset: String,
    /// Digest of all files of the dataset.
    fingerprint: Checksum,
    topology_checksum: Checksum,
    original_ids: bool,
    tool_version: String,
    num_vertices: u64,
    /// Labels of the dataset, which arrays and tables do not tell in full.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    labels: Option<ExportedLabels>,
    /// Edges in the export; known, as are the fields below, when it is written.
    num_edges: u64,
    left_out: Vec<String>,
    /// Total bytes of the other files.
    bytes: u64,
}

/// Shape of the labels of an export, and the names of their classes where they have names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedLabels {
    /// Their shape.
    pub label_shape: LabelShape,
    /// The names of the classes in their order.
    pub class_names: Option<Vec<String>>,
}

impl ExportedLabels {
    /// The labels that the record of the export in `folder` describes, if it is one with labels.
    pub fn recorded(folder: &Path) -> Option<Self> {
        let text = gsplit_store::read_file(folder.join(Mark::EXPORT.file)).ok()?;
        serde_json::from_slice::<Record>(&text).ok()?.labels
    }
}

impl Record {
    /// The record of an export of `dataset` that is yet to be written.
    pub fn new(dataset: &Dataset, format: ExportFormat, options: &ExportOptions) -> Self {
        Self {
            format: format.name().into(),
            dataset: dataset.name().into(),
            fingerprint: dataset.fingerprint(),
            topology_checksum: dataset.topology_checksum(),
            original_ids: options.original_ids,
            tool_version: env!("CARGO_PKG_VERSION").into(),
            num_vertices: dataset.num_vertices() as u64,
            labels: dataset.manifest().label_shape().map(|label_shape| ExportedLabels {
                label_shape,
                class_names: dataset.manifest().class_names.clone(),
            }),
            num_edges: 0,
            left_out: Vec::new(),
            bytes: 0,
        }
    }

    /// The finished export at `out`, if it was made the same way and has all its bytes.
    pub fn finished(&self, out: &Path) -> Option<Exported> {
        let text = gsplit_store::read_file(out.join(Mark::EXPORT.file)).ok()?;
        let found: Self = serde_json::from_slice(&text).ok()?;
        let Self { num_edges, left_out, bytes, .. } = found.clone();
        let is_same = found == Self { num_edges, left_out, bytes, ..self.clone() };
        let weight =
            weigh(out).ok().filter(|weight| is_same && weight.1 == bytes + text.len() as u64)?;
        Some(found.exported(out.into(), weight, true))
    }

    /// `weight` is the number of files and their bytes.
    fn exported(self, path: PathBuf, weight: (u64, u64), reused: bool) -> Exported {
        let (Self { num_vertices, num_edges, left_out, .. }, (files, bytes)) = (self, weight);
        Exported { path, num_vertices, num_edges, bytes, files, left_out, reused }
    }
}

/// An export under construction.
pub(super) struct Target {
    out: PathBuf,
    format: ExportFormat,
    staging: Staging,
}

impl Target {
    /// Refuses an existing `out`, unless `force` is set and it is an export of the same kind.
    pub fn begin(out: &Path, format: ExportFormat, force: bool) -> Result<Self> {
        let target = match format.is_folder() {
            true => staging::Target::new(out, Mark::EXPORT),
            false => staging::Target::file(out),
        };
        Ok(Self { out: out.to_path_buf(), format, staging: Staging::begin(target, force)? })
    }

    /// Final place.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Path to write the file `name` of a folder to; makes folders on the way.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let path = self.staging.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        Ok(path)
    }

    /// Path to write the only file to.
    pub fn file(&self) -> PathBuf {
        self.staging.file()
    }

    /// Writes a small text file of a folder.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name)?;
        let mut file = File::create(&path).map_err(Error::io(&path))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(Error::io(&path))
    }

    /// Makes the export visible.
    pub fn finish(
        self,
        mut record: Record,
        num_edges: u64,
        left_out: Vec<String>,
    ) -> Result<Exported> {
        (record.num_edges, record.left_out) = (num_edges, left_out);
        let weight = if self.format.is_folder() {
            record.bytes = weigh(&self.staging.path(""))?.1;
            let text = serde_json::to_string_pretty(&record)
                .map_err(|error| Error::Option(error.to_string()))?;
            self.write(Mark::EXPORT.file, &format!("{text}\n"))?;
            weigh(&self.staging.path(""))?
        } else {
            let file = self.file();
            (1, fs::metadata(&file).map_err(Error::io(&file))?.len())
        };
        Ok(record.exported(self.staging.commit()?, weight, false))
    }
}

/// Number and bytes of the files below `folder`.
fn weigh(folder: &Path) -> Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for path in entries(folder).map_err(Error::io(folder))? {
        let data = fs::symlink_metadata(&path).map_err(Error::io(&path))?;
        let (more_files, more_bytes) = if data.is_dir() { weigh(&path)? } else { (1, data.len()) };
        files += more_files;
        bytes += more_bytes;
    }
    Ok((files, bytes))
}

/// A file that is written from its start to its end, then fsynced.
pub(super) struct SyncedFile {
    path: PathBuf,
    out: BufWriter<File>,
}

impl SyncedFile {
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
        let file =
            self.out.into_inner().map_err(|error| Error::io(&self.path)(error.into_error()))?;
        file.sync_all().map_err(Error::io(&self.path))?;
        Ok(file)
    }
}
