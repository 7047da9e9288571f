//! Invariant 4: losses and gradients do not depend on parallelism, rank count or partition.

use gsplit_kernels::{Communicator, Sampler, Solo};
use gsplit_store::{Dataset, NoProgress};

use super::fixture::{
    CLASSES, Cut, SEVERAL_CLASSES, changed, config, dataset, on_ranks, several_labels, store_partition,
};
use crate::batch::{Seeds, load, sample};
use crate::config::{ModelKind, Parallelism, TrainConfig};
use crate::infer::{Chunk, LayerWise, Room};
use crate::job::{Artifacts, Job};
use crate::model::{DropoutKey, Model};
use crate::optimizer::Adam;
use crate::report::StepReport;
use crate::step::{forward, to_rows, train_step};

/// Loss and summed gradient of the mini-batch `batch`, at the initial weights.
fn loss_and_gradient(job: &Job<'_>, batch: &[u32], comm: &dyn Communicator) -> (f64, Vec<f32>) {
    let config = job.config;
    let at = (config.seed, 1, 0);
    let model = Model::new(config, job.features.dim(), job.outputs);
    let mut adam = Adam::new(model.parameters(), config.optimizer.lr);
    let (seeds, targets) = job.batch(batch, at, comm).unwrap();
    let sampled = sample(&mut Sampler::new(2), &job.graph, seeds, &config.fanouts, at, job.ownership, comm).unwrap();
    let loaded = load(&job.features, sampled).unwrap();
    let dropout = DropoutKey { probability: config.model.dropout, at };
    let report = train_step(&model, &mut adam, loaded, &targets, dropout, comm).unwrap();
    let report = report.reduce(comm).unwrap();
    // After one step Adam's first moment is the gradient times 1 - β₁.
    let gradient = to_rows(&adam.first_moment).unwrap().iter().map(|moment| moment * 10.0).collect();
    (report.loss, gradient)
}

pub fn run(dataset: &Dataset, config: &TrainConfig, batch: &[u32]) -> (f64, Vec<f32>) {
    let artifacts = Artifacts::open(dataset, config).unwrap();
    let job = Job::new(dataset, &artifacts, config, None).unwrap();
    let mut results = on_ranks(config.num_ranks(), |comm| {
        tch::set_num_threads(1);
        loss_and_gradient(&job, batch, comm)
    });
    let first = results.remove(0);
    for other in results {
        assert_eq!(first, other, "all ranks hold the same loss and gradient, to the bit");
    }
    first
}

/// Largest difference, relative to the largest value.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    let largest = |values: &mut dyn Iterator<Item = f32>| values.fold(0f32, f32::max);
    let scale = largest(&mut b.iter().map(|value| value.abs()));
    largest(&mut a.iter().zip(b).map(|(a, b)| (a - b).abs())) / scale
}

#[test]
fn several_classes_a_vertex_have_one_loss_for_every_parallelism() {
    let fixture = several_labels(14, 300, 6);
    let dataset = &fixture.dataset;
    let train = dataset.split(gsplit_store::Split::Train).unwrap();
    let batch = &train[..40];
    let single = config(ModelKind::Sage, Parallelism::Single, 1);
    let (loss, gradient) = run(dataset, &single, batch);
    // At first every logit is small, and every decision costs about ln 2.
    let guess = SEVERAL_CLASSES as f64 * 2f64.ln();
    assert!((loss - guess).abs() < 0.5 * guess, "{loss}, about {guess} expected");
    for ranks in [2, 3, 4] {
        let partition = Some(store_partition(dataset, Cut::Lopsided, ranks));
        let split = TrainConfig { partition, ..config(ModelKind::Sage, Parallelism::Split, ranks) };
        for config in [config(ModelKind::Sage, Parallelism::Data, ranks), split] {
            let (other, other_gradient) = run(dataset, &config, batch);
            assert!((loss - other).abs() <= 1e-5 * loss, "{} on {ranks}: {other}, not {loss}", config.parallelism);
            assert!(distance(&other_gradient, &gradient) <= 1e-5);
        }
    }
}

#[test]
fn loss_and_gradients_are_equal_for_every_parallelism() {
    let fixture = dataset(11, 400, 8);
    let dataset = &fixture.dataset;
    let train = dataset.split(gsplit_store::Split::Train).unwrap();
    // 50 seeds, and 2: then most ranks have none.
    for (model, batch) in
        [ModelKind::Sage, ModelKind::Gat].into_iter().flat_map(|m| [(m, &train[..50]), (m, &train[..2])])
    {
        let (loss, gradient) = run(dataset, &config(model, Parallelism::Single, 1), batch);
        assert!(loss.is_finite() && gradient.iter().any(|&value| value != 0.0));
        let compare = |config: &TrainConfig, what: &str| {
            let (other_loss, other_gradient) = run(dataset, config, batch);
            let off = distance(&other_gradient, &gradient);
            assert!((loss - other_loss).abs() <= 1e-5 * loss, "{model:?}, {what}: loss {other_loss}, expected {loss}");
            assert!(off <= 1e-5, "{model:?}, {what}: gradients differ by {off}");
        };
        for ranks in [1, 2, 3, 4, 8] {
            compare(&config(model, Parallelism::Data, ranks), &format!("data on {ranks} ranks"));
            for cut in Cut::ALL {
                let partition = Some(store_partition(dataset, cut, ranks));
                let config = TrainConfig { partition, ..config(model, Parallelism::Split, ranks) };
                compare(&config, &format!("split on {ranks} ranks, {cut:?}"));
            }
        }
    }
}

/// The logits of all vertices.
fn logits(model: &Model, job: &Job<'_>) -> Vec<f32> {
    let pass = LayerWise { model, graph: job.graph, features: &job.features, room: Room::UNLIMITED, stop: None };
    let mut logits = Vec::new();
    let mut visit = |chunk: Chunk<'_>| {
        if chunk.layer + 1 == model.num_layers() {
            logits.extend_from_slice(chunk.rows);
        }
        Ok(())
    };
    pass.run(None, &NoProgress, &mut visit).unwrap();
    logits
}

#[test]
fn oracle_inference_is_forward_with_all_neighbours() {
    let fixture = dataset(13, 300, 6);
    for kind in [ModelKind::Sage, ModelKind::Gat] {
        let config = TrainConfig { fanouts: "all,all,all".parse().unwrap(), ..config(kind, Parallelism::Single, 1) };
        let artifacts = Artifacts::open(&fixture.dataset, &config).unwrap();
        let job = Job::new(&fixture.dataset, &artifacts, &config, None).unwrap();
        let model = Model::new(&config, job.features.dim(), job.outputs);
        let logits = logits(&model, &job);
        let seeds: Vec<u32> = (0..300).step_by(7).collect();
        let at = (config.seed, 1, 0);
        let mine = Seeds::of(&seeds, job.ownership, 0, 1);
        let sampled =
            sample(&mut Sampler::new(2), &job.graph, mine, &config.fanouts, at, job.ownership, &Solo).unwrap();
        let loaded = load(&job.features, sampled).unwrap();
        let pass = forward(&model, loaded, None, &Solo, &mut StepReport::default()).unwrap();
        let forward = to_rows(pass.logits()).unwrap();
        let rows = seeds.iter().flat_map(|&v| &logits[v as usize * CLASSES..(v as usize + 1) * CLASSES]);
        let inferred: Vec<f32> = rows.copied().collect();
        assert!(distance(&forward, &inferred) < 1e-5, "{kind:?}");
    }
}

#[test]
fn dropout_changes_the_loss_and_a_seed_changes_the_weights() {
    let fixture = dataset(12, 200, 5);
    let batch: Vec<u32> = fixture.dataset.split(gsplit_store::Split::Train).unwrap()[..40].to_vec();
    let base = config(ModelKind::Sage, Parallelism::Single, 1);
    let (loss, _) = run(&fixture.dataset, &base, &batch);
    let (again, _) = run(&fixture.dataset, &base, &batch);
    let (plain, _) = run(&fixture.dataset, &changed(&base, |config| config.model.dropout = 0.0), &batch);
    let (other, _) =
        run(&fixture.dataset, &changed(&base, |config| (config.seed, config.model.dropout) = (4, 0.0)), &batch);
    assert_eq!(loss, again);
    assert!(loss != plain && plain != other);
}
