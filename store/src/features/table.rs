//! Reads feature rows in place.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_buffer::Buffer;
use bytemuck::Pod;

use super::reads::{Layout, RowReads};
use super::{
    BATCH_SHIFT, FeatureDtype, ROWS_PER_BATCH, ReadBy, Reading, RowsRead, VisitRow, described,
};
use crate::arrow::{ArrowFile, Batch};
use crate::mmap::{HostMemory, allocate, frozen};
use crate::{Error, Result, RowIndex};

/// Alignment of each batch of rows in memory.
const ALIGN: usize = 64;

/// Mapped feature rows of all vertices, or of a shard's own vertices; or some of their columns
/// ([`FeatureTable::columns`]). With several types of vertices it is a table for each type that has
/// features ([`FeatureTable::by_type`]).
#[derive(Clone, Debug)]
pub struct FeatureTable {
    dtype: FeatureDtype,
    dim: usize,
    /// Values from one row to the next, and where in a row the values of this table begin.
    stride: usize,
    first: usize,
    rows: usize,
    batches: Vec<Buffer>,
    /// The scales of each batch, for i8.
    scales: Vec<Buffer>,
    /// Memory that holds all rows, and in it all values and all scales, each in one piece.
    whole: Option<[Buffer; 3]>,
    /// Row of each vertex, if not all vertices have one.
    index: Option<RowIndex>,
    /// The first vertex with a row, where the vertices of one type have rows.
    start: u32,
    /// The tables of the types that have features, where there are several types.
    types: Option<Vec<FeatureTable>>,
    /// Columns that are stored, if not all are.
    held: Option<Range<usize>>,
    /// The mapped file, and its state when it was opened; every write changes the state.
    file: Option<(PathBuf, [i64; 5])>,
    /// Reads rows from that file, if they should not be read by page faults.
    reads: Option<Arc<RowReads>>,
}

impl FeatureTable {
    /// Maps the file at `path` and checks its structure; no value is read.
    pub fn open(path: &Path) -> Result<Self> {
        let file = std::fs::metadata(path).ok().map(|file| {
            let state = [
                file.ino().cast_signed(),
                file.mtime(),
                file.mtime_nsec(),
                file.ctime(),
                file.ctime_nsec(),
            ];
            (path.to_path_buf(), state)
        });
        let table = ArrowFile::open(path)?.and_then(Self::from_file);
        table.map(|table| Self { file, ..table }).map_err(|problem| Error::corrupt(path, problem))
    }

    pub(super) fn from_file(file: ArrowFile) -> Result<Self, String> {
        let (dtype, dim) = described(&file.schema).ok_or_else(|| {
            format!(
                "expected one FixedSizeList column of f32, f16, bf16 or i8, found {}",
                file.schema
            )
        })?;
        let mut table = Self::empty(dtype, dim);
        for (i, batch) in file.batches.into_iter().enumerate() {
            if !table.rows.is_multiple_of(ROWS_PER_BATCH) {
                return Err(format!(
                    "expected {ROWS_PER_BATCH} rows in every record batch but the last"
                ));
            }
            table.push(&batch).ok_or_else(|| format!("record batch {i} is damaged"))?;
        }
        Ok(table)
    }

    /// The same rows; `index` gives the row of each vertex.
    pub(crate) fn indexed(self, index: Option<RowIndex>) -> Self {
        Self { index, ..self }
    }

    /// Marks this table as storing only the columns `held` of rows of `dim` values. No whole row
    /// can be read; [`FeatureTable::columns`] gives rows of stored columns.
    pub(crate) fn within(self, held: Range<usize>, dim: usize) -> Self {
        Self { dim, held: Some(held), index: Some(RowIndex::none()), ..self }
    }

    /// The rows of several types of vertices: the first vertex and the table of each type that has
    /// features. Rows are read from the tables of [`FeatureTable::by_type`].
    pub(crate) fn of_types(types: Vec<(u32, Self)>) -> Self {
        let types: Vec<Self> =
            types.into_iter().map(|(start, table)| Self { start, ..table }).collect();
        let dtype = types.first().map_or_else(FeatureDtype::default, |of| of.dtype);
        let dim = types.iter().map(|of| of.dim).max().unwrap_or(0);
        let rows = types.iter().map(|of| of.rows).sum();
        Self { rows, types: Some(types), ..Self::empty(dtype, dim) }
    }

    /// A table without rows.
    fn empty(dtype: FeatureDtype, dim: usize) -> Self {
        Self {
            dtype,
            dim,
            stride: dim,
            first: 0,
            rows: 0,
            batches: Vec::new(),
            scales: Vec::new(),
            whole: None,
            index: None,
            start: 0,
            types: None,
            held: None,
            file: None,
            reads: None,
        }
    }

    /// The tables of the types of vertices that have features; only this one where there is one
    /// type.
    pub fn by_type(&self) -> &[Self] {
        self.types.as_deref().unwrap_or(std::slice::from_ref(self))
    }

    /// Whether there are several types of vertices.
    pub fn is_by_type(&self) -> bool {
        self.types.is_some()
    }

    /// The vertices that have rows, where the vertices of one type have.
    pub fn vertices(&self) -> Range<u32> {
        self.start..self.start + self.rows as u32
    }

    /// This table with the tables that `make` returns for the tables of `types`.
    fn remade<E>(
        &self,
        types: &[Self],
        make: impl FnMut(&Self) -> Result<Self, E>,
    ) -> Result<Self, E> {
        let types = types.iter().map(make).collect::<Result<Vec<_>, E>>()?;
        let whole = types.first().and_then(|of| of.whole.clone());
        let reads = types.first().and_then(|of| of.reads.clone());
        Ok(Self { whole, reads, types: Some(types), ..self.clone() })
    }

    /// Position at which the row of vertex `v` is stored.
    #[inline]
    fn position(&self, v: u32) -> Option<usize> {
        match &self.index {
            None => v.checked_sub(self.start).map(|at| at as usize),
            Some(index) => index.row_of(v),
        }
    }

    fn push(&mut self, batch: &Batch) -> Option<()> {
        if batch.rows > ROWS_PER_BATCH {
            return None;
        }
        // Buffers: the validity of the lists, the validity of the values, the values; then the
        // validity and the values of the scales.
        let used = batch.rows.checked_mul(self.dim.checked_mul(self.dtype.bytes())?)?;
        let values = batch.buffers.get(2).filter(|values| values.len() >= used)?;
        if self.dtype == FeatureDtype::I8 {
            let used = batch.rows * size_of::<f32>();
            let scales = batch.buffers.get(4).filter(|scales| scales.len() >= used)?;
            self.scales.push(scales.slice_with_length(0, used));
        }
        self.batches.push(values.slice_with_length(0, used));
        self.rows += batch.rows;
        Some(())
    }

    /// The values at positions `columns` of every row, in place, clipped to the width of a row. The
    /// result has no rows if a shard does not hold all of these columns.
    pub fn columns(&self, columns: Range<usize>) -> Self {
        let (start, end) = (columns.start.min(self.dim), columns.end.min(self.dim));
        let part =
            Self { dim: end.saturating_sub(start), whole: None, reads: None, ..self.clone() };
        match &self.held {
            None => Self { first: self.first + start, ..part },
            Some(held) if held.start <= start && end <= held.end => {
                Self { first: start - held.start, index: None, held: None, ..part }
            }
            Some(_) => Self { held: None, ..part },
        }
    }

    /// Bytes of all rows.
    pub fn num_bytes(&self) -> usize {
        if let Some(types) = &self.types {
            return types.iter().map(Self::num_bytes).sum();
        }
        let scales: usize = self.scales.iter().map(Buffer::len).sum();
        self.rows * self.dim * self.dtype.bytes() + scales
    }

    /// Copies the rows to memory, on huge pages if the kernel has them. Rows that are read
    /// repeatedly in random order cost less there: a mapped file has small pages, so every row
    /// first waits for an address translation. Costs [`FeatureTable::num_bytes`] of memory and one
    /// read of the file.
    pub fn in_memory(&self) -> std::io::Result<Self> {
        self.copied(None)
    }

    /// Like [`FeatureTable::in_memory`], in memory that the processes of a host share, if given:
    /// the process that owns it reads the file; other processes with the same rows then find them
    /// there.
    ///
    /// # Errors
    /// If there is not enough memory, or it holds other rows.
    pub fn copied(&self, host: Option<&HostMemory>) -> std::io::Result<Self> {
        if let Some(types) = &self.types {
            return self.remade(types, |of| of.copied(None));
        }
        if let Some(held) = &self.held {
            return Ok(self.columns(held.clone()).copied(host)?.within(held.clone(), self.dim));
        }
        let row_bytes = self.dim * self.dtype.bytes();
        let rows_of = |batch: &Buffer| batch.len() / (self.stride * self.dtype.bytes()).max(1);
        let mut end = 0;
        let mut place = |bytes: usize| {
            let range = end..end + bytes;
            end = range.end.next_multiple_of(ALIGN);
            range
        };
        let batches: Vec<_> =
            self.batches.iter().map(|batch| place(rows_of(batch) * row_bytes)).collect();
        let scales: Vec<_> = self.scales.iter().map(|scales| place(scales.len())).collect();
        let [stride, first] = [self.stride, self.first].map(|values| values * self.dtype.bytes());
        let part = |batch: &Buffer, to: &mut [u8]| {
            if row_bytes == stride {
                return to.copy_from_slice(batch);
            }
            for (to, row) in to.chunks_exact_mut(row_bytes.max(1)).zip(batch.chunks_exact(stride)) {
                to.copy_from_slice(&row[first..first + row_bytes]);
            }
        };
        let mut memory = allocate(end.max(1), host)?;
        if host.is_none_or(HostMemory::is_own) {
            self.batches
                .iter()
                .zip(&batches)
                .for_each(|(batch, place)| part(batch, &mut memory[place.clone()]));
            self.scales
                .iter()
                .zip(&scales)
                .for_each(|(from, place)| memory[place.clone()].copy_from_slice(from));
        }
        let memory = frozen(memory);
        let parts = |places: &[Range<usize>]| {
            places.iter().map(|place| memory.slice_with_length(place.start, place.len())).collect()
        };
        // Full batches end where the next begins, since their size is a multiple of the alignment.
        let piece = |places: &[Range<usize>]| {
            let (start, end) = (
                places.first().map_or(0, |place| place.start),
                places.last().map_or(0, |place| place.end),
            );
            memory.slice_with_length(start, end - start)
        };
        let whole = Some([memory.clone(), piece(&batches), piece(&scales)]);
        let (index, types) = (self.index.clone(), None);
        let (batches, scales) = (parts(&batches), parts(&scales));
        let (stride, first, held, file, reads) = (self.dim, 0, None, None, None);
        Ok(Self { stride, first, batches, scales, whole, index, types, held, file, reads, ..*self })
    }

    /// Identity of the mapped file when it was opened; every write changes it.
    pub fn file_state(&self) -> Option<[i64; 5]> {
        self.file.as_ref().map(|(_, state)| *state)
    }

    /// The same rows, for callers that request many at a time ([`FeatureTable::read_rows`]): read
    /// from the mapped file without page faults. The rows of the distinct vertices `kept` are read
    /// now and stay in memory: in `memory` shared by the processes of a host, if given. Its owner
    /// reads them; other processes with the same table then find them there, whatever they pass as
    /// `kept`.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corrupt`] for the file, [`Error::Invalid`] for a table that is
    /// not backed by a file.
    pub fn on_disk(
        &self,
        kept: &[u32],
        memory: Option<&HostMemory>,
        how: &Reading,
    ) -> Result<Self> {
        if let Some(types) = &self.types {
            return self.remade(types, |of| of.on_disk(kept, None, how));
        }
        let Some((path, _)) = self.file.as_ref().filter(|_| self.whole.is_none()) else {
            return Err(Error::Invalid("rows that are in memory are not read from a file".into()));
        };
        let offset = |buffer: &Buffer| buffer.ptr_offset() as u64;
        let value = self.dtype.bytes();
        let layout = Layout {
            batches: self.batches.iter().map(offset).collect(),
            rows: self.rows,
            stride: self.stride * value,
            row: self.dim * value,
            first: self.first * value,
            scales: self
                .scales
                .iter()
                .map(|scales| (offset(scales), scales.len() / size_of::<f32>()))
                .collect(),
        };
        let mut kept: Vec<u32> =
            kept.iter().filter_map(|&v| Some(self.position(v)? as u32)).collect();
        kept.retain(|&at| (at as usize) < self.rows);
        kept.sort_unstable();
        let reads = RowReads::open(path, layout, &kept, memory, how)?;
        Ok(Self { reads: Some(Arc::new(reads)), ..self.clone() })
    }

    /// Whether all rows are in memory, after [`FeatureTable::in_memory`].
    pub fn is_in_memory(&self) -> bool {
        self.whole.is_some()
    }

    /// How rows are read from their file, and whether through the page cache, after
    /// [`FeatureTable::on_disk`].
    pub fn read_by(&self) -> Option<(ReadBy, bool)> {
        self.reads.as_ref().map(|reads| reads.how())
    }

    /// Vertices whose rows stay in memory after [`FeatureTable::on_disk`], and the values of these
    /// rows, in the same order; `None` if there are none, and in a shard. For `T` see
    /// [`FeatureTable::row`].
    pub fn kept<T: Pod>(&self) -> Option<(&[u32], &[T])> {
        let (vertices, rows) = self.reads.as_ref().filter(|_| self.index.is_none())?.kept();
        Some((vertices, bytemuck::try_cast_slice(rows).ok()?)).filter(|_| !vertices.is_empty())
    }

    /// Passes the row of each of `vertices` to `each`, in any order, after
    /// [`FeatureTable::on_disk`]. The bytes are aligned for the table's type.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corrupt`] for the file, [`Error::Interrupted`];
    /// [`Error::Invalid`] for a vertex without a row, and for a table without
    /// [`FeatureTable::on_disk`].
    pub fn read_rows(&self, vertices: &[u32], each: &mut VisitRow<'_>) -> Result<RowsRead> {
        let Some(reads) = &self.reads else {
            return Err(Error::Invalid("rows that are not read from a file".into()));
        };
        let has_row = |&v: &u32| self.position(v).is_some_and(|at| at < self.rows);
        if let Some(v) = vertices.iter().find(|v| !has_row(v)) {
            return Err(Error::Invalid(format!("vertex {v} has no feature row here")));
        }
        reads.read(vertices.iter().filter_map(|&v| Some(self.position(v)? as u32)), each)
    }

    /// The values of all rows in one slice, after [`FeatureTable::in_memory`]. For `T` see
    /// [`FeatureTable::row`]. `None` in a shard, where row `v` does not belong to vertex `v`.
    pub fn values<T: Pod>(&self) -> Option<&[T]> {
        let [_, values, _] = self.whole.as_ref().filter(|_| self.index.is_none())?;
        bytemuck::try_cast_slice(values.as_slice())
            .ok()
            .filter(|values| values.len() == self.rows * self.dim)
    }

    /// The scale of each row, for i8 rows in memory. `None` in a shard.
    pub fn scales(&self) -> Option<&[f32]> {
        let wanted = self.dtype == FeatureDtype::I8 && self.index.is_none();
        let [.., scales] = self.whole.as_ref().filter(|_| wanted)?;
        bytemuck::try_cast_slice(scales.as_slice()).ok().filter(|scales| scales.len() == self.rows)
    }

    /// The memory of [`FeatureTable::values`] and [`FeatureTable::scales`], so that it can be
    /// pinned as a whole.
    pub fn memory(&self) -> Option<&[u8]> {
        self.whole.as_ref().map(|[memory, ..]| memory.as_slice())
    }

    /// Type of the stored values.
    pub fn dtype(&self) -> FeatureDtype {
        self.dtype
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of stored rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// The row of vertex `v`. `T` must be the type that [`FeatureTable::dtype`] names: `f32`,
    /// `half::f16`, `half::bf16` or `i8` (to be multiplied by [`FeatureTable::scale`]); a type of
    /// another size panics. Empty for a vertex whose row a shard does not hold, so that callers see
    /// a wrong length.
    pub fn row<T: Pod>(&self, v: u32) -> &[T] {
        let Some(at) = self.position(v) else { return &[] };
        let batch = &self.batches[at >> BATCH_SHIFT];
        let start = ((at & (ROWS_PER_BATCH - 1)) * self.stride + self.first) * self.dtype.bytes();
        bytemuck::cast_slice(&batch.as_slice()[start..start + self.dim * self.dtype.bytes()])
    }

    /// Scale of the stored values of vertex `v`: 1 for every type except i8. NaN if a shard does
    /// not hold them.
    pub fn scale(&self, v: u32) -> f32 {
        if self.dtype != FeatureDtype::I8 {
            return 1.0;
        }
        let Some(at) = self.position(v) else { return f32::NAN };
        let scales: &[f32] = bytemuck::cast_slice(self.scales[at >> BATCH_SHIFT].as_slice());
        scales[at & (ROWS_PER_BATCH - 1)]
    }
}
