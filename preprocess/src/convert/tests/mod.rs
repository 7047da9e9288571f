mod archives;
mod asked;
mod bad_input;
mod cells;
mod downloads;
mod from_one;
mod gaps;
mod golden;
mod joined;
mod keyed;
mod links;
mod meaning;
mod real_files;
mod recipes;
mod reuse;
mod schema;
mod silent;
mod structure;
mod tables;
mod typed;
mod values;
mod whole_numbers;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, RecordBatch};
use clap::{Args, Command, FromArgMatches};
use flate2::Compression;
use flate2::write::GzEncoder;
use gsplit_store::{NoProgress, Notes, Split};
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
    let (dataset, outcome) =
        convert(source, &folder.path().join("ds"), options, false, &NoProgress)?;
    assert_eq!(outcome, Outcome::Converted);
    Ok((folder, dataset))
}

/// Options as the command line gives them.
fn options(words: &str) -> ConvertOptions {
    let command = ConvertOptions::augment_args(Command::new("convert").no_binary_name(true));
    let matches = command.try_get_matches_from(words.split_whitespace()).unwrap();
    ConvertOptions::from_arg_matches(&matches).unwrap()
}

/// A file of this name and content, in a folder of its own.
fn file(name: &str, content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    (folder, path)
}

/// A folder with these tables of edges and of vertices.
fn folder(edges: &str, nodes: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("edges.csv"), edges).unwrap();
    fs::write(folder.path().join("nodes.csv"), nodes).unwrap();
    folder
}

/// Converts the tables in `folder` with the options in `words`. Returns the dataset or the one-line
/// message, and the notes.
fn made(folder: &Path, words: &str) -> (Result<Dataset, String>, String) {
    let mut options = options(words);
    options.read.nodes = options.read.nodes.or(Some(folder.join("nodes.csv")));
    let notes = Notes::default();
    let out = tempfile::tempdir_in(folder).unwrap().keep();
    let made = convert(&folder.join("edges.csv"), &out.join("ds"), &options, false, &notes);
    let made = made.map(|(dataset, _)| dataset).map_err(|error| error.to_string());
    assert!(made.as_ref().err().is_none_or(|message| message.lines().count() == 1), "{made:?}");
    (made, notes.lines().join("\n"))
}

/// Fails unless the tables, converted by `words`, are refused with all of `parts`.
fn refused(folder: &TempDir, words: &str, parts: &[&str]) {
    let (dataset, _) = made(folder.path(), words);
    let problem = dataset.err().unwrap_or_else(|| panic!("{words}: expected {parts:?}"));
    parts.iter().for_each(|part| assert!(problem.contains(part), "{words}: {part}: {problem}"));
}

/// The dataset of the tables by `words`, and the notes. Without a recipe features are as they are,
/// and edges as they point.
fn converted(folder: &TempDir, words: &str) -> (Dataset, String) {
    let scale = if words.contains("--schema scale") || words.contains("--recipe") {
        ""
    } else {
        "--schema \
                                                                                         scale=none"
    };
    let directed = if words.contains("--recipe") { "" } else { "--directed" };
    let (dataset, notes) = made(folder.path(), &format!("{scale} {directed} {words}"));
    (dataset.unwrap_or_else(|problem| panic!("{words}: {problem}")), notes)
}

fn names(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|&name| name.into()).collect())
}

fn rows(dataset: &Dataset) -> Vec<Vec<f32>> {
    let features = dataset.features().unwrap();
    (0..dataset.num_vertices() as u32).map(|v| features.row::<f32>(v).to_vec()).collect()
}

fn labels(dataset: &Dataset) -> Vec<i32> {
    dataset.labels().unwrap().to_vec()
}

/// Writes these columns as Parquet.
fn write_parquet(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let nullable = columns.into_iter().map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(nullable).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), None)
            .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}
