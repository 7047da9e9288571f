//! Rows of a finished layer, for the layer above. They are kept in the memory of the GPUs that
//! compute if each has room for all of them, else in the host's memory if they fit, else in a
//! mapped file.
//!
//! Workers write concurrently: the output is handed out in consecutive [`Slot`]s, and one worker
//! writes each slot. With several GPUs each chunk is copied to all of them, by the driver, on a
//! stream of the target's own. The layers above then read rows from local memory: a row is read
//! once per edge and chunk, but written once. Rows have the element type of the place's rows, as in
//! training, and are read as f32. The file has no name, so it disappears with the map, however the
//! process ends. GPUs read rows in the host's memory over the bus if the driver can pin them;
//! otherwise the host gathers them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use gsplit_kernels::{
    DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, GpuError, KernelError, MappedHost, Widen,
    check_len, gather_f32, gather_on_device, gather_rows,
};
use gsplit_store::{Error as StoreError, MappedFile, attempt};
use tch::{Kind, Tensor};

use crate::autograd::{Buffer, device_values, device_values_mut};
use crate::operator::{Place, Row, link};
use crate::{Error, Result};

/// Storage of the rows of a finished layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<'a> {
    /// The memory of each GPU that computes.
    Device,
    /// The host's memory.
    Memory,
    /// A file in this folder.
    Disk(&'a Path),
}

/// Element type of the rows.
pub trait Cell: Row + Widen {}

impl<T: Row + Widen> Cell for T {}

/// All rows on one GPU.
pub struct HiddenOnGpu<T: Pod> {
    gpu: Gpu,
    rows: DeviceBuffer<T>,
    /// Stream on which other GPUs' rows arrive; it does not wait for this GPU's computation.
    arriving: Gpu,
}

impl<T: Pod> Drop for HiddenOnGpu<T> {
    /// Frees the memory in the order of `gpu`, after all rows have arrived.
    fn drop(&mut self) {
        let _ = self.gpu.wait_for(&self.arriving);
    }
}

/// Zeroed room for values in the host's memory; the system provides each page when it is first
/// written.
pub struct InMemory(Vec<u32>, usize);

/// Rows of all vertices, one after the other: written slot by slot, then read.
pub enum Hidden<T: Pod> {
    /// On each of these GPUs.
    Device(Vec<HiddenOnGpu<T>>),
    /// In the host's memory.
    Memory(InMemory),
    /// In a file in this folder, mapped once all rows are written.
    File(PathBuf, File, Option<MappedFile>),
}

impl<T: Cell> Hidden<T> {
    /// The values, row after row; empty if they are on GPUs.
    pub fn values(&self) -> &[T] {
        match self {
            Self::Device(_) => &[],
            Self::Memory(InMemory(words, len)) => &bytemuck::cast_slice(words)[..*len],
            // Maps begin at a page, so they are aligned.
            Self::File(.., map) => {
                map.as_ref().map_or(&[], |map| bytemuck::try_cast_slice(map).unwrap_or_default())
            }
        }
    }

    /// Returns a reader of the rows for `place` and other places of its kind.
    pub fn reader(&self, place: &Place) -> HiddenReader<'_, T> {
        match (self, place.gpu()) {
            (Self::Device(tables), _) => HiddenReader::Device(tables),
            (Self::Memory(_), Some(gpu)) => match gpu.map_host(self.values()) {
                Ok(pinned) => HiddenReader::Pinned(pinned),
                Err(_) => HiddenReader::Host(self.values()),
            },
            _ => HiddenReader::Host(self.values()),
        }
    }
}

/// Access of a layer's chunks to the rows of the layer below.
pub enum HiddenReader<'a, T: Pod> {
    /// Each GPU reads them in its own memory.
    Device(&'a [HiddenOnGpu<T>]),
    /// GPUs read them in the host's memory.
    Pinned(MappedHost<'a, T>),
    /// The host reads them.
    Host(&'a [T]),
}

impl<T: Cell> HiddenReader<'_, T> {
    /// Gathers the rows of `vertices`, with `dim` values each, at `place`: f32 `[vertices, dim]`.
    pub fn rows(&self, place: &Place, vertices: &[u32], dim: usize) -> Result<Tensor> {
        let shape = [vertices.len() as i64, dim as i64];
        if let Self::Host(values) = self {
            let mut rows = Buffer::new(vertices.len() * dim)?;
            let row = |v: u32| {
                values.get(v as usize * dim..).and_then(|row| row.get(..dim)).unwrap_or_default()
            };
            match bytemuck::try_cast_slice(values) {
                Ok(values) if T::KIND == Kind::Float => {
                    gather_f32(values, dim, vertices, rows.as_mut_slice())?
                }
                _ => gather_rows(row, vertices, dim, rows.as_mut_slice())?,
            }
            return place.bring(&rows.into_tensor(&shape)?);
        }
        let elsewhere = || Error::Option("rows on a GPU that the model is not on".into());
        let Place::Device(gpu, device, ..) = place else { return Err(elsewhere()) };
        let vertices = gpu.upload(vertices)?;
        let mut rows = Tensor::f_empty(shape, (Kind::Float, *device))?;
        let table = self.seen_by(gpu)?.ok_or_else(elsewhere)?;
        gather_on_device(
            gpu,
            table,
            None,
            vertices.slice(),
            dim,
            &mut device_values_mut::<f32>(*device, &mut rows)?,
        )?;
        Ok(rows)
    }

    /// All rows, as a slice that `gpu` can read.
    fn seen_by(&self, gpu: &Gpu) -> Result<Option<DeviceSlice<'_, T>>> {
        match self {
            Self::Device(tables) => Ok(table_of(tables, gpu).map(|table| table.rows.slice())),
            Self::Pinned(pinned) => Ok(Some(pinned.seen_by(gpu)?)),
            Self::Host(_) => Ok(None),
        }
    }
}

fn table_of<'a, T: Pod>(tables: &'a [HiddenOnGpu<T>], gpu: &Gpu) -> Option<&'a HiddenOnGpu<T>> {
    tables.iter().find(|table| table.gpu.is_same_device(gpu))
}

impl<T: Cell> Hidden<T> {
    /// Allocates `len` values in `home`, for workers at `places`; falls back to the host's memory
    /// if a GPU has less memory left than it reported.
    pub fn begin(home: Home<'_>, places: &[Place], len: usize) -> Result<Self> {
        // The GPU that computes a row sends it to all others.
        link(places)?;
        match home {
            Home::Disk(folder) => {
                let file = tempfile::tempfile_in(folder).map_err(StoreError::io(folder))?;
                Ok(Self::File(folder.to_path_buf(), file, None))
            }
            Home::Device => match on_gpus(places, len) {
                Ok(tables) => Ok(Self::Device(tables)),
                Err(GpuError::OutOfMemory { .. }) => Self::in_memory(len),
                Err(error) => Err(error.into()),
            },
            Home::Memory => Self::in_memory(len),
        }
    }

    /// Allocates `len` values in the host's memory.
    pub fn in_memory(len: usize) -> Result<Self> {
        let gib = len as f64 * size_of::<T>() as f64 / f64::from(1 << 30);
        let refused = |_| {
            let remedy = "pass --eval-every 0, and run `gsplit infer` afterwards";
            Error::Option(format!(
                "--eval-every: evaluation takes {gib:.0} GiB, more than there is: {remedy}"
            ))
        };
        let words = len.saturating_mul(size_of::<T>()).div_ceil(size_of::<u32>());
        attempt(|| Vec::<u32>::new().try_reserve_exact(words)).map_err(refused)?;
        Ok(Self::Memory(InMemory(vec![0; words], len)))
    }

    /// The room for all rows, to be divided into slots.
    pub fn slots(&mut self) -> Slots<'_, T> {
        match self {
            Self::Device(tables) => {
                let slots = tables.iter_mut().map(|HiddenOnGpu { gpu, rows, arriving }| {
                    (&*gpu, &*arriving, rows.slice_mut())
                });
                Slots::Device(slots.collect())
            }
            Self::Memory(InMemory(words, len)) => {
                Slots::Memory(&mut bytemuck::cast_slice_mut(words)[..*len])
            }
            Self::File(path, file, _) => Slots::File { path, file, next: 0 },
        }
    }

    /// Makes all rows readable, once every slot is written.
    pub fn finish(mut self) -> Result<Self> {
        match &mut self {
            // Computations started on these GPUs from now on wait for the rows that arrive.
            Self::Device(tables) => {
                tables.iter().try_for_each(|table| table.gpu.wait_for(&table.arriving))?
            }
            Self::Memory(_) => {}
            Self::File(path, file, map) => *map = Some(MappedFile::of(path, file)?),
        }
        Ok(self)
    }
}

/// Allocates `len` values on each GPU of `places`.
fn on_gpus<T: Pod>(places: &[Place], len: usize) -> Result<Vec<HiddenOnGpu<T>>, GpuError> {
    let mut tables: Vec<HiddenOnGpu<T>> = Vec::new();
    for gpu in places.iter().filter_map(Place::gpu) {
        if table_of(&tables, gpu).is_none() {
            let (rows, arriving) = (gpu.alloc(len)?, gpu.side_stream()?);
            arriving.wait_for(gpu)?;
            tables.push(HiddenOnGpu { gpu: gpu.clone(), rows, arriving });
        }
    }
    Ok(tables)
}

/// Room of [`Hidden`] rows that is not handed out yet.
pub enum Slots<'t, T> {
    /// For each GPU: the GPU, the stream on which rows arrive from others, and the room.
    Device(Vec<(&'t Gpu, &'t Gpu, DeviceSliceMut<'t, T>)>),
    /// In the host's memory.
    Memory(&'t mut [T]),
    /// In a file, from value `next` on.
    File {
        /// The path of its folder.
        path: &'t Path,
        /// The file.
        file: &'t File,
        /// Number of values before this point.
        next: u64,
    },
}

impl<'t, T: Cell> Slots<'t, T> {
    /// Hands out the room for the next `len` values.
    pub fn take(&mut self, len: usize) -> Result<Slot<'t, T>> {
        match self {
            Self::Device(rests) => {
                let mut parts = Vec::with_capacity(rests.len());
                for (gpu, arriving, rest) in std::mem::take(rests) {
                    let (part, rest) = rest.split_at(len)?;
                    parts.push((gpu, arriving, part));
                    rests.push((gpu, arriving, rest));
                }
                Ok(Slot::Device(parts))
            }
            Self::Memory(rest) => {
                let (what, left) = ("values of a layer that are left", rest.len());
                let halves = std::mem::take(rest).split_at_mut_checked(len);
                let (part, behind) =
                    halves.ok_or(KernelError::Length { what, expected: left, got: len })?;
                *rest = behind;
                Ok(Slot::Memory(part))
            }
            Self::File { path, file, next } => {
                let start = *next;
                *next += len as u64;
                Ok(Slot::File(path, file, start))
            }
        }
    }
}

/// Room for the rows of a chunk.
pub enum Slot<'t, T> {
    /// On each GPU, with the fields of [`Slots::Device`].
    Device(Vec<(&'t Gpu, &'t Gpu, DeviceSliceMut<'t, T>)>),
    /// In the host's memory.
    Memory(&'t mut [T]),
    /// In a file, from this value on.
    File(&'t Path, &'t File, u64),
}

impl<T: Cell> Slot<'_, T> {
    /// Writes `rows`, which are at `place`, rounded to `T`.
    pub fn write(self, place: &Place, rows: &Tensor) -> Result<()> {
        let rows = rows.f_to_kind(T::KIND)?.f_contiguous()?;
        match (self, place) {
            (Self::Device(parts), Place::Device(gpu, device, _)) => {
                let rows = device_values::<T>(*device, &rows)?;
                for (other, arriving, mut part) in parts {
                    match other.is_same_device(gpu) {
                        true => part.copy_from(gpu, rows)?,
                        false => part.copy_from_other(arriving, gpu, rows)?,
                    }
                }
            }
            (Self::Device(_), Place::Host(_)) => {
                return Err(Error::Option("rows of the host for a table on GPUs".into()));
            }
            (Self::Memory(part), _) => {
                check_len("values of a chunk", part.len(), rows.numel())?;
                let values = part.len();
                rows.f_copy_data_u8(bytemuck::cast_slice_mut(part), values)?;
            }
            (Self::File(path, file, start), _) => {
                let mut bytes = vec![0; rows.numel() * size_of::<T>()];
                rows.f_copy_data_u8(&mut bytes, rows.numel())?;
                file.write_all_at(&bytes, start * size_of::<T>() as u64)
                    .map_err(StoreError::io(path))?;
            }
        }
        Ok(())
    }
}
