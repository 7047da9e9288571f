mod bad_input;
mod golden;
mod real_files;
mod reuse;

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use gsplit_store::{NoProgress, Split};
use tempfile::TempDir;

use super::*;

/// The tiny inputs that `tests/data/make.py` wrote.
fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data")
}

/// A named input, so that tables of cases read as such.
fn ogb(dir: impl Into<PathBuf>) -> PathBuf {
    dir.into()
}

fn snap(file: impl Into<PathBuf>) -> PathBuf {
    file.into()
}

fn gz(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A copy of one of the tiny OGB folders, to be damaged.
fn copy(name: &str) -> TempDir {
    fn copy_tree(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_dir() {
                copy_tree(&from, &to);
            } else {
                std::fs::copy(from, to).unwrap();
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    copy_tree(&data().join(name), folder.path());
    folder
}

/// Converts into a new folder.
fn convert_new(source: &Path, options: &ConvertOptions) -> Result<(TempDir, Dataset)> {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, outcome) = convert(source, &folder.path().join("ds"), options, false, &NoProgress)?;
    assert_eq!(outcome, Outcome::Converted);
    Ok((folder, dataset))
}
