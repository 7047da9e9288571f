//! Every rule against counting by hand and against all placements that there are.

mod case;

use std::collections::BTreeSet;

use gsplit_store::Size;
use gsplit_store::{CachedRows, HOST, PartitionMap, Readers, RowLoads, write_npy};

use super::replicas::{Copies, Criterion};
use super::*;
use crate::tests::on_threads;
use case::{Case, caches, close, cost, save_map, save_presample, sum};

const BOTH: [Readers; 2] = [Readers::Split, Readers::Data];
const ALPHAS: [f64; 6] = [0.0, 0.1, 0.3, 0.8, 1.0, 2.5];

#[test]
fn oracle_every_point_of_every_curve_is_what_counting_gives() {
    for seed in 0..30 {
        let case = Case::random(seed, 60, 6);
        let sizes: Vec<usize> = (0..case.input.len() + 3).collect();
        for parallelism in BOTH {
            let demand = case.demand(parallelism);
            let rules = PlacementRule::of(parallelism);
            for alpha in ALPHAS {
                for point in curve(&demand, rules, &sizes, alpha) {
                    for (&rule, predicted) in rules.iter().zip(&point.loads) {
                        let what = format!(
                            "{}: {rule:?} {parallelism:?} {alpha} {}",
                            case.name, point.rows
                        );
                        let rows = place(&demand, rule, point.rows, alpha);
                        let caches = caches(&rows);
                        assert!(caches.iter().all(|cache| cache.len() <= point.rows), "{what}");
                        let counted = case.count(parallelism, &caches, alpha);
                        let total = sum(&counted);
                        assert!(
                            close(predicted, &total),
                            "{what}: {predicted:?}, counted {total:?}"
                        );
                        let of_devices = expected_loads(&demand, &rows, alpha).unwrap();
                        assert!(
                            of_devices.iter().zip(&counted).all(|(a, b)| close(a, b)),
                            "{what}"
                        );
                        let all = total.local + total.peer + total.host;
                        assert!(
                            (all - demand.loads_per_batch()).abs() <= 1e-9 * (1.0 + all),
                            "{what}"
                        );
                    }
                }
            }
        }
    }
}

/// Every way to fill `devices` caches with `capacity` rows of `n`.
fn all_placements(n: u32, devices: usize, capacity: usize) -> Vec<Vec<BTreeSet<u32>>> {
    let full = capacity.min(n as usize);
    let sets: Vec<BTreeSet<u32>> = (0u32..1 << n)
        .filter(|bits| bits.count_ones() as usize == full)
        .map(|bits| (0..n).filter(|v| bits >> v & 1 == 1).collect())
        .collect();
    let mut placements = vec![Vec::new()];
    for _ in 0..devices {
        let longer = |placement: Vec<BTreeSet<u32>>| {
            sets.iter().map(move |set| [&placement[..], std::slice::from_ref(set)].concat())
        };
        placements = placements.into_iter().flat_map(longer).collect();
    }
    placements
}

#[test]
fn brute_force_no_placement_costs_less_than_the_optimised_one() {
    let mut published = Vec::new();
    for seed in 0..25 {
        let case = Case::random(1000 + seed, 6, 3);
        for capacity in 1..3 {
            let placements =
                all_placements(case.input.len() as u32, case.map.num_parts(), capacity);
            for parallelism in BOTH {
                let demand = case.demand(parallelism);
                for alpha in [0.0, 0.2, 0.7, 1.0, 3.0] {
                    let counted: Vec<Vec<RowLoads>> = placements
                        .iter()
                        .map(|caches| case.count(parallelism, caches, alpha))
                        .collect();
                    let least = counted
                        .iter()
                        .map(|loads| cost(&sum(loads), alpha))
                        .fold(f64::MAX, f64::min);
                    let slowest = |loads: &[RowLoads]| {
                        loads.iter().map(|loads| cost(loads, alpha)).fold(0.0, f64::max)
                    };
                    let least_slowest =
                        counted.iter().map(|loads| slowest(loads)).fold(f64::MAX, f64::min);

                    let of_rule = |rule| {
                        let rows = place(&demand, rule, capacity, alpha);
                        expected_loads(&demand, &rows, alpha).unwrap()
                    };
                    let what =
                        format!("{}: {parallelism:?}, {capacity} rows, alpha {alpha}", case.name);
                    let found = of_rule(PlacementRule::Optimised);
                    assert!(
                        (cost(&sum(&found), alpha) - least).abs() < 1e-9,
                        "{what}: {found:?}, least {least}"
                    );
                    if parallelism == Readers::Data {
                        let hottest = (0..case.input.len())
                            .map(|v| case.loads(parallelism, v, 0))
                            .fold(0.0, f64::max);
                        assert!(
                            slowest(&found) <= least_slowest + alpha.min(1.0) * hottest + 1e-9,
                            "{what}"
                        );
                        if least_slowest > 1e-9 {
                            published
                                .push(slowest(&of_rule(PlacementRule::SongJiang)) / least_slowest);
                        }
                    }
                }
            }
        }
    }
    // Song & Jiang claim the optimum; their criterion and whole rows keep them from it on tiny
    // cases.
    let mean = published.iter().sum::<f64>() / published.len() as f64;
    assert!(published.iter().all(|&ratio| ratio > 1.0 - 1e-9) && mean < 1.05, "mean {mean}");
}

#[test]
fn algorithm_1_gives_the_slides_example() {
    let case = Case::new("slides", 2, 10, vec![1, 6, 5, 4, 3, 2], vec![0, 1, 0, 1, 0, 1]);
    let rows = place(&case.demand(Readers::Data), PlacementRule::SongJiang, 2, 0.3);
    assert_eq!(rows, CachedRows { shared: vec![], own: vec![vec![1, 3], vec![2, 4]] });
}

#[test]
fn algorithm_1_on_three_devices_by_hand() {
    // Slot 2 takes rows 3 and 4, slot 1 takes 5 but not 6: 0.3 * 80 > 12.
    let input = vec![100, 80, 70, 60, 50, 40, 12, 1];
    let case = Case::new("by hand", 3, 1_000_000, input, vec![0, 1, 2, 0, 1, 2, 0, 1]);
    let rows = place(&case.demand(Readers::Data), PlacementRule::SongJiang, 3, 0.3);
    // Nobody gave up more than device 2, which kept its copy: it is the first to give up the next.
    assert_eq!(rows, CachedRows { shared: vec![0], own: vec![vec![1, 3], vec![1, 4], vec![2, 5]] });
    assert_eq!(rows.homes(8).unwrap(), [65_534, 0, 2, 0, 1, 2, HOST, HOST]);
    // All devices together gain by row 6 and lose little by the last copy but one of row 1; slot 0
    // then takes row 7 not.
    let rows = place(&case.demand(Readers::Data), PlacementRule::Optimised, 3, 0.3);
    assert_eq!(rows.own.iter().map(Vec::len).sum::<usize>() + 3 * rows.shared.len(), 9);
    assert_eq!(rows.shared, [0]);
    assert_eq!(rows.homes(8).unwrap().iter().filter(|&&home| home == HOST).count(), 1);
}

#[test]
fn invariant_9_alpha_from_replication_to_distinct_rows() {
    for seed in 0..15 {
        let mut case = Case::random(2000 + seed, 80, 5);
        // Rows that are never loaded are not worth a copy.
        case.input.iter_mut().for_each(|count| *count = (*count).max(1));
        case.presample = save_presample(&case.dataset, "test", case.batches, &case.input);
        case.map =
            save_map(&case.dataset, &case.presample, case.map.num_parts() as u32, &case.owners);
        let demand = case.demand(Readers::Data);
        let (n, devices) = (case.input.len(), case.map.num_parts());
        for rule in [PlacementRule::SongJiang, PlacementRule::Optimised] {
            for capacity in [0, 1, 3, 10, n, n + 5] {
                let replicated = place(&demand, PlacementRule::Replicated, capacity, 1.0);
                for alpha in [1.0, 1.5, 1e9] {
                    assert_eq!(place(&demand, rule, capacity, alpha), replicated, "{}", case.name);
                }
                let rows = place(&demand, rule, capacity, 0.0);
                let distinct: BTreeSet<u32> = caches(&rows).into_iter().flatten().collect();
                assert_eq!(
                    distinct.len(),
                    n.min(devices * capacity),
                    "{}: {rule:?} {capacity}",
                    case.name
                );
            }
        }
        // Only the owner reads: alpha says whether rows away from home are worth their room.
        let demand = case.demand(Readers::Split);
        for capacity in [0, 1, 3, 10, n, n + 5] {
            let own = place(&demand, PlacementRule::Partitioned, capacity, 1.0);
            assert_eq!(
                place(&demand, PlacementRule::Optimised, capacity, 1.0),
                own,
                "{}",
                case.name
            );
            let rows = place(&demand, PlacementRule::Optimised, capacity, 0.0);
            let distinct: BTreeSet<u32> = caches(&rows).into_iter().flatten().collect();
            assert_eq!(distinct.len(), n.min(devices * capacity), "{}: {capacity}", case.name);
        }
    }
}

#[test]
fn the_hottest_rows_stay_and_devices_carry_alike() {
    for seed in 0..15 {
        let case = Case::random(3000 + seed, 200, 6);
        let demand = case.demand(Readers::Data);
        for capacity in [1, 5, 20] {
            for alpha in [0.0, 0.1, 0.5, 0.9] {
                for rule in [PlacementRule::SongJiang, PlacementRule::Optimised] {
                    let rows = place(&demand, rule, capacity, alpha);
                    let caches = caches(&rows);
                    let hottest = &demand.order[..capacity.min(case.input.len())];
                    assert!(
                        hottest.iter().all(|v| caches.iter().any(|cache| cache.contains(v))),
                        "{}",
                        case.name
                    );
                    let rank = |v: &u32| demand.order.iter().position(|u| u == v).unwrap();
                    assert!(
                        rows.own.iter().all(|own| own.is_sorted_by_key(rank)),
                        "{}: hottest first",
                        case.name
                    );
                    if rule == PlacementRule::Optimised {
                        let loads = |cache: &BTreeSet<u32>| {
                            cache.iter().map(|&v| demand.loads(v)).sum::<f64>()
                        };
                        let carried = caches.iter().map(loads);
                        let (least, most) =
                            (carried.clone().fold(f64::MAX, f64::min), carried.fold(0.0, f64::max));
                        assert!(
                            most - least <= demand.all.loads(0) * (1.0 + 1e-9),
                            "{}: {least} {most}",
                            case.name
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn the_devices_of_algorithm_1_gain_alike() {
    for seed in 0..15 {
        let case = Case::random(4000 + seed, 200, 6);
        let demand = case.demand(Readers::Data);
        let slots = 12.min(case.input.len());
        let copies =
            Copies::choose(&demand.all, demand.devices(), slots, 0.2, Criterion::Published);
        let rows = copies.deal(&demand.order, &demand.all, Criterion::Published);
        let hottest: BTreeSet<u32> = demand.order[..slots].iter().copied().collect();
        let gained = |own: &Vec<u32>| {
            own.iter().filter(|v| !hottest.contains(v)).map(|&v| demand.loads(v)).sum::<f64>()
        };
        let (least, most) = (
            rows.own.iter().map(gained).fold(f64::MAX, f64::min),
            rows.own.iter().map(gained).fold(0.0, f64::max),
        );
        assert!(
            most - least <= demand.all.loads(slots) * (1.0 + 1e-9),
            "{}: {least} {most}",
            case.name
        );
    }
}

#[test]
fn more_memory_never_costs_and_nothing_beats_the_optimised_placement() {
    for seed in 0..15 {
        let case = Case::random(5000 + seed, 300, 5);
        let sizes: Vec<usize> = (0..case.input.len() + 2).collect();
        for parallelism in BOTH {
            let demand = case.demand(parallelism);
            let rules = PlacementRule::of(parallelism);
            for alpha in ALPHAS {
                let points = curve(&demand, rules, &sizes, alpha);
                let slack = 1e-9 * (1.0 + demand.loads_per_batch());
                for pair in points.windows(2) {
                    for (i, &rule) in rules.iter().enumerate() {
                        let what = format!(
                            "{}: {rule:?} {parallelism:?} {alpha} {}",
                            case.name, pair[1].rows
                        );
                        let [before, after] = [&pair[0].loads[i], &pair[1].loads[i]];
                        let hits = |loads: &RowLoads| loads.local + loads.peer;
                        // Algorithm 1 is not optimal, so more memory may mislead it.
                        if rule != PlacementRule::SongJiang {
                            assert!(
                                cost(after, alpha.min(1.0)) <= cost(before, alpha.min(1.0)) + slack,
                                "{what}"
                            );
                        }
                        // Copies of hot rows may be worth more than a colder row.
                        if ![PlacementRule::Optimised, PlacementRule::SongJiang].contains(&rule) {
                            assert!(hits(after) >= hits(before) - slack, "{what}");
                        }
                        let best = &pair[1].loads[rules
                            .iter()
                            .position(|&rule| rule == PlacementRule::Optimised)
                            .unwrap()];
                        assert!(
                            cost(best, alpha) <= cost(after, alpha) + slack,
                            "{what}: {best:?} {after:?}"
                        );
                    }
                }
                let whole = points.last().unwrap().loads[1];
                assert!(
                    whole.host.abs() < slack && whole.peer.abs() < slack,
                    "everything on every device: {whole:?}"
                );
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let case = Case::random(77, 5000, 6);
    let run = |threads| {
        on_threads(threads, || {
            BOTH.map(|parallelism| {
                let demand = case.demand(parallelism);
                let rules = PlacementRule::of(parallelism);
                let rows: Vec<CachedRows> =
                    rules.iter().map(|&rule| place(&demand, rule, 300, 0.3)).collect();
                let expected: Vec<_> =
                    rows.iter().map(|rows| expected_loads(&demand, rows, 0.3).unwrap()).collect();
                (curve(&demand, rules, &cache_sizes(case.input.len(), 300), 0.3), rows, expected)
            })
        })
    };
    assert_eq!(run(1), run(4));
}

#[test]
fn a_cache_order_of_another_presample_is_counted_as_it_is() {
    let mut case = Case::random(11, 90, 4);
    case.input.reverse();
    case.presample = save_presample(&case.dataset, "other", case.batches, &case.input);
    for parallelism in BOTH {
        let demand = case.demand(parallelism);
        for point in curve(&demand, &[PlacementRule::Partitioned], &[0, 1, 4, 30], 0.3) {
            let rows = place(&demand, PlacementRule::Partitioned, point.rows, 0.3);
            let counted = sum(&case.count(parallelism, &caches(&rows), 0.3));
            assert!(close(&point.loads[0], &counted), "{:?} {counted:?}", point.loads);
        }
    }
}

#[test]
fn sizes_of_the_curve() {
    assert_eq!(cache_sizes(1000, 70), [1, 2, 4, 8, 16, 32, 63, 70, 125, 250, 500, 1000]);
    assert_eq!(cache_sizes(3, 9), [1, 2, 3]);
}

#[test]
fn what_cannot_be_placed_is_one_line() {
    let case = Case::random(5, 20, 3);
    for (batches, expected) in [(0, "of 0 mini-batches"), (2, "is loaded in 3 of 2 mini-batches")] {
        let presample = save_presample(&case.dataset, "bad", batches, &vec![3; case.input.len()]);
        let line = Demand::new(&case.dataset, &presample, &case.map, Readers::Data)
            .unwrap_err()
            .to_string();
        assert!(
            line.contains(expected)
                && line.contains("presample/bad")
                && line.contains("gsplit verify"),
            "{line}"
        );
    }
    let file = PartitionMap::folder(&case.dataset, "test").join("cache_order.npy");
    for bad in [u32::MAX, case.input.len() as u32] {
        write_npy(&file, &vec![bad; case.input.len()]).unwrap();
        let map = PartitionMap::open(&case.dataset, "test").unwrap();
        let line = Demand::new(&case.dataset, &case.presample, &map, Readers::Split)
            .unwrap_err()
            .to_string();
        assert!(
            line.contains(&format!("cache order of part 0: vertex {bad} is not its own")),
            "{line}"
        );
    }
    drop(case.fixture);
}

#[test]
fn options_that_make_no_sense() {
    let options = |alpha: f64, placement, parallelism| PlaceOptions {
        cache: Size::Percent(20.0),
        parallelism,
        placement,
        alpha: Some(alpha),
        host_bandwidth: None,
        peer_bandwidth: None,
    };
    let (best, published) = (PlacementRule::Optimised, PlacementRule::SongJiang);
    for alpha in [-0.1, f64::NAN, f64::INFINITY] {
        assert!(
            options(alpha, best, Readers::Split)
                .check()
                .unwrap_err()
                .to_string()
                .contains("--alpha")
        );
    }
    let line = options(0.3, published, Readers::Split).check().unwrap_err().to_string();
    assert!(line.contains("--parallelism data"), "{line}");
    let mut options = options(0.3, published, Readers::Data);
    options.check().unwrap();
    assert_eq!(options.default_key("p4"), "song-jiang-data-20pct-p4");
    options.alpha = None;
    (options.host_bandwidth, options.peer_bandwidth) = (Some(Bandwidth(25)), Some(Bandwidth(200)));
    assert_eq!(options.costs(), Costs { alpha: 0.125, bandwidths: Some((25, 200)) });
    assert_eq!(options.default_key("p4"), "song-jiang-data-20pct-a0.125-p4");
}
