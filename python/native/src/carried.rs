//! Messages between ranks that a Python function carries: PyTorch's `all_to_all_single`, on a group
//! of its own.

use std::sync::{Mutex, PoisonError};

use gsplit_kernels::{CommError, Limit, Messages, Seat};
use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Messages between the ranks, carried by a Python function: `exchange(bytes, lengths to each rank,
/// lengths from each rank)`, which returns the received bytes.
pub struct Carried {
    seat: Seat,
    exchange: Py<PyAny>,
    limit: Limit,
    failed: Mutex<Option<CommError>>,
}

impl Carried {
    pub fn new(seat: Seat, exchange: Py<PyAny>) -> Self {
        Self { seat, exchange, limit: Limit::new(None), failed: Mutex::default() }
    }

    fn carry(
        &self,
        send: Vec<u8>,
        to: Vec<usize>,
        recv: &mut [u8],
        from: Vec<usize>,
    ) -> PyResult<()> {
        Python::attach(|py| {
            let came = self.exchange.call1(py, (send.into_pyarray(py), to, from))?;
            let came: PyReadonlyArray1<'_, u8> = came.extract(py)?;
            let came = came.as_slice()?;
            if came.len() != recv.len() {
                let problem =
                    format!("exchange returned {} bytes, expected {}", came.len(), recv.len());
                return Err(PyValueError::new_err(problem));
            }
            recv.copy_from_slice(came);
            Ok(())
        })
    }
}

impl Messages for Carried {
    fn seat(&self) -> Seat {
        self.seat
    }

    fn exchange_into<'a>(
        &self,
        _called: &'static str,
        outgoing: &dyn Fn(usize) -> &'a [u8],
        expected: &dyn Fn(usize) -> usize,
        recv: &mut [u8],
    ) -> Result<(), CommError> {
        if let Some(failed) = self.failed() {
            return Err(failed);
        }
        let ranks = 0..self.seat.size;
        let send: Vec<u8> = ranks.clone().flat_map(outgoing).copied().collect();
        let to = ranks.clone().map(|rank| outgoing(rank).len()).collect();
        self.carry(send, to, recv, ranks.map(expected).collect()).map_err(|error| {
            let said = Python::attach(|py| error.value(py).to_string());
            let line = said.lines().next().unwrap_or_default();
            CommError::Start {
                reason: format!("rank {}, which samples with the others: {line}", self.seat.rank),
            }
        })
    }

    fn limit(&self) -> &Limit {
        &self.limit
    }

    fn failed(&self) -> Option<CommError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The others learn of it from PyTorch, when this process ends or their timeout expires.
    fn leave(&self, reason: &str) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| CommError::PeerFailed {
            rank: self.seat.rank,
            reason: reason.to_string(),
        });
    }
}
