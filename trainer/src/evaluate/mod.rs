//! Scores of the valid and test splits, by exact inference.
//!
//! Ranks that are threads share the work. Rank 0's thread leads. For every other rank a thread
//! computes on that rank's device, with a copy of rank 0's parameters, while the rank's own thread
//! waits as in a collective. So an error or a stop happens on rank 0, and reaches the others as
//! usual. Scores are counted as chunks come in, in the order of the vertices. With one process per
//! rank, only rank 0 evaluates, with the threads of its process or its GPU. On shards of a dataset
//! it lacks the rows for that: there all ranks evaluate together, each its own vertices, and add up
//! their counts.
//!
//! Why processes share the work on shards only: each would keep a table of all hidden rows. On a
//! host with eight GPUs that is eight times the memory of one evaluation, and the table of a large
//! graph fills the host. All rows of all layers would also go from each process to all others.
//! Threads share one table. Graphs whose rows fit every GPU, on several hosts, could gain: there
//! `gsplit infer` can score checkpoints during training.

mod baseline;
mod links;
mod score;

pub use baseline::yardstick;
pub use score::score;

use gsplit_kernels::Communicator;
use gsplit_store::{Split, Stage};

use crate::Result;
use crate::infer::{LayerWise, OwnedLayers, Room, Team};
use crate::job::Job;
use crate::metric::{Evaluation, Scores};
use crate::model::Model;
use crate::residence::source::FeatureSource;
use crate::task::{NodeTask, Task};

/// Number of rows that [`evaluate`] computes; `None` if there is nothing to score.
fn num_rows(model: &Model, job: &Job<'_>) -> Option<u64> {
    let last = match &job.task {
        Task::Nodes(_) => {
            [&job.valid, &job.test].into_iter().flatten().map(|vertices| vertices.len()).sum()
        }
        Task::Links(links) if links.valid.is_empty() && links.test.is_empty() => 0,
        Task::Links(_) => job.graph.num_vertices(),
    };
    (last > 0).then(|| (job.graph.num_vertices() * (model.num_layers() - 1) + last) as u64)
}

/// Scores the existing valid and test splits with the model of `team`; a score is `None` if it is
/// undefined.
pub fn evaluate(team: Team<'_>, job: &Job<'_>, stage: &dyn Stage) -> Result<Evaluation> {
    // Finished layers that do not fit in memory stay on disk until the next one is done.
    let scratch = job.config.run.checkpoint.clone().unwrap_or_else(std::env::temp_dir);
    let room = match job.room {
        None => Room::UNLIMITED,
        Some(bytes) => Room { bytes, scratch: Some(&scratch), ..Room::UNLIMITED },
    };
    let mut pass = LayerWise::new(team, job.graph, room, job.hooks.stop)?;
    let task = match &job.task {
        Task::Nodes(task) => task,
        Task::Links(links) => {
            let scores = links::evaluate(
                &mut pass,
                links,
                &job.whole,
                &job.config.data.task,
                job.metric,
                stage,
            )?;
            return Ok(Evaluation { scores, ..Evaluation::default() });
        }
    };
    let mut scores = Tally::new(job, task)?;
    let vertices = scores.scores.vertices();
    let last = pass.model().num_layers() - 1;
    pass.run(last, Some(&vertices), stage, &mut |chunk| {
        scores.push(chunk.vertices, chunk.rows);
        Ok(())
    })?;
    Ok(scores.finish())
}

/// Scores of the splits, and the loss of the valid split.
struct Tally<'j> {
    task: &'j NodeTask,
    scores: Scores<'j>,
    valid: &'j [u32],
    /// Sums of weights times losses, and of weights.
    losses: [f64; 2],
}

impl<'j> Tally<'j> {
    fn new(job: &'j Job<'_>, task: &'j NodeTask) -> Result<Self> {
        let scores = Scores::new(job.metric, &task.labels, splits(job))?;
        Ok(Self { task, scores, valid: job.valid.as_deref().unwrap_or_default(), losses: [0.0; 2] })
    }

    /// Counts `vertices`, whose logits are concatenated in `logits`.
    fn push(&mut self, vertices: &[u32], logits: &[f32]) {
        for (&v, logits) in vertices.iter().zip(logits.chunks_exact(self.task.labels.outputs())) {
            self.scores.push(v, logits);
            if self.valid.binary_search(&v).is_ok() {
                let loss = self.task.loss_of(v, logits).unwrap_or_default();
                self.losses.iter_mut().zip(loss).for_each(|(sum, more)| *sum += more);
            }
        }
    }

    fn reduce(&mut self, comm: &dyn Communicator) -> Result<()> {
        comm.all_reduce_sum_f64(&mut self.losses)?;
        self.scores.reduce(comm)
    }

    fn finish(self) -> Evaluation {
        let [loss, weight] = self.losses;
        Evaluation { loss: (weight > 0.0).then(|| loss / weight), ..self.scores.finish() }
    }
}

/// Like [`evaluate`], by all ranks of `comm`: each has only the rows of its own vertices, with its
/// `model` and `source`. For node classification. Every rank returns the scores. Collective.
fn evaluate_owned(
    model: &Model,
    source: &FeatureSource<'_>,
    job: &Job<'_>,
    comm: &dyn Communicator,
    stage: &dyn Stage,
) -> Result<Evaluation> {
    let (Task::Nodes(task), Some(owners)) = (&job.task, job.frontiers.map()) else {
        return Ok(Evaluation::default());
    };
    let mut scores = Tally::new(job, task)?;
    let wanted = scores.scores.vertices();
    let mut pass = OwnedLayers::new(model, source, job.graph, owners, comm, job.hooks.stop)?;
    pass.run(&wanted, stage, &mut |vertices, rows| scores.push(vertices, rows))?;
    scores.reduce(comm)?;
    Ok(scores.finish())
}

/// The existing splits that are scored.
fn splits<'j>(job: &'j Job<'_>) -> impl Iterator<Item = (Split, &'j [u32])> {
    let splits = [(Split::Valid, job.valid.as_deref()), (Split::Test, job.test.as_deref())];
    splits.into_iter().filter_map(|(split, vertices)| Some((split, vertices?)))
}
