//! Candidates on given hardware: which fit, how long they take, and changes of the hardware that
//! would reorder them.

use gsplit_preprocess::memory::Memory;
use gsplit_store::Presample;
use gsplit_store::Size;
use gsplit_trainer::RowPlacement;
use serde::Serialize;

use super::candidate::Candidate;
use super::cost::{Cost, DISK, Sources, Way, cost};
use super::hits::Hits;
use super::profile::Profile;
use super::shape::Shape;
use gsplit::ui::bytes;

/// Share of a GPU's memory left unplanned, for libraries and fragmentation.
const SPARE: f64 = 0.1;
/// Share of a host's memory that training leaves to others.
const FREE: f64 = 0.2;
/// Bytes of a training program with libtorch, and of uncounted memory: vectors, reads in flight.
const PROGRAM: f64 = 134e6;

/// Everything needed to rank candidates on given hardware.
pub struct Candidates {
    /// The question, for people.
    pub line: String,
    /// Mini-batches per epoch.
    pub steps: usize,
    pub candidates: Vec<Candidate>,
    /// Systems that cannot be planned for, with the reason.
    pub left_out: Vec<(String, String)>,
    pub shape: Shape,
    /// Presample that gives the weights of maps and ranks rows, if any system draws.
    pub presample: Option<Presample>,
    /// Share of all loads served by a number of the hottest rows.
    pub hits: Hits,
    pub graph_bytes: f64,
    pub row_bytes: f64,
    /// Memory of each rank for feature rows, one plan per size; the free memory if empty.
    pub caches: Vec<Size>,
    /// Memory limit of a run on a host; the profile's memory if `None`.
    pub memory: Option<Memory>,
}

/// Feature rows that do not fit into a host's memory, per epoch and over all ranks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DiskRows {
    /// Rows that stay in memory.
    pub rows_kept: f64,
    /// Rows that are read from disk.
    pub rows_from_disk: f64,
    /// Bytes that are read from disk for them.
    pub bytes_from_disk: f64,
    /// Bytes of the graph that stay in memory.
    #[serde(skip)]
    graph: f64,
    /// Reads from disk per host and mini-batch, and their bytes.
    #[serde(skip)]
    of_host: [f64; 2],
}

/// A system or candidate that is not ranked.
#[derive(Serialize)]
pub struct LeftOut<'a> {
    pub system: String,
    pub why: String,
    /// Whether the memory is sufficient, as far as that is known.
    pub fits: bool,
    /// Its plan and cost, if known.
    pub plan: Option<Ranked<'a>>,
}

/// A candidate on some hardware.
#[derive(Serialize)]
pub struct Ranked<'a> {
    #[serde(flatten)]
    pub candidate: &'a Candidate,
    pub epoch_s: f64,
    /// Name of the work that takes the longest.
    pub bound: &'static str,
    /// Bytes of memory per rank, including the graph and cached rows.
    pub memory: f64,
    /// Its memory for feature rows, if limited.
    pub cache: Option<String>,
    /// Sources of its feature rows.
    sources: Sources,
    /// Rows that are read from disk, if not all fit into memory.
    pub disk: Option<DiskRows>,
    pub cost: Cost,
}

impl Ranked<'_> {
    /// A line about its rows from disk, if it reads any.
    pub fn disk_line(&self, dataset: &str) -> Option<String> {
        let DiskRows { rows_kept, rows_from_disk, bytes_from_disk, .. } = self.disk?;
        let seconds = match self.cost.pieces.iter().find(|piece| piece.what == DISK) {
            Some(piece) => {
                format!(
                    "in {:.1} s, bound by {}",
                    piece.seconds * self.candidate.way.steps as f64,
                    self.bound
                )
            }
            None => format!(
                "seconds need a profile with [disk]: gsplit doctor --profile FILE --disk {dataset}"
            ),
        };
        Some(format!(
            "feature rows do not fit in memory: an epoch of {} reads {rows_from_disk:.0} from disk \
             and keeps {rows_kept:.0}; {:.0} MB, \
             {seconds}",
            self.candidate.name,
            bytes_from_disk / 1e6,
        ))
    }

    /// For people.
    pub fn name(&self) -> String {
        let cache = self.cache.as_ref().map_or(String::new(), |cache| format!(", {cache}"));
        format!("{}{cache}", self.candidate.name)
    }

    /// The options of `gsplit train` that run it, including the requested cache.
    pub fn options(&self) -> String {
        let cache = self.cache.as_ref().map(|cache| format!("--cache {cache}"));
        self.candidate.options.iter().cloned().chain(cache).collect::<Vec<_>>().join(" ")
    }
}

impl Candidates {
    /// The comparable candidates that fit `profile`, the fastest first.
    pub fn rank(&self, profile: &Profile) -> Vec<Ranked<'_>> {
        self.sorted(profile, |candidate| candidate.apart.is_none())
    }

    /// The candidates that fit but cannot be compared with the others, the fastest first.
    pub fn apart(&self, profile: &Profile) -> Vec<Ranked<'_>> {
        self.sorted(profile, |candidate| candidate.apart.is_some())
    }

    fn sorted(&self, profile: &Profile, wanted: impl Fn(&Candidate) -> bool) -> Vec<Ranked<'_>> {
        let runs = self
            .candidates
            .iter()
            .filter(|candidate| candidate.problem.is_none() && wanted(candidate));
        let on_all = runs.flat_map(|candidate| self.on_all(candidate, profile));
        let mut ranked: Vec<Ranked<'_>> =
            on_all.filter(|(_, unfit)| unfit.is_none()).map(|(plan, _)| plan).collect();
        ranked.sort_by(|a, b| a.epoch_s.total_cmp(&b.epoch_s));
        ranked
    }

    /// Candidates that do not fit, and systems that cannot be planned for, with the reason.
    pub fn unfit(&self, profile: &Profile) -> Vec<LeftOut<'_>> {
        let never = self.left_out.iter().map(|(system, why)| LeftOut {
            system: system.clone(),
            why: why.clone(),
            fits: false,
            plan: None,
        });
        let not_here = self.candidates.iter().flat_map(|candidate| {
            self.on_all(candidate, profile).into_iter().filter_map(|(plan, unfit)| {
                let fits = unfit.is_none();
                let why = unfit.or_else(|| candidate.problem.clone())?;
                Some(LeftOut { system: candidate.name.clone(), why, fits, plan: Some(plan) })
            })
        });
        never.chain(not_here).collect()
    }

    /// Lines about changes of the hardware that would put another system first.
    pub fn what_changes(&self, profile: &Profile) -> Vec<String> {
        let first = |profile: &Profile| {
            self.rank(profile)
                .first()
                .map(|first| (first.candidate.name.clone(), first.candidate.way.ranks))
        };
        let now = first(profile);
        type Change = fn(&mut Profile);
        let changes: [(&str, Change); 7] = [
            ("8 GiB more memory a rank", |other| other.memory += (8u64 << 30) as f64),
            ("half the memory a rank", |other| other.memory /= 2.0),
            ("links between ranks twice as fast", |other| other.scale_peers(2.0)),
            ("links between ranks half as fast", |other| other.scale_peers(0.5)),
            ("a bus twice as fast", |other| other.bus.iter_mut().for_each(|bus| bus.bytes *= 2.0)),
            ("a network twice as fast", |other| {
                other.network.iter_mut().for_each(|network| network.bytes *= 2.0)
            }),
            ("products twice as fast", |Profile { dense, .. }| {
                (dense.f32, dense.bf16) = (2.0 * dense.f32, 2.0 * dense.bf16)
            }),
        ];
        let line = |(what, change): (&str, fn(&mut Profile))| {
            let mut other = profile.clone();
            change(&mut other);
            let found = first(&other).filter(|_| other != *profile);
            let (name, ranks) = found.clone().filter(|_| found != now)?;
            Some(format!("with {what}: {name} on {ranks} ranks first"))
        };
        changes.into_iter().filter_map(line).collect()
    }

    /// `candidate` on `profile` with each cache size, if the size makes a difference.
    fn on_all<'a>(
        &'a self,
        candidate: &'a Candidate,
        profile: &Profile,
    ) -> Vec<(Ranked<'a>, Option<String>)> {
        let caches = !profile.shared && candidate.rows != RowPlacement::Host;
        match self.caches.is_empty() || !caches || candidate.problem.is_some() {
            true => {
                vec![self.on(candidate, profile, self.caches.first().copied().filter(|_| caches))]
            }
            false => {
                self.caches.iter().map(|&cache| self.on(candidate, profile, Some(cache))).collect()
            }
        }
    }

    /// `candidate` on `profile`, and the reason why it does not fit, if it does not.
    fn on<'a>(
        &'a self,
        candidate: &'a Candidate,
        profile: &Profile,
        cache: Option<Size>,
    ) -> (Ranked<'a>, Option<String>) {
        let bare = cost(&candidate.work, candidate.way, &self.shape, profile);
        let room = profile.memory * (1.0 - SPARE);
        let unfit = (bare.memory > room).then(|| {
            format!("needs {}, there are {}", bytes(bare.memory as u64), bytes(room as u64))
        });
        let (sources, far_graph, memory) = match profile.shared {
            true => (candidate.way.sources, false, bare.memory),
            false => self.placed(candidate, (room - bare.memory).max(0.0), bare.memory, cache),
        };
        let disk = self.disk_rows(candidate, profile, bare.memory, sources);
        let mapped = match disk {
            _ if !profile.shared => 0.0,
            Some(disk) => disk.graph + disk.rows_kept * self.row_bytes,
            None => self.mapped(candidate),
        };
        let disk_of_host = disk.map(|disk| disk.of_host);
        let way = Way { sources, far_graph, disk: disk_of_host, ..candidate.way };
        let cost = cost(&candidate.work, way, &self.shape, profile);
        let plan = Ranked {
            candidate,
            epoch_s: cost.seconds * candidate.way.steps as f64,
            bound: cost.bound,
            memory: memory + mapped,
            disk,
            cache: cache.map(|cache| cache.to_string()),
            sources,
            cost,
        };
        (plan, unfit)
    }

    /// Rows that `candidate` reads from disk, if not all fit into a host's memory next to
    /// mini-batches of `taken` bytes (on the host or GPU). The budget is the one of training
    /// (`trainer/src/run/host.rs`); for a host with GPUs it is only known if `--memory` gives it.
    fn disk_rows(
        &self,
        candidate: &Candidate,
        profile: &Profile,
        taken: f64,
        sources: Sources,
    ) -> Option<DiskRows> {
        let (ranks, hosts) =
            (candidate.way.ranks as f64, profile.hosts.min(candidate.way.ranks) as f64);
        let (loaded, all) = (candidate.work.rows_loaded, self.hits.vertices() * self.row_bytes);
        // Rows that the host gathers for GPUs: as f32 and as converted for them, also for the
        // mini-batch prepared ahead.
        let taken = if profile.shared { taken } else { 4.0 * loaded / hosts * self.row_bytes };
        let cooperates = candidate.way.parallelism.cooperates();
        let budget = match self.memory.filter(|_| !cooperates) {
            Some(memory) => memory.total() as f64 - PROGRAM,
            None if profile.shared => profile.memory * (1.0 - FREE),
            None => return None,
        };
        // If the graph does not fit, edges are read while drawing and get half of the memory that
        // is left; these reads are not counted.
        let rest = budget - taken;
        let graph = if self.graph_bytes <= rest { self.graph_bytes } else { rest.max(0.0) / 2.0 };
        let left = rest - graph;
        let fits = all
            <= if self.memory.is_some() && !cooperates { left } else { budget - self.graph_bytes };
        if fits || (cooperates && candidate.way.steps == 1) {
            return None;
        }
        let kept = if cooperates { 0.0 } else { (left.max(0.0) / self.row_bytes).floor() };
        let missed =
            (1.0 - self.hits.of_rows(kept)).min(if profile.shared { 1.0 } else { sources.host });
        // Under push-pull each rank reads its columns of all rows.
        let (each, row) = match candidate.way.parallelism.slices_columns() {
            true => (loaded, (self.row_bytes / ranks).ceil()),
            false => (loaded / ranks, self.row_bytes),
        };
        let read = each * missed * ranks;
        let [reads, bytes] =
            self.hits.reads_of_row(kept, each, [self.row_bytes, row]).map(|of_row| of_row * read);
        let steps = candidate.way.steps as f64;
        Some(DiskRows {
            graph,
            rows_kept: kept.min(self.hits.vertices()),
            rows_from_disk: read * steps,
            bytes_from_disk: bytes * steps,
            of_host: [reads / hosts, bytes / hosts],
        })
    }

    /// Whether any system reads rows from disk on `profile`.
    pub fn reads_disk(&self, profile: &Profile) -> bool {
        self.rank(profile).iter().any(|row| row.disk.is_some())
    }

    /// Bytes of the dataset's files that an epoch of `candidate` reads, which a host keeps mapped.
    fn mapped(&self, candidate: &Candidate) -> f64 {
        let vertices = self.hits.vertices();
        let unread =
            (1.0 - candidate.work.rows_loaded / vertices).max(0.0).powi(candidate.way.steps as i32);
        self.graph_bytes + vertices * (1.0 - unread) * self.row_bytes
    }

    /// Places `candidate` in `left` bytes of a GPU. Returns the sources of its rows, whether the
    /// graph stays in the host's memory, and the bytes used on the GPU, including `taken`.
    fn placed(
        &self,
        candidate: &Candidate,
        left: f64,
        taken: f64,
        cache: Option<Size>,
    ) -> (Sources, bool, f64) {
        // If all layers are split, a rank draws only for its own vertices.
        let parts = if candidate.way.split_layers == self.shape.widths.len() {
            candidate.way.ranks as f64
        } else {
            1.0
        };
        let graph = self.graph_bytes / parts;
        let far_graph = graph > left / 2.0;
        let graph = if far_graph { 0.0 } else { graph };
        let all = self.hits.vertices() * self.row_bytes;
        let wanted = match cache {
            Some(size) => size.bytes(all as u64) as f64,
            None => f64::INFINITY,
        };
        let room = (left - graph).min(wanted);
        let ranks = candidate.way.ranks as f64;
        let (hit, rows) = match candidate.rows {
            // A rank holds its columns of all rows, or none: all ranks compute a row together.
            _ if candidate.way.parallelism.slices_columns() && all / ranks <= room => {
                (all, all / ranks)
            }
            RowPlacement::Host => (0.0, 0.0),
            RowPlacement::Peer | RowPlacement::Partitioned => {
                (room * ranks, (all / ranks).min(room))
            }
            _ => (room, all.min(room)),
        };
        let hit = self.hits.of_rows(hit / self.row_bytes);
        let own = if candidate.rows == RowPlacement::Peer { hit / ranks } else { hit };
        (Sources { own, peers: hit - own, host: 1.0 - hit }, far_graph, taken + graph + rows)
    }
}
