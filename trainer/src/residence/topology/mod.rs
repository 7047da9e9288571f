//! Topology: the graph in the memory from which sampling GPUs read it.
//!
//! Returns: for each rank, the arrays that its GPU reads: the graph, and under a partition map
//! every vertex's owner. Input: the graph in host memory or a mapped file, the ranks' places, and
//! the available room ([`DeviceRoom`](DeviceRoom)).
//!
//! ```text
//! device   a copy in the memory of each GPU, for all ranks that share it
//! part     under split, where a rank samples only its own vertices: their in-edges in its GPU's memory
//! pinned   all of it in host memory, pinned once for all and read over the bus
//! host     the host samples
//! ```
//!
//! A run uses by default the first that is possible of part (split) or device (otherwise), pinned
//! and host. All ranks of a process use the same. With a part, `indptr` stays in pinned host
//! memory, unless layers need the degrees of other ranks' vertices (GCN) or draws need the ids of
//! edges (links), which read it at every vertex; for these it is copied to the GPU. Most drivers
//! cannot pin mapped files; then a copy in memory is pinned, if at least as much memory is left. If
//! nothing can be pinned the host samples. Cost: 8 bytes per vertex and 4 per edge, for the
//! vertices stored there; with a part, a quarter of a byte for every other vertex of the graph;
//! under a partition map 2 bytes for every vertex.

mod bring;
mod room;

use gsplit_kernels::{
    DeviceBuffer, DeviceGraph, DeviceSlice, DeviceSubgraph, Gpu, MappedHost, Sampler,
};
use gsplit_store::Progress;
use gsplit_store::memory::shown;

use crate::config::TopologyStorage;
use crate::job::Job;
use crate::operator::Place;
use crate::sample::{BatchSampler, OnDevice};
use crate::{Error, Result};

use bring::Source;
pub use bring::{graph_bytes, held_bytes};
pub use room::DeviceRoom;

/// The graph in the memory from which the ranks' GPUs read it.
pub struct Topology<'a> {
    place: TopologyStorage,
    /// Host memory that all GPUs read.
    pinned: PinnedGraph<'a>,
    /// Arrays on each GPU, shared by the ranks that share the GPU.
    gpus: Vec<GpuArrays>,
    /// In-edges that each rank of this process has on its GPU; `None` if it reads all from
    /// elsewhere.
    subgraphs: Vec<Option<DeviceSubgraph>>,
    /// The first rank of this process.
    first: usize,
    /// Bytes of its GPU that each rank of this process uses.
    bytes: Vec<u64>,
}

#[derive(Default)]
struct PinnedGraph<'a> {
    indptr: Option<MappedHost<'a, u64>>,
    indices: Option<MappedHost<'a, u32>>,
    owners: Option<MappedHost<'a, u16>>,
}

/// Arrays in the memory of one GPU.
struct GpuArrays {
    gpu: Gpu,
    indptr: Option<DeviceBuffer<u64>>,
    indices: Option<DeviceBuffer<u32>>,
    owners: Option<DeviceBuffer<u16>>,
}

impl<'a> Topology<'a> {
    /// Brings the graph of `job` to where the GPUs of `places`, those of all ranks, read it, and
    /// notes where that is.
    pub fn new(
        job: &Job<'a>,
        places: &[Place],
        room: &DeviceRoom,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let (asked, here) = (job.config.system.topology, job.hooks.ranks_here(places.len()));
        let source =
            Source { job, places: &places[here.clone()], first: here.start, room, progress };
        if source.places.iter().all(|place| place.gpu().is_none()) {
            return match asked {
                TopologyStorage::Auto | TopologyStorage::Host => Ok(source.on_host()),
                other => Err(Error::Option(format!(
                    "--topology {other} is for --device cuda: leave it out, or give both"
                ))),
            };
        }
        if let (Some(option), true) = (
            job.config.drawn_by_host(),
            !matches!(asked, TopologyStorage::Auto | TopologyStorage::Host),
        ) {
            let problem = format!(
                "only the host draws with {option}: pass --topology host, or leave {option} out"
            );
            return Err(Error::Option(format!("--topology {asked}: {problem}")));
        }
        let found = match asked {
            TopologyStorage::Host => source.on_host(),
            TopologyStorage::Auto if job.config.drawn_by_host().is_some() => source.on_host(),
            TopologyStorage::Auto => source.best()?,
            TopologyStorage::Part if job.frontiers.map_of_all().is_none() => {
                let problem = "--topology part is for --parallelism split, where a rank samples only its own vertices: \
                               pass another place, or `auto`";
                return Err(Error::Option(problem.into()));
            }
            place => source.bring(place).map_err(|error| {
                let bytes = shown(graph_bytes(job));
                Error::Option(format!(
                    "--topology {place}: the graph takes {bytes}: {error}; pass another place, or \
                     `auto`"
                ))
            })?,
        };
        if let Some(line) = found.told(&source) {
            progress.note(&line);
        }
        Ok(found)
    }

    /// Storage of the graph.
    pub fn place(&self) -> TopologyStorage {
        self.place
    }

    /// Bytes of `room` that each rank of this process has left.
    pub fn left_of(&self, room: &DeviceRoom) -> Vec<u64> {
        self.bytes
            .iter()
            .enumerate()
            .map(|(index, bytes)| room.of(index).saturating_sub(*bytes))
            .collect()
    }

    /// Sampler for `rank` at `place`: its GPU, on a separate stream if mini-batches are prepared
    /// ahead, or the host.
    pub fn sampler<'s>(
        &'s self,
        job: &Job<'s>,
        place: &Place,
        rank: usize,
    ) -> Result<BatchSampler<'s>> {
        match self.seen_by(place, rank)? {
            Some(inputs) => BatchSampler::on_device(place, inputs, job.config.system.prefetch > 0),
            None => Ok(BatchSampler::on_host(Sampler::default(), job.graph, place)),
        }
    }

    fn seen_by(&self, place: &Place, rank: usize) -> Result<Option<OnDevice<'_>>> {
        let Some(gpu) = place.gpu() else { return Ok(None) };
        let Some(arrays) = self.gpus.iter().find(|arrays| arrays.gpu.is_same_device(gpu)) else {
            return Ok(None);
        };
        let Some(indptr) = seen(arrays.indptr.as_ref(), self.pinned.indptr.as_ref(), gpu)? else {
            return Ok(None);
        };
        let owners = seen(arrays.owners.as_ref(), self.pinned.owners.as_ref(), gpu)?;
        let subgraph =
            rank.checked_sub(self.first).and_then(|index| self.subgraphs.get(index)?.as_ref());
        let graph =
            match (subgraph, seen(arrays.indices.as_ref(), self.pinned.indices.as_ref(), gpu)?) {
                (Some(subgraph), _) => DeviceGraph::of_subgraph(gpu, indptr, subgraph)?,
                (None, Some(indices)) => DeviceGraph::new(gpu, indptr, indices)?,
                (None, None) => return Ok(None),
            };
        Ok(Some(OnDevice { graph, owners }))
    }

    /// A line for the user; `None` if the host samples.
    fn told(&self, source: &Source<'_, 'a>) -> Option<String> {
        let most = shown(self.bytes.iter().copied().max().unwrap_or(0));
        let whole = shown(graph_bytes(source.job));
        Some(match self.place {
            TopologyStorage::Auto | TopologyStorage::Host => return None,
            TopologyStorage::Device => {
                format!("GPUs sample, from the graph in their memory ({whole} each)")
            }
            TopologyStorage::Pinned => {
                format!("GPUs sample, from the graph in host memory ({whole})")
            }
            TopologyStorage::Part => {
                format!(
                    "GPUs sample, each rank from the in-edges of its own vertices in its GPU's \
                     memory ({most} at most)"
                )
            }
        })
    }
}

/// An array as a GPU sees it, in its own memory or else in the host's.
fn seen<'s, T: bytemuck::Pod>(
    own: Option<&'s DeviceBuffer<T>>,
    pinned: Option<&'s MappedHost<'_, T>>,
    gpu: &Gpu,
) -> Result<Option<DeviceSlice<'s, T>>> {
    Ok(match (own, pinned) {
        (Some(own), _) => Some(own.slice()),
        (None, Some(pinned)) => Some(pinned.seen_by(gpu)?),
        (None, None) => None,
    })
}
