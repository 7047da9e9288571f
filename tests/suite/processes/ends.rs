//! Processes that fail, do not meet, or do not belong: all end, each with one line.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use super::{TRAIN, complaint, free_port, output, outputs_in, start};
use crate::gpus::{start_with_gpus, with_gpus};
use crate::support::{community, ok, scratch};

/// Number of epochs that the processes in `folder` have logged, once these are `least`.
pub fn logged(folder: &Path, least: usize) -> usize {
    let since = Instant::now();
    loop {
        let lines =
            fs::read_to_string(folder.join("log.jsonl")).unwrap_or_default().lines().count();
        if lines >= least {
            return lines;
        }
        assert!(since.elapsed() < Duration::from_secs(100), "no epoch has ended");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Three processes that meet at `port` and train for ever, once they have trained an epoch.
fn underway(folder: &Path, port: u16, timeout: u64) -> Vec<Child> {
    community(folder, 600);
    // While rank 0 evaluates the others wait without a limit.
    let args = format!(
        "{TRAIN} --parallelism data --threads 1 --epochs 1000000 --eval-every 0 --timeout \
         {timeout} --log log.jsonl --quiet"
    );
    let started = (0..3).map(|rank| start(folder, port, rank, 3, &args)).collect();
    logged(folder, 2);
    started
}

/// Sends process `rank` a signal; returns the others' output and the time that they took.
pub fn others_after(mut ranks: Vec<Child>, rank: usize, signal: &str) -> (Vec<String>, Duration) {
    let kill = |child: &Child, signal: &str| {
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    };
    let mut gone = ranks.remove(rank);
    kill(&gone, signal);
    let since = Instant::now();
    let said = ranks.into_iter().map(|process| complaint(&output(process))).collect();
    let took = since.elapsed();
    gone.kill().unwrap();
    gone.wait().unwrap();
    (said, took)
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_process_with_a_gpu_that_is_killed_ends_the_other_at_once() {
    let folder = &*scratch();
    community(folder, 600);
    let args = format!(
        "{TRAIN} --parallelism data --ranks 2 --device cuda --epochs 1000000 --log log.jsonl"
    );
    if with_gpus(folder, 2, &args).is_none() {
        return;
    }
    let ranks = start_with_gpus(&[folder; 2], &args);
    logged(folder, 2);
    let (said, took) = others_after(ranks, 1, "-KILL");
    assert!(took < Duration::from_secs(45), "{took:?}: {said:?}");
    assert!(said[0].contains("rank 1 left the group: its process has ended"), "{said:?}");
}

/// Each of three that train: the others name it once their time is over.
#[test]
#[ignore = "takes long: make test-all"]
fn a_process_that_stops_is_named_once_the_time_is_over() {
    for rank in [0, 2] {
        let folder = &*scratch();
        let (said, took) = others_after(underway(folder, free_port(), 10), rank, "-STOP");
        assert!(took < Duration::from_secs(60), "{took:?}");
        for line in &said {
            let waited = line.contains("waited 10 s in ")
                && line.contains(&format!("for rank {rank}, which"));
            // The store stops with rank 0: whoever is cut off by another's end can ask nobody.
            let cut =
                rank == 0 && line.contains("rank 0 left the group: its process does not answer");
            assert!(waited || cut, "{said:?}");
        }
    }
}

#[test]
fn a_process_that_is_early_waits_for_the_first_one() {
    let folder = &*scratch();
    community(folder, 300);
    let args = format!("{TRAIN} --parallelism data --epochs 1 --threads 1 --timeout 60");
    let port = free_port();
    let early = start(folder, port, 1, 2, &args);
    thread::sleep(Duration::from_millis(700));
    let first = start(folder, port, 0, 2, &args);
    for process in [first, early] {
        let output = output(process);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn processes_that_cannot_train_together_all_end_with_the_reason() {
    let folder = &*scratch();
    community(folder, 300);
    let empty = folder.join("empty");
    fs::create_dir(&empty).unwrap();
    ok(folder, "partition ds --parts 2 --partitioner random");
    let train = format!("{TRAIN} --epochs 1 --threads 1 --timeout 60");
    let lacking = "error: rank 1 left the group: ds:";
    for (folders, options, code, told) in [
        (&[folder, &empty][..], "--parallelism data", 1, lacking),
        (
            &[folder; 2],
            "--parallelism data --ranks 3",
            2,
            "error: --ranks 3: 2 processes were started, one is a rank",
        ),
    ] {
        for (rank, output) in outputs_in(folders, &format!("{train} {options}")).iter().enumerate()
        {
            let told = if rank == 1 {
                told.replace("rank 1 left the group: ", "")
            } else {
                told.to_string()
            };
            assert!(complaint(output).starts_with(&told), "{options}: {output:?}");
            assert_eq!(output.status.code(), Some(code), "{output:?}");
        }
    }
}

#[test]
fn a_second_run_at_the_port_of_one_is_refused_and_all_end_at_once_when_a_process_is_killed() {
    let folder = &*scratch();
    let port = free_port();
    let mut first = underway(folder, port, 60);
    let args = format!("{TRAIN} --parallelism data --threads 1 --epochs 1 --timeout 20");
    for (rank, size, told) in
        [(0, 3, "the port is taken"), (1, 3, "--epochs 1 of rank 1 is 1000000 on rank 0")]
    {
        let line = complaint(&output(start(folder, port, rank, size, &args)));
        assert!(line.contains(told), "{line}");
    }
    let epochs = logged(folder, 0);
    logged(folder, epochs + 2);
    assert!(first.iter_mut().all(|rank| rank.try_wait().unwrap().is_none()));
    let (said, took) = others_after(first, 0, "-KILL");
    assert!(took < Duration::from_secs(45), "{took:?}: {said:?}");
    for line in &said {
        assert!(line.contains("rank 0 left the group: its process has ended"), "{said:?}");
    }
}
