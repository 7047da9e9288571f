//! Rates of a disk, measured by the same reads as in training.
//!
//! Returns: random reads of a block a second with several numbers of them in flight, and bytes a
//! second in sequence. Input: a file, or a folder to write one into. The file loses its name before
//! it has content, so that nothing is left behind however the program ends. Idea: [`RowReads`]
//! reads rows of a block, in random order and too far apart to be read together, then all blocks in
//! their order. What the page cache has of the file is dropped first, for file systems that allow
//! no reads past it. Cost: two to three seconds, and [`WRITTEN`] bytes of the disk while it is
//! measured.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::{BLOCK, Layout, Reading, RowReads};
use crate::{Error, Result};

/// Reads in flight that are measured.
const DEPTHS: [usize; 4] = [1, 8, 32, 128];
/// Time for each measurement; the last reads that it begins may take as long again.
const TIME: Duration = Duration::from_millis(250);
/// Blocks from one that is read at random to the next, so that no two are one read.
const APART: usize = 4;
/// Most blocks that are read at random, or in sequence.
const MOST: u64 = 1 << 20;
/// Bytes of the file that is written, on a disk that takes them within [`WRITING`], in parts.
const WRITTEN: usize = 256 << 20;
const PART: usize = 8 << 20;
const WRITING: Duration = Duration::from_secs(1);

/// Rates of a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskRates {
    /// Way in which it was read.
    pub by: String,
    /// Random reads of 4 KiB a second with 1, 8, 32 and 128 in flight.
    pub random: [f64; DEPTHS.len()],
    /// Bytes a second of blocks that are read in their order.
    pub stream: f64,
}

impl DiskRates {
    /// Measures the disk that holds the file at `path`, read as `how` says.
    pub fn of_file(path: &Path, how: &Reading) -> Result<Self> {
        Self::measure(RowReads::open(path, Layout::default(), &[], None, how)?, path)
    }

    /// Measures the disk that holds `folder`, by writing a file there.
    pub fn of_folder(folder: &Path, how: &Reading) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = folder.join(format!(".gsplit-disk-{}-{now}", std::process::id()));
        let io = || Error::io(folder);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(io())?;
        let reads = RowReads::open(&path, Layout::default(), &[], None, how);
        std::fs::remove_file(&path).map_err(io())?;
        let reads = reads?;
        fill(&mut file).map_err(io())?;
        Self::measure(reads, folder)
    }

    /// Estimated seconds for `reads` reads of `bytes` in total, with many in flight.
    pub fn seconds(&self, reads: f64, bytes: f64) -> f64 {
        // Other work only slows a measurement. Bytes beyond one block per read come at the
        // sequential rate.
        let best = self.random.into_iter().fold(0.0, f64::max);
        reads / best + (bytes - reads * BLOCK as f64).max(0.0) / self.stream
    }

    fn measure(mut reads: RowReads, path: &Path) -> Result<Self> {
        let blocks = (reads.file.metadata().map_err(Error::io(path))?.len() / BLOCK)
            .min(APART as u64 * MOST) as usize;
        if blocks < APART {
            return Err(Error::Invalid(format!(
                "{}: too short to measure the disk by it",
                path.display()
            )));
        }
        let block = BLOCK as usize;
        reads.layout = Layout::even(0, APART * block, block, blocks / APART);
        let mut order: Vec<u32> = (0..(blocks / APART) as u32).collect();
        order.sort_by_cached_key(|position| xxh3_64(&position.to_le_bytes()));
        let mut random = [0.0; DEPTHS.len()];
        for (rate, depth) in random.iter_mut().zip(DEPTHS) {
            reads.in_flight = depth;
            *rate = (reads.rate(&order)? / BLOCK as f64).round();
            // The disk may have a cache too.
            order.rotate_left(blocks / APART / DEPTHS.len());
        }
        reads.layout = Layout::even(0, block, block, blocks);
        order = (0..blocks.min(MOST as usize) as u32).collect();
        let stream = reads.rate(&order)?.round();
        let (by, cached) = reads.how;
        let by = format!(
            "{by}, {}",
            if cached { "through the page cache" } else { "past the page cache" }
        );
        Ok(Self { by, random, stream })
    }
}

impl RowReads {
    /// Bytes a second of rows at the positions `order`, of which more and more are asked for at a
    /// time.
    fn rate(&self, order: &[u32]) -> Result<f64> {
        #[cfg(target_os = "linux")]
        // A system that cannot drop its cached pages is measured with them.
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
        let (since, mut bytes, mut rest, mut count) =
            (Instant::now(), 0, order, 2 * self.in_flight);
        while !rest.is_empty() && since.elapsed() < TIME {
            let (now, later) = rest.split_at(count.min(rest.len()));
            bytes += self.read(now.iter().copied(), &mut |_, _, _| ())?.bytes;
            (rest, count) = (later, 2 * count);
        }
        Ok(bytes as f64 / since.elapsed().as_secs_f64())
    }
}

/// Fills `file` with incompressible data, and flushes it to the disk.
fn fill(file: &mut File) -> io::Result<()> {
    let since = Instant::now();
    let mut part: Vec<u64> =
        (0..(PART / 8) as u64).map(|word| xxh3_64(&word.to_le_bytes())).collect();
    for number in 0..WRITTEN / PART {
        // No two blocks are alike.
        part.chunks_mut(BLOCK as usize / 8).for_each(|block| block[0] ^= number as u64);
        file.write_all(bytemuck::cast_slice(&part))?;
        file.sync_data()?;
        if since.elapsed() > WRITING {
            break;
        }
    }
    Ok(())
}
