//! Push-pull parallelism: the bottom layer by columns of the features (P3, OSDI 2021, sections 3.2
//! and 3.3).
//!
//! Each rank holds `F / N` columns of every feature row, and takes an equal share of the seeds as
//! under data parallelism. Instead of fetching feature rows it lets the other ranks compute with
//! their columns:
//!
//! ```text
//! push      every rank's sampled edges of the bottom layer go to all ranks
//! partial   each rank computes its columns' contribution to every rank's linear step    (no bias)
//! pull      each rank receives its partial sums from all, and adds them up in rank order
//! complete  bias, activation and all layers above as under data parallelism
//! ```
//!
//! Backwards the gradient of the sums goes to all ranks, and each computes from it the gradient of
//! the weights of its columns: all of it, over the seeds of every rank, and nothing of the other
//! columns. Every parallelism then sums all gradients over the ranks, and that sum is right as it
//! is. Loss and gradients equal those of one rank, up to the order of sums.
//!
//! Cost: sums of hidden width per target of the bottom layer and rank, where data parallelism
//! fetches rows of feature width per vertex read: cheaper if features are wide and hidden rows
//! narrow, more expensive if their widths are similar.

use std::ops::Range;
use std::sync::Arc;

use gsplit_kernels::{Communicator, Graph, all_gather_v, all_to_all_into};
use gsplit_store::{FeatureTable, columns_of};
use tch::{Kind, Tensor};

use super::Preparation;
use crate::autograd::{self, Buffer, values};
use crate::model::{Input, LayerEdges, Model};
use crate::operator::{Edges, Ids, Rows, filled};
use crate::ranks::clock::Clock;
use crate::sample::SampledLayer;
use crate::{Error, Result};

/// The bottom layers of all ranks, of which this rank computes its columns.
pub struct PushPull<'a> {
    layers: Vec<Pushed>,
    /// Table with this rank's columns of the feature rows, and the range of these columns.
    features: &'a FeatureTable,
    columns: Range<usize>,
    /// Width of a whole feature row.
    width: usize,
    /// Computed parts, kept until backward: one entry per rank, or empty.
    partials: Vec<Tensor>,
}

/// The bottom layer of one rank.
struct Pushed {
    edges: Arc<Edges>,
    read: Ids,
    /// This rank's columns of the rows that the layer reads, if they were gathered ahead or read
    /// from a file.
    rows: Option<Tensor>,
}

impl<'a> PushPull<'a> {
    /// Sends the structure of `bottom` to all ranks and receives theirs. The source of `with` holds
    /// this rank's columns of the feature rows; they are read now if mini-batches are prepared
    /// ahead or rows are read from a file. Collective.
    pub fn push(bottom: &SampledLayer, with: Preparation<'a>) -> Result<Self> {
        let Preparation { job, source, comm } = with;
        let width = job.features.dim();
        let gathers_now = job.config.system.prefetch > 0 || source.table().read_by().is_some();
        let (edges, read) = (bottom.edges.on_host()?, bottom.read.on_host()?);
        // Factors are sent as their bits.
        let factors: &[u32] = bytemuck::cast_slice(bottom.edges.factors().unwrap_or_default());
        let sizes =
            [edges.indptr().len(), edges.num_edges(), factors.len()].map(|size| size as u32);
        let structure = [&sizes[..], edges.indptr(), edges.sources(), factors, read].concat();
        let columns = columns_of(width, comm.rank(), comm.size());
        let rows = |read: &[u32]| match gathers_now && !columns.is_empty() {
            true => source.rows(read, &Input::PLAIN, 0).map(Some),
            false => Ok(None),
        };
        let layer = |(rank, structure): (usize, Vec<u32>)| {
            if rank == comm.rank() {
                return Ok(Pushed {
                    edges: bottom.edges.clone(),
                    read: bottom.read.clone(),
                    rows: rows(read)?,
                });
            }
            let (sizes, rest) = structure.split_at(3);
            let (indptr, rest) = rest.split_at(sizes[0] as usize);
            let (sources, rest) = rest.split_at(sizes[1] as usize);
            let (factors, read) = rest.split_at(sizes[2] as usize);
            let edges = Edges::new(source.place(), indptr.to_vec(), sources.to_vec(), read.len())?;
            let edges = edges.with_factors(bytemuck::cast_slice(factors).to_vec())?;
            Ok(Pushed { edges: Arc::new(edges), rows: rows(read)?, read: read.into() })
        };
        let layers = all_gather_v(comm, &structure)?
            .into_iter()
            .enumerate()
            .map(layer)
            .collect::<Result<_>>()?;
        Ok(Self { layers, features: source.table(), columns, width, partials: Vec::new() })
    }

    /// The sums of all columns for this rank's bottom layer, one dimension ([`Model::complete`]).
    /// With `keep`, the parts computed for the other ranks are kept for [`PushPull::backward`].
    /// Collective.
    pub fn forward(
        &mut self,
        model: &Model,
        graph: Graph<'_>,
        keep: bool,
        comm: &dyn Communicator,
        clock: &mut Clock<'_>,
    ) -> Result<Tensor> {
        let partials = self.partials(model, graph, keep)?;
        let lengths: Vec<usize> = partials.iter().map(Tensor::numel).collect();
        let mut send = Buffer::new(lengths.iter().sum())?;
        let mut rest = send.as_mut_slice();
        for partial in &partials {
            let (part, behind) = rest.split_at_mut(partial.numel());
            part.copy_from_slice(values(&partial.detach().contiguous())?);
            rest = behind;
        }
        let length = self.length_of(model, comm.rank())?;
        let has_columns = |rank: usize| !columns_of(self.width, rank, comm.size()).is_empty();
        let counts: Vec<usize> =
            (0..comm.size()).map(|rank| if has_columns(rank) { length } else { 0 }).collect();
        let mut received = Buffer::new(counts.iter().sum())?;
        clock.exchange(|| {
            all_to_all_into(comm, send.as_slice(), &lengths, received.as_mut_slice(), &counts)
        })?;
        if keep {
            self.partials = partials;
        }
        filled(&[length], |sums| {
            let mut parts = received.as_slice().chunks_exact(length.max(1));
            match parts.next() {
                Some(first) => sums.copy_from_slice(first),
                None => sums.fill(0.0),
            }
            parts.for_each(|part| sums.iter_mut().zip(part).for_each(|(sum, more)| *sum += more));
            Ok(())
        })
    }

    /// Computes the gradients of the weights of this rank's columns. `of_sums` is the gradient of
    /// this rank's sums. Collective.
    pub fn backward(
        mut self,
        model: &Model,
        graph: Graph<'_>,
        of_sums: &Tensor,
        comm: &dyn Communicator,
        clock: &mut Clock<'_>,
    ) -> Result<()> {
        let given = match of_sums.defined() {
            true => of_sums.contiguous(),
            false => Tensor::f_zeros(
                [self.length_of(model, comm.rank())? as i64],
                (Kind::Float, model.place().device()),
            )?,
        };
        let lengths = (0..comm.size())
            .map(|rank| self.length_of(model, rank))
            .collect::<Result<Vec<usize>>>()?;
        let given = clock.exchange(|| given_to_all(comm, values(&given)?, &lengths))?;
        let partials = match self.partials.is_empty() {
            true => self.partials(model, graph, true)?,
            false => std::mem::take(&mut self.partials),
        };
        for (partial, given) in partials.into_iter().zip(given) {
            if partial.requires_grad() {
                autograd::backward(&partial, &given)?;
            }
        }
        Ok(())
    }

    /// This rank's contribution to the bottom layer of each rank, recorded by torch with `keep`.
    /// Empty if there is none.
    fn partials(&self, model: &Model, graph: Graph<'_>, keep: bool) -> Result<Vec<Tensor>> {
        let partial = |layer: &Pushed| {
            if self.columns.is_empty() || layer.edges.num_targets() == 0 {
                return Ok(Tensor::f_zeros([0], (Kind::Float, model.place().device()))?);
            }
            let edges = LayerEdges::made(graph, None, layer.edges.clone(), layer.read.clone());
            let rows = match &layer.rows {
                Some(rows) => Rows::Hidden(rows),
                None => Rows::Stored { features: self.features, vertices: layer.read.on_host()? },
            };
            model.partial(&edges, rows, self.columns.clone())
        };
        let all = || self.layers.iter().map(partial).collect();
        if keep { all() } else { tch::no_grad(all) }
    }

    /// Number of values of the sums of `rank`.
    fn length_of(&self, model: &Model, rank: usize) -> Result<usize> {
        let layer = self
            .layers
            .get(rank)
            .ok_or_else(|| Error::Option("a rank without a bottom layer".into()))?;
        match layer.edges.num_targets() {
            0 => Ok(0),
            _ => Ok(model
                .partial_shapes(&layer.edges)?
                .iter()
                .map(|[rows, width]| rows * width)
                .sum()),
        }
    }
}

/// Like [`all_gather_v`], in reused memory: sends `own` to all ranks and returns the values of
/// each, of these `lengths`.
fn given_to_all(comm: &dyn Communicator, own: &[f32], lengths: &[usize]) -> Result<Vec<Tensor>> {
    let mut send = Buffer::new(own.len() * lengths.len())?;
    send.as_mut_slice()
        .chunks_exact_mut(own.len().max(1))
        .for_each(|copy| copy.copy_from_slice(own));
    let all = lengths.iter().sum();
    let mut received = Buffer::new(all)?;
    all_to_all_into(
        comm,
        send.as_slice(),
        &vec![own.len(); lengths.len()],
        received.as_mut_slice(),
        lengths,
    )?;
    let lengths: Vec<i64> = lengths.iter().map(|&length| length as i64).collect();
    Ok(received.into_tensor(&[all as i64])?.f_split_with_sizes(&lengths[..], 0)?)
}
