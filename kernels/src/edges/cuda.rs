//! A layer's edges on a GPU, and the launches of sums over them.
//!
//! Returns: [`DeviceEdges`], which computes derived arrays when an operator first needs them.
//! Input: a CSC that kernels made, or [`HostEdges`] to copy; the host checks only the lengths of
//! arrays on a device. Cost: the target of each edge is found by bisection, the order of the
//! sources by a stable counting sort; the host never waits.

use std::sync::OnceLock;

use super::HostEdges;
use crate::cuda::{
    Argument, DeviceBuffer, DeviceSlice, Gpu, GpuError, Kernel, Module, arguments, pair,
};
use crate::error::{KernelError, check_len};
use crate::gather::DeviceScatter;
use crate::group::{Grouped, Keyed, group_by_key};

pub(crate) static MODULE: Module = Module { name: "edges", source: include_str!("cuda.cu") };

/// Edges of a piece, as in `rows.cuh`.
const PIECE: usize = 512;

/// [`HostEdges`] on a GPU.
#[derive(Debug)]
pub struct DeviceEdges {
    rows: DeviceSegments,
    sources: DeviceBuffer<u32>,
    num_sources: usize,
    targets: OnceLock<DeviceBuffer<u32>>,
    by_source: OnceLock<DeviceBySource>,
}

/// The edges in the order of their sources, and in target order within a source.
#[derive(Debug)]
pub(crate) struct DeviceBySource {
    pub rows: DeviceSegments,
    /// Target of each edge.
    pub targets: DeviceBuffer<u32>,
    /// Position of each edge in the order of the targets.
    pub edges: DeviceBuffer<u32>,
}

impl DeviceEdges {
    /// Edges into `indptr.len() - 1` targets: the edges into target `t` are
    /// `sources[indptr[t]..indptr[t + 1]]`, rows of a matrix of `num_sources`. A source that is not
    /// a row counts as a row of NaNs forwards and is ignored backwards.
    ///
    /// # Errors
    /// [`KernelError::Topology`] for an empty `indptr`, [`KernelError::TooManyEdges`].
    pub fn new(
        indptr: DeviceBuffer<u32>,
        sources: DeviceBuffer<u32>,
        num_sources: usize,
    ) -> Result<Self, GpuError> {
        let rows = DeviceSegments::new(indptr, sources.len())?;
        Ok(Self {
            rows,
            sources,
            num_sources,
            targets: OnceLock::new(),
            by_source: OnceLock::new(),
        })
    }

    /// A copy of `edges`.
    pub fn upload(gpu: &Gpu, edges: &HostEdges) -> Result<Self, GpuError> {
        Self::new(gpu.upload(edges.indptr())?, gpu.upload(edges.sources())?, edges.num_sources())
    }

    /// Sets the target of each edge, if it is known.
    pub fn with_targets(self, targets: Option<DeviceBuffer<u32>>) -> Result<Self, GpuError> {
        if let Some(targets) = &targets {
            check_len("targets of the edges", self.num_edges(), targets.len())?;
        }
        Ok(Self { targets: targets.map_or_else(OnceLock::new, OnceLock::from), ..self })
    }

    /// States that no target has more than `most` edges, as after sampling with that fanout, which
    /// may save launches.
    pub fn with_max_degree(mut self, most: usize) -> Self {
        self.rows.in_pieces &= most > PIECE;
        self
    }

    /// Number of targets.
    pub fn num_targets(&self) -> usize {
        self.rows.count()
    }

    /// Number of rows that sources are positions in.
    pub fn num_sources(&self) -> usize {
        self.num_sources
    }

    /// Number of edges.
    pub fn num_edges(&self) -> usize {
        self.sources.len()
    }

    /// Starts of the edges of each target, and the number of edges at the end.
    pub fn indptr(&self) -> DeviceSlice<'_, u32> {
        self.rows.indptr.slice()
    }

    /// The source of each edge.
    pub fn sources(&self) -> DeviceSlice<'_, u32> {
        self.sources.slice()
    }

    /// Gives all of it to another stream ([`DeviceBuffer::give_to`]).
    pub fn give_to(&self, gpu: &Gpu) {
        self.rows.give_to(gpu);
        [Some(&self.sources), self.targets.get()]
            .into_iter()
            .flatten()
            .for_each(|buffer| buffer.give_to(gpu));
        if let Some(DeviceBySource { rows, targets, edges }) = self.by_source.get() {
            rows.give_to(gpu);
            [targets, edges].into_iter().for_each(|buffer| buffer.give_to(gpu));
        }
    }

    /// Like [`HostEdges::check_own_rows`].
    pub(crate) fn check_own_rows(&self, need: bool) -> Result<(), KernelError> {
        super::check_own_rows(need, self.num_targets(), self.num_sources)
    }

    pub(crate) fn by_target(&self) -> &DeviceSegments {
        &self.rows
    }

    /// The target of each edge, computed at the first call.
    pub fn targets(&self, gpu: &Gpu) -> Result<DeviceSlice<'_, u32>, GpuError> {
        let find = || {
            let out = gpu.alloc(self.num_edges())?;
            let of = arguments![self.indptr(), self.num_targets(), out.len(), &out];
            gpu.run(MODULE.kernel("edge_targets"), out.len(), &of)?;
            Ok(out)
        };
        Ok(found_once(&self.targets, find)?.slice())
    }

    /// The edges grouped by source, sorted at the first call.
    pub(crate) fn by_source(&self, gpu: &Gpu) -> Result<&DeviceBySource, GpuError> {
        sort_on_device(gpu, &[self], &[])?;
        let unsorted =
            || KernelError::Length { what: "lists that were sorted", expected: 1, got: 0 };
        self.by_source.get().ok_or_else(|| unsorted().into())
    }
}

/// Makes the sorts for the backward passes of several layers, in the same launches, on the stream
/// of `gpu`: sorts `edges` by source, unless that was done before (otherwise the first use sorts
/// them); and `rows`, each a list of positions in a matrix and its number of rows, to which rows
/// will be added.
///
/// # Errors
/// [`KernelError::TooManyItems`]; errors of the GPU.
pub fn sort_on_device(
    gpu: &Gpu,
    edges: &[&DeviceEdges],
    rows: &[(DeviceSlice<'_, u32>, usize)],
) -> Result<Vec<DeviceScatter>, GpuError> {
    let edges: Vec<&DeviceEdges> =
        edges.iter().copied().filter(|edges| edges.by_source.get().is_none()).collect();
    let mut lists = Vec::with_capacity(edges.len() + rows.len());
    for edges in &edges {
        let payload = Some(edges.targets(gpu)?);
        lists.push(Keyed { keys: edges.sources(), num_keys: edges.num_sources, payload });
    }
    lists.extend(rows.iter().map(|&(keys, num_keys)| Keyed { keys, num_keys, payload: None }));
    let mut found = group_by_key(gpu, &lists)?;
    let scatters = found.split_off(edges.len());
    for (edges, Grouped { indptr, order, payload }) in edges.into_iter().zip(found) {
        let rows = DeviceSegments::new(indptr, order.len())?;
        let targets = payload.map_or_else(|| gpu.alloc(0), Ok)?;
        edges.by_source.get_or_init(|| DeviceBySource { rows, targets, edges: order });
    }
    scatters.into_iter().map(DeviceScatter::of).collect()
}

/// Contents of `cell`, computed now if it is empty.
fn found_once<T>(
    cell: &OnceLock<T>,
    make: impl FnOnce() -> Result<T, GpuError>,
) -> Result<&T, GpuError> {
    match cell.get() {
        Some(found) => Ok(found),
        None => {
            let made = make()?;
            Ok(cell.get_or_init(|| made))
        }
    }
}

/// Consecutive rows that belong together, like the edges of one target, on a GPU: where each
/// segment starts, and the pieces of long segments.
#[derive(Debug)]
pub struct DeviceSegments {
    indptr: DeviceBuffer<u32>,
    num_rows: usize,
    /// Whether a row may have more edges than a piece.
    in_pieces: bool,
    pieces: OnceLock<Pieces>,
}

/// Rows of more than [`PIECE`] edges, as in `rows.cuh`.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// The lengths of the other two.
    pub counts: DeviceBuffer<u32>,
    pub heavy: DeviceBuffer<u32>,
    pub pieces: DeviceBuffer<u32>,
}

impl DeviceSegments {
    /// Creates segments: segment `s` is rows `indptr[s]` to `indptr[s + 1]` of `num_rows`, which
    /// the host cannot check.
    ///
    /// # Errors
    /// [`KernelError::Topology`] for an empty `indptr`, [`KernelError::TooManyEdges`].
    pub fn new(indptr: DeviceBuffer<u32>, num_rows: usize) -> Result<Self, GpuError> {
        if indptr.is_empty() {
            let expected = "an indptr with one value more than targets";
            return Err(KernelError::Topology { expected, got: "an empty one".into() }.into());
        }
        u32::try_from(num_rows)
            .map_err(|_| KernelError::TooManyEdges { edges: num_rows as u64 })?;
        Ok(Self { indptr, num_rows, in_pieces: num_rows > PIECE, pieces: OnceLock::new() })
    }

    /// Gives all of it to another stream ([`DeviceBuffer::give_to`]).
    pub fn give_to(&self, gpu: &Gpu) {
        self.indptr.give_to(gpu);
        if let Some(Pieces { counts, heavy, pieces }) = self.pieces.get() {
            [counts, heavy, pieces].into_iter().for_each(|buffer| buffer.give_to(gpu));
        }
    }

    /// Number of segments.
    pub fn count(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of rows, all segments together.
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    pub(crate) fn slice(&self) -> DeviceSlice<'_, u32> {
        self.indptr.slice()
    }

    /// Rows of many edges, at most [`DeviceSegments::most_heavy`]; `None` if no row can have many.
    pub(crate) fn pieces(&self, gpu: &Gpu) -> Result<Option<&Pieces>, GpuError> {
        if !self.in_pieces {
            return Ok(None);
        }
        let cut = || {
            let (heavy, pieces) =
                (gpu.alloc(3 * self.most_heavy())?, gpu.alloc(2 * self.most_pieces())?);
            let found = Pieces { counts: gpu.zeros(2)?, heavy, pieces };
            let of =
                arguments![&self.indptr, self.count(), &found.counts, &found.heavy, &found.pieces];
            gpu.run(MODULE.kernel("edge_pieces"), self.count(), &of)?;
            Ok(found)
        };
        Ok(Some(found_once(&self.pieces, cut)?))
    }

    /// Upper bound of the number of rows with more than [`PIECE`] edges.
    pub(crate) fn most_heavy(&self) -> usize {
        self.num_rows / (PIECE + 1)
    }

    /// Upper bound of the number of pieces: one that is not full for each row.
    fn most_pieces(&self) -> usize {
        self.num_rows / PIECE + self.most_heavy()
    }

    /// Runs `kernel`, which sums over the edges of rows of `chunks` chunks each; a chunk's sum
    /// takes `chunk_bytes`. The kernel's first argument is `Rows`; `rest` are the others.
    pub(crate) fn sum(
        &self,
        gpu: &Gpu,
        kernel: Kernel,
        chunks: usize,
        chunk_bytes: usize,
        rest: &[Argument],
    ) -> Result<(), GpuError> {
        if chunks == 0 {
            return Ok(());
        }
        let pieces = self.pieces(gpu)?;
        let width =
            if chunks <= 32 { chunks.next_power_of_two() } else { chunks.next_multiple_of(32) };
        let scratch =
            gpu.alloc::<u8>(pieces.map_or(0, |_| self.most_pieces() * chunks * chunk_bytes))?;
        let lists = pieces.map_or([0; 3], |found| {
            [&found.counts, &found.heavy, &found.pieces].map(|list| list.slice().address())
        });
        let launch = |which: usize, items: usize| {
            let [counts, heavy, pieces] = lists;
            let last = [scratch.slice().address(), pair(which, chunks), width as u64];
            let indptr = [self.indptr.slice().address(), self.count() as u64];
            let rows = [indptr[0], indptr[1], counts, heavy, pieces, last[0], last[1], last[2]];
            gpu.run(kernel, items * width, &[&[rows.into()][..], rest].concat())
        };
        launch(0, self.count())?;
        if pieces.is_some() {
            launch(1, self.most_pieces())?;
            launch(2, self.most_heavy())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmm::tests::edges;

    #[test]
    fn oracle_the_order_of_the_sources() {
        let shapes = [
            (1, 1, 0, 0),
            (3, 7, 0, 0),
            (40, 90, 6, 0),
            (300, 900, 9, 4000),
            (1, 2, 0, 5),
            (0, 3, 0, 0),
        ];
        for (case, (targets, sources, degree, hub)) in shapes.into_iter().enumerate() {
            let gpu = Gpu::under_test(case as u32 % 4);
            let edges = edges(case as u32, targets, sources, degree, hub);
            let found = DeviceEdges::upload(&gpu, &edges).unwrap();
            let by_source = found.by_source(&gpu).unwrap();
            let expected = edges.by_source();
            assert_eq!(by_source.rows.indptr.to_vec().unwrap(), expected.indptr, "case {case}");
            assert_eq!(by_source.targets.to_vec().unwrap(), expected.targets, "case {case}");
            assert_eq!(by_source.edges.to_vec().unwrap(), expected.edges, "case {case}");
        }
    }

    #[test]
    fn rows_of_many_edges_are_cut_whole() {
        let gpu = Gpu::under_test(2);
        let degrees = [PIECE, PIECE + 1, 0, 3, 3 * PIECE, 0, 2 * PIECE - 1];
        let mut indptr = vec![0u32];
        degrees.iter().for_each(|degree| indptr.push(indptr[indptr.len() - 1] + *degree as u32));
        let num_edges = indptr[degrees.len()] as usize;
        let rows = DeviceSegments::new(gpu.upload(&indptr).unwrap(), num_edges).unwrap();
        let found = rows.pieces(&gpu).unwrap().unwrap();
        assert_eq!(found.counts.to_vec().unwrap(), [3, 7]);
        assert!(rows.most_heavy() >= 3 && rows.most_pieces() >= 7);
        let mut heavy: Vec<[u32; 3]> = found.heavy.to_vec().unwrap()[..9]
            .chunks(3)
            .map(|row| [row[0], row[1], row[2]])
            .collect();
        heavy.sort_unstable();
        assert_eq!(
            heavy.iter().map(|row| [row[0], row[2]]).collect::<Vec<_>>(),
            [[1, 2], [4, 3], [6, 2]]
        );
        let pieces = found.pieces.to_vec().unwrap();
        for [row, first, count] in heavy {
            for piece in 0..count {
                assert_eq!(pieces[2 * (first + piece) as usize..][..2], [row, piece]);
            }
        }
    }

    #[test]
    fn an_empty_indptr_is_refused() {
        let gpu = Gpu::under_test(0);
        let refused = DeviceEdges::new(gpu.alloc(0).unwrap(), gpu.alloc(0).unwrap(), 1);
        assert!(matches!(refused, Err(GpuError::Input(KernelError::Topology { .. }))));
    }
}
