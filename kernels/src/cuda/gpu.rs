//! A GPU as one rank uses it: memory, copies, and launches on one stream.

use std::any::Any;
use std::sync::Arc;

use bytemuck::Pod;

use super::backend::{Argument, Arriving, Backend, Kernel, Shape};
use super::{DeviceBuffer, DeviceSlice, GpuError, MappedHost};

/// Bytes that [`Gpu::read`] brought to the host.
#[derive(Clone, Debug)]
pub struct HostBytes(Vec<u8>);

impl HostBytes {
    /// The values that they are.
    pub fn values<T: Pod>(&self) -> Vec<T> {
        self.0.chunks_exact(size_of::<T>().max(1)).map(bytemuck::pod_read_unaligned).collect()
    }
}

/// Copies to the host that [`Gpu::read_later`] has begun.
#[derive(Debug)]
pub struct LateBytes<const N: usize> {
    bytes: Box<dyn Arriving>,
    lengths: [usize; N],
    /// The GPU whose memory they come to.
    _gpu: Gpu,
}

impl<const N: usize> LateBytes<N> {
    /// Each part. Waits until they are there.
    pub fn wait(mut self) -> Result<[HostBytes; N], GpuError> {
        Ok(split(&self.bytes.wait()?, self.lengths))
    }
}

fn split<const N: usize>(bytes: &[u8], lengths: [usize; N]) -> [HostBytes; N] {
    let mut rest = bytes;
    lengths.map(|length| {
        let (first, behind) = rest.split_at(length);
        rest = behind;
        HostBytes(first.to_vec())
    })
}

/// One GPU, and the stream that a rank launches on. Clones are the same GPU and stream.
///
/// # Errors
/// Each method: [`GpuError::OutOfMemory`]; errors of the driver and of the GPU, of earlier launches
/// too.
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

    /// Wraps another backend than the driver.
    pub fn of_backend(backend: Arc<dyn Backend>) -> Self {
        Self(backend)
    }

    /// The backend that it was made [of](Self::of_backend), if that is a `B`.
    pub fn backend_as<B: Backend>(&self) -> Option<&B> {
        (self.backend() as &dyn Any).downcast_ref()
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        self.0.as_ref()
    }

    /// Allocates `len` values with unspecified contents.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        DeviceBuffer::new(self, len)
    }

    /// `len` values whose bytes are zero.
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        let mut buffer = self.alloc(len)?;
        buffer.slice_mut().zero(self)?;
        Ok(buffer)
    }

    /// A copy of `values`.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<DeviceBuffer<T>, GpuError> {
        let mut buffer = self.alloc(values.len())?;
        buffer.slice_mut().upload(self, values)?;
        Ok(buffer)
    }

    /// Maps `values` for the GPU to read in place, over the bus: pinned until the result is
    /// dropped.
    pub fn map_host<'a, T: Pod>(&self, values: &'a [T]) -> Result<MappedHost<'a, T>, GpuError> {
        MappedHost::new(self, values)
    }

    /// Like [`Gpu::map_host`]; if the driver cannot pin `values`, as it cannot pin mapped files on
    /// most machines, maps a copy in new memory, provided that it takes up to `most` bytes.
    pub fn map_host_or_copy<'a, T: Pod>(
        &self,
        values: &'a [T],
        most: u64,
    ) -> Result<MappedHost<'a, T>, GpuError> {
        match MappedHost::new(self, values) {
            Err(_) if size_of_val(values) as u64 <= most => MappedHost::of_copy(self, values),
            mapped => mapped,
        }
    }

    /// Copies `values` to host memory, which the GPU reads over the bus: pinned until the result is
    /// dropped.
    pub fn pinned_copy<T: Pod>(&self, values: &[T]) -> Result<MappedHost<'static, T>, GpuError> {
        MappedHost::of_copy(self, values)
    }

    /// Copies each of `parts` to the host. Waits once for everything launched before: several
    /// counts cost the same as one.
    pub fn read<const N: usize>(
        &self,
        parts: [DeviceSlice<'_, u8>; N],
    ) -> Result<[HostBytes; N], GpuError> {
        let mut bytes = vec![0; parts.iter().map(|part| part.len()).sum()];
        self.0.download(&parts.map(|part| (part.address(), part.len())), &mut bytes)?;
        Ok(split(&bytes, parts.map(|part| part.len())))
    }

    /// Like [`Gpu::read`], without waiting now: [`LateBytes::wait`] returns the values. Up to four
    /// reads under way, of 4 KiB each, cost the host no wait once they have arrived.
    pub fn read_later<const N: usize>(
        &self,
        parts: [DeviceSlice<'_, u8>; N],
    ) -> Result<LateBytes<N>, GpuError> {
        let bytes = self.0.download_later(&parts.map(|part| (part.address(), part.len())))?;
        Ok(LateBytes { bytes, lengths: parts.map(|part| part.len()), _gpu: self.clone() })
    }

    /// Limits `shape`, of a kernel for any number of blocks that reads from `address` on, to few
    /// blocks if it [waits next to other kernels](Self::is_concurrent_zero_copy). (GraphBolt runs
    /// 6,144 threads there.)
    pub(crate) fn limit_zero_copy(&self, shape: Shape, address: u64) -> Shape {
        const MOST: u32 = 64 * 256;
        match self.is_concurrent_zero_copy(address) {
            true => Shape { blocks: shape.blocks.min(MOST / shape.threads.max(1)), ..shape },
            false => shape,
        }
    }

    /// Whether a kernel that reads from `address` on waits most of the time, for the bus, and would
    /// keep multiprocessors from the null stream's kernels meanwhile. On the null stream itself
    /// nothing runs next to it.
    pub(crate) fn is_concurrent_zero_copy(&self, address: u64) -> bool {
        self.0.stream() != 0 && self.0.is_of_host(address)
    }

    /// Runs a kernel. Callers check that lengths and positions are valid for the kernel.
    pub(crate) fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<(), GpuError> {
        if shape.blocks == 0 { Ok(()) } else { self.0.launch(kernel, shape, arguments) }
    }

    /// Runs a kernel with one thread for each of `items`.
    pub(crate) fn run(
        &self,
        kernel: Kernel,
        items: usize,
        arguments: &[Argument],
    ) -> Result<(), GpuError> {
        self.launch(kernel, Shape::per_item(items), arguments)
    }

    /// Waits for everything that was launched.
    pub fn synchronise(&self) -> Result<(), GpuError> {
        self.0.synchronise()
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors()
    }

    /// Free bytes of its memory, and total bytes.
    pub fn memory(&self) -> Result<(u64, u64), GpuError> {
        self.0.memory()
    }

    /// Bytes of its memory that the driver's pool holds, in use or for later.
    pub fn pool_bytes(&self) -> Result<u64, GpuError> {
        self.0.pool_bytes()
    }

    /// The same GPU with a stream of its own, which waits for nothing.
    pub fn side_stream(&self) -> Result<Self, GpuError> {
        Ok(Self(self.0.side_stream()?))
    }

    /// Orders streams: work launched here from now on starts after all that was launched on
    /// `other`, perhaps another GPU, until now.
    pub fn wait_for(&self, other: &Gpu) -> Result<(), GpuError> {
        self.0.wait_for(other.backend())
    }

    /// Whether both are the same device, whose memory they share, though perhaps not the stream.
    pub fn is_same_device(&self, other: &Gpu) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || self.0.ordinal().is_some_and(|ordinal| Some(ordinal) == other.0.ordinal())
    }

    /// Lets kernels of this GPU read the memory of `other` in place, if the two can (`gsplit
    /// doctor` shows the links between them); returns whether they can. Writes of `other` are
    /// visible once this GPU has waited for it.
    pub fn reaches(&self, other: &Gpu) -> Result<bool, GpuError> {
        if self.is_same_device(other) { Ok(true) } else { self.0.reach(other.backend()) }
    }
}
