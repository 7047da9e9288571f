//! The group of one.

use super::messages::{Messages, check_message, check_parts};
use super::wait::Limit;
use super::{DeviceExchange, Seat};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu};
use crate::error::CommError;

/// A group of one rank: every collective returns at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Solo;

impl Messages for Solo {
    fn seat(&self) -> Seat {
        Seat::among_all(0, 1)
    }

    fn exchange<'a>(
        &self,
        _called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        incoming: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), CommError> {
        check_message(self.seat(), 0, outgoing(0).len(), expected(0))?;
        incoming(0, outgoing(0));
        Ok(())
    }

    fn limit(&self) -> &Limit {
        static NONE: Limit = Limit::new(None);
        &NONE
    }

    fn failed(&self) -> Option<CommError> {
        None
    }

    fn devices(&self) -> Option<&dyn DeviceExchange> {
        Some(self)
    }

    /// No other rank exists.
    fn leave(&self, _reason: &str) {}
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
        check_parts(self.seat(), (send_bytes, send.len()), (recv_bytes, recv.len()))?;
        check_message(self.seat(), 0, send.len(), recv.len())?;
        let copied = if send.is_empty() { Ok(()) } else { recv.copy_from(gpu, send) };
        copied.map_err(|error| CommError::Gpu { rank: 0, reason: error.to_string() })
    }
}
