//! Bandwidths on the command line: `25GB`; and the size of a row.

use std::str::FromStr;

use gsplit_store::memory::parse_bytes;
use gsplit_store::{Dataset, FeatureDtype};

use crate::Result;

/// A feature row as it is cached, in bytes. Fails on a dataset without features.
pub fn row_bytes(dataset: &Dataset) -> Result<u64> {
    let features = dataset.features()?;
    let scale = if features.dtype() == FeatureDtype::I8 { size_of::<f32>() } else { 0 };
    Ok((features.dim() * features.dtype().bytes() + scale) as u64)
}

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth(pub u64);

impl FromStr for Bandwidth {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let text = text.trim();
        let bytes = parse_bytes(text.strip_suffix("/s").unwrap_or(text));
        bytes.map(Self).ok_or_else(|| "expected bytes per second, such as 25GB or 900MiB".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths() {
        assert_eq!("25GB/s".parse(), Ok(Bandwidth(25_000_000_000)));
        assert_eq!("512m".parse(), Ok(Bandwidth(512 << 20)));
        for text in ["0", "20%", "fast"] {
            assert!(text.parse::<Bandwidth>().unwrap_err().contains("25GB"));
        }
    }
}
