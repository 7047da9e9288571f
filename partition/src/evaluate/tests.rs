//! Counts against sets, expectations against the stored report, and the picture.

use std::collections::{BTreeMap, BTreeSet};

use gsplit_kernels::schedule::{Fanouts, Step, epoch_seeds};
use gsplit_kernels::{Draw, EdgeIds, Expansion, Fanout, Graph, SampledCsc, Sampler, StreamKey};
use gsplit_store::{Dataset, NoProgress, PartitionMap, Presample, Split};

use super::schedule::{Size, measure};
use super::split::{SplitCounts, SplitLayer};
use super::volume::{Counts, LayerCounts};
use super::*;
use crate::tests::{Fixture, communities, on_threads, options, random_graph, save};
use crate::{Error, Method, PartitionOptions, Weights, partition};

fn setting(fanouts: &str, batch_size: u64, batches: u32, seed: u64) -> Setting {
    Setting { fanouts: fanouts.parse().unwrap(), batch_size, batches, seed, draw_by: None }
}

fn graph(dataset: &Dataset) -> Graph<'_> {
    Graph::new(dataset.topology().indptr(), dataset.topology().indices()).unwrap()
}

/// A partition stored under its default key.
fn stored(
    dataset: &Dataset,
    presample: Option<&Presample>,
    (partitioner, weights): (Method, Option<Weights>),
    parts: u32,
) -> PartitionMap {
    let options = options(partitioner, weights, parts);
    let made = partition(dataset, presample, &options, &NoProgress).unwrap();
    save(dataset, &options.default_key(), presample, &options, &made)
}

/// Work of ranks, vertex by vertex, with sets: for each layer the frontier and its edges.
type Sets = Vec<(BTreeSet<u32>, Vec<(u32, u32)>)>;

fn sets(graph: &Graph<'_>, seeds: &[u32], fanouts: &Fanouts, step: Step) -> (Sets, BTreeSet<u32>) {
    let mut frontier: BTreeSet<u32> = seeds.iter().copied().collect();
    let mut layers = Vec::new();
    for (depth, fanout) in (0..).zip(fanouts.iter()) {
        let edges =
            edges_of(graph, &frontier, fanout.of_vertices().unwrap(), &step.layer_key(depth));
        let below = frontier.iter().copied().chain(edges.iter().map(|edge| edge.0)).collect();
        layers.push((std::mem::replace(&mut frontier, below), edges));
    }
    (layers, frontier)
}

fn edges_of(
    graph: &Graph<'_>,
    frontier: &BTreeSet<u32>,
    fanout: Fanout,
    key: &StreamKey,
) -> Vec<(u32, u32)> {
    let mut edges = Vec::new();
    for &v in frontier {
        let (mut sampler, mut sampled) = (Sampler::new(1), SampledCsc::default());
        sampler.start(&[v]);
        sampler.layer(graph, &Draw::new(fanout), key, EdgeIds::Keep, &mut sampled).unwrap();
        edges.extend(sampled.edges.iter().map(|&e| (graph.indices[e as usize], v)));
    }
    edges
}

fn most(owners: impl Iterator<Item = u16>) -> u64 {
    let mut counts = BTreeMap::new();
    owners.for_each(|owner| *counts.entry(owner).or_insert(0) += 1);
    counts.into_values().max().unwrap_or(0)
}

fn oracle_split(layers: &Sets, part: &[u16], layout: Layout) -> SplitCounts {
    let owner = |v: u32| part[v as usize];
    let of_layer = |(frontier, edges): &(BTreeSet<u32>, Vec<(u32, u32)>)| {
        let server = |v: u32| u32::from(owner(v)) * layout.servers() / layout.parts();
        SplitLayer {
            cross: edges.iter().filter(|(u, v)| owner(*u) != owner(*v)).count() as u64,
            cross_servers: edges.iter().filter(|(u, v)| server(*u) != server(*v)).count() as u64,
            max_edges: most(edges.iter().map(|edge| owner(edge.1))),
            max_vertices: most(frontier.iter().map(|&v| owner(v))),
        }
    };
    SplitCounts {
        layers: layers.iter().map(of_layer).collect(),
        max_vertices: most(layers.iter().flat_map(|layer| &layer.0).map(|&v| owner(v))),
    }
}

/// Every rank samples its share of the seeds on its own.
fn oracle_data(
    graph: &Graph<'_>,
    seeds: &[u32],
    ranks: usize,
    fanouts: &Fanouts,
    step: Step,
) -> Counts {
    let mut counts =
        Counts { layers: vec![LayerCounts::default(); fanouts.len()], ..Counts::default() };
    for rank in 0..ranks {
        let mine = &seeds[seeds.len() * rank / ranks..seeds.len() * (rank + 1) / ranks];
        let (layers, input) = sets(graph, mine, fanouts, step);
        counts.rows += input.len() as u64;
        counts.most_rows = counts.most_rows.max(input.len() as u64);
        counts.most_edges =
            counts.most_edges.max(layers.iter().map(|layer| layer.1.len() as u64).sum());
        for (sums, layer) in counts.layers.iter_mut().zip(&layers) {
            sums.vertices += layer.0.len() as u64;
            sums.edges += layer.1.len() as u64;
        }
    }
    counts
}

/// Every rank samples what its seeds need, and asks owners for the rows of split layers.
fn oracle_in_part(
    (graph, seeds, fanouts): (&Graph<'_>, &[u32], &Fanouts),
    (part, layout, split_layers): (&[u16], Layout, usize),
    step: Step,
) -> Counts {
    let ranks = layout.parts();
    let server = |rank: u32| rank * layout.servers() / ranks;
    let is_own = |v: u32, rank: u32| u32::from(part[v as usize]) == rank;
    let own = |rank: u32| seeds.iter().copied().filter(|&v| is_own(v, rank)).collect();
    let mut frontiers = (0..ranks).map(own).collect::<Vec<BTreeSet<u32>>>();
    let (mut counts, mut edges_of_rank) = (Counts::default(), vec![0; ranks as usize]);
    for (depth, (key, fanout)) in step.layers(fanouts).enumerate() {
        let mut sums = LayerCounts::default();
        for (frontier, of_rank) in frontiers.iter_mut().zip(&mut edges_of_rank) {
            let edges = edges_of(graph, frontier, fanout.of_vertices().unwrap(), &key);
            sums.vertices += frontier.len() as u64;
            sums.edges += edges.len() as u64;
            *of_rank += edges.len() as u64;
            frontier.extend(edges.iter().map(|edge| edge.0));
        }
        if fanouts.len() - depth <= split_layers {
            let asked =
                (0..).zip(&frontiers).flat_map(|(rank, all)| all.iter().map(move |&v| (v, rank)));
            let asked: Vec<(u32, u32)> = asked.filter(|&(v, rank)| !is_own(v, rank)).collect();
            sums.exchanged += asked.len() as u64;
            let abroad = asked
                .iter()
                .filter(|&&(v, rank)| server(u32::from(part[v as usize])) != server(rank));
            sums.abroad += abroad.count() as u64;
            let needed: BTreeSet<u32> = frontiers.iter().flatten().copied().collect();
            let own = |rank| needed.iter().copied().filter(|&v| is_own(v, rank)).collect();
            frontiers = (0..ranks).map(own).collect();
        }
        counts.layers.push(sums);
    }
    counts.rows = frontiers.iter().map(|frontier| frontier.len() as u64).sum();
    counts.most_rows = frontiers.iter().map(|frontier| frontier.len() as u64).max().unwrap_or(0);
    counts.most_edges = edges_of_rank.into_iter().max().unwrap_or(0);
    counts
}

fn check_counts(fixture: &Fixture, setting: &Setting, parts: &[u32]) {
    let dataset = fixture.dataset();
    let (graph, n) = (graph(&dataset), dataset.num_vertices());
    let train = dataset.split(Split::Train).unwrap();
    let candidates: Vec<MeasuredMap<'_>> = parts
        .iter()
        .map(|&parts| {
            // The number of servers is the least prime factor: one part per server if the number of
            // parts is prime.
            let servers = (2..=parts).find(|&servers| parts % servers == 0).unwrap_or(1);
            let layout = Layout::new(parts, servers);
            MeasuredMap { key: None, layout, assignment: deal(n, 3, |i| (i % parts) as u16).into() }
        })
        .collect();
    let measured = measure(&graph, &train, setting, &candidates, &NoProgress).unwrap();
    assert_eq!(measured.records.len(), setting.batches as usize, "{}", fixture.name);
    let mut work: Vec<Vec<u64>> = parts.iter().map(|&parts| vec![0; parts as usize]).collect();
    let an_epoch = train.len().div_ceil(setting.batch_size as usize);
    for (i, record) in measured.records.iter().enumerate() {
        let what = format!("{}, {setting:?}, parts {parts:?}, mini-batch {i}", fixture.name);
        let (epoch, step) = ((i / an_epoch) as u32 + 1, i % an_epoch);
        let order = epoch_seeds(&train, setting.seed, epoch).unwrap();
        let seeds = order.chunks(setting.batch_size as usize).nth(step).unwrap();
        let step = Step { seed: setting.seed, epoch, step: step as u32 };
        let (layers, input) = sets(&graph, seeds, &setting.fanouts, step);
        let size = |layer: &(BTreeSet<u32>, Vec<_>)| Size {
            vertices: layer.0.len() as u64,
            edges: layer.1.len() as u64,
        };
        let sizes: Vec<Size> = layers.iter().map(size).collect();
        assert_eq!((record.seeds, &record.layers), (seeds.len() as u64, &sizes), "{what}");
        assert_eq!(record.input, input.len() as u64, "{what}");
        for (c, candidate) in candidates.iter().enumerate() {
            let split = oracle_split(&layers, &candidate.assignment, candidate.layout);
            assert_eq!(record.split[c], split, "{what}");
            let data = oracle_data(
                &graph,
                seeds,
                candidate.layout.parts() as usize,
                &setting.fanouts,
                step,
            );
            assert_eq!(record.data[c], data, "{what}");
            for (split_layers, found) in record.in_part[c].iter().enumerate() {
                let sharing = (&*candidate.assignment, candidate.layout, split_layers);
                let expected = oracle_in_part((&graph, seeds, &setting.fanouts), sharing, step);
                assert_eq!(*found, expected, "{what}, {split_layers} layers split");
            }
            for edge in layers.iter().flat_map(|layer| &layer.1) {
                work[c][candidate.assignment[edge.1 as usize] as usize] += 1;
            }
        }
    }
    assert_eq!(measured.work, work, "{}", fixture.name);
}

#[test]
fn oracle_counts_of_random_graphs() {
    for seed in 0..40 {
        let fixture = random_graph(seed);
        let fanouts = ["2", "3,2", "all,1", "4,all,3"][seed as usize % 4];
        check_counts(&fixture, &setting(fanouts, 1 + seed % 7, 5, seed), &[1, 2, 3, 7, 3]);
    }
}

/// More parts, and more ranks, than a word has bits; and more ranks than seeds.
#[test]
fn oracle_counts_of_many_parts() {
    let fixture = communities(6, 60);
    check_counts(&fixture, &setting("6,4,3", 100, 3, 1), &[64, 65, 130]);
    check_counts(&fixture, &setting("5,5", 7, 2, 2), &[130]);
}

/// Full-graph training on two servers of two ranks, layer by layer with sets.
#[test]
fn oracle_counts_of_the_full_graph() {
    for seed in 0..20 {
        let fixture = random_graph(seed);
        let dataset = fixture.dataset();
        let train = dataset.split(Split::Train).unwrap();
        let choice = PartitionOptions {
            servers: 2,
            ..options(Method::Multilevel, Some(Weights::Degree), 4)
        };
        let made = partition(&dataset, None, &choice, &NoProgress).unwrap();
        let map = save(&dataset, "servers", None, &choice, &made);
        let layers = 3;
        let of = Cooperative { batches: 1, groups: 1, layers, hops: 1, fanout: Fanout::All, seed };
        let found = cooperative(&dataset, &map, of).unwrap();
        let mut frontier: BTreeSet<u32> = train.iter().copied().collect();
        for layer in &found.layers {
            let edges =
                edges_of(&graph(&dataset), &frontier, Fanout::All, &Expansion::key(seed, 0));
            let part = |v: u32| made.assignment[v as usize];
            let read: BTreeSet<(u32, u16)> = edges.iter().map(|&(u, v)| (u, part(v))).collect();
            let crossing = read.iter().filter(|&&(u, reader)| part(u) != reader);
            let abroad = crossing.clone().filter(|&&(u, reader)| part(u) / 2 != reader / 2).count();
            let expected =
                [frontier.len(), edges.len(), crossing.count(), abroad].map(|count| count as f64);
            assert_eq!(
                [layer.vertices, layer.edges, layer.rows_exchanged, layer.rows_abroad],
                expected,
                "seed {seed}"
            );
            frontier.extend(edges.iter().map(|edge| edge.0));
        }
        assert_eq!(found.rows_loaded, frontier.len() as f64, "seed {seed}");
    }
}

#[test]
fn one_part_has_nothing_to_exchange_and_is_even() {
    let fixture = communities(4, 50);
    let dataset = fixture.dataset();
    let maps = [stored(&dataset, None, (Method::Random, None), 1)];
    let evaluation =
        evaluate(&dataset, &maps, None, &setting("5,5", 20, 8, 0), &NoProgress).unwrap();
    assert_eq!(evaluation.maps.len(), 2);
    for map in &evaluation.maps {
        for layer in map.layers.iter().chain([&map.all]) {
            assert_eq!((layer.cross_share, layer.rows_exchanged), (0.0, 0.0));
            assert_eq!((layer.edge_imbalance, layer.vertex_imbalance), (1.0, 1.0));
        }
        assert_eq!(map.input_imbalance, 1.0);
        for work in &map.split_layers {
            assert_eq!((work, work.rows_exchanged()), (&map.data, 0.0));
            assert_eq!((work.edge_imbalance, work.row_imbalance), (1.0, 1.0));
        }
        assert_eq!(map.split().rows_loaded, evaluation.batch.input_rows);
    }
}

/// DESIGN, invariant 8, on sampled edges.
#[test]
fn a_random_partition_crosses_k_minus_1_of_k_sampled_edges() {
    let fixture = communities(10, 300);
    let dataset = fixture.dataset();
    let maps = [2, 4, 8].map(|parts| stored(&dataset, None, (Method::Hash, None), parts));
    let evaluation =
        evaluate(&dataset, &maps, None, &setting("5,5", 100, 40, 0), &NoProgress).unwrap();
    let parts: Vec<u32> = evaluation.maps.iter().map(|map| map.parts).collect();
    assert_eq!(parts, [2, 4, 8, 2, 4, 8]);
    for map in &evaluation.maps {
        let expected = 1.0 - 1.0 / f64::from(map.parts);
        for layer in map.layers.iter().chain([&map.all]) {
            let share = layer.cross_share;
            assert!((share - expected).abs() < 0.02, "{:?}, {} parts: {share}", map.key, map.parts);
        }
        let (data, split) = (&map.data, map.split());
        assert!(data.rows_loaded > split.rows_loaded && data.edges() > split.edges());
    }
}

#[test]
fn the_random_column_is_the_random_partitioner() {
    let fixture = communities(4, 50);
    let dataset = fixture.dataset();
    let map = stored(&dataset, None, (Method::Random, None), 5);
    assert_eq!(map.assignment(), deal(dataset.num_vertices(), 0, |i| (i % 5) as u16));
    let evaluation =
        evaluate(&dataset, &[map], None, &setting("5", 10, 4, 0), &NoProgress).unwrap();
    let [stored, random] = &evaluation.maps[..] else { panic!("{evaluation:?}") };
    assert_eq!((stored.key.as_deref(), &random.key), (Some("random-k5"), &None));
    assert_eq!(MapEvaluation { key: None, ..stored.clone() }, *random);
}

#[test]
fn expectations_are_those_of_the_stored_report() {
    for fixture in [communities(6, 100), random_graph(5), random_graph(8)] {
        let (dataset, presample) = fixture.presampled();
        let choices = [(Method::Metis, Some(Weights::Presampled)), (Method::Hash, None)];
        let maps: Vec<PartitionMap> = choices
            .into_iter()
            .map(|choice| stored(&dataset, Some(&presample), choice, 2))
            .collect();
        let defaults =
            Options { batches: 6, fanouts: None, batch_size: None, seed: None, draw_by: None };
        let setting = defaults.setting(Some(&presample)).unwrap();
        assert_eq!(setting, self::setting("5,5", 10, 6, 1));
        let evaluation =
            evaluate(&dataset, &maps, Some(&presample), &setting, &NoProgress).unwrap();
        assert_eq!(evaluation.presample.as_deref(), Some("test"));
        for (map, found) in maps.iter().zip(&evaluation.maps) {
            let (report, found) = (&map.meta().report, found.expectation.as_ref().unwrap());
            assert_eq!(
                Some(found.expected_cross_edges),
                report.expected_cross_edges,
                "{}",
                fixture.name
            );
            assert_eq!(found.expected_cross_share, report.expected_cross_share, "{}", fixture.name);
            let balance = report.balance.work.unwrap();
            assert!((found.expected_work_balance - balance).abs() < 1e-12, "{}", fixture.name);
            let [share, all] = [found.measured_cross_edges, evaluation.batch.edges];
            assert!(
                (found.measured_cross_share - share / all.max(1.0)).abs() < 1e-9,
                "{}",
                fixture.name
            );
        }
        let other = self::setting("5,4", 10, 6, 1);
        let evaluation = evaluate(&dataset, &maps, Some(&presample), &other, &NoProgress).unwrap();
        assert!(
            evaluation.presample.is_none()
                && evaluation.maps.iter().all(|map| map.expectation.is_none())
        );
    }
}

#[test]
fn differential_one_thread_and_four_agree() {
    let fixture = communities(6, 100);
    let (dataset, presample) = fixture.presampled();
    let maps = [stored(&dataset, Some(&presample), (Method::Metis, None), 4)];
    let run = |threads| {
        let setting = setting("5,5", 10, 50, 9);
        on_threads(threads, || {
            evaluate(&dataset, &maps, Some(&presample), &setting, &NoProgress).unwrap()
        })
    };
    let (one, four) = (run(1), run(4));
    assert_eq!(one, four);
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&four).unwrap());
}

#[test]
fn bad_input_is_one_clear_line() {
    let fixture = communities(2, 20);
    let dataset = fixture.dataset();
    let wanted = Options {
        batches: 5,
        fanouts: Some("3".parse().unwrap()),
        batch_size: Some(4),
        seed: None,
        draw_by: None,
    };
    let cases = [
        (Options { fanouts: None, ..wanted.clone() }, "--fanouts"),
        (Options { batch_size: None, ..wanted.clone() }, "--batch-size: no presample"),
        (Options { batch_size: Some(0), ..wanted.clone() }, "at least 1"),
        (Options { batches: 0, ..wanted.clone() }, "--batches 0"),
        (Options { batches: u32::MAX, ..wanted.clone() }, "--batches 4294967295"),
    ];
    for (options, words) in cases {
        let error = options.setting(None).unwrap_err();
        assert!(matches!(error, Error::Option(_)) && error.to_string().contains(words), "{error}");
    }
    let setting = wanted.setting(None).unwrap();
    assert_eq!(setting.seed, 1);
    let zero = Setting { batch_size: 0, ..setting.clone() };
    assert!(evaluate(&dataset, &[], None, &zero, &NoProgress).is_err());
    let empty = Fixture::new("empty", 0, &[]);
    let error =
        evaluate(&empty.dataset(), &[], None, &setting, &NoProgress).unwrap_err().to_string();
    assert!(error.contains("training split is empty"), "{error}");
    let damaged = Fixture::raw("damaged", vec![0, 1, 2], vec![1, 7]);
    assert!(matches!(
        evaluate(&damaged.dataset(), &[], None, &setting, &NoProgress),
        Err(Error::Store(_))
    ));
}
