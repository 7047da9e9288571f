//! Bytes and messages that ranks send to each other, against a count by hand.

use std::collections::{BTreeMap, BTreeSet};

use gsplit_kernels::schedule::{Step, epoch_seeds};
use gsplit_kernels::{Route, Sampler, Sent, Solo};
use gsplit_sample::{Frontiers, Ownership, Seeds};
use gsplit_store::Split;

use super::fixture::{Cut, changed, config, dataset, store_partition};
use super::runs::run;
use crate::config::{Config, ModelKind, Parallelism};
use crate::operator::Place;
use crate::ranks::traffic::{Phase, Traffic};
use crate::report::LayerRows;
use crate::sample::{BatchSampler, sample};
use crate::tests::fixture::Around;

const RANKS: usize = 3;

/// Traffic of `run` in its first epoch, the number of parameters, and the rows that crossed per
/// layer.
fn sent(fixture: &super::fixture::Fixture, config: &Config) -> (Traffic, u64, Vec<LayerRows>) {
    let summary = run(fixture, config, &Around::default()).unwrap();
    let work = summary.epochs[0].work.clone();
    assert_eq!(work.bytes_sent, work.sent.bytes());
    assert_eq!(work.rows_exchanged, work.exchanged.iter().map(|layer| layer.rows).sum::<u64>());
    (work.sent, summary.num_parameters as u64, work.exchanged)
}

fn add(sum: &mut Sent, bytes: u64, messages: u64) {
    *sum = *sum + Sent { bytes, messages };
}

/// Finds every row that crosses among the edges of the mini-batches that one rank draws.
#[test]
fn oracle_split_sends_what_crosses() {
    let fixture = dataset(61, 300, 6);
    for cut in [Cut::Random, Cut::Ranges] {
        let config = changed(&config(ModelKind::Sage, Parallelism::Split, RANKS), |config| {
            config.system.partition = Some(store_partition(&fixture.dataset, cut, RANKS));
            (config.run.epochs, config.run.eval_every, config.data.fanouts) =
                (1, 0, "4,3,6".parse().unwrap());
        });
        sends_what_crosses(&fixture, &config, &cut.assignment(300, RANKS));
    }
}

/// Checks the traffic of `config`.
fn sends_what_crosses(fixture: &super::fixture::Fixture, config: &Config, part: &[u16]) {
    let (found, parameters, exchanged) = sent(fixture, config);
    let topology = fixture.dataset.topology();
    let graph = gsplit_kernels::Graph::new(topology.indptr(), topology.indices()).unwrap();
    let train = fixture.dataset.split(Split::Train).unwrap();
    let order = epoch_seeds(&train, config.run.seed, 1).unwrap();
    let features = fixture.dataset.features().unwrap().dim() as u64;
    let [mut ids, mut rows, mut hidden, mut steps] =
        [Sent::default(), Sent::default(), Sent::default(), Sent::default()];
    let mut by_layer = [0; 3];
    let others = (RANKS * (RANKS - 1)) as u64;
    for (step, batch) in (0..).zip(order.chunks(config.data.batch_size)) {
        let seeds = Seeds::of(batch, Ownership::Mine, 0, 1);
        let step = Step { seed: config.run.seed, epoch: 1, step };
        let frontiers = Frontiers::all(Ownership::Mine, 3);
        let mut sampler = BatchSampler::on_host(Sampler::new(1), graph, &Place::host());
        let sampled =
            sample(&mut sampler, seeds, &config.data.fanouts, step, &frontiers, &Solo).unwrap();
        for (depth, layer) in sampled.layers.iter().enumerate() {
            let (edges, read) = (layer.edges.on_host().unwrap(), layer.read.on_host().unwrap());
            // By owner and reader, the distinct sources.
            let mut pairs: BTreeMap<(u16, u16), BTreeSet<u32>> = BTreeMap::new();
            for (i, &v) in layer.frontier.on_host().unwrap().iter().enumerate() {
                let reader = part[v as usize];
                for u in edges.sources()[edges.of(i)].iter().map(|&u| read[u as usize]) {
                    if part[u as usize] != reader {
                        pairs.entry((part[u as usize], reader)).or_default().insert(u);
                    }
                }
            }
            let crossing = pairs.values().map(|sources| sources.len() as u64).sum::<u64>();
            by_layer[depth] += crossing;
            let pairs = pairs.len() as u64;
            // Each rank sends each other one the number of ids, then the ids.
            add(&mut ids, 8 * others + 4 * crossing, others + pairs);
            match depth {
                2 => add(&mut rows, 4 * features * crossing, pairs),
                _ => add(&mut hidden, 4 * config.model.hidden as u64 * crossing, pairs),
            }
        }
        add(&mut steps, 4 * parameters * others, others);
    }
    assert!(rows.bytes > 0 && hidden.bytes > 0);
    let of = |phase| found.of(phase, Route::Memory);
    assert_eq!(of(Phase::Sample), ids);
    assert_eq!(of(Phase::Load), rows);
    assert_eq!(of(Phase::Forward), hidden);
    assert_eq!(of(Phase::Backward), hidden);
    assert_eq!(of(Phase::Update), steps);
    let all = [ids, rows, hidden, hidden, steps].iter().map(|sent| sent.bytes).sum::<u64>();
    assert_eq!(found.bytes(), all, "nothing else is sent, by no other route");
    assert_eq!(exchanged.iter().map(|layer| layer.rows).collect::<Vec<_>>(), by_layer);
    assert_eq!(exchanged.iter().map(|layer| layer.bytes).sum::<u64>(), rows.bytes + hidden.bytes);
}

/// Hybrid partitioning: ids and feature rows, each in one all-to-all per mini-batch; no topology
/// and no hidden layers.
#[test]
fn one_split_layer_sends_feature_rows_alone() {
    let fixture = dataset(62, 300, 6);
    let partition = Some(store_partition(&fixture.dataset, Cut::Lopsided, RANKS));
    let of = |split_layers| {
        let config = changed(&config(ModelKind::Sage, Parallelism::Split, RANKS), |config| {
            (config.system.partition, config.run.epochs, config.system.split_layers) =
                (partition.clone(), 1, Some(split_layers));
        });
        sent(&fixture, &config).0
    };
    let (one, none) = (of(1), of(0));
    let steps = (fixture.dataset.split(Split::Train).unwrap().len() as u64).div_ceil(50);
    let others = (RANKS * (RANKS - 1)) as u64;
    let [ids, rows] = [Phase::Sample, Phase::Load].map(|phase| one.of(phase, Route::Memory));
    // Counts go to every rank, ids and rows only to ranks that get some.
    assert!(
        ids.messages <= 2 * steps * others && ids.messages - steps * others == rows.messages,
        "{ids:?} {rows:?}"
    );
    assert!(rows.bytes > 0);
    for phase in [Phase::Forward, Phase::Backward] {
        assert_eq!(one.of(phase, Route::Memory), Sent::default(), "{phase:?}");
    }
    assert_eq!(
        none.bytes(),
        none.of(Phase::Update, Route::Memory).bytes,
        "owned seeds: only gradients"
    );
}

/// Push-pull parallelism: sends every rank's bottom layer to all others, sums of hidden width for
/// its targets back, and their gradients to all again; no feature rows.
#[test]
fn oracle_push_pull_sends_structure_and_sums() {
    let fixture = dataset(63, 300, 6);
    let config = changed(&config(ModelKind::Sage, Parallelism::PushPull, RANKS), |config| {
        (config.run.epochs, config.run.eval_every) = (1, 0);
    });
    let (found, parameters, _) = sent(&fixture, &config);
    let topology = fixture.dataset.topology();
    let graph = gsplit_kernels::Graph::new(topology.indptr(), topology.indices()).unwrap();
    let train = fixture.dataset.split(Split::Train).unwrap();
    let (mut pushed, mut sums, mut steps) = (0, 0, 0);
    for (step, batch) in
        (0..).zip(epoch_seeds(&train, config.run.seed, 1).unwrap().chunks(config.data.batch_size))
    {
        steps += 1;
        for rank in 0..RANKS {
            let seeds = Seeds::of(batch, Ownership::Mine, rank, RANKS);
            let step = Step { seed: config.run.seed, epoch: 1, step };
            let frontiers = Frontiers::all(Ownership::Mine, 3);
            let mut sampler = BatchSampler::on_host(Sampler::new(1), graph, &Place::host());
            let sampled =
                sample(&mut sampler, seeds, &config.data.fanouts, step, &frontiers, &Solo).unwrap();
            let (bottom, others) = (sampled.bottom(), RANKS as u64 - 1);
            let structure =
                3 + bottom.edges.num_targets() + 1 + bottom.edges.num_edges() + bottom.read.len();
            pushed += (8 + 4 * structure as u64) * others;
            sums += (4 * bottom.edges.num_targets() * config.model.hidden) as u64 * others;
        }
    }
    let bytes = |phase| found.of(phase, Route::Memory).bytes;
    let others = (RANKS * (RANKS - 1)) as u64;
    assert_eq!(bytes(Phase::Load), pushed);
    assert_eq!(bytes(Phase::Forward), sums);
    // The number of values is known from the structure.
    assert_eq!(bytes(Phase::Backward), sums);
    assert_eq!(bytes(Phase::Update), 4 * parameters * others * steps);
    assert_eq!(found.bytes(), bytes(Phase::Update) + 2 * sums + pushed);
}

#[test]
fn logs_hold_what_was_sent() {
    let mut traffic = Traffic::default();
    assert_eq!(serde_json::to_string(&traffic).unwrap(), "[]");
    let mut after = gsplit_kernels::SentByRoute::default();
    after[Route::Host as usize] = Sent { bytes: 1 << 60, messages: 3 };
    traffic.add(Phase::Update, Default::default(), after);
    let text = serde_json::to_string(&traffic).unwrap();
    assert_eq!(
        text,
        r#"[{"phase":"update","route":"host","bytes":1152921504606846976,"messages":3}]"#
    );
    assert_eq!(serde_json::from_str::<Traffic>(&text).unwrap(), traffic);
}
