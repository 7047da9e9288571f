//! Reads in flight by threads, each with a read at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use memmap2::MmapMut;

use super::{Finished, Queue, slot_memory};

/// Threads of a queue.
const THREADS: usize = 32;
/// Bytes of a thread's stack.
const STACK: usize = 128 << 10;

/// A read, on its way to a thread and back.
struct Read {
    slot: usize,
    memory: MmapMut,
    offset: u64,
    length: usize,
}

/// Threads that read until this is dropped. Dropping does not wait for them: each owns the memory
/// it reads into.
pub struct Threads {
    requests: Sender<Read>,
    done: Receiver<(Read, io::Result<usize>)>,
    slots: Vec<Option<MmapMut>>,
}

impl Threads {
    /// Threads that read `file`, with `slots`: their number and bytes.
    pub fn new(file: Arc<File>, slots: (usize, usize)) -> io::Result<Self> {
        let (requests, taken) = channel::<Read>();
        let (finished, done) = channel();
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..THREADS.min(slots.0) {
            let (file, taken, finished) = (file.clone(), taken.clone(), finished.clone());
            let work = move || {
                loop {
                    let next = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(mut read) = next else { return };
                    let got = file.read_at(&mut read.memory[..read.length], read.offset);
                    if finished.send((read, got)).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().name("rows".into()).stack_size(STACK).spawn(work)?;
        }
        Ok(Self {
            requests,
            done,
            slots: slot_memory(slots.0, slots.1)?.into_iter().map(Some).collect(),
        })
    }
}

impl Queue for Threads {
    fn start(&mut self, slot: usize, offset: u64, length: usize) -> io::Result<()> {
        let memory = self.slots[slot].take().ok_or_else(|| io::Error::other("a slot in use"))?;
        let died = |_| io::Error::other("the threads that read rows are gone");
        self.requests.send(Read { slot, memory, offset, length }).map_err(died)
    }

    fn next(&mut self, wait: Duration) -> io::Result<Option<Finished>> {
        match self.done.recv_timeout(wait) {
            Ok((read, got)) => {
                self.slots[read.slot] = Some(read.memory);
                Ok(Some((read.slot, got)))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the threads that read rows are gone"))
            }
        }
    }

    fn bytes(&self, slot: usize) -> &[u8] {
        self.slots[slot].as_deref().unwrap_or_default()
    }
}
