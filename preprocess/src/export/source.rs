//! Contents of a dataset, opened once for an export.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use gsplit_kernels::{ScaledRow, StoredRow};
use gsplit_store::{
    Column, ColumnFile, Dataset, DatasetManifest, Element, Error as StoreError, FeatureDtype,
    FeatureTable, LabelShape, MultiLabels, Names, OriginalIds, Split, Topology,
};
use half::{bf16, f16};

use crate::{Error, Result};

pub(super) use crate::edges::WEIGHT;

/// A dataset and its opened parts.
pub(super) struct Source<'a> {
    dataset: &'a Dataset,
    /// Feature rows.
    pub features: Option<FeatureTable>,
    /// Labels of the vertices.
    pub labels: Option<Labels>,
    /// The splits that there are.
    pub splits: Vec<(Split, Column<u32>)>,
    /// Further node columns by name.
    pub node_columns: Vec<(String, ColumnFile)>,
    /// Edge columns by name, aligned with the topology's indices.
    pub edge_columns: Vec<(String, ColumnFile)>,
    /// The raw input's ids, where they were changed.
    pub original: Option<Original>,
}

/// A part of a dataset beyond the graph.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Features,
    Labels,
    ClassNames,
    FeatureNames,
    Split(Split),
    NodeColumn(String),
    EdgeColumn(String),
    Links,
    OriginalIds,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Features => f.write_str("features"),
            Self::Labels => f.write_str("labels"),
            Self::ClassNames => f.write_str("class names"),
            Self::FeatureNames => f.write_str("feature names"),
            Self::Split(split) => write!(f, "the {} split", split.name()),
            Self::NodeColumn(name) => write!(f, "node column {name}"),
            Self::EdgeColumn(name) => write!(f, "edge column {name}"),
            Self::Links => f.write_str("the split of links"),
            Self::OriginalIds => f.write_str("original ids"),
        }
    }
}

/// Labels of the vertices.
pub(super) enum Labels {
    /// One class each, -1 for none.
    Single(Column<i32>),
    /// Any number of classes each.
    Multi(MultiLabels),
    /// One number each, NaN for none.
    Number(Column<f32>),
}

/// The raw input's ids.
pub(super) enum Original {
    /// Numbers.
    Numbers(OriginalIds),
    /// Strings.
    Names(Names),
}

/// One weight per edge, borrowed from the dataset.
pub(super) enum Weights<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    I64(&'a [i64]),
}

impl Weights<'_> {
    /// The weight of edge `e`.
    pub fn get(&self, e: usize) -> f64 {
        match self {
            Self::F32(values) => f64::from(values[e]),
            Self::F64(values) => values[e],
            Self::I64(values) => values[e] as f64,
        }
    }
}

impl<'a> Source<'a> {
    /// Opens every part that the manifest names.
    pub fn open(dataset: &'a Dataset) -> Result<Self> {
        let manifest: &DatasetManifest = dataset.manifest();
        let labels = match manifest.label_shape() {
            None => None,
            Some(LabelShape::Number) => Some(Labels::Number(dataset.numeric_labels()?)),
            Some(LabelShape::Class(_)) => Some(Labels::Single(dataset.labels()?)),
            Some(LabelShape::Classes(_)) => Some(Labels::Multi(dataset.multi_labels()?)),
        };
        let original = match (dataset.original_names()?, dataset.original_ids()?) {
            (Some(names), _) => Some(Original::Names(names)),
            (None, ids) => ids.map(Original::Numbers),
        };
        Ok(Self {
            dataset,
            features: if manifest.features.is_some() { Some(dataset.features()?) } else { None },
            labels,
            splits: manifest
                .splits()
                .into_iter()
                .map(|split| Ok((split, dataset.split(split)?)))
                .collect::<Result<_>>()?,
            node_columns: named(&manifest.columns, |name| dataset.node_column(name))?,
            edge_columns: named(&manifest.edge_columns, |name| dataset.edge_column(name))?,
            original,
        })
    }

    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        self.dataset
    }

    /// The graph.
    pub fn topology(&self) -> &Topology {
        self.dataset.topology()
    }

    /// The dataset's name, fit for a comment line.
    pub fn one_line_name(&self) -> String {
        self.dataset.name().chars().filter(|c| !c.is_control()).collect()
    }

    /// Fails where one of the edges of `range` comes from no vertex.
    pub fn check(&self, range: Range<usize>) -> Result<()> {
        let (n, first) = (self.topology().num_vertices(), range.start);
        match self.topology().indices()[range].iter().position(|&u| u as usize >= n) {
            None => Ok(()),
            Some(at) => {
                let path = self.dataset.path().join("topology/indices.npy");
                let problem =
                    format!("edge {} comes from a vertex that is not below {n}", first + at);
                Err(StoreError::Corrupt { path, problem }.into())
            }
        }
    }

    /// All parts beyond the graph.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        parts.extend(self.features.as_ref().map(|_| Part::Features));
        parts.extend(self.labels.as_ref().map(|_| Part::Labels));
        parts.extend(self.class_names().map(|_| Part::ClassNames));
        parts.extend(self.feature_names().map(|_| Part::FeatureNames));
        parts.extend(self.splits.iter().map(|(split, _)| Part::Split(*split)));
        parts.extend(self.node_columns.iter().map(|(name, _)| Part::NodeColumn(name.clone())));
        parts.extend(self.edge_columns.iter().map(|(name, _)| Part::EdgeColumn(name.clone())));
        parts.extend(self.dataset.manifest().links.as_ref().map(|_| Part::Links));
        parts.extend(self.original.as_ref().map(|_| Part::OriginalIds));
        parts
    }

    /// Names of the classes, where they have names.
    pub fn class_names(&self) -> Option<&[String]> {
        self.dataset.manifest().class_names.as_deref()
    }

    /// Names of the features, where they have names.
    pub fn feature_names(&self) -> Option<&[String]> {
        self.dataset.manifest().features.as_ref().and_then(|features| features.names.as_deref())
    }

    /// The original ids, if they count from 1, as Matrix Market and METIS do.
    pub fn part_from_one(&self) -> Option<Part> {
        (self.dataset.manifest().first_id == 1).then_some(Part::OriginalIds)
    }

    /// The weights of the edges, where there is a column `weight` of one value an edge.
    pub fn weights(&self) -> Result<Option<Weights<'_>>> {
        let column =
            self.edge_columns.iter().find(|(name, column)| name == WEIGHT && column.width() == 1);
        let Some((_, column)) = column else { return Ok(None) };
        Ok(Some(match column.descr() {
            "<f4" => Weights::F32(column.as_slice()?),
            "<f8" => Weights::F64(column.as_slice()?),
            _ => Weights::I64(column.as_slice()?),
        }))
    }

    /// The raw input's ids, opened again; fails when the dataset's ids are the input's.
    pub fn wanted_original(&self) -> Result<Original> {
        match &self.original {
            Some(Original::Numbers(ids)) => Ok(Original::Numbers(ids.clone())),
            Some(Original::Names(names)) => Ok(Original::Names(names.clone())),
            None => {
                let path = self.dataset.path().to_path_buf();
                let remedy =
                    "its ids are those of its input already: leave --original-ids out".to_string();
                Err(StoreError::Missing { path, what: "original ids".into(), remedy }.into())
            }
        }
    }

    /// The split of each vertex of `range`, as an index into [`Source::splits`].
    pub fn splits_of(&self, range: Range<usize>) -> Vec<Option<usize>> {
        let mut found = vec![None; range.len()];
        for (which, (_, vertices)) in self.splits.iter().enumerate() {
            let from = vertices.partition_point(|&v| (v as usize) < range.start);
            for &v in vertices[from..].iter().take_while(|&&v| (v as usize) < range.end) {
                found[v as usize - range.start] = Some(which);
            }
        }
        found
    }
}

/// The columns of the manifest with their names.
fn named<T>(
    columns: &BTreeMap<String, T>,
    open: impl Fn(&str) -> gsplit_store::Result<ColumnFile>,
) -> Result<Vec<(String, ColumnFile)>> {
    columns.keys().map(|name| Ok((name.clone(), open(name)?))).collect()
}

/// The feature rows of `vertices` as single precision, row after row.
pub(crate) fn f32_rows(
    table: &FeatureTable,
    vertices: impl ExactSizeIterator<Item = u32>,
) -> Vec<f32> {
    let dim = table.dim();
    let mut rows = vec![0.0; vertices.len() * dim];
    for (at, v) in vertices.enumerate() {
        let out = &mut rows[at * dim..][..dim];
        match table.dtype() {
            FeatureDtype::F32 => table.row::<f32>(v).write_to(out),
            FeatureDtype::F16 => table.row::<f16>(v).write_to(out),
            FeatureDtype::Bf16 => table.row::<bf16>(v).write_to(out),
            FeatureDtype::I8 => {
                ScaledRow { scale: table.scale(v), values: table.row::<i8>(v) }.write_to(out)
            }
        }
    }
    rows
}

/// Row-major values of a column's rows `range`.
pub(super) fn column_rows<T: Element>(column: &ColumnFile, range: Range<usize>) -> Result<&[T]> {
    let width = column.width();
    column.as_slice::<T>()?.get(range.start * width..range.end * width).ok_or_else(|| {
        Error::input(
            column.path(),
            format!("expected rows up to {}, found {}", range.end, column.rows()),
        )
    })
}
