//! Memory of a GPU: [`DeviceBuffer`] owns it, [`DeviceSlice`] and [`DeviceSliceMut`] borrow it.
//!
//! Unsafe code of this file: making slices of memory that others own, such as torch.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::{Mutex, OnceLock, PoisonError};

use bytemuck::Pod;

use super::{Gpu, GpuError};

/// `len` values on a GPU.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    gpu: Gpu,
    given_to: OnceLock<Gpu>,
    address: u64,
    bytes: usize,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Room for `len` values, which are anything at first.
    pub(super) fn new(gpu: &Gpu, len: usize) -> Result<Self, GpuError> {
        // A multiple of what one load takes, and never nothing.
        let bytes = (len * size_of::<T>()).next_multiple_of(16).max(16);
        let address = gpu.backend().alloc(bytes)?;
        Ok(Self { gpu: gpu.clone(), given_to: OnceLock::new(), address, bytes, len, of: PhantomData })
    }

    /// Gives it to another stream of its GPU, which alone uses it from now on, and in whose order it is freed. What its
    /// first stream was told to do with it is done by then, or that of `gpu` waits for it ([`Gpu::wait_for`]). A buffer is given
    /// away once.
    pub fn give_to(&self, gpu: &Gpu) {
        let _ = self.given_to.set(gpu.clone());
    }

    /// Whose it is now.
    fn owner(&self) -> &Gpu {
        self.given_to.get().unwrap_or(&self.gpu)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it.
    pub fn slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { address: self.address, len: self.len, of: PhantomData }
    }

    /// All of it, to be written.
    pub fn slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { address: self.address, len: self.len, of: PhantomData }
    }

    /// The values, on the host. Waits for what was launched before.
    ///
    /// # Errors
    /// What the GPU reports, of earlier launches too.
    pub fn to_vec(&self) -> Result<Vec<T>, GpuError> {
        self.slice().to_vec(self.owner())
    }

    /// Keeps the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        self.given_to.get().unwrap_or(&self.gpu).backend().free(self.address, self.bytes);
    }
}

/// Values on a GPU, borrowed.
#[derive(Debug)]
pub struct DeviceSlice<'a, T> {
    address: u64,
    len: usize,
    of: PhantomData<&'a T>,
}

// Not derived: a slice is copied whatever `T` is.
impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    /// `len` values at `address`.
    ///
    /// # Safety
    /// They are in memory that the GPU reaches, initialised, and not written while the slice lives.
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        Self { address, len, of: PhantomData }
    }

    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The values from `start` to `end`.
    ///
    /// # Errors
    /// [`KernelError::Length`](crate::KernelError::Length) beyond its end.
    pub fn part(self, start: usize, end: usize) -> Result<DeviceSlice<'a, T>, GpuError> {
        if start > end || end > self.len {
            return Err(
                crate::KernelError::Length { what: "part of a device slice", expected: self.len, got: end }.into()
            );
        }
        Ok(Self { address: self.address + (start * size_of::<T>()) as u64, len: end - start, of: PhantomData })
    }

    /// Their bytes.
    pub fn as_bytes(self) -> DeviceSlice<'a, u8> {
        DeviceSlice { address: self.address, len: self.len * size_of::<T>(), of: PhantomData }
    }

    /// The values, on the host. Waits for what was launched before.
    ///
    /// # Errors
    /// What the GPU reports, of earlier launches too.
    pub fn to_vec(&self, gpu: &Gpu) -> Result<Vec<T>, GpuError> {
        self.copied_by(|parts, bytes| gpu.backend().download(parts, bytes))
    }

    /// The values as they are while another stream may be writing them.
    pub(crate) fn peek(&self, gpu: &Gpu) -> Result<Vec<T>, GpuError> {
        self.copied_by(|parts, bytes| gpu.backend().peek(parts, bytes))
    }

    fn copied_by(
        &self,
        copy: impl FnOnce(&[(u64, usize)], &mut [u8]) -> Result<(), GpuError>,
    ) -> Result<Vec<T>, GpuError> {
        let mut values = vec![T::zeroed(); self.len];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        copy(&[(self.address, bytes.len())], bytes)?;
        Ok(values)
    }
}

/// Values on a GPU, borrowed to be written.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    address: u64,
    len: usize,
    of: PhantomData<&'a mut T>,
}

impl<'a, T: Pod> DeviceSliceMut<'a, T> {
    /// `len` values at `address`.
    ///
    /// # Safety
    /// They are in memory that the GPU reaches, and nobody else reads or writes them while the slice lives.
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        Self { address, len, of: PhantomData }
    }

    /// Where it starts.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same, for a shorter time.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { address: self.address, len: self.len, of: PhantomData }
    }

    /// The values from `start` to `end`.
    ///
    /// # Errors
    /// [`KernelError::Length`](crate::KernelError::Length) beyond its end.
    pub fn part(self, start: usize, end: usize) -> Result<DeviceSliceMut<'a, T>, GpuError> {
        let DeviceSlice { address, len, .. } = self.as_slice().part(start, end)?;
        Ok(DeviceSliceMut { address, len, of: PhantomData })
    }

    /// The first `mid` values, and the others.
    ///
    /// # Errors
    /// [`KernelError::Length`](crate::KernelError::Length) if there are fewer.
    pub fn split_at(self, mid: usize) -> Result<(DeviceSliceMut<'a, T>, DeviceSliceMut<'a, T>), GpuError> {
        let (address, len) = (self.address, self.len);
        let DeviceSliceMut { address: first, len: mid, .. } = self.part(0, mid)?;
        let behind = address + (mid * size_of::<T>()) as u64;
        let part = |address, len| DeviceSliceMut { address, len, of: PhantomData };
        Ok((part(first, mid), part(behind, len - mid)))
    }

    /// To be read only.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { address: self.address, len: self.len, of: PhantomData }
    }

    /// Becomes a copy of `values`.
    ///
    /// # Errors
    /// [`KernelError::Length`](crate::KernelError::Length) if there are more or fewer; what the GPU reports.
    pub fn upload(&mut self, gpu: &Gpu, values: &[T]) -> Result<(), GpuError> {
        crate::KernelError::check_len("values to upload", self.len, values.len())?;
        gpu.backend().upload(self.address, bytemuck::cast_slice(values))
    }

    /// Becomes a copy of `values`, which are on the same GPU.
    ///
    /// # Errors
    /// [`KernelError::Length`](crate::KernelError::Length) if there are more or fewer; what the GPU reports.
    pub fn copy_from(&mut self, gpu: &Gpu, values: DeviceSlice<'_, T>) -> Result<(), GpuError> {
        crate::KernelError::check_len("values to copy", self.len, values.len())?;
        gpu.backend().copy(values.address, self.address, self.len * size_of::<T>())
    }

    /// Becomes, on the stream of `gpu`, a copy of `values` of `source`, perhaps another GPU: as what was launched there until now makes
    /// them. What is launched there later may write them.
    ///
    /// # Errors
    /// [`KernelError::Length`](crate::KernelError::Length) if there are more or fewer; what the GPUs report.
    pub fn copy_from_other(&mut self, gpu: &Gpu, source: &Gpu, values: DeviceSlice<'_, T>) -> Result<(), GpuError> {
        crate::KernelError::check_len("values to copy", self.len, values.len())?;
        gpu.wait_for(source)?;
        self.copy_across(gpu, source, values.address)?;
        source.wait_for(gpu)
    }

    /// Their bytes.
    pub fn into_bytes(self) -> DeviceSliceMut<'a, u8> {
        DeviceSliceMut { address: self.address, len: self.len * size_of::<T>(), of: PhantomData }
    }

    /// Becomes a copy of as many values at `address` of `source`, perhaps another GPU. The caller sees to it that they are there,
    /// and stay until the copy has ended.
    pub(crate) fn copy_across(&mut self, gpu: &Gpu, source: &Gpu, address: u64) -> Result<(), GpuError> {
        gpu.backend().copy_across(address, source.backend(), self.address, self.len * size_of::<T>())
    }

    /// All bytes become zero.
    ///
    /// # Errors
    /// What the GPU reports.
    pub fn zero(&mut self, gpu: &Gpu) -> Result<(), GpuError> {
        gpu.backend().zero(self.address, self.len * size_of::<T>())
    }
}

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
    pub(super) fn new(gpu: &Gpu, values: &'a [T]) -> Result<Self, GpuError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_without_the_room_says_so_and_goes_on() {
        let gpu = Gpu::under_test(0);
        let kept = gpu.upload(&[1u32, 2, 3]).unwrap();
        let asked = gpu.alloc::<u8>(1 << 50);
        assert!(matches!(asked, Err(GpuError::OutOfMemory { needed_mib: 0x4000_0000, .. })), "{asked:?}");
        assert_eq!(kept.to_vec().unwrap(), [1, 2, 3]);
        assert_eq!(gpu.zeros::<u32>(2).unwrap().to_vec().unwrap(), [0, 0]);
    }

    #[test]
    fn values_of_another_gpu_are_copied() {
        let [gpu, other] = [0, 1].map(Gpu::under_test);
        let values = other.upload(&[1u32, 2, 3]).unwrap();
        let mut here = gpu.zeros::<u32>(5).unwrap();
        let mut part = here.slice_mut().part(1, 4).unwrap();
        let side = gpu.side_stream().unwrap();
        side.wait_for(&gpu).unwrap();
        part.copy_from_other(&side, &other, values.slice()).unwrap();
        gpu.wait_for(&side).unwrap();
        assert!(part.copy_from_other(&gpu, &other, values.slice().part(0, 2).unwrap()).is_err());
        assert_eq!(here.to_vec().unwrap(), [0, 1, 2, 3, 0]);
    }

    #[test]
    fn nothing_is_copied_as_nothing() {
        let gpu = Gpu::under_test(0);
        let mut empty = gpu.upload::<u32>(&[]).unwrap();
        empty.slice_mut().zero(&gpu).unwrap();
        let other = gpu.zeros::<u32>(0).unwrap();
        empty.slice_mut().copy_from(&gpu, other.slice()).unwrap();
        assert_eq!(empty.to_vec().unwrap(), []);
    }
}
