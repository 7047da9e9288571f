//! How fast mini-batches are sampled: what `make bench NAME=sampling` runs.
//!
//! `sampling DATASET FANOUTS BATCH_SIZE BATCHES THREADS [count]` loads a dataset's topology,
//! samples BATCHES mini-batches of the training split in the order of an epoch, and prints one JSON
//! line: their seconds, CPU seconds, sampled edges, and vertices of the last mixed frontiers. Ten
//! mini-batches before, which find cold caches and no memory, are not timed. With `count`, edges
//! and vertices are counted as pre-sampling counts them.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use gsplit_kernels::schedule::{Fanouts, Step, epoch_seeds};
use gsplit_kernels::{Counters, Draw, EdgeIds, Graph, KernelError, SampledCsc, Sampler};

const WARM_UP: usize = 10;

/// The numbers of a one-dimensional `.npy` file of format version 1, as gsplit writes it.
fn load<T: bytemuck::Pod>(path: &Path) -> Result<Vec<T>, Box<dyn Error>> {
    let mut file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut start = [0; 10];
    file.read_exact(&mut start)?;
    let header = usize::from(u16::from_le_bytes([start[8], start[9]]));
    let bytes = usize::try_from(file.metadata()?.len())? - start.len() - header;
    file.read_exact(&mut vec![0; header])?;
    let mut numbers = vec![T::zeroed(); bytes / size_of::<T>()];
    file.read_exact(bytemuck::cast_slice_mut(&mut numbers))?;
    Ok(numbers)
}

/// CPU seconds of this process, all threads.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += stat.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(nanoseconds as f64 / 1e9)
}

/// A sampler with its graph and buffers.
struct Run<'a> {
    graph: Graph<'a>,
    fanouts: Fanouts,
    sampler: Sampler,
    layers: Vec<SampledCsc>,
    counters: Option<Counters>,
}

impl Run<'_> {
    /// Samples one mini-batch. Returns its edges and the vertices of its last mixed frontier.
    fn batch(&mut self, seeds: &[u32], epoch: u32, step: u32) -> Result<[usize; 2], KernelError> {
        self.sampler.start(seeds);
        let mut sizes = vec![seeds.len()];
        for ((depth, fanout), layer) in (0..).zip(self.fanouts.iter()).zip(&mut self.layers) {
            let ids = self.counters.as_mut().map_or(EdgeIds::Drop, EdgeIds::Count);
            let key = Step { seed: 0, epoch, step }.layer_key(depth);
            self.sampler.layer(&self.graph, &Draw::of(fanout), &key, ids, layer)?;
            sizes.push(self.sampler.mixed_frontier().len());
        }
        if let Some(counters) = &mut self.counters {
            counters.count_vertices(self.sampler.mixed_frontier(), &sizes)?;
        }
        Ok([
            self.layers.iter().map(SampledCsc::num_edges).sum(),
            self.sampler.mixed_frontier().len(),
        ])
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dataset, fanouts, batch_size, batches, threads, count @ ..] = args.as_slice() else {
        return Err("usage: sampling DATASET FANOUTS BATCH_SIZE BATCHES THREADS [count]".into());
    };
    let (dataset, threads) = (Path::new(dataset), threads.parse()?);
    let (batch_size, batches): (usize, usize) = (batch_size.parse()?, batches.parse()?);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    let (indptr, indices) = (
        load(&dataset.join("topology/indptr.npy"))?,
        load::<u32>(&dataset.join("topology/indices.npy"))?,
    );
    let train: Vec<u32> = load(&dataset.join("splits/train.npy"))?;
    let graph = Graph::new(&indptr, &indices)?;
    let fanouts: Fanouts = fanouts.parse()?;
    let counters = count.first().map(|_| Counters::new(graph.num_vertices(), graph.num_edges()));
    let layers = vec![SampledCsc::default(); fanouts.len()];
    let mut run = Run { graph, fanouts, sampler: Sampler::new(threads), layers, counters };

    let (mut seconds, mut cpu, mut done, mut sums) = (0.0, 0.0, 0, [0, 0]);
    for epoch in 1.. {
        let order = epoch_seeds(&train, 0, epoch)?;
        for (step, seeds) in (0..).zip(order.chunks_exact(batch_size)) {
            let started = Instant::now();
            let sizes = run.batch(seeds, epoch, step)?;
            if done >= WARM_UP {
                seconds += started.elapsed().as_secs_f64();
                sums = [sums[0] + sizes[0], sums[1] + sizes[1]];
            }
            done += 1;
            if done == WARM_UP {
                cpu = cpu_seconds()?;
            }
            if done == WARM_UP + batches {
                let (cpu, [edges, vertices]) = (cpu_seconds()? - cpu, sums);
                #[expect(clippy::print_stdout, reason = "the answer")]
                {
                    println!(
                        "{{\"seconds\": {seconds}, \"cpu_seconds\": {cpu}, \"edges\": {edges}, \"vertices\": {vertices}}}"
                    );
                }
                return Ok(());
            }
        }
    }
    Ok(())
}
