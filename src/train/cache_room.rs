//! Room for feature rows on GPUs, as an option: a size, or the free memory.

use std::fmt;
use std::str::FromStr;

use gsplit_partition::placement::CacheSize;
use gsplit_trainer::{Device, Error, RowPlacement, TrainConfig};

/// GPU memory of each rank for feature rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheRoom {
    /// The memory that mini-batches and the graph leave free.
    Auto,
    /// A fixed size.
    Size(CacheSize),
}

impl CacheRoom {
    /// The size, if it is one.
    pub fn size(self) -> Option<CacheSize> {
        match self {
            Self::Auto => None,
            Self::Size(size) => Some(size),
        }
    }
}

impl FromStr for CacheRoom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            size => size.parse().map(Self::Size).map_err(|error| format!("{error}; or auto")),
        }
    }
}

impl fmt::Display for CacheRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Size(size) => size.fmt(f),
        }
    }
}

/// The placement of rows that `--cache auto` uses: `given` by `--placement`, or the usual one of the parallelism.
///
/// # Errors
/// [`Error::Option`] if nothing can be cached.
pub fn placement(config: &TrainConfig, given: Option<&RowPlacement>) -> Result<RowPlacement, Error> {
    let problem = match (config.device, given) {
        (Device::Cpu, _) => "--cache auto is for --device cuda: on a CPU give the size of the caches to count with",
        (Device::Cuda, Some(RowPlacement::Host)) => {
            "--cache: --placement host keeps no rows on GPUs: leave one of them out"
        }
        (Device::Cuda, given) => return Ok(given.cloned().unwrap_or_else(|| RowPlacement::usual(config))),
    };
    Err(Error::Option(problem.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_auto() {
        for text in ["auto", "4GiB", "20%"] {
            assert_eq!(text.parse::<CacheRoom>().unwrap().to_string(), text);
        }
        assert_eq!("auto".parse::<CacheRoom>().unwrap().size(), None);
        for bad in ["Auto", "", "0%", "4GB3"] {
            assert!(bad.parse::<CacheRoom>().unwrap_err().contains("auto"), "{bad}");
        }
    }

    fn config(flags: &str) -> TrainConfig {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            config: TrainConfig,
        }
        <Flags as clap::Parser>::parse_from(["train"].into_iter().chain(flags.split(' '))).config
    }

    #[test]
    fn auto_stands_for_rows() {
        let of = |flags: &str, given: Option<&RowPlacement>| placement(&config(flags), given);
        let split = "--parallelism split --device cuda";
        assert_eq!(of(split, None).unwrap(), RowPlacement::Partitioned);
        assert_eq!(of("--split-layers 1 --device cuda", None).unwrap(), RowPlacement::Partitioned);
        assert_eq!(of("--split-layers 0 --device cuda", None).unwrap(), RowPlacement::Replicated);
        assert_eq!(of(split, Some(&RowPlacement::Peer)).unwrap(), RowPlacement::Peer);
        assert_eq!(of("--parallelism data --device cuda", None).unwrap(), RowPlacement::Replicated);
        assert!(of(split, Some(&RowPlacement::Host)).is_err());
        assert!(of("--parallelism data --device cpu", None).is_err());
    }
}
