//! The files that make up a table: one, or a folder of parts as Spark, DuckDB and Dask write it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::splits;
use crate::read::pick::describes;
use crate::read::text::{name_of, some, uncompressed};
use crate::{Error, Result};
use gsplit_store::open_file;

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
        let problem = "Feather version 1: write it as version 2, Arrow or Parquet";
        return Err(Error::input(path, problem));
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
/// files below the folder, except documents and names that start with `_` or `.`. The files that
/// are passed over go to `decisions`. A file whose content and name do not show its format is
/// `unnamed`. Fails if the folder is empty, if its files differ in format, or if a log says which
/// of them count.
pub fn parts(
    path: &Path,
    unnamed: Option<TableFormat>,
    decisions: &mut Vec<String>,
) -> Result<(Vec<PathBuf>, TableFormat)> {
    let mut files = Vec::new();
    if path.is_dir() {
        let mut passed_over = Vec::new();
        files_below(path, 0, &mut files, &mut passed_over)?;
        files.sort();
        passed_over.extend(files.extract_if(.., |file| is_document(file)));
        if !passed_over.is_empty() {
            let names: Vec<String> = passed_over.iter().map(|file| name_of(file)).collect();
            decisions.push(format!(
                "{}: passed over {} (not parts of the table, by their names)",
                path.display(),
                some(&names)
            ));
        }
        if let [first, .., last] = &files[..] {
            let [first, last] = [first, last].map(|file| below(path, file));
            let count = files.len();
            decisions
                .push(format!("{}: one table of {count} files, {first} to {last}", path.display()));
        }
    } else {
        files.push(path.to_path_buf());
    }
    let mut format = None;
    for file in &files {
        let found = format_of(file)?.or(unnamed).ok_or_else(|| no_table(file))?;
        if *format.get_or_insert(found) != found {
            let problem = "holds parts of several formats: expected one, Parquet, Arrow or CSV";
            return Err(Error::input(path, problem));
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

/// The path of `file` below `folder`.
fn below(folder: &Path, file: &Path) -> String {
    file.strip_prefix(folder).unwrap_or(file).display().to_string()
}

fn no_table(path: &Path) -> Error {
    Error::input(
        path,
        "expected a table: Parquet, Arrow, or a .csv or .tsv file (.gz, .zst, .bz2 and .xz too)",
    )
}

/// Appends the files below `folder` to `files`, and hidden ones that have content to
/// `passed_over`.
fn files_below(
    folder: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
    passed_over: &mut Vec<PathBuf>,
) -> Result<()> {
    if depth > MAX_DEPTH {
        let problem = format!("more than {MAX_DEPTH} folders below one another: expected a table");
        return Err(Error::input(folder, problem));
    }
    let entries = gsplit_store::entries(folder).map_err(Error::io(folder))?;
    refuse_lake(folder, &entries)?;
    for path in entries {
        let name = name_of(&path);
        if name.starts_with(['.', '_']) {
            // Marks and checksums of the programs that write tables.
            let is_mark = name.ends_with(".crc") || name.ends_with("_metadata");
            passed_over.extend(
                Some(path)
                    .filter(|_| !is_mark && !["_SUCCESS", ".DS_Store"].contains(&name.as_str())),
            );
            continue;
        }
        match path.is_dir() {
            true => files_below(&path, depth + 1, files, passed_over)?,
            false => files.push(path),
        }
    }
    Ok(())
}

/// Refuses a folder with the log of a Delta, Hudi or Iceberg table, which says which of its files
/// are still part of it.
fn refuse_lake(folder: &Path, entries: &[PathBuf]) -> Result<()> {
    let has = |name: &str| entries.iter().any(|entry| name_of(entry) == name && entry.is_dir());
    let is_snapshot = |entry: &PathBuf| name_of(entry).ends_with(".metadata.json");
    let is_iceberg = || {
        let metadata = gsplit_store::entries(folder.join("metadata")).unwrap_or_default();
        metadata.iter().any(is_snapshot)
    };
    let table = folder.display();
    let (name, remedy) = match () {
        () if has("_delta_log") => {
            ("Delta", format!("duckdb -c \"COPY (FROM delta_scan('{table}')) TO 'table.parquet'\""))
        }
        () if has("metadata") && is_iceberg() => (
            "Iceberg",
            format!("duckdb -c \"COPY (FROM iceberg_scan('{table}')) TO 'table.parquet'\""),
        ),
        () if has(".hoodie") => (
            "Hudi",
            "spark.read.format('hudi').load(...).write.parquet('table.parquet') in Spark".into(),
        ),
        () => return Ok(()),
    };
    let problem = format!(
        "a {name} table, whose log says which of its files count: write it as plain Parquet with \
         {remedy}, and convert table.parquet"
    );
    Err(Error::input(folder, problem))
}

/// The words of the path of a part below `folder`: parts of one table differ in numbers, hashes and
/// values of columns only.
fn words_of(folder: &Path, file: &Path) -> Vec<String> {
    let path = below(folder, file).to_lowercase();
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let folders = folders.split('/').filter(|folder| !folder.contains('='));
    let stem = name.split('.').next().unwrap_or_default();
    let words = folders.chain([stem]).flat_map(|part| part.split(|c: char| !c.is_alphanumeric()));
    let is_hash = |word: &str| word.chars().all(|c| c.is_ascii_hexdigit());
    words
        .filter(|word| !is_hash(word))
        .map(|word| word.replace(|c: char| c.is_numeric(), ""))
        .collect()
}

/// The first of `files` for each of the names that they have.
fn first_by_name(folder: &Path, files: &[PathBuf]) -> BTreeMap<Vec<String>, usize> {
    let mut first = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        first.entry(words_of(folder, file)).or_insert(at);
    }
    first
}

/// Refuses `files` whose names have different words and whose columns differ: they are several
/// tables. `columns` reads the names of the columns of a file.
pub fn check_one_table(
    path: &Path,
    files: &[PathBuf],
    columns: impl Fn(usize) -> Result<Vec<String>>,
) -> Result<()> {
    const SHOWN: usize = 4;
    let first = first_by_name(path, files);
    if first.len() < 2 {
        return Ok(());
    }
    let mut tables: Vec<(usize, Vec<String>)> = Vec::new();
    for at in first.into_values() {
        tables.push((at, columns(at)?));
    }
    let has_all = |one: &[String], other: &[String]| other.iter().all(|name| one.contains(name));
    let first = &tables[0].1;
    if tables.iter().all(|(_, names)| has_all(first, names) || has_all(names, first)) {
        return Ok(());
    }
    let shown = tables.iter().take(SHOWN).map(|(at, names)| {
        let names: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        format!("{} has {}", below(path, &files[*at]), names.join(", "))
    });
    let problem = format!(
        "its files have different columns, so they are several tables and not parts of one ({}): \
         name a table of edges as INPUT and one of vertices with --nodes, or describe them by a \
         schema.toml in the folder (docs/typed.md)",
        shown.collect::<Vec<_>>().join("; ")
    );
    Err(Error::input(path, problem))
}

/// Asks whether `files` of the same columns are one table if their names have different words:
/// relations of their own, or a split.
pub fn ask_for_one_table(path: &Path, files: &[PathBuf]) -> Result<()> {
    let first = first_by_name(path, files);
    if first.len() < 2 {
        return Ok(());
    }
    let of_splits = first.keys().flatten().filter(|word| splits::is_named(word)).count();
    let names: Vec<String> = first.into_values().map(|at| below(path, &files[at])).collect();
    let may_be = if of_splits >= 2 {
        "splits, and the model would be trained on all of them"
    } else {
        "relations of their own"
    };
    let problem = format!(
        "{} have the same columns and different names, as if they were {may_be}: pass --schema \
         one-table=yes if they are parts of one table, or name one of them, or its folder, as the \
         input",
        some(&names)
    );
    Err(Error::input(path, problem))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let (files, format) = parts(&table, None, &mut Vec::new()).unwrap();
        let names: Vec<_> =
            files.iter().map(|file| file.strip_prefix(&table).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["part-02.parquet", "part-10.parquet", "year=2/part-0.parquet"]);
        assert_eq!(format, TableFormat::Parquet);
    }

    #[test]
    fn parts_of_one_table_differ_in_numbers_and_hashes() {
        for (files, expected) in [
            (&["part-00000-1f0c-ab.c000.snappy.parquet", "part-00001-77aa-cd.c000.parquet"][..], 1),
            (&["data_0.parquet", "data_1.parquet"], 1),
            (&["000000000000.parquet", "000000000001.parquet"], 1),
            (&["day=1/a1.csv", "day=2/a2.csv"], 1),
            (&["edges2019.csv", "edges2020.csv"], 1),
            (&["user_buys_item.parquet", "user_follows_user.parquet"], 2),
            (&["train/0.parquet", "valid/0.parquet", "test/0.parquet"], 3),
            (&["train.csv", "test.csv"], 2),
        ] {
            let files: Vec<PathBuf> = files.iter().map(|file| Path::new("t").join(file)).collect();
            assert_eq!(first_by_name(Path::new("t"), &files).len(), expected, "{files:?}");
            let asked = ask_for_one_table(Path::new("t"), &files);
            assert_eq!(asked.is_err(), expected > 1, "{files:?}");
        }
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
            let message = parts(&path(name), None, &mut Vec::new()).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(expected), "{message}");
        }
        assert_eq!(
            parts(&path("notes.md"), Some(TableFormat::Csv), &mut Vec::new()).unwrap().1,
            TableFormat::Csv
        );
    }
}
