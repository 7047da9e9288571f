//! Sums and means of rows on the host.
//!
//! Returns: one row per target; backwards, one row per source or one value per edge. Input: checked
//! [`HostEdges`], matrices of matching sizes. Idea: forwards a task owns a range of targets,
//! backwards a range of sources with the edges grouped by source, so nothing is scattered and
//! nothing is atomic; ranges have equal numbers of edges. Rows are prefetched a few edges ahead.
//! Cost: one read of a row for each edge, one write of each output row.

use crate::edges::{HostEdges, Part, for_balanced_rows};
use crate::error::{KernelError, check_len, check_matrix};
use crate::gather::StoredRow;
use crate::prefetch::prefetch_all;
use crate::simd::{ahead, dot};

/// Reduction of the rows of a target's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// Their sum divided by the number of edges, weighted or not.
    Mean,
}

/// An aggregation over a layer's edges.
#[derive(Clone, Copy, Debug)]
pub struct Aggregation<'a> {
    /// The edges.
    pub edges: &'a HostEdges,
    /// Sum or mean.
    pub reduce: Reduce,
    /// A factor for the row of each edge, in the order of [`HostEdges::sources`]; 1 when `None`.
    pub weights: Option<&'a [f32]>,
    /// Whether the target's own row comes first: output rows are then twice as wide. Row `t` of the
    /// sources is target `t`'s own.
    pub concat_self: bool,
}

impl Aggregation<'_> {
    /// [`Aggregation::forward`] for the rows of a matrix, each of `dim` values. It is not generic,
    /// so it is optimised with this crate where the tests do not optimise the crate that calls it.
    ///
    /// # Panics
    /// If `rows` does not have a row for each source.
    pub fn forward_f32(
        &self,
        rows: &[f32],
        dim: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        self.forward(
            #[inline(always)]
            |source| &rows[source as usize * dim..][..dim],
            dim,
            out,
        )
    }

    /// Sets row `t` of `out` (targets × [`Aggregation::out_dim`]) to the aggregate of
    /// `rows(source)` over the edges into `t`, widened to `f32`. `rows` returns row `source`, `dim`
    /// values in any memory.
    ///
    /// # Errors
    /// [`KernelError::Length`] if a buffer has the wrong length, [`KernelError::RowOutOfRange`] if
    /// a target has no row of its own.
    ///
    /// # Panics
    /// If `rows` gives a row that is not `dim` wide.
    pub fn forward<R: StoredRow>(
        &self,
        rows: impl Fn(u32) -> R + Sync,
        dim: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let Self { edges, .. } = *self;
        self.check()?;
        check_matrix("output of aggregation", edges.num_targets(), self.out_dim(dim), out.len())?;
        if dim == 0 {
            return Ok(());
        }
        let sources = edges.sources();
        for_balanced_rows!(
            edges.indptr(),
            dim,
            Part::rows(out, self.out_dim(dim)),
            |targets, out| {
                for (target, out) in targets.zip(out.values.chunks_exact_mut(self.out_dim(dim))) {
                    let (own, sum) = out.split_at_mut(self.own_dim(dim));
                    if self.concat_self {
                        rows(target as u32).write_to(own);
                    }
                    sum.fill(0.0);
                    let scale = self.scale(target);
                    for edge in edges.of(target) {
                        if let Some(&next) = sources.get(edge + ahead(dim)) {
                            prefetch_all(rows(next).bytes());
                        }
                        rows(sources[edge]).add_to(self.factor(edge, scale), sum);
                    }
                }
            }
        );
        Ok(())
    }

    /// Sets row `s` of `out` (sources × `dim`) to the gradient of source row `s`. `gradient`
    /// (targets × [`Aggregation::out_dim`]) is the gradient of the output.
    pub fn backward(
        &self,
        gradient: &[f32],
        dim: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let (edges, stride) = (self.edges, self.out_dim(dim));
        self.check()?;
        check_matrix("gradient of aggregation", edges.num_targets(), stride, gradient.len())?;
        check_matrix("gradient of the sources", edges.num_sources(), dim, out.len())?;
        if dim == 0 {
            return Ok(());
        }
        let by_source = edges.by_source();
        let row = |target: u32| &gradient[target as usize * stride + self.own_dim(dim)..][..dim];
        for_balanced_rows!(&by_source.indptr, dim, Part::rows(out, dim), |sources, out| {
            for (source, out) in sources.zip(out.values.chunks_exact_mut(dim)) {
                match self.concat_self && source < edges.num_targets() {
                    true => out.copy_from_slice(&gradient[source * stride..][..dim]),
                    false => out.fill(0.0),
                }
                for place in by_source.of(source) {
                    if let Some(&next) = by_source.targets.get(place + ahead(dim)) {
                        prefetch_all(row(next));
                    }
                    let (target, edge) =
                        (by_source.targets[place], by_source.edges[place] as usize);
                    row(target).add_to(self.factor(edge, self.scale(target as usize)), out);
                }
            }
        });
        Ok(())
    }

    /// Sets `out[e]` to the gradient of edge `e`'s weight: the product of its source's row with its
    /// target's gradient, divided by the number of edges for the mean.
    pub fn weights_backward(
        &self,
        rows: &[f32],
        gradient: &[f32],
        dim: usize,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let (edges, stride) = (self.edges, self.out_dim(dim));
        self.check()?;
        check_matrix("rows of the sources", edges.num_sources(), dim, rows.len())?;
        check_matrix("gradient of aggregation", edges.num_targets(), stride, gradient.len())?;
        check_len("gradient of the weights", edges.num_edges(), out.len())?;
        let row = |source: u32| &rows[source as usize * dim..][..dim];
        for_balanced_rows!(edges.indptr(), dim, Part::edges(out, 1, 0), |targets, out| {
            let mut left = out.values;
            for target in targets {
                let gradient = &gradient[target * stride + self.own_dim(dim)..][..dim];
                let (scale, of) = (self.scale(target), edges.of(target));
                let (mine, rest) = left.split_at_mut(of.len());
                for (edge, out) in of.zip(mine) {
                    *out = scale * dot(row(edges.sources()[edge]), gradient);
                }
                left = rest;
            }
        });
        Ok(())
    }

    /// Width of an output row for sources of width `dim`.
    pub fn out_dim(&self, dim: usize) -> usize {
        dim + self.own_dim(dim)
    }

    #[inline(always)]
    fn own_dim(&self, dim: usize) -> usize {
        if self.concat_self { dim } else { 0 }
    }

    #[inline(always)]
    fn scale(&self, target: usize) -> f32 {
        match self.reduce {
            Reduce::Sum => 1.0,
            Reduce::Mean => 1.0 / self.edges.of(target).len().max(1) as f32,
        }
    }

    #[inline(always)]
    fn factor(&self, edge: usize, scale: f32) -> f32 {
        self.weights.map_or(scale, |weights| scale * weights[edge])
    }

    fn check(&self) -> Result<(), KernelError> {
        if let Some(weights) = self.weights {
            check_len("edge weights", self.edges.num_edges(), weights.len())?;
        }
        self.edges.check_own_rows(self.concat_self)
    }
}
