//! Objects that Python holds: a loader, and its epochs, which are iterators.
//!
//! With `prefetch` above 0 a thread of its own stays up to so many mini-batches ahead of Python; with 0 a mini-batch is made when it is
//! asked for. Both give the same. Threads begin with an epoch and end with it, so a loader can be copied into another process by `fork`.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use gsplit_kernels::KernelError;
use gsplit_store::Dataset;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::arrays::Batch;
use crate::batch::{Made, Maker, Plan};
use crate::memory::Pool;
use crate::rows::Labels;

/// How long Python waits for a mini-batch before it looks for Ctrl-C.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// Draws the mini-batches of a dataset.
#[pyclass(frozen, module = "gsplit._native")]
pub struct Loader {
    plan: Arc<Plan>,
    prefetch: usize,
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (path, fanouts, seeds, *, batch_size, drop_last, shuffle, seed, blocks, edge_ids, draw_by, features, load_features, widen, labels, threads, prefetch, rank = 0, ranks = 1))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        fanouts: &str,
        seeds: PyReadonlyArray1<'_, u32>,
        batch_size: usize,
        drop_last: bool,
        shuffle: bool,
        seed: u64,
        blocks: bool,
        edge_ids: bool,
        draw_by: Option<String>,
        features: bool,
        load_features: bool,
        widen: bool,
        labels: bool,
        threads: Option<usize>,
        prefetch: usize,
        rank: usize,
        ranks: usize,
    ) -> PyResult<Self> {
        let fanouts = fanouts.parse().map_err(|error: KernelError| PyValueError::new_err(error.to_string()))?;
        let seeds = seeds.as_slice()?.to_vec();
        let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let plan = py.detach(|| -> gsplit_store::Result<Plan> {
            // As in an epoch, not on rayon's shared threads.
            on_threads(threads, || {
                let dataset = Dataset::open_unchecked(&path)?;
                dataset.topology().check_indices()?;
                let weights = draw_by.map(|column| dataset.edge_weights(&column)).transpose()?;
                let mut table = features.then(|| dataset.features()).transpose()?;
                if let (true, Some(mapped)) = (load_features, &table) {
                    let problem = |error| gsplit_store::Error::Invalid(format!("load_features: {error}; leave it out"));
                    table = Some(mapped.in_memory().map_err(problem)?);
                }
                let features = table.map(|table| (table, widen));
                let labels = match (labels, dataset.manifest().multi_label) {
                    (false, _) => None,
                    (true, false) if dataset.manifest().numeric_label => {
                        Some(Labels::Number(dataset.numeric_labels()?))
                    }
                    (true, false) => Some(Labels::One(dataset.labels()?)),
                    (true, true) => Some(Labels::Several(dataset.multi_labels()?)),
                };
                Ok(Plan {
                    dataset,
                    fanouts,
                    seeds,
                    batch_size,
                    rank,
                    ranks,
                    drop_last,
                    shuffle,
                    seed,
                    blocks,
                    edge_ids,
                    weights,
                    features,
                    labels,
                    threads,
                    // One that Python shows, one that it is about to drop.
                    pool: Arc::new(Pool::new(prefetch + 2)),
                })
            })
        });
        let plan = plan.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self { plan: Arc::new(plan), prefetch })
    }

    /// Mini-batches of an epoch.
    fn __len__(&self) -> usize {
        self.plan.num_batches()
    }

    /// The mini-batches of epoch `number`, in order.
    fn epoch(&self, number: u32) -> PyResult<Epoch> {
        let plan = Arc::clone(&self.plan);
        let mut maker = Maker::new(&plan, number).map_err(PyRuntimeError::new_err)?;
        if self.prefetch == 0 {
            return Ok(Epoch { plan, source: Mutex::new(Source::Here(Box::new(maker))) });
        }
        // One more is being made, and one waits to be put in.
        let (sender, receiver) = sync_channel(self.prefetch - 1);
        let making = Arc::clone(&plan);
        let work = move || {
            while let Some(made) = maker.next(&making) {
                let last = made.is_err();
                // The receiver is gone once Python has dropped the epoch.
                if sender.send(made).is_err() || last {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("gsplit-loader".into()).spawn(work);
        let thread = thread.map_err(|error| PyRuntimeError::new_err(format!("no thread for the loader: {error}")))?;
        Ok(Epoch { plan, source: Mutex::new(Source::Ahead { receiver, received: 0, thread }) })
    }
}

impl Loader {
    /// The plan of all epochs.
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }
}

fn on_threads<T: Send>(
    threads: usize,
    work: impl FnOnce() -> gsplit_store::Result<T> + Send,
) -> gsplit_store::Result<T> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(work),
        Err(error) => Err(gsplit_store::Error::Invalid(format!("threads {threads}: {error}; ask for fewer"))),
    }
}

/// The mini-batches of an epoch.
#[pyclass(frozen, module = "gsplit._native")]
pub struct Epoch {
    plan: Arc<Plan>,
    source: Mutex<Source>,
}

enum Source {
    Here(Box<Maker>),
    /// With the number of those that came.
    Ahead {
        receiver: Receiver<Result<Made, String>>,
        received: usize,
        thread: JoinHandle<()>,
    },
    Closed,
}

#[pymethods]
impl Epoch {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            let waited = py.detach(|| self.wait());
            match waited {
                Poll::Ready(Some(made)) => {
                    let made = made.map_err(PyRuntimeError::new_err)?;
                    return Batch::new(py, made, &self.plan).map(Some);
                }
                Poll::Ready(None) => return Ok(None),
                Poll::Pending => py.check_signals()?,
            }
        }
    }

    /// Ends the epoch and its thread.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
            if let Source::Ahead { receiver, thread, .. } = std::mem::replace(&mut *source, Source::Closed) {
                // The thread ends with the mini-batch that it is at.
                drop(receiver);
                let _ = thread.join();
            }
        });
    }
}

impl Epoch {
    /// The next mini-batch, `None` after the last; pending where there is none yet.
    fn wait(&self) -> Poll<Option<Result<Made, String>>> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *source {
            Source::Here(maker) => Poll::Ready(maker.next(&self.plan)),
            Source::Closed => Poll::Ready(None),
            Source::Ahead { receiver, received, .. } => match receiver.recv_timeout(PATIENCE) {
                Ok(made) => {
                    *received = if made.is_ok() { *received + 1 } else { self.plan.num_batches() };
                    Poll::Ready(Some(made))
                }
                Err(RecvTimeoutError::Timeout) => Poll::Pending,
                Err(RecvTimeoutError::Disconnected) if *received < self.plan.num_batches() => {
                    *received = self.plan.num_batches();
                    Poll::Ready(Some(Err("preparing a mini-batch panicked, see the line above".into())))
                }
                Err(RecvTimeoutError::Disconnected) => Poll::Ready(None),
            },
        }
    }
}
