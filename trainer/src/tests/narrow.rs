//! Training in bf16 on a GPU, which is emulated: products, hidden rows and their gradients rounded, all else as in f32.

use gsplit_store::{NoProgress, Split};

use super::device::at;
use super::fixture::{Cut, changed, communities, config, dataset, models, store_partition};
use super::links::link_config;
use super::runs::{losses, run};
use crate::config::{Dtype, ModelConfig, ModelKind, NormKind, Parallelism, TrainConfig};
use crate::place::Place;
use crate::{InferConfig, RunOptions};

fn in_bf16(order: u32) -> Place {
    Place::under_test(order % 4).with_dtype(Dtype::Bf16)
}

/// The cosine of two gradients, and the ratio of their norms.
fn compare(found: &[f32], expected: &[f32]) -> (f64, f64) {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let [of_found, of_expected] = [found, expected].map(|values| dot(values, values).sqrt());
    (dot(found, expected) / (of_found * of_expected), of_found / of_expected)
}

#[test]
fn loss_and_gradient_are_nearly_those_of_f32_for_every_model() {
    let fixture = dataset(61, 200, 5);
    let train = fixture.dataset.split(Split::Train).unwrap();
    for (order, model) in (0..).zip(models()) {
        // Wide enough, and of enough seeds, that no single value which ReLU cuts on one side alone decides.
        let config = changed(&config(model.kind, Parallelism::Single, 1), |config| {
            config.model = ModelConfig { hidden: 32, ..model.clone() };
        });
        let (loss, gradient) = at(&Place::host(), &fixture.dataset, &config, &train);
        let (rounded, found) = at(&in_bf16(order), &fixture.dataset, &config, &train);
        assert!(rounded != loss && (rounded - loss).abs() <= 0.02 * loss, "{model:?}: {rounded}, in f32 {loss}");
        let (cosine, ratio) = compare(&found, &gradient);
        assert!(cosine > 0.99 && (ratio - 1.0).abs() < 0.05, "{model:?}: cosine {cosine}, norms {ratio}");
        if order % 3 != 0 {
            continue;
        }
        let again = changed(&config, |config| config.model.checkpoint_activations = true);
        let again = at(&in_bf16(order), &fixture.dataset, &again, &train);
        assert_eq!(again, (rounded, found), "{model:?}: checkpointing changes nothing");
    }
}

#[test]
fn ranks_that_share_rows_in_bf16_learn_the_same_up_to_rounding() {
    let fixture = dataset(62, 200, 5);
    let dataset = &fixture.dataset;
    let train = dataset.split(Split::Train).unwrap();
    for (kind, norm) in [(ModelKind::Sage, NormKind::None), (ModelKind::Gcn, NormKind::Batch)] {
        let with =
            |parallelism, ranks| changed(&config(kind, parallelism, ranks), |config| config.model.norm = Some(norm));
        let (loss, gradient) = at(&in_bf16(1), dataset, &with(Parallelism::Single, 1), &train[..30]);
        for ranks in [2, 4] {
            let partition = Some(store_partition(dataset, Cut::Random, ranks));
            let split = TrainConfig { partition, ..with(Parallelism::Split, ranks) };
            for config in [with(Parallelism::Data, ranks), split] {
                let (other, found) = at(&in_bf16(2), dataset, &config, &train[..30]);
                assert!((other - loss).abs() <= 0.01 * loss, "{kind:?}, {} on {ranks}: {other}", config.parallelism);
                let (cosine, ratio) = compare(&found, &gradient);
                assert!(cosine > 0.99 && (ratio - 1.0).abs() < 0.05, "{kind:?} on {ranks}: {cosine}, {ratio}");
            }
        }
    }
}

#[test]
fn a_run_in_bf16_scores_as_one_in_f32_and_either_reads_its_checkpoint() {
    let fixture = dataset(63, 500, 6);
    let config = |dtype| {
        changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
            (config.epochs, config.model.hidden, config.model.dropout) = (8, 16, 0.0);
            (config.model.dtype, config.optimizer.lr, config.eval_every) = (dtype, 0.03, 8);
        })
    };
    let checkpoint = fixture.folder.path().join("run");
    let options = RunOptions { emulated: Some(0), ..RunOptions::default() };
    let exact = run(&fixture, &config(Dtype::F32), &options).unwrap();
    let kept = RunOptions { checkpoint: Some(checkpoint.clone()), ..options };
    let rounded = run(&fixture, &config(Dtype::Bf16), &kept).unwrap();
    for ((epoch, exact, ..), (_, rounded, ..)) in losses(&exact).iter().zip(losses(&rounded)) {
        assert!(*exact != rounded && (exact - rounded).abs() < 0.05 * exact, "epoch {epoch}: {exact}, {rounded}");
    }
    let [of_exact, of_rounded] = [&exact, &rounded].map(|summary| summary.epochs.last().unwrap().valid.unwrap());
    assert!(of_exact > 0.5, "{of_exact}: nothing was learnt");
    assert!((of_exact - of_rounded).abs() < 0.06, "{of_exact} in f32, {of_rounded} in bf16");
    let weights = checkpoint.join("best/model.safetensors");
    for (name, tensor) in tch::Tensor::read_safetensors(weights).unwrap() {
        assert_eq!(tensor.kind(), tch::Kind::Float, "{name}");
    }
    for (emulated, dtype) in [(None, None), (None, Some(Dtype::F32)), (Some(1), Some(Dtype::F32)), (Some(2), None)] {
        let config = InferConfig { checkpoint: checkpoint.clone(), emulated, dtype, ..InferConfig::default() };
        let found = crate::infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress).unwrap();
        let valid = found.scores[1].1.unwrap();
        assert!((valid - of_rounded).abs() < 0.03, "{dtype:?}, on a GPU {}: {valid}", emulated.is_some());
    }
}

#[test]
fn links_are_learnt_in_bf16() {
    let fixture = communities(100, 4);
    let scores = [Dtype::F32, Dtype::Bf16].map(|dtype| {
        let config = changed(&link_config(ModelKind::Gat, Parallelism::Single, 1), |config| {
            (config.model.dtype, config.model.hidden) = (dtype, 8);
            (config.epochs, config.batch_size, config.eval_every) = (2, 200, 2);
            config.model.dropout = 0.0;
        });
        let options = RunOptions { emulated: Some(3), ..RunOptions::default() };
        let summary = run(&fixture, &config, &options).unwrap();
        let last = summary.epochs.last().unwrap();
        (last.loss, last.valid.unwrap())
    });
    let [(exact, _), (rounded, _)] = scores;
    assert!(exact != rounded && (exact - rounded).abs() < 0.05 * exact, "{scores:?}");
    assert!((scores[0].1 - scores[1].1).abs() < 0.1, "{scores:?}");
}
