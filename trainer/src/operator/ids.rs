//! Vertices of a mini-batch, on the host or on its GPU.
//!
//! A mini-batch has its vertices where it was sampled. The copy on the other side is made on first
//! use and kept.

use std::sync::{Arc, OnceLock};

use gsplit_kernels::{DeviceBuffer, DeviceSlice, Gpu};

use crate::{Error, Result};

/// A list of vertices on the host, on its rank's GPU, or on both. Clones share the list.
#[derive(Clone, Debug)]
pub struct Ids(Arc<Copies>);

/// Copies of the list, at least one of which exists.
#[derive(Debug)]
struct Copies {
    len: usize,
    host: OnceLock<Vec<u32>>,
    /// The list on the GPU: the first ids of this buffer.
    device: OnceLock<Arc<DeviceBuffer<u32>>>,
}

impl Ids {
    /// Wraps `ids`, which are on a GPU.
    pub(crate) fn on_device(ids: DeviceBuffer<u32>) -> Self {
        let (len, device) = (ids.len(), Arc::new(ids).into());
        Self(Arc::new(Copies { len, host: OnceLock::new(), device }))
    }

    /// The first `len` vertices of a list on a GPU, in the same memory.
    pub(crate) fn first_on_device(&self, len: usize) -> Result<Self> {
        let all =
            self.0.device.get().ok_or_else(|| Error::Option("vertices are on no GPU".into()))?;
        all.slice().part(0, len)?;
        Ok(Self(Arc::new(Copies { len, host: OnceLock::new(), device: all.clone().into() })))
    }

    /// Number of vertices.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The vertices, on the host. If they are only on a GPU, this waits for all work launched
    /// before.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if the GPU reports an error.
    pub fn on_host(&self) -> Result<&[u32]> {
        let copies = &self.0;
        match (copies.host.get(), copies.device.get()) {
            (None, Some(device)) => {
                let host = device.first_to_vec(copies.len)?;
                Ok(copies.host.get_or_init(|| host))
            }
            _ => Ok(copies.host.get_or_init(Vec::new)),
        }
    }

    /// The vertices on `gpu`, which must be the same at every call.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if it is out of memory.
    pub fn on_gpu(&self, gpu: &Gpu) -> Result<DeviceSlice<'_, u32>> {
        let copies = &self.0;
        if let Some(device) = copies.device.get() {
            return Ok(device.slice().part(0, copies.len)?);
        }
        let device = Arc::new(gpu.upload(self.on_host()?)?);
        Ok(copies.device.get_or_init(|| device).slice())
    }

    /// Moves the copy on the GPU to another stream ([`DeviceBuffer::give_to`]).
    pub(crate) fn give_to(&self, gpu: &Gpu) {
        if let Some(device) = self.0.device.get() {
            device.give_to(gpu);
        }
    }
}

impl From<Vec<u32>> for Ids {
    fn from(ids: Vec<u32>) -> Self {
        Self(Arc::new(Copies { len: ids.len(), host: ids.into(), device: OnceLock::new() }))
    }
}

impl From<&[u32]> for Ids {
    fn from(ids: &[u32]) -> Self {
        ids.to_vec().into()
    }
}

impl From<&Ids> for Ids {
    fn from(ids: &Ids) -> Self {
        ids.clone()
    }
}

impl FromIterator<u32> for Ids {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        ids.into_iter().collect::<Vec<u32>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_copy_follows_from_the_other() {
        let gpu = gsplit_gpu_sim::under_test(1);
        for values in [vec![], vec![4u32, 1, 7]] {
            let host = Ids::from(values.clone());
            let on_gpu = Ids::on_device(
                host.on_gpu(&gpu).unwrap().to_vec(&gpu).and_then(|ids| gpu.upload(&ids)).unwrap(),
            );
            assert_eq!((on_gpu.len(), on_gpu.is_empty()), (values.len(), values.is_empty()));
            assert_eq!(on_gpu.clone().on_host().unwrap(), values);
            let address = on_gpu.on_gpu(&gpu).unwrap().address();
            assert_eq!(on_gpu.on_gpu(&gpu).unwrap().address(), address, "one copy");
            for len in 0..=values.len() {
                let first = on_gpu.first_on_device(len).unwrap();
                assert_eq!((first.len(), first.on_gpu(&gpu).unwrap().address()), (len, address));
                assert_eq!(first.on_host().unwrap(), &values[..len]);
            }
            assert!(
                on_gpu.first_on_device(4).is_err()
                    && Ids::from(values.clone()).first_on_device(0).is_err()
            );
            assert_eq!(Ids::from(&on_gpu).on_host().unwrap(), host.on_host().unwrap());
        }
    }
}
