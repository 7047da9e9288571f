//! Reading rows from disk changes no loss, and is counted; a budget that is too small names a
//! sufficient one.

use std::collections::BTreeMap;

use gsplit_store::FeatureDtype;

use super::cases::cases;
use super::fixture::{
    Cut, assert_refused, changed, config, dataset, emulated, store_partition, stored_as,
};
use super::processes::on_processes;
use super::runs::{losses, run};
use crate::config::{Device, FeatureNorm, ModelKind, Parallelism};
use crate::tests::fixture::Around;
use crate::{FeatureStorage, RowPlacement, Work};

/// Options to read rows from disk, with `rows_kept` of them in memory.
fn disk(rows_kept: usize, prefetch: usize) -> Around {
    Around {
        features: FeatureStorage::Disk,
        rows_kept: Some(rows_kept),
        prefetch,
        ..Around::default()
    }
}

const DTYPES: [FeatureDtype; 2] = [FeatureDtype::F32, FeatureDtype::I8];
const SHARED: [(Parallelism, usize); 7] = [
    (Parallelism::Single, 1),
    (Parallelism::Data, 1),
    (Parallelism::Data, 2),
    (Parallelism::Split, 1),
    (Parallelism::Split, 2),
    (Parallelism::PushPull, 2),
    (Parallelism::Cooperative, 2),
];
const NORMALISED: [FeatureNorm; 2] = [FeatureNorm::None, FeatureNorm::Row];
/// Numbers of rows kept, and of mini-batches made ahead.
const KEPT: [(usize, usize); 5] = [(0, 0), (0, 2), (100, 0), (100, 1), (300, 1)];

/// Pairs of: type of the features, parallelism, normalisation, rows kept and mini-batches ahead.
#[test]
fn differential_losses_are_those_of_mapped_rows() {
    let fixtures = DTYPES.map(|dtype| stored_as(dtype, 33, 300, 5, 6));
    for (fixture, parts) in fixtures.iter().flat_map(|fixture| [(fixture, 1), (fixture, 2)]) {
        store_partition(&fixture.dataset, Cut::Random, parts);
    }
    let mut by_mapped = BTreeMap::new();
    // Columns cannot be normalised.
    let allowed = |case: &[usize]| SHARED[case[1]].0 != Parallelism::PushPull || case[2] == 0;
    for case in cases(&[DTYPES.len(), SHARED.len(), NORMALISED.len(), KEPT.len()], allowed) {
        let [dtype, shared, normalised, kept] = case[..] else { unreachable!() };
        let (fixture, (parallelism, ranks), (rows_kept, prefetch)) =
            (&fixtures[dtype], SHARED[shared], KEPT[kept]);
        let kind = if parallelism == Parallelism::Data { ModelKind::Gat } else { ModelKind::Sage };
        let config = changed(&config(kind, parallelism, ranks), |config| {
            config.data.batch_size = 40;
            config.model.normalise_features = NORMALISED[normalised];
        });
        let mapped = by_mapped.entry((dtype, shared, normalised)).or_insert_with(|| {
            let [mapped, copied] =
                [FeatureStorage::Mapped, FeatureStorage::Memory].map(|features| {
                    run(fixture, &config, &Around { features, ..Around::default() }).unwrap()
                });
            assert_eq!(losses(&copied), losses(&mapped));
            mapped
        });
        let scores = |summary: &crate::Summary| {
            summary.epochs.iter().map(|epoch| (epoch.valid, epoch.test)).collect::<Vec<_>>()
        };
        let what = format!(
            "{}, {parallelism}, {ranks} ranks, {normalised}, {rows_kept}, {prefetch}",
            DTYPES[dtype]
        );
        let read = run(fixture, &config, &disk(rows_kept, prefetch)).unwrap();
        assert_eq!(losses(&read), losses(mapped), "{what}");
        assert_eq!(scores(&read), scores(mapped), "{what}");
        for (epoch, mapped) in read.epochs.iter().zip(&mapped.epochs) {
            let Work { rows_loaded, rows_from_disk, bytes_from_disk, rows_kept: kept, .. } =
                epoch.work;
            assert_eq!((mapped.work.rows_from_disk, mapped.work.rows_kept), (0, 0));
            assert_eq!(bytes_from_disk == 0, rows_from_disk == 0, "{what}");
            // Under push-pull each rank reads its columns of all rows; the rows of the only
            // mini-batch are read once.
            match parallelism {
                Parallelism::PushPull => {
                    assert_eq!(rows_from_disk + kept, 2 * rows_loaded, "{what}")
                }
                Parallelism::Cooperative => assert!(rows_from_disk + kept <= rows_loaded, "{what}"),
                _ => assert_eq!(rows_from_disk + kept, rows_loaded, "{what}"),
            }
            match rows_kept {
                _ if parallelism == Parallelism::Cooperative => {}
                0 => assert_eq!(kept, 0, "{what}"),
                300 => assert_eq!(rows_from_disk, 0, "{what}"),
                // Vertices of the largest out-degree are loaded more often than others.
                _ => assert!(
                    kept > rows_loaded / 3 && rows_from_disk > 0,
                    "{what}: {kept} of {rows_loaded}"
                ),
            }
        }
    }
}

#[test]
fn processes_of_a_host_read_and_find_what_threads_do() {
    let fixture = stored_as(FeatureDtype::I8, 36, 300, 5, 6);
    store_partition(&fixture.dataset, Cut::Random, 3);
    for (parallelism, groups) in [
        (Parallelism::Split, 1),
        (Parallelism::Split, 2),
        (Parallelism::Data, 1),
        (Parallelism::PushPull, 1),
    ] {
        let config = changed(&config(ModelKind::Sage, parallelism, 3 * groups), |config| {
            (config.data.batch_size, config.system.groups) = (40, groups);
        });
        let threads = run(&fixture, &config, &disk(100, 1)).unwrap();
        let counts = |summary: &crate::Summary| {
            let of = |epoch: &crate::EpochReport| {
                let Work { rows_loaded, rows_from_disk, bytes_from_disk, rows_kept, .. } =
                    epoch.work;
                [rows_loaded, rows_from_disk, bytes_from_disk, rows_kept]
            };
            summary.epochs.iter().map(of).collect::<Vec<_>>()
        };
        for summary in on_processes(&fixture, &config, &disk(100, 1)) {
            assert_eq!(losses(&summary), losses(&threads), "{parallelism}");
            assert_eq!(counts(&summary), counts(&threads), "{parallelism}");
        }
    }
}

#[test]
fn the_host_reads_rows_for_gpus() {
    let fixture = dataset(34, 200, 5);
    let config = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        config.system.device = Device::Cuda
    });
    let host = || Some(RowPlacement::Host);
    let with = |options: Around| {
        run(&fixture, &config, &Around { places: emulated(0), placement: host(), ..options })
            .unwrap()
    };
    let mapped = with(Around { features: FeatureStorage::Mapped, ..Around::default() });
    for prefetch in [0, 1] {
        let read = with(disk(50, prefetch));
        assert_eq!(losses(&read), losses(&mapped));
        assert!(read.epochs[0].work.rows_from_disk > 0 && read.epochs[0].work.rows_kept > 0);
    }
}

#[test]
fn a_budget_decides_and_one_that_is_too_small_says_what_would_do() {
    let fixture = dataset(35, 300, 5);
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let with = |features: FeatureStorage, bytes: u64| {
        run(&fixture, &config, &Around { features, memory: Some(bytes), ..Around::default() })
    };
    let line = with(FeatureStorage::Auto, 65 << 20).unwrap_err().to_string();
    assert!(
        line.starts_with("--memory: 65 MiB are too few, the graph takes")
            && !line.contains("feature rows"),
        "{line}"
    );
    let least = line
        .split("pass --memory ")
        .nth(1)
        .and_then(|rest| rest.split("MiB or more").next())
        .unwrap();
    let least: u64 = least.parse().unwrap();
    // Other tests of this process may allocate memory meanwhile.
    let enough = with(FeatureStorage::Auto, (least + 4096) << 20).unwrap();
    assert_eq!(
        enough.epochs[0].work.rows_from_disk + enough.epochs[0].work.rows_kept,
        0,
        "all are in memory"
    );
    let read = with(FeatureStorage::Disk, (least + 4096) << 20).unwrap();
    assert_eq!(
        (losses(&read), read.epochs[0].work.rows_from_disk),
        (losses(&enough), 0),
        "all are kept"
    );
    assert_refused(with(FeatureStorage::Memory, 65 << 20), "pass --memory ");
    for (features, parallelism, problem) in [
        (FeatureStorage::Mapped, Parallelism::Single, "leave out --load-features mapped"),
        (FeatureStorage::Auto, Parallelism::Cooperative, "made once"),
    ] {
        let config = changed(&config, |config| config.system.parallelism = parallelism);
        store_partition(&fixture.dataset, Cut::Random, 1);
        let options = Around { features, memory: Some(1 << 30), ..Around::default() };
        assert_refused(run(&fixture, &config, &options), problem);
    }
}
