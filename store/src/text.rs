//! Values that files hold as text, such as sizes, lists of numbers, and names with a number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de::Error as _};

/// A value as a file writes it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string, a number or a list of these")]
enum Written {
    Text(String),
    Whole(i64),
    Number(f64),
    List(Vec<Written>),
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Whole(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::List(items) => {
                f.write_str(&items.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Deserializes a value that has a textual form from its text; from a number; or from a list, as if
/// its items were joined by commas.
pub fn from_text<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Written::deserialize(deserializer)?.to_string().parse().map_err(D::Error::custom)
}

/// Like [`from_text`], for a value that may be absent.
pub fn option_from_text<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let written = Option::<Written>::deserialize(deserializer)?;
    written.map(|written| written.to_string().parse().map_err(D::Error::custom)).transpose()
}

/// Implements serde's traits for a type by `Display` and `FromStr`.
#[macro_export]
macro_rules! text_in_files {
    ($type:ty) => {
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                $crate::text::from_text(deserializer)
            }
        }
    };
}
