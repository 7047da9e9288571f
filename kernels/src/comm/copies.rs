//! Bytes between the GPUs of ranks that are threads of one process.
//!
//! Idea: a rank posts the address of its bytes, passes the gate, and copies the others' bytes for
//! it straight into its own memory: on the same GPU, or from another one, which the driver does
//! over NVLink or PCIe, or through the host where the two GPUs do not reach each other. Copies are
//! launched on the reader's stream, behind everything that the owner had launched before the gate;
//! after a second gate, the owner's next launches wait for the readers. Why not NCCL between
//! threads: an all-to-all in one process is plain copies, which leave the multiprocessors to the
//! kernels, need no library, and work for ranks that share a GPU, which NCCL refuses. Cost: one
//! copy of each byte. The host waits for the other ranks' threads at the two gates, but not for a
//! GPU.

use super::messages::{Messages, check_message, check_parts, or_leave};
use super::threads::lock;
use super::{DeviceExchange, Threads, starts};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError};
use crate::error::CommError;

const CALLED: &str = "device_all_to_all";

/// Memory that the other ranks may copy from, while this rank waits between the gates.
#[derive(Debug)]
pub(super) struct Post {
    gpu: Gpu,
    address: u64,
    /// Start of the part for each rank, and its bytes.
    parts: Vec<(usize, usize)>,
    /// Ranks that have launched their copies.
    readers: Vec<Gpu>,
}

impl DeviceExchange for Threads {
    fn device_all_to_all(
        &self,
        gpu: &Gpu,
        send: DeviceSlice<'_, u8>,
        send_bytes: &[usize],
        recv: DeviceSliceMut<'_, u8>,
        recv_bytes: &[usize],
    ) -> Result<(), CommError> {
        or_leave(self, check_parts(self.seat, (send_bytes, send.len()), (recv_bytes, recv.len())))?;
        let parts = starts(send_bytes).into_iter().zip(send_bytes.iter().copied()).collect();
        let post = Post { gpu: gpu.clone(), address: send.address(), parts, readers: Vec::new() };
        *lock(&self.shared.posts[self.seat.rank]) = Some(post);
        let copied = self
            .pass(CALLED)
            .and_then(|()| self.copy_from_all(gpu, recv, recv_bytes))
            .and_then(|()| self.pass(CALLED));
        // Before the post is withdrawn, so that a rank that misses it finds the reason.
        let copied = or_leave(self, copied);
        // In any case: no rank begins to read once `send` is the caller's again.
        let withdrawn = self.withdraw(gpu).map_err(|error| self.failure(error));
        copied.and(or_leave(self, withdrawn))
    }
}

impl Threads {
    fn failure(&self, error: GpuError) -> CommError {
        CommError::Gpu { rank: self.seat.own_name(), reason: error.to_string() }
    }

    fn copy_from_all(
        &self,
        gpu: &Gpu,
        mut recv: DeviceSliceMut<'_, u8>,
        expected: &[usize],
    ) -> Result<(), CommError> {
        let mut start = 0;
        for (from, &bytes) in expected.iter().enumerate() {
            let mut post = lock(&self.shared.posts[from]);
            let Some(post) = post.as_mut() else {
                let reason = "it has given up this exchange".to_string();
                return Err(self
                    .failed()
                    .unwrap_or(CommError::PeerFailed { rank: self.seat.name(from), reason }));
            };
            let (offset, sent) = post.parts[self.seat.rank];
            check_message(self.seat, from, sent, bytes)?;
            if bytes > 0 {
                let to = recv.reborrow().part(start, start + bytes);
                let copied = to.and_then(|mut to| {
                    gpu.wait_for(&post.gpu)?;
                    to.copy_across(gpu, &post.gpu, post.address + offset as u64)
                });
                copied.map_err(|error| self.failure(error))?;
                post.readers.push(gpu.clone());
            }
            start += bytes;
        }
        Ok(())
    }

    /// Takes the post back; later work on `gpu` comes after the copies.
    fn withdraw(&self, gpu: &Gpu) -> Result<(), GpuError> {
        let post = lock(&self.shared.posts[self.seat.rank]).take();
        post.iter().flat_map(|post| &post.readers).try_for_each(|reader| gpu.wait_for(reader))
    }
}
