//! `gsplit train` as people use it: configuration files, early stopping, logs, one writer a
//! checkpoint folder.

use std::fs;

use serde_json::Value;

use crate::support::{command, community, errors, fails, json, losses, ok, refused, scratch};

const SMALL: &str = "
[data]
fanouts = [5, 5]
batch_size = 256

[model]
kind = 'sage'
layers = 2
hidden = 16
dropout = 0.2

[system]
parallelism = 'single'
threads = 2

[run]
epochs = 3
eval_every = 3
log = 'run.jsonl'

[run.optimizer]
kind = 'adamw'
lr = 0.01
weight_decay = 1e-2
clip_norm = 1

[run.schedule]
kind = 'cosine'
warmup_steps = 2
";

#[test]
fn a_file_says_what_flags_say_and_flags_win() {
    let folder = &*scratch();
    community(folder, 1500);
    fs::write(folder.join("run.toml"), SMALL).unwrap();
    let file = json(folder, "train ds --config run.toml");
    let words = "train ds --parallelism single --fanouts 5,5 --batch-size 256 --epochs 3 --eval-every 3 --model sage \
                 --layers 2 --hidden 16 --dropout 0.2 --optimizer adamw --lr 0.01 --weight-decay \
                 0.01 --clip-norm 1 \
                 --schedule cosine --warmup-steps 2 --threads 2";
    let flags = json(folder, words);
    assert_eq!(file["config"], flags["config"]);
    assert_eq!(losses(&file), losses(&flags));
    assert_eq!(fs::read_to_string(folder.join("run.jsonl")).unwrap().lines().count(), 3);

    let other = json(folder, "--threads 1 train --config run.toml --epochs 2 ds");
    assert_eq!((other["config"]["run"]["epochs"].as_u64(), losses(&other).len()), (Some(2), 2));
    assert_eq!(other["config"]["run"]["optimizer"], file["config"]["run"]["optimizer"]);

    // The printed configuration is the same.
    let printed = ok(folder, "train --config run.toml --print-config");
    assert!(
        printed.contains("# decay_epochs = 3")
            && printed.contains("[run.optimizer]\nkind = \"adamw\""),
        "{printed}"
    );
    fs::write(folder.join("printed.toml"), &printed).unwrap();
    assert_eq!(ok(folder, "train --config printed.toml --print-config"), printed);
    let again = json(folder, "train ds --config printed.toml");
    assert_eq!((&again["config"], losses(&again)), (&file["config"], losses(&file)));
    // Open settings follow the options that they depend on.
    let sgd = "train --config printed.toml --optimizer sgd --epochs 9 --print-config";
    let sgd = ok(folder, sgd);
    assert!(
        sgd.contains("# momentum = 0.9")
            && sgd.contains("# decay_epochs = 9")
            && !sgd.contains("betas"),
        "{sgd}"
    );
}

#[test]
fn patience_ends_a_run_and_logs_hold_all_of_it() {
    let folder = &*scratch();
    community(folder, 1500);
    fs::write(folder.join("run.toml"), SMALL).unwrap();
    let all = "train ds --config run.toml --epochs 60 --eval-every 1 --schedule constant --warmup-steps 0 --patience 2 \
               --checkpoint run --log run.jsonl --tensorboard tb";
    let text = ok(folder, all);
    let stopped =
        text.lines().find(|line| line.starts_with("stopped: no better valid metric in 2")).unwrap();
    let best = text.lines().find(|line| line.starts_with("best: epoch ")).unwrap();
    let epochs: usize = stopped.split(' ').rev().nth(2).unwrap().parse().unwrap();
    let best: usize =
        best.trim_start_matches("best: epoch ").split(',').next().unwrap().parse().unwrap();
    assert!(epochs < 60 && best <= epochs, "{text}");
    assert_eq!(fs::read_to_string(folder.join("run.jsonl")).unwrap().lines().count(), epochs);
    let link = fs::read_link(folder.join("run/best")).unwrap();
    assert_eq!(link.to_str().unwrap(), format!("epoch-{best:05}"));
    assert_eq!(fs::read_dir(folder.join("tb")).unwrap().count(), 1);
    let again = ok(folder, format!("{all} --resume"));
    assert!(again.contains("nothing to do: no better valid metric in 2"), "{again}");
}

#[test]
fn engines_of_dense_products_differ_in_rounding_alone() {
    let folder = &*scratch();
    community(folder, 1500);
    fs::write(folder.join("run.toml"), SMALL).unwrap();
    let train = |args: &str| losses(&json(folder, format!("train ds --config run.toml {args}")));
    let of_types = ["f32", "bf16"].map(|dtype| {
        let [gemm, torch] =
            ["gemm", "torch"].map(|engine| train(&format!("--dtype {dtype} --products {engine}")));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-3 * a.abs();
        assert!(gemm.iter().zip(&torch).all(near), "{dtype}: {gemm:?} {torch:?}");
        // Sums of so few products of rounded factors are exact in f32.
        assert_eq!(gemm == torch, dtype == "bf16");
        gemm
    });
    assert_ne!(of_types[0], of_types[1]);
    refused(
        folder,
        "train ds --config run.toml --products own",
        2,
        "--products own needs --dtype bf16",
    );
    refused(
        folder,
        "train ds --config run.toml --products gemm --device cuda",
        2,
        "--products is for --device cpu",
    );
}

#[test]
fn processes_that_cannot_be_ranks_are_told_what_to_do() {
    let folder = &*scratch();
    community(folder, 300);
    let srun = "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0";
    for (variables, words, code, told) in [
        (srun, "", 2, "--rendezvous is missing: srun does not say where rank 0 is"),
        ("RANK=0 WORLD_SIZE=2", "--device cuda", 2, "set LOCAL_RANK"),
        (
            "A=b",
            "--rendezvous localhost:29400",
            2,
            "--rendezvous is for processes that a launcher has started",
        ),
    ] {
        let pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
        let output = command(folder, format!("train ds {words}")).envs(pairs).output().unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{variables} {words}: {errors}");
        assert!(
            errors.contains(told) && !errors.contains("panicked"),
            "{variables} {words}: {errors}"
        );
    }
    // A launcher with one process starts no group.
    let alone = "train ds --parallelism single --epochs 1 --hidden 8 --json";
    let output =
        command(folder, alone).envs([("RANK", "0"), ("WORLD_SIZE", "1")]).output().unwrap();
    assert!(output.status.success());
}

#[test]
fn processes_are_told_where_they_meet_by_a_file_too() {
    let printed = ok(&scratch(), "train --print-config --timeout 30 --rendezvous node1:29400");
    for line in ["timeout = 30.0", "rendezvous = \"node1:29400\""] {
        assert!(printed.contains(line), "{printed}");
    }
}

#[test]
fn placements_of_feature_rows_are_for_gpus() {
    let folder = &*scratch();
    community(folder, 300);
    let printed = ok(folder, "train --placement some-key --print-config");
    assert!(printed.contains("placement = \"some-key\""), "{printed}");
    fs::write(folder.join("run.toml"), "[system]\nparallelism = 'single'\nplacement = 'peer'\n")
        .unwrap();
    let told = fails(folder, "train ds --config run.toml", 2);
    assert!(
        told.contains("run.toml:3: --placement: on --device cpu") && told.contains("--cache SIZE"),
        "{told}"
    );
    fs::write(folder.join("run.toml"), "[system]\nplacement = '../up'\n").unwrap();
    let told = fails(folder, "train ds --config run.toml", 2);
    assert!(
        told.contains("run.toml:2: ") && told.contains("replicated, partitioned, peer, or the key"),
        "{told}"
    );
}

#[test]
fn a_preset_fills_in_what_is_left_open() {
    let folder = &*scratch();
    fs::write(folder.join("run.toml"), "[system]\nsplit_layers = 0\npreset = 'gsplit-edge'\n")
        .unwrap();
    for (options, expected) in [
        (
            "--preset intel --ranks 2 --device cuda",
            r#"parallelism = "split"; split_layers = 1; partition = "multilevel-degree-k2"; placement = "partitioned""#,
        ),
        (
            "--preset intel --ranks 2 --split-layers 2 --partition mine",
            r#"split_layers = 2; partition = "mine""#,
        ),
        ("--config run.toml", r#"split_layers = 0; partition = "multilevel-degree-k4""#),
        (
            "--preset p3 --hidden 16",
            r#"parallelism = "push-pull"; fanouts = "25,10"; hidden = 16; batch_size = 1000; staleness = 3"#,
        ),
        (
            "--preset granndis --ranks 4 --groups 2",
            concat!(
                r#"parallelism = "cooperative"; kind = "resgcn"; layers = 28; batches_per_epoch = 1; expansion_hops = 1; "#,
                r#"expansion_fanout = "15"; partition = "multilevel-degree-k2x2""#
            ),
        ),
        (
            "--preset song-jiang --ranks 2",
            r#"parallelism = "data"; placement = "song-jiang"; cache = "20%"; kind = "locality""#,
        ),
    ] {
        let text = ok(folder, format!("train --print-config {options}"));
        assert!(expected.split("; ").all(|line| text.contains(line)), "{options}: {text}");
    }

    community(folder, 300);
    let line = fails(folder, "train ds --preset gsplit --ranks 2", 1);
    assert!(
        line.contains("multilevel-presampled-k2") && line.contains("gsplit partition"),
        "{line}"
    );
    // Song and Jiang's system needs the rows of Algorithm 1; on the host caches are counted with.
    let song_jiang = "train ds --preset song-jiang --ranks 2 --layers 2 --fanouts 3,3";
    let line = fails(folder, song_jiang, 2);
    assert!(line.contains("--placement song-jiang") && line.contains("gsplit place"), "{line}");
    ok(folder, "presample ds --fanouts 3,3 --batch-size 64 --epochs 2");
    ok(folder, "partition ds --parts 2 --partitioner random --key two");
    let place = "place ds --parallelism data --rule song-jiang --cache 20% --key song-jiang";
    ok(folder, place);
    let common = "--hidden 16 --batch-size 64 --epochs 2";
    let run = json(folder, format!("{song_jiang} {common}"));
    let (epochs, cache) = (&run["summary"]["epochs"], &run["summary"]["cache"]);
    assert_eq!((&epochs[0]["draw_factor"], &epochs[1]["draw_factor"]), (&1.0.into(), &2.0.into()));
    assert_eq!((&cache["counted"], &cache["rows"]), (&true.into(), &serde_json::json!([60, 60])));
    let [loaded, own, peers] = ["rows_loaded", "rows_cached", "rows_from_peers"]
        .map(|name| epochs[0][name].as_u64().unwrap());
    assert!(own > 0 && peers > 0 && own + peers < loaded, "{run:#}");

    refused(
        folder,
        "train ds --preset intel --parallelism data",
        2,
        "--split-layers is for --parallelism split",
    );
}

#[test]
fn a_program_that_reads_the_report_can_show_the_progress() {
    let folder = &*scratch();
    community(folder, 300);
    let train = "train ds --parallelism single --layers 1 --fanouts 3 --hidden 4 --epochs 2 --json";
    for (progress, shown) in [(false, 0), (true, 2)] {
        let mut train = command(folder, train);
        let told =
            if progress { train.env("GSPLIT_PROGRESS", "1") } else { &mut train }.output().unwrap();
        let report: Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!(report["summary"]["epochs"].as_array().unwrap().len(), 2);
        let errors = errors(&told);
        let epochs =
            errors.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok());
        assert_eq!(epochs.count(), shown, "{errors}");
    }
}
