//! Counts of the bytes and messages that a rank sends to others, by the route that they take.
//!
//! Counts the values that a call hands over, whatever a library makes of them: the parts of an
//! all-to-all for other ranks; this rank's values once for every other rank in a sum or a gather.
//! An empty part is not a message.

use std::ops::{Add, Sub};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use super::threads::lock;
use serde::{Deserialize, Serialize};

use super::{Communicator, DeviceExchange, Seat};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu};
use crate::error::CommError;

/// Connection between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// The memory of one process.
    Memory,
    /// From GPU to GPU of one host.
    Peer,
    /// Processes of one host.
    Host,
    /// Two hosts.
    Network,
}

impl Route {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Peer, Self::Host, Self::Network];
}

/// Amount of data that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes.
    pub bytes: u64,
    /// Parts that went to one rank at once.
    pub messages: u64,
}

impl Add for Sent {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { bytes: self.bytes + more.bytes, messages: self.messages + more.messages }
    }
}

impl Sub for Sent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { bytes: self.bytes - before.bytes, messages: self.messages - before.messages }
    }
}

/// Counts of sent data, over each of [`Route::ALL`].
pub type SentByRoute = [Sent; Route::ALL.len()];

/// One rank's end of another group, which counts the data that this rank sends
/// ([`Communicator::sent`]).
pub struct Counted {
    group: Box<dyn Communicator>,
    /// Route to each rank of the run.
    routes: OnceLock<Vec<Route>>,
    sent: Mutex<SentByRoute>,
}

impl Counted {
    /// The ranks of `group`, which share a process unless [`Counted::set_routes`] says otherwise.
    pub fn new(group: Box<dyn Communicator>) -> Self {
        Self { group, routes: OnceLock::new(), sent: Mutex::default() }
    }

    /// Sets, once, the route between this rank and each rank of the run, by their names
    /// ([`Communicator::name`]).
    pub fn set_routes(&self, routes: Vec<Route>) {
        let _ = self.routes.set(routes);
    }

    fn route(&self, rank: usize) -> Route {
        let routes = self.routes.get();
        routes
            .and_then(|routes| routes.get(self.group.name(rank)))
            .copied()
            .unwrap_or(Route::Memory)
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.group.rank();
        (0..self.group.size()).filter(move |&rank| rank != me)
    }

    fn count(&self, route: Route, bytes: usize) {
        if bytes > 0 {
            let sent = &mut lock(&self.sent)[route as usize];
            *sent = *sent + Sent { bytes: bytes as u64, messages: 1 };
        }
    }

    /// Counts `bytes` to every other rank.
    fn count_to_all(&self, bytes: usize) {
        self.others().for_each(|rank| self.count(self.route(rank), bytes));
    }
}

impl Communicator for Counted {
    fn seat(&self) -> Seat {
        self.group.seat()
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.group.barrier()
    }

    fn all_to_all_bytes(
        &self,
        send: &[u8],
        to: &[usize],
        recv: &mut [u8],
        from: &[usize],
    ) -> Result<(), CommError> {
        self.others()
            .for_each(|rank| self.count(self.route(rank), to.get(rank).copied().unwrap_or(0)));
        self.group.all_to_all_bytes(send, to, recv, from)
    }

    fn all_reduce_sum_f32(&self, values: &mut [f32]) -> Result<(), CommError> {
        self.count_to_all(size_of_val(values));
        self.group.all_reduce_sum_f32(values)
    }

    fn all_reduce_sum_f64(&self, values: &mut [f64]) -> Result<(), CommError> {
        self.count_to_all(size_of_val(values));
        self.group.all_reduce_sum_f64(values)
    }

    fn all_reduce_sum_u64(&self, values: &mut [u64]) -> Result<(), CommError> {
        self.count_to_all(size_of_val(values));
        self.group.all_reduce_sum_u64(values)
    }

    fn all_gather_bytes(&self, send: &[u8], recv: &mut [u8]) -> Result<(), CommError> {
        self.count_to_all(send.len());
        self.group.all_gather_bytes(send, recv)
    }

    fn suspend_timeout(&self, suspended: bool) {
        self.group.suspend_timeout(suspended);
    }

    fn waited(&self) -> Duration {
        self.group.waited()
    }

    fn devices(&self) -> Option<&dyn DeviceExchange> {
        self.group.devices().map(|_| self as &dyn DeviceExchange)
    }

    fn sent(&self) -> SentByRoute {
        *lock(&self.sent)
    }

    fn fail(&self, reason: &str) {
        self.group.fail(reason);
    }
}

impl DeviceExchange for Counted {
    fn device_all_to_all(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        to: &[usize],
        recv: DeviceSliceMut<'_, u8>,
        from: &[usize],
    ) -> Result<(), CommError> {
        for rank in self.others() {
            let route =
                if self.route(rank) == Route::Network { Route::Network } else { Route::Peer };
            self.count(route, to.get(rank).copied().unwrap_or(0));
        }
        match self.group.devices() {
            Some(devices) => devices.device_all_to_all(gpu, send, to, recv, from),
            None => Err(CommError::Gpu {
                rank: self.rank(),
                reason: "its group reaches no GPUs".into(),
            }),
        }
    }
}
