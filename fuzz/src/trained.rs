//! Bytes become what `gsplit train` and `gsplit infer` read: a checkpoint with its tensors, a configuration file. These link libtorch,
//! which reads the tensors. `tests/suite/corpora.rs` replays their corpora.

use std::path::Path;

use clap::{Arg, ArgAction, Args, Command, FromArgMatches};
use gsplit_store::NoProgress;
use gsplit_trainer::{InferConfig, RunOptions, TrainConfig, infer, train};

use super::input::{folder, one_line, split, succeeds, write, write_all};
use super::stored::{record, six, vouch};

#[allow(dead_code)] // It writes configurations too.
#[path = "../../src/train/config_file.rs"]
mod config_file;

use config_file::{ConfigFile, OptionKeys};

/// Runs the target called `name`; returns whether the content of the bytes was accepted. Panics where it was neither accepted nor
/// refused with one line.
pub fn run(name: &str, bytes: &[u8]) -> bool {
    match name {
        "checkpoint" => go_on(bytes),
        "config" => configure(bytes),
        _ => panic!("no target {name}"),
    }
}

fn command() -> Command {
    let around = |name: &'static str| Arg::new(name).long(name);
    let command = TrainConfig::augment_args(Command::new("train"));
    let command = command.arg(around("checkpoint")).arg(around("resume").action(ArgAction::SetTrue));
    let threads = around("threads").value_parser(clap::value_parser!(u16));
    let mut command = command.arg(threads).arg(around("log"));
    command.build();
    command
}

/// What `options` say, and the rest by default.
fn config(options: &[&str]) -> TrainConfig {
    let line = [&["train"], options].concat();
    let matches = command().try_get_matches_from(line).expect("options of train");
    TrainConfig::from_arg_matches(&matches).expect("a configuration")
}

/// The run whose checkpoints are read.
fn of_six(epochs: &'static str) -> TrainConfig {
    let model = ["--layers", "2", "--hidden", "2", "--fanouts", "2,2", "--norm", "batch"];
    config(&[&["--parallelism", "single", "--epochs", epochs, "--batch-size", "2"], &model[..]].concat())
}

fn options(folder: &Path, resume: bool) -> RunOptions {
    let checkpoint = Some(folder.to_path_buf());
    RunOptions { checkpoint, resume, threads: Some(1), ..RunOptions::default() }
}

/// A checkpoint after one epoch on six vertices, as an input.
#[allow(dead_code)] // For the seed.
pub fn seed() -> Vec<u8> {
    let folder = folder();
    train(six(), &of_six("1"), &options(folder.path(), false), &NoProgress, &|_| {}).expect("a run");
    let read = |name: &str| std::fs::read(folder.path().join("epoch-00001").join(name)).expect("a checkpoint");
    CHECKPOINT.map(read).join(super::input::SEPARATOR)
}

const CHECKPOINT: [&str; 3] = ["checkpoint.json", "model.safetensors", "optimizer.safetensors"];

/// Infers with a checkpoint, and trains for another epoch from it. With the letter `r` it vouches for itself.
fn go_on(bytes: &[u8]) -> bool {
    let folder = folder();
    let (run, mut parts) = (folder.path().join("run"), split(bytes));
    let path = run.join("epoch-00001");
    write_all(&path, &CHECKPOINT, &mut parts);
    std::fs::create_dir_all(&path).expect("a folder");
    if !parts.next().unwrap_or_default().contains(&b'r') {
        vouch(&path.join("checkpoint.json"), |content| record(&path, content));
    }
    let inference = InferConfig { checkpoint: run.clone(), ..InferConfig::default() };
    let inferred = succeeds(infer(six(), &inference, 64 << 20, None, &NoProgress));
    let resumed = train(six(), &of_six("2"), &options(&run, true), &NoProgress, &|_| {});
    succeeds(resumed) && inferred
}

/// A configuration file.
fn configure(bytes: &[u8]) -> bool {
    let folder = folder();
    let path = folder.path().join("train.toml");
    write(&path, bytes);
    let command = command();
    match ConfigFile::read(&path, &OptionKeys::new(&command, &config(&[])), |_, _| false) {
        Ok(file) => {
            let line = ["train".to_string()].into_iter().chain(file.arguments());
            let Ok(matches) = command.try_get_matches_from(line) else { return false };
            let config = TrainConfig::from_arg_matches(&matches).expect("a configuration");
            succeeds(config.check())
        }
        Err(error) => one_line(&format!("{error:#}")),
    }
}
