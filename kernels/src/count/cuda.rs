//! Pre-sample counters on a GPU.
//!
//! Returns: the totals of [`Counters`](crate::Counters). Input: mini-batches of one graph, one
//! after another, of distinct vertices, as a [`DeviceSampler`](crate::DeviceSampler) leaves them.
//! Idea: within one launch no vertex occurs twice, so plain additions are enough; edges are counted
//! by atomic additions without a result, whose sum does not depend on order. Cost: 12 bytes per
//! vertex and 4 per edge, in the GPU's memory. Limit: a counter ends at `u32::MAX`. A count that
//! could pass it is an error: see [`DeviceCounters::into_parts`].

use super::{CounterParts, frontiers};
use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError, Module, arguments};
use crate::error::check_len;
use crate::sample::DeviceGraph;

pub(crate) static MODULE: Module = Module { name: "count", source: include_str!("cuda.cu") };

/// Counts of a graph's vertices and edges, on a GPU.
#[derive(Debug)]
pub struct DeviceCounters {
    gpu: Gpu,
    input: DeviceBuffer<u32>,
    appear: DeviceBuffer<u32>,
    work: DeviceBuffer<u32>,
    edge: DeviceBuffer<u32>,
}

impl DeviceCounters {
    /// Counters of a graph of this size, all 0.
    pub fn new(gpu: &Gpu, num_vertices: usize, num_edges: usize) -> Result<Self, GpuError> {
        Ok(Self {
            gpu: gpu.clone(),
            input: gpu.zeros(num_vertices)?,
            appear: gpu.zeros(num_vertices)?,
            work: gpu.zeros(num_vertices)?,
            edge: gpu.zeros(num_edges)?,
        })
    }

    /// Bytes of GPU memory that counters of such a graph take.
    pub fn bytes(num_vertices: usize, num_edges: usize) -> u64 {
        12 * num_vertices as u64 + 4 * num_edges as u64
    }

    /// Counts the vertices of a mini-batch, as
    /// [`Counters::count_vertices`](crate::Counters::count_vertices) does.
    pub fn count_vertices(
        &mut self,
        mixed_frontier: DeviceSlice<'_, u32>,
        sizes: &[usize],
    ) -> Result<(), GpuError> {
        for (part, appearances) in frontiers(mixed_frontier.len(), sizes)? {
            let part = mixed_frontier.part(part.start, part.end)?;
            let (len, appear, input) = (part.len(), &self.appear, &self.input);
            let of = arguments![part, len, appearances, input.len(), appear, input];
            self.gpu.run(MODULE.kernel("count_vertices"), part.len(), &of)?;
        }
        Ok(())
    }

    /// `work` and `edge`, for a layer from `graph`.
    pub(crate) fn lend(
        &mut self,
        graph: &DeviceGraph<'_>,
    ) -> Result<(DeviceSlice<'_, u32>, DeviceSlice<'_, u32>), GpuError> {
        check_len("counters of vertices", graph.num_vertices(), self.work.len())?;
        check_len("counters of edges", graph.num_edges(), self.edge.len())?;
        Ok((self.work.slice(), self.edge.slice()))
    }

    /// The counts, on the host.
    pub fn into_parts(self) -> Result<CounterParts, GpuError> {
        Ok(CounterParts {
            input: self.input.to_vec()?,
            appear: self.appear.to_vec()?,
            work: self.work.to_vec()?,
            edge: self.edge.to_vec()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counters;
    use crate::error::KernelError;

    // Counting while sampling is tested with the sampler.

    #[test]
    fn vertices_are_counted_as_on_the_host() {
        for order in 0..4 {
            let gpu = Gpu::under_test(order);
            let (mut counters, mut expected) =
                (DeviceCounters::new(&gpu, 900, 0).unwrap(), Counters::new(900, 0));
            for step in 0..5u32 {
                let mixed_frontier: Vec<u32> =
                    (0..600).map(|i| (i * 7 + step * 13) % 900).collect();
                let sizes = [[1, 3, 600], [0, 0, 600], [599, 600, 600]][step as usize % 3];
                expected.count_vertices(&mixed_frontier, &sizes).unwrap();
                let mixed_frontier = gpu.upload(&mixed_frontier).unwrap();
                counters.count_vertices(mixed_frontier.slice(), &sizes).unwrap();
            }
            assert!(counters.into_parts().unwrap() == expected.into_parts().unwrap());
        }
    }

    #[test]
    fn bad_input_is_refused() {
        let gpu = Gpu::under_test(0);
        let mixed_frontier = gpu.upload(&[0u32, 1]).unwrap();
        let mut counters = DeviceCounters::new(&gpu, 2, 1).unwrap();
        for sizes in [&[][..], &[1], &[2, 1], &[3, 2], &[3]] {
            let error = counters.count_vertices(mixed_frontier.slice(), sizes);
            assert!(matches!(error, Err(GpuError::Input(KernelError::Length { .. }))), "{sizes:?}");
        }
    }
}
