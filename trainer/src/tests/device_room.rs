//! Emulated GPUs of little memory: the storage of graph and feature rows changes, the numbers do
//! not.

use gsplit_gpu_sim::Emulation;
use gsplit_store::{Dataset, FeatureDtype, NoProgress, Notes};

use super::fixture::{
    Cut, Fixture, changed, config, dataset, emulation, store_partition, stored_as,
};
use super::runs::losses;
use crate::config::{Config, ModelKind, Parallelism};
use crate::job::{Artifacts, Job};
use crate::residence::places::places;
use crate::residence::topology::DeviceRoom;
use crate::tests::fixture::{Around, train};
use crate::{RowPlacement, Summary, TopologyStorage};

/// A graph of some 240 KB whose mini-batches are small compared with it.
fn large() -> Fixture {
    let fixture = dataset(90, 600, 100);
    store_partition(&fixture.dataset, Cut::Random, 2);
    fixture
}

fn quick(kind: ModelKind, parallelism: Parallelism, ranks: usize) -> Config {
    changed(&config(kind, parallelism, ranks), |config| {
        (config.run.epochs, config.run.eval_every, config.data.batch_size) = (1, 0, 200);
        config.data.fanouts = "2,2,1".parse().unwrap();
    })
}

fn on(bytes: u64) -> Around {
    Around {
        places: emulation(Emulation { order: 1, bytes: Some(bytes), apart: false }),
        ..Around::default()
    }
}

/// The memory of GPUs on which mini-batches leave at least `left` bytes to each rank.
pub fn leaving(left: u64, dataset: &Dataset, config: &Config) -> Around {
    let total = 1 << 30;
    // A cache without a size is a reason to try mini-batches.
    let options = Around { placement: Some(RowPlacement::usual(config)), ..on(total) };
    let artifacts = Artifacts::open(dataset, config).unwrap();
    let (config, hooks) = &options.of(config);
    let job = Job::new(dataset, &artifacts, config, hooks).unwrap();
    let places = places(config, hooks).unwrap();
    let room = DeviceRoom::find(&job, &places, 1, &NoProgress).unwrap();
    let least = (0..config.num_ranks()).map(|rank| room.of(rank)).min().unwrap();
    // A margin of a 20th is added to any size.
    let taken = total - total / 20 - least;
    on((taken + left) * 20 / 19 + 20)
}

fn run(
    dataset: &Dataset,
    config: &Config,
    options: &Around,
) -> Result<(Summary, Vec<String>), String> {
    let notes = Notes::default();
    let summary =
        train(dataset, config, options, &notes, &|_| {}).map_err(|error| error.to_string())?;
    Ok((summary, notes.lines()))
}

#[test]
fn the_less_memory_the_less_of_the_graph_is_there_and_losses_are_the_same() {
    let fixture = large();
    let dataset = &fixture.dataset;
    for (kind, parallelism, first) in [
        (ModelKind::Sage, Parallelism::Data, TopologyStorage::Device),
        (ModelKind::Gcn, Parallelism::Split, TopologyStorage::Part),
    ] {
        let config = quick(kind, parallelism, 2);
        let on_host = Around { topology: TopologyStorage::Host, ..on(1 << 30) };
        let expected = losses(&run(dataset, &config, &on_host).unwrap().0);
        for (left, place) in [(0, TopologyStorage::Pinned), (400_000, first)] {
            let options = leaving(left, dataset, &config);
            let (summary, notes) = run(dataset, &config, &options).unwrap();
            assert_eq!(losses(&summary), expected, "{kind:?}, {left} bytes left");
            let notes = notes.join("\n");
            assert!(notes.contains("memory of GPUs, after 2 mini-batches on trial"), "{notes}");
            assert_eq!(summary.topology, place, "{left} bytes left: {notes}");
        }
    }
}

#[test]
fn a_cache_has_what_the_graph_leaves() {
    let fixture = large();
    let dataset = &fixture.dataset;
    for (parallelism, ranks) in [(Parallelism::Data, 2), (Parallelism::Split, 2)] {
        let config = quick(ModelKind::Sage, parallelism, ranks);
        let little = leaving(6_000, dataset, &config);
        let cached = |topology, memory: &Around| {
            let placement = Some(RowPlacement::usual(&config));
            let options = Around { topology, placement, ..memory.clone() };
            let (summary, notes) = run(dataset, &config, &options).unwrap();
            let rows = summary.cache.as_ref().unwrap().rows.clone();
            assert!(notes.iter().any(|line| line.contains("feature rows, placement")), "{notes:?}");
            (losses(&summary), rows)
        };
        let (expected, all) = cached(TopologyStorage::Host, &on(1 << 30));
        let (beside_nothing, some) = cached(TopologyStorage::Host, &little);
        assert_eq!(expected, beside_nothing, "{parallelism}");
        let sum = |rows: &[usize]| rows.iter().sum::<usize>();
        assert!(sum(&all) > sum(&some) && sum(&some) > 0, "{all:?}, {some:?}");
        if parallelism == Parallelism::Data {
            let graph =
                (8 * (dataset.num_vertices() + 1) + 4 * dataset.topology().num_edges()) as u64;
            let (beside_graph, fewer) =
                cached(TopologyStorage::Device, &leaving(graph + 3_000, dataset, &config));
            assert_eq!(expected, beside_graph);
            assert!(sum(&some) > sum(&fewer) && sum(&fewer) > 0, "{some:?}, {fewer:?}");
        }
    }
}

#[test]
fn rows_have_what_is_left_without_being_asked_to() {
    // Rows of 1 KiB, which take more than the eighth of a GPU up to which nothing is tried.
    let fixture = stored_as(FeatureDtype::F32, 91, 600, 20, 256);
    let dataset = &fixture.dataset;
    store_partition(dataset, Cut::Random, 2);
    for parallelism in [Parallelism::Data, Parallelism::Split] {
        let config = quick(ModelKind::Sage, parallelism, 2);
        let on_host = |options| Around { topology: TopologyStorage::Host, ..options };
        let by_default =
            run(dataset, &config, &on_host(leaving(60_000, dataset, &config))).unwrap();
        let placement = Some(RowPlacement::usual(&config));
        let asked = Around { placement, ..on_host(leaving(60_000, dataset, &config)) };
        let (asked, (kept, notes)) = (run(dataset, &config, &asked).unwrap().0, by_default);
        assert_eq!((&kept.cache, losses(&kept)), (&asked.cache, losses(&asked)), "{parallelism}");
        assert!(
            kept.cache.is_some_and(|cache| cache.rows.iter().all(|&rows| 0 < rows && rows < 300)),
            "{notes:?}"
        );
        let (none, _) = run(dataset, &config, &on_host(leaving(0, dataset, &config))).unwrap();
        assert!(
            none.cache.is_none_or(|cache| cache.rows.iter().sum::<usize>() < 10),
            "{parallelism}"
        );
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let fixture = large();
    let config = quick(ModelKind::Sage, Parallelism::Split, 2);
    for topology in [TopologyStorage::Device, TopologyStorage::Part] {
        let line =
            run(&fixture.dataset, &config, &Around { topology, ..on(100 << 10) }).unwrap_err();
        assert!(
            line.starts_with(&format!("--topology {topology}: the graph takes"))
                && line.contains("auto"),
            "{line}"
        );
    }
    let placement = Some(RowPlacement::usual(&config));
    let line = run(&fixture.dataset, &config, &Around { placement, ..on(20 << 10) }).unwrap_err();
    assert!(line.contains("out of memory") && line.contains("--batch-size"), "{line}");
    // If nothing is near the limit nothing is tried.
    let (_, notes) = run(&fixture.dataset, &config, &on(1 << 30)).unwrap();
    assert!(!notes.iter().any(|line| line.contains("on trial")), "{notes:?}");
}
