//! Ranks as processes with a GPU each, on one host or several, whose rows NCCL moves.
//!
//! Idea: values in host memory go over the host, which is any group of [`Messages`]. For values on
//! GPUs (`devices`) each rank first tells the others over the host, by one message, how much it
//! will send them. So ranks in different collectives and messages of another size are noticed; NCCL
//! itself would wait for ever for these. Then all ranks are present, and each launches one group of
//! sends and receives, and goes on: the stream orders later work. It waits for the group before it
//! announces the next. Why not `ncclAllReduce` for sums: its order of addition depends on the
//! number of ranks, the size and the links. On each GPU at most one group of NCCL's is under way.
//! Groups of two communicators at a time would have to be launched in one order on all ranks, or
//! they would wait for each other for ever. So one thread of a rank owns the communicators of NCCL,
//! on one stream. A rank that fails tells the others over the host. A thread watches the group
//! under way, because the host may wait for its GPU meanwhile: where a rank has failed, or the
//! group takes too long, it gives up the communicator, whose kernels then end. Cost: a message to
//! each other rank; a check of a flag ten times a second.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::messages::{Messages, check_message, check_parts, or_leave};
use super::wait::{Limit, Since};
use super::{DeviceExchange, Seat, starts};
use crate::cuda::{
    DeviceSlice, DeviceSliceMut, Gpu, GpuError, NCCL_ID_BYTES, NcclEnd, NcclId, new_nccl_id,
};
use crate::error::CommError;

const CALLED: &str = "device_all_to_all";
/// Interval between two checks of the watching thread.
const TICK: Duration = Duration::from_millis(100);

/// Part of a group of sends and receives. Transfers between the same two ranks match in their
/// order.
pub(crate) enum Transfer<'a> {
    /// Sends these bytes to a rank.
    Send { to: usize, bytes: DeviceSlice<'a, u8> },
    /// Receives as many bytes from a rank.
    Receive { from: usize, bytes: DeviceSliceMut<'a, u8> },
}

/// One rank's end of a library that moves bytes between GPUs: NCCL, or its replacement in tests.
pub(crate) trait Transport: Send + Sync + Debug {
    /// Begins to launch all `transfers` on the stream of `gpu`, behind its earlier work.
    fn start(&self, gpu: &Gpu, transfers: &mut [Transfer<'_>]) -> Result<(), GpuError>;

    /// Whether the started `transfers` are on the stream. Does not wait.
    fn is_launched(&self, transfers: &mut [Transfer<'_>]) -> Result<bool, GpuError>;

    /// Whether the launched transfers are complete. Does not wait.
    fn is_done(&self) -> Result<bool, GpuError>;

    /// Aborts: no started transfer touches memory any more, and no new one can start.
    fn abort(&self);
}

/// One process's end of a group. See the module's documentation.
pub struct Nccl {
    ends: Arc<Ends>,
    watch: Option<JoinHandle<()>>,
}

/// A rank's ends on the host and between GPUs, and the transfers under way.
struct Ends {
    transport: Box<dyn Transport>,
    host: Box<dyn Messages>,
    /// When the transfers under way were launched.
    launched: Mutex<Option<Since>>,
    /// Why the group has ended, if a transfer ended it.
    ended: OnceLock<CommError>,
    is_closed: AtomicBool,
}

impl Ends {
    fn failure(&self, error: GpuError) -> CommError {
        CommError::Gpu { rank: self.host.seat().own_name(), reason: error.to_string() }
    }

    fn failed(&self) -> Option<CommError> {
        self.ended.get().cloned().or_else(|| self.host.failed())
    }

    /// Whether `step`, waited for since `since`, is still to come.
    fn is_awaited(&self, since: &Since, step: Result<bool, GpuError>) -> Result<bool, CommError> {
        let expired = || since.expired(self.host.seat().own_name(), CALLED, Vec::new);
        match step.map_err(|error| self.failure(error))? {
            true => Ok(false),
            false => self.failed().or_else(expired).map_or(Ok(true), Err),
        }
    }

    /// Whether the last launch is still under way. If it fails or takes too long, the group has
    /// ended.
    fn is_underway(&self) -> Result<bool, CommError> {
        let mut launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = launched
            .as_ref()
            .map_or(Ok(false), |since| self.is_awaited(since, self.transport.is_done()));
        if awaited != Ok(true) {
            *launched = None;
        }
        awaited.inspect_err(|error| self.end(error))
    }

    fn end(&self, error: &CommError) {
        let _ = self.ended.set(error.clone());
        self.host.leave(&error.to_string());
        self.transport.abort();
    }
}

impl Nccl {
    /// Joins the ranks of `host`, each with a GPU of its own. Collective.
    ///
    /// # Errors
    /// [`CommError::Timeout`] where a rank has waited for longer than `host` lets it;
    /// [`CommError::PeerFailed`]; [`CommError::Gpu`] without NCCL, and for its errors.
    pub fn join(gpu: &Gpu, host: Box<dyn Messages>) -> Result<Self, CommError> {
        let (Seat { rank, size, .. }, name) = (host.seat(), host.seat().own_name());
        let end = first_id(&*host).and_then(|id| {
            let mut wait = host.limit().start();
            NcclEnd::join(gpu, id, rank, size, || {
                wait.pause();
                let expired = || wait.since().expired(name, "ncclCommInitRank", Vec::new);
                host.failed().or_else(expired).map_or(Ok(()), Err)
            })
            .unwrap_or_else(|error| Err(CommError::Gpu { rank: name, reason: error.to_string() }))
        });
        let comm = Self::over(Box::new(or_leave(&*host, end)?), host);
        // Ranks connect by their first message, for which NCCL loads and allocates: before anything
        // else is under way.
        let connected = || {
            let (send, mut recv, one_each) =
                (gpu.zeros::<u8>(size)?, gpu.zeros::<u8>(size)?, vec![1; size]);
            Ok(comm.device_all_to_all(gpu, send.slice(), &one_each, recv.slice_mut(), &one_each))
        };
        connected().map_err(|error| comm.ends.failure(error))??;
        Ok(comm)
    }

    /// The ranks of `host`, whose bytes `transport` moves.
    pub(super) fn over(transport: Box<dyn Transport>, host: Box<dyn Messages>) -> Self {
        let (launched, ended, is_closed) = Default::default();
        let ends = Arc::new(Ends { transport, host, launched, ended, is_closed });
        let watched = Arc::clone(&ends);
        let watch = thread::spawn(move || {
            while !watched.is_closed.load(Ordering::Acquire) {
                // The next announcement finds the error.
                let _ = watched.is_underway();
                thread::park_timeout(TICK);
            }
        });
        Self { ends, watch: Some(watch) }
    }

    /// Tells every rank how many bytes this one will send it, and compares the announcements of the
    /// others.
    fn announce(&self, send_bytes: &[usize], recv_bytes: &[usize]) -> Result<(), CommError> {
        let said: Vec<[u8; 8]> =
            send_bytes.iter().map(|&bytes| (bytes as u64).to_le_bytes()).collect();
        let mut heard = Vec::new();
        self.exchange(CALLED, &|to| &said[to], &|_| size_of::<u64>(), &mut |_, bytes| {
            heard.push(bytes.try_into().map_or(0, u64::from_le_bytes));
        })?;
        let mut messages = heard.iter().zip(recv_bytes).enumerate();
        messages.try_for_each(|(from, (&sent, &expected))| {
            check_message(self.seat(), from, sent as usize, expected)
        })
    }

    fn exchange_on_device(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        send_bytes: &[usize],
        recv: DeviceSliceMut<'_, u8>,
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        check_parts(self.seat(), (send_bytes, send.len()), (recv_bytes, recv.len()))?;
        let (ends, me) = (&self.ends, self.seat().rank);
        let mut wait = self.limit().start();
        while ends.is_underway()? {
            wait.pause();
        }
        drop(wait);
        self.announce(send_bytes, recv_bytes)?;
        let mut transfers = Vec::new();
        let prepared = || {
            let mut rest = recv;
            for (rank, (start, (&sent, &received))) in
                starts(send_bytes).into_iter().zip(send_bytes.iter().zip(recv_bytes)).enumerate()
            {
                let outgoing = send.part(start, start + sent)?;
                let (mut incoming, behind) = rest.split_at(received)?;
                rest = behind;
                if rank == me {
                    incoming.copy_from(gpu, outgoing)?;
                    continue;
                }
                transfers
                    .extend((sent > 0).then_some(Transfer::Send { to: rank, bytes: outgoing }));
                transfers.extend(
                    (received > 0).then_some(Transfer::Receive { from: rank, bytes: incoming }),
                );
            }
            if transfers.is_empty() { Ok(()) } else { ends.transport.start(gpu, &mut transfers) }
        };
        prepared().map_err(|error| ends.failure(error))?;
        if transfers.is_empty() {
            return Ok(());
        }
        let mut wait = self.limit().start();
        while ends.is_awaited(&wait.since(), ends.transport.is_launched(&mut transfers))? {
            wait.pause();
        }
        *ends.launched.lock().unwrap_or_else(PoisonError::into_inner) = Some(wait.since());
        Ok(())
    }
}

/// The id that the first rank of `host` makes. Collective.
fn first_id(host: &dyn Messages) -> Result<NcclId, CommError> {
    let seat = host.seat();
    let mut id = [0; NCCL_ID_BYTES];
    if seat.rank == 0 {
        let failed =
            |error: GpuError| CommError::Gpu { rank: seat.own_name(), reason: error.to_string() };
        id = new_nccl_id().map_err(failed)?;
    }
    let bytes_of = |rank: usize| if rank == 0 { NCCL_ID_BYTES } else { 0 };
    let mut first = id;
    host.exchange_into("all_to_all", &|_| &id[..bytes_of(seat.rank)], &bytes_of, &mut first)?;
    Ok(first)
}

impl Messages for Nccl {
    fn seat(&self) -> Seat {
        self.ends.host.seat()
    }

    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        if let Some(failed) = self.ends.ended.get() {
            return Err(failed.clone());
        }
        self.ends.host.exchange(called, outgoing, expected, incoming)
    }

    fn limit(&self) -> &Limit {
        self.ends.host.limit()
    }

    fn failed(&self) -> Option<CommError> {
        self.ends.failed()
    }

    fn devices(&self) -> Option<&dyn DeviceExchange> {
        Some(self)
    }

    /// Ends the group, which a rank that waits on another thread notices.
    fn leave(&self, reason: &str) {
        self.ends.host.leave(reason);
    }
}

impl DeviceExchange for Nccl {
    /// After an error no transfer touches the memory.
    fn device_all_to_all(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        send_bytes: &[usize],
        recv: DeviceSliceMut<'_, u8>,
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        let moved = self.exchange_on_device(gpu, send, send_bytes, recv, recv_bytes);
        moved.inspect_err(|error| self.ends.end(error))
    }
}

impl Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Nccl({:?})", self.ends.transport)
    }
}

impl Drop for Nccl {
    /// If the group has failed, does not wait for sends to finish.
    fn drop(&mut self) {
        self.ends.is_closed.store(true, Ordering::Release);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            let _ = watch.join();
        }
        if self.failed().is_some() {
            self.ends.transport.abort();
        }
    }
}
