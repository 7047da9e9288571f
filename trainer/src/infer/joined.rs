//! Properties of a trained model that matter for a graph to which new rows are joined.

use gsplit_store::{Dataset, Progress};

use super::{InferConfig, Trained};
use crate::config::DataConfig;
use crate::{Error, Result};

/// Properties of a trained model that decide which part of a graph it reads.
pub struct JoinedModel {
    /// Number of layers, each of which reads the in-neighbours of the one above; `None` if it reads
    /// the whole graph.
    pub layers: Option<usize>,
    /// Columns of the edges that it reads.
    pub edge_columns: Vec<String>,
}

impl JoinedModel {
    /// Opens the model that `config` names. Refuses an `older` graph whose features have another
    /// meaning than in training.
    pub fn open(
        config: &InferConfig,
        older: Option<&Dataset>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let trained = Trained::open(&config.checkpoint, config.epoch)?;
        if let Some(older) = older {
            if older.manifest().recipe.is_none() {
                let (name, by) = (older.path().display(), config.checkpoint.display());
                let problem =
                    "is not made from a table of vertices: convert the right table with --recipe";
                return Err(Error::Option(format!("--with {name}: {problem} {by}")));
            }
            trained.check_recipe(older, progress)?;
        }
        let DataConfig { draw_by, edge_weights, .. } = &trained.config().data;
        let mut edge_columns: Vec<String> = draw_by.iter().chain(edge_weights).cloned().collect();
        edge_columns.dedup();
        let layers =
            (!trained.config().data.task.is_link()).then_some(trained.config().model.layers);
        Ok(Self { layers, edge_columns })
    }
}
