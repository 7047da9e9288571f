//! Gather from a table of which the hottest rows lie on the GPU.
//!
//! Returns: rows in the caller's buffer, the same as without a cache. Input: the whole table in memory that the GPU reaches, a
//! list of the rows to keep on it. Idea: a slot number for each row of the table, 4 bytes each on the GPU, says where a row
//! is; a hit is read there, a miss from the table over the bus, by one kernel. Cost: the bytes moved and one slot a row;
//! rows of a multiple of four values move in pieces of four.
//!
//! Source: PaGraph (Lin et al., SoCC 2020) caches the rows that sampling meets most; which these are is the caller's to say.

use crate::cuda::{Argument, DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, Shape};
use crate::error::KernelError;

use super::DeviceValue;

pub(crate) static MODULE: Module = Module { name: "gather_cached", source: include_str!("cached.cu") };

/// Threads of a block.
const THREADS: u32 = 256;
/// Bytes of rows that are copied to the GPU at a time.
const CHUNK_BYTES: usize = 64 << 20;
/// The slot of a row that has none.
const NO_SLOT: u32 = u32::MAX;

/// A table of rows that the GPU reaches, as [`gather_on_device`](super::gather_on_device) takes it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTable<'a, T> {
    /// Rows × [`DeviceTable::dim`].
    pub values: DeviceSlice<'a, T>,
    /// What each row is to be multiplied by.
    pub scales: Option<DeviceSlice<'a, f32>>,
    /// Values of a row.
    pub dim: usize,
}

impl<T: DeviceValue> DeviceTable<'_, T> {
    /// Number of rows.
    ///
    /// # Errors
    /// [`KernelError::Length`] if the values are no whole rows, or there is not a scale for each.
    pub fn rows(&self) -> Result<usize, KernelError> {
        let rows = self.values.len().checked_div(self.dim).unwrap_or(0);
        KernelError::check_matrix("table to gather from", rows, self.dim, self.values.len())?;
        match self.scales {
            Some(scales) => KernelError::check_len("scales of the rows", rows, scales.len()).map(|()| rows),
            None => Ok(rows),
        }
    }
}

/// The rows of a table that lie on the GPU.
#[derive(Debug)]
pub struct DeviceCache<T: DeviceValue> {
    slots: DeviceBuffer<u32>,
    /// The same on the host.
    has_slot: Vec<bool>,
    values: DeviceBuffer<T>,
    scales: Option<DeviceBuffer<f32>>,
    cached: usize,
}

impl<T: DeviceValue> DeviceCache<T> {
    /// Keeps the rows `vertices` of `table`, as they are stored there. `row` gives a row's values on the host, `scale` its scale.
    ///
    /// # Errors
    /// [`KernelError::RowOutOfRange`] for a row that there is not; [`GpuError::OutOfMemory`].
    pub fn new<'a>(
        gpu: &Gpu,
        table: &DeviceTable<'_, T>,
        vertices: &[u32],
        row: impl Fn(u32) -> &'a [T],
        scale: impl Fn(u32) -> f32,
    ) -> Result<Self, GpuError> {
        let (rows, dim) = (table.rows()?, table.dim);
        let (mut slots, mut has_slot) = (vec![NO_SLOT; rows], vec![false; rows]);
        for (&v, slot) in vertices.iter().zip(0..) {
            let place = slots.get_mut(v as usize).ok_or(KernelError::RowOutOfRange { position: v, rows })?;
            (*place, has_slot[v as usize]) = (slot, true);
        }
        let mut values = gpu.alloc::<T>(vertices.len() * dim)?;
        let each = (CHUNK_BYTES / size_of::<T>() / dim.max(1)).max(1);
        let (mut chunk, mut start) = (Vec::with_capacity(each.min(vertices.len()) * dim), 0);
        for vertices in vertices.chunks(each) {
            chunk.clear();
            for &v in vertices {
                let row = row(v);
                KernelError::check_len("a row to cache", dim, row.len())?;
                chunk.extend_from_slice(row);
            }
            values.slice_mut().part(start, start + chunk.len())?.upload(gpu, &chunk)?;
            start += chunk.len();
        }
        let scales: Option<Vec<f32>> = table.scales.map(|_| vertices.iter().map(|&v| scale(v)).collect());
        let scales = scales.map(|scales| gpu.upload(&scales)).transpose()?;
        Ok(Self { slots: gpu.upload(&slots)?, has_slot, values, scales, cached: vertices.len() })
    }

    /// Rows that are kept.
    pub fn len(&self) -> usize {
        self.cached
    }

    /// Whether none are.
    pub fn is_empty(&self) -> bool {
        self.cached == 0
    }

    /// How many of `vertices` are kept.
    pub fn hits(&self, vertices: &[u32]) -> usize {
        vertices.iter().filter(|&&v| self.has_slot.get(v as usize) == Some(&true)).count()
    }

    /// Row `i` of `out` (`positions.len()` × `dim`) becomes row `positions[i]` of `table`, the one that the cache was made
    /// from, as f32. A position beyond the table gives a row of NaNs.
    ///
    /// # Errors
    /// [`KernelError::Length`] if sizes do not fit, or the table has not the cache's number of rows; what the GPU reports.
    pub fn gather(
        &self,
        gpu: &Gpu,
        table: &DeviceTable<'_, T>,
        positions: DeviceSlice<'_, u32>,
        out: &mut DeviceSliceMut<'_, f32>,
    ) -> Result<(), GpuError> {
        let (rows, dim) = (table.rows()?, table.dim);
        KernelError::check_matrix("output of gather", positions.len(), dim, out.len())?;
        KernelError::check_len("rows of the table that was cached", self.slots.len(), rows)?;
        KernelError::check_matrix("rows of the cache", self.cached, dim, self.values.len())?;
        KernelError::check_len(
            "scales of the cache",
            usize::from(table.scales.is_some()),
            usize::from(self.scales.is_some()),
        )?;
        let pieces = if dim.is_multiple_of(4) { out.len() / 4 } else { out.len() };
        let arguments: [Argument; 11] = [
            table.values.into(),
            (&self.values).into(),
            table.scales.map_or(0, |scales| scales.address()).into(),
            self.scales.as_ref().map_or(0, |scales| scales.slice().address()).into(),
            (&self.slots).into(),
            (rows as u64).into(),
            (self.cached as u64).into(),
            positions.into(),
            (positions.len() as u64).into(),
            (dim as u32).into(),
            (&*out).into(),
        ];
        gpu.launch(Kernel { module: &MODULE, name: T::GATHER_CACHED }, Shape::per_item(pieces, THREADS), &arguments)
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::gather_on_device;
    use crate::philox::{Draws, Stream, StreamKey};

    fn check<T: DeviceValue>(make: impl Fn(f32) -> T, scaled: bool) {
        for (order, (rows, cached, count, dim)) in
            [(50, 20, 70, 8), (9, 0, 1000, 3), (1, 1, 5, 1), (20, 7, 0, 4), (40, 40, 300, 260)].into_iter().enumerate()
        {
            let gpu = Gpu::under_test(order as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(4, Stream::Generate), dim as u32);
            let values: Vec<T> = (0..rows * dim).map(|_| make(draws.unit_f32() * 100.0 - 50.0)).collect();
            let scales: Vec<f32> = (0..rows).map(|row| 0.5 + row as f32 / 7.0).collect();
            let hottest: Vec<u32> = (0..cached as u32).map(|i| (i * 7 + 3) % rows as u32).collect();
            let positions: Vec<u32> = (0..count).map(|_| draws.below(rows as u32 + 1)).collect();
            let on_gpu = [&values].map(|values| gpu.upload(values).unwrap());
            let gpu_scales = gpu.upload(&scales).unwrap();
            let scales_there = scaled.then_some(gpu_scales.slice());
            let table = DeviceTable { values: on_gpu[0].slice(), scales: scales_there, dim };
            let row = |v: u32| &values[v as usize * dim..][..dim];
            let cache = DeviceCache::new(&gpu, &table, &hottest, row, |v| scales[v as usize]).unwrap();
            let expected_hits = positions.iter().filter(|v| hottest.contains(v)).count();
            assert_eq!((cache.hits(&positions), cache.len()), (expected_hits, cached));
            let positions = gpu.upload(&positions).unwrap();
            let [mut found, mut expected] = [0, 1].map(|_| gpu.alloc::<f32>(count * dim).unwrap());
            gather_on_device(&gpu, table.values, table.scales, positions.slice(), dim, &mut expected.slice_mut())
                .unwrap();
            cache.gather(&gpu, &table, positions.slice(), &mut found.slice_mut()).unwrap();
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(found.to_vec().unwrap()), bits(expected.to_vec().unwrap()), "{rows} rows of {dim}");
        }
    }

    #[test]
    fn differential_rows_are_those_of_the_table() {
        check(|x| x, false);
        check(f16::from_f32, false);
        check(bf16::from_f32, false);
        check(|x| x as i8, true);
    }

    /// Values of the table are changed after the cache was made: what is kept is read from the cache, the rest is not.
    #[test]
    fn what_is_kept_is_read_from_the_cache() {
        let gpu = Gpu::under_test(3);
        let [old, new] = [1f32, 2.0].map(|value| vec![value; 12]);
        let mut there = gpu.upload(&old).unwrap();
        let table = DeviceTable { values: there.slice(), scales: None, dim: 4 };
        let cache = DeviceCache::new(&gpu, &table, &[2], |v| &old[v as usize * 4..][..4], |_| 1.0).unwrap();
        there.slice_mut().upload(&gpu, &new).unwrap();
        let table = DeviceTable { values: there.slice(), scales: None, dim: 4 };
        let positions = gpu.upload(&[0u32, 2]).unwrap();
        let mut out = gpu.alloc(8).unwrap();
        cache.gather(&gpu, &table, positions.slice(), &mut out.slice_mut()).unwrap();
        assert_eq!(out.to_vec().unwrap(), [2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn rows_and_tables_that_do_not_fit_are_refused() {
        let gpu = Gpu::under_test(0);
        let values = gpu.upload(&[1f32; 8]).unwrap();
        let table = DeviceTable { values: values.slice(), scales: None, dim: 4 };
        let make = |rows: &[u32]| DeviceCache::new(&gpu, &table, rows, |_| &[1f32; 4][..], |_| 1.0);
        let beyond = make(&[2]).err();
        assert_eq!(beyond, Some(GpuError::Input(KernelError::RowOutOfRange { position: 2, rows: 2 })));
        let (cache, positions) = (make(&[1]).unwrap(), gpu.upload(&[0u32]).unwrap());
        let other = DeviceTable { values: values.slice(), scales: None, dim: 2 };
        let mut out = gpu.alloc(4).unwrap();
        assert!(cache.gather(&gpu, &other, positions.slice(), &mut out.slice_mut()).is_err());
        assert!(cache.gather(&gpu, &table, positions.slice(), &mut gpu.alloc(3).unwrap().slice_mut()).is_err());
    }
}
