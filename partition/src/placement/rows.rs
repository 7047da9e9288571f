//! The rows that each device holds by the chosen rule, and the loads that they serve.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gsplit_store::{CachedRows, EVERY_DEVICE, HOST, Readers, RowLoads, deal_rows};

use super::replicas::{Copies, Criterion};
use super::{Demand, PlacementRule, owned};
use crate::Result;

/// The rows of each device under `rule`, at most `capacity` a device. The same input gives the same
/// rows, for any number of threads. `rule` must be one of [`PlacementRule::of`] the demand's
/// parallelism; else it is `optimised`.
pub fn place(demand: &Demand<'_>, rule: PlacementRule, capacity: usize, alpha: f64) -> CachedRows {
    let (devices, order) = (demand.devices(), &demand.order);
    let first = |rows: &[u32]| rows[..rows.len().min(capacity)].to_vec();
    match rule {
        PlacementRule::Partitioned => CachedRows {
            shared: Vec::new(),
            own: (0..devices).map(|device| first(demand.cache_order(device))).collect(),
        },
        PlacementRule::Replicated => {
            CachedRows { shared: first(order), own: vec![Vec::new(); devices] }
        }
        PlacementRule::Peer => {
            CachedRows { shared: Vec::new(), own: deal_rows(order, &vec![capacity; devices]) }
        }
        PlacementRule::Optimised | PlacementRule::SongJiang => match (demand.parallelism(), rule) {
            (Readers::Split, _) => place_owned(demand, capacity, alpha),
            (_, PlacementRule::SongJiang) => {
                place_copies(demand, capacity, alpha, Criterion::Published)
            }
            _ => place_copies(demand, capacity, alpha, Criterion::AllDevices),
        },
    }
}

fn place_copies(
    demand: &Demand<'_>,
    capacity: usize,
    alpha: f64,
    criterion: Criterion,
) -> CachedRows {
    let copies = Copies::choose(&demand.all, demand.devices(), capacity, alpha, criterion);
    copies.deal(&demand.order, &demand.all, criterion)
}

/// Each part's hottest rows at home, the next ones on the devices with room, so that each device
/// serves its peers equally.
fn place_owned(demand: &Demand<'_>, capacity: usize, alpha: f64) -> CachedRows {
    let taken = owned::choose(&demand.parts, capacity, alpha);
    let mut own: Vec<Vec<u32>> = taken.home.iter().map(|&rows| Vec::with_capacity(rows)).collect();
    let mut seen = vec![0; own.len()];
    let mut away = Vec::new();
    for &v in &demand.order {
        let owner = demand.owner(v);
        seen[owner] += 1;
        if seen[owner] <= taken.home[owner] {
            own[owner].push(v);
        } else if seen[owner] <= taken.home[owner] + taken.away[owner] {
            away.push(v);
        }
    }
    // Loads are whole numbers here.
    let with_room = (0..own.len()).filter(|&device| own[device].len() < capacity);
    let mut turn: BinaryHeap<Reverse<(u64, usize)>> =
        with_room.map(|device| Reverse((0, device))).collect();
    for v in away {
        let Some(Reverse((served, device))) = turn.pop() else { break };
        own[device].push(v);
        if own[device].len() < capacity {
            turn.push(Reverse((served + demand.loads(v) as u64, device)));
        }
    }
    CachedRows { shared: Vec::new(), own }
}

/// The row loads of each device to be expected in a global mini-batch when the devices hold `rows`,
/// counted row by row. Fails on rows that are not a placement: see [`CachedRows::homes`].
pub fn expected_loads(demand: &Demand<'_>, rows: &CachedRows, alpha: f64) -> Result<Vec<RowLoads>> {
    let homes = rows.homes(demand.num_rows())?;
    let devices = demand.devices();
    // Loads of each device: all, of cached rows, of rows in its own cache.
    let mut sums = vec![[0.0; 3]; devices];
    match demand.parallelism() {
        Readers::Split => {
            for (v, &home) in (0..).zip(&homes) {
                let (owner, loads) = (demand.owner(v), demand.loads(v));
                sums[owner][0] += loads;
                sums[owner][1] += if home == HOST { 0.0 } else { loads };
                sums[owner][2] += if home == EVERY_DEVICE { loads } else { 0.0 };
            }
            for (device, own) in rows.own.iter().enumerate() {
                sums[device][2] += own
                    .iter()
                    .filter(|&&v| demand.owner(v) == device)
                    .map(|&v| demand.loads(v))
                    .sum::<f64>();
            }
        }
        Readers::Data => {
            let loads_of = |cached: &[u32]| cached.iter().map(|&v| demand.loads(v)).sum::<f64>();
            let all = demand.all.total();
            let held: f64 = (0..)
                .zip(&homes)
                .filter(|&(_, &home)| home != HOST)
                .map(|(v, _)| demand.loads(v))
                .sum();
            let shared = loads_of(&rows.shared);
            for (sums, own) in sums.iter_mut().zip(&rows.own) {
                *sums = [all, held, shared + loads_of(own)];
            }
        }
    }
    Ok(sums
        .into_iter()
        .map(|[all, held, local]| served(all, held, local, demand.batches(), alpha))
        .collect())
}

/// Loads of a mini-batch by the memory that serves them, when `local` and `held` of `all` in
/// `batches` find their row in the reader's own cache and in any device's. With alpha ≥ 1 what
/// peers hold is read from the host.
pub(crate) fn served(all: f64, held: f64, local: f64, batches: f64, alpha: f64) -> RowLoads {
    let held = if alpha < 1.0 { held } else { local };
    // Sums in another order may differ in their last bits.
    let part = |loads: f64| loads.max(0.0) / batches;
    RowLoads { local: part(local), peer: part(held - local), host: part(all - held) }
}
