//! Traffic between ranks, by the part of a mini-batch that it is for and the route that it takes.

use gsplit_kernels::{Route, Sent, SentByRoute};
use serde::{Deserialize, Serialize};

/// A part of a mini-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Ids of vertices.
    Sample,
    /// Feature rows.
    Load,
    /// Hidden rows, and sums of batch norm.
    Forward,
    /// Rows of the ends of links, and their gradients.
    Loss,
    /// Gradients of rows, and of sums of batch norm.
    Backward,
    /// Gradients of parameters.
    Update,
}

impl Phase {
    pub(super) const ALL: [Self; 6] =
        [Self::Sample, Self::Load, Self::Forward, Self::Loss, Self::Backward, Self::Update];

    /// Its name in errors, as in logs.
    pub(super) fn name(self) -> &'static str {
        ["sample", "load", "forward", "loss", "backward", "update"][self as usize]
    }
}

/// Bytes and messages that ranks sent to others: in logs, one entry for each phase and route that
/// has some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct Traffic([SentByRoute; Phase::ALL.len()]);

/// The format of logs.
#[derive(Serialize, Deserialize)]
struct Entry {
    phase: Phase,
    route: Route,
    bytes: u64,
    messages: u64,
}

impl From<Vec<Entry>> for Traffic {
    fn from(entries: Vec<Entry>) -> Self {
        let mut traffic = Self::default();
        for Entry { phase, route, bytes, messages } in entries {
            traffic.0[phase as usize][route as usize] = Sent { bytes, messages };
        }
        traffic
    }
}

impl From<Traffic> for Vec<Entry> {
    fn from(traffic: Traffic) -> Self {
        let of_phase = |(phase, sent): (Phase, SentByRoute)| {
            let entry =
                move |(route, Sent { bytes, messages })| Entry { phase, route, bytes, messages };
            Route::ALL.into_iter().zip(sent).map(entry)
        };
        let all = Phase::ALL.into_iter().zip(traffic.0).flat_map(of_phase);
        all.filter(|entry| entry.messages > 0).collect()
    }
}

impl Traffic {
    /// Adds the data sent between two readings of
    /// [`Communicator::sent`](gsplit_kernels::Communicator::sent) to `phase`.
    pub fn add(&mut self, phase: Phase, before: SentByRoute, after: SentByRoute) {
        for (sum, (before, after)) in
            self.0[phase as usize].iter_mut().zip(before.into_iter().zip(after))
        {
            *sum = *sum + (after - before);
        }
    }

    /// Counts of data sent for `phase` by `route`.
    pub fn of(&self, phase: Phase, route: Route) -> Sent {
        self.0[phase as usize][route as usize]
    }

    /// Bytes sent by `route`.
    pub fn by(&self, route: Route) -> u64 {
        self.0.iter().map(|phase| phase[route as usize].bytes).sum()
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.0.as_flattened().iter().map(|sent| sent.bytes).sum()
    }

    /// All numbers, always in the same order.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut u64> {
        self.0.as_flattened_mut().iter_mut().flat_map(|sent| [&mut sent.bytes, &mut sent.messages])
    }
}
