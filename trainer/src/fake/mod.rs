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

    /// Tests that take long because of their kernels, which others launch too.
    const LONG: [&str; 6] = [
        "accuracy_in_every_type",
        "differential_inference_on_a_gpu",
        "in_f16_leaves_out_what_overflows",
        "several_ranks_share_a_gpu",
        "where_the_graph_is_sampled_from",
        "with_every_placement",
    ];

    #[test]
    fn what_trains_on_gpus_trains_by_torch_and_the_driver() {
        let mut program = Command::new(std::env::current_exe().unwrap());
        if let Err(missing) = give_fake_gpus(&mut program) {
            return eprintln!("skipped: {missing}");
        }
        program.args(["device", "cuda", "gpu", "operator::", "exchange::", "narrow::"]).env("GSPLIT_TEST_GPU", "1");
        program.args(LONG.iter().chain(&["fake::"]).flat_map(|name| ["--skip", name]));
        let output = program.output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let passed =
            said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
        let enough = passed.is_some_and(|passed: usize| passed >= 45);
        assert!(output.status.success() && enough, "{}\n{said}", output.status);
    }
}
