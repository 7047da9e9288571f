//! Contents of shards; nothing else can be read from them.

use std::fs;
use std::path::Path;

use super::*;
use crate::writer::tests::provenance;
use crate::{
    Balance, DatasetWriter, FeatureDtype, NoProgress, PartitionConfig, PartitionReport, Split,
    verify, write_shards,
};

const N: u32 = 40_000;

fn part_of(v: u32) -> u16 {
    // Parts of different sizes, more than one batch of rows.
    [0, 0, 1, 0, 2, 0, 3][v as usize % 7]
}

/// A ring with labels, features of `dtype`, an edge column, original ids, and a partition `four`
/// into four parts.
fn whole(path: &Path, dtype: FeatureDtype, several: bool) -> Dataset {
    let (indptr, indices): (Vec<u64>, Vec<u32>) =
        ((0..=u64::from(N)).collect(), (0..N).map(|v| (v + 1) % N).collect());
    let mut writer = DatasetWriter::create(path, false, &indptr, &indices).unwrap();
    let mut features = writer.feature_writer(dtype, 3).unwrap();
    for v in 0..N {
        features.push_rows(&[v as f32 % 1000.0, -(v as f32 % 77.0), 0.3]).unwrap();
    }
    writer.add_features(features, None).unwrap();
    match several {
        true => {
            let mut labels = writer.multi_label_writer(9).unwrap();
            // Every fifth vertex has no value for its last class.
            (0..N).for_each(|v| {
                match v % 5 {
                    0 => labels.push_known(&[v as u8, 0], &[0xff, 0]),
                    _ => labels.push(&[v as u8, v as u8 % 2]),
                }
                .unwrap()
            });
            writer.add_multi_labels(labels).unwrap();
        }
        false => writer.add_labels(&(0..N as i32).map(|v| v % 5 - 1).collect::<Vec<_>>()).unwrap(),
    }
    writer.add_original_ids(&(0..u64::from(N)).map(|v| v + 10).collect::<Vec<_>>()).unwrap();
    let mut weight = writer.edge_column_writer("weight", "<f4", 1).unwrap();
    weight.push(bytemuck::cast_slice(&vec![0.5f32; N as usize])).unwrap();
    writer.add_edge_column("weight", weight).unwrap();
    writer.add_split(Split::Train, (0..N).filter(|v| v % 3 == 0).collect()).unwrap();
    let dataset = writer.finish(provenance()).unwrap();
    partition(&dataset, "four", part_of);
    dataset
}

fn partition(dataset: &Dataset, key: &str, part: impl Fn(u32) -> u16) -> PartitionMap {
    let assignment: Vec<u16> = (0..N).map(part).collect();
    let mut order: Vec<u32> = (0..N).collect();
    order.sort_by_key(|&v| assignment[v as usize]);
    let part_sizes =
        (0..4).map(|part| assignment.iter().filter(|&&of| of == part).count() as u64).collect();
    let balance = Balance { vertices: 1.0, edges: 1.0, targets: None, work: None };
    let (partitioner, weights) = ("test".into(), "unit".into());
    let config = PartitionConfig {
        parts: 4,
        servers: 1,
        targets: None,
        partitioner,
        weights,
        epsilon: 1.0,
        seed: 0,
        source: None,
    };
    let report = PartitionReport {
        part_sizes,
        cut: 0,
        adjacent_pairs: 0,
        weighted_cut: 0,
        total_weight: 0,
        imbalance: 1.0,
        balance,
        expected_cross_share: 0.0,
        expected_cross_edges: None,
        between_servers: None,
        pieces: None,
        own_weights: None,
        of_target: None,
    };
    PartitionMap::save(dataset, key, None, config, report, &assignment, &order, false).unwrap()
}

fn cut(dataset: &Dataset, hosts: u32, out: &Path, replace: bool) -> Result<Vec<Dataset>> {
    let map = PartitionMap::open(dataset, "four")?;
    write_shards(dataset, Some(&map), hosts, out, replace, &provenance(), &NoProgress)
}

fn problems(path: &Path) -> Vec<String> {
    verify(path).unwrap().into_iter().filter_map(|finding| finding.problem).collect()
}

#[test]
fn shards_hold_the_rows_of_their_own_vertices_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, several, hosts) in [
        (FeatureDtype::F32, false, 4),
        (FeatureDtype::F16, true, 2),
        (FeatureDtype::Bf16, false, 2),
        (FeatureDtype::I8, false, 4),
        (FeatureDtype::I8, true, 1),
    ] {
        let (ds, out) = (
            folder.path().join(format!("{dtype}-{hosts}")),
            folder.path().join(format!("of-{dtype}-{hosts}")),
        );
        let origin = whole(&ds, dtype, several);
        let shards = cut(&origin, hosts, &out, false).unwrap();
        let features = origin.features().unwrap();
        let mut owners = vec![0; N as usize];
        for (host, shard) in shards.iter().enumerate() {
            assert_eq!(problems(shard.path()), Vec::<String>::new());
            // Open it as a user does, with its files checked.
            let shard = Dataset::open(shard.path()).unwrap();
            let info = shard.shard().unwrap();
            assert_eq!((info.host as usize, info.hosts), (host, hosts));
            assert_eq!((shard.name(), shard.fingerprint()), (origin.name(), origin.fingerprint()));
            assert_eq!(shard.topology().indices(), origin.topology().indices());
            assert_eq!(
                &shard.split(Split::Train).unwrap()[..],
                &origin.split(Split::Train).unwrap()[..]
            );
            assert_eq!(shard.edge_weights("weight").unwrap().len(), N as usize);
            let held = [
                shard.held_features().unwrap(),
                shard.held_features().unwrap().in_memory().unwrap(),
            ];
            for v in 0..N {
                let owned = usize::from(part_of(v)) / (4 / hosts as usize) == host;
                owners[v as usize] += u32::from(owned);
                for held in &held {
                    let expected: &[u8] = if owned { features.row(v) } else { &[] };
                    assert_eq!(held.row::<u8>(v), expected, "{dtype}, {v}");
                    let expected = if owned || dtype != FeatureDtype::I8 {
                        features.scale(v)
                    } else {
                        f32::NAN
                    };
                    assert_eq!(held.scale(v).to_bits(), expected.to_bits());
                }
            }
            assert!(
                hosts == 1 || (held[1].values::<f32>().is_none() && held[1].scales().is_none())
            );
            match several {
                true => {
                    let (held, all) =
                        (shard.held_multi_labels().unwrap(), origin.multi_labels().unwrap());
                    for v in 0..N {
                        let owned = shard.owned().unwrap().binary_search(&v).is_ok();
                        assert_eq!(held.row(v), if owned { all.row(v) } else { &[] });
                        assert_eq!(held.num_known(v), owned.then_some(9 - u32::from(v % 5 == 0)));
                        assert!(!owned || held.known_row(v) == all.known_row(v));
                    }
                }
                false => {
                    let (held, all) = (shard.held_labels().unwrap(), origin.labels().unwrap());
                    for v in 0..N {
                        let owned = shard.owned().unwrap().binary_search(&v).is_ok();
                        assert_eq!(held.get(v), owned.then(|| all[v as usize]));
                        assert!(
                            held.is_labelled(v) == (all[v as usize] >= 0) || (v % 3 != 0 && !owned),
                            "{v}"
                        );
                    }
                }
            }
            for refused in [
                shard.features().map(drop),
                shard.labels().map(drop),
                shard.multi_labels().map(drop),
                shard.original_ids().map(drop),
                cut(&shard, 1, &folder.path().join("again"), false).map(drop),
            ] {
                let message = refused.unwrap_err().to_string();
                assert!(
                    message.contains("the shard of host") && !message.contains('\n'),
                    "{message}"
                );
            }
        }
        assert_eq!(owners, [1].repeat(N as usize), "every vertex is on one host");
    }
}

#[test]
fn nothing_is_made_of_what_cannot_be_cut_and_nothing_of_others_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let origin = whole(&folder.path().join("ds"), FeatureDtype::F32, false);
    let out = folder.path().join("shards");
    for hosts in [0, 3, 8] {
        let message = cut(&origin, hosts, &out, false).unwrap_err().to_string();
        assert!(message.contains("expected a number that divides it"), "{message}");
    }
    // Damage that does not change lengths.
    let split = origin.path().join("splits/train.npy");
    let good = fs::read(&split).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(&split, bad).unwrap();
    let message = cut(&origin, 2, &out, false).unwrap_err().to_string();
    assert!(message.contains("splits/train.npy: ") && message.contains("checksum"), "{message}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "nothing is left");
    fs::write(&split, good).unwrap();

    fs::create_dir_all(out.join("host-1")).unwrap();
    fs::write(out.join("host-1/diary.txt"), "mine").unwrap();
    for replace in [false, true] {
        assert!(cut(&origin, 2, &out, replace).is_err());
        assert_eq!(fs::read(out.join("host-1/diary.txt")).unwrap(), b"mine");
        assert!(!out.join("host-0").exists());
    }
    fs::remove_dir_all(out.join("host-1")).unwrap();
    cut(&origin, 2, &out, false).unwrap();
    assert!(matches!(cut(&origin, 2, &out, false), Err(Error::Exists(_))));
    cut(&origin, 2, &out, true).unwrap();
}

#[test]
fn shards_cut_by_columns_hold_their_columns_of_every_row_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, several) in
        [(FeatureDtype::F32, false), (FeatureDtype::F16, true), (FeatureDtype::I8, false)]
    {
        let (ds, out) =
            (folder.path().join(dtype.to_string()), folder.path().join(format!("of-{dtype}")));
        let origin = whole(&ds, dtype, several);
        let features = origin.features().unwrap();
        for hosts in 1..=3u32 {
            let shards =
                write_shards(&origin, None, hosts, &out, true, &provenance(), &NoProgress).unwrap();
            for (host, shard) in shards.iter().enumerate() {
                assert_eq!(problems(shard.path()), Vec::<String>::new());
                let shard = Dataset::open(shard.path()).unwrap();
                assert_eq!(
                    (shard.name(), shard.fingerprint(), shard.owned()),
                    (origin.name(), origin.fingerprint(), None)
                );
                let (held, table) =
                    (columns_of(3, host, hosts as usize), shard.held_features().unwrap());
                assert_eq!(table.dim(), 3);
                for table in [table.clone(), table.in_memory().unwrap()] {
                    for columns in [0..3, 0..1, 1..2, 1..3, 2..3, 2..2] {
                        let is_held = held.start <= columns.start && columns.end <= held.end;
                        let (found, expected) =
                            (table.columns(columns.clone()), features.columns(columns));
                        for v in [0, 1, N / 2, N - 1] {
                            let expected = if is_held { expected.row::<u8>(v) } else { &[] };
                            assert_eq!(
                                found.row::<u8>(v),
                                expected,
                                "{dtype}, host {host} of {hosts}, {v}"
                            );
                            assert!(!is_held || found.scale(v) == features.scale(v));
                        }
                    }
                    assert!(table.row::<u8>(0).is_empty(), "no row is whole");
                }
                match several {
                    true => {
                        let (held, all) =
                            (shard.held_multi_labels().unwrap(), origin.multi_labels().unwrap());
                        assert_eq!((held.row(7), held.num_known(5)), (all.row(7), Some(8)));
                    }
                    false => assert_eq!(
                        shard.held_labels().unwrap().stored(),
                        &origin.labels().unwrap()[..]
                    ),
                }
                for refused in [shard.features().map(drop), shard.labels().map(drop)] {
                    let message = refused.unwrap_err().to_string();
                    assert!(
                        message.contains("the shard of host") && message.contains("cut by columns"),
                        "{message}"
                    );
                }
            }
        }
        for hosts in [0, 4] {
            let made = write_shards(&origin, None, hosts, &out, true, &provenance(), &NoProgress);
            assert!(made.unwrap_err().to_string().contains("expected from 1 to 3"));
        }
    }
}
