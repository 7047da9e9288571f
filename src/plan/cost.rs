//! The cost model: seconds and memory of a mini-batch, from counted work and the rates of a
//! machine. It has all formulas.
//!
//! In a mini-batch all ranks together compute `V` vertices and `E` edges of a layer that reads rows
//! of `w` values and makes rows of `h`, receive `X` of the rows that it reads, request each of
//! these with a word of 4 bytes, and load `R` feature rows of `F` values. N is the number of ranks,
//! L the number of layers. A rank does its share: 1 / N times the ratio of the busiest rank to the
//! mean; where ranks share the cores of a host, the host does the work of all its ranks.
//!
//! ```text
//! phase     piece            seconds                                        why
//! sample    draws            E / sampled_edges
//!           over the bus     32 E / bus                                     a sector a draw, where the graph is in the host's memory
//!           ids              4 X / peer + 2 latency a split layer           their numbers, then which rows
//! load      rows             4 R F / rows, peer or bus                      each row is read once, wherever it is; not where the bottom layer
//!                                                                           is not split, and is computed by a CPU, or by a GPU that has all
//!                                                                           rows and sums them first: it reads them where they are stored
//!           from disk        reads / random + bytes beyond blocks / stream  where they do not fit the host, which reads for all its ranks
//! compute   products         2 V w h k / dense, 2 k more backwards          a gradient for the weights, one for the rows (not of features)
//!           aggregation      4 E w / rows, as much backwards                one row for each edge; not backwards for features
//!           element-wise     28 V h / stream                                bias, activation, dropout: 3 passes forwards, 4 backwards; 2 of these
//!                                                                           where the layer above sums the gradient by source on a GPU
//!           launches         2 layer a layer                                forwards and backwards
//!           update           28 P / stream                                  Adam reads 4 and writes 3 values a parameter
//! exchange  rows             4 X w / peer forwards, as much backwards       the bottom layer's are features: only forwards
//!           gradients        8 P (N - 1) / N / peer + 2 latency             reduce-scatter and all-gather (Thakur et al., 2005)
//! ```
//!
//! `k` is the number of products of a layer: of its own row and its neighbours' for sage, one for
//! gcn, sgc and resgcn, two for gin; gat and gatv2 project every row they read (once, twice) and
//! read it again for each edge to weigh it. An aggregation comes before or after the product, as
//! the engine chooses ([`order_of_layer`]). If it comes after, the product covers all rows that are
//! read, and the aggregation reads rows of `h` values. On a CPU gat may also aggregate first: a row
//! of `w` values for each edge and head, three times.
//!
//! A value takes 4 bytes; on GPUs that compute in 16 bits, hidden rows and exchanged rows take 2
//! bytes per value.
//!
//! P3 computes the bottom layer by columns, with the same products and aggregations over all ranks;
//! it sends 4 (V + E + R) (N - 1) bytes of edges to all ranks, 4 V h (N - 1) bytes of sums back,
//! and as much of their gradients. On shared cores N replaces N - 1, since a rank's own copy costs
//! as much. For gat, R replaces V, for gatv2 R + V: projections are added up. A device loads its
//! columns of the rows of all ranks, which is the same number of bytes.
//!
//! Cooperative mini-batches are made once: nothing is drawn, and no ids are exchanged. If one of
//! them is the whole epoch, feature rows stay where they are read: they are loaded and exchanged
//! only once, which is left out.
//!
//! `peer` is the rate at which a rank sends to all other ranks of its host at once. If pairs have
//! their own links, the slowest may take longer: a rank sends each of the n - 1 others an equal
//! portion, so its rate is at most n - 1 times the rate of that link.
//!
//! With H hosts the share (N - N / H) / (N - 1) of the bytes between ranks crosses between hosts
//! (the share of such pairs of ranks) and takes the network, which a host's ranks share. For a map
//! for H servers (`partition --servers`) the share is counted instead. Ranks with their own devices
//! sample and load ahead: a mini-batch takes the longer of (sample, load) and (compute, exchange).
//! On shared cores it takes their sum, since both need the cores; except for reads from disk, which
//! go on while ranks compute.
//!
//! Memory of a rank: 16 P for the parameters, their gradients and Adam's moments; the matrices of
//! the largest mini-batch in the order of their allocation (`gsplit_trainer::model::held`), with
//! the next one's feature rows; on a host also the free memory of the engine's pool and the ranks'
//! mailboxes; 4 bytes per edge and id, of 3 mini-batches or of all that are made once, and 8 per
//! edge for backward, once for layers that share edges. On a GPU the rest is for the graph (8 bytes
//! per vertex, 4 per edge) if it fits, then for feature rows. A host maps the graph and the rows
//! that an epoch reads.
//!
//! Not modelled: norms, residuals, jumping knowledge, evaluation.

use gsplit_partition::evaluate::{LayerWork, Work};
use gsplit_trainer::model::held::{Batch, HeldLayer, mailed, values};
use gsplit_trainer::model::{Order, order_of_layer};
use gsplit_trainer::{Device, Dtype, ModelKind, Parallelism};
use serde::Serialize;

use super::profile::{Link, Profile};
use super::shape::{Shape, products_of};

/// Fractions of the loaded rows by source; they add up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sources {
    /// Memory of the rank's own device.
    pub own: f64,
    /// Memory of other ranks.
    pub peers: f64,
    /// Memory of the host, over the bus.
    pub host: f64,
}

/// How ranks share mini-batches.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Way {
    /// Division of the work between ranks.
    #[serde(skip)]
    pub parallelism: Parallelism,
    /// The lowest layers whose rows are exchanged.
    #[serde(skip)]
    pub split_layers: usize,
    /// Number of ranks, over all hosts.
    pub ranks: usize,
    /// Mini-batches per epoch.
    pub steps: usize,
    /// Seeds of the largest mini-batch divided by the mean number: an epoch's last mini-batch is
    /// short.
    #[serde(skip)]
    pub largest: f64,
    /// Servers that the map was made for; if these are the hosts, the rows between them are
    /// counted.
    #[serde(skip)]
    pub servers: usize,
    /// Sources of feature rows.
    #[serde(skip)]
    pub sources: Sources,
    /// Whether devices draw from the graph in the host's memory.
    #[serde(skip)]
    pub far_graph: bool,
    /// Reads from disk per host and mini-batch, and their bytes, if rows do not fit into its
    /// memory.
    #[serde(skip)]
    pub disk: Option<[f64; 2]>,
}

impl Way {
    /// A way in which each rank has the graph and all rows in its own memory.
    pub fn new(parallelism: Parallelism, split_layers: usize, ranks: usize, steps: usize) -> Self {
        Self {
            parallelism,
            split_layers,
            ranks,
            steps,
            largest: 1.0,
            servers: 1,
            sources: Sources { own: 1.0, peers: 0.0, host: 0.0 },
            far_graph: false,
            disk: None,
        }
    }
}

/// Name of the piece for reading rows from disk.
pub const DISK: &str = "feature rows from disk";

/// Phases of a mini-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Drawing and relabelling.
    Sample,
    /// Loading feature rows.
    Load,
    /// Forward, backward, update.
    Compute,
    /// Exchanging rows and gradients between ranks.
    Exchange,
}

/// A part of a phase.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Piece {
    pub phase: Phase,
    pub what: &'static str,
    pub seconds: f64,
}

/// Cost of a mini-batch.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Pieces in the order of the phases.
    pub pieces: Vec<Piece>,
    /// Seconds of the mini-batch, with overlapping phases taken into account.
    pub seconds: f64,
    /// Bytes that a rank needs besides the graph and cached rows; the host's bytes, if ranks share
    /// it.
    pub memory: f64,
    /// Peak bytes of matrices.
    pub matrices: f64,
    /// Name of the longest piece that is not hidden behind others.
    #[serde(skip)]
    pub bound: &'static str,
}

impl Cost {
    pub fn of(&self, phase: Phase) -> f64 {
        self.pieces
            .iter()
            .filter(|piece| piece.phase == phase)
            .fold(0.0, |sum, piece| sum + piece.seconds)
    }
}

/// Seconds and memory of a mini-batch in which all ranks together do `work`.
pub fn cost(work: &Work, way: Way, shape: &Shape, profile: &Profile) -> Cost {
    Model { work, way, shape, profile }.cost()
}

struct Model<'a> {
    work: &'a Work,
    way: Way,
    shape: &'a Shape,
    profile: &'a Profile,
}

/// Mini-batches in memory when one is prepared ahead: one computed, one waiting and one in
/// preparation.
const AHEAD: f64 = 3.0;
/// Minimum number of bytes that a GPU reads from the host's memory.
const SECTOR: f64 = 32.0;

impl Model<'_> {
    fn cost(&self) -> Cost {
        let (profile, shape) = (self.profile, self.shape);
        let edges: f64 = self.work.layers.iter().map(|layer| layer.edges).sum();
        let mut pieces = Vec::new();
        let mut add = |phase, what, seconds| pieces.push(Piece { phase, what, seconds });
        let drawn =
            if self.is_made_once() { 0.0 } else { self.share(edges, self.work.edge_imbalance) };
        add(Phase::Sample, "drawing", drawn / profile.sampled_edges);
        if let Some(bus) = profile.bus.filter(|_| self.way.far_graph) {
            add(Phase::Sample, "drawing over the bus", SECTOR * drawn / bus.bytes);
        }
        let rounds = 2.0 * self.split().count() as f64;
        if !self.is_made_once() {
            let rows: f64 = self.split().map(|(_, layer)| layer.rows_exchanged).sum();
            let abroad: f64 = self.split().map(|(_, layer)| layer.rows_abroad).sum();
            add(Phase::Sample, "ids", self.crossing([4.0 * rows, 4.0 * abroad], rounds));
        }
        let sliced = self.way.parallelism.slices_columns();
        if sliced {
            let ids = self.bottom().vertices + self.bottom().edges + self.work.rows_loaded;
            add(Phase::Load, "edges to all ranks", self.between(4.0 * ids * self.told(), 2.0));
        }
        if !self.keeps_rows()
            && !self.sums_in_place()
            && (!profile.shared || self.split().count() > 0 || self.way.disk.is_some())
        {
            let values = shape.widths.last().map_or(0.0, |widths| widths[0]);
            let imbalance = if sliced { 1.0 } else { self.work.row_imbalance };
            let bytes = self.share(self.work.rows_loaded * values * shape.stored, imbalance);
            let Sources { own, peers, host } = self.way.sources;
            let over = |share: f64, link: Option<Link>| {
                link.map_or(0.0, |link| bytes * share / link.bytes)
            };
            add(Phase::Load, "feature rows in own memory", bytes * own / profile.rows);
            add(Phase::Load, "feature rows of peers", over(peers, Some(self.peer())));
            add(Phase::Load, "feature rows over the bus", over(host, profile.bus));
            if let (Some(disk), Some([reads, bytes])) = (&profile.disk, self.way.disk) {
                add(Phase::Load, DISK, disk.seconds(reads, bytes));
            }
        }
        let [products, aggregation, element_wise] = self.compute();
        add(Phase::Compute, "products", products);
        add(Phase::Compute, "aggregation", aggregation);
        add(Phase::Compute, "element-wise operations", element_wise);
        // Threads of ranks that share cores start and stop at the same time.
        add(Phase::Compute, "launches", 2.0 * profile.layer * shape.widths.len() as f64);
        let updates = if profile.shared { self.ranks_of_host() } else { 1.0 };
        add(Phase::Compute, "update", updates * 28.0 * shape.parameters / profile.stream);
        let bytes = |rows: &dyn Fn(&LayerWork) -> f64| -> f64 {
            self.split()
                .map(|(layer, work)| {
                    self.value() * rows(work) * shape.widths[layer][0] * self.ways(layer)
                })
                .sum()
        };
        let rows = [bytes(&|work| work.rows_exchanged), bytes(&|work| work.rows_abroad)];
        add(Phase::Exchange, "rows", self.crossing(rows, rounds));
        if sliced {
            // Attention adds up the projections of rows before it computes scores.
            let rows = match shape.kind {
                ModelKind::Gat => self.work.rows_loaded,
                ModelKind::Gatv2 => self.work.rows_loaded + self.bottom().vertices,
                _ => self.bottom().vertices,
            };
            let sums = self.value()
                * rows
                * shape.widths.last().map_or(0.0, |widths| widths[1])
                * self.told();
            add(Phase::Exchange, "sums of the bottom layer", self.between(2.0 * sums, 2.0));
        }
        let gradients = 8.0 * shape.parameters * self.others();
        add(Phase::Exchange, "gradients", self.between(gradients, 2.0));
        let [memory, matrices] = self.memory();
        let turn = |piece: &Piece| match piece.phase {
            Phase::Compute | Phase::Exchange => 2,
            _ if profile.shared && piece.what != DISK => 0,
            _ => 1,
        };
        let mut turns = [0.0; 3];
        pieces.iter().for_each(|piece| turns[turn(piece)] += piece.seconds);
        let [before, ahead, here] = turns;
        let hidden = if ahead < here { 1 } else { 2 };
        let longest = pieces
            .iter()
            .filter(|piece| turn(piece) != hidden)
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let bound = longest.map_or("nothing", |piece| piece.what);
        Cost { seconds: before + ahead.max(here), pieces, memory, matrices, bound }
    }

    /// Seconds of products, aggregation and element-wise operations, forwards and backwards.
    fn compute(&self) -> [f64; 3] {
        let (shape, profile) = (self.shape, self.profile);
        let mut sums = [0.0; 3];
        for (layer, (work, &[width, made])) in
            self.work.layers.iter().zip(&shape.widths).enumerate()
        {
            let bottom = layer + 1 == shape.widths.len();
            let (read, order) = (self.read(layer), self.order(layer));
            let backwards = if bottom { 1.0 } else { 2.0 };
            let first =
                |rows: f64, times: f64| 2.0 * rows * width * made * times * (1.0 + backwards);
            let value = if bottom && self.sums_in_place() { shape.stored } else { self.value() };
            let of_edges =
                |width: f64, backwards: f64| value * work.edges * width * (1.0 + backwards);
            let (operations, bytes) = match shape.kind {
                ModelKind::Sgc if width == made => (0.0, of_edges(width, backwards - 1.0)),
                ModelKind::Gat if order == Order::AggregateFirst => (
                    6.0 * work.vertices * width * made,
                    of_edges(self.heads(layer) * width, backwards),
                ),
                ModelKind::Gat | ModelKind::Gatv2 => {
                    (first(read, products_of(shape.kind)), of_edges(made, 1.0) * 2.0)
                }
                ModelKind::SagePool => {
                    let pooled = 2.0 * read * width * width * (1.0 + backwards);
                    (pooled + first(work.vertices, 2.0), of_edges(width, 1.0))
                }
                ModelKind::Gin => {
                    let second = 2.0 * work.vertices * made * made * 3.0;
                    (first(work.vertices, 1.0) + second, of_edges(width, backwards - 1.0))
                }
                ModelKind::Sage | ModelKind::Gcn | ModelKind::Sgc | ModelKind::Resgcn => {
                    let own =
                        if shape.kind == ModelKind::Sage { first(work.vertices, 1.0) } else { 0.0 };
                    match order {
                        Order::AggregateFirst => {
                            (own + first(work.vertices, 1.0), of_edges(width, backwards - 1.0))
                        }
                        Order::TransformFirst => (own + first(read, 1.0), of_edges(made, 1.0)),
                    }
                }
            };
            sums[0] += operations / profile.dense.of(shape.dtype);
            sums[1] += bytes / profile.rows;
            let passes = if layer > 0 && self.sums_through_relu(layer - 1) { 5.0 } else { 7.0 };
            sums[2] += passes * self.value() * work.vertices * made / profile.stream;
        }
        sums.map(|seconds| self.share(seconds, self.work.edge_imbalance))
    }

    /// Whether the bottom layer sums feature rows in a GPU's memory, as they are stored.
    fn sums_in_place(&self) -> bool {
        let (way, bottom) = (self.way, self.work.layers.len().saturating_sub(1));
        let is_here = !self.profile.shared
            && way.sources.own == 1.0
            && way.disk.is_none()
            && way.split_layers == 0;
        let sums = match self.shape.kind {
            ModelKind::Gin => self.value() == 4.0,
            kind => kind.sums_sources(),
        };
        is_here
            && !way.parallelism.slices_columns()
            && sums
            && self.shape.stored <= self.value()
            && self.order(bottom) == Order::AggregateFirst
    }

    /// Whether the sums of `layer` by source also give the gradient of ReLU's input in the layer
    /// below.
    fn sums_through_relu(&self, layer: usize) -> bool {
        let reads_own = layer + self.way.split_layers < self.work.layers.len();
        let ends_with_relu = matches!(self.shape.kind, ModelKind::Sage | ModelKind::Gcn);
        !self.profile.shared
            && reads_own
            && ends_with_relu
            && self.order(layer) == Order::AggregateFirst
    }

    /// Bytes per value of a row: GPUs keep rows in the type of products.
    fn value(&self) -> f64 {
        if self.profile.device == Device::Cuda && self.shape.dtype != Dtype::F32 {
            2.0
        } else {
            4.0
        }
    }

    /// The layers that are split, with their numbers.
    fn split(&self) -> impl Iterator<Item = (usize, &LayerWork)> {
        let first = self.work.layers.len().saturating_sub(self.way.split_layers);
        self.work.layers.iter().enumerate().skip(first)
    }

    fn bottom(&self) -> LayerWork {
        self.work.layers.last().copied().unwrap_or_default()
    }

    /// How often the rows of `layer` are exchanged: forwards, and also backwards unless they are
    /// features.
    fn ways(&self, layer: usize) -> f64 {
        match layer + 1 == self.work.layers.len() {
            true if self.keeps_rows() => 0.0,
            true => 1.0,
            false => 2.0,
        }
    }

    /// Whether mini-batches are made before the first epoch.
    fn is_made_once(&self) -> bool {
        self.way.parallelism.cooperates()
    }

    /// Whether feature rows are kept where they are read.
    fn keeps_rows(&self) -> bool {
        self.is_made_once() && self.way.steps == 1
    }

    fn peer(&self) -> Link {
        self.profile.among(self.ranks_of_host().ceil() as usize)
    }

    fn others(&self) -> f64 {
        self.way.ranks as f64 - 1.0
    }

    /// Ranks that receive data which all need; on shared cores a rank's own copy costs as much as
    /// another's.
    fn told(&self) -> f64 {
        if self.profile.shared { self.way.ranks as f64 } else { self.others() }
    }

    fn ranks_of_host(&self) -> f64 {
        (self.way.ranks as f64 / self.profile.hosts as f64).max(1.0)
    }

    /// Hosts with ranks.
    fn hosts(&self) -> f64 {
        self.profile.hosts.min(self.way.ranks) as f64
    }

    /// Work that determines the time, if all ranks do `all` together and the busiest has
    /// `imbalance` times the mean.
    fn share(&self, all: f64, imbalance: f64) -> f64 {
        match (self.profile.shared, self.hosts() > 1.0) {
            (true, false) => all,
            (true, true) => all * imbalance.min(self.hosts()) / self.hosts(),
            (false, _) => all * imbalance / self.way.ranks as f64,
        }
    }

    /// Seconds to send `bytes`, in total and evenly between all pairs of ranks, in `messages`
    /// collectives.
    fn between(&self, bytes: f64, messages: f64) -> f64 {
        let (ranks, hosts) = (self.way.ranks as f64, self.hosts());
        self.taking([bytes, bytes * (ranks - ranks / hosts) / (ranks - 1.0)], messages)
    }

    /// Seconds to send the rows that the map makes ranks exchange: `all` bytes, `abroad` of them
    /// between its servers.
    fn crossing(&self, [all, abroad]: [f64; 2], messages: f64) -> f64 {
        match self.way.servers > 1 && self.way.servers as f64 == self.hosts() {
            true => self.taking([all, abroad], messages),
            false => self.between(all, messages),
        }
    }

    /// Seconds to send `all` bytes from rank to rank, `abroad` of them from host to host.
    fn taking(&self, [all, abroad]: [f64; 2], messages: f64) -> f64 {
        if self.way.ranks < 2 {
            return 0.0;
        }
        let (ranks, hosts) = (self.way.ranks as f64, self.hosts());
        let at_home = (all - abroad) / if self.profile.shared { hosts } else { ranks };
        let network = self.profile.network.filter(|_| hosts > 1.0);
        let peer = self.peer().seconds(at_home, messages);
        network.map_or(peer, |network| peer.max(network.seconds(abroad / hosts, messages)))
    }

    /// Number of rows that a layer reads.
    fn read(&self, layer: usize) -> f64 {
        let below =
            self.work.layers.get(layer + 1).map_or(self.work.rows_loaded, |below| below.vertices);
        below + self.work.layers[layer].rows_exchanged
    }

    /// Whether a layer aggregates before its product or after it.
    fn order(&self, layer: usize) -> Order {
        let (work, widths) = (&self.work.layers[layer], self.shape.widths[layer]);
        let counts = [work.vertices, self.read(layer), work.edges].map(|count| count as usize);
        let bottom = layer + 1 == self.shape.widths.len();
        let projects =
            self.profile.device == Device::Cuda || bottom && self.way.parallelism.slices_columns();
        let (kind, heads) = (self.shape.kind, self.heads(layer) as usize);
        order_of_layer(kind, heads, counts, widths.map(|width| width as usize), !bottom, projects)
    }

    /// Attention heads of a layer: one in the last layer, whose rows are the logits.
    fn heads(&self, layer: usize) -> f64 {
        if layer == 0 { 1.0 } else { self.shape.heads }
    }

    /// The matrices of a mini-batch, on one device or over all ranks of a host.
    fn batch(&self) -> Batch {
        let layers = &self.work.layers;
        let of = |layer: usize| HeldLayer {
            vertices: layers[layer].vertices,
            edges: layers[layer].edges,
            read: self.read(layer),
            received: layers[layer].rows_exchanged,
            widths: self.shape.widths[layer],
            received_above: layer.checked_sub(1).map_or(0.0, |above| layers[above].rows_exchanged),
            order: self.order(layer),
            heads: self.heads(layer),
        };
        Batch {
            layers: (0..layers.len()).map(of).collect(),
            kind: self.shape.kind,
            ranks: self.way.ranks,
            sliced: self.way.parallelism.slices_columns(),
            ahead: !self.keeps_rows() && self.way.steps > 1,
        }
    }

    /// Bytes of a rank (or of all ranks of a host), and the peak bytes of matrices among them.
    fn memory(&self) -> [f64; 2] {
        let batch = self.batch();
        let share = |all: f64| self.way.largest * self.share(all, self.work.edge_imbalance);
        let [most, kept] = values(&batch).map(|values| values as f64);
        // Ranks that are threads send rows through the host's memory.
        let matrices = match self.profile.shared {
            true => 4.0 * share(kept + mailed(&batch)),
            false => self.value() * share(most),
        };
        let copies = if self.profile.shared { self.ranks_of_host() } else { 1.0 };
        let memory = 16.0 * self.shape.parameters * copies + matrices + share(self.edge_bytes());
        [memory, self.value() * share(most)]
    }

    /// Bytes of edges and ids.
    fn edge_bytes(&self) -> f64 {
        // In mini-batches that are made once, layers with the same edges share them.
        let mut layers: Vec<(usize, &LayerWork)> = self.work.layers.iter().enumerate().collect();
        layers.dedup_by(|(_, a), (_, b)| self.is_made_once() && a == b);
        let by_target: f64 =
            layers.iter().map(|(at, work)| work.edges + 2.0 * work.vertices + self.read(*at)).sum();
        // The backward pass also has the edges by source, except for features.
        let above = layers.iter().filter(|(at, _)| at + 1 < self.shape.widths.len());
        let by_source: f64 = above.map(|(at, work)| 2.0 * work.edges + self.read(*at)).sum();
        let batches = if self.is_made_once() { self.way.steps as f64 } else { AHEAD };
        4.0 * (batches * by_target
            + if self.is_made_once() { batches * by_source } else { by_source })
    }
}

#[cfg(test)]
mod tests;
