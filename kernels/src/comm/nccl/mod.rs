//! Ranks as processes with a GPU each, on one host or several, whose rows NCCL moves.
//!
//! Idea: values in host memory go over the host ([`Sockets`]). For values on GPUs (`devices`) each rank first tells the
//! others over the host, by one message, how much it will send them. So ranks in different collectives and messages of
//! another size are noticed; NCCL itself would wait for ever for these. Then all ranks are here, and each launches one
//! group of sends and receives.
//! Why not `ncclAllReduce` for sums: its order of addition depends on the number of ranks, the size and the links.
//! On each GPU at most one group of NCCL's is under way. Groups of two communicators at a time would have to be
//! launched in one order on all ranks, or they would wait for each other for ever. So one thread of a rank has the
//! communicators of NCCL, and it waits until a group has ended before it begins the next.
//! A rank that fails tells the others over the host, which learn of it while they wait.
//! Cost: a message to each other rank. The host waits until the group has ended: only so can it give up and say so.
//! Why not run ahead of the GPU and let a thread of its own watch the groups: NCCL's calls do not block here, so the
//! host would have to wait for each call to end in any case; and the watching thread would have to give up the
//! communicator while the computing one calls it, which only real GPUs can show to be right. Ranks that are threads do
//! not wait for GPUs (`copies.rs`).

mod transfers;

use std::fmt::Debug;

use super::messages::{Messages, check_message, or_leave};
use super::wait::Limit;
use super::{DeviceExchange, Sockets, check_parts, starts};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError, NcclEnd, NcclId};
use crate::error::CommError;
pub(crate) use transfers::Transfer;
use transfers::{receives, sends};

/// One rank's end of what moves bytes between GPUs: NCCL, or what tests have in its place.
pub(crate) trait Transport: Send + Sync + Debug {
    /// Launches all `transfers` on the stream of `gpu`, behind what is there. The caller keeps them until they are done or the
    /// transport was given up.
    fn start(&self, gpu: &Gpu, transfers: &mut [Transfer<'_>]) -> Result<(), GpuError>;

    /// Whether the `transfers` that were started have arrived and left. Waits for nothing.
    fn is_done(&self, gpu: &Gpu, transfers: &mut [Transfer<'_>]) -> Result<bool, GpuError>;

    /// Gives up: nothing that was started touches memory any more, and nothing can be started.
    fn abort(&self);
}

/// One process's end of a group. See the module's documentation.
pub struct Nccl {
    transport: Box<dyn Transport>,
    host: Box<dyn Messages>,
}

impl Nccl {
    /// Joins the ranks of `host`, each with a GPU of its own, as the group of `id`. Collective.
    ///
    /// # Errors
    /// [`CommError::Timeout`] where a rank has waited for longer than `host` lets it; [`CommError::PeerFailed`];
    /// [`CommError::Gpu`] without NCCL, and with what it says.
    pub fn join(gpu: &Gpu, id: NcclId, host: Sockets) -> Result<Self, CommError> {
        let (rank, size) = (Messages::rank(&host), Messages::size(&host));
        let name = Messages::name(&host, rank);
        let mut wait = host.limit().start();
        let end = NcclEnd::join(gpu, id, rank, size, || {
            wait.pause();
            let expired = || wait.expired(name, "ncclCommInitRank", Vec::new);
            host.failed().or_else(expired).map_or(Ok(()), |failed| Err(Refused(failed)))
        });
        drop(wait);
        let end = end.map_err(|refused| match refused.0 {
            CommError::Gpu { reason, .. } => CommError::Gpu { rank: name, reason },
            other => other,
        });
        let comm = Self::over(Box::new(or_leave(&host, end)?), Box::new(host));
        // Ranks connect by their first message, for which NCCL loads and allocates: before anything else is under way.
        let connected = || {
            let (send, mut recv, one_each) = (gpu.zeros::<u8>(size)?, gpu.zeros::<u8>(size)?, vec![1; size]);
            Ok(comm.device_all_to_all(gpu, send.slice(), &one_each, recv.slice_mut(), &one_each))
        };
        connected().map_err(|error| comm.failure(error))??;
        Ok(comm)
    }

    /// The ranks of `host`, whose bytes `transport` moves.
    pub(super) fn over(transport: Box<dyn Transport>, host: Box<dyn Messages>) -> Self {
        Self { transport, host }
    }

    fn failure(&self, error: GpuError) -> CommError {
        CommError::Gpu { rank: self.name(self.host.rank()), reason: error.to_string() }
    }

    /// Tells every rank how many bytes this one will send it, and compares with what they say.
    fn announce(&self, called: &'static str, send_bytes: &[usize], recv_bytes: &[usize]) -> Result<(), CommError> {
        let said: Vec<[u8; 8]> = send_bytes.iter().map(|&bytes| (bytes as u64).to_le_bytes()).collect();
        let mut heard = Vec::new();
        self.host.exchange(called, &|to| &said[to], &|_| size_of::<u64>(), &mut |_, bytes| {
            heard.push(bytes.try_into().map_or(0, u64::from_le_bytes));
        })?;
        let mut messages = heard.iter().zip(recv_bytes).enumerate();
        messages.try_for_each(|(from, (&sent, &expected))| check_message(self, from, sent as usize, expected))
    }

    /// Waits until the started `transfers` are done.
    fn finish(&self, gpu: &Gpu, called: &'static str, transfers: &mut [Transfer<'_>]) -> Result<(), CommError> {
        let mut wait = self.limit().start();
        while !self.transport.is_done(gpu, transfers).map_err(|error| self.failure(error))? {
            let expired = || wait.expired(self.name(self.host.rank()), called, Vec::new);
            if let Some(failed) = self.failed().or_else(expired) {
                return Err(failed);
            }
            wait.pause();
        }
        Ok(())
    }

    fn exchange_on_device(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        send_bytes: &[usize],
        mut recv: DeviceSliceMut<'_, u8>,
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        const CALLED: &str = "device_all_to_all";
        check_parts(self, "bytes to send", send_bytes, send.len())?;
        check_parts(self, "bytes to receive", recv_bytes, recv.len())?;
        self.announce(CALLED, send_bytes, recv_bytes)?;
        let (me, bytes) = (self.host.rank(), send_bytes[self.host.rank()]);
        let (from, to) = (starts(send_bytes)[me], starts(recv_bytes)[me]);
        let mut transfers = Vec::new();
        let prepared = || {
            recv.reborrow().part(to, to + bytes)?.copy_from(gpu, send.part(from, from + bytes)?)?;
            sends(me, send, send_bytes, &mut transfers)?;
            receives(me, recv, recv_bytes, &mut transfers)?;
            if transfers.is_empty() { Ok(()) } else { self.transport.start(gpu, &mut transfers) }
        };
        prepared().map_err(|error| self.failure(error))?;
        if transfers.is_empty() { Ok(()) } else { self.finish(gpu, CALLED, &mut transfers) }
    }
}

impl Messages for Nccl {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn size(&self) -> usize {
        self.host.size()
    }

    fn name(&self, rank: usize) -> usize {
        self.host.name(rank)
    }

    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        self.host.exchange(called, outgoing, expected, incoming)
    }

    fn limit(&self) -> &Limit {
        self.host.limit()
    }

    fn failed(&self) -> Option<CommError> {
        self.host.failed()
    }

    fn devices(&self) -> Option<&dyn DeviceExchange> {
        Some(self)
    }

    /// A rank that waits on another thread notices it.
    fn leave(&self, reason: &str) {
        self.host.leave(reason);
    }
}

impl DeviceExchange for Nccl {
    /// After an error nothing touches the memory.
    fn device_all_to_all(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        send_bytes: &[usize],
        recv: DeviceSliceMut<'_, u8>,
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        let moved = self.exchange_on_device(gpu, send, send_bytes, recv, recv_bytes);
        or_leave(self, moved).inspect_err(|_| self.transport.abort())
    }
}

impl Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nccl({:?})", self.transport)
    }
}

impl Drop for Nccl {
    /// An end whose group has failed does not wait for what it has sent to leave.
    fn drop(&mut self) {
        if self.failed().is_some() {
            self.transport.abort();
        }
    }
}

/// Error that ends a wait in NCCL.
struct Refused(CommError);

impl From<GpuError> for Refused {
    fn from(error: GpuError) -> Self {
        Self(CommError::Gpu { rank: 0, reason: error.to_string() })
    }
}
