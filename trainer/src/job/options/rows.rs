//! Places of feature rows, as users name them.

use std::str::FromStr;

use crate::config::TrainConfig;

/// Places of feature rows beside the host's memory, which has all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowPlacement {
    /// Nowhere.
    Host,
    /// The hottest on every GPU.
    Replicated,
    /// Rows of its own part on each GPU, by the partition's cache order.
    Partitioned,
    /// The hottest once, over all GPUs, which read each other's memory.
    Peer,
    /// As `gsplit place` stored it under this key.
    Stored(String),
}

impl RowPlacement {
    /// The placement that suits a run on GPUs where none is named.
    pub fn usual(config: &TrainConfig) -> Self {
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
                "expected host, replicated, partitioned, peer, or the key of a placement that `gsplit place` stored"
            })?),
        })
    }
}

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
