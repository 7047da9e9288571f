//! Ranks as processes that torch's own engine connects: c10d's store, at which they meet, and Gloo.
//!
//! Idea: a rank sends each other a slot of fixed size, which says the collective and the length of
//! the message and holds the message if that is short. Longer messages follow, tagged with their
//! length, and are received in place: Gloo, which would end the process if a message did not fit,
//! never matches one of another length. Ranks in different collectives, or with messages of another
//! size, see it by the slot. Sums are taken by rank, as ranks that are threads take them, so both
//! give the same bits.
//!
//! Why slots are requested early, one collective ahead: the thread of Gloo's device does not sleep
//! while the calling thread has the connection's lock but retries at once. When messages waited for
//! their slots, so that calls fell into the other's transfer, that thread took a tenth of an
//! epoch's CPU time.
//!
//! Several groups of the same ranks have separate connections and do not wait for each other. A
//! rank that fails writes the reason into the store and closes its connections; the others see
//! these end, and look there. A rank whose process ends without a reason counts as dead. A rank
//! that waits too long names the rank that it waited for. c10d trusts its network, as all of
//! PyTorch does: it neither authenticates nor encrypts. Cost: one message of 512 bytes between any
//! two ranks per collective, and the data itself, which only the system copies.

mod meeting;
mod raw;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gsplit_kernels::{CommError, Limit, Messages, Seat, check_message, lock};

use meeting::Board;
pub use meeting::Meeting;
use raw::{Group, Parcel, SLOT, Waits};

/// Tag of slots. Pieces of longer messages have their length as tag.
const SLOTS: i32 = 0;
/// Maximum bytes of a piece of a message.
const PIECE: usize = 1 << 30;
/// Bytes of a slot's header: the collective and the length of the message, 8 bytes each.
const HEAD: usize = 16;
/// Used for an unlimited timeout, which Gloo does not have.
const LONG: Duration = Duration::from_secs(86_400 * 365);
/// Interval at which a rank that waits without a limit asks the store for failures. Rank 0 stays
/// longer after one.
const LOOK: Duration = Duration::from_millis(300);
/// Names of the collectives; a slot holds the index.
const COLLECTIVES: [&str; 7] = [
    "barrier",
    "all_to_all",
    "all_reduce_sum_f32",
    "all_reduce_sum_f64",
    "all_reduce_sum_u64",
    "all_gather",
    "device_all_to_all",
];

/// One process's end of a group. See [`Meeting::group`].
pub struct C10d {
    seat: Seat,
    board: Arc<Board>,
    limit: Limit,
    timeout: Duration,
    /// Number of exchanges without a limit that have ended.
    exchanges: AtomicU64,
    waits: Waits,
    /// Reason why this rank no longer takes part.
    left: Mutex<Option<CommError>>,
    /// Connections; `None` after this rank has left.
    ends: Mutex<Option<Ends>>,
}

/// Connections of a rank, and the slots that it has requested from each other rank for its next
/// collective.
struct Ends {
    next: Vec<Option<Parcel>>,
    group: Group,
}

fn number_of(called: &str) -> u64 {
    COLLECTIVES.iter().position(|name| *name == called).unwrap_or(COLLECTIVES.len()) as u64
}

/// The slot that announces `message`, including the message if it fits.
fn slot(called: &str, message: &[u8]) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(&number_of(called).to_le_bytes());
    slot[8..HEAD].copy_from_slice(&(message.len() as u64).to_le_bytes());
    if let Some(room) = slot.get_mut(HEAD..HEAD + message.len()) {
        room.copy_from_slice(message);
    }
    slot
}

/// Number of the collective that `slot` announces, and the length of its message.
fn read(slot: &[u8; SLOT]) -> [u64; 2] {
    [0, 8].map(|at| slot[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

impl C10d {
    fn over(group: Group, seat: Seat, board: Arc<Board>, timeout: Duration) -> Self {
        Self {
            seat,
            board,
            limit: Limit::new(Some(timeout)),
            timeout,
            exchanges: AtomicU64::new(0),
            waits: Waits::default(),
            left: Mutex::default(),
            ends: Mutex::new(Some(Ends { next: (0..seat.size).map(|_| None).collect(), group })),
        }
    }

    /// The error if a message from or to `other` makes no progress.
    fn lost(
        &self,
        other: usize,
        called: &'static str,
        wait: &gsplit_kernels::Wait<'_>,
    ) -> CommError {
        self.failed()
            .or_else(|| {
                wait.since().expired(self.seat.own_name(), called, || vec![self.seat.name(other)])
            })
            .unwrap_or_else(|| self.board.cut(self.seat.name(other)))
    }

    /// Ends the waits of the current exchange once a rank has reported a failure, or once the
    /// store, in the process of rank 0, has not answered for `timeout`.
    fn watch_store(&self, exchange: u64) {
        let mut answered = Instant::now();
        while self.exchanges.load(Ordering::Acquire) == exchange {
            thread::park_timeout(LOOK);
            let reason = match self.board.is_failed() {
                Some(false) => {
                    answered = Instant::now();
                    continue;
                }
                Some(true) => "it has left",
                None if answered.elapsed() > self.timeout => "its process does not answer",
                None => continue,
            };
            // The failure that was reported first counts.
            self.board.failed(0, reason);
            return self.waits.give_up();
        }
    }

    fn exchange_by<'a>(
        &self,
        Ends { next, group }: &mut Ends,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        recv: &mut [u8],
    ) -> Result<(), CommError> {
        let me = self.seat.rank;
        let others = || (0..self.seat.size).filter(move |&rank| rank != me);
        check_message(self.seat, me, outgoing(me).len(), expected(me))?;
        let wait = self.limit.start();
        let left = || wait.left().unwrap_or(LONG).max(Duration::from_millis(1));
        let gone = |other: usize| self.lost(other, called, &wait);
        let slots: Vec<[u8; SLOT]> =
            (0..self.seat.size).map(|to| slot(called, outgoing(to))).collect();
        let (mut rest, mut short, mut underway) = (recv, Vec::new(), Vec::new());
        for (from, asked) in next.iter_mut().enumerate() {
            let (room, tail) = std::mem::take(&mut rest).split_at_mut(expected(from));
            rest = tail;
            if from == me {
                room.copy_from_slice(outgoing(me));
                continue;
            }
            if asked.is_none() {
                *asked = Some(group.receive_slot(from, SLOTS).map_err(|_| gone(from))?);
            }
            match room.len() > SLOT - HEAD {
                true => {
                    for piece in room.chunks_mut(PIECE) {
                        underway.push((
                            from,
                            group
                                .receive(from, piece.len() as i32, piece)
                                .map_err(|_| gone(from))?,
                        ));
                    }
                }
                false => short.push((from, room)),
            }
        }
        for to in others() {
            underway.push((to, group.send(to, SLOTS, &slots[to]).map_err(|_| gone(to))?));
            if outgoing(to).len() > SLOT - HEAD {
                for piece in outgoing(to).chunks(PIECE) {
                    underway.push((
                        to,
                        group.send(to, piece.len() as i32, piece).map_err(|_| gone(to))?,
                    ));
                }
            }
        }
        let mut short = short.into_iter().peekable();
        for from in others() {
            let slot = next[from].take().ok_or_else(|| gone(from))?;
            let heard = slot.wait(&self.waits, left()).map_err(|_| gone(from))?;
            let [number, bytes] = read(&heard);
            if number != number_of(called) {
                let other_called = COLLECTIVES.get(number as usize).copied().unwrap_or("another");
                return Err(CommError::Order {
                    rank: self.seat.own_name(),
                    called,
                    other: self.seat.name(from),
                    other_called,
                });
            }
            check_message(self.seat, from, bytes as usize, expected(from))?;
            if let Some((_, room)) = short.next_if(|(of, _)| *of == from) {
                room.copy_from_slice(&heard[HEAD..HEAD + room.len()]);
            }
        }
        underway.iter().try_for_each(|(other, work)| {
            work.wait(&self.waits, left()).map_err(|_| gone(*other))
        })?;
        // A rank that has left since is noticed in the next collective.
        others().for_each(|from| next[from] = group.receive_slot(from, SLOTS).ok());
        Ok(())
    }
}

impl Messages for C10d {
    fn seat(&self) -> Seat {
        self.seat
    }

    fn exchange_into<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        recv: &mut [u8],
    ) -> Result<(), CommError> {
        if let Some(failed) = self.failed() {
            return Err(failed);
        }
        match &mut *lock(&self.ends) {
            Some(ends) if self.limit.start().left().is_some() => {
                self.exchange_by(ends, called, outgoing, expected, recv)
            }
            // Only rank 0 is at work, and may take long; its store still answers.
            Some(ends) => thread::scope(|scope| {
                let exchange = self.exchanges.load(Ordering::Acquire);
                let watch = scope.spawn(move || self.watch_store(exchange));
                let exchanged = self.exchange_by(ends, called, outgoing, expected, recv);
                self.exchanges.fetch_add(1, Ordering::Release);
                watch.thread().unpark();
                exchanged
            }),
            None => Err(CommError::PeerFailed {
                rank: self.seat.own_name(),
                reason: "it has left".to_string(),
            }),
        }
    }

    fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Includes failures of another group of this process: the run has ended then.
    fn failed(&self) -> Option<CommError> {
        lock(&self.left).clone().or_else(|| self.board.known())
    }

    /// A wait in progress on another thread ends; that thread then closes the connections.
    fn leave(&self, reason: &str) {
        let name = self.seat.own_name();
        let is_first = lock(&self.left).is_none();
        if is_first {
            let failed = self.board.failed(name, reason);
            lock(&self.left).get_or_insert(failed);
        }
        self.waits.give_up();
        if let Ok(mut ends) = self.ends.try_lock() {
            *ends = None;
        }
    }
}

impl std::fmt::Debug for C10d {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "C10d({:?})", self.seat)
    }
}
