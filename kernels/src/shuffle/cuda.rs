//! The index of a shuffle, made on a GPU.
//!
//! Returns: [`DeviceShuffle`]. Input: the mixed frontier grouped by owner ([`split_on_device`](crate::split_on_device)), and where
//! the vertices that are asked for are in the local frontier ([`unique_on_device`](crate::unique_on_device)). Idea: every place is
//! written by the one item that knows it; the copies of a row are its items in a stable sort. Cost: that sort; the host
//! does not wait.

use std::ops::Range;

use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError, Kernel, Module, Shape};
use crate::edges::DeviceEdges;
use crate::error::KernelError;
use crate::group::{Grouped, group_by_key};

pub(crate) static MODULE: Module = Module { name: "shuffle", source: include_str!("cuda.cu") };

const THREADS: u32 = 256;

fn kernel(name: &'static str) -> Kernel {
    Kernel { module: &MODULE, name }
}

/// Item `i` of the result is `values[positions[i]]`, `u32::MAX` where there is none.
///
/// # Errors
/// [`GpuError::OutOfMemory`]; what the GPU reports.
pub fn select_on_device(
    gpu: &Gpu,
    values: DeviceSlice<'_, u32>,
    positions: DeviceSlice<'_, u32>,
) -> Result<DeviceBuffer<u32>, GpuError> {
    let out = gpu.alloc(positions.len())?;
    let sizes = [(values.len() as u64).into(), (positions.len() as u64).into()];
    let arguments = [values.into(), sizes[0], positions.into(), sizes[1], (&out).into()];
    gpu.launch(kernel("shuffle_select"), Shape::per_item(positions.len(), THREADS), &arguments)?;
    Ok(out)
}

/// Which rows a rank sends, and where those that it receives belong.
#[derive(Debug)]
pub struct DeviceShuffle {
    /// Positions in the local frontier of the rows that other ranks asked for, by asking rank.
    pub send: DeviceBuffer<u32>,
    /// Positions in the mixed frontier of the rows that others own, by owner.
    pub receive: DeviceBuffer<u32>,
    /// For each mixed row: its position in the local frontier followed by the received rows.
    pub source: DeviceBuffer<u32>,
    /// From the mixed rows followed by the received ones to the local frontier's: a row's own copy first, then by rank.
    pub back: DeviceEdges,
}

impl DeviceShuffle {
    /// `order` are the positions of the mixed frontier, grouped by owner, this rank's in `own`; `receive` are those of the others
    /// alone ([`concat_on_device`]). `local` are positions in the local
    /// frontier of `rows` vertices: those of the mixed frontier's own, in the order of `order`, then of those that other ranks ask
    /// for, by rank.
    ///
    /// # Errors
    /// [`KernelError::Length`] if the lists do not fit each other, [`KernelError::TooManyItems`]; what the GPU reports.
    pub fn new(
        gpu: &Gpu,
        order: DeviceSlice<'_, u32>,
        own: Range<usize>,
        receive: DeviceBuffer<u32>,
        local: DeviceSlice<'_, u32>,
        rows: usize,
    ) -> Result<Self, GpuError> {
        let (mixed, mine) = (order.len(), own.len());
        let ours = order.part(own.start, own.end)?;
        let asked = local.part(mine, local.len())?;
        KernelError::check_len("positions of what others own", mixed - mine, receive.len())?;
        let most = rows.max(mixed) + asked.len().max(mixed);
        u32::try_from(most).map_err(|_| KernelError::TooManyItems { what: "rows to exchange", got: most })?;
        let send = concat_on_device(gpu, &[asked])?;
        let source = gpu.alloc::<u32>(mixed)?;
        let ends = [(own.start as u64).into(), (own.end as u64).into()];
        let arguments = [
            order.into(),
            (mixed as u64).into(),
            ends[0],
            ends[1],
            local.into(),
            (rows as u64).into(),
            (&source).into(),
        ];
        gpu.launch(kernel("shuffle_source"), Shape::per_item(mixed, THREADS), &arguments)?;
        let Grouped { indptr, order: items } = group_by_key(gpu, local, rows)?;
        let copies = gpu.alloc::<u32>(items.len())?;
        let sizes = [(mine as u64).into(), (mixed as u64).into()];
        let arguments =
            [(&items).into(), (items.len() as u64).into(), ours.into(), sizes[0], sizes[1], (&copies).into()];
        gpu.launch(kernel("shuffle_copies"), Shape::per_item(items.len(), THREADS), &arguments)?;
        let back = DeviceEdges::new(indptr, copies, mixed + asked.len())?;
        Ok(Self { send, receive, source, back })
    }

    /// Gives all of it to another stream ([`DeviceBuffer::give_to`]).
    pub fn give_to(&self, gpu: &Gpu) {
        [&self.send, &self.receive, &self.source].into_iter().for_each(|buffer| buffer.give_to(gpu));
        self.back.give_to(gpu);
    }
}

/// The lists, one behind the other.
///
/// # Errors
/// [`GpuError::OutOfMemory`]; what the GPU reports.
pub fn concat_on_device(gpu: &Gpu, lists: &[DeviceSlice<'_, u32>]) -> Result<DeviceBuffer<u32>, GpuError> {
    let mut out = gpu.alloc(lists.iter().map(|list| list.len()).sum())?;
    let mut from = 0;
    for list in lists.iter().filter(|list| !list.is_empty()) {
        out.slice_mut().part(from, from + list.len())?.copy_from(gpu, *list)?;
        from += list.len();
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    #[test]
    fn values_are_selected() {
        let gpu = Gpu::under_test(2);
        let (values, positions) = (gpu.upload(&[7u32, 8, 9]).unwrap(), gpu.upload(&[2u32, 0, 2, 3]).unwrap());
        let found = select_on_device(&gpu, values.slice(), positions.slice()).unwrap();
        assert_eq!(found.to_vec().unwrap(), [9, 7, 9, u32::MAX]);
    }

    #[test]
    fn oracle_every_row_goes_where_it_belongs_and_comes_back() {
        let cases = [(0, 0..0, 0), (5, 0..5, 0), (5, 5..5, 9), (5, 2..2, 0), (700, 200..450, 300), (3000, 0..1000, 1)];
        for (case, (mixed, own, asked)) in cases.into_iter().enumerate() {
            let gpu = Gpu::under_test(case as u32 % 4);
            let order = crate::permute(mixed, &StreamKey::new(case as u64, Stream::Split));
            let mut draws = Draws::new(&StreamKey::new(11, Stream::Generate), case as u32);
            // Own rows are distinct and first; what others ask for are these, or rows behind.
            let mine = own.len() as u32;
            let local: Vec<u32> = (0..mine).chain((0..asked).map(|_| draws.below(mine + 7))).collect();
            let rows = local.iter().map(|&row| row as usize + 1).max().unwrap_or(0);
            let [order_there, local_there] = [&order, &local].map(|list| gpu.upload(list).unwrap());
            let there = order_there.slice();
            let others = [there.part(0, own.start).unwrap(), there.part(own.end, mixed as usize).unwrap()];
            let others = concat_on_device(&gpu, &others).unwrap();
            let shuffle = DeviceShuffle::new(&gpu, there, own.clone(), others, local_there.slice(), rows).unwrap();
            let received: Vec<u32> = [&order[..own.start], &order[own.end..]].concat();
            assert_eq!(shuffle.send.to_vec().unwrap(), local[own.len()..], "case {case}");
            assert_eq!(shuffle.receive.to_vec().unwrap(), received, "case {case}");
            let source = shuffle.source.to_vec().unwrap();
            for (position, &from) in source.iter().enumerate() {
                let expected = match order[own.clone()].iter().position(|&p| p as usize == position) {
                    Some(at) => local[at] as usize,
                    None => rows + received.iter().position(|&p| p as usize == position).unwrap(),
                };
                assert_eq!(from as usize, expected, "case {case}, mixed row {position}");
            }
            let mut copies = vec![Vec::new(); rows];
            for (&row, &position) in local.iter().zip(&order[own.clone()]) {
                copies[row as usize].push(position);
            }
            for (&row, at) in local[own.len()..].iter().zip(mixed..) {
                copies[row as usize].push(at);
            }
            assert_eq!(shuffle.back.sources().to_vec(&gpu).unwrap(), copies.concat(), "case {case}");
            let starts = shuffle.back.indptr().to_vec(&gpu).unwrap();
            let lens: Vec<usize> = starts.windows(2).map(|ends| (ends[1] - ends[0]) as usize).collect();
            assert_eq!(lens, copies.iter().map(Vec::len).collect::<Vec<_>>(), "case {case}");
            assert_eq!(shuffle.back.num_sources(), (mixed + asked) as usize);
        }
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        let gpu = Gpu::under_test(0);
        let list = gpu.upload(&[0u32, 1, 2]).unwrap();
        for (own, others, local) in [(0..4, 0, 3), (0..3, 0, 2), (0..2, 0, 3)] {
            let (others, local) = (gpu.zeros(others).unwrap(), list.slice().part(0, local).unwrap());
            let error = DeviceShuffle::new(&gpu, list.slice(), own, others, local, 3).unwrap_err();
            assert!(matches!(error, GpuError::Input(KernelError::Length { .. })), "{error}");
        }
    }
}
