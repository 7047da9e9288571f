//! Number of in-neighbours that a vertex keeps at one layer.

use std::fmt;
use std::str::FromStr;

use crate::error::KernelError;
use crate::philox::DRAWS_PER_ITEM;

/// Number of in-neighbours that a vertex keeps at one layer. Parsed and printed like `15` or `all`
/// (`-1` is read as `all`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fanout {
    /// At most this many: from 1 to [`DRAWS_PER_ITEM`].
    Take(u32),
    /// Every in-neighbour.
    All,
}

impl Fanout {
    /// The number kept of `degree` in-edges.
    #[inline]
    pub fn kept(self, degree: u64) -> u64 {
        match self {
            Self::Take(n) => degree.min(u64::from(n)),
            Self::All => degree,
        }
    }

    /// Refuses invalid fanouts: 0, and more than one vertex has random words for.
    pub(crate) fn check(self) -> Result<(), KernelError> {
        match self {
            Self::Take(n) if n == 0 || n > DRAWS_PER_ITEM => {
                Err(KernelError::Fanout { got: n.to_string() })
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Fanout {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Self, KernelError> {
        if matches!(text, "all" | "-1") {
            return Ok(Self::All);
        }
        let fanout =
            Self::Take(text.parse().map_err(|_| KernelError::Fanout { got: text.to_owned() })?);
        fanout.check()?;
        Ok(fanout)
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(n) => n.fmt(f),
            Self::All => "all".fmt(f),
        }
    }
}

/// Lets `serde` write a type as the text that it prints, and read it by parsing.
macro_rules! serde_by_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_by_text;

serde_by_text!(Fanout);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints() {
        for (text, fanout) in
            [("15", Fanout::Take(15)), ("262144", Fanout::Take(1 << 18)), ("all", Fanout::All)]
        {
            assert_eq!(text.parse(), Ok(fanout));
            assert_eq!(fanout.to_string(), text);
        }
        assert_eq!("-1".parse(), Ok(Fanout::All));
    }

    #[test]
    fn refuses_what_cannot_be_drawn() {
        for text in ["0", "", "-2", "1.5", "ten", "262145", "99999999999"] {
            assert_eq!(text.parse::<Fanout>(), Err(KernelError::Fanout { got: text.to_owned() }));
        }
    }
}
