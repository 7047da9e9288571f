//! Compiles the C++ part of `autograd` against libtorch's headers.

mod link;

use std::env;

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
    let include = libtorch.join("include");
    let mut compiler = cc::Build::new();
    // System headers: their warnings are not ours.
    compiler.cpp(true).std("c++17").debug(false).flag("-isystem").flag(&include);
    compiler.flag("-isystem").flag(include.join("torch/csrc/api/include")).define("_GLIBCXX_USE_CXX11_ABI", "1");
    compiler.file(SHIM).compile("gsplit_autograd_shim");
}
