//! A layer of one's own, trained like those of the crate: on any number of ranks, with any parallelism, and with the
//! options that surround a layer (residual, normalisation, dropout, checkpointing).
//!
//! h'(v) = (h(v) + τ (mean of h(u) over the sampled in-edges u → v - h(v))) W + b, one step of diffusion with a trained rate τ.
//!
//! Run it on a dataset directory: `cargo run --release -p gsplit-trainer --example own_layer -- DATASET`.

// It talks to whoever runs it.
#![allow(clippy::print_stdout)]

use clap::{Args, FromArgMatches};
use gsplit_store::{Dataset, NoProgress};
use gsplit_trainer::model::{Layer, LayerEdges, LayerShape, Named, OwnLayer};
use gsplit_trainer::operator::{Finish, Reduce, Rows, aggregate, linear};
use gsplit_trainer::{EpochReport, Error, Result, RunOptions, Summary, TrainConfig, train};
use tch::Tensor;

/// One step of diffusion.
struct Diffusion {
    rate: Tensor,
    weight: Tensor,
    bias: Tensor,
    out: usize,
}

impl Diffusion {
    fn new(named: &mut Named<'_>, shape: &LayerShape) -> Self {
        Self {
            rate: named.zeros("rate", 1),
            weight: named.glorot("weight", [shape.input, shape.out]),
            bias: named.bias("bias", shape.out),
            out: shape.out,
        }
    }
}

impl Layer for Diffusion {
    fn forward(&self, edges: &LayerEdges<'_>, mixed: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let (_, width) = mixed.shape()?;
        // Each target's own row and the mean of its neighbours' beside it, in one pass over the edges; then plain tch.
        let beside = aggregate(&edges.edges, Reduce::Mean, mixed, None, true)?;
        let part = |start: usize| beside.f_narrow(1, start as i64, width as i64);
        let (own, mean) = (part(0)?, part(width)?);
        let moved = (mean - &own) * &self.rate + own;
        linear(edges.place(), &moved, &self.weight, Some(&self.bias), finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}

/// The options of `gsplit train`, by their defaults but for those in `flags`.
fn config(flags: &str) -> Result<TrainConfig> {
    let command = TrainConfig::augment_args(clap::Command::new("own_layer"));
    let command = command.no_binary_name(true).args_override_self(true);
    let matches = command.try_get_matches_from(flags.split_whitespace());
    let config = matches.and_then(|matches| TrainConfig::from_arg_matches(&matches));
    config.map_err(|problem| Error::Option(problem.to_string()))
}

/// Trains two layers of diffusion with the options `flags`.
pub fn run(dataset: &Dataset, flags: &str, on_epoch: &(dyn Fn(&EpochReport) + Sync)) -> Result<Summary> {
    let layer = OwnLayer::new(|named, shape| Box::new(Diffusion::new(named, shape)));
    let options = RunOptions { layer: Some(layer), ..RunOptions::default() };
    let flags = format!("--layers 2 --fanouts 10,5 --hidden 64 {flags}");
    train(dataset, &config(&flags)?, &options, &NoProgress, on_epoch)
}

#[allow(dead_code)] // a test runs `run` alone
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: own_layer DATASET")?;
    let dataset = Dataset::open(std::path::Path::new(&path))?;
    let flags = "--parallelism data --ranks 2 --norm layer --residual";
    run(&dataset, flags, &|epoch| {
        println!("epoch {}: loss {:.4}, valid {:?}", epoch.epoch, epoch.loss, epoch.valid);
    })?;
    Ok(())
}
