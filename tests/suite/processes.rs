//! Ranks as processes, as torchrun starts them: real ones, which torch joins over loopback.

mod ends;
mod memory;
mod shards;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::gpus::printed;
use crate::support::{command, community, json, losses, ok, scratch};

const TRAIN: &str = "train ds --layers 2 --hidden 8 --fanouts 4,4 --batch-size 300 --dropout 0.2";

/// A port for the store, and with it torchrun's MASTER_PORT one below.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A process that is `rank` of `size`, which meet at `port`.
fn start(folder: &Path, port: u16, rank: usize, size: usize, args: &str) -> Child {
    as_rank(command(folder, args), port, rank, size).spawn().unwrap()
}

/// `program` as `rank` of `size`, which meet at `port`.
fn as_rank(mut program: Command, port: u16, rank: usize, size: usize) -> Command {
    let variables = [
        ("RANK", rank),
        ("LOCAL_RANK", rank),
        ("WORLD_SIZE", size),
        ("MASTER_PORT", usize::from(port) - 1),
    ];
    program
        .envs(variables.map(|(name, value)| (name, value.to_string())))
        .env("MASTER_ADDR", "127.0.0.1");
    program.env_remove("RUST_BACKTRACE").stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

/// A process in each of `folders`.
fn start_in(folders: &[&Path], args: &str) -> Vec<Child> {
    let (port, size) = (free_port(), folders.len());
    folders.iter().enumerate().map(|(rank, folder)| start(folder, port, rank, size, args)).collect()
}

fn output(process: Child) -> Output {
    process.wait_with_output().unwrap()
}

/// The outputs of processes with these arguments, one in each of `folders`.
fn outputs_in(folders: &[&Path], args: &str) -> Vec<Output> {
    start_in(folders, args).into_iter().map(output).collect()
}

/// The outputs of `size` processes in one folder.
fn outputs(folder: &Path, size: usize, args: &str) -> Vec<Output> {
    outputs_in(&vec![folder; size], args)
}

/// The one line with which a process has failed.
fn complaint(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let complaints: Vec<&&str> = lines.iter().filter(|line| line.starts_with("error: ")).collect();
    let strange =
        ["panicked", "terminate", "[W", "[E", "Exception"].iter().any(|word| said.contains(word));
    assert!(complaints.len() == 1 && !strange, "{said}");
    complaints[0].to_string()
}

#[test]
fn processes_train_as_threads_and_as_one_rank_do() {
    let folder = &*scratch();
    community(folder, 1500);
    ok(folder, "partition ds --parts 2 --partitioner random");
    let train = format!("{TRAIN} --epochs 2 --json");
    let single =
        losses(&json(folder, format!("{TRAIN} --epochs 2 --threads 1 --parallelism single")));
    for (size, options) in
        [(4, "--parallelism split --groups 2"), (2, "--parallelism push-pull --eval-every 0")]
    {
        let threads =
            json(folder, format!("{TRAIN} --epochs 2 --threads {size} --ranks {size} {options}"));
        let ranks = outputs(folder, size, &format!("{train} --threads 1 {options}"));
        let run = printed(&ranks[0]);
        let found = losses(&run);
        assert_eq!(found, losses(&threads), "{size} processes, {options}");
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-4 * b;
        let alike = found.iter().zip(&single).all(near);
        assert!(found.len() == 2 && alike, "{options}: {found:?}, one rank {single:?}");
        for other in &ranks[1..] {
            assert!(
                other.status.success() && other.stdout.is_empty(),
                "one rank speaks for all: {other:?}"
            );
        }
    }
}

#[test]
fn processes_go_on_after_a_checkpoint() {
    let folder = &*scratch();
    community(folder, 600);
    let train = format!("{TRAIN} --parallelism data --threads 1 --json --checkpoint");
    let run = |more: &str| losses(&printed(&outputs(folder, 2, &format!("{train} {more}"))[0]));
    let whole = run("whole --epochs 3");
    let parts = [run("kept --epochs 1"), run("kept --epochs 3 --resume")].concat();
    assert_eq!(parts, whole);
}
