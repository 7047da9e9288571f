//! Facts about GPUs that the driver reports without using them.
//!
//! Unsafe code of this file: calls of the driver's C functions.
#![allow(unsafe_code)]

use cudarc::driver::{result, sys};

use super::driver::refused;
use super::survey::{GpuFacts, Link};
use super::{GpuError, library};

/// How many GPUs the driver shows.
pub(super) fn count() -> Result<usize, GpuError> {
    library::driver()?;
    result::init().map_err(refused("cuInit"))?;
    Ok(result::device::get_count().map_err(refused("cuDeviceGetCount"))? as usize)
}

/// The driver's handle of GPU `ordinal`.
pub(super) fn device(ordinal: usize) -> Result<sys::CUdevice, GpuError> {
    result::device::get(ordinal as i32).map_err(refused("cuDeviceGet"))
}

/// An attribute of a GPU.
pub(super) fn attribute(
    device: sys::CUdevice,
    which: sys::CUdevice_attribute,
) -> Result<i32, GpuError> {
    // SAFETY: the device exists.
    unsafe { result::device::get_attribute(device, which) }.map_err(refused("cuDeviceGetAttribute"))
}

/// Compute capability of a GPU, e.g. (9, 0).
pub(super) fn compute_capability(device: sys::CUdevice) -> Result<(u32, u32), GpuError> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    };
    let number = |which| attribute(device, which).map(|number| number as u32);
    Ok((
        number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// Facts of GPU `ordinal`, found without using it.
pub(super) fn describe(ordinal: usize) -> Result<GpuFacts, GpuError> {
    use sys::CUdevice_attribute as Attribute;
    let handle = device(ordinal)?;
    let attribute = |which| attribute(handle, which);
    Ok(GpuFacts {
        name: result::device::get_name(handle).map_err(refused("cuDeviceGetName"))?,
        compute_capability: compute_capability(handle)?,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)? as u32,
        most_shared_bytes: attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )? as u32,
        pins_mapped_files: attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
        )? != 0,
        host_addresses: attribute(
            Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
        )? != 0,
    })
}

/// How GPU `from` reaches GPU `to`.
pub(super) fn link(from: usize, to: usize) -> Result<Link, GpuError> {
    use sys::CUdevice_P2PAttribute as Attribute;
    let (from, to) = (device(from)?, device(to)?);
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: both devices exist.
        let asked = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, which, from, to) }.result();
        asked.map(|()| value != 0).map_err(refused("cuDeviceGetP2PAttribute"))
    };
    if !attribute(Attribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? {
        return Ok(Link::ThroughHost);
    }
    // PCIe has no atomic operations between GPUs.
    let atomics = attribute(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)?;
    Ok(if atomics { Link::NvLink } else { Link::Pcie })
}
