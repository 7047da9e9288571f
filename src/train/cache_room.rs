//! How much room feature rows have on GPUs, as users say it: a size, or what is left.

use std::fmt;
use std::str::FromStr;

use gsplit_partition::placement::CacheSize;
use gsplit_trainer::{Device, Error, Parallelism, RowPlacement};

/// Memory of its GPU that each rank has for feature rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheRoom {
    /// What mini-batches and the graph leave.
    Auto,
    /// So much.
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

/// The rows that `--cache auto` stands for: those of `--placement`, or what suits the parallelism.
///
/// # Errors
/// [`Error::Option`] where nothing can be cached.
pub fn placement(
    device: Device,
    parallelism: Parallelism,
    given: Option<&RowPlacement>,
) -> Result<RowPlacement, Error> {
    let problem = match (device, given) {
        (Device::Cpu, _) => "--cache is for --device cuda: leave it out, or give both",
        (Device::Cuda, Some(RowPlacement::Host)) => {
            "--cache: --placement host keeps no rows on GPUs: leave one of them out"
        }
        (Device::Cuda, given) => return Ok(given.cloned().unwrap_or_else(|| RowPlacement::usual(parallelism))),
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

    #[test]
    fn auto_stands_for_rows() {
        let (split, data) = (Parallelism::Split, Parallelism::Data);
        assert_eq!(placement(Device::Cuda, split, None).unwrap(), RowPlacement::Partitioned);
        assert_eq!(placement(Device::Cuda, split, Some(&RowPlacement::Peer)).unwrap(), RowPlacement::Peer);
        assert_eq!(placement(Device::Cuda, data, None).unwrap(), RowPlacement::Replicated);
        assert!(placement(Device::Cuda, split, Some(&RowPlacement::Host)).is_err());
        assert!(placement(Device::Cpu, data, None).is_err());
    }
}
