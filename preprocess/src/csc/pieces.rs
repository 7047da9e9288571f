//! Reading all pieces of an edge source on every thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use gsplit_store::{Progress, Unit};

use crate::edges::{EdgeBatch, EdgeSource, Piece, lock};
use crate::{Error, Result};

/// Hands every batch of `source` to `take`, with its number from 1, from `threads` threads; each
/// has a state of its own. Stops at a failure; of several, the one that comes first in the input is
/// returned.
///
/// The threads are not rayon's: these might take up another piece while they wait for a part of a
/// sort, and a lock that `take` holds with it.
pub fn for_each_parallel<S, E: From<Error> + Send>(
    source: &dyn EdgeSource,
    threads: usize,
    stage_name: &str,
    progress: &dyn Progress,
    state: impl Fn() -> S + Sync,
    take: impl Fn(&mut S, u64, &EdgeBatch) -> Result<(), E> + Sync,
) -> Result<(), E> {
    source.rewind()?;
    let stage = progress.stage(stage_name, Some(source.estimate()?.bytes), Unit::Bytes);
    let done = AtomicU64::new(0);
    let turn = Mutex::new(1u64);
    let failure: Mutex<Option<(u64, E)>> = Mutex::new(None);
    let fail = |number: u64, error: E| {
        let mut failure = lock(&failure);
        if failure.as_ref().is_none_or(|(other, _)| number < *other) {
            *failure = Some((number, error));
        }
    };
    let work = || {
        let (mut piece, mut batch, mut state) = (Piece::default(), EdgeBatch::default(), state());
        loop {
            let mut next = lock(&turn);
            let number = *next;
            if lock(&failure).is_some() {
                return;
            }
            match source.next(&mut piece) {
                Ok(true) => *next += 1,
                Ok(false) => return,
                Err(error) => return fail(number, error.into()),
            }
            drop(next);
            batch.clear();
            let parsed = source.parse(&mut piece, &mut batch).map_err(E::from);
            if let Err(error) = parsed.and_then(|()| take(&mut state, number, &batch)) {
                return fail(number, error);
            }
            let now = source.bytes_done();
            stage.advance(now.saturating_sub(done.fetch_max(now, Relaxed)));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
