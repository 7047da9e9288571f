//! Options of inference.

use std::path::PathBuf;
use std::sync::Arc;

use gsplit_store::Checksum;

use super::ChosenEpoch;
use super::recommend::RecommendationFile;
use super::table::OutputFormat;
use crate::Result;
use crate::config::{Device, Dtype, FeatureStorage, GpuList};
use crate::metric::Metric;
use crate::model::OwnLayer;
use crate::operator::OwnPlaces;

/// Vertices to predict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Wanted {
    /// Every vertex
    #[default]
    All,
    /// The train split
    Train,
    /// The valid split
    Valid,
    /// The test split
    Test,
}

/// Form in which a vertex's logits are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Predict {
    /// The class of the largest logit, in .csv and .parquet by its name if classes have names;
    /// where vertices can have several, 0 or 1 per class
    Class,
    /// The logits
    Logits,
    /// Their softmax; where vertices can have several classes, the sigmoid of each
    Probabilities,
}

/// Options of inference and of its output.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct InferConfig {
    /// Folder written by `gsplit train --checkpoint`, or one of the epochs in it
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub checkpoint: PathBuf,
    /// Epoch whose model predicts: best (on the valid split), last, or the number of one that is
    /// kept [default: best; last if no epoch is the best]
    #[cfg_attr(feature = "cli", arg(long, value_name = "best|last|N"))]
    pub epoch: Option<ChosenEpoch>,
    /// Vertices to predict and to score
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value = "all"))]
    pub split: Wanted,
    /// File for the predictions, .csv, .parquet or .npy; with --top for the recommendations, .csv
    /// or .parquet
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub out: Option<PathBuf>,
    /// With a model of links, write to --out for each source the K targets with the highest scores
    /// that it has no link to
    #[cfg_attr(feature = "cli", arg(long, value_name = "K", requires = "out"))]
    pub top: Option<u32>,
    /// File with the original id of a source on each line, to recommend targets for [default: all
    /// sources]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", requires = "top"))]
    pub sources: Option<PathBuf>,
    /// Also recommend targets that a source already has a link to
    #[cfg_attr(feature = "cli", arg(long, requires = "top"))]
    pub with_known: bool,
    /// Form of the predictions; a regression has only one, the number in the unit that it was
    /// trained on [default: class, in .csv and .parquet together with the probabilities]
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub predict: Option<Predict>,
    /// File for the rows that the last product reads, .npy or .parquet: of the last hidden layer,
    /// or with --jumping-knowledge their combination over all layers (for a model of links, the
    /// rows of the last layer)
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub embeddings: Option<PathBuf>,
    /// Score: accuracy, micro-f1, macro-f1 or roc-auc; for numbers rmse, mae or r2 [default: as in
    /// training]
    #[cfg_attr(feature = "cli", arg(long))]
    pub metric: Option<Metric>,
    /// Folder for finished layers that do not fit the memory, and for the dataset of --nodes
    /// [default: the folder of --out or --embeddings, else the system's for temporary files]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub scratch: Option<PathBuf>,
    /// Storage that feature rows are read from
    #[cfg_attr(
        feature = "cli",
        arg(long, value_enum, value_name = "PLACE", default_value = "auto")
    )]
    pub load_features: FeatureStorage,
    /// Replace existing files, unless they were made the same way
    #[cfg_attr(feature = "cli", arg(long))]
    pub force: bool,
    /// Device to compute on
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value = "cpu"))]
    pub device: Device,
    /// With --device cuda, the numbers of the GPUs that share the work, e.g. 1 or 0,1,2,3 [default:
    /// 0]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N,...", visible_alias = "gpu"))]
    pub gpus: Option<GpuList>,
    /// Type that factors of dense products are rounded to [default: as in training, but f32 on a
    /// CPU for a model trained in f16]
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub dtype: Option<Dtype>,
    /// Digest of everything that decides the output, recorded in the files.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub made_by: Option<Checksum>,
    /// Vertices to predict and to score, ascending, if a table lists them; all when `None`.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub rows: Option<Vec<u32>>,
    /// The place of each of `gpus`, whatever the device; chosen by `device` and `gpus` when `None`.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub places: Option<Arc<dyn OwnPlaces>>,
    /// The program's own layers that the checkpoint was trained with
    /// ([`Hooks::layer`](crate::Hooks::layer)). The checkpoint does not record which layers its
    /// parameters belong to.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub layer: Option<OwnLayer>,
}

impl InferConfig {
    /// Checks the extensions of output files.
    ///
    /// # Errors
    /// [`crate::Error::Option`] with the supported extensions.
    pub fn check_names(&self) -> Result<()> {
        if let Some(out) = &self.out {
            OutputFormat::of(
                "--out",
                out,
                if self.top.is_some() { &RecommendationFile::FORMATS } else { &PREDICTIONS },
            )?;
        }
        self.embeddings
            .iter()
            .try_for_each(|file| OutputFormat::of("--embeddings", file, &EMBEDDINGS).map(drop))
    }
}

/// Formats of predictions.
pub(super) const PREDICTIONS: [OutputFormat; 3] =
    [OutputFormat::Csv, OutputFormat::Parquet, OutputFormat::Npy];
/// Formats of embeddings.
pub(super) const EMBEDDINGS: [OutputFormat; 2] = [OutputFormat::Npy, OutputFormat::Parquet];
