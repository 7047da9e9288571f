//! Backend of a [`Gpu`](crate::Gpu): the CUDA driver, or its replacement in tests.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use bytemuck::Pod;

pub use super::module::Module;
use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut, GpuError};
use crate::philox::StreamKey;

/// Operations of one stream of a GPU.
///
/// Everything happens in the order of the calls; `download` and `synchronise` wait for earlier
/// work, and so may `upload` of more than 2 MiB. Callers pass only addresses and lengths of
/// existing memory, and implementations return no others.
///
/// # Errors
/// Each method: errors of the GPU, of earlier calls too.
pub trait Backend: Any + Send + Sync + Debug {
    /// Allocates `bytes`, a multiple of 16, at an address that is a multiple of 16 too.
    fn alloc(&self, bytes: usize) -> Result<u64, GpuError>;
    /// Frees memory of `alloc`.
    fn free(&self, address: u64, bytes: usize);
    /// Like `alloc`, for memory that other processes may open; freed by `free_for_others`.
    fn alloc_for_others(&self, bytes: usize) -> Result<u64, GpuError>;
    /// Frees memory of `alloc_for_others`, which the other processes have closed.
    fn free_for_others(&self, address: u64, bytes: usize);
    /// IPC handle for memory from `alloc_for_others`.
    fn export(&self, address: u64) -> Result<[u8; 64], GpuError>;
    /// Address on the GPU of memory that another process has exported, until `close`, if the GPU
    /// reaches it.
    fn import(&self, handle: [u8; 64]) -> Result<u64, GpuError>;
    /// Closes memory of `import`.
    fn close(&self, address: u64);
    /// Copies host memory to `address`.
    fn upload(&self, address: u64, from: &[u8]) -> Result<(), GpuError>;
    /// Copies `parts` (address and length) to `to`, one after the other; one wait for all.
    fn download(&self, parts: &[(u64, usize)], to: &mut [u8]) -> Result<(), GpuError>;
    /// Begins a `download` without waiting for it.
    fn download_later(&self, parts: &[(u64, usize)]) -> Result<Box<dyn Arriving>, GpuError>;
    /// Copies within the device.
    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError>;
    /// Like `copy`, from memory of `source`, which may be another GPU.
    fn copy_across(
        &self,
        from: u64,
        source: &dyn Backend,
        to: u64,
        bytes: usize,
    ) -> Result<(), GpuError>;
    /// Fills with zero bytes.
    fn zero(&self, address: u64, bytes: usize) -> Result<(), GpuError>;
    /// Address on the GPU of host memory, which must not move until [`Backend::unmap_host`].
    fn map_host(&self, bytes: &[u8]) -> Result<u64, GpuError>;
    /// Address on the GPU of host memory from `start` on, which this GPU or another has mapped.
    fn host_address(&self, start: usize) -> Result<u64, GpuError>;
    /// Ends `map_host`, once all streams have ended.
    fn unmap_host(&self, start: usize, bytes: usize);
    /// Runs a kernel.
    fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[Argument]) -> Result<(), GpuError>;
    /// Waits for everything that was launched here.
    fn synchronise(&self) -> Result<(), GpuError>;
    /// Waits for every stream of the device; does nothing where calls return only once their work
    /// is done.
    fn synchronise_all(&self) -> Result<(), GpuError> {
        Ok(())
    }
    /// How many multiprocessors the device has.
    fn multiprocessors(&self) -> u32;
    /// Free bytes, and total bytes.
    fn memory(&self) -> Result<(u64, u64), GpuError>;
    /// Bytes that the driver's pool holds.
    fn pool_bytes(&self) -> Result<u64, GpuError>;
    /// The same device with a stream of its own.
    fn side_stream(&self) -> Result<Arc<dyn Backend>, GpuError>;
    /// Orders streams: work launched here from now on starts after all that was launched on
    /// `other`, perhaps another GPU, until now.
    fn wait_for(&self, other: &dyn Backend) -> Result<(), GpuError>;
    /// Makes this GPU the current one for the calling thread's driver calls.
    fn enter(&self) -> Result<(), GpuError>;
    /// The driver's own stream, as an address.
    fn stream(&self) -> u64;
    /// The device's number; `None` if each backend is a device of its own.
    fn ordinal(&self) -> Option<usize>;
    /// Lets kernels and copies here read all memory of `other`, in its pool or not; returns whether
    /// the devices can do that.
    fn reach(&self, other: &dyn Backend) -> Result<bool, GpuError>;
    /// Whether an address is of host memory that is mapped.
    fn is_of_host(&self, _address: u64) -> bool {
        false
    }
}

/// Bytes on their way to the host. Dropping them early waits for their arrival.
pub trait Arriving: Send + Debug {
    /// The bytes, once.
    fn wait(&mut self) -> Result<Vec<u8>, GpuError>;
}

impl Arriving for Vec<u8> {
    fn wait(&mut self) -> Result<Vec<u8>, GpuError> {
        Ok(std::mem::take(self))
    }
}

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its file.
    pub module: &'static Module,
    /// Its name there.
    pub name: &'static str,
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks of threads.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory that the kernel itself does not declare.
    pub shared: u32,
}

/// Threads of a block, unless a kernel needs another number.
pub(crate) const THREADS: u32 = 256;

impl Shape {
    /// Blocks of [`THREADS`] for `items` of one thread each.
    pub(crate) fn per_item(items: usize) -> Self {
        let blocks = items.div_ceil(THREADS as usize).try_into().unwrap_or(u32::MAX);
        Self { blocks, threads: THREADS, shared: 0 }
    }
}

/// An argument of a kernel. The kernel declares the same types in the same order.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A pointer, or `u64`.
    Address(u64),
    /// `u32`.
    U32(u32),
    /// `float`.
    F32(f32),
    /// The words of a [`StreamKey`].
    Key([u32; 5]),
    /// A struct of pointers and integers, eight words long.
    Struct([u64; 8]),
}

impl Argument {
    /// The bytes of the value, as the kernel reads them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Address(value) => bytemuck::bytes_of(value),
            Self::U32(value) => bytemuck::bytes_of(value),
            Self::F32(value) => bytemuck::bytes_of(value),
            Self::Key(words) => bytemuck::bytes_of(words),
            Self::Struct(words) => bytemuck::bytes_of(words),
        }
    }
}

/// Two numbers of 32 bits in a word of a struct, the first in the lower half.
pub(crate) fn pair(low: usize, high: usize) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The [`Argument`]s of a kernel, each made from a value: numbers of the kernel's types (a `usize`
/// for a `u64`), and buffers and slices for pointers, which are null where they are `None`.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        [$($crate::cuda::Argument::from($value)),*]
    };
}
pub(crate) use arguments;

macro_rules! argument_from {
    ($($type:ty => $make:expr),*) => {
        $(impl From<$type> for Argument {
            fn from(value: $type) -> Self {
                $make(value)
            }
        })*
    };
}

argument_from! {
    u64 => Argument::Address,
    usize => |number| Argument::Address(number as u64),
    u32 => Argument::U32,
    f32 => Argument::F32,
    [u64; 8] => Argument::Struct,
    &StreamKey => |key: &StreamKey| Argument::Key(key.words_of_key())
}

impl<T: Pod> From<DeviceSlice<'_, T>> for Argument {
    fn from(slice: DeviceSlice<'_, T>) -> Self {
        Self::Address(slice.address())
    }
}

impl<T: Pod> From<Option<DeviceSlice<'_, T>>> for Argument {
    fn from(slice: Option<DeviceSlice<'_, T>>) -> Self {
        Self::Address(slice.map_or(0, |slice| slice.address()))
    }
}

impl<T: Pod> From<Option<&DeviceBuffer<T>>> for Argument {
    fn from(buffer: Option<&DeviceBuffer<T>>) -> Self {
        buffer.map(DeviceBuffer::slice).into()
    }
}

impl<T: Pod> From<&DeviceSliceMut<'_, T>> for Argument {
    fn from(slice: &DeviceSliceMut<'_, T>) -> Self {
        Self::Address(slice.address())
    }
}

impl<T: Pod> From<&DeviceBuffer<T>> for Argument {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self::Address(buffer.slice().address())
    }
}
