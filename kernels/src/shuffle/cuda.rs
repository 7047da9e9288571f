//! The shuffle of a layer that was sampled on a GPU: the vertices that each rank needs, and the
//! places of their rows.
//!
//! Returns: [`DeviceSplit`], with the vertices that other ranks are asked for, then
//! [`DeviceShuffle`], the next local frontier with the index of the exchange. Idea: the mixed
//! frontier is grouped by owner before the host knows its length, so that the host waits once for
//! all numbers of the layer. This rank's own vertices, and the vertices that others ask for, are
//! numbered in the sampler's table, where the next layer continues: nothing is copied. Each place
//! is written by the one item that knows it. Cost: a few numbers per vertex; ten launches, and a
//! copy for each other rank.

use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError, Module, arguments};
use crate::error::KernelError;
use crate::sample::{DeviceGraph, DeviceLayer, DeviceSampler};
use crate::split::DeviceOwners;
use crate::split::cuda::{ByOwner, Groups, check, counts};
use crate::unique::DeviceNumbering;

pub(crate) static MODULE: Module = Module { name: "shuffle", source: include_str!("cuda.cu") };

/// Item `i` of the result is `values[positions[i]]`, or `u32::MAX` if that does not exist.
pub fn select_on_device(
    gpu: &Gpu,
    values: DeviceSlice<'_, u32>,
    positions: DeviceSlice<'_, u32>,
) -> Result<DeviceBuffer<u32>, GpuError> {
    let out = gpu.alloc(positions.len())?;
    let of = arguments![values, values.len(), positions, positions.len(), &out];
    gpu.run(MODULE.kernel("shuffle_select"), positions.len(), &of)?;
    Ok(out)
}

/// The mixed frontier of a layer by owner.
#[derive(Debug)]
pub struct DeviceSplit {
    /// Number of vertices that each rank owns.
    pub counts: Vec<usize>,
    /// Positions in the mixed frontier: other ranks' vertices by rank, then own vertices; `ids` are
    /// the vertices there.
    order: DeviceBuffer<u32>,
    ids: DeviceBuffer<u32>,
    others: usize,
}

/// The next local frontier and the index of the exchange that brings its rows to the layer above.
#[derive(Debug)]
pub struct DeviceShuffle {
    /// The vertices whose rows the layer above reads: the local frontier, then the needed vertices
    /// of other ranks. The length is a bound until the length of the local frontier is known.
    pub read: DeviceBuffer<u32>,
    /// For each vertex of the mixed frontier, its row in `read`.
    pub source: DeviceBuffer<u32>,
    /// The rows that other ranks asked for.
    pub asked: DeviceBuffer<u32>,
}

impl DeviceSplit {
    /// Splits `ids` by owner, a rank in `0..ranks`; this one is `me`. Waits once.
    ///
    /// # Errors
    /// [`KernelError::Owner`] for the first vertex whose owner is not a rank,
    /// [`KernelError::VertexOutOfRange`] for one without an owner.
    pub fn new(
        gpu: &Gpu,
        ids: DeviceSlice<'_, u32>,
        owners: DeviceOwners<'_>,
        [me, ranks]: [usize; 2],
    ) -> Result<Self, GpuError> {
        let words = gpu.upload(&[ids.len() as u64, 0])?;
        let len = words.slice().address();
        let status = len + size_of::<u64>() as u64;
        let groups = ByOwner { ids, len, owners, ranks, last: me, status }.group(gpu)?;
        let [words, starts] =
            gpu.read([words.slice().as_bytes(), groups.starts.slice().as_bytes()])?;
        check(gpu, ids, owners, ranks, words.values::<u64>()[1])?;
        Ok(Self::of(groups, &starts.values(), me))
    }

    fn of(Groups { mut order, mut ids, .. }: Groups, starts: &[u32], me: usize) -> Self {
        let counts = counts(starts, me);
        let mixed_frontier: usize = counts.iter().sum();
        order.truncate(mixed_frontier);
        ids.truncate(mixed_frontier);
        let others = mixed_frontier - counts[me];
        Self { counts, order, ids, others }
    }

    /// The vertices that other ranks own, by rank.
    pub fn needed(&self) -> Result<DeviceSlice<'_, u32>, GpuError> {
        self.ids.slice().part(0, self.others)
    }

    fn own(&self) -> Result<DeviceSlice<'_, u32>, GpuError> {
        self.ids.slice().part(self.others, self.ids.len())
    }

    /// The index if this rank is `asked` for vertices, and the number of vertices of the local
    /// frontier. Waits once.
    ///
    /// # Errors
    /// [`KernelError::TooManyItems`]; errors of the GPU.
    pub fn shuffle(
        &self,
        gpu: &Gpu,
        asked: DeviceSlice<'_, u32>,
    ) -> Result<(DeviceShuffle, usize), GpuError> {
        let (mut numbering, words) = (DeviceNumbering::new(gpu)?, gpu.zeros::<u64>(3)?);
        let [new, len, status] =
            [0, 1, 2].map(|word| words.slice().address() + (word * size_of::<u64>()) as u64);
        numbering
            .restart(1 << 32, self.counts.iter().sum::<usize>() - self.others + asked.len())?;
        let slots = numbering.start_with([self.own()?, asked], [new, len, status])?;
        let index = self.index(gpu, &numbering, &slots)?;
        Ok((index, words.to_vec()?[1] as usize))
    }

    /// Builds the index, from the `slots` of own and asked vertices, and the numbering of the local
    /// frontier.
    fn index(
        &self,
        gpu: &Gpu,
        numbering: &DeviceNumbering,
        slots: &DeviceBuffer<u32>,
    ) -> Result<DeviceShuffle, GpuError> {
        let own = self.order.len() - self.others;
        let most = slots.len() + self.others;
        u32::try_from(most)
            .map_err(|_| KernelError::TooManyItems { what: "rows to exchange", got: most })?;
        let (read, source, asked) =
            (gpu.alloc(most)?, gpu.alloc(self.order.len())?, gpu.alloc(slots.len() - own)?);
        let items = arguments![slots, own, asked.len()];
        let rows =
            arguments![numbering.len(), numbering.ids(), &self.order, self.needed()?, self.others];
        let out = arguments![&source, &asked, &read];
        let of = [&items[..], &numbering.table.arguments(), &rows, &out].concat();
        gpu.run(MODULE.kernel("shuffle_index"), slots.len().max(self.others), &of)?;
        Ok(DeviceShuffle { read, source, asked })
    }
}

impl DeviceSampler {
    /// [`DeviceSampler::finish`], and the mixed frontier of the last layer split by owner, a rank
    /// in `0..ranks`; this one is `me`. Waits once.
    pub fn finish_split(
        &mut self,
        graph: &DeviceGraph<'_>,
        owners: DeviceOwners<'_>,
        [me, ranks]: [usize; 2],
    ) -> Result<(Vec<DeviceLayer>, DeviceSplit), GpuError> {
        let (gpu, status) = (self.gpu().clone(), self.split_status());
        let (ids, len) = (self.mixed_frontier(), self.numbering().len());
        let groups = ByOwner { ids, len, owners, ranks, last: me, status }.group(&gpu)?;
        let (layers, status, starts) = self.finish_with(graph, groups.starts.slice().as_bytes())?;
        check(&gpu, self.mixed_frontier(), owners, ranks, status)?;
        Ok((layers, DeviceSplit::of(groups, &starts.values(), me)))
    }

    /// Continues with the next local frontier: the own vertices of `split`, then the vertices that
    /// this rank is `asked` for and that are not among them. The host does not wait; it learns
    /// their number when the next layers are finished.
    pub fn go_on_with(
        &mut self,
        graph: &DeviceGraph<'_>,
        split: &DeviceSplit,
        asked: DeviceSlice<'_, u32>,
    ) -> Result<DeviceShuffle, GpuError> {
        let slots = self.restart_with(graph, [split.own()?, asked])?;
        split.index(self.gpu(), self.numbering(), &slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Stream, StreamKey};

    /// Each step of the host's shuffle, for random frontiers; ranks ask for some vertices that this
    /// one has and some that it has not.
    #[test]
    fn differential_indices_of_the_host() {
        let cases = [(1, 0, 0), (2, 0, 0), (3, 1, 900), (2, 900, 0), (4, 700, 1300), (5, 3, 2)];
        for (case, (ranks, mixed_frontier, asked)) in cases.into_iter().enumerate() {
            let gpu = Gpu::under_test(case as u32 % 4);
            let vertices = crate::permute(3000, &StreamKey::new(case as u64, Stream::Split));
            let (me, owner) = (case % ranks, |v: u32| v as usize % ranks);
            let mixed_frontier = &vertices[..mixed_frontier];
            let mut asked: Vec<u32> = vertices
                .iter()
                .rev()
                .chain(mixed_frontier)
                .copied()
                .filter(|&v| owner(v) == me)
                .take(asked)
                .collect();
            asked.extend_from_within(..asked.len() / 2);
            let (indptr, nothing) = (gpu.zeros(3001).unwrap(), gpu.alloc(0).unwrap());
            let graph = DeviceGraph::new(&gpu, indptr.slice(), nothing.slice()).unwrap();
            let mut sampler = DeviceSampler::new(&gpu).unwrap();
            sampler.start(&graph, gpu.upload(mixed_frontier).unwrap().slice()).unwrap();
            let waits = gpu.counts().waits;
            let owners: Vec<u16> = (0..3000).map(|v| owner(v) as u16).collect();
            let owners = gpu.upload(&owners).unwrap();
            let owners = DeviceOwners::Map(owners.slice());
            let (layers, split) = sampler.finish_split(&graph, owners, [me, ranks]).unwrap();
            let asked_there = gpu.upload(&asked).unwrap();
            let found = sampler.go_on_with(&graph, &split, asked_there.slice()).unwrap();
            sampler.finish(&graph).unwrap();
            if std::env::var_os("GSPLIT_TEST_GPU").is_none() {
                assert_eq!(gpu.counts().waits - waits, 2);
            }

            let expected = crate::split_by_owner(mixed_frontier, ranks, owner).unwrap();
            assert!(layers.is_empty() && split.counts == expected.counts, "case {case}");
            let parts: Vec<&[u32]> = expected.parts().collect();
            let others: Vec<u32> = [parts[..me].concat(), parts[me + 1..].concat()].concat();
            let vertex = |&at: &u32| mixed_frontier[at as usize];
            let (ours, needed): (Vec<u32>, Vec<u32>) =
                (parts[me].iter().map(vertex).collect(), others.iter().map(vertex).collect());
            assert_eq!(split.needed().unwrap().to_vec(&gpu).unwrap(), needed);
            let (frontier, positions) = crate::unique(&[&ours, &asked]);
            assert_eq!(sampler.mixed_frontier().to_vec(&gpu).unwrap(), frontier, "case {case}");
            let read = [frontier.clone(), needed].concat();
            assert_eq!(found.read.slice().part(0, read.len()).unwrap().to_vec(&gpu).unwrap(), read);
            assert_eq!(found.asked.to_vec().unwrap(), positions[ours.len()..]);
            let mut source = vec![0; mixed_frontier.len()];
            for (&at, row) in
                parts[me].iter().zip(positions).chain(others.iter().zip(frontier.len() as u32..))
            {
                source[at as usize] = row;
            }
            assert_eq!(found.source.to_vec().unwrap(), source, "case {case}");
            // Splits a list by itself.
            let list = gpu.upload(mixed_frontier).unwrap();
            let split = DeviceSplit::new(&gpu, list.slice(), owners, [me, ranks]).unwrap();
            let (alone, rows) = split.shuffle(&gpu, asked_there.slice()).unwrap();
            assert_eq!((split.counts, rows), (expected.counts, frontier.len()));
            assert_eq!(alone.read.slice().part(0, read.len()).unwrap().to_vec(&gpu).unwrap(), read);
            assert_eq!(
                (alone.source.to_vec(), alone.asked.to_vec()),
                (found.source.to_vec(), found.asked.to_vec())
            );
        }
    }

    #[test]
    fn values_are_selected() {
        let gpu = Gpu::under_test(2);
        let (values, positions) =
            (gpu.upload(&[7u32, 8, 9]).unwrap(), gpu.upload(&[2u32, 0, 2, 3]).unwrap());
        let found = select_on_device(&gpu, values.slice(), positions.slice()).unwrap();
        assert_eq!(found.to_vec().unwrap(), [9, 7, 9, u32::MAX]);
    }
}
