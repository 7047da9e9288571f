//! Compiles every kernel as C++ for the host, into one object, and over it the libraries of CUDA
//! and torch as tests have them: in folder `fake`.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // It names new files.
    println!("cargo::rerun-if-changed=../kernels/src/cuda/module.rs");
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    // Clippy links nothing.
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    if env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(|wrapper| wrapper.contains("clippy")) {
        return;
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    emulation(&root, &out);
    let (sources, folder) = (root.join("src/fake"), out.join("fake"));
    fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let emulation = ["-Wl,--whole-archive", "-L.", "-lgsplit_emulation", "-Wl,--no-whole-archive"];
    let driver = ["driver.cpp", "copies.cpp", "ipc.cpp", "kernels.cpp", "streams.cpp"];
    for (library, files, with) in
        [("libcuda.so", &driver[..], &emulation[..]), ("libnccl.so.2", &["nccl.cpp"], &["-ldl"])]
    {
        let mut link = compiler().opt_level(1).warnings(true).get_compiler().to_command();
        link.current_dir(&out)
            .args(["-shared", "-fPIC", "-Wl,-Bsymbolic", "-o"])
            .arg(folder.join(library));
        link.args(files.iter().map(|file| sources.join(file))).args(with);
        run(link);
    }
    let libtorch = PathBuf::from(env::var_os("LIBTORCH").unwrap_or_default());
    if libtorch.join("lib/libtorch_cpu.so").is_file() {
        torch(&libtorch, &sources.join("torch_cuda.cpp"), &folder.join("libtorch_cuda.so"));
    }
}

fn compiler() -> cc::Build {
    let mut compiler = cc::Build::new();
    compiler.cpp(true).std("c++17").debug(false);
    compiler
}

/// `libgsplit_emulation.a`.
fn emulation(root: &Path, out: &Path) {
    let (kernels, own) = (root.join("../kernels/src"), root.join("src"));
    let mut sources = Vec::new();
    cuda_files(&kernels, &mut sources);
    cuda_files(&own, &mut sources);
    sources.sort();
    sources.iter().for_each(|path| println!("cargo::rerun-if-changed={}", path.display()));
    let found =
        sources.iter().filter(|path| path.extension().is_some_and(|extension| extension == "cu"));
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
    compiler()
        .opt_level(2)
        .flag("-w")
        // Single-precision sums are to be those of the CPU, bit for bit.
        .flag("-ffp-contract=off")
        // Calls what emulated/hazards.h has for them; no library of the compiler's is linked.
        .flag("-fsanitize=thread,alignment,bounds,shift,float-cast-overflow,integer-divide-by-zero")
        .include(own)
        .include(kernels.join("cuda"))
        .file(&unit)
        .compile("gsplit_emulation");
}

/// torch's CUDA part, to be preloaded.
fn torch(libtorch: &Path, source: &Path, library: &Path) {
    let (include, lib) = (libtorch.join("include"), libtorch.join("lib"));
    let mut compiler = compiler();
    // System headers: their warnings are not ours.
    compiler
        .flag("-isystem")
        .flag(&include)
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include"));
    let mut link =
        compiler.define("_GLIBCXX_USE_CXX11_ABI", "1").opt_level(1).get_compiler().to_command();
    link.args(["-shared", "-fPIC", "-o"]).arg(library).arg(source).arg("-L").arg(&lib);
    link.args(["-ltorch_cpu", "-lc10"]).arg(format!("-Wl,-rpath,{}", lib.display()));
    run(link);
}

fn run(mut link: std::process::Command) {
    let status = link.status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{link:?}: {status:?}");
}

/// All that is CUDA or C++ below `folder`.
fn cuda_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            cuda_files(&path, found);
        } else if path.extension().is_some_and(|extension| {
            ["cu", "cuh", "h", "cpp"].iter().any(|name| extension == *name)
        }) {
            found.push(path);
        }
    }
}
