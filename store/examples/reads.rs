//! Rows a second of a feature table that is larger than memory, by each way to read them; for docs/memory.md.
//!
//! `cargo run --release -p gsplit-store --example reads -- FOLDER GIGABYTES ROWS` writes a file of so many gigabytes into FOLDER, of rows of 256 f32,
//! reads ROWS random ones a time from a cold cache, and removes it. The file should be larger than memory, or the process in a
//! memory control group that is smaller.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use gsplit_store::{FeatureDtype, FeatureTable, FeatureWriter, ReadBy, Reading};

const DIM: usize = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, gigabytes, count] = &arguments[..] else { panic!("usage: reads FOLDER GIGABYTES ROWS") };
    let (path, count) = (Path::new(folder).join("reads.arrow"), count.parse::<u64>().unwrap());
    let rows = gigabytes.parse::<u64>().unwrap() * 1_000_000_000 / (4 * DIM as u64);
    let mut writer = FeatureWriter::create(&path, FeatureDtype::F32, DIM).unwrap();
    let mut values = vec![0.0; 16_384 * DIM];
    for first in (0..rows).step_by(16_384) {
        values.chunks_exact_mut(DIM).zip(first..).for_each(|(row, v)| row.fill(v as f32));
        writer.push_rows(&values[..(rows - first).min(16_384) as usize * DIM]).unwrap();
    }
    writer.finish().unwrap();
    let mapped = FeatureTable::open(&path).unwrap();
    let vertices = |round: u64| -> Vec<u32> {
        let step = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20;
        (0..count).map(|i| (step(i + round * count) % rows) as u32).collect()
    };
    for by in [ReadBy::Ring, ReadBy::Threads] {
        for cached in [Some(false), Some(true)] {
            forget(&path);
            let read = mapped.on_disk(&[], &Reading { by: Some(by), cached, stop: None }).unwrap();
            for round in 0..3 {
                let (vertices, since, mut sum) = (vertices(round), Instant::now(), 0.0);
                let mut add = |_: usize, bytes: &[u8], _: f32| sum += bytemuck::cast_slice::<u8, f32>(bytes)[0];
                let counts = read.read_rows(&vertices, &mut add).unwrap();
                let seconds = since.elapsed().as_secs_f64();
                let (found, past) = (read.read_by().unwrap(), cached == Some(false));
                println!(
                    "{:?}, past the page cache {past}, round {round}: {seconds:.2} s, {:.0} rows/s, {:.0} MB/s",
                    found.0,
                    count as f64 / seconds,
                    counts.bytes as f64 / 1e6 / seconds
                );
                assert!(sum > 0.0);
            }
        }
    }
    forget(&path);
    let vertices = vertices(0);
    let few = &vertices[..vertices.len().min(5000)];
    let since = Instant::now();
    let sum: f32 = few.iter().map(|&v| mapped.row::<f32>(v)[0]).sum();
    println!("mapped, one thread: {:.0} rows/s (sum {sum})", few.len() as f64 / since.elapsed().as_secs_f64());
    std::fs::remove_file(&path).unwrap();
}

/// Drops what the page cache holds of the file.
fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}
