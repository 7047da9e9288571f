//! The group of one.

use super::{Communicator, DeviceExchange, check_gather, check_parts};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu};
use crate::error::CommError;

/// A group of one rank: every collective returns at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Solo;

impl Communicator for Solo {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn barrier(&self) -> Result<(), CommError> {
        Ok(())
    }

    fn all_to_all_bytes(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        recv: &mut [u8],
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        check_parts(self, "bytes to send", send_bytes, send.len())?;
        check_parts(self, "bytes to receive", recv_bytes, recv.len())?;
        if send.len() != recv.len() {
            return Err(CommError::Mismatch { from: 0, to: 0, sent: send.len(), expected: recv.len() });
        }
        recv.copy_from_slice(send);
        Ok(())
    }

    fn all_reduce_sum_f32(&self, _values: &mut [f32]) -> Result<(), CommError> {
        Ok(())
    }

    fn all_reduce_sum_f64(&self, _values: &mut [f64]) -> Result<(), CommError> {
        Ok(())
    }

    fn all_reduce_sum_u64(&self, _values: &mut [u64]) -> Result<(), CommError> {
        Ok(())
    }

    fn all_gather_bytes(&self, send: &[u8], recv: &mut [u8]) -> Result<(), CommError> {
        check_gather(self, send.len(), recv.len())?;
        recv.copy_from_slice(send);
        Ok(())
    }

    fn devices(&self) -> Option<&dyn DeviceExchange> {
        Some(self)
    }

    /// No other rank exists.
    fn fail(&self, _reason: &str) {}
}

impl DeviceExchange for Solo {
    fn device_all_to_all(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        send_bytes: &[usize],
        mut recv: DeviceSliceMut<'_, u8>,
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        check_parts(self, "bytes to send", send_bytes, send.len())?;
        check_parts(self, "bytes to receive", recv_bytes, recv.len())?;
        if send.len() != recv.len() {
            return Err(CommError::Mismatch { from: 0, to: 0, sent: send.len(), expected: recv.len() });
        }
        let copied = if send.is_empty() { Ok(()) } else { recv.copy_from(gpu, send) };
        copied.map_err(|error| CommError::Gpu { rank: 0, reason: error.to_string() })
    }
}
