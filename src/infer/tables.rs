//! New tables to infer on: they become a temporary dataset by the recipe of the model's training
//! data.

use std::path::{Path, PathBuf};

use clap::{Args as _, Command};
use gsplit_preprocess::Error;
use gsplit_preprocess::convert::{ConvertOptions, NewRows, Older, join};
use gsplit_preprocess::memory::Memory;
use gsplit_preprocess::read::schema::{SchemaPart, of_parts};
use gsplit_store::staging::PrivateFolder;
use gsplit_store::{Dataset, Progress, Recipe};
use gsplit_trainer::{InferConfig, JoinedModel, scratch_folder};

use crate::train::as_usage;
use gsplit::ui::usage;

/// Tables instead of a dataset.
#[derive(clap::Args)]
pub struct NewTables {
    /// Table of new vertices, with the columns that the model was trained on, in any order; instead
    /// of DATASET
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// With --nodes, the table of their edges [default: they have none]
    #[arg(long, value_name = "FILE", requires = "nodes")]
    edges: Option<PathBuf>,
    /// With --nodes, the dataset, or the run with it, whose graph the new vertices are joined to:
    /// --edges may then connect them to its vertices. Ids are the ids of the tables that it was
    /// made from
    #[arg(long, value_name = "DATASET", requires = "nodes")]
    with: Option<PathBuf>,
    /// With --nodes, how the tables are read where the recipe leaves it open, as KEY=VALUE or a
    /// file, repeatable: unseen=other takes new categories for none of the known ones; fill=NUMBER
    /// replaces missing values; on-duplicate=first or last is the row to use of a vertex with
    /// several, where rows of --with come first; missing-rows=fill or drop treats vertices of the
    /// edges without a row (keys: docs/tables.md)
    #[arg(long, value_name = "FILE|KEY=VALUE", requires = "nodes")]
    schema: Vec<SchemaPart>,
}

/// A dataset that exists for one inference.
pub struct Converted {
    /// The dataset.
    pub dataset: Dataset,
    /// The vertices of the table's rows.
    pub rows: Vec<u32>,
    /// The folder that holds it.
    _folder: PrivateFolder,
}

impl NewTables {
    /// The files that are given, with their options.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [("--nodes", &self.nodes), ("--edges", &self.edges), ("--with", &self.with)];
        all.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }

    /// `error`, in which the temporary `dataset`, if it was made of these tables, is replaced by a
    /// table.
    pub fn named(&self, error: anyhow::Error, dataset: &Dataset) -> anyhow::Error {
        let (place, text) = (dataset.path().display().to_string(), error.to_string());
        match self.edges.as_ref().or(self.nodes.as_ref()) {
            Some(table) if text.contains(&place) => {
                anyhow::anyhow!(text.replace(&place, &table.display().to_string()))
            }
            _ => error,
        }
    }

    /// Converts the tables by the recipe of the checkpoint, into a folder that nobody else can
    /// read.
    pub fn convert(
        &self,
        config: &InferConfig,
        memory: Option<Memory>,
        progress: &dyn Progress,
    ) -> anyhow::Result<Option<Converted>> {
        let Some(nodes) = &self.nodes else { return Ok(None) };
        let checkpoint = &config.checkpoint;
        let older = self.with.as_deref().map(opened).transpose()?;
        let model = JoinedModel::open(config, older.as_ref(), progress).map_err(as_usage)?;
        if Recipe::read(checkpoint)?.features.is_empty() {
            let problem = "the features of its training were no columns of a table: convert, and name the dataset";
            return Err(usage(format!("--nodes: {}: {problem}", checkpoint.display())));
        }
        let folder = PrivateFolder::begin(&scratch_folder(config)?)?;
        let mut options = ConvertOptions::default();
        options.read.nodes = Some(nodes.clone());
        options.read.memory = memory;
        options.read.recipe = Some(checkpoint.to_path_buf());
        options.read.schema = of_parts(&self.schema);
        let out = folder.path().join(nodes.file_name().unwrap_or_default());
        let older = older.as_ref().map(|dataset| Older { dataset, layers: model.layers });
        let new =
            NewRows { edges: self.edges.as_deref(), edge_columns: &model.edge_columns, older };
        let joined = join(&new, &out, &options, progress);
        let (dataset, rows) = joined.map_err(|error| match error {
            Error::Option(problem) => usage(runnable(&problem, checkpoint)),
            Error::NoRow { table, missing, vertices, id } => anyhow::anyhow!(
                "{}: {missing} of {vertices} vertices have edges and no row, for example {id}: \
                 pass --with DATASET if their rows are in the tables of another dataset, --schema \
                 missing-rows=drop to leave out their edges, or --schema missing-rows=fill for \
                 rows of missing values",
                table.display()
            ),
            error => anyhow::anyhow!(runnable(&error.to_string(), checkpoint)),
        })?;
        Ok(Some(Converted { dataset, rows, _folder: folder }))
    }
}

/// Opens the dataset in `folder`, or the dataset of the run in `folder`.
fn opened(folder: &Path) -> anyhow::Result<Dataset> {
    let of_run = folder.join("dataset");
    let is_run = !folder.join("dataset.json").exists() && of_run.join("dataset.json").exists();
    Ok(Dataset::open(if is_run { &of_run } else { folder })?)
}

/// `text`, followed by advice on the options of convert in it that `gsplit infer` does not have.
fn runnable(text: &str, checkpoint: &Path) -> String {
    let own = super::Args::augment_args(Command::new("infer"));
    let is_own = |name: &str| own.get_arguments().any(|argument| argument.get_long() == Some(name));
    let word = |text: &str| {
        text.chars().take_while(|&c| c.is_ascii_lowercase() || c == '-').collect::<String>()
    };
    let others = text.split("--").skip(1).map(word).any(|name| !name.is_empty() && !is_own(&name));
    match others {
        true => format!(
            "{text} (gsplit convert --recipe {}, and infer on that dataset)",
            checkpoint.display()
        ),
        false => text.to_string(),
    }
}
