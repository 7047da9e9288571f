//! One test body, every partitioner, every graph.

use std::collections::BTreeSet;

use gsplit_store::{Dataset, NoProgress, Notes, Pieces, Presample};

use super::{Fixture, communities, graphs, on_threads, random_graph, save};
use crate::{Error, Load, Method, PartitionOptions, Partitioned, Quantity, Weights, partition};

/// The default options except for these.
pub(crate) fn options(
    partitioner: Method,
    weights: Option<Weights>,
    parts: u32,
) -> PartitionOptions {
    PartitionOptions {
        parts,
        targets: Vec::new(),
        servers: 1,
        partitioner,
        weights,
        load: Load::default(),
        quality: None,
        refine: None,
        balance: Vec::new(),
        epsilon: 0.03,
        seed: 0,
        contiguous: false,
        memory: None,
    }
}

/// Partitioners that balance weights.
const WEIGHING: [Method; 3] = [Method::Multilevel, Method::Metis, Method::Range];

/// Every partitioner with everything it can balance.
fn choices() -> Vec<PartitionOptions> {
    let mut choices = vec![options(Method::Random, None, 1), options(Method::Hash, None, 1)];
    for method in WEIGHING {
        let all = [Weights::Presampled, Weights::Unit, Weights::Vertex, Weights::Degree];
        // The others tell weights apart by nothing but their number.
        let weights =
            if matches!(method, Method::Multilevel | Method::Metis) { &all[..] } else { &all[..2] };
        choices.extend(weights.iter().map(|&weights| options(method, Some(weights), 1)));
        let balance = vec![Quantity::Work, Quantity::Vertices, Quantity::Targets, Quantity::Edges];
        choices.push(PartitionOptions { balance, ..options(method, None, 1) });
    }
    choices
}

/// Every choice, cut into as many parts.
fn choices_for(parts: u32) -> impl Iterator<Item = PartitionOptions> {
    choices().into_iter().map(move |options| PartitionOptions { parts, ..options })
}

/// Number of connected pieces: the least label spreads until it has reached all of its piece.
fn oracle_pieces(dataset: &Dataset, assignment: &[u16]) -> u64 {
    let topology = dataset.topology();
    let mut labels: Vec<u32> = (0..assignment.len() as u32).collect();
    loop {
        let before = labels.clone();
        for v in 0..assignment.len() as u32 {
            for &u in topology
                .in_neighbours(v)
                .iter()
                .filter(|&&u| assignment[u as usize] == assignment[v as usize])
            {
                let least = labels[u as usize].min(labels[v as usize]);
                (labels[u as usize], labels[v as usize]) = (least, least);
            }
        }
        if labels == before {
            return (0..).zip(&labels).filter(|&(v, &label)| v == label).count() as u64;
        }
    }
}

/// Cut, adjacent pairs, weighted cut and total weight, straight from their definitions.
fn oracle_cut(
    dataset: &Dataset,
    presample: &Presample,
    assignment: &[u16],
) -> (u64, u64, u64, u64) {
    let (mut pairs, mut weighted, mut total, mut e) = (BTreeSet::new(), 0, 0, 0);
    for v in 0..dataset.num_vertices() as u32 {
        for &u in dataset.topology().in_neighbours(v) {
            let count = u64::from(presample.edge()[e]);
            e += 1;
            total += count;
            weighted += if assignment[u as usize] == assignment[v as usize] { 0 } else { count };
            if u != v {
                pairs.insert((u.min(v), u.max(v)));
            }
        }
    }
    let cut =
        pairs.iter().filter(|(u, v)| assignment[*u as usize] != assignment[*v as usize]).count();
    (cut as u64, pairs.len() as u64, weighted, total)
}

/// Heaviest part and heaviest vertex, both over the mean of the parts.
fn oracle_imbalance(weights: &[u64], assignment: &[u16], parts: u32) -> (f64, f64) {
    let mut loads = vec![0; parts as usize];
    assignment.iter().zip(weights).for_each(|(&part, weight)| loads[part as usize] += weight);
    let total: u64 = loads.iter().sum();
    if total == 0 {
        return (0.0, 0.0);
    }
    let over_mean = |load: Option<&u64>| *load.unwrap() as f64 * f64::from(parts) / total as f64;
    (over_mean(loads.iter().max()), over_mean(weights.iter().max()))
}

/// The weights that a choice balances, one list per constraint.
fn balanced(dataset: &Dataset, presample: &Presample, options: &PartitionOptions) -> Vec<Vec<u64>> {
    let n = dataset.num_vertices();
    let unit = vec![1; n];
    let counted: Vec<u64> = presample.work().iter().map(|&count| u64::from(count)).collect();
    let degrees = || dataset.topology().indptr().windows(2).map(|pair| pair[1] - pair[0]).collect();
    let targets = || (0..n).map(|v| u64::from(v % 3 == 0)).collect();
    let lists = match options.weights() {
        _ if !options.balance.is_empty() => vec![unit.clone(), degrees(), targets(), counted],
        Weights::Unit => vec![unit.clone()],
        Weights::Degree => vec![degrees(), targets()],
        Weights::Presampled | Weights::Vertex => vec![counted],
        Weights::Own => own_weights(dataset),
    };
    let used: Vec<Vec<u64>> =
        lists.into_iter().filter(|list| list.iter().sum::<u64>() > 0).collect();
    if used.is_empty() { vec![unit] } else { used }
}

fn own_weights(dataset: &Dataset) -> Vec<Vec<u64>> {
    let columns = dataset.vertex_weights().unwrap().into_iter();
    columns.map(|column| column.values.into_iter().map(u64::from).collect()).collect()
}

fn check(graph: &Fixture, options: &PartitionOptions) -> Partitioned {
    let (dataset, presample) = graph.presampled();
    let made = check_made(graph, &dataset, &presample, options);
    check_stored(&dataset, &presample, options, &made);
    made
}

/// Partitions twice, and checks every promise against its definition, except storing, which takes
/// the disk far longer.
pub(crate) fn check_made(
    graph: &Fixture,
    dataset: &Dataset,
    presample: &Presample,
    options: &PartitionOptions,
) -> Partitioned {
    let what = format!("{}: {options:?}", graph.name);
    let run = || {
        partition(dataset, Some(presample), options, &NoProgress)
            .unwrap_or_else(|e| panic!("{what}: {e}"))
    };
    let made = run();
    let (n, parts) = (dataset.num_vertices(), options.parts);
    assert_eq!(made.assignment.len(), n, "{what}");

    let mut sizes = vec![0; parts as usize];
    made.assignment.iter().for_each(|&part| sizes[part as usize] += 1);
    assert!(sizes.iter().all(|&size| size > 0), "{what}: {sizes:?}");
    assert_eq!(made.report.part_sizes, sizes, "{what}");

    let report = &made.report;
    let reported = (report.cut, report.adjacent_pairs, report.weighted_cut, report.total_weight);
    assert_eq!(reported, oracle_cut(dataset, presample, &made.assignment), "{what}");
    let pieces = Pieces {
        parts: oracle_pieces(dataset, &made.assignment),
        graph: oracle_pieces(dataset, &vec![0; n]),
    };
    assert_eq!(report.pieces, Some(pieces), "{what}");

    let lists = balanced(dataset, presample, options);
    let found: Vec<(f64, f64)> =
        lists.iter().map(|list| oracle_imbalance(list, &made.assignment, parts)).collect();
    let imbalance = found.iter().map(|pair| pair.0).fold(0.0, f64::max);
    assert!(
        (report.imbalance - imbalance).abs() < 1e-9,
        "{what}: {} {imbalance}",
        report.imbalance
    );
    match options.partitioner {
        Method::Random => assert!(
            sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1,
            "{what}: {sizes:?}"
        ),
        // With one constraint: within ε, or not above the limit that the heaviest vertex sets.
        Method::Range if found.len() == 1 => {
            assert!(imbalance <= 1.0 + found[0].1 + 1e-9, "{what}: {imbalance}")
        }
        method if method.weighs() && found.len() == 1 => {
            let promised = f64::max(1.0 + options.epsilon, 1.0 + found[0].1);
            assert!(imbalance <= promised + 1e-9, "{what}: {imbalance} {promised}");
        }
        _ => {}
    }

    let again = run();
    assert_eq!(
        (made.assignment.clone(), &made.cache_order),
        (again.assignment, &again.cache_order),
        "{what}"
    );
    made
}

fn check_stored(
    dataset: &Dataset,
    presample: &Presample,
    options: &PartitionOptions,
    made: &Partitioned,
) {
    let stored = save(dataset, &options.default_key(), Some(presample), options, made);
    for part in 0..options.parts as usize {
        let mut its = stored.cache_order(part).iter();
        assert!(its.all(|&v| made.assignment[v as usize] as usize == part), "{options:?}");
    }
}

#[test]
fn oracle_every_partitioner_keeps_its_promises_on_every_shape() {
    for graph in graphs() {
        let (dataset, presample) = graph.presampled();
        let n = dataset.num_vertices() as u32;
        for parts in [1, 2, 4, 7].into_iter().filter(|&parts| parts <= n) {
            for options in choices_for(parts) {
                let made = check_made(&graph, &dataset, &presample, &options);
                if parts == 2 {
                    check_stored(&dataset, &presample, &options, &made);
                }
            }
        }
    }
}

#[test]
fn oracle_every_partitioner_keeps_its_promises_on_random_graphs() {
    for seed in 0..40 {
        let graph = random_graph(seed);
        let (dataset, presample) = graph.presampled();
        let n = dataset.num_vertices() as u32;
        for parts in [2, 5, n / 2, n].into_iter().filter(|&parts| (1..=n).contains(&parts)) {
            // Each graph is cut by a fifth of the choices.
            for options in choices_for(parts).skip(seed as usize % 5).step_by(5) {
                check_made(&graph, &dataset, &presample, &options);
            }
        }
    }
}

#[test]
fn oracle_weights_that_came_with_the_graph_are_balanced_on_every_shape() {
    for graph in graphs().into_iter().map(Fixture::weighted) {
        let (dataset, presample) = graph.presampled();
        for parts in [2, 3, 7].into_iter().filter(|&parts| parts as usize <= dataset.num_vertices())
        {
            for method in WEIGHING {
                let options = options(method, Some(Weights::Own), parts);
                let report = check_made(&graph, &dataset, &presample, &options).report;
                let own = report.own_weights.unwrap();
                let worst = own.vertices.values().copied().fold(0.0, f64::max);
                assert!(
                    (worst - report.imbalance).abs() < 1e-9,
                    "{}: {options:?}: {own:?}",
                    graph.name
                );
                assert!(
                    own.unused.is_empty() && own.cut <= own.total,
                    "{}: {options:?}: {own:?}",
                    graph.name
                );
            }
        }
    }
}

#[test]
fn oracle_parts_keep_to_their_targets_on_every_shape() {
    let random = (0..30).map(random_graph);
    for (graph, turn) in graphs().into_iter().chain(random).zip(0u32..) {
        let (dataset, presample) = graph.presampled();
        for (targets, servers) in
            [(vec![3.0, 1.0], 1), (vec![0.5, 4.0, 1.5], 1), (vec![5.0, 1.0, 1.0, 2.0, 2.0, 3.0], 2)]
        {
            let parts = targets.len() as u32;
            for method in [Method::Multilevel, Method::Metis] {
                if parts as usize > dataset.num_vertices() || servers > 1 && method == Method::Metis
                {
                    continue;
                }
                let weights = [Weights::Unit, Weights::Presampled][turn as usize % 2];
                let options = PartitionOptions {
                    targets: targets.clone(),
                    servers,
                    ..options(method, Some(weights), parts)
                };
                let made = partition(&dataset, Some(&presample), &options, &NoProgress).unwrap();
                let weights = balanced(&dataset, &presample, &options).remove(0);
                let (total, sum) =
                    (weights.iter().sum::<u64>() as f64, targets.iter().sum::<f64>());
                let heaviest = *weights.iter().max().unwrap() as f64;
                let over = (0..).zip(&targets).map(|(part, target)| {
                    let members =
                        made.assignment.iter().zip(&weights).filter(|(its, _)| **its == part);
                    let load = members.map(|(_, weight)| *weight).sum::<u64>() as f64;
                    let target = target / sum * total;
                    let most = f64::max(1.03 * target, target + heaviest) + 1e-9;
                    assert!(
                        load <= most,
                        "{}: {options:?}: part {part} has {load} of {target}",
                        graph.name
                    );
                    load / target
                });
                let over: Vec<f64> = over.collect();
                let said = made.report.of_target.unwrap();
                let close = said.iter().zip(&over).all(|(said, found)| (said - found).abs() < 1e-9);
                assert!(
                    close && said.len() == over.len(),
                    "{}: {options:?}: {said:?} {over:?}",
                    graph.name
                );
                assert!(
                    (made.report.imbalance - over.iter().copied().fold(0.0, f64::max)).abs() < 1e-9
                );
            }
        }
    }
}

#[test]
fn communities_are_found_and_several_constraints_balanced() {
    let graph = communities(6, 200);
    for parts in [2, 3, 6] {
        for options in choices_for(parts) {
            let report = check(&graph, &options).report;
            let share = report.cut as f64 / report.adjacent_pairs as f64;
            match options.partitioner {
                Method::Multilevel | Method::Metis => {
                    assert!(report.imbalance <= 1.03 + 1e-9, "{options:?}: {report:?}");
                    assert!(share < 0.4, "{options:?}: {report:?}");
                }
                Method::Random | Method::Hash => assert!(share > 0.45, "{options:?}: {report:?}"),
                // The communities are numbered one after the other.
                Method::Range => assert!(share < 0.4, "{options:?}: {report:?}"),
            }
        }
    }
}

/// DESIGN, invariant 8. Whether one edge crosses is independent of whether another does, so the
/// share of cross edges is within a few standard deviations of (k - 1)/k.
#[test]
fn a_random_partition_cuts_k_minus_1_of_k_edges() {
    let graph = communities(10, 300);
    for method in [Method::Random, Method::Hash] {
        for parts in [2, 4, 8, 32] {
            let report = check(&graph, &options(method, None, parts)).report;
            let expected = f64::from(parts - 1) / f64::from(parts);
            let deviation = (expected * (1.0 - expected) / report.adjacent_pairs as f64).sqrt();
            let share = report.cut as f64 / report.adjacent_pairs as f64;
            assert!(
                (share - expected).abs() < 5.0 * deviation,
                "{method:?} {parts}: {share}, expected {expected}"
            );
        }
    }
}

#[test]
fn seeds_differ() {
    let graph = communities(4, 100);
    let dataset = graph.dataset();
    for method in [Method::Multilevel, Method::Metis, Method::Random, Method::Hash] {
        let weights = method.weighs().then_some(Weights::Unit);
        let run = |seed| {
            let options = PartitionOptions { seed, ..options(method, weights, 5) };
            partition(&dataset, None, &options, &NoProgress).unwrap().assignment
        };
        assert_ne!(run(0), run(1), "{method:?}");
    }
}

#[test]
fn differential_one_thread_and_four_agree() {
    let graph = communities(6, 100);
    let (dataset, presample) = graph.presampled();
    for options in choices_for(4) {
        let run = |threads| {
            let made = on_threads(threads, || {
                partition(&dataset, Some(&presample), &options, &NoProgress).unwrap()
            });
            (made.assignment, made.cache_order, made.report)
        };
        assert_eq!(run(1), run(4), "{options:?}");
    }
}

#[test]
fn a_vertex_heavier_than_a_part_is_explained() {
    let star: Vec<(u32, u32)> = (1..50).map(|v| (v, 0)).collect();
    let graph = Fixture::new("star", 50, &star);
    let dataset = graph.dataset();
    let notes = Notes::default();
    partition(&dataset, None, &options(Method::Metis, Some(Weights::Degree), 4), &notes).unwrap();
    let notes = notes.lines();
    assert!(notes.len() == 1 && notes[0].contains("weighs 4.000 times the mean"), "{notes:?}");
}

#[test]
fn counters_that_are_all_zero_mean_unit_weights() {
    let graph = communities(4, 50);
    let dataset = graph.dataset();
    let presample = graph.empty_presample(&dataset);
    let notes = Notes::default();
    let wanted = options(Method::Metis, Some(Weights::Presampled), 4);
    let made = partition(&dataset, Some(&presample), &wanted, &notes).unwrap();
    assert!(made.report.imbalance <= 1.03, "{:?}", made.report);
    assert_eq!((made.report.weighted_cut, made.report.expected_cross_share), (0, 0.0));
    assert_eq!(notes.lines().len(), 1);
}

#[test]
fn bad_input_is_one_clear_line() {
    let dataset = Fixture::new("path", 3, &[(0, 1), (1, 2)]).dataset();
    let unit = options(Method::Metis, Some(Weights::Unit), 2);
    type Change = fn(&mut PartitionOptions);
    let edges = PartitionOptions { balance: vec![Quantity::Edges], ..unit.clone() };
    let refused = |options: &PartitionOptions, expected: &str| {
        let message = partition(&dataset, None, options, &NoProgress).unwrap_err().to_string();
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
    };
    let all_refused = |options: &PartitionOptions, cases: &[(Change, &str)]| {
        for (change, expected) in cases {
            let mut options = options.clone();
            change(&mut options);
            refused(&options, expected);
        }
    };
    all_refused(
        &unit,
        &[
            (|options| options.parts = 0, "--parts 0"),
            (|options| options.parts = 65_536, "--parts 65536"),
            (|options| options.parts = 4, "3 vertices"),
            (|options| options.epsilon = 0.0, "--epsilon 0"),
            (|options| options.epsilon = f64::NAN, "--epsilon NaN"),
            (|options| options.epsilon = 2.0, "at most 1"),
            (|options| options.weights = None, "gsplit presample"),
            (
                |options| options.partitioner = Method::Hash,
                "--weights: --partitioner hash weighs nothing",
            ),
            (|options| options.balance = vec![Quantity::Work], "gsplit presample"),
            (|options| options.targets = vec![1.0, 0.0], "--targets: expected a number above 0"),
            (|options| options.targets = vec![-1.0, -2.0], "--targets: expected a number above 0"),
            (|options| options.targets = vec![1.0, f64::NAN], "--targets: expected"),
            (|options| options.targets = vec![1.0; 3], "--targets: expected a number above 0"),
            (|options| options.targets = vec![f64::MAX; 2], "--targets: expected"),
            (|options| options.targets = vec![1.0, 1e12], "less than 0.000000001 of their sum"),
            (|options| options.servers = 2, "--servers: --partitioner metis has no such option"),
        ],
    );
    all_refused(
        &edges,
        &[
            (
                |options| (options.weights, options.partitioner) = (None, Method::Hash),
                "--balance: --partitioner hash",
            ),
            (|options| options.weights = Some(Weights::Degree), "presampled, unit or own"),
            (|options| options.weights = Some(Weights::Vertex), "presampled, unit or own"),
            (|options| options.load = Load::Appear, "leave --load out"),
        ],
    );
    let multilevel = PartitionOptions { partitioner: Method::Multilevel, ..unit.clone() };
    let contiguous = PartitionOptions { contiguous: true, ..multilevel.clone() };
    refused(&contiguous, "--contiguous: --partitioner multilevel has no such option");
    for (servers, parts, expected) in [
        (0, 2, "--servers 0: expected a number that divides --parts 2"),
        (2, 3, "--servers 2: expected a number that divides --parts 3"),
        (2, 4, "3 vertices"),
    ] {
        refused(&PartitionOptions { servers, parts, ..multilevel.clone() }, expected);
    }
    let apart = Fixture::new("two paths", 4, &[(0, 1), (2, 3)]).dataset();
    let contiguous = PartitionOptions { contiguous: true, ..unit.clone() };
    let message = partition(&apart, None, &contiguous, &NoProgress).unwrap_err().to_string();
    assert!(
        message.contains("--contiguous: the graph is not connected, it has 2 components"),
        "{message}"
    );
    let damaged = Fixture::raw("damaged", vec![0, 1, 2], vec![1, 7]).dataset();
    for (method, weights) in [(Method::Metis, Some(Weights::Unit)), (Method::Random, None)] {
        let error =
            partition(&damaged, None, &options(method, weights, 2), &NoProgress).unwrap_err();
        assert!(matches!(error, Error::Store(_)), "{error}");
    }
    let empty = Fixture::new("empty", 0, &[]).dataset();
    assert!(matches!(partition(&empty, None, &unit, &NoProgress), Err(Error::TooManyParts { .. })));
}

#[test]
fn keys_name_what_is_not_a_default() {
    let presampled = options(Method::Metis, None, 4);
    assert_eq!(presampled.default_key(), "metis-presampled-k4");
    assert_eq!(
        PartitionOptions { load: Load::Appear, ..presampled }.default_key(),
        "metis-presampled-appear-k4"
    );
    assert_eq!(
        PartitionOptions { seed: 1, ..options(Method::Random, None, 8) }.default_key(),
        "random-k8_s1"
    );
    let unit = options(Method::Metis, Some(Weights::Unit), 4);
    let balance = vec![Quantity::Targets, Quantity::Vertices];
    let keys = [
        (PartitionOptions { seed: 2, ..unit.clone() }, "metis-unit-k4_s2"),
        (PartitionOptions { contiguous: true, ..unit.clone() }, "metis_contiguous-unit-k4"),
        (
            PartitionOptions { balance: balance.clone(), ..unit.clone() },
            "metis-unit-vertices-targets-k4",
        ),
        (
            PartitionOptions { balance, ..options(Method::Range, None, 4) },
            "range-unit-vertices-targets-k4",
        ),
        (options(Method::Range, Some(Weights::Presampled), 4), "range-presampled-k4"),
        (
            PartitionOptions { targets: vec![2.0, 0.5], ..options(Method::Random, None, 2) },
            "random-k2_t2-0.5",
        ),
        (
            PartitionOptions { servers: 2, ..options(Method::Multilevel, None, 8) },
            "multilevel-presampled-k2x4",
        ),
    ];
    for (options, expected) in keys {
        options.check().unwrap();
        assert_eq!(options.default_key(), expected);
        gsplit_store::artifact_key(expected).unwrap();
    }
}
