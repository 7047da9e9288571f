//! Converts one bucket of edges to the lists of its vertices.
//!
//! Returns: [`Lists`], the degrees of the bucket's vertices and their in-neighbours, ascending,
//! with their values. Idea: a counting sort by target keeps the order of the input; then each list
//! is sorted by source, stably, unless it is in order already, as for a sorted input; duplicates
//! are then adjacent. Ids are replaced by ranks last, which keeps the order. Cost: a few passes
//! over the bucket, which should fit a core's cache.

use std::ops::Range;

use super::BuildOptions;
use super::columns::ColumnMerge;
use super::presence::Ranks;
use super::store::TakeEdges;
use crate::Result;

/// The vertices of a bucket.
#[derive(Debug, Default, PartialEq)]
pub struct Lists {
    /// In-edges of each vertex.
    pub degrees: Vec<u64>,
    /// The in-neighbours of the first vertex, then of the next.
    pub indices: Vec<u32>,
    /// The values of the edges, in the order of `indices`.
    pub values: Vec<u8>,
}

/// Rules that the buckets of one build have in common.
pub struct Rules<'a> {
    /// Options of the build: what becomes of duplicates.
    pub options: BuildOptions,
    /// Bits of a target within its bucket.
    pub shift: u32,
    /// Number of vertices.
    pub num_vertices: u64,
    /// The ids that occur, where they are compacted.
    pub ranks: Option<&'a Ranks>,
    /// Bytes of one edge's values.
    pub value_bytes: usize,
    /// Merge of the values of duplicates.
    pub merge: ColumnMerge,
}

impl Rules<'_> {
    /// Number of vertices in the buckets before `bucket`.
    pub fn vertices_before(&self, bucket: u32) -> u64 {
        let id = u64::from(bucket) << self.shift;
        self.ranks.map_or(id.min(self.num_vertices), |ranks| ranks.below(id))
    }

    /// All ids of a bucket, by their low bits.
    pub fn whole(&self) -> Range<usize> {
        0..1 << self.shift
    }

    /// Degrees of the vertices among the ids `range` of the bucket, by the counts of all its ids.
    pub fn degrees(&self, bucket: u32, range: Range<usize>, counts: &[u64]) -> Vec<u64> {
        let first = (bucket as usize) << self.shift;
        let end = match self.ranks {
            Some(_) => range.end,
            None => range.end.min((self.num_vertices as usize).saturating_sub(first)),
        };
        let vertices = (range.start..end)
            .filter(|low| self.ranks.is_none_or(|r| r.contains((first + low) as u32)));
        vertices.map(|low| counts[low]).collect()
    }

    /// Replaces ids by vertices.
    pub fn rank(&self, ids: &mut [u32]) {
        if let Some(ranks) = self.ranks {
            ids.iter_mut().for_each(|id| *id = ranks.rank(*id));
        }
    }

    /// The lists of the ids `range` of `bucket`, whose `count` edges `edges` hands over in one or
    /// more pieces, each time the same.
    pub fn lists(
        &self,
        bucket: u32,
        range: Range<usize>,
        count: usize,
        edges: impl Fn(&mut TakeEdges<'_>) -> Result<()>,
    ) -> Result<Lists> {
        let mut cursors = vec![0u32; (1 << self.shift) + 1];
        edges(&mut |_, targets, _| {
            targets.iter().for_each(|&target| cursors[usize::from(target) + 1] += 1)
        })?;
        for at in 1..cursors.len() {
            cursors[at] += cursors[at - 1];
        }
        let starts = cursors.clone();
        let mut lists = Lists { indices: vec![0; count], ..Lists::default() };
        let width = self.value_bytes;
        let mut values = vec![0u8; count * width];
        let indices = &mut lists.indices[..];
        edges(&mut |sources, targets, from| {
            for (edge, (&source, &target)) in sources.iter().zip(targets).enumerate() {
                let cursor = &mut cursors[usize::from(target)];
                let at = *cursor as usize;
                *cursor += 1;
                indices[at] = source;
                if width > 0 {
                    values[at * width..(at + 1) * width]
                        .copy_from_slice(&from[edge * width..(edge + 1) * width]);
                }
            }
        })?;
        lists.values = values;
        let degrees = self.sort_lists(&mut lists, &starts);
        lists.degrees = self.degrees(bucket, range, &degrees);
        self.rank(&mut lists.indices);
        Ok(lists)
    }

    /// Sorts each list, merges duplicates and closes the gaps. Returns the length of each list.
    fn sort_lists(&self, lists: &mut Lists, starts: &[u32]) -> Vec<u64> {
        let mut kept = 0;
        let mut sorter = ListSorter::default();
        let lengths = starts.windows(2).map(|pair| {
            let (start, end) = (pair[0] as usize, pair[1] as usize);
            if start == end {
                return 0;
            }
            let indices = &mut lists.indices;
            let ascending = indices[start..end].is_sorted();
            if self.value_bytes > 0 {
                let first = kept;
                sorter.order(&indices[start..end], ascending);
                kept = self.keep_with_values(lists, &mut sorter, start, kept);
                return (kept - first) as u64;
            }
            if !ascending {
                indices[start..end].sort_unstable();
            }
            let first = kept;
            if self.options.keep_duplicates {
                indices.copy_within(start..end, kept);
                kept += end - start;
            } else {
                let mut last = indices[start];
                indices[kept] = last;
                kept += 1;
                for at in start + 1..end {
                    let index = indices[at];
                    indices[kept] = index;
                    kept += usize::from(index != last);
                    last = index;
                }
            }
            (kept - first) as u64
        });
        let lengths = lengths.collect();
        lists.indices.truncate(kept);
        lists.values.truncate(kept * self.value_bytes);
        lengths
    }

    /// Moves the list that starts at `start`, in the order of `sorter`, to `kept`, and merges
    /// duplicates. Returns the new end of the kept edges.
    fn keep_with_values(
        &self,
        lists: &mut Lists,
        sorter: &mut ListSorter,
        start: usize,
        mut kept: usize,
    ) -> usize {
        let width = self.value_bytes;
        let count = sorter.order.len();
        sorter.indices.clear();
        sorter.indices.extend_from_slice(&lists.indices[start..start + count]);
        sorter.values.clear();
        sorter.values.extend_from_slice(&lists.values[start * width..(start + count) * width]);
        let mut last = None;
        for &from in &sorter.order {
            let (from, index) = (from as usize, sorter.indices[from as usize]);
            let value = &sorter.values[from * width..(from + 1) * width];
            if last == Some(index) && !self.options.keep_duplicates {
                self.merge.add(&mut lists.values[(kept - 1) * width..kept * width], value);
                continue;
            }
            last = Some(index);
            lists.indices[kept] = index;
            lists.values[kept * width..(kept + 1) * width].copy_from_slice(value);
            kept += 1;
        }
        kept
    }
}

/// Buffers for sorting a list with its values.
#[derive(Default)]
struct ListSorter {
    order: Vec<u32>,
    indices: Vec<u32>,
    values: Vec<u8>,
}

impl ListSorter {
    /// Finds the stable order of `indices`.
    fn order(&mut self, indices: &[u32], ascending: bool) {
        self.order.clear();
        self.order.extend(0..indices.len() as u32);
        if !ascending {
            self.order.sort_by_key(|&at| indices[at as usize]);
        }
    }
}
