//! The machine that this runs on, and the folder of files that are cached for it.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The user's folder for machine-dependent files that can be made again: `$XDG_CACHE_HOME/gsplit`,
/// or `~/.cache/gsplit`.
pub fn cache_folder() -> Option<PathBuf> {
    let root = match env::var_os("XDG_CACHE_HOME").filter(|root| Path::new(root).is_absolute()) {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(env::var_os("HOME")?).join(".cache"),
    };
    Some(root.join("gsplit"))
}

/// The processor's name according to the system, with family and model, since virtual machines hide
/// names; else its architecture.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
    };
    match (field("model name"), field("cpu family"), field("model")) {
        (Some(name), Some(family), Some(model)) => {
            format!("{name} (family {family}, model {model})")
        }
        (Some(name), ..) => name.into(),
        _ => env::consts::ARCH.into(),
    }
}

/// Whether the processor has AVX-512.
pub fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}
