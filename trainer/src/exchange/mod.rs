//! The shuffle of one layer: which rows go to which rank, forwards and backwards.
//!
//! Below each layer, a rank holds one row for every vertex of its local frontier (which it owns) and needs one for every
//! vertex of its mixed frontier (owned by anybody). Only what others own moves. The layer reads one matrix:
//!
//! ```text
//! [ rows of the local frontier | rows received, by owner ]
//! ```
//!
//! The layer below writes the first part where it stays; [`Exchange::forward`] fills the second. Sampled edges are numbered for
//! this matrix once, while sampling ([`Shuffled::source`]). [`Exchange::backward`] is the exact transpose: the gradients of the second
//! part go back to the owners and are added to the first. ⟨forward(x), y⟩ = ⟨x, backward(y)⟩.
//!
//! A local frontier starts with the one above it, so the rows of a layer's own vertices are the first that it reads. Where ranks
//! share the frontier above, it has vertices of other ranks, and rows are copied once more, in its order ([`Shuffled::in_order`]).
//!
//! It is built once, while sampling, and serves features, activations and gradients (GSplit, section 5). Sums are
//! taken own rows first, then by rank, so they do not depend on timing.
//!
//! Why not partial sums, one row for each target and owner in place of its sources' rows: fewer bytes crossed, but no gain in time was
//! told from noise (BENCHMARKS.md).

mod device;
mod order;

use std::sync::OnceLock;

use gsplit_kernels::{
    Communicator, DeviceScatter, Gpu, Split, all_to_all_counts, all_to_all_into, all_to_all_v, gather_f32,
    scatter_add_f32, split_by_owner, unique,
};
use tch::Tensor;

pub use device::Shuffling;
use order::{rows_at, rows_onto};

use crate::Result;
use crate::autograd::{Buffer, values_mut};
use crate::operator::Ids;
use crate::operator::Place;
use crate::operator::with_rows_behind;

/// How the rows of a local frontier become those that the layer above reads.
#[derive(Debug)]
pub enum Exchange {
    /// Both frontiers are the same and on this rank: nothing moves.
    Identity,
    /// Rows move between ranks.
    Shuffle(Box<Shuffle>),
}

/// A [`Exchange::Shuffle`].
#[derive(Debug)]
pub struct Shuffle {
    /// Rows of the local frontier.
    rows: usize,
    /// Rows that each rank asked for; none for this one.
    send: Counts,
    /// Rows that each rank is asked for; none for this one.
    receive: Counts,
    /// Positions in the local frontier of the rows that others asked for, by asking rank.
    asked: Ids,
    /// Where their gradients are added on a GPU.
    onto: OnceLock<DeviceScatter>,
    /// Which of the rows the layer above reads, if it reads them in another order.
    order: Option<Ids>,
}

/// A local frontier, and the exchange that brings its rows, and those of others, to the layer above.
#[derive(Debug)]
pub struct Shuffled {
    /// This rank's own vertices of the mixed frontier in their order, then those that only others need.
    pub frontier: Ids,
    /// The vertex of each row that the layer above reads: the local frontier, then those whose rows are received.
    pub read: Ids,
    /// For each vertex of the mixed frontier, its row among these.
    pub source: Ids,
    /// Brings the rows.
    pub exchange: Exchange,
}

impl Shuffled {
    /// The layer above reads the rows of `mixed`, the mixed frontier, in its order: for a frontier that ranks share.
    pub fn in_order(mut self, mixed: Ids) -> Self {
        if let Exchange::Shuffle(shuffle) = &mut self.exchange {
            shuffle.order = Some(self.source.clone());
        }
        Self { read: mixed, ..self }
    }
}

/// A number of rows for each rank.
#[derive(Debug)]
struct Counts(Vec<usize>);

impl Counts {
    /// `counts`, but none for rank `me`.
    fn without(mut counts: Vec<usize>, me: usize) -> Self {
        counts[me] = 0;
        Self(counts)
    }

    fn elements(&self, dim: usize) -> Vec<usize> {
        self.0.iter().map(|count| count * dim).collect()
    }

    fn sum(&self) -> usize {
        self.0.iter().sum()
    }
}

/// Positions in a mixed frontier, `split` by owner, of rank `me`'s own vertices and of those of the others.
fn own_and_others(split: &Split, me: usize) -> (Vec<u32>, Vec<u32>) {
    let start: usize = split.counts[..me].iter().sum();
    let end = start + split.counts[me];
    (split.order[start..end].to_vec(), [&split.order[..start], &split.order[end..]].concat())
}

/// What [`Shuffled`] says, on the host.
struct Index {
    frontier: Vec<u32>,
    read: Vec<u32>,
    source: Vec<u32>,
    /// Rows of the frontier that others asked for.
    asked: Vec<u32>,
}

impl Index {
    /// From the positions in `mixed` of this rank's `own` vertices and of those whose rows are `received`, and the vertices that
    /// others `asked` for.
    fn new(mixed: &[u32], own: &[u32], received: &[u32], asked: &[u32]) -> Self {
        let vertex = |&at: &u32| mixed[at as usize];
        let ours: Vec<u32> = own.iter().map(vertex).collect();
        let (frontier, mut positions) = unique(&[&ours, asked]);
        let asked = positions.split_off(ours.len());
        let mut source = vec![0u32; mixed.len()];
        let behind = frontier.len() as u32..;
        for (&position, row) in own.iter().zip(positions).chain(received.iter().zip(behind)) {
            source[position as usize] = row;
        }
        let read = frontier.iter().copied().chain(received.iter().map(vertex)).collect();
        Self { frontier, read, source, asked }
    }
}

impl Exchange {
    /// Splits the vertices of `mixed` by `owner`, tells each owner which of its vertices are needed here, and returns the
    /// next local frontier with the exchange between the two.
    ///
    /// Collective: every rank calls it, with an empty `mixed` if it has nothing to compute.
    pub fn shuffle(comm: &dyn Communicator, mixed: &[u32], owner: impl Fn(u32) -> usize + Sync) -> Result<Shuffled> {
        let me = comm.rank();
        let split = split_by_owner(mixed, comm.size(), owner)?;
        let (own, others) = own_and_others(&split, me);
        let needed: Vec<u32> = others.iter().map(|&at| mixed[at as usize]).collect();
        let receive = Counts::without(split.counts, me);
        let send = Counts::without(all_to_all_counts(comm, &receive.0)?, me);
        let asked: Vec<u32> = all_to_all_v(comm, &needed, &receive.0, &send.0)?;
        let Index { frontier, read, source, asked } = Index::new(mixed, &own, &others, &asked);
        let (rows, asked) = (frontier.len(), asked.into());
        let shuffle = Shuffle { rows, send, receive, asked, onto: OnceLock::new(), order: None };
        let exchange = Self::Shuffle(Box::new(shuffle));
        Ok(Shuffled { frontier: frontier.into(), read: read.into(), source: source.into(), exchange })
    }

    /// Whether nothing moves.
    pub fn is_identity(&self) -> bool {
        matches!(self, Self::Identity)
    }

    /// Whether the layer above reads rows in the order of its mixed frontier ([`Shuffled::in_order`]).
    pub fn is_in_order(&self) -> bool {
        matches!(self, Self::Shuffle(shuffle) if shuffle.order.is_some())
    }

    /// Gives what is on the GPU to another stream ([`DeviceBuffer::give_to`](gsplit_kernels::DeviceBuffer::give_to)).
    pub(crate) fn give_to(&self, gpu: &Gpu) {
        if let Self::Shuffle(shuffle) = self {
            shuffle.asked.give_to(gpu);
            shuffle.onto.get().iter().for_each(|onto| onto.give_to(gpu));
            shuffle.order.iter().for_each(|order| order.give_to(gpu));
        }
    }

    /// Rows that come from other ranks in one `forward`.
    pub fn rows_received(&self) -> usize {
        match self {
            Self::Identity => 0,
            Self::Shuffle(shuffle) => shuffle.receive.sum(),
        }
    }

    /// Fills in the rows of other ranks. `rows` are those that the layer above reads, of `dim` values: first those of the local
    /// frontier. Collective.
    pub fn forward(&self, comm: &dyn Communicator, rows: &mut [f32], dim: usize) -> Result<()> {
        let Self::Shuffle(shuffle) = self else { return Ok(()) };
        let Shuffle { rows: own, send, receive, asked, .. } = &**shuffle;
        let (own, received) = rows.split_at_mut(own * dim);
        let mut sent = Buffer::new(send.sum() * dim)?;
        gather_f32(own, dim, asked.on_host()?, sent.as_mut_slice())?;
        Ok(all_to_all_into(comm, sent.as_slice(), &send.elements(dim), received, &receive.elements(dim))?)
    }

    /// The transpose of [`Exchange::forward`]: sends the gradients of the rows of other ranks back to them, and adds what comes back
    /// to those of the local frontier, the first of `rows`. Collective.
    pub fn backward(&self, comm: &dyn Communicator, rows: &mut [f32], dim: usize) -> Result<()> {
        let Self::Shuffle(shuffle) = self else { return Ok(()) };
        let Shuffle { rows: own, send, receive, asked, .. } = &**shuffle;
        let (own, others) = rows.split_at_mut(own * dim);
        let mut received = Buffer::new(send.sum() * dim)?;
        all_to_all_into(comm, others, &receive.elements(dim), received.as_mut_slice(), &send.elements(dim))?;
        Ok(scatter_add_f32(own, dim, asked.on_host()?, received.as_slice())?)
    }

    /// The rows that the layer above reads, `[read, dim]`, from those of the local frontier, which stay where they are if there is room
    /// behind them ([`Finish::room`](crate::operator::Finish)). Both are at `place`, of one type. `None` is no rows. Collective.
    pub fn forward_at(
        &self,
        place: &Place,
        comm: &dyn Communicator,
        rows: Option<Tensor>,
        dim: usize,
    ) -> Result<Tensor> {
        let rows = rows.unwrap_or_else(|| Tensor::zeros([0, dim as i64], (place.row_kind(), place.device())));
        let Self::Shuffle(shuffle) = self else { return Ok(rows) };
        let mut read = with_rows_behind(&rows, shuffle.receive.sum())?;
        match place {
            Place::Host(_) => self.forward(comm, values_mut(&mut read)?, dim)?,
            Place::Device(gpu, device, ..) => shuffle.forward_on_device((gpu, *device), comm, &mut read, dim)?,
        }
        match &shuffle.order {
            Some(order) => rows_at(place, &read, order),
            None => Ok(read),
        }
    }

    /// The gradients of the rows of the local frontier, from those of the rows that the layer above read, `[read, dim]`, at `place`.
    /// `gradient` is nobody else's: its memory is written. Collective.
    pub fn backward_at(&self, place: &Place, comm: &dyn Communicator, gradient: Tensor, dim: usize) -> Result<Tensor> {
        let Self::Shuffle(shuffle) = self else { return Ok(gradient) };
        let gradient = gradient.detach();
        let mut gradient = match &shuffle.order {
            Some(order) => rows_onto(place, &gradient, order, shuffle.rows + shuffle.receive.sum())?,
            None => gradient.contiguous(),
        };
        match place {
            Place::Host(_) => self.backward(comm, values_mut(&mut gradient)?, dim)?,
            Place::Device(gpu, device, ..) => shuffle.backward_on_device((gpu, *device), comm, &mut gradient, dim)?,
        }
        Ok(gradient.f_narrow(0, 0, shuffle.rows as i64)?)
    }
}
