//! The rows of a finished layer, for the layer above: in the memory of the GPU that computes, where they fit there, else in the
//! host's, where those fit, else in a file that is mapped.
//!
//! The file has no name any more once it is written: it goes with the map, whatever becomes of the process. A GPU reads rows
//! in the host's memory over the bus where the driver can pin them; other rows are gathered by the host.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use gsplit_kernels::{DeviceBuffer, DeviceSlice, Gpu, MappedHost, gather_f32, gather_on_device};
use gsplit_store::{Error as StoreError, MappedFile};
use tch::{Kind, Tensor};

use crate::autograd::{Buffer, device_values, device_values_mut, values};
use crate::place::{Place, on_host};
use crate::{Error, Result};

/// Bytes that are written to the file at once.
const BUFFER: usize = 1 << 20;

/// Where the rows of a finished layer are to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home<'a> {
    /// The memory of the model's GPU.
    Device,
    /// The host's.
    Memory,
    /// A file in this folder.
    Disk(&'a Path),
}

/// f32 rows of all vertices, one after the other.
pub enum Hidden {
    /// On a GPU.
    Device(DeviceBuffer<f32>),
    /// In memory.
    Memory(Vec<f32>),
    /// In a file.
    Mapped(MappedFile),
}

impl Hidden {
    /// The values, row after row; none if they are on a GPU.
    pub fn values(&self) -> &[f32] {
        match self {
            Self::Device(_) => &[],
            Self::Memory(values) => values,
            // Maps begin with a page, so they are aligned.
            Self::Mapped(file) => bytemuck::try_cast_slice(file).unwrap_or_default(),
        }
    }

    /// For reading at `place`.
    pub fn reader(&self, place: &Place) -> HiddenReader<'_> {
        match (self, place.gpu()) {
            (Self::Device(rows), _) => HiddenReader::Device(rows.slice()),
            (Self::Memory(values), Some(gpu)) => match gpu.map_host(values) {
                Ok(pinned) => HiddenReader::Pinned(pinned),
                Err(_) => HiddenReader::Host(values),
            },
            _ => HiddenReader::Host(self.values()),
        }
    }
}

/// How chunks of a layer read the rows of the one below.
pub enum HiddenReader<'a> {
    /// By the GPU, in its memory.
    Device(DeviceSlice<'a, f32>),
    /// By the GPU, in the host's memory.
    Pinned(MappedHost<'a, f32>),
    /// By the host.
    Host(&'a [f32]),
}

impl HiddenReader<'_> {
    /// The rows of `vertices`, of `dim` values each, at `place`: f32 `[vertices, dim]`.
    ///
    /// # Errors
    /// [`Error::Kernel`] if a vertex has no row, what the GPU says.
    pub fn rows(&self, place: &Place, vertices: &[u32], dim: usize) -> Result<Tensor> {
        let shape = [vertices.len() as i64, dim as i64];
        let table = match self {
            Self::Host(values) => {
                let mut rows = Buffer::new(vertices.len() * dim)?;
                gather_f32(values, dim, vertices, rows.as_mut_slice())?;
                return place.bring(&rows.into_tensor(&shape)?);
            }
            Self::Device(table) => *table,
            Self::Pinned(pinned) => pinned.slice(),
        };
        let Place::Device(gpu, device, ..) = place else {
            return Err(Error::Option("rows on a GPU that the model is not on".into()));
        };
        let vertices = gpu.upload(vertices)?;
        let mut rows = Tensor::f_empty(shape, (Kind::Float, *device))?;
        gather_on_device(gpu, table, None, vertices.slice(), dim, &mut device_values_mut(*device, &mut rows)?)?;
        Ok(rows)
    }
}

/// [`Hidden`] rows under way.
pub enum HiddenWriter {
    /// On a GPU, which torch calls by the name given: so many values are there.
    Device(Gpu, tch::Device, DeviceBuffer<f32>, usize),
    /// In memory.
    Memory(Vec<f32>),
    /// In the file at this path.
    File(PathBuf, BufWriter<File>),
}

impl HiddenWriter {
    /// Begins `len` values of layer `layer` at their home; in the host's memory where a GPU has not as much left as it said.
    ///
    /// # Errors
    /// [`Error::Store`] where the file cannot be made, [`Error::Option`] where the machine would never have the memory.
    pub fn begin(home: Home<'_>, place: &Place, layer: usize, len: usize) -> Result<Self> {
        match (home, place) {
            (Home::Disk(folder), _) => {
                let path = folder.join(format!("layer-{layer}.f32"));
                let file = File::create(&path).map_err(StoreError::io(&path))?;
                Ok(Self::File(path, BufWriter::with_capacity(BUFFER, file)))
            }
            (Home::Device, Place::Device(gpu, device, ..)) => match gpu.alloc(len) {
                Ok(rows) => Ok(Self::Device(gpu.clone(), *device, rows, 0)),
                Err(gsplit_kernels::GpuError::OutOfMemory { .. }) => Self::in_memory(len),
                Err(error) => Err(error.into()),
            },
            _ => Self::in_memory(len),
        }
    }

    /// Begins `len` values in the host's memory.
    ///
    /// # Errors
    /// [`Error::Option`] where the machine would never have it.
    pub fn in_memory(len: usize) -> Result<Self> {
        let mut values = Vec::new();
        let gib = len as f64 * size_of::<f32>() as f64 / f64::from(1 << 30);
        let refused = |_| {
            let remedy = "pass --eval-every 0, and run `gsplit infer` afterwards";
            Error::Option(format!("--eval-every: evaluation takes {gib:.0} GiB, more than there is: {remedy}"))
        };
        values.try_reserve_exact(len).map_err(refused)?;
        Ok(Self::Memory(values))
    }

    /// Appends the rows of a chunk, wherever they are.
    pub fn push_tensor(&mut self, rows: &Tensor) -> Result<()> {
        match self {
            Self::Device(gpu, device, all, filled) => {
                let rows = rows.contiguous();
                let (rows, start) = (device_values(*device, &rows)?, *filled);
                *filled += rows.len();
                Ok(all.slice_mut().part(start, *filled)?.copy_from(gpu, rows)?)
            }
            _ => self.push(values(&on_host(rows)?)?),
        }
    }

    /// Appends rows of the host.
    pub fn push(&mut self, rows: &[f32]) -> Result<()> {
        match self {
            Self::Device(gpu, _, all, filled) => {
                let start = *filled;
                *filled += rows.len();
                all.slice_mut().part(start, *filled)?.upload(gpu, rows)?;
            }
            Self::Memory(values) => values.extend_from_slice(rows),
            Self::File(path, file) => {
                file.write_all(bytemuck::cast_slice(rows)).map_err(StoreError::io(path))?;
            }
        }
        Ok(())
    }

    /// All rows, to be read.
    pub fn finish(self) -> Result<Hidden> {
        match self {
            Self::Device(_, _, rows, _) => Ok(Hidden::Device(rows)),
            Self::Memory(values) => Ok(Hidden::Memory(values)),
            Self::File(path, mut file) => {
                file.flush().map_err(StoreError::io(&path))?;
                let map = MappedFile::open(&path)?;
                std::fs::remove_file(&path).map_err(StoreError::io(&path))?;
                Ok(Hidden::Mapped(map))
            }
        }
    }
}
