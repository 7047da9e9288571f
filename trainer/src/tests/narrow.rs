//! Training in bf16 and f16 on an emulated GPU: factors of products, rows from the features to the
//! last layer, exchanged rows and the gradients of all of these are rounded, everything else is as
//! in f32.

use gsplit_kernels::schedule::Step;
use gsplit_store::{FeatureDtype, NoProgress, Split};

use super::equivalence::{items, run_at};
use super::fixture::{
    Cut, assert_refused, changed, config, dataset, emulated, models, store_partition, stored_as,
};
use super::links::link_config;
use super::runs::{losses, run};
use crate::InferConfig;
use crate::config::{
    Config, Dtype, FeatureNorm, ModelConfig, ModelKind, NormKind, Parallelism, TaskConfig,
    TopologyStorage,
};
use crate::model::Input;
use crate::operator::Place;
use crate::residence::source::{FeatureSource, open_gpu_table};
use crate::tests::fixture::Around;

const NARROW: [Dtype; 2] = [Dtype::Bf16, Dtype::F16];

fn within(dtype: Dtype, order: u32) -> Place {
    Place::under_test(order % 4).with_dtype(dtype)
}

/// The cosine of two gradients, and the ratio of their norms.
fn compare(found: &[f32], expected: &[f32]) -> (f64, f64) {
    let dot = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>()
    };
    let [of_found, of_expected] = [found, expected].map(|values| dot(values, values).sqrt());
    (dot(found, expected) / (of_found * of_expected), of_found / of_expected)
}

#[test]
fn loss_and_gradient_are_nearly_those_of_f32_for_every_model() {
    let fixture = dataset(61, 200, 5);
    let links = link_config(ModelKind::Gat, Parallelism::Single, 1);
    let of_models = models().into_iter().map(|model| (model, TaskConfig::default()));
    for (order, (model, task)) in (0..).zip(of_models.chain([(links.model, links.data.task)])) {
        // Wide enough, and with enough seeds, that no single value near ReLU's corner decides.
        let config = changed(&config(model.kind, Parallelism::Single, 1), |config| {
            (config.model, config.data.task) = (ModelConfig { hidden: 32, ..model.clone() }, task);
        });
        let train = items(&fixture.dataset, &config);
        let (loss, gradient) = super::equivalence::run(&fixture.dataset, &config, &train);
        // Each kind of layer in both types, other models in one of them.
        let both = ModelKind::ALL.len() as u32;
        for dtype in
            NARROW.into_iter().skip(order as usize % 2).take(if order < both { 2 } else { 1 })
        {
            let what = format!("{model:?} in {dtype:?}");
            let (rounded, found) = run_at(
                (&within(dtype, order), TopologyStorage::Auto),
                &fixture.dataset,
                &config,
                &train,
            );
            assert!(
                rounded != loss && (rounded - loss).abs() <= 0.02 * loss,
                "{what}: {rounded}, in f32 {loss}"
            );
            let (cosine, ratio) = compare(&found, &gradient);
            // With features of bf16 more values change sides at ReLU's corner than with f16.
            let least = if dtype == Dtype::Bf16 { 0.98 } else { 0.99 };
            assert!(
                cosine > least && (ratio - 1.0).abs() < 0.05,
                "{what}: cosine {cosine}, norms {ratio}"
            );
            if (order + dtype as u32).is_multiple_of(4) {
                let again = changed(&config, |config| config.model.checkpoint_activations = true);
                let again = run_at(
                    (&within(dtype, order), TopologyStorage::Auto),
                    &fixture.dataset,
                    &again,
                    &train,
                );
                assert_eq!(again, (rounded, found), "{what}: checkpointing changes nothing");
            }
        }
    }
}

#[test]
fn ranks_that_share_rounded_rows_learn_the_same_up_to_rounding() {
    let fixture = dataset(62, 200, 5);
    let dataset = &fixture.dataset;
    let train = dataset.split(Split::Train).unwrap();
    for (dtype, kind, norm) in [
        (Dtype::Bf16, ModelKind::Sage, NormKind::None),
        (Dtype::Bf16, ModelKind::Gcn, NormKind::Batch),
        (Dtype::F16, ModelKind::Gat, NormKind::None),
        (Dtype::F16, ModelKind::SagePool, NormKind::Layer),
    ] {
        let with = |parallelism, ranks| {
            changed(&config(kind, parallelism, ranks), |config| config.model.norm = Some(norm))
        };
        let (loss, gradient) = run_at(
            (&within(dtype, 1), TopologyStorage::Auto),
            dataset,
            &with(Parallelism::Single, 1),
            &train[..30],
        );
        for ranks in [2, 4] {
            let partition = Some(store_partition(dataset, Cut::Random, ranks));
            let split = changed(&with(Parallelism::Split, ranks), |config| {
                config.system.partition = partition
            });
            for config in [with(Parallelism::Data, ranks), split] {
                let (other, found) = run_at(
                    (&within(dtype, 2), TopologyStorage::Auto),
                    dataset,
                    &config,
                    &train[..30],
                );
                assert!(
                    (other - loss).abs() <= 0.01 * loss,
                    "{kind:?}, {} on {ranks}: {other}",
                    config.system.parallelism
                );
                let (cosine, ratio) = compare(&found, &gradient);
                assert!(
                    cosine > 0.99 && (ratio - 1.0).abs() < 0.05,
                    "{kind:?} on {ranks}: {cosine}, {ratio}"
                );
            }
        }
    }
}

/// Tests every storage of the rows and every stored type.
#[test]
fn features_arrive_in_the_type_of_the_run() {
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    for (order, stored) in
        (0..).zip([FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16, FeatureDtype::I8])
    {
        let fixture = stored_as(stored, 66, 60, 3, 8);
        let features = fixture.dataset.features().unwrap().in_memory().unwrap();
        let vertices = [5u32, 0, 59, 7, 7];
        let normalised = ModelConfig {
            normalise_features: FeatureNorm::Row,
            input_dropout: 0.3,
            ..config.model.clone()
        };
        let inputs = [
            Input::new(&config.model),
            Input::training(&normalised, Step { seed: 1, epoch: 2, step: 3 }),
        ];
        for (input, dtype) in inputs
            .iter()
            .flat_map(|input| [Dtype::F32, Dtype::Bf16, Dtype::F16].map(|dtype| (input, dtype)))
        {
            let exact =
                FeatureSource::new(&features, &Place::host()).rows(&vertices, input, 0).unwrap();
            let place = within(dtype, order);
            let gpu = place.gpu().unwrap();
            let pinned = open_gpu_table(&features, Some(gpu)).unwrap();
            let reached = FeatureSource::with_gpu_table(&features, &place, &pinned, 0).unwrap();
            let by_host = FeatureSource::new(&features, &place);
            let on_gpu = gpu.upload(&vertices).unwrap();
            let (_, rows) = reached.gathering().unwrap();
            let ahead = rows.ahead(gpu, on_gpu.slice(), input).unwrap();
            for found in [
                reached.rows(&vertices, input, 0).unwrap(),
                rows.tensor(gpu, place.device(), on_gpu.slice(), input).unwrap(),
                ahead.tensor(place.device(), features.dim()).unwrap(),
                by_host.rows(&vertices, input, 0).unwrap(),
            ] {
                assert_eq!(found.kind(), place.row_kind());
                assert_eq!(
                    found.to_device(tch::Device::Cpu),
                    exact.to_kind(place.row_kind()),
                    "{stored} as {dtype:?}"
                );
            }
        }
    }
}

/// A small run that learns, and ends with an evaluation.
fn learning(dtype: Dtype) -> Config {
    changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.run.epochs, config.model.hidden, config.model.dropout, config.run.seed) =
            (8, 16, 0.0, 7);
        (config.model.dtype, config.run.optimizer.lr, config.run.eval_every) = (dtype, 0.03, 8);
    })
}

fn valid(summary: &crate::Summary) -> f64 {
    summary.epochs.last().unwrap().valid.unwrap()
}

#[test]
fn a_rounded_run_scores_as_one_in_f32_and_any_type_reads_its_checkpoint() {
    let fixture = dataset(63, 250, 6);
    let options = Around { places: emulated(0), ..Around::default() };
    let exact = run(&fixture, &learning(Dtype::F32), &options).unwrap();
    assert!(valid(&exact) > 0.5, "{}: nothing was learnt", valid(&exact));
    for dtype in NARROW {
        let checkpoint = fixture.folder.path().join(format!("{dtype:?}"));
        let kept = Around { checkpoint: Some(checkpoint.clone()), ..options.clone() };
        let rounded = run(&fixture, &learning(dtype), &kept).unwrap();
        for ((epoch, exact, ..), (_, rounded, ..)) in losses(&exact).iter().zip(losses(&rounded)) {
            let near = *exact != rounded && (exact - rounded).abs() < 0.05 * exact;
            assert!(near, "{dtype:?}, epoch {epoch}: {exact}, {rounded}");
        }
        let of_rounded = valid(&rounded);
        assert!(
            (valid(&exact) - of_rounded).abs() < 0.06,
            "{} in f32, {of_rounded} in {dtype:?}",
            valid(&exact)
        );
        let last = rounded.epochs.last().unwrap();
        assert_eq!((last.loss_scale, last.skipped), ((dtype == Dtype::F16).then_some(65536.0), 0));
        let weights = checkpoint.join("best/model.safetensors");
        for (name, tensor) in tch::Tensor::read_safetensors(weights).unwrap() {
            assert_eq!(tensor.kind(), tch::Kind::Float, "{name}");
        }
        let (wide, narrow) = (Some(Dtype::F32), Some(Dtype::F16));
        for (order, dtype) in
            [(None, None), (None, wide), (Some(1), wide), (Some(2), None), (Some(3), narrow)]
        {
            let config = InferConfig {
                checkpoint: checkpoint.clone(),
                places: order.and_then(emulated),
                dtype,
                ..InferConfig::default()
            };
            let found =
                crate::infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress).unwrap();
            let valid = found.scores[1].1.unwrap();
            assert!(
                (valid - of_rounded).abs() < 0.03,
                "{dtype:?}, on a GPU {}: {valid}",
                order.is_some()
            );
        }
        let config = InferConfig { checkpoint, dtype: Some(Dtype::F16), ..InferConfig::default() };
        assert_refused(
            crate::infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress),
            "--dtype f16 is for --device cuda",
        );
    }
    let refused = run(&fixture, &learning(Dtype::F16), &Around::default()).unwrap_err();
    assert!(refused.to_string().contains("on a CPU choose bf16"), "{refused}");
}

/// Mini-batches of one seed, for which dropout makes gradients ten times as large: too large for
/// f16 at the scale that runs begin with.
#[test]
fn a_run_in_f16_leaves_out_what_overflows_and_resumes_exactly() {
    let fixture = dataset(65, 30, 3);
    store_partition(&fixture.dataset, Cut::Random, 2);
    let config = |epochs| {
        changed(&config(ModelKind::Sage, Parallelism::Split, 2), |config| {
            (
                config.run.epochs,
                config.data.batch_size,
                config.model.dtype,
                config.run.eval_every,
            ) = (epochs, 1, Dtype::F16, 0);
            (config.model.hidden, config.model.dropout) = (32, 0.9);
        })
    };
    let log = fixture.folder.path().join("log.jsonl");
    let options =
        Around { places: emulated(2), log: Some(log.clone()), log_every: 1, ..Around::default() };
    let straight = run(&fixture, &config(2), &options).unwrap();
    let mut scale = 65536.0;
    for line in std::fs::read_to_string(&log).unwrap().lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        if record.get("step").is_some() {
            scale /= 2f64.powi(record["skipped"].as_u64().unwrap() as i32);
            assert_eq!(record["loss_scale"].as_f64(), Some(scale), "{record}");
        }
    }
    let scaling = |summary: &crate::Summary| {
        summary.epochs.iter().map(|epoch| (epoch.loss_scale, epoch.skipped)).collect::<Vec<_>>()
    };
    let found = scaling(&straight);
    let skipped: u64 = found.iter().map(|(_, skipped)| skipped).sum();
    assert!(skipped > 0 && found.last().unwrap().0 == Some(scale), "{found:?}");
    assert_eq!(scale, 65536.0 / 2f64.powi(skipped as i32));
    assert!(straight.epochs.iter().all(|epoch| epoch.loss > 0.0 && epoch.gradient_norm > 0.0));

    let checkpoint = Some(fixture.folder.path().join("run"));
    let kept = Around { checkpoint, log: None, log_every: 0, ..options };
    let before = run(&fixture, &config(1), &kept).unwrap();
    let after = run(&fixture, &config(2), &Around { resume: true, ..kept }).unwrap();
    assert_eq!([losses(&before), losses(&after)].concat(), losses(&straight));
    assert_eq!([scaling(&before), scaling(&after)].concat(), found);
}
