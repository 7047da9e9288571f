//! Everything that the ranks of a run share, opened and checked before the first mini-batch.

pub mod columns;
pub mod hooks;
pub mod partition;
pub mod typed;

use std::ops::{Deref, Range};

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Communicator, Graph, RowLayout};
use gsplit_sample::{Frontiers, Seeds};
use gsplit_store::memory::{Memory, resident, shown};
use gsplit_store::{Column, Dataset, FeatureTable, PartitionMap, Split};

use crate::config::{Config, ModelKind};
use crate::error::check_stop;
use crate::job::columns::EdgeColumns;
use crate::job::hooks::Hooks;
use crate::metric::Metric;
use crate::metric::labels::Labels;
use crate::model::{Model, Typed};
use crate::operator::Place;
use crate::task::{ALL_UNLABELLED, LinkBatch, LinkSplit, NodeTask, Shape, Targets, Task};
use crate::{Error, Result};

/// Least bytes of the mini-batches in flight.
pub const LEAST_OF_BATCHES: u64 = 64 << 20;

/// The artifacts of a run, mapped once.
pub struct Artifacts {
    partition: Option<PartitionMap>,
    /// The rank of each vertex within its group, if the map has a part for each rank of all groups.
    owners: Option<Vec<u16>>,
    links: Option<LinkSplit>,
    columns: EdgeColumns,
    /// The columns of the edges that are not held out, if some are.
    of_kept: Option<EdgeColumns>,
    /// The rows of the vertices, if they have several types.
    layout: Option<RowLayout>,
}

/// A run's inputs, as every rank sees them.
pub struct Job<'a> {
    /// Dataset to train on.
    pub dataset: &'a Dataset,
    /// Partition map, links and edge columns.
    pub artifacts: &'a Artifacts,
    /// The configuration of the run.
    pub config: &'a Config,
    /// Additions of the program.
    pub hooks: &'a Hooks,
    /// In-neighbours without held-out edges, with the weights to draw them by and to multiply their
    /// rows by.
    pub graph: Graph<'a>,
    /// In-neighbours, held-out edges included.
    pub whole: Graph<'a>,
    /// Feature rows.
    pub features: FeatureTable,
    /// Bytes that an evaluation may take for rows; unlimited when `None`.
    pub room: Option<u64>,
    /// Task to learn.
    pub task: Task<'a>,
    /// Width of the last layer's rows: the number of classes, 1 for numbers, or --hidden for links.
    pub outputs: usize,
    /// Metric of the valid and test splits.
    pub metric: Metric,
    /// Items of an epoch: vertices, or positions of edges.
    pub train: Items<'a>,
    /// Vertices of the valid split, if there is one and labels of vertices are learnt.
    pub valid: Option<Column<u32>>,
    /// Vertices of the test split, under the same conditions as `valid`.
    pub test: Option<Column<u32>>,
    /// Owners of each frontier's rows.
    pub frontiers: Frontiers<'a>,
    /// The part of each vertex, if there is a partition map.
    pub parts: Option<&'a [u16]>,
    /// The types of vertices, and the learnt rows of some, if there are several types.
    pub typed: Option<Typed>,
}

/// Items of an epoch, in a mapped file of the dataset or in memory of the run.
type Items<'a> = Box<dyn Deref<Target = [u32]> + Sync + 'a>;

impl Artifacts {
    /// Opens the partition map and the edge weights that `config` needs, and splits the edges if
    /// links are learnt.
    pub fn open(dataset: &Dataset, config: &Config) -> Result<Self> {
        let partition = config
            .system
            .parallelism
            .needs_map()
            .then(|| partition::find(dataset, config))
            .transpose()?;
        let topology = dataset.topology();
        topology.check_indices()?;
        let layout = typed::layout(dataset)?;
        config.data.fanouts.check(layout.as_ref())?;
        let mut whole = Graph::new(topology.indptr(), topology.indices())?;
        if let Some((rows, layout)) = topology.rows().zip(layout.as_ref()) {
            whole = whole.with_rows(rows, layout)?;
        }
        let columns = EdgeColumns::open(
            dataset,
            config.data.draw_by.as_ref(),
            config.data.edge_weights.as_ref(),
        )?;
        let links = match config.data.task.is_link() {
            false => None,
            true => {
                let split = match dataset.links()? {
                    Some(links) => {
                        if let Some(option) =
                            config.data.task.of_own_split(links.info().negatives.is_some())
                        {
                            let problem =
                                "the dataset has a split of links of its own: leave it out";
                            return Err(Error::Option(format!("{option}: {problem}")));
                        }
                        LinkSplit::given(links, topology)?
                    }
                    None => {
                        config
                            .data
                            .task
                            .ranking_problem()
                            .map_or(Ok(()), |problem| Err(Error::Option(problem)))?;
                        let relation = typed::relation(dataset, &whole, config)?;
                        LinkSplit::new(&whole, config.data.task.held_out(), relation)?
                    }
                };
                let is_typed = layout.is_some();
                Some(if is_typed { split } else { split.of_kinds(dataset.kinds()?) })
            }
        };
        let ranks = config.ranks_of_group() as u16;
        let owners = partition.as_ref().filter(|_| config.num_parts() > config.ranks_of_group());
        let owners = owners.map(|map| map.assignment().iter().map(|part| part % ranks).collect());
        let of_kept = match links.as_ref().filter(|_| !columns.is_empty()) {
            None => None,
            Some(links) => {
                let positions = links.positions_in(&whole);
                positions
                    .map(|positions| columns.select(&links.graph()?, &positions))
                    .transpose()?
            }
        };
        Ok(Self { partition, owners, links, columns, of_kept, layout })
    }

    /// Bytes of the graph that were copied to the process's memory.
    pub fn copied_bytes(&self) -> u64 {
        self.links.as_ref().map_or(0, LinkSplit::copied_bytes)
    }

    /// The partition map in use.
    pub fn partition(&self) -> Option<&PartitionMap> {
        self.partition.as_ref()
    }
}

impl<'a> Job<'a> {
    /// Opens all that training needs and checks that it fits together. Collective over processes
    /// with shards.
    pub fn new(
        dataset: &'a Dataset,
        artifacts: &'a Artifacts,
        config: &'a Config,
        hooks: &'a Hooks,
    ) -> Result<Self> {
        typed::check(dataset, config, hooks)?;
        let topology = dataset.topology();
        // Maxima cannot be corrected.
        let corrects = config.model.kind != ModelKind::SagePool;
        let corrected = |graph: Graph<'a>| if corrects { graph.correcting() } else { graph };
        let memory =
            config.system.memory_bytes().unwrap_or_else(|| Memory::of_this_machine().available());
        // Links are learnt from a copy in memory.
        let drawn =
            if artifacts.links.is_some() { None } else { topology.indices_beyond(memory)? };
        let mut whole = artifacts.columns.of(Graph::new(topology.indptr(), topology.indices())?)?;
        if let Some((rows, layout)) = topology.rows().zip(artifacts.layout.as_ref()) {
            whole = whole.with_rows(rows, layout)?;
        }
        let whole = drawn.map_or(Ok(whole), |drawn| whole.reading_ahead(drawn, hooks.stop))?;
        // Feature rows are loaded later if each rank loads its own columns, if a budget decides how
        // many rows fit, or if processes have to find out first which of them share memory.
        let is_later = config.system.parallelism.slices_columns()
            || config.system.memory_bytes().is_some()
            || hooks.process.is_some();
        let features = match is_later {
            true => dataset.held_features()?,
            false => config.system.load_features.bring(dataset.held_features()?, None, false)?,
        };
        let parts = artifacts.partition.as_ref().map(PartitionMap::assignment);
        let frontiers = config.frontiers(artifacts.owners.as_deref().or(parts));
        let (task, graph, outputs, train, [valid, test]) = match &artifacts.links {
            Some(links) => {
                let graph =
                    artifacts.of_kept.as_ref().unwrap_or(&artifacts.columns).of(links.graph()?)?;
                let train: Items<'a> = Box::new(&links.train[..]);
                (Task::Links(links), corrected(graph), config.model.hidden, train, [None, None])
            }
            None => {
                let labels = Labels::open(dataset)?;
                let (train, outputs) = (train_split(dataset, &labels)?, labels.outputs());
                let processes = hooks.process.as_ref().filter(|_| dataset.shard().is_some());
                let shards = processes.map(|process| process.comms().all());
                let optional = |split: Split| match dataset.manifest().splits().contains(&split) {
                    true => dataset.split(split).map(Some),
                    false => Ok(None),
                };
                let task = Task::Nodes(
                    NodeTask::new(dataset, labels, &config.data.task, &train, shards)?.into(),
                );
                let splits = [optional(Split::Valid)?, optional(Split::Test)?];
                (task, corrected(whole), outputs, Box::new(train) as Items<'a>, splits)
            }
        };
        let metric = task.metric(config.data.task.metric)?;
        Ok(Self {
            dataset,
            artifacts,
            config,
            hooks,
            graph,
            whole,
            features,
            room: None,
            task,
            outputs,
            metric,
            train,
            valid,
            test,
            frontiers,
            parts,
            typed: typed::typed(dataset, config, hooks)?,
        })
    }
}

/// Checks that `memory`, or the free memory, has room for the copy of the graph for links, before
/// it is made.
pub fn check_links_fit(dataset: &Dataset, config: &Config, memory: Option<u64>) -> Result<()> {
    if !config.data.task.is_link() || dataset.links()?.is_some() {
        return Ok(());
    }
    let topology = dataset.topology();
    topology.check_indices()?;
    let (layout, mut graph) =
        (typed::layout(dataset)?, Graph::new(topology.indptr(), topology.indices())?);
    if let Some((rows, layout)) = topology.rows().zip(layout.as_ref()) {
        graph = graph.with_rows(rows, layout)?;
    }
    let graph = &graph;
    let columns = [&config.data.draw_by, &config.data.edge_weights].into_iter().flatten().count();
    let held = resident();
    let room = memory.map_or_else(
        || Memory::of_this_machine().available(),
        |budget| budget.saturating_sub(held),
    );
    let edges = graph.num_edges() as u64;
    // Positions, twice during their construction, and a value per column.
    let of_columns = if columns > 0 { edges * (2 * 8 + 4 * columns as u64) } else { 0 };
    // An edge takes at most an id in the copy and a position, a vertex at most an index.
    if (edges + graph.num_vertices() as u64 + 1) * 8 + of_columns <= room {
        return Ok(());
    }
    let relation = typed::relation(dataset, graph, config)?;
    let bytes =
        LinkSplit::num_bytes(graph, config.data.task.held_out(), relation.as_ref()) + of_columns;
    if bytes <= room {
        return Ok(());
    }
    let takes = format!("the edges that links are learnt from take {}", shown(bytes));
    Err(Error::Option(match memory {
        Some(budget) => {
            let least = (bytes + held + LEAST_OF_BATCHES).div_ceil(1 << 20);
            let [budget, held] = [budget, held].map(shown);
            format!(
                "--memory: {budget} are too few, {takes}, the program {held}: pass --memory \
                 {least}MiB or more"
            )
        }
        None => format!(
            "--task link: {takes} of memory, and {} are free: free some, raise the limit of the \
             control group, or train on a smaller graph",
            shown(room)
        ),
    }))
}

/// The train split. Refuses one without labels.
fn train_split(dataset: &Dataset, labels: &Labels) -> Result<Column<u32>> {
    let problem = |problem: String| Error::Data { path: dataset.path().to_path_buf(), problem };
    let train = dataset.split(Split::Train)?;
    if train.is_empty() {
        return Err(problem("the train split is empty: convert it with another split".into()));
    }
    if !train.iter().any(|&v| labels.is_labelled(v)) {
        return Err(problem(ALL_UNLABELLED.into()));
    }
    Ok(train)
}

impl Job<'_> {
    /// True if there is a valid split to score.
    pub fn has_valid(&self) -> bool {
        match &self.task {
            Task::Nodes(_) => self.valid.as_ref().is_some_and(|valid| !valid.is_empty()),
            Task::Links(links) => !links.valid.is_empty(),
        }
    }

    /// Bytes per rank for feature rows in GPU memory, if the configuration says.
    pub fn cache_bytes(&self) -> Option<u64> {
        self.config.system.cache.map(|size| size.bytes(self.features.num_bytes() as u64))
    }

    /// Number of mini-batches per epoch.
    pub fn num_steps(&self) -> u64 {
        match self.config.system.parallelism.cooperates() {
            true => self.config.system.cooperative.batches() as u64,
            false => {
                let all = self.train.len().div_ceil(self.config.data.batch_size);
                self.config.run.trial.map_or(all, |trial| all.min(trial as usize)) as u64
            }
        }
    }

    /// A model at `place` with its first parameters.
    pub fn model(&self, place: &Place) -> Model {
        let (features, make) = (self.features.dim(), self.hooks.layer.as_ref());
        Model::with_layers(place, self.config, features, self.outputs, make, self.typed.as_ref())
    }

    /// Widths of the model's input and output.
    pub fn shape(&self) -> Shape {
        let several = self.task.labels().is_some_and(Labels::several);
        let types = self.typed.as_ref().map(|typed| typed.types.clone());
        Shape { features: self.features.dim(), outputs: self.outputs, several, types }
    }

    /// Returns this rank's seeds in the global mini-batch `items` at `step`, with their targets;
    /// `comm` is the rank's group. Collective in the group.
    pub fn batch(
        &self,
        items: &[u32],
        step: Step,
        comm: &dyn Communicator,
    ) -> Result<(Seeds, Targets<'_>)> {
        let share = self.share_of_group(items.len(), comm);
        match &self.task {
            Task::Nodes(task) => {
                let seeds =
                    Seeds::of(&items[share], self.frontiers.seeds(), comm.rank(), comm.size());
                Ok((seeds, Targets::Nodes(task.targets(items))))
            }
            Task::Links(links) => {
                let negatives = self.config.data.task.negatives;
                let (seeds, batch) = LinkBatch::new(
                    links,
                    items,
                    share,
                    negatives,
                    step,
                    self.frontiers.seeds(),
                    comm,
                )?;
                Ok((seeds, Targets::Links(Box::new(batch))))
            }
        }
    }

    /// Returns the consecutive share of the group of `comm` in a mini-batch of `items`: as large as
    /// one rank's share under data parallelism with one rank per group.
    fn share_of_group(&self, items: usize, comm: &dyn Communicator) -> Range<usize> {
        let (group, groups) = (comm.name(0) / comm.size(), self.config.system.groups);
        items * group / groups..items * (group + 1) / groups
    }

    /// Ends a phase of a mini-batch at `place`; waits for the work that it launched if phases are
    /// measured.
    pub fn end_phase(&self, place: &Place) -> Result<()> {
        match place.gpu().filter(|_| self.hooks.exact_phases) {
            Some(gpu) => Ok(gpu.synchronise()?),
            None => Ok(()),
        }
    }

    /// Fails once the caller has asked to stop.
    pub fn check_stop(&self) -> Result<()> {
        check_stop(self.hooks.stop)
    }
}
