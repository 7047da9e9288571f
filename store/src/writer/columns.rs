//! Columns: parts with a row for each vertex or edge. A part that was added stays as it is: to open
//! it again is an error.

use std::path::PathBuf;

use super::DatasetWriter;
use crate::labels::KNOWN_LABELS;
use crate::manifest::{Axis, ColumnInfo};
use crate::{
    Column, ColumnWriter, Element, Error, FeatureDtype, FeatureInfo, FeatureWriter, FileRecord,
    GraphTypes, LabelWriter, LinkInfo, MultiLabelWriter, Names, NamesWriter, NpyWriter, Recipe,
    Result, VertexType, write_npy,
};

pub(super) const FEATURES: &str = "nodes/feat.arrow";
pub(super) const LABELS: &str = "nodes/label.npy";
const ORIGINAL_IDS: &str = "nodes/original_id.npy";
const ORIGINAL_NAMES: &str = "nodes/original_id.arrow";

impl DatasetWriter {
    /// The original ids that were added, if ids were numbers and were compacted.
    pub fn listed_ids(&self) -> Result<Option<Column<u64>>> {
        self.staged(ORIGINAL_IDS).map(Column::open).transpose()
    }

    /// The original id of vertex 0, where ids count the vertices.
    pub fn first_id(&self) -> u64 {
        self.journal.staged.first_id
    }

    /// Says that the original id of vertex v is `first` + v.
    pub fn set_first_id(&mut self, first: u64) {
        self.journal.staged.first_id = first;
    }

    /// The original ids that were added, if they were strings.
    pub fn original_names(&self) -> Result<Option<Names>> {
        self.staged(ORIGINAL_NAMES).map(Names::open).transpose()
    }

    /// Path of the file called `name`, if it was added.
    fn staged(&self, name: &str) -> Option<PathBuf> {
        self.has(name).then(|| self.staging.path(name))
    }

    /// Opens the feature file; hand the writer back to [`DatasetWriter::add_features`] when all
    /// rows are pushed.
    pub fn feature_writer(&self, dtype: FeatureDtype, dim: usize) -> Result<FeatureWriter> {
        FeatureWriter::create(self.place(FEATURES)?, dtype, dim)
    }

    /// Closes the feature file. `generated` says how the rows were made, `None` when they came with
    /// the graph.
    pub fn add_features(&mut self, writer: FeatureWriter, generated: Option<String>) -> Result<()> {
        let (dim, dtype) = (writer.dim() as u32, writer.dtype());
        let written = writer.finish()?;
        self.expect_rows("feature rows", written.rows)?;
        self.record(FEATURES, written.record);
        let names = self
            .journal
            .staged
            .recipe
            .as_ref()
            .filter(|_| generated.is_none())
            .map(Recipe::feature_names);
        let names = names.filter(|names| names.len() == dim as usize);
        self.journal.staged.features =
            Some(FeatureInfo { dim, dtype, generated, narrowing: written.narrowing, names });
        Ok(())
    }

    /// Opens the feature file of the vertices of type `at`; hand the writer back to
    /// [`DatasetWriter::add_features_of`].
    pub fn feature_writer_of(
        &self,
        at: usize,
        dtype: FeatureDtype,
        dim: usize,
    ) -> Result<FeatureWriter> {
        let file = GraphTypes::feature_file(&self.type_at(at)?.name);
        FeatureWriter::create(self.place(&file)?, dtype, dim)
    }

    /// Closes the feature file of the vertices of type `at`, which must have a row for each.
    pub fn add_features_of(&mut self, at: usize, writer: FeatureWriter) -> Result<()> {
        let VertexType { name, count, .. } = self.type_at(at)?.clone();
        let (dim, dtype) = (writer.dim() as u32, writer.dtype());
        let written = writer.finish()?;
        if written.rows != count {
            return Err(Error::Invalid(format!(
                "{} feature rows for {count} vertices of type `{name}`: expected one each",
                written.rows
            )));
        }
        self.record(&GraphTypes::feature_file(&name), written.record);
        let narrowing = written.narrowing;
        let info = FeatureInfo { dim, dtype, generated: None, narrowing, names: None };
        self.journal.staged.types.iter_mut().for_each(|types| {
            types.vertices[at].features = Some(info.clone());
        });
        Ok(())
    }

    fn type_at(&self, at: usize) -> Result<&VertexType> {
        let of = self.types().and_then(|types| types.vertices.get(at));
        of.ok_or_else(|| Error::Invalid(format!("there are no vertices of type {at}")))
    }

    /// Opens the node column `name` of elements of type `descr` (any little-endian number, e.g.
    /// `<f4`), `width` per row; hand the writer back to [`DatasetWriter::add_node_column`].
    pub fn node_column_writer(
        &self,
        name: &str,
        descr: &'static str,
        width: usize,
    ) -> Result<ColumnWriter> {
        self.column_writer(Axis::Nodes, name, descr, width)
    }

    /// Closes a node column, which must have a row for each vertex.
    pub fn add_node_column(&mut self, name: &str, writer: ColumnWriter) -> Result<()> {
        self.add_column(Axis::Nodes, name, writer)
    }

    /// Opens the edge column `name` of elements of type `descr` (`<f4`, `<f8` or `<i8`), `width` of
    /// them a row, in the order of the topology's indices; hand the writer back to
    /// [`DatasetWriter::add_edge_column`].
    pub fn edge_column_writer(
        &self,
        name: &str,
        descr: &'static str,
        width: usize,
    ) -> Result<ColumnWriter> {
        self.column_writer(Axis::Edges, name, descr, width)
    }

    /// Closes an edge column, which must have a row for each edge.
    pub fn add_edge_column(&mut self, name: &str, writer: ColumnWriter) -> Result<()> {
        self.add_column(Axis::Edges, name, writer)
    }

    fn column_writer(
        &self,
        axis: Axis,
        name: &str,
        descr: &'static str,
        width: usize,
    ) -> Result<ColumnWriter> {
        axis.check(name, descr)?;
        ColumnWriter::create(self.place(&axis.file(name))?, descr, width)
    }

    fn add_column(&mut self, axis: Axis, name: &str, writer: ColumnWriter) -> Result<()> {
        let file = axis.file(name);
        self.expect_topology()?;
        let (what, rows) = (format!("rows of {} `{name}`", axis.words()), writer.rows());
        match axis {
            Axis::Nodes => self.expect_rows(&what, rows)?,
            Axis::Edges if rows == self.num_edges() => {}
            Axis::Edges => {
                let m = self.num_edges();
                return Err(Error::Invalid(format!(
                    "{rows} {what} for {m} edges: expected one each"
                )));
            }
        }
        let info = ColumnInfo { descr: writer.descr().into(), width: writer.width() as u64 };
        self.record(&file, writer.finish()?);
        let staged = &mut self.journal.staged;
        let columns =
            if axis == Axis::Nodes { &mut staged.columns } else { &mut staged.edge_columns };
        columns.insert(name.into(), info);
        Ok(())
    }

    /// Says which of the node columns are weights of the vertices. All of them are written.
    pub fn set_vertex_weights(&mut self, columns: &[String]) -> Result<()> {
        let staged = &mut self.journal.staged;
        if let Some(name) = columns.iter().find(|name| !staged.columns.contains_key(*name)) {
            return Err(Error::Invalid(format!(
                "node column `{name}` cannot weigh vertices: it is not written"
            )));
        }
        staged.vertex_weights = columns.to_vec();
        Ok(())
    }

    /// Writes one class per vertex, -1 for unlabelled.
    pub fn add_labels(&mut self, labels: &[i32]) -> Result<()> {
        let mut writer = self.label_writer()?;
        writer.push(labels)?;
        let classes = i64::from(writer.largest()) + 1;
        self.add_label_column(writer, classes as u32)
    }

    /// Opens the labels; hand the writer back to [`DatasetWriter::add_label_column`].
    pub fn label_writer(&self) -> Result<LabelWriter> {
        LabelWriter::create(&self.place(LABELS)?)
    }

    /// Closes the labels, which must have one for each vertex, below `num_classes`.
    pub fn add_label_column(&mut self, writer: LabelWriter, num_classes: u32) -> Result<()> {
        self.expect_rows("labels", writer.rows())?;
        if i64::from(writer.largest()) >= i64::from(num_classes) {
            let largest = writer.largest();
            return Err(Error::Invalid(format!(
                "label {largest}: expected classes below {num_classes}"
            )));
        }
        self.record(LABELS, writer.finish()?);
        (self.journal.staged.num_classes, self.journal.staged.multi_label) =
            (Some(num_classes), false);
        Ok(())
    }

    /// Writes one number per vertex, which is to be learnt; NaN for unlabelled. An infinite one is
    /// refused.
    pub fn add_numeric_labels(&mut self, labels: &[f32]) -> Result<()> {
        self.expect_rows("labels", labels.len() as u64)?;
        if let Some(v) = labels.iter().position(|label| label.is_infinite()) {
            let label = labels[v];
            return Err(Error::Invalid(format!(
                "label {label} of vertex {v}: expected a finite number, or NaN"
            )));
        }
        self.add(LABELS, labels)?;
        self.journal.staged.numeric_label = true;
        Ok(())
    }

    /// Keeps what became of the columns of the table of vertices.
    pub fn set_recipe(&mut self, recipe: &Recipe) {
        self.journal.staged.recipe = Some(recipe.clone());
    }

    /// Names the classes of the labels, which are written: one for each.
    pub fn name_classes(&mut self, names: &[String]) -> Result<()> {
        let staged = &mut self.journal.staged;
        if staged.num_classes.map(|classes| classes as usize) != Some(names.len()) {
            let (found, classes) = (names.len(), staged.num_classes.unwrap_or(0));
            return Err(Error::Invalid(format!(
                "{found} names for {classes} classes: expected one each"
            )));
        }
        staged.class_names = Some(names.to_vec());
        Ok(())
    }

    /// Opens the multi-label targets of `num_classes` classes; hand the writer back to
    /// [`DatasetWriter::add_multi_labels`].
    pub fn multi_label_writer(&self, num_classes: u32) -> Result<MultiLabelWriter> {
        MultiLabelWriter::create(&self.place(LABELS)?, self.place(KNOWN_LABELS)?, num_classes)
    }

    /// Closes the multi-label targets, which must have a row for each vertex.
    pub fn add_multi_labels(&mut self, writer: MultiLabelWriter) -> Result<()> {
        self.expect_rows("rows of multi-label targets", writer.rows())?;
        let num_classes = writer.num_classes();
        self.record_multi_labels(writer)?;
        (self.journal.staged.num_classes, self.journal.staged.multi_label) =
            (Some(num_classes), true);
        Ok(())
    }

    pub(super) fn record_multi_labels(&mut self, writer: MultiLabelWriter) -> Result<()> {
        let (labels, known) = writer.finish()?;
        self.record(LABELS, labels);
        known.into_iter().for_each(|known| self.record(KNOWN_LABELS, known));
        Ok(())
    }

    /// Writes the raw input's id of every vertex.
    pub fn add_original_ids(&mut self, ids: &[u64]) -> Result<()> {
        let mut writer = self.original_id_writer()?;
        writer.push(ids)?;
        self.add_original_id_writer(writer)
    }

    /// Opens the original ids where they are numbers; hand the writer back to
    /// [`DatasetWriter::add_original_id_writer`].
    pub fn original_id_writer(&self) -> Result<NpyWriter<u64>> {
        self.place(ORIGINAL_NAMES)?;
        NpyWriter::create(self.place(ORIGINAL_IDS)?)
    }

    /// Closes the original ids, of which there must be one for each vertex.
    pub fn add_original_id_writer(&mut self, writer: NpyWriter<u64>) -> Result<()> {
        self.expect_rows("original ids", writer.len())?;
        self.record(ORIGINAL_IDS, writer.finish()?);
        Ok(())
    }

    /// Opens the original ids where they are strings; hand the writer back to
    /// [`DatasetWriter::add_original_names`].
    pub fn original_names_writer(&self) -> Result<NamesWriter> {
        self.place(ORIGINAL_IDS)?;
        NamesWriter::create(self.place(ORIGINAL_NAMES)?)
    }

    /// Closes the original ids, of which there must be one for each vertex.
    pub fn add_original_names(&mut self, writer: NamesWriter) -> Result<()> {
        self.expect_rows("original ids", writer.len())?;
        let (_, record) = writer.finish()?;
        self.record(ORIGINAL_NAMES, record);
        self.journal.staged.string_ids = true;
        Ok(())
    }

    pub(super) fn add<T: Element>(&mut self, name: &str, values: &[T]) -> Result<()> {
        let record = write_npy(self.place(name)?, values)?;
        self.record(name, record);
        Ok(())
    }

    /// Whether the file called `name` was added.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.journal.staged.files.contains_key(name)
    }

    pub(crate) fn set_links(&mut self, info: LinkInfo) {
        self.journal.staged.links = Some(info);
    }

    pub(crate) fn record(&mut self, name: &str, record: FileRecord) {
        self.journal.staged.files.insert(name.into(), record);
    }

    /// Path for writing the file `name`: a file that is recorded is never touched again.
    pub(crate) fn place(&self, name: &str) -> Result<PathBuf> {
        if self.journal.staged.files.contains_key(name) {
            return Err(Error::Invalid(format!("{}: {name} was added before", self.name)));
        }
        Ok(self.staging.path(name))
    }

    fn expect_rows(&self, what: &str, found: u64) -> Result<()> {
        self.expect_topology()?;
        let n = self.num_vertices();
        if found == n {
            return Ok(());
        }
        Err(Error::Invalid(format!("{found} {what} for {n} vertices: expected one each")))
    }
}
