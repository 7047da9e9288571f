//! Training on an emulated GPU: the same losses and weights as on the host, for every model,
//! parallelism and rank count, and checkpoints that either can read.

use gsplit_gpu_sim::counts;
use gsplit_kernels::Solo;
use gsplit_kernels::schedule::Step;
use gsplit_store::{NoProgress, Notes, Split};

use super::equivalence::ENOUGH;
use super::fixture::{
    Cut, build, changed, communities, config, dataset, emulated, on_ranks, several_labels,
    store_partition,
};
use super::runs::{losses, run};
use crate::config::{
    Config, ModelKind, NormKind, OptimizerConfig, OptimizerKind, Parallelism, TaskKind,
    TopologyStorage,
};
use crate::job::{Artifacts, Job};
use crate::model::Input;
use crate::operator::{Place, to_rows};
use crate::residence::source::{FeatureSource, InputRows, hand_over, load, open_gpu_table};
use crate::residence::topology::{DeviceRoom, Topology};
use crate::sample::sample;
use crate::tests::fixture::{Around, train};
use crate::{RowPlacement, Summary};

/// Compares losses and scores of two runs that differ only in the last bits.
fn assert_close(host: &Summary, device: &Summary, what: &str) {
    assert_eq!(host.epochs.len(), device.epochs.len());
    for (host, device) in host.epochs.iter().zip(&device.epochs) {
        assert!(
            (host.loss - device.loss).abs() <= 1e-4 * host.loss,
            "{what}: {} and {}",
            host.loss,
            device.loss
        );
        // One vertex of 33 may change sides by rounding.
        let off = host.valid.zip(device.valid).map(|(a, b)| (a - b).abs());
        assert!(
            off.is_none_or(|off| off <= 0.05) && host.valid.is_some() == device.valid.is_some(),
            "{what}: {off:?}"
        );
        assert_eq!(
            (host.work.edges, host.work.rows_loaded),
            (device.work.edges, device.work.rows_loaded),
            "{what}"
        );
        assert_eq!(host.work.rows_exchanged, device.work.rows_exchanged, "{what}");
    }
}

#[test]
fn whole_runs_on_a_gpu_are_those_of_the_host() {
    let fixture = dataset(43, 200, 5);
    store_partition(&fixture.dataset, Cut::Random, 2);
    let device = Around { places: emulated(1), ..Around::default() };
    for (kind, parallelism, ranks, prefetch) in [
        (ModelKind::Sage, Parallelism::Split, 2, 0),
        (ModelKind::Gat, Parallelism::Data, 2, 2),
        (ModelKind::Gin, Parallelism::Single, 1, 1),
    ] {
        let config = config(kind, parallelism, ranks);
        let host = run(&fixture, &config, &Around::default()).unwrap();
        let options = Around { prefetch, ..device.clone() };
        assert_close(
            &host,
            &run(&fixture, &config, &options).unwrap(),
            &format!("{kind:?}, {parallelism}"),
        );
    }
    let several = several_labels(44, 200, 5);
    let config = config(ModelKind::Sage, Parallelism::Data, 2);
    let [host, device] =
        [&Around::default(), &device].map(|options| run(&several, &config, options).unwrap());
    assert_close(&host, &device, "several labels");
}

#[test]
fn differential_every_optimizer_updates_as_on_the_host() {
    let fixture = dataset(48, 80, 4);
    let base = OptimizerConfig { lr: 0.02, weight_decay: 0.01, ..Default::default() };
    let sgd = OptimizerConfig { kind: OptimizerKind::Sgd, clip_norm: Some(0.3), ..base.clone() };
    for optimizer in [
        base.clone(),
        OptimizerConfig {
            kind: OptimizerKind::AdamW,
            clip_norm: Some(0.2),
            betas: Some(crate::Betas([0.8, 0.999])),
            ..base
        },
        OptimizerConfig { momentum: Some(0.0), ..sgd.clone() },
        OptimizerConfig { nesterov: true, ..sgd.clone() },
        sgd,
    ] {
        let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
            (config.run.optimizer, config.run.epochs, config.run.eval_every) = (optimizer, 3, 0);
        });
        let host = run(&fixture, &config, &Around::default()).unwrap();
        let device = Around { places: emulated(3), ..Around::default() };
        let device = run(&fixture, &config, &device).unwrap();
        assert_close(&host, &device, &format!("{:?}", config.run.optimizer));
        for (host, device) in host.epochs.iter().zip(&device.epochs) {
            assert!((host.gradient_norm - device.gradient_norm).abs() <= 1e-3 * host.gradient_norm);
            assert_eq!(host.learning_rate, device.learning_rate);
        }
    }
}

#[test]
fn a_run_on_a_gpu_resumes_exactly_and_its_checkpoint_is_read_on_the_host() {
    let fixture = dataset(45, 200, 5);
    store_partition(&fixture.dataset, Cut::Random, 2);
    let whole = changed(&config(ModelKind::Gcn, Parallelism::Split, 2), |config| {
        (config.run.epochs, config.model.norm) = (4, Some(NormKind::Batch));
    });
    let checkpoint = fixture.folder.path().join("checkpoints");
    let device = Around { places: emulated(2), ..Around::default() };
    let kept = Around { checkpoint: Some(checkpoint.clone()), ..device.clone() };
    let straight = run(&fixture, &whole, &device).unwrap();
    let first = run(&fixture, &changed(&whole, |config| config.run.epochs = 2), &kept).unwrap();
    let rest = run(&fixture, &whole, &Around { resume: true, ..kept }).unwrap();
    assert_eq!([losses(&first), losses(&rest)].concat(), losses(&straight));
    let config = crate::InferConfig { checkpoint, ..Default::default() };
    let summary =
        crate::infer(&fixture.dataset, &config, u64::MAX, None, &gsplit_store::NoProgress).unwrap();
    let valid = summary
        .scores
        .iter()
        .find(|(split, _)| *split == Split::Valid)
        .and_then(|(_, score)| *score)
        .unwrap();
    let last = straight.epochs.last().and_then(|report| report.valid).unwrap();
    assert!((valid - last).abs() <= 0.05, "{valid} on the host, {last} on the GPU");
}

#[test]
fn a_cache_changes_where_rows_come_from_and_no_loss() {
    let fixture = dataset(47, 200, 5);
    store_partition(&fixture.dataset, Cut::Random, 2);
    // A row has 6 values of f32.
    for (parallelism, ranks, rows) in
        [(Parallelism::Split, 2, 40), (Parallelism::Data, 2, 60), (Parallelism::Single, 1, 1000)]
    {
        let config = changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
            config.run.eval_every = 0
        });
        let [without, with] = [None, Some(rows * 24)].map(|cache| {
            let placement = cache.map_or(Some(RowPlacement::Host), |_| None);
            let options =
                Around { places: emulated(0), cache, placement, prefetch: 1, ..Around::default() };
            run(&fixture, &config, &options).unwrap()
        });
        assert_eq!(losses(&with), losses(&without), "{parallelism}");
        for (with, without) in with.epochs.iter().zip(&without.epochs) {
            assert_eq!(
                (with.work.rows_loaded, without.work.rows_cached),
                (without.work.rows_loaded, 0)
            );
            match rows {
                1000 => assert_eq!(with.work.rows_cached, with.work.rows_loaded),
                _ => assert!(
                    with.work.rows_cached > with.work.rows_loaded / 10
                        && with.work.rows_cached < with.work.rows_loaded
                ),
            }
        }
    }
    let refused = |options: Around| {
        let config = config(ModelKind::Sage, Parallelism::Single, 1);
        run(&fixture, &config, &options).unwrap_err().to_string()
    };
    let tiny = refused(Around { cache: Some(23), places: emulated(0), ..Around::default() });
    assert!(tiny.contains("no row of 24"), "{tiny}");
}

/// Under split, with rows that the GPU gathers: covers every kind of memory that a mini-batch has
/// there.
#[test]
fn a_mini_batch_that_was_handed_over_is_freed_by_the_stream_that_computes() {
    let fixture = dataset(51, 200, 5);
    store_partition(&fixture.dataset, Cut::Random, 2);
    let config = config(ModelKind::Gcn, Parallelism::Split, 2);
    let options = Around { prefetch: 1, topology: TopologyStorage::Device, ..Around::default() };
    let artifacts = Artifacts::open(&fixture.dataset, &config).unwrap();
    let (config, hooks) = &options.of(&config);
    let job = Job::new(&fixture.dataset, &artifacts, config, hooks).unwrap();
    let place = Place::emulated(2);
    let gpu = place.gpu().unwrap();
    let (places, room) = ([place.clone(), place.clone()], DeviceRoom::given(ENOUGH, 2));
    let topology = Topology::new(&job, &places, &room, &NoProgress).unwrap();
    let pinned = open_gpu_table(&job.features, Some(gpu)).unwrap();
    let frees = on_ranks(2, |comm| {
        let source = FeatureSource::with_gpu_table(&job.features, &place, &pinned, 0).unwrap();
        let (step, mut sampler) = (
            Step { seed: 3, epoch: 1, step: 0 },
            topology.sampler(&job, &place, comm.rank()).unwrap(),
        );
        let (seeds, _) = job.batch(&job.train[..50], step, comm).unwrap();
        let sampled =
            sample(&mut sampler, seeds, &config.data.fanouts, step, &job.frontiers, comm).unwrap();
        let batch =
            load(&source, sampled, &Input::training(&config.model, step), true, false, comm)
                .unwrap();
        let side = batch.sampled.on_gpu.as_ref().unwrap().gpu.clone();
        assert!(matches!(batch.input_rows, InputRows::Gathered(_)));
        let taken = counts(&side).taken;
        assert!(taken > 8 * config.data.fanouts.len() as u64);
        hand_over(&batch, place.gpu()).unwrap();
        let before = counts(&side).freed;
        drop(batch);
        let of_the_batch = counts(&side).freed - before;
        drop(sampler);
        (taken, counts(&side).freed, of_the_batch)
    });
    for (taken, freed, of_the_batch) in frees {
        assert_eq!(of_the_batch, 0, "the stream that sampled frees nothing of the mini-batch");
        // The host frees its own memory; only the mini-batch's is missing.
        assert!(freed > 0 && freed < taken, "{freed} of {taken}");
    }
    assert!(counts(gpu).freed > 0);
}

/// Rows of a mapped file, for mini-batches that the host or the GPU has sampled.
#[test]
fn rows_that_the_host_gathers_ahead_come_on_a_stream_of_their_own() {
    let fixture = build(52, 400, 20, 2000, false);
    let config = config(ModelKind::Gcn, Parallelism::Single, 1);
    for topology in [TopologyStorage::Host, TopologyStorage::Device] {
        let options = Around { prefetch: 1, topology, ..Around::default() };
        let artifacts = Artifacts::open(&fixture.dataset, &config).unwrap();
        let (config, hooks) = &options.of(&config);
        let job = Job::new(&fixture.dataset, &artifacts, config, hooks).unwrap();
        let place = Place::emulated(2);
        let gpu = place.gpu().unwrap();
        let (places, room) = ([place.clone()], DeviceRoom::given(ENOUGH, 1));
        let topology = Topology::new(&job, &places, &room, &NoProgress).unwrap();
        let source = FeatureSource::new(&job.features, &place);
        let mut sampler = topology.sampler(&job, &place, 0).unwrap();
        let step = Step { seed: 3, epoch: 1, step: 0 };
        let (seeds, _) = job.batch(&job.train, step, &Solo).unwrap();
        let sampled =
            sample(&mut sampler, seeds, &config.data.fanouts, step, &job.frontiers, &Solo).unwrap();
        let input = Input::training(&config.model, step);
        let vertices = sampled.input.on_host().unwrap().to_vec();
        assert!(
            vertices.len() * job.features.dim() * 4 > 2 << 20,
            "more than is staged without a wait"
        );
        let expected = to_rows(
            &FeatureSource::new(&job.features, &Place::host()).rows(&vertices, &input, 0).unwrap(),
        );
        let before = counts(gpu);
        let batch = load(&source, sampled, &input, true, false, &Solo).unwrap();
        hand_over(&batch, place.gpu()).unwrap();
        assert_eq!(counts(gpu), before, "the stream that computes does nothing for it");
        let InputRows::Gathered(rows) = batch.input_rows else {
            panic!("they were not brought ahead")
        };
        let rows = rows.tensor(place.device(), job.features.dim()).unwrap();
        assert_eq!(to_rows(&rows).unwrap(), expected.unwrap());
    }
}

#[test]
fn where_the_graph_is_sampled_from_changes_no_loss() {
    let fixture = dataset(49, 120, 5);
    store_partition(&fixture.dataset, Cut::Random, 2);
    let linked = communities(80, 4);
    store_partition(&linked.dataset, Cut::Random, 2);
    for (order, (kind, parallelism, ranks, task, norm)) in (0..).zip([
        (ModelKind::Gcn, Parallelism::Split, 2, TaskKind::Node, NormKind::None),
        (ModelKind::Gin, Parallelism::Data, 2, TaskKind::Node, NormKind::Batch),
        (ModelKind::Gatv2, Parallelism::Single, 1, TaskKind::Node, NormKind::None),
        (ModelKind::Sage, Parallelism::Split, 2, TaskKind::Link, NormKind::None),
        (ModelKind::Gcn, Parallelism::Data, 2, TaskKind::Link, NormKind::None),
    ]) {
        let config = changed(&config(kind, parallelism, ranks), |config| {
            (config.data.task.kind, config.model.norm, config.data.batch_size) =
                (Some(task), Some(norm), 50);
            (config.run.epochs, config.run.eval_every, config.data.fanouts) =
                (1, 0, "4,all,2".parse().unwrap());
        });
        let fixture = if task == TaskKind::Link { &linked } else { &fixture };
        let run = |topology, prefetch| {
            let options =
                Around { topology, prefetch, places: emulated(order % 4), ..Around::default() };
            let summary = run(fixture, &config, &options).unwrap();
            assert_eq!(summary.topology, topology);
            let counts: Vec<_> = summary
                .epochs
                .iter()
                .map(|epoch| (epoch.work.edges, epoch.work.rows_loaded, epoch.work.rows_exchanged))
                .collect();
            (losses(&summary), counts)
        };
        let host = run(TopologyStorage::Host, 0);
        let of_split = (parallelism == Parallelism::Split).then_some((TopologyStorage::Part, 2));
        let everywhere = [
            (TopologyStorage::Device, 0),
            (TopologyStorage::Device, 3),
            (TopologyStorage::Pinned, 1),
        ];
        // Every second storage for one run, the others for the next.
        for (topology, prefetch) in
            everywhere.into_iter().chain(of_split).skip(order as usize % 2).step_by(2)
        {
            let what = format!("{kind:?}, {parallelism}, {task:?}, {topology:?}, {prefetch} ahead");
            assert_eq!(run(topology, prefetch), host, "{what}");
        }
    }
}

#[test]
fn the_graph_goes_where_there_is_room() {
    let fixture = dataset(50, 100, 4);
    let quick = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        (config.run.epochs, config.run.eval_every) = (1, 0);
    });
    let choose = |options: Around| {
        let notes = Notes::default();
        let summary = train(&fixture.dataset, &quick, &options, &notes, &|_| {})
            .map_err(|error| error.to_string());
        (summary.map(|summary| summary.topology), notes.lines().join("; "))
    };
    let device = Around { places: emulated(0), ..Around::default() };
    let (chosen, notes) = choose(device.clone());
    assert_eq!(chosen, Ok(TopologyStorage::Device));
    assert!(notes.contains("GPUs sample, from the graph in their memory"), "{notes}");
    let (chosen, _) = choose(Around { topology: TopologyStorage::Host, ..device });
    assert_eq!(chosen, Ok(TopologyStorage::Host));
    let (chosen, _) = choose(Around {
        topology: TopologyStorage::Part,
        ..Around { places: emulated(0), ..Around::default() }
    });
    let line = chosen.unwrap_err();
    assert!(
        line.contains("--topology part is for --parallelism split") && line.contains("auto"),
        "{line}"
    );
    for topology in [TopologyStorage::Device, TopologyStorage::Part, TopologyStorage::Pinned] {
        let (refused, _) = choose(Around { topology, ..Around::default() });
        let message = refused.unwrap_err();
        assert!(
            message.contains("is for --device cuda") && message.contains("--topology"),
            "{message}"
        );
    }
    assert_eq!(choose(Around::default()).0, Ok(TopologyStorage::Host));
}

#[test]
fn gpus_that_are_not_there_are_refused_with_what_to_do() {
    let fixture = dataset(46, 60, 3);
    let cuda = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        config.system.device = crate::Device::Cuda
    });
    let message = |config: &Config, gpus: Option<&str>| {
        let options = Around { gpus: gpus.map(|list| list.parse().unwrap()), ..Around::default() };
        run(&fixture, config, &options).unwrap_err().to_string()
    };
    let three = message(&cuda, Some("0,0,1"));
    assert!(three.contains("--gpus names 3") && three.contains("number of ranks is 2"), "{three}");
    let on_host = message(&config(ModelKind::Sage, Parallelism::Single, 1), Some("0"));
    assert!(on_host.contains("--gpus is for --device cuda"), "{on_host}");
    // Outside these two tests, a machine without a GPU gives an error with a remedy.
    let missing = message(&cuda, Some("4000,4001"));
    assert!(missing.contains("--device cpu") || missing.contains("GPU 4000"), "{missing}");
    assert!("0,x".parse::<crate::GpuList>().is_err());
}
