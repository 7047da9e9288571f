//! Figures of a graph: in-degrees, classes, and its edges as pairs of vertices.
//!
//! Input: a dataset whose files may be damaged; an index that is out of bounds is an error. All
//! sums are of integers: the result does not depend on the number of threads.

use anyhow::Result;
use gsplit_store::{Column, Dataset, Progress, Topology, Unit};
use rayon::prelude::*;
use serde::Serialize;

/// Edges up to which the figures that read every edge are computed.
pub const CHEAP_EDGES: u64 = 200_000_000;

/// Vertices per task.
const VERTICES_PER_TASK: usize = 4096;

/// Figures of a graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// In-degrees; `None` for a graph without vertices.
    pub in_degree: Option<Degrees>,
    /// Number of vertices of each class that occurs; `None` without classes, and for a shard, which
    /// does not have all labels.
    pub classes: Option<Vec<ClassCount>>,
    /// Figures of the edges; `None` above [`CHEAP_EDGES`] edges.
    pub edges: Option<EdgeFigures>,
}

/// Summary of the degrees of all vertices. The p-quantile is the smallest degree that a share p of
/// the vertices does not exceed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Degrees {
    pub min: u32,
    pub p50: u32,
    pub p90: u32,
    pub p99: u32,
    pub max: u32,
    pub mean: f64,
}

/// Number of vertices of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    pub class: u32,
    /// Its name, where classes have names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub vertices: u64,
}

/// Figures of the edges as pairs of vertices: reciprocity as in Newman, Forrest and Balthrop
/// (2002), edge homophily as in Zhu et al., Beyond homophily in graph neural networks (NeurIPS
/// 2020). An edge from a vertex to itself counts in `self_loops` alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EdgeFigures {
    /// Edges from a vertex to itself.
    pub self_loops: u64,
    /// Share of the edges whose reverse is an edge too; `None` without edges.
    pub reciprocal_share: Option<f64>,
    /// How alike neighbours are; `None` unless vertices have at most one class each and an edge
    /// joins two labelled vertices.
    pub homophily: Option<Homophily>,
}

/// How alike neighbours are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Homophily {
    /// Edges between two labelled vertices.
    pub labelled_edges: u64,
    /// Share of these edges that join vertices of the same class.
    pub share: f64,
}

impl Figures {
    /// The figures of `dataset`.
    pub fn of(dataset: &Dataset, progress: &dyn Progress) -> Result<Self> {
        let topology = dataset.topology();
        let labels = labels(dataset)?;
        let is_cheap = topology.num_edges() as u64 <= CHEAP_EDGES;
        Ok(Self {
            in_degree: Degrees::of(topology),
            classes: count_classes(dataset, labels.as_deref())?,
            edges: is_cheap
                .then(|| EdgeFigures::of(topology, labels.as_deref(), progress))
                .transpose()?,
        })
    }
}

impl Degrees {
    fn of(topology: &Topology) -> Option<Self> {
        // More than 2^32 edges into one vertex count as 2^32 - 1.
        let degree = |ends: &[u64]| u32::try_from(ends[1] - ends[0]).unwrap_or(u32::MAX);
        let mut degrees: Vec<u32> = topology.indptr().par_windows(2).map(degree).collect();
        degrees.par_sort_unstable();
        let (&min, &max) = (degrees.first()?, degrees.last()?);
        let quantile = |percent: usize| degrees[(degrees.len() * percent).div_ceil(100).max(1) - 1];
        let [p50, p90, p99] = [50, 90, 99].map(quantile);
        Some(Self {
            min,
            p50,
            p90,
            p99,
            max,
            mean: topology.num_edges() as f64 / degrees.len() as f64,
        })
    }
}

/// The class of each vertex, -1 for none; `None` unless each vertex has at most one class and all
/// rows are in this dataset.
fn labels(dataset: &Dataset) -> gsplit_store::Result<Option<Column<i32>>> {
    let manifest = dataset.manifest();
    let has = manifest.num_classes.is_some() && !manifest.multi_label && dataset.shard().is_none();
    has.then(|| dataset.labels()).transpose()
}

/// The classes that occur, ascending; `None` without classes, and for a shard. A vertex of several
/// classes counts in each.
fn count_classes(
    dataset: &Dataset,
    labels: Option<&[i32]>,
) -> gsplit_store::Result<Option<Vec<ClassCount>>> {
    let manifest = dataset.manifest();
    if manifest.num_classes.is_none() || dataset.shard().is_some() {
        return Ok(None);
    }
    let count = |class: u32, vertices: usize| ClassCount {
        class,
        name: manifest.class_names.as_ref().and_then(|names| names.get(class as usize).cloned()),
        vertices: vertices as u64,
    };
    if let Some(labels) = labels {
        // Sort instead of counting by class: a damaged label may be any number.
        let mut labels: Vec<i32> = labels.par_iter().copied().filter(|&label| label >= 0).collect();
        labels.par_sort_unstable();
        let counts = labels.chunk_by(|a, b| a == b);
        return Ok(Some(counts.map(|run| count(run[0] as u32, run.len())).collect()));
    }
    let labels = dataset.multi_labels()?;
    let of_class = |class: u32| {
        let has = |&v: &u32| labels.has(v, class);
        count(class, (0..dataset.num_vertices() as u32).filter(has).count())
    };
    let counts: Vec<ClassCount> = (0..labels.num_classes()).into_par_iter().map(of_class).collect();
    Ok(Some(counts.into_iter().filter(|count| count.vertices > 0).collect()))
}

impl EdgeFigures {
    fn of(topology: &Topology, labels: Option<&[i32]>, progress: &dyn Progress) -> Result<Self> {
        topology.check_indices()?;
        let stage =
            progress.stage("pairs", Some(topology.num_edges() as u64), Unit::Items("edges"));
        let class = |v: u32| labels.map_or(-1, |labels| labels[v as usize]);
        let n = topology.num_vertices();
        let ranges = (0..n.div_ceil(VERTICES_PER_TASK)).into_par_iter();
        let sums = ranges.map(|range| {
            let (start, end) =
                (range * VERTICES_PER_TASK, ((range + 1) * VERTICES_PER_TASK).min(n));
            let mut sum = [0; 5];
            for v in start as u32..end as u32 {
                for &u in topology.in_neighbours(v) {
                    let [loops, others, reciprocal, labelled, alike] = &mut sum;
                    if u == v {
                        *loops += 1;
                        continue;
                    }
                    *others += 1;
                    *reciprocal += u64::from(topology.has_edge(v, u));
                    *labelled += u64::from(class(u) >= 0 && class(v) >= 0);
                    *alike += u64::from(class(u) >= 0 && class(u) == class(v));
                }
            }
            stage.advance(topology.indptr()[end] - topology.indptr()[start]);
            sum
        });
        let add = |a: [u64; 5], b: [u64; 5]| std::array::from_fn(|i| a[i] + b[i]);
        let [self_loops, others, reciprocal, labelled_edges, alike] = sums.reduce(|| [0; 5], add);
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let homophily =
            share(alike, labelled_edges).map(|share| Homophily { labelled_edges, share });
        Ok(Self { self_loops, reciprocal_share: share(reciprocal, others), homophily })
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::{DatasetWriter, NoProgress, Provenance};

    use super::*;

    /// The figures of a graph with these edges, each from its first to its second vertex, and
    /// classes.
    fn figures(n: u32, edges: &[(u32, u32)], labels: &[i32]) -> Figures {
        let folder = tempfile::tempdir().unwrap();
        let mut sorted: Vec<(u32, u32)> = edges.iter().map(|&(from, to)| (to, from)).collect();
        sorted.sort_unstable();
        let indptr: Vec<u64> =
            (0..=n).map(|v| sorted.partition_point(|&(to, _)| to < v) as u64).collect();
        let indices: Vec<u32> = sorted.iter().map(|&(_, from)| from).collect();
        let mut writer =
            DatasetWriter::create(&folder.path().join("ds"), false, &indptr, &indices).unwrap();
        writer.add_labels(labels).unwrap();
        Figures::of(&writer.finish(Provenance::default()).unwrap(), &NoProgress).unwrap()
    }

    /// A step of the generator of Knuth's MMIX.
    fn draw(state: &mut u64, below: u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((*state >> 32) * below) >> 32
    }

    /// Figures by definition, however slow.
    fn oracle(n: u32, edges: &[(u32, u32)], labels: &[i32]) -> Figures {
        let degrees: Vec<u32> =
            (0..n).map(|v| edges.iter().filter(|edge| edge.1 == v).count() as u32).collect();
        let quantile = |percent: usize| {
            let is_reached = |d: &&u32| {
                degrees.iter().filter(|other| other <= d).count() * 100 >= n as usize * percent
            };
            *degrees.iter().filter(is_reached).min().unwrap()
        };
        let share = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
        let class = |v: u32| labels[v as usize];
        let others: Vec<_> = edges.iter().filter(|(u, v)| u != v).collect();
        let labelled = others.iter().filter(|(u, v)| class(*u) >= 0 && class(*v) >= 0);
        let labelled_edges = labelled.clone().count();
        let alike = labelled.filter(|(u, v)| class(*u) == class(*v)).count();
        let count = |class: i32| labels.iter().filter(|&&label| label == class).count() as u64;
        let classes = (0..3).map(|class| ClassCount {
            name: None,
            class: class as u32,
            vertices: count(class),
        });
        Figures {
            in_degree: Some(Degrees {
                min: quantile(0),
                p50: quantile(50),
                p90: quantile(90),
                p99: quantile(99),
                max: quantile(100),
                mean: edges.len() as f64 / f64::from(n),
            }),
            classes: Some(classes.filter(|count| count.vertices > 0).collect()),
            edges: Some(EdgeFigures {
                self_loops: (edges.len() - others.len()) as u64,
                reciprocal_share: share(
                    others.iter().filter(|(u, v)| edges.contains(&(*v, *u))).count(),
                    others.len(),
                ),
                homophily: share(alike, labelled_edges)
                    .map(|share| Homophily { labelled_edges: labelled_edges as u64, share }),
            }),
        }
    }

    #[test]
    fn oracle_random_graphs() {
        for seed in 0..60 {
            let mut state = seed;
            let n = 1 + draw(&mut state, 40);
            // Includes self-loops and repeated edges.
            let edges: Vec<(u32, u32)> = (0..draw(&mut state, 3 * n))
                .map(|_| (draw(&mut state, n) as u32, draw(&mut state, n) as u32))
                .collect();
            let labels: Vec<i32> = (0..n).map(|_| draw(&mut state, 4) as i32 - 1).collect();
            let found = figures(n as u32, &edges, &labels);
            assert_eq!(
                found,
                oracle(n as u32, &edges, &labels),
                "seed {seed}: {n} vertices, {edges:?}, {labels:?}"
            );
        }
    }
}
