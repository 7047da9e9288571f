//! Whole runs: they learn, resume exactly, and stop with a reason.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;

use gsplit_store::NoProgress;

use super::fixture::{
    Cut, Fixture, assert_refused, changed, config, dataset, store_on_servers, store_partition,
};
use crate::config::{
    Config, ModelKind, NormKind, OptimizerConfig, OptimizerKind, Parallelism, ScheduleConfig,
    ScheduleKind,
};
use crate::tests::fixture::{Around, train};
use crate::{EpochReport, Summary};

pub fn options(fixture: &Fixture, resume: bool) -> Around {
    Around {
        checkpoint: Some(fixture.folder.path().join("checkpoints")),
        resume,
        log: Some(fixture.folder.path().join("log.jsonl")),
        threads: Some(2),
        ..Around::default()
    }
}

pub fn run(fixture: &Fixture, config: &Config, options: &Around) -> crate::Result<Summary> {
    train(&fixture.dataset, config, options, &NoProgress, &|_| {})
}

pub fn losses(summary: &Summary) -> Vec<(u32, f64, Option<f64>, Option<f64>)> {
    summary.epochs.iter().map(|epoch| (epoch.epoch, epoch.loss, epoch.valid, epoch.test)).collect()
}

/// A run on `config`, with the folder of its checkpoints.
pub fn trained(fixture: &Fixture, config: &Config) -> (PathBuf, Summary) {
    let checkpoint = fixture.folder.path().join("run");
    let _ = std::fs::remove_dir_all(&checkpoint);
    let options =
        Around { checkpoint: Some(checkpoint.clone()), threads: Some(2), ..Around::default() };
    (checkpoint, run(fixture, config, &options).unwrap())
}

/// Runs `whole`, and in two parts, with fewer epochs in `first`: all losses and scores are the
/// same, to the bit.
pub fn resumed(fixture: &Fixture, whole: &Config, first: &Config) -> [Summary; 3] {
    let straight = run(fixture, whole, &Around::default()).unwrap();
    let first = run(fixture, first, &options(fixture, false)).unwrap();
    let rest = run(fixture, whole, &options(fixture, true)).unwrap();
    assert_eq!(rest.resumed_after as usize, first.epochs.len());
    assert_eq!([losses(&first), losses(&rest)].concat(), losses(&straight), "{whole:?}");
    [straight, first, rest]
}

#[test]
fn a_resumed_run_continues_exactly() {
    let of = |model, norm, parallelism, ranks| {
        changed(&config(model, parallelism, ranks), |config| {
            (config.run.epochs, config.model.norm) = (5, Some(norm))
        })
    };
    // The running statistics of a batch norm have no gradient, but decide the accuracies.
    let normed = |parallelism, ranks| of(ModelKind::Gcn, NormKind::Batch, parallelism, ranks);
    let on_servers = |batches| {
        changed(&normed(Parallelism::Cooperative, 4), |config| {
            (config.system.groups, config.system.partition) = (2, Some("random-4-on-2".into()));
            config.system.cooperative.batches_per_epoch = Some(batches);
        })
    };
    for whole in [
        of(ModelKind::Sage, NormKind::None, Parallelism::Split, 3),
        of(ModelKind::Gat, NormKind::Layer, Parallelism::Data, 2),
        of(ModelKind::Sage, NormKind::None, Parallelism::Single, 1),
        normed(Parallelism::Split, 3),
        changed(&normed(Parallelism::Split, 6), |config| config.system.groups = 2),
        on_servers(1),
        on_servers(3),
    ] {
        let fixture = dataset(21, 200, 5);
        store_partition(&fixture.dataset, Cut::Random, 3);
        store_on_servers(&fixture.dataset, Cut::Random, 4, 2);
        resumed(&fixture, &whole, &changed(&whole, |config| config.run.epochs = 2));
        let log = std::fs::read_to_string(fixture.folder.path().join("log.jsonl")).unwrap();
        let logged: Vec<u32> = log
            .lines()
            .map(|line| serde_json::from_str::<EpochReport>(line).unwrap().epoch)
            .collect();
        assert_eq!(logged, [1, 2, 3, 4, 5]);
    }
}

#[test]
fn defaults_may_be_spelled_out_on_a_resume() {
    let fixture = dataset(23, 200, 5);
    let begun =
        changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| config.run.epochs = 1);
    run(&fixture, &begun, &options(&fixture, false)).unwrap();
    let spelled = changed(&begun, |config| {
        config.run.epochs = 2;
        config.model.norm = Some(NormKind::None);
        config.data.task.metric = Some("accuracy".parse().unwrap());
    });
    let resumed = run(&fixture, &spelled, &options(&fixture, true)).unwrap();
    assert_eq!((resumed.resumed_after, resumed.epochs.len()), (1, 1));
    for (change, told) in [
        (
            &(|config: &mut Config| config.data.task.metric = Some("macro-f1".parse().unwrap()))
                as &dyn Fn(&mut Config),
            "--metric is macro-f1, the checkpoint has accuracy",
        ),
        (
            &|config| config.model.norm = Some(NormKind::Layer),
            "--norm is \"layer\", the checkpoint has \"none\"",
        ),
        (
            &|config| config.run.schedule.kind = ScheduleKind::Cosine,
            "--schedule is \"cosine\", the checkpoint has \"constant\"",
        ),
    ] {
        assert_refused(run(&fixture, &changed(&spelled, change), &options(&fixture, true)), told);
    }
}

#[test]
fn every_optimizer_and_schedule_resumes_exactly() {
    let adamw =
        OptimizerConfig { kind: OptimizerKind::AdamW, weight_decay: 0.1, ..Default::default() };
    let sgd = OptimizerConfig {
        kind: OptimizerKind::Sgd,
        lr: 0.1,
        clip_norm: Some(0.5),
        ..Default::default()
    };
    let of = |kind| ScheduleConfig { kind, ..Default::default() };
    let plateau =
        ScheduleConfig { lr_patience: Some(0), gamma: Some(0.5), ..of(ScheduleKind::Plateau) };
    for (optimizer, schedule, parallelism, ranks) in [
        (
            adamw.clone(),
            ScheduleConfig { warmup_steps: 4, ..of(ScheduleKind::Cosine) },
            Parallelism::Split,
            3,
        ),
        (adamw, plateau.clone(), Parallelism::Data, 2),
        (
            sgd.clone(),
            ScheduleConfig { warmup_steps: 9, ..of(ScheduleKind::Constant) },
            Parallelism::Split,
            3,
        ),
        (
            OptimizerConfig { momentum: Some(0.0), ..sgd.clone() },
            of(ScheduleKind::Linear),
            Parallelism::Single,
            1,
        ),
        (OptimizerConfig { nesterov: true, ..sgd.clone() }, plateau, Parallelism::Single, 1),
        // Waiting updates are applied at the end of an epoch, before the parameters are saved.
        (
            OptimizerConfig { staleness: 3, ..sgd },
            ScheduleConfig { warmup_steps: 9, ..of(ScheduleKind::Constant) },
            Parallelism::PushPull,
            3,
        ),
    ] {
        let fixture = dataset(31, 200, 5);
        store_partition(&fixture.dataset, Cut::Random, 3);
        let whole = changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
            (config.run.optimizer, config.run.schedule, config.run.epochs) =
                (optimizer, schedule, 6);
        });
        // Decays end with the whole run, whichever part of it is run now.
        let decays = matches!(whole.run.schedule.kind, ScheduleKind::Linear | ScheduleKind::Cosine);
        let part = changed(&whole, |config| {
            (config.run.epochs, config.run.schedule.decay_epochs) = (3, decays.then_some(6));
        });
        let [straight, first, rest] = resumed(&fixture, &whole, &part);
        if decays {
            let other = changed(&whole, |config| config.run.epochs = 7);
            assert_refused(
                run(&fixture, &other, &options(&fixture, true)),
                "--decay-epochs is 7, the checkpoint has 6",
            );
        }
        let rates = |summary: &Summary| -> Vec<(f64, f64)> {
            summary.epochs.iter().map(|epoch| (epoch.learning_rate, epoch.gradient_norm)).collect()
        };
        let what = format!("{:?}, {:?}, {parallelism}", whole.run.optimizer, whole.run.schedule);
        assert_eq!([rates(&first), rates(&rest)].concat(), rates(&straight), "{what}");
        assert!(rates(&straight)[0].0 != rates(&straight)[5].0, "the rate changes: {what}");
        let other = changed(&whole, |config| config.run.optimizer.weight_decay = 0.7);
        assert_refused(
            run(&fixture, &other, &options(&fixture, true)),
            "--weight-decay is 0.7, the checkpoint has 0",
        );
    }
}

#[test]
fn patience_ends_a_run_and_the_best_epoch_is_kept() {
    let fixture = dataset(33, 200, 5);
    let base =
        changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| config.run.epochs = 40);
    let straight = run(&fixture, &base, &Around::default()).unwrap();
    assert!(!straight.stopped_early && straight.epochs.len() == 40);
    let valid: Vec<f64> = straight.epochs.iter().map(|report| report.valid.unwrap()).collect();
    let patient = changed(&base, |config| config.run.patience = Some(3));
    // The metric first, then the loss, which differs in every epoch.
    let merits: Vec<(f64, f64)> = straight
        .epochs
        .iter()
        .map(|report| (report.valid.unwrap(), -report.valid_loss.unwrap()))
        .collect();
    let best_of = |merits: &[(f64, f64)]| {
        merits.iter().copied().reduce(|a, b| if b > a { b } else { a }).unwrap()
    };
    // The definition, written out: the first epoch that ends three in a row without an improvement.
    assert!(valid.iter().all(|&metric| metric < 1.0), "a perfect score would end it");
    let last = (3..40)
        .find(|&at| merits[at - 2..=at].iter().all(|&merit| merit <= best_of(&merits[..at - 2])));
    let last = last.unwrap() + 1;
    let part = changed(&patient, |config| config.run.epochs = 2);
    run(&fixture, &part, &options(&fixture, false)).unwrap();
    let stopped = run(&fixture, &patient, &options(&fixture, true)).unwrap();
    assert!(stopped.stopped_early);
    assert_eq!(stopped.epochs.len() + 2, last);
    assert_eq!(losses(&stopped), losses(&straight)[2..last]);

    let best = stopped.best.unwrap();
    let highest = valid[..last].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    assert_eq!(best.valid, Some(highest));
    let best_merit = best_of(&merits[..last]);
    assert_eq!(
        best.epoch as usize,
        merits.iter().position(|&merit| merit == best_merit).unwrap() + 1
    );
    let checkpoints = fixture.folder.path().join("checkpoints");
    let target = std::fs::read_link(checkpoints.join("best")).unwrap();
    assert_eq!(target.to_str().unwrap(), format!("epoch-{:05}", best.epoch));
    assert!(checkpoints.join("best/model.safetensors").exists());
    let kept = std::fs::read_dir(&checkpoints)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let kept: BTreeSet<String> = kept.filter(|name| name.starts_with("epoch")).collect();
    let newest = [last - 1, last].map(|epoch| format!("epoch-{epoch:05}"));
    assert_eq!(
        kept,
        newest.clone().into_iter().chain([target.to_str().unwrap().to_string()]).collect()
    );

    // A run that has stopped stays so, even one that was killed right after its last checkpoint was
    // written.
    std::fs::remove_file(checkpoints.join("best")).unwrap();
    std::os::unix::fs::symlink(&newest[1], checkpoints.join("best")).unwrap();
    std::fs::create_dir(checkpoints.join("epoch-00001")).unwrap();
    std::fs::copy(
        checkpoints.join(&target).join("checkpoint.json"),
        checkpoints.join("epoch-00001/checkpoint.json"),
    )
    .unwrap();
    assert_eq!(run(&fixture, &patient, &options(&fixture, true)).unwrap().epochs.len(), 0);
    assert_eq!(std::fs::read_link(checkpoints.join("best")).unwrap(), target);
    assert!(!checkpoints.join("epoch-00001").exists() || best.epoch == 1);
    // With more patience, or none, the run continues exactly.
    let more = run(&fixture, &base, &options(&fixture, true)).unwrap();
    assert_eq!(losses(&more), losses(&straight)[last..]);
}

#[test]
fn a_checkpoint_folder_has_one_writer() {
    let fixture = dataset(34, 100, 4);
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let outer = options(&fixture, false);
    let calls = Mutex::new(0);
    train(&fixture.dataset, &config, &outer, &NoProgress, &|_| {
        *calls.lock().unwrap() += 1;
        for resume in [false, true] {
            let message =
                run(&fixture, &config, &options(&fixture, resume)).unwrap_err().to_string();
            assert!(
                message.contains("checkpoints: another gsplit is writing it (process"),
                "{message}"
            );
        }
    })
    .unwrap();
    assert_eq!(*calls.lock().unwrap(), 2);
    run(&fixture, &changed(&config, |config| config.run.epochs = 3), &options(&fixture, true))
        .unwrap();
}

#[test]
fn every_parallelism_counts_its_work() {
    let fixture = dataset(22, 400, 6);
    store_partition(&fixture.dataset, Cut::Ranges, 4);
    let in_part = |parallelism, ranks, split_layers| {
        let config = changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
            (config.run.epochs, config.run.eval_every) = (2, 0);
            config.system.split_layers = split_layers;
            config.model.dropout = 0.1;
        });
        run(&fixture, &config, &Around::default()).unwrap().epochs
    };
    let of = |parallelism, ranks| in_part(parallelism, ranks, None);
    let single = of(Parallelism::Single, 1);
    let [data, split, owned, by_columns] =
        [Parallelism::Data, Parallelism::Split, Parallelism::Owned, Parallelism::PushPull]
            .map(|other| of(other, 4));
    let partly = in_part(Parallelism::Split, 4, Some(1));
    for (at, epoch) in single.iter().enumerate() {
        let [data, split, owned, partly, by_columns] =
            [&data[at], &split[at], &owned[at], &partly[at], &by_columns[at]];
        assert_eq!(split.work.edges, epoch.work.edges);
        assert_eq!(split.work.rows_loaded, epoch.work.rows_loaded);
        // With one split layer only feature rows move: they are loaded once, edges are computed as
        // often as without it.
        assert_eq!(
            (partly.work.edges, partly.work.rows_loaded),
            (owned.work.edges, split.work.rows_loaded)
        );
        assert!(
            0 < partly.work.rows_exchanged
                && partly.work.rows_exchanged < split.work.rows_exchanged + owned.work.rows_loaded
        );
        assert_eq!(
            (by_columns.work.edges, by_columns.work.rows_loaded),
            (data.work.edges, data.work.rows_loaded)
        );
        for repeating in [data, owned, by_columns] {
            assert!(
                repeating.work.edges >= epoch.work.edges
                    && repeating.work.rows_loaded > epoch.work.rows_loaded
            );
            assert_eq!(repeating.work.rows_exchanged, 0);
        }
    }
}

#[test]
fn a_diverged_run_names_its_step_and_keeps_the_checkpoint() {
    let fixture = dataset(23, 200, 5);
    let config = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        config.run.optimizer.lr = 1e30;
        config.run.epochs = 3;
    });
    for prefetch in [0, 1, 3] {
        let options = Around { prefetch, ..Around::default() };
        let message = run(&fixture, &config, &options).unwrap_err().to_string();
        assert!(
            message.contains("at epoch") && message.contains("lower --lr"),
            "{prefetch} ahead: {message}"
        );
        assert!(!message.contains("checkpoint"), "there is none: {message}");
    }

    // Every step multiplies the weights by -30: after a few epochs they overflow.
    let config = changed(&config, |config| {
        (config.run.optimizer.kind, config.run.optimizer.momentum) =
            (OptimizerKind::Sgd, Some(0.0));
        (config.run.optimizer.lr, config.run.optimizer.weight_decay, config.run.epochs) =
            (0.01, 3100.0, 30);
    });
    let message = run(&fixture, &config, &options(&fixture, false)).unwrap_err().to_string();
    let number = message.split("at epoch ").nth(1).unwrap().split(',').next().unwrap();
    let epoch: u32 = number.parse().unwrap();
    assert!(
        epoch > 1 && message.contains("step") && message.contains("the last checkpoint is kept"),
        "{message}"
    );
    let checkpoints = fixture.folder.path().join("checkpoints");
    assert!(!checkpoints.join(format!("epoch-{epoch:05}")).exists());
    let weights = checkpoints.join(format!("epoch-{:05}/model.safetensors", epoch - 1));
    let kept = std::fs::read(&weights).unwrap();
    let tensors = tch::Tensor::read_safetensors(&weights).unwrap();
    assert!(tensors.iter().all(|(_, tensor)| tensor.isfinite().all().int64_value(&[]) == 1));
    // The checkpoint is complete: resuming from it fails in the same way at the same step.
    assert_eq!(run(&fixture, &config, &options(&fixture, true)).unwrap_err().to_string(), message);
    assert_eq!(std::fs::read(&weights).unwrap(), kept);
}

#[test]
fn a_damaged_checkpoint_is_named() {
    let fixture = dataset(27, 100, 4);
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    run(&fixture, &config, &options(&fixture, false)).unwrap();
    let file = fixture.folder.path().join("checkpoints/epoch-00002/model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let more = changed(&config, |config| config.run.epochs = 3);
    let refused = |words: &str| {
        let message = run(&fixture, &more, &options(&fixture, true)).unwrap_err().to_string();
        assert!(message.contains(words) && message.contains("delete this checkpoint"), "{message}");
    };
    refused("model.safetensors: its checksum");
    std::fs::remove_file(&file).unwrap();
    refused("model.safetensors: No such file");
    let document = file.with_file_name("checkpoint.json");
    let text = std::fs::read_to_string(&document).unwrap();
    std::fs::write(&document, &text[..text.len() / 2]).unwrap();
    refused("checkpoint.json: not a gsplit-checkpoint document");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    assert_eq!(run(&fixture, &more, &options(&fixture, true)).unwrap().resumed_after, 1);
}

#[test]
fn what_cannot_be_kept_is_not_begun() {
    let fixture = dataset(28, 100, 4);
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let file = fixture.folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    for checkpoint in [file.clone(), file.join("below")] {
        let options = Around { checkpoint: Some(checkpoint), ..options(&fixture, false) };
        let begun = |_: &[EpochReport]| panic!("an epoch was run");
        let message = train(&fixture.dataset, &config, &options, &NoProgress, &begun)
            .unwrap_err()
            .to_string();
        assert!(message.contains("file") && message.contains("name another path"), "{message}");
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "precious");
    assert!(!fixture.folder.path().join("log.jsonl").exists());
}
