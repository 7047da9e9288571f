//! Losses, gradients and inference of vertices of several types equal a computation by dense
//! matrices in f64, whatever the parallelism.

use std::collections::BTreeSet;

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::{
    Dataset, DatasetWriter, FeatureDtype, GraphTypes, NoProgress, Relation, Split, VertexType,
};
use tch::{Kind, Reduction, Tensor};

use super::equivalence::{distance, run};
use super::evaluation::{layer_rows, with_job};
use super::fixture::{
    CLASSES, Cut, Fixture, assert_refused, changed, config, dataset, provenance, store_partition,
};
use super::runs::{self, resumed, trained};
use crate::InferConfig;
use crate::config::{Config, ModelKind, OptimizerKind, Parallelism, TaskKind};
use crate::infer::{ChosenEpoch, Room, Team};
use crate::job::Job;
use crate::operator::Place;
use crate::residence::source::FeatureSource;
use crate::task::Task;

/// Numbers of vertices and widths of features of each type.
const TYPES: [(&str, u32, Option<usize>); 4] =
    [("author", 30, None), ("paper", 40, Some(5)), ("place", 4, Some(3)), ("topic", 7, None)];
/// Relations by the numbers of their types; nothing comes into `place`.
const RELATIONS: [(usize, &str, usize); 5] =
    [(1, "cites", 1), (0, "writes", 1), (2, "holds", 1), (1, "rev_writes", 0), (1, "has", 3)];
/// The place of `writes`, whose reverse is `rev_writes`.
const WRITES: usize = 1;
/// The first paper; papers have labels.
const PAPER: u32 = 30;

fn first(of: usize) -> u32 {
    TYPES[..of].iter().map(|(_, count, _)| count).sum()
}

/// Sources of each row of the vertices of type `of`.
fn lists(of: usize) -> Vec<Vec<u32>> {
    let key = StreamKey::new(7, Stream::Generate);
    let into: Vec<usize> =
        (0..RELATIONS.len()).filter(|&relation| RELATIONS[relation].2 == of).collect();
    let drawn = |v: u32, relation: usize| {
        let (source, _, target) = RELATIONS[relation];
        let mut draws = Draws::new(&StreamKey { epoch: relation as u32, ..key }, first(target) + v);
        let count = draws.below(5);
        let mut list: Vec<u32> =
            (0..count).map(|_| first(source) + draws.below(TYPES[source].1)).collect();
        list.sort_unstable();
        list.dedup();
        list
    };
    let list = |v: u32, relation: usize| match RELATIONS[relation].1 {
        "rev_writes" => {
            let wrote = |paper: &u32| drawn(*paper, WRITES).contains(&(first(of) + v));
            (0..TYPES[1].1).filter(wrote).map(|paper| first(1) + paper).collect()
        }
        _ => drawn(v, relation),
    };
    (0..TYPES[of].1).flat_map(|v| into.iter().map(move |&relation| list(v, relation))).collect()
}

fn features(of: usize, width: usize) -> Vec<f32> {
    let key = StreamKey { epoch: 99, ..StreamKey::new(7, Stream::Generate) };
    let row = |v| {
        let mut draws = Draws::new(&key, first(of) + v);
        (0..width).map(|_| draws.unit_f32() - 0.5).collect::<Vec<f32>>()
    };
    (0..TYPES[of].1).flat_map(row).collect()
}

fn graph() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = DatasetWriter::begin(&folder.path().join("typed"), false).unwrap();
    let rows: Vec<Vec<u32>> = (0..TYPES.len()).flat_map(lists).collect();
    let mut topology = writer.topology_writer().unwrap();
    let degrees: Vec<u64> = rows.iter().map(|row| row.len() as u64).collect();
    topology.push(&degrees, &rows.concat()).unwrap();
    let name = |of: usize| TYPES[of].0.to_string();
    let of = |&(name, count, _): &(&str, u32, Option<usize>)| VertexType {
        name: name.into(),
        count: count.into(),
        features: None,
    };
    let relation = |&(source, label, target): &(usize, &str, usize)| Relation {
        source: name(source),
        name: label.into(),
        target: name(target),
    };
    let types = GraphTypes {
        vertices: TYPES.iter().map(of).collect(),
        relations: RELATIONS.iter().map(relation).collect(),
    };
    writer.add_typed_topology(topology, types).unwrap();
    for (at, width) in TYPES.iter().enumerate().filter_map(|(at, of)| Some((at, of.2?))) {
        let mut rows = writer.feature_writer_of(at, FeatureDtype::F32, width).unwrap();
        rows.push_rows(&features(at, width)).unwrap();
        writer.add_features_of(at, rows).unwrap();
    }
    let all: u32 = TYPES.iter().map(|(_, count, _)| count).sum();
    writer.add_labels(&(0..all).map(label).collect::<Vec<_>>()).unwrap();
    writer.add_split(Split::Train, train_split()).unwrap();
    writer.add_split(Split::Valid, papers().filter(|v| v % 3 == 2).collect()).unwrap();
    Fixture { dataset: writer.finish(provenance()).unwrap(), folder }
}

fn papers() -> std::ops::Range<u32> {
    PAPER..first(2)
}

/// Class of a vertex; one paper has none.
fn label(v: u32) -> i32 {
    if papers().contains(&v) && v != PAPER + 5 { (v % CLASSES as u32) as i32 } else { -1 }
}

fn train_split() -> Vec<u32> {
    papers().filter(|v| v % 3 != 2).collect()
}

fn options(parallelism: Parallelism, ranks: usize) -> Config {
    options_of(ModelKind::Sage, parallelism, ranks)
}

fn options_of(kind: ModelKind, parallelism: Parallelism, ranks: usize) -> Config {
    changed(&config(kind, parallelism, ranks), |config| {
        (config.model.dropout, config.model.layers) = (0.0, 2);
        config.model.attention_dropout = 0.0;
        if kind == ModelKind::Gat {
            config.model.heads = 2;
        }
        config.data.fanouts = "all,all".parse().unwrap();
    })
}

/// The weighted sums of z = W h of all sources of a relation, given the dense matrix of its `mean`s
/// and z of all sources and targets. Vectors are `[heads, width]`.
fn attended(mean: &Tensor, z: [&Tensor; 2], vectors: [&Tensor; 2]) -> Tensor {
    let (heads, each) = vectors[0].size2().unwrap();
    let of_heads = z.map(|z| z.view([-1, heads, each]));
    let [source, target] =
        [0, 1].map(|end| (&of_heads[end] * vectors[end]).sum_dim_intlist(-1, false, Kind::Double));
    let scores = target.unsqueeze(1) + source.unsqueeze(0);
    let scores = scores.maximum(&(&scores * 0.2));
    let weights = scores.exp() * mean.gt(0.0).unsqueeze(-1);
    let weights = &weights / weights.sum_dim_intlist(1, true, Kind::Double).clamp_min(1e-300);
    Tensor::einsum("tsh,she->the", &[&weights, &of_heads[0]], None::<i64>).flatten(1, 2)
}

/// The mean over the sources of relation `relation`, as a dense matrix.
fn mean(relation: usize) -> Tensor {
    let (source, _, target) = RELATIONS[relation];
    let into: Vec<usize> = (0..RELATIONS.len()).filter(|&of| RELATIONS[of].2 == target).collect();
    let at = into.iter().position(|&of| of == relation).unwrap();
    let rows: Vec<Vec<u32>> = lists(target).into_iter().skip(at).step_by(into.len()).collect();
    let mut dense = vec![0f64; rows.len() * TYPES[source].1 as usize];
    for (row, sources) in dense.chunks_exact_mut(TYPES[source].1 as usize).zip(&rows) {
        sources.iter().for_each(|u| row[(u - first(source)) as usize] = 1.0 / sources.len() as f64);
    }
    Tensor::from_slice(&dense).view([TYPES[target].1.into(), TYPES[source].1.into()])
}

/// The logits of all papers, and the parameters, in f64: parameters with gradients, then the learnt
/// rows.
fn reference(job: &Job<'_>, kind: ModelKind) -> (Tensor, Vec<Tensor>) {
    let model = job.model(&Place::host());
    let doubled = |tensor: &Tensor| tensor.detach().to_kind(Kind::Double).set_requires_grad(true);
    let mut parameters: Vec<(String, Tensor)> = model
        .parameters()
        .iter()
        .map(|(name, tensor)| (name.to_string(), doubled(tensor)))
        .collect();
    let learnt = model.parameters().embeddings().unwrap().state(0).unwrap();
    parameters.extend(learnt.iter().map(|of| {
        let rows = Tensor::from_slice(&of.values).view(of.shape.map(|size| size as i64));
        (of.name.clone(), doubled(&rows))
    }));
    let named = |name: String| &parameters.iter().find(|(other, _)| *other == name).unwrap().1;
    let encoded = |(at, &(name, count, width)): (usize, &(&str, u32, Option<usize>))| match width {
        None => named(format!("embeddings.{name}")).shallow_clone(),
        Some(width) => {
            let rows = Tensor::from_slice(&features(at, width)).to_kind(Kind::Double);
            let rows = rows.view([i64::from(count), width as i64]);
            rows.matmul(named(format!("encoders.{name}.weight")))
                + named(format!("encoders.{name}.bias"))
        }
    };
    let mut rows: Vec<Tensor> = TYPES.iter().enumerate().map(encoded).collect();
    for layer in 0..2 {
        let of_type = |(at, &(name, ..)): (usize, &(&str, u32, Option<usize>))| {
            let own = named(format!("layers.{layer}.{name}.weight_self"));
            let mut sum = rows[at].matmul(own) + named(format!("layers.{layer}.{name}.bias"));
            for (relation, (source, label, target)) in RELATIONS.into_iter().enumerate() {
                if target == at {
                    let path = format!("{}/{label}/{name}", TYPES[source].0);
                    let of = |what| named(format!("layers.{layer}.{path}.{what}"));
                    let z = [source, target].map(|end| rows[end].matmul(of("weight")));
                    sum += match kind {
                        ModelKind::Gat => {
                            let vectors = [of("attention_source"), of("attention_target")];
                            attended(&mean(relation), z.each_ref(), vectors)
                        }
                        _ => mean(relation).matmul(&z[0]),
                    };
                }
            }
            match kind {
                _ if layer == 1 => sum,
                ModelKind::Gat => sum.elu(),
                _ => sum.relu(),
            }
        };
        let above: Vec<Tensor> = TYPES.iter().enumerate().map(of_type).collect();
        rows = above;
    }
    let logits = rows.swap_remove(1);
    (logits, parameters.into_iter().map(|(_, tensor)| tensor).collect())
}

#[test]
fn oracle_losses_gradients_and_rows_equal_dense_matrices_in_f64() {
    equal_dense_matrices(ModelKind::Sage);
}

#[test]
fn oracle_attention_within_relations_equals_dense_matrices_in_f64() {
    equal_dense_matrices(ModelKind::Gat);
}

#[test]
fn differential_attention_weights_are_dropped_alike_on_every_rank() {
    let fixture = graph();
    let loss = |parallelism, ranks| {
        let config = changed(&options_of(ModelKind::Gat, parallelism, ranks), |config| {
            config.model.attention_dropout = 0.5;
            if parallelism == Parallelism::Split {
                let map = store_partition(&fixture.dataset, Cut::Random, ranks);
                config.system.partition = Some(map);
            }
        });
        run(&fixture.dataset, &config, &train_split()).0
    };
    let single = loss(Parallelism::Single, 1);
    for found in [loss(Parallelism::Data, 2), loss(Parallelism::Split, 3)] {
        assert!((found - single).abs() < 1e-5 * single, "{found}, {single} on one rank");
    }
    let without = options_of(ModelKind::Gat, Parallelism::Single, 1);
    let without = run(&fixture.dataset, &without, &train_split()).0;
    assert!((without - single).abs() > 1e-3 * single, "{single} with dropout, {without} without");
}

fn equal_dense_matrices(kind: ModelKind) {
    let fixture = graph();
    let batch = train_split();
    let single = options_of(kind, Parallelism::Single, 1);
    let (loss, gradient) = with_job(&fixture.dataset, &single, |job| {
        let (logits, parameters) = reference(job, kind);
        let seeds: Vec<i64> = batch.iter().map(|&v| (v - PAPER).into()).collect();
        let class = |&v: &u32| if label(v) < 0 { -100 } else { i64::from(label(v)) };
        let labels: Vec<i64> = batch.iter().map(class).collect();
        let loss =
            logits.index_select(0, &Tensor::from_slice(&seeds)).cross_entropy_loss::<Tensor>(
                &Tensor::from_slice(&labels),
                None,
                Reduction::Mean,
                -100,
                0.0,
            );
        loss.backward();
        let gradient = parameters.iter().flat_map(|tensor| {
            let gradient = tensor.grad();
            let values = if gradient.defined() { gradient } else { tensor.zeros_like() };
            Vec::<f64>::try_from(values.flatten(0, -1)).unwrap()
        });
        let gradient: Vec<f32> = gradient.map(|value| value as f32).collect();
        // Inference over all vertices.
        let (model, source) =
            (job.model(&Place::host()), FeatureSource::new(&job.features, &Place::host()));
        let sources = [source];
        let team = Team::new(&model, Vec::new(), &sources);
        let rows = layer_rows(job, team, Room::UNLIMITED, None, 1).0.concat();
        let expected = Vec::<f64>::try_from(logits.flatten(0, -1)).unwrap();
        let expected: Vec<f32> = expected.into_iter().map(|value| value as f32).collect();
        let rows = &rows[PAPER as usize * CLASSES..][..expected.len()];
        assert!(distance(rows, &expected) < 1e-5);
        (loss.double_value(&[]), gradient)
    });
    for (parallelism, ranks) in [
        (Parallelism::Single, 1),
        (Parallelism::Data, 2),
        (Parallelism::Data, 3),
        (Parallelism::Split, 2),
        (Parallelism::Split, 3),
        (Parallelism::Split, 4),
    ] {
        for cut in Cut::ALL {
            let config = changed(&options_of(kind, parallelism, ranks), |config| {
                if parallelism == Parallelism::Split {
                    config.system.partition = Some(store_partition(&fixture.dataset, cut, ranks));
                }
            });
            let found = run(&fixture.dataset, &config, &batch);
            assert!(
                (found.0 - loss).abs() < 1e-6 * loss,
                "{kind:?} {parallelism:?} {ranks} {cut:?}"
            );
            assert_eq!(found.1.len(), gradient.len());
            let apart = distance(&found.1, &gradient);
            assert!(apart < 2e-5, "{kind:?} {parallelism:?} {ranks} {cut:?}: {apart}");
        }
    }
}

#[test]
fn papers_are_predicted_under_the_numbers_of_their_type() {
    let fixture = graph();
    let config = changed(&options(Parallelism::Single, 1), |config| {
        config.data.fanouts = "2,1".parse().unwrap();
    });
    let (checkpoint, summary) = trained(&fixture, &config);
    let out = fixture.folder.path().join("papers.csv");
    let infer = |dataset: &Dataset| {
        let options = InferConfig {
            checkpoint: checkpoint.clone(),
            out: Some(out.clone()),
            force: true,
            epoch: Some(ChosenEpoch::Last),
            ..InferConfig::default()
        };
        crate::infer(dataset, &options, 1 << 30, None, &NoProgress)
    };
    let found = infer(&fixture.dataset).unwrap();
    assert_eq!(found.scores[1], (Split::Valid, summary.epochs[1].valid));
    let written = std::fs::read_to_string(&out).unwrap();
    let id = |line: &str| line.split(',').next().unwrap().parse::<u32>().unwrap();
    let ids: Vec<u32> = written.lines().skip(1).map(id).collect();
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    assert_refused(infer(&dataset(3, 50, 3).dataset), "has other types of vertices");
}

#[test]
fn learnt_rows_and_their_moments_are_resumed() {
    for (optimizer, parallelism, ranks) in
        [(OptimizerKind::AdamW, Parallelism::Split, 3), (OptimizerKind::Sgd, Parallelism::Data, 2)]
    {
        let fixture = graph();
        let cut = store_partition(&fixture.dataset, Cut::Random, ranks);
        let whole = changed(&options(parallelism, ranks), |config| {
            config.data.fanouts = "2,1".parse().unwrap();
            (config.run.epochs, config.data.batch_size) = (3, 8);
            (config.run.optimizer.kind, config.run.optimizer.clip_norm) = (optimizer, Some(0.5));
            config.run.optimizer.weight_decay = 0.1;
            config.system.partition = (parallelism == Parallelism::Split).then_some(cut);
        });
        resumed(&fixture, &whole, &changed(&whole, |config| config.run.epochs = 1));
    }
}

#[test]
fn options_that_several_types_cannot_have_are_refused() {
    let fixture = graph();
    let refused = |config: &Config, words: &str| {
        assert_refused(runs::run(&fixture, config, &Default::default()), words);
    };
    let with = |change: fn(&mut Config)| changed(&options(Parallelism::Data, 2), change);
    refused(&with(|config| config.model.kind = ModelKind::Gin), "--model: ");
    refused(&with(|config| config.system.parallelism = Parallelism::PushPull), "--parallelism");
    let link = |relation: Option<&str>| {
        changed(&with(|config| config.data.task.kind = Some(TaskKind::Link)), |config| {
            config.data.task.relation = relation.map(str::to_string);
        })
    };
    refused(&link(None), "--relation: the dataset has several relations: choose one of ");
    refused(&link(Some("reads")), "--relation: `reads` is not one relation: choose one of ");
    let one = dataset(3, 50, 3);
    let refusal = runs::run(&one, &link(Some("writes")), &Default::default());
    assert_refused(refusal, "--relation: vertices have one type");
}

/// Learns links of `relation`, of which many are held out.
fn link_options(relation: &str, parallelism: Parallelism, ranks: usize) -> Config {
    changed(&options(parallelism, ranks), |config| {
        let task = &mut config.data.task;
        (task.kind, task.relation) = (Some(TaskKind::Link), Some(relation.into()));
        (task.valid_edges, task.test_edges, task.negatives) = (0.2, 0.2, 2);
    })
}

/// Held-out links are in no row, as edges or as reverses; all other edges stay.
#[test]
fn oracle_held_out_links_of_a_relation_are_in_no_row() {
    let fixture = graph();
    for (relation, place, reverse) in [("writes", WRITES, 3), ("paper/cites/paper", 0, 0)] {
        let config = link_options(relation, Parallelism::Single, 1);
        with_job(&fixture.dataset, &config, |job| {
            let Task::Links(split) = &job.task else { panic!("links") };
            let held_out: BTreeSet<_> = split.valid.iter().chain(&split.test).copied().collect();
            assert!(held_out.len() > 10 && split.train.len() > 20, "{relation}");
            let (graph, of_types) = (split.graph().unwrap(), RELATIONS.into_iter().enumerate());
            for (at, (source, name, target)) in of_types {
                let label = format!("{}/{name}/{}", TYPES[source].0, TYPES[target].0);
                let layout = graph.layout().unwrap();
                let of_layout = layout.relations().iter().position(|of| *of == label).unwrap();
                let into: Vec<_> = RELATIONS.iter().filter(|of| of.2 == target).collect();
                let rows = lists(target).into_iter();
                let row_of = into.iter().position(|of| of.1 == name).unwrap();
                for (v, mut list) in (first(target)..).zip(rows.skip(row_of).step_by(into.len())) {
                    list.retain(|&u| {
                        let is_link = at == place && held_out.contains(&(u, v));
                        let is_back = at == reverse && held_out.contains(&(v, u));
                        !is_link && !is_back
                    });
                    let row = layout.row(v, of_layout).unwrap() as usize;
                    let [from, to] = [row, row + 1].map(|row| graph.offsets()[row] as usize);
                    assert_eq!(graph.indices[from..to], list, "{relation}: {label} of {v}");
                    if at == place {
                        assert_eq!(split.degree(v), list.len());
                    }
                }
            }
            for &edge in &split.train {
                let (u, v) = split.ends(edge);
                assert!(split.kinds().targets().contains(&v) && split.is_known(&job.whole, u, v));
                assert!(split.positions_between(u, v).any(|position| position == u64::from(edge)));
                let back = split.positions_between(u, v).count() - 1;
                assert!(back == 1 || relation != "writes", "{u} → {v}");
            }
        });
    }
}

#[test]
fn differential_links_of_a_relation_are_learnt_alike_on_every_rank() {
    let fixture = graph();
    let batch: Vec<u32> = (0..20).collect();
    let found = |parallelism, ranks| {
        let config = changed(&link_options("writes", parallelism, ranks), |config| {
            if parallelism == Parallelism::Split {
                let map = store_partition(&fixture.dataset, Cut::Random, ranks);
                config.system.partition = Some(map);
            }
        });
        let train = with_job(&fixture.dataset, &config, |job| job.train.to_vec());
        run(
            &fixture.dataset,
            &config,
            &batch.iter().map(|&at| train[at as usize]).collect::<Vec<_>>(),
        )
    };
    let (loss, gradient) = found(Parallelism::Single, 1);
    for (parallelism, ranks) in [(Parallelism::Data, 2), (Parallelism::Split, 3)] {
        let other = found(parallelism, ranks);
        assert!((other.0 - loss).abs() < 1e-6 * loss, "{parallelism:?}: {} and {loss}", other.0);
        assert!(distance(&other.1, &gradient) < 2e-5, "{parallelism:?}");
    }
    let (checkpoint, summary) = trained(&fixture, &link_options("writes", Parallelism::Data, 2));
    assert!(summary.epochs[0].valid.is_some_and(|mrr| mrr > 0.0 && mrr <= 1.0));
    // Recommendations are pairs of an author and a paper that it has not written, by their numbers
    // within their types.
    let out = fixture.folder.path().join("papers.csv");
    let options = InferConfig { checkpoint, out: Some(out.clone()), ..InferConfig::default() };
    let infer =
        |options: &InferConfig| crate::infer(&fixture.dataset, options, 1 << 30, None, &NoProgress);
    assert_refused(infer(&options), "infer without --top");
    infer(&InferConfig { top: Some(3), ..options }).unwrap();
    let written = std::fs::read_to_string(&out).unwrap();
    let pairs = written.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        [cells[0], cells[2]].map(|id| id.parse::<u32>().unwrap())
    });
    let rows = lists(1);
    let pairs: Vec<[u32; 2]> = pairs.collect();
    assert_eq!(pairs.len(), 30 * 3);
    assert!(pairs.iter().all(|[author, paper]| {
        *author < 30 && !rows[*paper as usize * 3 + 1].contains(author)
    }));
}
