//! Remedies that depend on how this gsplit was installed.

/// How to get back a missing `gsplit-train` or libtorch; this depends on whether gsplit was
/// installed from an archive, which has a file INSTALL, into a Python environment, or from a clone.
pub fn remedy() -> &'static str {
    let program = std::env::current_exe().unwrap_or_default();
    let beside = |name: &str| program.with_file_name(name).exists();
    match program.parent() {
        Some(bin) if bin.with_file_name("INSTALL").is_file() => "unpack the archive again, whole",
        Some(_) if beside("python3") => {
            "install the wheel again: `pip install --force-reinstall --no-deps gsplit-*.whl`"
        }
        _ => "run `make setup`, which finds or fetches libtorch, and `make build`",
    }
}
