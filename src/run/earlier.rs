//! `gsplit run --from RUN`: starts from the model and the recipe of an earlier run.

use std::path::{Path, PathBuf};

use crate::train::as_words;
use gsplit::ui::{as_text, usage};
use gsplit_preprocess::convert::ConvertOptions;
use gsplit_store::as_argument;
use gsplit_trainer::{Config, Trained};

use super::chosen::has;

/// An earlier run.
pub struct Earlier {
    /// Its checkpoint, as an argument.
    path: String,
    trained: Trained,
}

impl Earlier {
    /// Opens the run in `folder`, or the checkpoint there.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let inner: PathBuf = folder.join("checkpoint");
        let folder = if inner.is_dir() { inner } else { folder.to_path_buf() };
        let trained = Trained::open(&folder, None).map_err(|error| match error {
            gsplit_trainer::Error::Option(problem) => {
                usage(problem.replacen("--checkpoint", "--from", 1))
            }
            other => other.into(),
        })?;
        Ok(Self { path: as_text("--from", &as_argument(&folder))?.to_string(), trained })
    }

    /// Options of convert that read tables as the earlier run read its own.
    pub fn of_convert(&self, given: &ConvertOptions) -> anyhow::Result<Vec<String>> {
        let schema = &given.read.schema;
        let has_features = self
            .trained
            .checkpoint
            .recipe
            .as_ref()
            .is_some_and(|recipe| !recipe.features.is_empty());
        if given.read.nodes.is_none() || !has_features || given.read.recipe.is_some() {
            return Ok(Vec::new());
        }
        let others = [
            ("--feature-columns", schema.feature_columns.is_some()),
            ("--schema encode", schema.encode.is_some()),
            ("--schema scale", schema.scale.is_some()),
        ];
        if let Some((option, _)) = others.into_iter().find(|(_, is_given)| *is_given) {
            return Err(usage(format!(
                "{option}: --from takes the columns and scales of {}: leave one of the two out",
                self.path
            )));
        }
        Ok(vec![format!("--recipe={}", self.path)])
    }

    /// Options of train that the model needs, where `given` leaves them open.
    pub fn of_train(&self, given: &[String]) -> Vec<String> {
        let mut options = self.trained.shape();
        options.extend(
            self.trained.config().options().into_iter().filter(|(flag, _)| flag == "fanouts"),
        );
        if !self.trained.config().data.task.is_link() {
            options.remove("scorer");
        }
        let open = options.into_iter().filter(|(flag, _)| !has(given, flag));
        as_words(open.map(|(flag, option)| (flag, option.value)))
    }

    /// The option of train that starts from the earlier model.
    pub fn init(&self, config: &Config) -> anyhow::Result<String> {
        let in_run = |error: String| usage(error.replace("--init", "--from"));
        self.trained.check_shape(config).map_err(|error| in_run(error.to_string()))?;
        Ok(format!("--init={}", self.path))
    }

    /// A note, if scores of a random split would be too high.
    pub fn note(&self, draws_splits: bool) -> Option<String> {
        draws_splits.then(|| {
            format!(
                "note: --from {}: unless the table has a split column, splits are drawn anew: the \
                 model has learned from vertices that are now in \
                 valid and test, so that its scores flatter",
                self.path
            )
        })
    }
}
