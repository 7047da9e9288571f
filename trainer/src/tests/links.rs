//! Link prediction: held-out edges, sampled edges, and equal results of every parallelism.

use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Graph, Sampler, Solo};
use gsplit_sample::{Frontiers, Ownership};
use gsplit_store::{Dataset, NoProgress};

use super::evaluation::with_job;
use super::fixture::{assert_refused, changed, communities, config, dataset};
use super::runs::{options, resumed, run, trained};
use crate::config::{Config, ModelKind, Parallelism, ScorerKind, TaskConfig, TaskKind};
use crate::evaluate::evaluate;
use crate::infer::Team;
use crate::model::Model;
use crate::operator::Place;
use crate::report::checkpoint::restore_parameters;
use crate::residence::source::FeatureSource;
use crate::sample::{BatchSampler, sample};
use crate::task::{LinkBatch, LinkSplit};
use crate::tests::fixture::Around;
use crate::{InferConfig, infer};

fn task() -> TaskConfig {
    TaskConfig {
        kind: Some(TaskKind::Link),
        negatives: 3,
        eval_negatives: 20,
        ..TaskConfig::default()
    }
}

pub fn link_config(model: ModelKind, parallelism: Parallelism, ranks: usize) -> Config {
    changed(&config(model, parallelism, ranks), |config| config.data.task = task())
}

fn whole(dataset: &Dataset) -> Graph<'_> {
    Graph::new(dataset.topology().indptr(), dataset.topology().indices()).unwrap()
}

/// Edges (source, target) with their multiplicity.
fn edges(graph: &Graph<'_>) -> BTreeMap<(u32, u32), usize> {
    let mut all = BTreeMap::new();
    for v in 0..graph.num_vertices() as u32 {
        let range = graph.in_edges(v);
        for &u in &graph.indices[range.start as usize..range.end as usize] {
            *all.entry((u, v)).or_insert(0) += 1;
        }
    }
    all
}

#[test]
fn links_whose_copy_does_not_fit_are_refused_before_it_is_made() {
    let fixture = dataset(41, 2000, 6);
    let graph = whole(&fixture.dataset);
    let split = LinkSplit::new(&graph, task().held_out(), None).unwrap();
    let ids = split.train.len() + 2 * (split.valid.len() + split.test.len());
    assert_eq!(
        LinkSplit::num_bytes(&graph, task().held_out(), None),
        split.copied_bytes() + 4 * ids as u64
    );
    let with = |memory: u64| {
        let config = link_config(ModelKind::Sage, Parallelism::Single, 1);
        let options = Around { memory: Some(memory), ..Around::default() };
        run(&fixture, &config, &options)
    };
    let line = with(1 << 20).unwrap_err().to_string();
    assert!(
        line.starts_with("--memory: 1 MiB are too few, the edges that links are learnt from take"),
        "{line}"
    );
    let least = line
        .split("pass --memory ")
        .nth(1)
        .and_then(|rest| rest.split("MiB or more").next())
        .unwrap();
    // Other tests of this process may allocate memory meanwhile.
    with((least.parse::<u64>().unwrap() + 4096) << 20).unwrap();
}

#[test]
fn held_out_edges_are_in_no_training_neighbourhood_and_nothing_else_is_lost() {
    let fixture = dataset(41, 2000, 6);
    let graph = whole(&fixture.dataset);
    let split = LinkSplit::new(&graph, task().held_out(), None).unwrap();
    let (all, kept) = (edges(&graph), edges(&split.graph().unwrap()));
    let (left, positions) = (split.graph().unwrap(), split.positions_in(&graph).unwrap());
    assert_eq!(positions.len(), left.num_edges());
    for v in 0..graph.num_vertices() as u32 {
        let edges = left.in_edges(v);
        let of_whole = &positions[edges.start as usize..edges.end as usize];
        assert!(
            of_whole.is_sorted() && of_whole.iter().all(|edge| graph.in_edges(v).contains(edge))
        );
        assert!(
            edges
                .zip(of_whole)
                .all(|(edge, &at)| left.indices[edge as usize] == graph.indices[at as usize])
        );
    }
    let held_out: BTreeSet<(u32, u32)> = split.valid.iter().chain(&split.test).copied().collect();
    assert_eq!(held_out.len(), split.valid.len() + split.test.len());
    for (&(u, v), count) in &all {
        let out = held_out.contains(&(u, v)) || held_out.contains(&(v, u));
        assert_eq!(kept.get(&(u, v)), (!out).then_some(count), "{u} → {v}");
        // One of both directions represents the pair.
        assert!(!(held_out.contains(&(u, v)) && held_out.contains(&(v, u))) || u == v);
    }
    let trained: Vec<(u32, u32)> = split.train.iter().map(|&edge| split.ends(edge)).collect();
    let pair = |&(u, v): &(u32, u32)| (u.min(v), u.max(v));
    let pairs: BTreeSet<_> = trained.iter().map(pair).collect();
    assert_eq!(pairs, kept.keys().filter(|(u, v)| u != v).map(pair).collect());
    assert_eq!(pairs.len(), trained.len(), "each pair once");
    let share = |edges: &[(u32, u32)]| edges.len() as f64 / (trained.len() + held_out.len()) as f64;
    assert!((share(&split.valid) - 0.05).abs() < 0.01 && (share(&split.test) - 0.1).abs() < 0.015);
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let again = pool.install(|| LinkSplit::new(&graph, task().held_out(), None).unwrap());
        assert_eq!(
            (&again.train, &again.valid, &again.test),
            (&split.train, &split.valid, &split.test)
        );
    }
    let other =
        LinkSplit::new(&graph, TaskConfig { edge_seed: 1, ..task() }.held_out(), None).unwrap();
    assert_ne!(other.test, split.test);
}

#[test]
fn the_edges_of_a_batch_are_not_sampled_for_it() {
    let fixture = communities(400, 5);
    let graph = whole(&fixture.dataset);
    let split = LinkSplit::new(&graph, task().held_out(), None).unwrap();
    let (graph, batch) = (split.graph().unwrap(), &split.train[100..140]);
    let step = Step { seed: 3, epoch: 1, step: 0 };
    let (seeds, _) =
        LinkBatch::new(&split, batch, 0..batch.len(), 3, step, Ownership::Mine, &Solo).unwrap();
    let fanouts = "all,all".parse().unwrap();
    let mut sampler = BatchSampler::on_host(Sampler::new(1), graph, &Place::host());
    let mine = Frontiers::all(Ownership::Mine, 2);
    let sampled = sample(&mut sampler, seeds, &fanouts, step, &mine, &Solo).unwrap();
    let asked: BTreeSet<(u32, u32)> = batch.iter().map(|&edge| split.ends(edge)).collect();
    let reverses =
        asked.iter().filter(|(u, v)| split.positions_between(*u, *v).count() > 1).count();
    assert!(reverses > 0 && sampled.num_edges() > 100);
    for layer in &sampled.layers {
        let (edges, read) = (layer.edges.on_host().unwrap(), layer.read.on_host().unwrap());
        for (i, &v) in layer.frontier.on_host().unwrap().iter().enumerate() {
            let sources = edges.sources()[edges.of(i)].iter();
            let sources: Vec<u32> = sources.map(|&position| read[position as usize]).collect();
            assert!(sources.iter().all(|&u| !asked.contains(&(u, v)) && !asked.contains(&(v, u))));
            // Everything else is in the graph.
            let lost = graph.in_edges(v).filter(|&e| {
                let u = graph.indices[e as usize];
                asked.contains(&(u, v)) || asked.contains(&(v, u))
            });
            assert_eq!(sources.len() as u64 + lost.count() as u64, graph.degree(v));
        }
    }
}

#[test]
fn links_of_communities_are_learnt_and_embedded() {
    let fixture = communities(600, 6);
    let config = changed(&link_config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (
            config.run.epochs,
            config.data.batch_size,
            config.model.dropout,
            config.run.optimizer.lr,
        ) = (10, 200, 0.0, 0.02);
        config.data.fanouts = "8,8,8".parse().unwrap();
    });
    let (checkpoint, summary) = trained(&fixture, &config);
    let (first, last) = (&summary.epochs[0], &summary.epochs[9]);
    // Random scores have a mean reciprocal rank of about 0.17 among 21.
    let better = last.loss < first.loss && last.test > first.test;
    assert!(better && last.test.unwrap() > 0.5 && last.valid.unwrap() > 0.5, "{first:?} {last:?}");
    let hits = changed(&config, |config| {
        (config.run.epochs, config.data.task.metric) = (1, Some("hits@20".parse().unwrap()))
    });
    let summary = run(&fixture, &hits, &Around::default()).unwrap();
    assert!(summary.epochs[0].test.unwrap() > 0.9, "the first 20 of 21: {summary:?}");

    let out = fixture.folder.path().join("rows.npy");
    let config =
        InferConfig { checkpoint, embeddings: Some(out.clone()), ..InferConfig::default() };
    infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress).unwrap();
    let rows = gsplit_store::ColumnFile::open(&out).unwrap();
    assert_eq!((rows.rows(), rows.width()), (600, 8));
    let config = InferConfig { out: Some(out), embeddings: None, ..config };
    assert_refused(infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress), "--embeddings");
}

#[test]
fn a_trained_scorer_is_kept_resumed_and_evaluated_with() {
    let fixture = communities(600, 6);
    let checkpoint = fixture.folder.path().join("checkpoints");
    let whole = changed(&link_config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (
            config.run.epochs,
            config.data.batch_size,
            config.model.dropout,
            config.run.optimizer.lr,
        ) = (10, 200, 0.1, 0.02);
        (config.data.fanouts, config.data.task.scorer) =
            ("8,8,8".parse().unwrap(), ScorerKind::Mlp);
    });
    let [straight, ..] =
        resumed(&fixture, &whole, &changed(&whole, |config| config.run.epochs = 4));
    let (first, last) = (&straight.epochs[0], &straight.epochs[9]);
    assert!(last.loss < first.loss && last.test.unwrap() > 0.5, "{first:?} {last:?}");
    let weights =
        tch::Tensor::read_safetensors(checkpoint.join("epoch-00010/model.safetensors")).unwrap();
    let shapes: BTreeMap<String, Vec<i64>> = weights
        .into_iter()
        .map(|(name, tensor)| (name, tensor.size()))
        .filter(|(name, _)| name.starts_with("scorer"))
        .collect();
    let expected = [
        ("bias", vec![1]),
        ("hidden_bias", vec![8]),
        ("hidden_weight", vec![8, 8]),
        ("weight", vec![8, 1]),
    ];
    assert_eq!(shapes, expected.map(|(name, shape)| (format!("scorer.{name}"), shape)).into());

    // The evaluation uses this ranking: turned round, it ranks last what came first.
    with_job(&fixture.dataset, &whole, |job| {
        let model = Model::new(&whole, job.features.dim(), job.outputs);
        restore_parameters(&checkpoint.join("epoch-00010/model.safetensors"), model.parameters())
            .unwrap();
        let source = FeatureSource::new(&job.features, model.place());
        let test = || {
            evaluate(Team::new(&model, Vec::new(), from_ref(&source)), job, &NoProgress)
                .unwrap()
                .scores[1]
                .1
                .unwrap()
        };
        assert_eq!(Some(test()), last.test);
        let (_, weight) =
            model.parameters().iter().find(|(name, _)| *name == "scorer.weight").unwrap();
        tch::no_grad(|| drop(weight.shallow_clone().neg_()));
        assert!(test() < 0.2, "{}", test());
    });

    let other = changed(&whole, |config| config.data.task.scorer = ScorerKind::Dot);
    assert_refused(run(&fixture, &other, &options(&fixture, true)), "--scorer is");
}

#[test]
fn link_options_that_make_no_sense_are_refused() {
    let fixture = dataset(44, 60, 4);
    let base = link_config(ModelKind::Sage, Parallelism::Single, 1);
    for (change, words) in [
        (
            &(|task: &mut TaskConfig| task.negatives = 0) as &dyn Fn(&mut TaskConfig),
            "--negatives 0",
        ),
        (&|task| task.eval_negatives = 1 << 20, "--eval-negatives 1048576"),
        (&|task| task.valid_edges = 0.95, "together below 1"),
        (&|task| task.test_edges = f64::NAN, "together below 1"),
        (&|task| task.metric = Some("accuracy".parse().unwrap()), "choose mrr"),
        (
            &|task| (task.kind, task.scorer) = (Some(TaskKind::Node), ScorerKind::Mlp),
            "--scorer is for links",
        ),
        (&|task| task.kind = None, "--negatives is for links"),
        (
            &|task| (task.kind, task.negatives, task.edge_seed) = (None, 1, 7),
            "--edge-seed is for links",
        ),
        (
            &|task| task.metric = Some("hits@21".parse().unwrap()),
            "--metric hits@21: always 1 among --eval-negatives",
        ),
        (
            &|task| (task.kind, task.metric) = (Some(TaskKind::Node), Some("mrr".parse().unwrap())),
            "--task link",
        ),
    ] {
        let config = changed(&base, |config| change(&mut config.data.task));
        assert_refused(run(&fixture, &config, &Around::default()), words);
    }
    let edgeless = dataset(45, 40, 0);
    assert_refused(run(&edgeless, &base, &Around::default()), "no edge is left to train on");
}
