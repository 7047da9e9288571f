//! Rates of GPUs: of a single one, assuming that a machine's GPUs are alike, and of the links
//! between all of them.

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{
    DeviceDraw, DeviceEdgeIds, DeviceGraph, DeviceLayer, DeviceSampler, Gpu, GpuError,
    pinned_copy_speed,
};
use tch::Cuda;

use super::{Rates, Sizes, aggregation, fastest, graph, products, seeds, stream};
use crate::Result;
use crate::config::Dtype;
use crate::operator::{Place, link};

/// Bytes that cross a link, and number of short messages to average.
const CROSSING: usize = 64 << 20;
const MESSAGES: usize = 100;
/// Bytes of a GPU's memory that [`Sizes::OF_GPU`] needs, with room to spare.
const ENOUGH: u64 = 12 << 30;

/// Rates that the GPUs of this machine reach.
#[derive(Clone, Debug)]
pub struct GpuRates {
    /// A single GPU; `exchange` is its rate of receiving from all others at once, and the seconds
    /// of a short message.
    pub each: Rates,
    /// Their number.
    pub gpus: usize,
    /// Bytes of a GPU's memory.
    pub memory: f64,
    /// Bytes a second from pinned host memory.
    pub bus: f64,
    /// Each pair on its own.
    pub pairs: Vec<PairRate>,
}

/// A link between two GPUs.
#[derive(Clone, Copy, Debug)]
pub struct PairRate {
    /// The two GPUs.
    pub gpus: [usize; 2],
    /// Bytes a second, in one direction.
    pub bytes: f64,
    /// Seconds of a short message.
    pub latency: f64,
}

impl GpuRates {
    /// Measures all GPUs that are visible to this process.
    ///
    /// # Errors
    /// [`crate::Error::Gpu`] if there is none; errors of the operators.
    pub fn measure() -> Result<Self> {
        let first = Place::open(0)?;
        let rest = (1..Cuda::device_count().max(1) as usize).map(Place::open);
        let places = std::iter::once(Ok(first)).chain(rest).collect::<Result<Vec<_>>>()?;
        link(&places)?;
        let gpus: Vec<&Gpu> = places.iter().filter_map(Place::gpu).collect();
        let (place, gpu) = (&places[0], gpus[0]);
        let (free, memory) = gpu.memory()?;
        let portion = (free as f64 / ENOUGH as f64).min(1.0);
        let sizes = Sizes::OF_GPU.times(portion);
        let bf16 = place.clone().with_dtype(Dtype::Bf16);
        let (rows, layer) = aggregation(place, sizes)?;
        let dense = [products(place, sizes)?, products(&bf16, sizes)?];
        let (sampled_edges, stream, bus) =
            (sampling(place, gpu, sizes)?, stream(place, sizes)?, pinned_copy_speed(gpu)?);
        let (exchange, pairs) = links(place, &gpus, (CROSSING as f64 * portion) as usize)?;
        let exchange = if gpus.len() > 1 { exchange } else { [bus, 0.0] };
        let each = Rates { sampled_edges, rows, stream, layer, dense, exchange };
        Ok(Self { each, gpus: gpus.len(), memory: memory as f64, bus, pairs })
    }
}

impl Sizes {
    /// A mini-batch of 8192 seeds: with fewer, an H100 is limited by launches.
    const OF_GPU: Self =
        Self { rows: 1 << 20, targets: 1 << 18, edges: 10 << 18, vertices: 2_000_000, seeds: 8192 };

    /// A `portion` of each, but enough to keep the kernels busy.
    fn times(self, portion: f64) -> Self {
        let part = |count: usize| ((count as f64 * portion) as usize).max(64);
        let Self { rows, targets, edges, vertices, seeds } = self;
        Self {
            rows: part(rows),
            targets: part(targets),
            edges: part(edges),
            vertices: part(vertices),
            seeds: part(seeds),
        }
    }
}

/// Sampled edges per second, from a graph in the GPU's memory.
fn sampling(place: &Place, gpu: &Gpu, sizes: Sizes) -> Result<f64> {
    let (indptr, indices) = graph(sizes.vertices);
    let (indptr, indices) = (gpu.upload(&indptr)?, gpu.upload(&indices)?);
    let graph = DeviceGraph::new(gpu, indptr.slice(), indices.slice())?;
    let fanouts: Fanouts = "15,10,5".parse()?;
    let (mut sampler, mut edges, mut step) = (DeviceSampler::new(gpu)?, 0, 0);
    let seconds = fastest(place, || {
        step += 1;
        let seeds = gpu.upload(&seeds(sizes, step))?;
        sampler.start(&graph, seeds.slice())?;
        for (key, fanout) in (Step { seed: 0, epoch: 1, step }).layers(&fanouts) {
            let draw = DeviceDraw::new(fanout.of_vertices()?);
            sampler.launch(&graph, &draw, &key, DeviceEdgeIds::Drop)?;
        }
        edges = sampler.finish(&graph)?.iter().map(DeviceLayer::num_edges).sum::<usize>();
        Ok(())
    })?;
    Ok(edges as f64 / seconds)
}

/// Bytes per second that a GPU receives from all others while they do the same, with the seconds of
/// the slowest pair's short message; and each pair on its own.
fn links(place: &Place, gpus: &[&Gpu], bytes: usize) -> Result<([f64; 2], Vec<PairRate>)> {
    let from =
        gpus.iter().map(|gpu| gpu.zeros::<u8>(bytes)).collect::<Result<Vec<_>, GpuError>>()?;
    let mut to =
        gpus.iter().map(|gpu| gpu.zeros::<u8>(bytes)).collect::<Result<Vec<_>, GpuError>>()?;
    let done = |gpus: &[&Gpu]| gpus.iter().try_for_each(|gpu| gpu.synchronise());
    done(gpus)?;
    let mut pairs = Vec::new();
    for sender in 0..gpus.len() {
        for receiver in sender + 1..gpus.len() {
            let mut seconds = |bytes: usize, times: usize| {
                fastest(place, || {
                    for _ in 0..times {
                        let (to, from) = (to[receiver].slice_mut(), from[sender].slice());
                        to.part(0, bytes)?.copy_from_other(
                            gpus[receiver],
                            gpus[sender],
                            from.part(0, bytes)?,
                        )?;
                    }
                    Ok(done(gpus)?)
                })
            };
            let (many, short) = (seconds(bytes, 1)?, seconds(4, MESSAGES)? / MESSAGES as f64);
            pairs.push(PairRate {
                gpus: [sender, receiver],
                bytes: bytes as f64 / many,
                latency: short,
            });
        }
    }
    let all = fastest(place, || {
        for receiver in 0..gpus.len() {
            for sender in (0..gpus.len()).filter(|&sender| sender != receiver) {
                to[receiver].slice_mut().copy_from_other(
                    gpus[receiver],
                    gpus[sender],
                    from[sender].slice(),
                )?;
            }
        }
        Ok(done(gpus)?)
    })?;
    let latency = pairs.iter().fold(0.0, |most: f64, pair| most.max(pair.latency));
    Ok(([((gpus.len() - 1) * bytes) as f64 / all, latency], pairs))
}
