//! The example of a program's own layer learns, and the same on any number of ranks.

#[path = "../../examples/own_layer.rs"]
mod example;

use gsplit_store::{Column, ColumnFile, NoProgress, Split};
use tch::Tensor;

use super::fixture::{Cut, assert_refused, changed, config, dataset, emulated, store_partition};
use crate::config::{Config, Dtype, ModelKind, NormKind, Parallelism};
use crate::model::{Layer, LayerEdges, OwnLayer};
use crate::operator::{Finish, Reduce, Rows, aggregate, finished};
use crate::tests::fixture::{Around, train};
use crate::{InferConfig, Predict, Result, infer};

#[test]
fn the_example_learns_the_same_on_any_number_of_ranks() {
    let fixture = dataset(31, 400, 6);
    let key = store_partition(&fixture.dataset, Cut::Random, 3);
    let losses = |parallelism: Parallelism, ranks: usize| -> Vec<f64> {
        let change = |config: &mut Config| {
            (config.model.hidden, config.model.dropout) = (16, 0.1);
            (config.data.batch_size, config.run.epochs, config.run.eval_every) = (50, 12, 0);
            config.run.optimizer.lr = 0.01;
            (config.system.parallelism, config.system.ranks) = (parallelism, Some(ranks));
            config.system.partition = parallelism.needs_map().then(|| key.clone());
        };
        let summary = example::run(&fixture.dataset, change, &|_| {}).unwrap();
        assert_eq!(
            summary.num_parameters,
            2 + 6 * 16 + 16 + 16 * 4 + 4,
            "the rates, weights and biases of its layers"
        );
        summary.epochs.iter().map(|epoch| epoch.loss).collect()
    };
    let single = losses(Parallelism::Single, 1);
    assert!(single[11] < 0.9 * single[0], "{single:?}");
    for (parallelism, ranks) in
        [(Parallelism::Data, 2), (Parallelism::PushPull, 4), (Parallelism::Split, 3)]
    {
        for (other, loss) in losses(parallelism, ranks).iter().zip(&single) {
            assert!((other - loss).abs() <= 1e-3 * loss, "{parallelism}: {other} against {loss}");
        }
    }
}

#[test]
fn the_example_infers_what_its_evaluation_scored() {
    let fixture = dataset(32, 400, 6);
    let [checkpoint, out] = ["run", "classes.npy"].map(|name| fixture.folder.path().join(name));
    let change = |config: &mut Config| {
        (config.model.hidden, config.model.norm, config.model.residual) =
            (16, Some(NormKind::Layer), true);
        (config.data.batch_size, config.run.epochs, config.run.optimizer.lr) = (50, 3, 0.01);
        config.run.checkpoint = Some(checkpoint.clone());
    };
    let summary = example::run(&fixture.dataset, change, &|_| {}).unwrap();
    let last = summary.epochs.last().unwrap();
    let found = example::predict(&fixture.dataset, checkpoint.clone(), out.clone()).unwrap();
    assert_eq!(found.scores[1..], [(Split::Valid, last.valid), (Split::Test, last.test)]);
    assert!(Column::<i32>::open(out).unwrap().iter().any(|&class| class > 0));

    // A program without the layer cannot infer.
    let config = InferConfig { checkpoint, ..InferConfig::default() };
    assert_refused(
        infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress),
        "a program's own layers",
    );
}

/// h' = W (mean of h(u) over the sampled in-edges u → v - h(v)), the product and the difference by
/// torch.
struct Plain {
    weight: Tensor,
    out: usize,
}

impl Layer for Plain {
    fn forward(&self, edges: &LayerEdges<'_>, input: Rows<'_>, finish: Finish) -> Result<Tensor> {
        let own = input.first(edges.edges.num_targets())?;
        let sums =
            (aggregate(&edges.edges, Reduce::Mean, input, None, false)? - own).matmul(&self.weight);
        finished(edges.place(), &sums, finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}

#[test]
fn a_layer_in_plain_torch_is_trained_and_inferred_with_on_a_gpu() {
    let fixture = dataset(33, 300, 6);
    let layer = OwnLayer::new(|named, shape| {
        Box::new(Plain { weight: named.glorot("weight", [shape.input, shape.out]), out: shape.out })
    });
    let to = |name: &str| fixture.folder.path().join(name);
    let mut losses = Vec::new();
    for (dtype, tolerance) in [(Dtype::F32, 2e-5), (Dtype::Bf16, 0.02)] {
        let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
            config.model.dtype = dtype
        });
        let checkpoint = to(&format!("{dtype:?}"));
        let options = Around {
            layer: Some(layer.clone()),
            checkpoint: Some(checkpoint.clone()),
            places: emulated(2),
            ..Around::default()
        };
        let summary = train(&fixture.dataset, &config, &options, &NoProgress, &|_| {}).unwrap();
        losses.push(summary.epochs[1].loss);
        if dtype == Dtype::F32 {
            // The layer reads its own rows as well as their sum, and both have gradients.
            let on_host = Around { layer: Some(layer.clone()), ..Around::default() };
            let host = train(&fixture.dataset, &config, &on_host, &NoProgress, &|_| {}).unwrap();
            assert!(
                (host.epochs[1].loss - losses[0]).abs() <= 1e-5 * losses[0],
                "{} {}",
                host.epochs[1].loss,
                losses[0]
            );
        }
        let [host, device] = [None, Some(1)].map(|order| {
            let out = to(&format!("{dtype:?}-{order:?}.npy"));
            let config = InferConfig {
                checkpoint: checkpoint.clone(),
                out: Some(out.clone()),
                predict: Some(Predict::Logits),
                layer: Some(layer.clone()),
                dtype: Some(if order.is_some() { dtype } else { Dtype::F32 }),
                places: order.and_then(emulated),
                ..InferConfig::default()
            };
            infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress).unwrap();
            ColumnFile::open(&out).unwrap().as_slice::<f32>().unwrap().to_vec()
        });
        let largest = host.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let off = host.iter().zip(&device).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(off <= tolerance * largest, "{dtype:?}: {off} of {largest}");
    }
    assert!(
        losses[0] != losses[1] && (losses[0] - losses[1]).abs() < 0.02 * losses[0],
        "{losses:?}"
    );
}
