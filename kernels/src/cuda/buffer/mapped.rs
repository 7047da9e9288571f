//! Memory of the host that GPUs read.
//!
//! Unsafe code of this file: memory of its own, from the system.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
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
    copy: Option<HostCopy>,
    of: PhantomData<&'a T>,
}

impl<'a, T: Pod> MappedHost<'a, T> {
    pub(in super::super) fn new(gpu: &Gpu, values: &'a [T]) -> Result<Self, GpuError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let address = gpu.backend().map_host(bytes)?;
        let (gpu, host) = (gpu.clone(), bytes.as_ptr() as usize);
        Ok(Self { gpu, readers: Mutex::default(), host, address, len: values.len(), copy: None, of: PhantomData })
    }

    pub(in super::super) fn of_copy(gpu: &Gpu, values: &[T]) -> Result<Self, GpuError> {
        let copy = HostCopy::of(bytemuck::cast_slice(values))?;
        let address = gpu.backend().map_host(copy.bytes())?;
        let (gpu, host) = (gpu.clone(), copy.start as usize);
        let copy = Some(copy);
        Ok(Self { gpu, readers: Mutex::default(), host, address, len: values.len(), copy, of: PhantomData })
    }

    /// Bytes of the copy that is read; 0 if there is none.
    pub fn copied_bytes(&self) -> u64 {
        self.copy.as_ref().map_or(0, |copy| copy.len as u64)
    }

    /// The values, as the GPU sees them.
    pub fn slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { address: self.address, len: self.len, of: PhantomData }
    }

    /// The values, as another GPU sees them: memory is pinned once for all.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn seen_by(&self, gpu: &Gpu) -> Result<DeviceSlice<'_, T>, GpuError> {
        let address = if self.len == 0 { 0 } else { gpu.backend().host_address(self.host)? };
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if ![&self.gpu].into_iter().chain(readers.iter()).any(|reader| reader.is_same_device(gpu)) {
            readers.push(gpu.clone());
        }
        Ok(DeviceSlice { address, len: self.len, of: PhantomData })
    }

    /// Like [`MappedHost::seen_by`], for `part`, values of any type within this memory.
    ///
    /// # Errors
    /// [`KernelError::Length`] if they are not within it; errors of the driver.
    pub fn part_seen_by<U: Pod>(&self, gpu: &Gpu, part: &[U]) -> Result<DeviceSlice<'_, U>, GpuError> {
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

/// A copy of bytes in memory of its own, on huge pages where the system has them: random reads over the bus then wait
/// less for address translation.
#[derive(Debug)]
struct HostCopy {
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to this value only, and is not written once it is made.
unsafe impl Send for HostCopy {}
// SAFETY: as above.
unsafe impl Sync for HostCopy {}

impl HostCopy {
    /// Copied by all threads.
    fn of(bytes: &[u8]) -> Result<Self, GpuError> {
        const AT_ONCE: usize = 16 << 20;
        let (may, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, wherever the system has it.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes.len().max(1), may, how, -1, 0) };
        if start == libc::MAP_FAILED {
            let reason = std::io::Error::last_os_error().to_string();
            return Err(GpuError::Call { call: "mmap", reason });
        }
        let copy = Self { start: start.cast(), len: bytes.len() };
        // SAFETY: the memory is there and as long; without huge pages small ones will do.
        let to = unsafe {
            #[cfg(target_os = "linux")]
            libc::madvise(start, bytes.len(), libc::MADV_HUGEPAGE);
            std::slice::from_raw_parts_mut(copy.start, copy.len)
        };
        to.par_chunks_mut(AT_ONCE).zip(bytes.par_chunks(AT_ONCE)).for_each(|(to, from)| to.copy_from_slice(from));
        Ok(copy)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is there, as long, and was written when it was made.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for HostCopy {
    fn drop(&mut self) {
        // SAFETY: nothing else has the memory.
        let _ = unsafe { libc::munmap(self.start.cast::<c_void>(), self.len.max(1)) };
    }
}
