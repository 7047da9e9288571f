//! Invariant 10: a killed stage loses nothing that was finished; a flipped bit is found and the
//! file named.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gsplit_store::check;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{command, community, content, ended, errors, fails, gsplit, ok, scratch};

#[test]
fn a_flipped_bit_in_any_artifact_is_reported_by_name() {
    let folder = &*scratch();
    community(folder, 600);
    ok(folder, "presample ds --fanouts 5,5 --epochs 2");
    ok(folder, "partition ds --parts 3");
    ok(folder, "place ds --cache 10%");
    ok(folder, "verify ds");
    let files = content(&folder.join("ds"));
    assert!(files.len() >= 15, "{:?}", files.keys());
    for (name, good) in files {
        let (file, name) = (folder.join("ds").join(&name), format!("ds/{name}"));
        for (at, bit) in [(good.len() / 2, 1), (good.len() - 1, 16)] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            fs::write(&file, &bad).unwrap();
            let output = gsplit(folder, "verify ds");
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            assert_eq!(output.status.code(), Some(1), "{name}, byte {at}: {text}");
            assert!(text.contains(&name), "{name}, byte {at}: {text}");
            let remedy = match name.split('/').nth(1).unwrap() {
                kind @ ("presample" | "partition") => format!("or run `gsplit {kind} ds --key "),
                "placement" => "or run `gsplit place ds --key ".into(),
                _ => "make the dataset again with --force".into(),
            };
            assert!(text.contains(&remedy) && !text.contains("gsplit verify"), "{text}");
        }
        fs::remove_file(&file).unwrap();
        let output = gsplit(folder, "verify ds");
        assert_eq!(output.status.code(), Some(1), "{name} is missing");
        fs::write(&file, &good).unwrap();
    }
    ok(folder, "verify ds");
}

/// Flips a bit of the file, `back` bytes before its end, where it changes a number and no form.
fn flip(file: &Path, back: usize) {
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.len() - back;
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

#[test]
fn damage_is_found_by_who_opens_it() {
    let folder = &*scratch();
    community(folder, 600);
    ok(folder, "presample ds --fanouts 5,5 --epochs 2 --key k");
    ok(folder, "partition ds --parts 3 --key p");
    // Long enough unchanged that sound files are noted.
    std::thread::sleep(Duration::from_millis(2100));
    let export = "export ds --format pyg --out out";
    let evaluate = "evaluate ds --batches 2 --json";
    let partition = "partition ds --parts 2 --key q";
    for (file, back, user) in [
        ("topology/indices.npy", 4, "presample ds --fanouts 5 --key q"),
        ("nodes/label.npy", 4, export),
        ("nodes/feat.arrow", 40_000, export),
        ("splits/test.npy", 4, export),
        ("presample/k/edge.npy", 4, partition),
        ("partition/p/cache_order.npy", 4, evaluate),
        ("partition/p/assignment.npy", 2, evaluate),
    ] {
        let path = folder.join("ds").join(file);
        let good = fs::read(&path).unwrap();
        let results =
            || ["out", "ds/presample/q", "ds/partition/q"].map(|result| folder.join(result));
        let clean = || {
            results()
                .iter()
                .filter(|result| result.exists())
                .for_each(|result| fs::remove_dir_all(result).unwrap())
        };
        ok(folder, user);
        clean();
        flip(&path, back);
        let line = fails(folder, user, 1);
        assert!(line.contains(file) && line.contains("checksum"), "{line}");
        assert!(results().iter().all(|result| !result.exists()), "{file}: a result was made of it");
        let unchecked = gsplit(folder, format!("--no-check {user}"));
        let text = String::from_utf8_lossy(&unchecked.stderr);
        assert!(!text.contains("with checksum"), "{file}: {text}");
        clean();
        fs::write(&path, good).unwrap();
    }
    ok(folder, "verify ds");
    assert!(folder.join("ds").join(check::NOTE).exists());
}

#[test]
fn figures_of_damaged_files_are_not_shown() {
    let folder = &*scratch();
    let generate = "generate community --vertices 600 --edges 3000 --feature-dim 4 --out ds";
    ok(folder, generate);
    ok(folder, "presample ds --fanouts 5,5 --epochs 2 --key k");
    ok(folder, "partition ds --parts 3 --key p");
    let (inspect, report) = ("inspect ds", "report ds");
    for (file, users) in [
        ("topology/indptr.npy", &[inspect, generate][..]),
        ("topology/indices.npy", &[inspect, generate]),
        ("nodes/label.npy", &[inspect]),
        ("splits/train.npy", &[inspect, generate]),
        ("splits/valid.npy", &[inspect, generate]),
        ("presample/k/presample.json", &[inspect]),
        ("presample/k/input.npy", &[inspect]),
        ("partition/p/assignment.npy", &[inspect, report]),
        ("partition/p/partition.json", &[inspect, report]),
    ] {
        let path = folder.join("ds").join(file);
        let good = fs::read(&path).unwrap();
        flip(&path, 8);
        for &user in users {
            let output = gsplit(folder, user);
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            let errors: Vec<&str> =
                text.lines().filter(|line| line.starts_with("error: ")).collect();
            let is_named = errors.len() == 1 && errors[0].contains(file);
            assert!(output.status.code() == Some(1) && is_named, "{user:?}: {text}");
            assert!(
                !text.contains("600 vertices") && !folder.join("report.html").exists(),
                "{user:?}, {file}: {text}"
            );
        }
        fs::write(&path, good).unwrap();
    }
    [inspect, report, generate].into_iter().for_each(|user| drop(ok(folder, user)));
}

#[test]
fn damage_in_a_long_file_ends_the_run_before_its_result() {
    let folder = &*scratch();
    let size = "--vertices 20000 --edges 40000 --feature-dim 512";
    ok(folder, format!("generate community --out ds {size}"));
    let export = "export ds --format pyg --out out";
    ok(folder, export);
    fs::remove_dir_all(folder.join("out")).unwrap();
    flip(&folder.join("ds/nodes/feat.arrow"), 20_000_000);
    let mut users = vec![export];
    if cfg!(feature = "train") {
        users.push(
            "train ds --parallelism single --layers 1 --fanouts 2 --hidden 4 --epochs 1 \
             --batch-size 5000 --checkpoint run --json",
        );
    }
    for user in users {
        let output = gsplit(folder, user);
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{user:?}: {errors}");
        let line = errors.trim_end().lines().last().unwrap();
        assert!(
            line.starts_with("error: ds/nodes/feat.arrow: ") && line.contains("checksum"),
            "{errors}"
        );
        // With --json only the failure is printed there too.
        let printed = String::from_utf8(output.stdout).unwrap();
        let result = printed.lines().find(|line| !line.starts_with("{\"error\":"));
        assert!(result.is_none(), "{user:?} printed a result: {printed}");
        assert!(!folder.join("out").exists() && !folder.join("run/epoch-00001").exists());
    }
    ok(folder, format!("--no-check {export}"));
}

/// Kills `args` after each of several delays; whatever the moment, `there` is then absent or sound,
/// and running again works.
fn kill_at_many_moments(folder: &Path, args: &str, there: &str) {
    for delay in [0, 10, 80] {
        let mut child =
            command(folder, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();
        if folder.join(there).exists() {
            ok(folder, "verify ds");
        }
    }
    ok(folder, args);
    ok(folder, "verify ds");
    assert_eq!(unfinished(folder), [""; 0]);
}

/// What unfinished work has left below `folder`.
fn unfinished(folder: &Path) -> Vec<String> {
    content(folder).into_keys().filter(|name| name.contains(".partial")).collect()
}

#[test]
fn killing_a_stage_at_any_moment_leaves_the_state_before_or_after() {
    let folder = &*scratch();
    let generate = "generate community --vertices 20000 --edges 200000 --out ds";
    kill_at_many_moments(folder, generate, "ds/dataset.json");
    let first = fs::read(folder.join("ds/dataset.json")).unwrap();
    kill_at_many_moments(folder, "presample ds --fanouts 5,5 --epochs 2", "ds");
    kill_at_many_moments(folder, "partition ds --parts 4", "ds");
    kill_at_many_moments(folder, &format!("{generate} --seed 7 --force"), "ds");
    assert_ne!(fs::read(folder.join("ds/dataset.json")).unwrap(), first);
}

/// Whether the process has set its handler for SIGINT; true too when it is gone, so that nobody
/// waits for it.
fn catches_interrupts(process: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else { return true };
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0
}

/// Output of a process that is interrupted `delay_ms` after it has set its handler.
fn interrupted(mut program: Command, delay_ms: u64) -> Output {
    let child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !catches_interrupts(child.id()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(delay_ms));
    // It may have ended meanwhile.
    let _ = kill_process(Pid::from_child(&child), Signal::INT);
    child.wait_with_output().unwrap()
}

#[test]
fn an_interrupt_is_one_line_and_removes_what_was_unfinished() {
    let folder = &*scratch();
    let output = interrupted(
        command(folder, "generate rmat --vertices 2000000 --edges 30000000 --out ds"),
        200,
    );
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.trim_end().lines().last().unwrap().starts_with("interrupted:"), "{errors}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "nothing is left");
}

/// Interrupts `args` at many moments; the exit code is 130 with one last line, or the command had
/// finished.
fn interrupt_at_many_moments(folder: &Path, args: &str, check: impl Fn()) {
    for delay in [0, 12, 100] {
        let output = interrupted(command(folder, args), delay);
        let errors = errors(&output);
        let complaints = errors
            .lines()
            .filter(|line| line.starts_with("interrupted:") || line.starts_with("error:"));
        match output.status.code() {
            Some(0) => {}
            Some(130) => assert_eq!(complaints.count(), 1, "after {delay} ms: {errors}"),
            other => panic!("after {delay} ms: exit {other:?}: {errors}"),
        }
        assert_eq!(unfinished(folder), [""; 0], "after {delay} ms");
        check();
    }
}

#[test]
fn interrupts_never_publish_half_an_artifact_nor_lose_a_whole_one() {
    let folder = &*scratch();
    let generate = "generate community --vertices 3000 --edges 20000 --out ds";
    interrupt_at_many_moments(folder, generate, || {
        if folder.join("ds").exists() {
            ok(folder, "verify ds");
            fs::remove_dir_all(folder.join("ds")).unwrap();
        }
    });
    ok(folder, generate);
    interrupt_at_many_moments(folder, &format!("{generate} --force"), || {
        drop(ok(folder, "verify ds"))
    });
}

#[cfg(feature = "train")]
#[test]
fn interrupted_training_ends_cleanly() {
    let folder = &*scratch();
    community(folder, 2000);
    ok(folder, "presample ds --fanouts 5,5 --epochs 2");
    ok(folder, "partition ds --parts 4");
    let train = "train ds --layers 2 --fanouts 5,5 --hidden 16 --batch-size 64 --epochs 500";
    interrupt_at_many_moments(folder, train, || {});
}

#[cfg(feature = "train")]
#[test]
fn interrupted_training_says_what_is_left_and_how_to_go_on() {
    let folder = &*scratch();
    community(folder, 500);
    let train = "train ds --parallelism single --layers 2 --fanouts 3,3 --hidden 8 --epochs 100000";
    let ends = [
        ("--log a.jsonl", "nothing is kept, a run with --checkpoint DIR can be resumed"),
        (
            "--log b.jsonl --checkpoint run",
            "in run is kept; the same command with --resume goes on from there",
        ),
        (
            "--log b.jsonl --checkpoint run --resume",
            "in run is kept; the same command goes on from there",
        ),
    ];
    for (options, expected) in ends {
        let length = || {
            fs::metadata(folder.join(options.split(' ').nth(1).unwrap())).map_or(0, |log| log.len())
        };
        let before = length();
        let mut program = command(folder, format!("{train} {options}"));
        let child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Until an epoch is finished.
        while length() <= before {
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(130), "{errors}");
        let last = errors.trim_end().lines().last().unwrap();
        assert!(last.starts_with("interrupted: ") && last.ends_with(expected), "{errors}");
    }
}

/// Terminates the process of `program` `delay_ms` after it has set its handler; its output is read
/// after its end. It ends at once: the bound is wide, for a busy machine, and the work that is left
/// takes longer.
fn terminated(mut program: Command, delay_ms: u64) -> Output {
    let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !catches_interrupts(child.id()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(delay_ms));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    ended(child, 10)
}

#[cfg(feature = "train")]
#[test]
fn a_long_mini_batch_is_not_waited_for() {
    let folder = &*scratch();
    ok(folder, "generate community --vertices 2000 --edges 500000 --out ds");
    // Its one mini-batch is all edges in eight layers.
    let train = "train ds --parallelism single --fanouts all,all,all,all,all,all,all,all --hidden 512 --batch-size 2000 \
                 --epochs 1 --checkpoint run --json";
    let output = terminated(command(folder, train), 700);
    let line = "interrupted: no epoch was finished, so nothing is kept";
    assert_eq!((output.status.code(), errors(&output).trim_end()), (Some(143), line));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(told["exit"] == 143 && told["error"] == line, "{told}");
    assert_eq!(unfinished(folder), [""; 0]);
}

#[test]
fn an_interrupt_does_not_wait_for_who_reads_the_result() {
    // More than a pipe holds, and nobody reads it.
    let output = terminated(command(&scratch(), "--json completions bash"), 500);
    let errors = errors(&output);
    assert!(
        output.status.code() == Some(143) && errors.starts_with("interrupted: "),
        "{output:?}: {errors}"
    );
}

/// Mounts a file system of a megabyte as `full` in `folder` for the time of `test`; `None` if that
/// needs privileges.
fn on_small_disk<R>(folder: &Path, test: impl FnOnce() -> R) -> Option<R> {
    let full = folder.join("full");
    fs::create_dir(&full).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs", full.to_str().unwrap()])
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: mounting a small file system needs privileges");
        return None;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
    std::process::Command::new("umount").arg(full).status().unwrap();
    Some(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

#[test]
fn a_full_disk_is_one_line() {
    let folder = &*scratch();
    on_small_disk(folder, || {
        let early =
            fails(folder, "generate community --vertices 20000 --edges 200000 --out full/ds", 1);
        assert_eq!(fs::read_dir(folder.join("full")).unwrap().count(), 0, "nothing is begun");
        // Enough for a dataset, and then for nothing more.
        ok(folder, "generate community --vertices 300 --edges 900 --out full/ds");
        let mut filler = fs::File::create(folder.join("full/filler")).unwrap();
        while filler.write_all(&[0; 1 << 10]).is_ok() {}
        let late = fails(folder, "presample full/ds --fanouts 5", 1);
        // A checkpoint that begins to fit.
        let train = "train ds --parallelism single --layers 2 --fanouts 2,2 --epochs 1 --hidden 4000 --checkpoint full/run";
        let checkpoint = cfg!(feature = "train").then(|| {
            drop(filler);
            fs::remove_file(folder.join("full/filler")).unwrap();
            ok(folder, "generate community --vertices 300 --edges 900 --out ds");
            fails(folder, train, 1)
        });
        let left = unfinished(&folder.join("full"));
        assert!(early.contains("full: ") && early.contains("free some space"), "{early}");
        assert!(late.contains("full/ds/") && late.contains("free some space"), "{late}");
        if let Some(line) = checkpoint {
            assert!(
                line.contains("model.safetensors: ") && line.contains("free some space"),
                "{line}"
            );
        }
        assert_eq!(left, [""; 0], "unfinished files are removed");
    });
}

/// The space for a second checkpoint grows from nothing, so that the disk is full in each of its
/// files.
#[cfg(feature = "train")]
#[test]
fn a_checkpoint_that_does_not_fit_leaves_the_one_before() {
    let folder = &*scratch();
    ok(folder, "generate community --vertices 300 --edges 900 --out ds");
    let train = "train ds --parallelism single --layers 2 --fanouts 2,2 --hidden 32 --checkpoint full/run --log full/run.jsonl \
                 --tensorboard full/events --resume --quiet --epochs";
    let told = on_small_disk(folder, || {
        let full = folder.join("full");
        let filler = full.join("filler");
        ok(folder, format!("{train} 1"));
        let (first, written) =
            (content(&full.join("run/epoch-00001")), fs::read_dir(&full).unwrap().count());
        assert_eq!((first.len(), written), (3, 3));
        let mut told = Vec::new();
        for free_kib in (0..).step_by(16) {
            let _ = fs::remove_file(&filler);
            let room = rustix::fs::statvfs(&full).unwrap();
            let bytes = (room.f_bavail * room.f_frsize).saturating_sub(free_kib << 10);
            fs::write(&filler, vec![0; bytes as usize]).unwrap();
            let output = gsplit(folder, format!("{train} 2"));
            assert!(content(&full.join("run/epoch-00001")) == first, "{free_kib} KiB");
            if output.status.success() {
                break;
            }
            let line = errors(&output);
            assert!(
                line.starts_with("error: full/") && line.lines().count() == 1,
                "{free_kib} KiB: {line}"
            );
            assert!(
                line.contains(": the disk is full: free some space there or write elsewhere"),
                "{line}"
            );
            assert_eq!(unfinished(&full.join("run")), [""; 0], "{free_kib} KiB");
            told.push(line);
        }
        told
    });
    for file in ["model.safetensors", "optimizer.safetensors", "checkpoint.json"] {
        assert!(
            told.iter().flatten().any(|line| line.contains(file)) || told.is_none(),
            "{file}: {told:?}"
        );
    }
}
