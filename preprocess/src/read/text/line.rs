//! One line of text: fields between delimiters, in double quotes where they hold one (RFC 4180).
//!
//! A quoted field may hold delimiters, and a quote as two; no line break.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Mark between the fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimiter {
    /// One character.
    Byte(u8),
    /// Blanks and tabs, any number of them.
    Blanks,
    /// Two colons, as MovieLens has them.
    Colons,
}

impl Delimiter {
    /// Delimiters to try, the most specific first.
    pub const ALL: [Self; 6] = [
        Self::Byte(b'\t'),
        Self::Byte(b';'),
        Self::Byte(b'|'),
        Self::Byte(b','),
        Self::Colons,
        Self::Blanks,
    ];
    /// Names in the schema, in the same order.
    const NAMES: [&str; 6] = ["tab", ";", "|", ",", "::", "blank"];

    /// The first place of this in `text`, and the bytes that it takes.
    #[inline(always)]
    fn find(self, text: &[u8]) -> Option<(usize, usize)> {
        match self {
            Self::Byte(byte) => find_byte(byte, text).map(|at| (at, 1)),
            Self::Colons => memchr::memmem::find(text, b"::").map(|at| (at, 2)),
            Self::Blanks => {
                let at = text.iter().position(|&byte| is_blank(byte))?;
                Some((at, text[at..].iter().take_while(|&&byte| is_blank(byte)).count()))
            }
        }
    }
}

/// The first place of `byte` in `text`. Most fields have fewer than eight bytes.
#[inline]
fn find_byte(byte: u8, text: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let Some(first) = text.first_chunk() else {
        return text.iter().position(|&other| other == byte);
    };
    // The lowest high bit is that of the first byte which is equal.
    let differing = u64::from_le_bytes(*first) ^ (ONES * u64::from(byte));
    let equal = differing.wrapping_sub(ONES) & !differing & (ONES * 0x80);
    match equal {
        0 => memchr::memchr(byte, &text[8..]).map(|at| at + 8),
        _ => Some((equal.trailing_zeros() / 8) as usize),
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

impl fmt::Display for Delimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (Self::ALL.iter().position(|delimiter| delimiter == self), self) {
            (Some(at), _) => f.write_str(Self::NAMES[at]),
            (None, Self::Byte(byte)) => write!(f, "{}", char::from(*byte)),
            (None, _) => Ok(()),
        }
    }
}

impl FromStr for Delimiter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().position(|name| *name == text);
        match (found, text.as_bytes()) {
            (Some(at), _) => Ok(Self::ALL[at]),
            (None, b"\t" | b"\\t") => Ok(Self::Byte(b'\t')),
            (None, b" ") => Ok(Self::Blanks),
            (None, &[byte]) if byte.is_ascii_punctuation() && byte != b'"' => Ok(Self::Byte(byte)),
            _ => {
                Err(format!("`{text}`: expected tab, blank, :: or one mark, as `,` or `;` or `|`"))
            }
        }
    }
}

impl Serialize for Delimiter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Delimiter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Calls `take` with the position and the bytes of every field of `line`, until it returns false.
/// Fails if quotes are wrong.
#[inline]
pub fn fields<'a>(
    line: &'a [u8],
    delimiter: Delimiter,
    mut take: impl FnMut(usize, Cow<'a, [u8]>) -> bool,
) -> Result<(), String> {
    let (mut rest, mut place) =
        (if delimiter == Delimiter::Blanks { line.trim_ascii() } else { line }, 0);
    loop {
        let field;
        let next;
        if rest.first() == Some(&b'"') {
            let (quoted, after) = unquote(&rest[1..])?;
            next = match delimiter.find(after) {
                _ if after.is_empty() => None,
                Some((0, bytes)) => Some(&after[bytes..]),
                _ => {
                    return Err(
                        "text after a closing quote: expected the delimiter; write a quote inside \
                         quotes twice"
                            .into(),
                    );
                }
            };
            field = quoted;
        } else {
            let found = delimiter.find(rest);
            field = Cow::Borrowed(&rest[..found.map_or(rest.len(), |(end, _)| end)]);
            next = found.map(|(end, bytes)| &rest[end + bytes..]);
        }
        if !take(place, field) {
            return Ok(());
        }
        place += 1;
        match next {
            Some(next) => rest = next,
            None => return Ok(()),
        }
    }
}

/// The fields of `line`.
pub fn cells(line: &[u8], delimiter: Delimiter) -> Result<Vec<Cow<'_, [u8]>>, String> {
    let mut cells = Vec::new();
    fields(line, delimiter, |_, cell| {
        cells.push(cell);
        true
    })?;
    Ok(cells)
}

/// Returns the text up to the closing quote, and the rest.
fn unquote(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), String> {
    let mut whole = Vec::new();
    let mut rest = text;
    loop {
        let end = memchr::memchr(b'"', rest).ok_or(
            "a quote is not closed on its line: line breaks inside quotes are not read; write the \
             table without them, or as Parquet",
        )?;
        let (part, after) = (&rest[..end], &rest[end + 1..]);
        if after.first() != Some(&b'"') {
            let text = if whole.is_empty() {
                Cow::Borrowed(part)
            } else {
                Cow::Owned([whole.as_slice(), part].concat())
            };
            return Ok((text, after));
        }
        whole.extend_from_slice(&rest[..end + 1]);
        rest = &after[1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str, delimiter: &str) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        fields(line.as_bytes(), delimiter.parse().unwrap(), |place, field| {
            assert_eq!(place, found.len());
            found.push(String::from_utf8(field.into_owned()).unwrap());
            true
        })?;
        Ok(found)
    }

    #[test]
    fn fields_are_cut_as_the_standard_says() {
        for (line, delimiter, expected) in [
            ("", ",", &[""][..]),
            ("a", ",", &["a"]),
            ("a,,c,", ",", &["a", "", "c", ""]),
            ("\"a,b\",\"say \"\"hi\"\"\",\"\"", ",", &["a,b", "say \"hi\"", ""]),
            ("a\"b,c", ",", &["a\"b", "c"]),
            ("  a   \"b c\"  d ", "blank", &["a", "b c", "d"]),
            ("1\t\t2", "tab", &["1", "", "2"]),
            (" 1 \t 2\t", "blank", &["1", "2"]),
            ("1::2::3:4", "::", &["1", "2", "3:4"]),
            ("\"a::b\"::c", "::", &["a::b", "c"]),
        ] {
            assert_eq!(split(line, delimiter).unwrap(), expected, "{line:?}");
        }
        assert!(split("a,\"b", ",").unwrap_err().contains("not closed"));
        assert!(split("\"a\"b,c", ",").unwrap_err().contains("after a closing quote"));
    }

    #[test]
    fn delimiters_round_trip() {
        for (delimiter, name) in Delimiter::ALL.into_iter().zip(Delimiter::NAMES) {
            assert_eq!((delimiter.to_string().as_str(), name.parse()), (name, Ok(delimiter)));
        }
        assert_eq!("~".parse(), Ok(Delimiter::Byte(b'~')));
        assert_eq!(
            ["\t", "\\t", " "].map(|text| text.parse().map(|mark: Delimiter| mark.to_string())),
            ["tab", "tab", "blank"].map(|name| Ok(name.to_string()))
        );
        for text in ["", "\"", "ab", "a", "7"] {
            assert!(text.parse::<Delimiter>().unwrap_err().contains("expected tab"), "{text}");
        }
    }
}
