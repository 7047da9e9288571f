//! Checkpoints: after every epoch, everything that the next one needs.
//!
//! ```text
//! DIR/epoch-00007/model.safetensors       parameters and running statistics by name, f32
//! DIR/epoch-00007/optimizer.safetensors   the optimizer's state by name, flat, in the parameters' order
//! DIR/epoch-00007/checkpoint.json         configuration, origin, inputs, the epochs' reports, step count, loss scale, checksums
//! DIR/best -> epoch-00005                 the one with the best valid metric so far
//! DIR/lock                                held by the run that writes here
//! ```
//!
//! All random draws are functions of (seed, epoch, step, ...), so there is no generator state to
//! keep: a run resumed after epoch 7 continues with exactly the losses of an uninterrupted one. The
//! last [`KEPT`] are kept, and the best. A folder has one writer at a time.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gsplit_kernels::{Communicator, all_gather_v};
use gsplit_store::document::{self, Document};
use gsplit_store::staging::{Mark, Staging, Target, tidy};
use gsplit_store::{
    Checksum, Dataset, FileRecord, Files, MadeFrom, MappedFile, ModelScores, PartitionMap, Recipe,
    VertexType, checksum_file, entries,
};
use safetensors::{SafeTensorError, SafeTensors, View};
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::autograd;
use crate::config::Config;
use crate::job::Job;
use crate::metric::labels::{Labels, TargetScale};
use crate::model::{Embeddings, LearntValues, Parameters, Shard};
use crate::operator::on_host;
use crate::optimizer::{LossScale, Optimizer};
use crate::report::EpochReport;
use crate::task::Shape;
use crate::{Error, Result};

/// Files of a checkpoint.
pub const WEIGHTS: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";

/// Number of newest checkpoints to keep.
const KEPT: usize = 2;

/// Name of the link to the best.
const BEST: &str = "best";

fn name_of(epoch: u32) -> String {
    format!("epoch-{epoch:05}")
}

/// Content of `checkpoint.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The graph and training split.
    pub made_from: MadeFrom,
    /// Other inputs that the losses depend on.
    pub inputs: Inputs,
    /// The whole configuration of the run.
    pub config: Config,
    /// Names of its options that are not at their defaults.
    pub changed: Vec<String>,
    /// One report per epoch done: a resumed run's log starts with them.
    pub history: Vec<EpochReport>,
    /// Scores of the best epoch so far; if no epoch is the best, of the last one evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<ModelScores>,
    /// Mini-batches done.
    pub steps: u64,
    /// Scale of the losses, in a run in f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Names of the classes, if the dataset has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_names: Option<Vec<String>>,
    /// Scale of the numbers that the model returns, if it is a regression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_scale: Option<TargetScale>,
    /// Columns of the table that the vertices are from, and their conversion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// The tensors' files.
    pub files: Files,
    /// Version of gsplit.
    pub tool_version: String,
}

/// Inputs that decide a run's losses, in addition to its configuration, graph and seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// Key of the partition map in use, and the digest of its assignment.
    pub partition: Option<(String, Checksum)>,
    /// Digest of the feature rows.
    pub features: Option<Checksum>,
    /// Digest of the labels.
    pub labels: Option<Checksum>,
    /// Digest of the edge columns to draw or sum by, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edges: Option<Checksum>,
    /// Digest of the rows that each rank keeps, if these are drawn more often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Checksum>,
    /// Threads of each rank: torch's sums depend on them in the last bits.
    pub threads_per_rank: usize,
    /// Widths of the model's input and output, to build it without the dataset.
    pub shape: Shape,
}

impl Inputs {
    /// The inputs of a run on `dataset` by `config`.
    pub fn of(
        dataset: &Dataset,
        config: &Config,
        partition: Option<&PartitionMap>,
        threads_per_rank: usize,
        shape: Shape,
    ) -> Self {
        let checksum =
            |files: &Files, name: &str| files.get(name).map(|record| record.checksum.clone());
        let of_dataset = |name: &str| checksum(dataset.whole_files(), name);
        let columns = [&config.data.draw_by, &config.data.edge_weights].into_iter().flatten();
        let columns: Vec<Checksum> =
            columns.filter_map(|name| of_dataset(&format!("edges/{name}.npy"))).collect();
        let of_map = |map: &PartitionMap| {
            Some((map.key().to_string(), checksum(&map.meta().files, "assignment.npy")?))
        };
        Self {
            partition: partition.and_then(of_map),
            features: of_dataset("nodes/feat.arrow").or_else(|| {
                let types = &dataset.types()?.vertices;
                let file = |of: &VertexType| of_dataset(&format!("nodes/feat.{}.arrow", of.name));
                Some(Checksum::combine(&types.iter().filter_map(file).collect::<Vec<_>>()))
            }),
            labels: of_dataset("nodes/label.npy"),
            edges: (!columns.is_empty()).then(|| Checksum::combine(&columns)),
            kept: None,
            threads_per_rank,
            shape,
        }
    }

    /// Describes the difference from the checkpoint's inputs `then`, with a remedy.
    fn difference(&self, then: &Self) -> Option<String> {
        let key = |inputs: &Self| {
            inputs.partition.as_ref().map_or("none".to_string(), |(key, _)| format!("`{key}`"))
        };
        if self.partition != then.partition {
            let (now, then) = (key(self), key(then));
            return Some(match now == then {
                true => format!("partition {now} was made again since: start another --checkpoint"),
                false => format!(
                    "made with partition {then}, now it is {now}: name the former with --partition"
                ),
            });
        }
        if (&self.features, &self.labels, &self.edges)
            != (&then.features, &then.labels, &then.edges)
        {
            let problem = "the dataset's features, labels or edge columns have changed since";
            return Some(format!("{problem}: start another --checkpoint"));
        }
        (self.threads_per_rank != then.threads_per_rank).then(|| {
            let (now, then) = (self.threads_per_rank, then.threads_per_rank);
            format!(
                "made with {then} threads a rank, now there are {now}: set --threads to {then} \
                     times the ranks"
            )
        })
    }
}

/// Target of a checkpoint.
fn target(path: PathBuf) -> Target {
    Target::new(path, Mark::document::<Checkpoint>("checkpoint.json"))
}

impl Document for Checkpoint {
    const FORMAT: &'static str = document::CHECKPOINT;
    const VERSION: u32 = document::CHECKPOINT_VERSION;
}

/// Writes the checkpoint after the last epoch of `history`, then calls [`settle`].
pub fn save(
    folder: &Path,
    history: &[EpochReport],
    scores: Option<&ModelScores>,
    job: &Job<'_>,
    inputs: &Inputs,
    parameters: &Parameters,
    optimizer: &Optimizer,
) -> Result<()> {
    let epoch = history.last().map_or(0, |report| report.epoch);
    let staging = Staging::begin(target(folder.join(name_of(epoch))), true)?;
    let (embeddings, moments) = (parameters.embeddings(), optimizer.state().len());
    let weights: Vec<_> = parameters.state().collect();
    let mut files = Files::new();
    for (name, tensors, which) in
        [(WEIGHTS, &weights, 0..=0), (OPTIMIZER, &optimizer.state(), 1..=moments)]
    {
        let path = staging.path(name);
        let mut stored = Vec::new();
        for (name, tensor) in tensors {
            let tensor = on_host(tensor)?;
            let shape = tensor.size().iter().map(|&size| size as usize).collect();
            stored.push((name.to_string(), Stored { shape, values: StoredValues::Tensor(tensor) }));
        }
        for which in which.filter(|_| embeddings.is_some()) {
            for learnt in embeddings.map_or(Ok(Vec::new()), |of| of.state(which))? {
                let LearntValues { name, shape, values } = learnt;
                stored.push((
                    name,
                    Stored { shape: shape.into(), values: StoredValues::Learnt(values) },
                ));
            }
        }
        safetensors::serialize_to_file(stored, &None, &path).map_err(of_file(&path))?;
        let synced = std::fs::File::open(&path).and_then(|file| file.sync_all());
        synced.map_err(gsplit_store::Error::io(&path))?;
        let (bytes, checksum) = checksum_file(&path)?;
        files.insert(name.into(), FileRecord { bytes, checksum });
    }
    let checkpoint = Checkpoint {
        made_from: MadeFrom::dataset(job.dataset),
        inputs: inputs.clone(),
        config: job.config.of_model(),
        changed: job.config.of_model().changed(),
        history: history.to_vec(),
        scores: scores.cloned(),
        steps: optimizer.steps,
        loss_scale: optimizer.scaling(),
        class_names: job.task.labels().and_then(|_| job.dataset.manifest().class_names.clone()),
        target_scale: job.task.labels().and_then(Labels::scale),
        recipe: job.dataset.manifest().recipe.clone(),
        files,
        tool_version: env!("CARGO_PKG_VERSION").to_string(),
    };
    document::write(&staging.path("checkpoint.json"), &checkpoint)?;
    staging.commit()?;
    settle(folder, history)
}

/// Makes [`BEST`] point to the best epoch of `history` and removes the older checkpoints in
/// `folder`: after each epoch, and for a run that was killed before it could.
pub fn settle(folder: &Path, history: &[EpochReport]) -> Result<()> {
    let best = EpochReport::best(history).map(|report| report.epoch);
    if let Some(best) = best {
        point_to(folder, best)?;
    }
    let mut epochs = found(folder);
    epochs.truncate(epochs.len().saturating_sub(KEPT));
    for (_, old) in epochs.into_iter().filter(|&(epoch, _)| Some(epoch) != best) {
        target(old).remove()?;
    }
    // A killed run leaves the folder in which it wrote a checkpoint.
    for path in entries(folder).unwrap_or_default() {
        let name = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_prefix('.')?.strip_suffix(".partial"));
        if let Some(name) = name.filter(|name| epoch_of(name).is_some()) {
            tidy(&target(folder.join(name)));
        }
    }
    Ok(())
}

/// Makes the link [`BEST`] in `folder` point to the checkpoint of `epoch`, if that is there: a
/// resumed run may know of a best epoch whose checkpoint was deleted.
fn point_to(folder: &Path, epoch: u32) -> Result<()> {
    let (link, name) = (folder.join(BEST), name_of(epoch));
    if !folder.join(&name).exists()
        || std::fs::read_link(&link).is_ok_and(|target| target == Path::new(&name))
    {
        return Ok(());
    }
    check_link(folder)?;
    match std::fs::remove_file(&link) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => {
            return Err(gsplit_store::Error::io(&link)(cause).into());
        }
        _ => {}
    }
    match symlink(&name, &link) {
        // On a file system without links the best checkpoint is kept all the same.
        Err(cause)
            if matches!(cause.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
        {
            Ok(())
        }
        linked => Ok(linked.map_err(gsplit_store::Error::io(&link))?),
    }
}

/// A checkpoint that the run can continue.
#[derive(Debug)]
pub struct Resume {
    path: PathBuf,
    /// The epochs done.
    pub history: Vec<EpochReport>,
    /// Scores of its best epoch.
    pub scores: Option<ModelScores>,
    steps: u64,
    loss_scale: Option<LossScale>,
    kept: Option<Checksum>,
}

impl Resume {
    /// Refuses to resume with other kept rows than the checkpoint's if draws depend on them: they
    /// are known later than the other inputs.
    pub fn check_kept(&self, inputs: &Inputs) -> Result<()> {
        if self.kept == inputs.kept {
            return Ok(());
        }
        let problem = "--draw locality draws by the rows that ranks keep, and these are others than the checkpoint's";
        let remedy = "resume with the same --placement and --cache, or start another --checkpoint";
        Err(Error::Option(format!("{}: {problem}: {remedy}", self.path.display())))
    }
}

/// Refuses to start a run in a folder that holds the checkpoints of another.
pub fn refuse_foreign(folder: &Path) -> Result<()> {
    let Some((epoch, _)) = found(folder).pop() else { return Ok(()) };
    let place = folder.display();
    Err(Error::Option(format!(
        "--checkpoint {place}: holds a run that got to epoch {epoch}: pass --resume to continue \
         it, or name another folder"
    )))
}

/// Fails if no checkpoint can be written to `folder`, before an epoch's work is lost.
pub fn check_writable(folder: &Path) -> Result<()> {
    drop(Staging::begin(target(folder.join("epoch")), true)?);
    check_link(folder)
}

/// Another file with the name of the link in `folder` belongs to the user.
fn check_link(folder: &Path) -> Result<()> {
    let path = folder.join(BEST);
    match std::fs::symlink_metadata(&path).is_ok_and(|found| !found.is_symlink()) {
        true => Err(gsplit_store::Error::Foreign { path, found: "no link to a checkpoint" }.into()),
        false => Ok(()),
    }
}

/// Finds the newest checkpoint in `folder` and checks that `job` continues it. `None` before the
/// first one, so that a job that is restarted again and again has one command line.
pub fn find(folder: &Path, job: &Job<'_>, inputs: &Inputs) -> Result<Option<Resume>> {
    let Some((_, path)) = found(folder).pop() else { return Ok(None) };
    let (checkpoint, _) =
        document::read::<Checkpoint>(&path.join("checkpoint.json")).map_err(unusable)?;
    checkpoint.made_from.check(&path, job.dataset).map_err(unusable)?;
    let difference = job.config.difference(&checkpoint.config).or_else(|| {
        let then = job.task.metric(checkpoint.config.data.task.metric).ok()?;
        (job.metric != then)
            .then(|| format!("--metric is {}, the checkpoint has {then}", job.metric))
    });
    if let Some(difference) = difference {
        let place = path.display();
        return Err(Error::Option(format!(
            "{place}: {difference}: resume with the same options, or start another --checkpoint"
        )));
    }
    if let Some(difference) = inputs.difference(&checkpoint.inputs) {
        return Err(Error::Option(format!("{}: {difference}", path.display())));
    }
    for (name, record) in &checkpoint.files {
        let (bytes, checksum) = checksum_file(&path.join(name)).map_err(unusable)?;
        if (bytes, &checksum) != (record.bytes, &record.checksum) {
            let problem = format!("its checksum is not the recorded one: {DAMAGED}");
            return Err(Error::Data { path: path.join(name), problem });
        }
    }
    let Checkpoint { history, scores, steps, loss_scale, inputs: Inputs { kept, .. }, .. } =
        checkpoint;
    Ok(Some(Resume { path, history, scores, steps, loss_scale, kept }))
}

/// Fails unless all ranks resume after the same `epoch`: processes may see different folders.
/// Collective.
pub fn agree(comm: &dyn Communicator, epoch: u64) -> Result<()> {
    let epochs = all_gather_v(comm, &[epoch])?.concat();
    let words = |epoch| {
        if epoch == 0 { "no checkpoint".into() } else { format!("the checkpoint of epoch {epoch}") }
    };
    match epochs.iter().position(|epoch| *epoch != epochs[0]) {
        None => Ok(()),
        Some(rank) => Err(Error::Option(format!(
            "--resume: rank {rank} finds {}, rank 0 {}: name a --checkpoint folder that all \
             processes share",
            words(epochs[rank]),
            words(epochs[0])
        ))),
    }
}

/// Remedy for a damaged checkpoint.
const DAMAGED: &str = "delete this checkpoint to resume from the one before";

/// Adds the remedy for a checkpoint to the store's error.
fn unusable(error: gsplit_store::Error) -> Error {
    use gsplit_store::Error as E;
    let (path, problem) = match error {
        E::Corrupt { path, problem } => (path, format!("{problem}: {DAMAGED}")),
        E::Io { path, cause } => (path, format!("{cause}: {DAMAGED}")),
        E::Mismatch { path, made_from, used_with } => {
            let problem =
                format!("of a run on {made_from}, not on {used_with}: start another --checkpoint");
            (path, problem)
        }
        other => return other.into(),
    };
    Error::Data { path, problem }
}

/// Overwrites `parameters` and `optimizer` with the checkpoint's; the learnt rows, which the ranks
/// of a process share, only on its `first` rank.
pub fn restore(
    resume: &Resume,
    parameters: &Parameters,
    optimizer: &mut Optimizer,
    first: bool,
) -> Result<()> {
    let embeddings = parameters.embeddings().filter(|_| first);
    copy_from(&resume.path.join(WEIGHTS), parameters.state(), embeddings, 0..=0)?;
    let (path, state) = (resume.path.join(OPTIMIZER), optimizer.state());
    let moments = 1..=state.len();
    copy_from(&path, state.into_iter(), embeddings, moments)?;
    optimizer.resume(resume.steps, resume.loss_scale);
    Ok(())
}

/// Overwrites `parameters` with the tensors in the file at `path`.
pub fn restore_parameters(path: &Path, parameters: &Parameters) -> Result<()> {
    copy_from(path, parameters.state(), parameters.embeddings(), 0..=0)
}

/// A tensor of f32 that is written to a checkpoint.
struct Stored {
    shape: Vec<usize>,
    values: StoredValues,
}

enum StoredValues {
    Tensor(Tensor),
    Learnt(Shard),
}

impl View for Stored {
    fn dtype(&self) -> safetensors::Dtype {
        safetensors::Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let values = match &self.values {
            StoredValues::Tensor(tensor) => autograd::values::<f32>(tensor).unwrap_or_default(),
            StoredValues::Learnt(values) => values,
        };
        bytemuck::cast_slice(values).into()
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * size_of::<f32>()
    }
}

/// The newest checkpoint of a run in `folder`.
pub fn newest(folder: &Path) -> Option<PathBuf> {
    found(folder).pop().map(|(_, path)| path)
}

/// The checkpoint of the best epoch of the run in `folder`, if there is one.
pub fn best(folder: &Path) -> Option<PathBuf> {
    let linked = std::fs::canonicalize(folder.join(BEST))
        .ok()
        .and_then(|path| Some(folder.join(path.file_name()?)));
    // For file systems without links.
    let told = || {
        let (newest, _) =
            document::read::<Checkpoint>(&newest(folder)?.join("checkpoint.json")).ok()?;
        of_epoch(folder, EpochReport::best(&newest.history)?.epoch)
    };
    linked.filter(|path| path.exists()).or_else(told)
}

/// The epochs whose checkpoints are in `folder`, in order.
pub fn epochs(folder: &Path) -> Vec<u32> {
    found(folder).into_iter().map(|(epoch, _)| epoch).collect()
}

/// The checkpoint after `epoch` of the run in `folder`, if it is there.
pub fn of_epoch(folder: &Path, epoch: u32) -> Option<PathBuf> {
    Some(folder.join(name_of(epoch))).filter(|path| path.exists())
}

/// Makes an error of the file at `path`.
fn of_file(path: &Path) -> impl Fn(SafeTensorError) -> Error {
    let path = path.display().to_string();
    move |err| tch::TchError::SafeTensorError { path: path.clone(), err }.into()
}

/// Overwrites `targets`, and of the learnt rows the values `which`, with the tensors in the file at
/// `path`, which is mapped: only a piece of the learnt rows is in memory at a time.
fn copy_from<'t>(
    path: &Path,
    targets: impl Iterator<Item = (&'t str, &'t Tensor)>,
    embeddings: Option<&Embeddings>,
    which: RangeInclusive<usize>,
) -> Result<()> {
    let file = MappedFile::open(path)?;
    let problem = |problem: String| Error::Data { path: path.to_path_buf(), problem };
    let stored = SafeTensors::deserialize(&file).map_err(of_file(path))?;
    let values = |name: &str, shape: &[usize]| {
        let found = stored.tensor(name).ok();
        let found = found.filter(|of| of.shape() == shape && of.dtype() == safetensors::Dtype::F32);
        let values = found.and_then(|of| bytemuck::try_cast_slice::<u8, f32>(of.data()).ok());
        values.ok_or_else(|| {
            problem(format!(
                "expected a tensor {name} of shape {shape:?}: it is from another model, or one \
                 with a program's own layers"
            ))
        })
    };
    for (name, target) in targets {
        let shape: Vec<usize> = target.size().iter().map(|&size| size as usize).collect();
        let source = Tensor::f_from_slice(values(name, &shape)?)?.f_view(&target.size()[..])?;
        tch::no_grad(|| target.shallow_clone().f_copy_(&source))?;
    }
    let which = || which.clone();
    embeddings.map_or(Ok(()), |of| {
        of.shapes().try_for_each(|(table, shape)| {
            which().try_for_each(|which| {
                of.restore(table, which, values(&of.name(table, which), &shape)?);
                Ok(())
            })
        })
    })
}

/// The checkpoints in `folder`, oldest first.
fn found(folder: &Path) -> Vec<(u32, PathBuf)> {
    let paths = entries(folder).unwrap_or_default().into_iter();
    let mut epochs: Vec<(u32, PathBuf)> =
        paths.filter_map(|path| Some((epoch_of(path.file_name()?.to_str()?)?, path))).collect();
    epochs.sort();
    epochs
}

/// The epoch whose checkpoint is called `name`.
fn epoch_of(name: &str) -> Option<u32> {
    name.strip_prefix("epoch-")?.parse().ok()
}
