//! Rows of an [`Exchange`](super::Exchange) in the order of a frontier that ranks share.
//!
//! Such a frontier has rows that other ranks own, so its own rows are not the first that an
//! exchange brings: they are copied once, in the order of the mixed frontier.

use gsplit_kernels::{DeviceScatter, gather_f32, gather_on_device, scatter_add_f32};
use tch::Tensor;

use crate::Result;
use crate::autograd::{device_values, device_values_mut, values, values_mut};
use crate::operator::{Ids, Place, filled, filled_of, with_row};

/// The rows at `positions` of the matrix `rows`, `[positions, dim]`.
pub(super) fn rows_at(place: &Place, rows: &Tensor, positions: &Ids) -> Result<Tensor> {
    let (rows, dim) = (rows.contiguous(), rows.size()[1] as usize);
    let shape = [positions.len(), dim];
    match place {
        Place::Host(_) => {
            filled(&shape, |out| Ok(gather_f32(values(&rows)?, dim, positions.on_host()?, out)?))
        }
        Place::Device(gpu, device, ..) => {
            with_row!(rows.kind(), |T| filled_of::<T>(*device, &shape, |out| {
                let rows = device_values::<T>(*device, &rows)?;
                Ok(gather_on_device(gpu, rows, None, positions.on_gpu(gpu)?, dim, out)?)
            }))
        }
    }
}

/// The transpose of [`rows_at`]: adds row `i` of `rows` to row `positions[i]` of `count` rows that
/// start as zeros.
pub(super) fn rows_onto(
    place: &Place,
    rows: &Tensor,
    positions: &Ids,
    count: usize,
) -> Result<Tensor> {
    let (rows, dim) = (rows.contiguous(), rows.size()[1]);
    let mut onto = Tensor::f_zeros([count as i64, dim], (rows.kind(), rows.device()))?;
    match place {
        Place::Host(_) => {
            scatter_add_f32(
                values_mut(&mut onto)?,
                dim as usize,
                positions.on_host()?,
                values(&rows)?,
            )?;
        }
        Place::Device(gpu, device, ..) => {
            let scatter = DeviceScatter::new(gpu, positions.on_gpu(gpu)?, count)?;
            with_row!(rows.kind(), |T| {
                let rows = device_values::<T>(*device, &rows)?;
                scatter.add(
                    gpu,
                    &mut device_values_mut::<T>(*device, &mut onto)?,
                    dim as usize,
                    rows,
                )?;
            });
        }
    }
    Ok(onto)
}
