//! Links from vertices of one kind to another: negatives, the popularity baseline, and
//! recommendations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, Int64Type};
use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Draws, Graph, Solo, Stream, StreamKey};
use gsplit_sample::Ownership;
use gsplit_store::{Dataset, FeatureDtype, KIND, NoProgress};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tch::Tensor;

use super::fixture::{Fixture, assert_refused, changed, dataset, on_graph};
use super::links::link_config;
use super::runs;
use crate::config::{ModelKind, Parallelism, ScorerKind, TaskConfig};
use crate::metric::rank_of_positive;
use crate::task::{LinkBatch, LinkSplit};
use crate::tests::fixture::{Around, train};
use crate::{ChosenEpoch, InferConfig, infer};

const USERS: u32 = 60;
const ITEMS: u32 = 15;

/// Users with the ids 1, 2 ... and items with the ids 1, 2 ... and 70, or both with the names
/// `1,x`, `2,x` ...; the first user is joined to all items, others to some, low ones more often.
pub fn ratings(seed: u64, both_ways: bool, named: bool) -> Fixture {
    generated_as(seed, both_ways, named, None)
}

/// Like [`ratings`], with features that count as generated.
fn generated_as(seed: u64, both_ways: bool, named: bool, generated: Option<&str>) -> Fixture {
    let n = USERS + ITEMS;
    let mut lists = vec![Vec::new(); n as usize];
    for user in 0..USERS {
        let mut draws = Draws::new(&StreamKey::new(seed, Stream::Generate), user);
        let drawn: BTreeSet<u32> =
            (0..5).map(|_| draws.below(ITEMS).min(draws.below(ITEMS))).collect();
        for item in if user == 0 { (0..ITEMS).collect() } else { drawn } {
            lists[(USERS + item) as usize].push(user);
            if both_ways {
                lists[user as usize].push(USERS + item);
            }
        }
    }
    on_graph(&lists, |writer| {
        let row = |v: u32| {
            let mut draws =
                Draws::new(&StreamKey { epoch: 1, ..StreamKey::new(seed, Stream::Generate) }, v);
            [(); 6].map(|()| draws.unit_f32() - 0.5)
        };
        let mut features = writer.feature_writer(FeatureDtype::F32, 6).unwrap();
        features.push_rows(&Vec::from_iter((0..n).flat_map(row))).unwrap();
        writer.add_features(features, generated.map(String::from)).unwrap();
        let mut column = writer.node_column_writer(KIND, "|u1", 1).unwrap();
        column.push(&Vec::from_iter((0..n).map(|v| u8::from(v >= USERS)))).unwrap();
        writer.add_node_column(KIND, column).unwrap();
        let ids: Vec<u64> = (0..n).map(id).collect();
        match named {
            false => writer.add_original_ids(&ids).unwrap(),
            true => {
                let mut names = writer.original_names_writer().unwrap();
                ids.iter().for_each(|id| names.push(&format!("{id},x")).unwrap());
                writer.add_original_names(names).unwrap();
            }
        }
    })
}

/// The original id of `v`.
fn id(v: u32) -> u64 {
    match v.checked_sub(USERS) {
        None => u64::from(v) + 1,
        Some(item) if item + 1 == ITEMS => 70,
        Some(item) => u64::from(item) + 1,
    }
}

fn graph(dataset: &Dataset) -> Graph<'_> {
    Graph::new(dataset.topology().indptr(), dataset.topology().indices()).unwrap()
}

fn links(graph: &Graph<'_>) -> BTreeSet<(u32, u32)> {
    let list = |v: u32| graph.in_edges(v).map(move |edge| (graph.indices[edge as usize], v));
    (0..graph.num_vertices() as u32).flat_map(list).collect()
}

fn some_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = since.subsec_nanos().into();
    println!("seed {seed}");
    seed
}

#[test]
fn negatives_of_training_are_of_the_targets_kind() {
    let seed = some_seed();
    for both_ways in [true, false] {
        let fixture = ratings(seed, both_ways, false);
        let task = TaskConfig::default();
        let kinds = fixture.dataset.kinds().unwrap();
        let split = LinkSplit::new(&graph(&fixture.dataset), task.held_out(), None)
            .unwrap()
            .of_kinds(kinds);
        let lists = [
            split.train.iter().map(|&edge| split.ends(edge)).collect(),
            split.valid.clone(),
            split.test.clone(),
        ];
        for list in &lists {
            assert!(
                list.iter().all(|&(u, v)| u < USERS && v >= USERS),
                "from users to items: {list:?}"
            );
        }
        let (step, batch) = (Step { seed, epoch: 1, step: 3 }, &split.train[..5]);
        let (seeds, pairs) =
            LinkBatch::new(&split, batch, 0..5, 40, step, Ownership::Mine, &Solo).unwrap();
        assert_eq!(pairs.num_pairs(), 5 * 41);
        let users: BTreeSet<u32> = batch.iter().map(|&edge| split.ends(edge).0).collect();
        let found: BTreeSet<u32> = seeds.local.iter().copied().filter(|&v| v < USERS).collect();
        assert_eq!(found, users, "no user was drawn");
        let items = seeds.local.iter().filter(|&&v| v >= USERS).count();
        assert_eq!(items, ITEMS as usize, "200 draws reach all items");
    }
}

#[test]
fn where_there_is_one_kind_negatives_are_drawn_as_ever() {
    let seed = some_seed();
    let fixture = dataset(seed, 300, 6);
    let split =
        LinkSplit::new(&graph(&fixture.dataset), TaskConfig::default().held_out(), None).unwrap();
    let split = split.of_kinds(fixture.dataset.kinds().unwrap());
    let (step, batch) = (Step { seed, epoch: 2, step: 1 }, &split.train[..20]);
    let (seeds, _) = LinkBatch::new(&split, batch, 0..20, 3, step, Ownership::Mine, &Solo).unwrap();
    let mut expected = BTreeSet::new();
    for &edge in batch {
        let mut draws = Draws::new(&step.key(Stream::Negatives, 0), edge);
        expected.extend([split.ends(edge).0, split.ends(edge).1]);
        expected.extend((0..3).map(|_| draws.below(300)));
    }
    assert_eq!(seeds.local.iter().copied().collect::<BTreeSet<u32>>(), expected);
}

/// The mean reciprocal rank and the hits among the first 3 of `edges` by the in-degree in `kept`,
/// one by one.
fn by_popularity(
    (whole, kept): (&Graph<'_>, &Graph<'_>),
    first: u32,
    task: &TaskConfig,
    edges: &[(u32, u32)],
) -> [f64; 2] {
    let (known, n) = (links(whole), whole.num_vertices() as u32);
    let mut sums = [0.0; 2];
    for &(source, target) in edges {
        let key = StreamKey {
            step: target,
            layer: 1,
            ..StreamKey::new(task.edge_seed, Stream::Negatives)
        };
        let mut draws = Draws::new(&key, source);
        let mut draw = || first + draws.below(n - first);
        let drawn = |_| {
            let mut v = draw();
            for _ in 1..16 {
                let is_known =
                    v == source || known.contains(&(source, v)) || known.contains(&(v, source));
                if !is_known {
                    break;
                }
                v = draw();
            }
            kept.in_edges(v).count() as f32
        };
        let others: Vec<f32> = (0..task.eval_negatives).map(drawn).collect();
        let rank = rank_of_positive(kept.in_edges(target).count() as f32, &others);
        sums[0] += 1.0 / rank;
        sums[1] += if rank <= 3.0 { 1.0 } else { 0.0 };
    }
    sums.map(|sum| sum / edges.len() as f64)
}

#[test]
fn oracle_popularity_is_counted_one_by_one_among_the_same_negatives() {
    let seed = some_seed();
    let of_one_kind = dataset(seed, 300, 6);
    let of_two = [true, false].map(|both_ways| ratings(seed, both_ways, false));
    for (fixture, first) in [(&of_one_kind, 0), (&of_two[0], USERS), (&of_two[1], USERS)] {
        let dataset = &fixture.dataset;
        let base = changed(&link_config(ModelKind::Sage, Parallelism::Single, 1), |config| {
            (config.run.epochs, config.data.task.test_edges, config.data.task.eval_negatives) =
                (2, 0.2, 12);
        });
        let split = LinkSplit::new(&graph(dataset), base.data.task.held_out(), None).unwrap();
        let graphs = (&graph(dataset), &split.graph().unwrap());
        for (at, metric) in ["mrr", "hits@3"].into_iter().enumerate() {
            let config =
                changed(&base, |config| config.data.task.metric = Some(metric.parse().unwrap()));
            let summary =
                train(dataset, &config, &Around::default(), &NoProgress, &|_| {}).unwrap();
            let baseline = summary.baseline.unwrap();
            assert_eq!(baseline.name, "popularity");
            for (found, edges) in [(baseline.valid, &split.valid), (baseline.test, &split.test)] {
                let expected = by_popularity(graphs, first, &base.data.task, edges)[at];
                assert!(
                    (found.unwrap() - expected).abs() < 1e-9,
                    "{metric}: {found:?}, expected {expected}"
                );
            }
        }
        let never = changed(&base, |config| config.run.eval_every = 0);
        let summary = train(dataset, &never, &Around::default(), &NoProgress, &|_| {}).unwrap();
        assert_eq!(
            summary.baseline.is_some(),
            summary.epochs[1].valid.is_some(),
            "beside scores alone"
        );
    }
}

#[test]
fn features_that_tell_and_edges_that_lead_one_way_are_noted() {
    for (generated, share, both_ways, noted) in [
        (None, 0.1, true, ""),
        (Some("random:6"), 0.1, true, ""),
        (Some("fastrp:6 without links 0.15"), 0.1, true, ""),
        (Some("fastrp:6"), 0.1, true, "--held-out-links 0.15 "),
        (Some("fastrp:6 without links 0.15"), 0.2, true, "--held-out-links 0.25 "),
        (None, 0.1, false, "convert with --symmetrise"),
    ] {
        let fixture = generated_as(3, both_ways, false, generated);
        let config = changed(&link_config(ModelKind::Sage, Parallelism::Single, 1), |config| {
            (config.run.epochs, config.data.task.test_edges) = (1, share);
        });
        let notes = gsplit_store::Notes::default();
        train(&fixture.dataset, &config, &Around::default(), &notes, &|_| {}).unwrap();
        let lines: Vec<String> =
            notes.lines().into_iter().filter(|line| line.contains("convert")).collect();
        assert_eq!(lines.len(), usize::from(!noted.is_empty()), "{lines:?}");
        assert!(lines.iter().all(|line| line.contains(noted)), "{lines:?}");
    }
}

/// A model of the links of `fixture`, trained for two epochs.
fn trained(fixture: &Fixture, scorer: ScorerKind) -> PathBuf {
    let config = changed(&link_config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.run.epochs, config.data.task.scorer, config.run.optimizer.lr) = (2, scorer, 0.02);
    });
    runs::trained(fixture, &config).0
}

/// Source, rank, target and score of each row.
type Rows = Vec<(String, i32, String, f32)>;

fn of_parquet(path: &Path, named: bool) -> Rows {
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap())
        .unwrap()
        .build()
        .unwrap();
    let mut rows = Rows::new();
    for batch in reader {
        let batch = batch.unwrap();
        let names: Vec<String> =
            batch.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["source", "rank", "target", "score"]);
        let text = |column: usize, row: usize| match named {
            true => batch.column(column).as_string::<i32>().value(row).to_string(),
            false => batch.column(column).as_primitive::<Int64Type>().value(row).to_string(),
        };
        for row in 0..batch.num_rows() {
            let rank = batch.column(1).as_primitive::<Int32Type>().value(row);
            rows.push((
                text(0, row),
                rank,
                text(2, row),
                batch.column(3).as_primitive::<Float32Type>().value(row),
            ));
        }
    }
    rows
}

fn of_csv(path: &Path) -> Rows {
    let text = std::fs::read_to_string(path).unwrap().replace(",x\"", "").replace('"', "");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("source,rank,target,score"));
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[0].into(), fields[1].parse().unwrap(), fields[2].into(), fields[3].parse().unwrap())
    };
    lines.map(row).collect()
}

/// The score of two rows by the model in `checkpoint`, in f64.
fn by_hand(checkpoint: &Path, scorer: ScorerKind) -> impl Fn(&[f32], &[f32]) -> f64 {
    let file = checkpoint.join("epoch-00002/model.safetensors");
    let tensors: BTreeMap<String, Tensor> =
        Tensor::read_safetensors(file).unwrap().into_iter().collect();
    let values = move |name: &str| -> Vec<f64> {
        Vec::<f32>::try_from(tensors[name].flatten(0, -1))
            .unwrap()
            .into_iter()
            .map(f64::from)
            .collect()
    };
    move |u, v| {
        let products: Vec<f64> =
            u.iter().zip(v).map(|(u, v)| f64::from(*u) * f64::from(*v)).collect();
        if scorer == ScorerKind::Dot {
            return products.iter().sum();
        }
        let (weight, bias, last) =
            (values("scorer.hidden_weight"), values("scorer.hidden_bias"), values("scorer.weight"));
        let hidden = |j: usize| -> f64 {
            products.iter().enumerate().map(|(i, x)| x * weight[i * bias.len() + j]).sum()
        };
        (0..bias.len()).map(|j| (hidden(j) + bias[j]).max(0.0) * last[j]).sum::<f64>()
            + values("scorer.bias")[0]
    }
}

#[test]
fn oracle_recommendations_are_the_best_unknown_targets() {
    let seed = some_seed();
    let two = [(ratings(seed, true, false), false), (ratings(seed, false, true), true)];
    let one = (dataset(seed, 90, 4), false);
    for ((fixture, named), scorer) in [
        (&two[0], ScorerKind::Dot),
        (&two[0], ScorerKind::Mlp),
        (&two[1], ScorerKind::Dot),
        (&one, ScorerKind::Mlp),
    ] {
        let folder = fixture.folder.path();
        let kinds = fixture.dataset.kinds().unwrap();
        let checkpoint = trained(fixture, scorer);
        let to = |name: &str| Some(folder.join(name));
        let base = InferConfig {
            checkpoint: checkpoint.clone(),
            force: true,
            epoch: Some(ChosenEpoch::Last),
            ..InferConfig::default()
        };
        let infer = |config: &InferConfig| {
            infer(&fixture.dataset, config, 1 << 30, None, &NoProgress).unwrap()
        };
        let top = |top, with_known, name: &str| {
            let config = InferConfig { top: Some(top), with_known, out: to(name), ..base.clone() };
            infer(&config).recommendations.unwrap()
        };
        infer(&InferConfig { embeddings: to("e.npy"), ..base.clone() });
        let file = gsplit_store::ColumnFile::open(folder.join("e.npy")).unwrap();
        let rows = file.as_slice::<f32>().unwrap();
        let row = |v: u32| &rows[v as usize * file.width()..][..file.width()];
        let known = links(&graph(&fixture.dataset));
        let score = by_hand(&checkpoint, scorer);
        let shown = |v: u32| match (kinds.are_two(), *named) {
            (false, _) => v.to_string(),
            (true, false) => id(v).to_string(),
            (true, true) => format!("{},x", id(v)),
        };
        for (k, with_known, name) in
            [(4, false, "r.parquet"), (4, true, "k.parquet"), (1000, false, "all.parquet")]
        {
            let counts = top(k, with_known, name);
            let found = of_parquet(&folder.join(name), *named);
            let mut of: BTreeMap<String, Vec<(i32, String, f32)>> = BTreeMap::new();
            found
                .into_iter()
                .for_each(|(u, rank, v, score)| of.entry(u).or_default().push((rank, v, score)));
            let (mut written, mut without) = (0, 0);
            for u in kinds.sources() {
                let is_known = |v: u32| known.contains(&(u, v)) || known.contains(&(v, u));
                let candidates =
                    kinds.targets().filter(|&v| v != u && (with_known || !is_known(v)));
                let mut expected: Vec<(f64, String)> =
                    candidates.map(|v| (score(row(u), row(v)), shown(v))).collect();
                let of_name: BTreeMap<String, f64> =
                    expected.iter().map(|(s, v)| (v.clone(), *s)).collect();
                expected.sort_by(|a, b| b.0.total_cmp(&a.0));
                expected.truncate(k as usize);
                let best = of.remove(&shown(u)).unwrap_or_default();
                assert_eq!(best.len(), expected.len(), "{scorer:?} {name}: {}", shown(u));
                assert!(best.iter().map(|(rank, ..)| *rank).eq(1..=best.len() as i32));
                assert_eq!(
                    best.iter().map(|(_, v, _)| v).collect::<BTreeSet<_>>().len(),
                    best.len()
                );
                for ((_, v, score), (expected, _)) in best.iter().zip(&expected) {
                    let own = of_name
                        .get(v)
                        .unwrap_or_else(|| panic!("{v} is no candidate of {}", shown(u)));
                    assert!(
                        (f64::from(*score) - own).abs() < 1e-4,
                        "{scorer:?}: {score}, expected {own}"
                    );
                    assert!(
                        (f64::from(*score) - expected).abs() < 1e-4,
                        "{scorer:?}: {score}, expected {expected}"
                    );
                }
                written += best.len() as u64;
                without += u64::from(best.is_empty());
            }
            assert!(of.is_empty(), "{:?}", of.keys());
            assert_eq!(
                (counts.sources, counts.rows, counts.without),
                (kinds.sources().len() as u64, written, without)
            );
            assert_eq!(
                without > 0,
                kinds.are_two() && !with_known,
                "the first user knows all items"
            );
        }
        // Several threads and another format give the same; embeddings can be written too.
        top(4, false, "r.csv");
        let plain = |rows: Rows| -> Rows {
            rows.into_iter()
                .map(|(u, rank, v, s)| (u.replace(",x", ""), rank, v.replace(",x", ""), s))
                .collect()
        };
        assert_eq!(
            plain(of_csv(&folder.join("r.csv"))),
            plain(of_parquet(&folder.join("r.parquet"), *named))
        );
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let both = InferConfig {
            top: Some(4),
            out: to("again.parquet"),
            embeddings: to("again.npy"),
            ..base.clone()
        };
        pool.install(|| infer(&both));
        for (a, b) in
            [("again.parquet", "r.parquet"), ("again.npy", "e.npy"), ("again.ids.npy", "e.ids.npy")]
        {
            let [a, b] = [a, b].map(|name| std::fs::read(folder.join(name)));
            assert!(a.ok() == b.ok());
        }
    }
}

#[test]
fn sources_are_listed_by_their_original_ids() {
    let fixture = ratings(some_seed(), true, false);
    let folder = fixture.folder.path();
    let checkpoint = trained(&fixture, ScorerKind::Dot);
    let base = InferConfig {
        checkpoint,
        force: true,
        top: Some(2),
        out: Some(folder.join("r.csv")),
        sources: Some(folder.join("sources.txt")),
        ..InferConfig::default()
    };
    let listed = |text: &str, config: &InferConfig| {
        std::fs::write(folder.join("sources.txt"), text).unwrap();
        infer(&fixture.dataset, config, 1 << 30, None, &NoProgress)
            .map(|summary| summary.recommendations.unwrap())
    };
    // User 3, not item 3; each once, in the file's order; user 1 knows all items.
    let counts = listed("40\n3\r\n\n1\n40\n", &base).unwrap();
    let found = of_csv(&folder.join("r.csv"));
    assert_eq!((counts.sources, counts.without, counts.rows), (3, 1, found.len() as u64));
    assert_eq!(found.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), ["40", "40", "3", "3"]);
    let all = InferConfig { sources: None, out: Some(folder.join("all.csv")), ..base.clone() };
    infer(&fixture.dataset, &all, 1 << 30, None, &NoProgress).unwrap();
    let all = of_csv(&folder.join("all.csv"));
    assert!(found.iter().all(|row| all.contains(row)));

    let named = ratings(7, true, true);
    let path = folder.join("names.txt");
    std::fs::write(&path, "2,x\n3,y\n").unwrap();
    let config = InferConfig {
        checkpoint: trained(&named, ScorerKind::Dot),
        sources: Some(path.clone()),
        ..base.clone()
    };
    assert_refused(
        infer(&named.dataset, &config, 1 << 30, None, &NoProgress),
        "names.txt:2: `3,y` is not the id of a source",
    );

    let refused = |text: &str, change: &dyn Fn(&mut InferConfig), words: &str| {
        let mut config = base.clone();
        change(&mut config);
        assert_refused(listed(text, &config), words);
    };
    refused("3\n99\n", &|_| {}, "sources.txt:2: `99` is not the id of a source in the dataset");
    refused("3\n70\n", &|_| {}, ":2: `70` is not the id of a source");
    refused("\n", &|_| {}, "is empty");
    refused("3\n", &|config| config.out = Some(folder.join("r.npy")), "ends in .parquet or .csv");
    refused("3\n", &|config| config.out = None, "--out recommendations.parquet");
    refused("3\n", &|config| config.top = Some(0), "--top 0");
    refused("3\n", &|config| config.split = crate::Wanted::Test, "--sources FILE");
    refused(
        "3\n",
        &|config| config.predict = Some(crate::Predict::Logits),
        "no --split or --predict",
    );
    refused("3\n", &|config| config.sources = Some(folder.join("none.txt")), "none.txt");
}
