//! Rows come back as they were stored, damage is named, and losses are measured.

use std::path::PathBuf;

use arrow_buffer::Buffer;
use half::{bf16, f16};

use super::*;
use crate::arrow::ArrowFile;
use crate::mmap::HostMemory;

fn round_trip(dtype: FeatureDtype, rows: usize, dim: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feat.arrow");
    let values: Vec<f32> = (0..rows * dim).map(|i| (i % 251) as f32 * 0.5 - 40.0).collect();
    let mut writer = FeatureWriter::create(&path, dtype, dim).unwrap();
    for chunk in values.chunks(dim * 1000) {
        writer.push_rows(chunk).unwrap();
    }
    let written = writer.finish().unwrap();
    assert_eq!(written.rows as usize, rows);
    assert_eq!(
        crate::checksum_file(&path).unwrap(),
        (written.record.bytes, written.record.checksum)
    );
    let table = FeatureTable::open(&path).unwrap();
    assert_eq!((table.num_rows(), table.dim(), table.dtype()), (rows, dim, dtype));
    let copied = table.in_memory().unwrap();
    assert_eq!((copied.num_rows(), copied.num_bytes()), (rows, table.num_bytes()));
    for v in [0, 1, rows / 2, rows.saturating_sub(1)].into_iter().filter(|&v| v < rows) {
        let expected = &values[v * dim..(v + 1) * dim];
        let found: Vec<f32> = match dtype {
            FeatureDtype::F32 => table.row::<f32>(v as u32).to_vec(),
            FeatureDtype::F16 => table.row::<f16>(v as u32).iter().map(|x| x.to_f32()).collect(),
            FeatureDtype::Bf16 => table.row::<bf16>(v as u32).iter().map(|x| x.to_f32()).collect(),
            FeatureDtype::I8 => {
                let scale = table.scale(v as u32);
                table.row::<i8>(v as u32).iter().map(|&q| scale * f32::from(q)).collect()
            }
        };
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let close = found.iter().zip(expected).all(|(a, b)| match dtype {
            FeatureDtype::I8 => (a - b).abs() <= largest / 253.0,
            _ => (a - b).abs() <= b.abs() / 256.0,
        });
        assert!(close, "row {v}: {found:?} against {expected:?}");
        let bytes = |table: &FeatureTable| match dtype.bytes() {
            1 => table.row::<u8>(v as u32).to_vec(),
            2 => bytemuck::cast_slice(table.row::<u16>(v as u32)).to_vec(),
            _ => bytemuck::cast_slice(table.row::<u32>(v as u32)).to_vec(),
        };
        assert_eq!(bytes(&copied), bytes(&table));
        assert_eq!(copied.scale(v as u32), table.scale(v as u32));
        for columns in [0..1, 1..dim, 2..2, 0..dim] {
            let wanted = &bytes(&table)[columns.start * dtype.bytes()..columns.end * dtype.bytes()];
            let slice = table.columns(columns.clone());
            let memory = HostMemory::new().unwrap();
            let others = HostMemory::open(&memory.address().unwrap()).unwrap();
            assert!(slice.copied(Some(&others)).is_err(), "nothing is in it yet");
            let shared = [&memory, &others].map(|memory| slice.copied(Some(memory)).unwrap());
            let again =
                copied.columns(columns.clone()).in_memory().unwrap().columns(0..columns.len());
            for part in [slice.in_memory().unwrap(), slice, again].into_iter().chain(shared) {
                assert_eq!((part.dim(), part.num_rows()), (columns.len(), rows));
                assert_eq!(
                    (bytes(&part), part.scale(v as u32)),
                    (wanted.to_vec(), table.scale(v as u32))
                );
                assert!(dim == columns.len() || part.num_bytes() < table.num_bytes());
            }
        }
    }
}

#[test]
fn rows_come_back_in_every_dtype() {
    for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16, FeatureDtype::I8] {
        for rows in [0, 1, ROWS_PER_BATCH, 2 * ROWS_PER_BATCH + 17] {
            round_trip(dtype, rows, 3);
        }
    }
}

/// A file of `rows` rows of ones.
fn ones(dtype: FeatureDtype, rows: usize, dim: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feat.arrow");
    let mut writer = FeatureWriter::create(&path, dtype, dim).unwrap();
    writer.push_rows(&vec![1.0; rows * dim]).unwrap();
    writer.finish().unwrap();
    (folder, path)
}

#[test]
fn rows_are_read_where_they_lie() {
    let (_folder, path) = ones(FeatureDtype::F32, 100, 16);
    let table = FeatureTable::open(&path).unwrap();
    assert_eq!(table.row::<f32>(0).as_ptr() as usize % 64, 0);
    assert_eq!(table.row::<f32>(99), &[1.0; 16]);
}

#[test]
fn flipped_bits_never_panic() {
    for dtype in [FeatureDtype::F32, FeatureDtype::I8] {
        let (_folder, path) = ones(dtype, 10, 4);
        let good = std::fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let file = ArrowFile::decode(&Buffer::from_slice_ref(&bad));
            if let Ok(table) = file.and_then(FeatureTable::from_file) {
                assert!(
                    (0..table.num_rows() as u32)
                        .all(|v| table.dim() == 0 || !table.row::<u8>(v).is_empty())
                );
                assert!(
                    (0..table.num_rows() as u32)
                        .all(|v| !table.scale(v).is_nan() || dtype == FeatureDtype::I8)
                );
            }
        }
    }
}

#[test]
fn truncated_files_are_named() {
    let (_folder, path) = ones(FeatureDtype::F32, 100, 4);
    let good = std::fs::read(&path).unwrap();
    for cut in [0, 5, 100, good.len() / 2, good.len() - 1] {
        std::fs::write(&path, &good[..cut]).unwrap();
        assert!(FeatureTable::open(&path).unwrap_err().to_string().contains("feat.arrow"));
    }
}

/// Rows of every magnitude that the type holds, with zeros, ties and subnormal numbers among them.
fn wild_rows(rows: usize, dim: usize) -> Vec<f32> {
    let mut state = 7u64;
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let scales = [1.0, 0.0, 1e-3, 60000.0, 1e-42, 12.7];
    (0..rows)
        .flat_map(|row| (0..dim).map(|_| draw() * scales[row % scales.len()]).collect::<Vec<_>>())
        .collect()
}

/// The definition, value by value.
fn oracle_i8(row: &[f32]) -> (f32, Vec<i8>) {
    let scale = row.iter().fold(0f32, |largest, value| largest.max(value.abs())) / 127.0;
    let byte = |value: f32| {
        if scale == 0.0 { 0 } else { (value / scale).round_ties_even().clamp(-127.0, 127.0) as i8 }
    };
    (scale, row.iter().map(|&value| byte(value)).collect())
}

#[test]
fn oracle_narrowing_and_its_loss_for_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feat.arrow");
    let (rows, dim) = (20_000, 7);
    let mut values = wild_rows(rows, dim);
    values[..dim].copy_from_slice(&[127.0, 0.5, 1.5, -0.5, -1.5, 2.5, -127.0]);
    for dtype in [FeatureDtype::I8, FeatureDtype::F16, FeatureDtype::Bf16] {
        let mut first: Option<WrittenFeatures> = None;
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut writer = FeatureWriter::create(&path, dtype, dim).unwrap();
            pool.install(|| {
                values.chunks(dim * 777 * threads).for_each(|rows| writer.push_rows(rows).unwrap())
            });
            let written = writer.finish().unwrap();
            let first = first.get_or_insert(written.clone());
            assert_eq!(
                (&first.record, first.narrowing),
                (&written.record, written.narrowing),
                "{dtype}, {threads}"
            );
        }
        let table = FeatureTable::open(&path).unwrap();
        let (mut largest, mut squares) = (0f64, 0f64);
        for (v, row) in values.chunks(dim).enumerate() {
            let v = v as u32;
            let stored: Vec<f32> = match dtype {
                FeatureDtype::I8 => {
                    let (scale, bytes) = oracle_i8(row);
                    assert_eq!(
                        (table.scale(v), table.row::<i8>(v)),
                        (scale, &bytes[..]),
                        "row {v}: {row:?}"
                    );
                    bytes.iter().map(|&byte| scale * f32::from(byte)).collect()
                }
                FeatureDtype::F16 => {
                    row.iter().map(|&value| f16::from_f32(value).to_f32()).collect()
                }
                _ => row.iter().map(|&value| bf16::from_f32(value).to_f32()).collect(),
            };
            for (&given, stored) in row.iter().zip(stored) {
                let error = (f64::from(given) - f64::from(stored)).abs();
                largest = largest.max(error);
                squares += error * error;
            }
        }
        let loss = first.unwrap().narrowing.unwrap();
        assert_eq!(loss.max_abs_error, largest, "{dtype}");
        assert!(
            (loss.rms_error / (squares / values.len() as f64).sqrt() - 1.0).abs() < 1e-12,
            "{dtype}"
        );
        assert_eq!(
            loss.max_abs_value,
            values.iter().map(|value| f64::from(value.abs())).fold(0.0, f64::max)
        );
    }
}

#[test]
fn values_that_do_not_fit_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feat.arrow");
    for (dtype, value, fits) in [
        (FeatureDtype::F16, 70000.0, false),
        (FeatureDtype::F16, f32::NAN, true),
        (FeatureDtype::Bf16, f32::MAX, false),
        (FeatureDtype::Bf16, f32::INFINITY, true),
        (FeatureDtype::I8, 3e38, true),
        (FeatureDtype::I8, f32::MAX, false),
        (FeatureDtype::I8, f32::NAN, false),
        (FeatureDtype::I8, f32::NEG_INFINITY, false),
    ] {
        let mut writer = FeatureWriter::create(&path, dtype, 2).unwrap();
        let mut rows = vec![0.25; 2 * (ROWS_PER_BATCH + 30)];
        rows[2 * (ROWS_PER_BATCH + 20) + 1] = value;
        let result = writer.push_rows(&rows).and_then(|()| writer.finish());
        match result {
            Ok(written) => assert!(
                fits && written.narrowing.unwrap().max_abs_error.is_finite(),
                "{value} as {dtype}"
            ),
            Err(error) => {
                let expected =
                    format!("feature {value} in row {} does not fit {dtype}", ROWS_PER_BATCH + 20);
                assert!(!fits && error.to_string().starts_with(&expected), "{error}");
            }
        }
    }
}

#[test]
fn tables_of_types_are_read_by_the_vertices_of_the_graph() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name: &str, rows: usize, dim: usize| {
        let path = folder.path().join(name);
        let mut writer = FeatureWriter::create(&path, FeatureDtype::F32, dim).unwrap();
        let values: Vec<f32> = (0..rows * dim).map(|value| (value * 7 % 100) as f32).collect();
        writer.push_rows(&values).unwrap();
        writer.finish().unwrap();
        FeatureTable::open(&path).unwrap()
    };
    // Vertices 0 to 2 and 10 to 14 have features.
    let parts = [(0, table("a", 3, 4)), (10, table("b", 5, 2))];
    let all = FeatureTable::of_types(parts.to_vec());
    assert_eq!((all.num_rows(), all.dim(), all.num_bytes()), (8, 4, (12 + 10) * 4));
    let on_disk = all.on_disk(&[1, 7, 12], None, &Reading::default()).unwrap();
    for made in [all.clone(), all.in_memory().unwrap(), on_disk.clone()] {
        let ranges: Vec<_> = made.by_type().iter().map(FeatureTable::vertices).collect();
        assert_eq!(ranges, [0..3, 10..15]);
        for (first, part) in &parts {
            let of = made.by_type().iter().find(|of| of.vertices().start == *first).unwrap();
            for v in 0..part.num_rows() as u32 {
                assert_eq!(of.row::<f32>(first + v), part.row::<f32>(v));
            }
        }
    }
    let read = on_disk.by_type()[1].read_rows(&[14, 12], &mut |at, bytes, _| {
        assert_eq!(
            bytes,
            bytemuck::cast_slice::<f32, u8>(parts[1].1.row(if at == 0 { 4 } else { 2 }))
        );
    });
    assert_eq!((read.unwrap().kept, on_disk.is_in_memory()), (1, false));
    assert!(FeatureTable::of_types(Vec::new()).by_type().is_empty());
}
