//! Rows of a table in the memory of a GPU, for other GPUs to read ([`DeviceCache`](super::DeviceCache)), of this
//! process and of others on the same host.
//!
//! Returns: rows as they are stored, in the order of the list. Idea: the host copies a part at a time, and waits at the
//! end, so that others may read. For other processes the memory has handles ([`DeviceBuffer::ipc_handle`]). The owner
//! sends them in any way; the others open them, and close them (drop [`RowStore::imported`]) before the owner is told
//! to free the memory ([`RowStore::reclaim`]). Without that the memory stays: it must not be freed while another
//! process has it open. Cost: the bytes of the rows, over the bus.

use bytemuck::{Pod, Zeroable};

use crate::cuda::{DeviceBuffer, Gpu, GpuError, IpcHandle};
use crate::error::KernelError;

use super::value::DeviceValue;

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

/// Handles by which another process opens a [`RowStore`]: its values, and its scales, zero where rows have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Zeroable, Pod)]
#[repr(C)]
pub struct RowHandles([IpcHandle; 2]);

impl<'a, T: DeviceValue> RowStore<'a, T> {
    /// Copies the rows `vertices` of a table of rows of `dim` values to `gpu`, as they are stored. `row` gives a row's values on the
    /// host, `scale` its scale, where rows have one. Waits until they are there.
    ///
    /// # Errors
    /// [`KernelError::Length`] for a row of another width; [`GpuError::OutOfMemory`].
    pub fn new<'r>(
        gpu: &Gpu,
        dim: usize,
        vertices: &'a [u32],
        row: impl Fn(u32) -> &'r [T],
        scale: Option<&dyn Fn(u32) -> f32>,
    ) -> Result<Self, GpuError> {
        let scales = scale.map(|_| gpu.alloc(vertices.len())).transpose()?;
        Self { vertices, values: gpu.alloc(vertices.len() * dim)?, scales, dim }.filled(gpu, row, scale)
    }

    /// The same, which other processes of the host can open by [`RowStore::handles`].
    ///
    /// # Errors
    /// As [`RowStore::new`].
    pub fn exported<'r>(
        gpu: &Gpu,
        dim: usize,
        vertices: &'a [u32],
        row: impl Fn(u32) -> &'r [T],
        scale: Option<&dyn Fn(u32) -> f32>,
    ) -> Result<Self, GpuError> {
        let scales = scale.map(|_| DeviceBuffer::exported(gpu, vertices.len())).transpose()?;
        let values = DeviceBuffer::exported(gpu, vertices.len() * dim)?;
        Self { vertices, values, scales, dim }.filled(gpu, row, scale)
    }

    /// The store that another process of the host has exported: the rows `vertices`, `scaled` or not, for `gpu` to read.
    ///
    /// # Errors
    /// [`KernelError::Length`] if there are more or fewer; errors of the driver, where the GPU does not reach the other.
    pub fn imported(
        gpu: &Gpu,
        (dim, scaled): (usize, bool),
        vertices: &'a [u32],
        handles: &RowHandles,
    ) -> Result<Self, GpuError> {
        let RowHandles([values, scales]) = handles;
        let values = DeviceBuffer::imported(gpu, values, vertices.len() * dim)?;
        let scales = scaled.then(|| DeviceBuffer::imported(gpu, scales, vertices.len())).transpose()?;
        Ok(Self { vertices, values, scales, dim })
    }

    fn filled<'r>(
        mut self,
        gpu: &Gpu,
        row: impl Fn(u32) -> &'r [T],
        scale: Option<&dyn Fn(u32) -> f32>,
    ) -> Result<Self, GpuError> {
        let (vertices, dim) = (self.vertices, self.dim);
        let each = (CHUNK_BYTES / size_of::<T>() / dim.max(1)).max(1);
        let (mut chunk, mut start) = (Vec::with_capacity(each.min(vertices.len()) * dim), 0);
        for vertices in vertices.chunks(each) {
            chunk.clear();
            for &v in vertices {
                let row = row(v);
                KernelError::check_len("a row to cache", dim, row.len())?;
                chunk.extend_from_slice(row);
            }
            self.values.slice_mut().part(start, start + chunk.len())?.upload(gpu, &chunk)?;
            start += chunk.len();
        }
        if let (Some(scales), Some(scale)) = (&mut self.scales, scale) {
            let of_rows: Vec<f32> = vertices.iter().map(|&v| scale(v)).collect();
            scales.slice_mut().upload(gpu, &of_rows)?;
        }
        gpu.synchronise()?;
        Ok(self)
    }

    /// Handles by which other processes open an [`exported`](RowStore::exported) store. The memory stays until
    /// [`RowStore::reclaim`].
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn handles(&self) -> Result<RowHandles, GpuError> {
        let scales = self.scales.as_ref().map(DeviceBuffer::ipc_handle).transpose()?;
        Ok(RowHandles([self.values.ipc_handle()?, scales.unwrap_or(IpcHandle::zeroed())]))
    }

    /// No other process has it open, or will: it is freed when it is dropped.
    pub fn reclaim(&self) {
        self.values.reclaim();
        self.scales.iter().for_each(DeviceBuffer::reclaim);
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
