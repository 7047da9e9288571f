//! Measures each way to read a feature file that is larger than memory; for docs/memory.md.
//!
//! `cargo run --release -p gsplit-store --example reads -- FOLDER GIGABYTES` writes a file of
//! GIGABYTES gigabytes with rows of 256 f32 into FOLDER, reads it from a cold cache, and removes
//! it. The file should be larger than memory, or than the limit of the memory control group that
//! the process runs in.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use gsplit_store::{DiskRates, FeatureDtype, FeatureTable, FeatureWriter, ReadBy, Reading};

const DIM: usize = 256;
/// Number of rows read by page faults.
const FAULTS: u64 = 2000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, gigabytes] = &arguments[..] else { panic!("usage: reads FOLDER GIGABYTES") };
    let path = Path::new(folder).join("reads.arrow");
    let rows = gigabytes.parse::<u64>().unwrap() * 1_000_000_000 / (4 * DIM as u64);
    let mut writer = FeatureWriter::create(&path, FeatureDtype::F32, DIM).unwrap();
    let mut values = vec![0.0; 16_384 * DIM];
    for first in (0..rows).step_by(16_384) {
        values.chunks_exact_mut(DIM).zip(first..).for_each(|(row, v)| row.fill(v as f32));
        writer.push_rows(&values[..(rows - first).min(16_384) as usize * DIM]).unwrap();
    }
    writer.finish().unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    for by in [ReadBy::Ring, ReadBy::Threads] {
        for cached in [Some(false), Some(true)] {
            let rates =
                DiskRates::of_file(&path, &Reading { by: Some(by), cached, stop: None }).unwrap();
            println!(
                "{}: {:?} random blocks a second with 1, 8, 32, 128 in flight, {:.0} MB/s in \
                 sequence",
                rates.by,
                rates.random,
                rates.stream / 1e6
            );
        }
    }
    let mapped = FeatureTable::open(&path).unwrap();
    rustix::fs::fadvise(File::open(&path).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let since = Instant::now();
    let random = |i: u64| {
        (i.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20) % rows
    };
    let sum: f32 = (0..FAULTS).map(|i| mapped.row::<f32>(random(i) as u32)[0]).sum();
    println!(
        "mapped, one thread: {:.0} rows a second (sum {sum})",
        FAULTS as f64 / since.elapsed().as_secs_f64()
    );
    std::fs::remove_file(&path).unwrap();
}
