//! Classes in a file of predictions, as `gsplit infer --out FILE.parquet` writes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_schema::DataType;
use gsplit_store::NoProgress;

use super::{TableFormat, cells, frames, rows};
use crate::Result;
use crate::memory::Memory;

/// Columns of predictions; the last where classes have names.
const COLUMNS: [&str; 3] = ["id", "class", "class_name"];

/// The classes in the Parquet file at `path`, by name or else by number, ascending by number, and the rows that each has; `None` of a file
/// with other columns than predictions have.
///
/// # Errors
/// A damaged file.
pub fn predicted_classes(path: &Path) -> Result<Option<Vec<(String, u64)>>> {
    let parts = frames::open(path, &[PathBuf::from(path)], TableFormat::Parquet, Memory::default(), &[], &NoProgress)?;
    let fields: Vec<_> = parts.iter().flat_map(|part| part.schema().fields().iter().cloned()).collect();
    let are_predictions = fields.len() >= 2
        && fields.iter().map(|field| field.name()).eq(COLUMNS.iter().take(fields.len()))
        && *fields[1].data_type() == DataType::Int32;
    if !are_predictions {
        return Ok(None);
    }
    let mut classes: BTreeMap<i32, (String, u64)> = BTreeMap::new();
    let names: Vec<String> = COLUMNS[1..fields.len()].iter().map(|name| name.to_string()).collect();
    frames::scan(&parts, &names, &mut |_, _, columns| {
        for (row, &class) in columns[0].as_primitive::<Int32Type>().values().iter().enumerate() {
            let of_class = classes.entry(class).or_insert_with(|| (name(columns.get(1), row, class), 0));
            of_class.1 += 1;
        }
        Ok(())
    })?;
    Ok(Some(classes.into_values().collect()))
}

/// The name of `class` in `row`, where there is one.
fn name(names: Option<&ArrayRef>, row: usize, class: i32) -> String {
    match names.map(|names| cells::cell(names.as_ref(), row)) {
        Some(Ok(rows::Cell::Text(name))) => name.into(),
        _ => class.to_string(),
    }
}
