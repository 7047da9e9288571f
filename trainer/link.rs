//! Links the trainer, the binary and their tests so that they find libtorch when they run, and says
//! plainly where it is missing. Part of two build scripts: the trainer's and the root package's.
//! (In a clone that has built nothing yet the build script of `torch-sys` may come first, and fail
//! over `torch/torch.h`.)

use std::env;
use std::path::{Path, PathBuf};

/// Writes cargo's instructions and returns where libtorch is, if it is there.
pub fn libtorch() -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    let Ok(libtorch) = env::var("LIBTORCH") else {
        println!(
            "cargo::error=LIBTORCH is not set: run cargo inside the repository, whose \
             .cargo/config.toml sets it"
        );
        return None;
    };
    let lib = Path::new(&libtorch).join("lib");
    let core = lib.join("libtorch_cpu.so");
    println!("cargo::rerun-if-changed={}", core.display());
    if !core.is_file() {
        println!(
            "cargo::error={libtorch} holds no libtorch: run `make setup`, or build with \
             --no-default-features"
        );
        return None;
    }
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
    // target/release/gsplit goes on working in a checkout that was moved.
    println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/../../libtorch/lib");
    Some(libtorch.into())
}
