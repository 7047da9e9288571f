//! Objects that Python holds: a loader, and its epochs, which are iterators.
//!
//! A thread makes the mini-batches of an epoch, one per permit. With `prefetch` above 0, `prefetch`
//! permits are given before Python asks for the first mini-batch, and one more for each that it
//! takes; with 0, one whenever it asks. The mini-batches are the same. Threads begin and end with
//! an epoch, so a loader can be copied into another process by `fork`.
//!
//! If ranks sample together, permits depend on the number of mini-batches taken, which is equal on
//! all ranks: if all leave an epoch early, their threads have taken part in the same exchanges, and
//! the next epoch finds the group unchanged.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use gsplit_kernels::schedule::Fanouts;
use gsplit_kernels::{Communicator, Graph, KernelError, Seat, Solo, lock};
use gsplit_store::Dataset;
use numpy::{PyArray2, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::arrays::{Batch, feature_rows, in_two};
use crate::batch::{Made, Plan, Problem, Split, draw};
use crate::carried::Carried;
use crate::links::{HeldOutEdges, LinkPlan};
use crate::memory::Pool;
use crate::on_gpu::{Elsewhere, GpuGraph};
use crate::rows::{Labels, Rows, cache_places, gather};
use crate::types::Types;

/// Interval at which Python checks for Ctrl-C while it waits for a mini-batch.
const PATIENCE: Duration = Duration::from_millis(100);

/// Draws the mini-batches of a dataset.
#[pyclass(frozen, module = "gsplit._native")]
pub struct Loader {
    plan: Arc<Plan>,
    prefetch: usize,
    /// The last epoch, if ranks sample together: there is one at a time.
    last: Mutex<Option<Arc<Drawing>>>,
}

/// The thread of an epoch, and the sender of its permits.
struct Drawing {
    permits: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drawing {
    /// Lets the thread make one more mini-batch.
    fn permit(&self) {
        if let Some(permits) = &*lock(&self.permits) {
            let _ = permits.send(());
        }
    }

    /// Ends the thread: after all permitted mini-batches, or, if nobody receives them, after the
    /// current one.
    fn end(&self) {
        *lock(&self.permits) = None;
        let thread = lock(&self.thread).take();
        let _ = thread.map(JoinHandle::join);
    }
}

#[pymethods]
impl Loader {
    /// A loader of rank `rank` of `ranks`. With `exchange`, ranks sample together: `owners`, the
    /// part of each vertex, deals the seeds if it is given, and with `split` all vertices. Without
    /// `exchange`, each rank has its portion of a mini-batch.
    ///
    /// With `held_out`, the graph lacks these edges. With `negatives` too, mini-batches are of the
    /// other edges instead of `seeds`, each with `negatives` pairs that are not edges.
    ///
    /// GPU `gpu` samples from the graph in its memory or in `pinned` host memory: unsplit layers of
    /// the whole graph, without weights.
    ///
    /// `allocate` makes the float32 arrays for feature rows, given a number of values; nothing else
    /// may use them.
    #[new]
    #[pyo3(signature = (path, fanouts, seeds, *, batch_size, drop_last, shuffle, seed, blocks, edge_ids, draw_by, features, load_features, from_disk, widen, labels, threads, prefetch, rank = 0, ranks = 1, owners = None, split = false, exchange = None, cached = None, held_out = None, negatives = None, gpu = None, pinned = false, allocate = None))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        fanouts: &str,
        seeds: Option<PyReadonlyArray1<'_, u32>>,
        batch_size: usize,
        drop_last: bool,
        shuffle: bool,
        seed: u64,
        blocks: bool,
        edge_ids: bool,
        draw_by: Option<String>,
        features: bool,
        load_features: bool,
        from_disk: bool,
        widen: bool,
        labels: bool,
        threads: Option<usize>,
        prefetch: usize,
        rank: usize,
        ranks: usize,
        owners: Option<PyReadonlyArray1<'_, u16>>,
        split: bool,
        exchange: Option<Py<PyAny>>,
        cached: Option<PyReadonlyArray1<'_, u32>>,
        held_out: Option<HeldOutEdges>,
        negatives: Option<usize>,
        gpu: Option<usize>,
        pinned: bool,
        allocate: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let fanouts: Fanouts = fanouts
            .parse()
            .map_err(|error: KernelError| PyValueError::new_err(error.to_string()))?;
        let seeds = seeds.map(|seeds| seeds.as_slice().map(<[u32]>::to_vec)).transpose()?;
        let owners = owners.map(|owners| owners.as_slice().map(<[u16]>::to_vec)).transpose()?;
        let cached = cached.map(|cached| cached.as_slice().map(<[u32]>::to_vec)).transpose()?;
        let threads = threads.unwrap_or_else(all_threads);
        let plan = py.detach(|| -> Result<Plan, Problem> {
            // Not on rayon's shared threads, as in an epoch.
            pool_of(Some(threads))?.install(|| {
                let dataset = Dataset::open_unchecked(&path)?;
                if !blocks || held_out.is_some() || gpu.is_some() || cached.is_some() {
                    dataset.expect_one_type("the loader")?;
                }
                let types = dataset.types().map(Types::new).transpose()?;
                let layout = types.as_ref().map(|types| &types.layout);
                fanouts.check(layout).map_err(|error| Problem::Options(error.to_string()))?;
                dataset.topology().check_indices()?;
                let mut weights =
                    draw_by.map(|column| dataset.edge_weights(&column)).transpose()?;
                let mut links =
                    held_out.map(|edges| LinkPlan::new(&dataset, edges, negatives)).transpose()?;
                let trained = links.as_mut().map(|links| {
                    weights = weights.take().map(|weights| links.weights(weights));
                    std::mem::take(&mut links.split.train)
                });
                let seeds = seeds.or(trained).unwrap_or_default();
                let mut table = match &types {
                    _ if !features => None,
                    Some(_) => Some(dataset.held_features()?),
                    None => Some(dataset.features()?),
                };
                let num_tables = table.as_ref().map_or(1, |table| table.by_type().len());
                if let (true, Some(mapped)) = (load_features, &table) {
                    let problem = |error| {
                        gsplit_store::Error::Invalid(format!(
                            "load_features: {error}; leave it out"
                        ))
                    };
                    table = Some(mapped.in_memory().map_err(problem)?);
                }
                let gpu = gpu.map(|ordinal| {
                    let graph =
                        Graph::new(dataset.topology().indptr(), dataset.topology().indices())?;
                    GpuGraph::new(ordinal, pinned, &graph).map(Elsewhere::new)
                });
                let labels = match (labels, dataset.manifest().multi_label) {
                    (false, _) => None,
                    (true, false) if dataset.manifest().numeric_label => {
                        Some(Labels::Number(dataset.numeric_labels()?))
                    }
                    (true, false) => Some(Labels::One(dataset.labels()?)),
                    (true, true) => Some(Labels::Several(dataset.multi_labels()?)),
                };
                Ok(Plan {
                    fanouts,
                    seeds,
                    batch_size,
                    seat: Seat::among_all(rank, ranks),
                    exchange,
                    split: owners.map(|owners| Split { owners, is_of_all: split }),
                    drop_last,
                    shuffle,
                    seed,
                    blocks,
                    edge_ids,
                    links,
                    weights,
                    gpu: gpu.transpose()?,
                    features: table,
                    widen,
                    from_disk,
                    cached: cached
                        .map(|vertices| cache_places(&vertices, dataset.topology().num_vertices())),
                    dataset,
                    types,
                    labels,
                    threads,
                    // Arrays that Python shows, and others that it is about to drop.
                    pool: Arc::new(Pool::new((prefetch + 2) * num_tables, allocate)),
                })
            })
        });
        Ok(Self { plan: Arc::new(plan?), prefetch, last: Mutex::default() })
    }

    /// Mini-batches of an epoch.
    fn __len__(&self) -> usize {
        self.plan.num_batches()
    }

    /// Feature rows of `vertices`, of each type that has any, and whether they hold the bits of
    /// bf16.
    fn rows(
        &self,
        py: Python<'_>,
        vertices: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Vec<(Py<PyAny>, bool)>> {
        let (vertices, pool) = (vertices.as_slice()?.to_vec(), Arc::new(Pool::new(0, None)));
        let Rows { features, .. } = py.detach(|| match self.plan.table()? {
            Some(table) => gather(&table, self.plan.widen, None, &vertices, &pool),
            None => Err(Problem::Data("no features are read".into())),
        })?;
        feature_rows(py, features, &pool)
    }

    /// Pairs held out for `split`, valid or test: int64 `[2, pairs]`.
    fn held_out<'py>(&self, py: Python<'py>, split: &str) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let links = self
            .plan
            .links
            .as_ref()
            .ok_or_else(|| PyValueError::new_err("no edges are held out"))?;
        let pairs = match split {
            "valid" => &links.split.valid,
            "test" => &links.split.test,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "split '{split}', expected valid or test"
                )));
            }
        };
        let (sources, targets) = (pairs.iter().map(|pair| pair.0), pairs.iter().map(|pair| pair.1));
        in_two(py, sources.chain(targets).map(i64::from).collect())
    }

    /// The mini-batches of epoch `number`, in order. Collective if ranks sample together.
    fn epoch(&self, py: Python<'_>, number: u32) -> PyResult<Epoch> {
        self.end(py);
        let plan = Arc::clone(&self.plan);
        let (permits, granted) = channel();
        let (sender, made) = channel();
        let comm: Box<dyn Communicator + Send> = match &plan.exchange {
            Some(exchange) => Box::new(Carried::new(plan.seat, exchange.clone_ref(py))),
            None => Box::new(Solo),
        };
        let drawn = Arc::clone(&plan);
        let work = move || {
            if let Err(problem) = draw(&drawn, number, &*comm, &granted, &sender) {
                let _ = sender.send(Err(problem));
            }
        };
        let thread = std::thread::Builder::new().name("gsplit-loader".into()).spawn(work);
        let thread = thread.map_err(|error| {
            PyRuntimeError::new_err(format!("no thread for the loader: {error}"))
        })?;
        let drawing = Arc::new(Drawing {
            permits: Mutex::new(Some(permits)),
            thread: Mutex::new(Some(thread)),
        });
        (0..self.prefetch).for_each(|_| drawing.permit());
        if plan.exchange.is_some() {
            *lock(&self.last) = Some(Arc::clone(&drawing));
        }
        let under_way = Mutex::new(UnderWay { made: Some(made), left: plan.num_batches() });
        Ok(Epoch { plan, is_ahead: self.prefetch > 0, under_way, drawing })
    }

    /// Ends the epoch under way of ranks that sample together.
    fn end(&self, py: Python<'_>) {
        let last = lock(&self.last).take();
        py.detach(|| last.iter().for_each(|drawing| drawing.end()));
    }
}

/// Threads of this machine.
fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `threads` threads, by default as many as the machine has.
pub fn pool_of(threads: Option<usize>) -> Result<ThreadPool, Problem> {
    let threads = threads.unwrap_or_else(all_threads);
    let pool =
        ThreadPoolBuilder::new().num_threads(threads).thread_name(|_| "gsplit".into()).build();
    pool.map_err(|error| Problem::Data(format!("threads {threads}: {error}; ask for fewer")))
}

/// The mini-batches of an epoch.
#[pyclass(frozen, module = "gsplit._native")]
pub struct Epoch {
    plan: Arc<Plan>,
    is_ahead: bool,
    under_way: Mutex<UnderWay>,
    drawing: Arc<Drawing>,
}

struct UnderWay {
    /// `None` once the epoch is closed.
    made: Option<Receiver<Result<Made, Problem>>>,
    /// Number of mini-batches still to come.
    left: usize,
}

#[pymethods]
impl Epoch {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if !self.is_ahead {
            self.drawing.permit();
        }
        loop {
            match py.detach(|| self.wait()) {
                Poll::Ready(Some(made)) => {
                    if self.is_ahead {
                        self.drawing.permit();
                    }
                    return Batch::new(py, made?, &self.plan).map(Some);
                }
                Poll::Ready(None) => return Ok(None),
                Poll::Pending => py.check_signals()?,
            }
        }
    }

    /// Ends the epoch and its thread; if ranks sample together, after the mini-batches in progress
    /// on all of them.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            lock(&self.under_way).made = None;
            self.drawing.end();
        });
    }
}

impl Epoch {
    /// The next mini-batch, `None` after the last; pending if it is not ready yet.
    fn wait(&self) -> Poll<Option<Result<Made, Problem>>> {
        let mut under_way = lock(&self.under_way);
        let UnderWay { made: Some(receiver), left: 1.. } = &*under_way else {
            return Poll::Ready(None);
        };
        let made = match receiver.recv_timeout(PATIENCE) {
            Ok(made) => made,
            Err(RecvTimeoutError::Timeout) => return Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => {
                Err(Problem::Data("preparing a mini-batch panicked, see the line above".into()))
            }
        };
        under_way.left = if made.is_ok() { under_way.left - 1 } else { 0 };
        Poll::Ready(Some(made))
    }
}
