//! The edges of one layer, grouped by target for forward and by source for backward.

use std::ops::Range;
use std::sync::OnceLock;

use crate::error::KernelError;

pub(crate) mod cuda;
mod symmetric;

pub use cuda::{DeviceEdges, DeviceSegments, sort_on_device};
pub use symmetric::{symmetric, symmetric_on_device};

/// Edges in the order of their targets (CSC): the edges into target `t` are
/// `sources[indptr[t]..indptr[t + 1]]`. Sources are positions in a matrix of `num_sources` rows;
/// for some operators target `t` is row `t` of it too.
#[derive(Debug)]
pub struct HostEdges {
    indptr: Vec<u32>,
    sources: Vec<u32>,
    num_sources: usize,
    by_source: OnceLock<BySource>,
}

/// The edges in the order of their sources, and in target order within a source.
#[derive(Debug)]
pub struct BySource {
    /// Edges out of source `s` are positions `indptr[s]..indptr[s + 1]` of the other two.
    pub indptr: Vec<u32>,
    /// Target of each edge.
    pub targets: Vec<u32>,
    /// Position of each edge in the order of the targets.
    pub edges: Vec<u32>,
}

impl HostEdges {
    /// Checks the arrays. Cost: one pass over them.
    ///
    /// # Errors
    /// [`KernelError::Topology`] unless `indptr` starts at 0, never falls and ends at the number of
    /// edges; [`KernelError::RowOutOfRange`] for a source that is not a row.
    pub fn new(
        indptr: Vec<u32>,
        sources: Vec<u32>,
        num_sources: usize,
    ) -> Result<Self, KernelError> {
        let topology = |expected, got: String| Err(KernelError::Topology { expected, got });
        let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
            return topology("an indptr with one value more than targets", "an empty one".into());
        };
        if first != 0 || last as usize != sources.len() {
            let got = format!("{first} to {last} for {} edges", sources.len());
            return topology("an indptr from 0 to the number of edges", got);
        }
        if let Some(at) = indptr.windows(2).position(|pair| pair[0] > pair[1]) {
            return topology(
                "an indptr that never falls",
                format!("{} before {}", indptr[at], indptr[at + 1]),
            );
        }
        if let Some(&position) = sources.iter().find(|&&source| source as usize >= num_sources) {
            return Err(KernelError::RowOutOfRange { position, rows: num_sources });
        }
        Ok(Self { indptr, sources, num_sources, by_source: OnceLock::new() })
    }

    /// Number of targets.
    pub fn num_targets(&self) -> usize {
        self.indptr.len() - 1
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
    pub fn indptr(&self) -> &[u32] {
        &self.indptr
    }

    /// The source of each edge.
    pub fn sources(&self) -> &[u32] {
        &self.sources
    }

    /// Both lists.
    pub fn into_lists(self) -> (Vec<u32>, Vec<u32>) {
        (self.indptr, self.sources)
    }

    /// Refuses targets without a row of their own, if they `need` one: row `t` of the sources is
    /// target `t`'s.
    pub(crate) fn check_own_rows(&self, need: bool) -> Result<(), KernelError> {
        check_own_rows(need, self.num_targets(), self.num_sources)
    }

    /// The edges of `target`, as positions in [`HostEdges::sources`].
    ///
    /// # Panics
    /// If the target does not exist.
    #[inline(always)]
    pub fn of(&self, target: usize) -> Range<usize> {
        self.indptr[target] as usize..self.indptr[target + 1] as usize
    }

    /// The edges grouped by source: a counting sort at the first call, O(edges + sources).
    pub fn by_source(&self) -> &BySource {
        self.by_source.get_or_init(|| {
            let mut indptr = vec![0u32; self.num_sources + 1];
            for &source in &self.sources {
                indptr[source as usize + 1] += 1;
            }
            for i in 0..self.num_sources {
                indptr[i + 1] += indptr[i];
            }
            let mut next = indptr.clone();
            let (mut targets, mut edges) =
                (vec![0; self.sources.len()], vec![0; self.sources.len()]);
            for target in 0..self.num_targets() {
                for edge in self.of(target) {
                    let slot = &mut next[self.sources[edge] as usize];
                    (targets[*slot as usize], edges[*slot as usize]) = (target as u32, edge as u32);
                    *slot += 1;
                }
            }
            BySource { indptr, targets, edges }
        })
    }
}

impl BySource {
    /// The edges of `source`, as positions in [`BySource::targets`] and [`BySource::edges`].
    ///
    /// # Panics
    /// If the source does not exist.
    #[inline(always)]
    pub fn of(&self, source: usize) -> Range<usize> {
        self.indptr[source] as usize..self.indptr[source + 1] as usize
    }
}

fn check_own_rows(need: bool, targets: usize, rows: usize) -> Result<(), KernelError> {
    match need && targets > rows {
        true => Err(KernelError::RowOutOfRange { position: rows as u32, rows }),
        false => Ok(()),
    }
}

/// A matrix that is cut at rows: a row has `per_row` values, and `per_edge` more for each of its
/// edges.
pub(crate) struct Part<'a, T> {
    pub(crate) values: &'a mut [T],
    per_row: usize,
    per_edge: usize,
}

impl<'a, T> Part<'a, T> {
    /// A matrix with `stride` values per row.
    pub(crate) fn rows(values: &'a mut [T], stride: usize) -> Self {
        Self { values, per_row: stride, per_edge: 0 }
    }

    /// A matrix with `per_row` values per row, followed by `per_edge` values for each of its edges.
    pub(crate) fn edges(values: &'a mut [T], per_edge: usize, per_row: usize) -> Self {
        Self { values, per_row, per_edge }
    }
}

/// Outputs of tasks: several slices, cut together.
pub(crate) trait Parts: Send + Sized {
    /// Splits off the part of the first `rows` rows, which have `edges` edges.
    fn cut(self, rows: usize, edges: usize) -> (Self, Self);
}

impl<T: Send> Parts for Part<'_, T> {
    fn cut(self, rows: usize, edges: usize) -> (Self, Self) {
        let (left, right) = self.values.split_at_mut(rows * self.per_row + edges * self.per_edge);
        (
            Self { values: left, ..self },
            Self { values: right, per_row: self.per_row, per_edge: self.per_edge },
        )
    }
}

impl<A: Parts, B: Parts> Parts for (A, B) {
    fn cut(self, rows: usize, edges: usize) -> (Self, Self) {
        let ((a, c), (b, d)) = (self.0.cut(rows, edges), self.1.cut(rows, edges));
        ((a, b), (c, d))
    }
}

/// Runs a body, [`vectorised`](crate::simd::vectorised), on ranges of rows of about equal work,
/// each with its part of the parts, in parallel. The work of rows `a..b` is `indptr[b] - indptr[a] +
/// b - a`, each of a width of values. Ranges do not depend on the thread count.
macro_rules! for_balanced_rows {
    ($indptr:expr, $width:expr, $parts:expr, |$rows:pat_param, $part:pat_param| $body:expr) => {{
        let indptr: &[u32] = $indptr;
        $crate::edges::halve(indptr, $width, 0..indptr.len() - 1, $parts, &|$rows, $part| {
            $crate::simd::vectorised!($body)
        })
    }};
}
pub(crate) use for_balanced_rows;

/// Values that one task works on.
const TASK_VALUES: usize = 1 << 16;

/// The recursion of `for_balanced_rows`, for some of the rows.
pub(crate) fn halve<P: Parts>(
    indptr: &[u32],
    width: usize,
    rows: Range<usize>,
    parts: P,
    body: &(impl Fn(Range<usize>, P) + Sync),
) {
    let work = |row: usize| indptr[row] as usize + row;
    let total = work(rows.end) - work(rows.start);
    if rows.len() < 2 || total.saturating_mul(width.max(1)) <= TASK_VALUES {
        return body(rows, parts);
    }
    let half = work(rows.start) + total / 2;
    // The first row, except row 0, that starts beyond half of the work.
    let (mut low, mut high) = (rows.start + 1, rows.end - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if work(middle) < half { low = middle + 1 } else { high = middle }
    }
    let (left, right) = parts.cut(low - rows.start, (indptr[low] - indptr[rows.start]) as usize);
    rayon::join(
        || halve(indptr, width, rows.start..low, left, body),
        || halve(indptr, width, low..rows.end, right, body),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spmm::tests::edges;

    #[test]
    fn oracle_both_orders_hold_the_same_edges() {
        for (targets, sources, degree) in [(1, 1, 0), (5, 9, 3), (200, 70, 12), (3, 5000, 4000)] {
            let edges = edges(3, targets, sources, degree, 0);
            let mut expected = Vec::new();
            for target in 0..targets {
                expected.extend(
                    edges
                        .of(target)
                        .map(|edge| (edges.sources()[edge], target as u32, edge as u32)),
                );
            }
            expected.sort();
            let by_source = edges.by_source();
            let found: Vec<(u32, u32, u32)> = (0..sources as u32)
                .flat_map(|s| {
                    by_source
                        .of(s as usize)
                        .map(move |i| (s, by_source.targets[i], by_source.edges[i]))
                })
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn balanced_rows_cover_each_row_once() {
        for degrees in [
            vec![],
            vec![0; 1000],
            vec![1_000_000],
            vec![0, 70_000, 0, 0, 1, 90_000, 3],
            vec![5; 100_000],
        ] {
            let mut indptr = vec![0u32];
            degrees.iter().for_each(|degree| indptr.push(indptr[indptr.len() - 1] + degree));
            let edges = *indptr.last().unwrap() as usize;
            let (mut out, mut of_edges) =
                (vec![0u32; 2 * degrees.len()], vec![0u8; 3 * edges + degrees.len()]);
            let parts = (Part::rows(&mut out, 2), Part::edges(&mut of_edges, 3, 1));
            for_balanced_rows!(&indptr, 16, parts, |rows, (out, of_edges)| {
                let edges = (indptr[rows.end] - indptr[rows.start]) as usize;
                assert_eq!(
                    (out.values.len(), of_edges.values.len()),
                    (2 * rows.len(), 3 * edges + rows.len())
                );
                assert!(rows.len() < 2 || (edges + rows.len()) * 16 <= TASK_VALUES);
                of_edges.values.iter_mut().for_each(|value| *value += 1);
                out.values
                    .chunks_mut(2)
                    .zip(rows)
                    .for_each(|(out, row)| out.iter_mut().for_each(|o| *o += row as u32 + 1));
            });
            assert!(out.chunks(2).enumerate().all(|(row, out)| out == [row as u32 + 1; 2]));
            assert!(of_edges.iter().all(|&value| value == 1));
        }
    }

    #[test]
    fn what_is_no_topology_is_refused() {
        let topology = |result| matches!(result, Err(KernelError::Topology { .. }));
        assert!(topology(HostEdges::new(vec![], vec![], 1)));
        assert!(topology(HostEdges::new(vec![1, 1], vec![0], 1)));
        assert!(topology(HostEdges::new(vec![0, 2], vec![0], 1)));
        assert!(topology(HostEdges::new(vec![0, 2, 1], vec![0], 1)));
        let beyond = HostEdges::new(vec![0, 1], vec![3], 3);
        assert!(matches!(beyond, Err(KernelError::RowOutOfRange { position: 3, rows: 3 })));
    }
}
