//! Where tensors lie and what computes with them: the host, or one GPU.
//!
//! A [`Place`] goes with what lies there: a [`Model`](crate::model::Model) has one, so have the edges of a layer
//! ([`operator::Edges`](crate::operator::Edges)), and operators take it from the edges or as their first argument. On the
//! host they compute with slices of the tensors, on a GPU with the kernels beside them; the numbers are the same up to
//! rounding. Everything that a rank computes happens in the order of its calls: torch launches on the null stream, and so do the
//! kernels. Mini-batches that a GPU samples ahead are made on a stream of their own and handed over when they are done.
//!
//! Tests run the same code on an emulated GPU, whose memory is the host's: torch's tensors are then on the host too. Some run again on
//! fakes of CUDA and of torch's part for it, where they are not (`fake`).

use std::str::FromStr;

use gsplit_kernels::{Gpu, GpuError, before_out_of_memory, load_torch_cuda};
use tch::{Kind, Tensor};

use crate::autograd::{TensorValue, device_values_mut_of};
use crate::config::{Device, Dtype, TrainConfig};
use crate::operator::{Engine, Products};
use crate::options::RunOptions;
use crate::{Error, Result, autograd};

/// Where tensors lie and what computes with them. Clones are the same place.
#[derive(Clone, Debug)]
pub enum Place {
    /// The host; dense products by this engine.
    Host(Engine),
    /// A GPU, torch's name for it, and what factors of products and rows are rounded to there.
    Device(Gpu, tch::Device, Dtype),
}

impl Dtype {
    /// What torch calls it.
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

    /// GPU `ordinal`, from 0, which several ranks may share.
    ///
    /// # Errors
    /// [`Error::Gpu`] without a driver, compiler, such a GPU, or torch for CUDA.
    pub fn open(ordinal: usize) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        // torch looks for its CUDA part once, at the first question about it: it has to be there by then.
        load_torch_cuda()?;
        before_out_of_memory(|| drop(autograd::give_back_memory()));
        let devices = tch::Cuda::device_count().max(0) as usize;
        if ordinal >= devices {
            return Err(GpuError::NoDevice { ordinal, devices }.into());
        }
        Ok(Self::Device(gpu, tch::Device::Cuda(ordinal), Dtype::F32))
    }

    /// An emulated GPU: slow, for tests.
    #[cfg(test)]
    pub fn emulated(order: u32) -> Self {
        Self::Device(Gpu::emulated(order), tch::Device::Cpu, Dtype::F32)
    }

    /// What a test runs on: an emulated GPU, or GPU 0 where `GSPLIT_TEST_GPU` is set.
    #[cfg(test)]
    pub fn under_test(order: u32) -> Self {
        match std::env::var_os("GSPLIT_TEST_GPU") {
            None => Self::emulated(order),
            Some(_) => Self::open(0).unwrap_or_else(|error| panic!("GSPLIT_TEST_GPU is set, but {error}")),
        }
    }

    /// The same place with products, and on a GPU rows, of this type.
    pub fn with_dtype(self, dtype: Dtype) -> Self {
        match self {
            Self::Host(_) => Self::Host(Engine::of(dtype)),
            Self::Device(gpu, device, _) => Self::Device(gpu, device, dtype),
        }
    }

    /// The type of the rows that layers read and return here. (The host rounds the factors of products alone.)
    pub fn row_dtype(&self) -> Dtype {
        match self {
            Self::Host(_) => Dtype::F32,
            Self::Device(.., dtype) => *dtype,
        }
    }

    /// [`Place::row_dtype`], as torch calls it.
    pub fn row_kind(&self) -> Kind {
        self.row_dtype().kind()
    }

    /// The GPU, if it is one.
    pub fn gpu(&self) -> Option<&Gpu> {
        match self {
            Self::Host(_) => None,
            Self::Device(gpu, ..) => Some(gpu),
        }
    }

    /// torch's name for it.
    pub fn device(&self) -> tch::Device {
        match self {
            Self::Host(_) => tch::Device::Cpu,
            Self::Device(_, device, _) => *device,
        }
    }

    /// `values` here, as a vector. On a GPU this waits for nothing, up to 64 KiB.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn upload<T: TensorValue + tch::kind::Element>(&self, values: &[T]) -> Result<Tensor> {
        let Self::Device(gpu, device, _) = self else { return Ok(Tensor::from_slice(values)) };
        let mut tensor = Tensor::f_empty([values.len() as i64], (<T as TensorValue>::KIND, *device))?;
        device_values_mut_of(*device, &mut tensor)?.upload(gpu, values)?;
        Ok(tensor)
    }

    /// `tensor` here: itself if it is here already, else a copy.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn bring(&self, tensor: &Tensor) -> Result<Tensor> {
        match tensor.device() == self.device() {
            true => Ok(tensor.shallow_clone()),
            false => Ok(tensor.f_to_device(self.device())?),
        }
    }
}

/// GPUs by their numbers, as `0,1,2,3` on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuList(pub Vec<usize>);

impl FromStr for GpuList {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let numbers = text.split(',').map(|number| number.trim().parse());
        numbers.collect::<std::result::Result<_, _>>().map(Self).map_err(|_| "expected numbers such as 0,1,2,3".into())
    }
}

impl std::fmt::Display for GpuList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
    }
}

/// The place of each rank that `config` and `options` ask for.
///
/// # Errors
/// [`Error::Option`] if there are not as many GPUs named as ranks; what [`Place::open`] says.
pub fn places(config: &TrainConfig, options: &RunOptions) -> Result<Vec<Place>> {
    let dtype = config.model.dtype;
    if config.device == Device::Cuda && options.products.is_some() {
        return Err(Error::Option("--products is for --device cpu: leave it out".into()));
    }
    let place = |place| match place {
        Place::Host(_) => Ok(Place::Host(engine(options.products, dtype)?)),
        place => Ok(place.with_dtype(dtype)),
    };
    named_places(config, options)?.into_iter().map(place).collect()
}

/// The engine of the host's dense products that `products` asks for; this machine's when `None`.
fn engine(products: Option<Products>, dtype: Dtype) -> Result<Engine> {
    let Some(products) = products else { return Ok(Engine::of(dtype)) };
    Engine::named(products, dtype).ok_or_else(|| {
        let needed = "--products own needs --dtype bf16 and a processor with AVX-512 BF16, or f32 and AMX";
        Error::Option(format!("{needed}: leave it out, or name another"))
    })
}

/// [`places`] for f32.
fn named_places(config: &TrainConfig, options: &RunOptions) -> Result<Vec<Place>> {
    let ranks = config.num_ranks();
    #[cfg(test)]
    if let Some(order) = options.emulated {
        let place = |_| match options.emulated_bytes {
            Some(bytes) => Place::Device(Gpu::emulated_of(order, bytes), tch::Device::Cpu, Dtype::F32),
            None => Place::under_test(order),
        };
        return Ok((0..ranks).map(place).collect());
    }
    let named = options.gpus.as_ref().map_or(&[][..], |gpus| &gpus.0);
    match config.device {
        Device::Cpu if !named.is_empty() => {
            Err(Error::Option("--gpus is for --device cuda: leave it out, or give both".into()))
        }
        Device::Cpu => {
            check_host_dtype(config.model.dtype)?;
            Ok(vec![Place::host(); ranks])
        }
        Device::Cuda if options.process.is_some() => place_of_process(options, ranks),
        Device::Cuda if named.is_empty() => (0..ranks).map(Place::open).collect(),
        Device::Cuda if named.len() == ranks => named.iter().map(|&ordinal| Place::open(ordinal)).collect(),
        Device::Cuda => Err(Error::Option(format!(
            "--gpus names {} GPUs, the number of ranks is {ranks}: name one for each rank; one may be named more than once",
            named.len()
        ))),
    }
}

/// Refuses the type that the host does not compute in.
pub(crate) fn check_host_dtype(dtype: Dtype) -> Result<()> {
    match dtype {
        Dtype::F32 | Dtype::Bf16 => Ok(()),
        Dtype::F16 => Err(Error::Option("--dtype f16 is for --device cuda: on a CPU choose bf16, or f32".into())),
    }
}

/// This process's GPU, in place of every rank's.
fn place_of_process(options: &RunOptions, ranks: usize) -> Result<Vec<Place>> {
    let gpu = options.process.as_ref().map_or(Ok(0), |process| process.gpu())?;
    Ok(vec![Place::open(gpu)?; ranks])
}

/// The values of `tensor` as a dense tensor on the host, without history.
pub(crate) fn on_host(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.detach().f_to_device(tch::Device::Cpu)?.contiguous())
}
