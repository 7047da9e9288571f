//! Pre-sampling: the training sampler run for a few epochs, to learn how often training touches
//! each vertex and edge.
//!
//! Returns: the four counters of [`gsplit_store::Counters`], stored under a key. Input: a dataset
//! with a training split. Idea: the mini-batches are drawn as training draws them
//! ([`gsplit_kernels::schedule`]), in epochs of their own, and their edges are counted as they are
//! drawn. All threads work on one mini-batch, so that no two ever count the same thing at a time.
//! Source: GSplit, section 4 (splitting algorithm, pre-sampling). Its weight of a vertex is
//! `appear` / batches, where a vertex appears once for each layer it is in: among the seeds, and in
//! the mixed frontier of every layer below. A mixed frontier holds the frontier above it, because a
//! layer computes a vertex from its own row as well as from its neighbours'; a seed of an L-layer
//! model thus appears L + 1 times. Its weight of an edge is `edge` / batches. Cost: that of
//! sampling; 12 bytes a vertex and 4 an edge, and one batch. On a GPU (`gpu.rs`) the same counters.

mod gpu;
mod links;

use std::time::Instant;

use gsplit_kernels::schedule::{FIRST_PRESAMPLE_EPOCH, Fanouts, Step, epoch_seeds};
use gsplit_kernels::{
    CounterParts, Counters, Draw, EdgeIds, ExcludedEdges, Gpu, Graph, RowLayout, SampledCsc,
    Sampler,
};
use gsplit_store::memory::resident;
use gsplit_store::staging::{self, Staging};
use gsplit_store::{
    Dataset, MadeFrom, Presample, PresampleConfig, Progress, Split, Stage, Unit, stored_key,
};

use crate::memory::{Memory, shown};
use crate::{Error, Result};
use gpu::Topology;

/// Bytes of the counters of a vertex: loads, appearances, work.
const VERTEX_COUNTERS: u64 = 12;
/// Bytes of the counter of an edge.
const EDGE_COUNTER: u64 = 4;

/// Options of the mini-batches to sample.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct Options {
    /// In-neighbours sampled for a vertex at each layer, from the seeds downwards; `all` takes
    /// every one. Relations may have their own: `10+cites=5,10`
    #[cfg_attr(feature = "cli", arg(long, value_name = "F1,F2,..", default_value = "15,10,5"))]
    pub fanouts: Fanouts,
    /// Seeds of a mini-batch
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..)))]
    pub batch_size: u64,
    /// Passes over the training vertices, or edges with --task link; GSplit found ten to be enough
    /// [default: 10, of edges 1]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = 10, default_value_if("task", "link", "1"), hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..1 << 31)))]
    pub epochs: u32,
    /// Seed of all draws
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub seed: u64,
    /// Draw in-neighbours with probabilities that grow with this edge column, e.g. `weight`,
    /// without replacement; edges of 0 never [default: all alike]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COLUMN"))]
    pub draw_by: Option<String>,
    /// Task of the training: mini-batches consist of training vertices, or of the ends of edges and
    /// of negative pairs
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = Task::Node))]
    pub task: Task,
    /// Negative pairs drawn for each edge of a mini-batch, with --task link
    #[cfg_attr(feature = "cli", arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000)))]
    pub negatives: u32,
    /// Memory limit of the counters: 4GiB, 50% of the machine's; a graph whose counters take more
    /// is refused. Edges that do not fit as well are read as they are drawn [default: four fifths
    /// of the free memory]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE"))]
    pub memory: Option<Memory>,
}

/// Task of a training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Task {
    /// Labels of vertices
    #[default]
    Node,
    /// Links: the dataset's own training links, else all edges
    Link,
}

impl Options {
    /// The default key under which the counters are stored, e.g. `f15-10-5_b1024_e10_s0`.
    pub fn default_key(&self) -> String {
        let fanouts = self.fanouts.to_string().replace(',', "-").replace(['+', '=', '/'], ".");
        let by = self.draw_by.as_ref().map(|column| format!("_by-{column}")).unwrap_or_default();
        let links =
            self.negatives().map(|negatives| format!("_links{negatives}")).unwrap_or_default();
        format!("f{fanouts}_b{}_e{}_s{}{by}{links}", self.batch_size, self.epochs, self.seed)
    }

    /// These options as they are stored with the counters.
    pub fn config(&self) -> PresampleConfig {
        PresampleConfig {
            fanouts: self.fanouts.to_string(),
            batch_size: self.batch_size,
            epochs: self.epochs,
            seed: self.seed,
            draw_by: self.draw_by.clone(),
            negatives: self.negatives(),
        }
    }

    /// Number of negative pairs per edge, for link tasks.
    fn negatives(&self) -> Option<u32> {
        (self.task == Task::Link).then_some(self.negatives)
    }

    /// Seeds or edges of a mini-batch, of `items` in all.
    fn batch_of(&self, items: usize) -> usize {
        usize::try_from(self.batch_size).unwrap_or(usize::MAX).min(items)
    }

    /// Bytes that the counters of a graph leave free. Refuses a graph whose counters do not fit,
    /// before allocating them.
    fn memory_beside_counters(&self, vertices: usize, edges: usize) -> Result<u64> {
        let memory = self.memory.unwrap_or_else(Memory::free);
        let needed = VERTEX_COUNTERS * vertices as u64 + EDGE_COUNTER * edges as u64;
        if needed <= memory.left() {
            return Ok(memory.left() - needed);
        }
        let (least, [needed, budget]) =
            ((needed + resident()).div_ceil(1 << 20), [needed, memory.total()].map(shown));
        Err(Error::Option(format!(
            "--memory: counters of {vertices} vertices and {edges} edges take {needed}, and \
             {budget} are the budget: pass --memory {least}MiB or more"
        )))
    }

    fn check(&self) -> Result<()> {
        match self.batch_size > 0 && self.epochs > 0 {
            true => Ok(()),
            false => Err(Error::Option("--batch-size, --epochs: expected at least 1".into())),
        }
    }
}

/// A finished pre-sampling.
#[derive(Clone, Debug)]
pub struct Presampled {
    /// The stored counters.
    pub presample: Presample,
    /// Seconds spent sampling; `None` when a finished pre-sampling was there and is reused.
    pub seconds: Option<f64>,
}

/// Pre-samples `dataset` and stores the counters under `key` (by default [`Options::default_key`]).
/// A finished pre-sampling of the same key and options is reused, and one of the same options in
/// the cache is taken over; one of another graph or other options is refused, unless `force`. With
/// `gpu` that samples, else the CPU; the counters are the same.
pub fn presample(
    dataset: &Dataset,
    options: &Options,
    key: Option<&str>,
    force: bool,
    gpu: Option<&Gpu>,
    progress: &dyn Progress,
) -> Result<Presampled> {
    options.check()?;
    let on_host =
        [("--draw-by", options.draw_by.is_some()), ("--task link", options.task == Task::Link)];
    if options.task == Task::Link || gpu.is_some() {
        dataset.expect_one_type("presample with --task link or on a GPU")?;
    }
    if let (Some((option, _)), Some(_)) = (on_host.into_iter().find(|(_, given)| *given), gpu) {
        return Err(Error::Option(format!("{option} is for --device cpu: leave one of them out")));
    }
    let key = key.map_or_else(|| Ok(options.default_key()), stored_key)?;
    let (config, made_from) = (options.config(), MadeFrom::dataset(dataset));
    if !force && let Some(presample) = Presample::reusable(dataset, &key, &config, &made_from)? {
        staging::tidy(&Presample::target(dataset, &key));
        return Ok(Presampled { presample, seconds: None });
    }
    // Fail on an unwritable output before the expensive work.
    drop(Staging::begin(Presample::target(dataset, &key), force)?);
    let started = Instant::now();
    let (counters, num_batches) = count(dataset, options, gpu, progress)?;
    let seconds = started.elapsed().as_secs_f64();
    let presample = Presample::save(dataset, &key, config, num_batches, &counters, force)?;
    Ok(Presampled { presample, seconds: Some(seconds) })
}

/// Samples every mini-batch of every epoch. Returns the counters and the number of mini-batches.
fn count(
    dataset: &Dataset,
    options: &Options,
    gpu: Option<&Gpu>,
    progress: &dyn Progress,
) -> Result<(gsplit_store::Counters, u64)> {
    let train =
        if options.task == Task::Node { dataset.split(Split::Train)?.to_vec() } else { Vec::new() };
    let links = if options.task == Task::Link { dataset.links()? } else { None };
    let items = match (options.task, &links) {
        (Task::Node, _) => train.len(),
        (Task::Link, None) => dataset.topology().num_edges(),
        (Task::Link, Some(links)) => links.pairs(Split::Train).len(),
    };
    if items == 0 {
        let (what, remedy) = match options.task {
            Task::Node => (
                "training vertices to pre-sample".into(),
                "its training split is empty; convert or generate it with a split that has some, \
                 or presample edges with --task link"
                    .into(),
            ),
            Task::Link => ("edges to pre-sample".into(), "it has none".into()),
        };
        let path = dataset.path().into();
        return Err(gsplit_store::Error::Missing { path, what, remedy }.into());
    }
    let topology = dataset.topology();
    let left = options.memory_beside_counters(topology.num_vertices(), topology.num_edges())?;
    topology.check_indices()?;
    let weights =
        options.draw_by.as_ref().map(|column| dataset.edge_weights(column)).transpose()?;
    let drawn = topology.indices_beyond(left)?;
    let layout = dataset.types().map(|types| RowLayout::new(types.shapes())).transpose()?;
    options.fanouts.check(layout.as_ref())?;
    let mut graph = Graph::new(topology.indptr(), topology.indices())?;
    if let Some(weights) = &weights {
        graph = graph.with_weights(weights)?;
    }
    if let Some((rows, layout)) = topology.rows().zip(layout.as_ref()) {
        graph = graph.with_rows(rows, layout)?;
    }
    if let Some(drawn) = drawn {
        graph = graph.reading_ahead(drawn, None)?;
    }
    let num_batches = items.div_ceil(options.batch_of(items)) as u64 * u64::from(options.epochs);

    let placed =
        gpu.map(|gpu| Topology::choose(gpu, &graph).map(|topology| (gpu, topology))).transpose()?;
    if let Some((_, Topology::InHostMemory)) = placed {
        progress.note("the graph does not fit on the GPU, which reads it in host memory");
    }
    let stage = progress.stage("pre-sampling", Some(num_batches), Unit::Items("batches"));
    let counts = match placed {
        Some((gpu, topology)) => gpu::count(gpu, &graph, topology, &train, options, &*stage)?,
        None if options.task == Task::Link => {
            let (kinds, given) = (dataset.kinds()?, links.as_ref());
            let given = given.map(|links| links.pairs(Split::Train));
            let batches = |epoch| links::batches(&graph, given, kinds, options, epoch);
            count_on_host(&graph, options, &*stage, batches)?
        }
        None => count_on_host(&graph, options, &*stage, |epoch| {
            let seeds = epoch_seeds(&train, options.seed, epoch)?;
            let size = options.batch_of(items);
            let batch = move |from| {
                let to = seeds.len().min(from + size);
                (seeds[from..to].to_vec(), None)
            };
            Ok(Box::new((0..items).step_by(size).map(batch)))
        })?,
    };
    let CounterParts { input, appear, work, edge } = counts;
    let work = match &layout {
        Some(layout) => layout.sums(&work),
        None => work,
    };
    Ok((gsplit_store::Counters { input, appear, work, edge }, num_batches))
}

/// The mini-batches of an epoch: the seeds of each, and edges that it leaves out.
type Batches<'a> = Box<dyn Iterator<Item = (Vec<u32>, Option<ExcludedEdges>)> + 'a>;

/// Samples and counts mini-batches, each layer by layer from its seeds down.
fn count_on_host<'a>(
    graph: &Graph<'_>,
    options: &Options,
    stage: &dyn Stage,
    batches: impl Fn(u32) -> Result<Batches<'a>>,
) -> Result<CounterParts> {
    let mut counters = Counters::new(graph.num_vertices(), graph.num_edges());
    if graph.layout().is_some() {
        counters = counters.by_rows(graph.num_rows());
    }
    let (mut sampler, mut layer) = (Sampler::default(), SampledCsc::default());
    for epoch in (0..options.epochs).map(|epoch| FIRST_PRESAMPLE_EPOCH + epoch) {
        for (step, (seeds, excluded)) in (0..).zip(batches(epoch)?) {
            let mut sizes = vec![seeds.len()];
            sampler.start(&seeds);
            for (key, fanout) in (Step { seed: options.seed, epoch, step }).layers(&options.fanouts)
            {
                let draw = excluded.iter().fold(Draw::of(fanout), Draw::without);
                sampler.layer(graph, &draw, &key, EdgeIds::Count(&mut counters), &mut layer)?;
                sizes.push(sampler.mixed_frontier().len());
            }
            counters.count_vertices(sampler.mixed_frontier(), &sizes)?;
            stage.advance(1);
        }
    }
    Ok(counters.into_parts()?)
}

#[cfg(test)]
mod tests;
