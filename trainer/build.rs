//! Compiles the C++ part of `autograd` against libtorch's headers, and with feature `emulation` torch's CUDA part for tests.

mod link;

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    const SHIM: &str = "src/autograd/shim.cpp";
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link.rs");
    println!("cargo::rerun-if-changed={SHIM}");
    let Some(libtorch) = link::libtorch() else { return };
    // Clippy links nothing.
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    if env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(|wrapper| wrapper.contains("clippy")) {
        return;
    }
    compiler(&libtorch).file(SHIM).compile("gsplit_autograd_shim");
    if env::var_os("CARGO_FEATURE_EMULATION").is_some() {
        fake(&libtorch);
    }
}

fn compiler(libtorch: &Path) -> cc::Build {
    let include = libtorch.join("include");
    let mut compiler = cc::Build::new();
    // System headers: their warnings are not ours.
    compiler.cpp(true).std("c++17").debug(false).flag("-isystem").flag(&include);
    compiler.flag("-isystem").flag(include.join("torch/csrc/api/include")).define("_GLIBCXX_USE_CXX11_ABI", "1");
    compiler
}

/// `libtorch_cuda.so` as tests preload it, in the folder `fake`.
fn fake(libtorch: &Path) {
    const SOURCE: &str = "src/fake/torch_cuda.cpp";
    println!("cargo::rerun-if-changed={SOURCE}");
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("fake");
    std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let (library, lib) = (folder.join("libtorch_cuda.so"), libtorch.join("lib"));
    let mut link = compiler(libtorch).opt_level(1).get_compiler().to_command();
    link.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(SOURCE).arg("-L").arg(&lib);
    link.args(["-ltorch_cpu", "-lc10"]).arg(format!("-Wl,-rpath,{}", lib.display()));
    let status = link.status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{} does not build: {status:?}", library.display());
}
