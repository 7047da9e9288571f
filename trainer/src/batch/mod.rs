//! A mini-batch from its seeds to loaded rows: `prepare = load(sample(seeds))`.
//!
//! Who computes which rows is a row of the table in `config/parallelism.rs`; the loop over mini-batches is the same for all. Samples
//! are a function of (seed, epoch, step, layer, vertex): the same whenever a mini-batch is prepared.
//!
//! ```text
//! mod.rs           drawn anew in every epoch: all systems but one
//! prepared.rs      a mini-batch that is ready to compute
//! ahead.rs         prepared while another one is computed
//! cooperative.rs   made once, server by server (GraNNDis)
//! push_pull.rs     the bottom layer by columns of the features (P3)
//! ```

use std::time::Instant;

use gsplit_kernels::Communicator;
use gsplit_kernels::schedule::Step;

use crate::Result;
use crate::config::ModelKind;
use crate::job::Job;
use crate::model::Input;
use crate::residence::source::{FeatureSource, Loaded, load};
use crate::sample::{BatchSampler, sample};

mod ahead;
mod cooperative;
mod prepared;
mod push_pull;

pub use ahead::for_each;
pub use cooperative::Made;
pub use prepared::Prepared;
pub use push_pull::PushPull;

use prepared::ready;

/// Samples and loads this rank's part of the mini-batch `step`, whose seeds are `global`. Collective.
pub fn prepare<'a, 's: 'a>(
    (job, source): (&'a Job<'_>, &'a FeatureSource<'_>),
    sampler: &mut BatchSampler<'s>,
    step: Step,
    global: &'a [u32],
    comm: &dyn Communicator,
) -> Result<Prepared<'a>> {
    let (config, started) = (job.config, Instant::now());
    let before = comm.sent();
    let (seeds, targets) = job.batch(global, step, comm)?;
    let sampled = sample(sampler, seeds, &config.fanouts, step, &job.frontiers, comm)?;
    job.end_phase(source.place())?;
    let (loading, between) = (Instant::now(), comm.sent());
    let ahead = job.options.prefetch > 0;
    let push = || PushPull::push(sampled.bottom(), (source, job.features.dim()), ahead, comm);
    let push_pull = config.parallelism.slices_columns().then(push).transpose()?;
    let batch = match &push_pull {
        Some(_) => Loaded::unread(sampled, &job.features),
        None => load(source, sampled, &Input::training(&config.model, step), ahead, comm)?,
    };
    job.end_phase(source.place())?;
    // The other models sort edges of their own.
    let edges = matches!(config.model.kind, ModelKind::Sage | ModelKind::Gin | ModelKind::Gat | ModelKind::Gatv2);
    batch.prepare_backward(edges)?;
    if ahead {
        batch.hand_over(source.place().gpu())?;
    }
    let since = [(started, before), (loading, between)];
    Ok(ready(step, (global.len(), targets), (batch, push_pull), since, comm))
}

/// The mini-batches of `epoch`, whose seeds are `order`, sampled and loaded as they are taken. Collective then.
pub fn drawn<'a, 's: 'a>(
    (job, source): (&'a Job<'_>, &'a FeatureSource<'_>),
    sampler: &'a mut BatchSampler<'s>,
    epoch: u32,
    order: &'a [u32],
    comm: &'a dyn Communicator,
) -> impl Iterator<Item = Result<Prepared<'a>>> + Send {
    (0..).zip(order.chunks(job.config.batch_size)).map(move |(step, global)| {
        job.check_stop()?;
        prepare((job, source), sampler, Step { seed: job.config.seed, epoch, step }, global, comm)
    })
}
