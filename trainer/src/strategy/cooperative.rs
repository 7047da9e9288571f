//! Cooperative mini-batches: made once, server by server (GraNNDis, section 4: shared preloading, expansion-aware sampling, cooperative
//! batching).
//!
//! A server is a group of ranks. An epoch has R mini-batches, of equal shares of the training vertices; of each a server takes the seeds
//! that it owns. It reads them with all in-edges, as many hops as the model has layers; beyond its own vertices at most
//! `--expansion-hops` hops and `--expansion-fanout` in-neighbours of a vertex on each. The edges among all vertices that it reaches
//! so are the server's graph for that mini-batch. The server splits it over its ranks by the partition map, and computes what lies
//! beyond its own vertices again: between servers no row moves, gradients alone are summed.
//!
//! Mini-batches are made once and kept, edges and exchanges; R = 1 is full-graph training. Of a mini-batch that is the only one
//! the feature rows are kept too, where they stay as they are stored: they are the paper's preloaded rows.
//!
//! A layer computes the rows alone that the layers above need, where the paper's computes all of the server's graph: the seeds' logits
//! are the same, and with all hops beyond the servers those of the full graph. Once a frontier grows no more, the layers below share
//! their edges ([`sample_all`]), so memory grows with depth by the rows alone.
//!
//! Cost: once for each mini-batch and rank, a pass over the in-edges of what the server reaches, and 8 bytes for each vertex of the graph
//! meanwhile.

use std::sync::Mutex;
use std::time::Instant;

use gsplit_kernels::schedule::{Step, epoch_seeds};
use gsplit_kernels::{Communicator, Draws, Fanout, Graph, Sampler, Stream, StreamKey};
use gsplit_store::memory::{Memory, shown};
use rayon::prelude::*;
use tch::Tensor;

use super::prepared::{Prepared, ready};
use crate::batch::{HostSampler, Sampled, sample_all};
use crate::comms::Comms;
use crate::job::Job;
use crate::model::{Input, Model};
use crate::source::{FeatureSource, InputRows, Loaded, load};
use crate::task::{NodeTargets, Targets};
use crate::{Error, Result};

/// The mini-batches of a run, as one rank has them.
pub struct Made {
    batches: Vec<MadeBatch>,
}

/// One of them.
struct MadeBatch {
    /// Its seeds on all servers.
    items: Vec<u32>,
    /// This rank's part.
    sampled: Sampled<'static>,
    /// Its feature rows, once they were loaded, where they are the same in every epoch and there is room.
    rows: Mutex<Option<Tensor>>,
}

/// What the mini-batches of a run are like, over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Most vertices that a server reads for a mini-batch.
    pub vertices: u64,
    /// Of all servers' vertices of all mini-batches, those that belong to others.
    pub beyond: u64,
    /// All servers' vertices of all mini-batches.
    pub all: u64,
}

impl Made {
    /// Makes them, with the rows of all ranks in the memory of this machine where they are `together`. Collective.
    ///
    /// # Errors
    /// [`Error::Option`] for more mini-batches than training vertices; where the machine has not the memory for the rows of
    /// `model`, with what would do.
    pub fn new(job: &Job<'_>, model: &Model, comms: &Comms, together: bool) -> Result<(Self, Size)> {
        let (config, comm) = (job.config, comms.ranks().group);
        let (batches, seeds) = (config.cooperative.batches(), job.train.len());
        if batches > seeds {
            return Err(Error::Option(format!(
                "--batches {batches}: there are {seeds} vertices to train on: ask for fewer"
            )));
        }
        let servers = Servers::of(job, comm)?;
        // The same in every epoch, and not in the order of ids.
        let order = epoch_seeds(&job.train, config.seed, 0)?;
        let (mut size, mut bytes, mut made) = (Size::default(), 0, Vec::new());
        for batch in 0..batches {
            job.check_stop()?;
            let items = order[seeds * batch / batches..seeds * (batch + 1) / batches].to_vec();
            let own: Vec<u32> = items.iter().copied().filter(|&v| servers.owns(v)).collect();
            let key = StreamKey { step: batch as u32, ..StreamKey::new(config.seed, Stream::Expansion) };
            let reach = servers.reach(job.graph, &own, &key);
            let (indptr, indices) = reach.edges(job.graph);
            let graph = Graph::new(&indptr, &indices)?;
            let mine = |v: &u32| job.frontiers.seeds().map().is_none_or(|map| map[*v as usize] as usize == comm.rank());
            let mine = own.into_iter().filter(mine).collect();
            let mut sampler = HostSampler::new(Sampler::default(), graph, model.place());
            let sampled = sample_all(&mut sampler, mine, config.model.layers, &job.frontiers, comm)?;
            let sampled = Sampled { layers: sampled.layers, input: sampled.input, there: None };
            let [vertices, beyond] = reach.counts();
            size =
                Size { vertices: size.vertices.max(vertices), beyond: size.beyond + beyond, all: size.all + vertices };
            bytes = bytes.max(bytes_of_rows(&sampled, model, job.features.dim()));
            made.push(MadeBatch { items, sampled, rows: Mutex::new(None) });
        }
        let mut most = [bytes];
        if together {
            comms.all().all_reduce_sum_u64(&mut most)?;
        }
        fits(most[0], Memory::of_this_machine().available(), batches)?;
        Ok((Self { batches: made }, size.over_servers(comms)?))
    }

    /// Mini-batches of an epoch.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// The mini-batches of `epoch`, in its order, loaded from `source`. Collective as they are taken.
    pub fn epoch<'a>(
        &'a self,
        (job, source): (&'a Job<'_>, &'a FeatureSource<'_>),
        epoch: u32,
        comm: &'a dyn Communicator,
    ) -> Result<impl Iterator<Item = Result<Prepared<'a>>> + Send + 'a> {
        let order = epoch_seeds(&(0..self.batches.len() as u32).collect::<Vec<_>>(), job.config.seed, epoch)?;
        Ok((0..).zip(order).map(move |(step, at)| {
            job.check_stop()?;
            self.load(&self.batches[at as usize], (job, source), Step { seed: job.config.seed, epoch, step }, comm)
        }))
    }

    fn load<'a>(
        &'a self,
        batch: &'a MadeBatch,
        (job, source): (&'a Job<'_>, &'a FeatureSource<'_>),
        step: Step,
        comm: &dyn Communicator,
    ) -> Result<Prepared<'a>> {
        let (started, before) = (Instant::now(), comm.sent());
        let Some(labels) = job.task.labels() else {
            return Err(Error::Option("mini-batches that are made once are of vertices".into()));
        };
        let targets = Targets::Nodes(NodeTargets::of(&batch.items, labels));
        let input = Input::training(&job.config.model, step);
        let keeps = input.is_plain() && self.batches.len() == 1;
        let mut kept = batch.rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let loaded = match &*kept {
            Some(rows) => {
                let input_rows = InputRows::Read(rows.shallow_clone());
                Loaded { input_rows, ..Loaded::unread(batch.sampled.clone(), source.table()) }
            }
            None => load(source, batch.sampled.clone(), &input, job.prefetch > 0, comm)?,
        };
        if let (InputRows::Read(rows), true) = (&loaded.input_rows, keeps) {
            *kept = Some(rows.shallow_clone());
        }
        drop(kept);
        let since = [(started, before); 2];
        Ok(ready(step, (batch.items.len(), targets), (loaded, None), since, comm))
    }
}

impl Size {
    /// The sums, and the largest, over all servers. Collective.
    fn over_servers(self, comms: &Comms) -> Result<Self> {
        let (comm, leads) = (comms.all(), comms.ranks().group.rank() == 0);
        let mut sums = if leads { [self.beyond, self.all] } else { [0; 2] };
        comm.all_reduce_sum_u64(&mut sums)?;
        let all = gsplit_kernels::all_gather_v(comm, &[self.vertices])?;
        let vertices = all.concat().into_iter().max().unwrap_or(0);
        Ok(Self { vertices, beyond: sums[0], all: sums[1] })
    }
}

/// Bytes of the rows of a mini-batch on this rank, with their gradients: what layers read and what they return.
fn bytes_of_rows(sampled: &Sampled<'_>, model: &Model, features: usize) -> u64 {
    let rows = |(depth, layer): (usize, &crate::batch::SampledLayer)| {
        let index = sampled.layers.len() - 1 - depth;
        let (read, width) = (if index == 0 { features } else { model.width(index - 1) }, model.width(index));
        // A layer keeps what it reads, its sums and its rows; gradients come and go with two layers.
        layer.read.len() * read + 2 * layer.frontier.len() * width
    };
    (sampled.layers.iter().enumerate().map(rows).sum::<usize>() * size_of::<f32>()) as u64
}

/// Fails where the rows of the largest of `batches` mini-batches, `needed` bytes, are more than are `available`.
fn fits(needed: u64, available: u64, batches: usize) -> Result<()> {
    if needed <= available {
        return Ok(());
    }
    let enough = (batches as u64).saturating_mul(needed).div_ceil(available.max(1)) + 1;
    Err(Error::Option(format!(
        "--batches {batches}: the rows of a mini-batch take about {}, there are {}: pass --batches {enough} or more, or \
         --checkpoint-activations",
        shown(needed),
        shown(available)
    )))
}

/// This rank's server, and what it may read beyond it.
struct Servers<'a> {
    /// Part of each vertex, and the parts of this server.
    parts: &'a [u16],
    own: std::ops::Range<usize>,
    layers: usize,
    hops: u8,
    fanout: Fanout,
}

impl<'a> Servers<'a> {
    fn of(job: &Job<'a>, comm: &dyn Communicator) -> Result<Self> {
        let Some(parts) = job.parts else {
            return Err(Error::Option("--parallelism cooperative goes by a partition map".into()));
        };
        let config = &job.config.cooperative;
        let (first, layers) = (comm.name(0), job.config.model.layers);
        let hops = config.hops().min(layers) as u8;
        Ok(Self { parts, own: first..first + comm.size(), layers, hops, fanout: config.fanout() })
    }

    fn owns(&self, v: u32) -> bool {
        self.own.contains(&usize::from(self.parts[v as usize]))
    }

    /// What the server reads for `seeds`, which are its own.
    fn reach(&self, graph: Graph<'_>, seeds: &[u32], key: &StreamKey) -> Reach {
        let mut hop = vec![Reach::NOT; graph.num_vertices()];
        seeds.iter().for_each(|&v| hop[v as usize] = 0);
        let mut frontier = seeds.to_vec();
        for _ in 0..self.layers {
            let found: Vec<Vec<(u32, u8)>> =
                frontier.par_iter().map(|&v| self.read_for(graph, v, hop[v as usize], key)).collect();
            frontier.clear();
            for (u, at) in found.into_iter().flatten() {
                if at < hop[u as usize] {
                    hop[u as usize] = at;
                    frontier.push(u);
                }
            }
            // A vertex may have come nearer twice in one hop.
            frontier.sort_unstable();
            frontier.dedup();
        }
        Reach { hop }
    }

    /// The in-neighbours that are read for `v`, itself `at` hops beyond the server, and how far they are.
    fn read_for(&self, graph: Graph<'_>, v: u32, at: u8, key: &StreamKey) -> Vec<(u32, u8)> {
        let edges = graph.in_edges(v);
        let sources = &graph.indices[edges.start as usize..edges.end as usize];
        if at > self.hops {
            return Vec::new();
        }
        let (own, others): (Vec<u32>, Vec<u32>) = sources.iter().partition(|&&u| self.owns(u));
        let beyond = if at < self.hops { drawn(&others, self.fanout, key, v) } else { Vec::new() };
        // What is on the last hop is read, but nothing is read for it.
        let own = if at == 0 || at < self.hops { own } else { Vec::new() };
        own.into_iter().map(|u| (u, 0)).chain(beyond.into_iter().map(|u| (u, at + 1))).collect()
    }
}

/// `fanout` of `sources`, drawn for `v` by Floyd's algorithm.
fn drawn(sources: &[u32], fanout: Fanout, key: &StreamKey, v: u32) -> Vec<u32> {
    let (all, kept) = (sources.len() as u32, fanout.kept(sources.len() as u64) as u32);
    if kept == all {
        return sources.to_vec();
    }
    let (mut draws, mut picked) = (Draws::new(key, v), Vec::with_capacity(kept as usize));
    for last in all - kept..all {
        let at = draws.below(last + 1);
        picked.push(if picked.contains(&at) { last } else { at });
    }
    picked.into_iter().map(|at| sources[at as usize]).collect()
}

/// The vertices that a server reads.
struct Reach {
    /// How many hops beyond the server each is; [`Reach::NOT`] for what is not read.
    hop: Vec<u8>,
}

impl Reach {
    const NOT: u8 = u8::MAX;

    fn reads(&self, v: u32) -> bool {
        self.hop[v as usize] != Self::NOT
    }

    /// Vertices, and those that are beyond the server.
    fn counts(&self) -> [u64; 2] {
        let count = |is: fn(u8) -> bool| self.hop.par_iter().filter(|&&hop| is(hop)).count() as u64;
        [count(|hop| hop != Self::NOT), count(|hop| hop != Self::NOT && hop > 0)]
    }

    /// The edges of `graph` among them, for all vertices.
    fn edges(&self, graph: Graph<'_>) -> (Vec<u64>, Vec<u32>) {
        let of = |v: u32| {
            let edges = if self.reads(v) { graph.in_edges(v) } else { 0..0 };
            graph.indices[edges.start as usize..edges.end as usize].iter().copied().filter(|&u| self.reads(u))
        };
        let n = graph.num_vertices() as u32;
        let degrees: Vec<u64> = (0..n).into_par_iter().map(|v| of(v).count() as u64).collect();
        let mut indptr = Vec::with_capacity(degrees.len() + 1);
        indptr.push(0);
        indptr.extend(degrees.iter().scan(0, |sum, degree| {
            *sum += degree;
            Some(*sum)
        }));
        (indptr, (0..n).flat_map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A random graph of `n` vertices with `degree` in-edges each.
    fn graph(n: u32, degree: u32) -> (Vec<u64>, Vec<u32>) {
        let key = StreamKey::new(5, Stream::Generate);
        let rows = (0..n).map(|v| {
            let mut draws = Draws::new(&key, v);
            let mut row: Vec<u32> = (0..degree).map(|_| draws.below(n)).collect();
            row.sort_unstable();
            row.dedup();
            row
        });
        let rows: Vec<Vec<u32>> = rows.collect();
        let ends = rows.iter().scan(0, |end, row| {
            *end += row.len() as u64;
            Some(*end)
        });
        (std::iter::once(0).chain(ends).collect(), rows.concat())
    }

    #[test]
    fn oracle_reach_goes_as_far_as_it_may() {
        let (n, layers) = (200, 3);
        let (indptr, indices) = graph(n, 4);
        let graph = Graph::new(&indptr, &indices).unwrap();
        let parts: Vec<u16> = (0..n).map(|v| (v * 7 % 4) as u16).collect();
        let key = StreamKey::new(9, Stream::Expansion);
        let of = |hops, fanout| Servers { parts: &parts, own: 0..2, layers, hops, fanout };
        let own = |v: u32| parts[v as usize] < 2;
        let seeds: Vec<u32> = (0..n).filter(|&v| own(v) && v % 5 == 0).collect();
        // Naively: what is at most `layers` edges before a seed, by edges that `may` be taken.
        let naive = |may: &dyn Fn(u32, u32) -> bool| {
            let mut read: Vec<bool> = (0..n).map(|v| seeds.contains(&v)).collect();
            for _ in 0..layers {
                let before = read.clone();
                for v in (0..n).filter(|&v| before[v as usize]) {
                    let edges = graph.in_edges(v);
                    for &u in &indices[edges.start as usize..edges.end as usize] {
                        read[u as usize] |= may(u, v);
                    }
                }
            }
            read
        };
        let read = |reach: &Reach| (0..n).map(|v| reach.reads(v)).collect::<Vec<_>>();
        let all = of(3, Fanout::All).reach(graph, &seeds, &key);
        assert_eq!(read(&all), naive(&|_, _| true));
        assert_eq!(read(&of(0, Fanout::All).reach(graph, &seeds, &key)), naive(&|u, _| own(u)));
        // One hop beyond: nothing is read for what is beyond.
        let one = of(1, Fanout::All).reach(graph, &seeds, &key);
        assert_eq!(read(&one), naive(&|_, v| own(v)));
        let few = of(2, Fanout::Take(2)).reach(graph, &seeds, &key);
        assert!(
            read(&few).iter().zip(read(&of(2, Fanout::All).reach(graph, &seeds, &key))).all(|(few, all)| !few | all)
        );
        assert!((0..n).all(|v| !few.reads(v) || own(v) == (few.hop[v as usize] == 0)));
        let [vertices, beyond] = few.counts();
        assert!(beyond > 0 && vertices < all.counts()[0], "{vertices}, {beyond}");
        // The edges are those among what is read, in order.
        let (ends, sources) = few.edges(graph);
        for v in 0..n {
            let edges = graph.in_edges(v);
            let whole = &indices[edges.start as usize..edges.end as usize];
            let kept: Vec<u32> = whole.iter().copied().filter(|&u| few.reads(u) && few.reads(v)).collect();
            assert_eq!(sources[ends[v as usize] as usize..ends[v as usize + 1] as usize], kept);
        }
    }

    #[test]
    fn what_does_not_fit_says_what_would() {
        assert!(fits(8 << 30, 8 << 30, 1).is_ok());
        let line = fits(20 << 30, 8 << 30, 2).unwrap_err().to_string();
        assert!(line.contains("--batches 2: ") && line.contains("pass --batches 6 or more"), "{line}");
    }

    #[test]
    fn as_many_as_the_fanout_are_drawn_each_alike() {
        let sources: Vec<u32> = (100..107).collect();
        let mut counts = [0u32; 7];
        for v in 0..7000 {
            let mut picked = drawn(&sources, Fanout::Take(3), &StreamKey::new(1, Stream::Expansion), v);
            picked.sort_unstable();
            picked.dedup();
            assert_eq!(picked.len(), 3);
            picked.iter().for_each(|u| counts[*u as usize - 100] += 1);
        }
        // 3000 expected; the deviation of a share of 3/7 of 7000 is 41.
        assert!(counts.iter().all(|&count| count.abs_diff(3000) < 210), "{counts:?}");
        assert_eq!(drawn(&sources, Fanout::Take(9), &StreamKey::new(1, Stream::Expansion), 0), sources);
    }
}
