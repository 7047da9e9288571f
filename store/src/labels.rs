//! Classes of vertices: one each, or any number each as a bit matrix.
//!
//! Multi-label rows are packed bits in little order: bit `c` of a row, `row[c / 8] >> (c % 8) & 1`,
//! says whether the vertex has class `c`; the bits after the last class are zero. NumPy unpacks
//! them with `numpy.unpackbits(x, axis=1, bitorder="little")[:, :num_classes]`. If some of these
//! cells have no value, a second matrix of the same shape has a 1 for each cell that has one; the
//! bit of a cell without a value is 0 in both.

use std::path::{Path, PathBuf};

use crate::{Column, ColumnFile, Element, Error, FileRecord, NpyWriter, Result, RowIndex};

/// Cells of multi-label targets that have a value. A node column cannot have a dot in its name.
pub(crate) const KNOWN_LABELS: &str = "nodes/label.known.npy";

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
    known_path: PathBuf,
    /// A bit for each cell that has a value, once there is a row in which some have none.
    known: Option<NpyWriter<u8>>,
}

impl MultiLabelWriter {
    /// `known_path` is for the cells that have a value; it is written only if some do not.
    pub(crate) fn create(path: &Path, known_path: PathBuf, num_classes: u32) -> Result<Self> {
        if num_classes == 0 {
            return Err(Error::Invalid(
                "multi-label targets of 0 classes: expected at least one".into(),
            ));
        }
        let out = NpyWriter::create_rows(path, row_bytes(num_classes) as u64)?;
        Ok(Self { out, num_classes, known_path, known: None })
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        row_bytes(self.num_classes)
    }

    /// Appends the packed rows of the next vertices; bits beyond the last class are to be 0.
    pub fn push(&mut self, packed: &[u8]) -> Result<()> {
        if let Some(known) = &mut self.known {
            push_full(known, self.num_classes, packed.len() / row_bytes(self.num_classes))?;
        }
        self.out.push(packed)
    }

    /// Appends the packed rows of the next vertices. The cells with a 1 in the packed rows `known`
    /// have a value; the others are to be 0.
    pub fn push_known(&mut self, packed: &[u8], known: &[u8]) -> Result<()> {
        let mut out = match self.known.take() {
            Some(out) => out,
            None => {
                let mut out = NpyWriter::create_rows(&self.known_path, self.row_bytes() as u64)?;
                push_full(&mut out, self.num_classes, self.rows() as usize)?;
                out
            }
        };
        out.push(known)?;
        self.known = Some(out);
        self.out.push(packed)
    }

    /// Vertices pushed so far.
    pub fn rows(&self) -> u64 {
        self.out.len() / self.row_bytes() as u64
    }

    pub(crate) fn num_classes(&self) -> u32 {
        self.num_classes
    }

    /// The records of the rows, and of the cells that have a value if some do not.
    pub(crate) fn finish(self) -> Result<(FileRecord, Option<FileRecord>)> {
        Ok((self.out.finish()?, self.known.map(NpyWriter::finish).transpose()?))
    }
}

/// Appends `rows` rows whose cells all have a value.
fn push_full(out: &mut NpyWriter<u8>, num_classes: u32, rows: usize) -> Result<()> {
    let mut row = vec![u8::MAX; row_bytes(num_classes)];
    if let (Some(last), bits @ 1..) = (row.last_mut(), num_classes % 8) {
        *last >>= 8 - bits;
    }
    (0..rows).try_for_each(|_| out.push(&row))
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
    /// The cells that have a value, where some do not.
    known: Option<ColumnFile>,
    num_classes: u32,
    /// Row of each vertex, where not all vertices have one.
    index: Option<RowIndex>,
}

impl MultiLabels {
    /// Maps the bit matrix at `path`, and that of the cells that have a value at `known` if some do
    /// not, and checks their shapes for `num_classes`.
    pub(crate) fn open(path: &Path, known: Option<&Path>, num_classes: u32) -> Result<Self> {
        let file = open_bits(path, num_classes)?;
        let known = known.map(|path| open_bits(path, num_classes)).transpose()?;
        if let Some(known) = known.as_ref().filter(|known| known.rows() != file.rows()) {
            let (expected, found) = (file.rows(), known.rows());
            let problem = format!("expected {expected} rows, as in label.npy, found {found}");
            return Err(Error::corrupt(known.path(), problem));
        }
        Ok(Self { file, known, num_classes, index: None })
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
        self.row_in(&self.file, v)
    }

    fn row_in<'a>(&self, file: &'a ColumnFile, v: u32) -> &'a [u8] {
        let row = self.index.as_ref().map_or(Some(v as usize), |index| index.row_of(v));
        row.map_or(&[], |row| &file.bytes()[row * file.width()..][..file.width()])
    }

    /// Packed bits like [`Self::row`] for the cells of vertex `v` that have a value; `None` if the
    /// cells of all vertices have.
    pub fn known_row(&self, v: u32) -> Option<&[u8]> {
        self.known.as_ref().map(|known| self.row_in(known, v))
    }

    /// Whether some cells have no value, maybe of vertices that a shard does not hold.
    pub fn lacks_cells(&self) -> bool {
        self.known.is_some()
    }

    /// Number of classes for which vertex `v` has a value, 0 if it is unlabelled; `None` if a shard
    /// does not hold its row.
    pub fn num_known(&self, v: u32) -> Option<u32> {
        let known = |row: &[u8]| row.iter().map(|bits| bits.count_ones()).sum();
        (!self.row(v).is_empty()).then(|| self.known_row(v).map_or(self.num_classes, known))
    }

    /// Whether vertex `v` has each class, `None` for a cell without a value. Panics if the vertex
    /// is not stored here.
    pub fn cells(&self, v: u32) -> impl Iterator<Item = Option<bool>> {
        let (row, known) = (self.row(v), self.known_row(v));
        let is_known = move |class| known.is_none_or(|known| bit(known, class));
        (0..self.num_classes).map(move |class| is_known(class).then(|| bit(row, class)))
    }

    /// The numbers of [`Self::cells`]: 0 and 1, and NaN for a cell without a value.
    pub fn numbers(&self, v: u32) -> impl Iterator<Item = f32> {
        self.cells(v).map(|cell| cell.map_or(f32::NAN, |has| f32::from(u8::from(has))))
    }

    /// Whether vertex `v` has class `class`, false if that cell has no value. Panics if the vertex
    /// is not stored here or the class does not exist.
    pub fn has(&self, v: u32, class: u32) -> bool {
        assert!(
            class < self.num_classes,
            "class {class}, expected classes below {}",
            self.num_classes
        );
        bit(self.row(v), class)
    }

    /// The classes of vertex `v`, ascending. Panics if the vertex is not stored here.
    pub fn classes(&self, v: u32) -> impl Iterator<Item = u32> {
        let row = self.row(v);
        (0..self.num_classes).filter(|&class| bit(row, class))
    }
}

/// Maps a bit matrix of `num_classes` columns.
fn open_bits(path: &Path, num_classes: u32) -> Result<ColumnFile> {
    let (file, width) = (ColumnFile::open(path)?, row_bytes(num_classes));
    if (file.descr(), file.dimensions(), file.width()) != ("|u1", 2, width) {
        let found = (file.descr(), file.width());
        return Err(Error::corrupt(
            path,
            format!("expected rows of {width} bytes (|u1), found {found:?}"),
        ));
    }
    Ok(file)
}

fn bit(row: &[u8], class: u32) -> bool {
    row[class as usize / 8] >> (class % 8) & 1 != 0
}

fn row_bytes(num_classes: u32) -> usize {
    num_classes.div_ceil(8) as usize
}
