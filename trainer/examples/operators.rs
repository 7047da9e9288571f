//! Speeds of a layer's operators on this machine: dense products by every engine, gathering rows,
//! and aggregating them with and without gathering, each interleaved with what it is compared to.
//! Minima over rounds, so that a busy machine shows less.
//!
//! Run it with `cargo run --release -p gsplit-trainer --example operators`. With `-- --step DATASET
//! OPTIONS ...`, the options of `gsplit train`, it trains instead, and then computes the products
//! of each epoch by themselves, one after another: JSON lines with the seconds of both, of which
//! the latter are the floor.

// It talks to whoever runs it.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, FromArgMatches};
use gsplit_kernels::{Aggregation, Draws, HostEdges, Reduce, Stream, StreamKey, gather_rows};
use gsplit_store::{Dataset, NoProgress};
use gsplit_trainer::Products;
use gsplit_trainer::operator::{
    Engine, Finish, Place, Product, both_ways, linear, recorded_products,
};
use gsplit_trainer::{Config, Dtype, EpochReport, Hooks, train};
use rayon::prelude::*;
use tch::{Device, Kind, Tensor};

const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, dataset, options @ ..] = &words[..]
        && first == "--step"
    {
        return step(dataset, options);
    }
    let threads = rayon::current_num_threads();
    tch::set_num_threads(threads as i32);
    println!("{threads} threads");
    products()?;
    rows()
}

/// Seconds of the fastest of several rounds, for each of the bodies, which take turns.
fn fastest(bodies: &mut [Box<dyn FnMut() + '_>]) -> Vec<f64> {
    let mut best = vec![f64::INFINITY; bodies.len()];
    for _ in 0..ROUNDS {
        for (body, best) in bodies.iter_mut().zip(&mut best) {
            let started = Instant::now();
            body();
            *best = best.min(started.elapsed().as_secs_f64());
        }
    }
    best
}

/// Epochs on one rank, and after each the products that it computed.
fn step(dataset: &str, options: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let command = Config::augment_args(clap::Command::new("operators")).no_binary_name(true);
    let matches = command.try_get_matches_from(options).unwrap_or_else(|error| error.exit());
    let config = Config::from_arg_matches(&matches)?;
    let dataset = Dataset::open(Path::new(dataset))?;
    let engine = Engine::of(config.model.dtype);
    recorded_products();
    // Right after each epoch: the machine is as fast then.
    let floor = |epochs: &[EpochReport]| {
        let Some(epoch) = epochs.last() else { return };
        let products = recorded_products();
        let seconds =
            time_products(engine, &products).map_or(f64::NAN, |taken| taken.as_secs_f64());
        recorded_products();
        let operations: f64 = products.iter().map(operations).sum();
        println!(
            "{}",
            serde_json::json!({
                "epoch": epoch.epoch,
                "seconds": epoch.seconds,
                "products_s": seconds,
                "times_products": epoch.seconds / seconds,
                "gflops": operations / seconds / 1e9,
            })
        );
    };
    train(&dataset, &config, &Hooks::default(), &NoProgress, &floor)?;
    Ok(())
}

/// Number of floating-point operations of `product`, forwards and backwards.
fn operations(product: &Product) -> f64 {
    let products = if product.of_input { 3.0 } else { 2.0 };
    2.0 * products * (product.rows * product.heads * product.input * product.output) as f64
}

/// Time that `products` take back to back, with factors allocated beforehand.
fn time_products(engine: Engine, products: &[Product]) -> gsplit_trainer::Result<Duration> {
    let made = |shape: &[usize]| {
        Tensor::rand(
            shape.iter().map(|&size| size as i64).collect::<Vec<_>>(),
            (Kind::Float, Device::Cpu),
        ) - 0.5
    };
    // For each shape of weight, make the factors with the most rows; each product uses their first
    // rows.
    let mut factors = HashMap::new();
    for product in products {
        let most = factors.entry([product.heads, product.input, product.output]).or_insert(0);
        *most = product.rows.max(*most);
    }
    let factors: HashMap<_, _> = factors
        .into_iter()
        .map(|(weight, rows)| {
            let [heads, input, output] = weight;
            (weight, [made(&[rows, heads * input]), made(&weight), made(&[rows, heads * output])])
        })
        .collect();
    let started = Instant::now();
    for product in products {
        let [x, w, gradient] = &factors[&[product.heads, product.input, product.output]];
        let first = |matrix: &Tensor| matrix.f_narrow(0, 0, product.rows as i64);
        both_ways(engine, product.of_input, &first(x)?, w, &first(gradient)?)?;
    }
    Ok(started.elapsed())
}

/// The products of a 3-layer SAGE of hidden width 256, fanouts 15,10,5 and batches of 1024,
/// forwards and backwards.
fn products() -> Result<(), Box<dyn std::error::Error>> {
    let mut engines: Vec<Engine> =
        [Dtype::F32, Dtype::Bf16].into_iter().flat_map(Engine::candidates).collect();
    engines.extend(Engine::named(Products::Own, Dtype::F32));
    println!("GFLOP/s of rows x in x out: forward, forward and backward");
    for [rows, input, output] in [[110_000, 200, 256], [14_000, 512, 256], [1_024, 512, 47]] {
        let matrix =
            |rows, columns| Tensor::rand([rows, columns], (Kind::Float, Device::Cpu)) - 0.5;
        let x = matrix(rows, input);
        let w = matrix(input, output).set_requires_grad(true);
        let product = |engine| linear(&Place::Host(engine), &x, &w, None, Finish::default());
        let forward = |engine| tch::no_grad(|| product(engine)).map(drop).unwrap_or_default();
        let both =
            |engine| product(engine).map(|y| y.sum(Kind::Float).backward()).unwrap_or_default();
        let mut bodies: Vec<Box<dyn FnMut() + '_>> = Vec::new();
        for &engine in &engines {
            bodies.push(Box::new(move || forward(engine)));
            bodies.push(Box::new(move || both(engine)));
        }
        let seconds = fastest(&mut bodies);
        let operations = 2.0 * (rows * input * output) as f64 / 1e9;
        println!("{rows} x {input} x {output}");
        for (engine, seconds) in engines.iter().zip(seconds.chunks_exact(2)) {
            println!(
                "  {:<16} {:>6.0} {:>6.0}",
                format!("{engine:?}"),
                operations / seconds[0],
                2.0 * operations / seconds[1]
            );
        }
    }
    Ok(())
}

/// Rows of 100 values out of a table of 1.2 GB, as a mini-batch reads them.
fn rows() -> Result<(), Box<dyn std::error::Error>> {
    const DIM: usize = 100;
    const TABLE: usize = 3_000_000;
    const SOURCES: usize = 300_000;
    const TARGETS: usize = 100_000;
    let table: Vec<f32> = (0..TABLE * DIM).into_par_iter().map(|i| i as f32).collect();
    let draws = |count: usize, below: usize| -> Vec<u32> {
        let key = StreamKey { step: count as u32, ..StreamKey::new(1, Stream::Generate) };
        (0..count as u32).map(|i| Draws::new(&key, i).below(below as u32)).collect()
    };
    let vertices = draws(SOURCES, TABLE);
    let indptr: Vec<u32> = (0..=TARGETS as u32).map(|target| 5 * target).collect();
    let edges = HostEdges::new(indptr, draws(5 * TARGETS, SOURCES), SOURCES)?;
    let op = Aggregation { edges: &edges, reduce: Reduce::Mean, weights: None, concat_self: true };
    let row = |v: u32| &table[v as usize * DIM..][..DIM];
    let [mut gathered, mut copied, mut reused] = [(); 3].map(|()| vec![0f32; SOURCES * DIM]);
    let (mut out, mut fused) = (vec![0f32; TARGETS * 2 * DIM], vec![0f32; TARGETS * 2 * DIM]);
    let seconds = fastest(&mut [
        Box::new(|| {
            let pairs = copied.par_chunks_mut(64 * DIM).zip(table.par_chunks(64 * DIM));
            pairs.for_each(|(to, from)| to.copy_from_slice(&from[..to.len()]));
        }),
        Box::new(|| gather_rows(row, &vertices, DIM, &mut gathered).unwrap_or_default()),
        Box::new(|| {
            gather_rows(row, &vertices, DIM, &mut reused).unwrap_or_default();
            op.forward(|s| &reused[s as usize * DIM..][..DIM], DIM, &mut out).unwrap_or_default();
        }),
        Box::new(|| op.forward(|s| row(vertices[s as usize]), DIM, &mut fused).unwrap_or_default()),
    ]);
    let [copy, gather, two_steps, one_step] = seconds[..] else { unreachable!("four bodies") };
    let rate = |seconds: f64| (SOURCES * DIM * 4) as f64 / seconds / 1e9;
    println!("consecutive copy {:.1} GB/s, gather {:.1} GB/s of rows", rate(copy), rate(gather));
    println!(
        "gather, then aggregate {:.1} ms; aggregate where they lie {:.1} ms",
        two_steps * 1e3,
        one_step * 1e3
    );
    Ok(())
}
