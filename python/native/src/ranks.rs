//! Mini-batches of one rank of several, each in a process of its own: what `gsplit.torch.SplitLoader` is made of.
//!
//! Returns: a rank's layers, with the rows that move below each, its feature rows and its labels. Idea: the sampler of training
//! (`gsplit_sample`), whose messages a Python function carries: PyTorch's `all_to_all_single`, on a group of its own. A thread makes the
//! mini-batches ahead, one for each permit. Permits follow from how many mini-batches were taken, which is equal on all ranks: where all
//! leave an epoch early, their threads have taken part in the same exchanges, and the next epoch finds the group as it was.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;

use gsplit_kernels::schedule::{Step, epoch_seeds};
use gsplit_kernels::{CommError, Limit, Messages, Sampler, exchange_in_place};
use gsplit_sample::{Frontiers, HostLayer, HostSample, HostSampler, Ownership, SampleError, Seeds};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::ThreadPool;

use crate::arrays::{classes, feature_rows, signed};
use crate::batch::Plan;
use crate::loader::{Loader, PATIENCE};
use crate::rows::{Classes, Features, Kind, gather};

/// A rank among its group.
#[derive(Clone, Copy)]
struct Place {
    rank: usize,
    size: usize,
}

/// Messages between the ranks, by a function of Python's: `exchange(bytes, lengths to each rank, lengths from each
/// rank)`, which returns the bytes that came.
struct Carried {
    place: Place,
    exchange: Option<Py<PyAny>>,
    limit: Limit,
    failed: Mutex<Option<CommError>>,
}

impl Carried {
    fn carry(&self, send: Vec<u8>, to: Vec<usize>, recv: &mut [u8], from: Vec<usize>) -> PyResult<()> {
        let Some(exchange) = &self.exchange else {
            recv.copy_from_slice(&send);
            return Ok(());
        };
        Python::attach(|py| {
            let came = exchange.call1(py, (send.into_pyarray(py), to, from))?;
            let came: PyReadonlyArray1<'_, u8> = came.extract(py)?;
            let came = came.as_slice()?;
            if came.len() != recv.len() {
                let problem = format!("exchange returned {} bytes, expected {}", came.len(), recv.len());
                return Err(PyValueError::new_err(problem));
            }
            recv.copy_from_slice(came);
            Ok(())
        })
    }
}

impl Messages for Carried {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn size(&self) -> usize {
        self.place.size
    }

    fn name(&self, rank: usize) -> usize {
        rank
    }

    fn exchange<'a>(
        &self,
        called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        exchange_in_place(self, called, outgoing, expected, incoming)
    }

    fn exchange_into<'a>(
        &self,
        _called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        recv: &mut [u8],
    ) -> Result<(), CommError> {
        if let Some(failed) = self.failed() {
            return Err(failed);
        }
        let ranks = 0..self.place.size;
        let send: Vec<u8> = ranks.clone().flat_map(outgoing).copied().collect();
        let to = ranks.clone().map(|rank| outgoing(rank).len()).collect();
        self.carry(send, to, recv, ranks.map(expected).collect()).map_err(|error| {
            let said = Python::attach(|py| error.value(py).to_string());
            let line = said.lines().next().unwrap_or_default();
            CommError::Start { reason: format!("rank {}, which samples with the others: {line}", self.place.rank) }
        })
    }

    fn limit(&self) -> &Limit {
        &self.limit
    }

    fn failed(&self) -> Option<CommError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The others learn it from PyTorch, when this process ends or their time is over.
    fn leave(&self, reason: &str) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| CommError::PeerFailed { rank: self.place.rank, reason: reason.to_string() });
    }
}

/// A reason why there is no mini-batch.
enum Problem {
    Data(String),
    /// Between the ranks.
    Ranks(String),
}

impl From<SampleError> for Problem {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::Comm(error) => Self::Ranks(error.to_string()),
            error => Self::Data(error.to_string()),
        }
    }
}

impl From<Problem> for PyErr {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Data(line) => PyRuntimeError::new_err(line),
            Problem::Ranks(line) => PyConnectionError::new_err(line),
        }
    }
}

/// A rank's part of a mini-batch, in Rust's memory.
struct Part {
    step: u32,
    num_seeds: usize,
    sample: HostSample,
    features: Option<Features>,
    labels: Option<Classes>,
}

/// Ownership of rows: the part of each vertex, and whether layers below the seeds are split by it.
#[derive(Clone)]
struct Split {
    owners: Arc<Vec<u16>>,
    is_of_all: bool,
}

/// Draws one rank's mini-batches.
#[pyclass(frozen, module = "gsplit._native")]
pub struct RankLoader {
    plan: Arc<Plan>,
    place: Place,
    split: Option<Split>,
    exchange: Option<Py<PyAny>>,
    prefetch: usize,
    /// The last epoch.
    last: Mutex<Option<Arc<Drawing>>>,
}

/// The thread of an epoch, and what lets it go on.
struct Drawing {
    permits: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drawing {
    /// Lets the thread make one more.
    fn permit(&self) {
        if let Some(permits) = &*self.permits.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = permits.send(());
        }
    }

    /// Ends the thread, once the mini-batches that are under way on all ranks are done.
    fn end(&self, py: Python<'_>) {
        *self.permits.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| thread.map(JoinHandle::join));
    }
}

#[pymethods]
impl RankLoader {
    /// For rank `rank` of `size`: what `loader` draws. `owners` is the part of each vertex, by which seeds are dealt, and with `split` all
    /// vertices.
    #[new]
    #[pyo3(signature = (loader, *, rank, size, owners, split, exchange, prefetch))]
    fn new(
        loader: &Loader,
        rank: usize,
        size: usize,
        owners: Option<PyReadonlyArray1<'_, u16>>,
        split: bool,
        exchange: Option<Py<PyAny>>,
        prefetch: usize,
    ) -> PyResult<Self> {
        let owners = owners.map(|owners| owners.as_slice().map(<[u16]>::to_vec)).transpose()?;
        let split = owners.map(|owners| Split { owners: Arc::new(owners), is_of_all: split });
        Ok(Self { plan: loader.plan(), place: Place { rank, size }, split, exchange, prefetch, last: Mutex::default() })
    }

    /// The mini-batches of epoch `number`, in order. Collective.
    fn epoch(&self, py: Python<'_>, number: u32) -> PyResult<RankEpoch> {
        self.end(py);
        let (permits, granted) = channel();
        let (sender, parts) = channel();
        let comm = Carried {
            place: self.place,
            exchange: self.exchange.as_ref().map(|exchange| exchange.clone_ref(py)),
            limit: Limit::new(None),
            failed: Mutex::default(),
        };
        let (plan, split) = (Arc::clone(&self.plan), self.split.clone());
        let work = move || {
            if let Err(problem) = draw(&plan, split.as_ref(), number, &comm, &granted, &sender) {
                let _ = sender.send(Err(problem));
            }
        };
        let thread = std::thread::Builder::new().name("gsplit-loader".into()).spawn(work);
        let thread = thread.map_err(|error| PyRuntimeError::new_err(format!("no thread for the loader: {error}")))?;
        let drawing = Arc::new(Drawing { permits: Mutex::new(Some(permits)), thread: Mutex::new(Some(thread)) });
        (0..self.prefetch).for_each(|_| drawing.permit());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&drawing));
        let under_way = UnderWay { parts, left: self.plan.num_batches() };
        let is_ahead = self.prefetch > 0;
        Ok(RankEpoch { plan: Arc::clone(&self.plan), is_ahead, under_way: Mutex::new(under_way), drawing })
    }

    /// Ends the epoch under way.
    fn end(&self, py: Python<'_>) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        last.iter().for_each(|drawing| drawing.end(py));
    }
}

/// Draws a mini-batch for each permit that is `granted`, until there are no more.
fn draw(
    plan: &Plan,
    split: Option<&Split>,
    epoch: u32,
    comm: &Carried,
    granted: &Receiver<()>,
    parts: &Sender<Result<Part, Problem>>,
) -> Result<(), Problem> {
    let data = |error: String| Problem::Data(error);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(plan.threads).thread_name(|_| "gsplit".into()).build();
    let pool = pool.map_err(|error| data(format!("threads {}: {error}; ask for fewer", plan.threads)))?;
    let order = match plan.shuffle {
        true => pool.install(|| epoch_seeds(&plan.seeds, plan.seed, epoch)).map_err(|error| data(error.to_string()))?,
        false => plan.seeds.clone(),
    };
    let layers = plan.fanouts.len();
    let frontiers = match split {
        Some(split) => Frontiers::split_below(&split.owners, layers, if split.is_of_all { layers } else { 0 }),
        None => Frontiers::all(Ownership::Mine, layers),
    };
    let graph = plan.graph().map_err(|error| data(error.to_string()))?;
    let mut sampler = HostSampler::new(Sampler::new(plan.threads), graph);
    if plan.edge_ids {
        sampler = sampler.keep_edge_ids();
    }
    let batches = order.chunks(plan.batch_size).take(plan.num_batches());
    for (step, global) in (0..).zip(batches) {
        if granted.recv().is_err() {
            break;
        }
        let key = Step { seed: plan.seed, epoch, step };
        let part = part(plan, &frontiers, (key, global), comm, (&mut sampler, &pool));
        let is_last = part.is_err();
        // Nobody may want it any more: the other ranks wait for this one's part in it all the same.
        let _ = parts.send(part);
        if is_last {
            break;
        }
    }
    Ok(())
}

fn part(
    plan: &Plan,
    frontiers: &Frontiers<'_>,
    (step, global): (Step, &[u32]),
    comm: &Carried,
    (sampler, pool): (&mut HostSampler<'_>, &ThreadPool),
) -> Result<Part, Problem> {
    let seeds = Seeds::of(global, frontiers.seeds(), comm.place.rank, comm.place.size);
    pool.install(|| {
        let sample = sampler.sample(seeds, &plan.fanouts, step, frontiers, comm)?;
        let features = plan.features.as_ref().map(|(table, widen)| gather(table, *widen, &sample.input, &plan.pool));
        let features = features.transpose().map_err(|error| Problem::Data(error.to_string()))?;
        let labels = plan.labels.as_ref().map(|labels| labels.of(sample.frontier(0)));
        Ok(Part { step: step.step, num_seeds: global.len(), sample, features, labels })
    })
}

/// The mini-batches of an epoch.
#[pyclass(frozen, module = "gsplit._native")]
pub struct RankEpoch {
    plan: Arc<Plan>,
    is_ahead: bool,
    under_way: Mutex<UnderWay>,
    drawing: Arc<Drawing>,
}

struct UnderWay {
    parts: Receiver<Result<Part, Problem>>,
    /// Mini-batches that are to come.
    left: usize,
}

#[pymethods]
impl RankEpoch {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<RankBatch>> {
        if !self.is_ahead {
            self.drawing.permit();
        }
        loop {
            match py.detach(|| self.wait()) {
                Poll::Ready(Some(part)) => {
                    if self.is_ahead {
                        self.drawing.permit();
                    }
                    return RankBatch::new(py, part?, &self.plan).map(Some);
                }
                Poll::Ready(None) => return Ok(None),
                Poll::Pending => py.check_signals()?,
            }
        }
    }

    /// Ends the epoch, once the mini-batches that are under way on all ranks are done.
    fn close(&self, py: Python<'_>) {
        self.drawing.end(py);
    }
}

impl RankEpoch {
    /// The next mini-batch, `None` after the last; pending where there is none yet.
    fn wait(&self) -> Poll<Option<Result<Part, Problem>>> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.left == 0 {
            return Poll::Ready(None);
        }
        let part = match under_way.parts.recv_timeout(PATIENCE) {
            Ok(part) => part,
            Err(RecvTimeoutError::Timeout) => return Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => {
                Err(Problem::Data("preparing a mini-batch panicked, see the line above".into()))
            }
        };
        under_way.left = if part.is_ok() { under_way.left - 1 } else { 0 };
        Poll::Ready(Some(part))
    }
}

/// A rank's part of a mini-batch.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct RankBatch {
    /// Number in the epoch.
    step: u32,
    /// Seeds of all ranks.
    num_seeds: usize,
    /// int64: this rank's seeds.
    seeds: Py<PyArray1<i64>>,
    /// int64: the vertex of each feature row.
    n_id: Py<PyArray1<i64>>,
    /// Layers, the one that reads features first.
    layers: Vec<Py<RankLayer>>,
    /// Feature rows.
    x: Option<Py<PyAny>>,
    /// Whether `x` holds the bits of bf16.
    bf16: bool,
    /// Labels of the seeds.
    y: Option<Py<PyAny>>,
}

/// A layer of a rank.
#[pyclass(frozen, get_all, module = "gsplit._native")]
pub struct RankLayer {
    /// int64 [targets + 1].
    indptr: Py<PyArray1<i64>>,
    /// int64 [edges]: rows of what the layer reads.
    indices: Py<PyArray1<i64>>,
    /// int64 [edges], if asked for.
    e_id: Option<Py<PyArray1<i64>>>,
    /// float32 [edges]: factors of edges that were drawn by weight.
    factors: Option<Py<PyArray1<f32>>>,
    /// int64: the vertex of each row that the layer computes.
    dst: Py<PyArray1<i64>>,
    /// int64: the vertex of each row that the layer reads.
    src: Py<PyArray1<i64>>,
    /// int64: the rows of the layer below that go to other ranks, by rank; `None` where nothing moves.
    asked: Option<Py<PyArray1<i64>>>,
    /// Rows to each rank.
    sent: Vec<usize>,
    /// Rows from each rank.
    received: Vec<usize>,
}

fn wide(py: Python<'_>, numbers: &[u32]) -> Py<PyArray1<i64>> {
    numbers.iter().map(|&number| i64::from(number)).collect::<Vec<i64>>().into_pyarray(py).unbind()
}

impl RankBatch {
    fn new(py: Python<'_>, part: Part, plan: &Plan) -> PyResult<Self> {
        let Part { step, num_seeds, sample, features, labels } = part;
        let (seeds, n_id) = (wide(py, sample.frontier(0)), wide(py, &sample.input));
        let reads: Vec<_> = (0..sample.layers.len()).map(|depth| wide(py, sample.read(depth))).collect();
        let layers = sample.layers.into_iter().zip(reads).rev();
        Ok(Self {
            step,
            num_seeds,
            seeds,
            n_id,
            layers: layers
                .map(|(layer, src)| Py::new(py, RankLayer::new(py, layer, src, plan)))
                .collect::<PyResult<_>>()?,
            bf16: features.as_ref().is_some_and(|features| features.kind == Kind::Bf16),
            x: features.map(|features| feature_rows(py, features, &plan.pool)).transpose()?,
            y: labels.map(|labels| classes(py, labels)).transpose()?,
        })
    }
}

impl RankLayer {
    fn new(py: Python<'_>, layer: HostLayer, src: Py<PyArray1<i64>>, plan: &Plan) -> Self {
        let HostLayer { frontier, edges, factors, edge_ids, exchange, .. } = layer;
        let (asked, sent, received) = match exchange {
            Some(exchange) => (Some(wide(py, &exchange.asked)), exchange.counts.send, exchange.counts.receive),
            None => (None, Vec::new(), Vec::new()),
        };
        Self {
            indptr: wide(py, edges.indptr()),
            indices: wide(py, edges.sources()),
            e_id: plan.edge_ids.then(|| signed(py, edge_ids)),
            factors: (!factors.is_empty()).then(|| factors.into_pyarray(py).unbind()),
            dst: wide(py, &frontier),
            src,
            asked,
            sent,
            received,
        }
    }
}
