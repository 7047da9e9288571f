//! Where GPUs that sample read the graph.
//!
//! Returns: for each rank, what its GPU reads: the graph, and under a partition map every vertex's owner. Input: the graph in host
//! memory or a mapped file, and the ranks' places. Idea: a copy in the memory of each GPU, for all ranks that share it, where
//! at least half of what is free is left for mini-batches, model and activations after the feature cache and the numbering
//! of each rank (4 bytes a vertex, at most 1 GiB). Else the graph is pinned in host memory, once, and read over the bus: a
//! few bytes for each sampled edge. A mapped file cannot be pinned everywhere; then what is pinned is a copy in memory, if at
//! least as much is left. Where nothing can be pinned the host samples. One choice for all ranks.
//! Cost: 8 bytes a vertex, 4 an edge; under a partition map 2 more a vertex.

use std::sync::OnceLock;

use clap::ValueEnum;
use gsplit_kernels::{DeviceBuffer, DeviceGraph, DeviceSlice, Gpu, GpuError, Graph, MappedHost, Sampler};
use gsplit_store::Progress;
use gsplit_store::memory::{Memory, shown};
use serde::Serialize;

use crate::batch::{BatchSampler, OnDevice, Ownership};
use crate::job::Job;
use crate::options::RunOptions;
use crate::place::Place;
use crate::{Error, Result};

/// Share of a GPU's free memory that the graph and what stays beside it may take: one of so many.
const SHARE: u64 = 2;
/// Bytes that a sampler numbers vertices in, at most.
const MOST_NUMBERING: u64 = 1 << 30;

/// Where the graph is sampled from, and with it by what; the samples are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyPlace {
    /// The first of the others that is possible
    #[default]
    Auto,
    /// The memory of each GPU
    Device,
    /// Pinned host memory, which GPUs read over the bus
    Pinned,
    /// Host memory, sampled by the CPU
    Host,
}

/// The graph in host memory, where it had to be copied there to be pinned.
pub type Copied = OnceLock<(Vec<u64>, Vec<u32>)>;

/// The graph where the ranks' GPUs read it.
pub struct Topology<'a>(At<'a>);

enum At<'a> {
    Host,
    Device(Vec<OnGpu>),
    Pinned { indptr: MappedHost<'a, u64>, indices: MappedHost<'a, u32>, owners: Option<MappedHost<'a, u16>> },
}

/// A copy in the memory of one GPU.
struct OnGpu {
    device: tch::Device,
    indptr: DeviceBuffer<u64>,
    indices: DeviceBuffer<u32>,
    owners: Option<DeviceBuffer<u16>>,
}

/// The graph, and every vertex's owner.
#[derive(Clone, Copy)]
struct Source<'a> {
    graph: Graph<'a>,
    owners: Option<&'a [u16]>,
}

impl<'a> Topology<'a> {
    /// Brings the graph of `job` to where the GPUs of `places` are to read it, and notes where that is.
    ///
    /// # Errors
    /// [`Error::Option`] where `--topology` asks for what is not possible.
    pub fn new(
        job: &Job<'a>,
        places: &[Place],
        options: &RunOptions,
        copied: &'a Copied,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let asked = options.topology;
        let Some(first) = places.iter().find_map(Place::gpu) else {
            return match asked {
                TopologyPlace::Auto | TopologyPlace::Host => Ok(Self(At::Host)),
                other => Err(Error::Option(format!(
                    "--topology {} is for --device cuda: leave it out, or give both",
                    named(other)
                ))),
            };
        };
        let owners = match job.ownership {
            Ownership::Mine => None,
            Ownership::Map(part) => Some(part),
        };
        let source = Source { graph: job.graph, owners };
        let at = match asked {
            TopologyPlace::Host => At::Host,
            TopologyPlace::Device => source.on_gpus(places).map_err(|error| refused(asked, source, error))?,
            TopologyPlace::Pinned => source.pinned(first, copied).map_err(|error| refused(asked, source, error))?,
            TopologyPlace::Auto => source.best(first, places, options, copied, progress)?,
        };
        let size = shown(source.bytes());
        match at {
            At::Host => {}
            At::Device(_) => progress.note(&format!("GPUs sample, from the graph in their memory ({size} each)")),
            At::Pinned { .. } => progress.note(&format!("GPUs sample, from the graph in host memory ({size})")),
        }
        Ok(Self(at))
    }

    /// Where it is.
    pub fn place(&self) -> TopologyPlace {
        match self.0 {
            At::Host => TopologyPlace::Host,
            At::Device(_) => TopologyPlace::Device,
            At::Pinned { .. } => TopologyPlace::Pinned,
        }
    }

    /// What samples for a rank at `place`: its GPU, on a stream of its own if mini-batches are prepared ahead, or the host.
    ///
    /// # Errors
    /// What the driver says.
    pub fn sampler<'s>(&'s self, job: &Job<'s>, place: &Place) -> Result<BatchSampler<'s>> {
        match (place.gpu(), self.seen_by(place)?) {
            (Some(_), Some(there)) => BatchSampler::on_device(place, there, job.prefetch > 0),
            _ => Ok(BatchSampler::on_host(Sampler::default(), job.graph, place)),
        }
    }

    fn seen_by(&self, place: &Place) -> Result<Option<OnDevice<'_>>> {
        let Some(gpu) = place.gpu() else { return Ok(None) };
        let (indptr, indices, owners): (DeviceSlice<'_, u64>, DeviceSlice<'_, u32>, Option<DeviceSlice<'_, u16>>) =
            match &self.0 {
                At::Host => return Ok(None),
                At::Device(copies) => match copies.iter().find(|copy| copy.device == place.device()) {
                    Some(copy) => {
                        (copy.indptr.slice(), copy.indices.slice(), copy.owners.as_ref().map(DeviceBuffer::slice))
                    }
                    None => return Ok(None),
                },
                At::Pinned { indptr, indices, owners } => {
                    let owners = owners.as_ref().map(|owners| owners.seen_by(gpu)).transpose()?;
                    (indptr.seen_by(gpu)?, indices.seen_by(gpu)?, owners)
                }
            };
        Ok(Some(OnDevice { graph: DeviceGraph::new(gpu, indptr, indices)?, owners }))
    }
}

impl<'a> Source<'a> {
    fn bytes(&self) -> u64 {
        let graph = size_of_val(self.graph.indptr) + size_of_val(self.graph.indices);
        (graph + self.owners.map_or(0, size_of_val)) as u64
    }

    /// The first of memory of the GPUs, pinned memory and the host that is possible.
    fn best(
        self,
        first: &Gpu,
        places: &[Place],
        options: &RunOptions,
        copied: &'a Copied,
        progress: &dyn Progress,
    ) -> Result<At<'a>> {
        let beside = options.cache.unwrap_or(0) + MOST_NUMBERING.min(size_of_val(self.graph.indptr) as u64 / 2);
        if self.fits(places, beside)? {
            match self.on_gpus(places) {
                Err(Error::Gpu(GpuError::OutOfMemory { .. })) => {}
                other => return other,
            }
        }
        self.pinned(first, copied).or_else(|error| {
            progress.note(&format!("the host samples for the GPUs, which cannot read the graph: {error}"));
            Ok(At::Host)
        })
    }

    /// Whether each GPU has room for a copy, and for `beside` bytes of each of its ranks.
    fn fits(&self, places: &[Place], beside: u64) -> Result<bool> {
        for (place, ranks) in distinct(places) {
            let Some(gpu) = place.gpu() else { continue };
            let (free, _) = gpu.memory()?;
            if self.bytes().saturating_add(beside.saturating_mul(ranks)) > free / SHARE {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A copy on each GPU.
    fn on_gpus(self, places: &[Place]) -> Result<At<'a>> {
        let copy = |(place, _): (&Place, u64)| {
            let gpu = place.gpu()?;
            let copied = || -> Result<OnGpu> {
                let (indptr, indices) = (gpu.upload(self.graph.indptr)?, gpu.upload(self.graph.indices)?);
                let owners = self.owners.map(|owners| gpu.upload(owners)).transpose()?;
                gpu.synchronise()?;
                Ok(OnGpu { device: place.device(), indptr, indices, owners })
            };
            Some(copied())
        };
        distinct(places).into_iter().filter_map(copy).collect::<Result<_>>().map(At::Device)
    }

    /// Pinned where it lies, else in a copy.
    fn pinned(self, gpu: &Gpu, copied: &'a Copied) -> Result<At<'a>> {
        let owners = self.owners.map(|owners| gpu.map_host(owners)).transpose()?;
        let Graph { indptr, indices } = self.graph;
        let (indptr, indices) = match (gpu.map_host(indptr), gpu.map_host(indices)) {
            (Ok(indptr), Ok(indices)) => (indptr, indices),
            (Err(error), _) | (_, Err(error)) => {
                let (bytes, left) = (self.bytes(), Memory::of_this_machine().available());
                if bytes > left / 2 {
                    return Err(error.into());
                }
                let (indptr, indices) = copied.get_or_init(|| (indptr.to_vec(), indices.to_vec()));
                (gpu.map_host(indptr)?, gpu.map_host(indices)?)
            }
        };
        Ok(At::Pinned { indptr, indices, owners })
    }
}

/// A place for each GPU, and how many ranks share it.
fn distinct(places: &[Place]) -> Vec<(&Place, u64)> {
    let mut found: Vec<(&Place, u64)> = Vec::new();
    for place in places {
        match found.iter_mut().find(|(other, _)| other.device() == place.device()) {
            Some((_, ranks)) => *ranks += 1,
            None => found.push((place, 1)),
        }
    }
    found
}

/// Its name on the command line.
fn named(place: TopologyPlace) -> String {
    place.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
}

fn refused(asked: TopologyPlace, source: Source<'_>, error: Error) -> Error {
    let (name, bytes) = (named(asked), shown(source.bytes()));
    Error::Option(format!("--topology {name}: the graph takes {bytes}: {error}; pass another place, or `auto`"))
}
