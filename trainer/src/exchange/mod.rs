//! Rows between ranks below one layer, forwards and backwards.
//!
//! Sampling determines which rows go to which rank: on the host by [`HostShuffle`], which also
//! lists the rows that a layer reads, on a GPU in `device.rs`. An [`Exchange`] moves the rows. The
//! layer below writes the rows of its local frontier in place, as the first of the matrix;
//! [`Exchange::forward`] fills in the others. [`Exchange::backward`] is the exact transpose: the
//! gradients of the rows received go back to the owners and are added to the first. ⟨forward(x), y⟩
//! = ⟨x, backward(y)⟩.
//!
//! A local frontier starts with the one above it, so the rows of a layer's own vertices are the
//! first that it reads. If ranks share the frontier above, it has vertices of other ranks, and rows
//! are copied again, in its order ([`Shuffled::in_order`]).
//!
//! An exchange is built once and serves features, activations and gradients (GSplit, section 5).
//! Sums are taken own rows first, then by rank, so they do not depend on timing.
//!
//! Why not partial sums, one row per target and owner instead of its sources' rows: fewer bytes
//! crossed, but no gain in time could be distinguished from noise (BENCHMARKS.md).

mod device;
mod order;

use std::sync::OnceLock;

use gsplit_kernels::{
    Communicator, DeviceScatter, Gpu, all_to_all_into, gather_f32, scatter_add_f32,
};
use gsplit_sample::{HostExchange, HostShuffle, RowCounts};
use tch::Tensor;

pub use device::Shuffling;
use order::{rows_at, rows_onto};

use crate::Result;
use crate::autograd::{Buffer, values_mut};
use crate::operator::{Ids, Place, with_row, with_rows_behind};

/// Moves the rows of a local frontier to the layer above.
#[derive(Debug)]
pub enum Exchange {
    /// Both frontiers are the same and on this rank: nothing moves.
    Identity,
    /// Rows move between ranks.
    Shuffle(Box<Shuffle>),
}

/// Rows that move, and their destinations ([`Exchange::Shuffle`]).
#[derive(Debug)]
pub struct Shuffle {
    /// Rows of the local frontier.
    rows: usize,
    counts: RowCounts,
    /// Positions in the local frontier of the rows that others asked for, by asking rank.
    asked: Ids,
    /// Rows to which their gradients are added, on a GPU.
    onto: OnceLock<DeviceScatter>,
    /// Positions of the rows that the layer above reads, if it reads them in another order.
    order: Option<Ids>,
}

/// A local frontier, and the exchange that brings its rows and those of other ranks to the layer
/// above.
#[derive(Debug)]
pub struct Shuffled {
    /// This rank's own vertices of the mixed frontier in their order, then the vertices that only
    /// other ranks need.
    pub frontier: Ids,
    /// The vertex of each row that the layer above reads: the local frontier, then those of
    /// received rows.
    pub read: Ids,
    /// For each vertex of the mixed frontier, its row in `read`.
    pub source: Ids,
    /// Moves the rows.
    pub exchange: Exchange,
}

impl Shuffled {
    /// Lets the layer above read rows in the order of the mixed frontier `mixed_frontier`, for a
    /// frontier that ranks share.
    pub fn in_order(mut self, mixed_frontier: Ids) -> Self {
        if let Exchange::Shuffle(shuffle) = &mut self.exchange {
            shuffle.order = Some(self.source.clone());
        }
        Self { read: mixed_frontier, ..self }
    }
}

impl Exchange {
    /// Creates the exchange described by `host` for a local frontier of `rows` rows; also returns
    /// the vertices that are read.
    pub fn of_host(host: HostExchange, rows: usize) -> (Self, Ids) {
        let HostExchange { read, counts, asked, order } = host;
        let (asked, order) = (asked.into(), order.map(Ids::from));
        (
            Self::Shuffle(Box::new(Shuffle { rows, counts, asked, onto: OnceLock::new(), order })),
            read.into(),
        )
    }

    /// Splits the vertices of `mixed_frontier` by `owner` ([`HostShuffle::new`]), and returns the
    /// next local frontier with the exchange between the two. Collective.
    pub fn shuffle(
        comm: &dyn Communicator,
        mixed_frontier: &[u32],
        owner: impl Fn(u32) -> usize + Sync,
    ) -> Result<Shuffled> {
        let HostShuffle { frontier, source, exchange } =
            HostShuffle::new(comm, mixed_frontier, owner)?;
        let (exchange, read) = Self::of_host(exchange, frontier.len());
        Ok(Shuffled { frontier: frontier.into(), read, source: source.into(), exchange })
    }

    /// Whether nothing moves.
    pub fn is_identity(&self) -> bool {
        matches!(self, Self::Identity)
    }

    /// Whether the layer above reads rows in the order of its mixed frontier
    /// ([`Shuffled::in_order`]).
    pub fn is_in_order(&self) -> bool {
        matches!(self, Self::Shuffle(shuffle) if shuffle.order.is_some())
    }

    /// Moves its GPU memory to another stream
    /// ([`DeviceBuffer::give_to`](gsplit_kernels::DeviceBuffer::give_to)).
    pub(crate) fn give_to(&self, gpu: &Gpu) {
        if let Self::Shuffle(shuffle) = self {
            shuffle.asked.give_to(gpu);
            shuffle.onto.get().iter().for_each(|onto| onto.give_to(gpu));
            shuffle.order.iter().for_each(|order| order.give_to(gpu));
        }
    }

    /// Number of rows that come from other ranks in one `forward`.
    pub fn rows_received(&self) -> usize {
        match self {
            Self::Identity => 0,
            Self::Shuffle(shuffle) => shuffle.counts.num_received(),
        }
    }

    /// Fills in the rows of other ranks. `rows` are the rows that the layer above reads, of `dim`
    /// values each: first those of the local frontier. Collective.
    pub fn forward(&self, comm: &dyn Communicator, rows: &mut [f32], dim: usize) -> Result<()> {
        let Self::Shuffle(shuffle) = self else { return Ok(()) };
        let Shuffle { rows: own, counts, asked, .. } = &**shuffle;
        let (own, received) = rows.split_at_mut(own * dim);
        let mut sent = Buffer::new(asked.len() * dim)?;
        gather_f32(own, dim, asked.on_host()?, sent.as_mut_slice())?;
        let [send, receive] = counts.values(dim);
        Ok(all_to_all_into(comm, sent.as_slice(), &send, received, &receive)?)
    }

    /// The transpose of [`Exchange::forward`]: sends the gradients of other ranks' rows back to
    /// them, and adds the gradients received to those of the local frontier, the first of `rows`.
    /// Collective.
    pub fn backward(&self, comm: &dyn Communicator, rows: &mut [f32], dim: usize) -> Result<()> {
        let Self::Shuffle(shuffle) = self else { return Ok(()) };
        let Shuffle { rows: own, counts, asked, .. } = &**shuffle;
        let (own, others) = rows.split_at_mut(own * dim);
        let mut received = Buffer::new(asked.len() * dim)?;
        let [send, receive] = counts.values(dim);
        all_to_all_into(comm, others, &receive, received.as_mut_slice(), &send)?;
        Ok(scatter_add_f32(own, dim, asked.on_host()?, received.as_slice())?)
    }

    /// The rows that the layer above reads, `[read, dim]`, from those of the local frontier, which
    /// are not copied if there is room behind them ([`Finish::room`](crate::operator::Finish)).
    /// Both are at `place`; `None` means no rows. Collective.
    pub fn forward_at(
        &self,
        place: &Place,
        comm: &dyn Communicator,
        rows: Option<Tensor>,
        dim: usize,
    ) -> Result<Tensor> {
        let none = || Tensor::f_zeros([0, dim as i64], (place.row_kind(), place.device()));
        let rows = rows.map_or_else(none, Ok)?;
        let Self::Shuffle(shuffle) = self else { return Ok(rows) };
        let mut read = with_rows_behind(&rows, shuffle.counts.num_received())?;
        match place {
            Place::Host(_) => self.forward(comm, values_mut(&mut read)?, dim)?,
            Place::Device(gpu, device, ..) => with_row!(read.kind(), |T| {
                shuffle.forward_on_device::<T>(gpu, *device, comm, &mut read, dim)?;
            }),
        }
        match &shuffle.order {
            Some(order) => rows_at(place, &read, order),
            None => Ok(read),
        }
    }

    /// The gradients of the rows of the local frontier, from those of the rows that the layer above
    /// read, `[read, dim]`, at `place`. `gradient` must not be shared: its memory is overwritten.
    /// Collective.
    pub fn backward_at(
        &self,
        place: &Place,
        comm: &dyn Communicator,
        gradient: Tensor,
        dim: usize,
    ) -> Result<Tensor> {
        let Self::Shuffle(shuffle) = self else { return Ok(gradient) };
        let gradient = gradient.detach();
        let mut gradient = match &shuffle.order {
            Some(order) => {
                rows_onto(place, &gradient, order, shuffle.rows + shuffle.counts.num_received())?
            }
            None => gradient.contiguous(),
        };
        match place {
            Place::Host(_) => self.backward(comm, values_mut(&mut gradient)?, dim)?,
            Place::Device(gpu, device, ..) => with_row!(gradient.kind(), |T| {
                shuffle.backward_on_device::<T>(gpu, *device, comm, &mut gradient, dim)?;
            }),
        }
        Ok(gradient.f_narrow(0, 0, shuffle.rows as i64)?)
    }
}
