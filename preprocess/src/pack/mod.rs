//! A dataset directory as Parquet files, for moving and keeping it; and back, bit for bit.
//!
//! ```text
//! packed/
//!   pack.json                     every file of the dataset: length, digest, form, and the packed files it lies in
//!   dataset.json ...              documents, byte for byte, where they lie in the dataset
//!   topology/indices.parquet      a .npy file: one column of its name and type, a row of a 2-D array is a list
//!   nodes/feat.parquet            an Arrow file: its columns, a row group for each record batch
//!   nodes/feat.frame.parquet      what else the Arrow file is made of: the bytes before each of its buffers
//!   x.bin.parquet                 anything else: its bytes in pieces
//! ```
//!
//! Any reader of Parquet reads them; row v of a node file is vertex v, and `indices` holds the in-neighbours of all vertices
//! one after the other, as `indptr` cuts them. Values are delta-packed, byte-stream-split or dictionary-encoded, whichever is
//! smallest for a sample of the column, and then compressed by zstd.
//!
//! Files are written as they are, whatever their type: nothing here knows what a file means. Packing checks every digest that
//! the dataset's documents record, and so does unpacking, while it writes.
//!
//! In memory are, for each thread, about [`VALUES_PER_GROUP`] values, or one record batch of an Arrow file; and the frame of
//! an Arrow file, some hundred bytes for each of its record batches.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use gsplit_store::document::{self, Document};
use gsplit_store::staging::{Mark, Staging, Target};
use gsplit_store::{Checksum, Dataset, FileRecord, Progress, Unit, checksum_file, dataset_target, read_file};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

mod array;
mod arrow;
mod blob;
mod copy;
mod groups;
#[cfg(test)]
mod tests;

pub use groups::VALUES_PER_GROUP;

/// How to pack.
#[derive(Clone, Copy, Debug)]
pub struct PackOptions {
    /// zstd's level, 1 to 22.
    pub level: i32,
    /// Replace what is packed at the target.
    pub force: bool,
}

/// What packing or unpacking did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PackSummary {
    /// Number of the dataset's files.
    pub files: u64,
    /// Bytes of the dataset.
    pub dataset_bytes: u64,
    /// Bytes of the packed files.
    pub packed_bytes: u64,
}

/// Content of `pack.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackManifest {
    /// Name of the dataset.
    pub dataset: String,
    /// zstd's level.
    pub level: i32,
    /// Version of gsplit that packed it.
    pub tool_version: String,
    /// The dataset's files.
    pub files: BTreeMap<String, PackedFile>,
}

impl Document for PackManifest {
    const FORMAT: &'static str = "gsplit-pack";
    const VERSION: u32 = 1;
}

/// A file of the dataset.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedFile {
    /// Its length and digest.
    pub file: FileRecord,
    /// How it is packed.
    pub form: Form,
    /// The packed files it lies in.
    pub packed: Vec<(String, FileRecord)>,
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As it is.
    Copy,
    /// The column of a `.npy` file.
    Array,
    /// The columns of an Arrow file, and its frame.
    Arrow,
    /// Bytes in pieces.
    Blob,
}

const MANIFEST: &str = "pack.json";

/// Packs `dataset`, its presamples and partitions included, into a folder at `out`.
pub fn pack(dataset: &Dataset, out: &Path, options: &PackOptions, progress: &dyn Progress) -> Result<PackSummary> {
    let target = Target::new(out, Mark::document::<PackManifest>(MANIFEST));
    target.check(options.force)?;
    let root = dataset.path();
    let mut names = Vec::new();
    files_below(root, root, &mut names)?;
    let recorded = recorded_checksums(root, &names)?;
    let staging = Staging::begin(target, options.force)?;
    let total = total_bytes(root, &names)?;
    let stage = progress.stage("packing", Some(total), Unit::Bytes);
    let mut files: BTreeMap<String, PackedFile> = BTreeMap::new();
    let mut taken = vec![MANIFEST.to_string()];
    for name in names {
        let source = root.join(&name);
        let (bytes, checksum) = checksum_file(&source)?;
        if let Some(expected) = recorded.get(&name).filter(|expected| **expected != checksum) {
            let problem = format!("has checksum {checksum}, expected {expected}; run `gsplit verify` and rebuild it");
            return Err(Error::input(source, problem));
        }
        let (form, packed) = pack_file(&source, &name, &staging, options.level, &mut taken)?;
        files.insert(name, PackedFile { file: FileRecord { bytes, checksum }, form, packed });
        stage.advance(bytes);
    }
    let tool_version = env!("CARGO_PKG_VERSION").to_string();
    let manifest = PackManifest { dataset: dataset.name().into(), level: options.level, tool_version, files };
    document::write(&staging.path(MANIFEST), &manifest)?;
    let summary = summary(&manifest);
    staging.commit()?;
    Ok(summary)
}

/// Packs one file in the form that suits it.
fn pack_file(
    source: &Path,
    name: &str,
    staging: &Staging,
    level: i32,
    taken: &mut Vec<String>,
) -> Result<(Form, Vec<(String, FileRecord)>)> {
    let stem = name
        .rsplit_once('.')
        .filter(|(stem, _)| !stem.is_empty() && !stem.ends_with('/'))
        .map_or(name, |(stem, _)| stem);
    let mut free = |wanted: [String; 2]| {
        let [first, second] = wanted;
        let name = if taken.contains(&first) { second } else { first };
        taken.push(name.clone());
        (staging.path(&name), name)
    };
    if name.ends_with(".json") {
        let (path, packed) = free([name.into(), format!("{name}.copy")]);
        return Ok((Form::Copy, vec![(packed, copy::copy(source, &path)?)]));
    }
    let mut table = || free([format!("{stem}.parquet"), format!("{name}.parquet")]);
    if name.ends_with(".npy")
        && let Some(array) = array::Array::open(source)?
    {
        let (path, packed) = table();
        return Ok((Form::Array, vec![(packed, array.pack(&path, level)?)]));
    }
    if name.ends_with(".arrow")
        && let Some(arrow) = arrow::ArrowFile::open(source)?
    {
        let (path, packed) = table();
        let columns = arrow.pack(&path, level)?;
        let (path, frame) = free([format!("{stem}.frame.parquet"), format!("{name}.frame.parquet")]);
        return Ok((Form::Arrow, vec![(packed, columns), (frame, arrow.pack_frame(&path, level)?)]));
    }
    let (path, packed) = free([format!("{name}.parquet"), format!("{name}.bytes.parquet")]);
    Ok((Form::Blob, vec![(packed, blob::pack(source, &path, level)?)]))
}

/// Makes a dataset at `out` of what [`pack`] wrote to the folder `packed`. Every packed file is checked before it is read, and
/// every file that is written against the digest of the one that was packed.
pub fn unpack(packed: &Path, out: &Path, force: bool, progress: &dyn Progress) -> Result<PackSummary> {
    if !packed.join(MANIFEST).exists() {
        let problem = "holds no pack.json: expected a folder that `gsplit pack` made";
        return Err(Error::input(packed, problem));
    }
    dataset_target(out).check(force)?;
    let (manifest, _) = document::read::<PackManifest>(&packed.join(MANIFEST))?;
    let staging = Staging::begin(dataset_target(out), force)?;
    let total = manifest.files.values().map(|file| file.file.bytes).sum();
    let stage = progress.stage("unpacking", Some(total), Unit::Bytes);
    for (name, file) in &manifest.files {
        check_name(packed, name)?;
        for (part, record) in &file.packed {
            check_name(packed, part)?;
            check_record(&packed.join(part), record)?;
        }
        let target = staging.path(name);
        let parts: Vec<PathBuf> = file.packed.iter().map(|(part, _)| packed.join(part)).collect();
        let written = match (file.form, parts.as_slice()) {
            (Form::Copy, [part]) => copy::copy(part, &target)?,
            (Form::Array, [part]) => array::unpack(part, &target)?,
            (Form::Arrow, [part, frame]) => arrow::unpack(part, frame, &target)?,
            (Form::Blob, [part]) => blob::unpack(part, &target)?,
            _ => return Err(Error::input(packed.join(MANIFEST), format!("`{name}`: wrong number of packed files"))),
        };
        if written != file.file {
            let problem = format!("unpacking it gives {} bytes with checksum {}", written.bytes, written.checksum);
            let expected = format!("expected {} with {}: pack it again", file.file.bytes, file.file.checksum);
            return Err(Error::input(packed.join(name), format!("{problem}, {expected}")));
        }
        stage.advance(file.file.bytes);
    }
    check_documents(packed, &staging.path(""), &manifest)?;
    staging.commit()?;
    Ok(summary(&manifest))
}

/// Checks that what was unpacked is what its documents say, and that it opens.
fn check_documents(packed: &Path, root: &Path, manifest: &PackManifest) -> Result<()> {
    let names: Vec<String> = manifest.files.keys().cloned().collect();
    for (name, expected) in recorded_checksums(root, &names)? {
        if manifest.files.get(&name).is_none_or(|file| file.file.checksum != expected) {
            return Err(Error::input(
                packed.join(MANIFEST),
                format!("`{name}` is not what its document says: pack it again"),
            ));
        }
    }
    Dataset::open_unchecked(root)?;
    Ok(())
}

/// The digests that the JSON documents among `names` record of the files beside them.
fn recorded_checksums(root: &Path, names: &[String]) -> Result<BTreeMap<String, Checksum>> {
    #[derive(Deserialize)]
    struct Envelope {
        content: Content,
    }
    #[derive(Deserialize)]
    struct Content {
        files: BTreeMap<String, FileRecord>,
    }
    let mut recorded = BTreeMap::new();
    for name in names.iter().filter(|name| name.ends_with(".json")) {
        let text = read_file(root.join(name)).map_err(Error::io(root.join(name)))?;
        let Ok(document) = serde_json::from_slice::<Envelope>(&text) else { continue };
        let folder = name.rsplit_once('/').map(|(folder, _)| format!("{folder}/")).unwrap_or_default();
        let files = document.content.files.into_iter();
        recorded.extend(files.map(|(file, record)| (format!("{folder}{file}"), record.checksum)));
    }
    Ok(recorded)
}

fn check_record(path: &Path, record: &FileRecord) -> Result<()> {
    let (bytes, checksum) = checksum_file(path)?;
    if (bytes, &checksum) == (record.bytes, &record.checksum) {
        return Ok(());
    }
    let expected = format!("expected {} with {}: copy it again", record.bytes, record.checksum);
    Err(Error::input(path, format!("damaged: {bytes} bytes with checksum {checksum}, {expected}")))
}

/// Refuses names that lead out of the folder.
fn check_name(packed: &Path, name: &str) -> Result<()> {
    let inside = !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if inside {
        return Ok(());
    }
    Err(Error::input(packed.join(MANIFEST), format!("`{name}`: expected a name inside the folder")))
}

/// The names of all files below `folder`, relative to `root`, sorted; hidden ones are work under way.
fn files_below(root: &Path, folder: &Path, names: &mut Vec<String>) -> Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        entries.push(entry.map_err(Error::io(folder))?.path());
    }
    entries.sort();
    for path in entries {
        let relative = path.strip_prefix(root).ok().and_then(Path::to_str);
        let name = relative.ok_or_else(|| Error::input(&path, "expected a name in UTF-8"))?;
        let hidden = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with('.'));
        let kind = fs::symlink_metadata(&path).map_err(Error::io(&path))?;
        match (hidden, kind.is_dir(), kind.is_file()) {
            (true, _, _) => {}
            (_, true, _) => files_below(root, &path, names)?,
            (_, _, true) => names.push(name.to_string()),
            _ => return Err(Error::input(&path, "expected files and folders in a dataset: move it elsewhere")),
        }
    }
    Ok(())
}

fn total_bytes(root: &Path, names: &[String]) -> Result<u64> {
    let length = |name: &String| Ok(fs::metadata(root.join(name)).map_err(Error::io(root.join(name)))?.len());
    names.iter().map(length).sum()
}

fn summary(manifest: &PackManifest) -> PackSummary {
    let packed = |file: &PackedFile| file.packed.iter().map(|(_, record)| record.bytes).sum::<u64>();
    PackSummary {
        files: manifest.files.len() as u64,
        dataset_bytes: manifest.files.values().map(|file| file.file.bytes).sum(),
        packed_bytes: manifest.files.values().map(packed).sum(),
    }
}
