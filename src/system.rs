//! The partition maps of the published systems.

use gsplit_partition::{Load, Method, PartitionOptions, Weights};
use gsplit_trainer::systems::{Map, System};

/// The options of the map of `system` into `parts`, on `servers` if the system uses them, if it
/// needs a map.
pub fn map_options(
    system: System,
    parts: u32,
    servers: u32,
    seed: u64,
) -> Option<PartitionOptions> {
    let (partitioner, weights) = match system.map? {
        Map::Random => (Method::Random, None),
        Map::Degree => (Method::Multilevel, Some(Weights::Degree)),
        Map::Vertex => (Method::Multilevel, Some(Weights::Vertex)),
        Map::Presampled => (Method::Multilevel, Some(Weights::Presampled)),
    };
    Some(PartitionOptions {
        parts,
        targets: Vec::new(),
        servers: if system.draws() { 1 } else { servers },
        partitioner,
        quality: None,
        refine: None,
        weights,
        load: Load::default(),
        balance: Vec::new(),
        epsilon: 0.03,
        seed,
        contiguous: false,
        memory: None,
    })
}

#[cfg(test)]
mod tests {
    use gsplit_trainer::systems::{self, *};

    use super::*;

    #[test]
    fn maps_have_the_weights_of_the_papers() {
        let key =
            |system: System| map_options(system, 4, 1, 0).map(|options| options.default_key());
        assert_eq!([DGL, QUIVER, SONG_JIANG].map(key), [None, None, None]);
        let expected = [
            "random-k4",
            "multilevel-degree-k4",
            "multilevel-vertex-k4",
            "multilevel-presampled-k4",
        ]
        .map(str::to_string);
        assert_eq!([RANDOM, EDGE, NODE, GSPLIT].map(key), expected.clone().map(Some));
        assert_eq!([INTEL, OWNED].map(key), [1, 3].map(|at| Some(expected[at].clone())));
        for system in systems::ALL {
            assert!(map_options(system, 4, 1, 0).is_none_or(|options| options.check().is_ok()));
        }
    }
}
