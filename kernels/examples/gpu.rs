//! How fast a GPU copies, gathers, samples and pre-samples: what `scripts/gpu/run.sh` runs.
//!
//! `gpu` measures GPU 0; `gpu --emulate` runs all of it, tiny, where there is none, to see that it
//! runs. Prints one JSON line for each measure, medians of seven rounds after one that is not
//! timed: seconds, what was done in them, and the share of a floor: for copies of rows the
//! bandwidth of a copy of that device, measured here, for sampling the rate of independent random
//! reads of 4 bytes.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Instant;

use gsplit_gpu_sim::emulated;
use gsplit_kernels::schedule::Step;
use gsplit_kernels::{
    DeviceCache, DeviceCounters, DeviceDraw, DeviceEdgeIds, DeviceGraph, DeviceLayer,
    DeviceSampler, DeviceSlice, DeviceTable, Fanout, Gpu, GpuError, RowStore, Stream, StreamKey,
    gather_on_device, permute,
};
use rayon::prelude::*;

const ROUNDS: usize = 7;

/// Sizes of the measurements; smaller where the GPU is emulated.
struct Sizes {
    copy_bytes: usize,
    reads: usize,
    rows: usize,
    gathered: usize,
    products: Shape,
    orkut: Shape,
    batch: usize,
    batches: usize,
}

/// A graph's size.
#[derive(Clone, Copy)]
struct Shape {
    vertices: u32,
    edges: u64,
}

const REAL: Sizes = Sizes {
    copy_bytes: 1 << 30,
    reads: 1 << 28,
    rows: 2_400_000,
    gathered: 1_000_000,
    products: Shape { vertices: 2_400_000, edges: 124_000_000 },
    orkut: Shape { vertices: 3_100_000, edges: 120_000_000 },
    batch: 8192,
    batches: 20,
};

const EMULATED: Sizes = Sizes {
    copy_bytes: 1 << 16,
    reads: 1 << 12,
    rows: 1000,
    gathered: 500,
    products: Shape { vertices: 500, edges: 5_000 },
    orkut: Shape { vertices: 300, edges: 3_000 },
    batch: 16,
    batches: 2,
};

/// Seconds of `work`, the median of several rounds, the GPU's work included.
fn seconds(gpu: &Gpu, mut work: impl FnMut() -> Result<(), GpuError>) -> Result<f64, GpuError> {
    let mut found = Vec::with_capacity(ROUNDS);
    for round in 0..=ROUNDS {
        gpu.synchronise()?;
        let started = Instant::now();
        work()?;
        gpu.synchronise()?;
        if round > 0 {
            found.push(started.elapsed().as_secs_f64());
        }
    }
    found.sort_by(f64::total_cmp);
    Ok(found[ROUNDS / 2])
}

/// Random numbers below `end`.
fn random(count: usize, end: u32, seed: u64) -> Vec<u32> {
    let key = StreamKey::new(seed, Stream::Generate);
    let below = |word: u32| ((u64::from(word) * u64::from(end)) >> 32) as u32;
    let blocks = (0..count.div_ceil(4) as u32).into_par_iter();
    let mut numbers: Vec<u32> =
        blocks.flat_map_iter(|item| key.block(item, 0).map(below)).collect();
    numbers.truncate(count);
    numbers
}

/// A graph whose degrees vary by a power law, with sources anywhere.
fn graph(shape: Shape) -> (Vec<u64>, Vec<u32>) {
    let key = StreamKey::new(9, Stream::Generate);
    // 1 / sqrt(u) has a heavy tail; its mean is 2.
    let weight =
        |v: u32| (1.0 / f64::from(key.block(v, 0)[0].max(1 << 12)) * f64::from(u32::MAX)).sqrt();
    let mean = shape.edges as f64 / f64::from(shape.vertices);
    let mut indptr = vec![0u64];
    let mut total = 0u64;
    for v in 0..shape.vertices {
        total += (weight(v) * mean / 2.0) as u64;
        indptr.push(total);
    }
    (indptr, random(total as usize, shape.vertices, 10))
}

fn copies(gpu: &Gpu, sizes: &Sizes) -> Result<[f64; 2], GpuError> {
    let (from, mut to) = (gpu.zeros::<u8>(sizes.copy_bytes)?, gpu.alloc::<u8>(sizes.copy_bytes)?);
    let copying = seconds(gpu, || to.slice_mut().copy_from(gpu, from.slice()))?;
    let bandwidth = 2.0 * sizes.copy_bytes as f64 / copying;
    println!(r#"{{"measure": "copy", "seconds": {copying:.6}, "gb_s": {:.1}}}"#, bandwidth / 1e9);

    let table = gpu.zeros::<f32>(sizes.copy_bytes / 4)?;
    let places = gpu.upload(&random(sizes.reads, (sizes.copy_bytes / 4) as u32, 1))?;
    let mut out = gpu.alloc::<f32>(sizes.reads)?;
    let reading = seconds(gpu, || {
        gather_on_device(gpu, table.slice(), None, places.slice(), 1, &mut out.slice_mut())
    })?;
    let rate = sizes.reads as f64 / reading;
    println!(
        r#"{{"measure": "random reads", "seconds": {reading:.6}, "million_s": {:.0}}}"#,
        rate / 1e6
    );
    Ok([bandwidth, rate])
}

fn gathers(gpu: &Gpu, sizes: &Sizes, bandwidth: f64) -> Result<(), GpuError> {
    let ids = gpu.upload(&random(sizes.gathered, sizes.rows as u32, 2))?;
    for dim in [100, 128, 256] {
        let mut out = gpu.alloc::<f32>(sizes.gathered * dim)?;
        let wide = gpu.zeros::<f32>(sizes.rows * dim)?;
        let narrow = gpu.zeros::<half::f16>(sizes.rows * dim)?;
        let f32_s = seconds(gpu, || {
            gather_on_device(gpu, wide.slice(), None, ids.slice(), dim, &mut out.slice_mut())
        })?;
        let f16_s = seconds(gpu, || {
            gather_on_device(gpu, narrow.slice(), None, ids.slice(), dim, &mut out.slice_mut())
        })?;
        for (dtype, bytes, seconds) in [("f32", 4, f32_s), ("f16", 2, f16_s)] {
            let rate = (sizes.gathered * dim * (bytes + 4)) as f64 / seconds;
            println!(
                r#"{{"measure": "gather", "dtype": "{dtype}", "dim": {dim}, "seconds": {seconds:.6}, "gb_s": {:.1}, "of_copy": {:.2}}}"#,
                rate / 1e9,
                rate / bandwidth
            );
        }
    }
    Ok(())
}

/// Rows of a table in pinned host memory, of which shares lie on the GPU, or all on `other`, where
/// that can be read.
fn cached_gathers(gpu: &Gpu, other: Option<&Gpu>, sizes: &Sizes) -> Result<(), GpuError> {
    const DIM: usize = 128;
    let host = vec![1f32; sizes.rows * DIM];
    let pinned = gpu.map_host(&host)?;
    let table = DeviceTable { values: pinned.slice(), scales: None, dim: DIM };
    let ids = gpu.upload(&random(sizes.gathered, sizes.rows as u32, 2))?;
    let mut out = gpu.alloc::<f32>(sizes.gathered * DIM)?;
    let rows: Vec<u32> = (0..sizes.rows as u32).collect();
    let other = other.filter(|other| gpu.reaches(other).unwrap_or(false));
    let shares = [0.0, 0.2, 0.5, 1.0].map(|share| (share, gpu, "own"));
    for (share, owner, tier) in shares.into_iter().chain(other.map(|other| (1.0, other, "peer"))) {
        let kept = &rows[..(share * sizes.rows as f64) as usize];
        let keep = |gpu: &Gpu, rows| {
            let store = RowStore::alloc(gpu, DIM, false, rows, false)?;
            store.filled(gpu, |_, values, _| {
                values.fill(1.0);
                Ok::<(), GpuError>(())
            })
        };
        let (empty, kept) = (keep(gpu, &[])?, keep(owner, kept)?);
        let cache = match tier {
            "own" => DeviceCache::new(gpu, &table, &kept, &[])?,
            _ => DeviceCache::new(gpu, &table, &empty, &[&kept])?,
        };
        let taken = seconds(gpu, || cache.gather(gpu, &table, ids.slice(), &mut out.slice_mut()))?;
        println!(
            r#"{{"measure": "gather with a cache", "dtype": "f32", "dim": {DIM}, "share": {share}, "cache": "{tier}", "seconds": {taken:.6}, "gb_s": {:.1}}}"#,
            (sizes.gathered * DIM * 4) as f64 / taken / 1e9
        );
    }
    Ok(())
}

/// One mini-batch; returns its edges.
fn sample(
    sampler: &mut DeviceSampler,
    graph: &DeviceGraph<'_>,
    seeds: DeviceSlice<'_, u32>,
    (epoch, step): (u32, u32),
    mut counters: Option<&mut DeviceCounters>,
) -> Result<usize, GpuError> {
    sampler.start(graph, seeds)?;
    for depth in 0..3 {
        let ids = counters.as_deref_mut().map_or(DeviceEdgeIds::Drop, DeviceEdgeIds::Count);
        let draw = DeviceDraw::new(Fanout::Take(15));
        sampler.launch(graph, &draw, &Step { seed: 0, epoch, step }.layer_key(depth), ids)?;
    }
    let layers = sampler.finish(graph)?;
    if let Some(counters) = counters {
        let frontiers =
            layers.iter().map(DeviceLayer::num_vertices).chain([sampler.mixed_frontier().len()]);
        counters.count_vertices(sampler.mixed_frontier(), &frontiers.collect::<Vec<_>>())?;
    }
    Ok(layers.iter().map(DeviceLayer::num_edges).sum())
}

fn samples(gpu: &Gpu, sizes: &Sizes, random_reads: f64) -> Result<(), GpuError> {
    let (indptr, indices) = graph(sizes.products);
    let (indptr, indices) = (gpu.upload(&indptr)?, gpu.upload(&indices)?);
    let graph = DeviceGraph::new(gpu, indptr.slice(), indices.slice())?;
    let order =
        gpu.upload(&permute(sizes.products.vertices, &StreamKey::new(1, Stream::Shuffle)))?;
    let mut sampler = DeviceSampler::new(gpu)?;
    let mut edges = 0;
    let taken = seconds(gpu, || {
        edges = 0;
        for step in 0..sizes.batches {
            let seeds = order.slice().part(step * sizes.batch, (step + 1) * sizes.batch)?;
            edges += sample(&mut sampler, &graph, seeds, (0, step as u32), None)?;
        }
        Ok(())
    })?;
    let rate = edges as f64 / taken;
    println!(
        r#"{{"measure": "sampling", "graph": "products shape", "fanouts": "15,15,15", "batch": {}, "seconds": {taken:.6}, "million_edges_s": {:.0}, "of_random_reads": {:.2}}}"#,
        sizes.batch,
        rate / 1e6,
        rate / random_reads
    );
    Ok(())
}

fn presampling(gpu: &Gpu, sizes: &Sizes) -> Result<(), GpuError> {
    let (indptr, indices) = graph(sizes.orkut);
    let edges = indices.len();
    let (indptr, indices) = (gpu.upload(&indptr)?, gpu.upload(&indices)?);
    let graph = DeviceGraph::new(gpu, indptr.slice(), indices.slice())?;
    let vertices = sizes.orkut.vertices as usize;
    let mut counters = DeviceCounters::new(gpu, vertices, edges)?;
    let mut sampler = DeviceSampler::new(gpu)?;
    let started = Instant::now();
    for epoch in 0..10 {
        let order = permute(
            sizes.orkut.vertices,
            &StreamKey { epoch, ..StreamKey::new(1, Stream::Shuffle) },
        );
        let order = gpu.upload(&order[..vertices / 10])?;
        for (step, from) in (0..).zip((0..order.len()).step_by(1024)) {
            let seeds = order.slice().part(from, order.len().min(from + 1024))?;
            sample(&mut sampler, &graph, seeds, (epoch, step), Some(&mut counters))?;
        }
    }
    counters.into_parts()?;
    println!(
        r#"{{"measure": "pre-sampling", "graph": "Orkut shape", "fanouts": "15,15,15", "epochs": 10, "seconds": {:.2}}}"#,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let emulate = std::env::args().skip(1).any(|argument| argument == "--emulate");
    let (gpu, sizes) = if emulate { (emulated(0), EMULATED) } else { (Gpu::open(0)?, REAL) };
    let other = if emulate { Some(emulated(1)) } else { Gpu::open(1).ok() };
    let [bandwidth, random_reads] = copies(&gpu, &sizes)?;
    gathers(&gpu, &sizes, bandwidth)?;
    cached_gathers(&gpu, other.as_ref(), &sizes)?;
    samples(&gpu, &sizes, random_reads)?;
    presampling(&gpu, &sizes)?;
    Ok(())
}
