//! Processes that hold only the rows of their own vertices train, evaluate and resume as on the
//! whole dataset.

use std::fs;
use std::path::Path;

use gsplit_store::{Dataset, FeatureDtype, NoProgress, PartitionMap, Split, verify, write_shards};

use super::fixture::{
    CLASSES, Cut, Fixture, changed, config, dataset, emulated, lacking_cells, numbers, provenance,
    several_labels, store_partition, stored_as,
};
use super::processes::{in_processes, on_processes};
use super::runs::losses;
use crate::config::{
    ClassWeights, Config, FeatureNorm, JumpingKnowledge, ModelKind, NormKind, Parallelism, TaskKind,
};
use crate::tests::fixture::{Around, train};
use crate::{Metric, Summary};

/// Shards of `fixture` for `hosts`, cut by `key`, each in a separate folder below `to`. The whole
/// dataset is hidden.
pub fn cut(fixture: &Fixture, key: &str, hosts: u32, to: &Path) -> Vec<Dataset> {
    let map = PartitionMap::open(&fixture.dataset, key).unwrap();
    let out = fixture.folder.path().join("shards");
    alone(
        write_shards(&fixture.dataset, Some(&map), hosts, &out, true, &provenance(), &NoProgress)
            .unwrap(),
        to,
    )
}

/// Moves each of `shards` to a separate folder below `to`.
fn alone(shards: Vec<Dataset>, to: &Path) -> Vec<Dataset> {
    let alone = |shard: Dataset| {
        let place = to.join(format!("only-{}", shard.shard().unwrap().host)).join("ds");
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::rename(shard.path(), &place).unwrap();
        Dataset::open(place).unwrap()
    };
    shards.into_iter().map(alone).collect()
}

/// Results of the ranks of a run on `config`; `of` gives the dataset of each.
pub fn outcomes<'d>(
    config: &Config,
    options: &Around,
    of: impl Fn(usize) -> &'d Dataset + Sync,
) -> Vec<crate::Result<Summary>> {
    in_processes((config.num_ranks(), config.system.groups), |rank, process| {
        let options = Around { process: Some(process), ..options.clone() };
        train(of(rank), config, &options, &NoProgress, &|_| {})
    })
}

#[test]
fn processes_on_shards_train_and_evaluate_as_on_the_whole_dataset() {
    let plain = || dataset(91, 220, 5);
    let base = |kind| config(kind, Parallelism::Split, 4);
    let roc_auc =
        |config: &mut Config| config.data.task.metric = Some("roc-auc".parse::<Metric>().unwrap());
    let macro_f1 =
        |config: &mut Config| config.data.task.metric = Some("macro-f1".parse::<Metric>().unwrap());
    let regression = |config: &mut Config| config.data.task.kind = Some(TaskKind::Regression);
    let weighted =
        |config: &mut Config| config.data.task.class_weights = Some(ClassWeights::Balanced);
    let cases: Vec<(Fixture, Cut, u32, Config, Option<u32>)> = vec![
        (plain(), Cut::Random, 4, base(ModelKind::Sage), None),
        (
            plain(),
            Cut::Lopsided,
            2,
            changed(&base(ModelKind::Gcn), |c| c.model.norm = Some(NormKind::Batch)),
            None,
        ),
        (
            stored_as(FeatureDtype::I8, 92, 220, 5, 6),
            Cut::Ranges,
            2,
            changed(&base(ModelKind::Gatv2), |c| {
                (c.model.residual, c.model.jumping_knowledge) = (true, JumpingKnowledge::Cat);
                c.model.normalise_features = FeatureNorm::Row;
                macro_f1(c);
            }),
            None,
        ),
        // Two groups, each with all parts: ranks 0 and 2 have the same rows.
        (plain(), Cut::Random, 2, changed(&base(ModelKind::Sage), |c| c.system.groups = 2), None),
        // Only feature rows move.
        (
            plain(),
            Cut::Random,
            4,
            changed(&base(ModelKind::Resgcn), |c| c.system.split_layers = Some(1)),
            None,
        ),
        (several_labels(93, 200, 4), Cut::Random, 4, changed(&base(ModelKind::Gin), roc_auc), None),
        (
            plain(),
            Cut::Random,
            2,
            changed(&base(ModelKind::Sage), |c| c.system.ranks = Some(2)),
            None,
        ),
        (numbers(95, 200, 4), Cut::Random, 4, changed(&base(ModelKind::Sage), regression), None),
        (
            lacking_cells(96, 200, 4),
            Cut::Random,
            4,
            changed(&base(ModelKind::Sage), |c| {
                weighted(c);
                macro_f1(c);
            }),
            None,
        ),
        (
            stored_as(FeatureDtype::F16, 94, 200, 4, 6),
            Cut::Random,
            2,
            changed(&base(ModelKind::Gat), |c| c.system.ranks = Some(2)),
            Some(1),
        ),
    ];
    for (fixture, way, hosts, config, order) in cases {
        let key = store_partition(&fixture.dataset, way, config.ranks_of_group());
        let options = Around {
            places: order.and_then(emulated),
            prefetch: 1,
            threads: Some(1),
            ..Around::default()
        };
        let whole = on_processes(&fixture, &config, &options).remove(0);
        let to = tempfile::tempdir().unwrap();
        let shards = cut(&fixture, &key, hosts, to.path());
        fs::rename(fixture.dataset.path(), fixture.folder.path().join("hidden")).unwrap();
        let (of_group, each) = (config.ranks_of_group(), config.ranks_of_group() / hosts as usize);
        for summary in outcomes(&config, &options, |rank| &shards[rank % of_group / each]) {
            let summary = summary.unwrap();
            let what = format!("{:?}, {way:?}, {hosts} hosts", config.model.kind);
            assert!(
                config.data.task.is_regression()
                    || whole.baseline.is_some() && whole.scores.is_some()
            );
            assert_eq!(
                (&summary.baseline, &summary.scores),
                (&whole.baseline, &whole.scores),
                "{what}"
            );
            for ((epoch, loss, valid, test), expected) in
                losses(&summary).into_iter().zip(losses(&whole))
            {
                assert_eq!((epoch, loss), (expected.0, expected.1), "{what}");
                for (score, expected) in [(valid, expected.2), (test, expected.3)] {
                    assert!(
                        (score.unwrap() - expected.unwrap()).abs() < 1e-5,
                        "{what}: {score:?}, {expected:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_run_on_the_whole_dataset_goes_on_upon_shards_and_back() {
    let fixture = dataset(95, 200, 5);
    let key = store_partition(&fixture.dataset, Cut::Random, 2);
    let to = tempfile::tempdir().unwrap();
    let shards = cut(&fixture, &key, 2, to.path());
    let config =
        changed(&config(ModelKind::Sage, Parallelism::Split, 2), |config| config.run.epochs = 3);
    let options = Around { threads: Some(1), ..Around::default() };
    let straight = losses(&on_processes(&fixture, &config, &options)[0]);
    let kept =
        Around { checkpoint: Some(fixture.folder.path().join("run")), resume: true, ..options };
    let upto = |epochs| changed(&config, |config| config.run.epochs = epochs);
    let mut found = losses(&on_processes(&fixture, &upto(1), &kept)[0]);
    found.extend(losses(outcomes(&upto(2), &kept, |rank| &shards[rank])[0].as_ref().unwrap()));
    found.extend(losses(&on_processes(&fixture, &upto(3), &kept)[0]));
    assert_eq!(found, straight);
}

/// Runs on `datasets`, one rank each; all must be refused with `words` or with another rank's
/// error.
fn refused(datasets: &[&Dataset], config: &Config, options: &Around, words: &str) {
    let messages: Vec<String> = outcomes(config, options, |rank| datasets[rank])
        .into_iter()
        .map(|outcome| outcome.unwrap_err().to_string())
        .collect();
    assert!(messages.iter().any(|message| message.contains(words)), "{words}: {messages:?}");
    assert!(
        messages.iter().all(|message| !message.contains('\n') && !message.contains("panic")),
        "{messages:?}"
    );
}

#[test]
fn what_needs_rows_of_other_hosts_is_refused_before_the_first_mini_batch() {
    let fixture = dataset(96, 160, 4);
    let key = store_partition(&fixture.dataset, Cut::Random, 2);
    store_partition(&fixture.dataset, Cut::Ranges, 2);
    let to = tempfile::tempdir().unwrap();
    let shards = cut(&fixture, &key, 2, to.path());
    let [first, second] = [&shards[0], &shards[1]];
    let plain = Around { threads: Some(1), ..Around::default() };
    let split = config(ModelKind::Sage, Parallelism::Split, 2);
    let with = |parallelism| changed(&split, |config| config.system.parallelism = parallelism);

    let by_default =
        |of: &[&Dataset], config: &Config, words: &str| refused(of, config, &plain, words);
    by_default(
        &[first, second],
        &with(Parallelism::Data),
        "--parallelism data loads rows of other hosts: pass --parallelism split",
    );
    by_default(&[first, second], &with(Parallelism::Owned), "--parallelism owned loads rows");
    let single = changed(&with(Parallelism::Single), |config| config.system.ranks = Some(1));
    let words =
        "is the shard of host 0 of 2, cut by partition random-2: --parallelism single loads";
    by_default(&[first], &single, words);
    let above = changed(&split, |config| config.system.split_layers = Some(0));
    by_default(&[first, second], &above, "loads rows of other hosts");
    let words = "rank 0 has part 0: give that rank the shard of host 0";
    by_default(&[second, first], &split, words);
    let link = changed(&split, |config| config.data.task.kind = Some(TaskKind::Link));
    by_default(&[first, second], &link, "pass --eval-every 0");
    let cache = Around { cache: Some(1 << 20), places: emulated(1), ..plain.clone() };
    refused(&[first, second], &split, &cache, "pass --placement host, and no --cache");

    // Ranks in threads of one process have all parts.
    let error =
        train(first, &split, &Around::default(), &NoProgress, &|_| {}).unwrap_err().to_string();
    assert!(
        error.contains("rank 1 has part 1") && error.contains("a process of its own"),
        "{error}"
    );

    // A partition of the same size made on the shard, and shards of another dataset and of another
    // cut.
    store_partition(first, Cut::Ranges, 2);
    let named = |key: &str| changed(&split, |config| config.system.partition = Some(key.into()));
    let words = "partition ranges-2 gives its vertices to other ranks: pass --partition random-2";
    by_default(&[first, first], &named("ranges-2"), words);
    let other = dataset(97, 160, 4);
    let key = store_partition(&other.dataset, Cut::Random, 2);
    let (elsewhere, words) =
        (tempfile::tempdir().unwrap(), "rank 1 trains on other data than rank 0");
    by_default(&[first, &cut(&other, &key, 2, elsewhere.path())[1]], &named("random-2"), words);
    by_default(&[&fixture.dataset, &other.dataset], &named("random-2"), words);
    let again = tempfile::tempdir().unwrap();
    let ranges = cut(&fixture, "ranges-2", 2, again.path());
    fs::remove_dir_all(first.path().join("partition/ranges-2")).unwrap();
    by_default(&[first, &ranges[1]], &split, "or by another partition");
}

#[test]
fn links_are_learnt_on_shards_and_one_host_may_hold_all() {
    let fixture = dataset(98, 160, 4);
    let key = store_partition(&fixture.dataset, Cut::Random, 2);
    let options = Around { threads: Some(1), ..Around::default() };
    let link = changed(&config(ModelKind::Sage, Parallelism::Split, 2), |config| {
        (config.data.task.kind, config.run.eval_every) = (Some(TaskKind::Link), 0);
    });
    let to = tempfile::tempdir().unwrap();
    let shards = cut(&fixture, &key, 2, to.path());
    let expected = losses(&on_processes(&fixture, &link, &options)[0]);
    for summary in outcomes(&link, &options, |rank| &shards[rank]) {
        assert_eq!(losses(&summary.unwrap()), expected);
    }
    // Negatives are drawn by the kinds of all vertices.
    let of_two = super::two_kinds::ratings(5, true, false);
    let of_two_key = store_partition(&of_two.dataset, Cut::Random, 2);
    let of_two_shards = cut(&of_two, &of_two_key, 2, &to.path().join("two"));
    let expected_of_two = losses(&on_processes(&of_two, &link, &options)[0]);
    for (summary, shard) in
        outcomes(&link, &options, |rank| &of_two_shards[rank]).into_iter().zip(&of_two_shards)
    {
        assert_eq!(losses(&summary.unwrap()), expected_of_two);
        assert_eq!(shard.kinds().unwrap(), of_two.dataset.kinds().unwrap());
        let problems: Vec<_> =
            verify(shard.path()).unwrap().into_iter().filter_map(|found| found.problem).collect();
        assert!(problems.is_empty(), "{problems:?}");
    }
    // All parts in one process.
    let whole = cut(&fixture, &key, 1, &to.path().join("one")).remove(0);
    let split = config(ModelKind::Sage, Parallelism::Split, 2);
    let options = Around { threads: Some(2), ..Around::default() };
    let trained = |dataset: &Dataset| {
        losses(&train(dataset, &split, &options, &NoProgress, &|_| {}).unwrap())
    };
    let (found, expected) = (trained(&whole), trained(&fixture.dataset));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.1, expected.1);
        assert!((found.2.unwrap() - expected.2.unwrap()).abs() < 1e-6, "{found:?}, {expected:?}");
    }
    assert!(whole.split(Split::Valid).unwrap().len() > CLASSES);
}

#[test]
fn processes_with_their_columns_alone_train_as_on_the_whole_dataset() {
    let to = tempfile::tempdir().unwrap();
    let cases = [
        (FeatureDtype::F32, ModelKind::Sage, 4, 2),
        (FeatureDtype::I8, ModelKind::Gatv2, 2, 2),
        (FeatureDtype::F16, ModelKind::Gcn, 3, 1),
    ];
    for (i, (dtype, kind, ranks, hosts)) in cases.into_iter().enumerate() {
        let fixture = stored_as(dtype, 99, 200, 5, 6);
        let config = changed(&config(kind, Parallelism::PushPull, ranks), |config| {
            config.run.eval_every = 0
        });
        let options = Around { prefetch: i % 2, threads: Some(1), ..Around::default() };
        let expected = losses(&on_processes(&fixture, &config, &options)[0]);
        let out = fixture.folder.path().join("shards");
        let shards =
            write_shards(&fixture.dataset, None, hosts, &out, true, &provenance(), &NoProgress)
                .unwrap();
        let shards = alone(shards, &to.path().join(i.to_string()));
        fs::rename(fixture.dataset.path(), fixture.folder.path().join("hidden")).unwrap();
        for summary in outcomes(&config, &options, |rank| &shards[rank * hosts as usize / ranks]) {
            assert_eq!(
                losses(&summary.unwrap()),
                expected,
                "{kind:?}, {ranks} ranks on {hosts} hosts"
            );
        }
        let first = &shards[0];
        let scored = changed(&config, |config| config.run.eval_every = 1);
        let by_rows = changed(&scored, |config| config.system.parallelism = Parallelism::Data);
        let refused =
            |config: &Config, words: &str| refused(&[first; 4][..ranks], config, &options, words);
        refused(&by_rows, "reads whole rows: pass --parallelism push-pull");
        match hosts {
            1 => refused(&scored, "pass --eval-every 0 and score the checkpoint with infer"),
            _ => refused(&config, &format!("rank {} of {ranks} has columns", ranks / 2)),
        }
    }
}
