//! Mini-batches that are made once, server by server: with all hops they train the full graph, and
//! their exchanges stay within a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gsplit_kernels::{Fanout, Route, Solo};
use gsplit_sample::{Frontiers, Ownership};
use gsplit_store::{NoProgress, Progress, Split, Stage, Unit};

use super::fixture::{
    Cut, Fixture, assert_refused, changed, config, dataset, store_on_servers, store_partition,
};
use super::runs::run;
use crate::config::{Config, ModelKind, NormKind, Parallelism};
use crate::operator::Place;
use crate::ranks::traffic::Phase;
use crate::report::EpochReport;
use crate::sample::sample_all;
use crate::tests::fixture::{Around, train};

/// `ranks` on `servers`, which read `hops` beyond their own vertices with fanout `all`.
fn cooperative(
    fixture: &Fixture,
    model: ModelKind,
    (ranks, servers): (usize, usize),
    hops: usize,
) -> Config {
    let key = store_on_servers(&fixture.dataset, Cut::Random, ranks, servers);
    changed(&config(model, Parallelism::Cooperative, ranks), |config| {
        (config.system.groups, config.system.partition) = (servers, Some(key));
        if servers > 1 {
            config.system.cooperative.expansion_hops = Some(hops);
            config.system.cooperative.expansion_fanout = Some(Fanout::All);
        }
    })
}

/// One rank that trains the full graph, by mini-batches of all training vertices with all in-edges.
fn full_graph(fixture: &Fixture, base: &Config) -> Vec<EpochReport> {
    let seeds = fixture.dataset.split(Split::Train).unwrap().len();
    let single = changed(base, |config| {
        (config.system.parallelism, config.system.ranks, config.system.groups) =
            (Parallelism::Single, Some(1), 1);
        (config.system.partition, config.system.cooperative, config.data.batch_size) =
            (None, Default::default(), seeds);
        config.data.fanouts = vec!["all"; config.model.layers].join(",").parse().unwrap();
    });
    run(fixture, &single, &Around::default()).unwrap().epochs
}

#[test]
fn oracle_one_mini_batch_with_all_hops_is_the_full_graph() {
    let fixture = dataset(71, 240, 5);
    let models = [
        (ModelKind::Sage, None, 3),
        (ModelKind::Gcn, Some(NormKind::Batch), 3),
        (ModelKind::Gat, None, 2),
        (ModelKind::Resgcn, Some(NormKind::Batch), 6),
    ];
    for (model, norm, layers) in models {
        for (ranks, servers) in [(1, 1), (3, 1), (4, 2), (6, 3)] {
            let config =
                changed(&cooperative(&fixture, model, (ranks, servers), layers), |config| {
                    (config.model.layers, config.model.norm, config.run.epochs) = (layers, norm, 2);
                    // Dropout is drawn by epoch, step, layer and vertex, which are the same here.
                    config.run.eval_every = 0;
                });
            let expected = full_graph(&fixture, &config);
            let found = run(&fixture, &config, &Around::default()).unwrap().epochs;
            for (found, expected) in found.iter().zip(&expected) {
                let what =
                    format!("{model:?} on {ranks} ranks, {servers} servers, epoch {}", found.epoch);
                // Rounded gradients give another step.
                let most = if found.epoch == 1 { 1e-5 } else { 1e-3 };
                assert!(
                    (found.loss - expected.loss).abs() <= most * expected.loss,
                    "{what}: {found:?}, {expected:?}"
                );
                let off = (found.gradient_norm - expected.gradient_norm).abs();
                assert!(off <= 10.0 * most * expected.gradient_norm, "{what}");
                if servers == 1 {
                    assert_eq!(
                        found.work.edges, expected.work.edges,
                        "{what}: nothing is computed twice"
                    );
                }
            }
        }
    }
}

#[test]
fn servers_of_one_rank_send_gradients_alone_and_fewer_hops_read_less() {
    let fixture = dataset(72, 300, 6);
    let mut rows = Vec::new();
    for hops in 0..=3 {
        let config = cooperative(&fixture, ModelKind::Sage, (3, 3), hops);
        let summary = run(&fixture, &config, &Around::default()).unwrap();
        let work = &summary.epochs[0].work;
        assert_eq!(work.sent.bytes(), work.sent.of(Phase::Update, Route::Memory).bytes);
        rows.push(work.rows_loaded);
    }
    assert!(rows.is_sorted() && rows[0] < rows[1] && rows[3] <= 3 * 300, "{rows:?}");
    // A fanout beyond the server samples its border, never edges within it.
    let few = changed(&cooperative(&fixture, ModelKind::Sage, (3, 3), 1), |config| {
        config.system.cooperative.expansion_fanout = Some(Fanout::Take(1));
    });
    let few = run(&fixture, &few, &Around::default()).unwrap().epochs[0].work.rows_loaded;
    assert!(rows[0] < few && few < rows[1], "{few} of {rows:?}");
}

#[test]
fn every_seed_is_in_one_of_the_mini_batches() {
    let fixture = dataset(73, 240, 5);
    let seeds = fixture.dataset.split(Split::Train).unwrap().len();
    let log = fixture.folder.path().join("steps.jsonl");
    for batches in [1, 3, 7] {
        let config = changed(&cooperative(&fixture, ModelKind::Sage, (4, 2), 2), |config| {
            (
                config.system.cooperative.batches_per_epoch,
                config.run.epochs,
                config.model.dropout,
            ) = (Some(batches), 2, 0.0);
            // The parameters do not move: the loss of an epoch is that of its mini-batches,
            // whatever their order.
            config.run.optimizer.lr = 1e-12;
        });
        let options = Around { log: Some(log.clone()), log_every: 1, ..Around::default() };
        let epochs = run(&fixture, &config, &options).unwrap().epochs;
        assert!((epochs[0].loss - epochs[1].loss).abs() < 1e-6, "{epochs:?}");
        let text = std::fs::read_to_string(&log).unwrap();
        let steps = text.lines().filter(|line| line.contains("\"step\"")).count();
        assert_eq!(steps, 2 * batches);
        let done = Counting::default();
        train(&fixture.dataset, &config, &Around::default(), &done, &|_| {}).unwrap();
        assert_eq!(done.0.load(Ordering::Relaxed), 2 * seeds as u64);
    }
}

/// Counts the seeds that were trained on.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Progress for Counting {
    fn stage(&self, name: &str, _: Option<u64>, _: Unit) -> Box<dyn Stage> {
        if name.starts_with("epoch") { Box::new(self.clone()) } else { Box::new(NoProgress) }
    }

    fn note(&self, _: &str) {}
}

impl Stage for Counting {
    fn advance(&self, seeds: u64) {
        self.0.fetch_add(seeds, Ordering::Relaxed);
    }
}

#[test]
fn layers_share_what_does_not_change() {
    let fixture = dataset(74, 120, 6);
    let topology = fixture.dataset.topology();
    let graph = gsplit_kernels::Graph::new(topology.indptr(), topology.indices()).unwrap();
    let part = vec![0u16; 120];
    let frontiers = Frontiers::all(Ownership::Map(&part), 56);
    let sampled = sample_all(graph, &Place::host(), vec![3, 5, 8], 56, &frontiers, &Solo).unwrap();
    assert_eq!(sampled.layers.len(), 56);
    let kept: std::collections::BTreeSet<_> =
        sampled.layers.iter().map(|layer| Arc::as_ptr(&layer.edges)).collect();
    assert!(kept.len() < 12, "{} of 56 layers", kept.len());
    assert_eq!(sampled.layers[55].read.len(), sampled.input.len());
    // Rows grow downwards, to all vertices that reach the seeds.
    assert!(sampled.layers.windows(2).all(|pair| pair[0].read.len() == pair[1].frontier.len()));
}

#[test]
fn what_does_not_fit_is_refused() {
    let fixture = dataset(76, 240, 5);
    store_partition(&fixture.dataset, Cut::Ranges, 4);
    let base = cooperative(&fixture, ModelKind::Sage, (4, 2), 1);
    let refused = |config: Config, words: &str| {
        assert_refused(run(&fixture, &config, &Around::default()), words)
    };
    let with = |change: &dyn Fn(&mut Config)| changed(&base, |config| change(config));
    refused(
        with(&|config| config.system.cooperative.batches_per_epoch = Some(0)),
        "--batches-per-epoch 0",
    );
    refused(
        with(&|config| config.system.cooperative.batches_per_epoch = Some(1000)),
        "--batches-per-epoch 1000: there are",
    );
    refused(with(&|config| config.system.groups = 1), "there is nothing beyond one server");
    refused(
        with(&|config| config.system.partition = Some("ranges-4".into())),
        "on 1 servers: 2 groups need 4, on 2 servers",
    );
    let elsewhere = with(&|config| (config.system.groups, config.system.partition) = (4, None));
    refused(elsewhere, "run `gsplit partition");
}
