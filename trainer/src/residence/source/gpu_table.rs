//! A table of feature rows that GPUs read, and the copies of some rows that they keep.
//!
//! Idea: the table is pinned once for all GPUs, if it is in memory in one piece; otherwise those
//! rows of it that stay in memory. Rows of a file that GPUs keep are read many at a time. Ranks
//! that share a GPU share the rows that they both keep. Ranks that are processes exchange handles
//! of the rows that they keep ([`AnyTable::share`]), and at the end wait until all have closed them
//! ([`AnyTable::part`]). Cost: one number per vertex on each GPU that finds rows in caches. The
//! GPUs fill their caches in parallel.

use std::sync::Arc;
use std::thread;

use gsplit_kernels::{
    Communicator, DeviceCache, DeviceTable, DeviceValue, Gpu, MappedHost, RowHandles, RowStore,
};
use gsplit_store::{Checksum, FeatureDtype, FeatureTable, Reading};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::gpu_rows::{AnyRows, DeviceRows};
use super::tiered::{AnyTiered, ReachedRows, TieredRows};
use crate::operator::with_row;
use crate::residence::cache::{Caches, all_gather_json};
use crate::{Error, Result};

/// A table of rows that the GPUs of a run can read, and the copies of some that they keep, for any
/// type of values.
pub type GpuTable<'a> = Box<dyn AnyTable<'a> + 'a>;

/// Opens `table`. With a `gpu` it is pinned for all GPUs, if it is in memory in one piece;
/// otherwise those of its rows that stay in memory are.
pub fn open_gpu_table<'a>(table: &'a FeatureTable, gpu: Option<&Gpu>) -> Result<GpuTable<'a>> {
    let opened: GpuTable<'a> = match table.dtype() {
        FeatureDtype::F32 => Box::new(TypedTable::<f32>::open(table, gpu)?),
        FeatureDtype::F16 => Box::new(TypedTable::<f16>::open(table, gpu)?),
        FeatureDtype::Bf16 => Box::new(TypedTable::<bf16>::open(table, gpu)?),
        FeatureDtype::I8 => Box::new(TypedTable::<i8>::open(table, gpu)?),
    };
    Ok(opened)
}

/// Message from a process to the others about the rows that it keeps.
#[derive(Serialize, Deserialize)]
struct SharedRows {
    handles: Vec<u8>,
    /// Checksum of the rows' vertices ([`Caches::checksum_of`]).
    checksum: Checksum,
}

/// Methods of a [`GpuTable`].
pub trait AnyTable<'a>: Send + Sync {
    /// Copies the rows of `caches` for each of `ranks` to its GPU. Waits until all are there.
    fn fill(&mut self, caches: &'a Caches, ranks: &[(usize, &Gpu)]) -> Result<()>;

    /// Copies the rows of `caches` for a rank, this process, to its GPU, and opens the rows that it
    /// reads of other ranks of `comm`. Collective.
    fn share(
        &mut self,
        caches: &'a Caches,
        rank: usize,
        gpu: &Gpu,
        comm: &dyn Communicator,
    ) -> Result<()>;

    /// Closes the rows of other processes, and frees this process's once all have closed them.
    /// Otherwise they stay until the process ends. Collective, after [`AnyTable::share`].
    fn part(&mut self, comm: &dyn Communicator) -> Result<()>;

    /// Whether GPUs read all of the host's rows.
    fn is_pinned(&self) -> bool;

    /// Rows for `rank`, in the type `kind`, on its `gpu`; `None` if the host gathers the rows that
    /// no GPU keeps.
    fn rows(&self, rank: usize, gpu: &Gpu, kind: Kind) -> Result<Option<Box<dyn AnyRows + '_>>>;

    /// Rows that `gpu` can read for `rank`, if the host gathers the others.
    fn tiered(&self, rank: usize, gpu: &Gpu) -> Result<Option<Box<dyn AnyTiered + '_>>>;
}

struct TypedTable<'a, T: DeviceValue> {
    table: &'a FeatureTable,
    /// Memory of values and scales, pinned once, and the values in it.
    pinned: Option<(MappedHost<'a, u8>, &'a [T])>,
    /// Rows that stay in memory of a table that is not pinned as a whole, and their vertices.
    kept: Option<(&'a [u32], MappedHost<'a, T>)>,
    caches: Option<&'a Caches>,
    /// Rows that each rank keeps, if this process has or reads them; ranks with the same rows on
    /// one GPU share a store.
    stores: Vec<Option<Arc<RowStore<'a, T>>>>,
}

impl<'a, T: DeviceValue> TypedTable<'a, T> {
    fn open(table: &'a FeatureTable, gpu: Option<&Gpu>) -> Result<Self> {
        let (mut pinned, mut kept) = (None, None);
        match (gpu, table.memory(), table.values::<T>()) {
            (Some(gpu), Some(memory), Some(values)) => {
                pinned = Some((gpu.map_host(memory)?, values))
            }
            (Some(gpu), ..) => {
                if let Some((vertices, values)) = table.kept::<T>() {
                    kept = Some((vertices, gpu.map_host(values)?));
                }
            }
            (None, ..) => {}
        }
        Ok(Self { table, pinned, kept, caches: None, stores: Vec::new() })
    }

    /// Copies the rows that `rank` keeps to `gpu`; with `exported`, other processes can open them.
    fn store(
        &self,
        caches: &'a Caches,
        rank: usize,
        gpu: &Gpu,
        exported: bool,
    ) -> Result<RowStore<'a, T>> {
        let (table, list) = (self.table, caches.of(rank));
        // Rows of a file are read many at a time, without page faults.
        let file = match table.read_by() {
            None if table.is_in_memory() => None,
            None => table.on_disk(&[], None, &Reading::default()).ok(),
            Some(_) => Some(table.clone()),
        };
        let read = |vertices: &[u32], values: &mut [T], scales: &mut [f32]| -> Result<()> {
            let mut write = |at: usize, row: &[u8], scale: f32| {
                bytemuck::cast_slice_mut::<T, u8>(values)[at * row.len()..][..row.len()]
                    .copy_from_slice(row);
                scales.iter_mut().skip(at).take(1).for_each(|to| *to = scale);
            };
            match &file {
                Some(file) => drop(file.read_rows(vertices, &mut write)?),
                None => (0..).zip(vertices).for_each(|(at, &v)| {
                    write(at, bytemuck::cast_slice(table.row::<T>(v)), table.scale(v));
                }),
            }
            Ok(())
        };
        let (dim, scaled) = self.layout();
        let store = RowStore::alloc(gpu, dim, scaled, list, exported);
        store
            .map_err(Error::from)
            .and_then(|store| store.filled(gpu, read))
            .map_err(|error| error.of_rank(rank))
    }

    /// Width of a row, and whether rows have scales.
    fn layout(&self) -> (usize, bool) {
        (self.table.dim(), self.table.dtype() == FeatureDtype::I8)
    }

    /// Stores in which `rank` finds rows on GPUs, its own first.
    fn found(&self, rank: usize) -> Option<Vec<&Arc<RowStore<'a, T>>>> {
        let store = |rank: usize| self.stores.get(rank).and_then(Option::as_ref);
        let peers = self.caches?.peers(rank).iter().filter_map(|&peer| store(peer));
        Some([store(rank)?].into_iter().chain(peers).collect())
    }
}

impl<'a, T: DeviceValue> AnyTable<'a> for TypedTable<'a, T> {
    fn fill(&mut self, caches: &'a Caches, ranks: &[(usize, &Gpu)]) -> Result<()> {
        let this = &*self;
        let store = |&each: &(usize, &Gpu)| {
            this.store(caches, each.0, each.1, false).map(|store| (each.0, store))
        };
        // The first rank that keeps the same rows on the same GPU.
        let same = |&(rank, gpu): &(usize, &Gpu), &(other, on_gpu): &(usize, &Gpu)| {
            gpu.is_same_device(on_gpu) && caches.of(rank) == caches.of(other)
        };
        let holders: Vec<usize> = ranks
            .iter()
            .map(|each| ranks.iter().find(|other| same(each, other)).unwrap_or(each).0)
            .collect();
        let stores: Vec<Result<_>> = thread::scope(|scope| {
            let store = &store;
            let holding = ranks.iter().zip(&holders).filter(|((rank, _), holder)| rank == *holder);
            let threads: Vec<_> =
                holding.map(|(each, _)| scope.spawn(move || store(each))).collect();
            let died =
                |_| Err(Error::Option("filling a cache panicked, see the line above".into()));
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

    fn share(
        &mut self,
        caches: &'a Caches,
        rank: usize,
        gpu: &Gpu,
        comm: &dyn Communicator,
    ) -> Result<()> {
        let own = self.store(caches, rank, gpu, true)?;
        let handles = bytemuck::bytes_of(&own.handles()?).to_vec();
        let kept =
            all_gather_json(comm, &SharedRows { handles, checksum: caches.checksum_of(rank) })?;
        self.caches = Some(caches);
        self.stores.resize_with(comm.size(), || None);
        self.stores[rank] = Some(Arc::new(own));
        for &peer in caches.peers(rank) {
            let unlike = || {
                let problem = format!("rank {peer} keeps other rows than rank {rank} expects");
                Error::Option(format!(
                    "{problem}: start all with the same options, on the same dataset"
                ))
            };
            let handles = bytemuck::try_pod_read_unaligned::<RowHandles>(&kept[peer].handles)
                .map_err(|_| unlike())?;
            if kept[peer].checksum != caches.checksum_of(peer) {
                return Err(unlike());
            }
            let (dim, scaled) = self.layout();
            let store = RowStore::imported(gpu, dim, scaled, caches.of(peer), &handles);
            self.stores[peer] =
                Some(Arc::new(store.map_err(|error| Error::from(error).of_rank(rank))?));
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

    fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    fn rows(&self, rank: usize, gpu: &Gpu, kind: Kind) -> Result<Option<Box<dyn AnyRows + '_>>> {
        let Some((memory, values)) = &self.pinned else { return Ok(None) };
        let scales =
            self.table.scales().map(|scales| memory.part_seen_by(gpu, scales)).transpose()?;
        let table = DeviceTable {
            values: memory.part_seen_by(gpu, values)?,
            scales,
            dim: self.table.dim(),
        };
        let stores = self.found(rank).unwrap_or_default();
        let stores: Vec<&RowStore<'_, T>> = stores.into_iter().map(Arc::as_ref).collect();
        let cache = stores
            .split_first()
            .map(|(own, peers)| DeviceCache::new(gpu, &table, own, peers))
            .transpose()?;
        Ok(Some(with_row!(kind, |O| Box::new(DeviceRows::<T, O>::new(table, cache)))))
    }

    fn tiered(&self, rank: usize, gpu: &Gpu) -> Result<Option<Box<dyn AnyTiered + '_>>> {
        if self.pinned.is_some() {
            return Ok(None);
        }
        let found = self.found(rank).unwrap_or_default();
        let mut stores: Vec<_> = found.into_iter().cloned().map(ReachedRows::Gpu).collect();
        if let Some((vertices, values)) = &self.kept {
            let scales: Vec<f32> = vertices.iter().map(|&v| self.table.scale(v)).collect();
            let scales = self.layout().1.then(|| gpu.upload(&scales)).transpose()?;
            stores.push(ReachedRows::Pinned { vertices, values: values.seen_by(gpu)?, scales });
        }
        if stores.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(TieredRows::new(self.table.dim(), self.table.num_rows(), stores))))
    }
}
