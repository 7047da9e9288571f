//! Small datasets whose loads are counted one by one.

use std::collections::BTreeSet;

use gsplit_store::{
    CachedRows, Counters, Dataset, PartitionConfig, PartitionMap, Presample, PresampleConfig,
    Readers, RowLoads,
};

use super::super::Demand;
use crate::VertexWeights;
use crate::cache_order::cache_order;
use crate::report::report;
use crate::tests::{Fixture, draws};

/// A dataset without edges, with the given counters and owners.
pub struct Case {
    pub name: String,
    pub input: Vec<u32>,
    pub owners: Vec<u16>,
    pub batches: u64,
    pub fixture: Fixture,
    pub dataset: Dataset,
    pub presample: Presample,
    pub map: PartitionMap,
}

impl Case {
    pub fn new(name: &str, parts: u32, batches: u64, input: Vec<u32>, owners: Vec<u16>) -> Self {
        let fixture = Fixture::new(name, input.len() as u32, &[]);
        let dataset = fixture.dataset();
        let presample = save_presample(&dataset, "test", batches, &input);
        let map = save_map(&dataset, &presample, parts, &owners);
        Self { name: name.into(), input, owners, batches, fixture, dataset, presample, map }
    }

    /// Any shape that the draws bring: few distinct counters or many, cold rows, parts of any
    /// sizes.
    pub fn random(seed: u64, most_rows: u32, most_parts: u32) -> Self {
        let mut draws = draws(seed);
        let parts = 1 + draws.below(most_parts);
        let n = parts + draws.below(most_rows + 1 - parts.min(most_rows));
        let batches = [1, 3, 40, 100_000][draws.below(4) as usize];
        let input =
            (0..n).map(|_| draws.below(batches + 1) * draws.below(2).max(draws.below(2))).collect();
        // Every part has a vertex, the others fall where they like, most of them into the first
        // parts.
        let owner = |v: u32| {
            let some = 1 + draws.below(parts);
            if v < parts { v as u16 } else { draws.below(some) as u16 }
        };
        let owners = (0..n).map(owner).collect();
        Self::new(&format!("seed {seed}"), parts, batches.into(), input, owners)
    }

    pub fn demand(&self, parallelism: Readers) -> Demand<'_> {
        Demand::new(&self.dataset, &self.presample, &self.map, parallelism).unwrap()
    }

    /// Expected loads of `v` by `device` in a mini-batch, from the definition.
    pub fn loads(&self, parallelism: Readers, v: usize, device: usize) -> f64 {
        let share = f64::from(self.input[v]) / self.batches as f64;
        match parallelism {
            Readers::Split if usize::from(self.owners[v]) == device => share,
            Readers::Split => 0.0,
            Readers::Data => 1.0 - (1.0 - share).powf(1.0 / self.map.num_parts() as f64),
        }
    }

    /// Each device's loads by the memory that serves them, counted one by one.
    pub fn count(
        &self,
        parallelism: Readers,
        caches: &[BTreeSet<u32>],
        alpha: f64,
    ) -> Vec<RowLoads> {
        let mut counted = vec![RowLoads::default(); caches.len()];
        for v in 0..self.input.len() {
            for (device, counted) in counted.iter_mut().enumerate() {
                let loads = self.loads(parallelism, v, device);
                let held = |cache: &BTreeSet<u32>| cache.contains(&(v as u32));
                match () {
                    () if held(&caches[device]) => counted.local += loads,
                    () if alpha < 1.0 && caches.iter().any(held) => counted.peer += loads,
                    () => counted.host += loads,
                }
            }
        }
        counted
    }
}

pub fn save_presample(dataset: &Dataset, key: &str, batches: u64, input: &[u32]) -> Presample {
    let config = PresampleConfig {
        fanouts: "5".into(),
        batch_size: 10,
        epochs: 1,
        seed: 0,
        draw_by: None,
        negatives: None,
    };
    let zeros = vec![0; input.len()];
    let counters =
        Counters { input: input.to_vec(), appear: zeros.clone(), work: zeros, edge: Vec::new() };
    Presample::save(dataset, key, config, batches, &counters, true).unwrap()
}

pub fn save_map(
    dataset: &Dataset,
    presample: &Presample,
    parts: u32,
    owners: &[u16],
) -> PartitionMap {
    let weights = VertexWeights::unit(dataset.num_vertices());
    let report = report(dataset, owners, parts.into(), &weights, None).unwrap();
    let (partitioner, weights) = ("test".into(), "unit".into());
    let config = PartitionConfig {
        parts,
        servers: 1,
        targets: None,
        partitioner,
        weights,
        epsilon: 1.0,
        seed: 0,
        source: None,
    };
    let order = cache_order(dataset.topology(), owners, Some(presample));
    PartitionMap::save(dataset, "test", None, config, report, owners, &order, true).unwrap()
}

pub fn caches(rows: &CachedRows) -> Vec<BTreeSet<u32>> {
    let of_device = |own: &Vec<u32>| {
        let cache: BTreeSet<u32> = rows.shared.iter().chain(own).copied().collect();
        assert_eq!(cache.len(), rows.shared.len() + own.len(), "a row twice on one device");
        cache
    };
    rows.own.iter().map(of_device).collect()
}

pub fn sum(loads: &[RowLoads]) -> RowLoads {
    let add = |a: RowLoads, b: &RowLoads| RowLoads {
        local: a.local + b.local,
        peer: a.peer + b.peer,
        host: a.host + b.host,
    };
    loads.iter().fold(RowLoads::default(), add)
}

pub fn cost(loads: &RowLoads, alpha: f64) -> f64 {
    loads.host + alpha * loads.peer
}

pub fn close(a: &RowLoads, b: &RowLoads) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
    near(a.local, b.local) && near(a.peer, b.peer) && near(a.host, b.host)
}
