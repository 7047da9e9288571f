//! GPUs as people use them, where there are none: by CUDA and its part of torch as tests have them.
//! One GPU, several in one process, and a process for each as torchrun starts them.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use gsplit_gpu_sim::{give_fake_gpus, give_late_gpus};
use serde_json::Value;

use crate::support::{command, community, content, fails, json, losses, ok, scratch};

const TRAIN: &str = "train ds --layers 2 --fanouts 4,4 --batch-size 300 --epochs 2 --eval-every 1 --dropout 0.2 --threads 1";

/// gsplit with `args` and this number of GPUs; None, and a line with the reason, if it cannot have
/// any.
pub fn with_gpus(folder: &Path, gpus: u32, args: &str) -> Option<Command> {
    // The kernels are compiled once, not by each of the processes that start meanwhile.
    static COMPILED: OnceLock<()> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let mut doctor = command(folder, "doctor");
        if give_fake_gpus(&mut doctor).is_ok() {
            doctor.output().unwrap();
        }
    });
    let mut program = command(folder, args);
    program.arg("--json").env("FAKE_CUDA_DEVICES", gpus.to_string()).env_remove("RUST_BACKTRACE");
    give_fake_gpus(&mut program).inspect_err(|missing| println!("skipped: {missing}")).ok()?;
    Some(program)
}

/// Its output, if it succeeded.
pub fn printed(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn assert_close(losses: &[f64], expected: &[f64], what: &str) {
    assert_eq!(losses.len(), expected.len(), "{what}");
    let off = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs();
    assert!(
        losses.iter().zip(expected).map(off).all(|off| off < 1e-3),
        "{what}: {losses:?}, expected {expected:?}"
    );
}

#[test]
fn one_gpu_presamples_trains_and_infers_as_the_cpu_does() {
    let folder = &*scratch();
    community(folder, 1200);
    let presample = "presample ds --fanouts 4,4 --batch-size 300 --epochs 2";
    let Some(mut program) = with_gpus(folder, 1, &format!("{presample} --device cuda")) else {
        return;
    };
    let presampled = printed(&program.output().unwrap());
    let counted = content(&folder.join("ds"));
    ok(folder, format!("{presample} --force"));
    assert_eq!(content(&folder.join("ds")), counted, "{presampled}");

    let train = format!("{TRAIN} --hidden 8 --parallelism single --model gat --checkpoint");
    let on_cpu = json(folder, format!("{train} cpu"));
    let mut program = with_gpus(folder, 1, &format!("{train} gpu --device cuda")).unwrap();
    let on_gpu = printed(&program.env("FAKE_CUDA_COUNTS", folder.join("counts")).output().unwrap());
    assert_close(&losses(&on_gpu), &losses(&on_cpu), "one GPU");
    // A GPU that does not wait for a rank loads torch's kernels when it needs them.
    assert_eq!(happened(&folder.join("counts"), "eager"), 0);
    let infer =
        |device: &str| format!("infer ds --checkpoint gpu --device {device} --out {device}.npy");
    let by_cpu = json(folder, infer("cpu"));
    let by_gpu = printed(&with_gpus(folder, 1, &infer("cuda")).unwrap().output().unwrap());
    assert_eq!(by_gpu["summary"], by_cpu["summary"]);
}

#[test]
fn the_cuda_part_of_torch_is_opened_where_libtorch_lies() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    community(folder.path(), 1200);
    let libtorch = Path::new(env!("CARGO_MANIFEST_DIR")).join("libtorch/lib").canonicalize();
    let run = format!("{TRAIN} --hidden 8 --parallelism single");
    let expected = losses(&json(folder.path(), &run));
    let mut program = command(folder.path(), format!("{run} --device cuda --json"));
    let given = libtorch.map_err(|error| error.to_string());
    let given = given.and_then(|libtorch| {
        give_late_gpus(&mut program, &libtorch, &folder.path().join("torch/lib"))
    });
    match given {
        Ok(()) => {
            assert_close(&losses(&printed(&program.output().unwrap())), &expected, "opened late")
        }
        Err(missing) => println!("skipped: {missing}"),
    }
}

#[test]
fn two_gpus_train_as_one_rank_does_in_one_process_and_in_two() {
    assert_several_train(
        &[("--parallelism split --placement partitioned", "nvlink")],
        &["--parallelism split"],
    );
}

#[test]
#[ignore = "takes long: make test-all"]
fn two_gpus_train_alike_with_other_links_and_placements() {
    let split = "--parallelism split --placement replicated --cache 20KiB --topology part";
    let data = "--parallelism data --placement peer";
    assert_several_train(&[(split, "none"), (data, "pcie")], &[data]);
}

/// Two GPUs train as one rank does with the options and links of `in_one`, and two processes with
/// the options of `in_two` as two threads do.
fn assert_several_train(in_one: &[(&str, &str)], in_two: &[&str]) {
    let folder = &*scratch();
    community(folder, 1200);
    ok(folder, "partition ds --parts 2 --partitioner random");
    let expected = losses(&json(folder, format!("{TRAIN} --hidden 8 --parallelism single")));
    let two = format!("{TRAIN} --hidden 8 --ranks 2 --device cuda");
    for &(options, link) in in_one {
        let Some(mut program) = with_gpus(folder, 2, &format!("{two} {options}")) else { return };
        let run = printed(
            &program.env("FAKE_CUDA_LINK", link).env("FAKE_CUDA_HASTE", "3").output().unwrap(),
        );
        assert_close(&losses(&run), &expected, options);
    }
    for options in in_two {
        let run = format!("{two} {options}");
        let threads = printed(&with_gpus(folder, 2, &run).unwrap().output().unwrap());
        let ranks = as_torchrun(&[folder, folder], &run);
        assert_eq!(losses(&printed(&ranks[0])), losses(&threads), "{options}");
        assert!(ranks[1].status.success(), "{}", String::from_utf8_lossy(&ranks[1].stderr));
        assert!(
            happened(&folder.join("counts"), "eager") > 0,
            "NCCL waits for a rank while another loads"
        );
    }
}

/// How often this happened in the processes that were given the file `counts`.
fn happened(counts: &Path, what: &str) -> u64 {
    let text = std::fs::read_to_string(counts).unwrap();
    let counts = text
        .lines()
        .filter_map(|line| line.strip_prefix(what)?.strip_prefix(' ')?.parse::<u64>().ok());
    counts.sum()
}

/// The outputs of processes, one with a GPU in each of `folders`, with the variables of torchrun.
pub fn as_torchrun(folders: &[&Path], args: &str) -> Vec<Output> {
    start_with_gpus(folders, args)
        .into_iter()
        .map(|process| process.wait_with_output().unwrap())
        .collect()
}

/// Starts these processes.
pub fn start_with_gpus(folders: &[&Path], args: &str) -> Vec<Child> {
    let ranks = folders.len() as u32;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() - 1;
    let start = |rank: u32| {
        let mut program = with_gpus(folders[rank as usize], ranks, args).unwrap();
        let variables = [
            ("RANK", rank),
            ("LOCAL_RANK", rank),
            ("WORLD_SIZE", ranks),
            ("LOCAL_WORLD_SIZE", ranks),
        ];
        program.envs(variables.map(|(name, value)| (name, value.to_string())));
        program.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        program.env("FAKE_CUDA_COUNTS", folders[rank as usize].join("counts"));
        program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    (0..ranks).map(start).collect()
}

#[test]
#[ignore = "takes long: make test-all"]
fn gpus_are_measured_and_planned_with() {
    let folder = &*scratch();
    community(folder, 400);
    let doctor = "doctor --profile gpus.toml --device cuda";
    let alone = fails(folder, doctor, 1);
    assert!(alone.contains("--device cuda") && !folder.join("gpus.toml").exists(), "{alone}");
    let Some(mut program) = with_gpus(folder, 3, doctor) else { return };
    printed(&program.env("FAKE_CUDA_MEMORY_MIB", "100").output().unwrap());
    let profile = std::fs::read_to_string(folder.join("gpus.toml")).unwrap();
    for line in [
        "device = \"cuda\"",
        "ranks = 3",
        "memory = 104857600.0",
        "[bus]",
        "[peer]",
        "shared = false",
    ] {
        assert!(profile.contains(line), "{line}: {profile}");
    }
    let said = json(
        folder,
        "plan ds --profile gpus.toml --layers 2 --hidden 8 --fanouts 4,4 --batch-size 100",
    );
    assert!(
        said["plans"]
            .as_array()
            .unwrap()
            .iter()
            .any(|plan| plan["name"] == "Quiver" && plan["ranks"] == 3)
    );
}

#[test]
fn doctor_fails_where_a_gpu_is_required_and_none_can_be_used() {
    let folder = &*scratch();
    let doctor = |variable: &str, value: &str| {
        let program = with_gpus(folder, 1, "doctor --require-gpu");
        program.map(|mut program| program.env(variable, value).output().unwrap())
    };
    for (variable, why) in [("FAKE_CUDA_DEVICES", "GPUs: "), ("FAKE_CUDA_POOLS", "GPU 0: ")] {
        let Some(output) = doctor(variable, "0") else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{variable}: {said}");
        let line = format!("error: --require-gpu: no GPU can be used: {why}");
        assert!(
            said.lines().filter(|said| said.starts_with(&line)).count() == 1,
            "{variable}: {said}"
        );
    }
}

/// Room for only the first of its tensors, or for many: the model, a mini-batch, backward, the
/// evaluation.
#[test]
fn a_gpu_without_the_memory_is_told_in_one_line() {
    let folder = &*scratch();
    community(folder, 1200);
    let train = format!("{TRAIN} --parallelism single --device cuda");
    let big = (format!("{train} --hidden 4096"), ("FAKE_CUDA_MEMORY_MIB", "24".to_string()));
    let refused = [1, 60].map(|nth| ("FAKE_CUDA_REFUSE", format!("fake_cuda_allocate:{nth}")));
    let small = refused.map(|refused| (format!("{train} --hidden 8"), refused));
    for (train, (variable, value)) in small.into_iter().chain([big]) {
        let Some(mut program) = with_gpus(folder, 1, &train) else { return };
        let output = program.env(variable, &value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{value}: {said}");
        let complaints: Vec<&str> = said.lines().filter(|line| line.contains("memory, ")).collect();
        let [line] = complaints[..] else { panic!("{value}: {said}") };
        assert!(
            line.starts_with("error: rank 0: GPU 0 is out") || line.starts_with("error: layer"),
            "{value}: {said}"
        );
        assert!(!said.contains("internal") && !said.contains("libtorch"), "{value}: {said}");
    }
}
