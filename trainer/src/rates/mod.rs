//! Rates of this machine, measured with the kernels that train: its CPU in some seconds, its GPUs
//! in some more ([`gpu`]).
//!
//! Each rate is the best of a few rounds, since other work only slows them down. Sizes are as in a
//! mini-batch of 1024 seeds with fanouts 15,10,5 and 256 hidden values: larger than the caches of a
//! core, smaller than memory.

mod gpu;

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{
    Communicator, Draw, Draws, EdgeIds, Graph, SampledCsc, Sampler, Stream, StreamKey, Threads,
};
use tch::{Kind, Tensor};

use crate::Result;
use crate::config::Dtype;
use crate::exchange::Exchange;
use crate::operator::{
    Edges, Finish, Place, Reduce, Rows, aggregate, calibrated, linear, set_torch_threads,
};

pub use gpu::{GpuRates, PairRate};

const ROUNDS: usize = 3;
/// Values of the rows that are read at random.
const WIDTH: usize = 256;
/// In-neighbours of each vertex of the graph that is sampled.
const DEGREE: usize = 20;
/// Ranks that exchange, and rows that each sends to each.
const RANKS: usize = 2;
const EXCHANGED: usize = 8_192;

/// Rates of all ranks of a host together, or of one GPU.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Sampled edges per second.
    pub sampled_edges: f64,
    /// Bytes per second of rows that are read at random.
    pub rows: f64,
    /// Bytes per second read and written sequentially.
    pub stream: f64,
    /// Seconds of an aggregation without work.
    pub layer: f64,
    /// Operations per second of products, in f32 and in bf16.
    pub dense: [f64; 2],
    /// Bytes per second from rank to rank, and seconds of an empty exchange.
    pub exchange: [f64; 2],
}

impl Rates {
    /// Measures the CPU.
    ///
    /// # Errors
    /// Errors of the operators.
    pub fn measure() -> Result<Self> {
        set_torch_threads(rayon::current_num_threads());
        let [f32_place, bf16_place] =
            [Dtype::F32, Dtype::Bf16].map(|dtype| Place::Host(calibrated(dtype).engine));
        let sizes = Sizes::LARGE;
        let (rows, layer) = aggregation(&f32_place, sizes)?;
        let dense = [products(&f32_place, sizes)?, products(&bf16_place, sizes)?];
        let (sampled_edges, stream) = (sampling(sizes)?, stream(&f32_place, sizes)?);
        Ok(Self { sampled_edges, rows, stream, layer, dense, exchange: exchange()? })
    }
}

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Rows of the matrices that are read at random.
    rows: usize,
    /// Rows that products have, and edges.
    targets: usize,
    edges: usize,
    /// Vertices of the graph that is sampled, and seeds of a mini-batch.
    vertices: usize,
    seeds: usize,
}

impl Sizes {
    const LARGE: Self =
        Self { rows: 65_536, targets: 16_384, edges: 163_840, vertices: 500_000, seeds: 1024 };
}

/// Seconds of the fastest of some rounds, each until `place` has finished all work.
fn fastest(place: &Place, mut body: impl FnMut() -> Result<()>) -> Result<f64> {
    let done = || place.gpu().map_or(Ok(()), |gpu| gpu.synchronise());
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        done()?;
        let started = Instant::now();
        body()?;
        done()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Returns `count` random numbers below `below`.
fn drawn(count: usize, below: usize) -> Vec<u32> {
    let key = StreamKey::new(0, Stream::Generate);
    (0..count as u32).map(|i| Draws::new(&key, i).below(below as u32)).collect()
}

/// Returns a graph with this number of vertices.
fn graph(vertices: usize) -> (Vec<u64>, Vec<u32>) {
    ((0..=vertices).map(|v| (v * DEGREE) as u64).collect(), drawn(vertices * DEGREE, vertices))
}

/// The seeds of a mini-batch, different in each round.
fn seeds(sizes: Sizes, round: u32) -> Vec<u32> {
    (0..sizes.seeds as u32).map(|i| (i * 487 + round) % sizes.vertices as u32).collect()
}

fn matrix(place: &Place, rows: usize, columns: usize, kind: Kind) -> Result<Tensor> {
    place.bring(
        &(Tensor::rand([rows as i64, columns as i64], (Kind::Float, tch::Device::Cpu)) - 0.5)
            .to_kind(kind),
    )
}

/// Operations per second of a product, forwards and backwards, for weights and rows.
fn products(place: &Place, sizes: Sizes) -> Result<f64> {
    let rows = matrix(place, sizes.targets, WIDTH, place.row_kind())?.set_requires_grad(true);
    let weight = matrix(place, WIDTH, WIDTH, Kind::Float)?.set_requires_grad(true);
    let seconds = fastest(place, || {
        linear(place, &rows, &weight, None, Finish::default())?.f_sum(Kind::Float)?.f_backward()?;
        Ok(())
    })?;
    Ok(3.0 * 2.0 * (sizes.targets * WIDTH * WIDTH) as f64 / seconds)
}

/// Bytes per second of rows that an aggregation reads forwards and backwards, and seconds of one
/// without work.
fn aggregation(place: &Place, sizes: Sizes) -> Result<(f64, f64)> {
    let pass = |targets: usize, edges: usize, rows: &Tensor| -> Result<f64> {
        let indptr = (0..=targets).map(|target| (target * edges / targets) as u32).collect();
        let sources = rows.size()[0] as usize;
        let edges = Arc::new(Edges::new(place, indptr, drawn(edges, sources), sources)?);
        fastest(place, || {
            let sums = aggregate(&edges, Reduce::Mean, Rows::Hidden(rows), None, false)?;
            sums.f_sum(Kind::Float)?.f_backward()?;
            Ok(())
        })
    };
    let rows = |rows: usize, columns: usize| -> Result<Tensor> {
        Ok(matrix(place, rows, columns, Kind::Float)?.set_requires_grad(true))
    };
    let seconds = pass(sizes.targets, sizes.edges, &rows(sizes.rows, WIDTH)?)?;
    let nothing = pass(1, 1, &rows(1, 1)?)?;
    Ok((2.0 * 4.0 * (sizes.edges * WIDTH) as f64 / seconds, nothing / 2.0))
}

/// Sampled edges per second of the CPU.
fn sampling(sizes: Sizes) -> Result<f64> {
    let (indptr, indices) = graph(sizes.vertices);
    let graph = Graph::new(&indptr, &indices)?;
    let fanouts: Fanouts = "15,10,5".parse()?;
    let (mut sampler, mut layer, mut step) = (Sampler::default(), SampledCsc::default(), 0);
    let mut edges = 0;
    let seconds = fastest(&Place::host(), || {
        step += 1;
        edges = 0;
        sampler.start(&seeds(sizes, step));
        for (key, fanout) in (Step { seed: 0, epoch: 1, step }).layers(&fanouts) {
            sampler.layer(&graph, &Draw::of(fanout), &key, EdgeIds::Drop, &mut layer)?;
            edges += layer.num_edges();
        }
        Ok(())
    })?;
    Ok(edges as f64 / seconds)
}

/// Bytes per second that an element-wise operation reads and writes.
fn stream(place: &Place, sizes: Sizes) -> Result<f64> {
    let of = || matrix(place, sizes.rows, WIDTH, Kind::Float);
    let (a, mut b) = (of()?, of()?);
    let seconds = fastest(place, || {
        b.f_copy_(&a)?;
        Ok(())
    })?;
    Ok(2.0 * 4.0 * (sizes.rows * WIDTH) as f64 / seconds)
}

/// Bytes per second between ranks that are threads, in the way split training exchanges rows:
/// gathered, sent, and sent back the same way, into reused memory; and the seconds of an empty
/// exchange.
fn exchange() -> Result<[f64; 2]> {
    let timed = |rows: usize, times: usize| -> Result<f64> {
        let ranks = Threads::group(RANKS);
        let work = |comm: Threads| -> Result<f64> {
            // A rank owns every other vertex, and reads all of them in another order.
            let all = rows * RANKS;
            let mixed_frontier: Vec<u32> = (0..all).map(|at| (at * 487 % all) as u32).collect();
            let exchange =
                Exchange::shuffle(&comm, &mixed_frontier, |vertex| vertex as usize % RANKS)?
                    .exchange;
            let mut read = vec![1.0f32; all * WIDTH];
            fastest(&Place::host(), || {
                for _ in 0..times {
                    exchange.forward(&comm, &mut read, WIDTH)?;
                    exchange.backward(&comm, &mut read, WIDTH)?;
                }
                Ok(comm.barrier()?)
            })
        };
        let took = thread::scope(|scope| {
            let ranks: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| work(comm))).collect();
            ranks.into_iter().filter_map(|rank| rank.join().ok()).collect::<Result<Vec<f64>>>()
        });
        Ok(took?.into_iter().fold(0.0, f64::max))
    };
    let (many, none) = (timed(EXCHANGED, 1)?, timed(0, 100)? / 100.0);
    Ok([(2 * 4 * EXCHANGED * WIDTH * RANKS * (RANKS - 1)) as f64 / many, none / 2.0])
}
