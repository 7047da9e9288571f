//! How fast feature rows are gathered: `gather DATASET ROWS ROUNDS`, the product's half of `make bench-gather`.
//!
//! ROWS distinct vertices at random, as a mini-batch's input, other ones every round, into one buffer that is used again;
//! from the mapped file and from memory. Prints one JSON line: for each the GB/s of rows, as f32, of every round.

// It talks to whoever runs it.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::time::Instant;

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::{Dataset, FeatureTable};
use gsplit_trainer::operator::Rows;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [dataset, rows, rounds] = &words[..] else { return Err("expected DATASET ROWS ROUNDS".into()) };
    let (rows, rounds): (usize, u32) = (rows.parse()?, rounds.parse()?);
    let mapped = Dataset::open(PathBuf::from(dataset))?.features()?;
    let memory = mapped.in_memory()?;
    let (mut from_file, mut from_memory) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let vertices = distinct(rows, mapped.num_rows() as u32, round);
        let speeds = [&mapped, &memory].map(|table| speed(table, &vertices));
        let [file, memory] = [speeds[0].as_ref(), speeds[1].as_ref()].map(|speed| speed.map_err(ToString::to_string));
        // The first round fills the caches of the system, and the buffer.
        if round > 0 {
            from_file.push(*file?);
            from_memory.push(*memory?);
        }
    }
    println!("{}", serde_json::json!({ "mapped": from_file, "memory": from_memory }));
    Ok(())
}

/// GB/s of the rows of `vertices`.
fn speed(features: &FeatureTable, vertices: &[u32]) -> gsplit_trainer::Result<f64> {
    let started = Instant::now();
    let rows = Rows::Stored { features, vertices }.tensor()?;
    let seconds = started.elapsed().as_secs_f64();
    Ok((rows.numel() * size_of::<f32>()) as f64 / seconds / 1e9)
}

/// `count` distinct numbers below `n`, in random order.
fn distinct(count: usize, n: u32, round: u32) -> Vec<u32> {
    let mut draws = Draws::new(&StreamKey { step: round, ..StreamKey::new(1, Stream::Generate) }, 0);
    let mut seen = vec![false; n as usize];
    let mut found = Vec::with_capacity(count);
    while found.len() < count.min(n as usize / 2) {
        let key = StreamKey { step: round, epoch: found.len() as u32 / 1000, ..StreamKey::new(2, Stream::Generate) };
        let mut more = Draws::new(&key, draws.next_u32());
        for _ in 0..1000 {
            let v = more.below(n);
            if !std::mem::replace(&mut seen[v as usize], true) {
                found.push(v);
            }
        }
    }
    found.truncate(count);
    found
}
