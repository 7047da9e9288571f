//! Memory of a GPU: [`DeviceBuffer`] owns it, [`DeviceSlice`] and [`DeviceSliceMut`] borrow it.
//! [`MappedHost`] is the host's.
//!
//! Unsafe code of this file: making slices of memory that others own, such as torch.
#![allow(unsafe_code)]

mod mapped;
#[cfg(test)]
mod tests;

use crate::error::check_len;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::Pod;

use super::{Gpu, GpuError};

pub use mapped::MappedHost;

/// Origin of memory, which decides how it is given back.
#[derive(Debug)]
enum Origin {
    /// In the order of a stream.
    Pool,
    /// Memory that other processes can open; true once they may have.
    Exported(AtomicBool),
    /// Memory of another process.
    Imported,
}

/// Handle by which another process of the same host opens a buffer ([`DeviceBuffer::imported`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
pub struct IpcHandle {
    of_driver: [u8; 64],
    bytes: u64,
}

/// `len` values on a GPU.
///
/// # Errors
/// Each method: [`KernelError::Length`](crate::KernelError::Length) for a part that there is not;
/// errors of the GPU, of earlier launches too.
#[derive(Debug)]
pub struct DeviceBuffer<T> {
    gpu: Gpu,
    given_to: OnceLock<Gpu>,
    address: u64,
    bytes: usize,
    origin: Origin,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Allocates `len` values with unspecified contents.
    pub(super) fn new(gpu: &Gpu, len: usize) -> Result<Self, GpuError> {
        Ok(Self::at(gpu, gpu.backend().alloc(Self::bytes_of(len))?, len, Origin::Pool))
    }

    fn at(gpu: &Gpu, address: u64, len: usize, origin: Origin) -> Self {
        let (gpu, bytes) = (gpu.clone(), Self::bytes_of(len));
        Self { gpu, given_to: OnceLock::new(), address, bytes, origin, len, of: PhantomData }
    }

    /// Like [`Gpu::alloc`], for memory that other processes of the host can open
    /// ([`DeviceBuffer::ipc_handle`]).
    pub fn exported(gpu: &Gpu, len: usize) -> Result<Self, GpuError> {
        let address = gpu.backend().alloc_for_others(Self::bytes_of(len))?;
        Ok(Self::at(gpu, address, len, Origin::Exported(AtomicBool::new(false))))
    }

    /// Opens the `len` values of another process of the same host, which must not be written. They
    /// have the contents that the exporter had written when it last waited for its GPU.
    ///
    /// # Errors
    /// [`KernelError::Length`](crate::KernelError::Length) if there are not as many; errors of the
    /// driver if the GPU does not reach the other, or the memory is this process's own.
    pub fn imported(gpu: &Gpu, handle: &IpcHandle, len: usize) -> Result<Self, GpuError> {
        let (bytes, exported) = (Self::bytes_of(len), handle.bytes as usize);
        check_len("bytes of another process", bytes, exported)?;
        Ok(Self::at(gpu, gpu.backend().import(handle.of_driver)?, len, Origin::Imported))
    }

    /// Handle by which other processes open an exported buffer. Once it was requested, the memory
    /// stays until the process ends, unless the other processes are said to have closed it
    /// ([`DeviceBuffer::reclaim`]): it must not be freed before.
    ///
    /// # Errors
    /// Errors of the driver; it refuses a buffer that is not exported.
    pub fn ipc_handle(&self) -> Result<IpcHandle, GpuError> {
        let handle = IpcHandle {
            of_driver: self.gpu.backend().export(self.address)?,
            bytes: self.bytes as u64,
        };
        if let Origin::Exported(shown) = &self.origin {
            shown.store(true, Ordering::Relaxed);
        }
        Ok(handle)
    }

    /// Declares that no other process has the buffer open, or will open it.
    pub fn reclaim(&self) {
        if let Origin::Exported(shown) = &self.origin {
            shown.store(false, Ordering::Relaxed);
        }
    }

    /// Bytes of an allocation: a multiple of the widest load, and never zero.
    fn bytes_of(len: usize) -> usize {
        (len * size_of::<T>()).next_multiple_of(16).max(16)
    }

    /// Gives the buffer to another stream of its GPU; only that stream uses it from now on, and it
    /// is freed in its order. The work of the first stream on it is done by then, or the stream of
    /// `gpu` waits for it ([`Gpu::wait_for`]). A buffer is given away at most once.
    pub fn give_to(&self, gpu: &Gpu) {
        let _ = self.given_to.set(gpu.clone());
    }

    /// The GPU that owns it now.
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

    /// Copies the values to the host. Waits for everything launched before.
    pub fn to_vec(&self) -> Result<Vec<T>, GpuError> {
        self.first_to_vec(self.len)
    }

    /// Copies the first `len` values to the host. Waits for everything launched before.
    pub fn first_to_vec(&self, len: usize) -> Result<Vec<T>, GpuError> {
        self.slice().part(0, len)?.to_vec(self.owner())
    }

    /// Keeps the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        let gpu = self.given_to.get().unwrap_or(&self.gpu);
        match &self.origin {
            Origin::Pool => gpu.backend().free(self.address, self.bytes),
            // With its context, whose end would free it.
            Origin::Exported(shown) if shown.load(Ordering::Relaxed) => {
                std::mem::forget(gpu.clone())
            }
            Origin::Exported(_) => gpu.backend().free_for_others(self.address, self.bytes),
            Origin::Imported => gpu.backend().close(self.address),
        }
    }
}

/// Values on a GPU, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a, T> {
    address: u64,
    len: usize,
    of: PhantomData<&'a T>,
}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    /// `len` values at `address`.
    ///
    /// # Safety
    /// They are in memory that the GPU reaches, initialised, and not written while the slice lives.
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        Self { address, len, of: PhantomData }
    }

    /// Address of its first value.
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
    pub fn part(self, start: usize, end: usize) -> Result<DeviceSlice<'a, T>, GpuError> {
        if start > end || end > self.len {
            return Err(crate::KernelError::Length {
                what: "part of a device slice",
                expected: self.len,
                got: end,
            }
            .into());
        }
        Ok(Self {
            address: self.address + (start * size_of::<T>()) as u64,
            len: end - start,
            of: PhantomData,
        })
    }

    /// Their bytes.
    pub fn as_bytes(self) -> DeviceSlice<'a, u8> {
        DeviceSlice { address: self.address, len: self.len * size_of::<T>(), of: PhantomData }
    }

    /// Copies the values to the host. Waits for everything launched before.
    pub fn to_vec(&self, gpu: &Gpu) -> Result<Vec<T>, GpuError> {
        let mut values = vec![T::zeroed(); self.len];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        gpu.backend().download(&[(self.address, bytes.len())], bytes)?;
        Ok(values)
    }
}

/// Values on a GPU, borrowed to be written.
///
/// # Errors
/// Each method: [`KernelError::Length`](crate::KernelError::Length) for a part that there is not,
/// or other numbers of values on both sides; errors of the GPUs.
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
    /// They are in memory that the GPU reaches, and nobody else reads or writes them while the
    /// slice lives.
    pub unsafe fn from_raw(address: u64, len: usize) -> Self {
        Self { address, len, of: PhantomData }
    }

    /// Address of its first value.
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

    /// Borrows the slice for a shorter time.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { address: self.address, len: self.len, of: PhantomData }
    }

    /// The values from `start` to `end`.
    pub fn part(self, start: usize, end: usize) -> Result<DeviceSliceMut<'a, T>, GpuError> {
        let DeviceSlice { address, len, .. } = self.as_slice().part(start, end)?;
        Ok(DeviceSliceMut { address, len, of: PhantomData })
    }

    /// The first `mid` values, and the others.
    pub fn split_at(
        self,
        mid: usize,
    ) -> Result<(DeviceSliceMut<'a, T>, DeviceSliceMut<'a, T>), GpuError> {
        let (address, len) = (self.address, self.len);
        let DeviceSliceMut { address: first, len: mid, .. } = self.part(0, mid)?;
        let behind = address + (mid * size_of::<T>()) as u64;
        let part = |address, len| DeviceSliceMut { address, len, of: PhantomData };
        Ok((part(first, mid), part(behind, len - mid)))
    }

    /// Borrows the slice for reading only.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { address: self.address, len: self.len, of: PhantomData }
    }

    /// Overwrites the slice with `values`.
    pub fn upload(&mut self, gpu: &Gpu, values: &[T]) -> Result<(), GpuError> {
        check_len("values to upload", self.len, values.len())?;
        gpu.backend().upload(self.address, bytemuck::cast_slice(values))
    }

    /// Overwrites the slice with `values`, which are on the same GPU.
    pub fn copy_from(&mut self, gpu: &Gpu, values: DeviceSlice<'_, T>) -> Result<(), GpuError> {
        check_len("values to copy", self.len, values.len())?;
        gpu.backend().copy(values.address, self.address, self.len * size_of::<T>())
    }

    /// Overwrites the slice, on the stream of `gpu`, with `values` of `source`, perhaps another
    /// GPU, after all earlier launches there. Later launches there may write them.
    pub fn copy_from_other(
        &mut self,
        gpu: &Gpu,
        source: &Gpu,
        values: DeviceSlice<'_, T>,
    ) -> Result<(), GpuError> {
        check_len("values to copy", self.len, values.len())?;
        gpu.wait_for(source)?;
        self.copy_across(gpu, source, values.address)?;
        source.wait_for(gpu)
    }

    /// Their bytes.
    pub fn into_bytes(self) -> DeviceSliceMut<'a, u8> {
        DeviceSliceMut { address: self.address, len: self.len * size_of::<T>(), of: PhantomData }
    }

    /// Overwrites the slice with as many values at `address` of `source`, perhaps another GPU. The
    /// caller ensures that they exist until the copy has ended.
    pub(crate) fn copy_across(
        &mut self,
        gpu: &Gpu,
        source: &Gpu,
        address: u64,
    ) -> Result<(), GpuError> {
        gpu.backend().copy_across(
            address,
            source.backend(),
            self.address,
            self.len * size_of::<T>(),
        )
    }

    /// Sets all bytes to zero.
    pub fn zero(&mut self, gpu: &Gpu) -> Result<(), GpuError> {
        gpu.backend().zero(self.address, self.len * size_of::<T>())
    }
}
