//! The shuffle of a layer with rows on a GPU.
//!
//! Returns: what the exchange on the host returns, to the bit, on the GPU. Idea: rows to send are gathered there, only these
//! cross to other ranks, by way of the host. What arrives lies behind the rows that this rank has, and one gather makes the mixed
//! frontier's rows of both. Backwards the same, with sums over edges (from the gradients of a row's copies to the row) in
//! place of the gather: own first, then by rank. Rows of bf16 are widened before they are sent, and what is made of them is
//! rounded again: ranks that compute in bf16 send f32. Cost: one copy of the rows in and out beside the gathers; the host waits
//! for the rows to send.

use std::sync::OnceLock;

use gsplit_kernels::{
    Communicator, DeviceAggregation, DeviceBuffer, DeviceEdges, DeviceSlice, DeviceSliceMut, Edges, Gpu, Reduce,
    all_to_all_v, gather_on_device,
};
use tch::{Kind, Tensor};

use super::{Exchange, Shuffle};
use crate::Result;
use crate::autograd::{device_values, device_values_mut};
use crate::place::Place;
use crate::step::{from_rows, to_rows};

/// The index of a shuffle on a GPU, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct OnDevice(OnceLock<Box<DeviceShuffle>>);

#[derive(Debug)]
struct DeviceShuffle {
    send: DeviceBuffer<u32>,
    receive: DeviceBuffer<u32>,
    source: DeviceBuffer<u32>,
    /// From the mixed rows followed by the received ones to the local frontier's.
    back: DeviceEdges,
}

// It follows from the rest of the shuffle, and is made again where it is missing.
impl Clone for OnDevice {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for OnDevice {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for OnDevice {}

impl OnDevice {
    fn of(&self, gpu: &Gpu, shuffle: &Shuffle) -> Result<&DeviceShuffle> {
        if let Some(found) = self.0.get() {
            return Ok(found);
        }
        let made = DeviceShuffle {
            send: gpu.upload(&shuffle.send.positions)?,
            receive: gpu.upload(&shuffle.receive.positions)?,
            source: gpu.upload(&shuffle.source)?,
            back: DeviceEdges::upload(gpu, &back(shuffle)?)?,
        };
        Ok(self.0.get_or_init(|| Box::new(made)))
    }
}

/// For each row of the local frontier its copies: this rank's own among the mixed rows, then those that other ranks send
/// back, by rank, behind the mixed rows.
fn back(shuffle: &Shuffle) -> Result<Edges> {
    let (own_mixed, own_local) = &shuffle.own;
    let mixed = shuffle.source.len();
    let received = (mixed as u32..).zip(&shuffle.send.positions).map(|(copy, &local)| (copy, local));
    let copies = || own_mixed.iter().copied().zip(own_local.iter().copied()).chain(received.clone());
    let mut indptr = vec![0u32; shuffle.rows_in + 1];
    copies().for_each(|(_, local)| indptr[local as usize + 1] += 1);
    (0..shuffle.rows_in).for_each(|row| indptr[row + 1] += indptr[row]);
    let (mut next, mut sources) = (indptr.clone(), vec![0u32; indptr[shuffle.rows_in] as usize]);
    for (copy, local) in copies() {
        let slot = &mut next[local as usize];
        sources[*slot as usize] = copy;
        *slot += 1;
    }
    Ok(Edges::new(indptr, sources, mixed + shuffle.send.positions.len())?)
}

impl Exchange {
    /// [`Exchange::forward`] of rows at `place`, f32 `[local frontier, dim]`; none if `rows` is `None`. Collective.
    pub fn forward_at(
        &self,
        place: &Place,
        comm: &dyn Communicator,
        rows: Option<&Tensor>,
        dim: usize,
    ) -> Result<Tensor> {
        match (self, place) {
            (Self::Shuffle(shuffle), Place::Device(gpu, device, ..)) => {
                let empty = Tensor::zeros([0, dim as i64], (Kind::Float, *device));
                let rows = rows.unwrap_or(&empty).detach().contiguous();
                let kind = rows.kind();
                let rows = rows.f_totype(Kind::Float)?;
                let index = shuffle.on_device.of(gpu, shuffle)?;
                let counts = [shuffle.send.elements(dim), shuffle.receive.elements(dim)];
                let both = with_received(gpu, *device, comm, &rows, index.send.slice(), counts, dim)?;
                let mut mixed = room(*device, shuffle.source.len(), dim)?;
                let out = &mut device_values_mut(*device, &mut mixed)?;
                gather_on_device(gpu, device_values(*device, &both)?, None, index.source.slice(), dim, out)?;
                Ok(mixed.f_totype(kind)?)
            }
            _ => {
                let rows = self.forward(comm, rows.map(to_rows).transpose()?.unwrap_or_default(), dim)?;
                let count = rows.len().checked_div(dim).unwrap_or(0);
                place.bring(&from_rows(rows, count, dim)?)
            }
        }
    }

    /// [`Exchange::backward`] of the gradients of the mixed rows at `place`, f32 `[mixed frontier, dim]`. Collective.
    pub fn backward_at(&self, place: &Place, comm: &dyn Communicator, mixed: &Tensor, dim: usize) -> Result<Tensor> {
        match (self, place) {
            (Self::Shuffle(shuffle), Place::Device(gpu, device, ..)) => {
                let kind = mixed.kind();
                let mixed = mixed.detach().contiguous().f_totype(Kind::Float)?;
                let index = shuffle.on_device.of(gpu, shuffle)?;
                let counts = [shuffle.receive.elements(dim), shuffle.send.elements(dim)];
                let both = with_received(gpu, *device, comm, &mixed, index.receive.slice(), counts, dim)?;
                let mut rows = room(*device, shuffle.rows_in, dim)?;
                let sum =
                    DeviceAggregation { edges: &index.back, reduce: Reduce::Sum, weights: None, beside_own: false };
                sum.forward(gpu, device_values(*device, &both)?, dim, &mut device_values_mut(*device, &mut rows)?)?;
                Ok(rows.f_totype(kind)?)
            }
            _ => {
                let rows = self.backward(comm, to_rows(mixed)?, dim)?;
                let count = rows.len().checked_div(dim).unwrap_or(0);
                place.bring(&from_rows(rows, count, dim)?)
            }
        }
    }
}

fn room(device: tch::Device, rows: usize, dim: usize) -> Result<Tensor> {
    Ok(Tensor::f_empty([rows as i64, dim as i64], (Kind::Float, device))?)
}

/// `rows` with what other ranks send behind them; they are sent the rows at `positions`. `counts` are the values for and
/// from each rank.
fn with_received(
    gpu: &Gpu,
    device: tch::Device,
    comm: &dyn Communicator,
    rows: &Tensor,
    positions: DeviceSlice<'_, u32>,
    [for_each, from_each]: [Vec<usize>; 2],
    dim: usize,
) -> Result<Tensor> {
    let mut send = gpu.alloc(positions.len() * dim)?;
    let rows = device_values(device, rows)?;
    gather_on_device(gpu, rows, None, positions, dim, &mut send.slice_mut())?;
    let received: Vec<f32> = all_to_all_v(comm, &send.to_vec()?, &for_each, &from_each)?;
    let values = rows.len() + received.len();
    let mut both = room(device, values.checked_div(dim).unwrap_or(0), dim)?;
    let mut out: DeviceSliceMut<'_, f32> = device_values_mut(device, &mut both)?;
    out.reborrow().part(0, rows.len())?.copy_from(gpu, rows)?;
    out.part(rows.len(), values)?.upload(gpu, &received)?;
    Ok(both)
}
