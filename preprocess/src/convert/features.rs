//! The last stage: feature rows, from the input or generated.

use gsplit_kernels::schedule::HeldOutLinks;
use gsplit_store::{DatasetWriter, FeatureDtype, FeatureWriter, Progress, WITHOUT_LINKS};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use super::ConvertOptions;
use super::rows::RowOrder;
use crate::Result;
use crate::embed::GeneratedFeatures;
use crate::read::raw::{Column, Raw, element_bytes, numbers};
use crate::read::text::field::check_feature;

/// Name of the stage in the journal.
pub const STAGE: &str = "features";

/// Writes the features.
pub fn write(
    raw: &Raw,
    options: &ConvertOptions,
    writer: &mut DatasetWriter,
    progress: &dyn Progress,
) -> Result<()> {
    let dtype = options.feature_dtype;
    for (at, column) in raw.types.iter().flat_map(|types| types.features.iter().enumerate()) {
        let Some(column) = column else { continue };
        let mut rows = writer.feature_writer_of(at, dtype, column.width())?;
        column.read(progress, &mut pushed(column.as_ref(), dtype, &mut rows))?;
        writer.add_features_of(at, rows)?;
    }
    match (options.features, &raw.features) {
        (Some(generated), column) => {
            if column.is_some() {
                progress.note(&format!(
                    "note: the input's own features are left out for --features {generated}"
                ));
            }
            let topology = writer.topology()?;
            let mut rows = writer.feature_writer(dtype, generated.dim())?;
            let held_out = held_out(generated, options, raw.edges.has_two_kinds());
            let kept =
                held_out.map(|held_out| without(&held_out, topology.indptr(), topology.indices()));
            let (indptr, indices) = match &kept {
                Some((indptr, indices)) => (&indptr[..], &indices[..]),
                None => (topology.indptr(), topology.indices()),
            };
            generated.generate_rows(indptr, indices, options.seed, &mut rows, progress)?;
            let of =
                held_out.map(|held_out| format!("{WITHOUT_LINKS}{held_out}")).unwrap_or_default();
            writer.add_features(rows, Some(format!("{generated}{of}")))?;
        }
        (None, Some(column)) => {
            let (n, scratch) = (writer.num_vertices(), writer.scratch());
            let order = RowOrder::of(raw, writer, &options.read.schema)?;
            let mut rows = writer.feature_writer(dtype, column.width())?;
            let mut push = pushed(column.as_ref(), dtype, &mut rows);
            order.read(column.as_ref(), n, &scratch, progress, &mut push)?;
            drop(push);
            writer.add_features(rows, None)?;
        }
        (None, None) => {}
    }
    Ok(())
}

/// Pushes rows of `column` to `rows`, once they are checked.
fn pushed<'a>(
    column: &'a dyn Column,
    dtype: FeatureDtype,
    rows: &'a mut FeatureWriter,
) -> impl FnMut(&[u8]) -> Result<()> + 'a {
    let (mut values, mut row) = (Vec::new(), 0);
    move |bytes| {
        to_f32(column.descr(), bytes, &mut values);
        check(column, row, &values, dtype)?;
        row += (values.len() / column.width()) as u64;
        Ok(rows.push_rows(&values)?)
    }
}

/// Links that are left out of the graph when `generated` features are computed from its structure.
pub(super) fn held_out(
    generated: GeneratedFeatures,
    options: &ConvertOptions,
    two_kinds: bool,
) -> Option<HeldOutLinks> {
    let default = if two_kinds { 0.15 } else { 0.0 };
    let held_out = options.held_out_links.unwrap_or(HeldOutLinks { share: default, seed: 0 });
    (matches!(generated, GeneratedFeatures::FastRp { .. }) && held_out.share > 0.0)
        .then_some(held_out)
}

/// The graph in CSC form without the held-out links. Takes 8 bytes per vertex and 4 per edge.
fn without(held_out: &HeldOutLinks, indptr: &[u64], indices: &[u32]) -> (Vec<u64>, Vec<u32>) {
    let (mut starts, mut kept) = (vec![0], Vec::with_capacity(indices.len()));
    for (ends, v) in indptr.windows(2).zip(0..) {
        kept.extend(
            indices[ends[0] as usize..ends[1] as usize].iter().filter(|&&u| !held_out.holds(u, v)),
        );
        starts.push(kept.len() as u64);
    }
    (starts, kept)
}

/// Values that a thread converts at a time.
const PER_TASK: usize = 1 << 14;

/// Converts numbers of type `descr` to single precision.
fn to_f32(descr: &str, bytes: &[u8], values: &mut Vec<f32>) {
    let size = element_bytes(descr);
    values.resize(bytes.len() / size, 0.0);
    values.par_chunks_mut(PER_TASK).zip(bytes.par_chunks(PER_TASK * size)).for_each(
        |(values, bytes)| match descr {
            "<f4" => {
                let chunks = bytes.as_chunks().0;
                values
                    .iter_mut()
                    .zip(chunks)
                    .for_each(|(value, &chunk)| *value = f32::from_le_bytes(chunk));
            }
            "<f2" => {
                let halves: Vec<f16> =
                    bytes.as_chunks().0.iter().map(|&chunk| f16::from_le_bytes(chunk)).collect();
                halves.convert_to_f32_slice(values);
            }
            _ => values
                .iter_mut()
                .zip(numbers(descr, bytes))
                .for_each(|(value, number)| *value = number as f32),
        },
    );
}

/// Fails unless every value is finite, also after conversion to `dtype`. The values start at row
/// `row`.
fn check(column: &dyn Column, row: u64, values: &[f32], dtype: FeatureDtype) -> Result<()> {
    let largest = match dtype {
        FeatureDtype::F32 | FeatureDtype::I8 => f32::MAX,
        FeatureDtype::F16 => f16::MAX.to_f32(),
        FeatureDtype::Bf16 => bf16::MAX.to_f32(),
    };
    // A slightly larger value may still be rounded down, so `check_feature` decides; NaN fails
    // every comparison.
    let fine =
        |values: &[f32]| values.iter().fold(true, |fine, value| fine & (value.abs() <= largest));
    if values.par_chunks(PER_TASK).all(fine) {
        return Ok(());
    }
    let wrong = values
        .iter()
        .zip(0..)
        .find_map(|(&value, at)| Some((at, check_feature(value, dtype).err()?)));
    match wrong {
        None => Ok(()),
        Some((at, problem)) => {
            Err(column.error(row + (at / column.width()) as u64, at % column.width(), &problem))
        }
    }
}
