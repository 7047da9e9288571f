//! Copies the graph to memory that GPUs read: chooses the storage, checks the room, and makes the
//! copies.

use bytemuck::Pod;
use gsplit_kernels::{DeviceSubgraph, Gpu, GpuError, Graph, MappedHost};
use gsplit_store::Progress;
use gsplit_store::memory::{Memory, shown};

use super::{DeviceRoom, GpuArrays, PinnedGraph, Topology};
use crate::config::{ModelKind, TopologyStorage};
use crate::job::Job;
use crate::operator::{Place, sharing};
use crate::{Error, Result};

/// Inputs for bringing the graph to GPUs.
pub(super) struct Source<'s, 'a> {
    pub job: &'s Job<'a>,
    /// Places of the ranks of this process.
    pub places: &'s [Place],
    /// The first of these ranks.
    pub first: usize,
    pub room: &'s DeviceRoom,
    pub progress: &'s dyn Progress,
}

/// Bytes of the graph of `job` and of every vertex's owner.
pub fn graph_bytes(job: &Job<'_>) -> u64 {
    job.graph.num_bytes() + owner_bytes(job)
}

/// Bytes that the memory budget counts for the graph and owners, and the part of them that must be
/// in memory. A copied `indptr` belongs to the program, and mapped edges may be read as they are
/// drawn; the copy from which links are learnt must be in memory whole.
pub fn held_bytes(job: &Job<'_>) -> [u64; 2] {
    let (copied, owners) = (job.graph.is_reading_ahead(), owner_bytes(job));
    let indptr = if copied { 0 } else { size_of_val(job.graph.indptr) as u64 };
    let all = indptr + size_of_val(job.graph.indices) as u64 + owners;
    [all, if job.config.data.task.is_link() { all } else { indptr + owners }]
}

fn owner_bytes(job: &Job<'_>) -> u64 {
    job.frontiers.map().map_or(0, size_of_val) as u64
}

impl<'a> Source<'_, 'a> {
    fn graph(&self) -> Graph<'a> {
        self.job.graph
    }

    pub fn on_host(&self) -> Topology<'a> {
        self.found(TopologyStorage::Host, PinnedGraph::default(), Vec::new())
    }

    /// A topology without subgraphs.
    fn found(
        &self,
        place: TopologyStorage,
        pinned: PinnedGraph<'a>,
        gpus: Vec<GpuArrays>,
    ) -> Topology<'a> {
        let ranks = self.places.len();
        let subgraphs = (0..ranks).map(|_| None).collect();
        Topology { place, pinned, gpus, subgraphs, first: self.first, bytes: vec![0; ranks] }
    }

    /// Whether degrees of vertices whose in-edges are elsewhere, or ids of edges, are needed.
    fn reads_indptr(&self) -> bool {
        let of_sources = matches!(
            self.job.config.model.kind,
            ModelKind::Gcn | ModelKind::Resgcn | ModelKind::Sgc
        );
        of_sources || self.job.hooks.layer.is_some() || self.job.config.data.task.is_link()
    }

    /// Whether `bytes` fit in a rank's room, next to the cache.
    fn fits(&self, index: usize, bytes: u64) -> bool {
        bytes <= self.room.of(index).saturating_sub(self.job.cache_bytes().unwrap_or(0))
    }

    /// Number of ranks that share the GPU of the rank at `index`.
    fn sharing(&self, index: usize) -> u64 {
        let is_here = |(gpu, _): &&(&Gpu, u64)| {
            self.places[index].gpu().is_some_and(|own| own.is_same_device(gpu))
        };
        sharing(self.places).iter().find(is_here).map_or(1, |(_, ranks)| *ranks)
    }

    /// Uses the first storage that is possible.
    pub fn best(&self) -> Result<Topology<'a>> {
        let (first, in_memory) = match self.job.frontiers.map_of_all() {
            None => {
                let fit = self.fits_each(|index| graph_bytes(self.job) / self.sharing(index));
                (TopologyStorage::Device, fit)
            }
            Some(_) => {
                let parts = self.part_bytes();
                (TopologyStorage::Part, self.fits_each(|index| parts[index]))
            }
        };
        for place in [first, TopologyStorage::Pinned] {
            if place == first && !in_memory {
                continue;
            }
            match self.bring(place) {
                Ok(found) => return Ok(found),
                Err(Error::Gpu(GpuError::OutOfMemory { .. })) => {}
                Err(error) if place == TopologyStorage::Device => return Err(error),
                Err(error) => {
                    self.progress.note(&format!(
                        "the host samples for the GPUs, which cannot read the graph: {error}"
                    ));
                    break;
                }
            }
        }
        Ok(self.on_host())
    }

    fn fits_each(&self, bytes: impl Fn(usize) -> u64) -> bool {
        (0..self.places.len()).all(|index| self.fits(index, bytes(index)))
    }

    pub fn bring(&self, place: TopologyStorage) -> Result<Topology<'a>> {
        match place {
            TopologyStorage::Device => self.on_gpus(),
            TopologyStorage::Part => self.of_parts(),
            TopologyStorage::Pinned => self.in_pinned_memory(),
            TopologyStorage::Auto | TopologyStorage::Host => Ok(self.on_host()),
        }
    }

    /// The arrays of each GPU, with copies of owners, and of `indptr` and `indices` if true.
    fn each_gpu(&self, indptr: bool, indices: bool) -> Result<Vec<GpuArrays>> {
        let Graph { indptr: starts, indices: sources, .. } = self.graph();
        let copies = |(gpu, _): (&Gpu, u64)| {
            let arrays = GpuArrays {
                indptr: indptr.then(|| gpu.upload(starts)).transpose()?,
                indices: indices.then(|| gpu.upload(sources)).transpose()?,
                owners: self.job.frontiers.map().map(|owners| gpu.upload(owners)).transpose()?,
                gpu: gpu.clone(),
            };
            gpu.synchronise()?;
            Ok(arrays)
        };
        sharing(self.places).into_iter().map(copies).collect()
    }

    /// Copies the graph to each GPU.
    fn on_gpus(&self) -> Result<Topology<'a>> {
        let mut found =
            self.found(TopologyStorage::Device, PinnedGraph::default(), self.each_gpu(true, true)?);
        found.bytes = (0..self.places.len())
            .map(|index| graph_bytes(self.job) / self.sharing(index))
            .collect();
        Ok(found)
    }

    /// Bytes of a rank's GPU in addition to its subgraph.
    fn beside(&self, index: usize) -> u64 {
        let indptr = if self.reads_indptr() { size_of_val(self.graph().indptr) as u64 } else { 0 };
        (owner_bytes(self.job) + indptr) / self.sharing(index)
    }

    /// The part of the partition map that a rank owns.
    fn part(&self, index: usize) -> usize {
        (self.first + index) % self.job.config.ranks_of_group()
    }

    /// Bytes that each rank needs for the in-edges of its own vertices.
    fn part_bytes(&self) -> Vec<u64> {
        let (graph, owners) = (self.graph(), self.job.frontiers.map_of_all().unwrap_or_default());
        let mut parts = vec![(0, 0); self.job.config.ranks_of_group()];
        for (v, &owner) in (0..).zip(owners) {
            if let Some((vertices, edges)) = parts.get_mut(usize::from(owner)) {
                (*vertices, *edges) = (*vertices + 1, *edges + graph.degree(v));
            }
        }
        let of = |index: usize| {
            let (vertices, edges) = parts[self.part(index)];
            DeviceSubgraph::bytes(graph.num_vertices() as u64, vertices, edges) + self.beside(index)
        };
        (0..self.places.len()).map(of).collect()
    }

    /// Copies only the in-edges of each rank's own vertices to its GPU.
    fn of_parts(&self) -> Result<Topology<'a>> {
        let (graph, owners) = (self.graph(), self.job.frontiers.map_of_all().unwrap_or_default());
        let first = self.places.iter().find_map(Place::gpu).filter(|_| !self.reads_indptr());
        let (mut indptr, mut uploaded) = (None, 0);
        match first.map(|gpu| self.pin_or_copy(gpu, graph.indptr)) {
            Some(Err(error)) => {
                // Room for it has not been checked yet.
                uploaded = size_of_val(graph.indptr) as u64;
                let parts = self.part_bytes();
                if !self.fits_each(|index| parts[index] + uploaded / self.sharing(index)) {
                    return Err(error);
                }
                let bytes = shown(uploaded);
                self.progress.note(&format!(
                    "each GPU keeps the degrees of all vertices ({bytes}): {error}"
                ));
            }
            pinned => indptr = pinned.transpose()?,
        }
        let gpus = self.each_gpu(indptr.is_none(), false)?;
        let mut found = self.found(
            TopologyStorage::Part,
            PinnedGraph { indptr, ..PinnedGraph::default() },
            gpus,
        );
        for (index, place) in self.places.iter().enumerate() {
            let Some(gpu) = place.gpu() else { continue };
            let part = self.part(index);
            let owned = |owners: &[u16]| {
                let is_own =
                    |(v, &owner): (usize, &u16)| u64::from(usize::from(owner) == part) << v;
                owners.iter().enumerate().map(is_own).sum()
            };
            let subgraph = DeviceSubgraph::new(
                gpu,
                &graph,
                &owners.chunks(64).map(owned).collect::<Vec<_>>(),
            )?;
            found.bytes[index] =
                subgraph.num_bytes() + self.beside(index) + uploaded / self.sharing(index);
            found.subgraphs[index] = Some(subgraph);
        }
        Ok(found)
    }

    fn in_pinned_memory(&self) -> Result<Topology<'a>> {
        let mut pinned = PinnedGraph::default();
        if let Some(gpu) = self.places.iter().find_map(Place::gpu) {
            let Graph { indptr, indices, .. } = self.graph();
            let owners =
                self.job.frontiers.map().map(|owners| self.pin_or_copy(gpu, owners)).transpose()?;
            pinned = PinnedGraph {
                indptr: Some(self.pin_or_copy(gpu, indptr)?),
                indices: Some(self.pin_or_copy(gpu, indices)?),
                owners,
            };
        }
        let nothing = |(gpu, _): (&Gpu, u64)| GpuArrays {
            gpu: gpu.clone(),
            indptr: None,
            indices: None,
            owners: None,
        };
        Ok(self.found(
            TopologyStorage::Pinned,
            pinned,
            sharing(self.places).into_iter().map(nothing).collect(),
        ))
    }

    /// Pins `values` in place, or else a copy, if at least as much memory is left.
    fn pin_or_copy<T: Pod>(&self, gpu: &Gpu, values: &'a [T]) -> Result<MappedHost<'a, T>> {
        Ok(gpu.map_host_or_copy(values, Memory::of_this_machine().available() / 2)?)
    }
}
