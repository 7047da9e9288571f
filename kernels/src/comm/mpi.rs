//! Ranks as processes that MPI connects, on one host or several (feature `mpi`).
//!
//! Idea: a collective first tells every rank its name and how much it sends, so that ranks in different collectives, and
//! messages of another size than expected, are noticed before anything is received; then each message is sent in pieces that
//! MPI's 32-bit counts can name. Sums are taken by rank, as ranks that are threads take them, so both give the same bits.
//! Cost: one small all-to-all a collective; a copy of what is received.
//! A rank that fails returns its error, and the others wait until the launcher ends them, which it does when a process ends
//! badly. An error of MPI itself ends all processes with MPI's message.
//!
//! Unsafe code of this file: handles of MPI that may go to other threads.
#![allow(unsafe_code)]

use std::fmt::{self, Debug};
use std::mem::ManuallyDrop;

use mpi::Threading;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives, Destination, Source};

use super::exchange::{Exchange, check_message};
use crate::error::CommError;

/// Bytes of one piece.
const PIECE: usize = 1 << 30;
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
            None => Err(CommError::Start { reason: "MPI was started before, or has ended".into() }),
            Some((_, provided)) if provided < Threading::Multiple => Err(CommError::Start {
                reason: format!(
                    "this MPI gives {provided:?} threads, expected Multiple: install one that was built with it"
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

    /// A group of all processes, whose messages meet those of no other group. Collective.
    pub fn group(&self) -> Mpi {
        let comm = ManuallyDrop::new(self.0.world().duplicate());
        Mpi { rank: self.rank(), size: self.size(), comm }
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
    rank: usize,
    size: usize,
}

// SAFETY: MPI was started for calls from several threads at a time; the handle is a number or an address that any thread may
// pass to it.
unsafe impl Send for Mpi {}
// SAFETY: as above. A group's collectives are called by one thread at a time, as `Communicator` has it.
unsafe impl Sync for Mpi {}

impl Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mpi(rank {} of {})", self.rank, self.size)
    }
}

impl Mpi {
    /// Tells every rank what this one calls and how many bytes it sends; compares with what they say.
    fn announce<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
    ) -> Result<(), CommError> {
        let number = COLLECTIVES.iter().position(|name| *name == called).unwrap_or(COLLECTIVES.len());
        let mine: Vec<u64> = (0..self.size).flat_map(|to| [number as u64, outgoing(to).len() as u64]).collect();
        let mut theirs = vec![0u64; mine.len()];
        self.comm.all_to_all_into(&mine[..], &mut theirs[..]);
        for (other, said) in theirs.chunks_exact(2).enumerate() {
            if said[0] != number as u64 {
                let other_called = COLLECTIVES.get(said[0] as usize).copied().unwrap_or("another");
                return Err(CommError::Order { rank: self.rank, called, other, other_called });
            }
            check_message(self, other, said[1] as usize, expected(other))?;
        }
        Ok(())
    }
}

impl Exchange for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        self.announce(called, outgoing, expected)?;
        let bytes = |from: usize| if from == self.rank { 0 } else { expected(from) };
        let mut received: Vec<Vec<u8>> = (0..self.size).map(|from| vec![0; bytes(from)]).collect();
        mpi::request::scope(|scope| {
            let mut requests = Vec::new();
            for (from, message) in received.iter_mut().enumerate() {
                let process = self.comm.process_at_rank(from as i32);
                let pieces = message.chunks_mut(PIECE);
                requests.extend(pieces.map(|piece| process.immediate_receive_into(scope, piece)));
            }
            for to in (0..self.size).filter(|&to| to != self.rank) {
                let process = self.comm.process_at_rank(to as i32);
                let pieces = outgoing(to).chunks(PIECE);
                requests.extend(pieces.map(|piece| process.immediate_send(scope, piece)));
            }
            for request in requests {
                request.wait();
            }
        });
        for (from, message) in received.iter().enumerate() {
            incoming(from, if from == self.rank { outgoing(from) } else { message });
        }
        Ok(())
    }

    fn leave(&self, _reason: &str) {}
}
