//! The shuffle of a layer with rows on a GPU, and its index where vertices are there too.
//!
//! Returns: what the exchange on the host returns, to the bit, on the GPU. Idea: rows to send are gathered there, only these
//! cross to other ranks, from GPU to GPU where the communicator can do that, else by way of the host. What arrives lies
//! behind the rows that this rank has, and one gather makes the mixed frontier's rows of both. Backwards the same, with
//! sums over edges (from the gradients of a row's copies to the row) in place of the gather: own first, then by rank.
//! Rows of bf16 and f16 are sent as they are, 2 bytes a value, and so are their gradients, each rounded by the rank that computed
//! it; their sum is taken in f32 and rounded once. Forwards nothing is rounded that one rank alone would not round, so every rank
//! reads the rows that a single one would; backwards a row that ranks share has its gradient rounded once on each, where
//! without ranks it is rounded once in all. Loss and logits of a step are therefore those of one rank but for the order of sums,
//! gradients but for a rounding of bf16 or f16 a rank and layer.
//! Cost: one copy of the rows in and out beside the gathers. The host waits for the other ranks' threads, and for the
//! rows themselves where these go by way of the host or over NCCL.
//!
//! Where the mixed frontier is on the GPU, the index is made there, and is that of the host. Vertices go from GPU to GPU as rows
//! do, and nothing but counts comes to the host, which waits twice: for the numbers of vertices by owner, and for the size of the
//! local frontier.

use std::sync::OnceLock;

use gsplit_kernels::{
    Communicator, DeviceAggregation, DeviceBuffer, DeviceEdges, DeviceOwners, DeviceShuffle, DeviceSlice, Edges, Gpu,
    Reduce, all_to_all_counts, concat_on_device, device_all_to_all_v, gather_on_device, select_on_device,
    split_on_device, unique_on_device,
};
use tch::{Device, Tensor};

use super::{Counts, Exchange, Index, Shuffle};
use crate::Result;
use crate::autograd::device_values_of;
use crate::operator::{Row, filled_of, with_row};
use crate::place::Place;
use crate::step::{from_rows, to_rows};

/// The index of a shuffle on a GPU, made when it is first needed there, unless it was made there.
#[derive(Debug, Default)]
pub(super) struct OnDevice(OnceLock<Box<DeviceShuffle>>);

impl OnDevice {
    fn of(&self, gpu: &Gpu, shuffle: &Shuffle) -> Result<&DeviceShuffle> {
        if let Some(found) = self.0.get() {
            return Ok(found);
        }
        let index = shuffle.index()?;
        let made = DeviceShuffle {
            send: gpu.upload(&index.send)?,
            receive: gpu.upload(&index.receive)?,
            source: gpu.upload(&index.source)?,
            back: DeviceEdges::upload(gpu, &back(index, shuffle.rows_in)?)?,
        };
        Ok(self.0.get_or_init(|| Box::new(made)))
    }

    /// The same on the host, for a local frontier of `rows_in` vertices. Waits for what was launched before.
    pub(super) fn to_host(&self, rows_in: usize) -> Result<Index> {
        let (send, source) = match self.0.get() {
            Some(made) => (made.send.to_vec()?, made.source.to_vec()?),
            None => (Vec::new(), Vec::new()),
        };
        let of = |position: u32| (position as usize).checked_sub(rows_in);
        let mut receive = vec![0u32; source.iter().filter(|&&from| of(from).is_some()).count()];
        let mut own = (Vec::new(), Vec::new());
        for (mixed, &from) in (0..).zip(&source) {
            match of(from) {
                Some(received) => receive[received] = mixed,
                None => {
                    own.0.push(mixed);
                    own.1.push(from);
                }
            }
        }
        Ok(Index { send, receive, own, source })
    }

    pub(super) fn give_to(&self, gpu: &Gpu) {
        if let Some(made) = self.0.get() {
            made.give_to(gpu);
        }
    }
}

/// For each row of the local frontier its copies: this rank's own among the mixed rows, then those that other ranks send
/// back, by rank, behind the mixed rows.
fn back(index: &Index, rows_in: usize) -> Result<Edges> {
    let (own_mixed, own_local) = &index.own;
    let mixed = index.source.len();
    let received = (mixed as u32..).zip(&index.send).map(|(copy, &local)| (copy, local));
    let copies = || own_mixed.iter().copied().zip(own_local.iter().copied()).chain(received.clone());
    let mut indptr = vec![0u32; rows_in + 1];
    copies().for_each(|(_, local)| indptr[local as usize + 1] += 1);
    (0..rows_in).for_each(|row| indptr[row + 1] += indptr[row]);
    let (mut next, mut sources) = (indptr.clone(), vec![0u32; indptr[rows_in] as usize]);
    for (copy, local) in copies() {
        let slot = &mut next[local as usize];
        sources[*slot as usize] = copy;
        *slot += 1;
    }
    Ok(Edges::new(indptr, sources, mixed + index.send.len())?)
}

impl Exchange {
    /// [`Exchange::shuffle`] of vertices on a GPU, whose owners are there too. Collective.
    pub fn shuffle_on_device(
        gpu: &Gpu,
        comm: &dyn Communicator,
        mixed: DeviceSlice<'_, u32>,
        owners: DeviceOwners<'_>,
    ) -> Result<(DeviceBuffer<u32>, Exchange)> {
        let me = comm.rank();
        let split = split_on_device(gpu, mixed, owners, comm.size())?;
        let start: usize = split.counts[..me].iter().sum();
        let own = start..start + split.counts[me];
        let order = split.order.slice();
        // A rank's own vertices stay where they are.
        let ours = select_on_device(gpu, mixed, order.part(own.start, own.end)?)?;
        let of_others = concat_on_device(gpu, &[order.part(0, own.start)?, order.part(own.end, mixed.len())?])?;
        let needed = select_on_device(gpu, mixed, of_others.slice())?;
        let receive = Counts::without(split.counts, me);
        let send = Counts::without(all_to_all_counts(comm, &receive.0)?, me);
        let mut asked = gpu.alloc(send.0.iter().sum())?;
        device_all_to_all_v(comm, gpu, needed.slice(), &receive.0, &mut asked.slice_mut(), &send.0)?;
        let (local_frontier, local) = unique_on_device(gpu, &[ours.slice(), asked.slice()])?;
        let rows_in = local_frontier.len();
        let index = DeviceShuffle::new(gpu, order, own, of_others, local.slice(), rows_in)?;
        let (on_host, on_device) = (OnceLock::new(), OnDevice(Box::new(index).into()));
        let shuffle = Shuffle { rows_in, rows_out: mixed.len(), send, receive, on_host, on_device };
        Ok((local_frontier, Exchange::Shuffle(Box::new(shuffle))))
    }

    /// [`Exchange::forward`] of rows at `place`, `[local frontier, dim]`, which stay of their type; none if `rows` is `None`.
    /// Collective.
    pub fn forward_at(
        &self,
        place: &Place,
        comm: &dyn Communicator,
        rows: Option<&Tensor>,
        dim: usize,
    ) -> Result<Tensor> {
        match (self, place) {
            (Self::Shuffle(shuffle), Place::Device(gpu, device, ..)) => {
                let empty = Tensor::zeros([0, dim as i64], (place.row_kind(), *device));
                let rows = rows.unwrap_or(&empty).detach().contiguous();
                with_row!(rows.kind(), |T| shuffle.forward_there::<T>((gpu, *device), comm, &rows, dim))
            }
            _ => {
                let rows = self.forward(comm, rows.map(to_rows).transpose()?.unwrap_or_default(), dim)?;
                let count = rows.len().checked_div(dim).unwrap_or(0);
                place.bring(&from_rows(rows, count, dim)?)
            }
        }
    }

    /// [`Exchange::backward`] of the gradients of the mixed rows at `place`, `[mixed frontier, dim]`; sums are of their type.
    /// Collective.
    pub fn backward_at(&self, place: &Place, comm: &dyn Communicator, mixed: &Tensor, dim: usize) -> Result<Tensor> {
        match (self, place) {
            (Self::Shuffle(shuffle), Place::Device(gpu, device, ..)) => {
                let mixed = mixed.detach().contiguous();
                with_row!(mixed.kind(), |T| shuffle.backward_there::<T>((gpu, *device), comm, &mixed, dim))
            }
            _ => {
                let rows = self.backward(comm, to_rows(mixed)?, dim)?;
                let count = rows.len().checked_div(dim).unwrap_or(0);
                place.bring(&from_rows(rows, count, dim)?)
            }
        }
    }
}

impl Shuffle {
    fn forward_there<T: Row>(
        &self,
        (gpu, device): (&Gpu, Device),
        comm: &dyn Communicator,
        rows: &Tensor,
        dim: usize,
    ) -> Result<Tensor> {
        let index = self.on_device.of(gpu, self)?;
        let counts = [self.send.elements(dim), self.receive.elements(dim)];
        let both = with_received::<T>((gpu, device), comm, rows, index.send.slice(), counts, dim)?;
        let both = device_values_of::<T>(device, &both)?;
        filled_of::<T>(device, &[self.rows_out, dim], |out| {
            Ok(gather_on_device(gpu, both, None, index.source.slice(), dim, out)?)
        })
    }

    fn backward_there<T: Row>(
        &self,
        (gpu, device): (&Gpu, Device),
        comm: &dyn Communicator,
        mixed: &Tensor,
        dim: usize,
    ) -> Result<Tensor> {
        let index = self.on_device.of(gpu, self)?;
        let counts = [self.receive.elements(dim), self.send.elements(dim)];
        let both = with_received::<T>((gpu, device), comm, mixed, index.receive.slice(), counts, dim)?;
        let both = device_values_of::<T>(device, &both)?;
        let sum = DeviceAggregation { edges: &index.back, reduce: Reduce::Sum, weights: None, beside_own: false };
        filled_of::<T>(device, &[self.rows_in, dim], |out| Ok(sum.forward(gpu, both, dim, out)?))
    }
}

/// `rows` with what other ranks send behind them; they are sent the rows at `positions`. `counts` are the values for and
/// from each rank.
fn with_received<T: Row>(
    (gpu, device): (&Gpu, Device),
    comm: &dyn Communicator,
    rows: &Tensor,
    positions: DeviceSlice<'_, u32>,
    [for_each, from_each]: [Vec<usize>; 2],
    dim: usize,
) -> Result<Tensor> {
    let mut send = gpu.alloc::<T>(positions.len() * dim)?;
    let rows = device_values_of::<T>(device, rows)?;
    gather_on_device(gpu, rows, None, positions, dim, &mut send.slice_mut())?;
    let values = rows.len() + from_each.iter().sum::<usize>();
    filled_of::<T>(device, &[values.checked_div(dim).unwrap_or(0), dim], |out| {
        out.reborrow().part(0, rows.len())?.copy_from(gpu, rows)?;
        let mut received = out.reborrow().part(rows.len(), values)?;
        Ok(device_all_to_all_v(comm, gpu, send.slice(), &for_each, &mut received, &from_each)?)
    })
}
