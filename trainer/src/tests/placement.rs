//! Rows and losses do not depend on the storage of feature rows; the counts by storage equal a
//! count by hand. The tests are in one file because they share that count and its fixtures.

use gsplit_gpu_sim::{Emulation, counts};
use gsplit_kernels::{CacheHits, DeviceHits, Draws, Stream, StreamKey};
use gsplit_store::{
    CachedRows, Counters, Dataset, FeatureDtype, MadeFrom, NoProgress, Notes, PartitionMap,
    Placement, PlacementConfig, Presample, PresampleConfig, Readers, RowLoads,
};

use super::fixture::{
    Cut, Fixture, changed, communities, config, dataset, emulated, emulation, store_partition,
    stored_as,
};
use super::runs::{losses, run};
use crate::config::{Config, FeatureNorm, ModelKind, Parallelism, TaskKind};
use crate::job::{Artifacts, Job};
use crate::model::Input;
use crate::operator::{Place, gather_features};
use crate::residence::cache::hotness::presample_like;
use crate::residence::cache::{Caches, SimulatedCache};
use crate::residence::source::{FeatureSource, HostStorage, open_gpu_table};
use crate::tests::fixture::{Around, train};
use crate::{FeatureStorage, RowPlacement, Summary};

/// Stores a presample with the number of loads of each row.
fn store_presample(
    dataset: &Dataset,
    key: &str,
    (fanouts, draw_by): (&str, Option<&str>),
    input: Vec<u32>,
) {
    let (n, m) = (dataset.num_vertices(), dataset.topology().num_edges());
    let counters = Counters { input, appear: vec![0; n], work: vec![0; n], edge: vec![0; m] };
    let draw_by = draw_by.map(String::from);
    let config = PresampleConfig {
        fanouts: fanouts.into(),
        batch_size: 50,
        epochs: 1,
        seed: 0,
        draw_by,
        negatives: None,
    };
    Presample::save(dataset, key, config, 1, &counters, true).unwrap();
}

/// Stores a placement of `rows`, of 24 bytes, for the parts of `partition`.
pub fn store_placement(dataset: &Dataset, key: &str, partition: &str, rows: &CachedRows) {
    let map = PartitionMap::open(dataset, partition).unwrap();
    let made_from = MadeFrom {
        partition: Some((partition.to_string(), map.checksum().clone())),
        ..MadeFrom::dataset(dataset)
    };
    let config = PlacementConfig {
        placement: "test".into(),
        parallelism: Readers::Split,
        devices: rows.own.len() as u32,
        cache_bytes: 24 * dataset.num_vertices() as u64,
        row_bytes: 24,
        alpha: 0.3,
        host_bandwidth: None,
        peer_bandwidth: None,
    };
    let expected = vec![RowLoads::default(); rows.own.len()];
    Placement::save(dataset, key, made_from, config, expected, rows, true).unwrap();
}

/// Load counts that differ for neighbouring vertices, and are equal for some.
fn loads(n: usize) -> Vec<u32> {
    (0..n as u32).map(|v| v * 37 % 19).collect()
}

/// The vertices by falling loads, then by their numbers.
fn by_loads(n: usize) -> Vec<u32> {
    let loads = loads(n);
    let mut order: Vec<u32> = (0..n as u32).collect();
    order.sort_by_key(|&v| (u32::MAX - loads[v as usize], v));
    order
}

/// Rows that each of `ranks` shall keep if it has room for `rows`.
fn expected(
    dataset: &Dataset,
    placement: &RowPlacement,
    ranks: usize,
    rows: usize,
) -> Vec<Vec<u32>> {
    let order = by_loads(dataset.num_vertices());
    let list = |rank: usize| -> Vec<u32> {
        match placement {
            RowPlacement::Host => Vec::new(),
            RowPlacement::Replicated if rows >= order.len() => (0..order.len() as u32).collect(),
            RowPlacement::Replicated => order.iter().take(rows).copied().collect(),
            RowPlacement::Partitioned => {
                let map = PartitionMap::open(dataset, &format!("random-{ranks}")).unwrap();
                map.cache_order(rank).iter().take(rows).copied().collect()
            }
            RowPlacement::Peer => {
                order.iter().skip(rank).step_by(ranks).take(rows).copied().collect()
            }
            RowPlacement::Stored(key) => {
                let placement = Placement::open(dataset, key).unwrap();
                placement.shared().iter().chain(placement.own(rank)).take(rows).copied().collect()
            }
        }
    };
    (0..ranks).map(list).collect()
}

/// Some rows on every device, some on two, the rest on one; for `ranks` devices.
pub fn some_placement(n: u32, ranks: usize) -> CachedRows {
    let own = |rank: usize| {
        (10..n).filter(|v| *v as usize % (ranks + 1) == rank || *v as usize % 7 == rank).collect()
    };
    CachedRows { shared: (0..10).rev().collect(), own: (0..ranks).map(own).collect() }
}

/// Checks the rows and the hits of every rank.
fn check(
    fixture: &Fixture,
    dim: usize,
    row_bytes: u64,
    ranks: usize,
    placement: &RowPlacement,
    rows: usize,
) {
    let dataset = &fixture.dataset;
    let what = format!("{placement} of {rows} rows of {row_bytes} bytes on {ranks}");
    let parallelism = if ranks == 1 { Parallelism::Single } else { Parallelism::Data };
    let config = changed(&config(ModelKind::Sage, parallelism, ranks), |config| {
        config.system.partition = Some(format!("random-{ranks}"));
    });
    let options = Around {
        placement: Some(placement.clone()),
        cache: (*placement != RowPlacement::Host).then_some(rows as u64 * row_bytes),
        ..Around::default()
    };
    let artifacts = Artifacts::open(dataset, &config).unwrap();
    let (config, hooks) = &options.of(&config);
    let job = Job::new(dataset, &artifacts, config, hooks).unwrap();
    let places: Vec<Place> = (0..ranks).map(|rank| Place::under_test(rank as u32 % 4)).collect();
    let caches = Caches::new(&job, &places, &[], &NoProgress).unwrap();
    let mut pinned = open_gpu_table(&job.features, Some(places[0].gpu().unwrap())).unwrap();
    let lists = expected(dataset, placement, ranks, rows);
    if let Some(caches) = &caches {
        let gpus: Vec<_> =
            places.iter().enumerate().map(|(rank, place)| (rank, place.gpu().unwrap())).collect();
        pinned.fill(caches, &gpus).unwrap();
        lists
            .iter()
            .enumerate()
            .for_each(|(rank, list)| assert_eq!(caches.of(rank), list, "{what}"));
    }
    assert_eq!(caches.is_none(), *placement == RowPlacement::Host);

    let mut draws = Draws::new(&StreamKey::new(8, Stream::Generate), dim as u32);
    let n = dataset.num_vertices() as u32;
    let vertices: Vec<u32> = (0..300).map(|_| draws.below(n)).collect();
    let mut stored = vec![f32::NAN; vertices.len() * dim];
    gather_features(&job.features, &vertices, &mut stored).unwrap();
    for rank in 0..ranks {
        let source =
            FeatureSource::with_gpu_table(&job.features, &places[rank], &pinned, rank).unwrap();
        let found = source.rows(&vertices, &Input::new(&config.model), 0).unwrap();
        assert_eq!(crate::operator::to_rows(&found).unwrap(), stored, "{what}, rank {rank}");
        let crosses = *placement != RowPlacement::Replicated;
        let is_own = |v: &u32| lists[rank].contains(v);
        let own = vertices.iter().filter(|v| is_own(v)).count();
        let of_peers =
            |v: &&u32| crosses && !is_own(v) && lists.iter().any(|list| list.contains(v));
        let gpu = places[rank].gpu().unwrap();
        let on_gpu = gpu.upload(&vertices).unwrap();
        let (_, reached) = source.gathering().unwrap();
        let kept = reached.kept(gpu, source.place(), on_gpu.slice()).unwrap();
        let has_all =
            |caches: &Caches| caches.of(rank).len() == n as usize && caches.peers(rank).is_empty();
        assert_eq!(kept.is_some(), caches.as_ref().is_some_and(has_all), "{what}, rank {rank}");
        if let Some(kept) = kept {
            assert_eq!(kept.shape(), (300, dim));
            assert_eq!(
                crate::operator::to_rows(&kept.first(200).unwrap()).unwrap(),
                stored[..200 * dim]
            );
        }
        let hits = reached.hits(gpu, on_gpu.slice()).unwrap();
        let hits = hits.map_or(CacheHits::default(), |hits| {
            DeviceHits::of(&gpu.read([hits.bytes()]).unwrap()[0])
        });
        assert_eq!(
            (hits.own, hits.peer),
            (own, vertices.iter().filter(of_peers).count()),
            "{what}, rank {rank}"
        );
        let counted = caches.as_ref().map(|caches| {
            SimulatedCache::new(caches, rank, dataset.num_vertices()).hits(&vertices)
        });
        assert_eq!(counted.unwrap_or_default(), hits, "{what}, rank {rank}, counted");
    }
}

#[test]
fn oracle_rows_and_hits_on_gpus_of_every_placement_dtype_and_room() {
    let placements = ["host", "replicated", "partitioned", "peer", "some"];
    let placements = placements.map(|name| name.parse::<RowPlacement>().unwrap());
    for (seed, (dtype, dim)) in (50..).zip([
        (FeatureDtype::F32, 8),
        (FeatureDtype::F16, 6),
        (FeatureDtype::Bf16, 4),
        (FeatureDtype::I8, 5),
    ]) {
        let fixture = stored_as(dtype, seed, 120, 4, dim);
        let row_bytes =
            (dim * dtype.bytes()) as u64 + if dtype == FeatureDtype::I8 { 4 } else { 0 };
        store_presample(&fixture.dataset, "counted", ("4,3,2", None), loads(120));
        for ranks in [1, 2, 4] {
            let partition = store_partition(&fixture.dataset, Cut::Random, ranks);
            store_placement(&fixture.dataset, "some", &partition, &some_placement(120, ranks));
            for placement in &placements {
                for rows in [1, 17, 120] {
                    check(&fixture, dim, row_bytes, ranks, placement, rows);
                }
            }
        }
    }
}

#[test]
fn ranks_that_share_a_gpu_share_what_they_both_keep() {
    let fixture = dataset(75, 120, 4);
    let config = config(ModelKind::Sage, Parallelism::Data, 3);
    let partition = store_partition(&fixture.dataset, Cut::Random, 3);
    for (placement, stores) in [(RowPlacement::Replicated, 2), (RowPlacement::Partitioned, 3)] {
        let config = changed(&config, |config| config.system.partition = Some(partition.clone()));
        let options = Around { placement: Some(placement), cache: Some(240), ..Around::default() };
        let artifacts = Artifacts::open(&fixture.dataset, &config).unwrap();
        let (config, hooks) = &options.of(&config);
        let job = Job::new(&fixture.dataset, &artifacts, config, hooks).unwrap();
        // Ranks 0 and 2 are on one GPU.
        let (shared, other) = (Place::emulated(0), Place::emulated(1));
        let places = [shared.clone(), other.clone(), shared.clone()];
        let caches = Caches::new(&job, &places, &[], &NoProgress).unwrap().unwrap();
        let gpus: Vec<_> =
            places.iter().enumerate().map(|(rank, place)| (rank, place.gpu().unwrap())).collect();
        let mut pinned = open_gpu_table(&job.features, Some(gpus[0].1)).unwrap();
        pinned.fill(&caches, &gpus).unwrap();
        let taken = [&shared, &other].map(|place| counts(place.gpu().unwrap()).taken);
        assert_eq!((taken[0] + taken[1], taken[1]), (stores, 1));
        for (rank, place) in places.iter().enumerate() {
            let source =
                FeatureSource::with_gpu_table(&job.features, place, &pinned, rank).unwrap();
            let found = source.rows(caches.of(rank), &Input::new(&config.model), 0).unwrap();
            let mut stored = vec![f32::NAN; caches.of(rank).len() * 6];
            gather_features(&job.features, caches.of(rank), &mut stored).unwrap();
            assert_eq!(crate::operator::to_rows(&found).unwrap(), stored);
        }
    }
}

/// Number of rows loaded, found in the own cache and found in the caches of others, over all
/// epochs.
pub fn found(summary: &Summary) -> [u64; 3] {
    summary.epochs.iter().fold([0; 3], |[loaded, own, peers], epoch| {
        [
            loaded + epoch.work.rows_loaded,
            own + epoch.work.rows_cached,
            peers + epoch.work.rows_from_peers,
        ]
    })
}

#[test]
fn whole_runs_on_gpus_learn_the_same_with_every_placement() {
    let fixture = dataset(71, 200, 5);
    let dataset = &fixture.dataset;
    let partition = store_partition(dataset, Cut::Random, 2);
    store_placement(dataset, "some", &partition, &some_placement(200, 2));
    for parallelism in [Parallelism::Split, Parallelism::Data] {
        let config = changed(&config(ModelKind::Sage, parallelism, 2), |config| {
            (config.run.eval_every, config.run.epochs) = (0, 1);
        });
        let with = |placement: Option<&str>, rows: Option<u64>, apart: bool| {
            let placement = placement.map(|name| name.parse::<RowPlacement>().unwrap());
            let cache = rows.map(|rows| rows * 24);
            let own = Emulation { order: 2, apart, ..Emulation::default() };
            let places = if apart { emulation(own) } else { emulated(2) };
            let options = Around { places, placement, cache, ..Around::default() };
            run(&fixture, &config, &options).unwrap()
        };
        let (plain, apart) = (with(Some("host"), None, false), with(Some("host"), None, true));
        assert!(plain.cache.is_none());
        let [loaded, own, peers] = found(&plain);
        assert!(loaded > 0 && own == 0 && peers == 0);
        let placements = match parallelism {
            Parallelism::Split => ["partitioned", "some"],
            _ => ["replicated", "peer"],
        };
        for placement in placements {
            let what = format!("{placement}, {parallelism}");
            let options = Around {
                placement: placement.parse().ok(),
                cache: Some(30 * 24),
                ..Around::default()
            };
            let on_host = run(&fixture, &config, &options).unwrap();
            let [few, all, alone] =
                [(Some(30), false), (None, false), (None, true)].map(|(rows, is_apart)| {
                    let summary = with(Some(placement), rows, is_apart);
                    assert_eq!(
                        losses(&summary),
                        losses(if is_apart { &apart } else { &plain }),
                        "{what}"
                    );
                    let cache = summary.cache.clone().unwrap();
                    assert_eq!((cache.placement.as_str(), cache.row_bytes), (placement, 24));
                    assert!(
                        cache
                            .rows
                            .iter()
                            .all(|&kept| kept <= rows.map_or(200, |rows| rows as usize)),
                        "{what}"
                    );
                    (found(&summary), cache)
                });
            // Half of an emulated GPU's memory has room for all rows.
            let everywhere = match placement {
                "replicated" => [loaded, loaded, 0],
                // A rank of a split run only loads rows of its part, which its own GPU has.
                "partitioned" if parallelism == Parallelism::Split => [loaded, loaded, 0],
                _ => [loaded, all.0[1], loaded - all.0[1]],
            };
            if placement != "some" {
                assert_eq!(all.0, everywhere, "{what}");
            }
            // Each rank is then a group of its own, which has the hottest rows.
            let own = if placement == "peer" { loaded } else { all.0[1] };
            assert_eq!(alone.0, [loaded, own, 0], "{what}");
            assert!(few.0[1] > 0 && few.0[1] + few.0[2] < all.0[1] + all.0[2], "{what}: {few:?}");
            // On the host the counts are the same.
            let counted = on_host.cache.clone().unwrap();
            assert_eq!(
                (found(&on_host), &counted.rows, counted.counted),
                (few.0, &few.1.rows, true),
                "{what}"
            );
            assert!(!few.1.counted);
            assert_eq!(
                all.1.rows.iter().sum::<usize>() == 400,
                placement == "replicated",
                "{what}"
            );
        }
    }
}

#[test]
fn rows_that_are_changed_are_read_from_caches_too() {
    let fixture = dataset(76, 200, 5);
    store_partition(&fixture.dataset, Cut::Random, 2);
    for parallelism in [Parallelism::Split, Parallelism::Data] {
        let config = changed(&config(ModelKind::Sage, parallelism, 2), |config| {
            (config.run.eval_every, config.run.epochs) = (0, 1);
            (config.model.normalise_features, config.model.input_dropout) = (FeatureNorm::Row, 0.3);
        });
        let with = |placement: RowPlacement, features, prefetch| {
            let cache = (placement != RowPlacement::Host).then_some(30 * 24);
            let placement = Some(placement);
            let options = Around {
                places: emulated(1),
                placement,
                cache,
                features,
                prefetch,
                ..Around::default()
            };
            run(&fixture, &config, &options).unwrap()
        };
        let plain = with(RowPlacement::Host, FeatureStorage::Memory, 0);
        for features in [FeatureStorage::Memory, FeatureStorage::Mapped] {
            for (placement, prefetch) in
                [(RowPlacement::Replicated, 0), (RowPlacement::Partitioned, 2)]
            {
                let cached = with(placement, features, prefetch);
                assert_eq!(losses(&cached), losses(&plain), "{parallelism}, {features:?}");
                let [loaded, own, _] = found(&cached);
                assert!(own > 0 && own < loaded);
            }
        }
        let mapped = with(RowPlacement::Host, FeatureStorage::Mapped, 0);
        assert_eq!(losses(&mapped), losses(&plain), "the host gathers, {parallelism}");
    }
}

#[test]
fn differential_what_gpus_keep_of_a_file_they_find_as_of_memory() {
    for (order, dtype) in
        [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::I8].into_iter().enumerate()
    {
        let fixture = stored_as(dtype, 150, 200, 5, 6);
        let row_bytes = 6 * dtype.bytes() as u64 + if dtype == FeatureDtype::I8 { 4 } else { 0 };
        let partition = store_partition(&fixture.dataset, Cut::Random, 2);
        store_placement(&fixture.dataset, "some", &partition, &some_placement(200, 2));
        let ways = [
            (Parallelism::Data, "replicated", 30, 0),
            (Parallelism::Data, "replicated", 200, 1),
            (Parallelism::Data, "peer", 40, 2),
            (Parallelism::Data, "some", 25, 1),
            (Parallelism::Split, "partitioned", 20, 1),
            (Parallelism::Split, "partitioned", 200, 0),
        ];
        // A different third for each type.
        for (parallelism, placement, rows, prefetch) in ways.into_iter().skip(order).step_by(3) {
            let config =
                changed(&config(ModelKind::Sage, parallelism, 2), |config| config.run.epochs = 1);
            let [memory, mapped, disk] =
                [FeatureStorage::Memory, FeatureStorage::Mapped, FeatureStorage::Disk].map(
                    |features| {
                        let (cache, placement) = (Some(rows * row_bytes), placement.parse().ok());
                        let places = emulated(1);
                        let rows_kept = Some(rows as usize % 200 * 2);
                        let options = Around {
                            places,
                            placement,
                            cache,
                            features,
                            prefetch,
                            rows_kept,
                            ..Around::default()
                        };
                        run(&fixture, &config, &options).unwrap()
                    },
                );
            let what = format!("{dtype}, {parallelism}, {placement}, {rows} rows");
            let kept = disk.epochs[0].work.rows_kept;
            assert_eq!(kept > 0, rows < 200, "{what}");
            assert_eq!(memory.features, HostStorage::Pinned);
            for (other, storage) in [(mapped, HostStorage::Mapped), (disk, HostStorage::Disk)] {
                assert_eq!(
                    (losses(&other), found(&other)),
                    (losses(&memory), found(&memory)),
                    "{what}"
                );
                assert_eq!((&other.cache, other.features), (&memory.cache, storage), "{what}");
                let [loaded, own, peers] = found(&other);
                assert_eq!(own + peers == loaded, rows == 200, "{what}");
                let work = &other.epochs[0].work;
                let read = if storage == HostStorage::Disk { loaded - own - peers } else { 0 };
                assert_eq!(work.rows_from_disk + work.rows_kept, read, "{what}");
            }
        }
    }
}

#[test]
fn rows_lie_on_gpus_that_have_room_without_being_asked_to() {
    let fixture = dataset(77, 200, 5);
    store_partition(&fixture.dataset, Cut::Random, 2);
    let run = |config: &Config, options: &Around| {
        let notes = Notes::default();
        let summary = train(&fixture.dataset, config, options, &notes, &|_| {}).unwrap();
        let lines = notes.lines().into_iter().filter(|line| line.starts_with("feature rows"));
        (summary, lines.collect::<Vec<_>>().join("; "))
    };
    let on_gpus = Around { places: emulated(1), ..Around::default() };
    for (parallelism, placement, rows) in
        [(Parallelism::Data, "replicated", [200, 200]), (Parallelism::Split, "partitioned", [0, 0])]
    {
        let config = changed(&config(ModelKind::Sage, parallelism, 2), |config| {
            (config.run.eval_every, config.run.epochs) = (0, 1)
        });
        let (kept, told) = run(&config, &on_gpus);
        let cache = kept.cache.clone().unwrap();
        assert_eq!((cache.placement.as_str(), kept.features), (placement, HostStorage::Pinned));
        match parallelism {
            Parallelism::Data => assert_eq!(cache.rows, rows),
            _ => assert_eq!(cache.rows.iter().sum::<usize>(), 200),
        }
        let [loaded, own, _] = found(&kept);
        assert_eq!(own, loaded, "all rows are found there");
        let of_parts = |others: &str, told: &str| match parallelism {
            Parallelism::Data => {
                assert_eq!(
                    told,
                    "feature rows, placement replicated: all 200 on each rank's GPU (0 MiB)"
                )
            }
            _ => assert!(
                told.contains("placement partitioned: ") && told.ends_with(others),
                "{told}"
            ),
        };
        of_parts("; others are read by GPUs from pinned host memory", &told);

        let host = Around { placement: Some(RowPlacement::Host), ..on_gpus.clone() };
        let (on_host, told) = run(&config, &host);
        assert_eq!((losses(&on_host), on_host.cache), (losses(&kept), None));
        assert_eq!(told, "feature rows are read by GPUs from pinned host memory");

        let mapped = Around { features: FeatureStorage::Mapped, ..on_gpus.clone() };
        let (mapped, told) = run(&config, &mapped);
        assert_eq!(
            (losses(&mapped), &mapped.cache, mapped.features),
            (losses(&kept), &kept.cache, HostStorage::Mapped)
        );
        of_parts("; others are gathered by the host from the mapped file", &told);
    }
    // A run on the CPU keeps nothing; nor does one whose draws would depend on it.
    let data = config(ModelKind::Sage, Parallelism::Data, 2);
    let (on_cpu, told) = run(&data, &Around::default());
    assert_eq!((on_cpu.cache, on_cpu.features, told.as_str()), (None, HostStorage::Memory, ""));
}

#[test]
fn what_ranks_rows_is_the_presample_that_was_drawn_alike() {
    let fixture = dataset(72, 120, 4);
    let dataset = &fixture.dataset;
    let config = config(ModelKind::Sage, Parallelism::Data, 2);
    let notes_of = |dataset: &Dataset, config: &Config| {
        let (notes, placement) = (Notes::default(), Some(RowPlacement::Replicated));
        let options =
            Around { places: emulated(0), placement, cache: Some(240), ..Around::default() };
        let summary = train(dataset, config, &options, &notes, &|_| {}).unwrap();
        let cache = summary.cache.unwrap();
        let told = notes
            .lines()
            .into_iter()
            .find(|line| line.starts_with("feature rows, placement"))
            .unwrap();
        assert!(
            told.contains(" of 120 on each rank's GPU") && told.contains(&cache.ranked_by),
            "{told}"
        );
        (cache.ranked_by, notes.lines())
    };
    assert_eq!(notes_of(dataset, &config).0, "the number of edges that lead from them");
    store_presample(dataset, "a-other", ("9,9,9", None), loads(120));
    assert_eq!(notes_of(dataset, &config).0, "presample a-other");
    store_presample(dataset, "b-fitting", ("4,3,2", None), loads(120));
    assert_eq!(notes_of(dataset, &config).0, "presample b-fitting");
    // Draws by weight go to other vertices, whatever the fanouts.
    store_presample(dataset, "c-weighted", ("9,9,9", Some("w")), loads(120));
    for (draw_by, expected) in
        [(Some("w"), "c-weighted"), (None, "b-fitting"), (Some("v"), "b-fitting")]
    {
        let config = changed(&config, |config| config.data.draw_by = draw_by.map(String::from));
        assert_eq!(
            presample_like(dataset, &config, None, &NoProgress).unwrap().unwrap().key(),
            expected
        );
    }
    // A damaged one is named, and the run goes on without it.
    let damaged = Presample::folder(dataset, "b-fitting").join("input.npy");
    std::fs::write(&damaged, b"nothing").unwrap();
    let (by, notes) = notes_of(dataset, &config);
    assert_eq!(by, "presample a-other");
    assert!(
        notes
            .iter()
            .any(|line| line.starts_with("warning: rows are ranked without presample b-fitting"))
    );
    // Mini-batches of links differ.
    let links = communities(120, 4);
    let config = changed(&config, |config| config.data.task.kind = Some(TaskKind::Link));
    assert_eq!(notes_of(&links.dataset, &config).0, "the number of edges that lead from them");
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let fixture = dataset(73, 120, 4);
    let ds = &fixture.dataset;
    let (two, three) = (store_partition(ds, Cut::Random, 2), store_partition(ds, Cut::Random, 3));
    let ranges = store_partition(ds, Cut::Ranges, 2);
    store_placement(ds, "two", &two, &some_placement(120, 2));
    store_placement(ds, "three", &three, &some_placement(120, 3));
    store_placement(ds, "old", &ranges, &some_placement(120, 2));
    let data = config(ModelKind::Sage, Parallelism::Data, 2);
    let split = changed(&config(ModelKind::Sage, Parallelism::Split, 2), |config| {
        config.system.partition = Some(two.clone())
    });
    let with = |placement: &str| Around {
        places: emulated(0),
        placement: Some(placement.parse().unwrap()),
        ..Around::default()
    };
    let refused = |config: &Config, options: Around, words: &[&str]| {
        let line = run(&fixture, config, &options).unwrap_err().to_string();
        assert!(
            words.iter().all(|word| line.contains(word)) && !line.contains('\n'),
            "{words:?}: {line}"
        );
    };
    refused(
        &data,
        with("replicate"),
        &["--placement replicate", "replicated, partitioned", "old, three, two"],
    );
    refused(
        &data,
        with("three"),
        &["--placement three is for 3 devices", "the number of ranks is 2"],
    );
    refused(
        &split,
        with("old"),
        &["--placement old", "made for partition ranges-2", "--partition ranges-2"],
    );
    refused(
        &data,
        Around { places: None, ..with("peer") },
        &["--placement: on --device cpu", "--cache SIZE"],
    );
    refused(
        &data,
        Around { cache: Some(1 << 20), ..with("host") },
        &["--cache", "--placement host keeps no rows"],
    );
    refused(
        &data,
        Around { cache: Some(23), ..with("peer") },
        &["--cache: 23 bytes hold no row of 24"],
    );
    let four = config(ModelKind::Sage, Parallelism::Data, 4);
    refused(&four, with("partitioned"), &["has no partition into 4 parts"]);

    let order = PartitionMap::folder(ds, &three).join("cache_order.npy");
    gsplit_store::write_npy(order, &[120u32; 120]).unwrap();
    let on_three = changed(&data, |config| config.system.ranks = Some(3));
    refused(&on_three, with("partitioned"), &["cache_order.npy", "vertex 120", "part 0"]);

    // A placement whose partition was made again, and one of another graph.
    let stale = |dataset: &Dataset, words: &str| {
        let options = with("old");
        let line = train(dataset, &data, &options, &NoProgress, &|_| {}).unwrap_err().to_string();
        assert!(line.contains("old") && line.contains(words), "{line}");
    };
    let other = dataset(74, 120, 4);
    let (from, to) = (Placement::folder(ds, "old"), Placement::folder(&other.dataset, "old"));
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    stale(&other.dataset, "made from");
    let map = PartitionMap::folder(ds, "ranges-2");
    std::fs::remove_dir_all(&map).unwrap();
    let random = PartitionMap::folder(ds, &two);
    std::fs::rename(random, map).unwrap();
    stale(ds, "ranges-2");
}
