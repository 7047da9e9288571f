//! Datasets that lack an input of the task, and options that do not fit them or each other: one
//! line with a remedy.

use gsplit_store::{DatasetWriter, NoProgress, PartitionMap, Split};

use super::fixture::{
    Cut, Fixture, add_features, assert_refused, changed, config, dataset, on_graph,
    store_partition, without_valid,
};
use super::runs::{options, run, trained};
use crate::config::{
    Config, Device, JumpingKnowledge, ModelConfig, ModelKind, NormKind, Parallelism, ScheduleKind,
    TaskKind,
};
use crate::model::{Layer, LayerEdges, OwnLayer};
use crate::operator::{Finish, Rows, linear};
use crate::tests::fixture::Around;
use crate::{InferConfig, Wanted, infer};

/// A ring of 30 vertices, to which `add` adds arrays.
fn ring(add: impl FnOnce(&mut DatasetWriter)) -> Fixture {
    on_graph(&Vec::from_iter((0..30).map(|v| vec![(v + 1) % 30])), add)
}

fn with_features(writer: &mut DatasetWriter) {
    add_features(writer, 6, &[0.5; 30 * 6]);
}

#[test]
fn what_a_dataset_lacks_is_said_in_one_line() {
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let refused = |fixture: Fixture, words: &str| {
        assert_refused(run(&fixture, &config, &Around::default()), words);
    };
    let labels =
        |writer: &mut DatasetWriter, labels: [i32; 30]| writer.add_labels(&labels).unwrap();
    refused(ring(|_| {}), "has no features");
    refused(ring(with_features), "has no labels");
    let split = |of: &'static [u32], label: [i32; 30]| {
        ring(|writer| {
            with_features(writer);
            labels(writer, label);
            writer.add_split(Split::Train, of.to_vec()).unwrap();
        })
    };
    let mut half = [1; 30];
    half[..15].fill(-1);
    refused(ring(|writer| (with_features(writer), labels(writer, half)).0), "has no train split");
    refused(split(&[], half), "the train split is empty");
    refused(split(&[1, 2, 3], half), "no vertex of the train split has a label");
    refused(split(&[1, 2, 3], [-1; 30]), "no vertex has a label");
}

#[test]
fn a_batch_beyond_the_training_set_is_one_mini_batch() {
    let fixture = dataset(61, 90, 4);
    let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.data.batch_size, config.run.epochs) = (1000, 1);
    });
    let summary = run(&fixture, &config, &Around::default()).unwrap();
    let whole = changed(&config, |config| config.data.batch_size = 60);
    let same = run(&fixture, &whole, &Around::default()).unwrap();
    assert_eq!(summary.epochs[0].loss, same.epochs[0].loss);
}

#[test]
fn empty_splits_have_no_score_and_cannot_be_predicted() {
    let fixture = ring(|writer| {
        with_features(writer);
        writer.add_labels(&std::array::from_fn::<i32, 30, _>(|v| v as i32 % 3)).unwrap();
        writer.add_split(Split::Train, (0..20).collect()).unwrap();
        writer.add_split(Split::Valid, Vec::new()).unwrap();
        writer.add_split(Split::Test, (20..30).collect()).unwrap();
    });
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let (checkpoint, summary) = trained(&fixture, &config);
    assert!(summary.epochs[0].valid.is_none() && summary.epochs[0].test.is_some());
    let infers = |split| {
        let config =
            InferConfig { checkpoint: checkpoint.clone(), split, ..InferConfig::default() };
        infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress)
    };
    assert_eq!(infers(Wanted::All).unwrap().scores[1], (Split::Valid, None));
    let message = infers(Wanted::Valid).unwrap_err().to_string();
    assert!(message.contains("--split valid") && message.contains("is empty"), "{message}");
    // Links need no labels, and a ring has edges to hold out.
    let links = changed(&config, |config| {
        (config.data.task.kind, config.data.task.test_edges) = (Some(TaskKind::Link), 0.3)
    });
    let summary = run(&fixture, &links, &Around::default()).unwrap();
    assert!(summary.epochs[0].loss.is_finite() && summary.epochs[0].test.is_some());
}

#[test]
fn what_goes_by_the_valid_metric_needs_one() {
    let bare = without_valid();
    let base = config(ModelKind::Sage, Parallelism::Single, 1);
    let patient = changed(&base, |config| config.run.patience = Some(2));
    let plateau = changed(&base, |config| config.run.schedule.kind = ScheduleKind::Plateau);
    for (config, words) in
        [(patient, "--patience needs a valid"), (plateau, "--schedule plateau needs a valid")]
    {
        assert_refused(run(&bare, &config, &Around::default()), words);
    }
    let summary = run(&bare, &base, &Around::default()).unwrap();
    assert!(summary.best.is_none() && summary.epochs.len() == 2);
}

#[test]
fn what_does_not_fit_is_refused_with_a_remedy() {
    let fixture = dataset(25, 100, 4);
    let split = config(ModelKind::Sage, Parallelism::Split, 2);
    let named = changed(&split, |config| config.system.partition = Some("random-2".into()));
    let refused = |config: &Config, options: &Around, words: &str| {
        assert_refused(run(&fixture, config, options), words)
    };
    let none = Around::default();
    let with = |change: &dyn Fn(&mut Config)| changed(&named, |config| change(config));
    refused(&split, &none, " --parts 2`");
    store_partition(&fixture.dataset, Cut::Random, 2);
    store_partition(&fixture.dataset, Cut::Ranges, 2);
    refused(&split, &none, "choose a partition with --partition: random-2, ranges-2");
    let far = Around { prefetch: 1 << 40, ..Around::default() };
    refused(&named, &far, "--prefetch 1099511627776: expected at most");
    refused(
        &with(&|c| c.system.ranks = Some(3)),
        &none,
        "2 parts, 3 ranks of a group need one each: pass --ranks 2",
    );
    refused(&with(&|c| c.model.layers = 2), &none, "--layers 2");
    refused(
        &with(&|c| c.system.parallelism = Parallelism::Single),
        &none,
        "--parallelism single is one rank",
    );
    refused(&with(&|c| (c.model.heads, c.model.kind) = (3, ModelKind::Gat)), &none, "--heads 3");
    let sgc = |change: &dyn Fn(&mut ModelConfig)| {
        with(&|c| {
            c.model.kind = ModelKind::Sgc;
            change(&mut c.model);
        })
    };
    refused(&sgc(&|model| model.norm = Some(NormKind::Layer)), &none, "--model sgc");
    refused(&sgc(&|model| model.residual = true), &none, "--model sgc");
    refused(&sgc(&|model| model.jumping_knowledge = JumpingKnowledge::Cat), &none, "choose gcn");
    refused(
        &with(&|c| (c.model.kind, c.model.residual) = (ModelKind::Resgcn, true)),
        &none,
        "--residual: resgcn",
    );
    // A restarted job can keep its options: it starts from the beginning if there is no checkpoint
    // yet.
    let first =
        run(&fixture, &changed(&named, |config| config.run.epochs = 1), &options(&fixture, true))
            .unwrap();
    assert_eq!(first.resumed_after, 0);
    let resumed = options(&fixture, true);
    refused(&with(&|c| c.model.hidden = 16), &resumed, "--hidden is 16, the checkpoint has 8");
    let ranges = with(&|c| c.system.partition = Some("ranges-2".into()));
    refused(&ranges, &resumed, "made with partition `random-2`, now it is `ranges-2`");
    let more = Around { threads: Some(8), ..options(&fixture, true) };
    refused(&named, &more, "made with 1 threads a rank, now there are 4");
    std::fs::remove_dir_all(PartitionMap::folder(&fixture.dataset, "ranges-2")).unwrap();
    assert_eq!(run(&fixture, &split, &resumed).unwrap().resumed_after, 1);

    let other = dataset(26, 100, 4);
    let [map, copy] =
        [&fixture, &other].map(|fixture| PartitionMap::folder(&fixture.dataset, "random-2"));
    std::fs::create_dir_all(&copy).unwrap();
    for file in ["partition.json", "assignment.npy", "cache_order.npy"] {
        std::fs::copy(map.join(file), copy.join(file)).unwrap();
    }
    assert_refused(run(&other, &named, &none), "another graph");
}

/// (`tests::options` has the options that push-pull does not accept.)
#[test]
fn what_cannot_be_computed_by_columns_or_updated_late_is_refused() {
    let fixture = dataset(34, 100, 4);
    let by_columns = config(ModelKind::Sage, Parallelism::PushPull, 2);
    let refused = |config: &Config, options: &Around, words: &str| {
        assert_refused(run(&fixture, config, options), words)
    };
    let late =
        |staleness| changed(&by_columns, |config| config.run.optimizer.staleness = staleness);
    refused(&late(65), &Around::default(), "--staleness 65: expected at most 64");
    let on_gpus = changed(&late(2), |config| {
        config.system.parallelism = Parallelism::Data;
        config.system.device = Device::Cuda
    });
    refused(&on_gpus, &Around::default(), "--staleness 2: GPUs update at once");
    let layer = OwnLayer::new(|named, shape| {
        Box::new(Opaque {
            weight: named.glorot("weight", [shape.input, shape.out]),
            out: shape.out,
        })
    });
    refused(&by_columns, &Around { layer: Some(layer), ..Around::default() }, "(ByColumns)");
}

/// A layer that does not support columns.
struct Opaque {
    weight: tch::Tensor,
    out: usize,
}

impl Layer for Opaque {
    fn forward(
        &self,
        edges: &LayerEdges<'_>,
        input: Rows<'_>,
        finish: Finish,
    ) -> crate::Result<tch::Tensor> {
        linear(edges.place(), &input.first(edges.edges.num_targets())?, &self.weight, None, finish)
    }

    fn out_dim(&self) -> usize {
        self.out
    }
}
