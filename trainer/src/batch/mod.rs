//! A mini-batch from its seeds to loaded rows: `prepare = load(sample(seeds))`.
//!
//! The names in `config/parallelism.rs` say which rank computes which rows; the loop over
//! mini-batches is the same for all. Samples are a function of (seed, epoch, step, layer, vertex):
//! they do not depend on when a mini-batch is prepared.
//!
//! ```text
//! mod.rs           drawn anew in every epoch: every system but one
//! ahead.rs         prepares a mini-batch while another is computed
//! cooperative.rs   made once, server by server (GraNNDis)
//! push_pull.rs     the bottom layer by columns of the features (P3)
//! ```

use gsplit_kernels::Communicator;
use gsplit_kernels::schedule::Step;

use crate::Result;
use crate::config::ModelKind;
use crate::job::Job;
use crate::model::Input;
use crate::ranks::clock::{Clock, Counted};
use crate::ranks::traffic::{Phase, Traffic};
use crate::residence::source::{FeatureSource, Loaded, hand_over, load, prepare_backward};
use crate::sample::{BatchSampler, Sampled, sample};
use crate::task::Targets;

mod ahead;
mod cooperative;
mod push_pull;

pub use ahead::for_each;
pub use cooperative::Made;
pub use push_pull::PushPull;

/// Samples and loads this rank's part of the mini-batch `step`, whose seeds are `global`.
/// Collective.
pub fn prepare<'a, 's: 'a>(
    with: Preparation<'a>,
    sampler: &mut BatchSampler<'s>,
    step: Step,
    global: &'a [u32],
) -> Result<Prepared<'a>> {
    let mut clock = Clock::start(with.comm.into(), Traffic::default());
    let (sampled, targets) = clock.phase(Phase::Sample, |_| with.sample(sampler, step, global))?;
    let (batch, push_pull) = clock.phase(Phase::Load, |_| with.load(sampled, step))?;
    Ok(Prepared { step, items: global.len(), targets, batch, push_pull, preparing: clock.stop() })
}

/// Inputs for preparing one rank's mini-batches.
#[derive(Clone, Copy)]
pub struct Preparation<'a> {
    /// Seeds, graph and options.
    pub job: &'a Job<'a>,
    /// Feature rows.
    pub source: &'a FeatureSource<'a>,
    /// Communicator of the group, for sampling and loading.
    pub comm: &'a dyn Communicator,
}

/// A mini-batch that is ready to compute, from whichever source.
pub struct Prepared<'a> {
    /// Number in the run.
    pub step: Step,
    /// Number of seeds on all ranks, or of edges if links are learnt.
    pub items: usize,
    /// Labels or links that this rank's seeds should learn.
    pub targets: Targets<'a>,
    /// This rank's part.
    pub batch: Loaded<'a>,
    /// The bottom layers of all ranks, if each is computed by columns.
    pub push_pull: Option<PushPull<'a>>,
    /// Time and traffic of the preparation.
    pub preparing: Counted,
}

/// The mini-batches of `epoch`, whose seeds are `order`, sampled and loaded as they are taken,
/// collectively.
pub fn drawn<'a, 's: 'a>(
    with: Preparation<'a>,
    sampler: &'a mut BatchSampler<'s>,
    epoch: u32,
    order: &'a [u32],
) -> impl Iterator<Item = Result<Prepared<'a>>> + Send {
    let Preparation { job, .. } = with;
    (0..).zip(order.chunks(job.config.data.batch_size)).map(move |(step, global)| {
        job.check_stop()?;
        prepare(with, sampler, Step { seed: job.config.run.seed, epoch, step }, global)
    })
}

impl<'a> Preparation<'a> {
    /// Samples this rank's part of the mini-batch, and finds its targets. Collective.
    pub fn sample<'s: 'a>(
        self,
        sampler: &mut BatchSampler<'s>,
        step: Step,
        global: &'a [u32],
    ) -> Result<(Sampled<'a>, Targets<'a>)> {
        let Self { job, source, comm } = self;
        let (seeds, targets) = job.batch(global, step, comm)?;
        let sampled = sample(sampler, seeds, &job.config.data.fanouts, step, &job.frontiers, comm)?;
        job.end_phase(source.place())?;
        Ok((sampled, targets))
    }

    /// Loads the feature rows of `sampled`, or sends its bottom layer to the ranks that hold them.
    /// Collective.
    fn load(self, sampled: Sampled<'a>, step: Step) -> Result<(Loaded<'a>, Option<PushPull<'a>>)> {
        let Self { job, source, comm } = self;
        let (config, ahead) = (job.config, job.config.system.prefetch > 0);
        source.take_reads();
        let push_pull = config
            .system
            .parallelism
            .slices_columns()
            .then(|| PushPull::push(sampled.bottom(), self))
            .transpose()?;
        let batch = match &push_pull {
            Some(_) => {
                Loaded { reads: source.take_reads(), ..Loaded::unread(sampled, &job.features) }
            }
            None => load(
                source,
                sampled,
                &Input::training(&config.model, step),
                ahead,
                sums_rows(job),
                comm,
            )?,
        };
        job.end_phase(source.place())?;
        // The other models sort their own edges.
        let edges = matches!(
            config.model.kind,
            ModelKind::Sage | ModelKind::Gin | ModelKind::Gat | ModelKind::Gatv2
        );
        prepare_backward(&batch, edges)?;
        if ahead {
            hand_over(&batch, source.place().gpu())?;
        }
        Ok((batch, push_pull))
    }
}

/// Whether the bottom layer reads its rows as sums over edges.
fn sums_rows(job: &Job<'_>) -> bool {
    job.hooks.layer.is_none() && job.config.model.kind.sums_sources()
}
