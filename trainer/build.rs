//! Links the trainer's tests so that they find libtorch when they run, and says plainly where it is missing. (In a clone
//! that has built nothing yet the build script of `torch-sys` may come first, and fail over `torch/torch.h`.)

use std::env;
use std::path::Path;

/// Writes cargo's instructions; the root package's build script runs it too, for the binary and its tests.
pub fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    let Ok(libtorch) = env::var("LIBTORCH") else {
        println!("cargo::error=LIBTORCH is not set: run cargo inside the repository, whose .cargo/config.toml sets it");
        return;
    };
    let lib = Path::new(&libtorch).join("lib");
    let core = lib.join("libtorch_cpu.so");
    println!("cargo::rerun-if-changed={}", core.display());
    if core.is_file() {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
        // target/release/gsplit goes on working in a checkout that was moved.
        println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/../../libtorch/lib");
    } else {
        println!("cargo::error={libtorch} holds no libtorch: run `make setup`, or build with --no-default-features");
    }
}
