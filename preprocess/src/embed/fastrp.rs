//! FastRP: an embedding of the graph's structure by very sparse random projection.
//!
//! Returns: one row per vertex; each column has mean 0 and variance 1 (a constant column is 0).
//! Input: any graph in CSC form; directions and self-loops are ignored; a vertex without neighbours
//! gets a row of zeros, standardised like the others. Idea: with P the random walk's transition
//! matrix and R a random matrix, the rows of Pᵏ·R distinguish vertices with different k-hop
//! surroundings. R holds ±√3 with probability 1/6 each and 0 otherwise (s = 3), so no power of P is
//! ever formed. Source: Chen, Sultan, Tian, Chen, Skiena, "Fast and Accurate Network Embeddings via
//! Very Sparse Random Projection", CIKM 2019. Parameters of the paper chosen here: powers 1 to 4
//! weighted 0, 0, 1, 1, each normalised by row; degree exponent β = 0. By a linear classifier on
//! ogbn-arxiv and Amazon computers these were as good as or better than weights 0, 1, 1 and than
//! negative β; the first powers would only repeat the aggregation of a network's own layers. Cost:
//! O(m·D) per power; 8 bytes for each of the n·D values, 4 per edge and 16 per vertex for the
//! reversed graph.

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::{FeatureWriter, Progress, Stage, Unit};
use rayon::prelude::*;

use super::{check_memory, write_rows};
use crate::Result;

/// The last power of the transition matrix; it and the one before it make up the embedding.
const POWERS: usize = 4;
/// Rows whose sums are taken together: fixed, so that the result does not depend on the number of
/// threads.
const ROWS_PER_SUM: usize = 4096;

/// Writes the embedding of every vertex.
pub(super) fn generate_rows(
    indptr: &[u64],
    indices: &[u32],
    seed: u64,
    writer: &mut FeatureWriter,
    progress: &dyn Progress,
) -> Result<()> {
    let (n, dim) = (indptr.len() - 1, writer.dim());
    if n == 0 {
        return Ok(());
    }
    let values = n.saturating_mul(8 * dim + 16).saturating_add(4 * indices.len());
    check_memory("FastRP features", values as u64)?;
    let graph = Undirected::new(indptr, indices);
    let stage = progress.stage("embedding", Some((POWERS * n) as u64), Unit::Items("rows"));
    let mut power = projection(n, dim, seed);
    let mut before = vec![0.0; n * dim];
    for _ in 0..POWERS {
        std::mem::swap(&mut power, &mut before);
        average_neighbours(&graph, &before, &mut power, dim, stage.as_ref());
    }
    drop((graph, stage));
    power.par_chunks_mut(dim).zip(before.par_chunks(dim)).for_each(|(row, other)| {
        let (scale, other_scale) = (inverse_length(row), inverse_length(other));
        row.iter_mut()
            .zip(other)
            .for_each(|(value, other)| *value = *value * scale + other * other_scale);
    });
    drop(before);
    let (mean, scale) = column_moments(&power, dim);
    write_rows(writer, n, progress, |v, row| {
        let values = &power[v as usize * dim..][..dim];
        for (column, value) in row.iter_mut().enumerate() {
            *value = (values[column] - mean[column]) * scale[column];
        }
    })
}

/// A graph whose edges are walked in both directions, each once, self-loops left out.
struct Undirected<'a> {
    indptr: &'a [u64],
    indices: &'a [u32],
    /// The graph with every edge reversed: 8 bytes per vertex and 4 per edge.
    reverse_indptr: Vec<u64>,
    reverse_indices: Vec<u32>,
}

impl<'a> Undirected<'a> {
    fn new(indptr: &'a [u64], indices: &'a [u32]) -> Self {
        let mut cursors = vec![0u64; indptr.len()];
        indices.iter().for_each(|&u| cursors[u as usize + 1] += 1);
        for at in 1..cursors.len() {
            cursors[at] += cursors[at - 1];
        }
        let reverse_indptr = cursors.clone();
        let mut reverse_indices = vec![0; indices.len()];
        for (v, ends) in indptr.windows(2).enumerate() {
            for &u in &indices[ends[0] as usize..ends[1] as usize] {
                reverse_indices[cursors[u as usize] as usize] = v as u32;
                cursors[u as usize] += 1;
            }
        }
        Self { indptr, indices, reverse_indptr, reverse_indices }
    }

    /// Calls `f` for every neighbour of `v`, ascending. Returns how many there are.
    fn for_each_neighbour(&self, v: usize, mut f: impl FnMut(u32)) -> usize {
        let mut ins = self.indices[self.indptr[v] as usize..self.indptr[v + 1] as usize]
            .iter()
            .copied()
            .peekable();
        let (start, end) = (self.reverse_indptr[v] as usize, self.reverse_indptr[v + 1] as usize);
        let mut outs = self.reverse_indices[start..end].iter().copied().peekable();
        let (mut last, mut count) = (v as u32, 0);
        loop {
            let next = match (ins.peek(), outs.peek()) {
                (Some(&a), Some(&b)) if b < a => outs.next(),
                (Some(_), _) => ins.next(),
                (None, _) => outs.next(),
            };
            let Some(u) = next else { return count };
            if u != last && u != v as u32 {
                f(u);
                count += 1;
            }
            last = u;
        }
    }
}

/// `n` rows of ±√3 with probability 1/6 each, 0 otherwise.
fn projection(n: usize, dim: usize, seed: u64) -> Vec<f32> {
    let key = StreamKey { layer: 1, ..StreamKey::new(seed, Stream::Projection) };
    let mut rows = vec![0.0; n * dim];
    rows.par_chunks_mut(dim).enumerate().for_each(|(v, row)| {
        let mut draws = Draws::new(&key, v as u32);
        for value in row {
            *value = [3f32.sqrt(), -(3f32.sqrt()), 0.0, 0.0, 0.0, 0.0][draws.below(6) as usize];
        }
    });
    rows
}

/// One step of the random walk: each row of `to` is the mean of the neighbours' rows in `from`.
fn average_neighbours(
    graph: &Undirected<'_>,
    from: &[f32],
    to: &mut [f32],
    dim: usize,
    stage: &dyn Stage,
) {
    to.par_chunks_mut(dim * ROWS_PER_SUM).enumerate().for_each(|(chunk, rows)| {
        for (i, row) in rows.chunks_mut(dim).enumerate() {
            row.fill(0.0);
            let v = chunk * ROWS_PER_SUM + i;
            let count = graph.for_each_neighbour(v, |u| {
                let other = &from[u as usize * dim..][..dim];
                row.iter_mut().zip(other).for_each(|(sum, value)| *sum += value);
            });
            let share = 1.0 / count.max(1) as f32;
            row.iter_mut().for_each(|value| *value *= share);
        }
        stage.advance((rows.len() / dim) as u64);
    });
}

/// Factor that gives `row` length 1; 0 for a row of zeros.
fn inverse_length(row: &[f32]) -> f32 {
    let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 { 1.0 / length } else { 0.0 }
}

/// Mean of every column, and what to multiply it with for variance 1 (0 for a constant column).
fn column_moments(rows: &[f32], dim: usize) -> (Vec<f32>, Vec<f32>) {
    let mean = column_means(rows, dim, |_, value| value);
    let variance = column_means(rows, dim, |column, value| (value - mean[column]).powi(2));
    // Rounding leaves a constant column a variance near 0 rather than 0.
    let scale = |variance: f64| if variance > 1e-12 { variance.sqrt().recip() as f32 } else { 0.0 };
    (mean.iter().map(|&mean| mean as f32).collect(), variance.into_iter().map(scale).collect())
}

/// Mean over the rows of `f(column, value)`, for every column.
fn column_means(rows: &[f32], dim: usize, f: impl Fn(usize, f64) -> f64 + Sync) -> Vec<f64> {
    let sums: Vec<Vec<f64>> = rows
        .par_chunks(dim * ROWS_PER_SUM)
        .map(|rows| {
            let mut sums = vec![0.0; dim];
            for row in rows.chunks(dim) {
                sums.iter_mut()
                    .enumerate()
                    .for_each(|(column, sum)| *sum += f(column, f64::from(row[column])));
            }
            sums
        })
        .collect();
    let n = (rows.len() / dim) as f64;
    (0..dim).map(|column| sums.iter().map(|sums| sums[column]).sum::<f64>() / n).collect()
}
