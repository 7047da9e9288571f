//! The edges that operators work on, where they work.

use std::ops::Deref;

use gsplit_kernels::{DeviceEdges, Gpu};

use crate::Result;
use crate::place::Place;

/// The edges of a layer at a [`Place`], from rows of one matrix to rows of another. What can be asked of them is that of
/// [`gsplit_kernels::Edges`].
#[derive(Debug)]
pub struct Edges {
    place: Place,
    host: gsplit_kernels::Edges,
    device: Option<DeviceEdges>,
}

impl Edges {
    /// Edges into target `t` come from rows `sources[indptr[t]..indptr[t + 1]]` of a matrix of `num_sources` rows.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if `indptr` and `sources` do not fit together or into the matrix,
    /// [`Error::Gpu`](crate::Error::Gpu) where the place has no room.
    pub fn new(place: &Place, indptr: Vec<u32>, sources: Vec<u32>, num_sources: usize) -> Result<Self> {
        let host = gsplit_kernels::Edges::new(indptr, sources, num_sources)?;
        let device = place.gpu().map(|gpu| DeviceEdges::upload(gpu, &host)).transpose()?;
        Ok(Self { place: place.clone(), host, device })
    }

    /// The GPU they are on, torch's name for it, and the edges there.
    pub(super) fn on_device(&self) -> Option<(&Gpu, tch::Device, &DeviceEdges)> {
        match (&self.place, &self.device) {
            (Place::Device(gpu, device, ..), Some(edges)) => Some((gpu, *device, edges)),
            _ => None,
        }
    }

    /// Where they are, and with them the tensors that operators take and return.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl Deref for Edges {
    type Target = gsplit_kernels::Edges;

    fn deref(&self) -> &gsplit_kernels::Edges {
        &self.host
    }
}
