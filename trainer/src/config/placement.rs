//! Placements of feature rows, by their names on the command line.

use std::str::FromStr;

use gsplit_store::text_in_files;

use super::Config;

/// Placement of feature rows on GPUs, in addition to the host's memory, which has all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowPlacement {
    /// Only in the host's memory.
    Host,
    /// The hottest rows on every GPU.
    Replicated,
    /// Rows of its own part on each GPU, by the partition's cache order.
    Partitioned,
    /// The hottest rows once over all GPUs, which read each other's memory.
    Peer,
    /// The placement that `gsplit place` stored under this key.
    Stored(String),
}

impl RowPlacement {
    /// The default placement for a run on GPUs.
    pub fn usual(config: &Config) -> Self {
        if config.split_layers() > 0 { Self::Partitioned } else { Self::Replicated }
    }
}

impl FromStr for RowPlacement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "host" => Self::Host,
            "replicated" => Self::Replicated,
            "partitioned" => Self::Partitioned,
            "peer" => Self::Peer,
            key => Self::Stored(gsplit_store::stored_key(key).map_err(|_| {
                "expected host, replicated, partitioned, peer, or the key of a placement that \
                 `gsplit place` stored"
            })?),
        })
    }
}

text_in_files!(RowPlacement);

impl std::fmt::Display for RowPlacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Replicated => "replicated",
            Self::Partitioned => "partitioned",
            Self::Peer => "peer",
            Self::Stored(key) => key,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys() {
        for name in ["host", "replicated", "partitioned", "peer", "optimised-split-4GiB-four"] {
            assert_eq!(name.parse::<RowPlacement>().unwrap().to_string(), name);
        }
        assert_eq!("Peer".parse(), Ok(RowPlacement::Stored("Peer".into())));
        for bad in ["", "../x", "a b", ".hidden"] {
            let line = bad.parse::<RowPlacement>().unwrap_err();
            assert!(line.contains("replicated") && line.contains("gsplit place"), "{bad}: {line}");
        }
    }
}
