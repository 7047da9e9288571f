//! How many times more often a rank draws what it keeps.
//!
//! Returns: the factor of an epoch. Input: the epochs before it. Idea: the factor is fixed, or follows the share of the loaded bytes
//! that had to be moved to a rank, because its own cache did not hold them: from 1 it doubles after an epoch in which that was 20 % or
//! more, up to 8, and halves after one in which it was less than 15 %. All of an epoch's mini-batches have one factor.
//!
//! Why bytes and not seconds, as Song and Jiang have it: seconds depend on the machine and on what else runs there, and the factor
//! decides what is drawn, so losses would depend on them too. Bytes are counted, so a run can be repeated, and one that is resumed
//! finds the factor again from the reports of the epochs that are done: there is no other state.

use crate::config::{DrawFactor, TrainConfig};
use crate::report::EpochReport;

/// The largest factor that is found by counting.
const MOST: f64 = 8.0;
/// Share of the bytes that are moved from which on the factor grows, and below which it shrinks.
const MOVED: [f64; 2] = [0.2, 0.15];

/// The factor of the epoch after those of `history`; `None` where all in-neighbours are drawn alike.
pub fn factor(config: &TrainConfig, history: &[EpochReport]) -> Option<f64> {
    config.draws_locally().then(|| match config.draw.draw_factor {
        Some(DrawFactor::Fixed(factor)) => factor,
        None | Some(DrawFactor::Auto) => history.iter().fold(1.0, |factor, report| {
            // Rows have equal sizes, so their portions are those of bytes.
            let (loaded, own) = (report.work.rows_loaded, report.work.rows_cached);
            next_draw_factor(factor, (loaded - own) as f64 / loaded.max(1) as f64)
        }),
    })
}

/// The factor after an epoch that had `factor`, in which such a portion of the bytes was moved.
pub fn next_draw_factor(factor: f64, moved: f64) -> f64 {
    match moved {
        moved if moved >= MOVED[0] => (2.0 * factor).min(MOST),
        moved if moved < MOVED[1] => (factor / 2.0).max(1.0),
        _ => factor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DrawConfig, DrawKind, ModelKind, Parallelism};
    use crate::report::Work;
    use crate::tests::quick_config;

    #[test]
    fn the_factor_follows_what_was_moved() {
        let report = |moved: u64| EpochReport {
            work: Work { rows_loaded: 1000, rows_cached: 1000 - moved, ..Work::default() },
            ..EpochReport::default()
        };
        let config = |kind, draw_factor| TrainConfig {
            draw: DrawConfig { kind, draw_factor },
            ..quick_config(ModelKind::Sage, Parallelism::Data, 2)
        };
        let moved = [900, 500, 200, 150, 300, 199, 149, 100, 0, 0, 0, 250];
        let expected = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 2.0];
        let history: Vec<EpochReport> = moved.map(report).into();
        for draw_factor in [None, Some(DrawFactor::Auto)] {
            let auto = config(DrawKind::Locality, draw_factor);
            let found: Vec<f64> = (0..=history.len()).map(|done| factor(&auto, &history[..done]).unwrap()).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(factor(&config(DrawKind::Locality, Some(DrawFactor::Fixed(3.0))), &history), Some(3.0));
        assert_eq!(factor(&config(DrawKind::Uniform, None), &history), None);
        // An epoch that loaded nothing moved nothing.
        assert_eq!(
            factor(&config(DrawKind::Locality, None), &[report(900), report(900), EpochReport::default()]),
            Some(2.0)
        );
    }
}
