//! Cooperative mini-batches: made once per server (GraNNDis, section 4: shared preloading,
//! expansion-aware sampling, cooperative batching).
//!
//! A server is a group of ranks. An epoch has R mini-batches, of equal shares of the training
//! vertices; a server takes the seeds of each that it owns. It reads them with all in-edges, as
//! many hops as the model has layers; beyond its own vertices at most `--expansion-hops` hops and
//! `--expansion-fanout` in-neighbours per vertex on each. The edges among all vertices reached are
//! the server's graph for that mini-batch. The server splits it over its ranks by the partition map
//! and recomputes the vertices that other servers own: no rows move between servers, only gradients
//! are summed.
//!
//! Mini-batches are made once and kept, with their edges and exchanges; R = 1 is full-graph
//! training. If there is only one mini-batch, its feature rows are kept too if they are used as
//! stored: they are the paper's preloaded rows.
//!
//! A layer computes only the rows that the layers above need, while the paper's layers compute the
//! whole server graph: the seeds' logits are the same, and with all hops beyond the servers those
//! of the full graph. Once a frontier stops growing, the layers below share their edges
//! ([`sample_all`]), so only the rows' memory grows with depth.
//!
//! Cost: once per mini-batch and rank, a pass over the in-edges of the vertices that the server
//! reaches, and 8 bytes per vertex of the graph during that pass.

use std::sync::Mutex;

use gsplit_kernels::schedule::{Step, epoch_seeds};
use gsplit_kernels::{Communicator, Expansion, Graph};
use gsplit_store::memory::{Memory, shown};
use tch::Tensor;

use super::{Preparation, Prepared, sums_rows};
use crate::job::Job;
use crate::model::{Input, Model};
use crate::ranks::clock::Clock;
use crate::ranks::comms::Comms;
use crate::ranks::traffic::{Phase, Traffic};
use crate::residence::source::{InputRows, Loaded, load};
use crate::sample::{Sampled, SampledLayer, sample_all};
use crate::task::{Targets, Task};
use crate::{Error, Result};

/// The mini-batches of a run, from the point of view of one rank.
pub struct Made {
    batches: Vec<MadeBatch>,
}

/// A mini-batch that is kept for all epochs.
struct MadeBatch {
    /// Seeds of all servers.
    items: Vec<u32>,
    /// This rank's part.
    sampled: Sampled<'static>,
    /// Feature rows, once loaded, if they are the same in every epoch and this is the only
    /// mini-batch.
    rows: Mutex<Option<Tensor>>,
}

impl Made {
    /// Makes the mini-batches. With `together` the rows of all ranks must fit in the memory of this
    /// machine. Collective.
    pub fn new(job: &Job<'_>, model: &Model, comms: &Comms, together: bool) -> Result<Self> {
        let (config, comm) = (job.config, comms.ranks().group);
        let (batches, seeds) = (config.system.cooperative.batches(), job.train.len());
        if batches > seeds {
            return Err(Error::Option(format!(
                "--batches-per-epoch {batches}: there are {seeds} vertices to train on: ask for \
                 fewer"
            )));
        }
        let server = server(job, comm)?;
        // The same in every epoch, but not in the order of ids.
        let order = epoch_seeds(&job.train, config.run.seed, 0)?;
        let (mut bytes, mut made) = (0, Vec::new());
        for batch in 0..batches {
            job.check_stop()?;
            let items = order[seeds * batch / batches..seeds * (batch + 1) / batches].to_vec();
            let own: Vec<u32> = items.iter().copied().filter(|&v| server.owns(v)).collect();
            let reach = server.reach(job.graph, &own, &Expansion::key(config.run.seed, batch));
            let (indptr, indices) = reach.edges(job.graph);
            let graph = Graph::new(&indptr, &indices)?;
            let mine = |v: &u32| {
                job.frontiers
                    .seeds()
                    .map()
                    .is_none_or(|map| map[*v as usize] as usize == comm.rank())
            };
            let mine = own.into_iter().filter(mine).collect();
            let sampled =
                sample_all(graph, model.place(), mine, config.model.layers, &job.frontiers, comm)?;
            bytes = bytes.max(bytes_of_rows(&sampled, model, job.features.dim()));
            made.push(MadeBatch { items, sampled, rows: Mutex::new(None) });
        }
        let mut most = [bytes];
        if together {
            comms.all().all_reduce_sum_u64(&mut most)?;
        }
        fits(most[0], Memory::of_this_machine().available(), batches)?;
        Ok(Self { batches: made })
    }

    /// The mini-batches of `epoch`, in its order, each loaded when it is taken (which is
    /// collective).
    pub fn epoch<'a>(
        &'a self,
        with: Preparation<'a>,
        epoch: u32,
    ) -> Result<impl Iterator<Item = Result<Prepared<'a>>> + Send + 'a> {
        let Preparation { job, .. } = with;
        let order = epoch_seeds(
            &(0..self.batches.len() as u32).collect::<Vec<_>>(),
            job.config.run.seed,
            epoch,
        )?;
        Ok((0..).zip(order).map(move |(step, at)| {
            job.check_stop()?;
            self.load(
                &self.batches[at as usize],
                with,
                Step { seed: job.config.run.seed, epoch, step },
            )
        }))
    }

    /// Loads the rows of `batch`, unless they were kept from the last epoch. Collective.
    fn load<'a>(
        &'a self,
        batch: &'a MadeBatch,
        with: Preparation<'a>,
        step: Step,
    ) -> Result<Prepared<'a>> {
        let Preparation { job, source, comm } = with;
        let mut clock = Clock::start(comm.into(), Traffic::default());
        let Task::Nodes(task) = &job.task else {
            return Err(Error::Option("mini-batches that are made once are of vertices".into()));
        };
        let targets = Targets::Nodes(task.targets(&batch.items));
        let input = Input::training(&job.config.model, step);
        let keeps = input.is_plain() && self.batches.len() == 1;
        let mut kept = batch.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let loaded = match &*kept {
            Some(rows) => {
                let input_rows = InputRows::Read(rows.shallow_clone());
                Loaded { input_rows, ..Loaded::unread(batch.sampled.clone(), source.table()) }
            }
            None => clock.phase(Phase::Load, |_| {
                load(
                    source,
                    batch.sampled.clone(),
                    &input,
                    job.config.system.prefetch > 0,
                    sums_rows(job),
                    comm,
                )
            })?,
        };
        if let (InputRows::Read(rows), true) = (&loaded.input_rows, keeps) {
            *kept = Some(rows.shallow_clone());
        }
        drop(kept);
        let (items, preparing) = (batch.items.len(), clock.stop());
        Ok(Prepared { step, items, targets, batch: loaded, push_pull: None, preparing })
    }
}

/// This rank's server, and the limits on reading beyond it.
fn server<'a>(job: &Job<'a>, comm: &dyn Communicator) -> Result<Expansion<'a>> {
    let Some(parts) = job.parts else {
        return Err(Error::Option("--parallelism cooperative goes by a partition map".into()));
    };
    let (config, first) = (&job.config.system.cooperative, comm.name(0));
    let layers = job.config.model.layers;
    let hops = config.hops().min(layers) as u8;
    Ok(Expansion { parts, own: first..first + comm.size(), layers, hops, fanout: config.fanout() })
}

/// Bytes of the rows of a mini-batch on this rank, with their gradients: the inputs and outputs of
/// all layers.
fn bytes_of_rows(sampled: &Sampled<'_>, model: &Model, features: usize) -> u64 {
    let rows = |(depth, layer): (usize, &SampledLayer)| {
        let index = sampled.layers.len() - 1 - depth;
        let (read, width) =
            (if index == 0 { features } else { model.width(index - 1) }, model.width(index));
        // A layer keeps its input, its sums and its rows; gradients exist for two layers at a time.
        layer.read.len() * read + 2 * layer.frontier.len() * width
    };
    (sampled.layers.iter().enumerate().map(rows).sum::<usize>() * size_of::<f32>()) as u64
}

/// Fails if the rows of the largest of `batches` mini-batches, `needed` bytes, exceed the
/// `available` bytes.
fn fits(needed: u64, available: u64, batches: usize) -> Result<()> {
    if needed <= available {
        return Ok(());
    }
    let enough = (batches as u64).saturating_mul(needed).div_ceil(available.max(1)) + 1;
    Err(Error::Option(format!(
        "--batches-per-epoch {batches}: the rows of a mini-batch take about {}, there are {}: pass \
         --batches-per-epoch {enough} or more, or \
         --checkpoint-activations",
        shown(needed),
        shown(available)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_says_what_would() {
        assert!(fits(8 << 30, 8 << 30, 1).is_ok());
        let line = fits(20 << 30, 8 << 30, 2).unwrap_err().to_string();
        assert!(
            line.contains("--batches-per-epoch 2: ")
                && line.contains("pass --batches-per-epoch 6 or more"),
            "{line}"
        );
    }
}
