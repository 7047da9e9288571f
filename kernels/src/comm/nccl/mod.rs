//! Ranks as processes with a GPU each, on one host or several, joined by NCCL.
//!
//! Idea: every collective is one group of sends and receives, an announcement and a message for each rank and from each. The
//! announcement says what is called and how many bytes come, so that ranks in different collectives and messages of another
//! size are noticed, though NCCL itself would wait for them for ever: a rank that waits looks at what has been announced to it
//! from time to time. Those whose announcement has not come are the ones that are named when its patience ends. What lies in
//! host memory goes by way of the GPU; what lies there already (`devices`) does not touch the host.
//! Sums are taken by rank, from messages, as in the other groups, so that all give the same bits. Why not `ncclAllReduce`: its
//! order of addition depends on the number of ranks, the size and the links.
//! Each group has a stream of its own, given with its GPU: two groups of the same ranks on one stream could wait for each other
//! for ever, as each rank may come to them in another order.
//! A rank that fails, in its own way or in a collective, raises the alarm; the others find it raised while they wait.
//! Cost: for a collective of the host a copy to the GPU and one back. The host waits until the group has ended, that of
//! `devices` too: only so it can give up and say for whom it waited.
//! Why not run ahead of the GPU and let a thread of its own watch the collectives of `devices`: NCCL's calls do not block here, so
//! nothing is on the stream before the other ranks have come for the first time, and the host would wait for that all the same;
//! and the watching thread would have to give up the communicator while the computing one calls it, which only real GPUs can
//! show to be right. Ranks that are threads do not wait for GPUs (`copies.rs`).

mod announcements;
mod messages;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytemuck::pod_read_unaligned;

use super::exchange::{Exchange, check_message, or_leave};
use super::wait::Limit;
use super::{DeviceExchange, Seat, check_parts};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError, NcclEnd, NcclId};
use crate::error::CommError;
use announcements::{ANNOUNCEMENT, Announcements, check_announced};
pub(crate) use messages::Message;
use messages::{Parts, receives, sends};

/// From one look at the announcements to the next, while a rank waits.
const LOOKS: Duration = Duration::from_secs(1);

/// One rank's end of what moves bytes between GPUs: NCCL, or what tests have in its place.
pub(crate) trait Transport: Send + Sync + Debug {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;

    /// Launches all `messages` on the stream of `gpu`, behind what is there. The caller keeps them until they are done or the
    /// transport was given up.
    fn start(&self, gpu: &Gpu, messages: &mut [Message<'_>]) -> Result<(), GpuError>;

    /// Whether the `messages` that were started have arrived and left. Waits for nothing.
    fn is_done(&self, gpu: &Gpu, messages: &mut [Message<'_>]) -> Result<bool, GpuError>;

    /// Gives up: nothing that was started touches memory any more, and nothing can be started.
    fn abort(&self);
}

/// How the ranks of a group learn that one of them has failed, which NCCL does not tell.
pub trait Alarm: Send + Sync + Debug {
    /// Tells the others that this rank has failed.
    fn raise(&self, reason: &str);

    /// [`CommError::PeerFailed`] once a rank has failed.
    fn raised(&self) -> Option<CommError>;
}

/// One process's end of a group. See the module's documentation.
#[derive(Debug)]
pub struct Nccl {
    transport: Box<dyn Transport>,
    /// The number in the run of rank 0.
    first: usize,
    alarm: Option<Arc<dyn Alarm>>,
    gpu: Gpu,
    /// Another stream, to look at announcements while the first is busy.
    watch: Gpu,
    limit: Limit,
    announcements: Mutex<Announcements>,
    /// Why the group has ended.
    ended: Mutex<Option<CommError>>,
}

impl Nccl {
    /// Joins the group of `id` in `seat`, each rank with a GPU of its own. Collective; `gpu` should have a stream that
    /// no other group is on, but those that the same thread calls. A rank that waits for longer than `timeout`, here or in a collective, gives up, and so does one that
    /// waits when `alarm` is raised.
    ///
    /// # Errors
    /// [`CommError::Timeout`]; [`CommError::Gpu`] without NCCL, and with what it says.
    pub fn join(
        gpu: &Gpu,
        id: NcclId,
        seat: Seat,
        timeout: Option<Duration>,
        alarm: Option<Arc<dyn Alarm>>,
    ) -> Result<Self, CommError> {
        let limit = Limit::new(timeout);
        let mut wait = limit.start();
        let rank = seat.first + seat.rank;
        let end = NcclEnd::join(gpu, id, seat.rank, seat.size, || {
            wait.pause();
            if let Some(failed) = alarm.as_ref().and_then(|alarm| alarm.raised()) {
                return Err(Refused(failed));
            }
            wait.expired(rank, "ncclCommInitRank", Vec::new).map_or(Ok(()), |expired| Err(Refused(expired)))
        });
        let end = end.map_err(|refused| match refused.0 {
            CommError::Gpu { reason, .. } => CommError::Gpu { rank, reason },
            other => other,
        })?;
        Self::over(Box::new(end), seat.first, gpu, timeout, alarm)
    }

    /// A rank whose bytes `transport` moves, in a group whose rank 0 is rank `first` of the run.
    pub(super) fn over(
        transport: Box<dyn Transport>,
        first: usize,
        gpu: &Gpu,
        timeout: Option<Duration>,
        alarm: Option<Arc<dyn Alarm>>,
    ) -> Result<Self, CommError> {
        let rank = first + transport.rank();
        let made = || {
            let announcements = Announcements::new(gpu, transport.size())?;
            // Collectives may be on another stream than what clears them here.
            gpu.synchronise()?;
            Ok((gpu.side_stream()?, announcements.into()))
        };
        let (watch, announcements) =
            made().map_err(|error: GpuError| CommError::Gpu { rank, reason: error.to_string() })?;
        Ok(Self {
            transport,
            first,
            alarm,
            gpu: gpu.clone(),
            watch,
            limit: Limit::new(timeout),
            announcements,
            ended: Mutex::default(),
        })
    }

    fn failure(&self, error: GpuError) -> CommError {
        CommError::Gpu { rank: self.name(self.transport.rank()), reason: error.to_string() }
    }

    fn check_alive(&self) -> Result<(), CommError> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match ended.or_else(|| self.alarm.as_ref()?.raised()) {
            Some(ended) => Err(ended),
            None => Ok(()),
        }
    }

    /// Ends the group with `error`, unless it has ended.
    fn end(&self, error: &CommError) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        self.transport.abort();
    }

    /// Runs a collective from `send`, which has the part for each rank where `outgoing` says, to `recv`, on the stream of
    /// `gpu`. Waits until all ranks have come and all has arrived. After an error the group has ended, and nothing touches the memory.
    fn run(
        &self,
        gpu: &Gpu,
        called: &'static str,
        (send, outgoing): (DeviceSlice<'_, u8>, &Parts),
        (recv, expected): (DeviceSliceMut<'_, u8>, &Parts),
    ) -> Result<(), CommError> {
        self.check_alive()?;
        let mut announcements = self.announcements.lock().unwrap_or_else(PoisonError::into_inner);
        let written = announcements.write(gpu, called, &outgoing.bytes).map_err(|error| self.failure(error));
        let result = written.and_then(|()| {
            let Announcements { outgoing: said, incoming: heard } = &mut *announcements;
            let (me, one_each) = (self.transport.rank(), Parts::packed(&vec![ANNOUNCEMENT; self.transport.size()]));
            let mut messages = Vec::new();
            let prepared = sends(me, said.slice().as_bytes(), &one_each, &mut messages)
                .and_then(|()| receives(me, heard.slice_mut().into_bytes(), &one_each, &mut messages))
                .and_then(|()| sends(me, send, outgoing, &mut messages))
                .and_then(|()| receives(me, recv, expected, &mut messages));
            // Who looks finds what was written, and nothing of the collective before.
            let prepared = prepared.and_then(|()| self.watch.wait_for(gpu));
            let started = prepared.and_then(|()| self.transport.start(gpu, &mut messages));
            started.map_err(|error| self.failure(error))?;
            self.finish(gpu, called, &expected.bytes, &mut messages)
        });
        let result = result.and_then(|()| announcements.check(self, called, &expected.bytes));
        result.inspect_err(|error| self.end(error))
    }

    /// Waits until the started `messages` are done, which begin with the announcements.
    fn finish(
        &self,
        gpu: &Gpu,
        called: &'static str,
        expected: &[usize],
        messages: &mut [Message<'_>],
    ) -> Result<(), CommError> {
        let (mut wait, mut next_look) = (self.limit.start(), LOOKS);
        loop {
            if self.transport.is_done(gpu, messages).map_err(|error| self.failure(error))? {
                return Ok(());
            }
            self.check_alive()?;
            let expired = wait.expired(self.name(self.transport.rank()), called, Vec::new);
            if expired.is_some() || wait.lasted() >= next_look {
                let missing = self.look(called, expected, messages)?;
                if let Some(CommError::Timeout { rank, called, timeout, .. }) = expired {
                    return Err(CommError::Timeout { rank, called, missing, timeout });
                }
                next_look = wait.lasted() + LOOKS;
            }
            wait.pause();
        }
    }

    /// Checks the announcements that have come; returns the ranks whose have not, or none while the GPU has yet to come to the
    /// collective.
    fn look(
        &self,
        called: &'static str,
        expected: &[usize],
        messages: &[Message<'_>],
    ) -> Result<Vec<usize>, CommError> {
        let mut missing = Vec::new();
        if !self.watch.is_done().map_err(|error| self.failure(error))? {
            return Ok(missing);
        }
        let announced = messages.iter().filter_map(|message| match message {
            Message::Receive { from, bytes } => Some((*from, bytes.as_slice())),
            Message::Send { .. } => None,
        });
        for (from, bytes) in announced.take(self.transport.size() - 1) {
            let words = bytes.peek(&self.watch).map_err(|error| self.failure(error))?;
            if !check_announced(self, called, from, pod_read_unaligned(&words), expected)? {
                missing.push(self.name(from));
            }
        }
        Ok(missing)
    }
}

impl Exchange for Nccl {
    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn size(&self) -> usize {
        self.transport.size()
    }

    fn name(&self, rank: usize) -> usize {
        self.first + rank
    }

    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        let (me, size) = (self.transport.rank(), self.transport.size());
        check_message(self, me, outgoing(me).len(), expected(me))?;
        let to_others = |bytes: &dyn Fn(usize) -> usize| -> Vec<usize> {
            (0..size).map(|rank| if rank == me { 0 } else { bytes(rank) }).collect()
        };
        let sent = Parts::aligned(to_others(&|to| outgoing(to).len()));
        let received = Parts::aligned(to_others(expected));
        let mut staged = vec![0u8; sent.end()];
        for to in (0..size).filter(|&to| to != me) {
            staged[sent.of(to)].copy_from_slice(outgoing(to));
        }
        let failure = |error| self.failure(error);
        let send = self.gpu.upload(&staged).map_err(failure)?;
        let mut recv = self.gpu.alloc::<u8>(received.end()).map_err(failure)?;
        self.run(&self.gpu, called, (send.slice(), &sent), (recv.slice_mut(), &received))?;
        let arrived = recv.to_vec().map_err(failure)?;
        for from in 0..size {
            incoming(from, if from == me { outgoing(me) } else { &arrived[received.of(from)] });
        }
        Ok(())
    }

    fn waited(&self) -> Duration {
        self.limit.waited()
    }

    fn suspend_timeout(&self, suspended: bool) {
        self.limit.suspend(suspended);
    }

    fn devices(&self) -> Option<&dyn DeviceExchange> {
        Some(self)
    }

    /// A rank that waits on another thread notices it.
    fn leave(&self, reason: &str) {
        let failed = CommError::PeerFailed { rank: self.name(self.transport.rank()), reason: reason.to_owned() };
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
        if let Some(alarm) = &self.alarm {
            alarm.raise(reason);
        }
    }
}

impl DeviceExchange for Nccl {
    fn device_all_to_all(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        send_bytes: &[usize],
        mut recv: DeviceSliceMut<'_, u8>,
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        let me = self.transport.rank();
        let checked = check_parts(self, "bytes to send", send_bytes, send.len())
            .and_then(|()| check_parts(self, "bytes to receive", recv_bytes, recv.len()))
            .and_then(|()| check_message(self, me, send_bytes[me], recv_bytes[me]));
        or_leave(self, checked)?;
        let (sent, received) = (Parts::packed(send_bytes), Parts::packed(recv_bytes));
        let (from, to) = (sent.of(me), received.of(me));
        let own = recv.reborrow().part(to.start, to.end);
        let copied = own.and_then(|mut own| own.copy_from(gpu, send.part(from.start, from.end)?));
        or_leave(self, copied.map_err(|error| self.failure(error)))?;
        or_leave(self, self.run(gpu, "device_all_to_all", (send, &sent), (recv, &received)))
    }
}

impl Drop for Nccl {
    /// An end whose group has failed does not wait for what it has sent to leave.
    fn drop(&mut self) {
        if self.check_alive().is_err() {
            self.transport.abort();
        }
    }
}

/// What ends a wait in NCCL.
struct Refused(CommError);

impl From<GpuError> for Refused {
    fn from(error: GpuError) -> Self {
        Self(CommError::Gpu { rank: 0, reason: error.to_string() })
    }
}
