//! Relabelling on a GPU.
//!
//! Returns: the same numbers as on the host, whatever the order of threads. Input: fewer than 2^32 -
//! 1 ids. Idea: a table keeps the smallest position at which each id occurs. An item that finds its
//! own position there is its id's first; counting the firsts gives the numbers, which replace the
//! positions in the table, and every item looks up its own. Cost: for each item an atomic maximum
//! and three look-ups in the table, which for graphs of up to some ten million vertices stays in
//! the second-level cache. The table has a word for each vertex while that takes up to
//! [`DIRECT_BYTES`], and is a hash table of the mini-batch's size beyond. Only the GPU knows the
//! number of ids: the host knows a bound, and does not wait.

use crate::cuda::{Argument, DeviceBuffer, DeviceSlice, Gpu, GpuError, Module, arguments};
use crate::error::KernelError;
use crate::scan::cuda::sums_before;

pub(crate) static MODULE: Module = Module { name: "unique", source: include_str!("cuda.cu") };

/// Up to this size, a table has a word for each vertex of the graph.
const DIRECT_BYTES: usize = 1 << 30;

/// Map from ids to positions.
#[derive(Debug)]
pub(crate) enum DeviceIdMap {
    /// A word for each id.
    Direct(DeviceBuffer<u32>),
    /// Ids and positions, at most half full; their number is a power of two.
    Hash(DeviceBuffer<u64>),
}

impl DeviceIdMap {
    pub(crate) fn arguments(&self) -> [Argument; 3] {
        match self {
            Self::Direct(words) => arguments![words, 0u64, 0u32],
            Self::Hash(slots) => arguments![0u64, slots, (slots.len() - 1) as u32],
        }
    }
}

/// Items to be numbered: slots of the table, noted at the positions after those of the present ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items<'a> {
    /// Slots of the items; `u32::MAX` for missing items.
    pub slots: DeviceSlice<'a, u32>,
    /// Address of the number of rows, of `width` items each; without it there is one row.
    pub rows: Option<u64>,
    pub width: usize,
}

impl Items<'_> {
    fn arguments(&self) -> [Argument; 3] {
        arguments![self.slots, self.rows.unwrap_or(0), self.width]
    }
}

/// Numbers ids from 0, in order of first occurrence; the numbers of a mixed frontier stay from
/// layer to layer.
#[derive(Debug)]
pub(crate) struct DeviceNumbering {
    gpu: Gpu,
    pub table: DeviceIdMap,
    /// Ids by number; has room for more.
    ids: DeviceBuffer<u32>,
    /// Address of the number of ids.
    len: u64,
    /// Upper bound of the number of ids.
    most: usize,
    /// Upper bound of the number of ids at any time.
    cap: usize,
    /// The most room that was needed for ids so far.
    usual: usize,
    /// Ids are below this.
    limit: usize,
    /// Whether the table may hold ids that have no number here.
    spoilt: bool,
    direct_bytes: usize,
}

impl DeviceNumbering {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self {
            gpu: gpu.clone(),
            table: DeviceIdMap::Hash(gpu.zeros(1)?),
            ids: gpu.alloc(0)?,
            len: 0,
            most: 0,
            cap: 0,
            usual: 0,
            limit: 0,
            spoilt: false,
            direct_bytes: DIRECT_BYTES,
        })
    }

    /// Begins again, with ids below `limit`, `first` of which are added first.
    pub(crate) fn restart(&mut self, limit: usize, first: usize) -> Result<(), GpuError> {
        self.forget()?;
        (self.limit, self.cap) = (limit, limit.saturating_add(first));
        self.reserve(first)
    }

    /// Empties the table.
    fn forget(&mut self) -> Result<(), GpuError> {
        let (most, spoilt) = (std::mem::take(&mut self.most), std::mem::take(&mut self.spoilt));
        match &mut self.table {
            // Zeroing the whole table costs as much as zeroing a few scattered words.
            DeviceIdMap::Direct(words) if spoilt || most * 8 > words.len() => {
                words.slice_mut().zero(&self.gpu)
            }
            DeviceIdMap::Direct(words) => {
                let of = arguments![&self.ids, self.len, self.limit, &*words];
                self.gpu.run(MODULE.kernel("number_forget"), most, &of)
            }
            DeviceIdMap::Hash(slots) if spoilt || most > 0 => slots.slice_mut().zero(&self.gpu),
            DeviceIdMap::Hash(_) => Ok(()),
        }
    }

    /// Marks the table to be cleared before the next restart, unless [`DeviceNumbering::settle`]
    /// comes first.
    pub(crate) fn spoil(&mut self) {
        self.spoilt = true;
    }

    /// Makes room for `more` items.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), GpuError> {
        let most = self.most.saturating_add(more);
        if most >= u32::MAX as usize {
            return Err(KernelError::TooManyItems { what: "ids to number", got: most }.into());
        }
        // This exceeds `limit` only if some ids are invalid or repeated, which is detected later.
        let ids = most.min(self.cap);
        if self.ids.len() < ids {
            self.usual = self.usual.max(ids + ids / 4);
            let mut larger = self.gpu.alloc(self.usual)?;
            if self.most > 0 {
                larger.slice_mut().part(0, self.most)?.copy_from(&self.gpu, self.ids())?;
            }
            self.ids = larger;
        }
        let direct = self.limit.saturating_mul(size_of::<u32>()) <= self.direct_bytes;
        let slots = (2 * ids).next_power_of_two();
        match &self.table {
            DeviceIdMap::Direct(words) if direct && words.len() == self.limit => return Ok(()),
            DeviceIdMap::Hash(held) if !direct && held.len() >= slots => return Ok(()),
            _ => {}
        }
        self.table = match direct {
            true => DeviceIdMap::Direct(self.gpu.zeros(self.limit)?),
            false => DeviceIdMap::Hash(self.gpu.zeros(slots)?),
        };
        let of = [arguments![&self.ids, self.len, self.limit], self.table.arguments()].concat();
        self.gpu.run(MODULE.kernel("number_again"), self.most, &of)
    }

    /// Sets the ids to `ids` after a restart. The word at `len` gets their number; invalid ids are
    /// reported to `status`, except repeated ones.
    pub(crate) fn know(
        &mut self,
        ids: DeviceSlice<'_, u32>,
        [len, status]: [u64; 2],
    ) -> Result<(), GpuError> {
        let lists = arguments![ids, ids.len(), &self.ids, len, self.limit];
        let of = [&lists[..], &self.table.arguments(), &arguments![status]].concat();
        self.gpu.run(MODULE.kernel("number_known"), ids.len().max(1), &of)?;
        (self.len, self.most) = (len, ids.len());
        Ok(())
    }

    /// Notes the ids of both lists, one after the other, and returns their slots. Invalid ids are
    /// reported to `status`, and get no slot.
    fn note(
        &mut self,
        lists: [DeviceSlice<'_, u32>; 2],
        status: u64,
    ) -> Result<DeviceBuffer<u32>, GpuError> {
        self.spoil();
        let slots = self.gpu.alloc(lists[0].len() + lists[1].len())?;
        let lists = lists.map(|list| arguments![list, list.len()]).concat();
        let of =
            [&lists[..], &self.table.arguments(), &arguments![self.limit, &slots, status]].concat();
        self.gpu.run(MODULE.kernel("number_note"), slots.len(), &of)?;
        Ok(slots)
    }

    /// Numbers `items`. The words at `new` and `len` get the number of new ids and of all. The same
    /// launches replace each element of `also`, except the last, by the sum of those before it; the
    /// last, and the word at the address, get the sum of all.
    pub(crate) fn number(
        &mut self,
        items: &Items<'_>,
        [new, len]: [u64; 2],
        also: Option<(&mut DeviceBuffer<u32>, u64)>,
    ) -> Result<(), GpuError> {
        let (gpu, room) = (&self.gpu, items.slots.len());
        let words = room.div_ceil(32);
        let (firsts, mut before) = (gpu.alloc::<u32>(words)?, gpu.alloc::<u32>(words + 1)?);
        // If none are known, `len` was not written yet.
        let known = arguments![if self.most == 0 { 0 } else { self.len }];
        let found = arguments![&firsts, &before];
        let shared = [&items.arguments()[..], &known, &self.table.arguments(), &found].concat();
        let of = [&shared[..], &arguments![words]].concat();
        gpu.run(MODULE.kernel("number_first"), room, &of)?;
        match also {
            Some((values, total)) => {
                sums_before(gpu, [(&before.slice_mut(), new), (&values.slice_mut(), total)])?
            }
            None => sums_before(gpu, [(&before.slice_mut(), new)])?,
        }
        let of = [&shared[..], &arguments![&self.ids, new, len]].concat();
        gpu.run(MODULE.kernel("number_place"), room.max(1), &of)?;
        (self.len, self.most) = (len, (self.most + room).min(self.cap));
        Ok(())
    }

    /// Sets the ids to those of both lists, each once, after a restart. The words get the number of
    /// new ids (all of them), the total, and the error code of invalid ids. Returns their slots.
    pub(crate) fn start_with(
        &mut self,
        lists: [DeviceSlice<'_, u32>; 2],
        [new, len, status]: [u64; 3],
    ) -> Result<DeviceBuffer<u32>, GpuError> {
        let slots = self.note(lists, status)?;
        let items = Items { slots: slots.slice(), rows: None, width: slots.len() };
        self.number(&items, [new, len], None)?;
        Ok(slots)
    }

    /// Replaces numbered slots by numbers.
    pub(crate) fn look_up(&self, items: &Items<'_>) -> Result<(), GpuError> {
        let of = [items.arguments(), self.table.arguments()].concat();
        self.gpu.run(MODULE.kernel("number_all"), items.slots.len(), &of)
    }

    /// States that there are `len` ids, and that the table holds exactly these.
    pub(crate) fn settle(&mut self, len: usize) {
        self.most = len;
        self.spoilt = false;
    }

    /// Address of the number of ids, if there may be any.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Upper bound of the number of ids; exact once it is [settled](DeviceNumbering::settle).
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The ids, by number.
    pub(crate) fn ids(&self) -> DeviceSlice<'_, u32> {
        self.ids.slice().part(0, self.most).unwrap_or(self.ids.slice())
    }

    /// Takes the ids, by number, and forgets them.
    pub(crate) fn take_ids(&mut self) -> Result<DeviceBuffer<u32>, GpuError> {
        let len = self.most;
        self.forget()?;
        let mut ids = std::mem::replace(&mut self.ids, self.gpu.alloc(0)?);
        ids.truncate(len);
        Ok(ids)
    }

    /// Limits tables with a word for each id to `bytes`. No result depends on it.
    #[cfg(test)]
    pub(crate) fn direct_up_to(&mut self, bytes: usize) {
        self.direct_bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    /// Distinct ids of both lists, in order of first occurrence, and the position of every item,
    /// list after list.
    fn unique(gpu: &Gpu, lists: [&[u32]; 2]) -> (Vec<u32>, Vec<u32>) {
        let (mut numbering, words) =
            (DeviceNumbering::new(gpu).unwrap(), gpu.zeros::<u64>(3).unwrap());
        let [new, len, status] = [0, 8, 16].map(|at| words.slice().address() + at);
        let on_gpu = lists.map(|list| gpu.upload(list).unwrap());
        numbering.restart(1 << 32, lists.concat().len()).unwrap();
        let slots = numbering
            .start_with(on_gpu.each_ref().map(|list| list.slice()), [new, len, status])
            .unwrap();
        numbering.look_up(&Items { slots: slots.slice(), rows: None, width: slots.len() }).unwrap();
        let words = words.to_vec().unwrap();
        assert_eq!((words[0], words[2]), (words[1], 0));
        numbering.settle(words[1] as usize);
        (numbering.ids().to_vec(gpu).unwrap(), slots.to_vec().unwrap())
    }

    #[test]
    fn numbers_are_those_of_the_host() {
        for (order, (len, range)) in
            [(0, 1), (1, 1), (31, 5), (700, 1), (3000, 100), (3000, u32::MAX), (40_000, 1 << 20)]
                .into_iter()
                .enumerate()
        {
            let gpu = Gpu::under_test(order as u32 % 4);
            let mut draws = Draws::new(&StreamKey::new(4, Stream::Generate), len);
            // Includes the largest ids.
            let mut ids =
                || (0..len).map(|_| draws.below(range).wrapping_sub(3)).collect::<Vec<u32>>();
            let (one, other) = (ids(), [ids(), vec![u32::MAX, 0]].concat());
            assert!(
                unique(&gpu, [&one, &other]) == crate::unique(&[&one, &other]),
                "{len} ids below {range}"
            );
        }
        assert_eq!(unique(&Gpu::under_test(0), [&[], &[]]), (vec![], vec![]));
    }
}
