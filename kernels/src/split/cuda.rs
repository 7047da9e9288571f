//! Splitting on a GPU.
//!
//! Returns: a [`DeviceSplit`], equal to the host's [`Split`](super::Split). Input: fewer than 2^32 ids, and the owner of every
//! vertex. Idea: a counting sort in which each warp has a stretch of the ids and counts of its own. Cost: two reads of the ids
//! and of their owners, which are at random places; 4 bytes for each rank and stretch. The host waits once, for the counts.

use crate::cuda::{Argument, DeviceBuffer, DeviceSlice, Gpu, GpuError, Kernel, Module, Shape};
use crate::error::KernelError;
use crate::scan::cuda::sum_before;

pub(crate) static MODULE: Module = Module { name: "split", source: include_str!("cuda.cu") };

const THREADS: u32 = 256;
/// Ids of a warp; more where there are so many ranks that their counts would take more than the ids.
const STRETCH: usize = 512;

fn kernel(name: &'static str) -> Kernel {
    Kernel { module: &MODULE, name }
}

/// Positions of a list of vertices, grouped by owner; the positions are on a GPU.
#[derive(Debug)]
pub struct DeviceSplit {
    /// How many vertices each rank owns.
    pub counts: Vec<usize>,
    /// Positions in the list: first those of rank 0 in their order, then those of rank 1, and so on.
    pub order: DeviceBuffer<u32>,
}

/// Who owns a vertex.
#[derive(Clone, Copy, Debug)]
pub enum DeviceOwners<'a> {
    /// A rank for every vertex of the graph.
    Map(DeviceSlice<'a, u16>),
    /// Rank `v` modulo the number of ranks owns vertex `v`.
    InTurn,
}

impl<'a> DeviceOwners<'a> {
    /// Where their ranks are, if they are listed, and of how many vertices.
    fn listed(self) -> (u64, usize) {
        match self {
            Self::Map(owners) => (owners.address(), owners.len()),
            Self::InTurn => (0, 1 << 32),
        }
    }
}

/// Groups the positions of `ids` by owner, which is a rank in `0..ranks`.
///
/// # Errors
/// [`KernelError::Owner`] for the first vertex whose owner is no rank, [`KernelError::VertexOutOfRange`] for one that has
/// none; [`KernelError::TooManyItems`]; what the GPU reports.
pub fn split_on_device(
    gpu: &Gpu,
    ids: DeviceSlice<'_, u32>,
    owners: DeviceOwners<'_>,
    ranks: usize,
) -> Result<DeviceSplit, GpuError> {
    let len = ids.len();
    if u32::try_from(len).is_err() {
        return Err(KernelError::TooManyItems { what: "vertices to split by owner", got: len }.into());
    }
    let asked = ranks;
    let ranks = match owners {
        // Owners have 16 bits, so no further rank owns anything.
        DeviceOwners::Map(_) => asked.min(1 << 16),
        DeviceOwners::InTurn if asked == 0 => {
            return Err(KernelError::Length { what: "ranks to deal vertices to", expected: 1, got: 0 }.into());
        }
        DeviceOwners::InTurn => asked,
    };
    let (listed, num_vertices) = owners.listed();
    let stretch = STRETCH.max(ranks.next_multiple_of(32));
    let stretches = len.div_ceil(stretch).max(1);
    let mut counts = gpu.zeros::<u32>(ranks * stretches + 1)?;
    let (status, order) = (gpu.zeros::<u64>(1)?, gpu.alloc(len)?);
    let shared: [Argument; 7] = [
        ids.into(),
        (len as u64).into(),
        listed.into(),
        (num_vertices as u64).into(),
        (ranks as u32).into(),
        (stretch as u32).into(),
        (stretches as u64).into(),
    ];
    let shape = if len > 0 { Shape::per_warp(stretches, THREADS) } else { Shape::per_item(0, THREADS) };
    let (at, to): (Argument, Argument) = ((&counts).into(), (&order).into());
    gpu.launch(kernel("split_count"), shape, &[&shared[..], &[at, (&status).into()]].concat())?;
    sum_before(gpu, &mut counts.slice_mut(), None)?;
    let starts = gpu.alloc::<u32>(ranks + 1)?;
    let arguments = [at, (stretches as u64).into(), (ranks as u32).into(), (&starts).into()];
    gpu.launch(kernel("split_starts"), Shape::per_item(ranks + 1, THREADS), &arguments)?;
    gpu.launch(kernel("split_place"), shape, &[&shared[..], &[at, to, (&status).into()]].concat())?;

    let [starts, status] = gpu.read([starts.slice().as_bytes(), status.slice().as_bytes()])?;
    let (starts, status) = (starts.values::<u32>(), status.values::<u64>());
    if let (DeviceOwners::Map(owners), Some(&status @ 1..)) = (owners, status.first()) {
        return Err(reported(gpu, ids, owners, asked, status)?.into());
    }
    let mut counts: Vec<usize> = starts.windows(2).map(|ends| (ends[1] - ends[0]) as usize).collect();
    counts.resize(asked, 0);
    Ok(DeviceSplit { counts, order })
}

/// What the kernels have found: `status`.
fn reported(
    gpu: &Gpu,
    ids: DeviceSlice<'_, u32>,
    owners: DeviceSlice<'_, u16>,
    ranks: usize,
    status: u64,
) -> Result<KernelError, GpuError> {
    let at = (!status >> 3) as usize;
    let vertex = ids.part(at, at + 1)?.to_vec(gpu)?[0];
    if vertex as usize >= owners.len() {
        return Ok(KernelError::VertexOutOfRange { vertex, num_vertices: owners.len() });
    }
    let owner = owners.part(vertex as usize, vertex as usize + 1)?.to_vec(gpu)?[0];
    Ok(KernelError::Owner { vertex, owner: owner.into(), ranks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};
    use crate::{Split, split_by_owner};

    #[test]
    fn groups_are_those_of_the_host() {
        let cases =
            [(0, 3), (1, 1), (33, 2), (5000, 4), (3000, 1000), (700, 40_000), (40_000, 9), (512, 70_000), (0, 0)];
        for (order, (len, ranks)) in cases.into_iter().enumerate() {
            let gpu = Gpu::under_test(order as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(6, Stream::Generate), order as u32);
            let ids: Vec<u32> = (0..len).map(|_| draws.below(1000)).collect();
            // Rank 1 owns nothing, where there are others.
            let owners: Vec<u16> =
                (0..1000).map(|v| v * 7 % ranks.clamp(1, 65_000)).map(|r| if r == 1 { 0 } else { r as u16 }).collect();
            let expected = split_by_owner(&ids, ranks, |v| owners[v as usize].into()).unwrap();
            let (ids, owners) = (gpu.upload(&ids).unwrap(), gpu.upload(&owners).unwrap());
            let waits = gpu.counts().waits;
            let found = split_on_device(&gpu, ids.slice(), DeviceOwners::Map(owners.slice()), ranks).unwrap();
            if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
                assert_eq!(gpu.counts().waits - waits, 1);
            }
            let found = Split { counts: found.counts, order: found.order.to_vec().unwrap() };
            assert!(found == expected, "{len} ids, {ranks} ranks");
            if ranks > 0 {
                let found = split_on_device(&gpu, ids.slice(), DeviceOwners::InTurn, ranks).unwrap();
                let found = Split { counts: found.counts, order: found.order.to_vec().unwrap() };
                let expected = split_by_owner(&ids.to_vec().unwrap(), ranks, |v| v as usize % ranks).unwrap();
                assert!(found == expected, "{len} ids in turn, {ranks} ranks");
            }
        }
    }

    #[test]
    fn owners_that_are_no_ranks_are_refused() {
        let gpu = Gpu::under_test(0);
        let owners = gpu.upload(&[0u16, 1, 2, 9]).unwrap();
        let error = |ids: &[u32], ranks| {
            let ids = gpu.upload(ids).unwrap();
            split_on_device(&gpu, ids.slice(), DeviceOwners::Map(owners.slice()), ranks).unwrap_err()
        };
        assert_eq!(error(&[0, 2, 3], 3), GpuError::Input(KernelError::Owner { vertex: 3, owner: 9, ranks: 3 }));
        assert_eq!(error(&[0, 2, 3], 2), GpuError::Input(KernelError::Owner { vertex: 2, owner: 2, ranks: 2 }));
        assert_eq!(error(&[0], 0), GpuError::Input(KernelError::Owner { vertex: 0, owner: 0, ranks: 0 }));
        let beyond = KernelError::VertexOutOfRange { vertex: u32::MAX, num_vertices: 4 };
        assert_eq!(error(&[0, u32::MAX, 9], 3), GpuError::Input(beyond));
        let none = split_on_device(&gpu, gpu.zeros(1).unwrap().slice(), DeviceOwners::InTurn, 0);
        assert!(matches!(none, Err(GpuError::Input(KernelError::Length { .. }))), "{none:?}");
    }
}
