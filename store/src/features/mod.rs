//! Feature rows: an uncompressed Arrow IPC file with one `FixedSizeList` column, read in place.
//!
//! The rows are cut into record batches of [`ROWS_PER_BATCH`] (the last may be shorter), so that a
//! file of any size is written with one batch in memory, and row `v` is found with a shift and a
//! mask. The field metadata `gsplit.dtype` names the type.
//!
//! * `f32`, `f16`: Arrow's own types. `bf16`, which Arrow does not have, is stored as `uint16`.
//! * `i8`: a second column `scale`, one `float32` a row. A value is `scale * q` with `scale =
//!   max|row| / 127` and `q` the nearest integer, ties to even. A row of zeros has scale 0.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

mod narrow;
mod reads;
mod table;
mod writer;

pub use narrow::Narrowing;
pub use reads::{DiskRates, ReadBy, Reading, RowsRead, VisitRow, planned_reads};
pub use table::FeatureTable;
pub use writer::{FeatureWriter, WrittenFeatures};

#[cfg(test)]
mod tests;

const BATCH_SHIFT: u32 = 14;
/// Rows of each record batch except the last.
pub const ROWS_PER_BATCH: usize = 1 << BATCH_SHIFT;

/// Type of the stored feature values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureDtype {
    /// IEEE single precision.
    #[default]
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
    /// Signed bytes with a scale for each row.
    I8,
}

impl FeatureDtype {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 => 1,
        }
    }
}

impl std::fmt::Display for FeatureDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
        })
    }
}

impl std::str::FromStr for FeatureDtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = [Self::F32, Self::F16, Self::Bf16, Self::I8]
            .into_iter()
            .find(|dtype| dtype.to_string() == text);
        found.ok_or_else(|| {
            Error::Invalid(format!("feature type `{text}`: expected f32, f16, bf16 or i8"))
        })
    }
}

fn schema(dtype: FeatureDtype, dim: i32) -> Schema {
    let value = match dtype {
        FeatureDtype::F32 => DataType::Float32,
        FeatureDtype::F16 => DataType::Float16,
        FeatureDtype::Bf16 => DataType::UInt16,
        FeatureDtype::I8 => DataType::Int8,
    };
    let metadata =
        std::collections::HashMap::from([("gsplit.dtype".to_string(), dtype.to_string())]);
    let values = Field::new("feat", DataType::FixedSizeList(item(value), dim), false)
        .with_metadata(metadata);
    match dtype {
        FeatureDtype::I8 => {
            Schema::new(vec![values, Field::new("scale", DataType::Float32, false)])
        }
        _ => Schema::new(vec![values]),
    }
}

fn item(value: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", value, false))
}

/// The type and the width of the rows that `schema` describes.
fn described(schema: &Schema) -> Option<(FeatureDtype, usize)> {
    let (field, more) = schema.fields().split_first()?;
    let DataType::FixedSizeList(item, dim) = field.data_type() else { return None };
    let dtype = match (item.data_type(), field.metadata().get("gsplit.dtype").map(String::as_str)) {
        (DataType::Float32, _) => FeatureDtype::F32,
        (DataType::Float16, _) => FeatureDtype::F16,
        (DataType::UInt16, Some("bf16")) => FeatureDtype::Bf16,
        (DataType::Int8, Some("i8")) => FeatureDtype::I8,
        _ => return None,
    };
    let scales: &[DataType] = if dtype == FeatureDtype::I8 { &[DataType::Float32] } else { &[] };
    let same = more.iter().map(|field| field.data_type()).eq(scales);
    same.then_some((dtype, usize::try_from(*dim).ok()?))
}
