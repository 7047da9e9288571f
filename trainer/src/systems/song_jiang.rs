//! Song and Jiang's data placement, with draws that prefer cached rows.

use gsplit_store::Size;

use super::{DGL, System};
use crate::config::DrawKind;

/// Song and Jiang (PPoPP 2022): data parallelism with caches of 20 % of the rows, placed by their
/// Algorithm 1, and draws that prefer the rows of a rank's own cache.
pub const SONG_JIANG: System = System {
    key: "song-jiang",
    name: "Song & Jiang",
    paper: "Song and Jiang, Rethinking graph data placement, PPoPP 2022",
    about: "Song and Jiang's data placement: data parallelism, caches of 20 % of the rows placed by their Algorithm 1 (`gsplit place \
            --parallelism data --rule song-jiang --cache 20% --key song-jiang`), draws that prefer \
            cached rows (--draw locality); on a \
            CPU caches are only counted",
    placement: "song-jiang",
    settings: |config| {
        config.system.cache = Some(Size::Percent(20.0));
        config.data.draw.kind = DrawKind::Locality;
    },
    own_draws: true,
    problem: |_| Some("it draws other samples than the others (train --preset song-jiang runs it)"),
    ..DGL
};
