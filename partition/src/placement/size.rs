//! Sizes on the command line: `4GiB`, `512MiB`, `20%`; bandwidths: `25GB`; and that of a row.

use std::fmt;
use std::str::FromStr;

use gsplit_store::memory::{parse_bytes, parse_decimal};
use gsplit_store::{Dataset, FeatureDtype};

use crate::Result;

/// A feature row as it is cached, in bytes. Fails on a dataset without features.
pub fn row_bytes(dataset: &Dataset) -> Result<u64> {
    let features = dataset.features()?;
    let scale = if features.dtype() == FeatureDtype::I8 { size_of::<f32>() } else { 0 };
    Ok((features.dim() * features.dtype().bytes() + scale) as u64)
}

/// The cache of one device: bytes, or a share of all feature rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of all feature rows.
    Percent(f64),
}

impl CacheSize {
    /// The size in bytes, where all feature rows together take `all`.
    pub fn bytes(self, all: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (all as f64 * percent / 100.0).round() as u64,
        }
    }
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        const EXPECTED: &str = "expected a size such as 4GiB or 512MiB, or a share of all feature rows such as 20%";
        let Some(percent) = text.trim().strip_suffix('%') else {
            return parse_bytes(text).map(Self::Bytes).ok_or_else(|| EXPECTED.to_string());
        };
        match parse_decimal(percent) {
            Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Percent(percent)),
            Some(_) => Err("expected a share above 0% and at most 100%".into()),
            None => Err(EXPECTED.into()),
        }
    }
}

impl fmt::Display for CacheSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(bytes) => f.write_str(&short(bytes)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
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

/// Exact and short: `4GiB`, `2GB`, `1537`.
fn short(bytes: u64) -> String {
    let names = [("KiB", "KB"), ("MiB", "MB"), ("GiB", "GB"), ("TiB", "TB")];
    let units = (1..)
        .zip(names)
        .flat_map(|(power, (binary, decimal))| [(1024u64.pow(power), binary), (1000u64.pow(power), decimal)]);
    let exact =
        units.filter(|(unit, _)| bytes.is_multiple_of(*unit)).map(|(unit, name)| format!("{}{name}", bytes / unit));
    exact.chain([bytes.to_string()]).min_by_key(String::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shares() {
        for (text, bytes, shown) in [
            ("4GiB", 4 << 30, "4GiB"),
            ("512m", 512 << 20, "512MiB"),
            ("1.5 KiB", 1536, "1536"),
            ("10000k", 10_240_000, "10240KB"),
            ("2GB", 2_000_000_000, "2GB"),
            ("800", 800, "800"),
            (" 3 tb ", 3_000_000_000_000, "3TB"),
            ("1b", 1, "1"),
        ] {
            let size: CacheSize = text.parse().unwrap();
            assert_eq!((size, size.to_string().as_str()), (CacheSize::Bytes(bytes), shown), "{text}");
            assert_eq!(text.parse(), Ok(Bandwidth(bytes)));
        }
        assert_eq!("25GB/s".parse(), Ok(Bandwidth(25_000_000_000)));
        let share: CacheSize = "12.5%".parse().unwrap();
        assert_eq!((share.bytes(1000), share.to_string().as_str()), (125, "12.5%"));
        for text in
            ["", "x", "4 apples", "0", "-4GiB", "nan", "1e3", ".", "99999999999TiB", "1.2.3", "%", "inf%", "4GiB/s"]
        {
            let line = text.parse::<CacheSize>().unwrap_err();
            assert!(line.starts_with("expected a size"), "{text}: {line}");
        }
        for text in ["0%", "100.1%"] {
            assert!(text.parse::<CacheSize>().unwrap_err().contains("at most 100%"));
        }
        for text in ["0", "20%", "fast"] {
            assert!(text.parse::<Bandwidth>().unwrap_err().contains("25GB"));
        }
    }
}
