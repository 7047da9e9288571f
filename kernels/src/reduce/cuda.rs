//! Sums of values on GPUs over all ranks.
//!
//! Returns: on every rank the bits of [`Communicator::all_reduce_sum_f32`] and its kin. Input: as
//! many values on every rank. Idea: rank `r` gets the `r`-th portion of the values of all, adds
//! them up by rank and sends the sum to all, from GPU to GPU. Cost: each value is sent twice, as
//! with a ring; a launch. The host waits as in [`device_all_to_all_v`], and for the values if the
//! group can only move them through the host. Why not `ncclAllReduce`: its order of addition
//! depends on the number of ranks, the size and the links.

use bytemuck::Pod;

use crate::comm::{Communicator, device_all_to_all_v};
use crate::cuda::{DeviceSliceMut, Gpu, GpuError, Module, arguments};
use crate::error::CommError;

pub(crate) static MODULE: Module = Module { name: "reduce", source: include_str!("cuda.cu") };

/// A type that GPUs can sum over ranks.
pub trait DeviceAddend: Pod {
    /// The kernel that adds.
    #[doc(hidden)]
    const KERNEL: &'static str;
    /// The sum through the host.
    #[doc(hidden)]
    fn on_host(comm: &dyn Communicator, values: &mut [Self]) -> Result<(), CommError>;
}

impl DeviceAddend for f32 {
    const KERNEL: &'static str = "sum_ranks_f32";
    fn on_host(comm: &dyn Communicator, values: &mut [Self]) -> Result<(), CommError> {
        comm.all_reduce_sum_f32(values)
    }
}

impl DeviceAddend for f64 {
    const KERNEL: &'static str = "sum_ranks_f64";
    fn on_host(comm: &dyn Communicator, values: &mut [Self]) -> Result<(), CommError> {
        comm.all_reduce_sum_f64(values)
    }
}

/// Replaces `values`, on this rank's `gpu`, by their sums over the ranks. Collective.
pub fn device_all_reduce_sum<T: DeviceAddend>(
    comm: &dyn Communicator,
    gpu: &Gpu,
    values: &mut DeviceSliceMut<'_, T>,
) -> Result<(), CommError> {
    let (rank, size, len) = (comm.rank(), comm.size(), values.len());
    if size == 1 {
        return Ok(());
    }
    let failure = |error: GpuError| {
        comm.fail(&error.to_string());
        CommError::Gpu { rank, reason: error.to_string() }
    };
    if comm.devices().is_none() {
        let mut on_host = values.as_slice().to_vec(gpu).map_err(failure)?;
        T::on_host(comm, &mut on_host)?;
        return values.upload(gpu, &on_host).map_err(failure);
    }
    let portions: Vec<usize> =
        (0..size).map(|rank| len * (rank + 1) / size - len * rank / size).collect();
    let mine = portions[rank];
    let room = || gpu.alloc::<T>(mine * size).map_err(failure);
    let (mut parts, sums) = (room()?, room()?);
    device_all_to_all_v(
        comm,
        gpu,
        values.as_slice(),
        &portions,
        &mut parts.slice_mut(),
        &vec![mine; size],
    )?;
    let of = arguments![&parts, mine, size as u32, &sums];
    gpu.run(MODULE.kernel(T::KERNEL), mine, &of).map_err(failure)?;
    device_all_to_all_v(comm, gpu, sums.slice(), &vec![mine; size], values, &portions)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::comm::{ByHost, Solo, Threads};
    use crate::philox::{Draws, Stream, StreamKey};

    fn values(rank: usize, len: usize) -> Vec<f64> {
        let mut draws = Draws::new(&StreamKey::new(9, Stream::Generate), rank as u32);
        (0..len).map(|_| f64::from(draws.unit_f32()) - 0.5).collect()
    }

    fn check(comm: &dyn Communicator, other: &dyn Communicator, len: usize) {
        let gpu = Gpu::under_test(comm.rank() as u32 % 4);
        let mut wide = values(comm.rank(), len);
        let mut narrow: Vec<f32> = wide.iter().map(|&value| value as f32).collect();
        for comm in [comm, other] {
            let (mut f64s, mut f32s) = (gpu.upload(&wide).unwrap(), gpu.upload(&narrow).unwrap());
            device_all_reduce_sum(comm, &gpu, &mut f64s.slice_mut()).unwrap();
            device_all_reduce_sum(comm, &gpu, &mut f32s.slice_mut()).unwrap();
            let (mut expected, mut narrower) = (wide.clone(), narrow.clone());
            comm.all_reduce_sum_f64(&mut expected).unwrap();
            comm.all_reduce_sum_f32(&mut narrower).unwrap();
            assert_eq!(f64s.to_vec().unwrap(), expected);
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(f32s.to_vec().unwrap()), bits(narrower));
        }
        // The sum of minus zeros is minus zero; empty lists stay empty.
        (wide, narrow) = (vec![], vec![-0.0; 3]);
        let (mut f64s, mut f32s) = (gpu.upload(&wide).unwrap(), gpu.upload(&narrow).unwrap());
        device_all_reduce_sum(comm, &gpu, &mut f64s.slice_mut()).unwrap();
        device_all_reduce_sum(comm, &gpu, &mut f32s.slice_mut()).unwrap();
        assert!(f32s.to_vec().unwrap().iter().all(|sum| sum.to_bits() == (-0.0f32).to_bits()));
    }

    #[test]
    fn sums_over_gpus_are_those_over_hosts() {
        check(&Solo, &Solo, 5);
        for (ranks, len) in [(2, 1), (2, 7), (3, 1000), (4, 3), (8, 5000)] {
            thread::scope(|scope| {
                for (comm, other) in Threads::group(ranks).into_iter().zip(Threads::group(ranks)) {
                    scope.spawn(move || check(&comm, &ByHost::new(&other), len));
                }
            });
        }
    }
}
