//! The values that come with edges, on their way into columns of the dataset.

use gsplit_store::DatasetWriter;

use crate::Result;
use crate::edges::{EdgeColumn, ValueType, WEIGHT, row_bytes};

/// Merges the values of duplicate edges: keeps the first edge's values, except where sums were
/// requested.
#[derive(Clone, Debug, Default)]
pub struct ColumnMerge {
    /// Places of the values that are added up, and their types.
    sums: Vec<(usize, ValueType)>,
}

impl ColumnMerge {
    /// Adds up the column `weight` where `sum_weights`.
    pub fn new(columns: &[EdgeColumn], sum_weights: bool) -> Self {
        let mut sums = Vec::new();
        let mut at = 0;
        for column in columns {
            if sum_weights && column.name == WEIGHT {
                sums.extend(
                    (0..column.width).map(|i| (at + i * column.value.bytes(), column.value)),
                );
            }
            at += column.value.bytes() * column.width;
        }
        Self { sums }
    }

    /// Merges the values `from` of an edge into `into`, the values of the equal edge that is kept.
    pub fn add(&self, into: &mut [u8], from: &[u8]) {
        for &(at, value) in &self.sums {
            let (into, from) = (&mut into[at..at + value.bytes()], &from[at..at + value.bytes()]);
            match value {
                ValueType::F32 => add(into, from, f32::from_le_bytes, |a, b| (a + b).to_le_bytes()),
                ValueType::F64 => add(into, from, f64::from_le_bytes, |a, b| (a + b).to_le_bytes()),
                ValueType::I64 => {
                    add(into, from, i64::from_le_bytes, |a, b| a.saturating_add(b).to_le_bytes())
                }
            }
        }
    }
}

fn add<T, const N: usize>(
    into: &mut [u8],
    from: &[u8],
    read: fn([u8; N]) -> T,
    sum: impl Fn(T, T) -> [u8; N],
) {
    let (mut a, mut b) = ([0; N], [0; N]);
    a.copy_from_slice(into);
    b.copy_from_slice(from);
    into.copy_from_slice(&sum(read(a), read(b)));
}

impl ValueType {
    /// NumPy's name of the type.
    pub fn descr(self) -> &'static str {
        match self {
            Self::F32 => "<f4",
            Self::F64 => "<f8",
            Self::I64 => "<i8",
        }
    }
}

/// One open file for every column.
pub struct ColumnWriters {
    columns: Vec<OpenColumn>,
    row_bytes: usize,
}

struct OpenColumn {
    name: String,
    at: usize,
    bytes: usize,
    writer: gsplit_store::ColumnWriter,
    /// The column's own values of the rows being pushed.
    room: Vec<u8>,
}

impl ColumnWriters {
    /// Opens the files of `columns` in `dataset`.
    pub fn create(dataset: &DatasetWriter, columns: &[EdgeColumn]) -> Result<Self> {
        let mut at = 0;
        let open = |column: &EdgeColumn| {
            let bytes = column.value.bytes() * column.width;
            let writer =
                dataset.edge_column_writer(&column.name, column.value.descr(), column.width)?;
            at += bytes;
            Ok(OpenColumn {
                name: column.name.clone(),
                at: at - bytes,
                bytes,
                writer,
                room: Vec::new(),
            })
        };
        let columns_ = columns.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Self { columns: columns_, row_bytes: row_bytes(columns) })
    }

    /// Appends the values of the next edges, row after row.
    pub fn push(&mut self, rows: &[u8]) -> Result<()> {
        for column in &mut self.columns {
            column.room.clear();
            let rows = rows.chunks_exact(self.row_bytes.max(1));
            rows.for_each(|row| {
                column.room.extend_from_slice(&row[column.at..column.at + column.bytes])
            });
            column.writer.push(&column.room)?;
        }
        Ok(())
    }

    /// Closes the files.
    pub fn finish(self, dataset: &mut DatasetWriter) -> Result<()> {
        for column in self.columns {
            dataset.add_edge_column(&column.name, column.writer)?;
        }
        Ok(())
    }
}
