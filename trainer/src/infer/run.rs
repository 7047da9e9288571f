//! `gsplit infer`: predictions, embeddings and scores of a trained model on a dataset.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gsplit_kernels::Graph;
use gsplit_store::memory::Memory;
use gsplit_store::staging::{Staging, commit_all};
use gsplit_store::{
    Checksum, Column, Dataset, Error as StoreError, FeatureTable, Progress, Reading, Split, Unit,
    hottest_rows, out_degrees,
};
use serde::{Serialize, Serializer};

use super::options::{EMBEDDINGS, InferConfig, PREDICTIONS, Predict, Wanted};
use super::recommend::{Recommended, Recommender};
use super::table::{Cells, OutputFormat, OutputIds, Table, Values};
use super::{Chunk, Hidden, LayerWise, Room, Team, Trained};
use crate::config::{DataConfig, Device, Dtype, FeatureStorage, GpuList, TaskKind};
use crate::job::columns::EdgeColumns;
use crate::job::{hooks::Hooks, typed};
use crate::metric::labels::{Labels, TargetScale};
use crate::metric::{Metric, Scorer, Scores, largest};
use crate::model::Model;
use crate::operator::{Engine, Place};
use crate::residence::cache::row_bytes;
use crate::residence::places::check_host;
use crate::residence::source::{prepare_gpu_table, sources};
use crate::{Error, Result};

/// Number of embeddings written at once.
const EMBEDDED: usize = 1 << 14;

/// Serialises `path` as shown in messages: JSON strings cannot hold bytes that are not UTF-8.
fn as_shown<S: Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Result of inference.
#[derive(Clone, Debug, Serialize)]
pub struct InferSummary {
    /// The checkpoint used.
    #[serde(serialize_with = "as_shown")]
    pub checkpoint: PathBuf,
    /// Number of epochs it was trained for.
    pub epochs: usize,
    /// True if the last of them was the best on the valid split so far.
    pub best: bool,
    /// Number of vertices predicted, or computed for recommendations.
    pub vertices: u64,
    /// True if finished layers were kept on disk.
    pub spilled: bool,
    /// Names of the classes, if the training data had names.
    pub class_names: Option<Vec<String>>,
    /// True if a vertex can have several classes.
    pub multi_label: bool,
    /// Metric of the scores.
    pub metric: Option<Metric>,
    /// Split and score, `None` if it is undefined; empty if the dataset has no labels of the
    /// model's classes.
    pub scores: Vec<(Split, Option<f64>)>,
    /// Score over all predicted vertices that have a label, if they are the rows of a table or
    /// there are no splits.
    pub all: Option<f64>,
    /// Counts of the recommendations, if some were requested.
    pub recommendations: Option<Recommended>,
}

/// Runs inference on `dataset` within about `memory` bytes, not counting mapped files.
///
/// # Errors
/// [`Error::Option`] if options, checkpoint and dataset do not fit; [`Error::Interrupted`] once
/// `stop` is set: then nothing was written.
pub fn infer(
    dataset: &Dataset,
    config: &InferConfig,
    memory: u64,
    stop: Option<&'static AtomicBool>,
    progress: &dyn Progress,
) -> Result<InferSummary> {
    config.check_names()?;
    let trained = Trained::open(&config.checkpoint, config.epoch)?;
    trained.check_types(dataset)?;
    if config.device == Device::Cuda {
        dataset.expect_one_type("--device cuda")?;
    }
    let is_link = trained.config().data.task.is_link();
    if is_link && config.top.is_none() {
        dataset.expect_one_type("infer without --top with a model of links")?;
    }
    let target = if is_link { None } else { typed::target(dataset)? };
    let (ids, layout) = (OutputIds::open(dataset)?, typed::layout(dataset)?);
    let topology = dataset.topology();
    topology.check_indices()?;
    let mut graph = Graph::new(topology.indptr(), topology.indices())?;
    if let Some((rows, layout)) = topology.rows().zip(layout.as_ref()) {
        graph = graph.with_rows(rows, layout)?;
    }
    let relation = if is_link { typed::relation(dataset, &graph, trained.config())? } else { None };
    let recommender = Recommender::begin(config, &trained, dataset, &ids, relation)?;
    let places = places(config, trained.config().model.dtype)?;
    let features = features(dataset, config, &places[0], memory, stop)?;
    trained.check_recipe(dataset, progress)?;
    trained.check_features(dataset.path(), features.dim())?;
    let models = places.iter().map(|place| trained.model(place, config.layer.as_ref()));
    let mut models = models.collect::<Result<Vec<_>>>()?;
    let embedding = embedding(config, &trained, &mut models)?;
    let others = models.split_off(1);
    let model = &models[0];
    let last = model.num_layers() - 1;
    let wanted = wanted(dataset, config)?.or_else(|| target.map(Iterator::collect));
    let (labels, metric) = labels(dataset, &trained, config, progress)?.unzip();
    let splits = scored_splits(dataset, config)?;
    let scored = labels.as_ref().zip(metric).map(|(labels, metric)| {
        Scores::new(metric, labels, splits.iter().map(|(split, vertices)| (*split, &vertices[..])))
    });
    let mut scores = scored.transpose()?;
    let is_whole = config.rows.is_some() || splits.is_empty();
    let mut all = labels
        .as_ref()
        .zip(metric)
        .filter(|_| is_whole)
        .map(|(labels, metric)| Scorer::new(metric, labels))
        .transpose()?;
    let mut output = Output::begin(config, &trained, &ids, embedding.columns.clone())?;
    let scratch = scratch_folder(config)?;
    let remedy = "infer with --device cpu, or on a GPU with more memory";
    let room = Room { bytes: memory / 2, scratch: Some(&scratch), device_bytes: None, remedy };
    let DataConfig { draw_by, edge_weights, .. } = &trained.config().data;
    let weights = EdgeColumns::open(dataset, draw_by.as_ref(), edge_weights.as_ref())?;
    let graph = weights.of(graph)?;
    // Each worker is a rank of one run.
    let alone = Hooks::default();
    let gpu_table = prepare_gpu_table(&features, None, &places, &alone, progress)?;
    let sources = sources(&features, gpu_table.as_ref(), &places, &alone)?;
    let mut pass = LayerWise::new(Team::new(model, others, &sources), graph, room, stop)?;
    let stage =
        progress.stage("infer", Some(pass.num_rows(wanted.as_deref())), Unit::Items("vertices"));
    let lowest = if config.embeddings.is_some() { embedding.layer } else { last };
    let recommended = match recommender {
        Some(recommender) => {
            let rows = pass.rows(stage.as_ref())?;
            let (rows, width) = (rows.as_ref().map_or(&[][..], Hidden::values), trained.outputs());
            drop(stage);
            output.embed_all(rows, width, wanted.as_deref())?;
            Some(recommender.write(model.pair_scorer(), rows, width, &graph, stop, progress)?)
        }
        None => {
            pass.run(lowest, wanted.as_deref(), stage.as_ref(), &mut |chunk| {
                if chunk.layer == embedding.layer {
                    output.embed(&chunk, wanted.as_deref())?;
                }
                if chunk.layer < last {
                    return Ok(());
                }
                let logits = chunk.columns(0..trained.outputs());
                let chunk = Chunk { rows: &logits, ..chunk };
                for (&v, logits) in
                    chunk.vertices.iter().zip(chunk.rows.chunks_exact(trained.outputs()))
                {
                    scores.iter_mut().for_each(|scores| scores.push(v, logits));
                    all.iter_mut().for_each(|all| all.push(v, logits));
                }
                output.predict(&chunk)
            })?;
            None
        }
    };
    let (recommendations, file) = recommended.unzip();
    output.finish(file)?;
    Ok(InferSummary {
        checkpoint: trained.path.clone(),
        epochs: trained.epochs(),
        best: trained.is_best(),
        vertices: wanted.as_deref().map_or(dataset.num_vertices(), <[u32]>::len) as u64,
        spilled: pass.spills(),
        class_names: trained.class_names().map(<[String]>::to_vec),
        multi_label: trained.several(),
        metric,
        scores: scores.map(|scores| scores.finish().scores).unwrap_or_default(),
        all: all.and_then(Scorer::finish),
        recommendations,
    })
}

/// Places that `config` asks for, one per worker, for a model that was trained in `dtype`.
fn places(config: &InferConfig, trained: Dtype) -> Result<Vec<Place>> {
    let dtype = config.dtype.unwrap_or(trained);
    let gpus = config.gpus.as_ref().map_or(&[0][..], |GpuList(gpus)| gpus);
    if let Some(own) = &config.places {
        return gpus.iter().map(|&gpu| Ok(own.place(gpu)?.with_dtype(dtype))).collect();
    }
    if config.device == Device::Cuda {
        return gpus.iter().map(|&gpu| Ok(Place::open(gpu)?.with_dtype(dtype))).collect();
    }
    // Only GPUs compute in f16.
    let dtype = if config.dtype.is_none() && trained == Dtype::F16 { Dtype::F32 } else { dtype };
    check_host(config.gpus.as_ref().map_or(&[][..], |GpuList(gpus)| gpus), dtype)?;
    // torch's own products depend on the number of threads in the last bits; tiled products do not.
    Ok(vec![Place::Host(Engine::in_tiles(dtype))])
}

/// Opens the feature rows; for a GPU in memory, which it reads over the bus, if they take at most a
/// quarter of `memory`. Rows that exceed 80 % of the free memory are read from disk, except the
/// ones with the most out-edges, which fill a quarter of `memory`.
fn features(
    dataset: &Dataset,
    config: &InferConfig,
    place: &Place,
    memory: u64,
    stop: Option<&'static AtomicBool>,
) -> Result<FeatureTable> {
    let mapped =
        if dataset.types().is_some() { dataset.held_features()? } else { dataset.features()? };
    let bytes = mapped.num_bytes() as u64;
    let is_larger = || bytes > Memory::of_this_machine().available() / 5 * 4;
    match config.load_features {
        FeatureStorage::Memory => FeatureStorage::Memory.bring(mapped, None, false),
        FeatureStorage::Auto if place.gpu().is_some() && bytes <= memory / 4 => {
            Ok(mapped.in_memory().unwrap_or(mapped))
        }
        FeatureStorage::Mapped => Ok(mapped),
        FeatureStorage::Auto if !is_larger() => Ok(mapped),
        FeatureStorage::Auto | FeatureStorage::Disk => {
            let rows = usize::try_from(memory / 4 / row_bytes(&mapped)).unwrap_or(usize::MAX);
            let hottest = match rows {
                0 => Vec::new(),
                _ => hottest_rows(
                    &out_degrees(dataset.num_vertices(), dataset.topology().indices()),
                    rows,
                ),
            };
            Ok(mapped.on_disk(&hottest, None, &Reading { stop, ..Reading::default() })?)
        }
    }
}

/// Layer and columns of the embeddings among the rows that the layers return.
struct Embedding {
    layer: usize,
    columns: Range<usize>,
}

/// Locates the embeddings: the rows that the last product reads, or of a model of links the rows of
/// the last layer. Makes all `models` return the inputs of their heads if these are the embeddings.
fn embedding(config: &InferConfig, trained: &Trained, models: &mut [Model]) -> Result<Embedding> {
    let refused = |problem: &str| Err(Error::Option(problem.into()));
    let (last, outputs) = (models[0].num_layers() - 1, trained.outputs());
    match (trained.config().data.task.task(), &config.out, &config.embeddings) {
        (TaskKind::Link, out, embeddings)
            if config.top.is_none() && (out.is_some() || embeddings.is_none()) =>
        {
            return refused(
                "the model was trained on links and predicts no classes: write recommendations \
                 with --top K and --out, or its rows with --embeddings",
            );
        }
        (TaskKind::Link, ..) | (_, _, None) => {
            return Ok(Embedding { layer: last, columns: 0..outputs });
        }
        (TaskKind::Node | TaskKind::Regression, ..) => {}
    }
    match (models.iter_mut().filter_map(Model::show_head_input).last(), last.checked_sub(1)) {
        (Some(width), _) => Ok(Embedding { layer: last, columns: outputs..outputs + width }),
        (None, Some(layer)) => Ok(Embedding { layer, columns: 0..models[0].width(layer) }),
        (None, None) => refused(
            "--embeddings: the model has one layer, and no hidden one: write its --predict logits \
             with --out",
        ),
    }
}

/// The vertices to predict, ascending; `None` for all.
fn wanted(dataset: &Dataset, config: &InferConfig) -> Result<Option<Vec<u32>>> {
    let rows = config.rows.as_deref().filter(|rows| rows.len() < dataset.num_vertices());
    let Some(split) = split_of(config.split) else { return Ok(rows.map(<[u32]>::to_vec)) };
    let mut vertices = dataset.split(split)?.to_vec();
    vertices.retain(|v| rows.is_none_or(|rows| rows.binary_search(v).is_ok()));
    if vertices.is_empty() {
        let place = dataset.path().display();
        return Err(Error::Option(format!(
            "--split {}: the split of {place} is empty: choose another",
            split.name()
        )));
    }
    Ok(Some(vertices))
}

/// The split to predict; `None` for every vertex.
fn split_of(wanted: Wanted) -> Option<Split> {
    match wanted {
        Wanted::All => None,
        Wanted::Train => Some(Split::Train),
        Wanted::Valid => Some(Split::Valid),
        Wanted::Test => Some(Split::Test),
    }
}

/// The splits to score.
fn scored_splits(dataset: &Dataset, config: &InferConfig) -> Result<Vec<(Split, Column<u32>)>> {
    let chosen = split_of(config.split);
    let splits = dataset
        .manifest()
        .splits()
        .into_iter()
        .filter(|split| chosen.is_none_or(|chosen| chosen == *split));
    splits.map(|split| Ok((split, dataset.split(split)?))).collect()
}

/// The labels and the metric; `None` if the dataset has no labels, or other labels than the model.
fn labels(
    dataset: &Dataset,
    trained: &Trained,
    config: &InferConfig,
    progress: &dyn Progress,
) -> Result<Option<(Labels, Metric)>> {
    let manifest = dataset.manifest();
    if manifest.num_classes.is_none() && !manifest.numeric_label
        || trained.config().data.task.is_link()
    {
        return Ok(None);
    }
    let labels = Labels::open(dataset)?;
    let scale = trained.checkpoint.target_scale;
    let kind = |outputs: usize, numbers: bool| {
        if numbers { "numbers".into() } else { format!("{outputs} classes") }
    };
    let here = kind(labels.outputs(), labels.scale().is_some());
    let of_model = kind(trained.outputs(), scale.is_some());
    let names = dataset.manifest().class_names.as_deref();
    if (&here, labels.several(), names) != (&of_model, trained.several(), trained.class_names()) {
        progress.note(&format!(
            "not scored: the dataset's labels ({here}) or their names are not the model's \
             ({of_model})"
        ));
        return Ok(None);
    }
    let labels = scale.into_iter().fold(labels, Labels::on);
    let metric =
        config.metric.or(trained.config().data.task.metric).unwrap_or_else(|| Metric::of(&labels));
    metric.check(&labels)?;
    Ok(Some((labels, metric)))
}

/// Returns the folder for files that only the inference needs, from the options or the output, and
/// creates it if it is missing.
///
/// # Errors
/// [`Error::Store`] if no file can be created in it.
pub fn scratch_folder(config: &InferConfig) -> Result<PathBuf> {
    let beside = |out: &PathBuf| match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let folder = config
        .scratch
        .clone()
        .or_else(|| config.out.as_ref().or(config.embeddings.as_ref()).map(beside));
    let folder = folder.unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&folder)
        .and_then(|()| tempfile::tempfile_in(&folder))
        .map_err(StoreError::io(&folder))?;
    Ok(folder)
}

/// Kind of the values of a prediction.
#[derive(Clone, Copy)]
enum PredictionForm {
    /// Classes, in one of their forms.
    Of(Predict),
    /// A number on this scale.
    Number(TargetScale),
}

/// The forms of predictions in a file of `format`: the one asked for, or by default all that suit
/// the format.
fn forms(
    asked: Option<Predict>,
    trained: &Trained,
    format: OutputFormat,
) -> Result<Vec<PredictionForm>> {
    match (asked, trained.checkpoint.target_scale) {
        (Some(_), Some(_)) => {
            let problem =
                "--predict is for classes, and the model was trained on numbers: leave it out";
            Err(Error::Option(problem.into()))
        }
        (None, Some(scale)) => Ok(vec![PredictionForm::Number(scale)]),
        (Some(form), None) => Ok(vec![PredictionForm::Of(form)]),
        (None, None) if format == OutputFormat::Npy => Ok(vec![PredictionForm::Of(Predict::Class)]),
        (None, None) => {
            Ok(vec![PredictionForm::Of(Predict::Class), PredictionForm::Of(Predict::Probabilities)])
        }
    }
}

/// Columns for predictions in `form`.
fn values_of(form: PredictionForm, trained: &Trained) -> Values<'_> {
    let names = |prefix: &str| match trained.class_names() {
        Some(names) => names.iter().map(|name| format!("{prefix}{name}")).collect(),
        None => (0..trained.outputs()).map(|class| format!("{prefix}{class}")).collect(),
    };
    match form {
        PredictionForm::Number(_) => Values::Real(vec!["prediction".into()]),
        PredictionForm::Of(Predict::Class) if !trained.several() => {
            Values::Class(trained.class_names())
        }
        PredictionForm::Of(Predict::Class) => {
            Values::Flags(names(if trained.class_names().is_some() { "" } else { "class_" }))
        }
        PredictionForm::Of(Predict::Logits) => Values::Real(names("logit_")),
        PredictionForm::Of(Predict::Probabilities) => Values::Real(names("probability_")),
    }
}

/// The requested files.
struct Output<'a> {
    predictions: Option<Table<'a>>,
    embeddings: Option<Table<'a>>,
    forms: Vec<PredictionForm>,
    several: bool,
    outputs: usize,
    made_by: Option<Checksum>,
    /// Columns of the embeddings among the columns of a chunk.
    embedded: Range<usize>,
}

impl<'a> Output<'a> {
    fn begin(
        config: &InferConfig,
        trained: &'a Trained,
        ids: &'a OutputIds,
        embedded: Range<usize>,
    ) -> Result<Self> {
        if config.out.is_some() && config.out == config.embeddings {
            return Err(Error::Option(
                "--out and --embeddings name the same file: name two".into(),
            ));
        }
        let (mut kinds, mut predictions, mut embeddings) = (Vec::new(), None, None);
        if let Some(out) = config.out.as_ref().filter(|_| config.top.is_none()) {
            let format = OutputFormat::of("--out", out, &PREDICTIONS)?;
            kinds = forms(config.predict, trained, format)?;
            let values = kinds.iter().map(|&form| values_of(form, trained)).collect();
            predictions = Some(Table::begin(out, format, values, ids, config.force)?);
        }
        if let Some(file) = &config.embeddings {
            let values = vec![Values::List("embedding", embedded.len())];
            let format = OutputFormat::of("--embeddings", file, &EMBEDDINGS)?;
            embeddings = Some(Table::begin(file, format, values, ids, config.force)?);
        }
        let (several, outputs) = (trained.several(), trained.outputs());
        let made_by = config.made_by.clone();
        Ok(Self { predictions, embeddings, forms: kinds, several, outputs, made_by, embedded })
    }

    /// Writes the embeddings of the `wanted` vertices in `chunk`.
    fn embed(&mut self, chunk: &Chunk<'_>, wanted: Option<&[u32]>) -> Result<()> {
        if self.embeddings.is_none() {
            return Ok(());
        }
        let rows = chunk.columns(self.embedded.clone());
        self.embed_rows(chunk.vertices, &rows, wanted)
    }

    fn embed_rows(&mut self, vertices: &[u32], rows: &[f32], wanted: Option<&[u32]>) -> Result<()> {
        let Some(table) = &mut self.embeddings else { return Ok(()) };
        let Some(wanted) = wanted else {
            return table.add_rows(vertices, &[Cells::Real(rows.to_vec())]);
        };
        let rows = vertices.iter().zip(rows.chunks_exact(self.embedded.len()));
        let rows = rows.filter(|(v, _)| wanted.binary_search(v).is_ok());
        let (vertices, rows): (Vec<u32>, Vec<&[f32]>) = rows.unzip();
        table.add_rows(&vertices, &[Cells::Real(rows.concat())])
    }

    /// Writes the embeddings of the `wanted` vertices; `rows` of all vertices have the given width.
    fn embed_all(&mut self, rows: &[f32], width: usize, wanted: Option<&[u32]>) -> Result<()> {
        let mut start = 0;
        for rows in rows.chunks(EMBEDDED * width) {
            let vertices: Vec<u32> = (start..).take(rows.len() / width).collect();
            self.embed_rows(&vertices, rows, wanted)?;
            start += vertices.len() as u32;
        }
        Ok(())
    }

    /// Writes the requested forms of the logits.
    fn predict(&mut self, chunk: &Chunk<'_>) -> Result<()> {
        let Some(table) = &mut self.predictions else { return Ok(()) };
        let rows = || chunk.rows.chunks_exact(self.outputs);
        let cells = |form: &PredictionForm| match *form {
            PredictionForm::Number(scale) => {
                Cells::Real(chunk.rows.iter().map(|&scaled| scale.in_unit(scaled)).collect())
            }
            PredictionForm::Of(Predict::Logits) => Cells::Real(chunk.rows.to_vec()),
            PredictionForm::Of(Predict::Class) if self.several => {
                Cells::Flags(chunk.rows.iter().map(|&logit| u8::from(logit > 0.0)).collect())
            }
            PredictionForm::Of(Predict::Class) => {
                Cells::Class(rows().map(|row| largest(row) as i32).collect())
            }
            PredictionForm::Of(Predict::Probabilities) if self.several => {
                Cells::Real(chunk.rows.iter().map(|&logit| 1.0 / (1.0 + (-logit).exp())).collect())
            }
            PredictionForm::Of(Predict::Probabilities) => {
                Cells::Real(rows().flat_map(softmax).collect())
            }
        };
        table.add_rows(chunk.vertices, &self.forms.iter().map(cells).collect::<Vec<_>>())
    }

    /// Makes all files visible, together with `file`, in one step.
    fn finish(self, file: Option<Staging>) -> Result<()> {
        let tables = [self.predictions, self.embeddings].into_iter().flatten();
        let files = tables.map(Table::finish).collect::<Result<Vec<_>>>()?;
        let files: Vec<Staging> = files.into_iter().flatten().chain(file).collect();
        if let Some(made_by) = &self.made_by {
            files.iter().try_for_each(|file| file.record(made_by))?;
        }
        Ok(commit_all(files)?)
    }
}

/// Softmax of one row.
fn softmax(row: &[f32]) -> Vec<f32> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = row.iter().map(|&logit| (logit - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}
