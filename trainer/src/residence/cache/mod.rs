//! Feature rows that the GPUs of a run keep in their memory, and the caches that each rank reads.
//!
//! Returns: a list of vertices for each rank, best candidate first; the ranks whose caches it also
//! reads; and a description of both for the user. Input: the user's choice of placement
//! ([`RowPlacement`]), and the room on each GPU.
//!
//! ```text
//! replicated   the hottest rows on every GPU                             PaGraph (Lin et al., SoCC 2020)
//! partitioned  of its own part, the first in the map's cache order       GSplit; Intel's hybrid partitioning
//! peer         the hottest rows, dealt in turn to the GPUs that reach    Quiver (Tan et al., 2023)
//!              each other, and once more to each group of others
//! KEY          the rows that `gsplit place` stored, cut to the room available
//! ```
//!
//! The host has all rows: rows in no reachable cache are read from there. A rank reads the caches
//! of other threads or processes of its host if these hold rows that it loads: always with `peer`
//! and KEY; with `partitioned` if a rank loads rows of other parts. The ranks first find out which
//! of them reads which cache ([`reach`]), so that all decide alike. With several groups of ranks
//! (`--groups`) each group keeps the rows of all parts, and those of all devices of a KEY; `peer`
//! ignores groups.
//!
//! Ranks on the host keep nothing, since all rows are there. Their hypothetical hits are counted
//! (`simulated.rs`), as if each had a GPU with the room of `--cache`, and all ranks of a host read
//! each other's.
//!
//! Without `--placement` and `--cache` GPUs keep rows as suits the parallelism
//! ([`RowPlacement::usual`]).
//!
//! Room: `--cache`, for each rank. Without it, the memory that a dry run leaves on its GPU
//! ([`crate::dry_run`]) next to the graph, divided among the ranks of that GPU, or used by all of
//! them together if they keep the same rows (`replicated`). Rows take as many bytes as in the
//! dataset.
//!
//! Cost: a pass over the vertices, or over the edges if these have to be counted; 4 bytes per
//! cached row.

pub mod hotness;
mod peers;
mod reach;
mod simulated;

use std::sync::Arc;

use gsplit_kernels::{Communicator, DeviceCache, VertexSet};
use gsplit_store::memory::shown;
use gsplit_store::{Checksum, FeatureDtype, FeatureTable, Placement, Progress};
use serde::Serialize;

use crate::config::{Config, RowPlacement};
use crate::job::{Job, partition};
use crate::operator::{Place, sharing};
use crate::{Error, Result};

use peers::{cliques, deal_to_cliques, peers};
use reach::Sight;
pub use reach::all_gather_json;
pub use simulated::SimulatedCache;

/// Feature rows that the GPUs of a run keep, or would keep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheSummary {
    /// Whether ranks are on the host: then no rows are kept, and hits are only counted.
    pub counted: bool,
    /// Placement, as for `--placement`.
    pub placement: String,
    /// Ranking of the rows.
    pub ranked_by: String,
    /// Number of rows that the GPU of each rank keeps for it.
    pub rows: Vec<usize>,
    /// Bytes of a row.
    pub row_bytes: u64,
}

/// The vertices whose rows each rank keeps: the first of a list, best candidate first, that ranks
/// may share.
type Lists = Vec<(Arc<Vec<u32>>, usize)>;

/// Rows that each GPU keeps.
pub struct Caches {
    placement: RowPlacement,
    ranked_by: String,
    counted: bool,
    row_bytes: u64,
    lists: Lists,
    /// For each rank, the ranks whose caches it reads, in the order in which it searches them.
    peers: Vec<Vec<usize>>,
}

impl Caches {
    /// Rows for ranks at `places` according to the options of `job`; `None` if GPUs keep nothing.
    /// `left` are the free bytes of each rank of this process, used if the options do not say. If
    /// ranks are processes, it is collective and returns the same on each.
    pub fn new(
        job: &Job<'_>,
        places: &[Place],
        left: &[u64],
        progress: &dyn Progress,
    ) -> Result<Option<Self>> {
        let hooks = job.hooks;
        let Some(placement) = wanted(job, places)? else { return Ok(None) };
        let (row_bytes, ranks) = (row_bytes(&job.features), job.config.num_ranks());
        let alike = placement == RowPlacement::Replicated;
        let left =
            if alike { together(&places[hooks.ranks_here(ranks)], left) } else { left.to_vec() };
        let comm = hooks.process.as_ref().map(|process| process.comms().all());
        let left = match comm {
            Some(comm) => all_gather_json(comm, &left)?.concat(),
            None => left,
        };
        let room = room(job.cache_bytes(), &left, row_bytes, ranks)?;
        if is_by_default(job.config) && room.iter().all(|&rows| rows == 0) {
            return Ok(None);
        }
        let crosses = match &placement {
            RowPlacement::Host | RowPlacement::Replicated => false,
            RowPlacement::Partitioned => job.frontiers.loaded().map().is_none(),
            RowPlacement::Peer | RowPlacement::Stored(_) => true,
        };
        let peers = match crosses {
            true => peers(&sights(places, comm)?, progress),
            false => vec![Vec::new(); ranks],
        };
        let (lists, ranked_by) = match &placement {
            RowPlacement::Partitioned => of_parts(job, &room)?,
            RowPlacement::Stored(key) => stored(job, key, &room)?,
            RowPlacement::Replicated
                if room.iter().all(|&rows| rows >= job.features.num_rows()) =>
            {
                let all = (0..job.features.num_rows() as u32).collect();
                (shared(all, &room), "their numbers".to_string())
            }
            RowPlacement::Host | RowPlacement::Replicated => {
                let most = room.iter().copied().max().unwrap_or(0);
                let (hottest, by) = hotness::hottest(job, most, progress)?;
                (shared(hottest, &room), by)
            }
            RowPlacement::Peer => {
                let cliques = cliques(&peers);
                let all = |clique: &Vec<usize>| {
                    clique.iter().fold(0usize, |sum, &rank| sum.saturating_add(room[rank]))
                };
                let most = cliques.iter().map(all).max().unwrap_or(0);
                let (hottest, by) = hotness::hottest(job, most, progress)?;
                (each(deal_to_cliques(&hottest, &cliques, &room)), by)
            }
        };
        let counted = places.iter().all(|place| place.gpu().is_none());
        Ok(Some(Self { placement, ranked_by, counted, row_bytes, lists, peers }))
    }

    /// Rows that `rank` keeps.
    pub fn of(&self, rank: usize) -> &[u32] {
        let (list, rows) = &self.lists[rank];
        &list[..list.len().min(*rows)]
    }

    /// The ranks whose caches `rank` reads if its own lacks the row, in that order.
    pub fn peers(&self, rank: usize) -> &[usize] {
        &self.peers[rank]
    }

    /// The vertices whose rows are found on GPUs by every rank of this process that loads them, in
    /// ascending order.
    pub fn found_by_all(&self, job: &Job<'_>) -> Vec<u32> {
        let (rows, owners) = (job.features.num_rows(), job.frontiers.loaded().map());
        let of = |rank: usize| {
            let found = std::iter::once(rank).chain(self.peers(rank).iter().copied());
            let found = VertexSet::new(rows, found.flat_map(|rank| self.of(rank).iter().copied()));
            (rank % job.config.ranks_of_group(), found)
        };
        let ranks: Vec<_> = job.hooks.ranks_here(self.peers.len()).map(of).collect();
        let loads = |rank: usize, v: u32| {
            owners.is_none_or(|owners| usize::from(owners[v as usize]) == rank)
        };
        let is_found =
            |&v: &u32| ranks.iter().all(|(rank, found)| !loads(*rank, v) || found.contains(v));
        (0..rows as u32).filter(is_found).collect()
    }

    /// Whether any rank reads the cache of another.
    pub fn are_shared(&self) -> bool {
        self.peers.iter().any(|peers| !peers.is_empty())
    }

    /// Checksum that shows whether the ranks kept the same rows in another run.
    pub fn checksum(&self) -> Checksum {
        Checksum::combine(
            &(0..self.peers.len()).map(|rank| self.checksum_of(rank)).collect::<Vec<_>>(),
        )
    }

    /// Checksum that shows whether another process has the same list for `rank`.
    pub fn checksum_of(&self, rank: usize) -> Checksum {
        Checksum::of(bytemuck::cast_slice(self.of(rank)))
    }

    /// The caches in the summary of the run.
    pub fn summary(&self) -> CacheSummary {
        CacheSummary {
            counted: self.counted,
            placement: self.placement.to_string(),
            ranked_by: self.ranked_by.clone(),
            rows: (0..self.peers.len()).map(|rank| self.of(rank).len()).collect(),
            row_bytes: self.row_bytes,
        }
    }

    /// Whether each rank keeps all of a table's `rows` rows.
    pub fn are_all(&self, rows: usize) -> bool {
        (0..self.peers.len()).all(|rank| self.of(rank).len() >= rows)
    }

    /// A line about the caches for the user; `all` is the number of rows of the table.
    pub fn told(&self, all: usize) -> String {
        let CacheSummary { counted, placement, ranked_by, rows, row_bytes } = self.summary();
        let (least, most) = (rows.iter().min().unwrap_or(&0), rows.iter().max().unwrap_or(&0));
        let each = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let bytes = shown(*most as u64 * row_bytes);
        let place =
            if counted { "counted for each rank, as on a GPU" } else { "on each rank's GPU" };
        match self.are_all(all) {
            true => format!("feature rows, placement {placement}: all {all} {place} ({bytes})"),
            false => format!(
                "feature rows, placement {placement}: {each} of {all} {place} ({bytes}), by \
                 {ranked_by}"
            ),
        }
    }
}

/// Whether the user gave no options about the rows that GPUs keep.
pub fn is_by_default(config: &Config) -> bool {
    config.system.cache.is_none() && config.system.placement.is_none()
}

/// The placement of rows; `None` if GPUs keep none and no hits are counted.
pub fn wanted(job: &Job<'_>, places: &[Place]) -> Result<Option<RowPlacement>> {
    let (config, parallelism) = (job.config, job.config.system.parallelism);
    let on_host = places.iter().any(|place| place.gpu().is_none());
    if is_by_default(config) {
        // Draws by locality must not depend on how much memory is free.
        let keeps = !on_host
            && !parallelism.slices_columns()
            && !parallelism.cooperates()
            && !config.draws_locally();
        return Ok((keeps && job.dataset.shard().is_none()).then(|| RowPlacement::usual(config)));
    }
    let flag = if config.system.cache.is_some() { "--cache" } else { "--placement" };
    let problem = if parallelism.slices_columns() || parallelism.cooperates() {
        format!("{flag}: under --parallelism {parallelism} no cache is counted: leave it out")
    } else if on_host
        && config.system.cache.is_none()
        && config.system.placement != Some(RowPlacement::Host)
    {
        format!(
            "{flag}: on --device cpu cache hits are counted for a given size: pass --cache SIZE"
        )
    } else if config.system.placement == Some(RowPlacement::Host) && config.system.cache.is_some() {
        "--cache: --placement host keeps no rows on GPUs: leave one of them out".to_string()
    } else if config.system.placement == Some(RowPlacement::Host) {
        return Ok(None);
    } else {
        return Ok(Some(
            config.system.placement.clone().unwrap_or_else(|| RowPlacement::usual(config)),
        ));
    };
    Err(Error::Option(problem))
}

/// The bytes available to each rank if ranks that share a GPU keep the same rows: the sum of their
/// shares, which are given in `left`.
fn together(places: &[Place], left: &[u64]) -> Vec<u64> {
    let gpus = sharing(places);
    let of = |(place, bytes): (&Place, &u64)| {
        let ranks =
            place.gpu().and_then(|gpu| gpus.iter().find(|(other, _)| other.is_same_device(gpu)));
        bytes.saturating_mul(ranks.map_or(1, |(_, ranks)| *ranks))
    };
    places.iter().zip(left).map(of).collect()
}

/// The number of rows that each of `ranks` has room for; `left` are the free bytes of each.
fn room(cache: Option<u64>, left: &[u64], row_bytes: u64, ranks: usize) -> Result<Vec<usize>> {
    let most = DeviceCache::<f32>::most_rows(ranks);
    let rows = |bytes: u64| usize::try_from((bytes / row_bytes).min(most)).unwrap_or(usize::MAX);
    match cache {
        Some(bytes) if rows(bytes) == 0 => Err(Error::Option(format!(
            "--cache: {bytes} bytes hold no row of {row_bytes}: give it more, e.g. 4GiB or 20% (of \
             all rows), or leave it out"
        ))),
        Some(bytes) => Ok(vec![rows(bytes); ranks]),
        None => {
            let of = |rank: usize| rows(left.get(rank).copied().unwrap_or(0));
            Ok((0..ranks).map(of).collect())
        }
    }
}

/// Bytes of a row in memory, including its scale.
pub fn row_bytes(features: &FeatureTable) -> u64 {
    let scale = if features.dtype() == FeatureDtype::I8 { size_of::<f32>() } else { 0 };
    (features.dim() * features.dtype().bytes() + scale).max(1) as u64
}

/// One list for all ranks, of which each keeps the first rows.
fn shared(list: Vec<u32>, room: &[usize]) -> Lists {
    let list = Arc::new(list);
    room.iter().map(|&rows| (list.clone(), rows)).collect()
}

/// A list for each rank.
fn each(lists: Vec<Vec<u32>>) -> Lists {
    lists.into_iter().map(|list| (Arc::new(list), usize::MAX)).collect()
}

/// The first rows of each rank's part in the map's cache order.
fn of_parts(job: &Job<'_>, room: &[usize]) -> Result<(Lists, String)> {
    let map = match job.artifacts.partition() {
        Some(map) => map.clone(),
        None => partition::find(job.dataset, job.config)?,
    };
    // The order is not checked when the map is opened.
    map.check_cache_order()?;
    let by = format!("the cache order of partition {}", map.key());
    let of_rank = |(rank, &rows): (usize, &usize)| {
        let order = map.cache_order(rank % map.num_parts());
        order[..order.len().min(rows)].to_vec()
    };
    Ok((each(room.iter().enumerate().map(of_rank).collect()), by))
}

/// Rows of each rank in the placement `key` of the dataset.
fn stored(job: &Job<'_>, key: &str, room: &[usize]) -> Result<(Lists, String)> {
    let (dataset, artifacts) = (job.dataset, job.artifacts);
    if !Placement::folder(dataset, key).exists() {
        let keys = dataset.keys("placement")?;
        let stored = if keys.is_empty() { "none".to_string() } else { keys.join(", ") };
        return Err(Error::Option(format!(
            "--placement {key}: neither host, replicated, partitioned or peer, nor a placement of \
             {} (there are: {stored}): \
             choose one, or run `gsplit place`",
            dataset.path().display()
        )));
    }
    let placement = Placement::open(dataset, key)?;
    let (ranks, devices, made) =
        (job.config.ranks_of_group(), placement.num_devices(), placement.meta());
    if devices != ranks {
        let needed = if job.config.system.groups == 1 {
            "the number of ranks is"
        } else {
            "the ranks of a group are"
        };
        let problem = format!(
            "--placement {key} is for {devices} devices, {needed} {ranks}: it needs one for each"
        );
        return Err(Error::Option(problem));
    }
    if let (Some(map), Some((placed, checksum))) =
        (artifacts.partition(), &made.made_from.partition)
        && checksum != map.checksum()
    {
        return Err(Error::Option(format!(
            "--placement {key} was made for partition {placed}, this run uses {}: train with \
             --partition {placed}, or place again",
            map.key()
        )));
    }
    let of_rank = |(rank, &rows): (usize, &usize)| {
        let both = placement.shared().iter().chain(placement.own(rank % devices));
        both.take(rows).copied().collect()
    };
    Ok((each(room.iter().enumerate().map(of_rank).collect()), format!("placement {key}")))
}

/// The sight of each rank of the GPU of each other. Collective in `comm`, if ranks are processes.
fn sights(places: &[Place], comm: Option<&dyn Communicator>) -> Result<Vec<Vec<Sight>>> {
    let ranks = places.len();
    match comm.map(|comm| (comm, places[comm.rank()].gpu())) {
        Some((comm, Some(gpu))) => reach::of_processes(comm, gpu),
        Some((comm, None)) => reach::of_hosts(comm),
        None => {
            Ok(reach::of_threads(ranks, |reader, owner| reaches(&places[reader], &places[owner])))
        }
    }
}

/// Whether the GPU of `reader` can read the memory of the GPU of `owner`; enables it if so.
fn reaches(reader: &Place, owner: &Place) -> Result<bool> {
    match (reader.gpu(), owner.gpu()) {
        (Some(reader), Some(owner)) => Ok(reader.reaches(owner)?),
        // Nothing moves on the host.
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_given_or_what_is_left() {
        let [one, other] = [0, 1].map(Place::emulated);
        let places = [one.clone(), other, one];
        assert_eq!(together(&places, &[100, 350, 100]), [200, 350, 200], "one has it for both");
        let room = |cache, row_bytes| room(cache, &[1000, 350, 99], row_bytes, 3);
        assert_eq!(room(None, 100).unwrap(), [10, 3, 0]);
        assert_eq!(room(Some(250), 100).unwrap(), [2, 2, 2]);
        assert!(
            room(Some(250), 251).unwrap_err().to_string().contains("250 bytes hold no row of 251")
        );
    }
}
