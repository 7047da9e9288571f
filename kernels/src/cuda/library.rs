//! Finding CUDA's libraries when a program runs.
//!
//! `cudarc` opens them by their plain names, and panics without them. So this module looks for them
//! first, also where the system does not: next to torch's libraries, where PyPI puts NVIDIA's,
//! either in the loaded libtorch or in the one that programs in the same folder load. A library
//! that was opened by its path is found by its plain name from then on.
//!
//! Unsafe code of this file: opening libraries, which runs their initialisers; setting variables of
//! the environment.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use super::GpuError;

/// Sets the environment variables that CUDA reads at its first call, unless they are set. A program
/// calls this first of all: where other threads run already, which may read the environment, it
/// does nothing.
///
/// * `CUDA_DEVICE_MAX_CONNECTIONS=32`: with fewer queues than streams, one stream's work waits
///   behind another's.
/// * `CUDA_MODULE_LOADING=EAGER` where ranks are `processes`: loading one of torch's kernels later
///   may wait for all of the GPU, where NCCL waits for other ranks. Elsewhere no GPU waits for a
///   rank, and loading all kernels of torch's libraries takes memory.
pub fn before_cuda(processes: bool) {
    if std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count) != 1 {
        return;
    }
    let eager = processes.then_some(("CUDA_MODULE_LOADING", "EAGER"));
    for (name, value) in eager.into_iter().chain([("CUDA_DEVICE_MAX_CONNECTIONS", "32")]) {
        if std::env::var_os(name).is_none() {
            // SAFETY: this is the only thread.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

/// Checks that there is a driver with all functions in use: `cudarc` panics without one of them.
/// The newest is `cuMemAllocAsync`.
pub(super) fn driver() -> Result<(), GpuError> {
    const NEEDED: (u32, u32) = (11, 2);
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: every CUDA program runs the driver's initialiser.
    let found = *FOUND.get_or_init(|| unsafe { cudarc::driver::sys::is_culib_present() });
    check(found, "NVIDIA's driver (libcuda.so)", "install it, or run with --device cpu")?;
    match driver_version() {
        driver if driver < NEEDED => {
            Err(GpuError::OldDriver { driver, needed: NEEDED, by: "gsplit" })
        }
        _ => Ok(()),
    }
}

/// The newest CUDA that the driver runs, e.g. (13, 0); the driver must be installed.
pub(super) fn driver_version() -> (u32, u32) {
    let mut number = 0;
    // SAFETY: the number is written, or stays 0.
    let _ = unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut number) };
    (number as u32 / 1000, number as u32 % 1000 / 10)
}

/// Checks that there is NVRTC, which compiles the kernels.
pub(super) fn compiler() -> Result<(), GpuError> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let open = || {
        // The compiler opens the first by itself, and would not search the folder where it was
        // found.
        open_somewhere(&[
            "libnvrtc-builtins.so.13.0",
            "libnvrtc-builtins.so.12.9",
            "libnvrtc-builtins.so.12.8",
        ]);
        open_somewhere(&["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"])
    };
    check(
        *FOUND.get_or_init(open),
        "NVRTC (libnvrtc.so.13)",
        "`pip install nvidia-cuda-nvrtc==13.0.88` into PyTorch's environment, or add the folder of \
         an installed CUDA toolkit to \
         LD_LIBRARY_PATH",
    )
}

/// Loads the CUDA part of this process's libtorch. libtorch does not load it by itself, and asks
/// only once whether it exists: a program calls this before its first question to torch about CUDA.
/// A program that is linked to the CUDA part, or preloads it, keeps that one.
///
/// # Errors
/// [`GpuError::Missing`] if this libtorch is made for the CPU only, or lacks a library of NVIDIA's.
pub fn load_torch_cuda() -> Result<(), GpuError> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    const NAME: &str = "libtorch_cuda.so";
    let open = || {
        loaded(NAME).is_some()
            || loaded_torch().is_some_and(|folder| open_for_all(&folder.join(NAME)))
    };
    check(
        *FOUND.get_or_init(open),
        "torch's CUDA part (libtorch_cuda.so)",
        "install a PyTorch 2.11 for CUDA; then, in a clone, run `make setup`, with an archive add \
         its torch/lib to LD_LIBRARY_PATH; \
         or run with --device cpu",
    )
}

/// Checks that there is NCCL, which joins GPUs.
pub(super) fn nccl() -> Result<(), GpuError> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = *FOUND.get_or_init(|| open_somewhere(&["libnccl.so.2", "libnccl.so"]));
    check(
        found,
        "NCCL (libnccl.so.2)",
        "`pip install nvidia-nccl-cu13` into PyTorch's environment; one GPU does without",
    )
}

fn check(found: bool, library: &'static str, remedy: &'static str) -> Result<(), GpuError> {
    if found { Ok(()) } else { Err(GpuError::Missing { library, remedy }) }
}

/// NCCL, for looking up its functions. `cudarc` cannot open it: it does not know the name that the
/// library has.
pub(super) fn open_nccl() -> Result<Library, GpuError> {
    nccl()?;
    let path = loaded("libnccl.so").unwrap_or_else(|| PathBuf::from("libnccl.so.2"));
    // SAFETY: it is open already.
    unsafe { Library::new(&path) }.map_err(|error| GpuError::Call {
        call: "dlopen",
        reason: format!("{}: {error}", path.display()),
    })
}

/// The number that function `name` of an opened library returns, such as its version.
pub(super) fn number(library: &str, name: &str) -> Option<i32> {
    type Function = unsafe extern "C" fn(*mut i32) -> i32;
    let mut number = 0;
    // SAFETY: called only for the version functions of CUDA's libraries, which all have this type
    // and return 0 for success.
    let outcome = unsafe {
        let library = Library::new(loaded(library)?).ok()?;
        let function = library.get::<Function>(name.as_bytes()).ok()?;
        let outcome = function(&mut number);
        // Other code uses it.
        std::mem::forget(library);
        outcome
    };
    (outcome == 0).then_some(number)
}

/// Path of the library that this process has loaded whose name starts with `name`.
pub(super) fn loaded(name: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is = |path: &&Path| {
        path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
    };
    paths.filter(|path| is(path)).map(Path::to_path_buf).next()
}

/// Opens the first of `names` that is found, for good.
fn open_somewhere(names: &[&str]) -> bool {
    names.iter().any(|name| {
        open(Path::new(name)) || folders().iter().any(|folder| open(&folder.join(name)))
    })
}

fn open(path: &Path) -> bool {
    // SAFETY: these are NVIDIA's own libraries, made to be opened by any program.
    unsafe { Library::new(path) }.map(std::mem::forget).is_ok()
}

/// Like [`open`], with its symbols visible to every library.
fn open_for_all(path: &Path) -> bool {
    use libloading::os::unix;
    // SAFETY: a part of the libtorch that is loaded already, made to be opened next to it.
    unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_GLOBAL) }
        .map(std::mem::forget)
        .is_ok()
}

/// Folders that may have NVIDIA's libraries.
fn folders() -> &'static [PathBuf] {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let libtorch = std::env::var_os("LIBTORCH").map(|root| PathBuf::from(root).join("lib"));
        let beside = |lib: PathBuf| {
            // torch/lib in site-packages, and nvidia/cu13/lib there.
            let lib = lib.canonicalize().unwrap_or(lib);
            let packages = lib.join("../../nvidia");
            [
                lib,
                packages.join("cu13/lib"),
                packages.join("cuda_nvrtc/lib"),
                packages.join("nccl/lib"),
            ]
        };
        let toolkit =
            ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
        let toolkit =
            toolkit.chain([PathBuf::from("/usr/local/cuda")]).map(|root| root.join("lib64"));
        let of_program = std::env::current_exe()
            .ok()
            .and_then(|program| Some(near(program.canonicalize().ok()?.parent()?)));
        let torch =
            loaded_torch().into_iter().chain(libtorch).chain(of_program.into_iter().flatten());
        torch.flat_map(beside).chain(toolkit).collect()
    })
}

/// Folders that may have the libtorch of programs in the folder `programs`, loaded or not: that of
/// a build, one packed with the program, or that of the Python environment where it is installed.
fn near(programs: &Path) -> Vec<PathBuf> {
    let mut found = vec![programs.join("../../libtorch/lib"), programs.join("../lib")];
    let pythons = std::fs::read_dir(programs.join("../lib")).into_iter().flatten().flatten();
    let pythons =
        pythons.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
    found.extend(pythons.map(|python| python.path().join("site-packages/torch/lib")));
    found
}

/// The folder of this process's libtorch.
fn loaded_torch() -> Option<PathBuf> {
    Some(loaded("libtorch_cpu.so")?.parent()?.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_sought_by_what_is_beside_the_program() {
        let root = tempfile::tempdir().unwrap();
        for folder in [
            "target/release",
            "libtorch/lib",
            "opt/env/bin",
            "opt/env/lib/python3.12/site-packages/torch/lib",
        ] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let there = |programs: &str| -> Vec<PathBuf> {
            let root = root.path().canonicalize().unwrap();
            let found = near(&root.join(programs))
                .into_iter()
                .filter_map(|folder| folder.canonicalize().ok());
            found.map(|folder| folder.strip_prefix(&root).unwrap().to_path_buf()).collect()
        };
        assert_eq!(there("target/release"), [Path::new("libtorch/lib")]);
        let packages = Path::new("opt/env/lib/python3.12/site-packages/torch/lib");
        assert_eq!(there("opt/env/bin"), [Path::new("opt/env/lib"), packages]);
    }
}
