//! Rows of a table of which a GPU can read only some: the host gathers the others.
//!
//! Returns: rows of given vertices in memory of a GPU, in the requested type. Input: stores of rows
//! that the GPU reads, which are in its memory, in that of others, or pinned in the host's; and a
//! function that gathers rows on the host. Idea: vertices are dealt to the first store that has
//! their rows, and to the host. The GPU gathers from one store after the other while the host
//! gathers; the host's rows are copied behind them; then one more gather on the GPU puts all in the
//! order of the vertices. Rows are transformed on the GPU, in f32, wherever they come from. Cost: 4
//! bytes of host memory per vertex; the bytes of the host's rows over the bus; two passes over all
//! rows in the GPU's memory.

use std::sync::Arc;

use gsplit_kernels::{
    DeviceBuffer, DeviceSlice, DeviceTable, DeviceValue, Gpu, RowStore, gather_on_device,
};
use tch::{Kind, Tensor};

use super::gpu_rows::{Gathered, Unrounded};
use crate::Result;
use crate::autograd::values;
use crate::model::Input;
use crate::operator::{Row, with_row};

/// Position of a row that is in no store.
const NOWHERE: u32 = u32::MAX;

/// Gathers rows of some vertices on the host, unchanged, in the given kind.
pub type OnHost<'r> = dyn Fn(&[u32], Kind) -> Result<Tensor> + 'r;

/// Interface of [`TieredRows`] for any type of stored values.
pub trait AnyTiered: Send + Sync {
    /// The rows of `vertices`, transformed by `input`, to become rows of `kind`, in memory of the
    /// stream of `gpu`; and the number of rows that were in pinned memory.
    fn gather(
        &self,
        gpu: &Gpu,
        vertices: &[u32],
        input: &Input,
        kind: Kind,
        on_host: &OnHost<'_>,
    ) -> Result<(Box<dyn Gathered>, u64)>;
}

/// Rows that a GPU can read, and their vertices.
pub(super) enum ReachedRows<'a, T: DeviceValue> {
    /// In the memory of a GPU.
    Gpu(Arc<RowStore<'a, T>>),
    /// In pinned memory of the host; their scales are on the GPU.
    Pinned { vertices: &'a [u32], values: DeviceSlice<'a, T>, scales: Option<DeviceBuffer<f32>> },
}

impl<'a, T: DeviceValue> ReachedRows<'a, T> {
    fn vertices(&self) -> &'a [u32] {
        match self {
            Self::Gpu(store) => store.vertices(),
            Self::Pinned { vertices, .. } => vertices,
        }
    }

    fn table(&self, dim: usize) -> DeviceTable<'_, T> {
        match self {
            Self::Gpu(store) => store.table(),
            Self::Pinned { values, scales, .. } => DeviceTable {
                values: *values,
                scales: scales.as_ref().map(DeviceBuffer::slice),
                dim,
            },
        }
    }
}

/// Rows for one rank.
pub(super) struct TieredRows<'a, T: DeviceValue> {
    dim: usize,
    stores: Vec<ReachedRows<'a, T>>,
    /// For each vertex the position of its row in the concatenation of all stores.
    places: Vec<u32>,
}

impl<'a, T: DeviceValue> TieredRows<'a, T> {
    /// Creates the rows of a table with `num_vertices` rows of `dim` values; a row comes from the
    /// first of `stores` that has it.
    pub fn new(dim: usize, num_vertices: usize, stores: Vec<ReachedRows<'a, T>>) -> Self {
        let mut places = vec![NOWHERE; num_vertices];
        for (&v, place) in stores.iter().flat_map(|store| store.vertices()).zip(0u32..) {
            if let Some(found) = places.get_mut(v as usize).filter(|found| **found == NOWHERE) {
                *found = place;
            }
        }
        Self { dim, stores, places }
    }

    /// The untransformed rows from the stores and `on_host`, in memory of the stream of `gpu`; and
    /// how many were pinned.
    fn raw<P: Row>(
        &self,
        gpu: &Gpu,
        vertices: &[u32],
        on_host: &OnHost<'_>,
    ) -> Result<(DeviceBuffer<P>, u64)> {
        let ends = running(self.stores.iter().map(|store| store.vertices().len()));
        // For each store the rows to take from it, and last the vertices for the host.
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); ends.len() + 1];
        let dealt: Vec<(usize, u32)> =
            vertices.iter().map(|&v| self.deal(v, &ends, &mut lists)).collect();
        let list_ends = running(lists.iter().map(Vec::len));
        let start_of = |list: usize| list_ends[list] - lists[list].len() as u32;
        let mut behind = gpu.alloc::<P>(vertices.len() * self.dim)?;
        let part = |list| [start_of(list), list_ends[list]].map(|row| row as usize * self.dim);
        for (at, store) in self.stores.iter().enumerate().filter(|(at, _)| !lists[*at].is_empty()) {
            let (table, [start, end]) = (store.table(self.dim), part(at));
            let slots = gpu.upload(&lists[at])?;
            let mut out = behind.slice_mut().part(start, end)?;
            gather_on_device(gpu, table.values, table.scales, slots.slice(), self.dim, &mut out)?;
        }
        let of_host = ends.len();
        if !lists[of_host].is_empty() {
            let (rows, [start, end]) = (on_host(&lists[of_host], P::KIND)?, part(of_host));
            behind.slice_mut().part(start, end)?.upload(gpu, values::<P>(&rows)?)?;
        }
        let is_pinned = |store: &ReachedRows<'a, T>| matches!(store, ReachedRows::Pinned { .. });
        let pinned = self.stores.iter().zip(&lists).filter(|(store, _)| is_pinned(store));
        let pinned = pinned.map(|(_, list)| list.len() as u64).sum();
        if lists.iter().filter(|list| !list.is_empty()).count() <= 1 {
            return Ok((behind, pinned));
        }
        let order: Vec<u32> = dealt.iter().map(|&(list, at)| start_of(list) + at).collect();
        let (order, mut out) = (gpu.upload(&order)?, gpu.alloc::<P>(vertices.len() * self.dim)?);
        gather_on_device(gpu, behind.slice(), None, order.slice(), self.dim, &mut out.slice_mut())?;
        Ok((out, pinned))
    }

    /// Adds `v` to the list of the store that holds its position, or to the host's; returns the
    /// list and the index in it.
    fn deal(&self, v: u32, ends: &[u32], lists: &mut [Vec<u32>]) -> (usize, u32) {
        let place = self.places.get(v as usize).copied().unwrap_or(NOWHERE);
        let list =
            if place == NOWHERE { ends.len() } else { ends.partition_point(|&end| end <= place) };
        let start = list.checked_sub(1).map_or(0, |before| ends[before]);
        lists[list].push(if list == ends.len() { v } else { place - start });
        (list, lists[list].len() as u32 - 1)
    }
}

/// The sum of `counts` up to and including each.
fn running(counts: impl Iterator<Item = usize>) -> Vec<u32> {
    let add = |end: &mut u32, rows| {
        *end += rows as u32;
        Some(*end)
    };
    counts.scan(0, add).collect()
}

impl<T: DeviceValue> AnyTiered for TieredRows<'_, T> {
    fn gather(
        &self,
        gpu: &Gpu,
        vertices: &[u32],
        input: &Input,
        kind: Kind,
        on_host: &OnHost<'_>,
    ) -> Result<(Box<dyn Gathered>, u64)> {
        if input.is_plain() {
            return with_row!(kind, |O| {
                let (rows, pinned) = self.raw::<O>(gpu, vertices, on_host)?;
                Ok((Box::new(rows), pinned))
            });
        }
        let (mut rows, pinned) = self.raw::<f32>(gpu, vertices, on_host)?;
        input.apply_on_gpu(gpu, gpu.upload(vertices)?.slice(), &mut rows.slice_mut(), self.dim)?;
        Ok((Box::new(Unrounded { rows, kind }), pinned))
    }
}
