//! Ranks as processes, on one host or several, joined by a connection between each two ([`Links`]).
//!
//! Idea: a message says to which collective of which group it belongs and how long it is, so that ranks in different collectives and
//! messages of another size are noticed when they come. Several groups of the same ranks share the connections and do not
//! wait for each other. Sums are taken by rank, as in the other groups, so that all give the same bits.
//! It carries what lies in host memory: with GPUs that is ids of vertices, counts and announcements; NCCL carries the rows.
//! Cost: one message between any two ranks a collective; three copies of each byte.

mod frames;
mod links;

use std::sync::Arc;
use std::time::Duration;

use super::Seat;
use super::messages::{Messages, check_message};
use super::wait::Limit;
use crate::error::CommError;
pub use links::Links;
use links::{Arrived, Connections};

/// Collectives, by what they are told apart.
const COLLECTIVES: [&str; 7] = [
    "barrier",
    "all_to_all",
    "all_reduce_sum_f32",
    "all_reduce_sum_f64",
    "all_reduce_sum_u64",
    "all_gather",
    "device_all_to_all",
];

/// One process's end of a group. See [`Links::group`].
#[derive(Debug)]
pub struct Sockets {
    links: Arc<Connections>,
    channel: u8,
    seat: Seat,
    limit: Limit,
}

impl Sockets {
    fn new(links: Arc<Connections>, channel: u8, seat: Seat, timeout: Option<Duration>) -> Self {
        Self { links, channel, seat, limit: Limit::new(timeout) }
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.seat.rank;
        (0..self.seat.size).filter(move |&rank| rank != me)
    }

    /// Compares what has come first of each rank with what is `called` and `expected`; the ranks of whom nothing has come.
    fn missing(
        &self,
        arrived: &Arrived,
        called: &'static str,
        expected: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<usize>, CommError> {
        let mut missing = Vec::new();
        for other in self.others() {
            let name = self.name(other);
            let Some((number, bytes)) = arrived.messages.get(&(self.channel, name)).and_then(|queue| queue.front())
            else {
                missing.push(name);
                continue;
            };
            if *number != number_of(called) {
                let other_called = COLLECTIVES.get(usize::from(*number)).copied().unwrap_or("another");
                return Err(CommError::Order { rank: self.name(self.seat.rank), called, other: name, other_called });
            }
            check_message(self, other, bytes.len(), expected(other))?;
        }
        Ok(missing)
    }
}

fn number_of(called: &str) -> u8 {
    COLLECTIVES.iter().position(|name| *name == called).unwrap_or(COLLECTIVES.len()) as u8
}

impl Messages for Sockets {
    fn rank(&self) -> usize {
        self.seat.rank
    }

    fn size(&self) -> usize {
        self.seat.size
    }

    fn name(&self, rank: usize) -> usize {
        self.seat.first + rank
    }

    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        let me = self.seat.rank;
        check_message(self, me, outgoing(me).len(), expected(me))?;
        if let Some(failed) = self.failed() {
            return Err(failed);
        }
        for to in self.others() {
            self.links.send(self.name(to), &frames::message(self.channel, number_of(called), outgoing(to)));
        }
        let (wait, mut arrived) = (self.limit.start(), self.links.arrived());
        loop {
            let missing = self.missing(&arrived, called, expected)?;
            if missing.is_empty() {
                break;
            }
            let failed = || wait.expired(self.name(me), called, || missing);
            if let Some(failed) = arrived.failed().or_else(failed) {
                return Err(failed);
            }
            arrived = self.links.wait(arrived, wait.left());
        }
        let mut received: Vec<Vec<u8>> = Vec::new();
        for other in self.others() {
            let queue = arrived.messages.get_mut(&(self.channel, self.name(other)));
            received.extend(queue.and_then(|queue| queue.pop_front()).map(|(_, bytes)| bytes));
        }
        drop(arrived);
        received.insert(me.min(received.len()), Vec::new());
        for (from, message) in received.iter().enumerate() {
            incoming(from, if from == me { outgoing(me) } else { message });
        }
        Ok(())
    }

    fn limit(&self) -> &Limit {
        &self.limit
    }

    fn failed(&self) -> Option<CommError> {
        self.links.arrived().failed()
    }

    fn leave(&self, reason: &str) {
        self.links.fail(self.name(self.seat.rank), reason);
    }
}
