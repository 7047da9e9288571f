//! Splits of links that came with the dataset.

use gsplit_kernels::{Draws, Graph, Stream, StreamKey};
use gsplit_store::{ColumnFile, Dataset, LinkFile, LinkInfo, LinkNegatives, NoProgress, Split};

use super::fixture::{
    Fixture, add_community_features, assert_refused, changed, communities, on_graph,
};
use super::links::link_config;
use super::runs::{run, trained};
use crate::config::{Config, ModelKind, Parallelism, TaskConfig};
use crate::metric::{SharedNegatives, rank_of_positive, roc_auc};
use crate::task::LinkSplit;
use crate::tests::fixture::Around;
use crate::{InferConfig, infer};

/// Targets of each pair.
const WIDTH: usize = 7;

/// Communities of 400 vertices with a split of links, and with these negatives. One pair of train
/// is listed twice, another backwards, and one is not an edge if `lies`.
pub fn with_links(negatives: Option<LinkNegatives>, metric: &str, lies: bool) -> Fixture {
    let whole = communities(400, 6);
    let topology = whole.dataset.topology();
    let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
    let split = LinkSplit::new(&graph, TaskConfig::default().held_out(), None).unwrap();
    let kept = split.graph().unwrap();
    let mut train: Vec<u32> =
        split.train.iter().flat_map(|&edge| [split.ends(edge).0, split.ends(edge).1]).collect();
    train.swap(0, 1);
    train.extend_from_within(10..12);
    if lies {
        train.extend([0, 399]);
    }
    let edges = |v: u32| {
        kept.indices[kept.in_edges(v).start as usize..kept.in_edges(v).end as usize].to_vec()
    };
    let list =
        |pairs: &[(u32, u32)]| -> Vec<u32> { pairs.iter().flat_map(|&(u, v)| [u, v]).collect() };
    let [valid, test] = [list(&split.valid), list(&split.test)];
    on_graph(&Vec::from_iter((0..400).map(edges)), |writer| {
        add_community_features(writer);
        for file in LinkFile::all(negatives) {
            let positive = [&train, &valid, &test][file.split as usize];
            let mut draws = Draws::new(&StreamKey::new(3, Stream::Negatives), file.split as u32);
            let (width, vertices) = match (file.negative, negatives) {
                (false, _) => (2, positive.clone()),
                (true, Some(LinkNegatives::Targets)) => {
                    (WIDTH, (0..positive.len() / 2 * WIDTH).map(|_| draws.below(400)).collect())
                }
                (true, _) => (2, (0..600).map(|_| draws.below(400)).collect()),
            };
            let mut out = writer.link_writer(file, width).unwrap();
            out.push(&vertices).unwrap();
            writer.add_link_file(file, out).unwrap();
        }
        writer.add_links(LinkInfo { negatives, metric: metric.into() }).unwrap();
    })
}

/// Like [`link_config`], without the options of gsplit's own split.
fn own_config(parallelism: Parallelism, ranks: usize) -> Config {
    changed(&link_config(ModelKind::Sage, parallelism, ranks), |config| {
        config.data.task.eval_negatives = TaskConfig::default().eval_negatives;
    })
}

/// Scores of valid and test by the definitions in `ogb/linkproppred/evaluate.py` (see the metrics'
/// own tests), of rows whose dot products are the scores.
fn by_definition(dataset: &Dataset, rows: &[f32], metric: &str) -> [f64; 2] {
    let links = dataset.links().unwrap().unwrap();
    let row = |v: u32| &rows[v as usize * 8..][..8];
    let dot = |u: u32, v: u32| crate::model::dot(row(u), row(v));
    [Split::Valid, Split::Test].map(|split| {
        let pairs = links.pairs(split);
        let (negatives, width) = links.negatives(split).unwrap();
        let positive: Vec<f32> = pairs.iter().map(|&[u, v]| dot(u, v)).collect();
        if links.info().negatives == Some(LinkNegatives::Targets) {
            let rank = |i: usize| {
                let others: Vec<f32> =
                    negatives[i * width..][..width].iter().map(|&v| dot(pairs[i][0], v)).collect();
                rank_of_positive(positive[i], &others)
            };
            let points = (0..pairs.len()).map(|i| match metric {
                "mrr" => 1.0 / rank(i),
                _ => f64::from(u8::from(rank(i) <= 3.0)),
            });
            return points.sum::<f64>() / pairs.len() as f64;
        }
        let others: Vec<f32> = negatives.chunks(2).map(|pair| dot(pair[0], pair[1])).collect();
        if metric == "roc-auc" {
            let all = positive
                .iter()
                .map(|&score| (score, true))
                .chain(others.iter().map(|&score| (score, false)));
            return roc_auc(&mut all.collect::<Vec<_>>()).unwrap();
        }
        SharedNegatives::new(others)
            .hits(metric.strip_prefix("hits@").unwrap().parse().unwrap(), &positive)
    })
}

#[test]
fn oracle_own_splits_are_scored_as_ogb_defines() {
    for (negatives, of_dataset, asked) in [
        (LinkNegatives::Pairs, "hits@50", None),
        (LinkNegatives::Pairs, "hits@50", Some("hits@20")),
        (LinkNegatives::Pairs, "roc-auc", None),
        (LinkNegatives::Targets, "mrr", None),
        (LinkNegatives::Targets, "mrr", Some("hits@3")),
    ] {
        let fixture = with_links(Some(negatives), of_dataset, false);
        let config = changed(&own_config(Parallelism::Data, 2), |config| {
            (config.run.epochs, config.data.batch_size, config.run.optimizer.lr) = (2, 100, 0.02);
            config.data.task.metric = asked.map(|metric| metric.parse().unwrap());
        });
        let out = fixture.folder.path().join("rows.npy");
        let (checkpoint, summary) = trained(&fixture, &config);
        let metric = asked.unwrap_or(of_dataset);
        assert_eq!(summary.metric.to_string(), metric);
        let last = checkpoint.join("epoch-00002");
        let config = InferConfig {
            checkpoint: last,
            embeddings: Some(out.clone()),
            ..InferConfig::default()
        };
        infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress).unwrap();
        let rows = ColumnFile::open(&out).unwrap();
        let expected = by_definition(&fixture.dataset, rows.as_slice().unwrap(), metric);
        let found = [summary.epochs[1].valid.unwrap(), summary.epochs[1].test.unwrap()];
        assert!(
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9)
        );
        assert!(found.iter().all(|&score| score > 0.0), "{metric}: {found:?}");
    }
}

#[test]
fn own_pairs_are_learnt_in_their_order() {
    let fixture = with_links(Some(LinkNegatives::Pairs), "hits@50", false);
    let dataset = &fixture.dataset;
    let links = dataset.links().unwrap().unwrap();
    let split = LinkSplit::given(links.clone(), dataset.topology()).unwrap();
    let trained: Vec<[u32; 2]> =
        split.train.iter().map(|&edge| [split.ends(edge).0, split.ends(edge).1]).collect();
    let pairs = links.pairs(Split::Train);
    assert_eq!(trained.len(), pairs.len());
    assert!(
        trained
            .iter()
            .zip(pairs)
            .all(|(found, pair)| found == pair || *found == [pair[1], pair[0]])
    );
}

#[test]
fn options_against_an_own_split_are_refused() {
    let refused = |fixture: &Fixture, change: &dyn Fn(&mut TaskConfig), words: &str| {
        let config =
            changed(&own_config(Parallelism::Single, 1), |config| change(&mut config.data.task));
        assert_refused(run(fixture, &config, &Around::default()), words);
    };
    let pairs = with_links(Some(LinkNegatives::Pairs), "hits@50", false);
    refused(
        &pairs,
        &|task| task.valid_edges = 0.1,
        "--valid-edges: the dataset has a split of links of its own",
    );
    refused(&pairs, &|task| task.test_edges = 0.2, "--test-edges: ");
    refused(&pairs, &|task| task.edge_seed = 1, "--edge-seed: ");
    refused(&pairs, &|task| task.eval_negatives = 7, "--eval-negatives: ");
    refused(&pairs, &|task| task.metric = Some("accuracy".parse().unwrap()), "choose mrr");
    let targets = with_links(Some(LinkNegatives::Targets), "mrr", false);
    refused(&targets, &|task| task.metric = Some("roc-auc".parse().unwrap()), "negative pairs");
    refused(
        &with_links(None, "mrr", true),
        &|_| {},
        "has the link 0 → 399, which is not an edge of the graph",
    );
    // Without negatives they are drawn by these options.
    let none = with_links(None, "mrr", false);
    let config =
        changed(&own_config(Parallelism::Single, 1), |config| config.data.task.eval_negatives = 20);
    let summary = run(&none, &config, &Around::default()).unwrap();
    assert!(summary.epochs[0].test.is_some());
}
