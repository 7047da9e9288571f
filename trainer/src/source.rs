//! Where a rank's feature rows come from.
//!
//! Returns: the rows of given vertices, as f32, at the rank's place. Input: a table of rows on the host.
//! Idea: on the host rows are gathered where they lie. For GPUs the table is pinned once for all of them, if it lies in
//! memory in one piece, and each GPU reads the rows that it needs over the bus; the rows that it needs most it may keep in
//! a cache of its own. A table in a mapped file is gathered by the host, and the rows are copied.
//! Cost: the bytes of the rows; a number a vertex for the cache's table of slots.

use gsplit_kernels::{
    DeviceCache, DeviceSlice, DeviceSliceMut, DeviceTable, DeviceValue, Gpu, MappedHost, gather_on_device,
};
use gsplit_store::{FeatureDtype, FeatureTable};
use half::{bf16, f16};
use tch::{Kind, Tensor};

use crate::Result;
use crate::autograd::{Buffer, device_values_mut};
use crate::batch::Input;
use crate::place::Place;

/// A table of rows that the GPUs of a run reach.
pub struct Pinned<'a>(Box<dyn AnyTable + 'a>);

impl<'a> Pinned<'a> {
    /// Pins `table` for all GPUs, if it lies in memory in one piece.
    ///
    /// # Errors
    /// What the driver says, if it cannot pin that much.
    pub fn new(table: &'a FeatureTable, gpu: &Gpu) -> Result<Option<Self>> {
        match table.dtype() {
            FeatureDtype::F32 => Self::of::<f32>(table, gpu),
            FeatureDtype::F16 => Self::of::<f16>(table, gpu),
            FeatureDtype::Bf16 => Self::of::<bf16>(table, gpu),
            FeatureDtype::I8 => Self::of::<i8>(table, gpu),
        }
    }

    fn of<T: DeviceValue>(table: &'a FeatureTable, gpu: &Gpu) -> Result<Option<Self>> {
        let Some(values) = table.values::<T>() else { return Ok(None) };
        let scales = table.scales().map(|scales| gpu.map_host(scales)).transpose()?;
        Ok(Some(Self(Box::new(PinnedTable { table, values: gpu.map_host(values)?, scales }))))
    }
}

/// [`PinnedTable`] of any type of values.
trait AnyTable: Send + Sync {
    fn rows(&self, gpu: &Gpu, cached: &[u32]) -> Result<Box<dyn AnyRows + '_>>;
}

struct PinnedTable<'a, T> {
    table: &'a FeatureTable,
    values: MappedHost<'a, T>,
    scales: Option<MappedHost<'a, f32>>,
}

impl<T: DeviceValue> AnyTable for PinnedTable<'_, T> {
    fn rows(&self, gpu: &Gpu, cached: &[u32]) -> Result<Box<dyn AnyRows + '_>> {
        let scales = self.scales.as_ref().map(|scales| scales.seen_by(gpu)).transpose()?;
        let table = DeviceTable { values: self.values.seen_by(gpu)?, scales, dim: self.table.dim() };
        let cache = match cached {
            [] => None,
            _ => Some(DeviceCache::new(gpu, &table, cached, |v| self.table.row(v), |v| self.table.scale(v))?),
        };
        Ok(Box::new(DeviceRows { table, cache }))
    }
}

/// [`DeviceRows`] of any type of values.
trait AnyRows: Send + Sync {
    fn gather(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>, out: &mut DeviceSliceMut<'_, f32>) -> Result<()>;
    fn hits(&self, vertices: &[u32]) -> usize;
}

struct DeviceRows<'a, T: DeviceValue> {
    table: DeviceTable<'a, T>,
    cache: Option<DeviceCache<T>>,
}

impl<T: DeviceValue> AnyRows for DeviceRows<'_, T> {
    fn gather(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>, out: &mut DeviceSliceMut<'_, f32>) -> Result<()> {
        let DeviceTable { values, scales, dim } = self.table;
        match &self.cache {
            Some(cache) => cache.gather(gpu, &self.table, vertices, out)?,
            None => gather_on_device(gpu, values, scales, vertices, dim, out)?,
        }
        Ok(())
    }

    fn hits(&self, vertices: &[u32]) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.hits(vertices))
    }
}

/// The feature rows of a graph, for one rank.
pub struct FeatureSource<'a> {
    table: &'a FeatureTable,
    place: Place,
    rows: Option<Box<dyn AnyRows + 'a>>,
}

impl<'a> FeatureSource<'a> {
    /// The rows of `table`, for a rank at `place`, gathered by the host.
    pub fn new(table: &'a FeatureTable, place: &Place) -> Self {
        Self { table, place: place.clone(), rows: None }
    }

    /// The rows of `table`, which `pinned` is, for a rank at `place`, a GPU that keeps those of `cached`.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) where the GPU has not the memory.
    pub fn pinned(table: &'a FeatureTable, place: &Place, pinned: &'a Pinned<'_>, cached: &[u32]) -> Result<Self> {
        let rows = place.gpu().map(|gpu| pinned.0.rows(gpu, cached)).transpose()?;
        Ok(Self { table, place: place.clone(), rows })
    }

    /// Where the rank computes.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Where they are stored.
    pub fn table(&self) -> &'a FeatureTable {
        self.table
    }

    /// Whether operators can read them where they are stored.
    pub fn is_read_in_place(&self) -> bool {
        matches!(self.place, Place::Host(_))
    }

    /// How many of the rows of `vertices` are in the GPU's own memory.
    pub fn hits(&self, vertices: &[u32]) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.hits(vertices))
    }

    /// What `input` makes of the rows of `vertices`, f32 `[vertices, width]`; on the host, unless it leaves them as they are.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if the table has not all vertices, what the GPU says.
    pub fn rows(&self, vertices: &[u32], input: &Input) -> Result<Tensor> {
        let shape = [vertices.len() as i64, self.table.dim() as i64];
        if let (Some(rows), Place::Device(gpu, device, ..), true) = (&self.rows, &self.place, input.is_plain()) {
            let mut found = Tensor::f_empty(shape, (Kind::Float, *device))?;
            let vertices = gpu.upload(vertices)?;
            rows.gather(gpu, vertices.slice(), &mut device_values_mut(*device, &mut found)?)?;
            return Ok(found);
        }
        let mut rows = Buffer::new(vertices.len() * self.table.dim())?;
        input.read(self.table, vertices, rows.as_mut_slice())?;
        self.place.bring(&rows.into_tensor(&shape)?)
    }
}
