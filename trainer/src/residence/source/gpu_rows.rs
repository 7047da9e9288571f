//! Rows that a GPU gathers, from a table that it reads and from caches.
//!
//! Idea: the kernel that gathers them converts stored values to the type of the place's rows, so
//! values of 2 bytes move in 2 bytes; rows that are normalised or dropped are f32 until then. If
//! the GPU keeps all rows, and they take no more bytes there than once they are gathered, a layer
//! that sums them over edges reads them in place.

use std::marker::PhantomData;

use gsplit_kernels::{
    DeviceAggregation, DeviceBuffer, DeviceCache, DeviceHits, DeviceRows as Sources, DeviceSlice,
    DeviceSliceMut, DeviceTable, DeviceValue, Gpu, gather_on_device,
};
use tch::{Device, Kind, Tensor};

use crate::Result;
use crate::autograd::adopt_on_device;
use crate::model::Input;
use crate::operator::{KeptRows, Place, Row, filled_of};

/// Rows that were gathered on a GPU, in memory of its stream, not yet a tensor.
pub trait Gathered: Send {
    /// Moves them to another stream ([`DeviceBuffer::give_to`]).
    fn give_to(&self, gpu: &Gpu);
    /// Wraps the rows in a tensor `[rows, dim]` on the same memory of the GPU that torch calls
    /// `device`. They must have been moved to torch's stream, or gathered on it.
    fn tensor(self: Box<Self>, device: Device, dim: usize) -> Result<Tensor>;
}

impl<O: Row> Gathered for DeviceBuffer<O> {
    fn give_to(&self, gpu: &Gpu) {
        DeviceBuffer::give_to(self, gpu);
    }

    fn tensor(self: Box<Self>, device: Device, dim: usize) -> Result<Tensor> {
        let rows = self.len().checked_div(dim).unwrap_or(0);
        adopt_on_device(device, *self, &[rows as i64, dim as i64])
    }
}

/// Rows in f32 that become rows of another type once they are a tensor.
pub(super) struct Unrounded {
    pub rows: DeviceBuffer<f32>,
    pub kind: Kind,
}

impl Gathered for Unrounded {
    fn give_to(&self, gpu: &Gpu) {
        self.rows.give_to(gpu);
    }

    fn tensor(self: Box<Self>, device: Device, dim: usize) -> Result<Tensor> {
        Ok(Box::new(self.rows).tensor(device, dim)?.f_to_kind(self.kind)?)
    }
}

/// Interface of [`DeviceRows`] for any types of values.
pub trait AnyRows: Send + Sync {
    /// Rows of `vertices`, which are on the GPU that torch calls `device`, transformed by `input`,
    /// gathered on the stream of `gpu`, which must be torch's. The host does not wait.
    fn tensor(
        &self,
        gpu: &Gpu,
        device: Device,
        vertices: DeviceSlice<'_, u32>,
        input: &Input,
    ) -> Result<Tensor>;
    /// Like [`AnyRows::tensor`] on any stream, in memory of that stream.
    fn ahead(
        &self,
        gpu: &Gpu,
        vertices: DeviceSlice<'_, u32>,
        input: &Input,
    ) -> Result<Box<dyn Gathered>>;
    /// Number of cached rows of `vertices`, counted on the stream of `gpu`; `None` without caches.
    fn hits(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>) -> Result<Option<DeviceHits>>;
    /// Rows of `vertices` where the GPU of `place` keeps them, found on the stream of `gpu` in
    /// memory of that stream; `None` if it does not keep all rows, or they take more bytes than
    /// gathered ones.
    fn kept(
        &self,
        gpu: &Gpu,
        place: &Place,
        vertices: DeviceSlice<'_, u32>,
    ) -> Result<Option<Box<dyn KeptRows + '_>>>;
}

/// Rows of `table`, read as `O`, on the stream of `gpu`, which torch calls `device`.
struct Kept<'a, T, O> {
    gpu: Gpu,
    device: Device,
    table: DeviceTable<'a, T>,
    slots: DeviceBuffer<u32>,
    read: PhantomData<O>,
}

impl<T: DeviceValue, O: Row> KeptRows for Kept<'_, T, O> {
    fn shape(&self) -> (usize, usize) {
        (self.slots.len(), self.table.dim)
    }

    fn kind(&self) -> Kind {
        O::KIND
    }

    fn first(&self, count: usize) -> Result<Tensor> {
        let DeviceTable { values, scales, dim } = self.table;
        let slots = self.slots.slice().part(0, count)?;
        filled_of::<O>(self.device, &[count, dim], |out| {
            Ok(gather_on_device(&self.gpu, values, scales, slots, dim, out)?)
        })
    }

    fn aggregate(&self, op: &DeviceAggregation<'_>) -> Result<Tensor> {
        let (rows, dim) = (Sources::At(self.table, self.slots.slice()), self.table.dim);
        let shape = [op.edges.num_targets(), op.out_dim(dim)];
        filled_of::<O>(self.device, &shape, |out| Ok(op.forward(&self.gpu, rows, dim, out)?))
    }

    fn give_to(&self, gpu: &Gpu) {
        self.slots.give_to(gpu);
    }
}

/// Rows that are stored as `T` and read as `O`.
pub(super) struct DeviceRows<'a, T: DeviceValue, O> {
    table: DeviceTable<'a, T>,
    cache: Option<DeviceCache<'a, T>>,
    made: PhantomData<O>,
}

impl<'a, T: DeviceValue, O: Row> DeviceRows<'a, T, O> {
    /// Rows of `table`, some of them in `cache`.
    pub fn new(table: DeviceTable<'a, T>, cache: Option<DeviceCache<'a, T>>) -> Self {
        Self { table, cache, made: PhantomData }
    }

    fn gather<P: Row>(
        &self,
        gpu: &Gpu,
        vertices: DeviceSlice<'_, u32>,
        out: &mut DeviceSliceMut<'_, P>,
    ) -> Result<()> {
        let DeviceTable { values, scales, dim } = self.table;
        match &self.cache {
            Some(cache) => cache.gather(gpu, &self.table, vertices, out)?,
            None => gather_on_device(gpu, values, scales, vertices, dim, out)?,
        }
        Ok(())
    }

    /// Gathers rows and applies `input`.
    fn changed(
        &self,
        gpu: &Gpu,
        vertices: DeviceSlice<'_, u32>,
        input: &Input,
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<()> {
        self.gather(gpu, vertices, out)?;
        input.apply_on_gpu(gpu, vertices, out, self.table.dim)
    }
}

impl<T: DeviceValue, O: Row> AnyRows for DeviceRows<'_, T, O> {
    fn tensor(
        &self,
        gpu: &Gpu,
        device: Device,
        vertices: DeviceSlice<'_, u32>,
        input: &Input,
    ) -> Result<Tensor> {
        let shape = [vertices.len(), self.table.dim];
        if !input.is_plain() {
            let rows =
                filled_of::<f32>(device, &shape, |out| self.changed(gpu, vertices, input, out))?;
            return Ok(rows.f_to_kind(O::KIND)?);
        }
        filled_of::<O>(device, &shape, |out| self.gather(gpu, vertices, out))
    }

    fn ahead(
        &self,
        gpu: &Gpu,
        vertices: DeviceSlice<'_, u32>,
        input: &Input,
    ) -> Result<Box<dyn Gathered>> {
        if !input.is_plain() {
            let mut rows = gpu.alloc::<f32>(vertices.len() * self.table.dim)?;
            self.changed(gpu, vertices, input, &mut rows.slice_mut())?;
            return Ok(Box::new(Unrounded { rows, kind: O::KIND }));
        }
        let mut rows = gpu.alloc::<O>(vertices.len() * self.table.dim)?;
        self.gather(gpu, vertices, &mut rows.slice_mut())?;
        Ok(Box::new(rows))
    }

    fn hits(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>) -> Result<Option<DeviceHits>> {
        Ok(self.cache.as_ref().map(|cache| cache.hits(gpu, vertices)).transpose()?)
    }

    fn kept(
        &self,
        gpu: &Gpu,
        place: &Place,
        vertices: DeviceSlice<'_, u32>,
    ) -> Result<Option<Box<dyn KeptRows + '_>>> {
        let (Some(cache), Place::Device(computing, device, _)) = (&self.cache, place) else {
            return Ok(None);
        };
        if size_of::<T>() > size_of::<O>() {
            return Ok(None);
        }
        let Some((table, slots)) = cache.own(gpu, vertices)? else { return Ok(None) };
        Ok(Some(Box::new(Kept::<T, O> {
            gpu: computing.clone(),
            device: *device,
            table,
            slots,
            read: PhantomData,
        })))
    }
}
