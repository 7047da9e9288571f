//! Memory shared between processes, emulated with threads of one process: a record of which stream
//! has which memory open.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gsplit_kernels::GpuError;

/// Exported memory, by its address.
static EXPORTED: Mutex<Option<HashMap<u64, Exported>>> = Mutex::new(None);

struct Exported {
    /// The stream that took it, in place of its process.
    owner: u32,
    /// Times that it is open.
    opened: u32,
}

fn with<R>(work: impl FnOnce(&mut HashMap<u64, Exported>) -> R) -> R {
    let mut all: MutexGuard<'_, _> = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    work(all.get_or_insert_default())
}

pub(super) fn refused(call: &'static str, reason: &str) -> GpuError {
    GpuError::Call { call, reason: reason.into() }
}

pub(super) fn add(address: u64, owner: u32) {
    with(|all| all.insert(address, Exported { owner, opened: 0 }));
}

pub(super) fn remove(address: u64) {
    let opened = with(|all| all.remove(&address)).map(|exported| exported.opened);
    // Dropping a buffer cannot return an error; while a test fails already, one error is enough.
    assert!(
        opened == Some(0) || std::thread::panicking(),
        "memory is freed that is open elsewhere: {opened:?}"
    );
}

pub(super) fn export(address: u64) -> Result<[u8; 64], GpuError> {
    let mut handle = [0; 64];
    handle[..8].copy_from_slice(&address.to_le_bytes());
    let known = with(|all| all.contains_key(&address));
    if known { Ok(handle) } else { Err(refused("export", "the memory is not one of its own")) }
}

pub(super) fn import(handle: [u8; 64], reader: u32) -> Result<u64, GpuError> {
    let address = handle.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    with(|all| match all.get_mut(&address) {
        None => Err(refused("import", "the memory is not there")),
        Some(exported) if exported.owner == reader => {
            Err(refused("import", "the memory is its own"))
        }
        Some(exported) => {
            exported.opened += 1;
            Ok(address)
        }
    })
}

pub(super) fn close(address: u64) {
    let closed = with(|all| match all.get_mut(&address) {
        Some(exported) if exported.opened > 0 => {
            exported.opened -= 1;
            true
        }
        _ => false,
    });
    assert!(closed || std::thread::panicking(), "memory is closed that is not open");
}
