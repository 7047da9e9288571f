//! Gather from a table of which some rows are in the caches of GPUs.
//!
//! Returns: rows in the caller's buffer, the same as without a cache; and counts by source. Input:
//! the whole table in memory that the GPU reaches, the rows in its own cache, and the caches of
//! other GPUs whose memory it reads ([`Gpu::reaches`]). Idea: a number of 4 bytes on the GPU for
//! each row of the table gives the cache and the slot of the row. One kernel reads the row there,
//! over the bus between GPUs, or in the table, and writes it in the requested type. If several
//! caches hold a row, the own one is used, else the first. Rows of the host that are read next to
//! other streams' work get a launch of their own, on few multiprocessors; rows of caches use all.
//! Cost: the bytes moved, one number per row, and 4 bytes on the GPU for each row of the table;
//! rows move in pieces as in [`gather_on_device`](super::gather_on_device). Hits are counted on the
//! GPU too, in a pass over the numbers: a hundredth of the rows' time.
//!
//! Dropping a cache that reads other GPUs' caches waits for the GPU.
//!
//! Sources: PaGraph (Lin et al., SoCC 2020) caches on every GPU the rows that sampling meets most;
//! Quiver (Tan et al., 2023) distributes them over the GPUs, which read each other's memory. The
//! caller chooses these rows.

use crate::cuda::{
    DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, GpuError, HostBytes, Module, Shape, THREADS,
    arguments,
};
use crate::error::{KernelError, check_len, check_matrix, count_rows};

use super::store::RowStore;
use super::value::{DeviceRow, DeviceValue, values_at_once};

pub(crate) static MODULE: Module =
    Module { name: "gather_cached", source: include_str!("cached.cu") };

/// Most blocks of the counting kernel: the host adds up a number of each.
const COUNTING: usize = 256;
/// The place of a row that is in no cache.
const NOWHERE: u32 = u32::MAX;
/// Rows that a launch writes, as in `cached.cu`.
const CACHED: u32 = 1;
const UNCACHED: u32 = 2;

/// A table of rows that the GPU reaches, as [`gather_on_device`](super::gather_on_device) takes it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTable<'a, T> {
    /// Rows × [`DeviceTable::dim`].
    pub values: DeviceSlice<'a, T>,
    /// Factor of each row.
    pub scales: Option<DeviceSlice<'a, f32>>,
    /// Values of a row.
    pub dim: usize,
}

impl<T: DeviceValue> DeviceTable<'_, T> {
    /// Number of rows.
    pub fn rows(&self) -> Result<usize, KernelError> {
        let rows = count_rows("table to gather from", self.dim, self.values.len())?;
        match self.scales {
            Some(scales) => check_len("scales of the rows", rows, scales.len()).map(|()| rows),
            None => Ok(rows),
        }
    }

    fn check_like(&self, store: &RowStore<'_, T>) -> Result<(), KernelError> {
        check_len("values of a cached row", self.dim, store.dim)?;
        let scaled = [self.scales.is_some(), store.scales.is_some()].map(usize::from);
        check_len("scales of a cached row", scaled[0], scaled[1])
    }
}

/// Counts of rows by the place where they were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheHits {
    /// In the cache of the GPU that read them.
    pub own: usize,
    /// In the caches of others.
    pub peer: usize,
}

/// [`CacheHits`] counted by a GPU, in parts.
#[derive(Debug)]
pub struct DeviceHits(DeviceBuffer<u64>);

impl DeviceHits {
    /// The numbers, to be read with others ([`Gpu::read`]).
    pub fn bytes(&self) -> DeviceSlice<'_, u8> {
        self.0.slice().as_bytes()
    }

    /// The counts in the bytes that were `read`.
    pub fn of(read: &HostBytes) -> CacheHits {
        let add = |all: CacheHits, part: u64| CacheHits {
            own: all.own + (part as u32) as usize,
            peer: all.peer + (part >> 32) as usize,
        };
        read.values::<u64>().into_iter().fold(CacheHits::default(), add)
    }

    /// Gives them to another stream ([`DeviceBuffer::give_to`]).
    pub fn give_to(&self, gpu: &Gpu) {
        self.0.give_to(gpu);
    }
}

/// Places where one GPU finds the rows of a table.
#[derive(Debug)]
pub struct DeviceCache<'a, T: DeviceValue> {
    gpu: Gpu,
    /// The addresses of the stores' values, then of their scales.
    addresses: DeviceBuffer<u64>,
    places: DeviceBuffer<u32>,
    /// Whether every row is in some cache.
    is_complete: bool,
    shift: u32,
    /// The stores, the own one first.
    stores: Vec<&'a RowStore<'a, T>>,
}

/// A table, and positions of rows in it.
pub type RowsAt<'a, T> = (DeviceTable<'a, T>, DeviceBuffer<u32>);

impl<'a, T: DeviceValue> DeviceCache<'a, T> {
    /// A cache of the rows of `table` that `gpu` finds in its `own` store and in the stores of
    /// `peers`, whose memory it reaches.
    ///
    /// # Errors
    /// [`KernelError::RowOutOfRange`] for a row that does not exist, [`KernelError::Length`] for
    /// stores of other rows, or of more than [`DeviceCache::most_rows`]; [`GpuError::OutOfMemory`].
    pub fn new(
        gpu: &Gpu,
        table: &DeviceTable<'_, T>,
        own: &'a RowStore<'a, T>,
        peers: &[&'a RowStore<'a, T>],
    ) -> Result<Self, GpuError> {
        let rows = table.rows()?;
        let stores: Vec<_> = std::iter::once(own).chain(peers.iter().copied()).collect();
        let (shift, most) = (shift_of(stores.len()), Self::most_rows(stores.len()));
        let mut places = vec![NOWHERE; rows];
        for (number, store) in (0u64..).zip(&stores) {
            table.check_like(store)?;
            if store.len() as u64 > most {
                let (what, expected) = ("rows of a cache, at most", most as usize);
                return Err(KernelError::Length { what, expected, got: store.len() }.into());
            }
            for (&v, slot) in store.vertices.iter().zip(0u64..) {
                let place = places
                    .get_mut(v as usize)
                    .ok_or(KernelError::RowOutOfRange { position: v, rows })?;
                if *place == NOWHERE {
                    *place = (number << shift | slot) as u32;
                }
            }
        }
        let values = stores.iter().map(|store| store.values.slice().address());
        let scales = stores
            .iter()
            .map(|store| store.scales.as_ref().map_or(0, |scales| scales.slice().address()));
        let addresses: Vec<u64> = values.chain(scales).collect();
        let is_complete = !places.contains(&NOWHERE);
        let (addresses, places) = (gpu.upload(&addresses)?, gpu.upload(&places)?);
        Ok(Self { gpu: gpu.clone(), addresses, places, is_complete, shift, stores })
    }

    /// The most rows that each of `stores` stores may have: a place holds both store and slot in 32
    /// bits.
    pub fn most_rows(stores: usize) -> u64 {
        // The largest number means no place.
        (1 << shift_of(stores)) - 1
    }

    /// Counts of the places where the rows at `positions` are found. `gpu` is the cache's, with any
    /// stream; the host does not wait.
    pub fn hits(&self, gpu: &Gpu, positions: DeviceSlice<'_, u32>) -> Result<DeviceHits, GpuError> {
        let count = positions.len();
        let shape = Shape::per_item(count.min(COUNTING * THREADS as usize));
        let hits = gpu.alloc(shape.blocks as usize)?;
        let of = arguments![&self.places, self.places.len(), self.shift, positions, count, &hits];
        gpu.launch(MODULE.kernel("cache_hits"), shape, &of)?;
        Ok(DeviceHits(hits))
    }

    /// The own rows as a table, and the positions in it of the rows at `positions`, if it has all
    /// rows. `gpu` is the cache's, with any stream; the host does not wait.
    pub fn own(
        &self,
        gpu: &Gpu,
        positions: DeviceSlice<'_, u32>,
    ) -> Result<Option<RowsAt<'_, T>>, GpuError> {
        let (&[own], true) = (&self.stores[..], self.is_complete) else { return Ok(None) };
        let (count, slots) = (positions.len(), gpu.alloc(positions.len())?);
        let of = arguments![&self.places, self.places.len(), positions, count, &slots];
        gpu.run(MODULE.kernel("cache_slots"), count, &of)?;
        Ok(Some((own.table(), slots)))
    }

    /// Sets row `i` of `out` (`positions.len()` × `dim`) to row `positions[i]` of `table`, the one
    /// that the cache was made from, as values of `O`. A position beyond the table gives a row of
    /// NaNs. `gpu` is the cache's, with any stream.
    pub fn gather<O: DeviceRow>(
        &self,
        gpu: &Gpu,
        table: &DeviceTable<'_, T>,
        positions: DeviceSlice<'_, u32>,
        out: &mut DeviceSliceMut<'_, O>,
    ) -> Result<(), GpuError> {
        let (rows, dim, stores) = (table.rows()?, table.dim, self.stores.len() as u32);
        check_matrix("output of gather", positions.len(), dim, out.len())?;
        check_len("rows of the table that was cached", self.places.len(), rows)?;
        self.stores.iter().try_for_each(|store| table.check_like(store))?;
        // Caches are allocations of their own, aligned for every load.
        let width = values_at_once(
            &[dim],
            &[(table.values.address(), size_of::<T>())],
            &[(out.address(), size_of::<O>())],
        );
        let launch = |shape: Shape, [values, scales]: [u64; 2], wanted: u32| {
            let caches = arguments![&self.addresses, &self.places, rows, stores, self.shift];
            let to =
                arguments![positions, positions.len(), dim as u32, &*out, width as u32, wanted];
            gpu.launch(
                MODULE.kernel(O::of(T::GATHER_CACHED)),
                shape,
                &[&arguments![values, scales][..], &caches, &to].concat(),
            )
        };
        let (shape, address) = (Shape::per_item(out.len() / width), table.values.address());
        let whole = [address, table.scales.map_or(0, |scales| scales.address())];
        if !gpu.is_concurrent_zero_copy(address) {
            return launch(shape, whole, CACHED | UNCACHED);
        }
        launch(shape, [0; 2], CACHED)?;
        if self.is_complete {
            Ok(())
        } else {
            launch(gpu.limit_zero_copy(shape, address), whole, UNCACHED)
        }
    }
}

impl<T: DeviceValue> Drop for DeviceCache<'_, T> {
    fn drop(&mut self) {
        // Stores of other GPUs are freed in the order of their streams, not of this one.
        let _ = self.gpu.synchronise();
    }
}

/// Number of bits of a slot, in a place that also holds the number of one of `stores` stores.
fn shift_of(stores: usize) -> u32 {
    u32::BITS - stores.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::gather_on_device;
    use crate::philox::{Draws, Stream, StreamKey};
    use crate::spmm::tests::{Rounded, bits};

    /// The vertices that store `number` of several holds: some are in two stores, so that one has
    /// to win.
    fn held(number: usize, stores: usize, cached: usize, rows: usize) -> Vec<u32> {
        let all = (0..cached as u32).map(|i| (i * 7 + 3) % rows as u32);
        let own = all.clone().skip(number).step_by(stores);
        let doubled = all.skip((number + 1) % stores).step_by(3 * stores);
        let mut held: Vec<u32> = own.chain(doubled).collect();
        let mut seen = std::collections::HashSet::new();
        held.retain(|&v| seen.insert(v));
        held
    }

    fn hits<T: DeviceValue>(
        gpu: &Gpu,
        cache: &DeviceCache<'_, T>,
        positions: &DeviceBuffer<u32>,
    ) -> CacheHits {
        let hits = cache.hits(gpu, positions.slice()).unwrap();
        let [hits] = gpu.read([hits.bytes()]).unwrap();
        DeviceHits::of(&hits)
    }

    fn check<T: DeviceValue, O: Rounded>(make: impl Fn(f32) -> T, scaled: bool) {
        for (order, (rows, cached, count, dim, stores)) in [
            (50, 20, 70, 8, 1),
            (50, 20, 70, 8, 3),
            (9, 0, 1000, 3, 2),
            (1, 1, 5, 1, 1),
            (20, 7, 0, 4, 4),
            (40, 40, 300, 260, 4),
            (20, 9, 50, 16, 2),
        ]
        .into_iter()
        .enumerate()
        {
            // In emulation each store has a GPU of its own.
            let gpus: Vec<Gpu> =
                (0..stores).map(|number| Gpu::under_test((order + number) as u32 % 4)).collect();
            let gpu = &gpus[0];
            let mut draws = Draws::new(&StreamKey::new(4, Stream::Generate), dim as u32);
            let values: Vec<T> =
                (0..rows * dim).map(|_| make(draws.unit_f32() * 100.0 - 50.0)).collect();
            let scales: Vec<f32> = (0..rows).map(|row| 0.5 + row as f32 / 7.0).collect();
            let positions: Vec<u32> = (0..count).map(|_| draws.below(rows as u32 + 1)).collect();
            let (on_gpu, gpu_scales) = (gpu.upload(&values).unwrap(), gpu.upload(&scales).unwrap());
            let table = DeviceTable {
                values: on_gpu.slice(),
                scales: scaled.then_some(gpu_scales.slice()),
                dim,
            };

            let lists: Vec<Vec<u32>> =
                (0..stores).map(|number| held(number, stores, cached, rows)).collect();
            let row = |v: u32| &values[v as usize * dim..][..dim];
            let scale = |v: u32| scales[v as usize];
            let scale = scaled.then_some(&scale as &dyn Fn(u32) -> f32);
            let each = gpus.iter().zip(&lists);
            let kept: Vec<_> = each
                .map(|(gpu, list)| RowStore::new(gpu, dim, list, row, scale).unwrap())
                .collect();
            let peers: Vec<_> = kept[1..].iter().collect();
            let cache = DeviceCache::new(gpu, &table, &kept[0], &peers).unwrap();
            let own = positions.iter().filter(|v| lists[0].contains(v)).count();
            let anywhere =
                positions.iter().filter(|v| lists.iter().any(|list| list.contains(v))).count();
            let positions = gpu.upload(&positions).unwrap();
            assert_eq!(hits(gpu, &cache, &positions), CacheHits { own, peer: anywhere - own });
            let [mut found, mut expected] = [0, 1].map(|_| gpu.alloc::<O>(count * dim).unwrap());
            gather_on_device(
                gpu,
                table.values,
                table.scales,
                positions.slice(),
                dim,
                &mut expected.slice_mut(),
            )
            .unwrap();
            cache.gather(gpu, &table, positions.slice(), &mut found.slice_mut()).unwrap();
            let [found, expected] =
                [found, expected].map(|values| bits::<O>(&values.to_vec().unwrap()));
            assert_eq!(found, expected, "{rows} rows of {dim} in {stores}");
        }
    }

    #[test]
    fn differential_rows_on_gpus_are_those_of_the_table() {
        check::<_, f32>(|x| x, false);
        check::<_, f32>(f16::from_f32, false);
        check::<_, f32>(bf16::from_f32, false);
        check::<_, f32>(|x| x as i8, true);
        check::<_, bf16>(|x| x, false);
        check::<_, bf16>(bf16::from_f32, false);
        check::<_, f16>(|x| x, false);
        check::<_, f16>(f16::from_f32, false);
        check::<_, f16>(|x| x as i8, true);
    }

    /// Each store holds different values, so a value shows which store was read.
    #[test]
    fn rows_on_gpus_are_read_where_they_are_said_to_be() {
        let gpu = Gpu::under_test(3);
        let [table, own, peer, other] = [1f32, 2.0, 3.0, 4.0].map(|value| vec![value; 4]);
        let all = gpu.upload(&table.repeat(5)).unwrap();
        let table = DeviceTable { values: all.slice(), scales: None, dim: 4 };
        let own = RowStore::new(&gpu, 4, &[2, 4], |_| &own[..], None).unwrap();
        let peer = RowStore::new(&gpu, 4, &[0, 2], |_| &peer[..], None).unwrap();
        let other = RowStore::new(&gpu, 4, &[0, 1, 4], |_| &other[..], None).unwrap();
        let cache = DeviceCache::new(&gpu, &table, &own, &[&peer, &other]).unwrap();
        let vertices = [0u32, 1, 2, 3, 4];
        let positions = gpu.upload(&vertices).unwrap();
        let mut out = gpu.alloc::<f32>(20).unwrap();
        cache.gather(&gpu, &table, positions.slice(), &mut out.slice_mut()).unwrap();
        let firsts: Vec<f32> = out.to_vec().unwrap().into_iter().step_by(4).collect();
        assert_eq!(firsts, [3.0, 4.0, 2.0, 1.0, 2.0]);
        assert_eq!(hits(&gpu, &cache, &positions), CacheHits { own: 2, peer: 2 });
        // Some threads look up several.
        let many: Vec<u32> = vertices.into_iter().cycle().take(10_000).collect();
        let many = gpu.upload(&many).unwrap();
        assert_eq!(hits(&gpu, &cache, &many), CacheHits { own: 4000, peer: 4000 });
    }

    #[test]
    fn places_leave_room_for_the_number_of_the_store() {
        let most = |stores| DeviceCache::<f32>::most_rows(stores);
        assert_eq!((most(1), most(2), most(3)), ((1 << 32) - 1, (1 << 31) - 1, (1 << 30) - 1));
        assert_eq!((most(4), most(5), most(256)), ((1 << 30) - 1, (1 << 29) - 1, (1 << 24) - 1));
    }

    #[test]
    fn rows_that_do_not_fit_a_gpus_table_are_refused() {
        let gpu = Gpu::under_test(0);
        let values = gpu.upload(&[1f32; 8]).unwrap();
        let table = DeviceTable { values: values.slice(), scales: None, dim: 4 };
        let row = [1f32; 4];
        let keep = |list| RowStore::new(&gpu, 4, list, |_| &row[..], None).unwrap();
        let (good, beyond) = (keep(&[1]), keep(&[2]));
        let make = |own, peers: &[_]| DeviceCache::new(&gpu, &table, own, peers).err();
        let out_of_range =
            Some(GpuError::Input(KernelError::RowOutOfRange { position: 2, rows: 2 }));
        assert_eq!(make(&beyond, &[]), out_of_range);
        assert_eq!(make(&good, &[&beyond]), out_of_range);
        let narrow = RowStore::new(&gpu, 2, &[0], |_| &row[..2], None).unwrap();
        assert!(matches!(
            make(&good, &[&narrow]),
            Some(GpuError::Input(KernelError::Length { .. }))
        ));
        let scaled = RowStore::new(&gpu, 4, &[0], |_| &row[..], Some(&|_| 1.0)).unwrap();
        assert!(matches!(make(&scaled, &[]), Some(GpuError::Input(KernelError::Length { .. }))));
        assert!(RowStore::new(&gpu, 3, &[0], |_| &row[..], None).is_err());

        let cache = DeviceCache::new(&gpu, &table, &good, &[]).unwrap();
        let positions = gpu.upload(&[0u32]).unwrap();
        let other = DeviceTable { values: values.slice(), scales: None, dim: 2 };
        let mut out = gpu.alloc::<f32>(4).unwrap();
        assert!(cache.gather(&gpu, &other, positions.slice(), &mut out.slice_mut()).is_err());
        assert!(
            cache
                .gather(
                    &gpu,
                    &table,
                    positions.slice(),
                    &mut gpu.alloc::<f32>(3).unwrap().slice_mut()
                )
                .is_err()
        );
    }

    #[test]
    fn gpus_reach_each_other_where_they_can() {
        let [one, other] = [0, 1].map(Gpu::under_test);
        assert_eq!((one.reaches(&one), one.reaches(&other)), (Ok(true), Ok(true)));
    }
}
