//! A table of feature rows that GPUs read, and the copies of some rows that they keep.
//!
//! Idea: the table is pinned once for all GPUs, if it lies in memory in one piece. Ranks that share a GPU share what they both keep.
//! Ranks that are processes tell each other the handles of what they keep ([`PinnedRows::share`]), and at the end wait until all
//! have closed it ([`PinnedRows::part`]).
//! Cost: a number a vertex on each GPU that finds rows in caches. The GPUs fill theirs at the same time.

use std::sync::Arc;
use std::thread;

use gsplit_kernels::{Communicator, DeviceCache, DeviceTable, DeviceValue, Gpu, MappedHost, RowHandles, RowStore};
use gsplit_store::{FeatureDtype, FeatureTable};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::gathered::{AnyRows, DeviceRows};
use crate::operator::with_row;
use crate::residence::cache::{Caches, gathered};
use crate::{Error, Result};

/// A table of rows that the GPUs of a run reach, and the copies of some that they keep.
pub struct PinnedRows<'a>(Box<dyn AnyTable<'a> + 'a>);

impl<'a> PinnedRows<'a> {
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
        let (Some(memory), Some(values)) = (table.memory(), table.values::<T>()) else { return Ok(None) };
        let memory = gpu.map_host(memory)?;
        Ok(Some(Self(Box::new(PinnedTable { table, memory, values, caches: None, stores: Vec::new() }))))
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
    /// Those of the communicator.
    pub fn part(mut self, comm: &dyn Communicator) -> Result<()> {
        self.0.part(comm)
    }

    /// Rows for `rank`, of the type `kind`, on its `gpu`.
    pub(super) fn rows(&self, rank: usize, gpu: &Gpu, kind: Kind) -> Result<Box<dyn AnyRows + '_>> {
        self.0.rows(rank, gpu, kind)
    }
}

/// Message of a process to the others about the rows that it keeps.
#[derive(Serialize, Deserialize)]
struct KeptRows {
    handles: Vec<u8>,
    /// Digest of the rows ([`Caches::digest`]).
    digest: u64,
}

/// Interface of [`PinnedTable`] for any type of values.
trait AnyTable<'a>: Send + Sync {
    fn fill(&mut self, caches: &'a Caches, ranks: &[(usize, &Gpu)]) -> Result<()>;
    fn share(&mut self, caches: &'a Caches, here: (usize, &Gpu), comm: &dyn Communicator) -> Result<()>;
    fn part(&mut self, comm: &dyn Communicator) -> Result<()>;
    /// See [`PinnedRows::rows`].
    fn rows(&self, rank: usize, gpu: &Gpu, kind: Kind) -> Result<Box<dyn AnyRows + '_>>;
}

struct PinnedTable<'a, T: DeviceValue> {
    table: &'a FeatureTable,
    /// Values and scales.
    memory: MappedHost<'a, u8>,
    values: &'a [T],
    caches: Option<&'a Caches>,
    /// Rows that each rank keeps, where this process has or reads them; ranks that share a GPU and keep the same rows share them too.
    stores: Vec<Option<Arc<RowStore<'a, T>>>>,
}

impl<'a, T: DeviceValue> PinnedTable<'a, T> {
    /// Rows that `rank` keeps on `gpu`, perhaps for other processes too.
    fn store(&self, caches: &'a Caches, (rank, gpu): (usize, &Gpu), exported: bool) -> Result<RowStore<'a, T>> {
        let (table, list) = (self.table, caches.of(rank));
        let (row, scale) = (|v: u32| table.row::<T>(v), |v: u32| table.scale(v));
        let scale = table.scales().is_some().then_some(&scale as &dyn Fn(u32) -> f32);
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
        let same = |&(rank, gpu): &(usize, &Gpu), &(other, on_gpu): &(usize, &Gpu)| {
            gpu.is_same_device(on_gpu) && caches.of(rank) == caches.of(other)
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
            let layout = (self.table.dim(), self.table.scales().is_some());
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
        let scales = self.table.scales().map(|scales| self.memory.part_seen_by(gpu, scales)).transpose()?;
        let values = self.memory.part_seen_by(gpu, self.values)?;
        let table = DeviceTable { values, scales, dim: self.table.dim() };
        let store = |rank: usize| self.stores.get(rank).and_then(Option::as_deref);
        let cache = match (store(rank), self.caches) {
            (Some(own), Some(caches)) => {
                let peers: Vec<_> = caches.peers(rank).iter().filter_map(|&peer| store(peer)).collect();
                Some(DeviceCache::new(gpu, &table, own, &peers)?)
            }
            _ => None,
        };
        Ok(with_row!(kind, |O| Box::new(DeviceRows::<T, O>::new(table, cache))))
    }
}
