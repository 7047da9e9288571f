//! `gsplit doctor --profile`: what this machine can do, measured and written for `gsplit plan`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use gsplit_store::shell_path;
use gsplit_store::staging::{Staging, Target};

use super::trainer;
use gsplit::ui::Ui;

/// Device to measure.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Measured {
    /// All threads of the host
    Cpu,
    /// All GPUs that CUDA_VISIBLE_DEVICES leaves
    Cuda,
}

impl Measured {
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

/// The first line of a profile that was measured: such a file is replaced, no other.
pub const MEASURED: &str = "# Measured by gsplit doctor --profile.";

/// Has `gsplit-train` measure this machine, and keeps what it says.
pub fn write_profile(path: &Path, device: Measured, ui: &Ui) -> Result<()> {
    let mut command = Command::new(trainer()?);
    command.args(ui.threads().map(|threads| format!("--threads={threads}")));
    let measured = command.args(["profile", "--device", device.name()]).output()?;
    let said = String::from_utf8_lossy(&measured.stderr);
    anyhow::ensure!(measured.status.success(), "{}", said.trim().trim_start_matches("error: "));
    let staging = Staging::begin(Target::file(path), true)?;
    fs::write(staging.file(), format!("{MEASURED}\n{}", String::from_utf8_lossy(&measured.stdout)))?;
    let path = staging.commit()?;
    ui.say(format_args!("profile written to {}: gsplit plan DATASET --profile {}", path.display(), shell_path(&path)));
    Ok(())
}
