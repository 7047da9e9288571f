//! Rows by falling expected loads, as runs of rows that are loaded equally often.
//!
//! There are at most as many runs as there are different counters, which are far fewer than rows:
//! the sum over any first rows, and the number of rows loaded at least a given number of times,
//! take a binary search, and no array of all rows is kept.

/// How often each row is loaded, hottest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranking {
    runs: Vec<Run>,
    rows: usize,
}

/// Rows that are loaded equally often.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The first of them.
    start: usize,
    /// Loads of each.
    loads: f64,
    /// Loads of all rows before.
    before: f64,
}

impl Ranking {
    /// Appends a row, which is loaded no more often than the last one.
    pub(crate) fn push(&mut self, loads: f64) {
        match self.runs.last() {
            Some(run) if run.loads == loads => {}
            _ => self.runs.push(Run { start: self.rows, loads, before: self.sum(self.rows) }),
        }
        self.rows += 1;
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Loads of row `i`; 0 beyond the last.
    pub(crate) fn loads(&self, i: usize) -> f64 {
        if i >= self.rows { 0.0 } else { self.run(i).map_or(0.0, |run| run.loads) }
    }

    /// Loads of the first `rows` rows together.
    pub(crate) fn sum(&self, rows: usize) -> f64 {
        let rows = rows.min(self.rows);
        let Some(run) = rows.checked_sub(1).and_then(|last| self.run(last)) else { return 0.0 };
        run.before + (rows - run.start) as f64 * run.loads
    }

    /// Loads of all rows together.
    pub(crate) fn total(&self) -> f64 {
        self.sum(self.rows)
    }

    /// How many of the first rows fulfil `holds`, which holds for no row behind one for which it
    /// does not.
    pub(crate) fn count_while(&self, holds: impl Fn(f64) -> bool) -> usize {
        let runs = self.runs.partition_point(|run| holds(run.loads));
        self.runs.get(runs).map_or(self.rows, |run| run.start)
    }

    /// The run of row `i`, which must be there.
    fn run(&self, i: usize) -> Option<&Run> {
        self.runs
            .partition_point(|run| run.start <= i)
            .checked_sub(1)
            .and_then(|run| self.runs.get(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oracle_sums_and_counts() {
        let values = [7.0, 7.0, 5.0, 2.0, 2.0, 2.0, 0.0, 0.0];
        let mut ranking = Ranking::default();
        assert_eq!(
            (ranking.sum(3), ranking.loads(0), ranking.count_while(|_| true)),
            (0.0, 0.0, 0)
        );
        values.iter().for_each(|&value| ranking.push(value));
        assert_eq!(ranking.len(), 8);
        for rows in 0..10 {
            assert_eq!(ranking.sum(rows), values.iter().take(rows).sum::<f64>(), "{rows}");
            assert_eq!(ranking.loads(rows), values.get(rows).copied().unwrap_or(0.0));
            let least = rows as f64;
            let expected = values.iter().filter(|&&value| value >= least).count();
            assert_eq!(ranking.count_while(|value| value >= least), expected, "{least}");
        }
        assert_eq!((ranking.total(), ranking.runs.len()), (25.0, 4));
    }
}
