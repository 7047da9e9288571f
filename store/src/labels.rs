//! Classes of vertices: one each, or any number each as a bit matrix.
//!
//! Multi-label rows are packed bits in little order: bit `c` of a row, `row[c / 8] >> (c % 8) & 1`,
//! says whether the vertex has class `c`; the bits after the last class are zero. NumPy unpacks
//! them with `numpy.unpackbits(x, axis=1, bitorder="little")[:, :num_classes]`.

use std::path::Path;

use crate::{Column, ColumnFile, Element, Error, FileRecord, NpyWriter, Result, RowIndex};

/// Streams one class per vertex, -1 for unlabelled.
#[derive(Debug)]
pub struct LabelWriter {
    out: NpyWriter<i32>,
    largest: i32,
}

impl LabelWriter {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        Ok(Self { out: NpyWriter::create(path)?, largest: -1 })
    }

    /// Appends the classes of the next vertices; one below -1 is refused.
    pub fn push(&mut self, labels: &[i32]) -> Result<()> {
        if let Some(at) = labels.iter().position(|&label| label < -1) {
            let (label, v) = (labels[at], self.out.len() + at as u64);
            return Err(Error::Invalid(format!(
                "label {label} of vertex {v}: expected a class, or -1 for unlabelled"
            )));
        }
        self.largest = labels.iter().copied().fold(self.largest, i32::max);
        self.out.push(labels)
    }

    /// Vertices pushed so far.
    pub fn rows(&self) -> u64 {
        self.out.len()
    }

    /// The largest class pushed so far, -1 when there is none.
    pub fn largest(&self) -> i32 {
        self.largest
    }

    pub(crate) fn finish(self) -> Result<FileRecord> {
        self.out.finish()
    }
}

/// Streams rows of packed bits, one for each class.
#[derive(Debug)]
pub struct MultiLabelWriter {
    out: NpyWriter<u8>,
    num_classes: u32,
}

impl MultiLabelWriter {
    pub(crate) fn create(path: &Path, num_classes: u32) -> Result<Self> {
        if num_classes == 0 {
            return Err(Error::Invalid(
                "multi-label targets of 0 classes: expected at least one".into(),
            ));
        }
        Ok(Self { out: NpyWriter::create_rows(path, row_bytes(num_classes) as u64)?, num_classes })
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        row_bytes(self.num_classes)
    }

    /// Appends the packed rows of the next vertices; bits beyond the last class are to be 0.
    pub fn push(&mut self, packed: &[u8]) -> Result<()> {
        self.out.push(packed)
    }

    /// Vertices pushed so far.
    pub fn rows(&self) -> u64 {
        self.out.len() / self.row_bytes() as u64
    }

    pub(crate) fn num_classes(&self) -> u32 {
        self.num_classes
    }

    pub(crate) fn finish(self) -> Result<FileRecord> {
        self.out.finish()
    }
}

/// Label of a vertex that has one label.
pub trait Label: Element {
    /// Whether the vertex is labelled: the value for unlabelled vertices is stored too.
    fn is_given(self) -> bool;
}

impl Label for i32 {
    fn is_given(self) -> bool {
        self >= 0
    }
}

impl Label for f32 {
    fn is_given(self) -> bool {
        !self.is_nan()
    }
}

/// One class a vertex, -1 for unlabelled.
pub type ClassLabels = HeldLabels<i32>;
/// One number a vertex, NaN for unlabelled.
pub type NumericLabels = HeldLabels<f32>;

/// One label a vertex, mapped.
#[derive(Clone, Debug)]
pub struct HeldLabels<T> {
    stored: Column<T>,
    /// In a shard, the row of each vertex, and the vertices of the whole train split without a
    /// class.
    shard: Option<(RowIndex, Column<u32>)>,
}

impl<T: Label> HeldLabels<T> {
    pub(crate) fn new(stored: Column<T>, shard: Option<(RowIndex, Column<u32>)>) -> Self {
        Self { stored, shard }
    }

    /// The label of vertex `v`, possibly the value for unlabelled; `None` if it is not stored here
    /// or `v` does not exist.
    pub fn get(&self, v: u32) -> Option<T> {
        let row = self.shard.as_ref().map_or(Some(v as usize), |(index, _)| index.row_of(v))?;
        self.stored.get(row).copied()
    }

    /// Whether `v` is labelled; `v` must be in the train split or have its label stored here.
    pub fn is_labelled(&self, v: u32) -> bool {
        match (self.get(v), &self.shard) {
            (Some(label), _) => label.is_given(),
            (None, Some((_, unlabelled))) => unlabelled.binary_search(&v).is_err(),
            (None, None) => false,
        }
    }

    /// The labels that are stored, in the order of their vertices.
    pub fn stored(&self) -> &[T] {
        &self.stored
    }
}

/// Classes of each vertex, several of them, mapped.
#[derive(Clone, Debug)]
pub struct MultiLabels {
    file: ColumnFile,
    num_classes: u32,
    /// Row of each vertex, where not all vertices have one.
    index: Option<RowIndex>,
}

impl MultiLabels {
    /// Maps the bit matrix at `path` and checks its shape for `num_classes`.
    pub(crate) fn open(path: &Path, num_classes: u32) -> Result<Self> {
        let file = ColumnFile::open(path)?;
        let width = row_bytes(num_classes);
        if (file.descr(), file.dimensions(), file.width()) != ("|u1", 2, width) {
            let found = (file.descr(), file.width());
            return Err(Error::corrupt(
                path,
                format!("expected rows of {width} bytes (|u1), found {found:?}"),
            ));
        }
        Ok(Self { file, num_classes, index: None })
    }

    /// The same rows; `index` gives the row of each vertex.
    pub(crate) fn indexed(self, index: Option<RowIndex>) -> Self {
        Self { index, ..self }
    }

    /// Number of classes.
    pub fn num_classes(&self) -> u32 {
        self.num_classes
    }

    /// Number of stored rows.
    pub fn num_rows(&self) -> usize {
        self.file.rows()
    }

    /// The packed bits of all stored rows, row after row.
    pub fn bytes(&self) -> &[u8] {
        self.file.bytes()
    }

    /// The packed bits of vertex `v`; empty if a shard does not hold them. Panics if `v` does not
    /// exist.
    pub fn row(&self, v: u32) -> &[u8] {
        let row = self.index.as_ref().map_or(Some(v as usize), |index| index.row_of(v));
        let width = self.file.width();
        row.map_or(&[], |row| &self.file.bytes()[row * width..][..width])
    }

    /// Whether vertex `v` has class `class`. Panics if the vertex is not stored here or the class
    /// does not exist.
    pub fn has(&self, v: u32, class: u32) -> bool {
        assert!(
            class < self.num_classes,
            "class {class}, expected classes below {}",
            self.num_classes
        );
        self.row(v)[class as usize / 8] >> (class % 8) & 1 != 0
    }

    /// The classes of vertex `v`, ascending. Panics if the vertex is not stored here.
    pub fn classes(&self, v: u32) -> impl Iterator<Item = u32> {
        let row = self.row(v);
        (0..self.num_classes).filter(|&class| row[class as usize / 8] >> (class % 8) & 1 != 0)
    }
}

fn row_bytes(num_classes: u32) -> usize {
    num_classes.div_ceil(8) as usize
}
