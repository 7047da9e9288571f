//! Compiles the C++ part of `autograd` against libtorch's headers.

mod link;

fn main() {
    const SHIM: &str = "src/autograd/shim.cpp";
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link.rs");
    println!("cargo::rerun-if-changed={SHIM}");
    let Some(libtorch) = link::libtorch() else { return };
    let include = libtorch.join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file(SHIM)
        // System headers: their warnings are not ours.
        .flag("-isystem")
        .flag(&include)
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include"))
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .compile("gsplit_autograd_shim");
}
