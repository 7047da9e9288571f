//! The shuffle of a layer with rows on a GPU, and its index if vertices are on the GPU too.
//!
//! Returns: the result of the exchange on the host, to the bit, on the GPU. Idea: rows to send are
//! gathered on the GPU, and only these cross to other ranks, from GPU to GPU if the communicator
//! supports it, otherwise via the host. Gradients that come back are added to the GPU's own, own
//! first, then by rank, without atomics. Rows of bf16 and f16 are sent unchanged, 2 bytes per
//! value, and so are their gradients, each rounded by the rank that computed it; their sum is taken
//! in f32 and rounded once. Forwards nothing is rounded that one rank alone would not round, so
//! every rank reads the rows that a single one would; backwards the gradient of a row that ranks
//! share is rounded once on each, while without ranks it is rounded once in total. Loss and logits
//! of a step therefore equal those of one rank except for the order of sums, and gradients except
//! for one rounding of bf16 or f16 per rank and layer. Cost: one read and write of each row that
//! crosses. The host waits for the other ranks' threads, and for the rows themselves if they go via
//! the host or over NCCL.
//!
//! If the mixed frontier is on the GPU, so is the index, which equals that of the host. Vertices go
//! from GPU to GPU as rows do, and only counts come to the host: the number of vertices by owner,
//! with the sizes of the sampled layer, and the size of the local frontier, with the counts of the
//! next ([`Shuffling`]).

use std::sync::OnceLock;

use gsplit_kernels::{
    Communicator, DeviceOwners, DeviceScatter, DeviceShuffle, DeviceSlice, DeviceSplit, Gpu,
    GpuError, device_all_to_all_v, gather_on_device,
};
use gsplit_sample::RowCounts;
use tch::{Device, Tensor};

use super::{Exchange, Shuffle, Shuffled};
use crate::Result;
use crate::autograd::device_values_mut;
use crate::operator::{Ids, Row};

/// A shuffle whose number of vertices in the local frontier is not yet known to the host.
pub struct Shuffling {
    counts: RowCounts,
    index: DeviceShuffle,
}

impl Shuffling {
    /// Asks the owners of the vertices of `split` for those needed here; `number` indexes the
    /// received requests. Collective.
    pub fn ask(
        gpu: &Gpu,
        comm: &dyn Communicator,
        split: &DeviceSplit,
        number: impl FnOnce(DeviceSlice<'_, u32>) -> std::result::Result<DeviceShuffle, GpuError>,
    ) -> Result<Self> {
        let counts = RowCounts::tell(comm, &split.counts)?;
        let mut asked = gpu.alloc(counts.num_sent())?;
        device_all_to_all_v(
            comm,
            gpu,
            split.needed()?,
            &counts.receive,
            &mut asked.slice_mut(),
            &counts.send,
        )?;
        Ok(Self { counts, index: number(asked.slice())? })
    }

    /// For each vertex of the mixed frontier, its row in the input of the layer above.
    pub fn source(&self) -> DeviceSlice<'_, u32> {
        self.index.source.slice()
    }

    /// The shuffle, once the local frontier is known to have `rows` vertices.
    pub fn of(self, rows: usize) -> Result<Shuffled> {
        let Self { counts, index: DeviceShuffle { mut read, source, asked } } = self;
        read.truncate(rows + counts.num_received());
        let [read, source, asked] = [read, source, asked].map(Ids::on_device);
        let frontier = read.first_on_device(rows)?;
        let shuffle = Shuffle { rows, counts, asked, onto: OnceLock::new(), order: None };
        Ok(Shuffled { frontier, read, source, exchange: Exchange::Shuffle(Box::new(shuffle)) })
    }
}

impl Exchange {
    /// Like [`Exchange::shuffle`], for vertices and owners on a GPU. Waits twice. Collective.
    pub fn shuffle_on_device(
        gpu: &Gpu,
        comm: &dyn Communicator,
        mixed_frontier: DeviceSlice<'_, u32>,
        owners: DeviceOwners<'_>,
    ) -> Result<Shuffled> {
        let split = DeviceSplit::new(gpu, mixed_frontier, owners, [comm.rank(), comm.size()])?;
        let mut rows = 0;
        let shuffling = Shuffling::ask(gpu, comm, &split, |asked| {
            let (index, found) = split.shuffle(gpu, asked)?;
            rows = found;
            Ok(index)
        })?;
        shuffling.of(rows)
    }

    /// The positions to which backward adds rows on the GPU and the number of rows, unless
    /// [prepared](Exchange::prepare).
    pub(crate) fn added_to(&self, gpu: &Gpu) -> Result<Option<(DeviceSlice<'_, u32>, usize)>> {
        let Self::Shuffle(shuffle) = self else { return Ok(None) };
        match shuffle.onto.get() {
            None => Ok(Some((shuffle.asked.on_gpu(gpu)?, shuffle.rows))),
            Some(_) => Ok(None),
        }
    }

    /// Stores `onto`, the rows to which backward adds.
    pub(crate) fn prepare(&self, onto: DeviceScatter) {
        if let Self::Shuffle(shuffle) = self {
            shuffle.onto.get_or_init(|| onto);
        }
    }
}

impl Shuffle {
    pub(super) fn forward_on_device<T: Row>(
        &self,
        gpu: &Gpu,
        device: Device,
        comm: &dyn Communicator,
        read: &mut Tensor,
        dim: usize,
    ) -> Result<()> {
        let (own, mut received) =
            device_values_mut::<T>(device, read)?.split_at(self.rows * dim)?;
        let mut sent = gpu.alloc::<T>(self.asked.len() * dim)?;
        gather_on_device(
            gpu,
            own.as_slice(),
            None,
            self.asked.on_gpu(gpu)?,
            dim,
            &mut sent.slice_mut(),
        )?;
        let [send, receive] = self.counts.values(dim);
        Ok(device_all_to_all_v(comm, gpu, sent.slice(), &send, &mut received, &receive)?)
    }

    pub(super) fn backward_on_device<T: Row>(
        &self,
        gpu: &Gpu,
        device: Device,
        comm: &dyn Communicator,
        gradient: &mut Tensor,
        dim: usize,
    ) -> Result<()> {
        let (mut own, others) =
            device_values_mut::<T>(device, gradient)?.split_at(self.rows * dim)?;
        let mut received = gpu.alloc::<T>(self.asked.len() * dim)?;
        let [send, receive] = self.counts.values(dim);
        device_all_to_all_v(
            comm,
            gpu,
            others.as_slice(),
            &receive,
            &mut received.slice_mut(),
            &send,
        )?;
        let onto = match self.onto.get() {
            Some(onto) => onto,
            None => {
                let made = DeviceScatter::new(gpu, self.asked.on_gpu(gpu)?, self.rows)?;
                self.onto.get_or_init(|| made)
            }
        };
        Ok(onto.add(gpu, &mut own, dim, received.slice())?)
    }
}
