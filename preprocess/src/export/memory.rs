//! A size on the command line: digits, then nothing or B, KiB, MiB, GiB, TiB.

use std::fmt;
use std::str::FromStr;

const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(u64);

impl Memory {
    /// The number.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self(1 << 30)
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}`: expected a whole number of bytes, KiB, MiB or GiB, as 4GiB");
        let (digits, shift) =
            UNITS.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift))).unwrap_or((text, 0));
        let count: u64 = digits.trim().parse().map_err(|_| expected())?;
        count.checked_mul(1 << shift).filter(|&bytes| bytes > 0).map(Self).ok_or_else(expected)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|&&(_, shift)| self.0.is_multiple_of(1 << shift));
        let (unit, shift) = unit.copied().unwrap_or(("B", 0));
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        for (text, bytes) in [("4GiB", 4u64 << 30), ("1536 MiB", 3 << 29), ("7", 7), ("9B", 9), ("2TiB", 2 << 40)] {
            let memory: Memory = text.parse().unwrap();
            assert_eq!(memory.bytes(), bytes);
            assert_eq!(memory.to_string().parse::<Memory>().unwrap(), memory);
        }
        for bad in ["", "GiB", "-1", "1.5GiB", "0", "17000000TiB", "4GB"] {
            assert!(bad.parse::<Memory>().unwrap_err().contains("expected a whole number"), "{bad}");
        }
    }
}
