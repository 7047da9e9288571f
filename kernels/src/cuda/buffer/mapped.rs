//! Memory of the host that GPUs read.

use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;

use super::super::{Gpu, GpuError};
use super::DeviceSlice;

/// Host memory that a GPU reads where it lies.
#[derive(Debug)]
pub struct MappedHost<'a, T> {
    gpu: Gpu,
    /// The other GPUs that read it.
    readers: Mutex<Vec<Gpu>>,
    host: usize,
    address: u64,
    len: usize,
    of: PhantomData<&'a T>,
}

impl<'a, T: Pod> MappedHost<'a, T> {
    pub(in super::super) fn new(gpu: &Gpu, values: &'a [T]) -> Result<Self, GpuError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let address = gpu.backend().map_host(bytes)?;
        let (gpu, host) = (gpu.clone(), bytes.as_ptr() as usize);
        Ok(Self { gpu, readers: Mutex::default(), host, address, len: values.len(), of: PhantomData })
    }

    /// The values, as the GPU sees them.
    pub fn slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { address: self.address, len: self.len, of: PhantomData }
    }

    /// The values, as another GPU sees them: memory is pinned once for all.
    ///
    /// # Errors
    /// What the driver says.
    pub fn seen_by(&self, gpu: &Gpu) -> Result<DeviceSlice<'_, T>, GpuError> {
        let address = if self.len == 0 { 0 } else { gpu.backend().host_address(self.host)? };
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if ![&self.gpu].into_iter().chain(readers.iter()).any(|reader| reader.is_same_device(gpu)) {
            readers.push(gpu.clone());
        }
        Ok(DeviceSlice { address, len: self.len, of: PhantomData })
    }
}

impl<T> Drop for MappedHost<'_, T> {
    /// What reads it, on any GPU, ends first.
    fn drop(&mut self) {
        for reader in self.readers.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let _ = reader.backend().synchronise_all();
        }
        self.gpu.backend().unmap_host(self.host, self.len * size_of::<T>());
    }
}
