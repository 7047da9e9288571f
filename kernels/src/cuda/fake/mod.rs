//! CUDA's driver and NCCL without a GPU, for tests of the code that calls them: what `driver.cpp` and `nccl.cpp` are built to.
//!
//! Idea: a test starts its own program again with `LD_LIBRARY_PATH` such that they are found, and passes if that does. NVRTC is the
//! real one, and makes the cubins that the fake driver takes kernels' names and needs from; without NVRTC nothing is run.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::library;

/// Where `build.rs` puts the libraries.
const LIBRARIES: &str = concat!(env!("OUT_DIR"), "/fake");

/// This program again, with `arguments`, where CUDA is the fake. None without NVRTC.
fn program(arguments: &[&str], variables: &[(&str, &str)]) -> Option<Command> {
    if let Err(missing) = library::compiler() {
        eprintln!("skipped: {missing}");
        return None;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = [PathBuf::from(LIBRARIES)].into_iter().chain(std::env::split_paths(&others));
    program.args(arguments).args(["--nocapture", "--skip", "cuda::fake"]);
    program.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
    program.env("GSPLIT_TEST_GPU", "1").env("XDG_CACHE_HOME", concat!(env!("OUT_DIR"), "/cache"));
    program.envs(variables.iter().copied());
    Some(program)
}

fn passes(output: &Output) {
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    assert!(output.status.success(), "{}\n{said}", output.status);
}

/// Tests that take long because of their kernels, which others launch too.
const LONG: [&str; 11] = [
    "attention_over_rounded_rows",
    "counts_and_hubs_of_a_tier",
    "dynamic_attention",
    "every_draw_from_every_tier",
    "every_fanout",
    "maxima_and_gradients",
    "sums_and_gradients",
    "sums_of_rounded_rows",
    "weighted",
    "with_replacement",
    "shares_sums",
];

#[test]
fn what_runs_on_gpus_runs_by_the_driver() {
    let skipped = LONG.iter().chain(["cuda::compile", "real_gpus"].iter()).flat_map(|name| ["--skip", name]);
    let arguments: Vec<&str> = ["device", "cuda", "gpu"].into_iter().chain(skipped).collect();
    if let Some(mut program) = program(&arguments, &[]) {
        passes(&program.output().unwrap());
    }
}
