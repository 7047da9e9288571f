//! The input of a conversion: which format it is, and how a dataset records it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::{
    Dataset, DatasetWriter, EdgeRecipe, LabelShape, Progress, Provenance, Recipe, Relation,
    SourceFile, Stamp,
};
use serde::Serialize;
use serde_json::Value;

use super::join::NewRows;
use super::{ConvertOptions, direction, sources};
use crate::csc::BuildOptions;
use crate::export::ExportedLabels;
pub use crate::read::detect::Format;
use crate::read::detect::{check_kin, detect};
use crate::read::listed::{Listed, ListedEnds};
use crate::read::options::{Answer, DateOrder, Fill, LabelKind, MissingRows, Scale, Schema};
use crate::read::pick::{beside, pick};
use crate::read::raw::{Ids, Raw};
use crate::read::scaled::Scaled;
use crate::read::schema::Decided;
use crate::read::table::choice::IdKind;
use crate::read::text::some;
use crate::read::typed::RawTypes;
use crate::read::weights::weigh_vertices;
use crate::{Error, Result, read};

/// Refuses options that have no effect on this input.
fn check_options(format: Format, raw: &Raw, options: &ConvertOptions) -> Result<()> {
    let (read, schema) = (&options.read, &options.read.schema);
    if let (Some(_), Some(features)) = (&raw.types, options.features) {
        return Err(Error::Option(format!(
            "--features {features} is for vertices of one type, and this graph has several: leave \
             it out, train learns rows of the types without features"
        )));
    }
    let draws = options.random_split.is_some_and(|split| !split.is_auto);
    if raw.types.is_some() && raw.labels.is_none() && draws {
        return Err(Error::Option(
            "--random-split draws among vertices with labels, and no type of this graph has any: \
             leave it out"
                .into(),
        ));
    }
    let (is_table, is_text, has_rows) =
        (is_table(format), format == Format::Csv, raw.node_ids.is_some());
    let has_splits = matches!(format, Format::Ogb | Format::Npy | Format::Npz | Format::Pt)
        || (format == Format::Relations && raw.splits.is_some())
        || read.nodes.is_some();
    let fills_edges =
        is_table && !raw.edges.columns().is_empty() && schema.fill != Some(Fill::Mean);
    let fills = has_rows || raw.features.is_some() || fills_edges;
    let scales = schema.scale.is_some_and(|scale| scale != Scale::None);
    let of_nodes = schema.first_of_nodes();
    let useless = [
        (of_nodes.unwrap_or_default(), of_nodes.is_some() && !has_rows),
        ("source-column", schema.source_column.is_some() && !is_table),
        ("target-column", schema.target_column.is_some() && !is_table),
        ("edge-weights", schema.edge_weights.is_some() && !is_table),
        ("id-type", schema.id_type.is_some() && !is_table && read.nodes.is_none()),
        ("header", schema.header.is_some() && !is_text),
        ("delimiter", schema.delimiter.is_some() && !is_text),
        ("split-name", schema.split_name.is_some() && !has_splits),
        ("fill", schema.fill.is_some() && !fills),
        ("na", schema.na.is_some() && !has_rows && !is_table),
        ("scale", scales && (raw.features.is_none() || options.features.is_some())),
        ("label-kind", schema.label_kind.is_some() && raw.labels.is_none()),
    ];
    // The reader of tables with keys has checked its keys.
    let is_checked = format == Format::Tables;
    let useless = useless.iter().find(|(_, is_useless)| *is_useless && !is_checked);
    let option = match useless {
        Some((key, _)) => Schema::option(key),
        None if read.recipe.is_some() && !has_rows => "--recipe".into(),
        None if options.directed && !(is_table && has_rows) => "--directed".into(),
        None => return Ok(()),
    };
    Err(Error::Option(format!("{option} has no effect on this input ({format}): leave it out")))
}

/// Reads by `read`, and reports the decisions that it appends to a list, also if it fails.
fn reported<T>(progress: &dyn Progress, read: impl FnOnce(&mut Vec<String>) -> T) -> T {
    let mut decisions = Vec::new();
    let found = read(&mut decisions);
    decisions.iter().for_each(|decision| progress.decide(decision));
    found
}

/// Opens the graph at `path`: a file, a folder of a known format, or the one file in a folder that
/// is a graph.
fn open_graph(
    path: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<(Format, Raw)> {
    let text = options.read.text();
    let check = |path: &Path| if options.format.is_none() { check_kin(path) } else { Ok(()) };
    check(path)?;
    let look = |path: &Path| options.format.map_or_else(|| detect(path, text), Ok);
    let found = look(path);
    let picked = match path.is_dir() && found.is_err() {
        true => pick(path, options.format, text)?,
        false => None,
    };
    let is_picked = picked.is_some();
    let (format, path) = match picked {
        Some(picked) => {
            check(&picked)?;
            (look(&picked)?, picked)
        }
        None => (found?, path.to_path_buf()),
    };
    let path = &path;
    if options.format.is_none() {
        let (what, name) = (format.what(), format.name());
        progress.decide(&format!("{}: found {what} ({name})", path.display()));
    }
    let beside = if options.read.nodes.is_none() { beside(path, is_picked)? } else { Vec::new() };
    if !beside.is_empty() {
        progress.decide(&format!(
            "note: next to {}, not read: {}. --nodes names data of the vertices",
            path.display(),
            some(&beside)
        ));
    }
    let mut read = options.read.clone();
    if options.features.is_some() {
        read.schema = read.schema.beside_features();
    }
    read.edges = options.build;
    read.draws_splits = options.random_split.is_some_and(|split| !split.is_auto);
    // gsplit's own exports record the labels that they were made from: those are restored.
    let Schema { label_column, label_kind, unlabelled, .. } = &read.schema;
    let is_open = label_column.is_none() && label_kind.is_none() && unlabelled.is_none();
    let exported = if is_open && read.recipe.is_none() && read.nodes.is_none() {
        ExportedLabels::recorded(path)
    } else {
        None
    };
    read.label_shape = exported.as_ref().map(|labels| labels.label_shape);
    let mut raw = reported(progress, |decisions| {
        read::open(path, format, &read, !read.draws_splits, progress, decisions)
    })?;
    if let Some(RawTypes { types, .. }) = &raw.types {
        let counted = types.vertices.iter().map(|of| format!("{} {}", of.count, of.name));
        let relations = types.relations.iter().map(Relation::to_string);
        progress.decide(&format!(
            "{}: vertices of several types: {}; relations: {}",
            path.display(),
            some(&counted.collect::<Vec<_>>()),
            some(&relations.collect::<Vec<_>>())
        ));
    }
    if let Some(nodes) = read.nodes.clone().or(raw.nodes.take()) {
        reported(progress, |decisions| {
            read::attach_nodes(&nodes, &mut raw, &read, progress, decisions)
        })?;
    }
    if raw.recipe.is_none() {
        let (scale, fill) = (read.schema.scale.unwrap_or(Scale::None), read.schema.fill);
        raw.features =
            raw.features.map(|rows| Scaled::of(rows, scale, fill, progress)).transpose()?;
    }
    let is_exported = exported.is_some();
    if let Some(labels) = exported.filter(|_| raw.labels.is_some()) {
        raw.label_shape = Some(labels.label_shape);
        if let Some(recipe) = &mut raw.recipe {
            recipe.classes = labels.class_names.clone().unwrap_or_default();
        }
        raw.class_names = labels.class_names;
    }
    if read.schema.label_kind == Some(LabelKind::Number) && raw.labels.is_some() {
        raw.label_shape = Some(LabelShape::Number);
    }
    if read.schema.missing_rows == Some(MissingRows::Drop)
        && let Some(table) = &raw.node_ids
    {
        raw.edges = Box::new(ListedEnds::of(raw.edges, table.as_ref())?);
    }
    raw.columns.retain(|column| {
        let reserved = ["feat", "label", "original_id"].contains(&column.name());
        if reserved {
            let (path, name) = (column.path().display(), column.name());
            progress.note(&format!(
                "note: {path}: the column {name} is left out: datasets use that name themselves"
            ));
        }
        !reserved
    });
    weigh_vertices(&mut raw, read.schema.vertex_weights.as_deref().unwrap_or_default())?;
    check_options(format, &raw, options)?;
    let decided = &mut raw.decided.schema;
    if is_exported {
        // The record of the export decides.
        (decided.label_column, decided.label_kind, decided.unlabelled) = (None, None, None);
    }
    if format != Format::Csv {
        decided.delimiter = None;
    }
    if options.features.is_some() {
        decided.scale = None;
    }
    Ok((format, raw))
}

/// `options` for the graph at `path`, completed by the recipe: date order, missing values and the
/// columns of the edge table.
fn as_trained(path: Option<&Path>, options: &ConvertOptions) -> Result<ConvertOptions> {
    options.read.check()?;
    let mut options = options.clone();
    let Some(folder) = &options.read.recipe else { return Ok(options) };
    let Recipe { edges, dates, na, .. } = Recipe::read(folder)?;
    let format =
        path.map(|path| options.format.map_or_else(|| detect(path, options.read.text()), Ok));
    let schema = &mut options.read.schema;
    // Questions that the table of the recipe answered are not put again: its vertices are of one
    // kind.
    schema.bipartite = schema.bipartite.or(Some(Answer::No));
    schema.one_table = Some(Answer::Yes);
    schema.date_order = schema.date_order.or_else(|| DateOrder::named(&dates?));
    schema.na = schema.na.take().or_else(|| Some(na).filter(|na| !na.is_empty()));
    if format.is_some_and(|format| format.is_ok_and(is_table)) {
        if schema.source_column.is_none() && schema.target_column.is_none() {
            (schema.source_column, schema.target_column) =
                (edges.source_column, edges.target_column);
        }
        schema.edge_weights = schema.edge_weights.take().or(edges.edge_weights);
    }
    Ok(options)
}

/// Whether a graph in `format` is a table of edges.
fn is_table(format: Format) -> bool {
    matches!(format, Format::Csv | Format::Parquet | Format::Arrow)
}

/// How the edges of `raw` are built: as the recipe or the options say, or else as the edges of a
/// table suggest.
fn build_of(
    path: &Path,
    format: Format,
    raw: &Raw,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<BuildOptions> {
    if let Some(folder) = &options.read.recipe {
        let edges = Recipe::read(folder)?.edges;
        return Ok(BuildOptions {
            symmetrise: edges.symmetrise,
            drop_self_loops: edges.drop_self_loops,
            keep_duplicates: edges.keep_duplicates,
            sum_weights: edges.sum_weights,
        });
    }
    let is_table = is_table(format);
    let is_said = options.build.symmetrise || options.directed;
    if is_said
        || !is_table
        || raw.node_ids.is_none()
        || raw.edges.has_two_kinds()
        || raw.links.is_some()
    {
        return Ok(options.build);
    }
    let Some(both) = direction::undirected(raw.edges.as_ref())? else { return Ok(options.build) };
    progress.decide(&format!(
        "{}: edges are made two-way (hardly any has its reverse: {:.1} %). If the direction has a \
         meaning, pass --directed and compare",
        path.display(),
        100.0 * both
    ));
    Ok(BuildOptions { symmetrise: true, ..options.build })
}

/// An opened input.
pub struct Input {
    /// The path that the user named.
    path: PathBuf,
    /// Its format.
    pub format: Format,
    /// The opened graph.
    pub raw: Raw,
    /// The options, completed by the treatment of edges that was detected or that the recipe gives.
    pub options: ConvertOptions,
}

impl Input {
    /// Opens the raw graph at `path`, and reports its format.
    pub fn open(path: &Path, options: &ConvertOptions, progress: &dyn Progress) -> Result<Self> {
        if options.read.schema.split_name.is_some() && options.random_split.is_some() {
            let problem = "--schema split-name and --random-split exclude each other";
            return Err(Error::Option(problem.into()));
        }
        let options = as_trained(Some(path), options)?;
        std::fs::metadata(path).map_err(Error::io(path))?;
        let (format, raw) = open_graph(path, &options, progress)?;
        Self::built(path, format, raw, options, progress)
    }

    /// Opens the tables of the `new` rows, and joins them to an older dataset if there is one.
    pub fn of_rows(
        new: &NewRows<'_>,
        options: &ConvertOptions,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut options = options.clone();
        let nodes = &options.read.nodes.clone().unwrap_or_default();
        // Vertices without a row are looked up in the dataset first.
        let missing_rows = options.read.schema.missing_rows;
        if let Some(older) = &new.older {
            options.read.schema.missing_rows = None;
            let has_strings = older.dataset.manifest().string_ids;
            options.read.schema.id_type =
                Some(if has_strings { IdKind::Text } else { IdKind::Number });
            options.feature_dtype = older.dataset.features()?.dtype();
        }
        let mut input = match new.edges {
            Some(edges) => Self::open(edges, &options, progress)?,
            None => {
                let options = as_trained(None, &options)?;
                let table = reported(progress, |decisions| {
                    read::nodes(nodes, None, &options.read, progress, decisions)
                })?;
                let edges = Listed::none(table.has_string_ids(), new.edge_columns);
                let mut raw = Raw::of(edges, Ids::Sparse, Vec::new());
                table.attach(&mut raw)?;
                Self::built(nodes, Format::Csv, raw, options, progress)?
            }
        };
        // Predictions need no other columns.
        input.raw.columns.clear();
        input.options.read.schema.missing_rows = missing_rows;
        if let Some(older) = &new.older {
            let symmetrise = std::mem::take(&mut input.options.build.symmetrise);
            let edges = new.edges.unwrap_or(nodes);
            input.raw = older.join(
                input.raw,
                edges,
                new.edge_columns,
                &input.options,
                symmetrise,
                progress,
            )?;
        }
        Ok(input)
    }

    /// The input made from `raw`, with the treatment of its edges decided.
    fn built(
        path: &Path,
        format: Format,
        mut raw: Raw,
        mut options: ConvertOptions,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut build = build_of(path, format, &raw, &options, progress)?;
        build.sum_weights |= options.read.schema.edge_weights.is_some() && !build.keep_duplicates;
        if let Some(recipe) = &mut raw.recipe {
            let ends = raw.decided.schema.over(&options.read.schema);
            recipe.edges = EdgeRecipe {
                source_column: ends.source_column,
                target_column: ends.target_column,
                edge_weights: options.read.schema.edge_weights.clone(),
                symmetrise: build.symmetrise,
                drop_self_loops: build.drop_self_loops,
                keep_duplicates: build.keep_duplicates,
                sum_weights: build.sum_weights,
            };
        }
        options.build = build;
        Ok(Self { path: path.to_path_buf(), format, raw, options })
    }

    /// The decisions on the columns and cells of the input, by the user and by the readers.
    pub fn decided(&self) -> Decided {
        let decided = self.raw.decided.clone();
        Decided { schema: decided.schema.over(&self.options.read.schema), ..decided }
    }

    /// Adds the path of the input to an error that concerns the graph as a whole.
    pub fn name(&self, error: Error) -> Error {
        error.at(&self.path)
    }

    /// Provenance of the dataset, without the checksums, which are computed during the conversion.
    pub fn provenance(&self, options: &ConvertOptions) -> Result<Provenance> {
        #[derive(Serialize)]
        struct Recorded<'a> {
            input: PathBuf,
            found: String,
            #[serde(flatten)]
            options: &'a ConvertOptions,
        }
        // A graph has the same identity from every working directory.
        let input = self.path.canonicalize().map_err(Error::io(&self.path))?;
        let mut options = options.clone();
        if let Some(nodes) = &mut options.read.nodes {
            *nodes = nodes.canonicalize().map_err(Error::io(&*nodes))?;
        }
        let recorded = Recorded { input, found: self.format.to_string(), options: &options };
        let unnamed = |_| {
            Error::input(
                &self.path,
                "expected a name in UTF-8, so that it can be recorded: rename it",
            )
        };
        let options = serde_json::to_value(recorded).map_err(unnamed)?;
        let base = if self.path.is_dir() { Some(self.path.as_path()) } else { self.path.parent() };
        let sources = self.raw.files.iter().map(|file| {
            let found = std::fs::metadata(file).map_err(Error::io(file))?;
            let path = base.and_then(|base| file.strip_prefix(base).ok()).unwrap_or(file);
            let path = path.to_string_lossy().into_owned();
            Ok(SourceFile { path, bytes: found.len(), stamp: Stamp::of(&found), checksum: None })
        });
        Ok(Provenance {
            tool_version: env!("CARGO_PKG_VERSION").into(),
            command: "convert".into(),
            options,
            sources: sources.collect::<Result<_>>()?,
            facts: BTreeMap::new(),
            decisions: Vec::new(),
            schema: self.decided().schema.to_map(),
        })
    }

    /// Identity of the dataset at `out`: everything that decides its bytes, as in `provenance`. If
    /// an unfinished run left the same identity, returns that one, so that the run is resumed;
    /// otherwise the user sees the difference.
    pub fn identity(
        &self,
        out: &Path,
        provenance: &mut Provenance,
        progress: &dyn Progress,
    ) -> Result<Value> {
        let left = DatasetWriter::left(out).and_then(|left| serde_json::from_value(left).ok());
        if let Some(left) = left {
            match sources::difference(&self.raw.files, &left, provenance)? {
                None => return sources::as_identity(&left),
                Some(difference) => progress.note(&format!(
                    "note: {}: an unfinished conversion cannot be resumed: {difference}",
                    out.display()
                )),
            }
        }
        sources::as_identity(provenance)
    }

    /// The first difference between how `dataset` was made and `wanted`, as a clause.
    pub fn difference(&self, dataset: &Dataset, wanted: &mut Provenance) -> Result<Option<String>> {
        sources::difference(&self.raw.files, &dataset.manifest().provenance, wanted)
    }

    /// The dataset at `out`, if there is one that was made according to `wanted`. Fails with the
    /// difference if it was made otherwise.
    pub fn reusable(&self, out: &Path, wanted: &mut Provenance) -> Result<Option<Dataset>> {
        if !out.join("dataset.json").exists() {
            return Ok(None);
        }
        let dataset = Dataset::open(out)?;
        match self.difference(&dataset, wanted)? {
            None => Ok(Some(dataset)),
            Some(difference) => {
                let remedy = "choose another path, or pass --force to rebuild it";
                Err(Error::input(out, format!("already there, but {difference}: {remedy}")))
            }
        }
    }
}
