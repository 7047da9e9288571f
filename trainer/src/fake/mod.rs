//! torch's CUDA part and CUDA itself without a GPU, for tests of the code that calls them: `torch_cuda.cpp`, and what
//! `gsplit-kernels` has.
//!
//! Idea: a program is started with both, and finds GPUs; so all that training on GPUs calls is called, which on an emulated
//! [`Place`](crate::Place) it is not: torch's tensors are on "cuda" here, and backward runs in the threads of torch's devices.

use std::path::Path;
use std::process::Command;

use gsplit_kernels::give_fake_cuda;

/// What `build.rs` makes of `torch_cuda.cpp`.
const LIBRARY: &str = concat!(env!("OUT_DIR"), "/fake/libtorch_cuda.so");

/// Gives `program` GPUs, as many as the variable `FAKE_CUDA_DEVICES` says, or one.
///
/// # Errors
/// A line that says what is missing here.
pub fn give_fake_gpus(program: &mut Command) -> Result<(), String> {
    if !Path::new(LIBRARY).is_file() {
        return Err(format!("{LIBRARY} is not here, where this program was built to find it"));
    }
    program.env("LD_PRELOAD", LIBRARY);
    give_fake_cuda(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts this program again for the tests whose names hold one of `names` and none of `skipped`, and expects it to pass `tests` of
    /// them or more.
    fn start(names: &[&str], skipped: &[&str], variables: &[(&str, &str)], tests: usize) {
        let mut program = Command::new(std::env::current_exe().unwrap());
        if let Err(missing) = give_fake_gpus(&mut program) {
            return eprintln!("skipped: {missing}");
        }
        program.args(names).args(skipped.iter().flat_map(|name| ["--skip", name]));
        let output = program.env("GSPLIT_TEST_GPU", "1").envs(variables.iter().copied()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let passed =
            said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
        assert!(
            output.status.success() && passed.is_some_and(|passed: usize| passed >= tests),
            "{}\n{said}",
            output.status
        );
    }

    #[test]
    fn what_trains_on_gpus_trains_by_torch_and_the_driver() {
        start(&["device", "cuda", "gpu", "operator::", "exchange::", "narrow::"], &["fake::"], &[], 60);
    }
}
