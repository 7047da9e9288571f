//! Source of a rank's feature rows.
//!
//! Returns: the rows of given vertices at the rank's place, in the type of its rows. Input: a table of rows on the
//! host.
//! Idea: on the host rows are gathered where they lie. For GPUs the table is pinned once for all of them, if it lies in
//! memory in one piece. Each GPU reads the rows that it needs over the bus; it finds the rows that [`Caches`] names in
//! its own memory or in that of other GPUs. The kernel that gathers rows also converts them to the type of the place's
//! rows, so a value of 2 bytes moves as 2 bytes; rows that are normalised or dropped are f32 until then. Ranks that
//! share a GPU share the rows that both keep. Ranks that are processes exchange handles of the rows that they keep
//! ([`PinnedRows::share`]), and at the end wait until all have closed them ([`PinnedRows::part`]). A table in a mapped
//! file is gathered and rounded by the host, and the rows are copied: where mini-batches are made ahead, on a stream of
//! their own.
//! Cost: the bytes of the rows; a number a vertex on each GPU that finds rows in caches. The GPUs fill their caches at
//! the same time.

mod load;
mod pin;

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::thread;

use gsplit_kernels::{
    CacheHits, Communicator, DeviceBuffer, DeviceCache, DeviceHits, DeviceSlice, DeviceSliceMut, DeviceTable,
    DeviceValue, Gpu, MappedHost, RowHandles, RowStore, gather_on_device,
};
use gsplit_store::{FeatureDtype, FeatureTable};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::autograd::values_of;
use crate::model::Input;
use crate::operator::Place;
use crate::operator::{Row, filled_of, filled_with_room, with_row};
use crate::residence::cache::{Caches, SimulatedCache, gathered};
use crate::{Error, Result};

pub use load::{InputRows, Loaded, load};
pub use pin::{pin, sources};

/// A table of rows that the GPUs of a run reach, and the copies of some that they keep.
pub struct PinnedRows<'a>(Box<dyn AnyTable<'a> + 'a>);

impl<'a> PinnedRows<'a> {
    /// Pins `table` for all GPUs, if it lies in memory in one piece.
    ///
    /// # Errors
    /// Errors of the driver, if it cannot pin that much.
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
        let values = gpu.map_host(values)?;
        Ok(Some(Self(Box::new(PinnedTable { table, values, scales, caches: None, stores: Vec::new() }))))
    }

    /// Copies what `caches` has for each of `ranks` to its GPU. Waits until all are there.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where a GPU has not the memory.
    pub fn fill(&mut self, caches: &'a Caches, ranks: &[(usize, &Gpu)]) -> Result<()> {
        self.0.fill(caches, ranks)
    }

    /// Copies what `caches` has for `rank`, which this process is, to its `gpu`, and opens what those ranks of `comm` keep that it
    /// reads. Collective.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Option`] where a rank keeps other rows than this one takes it to.
    pub fn share(&mut self, caches: &'a Caches, (rank, gpu): (usize, &Gpu), comm: &dyn Communicator) -> Result<()> {
        self.0.share(caches, (rank, gpu), comm)
    }

    /// Closes what others keep, and frees what this process keeps once all have closed it. Without it that stays until the process
    /// ends. Collective, after [`PinnedRows::share`].
    ///
    /// # Errors
    /// Errors of the communicator.
    pub fn part(mut self, comm: &dyn Communicator) -> Result<()> {
        self.0.part(comm)
    }
}

/// Message of a process to the others about the rows that it keeps.
#[derive(Serialize, Deserialize)]
struct KeptRows {
    handles: Vec<u8>,
    /// [`Caches::digest`].
    digest: u64,
}

/// [`PinnedTable`] of any type of values.
trait AnyTable<'a>: Send + Sync {
    fn fill(&mut self, caches: &'a Caches, ranks: &[(usize, &Gpu)]) -> Result<()>;
    fn share(&mut self, caches: &'a Caches, here: (usize, &Gpu), comm: &dyn Communicator) -> Result<()>;
    fn part(&mut self, comm: &dyn Communicator) -> Result<()>;
    /// For `rank`, whose rows are of the type `kind`.
    fn rows(&self, rank: usize, gpu: &Gpu, kind: Kind) -> Result<Box<dyn AnyRows + '_>>;
}

struct PinnedTable<'a, T: DeviceValue> {
    table: &'a FeatureTable,
    values: MappedHost<'a, T>,
    scales: Option<MappedHost<'a, f32>>,
    caches: Option<&'a Caches>,
    /// Store of each rank, where this process has or reads it; ranks that share a GPU and keep the same rows share it
    /// too.
    stores: Vec<Option<Arc<RowStore<'a, T>>>>,
}

impl<'a, T: DeviceValue> PinnedTable<'a, T> {
    /// The rows that `rank` keeps on `gpu`, perhaps for other processes too.
    fn store(&self, caches: &'a Caches, (rank, gpu): (usize, &Gpu), exported: bool) -> Result<RowStore<'a, T>> {
        let (table, list) = (self.table, caches.of(rank));
        let (row, scale) = (|v: u32| table.row::<T>(v), |v: u32| table.scale(v));
        let scale = self.scales.is_some().then_some(&scale as &dyn Fn(u32) -> f32);
        let store = match exported {
            true => RowStore::exported(gpu, table.dim(), list, row, scale),
            false => RowStore::new(gpu, table.dim(), list, row, scale),
        };
        store.map_err(|error| Error::from(error).of_rank(rank))
    }
}

impl<'a, T: DeviceValue> AnyTable<'a> for PinnedTable<'a, T> {
    fn fill(&mut self, caches: &'a Caches, ranks: &[(usize, &Gpu)]) -> Result<()> {
        let this = &*self;
        let store = |&each: &(usize, &Gpu)| this.store(caches, each, false).map(|store| (each.0, store));
        // The first rank that keeps the same on the same GPU.
        let same = |&(rank, gpu): &(usize, &Gpu), &(other, other_gpu): &(usize, &Gpu)| {
            gpu.is_same_device(other_gpu) && caches.of(rank) == caches.of(other)
        };
        let holders: Vec<usize> =
            ranks.iter().map(|each| ranks.iter().find(|other| same(each, other)).unwrap_or(each).0).collect();
        let stores: Vec<Result<_>> = thread::scope(|scope| {
            let store = &store;
            let holding = ranks.iter().zip(&holders).filter(|((rank, _), holder)| rank == *holder);
            let threads: Vec<_> = holding.map(|(each, _)| scope.spawn(move || store(each))).collect();
            let died = |_| Err(Error::Option("filling a cache panicked, see the line above".into()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
        });
        self.caches = Some(caches);
        self.stores.resize_with(ranks.iter().map(|(rank, _)| rank + 1).max().unwrap_or(0), || None);
        for store in stores {
            let (rank, store) = store?;
            self.stores[rank] = Some(Arc::new(store));
        }
        for (&(rank, _), &holder) in ranks.iter().zip(&holders) {
            self.stores[rank] = self.stores[holder].clone();
        }
        Ok(())
    }

    fn share(&mut self, caches: &'a Caches, (rank, gpu): (usize, &Gpu), comm: &dyn Communicator) -> Result<()> {
        let own = self.store(caches, (rank, gpu), true)?;
        let handles = bytemuck::bytes_of(&own.handles()?).to_vec();
        let kept = gathered(comm, &KeptRows { handles, digest: caches.digest(rank) })?;
        self.caches = Some(caches);
        self.stores.resize_with(comm.size(), || None);
        self.stores[rank] = Some(Arc::new(own));
        for &peer in caches.peers(rank) {
            let unlike = || {
                let problem = format!("rank {peer} keeps other rows than rank {rank} takes it to");
                Error::Option(format!("{problem}: start all with the same options, on the same dataset"))
            };
            let handles = bytemuck::try_pod_read_unaligned::<RowHandles>(&kept[peer].handles).map_err(|_| unlike())?;
            if kept[peer].digest != caches.digest(peer) {
                return Err(unlike());
            }
            let layout = (self.table.dim(), self.scales.is_some());
            let store = RowStore::imported(gpu, layout, caches.of(peer), &handles);
            self.stores[peer] = Some(Arc::new(store.map_err(|error| Error::from(error).of_rank(rank))?));
        }
        Ok(())
    }

    fn part(&mut self, comm: &dyn Communicator) -> Result<()> {
        let own = self.stores.get_mut(comm.rank()).and_then(Option::take);
        self.stores.clear();
        comm.barrier()?;
        own.iter().for_each(|own| own.reclaim());
        Ok(())
    }

    fn rows(&self, rank: usize, gpu: &Gpu, kind: Kind) -> Result<Box<dyn AnyRows + '_>> {
        let scales = self.scales.as_ref().map(|scales| scales.seen_by(gpu)).transpose()?;
        let table = DeviceTable { values: self.values.seen_by(gpu)?, scales, dim: self.table.dim() };
        let store = |rank: usize| self.stores.get(rank).and_then(Option::as_deref);
        let cache = match (store(rank), self.caches) {
            (Some(own), Some(caches)) => {
                let peers: Vec<_> = caches.peers(rank).iter().filter_map(|&peer| store(peer)).collect();
                Some(DeviceCache::new(gpu, &table, own, &peers)?)
            }
            _ => None,
        };
        Ok(with_row!(kind, |O| Box::new(DeviceRows::<T, O> { table, cache, made: PhantomData })))
    }
}

/// Rows that were gathered on a GPU, in memory of its stream, not yet torch's.
pub trait Gathered: Send {
    /// Gives them to another stream ([`DeviceBuffer::give_to`]).
    fn give_to(&self, gpu: &Gpu);
    /// As a tensor, `[rows, dim]`: a copy within the GPU, which torch calls `device`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn tensor(&self, gpu: &Gpu, device: Device, dim: usize) -> Result<Tensor>;
}

impl<O: Row> Gathered for DeviceBuffer<O> {
    fn give_to(&self, gpu: &Gpu) {
        DeviceBuffer::give_to(self, gpu);
    }

    fn tensor(&self, gpu: &Gpu, device: Device, dim: usize) -> Result<Tensor> {
        let rows = self.len().checked_div(dim).unwrap_or(0);
        filled_of::<O>(device, &[rows, dim], |out| Ok(out.copy_from(gpu, self.slice())?))
    }
}

/// Rows in f32 that are to be of another type, once torch can do that.
struct Unrounded {
    rows: DeviceBuffer<f32>,
    kind: Kind,
}

impl Gathered for Unrounded {
    fn give_to(&self, gpu: &Gpu) {
        self.rows.give_to(gpu);
    }

    fn tensor(&self, gpu: &Gpu, device: Device, dim: usize) -> Result<Tensor> {
        Ok(Gathered::tensor(&self.rows, gpu, device, dim)?.f_to_kind(self.kind)?)
    }
}

/// [`DeviceRows`] of any types of values.
trait AnyRows: Send + Sync {
    fn tensor(&self, gpu: &Gpu, device: Device, vertices: DeviceSlice<'_, u32>, input: &Input) -> Result<Tensor>;
    fn ahead(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>, input: &Input) -> Result<Box<dyn Gathered>>;
    fn hits(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>) -> Result<Option<DeviceHits>>;
}

/// Rows that are stored as `T` and wanted as `O`.
struct DeviceRows<'a, T: DeviceValue, O> {
    table: DeviceTable<'a, T>,
    cache: Option<DeviceCache<'a, T>>,
    made: PhantomData<O>,
}

impl<T: DeviceValue, O: Row> DeviceRows<'_, T, O> {
    fn gather<P: Row>(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>, out: &mut DeviceSliceMut<'_, P>) -> Result<()> {
        let DeviceTable { values, scales, dim } = self.table;
        match &self.cache {
            Some(cache) => cache.gather(gpu, &self.table, vertices, out)?,
            None => gather_on_device(gpu, values, scales, vertices, dim, out)?,
        }
        Ok(())
    }

    /// The rows, changed by `input`.
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
    fn tensor(&self, gpu: &Gpu, device: Device, vertices: DeviceSlice<'_, u32>, input: &Input) -> Result<Tensor> {
        let shape = [vertices.len(), self.table.dim];
        if !input.is_plain() {
            let rows = filled_of::<f32>(device, &shape, |out| self.changed(gpu, vertices, input, out))?;
            return Ok(rows.f_to_kind(O::KIND)?);
        }
        filled_of::<O>(device, &shape, |out| self.gather(gpu, vertices, out))
    }

    fn ahead(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>, input: &Input) -> Result<Box<dyn Gathered>> {
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
}

/// The feature rows of a graph, for one rank.
pub struct FeatureSource<'a> {
    table: &'a FeatureTable,
    place: Place,
    rows: Option<Box<dyn AnyRows + 'a>>,
    simulated: Option<SimulatedCache>,
    /// The stream on which rows come ahead of time that the host gathers.
    side: OnceLock<Gpu>,
}

impl<'a> FeatureSource<'a> {
    /// The rows of `table`, for a rank at `place`, gathered by the host.
    pub fn new(table: &'a FeatureTable, place: &Place) -> Self {
        Self { table, place: place.clone(), rows: None, simulated: None, side: OnceLock::new() }
    }

    /// The rows of `table`, which `pinned` is, for `rank` at `place`, a GPU.
    ///
    /// # Errors
    /// [`Error::Gpu`] where the GPU has not the memory.
    pub fn pinned(table: &'a FeatureTable, place: &Place, pinned: &'a PinnedRows<'_>, rank: usize) -> Result<Self> {
        let rows = place.gpu().map(|gpu| pinned.0.rows(rank, gpu, place.row_kind())).transpose()?;
        Ok(Self { table, place: place.clone(), rows, simulated: None, side: OnceLock::new() })
    }

    /// The same, where loads are counted by `simulated`, if the host gathers.
    pub fn with_count(self, simulated: Option<SimulatedCache>) -> Self {
        Self { simulated, ..self }
    }

    /// Place at which the rank computes.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Table that stores them.
    pub fn table(&self) -> &'a FeatureTable {
        self.table
    }

    /// Whether operators can read them where they are stored.
    pub fn is_read_in_place(&self) -> bool {
        matches!(self.place, Place::Host(_))
    }

    /// The GPU that gathers rows itself ([`FeatureSource::rows_on_gpu`]), if one does.
    pub fn gathering(&self) -> Option<&Gpu> {
        self.place.gpu().filter(|_| self.rows.is_some())
    }

    /// Rows of `vertices`, which are on the GPU, changed by `input`, gathered on the stream of `gpu`, which is that of torch. The
    /// host does not wait.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) where the host has to gather, errors of the GPU.
    pub fn rows_on_gpu(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>, input: &Input) -> Result<Tensor> {
        self.on_gpu()?.tensor(gpu, self.place.device(), vertices, input)
    }

    /// The same on any stream, in memory of that stream.
    ///
    /// # Errors
    /// As [`FeatureSource::rows_on_gpu`].
    pub fn rows_ahead(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>, input: &Input) -> Result<Box<dyn Gathered>> {
        self.on_gpu()?.ahead(gpu, vertices, input)
    }

    fn on_gpu(&self) -> Result<&(dyn AnyRows + 'a)> {
        let unreached = || Error::Option("feature rows that GPUs do not reach are gathered by the host".into());
        self.rows.as_deref().ok_or_else(unreached)
    }

    /// How many of the rows of `vertices` would be in caches, where that is counted on the host.
    pub fn count(&self, vertices: &[u32]) -> CacheHits {
        self.simulated.as_ref().map_or_else(CacheHits::default, |simulated| simulated.hits(vertices))
    }

    /// How many of the rows of `vertices`, which are on the GPU, are in caches, counted on the stream of `gpu`; `None` without any.
    ///
    /// # Errors
    /// Errors of the GPU.
    pub fn hits(&self, gpu: &Gpu, vertices: DeviceSlice<'_, u32>) -> Result<Option<DeviceHits>> {
        self.rows.as_ref().map_or(Ok(None), |rows| rows.hits(gpu, vertices))
    }

    /// Rows of `vertices`, `[vertices, width]`, changed by `input`, of the type of the place's rows. On the host they have room
    /// for `room` rows behind them ([`Finish::room`](crate::operator::Finish)).
    ///
    /// # Errors
    /// [`Error::Kernel`] if the table has not all vertices, errors of the GPU.
    pub fn rows(&self, vertices: &[u32], input: &Input, room: usize) -> Result<Tensor> {
        if let Some(gpu) = self.gathering() {
            return self.rows_on_gpu(gpu, gpu.upload(vertices)?.slice(), input);
        }
        self.place.bring(&self.on_host(vertices, input, room)?)
    }

    /// The same, gathered by the host and copied on a stream of its own, in memory of that stream; and the stream.
    ///
    /// # Errors
    /// As [`FeatureSource::rows`].
    pub fn rows_brought(&self, gpu: &Gpu, vertices: &[u32], input: &Input) -> Result<(Box<dyn Gathered>, Gpu)> {
        let side = match self.side.get() {
            Some(side) => side,
            None => {
                let made = gpu.side_stream()?;
                self.side.get_or_init(|| made)
            }
        };
        let rows = self.on_host(vertices, input, 0)?;
        let brought: Box<dyn Gathered> = with_row!(rows.kind(), |O| Box::new(side.upload(values_of::<O>(&rows)?)?));
        Ok((brought, side.clone()))
    }

    fn on_host(&self, vertices: &[u32], input: &Input, room: usize) -> Result<Tensor> {
        let shape = [vertices.len(), self.table.dim()];
        let rows = filled_with_room(shape, room, |rows| input.read(self.table, vertices, rows))?;
        Ok(rows.f_totype(self.place.row_kind())?)
    }
}
