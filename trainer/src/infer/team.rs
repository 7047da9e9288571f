//! Team of workers that compute a layer, each with the same model, at its own place and on its own
//! thread.
//!
//! Each additional worker takes a copy of the parameters at its place, and its share of the host's
//! threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::model::Model;
use crate::operator::{Place, set_torch_threads};
use crate::residence::source::FeatureSource;
use crate::{Error, Result};

/// Workers; the first one runs on the calling thread.
pub struct Team<'a> {
    first: &'a Model,
    others: Vec<Model>,
    sources: &'a [FeatureSource<'a>],
}

impl<'a> Team<'a> {
    /// Makes one worker per element of `sources`, which provide feature rows at the places of the
    /// models `first` and then `others`. All models have the same parameters.
    pub fn new(first: &'a Model, others: Vec<Model>, sources: &'a [FeatureSource<'a>]) -> Self {
        Self { first, others, sources }
    }

    /// The model of the first worker.
    pub fn model(&self) -> &'a Model {
        self.first
    }

    /// The feature rows of the first worker.
    pub fn source(&self) -> &'a FeatureSource<'a> {
        &self.sources[0]
    }

    /// Places of the workers.
    pub fn places(&self) -> Vec<Place> {
        self.sources.iter().map(|source| source.place().clone()).collect()
    }

    /// Runs `work` on every worker at the same time. The flag passed to it becomes true once
    /// another worker has failed; the work is then no longer needed.
    pub fn each(
        &mut self,
        work: impl Fn(&Model, &FeatureSource<'_>, &AtomicBool) -> Result<()> + Sync,
    ) -> Result<()> {
        let threads = tch::get_num_threads().max(1) as usize;
        let portion = threads / self.sources.len();
        let failed = AtomicBool::new(false);
        let work = |rank: usize, model: &Model, source: &FeatureSource<'_>| {
            set_torch_threads(portion);
            let result = catch_unwind(AssertUnwindSafe(|| work(model, source, &failed)))
                .unwrap_or_else(|panic| Err(Error::of_panic(&*panic, rank)));
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        let work = &work;
        let results: Vec<Result<()>> = thread::scope(|scope| {
            let others = self.others.iter_mut().zip(&self.sources[1..]).zip(1..);
            let others: Vec<_> = others
                .map(|((model, source), rank)| scope.spawn(move || work(rank, model, source)))
                .collect();
            let first = work(0, self.first, &self.sources[0]);
            let died = |_| {
                Err(Error::Option("a thread that evaluates panicked, see the line above".into()))
            };
            [first]
                .into_iter()
                .chain(others.into_iter().map(|other| other.join().unwrap_or_else(died)))
                .collect()
        });
        set_torch_threads(threads);
        results.into_iter().collect()
    }
}
