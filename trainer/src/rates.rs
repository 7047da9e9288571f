//! What this machine's CPU can do, measured with the kernels that train. Costs some seconds.
//!
//! Each rate is the best of a few rounds, since other work only slows them. Sizes are those of a mini-batch of 1024 seeds with fanouts
//! 15,10,5 and 256 hidden values: larger than the caches of a core, smaller than memory.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use gsplit_kernels::schedule::{Fanouts, Step};
use gsplit_kernels::{Communicator, Draw, Draws, EdgeIds, Graph, SampledCsc, Sampler, Stream, StreamKey, Threads};
use tch::{Kind, Tensor};

use crate::Result;
use crate::config::Dtype;
use crate::exchange::Exchange;
use crate::operator::{Edges, Finish, Place, Reduce, Rows, aggregate, calibrated, linear, set_torch_threads};

const ROUNDS: usize = 3;
/// Rows of the matrices that are read at random, and values of a row.
const ROWS: usize = 65_536;
const WIDTH: usize = 256;
/// Rows that products have, and edges.
const TARGETS: usize = 16_384;
const EDGES: usize = 163_840;
/// Vertices of the graph that is sampled, and in-neighbours of each.
const VERTICES: usize = 500_000;
const DEGREE: usize = 20;
/// Ranks that exchange, and rows that each sends to each.
const RANKS: usize = 2;
const EXCHANGED: usize = 8_192;

/// What all ranks of a host reach together.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Sampled edges a second.
    pub sampled_edges: f64,
    /// Bytes a second of rows that are read at random.
    pub rows: f64,
    /// Bytes a second that are read and written one after the other.
    pub stream: f64,
    /// Seconds of an aggregation that has nothing to do.
    pub layer: f64,
    /// Operations a second of products, in f32 and in bf16.
    pub dense: [f64; 2],
    /// Bytes a second from rank to rank, and seconds of an exchange that is empty.
    pub exchange: [f64; 2],
}

impl Rates {
    /// Measures this machine.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn measure() -> Result<Self> {
        set_torch_threads(rayon::current_num_threads());
        let [f32_place, bf16_place] = [Dtype::F32, Dtype::Bf16].map(|dtype| Place::Host(calibrated(dtype).engine));
        let (rows, layer) = aggregation(&f32_place)?;
        let dense = [products(&f32_place)?, products(&bf16_place)?];
        Ok(Self { sampled_edges: sampling()?, rows, stream: stream()?, layer, dense, exchange: exchange()? })
    }
}

/// Seconds of the fastest of some rounds.
fn fastest(mut body: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        body()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// So many draws below `below`.
fn drawn(count: usize, below: usize) -> Vec<u32> {
    let key = StreamKey::new(0, Stream::Generate);
    (0..count as u32).map(|i| Draws::new(&key, i).below(below as u32)).collect()
}

fn matrix(rows: usize, columns: usize) -> Tensor {
    Tensor::rand([rows as i64, columns as i64], (Kind::Float, tch::Device::Cpu)) - 0.5
}

/// Operations a second of a product forwards and backwards, for weights and rows.
fn products(place: &Place) -> Result<f64> {
    let rows = matrix(TARGETS, WIDTH).set_requires_grad(true);
    let weight = matrix(WIDTH, WIDTH).set_requires_grad(true);
    let seconds = fastest(|| {
        linear(place, &rows, &weight, None, Finish::default())?.f_sum(Kind::Float)?.f_backward()?;
        Ok(())
    })?;
    Ok(3.0 * 2.0 * (TARGETS * WIDTH * WIDTH) as f64 / seconds)
}

/// Bytes a second of rows that an aggregation reads forwards and backwards, and seconds of one that has nothing to do.
fn aggregation(place: &Place) -> Result<(f64, f64)> {
    let pass = |targets: usize, edges: usize, rows: &Tensor| -> Result<f64> {
        let indptr = (0..=targets).map(|target| (target * edges / targets) as u32).collect();
        let sources = rows.size()[0] as usize;
        let edges = Arc::new(Edges::new(place, indptr, drawn(edges, sources), sources)?);
        fastest(|| {
            let sums = aggregate(&edges, Reduce::Mean, Rows::Hidden(rows), None, false)?;
            sums.f_sum(Kind::Float)?.f_backward()?;
            Ok(())
        })
    };
    let seconds = pass(TARGETS, EDGES, &matrix(ROWS, WIDTH).set_requires_grad(true))?;
    let nothing = pass(1, 1, &matrix(1, 1).set_requires_grad(true))?;
    Ok((2.0 * 4.0 * (EDGES * WIDTH) as f64 / seconds, nothing / 2.0))
}

/// Sampled edges a second.
fn sampling() -> Result<f64> {
    let indptr: Vec<u64> = (0..=VERTICES).map(|v| (v * DEGREE) as u64).collect();
    let indices = drawn(VERTICES * DEGREE, VERTICES);
    let graph = Graph::new(&indptr, &indices)?;
    let fanouts: Fanouts = "15,10,5".parse()?;
    let (mut sampler, mut layer, mut step) = (Sampler::default(), SampledCsc::default(), 0);
    let mut edges = 0;
    let seconds = fastest(|| {
        let seeds: Vec<u32> = (0..1024).map(|i| (i * 487 + step) % VERTICES as u32).collect();
        step += 1;
        edges = 0;
        sampler.start(&seeds);
        for (key, fanout) in (Step { seed: 0, epoch: 1, step }).layers(&fanouts) {
            sampler.layer(&graph, &Draw::new(fanout), &key, EdgeIds::Drop, &mut layer)?;
            edges += layer.num_edges();
        }
        Ok(())
    })?;
    Ok(edges as f64 / seconds)
}

/// Bytes a second that an element-wise operation reads and writes.
fn stream() -> Result<f64> {
    let (a, mut b) = (matrix(ROWS, WIDTH), matrix(ROWS, WIDTH));
    let seconds = fastest(|| {
        b.f_copy_(&a)?;
        Ok(())
    })?;
    Ok(2.0 * 4.0 * (ROWS * WIDTH) as f64 / seconds)
}

/// What crosses between ranks that are threads in a second, as split training exchanges rows: gathered, sent, and back the same way,
/// into memory that is used again; and how long an exchange takes that is empty.
fn exchange() -> Result<[f64; 2]> {
    let timed = |rows: usize, times: usize| -> Result<f64> {
        let ranks = Threads::group(RANKS);
        let work = |comm: Threads| -> Result<f64> {
            // A rank owns every other vertex, and reads all of them in another order.
            let all = rows * RANKS;
            let mixed: Vec<u32> = (0..all).map(|at| (at * 487 % all) as u32).collect();
            let exchange = Exchange::shuffle(&comm, &mixed, |vertex| vertex as usize % RANKS)?.exchange;
            let mut read = vec![1.0f32; all * WIDTH];
            fastest(|| {
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
