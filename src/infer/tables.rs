//! New tables to infer on: they become a dataset by the recipe that the model was trained with, which goes when the inference ends.

use std::path::{Path, PathBuf};

use gsplit_preprocess::Error;
use gsplit_preprocess::convert::{ConvertOptions, convert};
use gsplit_preprocess::memory::Memory;
use gsplit_preprocess::read::options::{DateOrder, Fill, MissingRows, Unseen};
use gsplit_store::staging::Staging;
use gsplit_store::{Dataset, Progress, Recipe, dataset_target};

use gsplit::ui::usage;

/// Tables in place of a dataset.
#[derive(clap::Args)]
pub struct NewTables {
    /// Table of new vertices, with the columns that the model was trained on, in any order; in place of DATASET
    #[arg(long, value_name = "FILE", requires = "edges")]
    nodes: Option<PathBuf>,
    /// Table of the edges among them
    #[arg(long, value_name = "FILE", requires = "nodes")]
    edges: Option<PathBuf>,
    /// With --edges, the column with the vertex that an edge comes from [default: as in training]
    #[arg(long, value_name = "COLUMN", requires = "edges")]
    source_column: Option<String>,
    /// With --edges, the column with the vertex that an edge leads to [default: as in training]
    #[arg(long, value_name = "COLUMN", requires = "edges")]
    target_column: Option<String>,
    /// With --nodes, categories that training did not see: refuse them, or take them for other
    #[arg(long, value_name = "refuse|other", hide_possible_values = true, requires = "nodes")]
    unseen: Option<Unseen>,
    /// With --nodes, number to take for one that is missing, where the recipe has none
    #[arg(long, value_name = "NUMBER", requires = "nodes", allow_negative_numbers = true)]
    fill: Option<Fill>,
    /// With --nodes, the order of day and month in dates [default: as in training, or found out]
    #[arg(long, value_name = "dmy|mdy", requires = "nodes")]
    date_order: Option<DateOrder>,
    /// With --nodes, vertices of the edges that the table does not list: fill or drop them [default: refused]
    #[arg(long, value_name = "fill|drop", hide_possible_values = true, requires = "nodes")]
    missing_rows: Option<MissingRows>,
}

/// A dataset that is there for one inference.
pub struct Converted {
    /// The dataset.
    pub dataset: Dataset,
    /// Its folder.
    _staging: Staging,
}

impl NewTables {
    /// The tables, if they are given.
    pub fn files(&self) -> Option<[&Path; 2]> {
        Some([self.nodes.as_deref()?, self.edges.as_deref()?])
    }

    /// `error` about `dataset`, with the table of edges in its place where it is these tables'.
    pub fn named(&self, error: anyhow::Error, dataset: &Dataset) -> anyhow::Error {
        let (place, text) = (dataset.path().display().to_string(), error.to_string());
        match &self.edges {
            Some(edges) if text.contains(&place) => anyhow::anyhow!(text.replace(&place, &edges.display().to_string())),
            _ => error,
        }
    }

    /// Converts them by the recipe of `checkpoint`, beside the output `out`.
    pub fn convert(
        &self,
        checkpoint: &Path,
        out: &Path,
        memory: Option<Memory>,
        progress: &dyn Progress,
    ) -> anyhow::Result<Option<Converted>> {
        let (Some(nodes), Some(edges)) = (&self.nodes, &self.edges) else { return Ok(None) };
        if Recipe::read(checkpoint)?.features.is_empty() {
            let problem = "the features of its training were no columns of a table: convert, and name the dataset";
            return Err(usage(format!("--nodes: {}: {problem}", checkpoint.display())));
        }
        let name = out.file_name().unwrap_or_default().to_string_lossy();
        let staging = Staging::begin(dataset_target(&out.with_file_name(format!(".{name}.tables"))), false)?;
        let folder = staging.file();
        std::fs::create_dir_all(&folder).map_err(gsplit_store::Error::io(&folder))?;
        let mut options = ConvertOptions::default();
        options.read.nodes = Some(nodes.clone());
        options.read.memory = memory;
        options.read.source_column = self.source_column.clone();
        options.read.target_column = self.target_column.clone();
        options.read.date_order = self.date_order;
        let table = &mut options.read.node_table;
        table.recipe = Some(checkpoint.to_path_buf());
        (table.unseen, table.fill, table.missing_rows) = (self.unseen, self.fill, self.missing_rows);
        let converted = convert(edges, &folder.join(&*name), &options, false, progress);
        let (dataset, _) = converted.map_err(|error| match error {
            Error::Option(problem) => usage(problem),
            error => error.into(),
        })?;
        Ok(Some(Converted { dataset, _staging: staging }))
    }
}
