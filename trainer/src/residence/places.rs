//! Places at which the ranks of a run compute.

use crate::config::{Config, Device, Dtype, Products};
use crate::job::hooks::Hooks;
use crate::operator::{Engine, Place};
use crate::{Error, Result, autograd};

/// The place of each rank according to `config` and `options`.
pub fn places(config: &Config, hooks: &Hooks) -> Result<Vec<Place>> {
    let dtype = config.model.dtype;
    let is_possible = match (config.system.device, config.system.products) {
        (_, None) => true,
        (Device::Cuda, Some(products)) => products == Products::Tf32 && dtype == Dtype::F32,
        (Device::Cpu, Some(products)) => products != Products::Tf32,
    };
    if !is_possible {
        let problem = "--products is for --device cpu, except tf32, which is for --device cuda with --dtype f32: leave it out";
        return Err(Error::Option(problem.into()));
    }
    if (config.system.device, config.system.products) == (Device::Cuda, Some(Products::Tf32)) {
        autograd::round_to_tf32()?;
    }
    let place = |place| match place {
        Place::Host(_) => Ok(Place::Host(engine(config.system.products, dtype)?)),
        place => Ok(place.with_dtype(dtype)),
    };
    named_places(config, hooks)?.into_iter().map(place).collect()
}

/// The number types with which GPUs compute, as a line for the user; `None` on the host. Products
/// of f32 factors round them to TF32 if torch's own setting allows it.
pub fn number_types(config: &Config) -> Option<String> {
    let types = match config.model.dtype {
        _ if config.system.device == Device::Cpu => return None,
        Dtype::F32 if autograd::rounds_to_tf32() => "f32, with factors of products rounded to TF32",
        Dtype::F32 => "f32; --products tf32 and --dtype bf16 compute on tensor cores",
        Dtype::Bf16 => "rows and factors of products bf16, sums and parameters f32",
        Dtype::F16 => "rows and factors of products f16, sums and parameters f32",
    };
    Some(format!("number types: {types}"))
}

/// The engine of the host's dense products for `products`; the default of this machine if `None`.
fn engine(products: Option<Products>, dtype: Dtype) -> Result<Engine> {
    let Some(products) = products else { return Ok(Engine::of(dtype)) };
    Engine::named(products, dtype).ok_or_else(|| {
        let needed = "--products own needs --dtype bf16 and a processor with AVX-512 BF16";
        Error::Option(format!("{needed}: leave it out, or name another"))
    })
}

/// Like [`places`], for f32.
fn named_places(config: &Config, hooks: &Hooks) -> Result<Vec<Place>> {
    let ranks = config.num_ranks();
    if let Some(own) = &hooks.places {
        return (0..ranks).map(|rank| own.place(rank)).collect();
    }
    let named = config.system.gpus.as_ref().map_or(&[][..], |gpus| &gpus.0);
    match config.system.device {
        Device::Cpu => {
            check_host(named, config.model.dtype)?;
            Ok(vec![Place::host(); ranks])
        }
        Device::Cuda if hooks.process.is_some() => place_of_process(hooks, ranks),
        Device::Cuda if named.is_empty() => (0..ranks).map(Place::open).collect(),
        Device::Cuda if named.len() == ranks => {
            named.iter().map(|&ordinal| Place::open(ordinal)).collect()
        }
        Device::Cuda => Err(Error::Option(format!(
            "--gpus names {} GPUs, the number of ranks is {ranks}: name one for each rank; one may \
             be named more than once",
            named.len()
        ))),
    }
}

/// Refuses GPUs that are `named` for the host, and f16, in which it does not compute.
pub fn check_host(named: &[usize], dtype: Dtype) -> Result<()> {
    let problem = if !named.is_empty() {
        "--gpus is for --device cuda: leave it out, or give both"
    } else if dtype == Dtype::F16 {
        "--dtype f16 is for --device cuda: on a CPU choose bf16, or f32"
    } else {
        return Ok(());
    };
    Err(Error::Option(problem.into()))
}

/// This process's GPU, for every rank.
fn place_of_process(hooks: &Hooks, ranks: usize) -> Result<Vec<Place>> {
    let gpu = hooks.process.as_ref().map_or(Ok(0), |process| process.gpu())?;
    Ok(vec![Place::open(gpu)?; ranks])
}
