//! Processes of one host, and the feature rows that they keep in memory.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use serde_json::Value;

use super::ends::{logged, others_after};
use super::{as_rank, complaint, free_port, output, outputs, start_in};
use crate::gpus::printed;
use crate::support::{command, community, json, losses, ok, scratch};

const TRAIN: &str = "train ds --layers 2 --hidden 8 --fanouts 5,5 --batch-size 1024 --parallelism split --eval-every 0";

/// Bytes of a row, and of its number.
const ROW: u64 = 64 * 4 + 4;

/// A dataset with this number of vertices, features of 64 values, and a partition into two parts.
fn dataset(folder: &Path, vertices: u32) {
    community(folder, vertices);
    ok(folder, "partition ds --parts 2 --partitioner random");
}

/// The least budget, in MiB, that the error of two processes names.
fn least(folder: &Path) -> u64 {
    let refused = outputs(folder, 2, &format!("{TRAIN} --threads 1 --memory 64MiB"));
    let lines: Vec<String> = refused.iter().map(complaint).collect();
    assert!(
        lines[0].starts_with("error: --memory: 64 MiB are too few, the graph takes "),
        "{lines:?}"
    );
    assert_eq!(lines[0], lines[1]);
    assert!(refused.iter().all(|output| output.status.code() == Some(2)), "{refused:?}");
    let least =
        lines[0].split("pass --memory ").nth(1).and_then(|rest| rest.split("MiB or more").next());
    least.unwrap().parse().unwrap()
}

/// Memory that `process` shares with others: its inode and bytes.
fn shared_memory(process: &Child) -> Option<(String, u64)> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.id())).unwrap();
    let mut found = maps.lines().filter(|line| line.contains("/memfd:gsplit-rows"));
    let fields: Vec<&str> = found.next()?.split_whitespace().collect();
    let (from, to) = fields[0].split_once('-').unwrap();
    let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
    assert!(found.next().is_none(), "{maps}");
    Some((fields[4].to_string(), to - from))
}

/// The first epochs of a log.
fn epochs(folder: &Path) -> Vec<Value> {
    let log = fs::read_to_string(folder.join("log.jsonl")).unwrap();
    log.lines().take(2).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Feature rows that were loaded, and the numbers of these from disk and from memory.
fn counts(epoch: &Value) -> [u64; 3] {
    ["rows_loaded", "rows_from_disk", "rows_kept"].map(|name| epoch[name].as_u64().unwrap_or(0))
}

#[test]
fn processes_keep_one_copy_of_the_hottest_rows_in_what_they_leave_together() {
    let folder = &*scratch();
    dataset(folder, 60_000);
    let more = 4;
    let budget = least(folder) + more;
    let args =
        format!("{TRAIN} --threads 1 --epochs 100000 --quiet --log log.jsonl --memory {budget}MiB");
    let ranks = start_in(&[folder; 2], &args);
    logged(folder, 2);
    let memory: Vec<_> = ranks.iter().map(|process| shared_memory(process).unwrap()).collect();
    let (_, bytes) = memory[0];
    assert_eq!(memory[0], memory[1], "one copy");
    // A process of the same size holds nearly the same; half of the rest is for edges, which do not
    // fit.
    assert!(
        bytes > (more - 2) << 20 && bytes < (more + 4) << 20,
        "{bytes} bytes of rows in {budget} MiB each"
    );
    let (said, _) = others_after(ranks, 0, "-KILL");
    assert!(said[0].contains("rank 0 left the group: its process has ended"), "{said:?}");
    let threads =
        json(folder, format!("{TRAIN} --threads 2 --ranks 2 --epochs 2 --load-features disk"));
    let of_threads = threads["summary"]["epochs"].as_array().unwrap();
    for (found, expected) in epochs(folder).iter().zip(of_threads) {
        assert_eq!(found["loss"], expected["loss"]);
        // Each row is loaded by its owner, once: from disk, or from the copy.
        let ([loaded, from_disk, kept], [all, ..]) = (counts(found), counts(expected));
        assert_eq!((loaded, from_disk + kept), (all, all));
        // Vertices with the most out-edges are loaded more often than others.
        let part = bytes as f64 / ROW as f64 / 60_000.0;
        assert!(
            from_disk > 0 && kept as f64 > part * loaded as f64,
            "{kept} of {loaded}, {part} are kept"
        );
    }
}

#[test]
#[ignore = "takes long: make test-all"]
fn all_rows_are_in_memory_once_where_they_fit() {
    let folder = &*scratch();
    dataset(folder, 30_000);
    // No single process has the memory for all 7.3 MiB.
    let budget = least(folder) + 5;
    let threads = json(folder, format!("{TRAIN} --threads 2 --ranks 2 --epochs 2"));
    let ranks = start_in(
        &[folder; 2],
        &format!(
            "{TRAIN} --threads 1 --epochs 100000 --log log.jsonl --quiet --memory {budget}MiB"
        ),
    );
    logged(folder, 2);
    let memory: Vec<_> = ranks.iter().map(|process| shared_memory(process).unwrap()).collect();
    assert_eq!(memory[0], memory[1], "one copy");
    let (_, bytes) = memory[0];
    assert!((30_000 * 256..30_000 * 256 + 8192).contains(&bytes), "{bytes}");
    others_after(ranks, 1, "-KILL");
    let found: Vec<_> =
        epochs(folder).iter().map(|epoch| epoch["loss"].as_f64().unwrap()).collect();
    assert_eq!(found, losses(&threads));
    assert_eq!(epochs(folder)[0]["rows_from_disk"].as_u64().unwrap_or(0), 0);
    let few = format!("{TRAIN} --threads 1 --load-features memory --memory {}MiB", budget - 3);
    let lines: Vec<String> = outputs(folder, 2, &few).iter().map(complaint).collect();
    assert_eq!(lines[0], lines[1]);
    assert!(lines[0].contains("4 MiB feature rows, the graph takes "), "{lines:?}");
}

/// A program that is not allowed to look into this user's processes, if this system starts one.
fn stranger(folder: &Path) -> Option<Command> {
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_gsplit"));
        program.uid(65_534);
        return Some(program);
    }
    let in_namespace = || {
        let mut program = Command::new("unshare");
        program.arg("--user");
        program
    };
    if !in_namespace().arg("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: this system starts no process that may not look into another");
        return None;
    }
    let mut program = in_namespace();
    program.arg(env!("CARGO_BIN_EXE_gsplit"));
    Some(program)
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_process_that_cannot_look_into_another_keeps_rows_of_its_own() {
    let folder = &*scratch();
    dataset(folder, 30_000);
    let threads = json(folder, format!("{TRAIN} --threads 2 --ranks 2 --epochs 2"));
    // One process has not the memory for all rows.
    for (options, reads) in [
        ("--load-features memory".to_string(), false),
        (format!("--memory {}MiB", least(folder) + 5), true),
    ] {
        let Some(mut other) = stranger(folder) else { return };
        let args = format!("{TRAIN} --threads 1 --epochs 2 --json {options}");
        other.current_dir(folder).args(args.split(' '));
        let port = free_port();
        let mut first = command(folder, &args);
        first.env("GSPLIT_PROGRESS", "1");
        let first = as_rank(first, port, 0, 2).spawn().unwrap();
        let other = output(as_rank(other, port, 1, 2).spawn().unwrap());
        let first = output(first);
        let run = printed(&first);
        assert_eq!(losses(&run), losses(&threads), "{options}");
        let told = String::from_utf8_lossy(&first.stderr).into_owned();
        let expected = "each process of a host keeps feature rows of its own: rank 1 cannot open the memory of rank 0: ";
        assert!(told.contains(expected) && other.status.success(), "{told}");
        let epoch = &run["summary"]["epochs"][0];
        let [loaded, from_disk, kept] = counts(epoch);
        assert_eq!(
            (from_disk > 0, from_disk + kept),
            (reads, if reads { loaded } else { 0 }),
            "{options}"
        );
    }
}
