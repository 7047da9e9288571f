//! Mini-batches, prepared ahead of the one that is being computed.
//!
//! [`for_each`] gives the mini-batches of an epoch in order to a closure on the calling thread. With a depth of 0
//! each is sampled and loaded when it is needed; else a thread of its own stays up to that many ahead. Samples are a
//! function of (seed, epoch, step, layer, vertex), so both give the same. The preparing thread talks to the other ranks
//! through communicators of its own: their calls may fall between those of any step of the computing threads.
//! Given threads of its own (`--sample-threads`) it does its parallel work there, else on those that everything shares, where
//! pieces of it wait for pieces of a layer and the other way round.
//! A GPU that samples does so ahead on a stream of its own: `sampler.rs` says how memory passes from one to the other.
//! Memory: the mini-batches that are ahead, with their feature rows where other ranks need them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Communicator, SentByRoute};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::batch::{BatchSampler, sample};
use crate::comms::Comms;
use crate::job::Job;
use crate::model::Input;
use crate::source::{FeatureSource, Loaded, load};
use crate::strategy::PushPull;
use crate::task::Targets;
use crate::traffic::{Phase, Traffic};
use crate::{Error, Result};

/// A mini-batch that is ready to compute.
pub struct Prepared<'a> {
    /// Which one it is.
    pub step: Step,
    /// Its seeds on all ranks, or edges where these are learnt.
    pub items: usize,
    /// What this rank's seeds are to learn.
    pub targets: Targets<'a>,
    /// This rank's part.
    pub batch: Loaded<'a>,
    /// The bottom layers of all ranks, where each is computed by columns.
    pub push_pull: Option<PushPull<'a>>,
    /// What this rank sent for it so far.
    pub sent: Traffic,
    /// Seconds that sampling took.
    pub sample_s: f64,
    /// Seconds that loading took.
    pub load_s: f64,
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

/// Calls `compute` for each of the `count` mini-batches `prepared`. Collective.
///
/// # Errors
/// The first of `compute` or of the preparation; the other ranks are told of it.
pub fn for_each<'a>(
    job: &Job<'_>,
    mut prepared: impl Iterator<Item = Result<Prepared<'a>>> + Send,
    count: usize,
    comms: &Comms,
    mut compute: impl FnMut(Prepared<'a>) -> Result<()>,
) -> Result<()> {
    if job.prefetch == 0 {
        return prepared.try_for_each(|batch| compute(batch?));
    }
    let pool = job.sample_threads.map(own_threads).transpose()?;
    thread::scope(|scope| {
        // One more is being made, and one waits to be put in.
        let (sender, receiver) = sync_channel(job.prefetch - 1);
        let work = move || {
            for batch in prepared {
                let last = batch.is_err();
                // The receiver is gone once computing has failed.
                if sender.send(batch).is_err() || last {
                    break;
                }
            }
        };
        scope.spawn(move || match pool {
            Some(pool) => pool.install(work),
            None => work(),
        });
        let outcome = receive(&receiver, count, &mut compute);
        // A thread that waits for other ranks, or for room, is to end before the scope does.
        drop(receiver);
        if let Err(error) = &outcome {
            comms.fail(&error.to_string());
        }
        outcome
    })
}

/// `threads` threads for the sampling and loading of one rank.
fn own_threads(threads: usize) -> Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|_| "sample".into()).build();
    pool.map_err(|error| Error::Option(format!("--sample-threads {threads}: {error}; ask for fewer")))
}

fn receive<'a>(
    batches: &Receiver<Result<Prepared<'a>>>,
    count: usize,
    compute: &mut impl FnMut(Prepared<'a>) -> Result<()>,
) -> Result<()> {
    for _ in 0..count {
        let died = |_| Error::Option("preparing a mini-batch panicked, see the line above".into());
        compute(batches.recv().map_err(died)??)?;
    }
    Ok(())
}

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
    let ahead = job.prefetch > 0;
    let push = || PushPull::push(sampled.bottom(), (source, job.features.dim()), ahead, comm);
    let push_pull = config.parallelism.slices_columns().then(push).transpose()?;
    let batch = match &push_pull {
        Some(_) => Loaded::unread(sampled, &job.features),
        None => load(source, sampled, &Input::training(&config.model, step), ahead, comm)?,
    };
    job.end_phase(source.place())?;
    if ahead {
        batch.hand_over(source.place().gpu())?;
    }
    let since = [(started, before), (loading, between)];
    Ok(ready(step, (global.len(), targets), (batch, push_pull), since, comm))
}

/// A mini-batch of `items` that is ready, whose sampling and loading began at these times, when so much had been sent.
pub fn ready<'a>(
    step: Step,
    (items, targets): (usize, Targets<'a>),
    (batch, push_pull): (Loaded<'a>, Option<PushPull<'a>>),
    [(sampling, before), (loading, between)]: [(Instant, SentByRoute); 2],
    comm: &dyn Communicator,
) -> Prepared<'a> {
    let load_s = loading.elapsed().as_secs_f64();
    let sample_s = (loading - sampling).as_secs_f64();
    let mut sent = Traffic::default();
    sent.add(Phase::Sample, before, between);
    sent.add(Phase::Load, between, comm.sent());
    Prepared { step, items, targets, batch, push_pull, sent, sample_s, load_s }
}
