//! Training on GPUs with the fake versions of torch's CUDA part and of CUDA: a test starts its own
//! program again with them, and passes if that does.

use std::process::Command;

use gsplit_gpu_sim::{give_fake_gpus, happened};
use gsplit_store::NoProgress;
use tch::{Kind, Tensor};

use super::fixture::{build, changed, config, emulated};
use super::waits::{one_step, three_layers};
use crate::Error;
use crate::config::{Device, ModelKind, Parallelism};
use crate::job::hooks::Hooks;
use crate::model::Model;
use crate::operator::{Place, from_rows, to_rows};
use crate::optimizer::Optimizer;
use crate::residence::places::{number_types, places};
use crate::tests::fixture::{Around, train};

/// Tests that together make all calls of training to torch and the driver, without whole trainings.
const REPRESENTATIVES: [&str; 9] = [
    "a_mini_batch_that_was_handed_over",
    "attention::oracle_attention",
    "exchange::",
    "features_arrive_in_the_type_of_the_run",
    "gpus_that_are_not_there",
    "oracle_aggregations",
    "oracle_batch_norm",
    "ranks_that_share_a_gpu",
    "rounded_rows_are_attended_to",
];

#[test]
fn what_trains_on_gpus_trains_by_torch_and_the_driver() {
    tests_pass_by_torch_and_the_driver(&REPRESENTATIVES, 12);
}

#[test]
#[ignore = "takes long: make test-all"]
fn all_that_trains_on_gpus_trains_by_torch_and_the_driver() {
    tests_pass_by_torch_and_the_driver(
        &["device", "cuda", "gpu", "operator::", "exchange::", "narrow::"],
        51,
    );
}

/// Runs the tests whose names contain one of `names`, at least `least` of them.
fn tests_pass_by_torch_and_the_driver(names: &[&str], least: usize) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    if let Err(missing) = give_fake_gpus(&mut program) {
        return eprintln!("skipped: {missing}");
    }
    program.args(names).args(["--skip", "fake::"]).env("GSPLIT_TEST_GPU", "1");
    let output = program.output().unwrap();
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    let passed = said
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
    let enough = passed.is_some_and(|passed: usize| passed >= least);
    assert!(output.status.success() && enough, "{}\n{said}", output.status);
}

/// The variable that names the test which a process was started for.
const ALONE: &str = "GSPLIT_TEST_ALONE";

/// True if this process shall run the body of `test` on such GPUs. Otherwise such a process is
/// started, with `variables`, and has to pass.
fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    if let Ok(name) = std::env::var(ALONE) {
        return name == test;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    if let Err(missing) = give_fake_gpus(&mut program) {
        eprintln!("skipped: {missing}");
        return false;
    }
    program
        .args(["--exact", &format!("tests::fake::{test}")])
        .env(ALONE, test)
        .envs(variables.iter().copied());
    let output = program.output().unwrap();
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(output.status.success() && said.contains("1 passed"), "{}\n{said}", output.status);
    false
}

/// Kernels and torch each keep the memory that they free, and reuse memory that the other keeps.
/// Copies from the host go through pinned memory.
#[test]
fn torch_finds_what_kernels_have_freed_and_they_what_it_has() {
    const MIB: usize = 1 << 20;
    if !alone(
        "torch_finds_what_kernels_have_freed_and_they_what_it_has",
        &[("FAKE_CUDA_MEMORY_MIB", "100")],
    ) {
        return;
    }
    let place = Place::open(0).unwrap();
    let gpu = place.gpu().unwrap();
    let (rows, before) = (
        from_rows((0..600_000).map(|i| i as f32).collect(), 3000, 200).unwrap(),
        happened("pageable"),
    );
    let brought = place.bring(&rows.f_transpose(0, 1).unwrap()).unwrap();
    assert_eq!(happened("pageable"), before, "torch's own copies are");
    assert_eq!(to_rows(&brought.f_transpose(0, 1).unwrap()).unwrap(), to_rows(&rows).unwrap());
    drop(brought);
    for _ in 0..2 {
        drop(gpu.alloc::<u8>(90 * MIB).unwrap());
        gpu.synchronise().unwrap();
        drop(Tensor::f_empty([90 * MIB as i64], (Kind::Uint8, place.device())).unwrap());
    }
}

/// The rank that asked for the memory gets an error, and notifies the other ranks.
#[test]
fn tensors_without_room_are_errors() {
    if !alone("tensors_without_room_are_errors", &[("FAKE_CUDA_MEMORY_MIB", "48")]) {
        return;
    }
    let place = Place::open(0).unwrap();
    let mut config = three_layers(ModelKind::Sage, Parallelism::Single, 1, None);
    config.model.hidden = 512;
    let model = Model::with_layers(&place, &config, 8, 4, None, None);
    let (gpu, values) = (place.gpu().unwrap(), model.parameters().num_values());
    let left = gpu.memory().unwrap().0 as usize - 4 * values / 2;
    let rest = gpu.alloc::<u8>(left).unwrap();
    let error = Optimizer::new(model.parameters(), &config, 10).err().unwrap();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    drop(rest);
    Optimizer::new(model.parameters(), &config, 10).unwrap();
}

/// Copies of a step go through pinned memory: torch makes none, and the driver makes all others in
/// this way.
#[test]
fn no_step_copies_from_memory_that_is_not_pinned() {
    if !alone("no_step_copies_from_memory_that_is_not_pinned", &[]) {
        return;
    }
    for (parallelism, ranks) in
        [(Parallelism::Single, 1), (Parallelism::Data, 2), (Parallelism::Split, 2)]
    {
        let config = three_layers(ModelKind::Sage, parallelism, ranks, None);
        for prefetch in [0, 1] {
            let place = |_| Place::open(0).unwrap();
            let seen = one_step(&config, prefetch, place, |_| happened("by_torch"));
            assert!(
                seen.iter().flatten().all(|[before, after]| before == after),
                "{parallelism}: {seen:?}"
            );
        }
    }
}

/// A stream gets the memory that another stream has freed only once the host has waited for that
/// stream. Without waits, mini-batches that are made ahead on a separate stream take new memory at
/// every step, until the GPU is full.
#[test]
fn mini_batches_made_ahead_take_the_memory_of_earlier_ones() {
    if !alone(
        "mini_batches_made_ahead_take_the_memory_of_earlier_ones",
        &[("GSPLIT_TEST_GPU", "1")],
    ) {
        return;
    }
    let fixture = build(97, 2000, 6, 128, false);
    let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.data.batch_size, config.run.epochs, config.run.eval_every) = (100, 1, 0);
    });
    let [alone, ahead] = [0, 1].map(|prefetch| {
        let options = Around { places: emulated(0), prefetch, ..Around::default() };
        train(&fixture.dataset, &config, &options, &NoProgress, &|_| {}).unwrap();
        happened("most")
    });
    assert!(
        alone < ahead && ahead < 3 * alone,
        "{alone} bytes, {ahead} with mini-batches made ahead"
    );
}

/// The trial behaves like the run: the memory left goes to feature rows, and the run needs no more
/// than the trial took.
#[test]
fn what_a_trial_leaves_is_enough_for_the_run() {
    let gpu = [("GSPLIT_TEST_GPU", "1"), ("FAKE_CUDA_MEMORY_MIB", "24")];
    if !alone("what_a_trial_leaves_is_enough_for_the_run", &gpu) {
        return;
    }
    let fixture = build(98, 1_500, 3, 2048, false);
    let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.data.batch_size, config.run.epochs, config.run.eval_every) = (40, 1, 0);
        config.data.fanouts = "2,2,1".parse().unwrap();
    });
    let options = Around { places: emulated(0), prefetch: 1, ..Around::default() };
    let summary = train(&fixture.dataset, &config, &options, &NoProgress, &|_| {}).unwrap();
    let memory = summary.epochs[0].memory.unwrap();
    assert!(memory.gpu_pool_bytes > 0 && memory.gpu_torch_bytes > 0, "{memory:?}");
    assert!(memory.gpu_pool_bytes + memory.gpu_torch_bytes <= 24 << 20, "{memory:?}");
    let kept = summary.cache.map_or(0, |cache| cache.rows[0]);
    assert!(0 < kept && kept < 1_500, "{kept} rows");
}

#[test]
fn products_round_to_tf32_where_torch_is_set_so() {
    const SETTING: &str = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE";
    for variables in [&[][..], &[(SETTING, "1")]] {
        if alone("products_round_to_tf32_where_torch_is_set_so", variables) {
            let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
                config.system.device = Device::Cuda
            });
            places(&config, &Hooks::default()).unwrap();
            let is_set = std::env::var_os(SETTING).is_some();
            assert_eq!(number_types(&config).unwrap().contains("rounded to TF32"), is_set);
            return;
        }
    }
}
