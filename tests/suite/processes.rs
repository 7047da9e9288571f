//! Ranks as processes, as torchrun starts them: real ones, which torch joins over loopback.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::gpus::{printed, words};
use crate::support::{command, community, json, losses, ok};

const TRAIN: &str = "train ds --layers 2 --hidden 8 --fanouts 4,4 --batch-size 300 --dropout 0.2";

/// A port for the store, and with it torchrun's MASTER_PORT one below.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A process that is `rank` of `size`, which meet at `port`.
fn start(folder: &Path, port: u16, rank: usize, size: usize, args: &str) -> Child {
    let mut program = command(folder, &words(args));
    let variables =
        [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", size), ("MASTER_PORT", usize::from(port) - 1)];
    program.envs(variables.map(|(name, value)| (name, value.to_string()))).env("MASTER_ADDR", "127.0.0.1");
    program.env_remove("RUST_BACKTRACE").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What all of `size` processes with these arguments have said.
fn outputs(folder: &Path, size: usize, args: &str) -> Vec<Output> {
    let port = free_port();
    let started: Vec<Child> = (0..size).map(|rank| start(folder, port, rank, size, args)).collect();
    started.into_iter().map(|process| process.wait_with_output().unwrap()).collect()
}

/// The one line with which a process has failed.
fn complaint(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let complaints: Vec<&&str> = lines.iter().filter(|line| line.starts_with("error: ")).collect();
    let strange = ["panicked", "terminate", "[W", "[E", "Exception"].iter().any(|word| said.contains(word));
    assert!(complaints.len() == 1 && !strange, "{said}");
    complaints[0].to_string()
}

#[test]
fn processes_train_as_threads_and_as_one_rank_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 1500);
    ok(folder, &words("partition ds --parts 2 --partitioner random"));
    ok(folder, &words("partition ds --parts 4 --partitioner random"));
    let train = format!("{TRAIN} --epochs 2 --json");
    let single = losses(&json(folder, &words(&format!("{TRAIN} --epochs 2 --threads 1 --parallelism single"))));
    for (size, options) in [
        (2, "--parallelism split"),
        (2, "--parallelism data"),
        (2, "--parallelism owned"),
        (2, "--parallelism push-pull --eval-every 0"),
        (2, "--parallelism data --task link --valid-edges 0.05 --test-edges 0.05"),
        (4, "--parallelism split"),
        (4, "--parallelism split --groups 2"),
    ] {
        let threads = json(folder, &words(&format!("{TRAIN} --epochs 2 --threads {size} --ranks {size} {options}")));
        let ranks = outputs(folder, size, &format!("{train} --threads 1 {options}"));
        let found = losses(&printed(&ranks[0]));
        assert_eq!(found, losses(&threads), "{size} processes, {options}");
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-4 * b;
        let alike = options.contains("link") || found.iter().zip(&single).all(near);
        assert!(found.len() == 2 && alike, "{options}: {found:?}, one rank {single:?}");
        for other in &ranks[1..] {
            assert!(other.status.success() && other.stdout.is_empty(), "one rank speaks for all: {other:?}");
        }
    }
}

/// Three processes that train for ever, once they have trained an epoch.
fn underway(folder: &Path, timeout: u64) -> Vec<Child> {
    community(folder, 600);
    let (port, log) = (free_port(), folder.join("log.jsonl"));
    let args = format!("{TRAIN} --parallelism data --threads 1 --epochs 1000000 --timeout {timeout} --log log.jsonl");
    let started = (0..3).map(|rank| start(folder, port, rank, 3, &args)).collect();
    let since = Instant::now();
    while std::fs::read_to_string(&log).unwrap_or_default().lines().count() < 2 {
        assert!(since.elapsed() < Duration::from_secs(100), "no epoch has ended");
        thread::sleep(Duration::from_millis(20));
    }
    // Whoever prints goes on.
    started
}

/// Sends process `rank` a signal; what the others say then, and how long they took.
fn others_after(mut ranks: Vec<Child>, rank: usize, signal: &str) -> (Vec<String>, Duration) {
    // What rank 0 prints is read, or it would wait.
    let drained = ranks[0].stdout.take().map(|out| thread::spawn(move || BufReader::new(out).lines().count()));
    let kill = |child: &Child, signal: &str| {
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    };
    let mut gone = ranks.remove(rank);
    kill(&gone, signal);
    let since = Instant::now();
    let said = ranks.into_iter().map(|process| complaint(&process.wait_with_output().unwrap())).collect();
    let took = since.elapsed();
    gone.kill().unwrap();
    gone.wait().unwrap();
    drained.map(|drained| drained.join().unwrap());
    (said, took)
}

#[test]
fn a_process_that_is_killed_ends_the_others_at_once() {
    for rank in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let (said, took) = others_after(underway(folder.path(), 60), rank, "-KILL");
        assert!(took < Duration::from_secs(45), "{took:?}");
        for line in &said {
            assert!(line.contains(&format!("rank {rank} left the group: its process has ended")), "{said:?}");
        }
    }
}

#[test]
fn a_process_that_stops_is_named_once_the_time_is_over() {
    for rank in [0, 2] {
        let folder = tempfile::tempdir().unwrap();
        let (said, took) = others_after(underway(folder.path(), 10), rank, "-STOP");
        assert!(took < Duration::from_secs(60), "{took:?}");
        for line in &said {
            assert!(line.contains("waited 10 s in ") && line.contains(&format!("for rank {rank}, which")), "{said:?}");
        }
    }
}

#[test]
fn processes_that_do_not_meet_are_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 300);
    let args = format!("{TRAIN} --parallelism data --epochs 1 --threads 1 --timeout 12");
    let said = |process: Child| complaint(&process.wait_with_output().unwrap());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let line = said(start(folder, port, 0, 2, &args));
    assert!(line.contains(&format!("cannot listen at 127.0.0.1:{port}: the port is taken")), "{line}");
    let alone = start(folder, free_port(), 0, 2, &args);
    let early = start(folder, free_port(), 1, 2, &args);
    let port = free_port();
    let unlike = [start(folder, port, 0, 2, &args), start(folder, port, 1, 3, &args)];
    let line = said(alone);
    assert!(line.contains("rank 1 did not come to 127.0.0.1:") && line.contains("within 12 s"), "{line}");
    let line = said(early);
    assert!(line.contains("rank 1: rank 0 did not answer at 127.0.0.1:"), "{line}");
    for line in unlike.map(said) {
        assert!(line.contains("rank 0 was started as one of 2 ranks, rank 1 as one of 3"), "{line}");
    }
    // One that is late, but in time.
    let port = free_port();
    let late = start(folder, port, 1, 2, &args.replace("--timeout 12", "--timeout 60"));
    thread::sleep(Duration::from_secs(2));
    let first = start(folder, port, 0, 2, &args.replace("--timeout 12", "--timeout 60"));
    for process in [first, late] {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn processes_go_on_after_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 600);
    let train = format!("{TRAIN} --parallelism data --threads 1 --json --checkpoint");
    let run = |more: &str| losses(&printed(&outputs(folder, 2, &format!("{train} {more}"))[0]));
    let whole = run("whole --epochs 3");
    let parts = [run("kept --epochs 1"), run("kept --epochs 3 --resume")].concat();
    assert_eq!(parts, whole);
}
