//! Rows of a table in the memory of a GPU, for other GPUs to read
//! ([`DeviceCache`](super::DeviceCache)), of this process and of others on the same host.
//!
//! Returns: rows as they are stored, in the order of the list. Idea: the host copies a part at a
//! time, and waits at the end, so that others may read. For other processes the memory has handles
//! ([`DeviceBuffer::ipc_handle`]). The owner sends them in any way; the others open them, and close
//! them (drop [`RowStore::imported`]) before the owner calls [`RowStore::reclaim`] to free the
//! memory. Without that the memory stays: it must not be freed while another process has it open.
//! Cost: the bytes of the rows, over the bus.

use bytemuck::{Pod, Zeroable};

use super::cached::DeviceTable;
use super::value::DeviceValue;
use crate::cuda::{DeviceBuffer, Gpu, GpuError, IpcHandle};

/// Bytes of rows that are copied to the GPU at a time.
const CHUNK_BYTES: usize = 64 << 20;

/// Copies of some rows of a table in the memory of one GPU.
#[derive(Debug)]
pub struct RowStore<'a, T: DeviceValue> {
    /// The row of each slot.
    pub(super) vertices: &'a [u32],
    pub(super) values: DeviceBuffer<T>,
    pub(super) scales: Option<DeviceBuffer<f32>>,
    pub(super) dim: usize,
}

/// Handles by which another process opens a [`RowStore`]: its values, and its scales, zero where
/// rows have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable, Pod)]
#[repr(C)]
pub struct RowHandles([IpcHandle; 2]);

impl<'a, T: DeviceValue> RowStore<'a, T> {
    /// Allocates memory of `gpu` for the rows `vertices`, of `dim` values each, and a scale for
    /// each if they are `scaled`. Other processes of the host can open `exported` memory by
    /// [`RowStore::handles`].
    pub fn alloc(
        gpu: &Gpu,
        dim: usize,
        scaled: bool,
        vertices: &'a [u32],
        exported: bool,
    ) -> Result<Self, GpuError> {
        fn room<T: Pod>(
            gpu: &Gpu,
            len: usize,
            exported: bool,
        ) -> Result<DeviceBuffer<T>, GpuError> {
            if exported { DeviceBuffer::exported(gpu, len) } else { gpu.alloc(len) }
        }
        let scales = scaled.then(|| room(gpu, vertices.len(), exported)).transpose()?;
        Ok(Self { vertices, values: room(gpu, vertices.len() * dim, exported)?, scales, dim })
    }

    /// Opens the store that another process of the host has exported: the rows `vertices`, `scaled`
    /// or not, for `gpu` to read.
    pub fn imported(
        gpu: &Gpu,
        dim: usize,
        scaled: bool,
        vertices: &'a [u32],
        handles: &RowHandles,
    ) -> Result<Self, GpuError> {
        let RowHandles([values, scales]) = handles;
        let values = DeviceBuffer::imported(gpu, values, vertices.len() * dim)?;
        let scales =
            scaled.then(|| DeviceBuffer::imported(gpu, scales, vertices.len())).transpose()?;
        Ok(Self { vertices, values, scales, dim })
    }

    /// Fills the store. `read` writes the rows of some vertices at a time, and their scales, if
    /// rows have them. Waits until they have arrived.
    pub fn filled<E: From<GpuError>>(
        mut self,
        gpu: &Gpu,
        mut read: impl FnMut(&[u32], &mut [T], &mut [f32]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (dim, scaled) = (self.dim, self.scales.is_some());
        let each = (CHUNK_BYTES / size_of::<T>() / dim.max(1)).max(1).min(self.len().max(1));
        let mut values = vec![T::zeroed(); each * dim];
        let mut scales = vec![0.0; if scaled { each } else { 0 }];
        for (start, vertices) in (0..).step_by(each).zip(self.vertices.chunks(each)) {
            let end = start + vertices.len();
            let values = &mut values[..vertices.len() * dim];
            let scales = if scaled { &mut scales[..vertices.len()] } else { &mut [][..] };
            read(vertices, values, scales)?;
            self.values.slice_mut().part(start * dim, end * dim)?.upload(gpu, values)?;
            if let Some(of_rows) = &mut self.scales {
                of_rows.slice_mut().part(start, end)?.upload(gpu, scales)?;
            }
        }
        gpu.synchronise()?;
        Ok(self)
    }

    /// Handles by which other processes open an [exported](RowStore::alloc) store. The memory stays
    /// until [`RowStore::reclaim`].
    pub fn handles(&self) -> Result<RowHandles, GpuError> {
        let scales = self.scales.as_ref().map(DeviceBuffer::ipc_handle).transpose()?;
        Ok(RowHandles([self.values.ipc_handle()?, scales.unwrap_or(IpcHandle::zeroed())]))
    }

    /// Declares that no other process has it open, or will: it is freed when it is dropped.
    pub fn reclaim(&self) {
        self.values.reclaim();
        self.scales.iter().for_each(DeviceBuffer::reclaim);
    }

    /// The rows as a table of their own: row `i` belongs to vertex `i` of the list.
    pub fn table(&self) -> DeviceTable<'_, T> {
        let scales = self.scales.as_ref().map(DeviceBuffer::slice);
        DeviceTable { values: self.values.slice(), scales, dim: self.dim }
    }

    /// The vertices of the rows.
    pub fn vertices(&self) -> &'a [u32] {
        self.vertices
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::check_len;

    impl<'a, T: DeviceValue> RowStore<'a, T> {
        /// Copies the rows `vertices` of a table of rows of `dim` values to `gpu`, as they are
        /// stored. `row` gives a row's values on the host, `scale` its scale, if rows have one.
        /// Waits until they have arrived.
        pub(crate) fn new<'r>(
            gpu: &Gpu,
            dim: usize,
            vertices: &'a [u32],
            row: impl Fn(u32) -> &'r [T],
            scale: Option<&dyn Fn(u32) -> f32>,
        ) -> Result<Self, GpuError> {
            Self::alloc(gpu, dim, scale.is_some(), vertices, false)?.filled(
                gpu,
                |vertices, values, scales| {
                    for (values, &v) in values.chunks_exact_mut(dim.max(1)).zip(vertices) {
                        let row = row(v);
                        check_len("a row to cache", dim, row.len())?;
                        values.copy_from_slice(row);
                    }
                    let of_rows =
                        scale.into_iter().flat_map(|scale| vertices.iter().map(|&v| scale(v)));
                    scales.iter_mut().zip(of_rows).for_each(|(to, scale)| *to = scale);
                    Ok::<(), GpuError>(())
                },
            )
        }
    }
}
