//! Place of tensors and of the computation with them: the host, or one GPU.
//!
//! A [`Model`](crate::model::Model) has a [`Place`], so have the edges of a layer
//! ([`operator::Edges`](crate::operator::Edges)), and operators take it from the edges or as their
//! first argument. On the host they compute with slices of the tensors, on a GPU with the kernels
//! next to them; the numbers are the same up to rounding. Everything that a rank computes happens
//! in the order of its calls: torch launches on the null stream, and so do the kernels.
//! Mini-batches that a GPU samples ahead are made on a separate stream and handed over when they
//! are done.
//!
//! Tests run the same code on an emulated GPU, whose memory is the host's: torch's tensors are then
//! on the host too. Some run again on fakes of CUDA and of torch's CUDA part, whose memory is
//! separate (`tests/fake.rs`).

use std::fmt::Debug;

use gsplit_kernels::{Gpu, GpuError, before_out_of_memory, load_torch_cuda};
use gsplit_store::GpuMemory;
use tch::{Kind, Tensor};

use super::Engine;
use crate::autograd::{TensorValue, device_values_mut};
use crate::config::Dtype;
use crate::{Result, autograd};

/// Place of tensors and of the computation with them. Clones are the same place.
#[derive(Clone, Debug)]
pub enum Place {
    /// The host, and its engine for dense products.
    Host(Engine),
    /// A GPU, torch's name for it, and the type to which rows and factors of products are rounded
    /// there.
    Device(Gpu, tch::Device, Dtype),
}

impl Dtype {
    /// torch's name of the type.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::F32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
            Self::F16 => Kind::Half,
        }
    }
}

impl Place {
    /// The host, with this process's engine for f32.
    pub fn host() -> Self {
        Self::Host(Engine::of(Dtype::F32))
    }

    /// Opens GPU `ordinal`, from 0, which several ranks may share.
    ///
    /// # Errors
    /// [`crate::Error::Gpu`] if there is no driver, no compiler, no such GPU, or no torch for CUDA.
    pub fn open(ordinal: usize) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        // torch looks for its CUDA part only once, at the first query about it: it must be loaded
        // by then.
        load_torch_cuda()?;
        before_out_of_memory(|| drop(autograd::give_back_memory()));
        autograd::share_memory()?;
        let devices = tch::Cuda::device_count().max(0) as usize;
        if ordinal >= devices {
            return Err(GpuError::NoDevice { ordinal, devices }.into());
        }
        Ok(Self::Device(gpu, tch::Device::Cuda(ordinal), Dtype::F32))
    }

    /// The same place with products, and on a GPU rows, of type `dtype`.
    pub fn with_dtype(self, dtype: Dtype) -> Self {
        match self {
            Self::Host(_) => Self::Host(Engine::of(dtype)),
            Self::Device(gpu, device, _) => Self::Device(gpu, device, dtype),
        }
    }

    /// The type of the rows that layers read and return here. (The host rounds only the factors of
    /// products.)
    pub fn row_dtype(&self) -> Dtype {
        match self {
            Self::Host(_) => Dtype::F32,
            Self::Device(.., dtype) => *dtype,
        }
    }

    /// [`Place::row_dtype`] as a torch kind.
    pub fn row_kind(&self) -> Kind {
        self.row_dtype().kind()
    }

    /// The GPU; `None` for the host.
    pub fn gpu(&self) -> Option<&Gpu> {
        match self {
            Self::Host(_) => None,
            Self::Device(gpu, ..) => Some(gpu),
        }
    }

    /// torch's name for the place.
    pub fn device(&self) -> tch::Device {
        match self {
            Self::Host(_) => tch::Device::Cpu,
            Self::Device(_, device, _) => *device,
        }
    }

    /// Bytes of a GPU's memory that this process holds; `None` on the host and for an emulated GPU.
    pub(crate) fn memory_held(&self) -> Result<Option<GpuMemory>> {
        let Self::Device(gpu, device @ tch::Device::Cuda(_), _) = self else { return Ok(None) };
        Ok(Some(GpuMemory {
            gpu_pool_bytes: gpu.pool_bytes()?,
            gpu_torch_bytes: autograd::bytes_held(*device)?,
        }))
    }

    /// Copies `values` to this place, as a vector. On a GPU this does not wait, for up to 2 MiB.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub fn upload<T: TensorValue + tch::kind::Element>(&self, values: &[T]) -> Result<Tensor> {
        let Self::Device(gpu, device, _) = self else { return Ok(Tensor::from_slice(values)) };
        let mut tensor =
            Tensor::f_empty([values.len() as i64], (<T as TensorValue>::KIND, *device))?;
        device_values_mut(*device, &mut tensor)?.upload(gpu, values)?;
        Ok(tensor)
    }

    /// Returns `tensor` if it is at this place already, otherwise a copy here.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub fn bring(&self, tensor: &Tensor) -> Result<Tensor> {
        match self {
            _ if tensor.device() == self.device() => Ok(tensor.shallow_clone()),
            Self::Device(gpu, device, _)
                if tensor.device() == tch::Device::Cpu && !tensor.requires_grad() =>
            {
                autograd::upload(gpu, *device, tensor)
            }
            _ => Ok(tensor.f_to_device(self.device())?),
        }
    }
}

/// Lets the GPUs of `places` access each other's memory directly, if they can; returns the pairs
/// that cannot, by index.
///
/// # Errors
/// Errors of the driver.
pub fn link(places: &[Place]) -> Result<Vec<(usize, usize)>> {
    let mut apart = Vec::new();
    let pairs = (0..places.len()).flat_map(|one| (0..one).map(move |other| (other, one)));
    for (one, other) in pairs {
        let (Some(a), Some(b)) = (places[one].gpu(), places[other].gpu()) else { continue };
        if !(a.reaches(b)? & b.reaches(a)?) {
            apart.push((one, other));
        }
    }
    Ok(apart)
}

/// A program's own GPUs, for [`Hooks::places`](crate::Hooks::places).
pub trait OwnPlaces: Debug + Send + Sync {
    /// Place of the rank or worker `number`.
    fn place(&self, number: usize) -> Result<Place>;
}

/// Copies the values of `tensor` to the host if necessary, as a dense tensor without history.
pub(crate) fn on_host(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.detach().f_to_device(tch::Device::Cpu)?.contiguous())
}

/// A tensor `[rows, dim]` on the memory of `values`.
pub fn from_rows(values: Vec<f32>, rows: usize, dim: usize) -> Result<Tensor> {
    autograd::adopt(values, &[rows as i64, dim as i64])
}

/// The values of a tensor, row after row.
pub fn to_rows(tensor: &Tensor) -> Result<Vec<f32>> {
    let tensor = on_host(tensor)?;
    let mut values = vec![0f32; tensor.numel()];
    tensor.f_copy_data(&mut values, tensor.numel())?;
    Ok(values)
}

/// Each GPU of `places`, and the number of ranks that share it.
pub fn sharing(places: &[Place]) -> Vec<(&Gpu, u64)> {
    let mut found: Vec<(&Gpu, u64)> = Vec::new();
    for gpu in places.iter().filter_map(Place::gpu) {
        match found.iter_mut().find(|(other, _)| other.is_same_device(gpu)) {
            Some((_, ranks)) => *ranks += 1,
            None => found.push((gpu, 1)),
        }
    }
    found
}
