//! Training on GPUs, with torch's CUDA part and CUDA itself as tests have them: a test starts its own program again, with them,
//! and passes if that does.

use std::process::Command;

use gsplit_gpu_sim::{give_fake_gpus, happened};
use tch::{Kind, Tensor};

use super::waits::{one_step, three_layers};
use crate::operator::{Place, from_rows, to_rows};

/// Tests that between them call all of torch and the driver that training does.
const REPRESENTATIVES: [&str; 17] = [
    "a_cache_changes_where_rows_come_from",
    "a_mini_batch_that_was_handed_over",
    "a_run_on_a_gpu_resumes_exactly",
    "attention::oracle_attention",
    "exchange::",
    "features_arrive_in_the_type_of_the_run",
    "gpus_that_are_not_there",
    "links_are_learnt_in_every_type",
    "oracle_aggregations",
    "oracle_batch_norm",
    "own_layer::a_layer_in_plain_torch_is_trained_and_inferred_with_on_a_gpu",
    "ranks_that_share_a_gpu",
    "rounded_rows_are_attended_to",
    "rows_that_are_changed_are_read_from_caches_too",
    "several_gpus_infer",
    "the_graph_goes_where_there_is_room",
    "whole_runs_on_a_gpu",
];

#[test]
fn what_trains_on_gpus_trains_by_torch_and_the_driver() {
    tests_pass_by_torch_and_the_driver(&REPRESENTATIVES, 20);
}

#[test]
#[ignore = "takes long: make test-all"]
fn all_that_trains_on_gpus_trains_by_torch_and_the_driver() {
    tests_pass_by_torch_and_the_driver(&["device", "cuda", "gpu", "operator::", "exchange::", "narrow::"], 51);
}

/// The tests whose names contain one of `names`, of which there are `least`.
fn tests_pass_by_torch_and_the_driver(names: &[&str], least: usize) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    if let Err(missing) = give_fake_gpus(&mut program) {
        return eprintln!("skipped: {missing}");
    }
    program.args(names).args(["--skip", "fake::"]).env("GSPLIT_TEST_GPU", "1");
    let output = program.output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let passed = said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
    let enough = passed.is_some_and(|passed: usize| passed >= least);
    assert!(output.status.success() && enough, "{}\n{said}", output.status);
}

/// Both take memory from one pool, as `before_cuda` has it; otherwise torch fails for lack of what kernels have freed. Copies
/// from the host go through pinned memory.
#[test]
fn torch_finds_what_kernels_have_freed_in_one_pool() {
    const SHARED: &str = "GSPLIT_TEST_SHARED";
    const MIB: usize = 1 << 20;
    if let Ok(shared) = std::env::var(SHARED) {
        let place = Place::open(0).unwrap();
        let gpu = place.gpu().unwrap();
        let (rows, before) =
            (from_rows((0..600_000).map(|i| i as f32).collect(), 3000, 200).unwrap(), happened("pageable"));
        let brought = place.bring(&rows.f_transpose(0, 1).unwrap()).unwrap();
        assert_eq!(happened("pageable"), before, "torch's own copies are");
        assert_eq!(to_rows(&brought.f_transpose(0, 1).unwrap()).unwrap(), to_rows(&rows).unwrap());
        drop(brought);
        drop(gpu.alloc::<u8>(60 * MIB).unwrap());
        gpu.synchronise().unwrap();
        let tensor = Tensor::f_empty([50 * MIB as i64], (Kind::Uint8, place.device()));
        assert_eq!(tensor.is_ok(), shared == "true", "{tensor:?}");
        drop(tensor);
        drop(gpu.alloc::<u8>(90 * MIB).unwrap());
        return;
    }
    for shared in [true, false] {
        let mut program = Command::new(std::env::current_exe().unwrap());
        if let Err(missing) = give_fake_gpus(&mut program) {
            return eprintln!("skipped: {missing}");
        }
        program.args(["--exact", "tests::fake::torch_finds_what_kernels_have_freed_in_one_pool"]);
        program.env(SHARED, shared.to_string()).env("FAKE_CUDA_MEMORY_MIB", "100");
        if shared {
            program.env("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync");
        }
        let output = program.output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success() && said.contains("1 passed"), "{}\n{said}", output.status);
    }
}

/// Copies of a step go through pinned memory: torch is asked for no copy, and the driver makes all others so.
#[test]
fn no_step_copies_from_memory_that_is_not_pinned() {
    use crate::config::{ModelKind, Parallelism};
    const STEPS: &str = "GSPLIT_TEST_STEPS";
    if std::env::var_os(STEPS).is_some() {
        for (parallelism, ranks) in [(Parallelism::Single, 1), (Parallelism::Data, 2), (Parallelism::Split, 2)] {
            let config = three_layers(ModelKind::Sage, parallelism, ranks, None);
            for prefetch in [0, 1] {
                let place = |_| Place::open(0).unwrap();
                let seen = one_step(&config, prefetch, place, |_| happened("by_torch"));
                assert!(seen.iter().flatten().all(|[before, after]| before == after), "{parallelism}: {seen:?}");
            }
        }
        return;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    if let Err(missing) = give_fake_gpus(&mut program) {
        return eprintln!("skipped: {missing}");
    }
    program.args(["--exact", "tests::fake::no_step_copies_from_memory_that_is_not_pinned"]).env(STEPS, "1");
    let output = program.output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{}\n{said}", output.status);
}
