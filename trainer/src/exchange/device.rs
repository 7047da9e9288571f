//! The shuffle of a layer with rows on a GPU, and its index where vertices are there too.
//!
//! Returns: what the exchange on the host returns, to the bit, on the GPU. Idea: rows to send are gathered there, only these
//! cross to other ranks, from GPU to GPU where the communicator can do that, else by way of the host. Gradients that come back are
//! added to those that are there, own first, then by rank, without atomics.
//! Rows of bf16 and f16 are sent as they are, 2 bytes a value, and so are their gradients, each rounded by the rank that computed
//! it; their sum is taken in f32 and rounded once. Forwards nothing is rounded that one rank alone would not round, so every rank
//! reads the rows that a single one would; backwards a row that ranks share has its gradient rounded once on each, where
//! without ranks it is rounded once in all. Loss and logits of a step are therefore those of one rank but for the order of sums,
//! gradients but for a rounding of bf16 or f16 a rank and layer.
//! Cost: one read and write of each row that crosses. The host waits for the other ranks' threads, and for the
//! rows themselves where these go by way of the host or over NCCL.
//!
//! Where the mixed frontier is on the GPU, the index is made there, and is that of the host. Vertices go from GPU to GPU as rows
//! do, and nothing but counts comes to the host, which waits twice: for the numbers of vertices by owner, and for the size of the
//! local frontier.

use gsplit_kernels::{
    Communicator, DeviceOwners, DeviceScatter, DeviceSlice, Gpu, all_to_all_counts, concat_on_device,
    device_all_to_all_v, gather_on_device, select_on_device, sources_on_device, split_on_device, unique_on_device,
};
use tch::{Device, Tensor};

use super::{Counts, Exchange, Product, Shuffle, Shuffled};
use crate::Result;
use crate::autograd::device_values_mut_of;
use crate::ids::Ids;
use crate::operator::{Row, with_row};

impl Exchange {
    /// [`Exchange::shuffle`] of vertices on a GPU, whose owners are there too. Collective.
    pub fn shuffle_on_device(
        gpu: &Gpu,
        comm: &dyn Communicator,
        mixed: DeviceSlice<'_, u32>,
        owners: DeviceOwners<'_>,
    ) -> Result<Shuffled> {
        let me = comm.rank();
        let split = split_on_device(gpu, mixed, owners, comm.size())?;
        let start: usize = split.counts[..me].iter().sum();
        let own = start..start + split.counts[me];
        let order = split.order.slice();
        let ours = select_on_device(gpu, mixed, order.part(own.start, own.end)?)?;
        let others = concat_on_device(gpu, &[order.part(0, own.start)?, order.part(own.end, mixed.len())?])?;
        let needed = select_on_device(gpu, mixed, others.slice())?;
        let receive = Counts::without(split.counts, me);
        let send = Counts::without(all_to_all_counts(comm, &receive.0)?, me);
        let mut asked = gpu.alloc(send.sum())?;
        device_all_to_all_v(comm, gpu, needed.slice(), &receive.0, &mut asked.slice_mut(), &send.0)?;
        let (frontier, positions) = unique_on_device(gpu, &[ours.slice(), asked.slice()])?;
        let rows = frontier.len();
        let positions = positions.slice();
        let source = sources_on_device(gpu, order, own, positions.part(0, ours.len())?, rows)?;
        let asked = concat_on_device(gpu, &[positions.part(ours.len(), positions.len())?])?;
        let onto = DeviceScatter::new(gpu, asked.slice(), rows)?;
        let read = concat_on_device(gpu, &[frontier.slice(), needed.slice()])?;
        let (needed, product) = (receive.sum(), Product::Gather(Ids::on_device(asked)));
        let shuffle = Shuffle { rows, send, receive, needed, product, onto: onto.into(), order: None };
        let [frontier, read, source] = [frontier, read, source].map(Ids::on_device);
        Ok(Shuffled { frontier, read, source, exchange: Exchange::Shuffle(Box::new(shuffle)) })
    }
}

impl Shuffle {
    pub(super) fn forward_on_device(
        &self,
        there: (&Gpu, Device),
        comm: &dyn Communicator,
        read: &mut Tensor,
        dim: usize,
    ) -> Result<()> {
        with_row!(read.kind(), |T| self.forward_of::<T>(there, comm, read, dim))
    }

    pub(super) fn backward_on_device(
        &self,
        there: (&Gpu, Device),
        comm: &dyn Communicator,
        gradient: &mut Tensor,
        dim: usize,
    ) -> Result<()> {
        with_row!(gradient.kind(), |T| self.backward_of::<T>(there, comm, gradient, dim))
    }

    fn forward_of<T: Row>(
        &self,
        (gpu, device): (&Gpu, Device),
        comm: &dyn Communicator,
        read: &mut Tensor,
        dim: usize,
    ) -> Result<()> {
        let (own, mut received) = device_values_mut_of::<T>(device, read)?.split_at(self.rows * dim)?;
        let asked = self.product.gathered()?;
        let mut sent = gpu.alloc::<T>(asked.len() * dim)?;
        gather_on_device(gpu, own.as_slice(), None, asked.on_gpu(gpu)?, dim, &mut sent.slice_mut())?;
        let [send, receive] = [&self.send, &self.receive].map(|counts| counts.elements(dim));
        Ok(device_all_to_all_v(comm, gpu, sent.slice(), &send, &mut received, &receive)?)
    }

    fn backward_of<T: Row>(
        &self,
        (gpu, device): (&Gpu, Device),
        comm: &dyn Communicator,
        gradient: &mut Tensor,
        dim: usize,
    ) -> Result<()> {
        let (mut own, others) = device_values_mut_of::<T>(device, gradient)?.split_at(self.rows * dim)?;
        let asked = self.product.gathered()?;
        let mut received = gpu.alloc::<T>(asked.len() * dim)?;
        let [send, receive] = [&self.send, &self.receive].map(|counts| counts.elements(dim));
        device_all_to_all_v(comm, gpu, others.as_slice(), &receive, &mut received.slice_mut(), &send)?;
        let onto = match self.onto.get() {
            Some(onto) => onto,
            None => {
                let made = DeviceScatter::new(gpu, asked.on_gpu(gpu)?, self.rows)?;
                self.onto.get_or_init(|| made)
            }
        };
        Ok(onto.add(gpu, &mut own, dim, received.slice())?)
    }
}
