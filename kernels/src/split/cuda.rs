//! Splitting on a GPU.
//!
//! Returns: the host's [`Split`](super::Split), but with the vertices of one rank after all
//! others'. Input: fewer than 2^32 ids, whose number is on the GPU, and the owner of every vertex.
//! Idea: a counting sort in which each warp has a stretch of the ids and its own counts. Cost: two
//! reads of the ids and of their owners, which are at random places; 4 bytes for each rank and
//! stretch. The host does not wait.

use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError, Module, Shape, arguments};
use crate::error::KernelError;
use crate::scan::cuda::sum_before;

pub(crate) static MODULE: Module = Module { name: "split", source: include_str!("cuda.cu") };

/// Ids per warp; more if there are enough ranks that their counts would take more memory than the
/// ids.
const STRETCH: usize = 512;

/// Owners of vertices.
#[derive(Clone, Copy, Debug)]
pub enum DeviceOwners<'a> {
    /// A rank for every vertex of the graph.
    Map(DeviceSlice<'a, u16>),
    /// Rank `v` modulo the number of ranks owns vertex `v`.
    InTurn,
}

impl<'a> DeviceOwners<'a> {
    /// Address of the owners, if they are listed, and the number of vertices.
    fn listed(self) -> (u64, usize) {
        match self {
            Self::Map(owners) => (owners.address(), owners.len()),
            Self::InTurn => (0, 1 << 32),
        }
    }
}

/// Vertices to be grouped by owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByOwner<'a> {
    /// The vertices, and room for more.
    pub ids: DeviceSlice<'a, u32>,
    /// Address of their number.
    pub len: u64,
    pub owners: DeviceOwners<'a>,
    pub ranks: usize,
    /// The rank whose vertices come after all others.
    pub last: usize,
    /// Address of a word that is zero, for the error code.
    pub status: u64,
}

/// Vertices by owner. The lengths are bounds.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Positions in `ids`.
    pub order: DeviceBuffer<u32>,
    /// The vertices at these positions.
    pub ids: DeviceBuffer<u32>,
    /// Starts of the groups: of each rank except `last`, then of `last`, then the end.
    pub starts: DeviceBuffer<u32>,
}

impl ByOwner<'_> {
    /// Groups the vertices.
    pub(crate) fn group(&self, gpu: &Gpu) -> Result<Groups, GpuError> {
        let Self { ids, len, owners, ranks, last, status } = *self;
        if last >= ranks || ranks > u32::MAX as usize {
            return Err(KernelError::Length {
                what: "ranks to split vertices by",
                expected: last + 1,
                got: ranks,
            }
            .into());
        }
        let (listed, num_vertices) = owners.listed();
        let stretch = STRETCH.max(ranks.next_multiple_of(32));
        let stretches = ids.len().div_ceil(stretch).max(1);
        let mut counts = gpu.alloc::<u32>(ranks * stretches + 1)?;
        let (order, grouped) = (gpu.alloc::<u32>(ids.len())?, gpu.alloc::<u32>(ids.len())?);
        let starts = gpu.alloc::<u32>(ranks + 1)?;
        let of_ranks =
            arguments![ids, len, listed, num_vertices, ranks as u32, last as u32, stretch as u32];
        let shared = [&of_ranks[..], &arguments![stretches, status, &counts]].concat();
        let shape = Shape::per_item(32 * stretches);
        gpu.launch(MODULE.kernel("split_count"), shape, &shared)?;
        sum_before(gpu, &mut counts.slice_mut(), None)?;
        let to = arguments![&order, &grouped, &starts];
        gpu.launch(MODULE.kernel("split_place"), shape, &[&shared[..], &to].concat())?;
        Ok(Groups { order, ids: grouped, starts })
    }
}

/// The number of vertices of each rank, given the starts of the groups.
pub(crate) fn counts(starts: &[u32], last: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        starts.windows(2).map(|ends| (ends[1] - ends[0]) as usize).collect();
    if let Some(of_last) = counts.pop() {
        counts.insert(last, of_last);
    }
    counts
}

/// Checks `ids`; `status` is the address of the error code.
pub(crate) fn check(
    gpu: &Gpu,
    ids: DeviceSlice<'_, u32>,
    owners: DeviceOwners<'_>,
    ranks: usize,
    status: u64,
) -> Result<(), GpuError> {
    match (owners, status) {
        (DeviceOwners::Map(owners), 1..) => Err(reported(gpu, ids, owners, ranks, status)?.into()),
        _ => Ok(()),
    }
}

/// Reads `status`, the error code that the kernels have set.
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

    /// Splits `ids` by `owners`, and moves the vertices of rank `last` back to where the host has
    /// them; or the error.
    fn split(
        gpu: &Gpu,
        ids: &[u32],
        owners: DeviceOwners<'_>,
        [ranks, last]: [usize; 2],
    ) -> Result<Split, GpuError> {
        let words = gpu.upload(&[ids.len() as u64, 0])?;
        let at = words.slice().address();
        // Room for more ids than there are.
        let on_gpu = gpu.upload(&[ids, &[u32::MAX; 700]].concat())?;
        let waits = gpu.counts().waits;
        let by_owner =
            ByOwner { ids: on_gpu.slice(), len: at, owners, ranks, last, status: at + 8 };
        let Groups { order, ids: grouped, starts } = by_owner.group(gpu)?;
        assert_eq!(gpu.counts().waits, waits);
        check(gpu, on_gpu.slice(), owners, ranks, words.to_vec()?[1])?;
        let counts = counts(&starts.to_vec()?, last);
        let [mut order, grouped] = [order, grouped]
            .map(|list| list.slice().part(0, ids.len()).unwrap().to_vec(gpu).unwrap());
        assert!(order.iter().map(|&at| ids[at as usize]).eq(grouped));
        let of_last = order.split_off(ids.len() - counts[last]);
        let before: usize = counts[..last].iter().sum();
        order.splice(before..before, of_last);
        Ok(Split { counts, order })
    }

    #[test]
    fn groups_are_those_of_the_host() {
        let cases = [
            (0, 3),
            (1, 1),
            (33, 2),
            (5000, 4),
            (3000, 1000),
            (700, 40_000),
            (40_000, 9),
            (512, 70_000),
        ];
        for (case, (len, ranks)) in cases.into_iter().enumerate() {
            let gpu = Gpu::under_test(case as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(6, Stream::Generate), case as u32);
            let ids: Vec<u32> = (0..len).map(|_| draws.below(1000)).collect();
            // Rank 1 owns nothing, where there are others.
            let owners: Vec<u16> = (0..1000)
                .map(|v| v * 7 % ranks.min(65_000))
                .map(|r| if r == 1 { 0 } else { r as u16 })
                .collect();
            let on_gpu = gpu.upload(&owners).unwrap();
            for last in [0, ranks / 2, ranks - 1] {
                let found =
                    split(&gpu, &ids, DeviceOwners::Map(on_gpu.slice()), [ranks, last]).unwrap();
                let expected = split_by_owner(&ids, ranks, |v| owners[v as usize].into()).unwrap();
                assert!(found == expected, "{len} ids, {ranks} ranks");
                let found = split(&gpu, &ids, DeviceOwners::InTurn, [ranks, last]).unwrap();
                let expected = split_by_owner(&ids, ranks, |v| v as usize % ranks).unwrap();
                assert!(found == expected, "{len} ids in turn, {ranks} ranks");
            }
        }
    }

    #[test]
    fn owners_that_are_no_ranks_are_refused() {
        let gpu = Gpu::under_test(0);
        let owners = gpu.upload(&[0u16, 1, 2, 9]).unwrap();
        let error = |ids: &[u32], ranks| {
            split(&gpu, ids, DeviceOwners::Map(owners.slice()), [ranks, 0]).err().unwrap()
        };
        assert_eq!(
            error(&[0, 2, 3], 3),
            GpuError::Input(KernelError::Owner { vertex: 3, owner: 9, ranks: 3 })
        );
        assert_eq!(
            error(&[0, 2, 3], 2),
            GpuError::Input(KernelError::Owner { vertex: 2, owner: 2, ranks: 2 })
        );
        let beyond = KernelError::VertexOutOfRange { vertex: u32::MAX, num_vertices: 4 };
        assert_eq!(error(&[0, u32::MAX, 9], 3), GpuError::Input(beyond));
        let none = split(&gpu, &[1], DeviceOwners::InTurn, [0, 0]).err().unwrap();
        assert!(matches!(none, GpuError::Input(KernelError::Length { .. })), "{none:?}");
    }
}
