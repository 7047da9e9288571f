mod archives;
mod asked;
mod bad_input;
mod cells;
mod downloads;
mod from_one;
mod gaps;
mod golden;
mod links;
mod meaning;
mod real_files;
mod recipes;
mod reuse;
mod structure;
mod tables;
mod values;
mod whole_numbers;

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use gsplit_store::{NoProgress, Split};
use tempfile::TempDir;

use super::*;
use crate::read::golden::{copy, data};

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

/// Converts into a new folder.
fn convert_new(source: &Path, options: &ConvertOptions) -> Result<(TempDir, Dataset)> {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, outcome) = convert(source, &folder.path().join("ds"), options, false, &NoProgress)?;
    assert_eq!(outcome, Outcome::Converted);
    Ok((folder, dataset))
}
