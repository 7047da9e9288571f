//! The files that make up a table: one, or a folder of parts as Spark, DuckDB and Dask write it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::read::pick::describes;
use crate::read::text::{name_of, some, uncompressed};
use crate::{Error, Result};
use gsplit_store::{Progress, open_file};

/// Format of a table's files. The format of a whole input is [`crate::read::detect::Format`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC, file or stream; Feather version 2 is the former.
    Arrow,
    /// Text with a header line, plain or compressed.
    Csv,
}

impl std::fmt::Display for TableFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Parquet => "Parquet",
            Self::Arrow => "Arrow",
            Self::Csv => "CSV",
        })
    }
}

/// Maximum depth of nested folders that are searched.
const MAX_DEPTH: usize = 16;

/// Format of the file at `path`, by its first bytes, or else by its name. `None` if it is not a
/// table.
pub fn format_of(path: &Path) -> Result<Option<TableFormat>> {
    let mut head = [0u8; 6];
    let mut file = open_file(path).map_err(Error::io(path))?;
    let mut filled = 0;
    while filled < head.len() {
        match file.read(&mut head[filled..]).map_err(Error::io(path))? {
            0 => break,
            read => filled += read,
        }
    }
    let head = &head[..filled];
    if head.starts_with(b"FEA1") {
        return Err(Error::input(
            path,
            "Feather version 1: write it as version 2, Arrow or Parquet",
        ));
    }
    let by_name = by_name(path);
    match (head, by_name) {
        (head, _) if head.starts_with(b"PAR1") => Ok(Some(TableFormat::Parquet)),
        (head, _) if head.starts_with(b"ARROW1") || head.starts_with(&[0xff; 4]) => {
            Ok(Some(TableFormat::Arrow))
        }
        (_, Some(TableFormat::Parquet)) => {
            Err(Error::input(path, "expected a Parquet file, which starts with PAR1"))
        }
        (_, Some(TableFormat::Arrow)) => {
            Err(Error::input(path, "expected an Arrow file, which starts with ARROW1"))
        }
        (_, by_name) => Ok(by_name),
    }
}

/// Format by the ending of a file's name.
pub fn by_name(path: &Path) -> Option<TableFormat> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    match Path::new(uncompressed(&name)).extension()?.to_str()? {
        "parquet" | "parq" | "pq" => Some(TableFormat::Parquet),
        "arrow" | "arrows" | "feather" | "ipc" => Some(TableFormat::Arrow),
        "csv" | "tsv" | "psv" => Some(TableFormat::Csv),
        _ => None,
    }
}

/// Whether a file in a folder of parts only describes the table, by its name.
pub fn is_document(path: &Path) -> bool {
    by_name(path).is_none()
        && (describes(path) || path.extension().is_some_and(|ending| ending == "json"))
}

/// The parts of the table at `path`, sorted by name, and their format: the file itself, or all
/// files below the folder, except documents, which are listed, and names that start with `_` or
/// `.`. A file whose content and name do not show its format is `unnamed`. Fails if there are no
/// files, or if they differ in format.
pub fn parts(
    path: &Path,
    unnamed: Option<TableFormat>,
    progress: &dyn Progress,
) -> Result<(Vec<PathBuf>, TableFormat)> {
    let mut files = Vec::new();
    if path.is_dir() {
        files_below(path, 0, &mut files)?;
        files.sort();
        let documents: Vec<PathBuf> = files.extract_if(.., |file| is_document(file)).collect();
        if !documents.is_empty() {
            let names: Vec<String> = documents.iter().map(|file| name_of(file)).collect();
            progress.decide(&format!(
                "{}: passed over {} (not tables, by their names)",
                path.display(),
                some(&names)
            ));
        }
    } else {
        files.push(path.to_path_buf());
    }
    let mut format = None;
    for file in &files {
        let found = format_of(file)?.or(unnamed).ok_or_else(|| no_table(file))?;
        if *format.get_or_insert(found) != found {
            return Err(Error::input(
                path,
                "holds parts of several formats: expected one, Parquet, Arrow or CSV",
            ));
        }
    }
    match format {
        Some(format) => Ok((files, format)),
        None => Err(Error::input(
            path,
            "holds no part files: expected Parquet, Arrow or CSV files with a header line",
        )),
    }
}

fn no_table(path: &Path) -> Error {
    Error::input(
        path,
        "expected a table: Parquet, Arrow, or a .csv or .tsv file (.gz, .zst, .bz2 and .xz too)",
    )
}

fn files_below(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::input(
            folder,
            format!("more than {MAX_DEPTH} folders below one another: expected a table"),
        ));
    }
    for path in gsplit_store::entries(folder).map_err(Error::io(folder))? {
        let hidden = |name: &OsStr| matches!(name.as_encoded_bytes(), [b'.' | b'_', ..]);
        if path.file_name().is_some_and(hidden) {
            continue;
        }
        match path.is_dir() {
            true => files_below(&path, depth + 1, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

/// The first of `files` for each word that their names begin with: parts of one table mostly differ
/// in numbers only.
fn names_by_word(files: &[PathBuf]) -> BTreeMap<String, usize> {
    let mut of_word = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        let word = name_of(file).chars().take_while(|letter| letter.is_alphabetic()).collect();
        of_word.entry(word).or_insert(at);
    }
    of_word
}

/// Refuses `files` whose names begin with different words and whose columns differ: they are
/// several tables. Where only their names differ, it prints that they are read as one. `columns`
/// reads the names of the columns of a file.
pub fn check_one_table(
    path: &Path,
    files: &[PathBuf],
    progress: &dyn Progress,
    columns: impl Fn(usize) -> Result<Vec<String>>,
) -> Result<()> {
    const SHOWN: usize = 4;
    let of_word = names_by_word(files);
    if of_word.len() < 2 {
        return Ok(());
    }
    let mut tables: Vec<(usize, Vec<String>)> = Vec::new();
    for at in of_word.into_values() {
        tables.push((at, columns(at)?));
    }
    let has_all = |one: &[String], other: &[String]| other.iter().all(|name| one.contains(name));
    let first = tables[0].1.clone();
    if tables.iter().all(|(_, names)| has_all(&first, names) || has_all(names, &first)) {
        let names: Vec<String> = tables.iter().map(|&(at, _)| name_of(&files[at])).collect();
        progress.decide(&format!("{}: parts of one table are {}", path.display(), some(&names)));
        return Ok(());
    }
    let shown = tables.iter().take(SHOWN).map(|(at, names)| {
        let names: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        format!("{} has {}", name_of(&files[*at]), names.join(", "))
    });
    let problem = format!(
        "its files have different columns, so they are several tables and not parts of one ({}): \
         name a table of edges as INPUT and one of \
         vertices with --nodes; gsplit has no types of vertices or edges yet (docs/reference.md)",
        shown.collect::<Vec<_>>().join("; ")
    );
    Err(Error::input(path, problem))
}

/// Names of columns given by folder names, e.g. `year` in `year=2020/part-0.parquet`.
pub fn folder_columns(path: &Path, files: &[PathBuf]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for folder in files.iter().filter_map(|file| file.strip_prefix(path).ok()?.parent()) {
        for part in folder.iter().filter_map(|part| part.to_str()?.split_once('=')) {
            if !names.iter().any(|name| name == part.0) {
                names.push(part.0.to_string());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gsplit_store::NoProgress;

    use super::*;

    #[test]
    fn folders_of_parts_are_read_in_order_and_without_what_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("edges.parquet");
        for name in [
            "part-10.parquet",
            "year=2/part-0.parquet",
            "part-02.parquet",
            "_SUCCESS",
            ".part-10.parquet.crc",
        ] {
            let file = table.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, b"PAR1").unwrap();
        }
        let (files, format) = parts(&table, None, &NoProgress).unwrap();
        let names: Vec<_> =
            files.iter().map(|file| file.strip_prefix(&table).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["part-02.parquet", "part-10.parquet", "year=2/part-0.parquet"]);
        assert_eq!(format, TableFormat::Parquet);
        assert_eq!(folder_columns(&table, &files), ["year"]);
    }

    #[test]
    fn what_is_no_table_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("empty")).unwrap();
        fs::create_dir(path("mixed")).unwrap();
        fs::write(path("mixed/a.parquet"), b"PAR1").unwrap();
        fs::write(path("mixed/b.csv"), b"a,b\n").unwrap();
        fs::write(path("notes.md"), b"# x").unwrap();
        fs::write(path("x.parquet"), b"").unwrap();
        fs::write(path("x.arrow"), b"PK\x03\x04").unwrap();
        fs::write(path("x.feather"), b"FEA1....").unwrap();
        for (name, expected) in [
            ("empty", "holds no part files"),
            ("mixed", "several formats"),
            ("notes.md", "expected a table"),
            ("x.parquet", "starts with PAR1"),
            ("x.arrow", "starts with ARROW1"),
            ("x.feather", "version 2"),
            ("absent.parquet", "check the path"),
        ] {
            let message = parts(&path(name), None, &NoProgress).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(expected), "{message}");
        }
        assert_eq!(
            parts(&path("notes.md"), Some(TableFormat::Csv), &NoProgress).unwrap().1,
            TableFormat::Csv
        );
    }
}
