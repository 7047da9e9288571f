//! Prepares mini-batches ahead of the one that is being computed.
//!
//! [`for_each`] passes the mini-batches of an epoch in order to a closure on the calling thread.
//! With a depth of 0 each is sampled and loaded when it is needed; otherwise a separate thread
//! stays up to that many ahead. Samples are a function of (seed, epoch, step, layer, vertex), so
//! both give the same. The preparing thread talks to the other ranks through its own communicators:
//! its calls may fall between the calls of any step of the computing threads. Its
//! parallel work runs on the shared pool, where sampling and the layers wait for each other's work.
//! A GPU that samples does so ahead on a separate stream:
//! `sampler.rs` explains how memory passes between the two. Memory: the mini-batches that are
//! ahead, with their feature rows if other ranks need them.

use std::sync::mpsc::sync_channel;
use std::thread;

use crate::batch::Prepared;
use crate::job::Job;
use crate::ranks::comms::Comms;
use crate::{Error, Result};

/// Calls `compute` for each of the `count` mini-batches that `prepared` yields. Collective.
///
/// # Errors
/// The first error of `compute` or of the preparation, which also fails the other ranks.
pub fn for_each<'a>(
    job: &Job<'_>,
    mut prepared: impl Iterator<Item = Result<Prepared<'a>>> + Send,
    count: usize,
    comms: &Comms,
    mut compute: impl FnMut(Prepared<'a>) -> Result<()>,
) -> Result<()> {
    if job.config.system.prefetch == 0 {
        return prepared.try_for_each(|batch| compute(batch?));
    }
    thread::scope(|scope| {
        // One more is being made, and one waits to be sent.
        let (sender, receiver) = sync_channel(job.config.system.prefetch - 1);
        scope.spawn(move || {
            for batch in prepared {
                let last = batch.is_err();
                // The receiver is gone once computing has failed.
                if sender.send(batch).is_err() || last {
                    break;
                }
            }
        });
        let died = |_| Error::Option("preparing a mini-batch panicked, see the line above".into());
        let outcome = (0..count).try_for_each(|_| compute(receiver.recv().map_err(died)??));
        // The thread may be waiting for other ranks or for room: it must end before the scope does.
        drop(receiver);
        if let Err(error) = &outcome {
            comms.fail(&error.to_string());
        }
        outcome
    })
}
