//! The runbook for a machine with a GPU (`scripts/gpu`), as far as it goes where there is none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use gsplit_gpu_sim::give_late_gpus;

use crate::support::{root, scratch};

/// Stages that need a GPU.
const ON_GPUS: [&str; 9] =
    ["first", "losses", "tests", "starts", "sanitizer", "pytorch", "bench", "several", "models"];

/// run.sh for `stage`, with these programs and all that it writes in `folder`.
fn runbook(folder: &Path, stage: &str) -> Command {
    let mut command = Command::new("bash");
    command
        .arg(root().join("scripts/gpu/run.sh"))
        .arg(stage)
        .env("WORK", folder.join(format!("work-{stage}")));
    command
        .env("OUT", folder)
        .env("PROGRAMS", Path::new(env!("CARGO_BIN_EXE_gsplit")).parent().unwrap());
    for name in ["DEVICE", "LIMIT", "PYTHON", "CUDA_HOME", "ARCH", "STARTS"] {
        command.env_remove(name);
    }
    command.env("VERTICES", "1500").env("BATCH_SIZE", "256");
    command
}

/// Its exit code and its output.
fn said(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat();
    (output.status.code(), text)
}

/// A file of the archive of `stage`.
fn packed(folder: &Path, stage: &str, file: &str) -> String {
    let archive = folder.join(format!("{stage}.tgz"));
    let output =
        Command::new("tar").args(["-xzOf"]).arg(archive).arg(format!("./{file}")).output().unwrap();
    assert!(output.status.success(), "{stage} {file}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a program that runs `script`.
fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn every_stage_says_in_one_line_that_there_is_no_gpu() {
    let folder = &*scratch();
    let (code, text) = said(&runbook(folder, "first").arg("--").output().unwrap());
    assert_eq!(code, Some(2), "more than a stage: {text}");
    // In place of `gsplit doctor --require-gpu`, whose own test is in `gpus.rs`.
    let complaint = "error: --require-gpu: no GPU can be used: GPUs: none";
    program(&folder.join("gsplit"), &format!("echo '{complaint}' >&2; exit 1"));
    for stage in ON_GPUS {
        let (code, text) = said(&runbook(folder, stage).env("PROGRAMS", folder).output().unwrap());
        assert_eq!(code, Some(1), "{stage}: {text}");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(lines, [complaint], "{stage}: {text}");
        assert!(packed(folder, stage, "doctor.txt").contains(complaint), "{stage}");
    }
}

#[test]
fn registers_and_spills_of_every_kernel_are_one_table() {
    let folder = &*scratch();
    let nvcc = |script: &str| {
        program(&folder.join("nvcc"), script);
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        said(&runbook(folder, "sources").env("PATH", path).env("ARCH", "sm_90").output().unwrap())
    };
    // Printed like this by ptxas of CUDA 13.0.
    let (code, text) = nvcc(
        "cat <<END
ptxas info    : Compiling entry function 'some_kernel' for 'sm_90'
ptxas info    : Function properties for some_kernel
    24 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 2048 bytes smem
ptxas info    : Compile time = 15.730 ms
ptxas info    : Compiling entry function 'other_kernel' for 'sm_90'
ptxas info    : Function properties for other_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers
END",
    );
    assert_eq!(code, Some(0), "{text}");
    let sources =
        fs::read_dir(root().join("kernels/src")).unwrap().map(|entry| entry.unwrap().path());
    let files = sources.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
    let files = files
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "cu"))
        .count();
    assert!(
        text.contains(&format!("{} kernels, {files} spill, at most 255 registers", 2 * files)),
        "{text}"
    );
    assert!(
        text.contains("    16      8       255    24   2048        1  some_kernel (spmm-cuda.cu)"),
        "{text}"
    );
    let table = packed(folder, "sources", "registers.tsv");
    assert_eq!(
        table
            .lines()
            .filter(|line| line.starts_with("0\t0\t28\t0\t0\t0\tother_kernel\t./"))
            .count(),
        files
    );

    let (code, text) = nvcc("case $* in *unique*) echo 'cuda.cu(3): error: no'; exit 1;; esac");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("cuda.cu(3): error: no\nerror: nvcc failed on unique-cuda.cu"), "{text}");
}

#[test]
fn a_stage_keeps_to_its_time_and_packs_what_there_is() {
    let folder = &*scratch();
    let (code, text) =
        said(&runbook(folder, "losses").env("DEVICE", "cpu").env("LIMIT", "9").output().unwrap());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("== train: left out, the time is over"), "{text}");
    assert!(
        folder.join("losses.tgz").is_file() && !folder.join("work-losses/graph-1500").exists(),
        "{text}"
    );
}

#[test]
#[ignore = "takes long: make test-all"]
fn torch_s_cuda_part_is_opened_by_the_runbook_where_python_has_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path();
    let libtorch = root().join("libtorch/lib").canonicalize();
    let torch = folder.join("torch");
    let mut program = runbook(folder, "dlopen");
    program.env("PYTHONPATH", folder);
    let given = libtorch.map_err(|error| error.to_string());
    if let Err(missing) =
        given.and_then(|libtorch| give_late_gpus(&mut program, &libtorch, &torch.join("lib")))
    {
        return println!("skipped: {missing}");
    }
    fs::write(torch.join("__init__.py"), "").unwrap();
    let (code, text) = said(&program.output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    let opened = torch.join("lib/libtorch_cuda.so");
    assert!(
        packed(folder, "dlopen", "dlopen.txt").contains(&format!("opened: {}", opened.display())),
        "{text}"
    );
    let result = packed(folder, "dlopen", "results.jsonl");
    assert!(
        result.contains(r#""step": "dlopen", "status": 0"#)
            && result.contains(r#""verdict": "go""#),
        "{result}"
    );
    assert!(packed(folder, "dlopen", "dlopen.jsonl").contains("\"loss\""));
}

#[test]
fn a_bundle_that_a_machine_does_not_take_is_refused() {
    let folder = &*scratch();
    for (name, bytes) in [("large", 700), ("small", 200), ("python/least", 99)] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![0; bytes]).unwrap();
    }
    let size = |limit: usize| {
        let code =
            format!("import sys, bundle; print(bundle.size(bundle.Path(sys.argv[1]), {limit}))");
        let mut python = Command::new("python3");
        python.args(["-B", "-c", &code]).arg(folder).env("PYTHONPATH", root().join("scripts/gpu"));
        said(&python.output().unwrap())
    };
    assert_eq!(size(999), (Some(0), "999\n".to_string()));
    let (code, text) = size(998);
    assert!(
        code == Some(1) && text.starts_with("error: ") && text.contains("large 0.0 MB, small"),
        "{text}"
    );
}
