//! One line of CSV, TSV and their like (RFC 4180): fields between delimiters, in double quotes where they hold one.
//!
//! A quoted field may hold delimiters, and a quote as two; no line break.

use std::borrow::Cow;

/// Possible delimiters of fields, the likeliest first.
const DELIMITERS: [u8; 4] = *b",\t;|";

/// Calls `take` with the place and the bytes of every field of `line`, until it returns false. Blanks count as one
/// delimiter together. Says what is wrong with quotes.
pub fn fields<'a>(
    line: &'a [u8],
    delimiter: u8,
    mut take: impl FnMut(usize, Cow<'a, [u8]>) -> bool,
) -> Result<(), String> {
    let blank = delimiter == b' ';
    let (mut rest, mut place) = (if blank { line.trim_ascii() } else { line }, 0);
    loop {
        let field;
        if rest.first() == Some(&b'"') {
            let (quoted, after) = unquote(&rest[1..])?;
            match after.first() {
                Some(&next) if next != delimiter => {
                    return Err(
                        "text after a closing quote: expected the delimiter; write a quote inside quotes twice".into(),
                    );
                }
                _ => rest = after,
            }
            field = quoted;
        } else {
            let end = memchr::memchr(delimiter, rest).unwrap_or(rest.len());
            field = Cow::Borrowed(&rest[..end]);
            rest = &rest[end..];
        }
        if !take(place, field) {
            return Ok(());
        }
        place += 1;
        let Some((_, after)) = rest.split_first() else { return Ok(()) };
        rest = if blank { after.trim_ascii_start() } else { after };
    }
}

/// The text up to the closing quote, and what follows.
fn unquote(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), String> {
    let mut whole = Vec::new();
    let mut rest = text;
    loop {
        let end = memchr::memchr(b'"', rest).ok_or(
            "a quote is not closed on its line: line breaks inside quotes are not read; write the table without them, or as Parquet",
        )?;
        let (part, after) = (&rest[..end], &rest[end + 1..]);
        if after.first() != Some(&b'"') {
            let text =
                if whole.is_empty() { Cow::Borrowed(part) } else { Cow::Owned([whole.as_slice(), part].concat()) };
            return Ok((text, after));
        }
        whole.extend_from_slice(&rest[..end + 1]);
        rest = &after[1..];
    }
}

/// Delimiter of a header line: among comma, tab, semicolon and bar the one that comes most often outside of
/// quotes, else a blank.
pub fn delimiter(header: &[u8]) -> u8 {
    let mut counts = [0; DELIMITERS.len()];
    let mut quoted = false;
    for byte in header {
        quoted ^= *byte == b'"';
        if let Some(at) = DELIMITERS.iter().position(|delimiter| delimiter == byte).filter(|_| !quoted) {
            counts[at] += 1;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    match counts.iter().position(|&count| count == most) {
        Some(at) if most > 0 => DELIMITERS[at],
        _ if header.trim_ascii().contains(&b' ') => b' ',
        _ => b',',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str, delimiter: u8) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        fields(line.as_bytes(), delimiter, |place, field| {
            assert_eq!(place, found.len());
            found.push(String::from_utf8(field.into_owned()).unwrap());
            true
        })?;
        Ok(found)
    }

    #[test]
    fn fields_are_cut_as_the_standard_says() {
        for (line, delimiter, expected) in [
            ("", b',', &[""][..]),
            ("a", b',', &["a"]),
            ("a,,c,", b',', &["a", "", "c", ""]),
            ("\"a,b\",\"say \"\"hi\"\"\",\"\"", b',', &["a,b", "say \"hi\"", ""]),
            ("a\"b,c", b',', &["a\"b", "c"]),
            ("  a   \"b c\"  d ", b' ', &["a", "b c", "d"]),
            ("1\t\t2", b'\t', &["1", "", "2"]),
        ] {
            assert_eq!(split(line, delimiter).unwrap(), expected, "{line:?}");
        }
        assert!(split("a,\"b", b',').unwrap_err().contains("not closed"));
        assert!(split("\"a\"b,c", b',').unwrap_err().contains("after a closing quote"));
    }

    #[test]
    fn delimiters_are_told_apart() {
        for (header, expected) in [
            ("a,b;c,d", b','),
            ("a\tb, c\td", b'\t'),
            ("\"x,y\";z", b';'),
            ("a|b", b'|'),
            ("a b c", b' '),
            ("id", b','),
        ] {
            assert_eq!(delimiter(header.as_bytes()), expected, "{header}");
        }
    }
}
