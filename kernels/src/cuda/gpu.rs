//! A GPU as one rank uses it: memory, copies, and launches on one stream.

use std::fmt::Debug;
use std::sync::Arc;

use bytemuck::Pod;

use super::module::Module;
use super::{DeviceBuffer, DeviceSlice, GpuError, MappedHost};
use crate::philox::StreamKey;

/// What a GPU does, whoever does it: the CUDA driver, or the emulation of tests.
///
/// Everything happens in the order of the calls; `download` and `synchronise` wait for what came before, and so may `upload` of
/// more than 64 KiB.
pub(super) trait Backend: Send + Sync + Debug {
    /// Memory of `bytes`, a multiple of 16, at an address that is one too.
    fn alloc(&self, bytes: usize) -> Result<u64, GpuError>;
    fn free(&self, address: u64, bytes: usize);
    /// As `alloc`, of memory that other processes may open; freed by the next.
    fn alloc_for_others(&self, bytes: usize) -> Result<u64, GpuError>;
    /// The others have closed it.
    fn free_for_others(&self, address: u64, bytes: usize);
    /// By what other processes of the host open what `alloc_for_others` gave.
    fn export(&self, address: u64) -> Result<[u8; 64], GpuError>;
    /// Where the GPU sees what another process has exported, until `close`, if it reaches it.
    fn import(&self, handle: [u8; 64]) -> Result<u64, GpuError>;
    fn close(&self, address: u64);
    fn upload(&self, address: u64, from: &[u8]) -> Result<(), GpuError>;
    /// The bytes that `parts` (address and length) are, one behind the other; one wait for all.
    fn download(&self, parts: &[(u64, usize)], to: &mut [u8]) -> Result<(), GpuError>;
    /// The same of memory that another stream may write meanwhile.
    fn peek(&self, parts: &[(u64, usize)], to: &mut [u8]) -> Result<(), GpuError> {
        self.download(parts, to)
    }
    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), GpuError>;
    /// As `copy`, from memory of `source`, which may be another GPU.
    fn copy_across(&self, from: u64, source: &dyn Backend, to: u64, bytes: usize) -> Result<(), GpuError>;
    fn zero(&self, address: u64, bytes: usize) -> Result<(), GpuError>;
    /// Where the GPU sees host memory, which stays where it is until [`Backend::unmap_host`].
    fn map_host(&self, bytes: &[u8]) -> Result<u64, GpuError>;
    /// Where the GPU sees host memory from `start` on, which this GPU or another has mapped.
    fn host_address(&self, start: usize) -> Result<u64, GpuError>;
    fn unmap_host(&self, start: usize, bytes: usize);
    fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[Argument]) -> Result<(), GpuError>;
    fn synchronise(&self) -> Result<(), GpuError>;
    /// Waits for every stream of the device; where all has happened when a call returns, for nothing.
    fn synchronise_all(&self) -> Result<(), GpuError> {
        Ok(())
    }
    /// Whether everything that was launched has ended.
    fn is_done(&self) -> Result<bool, GpuError>;
    fn multiprocessors(&self) -> u32;
    /// Bytes that are free, and that there are.
    fn memory(&self) -> Result<(u64, u64), GpuError>;
    /// The same device with a stream of its own.
    fn side_stream(&self) -> Result<Arc<dyn Backend>, GpuError>;
    /// What is launched here from now on starts after what was launched on `other`, perhaps another GPU, until now.
    fn wait_for(&self, other: &dyn Backend) -> Result<(), GpuError>;
    /// An event of the driver's, which the caller destroys, after what was launched here until now.
    fn record(&self) -> Result<u64, GpuError>;
    /// Makes this GPU the one that the driver's calls of the calling thread are for.
    fn enter(&self) -> Result<(), GpuError>;
    /// The driver's own stream, as an address.
    fn stream(&self) -> u64;
    /// The driver's own context, as an address: the same for all streams of one GPU.
    fn context(&self) -> u64;
    /// The device's number; none where each is one of its own.
    fn ordinal(&self) -> Option<usize>;
    /// Lets kernels here read what `other` has allocated or will; whether the devices can do that.
    fn reach(&self, other: &dyn Backend) -> Result<bool, GpuError>;
    /// What happened here so far, where somebody counts.
    #[cfg(feature = "emulation")]
    fn counts(&self) -> GpuCounts {
        GpuCounts::default()
    }
}

/// What the host did with one stream of an emulated GPU.
#[cfg(feature = "emulation")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuCounts {
    /// Buffers taken.
    pub taken: u64,
    /// Buffers freed.
    pub freed: u64,
    /// Kernels launched, and copies and fills on the device.
    pub launches: u64,
    /// Times that the host waited for the device: for what it copied to itself, because it was told to, or (as a driver does) for
    /// memory to stage more than 64 KiB in on their way to the device.
    pub waits: u64,
    /// Bytes that came to the host.
    pub bytes_down: u64,
}

/// So many bytes of the host's memory the driver takes with the command to copy them; for more it may wait until the stream comes to
/// them.
#[cfg(feature = "emulation")]
pub(super) const STAGED_BYTES: usize = 64 << 10;

/// A kernel: its file, and its name there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub module: &'static Module,
    pub name: &'static str,
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub blocks: u32,
    pub threads: u32,
    /// Bytes of shared memory that the kernel itself does not declare.
    pub shared: u32,
}

impl Shape {
    /// Blocks of `threads` for `items` that one thread each takes.
    pub(crate) fn per_item(items: usize, threads: u32) -> Self {
        Self { blocks: items.div_ceil(threads as usize).try_into().unwrap_or(u32::MAX), threads, shared: 0 }
    }

    /// Blocks of `threads` for `items` that one warp each takes.
    pub(crate) fn per_warp(items: usize, threads: u32) -> Self {
        Self::per_item(items, threads / 32).with_threads(threads)
    }

    fn with_threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }
}

/// An argument of a kernel. The kernel declares the same types in the same order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// A pointer, or `u64`.
    Address(u64),
    U32(u32),
    F32(f32),
    Key([u32; 5]),
    /// A struct of pointers and integers, eight words long.
    Struct([u64; 8]),
}

impl Argument {
    /// The bytes of the value, as the kernel reads them.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Address(value) => bytemuck::bytes_of(value),
            Self::U32(value) => bytemuck::bytes_of(value),
            Self::F32(value) => bytemuck::bytes_of(value),
            Self::Key(words) => bytemuck::bytes_of(words),
            Self::Struct(words) => bytemuck::bytes_of(words),
        }
    }
}

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

impl<T: Pod> From<&super::DeviceSliceMut<'_, T>> for Argument {
    fn from(slice: &super::DeviceSliceMut<'_, T>) -> Self {
        Self::Address(slice.address())
    }
}

impl<T: Pod> From<&DeviceBuffer<T>> for Argument {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self::Address(buffer.slice().address())
    }
}

/// What [`Gpu::read`] brought to the host.
#[derive(Clone, Debug)]
pub struct HostBytes(Vec<u8>);

impl HostBytes {
    /// The values that they are.
    pub fn values<T: Pod>(&self) -> Vec<T> {
        self.0.chunks_exact(size_of::<T>().max(1)).map(bytemuck::pod_read_unaligned).collect()
    }
}

/// One GPU, and the stream that a rank launches on. Clones are the same GPU and stream.
#[derive(Clone, Debug)]
pub struct Gpu(Arc<dyn Backend>);

impl Gpu {
    /// GPU `ordinal`, from 0, with the stream that torch uses by default.
    ///
    /// # Errors
    /// [`GpuError::Missing`] without a driver or compiler, [`GpuError::NoDevice`].
    pub fn open(ordinal: usize) -> Result<Self, GpuError> {
        Ok(Self(super::driver::Driver::open(ordinal)?))
    }

    /// The emulation that tests run on: memory of the host, kernels compiled for it. Slow. `order` chooses the order of a
    /// block's threads; results depend on it only if a kernel is wrong.
    #[cfg(feature = "emulation")]
    pub fn emulated(order: u32) -> Self {
        Self(super::emulated::Emulated::new(order, None))
    }

    /// [`Gpu::emulated`] with so many bytes of memory. What was freed counts as used, as a driver has it that keeps it for the next
    /// buffer.
    #[cfg(feature = "emulation")]
    pub fn emulated_of(order: u32, bytes: u64) -> Self {
        Self(super::emulated::Emulated::new(order, Some(bytes)))
    }

    /// What a test runs on: the emulation, or GPU 0 where `GSPLIT_TEST_GPU` is set (`make test-gpu`).
    ///
    /// # Panics
    /// Without the GPU that is asked for.
    #[cfg(feature = "emulation")]
    pub fn under_test(order: u32) -> Self {
        match std::env::var_os("GSPLIT_TEST_GPU") {
            None => Self::emulated(order),
            Some(_) => Self::open(0).unwrap_or_else(|error| panic!("GSPLIT_TEST_GPU is set, but {error}")),
        }
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        self.0.as_ref()
    }

    /// Room for `len` values, which are anything at first.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        DeviceBuffer::new(self, len)
    }

    /// `len` values whose bytes are zero.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        let mut buffer = self.alloc(len)?;
        buffer.slice_mut().zero(self)?;
        Ok(buffer)
    }

    /// A copy of `values`.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`].
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<DeviceBuffer<T>, GpuError> {
        let mut buffer = self.alloc(values.len())?;
        buffer.slice_mut().upload(self, values)?;
        Ok(buffer)
    }

    /// `values` for the GPU to read where they are, over the bus: pinned until what this returns is dropped.
    ///
    /// # Errors
    /// What the driver says, if it cannot pin them.
    pub fn map_host<'a, T: Pod>(&self, values: &'a [T]) -> Result<MappedHost<'a, T>, GpuError> {
        MappedHost::new(self, values)
    }

    /// Each of `parts`, on the host. Waits once for what was launched before: several counts cost what one does.
    ///
    /// # Errors
    /// What the GPU reports, of earlier launches too.
    pub fn read<const N: usize>(&self, parts: [DeviceSlice<'_, u8>; N]) -> Result<[HostBytes; N], GpuError> {
        let mut bytes = vec![0; parts.iter().map(|part| part.len()).sum()];
        self.0.download(&parts.map(|part| (part.address(), part.len())), &mut bytes)?;
        let mut rest = bytes.as_slice();
        Ok(parts.map(|part| {
            let (first, behind) = rest.split_at(part.len());
            rest = behind;
            HostBytes(first.to_vec())
        }))
    }

    /// Runs a kernel. Callers check that lengths and positions are what the kernel needs.
    pub(crate) fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[Argument]) -> Result<(), GpuError> {
        if shape.blocks == 0 { Ok(()) } else { self.0.launch(kernel, shape, arguments) }
    }

    /// Waits for everything that was launched.
    ///
    /// # Errors
    /// What the GPU reports, of earlier launches too.
    pub fn synchronise(&self) -> Result<(), GpuError> {
        self.0.synchronise()
    }

    /// Whether everything that was launched has ended, without waiting for it.
    ///
    /// # Errors
    /// What the GPU reports, of earlier launches too.
    pub fn is_done(&self) -> Result<bool, GpuError> {
        self.0.is_done()
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors()
    }

    /// Bytes of its memory that are free, and that there are.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory(&self) -> Result<(u64, u64), GpuError> {
        self.0.memory()
    }

    /// The same GPU with a stream of its own, which waits for nothing.
    ///
    /// # Errors
    /// What the driver says.
    pub fn side_stream(&self) -> Result<Self, GpuError> {
        Ok(Self(self.0.side_stream()?))
    }

    /// What happened on this stream so far; an emulated one counts.
    #[cfg(feature = "emulation")]
    pub fn counts(&self) -> GpuCounts {
        self.0.counts()
    }

    /// What is launched here from now on starts after what was launched on `other`, perhaps another GPU, until now.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait_for(&self, other: &Gpu) -> Result<(), GpuError> {
        self.0.wait_for(other.backend())
    }

    /// Whether both are the same device, whose memory they share, though perhaps not the stream.
    pub fn is_same_device(&self, other: &Gpu) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.ordinal().is_some_and(|ordinal| Some(ordinal) == other.0.ordinal())
    }

    /// Lets kernels of this GPU read the memory of `other` where it lies, if the two can (`gsplit doctor` shows the links between
    /// them); says whether they can. What `other` wrote there is seen once it was waited for.
    ///
    /// # Errors
    /// What the driver says.
    pub fn reaches(&self, other: &Gpu) -> Result<bool, GpuError> {
        if self.is_same_device(other) { Ok(true) } else { self.0.reach(other.backend()) }
    }
}
