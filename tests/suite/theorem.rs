//! Invariant 7, which the method stands on: the expected number of cross edges of a mini-batch is the weighted cut divided
//! by the number of pre-sampled mini-batches (GSplit, section 4), measured on fresh mini-batches.

use gsplit_kernels::schedule::{Fanouts, Step, epoch_seeds};
use gsplit_kernels::{Graph, Sampler, Solo};
use gsplit_sample::{Frontiers, HostSampler, Ownership, Seeds};
use gsplit_store::{Dataset, PartitionMap, Split};

use crate::support::{community, ok};

#[test]
fn expected_cross_edges_are_the_weighted_cut() {
    let folder = tempfile::tempdir().unwrap();
    community(folder.path(), 6000);
    ok(folder.path(), &["presample", "ds", "--fanouts", "6,4", "--batch-size", "128", "--epochs", "12", "--seed", "5"]);
    ok(folder.path(), &["partition", "ds", "--parts", "4", "--key", "metis"]);
    ok(folder.path(), &["partition", "ds", "--parts", "4", "--partitioner", "random", "--key", "random"]);
    let dataset = Dataset::open(folder.path().join("ds")).unwrap();
    for key in ["metis", "random"] {
        let map = PartitionMap::open(&dataset, key).unwrap();
        let report = &map.meta().report;
        let predicted = report.expected_cross_edges.unwrap();
        let (mean, error, share) = measure(&dataset, map.assignment());
        assert!(
            (mean - predicted).abs() < 4.0 * error + 0.01 * predicted,
            "{key}: {mean} ± {error} cross edges a mini-batch, predicted {predicted}"
        );
        assert!((share - report.expected_cross_share).abs() < 0.02, "{key}: share {share}");
        if key == "random" {
            assert!((share - 0.75).abs() < 0.02, "random into 4: cross edges are 3/4, found {share}");
        }
    }
}

/// Mean cross edges of a fresh mini-batch, the standard error of that mean, and their share of the sampled edges.
fn measure(dataset: &Dataset, part: &[u16]) -> (f64, f64, f64) {
    let topology = dataset.topology();
    let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
    let train = dataset.split(Split::Train).unwrap();
    let fanouts: Fanouts = "6,4".parse().unwrap();
    let mine = Frontiers::all(Ownership::Mine, fanouts.len());
    let (seed, mut cross, mut edges) = (77, Vec::new(), 0);
    let mut sampler = HostSampler::new(Sampler::new(2), graph);
    for epoch in 1..=6 {
        let order = epoch_seeds(&train, seed, epoch).unwrap();
        for (step, batch) in order.chunks(128).enumerate() {
            let seeds = Seeds::of(batch, Ownership::Mine, 0, 1);
            let step = Step { seed, epoch, step: step as u32 };
            let sampled = sampler.sample(seeds, &fanouts, step, &mine, &Solo).unwrap();
            let mut crossing = 0;
            for (depth, layer) in sampled.layers.iter().enumerate() {
                let mixed = sampled.read(depth);
                for (i, &v) in layer.frontier.iter().enumerate() {
                    let foreign = |&&u: &&u32| part[mixed[u as usize] as usize] != part[v as usize];
                    crossing += layer.edges.sources()[layer.edges.of(i)].iter().filter(foreign).count();
                }
                edges += layer.edges.num_edges();
            }
            cross.push(crossing as f64);
        }
    }
    let count = cross.len() as f64;
    let mean = cross.iter().sum::<f64>() / count;
    let variance = cross.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt(), mean * count / edges as f64)
}
