//! How fast processes exchange bytes: `alltoall RANK SIZE PORT ROUNDS BYTES`, the product's half of `make bench-processes`.
//!
//! Every round is ten all-to-alls of messages of BYTES and two hundred of 8 bytes. Rank 0 prints one JSON line: for each round
//! the GB/s of this rank's messages, its own included, and the microseconds of a short one.

// It talks to whoever runs it.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gsplit_kernels::{Communicator, Seat};
use gsplit_trainer::Meeting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<usize> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [rank, size, port, rounds, bytes] = words[..] else {
        return Err("expected RANK SIZE PORT ROUNDS BYTES".into());
    };
    let meeting = Meeting::at("127.0.0.1", port as u16, (rank, size), "", &BTreeMap::new(), Duration::from_secs(60))?;
    let comm = meeting.group("bench", Seat::among_all(rank, size))?;
    let (mut speeds, mut micros) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let long = seconds(&comm, bytes, 10)?;
        let short = seconds(&comm, 8, 200)?;
        // The first round touches the memory.
        if round > 0 {
            speeds.push((size * bytes) as f64 / long / 1e9);
            micros.push(short * 1e6);
        }
    }
    comm.barrier()?;
    if rank == 0 {
        println!("{}", serde_json::json!({ "long_gb_s": speeds, "short_us": micros }));
    }
    Ok(())
}

/// Seconds of one of `times` all-to-alls of messages of so many `bytes`.
fn seconds(comm: &dyn Communicator, bytes: usize, times: u32) -> Result<f64, Box<dyn std::error::Error>> {
    let (parts, send) = (vec![bytes; comm.size()], vec![comm.rank() as u8; bytes * comm.size()]);
    let mut recv = vec![9; send.len()];
    comm.all_to_all_bytes(&send, &parts, &mut recv, &parts)?;
    let started = Instant::now();
    for _ in 0..times {
        comm.all_to_all_bytes(&send, &parts, &mut recv, &parts)?;
    }
    Ok(started.elapsed().as_secs_f64() / f64::from(times))
}
