//! Small graphs for all tests of this crate, and the suite that every partitioner passes.

mod suite;
mod thin;

pub(crate) use suite::{check_made, options};

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::{
    Counters, Dataset, DatasetWriter, EDGE_WEIGHT, PartitionMap, Presample, PresampleConfig,
    Provenance, Split, VERTEX_WEIGHT,
};
use tempfile::TempDir;

use crate::{PartitionOptions, Partitioned};

/// A graph that can be written as a dataset. The files go when it does.
pub(crate) struct Fixture {
    pub(crate) name: String,
    indptr: Vec<u64>,
    indices: Vec<u32>,
    /// Whether weights come with it.
    weighted: bool,
    folder: TempDir,
}

impl Fixture {
    /// `n` vertices and the edges (u, v) for u→v, in any order, repeated or not.
    pub(crate) fn new(name: &str, n: u32, edges: &[(u32, u32)]) -> Self {
        let mut columns: Vec<(u32, u32)> = edges.iter().map(|&(u, v)| (v, u)).collect();
        columns.sort_unstable();
        let indptr =
            (0..=n).map(|v| columns.partition_point(|&(column, _)| column < v) as u64).collect();
        Self::raw(name, indptr, columns.into_iter().map(|(_, u)| u).collect())
    }

    pub(crate) fn raw(name: &str, indptr: Vec<u64>, indices: Vec<u32>) -> Self {
        Self {
            name: name.into(),
            indptr,
            indices,
            weighted: false,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The same with weights: two of each vertex, and one of each edge.
    pub(crate) fn weighted(self) -> Self {
        Self { weighted: true, ..self }
    }

    /// The dataset; every third vertex is a target.
    pub(crate) fn dataset(&self) -> Dataset {
        let path = self.folder.path().join("dataset");
        let mut writer = DatasetWriter::create(&path, true, &self.indptr, &self.indices).unwrap();
        if self.weighted {
            let mut vertices = writer.node_column_writer(VERTEX_WEIGHT, "<i8", 2).unwrap();
            let weights = |v: i64| [v % 4, 1 + v * v % 9].map(i64::to_le_bytes).concat();
            (1..self.indptr.len() as i64).for_each(|v| vertices.push(&weights(v)).unwrap());
            writer.add_node_column(VERTEX_WEIGHT, vertices).unwrap();
            let mut edges = writer.edge_column_writer(EDGE_WEIGHT, "<f4", 1).unwrap();
            (0..self.indices.len())
                .for_each(|e| edges.push(&(e as f32 % 5.0 / 2.0).to_le_bytes()).unwrap());
            writer.add_edge_column(EDGE_WEIGHT, edges).unwrap();
        }
        writer
            .add_split(Split::Train, (0..self.indptr.len() as u32 - 1).step_by(3).collect())
            .unwrap();
        writer.finish(Provenance::default()).unwrap()
    }

    /// Skewed counters, many of them 0, that agree with each other where real ones do.
    pub(crate) fn presample(&self, dataset: &Dataset) -> Presample {
        let n = self.indptr.len() as u32 - 1;
        let draw = |item: u32, layer: u8| {
            let mut draws =
                Draws::new(&StreamKey { layer, ..StreamKey::new(1, Stream::Generate) }, item);
            [0, 0, 1, 2, 5][draws.below(5) as usize] * (1 + draws.below(20))
        };
        let edge: Vec<u32> = (0..self.indices.len() as u32).map(|e| draw(e, 0)).collect();
        let work =
            |v: usize| edge[self.indptr[v] as usize..self.indptr[v + 1] as usize].iter().sum();
        self.save_presample(
            dataset,
            Counters {
                input: (0..n).map(|v| draw(v, 1)).collect(),
                appear: (0..n).map(|v| draw(v, 2)).collect(),
                work: (0..n as usize).map(work).collect(),
                edge,
            },
        )
    }

    pub(crate) fn presampled(&self) -> (Dataset, Presample) {
        let dataset = self.dataset();
        let presample = self.presample(&dataset);
        (dataset, presample)
    }

    /// Counters of a pre-sampling that met nothing.
    pub(crate) fn empty_presample(&self, dataset: &Dataset) -> Presample {
        let (vertices, edge) = (vec![0; self.indptr.len() - 1], vec![0; self.indices.len()]);
        let counters =
            Counters { input: vertices.clone(), appear: vertices.clone(), work: vertices, edge };
        self.save_presample(dataset, counters)
    }

    fn save_presample(&self, dataset: &Dataset, counters: Counters) -> Presample {
        let fanouts = "5,5".into();
        let config = PresampleConfig {
            fanouts,
            batch_size: 10,
            epochs: 1,
            seed: 0,
            draw_by: None,
            negatives: None,
        };
        Presample::save(dataset, "test", config, 10, &counters, true).unwrap()
    }
}

/// Stores the result of these options, replacing an existing one.
pub(crate) fn save(
    dataset: &Dataset,
    key: &str,
    presample: Option<&Presample>,
    options: &PartitionOptions,
    made: &Partitioned,
) -> PartitionMap {
    let (config, report) = (options.config(dataset).unwrap(), made.report.clone());
    PartitionMap::save(
        dataset,
        key,
        presample,
        config,
        report,
        &made.assignment,
        &made.cache_order,
        true,
    )
    .unwrap()
}

/// Result of `run` on this number of threads.
pub(crate) fn on_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}

/// A source of random numbers for the graph `seed`.
pub(crate) fn draws(seed: u64) -> Draws {
    Draws::new(&StreamKey::new(seed, Stream::Generate), 0)
}

/// A random graph of up to 60 vertices, of any shape that the draws bring: hubs, loops, duplicates,
/// isolated vertices.
pub(crate) fn random_graph(seed: u64) -> Fixture {
    let mut draws = draws(seed);
    let n = 2 + draws.below(59);
    let num_edges = draws.below(4 * n);
    let hubs = 1 + draws.below(n);
    let edges: Vec<(u32, u32)> =
        (0..num_edges).map(|_| (draws.below(hubs), draws.below(n))).collect();
    Fixture::new(&format!("random graph of seed {seed}"), n, &edges)
}

/// Groups of `size` vertices with many edges inside and few between.
pub(crate) fn communities(groups: u32, size: u32) -> Fixture {
    let mut draws = draws(7);
    let n = groups * size;
    let edge = |i: u32| {
        let (u, v) = (
            i % n,
            if i.is_multiple_of(10) {
                draws.below(n)
            } else {
                i % n / size * size + draws.below(size)
            },
        );
        (u, v)
    };
    let mut edges: Vec<(u32, u32)> = (0..8 * n).map(edge).filter(|(u, v)| u != v).collect();
    edges.sort_unstable();
    edges.dedup();
    Fixture::new("communities", n, &edges)
}

/// The shapes that partitioners trip over.
pub(crate) fn graphs() -> Vec<Fixture> {
    let path: Vec<(u32, u32)> = (1..40).map(|v| (v - 1, v)).collect();
    let star: Vec<(u32, u32)> = (1..50).map(|v| (v, 0)).collect();
    let complete: Vec<(u32, u32)> = (0..12).flat_map(|u| (0..12).map(move |v| (u, v))).collect();
    let triangles: Vec<(u32, u32)> = (0..300)
        .flat_map(|t| [(3 * t, 3 * t + 1), (3 * t + 1, 3 * t + 2), (3 * t + 2, 3 * t)])
        .collect();
    let mess =
        [(0, 1), (1, 0), (0, 1), (2, 2), (2, 2), (3, 0), (0, 3), (5, 4), (4, 4), (1, 5), (3, 0)];
    vec![
        communities(6, 100),
        Fixture::new("path", 40, &path),
        Fixture::new("star", 50, &star),
        Fixture::new("complete graph with loops", 12, &complete),
        Fixture::new("many components", 900, &triangles),
        Fixture::new("duplicates, loops and both directions", 7, &mess),
        Fixture::new("mostly isolated vertices", 500, &mess),
        Fixture::new("only loops", 9, &[(0, 0), (4, 4)]),
        Fixture::new("no edges", 10, &[]),
        Fixture::new("two vertices", 2, &[(0, 1)]),
    ]
}
