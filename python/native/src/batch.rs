//! The mini-batches of one epoch, one after another.
//!
//! Returns: a mini-batch's vertices, its edges and its rows. Input: the number of the epoch. Idea:
//! cut the seeds, in the epoch's order, into runs of the batch size; sample layer after layer from
//! the seeds down with the sampler of training (`gsplit_sample`), together with the other ranks if
//! there are any; and gather the feature rows of all vertices that this rank loads. A mini-batch
//! depends only on (seed, epoch, step), not on who prepared it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use gsplit_kernels::schedule::{Fanouts, Step, epoch_seeds};
use gsplit_kernels::{Communicator, GpuError, Graph, KernelError, Sampler, Seat};
use gsplit_sample::links::{EdgeBatch, HostPairs};
use gsplit_sample::{Frontiers, HostLayer, HostSample, HostSampler, Ownership, SampleError, Seeds};
use gsplit_store::{Dataset, EdgeWeights, FeatureTable, Reading};
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyValueError};
use pyo3::{Py, PyAny, PyErr};

use crate::links::{EdgePairs, LinkPlan};
use crate::loader::pool_of;
use crate::memory::Pool;
use crate::on_gpu::{Elsewhere, GpuGraph, GpuLayers, GpuSampler};
use crate::rows::{Classes, Labels, Rows, gather};
use crate::subgraph::{Numbering, Subgraph};
use crate::types::{TypedLayer, Types};

/// Plan that all epochs of a loader share.
pub struct Plan {
    pub dataset: Dataset,
    /// Types of vertices, if there are several; requires layers that the host samples, without
    /// held-out edges or cached rows.
    pub types: Option<Types>,
    pub fanouts: Fanouts,
    /// Vertices, or edges as positions in the indices of the graph without the held-out edges.
    pub seeds: Vec<u32>,
    /// Seeds of a mini-batch, on all ranks.
    pub batch_size: usize,
    /// This rank, and the number of ranks.
    pub seat: Seat,
    /// Python function that carries messages, if the ranks sample together; otherwise each takes
    /// its portion of a mini-batch.
    pub exchange: Option<Py<PyAny>>,
    /// Ownership of vertices, if a partition gives it.
    pub split: Option<Split>,
    pub drop_last: bool,
    pub shuffle: bool,
    pub seed: u64,
    /// Whether layers expand all reached vertices, as in training; otherwise each vertex is
    /// expanded once.
    pub blocks: bool,
    pub edge_ids: bool,
    /// Edges that are held out, if any may be.
    pub links: Option<LinkPlan>,
    /// Weights of the graph's edges.
    pub weights: Option<EdgeWeights>,
    /// The graph for a GPU that samples layers; requires that no frontier is split, no edges are
    /// held out and there are no weights.
    pub gpu: Option<Elsewhere<GpuGraph>>,
    pub features: Option<FeatureTable>,
    /// Whether rows become f32, whatever type is stored.
    pub widen: bool,
    /// Whether rows are read from their file, many at a time, instead of the map.
    pub from_disk: bool,
    /// Rows that Python caches, which are not gathered.
    pub cached: Option<Vec<u32>>,
    pub labels: Option<Labels>,
    pub threads: usize,
    /// Memory for feature rows.
    pub pool: Arc<Pool>,
}

/// Ownership of rows: the part of each vertex, and whether layers below the seeds are split by it.
pub struct Split {
    pub owners: Vec<u16>,
    pub is_of_all: bool,
}

impl Plan {
    /// Mini-batches of an epoch.
    pub fn num_batches(&self) -> usize {
        match self.drop_last {
            true => self.seeds.len() / self.batch_size,
            false => self.seeds.len().div_ceil(self.batch_size),
        }
    }

    /// This rank's portion of a mini-batch, never empty: with fewer seeds than ranks, some are
    /// taken twice.
    fn portion<'a>(&self, batch: &'a [u32]) -> &'a [u32] {
        let (count, Seat { rank, size, .. }) = (batch.len(), self.seat);
        match count < size {
            true => &batch[rank % count..=rank % count],
            false => &batch[count * rank / size..count * (rank + 1) / size],
        }
    }

    /// The graph that is drawn from.
    pub fn graph(&self) -> Result<Graph<'_>, KernelError> {
        let topology = self.dataset.topology();
        let graph = match &self.links {
            Some(links) => links.split.graph()?,
            None => Graph::new(topology.indptr(), topology.indices())?,
        };
        let graph = match (topology.rows(), &self.types) {
            (Some(rows), Some(types)) => graph.with_rows(rows, &types.layout)?,
            _ => graph,
        };
        self.weights
            .as_ref()
            .map_or(Ok(graph), |weights| Ok(graph.with_weights(weights)?.correcting()))
    }

    /// The feature table to read from now on: reads from disk belong to one process and epoch.
    pub fn table(&self) -> gsplit_store::Result<Option<FeatureTable>> {
        let table = |mapped: &FeatureTable| match self.from_disk {
            true => mapped.on_disk(&[], None, &Reading::default()),
            false => Ok(mapped.clone()),
        };
        self.features.as_ref().map(table).transpose()
    }

    fn frontiers(&self) -> Frontiers<'_> {
        let layers = self.fanouts.len();
        match &self.split {
            Some(split) => Frontiers::split_below(
                &split.owners,
                layers,
                if split.is_of_all { layers } else { 0 },
            ),
            None => Frontiers::all(Ownership::Mine, layers),
        }
    }
}

/// Error that prevents a mini-batch.
pub enum Problem {
    Data(String),
    /// In the options.
    Options(String),
    /// Between the ranks.
    Ranks(String),
    /// A GPU, and what to do about it.
    Gpu(String, &'static str),
}

impl From<KernelError> for Problem {
    fn from(error: KernelError) -> Self {
        Self::Data(error.to_string())
    }
}

impl From<gsplit_store::Error> for Problem {
    fn from(error: gsplit_store::Error) -> Self {
        Self::Data(error.to_string())
    }
}

impl From<SampleError> for Problem {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::Comm(error) => Self::Ranks(error.to_string()),
            SampleError::Kernel(error) => error.into(),
            SampleError::Links(line) => Self::Options(line),
        }
    }
}

impl From<GpuError> for Problem {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::Input(error) => error.into(),
            GpuError::OutOfMemory { .. } => Self::Gpu(
                error.to_string(),
                "pass topology='pinned' or 'host', or a smaller batch_size",
            ),
            error => {
                Self::Gpu(error.to_string(), "pass topology='host', with which the CPU samples")
            }
        }
    }
}

impl From<Problem> for PyErr {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Data(line) => PyRuntimeError::new_err(line),
            Problem::Options(line) => PyValueError::new_err(line),
            Problem::Ranks(line) => PyConnectionError::new_err(line),
            Problem::Gpu(line, remedy) => PyRuntimeError::new_err((line, remedy)),
        }
    }
}

/// A rank's part of a mini-batch, in Rust's memory.
pub struct Made {
    pub step: u32,
    /// Seeds of all ranks that sample together.
    pub num_seeds: usize,
    /// Vertices whose rows it has; all vertices, seeds first, if the rank samples by itself. Empty
    /// if a GPU has them, or if they are of several types: the lowest layer has them.
    pub vertices: Vec<i64>,
    /// Position of each seed in the list of seeds; empty if ranks sample together.
    pub inputs: Vec<i64>,
    pub edges: Edges,
    /// Pairs of a mini-batch of edges.
    pub pairs: Option<EdgePairs>,
    /// Feature rows of all vertices.
    pub rows: Option<Rows>,
    /// Labels: of all vertices of a subgraph, of the seeds of blocks.
    pub labels: Option<Classes>,
}

/// The edges of a mini-batch.
pub enum Edges {
    /// One graph.
    Subgraph(Subgraph),
    /// A bipartite graph for each layer, from the seeds down, and the vertices that it reads, the
    /// targets first.
    Blocks(Vec<Block>),
    /// Like `Blocks`, between vertices of several types.
    Typed(Vec<TypedLayer>),
    /// Like `Blocks`, in a GPU's memory, with all vertices.
    OnGpu(Arc<Elsewhere<GpuLayers>>),
}

/// Makes a mini-batch of epoch `epoch` for each permit from `granted`, until there are no more.
/// Collective if ranks sample together.
pub fn draw(
    plan: &Plan,
    epoch: u32,
    comm: &dyn Communicator,
    granted: &Receiver<()>,
    made: &Sender<Result<Made, Problem>>,
) -> Result<(), Problem> {
    let count = u32::try_from(plan.seeds.len())
        .map_err(|_| Problem::Data("more than 2^32 - 1 seeds".into()))?;
    let pool = pool_of(Some(plan.threads))?;
    let positions: Vec<u32> = (0..count).collect();
    let order = match plan.shuffle {
        // On the epoch's own threads: rayon's shared ones would be missing in a forked process.
        true => pool.install(|| epoch_seeds(&positions, plan.seed, epoch))?,
        false => positions,
    };
    let mut maker = Maker::new(plan, comm)?;
    for (step, batch) in (0..).zip(order.chunks(plan.batch_size).take(plan.num_batches())) {
        if granted.recv().is_err() {
            break;
        }
        let part = pool.install(|| maker.make(batch, Step { seed: plan.seed, epoch, step }));
        let is_last = part.is_err();
        let is_unwanted = made.send(part).is_err();
        // Nobody may want it any more: where ranks sample together, the others wait for this one's
        // part all the same.
        if is_last || (is_unwanted && plan.exchange.is_none()) {
            break;
        }
    }
    Ok(())
}

/// Makes mini-batches, reusing its memory from one to the next.
struct Maker<'p> {
    plan: &'p Plan,
    comm: &'p dyn Communicator,
    frontiers: Frontiers<'p>,
    table: Option<FeatureTable>,
    sampler: BatchSampler<'p>,
}

/// A sampler for the requested form of mini-batch.
enum BatchSampler<'p> {
    Blocks(HostSampler<'p>),
    Subgraph(Graph<'p>, Box<Sampler>, Numbering),
    OnGpu(Box<GpuSampler<'p>>),
}

impl<'p> Maker<'p> {
    fn new(plan: &'p Plan, comm: &'p dyn Communicator) -> Result<Self, Problem> {
        let (graph, sampler) = (plan.graph()?, Sampler::new(plan.threads));
        let sampler = match (&plan.gpu, plan.blocks, plan.edge_ids) {
            (Some(gpu), ..) => BatchSampler::OnGpu(Box::new(gpu.sampler()?)),
            (_, true, true) => {
                BatchSampler::Blocks(HostSampler::new(sampler, graph).keep_edge_ids())
            }
            (_, true, false) => BatchSampler::Blocks(HostSampler::new(sampler, graph)),
            (_, false, _) => BatchSampler::Subgraph(graph, Box::new(sampler), Numbering::default()),
        };
        Ok(Self { plan, comm, frontiers: plan.frontiers(), table: plan.table()?, sampler })
    }

    /// Makes the mini-batch of the seeds at the positions `batch`, which cover all ranks.
    fn make(&mut self, batch: &[u32], step: Step) -> Result<Made, Problem> {
        let Self { plan, comm, frontiers, table, sampler } = self;
        let at = |positions: &[u32]| {
            positions.iter().map(|&position| plan.seeds[position as usize]).collect()
        };
        let (mut inputs, mut pairs) = (Vec::new(), None);
        let seeds = match (&plan.links, &plan.exchange) {
            (Some(links @ LinkPlan { negatives: Some(negatives), .. }), _) => {
                let edges: Vec<u32> = at(batch);
                let batch =
                    EdgeBatch { edges: &edges, of_group: 0..edges.len(), negatives: *negatives };
                let (seeds, found) =
                    HostPairs::new(&links.split, &batch, step, frontiers.seeds(), *comm)?;
                let mine = &edges[batch.portion(comm.rank(), comm.size())];
                pairs = Some(EdgePairs::new(
                    found,
                    links.in_dataset(mine.iter().copied().map(u64::from).collect()),
                ));
                seeds
            }
            (_, None) => {
                inputs = plan.portion(batch).to_vec();
                Seeds { local: at(&inputs), excluded: None }
            }
            (_, Some(_)) => {
                let global: Vec<u32> = at(batch);
                Seeds::of(&global, frontiers.seeds(), comm.rank(), comm.size())
            }
        };
        let (vertices, labels, edges) = match sampler {
            BatchSampler::Blocks(sampler) => {
                let sample = sampler.sample(seeds, &plan.fanouts, step, frontiers, *comm)?;
                let labels = plan.labels.as_ref().map(|labels| labels.of(sample.frontier(0)));
                if let Some(types) = &plan.types {
                    let (layers, input) = types.layers(sample)?;
                    (input, labels, Edges::Typed(layers))
                } else {
                    let (blocks, input) = blocks(sample, plan.links.as_ref())?;
                    (input, labels, Edges::Blocks(blocks))
                }
            }
            BatchSampler::Subgraph(graph, sampler, numbering) => {
                let (vertices, subgraph) =
                    numbering.sample(plan, graph, seeds.local, step, sampler)?;
                let labels = plan.labels.as_ref().map(|labels| labels.of(&vertices));
                (vertices, labels, Edges::Subgraph(subgraph))
            }
            BatchSampler::OnGpu(sampler) => {
                let (vertices, layers) = sampler.sample(&seeds.local, &plan.fanouts, step)?;
                let labels = plan.labels.as_ref().map(|labels| labels.of(&seeds.local));
                (vertices, labels, Edges::OnGpu(layers))
            }
        };
        let gathered =
            |table| gather(table, plan.widen, plan.cached.as_deref(), &vertices, &plan.pool);
        let rows = table.as_ref().map(gathered);
        Ok(Made {
            step: step.step,
            num_seeds: batch.len(),
            vertices: match (&plan.gpu, &plan.types) {
                (None, None) => wide(&vertices),
                _ => Vec::new(),
            },
            inputs: wide(&inputs),
            edges,
            pairs,
            rows: rows.transpose()?,
            labels,
        })
    }
}

/// A layer and the vertices that it reads.
type Block = (HostLayer, Vec<i64>);

/// The layers of `sample`, from the seeds down, with the vertices that they read, and the vertices
/// whose rows are loaded.
fn blocks(sample: HostSample, links: Option<&LinkPlan>) -> Result<(Vec<Block>, Vec<u32>), Problem> {
    let read: Vec<_> = (0..sample.layers.len()).map(|depth| wide(sample.read(depth))).collect();
    let block = |(mut layer, src): Block| {
        check_size(layer.edges.num_edges().max(src.len()))?;
        if let Some(links) = links {
            layer.edge_ids = links.in_dataset(layer.edge_ids);
        }
        Ok((layer, src))
    };
    Ok((
        sample.layers.into_iter().zip(read).map(block).collect::<Result<_, Problem>>()?,
        sample.input,
    ))
}

/// Refuses a layer whose positions are not int32.
pub fn check_size(most: usize) -> Result<(), Problem> {
    let large =
        |_| Problem::Data("a layer of 2^31 edges or more: ask for smaller mini-batches".into());
    i32::try_from(most).map(drop).map_err(large)
}

pub fn wide(numbers: &[u32]) -> Vec<i64> {
    numbers.iter().map(|&number| number.into()).collect()
}
