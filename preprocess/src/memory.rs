//! Memory limit of a preparation: `--memory`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use gsplit_store::Size;
use gsplit_store::memory::{Memory as Machine, resident};

use crate::{Error, Result};

/// Smallest budget that any preparation can work with, in bytes.
pub const LEAST: u64 = 64 << 20;

/// A budget of resident memory, mapped files not counted: `4GiB`, `512MiB`, `50%` of the machine's
/// or of the control group's that this process is in. Half of that by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(u64);

impl Memory {
    /// A budget of `bytes`.
    pub fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A budget of the memory that this process holds plus four fifths of the free memory.
    pub fn free() -> Self {
        Self(resident() + Machine::of_this_machine().available() / 5 * 4)
    }

    /// The whole budget, in bytes.
    pub fn total(self) -> u64 {
        self.0
    }

    /// Bytes left for data, after the memory that the process holds already.
    pub fn left(self) -> u64 {
        self.0.saturating_sub(resident()).max(LEAST / 4)
    }

    /// Fails if `what` of the file at `path` would take more `bytes` than are left. Call it before
    /// allocating.
    pub fn check(self, path: &Path, what: impl fmt::Display, bytes: u64) -> Result<()> {
        self.refusal(bytes)
            .map_or(Ok(()), |problem| Err(Error::input(path, format!("{what} {problem}"))))
    }

    /// Refusal of `bytes`, if they are more than are left.
    pub fn refusal(self, bytes: u64) -> Option<String> {
        // Most requests are small: the memory in use need not be read.
        let left = if bytes <= LEAST / 4 { bytes } else { self.left() };
        (bytes > left).then(|| {
            let [bytes, left, budget] = [bytes, left, self.0].map(shown);
            format!(
                "would take {bytes} of memory, {left} of the budget of {budget} are left: pass \
                     a larger --memory"
            )
        })
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self(Machine::of_this_machine().total() / 2)
    }
}

/// Formats `bytes` for people, e.g. `1.5 GiB`.
pub fn shown(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(4) as usize;
    let value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

impl FromStr for Memory {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |problem: String| Error::Option(format!("--memory {text}: {problem}"));
        let size: Size = text.parse().map_err(wrong)?;
        let bytes = size.bytes(Machine::of_this_machine().total());
        if bytes < LEAST {
            return Err(wrong(format!("expected at least {}", shown(LEAST))));
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.0).replace(' ', ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4GiB", 4u64 << 30),
            ("512m", 512 << 20),
            ("1.5 GiB", 3 << 29),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(text.parse::<Memory>().unwrap().total(), bytes, "{text}");
        }
        assert_eq!("50%".parse::<Memory>().unwrap(), Memory::default());
        for text in ["", "x", "4 apples", "1MiB", "-4GiB", "nan", "1e3", "."] {
            let message = text.parse::<Memory>().unwrap_err().to_string();
            assert!(message.contains("--memory") && message.contains("expected"), "{message}");
        }
        assert_eq!(
            (shown(0), shown(1536), shown(200 << 30)),
            ("0 B".into(), "1.5 KiB".into(), "200 GiB".into())
        );
    }
}
