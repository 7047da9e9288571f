//! Classes in a file of predictions, as `gsplit infer --out FILE.parquet` writes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_schema::DataType;
use gsplit_store::NoProgress;

use super::{TableFormat, cells, frames, rows};
use crate::Result;
use crate::memory::Memory;

/// First columns of predictions: the ids, and the class by its name or its number. Probabilities follow.
const COLUMNS: [&str; 2] = ["id", "class"];

/// The classes in the Parquet file at `path`, ascending, and the number of rows of each; `None` for a file with other columns than
/// predictions have.
///
/// # Errors
/// A damaged file.
pub fn predicted_classes(path: &Path) -> Result<Option<Vec<(String, u64)>>> {
    let parts = frames::open(path, &[PathBuf::from(path)], TableFormat::Parquet, Memory::default(), &[], &NoProgress)?;
    let fields: Vec<_> = parts.iter().flat_map(|part| part.schema().fields().iter().cloned()).collect();
    let are_predictions = fields.iter().map(|field| field.name()).take(2).eq(COLUMNS.iter())
        && matches!(fields[1].data_type(), DataType::Int32 | DataType::Utf8View)
        && fields[2..].iter().all(|field| field.name().starts_with("probability_"));
    if !are_predictions {
        return Ok(None);
    }
    let mut classes: BTreeMap<(Option<i64>, String), u64> = BTreeMap::new();
    frames::scan(&parts, &[COLUMNS[1].to_string()], &mut |_, _, columns| {
        for row in 0..columns[0].len() {
            let class = match cells::cell(columns[0].as_ref(), row) {
                Ok(rows::Cell::Number(_, _, Some(number))) => (Some(number), number.to_string()),
                Ok(rows::Cell::Text(name)) => (None, name.to_string()),
                _ => continue,
            };
            *classes.entry(class).or_default() += 1;
        }
        Ok(())
    })?;
    Ok(Some(classes.into_iter().map(|((_, name), count)| (name, count)).collect()))
}
