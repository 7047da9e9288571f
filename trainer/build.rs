//! Compiles the C++ parts of `autograd` and of `ranks/c10d` against libtorch's headers.

mod link;

use std::env;

fn main() {
    const AUTOGRAD: &str = "src/autograd/shim.cpp";
    const C10D: &str = "src/ranks/c10d";
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link.rs");
    println!("cargo::rerun-if-changed=src/guarded.h");
    println!("cargo::rerun-if-changed={AUTOGRAD}");
    println!("cargo::rerun-if-changed={C10D}/shim.cpp");
    println!("cargo::rerun-if-changed={C10D}/stub");
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
    compiler
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include"))
        .define("_GLIBCXX_USE_CXX11_ABI", "1");
    compiler.include("src");
    compiler.clone().file(AUTOGRAD).compile("gsplit_autograd_shim");
    compiler
        .flag("-isystem")
        .flag(format!("{C10D}/stub"))
        .file(format!("{C10D}/shim.cpp"))
        .compile("gsplit_c10d_shim");
}
