//! `gsplit doctor --profile`: measures this machine and writes the rates for `gsplit plan`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use gsplit_store::staging::{Staging, Target};
use gsplit_store::{DiskRates, Progress, Reading, shell_path};

use super::trainer;
use crate::child::tied;
use crate::presample::Device;
use crate::ui::Ui;

/// The first line of a profile that was measured: only such a file is replaced.
pub const MEASURED: &str = "# Measured by gsplit doctor --profile.";

/// Measures and prints the rates of the disk of `folder`; `None` if it cannot be measured, with a
/// note.
pub fn disk_rates(folder: Option<PathBuf>, ui: &Ui) -> Option<DiskRates> {
    let folder = folder.unwrap_or_else(std::env::temp_dir);
    let rates = DiskRates::of_folder(&folder, &Reading::default()).inspect_err(|error| {
        ui.note(&format!(
            "note: the disk is left out, {error}: name a folder to write to with --disk DIR"
        ));
    });
    let rates = rates.ok()?;
    let random = rates.random.map(|rate| format!("{rate:.0}")).join(", ");
    ui.say(format_args!(
        "  disk       {random} random reads of 4 KiB a second with 1, 8, 32, 128 in flight, {:.0} \
         MB/s in sequence, by {}",
        rates.stream / 1e6,
        rates.by
    ));
    Some(rates)
}

/// Has `gsplit-train` measure this machine, and stores its rates together with the rates of the
/// `disk`.
pub fn write_profile(path: &Path, device: Device, disk: Option<&DiskRates>, ui: &Ui) -> Result<()> {
    let name = if device == Device::Cpu { "cpu" } else { "cuda" };
    let mut command = Command::new(trainer()?);
    command.args(ui.threads().map(|threads| format!("--threads={threads}")));
    let measured = tied(&mut command).args(["profile", "--device", name]).output()?;
    let said = String::from_utf8_lossy(&measured.stderr);
    anyhow::ensure!(measured.status.success(), "{}", said.trim().trim_start_matches("error: "));
    let staging = Staging::begin(Target::file(path), true)?;
    let disk = disk.map_or(String::new(), |DiskRates { by, random, stream }| {
        format!("\n[disk]\nby = {by:?}\nrandom = {random:?}\nstream = {stream:?}\n")
    });
    fs::write(
        staging.file(),
        format!("{MEASURED}\n{}{disk}", String::from_utf8_lossy(&measured.stdout)),
    )?;
    let path = staging.commit()?;
    ui.say(format_args!(
        "profile written to {}: gsplit plan DATASET --profile {}",
        path.display(),
        shell_path(&path)
    ));
    Ok(())
}
