//! TensorBoard's event files: scalars, whose step is the epoch in the folder itself and the
//! mini-batch in the subfolder `steps`, which TensorBoard shows as a separate run.
//!
//! A file is a sequence of TFRecords, each one `Event` of tensorflow/core/util/event.proto, encoded
//! by hand:
//!
//! ```text
//! record      length u64 · masked crc of the length u32 · data · masked crc of the data u32       little-endian
//! masked crc  ((c >> 15) | (c << 17)) + 0xa282ead8 of c, the CRC-32C of the bytes
//! Event       1 wall_time double · 2 step int64 · 3 file_version string · 5 summary Summary · 7 session_log SessionLog
//! Summary     1 value, repeated: 1 tag string · 2 simple_value float
//! SessionLog  1 status enum, 1 = START: records in other files of the folder from this step on are void
//! ```
//!
//! A fresh run voids everything in the folder; a resumed one voids records that a killed run logged
//! after its last checkpoint, and adds to the rest. If the folder has no event file yet, the epochs
//! before the resume are written too.
//!
//! Mini-batches have their own folder because the step, which then has one meaning, decides which
//! records are void.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gsplit_store::staging::make_folder;

use super::StepRecord;
use crate::Result;
use crate::report::EpochReport;

/// Part of an event file's name by which TensorBoard finds it.
const MARK: &str = "tfevents";

/// End of our file names.
const OURS: &str = ".gsplit";

/// An event file in `folder` that another program wrote: a fresh run would void its records.
pub fn foreign_events(folder: &Path) -> Option<PathBuf> {
    event_files(folder)
        .ok()?
        .into_iter()
        .find(|path| !path.as_os_str().as_encoded_bytes().ends_with(OURS.as_bytes()))
}

fn event_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = gsplit_store::entries(folder)?;
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(MARK)));
    Ok(found)
}

/// An event file under construction.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Creates a file in `folder` that voids records of other files from step `first` on; also
    /// returns true if there are no other files, so that it has to begin with step 1.
    pub fn create(folder: &Path, first: u64) -> Result<(Self, bool)> {
        let io = |path: &Path| gsplit_store::Error::io(path.to_path_buf());
        make_folder(folder)?;
        let others = !event_files(folder).map_err(io(folder))?.is_empty();
        // TensorBoard reads files in the order of their names, so they begin with the time, to the
        // nanosecond.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, nanos, process) = (now.as_secs(), now.subsec_nanos(), std::process::id());
        let path =
            folder.join(format!("events.out.{MARK}.{seconds:010}.{nanos:09}.{process}{OURS}"));
        let file = File::create_new(&path).map_err(io(&path))?;
        let mut events = Self { path, file };
        let begun = events.event(0, 3, b"brain.Event:2");
        let begun = begun
            .and_then(|()| events.event(if others { first } else { 1 }, 7, &[tag(1, VARINT), 1]));
        match begun {
            Ok(()) => Ok((events, !others)),
            Err(error) => {
                // A file without its beginning is useless; if it cannot be removed it does no harm.
                let _ = std::fs::remove_file(&events.path);
                Err(error)
            }
        }
    }

    /// Appends the scalars of an epoch.
    pub fn write(&mut self, report: &EpochReport) -> Result<()> {
        self.scalars(u64::from(report.epoch), &of_epoch(report))
    }

    /// Appends the scalars of a record of mini-batches.
    pub fn write_step(&mut self, record: &StepRecord) -> Result<()> {
        self.scalars(record.step, &of_steps(record))
    }

    fn scalars(&mut self, step: u64, scalars: &[(&str, Option<f64>)]) -> Result<()> {
        let mut summary = Vec::new();
        for &(name, value) in scalars {
            let Some(value) = value else { continue };
            let mut scalar = Vec::new();
            bytes(&mut scalar, 1, name.as_bytes());
            scalar.push(tag(2, FIXED_32));
            scalar.extend((value as f32).to_le_bytes());
            bytes(&mut summary, 1, &scalar);
        }
        self.event(step, 5, &summary)
    }

    /// Appends one event, whose field `field` holds `content`.
    fn event(&mut self, step: u64, field: u8, content: &[u8]) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut event = vec![tag(1, FIXED_64)];
        event.extend(now.as_secs_f64().to_le_bytes());
        event.push(tag(2, VARINT));
        varint(&mut event, step);
        bytes(&mut event, field, content);
        // One call, so that concurrent readers see whole records.
        Ok(self.file.write_all(&record(&event)).map_err(gsplit_store::Error::io(&self.path))?)
    }
}

/// The scalars of an epoch by their tags.
fn of_epoch(report: &EpochReport) -> [(&'static str, Option<f64>); 25] {
    let t = &report.timings;
    [
        ("loss/train", Some(report.loss)),
        ("loss/valid", report.valid_loss),
        ("metric/train", report.train),
        ("metric/valid", report.valid),
        ("metric/test", report.test),
        ("optimizer/learning_rate", Some(report.learning_rate)),
        ("optimizer/gradient_norm", Some(report.gradient_norm)),
        ("optimizer/loss_scale", report.loss_scale),
        ("seconds/epoch", Some(report.seconds)),
        ("seconds/sample", Some(t.sample_s)),
        ("seconds/load", Some(t.load_s)),
        ("seconds/compute", Some(t.compute_s)),
        ("seconds/exchange", Some(t.exchange_s)),
        ("seconds/wait", Some(t.wait_s)),
        ("work/edges", Some(report.work.edges as f64)),
        ("work/rows_loaded", Some(report.work.rows_loaded as f64)),
        ("work/rows_cached", Some(report.work.rows_cached as f64)),
        ("work/rows_from_peers", Some(report.work.rows_from_peers as f64)),
        ("work/rows_from_disk", Some(report.work.rows_from_disk as f64)),
        ("work/bytes_from_disk", Some(report.work.bytes_from_disk as f64)),
        ("work/rows_kept", Some(report.work.rows_kept as f64)),
        ("work/rows_exchanged", Some(report.work.rows_exchanged as f64)),
        ("work/bytes_sent", Some(report.work.bytes_sent as f64)),
        ("memory/gpu_pool_bytes", report.memory.map(|memory| memory.gpu_pool_bytes as f64)),
        ("memory/gpu_torch_bytes", report.memory.map(|memory| memory.gpu_torch_bytes as f64)),
    ]
}

/// The scalars of a record of mini-batches by their tags.
fn of_steps(record: &StepRecord) -> [(&'static str, Option<f64>); 14] {
    let t = &record.timings;
    [
        ("loss/train", Some(record.loss)),
        ("optimizer/learning_rate", Some(record.learning_rate)),
        ("optimizer/gradient_norm", Some(record.gradient_norm)),
        ("optimizer/loss_scale", record.loss_scale),
        ("seconds/steps", Some(record.seconds)),
        ("seconds/sample", Some(t.sample_s)),
        ("seconds/load", Some(t.load_s)),
        ("seconds/compute", Some(t.compute_s)),
        ("seconds/exchange", Some(t.exchange_s)),
        ("seconds/wait", Some(t.wait_s)),
        ("work/edges_per_s", Some(record.edges_per_s)),
        ("work/rows_per_s", Some(record.rows_per_s)),
        ("memory/gpu_pool_bytes", record.memory.map(|memory| memory.gpu_pool_bytes as f64)),
        ("memory/gpu_torch_bytes", record.memory.map(|memory| memory.gpu_torch_bytes as f64)),
    ]
}

/// Protobuf's wire types.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const LENGTH: u8 = 2;
const FIXED_32: u8 = 5;

fn tag(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bytes(out: &mut Vec<u8>, field: u8, content: &[u8]) {
    out.push(tag(field, LENGTH));
    varint(out, content.len() as u64);
    out.extend(content);
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc(data).to_le_bytes());
    record
}

/// CRC-32C as TFRecords store it, so that a record within a record has another one.
pub(super) fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: a run logs only some hundred bytes per epoch.
pub(super) fn crc32c(data: &[u8]) -> u32 {
    const REVERSED_POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _| (crc >> 1) ^ (REVERSED_POLYNOMIAL & 0u32.wrapping_sub(crc & 1));
    !data.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}
