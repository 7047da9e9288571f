//! Tests of pre-sampling on small generated datasets.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gsplit_gpu_sim::under_test;
use gsplit_store::{DatasetWriter, NoProgress, Provenance, Stage};

use super::*;
use crate::generate::{Generator, generate, rmat};

fn dataset(out: &Path, seed: u64, directed: bool, split: &str) -> Dataset {
    use clap::Parser;
    #[derive(Parser)]
    struct RmatCommand {
        #[command(flatten)]
        options: rmat::RmatOptions,
    }
    let (seed, split) = (seed.to_string(), format!("--random-split={split}"));
    let mut line = vec!["", "--vertices=700", "--edges=6000", "--seed", &seed, &split];
    line.extend(directed.then_some("--directed"));
    let options = RmatCommand::try_parse_from(line).unwrap().options;
    generate(&Generator::Rmat(options), out, false, &NoProgress).unwrap().0
}

fn options(fanouts: &str, batch_size: u64) -> Options {
    Options {
        fanouts: fanouts.parse().unwrap(),
        batch_size,
        epochs: 3,
        seed: 5,
        draw_by: None,
        task: Task::Node,
        negatives: 2,
        memory: None,
    }
}

fn counters(dataset: &Dataset, options: &Options) -> (gsplit_store::Counters, u64) {
    count(dataset, options, None, &NoProgress).unwrap()
}

/// Seeds of a mini-batch, and (source, target) pairs whose edges are not sampled.
type Batch = (BTreeSet<u32>, BTreeSet<(u32, u32)>);

/// The mini-batches of an epoch.
fn batches(dataset: &Dataset, options: &Options, epoch: u32) -> Vec<Batch> {
    let topology = dataset.topology();
    let n = topology.num_vertices() as u32;
    let epoch = FIRST_PRESAMPLE_EPOCH + epoch;
    let batch_size = options.batch_size as usize;
    if options.task == Task::Node {
        let train = dataset.split(Split::Train).unwrap();
        let seeds = epoch_seeds(&train, options.seed, epoch).unwrap();
        return seeds
            .chunks(batch_size)
            .map(|seeds| (seeds.iter().copied().collect(), BTreeSet::new()))
            .collect();
    }
    let edges: Vec<(u32, u32)> = (0..n)
        .flat_map(|v| topology.in_neighbours(v).iter().map(move |&u| (u, v)).collect::<Vec<_>>())
        .collect();
    let numbers: Vec<u32> = (0..edges.len() as u32).collect();
    let order = epoch_seeds(&numbers, options.seed, epoch).unwrap();
    let batch = |(step, batch): (usize, &[u32])| {
        let key = Step { seed: options.seed, epoch, step: step as u32 }
            .key(gsplit_kernels::Stream::Negatives, 0);
        let (mut seeds, mut excluded) = (BTreeSet::new(), BTreeSet::new());
        for &edge in batch {
            let (u, v) = edges[edge as usize];
            if u != v {
                let mut draws = gsplit_kernels::Draws::new(&key, edge);
                seeds.extend([u, v]);
                seeds.extend((0..options.negatives).map(|_| draws.below(n)));
                excluded.extend([(u, v), (v, u)]);
            }
        }
        (seeds, excluded)
    };
    order.chunks(batch_size).enumerate().map(batch).collect()
}

/// Counts with every in-neighbour, by sets and loops.
fn oracle(dataset: &Dataset, options: &Options) -> gsplit_store::Counters {
    let topology = dataset.topology();
    let (n, m) = (topology.num_vertices(), topology.num_edges());
    let mut counts = gsplit_store::Counters {
        input: vec![0; n],
        appear: vec![0; n],
        work: vec![0; n],
        edge: vec![0; m],
    };
    for epoch in 0..options.epochs {
        for (mut layer, excluded) in batches(dataset, options, epoch) {
            layer.iter().for_each(|&v| counts.appear[v as usize] += 1);
            for _ in 0..options.fanouts.len() {
                let mut below = layer.clone();
                for &v in &layer {
                    for at in topology.indptr()[v as usize] as usize
                        ..topology.indptr()[v as usize + 1] as usize
                    {
                        let u = topology.indices()[at];
                        if !excluded.contains(&(u, v)) {
                            counts.work[v as usize] += 1;
                            counts.edge[at] += 1;
                            below.insert(u);
                        }
                    }
                }
                layer = below;
                layer.iter().for_each(|&v| counts.appear[v as usize] += 1);
            }
            layer.iter().for_each(|&v| counts.input[v as usize] += 1);
        }
    }
    counts
}

#[test]
fn oracle_exact_counts_when_every_neighbour_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..4 {
        let dataset =
            dataset(&folder.path().join(seed.to_string()), seed, seed % 2 == 0, "0.05,0,0");
        for (fanouts, batch_size) in
            [("all,all", 8), ("700", 35), ("all,700,all", 10), ("all", 1_000_000)]
        {
            let options = options(fanouts, batch_size);
            let (counts, batches) = counters(&dataset, &options);
            assert!(
                counts == oracle(&dataset, &options),
                "seed {seed}, fanouts {fanouts}, batch size {batch_size}"
            );
            assert_eq!(batches, 3 * 35u64.div_ceil(batch_size));
        }
    }
}

#[test]
fn oracle_edges_are_counted_as_link_training_draws_them() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..4 {
        let dataset =
            dataset(&folder.path().join(seed.to_string()), seed, seed % 2 == 0, "0.05,0,0");
        for (fanouts, batch_size) in [("all", 500), ("all,700", 3000), ("all,all", 1_000_000)] {
            let options =
                Options { task: Task::Link, epochs: 1, seed, ..options(fanouts, batch_size) };
            let (counts, batches) = counters(&dataset, &options);
            assert!(
                counts == oracle(&dataset, &options),
                "seed {seed}, fanouts {fanouts}, batch size {batch_size}"
            );
            assert_eq!(batches, (dataset.topology().num_edges() as u64).div_ceil(batch_size));
        }
    }
}

#[test]
fn sums_agree_and_fanouts_bound_them() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(&folder.path().join("g"), 1, false, "0.3,0.1,0.1");
    let train = dataset.split(Split::Train).unwrap();
    let sum = |counter: &[u32]| counter.iter().map(|&count| u64::from(count)).sum::<u64>();
    for fanouts in ["5", "4,3", "15,10,5", "2,all,1"] {
        let options = options(fanouts, 50);
        let (counts, batches) = counters(&dataset, &options);
        assert_eq!(sum(&counts.edge), sum(&counts.work), "fanouts {fanouts}");
        // A seed is in every layer of its batch, and in one batch an epoch.
        let layers = options.fanouts.len() as u32 + 1;
        assert!(
            train
                .iter()
                .all(|&v| counts.appear[v as usize] >= 3 * layers && counts.input[v as usize] >= 3)
        );
        assert!(counts.input.iter().all(|&count| u64::from(count) <= batches));
        assert!(counts.appear.iter().zip(&counts.input).all(|(appear, input)| appear >= input));
    }
    let (counts, _) = counters(&dataset, &options("5", 50));
    assert!(train.iter().all(|&v| {
        let degree = dataset.topology().in_neighbours(v).len() as u32;
        counts.work[v as usize] == 3 * degree.min(5)
    }));
}

#[test]
fn differential_a_gpu_counts_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (order, (fanouts, batch_size)) in
        [("4,3", 20), ("15,10,5", 35), ("2,all,33", 40), ("6", 1_000_000)].into_iter().enumerate()
    {
        let dataset = dataset(
            &folder.path().join(order.to_string()),
            order as u64,
            order.is_multiple_of(2),
            "0.1,0,0",
        );
        let (gpu, options) = (under_test(order as u32), options(fanouts, batch_size));
        let expected = counters(&dataset, &options);
        let found = count(&dataset, &options, Some(&gpu), &NoProgress).unwrap();
        assert!(found == expected, "fanouts {fanouts}, batch size {batch_size}");

        let (topology, train) = (dataset.topology(), dataset.split(Split::Train).unwrap());
        let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
        assert_eq!(Topology::choose(&gpu, &graph).unwrap(), Topology::OnDevice);
        let stage = NoProgress.stage("", None, Unit::Items(""));
        let found =
            gpu::count(&gpu, &graph, Topology::InHostMemory, &train, &options, &*stage).unwrap();
        assert!(
            found.edge == expected.0.edge && found.appear == expected.0.appear,
            "fanouts {fanouts}, host memory"
        );
    }
}

#[test]
fn a_graph_that_does_not_fit_stays_in_host_memory_and_counters_must_fit() {
    // The emulation has 1 GiB. Nothing of these graphs is read.
    let gpu = under_test(0);
    let choose = |edges: u64| {
        let edges = vec![0; edges as usize];
        Topology::choose(&gpu, &Graph::new(&[0, edges.len() as u64], &edges).unwrap())
    };
    assert_eq!(choose(50 << 20).unwrap(), Topology::OnDevice);
    assert_eq!(choose(150 << 20).unwrap(), Topology::InHostMemory);
    let error = choose(250 << 20).unwrap_err().to_string();
    assert!(error.contains("1000 MiB") && error.contains("--device cpu"), "{error}");
}

#[test]
fn threads_change_nothing_and_seeds_do() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(&folder.path().join("g"), 2, false, "0.5,0,0");
    let wanted = options("6,4", 20);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| counters(&dataset, &wanted).0)
    };
    let one = run(1);
    assert!(one == run(2) && one == run(4));
    assert!(one != counters(&dataset, &Options { seed: 6, ..wanted }).0);
}

#[test]
fn finished_runs_are_reused_and_others_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g");
    let dataset = dataset(&path, 3, false, "0.2,0,0");
    let wanted = options("3,2", 50);
    let run = |dataset: &Dataset, options: &Options, key, force| {
        presample(dataset, options, key, force, None, &NoProgress)
    };
    let first = run(&dataset, &wanted, None, false).unwrap();
    assert_eq!(first.presample.key(), "f3-2_b50_e3_s5");
    assert!(first.seconds.is_some());
    let again = run(&dataset, &wanted, None, false).unwrap();
    assert!(again.seconds.is_none() && again.presample.checksum() == first.presample.checksum());
    let forced = run(&dataset, &wanted, None, true).unwrap();
    assert!(forced.seconds.is_some() && forced.presample.checksum() == first.presample.checksum());

    run(&dataset, &wanted, Some("mine"), false).unwrap();
    let other = options("3,3", 50);
    let error = run(&dataset, &other, Some("mine"), false).unwrap_err().to_string();
    assert!(error.contains("mine") && error.contains("--force"), "{error}");
    run(&dataset, &other, Some("mine"), true).unwrap();
    for key in ["", "a/b", "..", ".x", "a b"] {
        let error = run(&dataset, &wanted, Some(key), false).unwrap_err().to_string();
        assert!(error.contains("cannot name an artifact"), "{error}");
    }

    // The directory is replaced by another graph.
    std::fs::rename(path.join("presample"), folder.path().join("presample")).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    let changed = self::dataset(&path, 4, false, "0.2,0,0");
    std::fs::rename(folder.path().join("presample"), path.join("presample")).unwrap();
    let error = run(&changed, &wanted, None, false).unwrap_err().to_string();
    assert!(error.contains("f3-2_b50_e3_s5") && error.contains("another graph"), "{error}");
    assert!(run(&changed, &wanted, None, true).unwrap().seconds.is_some());
}

/// Notes that work has begun.
#[derive(Default)]
struct Begun(AtomicBool);

impl Progress for Begun {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) -> Box<dyn Stage> {
        self.0.store(true, Ordering::Relaxed);
        NoProgress.stage(name, total, unit)
    }
    fn note(&self, _line: &str) {}
}

#[test]
fn what_cannot_be_stored_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = dataset(&folder.path().join("g"), 0, false, "0.1,0,0");
    let (begun, key) = (Begun::default(), "k".repeat(300));
    let error = presample(&dataset, &options("2", 50), Some(&key), false, None, &begun)
        .unwrap_err()
        .to_string();
    assert!(error.contains("choose a shorter name"), "{error}");
    assert!(!begun.0.load(Ordering::Relaxed));
    assert!(presample(&dataset, &options("2", 50), Some("k"), false, None, &begun).is_ok());
    assert!(begun.0.load(Ordering::Relaxed));
}

#[test]
fn bad_options_and_bad_datasets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = dataset(&folder.path().join("g"), 0, false, "0.1,0,0");
    let message = |dataset: &Dataset, options: &Options| {
        presample(dataset, options, None, false, None, &NoProgress).unwrap_err().to_string()
    };
    assert!(message(&good, &options("2", 0)).contains("--batch-size"));
    assert!(message(&good, &Options { epochs: 0, ..options("2", 1) }).contains("--epochs"));
    let untrained = dataset(&folder.path().join("u"), 0, false, "0,0.5,0");
    assert!(message(&untrained, &options("2", 9)).contains("no train split"));

    let path = folder.path().join("e");
    let mut writer = DatasetWriter::create(&path, false, &[0, 0], &[]).unwrap();
    writer.add_split(Split::Train, Vec::new()).unwrap();
    let empty = writer.finish(Provenance::default()).unwrap();
    assert!(message(&empty, &options("2", 9)).contains("training split is empty"));

    let mut writer =
        DatasetWriter::create(&folder.path().join("d"), false, &[0, 0, 1], &[7]).unwrap();
    writer.add_split(Split::Train, vec![0]).unwrap();
    let damaged = writer.finish(Provenance::default()).unwrap();
    let damage = message(&damaged, &options("2", 9));
    assert!(damage.contains("indices.npy") && damage.contains("gsplit verify"), "{damage}");
}

#[test]
fn negatives_are_of_the_targets_kind() {
    use gsplit_store::KIND;
    let folder = tempfile::tempdir().unwrap();
    // Vertices 0 to 4 are sources, 5 to 7 targets; each edge is there both ways.
    let lists =
        [vec![5], vec![6], vec![7], vec![5, 6], vec![7], vec![0, 3], vec![1, 3], vec![2, 4]];
    let mut indptr = vec![0];
    lists.iter().for_each(|list| indptr.push(indptr[indptr.len() - 1] + list.len() as u64));
    let mut writer =
        DatasetWriter::create(&folder.path().join("ds"), false, &indptr, &lists.concat()).unwrap();
    let mut column = writer.node_column_writer(KIND, "|u1", 1).unwrap();
    column.push(&[0, 0, 0, 0, 0, 1, 1, 1]).unwrap();
    writer.add_node_column(KIND, column).unwrap();
    let dataset = writer.finish(Provenance::default()).unwrap();
    let graph = Graph::new(&indptr, dataset.topology().indices()).unwrap();
    let step = Step { seed: 9, epoch: 1, step: 0 };
    let batch = [(0, [0, 5]), (8, [3, 6])].into_iter();
    let (seeds, excluded) = links::draw(&graph, dataset.kinds().unwrap(), 50, batch, step);
    assert_eq!(seeds.iter().copied().collect::<BTreeSet<u32>>(), [0, 3, 5, 6, 7].into());
    assert_eq!(excluded.as_slice().len(), 4, "both ways");
    // Of an edge that leads back to a source its reverse is learnt, so all targets and few sources
    // are seeds of any mini-batch of one.
    let options = Options { task: Task::Link, negatives: 50, ..options("all", 1) };
    let (counters, batches) = counters(&dataset, &options);
    assert_eq!(batches, 3 * 12);
    assert!(
        counters.appear[5..].iter().all(|&count| u64::from(count) >= batches),
        "{:?}",
        counters.appear
    );
}

#[test]
fn counters_that_do_not_fit_are_refused_with_the_budget_that_would_do() {
    let within = |bytes| Options { memory: Some(Memory::bytes(bytes)), ..options("2", 1) };
    let (vertices, edges) = (10_000_000, 1_000_000_000);
    let error = within(1 << 30).memory_beside_counters(vertices, edges).unwrap_err().to_string();
    let told = "--memory: counters of 10000000 vertices and 1000000000 edges take 3.8 GiB, and 1.0 GiB are the budget: pass --memory ";
    assert!(error.starts_with(told) && error.ends_with("MiB or more"), "{error}");
    let least: u64 = error[told.len()..].split("MiB").next().unwrap().parse().unwrap();
    // This process may hold more by now.
    assert!(within((least + 64) << 20).memory_beside_counters(vertices, edges).is_ok());
    assert!((3900..6000).contains(&least), "{error}");
}
