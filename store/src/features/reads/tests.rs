//! Rows that are read equal the mapped ones, and the error names a file that cannot be read.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::*;
use crate::{FeatureDtype, FeatureTable, FeatureWriter};

const DTYPES: [FeatureDtype; 4] =
    [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16, FeatureDtype::I8];

/// Random numbers that depend only on a seed.
struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.drawn += 1;
        (xxh3_64_with_seed(&self.drawn.to_le_bytes(), self.seed) % limit.max(1) as u64) as usize
    }
}

/// Table of `rows` rows of random values at `path`.
fn table(
    path: &Path,
    dtype: FeatureDtype,
    (rows, dim): (usize, usize),
    random: &mut Random,
) -> FeatureTable {
    let mut writer = FeatureWriter::create(path, dtype, dim).unwrap();
    let values: Vec<f32> = (0..rows * dim).map(|_| random.below(2001) as f32 - 1000.0).collect();
    writer.push_rows(&values).unwrap();
    writer.finish().unwrap();
    FeatureTable::open(path).unwrap()
}

/// Bytes and scale of each row that `read` returns, in the order of `vertices`.
fn found(read: &FeatureTable, vertices: &[u32]) -> (Vec<(Vec<u8>, u32)>, RowsRead) {
    let mut rows = vec![None; vertices.len()];
    let counts = read.read_rows(vertices, &mut |at, bytes, scale| {
        assert_eq!(bytes.as_ptr() as usize % read.dtype().bytes(), 0);
        assert!(rows[at].replace((bytes.to_vec(), scale.to_bits())).is_none(), "row {at} twice");
    });
    (rows.into_iter().map(Option::unwrap).collect(), counts.unwrap())
}

#[test]
fn differential_rows_that_are_read_are_those_that_are_mapped() {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut random = Random { seed, drawn: 0 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feat.arrow");
    // Rows of one value, rows that do not divide a block, and rows that are longer than a block or
    // a piece.
    for (rows, dim) in [(1, 1), (17_000, 3), (2000, 100), (700, 256), (90, 1031), (40, 9001)] {
        for dtype in DTYPES {
            let mapped = table(&path, dtype, (rows, dim), &mut random);
            let columns = random.below(dim)..dim;
            for mapped in [mapped.columns(columns), mapped] {
                let share = [0, 1 + random.below(rows), rows][random.below(3)].min(rows);
                let mut kept: Vec<u32> = (0..rows as u32).collect();
                kept.rotate_left(random.below(rows));
                kept.truncate(share);
                let mut is_kept = vec![false; rows];
                kept.iter().for_each(|&v| is_kept[v as usize] = true);
                for by in [ReadBy::Ring, ReadBy::Threads] {
                    for cached in [Some(false), Some(true)] {
                        let what = format!(
                            "seed {seed}: {rows} rows of {dim} {dtype}, {share} kept, {by}, \
                             {cached:?}"
                        );
                        let how = Reading { by: Some(by), cached, stop: None };
                        let read = mapped.on_disk(&kept, None, &how).unwrap();
                        // Many with repetitions, consecutive ones, none.
                        let few: Vec<u32> =
                            (0..random.below(3000)).map(|_| random.below(rows) as u32).collect();
                        for vertices in [few, (0..rows as u32).collect(), Vec::new()] {
                            let (rows, counts) = found(&read, &vertices);
                            for (&v, (bytes, scale)) in vertices.iter().zip(&rows) {
                                let expected: &[u8] = match dtype.bytes() {
                                    4 => bytemuck::cast_slice(mapped.row::<f32>(v)),
                                    2 => bytemuck::cast_slice(mapped.row::<u16>(v)),
                                    _ => mapped.row::<u8>(v),
                                };
                                assert_eq!(
                                    (&bytes[..], *scale),
                                    (expected, mapped.scale(v).to_bits()),
                                    "{what}: {v}"
                                );
                            }
                            let of_kept =
                                vertices.iter().filter(|&&v| is_kept[v as usize]).count() as u64;
                            assert_eq!(
                                (counts.kept, counts.kept + counts.read),
                                (of_kept, rows.len() as u64),
                                "{what}"
                            );
                            let row = (mapped.dim() * dtype.bytes()) as u64;
                            let distinct: BTreeSet<u32> = vertices
                                .iter()
                                .copied()
                                .filter(|&v| !is_kept[v as usize])
                                .collect();
                            let least = row * distinct.len() as u64;
                            assert!(
                                counts.bytes >= least && counts.bytes.is_multiple_of(BLOCK),
                                "{what}"
                            );
                        }
                        let beyond = read
                            .read_rows(&[rows as u32], &mut |_, _, _| ())
                            .unwrap_err()
                            .to_string();
                        assert!(beyond.contains("has no feature row"), "{beyond}");
                    }
                }
            }
        }
    }
}

#[test]
fn neighbours_are_one_read() {
    let folder = tempfile::tempdir().unwrap();
    let mapped = table(
        &folder.path().join("f"),
        FeatureDtype::F32,
        (4096, 256),
        &mut Random { seed: 1, drawn: 0 },
    );
    let read = mapped.on_disk(&[], None, &Reading::default()).unwrap();
    // Rows of 1 KiB, which begin within a block: alone one or two blocks, all of them each once.
    assert!(found(&read, &[9]).1.bytes <= 2 * BLOCK);
    let all: Vec<u32> = (0..4096).rev().collect();
    let bytes = found(&read, &all).1.bytes;
    assert!(bytes <= (4096 << 10) * 5 / 4, "{bytes}: pieces overlap by a block");
}

#[test]
fn threads_of_a_process_read_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let mapped = table(
        &folder.path().join("f"),
        FeatureDtype::Bf16,
        (5000, 70),
        &mut Random { seed: 2, drawn: 0 },
    );
    for by in [ReadBy::Ring, ReadBy::Threads] {
        let read = mapped
            .on_disk(&[7, 4999], None, &Reading { by: Some(by), ..Reading::default() })
            .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6usize {
                let (read, mapped) = (&read, &mapped);
                scope.spawn(move || {
                    let mut random = Random { seed: thread as u64, drawn: 0 };
                    for _ in 0..5 {
                        let vertices: Vec<u32> =
                            (0..900).map(|_| random.below(5000) as u32).collect();
                        for (&v, (bytes, _)) in vertices.iter().zip(found(read, &vertices).0) {
                            assert_eq!(bytes, bytemuck::cast_slice::<u16, u8>(mapped.row(v)));
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn rows_that_one_process_keeps_are_found_by_others() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, dim) in [(FeatureDtype::F32, 5), (FeatureDtype::I8, 7)] {
        let mut random = Random { seed: 6, drawn: 0 };
        let mapped = table(&folder.path().join("f"), dtype, (3000, dim), &mut random);
        let own = HostMemory::new().unwrap();
        let other = HostMemory::open(&own.address().unwrap()).unwrap();
        let how = Reading::default();
        let kept = [2999, 3, 17, 1024];
        let before = mapped.on_disk(&[], Some(&other), &how).unwrap();
        let first = mapped.on_disk(&kept, Some(&own), &how).unwrap();
        let second = mapped.on_disk(&[], Some(&other), &how).unwrap();
        let all: Vec<u32> = (0..3000).collect();
        let [before, first, second] = [before, first, second].map(|read| found(&read, &all));
        assert_eq!((&first, first.1.kept, before.1.kept), (&second, 4, 0));
        assert_eq!(before.0, first.0);
        // Memory with other content is refused.
        let copied = HostMemory::new().unwrap();
        mapped.copied(Some(&copied)).unwrap();
        let copied = HostMemory::open(&copied.address().unwrap()).unwrap();
        assert!(mapped.on_disk(&[], Some(&copied), &how).is_err());
        assert!(mapped.copied(Some(&other)).is_err());
    }
}

#[test]
fn a_file_that_was_cut_is_named_and_reading_stops_when_it_is_to() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feat.arrow");
    for by in [ReadBy::Ring, ReadBy::Threads] {
        for cached in [Some(false), Some(true)] {
            let mapped =
                table(&path, FeatureDtype::I8, (3000, 90), &mut Random { seed: 3, drawn: 0 });
            let how = Reading { by: Some(by), cached, stop: Some(&STOP) };
            let read = mapped.on_disk(&[2999], None, &how).unwrap();
            let all: Vec<u32> = (0..3000).collect();
            assert_eq!(found(&read, &all).0.len(), 3000);
            STOP.store(true, Ordering::Relaxed);
            let stopped = read.read_rows(&all, &mut |_, _, _| ());
            assert!(matches!(stopped, Err(Error::Interrupted)), "{by}");
            STOP.store(false, Ordering::Relaxed);
            // The rows before stay readable, and the one that is kept; no page of the map is
            // touched.
            OpenOptions::new().write(true).open(&path).unwrap().set_len(100_000).unwrap();
            assert_eq!(found(&read, &[0, 5, 2999]).0.len(), 3);
            let line = read.read_rows(&all, &mut |_, _, _| ()).unwrap_err().to_string();
            assert!(
                line.contains("feat.arrow: ends at byte 100000") && line.contains("was cut"),
                "{line}"
            );
            assert!(!line.contains('\n'));
            assert_eq!(found(&read, &[0, 5, 2999]).0.len(), 3, "as before");
            drop((read, mapped));
            File::create(&path).unwrap();
        }
    }
    let in_memory = table(&path, FeatureDtype::F32, (3, 1), &mut Random { seed: 4, drawn: 0 })
        .in_memory()
        .unwrap();
    assert!(in_memory.on_disk(&[], None, &Reading::default()).is_err());
    assert!(in_memory.read_by().is_none() && in_memory.read_rows(&[0], &mut |_, _, _| ()).is_err());
}

#[test]
fn reads_are_planned_as_they_are_done() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random { seed: 4, drawn: 0 };
    for dim in [16, 100, 256, 1500] {
        let mapped = table(&folder.path().join("f"), FeatureDtype::F32, (20_000, dim), &mut random);
        let read = mapped.on_disk(&[], None, &Reading::default()).unwrap();
        for share in [2, 10, 100] {
            let vertices: Vec<u32> = (0..20_000).filter(|_| random.below(share) == 0).collect();
            let [reads, bytes] = planned_reads(&vertices, 4 * dim, 4 * dim);
            let done = found(&read, &vertices).1.bytes as f64;
            // Batches begin elsewhere in a block.
            assert!(
                (0.98..1.02).contains(&(bytes as f64 / done)),
                "{dim}, 1 of {share}: {bytes} {done}"
            );
            assert!(reads <= vertices.len() as u64 && reads * BLOCK <= bytes, "{reads}");
        }
    }
    assert_eq!(planned_reads(&[], 512, 512), [0, 0]);
}

#[test]
fn a_disk_is_measured_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    for (by, cached) in [(ReadBy::Ring, false), (ReadBy::Threads, true)] {
        let reading = Reading { by: Some(by), cached: Some(cached), stop: None };
        let rates = DiskRates::of_folder(folder.path(), &reading).unwrap();
        assert!(rates.random.into_iter().chain([rates.stream]).all(|rate| rate > 0.0), "{rates:?}");
        assert!(rates.by.contains("the page cache"), "{rates:?}");
        assert_eq!(rates.seconds(0.0, 0.0), 0.0);
        assert!(rates.seconds(1000.0, 8e6) > rates.seconds(1000.0, 4096e3), "{rates:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    let missing = folder.path().join("none");
    let line = DiskRates::of_folder(&missing, &Reading::default()).unwrap_err().to_string();
    assert!(line.starts_with(&format!("{}: No such file", missing.display())), "{line}");
    let short = folder.path().join("short");
    std::fs::write(&short, [0; 5000]).unwrap();
    let line = DiskRates::of_file(&short, &Reading::default()).unwrap_err().to_string();
    assert!(line.contains("too short"), "{line}");
    let line = DiskRates::of_folder(&short, &Reading::default()).unwrap_err().to_string();
    assert!(line.contains("Not a directory"), "{line}");
}
