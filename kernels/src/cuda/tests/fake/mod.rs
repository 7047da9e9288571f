//! Tests of GPU code on fakes: a test starts its own program again, with the fakes, and passes if
//! that does.

mod failures;
mod order;
mod ranks;

use std::process::Command;

use gsplit_gpu_sim::{LIBRARIES, give_fake_cuda};

/// The test that a process was started for.
const ALONE: &str = "GSPLIT_TEST_ALONE";

/// Starts this program again with `arguments`, where CUDA is the fake, and expects it to pass at
/// least `tests` tests. Without NVRTC it prints so and does nothing.
fn start(arguments: &[&str], variables: &[(&str, &str)], tests: usize) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    if let Err(missing) = give_fake_cuda(&mut program) {
        return eprintln!("skipped: {missing}");
    }
    program.args(arguments).env("GSPLIT_TEST_GPU", "1");
    let output = program.envs(variables.iter().copied()).output().unwrap();
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    let passed = said
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
    assert!(
        output.status.success() && passed.is_some_and(|passed: usize| passed >= tests),
        "{}\n{said}",
        output.status
    );
}

/// Whether this process is the one that runs the body of `test`, named from this module on.
/// Otherwise starts such a process, with `variables`, which must pass.
fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    let test = format!("cuda::tests::fake::{test}");
    match std::env::var(ALONE) {
        Ok(name) => name == test,
        Err(_) => {
            let variables: Vec<_> =
                variables.iter().copied().chain([(ALONE, test.as_str())]).collect();
            start(&["--exact", &test], &variables, 1);
            false
        }
    }
}

/// Tests that take long because of kernels that other tests launch too.
const LONG: [&str; 9] = [
    "attention_over_rounded_rows",
    "counts_and_hubs_of_a_tier",
    "dynamic_attention",
    "every_draw_from_every_tier",
    "every_fanout",
    "maxima_and_gradients",
    "shares_sums",
    "sums_and_gradients",
    "sums_of_rounded_rows",
];

/// Tests that together make all calls of the driver that launches of kernels make.
const REPRESENTATIVES: [&str; 9] = [
    "activation::cuda",
    "comm::tests::gpus",
    "cuda::buffer",
    "device::differential_batches",
    "gather::",
    "scan::cuda",
    "segment::cuda",
    "shuffle::cuda",
    "split::cuda",
];

/// Runs the tests whose names contain one of `names`, at least `least` of them, on the fake driver.
fn tests_pass_by_the_driver(names: &[&str], least: usize) {
    // Only a real driver opens memory of another process.
    let others = ["cuda::tests::fake", "cuda::compile", "real_gpus", "another_process_reads"];
    let skipped = LONG.iter().chain(&others).flat_map(|name| ["--skip", name]);
    let arguments: Vec<&str> = names.iter().copied().chain(skipped).collect();
    start(&arguments, &[], least);
}

#[test]
fn what_runs_on_gpus_runs_by_the_driver() {
    tests_pass_by_the_driver(&REPRESENTATIVES, 25);
}

#[test]
#[ignore = "takes long: make test-all"]
fn all_that_runs_on_gpus_runs_by_the_driver() {
    tests_pass_by_the_driver(&["device", "cuda", "gpu"], 50);
}
