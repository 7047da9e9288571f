//! A custom layer, trained and inferred with like the layers of the crate: on any number of ranks,
//! with any parallelism, and the options that surround a layer (residual, normalisation, dropout,
//! checkpointing).
//!
//! h'(v) = (h(v) + τ (mean of h(u) over the sampled in-edges u → v - h(v))) W + b, one step of
//! diffusion with a trained rate τ.
//!
//! Run it on a dataset directory: `cargo run --release -p gsplit-trainer --example own_layer --
//! DATASET CHECKPOINT`, a folder for the checkpoints and the predicted classes.

// It talks to whoever runs it.
#![allow(clippy::print_stdout)]

use std::ops::Range;
use std::path::PathBuf;

use gsplit_store::{Dataset, NoProgress};
use gsplit_trainer::model::{ByColumns, Layer, LayerEdges, LayerShape, Named, OwnLayer};
use gsplit_trainer::operator::{Finish, Reduce, Rows, aggregate, biased, linear};
use gsplit_trainer::{
    Config, EpochReport, Hooks, InferConfig, InferSummary, NormKind, Parallelism, Result, Summary,
    infer, train,
};
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

impl Diffusion {
    /// The moved rows times `weight`, with `bias`.
    fn product(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        (weight, bias): (&Tensor, Option<&Tensor>),
        finish: Finish,
    ) -> Result<Tensor> {
        let (_, width) = input.shape()?;
        // Each target's own row and the mean of its neighbours' beside it, in one pass over the
        // edges; then plain tch.
        let beside = aggregate(&edges.edges, Reduce::Mean, input, None, true)?;
        let part = |start: usize| beside.f_narrow(1, start as i64, width as i64);
        let (own, mean) = (part(0)?, part(width)?);
        let moved = (mean - &own) * &self.rate + own;
        linear(edges.place(), &moved, weight, bias, finish)
    }
}

impl Layer for Diffusion {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        self.product(edges, input, (&self.weight, Some(&self.bias)), finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }

    fn by_columns(&self) -> Option<&dyn ByColumns> {
        Some(self)
    }
}

/// All but the bias is linear in the rows: what `--parallelism push-pull` needs to know.
impl ByColumns for Diffusion {
    fn partial(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        columns: Range<usize>,
    ) -> Result<Vec<Tensor>> {
        let weight = self.weight.f_narrow(0, columns.start as i64, columns.len() as i64)?;
        Ok(vec![self.product(edges, input, (&weight, None), Finish::default())?])
    }

    fn complete(&self, edges: &LayerEdges<'_>, sums: &[Tensor], finish: Finish) -> Result<Tensor> {
        biased(edges.place(), &sums[0], Some(&self.bias), finish)
    }
}

fn layer() -> OwnLayer {
    OwnLayer::new(|named, shape| Box::new(Diffusion::new(named, shape)))
}

/// Trains two layers of diffusion, 64 wide, with the options that `change` sets.
pub fn run(
    dataset: &Dataset,
    change: impl FnOnce(&mut Config),
    on_epoch: &(dyn Fn(&[EpochReport]) + Sync),
) -> Result<Summary> {
    let mut config = Config::default();
    (config.model.layers, config.model.hidden) = (2, 64);
    config.data.fanouts = "10,5".parse()?;
    change(&mut config);
    train(
        dataset,
        &config,
        &Hooks { layer: Some(layer()), ..Hooks::default() },
        &NoProgress,
        on_epoch,
    )
}

/// Scores the model in the folder `checkpoint` with all neighbours, in 1 GiB, and writes the class
/// of every vertex to `out`.
pub fn predict(dataset: &Dataset, checkpoint: PathBuf, out: PathBuf) -> Result<InferSummary> {
    let config =
        InferConfig { checkpoint, out: Some(out), layer: Some(layer()), ..InferConfig::default() };
    infer(dataset, &config, 1 << 30, None, &NoProgress)
}

#[allow(dead_code)] // a test runs the others
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let [dataset, checkpoint] = [1, 2].map(|at| std::env::args().nth(at).map(PathBuf::from));
    let (dataset, checkpoint) =
        dataset.zip(checkpoint).ok_or("usage: own_layer DATASET CHECKPOINT")?;
    let dataset = Dataset::open(&dataset)?;
    let change = |config: &mut Config| {
        (config.system.parallelism, config.system.ranks) = (Parallelism::Data, Some(2));
        (config.model.norm, config.model.residual) = (Some(NormKind::Layer), true);
        config.run.checkpoint = Some(checkpoint.clone());
    };
    run(&dataset, change, &|epochs| {
        let Some(epoch) = epochs.last() else { return };
        println!("epoch {}: loss {:.4}, valid {:?}", epoch.epoch, epoch.loss, epoch.valid);
    })?;
    let classes = checkpoint.join("classes.npy");
    println!("{:?}", predict(&dataset, checkpoint, classes)?.scores);
    Ok(())
}
