//! Links the binary and its tests so that they find libtorch when they run. Without training there is nothing to do.

#[path = "trainer/link.rs"]
mod link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=trainer/link.rs");
    if std::env::var_os("CARGO_FEATURE_TRAIN").is_some() {
        let _ = link::libtorch();
    }
}
