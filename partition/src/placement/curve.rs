//! Expected row loads by cache size.

use gsplit_store::{Readers, RowLoads};

use super::replicas::{Copies, Criterion};
use super::rows::served;
use super::{Demand, PlacementRule, owned};

/// Halvings of the whole feature store that the curve goes down to.
const HALVINGS: u32 = 10;

/// Expected loads with caches of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct CurvePoint {
    /// Rows that fit a device.
    pub rows: usize,
    /// Expected row loads of all devices together in a global mini-batch, for each rule in the
    /// order they were asked for.
    pub loads: Vec<RowLoads>,
}

/// Rows a device from all `num_rows` down by halves to about a thousandth, and `asked`; ascending,
/// each once.
pub fn cache_sizes(num_rows: usize, asked: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        (0..=HALVINGS).map(|halvings| num_rows.div_ceil(1 << halvings)).collect();
    sizes.push(asked.min(num_rows));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Expected loads by each of `rules` with caches of each of `sizes`, in rows a device, ascending.
/// Cost: one pass over the rows, and a few binary searches for each size.
pub fn curve(
    demand: &Demand<'_>,
    rules: &[PlacementRule],
    sizes: &[usize],
    alpha: f64,
) -> Vec<CurvePoint> {
    let all = demand.readers() * demand.all.total();
    let mut points: Vec<CurvePoint> =
        sizes.iter().map(|&rows| CurvePoint { rows, loads: Vec::new() }).collect();
    for &rule in rules {
        for (point, (local, held)) in points.iter_mut().zip(serve(demand, rule, sizes, alpha)) {
            point.loads.push(served(all, held, local, demand.batches(), alpha));
        }
    }
    points
}

/// Loads that `rule` serves from the reader's own cache, and from any device's, for each size.
fn serve(demand: &Demand<'_>, rule: PlacementRule, sizes: &[usize], alpha: f64) -> Vec<(f64, f64)> {
    let (devices, readers, all) = (demand.devices(), demand.readers(), &demand.all);
    let of_each =
        |served: &dyn Fn(usize) -> (f64, f64)| sizes.iter().map(|&rows| served(rows)).collect();
    let copies = |criterion| {
        of_each(&|rows| Copies::choose(all, devices, rows, alpha, criterion).served(all))
    };
    match (rule, demand.parallelism()) {
        // The owner is the only reader, or one of all devices.
        (PlacementRule::Partitioned, _) => {
            partitioned(demand, sizes).into_iter().map(|sum| (sum, readers * sum)).collect()
        }
        (PlacementRule::Replicated, _) => {
            of_each(&|rows| (readers * all.sum(rows), readers * all.sum(rows)))
        }
        (PlacementRule::Peer, Readers::Data) => of_each(&|rows| {
            (all.sum(rows.saturating_mul(devices)), readers * all.sum(rows.saturating_mul(devices)))
        }),
        (PlacementRule::Peer, Readers::Split) => {
            let ends: Vec<usize> = sizes.iter().map(|rows| rows.saturating_mul(devices)).collect();
            let at_home = |(i, &v): (usize, &u32)| {
                if demand.owner(v) == i % devices { demand.loads(v) } else { 0.0 }
            };
            let local = sums_at(&ends, demand.order.iter().enumerate().map(at_home));
            local.into_iter().zip(ends).map(|(local, end)| (local, all.sum(end))).collect()
        }
        (PlacementRule::SongJiang, Readers::Data) => copies(Criterion::Published),
        (PlacementRule::Optimised, Readers::Data) => copies(Criterion::AllDevices),
        (_, Readers::Split) => {
            of_each(&|rows| owned::choose(&demand.parts, rows, alpha).served(&demand.parts))
        }
    }
}

/// Loads of the first rows of all parts' cache orders, whatever they were ordered by.
fn partitioned(demand: &Demand<'_>, sizes: &[usize]) -> Vec<f64> {
    let mut sums = vec![0.0; sizes.len()];
    for part in 0..demand.devices() {
        let loads = demand.cache_order(part).iter().map(|&v| demand.loads(v));
        sums.iter_mut().zip(sums_at(sizes, loads)).for_each(|(sum, more)| *sum += more);
    }
    sums
}

/// The sum of the first `ends[i]` values, for ascending `ends`.
fn sums_at(ends: &[usize], mut values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (mut sum, mut start) = (0.0, 0);
    let mut sums = Vec::with_capacity(ends.len());
    for &end in ends {
        sum += values.by_ref().take(end - start).sum::<f64>();
        start = end;
        sums.push(sum);
    }
    sums
}
