//! With feature `emulation`, compiles every kernel as C++ for the host, into one object: tests then run them without a GPU.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // It names new files.
    println!("cargo::rerun-if-changed=src/cuda/module.rs");
    // Clippy links nothing.
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    let linted =
        env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|wrapper| wrapper.to_string_lossy().contains("clippy"));
    if cfg!(feature = "emulation") && !linted {
        emulation();
    }
}

fn emulation() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut sources = Vec::new();
    cuda_files(&root.join("src"), &mut sources);
    sources.sort();
    sources.iter().for_each(|path| println!("cargo::rerun-if-changed={}", path.display()));
    let found = sources.iter().filter(|path| path.extension().is_some_and(|extension| extension == "cu"));
    // Headers first: what they define is the same for all.
    let mut all: String = ["emulated/calls.h", "device.cuh", "columns.cuh", "rows.cuh"]
        .map(|name| format!("#include \"{name}\"\n"))
        .concat();
    // Kernels of different files may use the same names for what is their own.
    for (at, path) in found.enumerate() {
        all += &format!("namespace file_{at} {{\n#include \"{}\"\n}}\n", path.display());
    }
    let unit = out.join("emulation.cpp");
    if fs::read_to_string(&unit).ok().as_deref() != Some(&all) {
        fs::write(&unit, &all).unwrap_or_else(|error| panic!("{}: {error}", unit.display()));
    }
    #[cfg(feature = "emulation")]
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .debug(false)
        .flag("-w")
        // Single-precision sums are to be those of the CPU, bit for bit.
        .flag("-ffp-contract=off")
        // Calls what emulated/hazards.h has for them; no library of the compiler's is linked.
        .flag("-fsanitize=thread,alignment,bounds,shift,float-cast-overflow,integer-divide-by-zero")
        .include(root.join("src/cuda"))
        .file(&unit)
        .compile("gsplit_emulation");
    #[cfg(feature = "emulation")]
    fake(&root.join("src/cuda/fake"), &out);
}

/// CUDA's libraries as tests have them, over the emulation: in folder `fake`, found by `LD_LIBRARY_PATH`.
#[cfg(feature = "emulation")]
fn fake(sources: &Path, out: &Path) {
    let folder = out.join("fake");
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let emulation = ["-Wl,--whole-archive", "-L.", "-lgsplit_emulation", "-Wl,--no-whole-archive"];
    let driver = ["driver.cpp", "copies.cpp", "ipc.cpp", "kernels.cpp", "streams.cpp"];
    for (library, files, with) in
        [("libcuda.so", &driver[..], &emulation[..]), ("libnccl.so.2", &["nccl.cpp"], &["-ldl"])]
    {
        let mut compiler = cc::Build::new();
        let compiler = compiler.cpp(true).std("c++17").opt_level(1).debug(false).warnings(true).get_compiler();
        let mut link = compiler.to_command();
        link.current_dir(out).args(["-shared", "-fPIC", "-Wl,-Bsymbolic", "-o"]).arg(folder.join(library));
        let status = link.args(files.iter().map(|file| sources.join(file))).args(with).status();
        assert!(status.as_ref().is_ok_and(|status| status.success()), "{library} does not build: {status:?}");
    }
}

/// All that is CUDA or C++ below `folder`.
fn cuda_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            cuda_files(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| ["cu", "cuh", "h", "cpp"].iter().any(|name| extension == *name))
        {
            found.push(path);
        }
    }
}
