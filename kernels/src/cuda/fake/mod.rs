//! CUDA's driver and NCCL without a GPU, for tests of the code that calls them: what `driver.cpp` and `nccl.cpp` are built to by `build.rs`.
//!
//! Idea: a program is started with `LD_LIBRARY_PATH` such that they are found. NVRTC is the real one, and makes the cubins that the fake
//! driver takes kernels' names and needs from; without NVRTC nothing is run.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::library;

/// Where `build.rs` puts the libraries.
const LIBRARIES: &str = concat!(env!("OUT_DIR"), "/fake");

/// Lets `program` find CUDA's libraries as tests have them.
///
/// # Errors
/// A line that says what is missing here: NVRTC, or the libraries where they were built.
pub fn give_fake_cuda(program: &mut Command) -> Result<(), String> {
    library::compiler().map_err(|missing| missing.to_string())?;
    if !Path::new(LIBRARIES).is_dir() {
        return Err(format!("{LIBRARIES} is not here, where this program was built to find it"));
    }
    let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = [PathBuf::from(LIBRARIES)].into_iter().chain(std::env::split_paths(&others));
    let folders = std::env::join_paths(folders).map_err(|error| error.to_string())?;
    program.env("LD_LIBRARY_PATH", folders).env("XDG_CACHE_HOME", concat!(env!("OUT_DIR"), "/cache"));
    Ok(())
}
