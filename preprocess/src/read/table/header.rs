//! Whether the first line of a text table names its columns, or is a row.
//!
//! A line names the columns if its words are known names of ends, if it has words where all rows
//! have numbers, or if its words are not ids of any row below. A number where all rows have numbers
//! is a row. In all other cases the user is asked.

use super::ends;
use crate::read::options::Answer;
use crate::read::text::line::{Delimiter, cells};
use crate::read::text::sketch::{Fields, Sketch};
use crate::read::text::value::{CellKind, is_missing, kind_of_all};

/// Maximum number of id columns, in which words of the first line are searched for.
const ID_COLUMNS: usize = 2;

/// The line with the names of the columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Its number in the file, from 1.
    pub line: u64,
    /// Its text.
    pub text: Vec<u8>,
    /// False if its words are taken as names only because no row so far has them as ids.
    pub is_certain: bool,
}

/// Finds the header of the table in `sketch`, `given` by the user or detected from the lines. The
/// error is the question.
pub fn find(sketch: &Sketch<'_>, given: Option<Answer>) -> Result<Option<Header>, String> {
    let comment = of_comment(sketch);
    let Some((number, first)) = sketch.rows.first() else {
        return Ok(comment.filter(|(_, known)| *known).map(|(header, _)| header));
    };
    let header =
        |is_certain| Some(Header { line: *number, text: sketch.first.to_vec(), is_certain });
    match given {
        Some(Answer::No) => return Ok(None),
        Some(Answer::Yes) => return Ok(header(true)),
        None => {}
    }
    let names: Vec<String> =
        first.iter().map(|cell| String::from_utf8_lossy(cell.trim_ascii()).into_owned()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rows: Vec<&Fields<'_>> = sketch.rows[1..].iter().map(|(_, row)| row).collect();
    // The index that pandas writes has no name.
    if ends::are_known(&names) || names.first() == Some(&"") {
        return Ok(header(true));
    }
    if let Some((header, true)) = comment {
        return Ok(Some(header));
    }
    let is_number =
        |kind: CellKind| matches!(kind, CellKind::Integer | CellKind::Whole | CellKind::Float);
    let kinds = |at: usize| {
        let below = rows.iter().filter_map(|row| row.get(at));
        let first = Some(names[at]).filter(|name| !is_missing(name.as_bytes()));
        let kind = kind_of_all(below.map(|cell| cell.trim_ascii()));
        first.map(|name| (is_number(kind_of_all([name.as_bytes()].into_iter())), kind))
    };
    let kinds: Vec<(bool, CellKind)> = (0..names.len()).filter_map(kinds).collect();
    if kinds
        .iter()
        .any(|&(is_number_above, below)| is_number_above && (is_number(below) || rows.is_empty()))
    {
        return Ok(comment.map(|(header, _)| header));
    }
    if kinds.iter().any(|&(is_number_above, below)| !is_number_above && is_number(below)) {
        return Ok(header(true));
    }
    let below = |name: &&str| {
        rows.iter()
            .flat_map(|row| row.iter().take(ID_COLUMNS))
            .any(|cell| cell.trim_ascii() == name.as_bytes())
    };
    let problem = match names.iter().take(ID_COLUMNS).copied().find(|name| below(name)) {
        Some(name) => return Err(question(name, *number)),
        None if rows.is_empty() => format!("line {number} is the only one"),
        None => return Ok(header(false)),
    };
    Err(format!(
        "{problem}: pass --schema header=no if line {number} is a row, or --schema header=yes if \
         it names the columns"
    ))
}

/// Question for the case that a word of line `number` is also an id of a row.
pub fn question(name: &str, number: u64) -> String {
    format!(
        "`{name}` of line {number} is an id of a line below: pass --schema header=no if line \
         {number} is a row, or --schema header=yes if it names the columns"
    )
}

/// The comment before the first row, if it has as many fields, and whether these are known names of
/// ends.
fn of_comment(sketch: &Sketch<'_>) -> Option<(Header, bool)> {
    let (line, text) = sketch.comment?;
    let words = names_in(text, sketch.delimiter).ok()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let fits = sketch.rows.first().is_none_or(|(_, row)| row.len() == words.len());
    fits.then(|| (Header { line, text: text.to_vec(), is_certain: true }, ends::are_known(&words)))
}

/// The names of the columns in a header line, or in a comment.
pub fn names_in(text: &[u8], delimiter: Delimiter) -> Result<Vec<String>, String> {
    let text = text.strip_prefix(b"#").or_else(|| text.strip_prefix(b"%")).unwrap_or(text);
    let cells = cells(text, delimiter)?;
    Ok(cells.iter().map(|cell| String::from_utf8_lossy(cell.trim_ascii()).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_told_from_rows_or_asked_for() {
        for (text, expected) in [
            ("src,dst\nalice,bob\n", Ok(Some(1))),
            ("src,dst\n", Ok(Some(1))),
            (
                "alice,bob\nbob,carol\n",
                Err("`bob` of line 1 is an id of a line below: pass --schema header=no"),
            ),
            ("alice,bob\n", Err("line 1 is the only one")),
            ("gene_a,gene_b\nTP53,MDM2\n", Ok(Some(1))),
            ("a,b\nb,c\n", Err("--schema header=no")),
            ("a,b\n1,2\n", Ok(Some(1))),
            ("n1,n2\nn2,n3\n", Err("--schema header=no")),
            ("TP53 MDM2 0.9\nATM TP53 0.5\n", Ok(None)),
            ("TP53 MDM2 score\nATM TP53 0.5\n", Ok(Some(1))),
            ("1.0,2.0\n2.0,3.0\n", Ok(None)),
            ("1;2\n", Ok(None)),
            (",src,dst\n0,a,b\n", Ok(Some(1))),
            ("# src,dst\na,b\nb,c\n", Ok(Some(1))),
            ("# a graph\n\nsource;target\na;b\n", Ok(Some(3))),
            ("src,dst,2019,2020\n1,2,3,4\n", Ok(Some(1))),
            ("", Ok(None)),
        ] {
            let found = find(&Sketch::of(text.as_bytes(), None), None);
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found.map(|header| header.line), expected, "{text:?}")
                }
                (Err(found), Err(expected)) => {
                    assert!(found.contains(expected), "{text:?}: {found}")
                }
                (found, _) => panic!("{text:?}: {found:?}"),
            }
        }
        let text = b"alice,bob\nbob,carol\n";
        let sketch = Sketch::of(text, None);
        assert_eq!(find(&sketch, Some(Answer::No)), Ok(None));
        assert_eq!(find(&sketch, Some(Answer::Yes)).unwrap().unwrap().text, b"alice,bob");
    }
}
