//! A rank's ends of the communicators of a run.
//!
//! The ranks of a run are one group or several equal groups of consecutive ranks (`--groups`). Ids
//! and rows move within a group; gradients and counters are summed over all ranks. Ids, and feature
//! rows on the host, have a separate communicator, because mini-batches are sampled and loaded
//! while others are computed: calls on one may fall between any two on the other.

use std::time::Duration;

use gsplit_kernels::{Communicator, Counted, Route, SentByRoute};

/// A rank's ends of the communicators of a run.
pub struct Comms {
    all: Counted,
    /// `None` if there is one group.
    group: Option<Counted>,
    sampling: Counted,
}

/// Communicators for computing a mini-batch.
#[derive(Clone, Copy)]
pub struct Ranks<'a> {
    /// All ranks.
    pub all: &'a dyn Communicator,
    /// The ranks of this rank's group: all, if there is one group.
    pub group: &'a dyn Communicator,
}

impl Comms {
    /// The communicators of a rank: `sampling` and `group` are its group's, if there are several.
    pub fn new(
        all: Box<dyn Communicator>,
        sampling: Box<dyn Communicator>,
        group: Option<Box<dyn Communicator>>,
    ) -> Self {
        let [all, sampling] = [all, sampling].map(Counted::new);
        Self { all, group: group.map(Counted::new), sampling }
    }

    /// Sets the route from this rank to each rank of the run.
    pub fn set_routes(&self, routes: Vec<Route>) {
        [&self.all, &self.sampling]
            .into_iter()
            .chain(&self.group)
            .for_each(|comm| comm.set_routes(routes.clone()));
    }

    /// For mini-batches that are sampled and loaded: the ranks of this group.
    pub fn sampling(&self) -> &dyn Communicator {
        &self.sampling
    }

    /// For gradients and sums: all ranks.
    pub fn all(&self) -> &dyn Communicator {
        &self.all
    }

    /// For mini-batches that are computed.
    pub fn ranks(&self) -> Ranks<'_> {
        Ranks { all: &self.all, group: self.group.as_ref().unwrap_or(&self.all) }
    }

    /// Notifies the other ranks that this one is leaving, even while they wait. Other groups learn
    /// it in the next sum.
    pub fn fail(&self, reason: &str) {
        self.sampling.fail(reason);
        self.ranks().group.fail(reason);
        self.all.fail(reason);
    }
}

impl Ranks<'_> {
    /// Data sent by this rank through these communicators so far.
    pub fn sent(&self) -> SentByRoute {
        let (mut all, group) = (self.all.sent(), self.group.sent());
        if self.are_grouped() {
            all.iter_mut().zip(group).for_each(|(sum, sent)| *sum = *sum + sent);
        }
        all
    }

    /// Time that this rank has waited for others in these communicators so far.
    pub fn waited(&self) -> Duration {
        self.all.waited() + if self.are_grouped() { self.group.waited() } else { Duration::ZERO }
    }

    /// True if there are several groups.
    pub fn are_grouped(&self) -> bool {
        self.group.size() != self.all.size()
    }
}

impl<'a> From<&'a dyn Communicator> for Ranks<'a> {
    /// One group.
    fn from(all: &'a dyn Communicator) -> Self {
        Self { all, group: all }
    }
}
