//! A trained model, restored from nothing but its checkpoint.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use gsplit_store::{
    Dataset, Error as StoreError, GraphTypes, Progress, VertexType, checksum_file, document,
};

use crate::config::{Config, ConfigOption};
use crate::job::Job;
use crate::model::{Embeddings, Model, OwnLayer, Parameters, Typed};
use crate::operator::Place;
use crate::report::EpochReport;
use crate::report::checkpoint::{
    Checkpoint, WEIGHTS, best, epochs, newest, of_epoch, restore_parameters,
};
use crate::{Error, Result};

/// Options that decide which parameters a model has, and their meaning.
const SHAPE: [&str; 10] = [
    "model",
    "layers",
    "hidden",
    "heads",
    "norm",
    "residual",
    "jumping-knowledge",
    "normalise-features",
    "task",
    "scorer",
];

/// The options of `config` that are in [`SHAPE`].
fn shape(config: &Config) -> BTreeMap<String, ConfigOption> {
    let mut options = config.effective().options();
    options.retain(|flag, _| SHAPE.contains(&flag.as_str()));
    options
}

/// Epoch of a run whose model is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenEpoch {
    /// The best on the valid split.
    Best,
    /// The last.
    Last,
    /// The epoch with this number.
    Number(u32),
}

impl FromStr for ChosenEpoch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.parse()) {
            ("best", _) => Ok(Self::Best),
            ("last", _) => Ok(Self::Last),
            (_, Ok(number)) => Ok(Self::Number(number)),
            _ => Err(Error::Option("expected best, last or the number of an epoch".into())),
        }
    }
}

/// A checkpoint to infer with.
#[derive(Debug)]
pub struct Trained {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub checkpoint: Checkpoint,
}

impl Trained {
    /// Opens the checkpoint in `folder`: `folder` itself, or for the folder of a run the `chosen`
    /// epoch; by default the best epoch if there is one, else the last.
    ///
    /// # Errors
    /// [`Error::Option`] if there is none; [`Error::Data`] and [`Error::Store`] if it is damaged.
    pub fn open(folder: &Path, chosen: Option<ChosenEpoch>) -> Result<Self> {
        // `gsplit run` writes checkpoints to a subfolder.
        let inner = folder.join("checkpoint");
        let is_of_run = newest(folder).is_none() && newest(&inner).is_some();
        let folder = if is_of_run { &inner } else { folder };
        let place = folder.display();
        let own = folder.join("checkpoint.json").exists().then(|| folder.to_path_buf());
        if let (Some(_), Some(_)) = (&own, chosen) {
            let problem = "is a single epoch already: leave it out, or name the folder of the run";
            return Err(Error::Option(format!("--epoch: {place} {problem}")));
        }
        let last = || newest(folder);
        let path = own.or_else(|| match chosen {
            None => best(folder).or_else(last),
            Some(ChosenEpoch::Best) => best(folder),
            Some(ChosenEpoch::Last) => last(),
            Some(ChosenEpoch::Number(epoch)) => of_epoch(folder, epoch),
        });
        let Some(path) = path else {
            let kept: Vec<String> = epochs(folder).iter().map(u32::to_string).collect();
            return Err(Error::Option(match kept.is_empty() {
                true => format!(
                    "--checkpoint {place}: no checkpoint there: name the folder that `gsplit train \
                     --checkpoint` wrote"
                ),
                false => format!(
                    "--epoch: not in {place}, where the last two and the best on the valid split \
                     are kept: choose last, or one of {}",
                    kept.join(", ")
                ),
            }));
        };
        let (checkpoint, _) = document::read::<Checkpoint>(&path.join("checkpoint.json"))?;
        let weights = path.join(WEIGHTS);
        let (bytes, checksum) = checksum_file(&weights)?;
        let recorded = checkpoint.files.get(WEIGHTS);
        if recorded
            .is_none_or(|recorded| (bytes, &checksum) != (recorded.bytes, &recorded.checksum))
        {
            let problem =
                "its checksum is not the recorded one: name an older checkpoint, or train again"
                    .to_string();
            return Err(Error::Data { path: weights, problem });
        }
        let (names, classes) =
            (checkpoint.class_names.as_ref().map(Vec::len), checkpoint.inputs.shape.outputs);
        if let Some(names) = names.filter(|&names| names != classes) {
            let problem = format!(
                "{names} names for {classes} classes: name an older checkpoint, or train again"
            );
            return Err(Error::Data { path: path.join("checkpoint.json"), problem });
        }
        Ok(Self { path, checkpoint })
    }

    /// Number of epochs it was trained for.
    pub fn epochs(&self) -> usize {
        self.checkpoint.history.len()
    }

    /// True if no earlier epoch of the run was better on the valid split.
    pub fn is_best(&self) -> bool {
        let history = &self.checkpoint.history;
        history.last().is_some_and(|last| {
            EpochReport::best(history).is_some_and(|best| best.epoch == last.epoch)
        })
    }

    /// The configuration of the run.
    pub fn config(&self) -> &Config {
        &self.checkpoint.config
    }

    /// Width of the feature rows it reads.
    pub fn feature_dim(&self) -> usize {
        self.checkpoint.inputs.shape.features
    }

    /// Width of the rows that its last layer returns.
    pub fn outputs(&self) -> usize {
        self.checkpoint.inputs.shape.outputs
    }

    /// Names of the classes, if its training data had them.
    pub fn class_names(&self) -> Option<&[String]> {
        self.checkpoint.class_names.as_deref()
    }

    /// True if it decides for each class whether a vertex has it, instead of choosing one class.
    pub fn several(&self) -> bool {
        self.checkpoint.inputs.shape.several
    }

    /// Loads the model with its parameters at `place`; `layer` makes the layers of a model with a
    /// program's own layers.
    ///
    /// # Errors
    /// [`Error::Data`] if the file's tensors do not match the configuration; [`Error::Option`] if
    /// it is invalid.
    pub fn model(&self, place: &Place, layer: Option<&OwnLayer>) -> Result<Model> {
        self.config().check_values()?;
        let typed = |types: &GraphTypes| {
            let embeddings = Arc::new(Embeddings::new(types, self.config(), 1, 0)?);
            Ok::<_, Error>(Typed { types: types.clone(), embeddings })
        };
        let typed = self.checkpoint.inputs.shape.types.as_ref().map(typed).transpose()?;
        let (features, outputs) = (self.feature_dim(), self.outputs());
        let model =
            Model::with_layers(place, self.config(), features, outputs, layer, typed.as_ref());
        self.restore(model.parameters())?;
        Ok(model)
    }

    /// Overwrites `parameters` with the model's.
    pub fn restore(&self, parameters: &Parameters) -> Result<()> {
        restore_parameters(&self.path.join(WEIGHTS), parameters)
    }

    /// Options of its run that decide which parameters it has and their meaning, with their values.
    pub fn shape(&self) -> BTreeMap<String, ConfigOption> {
        shape(self.config())
    }

    /// Refuses to start training with `config` if its model has other parameters.
    pub fn check_shape(&self, config: &Config) -> Result<()> {
        let (mine, other) = (self.shape(), shape(config));
        let value = |option: Option<&ConfigOption>| {
            option.map_or("none".into(), |option| option.value.to_string())
        };
        let differs = |flag: &&String| value(mine.get(*flag)) != value(other.get(*flag));
        let Some(flag) = mine.keys().chain(other.keys()).find(differs) else { return Ok(()) };
        let (mine, other, place) =
            (value(mine.get(flag)), value(other.get(flag)), self.path.display());
        Err(Error::Option(format!(
            "--{flag} is {other}, the model of --init {place} has {mine}: give --{flag} the same \
             value, or leave --init out"
        )))
    }

    /// Refuses to start training with `job` if its parameters differ in number or meaning.
    pub fn check_start(&self, job: &Job<'_>) -> Result<()> {
        self.check_shape(job.config)?;
        let (manifest, place) = (job.dataset.manifest(), self.path.display());
        let of_recipes = manifest.recipe.as_ref().zip(self.checkpoint.recipe.as_ref());
        let of_recipes = of_recipes.and_then(|(here, trained)| here.difference(trained));
        let names = manifest.class_names.as_ref().zip(self.checkpoint.class_names.as_ref());
        let shapes = [
            ("features", job.features.dim() != self.feature_dim()),
            ("outputs", job.outputs != self.outputs()),
            ("classes", names.is_some_and(|(here, then)| here != then)),
        ];
        let other = shapes.into_iter().find(|(_, differ)| *differ);
        let difference = of_recipes.or_else(|| {
            other.map(|(what, _)| format!("has other {what} than the training of --init {place}"))
        });
        difference.map_or(Ok(()), |difference| {
            let remedy = format!("convert its tables with --recipe {place}, or leave --init out");
            Err(Error::Option(format!("{}: {difference}: {remedy}", job.dataset.path().display())))
        })
    }

    /// Refuses a dataset whose features have another meaning than in training, if both are from
    /// tables, and notes differences in the treatment of edges.
    pub fn check_recipe(&self, dataset: &Dataset, progress: &dyn Progress) -> Result<()> {
        let recipes = dataset.manifest().recipe.as_ref().zip(self.checkpoint.recipe.as_ref());
        if let Some(difference) =
            recipes.and_then(|(here, trained)| here.edges.difference(&trained.edges))
        {
            progress.note(&format!(
                "warning: {}: {difference}: predictions may suffer",
                dataset.path().display()
            ));
        }
        let Some(difference) = recipes.and_then(|(here, trained)| here.difference(trained)) else {
            return Ok(());
        };
        let (place, folder) = (dataset.path().display(), self.path.display());
        let remedy = format!(
            "infer on the tables themselves (--nodes, --edges), or convert them with --recipe \
             {folder}"
        );
        Err(Error::Option(format!("{place}: {difference}: {remedy}")))
    }

    /// Refuses a dataset with other types of vertices than in training, or with another number of
    /// vertices of a type whose rows were learnt.
    pub fn check_types(&self, dataset: &Dataset) -> Result<()> {
        let (here, then) = (dataset.types(), self.checkpoint.inputs.shape.types.as_ref());
        let (place, path) = (self.path.display(), dataset.path().display());
        let differ = |what: &str| {
            let remedy = "infer on a dataset like the one it was trained on, or train again";
            Err(Error::Option(format!("{path}: {what} than in the training of {place}: {remedy}")))
        };
        let (here, then) = match (here, then) {
            (None, None) => return Ok(()),
            (Some(here), Some(then)) => (here, then),
            _ => return differ("has other types of vertices"),
        };
        let shape = |of: &VertexType| (of.name.clone(), of.features.as_ref().map(|rows| rows.dim));
        if !here.vertices.iter().map(shape).eq(then.vertices.iter().map(shape)) {
            return differ("has other types of vertices, or other widths of features,");
        }
        if here.relations != then.relations {
            return differ("has other relations");
        }
        let mut types = here.vertices.iter().zip(&then.vertices);
        match types.find(|(here, then)| here.features.is_none() && here.count != then.count) {
            None => Ok(()),
            Some((of, _)) => {
                differ(&format!("has another number of `{}`, whose rows are learnt,", of.name))
            }
        }
    }

    /// Refuses a dataset whose features the model cannot read.
    pub fn check_features(&self, dataset: &Path, dim: usize) -> Result<()> {
        if dim == self.feature_dim() {
            return Ok(());
        }
        Err(StoreError::Invalid(format!(
            "{}: its features have {dim} values, {} was trained on {}: infer on a dataset with the \
             same features",
            dataset.display(),
            self.path.display(),
            self.feature_dim()
        ))
        .into())
    }
}
