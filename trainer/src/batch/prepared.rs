//! A mini-batch that is ready to compute, wherever it came from.

use std::time::Instant;

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Communicator, SentByRoute};

use super::PushPull;
use crate::ranks::traffic::{Phase, Traffic};
use crate::residence::source::Loaded;
use crate::task::Targets;

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
