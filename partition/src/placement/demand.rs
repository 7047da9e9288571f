//! Demand for rows: which rank loads which row, and how often. A placement has to serve it.

use gsplit_store::{Dataset, PartitionMap, Presample, Readers, hottest_rows};
use rayon::prelude::*;

use super::Ranking;
use crate::Result;

/// Counters from here on are turned into loads whenever they are met; those below once.
const TABLE: u32 = 1 << 16;

/// The row loads to be expected of training, by rows and by devices. Loads are counted over all
/// mini-batches of the presample.
#[derive(Debug)]
pub struct Demand<'a> {
    parallelism: Readers,
    map: &'a PartitionMap,
    input: &'a [u32],
    batches: u64,
    /// The loads that go with small counters.
    table: Vec<f64>,
    /// All vertices by falling loads, ties by id.
    pub(crate) order: Vec<u32>,
    /// The loads of the rows in that order, by each reader.
    pub(crate) all: Ranking,
    /// The loads of each part's rows, hottest first, by their owner. Split parallelism only.
    pub(crate) parts: Vec<Ranking>,
}

impl<'a> Demand<'a> {
    /// The demand of `dataset` with one device for each part of `map`.
    ///
    /// Fails when the presample has no mini-batch or claims more loads of a row than mini-batches,
    /// and when a cache order does not hold its part's vertices.
    pub fn new(
        dataset: &Dataset,
        presample: &'a Presample,
        map: &'a PartitionMap,
        parallelism: Readers,
    ) -> Result<Self> {
        let (input, batches) = (presample.input(), presample.meta().num_batches);
        let most = input.par_iter().max().copied().unwrap_or(0);
        if batches == 0 || u64::from(most) > batches {
            let problem = format!("a row is loaded in {most} of {batches} mini-batches");
            return Err(gsplit_store::Error::Corrupt {
                path: Presample::folder(dataset, presample.key()),
                problem,
            }
            .into());
        }
        map.check_cache_order()?;
        let order = hottest_rows(input, input.len());
        let parts = match parallelism {
            Readers::Split => vec![Ranking::default(); map.num_parts()],
            Readers::Data => Vec::new(),
        };
        let all = Ranking::default();
        let mut demand =
            Self { parallelism, map, input, batches, table: Vec::new(), order, all, parts };
        demand.table = (0..=most.min(TABLE)).map(|count| demand.loads_of(count)).collect();
        demand.rank();
        Ok(demand)
    }

    /// Fills the rankings.
    fn rank(&mut self) {
        let (mut all, mut parts) = (std::mem::take(&mut self.all), std::mem::take(&mut self.parts));
        for &v in &self.order {
            let loads = self.loads(v);
            all.push(loads);
            if let Some(part) = parts.get_mut(self.owner(v)) {
                part.push(loads);
            }
        }
        (self.all, self.parts) = (all, parts);
    }

    /// Expected loads, by each of its readers, of a row that is loaded in `count` pre-sampled
    /// mini-batches.
    fn loads_of(&self, count: u32) -> f64 {
        match self.parallelism {
            Readers::Split => f64::from(count),
            Readers::Data => {
                let share = f64::from(count) / self.batches as f64;
                // 1 − (1 − share)^(1/k), exact for small shares.
                -((-share).ln_1p() / self.devices() as f64).exp_m1() * self.batches as f64
            }
        }
    }

    /// Ranks that load a row.
    pub fn parallelism(&self) -> Readers {
        self.parallelism
    }

    /// Number of devices: the parts of the partition.
    pub fn devices(&self) -> usize {
        self.map.num_parts()
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.order.len()
    }

    /// Expected row loads of all devices together in a global mini-batch.
    pub fn loads_per_batch(&self) -> f64 {
        self.readers() * self.all.total() / self.batches as f64
    }

    /// How many devices load a row that is loaded.
    pub(crate) fn readers(&self) -> f64 {
        match self.parallelism {
            Readers::Split => 1.0,
            Readers::Data => self.devices() as f64,
        }
    }

    /// The mini-batches that loads are counted over.
    pub(crate) fn batches(&self) -> f64 {
        self.batches as f64
    }

    /// Loads of the row of `v` by each of its readers.
    pub(crate) fn loads(&self, v: u32) -> f64 {
        let count = self.input[v as usize];
        self.table.get(count as usize).copied().unwrap_or_else(|| self.loads_of(count))
    }

    /// The device that owns `v`.
    pub(crate) fn owner(&self, v: u32) -> usize {
        self.map.assignment()[v as usize] as usize
    }

    /// The vertices of each part in the order that was stored with the partition.
    pub(crate) fn cache_order(&self, part: usize) -> &[u32] {
        self.map.cache_order(part)
    }
}
