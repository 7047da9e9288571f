//! A rank's ends of the communicators of a run.
//!
//! The ranks of a run are one group or several equal ones, whose ranks follow each other (`--groups`). Ids and rows move within a
//! group; gradients, and what is counted, are summed over all ranks. Ids have a communicator of their own, because mini-batches
//! are sampled while others are computed: calls on one may fall between any two on the other.

use gsplit_kernels::Communicator;

/// A rank's ends of the communicators of a run.
pub struct Comms {
    all: Box<dyn Communicator>,
    /// `None` where there is one group.
    group: Option<Box<dyn Communicator>>,
    sampling: Box<dyn Communicator>,
}

/// What a rank computes a mini-batch with.
#[derive(Clone, Copy)]
pub struct Ranks<'a> {
    /// All ranks.
    pub all: &'a dyn Communicator,
    /// Those of this rank's group: all, if there is one group.
    pub group: &'a dyn Communicator,
}

impl Comms {
    /// Those of a rank whose run is one group: `sampling` for ids, `computing` for the rest.
    pub fn of_one_group(sampling: Box<dyn Communicator>, computing: Box<dyn Communicator>) -> Self {
        Self { all: computing, group: None, sampling }
    }

    /// Those of a rank in a group: `sampling` for ids and `computing` for rows are the group's.
    pub fn of_group(
        all: Box<dyn Communicator>,
        sampling: Box<dyn Communicator>,
        computing: Box<dyn Communicator>,
    ) -> Self {
        Self { all, group: Some(computing), sampling }
    }

    /// For ids, while mini-batches are sampled: the ranks of this one's group.
    pub fn sampling(&self) -> &dyn Communicator {
        self.sampling.as_ref()
    }

    /// For gradients and sums: all ranks.
    pub fn all(&self) -> &dyn Communicator {
        self.all.as_ref()
    }

    /// For mini-batches that are computed.
    pub fn ranks(&self) -> Ranks<'_> {
        Ranks { all: self.all.as_ref(), group: self.group.as_ref().unwrap_or(&self.all).as_ref() }
    }

    /// Tells the others, wherever they wait, that this rank is leaving. Those of other groups learn it in the next sum over all.
    pub fn fail(&self, reason: &str) {
        self.sampling.fail(reason);
        self.ranks().group.fail(reason);
        self.all.fail(reason);
    }
}

impl Ranks<'_> {
    /// Whether there are several groups.
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
