//! Memory of the host that GPUs read.

use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use memmap2::MmapMut;
use rayon::prelude::*;

use super::super::{Gpu, GpuError};
use super::DeviceSlice;
use crate::error::KernelError;

/// Host memory that a GPU reads in place.
#[derive(Debug)]
pub struct MappedHost<'a, T> {
    gpu: Gpu,
    /// The other GPUs that read it.
    readers: Mutex<Vec<Gpu>>,
    host: usize,
    address: u64,
    len: usize,
    /// The copy that is read, if there is one; freed after it was unmapped.
    copy: Option<MmapMut>,
    of: PhantomData<&'a T>,
}

impl<'a, T: Pod> MappedHost<'a, T> {
    pub(in super::super) fn new(gpu: &Gpu, values: &'a [T]) -> Result<Self, GpuError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let address = gpu.backend().map_host(bytes)?;
        Ok(Self::at(gpu, bytes.as_ptr() as usize, address, values.len(), None))
    }

    pub(in super::super) fn of_copy(gpu: &Gpu, values: &[T]) -> Result<Self, GpuError> {
        let copy = host_copy(bytemuck::cast_slice(values))?;
        let address = gpu.backend().map_host(&copy[..size_of_val(values)])?;
        Ok(Self::at(gpu, copy.as_ptr() as usize, address, values.len(), Some(copy)))
    }

    fn at(gpu: &Gpu, host: usize, address: u64, len: usize, copy: Option<MmapMut>) -> Self {
        let (gpu, readers, of) = (gpu.clone(), Mutex::default(), PhantomData);
        Self { gpu, readers, host, address, len, copy, of }
    }

    /// Bytes of the copy that is read; 0 if there is none.
    pub fn copied_bytes(&self) -> u64 {
        self.copy.as_ref().map_or(0, |_| (self.len * size_of::<T>()) as u64)
    }

    /// The values, as the GPU sees them.
    pub fn slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { address: self.address, len: self.len, of: PhantomData }
    }

    /// The values, as another GPU sees them: memory is pinned once for all.
    pub fn seen_by(&self, gpu: &Gpu) -> Result<DeviceSlice<'_, T>, GpuError> {
        let address = if self.len == 0 { 0 } else { gpu.backend().host_address(self.host)? };
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if ![&self.gpu].into_iter().chain(readers.iter()).any(|reader| reader.is_same_device(gpu)) {
            readers.push(gpu.clone());
        }
        Ok(DeviceSlice { address, len: self.len, of: PhantomData })
    }

    /// Like [`MappedHost::seen_by`], for `part`, values of any type within this memory.
    pub fn part_seen_by<U: Pod>(
        &self,
        gpu: &Gpu,
        part: &[U],
    ) -> Result<DeviceSlice<'_, U>, GpuError> {
        let (bytes, len) = (size_of::<T>() * self.len, part.len());
        let start = (part.as_ptr() as usize).wrapping_sub(self.host);
        if start.checked_add(size_of_val(part)).is_none_or(|end| end > bytes) {
            let (what, got) = ("bytes of mapped memory", start.saturating_add(size_of_val(part)));
            return Err(KernelError::Length { what, expected: bytes, got }.into());
        }
        Ok(DeviceSlice { address: self.seen_by(gpu)?.address + start as u64, len, of: PhantomData })
    }
}

impl<T> Drop for MappedHost<'_, T> {
    /// Waits for all readers, on any GPU.
    fn drop(&mut self) {
        for reader in self.readers.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let _ = reader.backend().synchronise_all();
        }
        self.gpu.backend().unmap_host(self.host, self.len * size_of::<T>());
    }
}

/// A copy of bytes, by all threads, in memory of its own, on huge pages where the system has them:
/// random reads over the bus then wait less for address translation.
fn host_copy(bytes: &[u8]) -> Result<MmapMut, GpuError> {
    const AT_ONCE: usize = 16 << 20;
    let none = |error: std::io::Error| GpuError::Call { call: "mmap", reason: error.to_string() };
    let mut copy = MmapMut::map_anon(bytes.len().max(1)).map_err(none)?;
    // Without huge pages small ones will do.
    #[cfg(target_os = "linux")]
    let _ = copy.advise(memmap2::Advice::HugePage);
    copy.par_chunks_mut(AT_ONCE)
        .zip(bytes.par_chunks(AT_ONCE))
        .for_each(|(to, from)| to[..from.len()].copy_from_slice(from));
    Ok(copy)
}
