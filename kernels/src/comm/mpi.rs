//! Ranks as processes that MPI connects, on one host or several (feature `mpi`).
//!
//! Idea: a collective first tells every rank its name and how much it sends, so that ranks in different collectives,
//! and messages of another size than expected, are noticed before anything is received. Then each message is sent in
//! pieces that MPI's 32-bit counts can name. Sums are taken by rank, as ranks that are threads take them, so both give
//! the same bits. No call waits inside MPI: its progress is polled, so that a rank that waits in vain gives up and
//! names those it has not heard of. Messages that are then still under way keep their memory for good.
//! Cost: one small message between any two ranks a collective; two copies of each byte, as between threads.
//! A rank that fails returns its error. The others wait until the launcher ends them, which it does when a process ends
//! badly, or until their limit. An error of MPI itself ends all processes with MPI's message.
//!
//! Unsafe code of this file: handles of MPI that may go to other threads, and memory that MPI may write for as long as it likes.
#![allow(unsafe_code)]

use std::fmt::{self, Debug};
use std::mem::{self, ManuallyDrop};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytemuck::{cast_slice, pod_read_unaligned};
use mpi::Threading;
use mpi::environment::Universe;
use mpi::request::{Request, StaticScope};
use mpi::topology::{Color, Process, SimpleCommunicator};
use mpi::traits::{Communicator as _, Destination, Source};

use super::Seat;
use super::messages::{Messages, check_message};
use super::wait::Limit;
use crate::error::CommError;

/// Bytes of one piece.
const PIECE: usize = 1 << 30;
/// Tags of messages and of announcements.
const MESSAGE: i32 = 0;
const ANNOUNCEMENT: i32 = 1;
/// Collectives, by what they are told apart.
const COLLECTIVES: [&str; 6] =
    ["barrier", "all_to_all", "all_reduce_sum_f32", "all_reduce_sum_f64", "all_reduce_sum_u64", "all_gather"];

/// The processes that one launcher (`mpirun`, `srun`) has started.
pub struct MpiWorld(Universe);

impl MpiWorld {
    /// Meets the other processes. Once in a process; collective.
    ///
    /// # Errors
    /// [`CommError::Start`] a second time, and if MPI cannot be called by several threads.
    pub fn start() -> Result<Self, CommError> {
        match mpi::initialize_with_threading(Threading::Multiple) {
            None => Err(CommError::Start { reason: "MPI: it was started before, or has ended".into() }),
            Some((_, provided)) if provided < Threading::Multiple => Err(CommError::Start {
                reason: format!(
                    "MPI: this one gives {provided:?} threads, expected Multiple: install one that was built with it"
                ),
            }),
            Some((universe, _)) => Ok(Self(universe)),
        }
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.0.world().rank() as usize
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.0.world().size() as usize
    }

    /// A group of all processes, whose messages meet those of no other group, and whose collectives fail with
    /// [`CommError::Timeout`] where a rank waits for longer than `timeout`. Collective.
    pub fn group(&self, timeout: Option<Duration>) -> Mpi {
        Mpi::over(self.0.world().duplicate(), Seat::among_all(self.rank(), self.size()), timeout)
    }

    /// The same for this process's group alone, of `groups` equal ones whose ranks follow each other. Collective over all.
    ///
    /// # Errors
    /// [`CommError::Start`] unless the processes can be divided so.
    pub fn group_of(&self, groups: usize, timeout: Option<Duration>) -> Result<Mpi, CommError> {
        let seat = Seat::in_group(self.rank(), self.size(), groups);
        let reason = || format!("MPI: {} processes cannot be {groups} equal groups", self.size());
        let equal = seat.size * groups == self.size();
        let split = || self.0.world().split_by_color(Color::with_value((seat.first / seat.size) as i32));
        let comm = equal.then(split).flatten().ok_or_else(|| CommError::Start { reason: reason() })?;
        Ok(Mpi::over(comm, seat, timeout))
    }
}

impl Debug for MpiWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiWorld(rank {} of {})", self.rank(), self.size())
    }
}

/// One process's end of a group. See [`MpiWorld::group`].
pub struct Mpi {
    /// Never given back: that would wait for ranks that may have failed, and there are few.
    comm: ManuallyDrop<SimpleCommunicator>,
    seat: Seat,
    limit: Limit,
    /// Why this rank takes no part any more.
    left: Mutex<Option<CommError>>,
}

// SAFETY: MPI was started for calls from several threads at a time; the handle is a number or an address that any thread may
// pass to it.
unsafe impl Send for Mpi {}
// SAFETY: as above. A group's collectives are called by one thread at a time, as `Communicator` has it.
unsafe impl Sync for Mpi {}

impl Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mpi({:?})", self.seat)
    }
}

/// A message under way, with its memory, which it keeps for good if it is dropped before it has arrived.
struct Underway {
    memory: *mut [u8],
    /// Requests of its pieces.
    requests: Vec<Request<'static, [u8], StaticScope>>,
}

impl Underway {
    fn send(to: &Process<'_>, tag: i32, message: &[u8]) -> Self {
        let memory = Box::into_raw(Box::<[u8]>::from(message));
        // SAFETY: nobody writes the memory, which is given back only when every piece has left.
        let bytes: &'static [u8] = unsafe { &*memory };
        let piece = |piece| to.immediate_send_with_tag(StaticScope, piece, tag);
        Self { requests: bytes.chunks(PIECE).map(piece).collect(), memory }
    }

    fn receive(from: &Process<'_>, tag: i32, bytes: usize) -> Self {
        let memory = Box::into_raw(vec![0u8; bytes].into_boxed_slice());
        // SAFETY: nobody else knows the memory, which is given back only when every piece has arrived.
        let room: &'static mut [u8] = unsafe { &mut *memory };
        let piece = |piece| from.immediate_receive_into_with_tag(StaticScope, piece, tag);
        Self { requests: room.chunks_mut(PIECE).map(piece).collect(), memory }
    }

    /// Whether all of it has arrived, or has left.
    fn is_done(&mut self) -> bool {
        self.requests = mem::take(&mut self.requests).into_iter().filter_map(|piece| piece.test().err()).collect();
        self.requests.is_empty()
    }

    /// The bytes, of a message that is done.
    fn bytes(&self) -> &[u8] {
        match self.requests.is_empty() {
            // SAFETY: the memory is this message's, and MPI is done with it.
            true => unsafe { &*self.memory },
            false => &[],
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        match self.requests.is_empty() {
            // SAFETY: it was a box, and MPI is done with it.
            true => drop(unsafe { Box::from_raw(self.memory) }),
            false => mem::take(&mut self.requests).into_iter().for_each(mem::forget),
        }
    }
}

impl Mpi {
    fn over(comm: SimpleCommunicator, seat: Seat, timeout: Option<Duration>) -> Self {
        Self { comm: ManuallyDrop::new(comm), seat, limit: Limit::new(timeout), left: Mutex::default() }
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let me = self.seat.rank;
        (0..self.seat.size).filter(move |&rank| rank != me)
    }

    fn process(&self, rank: usize) -> Process<'_> {
        self.comm.process_at_rank(rank as i32)
    }

    /// Waits until all `messages`, each from the rank beside it, have arrived and all of `sent` has left.
    fn complete(
        &self,
        called: &'static str,
        messages: &mut [(usize, Underway)],
        sent: &mut [(usize, Underway)],
    ) -> Result<(), CommError> {
        let mut wait = self.limit.start();
        loop {
            let mut missing = Vec::new();
            for (rank, message) in messages.iter_mut().chain(sent.iter_mut()) {
                if !message.is_done() && !missing.contains(rank) {
                    missing.push(*rank);
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            if let Some(left) = self.failed() {
                return Err(left);
            }
            let missing = || missing.into_iter().map(|rank| self.name(rank)).collect();
            match wait.expired(self.name(self.seat.rank), called, missing) {
                Some(expired) => return Err(expired),
                None => wait.pause(),
            }
        }
    }

    /// Tells every rank what this one calls and how many bytes it sends; compares with what they say.
    fn announce<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
    ) -> Result<(), CommError> {
        let number = COLLECTIVES.iter().position(|name| *name == called).unwrap_or(COLLECTIVES.len()) as u64;
        let me = self.seat.rank;
        check_message(self, me, outgoing(me).len(), expected(me))?;
        let words = size_of::<[u64; 2]>();
        let receive = |from| (from, Underway::receive(&self.process(from), ANNOUNCEMENT, words));
        let mut heard: Vec<_> = self.others().map(receive).collect();
        let send = |to| {
            let said = [number, outgoing(to).len() as u64];
            (to, Underway::send(&self.process(to), ANNOUNCEMENT, cast_slice(&said)))
        };
        let mut said: Vec<_> = self.others().map(send).collect();
        self.complete(called, &mut heard, &mut said)?;
        for (other, message) in &heard {
            let [said, bytes]: [u64; 2] = pod_read_unaligned(message.bytes());
            if said != number {
                let other_called = COLLECTIVES.get(said as usize).copied().unwrap_or("another");
                let [rank, other] = [me, *other].map(|rank| self.name(rank));
                return Err(CommError::Order { rank, called, other, other_called });
            }
            check_message(self, *other, bytes as usize, expected(*other))?;
        }
        Ok(())
    }
}

impl Messages for Mpi {
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
        self.announce(called, outgoing, expected)?;
        let receive = |from| (from, Underway::receive(&self.process(from), MESSAGE, expected(from)));
        let mut received: Vec<_> = self.others().map(receive).collect();
        let send = |to| (to, Underway::send(&self.process(to), MESSAGE, outgoing(to)));
        let mut sent: Vec<_> = self.others().map(send).collect();
        self.complete(called, &mut received, &mut sent)?;
        let mut received = received.iter();
        for from in 0..self.seat.size {
            let message =
                if from == self.seat.rank { Some(outgoing(from)) } else { received.next().map(|(_, of)| of.bytes()) };
            incoming(from, message.unwrap_or_default());
        }
        Ok(())
    }

    fn limit(&self) -> &Limit {
        &self.limit
    }

    fn failed(&self) -> Option<CommError> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A rank that waits on another thread notices it.
    fn leave(&self, reason: &str) {
        let failed = CommError::PeerFailed { rank: self.name(self.seat.rank), reason: reason.to_owned() };
        self.left.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
    }
}
