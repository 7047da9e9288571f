//! The load of every vertex, which the parts share evenly.
//!
//! GSplit's section 4: a vertex weighs how often training computes it, so that a part's weight is
//! the expected load of its rank. The baselines of section 6.3 weigh in-edges and targets (Edge) or
//! nothing (Unit).
//!
//! Which counter is the load: the paper's text says `appear`, its code counts `work`. Measured on
//! six graphs (ogbn-arxiv directed and symmetrised, com-DBLP, amazon-computers, a planted
//! partition, an R-MAT graph), k = 4 and 8, ε = 3 %, three seeds, heaviest part over the mean by
//! the counters of a second pre-sampling with another seed:
//!
//! | load | sampled edges (`work`) | appearances (`appear`) | input rows (`input`) | cross edges |
//! | --- | --- | --- | --- | --- |
//! | `work` | 1.01 to 1.03 | 1.00 to 1.11 | 1.00 to 1.16 | as below, within 10 % |
//! | `appear` | 1.00 to 1.12 | 1.00 to 1.03 | 1.00 to 1.09 | 6 % (arxiv, k = 4) to 74 % (R-MAT, k = 8) |
//!
//! `work` is the default: the paper's imbalance is that of edges. Unit weights leave up to 1.68 of
//! it.

use gsplit_store::{Dataset, Presample, Progress, Split, VertexLoads};
use rayon::prelude::*;

use crate::options::value_name;
use crate::{PartitionOptions, Quantity, Result};

/// `constraints` weights for each vertex, interleaved; each constraint has a positive total.
#[derive(Clone, Debug)]
pub(crate) struct VertexWeights {
    constraints: usize,
    values: Vec<u32>,
    totals: Vec<u64>,
}

impl VertexWeights {
    /// One weight column per constraint, all of length `n`. Columns that sum to 0 bound nothing and
    /// are dropped; when none is left, every vertex weighs 1.
    pub fn new(n: usize, columns: &[Vec<u32>]) -> Self {
        let sum =
            |column: &Vec<u32>| column.par_iter().map(|&weight| u64::from(weight)).sum::<u64>();
        let used: Vec<&Vec<u32>> = columns.iter().filter(|&column| sum(column) > 0).collect();
        match used[..] {
            [] => Self { constraints: 1, values: vec![1; n], totals: vec![n as u64] },
            [one] => Self { constraints: 1, values: one.clone(), totals: vec![sum(one)] },
            _ => Self {
                constraints: used.len(),
                values: (0..n).flat_map(|v| used.iter().map(move |column| column[v])).collect(),
                totals: used.iter().map(|&column| sum(column)).collect(),
            },
        }
    }

    /// `values` has `constraints` weights for each vertex, one vertex after the other.
    pub(crate) fn interleaved(constraints: usize, values: Vec<u32>) -> Self {
        let total = |c: usize| {
            values
                .par_iter()
                .skip(c)
                .step_by(constraints)
                .with_min_len(4096)
                .map(|&value| u64::from(value))
                .sum()
        };
        Self { constraints, totals: (0..constraints).map(total).collect(), values }
    }

    /// Number of vertices.
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.constraints
    }

    /// Every vertex weighs 1.
    pub fn unit(n: usize) -> Self {
        Self::new(n, &[])
    }

    /// Weights that `options` balance. `presample` must be there when they need it. A quantity that
    /// is nowhere above 0 cannot be balanced: a note to `progress` says so. `own` are the weights
    /// that came with the graph.
    pub(crate) fn choose(
        options: &PartitionOptions,
        dataset: &Dataset,
        presample: Option<&Presample>,
        own: &[VertexLoads],
        progress: &dyn Progress,
    ) -> Result<Self> {
        let n = dataset.num_vertices();
        let quantities = options.quantities();
        let mut columns: Vec<(Quantity, Vec<u32>)> = Vec::new();
        for &quantity in &quantities {
            let column = match quantity {
                Quantity::Vertices => vec![1; n],
                Quantity::Edges => in_degrees(dataset),
                Quantity::Targets => targets(dataset)?.unwrap_or_default(),
                Quantity::Work => {
                    presample.map(|counted| counted.work().to_vec()).unwrap_or_default()
                }
                Quantity::Appear => {
                    presample.map(|counted| counted.appear().to_vec()).unwrap_or_default()
                }
                Quantity::Own if own.is_empty() => Vec::new(),
                Quantity::Own => {
                    columns.extend(own.iter().map(|column| (quantity, column.values.clone())));
                    continue;
                }
            };
            columns.push((quantity, column));
        }
        for (quantity, column) in &columns {
            if n > 0 && column.par_iter().all(|&weight| weight == 0) {
                let lacking = match quantity {
                    Quantity::Own if own.is_empty() => {
                        "no weights of vertices came with the graph".to_string()
                    }
                    quantity => format!("{} are 0 for all vertices", value_name(*quantity)),
                };
                let instead =
                    if columns.len() > 1 { "the others are" } else { "the number of vertices is" };
                progress.note(&format!("weights: {lacking}, so {instead} balanced"));
            }
        }
        let columns: Vec<Vec<u32>> = columns.into_iter().map(|(_, column)| column).collect();
        Ok(Self::new(n, &columns))
    }

    /// Weights of each vertex.
    pub fn constraints(&self) -> usize {
        self.constraints
    }

    /// The weights of `v`, one per constraint.
    pub fn of(&self, v: u32) -> &[u32] {
        let start = v as usize * self.constraints;
        &self.values[start..start + self.constraints]
    }

    /// The sum over all vertices, one per constraint; never 0 unless there are no vertices.
    pub fn totals(&self) -> &[u64] {
        &self.totals
    }

    /// Whether every vertex weighs 1.
    pub fn is_unit(&self) -> bool {
        self.constraints == 1 && self.values.par_iter().all(|&weight| weight == 1)
    }
}

fn in_degrees(dataset: &Dataset) -> Vec<u32> {
    let indptr = dataset.topology().indptr();
    indptr.par_windows(2).map(|pair| (pair[1] - pair[0]).min(u64::from(u32::MAX)) as u32).collect()
}

/// 1 for the vertices of the training split, `None` when the dataset has none.
pub(crate) fn targets(dataset: &Dataset) -> Result<Option<Vec<u32>>> {
    let split = match dataset.split(Split::Train) {
        Ok(split) => split,
        Err(gsplit_store::Error::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut marks = vec![0; dataset.num_vertices()];
    split.iter().for_each(|&v| marks[v as usize] = 1);
    Ok(Some(marks))
}
