//! The configuration as command-line options and as stored in checkpoints and files.

use gsplit_kernels::Fanout;

use super::fixture::{assert_refused, changed, config};
use crate::autograd::rounds_to_tf32;
use crate::config::{
    Config, Device, DrawKind, Dtype, FeatureNorm, ModelConfig, ModelKind, OptimizerConfig,
    Parallelism, Products, ScheduleConfig, TaskKind,
};
use crate::residence::places::places;
use crate::tests::fixture::Around;

/// The configuration with these options, as flags with values, read from a file that has them in
/// their places.
fn parse(words: &[&str]) -> Config {
    let places = Config::default().options();
    let mut file = serde_json::json!({});
    let joined = words.join(" ").replace(" --", "\n--");
    for word in joined.lines() {
        let (flag, value) = word.split_once([' ', '=']).unwrap_or((word, "true"));
        let place = &places[flag.trim_start_matches("--")];
        let table = place.table.split('.').fold(&mut file, |table, name| &mut table[name]);
        table[&place.key] =
            serde_json::from_str(value).unwrap_or(serde_json::Value::String(value.into()));
    }
    serde_json::from_value(file).unwrap()
}

#[test]
fn options_that_are_not_at_their_defaults_are_named() {
    assert_eq!(parse(&[]).changed(), Vec::<String>::new());
    // The seed is given, but at its default.
    let given = [
        "--ranks",
        "2",
        "--seed",
        "0",
        "--hidden",
        "8",
        "--model",
        "gcn",
        "--lr",
        "0.5",
        "--patience",
        "3",
    ];
    let changed =
        ["model.hidden", "run.optimizer.lr", "model.kind", "run.patience", "system.ranks"];
    assert_eq!(parse(&given).changed(), changed);
}

#[test]
fn options_change_what_they_name() {
    let plain = parse(&[]);
    assert_eq!(plain.run.optimizer, OptimizerConfig::default());
    assert_eq!(plain.run.schedule, ScheduleConfig::default());
    let given = parse(&[
        "--optimizer",
        "adamw",
        "--betas",
        "0.5,0.9",
        "--schedule",
        "cosine",
        "--min-lr",
        "1e-5",
    ]);
    let expected = changed(&plain, |config| {
        config.run.optimizer.kind = crate::OptimizerKind::AdamW;
        config.run.optimizer.betas = Some(crate::Betas([0.5, 0.9]));
        config.run.schedule.kind = crate::ScheduleKind::Cosine;
        config.run.schedule.min_lr = Some(1e-5);
    });
    assert_eq!(given, expected);
    let sgd = parse(&[
        "--optimizer",
        "sgd",
        "--nesterov",
        "--clip-norm",
        "2",
        "--patience",
        "4",
        "--hidden",
        "8",
    ]);
    assert_eq!(
        (sgd.run.optimizer.nesterov, sgd.run.optimizer.clip_norm, sgd.run.patience),
        (true, Some(2.0), Some(4))
    );
    assert_eq!(sgd.model, ModelConfig { hidden: 8, ..plain.model.clone() });
    // Defaults are filled in, and filling in again changes nothing more.
    let effective = given.effective();
    assert_eq!(
        (effective.run.optimizer.adam_epsilon, effective.run.schedule.decay_epochs),
        (Some(1e-8), Some(10))
    );
    assert_eq!((effective.run.optimizer.momentum, effective.run.schedule.gamma), (None, None));
    assert!(
        ["0.9", "0.9,1", "0.9,x", "-1,0.5"]
            .iter()
            .all(|text| text.parse::<crate::Betas>().is_err())
    );
    effective.check().unwrap();
    assert_eq!(effective.effective(), effective);
    assert_eq!(given.difference(&effective), None);
    assert!(given.difference(&sgd).is_some());
}

#[test]
fn split_layers_are_all_unless_said() {
    let plain = parse(&["--parallelism", "split"]);
    assert_eq!(
        (plain.system.split_layers, plain.split_layers(), plain.effective().system.split_layers),
        (None, 3, Some(3))
    );
    assert_eq!(plain.difference(&parse(&["--split-layers", "3", "--parallelism", "split"])), None);
    assert!(
        plain
            .difference(&parse(&["--split-layers", "2", "--parallelism", "split"]))
            .unwrap()
            .starts_with("--split-layers is 3")
    );
    assert_eq!(parse(&["--split-layers", "0", "--parallelism", "split"]).split_layers(), 0);
    assert_eq!(parse(&["--parallelism", "owned"]).effective().system.split_layers, None);
    let words = "--split-layers 4: expected at most 3, the number of layers";
    assert_refused(parse(&["--split-layers", "4", "--parallelism", "split"]).check(), words);
}

#[test]
fn draws_have_their_table() {
    use crate::config::{DrawFactor, DrawKind};
    let plain = parse(&[]);
    let local = parse(&["--draw", "locality", "--draw-factor", "2.5", "--parallelism", "data"]);
    local.check().unwrap();
    assert_eq!(
        (local.data.draw.kind, local.data.draw.draw_factor),
        (DrawKind::Locality, Some(DrawFactor::Fixed(2.5)))
    );
    assert_eq!(local.drawn_by_host(), Some("--draw locality"));
    let auto = parse(&["--draw", "locality", "--parallelism", "data"]);
    assert_eq!(auto.effective().data.draw.draw_factor, Some(DrawFactor::Auto));
    let named = parse(&["--draw", "locality", "--draw-factor", "auto", "--parallelism", "data"]);
    assert_eq!(auto.difference(&named), None);
    assert!(auto.difference(&local).unwrap().starts_with("--draw-factor is \"auto\""));
    assert_eq!(plain.effective().data.draw, plain.data.draw);
}

#[test]
fn weights_of_edges_are_for_models_that_sum() {
    let plain = parse(&[]);
    for model in ["sage", "gcn", "sgc", "gin", "resgcn"] {
        let config = parse(&["--edge-weights", "w", "--model", model]);
        config.check().unwrap();
        assert_eq!(config.drawn_by_host(), Some("--edge-weights"));
    }
    for model in ["sage-pool", "gat", "gatv2"] {
        let message =
            parse(&["--edge-weights", "w", "--model", model]).check().unwrap_err().to_string();
        let words = format!("--edge-weights w: --model {model} sums no rows");
        assert!(message.starts_with(&words) && message.contains("choose sage, gcn"), "{message}");
    }
    assert!(
        plain
            .difference(&parse(&["--edge-weights", "w"]))
            .unwrap()
            .starts_with("--edge-weights is null")
    );
}

#[test]
fn features_are_used_as_the_options_say() {
    let given = parse(&[
        "--normalise-features",
        "row",
        "--input-dropout",
        "0.6",
        "--task",
        "link",
        "--scorer",
        "mlp",
    ]);
    assert_eq!(
        (given.model.normalise_features, given.model.input_dropout),
        (FeatureNorm::Row, 0.6)
    );
    given.check().unwrap();
    let attending =
        |option: &str, share: &str| parse(&["--model", "gatv2", &format!("{option}={share}")]);
    for (option, share) in
        ["--input-dropout", "--attention-dropout"].map(|o| ["1", "-0.1"].map(|s| (o, s))).concat()
    {
        assert_refused(
            attending(option, share).check(),
            &format!("{option} {share}: expected at least 0"),
        );
    }
    assert_eq!(attending("--attention-dropout", "0.6").model.attention_dropout, 0.6);
    attending("--attention-dropout", "0").check().unwrap();
    assert_refused(
        parse(&["--attention-dropout", "0.3"]).check(),
        "--attention-dropout is for --model gat and gatv2",
    );
    let plain = parse(&[]);
    assert!(given.difference(&plain).is_some());
}

/// Every option that only some parallelisms accept: the others refuse it in one line that names
/// both.
#[test]
fn every_parallelism_takes_the_options_that_make_sense() {
    use Parallelism::{Cooperative, Data, Owned, PushPull, Single, Split};
    let all = &Parallelism::ALL;
    let but = |without: &[Parallelism]| -> Vec<Parallelism> {
        all.iter().copied().filter(|parallelism| !without.contains(parallelism)).collect()
    };
    type Change = fn(&mut Config);
    let table: Vec<(&str, Change, Vec<Parallelism>)> = vec![
        ("--ranks", |c| c.system.ranks = Some(4), but(&[Single])),
        ("--groups", |c| c.system.groups = 2, vec![Split, Cooperative]),
        ("--split-layers", |c| c.system.split_layers = Some(1), vec![Split, Cooperative]),
        (
            "--batches-per-epoch",
            |c| c.system.cooperative.batches_per_epoch = Some(2),
            vec![Cooperative],
        ),
        (
            "--expansion-hops",
            |c| (c.system.groups, c.system.cooperative.expansion_hops) = (2, Some(2)),
            vec![Cooperative],
        ),
        (
            "--expansion-fanout",
            |c| (c.system.groups, c.system.cooperative.expansion_fanout) = (2, Some(Fanout::All)),
            vec![Cooperative],
        ),
        ("--draw-by", |c| c.data.draw_by = Some("weight".into()), but(&[Cooperative])),
        (
            "--edge-weights",
            |c| (c.data.edge_weights, c.model.kind) = (Some("w".into()), ModelKind::Gcn),
            but(&[Cooperative]),
        ),
        ("--draw locality", |c| c.data.draw.kind = DrawKind::Locality, vec![Data, Owned, Single]),
        ("--task link", |c| c.data.task.kind = Some(TaskKind::Link), but(&[Cooperative])),
        ("--device", |c| c.system.device = Device::Cuda, but(&[PushPull, Cooperative])),
        ("--model sage-pool", |c| c.model.kind = ModelKind::SagePool, but(&[PushPull])),
        ("--input-dropout", |c| c.model.input_dropout = 0.2, but(&[PushPull])),
        (
            "--normalise-features",
            |c| c.model.normalise_features = FeatureNorm::Row,
            but(&[PushPull]),
        ),
        ("--staleness", |c| c.run.optimizer.staleness = 2, but(&[])),
        ("--checkpoint-activations", |c| c.model.checkpoint_activations = true, but(&[])),
        ("--residual", |c| c.model.residual = true, but(&[])),
    ];
    for (option, change, takes) in table {
        for &parallelism in all {
            let ranks = if parallelism.takes_ranks() { 4 } else { 1 };
            let base = config(ModelKind::Sage, parallelism, ranks);
            base.check().unwrap();
            let with = changed(&base, change);
            match with.check() {
                Ok(()) => {
                    assert!(takes.contains(&parallelism), "{option} under {parallelism} is taken")
                }
                Err(problem) => {
                    let line = problem.to_string();
                    assert!(!takes.contains(&parallelism), "{option} under {parallelism}: {line}");
                    let named = line.contains("--parallelism") && !line.contains('\n');
                    assert!(named, "{option} under {parallelism}: {line}");
                }
            }
        }
    }
}

#[test]
fn factors_are_rounded_to_tf32_where_that_is_asked_for() {
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let on = |device, dtype, products| {
        let config =
            changed(&config, |config| (config.system.device, config.model.dtype) = (device, dtype));
        // Once nothing else is refused, the only problem is the missing GPU.
        let (config, hooks) = &Around { products, ..Around::default() }.of(&config);
        places(config, hooks).map_err(|error| error.to_string())
    };
    let tf32 = Some(Products::Tf32);
    let _ = on(Device::Cuda, Dtype::F32, tf32);
    assert!(rounds_to_tf32());
    for (device, dtype, products) in [
        (Device::Cpu, Dtype::F32, tf32),
        (Device::Cuda, Dtype::Bf16, tf32),
        (Device::Cuda, Dtype::F32, Some(Products::Gemm)),
    ] {
        let line = on(device, dtype, products).err().unwrap();
        assert!(
            line.starts_with("--products is for --device cpu, except tf32, which is for"),
            "{line}"
        );
    }
}
