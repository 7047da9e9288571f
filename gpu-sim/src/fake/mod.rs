//! CUDA's driver, NCCL and torch's CUDA part without a GPU, for tests of the code that calls them:
//! `build.rs` builds them from `driver.cpp` and the files next to it.
//!
//! Idea: a program is started such that it finds them. NVRTC is the real one, and makes the cubins
//! from which the fake driver reads kernels' names and needs; without NVRTC nothing is run. Torch's
//! part covers everything that training on GPUs calls, unlike an emulated GPU: torch's tensors are
//! on "cuda", and backward runs in the threads of torch's devices.
//!
//! Unsafe code of this file: a call of the fake driver.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use gsplit_kernels::CudaSurvey;

/// The folder of the driver and NCCL.
pub const LIBRARIES: &str = concat!(env!("OUT_DIR"), "/fake");
/// torch's CUDA part; exists if libtorch was present at build time.
const TORCH: &str = concat!(env!("OUT_DIR"), "/fake/libtorch_cuda.so");

/// Lets `program` find the fake CUDA libraries.
///
/// # Errors
/// A line that names the missing part: NVRTC, or the libraries where they were built.
pub fn give_fake_cuda(program: &mut Command) -> Result<(), String> {
    give_libraries(program, &[])
}

/// [`give_fake_cuda`], with the libraries in `folders` before it.
fn give_libraries(program: &mut Command, folders: &[PathBuf]) -> Result<(), String> {
    CudaSurvey::look().compiler.map_err(|missing| missing.to_string())?;
    check_is_here(LIBRARIES)?;
    let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = folders.iter().cloned().chain([PathBuf::from(LIBRARIES)]);
    let folders = std::env::join_paths(folders.chain(std::env::split_paths(&others)));
    program
        .env("LD_LIBRARY_PATH", folders.map_err(|error| error.to_string())?)
        .env("XDG_CACHE_HOME", concat!(env!("OUT_DIR"), "/cache"));
    Ok(())
}

/// Gives `program` GPUs for training, as many as the variable `FAKE_CUDA_DEVICES` says, or one.
///
/// # Errors
/// A line that names the missing part.
pub fn give_fake_gpus(program: &mut Command) -> Result<(), String> {
    check_is_here(TORCH)?;
    give_fake_cuda(program.env("LD_PRELOAD", TORCH))
}

/// Like [`give_fake_gpus`] on a machine with PyTorch for CUDA, where the program itself opens
/// torch's CUDA part when it needs it: creates `folder`, with that part next to the libraries in
/// `libtorch`.
///
/// # Errors
/// A line that names the missing part.
pub fn give_late_gpus(program: &mut Command, libtorch: &Path, folder: &Path) -> Result<(), String> {
    check_is_here(TORCH)?;
    let of = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(of)?;
    std::fs::copy(TORCH, folder.join("libtorch_cuda.so")).map_err(of)?;
    for library in std::fs::read_dir(libtorch).map_err(of)? {
        let library = library.map_err(of)?;
        let place = folder.join(library.file_name());
        // A process knows a library by the path that it has, so a symbolic link would lead it away
        // from the folder.
        if !place.exists() {
            std::fs::hard_link(library.path(), place).map_err(of)?;
        }
    }
    give_libraries(program, &[folder.to_path_buf()])
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, how: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// How often this process, which has loaded the fake driver, did something that is slow on a real
/// GPU: `staged`, `crowded`, `pageable`, `by_torch`, `loading`, `registering`, `eager`; and
/// `threads` of kernels, and the `most` bytes in use (`driver.cpp`).
///
/// # Panics
/// Without the fake driver.
pub fn happened(what: &str) -> u64 {
    const NOW: c_int = 2;
    let what = CString::new(what).unwrap_or_default();
    // SAFETY: the driver is loaded already, or is the fake one; its function has this type.
    unsafe {
        let count = dlsym(dlopen(c"libcuda.so".as_ptr(), NOW), c"fake_cuda_count".as_ptr());
        assert!(!count.is_null(), "no fake driver");
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> u64>(count)(
            what.as_ptr(),
        )
    }
}

fn check_is_here(path: &str) -> Result<(), String> {
    if Path::new(path).exists() {
        return Ok(());
    }
    Err(format!("{path} is not here, where this program was built to find it"))
}
