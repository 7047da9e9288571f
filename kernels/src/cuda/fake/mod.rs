//! CUDA's driver and NCCL without a GPU, for tests of the code that calls them: what `driver.cpp` and `nccl.cpp` are built to by `build.rs`.
//!
//! Idea: a test starts its own program again with `LD_LIBRARY_PATH` such that they are found, and passes if that does. NVRTC is the
//! real one, and makes the cubins that the fake driver takes kernels' names and needs from; without NVRTC nothing is run.

#[cfg(test)]
mod failures;
#[cfg(test)]
mod order;
#[cfg(test)]
mod pairs;
#[cfg(test)]
mod ranks;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::library;

/// Where `build.rs` puts the libraries.
const LIBRARIES: &str = concat!(env!("OUT_DIR"), "/fake");
/// The test that a process was started for.
#[cfg(test)]
const ALONE: &str = "GSPLIT_TEST_ALONE";

/// Lets `program` find CUDA's libraries as tests have them.
///
/// # Errors
/// A line that says what is missing here: NVRTC, or the libraries where they were built.
pub fn give_fake_cuda(program: &mut Command) -> Result<(), String> {
    library::compiler().map_err(|missing| missing.to_string())?;
    if !Path::new(LIBRARIES).is_dir() {
        return Err(format!("{LIBRARIES} is not here, where this program was built to find it"));
    }
    let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = [PathBuf::from(LIBRARIES)].into_iter().chain(std::env::split_paths(&others));
    let folders = std::env::join_paths(folders).map_err(|error| error.to_string())?;
    program.env("LD_LIBRARY_PATH", folders).env("XDG_CACHE_HOME", concat!(env!("OUT_DIR"), "/cache"));
    Ok(())
}

/// Starts this program again with `arguments`, where CUDA is the fake, and expects it to pass `tests` tests or more. Without NVRTC it
/// says so and does nothing.
#[cfg(test)]
fn start(arguments: &[&str], variables: &[(&str, &str)], tests: usize) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    if let Err(missing) = give_fake_cuda(&mut program) {
        return eprintln!("skipped: {missing}");
    }
    program.args(arguments).env("GSPLIT_TEST_GPU", "1");
    let output = program.envs(variables.iter().copied()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let passed = said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
    assert!(
        output.status.success() && passed.is_some_and(|passed: usize| passed >= tests),
        "{}\n{said}",
        output.status
    );
}

/// Whether this process is the one that runs the body of `test`, named from this module on. Otherwise such a process is started,
/// with `variables`, and passes.
#[cfg(test)]
fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    let test = format!("cuda::fake::{test}");
    match std::env::var(ALONE) {
        Ok(name) => name == test,
        Err(_) => {
            let variables: Vec<_> = variables.iter().copied().chain([(ALONE, test.as_str())]).collect();
            start(&["--exact", &test], &variables, 1);
            false
        }
    }
}

/// Tests that take long because of their kernels, which others launch too.
#[cfg(test)]
const LONG: [&str; 11] = [
    "attention_over_rounded_rows",
    "counts_and_hubs_of_a_tier",
    "dynamic_attention",
    "every_draw_from_every_tier",
    "every_fanout",
    "maxima_and_gradients",
    "shares_sums",
    "sums_and_gradients",
    "sums_of_rounded_rows",
    "weighted",
    "with_replacement",
];

#[test]
fn what_runs_on_gpus_runs_by_the_driver() {
    let others = ["cuda::fake", "cuda::compile", "real_gpus"];
    let skipped = LONG.iter().chain(&others).flat_map(|name| ["--skip", name]);
    let arguments: Vec<&str> = ["device", "cuda", "gpu"].into_iter().chain(skipped).collect();
    start(&arguments, &[], 50);
}
