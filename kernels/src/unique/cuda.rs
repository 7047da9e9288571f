//! Relabelling on a GPU.
//!
//! Returns: the same numbers as on the host, whatever the order of threads. Input: fewer than 2^32 - 1 ids.
//! Idea: a table keeps the smallest position at which each id occurs. An item that finds its own position there is its id's
//! first; the firsts, counted up, are the numbering, which replaces the positions in the table, and every item looks up its
//! own.
//! Cost: for each item an atomic maximum and three look-ups in the table, which for graphs of up to some ten million
//! vertices stays in the second-level cache. The table has a word for each vertex while that takes up to [`DIRECT_BYTES`],
//! and is a hash table of the mini-batch's size beyond. The host waits once, for the number of distinct ids.

use crate::cuda::{Argument, DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, GpuError, Kernel, Module, Shape};
use crate::error::KernelError;
use crate::scan::cuda::sum_before;

pub(crate) static MODULE: Module = Module { name: "unique", source: include_str!("cuda.cu") };

const THREADS: u32 = 256;
/// Up to here, a table has a word for each vertex of the graph.
const DIRECT_BYTES: usize = 1 << 30;

fn kernel(name: &'static str) -> Kernel {
    Kernel { module: &MODULE, name }
}

/// Distinct ids of all `lists`, in order of first occurrence, and the position of every item, list after list.
///
/// # Errors
/// [`KernelError::TooManyItems`]; what the GPU reports.
pub fn unique_on_device(
    gpu: &Gpu,
    lists: &[DeviceSlice<'_, u32>],
) -> Result<(DeviceBuffer<u32>, DeviceBuffer<u32>), GpuError> {
    let items = lists.iter().map(|list| list.len()).sum();
    let mut positions = gpu.alloc(items)?;
    let mut from = 0;
    for list in lists {
        let to = from + list.len();
        positions.slice_mut().part(from, to)?.copy_from(gpu, *list)?;
        from = to;
    }
    let mut numbering = Numbering::new(gpu)?;
    numbering.reserve(1 << 32, items)?;
    let count = gpu.upload(&[items as u32])?;
    if items > 0 {
        let mut arguments = vec![positions.slice().into(), (items as u64).into(), 0u32.into()];
        arguments.extend(numbering.table.arguments());
        gpu.launch(kernel("number_note"), Shape::per_item(items, THREADS), &arguments)?;
    }
    let mut new = gpu.zeros(1)?;
    numbering.number(&mut positions.slice_mut(), count.slice(), &mut new.slice_mut())?;
    numbering.grow(new.to_vec()?.first().map_or(0, |&new| new as usize));
    Ok((numbering.into_ids(), positions))
}

/// Where the ids' positions are.
#[derive(Debug)]
pub(crate) enum Table {
    /// A word for each id.
    Direct(DeviceBuffer<u32>),
    /// Ids and positions, at most half full; a power of two of them.
    Hash(DeviceBuffer<u64>),
}

impl Table {
    pub(crate) fn arguments(&self) -> [Argument; 3] {
        match self {
            Self::Direct(words) => [words.into(), 0u64.into(), 0u32.into()],
            Self::Hash(slots) => [0u64.into(), slots.into(), ((slots.len() - 1) as u32).into()],
        }
    }
}

/// Numbers ids from 0 as they come, in order of first occurrence; the numbers of a mixed frontier stay from layer to layer.
#[derive(Debug)]
pub(crate) struct Numbering {
    gpu: Gpu,
    pub table: Table,
    /// By number; room for more than there are.
    ids: DeviceBuffer<u32>,
    len: usize,
    /// How many of the ids are in the table.
    known: usize,
    /// Ids are below this.
    limit: usize,
    /// The table holds what is no id of this numbering.
    spoilt: bool,
    direct_bytes: usize,
}

impl Numbering {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self {
            gpu: gpu.clone(),
            table: Table::Hash(gpu.zeros(1)?),
            ids: gpu.alloc(0)?,
            len: 0,
            known: 0,
            limit: 0,
            spoilt: false,
            direct_bytes: DIRECT_BYTES,
        })
    }

    /// Begins again with `ids`, which are distinct.
    pub(crate) fn restart(&mut self, ids: DeviceSlice<'_, u32>) -> Result<(), GpuError> {
        self.forget()?;
        if self.ids.len() < ids.len() {
            self.ids = self.gpu.alloc(ids.len())?;
        }
        self.ids.slice_mut().part(0, ids.len())?.copy_from(&self.gpu, ids)?;
        self.len = ids.len();
        Ok(())
    }

    /// Empties the table.
    fn forget(&mut self) -> Result<(), GpuError> {
        let (known, limit) = (self.known, self.limit);
        self.known = 0;
        match &mut self.table {
            // A whole sweep costs as much as a few scattered words.
            Table::Direct(words) if self.spoilt || known * 8 > words.len() => words.slice_mut().zero(&self.gpu)?,
            Table::Direct(words) => {
                let arguments =
                    [self.ids.slice().into(), (known as u64).into(), (limit as u64).into(), (&*words).into()];
                self.gpu.launch(kernel("number_forget"), Shape::per_item(known, THREADS), &arguments)?;
            }
            Table::Hash(slots) if self.spoilt || known > 0 => slots.slice_mut().zero(&self.gpu)?,
            Table::Hash(_) => {}
        }
        self.spoilt = false;
        Ok(())
    }

    /// The table begins to hold what is no id of this numbering: before it is used for anything else, it is swept, unless
    /// [`Numbering::grow`] comes first.
    pub(crate) fn spoil(&mut self) {
        self.spoilt = true;
    }

    /// Makes room for `more` items of ids below `limit`.
    pub(crate) fn reserve(&mut self, limit: usize, more: usize) -> Result<(), GpuError> {
        let most = self.len.saturating_add(more);
        if most >= u32::MAX as usize {
            return Err(KernelError::TooManyItems { what: "ids to number", got: most }.into());
        }
        let distinct = most.min(limit.max(self.len));
        let direct = limit.saturating_mul(size_of::<u32>()) <= self.direct_bytes;
        let slots = (2 * distinct).next_power_of_two();
        match &self.table {
            Table::Direct(words) if direct && words.len() == limit => {}
            Table::Hash(held) if !direct && held.len() >= slots => {}
            _ => {
                self.table = match direct {
                    true => Table::Direct(self.gpu.zeros(limit)?),
                    false => Table::Hash(self.gpu.zeros(slots)?),
                };
                self.known = 0;
            }
        }
        self.limit = limit;
        // Also where some of the ids are none, or there twice, which is found out later.
        let ids = most.min(limit.saturating_add(self.len));
        if self.ids.len() < ids {
            let mut ids = self.gpu.alloc(ids + ids / 4)?;
            let held = self.ids.slice().part(0, self.len)?;
            ids.slice_mut().part(0, self.len)?.copy_from(&self.gpu, held)?;
            self.ids = ids;
        }
        Ok(())
    }

    /// Puts the ids into the table that are not there yet. What they may not be is reported to `status`.
    pub(crate) fn enter(&mut self, status: DeviceSlice<'_, u64>) -> Result<(), GpuError> {
        if self.spoilt {
            self.forget()?;
        }
        let new = self.ids.slice().part(self.known, self.len)?;
        let mut arguments: Vec<Argument> =
            vec![new.into(), (new.len() as u64).into(), (self.known as u32).into(), (self.limit as u64).into()];
        arguments.extend(self.table.arguments());
        arguments.push(status.into());
        let shape = Shape::per_item(new.len(), THREADS);
        self.gpu.launch(kernel("number_known"), shape, &arguments)?;
        self.gpu.launch(kernel("number_check"), shape, &arguments)?;
        self.known = self.len;
        Ok(())
    }

    /// Numbers the first `count` of `items`, which are slots of the table, noted at the positions after the present ids';
    /// items become numbers. `new` becomes the number of new ids, which [`Numbering::grow`] is to be told.
    pub(crate) fn number(
        &mut self,
        items: &mut DeviceSliceMut<'_, u32>,
        count: DeviceSlice<'_, u32>,
        new: &mut DeviceSliceMut<'_, u64>,
    ) -> Result<(), GpuError> {
        let (gpu, words) = (&self.gpu, items.len().div_ceil(32));
        let (firsts, mut before) = (gpu.alloc::<u32>(words)?, gpu.alloc::<u32>(words + 1)?);
        let shape = Shape::per_item(items.len(), THREADS);
        let (slots, base): (Argument, Argument) = ((&*items).into(), (self.len as u32).into());
        let [a, b, c] = self.table.arguments();
        let found: [Argument; 2] = [(&firsts).into(), (&before).into()];
        let arguments = [slots, count.into(), (words as u64).into(), base, a, b, c, found[0], found[1]];
        gpu.launch(kernel("number_first"), shape, &arguments)?;
        sum_before(gpu, &mut before.slice_mut(), Some(new))?;
        let arguments = [slots, count.into(), base, a, b, c, found[0], found[1], self.ids.slice().into()];
        gpu.launch(kernel("number_place"), shape, &arguments)?;
        gpu.launch(kernel("number_all"), shape, &[slots, count.into(), a, b, c])
    }

    /// There are `new` ids more, and the table holds all of them and no others.
    pub(crate) fn grow(&mut self, new: usize) {
        self.len += new;
        self.known = self.len;
        self.spoilt = false;
    }

    /// Number of ids.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The ids, by number.
    pub(crate) fn ids(&self) -> DeviceSlice<'_, u32> {
        self.ids.slice().part(0, self.len).unwrap_or(self.ids.slice())
    }

    fn into_ids(self) -> DeviceBuffer<u32> {
        let mut ids = self.ids;
        ids.truncate(self.len);
        ids
    }

    /// Tables of a word for each id only up to so many bytes. No result depends on it.
    #[cfg(test)]
    pub(crate) fn direct_up_to(&mut self, bytes: usize) {
        self.direct_bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    #[test]
    fn numbers_are_those_of_the_host() {
        for (order, (len, range)) in
            [(0, 1), (1, 1), (31, 5), (700, 1), (3000, 100), (3000, u32::MAX), (40_000, 1 << 20)]
                .into_iter()
                .enumerate()
        {
            let gpu = Gpu::under_test(order as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(4, Stream::Generate), len);
            // The last ids that there are, too.
            let mut ids = || (0..len).map(|_| draws.below(range).wrapping_sub(3)).collect::<Vec<u32>>();
            let lists = [ids(), vec![], ids(), vec![u32::MAX, 0]];
            let slices: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
            let expected = crate::unique(&slices);
            let lists: Vec<_> = lists.iter().map(|list| gpu.upload(list).unwrap()).collect();
            let lists: Vec<_> = lists.iter().map(|list| list.slice()).collect();
            let (ids, positions) = unique_on_device(&gpu, &lists).unwrap();
            assert!((ids.to_vec().unwrap(), positions.to_vec().unwrap()) == expected, "{len} ids below {range}");
        }
        let (ids, positions) = unique_on_device(&Gpu::under_test(0), &[]).unwrap();
        assert!(ids.is_empty() && positions.is_empty());
    }
}
