//! The mini-batches of one epoch, one after another.
//!
//! Returns: a mini-batch's vertices, its edges and its rows. Input: the number of the epoch. Idea: the seeds in the order of the epoch,
//! cut into runs of the batch size; the sampler of training, layer after layer from the seeds down; the feature rows of all vertices.
//! A mini-batch is a function of (seed, epoch, step), whatever prepared it.

use std::sync::Arc;

use gsplit_kernels::schedule::{Fanouts, Step, epoch_seeds};
use gsplit_kernels::{Draw, EdgeIds, Graph, KernelError, SampledCsc, Sampler, StreamKey};
use gsplit_store::{Dataset, EdgeWeights, FeatureTable};
use rayon::ThreadPool;

use crate::memory::Pool;
use crate::rows::{Classes, Features, Labels, gather};
use crate::subgraph::{Numbering, Subgraph};

/// Plan that all epochs of a loader share.
pub struct Plan {
    pub dataset: Dataset,
    pub fanouts: Fanouts,
    pub seeds: Vec<u32>,
    /// Seeds of a mini-batch, on all ranks.
    pub batch_size: usize,
    /// This rank, and how many there are: each takes its portion of a mini-batch.
    pub rank: usize,
    pub ranks: usize,
    pub drop_last: bool,
    pub shuffle: bool,
    pub seed: u64,
    /// Layers that expand all they have reached, as training does; else each vertex is expanded once.
    pub blocks: bool,
    pub edge_ids: bool,
    pub weights: Option<EdgeWeights>,
    /// With whether rows become f32, whatever they are stored in.
    pub features: Option<(FeatureTable, bool)>,
    pub labels: Option<Labels>,
    pub threads: usize,
    /// Memory for feature rows.
    pub pool: Arc<Pool>,
}

impl Plan {
    /// Mini-batches of an epoch.
    pub fn num_batches(&self) -> usize {
        match self.drop_last {
            true => self.seeds.len() / self.batch_size,
            false => self.seeds.len().div_ceil(self.batch_size),
        }
    }

    /// This rank's portion of a mini-batch, never empty: of fewer seeds than ranks some are taken twice.
    fn portion<'a>(&self, batch: &'a [u32]) -> &'a [u32] {
        let (count, rank) = (batch.len(), self.rank);
        match count < self.ranks {
            true => &batch[rank % count..=rank % count],
            false => &batch[count * rank / self.ranks..count * (rank + 1) / self.ranks],
        }
    }

    /// The graph, where it is mapped.
    pub fn graph(&self) -> Result<Graph<'_>, KernelError> {
        let topology = self.dataset.topology();
        let graph = Graph::new(topology.indptr(), topology.indices())?;
        self.weights.as_ref().map_or(Ok(graph), |weights| graph.with_weights(weights))
    }
}

/// A mini-batch in Rust's memory.
pub struct Made {
    /// All vertices, the seeds first.
    pub vertices: Vec<i64>,
    /// Position of each seed in the list of seeds.
    pub inputs: Vec<i64>,
    /// Its edges.
    pub edges: Edges,
    /// Feature rows of all vertices.
    pub features: Option<Features>,
    /// Labels: of all vertices of a subgraph, of the seeds of blocks.
    pub labels: Option<Classes>,
}

/// The edges of a mini-batch.
pub enum Edges {
    /// One graph.
    Subgraph(Subgraph),
    /// A bipartite graph for each layer, from the seeds down, with the number of vertices that each reads.
    Blocks(Vec<(SampledCsc, usize)>),
}

/// Makes the mini-batches of one epoch.
pub struct Maker {
    epoch: u32,
    step: usize,
    /// Positions in the list of seeds, in the order of the epoch.
    order: Vec<u32>,
    sampler: Sampler,
    numbering: Numbering,
    pool: ThreadPool,
}

impl Maker {
    pub fn new(plan: &Plan, epoch: u32) -> Result<Self, String> {
        let count = u32::try_from(plan.seeds.len()).map_err(|_| "more than 2^32 - 1 seeds".to_string())?;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(plan.threads).thread_name(|_| "gsplit".into()).build();
        let pool = pool.map_err(|error| format!("threads {}: {error}; ask for fewer", plan.threads))?;
        let positions: Vec<u32> = (0..count).collect();
        let order = match plan.shuffle {
            // On the epoch's own threads: rayon's shared ones would be missing in a forked process.
            true => pool.install(|| epoch_seeds(&positions, plan.seed, epoch)).map_err(|error| error.to_string())?,
            false => positions,
        };
        let (sampler, numbering) = (Sampler::new(plan.threads), Numbering::default());
        Ok(Self { epoch, step: 0, order, sampler, numbering, pool })
    }

    /// The next mini-batch, `None` after the last.
    pub fn next(&mut self, plan: &Plan) -> Option<Result<Made, String>> {
        if self.step >= plan.num_batches() {
            return None;
        }
        let Self { epoch, step, order, sampler, numbering, pool } = self;
        let from = *step * plan.batch_size;
        let positions = plan.portion(&order[from..(from + plan.batch_size).min(order.len())]);
        let key = Step { seed: plan.seed, epoch: *epoch, step: *step as u32 };
        let made = pool.install(|| make(plan, positions, key, sampler, numbering));
        *step += 1;
        Some(made.map_err(|error| error.to_string()))
    }
}

fn make(
    plan: &Plan,
    positions: &[u32],
    step: Step,
    sampler: &mut Sampler,
    numbering: &mut Numbering,
) -> Result<Made, KernelError> {
    let graph = plan.graph()?;
    let seeds: Vec<u32> = positions.iter().map(|&position| plan.seeds[position as usize]).collect();
    let (vertices, edges) = match plan.blocks {
        true => {
            let layers = sample_blocks(plan, &graph, &seeds, step, sampler)?;
            (sampler.mixed().to_vec(), Edges::Blocks(layers))
        }
        false => {
            let (vertices, subgraph) = numbering.sample(plan, &graph, seeds, step, sampler)?;
            (vertices, Edges::Subgraph(subgraph))
        }
    };
    let labelled = if plan.blocks { positions.len() } else { vertices.len() };
    Ok(Made {
        inputs: positions.iter().map(|&position| position.into()).collect(),
        features: plan
            .features
            .as_ref()
            .map(|(table, widen)| gather(table, *widen, &vertices, &plan.pool))
            .transpose()?,
        labels: plan.labels.as_ref().map(|labels| labels.of(&vertices[..labelled])),
        vertices: vertices.iter().map(|&v| v.into()).collect(),
        edges,
    })
}

/// Draws of each layer: its key, its in-edges, and whether their ids are kept.
pub fn draws(plan: &Plan, step: Step) -> impl Iterator<Item = (StreamKey, Draw<'static>, EdgeIds<'static>)> {
    let ids = |keep| if keep { EdgeIds::Keep } else { EdgeIds::Drop };
    step.layers(&plan.fanouts).map(move |(key, fanout)| (key, Draw::new(fanout), ids(plan.edge_ids)))
}

fn sample_blocks(
    plan: &Plan,
    graph: &Graph<'_>,
    seeds: &[u32],
    step: Step,
    sampler: &mut Sampler,
) -> Result<Vec<(SampledCsc, usize)>, KernelError> {
    sampler.start(seeds);
    let mut layers = Vec::with_capacity(plan.fanouts.len());
    for (key, draw, ids) in draws(plan, step) {
        let mut layer = SampledCsc::default();
        sampler.layer(graph, &draw, &key, ids, &mut layer)?;
        layers.push((layer, sampler.mixed().len()));
    }
    Ok(layers)
}
