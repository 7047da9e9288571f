//! Columns that the names of folders give: `year` of `year=2020/part-0.parquet`, as Spark, DuckDB
//! and pandas write tables that are divided by a column.

use std::path::{Path, PathBuf};

use super::cells::{Cell, Number};
use super::choice::{Field, IdKind};
use crate::edges::ValueType;
use crate::read::text::value::kind_of_all;

/// Name of the folder of rows without a value.
const MISSING: &str = "__HIVE_DEFAULT_PARTITION__";

/// A column of folder names.
pub struct FolderColumn {
    /// Its name and type.
    pub field: Field,
    /// Its value in each file; empty where it has none.
    values: Vec<String>,
}

impl FolderColumn {
    fn new(name: String, values: Vec<String>) -> Self {
        let cells = values.iter().map(|text| text.as_bytes()).filter(|text| !text.is_empty());
        let value = kind_of_all(cells).value();
        let field = Field {
            name,
            id: value.is_none().then_some(IdKind::Text),
            value: value.map(|value| (value, 1)),
            list: false,
            is_fractional: false,
            is_empty: false,
        };
        Self { field, values }
    }

    /// Its cell in the rows of file `part`.
    pub fn cell(&self, part: usize) -> Cell<'_> {
        let text = self.values[part].as_str();
        let number = match self.field.value {
            _ if text.is_empty() => return Cell::Missing,
            None => return Cell::Text(text),
            Some((ValueType::I64, _)) => text.parse().map(Number::Signed).ok(),
            Some(_) => text.parse().map(Number::Double).ok(),
        };
        number.map_or(Cell::Missing, Cell::Number)
    }

    /// Its value in each file.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(String::as_str)
    }
}

/// The columns that the folders of `files` below `path` give.
pub fn columns(path: &Path, files: &[PathBuf]) -> Vec<FolderColumn> {
    let mut columns: Vec<(&str, Vec<String>)> = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let folder = file.strip_prefix(path).ok().and_then(Path::parent).unwrap_or(Path::new(""));
        for (name, value) in folder.iter().filter_map(|part| part.to_str()?.split_once('=')) {
            let place = columns.iter().position(|(known, _)| *known == name);
            let place = place.unwrap_or_else(|| {
                columns.push((name, vec![String::new(); files.len()]));
                columns.len() - 1
            });
            columns[place].1[at] = if value == MISSING { String::new() } else { value.into() };
        }
    }
    columns.into_iter().map(|(name, values)| FolderColumn::new(name.into(), values)).collect()
}
