//! Feature rows by number of loads: the share of loads that the hottest rows serve, and the reads
//! for the others.
//!
//! The reads of a mini-batch are planned by the reader's own code, for rows drawn as often as the
//! presample loaded them. This uses a sample of at most [`SEEN`] vertices, in pieces spread over
//! the file. Cost: one sort of all rows; a sort of the sampled ones for each plan.

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::{Presample, planned_reads};

/// Maximum number of sampled vertices, and vertices per piece.
const SEEN: usize = 1 << 18;
const PIECE: usize = 1 << 12;

/// Numbers of loads of the feature rows.
pub struct Hits {
    loads: Vec<u32>,
    /// Prefix sums of the loads, hottest first.
    sums: Vec<u64>,
}

impl Hits {
    /// Hits from the loads of `presample`; without one, all `vertices` count alike.
    pub fn of(presample: Option<&Presample>, vertices: usize) -> Self {
        let loads =
            presample.map_or_else(|| vec![1; vertices], |presample| presample.input().to_vec());
        let mut sums: Vec<u64> = loads.iter().map(|&loads| loads.into()).collect();
        sums.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        sums.iter_mut().for_each(|loads| {
            sum += *loads;
            *loads = sum;
        });
        Self { loads, sums }
    }

    pub fn vertices(&self) -> f64 {
        self.sums.len() as f64
    }

    /// Loads of the `count` hottest rows together.
    fn sum(&self, count: usize) -> u64 {
        count.min(self.sums.len()).checked_sub(1).map_or(0, |last| self.sums[last])
    }

    /// Share of the loads that the `rows` hottest rows serve.
    pub fn of_rows(&self, rows: f64) -> f64 {
        self.sum(rows as usize) as f64 / self.sum(self.sums.len()).max(1) as f64
    }

    /// Reads from disk, and their bytes, per row that is not in memory, when `loaded` rows are
    /// requested at a time and the `kept` hottest rows are in memory. Rows of `row` bytes are
    /// stored `stride` bytes apart.
    pub fn reads_of_row(&self, kept: f64, loaded: f64, [stride, row]: [f64; 2]) -> [f64; 2] {
        let (kept, all) = ((kept as usize).min(self.sums.len()), self.sum(self.sums.len()).max(1));
        // Loads of the first row that is not kept: hotter rows are kept, and some of the rows with
        // equal loads.
        let least = self.sum(kept + 1) - self.sum(kept);
        let pieces = self.loads.chunks(PIECE).zip((0u32..).step_by(PIECE));
        let seen = pieces.step_by(self.loads.len().div_ceil(SEEN).max(1));
        let seen = seen
            .flat_map(|(piece, first)| (first..).zip(piece.iter().map(|&loads| u64::from(loads))));
        let seen: Vec<(u32, u64)> = seen.collect();
        let count =
            |is: &dyn Fn(u64) -> bool| seen.iter().filter(|(_, loads)| is(*loads)).count() as f64;
        let kept_here = kept as f64 * seen.len() as f64 / self.sums.len().max(1) as f64;
        let kept_of_alike =
            (kept_here - count(&|loads| loads > least)) / count(&|loads| loads == least).max(1.0);
        let key = StreamKey::new(0, Stream::Generate);
        let drawn = seen.iter().filter(|&&(v, loads)| {
            let mut draws = Draws::new(&key, v);
            let mut is = |share: f64| f64::from(draws.below(1 << 24)) < share * f64::from(1 << 24);
            is(loads as f64 * loaded / all as f64)
                && (loads < least || (loads == least && !is(kept_of_alike)))
        });
        let drawn: Vec<u32> = drawn.map(|&(v, _)| v).collect();
        let reads = planned_reads(&drawn, stride as usize, row as usize);
        match drawn.len() {
            // No row was drawn: each row is a read.
            0 => planned_reads(&[0], stride as usize, row as usize).map(|count| count as f64),
            drawn => reads.map(|count| count as f64 / drawn as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_lie_close_are_one_read() {
        let hits = Hits::of(None, 400_000);
        assert_eq!(hits.of_rows(100_000.0), 0.25);
        let [reads, bytes] = hits.reads_of_row(0.0, 40.0, [512.0; 2]);
        assert!(
            reads > 0.99 && bytes > 4096.0 && bytes < 1.3 * 4096.0,
            "far apart: {reads}, {bytes}"
        );
        let [reads, bytes] = hits.reads_of_row(0.0, 400_000.0, [512.0; 2]);
        assert!(reads < 0.02 && bytes < 1.2 * 512.0, "all of the file: {reads}, {bytes}");
        let dense = hits.reads_of_row(0.0, 100_000.0, [512.0; 2])[1];
        let half_kept = hits.reads_of_row(200_000.0, 100_000.0, [512.0; 2])[1];
        assert!(
            512.0 < dense && dense < half_kept,
            "rows that are kept are between rows that are read: {dense}, {half_kept}"
        );
        let [reads, bytes] = hits.reads_of_row(400_000.0, 100.0, [512.0; 2]);
        assert_eq!((reads, bytes), (1.0, 4096.0), "none is read");
        // Columns: as many reads, but fewer bytes for rows that are longer than a block.
        let [reads, bytes] = hits.reads_of_row(0.0, 400.0, [32_768.0, 8_192.0]);
        assert!(reads == 1.0 && bytes < 3.1 * 4096.0, "{reads}, {bytes}");
    }
}
