//! The index of a shuffle, made on a GPU.
//!
//! Input: the mixed frontier grouped by owner ([`split_on_device`](crate::split_on_device)), and where the vertices that are asked for
//! are in the local frontier ([`unique_on_device`](crate::unique_on_device)). Idea: every place is written by the one item that
//! knows it. Cost: a few numbers a vertex; the host does not wait.

use std::ops::Range;

use crate::cuda::{DeviceBuffer, DeviceSlice, Gpu, GpuError, Kernel, Module, Shape};
use crate::error::KernelError;

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

/// Where the row of each vertex of the mixed frontier is among those of the local frontier, `rows` of them, followed by those
/// that other ranks send. `order` are the positions of the mixed frontier, grouped by owner, this rank's in `own`; `local` are the
/// places of the latter in the local frontier.
///
/// # Errors
/// [`KernelError::Length`] if the lists do not fit each other, [`KernelError::TooManyItems`]; what the GPU reports.
pub fn sources_on_device(
    gpu: &Gpu,
    order: DeviceSlice<'_, u32>,
    own: Range<usize>,
    local: DeviceSlice<'_, u32>,
    rows: usize,
) -> Result<DeviceBuffer<u32>, GpuError> {
    let mixed = order.len();
    order.part(own.start, own.end)?;
    KernelError::check_len("places of own vertices", own.len(), local.len())?;
    let most = rows + mixed - own.len();
    u32::try_from(most).map_err(|_| KernelError::TooManyItems { what: "rows to exchange", got: most })?;
    let source = gpu.alloc::<u32>(mixed)?;
    let [from, to, mixed, rows] = [own.start, own.end, mixed, rows].map(|number| (number as u64).into());
    let arguments = [order.into(), mixed, from, to, local.into(), rows, (&source).into()];
    gpu.launch(kernel("shuffle_source"), Shape::per_item(order.len(), THREADS), &arguments)?;
    Ok(source)
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
    use crate::philox::{Stream, StreamKey};

    #[test]
    fn values_are_selected() {
        let gpu = Gpu::under_test(2);
        let (values, positions) = (gpu.upload(&[7u32, 8, 9]).unwrap(), gpu.upload(&[2u32, 0, 2, 3]).unwrap());
        let found = select_on_device(&gpu, values.slice(), positions.slice()).unwrap();
        assert_eq!(found.to_vec().unwrap(), [9, 7, 9, u32::MAX]);
    }

    #[test]
    fn oracle_every_row_is_found_where_it_is() {
        let cases = [(0, 0..0, 0), (5, 0..5, 0), (5, 5..5, 9), (5, 2..2, 0), (700, 200..450, 300), (3000, 0..1000, 1)];
        for (case, (mixed, own, asked)) in cases.into_iter().enumerate() {
            let gpu = Gpu::under_test(case as u32 % 4);
            let order = crate::permute(mixed, &StreamKey::new(case as u64, Stream::Split));
            // Own rows are first, behind them those that only others ask for.
            let (local, rows) = ((0..own.len() as u32).collect::<Vec<_>>(), own.len() + asked);
            let [order_there, local_there] = [&order, &local].map(|list| gpu.upload(list).unwrap());
            let source = sources_on_device(&gpu, order_there.slice(), own.clone(), local_there.slice(), rows).unwrap();
            let received: Vec<u32> = [&order[..own.start], &order[own.end..]].concat();
            for (position, from) in source.to_vec().unwrap().into_iter().enumerate() {
                let expected = match order[own.clone()].iter().position(|&p| p as usize == position) {
                    Some(at) => local[at] as usize,
                    None => rows + received.iter().position(|&p| p as usize == position).unwrap(),
                };
                assert_eq!(from as usize, expected, "case {case}, mixed row {position}");
            }
        }
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        let gpu = Gpu::under_test(0);
        let list = gpu.upload(&[0u32, 1, 2]).unwrap();
        for (own, local) in [(0..4, 3), (0..3, 2), (0..2, 3)] {
            let local = list.slice().part(0, local).unwrap();
            let error = sources_on_device(&gpu, list.slice(), own, local, 3).unwrap_err();
            assert!(matches!(error, GpuError::Input(KernelError::Length { .. })), "{error}");
        }
    }
}
