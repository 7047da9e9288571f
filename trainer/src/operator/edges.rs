//! Edges that operators work on, on the host or on a GPU.

use std::sync::OnceLock;

use gsplit_kernels::{DeviceEdges, Gpu, check_len};

use crate::Result;
use crate::operator::Place;

/// The edges of a layer at a [`Place`], from rows of one matrix to rows of another.
#[derive(Debug)]
pub struct Edges {
    place: Place,
    /// Edges on the host; for edges made on a GPU a copy, made on first use.
    host: OnceLock<gsplit_kernels::HostEdges>,
    device: Option<DeviceEdges>,
    /// Factor of each edge, if they are not all 1.
    factors: Option<Vec<f32>>,
    /// Numbers of targets, of rows that the sources index, and of edges.
    numbers: [usize; 3],
}

impl Edges {
    /// Edges into target `t` come from rows `sources[indptr[t]..indptr[t + 1]]` of a matrix of
    /// `num_sources` rows.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if `indptr` and `sources` do not match each other or
    /// the matrix, [`Error::Gpu`](crate::Error::Gpu) if the place is out of memory.
    pub fn new(
        place: &Place,
        indptr: Vec<u32>,
        sources: Vec<u32>,
        num_sources: usize,
    ) -> Result<Self> {
        Self::of_host(place, gsplit_kernels::HostEdges::new(indptr, sources, num_sources)?)
    }

    /// Places the edges `host` at `place`.
    pub(crate) fn of_host(place: &Place, host: gsplit_kernels::HostEdges) -> Result<Self> {
        let device = place.gpu().map(|gpu| DeviceEdges::upload(gpu, &host)).transpose()?;
        let numbers = [host.num_targets(), host.num_sources(), host.num_edges()];
        Ok(Self { place: place.clone(), host: host.into(), device, factors: None, numbers })
    }

    /// Wraps the edges `device`, which are on the GPU of `place`.
    pub(crate) fn of_device(place: &Place, device: DeviceEdges) -> Self {
        let numbers = [device.num_targets(), device.num_sources(), device.num_edges()];
        let (place, device) = (place.clone(), Some(device));
        Self { place, host: OnceLock::new(), device, factors: None, numbers }
    }

    /// The same edges with `factors`: sums and means multiply the row of each edge by its factor,
    /// and attention its weight. An empty list means all 1.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) unless there is one factor per edge, or none.
    pub fn with_factors(self, factors: Vec<f32>) -> Result<Self> {
        if !factors.is_empty() {
            check_len("edge factors", self.num_edges(), factors.len())?;
        }
        Ok(Self { factors: Some(factors).filter(|factors| !factors.is_empty()), ..self })
    }

    /// The factor of each edge, if they are not all 1.
    pub fn factors(&self) -> Option<&[f32]> {
        self.factors.as_deref()
    }

    /// Number of targets.
    pub fn num_targets(&self) -> usize {
        self.numbers[0]
    }

    /// Number of rows of the matrix that sources index.
    pub fn num_sources(&self) -> usize {
        self.numbers[1]
    }

    /// Number of edges.
    pub fn num_edges(&self) -> usize {
        self.numbers[2]
    }

    /// The edges on the host. If they are only on a GPU, they are copied, once, which waits for all
    /// work launched before.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if the GPU reports an error.
    pub fn on_host(&self) -> Result<&gsplit_kernels::HostEdges> {
        if let (None, Some((gpu, _, on_gpu))) = (self.host.get(), self.on_device()) {
            let (indptr, sources) = (on_gpu.indptr().to_vec(gpu)?, on_gpu.sources().to_vec(gpu)?);
            let host = gsplit_kernels::HostEdges::new(indptr, sources, self.num_sources())?;
            return Ok(self.host.get_or_init(|| host));
        }
        self.host.get().ok_or_else(|| super::mismatch("edges that are nowhere".into()))
    }

    /// The GPU that holds them, torch's name for it, and the edges there.
    pub(crate) fn on_device(&self) -> Option<(&Gpu, tch::Device, &DeviceEdges)> {
        match (self.place.gpu(), &self.device) {
            (Some(gpu), Some(edges)) => Some((gpu, self.place.device(), edges)),
            _ => None,
        }
    }

    /// Place of the edges, and of the tensors that operators take and return.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Moves the edges on the GPU to another stream
    /// ([`DeviceBuffer::give_to`](gsplit_kernels::DeviceBuffer::give_to)).
    pub(crate) fn give_to(&self, gpu: &Gpu) {
        if let Some(edges) = &self.device {
            edges.give_to(gpu);
        }
    }
}
