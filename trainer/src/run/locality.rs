//! Factor by which a rank prefers rows that it keeps.
//!
//! Returns: the factor of an epoch. Input: the epochs before it. Idea: the factor is fixed, or
//! follows the share of the loaded bytes that had to be moved to a rank, because its own cache did
//! not hold them: from 1 it doubles after an epoch in which that was 20 % or more, up to 8, and
//! halves after one in which it was less than 15 %. All of an epoch's mini-batches have one factor.
//!
//! Bytes are counted, not seconds as in Song and Jiang: seconds depend on the machine and its other
//! load, and since the factor decides the draws, so would the losses. With bytes a run can be
//! repeated, and a resumed run computes the factor from the reports of the finished epochs: there
//! is no other state.

use crate::config::{Config, DrawFactor};
use crate::report::EpochReport;

/// Largest automatic factor.
const MOST: f64 = 8.0;
/// Shares of moved bytes: the factor grows from the first one on, and shrinks below the second.
const MOVED: [f64; 2] = [0.2, 0.15];

/// The factor of the epoch after `history`; `None` if all in-neighbours have the same probability.
pub fn factor(config: &Config, history: &[EpochReport]) -> Option<f64> {
    config.draws_locally().then(|| match config.data.draw.draw_factor {
        Some(DrawFactor::Fixed(factor)) => factor,
        None | Some(DrawFactor::Auto) => history.iter().fold(1.0, |factor, report| {
            // Rows have equal sizes, so shares of rows are shares of bytes.
            let (loaded, own) = (report.work.rows_loaded, report.work.rows_cached);
            next_draw_factor(factor, (loaded - own) as f64 / loaded.max(1) as f64)
        }),
    })
}

/// The factor after an epoch with `factor` in which this share of the bytes was `moved`.
fn next_draw_factor(factor: f64, moved: f64) -> f64 {
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
        let config = |kind, draw_factor| {
            let mut config = quick_config(ModelKind::Sage, Parallelism::Data, 2);
            config.data.draw = DrawConfig { kind, draw_factor };
            config
        };
        let moved = [900, 500, 200, 150, 300, 199, 149, 100, 0, 0, 0, 250];
        let expected = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 2.0];
        let history: Vec<EpochReport> = moved.map(report).into();
        for draw_factor in [None, Some(DrawFactor::Auto)] {
            let auto = config(DrawKind::Locality, draw_factor);
            let found: Vec<f64> =
                (0..=history.len()).map(|done| factor(&auto, &history[..done]).unwrap()).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(
            factor(&config(DrawKind::Locality, Some(DrawFactor::Fixed(3.0))), &history),
            Some(3.0)
        );
        assert_eq!(factor(&config(DrawKind::Uniform, None), &history), None);
        // An epoch that loaded nothing moved nothing.
        assert_eq!(
            factor(
                &config(DrawKind::Locality, None),
                &[report(900), report(900), EpochReport::default()]
            ),
            Some(2.0)
        );
    }
}
