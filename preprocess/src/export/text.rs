//! Text by chunks: formatted in parallel, written in order.
//!
//! Numbers are formatted by itoa and zmij (the shortest decimal that
//! reads back to the same float), never by a `format!` a line.

use std::io::Write;
use std::ops::Range;

use flate2::Compression;
use flate2::write::GzEncoder;
use gsplit_store::Stage;

use super::edges::in_order;
use super::output::SyncedFile;
use crate::{Error, Result};

/// Lines that are formatted at a time by a thread.
pub(super) const LINES: usize = 1 << 16;

/// Appends an integer in decimal.
pub(super) fn push_int(text: &mut Vec<u8>, value: impl itoa::Integer) {
    text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a float in the shortest decimal that reads back to it.
pub(super) fn push_float(text: &mut Vec<u8>, value: impl zmij::Float) {
    text.extend_from_slice(zmij::Buffer::new().format(value).as_bytes());
}

/// Formats the lines `ranges` and appends them to `sink`. `format` appends the lines of a range.
/// With `gzip` every range is a gzip member of its own: readers see one text.
pub(super) fn write_lines(
    sink: &mut SyncedFile,
    ranges: impl Iterator<Item = Range<usize>>,
    gzip: bool,
    stage: &dyn Stage,
    format: impl Fn(Range<usize>, &mut Vec<u8>) -> Result<()> + Sync,
) -> Result<()> {
    let formatted = |range| {
        let mut text = Vec::new();
        format(range, &mut text)?;
        if gzip { compress(&text) } else { Ok(text) }
    };
    in_order(ranges, stage, formatted, |text| sink.push(&text))
}

/// `text` as one gzip member.
pub(super) fn compress(text: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).and_then(|()| encoder.finish()).map_err(Error::io("gzip"))
}
