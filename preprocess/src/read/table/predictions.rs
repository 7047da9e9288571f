//! Classes in a file of predictions, written by `gsplit infer --out FILE.parquet`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_schema::DataType;
use gsplit_store::NoProgress;

use super::TableFormat;
use super::cells::Cell;
use super::rows::Table;
use crate::Result;
use crate::memory::Memory;
use crate::read::options::TextOptions;

const PROBABILITY: &str = "probability_";

/// Predictions of classes in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct PredictedClasses {
    /// Rows, one for each vertex.
    pub rows: u64,
    /// Each class, by its name or number, and the number of rows that have it.
    pub classes: Vec<(String, u64)>,
}

/// The predicted classes in the Parquet file at `path`; `None` if its columns are not the expected ones: `id`, then
/// `class`, or one column of 0 and 1 per class if a vertex can have several, then `probability_NAME` for each class.
///
/// # Errors
/// A damaged file.
pub fn predicted_classes(path: &Path) -> Result<Option<PredictedClasses>> {
    let (files, format) = ([PathBuf::from(path)], TableFormat::Parquet);
    let table = Table::of(path, &files, format, TextOptions::default(), Memory::default(), &[], &NoProgress)?;
    let names: Vec<&str> = table.fields.iter().map(|field| field.name.as_str()).collect();
    let Some((_, others)) = names.split_first().filter(|(first, _)| **first == "id") else { return Ok(None) };
    let (probabilities, classes): (Vec<&str>, Vec<&str>) =
        others.iter().copied().partition(|name| name.starts_with(PROBABILITY));
    let type_of = |at: usize| table.data_type(at + 1);
    let has_one = classes == ["class"] && matches!(type_of(0), Some(DataType::Int32 | DataType::Utf8View));
    let has_several = !classes.is_empty()
        && (0..classes.len()).all(|at| type_of(at) == Some(&DataType::UInt8))
        && probabilities.iter().map(|name| &name[PROBABILITY.len()..]).eq(classes.iter().copied());
    if !others.iter().eq(classes.iter().chain(&probabilities)) || !(has_one || has_several) {
        return Ok(None);
    }
    type Counts = BTreeMap<(Option<i64>, String), u64>;
    let count = |counts: &mut Counts, slot: usize, cell: Cell<'_>| {
        let class = match cell {
            Cell::Number(number) if has_several && number.f64() == 0.0 => return Ok(()),
            Cell::Number(_) if has_several => (None, classes[slot].to_string()),
            Cell::Number(number) => (Some(number.f64() as i64), number.to_string()),
            Cell::Text(name) => (None, name.to_string()),
            _ => return Ok(()),
        };
        *counts.entry(class).or_default() += 1;
        Ok(())
    };
    let mut all = Counts::new();
    let places: Vec<usize> = (1..=classes.len()).collect();
    table.for_rows(&places, &NoProgress, count, &mut |counts: Counts| {
        counts.into_iter().for_each(|(class, count)| *all.entry(class).or_default() += count);
        Ok(())
    })?;
    let classes = all.into_iter().map(|((_, name), count)| (name, count)).collect();
    Ok(Some(PredictedClasses { rows: table.about_rows(), classes }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float32Array, Int32Array, RecordBatch, StringArray, UInt8Array};
    use parquet::arrow::ArrowWriter;

    use super::*;

    fn predicted(columns: Vec<(&str, ArrayRef)>) -> Option<PredictedClasses> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.parquet");
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        predicted_classes(&path).unwrap()
    }

    #[test]
    fn one_and_several_classes_are_counted_and_other_tables_are_not() {
        let ids = || -> (&str, ArrayRef) { ("id", Arc::new(StringArray::from(vec!["a", "b", "c"]))) };
        let flags = |name, bits: [u8; 3]| -> (&str, ArrayRef) { (name, Arc::new(UInt8Array::from(bits.to_vec()))) };
        let shares = |name| -> (&str, ArrayRef) { (name, Arc::new(Float32Array::from(vec![0.5; 3]))) };
        let counted = |classes: &[(&str, u64)]| {
            let classes = classes.iter().map(|&(name, count)| (name.to_string(), count)).collect();
            Some(PredictedClasses { rows: 3, classes })
        };
        let number: (&str, ArrayRef) = ("class", Arc::new(Int32Array::from(vec![10, 2, 2])));
        assert_eq!(
            predicted(vec![ids(), number, shares("probability_2"), shares("probability_10")]),
            counted(&[("2", 2), ("10", 1)])
        );
        let several = || vec![ids(), flags("x", [1, 1, 0]), flags("y", [0, 1, 0])];
        let all = [several(), vec![shares("probability_x"), shares("probability_y")]].concat();
        assert_eq!(predicted(all), counted(&[("x", 2), ("y", 1)]));
        // A table of flags, and probabilities of other classes.
        assert_eq!(predicted(several()), None);
        assert_eq!(predicted([several(), vec![shares("probability_x"), shares("probability_z")]].concat()), None);
    }
}
