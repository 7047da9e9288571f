//! Amounts of memory as text: `4GiB`, `512MiB`, `20%`.

use std::fmt;
use std::str::FromStr;

use crate::memory::{parse_bytes, parse_decimal};
use crate::text_in_files;

/// An amount of memory: bytes, or a share of something, such as all feature rows or the memory of
/// the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage.
    Percent(f64),
}

impl Size {
    /// The size in bytes, where the whole has `all`.
    pub fn bytes(self, all: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (all as f64 * percent / 100.0).round() as u64,
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        const EXPECTED: &str = "expected a size such as 4GiB or 512MiB, or a share such as 20%";
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

text_in_files!(Size);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(bytes) => f.write_str(&short(bytes)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Exact and short: `4GiB`, `2GB`, `1537`.
fn short(bytes: u64) -> String {
    let names = [("KiB", "KB"), ("MiB", "MB"), ("GiB", "GB"), ("TiB", "TB")];
    let units = (1..).zip(names).flat_map(|(power, (binary, decimal))| {
        [(1024u64.pow(power), binary), (1000u64.pow(power), decimal)]
    });
    let exact = units
        .filter(|(unit, _)| bytes.is_multiple_of(*unit))
        .map(|(unit, name)| format!("{}{name}", bytes / unit));
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
            let size: Size = text.parse().unwrap();
            assert_eq!((size, size.to_string().as_str()), (Size::Bytes(bytes), shown), "{text}");
        }
        let share: Size = "12.5%".parse().unwrap();
        assert_eq!((share.bytes(1000), share.to_string().as_str()), (125, "12.5%"));
        for text in [
            "",
            "x",
            "4 apples",
            "0",
            "-4GiB",
            "nan",
            "1e3",
            ".",
            "99999999999TiB",
            "1.2.3",
            "%",
            "inf%",
            "4GiB/s",
        ] {
            let line = text.parse::<Size>().unwrap_err();
            assert!(line.starts_with("expected a size"), "{text}: {line}");
        }
        for text in ["0%", "100.1%"] {
            assert!(text.parse::<Size>().unwrap_err().contains("at most 100%"));
        }
    }
}
