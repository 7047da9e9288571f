//! Bytes become what `gsplit train` and `gsplit infer` read: a checkpoint with its tensors, a
//! configuration file. These link libtorch, which reads the tensors. `tests/suite/corpora.rs`
//! replays their corpora.

use std::path::Path;

use gsplit_kernels::Fanout;
use gsplit_store::NoProgress;
use gsplit_trainer::{Config, Hooks, InferConfig, NormKind, infer, train};

use super::input::{folder, one_line, split, succeeds, write_all};
use super::stored::{record, six, vouch};

/// Runs the target called `name`; returns whether the content of the bytes was accepted. Panics
/// where it was neither accepted nor refused with one line.
pub fn run(name: &str, bytes: &[u8]) -> bool {
    match name {
        "checkpoint" => go_on(bytes),
        "config" => configure(bytes),
        _ => panic!("no target {name}"),
    }
}

/// The run whose checkpoints are read, and are written to `folder`.
fn of_six(epochs: u32, folder: &Path, resume: bool) -> Config {
    let mut config = Config::default();
    (config.model.layers, config.model.hidden, config.model.norm) = (2, 2, Some(NormKind::Batch));
    (config.data.fanouts, config.data.batch_size) = ([Fanout::Take(2); 2].into(), 2);
    (config.run.epochs, config.run.checkpoint, config.run.resume) =
        (epochs, Some(folder.to_path_buf()), resume);
    (config.system.threads, config.system.prefetch) = (Some(1), 0);
    config
}

/// A checkpoint after one epoch on six vertices, as an input.
#[allow(dead_code)] // For the seed.
pub fn seed() -> Vec<u8> {
    let folder = folder();
    train(six(), &of_six(1, folder.path(), false), &Hooks::default(), &NoProgress, &|_| {})
        .expect("a run");
    let read = |name: &str| {
        std::fs::read(folder.path().join("epoch-00001").join(name)).expect("a checkpoint")
    };
    CHECKPOINT.map(read).join(super::input::SEPARATOR)
}

const CHECKPOINT: [&str; 3] = ["checkpoint.json", "model.safetensors", "optimizer.safetensors"];

/// Infers with a checkpoint, and trains for another epoch from it. With the letter `r` it vouches
/// for itself.
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
    let resumed = train(six(), &of_six(2, &run, true), &Hooks::default(), &NoProgress, &|_| {});
    succeeds(resumed) && inferred
}

/// A configuration file.
fn configure(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    match toml::from_str::<Config>(text) {
        Ok(config) => succeeds(config.check()),
        Err(error) => one_line(&error.message().replace('\n', ", ")),
    }
}
